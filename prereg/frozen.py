"""The one parent of every part of a study: frozen, strict, closed, documented.

`use_attribute_docstrings` turns the docstring under a field into the JSON schema's text, so the
documentation that an editor shows is the documentation in the code.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class FrozenModel(BaseModel):
    """A frozen value that travels between rooms."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=True,
    )


class GrownModel(FrozenModel):
    """A model some of whose fields came after values of it were written and hashed: those are written only where they
    differ from their default, so that a value without them keeps its bytes."""

    later_fields: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_unused_later_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        for name in self.later_fields:
            if getattr(self, name) == type(self).model_fields[name].get_default(call_default_factory=True):
                written.pop(name, None)
        return written
