"""How uncertain numbers become words: differences, intervals and p values of findings. The rest is in `prereg.text`.

One rule for each kind of number, so that the same number reads the same in every table, figure and sentence.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from ablate.judge.verdict import Finding, Interval, correction_of, shown_zone
from prereg.documents.procedures import against_margin, meaning, zone_in_words
from prereg.study.claim import Claim, parse_claim
from prereg.study.labels import NO_LABELS, Labels
from prereg.text import MINUS, compact, crosses, level, listed, number, p_value, share

NONE = "–"
ONLY_P = "only p shows it"
"""In place of an interval, where none that was computed shows what was found."""
_HYPHEN_MINUS = re.compile(r"(?<![\w.)])-(?=\.?\d)")


def shown_truth(name: str, labels: Labels = NO_LABELS) -> str:
    """A simulated state of the world as it is shown, its claim by its name for people."""
    return re.sub(r"^only (\S+) true", lambda found: f"only {labels.claim(found[1])} true", name)


def power_at(power: float | None, effect: float | None) -> str:
    """`84% (at 0.02)`: a power, and the size of the true effect at which it is stated."""
    if power is None:
        return NONE
    return share(power) + ("" if effect is None else f" (at {compact(abs(effect))})")


def stated_at(finding: Finding, effect: float) -> str:
    """At which true effect a power, or seeds that give it, are stated: of a claim of no change where there is none."""
    if effect == 0.0:
        return (
            f"to show the margin of {compact(finding.smallest)} {finding.unit}".strip() + " if there is no difference"
        )
    return f"at a true effect of {compact(effect)} {finding.unit}".strip()


def signed(value: float | None, decimals: int) -> str:
    """A difference: its sign is always written, unless it rounds to nothing; none where runs diverged."""
    if value is None:
        return NONE
    text = number(value, decimals)
    return text if text.startswith(MINUS) or not any(digit in text for digit in "123456789") else f"+{text}"


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits."""
    return compact(float(f"{value:.{digits}g}"))


def with_unit(name: str, unit: str) -> str:
    """`val/loss (nats/token)`; a quantity without a unit by its name."""
    return f"{name} ({unit})" if unit else name


def decimals_of(spreads: Iterable[float | None], values: Iterable[float] = ()) -> int:
    """`decimals_for` the smallest of some spreads, and the largest of the values shown; three where none is known."""
    return decimals_for(min(filter(None, spreads), default=0.0), max(map(abs, values), default=math.inf))


MOST_DECIMALS = 8
"""Of numbers that are not all tiny: a spread may be rounding alone."""


def decimals_for(spread: float, size: float = math.inf) -> int:
    """Decimals that give a spread (a half-width, a standard deviation) two significant digits: at most eight, or
    eight after the zeros of the largest number, of this size."""
    if not math.isfinite(spread) or spread <= 0:
        return decimals_for(size, size) if 0 < size < 5e-4 else 3
    most = MOST_DECIMALS
    if 0 < size < math.inf:
        most += max(0, -2 - math.floor(math.log10(size)))
    return min(most, max(0, 1 - math.floor(math.log10(spread))))


def p_cell(p: float | None, levels: Iterable[float] = ()) -> str:
    """A p value that may not exist, for a table's cell; `levels` as in `p_value`."""
    return NONE if p is None else p_value(p, levels)


def levels_of(finding: Finding) -> tuple[float, ...]:
    """Every level that a p of the finding may be compared with: alpha, alpha over up to the size of the family, and
    the level at which a gate tested it."""
    gate = () if finding.gate is None or finding.gate.level == 0.0 else (finding.gate.level,)
    return (*(finding.alpha / k for k in range(1, finding.family + 1)), *gate)


def interval(bounds: Interval | None, decimals: int) -> str:
    """`[−0.031, −0.012]`; an open end says so."""
    if bounds is None:
        return "no finite interval"
    low = f"{MINUS}∞" if bounds.low is None else signed(bounds.low, decimals)
    high = "+∞" if bounds.high is None else signed(bounds.high, decimals)
    return f"[{low}, {high}]"


def claim_of(finding: Finding) -> Claim:
    """The claim of a finding, parsed; a right side that it leaves to the baseline has no name."""
    return replace(parse_claim(finding.claim, baseline=""), percent=finding.percent, labels=finding.labels)


def meaning_of(finding: Finding) -> str:
    """What the outcome says of the claim: of a refuted `a does_not_worsen M` that `a worsens M`."""
    return meaning(claim_of(finding), finding.outcome, finding.smallest, unit=finding.unit)


def zone_of(finding: Finding) -> str:
    """In which zone the effect was shown to lie, in the words of the claim; a dash where there is no margin."""
    if finding.margin is None:
        return NONE
    verb, zone = claim_of(finding).verb, shown_zone(finding.outcome, finding.margin)
    if verb == "does_not_worsen" and zone == "short of the margin":
        return "worse by less than the margin, if at all"
    return zone_in_words(verb, finding.better, zone)


def rests_on_margin(finding: Finding) -> bool:
    """Whether the outcome is a one-sided test against the margin."""
    return finding.margin is not None and against_margin(claim_of(finding).verb, finding.outcome)


def shown_interval(finding: Finding) -> Interval | None:
    """The deciding interval of a finding; no other is shown under that name."""
    from ablate.judge.stats.null_hypotheses import deciding_interval  # with numpy, which `ablate status` needs not

    kind = (claim_of(finding).verb, finding.better, finding.smallest)
    together, margin = finding.simultaneous, finding.margin
    return deciding_interval(
        kind, finding.outcome, finding.estimate, simultaneous=together, margin=margin, step=finding.step
    )


def shows_bounds(finding: Finding) -> bool:
    """Whether the ends of the interval that is shown are one-sided bounds."""
    from ablate.judge.wording import is_of_bounds

    bounds, constant = shown_interval(finding), claim_of(finding).constant is not None
    if bounds is None or finding.estimate is None:
        return False
    return is_of_bounds(bounds, finding.estimate, finding.simultaneous, constant=constant)


def level_reason(finding: Finding) -> str:
    """What the interval that is shown is: `90%, whose ends are one-sided 95% bounds, Bonferroni over 2`."""
    from ablate.judge.stats.null_hypotheses import has_bounds
    from ablate.judge.wording import bounds_in_words

    bounds = shown_interval(finding)
    if bounds is None:
        return ""
    kind = f"whose ends are {bounds_in_words(bounds)}" if shows_bounds(finding) else "two-sided"
    said = f"{level(bounds.level)}, {kind}"
    if bounds == finding.step:
        step = "gate" if finding.gate else "step of Holm's procedure"
        return f"{said}, at the level of the {step} that decided"
    if shows_bounds(finding) and not has_bounds(claim_of(finding).verb):
        said += ", of the test against the margin that decided"
    return ", ".join(filter(None, [said, correction_of(bounds)]))


def levels_in_words(findings: Iterable[Finding]) -> str:
    """The levels of the intervals that are shown: `97.5%, two-sided, Bonferroni over 2`."""
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        bounds = shown_interval(finding)
        if bounds is not None:
            reasons.setdefault(level_reason(finding), []).append(finding.label)
    if len(reasons) == 1:
        return next(iter(reasons))
    return "; ".join(f"{why} ({listed(names)})" for why, names in reasons.items()) or "none"


def is_corrected(findings: Iterable[Finding]) -> bool:
    """Whether any number of these findings is corrected over several hypotheses."""
    return any(
        finding.gate is not None
        or (
            finding.family > 1
            and (
                finding.simultaneous is not None
                or finding.p_support != finding.p_support_adjusted
                or finding.p_refute != finding.p_refute_adjusted
            )
        )
        for finding in findings
    )


def finding_decimals(finding: Finding) -> int:
    """The decimals of every number of one finding, so that its differences and intervals line up: two significant
    digits of the half-width, and as many more as keep each end of its intervals on its side of zero and the margin."""
    spans = [
        (bounds.high - bounds.low) / 2
        for bounds in (finding.estimate.interval if finding.estimate else None, shown_interval(finding))
        if bounds is not None and bounds.low is not None and bounds.high is not None
    ]
    narrow = [span for span in spans if span > 0]
    size = _size(finding)
    wanted = decimals_for(min(narrow, default=0.0), size)
    if finding.percent is None:  # a round percentage is no round logarithm
        shown = compact(finding.smallest)
        margin = len(shown.partition(".")[2]) if "." in shown else 0
        wanted = max(wanted, margin + 1 if finding.smallest else 0)
    other = [] if finding.estimate is None else [finding.estimate.interval]
    other += [estimate.interval for estimate in finding.also]
    most = max(MOST_DECIMALS, decimals_for(size, size)) if size > 0 else MOST_DECIMALS
    deciding = apart(min(most, wanted), [shown_interval(finding)], finding.smallest)
    all_of_them = apart(deciding, other, finding.smallest)
    # An interval that decides nothing may end next to zero, and is no reason to print every number in ten digits.
    return all_of_them if all_of_them <= deciding + 3 else deciding


def _size(finding: Finding) -> float:
    """The largest of the numbers that a finding shows on its own scale: differences, their ends, and the margin."""
    found = finding.estimate
    bounds = [shown_interval(finding), None if found is None else found.interval]
    ends = [end for one in bounds if one is not None for end in (one.low, one.high) if end is not None]
    centre = 0.0 if found is None or found.difference is None else found.difference
    return max((abs(one) for one in (centre, *ends)), default=0.0)


def apart(decimals: int, intervals: Iterable[Interval | None], smallest: float = 0.0) -> int:
    """At least so many decimals, and as many more as keep each end of the intervals on its side of zero and margin."""
    ends = [end for one in intervals if one is not None for end in (one.low, one.high) if end is not None]
    marks = (0.0, smallest, -smallest)
    tried = range(decimals, max(13, decimals + 4))
    more = (more for more in tried if not any(crosses(end, more, marks) for end in ends))
    return next(more, decimals)


def proper(sentence: str) -> str:
    """A sentence of the judge with real minus signs before its numbers."""
    return _HYPHEN_MINUS.sub(MINUS, sentence)


def value(found: object) -> str:
    """A field's value as JSON, cut where it would fill a line."""
    text = str(found if found == "(absent)" else json.dumps(found, ensure_ascii=False))
    return text if len(text) <= 60 else text[:57] + "..."


def difference_of(finding: Finding) -> str:
    """The difference with its sign and unit."""
    return NONE if finding.estimate is None else f"{amount_of(finding)} {finding.unit}".strip()


def amount_of(finding: Finding) -> str:
    """The same without its unit."""
    return signed(None if finding.estimate is None else finding.estimate.difference, finding_decimals(finding))


def p_of(finding: Finding) -> str:
    """`Finding.p_shown`, for a table's cell."""
    return p_cell(finding.p_shown, levels_of(finding))


def sides_of(finding: Finding) -> tuple[str, str]:
    """Mean of the left and of the right side over the pairs, on the claim's scale."""
    if not finding.pairs:
        return NONE, NONE
    means = (fmean(getattr(pair, side) for pair in finding.pairs) for side in ("left", "right"))
    left, right = (number(mean, finding_decimals(finding)) for mean in means)
    return left, right


def interval_of(finding: Finding) -> str:
    """The interval that agrees with the outcome, and its level; it says where one of a margin is missing."""
    if finding.estimate is None:
        return NONE
    bounds = shown_interval(finding)
    if bounds is None and finding.outcome != "inconclusive" and finding.estimate.interval is not None:
        return ONLY_P
    missing = finding.margin is None and finding.smallest and against_margin(claim_of(finding).verb, finding.outcome)
    what = ", against zero" if missing else ""
    return interval(bounds, finding_decimals(finding)) + (f" ({level(bounds.level)}{what})" if bounds else "")
