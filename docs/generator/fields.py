"""Fields of pydantic models as sections of a page, by their JSON schema: value, default and meaning of each.

The schema is what a file must hold, so a field is described as it is written in the file, not as Python keeps it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from docs.generator.markdown import anchor, code, sentence, table

Schema = Mapping[str, Any]
_KINDS = {"integer": "integer", "number": "number", "boolean": "`true` or `false`", "string": "text"}
_BOUNDS = (("exclusiveMinimum", ">"), ("minimum", "≥"), ("exclusiveMaximum", "<"), ("maximum", "≤"))
Texts = Mapping[Any, str]
NONE: Texts = MappingProxyType({})


class Fields:
    """The sections of one file, a `prefix` before their headings; the table of the whole file has no heading.

    `elsewhere` names models that another page describes, with a link in Markdown; `unless` says of (model, field) under
    which condition it may be left out.
    """

    def __init__(self, schema: Schema, elsewhere: Texts = NONE, unless: Texts = NONE, prefix: str = "") -> None:
        self.defs: Mapping[str, Schema] = {**schema.get("$defs", {}), "": schema}
        self.elsewhere = {"JsonValue": "any value", **elsewhere}
        self.unless, self.prefix = unless, prefix
        self.headings = {"": ""}
        self.also: defaultdict[str, list[str]] = defaultdict(list)
        self._enter("", "")

    def _enter(self, path: str, model: str) -> None:
        """Give every model below a model its heading, depth first: the first place where a file has it."""
        for name, value in self.defs[model].get("properties", {}).items():
            for place, below, alone in self._models(f"{path}.{name}".lstrip("."), value):
                if below in self.headings:
                    self.also[below].append(place)
                elif below not in self.elsewhere:
                    first = next(iter(self.defs[below]["properties"]))
                    self.headings[below] = f"{self.prefix}{code(place)}" + ("" if alone else f" with {code(first)}")
                    self._enter(place, below)

    def _models(self, place: str, value: Schema) -> Iterator[tuple[str, str, bool]]:
        """Every model that a value can be: its place, its name, and whether it is all that the value can be."""
        options, name = _options(value), _name(value)
        if name and "properties" in self.defs[name]:
            yield place, name, True
        for option in options:
            # A mapping next to text or a list: its heading then names the field that tells it from them.
            beside = [each for each in options if each is not option and each.get("type") != "object"]
            for inner, below, alone in self._models(place, option):
                yield inner, below, alone and (not beside or inner != place)
        if value.get("type") == "array":
            yield from self._models(f"{place}[]", value.get("items", {}))
        if value.get("type") == "object":
            yield from self._models(f"{place}.NAME", _values_of(value))

    def page(self) -> str:
        """Every section with its table."""
        return "\n".join(map(self._section, self.headings))

    def _section(self, model: str) -> str:
        schema, rows = self.defs[model], []
        for name, value in schema.get("properties", {}).items():
            required = name in schema.get("required", ())
            default = "required" if required else self.unless.get((model, name), _default(value))
            # Of a field with a default `null` is what leaving it out says.
            nullable = required and any(option.get("type") == "null" for option in value.get("anyOf", ()))
            words = self.words(value) + " or `null`" * nullable
            rows.append((code(name), words, default, sentence(value.get("description", ""))))
        fields = table(("field", "value", "default", "meaning"), rows)
        if not model:
            return fields
        also = f" Also: {', '.join(map(code, self.also[model]))}." if self.also[model] else ""
        heading = f"{'###' if self.prefix else '##'} {self.headings[model]}"
        return f"{heading}\n\n{sentence(schema.get('description', ''))}{also}\n\n{fields}"

    def words(self, value: Schema) -> str:
        """What a value can be, in words."""
        kind, name = value.get("type", ""), _name(value)
        if name:
            link = f"[mapping](#{anchor(self.headings[name])})" if name in self.headings else ""
            return link or self.elsewhere.get(name) or self.words(self.defs[name])
        if options := _options(value):
            return " or ".join(dict.fromkeys(map(self.words, options)))
        if choices := value.get("enum", [value["const"]] if "const" in value else ()):
            return ", ".join(map(code, choices))
        if kind in ("array", "object"):
            items, inner = value.get("prefixItems"), self.words(value.get("items") or _values_of(value))
            each = f"({inner})" if " or " in inner or "`, `" in inner else inner
            if kind == "object":
                return "mapping" if each == "any value" else f"mapping of names to {each}"
            return f"list of {len(items)}: {', '.join(map(self.words, items))}" if items else f"list of {each}"
        ends = [(sign, value[key]) for key, sign in _BOUNDS if key in value]
        bounds = " and ".join(f"{sign} {end:g}" if abs(end) < 1e6 else f"{sign} {end:.0f}" for sign, end in ends)
        return f"{_KINDS.get(kind, 'any value')} {bounds}".strip()


def _name(reference: Schema) -> str:
    """Of which model a value is; empty where the schema says it in place."""
    return str(reference.get("$ref", "")).removeprefix("#/$defs/")


def _options(value: Schema) -> list[Schema]:
    """The branches of a union: of an optional value, or of one that is chosen by its kind."""
    return [option for option in value.get("anyOf", value.get("oneOf", ())) if option.get("type") != "null"]


def _values_of(value: Schema) -> Schema:
    """Of a mapping, what its values are."""
    patterns = value.get("patternProperties")
    inner = next(iter(patterns.values())) if patterns else value.get("additionalProperties")
    return inner if isinstance(inner, Mapping) else {}


def _default(value: Schema) -> str:
    default = value.get("default", {} if value.get("type") == "object" or _options(value) else ())
    if "$ref" in value and isinstance(default, dict):
        return "its defaults"
    shown = default if isinstance(default, str) and default else re.sub(r'"([\w/.-]+)"', r"\1", json.dumps(default))
    return "none" if default is None or default == () else code(shown)
