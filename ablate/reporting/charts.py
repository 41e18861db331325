"""Charts of a report, drawn: `forest`, `paired`, `power` and `lines`, and their dress. Every number arrives computed.

Colours are Okabe and Ito's (2008), distinct by shape, dash and position as well. They are attributes of the SVG, white
ground included, so that a drawing holds up alone; the page's style sheet replaces them in the dark. A panel is 300 px
wide, which is what a phone has to give.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, floor, log, log10
from textwrap import wrap
from typing import Any

import altair as alt
import pandas as pd
import vl_convert
from altair.utils.schemapi import debug_mode

from ablate.reporting import estimates
from ablate.reporting.view import FindingView
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.escape import visible
from prereg.rule.condition import Outcome

BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
GREY, INK, PALE = "#767676", "#222222", "#E4E4E4"
RUST = "#9C4500"
SERIES = (BLUE, VERMILLION, GREEN)
DASHES: tuple[list[int], ...] = ([1, 0], [6, 3], [2, 2])
SHAPES = ("square", "diamond", "triangle-up")
MOST_LINES = len(SERIES)
"""Arms that share a panel with the baseline."""
AS_TEXT = {VERMILLION: RUST, GREEN: "#00694D"}
"""Darker where a colour is of letters, for contrast."""
NAME_SHARE, NAME_LIMIT, NAME_LETTERS = 0.36, 78, 12
"""Room for names to the right of lines: as a share of the range of x, in px, and in letters of a line of a name."""
NAME_LINE = 12
"""Height of a line of a name, in px."""
WIDE = 20.0
"""Largest over smallest value from which a scale is logarithmic."""
PANEL_WIDTH = 300
MOST_SEED_LABELS = 14
SIGNED = "datum.value == 0 ? '0' : format(datum.value, '+~g')"
PLAIN = "format(datum.value, '~g')"
OUTCOME_COLOUR: dict[str, str] = {"supported": BLUE, "refuted": VERMILLION, "inconclusive": GREY}
OUTCOME_SHAPE: dict[Outcome, str] = {"supported": "circle", "refuted": "square", "inconclusive": "diamond"}
FONT = "Arial, Helvetica, sans-serif"


def draw_chart(make: Callable[[], Any]) -> str:
    """The chart that a function composes, as SVG text."""
    # Altair checks each part of a chart against its schema, which takes longer than to draw it. The tests have done so.
    with debug_mode(False):
        # A control character would end the process: see `_seen`.
        drawn = _seen(make().to_dict(validate=False))
    # The renderer carries several versions of vega-lite; the chart was composed for one of them.
    svg: str = vl_convert.vegalite_to_svg(drawn, vl_version="_".join(alt.SCHEMA_VERSION.split(".")[:2]))
    return svg


def _seen(part: Any) -> Any:
    """A chart with unseen characters written out: of a control character in a name, vl-convert aborts the process."""
    if isinstance(part, str):
        return visible(part, lines=True)
    if isinstance(part, dict):
        return {name: _seen(value) for name, value in part.items()}
    return [_seen(value) for value in part] if isinstance(part, (list, tuple)) else part


def paired(view: FindingView, left: str, right: str) -> alt.LayerChart:
    """One line for each seed, from the claim's right side to its left side."""
    pairs = view.finding.pairs
    # Long format, two rows a seed: vega draws a line for each `detail`.
    data, ends = [], []
    for pair in pairs:
        way = "falls" if pair.difference < 0 else "rises" if pair.difference > 0 else "level"
        data += [
            {"seed": str(pair.seed), "at": 0, "value": pair.right, "way": way},
            {"seed": str(pair.seed), "at": 1, "value": pair.left, "way": way},
        ]
        ends += [pair.left, pair.right]
    low, high = padded(ends)
    # A label needs a thirteenth of the height (260 px at 11 px a letter); more seeds than that overlap
    # however they are moved.
    places = spread_labels([pair.left for pair in pairs], (high - low) / 13) if len(pairs) <= MOST_SEED_LABELS else []
    # Labels that were moved apart may lie beyond the values.
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
    title = estimates.with_unit(view.metric, view.unit)
    y = quantity(alt.Y, "value", (low, high), zero=False, title=title, tickCount=5, titleLimit=220)
    # Colour and dash say the same: one of the two is lost in grey print.
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
            {"seed": phrase("charts.seed", pair.seed), "at": 1.06, "value": place}
            for pair, place in zip(pairs, places, strict=True)
        ]
        layers.append(
            alt.Chart(inline(named))
            .mark_text(align="left", baseline="middle", fontSize=11, color="#444444")
            .encode(x=x, y=y, text=alt.Text("seed:N"))
        )
    return dressed(alt.layer(*layers), PANEL_WIDTH, 260, fit=True)


def power_chart(
    least: Sequence[tuple[int, float]], adopting: Sequence[tuple[int, float]], *, registered: int
) -> alt.LayerChart:
    """Chance of success by number of seeds: solid in closed form, dashed by simulation of the rule."""
    # From zero seeds on: how fast power rises is what the chart is looked at for.
    last = max(n for n, _ in [*least, *adopting])
    x = quantity(alt.X, "n", (0, last), title=phrase("charts.seeds"), tickCount=6, format="d")
    y = quantity(alt.Y, "share", (0, 1), title=phrase("charts.chance"), tickCount=5, format=".0%")
    layers: list[Any] = [
        alt.Chart(inline([{"share": 0.8}])).mark_rule(color=GREY, strokeWidth=1).encode(y=y),
        alt.Chart(inline([{"n": registered}])).mark_rule(color=GREY, strokeWidth=1, strokeDash=[1, 3]).encode(x=x),
    ]
    for line, colour, dash, filled in ((least, BLUE, [1, 0], True), (adopting, VERMILLION, [5, 3], False)):
        if line:
            base = alt.Chart(inline([{"n": n, "share": share} for n, share in line]))
            layers += [
                base.mark_line(color=colour, strokeDash=dash, strokeWidth=1.6).encode(x=x, y=y),
                base.mark_point(color=colour, filled=filled, size=28, opacity=1).encode(x=x, y=y),
            ]
    return dressed(alt.layer(*layers), PANEL_WIDTH, 220, fit=True)


@dataclass(frozen=True)
class Extent:
    """What one axis of `lines` shows."""

    title: str
    domain: tuple[float, float]
    ticks: Mapping[float, str] = field(default_factory=dict)
    """Place -> its label; empty where altair chooses."""
    logarithmic: bool = False
    signed: bool = False
    """Whether a plus sign is written before positive numbers, as before differences."""


def axis_range(title: str, values: Sequence[float], **how: Any) -> Extent:
    """The range of an axis that holds these values, logarithmic where they are of one sign and far apart."""
    # A difference has its zero to be seen from; it is never drawn on logarithms.
    wide = min(values) > 0.0 and max(values) > WIDE * min(values) and not how.get("signed")
    return Extent(title, (min(values) / 1.1, max(values) * 1.1) if wide else padded(values), logarithmic=wide, **how)


def lines(
    frame: pd.DataFrame,
    x: Extent,
    y: Extent,
    *,
    baseline: str = "",
    band: bool = True,
    marks: Sequence[tuple[float, float, str]] = (),
    zone: float = 0.0,
    level: tuple[float, str] | None = None,
    diagonal: bool = False,
) -> alt.LayerChart:
    """Arms along a quantity: their means as lines named where they end, and the range of their runs as a `band`, or as
    bars where places are few. Every chart that is no forest, no pairs and no power is one of these.

    `frame` has the columns of `description.LINES`, its arms named as people read them, `baseline` among them. `marks`
    are words at places (`× diverged`), `zone` is the margin about zero, `level` a named horizontal line.
    """
    first, last = x.domain
    # Axes. Names of lines stand within the range of x, to the right of where lines end.
    room = (first, last + NAME_SHARE * (last - first))
    x_axis: dict[str, Any] = {"values": round_ticks(first, last)}
    if x.ticks:
        # vega evaluates labelExpr as JavaScript: a JSON object, indexed by the tick as a string, which
        # `:g` writes as JavaScript does.
        labels = json.dumps({f"{place:g}": label for place, label in x.ticks.items()})
        x_axis = {"values": [*x.ticks], "labelExpr": f"{labels}[datum.value]"}
    x_channel = quantity(alt.X, "x", room, zero=False, title=x.title, grid=False, titleLimit=240, **x_axis)
    # Neither rounded nor forced to zero: no loss starts there, and `axis_range` has chosen the range.
    y_scale = alt.Scale(domain=list(y.domain), type="log" if y.logarithmic else "linear", nice=False, zero=False)
    y_axis: dict[str, Any] = {"labelExpr": SIGNED if y.signed else PLAIN}
    if y.logarithmic:
        # Given: altair draws a line for each of the nine parts of a decade.
        y_axis = {"format": "~g", "values": log_ticks(*y.domain)}

    def at(column: str, channel: Any = alt.Y) -> Any:
        if channel is alt.Y2:
            return alt.Y2(f"{column}:Q")
        return alt.Y(f"{column}:Q", scale=y_scale, axis=alt.Axis(title=y.title, tickCount=5, titleLimit=210, **y_axis))

    layers: list[Any] = []
    if zone:
        ends = {"low": max(-zone, y.domain[0]), "high": min(zone, y.domain[1])}
        layers.append(alt.Chart(inline([ends])).mark_rect(color=PALE).encode(y=at("low"), y2=at("high", alt.Y2)))
    if y.signed:
        layers.append(alt.Chart(inline([{"mean": 0}])).mark_rule(color=INK, strokeWidth=1).encode(y=at("mean")))
    if diagonal:
        ends_of_it = inline([{"x": end, "mean": end} for end in (0, 1)])
        dashed = alt.Chart(ends_of_it).mark_line(color=GREY, strokeDash=[5, 3], strokeWidth=1)
        layers.append(dashed.encode(x=x_channel, y=at("mean")))
    if level is not None:
        named = alt.Chart(inline([{"mean": level[0]}])).encode(y=at("mean"))
        layers += [
            named.mark_rule(color=VERMILLION, strokeDash=[1, 3], strokeWidth=2),
            named.mark_text(
                text=level[1], align="left", baseline="bottom", dx=3, dy=-3, color=RUST, fontSize=11
            ).encode(x=alt.value(0)),
        ]
    # Each arm: the range of its runs, its line, and marks where places are few.
    named_ends = []
    for arm, colour, dash, shape in _styles([*dict.fromkeys(frame["arm"])], baseline):
        part = frame[frame["arm"] == arm]
        rows = [{name: float(row[name]) for name in ("x", "mean", "low", "high")} for _, row in part.iterrows()]
        base = alt.Chart(inline(rows))
        # The range of one run is the run.
        if part["n"].max() > 1:
            drawn = (
                base.mark_area(color=colour, opacity=0.14) if band else base.mark_rule(color=colour, strokeWidth=1.2)
            )
            layers.append(drawn.encode(x=x_channel, y=at("low"), y2=at("high", alt.Y2)))
        layers.append(base.mark_line(color=colour, strokeDash=dash, strokeWidth=2).encode(x=x_channel, y=at("mean")))
        if not band:
            points = base.mark_point(color=colour, shape=shape, filled=True, size=30, opacity=1)
            layers.append(points.encode(x=x_channel, y=at("mean")))
        # Rows are in order of x, so the last one is where the line ends.
        named_ends.append((rows[-1]["x"], rows[-1]["mean"], arm, colour))
    for place, value, label in marks:
        mark = alt.Chart(inline([{"x": place, "mean": value}])).mark_text(
            text=label, align="left", baseline="middle", color=RUST, fontSize=12
        )
        layers.append(mark.encode(x=x_channel, y=at("mean")))
    layers += _names(named_ends, NAME_SHARE * (last - first), y, x_channel, at("mean"))
    return dressed(alt.layer(*layers), PANEL_WIDTH, 220, fit=True)


def round_ticks(first: float, last: float, count: int = 4) -> list[float]:
    """About so many places of a range at even distances of 1, 2 or 5 times a power of ten; none beyond its ends.

    >>> round_ticks(0, 120), round_ticks(0.05, 0.33)
    ([0.0, 50.0, 100.0], [0.1, 0.2, 0.3])
    """
    if last <= first:
        return [first]
    # Heckbert's nice numbers (1990): the least of 1, 2, 5 times a power of ten that is not below the even
    # distance.
    raw = (last - first) / count
    power = 10.0 ** floor(log10(raw))
    # 0.3 / 0.1 is 2.9999999999999996: without a tolerance the last tick would be lost.
    step = next(many * power for many in (1, 2, 5, 10) if many * power >= raw * (1 - 1e-9))
    # 3 * 0.1 is 0.30000000000000004, and a label would show it.
    return [round(at * step, 12) for at in range(ceil(first / step - 1e-9), floor(last / step + 1e-9) + 1)]


def log_ticks(first: float, last: float, count: int = 6) -> list[float]:
    """At most about so many places of a logarithmic range: 1, 2 and 5 times powers of ten, or powers at even distances.

    Examples
    --------
    >>> log_ticks(0.03, 0.6), log_ticks(1e-12, 0.5)
    ([0.05, 0.1, 0.2, 0.5], [1e-12, 1e-10, 1e-08, 1e-06, 0.0001, 0.01])
    """
    decades = log10(last / first)
    powers = range(floor(log10(first) + 1e-9), ceil(log10(last) - 1e-9) + 1)
    every = max(1, ceil(decades / count))
    many = (1, 2, 5) if 3 * decades <= count else (1,)
    places = [float(f"{factor}e{power}") for power in powers if power % every == 0 for factor in many]
    return [place for place in places if first * (1 - 1e-9) <= place <= last * (1 + 1e-9)]


def shared(arms: Sequence[str], baseline: str) -> list[list[str]]:
    """The arms of each panel: the baseline, and a few others.

    >>> shared(["none", "a", "b", "c", "d"], baseline="none")
    [['none', 'a', 'b', 'c'], ['none', 'd']]
    """
    others = [arm for arm in arms if arm != baseline]
    first = [baseline] * (baseline in arms)
    return [[*first, *others[at : at + MOST_LINES]] for at in range(0, max(1, len(others)), MOST_LINES)]


def _styles(arms: Sequence[str], baseline: str) -> list[tuple[str, str, list[int], str]]:
    """Arm, colour, dash and shape; the baseline first."""
    others = [arm for arm in arms if arm != baseline]
    styles = [(baseline, INK, [5, 3], "circle")] * (baseline in arms)
    return styles + [
        (arm, SERIES[at % MOST_LINES], DASHES[at % MOST_LINES], SHAPES[at % MOST_LINES])
        for at, arm in enumerate(others)
    ]


def _names(
    ends: Sequence[tuple[float, float, str, str]], room: float, y: Extent, x_channel: Any, y_channel: Any
) -> list[Any]:
    """Names to the right of where lines end, in two lines where they are long, apart from each other.

    `room` is what a name takes of the range of x: names of lines that end farther apart do not meet.
    """
    # Distances are those of the eye: on a logarithmic axis, of logarithms.
    on, back = (log, exp) if y.logarithmic else (float, float)
    low, high = map(on, y.domain)
    names = [wrap(name, NAME_LETTERS, break_long_words=False) for _, _, name, _ in ends]
    # A name of one line takes a thirteenth of the height, each further line two thirds of that.
    gap = (high - low) / 13 * max((2 * len(rows) + 1) / 3 for rows in names)
    layers = []
    by_end = sorted(range(len(ends)), key=lambda number: ends[number][0])
    groups: list[list[int]] = []
    for number in by_end:
        if groups and ends[number][0] - ends[groups[-1][-1]][0] < room:
            groups[-1].append(number)
        else:
            groups.append([number])
    for here in groups:
        places = spread_labels([on(ends[number][1]) for number in here], gap)
        # What spread beyond the range goes back into it, all by as much: their distances stay.
        shift = max(0.0, low + gap / 2 - min(places)) or min(0.0, high - gap / 2 - max(places))
        for number, place in zip(here, places, strict=True):
            rows, colour = names[number], ends[number][3]
            data = inline([{"x": ends[number][0], "mean": back(place + shift), "name": "\n".join(rows)}])
            mark = alt.Chart(data).mark_text(
                align="left",
                baseline="middle",
                dx=7,
                # By the middle of the whole name: vega puts that of its first line at the place.
                dy=-NAME_LINE * (len(rows) - 1) / 2,
                fontSize=11,
                lineBreak="\n",
                lineHeight=NAME_LINE,
                limit=NAME_LIMIT,
                color=AS_TEXT.get(colour, colour),
            )
            layers.append(mark.encode(x=x_channel, y=y_channel, text=alt.Text("name:N")))
    return layers


def spread_labels(values: Sequence[float], gap: float) -> list[float]:
    """Places for labels, in the order given: near their values, and at least `gap` apart.

    >>> spread_labels([1.0, 1.1, 5.0], gap=1.0)
    [0.55, 1.55, 5.0]
    """
    # Clusters are pooled as adjacent violators are in isotonic regression: two that overlap become one,
    # centred on the mean of its members, which may then overlap the one below.
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
    """A range that holds all of these, and a little more.

    >>> padded([0.0, 1.0])
    (-0.06, 1.06)
    """
    low, high = min(ends), max(ends)
    # Equal values would give a range of no width, which has no scale.
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


def forest(views: Sequence[FindingView], *, wide: bool) -> alt.LayerChart:
    """Differences of one metric on one scale, for a broad page or a phone: the interval that each claim was judged by,
    and what is too small to matter. Exploratory claims are grey: no verdict rests on them."""
    # Width, the plot's left and right edge, height of a row, in px. On a broad page words stand on both
    # sides of the plot; on a phone above and below it, so a row is higher.
    width, plot, row_height = (880, (250, 620), 50) if wide else (PANEL_WIDTH, (12, PANEL_WIDTH - 12), 78)
    low, high = forest_domain(views)
    half = 0.32 if wide else 0.16
    rows = [_forest_row(place, view, low, high, half) for place, view in enumerate(views)]
    x_scale = alt.Scale(domain=[low, high], range=list(plot), nice=False, zero=False)
    axis = alt.Axis(
        title=[phrase("charts.difference", views[0]), phrase("charts.direction", views[0].finding.better)],
        grid=False,
        tickCount=6 if wide else 4,
        labelFlush=False,
        labelExpr=SIGNED,
        titleLimit=width,
        titleAnchor="middle",
    )

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=x_scale, axis=axis)

    # Vega counts upwards; the first claim is on top.
    y_scale = alt.Scale(domain=[-0.5, len(rows) - 0.5], reverse=True, nice=False, zero=False)

    def y(field: str = "row") -> alt.Y:
        return alt.Y(f"{field}:Q", scale=y_scale, axis=None)

    base = alt.Chart(inline(rows))
    # A claim without an estimate keeps its row and words, and has no mark.
    measured = base.transform_filter("isValid(datum.difference)")
    layers = [
        # Behind all else: differences too small to matter, of a claim that has a margin.
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
    if wide:  # a claim of more than two lines would reach into the next row
        row_height += 13 * max(0, max(row["contrast"].count("\n") for row in rows) - 1)
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

    # In pixels. Two lines a claim: its name and the contrast in words at the left, numbers and outcome from 640 on.
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


def _forest_row(place: int, view: FindingView, low: float, high: float, half: float) -> dict[str, Any]:
    finding, bounds = view.finding, view.bounds
    reach = 0.5 if half > 0.3 else half  # on a phone, the line through zero spares the numbers
    row: dict[str, Any] = {
        "row": place,
        "name": view.label,
        "outcome": finding.outcome,
        "colour": "exploratory" if view.exploratory else finding.outcome,
        "contrast": "\n".join(wrap(view.meaning, 40)),
        "numbers": phrase("charts.numbers", view),
        "ending": phrase("charts.ending", view),
        "in_full": phrase("charts.in_full", view),
        "difference": None,
        "zone_low": -finding.smallest,
        "zone_high": finding.smallest,
        "zone_top": place - half,
        "zone_bottom": place + half,
        "zero": 0.0,
        "zero_top": place - reach,
        "zero_bottom": place + reach,
    }
    if view.estimate is None:
        return row
    row["difference"] = view.difference_value
    # JSON has no infinity: an open end reaches the edge of the plot.
    row["low"] = low if bounds is None or bounds.low is None else bounds.low
    row["high"] = high if bounds is None or bounds.high is None else bounds.high
    return row


def forest_domain(views: Sequence[FindingView]) -> tuple[float, float]:
    """A range that holds zero, the margins, and every difference with its interval."""
    ends = [0.0]
    for view in views:
        # Both margins, also of a one-sided claim: the shaded zone is symmetric about zero.
        ends += [view.finding.smallest, -view.finding.smallest]
        if view.difference_value is not None:
            ends.append(view.difference_value)
        if view.bounds is not None:
            ends += [end for end in (view.bounds.low, view.bounds.high) if end is not None]
    return padded(ends)


def _by_outcome() -> alt.Color:
    colours = OUTCOME_COLOUR | {"exploratory": GREY}
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color("colour:N", scale=scale, legend=None)
