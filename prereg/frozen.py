"""`FrozenModel`, the pydantic base class of every part of a study: frozen, strict, documented; refuses unknown fields.

The docstring under a field is its text in the JSON schema, so the documentation that an editor shows is the
documentation in the code. It is read when a schema or a message needs it: pydantic's `use_attribute_docstrings` reads
the source of every model at import, which takes a third of the time of loading them.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    GetJsonSchemaHandler,
    Tag,
)
from pydantic.json_schema import JsonSchemaValue


class FrozenModel(BaseModel):
    """A frozen value that travels between rooms."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        fields = handler.resolve_ref_schema(schema).get("properties", {})
        texts = field_texts(cls)
        for name, field in cls.model_fields.items():
            written = fields.get(field.alias or name)
            if written is not None and name in texts:
                # A description that the field sets itself goes before its docstring.
                written.setdefault("description", texts[name])
        return schema


BRANCH = "\N{INFORMATION SEPARATOR ONE}"
"""What begins the name of a branch of a union in the place of an error: no text of a file can hold it."""


def branch(kind: str) -> Tag:
    """The mark of one branch of a union that `chosen_by` chooses from: the name of its model, or text, number or list.

    What follows a comma is what else the value may be, for the message about a text that is none of the branch's."""
    return Tag(BRANCH + kind)


def chosen_by(*models: type[BaseModel], text: str = "text", number: str = "", listed: str = "") -> Discriminator:
    """Which branch of a union a value was meant for: by its kind, and of several mappings the one that has most of the
    fields that it gives. So an error is about that branch, and about no other."""

    def kind(value: Any) -> str:
        # A model in Python code names its branch itself; plain data is matched by its form.
        if isinstance(value, BaseModel):
            return BRANCH + type(value).__name__
        if isinstance(value, dict) and models:
            # By the fields in common: of `{looks: ..., spending: typo}` the error is then about spending.
            return BRANCH + max(models, key=lambda model: len(value.keys() & model.model_fields.keys())).__name__
        if listed and isinstance(value, list | tuple):
            return BRANCH + listed
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return BRANCH + (number if number and is_number else text)

    return Discriminator(kind)


def once(word: str, required: str = "each once", key: Callable[[Any], Any] | None = None) -> AfterValidator:
    """Refuse a list of which two entries, or what `key` takes of them, are the same; `word` says what an entry is."""

    def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
        keys = [value if key is None else key(value) for value in values]
        for at, value in enumerate(keys):
            if value in keys[:at]:
                raise ValueError(f"{word} {value!r} is given twice", required, f"another {word} for one {value!r}")
        return values

    return AfterValidator(distinct)


@cache
def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """The docstring under each field of a model and of those that it extends, by the field's name."""
    texts = {}
    # From the oldest parent on, so that a field that is declared again has its newest text.
    for parent in reversed(model.__mro__):
        if parent not in (FrozenModel, BaseModel) and issubclass(parent, BaseModel):
            (declared,) = ast.parse(dedent(inspect.getsource(parent))).body
            for field, after in pairwise(getattr(declared, "body", ())):
                match field, after:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        texts[name] = inspect.cleandoc(text)
    return texts
