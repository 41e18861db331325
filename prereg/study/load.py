"""YAML text to a `Study`: read safely, and every mistake named by file, line and field.

The reader takes the YAML 1.2 core schema over PyYAML's events: `1e-3` is a number, `no` is a word,
nothing is a date. What two readers could take for different things is refused: duplicate keys,
aliases, merge keys, tags, text that is not in normal form C, invisible and bidirectional characters,
numbers that a double cannot hold. Whether the fields make a study is `prereg.study.spec`'s business.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

import yaml
from pydantic import JsonValue

from prereg.errors import FieldPath, StudyError, StudyFileError, Where, field_error
from prereg.registry.disk import open_regular, read_regular
from prereg.registry.paths import PUBLISHED_SUFFIX, Root
from prereg.study.designs.per_task import names_tasks, refuse_families, with_tasks
from prereg.study.faults import nearest_study, no_study, yaml_error
from prereg.study.spec import Study, study_from_document
from prereg.study.tasks import task_names

_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LARGEST_BYTES = 1 << 20
_LARGEST_LOCK = 1 << 26
_MOST_FRESH = 5000
_DEEPEST = 32
_MOST_VALUES = 20_000
_MOST_MARKS = 30  # as the stream-safe text format of Unicode (UAX 15, section 13)
_LARGEST_INT = 2**53 - 1

# Plain scalars by the core schema (YAML 1.2.2, section 10.3.2); the first that fits decides.
_CORE: tuple[tuple[re.Pattern[str], Callable[[str], bool | int | float | None]], ...] = (
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

Lines = dict[FieldPath, int]


def _fault(
    found: str, required: str, fix: str = "", *, line: int | None = None, field: FieldPath = ()
) -> StudyFileError:
    return StudyFileError(found, required=required, fix=fix, where=Where(line=line, field=field))


_FIRST = "study: NAME   (ablate new NAME writes a whole one)"


@dataclass(frozen=True)
class Loaded:
    """A study and the exact bytes it was read from."""

    study: Study
    source_bytes: bytes
    path: Path
    lines: Lines = field(default_factory=dict)
    """The line of every path of the document, from 1."""

    def line(self, path: FieldPath) -> int | None:
        """The line of a field, or of its nearest ancestor that the file holds."""
        return line_of(path, self.lines)


def load_study(path: Path, root: Path | None = None) -> Loaded:
    """Read a study file. Raises a child of `StudyError` placed at file, line and field.

    The task pack of claims `per: task` is looked for from the root, which is that of the file where none is given.
    """
    source = read_text_file(path)
    lines: Lines = {}
    try:
        document = parse_yaml(source, lines)
        _refuse_published(document, path)
        document |= _with_fresh_seeds(document, path)
        document = _with_claims_per_task(document, path, root, lines)
        study = study_from_document(document)
        _check_name(study.study, path)
    except StudyError as error:
        first, *others = (
            one.at(file=path, line=one.where.line or line_of(one.where.field, lines)) for one in (error, *error.others)
        )
        raise first.followed_by(sorted(others, key=lambda one: one.where.line or 0)) from None
    return Loaded(study=study, source_bytes=source, path=path, lines=lines)


def parse_yaml(
    source: bytes, lines: Lines, *, first: str = "study: NAME   (ablate new NAME writes a whole one)"
) -> dict[str, JsonValue]:
    """Plain data of one YAML mapping; `lines` is filled with the line of every path, from 1.

    `first` is what such a file begins with, for a file that was left empty.
    """
    text = _decode(source)
    if "\t" not in text:  # which libyaml takes in more places
        with suppress(yaml.YAMLError, ValueError, OverflowError):
            # A tenth of the time. What libyaml refuses, PyYAML reads, or says why not.
            return _Builder(yaml.parse(text, Loader=_FAST), lines, first).document()
        lines.clear()
    try:
        return _Builder(yaml.parse(text, Loader=yaml.SafeLoader), lines, first).document()
    except yaml.MarkedYAMLError as error:
        raise yaml_error(error, text) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML lets a bare ValueError out for an escape such as "\UFFFFFFFF".
        raise _fault(f"not YAML: {str(error).splitlines()[0]}", "one YAML mapping") from None


def read_text_file(path: Path) -> bytes:
    """The bytes of a YAML file, if it is one by its name and no larger than a study may be."""

    def refusal(found: str, required: str, fix: str = "") -> StudyFileError:
        return StudyFileError(found, required=required, fix=fix, where=Where(file=path))

    if path.suffix != ".yaml":
        raise refusal(*no_study(path))
    try:
        with open_regular(path) as stream:
            source = stream.read(_LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise refusal("no such file", "the path of a study file", nearest_study(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise refusal(f"cannot be read: {reason}", "a readable file") from None
    if len(source) > _LARGEST_BYTES:
        raise refusal("the file is larger than 1 MiB", "a study that can be read")
    return source


def _decode(source: bytes) -> str:
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as error:
        at = source.count(b"\n", 0, error.start) + 1
        raise _fault(f"byte {error.start} is not UTF-8", "UTF-8 text", line=at) from None
    for number, line in enumerate(text.split("\n"), start=1):
        _check_text(line.removesuffix("\r"), number, blank="\t")
    return text


def _check_text(text: str, line: int, blank: str = "\t\n") -> None:
    """Refuse what a reader cannot see or two readers would compare differently."""
    if text.isascii() and text.isprintable():
        return
    marks = 0
    for column, character in enumerate(text, start=1):
        # Putting a long row of marks into normal form takes time that grows with its square.
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks > _MOST_MARKS:
            found = f"more than {_MOST_MARKS} combining marks on one letter, at column {column}"
            raise _fault(found, "text that can be read", "delete the marks", line=line)
        # Cc control, Cf invisible and bidirectional, Cs surrogates, Zl and Zp line and paragraph separators.
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in blank:
            name = unicodedata.name(character, "a control character")
            found = f"U+{ord(character):04X} ({name}) at column {column}"
            required = "text without control, invisible or bidirectional characters"
            raise _fault(found, required, "delete the character", line=line)
    if not unicodedata.is_normalized("NFC", text):
        composed = unicodedata.normalize("NFC", text)
        differs = next(i for i, (a, b) in enumerate(zip(text, composed + " ", strict=False)) if a != b)
        raise _fault(
            f"text that is not in Unicode normal form C, at column {differs + 1}",
            "normal form C, so that equal words have equal bytes",
            f"write '{composed[differs : differs + 1]}' as one character",
            line=line,
        )


def _refuse_published(document: dict[str, JsonValue], path: Path) -> None:
    if path.name.endswith(PUBLISHED_SUFFIX) and "study" not in document:
        raise _fault(
            "published figures, not a study",
            "the path of a study file",
            f"{path.with_name(path.name.removesuffix(PUBLISHED_SUFFIX))}.yaml, which is read together with them",
        )


def _check_name(name: str, path: Path) -> None:
    if name != path.stem:
        found, required = f"study '{name}' lies in a file named '{path.name}'", "the study's id is its file's name"
        raise _fault(found, required, f"study: {path.stem}", field=("study",))


def _with_fresh_seeds(document: dict[str, JsonValue], path: Path) -> dict[str, JsonValue]:
    """The seeds of `seeds: fresh N`: those in the study's own lock, then the lowest that no other lock beside it has.

    Other studies may have looked at runs of their seeds, and a hypothesis that they suggested needs new ones.
    """
    wanted = document.get("seeds")
    if not isinstance(wanted, str):
        return {}
    required = f"a list of seeds, or fresh N with N up to {_MOST_FRESH}"
    number = re.fullmatch(r"fresh ([1-9][0-9]{0,3})", wanted)
    if number is None or int(number[1]) > _MOST_FRESH:
        raise field_error(("seeds",), f"'{wanted}'", required, "seeds: fresh 5")
    own: list[JsonValue] = []
    used: set[JsonValue] = set()
    for lock in sorted(path.parent.glob("*.lock.json")):
        try:
            promise = json.loads(read_regular(lock, _LARGEST_LOCK))
            seeds: list[JsonValue] = [int(seed) for seed in promise["study"]["seeds"]]
            piloting = [promise["study"].get(block) or {} for block in ("tune", "components")]
            pilot = [int(seed) for block in piloting for seed in block.get("seeds", ())]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            found, needed = f"the seeds in {lock.name} cannot be read", "a lock file as it was written"
            fix = f"restore {lock.name} from version control, or list the seeds"
            raise _fault(found, needed, fix, field=("seeds",)) from None
        if lock.name == f"{path.stem}.lock.json":
            own = seeds
        else:
            used.update([*seeds, *pilot])
    free = (seed for seed in count(1) if seed not in used and seed not in own)
    return {"seeds": [*own, *islice(free, max(0, int(number[1]) - len(own)))][: int(number[1])]}


def _with_claims_per_task(
    document: dict[str, JsonValue], path: Path, root: Path | None, lines: Lines
) -> dict[str, JsonValue]:
    """The document with claims `per: task` written out, each on the line that it is written from: over the tasks of the
    pack that lies here, else over those of the study's own lock."""
    refuse_families(document)
    pack = names_tasks(document)
    if not pack:
        return document
    tasks = task_names(pack, Root.find(path, root)) or _tasks_of_lock(path, pack)
    if not tasks:
        raise _fault(
            f"per: task, and the tasks of '{pack}' are not known here",
            "the pack's files on this machine, from which one claim a task is written; of a folder of *.yaml no claim "
            "is",
            "put the pack into data/, or write the claims out: harness/accuracy/TASK",
            field=("measure", "harness", "tasks"),
        )
    written = with_tasks(document, tasks)
    for name, one in written["hypotheses"].items():
        line = one.get("family") if isinstance(one, dict) else None
        for place, at in [*lines.items()] if isinstance(line, str) else ():
            if place[:2] == ("hypotheses", line):
                lines["hypotheses", name, *place[2:]] = at
    return written


def _tasks_of_lock(path: Path, pack: str) -> tuple[str, ...]:
    """The tasks of claims `per: task` in the study's own lock, if it registered this pack."""
    try:
        study = json.loads(read_regular(path.with_suffix(".lock.json"), _LARGEST_LOCK))["study"]
        if study["measure"]["harness"]["tasks"] != pack:
            return ()
        written = [(name, one["family"]) for name, one in study["hypotheses"].items() if one.get("family")]
        return tuple(dict.fromkeys(name.removeprefix(f"{family}.") for name, family in written))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ()


def line_of(field: FieldPath, lines: Lines) -> int | None:
    """The line of a field, or of its nearest ancestor in the file."""
    for length in range(len(field), 0, -1):
        if field[:length] in lines:
            return lines[field[:length]]
    return lines.get(())


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
            raise _fault("the file is empty", "one YAML mapping", self.first)
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
        found: dict[str, JsonValue] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self.key(event, path)
            line = _line(event)
            if key in found:
                raise self.refusal(
                    event,
                    f"'{key}' is given twice, on lines {self.lines[(*path, key)]} and {line}",
                    "each key once",
                    (*path, key),
                    f"rename or delete line {line}",
                )
            self.lines[(*path, key)] = line
            found[key] = self.value(next(self.events), (*path, key))
        return found

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
        found: list[JsonValue] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            self.lines[(*path, len(found))] = _line(event)
            found.append(self.value(event, (*path, len(found))))
        return found

    def scalar(self, event: yaml.ScalarEvent, path: FieldPath) -> JsonValue:
        text = str(event.value)
        if not event.implicit[0]:  # in quotes, or a block of text
            _check_text(text, _line(event))
            return text
        read = next((read for pattern, read in _CORE if pattern.fullmatch(text)), None)
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
        return _fault(found, required, fix, line=_line(event), field=path)


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None, event
    return int(event.start_mark.line) + 1
