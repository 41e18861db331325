"""How uncertain numbers become words: differences, p values, intervals. The rest is in `prereg.words`, handed on here.

One rule for each kind of number, so that the same number reads the same in every table, figure and
sentence. Nothing is rounded across a threshold: a p of .04996 is never shown as .050.
"""

from __future__ import annotations

import json
import math
import re

from ablate.judge.verdict import Finding, Interval
from prereg.words import (
    MINUS,
    compact,
    counted,
    duration,
    level,
    listed,
    moment,
    number,
    ranged,
    share,
    short,
    unit_of,
)

__all__ = [
    "MINUS",
    "NONE",
    "P_LEAST",
    "P_MARKS",
    "compact",
    "counted",
    "decimals_for",
    "duration",
    "finding_decimals",
    "interval",
    "level",
    "listed",
    "moment",
    "number",
    "p_cell",
    "p_value",
    "proper",
    "ranged",
    "share",
    "short",
    "signed",
    "unit_of",
    "value",
]

NONE = "–"
_HYPHEN_MINUS = re.compile(r"(?<![\w.)])-(?=\.?\d)")
P_LEAST = 1e-4  # below this, digits of a p value describe the tails of a model and not the evidence
P_MARKS = (0.1, 0.05, 0.025, 0.01, 0.005, 0.001)


def signed(value: float | None, decimals: int) -> str:
    """A difference: its sign is always written, unless it rounds to nothing; none where runs diverged."""
    if value is None:
        return NONE
    text = number(value, decimals)
    return text if text.startswith(MINUS) or not any(digit in text for digit in "123456789") else f"+{text}"


def decimals_for(spread: float) -> int:
    """Decimals that give a spread (a half-width, a standard deviation) two significant digits, at most eight."""
    if not math.isfinite(spread) or spread <= 0:
        return 3
    return min(8, max(0, 1 - math.floor(math.log10(spread))))


def p_value(p: float) -> str:
    """A p value without its name: `.034`, `< .0001`, `1`. Never 0, never across a usual threshold."""
    assert 0 < p <= 1, p
    if p < P_LEAST:
        return "< .0001"
    if p == 1:
        return "1"
    if p > 0.999:
        return "> .999"
    digits = 4 if p < 0.01 else 3
    for more in range(digits, digits + 6):
        text = f"{p:.{more}f}"
        crossed = [mark for mark in P_MARKS if (float(text) >= mark) != (p >= mark)]
        if not crossed and float(text) > 0:
            return text.removeprefix("0")
    return f"< {min(mark for mark in P_MARKS if p < mark)}".replace("0.", ".")


def p_cell(p: float | None) -> str:
    """A p value that may not exist, for a table's cell."""
    return NONE if p is None else p_value(p)


def interval(bounds: Interval | None, decimals: int, *, sign: bool = True) -> str:
    """`[−0.031, −0.012]`; an open end says so."""
    if bounds is None:
        return "no finite interval"
    write = signed if sign else number
    low = f"{MINUS}∞" if bounds.low is None else write(bounds.low, decimals)
    high = "+∞" if bounds.high is None else write(bounds.high, decimals)
    return f"[{low}, {high}]"


def finding_decimals(finding: Finding) -> int:
    """The decimals of every number of one finding, so that its differences and intervals line up."""
    spans = [
        (bounds.high - bounds.low) / 2
        for bounds in (finding.estimate.interval if finding.estimate else None, finding.simultaneous)
        if bounds is not None and bounds.low is not None and bounds.high is not None
    ]
    narrow = [span for span in spans if span > 0]
    wanted = decimals_for(min(narrow)) if narrow else 3
    shown = compact(finding.smallest)
    margin = len(shown.partition(".")[2]) if "." in shown else 0
    return min(8, max(wanted, margin + 1 if finding.smallest else 0))


def proper(sentence: str) -> str:
    """A sentence of the judge with real minus signs before its numbers."""
    return _HYPHEN_MINUS.sub(MINUS, sentence)


def value(found: object) -> str:
    """A field's value as JSON, cut where it would fill a line."""
    text = str(found if found == "(absent)" else json.dumps(found, ensure_ascii=False))
    return text if len(text) <= 60 else text[:57] + "..."
