"""The figures of every seed: pairs as lines between two sides, and single numbers next to what they are compared with.

Takes a report's context and gives figures; claims that compare two sides of a seed are drawn apart from those in which
each seed gives one number, which has no partner to draw a line to.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt

from ablate.judge.verdict import Finding
from ablate.reporting import charts, estimates
from ablate.reporting.blocks import Figure, Panel
from ablate.reporting.context import ReportContext
from ablate.reporting.description import better_in
from prereg import text as words


def seed_figures(context: ReportContext) -> tuple[Figure, ...]:
    """One figure of pairs and one of single numbers, as far as the findings hold any."""
    paired: list[Panel] = []
    single: list[Panel] = []
    for finding in context.decision.findings:
        # Dozens of claims per task would be dozens of panels; their pairs are in the table of pairs.
        if finding.pairs and not context.study.hypotheses[finding.hypothesis].family:
            of_pairs = context.study.claims[finding.hypothesis].is_paired
            (paired if of_pairs else single).append((_paired if of_pairs else _single)(context, finding))
    figures = []
    if paired:
        caption = (
            "Every pair, seed by seed: one line for each seed, from the claim's right side to its left side. Solid "
            "blue lines fall, dashed orange lines rise. No summary is drawn."
        )
        figures.append(Figure("Pairs", caption, tuple(paired)))
    if single:
        caption = (
            "Every seed's value, and what the claim compares it with as a dashed line. Blue circles lie below it, "
            "orange triangles do not. No summary is drawn."
        )
        figures.append(Figure("Seeds", caption, tuple(single)))
    return tuple(figures)


def _paired(context: ReportContext, finding: Finding) -> Panel:
    claim = context.study.claims[finding.hypothesis]
    left, right = (side[1:-1] if side.startswith("(") else side for side in (claim.left_side, claim.right_side))
    way, count = better_in(finding.better, (pair.difference for pair in finding.pairs))
    return Panel(
        f"{finding.label}: {finding.claim_shown}, n = {finding.n}; left side {way} in {count} of {len(finding.pairs)}",
        partial(charts.paired, finding, left, right),
        f"Paired plot of {finding.metric_shown}, {right} against {left}: {way} on the left side of the claim in "
        f"{count} of {len(finding.pairs)} seeds.",
    )


def _single(context: ReportContext, finding: Finding) -> Panel:
    left = context.study.claims[finding.hypothesis].left_side
    way, count = better_in(finding.better, (pair.difference for pair in finding.pairs))
    return Panel(
        f"{finding.label}: {finding.claim_shown}, n = {finding.n}; {way} in {count} of {len(finding.pairs)}",
        partial(by_seed, finding),
        f"{finding.metric_shown} of {left} by seed: {way} than {words.compact(finding.pairs[0].right)} in {count} of "
        f"{len(finding.pairs)} seeds.",
    )


def by_seed(finding: Finding) -> alt.LayerChart:
    """One point for each seed, and a line at what all are compared with."""
    rows: list[dict[str, Any]] = [
        {"seed": str(pair.seed), "value": pair.left, "way": "below" if pair.difference < 0 else "not below"}
        for pair in finding.pairs
    ]
    reference = finding.pairs[0].right
    low, high = charts.padded([reference, *(pair.left for pair in finding.pairs)])
    title = estimates.with_unit(finding.metric_shown, finding.unit)
    y = charts.quantity(alt.Y, "value", (low, high), zero=False, title=title, tickCount=5, titleLimit=220)
    x = alt.X("seed:N", sort=None, axis=alt.Axis(title="seed", labelAngle=0))
    point = alt.Chart(charts.inline(rows)).mark_point(filled=True, size=60, opacity=1)
    line = alt.Chart(charts.inline([{"value": reference}]))
    return charts.dressed(
        alt.layer(
            line.mark_rule(color=charts.INK, strokeDash=[5, 3]).encode(y=y),
            point.encode(
                x=x,
                y=y,
                color=_by_way(alt.Color, [charts.BLUE, charts.VERMILLION]),
                shape=_by_way(alt.Shape, ["circle", "triangle-up"]),
            ),
        ),
        charts.PANEL_WIDTH,
        220,
        fit=True,
    )


def _by_way(channel: Any, kinds: Sequence[str]) -> Any:
    return channel("way:N", legend=None, scale=alt.Scale(domain=["below", "not below"], range=list(kinds)))
