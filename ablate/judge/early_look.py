"""What an unfinished study shows to someone who looks at it early: description of the runs that have ended.

No test, no interval, no p: what a look without a registered level could say about chance would be wrong. The
caller has put the look into the ledger first (`ablate.api.peeking`).
"""

from __future__ import annotations

from ablate.judge.findings import Values, arm_summaries, contrast
from ablate.judge.readings import final_values
from ablate.judge.verdict import ArmSummary
from ablate.records.evidence import Evidence
from prereg.frozen import FrozenModel, GrownModel
from prereg.registry.registration import Registration
from prereg.study.spec import Study


class ClaimSoFar(FrozenModel):
    """One claim's values among the runs that have ended."""

    hypothesis: str
    """Its name."""
    claim: str
    """The claim, as registered."""
    reading: str
    """What is read, and where on the curve."""
    unit: str
    """Unit of the difference."""
    arms: tuple[ArmSummary, ...]
    """The claim's arms, each over the seeds that have ended, on the metric's own scale."""
    n: int
    """Complete pairs that have a number on both sides; without pairs, runs of all arms."""
    difference: float | None
    """Mean of left minus right over them, or of arm means where there are no pairs; none without a pair."""
    sd: float | None
    """Their standard deviation; none below two pairs."""
    note: str = ""
    """Why there is no difference."""


class EarlyLook(GrownModel):
    """What an unfinished study holds so far."""

    later_fields = ("paired",)

    study: str
    """The study's id."""
    registration: str
    """sha256 of the registration."""
    ended: int
    """Planned runs that have ended."""
    planned: int
    """Planned runs."""
    diverged: tuple[str, ...]
    """Runs that diverged."""
    claims: tuple[ClaimSoFar, ...]
    """Every hypothesis, in the order of the study."""
    paired: bool = True
    """Whether differences are of runs of one seed; not written where they are."""


def early_look(registration: Registration, evidence: Evidence) -> EarlyLook:
    """Describe the runs that have ended."""
    study = registration.study
    values = final_values(study, evidence)
    return EarlyLook(
        study=study.study,
        registration=registration.sha256,
        ended=len(evidence.planned) - len(evidence.missing),
        planned=len(evidence.planned),
        diverged=tuple(f"{run.variant}, seed {run.seed}" for run in evidence.runs if run.status == "diverged"),
        claims=tuple(_so_far(study, name, values) for name in study.hypotheses),
        paired=study.paired,
    )


def _so_far(study: Study, name: str, values: Values) -> ClaimSoFar:
    claim = study.claims[name]
    # One pair is too few to test and enough to be seen.
    pairs = contrast(study, name, values, fewest=1)
    differences = pairs.differences[pairs.sized]
    n, difference = int(differences.size), float(differences.mean()) if differences.size else None
    if pairs.samples:
        n = sum(one.values.size for one in pairs.samples)
        difference = float(sum(one.weight * one.values.mean() for one in pairs.samples))
    return ClaimSoFar(
        hypothesis=name,
        claim=study.hypotheses[name].claim,
        reading=pairs.reading,
        unit=study.unit(name),
        arms=arm_summaries(claim, pairs.values, study.seeds),
        n=n,
        difference=difference,
        sd=float(differences.std(ddof=1)) if differences.size > 1 else None,
        note=pairs.refused or "",
    )
