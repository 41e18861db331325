"""A verdict or a report as it was written, against what this version makes of the same records.

Two versions may word a sentence differently; an outcome, a number or a check that failed is the same in both. So a
text may have other words where each number in it is one of the finding that was judged here. Such words are named and
never shown: whatever is shown is written here, from the registration and from numbers judged here. The title is the
registration's, and nobody else's. A field may be lacking if a later version added it; a check if it
held, or if it is one that is listed only when it fails, since such checks came after verdicts were given. All else is
matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import expm1, isclose
from typing import Any, Literal, get_args

from pydantic import BaseModel

from ablate.judge.audit.audit import declarations
from ablate.judge.verdict import (
    ArmSample,
    ArmSummary,
    Check,
    Decision,
    EffectSize,
    Estimate,
    Finding,
    Interval,
    Stability,
)

Model = type[BaseModel] | None

_WORDED: dict[Model, tuple[str, ...]] = {
    Decision: ("because",),
    Finding: ("sentence", "notes", "unit"),
    Estimate: ("notes",),
    Interval: ("method",),
    Check: ("found", "required"),
}
"""Fields that hold words, by the model that has them: a name that a user chose is never taken for one of them."""
_NAMED_BY: dict[Model, str] = {
    Finding: "hypothesis",
    Stability: "variant",
    Check: "name",
    EffectSize: "name",
    ArmSummary: "arm",
    ArmSample: "arm",
    Estimate: "method",
}
_FIGURES = r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3})?"
_NUMBER = re.compile(rf"[-−]?{_FIGURES}")
_STATED = re.compile(rf"([<>]=?)?\s*((?:(?<![\w.])[-−])?{_FIGURES})")
"""A number in a sentence and the sign of a bound before it. The hyphen of a date or of a name is no minus."""
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DRAWN = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_DIGITS = 1e-9
_SHOWN_DIGITS = 1e-6


@dataclass(frozen=True)
class Comparison:
    """How a file differs from the one written here. Empty, all of it, for the same bytes."""

    matter: tuple[str, ...] = ()
    """What was found is not the same: where, and both values."""
    words: tuple[str, ...] = ()
    """Where words, the form or standardised effects differ: a fault only if the same version wrote both."""
    since: tuple[str, ...] = ()
    """Failed checks that the file need not list: they came about after the decision."""
    digits: bool = False
    """Whether last digits differ."""
    retitled: bool = False
    """Whether the title is another of the registration's: it was reworded after the decision."""


@dataclass(frozen=True)
class _Difference:
    """One place where a verdict as written differs from the one judged here."""

    kind: Literal["matter", "words", "since", "digits"]
    what: str


@dataclass(frozen=True)
class _Place:
    """Where in a verdict two values stand."""

    name: str
    model: Model
    """What the value is, or each member of a list; none of plain values, and of what has names for keys."""
    record: dict[str, Any]
    """The finding, check or test judged here that it belongs to: a sentence may state its numbers."""
    later: Collection[str]
    """Deviations that need not be listed."""
    described: bool = False
    """Whether it is part of a standardised effect, which decides nothing."""

    def inside(self, key: str, model: Model, record: Any = None) -> _Place:
        """The place of a field or a member."""
        return replace(
            self,
            name=f"{self.name}.{key}" if self.name else key,
            model=model,
            record=record if isinstance(record, dict) else self.record,
            described=self.described or model is EffectSize,
        )


def compare_verdicts(
    written: bytes, now: bytes, *, later: Collection[str] = (), titles: Collection[str] = ()
) -> Comparison:
    """verdict.json as it lies in a bundle or a repository, against what this version makes of the same records.

    `later` names deviations that it need not list, of the checks that are listed only when they fail: they came about
    after the decision, or another version wrote it and may not have known the check. `titles` are all that the study
    was registered with or reworded to: another one is matter.
    """
    if written == now:
        return Comparison()
    judged = json.loads(now)
    try:
        old = json.loads(written)
    except (ValueError, RecursionError):
        return Comparison(matter=("verdict.json is not JSON",))
    retitled = isinstance(old, dict) and old.get("title") != judged.get("title") and old.get("title") in titles
    if retitled:
        old["title"] = judged["title"]
    top = {key: judged.get(key) for key in ("title", "because", "line", "look")}
    differences = list(_differences(old, judged, _Place("", Decision, top, later)))
    words = tuple(one.what for one in differences if one.kind == "words")
    return Comparison(
        matter=tuple(one.what for one in differences if one.kind == "matter"),
        words=words if differences or retitled else ("the way it is written down",),
        since=tuple(one.what for one in differences if one.kind == "since"),
        digits=any(one.kind == "digits" for one in differences),
        retitled=retitled,
    )


def compare_pages(name: str, written: bytes, now: bytes) -> Comparison:
    """A report as it lies in a bundle, against the one that this version writes. Figures are words: none decides."""
    if written == now:
        return Comparison()
    old, new = (data.decode("utf-8", errors="replace") for data in (written, now))
    words = []
    if not _alike(_DRAWN.sub("", old), _DRAWN.sub("", new)):
        words.append(f"{name} has another text")
    figures = [_DRAWN.findall(text) for text in (old, new)]
    drawn = sum(not _alike(a, b) for a, b in zip(*figures, strict=False)) + abs(len(figures[0]) - len(figures[1]))
    if drawn:
        words.append(f"{drawn} of its figures are drawn otherwise")
    return Comparison(words=tuple(words), digits=not words)


def _differences(old: Any, new: Any, at: _Place) -> Iterator[_Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _of_fields(old, new, at)
        return
    if isinstance(old, list) and isinstance(new, list):
        named = [_by_name(members, _NAMED_BY.get(at.model)) for members in (old, new)]
        if named[0] is not None and named[1] is not None:
            yield from _of_members(named[0], named[1], at)
            return
        if len(old) == len(new):
            for index, (one, two) in enumerate(zip(old, new, strict=True)):
                yield from _differences(one, two, replace(at, name=f"{at.name}[{index}]"))
            return
    yield from _of_values(old, new, at)


def _of_fields(old: dict[str, Any], new: dict[str, Any], at: _Place) -> Iterator[_Difference]:
    fields = {} if at.model is None else at.model.model_fields
    for key in dict.fromkeys([*old, *new]):
        inner = at.inside(key, _model_in(fields[key].annotation) if key in fields else None)
        if key not in old or key not in new:
            # A field that a later version added is written only where it says something.
            added = key in getattr(at.model, "later_fields", ()) and (key in new or not old[key])
            yield _Difference("words" if added else "matter", f"{inner.name} is in one of them only")
        elif key in _WORDED.get(at.model, ()) and old[key] != new[key]:
            yield _of_texts(old, new, key, inner)
        elif at.model is Decision and key == "status" and old[key] != new[key] and _deviates_since(old, new, at.later):
            yield _Difference("since", f"{inner.name} is {_short(old[key])}, and deviations came about afterwards")
        else:
            yield from _differences(old[key], new[key], inner)


def _deviates_since(old: dict[str, Any], new: dict[str, Any], later: Collection[str]) -> bool:
    """Whether a verdict has become one with deviations by those alone that it could not list."""
    if (old["status"], new["status"]) != ("decided", "decided_with_deviations"):
        return False
    failed = {one["name"] for one in new["checks"] if not one["passed"] and one["severity"] == "deviation"}
    listed = old.get("checks")
    named = {one.get("name") for one in listed if isinstance(one, dict)} if isinstance(listed, list) else failed
    return failed <= {name for name in later if name in _listed_when_failed()} - named


def _of_members(old: dict[str, Any], new: dict[str, Any], at: _Place) -> Iterator[_Difference]:
    for name in dict.fromkeys([*old, *new]):
        inner = at.inside(name, at.model, new.get(name))
        if name in old and name in new:
            yield from _differences(old[name], new[name], inner)
            continue
        lacks = f"{inner.name} is in one of them only"
        check = old.get(name) or new[name]
        if at.model is not Check:
            yield _Difference("matter", lacks)
        elif check.get("passed") is True:
            yield _Difference("words", lacks)
        elif name in new:
            # A remark may come from a later version. A deviation has to be listed, or else it could be left out.
            may_lack = name in _listed_when_failed() and (check["severity"] == "note" or name in at.later)
            found = f"{inner.name} is missing, and failed when judged here: {_short(check['found'])}"
            yield _Difference("since" if may_lack else "matter", found)
        else:
            yield _Difference("matter", f"{inner.name} failed, and did not when judged here")


def _of_values(old: Any, new: Any, at: _Place) -> Iterator[_Difference]:
    if type(old) is type(new) and old == new:
        return
    if _is_number(old) and _is_number(new) and isclose(old, new, rel_tol=_DIGITS, abs_tol=0.0):
        yield _Difference("digits", at.name)
    elif at.described and (_is_number(old) or old is None) and (_is_number(new) or new is None):
        what = f"{at.name} (which decides nothing) is {_short(old)}, and {_short(new)} when judged here"
        yield _Difference("words", what)
    else:
        yield _Difference("matter", f"{at.name} is {_short(old)}, and {_short(new)} when judged here")


def _of_texts(old: dict[str, Any], new: dict[str, Any], key: str, at: _Place) -> _Difference:
    before = old[key] if isinstance(old[key], list) else [old[key]]
    if type(old[key]) is not type(new[key]) or not all(isinstance(text, str) for text in before):
        return _Difference("matter", f"{at.name} is {_short(old[key])}, and {_short(new[key])} when judged here")
    was = _stated("\n".join(before))
    if foreign := [f"{sign} {text}".strip() for sign, text in was if not _holds(sign, text, at.record)]:
        return _Difference("matter", f"{at.name} states {', '.join(foreign[:4])}, which is not found when judged here")
    return _Difference("words", at.name)


def _stated(text: str) -> list[tuple[str, str]]:
    """The numbers of a text, each after the sign of its bound. Those in the name of a level are none."""
    plain = _THOUSANDS.sub("", text.replace("1 - 2 alpha", ""))
    return [(sign, number.replace("−", "-")) for sign, number in _STATED.findall(plain)]


def _agree(one: tuple[str, str], two: tuple[str, str]) -> bool:
    """Whether two numbers of texts are the same, as far as the shorter goes; one figure of it does not go far."""
    short, long = sorted((one[1], two[1]), key=_decimals)
    same = isclose(float(short), float(long), rel_tol=_SHOWN_DIGITS)
    return one[0] == two[0] and (same or (_figures(short) > 1 and _rounds(short, float(long))))


def _holds(sign: str, number: str, record: dict[str, Any]) -> bool:
    """Whether a number of a text is one of a record: of its fields, rounded, or of its texts."""
    for key, value in [*_plain(record), *(("", value) for value in _derived(record))]:
        if isinstance(value, str):
            found = any(_agree((sign, number), one) for one in _stated(value))
        elif sign:
            # The smallest p that a test can give is below every bound, and says nothing of the p that it gave.
            is_p = key == "p" or (key.startswith("p_") and key != "p_floor")
            found = is_p and (value < float(number) if sign[0] == "<" else value > float(number))
        else:
            # By how much an arm lowers a metric is said without a sign, and a level in percent.
            shown = (value, -value, 100.0 * value) if key == "level" else (value, -value)
            found = any(_rounds(number, one) for one in shown)
        if found:
            return True
    return False


def _plain(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Numbers and texts of a record, without those of what it lists: neither its pairs nor tests that only describe."""
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _plain(value)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) or _is_number(one):
                yield key, one


def _derived(finding: dict[str, Any]) -> Iterator[float]:
    """What a sentence works out of a finding: t against zero and the margin, degrees of freedom over items, ratios."""
    estimate = finding.get("estimate") or {}
    difference, se, smallest = estimate.get("difference"), estimate.get("se"), finding.get("smallest")
    if difference is not None and se and smallest is not None:
        yield from ((difference - margin) / se for margin in (0.0, smallest, -smallest))
    if items := estimate.get("items"):
        yield from (estimate["n"] - 1, items["n_units"] - 1)
    if finding.get("percent") is not None:
        against = (finding.get("margin") or {}).get("interval")
        intervals = [one for one in (estimate.get("interval"), finding.get("simultaneous"), against) if one]
        ends = [difference, *(one[end] for one in intervals for end in ("low", "high"))]
        yield from (100.0 * expm1(end) for end in ends if end is not None and end < 700.0)


def _rounds(number: str, value: float) -> bool:
    """Whether a number as it is written is a value, rounded. A single figure that is no small number must be exact:
    it is a count or a margin, or too coarse."""
    decimals = _decimals(number)
    half = float(f"5e{-decimals - 1}") if _figures(number) > 1 or decimals > 2 else 0.0
    return abs(float(number) - value) <= half * (1.0 + _DIGITS)


def _figures(number: str) -> int:
    return len(number.lower().partition("e")[0].strip("-").replace(".", "").lstrip("0"))


def _decimals(number: str) -> int:
    mantissa, _, exponent = number.lower().partition("e")
    return len(mantissa.partition(".")[2]) - int(exponent or 0)


def _model_in(annotation: Any) -> Model:
    """The model of a field, alone or in a tuple; none of plain values."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner)) is not None), None)


@cache
def _listed_when_failed() -> frozenset[str]:
    return frozenset(one.name for one in declarations() if one.only_failed)


def _by_name(members: list[Any], key: str | None) -> dict[str, Any] | None:
    """A list of named things by their names; None for any other list."""
    named = {str(one.get(key)): one for one in members if isinstance(one, dict) and isinstance(one.get(key), str)}
    return named if members and len(named) == len(members) else None


def _alike(old: str, new: str) -> bool:
    """The same text, its numbers the same but for last digits."""
    if old == new:
        return True
    if _NUMBER.sub("0", old) != _NUMBER.sub("0", new):
        return False
    pairs = zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True)
    return all(a == b or isclose(_value(a), _value(b), rel_tol=_SHOWN_DIGITS) for a, b in pairs)


def _value(text: str) -> float:
    return float(text.replace("−", "-"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
