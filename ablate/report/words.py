"""How numbers become words: decimals, signs, p values, intervals, durations, hashes.

One rule for each kind of number, so that the same number reads the same in every table, figure and
sentence. Nothing is rounded across a threshold: a p of .04996 is never shown as .050.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from ablate.judge.verdict import Finding, Interval
from prereg.item_metrics import ITEM_METRICS
from prereg.metrics import METRICS
from prereg.spec import Scale

MINUS = "−"
NONE = "–"
_HYPHEN_MINUS = re.compile(r"(?<![\w.)])-(?=\.?\d)")
P_LEAST = 1e-4  # below this, digits of a p value describe the tails of a model and not the evidence
P_MARKS = (0.1, 0.05, 0.025, 0.01, 0.005, 0.001)


def number(value: float, decimals: int) -> str:
    """Fixed decimals, thousands grouped, a real minus sign, and never a negative zero."""
    assert math.isfinite(value), value
    text = f"{value:,.{decimals}f}"
    if text.startswith("-"):
        text = text[1:] if not any(digit in text for digit in "123456789") else MINUS + text[1:]
    return text


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


def compact(value: float) -> str:
    """A number that stands alone, such as a margin: at most six significant digits, no trailing zeros."""
    assert math.isfinite(value), value
    text = f"{value:.6g}"
    if value == 0 or 1e-7 < abs(value) < 1e15:
        text = format(Decimal(text), ",f")
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", MINUS)


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


def level(value: float) -> str:
    """`95%`, `97.5%`."""
    return compact(round(100 * value, 2)) + "%"


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


def unit_of(metric: str, scale: Scale = "raw") -> str:
    """The unit of a metric on a scale, or nothing where it has none."""
    declared = METRICS.get(metric) or ITEM_METRICS.get(metric)
    unit = declared.unit if declared else ""
    return unit if scale == "raw" else ", ".join(part for part in (unit, f"{scale} scale") if part)


def proper(sentence: str) -> str:
    """A sentence of the judge with real minus signs before its numbers."""
    return _HYPHEN_MINUS.sub(MINUS, sentence)


def counted(n: int, word: str, plural: str | None = None) -> str:
    """`1 run`, `2 runs`."""
    return f"{n:,} {word if n == 1 else plural or word + 's'}"


def listed(words: Iterable[str], *, last: str = "and") -> str:
    """`a, b and c`."""
    items = list(words)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else ""


def ranged(values: Sequence[int]) -> str:
    """Seeds: `1 to 5` when they run without a gap, otherwise each of them."""
    ordered = list(values)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]} to {ordered[-1]}"
    return ", ".join(str(value) for value in ordered)


def duration(seconds: float) -> str:
    """`12.3 s`, `4 min 05 s`, `2 h 07 min`."""
    assert math.isfinite(seconds) and seconds >= 0, seconds
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def moment(iso: str) -> str:
    """An ISO 8601 time as `2026-05-04 13:20 UTC`; anything else as it stands."""
    try:
        at = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    if at.tzinfo is None:
        return iso
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def share(value: float) -> str:
    """A probability or a share in percent, one decimal."""
    return f"{number(100 * value, 1)}%"


def short(sha256: str) -> str:
    """The first twelve digits of a hash: enough to recognise, not to verify."""
    return sha256[:12]
