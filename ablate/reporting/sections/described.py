"""Description next to the findings: Bayes factors under a registered prior, and estimates after an early stop."""

from __future__ import annotations

from ablate.judge.description import CREDIBLE, N_SIMS, adjust, describe
from ablate.reporting import estimates
from ablate.reporting.blocks import Table, columns
from ablate.reporting.context import ReportContext
from prereg import text as words
from prereg.documents.procedures import bayes


def bayes_table(context: ReportContext) -> Table | None:
    """One row per finding with pairs; none where no prior is registered."""
    prior = context.study.analysis.bayes
    if prior is None:
        return None
    label = {finding.hypothesis: finding.label for finding in context.decision.findings}
    rows = tuple(
        (
            label[one.hypothesis],
            _factor(one.bayes_factor),
            _factor(1.0 / one.bayes_factor),
            estimates.significant(one.effect),
            f"[{estimates.significant(one.low)}, {estimates.significant(one.high)}]",
            str(one.n),
        )
        for one in describe(context.decision.findings, prior.scale)
    )
    if not rows:
        return None
    interval = f"{words.level(CREDIBLE)} credible interval:"
    return Table(
        "Bayes factors and posteriors. They decide nothing.",
        columns(
            "Hypothesis", "An effect against none:", "None against an effect:", "Posterior median:", interval, "n:"
        ),
        rows,
        note=f"{bayes(context.study)} Median and interval are of the mean difference in SDs of the differences.",
    )


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


def _factor(value: float) -> str:
    if value >= 1e4:
        return "> 10,000"
    return "< 0.0001" if value < 1e-4 else estimates.significant(value)
