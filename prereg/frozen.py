"""The one parent of every part of a study: frozen, strict, closed, documented.

`use_attribute_docstrings` turns the docstring under a field into the JSON schema's text, so the
documentation that an editor shows is the documentation in the code.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


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
