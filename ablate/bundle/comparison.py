"""Two tellings of one decision, compared: the same bytes, the same but for last digits, other words, or another matter.

Two processors may differ in the last digits of a sum, and two versions in their words and in what they add. Neither may
differ in what was found. So numbers must agree to nine digits whatever tool wrote them, and so must every outcome;
sentences and fields may differ between two versions, and are named when they do. So may the standardised effects, which
describe and decide nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose
from typing import Any

_WORDED = frozenset({"sentence", "because", "notes", "found", "required", "method", "title", "unit"})
_NAMED_BY = ("hypothesis", "variant", "name", "arm", "method")
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
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
    digits: bool = False
    """Whether last digits differ."""


def compare_verdicts(written: bytes, now: bytes) -> Comparison:
    """verdict.json as it lies in a bundle, against what this version makes of the same records."""
    if written == now:
        return Comparison()
    try:
        old = json.loads(written)
    except (ValueError, RecursionError):
        return Comparison(matter=("verdict.json is not JSON",))
    matter, words, digits = [], [], False
    for kind, what in _differences(old, json.loads(now), ""):
        if kind == "matter":
            matter.append(what)
        elif kind == "words":
            words.append(what)
        else:
            digits = True
    if not (matter or words or digits):
        words.append("the way it is written down")
    return Comparison(tuple(matter), tuple(words), digits)


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


def _differences(old: Any, new: Any, place: str, *, described: bool = False) -> Iterator[tuple[str, str]]:
    if isinstance(old, list) and isinstance(new, list):
        keyed = _keyed(old), _keyed(new)
        if keyed[0] is not None and keyed[1] is not None:
            old, new = keyed
        elif len(old) == len(new):
            for at, (a, b) in enumerate(zip(old, new, strict=True)):
                yield from _differences(a, b, f"{place}[{at}]", described=described)
            return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            inner = f"{place}.{key}" if place else str(key)
            if key in old and key in new:
                # A list: a hypothesis may bear the name as well.
                effects = key == "effects" and isinstance(old[key], list)
                yield from _differences(old[key], new[key], inner, described=described or effects)
            else:
                yield "words", f"{inner} is in one of them only"
        return
    yield from _leaves(old, new, place, described=described)


def _leaves(old: Any, new: Any, place: str, *, described: bool) -> Iterator[tuple[str, str]]:
    if type(old) is type(new) and old == new:
        return
    if _is_number(old) and _is_number(new) and isclose(old, new, rel_tol=_DIGITS, abs_tol=0.0):
        yield "digits", place
    elif _WORDED & set(re.split(r"[.\[\]]", place)) and isinstance(old, str | list) and isinstance(new, str | list):
        yield "words", place
    elif described and (_is_number(old) or old is None) and (_is_number(new) or new is None):
        yield "words", f"{place} (which decides nothing) is {_short(old)}, and {_short(new)} when judged here"
    else:
        yield "matter", f"{place} is {_short(old)}, and {_short(new)} when judged here"


def _keyed(items: list[Any]) -> dict[str, Any] | None:
    """A list of named things by their names; None for any other list."""
    for key in _NAMED_BY:
        if items and all(isinstance(item, dict) and isinstance(item.get(key), str) for item in items):
            named = {item[key]: item for item in items}
            return named if len(named) == len(items) else None
    return None


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
