"""The deciding numbers once more, by other people's code: pingouin and scipy, from the pairs that a finding lists.

Nothing here shares code with the tests in `ablate.judge.stats` but the table of nulls (`nulls_of`).
`decide` gives no verdict whose numbers differ, for then one of the two is wrong. What no library computes (bootstrap t,
items, looks, e-process, ranked diverged runs, ties under a rank test) is counted as not covered.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from itertools import combinations_with_replacement, product
from math import isclose, sqrt
from types import ModuleType
from typing import Any

import numpy as np

from ablate.judge.audit.checks import Found, check
from ablate.judge.stats.null_hypotheses import Null, is_gated, nulls_of
from ablate.judge.stats.tests import Floats, Side
from ablate.judge.verdict import Finding
from prereg.registry.looks import Look
from prereg.study.spec import Study

RELATIVE, ABSOLUTE = 1e-9, 1e-12
_SIDES = {"two": "two-sided", "less": "less", "greater": "greater"}
_MOST_FLIPPED = 12
"""Pairs up to which all sign flips are enumerated a second time."""


@dataclass(frozen=True)
class Number:
    """One number of a finding, and what the other code gives."""

    hypothesis: str
    name: str
    ours: float
    theirs: float
    size: float = 1.0
    """The largest difference, for a number in the metric's unit: an interval may end near 0 by cancellation."""

    @property
    def equal(self) -> bool:
        """Equal to 1e-9 of its size, or to 1e-12 of the differences'."""
        return isclose(self.ours, self.theirs, rel_tol=RELATIVE, abs_tol=ABSOLUTE * self.size)


@dataclass(frozen=True)
class Recomputed:
    """What was computed twice."""

    numbers: tuple[Number, ...]
    not_covered: tuple[str, ...]
    """Hypotheses whose test no library computes."""

    @property
    def libraries(self) -> str:
        """Names and versions of the other code."""
        return f"pingouin {version('pingouin')} and scipy {version('scipy')}"

    @property
    def summary(self) -> str:
        """One sentence: how many numbers, by what, how far apart."""
        if not self.numbers:
            return "No deciding number was recomputed: no library computes this test on these pairs."
        apart = max(abs(one.ours - one.theirs) / (abs(one.theirs) or 1.0) for one in self.numbers)
        left_out = f" Not covered: {', '.join(self.not_covered)}." if self.not_covered else ""
        close = f"largest relative difference {apart:.0e}" if apart else "no difference"
        return f"{len(self.numbers)} numbers were recomputed by {self.libraries}: {close}.{left_out}"


@check("independent computations of the deciding numbers agree")
def check_numbers(recomputed: Recomputed) -> Found:
    return [
        f"{one.hypothesis} {one.name} {one.ours!r}, recomputed {one.theirs!r}"
        for one in recomputed.numbers
        if not one.equal
    ]


def recompute(study: Study, findings: Sequence[Finding], look: Look | None = None) -> Recomputed:
    """The numbers of every finding that pingouin or scipy can compute, next to ours."""
    numbers: list[Number] = []
    not_covered: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for finding in findings:
            if finding.samples and _two_arms(finding):
                numbers += _unpaired(study, finding)
            elif look is None and not finding.samples and _comparable(finding):
                numbers += _of_finding(study, finding)
            elif finding.estimate is not None:
                not_covered.append(finding.hypothesis)
        if study.analysis.correct == "holm":
            numbers += _holm(study, findings)
            numbers += _gate(study, findings)
    return Recomputed(tuple(numbers), tuple(not_covered))


def _differences(finding: Finding) -> Floats:
    return np.asarray([pair.left - pair.right for pair in finding.pairs], dtype=np.float64)


def _comparable(finding: Finding) -> bool:
    """Whether a library's test is the registered one on these pairs."""
    estimate = finding.estimate
    if estimate is None or estimate.ranked or estimate.items is not None or len(finding.pairs) != finding.n:
        return False
    differences = _differences(finding)
    size = np.abs(differences)
    if finding.n < 2 or not 1e-100 < size.max() < 1e100:
        return False
    if estimate.method == "paired_t":
        # Differences that are equal up to rounding have their own rule.
        return bool(np.ptp(differences) > 1e-6 * size.max())
    if estimate.method == "wilcoxon":
        return finding.n <= 50 and _untied(differences)
    return estimate.method == "sign_flip" and finding.n <= _MOST_FLIPPED


def _untied(differences: Floats) -> bool:
    sizes = np.sort(np.abs(differences))
    return bool((np.diff(sizes, prepend=0.0) > 1e-9 * sizes[-1]).all())


def _number(
    finding: Finding, name: str, ours: float | None, theirs: float | None, size: float = 1.0
) -> Iterator[Number]:
    """A number that both have."""
    if ours is not None and theirs is not None:
        yield Number(finding.hypothesis, name, float(ours), float(theirs), size)


def _of_finding(study: Study, finding: Finding) -> Iterator[Number]:
    assert finding.estimate is not None, finding.hypothesis
    differences, estimate = _differences(finding), finding.estimate
    size = float(np.abs(differences).max())
    p = {"paired_t": _paired_t, "wilcoxon": _wilcoxon, "sign_flip": _sign_flip}[estimate.method](differences)
    yield from _number(finding, "p", estimate.p, p(0.0, "two"))
    for name, ours, null in _nulls(study, finding):
        yield from _number(finding, name, ours, _p_of(null, p, differences, estimate.method))
    if estimate.method == "paired_t":
        yield from _number(finding, "difference", estimate.difference, differences.mean(), size)
        yield from _of_t(finding, differences)
    elif estimate.method == "wilcoxon":
        walsh = [(a + b) / 2.0 for a, b in combinations_with_replacement(differences.tolist(), 2)]
        yield from _number(finding, "difference", estimate.difference, float(np.median(walsh)), size)


def _nulls(study: Study, finding: Finding) -> Iterator[tuple[str, float | None, Null]]:
    """Both p values of a finding by name, each with the null that it is of."""
    nulls = nulls_of(study.claims[finding.hypothesis].verb, finding.better, finding.smallest)
    for name, null in zip(("p_support", "p_refute"), nulls, strict=True):
        if null is not None:
            yield name, getattr(finding, name), null


def _intervals(finding: Finding, theirs: Callable[[float], tuple[float, float]], size: float) -> Iterator[Number]:
    """Both ends of every finite interval of a t, next to those that a library gives at its level."""
    assert finding.estimate is not None, finding.hypothesis
    for label, interval in (
        ("interval", finding.estimate.interval),
        ("simultaneous interval", finding.simultaneous),
        ("interval against the margin", None if finding.margin is None else finding.margin.interval),
    ):
        if interval is not None and interval.low is not None and interval.high is not None:
            low, high = theirs(interval.level)
            yield from _number(finding, f"{label}, low", interval.low, low, size)
            yield from _number(finding, f"{label}, high", interval.high, high, size)


def _cliff_delta(finding: Finding, left: Floats, right: Floats) -> Iterator[Number]:
    from scipy import stats

    for effect in finding.effects:
        if effect.name == "cliff_delta":
            u = stats.mannwhitneyu(left, right).statistic
            yield from _number(finding, "cliff_delta", effect.value, 2.0 * u / (left.size * right.size) - 1.0)


def _p_of(null: Null, p: Callable[[float, Side], float | None], d: Floats, method: str) -> float | None:
    """p of a null: two points count by the larger, and a claimed direction that the statistic lacks gives 1."""
    if null.towards:
        ranks = np.argsort(np.argsort(np.abs(d))) + 1.0 if method == "wilcoxon" else np.abs(d)
        if np.sign((np.sign(d) * ranks).sum()) != null.towards:
            return 1.0
    found = [p(point, side) for point, side in null.points]
    return None if any(one is None for one in found) else max(one for one in found if one is not None)


def _paired_t(differences: Floats) -> Callable[[float, Side], float | None]:
    ttest = pingouin_without_plots().ttest

    def p(point: float, side: Side) -> float:
        return float(ttest(differences, point, alternative=_SIDES[side])["p_val"].iloc[0])

    return p


def _wilcoxon(differences: Floats) -> Callable[[float, Side], float | None]:
    wilcoxon = pingouin_without_plots().wilcoxon

    def p(point: float, side: Side) -> float | None:
        shifted = differences - point
        if not _untied(shifted):
            return None
        return float(wilcoxon(shifted, alternative=_SIDES[side], method="exact")["p_val"].iloc[0])

    return p


def _sign_flip(differences: Floats) -> Callable[[float, Side], float | None]:
    from scipy import stats

    signs = np.array(list(product((1.0, -1.0), repeat=len(differences))))

    def p(point: float, side: Side) -> float | None:
        shifted = differences - point
        sums, whole = np.abs(signs @ shifted), np.abs(shifted).sum()
        # Of sums that tie but for rounding scipy counts some and not others: only the observed one and its mirror may.
        if sums[0] <= 1e-9 * whole or (np.abs(sums - sums[0]) <= 1e-9 * whole).sum() > 2:
            return None
        return float(
            stats.permutation_test(
                (shifted,),
                np.mean,
                permutation_type="samples",
                n_resamples=np.inf,
                alternative=_SIDES[side],
            ).pvalue
        )

    return p


def _of_t(finding: Finding, differences: Floats) -> Iterator[Number]:
    """Standard error, intervals and standardised effects of a paired t."""
    from scipy import stats

    size = float(np.abs(differences).max())
    assert finding.estimate is not None, finding.hypothesis
    found = stats.ttest_1samp(differences, 0.0)
    yield from _number(finding, "standard error", finding.estimate.se, stats.sem(differences), size)
    yield from _intervals(finding, found.confidence_interval, size)
    for effect in finding.effects:
        if effect.name == "d_z":
            yield from _number(finding, "d_z", effect.value, found.statistic / sqrt(finding.n))
    left, right = (np.array([getattr(pair, side) for pair in finding.pairs]) for side in ("left", "right"))
    yield from _cliff_delta(finding, left, right)


def _two_arms(finding: Finding) -> bool:
    """Whether a library's test of two independent samples is the registered one on these runs."""
    if finding.estimate is None or len(finding.samples) != 2:
        return False
    values = [np.array(one.values) for one in finding.samples]
    size = max(float(np.abs(one).max()) for one in values)
    if not 1e-70 < size < 1e70:  # the degrees of freedom hold fourth powers
        return False
    # Runs that are equal up to rounding have their own rule.
    return all(bool(np.ptp(one) > 1e-6 * size) for one in values)


def _unpaired(study: Study, finding: Finding) -> Iterator[Number]:
    """p values, degrees of freedom and intervals of Welch's t."""
    from scipy import stats

    estimate = finding.estimate
    assert estimate is not None, finding.hypothesis
    # Both weights have one size, so that scaling the values by it gives the effect in its own unit.
    first, second = (
        abs(one.weight) * np.array(one.values) for one in sorted(finding.samples, key=lambda one: -one.weight)
    )
    size = float(max(np.abs(first).max(), np.abs(second).max()))

    def p(null: float, side: Side) -> float:
        return float(stats.ttest_ind(first - null, second, equal_var=False, alternative=_SIDES[side]).pvalue)

    yield from _number(finding, "p", estimate.p, p(0.0, "two"))
    yield from _number(finding, "difference", estimate.difference, first.mean() - second.mean(), size)
    for label, ours, null in _nulls(study, finding):
        tails: list[tuple[float, Side]] = [(0.0, "less"), (0.0, "greater")] if null.towards else []
        points = [*null.points, *tails]
        theirs = [p(point, side) for point, side in points]
        away = null.towards and np.sign(theirs[-2] - theirs[-1]) != null.towards
        yield from _number(finding, label, ours, 1.0 if away else max(theirs[: len(null.points)]))
    yield from _cliff_delta(finding, first, second)
    found = stats.ttest_ind(first, second, equal_var=False)
    yield from _number(finding, "degrees of freedom", estimate.df, found.df)
    yield from _intervals(finding, found.confidence_interval, size)


def _holm(study: Study, findings: Sequence[Finding]) -> Iterator[Number]:
    """Adjusted p values by family, by Holm's procedure; a claim without a p keeps its place with 1."""
    multicomp = pingouin_without_plots().multicomp
    for names in study.families.values():
        family = [finding for finding in findings if finding.hypothesis in names]
        for which in ("p_refute",) if is_gated(study, names) else ("p_support", "p_refute"):
            p = [1.0 if (value := getattr(one, which)) is None else value for one in family]
            adjusted = multicomp(p, method="holm")[1] if len(p) > 1 else p
            for one, theirs in zip(family, adjusted, strict=True):
                ours = getattr(one, f"{which}_adjusted")
                if ours is not None:
                    yield Number(one.hypothesis, f"{which}, adjusted", ours, float(theirs))


def _gate(study: Study, findings: Sequence[Finding]) -> Iterator[Number]:
    """Adjusted p values of support under a gate: of each step by Holm's procedure, and never below one before it."""
    multicomp = pingouin_without_plots().multicomp
    by_name = {finding.hypothesis: finding for finding in findings}
    before = 0.0
    for step in study.gate_steps:
        p = [1.0 if (value := by_name[name].p_support) is None else value for name in step]
        adjusted = [max(before, float(one)) for one in (multicomp(p, method="holm")[1] if len(p) > 1 else p)]
        for name, theirs in zip(step, adjusted, strict=True):
            ours = by_name[name].p_support_adjusted
            if ours is not None:
                yield Number(name, "p_support, adjusted", ours, theirs)
        before = max(adjusted)


_PLOTS = "pingouin.plotting"


def pingouin_without_plots() -> ModuleType:
    """pingouin, without the one module for which `import pingouin` loads matplotlib and seaborn: most of its cost.

    The module is loaded as soon as somebody uses a name from it, so that a notebook that plots with pingouin works.
    """
    if "pingouin" in sys.modules:
        return sys.modules["pingouin"]
    sys.modules[_PLOTS] = ModuleType(_PLOTS)
    try:
        import pingouin
    finally:
        del sys.modules[_PLOTS]
    pingouin.__getattr__ = _with_plots
    return sys.modules["pingouin"]


def _with_plots(name: str) -> Any:
    """A name that pingouin lacks, once its plots are loaded. Raises `AttributeError` where there is none even then."""
    package, plots = sys.modules["pingouin"], import_module(_PLOTS)
    vars(package).pop("__getattr__", None)
    vars(package).update({one: getattr(plots, one) for one in plots.__all__})
    return getattr(package, name)
