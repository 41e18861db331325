"""Differences, intervals and p values in words; plain numbers and times are in `prereg/text.py`.

The rest is in `prereg.text`.

One rule for each kind of number, so that the same number reads the same in every table, figure and sentence.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable

from ablate.judge.verdict import Interval
from prereg.text import MINUS, compact, crosses, number, p_value, share

NONE = "–"
# Before a number, and not within a word, a range or a date.
_HYPHEN_MINUS = re.compile(r"(?<![\w.)])-(?=\.?\d)")


def power_at(power: float | None, effect: float | None) -> str:
    """`84% (at 0.02)`: a power, and the size of the true effect at which it is stated.

    >>> power_at(0.827, -0.1)
    '82.7% (at 0.1)'
    """
    if power is None:
        return NONE
    return share(power) + ("" if effect is None else f" (at {compact(abs(effect))})")


def signed(value: float | None, decimals: int) -> str:
    """A difference: its sign is always written, unless it rounds to nothing; none where runs diverged.

    >>> signed(0.0312, 3), signed(-0.0312, 3), signed(0.0001, 3)
    ('+0.031', '−0.031', '0.000')
    """
    if value is None:
        return NONE
    # What rounds to nothing has no sign: +0.00 would state a direction.
    text = number(value, decimals)
    return text if text.startswith(MINUS) or not any(digit in text for digit in "123456789") else f"+{text}"


def with_unit(name: str, unit: str) -> str:
    """`val/loss (nats/token)`; a quantity without a unit by its name.

    >>> with_unit("val/loss", "nats/token"), with_unit("speed", "")
    ('val/loss (nats/token)', 'speed')
    """
    return f"{name} ({unit})" if unit else name


def decimals_of(spreads: Iterable[float | None], values: Iterable[float] = ()) -> int:
    """`decimals_for` the smallest of some spreads, and the largest of the values shown; three where none is known.

    >>> decimals_of([0.0123, None])
    3
    """
    return decimals_for(min(filter(None, spreads), default=0.0), max(map(abs, values), default=math.inf))


MOST_DECIMALS = 8
"""Of numbers that are not all tiny: a spread may be rounding alone."""


def decimals_for(spread: float, size: float = math.inf) -> int:
    """Decimals that give a spread (a half-width, a standard deviation) two significant digits: at most eight, or
    eight after the zeros of the largest number, of this size.

    >>> decimals_for(0.0123), decimals_for(4.2), decimals_for(250.0)
    (3, 1, 0)
    """
    if not math.isfinite(spread) or spread <= 0:
        # No spread (one run, or all alike): three decimals, unless that would show a small number as 0.
        return decimals_for(size, size) if 0 < size < 5e-4 else 3
    most = MOST_DECIMALS
    if 0 < size < math.inf:
        # Numbers that begin with zeros get as many decimals more.
        most += max(0, -2 - math.floor(math.log10(size)))
    # 0.0123 has exponent -2: three decimals show its two digits.
    return min(most, max(0, 1 - math.floor(math.log10(spread))))


def p_cell(p: float | None, levels: Iterable[float] = ()) -> str:
    """A p value that may not exist, for a table's cell; `levels` as in `p_value`.

    >>> p_cell(0.0312), p_cell(1e-9), p_cell(None)
    ('.031', '< .0001', '–')
    """
    return NONE if p is None else p_value(p, levels)


def bound_in_words(share: float) -> str:
    """`at most 0.075%`: an upper bound of a share, rounded up to two digits.

    >>> bound_in_words(0.00029957)
    'at most 0.03%'
    """
    percent = 100.0 * share
    # Up, never to the nearest: a bound that is rounded down is none.
    unit = 10.0 ** (math.floor(math.log10(percent)) - 1)
    return f"at most {compact(float(f'{math.ceil(percent / unit) * unit:.6g}'))}%"


def interval(bounds: Interval | None, decimals: int) -> str:
    """`[−0.031, −0.012]`; an open end says so.

    >>> interval(Interval(low=-0.0312, high=-0.012, level=0.95, method="paired_t"), decimals=3)
    '[−0.031, −0.012]'
    """
    if bounds is None:
        return "no finite interval"
    low = f"{MINUS}∞" if bounds.low is None else signed(bounds.low, decimals)
    high = "+∞" if bounds.high is None else signed(bounds.high, decimals)
    return f"[{low}, {high}]"


def apart(decimals: int, intervals: Iterable[Interval | None], smallest: float = 0.0) -> int:
    """At least so many decimals, and as many more as keep each end of the intervals on its side of zero and margin.

    >>> apart(2, [Interval(low=0.0004, high=0.3, level=0.95, method="paired_t")])  # 0.00 would hold zero
    4
    """
    ends = [end for bounds in intervals if bounds is not None for end in (bounds.low, bounds.high) if end is not None]
    marks = (0.0, smallest, -smallest)
    # Beyond thirteen decimals a double has nothing to tell; then the ends stay as rounded.
    tried = range(decimals, max(13, decimals + 4))
    more = (more for more in tried if not any(crosses(end, more, marks) for end in ends))
    return next(more, decimals)


def proper(sentence: str) -> str:
    """A sentence of the judge with real minus signs before its numbers.

    >>> proper("the mean difference is -0.2, at t-test level 0.05")
    'the mean difference is −0.2, at t-test level 0.05'
    """
    return _HYPHEN_MINUS.sub(MINUS, sentence)


def value(content: object) -> str:
    """A field's value as JSON, cut where it would fill a line.

    >>> value({"lr": 0.1}), value("(absent)")
    ('{"lr": 0.1}', '(absent)')
    """
    text = str(content if content == "(absent)" else json.dumps(content, ensure_ascii=False))
    return text if len(text) <= 60 else text[:57] + "..."


def sentences(notes: Iterable[str]) -> str:
    """Notes of the judge as sentences, each once.

    >>> sentences(["two pairs were left out", "two pairs were left out", "d_z is -0.4"])
    'Two pairs were left out. d_z is −0.4.'
    """
    written = [note.strip().rstrip(".") for note in dict.fromkeys(notes) if note.strip()]
    # The name of an effect size, such as d_z, stays as it is.
    return proper(" ".join(f"{note[0].upper() if note[:2].isalpha() else note[0]}{note[1:]}." for note in written))
