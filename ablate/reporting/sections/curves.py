"""Sections of curves: the claimed metrics by step, and the diagnostics that the study asks for.

Description, not inference: what was tested is in the findings. Every figure here is `charts.lines` over a frame of
`description`; the diagnostics are those of `report: {show: [...]}`, a chart each and one table for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import pandas as pd

from ablate.judge.design.retrospective import design_in_lock
from ablate.reporting import estimates, tables
from ablate.reporting.blocks import Block, Figure, Panel, Paragraph, Section
from ablate.reporting.charts import Extent, axis_range, lines, shared
from ablate.reporting.context import ReportContext
from ablate.reporting.description import LINES, at_end, by_bin, by_block, by_step, differences_by_step, summarise_arms
from ablate.reporting.sections.design import power_figure
from ablate.reporting.tables import ValueRow
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.metrics.catalogue import METRICS, TOKEN_CLASSES
from prereg.study.presentation import DIAGNOSTICS

POSITIONS = {
    "val/loss_first_quarter": "first quarter",
    "val/loss_last_quarter": "last quarter",
    "length/loss_beyond": "beyond the context",
}
"""Metric -> the positions of the window whose mean loss it is, in order."""
CONFIDENCE, ACCURACY = "calibration/bin_confidence", "calibration/bin_accuracy"


def curves_section(context: ReportContext) -> Section | None:
    """The claimed metrics by step; none where there is nothing to draw or nothing may be shown."""
    return context.outcomes("curves", "Curves", _claimed(context))


def diagnostics_section(context: ReportContext) -> Section | None:
    """What the study asks its report to show; none where it asks for nothing, or nothing may be shown."""
    return context.outcomes("diagnostics", "Diagnostics", _diagnostics(context))


def claimed_metrics(context: ReportContext) -> list[str]:
    """The metrics of the claims, in the order of the study."""
    return [*dict.fromkeys(claim.metric for claim in context.study.claims.values())]


def _claimed(context: ReportContext) -> Iterator[Figure]:
    """One figure, a panel for each claimed metric (several where arms are many)."""
    figures = [figure for metric in claimed_metrics(context) for figure in _by_step(context, metric)]
    if figures:
        panels = tuple(panel for figure in figures for panel in figure.panels)
        # Claimed metrics share a caption, so they are panels of one figure.
        yield figures[0] if len(figures) == 1 else replace(figures[0], name=phrase("curves.claimed"), panels=panels)


def _diagnostics(context: ReportContext) -> Iterator[Block]:
    recorded: list[str] = []
    for name in context.study.report.show:
        if name in DIAGNOSTICS:
            figures = [*_DRAWN[name](context)]
        elif members := by_block(context.evidence).get(name):
            figures = [*_by_block(context, name, members)]
        else:
            recorded.append(name)
            figures = [*_by_step(context, name)]
        yield from figures
        # Asked for and not there is said: an absence must not look like a curve without events.
        if not figures and not summarise_arms(context.evidence, name, list(context.study.arms)):
            yield Paragraph(phrase("curves.not_recorded", name), "warning")
    if recorded and (rows := [*_final(context, recorded)]):
        yield tables.VALUES.of(rows, step=context.study.step_name)


def _final(context: ReportContext, metrics: Sequence[str]) -> Iterator[ValueRow]:
    """A row for each metric and arm that recorded it."""
    for metric in metrics:
        summaries = summarise_arms(context.evidence, metric, list(context.study.arms))
        decimals = estimates.decimals_of((summary.sd for summary in summaries), [summary.mean for summary in summaries])
        unit = words.unit_of(metric, own=context.study.own_units)
        for summary in summaries:
            yield ValueRow(context.metric(metric), context.arm(summary.arm), summary, decimals, unit)


def _by_step(context: ReportContext, metric: str) -> Iterator[Figure]:
    study, evidence = context.study, context.evidence
    frame = by_step(evidence, metric, list(study.arms))
    if frame.empty:
        return
    name, floor = context.metric(metric), context.floors.get(metric)
    ends = evidence.lines(metric)
    # Where a run diverged its line ends: marked, or the mean would seem to go on over fewer runs.
    stopped = [(run, ends[run.cell]) for run in evidence.runs if run.status == "diverged" and run.cell in ends]
    marks = {
        arm: [
            (float(at[-1]), float(values[-1]), phrase("charts.diverged"))
            for run, (at, values) in stopped
            if run.variant == arm
        ]
        for arm in study.arms
    }
    caption = phrase("curves.by_step", study.step_axis, bool(context.floors))
    yield _figure(
        context,
        frame,
        name=phrase("curves.by_step_name", name, study.step_name),
        caption=caption,
        titles=(study.step_axis, estimates.with_unit(name, words.unit_of(metric, own=study.own_units))),
        marks=marks,
        level=None if floor is None else (floor, phrase("curves.floor", words.compact(round(floor, 4)))),
    )


def _differences(context: ReportContext) -> Iterator[Figure]:
    study = context.study
    baseline = context.arm(study.baseline)
    for metric in claimed_metrics(context) if study.paired else ():
        frame = differences_by_step(context.evidence, metric, list(study.arms), study.baseline)
        if frame.empty:
            continue
        name = context.metric(metric)
        # What was tested is one point of these curves (or a mean over some): the caption says which.
        read_last = all(hypothesis.read == "final" for hypothesis in study.hypotheses.values())
        caption = phrase("curves.differences", name, baseline, study.step_axis, study.step_name, read_last)
        titles = (
            study.step_axis,
            estimates.with_unit(phrase("curves.difference_in", name), words.unit_of(metric, own=study.own_units)),
        )
        # One zone a panel: of several margins the largest.
        zone = max((_margin(context, arm, metric) for arm in study.arms), default=0.0)
        yield _figure(
            context,
            frame,
            name=phrase("curves.minus", name, baseline),
            caption=caption,
            titles=titles,
            signed=True,
            zone=zone,
        )


def _margin(context: ReportContext, arm: str, metric: str) -> float:
    """The margin of a plain claim that compares an arm with the baseline; 0 where there is none."""
    study = context.study
    for name, claim in study.claims.items():
        # A margin of a mean of arms, or of logarithms, is no margin of this difference.
        plain = dict(claim.left) == {arm: 1.0} and dict(claim.right) == {study.baseline: 1.0}
        if plain and claim.metric == metric and study.hypotheses[name].scale == "raw":
            return study.hypotheses[name].smallest
    return 0.0


def _by_block(context: ReportContext, stem: str, members: Mapping[str, float]) -> Iterator[Figure]:
    frame = at_end(context.evidence, members, list(context.study.arms))
    if frame.empty:
        return
    definition = METRICS[f"{stem}_0"].definition.replace("block 0 (from 0)", "a block")
    caption = phrase("curves.by_block", stem, context.study.step_name, definition)
    yield _figure(
        context,
        frame,
        name=phrase("curves.by_block_name", stem),
        caption=caption,
        titles=(phrase("curves.block"), estimates.with_unit(stem, words.unit_of(f"{stem}_0"))),
        band=False,
    )


def _at_places(
    context: ReportContext, places: Mapping[str, str], *, name: str, caption: str, titles: tuple[str, str]
) -> Iterator[Figure]:
    """Final values at named places, as far as two of them were recorded."""
    arms = list(context.study.arms)
    recorded = {metric: place for metric, place in places.items() if summarise_arms(context.evidence, metric, arms)}
    if len(recorded) < 2:
        return
    # Places have names and no distances: they stand at 0, 1, 2 ...
    frame = at_end(context.evidence, {metric: float(at) for at, metric in enumerate(recorded)}, arms)
    ticks = {float(at): place for at, place in enumerate(recorded.values())}
    caption_at = phrase("curves.at_places", caption, context.study.step_name)
    yield _figure(context, frame, name=name, caption=caption_at, titles=titles, ticks=ticks, band=False)


def _positions(context: ReportContext) -> Iterator[Figure]:
    caption, titles = phrase("curves.positions"), (phrase("curves.position"), phrase("curves.loss"))
    yield from _at_places(context, POSITIONS, name=phrase("curves.positions_name"), caption=caption, titles=titles)


def _token_classes(context: ReportContext) -> Iterator[Figure]:
    places = {f"embedding/norm_{name}": name.replace("_", " ") for name in TOKEN_CLASSES}
    caption, titles = phrase("curves.token_classes"), (phrase("curves.token_class"), "embedding/norm")
    yield from _at_places(context, places, name=phrase("curves.token_classes_name"), caption=caption, titles=titles)


def _reliability(context: ReportContext) -> Iterator[Figure]:
    """Accuracy over mean confidence, bin by bin (DeGroot and Fienberg 1983), of the bins that hold tokens."""
    rows: list[tuple[str, float, float, float, float, int]] = []
    for metric, number in by_bin(context.evidence).get(ACCURACY, {}).items():
        accuracy = context.evidence.final(metric)
        confidence = context.evidence.final(f"{CONFIDENCE}_{number:g}")
        for arm in context.study.arms:
            # Of a run that lacks one of the two, the other has no place on the curve.
            seeds = [cell for cell in sorted(accuracy) if cell[0] == arm and cell in confidence]
            if seeds:
                values = [accuracy[cell] for cell in seeds]
                x = fmean(confidence[cell] for cell in seeds)
                rows.append((arm, x, fmean(values), min(values), max(values), len(values)))
    if not rows:
        return
    order = {arm: at for at, arm in enumerate(context.study.arms)}
    frame = pd.DataFrame(sorted(rows, key=lambda row: (order[str(row[0])], row[1])), columns=list(LINES))
    caption = phrase("curves.reliability", context.study.step_name)
    yield _figure(
        context,
        frame,
        name=phrase("curves.reliability_name"),
        caption=caption,
        titles=(phrase("curves.confidence"), phrase("curves.accuracy")),
        band=False,
        diagonal=True,
    )


def _cost(context: ReportContext) -> Iterator[Figure]:
    """The first claimed metric over the seconds of training, of arms whose runs recorded both."""
    metric = claimed_metrics(context)[0]
    runs = [run for run in context.evidence.runs if run.status == "done" and run.train_s > 0.0]
    seconds = pd.DataFrame([(run.variant, run.train_s) for run in runs], columns=["arm", "x"])
    frame = at_end(context.evidence, {metric: 0.0}, [arm for arm in context.study.arms if arm in set(seconds["arm"])])
    if len(frame) < 2:
        return
    frame = frame.assign(x=frame["arm"].map(seconds.groupby("arm")["x"].mean()))
    name = context.metric(metric)
    caption = phrase("curves.cost", name, context.study.step_name)
    unit = words.unit_of(metric, own=context.study.own_units)
    titles = (phrase("curves.seconds"), estimates.with_unit(name, unit))
    yield _figure(context, frame, name=phrase("curves.cost_name", name), caption=caption, titles=titles, band=False)


def _power(context: ReportContext) -> Iterator[Figure]:
    design = design_in_lock(context.registration) if context.registration.design is not None else None
    figure = None if design is None else power_figure(design)
    if figure is not None:
        yield figure


_DRAWN = {
    "differences": _differences,
    "positions": _positions,
    "token_classes": _token_classes,
    "reliability": _reliability,
    "cost": _cost,
    "power": _power,
}
"""Diagnostic of `prereg.study.presentation` -> its figures."""
assert _DRAWN.keys() == DIAGNOSTICS.keys()


def _figure(
    context: ReportContext,
    frame: pd.DataFrame,
    *,
    name: str,
    caption: str,
    titles: tuple[str, str],
    ticks: Mapping[float, str] | None = None,
    signed: bool = False,
    marks: Mapping[str, Sequence[tuple[float, float, str]]] | None = None,
    level: tuple[float, str] | None = None,
    **how: Any,
) -> Figure:
    """A figure of a frame of lines: one panel, or several where arms are many, all on the same scales."""
    ends = [*frame["low"], *frame["high"]] + ([] if level is None else [level[0]]) + [0.0] * signed
    if how.get("diagonal"):
        x, y = Extent(titles[0], (0.0, 1.0)), Extent(titles[1], (0.0, 1.0))
    else:
        x = Extent(titles[0], (float(frame["x"].min()), float(frame["x"].max())), ticks or {})
        # All at one place: a range of no width has no scale.
        x = x if x.domain[0] < x.domain[1] else axis_range(titles[0], [*frame["x"]])
        y = axis_range(titles[1], ends, signed=signed)
    # n differs from place to place where places are metrics: the largest of an arm is stated.
    sizes = frame.groupby("arm", sort=False)["n"].max()
    n = [f"{context.arm(str(arm))} {size}" for arm, size in sizes.items()]
    thinned = int(frame.attrs.get("thinned", 1))
    caption = phrase("curves.caption", caption, thinned, y.logarithmic, n)
    panels = []
    # Every panel has the scales of all, so that panels can be compared.
    for arms in shared([str(arm) for arm in sizes.index], context.study.baseline):
        part = frame[frame["arm"].isin(arms)]
        last = part.groupby("arm", sort=False).last()
        ends_of_lines = [(context.arm(arm), words.significant(float(last["mean"][arm]), 4)) for arm in arms]
        place = "" if ticks else words.significant(float(part["x"].max()), 4)
        title, shown = (phrase(f"curves.{kind}", name, ends_of_lines, titles[0], place) for kind in ("panel", "shown"))
        drawing = partial(
            lines,
            part.assign(arm=part["arm"].map(context.arm)),
            x,
            y,
            baseline=context.arm(context.study.baseline),
            marks=[mark for arm in arms for mark in (marks or {}).get(arm, ())],
            level=level,
            **how,
        )
        panels.append(Panel(title, drawing, shown))
    return Figure(name, caption, tuple(panels))
