"""`FindingView`: one record of what can be said of a finding; every sentence, table and chart of a finding reads it.

Takes a finding of the judge and its study; computes how numbers are written and which facts apply. The sentences are
in `templates/finding.txt`, the columns of tables in `tables.py`. It decides nothing, and never says more than the
interval by which the claim was judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from ablate.judge.stats.null_hypotheses import deciding_interval, excludes, is_gated, nulls_of
from ablate.judge.verdict import Estimate, Finding, Interval, MarginTest, Zone, shown_zone
from ablate.judge.wording import said_p, same_in_every_pair
from ablate.reporting import estimates
from ablate.reporting.estimates import NONE
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.documents.claims import estimates_means, margin, meaning, reading, value_read, zone_in_words
from prereg.rule.condition import Outcome
from prereg.study.claim import Claim, parse_claim
from prereg.study.presentation import Labels
from prereg.study.spec import Study
from prereg.study.words_of_tests import TESTS

MOST_DECIMALS = 8


@dataclass(frozen=True)
class FindingView:
    """What can be said of a finding. Without a `study` (its registration is gone) there are cells and no sentences."""

    finding: Finding
    study: Study | None

    # -- what it is about ------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The hypothesis."""
        return self.finding.hypothesis

    @property
    def label(self) -> str:
        """The hypothesis as people read it, marked where it is exploratory by an amendment."""
        return self.finding.label

    @property
    def labels(self) -> Labels:
        """What people read in place of ids."""
        return self.finding.labels

    @property
    def role(self) -> str:
        """The family it was corrected in."""
        return self.finding.role

    @property
    def outcome(self) -> Outcome:
        """supported, refuted or inconclusive."""
        return self.finding.outcome

    @property
    def unit(self) -> str:
        """The unit of the difference, for a heading or an axis; next to a number, `shown_unit`."""
        return self.finding.unit

    @property
    def metric(self) -> str:
        """The metric as people read it."""
        return self.finding.metric_shown

    @property
    def exploratory(self) -> bool:
        """Whether no verdict rests on it: so declared, or touched by an amendment."""
        return self.finding.role == "exploratory" or bool(self.finding.amended)

    @cached_property
    def claim(self) -> Claim:
        """The claim, its metric as the sentence reads it (`validation loss at step 200`)."""
        if self.study is None:
            # Of a table, or a registration that is gone: the claim as it is written, and no more.
            parsed = parse_claim(self.finding.claim, baseline="")
            return replace(parsed, percent=self.finding.percent, labels=self.labels, better=self.finding.better)
        claim = self.study.claims[self.name]
        if self.finding.percent is not None and not self.of_means:  # no geometric mean, and the unit says `log scale`
            return replace(claim, metric=value_read(self.study, self.name))
        article = "" if self.finding.scale == "raw" else "the "
        return replace(claim, metric=article + reading(self.study, self.name))

    @property
    def of_means(self) -> bool:
        """Whether the difference compares means: not a median of signed ranks, nor a difference of differences."""
        means = self.study is None or estimates_means(self.study, self.name)
        # A ratio of geometric means is a statement about means: medians of logarithms, and contrasts of contrasts,
        # are none.
        return means and not self.centre

    @property
    def paired(self) -> bool:
        """Whether two sides are compared; else each seed gives one number."""
        return self.claim.is_paired

    @property
    def estimate(self) -> Estimate | None:
        """The registered test; none where nothing could be tested."""
        return self.finding.estimate

    @property
    def difference_value(self) -> float | None:
        """The difference; none where there is no estimate."""
        return None if self.estimate is None else self.estimate.difference

    @cached_property
    def _registered(self) -> Study:
        assert self.study is not None, self.name
        return self.study

    # -- the interval by which it was judged -----------------------------------------------------------------------

    @cached_property
    def bounds(self) -> Interval | None:
        """The interval by which the claim was judged; none where p alone shows the outcome."""
        finding, kind = self.finding, (self.claim.verb, self.finding.better, self.finding.smallest)
        return deciding_interval(
            kind,
            finding.outcome,
            finding.estimate,
            simultaneous=finding.simultaneous,
            margin=finding.margin,
            step=finding.step,
        )

    @property
    def one_sided(self) -> bool:
        """Whether the ends of that interval are one-sided bounds."""
        return self.bounds is not None and self.bounds.one_sided

    @property
    def level(self) -> str:
        """Its level: `97.5%`."""
        return "" if self.bounds is None else words.level(self.bounds.level)

    @property
    def bound_level(self) -> str:
        """The level of each end as a one-sided bound."""
        return "" if self.bounds is None else words.level((1.0 + self.bounds.level) / 2.0)

    @property
    def of_step(self) -> str:
        """`gate` or `Holm step`, where the interval is the one at the level of the step that decided."""
        if self.bounds is None or self.bounds != self.finding.step:
            return ""
        return "gate" if self.finding.gate else "Holm step"

    @property
    def of_margin_test(self) -> bool:
        """Whether a claim about zero has the interval of the test against its margin, which decided."""
        return not self.of_step and self.one_sided and not self.claim.kind.has_bounds

    @property
    def correction(self) -> str:
        """`Bonferroni over 2`, of the interval; empty where it is that of one test alone."""
        if self.bounds is None or self.of_step or self.bounds.over == 1:
            return ""
        return f"Bonferroni over {self.bounds.over}"

    @property
    def only_p(self) -> bool:
        """Whether no interval that was computed shows the outcome, and p alone does."""
        computed = self.estimate is not None and self.estimate.interval is not None
        return self.bounds is None and self.outcome != "inconclusive" and computed

    @property
    def interval_kind(self) -> str:
        """`CI`; a sequential study's intervals are not the ordinary ones, and are named."""
        return "CI" if self._registered.stopping == "fixed" else "repeated CI"

    # -- numbers in words ------------------------------------------------------------------------------------------

    @cached_property
    def decimals(self) -> int:
        """Of every number of this finding, so that its differences and intervals line up: two significant digits of
        the half-width, and as many more as keep each end of its intervals on its side of zero and of the margin."""
        own = None if self.estimate is None else self.estimate.interval
        spans = [
            (bounds.high - bounds.low) / 2
            for bounds in (own, self.bounds)
            if bounds is not None and bounds.low is not None and bounds.high is not None and bounds.high > bounds.low
        ]
        size = self._size
        decimals = estimates.decimals_for(min(spans, default=0.0), size)
        # One digit more than the margin has: 0.05 against 0.0497 must not read as 0.05 against 0.05.
        if self.finding.percent is None:  # a round percentage is no round logarithm
            shown = words.compact(self.finding.smallest)
            margin_digits = len(shown.partition(".")[2]) if "." in shown else 0
            decimals = max(decimals, margin_digits + 1 if self.finding.smallest else 0)
        others = [own, *(estimate.interval for estimate in self.finding.also)]
        most = max(MOST_DECIMALS, estimates.decimals_for(size, size)) if size > 0 else MOST_DECIMALS
        # Rounding may put an end on the margin, or across it: then more decimals are shown.
        deciding = estimates.apart(min(most, decimals), [self.bounds], self.finding.smallest)
        # An interval that decides nothing may end next to zero, and is no reason to print every number in ten digits.
        of_all = estimates.apart(deciding, others, self.finding.smallest)
        return of_all if of_all <= deciding + 3 else deciding

    @property
    def _size(self) -> float:
        """The largest of the numbers shown: the difference and the ends of both intervals."""
        intervals = [self.bounds, None if self.estimate is None else self.estimate.interval]
        ends = [
            end for bounds in intervals if bounds is not None for end in (bounds.low, bounds.high) if end is not None
        ]
        return max((abs(end) for end in (self.difference_value or 0.0, *ends)), default=0.0)

    @property
    def levels(self) -> tuple[float, ...]:
        """Every level that a p of the finding may be compared with: alpha, its shares in the family, the gate's."""
        finding = self.finding
        # Holm compares the k-th smallest p with alpha / (m - k + 1): any of alpha / 1 to alpha / m.
        gate = () if finding.gate is None or finding.gate.level == 0.0 else (finding.gate.level,)
        return (*(finding.alpha / k for k in range(1, finding.family + 1)), *gate)

    def number(self, value: float) -> str:
        """A value on the finding's scale."""
        return words.number(value, self.decimals)

    def signed(self, value: float | None) -> str:
        """A difference on the finding's scale."""
        return estimates.signed(value, self.decimals)

    @property
    def amount(self) -> str:
        """The difference without its unit."""
        return self.signed(self.difference_value)

    @property
    def difference(self) -> str:
        """The difference with its sign and unit."""
        return NONE if self.estimate is None else f"{self.amount} {self.shown_unit}".strip()

    @property
    def sides(self) -> tuple[str, str]:
        """Mean of the left and of the right side over the pairs."""
        if not self.finding.pairs:
            return NONE, NONE
        left, right = (
            self.number(fmean(getattr(pair, side) for pair in self.finding.pairs)) for side in ("left", "right")
        )
        return left, right

    @property
    def bracket(self) -> str:
        """`[−0.031, −0.012]`, or why there is none."""
        if self.bounds is not None:
            return estimates.interval(self.bounds, self.decimals)
        return phrase("finding.only_p") if self.only_p else phrase("finding.no_interval")

    @property
    def interval(self) -> str:
        """The same with its level, for a cell."""
        if self.estimate is None:
            return NONE
        if self.bounds is None:
            return self.bracket
        smallest = self.finding.smallest
        against_zero = self.finding.margin is None and smallest and self.claim.kind.against_margin(self.outcome)
        return f"{self.bracket} ({self.level}{', against zero' * bool(against_zero)})"

    @property
    def p(self) -> str:
        """The corrected p of the outcome for a cell: of refutation where the claim is refuted, else of its support."""
        return estimates.p_cell(self.finding.p_shown, self.levels)

    def p_cell(self, p: float | None) -> str:
        """Any p of the finding for a cell."""
        return estimates.p_cell(p, self.levels)

    def said_p(self, p: float) -> str:
        """`= .0004`, `< .0001`."""
        return said_p(p, self.levels)

    @property
    def p_said(self) -> str:
        """The p of the outcome in a sentence; empty where there is none."""
        return "" if self.finding.p_shown is None else self.said_p(self.finding.p_shown)

    @property
    def test(self) -> str:
        """The test for a cell."""
        return phrase("finding.no_test") if self.estimate is None else test_of(self.estimate, paired=self.paired)

    @property
    def n(self) -> str:
        """Pairs for a cell; seeds x items where items are a sample; runs by arm without pairs."""
        return n_of(self.estimate, self.finding.n)

    @property
    def margin(self) -> str:
        """The smallest difference that matters, with its unit."""
        if not self.finding.smallest:
            return f"{NONE} {self.shown_unit}".strip()
        return margin(self.claim, self.finding.smallest, self.unit)

    # -- parts of its sentences (templates/finding.txt) ------------------------------------------------------------

    @cached_property
    def shown_unit(self) -> str:
        """The unit as it follows a number."""
        return words.after_number(self.unit)

    @property
    def meaning(self) -> str:
        """What the outcome says of the claim: of a refuted `a does_not_worsen M` that `a worsens M`."""
        baseline = "" if self.study is None else self.study.baseline
        return meaning(self.claim, self.outcome, self.finding.smallest, unit=self.shown_unit, baseline=baseline)

    @property
    def reason(self) -> str:
        """Why nothing could be tested."""
        return estimates.proper("; ".join(self.finding.notes)) or "there is nothing to test"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Runs of each arm, of a test without pairs."""
        return () if self.estimate is None else self.estimate.sizes

    @property
    def centre(self) -> str:
        """What the difference is, where it is not the mean difference."""
        if self.estimate is None:
            return ""
        return TESTS[self.estimate.method].centre

    @cached_property
    def sign(self) -> int:
        """Which way the sentence states the effect; 0 where it states none. An interval at 1 - 2 alpha is too short to
        state a direction, so both it and the one against zero must lie on that side."""
        estimate = self.estimate
        if estimate is None or self.outcome == "inconclusive" or self.apart:
            return 0
        # There is no side whose improvement could be named.
        if self.claim.constant is not None:
            return 0
        # The direction is stated two-sided at alpha: both intervals must exclude zero on that side.
        side = _side(self.bounds)
        return side if side == _side(self.finding.simultaneous or estimate.interval) else 0

    @property
    def effect(self) -> str:
        """`improves`, `worsens`; `raises`, `lowers` where no way is better."""
        better = self.claim.better
        if better == "neither":
            return "raises" if self.sign > 0 else "lowers"
        return "improves" if (self.sign > 0) == (better == "higher") else "worsens"

    @property
    def compared_with(self) -> str:
        """The right side, where it is not the baseline."""
        right = self.claim.right_side
        return "" if right == self.labels.arm(self._registered.baseline) else right

    @cached_property
    def _write(self) -> tuple[Callable[[float], str], bool]:
        """How a value of the finding is written in its sentence, and whether as a ratio in percent: a difference of
        logarithms whose margin is in percent is a ratio of means."""
        sign, plain = self.sign, words.number if self.sign else estimates.signed
        estimate = self.estimate
        if estimate is None or self.finding.percent is None or not self.of_means:
            return lambda value: plain((sign or 1) * value, self.decimals), False
        ends = [
            log_ratio_in_percent(end)
            for end in (() if self.bounds is None else (self.bounds.low, self.bounds.high))
            if end is not None
        ]
        # Decimals anew: a half-width of 0.01 on the logarithm is one of 1.0%.
        fewest = estimates.decimals_for((max(ends) - min(ends)) / 2) if len(ends) == 2 else 1
        marks = (0.0, log_ratio_in_percent(self.finding.smallest), log_ratio_in_percent(-self.finding.smallest))
        decimals = next(
            (more for more in range(fewest, 9) if not any(words.crosses(end, more, marks) for end in ends)), fewest
        )
        return lambda value: plain((sign or 1) * log_ratio_in_percent(value), decimals) + "%", True

    @property
    def size(self) -> str:
        """The difference with its unit: without its sign where the sentence names the direction."""
        write, as_ratio = self._write
        assert self.difference_value is not None, self.name
        return f"{write(self.difference_value)}{'' if as_ratio else f' {self.shown_unit}'}".strip()

    @property
    def ends(self) -> tuple[str, str] | None:
        """The ends of the interval, the one nearer to zero first where the sentence names the direction."""
        if self.bounds is None:
            return None
        write, _ = self._write
        low = f"{words.MINUS}∞" if self.bounds.low is None else write(self.bounds.low)
        high = "∞" if self.bounds.high is None else write(self.bounds.high)
        # "Lowers by 0.31 to 0.33": the sign is in the verb, so the ends swap and an open one loses its minus.
        return (high, low.replace(f"{words.MINUS}∞", "∞")) if self.sign < 0 else (low, high)

    @property
    def margin_said(self) -> str:
        """The margin in a sentence that has named the unit; empty where there is none."""
        if not self.finding.smallest:
            return ""
        return margin(self.claim, self.finding.smallest, "" if self.sign else self.shown_unit)

    @property
    def against_margin(self) -> str:
        """Where the interval lies against the margin on its side of zero: no harm, beyond, within, across."""
        if not self.finding.smallest or self.bounds is None:
            return ""
        if self.claim.verb == "does_not_worsen" and self.sign != self.claim.direction:
            return "no harm"
        low, high = self.bounds.low, self.bounds.high
        # Seen from zero: beyond the margin is where even the nearer end is.
        near, far = (low, high) if self.sign > 0 else (high, low)
        if near is not None and abs(near) >= self.finding.smallest:
            return "beyond"
        return "within" if far is not None and abs(far) < self.finding.smallest else "across"

    @property
    def tested_margin(self) -> MarginTest | None:
        """The test against the margin, where the outcome is one."""
        return self.finding.margin if self.claim.kind.against_margin(self.outcome) else None

    @cached_property
    def apart(self) -> str:
        """`gate` or `test`: why the interval of an inconclusive finding lies on one side of the margin or of zero;
        empty where it does not. No outcome that was found is shown with such an interval."""
        if self.bounds is None or self.tested_margin is None or self.outcome != "inconclusive":
            return ""
        support, refute = nulls_of(self.claim.verb, self.finding.better, self.finding.smallest)
        deciding = (support, refute) if self.claim.by is not None else (support,)
        if not any(null is not None and excludes(self.bounds, null) for null in deciding):
            return ""
        return "gate" if is_gated(self._registered, self._registered.corrected_with(self.name)) else "test"

    @property
    def zone(self) -> str:
        """The range that the effect was shown to lie in: harm, below harm, reached, below, other way, undecided."""
        if self.finding.margin is None:
            return ""
        zone = shown_zone(self.outcome, self.finding.margin)
        if zone == "undecided":
            return zone
        if self.claim.verb == "does_not_worsen":
            return "harm" if zone == "at least the margin" else "below harm"
        return zone_in_words(self.claim.verb, self.finding.better, zone)

    @property
    def zone_adds(self) -> bool:
        """Whether that range says more of a decided finding than its test against the margin, or its clause, has."""
        if not self.zone or self.outcome == "inconclusive" or self.tested_margin is not None:
            return False
        return not (self.sign and self.against_margin in ("beyond", "within", "no harm"))

    @property
    def over_items(self) -> dict[str, object] | None:
        """The layout of a test over seeds and items, for its sentence."""
        estimate = self.estimate
        if estimate is None or estimate.items is None:
            return None
        items = estimate.items
        # Satterthwaite's degrees of freedom are no whole number.
        df = "" if estimate.df is None else f"{estimate.df:.4g}"
        # What a two-way t counts as its units differs with the estimand: plain, in strata, or exact.
        units = f"{items.n_units - 1:,} over {items.unit}"
        if items.strata is not None and items.df is not None:
            units = f"{items.df:,.4g} over items"
        if items.effective is not None:
            units = f"exact over {items.effective:.3g} effective tasks"
        return {
            "fixed": items.estimand == "new_seeds",
            "n": estimate.n,
            "count": f"{items.n_units:,} {items.unit if items.n_units > 1 else items.unit[:-1]}",
            "items": f"{items.n_items:,}" if items.unit == "tasks" else "",
            "strata": f"{items.strata:,}" if items.strata is not None and items.df is not None else "",
            "unit": items.unit,
            "df": df,
            "df_seeds": estimate.n - 1,
            "df_units": units,
        }

    @property
    def t_against_margin(self) -> list[tuple[str, str]]:
        """t and the margin that it is against, of a test against it that has a standard error."""
        estimate, value = self.estimate, self.difference_value
        if self.tested_margin is None or estimate is None or not estimate.se or value is None:
            return []
        smallest = self.finding.smallest
        # A claim of no change is against both margins (two one-sided tests).
        margins = [self.claim.direction * smallest] if self.claim.direction else [-smallest, smallest]
        return [(words.number((value - margin_at) / estimate.se, 2), words.compact(margin_at)) for margin_at in margins]

    @property
    def df(self) -> str:
        """Degrees of freedom of a test that has one number of them."""
        estimate = self.estimate
        return "" if estimate is None or estimate.df is None or estimate.items else f"{estimate.df:.4g}"

    @property
    def zone_ps(self) -> list[tuple[str, str]]:
        """The one-sided p that decided, and what it showed; of an inconclusive finding both: for the effect at least at
        the margin, and short of it."""
        tested = self.tested_margin
        if tested is None:
            return []
        # A decided finding states the p that decided it, an undecided one both.
        p_of: dict[Zone, float] = {"at least the margin": tested.p_reached, "short of the margin": tested.p_short}
        shown = shown_zone(self.outcome, tested)
        return [
            (self.said_p(p), zone_in_words(self.claim.verb, self.finding.better, zone))
            for zone, p in p_of.items()
            if shown in (zone, "undecided")
        ]

    @property
    def corrected(self) -> tuple[str, int]:
        """`Holm` or `gate`, and over how many claims the p of the outcome is corrected; `("", 1)` of a test alone."""
        study = self._registered
        # A gate corrects support alone; the refutation of a gated claim is in Holm's family, if there is one.
        together = study.corrected_with(self.name)
        if self.outcome != "refuted" and is_gated(study, together):
            return "gate", len(together)
        m = 1 if study.analysis.correct == "none" else len(study.family_of(self.name))
        return ("Holm", m) if m > 1 else ("", 1)

    @property
    def shows_p(self) -> bool:
        """Whether the sentence gives the p of the outcome: the two of the margin say it where nothing is corrected."""
        kind, m = self.corrected
        return self.finding.p_shown is not None and (self.tested_margin is None or m > 1 or kind == "gate")

    @property
    def p_one_sided(self) -> bool:
        """Whether the p shown is one-sided where its interval is not: the claim's other side, or a constant."""
        if self.claim.constant is not None:
            return True
        # A direction is supported two-sided and refuted one-sided.
        plain = not self.claim.verb.startswith("does")
        return self.outcome == "refuted" and self.finding.smallest == 0.0 and plain

    @property
    def same(self) -> str:
        """What a reader must know where every pair has the same difference."""
        left, right = ([getattr(pair, side) for pair in self.finding.pairs] for side in ("left", "right"))
        return same_in_every_pair(left, right, paired=self.paired)

    @property
    def notes(self) -> str:
        """The judge's notes as sentences."""
        return estimates.sentences(self.finding.notes)

    @property
    def clause(self) -> str:
        """What it says, with difference, interval, n and margin."""
        return phrase("finding.clause", self)

    @property
    def judged_by(self) -> str:
        """What decided it: test, statistics, p values and the range of the effect."""
        return phrase("finding.judged_by", self)

    @property
    def short(self) -> str:
        """What it says, without the numbers that the forest shows."""
        return phrase("finding.short", self)


def views_of(findings: Iterable[Finding], study: Study | None) -> list[FindingView]:
    """A view of each finding."""
    return [FindingView(finding, study) for finding in findings]


def by_scale(views: Iterable[FindingView]) -> list[list[FindingView]]:
    """Findings that can be drawn on one axis; the tasks of a family share one."""
    groups: dict[tuple[str, str, str], list[FindingView]] = {}
    for view in views:
        # Scale and unit too: log differences are not drawn next to raw ones of the same metric.
        key = (of_all_tasks(view.finding.metric), view.finding.scale, view.finding.unit)
        groups.setdefault(key, []).append(view)
    return list(groups.values())


def of_all_tasks(metric: str) -> str:
    """The metric of all tasks that one of a single task belongs to; any other as it is.

    >>> of_all_tasks("harness/accuracy/agreement"), of_all_tasks("val/loss")
    ('harness/accuracy', 'val/loss')
    """
    from prereg.metrics.catalogue import task_of

    return metric.removesuffix(f"/{task_of(metric)}")


def test_of(estimate: Estimate, *, paired: bool = True) -> str:
    """A test in words; over items, what it speaks of too. Without `paired` each seed gives one number."""
    items = estimate.items
    if items is None:
        name = TESTS[estimate.method].short
        # One number a seed: the same arithmetic under another name.
        return name if paired else name.replace("paired t", "one-sample t")
    if items.estimand == "new_seeds":
        return f"paired t over seeds' means, new seeds on these {items.unit}"
    return f"two-way t, new seeds and new {items.unit}" + " of these tasks" * (items.strata is not None)


def n_of(estimate: Estimate | None, pairs: int) -> str:
    """Pairs; over items, seeds x items; without pairs, runs by arm."""
    items = None if estimate is None else estimate.items
    if estimate is not None and estimate.sizes:
        return " + ".join(map(str, estimate.sizes))
    if items is None:
        return str(pairs)
    unit = items.unit if items.n_units > 1 else items.unit[:-1]
    return f"{pairs} x {items.n_units:,} {unit}" + (f" ({items.n_items:,} items)" if items.unit == "tasks" else "")


def log_ratio_in_percent(difference: float) -> float:
    """A difference of natural logarithms as a change in percent.

    >>> round(log_ratio_in_percent(-0.05), 3)
    -4.877
    """
    # exp(d) - 1 by expm1: of a small d the subtraction would leave few digits.
    return 100.0 * math.expm1(difference)


def is_corrected(views: Iterable[FindingView]) -> bool:
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
        for finding in (view.finding for view in views)
    )


@dataclass(frozen=True)
class Shared:
    """What is true of several findings together, for the legend of a figure and the note of a table."""

    views: Sequence[FindingView]

    @property
    def levels(self) -> list[tuple[FindingView, str]]:
        """A view for each kind of interval, and the names of the claims that have it; no name where all have one."""
        # The kind in words is the key: two intervals that read alike are one entry of the legend.
        kinds: dict[str, list[FindingView]] = {}
        for view in self.views:
            if view.bounds is not None:
                kinds.setdefault(phrase("finding.kind_of_interval", view), []).append(view)
        if len(kinds) == 1:
            return [(next(iter(kinds.values()))[0], "")]
        return [(views[0], words.listed(view.label for view in views)) for views in kinds.values()]

    @property
    def centre(self) -> str:
        """Which number the differences are."""
        kinds = {view.centre for view in self.views if view.estimate} or {""}
        return " or ".join(kind or "mean difference" for kind in sorted(kinds))

    @property
    def tests(self) -> str:
        """The tests."""
        return words.listed(dict.fromkeys(view.test for view in self.views))

    @property
    def n(self) -> str:
        """The n of all, where it is one."""
        sizes = {view.n for view in self.views}
        return sizes.pop() if len(sizes) == 1 else ""

    @property
    def unpaired(self) -> bool:
        """Whether the test has no pairs."""
        return any(view.sizes for view in self.views)

    @property
    def paired(self) -> bool:
        """Whether any claim compares two sides of a seed."""
        return any(view.paired for view in self.views)

    @property
    def over_items(self) -> bool:
        """Whether items are scored by any."""
        return any(view.estimate is not None and view.estimate.items is not None for view in self.views)

    @property
    def gated(self) -> bool:
        """Whether support was tested by a gate."""
        return any(view.finding.gate for view in self.views)

    @property
    def refuted(self) -> bool:
        """Whether any claim is refuted, so that its p is that of the refutation."""
        return any(view.outcome == "refuted" for view in self.views)

    @property
    def undecided(self) -> bool:
        """Whether any claim is inconclusive, so that its p is that of support."""
        return any(view.outcome == "inconclusive" for view in self.views)

    @property
    def corrected(self) -> bool:
        """Whether any number is corrected."""
        return is_corrected(self.views)

    @property
    def apart(self) -> list[FindingView]:
        """Those whose interval lies on another side than their outcome."""
        return [view for view in self.views if view.study is not None and view.apart]


def _side(bounds: Interval | None) -> int:
    """On which side of zero an interval lies, all of it; 0 where it holds zero."""
    if bounds is None:
        return 0
    if bounds.low is not None and bounds.low > 0.0:
        return 1
    return -1 if bounds.high is not None and bounds.high < 0.0 else 0
