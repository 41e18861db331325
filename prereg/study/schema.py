"""JSON Schema of a study file, for editors and the generated reference."""

from __future__ import annotations

from functools import cache
from typing import Any

from prereg.study.spec import Study


@cache
def json_schema() -> dict[str, Any]:
    """The schema of a study file, JSON Schema draft 2020-12; made once in a process, and shared."""
    schema = Study.model_json_schema(mode="validation")
    seeds = schema["properties"]["seeds"]
    fresh = {"type": "string", "pattern": "^fresh [1-9][0-9]*$"}
    schema["properties"]["seeds"] = {
        "description": seeds.pop("description"),
        "title": seeds.pop("title"),
        "anyOf": [seeds, fresh, {"type": "object", "additionalProperties": seeds}],
    }
    schema["$defs"]["JsonValue"] = {"description": "Any value: text, a number, true or false, a list, a mapping."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        # Which of its two forms the base has follows from the trainer; without this, an editor would
        # take a misspelt field of the built-in trainer for a command's own.
        "if": {"properties": {"trainer": {"const": "command"}}, "required": ["trainer"]},
        "else": {"properties": {"base": {"$ref": "#/$defs/Training"}}},
    }
