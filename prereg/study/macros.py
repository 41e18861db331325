"""Macros: what a block of a study writes for it, such as arms and claims from `components`, or a claim for each task.

A macro is a function from the plain data of a study to the fields that it writes. One engine puts them in, refuses
those that clash with what the study says itself, and remembers where each comes from, so that a mistake in a field that
was written is reported where it was written. A stored study holds a block and its fields, and expands to itself: what
is written must then be what is there, so that one cannot be changed without the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import Any, Literal, NamedTuple

from prereg.errors import FieldPath, StudyError, dotted, field_error

Document = Mapping[str, Any]


class Written(NamedTuple):
    """A field that a macro writes."""

    place: FieldPath
    value: Any
    origin: FieldPath
    """What it is written from."""
    how: Literal["adds", "replaces", "sets", "default"] = "adds"
    """adds: nothing else may be there. replaces: the same, and the entry that it is written from goes. sets: whatever
    is there. default: only where nothing is."""
    inner: Mapping[FieldPath, FieldPath] = {}
    """Fields of the value that are written from a place of their own."""
    same: Callable[[Any, Any], bool] = eq
    """Whether what is there is what is written, such as with its defaults left out."""


Macro = Callable[[Document], Iterable[Written]]


@dataclass(frozen=True)
class Expansion:
    """The plain data of a study with all fields that its blocks write."""

    document: Document
    origins: Mapping[FieldPath, FieldPath] = field(default_factory=dict)
    """Place of a written field -> what it is written from."""

    def origin(self, place: FieldPath) -> FieldPath:
        """Where the file says what lies at a place of the document: the place itself, unless a macro wrote it."""
        for length in range(len(place), 0, -1):
            if place[:length] in self.origins:
                origin = self.origins[place[:length]]
                # A line that was copied has the same fields below it.
                return (*origin, *place[length:]) if origin[:1] == place[:1] else origin
        return place

    def placed(self, error: StudyError) -> StudyError:
        """An error and those that follow it, each where the file says what it is about."""
        first, *others = (one.at(field=self.origin(one.where.field)) for one in (error, *error.others))
        return first.followed_by(others)


def expand(document: Document, macros: Sequence[Macro]) -> Expansion:
    """The document with what each macro writes, one after the other. Raises `SpecError` where a macro cannot write, or
    where something else is already there."""
    origins: dict[FieldPath, FieldPath] = {}
    for macro in macros:
        fields = tuple(macro(document))
        _refuse_clashes(document, fields)
        for parent in dict.fromkeys(written.place[:-1] for written in fields):
            document = _with(document, parent, [written for written in fields if written.place[:-1] == parent])
        for written in fields:
            if written.how != "sets":
                origins |= {written.place: written.origin, **written.inner}
    return Expansion(document, origins)


def _refuse_clashes(document: Document, fields: Sequence[Written]) -> None:
    """What is written is there nowhere, or everywhere and the same."""
    blocks = {written.place[:-1]: _at(document, written.place[:-1]) for written in fields}
    added = [written for written in fields if written.how in ("adds", "replaces")]
    here = [written for written in added if written.place[-1] in blocks[written.place[:-1]]]
    others = [one for one in here if not one.same(blocks[one.place[:-1]].get(str(one.place[-1])), one.value)]
    lacking = [written for written in added if here and written not in here]
    for written in (*others, *lacking):
        parent, name = dotted(written.place[:-1]), written.place[-1]
        fault = "there is another one of that name" if others else "it is not there"
        raise field_error(
            written.place,
            f"{dotted(written.origin)} writes '{name}' of {parent}, and {fault}",
            f"{parent} of other names next to those that are written",
            f"rename '{name}', or what it is written from",
        )


def _with(document: Document, parent: FieldPath, fields: Sequence[Written]) -> dict[str, Any]:
    """The document with fields of one mapping, in the order of a file: what is added comes first, and what replaces an
    entry comes in its place."""
    if parent:
        head, *rest = str(parent[0]), *parent[1:]
        inner = document.get(head) or {}
        # What is no mapping is left to the models of the fields, which say so.
        return {**document, head: _with(inner, tuple(rest), fields) if isinstance(inner, Mapping) else inner}
    ends = {written.origin[-1] for written in fields if written.how == "replaces"}
    block: dict[str, Any] = {str(one.place[-1]): one.value for one in fields if one.how == "adds"}
    for key, value in document.items():
        if key in ends:
            block |= {str(one.place[-1]): one.value for one in fields if one.origin[-1] == key}
        else:
            block.setdefault(key, value)
    for one in fields:
        if one.how == "sets":
            block[str(one.place[-1])] = one.value
        elif one.how == "default":
            block.setdefault(str(one.place[-1]), one.value)
    return block


_ABSENT = object()


def _at(document: Document, place: FieldPath) -> Mapping[str, Any]:
    """The mapping at a place; an empty one where there is none."""
    value: Any = document
    for key in place:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}
