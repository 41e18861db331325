"""Description next to the findings: estimates after an early stop."""

from __future__ import annotations

from ablate.judge.description import N_SIMS, adjust
from ablate.reporting import estimates
from ablate.reporting.blocks import Table, columns
from ablate.reporting.context import ReportContext


def stopped_table(context: ReportContext) -> Table | None:
    """One row per finding of a study that stopped before its last look; none of any other study."""
    decision = context.decision
    findings = {finding.hypothesis: finding for finding in decision.findings}
    found = adjust(context.study, decision.findings, decision.look)
    if not found:
        return None
    rows = tuple(
        (
            finding.label,
            estimates.signed(one.observed, estimates.finding_decimals(finding)),
            estimates.signed(one.adjusted, estimates.finding_decimals(finding)),
            str(one.n),
            finding.unit,
        )
        for one in found
        for finding in [findings[one.hypothesis]]
    )
    return Table(
        f"Estimates less the bias of stopping at {decision.look.words if decision.look else ''}. They decide nothing.",
        columns("Hypothesis", "Mean difference:", "Adjusted:", "n:", "Unit"),
        rows,
        note=f"Whitehead (1986): the bias of the mean at the stop, by {N_SIMS:,} simulated studies through the "
        "registered rule and looks, normal differences with the observed covariance. It takes the bias off on average "
        "over all studies, stopped early or not; after an early stop an estimate still errs towards what stopped it. "
        "Intervals in the "
        "other tables hold whenever a study stops.",
    )
