"""Tables of a report: the columns of each, declared once; those of commands are in `summaries/tables.py`.

Rows are views of findings or the small records below; what a kind of table is, `catalogue.py` says. The columns of the
CSV files, which are numbers, are in `exports/files.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ablate.judge.campaign.design import CampaignScenario, Rate
from ablate.judge.design.reach import HypothesisDesign
from ablate.judge.design.simulate import SimulatedScenario
from ablate.judge.overview import StudyOverview
from ablate.judge.verdict import ArmSummary, Check, Finding, Stability
from ablate.judge.wording import share_of_bound
from ablate.records.run_record import RunRecord
from ablate.reporting import estimates
from ablate.reporting.catalogue import Catalogued, Cell, picked
from ablate.reporting.estimates import NONE
from ablate.reporting.view import FindingView, n_of, test_of
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.study.claim import parse_claim

_FINDING: Mapping[str, Cell[FindingView]] = {
    "Hypothesis": lambda view: view.label,
    "Claim": lambda view: view.finding.claim_shown,
    "Role": lambda view: view.role,
    "Outcome": lambda view: view.outcome,
    "Difference:": lambda view: view.difference,
    "Interval:": lambda view: view.interval,
    "p:": lambda view: view.p,
    "n:": lambda view: view.n,
    "Test": lambda view: view.test,
    "Margin:": lambda view: view.margin,
}
"""Every column of a table in which a finding is a row: a column added here can be named by all of them."""


FINDINGS = Catalogued(
    "findings",
    picked(_FINDING, "Hypothesis", "Outcome", "Difference:", "Interval:", "p:", "n:"),
    note=True,
    shape={"stacked": True},
)


@dataclass(frozen=True)
class EffectRow:
    """A hypothesis of a study among those of others; without a view where its study shows no number."""

    study: str
    hypothesis: str
    claim: str
    outcome: str
    view: FindingView | None


def _where_shown(heading: str) -> Cell[EffectRow]:
    return lambda row: NONE if row.view is None else _FINDING[heading](row.view)


EFFECTS_BY_STUDY = Catalogued[EffectRow](
    "studies",
    {
        "Study": lambda row: row.study,
        "Hypothesis": lambda row: row.hypothesis,
        "Claim": lambda row: row.claim,
        "Outcome": lambda row: row.outcome,
    }
    | {heading: _where_shown(heading) for heading in ("Difference:", "Interval:", "p:", "n:", "Test")},
    note=True,
    shape={"grouped": True},
)
OF_COMMITS = Catalogued(
    "of_commits",
    picked(_FINDING, "Claim", "Outcome", "Difference:", "Interval:", "Margin:", "n:"),
    caption=False,
    shape={"stacked": True},
)
PAPER = Catalogued(
    "paper",
    picked(_FINDING, "Hypothesis", "Outcome")
    | {"Difference:": lambda view: view.amount}
    | picked(_FINDING, "Interval:", "p:", "n:", "Margin:"),
    note=True,
)
ALSO = Catalogued[tuple[FindingView, Any]](
    "also",
    {
        "Hypothesis": lambda row: row[0].label,
        "Test": lambda row: test_of(row[1], paired=row[0].paired),
        "Difference:": lambda row: row[0].signed(row[1].difference),
        "Interval:": lambda row: estimates.interval(row[1].interval, row[0].decimals),
        "Two-sided p, alone:": lambda row: row[0].p_cell(row[1].p),
        "Smallest p possible:": lambda row: row[0].p_cell(row[1].p_floor),
        "n:": lambda row: n_of(row[1], row[1].n),
    },
    note=True,
    shape={"stacked": True},
)
GATE = Catalogued[FindingView](
    "gate",
    {
        "Hypothesis": lambda view: view.label,
        "Share at first:": lambda view: words.significant(_gate(view.finding).weight, 6),
        "Tested at level:": lambda view: words.significant(_gate(view.finding).level, 6),
        "p, alone:": lambda view: view.p_cell(view.finding.p_support),
        "p, adjusted:": lambda view: view.p_cell(view.finding.p_support_adjusted),
        "Passed": lambda view: phrase("tables.passed", view.finding.p_support, _gate(view.finding).level),
    },
    note=True,
)
PAIRING = Catalogued[FindingView](
    "pairing",
    {
        "Hypothesis": lambda view: view.label,
        "Shared seeds:": lambda view: str(_shared(view).n),
        "Standard error without pairs:": lambda view: words.number(_shared(view).se_unpaired, view.decimals + 1),
        "With pairs:": lambda view: words.number(_shared(view).se_paired, view.decimals + 1),
        "Correlation:": lambda view: (
            NONE if _shared(view).correlation is None else words.number(_shared(view).correlation, 2)
        ),
    },
    note=True,
)


def _gate(finding: Finding) -> Any:
    assert finding.gate is not None, finding.hypothesis
    return finding.gate


def _shared(view: FindingView) -> Any:
    assert view.finding.shared is not None, view.name
    return view.finding.shared


# -- evidence ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeedRow:
    """One pair of a claim; without pairs, one run."""

    view: FindingView
    seed: str
    left: float
    right: float | None = None
    difference: float | None = None


def seed_rows(views: Iterable[FindingView]) -> Iterator[SeedRow]:
    """The evidence of each claim: its pairs seed by seed; without pairs, the runs of its arms."""
    for view in views:
        for pair in view.finding.pairs:
            yield SeedRow(view, str(pair.seed), pair.left, pair.right, pair.difference)
        for sample in view.finding.samples:
            for seed, value in zip(sample.seeds, sample.values, strict=True):
                # Without pairs the seed alone does not name a run.
                yield SeedRow(view, f"{seed} ({view.labels.arm(sample.arm)})", value)


SEEDS = Catalogued[SeedRow](
    "seeds",
    {
        "Hypothesis": lambda row: row.view.label,
        "Seed": lambda row: row.seed,
        "Left side:": lambda row: row.view.number(row.left),
        "Right side:": lambda row: NONE if row.right is None else row.view.number(row.right),
        "Difference:": lambda row: NONE if row.difference is None else row.view.signed(row.difference),
    },
    shape={"grouped": True},
)


@dataclass(frozen=True)
class ValueRow:
    """What an arm recorded of a metric."""

    metric: str
    arm: str
    summary: ArmSummary
    decimals: int
    unit: str = ""


_VALUE: Mapping[str, Cell[ValueRow]] = {
    "Metric": lambda row: row.metric,
    "Arm": lambda row: row.arm,
    "Mean:": lambda row: words.number(row.summary.mean, row.decimals),
    "SD:": lambda row: NONE if row.summary.sd is None else words.number(row.summary.sd, row.decimals),
    "n:": lambda row: str(row.summary.n),
}
VALUES = Catalogued("values", {**_VALUE, "Unit": lambda row: row.unit or NONE}, shape={"grouped": True})
CLAIMED_VALUES = Catalogued("claimed_values", _VALUE, shape={"grouped": True})


@dataclass(frozen=True)
class TieBreakerRow:
    """The mean of a tie-breaking metric in an arm."""

    metric: str
    arm: str
    mean: object
    unit: str


TIE_BREAKERS = Catalogued[TieBreakerRow](
    "tie_breakers",
    {
        "Metric": lambda row: row.metric,
        "Arm": lambda row: row.arm,
        "Mean:": lambda row: words.compact(float(row.mean)) if isinstance(row.mean, int | float) else str(row.mean),
        "Unit": lambda row: row.unit,
    },
)


@dataclass(frozen=True)
class TaskRow:
    """A task, or the mean over tasks, of a claim."""

    task: str
    sides: tuple[str, str]
    chance: float | None
    difference: str
    interval: str
    outcome: str
    n: int
    n_items: int


TASKS = Catalogued[TaskRow](
    "tasks",
    {
        "Task": lambda row: row.task,
        "Left side:": lambda row: row.sides[0],
        "Right side:": lambda row: row.sides[1],
        "Chance:": lambda row: NONE if row.chance is None else words.number(row.chance, 2),
        "Difference:": lambda row: row.difference,
        "Interval:": lambda row: row.interval,
        "Outcome": lambda row: row.outcome,
        "n:": lambda row: str(row.n),
        "Items:": lambda row: f"{row.n_items:,}",
    },
    note=True,
)


# -- component ablations -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Mean of a cost over the runs of some arms, and of the arms that they are compared with."""

    here: float | None
    against: float | None = None
    alone: bool = False
    """Whether the difference alone is shown."""

    def shown(self, least: int) -> str:
        """The cost and in brackets the difference, or the difference alone; a dash where it is not known."""
        if self.here is None:
            return NONE
        # Of 100 seconds a decimal is noise; parameters are whole numbers (`least` 0).
        decimals = least if self.here < 100 else 0
        text = words.number(self.here, decimals)
        if self.against is None:
            return text
        difference = estimates.signed(self.here - self.against, decimals)
        return difference if self.alone else f"{text} ({difference})"


@dataclass(frozen=True)
class PartRow:
    """A part of a component ablation, two parts together, or an arm."""

    part: str
    arm: str
    reason: str
    n: int
    view: FindingView | None
    means: tuple[str, ...]
    """Of the arm; with the part and without it; with neither, one and both of two."""
    parameters: Cost = Cost(None)
    seconds: Cost = Cost(None)


_PART: Mapping[str, Cell[PartRow]] = {
    "Part": lambda row: row.part,
    "Parts": lambda row: row.part,
    "Arm": lambda row: row.arm,
    "Reason": lambda row: row.reason or NONE,
    "n:": lambda row: str(row.n),
    "Mean:": lambda row: row.means[0],
    "With it:": lambda row: row.means[0],
    "Without it:": lambda row: row.means[1],
    "Neither:": lambda row: row.means[0],
    "First alone:": lambda row: row.means[1],
    "Second alone:": lambda row: row.means[2],
    "Both:": lambda row: row.means[3],
    "Difference:": lambda row: NONE if row.view is None else row.view.amount,
    "Interaction:": lambda row: NONE if row.view is None else row.view.amount,
    "Interval:": lambda row: NONE if row.view is None else row.view.interval,
    "Outcome": lambda row: NONE if row.view is None else row.view.outcome,
    "Parameters:": lambda row: row.parameters.shown(0),
    "Seconds per run:": lambda row: row.seconds.shown(1),
}
# What tables of parts, main effects and interactions have in common, so that a column is added to all of them.
_FOUND = ("Difference:", "Interval:", "Outcome", "Parameters:", "Seconds per run:")
_WHERE_KNOWN = frozenset({"Reason", "Parameters:", "Seconds per run:"})
PARTS = Catalogued(
    "parts",
    picked(_PART, "Part", "Arm", "Reason", "n:", "Mean:", *_FOUND),
    optional=_WHERE_KNOWN,
    note=True,
    shape={"stacked": True},
)
MAIN_EFFECTS = Catalogued(
    "main_effects",
    picked(_PART, "Part", "Reason", "n:", "With it:", "Without it:", *_FOUND),
    optional=_WHERE_KNOWN,
    note=True,
    shape={"stacked": True},
)
INTERACTIONS = Catalogued(
    "interactions",
    picked(
        _PART,
        *("Parts", "Neither:", "First alone:", "Second alone:", "Both:", "n:", "Interaction:", "Interval:", "Outcome"),
    ),
    note=True,
)
PART_ARMS = Catalogued(
    "part_arms",
    picked(_PART, "Arm", "Reason", "n:", "Mean:", "Parameters:", "Seconds per run:"),
    optional=_WHERE_KNOWN,
    shape={"folded": True},
)


# -- pilots ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PilotRow:
    """A setting that the pilot tried in an arm."""

    arm: str
    setting: str
    mean: float | None
    sd: float | None
    n: int
    of: int
    chosen: bool
    decimals: int


PILOT = Catalogued[PilotRow](
    "pilot",
    {
        "Arm": lambda row: row.arm,
        "Setting": lambda row: row.setting,
        "Mean:": lambda row: NONE if row.mean is None else words.number(row.mean, row.decimals),
        "SD:": lambda row: NONE if row.sd is None else words.number(row.sd, row.decimals),
        "n:": lambda row: f"{row.n} of {row.of}",
        "": lambda row: "chosen" if row.chosen else "",
    },
    marked=lambda row: row.chosen,
    shape={"grouped": True},
)
UNTUNED = Catalogued[tuple[str, Mapping[str, str]]]("untuned", {"Setting of every arm": lambda row: row[0]})


# -- what was promised -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HypothesisPlan:
    """What a design can find of a hypothesis; of a family per task, of the task with the least power."""

    design: HypothesisDesign
    label: str

    @property
    def endings(self) -> str:
        """`any outcome`; `supported or inconclusive`."""
        # Inconclusive is always possible.
        ends = ["supported"] * self.design.can_be_supported + ["refuted"] * self.design.can_be_refuted
        return "any outcome" if len(ends) == 2 else " or ".join([*ends, "inconclusive"])

    @property
    def detectable(self) -> str:
        """The difference found with power 80% after correction, on the claim's scale where that is known."""
        if self.design.detectable is not None:
            return words.significant(self.design.detectable)
        # Nothing is known of the spread: a claim by at least D needs that many SDs beyond D.
        by = parse_claim(self.design.claim, baseline="").by
        beyond = "" if by is None else f"{words.compact(by)} + "
        return f"{beyond}{words.number(self.design.detectable_sd_corrected, 2)} SD of differences"


_PLANNED: Mapping[str, Cell[HypothesisPlan]] = {
    "Hypothesis": lambda plan: plan.label,
    "Can end as": lambda plan: plan.endings,
    "Detectable:": lambda plan: plan.detectable,
    "Power:": lambda plan: estimates.power_at(plan.design.power, plan.design.effect),
    "Seeds for power 80%:": lambda plan: NONE if plan.design.seeds_80 is None else str(plan.design.seeds_80),
    "n:": lambda plan: str(plan.design.n),
}
DESIGN = Catalogued(
    "design", picked(_PLANNED, "Hypothesis", "Detectable:", "Power:", "Seeds for power 80%:", "n:"), note=True
)
DESIGN_TO_COME = Catalogued(
    "design",
    picked(_PLANNED, "Hypothesis", "Can end as", "Detectable:", "Power:", "Seeds for power 80%:"),
    caption=False,
    note=True,
)
DECISION = Catalogued[tuple[int, Any, bool]](
    "decision",
    {
        "Line": lambda row: str(row[0]),
        "When": lambda row: row[1].when or phrase("tables.otherwise"),
        "Verdict": lambda row: row[1].verdict,
        "Held": lambda row: phrase("tables.this_line") if row[2] else "",
    },
    note=True,
    marked=lambda row: row[2],
    shape={"stacked": True},
)


# -- checks and runs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FailedCheck:
    """A check that did not hold, and what that means."""

    check: Check
    consequence: str
    why: str


CHECKS_FAILED = Catalogued[FailedCheck](
    "failed",
    {
        "Check": lambda row: row.check.name,
        "Found": lambda row: row.check.found,
        "Required": lambda row: row.check.required or NONE,
        "Consequence": lambda row: row.consequence,
        "Why": lambda row: row.why or NONE,
    },
    note=True,
    marked=lambda row: row.check.severity != "note",
    shape={"stacked": True},
)


@dataclass(frozen=True)
class ArmRow:
    """The size of an arm, and what its runs share with the baseline's of the same seed."""

    arm: str
    baseline: bool
    parameters: int
    gap: int | None
    """More parameters than the baseline; none of the baseline itself."""
    of_baseline: int
    shared: tuple[str, ...] = ()
    """Initial tensors, batches, dropout keys, tokens, and what is in one arm only; empty where nothing was compared."""


def _against(row: ArmRow) -> str:
    if row.gap is None:
        return NONE
    # A gap of parameters confounds a claim about an arm, so it is shown in percent too.
    share = 100 * abs(row.gap) / row.of_baseline if row.of_baseline else 0.0
    percent = f" ({words.number(share, estimates.decimals_for(share))}%)" if share else ""
    return f"{'+' if row.gap > 0 else words.MINUS if row.gap < 0 else ''}{abs(row.gap):,}{percent}"


def _shared_at(place: int) -> Cell[ArmRow]:
    return lambda row: row.shared[place] if row.shared else NONE


ARMS = Catalogued[ArmRow](
    "arms",
    {
        "Arm": lambda row: f"{row.arm} (baseline)" if row.baseline else row.arm,
        "Parameters:": lambda row: f"{row.parameters:,}",
        "Against the baseline:": _against,
        "Initial tensors equal:": _shared_at(0),
        "Batches equal:": _shared_at(1),
        "Dropout keys equal:": _shared_at(2),
        "Tokens equal:": _shared_at(3),
        "In one arm only": _shared_at(4),
    },
    optional=frozenset(
        {"Initial tensors equal:", "Batches equal:", "Dropout keys equal:", "Tokens equal:", "In one arm only"}
    ),
    note=True,
    shape={"stacked": True},
)


@dataclass(frozen=True)
class SharingRow:
    """What the runs of an arm of a trainer of one's own share with the baseline's of the same seed."""

    arm: str
    code: str
    """How much of the code differs; empty where all arms have one code."""
    equal: tuple[str, ...]
    """Stated hashes that are equal, `5 of 5`: of initial values, of batches, of other things; empty where both state
    none."""
    alone: str
    """What one of the two alone states."""


SHARING = Catalogued[SharingRow](
    "sharing",
    {
        "Arm": lambda row: row.arm,
        "Code": lambda row: row.code or phrase("tables.one_code"),
        "Initial values equal:": lambda row: row.equal[0] or phrase("tables.not_stated"),
        "Batches equal:": lambda row: row.equal[1] or phrase("tables.not_stated"),
        "Other hashes equal:": lambda row: row.equal[2] or NONE,
        "In one arm only": lambda row: row.alone or NONE,
    },
    optional=frozenset({"Other hashes equal:", "In one arm only"}),
    note=True,
    shape={"stacked": True},
)


@dataclass(frozen=True)
class GainRow:
    """What the pairs of a claim were worth."""

    view: FindingView
    correlation: float
    between: tuple[float, float]
    """95% interval of the correlation."""
    unpaired: float
    """Runs of each arm without pairs that would measure the difference as exactly."""
    unpaired_between: tuple[float, float]
    """The same at the ends of the interval."""


GAIN = Catalogued[GainRow](
    "gain",
    {
        "Hypothesis": lambda row: row.view.label,
        "Pairs:": lambda row: str(row.view.finding.n),
        "Correlation:": lambda row: words.number(row.correlation, 2),
        "95%:": lambda row: f"{words.number(row.between[0], 2)} to {words.number(row.between[1], 2)}",
        "As good without pairs:": lambda row: phrase(
            "tables.unpaired_runs", *map(round, (row.unpaired, *row.unpaired_between))
        ),
    },
    note=True,
)


def _spikes(arm: Stability) -> Iterator[str]:
    for seed, steps in sorted(arm.spikes.items()):
        if steps:
            # Six steps show whether spikes cluster; a run in trouble has hundreds.
            more = f" and {len(steps) - 6} more" if len(steps) > 6 else ""
            yield f"seed {seed}: step {', '.join(map(str, steps[:6]))}{more}"


def _not_reached(arm: Stability) -> Iterator[str]:
    for seed, best in sorted(arm.not_reached.items()):
        values = ("no value" if value is None else words.compact(float(f"{value:.5g}")) for value in best.values())
        yield f"seed {seed}: " + ", ".join(f"{metric} {value}" for metric, value in zip(best, values, strict=True))


STABILITY = Catalogued[tuple[str, Stability]](
    "stability",
    {
        "Arm": lambda row: row[0],
        "Stability": lambda row: "stable" if row[1].stable else "unstable",
        "Runs:": lambda row: str(row[1].runs),
        "Diverged": lambda row: words.listed(f"seed {seed}" for seed in row[1].diverged) or NONE,
        "Loss spikes": lambda row: "; ".join(_spikes(row[1])) or NONE,
        "Level not reached": lambda row: "; ".join(_not_reached(row[1])) or NONE,
        "Rate, up to:": lambda row: share_of_bound(row[1]),
    },
    optional=frozenset({"Diverged", "Loss spikes", "Level not reached"}),
    note=True,
    marked=lambda row: not row[1].stable,
)
ATTEMPTS = Catalogued[tuple[str, RunRecord]](
    "attempts",
    {
        "Arm": lambda row: row[0],
        "Seed:": lambda row: str(row[1].seed),
        "Status": lambda row: row[1].status,
        "Attempts:": lambda row: str(row[1].attempts),
        "Resumed from step": lambda row: words.listed(map(str, row[1].resumed_from)) or NONE,
        "Error": lambda row: row[1].error or NONE,
    },
)


@dataclass(frozen=True)
class AmendedField:
    """A field that an amendment changed or touched."""

    when: str
    evidence: str
    field: str
    registered: str
    now: str
    touches: str
    """What it makes exploratory; empty where it makes nothing so."""


AMENDMENTS = Catalogued[AmendedField](
    "amendments",
    {
        "When": lambda row: row.when,
        "Evidence by then": lambda row: row.evidence,
        "Field": lambda row: row.field,
        "Registered": lambda row: row.registered,
        "Now": lambda row: row.now,
        "Makes exploratory": lambda row: row.touches or phrase("tables.nothing"),
    },
    note=True,
    marked=lambda row: bool(row.touches),
)


# -- an index of studies -----------------------------------------------------------------------------------------------


def _day(at: str | None) -> str:
    return NONE if at is None else words.moment(at)[:10]


def _time_of_runs(study: StudyOverview) -> str:
    if not study.n_timed:
        return NONE
    # Records of some runs may lie on another machine: a sum without them says so.
    part = "" if study.n_timed == study.n_sealed else f" ({study.n_timed} of {study.n_sealed} runs)"
    return words.duration(study.wall_s) + part


INDEX = Catalogued[StudyOverview](
    "index",
    {
        "Study": lambda one: one.study,
        "Question": lambda one: NONE if one.registration is None else one.registration.worded.title,
        "Status": lambda one: one.state_in_words,
        "Verdict": lambda one: one.verdict or NONE,
        "Registered": lambda one: _day(one.registered_at),
        "Decided": lambda one: _day(one.decided_at),
        "Runs:": lambda one: f"{one.n_sealed} of {one.n_planned}" if one.n_planned else NONE,
        "Time of runs:": _time_of_runs,
    },
    note=True,
)


# -- a simulated design ------------------------------------------------------------------------------------------------


def _false(scenario: SimulatedScenario) -> str:
    """The largest chance of a false finding; of what no simulated study showed, an upper bound in place of a zero."""
    # The worst of all families, not their mean.
    wrong = max((*scenario.false_supported, *scenario.false_refuted), key=lambda chance: chance.share, default=None)
    if wrong is None:
        return NONE
    return words.share(wrong.share) if wrong.at_most is None else estimates.bound_in_words(wrong.at_most)


def _ends(scenario: SimulatedScenario) -> str:
    ends = (*scenario.verdicts, *((scenario.inadmissible,) if scenario.inadmissible else ()))
    return ", ".join(f"{ending.of} {words.share(ending.share)}" for ending in ends if ending.share > 0.0)


SCENARIOS = Catalogued[SimulatedScenario](
    "scenarios",
    {"If the truth is": lambda scenario: scenario.name, "The study ends as": _ends, "False:": _false},
    caption=False,
    note=True,
)


# -- a simulated campaign ----------------------------------------------------------------------------------------------


def _of_campaigns(rate: Rate) -> str:
    """A rate over campaigns with its simulation error, in percent."""
    return f"{words.share(rate.mean)} ± {words.number(100 * rate.se, 1)}"


CAMPAIGNS = Catalogued[CampaignScenario](
    "campaigns",
    {
        "Useful": lambda scenario: words.share(scenario.useful),
        "Any false:": lambda scenario: _of_campaigns(scenario.any_false_keep),
        "FDR:": lambda scenario: _of_campaigns(scenario.false_discovery_rate),
        "Kept, useful:": lambda scenario: phrase(
            "tables.part", words.number(scenario.true_keeps.mean, 1), words.number(scenario.useful_proposals, 1)
        ),
        "True gain:": lambda scenario: words.significant(scenario.true_gain.mean),
        "Estimated:": lambda scenario: words.significant(scenario.estimated_gain),
        "Runs:": lambda scenario: words.number(scenario.runs.mean, 0),
    },
    caption=False,
    note=True,
)
