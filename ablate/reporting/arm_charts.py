"""Charts of arms as altair charts: by optimiser step, along blocks or positions, by class of token, over cost.

Arms differ by colour, dash and shape at once, and lines are named where they end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, floor, log, log10
from statistics import fmean
from typing import Any, TypeVar

import altair as alt

from ablate.reporting.charts import (
    BLUE,
    GREEN,
    INK,
    PALE,
    PANEL_WIDTH,
    PLAIN,
    SIGNED,
    VERMILLION,
    dressed,
    inline,
    padded,
    quantity,
    spread,
)
from ablate.reporting.description import Curves, Line
from prereg import text as words
from prereg.study.labels import Labels

SERIES = (BLUE, VERMILLION, GREEN)
DASHES: tuple[list[int], ...] = ([1, 0], [6, 3], [2, 2])
SHAPES = ("square", "diamond", "triangle-up")
MOST_LINES = len(SERIES)
"""Arms that share a panel with the baseline."""
RUST = "#9C4500"
AS_TEXT = {VERMILLION: RUST, GREEN: "#00694D"}
"""Darker where a colour is of letters, for contrast."""
NAME_SHARE, NAME_LIMIT = 0.36, 72
"""Room for names to the right of lines, as a share of the range of x, and in px."""
WIDE = 20.0
"""Largest over smallest value from which a scale is logarithmic."""
Found = TypeVar("Found")
Named = tuple[float, float, str, str]
"""Where a line ends, its name and its colour."""


@dataclass(frozen=True)
class Spread:
    """Values of the runs of one arm at one place: their mean, the lowest and the highest."""

    mean: float
    low: float
    high: float


def shared(arms: Sequence[str], baseline: str) -> list[list[str]]:
    """The arms of each panel: the baseline, and a few others."""
    others = [arm for arm in arms if arm != baseline]
    first = [baseline] * (baseline in arms)
    return [[*first, *others[at : at + MOST_LINES]] for at in range(0, max(1, len(others)), MOST_LINES)]


def is_wide(values: Sequence[float]) -> bool:
    """Whether values of one sign range over so much that only a logarithmic scale shows them."""
    return min(values) > 0.0 and max(values) > WIDE * min(values)


def curves(
    traced: Curves,
    arm: str,
    *,
    labels: Labels,
    baseline: str,
    unit: str,
    step_axis: str,
    floor: float | None,
    diverged: Sequence[int],
    domain: tuple[float, float],
) -> alt.LayerChart:
    """One arm by step: thin lines for seeds, their range as a band, a thick mean, the baseline's mean dashed, the floor
    dotted."""
    metric = labels.metric(traced.metric)
    y_title = f"{metric} ({unit})" if unit else metric
    x, y = _step_axes(traced, (step_axis, y_title), domain, named=True)
    colour = BLUE if arm != baseline else INK
    layers = _lines_of(traced, arm, x, y, colour)
    ends: list[Named] = [(*line[-1], labels.arm(arm), colour) for line in [traced.means.get(arm, [])] if line]
    if arm != baseline and traced.means.get(baseline):
        data = inline(_points(traced.means[baseline]))
        layers.append(alt.Chart(data).mark_line(color=INK, strokeDash=[5, 3], strokeWidth=1.5).encode(x=x, y=y))
        ends.append((*traced.means[baseline][-1], labels.arm(baseline), INK))
    if floor is not None:
        line = alt.Chart(inline([{"value": floor}])).encode(y=y)
        said = f"floor {words.compact(round(floor, 4))}"
        layers += [
            line.mark_rule(color=VERMILLION, strokeDash=[1, 3], strokeWidth=2),
            line.mark_text(text=said, align="left", baseline="bottom", dx=3, dy=-3, color=RUST, fontSize=11).encode(
                x=alt.value(0)
            ),
        ]
    stopped = [traced.runs[(arm, seed)][-1] for seed in diverged if traced.runs.get((arm, seed))]
    if stopped:
        layers.append(
            alt.Chart(inline(_points(stopped)))
            .mark_text(text="× diverged", align="left", baseline="middle", color=RUST, fontSize=12)
            .encode(x=x, y=y)
        )
    layers += _names(ends, domain, x, y)
    return dressed(alt.layer(*layers), PANEL_WIDTH, 220, fit=True)


def difference_curves(
    traced: Curves,
    arm: str,
    *,
    labels: Labels,
    unit: str,
    step_axis: str,
    smallest: float | None,
    domain: tuple[float, float],
) -> alt.LayerChart:
    """An arm minus the baseline of the same seed, by step; the zone too small to matter is grey."""
    title = f"difference in {labels.metric(traced.metric)}" + (f" ({unit})" if unit else "")
    x, y = _step_axes(traced, (step_axis, title), domain, signed=True)
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


def along(
    lines: Mapping[str, Mapping[float, Spread]],
    places: Sequence[tuple[float, str]],
    titles: tuple[str, str],
    *,
    baseline: str,
    began: Mapping[str, Mapping[int, float]] | None = None,
) -> alt.LayerChart:
    """Arms along a quantity: the mean of the runs, bars from the lowest to the highest; dotted where they began."""
    ends = [end for line in lines.values() for one in line.values() for end in (one.low, one.high)]
    ends += [value for line in (began or {}).values() for value in line.values()]
    wide = is_wide(ends)
    low, high = (min(ends) / 1.1, max(ends) * 1.1) if wide else padded(ends)
    first, last = min(at for line in lines.values() for at in line), max(at for line in lines.values() for at in line)
    margin = 0.04 * (last - first)
    x = quantity(
        alt.X,
        "at",
        (first - margin, last + margin + NAME_SHARE * (last - first)),
        zero=False,
        title=titles[0],
        grid=False,
        values=[at for at, _ in places],
        labelExpr=f"{json.dumps({f'{at:g}': label for at, label in places})}[datum.value]",
        titleLimit=210,
    )
    how: dict[str, Any] = {"format": "~g"} if wide else {"labelExpr": PLAIN}
    scale = alt.Scale(domain=[low, high], type="log" if wide else "linear", nice=False, zero=False)
    y = alt.Y("value:Q", scale=scale, axis=alt.Axis(title=titles[1], tickCount=5, titleLimit=210, **how))
    layers: list[Any] = []
    named: list[Named] = []
    for arm, line, colour, dash, shape in _styled(lines, baseline):
        if began and arm in began:
            start = inline([{"at": at, "value": value} for at, value in sorted(began[arm].items())])
            layers.append(alt.Chart(start).mark_line(color=colour, strokeDash=[1, 3], strokeWidth=1.4).encode(x=x, y=y))
        rows = [{"at": at, "value": line[at].mean, "low": line[at].low, "high": line[at].high} for at in sorted(line)]
        base = alt.Chart(inline(rows))
        layers += [
            base.mark_line(color=colour, strokeDash=dash, strokeWidth=2).encode(x=x, y=y),
            base.mark_rule(color=colour, strokeWidth=1.2, opacity=0.7).encode(
                x=x, y=alt.Y("low:Q", scale=scale), y2=alt.Y2("high:Q")
            ),
            base.mark_point(color=colour, shape=shape, filled=True, size=30, opacity=1).encode(x=x, y=y),
        ]
        named.append((rows[-1]["at"], rows[-1]["value"], arm, colour))
    layers += _names(named, (low, high), x, y, logarithmic=wide)
    return dressed(alt.layer(*layers), PANEL_WIDTH, 220, fit=True)


def by_class(found: Mapping[str, Mapping[str, Spread]], title: str, *, baseline: str) -> alt.LayerChart:
    """Arms by named class, a row each: the mean of the runs, bars from the lowest to the highest."""
    classes = list(dict.fromkeys(name for one in found.values() for name in one))
    ends = [end for one in found.values() for spread_ in one.values() for end in (spread_.low, spread_.high)]
    low, high = padded([*ends, 0.0] if min(ends) >= 0.0 else ends)
    domain = (max(0.0, low) if min(ends) >= 0.0 else low, high)
    x, lowest = (quantity(alt.X, field, domain, title=title, tickCount=5) for field in ("value", "low"))
    names = {str(row): name.replace("_", " ") for row, name in enumerate(classes)}
    y = alt.Y(
        "row:Q",
        scale=alt.Scale(domain=[-0.6, len(classes) - 0.4], reverse=True, nice=False, zero=False),
        axis=alt.Axis(
            title=None,
            grid=False,
            ticks=False,
            domain=False,
            values=list(range(len(classes))),
            labelExpr=f"{json.dumps(names)}[datum.value]",
        ),
    )
    arms = _styled(found, baseline)
    rows = [
        {"arm": arm, "row": row + 0.2 * (at - (len(arms) - 1) / 2), "value": one[name].mean}
        | {"low": one[name].low, "high": one[name].high}
        for at, (arm, one, *_) in enumerate(arms)
        for row, name in enumerate(classes)
        if name in one
    ]
    legend = alt.Legend(orient="top", title=None, labelLimit=120, columns=2, symbolOpacity=1)
    order = [arm for arm, *_ in arms]
    colour = alt.Color("arm:N", legend=legend, scale=alt.Scale(domain=order, range=[one[2] for one in arms]))
    shape = alt.Shape("arm:N", legend=legend, scale=alt.Scale(domain=order, range=[one[4] for one in arms]))
    base = alt.Chart(inline(rows))
    layers = [
        base.mark_rule(strokeWidth=1.6).encode(x=lowest, x2=alt.X2("high:Q"), y=y, color=colour),
        base.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, color=colour, shape=shape),
    ]
    return dressed(alt.layer(*layers), PANEL_WIDTH, 100 + 30 * len(classes), fit=True)


def scatter(
    runs: Mapping[str, Sequence[tuple[float, float]]], titles: tuple[str, str], *, baseline: str
) -> alt.LayerChart:
    """Every run as a small point and the mean of each arm as a large one, named."""
    (left, right), (low, high) = (padded([one[side] for line in runs.values() for one in line]) for side in (0, 1))
    right += NAME_SHARE * (right - left)
    x = quantity(alt.X, "at", (left, right), zero=False, title=titles[0], tickCount=4, titleLimit=240)
    y = quantity(alt.Y, "value", (low, high), zero=False, title=titles[1], tickCount=5, titleLimit=210, labelExpr=PLAIN)
    layers: list[Any] = []
    named: list[Named] = []
    for arm, points, colour, _, shape in _styled(runs, baseline):
        each = inline([{"at": at, "value": value} for at, value in points])
        layers.append(
            alt.Chart(each)
            .mark_point(shape=shape, filled=False, stroke=colour, size=18, strokeWidth=1, opacity=1)
            .encode(x=x, y=y)
        )
        at, value = (fmean(one[side] for one in points) for side in (0, 1))
        mean = alt.Chart(inline([{"at": at, "value": value}]))
        layers.append(mean.mark_point(shape=shape, filled=True, color=colour, size=80, opacity=1).encode(x=x, y=y))
        named.append((at, value, arm, colour))
    layers += _names(named, (low, high), x, y)
    return dressed(alt.layer(*layers), PANEL_WIDTH, 220, fit=True)


def whole_ticks(last: int, count: int) -> list[float]:
    """Whole numbers from 0 to a last one, about so many, at even distances of 1, 2 or 5 times a power of ten."""
    if last <= 0:
        return [0.0]
    raw = last / min(last, count)
    power = 10 ** floor(log10(raw))
    step = next(many * power for many in (1, 2, 5, 10) if many * power >= raw * (1 - 1e-9))
    return [float(at) for at in range(0, last + 1, step)]


def _names(
    ends: Sequence[Named], domain: tuple[float, float], x: Any, y: Any, *, logarithmic: bool = False
) -> list[Any]:
    """Names to the right of where lines end, apart from each other."""
    if not ends:
        return []
    on, back = (log, exp) if logarithmic else (float, float)
    low, high = map(on, domain)
    gap = (high - low) / 13
    places = spread([on(value) for _, value, _, _ in ends], gap)
    # What spread beyond the range goes back into it, all by as much: their distances stay.
    shift = max(0.0, low + gap / 2 - min(places)) or min(0.0, high - gap / 2 - max(places))
    layers = []
    for (at, _, name, colour), place in zip(ends, places, strict=True):
        data = inline([{"at": at, "step": at, "value": back(place + shift), "name": name}])
        mark = alt.Chart(data).mark_text(
            align="left", baseline="middle", dx=7, fontSize=11, limit=NAME_LIMIT, color=AS_TEXT.get(colour, colour)
        )
        layers.append(mark.encode(x=x, y=y, text=alt.Text("name:N")))
    return layers


def _styled(found: Mapping[str, Found], baseline: str) -> list[tuple[str, Found, str, list[int], str]]:
    """Arms with what is drawn of them, and each with its colour, dash and shape; the baseline first."""
    others = zip((arm for arm in found if arm != baseline), SERIES, DASHES, SHAPES, strict=False)
    styles = [(baseline, INK, [5, 3], "circle")] * (baseline in found) + list(others)
    return [(arm, found[arm], colour, dash, shape) for arm, colour, dash, shape in styles]


def _lines_of(traced: Curves, arm: str, x: Any, y: Any, colour: str) -> list[Any]:
    """Band, seeds and mean of one arm."""
    layers: list[Any] = []
    if band := traced.ranges.get(arm):
        rows = inline([{"step": step, "value": low, "high": high} for step, low, high in band])
        layers.append(alt.Chart(rows).mark_area(color=colour, opacity=0.15).encode(x=x, y=y, y2=alt.Y2("high:Q")))
    single = [
        {"step": step, "value": value, "seed": seed}
        for (name, seed), line in traced.runs.items()
        if name == arm
        for step, value in line
    ]
    thin = alt.Chart(inline(single)).mark_line(strokeWidth=0.9, opacity=0.5, color=colour)
    layers.append(thin.encode(x=x, y=y, detail=alt.Detail("seed:N")))
    if len(traced.means.get(arm, [])) > 1:
        layers.append(
            alt.Chart(inline(_points(traced.means[arm]))).mark_line(strokeWidth=2.4, color=colour).encode(x=x, y=y)
        )
    return layers


def _step_axes(
    traced: Curves, titles: tuple[str, str], domain: tuple[float, float], *, signed: bool = False, named: bool = False
) -> tuple[Any, Any]:
    last = max(line[-1][0] for line in traced.runs.values())
    room = last * (1 + NAME_SHARE) if named else last
    x = quantity(
        alt.X,
        "step",
        (0, room),
        title=titles[0],
        values=whole_ticks(last, 4),
        format="~s" if last > 9999 else "d",
    )
    labels = SIGNED if signed else PLAIN
    return x, quantity(
        alt.Y, "value", domain, zero=False, title=titles[1], tickCount=5, titleLimit=210, labelExpr=labels
    )


def _points(line: Line) -> list[dict[str, Any]]:
    return [{"step": step, "value": value} for step, value in line]
