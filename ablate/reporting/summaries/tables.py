"""Tables that commands print: the columns of each, declared once; those of reports are in `reporting/tables.py`.

Nothing here loads statistics or charts, since `check`, `status` and `ledger` must answer at once. The tables of designs
are among those of reports, in `ablate.reporting.tables`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ablate.reporting import estimates
from ablate.reporting.catalogue import UNKNOWN, Catalogued
from ablate.reporting.estimates import NONE
from ablate.reporting.wording import phrase
from prereg import text as words

if TYPE_CHECKING:
    from ablate.judge.interim import ClaimSoFar
    from ablate.planning import PlannedArm
    from ablate.records.comparison import MetricCompared
    from ablate.runner.trial import TrialRun
    from ablate.study_status import RunHealth, StudyHealth
    from prereg.registry.ledger_entry import Entry
    from prereg.seals.state import SealKind
    from prereg.study.presentation import Labels
    from prereg.verification import Item

# -- a study before any data -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArmPlan:
    """What an arm changes in the base."""

    label: str
    id: str
    """Where people read another name; else empty."""
    changes: str
    used_as: str


ARMS: Catalogued[ArmPlan] = Catalogued(
    "study_arms",
    {
        "Arm": lambda arm: arm.label,
        "Id": lambda arm: arm.id,
        "Changes": lambda arm: arm.changes or phrase("tables.unchanged"),
        "Used as": lambda arm: arm.used_as,
    },
    optional=frozenset({"Id"}),
)


@dataclass(frozen=True)
class ClaimPlan:
    """A claim as registered."""

    label: str
    id: str
    claim: str
    role: str
    smallest: str
    better: str


HYPOTHESES: Catalogued[ClaimPlan] = Catalogued(
    "study_hypotheses",
    {
        "Hypothesis": lambda plan: plan.label,
        "Id": lambda plan: plan.id,
        "Claim": lambda plan: plan.claim,
        "Role": lambda plan: plan.role,
        "Smallest difference that matters": lambda plan: plan.smallest,
        "Better": lambda plan: plan.better,
    },
    optional=frozenset({"Id"}),
    shape={"stacked": True},
)
REASONS: Catalogued[tuple[str, str]] = Catalogued(
    "reasons", {"Arm": lambda row: row[0], "Reason": lambda row: row[1]}, caption=False
)
RULE: Catalogued[Any] = Catalogued(
    "rule",
    {
        "Line:": lambda row: str(row.line),
        "When": lambda row: row.when,
        "Verdict": lambda row: row.verdict,
        "Decides:": lambda row: f"{row.settles:,} of {row.of:,}",
    },
    caption=False,
    note=True,
)


def _known(value: float | None, form: str = ",") -> str:
    return UNKNOWN if value is None else format(value, form)


COSTS: Catalogued[PlannedArm] = Catalogued(
    "costs",
    {
        "Arm": lambda arm: arm.arm,
        "Runs:": lambda arm: str(arm.runs),
        "Parameters:": lambda arm: _known(arm.parameters),
        "Tokens a run:": lambda arm: _known(arm.tokens),
        "FLOPs a run:": lambda arm: _known(arm.flops, ".3e"),
        "Device-hours:": lambda arm: _known(arm.device_hours, ".3g"),
    },
    optional=frozenset({"Parameters:", "Tokens a run:", "FLOPs a run:", "Device-hours:"}),
    caption=False,
)


# -- runs --------------------------------------------------------------------------------------------------------------

STUDIES: Catalogued[StudyHealth] = Catalogued(
    "status_of_studies",
    {
        "Study": lambda health: health.study,
        "Registration": lambda health: phrase("tables.registration_state", health.registered, health.unchanged),
        "Runs sealed": lambda health: f"{health.count('done') + health.count('diverged')} of {len(health.runs)}",
        "At work": lambda health: ", ".join(
            f"{health.count(state)} {state}" for state in ("running", "failed") if health.count(state)
        ),
        "Decided": lambda health: health.decided or "",
    },
    caption=False,
)
RUNS: Catalogued[RunHealth] = Catalogued(
    "status_of_runs",
    {
        "Run": lambda run: f"{run.variant}, seed {run.seed}",
        "State": lambda run: run.state,
        "Step:": lambda run: f"{run.step:,} of {run.steps:,}",
        "Training loss": lambda run: phrase("tables.falling", run.falling),
        "Attempts:": lambda run: str(run.attempts),
    },
    caption=False,
)


def _spread(sd: float | None) -> str:
    return NONE if sd is None else f"{sd:.2g}"


def _difference(claim: ClaimSoFar) -> str:
    if claim.difference is None:
        return claim.note or phrase("tables.no_pair_yet")
    unit = words.after_number(claim.unit)
    return " ".join(filter(None, [estimates.signed(claim.difference, 4), unit, f"({_spread(claim.sd)}, {claim.n})"]))


def _by_arm(claim: ClaimSoFar, labels: Labels) -> str:
    means = (
        f"{labels.arm(arm.arm)} {words.significant(arm.mean, 4)} ({_spread(arm.sd)}, {arm.n})" for arm in claim.arms
    )
    return "; ".join(means) or phrase("tables.no_run_yet")


EARLY_LOOK: Catalogued[tuple[ClaimSoFar, Labels]] = Catalogued(
    "early_look",
    {
        "Claim": lambda row: row[1].in_claim(row[0].claim),
        "By arm: mean (SD, n)": lambda row: _by_arm(*row),
        "Difference (SD, n)": lambda row: _difference(row[0]),
    },
    caption=False,
)
COMPARED: Catalogued[MetricCompared] = Catalogued(
    "compared",
    {
        "Metric": lambda metric: metric.metric,
        "Differs at": lambda metric: phrase("tables.differs_at", metric),
        "First at step:": lambda metric: "" if metric.first_step is None else f"{metric.first_step:,}",
        "Largest absolute:": lambda metric: (
            NONE if metric.largest_absolute is None else f"{metric.largest_absolute:.3g}"
        ),
        "Largest relative:": lambda metric: f"{metric.largest_relative:.3g}",
    },
    caption=False,
    note=True,
)
TRIAL: Catalogued[TrialRun] = Catalogued(
    "trial",
    {
        "Run": lambda run: f"{run.variant}, seed {run.seed}",
        "Ended": lambda run: run.status,
        "Steps:": lambda run: f"{run.steps:,}",
        "Seconds:": lambda run: f"{run.seconds:.1f}",
        "MiB:": lambda run: NONE if run.peak_memory_bytes is None else f"{run.peak_memory_bytes / 2**20:,.0f}",
        "Metrics:": lambda run: str(len(run.metrics)),
    },
    caption=False,
    note=True,
)
CORPORA: Catalogued[tuple[str, int, str, object, str]] = Catalogued(
    "corpora",
    {
        "Corpus": lambda row: row[0],
        "Bytes:": lambda row: f"{row[1]:,}",
        "sha256": lambda row: words.short(row[2]),
        "Where": lambda row: str(row[3]),
        "Licence": lambda row: row[4],
    },
    caption=False,
)


# -- the ledger, and what verifies it ----------------------------------------------------------------------------------

LEDGER: Catalogued[tuple[Entry, str]] = Catalogued(
    "ledger",
    {
        "#:": lambda row: str(row[0].index),
        "Date": lambda row: words.moment(row[0].at)[:10],
        "Study": lambda row: row[0].study,
        "Event": lambda row: row[0].event,
        "What": lambda row: row[1],
        "Hash": lambda row: row[0].sha256[:8],
    },
    caption=False,
)
_STATES = {"ok": "ok", "changed": "CHANGED", "judged differently": "DIFFERS", "not checked": "not checked"}
ITEMS: Catalogued[Item] = Catalogued(
    "items",
    {
        "State": lambda item: _STATES[item.state],
        "Item": lambda item: f"{item.study}: {item.what}",
        "Found": lambda item: words.counted(len(item.faults), "fault") if item.faults else item.unchecked or item.note,
    },
    caption=False,
    marked=lambda item: item.state in ("changed", "judged differently"),
)
SEALS: Catalogued[SealKind] = Catalogued(
    "seals",
    {
        "Seal": lambda kind: kind.name,
        "Proves": lambda kind: kind.proves,
        "Does not prove": lambda kind: kind.leaves_open,
    },
    caption=False,
    note=True,
)

# -- campaigns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProposalRow:
    """A proposal of a campaign and its end."""

    number: int
    change: str
    end: str
    seeds: int | None
    gain: float | None
    """Estimated on the runs that decided it."""
    why: str


PROPOSALS: Catalogued[ProposalRow] = Catalogued(
    "proposals",
    {
        "Proposal": lambda row: str(row.number),
        "Change": lambda row: row.change,
        "End": lambda row: row.end,
        "Seeds:": lambda row: "" if row.seeds is None else str(row.seeds),
        "Estimated gain:": lambda row: "" if row.gain is None else words.significant(row.gain),
        "Why": lambda row: row.why,
    },
    note=True,
)
