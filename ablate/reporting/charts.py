"""The figures as altair charts, and the theme of all. No statistics: every number arrives computed.

Colours are Okabe and Ito's (2008), distinct by shape, dash and position as well. They are attributes of the SVG, white
ground included, so that a drawing holds up alone; the page's style sheet replaces them in the dark. A panel is 300 px
wide, which is what a phone has to give.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import Any

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode

from ablate.judge.verdict import Finding
from ablate.reporting import estimates
from prereg import text as words
from prereg.escape import visible
from prereg.rule.condition import Outcome

BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
GREY, INK, PALE = "#767676", "#222222", "#E4E4E4"
PANEL_WIDTH = 300
MOST_SEED_LABELS = 14
SIGNED = "datum.value == 0 ? '0' : format(datum.value, '+~g')"
PLAIN = "format(datum.value, '~g')"
DIRECTIONS = {"lower": "lower is better", "higher": "higher is better", "neither": "no direction is better"}
OUTCOME_COLOUR: dict[Outcome, str] = {"supported": BLUE, "refuted": VERMILLION, "inconclusive": GREY}
OUTCOME_SHAPE: dict[Outcome, str] = {"supported": "circle", "refuted": "square", "inconclusive": "diamond"}
FONT = "Arial, Helvetica, sans-serif"


def draw(make: Callable[[], Any]) -> str:
    """The chart that a function composes, as SVG text."""
    # Altair checks each part of a chart against its schema, which takes longer than to draw it. The tests have done so.
    with debug_mode(False):
        drawn = _seen(make().to_dict(validate=False))
    svg: str = vl_convert.vegalite_to_svg(drawn, vl_version="_".join(alt.SCHEMA_VERSION.split(".")[:2]))
    return svg


def _seen(part: Any) -> Any:
    """A chart with unseen characters written out: of a control character in a name, vl-convert aborts the process."""
    if isinstance(part, str):
        return visible(part, lines=True)
    if isinstance(part, dict):
        return {name: _seen(value) for name, value in part.items()}
    return [_seen(value) for value in part] if isinstance(part, (list, tuple)) else part


def paired(finding: Finding, left: str, right: str) -> alt.LayerChart:
    """One line for each seed, from the claim's right side to its left side."""
    pairs = finding.pairs
    data, ends = [], []
    for pair in pairs:
        way = "falls" if pair.difference < 0 else "rises" if pair.difference > 0 else "level"
        data += [
            {"seed": str(pair.seed), "at": 0, "value": pair.right, "way": way},
            {"seed": str(pair.seed), "at": 1, "value": pair.left, "way": way},
        ]
        ends += [pair.left, pair.right]
    low, high = padded(ends)
    places = spread([pair.left for pair in pairs], (high - low) / 13) if len(pairs) <= MOST_SEED_LABELS else []
    low, high = padded([*ends, *places])
    x = quantity(
        alt.X,
        "at",
        (-0.28, 1.32),
        zero=False,
        values=[0, 1],
        grid=False,
        title=None,
        domain=False,
        ticks=False,
        labelLimit=150,
        labelFontSize=12,
        labelPadding=8,
        labelExpr=f"datum.value == 0 ? {_lines(right)} : {_lines(left)}",
    )
    title = finding.metric_shown + (f" ({finding.unit})" if finding.unit else "")
    y = quantity(alt.Y, "value", (low, high), zero=False, title=title, tickCount=5, titleLimit=220)
    ways = ["falls", "rises", "level"]
    colour = alt.Color("way:N", legend=None, scale=alt.Scale(domain=ways, range=[BLUE, VERMILLION, GREY]))
    dash = alt.StrokeDash("way:N", legend=None, scale=alt.Scale(domain=ways, range=[[1, 0], [5, 3], [1, 2]]))
    base = alt.Chart(inline(data))
    layers = [
        base.mark_line(strokeWidth=1.6).encode(x=x, y=y, detail=alt.Detail("seed:N"), color=colour, strokeDash=dash),
        base.mark_point(filled=True, size=36, opacity=1).encode(x=x, y=y, color=colour),
    ]
    if places:
        named = [
            {"seed": f"seed {pair.seed}", "at": 1.06, "value": place} for pair, place in zip(pairs, places, strict=True)
        ]
        layers.append(
            alt.Chart(inline(named))
            .mark_text(align="left", baseline="middle", fontSize=11, color="#444444")
            .encode(x=x, y=y, text=alt.Text("seed:N"))
        )
    return dressed(alt.layer(*layers), PANEL_WIDTH, 260, fit=True)


def power_by_seeds(
    power: Sequence[tuple[int, float]], adopting: Sequence[tuple[int, float]], *, registered: int
) -> alt.LayerChart:
    """Chance of success by number of seeds: solid in closed form, dashed by simulation of the rule."""
    last = max(n for n, _ in [*power, *adopting])
    x = quantity(alt.X, "n", (0, last), title="seeds of each arm", tickCount=6, format="d")
    y = quantity(alt.Y, "share", (0, 1), title="chance", tickCount=5, format=".0%")
    layers: list[Any] = [
        alt.Chart(inline([{"share": 0.8}])).mark_rule(color=GREY, strokeWidth=1).encode(y=y),
        alt.Chart(inline([{"n": registered}])).mark_rule(color=GREY, strokeWidth=1, strokeDash=[1, 3]).encode(x=x),
    ]
    for line, colour, dash, filled in ((power, BLUE, [1, 0], True), (adopting, VERMILLION, [5, 3], False)):
        if line:
            base = alt.Chart(inline([{"n": n, "share": share} for n, share in line]))
            layers += [
                base.mark_line(color=colour, strokeDash=dash, strokeWidth=1.6).encode(x=x, y=y),
                base.mark_point(color=colour, filled=filled, size=28, opacity=1).encode(x=x, y=y),
            ]
    return dressed(alt.layer(*layers), PANEL_WIDTH, 220, fit=True)


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Places for labels, in the order given: near their values, and at least `gap` apart."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    clusters: list[tuple[float, list[int]]] = []  # (centre, members), merged until none overlap
    for at in order:
        clusters.append((values[at], [at]))
        while len(clusters) > 1:
            (below, first), (above, second) = clusters[-2:]
            if above - below >= gap * (len(first) + len(second)) / 2:
                break
            members = first + second
            clusters[-2:] = [(sum(values[member] for member in members) / len(members), members)]
    places = list(values)
    for centre, members in clusters:
        for rank, at in enumerate(members):
            places[at] = centre + gap * (rank - (len(members) - 1) / 2)
    return places


def quantity(channel: Any, field: str, ends: Sequence[float], *, zero: bool | None = None, **axis: Any) -> Any:
    """A channel of numbers over a fixed range, with its axis."""
    more: dict[str, Any] = {} if zero is None else {"zero": zero}
    return channel(f"{field}:Q", scale=alt.Scale(domain=list(ends), nice=False, **more), axis=alt.Axis(**axis))


def padded(ends: Sequence[float]) -> tuple[float, float]:
    """A range that holds all of these, and a little more."""
    low, high = min(ends), max(ends)
    margin = (high - low) * 0.06 or max(abs(high) * 0.01, 1e-6)
    return low - margin, high + margin


def _lines(text: str) -> str:
    """A label as a vega expression: one line, or one for each arm of a sum."""
    parts = visible(text).replace(" - ", "\n- ").replace(" + ", "\n+ ").split("\n")
    return json.dumps([part.replace("- ", f"{words.MINUS} ") for part in parts])


def inline(rows: list[dict[str, Any]]) -> alt.InlineData:
    """Data that a chart carries with itself. Altair copies a list for each layer and option; a tuple it shares."""
    return alt.InlineData(values=tuple(rows))


def dressed(chart: Any, width: int, height: int, *, fit: bool = False) -> alt.LayerChart:
    """A chart in the report's dress: its font, its greys, its size."""
    axis = alt.AxisConfig(
        labelFontSize=11,
        titleFontSize=11,
        titleFontWeight="normal",
        labelColor="#444444",
        titleColor="#333333",
        gridColor="#EBEBEB",
        domainColor="#888888",
        tickColor="#888888",
    )
    # Not by altair's own methods: each copies the whole chart first, and that takes as long as to compose it.
    chart.config = alt.Config(font=FONT, aria=False, padding=6, view=alt.ViewConfig(stroke=None), axis=axis)
    chart.width, chart.height, chart.background = width, height, "white"
    if fit:
        chart.autosize = alt.AutoSizeParams(type="fit", contains="padding")
    finished: alt.LayerChart = chart
    return finished


def forest(findings: Sequence[Finding], *, wide: bool) -> alt.LayerChart:
    """Differences of one metric on one scale, for a broad page or a phone: the deciding interval, what is too small."""
    width, plot, row_height = (880, (250, 620), 50) if wide else (PANEL_WIDTH, (12, PANEL_WIDTH - 12), 78)
    low, high = forest_domain(findings)
    half = 0.32 if wide else 0.18
    rows = [_forest_row(place, finding, low, high, half) for place, finding in enumerate(findings)]
    x_scale = alt.Scale(domain=[low, high], range=list(plot), nice=False, zero=False)
    axis = alt.Axis(
        title=_forest_title(findings[0]),
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

    base = alt.Chart(inline(rows))
    measured = base.transform_filter("isValid(datum.difference)")
    layers = [
        base.transform_filter("datum.zone_high > datum.zone_low")
        .mark_rect(color=PALE)
        .encode(x=x("zone_low"), x2=alt.X2("zone_high:Q"), y=y("zone_top"), y2=alt.Y2("zone_bottom:Q")),
        base.mark_rule(color=INK, strokeWidth=1).encode(x=x("zero"), y=y("zero_top"), y2=alt.Y2("zero_bottom:Q")),
        measured.mark_rule(strokeWidth=3).encode(x=x("low"), x2=alt.X2("high:Q"), y=y(), color=_by_outcome()),
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
        text("in_full", 4, 26, limit=width - 8),
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
        "in_full": f"no estimate, n = {finding.n}",
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
    if outer is not None:
        row["ending"] = f"{finding.outcome}, {words.level(outer.level)}, n = {finding.n}"
        row["in_full"] = f"{row['numbers']} {words.level(outer.level)}, n = {finding.n}"
    row["low"] = low if outer is None or outer.low is None else outer.low
    row["high"] = high if outer is None or outer.high is None else outer.high
    return row


def forest_domain(findings: Sequence[Finding]) -> tuple[float, float]:
    """A range that holds zero, the margins, and every difference with its interval."""
    ends = [0.0]
    for finding in findings:
        ends += [finding.smallest, -finding.smallest]
        if finding.estimate is not None:
            ends += [] if finding.estimate.difference is None else [finding.estimate.difference]
            bounds = estimates.shown_interval(finding)
            ends += [end for end in (bounds.low, bounds.high) if end is not None] if bounds else []
    return padded(ends)


def _forest_title(finding: Finding) -> list[str]:
    unit = f" ({finding.unit})" if finding.unit else ""
    return [f"difference in {finding.metric_shown}{unit}", DIRECTIONS[finding.better]]


def _by_outcome() -> alt.Color:
    scale = alt.Scale(domain=list(OUTCOME_COLOUR), range=list(OUTCOME_COLOUR.values()))
    return alt.Color("outcome:N", scale=scale, legend=None)
