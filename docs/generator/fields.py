"""Fields of pydantic models as sections of a page, by their JSON schema: value, default and meaning of each.

The schema is what a file must hold, so a field is described as it is written in the file, not as Python keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from docs.generator.markdown import code, link, sentence, table

Schema = Mapping[str, Any]
_PREFIX = "#/$defs/"
_KINDS = {"integer": "integer", "number": "number", "boolean": "`true` or `false`", "string": "text"}
_BOUNDS = (("exclusiveMinimum", ">"), ("minimum", "≥"), ("exclusiveMaximum", "<"), ("maximum", "≤"))


@dataclass
class Section:
    """One model at the first place where a file has it, and the other places."""

    heading: str
    schema: Schema
    also: list[str] = field(default_factory=list)


class Fields:
    """The sections of one file.

    `elsewhere` names models that another page describes, with a link in Markdown; `unless` says of (model, field) under
    which condition it may be left out. The table of the whole file has no heading of its own.
    """

    def __init__(
        self,
        schema: Schema,
        elsewhere: Mapping[str, str] | None = None,
        unless: Mapping[tuple[str, str], str] | None = None,
        *,
        prefix: str = "",
    ) -> None:
        self.defs: Mapping[str, Schema] = schema.get("$defs", {})
        self.elsewhere = {"JsonValue": "any value", **(elsewhere or {})}
        self.unless = dict(unless or {})
        self.prefix = prefix
        self.sections: dict[str, Section] = {"": Section("", schema)}
        self._enter("", schema)

    def _enter(self, path: str, model: Schema) -> None:
        """Every model below a model, depth first."""
        for name, value in model.get("properties", {}).items():
            for place, below, alone in self._models(f"{path}.{name}" if path else name, value):
                if below in self.sections:
                    self.sections[below].also.append(place)
                elif below not in self.elsewhere:
                    self.sections[below] = Section(self._heading(place, below, alone=alone), self.defs[below])
                    self._enter(place, self.defs[below])

    def _heading(self, place: str, name: str, *, alone: bool) -> str:
        first = next(iter(self.defs[name]["properties"]))
        return f"{self.prefix}{code(place)}" + ("" if alone else f" with {code(first)}")

    def _models(self, place: str, value: Schema) -> Iterator[tuple[str, str, bool]]:
        """Every model that a value can be: its place, its name, and whether it is all that the value can be."""
        if "$ref" in value:
            name = value["$ref"].removeprefix(_PREFIX)
            if "properties" in self.defs.get(name, {}):
                yield place, name, True
            return
        if options := _options(value):
            for one in options:
                for inner, name, alone in self._models(place, one):
                    others = [other for other in options if other is not one and other.get("type") != "object"]
                    yield inner, name, alone and (not others or inner != place)
        if "items" in value and value.get("type") == "array":
            yield from self._models(f"{place}[]", value["items"])
        if value.get("type") == "object":
            yield from self._models(f"{place}.NAME", _values_of(value))

    def page(self, level: int = 2) -> str:
        """Every section with its table."""
        return "\n".join(self._section(name, one, level) for name, one in self.sections.items())

    def _section(self, model: str, section: Section, level: int) -> str:
        required, rows = section.schema.get("required", []), []
        for name, value in section.schema.get("properties", {}).items():
            default = "required" if name in required else self.unless.get((model, name), self._default(value))
            nullable = name in required and any(one.get("type") == "null" for one in value.get("anyOf", ()))
            words = self.words(value) + " or `null`" * nullable
            rows.append((code(name), words, default, sentence(value.get("description", ""))))
        listed = table(("field", "value", "default", "meaning"), rows)
        if not section.heading:
            return listed
        also = f" Also: {', '.join(map(code, section.also))}." if section.also else ""
        return f"{'#' * level} {section.heading}\n\n{sentence(section.schema.get('description', ''))}{also}\n\n{listed}"

    def words(self, value: Schema) -> str:
        """What a value can be, in words."""
        if "$ref" in value:
            return self._referred(value["$ref"].removeprefix(_PREFIX))
        if options := _options(value):
            return " or ".join(dict.fromkeys(map(self.words, options)))
        if "const" in value:
            return code(str(value["const"]))
        if "enum" in value:
            return ", ".join(code(str(one)) for one in value["enum"])
        return self._plain(value)

    def _plain(self, value: Schema) -> str:
        kind = value.get("type")
        if kind == "array":
            items = value.get("prefixItems", ())
            listed = (
                f"{len(items)}: {', '.join(map(self.words, items))}" if items else _nested(self.words(value["items"]))
            )
            return f"list of {listed}"
        if kind == "object":
            inner = self.words(_values_of(value))
            return "mapping" if inner == "any value" else f"mapping of names to {_nested(inner)}"
        bounds = " and ".join(f"{sign} {_plain_number(value[key])}" for key, sign in _BOUNDS if key in value)
        return f"{_KINDS.get(kind or '', 'any value')} {bounds}".strip()

    def _referred(self, name: str) -> str:
        if name in self.elsewhere:
            return self.elsewhere[name]
        section = self.sections.get(name)
        if section is None:
            return self.words(self.defs.get(name, {}))
        return link(section.heading, "mapping")

    def _default(self, value: Schema) -> str:
        default = value.get("default", {} if value.get("type") == "object" or _options(value) else ())
        if "$ref" in value and isinstance(default, dict):
            return "its defaults"
        return "none" if default is None or default == () else code(_yaml(default))


def _plain_number(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"


def _nested(words: str) -> str:
    return f"({words})" if " or " in words or "`, `" in words else words


def _values_of(value: Schema) -> Schema:
    """Of a mapping, what its values are."""
    patterns = value.get("patternProperties")
    inner = next(iter(patterns.values())) if patterns else value.get("additionalProperties")
    return inner if isinstance(inner, Mapping) else {}


def _yaml(value: Any) -> str:
    """A value as a study file has it, on one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(one)}" for key, one in value.items()) + "}"
    return value if isinstance(value, str) and value else json.dumps(value)


def _options(value: Schema) -> list[Schema]:
    """The branches of a union: of an optional value, or of one that is chosen by its kind."""
    return [one for one in value.get("anyOf", value.get("oneOf", ())) if one.get("type") != "null"]
