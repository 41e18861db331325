"""YAML parser: text to plain data, read safely (no duplicate keys, aliases, tags), with the line of every value.

The reader takes the YAML 1.2 core schema over PyYAML's events: `1e-3` is a number, `no` is a word,
nothing is a date. What two readers could take for different things is refused: duplicate keys,
aliases, merge keys, tags, text that is not in normal form C, invisible and bidirectional characters,
numbers that a double cannot hold.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import yaml
from pydantic import JsonValue

from prereg.errors import FieldPath, StudyFileError, Where
from prereg.study.faults import yaml_error

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 32
_MOST_VALUES = 20_000
_MOST_MARKS = 30  # as the stream-safe text format of Unicode (UAX 15, section 13)
_LARGEST_INT = 2**53 - 1

# Plain scalars by the core schema (YAML 1.2.2, section 10.3.2); the first that fits decides.
CORE: tuple[tuple[re.Pattern[str], Callable[[str], bool | int | float | None]], ...] = (
    (re.compile(r"null|Null|NULL|~|"), lambda text: None),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    # Twenty digits are more than any number we take, and Python refuses to convert thousands of them.
    (re.compile(r"[-+]?[0-9]+"), lambda text: int(text) if len(text.lstrip("+-0")) < 20 else 2**64),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda text: math.inf),
)
_BEGIN = ("", *"~nNtTfF+-.0123456789")
"""What a scalar of the core schema that is no text can begin with."""

Lines = dict[FieldPath, int]


def file_error(
    found: str, required: str, fix: str = "", *, line: int | None = None, field: FieldPath = ()
) -> StudyFileError:
    """What is wrong with a file, at a line or field; whoever knows the file's path adds it."""
    return StudyFileError(found, required=required, fix=fix, where=Where(line=line, field=field))


def parse_yaml(source: bytes, lines: Lines, *, first: str = "study: NAME") -> dict[str, JsonValue]:
    """Plain data of one YAML mapping; `lines` is filled with the line of every path, from 1.

    `first` is what such a file begins with, for a file that was left empty.

    >>> lines: Lines = {}
    >>> parse_yaml(b"study: tiny\\nseeds: [1, 2]\\n", lines)
    {'study': 'tiny', 'seeds': [1, 2]}
    >>> lines[("seeds",)], lines[("seeds", 1)]
    (2, 2)
    """
    text = _decode(source)
    if "\t" not in text:  # which libyaml takes in more places
        with suppress(yaml.YAMLError, ValueError, OverflowError):
            # A tenth of the time. What libyaml refuses, PyYAML reads, or says why not.
            return _Builder(yaml.parse(text, Loader=LOADER), lines, first).document()
        lines.clear()
    try:
        return _Builder(yaml.parse(text, Loader=yaml.SafeLoader), lines, first).document()
    except yaml.MarkedYAMLError as error:
        raise yaml_error(error, text) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML lets a bare ValueError out for an escape such as "\UFFFFFFFF".
        raise file_error(f"not YAML: {str(error).splitlines()[0]}", "one YAML mapping") from None


def line_of(field: FieldPath, lines: Lines) -> int | None:
    """The line of a field, or of its nearest ancestor in the file.

    >>> line_of(("base", "optim", "lr"), {("base",): 4, ("base", "optim"): 5}), line_of(("seeds",), {("base",): 4})
    (5, None)
    """
    for length in range(len(field), 0, -1):
        if field[:length] in lines:
            return lines[field[:length]]
    return lines.get(())


def _decode(source: bytes) -> str:
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as error:
        at = source.count(b"\n", 0, error.start) + 1
        raise file_error(f"byte {error.start} is not UTF-8", "UTF-8 text", line=at) from None
    for number, line in enumerate(text.split("\n"), start=1):
        check_text(line.removesuffix("\r"), number, blank="\t")
    return text


def check_text(text: str, line: int, blank: str = "\t\n") -> None:
    """Refuse what a reader cannot see or two readers would compare differently.

    >>> check_text("plain words", line=1)
    >>> check_text("a\\u200bb", line=7)
    Traceback (most recent call last):
    prereg.errors.StudyFileError: line 7: U+200B (ZERO WIDTH SPACE) at column 2
      required: text without control, invisible or bidirectional characters
      try:      delete the character
    """
    if text.isascii() and text.isprintable():
        return
    marks = 0
    for column, character in enumerate(text, start=1):
        # Putting a long row of marks into normal form takes time that grows with its square.
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks > _MOST_MARKS:
            found = f"more than {_MOST_MARKS} combining marks on one letter, at column {column}"
            raise file_error(found, "text that can be read", "delete the marks", line=line)
        # Cc control, Cf invisible and bidirectional, Cs surrogates, Zl and Zp line and paragraph separators.
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in blank:
            name = unicodedata.name(character, "a control character")
            found = f"U+{ord(character):04X} ({name}) at column {column}"
            required = "text without control, invisible or bidirectional characters"
            raise file_error(found, required, "delete the character", line=line)
    if not unicodedata.is_normalized("NFC", text):
        composed = unicodedata.normalize("NFC", text)
        differs = next(i for i, (a, b) in enumerate(zip(text, composed + " ", strict=False)) if a != b)
        raise file_error(
            f"text that is not in Unicode normal form C, at column {differs + 1}",
            "normal form C, so that equal words have equal bytes",
            f"write '{composed[differs : differs + 1]}' as one character",
            line=line,
        )


class _Builder:
    """Plain data from YAML events, without recursion into a text that is too deep."""

    def __init__(self, events: Iterator[yaml.Event], lines: Lines, first: str) -> None:
        self.events = events
        self.lines = lines
        self.first = first
        self.n_values = 0

    def document(self) -> dict[str, JsonValue]:
        next(self.events)  # the stream
        start = next(self.events)
        if not isinstance(start, yaml.DocumentStartEvent):
            raise file_error("the file is empty", "one YAML mapping", self.first)
        if start.version or start.tags:
            raise self.refusal(start, "a YAML directive", "no lines that begin with %")
        first = next(self.events)
        if not isinstance(first, yaml.MappingStartEvent):
            raise self.refusal(first, "the file does not hold a mapping", f"fields such as {self.first}")
        document = self.mapping(first, ())
        next(self.events)  # the end of the document
        after = next(self.events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise self.refusal(after, "a second document", "one study a file")
        self.lines[()] = 1
        return document

    def value(self, event: yaml.Event, path: FieldPath) -> JsonValue:
        if isinstance(event, yaml.AliasEvent):
            raise self.refusal(event, f"an alias, *{event.anchor}", "the value itself, written out", path)
        assert isinstance(event, (yaml.ScalarEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent)), event
        self.n_values += 1
        if self.n_values > _MOST_VALUES:
            raise self.refusal(
                event, f"more than {_MOST_VALUES:,} keys and values", "a study that can be read", path[:1]
            )
        if event.anchor is not None:
            raise self.refusal(event, f"an anchor, &{event.anchor}", "values without anchors", path)
        if event.tag is not None:
            raise self.refusal(event, f"a tag, {event.tag}", "values without tags; quotes make a text", path)
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, path)
        if len(path) >= _DEEPEST:
            raise self.refusal(event, f"nested more than {_DEEPEST} deep", "a flatter document", path[:1])
        return self.mapping(event, path) if isinstance(event, yaml.MappingStartEvent) else self.sequence(path)

    def mapping(self, start: yaml.MappingStartEvent, path: FieldPath) -> dict[str, JsonValue]:
        if not path and (start.anchor is not None or start.tag is not None):
            raise self.refusal(start, "an anchor or a tag on the document", f"fields such as {self.first}")
        fields: dict[str, JsonValue] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.key(event, path)
            line = _line(event)
            if key in fields:
                raise self.refusal(
                    event,
                    f"'{key}' is given twice, on lines {self.lines[(*path, key)]} and {line}",
                    "each key once",
                    (*path, key),
                    f"rename or delete line {line}",
                )
            self.lines[(*path, key)] = line
            fields[key] = self.value(next(self.events), (*path, key))
        return fields

    def key(self, event: yaml.Event, path: FieldPath) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self.refusal(event, "a key that is not a word", "keys of plain text", path)
        if event.implicit[0] and event.value == "<<":
            raise self.refusal(event, "a merge key, <<", "the fields themselves, written out", path)
        key = self.value(event, path)
        if not isinstance(key, str):
            raise self.refusal(
                event,
                f"the key {event.value or '(empty)'} is not text",
                "keys of plain text",
                path,
                f'"{event.value}":' if event.value else "",
            )
        return key

    def sequence(self, path: FieldPath) -> list[JsonValue]:
        entries: list[JsonValue] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            self.lines[(*path, len(entries))] = _line(event)
            entries.append(self.value(event, (*path, len(entries))))
        return entries

    def scalar(self, event: yaml.ScalarEvent, path: FieldPath) -> JsonValue:
        text = str(event.value)
        if not event.implicit[0]:  # in quotes, or a block of text
            check_text(text, _line(event))
            return text
        if text[:1] not in _BEGIN:  # most texts, and a quarter of the time
            return text
        read = next((read for pattern, read in CORE if pattern.fullmatch(text)), None)
        if read is None:
            return text
        plain = read(text)
        if isinstance(plain, float) and not math.isfinite(plain):
            raise self.refusal(event, f"{text} is not a finite number", "a finite number", path)
        if isinstance(plain, int) and not isinstance(plain, bool) and abs(plain) > _LARGEST_INT:
            raise self.refusal(
                event,
                "a whole number beyond 2^53, which a double cannot hold exactly",
                "a smaller number, or text in quotes",
                path,
            )
        return plain

    @staticmethod
    def refusal(event: yaml.Event, found: str, required: str, path: FieldPath = (), fix: str = "") -> StudyFileError:
        return file_error(found, required, fix, line=_line(event), field=path)


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None, event
    return int(event.start_mark.line) + 1
