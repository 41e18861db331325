"""The figures as altair charts: pairs, power, curves, and the theme of all (the forest plot: `sections.forest`). No
statistics: every number arrives computed.

Colours are Okabe and Ito's (2008), told apart without colour by shape, dash and position as well. Charts
carry a white ground of their own and are therefore the same in a dark page and on paper. A panel is
300 px wide, which is what a phone has to give; pages lay panels out in a grid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode

from ablate.judge.verdict import Finding
from ablate.reporting.description import Curves, Line
from prereg import text as words

BLUE, VERMILLION, GREY, INK, PALE = "#0072B2", "#D55E00", "#767676", "#222222", "#E4E4E4"
PANEL_WIDTH = 300
MOST_SEED_LABELS = 14
SIGNED = "datum.value == 0 ? '0' : format(datum.value, '+~g')"
PLAIN = "format(datum.value, '~g')"
FONT = "Arial, Helvetica, sans-serif"


def draw(make: Callable[[], Any]) -> str:
    """The chart that a function composes, as SVG text."""
    # Altair checks each part of a chart against its schema, which takes longer than to draw it. The tests have done so.
    with debug_mode(False):
        drawn = make().to_dict(validate=False)
    svg: str = vl_convert.vegalite_to_svg(drawn, vl_version="_".join(alt.SCHEMA_VERSION.split(".")[:2]))
    return svg


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
    title = finding.metric + (f" ({finding.unit})" if finding.unit else "")
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
    x = quantity(alt.X, "n", (0, last), title="seeds", tickCount=6, format="d")
    y = quantity(alt.Y, "share", (0, 1), title="power", tickCount=5, format=".0%")
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


def curves(
    traced: Curves,
    arm: str,
    *,
    baseline: str,
    unit: str,
    floor: float | None,
    diverged: Sequence[int],
    domain: tuple[float, float],
) -> alt.LayerChart:
    """One arm by step: thin lines for seeds, a thick mean, the baseline's mean dashed behind, the floor dotted."""
    x, y = _step_axes(traced, f"{traced.metric} ({unit})" if unit else traced.metric, domain)
    layers = _lines_of(traced, arm, x, y, BLUE if arm != baseline else INK)
    if arm != baseline and baseline in traced.means:
        data = inline(_points(traced.means[baseline]))
        layers.append(alt.Chart(data).mark_line(color=INK, strokeDash=[5, 3], strokeWidth=1.5).encode(x=x, y=y))
    if floor is not None:
        line = alt.Chart(inline([{"value": floor}])).encode(y=y)
        layers += [
            line.mark_rule(color=VERMILLION, strokeDash=[1, 3], strokeWidth=2),
            line.mark_text(
                text=f"floor {words.compact(round(floor, 4))}",
                align="right",
                baseline="bottom",
                dy=-3,
                color="#9C4500",
                fontSize=11,
            ).encode(x=alt.value("width")),
        ]
    ends = [traced.runs[(arm, seed)][-1] for seed in diverged if traced.runs.get((arm, seed))]
    if ends:
        layers.append(
            alt.Chart(inline(_points(ends)))
            .mark_text(text="× diverged", align="left", baseline="middle", color="#9C4500", fontSize=12)
            .encode(x=x, y=y)
        )
    return dressed(alt.layer(*layers), PANEL_WIDTH, 220, fit=True)


def difference_curves(
    traced: Curves, arm: str, *, unit: str, smallest: float | None, domain: tuple[float, float]
) -> alt.LayerChart:
    """An arm minus the baseline of the same seed, by step; the zone too small to matter is grey."""
    title = f"difference in {traced.metric}" + (f" ({unit})" if unit else "")
    x, y = _step_axes(traced, title, domain, signed=True)
    layers: list[Any] = []
    if smallest:
        zone = inline([{"value": max(-smallest, domain[0]), "high": min(smallest, domain[1])}])
        layers.append(alt.Chart(zone).mark_rect(color=PALE).encode(y=y, y2=alt.Y2("high:Q")))
    layers.append(alt.Chart(inline([{"value": 0}])).mark_rule(color=INK, strokeWidth=1).encode(y=y))
    layers += _lines_of(traced, arm, x, y, BLUE)
    return dressed(alt.layer(*layers), PANEL_WIDTH, 220, fit=True)


def domain_of(traced: Curves, *more: float) -> tuple[float, float]:
    """One range of values for all panels of a figure, so that panels compare by eye."""
    return padded([*traced.values(), *more])


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


def _lines_of(traced: Curves, arm: str, x: Any, y: Any, colour: str) -> list[Any]:
    single = [
        {"step": step, "value": value, "seed": seed}
        for (name, seed), line in traced.runs.items()
        if name == arm
        for step, value in line
    ]
    thin = alt.Chart(inline(single)).mark_line(strokeWidth=0.9, opacity=0.5, color=colour)
    layers: list[Any] = [thin.encode(x=x, y=y, detail=alt.Detail("seed:N"))]
    if len(traced.means.get(arm, [])) > 1:
        layers.append(
            alt.Chart(inline(_points(traced.means[arm]))).mark_line(strokeWidth=2.4, color=colour).encode(x=x, y=y)
        )
    return layers


def _step_axes(traced: Curves, title: str, domain: tuple[float, float], *, signed: bool = False) -> tuple[Any, Any]:
    last = max(line[-1][0] for line in traced.runs.values())
    x = quantity(alt.X, "step", (0, last), title="optimiser step", tickCount=5, format="~s" if last > 9999 else "d")
    labels = SIGNED if signed else PLAIN
    return x, quantity(alt.Y, "value", domain, zero=False, title=title, tickCount=5, titleLimit=210, labelExpr=labels)


def _points(line: Line) -> list[dict[str, Any]]:
    return [{"step": step, "value": value} for step, value in line]


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
    parts = text.replace(" - ", "\n- ").replace(" + ", "\n+ ").split("\n")
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
