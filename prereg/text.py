"""Numbers, p values, lists and times in words, one rule each; differences and intervals: `reporting/estimates.py`.

Text only. What is rounded here is rounded for reading; hashes and tests never see it. Differences and intervals have
their rules in `ablate.reporting.estimates`. Nothing is rounded across a threshold: a p of
.04996 is never shown as .050.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

from prereg.metrics.catalogue import METRICS, TASK_METRICS

if TYPE_CHECKING:
    from prereg.study.analysis import Scale

MINUS = "−"
P_LEAST = 1e-4  # below this, digits of a p value describe the tails of a model and not the evidence
P_MARKS = (0.1, 0.05, 0.025, 0.01, 0.005, 0.001)


MOST_FIXED = 13
"""With more decimals, and from 1e15 on, a number is written with a power of ten."""


def number(value: float, decimals: int) -> str:
    """Fixed decimals, thousands grouped, a real minus sign, and never a negative zero; `−5.0e−14` where the decimals
    are those of a very small number, and `4.99679e+298` of a very large one, with six digits at most.

    >>> number(-12345.678, 2), number(-0.001, 1), number(-5e-14, 14)
    ('−12,345.68', '0.0', '−5e−14')
    """
    assert math.isfinite(value), value
    # A double has 15 to 17 significant digits: beyond that, fixed decimals would show digits that it does not hold.
    if decimals > MOST_FIXED or abs(value) >= 1e15:
        digits = decimals + math.floor(math.log10(abs(value))) if value else -1
        if digits < 0:
            return "0"
        return f"{value:.{min(digits, 5 if abs(value) >= 1e15 else 15)}e}".replace("-", MINUS)
    text = f"{value:,.{decimals}f}"
    # -0.0000 would be read as a negative number.
    if text.startswith("-"):
        text = text[1:] if not any(digit in text for digit in "123456789") else MINUS + text[1:]
    return text


def crosses(value: float, decimals: int, marks: Iterable[float]) -> bool:
    """Whether rounding puts a value on another side of one of the marks, or onto one that it is not at.

    >>> crosses(0.0496, 2, [0.05]), crosses(0.0496, 4, [0.05])
    (True, False)
    """
    shown = round(value, decimals)
    return any(_sign(shown - mark) != _sign(value - mark) for mark in marks)


def compact(value: float) -> str:
    """A number alone, such as a margin: at most six significant digits, no trailing zeros.

    >>> compact(0.0200000001), compact(1234567.0), compact(1e-05)
    ('0.02', '1,234,570', '0.00001')
    """
    assert math.isfinite(value), value
    # Decimal, so that 1e-05 and 1e+06 are written out without rounding again.
    text = f"{value:.6g}"
    if value == 0 or 1e-7 < abs(value) < 1e15:
        text = format(Decimal(text), ",f")
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", MINUS)


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits at most: `−0.04`.

    >>> significant(-0.040001, 4), significant(1234.5)
    ('−0.04', '1,230')
    """
    return compact(float(f"{value:.{digits}g}"))


def p_value(p: float, levels: Iterable[float] = ()) -> str:
    """A p value without its name: `.034`, `< .0001`, `1`. Never 0, and never on another side of a level than p itself.

    `levels` are the levels in use; the usual thresholds are kept to as well.

    >>> p_value(0.0344), p_value(0.04996, levels=[0.05]), p_value(1e-9)
    ('.034', '.04996', '< .0001')
    """
    assert 0 < p <= 1, p
    marks = {*P_MARKS, *levels}
    if p < P_LEAST and all(p < mark for mark in marks):
        return "< .0001"
    if p == 1:
        return "1"
    if p > 0.999:
        return "> .999"
    # As many more digits as keep p on its own side of every level: .0496 is .0496, and never .05.
    digits = 4 if p < 0.01 else 3
    for more in range(digits, digits + 6):
        text = f"{p:.{more}f}"
        if float(text) > 0 and all(_sign(float(text) - mark) == _sign(p - mark) for mark in marks):
            return text.removeprefix("0")
    # So close to a level that no number of digits helps: only the side is said.
    nearest = min(marks, key=lambda mark: abs(mark - p))
    return f"{'<' if p < nearest else '>'} {nearest:g}".replace(" 0.", " .")


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def level(value: float) -> str:
    """`95%`, `97.5%`.

    >>> level(0.95), level(0.975)
    ('95%', '97.5%')
    """
    return compact(round(100 * value, 2)) + "%"


def counted(n: int, word: str, plural: str | None = None) -> str:
    """`1 run`, `2 runs`.

    >>> counted(1, "run"), counted(1200, "run"), counted(2, "family", "families")
    ('1 run', '1,200 runs', '2 families')
    """
    return f"{n:,} {word if n == 1 else plural or word + 's'}"


def listed(words: Iterable[str], *, last: str = "and") -> str:
    """`a, b and c`.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(["a", "b"], last="or")
    ('a', 'a, b and c', 'a or b')
    """
    items = list(words)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else ""


def ranged(values: Sequence[int]) -> str:
    """Seeds: `1 to 5` when they run without a gap, otherwise each of them.

    >>> ranged([1, 2, 3, 4, 5]), ranged([1, 2]), ranged([1, 3, 7])
    ('1 to 5', '1, 2', '1, 3, 7')
    """
    ordered = list(values)
    # `1 to 2` is longer than `1, 2`.
    if len(ordered) > 2 and all(after - before == 1 for before, after in pairwise(ordered)):
        return f"{ordered[0]} to {ordered[-1]}"
    return ", ".join(str(value) for value in ordered)


def duration(seconds: float) -> str:
    """`12.3 s`, `4 min 05 s`, `2 h 07 min`.

    >>> duration(12.34), duration(59.97), duration(7601.0)
    ('12.3 s', '1 min 00 s', '2 h 07 min')
    """
    assert math.isfinite(seconds) and seconds >= 0, seconds
    # 60.0 s would be rounded up from here; the next unit says it better.
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    rounded = round(seconds)
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def moment(iso: str) -> str:
    """An ISO 8601 time as `2026-05-04 13:20 UTC`; anything else unchanged.

    >>> moment("2026-05-04T15:20:31+02:00"), moment("yesterday")
    ('2026-05-04 13:20 UTC', 'yesterday')
    """
    try:
        at = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    if at.tzinfo is None:
        return iso
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def share(value: float) -> str:
    """A probability or a share in percent, one decimal.

    >>> share(0.0501), share(1.0)
    ('5.0%', '100.0%')
    """
    return f"{number(100 * value, 1)}%"


def short(sha256: str) -> str:
    """The first twelve digits of a hash: enough to recognise, not to verify."""
    return sha256[:12]


def side(weights: Mapping[str, float]) -> str:
    """One side of a claim as a reader would write it.

    >>> side({"a": 1.0}), side({"a": 0.5, "b": 0.5}), side({"a": 1.0, "b": -1.0})
    ('a', '(0.5*a + 0.5*b)', '(a - b)')
    """
    if len(weights) == 1 and next(iter(weights.values())) == 1.0:
        return next(iter(weights))
    text = ""
    for arm, weight in weights.items():
        sign = ("- " if weight < 0 else "") if not text else (" - " if weight < 0 else " + ")
        text += sign + (arm if abs(weight) == 1.0 else f"{abs(weight):g}*{arm}")
    return f"({text})"


_OF_PAIRS = (
    (r"\bpaired t\b", "one-sample t"),
    (r"\bstudentised paired\b", "studentised"),
    (r"\bpairs, never arms\b", "seeds"),
    (r"\bone paired difference\b", "one number"),
    (r"\bper-seed differences\b", "one number per seed"),
    (r"\bWithin-seed \(paired\) design\b", "Design over seeds"),
    (r", and arms are compared within seeds\b", ""),
    (r"\bpairs of (seeds|runs that share a seed)\b", "seeds"),
    (r"\bpairs\b", "seeds"),
    (r"\bpair\b", "seed"),
)


def without_pairs(text: str) -> str:
    """A sentence of ours as it reads where each seed gives one number and no two sides are compared.

    >>> without_pairs("the paired t over per-seed differences")
    'the one-sample t over one number per seed'
    """
    for pattern, instead in _OF_PAIRS:
        text = re.sub(pattern, instead, text)
    return text


def after_number(unit: str) -> str:
    """A unit as it follows a number: a share is a number between 0 and 1, and reads as it is.

    >>> after_number("share"), after_number("share per doubling"), after_number("nats/token")
    ('', 'per doubling', 'nats/token')
    """
    return "" if unit == "share" else unit.removeprefix("share ") if unit.startswith("share per ") else unit


def unit_of(metric: str, scale: Scale = "raw", own: Mapping[str, str] | None = None) -> str:
    """The unit of a metric on a scale, or nothing where it has none; `own` has the units that a study declares.

    >>> unit_of("val/loss"), unit_of("val/loss", "log"), unit_of("mine", own={"mine": "ms"})
    ('nats/token', 'nats/token, log scale', 'ms')
    """
    declared = METRICS.get(metric) or TASK_METRICS.get(metric)
    unit = (own or {}).get(metric, declared.unit if declared else "")
    return unit if scale == "raw" else ", ".join(part for part in (unit, f"{scale} scale") if part)
