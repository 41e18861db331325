"""Bayes factors and posteriors, where a study registers a prior: description next to its findings."""

from __future__ import annotations

from ablate.judge.bayes import CREDIBLE, describe
from ablate.reporting.blocks import Table, columns
from ablate.reporting.context import ReportContext
from prereg import text as words
from prereg.documents.analysis_plan import bayes


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
            words.compact(float(f"{one.effect:.3g}")),
            f"[{words.compact(float(f'{one.low:.3g}'))}, {words.compact(float(f'{one.high:.3g}'))}]",
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


def _factor(value: float) -> str:
    if value >= 1e4:
        return "> 10,000"
    return "< 0.0001" if value < 1e-4 else words.compact(float(f"{value:.3g}"))
