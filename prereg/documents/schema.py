"""The JSON schema of the study format, for editors: completion and hover text from the code's own docstrings.

A file that satisfies the schema may still break a promise between fields; `prereg.study.load` is the judge.
"""

from __future__ import annotations

from typing import Any

from prereg.documents.published import Published
from prereg.study.spec import Study


def json_schema() -> dict[str, Any]:
    """The schema of a study file, JSON Schema draft 2020-12."""
    schema = Study.model_json_schema(mode="validation")
    schema["$defs"]["JsonValue"] = {"description": "Any value: text, a number, true or false, a list, a mapping."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        # Which of its two forms the base has follows from the trainer; without this, an editor would
        # take a misspelt field of the built-in trainer for a command's own.
        "if": {"properties": {"trainer": {"const": "command"}}, "required": ["trainer"]},
        "else": {"properties": {"base": {"$ref": "#/$defs/Training"}}},
    }


def published_schema() -> dict[str, Any]:
    """The schema of the published figures next to a study."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Published.model_json_schema(mode="validation")}
