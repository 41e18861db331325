"""The one parent of every part of a study: frozen, strict, closed, documented.

The docstring under a field is its text in the JSON schema, so the documentation that an editor shows is the
documentation in the code. It is read when a schema or a message needs it: pydantic's `use_attribute_docstrings` reads
the source of every model at import, which takes a third of the time of loading them.
"""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
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
                written.setdefault("description", texts[name])
        return schema


@cache
def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """The docstring under each field of a model and of those that it extends, by the field's name."""
    texts = {}
    for one in reversed(model.__mro__):
        if one not in (FrozenModel, BaseModel) and issubclass(one, BaseModel):
            (declared,) = ast.parse(dedent(inspect.getsource(one))).body
            for field, said in pairwise(getattr(declared, "body", ())):
                match field, said:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        texts[name] = inspect.cleandoc(text)
    return texts
