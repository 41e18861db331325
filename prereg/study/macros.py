"""Macros: blocks of a study that write other fields when it is read, such as arms and claims from `components`.

A macro is a function from the plain data of a study to the fields that it writes. One engine puts them in, refuses
those that clash with what the study says itself, and remembers where each comes from, so that a mistake in a field that
was written is reported where it was written. A stored study holds a block and its fields, and expands to itself: what
is written must then be what is there, so that one cannot be changed without the other.

The engine is here with the two macros that need no block of their own: margins in percent, and seeds for each arm.
`prereg.study.designs` has those of `components` and of claims `per: task`, and `prereg.study.load` fresh seeds.

To add a macro: a function that yields `Written`, its name in `MACROS` (`prereg.study.spec`) or, where it needs the
folder of the study's file, in `load_study`, and a row in tests/prereg/test_macros.py. It runs before any model has seen
the document, so it reads with `mapping_at` and leaves what has another form to the models, which say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from math import isclose
from operator import eq
from typing import Any, Literal, NamedTuple

from prereg.errors import ClaimError, FieldPath, SpecError, StudyError, dotted, field_error
from prereg.metrics.catalogue import Better, declaration_of
from prereg.study.claim import Claim, log_margin, parse_claim, percent_of
from prereg.text import compact

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
    origins: Mapping[FieldPath, FieldPath] = default(default_factory=dict)
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
        first, *others = (each.at(field=self.origin(each.where.field)) for each in (error, *error.others))
        return first.followed_by(others)


def expand(document: Document, macros: Sequence[Macro]) -> Expansion:
    """The document with what each macro writes, one macro after the other, and where each written field comes from.

    Raises `SpecError` where a macro cannot write, or where something else is already there.

    >>> with_seeds = {"seeds": {"small": [1, 2, 3], "large": [2, 3, 4, 5]}}
    >>> expansion = expand(with_seeds, [written_for_arm_seeds])
    >>> expansion.document["seeds"]
    [1, 2, 3, 4, 5]
    >>> expansion.origin(("arm_seeds", "large", 0))
    ('seeds', 'large')
    """
    origins: dict[FieldPath, FieldPath] = {}
    for macro in macros:
        fields = tuple(macro(document))
        # All clashes first: half of a block in the document would look like what the user wrote.
        _refuse_clashes(document, fields)
        for parent in dict.fromkeys(written.place[:-1] for written in fields):
            document = _with(document, parent, [written for written in fields if written.place[:-1] == parent])
        for written in fields:
            # What `sets` a field that the file holds leaves the field where it is, so its errors lie there already.
            if written.how != "sets":
                origins |= {written.place: written.origin, **written.inner}
    return Expansion(document, origins)


def mapping_at(document: Document, *keys: str | int) -> Mapping[str, Any]:
    """The mapping at a place of plain data; an empty one where there is none, or something else.

    >>> mapping_at({"base": {"optim": {"lr": 0.1}}}, "base", "optim"), mapping_at({"base": 3}, "base", "optim")
    ({'lr': 0.1}, {})
    """
    value: Any = document
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def hypotheses_of(document: Document) -> dict[str, Mapping[str, Any]]:
    """The hypotheses of plain data that are mappings, by name."""
    entries = mapping_at(document, "hypotheses")
    return {str(name): entry for name, entry in entries.items() if isinstance(entry, Mapping)}


def improves(document: Document, metric: str) -> Better:
    """Which way a metric improves: as the study of plain data declares it in `metrics.declare`, or as the catalogue has
    it.

    >>> improves({}, "val/loss"), improves({"metrics": {"declare": {"speed": {"better": "higher"}}}}, "speed")
    ('lower', 'higher')
    """
    # As the study declares it, first of all: a user's metric may have the name of one in the catalogue.
    declared = mapping_at(document, "metrics", "declare").get(metric)
    of_catalogue = declaration_of(metric)
    sides: tuple[Better, ...] = ("lower", "higher")
    of_study = (side for side in sides if isinstance(declared, Mapping) and declared.get("better") == side)
    return next(of_study, "neither" if of_catalogue is None else of_catalogue.better)


def _refuse_clashes(document: Document, fields: Sequence[Written]) -> None:
    """What is written is there nowhere, or everywhere and the same."""
    blocks = {written.place[:-1]: mapping_at(document, *written.place[:-1]) for written in fields}
    added = [written for written in fields if written.how in ("adds", "replaces")]
    # A file has none of the fields, and a lock has all of them. A lock with some has been edited.
    present = [written for written in added if written.place[-1] in blocks[written.place[:-1]]]
    differing = [
        written
        for written in present
        if not written.same(blocks[written.place[:-1]].get(str(written.place[-1])), written.value)
    ]
    lacking = [written for written in added if present and written not in present]
    for written in (*differing, *lacking):
        parent, name = dotted(written.place[:-1]), written.place[-1]
        fault = "there is another one of that name" if differing else "it is not there"
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
        # Every mapping on the way is copied: the caller's document stays as it is.
        # What is no mapping is left to the models of the fields, which say so.
        return {**document, head: _with(inner, tuple(rest), fields) if isinstance(inner, Mapping) else inner}
    replaced = {written.origin[-1] for written in fields if written.how == "replaces"}
    block: dict[str, Any] = {str(written.place[-1]): written.value for written in fields if written.how == "adds"}
    for key, value in document.items():
        if key in replaced:
            block |= {str(written.place[-1]): written.value for written in fields if written.origin[-1] == key}
        else:
            block.setdefault(key, value)
    # Last, so that what is set or left at its default does not move in the order of the file.
    for written in fields:
        if written.how == "sets":
            block[str(written.place[-1])] = written.value
        elif written.how == "default":
            block.setdefault(str(written.place[-1]), written.value)
    return block


_AGREE = 1e-9
"""Logarithms of two machines may differ in their last digit."""


def written_for_percentages(document: Document) -> Iterator[Written]:
    """The margin, `scale: log` and `percent` of every hypothesis with `smallest: 2%` or `by at least 2%`.

    A percentage is a ratio of two values, and a ratio is a difference of logarithms. By the direction of the claim:

        lowers, by 2%            a ratio of at most 0.98: a difference of -log(0.98)
        raises, by 2%            a ratio of at least 1.02: a difference of log(1.02)
        does_not_worsen, by 2%   the same in the direction of worse
        changes, does_not_change within a factor of 1.02 either way: log(1.02), the smaller of the two logarithms

    The percentage stays next to the margin, for the reader; the margin on its scale is what is tested. What is no
    mapping, or has no percentage, is left to the models of the fields. Raises `StudyError`.

    >>> document = {"hypotheses": {"gain": {"claim": "a lowers val/loss", "smallest": "2%"}}}
    >>> for written in written_for_percentages(document):
    ...     print(written.place[-1], written.value)
    smallest 0.020202...
    scale log
    percent 2.0
    """
    for name, hypothesis in hypotheses_of(document).items():
        for field, value in _margin_fields(document, name, hypothesis).items():
            # Set and not added: `smallest: 2%` has the field already, and gets the margin in its place.
            place = ("hypotheses", name, field)
            yield Written(place, value, place, "sets")


def _margin_fields(document: Document, name: str, hypothesis: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a percentage of one hypothesis sets; none where it has no percentage."""
    place: FieldPath = ("hypotheses", name)

    # What says a percentage: `smallest: 2%`, the claim, or in a lock `percent` next to the margin that it gave.
    text, smallest, stored = hypothesis.get("claim"), hypothesis.get("smallest"), hypothesis.get("percent")
    of_smallest = percent_of(smallest) if isinstance(smallest, str) else None
    if not isinstance(text, str) or (isinstance(smallest, str) and of_smallest is None):
        return {}
    if stored is not None and type(stored) not in (int, float):
        return {}
    if of_smallest is None and stored is None and "%" not in text:
        return {}
    try:
        claim = parse_claim(text, baseline="")
    except ClaimError as error:
        raise error.at(field=(*place, "claim")) from None
    percent = next((value for value in (claim.percent, of_smallest, stored) if value is not None), None)
    if percent is None:  # a percent sign in a name
        return {}
    _refuse_contradictions(place, hypothesis, claim, percent, (of_smallest, stored))

    # A fall and a rise by the same percentage are not the same step on the logarithm.
    better = hypothesis.get("better") or improves(document, claim.metric)
    falls = claim.plain_verb == "lowers" or (claim.verb == "does_not_worsen" and better == "higher")
    if not 0.0 < percent < (100.0 if falls else 1e6):
        required = "more than 0%" + (", and less than 100%: nothing falls by all of itself" if falls else "")
        field = "smallest" if of_smallest is not None else "claim"
        raise field_error((*place, field), f"a margin of {percent:g}%", required, "smallest: 2%")
    margin = log_margin(percent, falls=falls)

    # A lock holds the margin too: it must be the one that the percentage gives, and keeps its bytes.
    if not isinstance(smallest, str) and smallest is not None:
        if not isinstance(smallest, int | float) or not isclose(smallest, margin, rel_tol=_AGREE):
            found = (
                f"smallest is {smallest} and the margin is {percent:g}%, which is {compact(margin)} on the logarithm"
            )
            fix = f"smallest: {percent:g}%" if claim.percent is None else "leave smallest out"
            raise field_error((*place, "smallest"), found, "one margin", fix)
        margin = smallest
    return {"smallest": margin, "scale": "log", "percent": percent}


def _refuse_contradictions(
    place: FieldPath,
    hypothesis: Mapping[str, Any],
    claim: Claim,
    percent: float,
    of_others: tuple[float | None, ...],
) -> None:
    """One percentage, and the scale that it has a meaning on."""
    # The claim's comes first where there is one: it is what readers quote.
    for value in of_others:
        if value is not None and value != percent and claim.percent is not None:
            raise two_margins(place, f"{value:g}%", f"{claim.percent:g}%")
        if value is not None and value != percent:
            found = f"smallest is {percent:g}% and percent is {value:g}%"
            raise field_error((*place, "percent"), found, "one number: smallest says it", "leave percent out")
    if hypothesis.get("scale", "log") != "log":
        raise field_error(
            (*place, "scale"),
            f"scale is '{hypothesis['scale']}' and the margin is {percent:g}%",
            "scale: log, or none: a percentage is a ratio, and a ratio is a difference of logarithms",
            "leave scale out, or write the margin in the metric's own unit",
        )


def two_margins(place: FieldPath, smallest: str, by: str) -> SpecError:
    """The error of a hypothesis whose `smallest` is not the D of its claim."""
    return field_error(
        (*place, "smallest"),
        f"smallest is {smallest} and the claim says 'by at least {by}'",
        "one number: of a claim 'by at least D' the smallest difference that matters is D",
        "leave smallest out",
    )


def written_for_arm_seeds(document: Document) -> Iterator[Written]:
    """Of `seeds: {ARM: list}` the fields `seeds` and `arm_seeds`.

    >>> [(field.place, field.value) for field in written_for_arm_seeds({"seeds": {"small": [1, 2], "large": [2, 3]}})]
    [(('arm_seeds',), {'small': [1, 2], 'large': [2, 3]}), (('seeds',), [1, 2, 3])]
    """
    seeds, each = document.get("seeds"), document.get("arm_seeds")
    if isinstance(seeds, Mapping):
        # Checked here, since the union over all arms is made here: a text would be taken apart into letters.
        for arm, listed in seeds.items():
            if not isinstance(listed, list | tuple) or any(type(seed) is not int or seed < 0 for seed in listed):
                fix = f"{arm}: [1, 2, 3, 4, 5]"
                required = "a list of whole numbers from 0 on"
                raise field_error(("seeds", str(arm)), f"{str(listed)[:80]}", required, fix)
        each = {str(arm): list(listed) for arm, listed in seeds.items()}
        inner: dict[FieldPath, FieldPath] = {("arm_seeds", arm): ("seeds", arm) for arm in each}
        yield Written(("arm_seeds",), each, ("seeds",), inner=inner)
        yield Written(("seeds",), all_seeds(each), ("seeds",), "sets")


def all_seeds(each: Mapping[str, Iterable[int]]) -> list[int]:
    """Every seed of some arm, once.

    >>> all_seeds({"small": [1, 2, 3], "large": [2, 3, 4]})
    [1, 2, 3, 4]
    """
    return list(dict.fromkeys(seed for seeds in each.values() for seed in seeds))
