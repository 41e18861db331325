"""Comparison of a verdict or a report as it was written with what this version makes of the same records.

`verdict.json` holds facts, and facts are compared: outcomes, numbers, names. Numbers may differ beyond the ninth digit,
as on another processor. What follows from a difference (`ablate.verification.rejudge`) depends on whether the same
code gave both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose
from typing import Any

_NUMBER = re.compile(r"[-−]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3})?")
_DRAWN = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_DIGITS = 1e-9
"""Relative difference of two numbers of verdict.json that another processor explains: sums in another order."""
_SHOWN_DIGITS = 1e-6
"""The same of a page, whose numbers are rounded: a last digit that tips over is a larger step."""
_NAMES = ("hypothesis", "variant", "name", "arm", "method", "seed")
"""Fields by which members of a list are told apart, in the order in which they are looked for."""


@dataclass(frozen=True)
class Comparison:
    """How verdict.json differs from the one judged here. Empty, all of it, for the same bytes."""

    facts: tuple[str, ...] = ()
    """Each fact that is another: its field, the value in the file, the value here."""
    digits: bool = False
    """Whether last digits differ."""


def compare_verdicts(written: bytes, now: bytes) -> Comparison:
    """verdict.json as it lies in a bundle or a repository, against what this version makes of the same records.

    >>> compare_verdicts(b'{"verdict": "adopt"}', b'{"verdict": "reject"}').facts
    ('verdict is "adopt", and "reject" when judged here',)
    >>> compare_verdicts(b'{"p": 0.0123456789012}', b'{"p": 0.0123456789013}')
    Comparison(facts=(), digits=True)
    """
    if written == now:
        return Comparison()
    try:
        old = json.loads(written)
    except (ValueError, RecursionError):
        return Comparison(facts=("verdict.json is not JSON",))
    differences = list(_differences(old, json.loads(now), ""))
    facts = tuple(what for what in differences if what)
    # The same values in other bytes: somebody wrote the file by hand.
    return Comparison(facts or (() if differences else ("the way verdict.json is written down",)), "" in differences)


def _differences(old: Any, new: Any, at: str) -> Iterator[str]:
    """Each place where two values differ, in words; empty words where only last digits do."""
    if isinstance(old, list) and isinstance(new, list):
        # By name where the members have one: a finding that was inserted would otherwise shift all that follow.
        named = _by_name(old), _by_name(new)
        if named[0] is None or named[1] is None:
            old, new = ({str(index): member for index, member in enumerate(members)} for members in (old, new))
        else:
            old, new = named
    # dict.fromkeys: each key once, those of the written file first, so that messages follow its order.
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            inner = f"{at}.{key}" if at else key
            if key in old and key in new:
                yield from _differences(old[key], new[key], inner)
            elif key in new:
                yield f"{inner} is missing, and not when judged here: {_short(new[key])}"
            else:
                yield f"{inner} is {_short(old[key])}, and missing when judged here"
    elif not (type(old) is type(new) and old == new):  # by type, too: True == 1
        # Relative alone: next to an absolute tolerance every p-value below it would equal every other.
        near = _is_number(old) and _is_number(new) and isclose(old, new, rel_tol=_DIGITS, abs_tol=0.0)
        yield "" if near else f"{at or 'it'} is {_short(old)}, and {_short(new)} when judged here"


def _by_name(members: list[Any]) -> dict[str, Any] | None:
    """A list of named things by their names; None for any other list."""
    if not members:
        return {}
    for key in _NAMES:
        # Fewer names than members: the field is missing in some or shared by two, and does not tell them apart.
        member_by_name = {str(member[key]): member for member in members if isinstance(member, dict) and key in member}
        if len(member_by_name) == len(members):
            return member_by_name
    return None


@dataclass(frozen=True)
class PageComparison:
    """How a report differs from the one that this version writes."""

    parts: tuple[str, ...] = ()
    """What is another: the text, figures."""
    digits: bool = False
    """Whether only last digits differ."""


def compare_pages(name: str, written: bytes, now: bytes) -> PageComparison:
    """A report as it lies in a bundle, against the one that this version writes.

    Text and figures apart: figures have coordinates, which differ in their last digits between libraries.

    >>> compare_pages("report.md", b"p = .0123456", b"p = .0123456001")  # the same but for last digits
    PageComparison(parts=(), digits=True)
    >>> compare_pages("report.md", b"adopted", b"rejected").parts
    ('report.md has another text',)
    """
    if written == now:
        return PageComparison()
    # A page that was damaged is compared all the same, and differs.
    old, new = (data.decode("utf-8", errors="replace") for data in (written, now))
    parts = []
    if not _alike(_DRAWN.sub("", old), _DRAWN.sub("", new)):
        parts.append(f"{name} has another text")
    figures = [_DRAWN.findall(text) for text in (old, new)]
    drawn = sum(not _alike(a, b) for a, b in zip(*figures, strict=False)) + abs(len(figures[0]) - len(figures[1]))
    if drawn:
        parts.append(f"{drawn} of its figures are drawn otherwise")
    return PageComparison(parts=tuple(parts), digits=not parts)


def _alike(old: str, new: str) -> bool:
    """The same text, its numbers the same but for last digits."""
    if old == new:
        return True
    # The texts with all numbers blanked are equal, so both have as many numbers, in the same places.
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
