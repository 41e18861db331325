"""The forest plot: differences of one metric on one scale, in the dress of `ablate.reporting.charts`.

No statistics: every number arrives computed. Drawn twice, for a broad page or paper and for a phone.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import altair as alt

from ablate.judge.verdict import Finding, Outcome
from ablate.reporting import estimates
from ablate.reporting.charts import BLUE, GREY, INK, PALE, PANEL_WIDTH, SIGNED, VERMILLION, dressed, inline, padded

OUTCOME_COLOUR: dict[Outcome, str] = {"supported": BLUE, "refuted": VERMILLION, "inconclusive": GREY}
OUTCOME_SHAPE: dict[Outcome, str] = {"supported": "circle", "refuted": "square", "inconclusive": "diamond"}


def forest(findings: Sequence[Finding], *, wide: bool) -> alt.LayerChart:
    """Differences of one metric on one scale, with both intervals and the zone too small to matter."""
    width, plot, row_height = (880, (250, 620), 50) if wide else (PANEL_WIDTH, (12, PANEL_WIDTH - 12), 78)
    low, high = _forest_domain(findings)
    half = 0.32 if wide else 0.18
    rows = [_forest_row(place, finding, low, high, half) for place, finding in enumerate(findings)]
    data = inline(rows)
    x_scale = alt.Scale(domain=[low, high], range=list(plot), nice=False, zero=False)
    first = findings[0]
    axis = alt.Axis(
        title=_forest_title(first),
        grid=False,
        tickCount=6 if wide else 4,
        labelFlush=False,
        labelExpr=SIGNED,
        titleLimit=width,
        titleAnchor="middle",
    )

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=x_scale, axis=axis)

    y_scale = alt.Scale(domain=[-0.5, len(rows) - 0.5], reverse=True, nice=False, zero=False)

    def y(field: str = "row") -> alt.Y:
        return alt.Y(f"{field}:Q", scale=y_scale, axis=None)

    base = alt.Chart(data)
    measured = base.transform_filter("isValid(datum.difference)")
    layers = [
        base.transform_filter("datum.zone_high > datum.zone_low")
        .mark_rect(color=PALE)
        .encode(x=x("zone_low"), x2=alt.X2("zone_high:Q"), y=y("zone_top"), y2=alt.Y2("zone_bottom:Q")),
        base.mark_rule(color=INK, strokeWidth=1).encode(x=x("zero"), y=y("zero_top"), y2=alt.Y2("zero_bottom:Q")),
        measured.mark_rule(strokeWidth=1.6).encode(x=x("low"), x2=alt.X2("high:Q"), y=y(), color=_by_outcome()),
        measured.transform_filter("isValid(datum.inner_low)")
        .mark_rule(strokeWidth=5, opacity=0.55)
        .encode(x=x("inner_low"), x2=alt.X2("inner_high:Q"), y=y(), color=_by_outcome()),
        measured.mark_point(filled=True, size=110, opacity=1, stroke="white", strokeWidth=1).encode(
            x=x("difference"),
            y=y(),
            color=_by_outcome(),
            shape=alt.Shape(
                "outcome:N",
                legend=None,
                scale=alt.Scale(domain=list(OUTCOME_SHAPE), range=list(OUTCOME_SHAPE.values())),
            ),
        ),
    ]
    layers += _forest_words(base, y, wide=wide, width=width)
    return dressed(alt.layer(*layers), width, row_height * len(rows))


def _forest_words(base: Any, y: Any, *, wide: bool, width: int) -> list[Any]:
    def text(field: str, at: int, dy: int, *, limit: int, weight: str = "normal", colour: str = INK) -> Any:
        mark = base.mark_text(
            align="left",
            baseline="middle",
            dy=dy,
            limit=limit,
            fontWeight=weight,
            color=colour,
            fontSize=12,
            lineBreak="\n",
            lineHeight=13,
        )
        return mark.encode(x=alt.value(at), y=y(), text=alt.Text(f"{field}:N"))

    if wide:
        return [
            text("name", 0, -8, limit=235, weight="bold"),
            text("contrast", 0, 8, limit=235, colour="#555555"),
            text("numbers", 640, -8, limit=width - 640),
            text("ending", 640, 8, limit=width - 640, weight="bold"),
        ]
    return [
        text("name", 4, -27, limit=width - 110, weight="bold"),
        text("numbers", 4, 26, limit=width - 8),
        base.mark_text(align="right", baseline="middle", dy=-27, fontWeight="bold", fontSize=12, color=INK).encode(
            x=alt.value(width - 4), y=y(), text=alt.Text("outcome:N")
        ),
    ]


def _forest_row(place: int, finding: Finding, low: float, high: float, half: float) -> dict[str, Any]:
    decimals = estimates.finding_decimals(finding)
    reach = 0.5 if half > 0.3 else 1.5 * half  # on a phone, the line through zero spares the numbers
    row: dict[str, Any] = {
        "row": place,
        "name": finding.label,
        "outcome": finding.outcome,
        "contrast": "\n".join(wrap(estimates.meaning_of(finding), 40)),
        "ending": f"{finding.outcome}, n = {finding.n}",
        "numbers": f"no estimate, n = {finding.n}",
        "difference": None,
        "zone_low": -finding.smallest,
        "zone_high": finding.smallest,
        "zone_top": place - half,
        "zone_bottom": place + half,
        "zero": 0.0,
        "zero_top": place - reach,
        "zero_bottom": place + reach,
    }
    estimate = finding.estimate
    if estimate is None:
        return row
    outer = estimates.shown_interval(finding)
    row["difference"] = estimate.difference
    row["numbers"] = f"{estimates.signed(estimate.difference, decimals)} {estimates.interval(outer, decimals)}"
    row["low"] = low if outer is None or outer.low is None else outer.low
    row["high"] = high if outer is None or outer.high is None else outer.high
    if estimate.interval is not None and finding.simultaneous is not None and not estimates.rests_on_margin(finding):
        row["inner_low"] = low if estimate.interval.low is None else estimate.interval.low
        row["inner_high"] = high if estimate.interval.high is None else estimate.interval.high
    return row


def _forest_domain(findings: Sequence[Finding]) -> tuple[float, float]:
    ends = [0.0]
    for finding in findings:
        ends += [finding.smallest, -finding.smallest]
        if finding.estimate is not None:
            ends += [] if finding.estimate.difference is None else [finding.estimate.difference]
            for bounds in (finding.estimate.interval, estimates.shown_interval(finding)):
                ends += [end for end in (bounds.low, bounds.high) if end is not None] if bounds else []
    return padded(ends)


def _forest_title(finding: Finding) -> list[str]:
    unit = f" ({finding.unit})" if finding.unit else ""
    way = {"lower": "lower is better", "higher": "higher is better", "neither": "no direction is better"}
    return [f"difference in {finding.metric}{unit}", way[finding.better]]


def _by_outcome() -> alt.Color:
    scale = alt.Scale(domain=list(OUTCOME_COLOUR), range=list(OUTCOME_COLOUR.values()))
    return alt.Color("outcome:N", scale=scale, legend=None)
