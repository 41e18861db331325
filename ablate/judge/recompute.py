"""Second opinion of pingouin, scipy and statsmodels: the deciding numbers once more, from the pairs of a finding.

To add a second opinion: what computes it in `OPINIONS`, under the name that a test gives in `second_opinion`.

Nothing here shares code with the tests in `ablate.judge.stats` but the table of nulls (`nulls_of`).
`decide` gives no verdict whose numbers differ, for then one of the two is wrong. What no library computes (bootstrap t,
items, looks, ties under a rank test) is counted as not covered.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import version
from itertools import combinations_with_replacement, product
from math import isclose, sqrt
from types import ModuleType
from typing import Any

import numpy as np

from ablate.judge.audit.checks import Found, check_body
from ablate.judge.stats.kinds import class_of_test
from ablate.judge.stats.null_hypotheses import NullHypothesis, is_gated, nulls_of
from ablate.judge.stats.significance_tests import Floats, Side
from ablate.judge.verdict import Finding
from prereg.registry.looks import Look
from prereg.study.spec import Study
from prereg.text import listed

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

    library: str = "scipy"
    """Whose function gave theirs."""

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
        """Names and versions of the other code; pingouin calls scipy."""
        names = sorted({"scipy"} | {number.library for number in self.numbers})
        return listed([f"{name} {version(name)}" for name in names])

    @property
    def summary(self) -> str:
        """One sentence: how many numbers, by what, how far apart."""
        if not self.numbers:
            return "No deciding number was recomputed: no library computes this test on these pairs."
        # Relative to theirs; where that is 0, absolute.
        apart = max(abs(number.ours - number.theirs) / (abs(number.theirs) or 1.0) for number in self.numbers)
        left_out = f" Not covered: {', '.join(self.not_covered)}." if self.not_covered else ""
        close = f"largest relative difference {apart:.0e}" if apart else "no difference"
        return f"{len(self.numbers)} numbers were recomputed by {self.libraries}: {close}.{left_out}"


@check_body("independent computations of the deciding numbers agree")
def check_numbers(recomputed: Recomputed) -> Found:
    return [
        f"{number.hypothesis} {number.name} {number.ours!r}, recomputed {number.theirs!r}"
        for number in recomputed.numbers
        if not number.equal
    ]


@dataclass(frozen=True)
class SecondOpinion:
    """How a library computes a test once more."""

    computes: Callable[[Finding], bool]
    """Whether its test is the registered one on the runs of a finding."""
    numbers: Callable[[Study, Finding], Iterator[Number]]


def recompute(study: Study, findings: Sequence[Finding], look: Look | None = None) -> Recomputed:
    """The numbers of every finding that pingouin or scipy can compute, next to ours. No library knows looks."""
    numbers: list[Number] = []
    not_covered: list[str] = []
    # 1. Each finding by the library function that its test names; at a look there is none.
    opinion = None if look is not None else OPINIONS[class_of_test(study.analysis.test).second_opinion]
    with warnings.catch_warnings():
        # Libraries warn of small samples and of division by zero; what counts is whether the numbers agree.
        warnings.simplefilter("ignore")
        for finding in findings:
            if finding.estimate is None:
                continue
            computes = opinion is not None and opinion.computes(finding)
            if opinion is not None and computes and not _made_equal(finding):
                numbers += opinion.numbers(study, finding)
            else:
                not_covered.append(finding.hypothesis)
        # 2. The correction over all of them; of a decision without findings there is none.
        if study.analysis.correct == "holm" and findings:
            numbers += _corrected(study, findings)
    return Recomputed(tuple(numbers), tuple(not_covered))


def _differences(finding: Finding) -> Floats:
    return np.asarray([pair.left - pair.right for pair in finding.pairs], dtype=np.float64)


def _has_size(values: Floats, *, most: float) -> bool:
    """Whether the largest is within this factor of 1, where no power that a library takes over- or underflows."""
    return bool(1.0 / most < np.abs(values).max() < most)


def _varies(values: Floats, size: float) -> bool:
    """Whether values differ by more than rounding: those that do not have a rule of their own."""
    return bool(np.ptp(values) > 1e-6 * size)


def _made_equal(finding: Finding) -> bool:
    """Whether the judge has made differences equal that are equal but for the precision of records: no library does."""
    one_value = len({pair.difference for pair in finding.pairs}) == 1
    return one_value and any(pair.difference != pair.left - pair.right for pair in finding.pairs)


def _untied(differences: Floats) -> bool:
    sizes = np.sort(np.abs(differences))
    return bool((np.diff(sizes, prepend=0.0) > 1e-9 * sizes[-1]).all())


def _of_pairs(admits: Callable[[Floats], bool]) -> Callable[[Finding], bool]:
    """Whether all pairs have a difference with a size, and a library's test admits these."""

    def computes(finding: Finding) -> bool:
        if finding.n < 2 or len(finding.pairs) != finding.n:
            return False
        differences = _differences(finding)
        return _has_size(differences, most=1e100) and admits(differences)

    return computes


def _number(
    finding: Finding, name: str, ours: float | None, theirs: float | None, size: float = 1.0
) -> Iterator[Number]:
    """A number that both have."""
    if ours is not None and theirs is not None:
        yield Number(finding.hypothesis, name, float(ours), float(theirs), size)


PValue = Callable[[float, Side], float | None]
"""Null and side -> p; none where the library has none."""


def _p_values(study: Study, finding: Finding, p: PValue, statistic: Floats) -> Iterator[Number]:
    """The p against zero and those of both nulls. `statistic` are the summands whose sum is the test's."""
    assert finding.estimate is not None, finding.hypothesis
    yield from _number(finding, "p", finding.estimate.p, p(0.0, "two"))
    for name, ours, null in _nulls(study, finding):
        # A claimed direction that the statistic lacks gives 1; two points count by the larger.
        away = null.towards and np.sign(statistic.sum()) != null.towards
        theirs = [p(point, side) for point, side in null.points]
        defined = [value for value in theirs if value is not None]
        yield from _number(finding, name, ours, 1.0 if away else max(defined) if len(defined) == len(theirs) else None)


def _difference(finding: Finding, theirs: float, size: float) -> Iterator[Number]:
    assert finding.estimate is not None, finding.hypothesis
    yield from _number(finding, "difference", finding.estimate.difference, theirs, size)


def _nulls(study: Study, finding: Finding) -> Iterator[tuple[str, float | None, NullHypothesis]]:
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


def _by_ttest(study: Study, finding: Finding) -> Iterator[Number]:
    """A paired t by `scipy.stats.ttest_1samp` of the differences, with its standard error, intervals and effects.

    `pingouin.ttest` takes its p from this function, and adds a Bayes factor and a power in five times the time.
    """
    from scipy import stats

    differences = _differences(finding)
    size = float(np.abs(differences).max())

    def p(point: float, side: Side) -> float:
        return float(stats.ttest_1samp(differences, point, alternative=_SIDES[side]).pvalue)

    yield from _p_values(study, finding, p, differences)
    yield from _difference(finding, float(differences.mean()), size)
    assert finding.estimate is not None, finding.hypothesis
    # One t of scipy's serves the intervals at every level.
    one_sample = stats.ttest_1samp(differences, 0.0)
    yield from _number(finding, "standard error", finding.estimate.se, stats.sem(differences), size)
    yield from _intervals(finding, one_sample.confidence_interval, size)
    for effect in finding.effects:
        if effect.name == "d_z":
            yield from _number(finding, "d_z", effect.value, one_sample.statistic / sqrt(finding.n))
    left, right = (np.array([getattr(pair, side) for pair in finding.pairs]) for side in ("left", "right"))
    yield from _cliff_delta(finding, left, right)


def _by_wilcoxon(study: Study, finding: Finding) -> Iterator[Number]:
    """A signed-rank test without ties by `pingouin.wilcoxon`, its effect as the median of Walsh averages."""
    wilcoxon, differences = pingouin_without_plots().wilcoxon, _differences(finding)

    def p(point: float, side: Side) -> float | None:
        shifted = differences - point
        if not _untied(shifted):
            return None
        return float(wilcoxon(shifted, alternative=_SIDES[side], method="exact")["p_val"].iloc[0])

    ranks = np.argsort(np.argsort(np.abs(differences))) + 1.0
    for number in _p_values(study, finding, p, np.sign(differences) * ranks):
        yield replace(number, library="pingouin")
    # By the definition, with no function of ours.
    walsh = [(a + b) / 2.0 for a, b in combinations_with_replacement(differences.tolist(), 2)]
    yield from _difference(finding, float(np.median(walsh)), float(np.abs(differences).max()))


def _by_permutation_test(study: Study, finding: Finding) -> Iterator[Number]:
    """A sign-flip test by `scipy.stats.permutation_test` over all sign vectors."""
    from scipy import stats

    differences = _differences(finding)
    # All sign vectors, 2^n x n; the first is the observed one.
    signs = np.array(list(product((1.0, -1.0), repeat=len(differences))))

    def p(point: float, side: Side) -> float | None:
        shifted = differences - point
        sums, largest = np.abs(signs @ shifted), np.abs(shifted).sum()
        # Of sums that tie but for rounding scipy counts some and not others: only the observed one and its mirror may.
        if sums[0] <= 1e-9 * largest or (np.abs(sums - sums[0]) <= 1e-9 * largest).sum() > 2:
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

    yield from _p_values(study, finding, p, differences)


def _two_arms(finding: Finding) -> bool:
    """Whether a library's test of two independent samples is the registered one on these runs."""
    values = [np.array(sample.values) for sample in finding.samples]
    # The degrees of freedom hold fourth powers.
    if len(values) != 2 or not _has_size(np.concatenate(values), most=1e70):
        return False
    size = float(np.abs(np.concatenate(values)).max())
    return all(_varies(runs, size) for runs in values)


def _by_ttest_ind(study: Study, finding: Finding) -> Iterator[Number]:
    """Welch's t by `scipy.stats.ttest_ind`."""
    from scipy import stats

    # Both weights have one size, so that scaling the values by it gives the effect in its own unit.
    first, second = (
        abs(sample.weight) * np.array(sample.values)
        for sample in sorted(finding.samples, key=lambda sample: -sample.weight)
    )
    size = float(max(np.abs(first).max(), np.abs(second).max()))

    def p(null: float, side: Side) -> float:
        return float(stats.ttest_ind(first - null, second, equal_var=False, alternative=_SIDES[side]).pvalue)

    # Where the lower tail is the smaller, the statistic points down.
    yield from _p_values(study, finding, p, np.array([p(0.0, "less") - p(0.0, "greater")]))
    yield from _difference(finding, float(first.mean() - second.mean()), size)
    yield from _cliff_delta(finding, first, second)
    two_samples = stats.ttest_ind(first, second, equal_var=False)
    assert finding.estimate is not None, finding.hypothesis
    yield from _number(finding, "degrees of freedom", finding.estimate.df, two_samples.df)
    yield from _intervals(finding, two_samples.confidence_interval, size)


OPINIONS: dict[str, SecondOpinion | None] = {
    "": None,
    "ttest": SecondOpinion(_of_pairs(lambda d: _varies(d, float(np.abs(d).max()))), _by_ttest),
    "wilcoxon": SecondOpinion(_of_pairs(lambda d: d.size <= 50 and _untied(d)), _by_wilcoxon),
    "permutation_test": SecondOpinion(_of_pairs(lambda d: d.size <= _MOST_FLIPPED), _by_permutation_test),
    "ttest_ind": SecondOpinion(_two_arms, _by_ttest_ind),
}
"""By what a test declares (`SignificanceTest.second_opinion`)."""


def _corrected(study: Study, findings: Sequence[Finding]) -> Iterator[Number]:
    """Yield the adjusted p values of each family and of the gate; a claim without a p keeps its place with 1."""
    from statsmodels.stats.multitest import multipletests

    by_name = {finding.hypothesis: finding for finding in findings}
    # A family is a gate of one step: within a step Holm's procedure, and never below the step before.
    steps_of: list[tuple[str, Sequence[Sequence[str]]]] = [
        (which, [names])
        for names in study.families.values()
        for which in (("p_refute",) if is_gated(study, names) else ("p_support", "p_refute"))
    ]
    for which, steps in [*steps_of, ("p_support", study.gate_steps)]:
        before = 0.0
        for step in steps:
            p = [1.0 if (value := getattr(by_name[name], which)) is None else value for name in step]
            by_holm = multipletests(p, method="holm")[1] if len(p) > 1 else p
            adjusted = [max(before, float(value)) for value in by_holm]
            for name, theirs in zip(step, adjusted, strict=True):
                ours = getattr(by_name[name], f"{which}_adjusted")
                if ours is not None:
                    library = "statsmodels" if len(p) > 1 else "scipy"
                    yield Number(name, f"{which}, adjusted", ours, theirs, library=library)
            before = max(adjusted)


_PLOTS = "pingouin.plotting"


def pingouin_without_plots() -> ModuleType:
    """pingouin, without the one module for which `import pingouin` loads matplotlib and seaborn: most of its cost.

    The module is loaded as soon as somebody uses a name from it, so that a notebook that plots with pingouin works.
    """
    # Already imported, with or without its plots: nothing to spare.
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
    vars(package).update({plot: getattr(plots, plot) for plot in plots.__all__})
    return getattr(package, name)
