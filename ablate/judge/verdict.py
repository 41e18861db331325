"""Types that the judge returns (`Decision`, `Finding`, `Check`, ...), and the bytes of verdict.json.

`verdict.json` holds the facts of a `Decision`: numbers, outcomes, names. What is told in words is derived from them and
from the registration whenever something is shown, and is in no file that is compared. It holds no clock time and no
path either, so that the same evidence under the same registration always gives the same bytes.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from pydantic import BaseModel, JsonValue, PrivateAttr

from prereg.frozen import FrozenModel
from prereg.metrics.catalogue import Better
from prereg.registry.looks import Look
from prereg.rule.condition import Outcome
from prereg.study.analysis import Role, Scale
from prereg.study.presentation import NO_LABELS, Labels
from prereg.text import counted

Status = Literal["decided", "decided_with_deviations", "inconclusive", "inadmissible", "continue", "unfinished"]
Severity = Literal["inadmissible", "deviation", "note"]
Estimand = Literal["new_seeds", "new_seeds_and_items"]
Zone = Literal["at least the margin", "undecided", "short of the margin"]
"""Where an effect lies against the smallest difference that matters, in the direction that the claim speaks of."""


class Interval(FrozenModel):
    """An interval and what it is."""

    low: float | None
    """Lower end; none when unbounded."""
    high: float | None
    """Upper end; none when unbounded."""
    level: float
    """Confidence level, for instance 0.95."""
    over: int = 1
    """Claims that it is corrected over (Bonferroni); 1 where it is that of one test alone."""
    one_sided: bool = False
    """Whether its ends are one-sided bounds, each at (1 + level) / 2: against a margin or a constant."""
    method: str = ""
    """In words: how it was computed and, if simultaneous, over how many."""


class ItemLayout(FrozenModel):
    """The items that a test over seeds and items met."""

    n_items: int
    """Items that every run was scored on."""
    unit: Literal["items", "tasks"]
    """What is crossed with seeds: single items, or whole tasks."""
    n_units: int
    """How many of them."""
    estimand: Estimand
    """Whether they are fixed, or a sample as the seeds are."""
    effective: float | None = None
    """Equal tasks that would weigh like these, where tasks of unequal size are a sample: (sum n)^2 / sum n^2."""
    strata: int | None = None
    """Tasks that the items are new items of, where tasks are fixed and count alike."""
    df: float | None = None
    """Degrees of freedom over the items of such strata: those of the smallest."""


class Estimate(FrozenModel):
    """One test of one contrast."""

    method: str
    """The test, by its name in a study."""
    difference: float
    """The effect: left side of the claim minus right side, on the registered scale. The mean; of a
    test over ranks, the Hodges-Lehmann estimate."""
    interval: Interval | None
    """Two-sided at 1 - alpha, uncorrected; none where the method yields no finite one at this n. Of a claim against a
    constant at 1 - 2 alpha: its ends are one-sided bounds."""
    p: float
    """Two-sided p against zero, uncorrected; never 0."""
    p_floor: float
    """Smallest p this method can give at this n."""
    n: int
    """Pairs; without pairs, runs of all arms."""
    ranked: Literal[0] = 0
    """Always 0: every verdict of this format has the field, and no test ranks diverged runs any more."""
    se: float | None = None
    """Standard error of the difference, where the method has one."""
    df: float | None = None
    """Degrees of freedom, where the method has one number of them; a test over seeds and new items has two."""
    notes: tuple[str, ...] = ()
    """What a reader must know: enumeration or resamples, zero-SE rule, ties."""
    items: ItemLayout | None = None
    """The items of a test over seeds and items."""
    sizes: tuple[int, ...] = ()
    """Runs of each arm of the claim, of a test without pairs."""


class EffectSize(FrozenModel):
    """A standardised effect, always next to the raw difference."""

    name: Literal["d_z", "g_z", "g_av", "hedges_g", "cliff_delta"]
    """d_z = mean/SD of the differences; g_z with the exact small-sample correction; hedges_g, of two arms without
    pairs, over their pooled SD and so corrected, at equal variances; Cliff's delta."""
    value: float
    """Its sign is the sign of the difference."""
    interval: Interval | None = None
    """Noncentral-t interval for d_z and g_z."""
    df: float | None = None
    """Degrees of freedom of the correction."""


class Pair(FrozenModel):
    """One seed's contrast."""

    seed: int
    """The seed."""
    left: float
    """The claim's left side, on the registered scale."""
    right: float
    """The right side."""
    difference: float
    """Left minus right."""


class ArmSample(FrozenModel):
    """The runs of one arm, in a test without pairs."""

    arm: str
    """The variant."""
    weight: float
    """Of its mean in the effect."""
    seeds: tuple[int, ...]
    """Its seeds."""
    values: tuple[float, ...]
    """Its values on the registered scale, in the order of the seeds."""


class SharedSeeds(FrozenModel):
    """What pairing would have given over the seeds that all arms of the claim share: description."""

    n: int
    """Shared seeds."""
    se_paired: float
    """Standard error of the mean of their differences."""
    se_unpaired: float
    """That of the difference of the means of the same runs, as if independent."""
    correlation: float | None
    """Correlation of the two sides over them."""


class ArmSummary(FrozenModel):
    """Description of one arm's final values over seeds, on the metric's own scale."""

    arm: str
    """The variant."""
    n: int
    """Seeds."""
    mean: float
    """Mean over seeds."""
    sd: float | None
    """Standard deviation over seeds."""


class MarginTest(FrozenModel):
    """The effect against the registered smallest difference d, in the direction that the claim speaks of: the claimed
    one, or towards worse for `does_not_worsen`, or either for `changes` and `does_not_change`."""

    zone: Zone
    """Which of three zones the effect was shown to lie in, at the level of the family after correction: at least d;
    short of d (smaller than what matters, none, or the other way); or undecided."""
    p_reached: float
    """One-sided p of the null that the effect falls short of d, uncorrected."""
    p_short: float
    """One-sided p of the null that the effect reaches d, uncorrected; of two one-sided tests the larger."""
    interval: Interval | None
    """Two-sided at 1 - 2 alpha, of a role of m that is corrected at 1 - 2 alpha/m (Bonferroni): its ends are one-sided
    bounds, as margins are tested."""


class GateLevel(FrozenModel):
    """At which level the gate tested a claim for support."""

    weight: float
    """Its share of alpha before any step has passed: one over the hypotheses of the first step, and 0 of all others."""
    level: float
    """The level it was tested at in the end, by Holm's procedure within its step; 0 where a step before it did not
    pass. The claim passed exactly where its p is at most this."""


class Finding(FrozenModel):
    """What became of one hypothesis."""

    hypothesis: str
    """Its name."""
    claim: str
    """The claim, as registered."""
    role: Role
    """The family it was corrected in."""
    metric: str
    """The metric."""
    unit: str
    """The metric's unit, and the scale if not raw."""
    scale: Scale
    """Scale of the differences."""
    better: Better
    """Which way the metric improves."""
    smallest: float
    """The registered smallest difference that matters."""
    outcome: Outcome
    """supported, refuted or inconclusive."""
    n: int
    """Pairs that entered; without pairs, runs of all arms."""
    family: int
    """Hypotheses corrected together."""
    alpha: float
    """Level of the family."""
    estimate: Estimate | None
    """The registered test; none when there is nothing to test (the notes have the reason)."""
    simultaneous: Interval | None
    """Bonferroni interval at 1 - alpha/family, two-sided; none over several hypotheses without a correction. Under a
    gate at 1 - alpha x weight, and none where that is 0."""
    p_support: float | None
    """p of the null that the claim must reject to be supported."""
    p_refute: float | None
    """p of the null that must be rejected to refute the claim; none when it cannot be refuted (smallest 0)."""
    p_support_adjusted: float | None
    """The same after correction over the family."""
    p_refute_adjusted: float | None
    """The same after correction over the family."""
    effects: tuple[EffectSize, ...] = ()
    """Standardised effects."""
    also: tuple[Estimate, ...] = ()
    """Tests registered as description; they decide nothing."""
    pairs: tuple[Pair, ...] = ()
    """The evidence, seed by seed."""
    arms: tuple[ArmSummary, ...] = ()
    """The arms of the claim."""
    correlation: float | None = None
    """Correlation of the two sides over seeds: what pairing bought."""
    notes: tuple[str, ...] = ()
    """Anything a reader must know."""
    amended: tuple[str, ...] = ()
    """What an amendment after evidence changed about it: it is exploratory then, and no verdict rests on it."""
    margin: MarginTest | None = None
    """The effect against `smallest`; none where `smallest` is 0 or nothing could be tested."""
    gate: GateLevel | None = None
    """Under a gate; none without."""
    percent: float | None = None
    """`smallest` in percent, where the study writes it so; none otherwise."""
    samples: tuple[ArmSample, ...] = ()
    """The runs by arm, of a test without pairs: `pairs` is empty then."""
    shared: SharedSeeds | None = None
    """What pairing would have given, of such a test over shared seeds."""
    step: Interval | None = None
    """The interval at the level of the step of the correction that decided, where those of its role do not show the
    outcome; none otherwise."""
    _labels: Labels = PrivateAttr(default=NO_LABELS)

    @property
    def label(self) -> str:
        """Its name in every table, marked where an amendment made it exploratory."""
        name = self._labels.claim(self.hypothesis)
        return f"{name} (exploratory)" if self.amended else name

    @property
    def claim_shown(self) -> str:
        """The claim as people read it."""
        return self._labels.in_claim(self.claim)

    @property
    def metric_shown(self) -> str:
        """The metric as people read it."""
        return self._labels.metric(self.metric)

    @property
    def labels(self) -> Labels:
        """What people read in place of ids."""
        return self._labels

    def labelled(self, labels: Labels) -> Finding:
        """The same for a reader: labels are of the registration, and never written with a finding."""
        copy = self.model_copy()
        # A private attribute is in no dump: the bytes of verdict.json do not depend on labels.
        copy._labels = labels
        return copy

    @property
    def p_shown(self) -> float | None:
        """The one corrected p that is shown where only one is: of refutation where refuted, else of support."""
        return self.p_refute_adjusted if self.outcome == "refuted" else self.p_support_adjusted


class Check(FrozenModel):
    """One check of the evidence before any inference."""

    name: str
    """Short and stable, for instance 'every planned run is present'."""
    passed: bool
    """Whether it held."""
    severity: Severity
    """What a failure means: no verdict at all, a deviation listed in the report, or a remark."""
    found: str = ""
    """What was found, with counts."""
    required: str = ""
    """What the registration asks."""


class Stability(FrozenModel):
    """One variant's stability by the registered rule."""

    variant: str
    """The arm."""
    stable: bool
    """No run diverged, no run had a spike, and each reached the registered levels."""
    runs: int
    """Runs looked at."""
    diverged: tuple[int, ...] = ()
    """Seeds whose run diverged."""
    spikes: dict[int, tuple[int, ...]] = {}
    """Seed -> steps of loss spikes."""
    not_reached: dict[int, dict[str, float | None]] = {}
    """Seed -> metric -> the best value that its run had by the registered step, where that is not at its level; none
    where there was no value. Empty where each run reached every level, or none is registered."""
    above: float | None = None
    """The robust z above which a step is a spike, where it follows from a rate of false alarms; none
    where the limit itself is registered."""


class Decision(FrozenModel):
    """The verdict and everything it rests on."""

    format: Literal[1]
    """The version of the format."""
    study: str
    """The study's id."""
    title: str = ""
    """Its title."""
    registration: str
    """sha256 of the registration."""
    status: Status
    """Exit codes 0, 7, 3, 4, 3 and 6. `decided_with_deviations`: the rule gave a verdict, and checks of severity
    "deviation" failed; `inconclusive` has no such second form. `continue`: a look of a sequential study that settled
    nothing and is not the last; `unfinished`: planned runs have not ended, and nothing else is wrong. Neither of the
    two is logged as a decision."""
    verdict: str | None
    """The registered words; none when inadmissible or unfinished."""
    line: int | None
    """Which line of the decision list held, from 1."""
    because: str = ""
    """One sentence: why this verdict."""
    findings: tuple[Finding, ...]
    """Every hypothesis, in the order of the study. Empty while runs are missing: nothing is shown early."""
    stability: tuple[Stability, ...]
    """Every variant."""
    checks: tuple[Check, ...]
    """The audit of the evidence, passed ones too."""
    tie_breakers: dict[str, JsonValue] = {}
    """Means of tie-breaking metrics by arm, when a later line that held gives another verdict; description only."""
    evidence: str
    """sha256 over the sealed records that were read."""
    look: Look | None = None
    """The look of a sequential study; none for a fixed number of seeds."""

    def labelled(self, labels: Labels) -> Decision:
        """The same for a reader: every finding speaks of arms, claims and metrics by their labels."""
        return self.model_copy(update={"findings": tuple(finding.labelled(labels) for finding in self.findings)})

    @property
    def gives_verdict(self) -> bool:
        """Whether the rule was applied and its words count, with deviations or without; "inconclusive" is one too."""
        return self.status in WITH_VERDICT

    @property
    def deviations(self) -> tuple[Check, ...]:
        """What was done otherwise than registered and leaves the verdict: failed checks of that severity."""
        return tuple(check for check in self.checks if not check.passed and check.severity == "deviation")


WITH_VERDICT: tuple[Status, ...] = ("decided", "decided_with_deviations", "inconclusive")
"""Of `Decision.gives_verdict`, for what knows the status alone."""


def with_deviations(decision: Decision) -> str:
    """`with 2 deviations`, of a verdict that has some; else empty."""
    # Without a verdict there is nothing that a deviation could qualify.
    n = len(decision.deviations) if decision.gives_verdict else 0
    return f"with {counted(n, 'deviation')}" if n else ""


WORDS_OF: Final[dict[type[BaseModel], tuple[str, ...]]] = {
    Decision: ("title", "because"),
    Finding: ("notes",),
    Estimate: ("notes",),
    Interval: ("method",),
    Check: ("found", "required"),
}
"""Fields that hold words, by the model that has them."""


def verdict_bytes(decision: Decision) -> bytes:
    """The contents of verdict.json."""
    # Not canonical JSON but readable: the file is read by people, and its hash is of these bytes. allow_nan=False:
    # NaN is no JSON.
    return json.dumps(_facts(decision), indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _facts(value: Any) -> JsonValue:
    """A value without what its models hold in words: those can be made again from the facts."""
    if isinstance(value, BaseModel):
        left_out = WORDS_OF.get(type(value), ())
        # In the order of the fields, which is that of the file: moving a field changes the bytes of every
        # verdict.
        return {name: _facts(getattr(value, name)) for name in type(value).model_fields if name not in left_out}
    if isinstance(value, dict):
        return {str(key): _facts(member) for key, member in value.items()}
    if isinstance(value, (tuple, list)):
        return [_facts(member) for member in value]
    plain: JsonValue = value
    return plain


def shown_zone(outcome: Outcome, margin: MarginTest) -> Zone:
    """The zone that may be stated: none where the outcome is inconclusive, as with few seeds the one-sided test against
    the margin can reject where the interval against zero still holds zero."""
    return "undecided" if outcome == "inconclusive" else margin.zone
