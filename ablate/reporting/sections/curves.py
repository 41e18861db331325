"""The parts of the report that draw metrics by step, by position, by token class, and of every block.

Description, not inference: the claims that read single steps or blocks are in the findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import fmean
from typing import Any

from ablate.records.evidence import Evidence
from ablate.reporting import arm_charts, estimates
from ablate.reporting.arm_charts import Spread, is_wide, whole_ticks
from ablate.reporting.blocks import Figure, Panel, Section, Table, columns
from ablate.reporting.context import ReportContext
from ablate.reporting.description import Curves, Line, better_in, recorded_metrics, trace, trace_differences
from ablate.reporting.estimates import NONE
from prereg import text as words
from prereg.metrics.catalogue import METRICS, TOKEN_CLASSES

POSITIONS = {
    "val/loss_first_quarter": "first quarter",
    "val/loss_last_quarter": "last quarter",
    "length/loss_beyond": "beyond",
}
"""Metric -> the positions of the window whose mean loss it is, in order."""
RANGE = "from the lowest to the highest run, which is no interval"


def curves_section(context: ReportContext) -> Section | None:
    """Metrics by step; none where there is nothing to draw or nothing may be shown."""
    return context.outcomes("curves", "Curves", _by_step(context))


def _by_step(context: ReportContext) -> Iterator[Figure]:
    arms, baseline = list(context.study.arms), context.study.baseline
    claimed = [finding.metric for finding in context.decision.findings]
    for metric in dict.fromkeys(["val/loss", *claimed]):
        traced = trace(context.evidence, metric, arms)
        if traced is not None:
            yield _curves(context, traced)
        gaps = trace_differences(context.evidence, metric, arms, baseline) if context.study.paired else None
        if gaps is not None:
            yield _difference_curves(context, gaps)
    yield from _by_position(context)


def _curves(context: ReportContext, traced: Curves) -> Figure:
    baseline, metric = context.study.baseline, context.metric(traced.metric)
    floor = context.floors.get(traced.metric)
    domain = arm_charts.domain_of(traced, *([] if floor is None else [floor]))
    panels = []
    for arm in traced.means:
        diverged = [run.seed for run in context.evidence.runs if run.variant == arm and run.status == "diverged"]
        chart = partial(
            arm_charts.curves,
            traced,
            arm,
            labels=context.study.labels,
            baseline=baseline,
            unit=words.unit_of(traced.metric, own=context.study.own_units),
            step_axis=context.study.step_axis,
            floor=floor,
            diverged=diverged,
            domain=domain,
        )
        panels.append(
            Panel(
                f"{_named(context, arm)}{_last(context, traced.means[arm], traced.n[arm])}",
                chart,
                f"{metric} by {context.study.step_name} for {context.arm(arm)}: {words.counted(traced.n[arm], 'run')}, "
                f"their range and their mean"
                f"{_last(context, traced.means[arm], traced.n[arm])}.",
            )
        )
    caption = (
        f"{metric} by {context.study.step_axis}. Thin lines: single seeds; band: {RANGE}; thick line: "
        f"their mean, at the steps that every run of the arm reached; dashed: the mean of {context.arm(baseline)}."
    )
    if floor is not None:
        caption += f" Dotted: {words.compact(round(floor, 4))}, which no model can pass."
    return Figure(f"{metric} by {context.study.step_name}", caption + _thinning(traced), tuple(panels))


def _named(context: ReportContext, arm: str) -> str:
    return f"{context.arm(arm)}{', the baseline' if arm == context.study.baseline else ''}"


def _last(context: ReportContext, mean: Line, n: int) -> str:
    if not mean:
        return f", n = {n}"
    step, value = mean[-1]
    return f": {estimates.significant(value, 4)} at {context.study.step_name} {step}, n = {n}"


def _tested(context: ReportContext) -> str:
    everywhere = all(hypothesis.read == "final" for hypothesis in context.study.hypotheses.values())
    return (
        f"Only the last {context.study.step_name} was tested" if everywhere else "Only what the claims read was tested"
    )


def _difference_curves(context: ReportContext, gaps: Curves) -> Figure:
    baseline, metric = context.arm(context.study.baseline), context.metric(gaps.metric)
    domain = arm_charts.domain_of(gaps, 0.0)
    panels = []
    for arm in gaps.means:
        smallest = _smallest_of(context, arm, gaps.metric)
        unit = words.unit_of(gaps.metric, own=context.study.own_units)
        chart = partial(
            arm_charts.difference_curves,
            gaps,
            arm,
            labels=context.study.labels,
            unit=unit,
            step_axis=context.study.step_axis,
            smallest=smallest,
            domain=domain,
        )
        ends = [line[-1][1] for (name, _), line in gaps.runs.items() if name == arm]
        way, count = better_in(context.study.better(gaps.metric), ends)
        found = f"{way} than {baseline} in {count} of {words.counted(len(ends), 'pair')} at the end"
        panels.append(
            Panel(
                f"{context.arm(arm)}: {found}",
                chart,
                f"{metric} of {context.arm(arm)} minus {baseline} of the same seed, by {context.study.step_name}: "
                f"{found}.",
            )
        )
    caption = (
        f"{metric} minus {baseline} of the same seed, by {context.study.step_name}. Thin lines: single pairs; "
        f"band: {RANGE}; thick line: their mean; grey, where a claim declares one: differences too small to matter. "
        f"{_tested(context)}; the rest is description."
    )
    return Figure(f"{metric} minus {baseline}, seed by seed", caption + _thinning(gaps), tuple(panels))


def _smallest_of(context: ReportContext, arm: str, metric: str) -> float | None:
    for name, claim in context.study.claims.items():
        plain = dict(claim.left) == {arm: 1.0} and dict(claim.right) == {context.study.baseline: 1.0}
        if plain and claim.metric == metric and context.study.hypotheses[name].scale == "raw":
            return context.study.hypotheses[name].smallest
    return None


def _thinning(traced: Curves) -> str:
    if traced.thinned == 1:
        return ""
    return (
        f" Thinned for size: of every {traced.thinned} evaluations a thin line and a band keep the lowest and the "
        "highest, and a mean line keeps the first."
    )


Profile = dict[int, float]


@dataclass(frozen=True)
class Profiles:
    """One metric by block: of every run at its last evaluation, and the mean of every arm there and at its first."""

    metric: str
    """Its name without the number of the block."""
    runs: Mapping[tuple[str, int], Profile]
    last: Mapping[str, Profile]
    first: Mapping[str, Profile]
    first_step: int
    n: Mapping[str, int]


def families(evidence: Evidence) -> dict[str, list[str]]:
    """Metrics of which there is one a block: name without the number -> members, for those of two blocks or more."""
    found: dict[str, list[str]] = {}
    for metric in recorded_metrics(evidence):
        if METRICS.layer(metric) is not None:
            found.setdefault(metric.rpartition("_")[0], []).append(metric)
    return {stem: members for stem, members in found.items() if len(members) > 1}


def profile(evidence: Evidence, stem: str, members: Sequence[str], arms: Sequence[str]) -> Profiles:
    """What runs recorded of every block."""
    frame = evidence.metrics[evidence.metrics["metric"].isin(members)].astype({"variant": str, "metric": str})
    frame["block"] = [METRICS.layer(str(name)) for name in frame["metric"]]
    # A run that diverged has a last evaluation too; the mean of an arm is over the runs that have one.
    ends = frame[frame["step"] == frame.groupby(["variant", "seed"])["step"].transform("max")]
    first_step = int(frame["step"].min())
    begins = frame[frame["step"] == first_step]
    runs = {
        (str(arm), int(str(seed))): _by_block(rows)
        for (arm, seed), rows in ends.groupby(["variant", "seed"], sort=True)
    }
    ordered = {key: runs[key] for arm in arms for key in runs if key[0] == arm}
    return Profiles(
        metric=stem,
        runs=ordered,
        last={
            arm: _mean([one for (name, _), one in ordered.items() if name == arm]) for arm in arms if _has(runs, arm)
        },
        first={
            str(arm): _by_block(rows.groupby("block", as_index=False)["value"].mean())
            for arm, rows in begins.groupby("variant")
        },
        first_step=first_step,
        n={arm: sum(name == arm for name, _ in ordered) for arm in arms},
    )


def by_block_section(context: ReportContext) -> Section | None:
    """Profiles over the blocks; none where no metric of every block was recorded or nothing may be shown."""
    profiles = (
        profile(context.evidence, stem, members, list(context.study.arms))
        for stem, members in families(context.evidence).items()
    )
    blocks = (block for found in profiles for block in (_figure(context, found), _table(found)))
    return context.outcomes("by-block", "From block to block", chain(blocks, _by_class(context)))


def _figure(context: ReportContext, found: Profiles) -> Figure:
    deepest = max(max(one) for one in found.runs.values())
    places = [(block, f"{block:g}") for block in whole_ticks(deepest, 6)]
    spreads = {arm: _spreads([one for (name, _), one in found.runs.items() if name == arm]) for arm in found.last}
    unit = words.unit_of(f"{found.metric}_0")
    title = estimates.with_unit(found.metric, unit)
    baseline = context.study.baseline
    panels = [
        Panel(
            f"First / last: {_ratios(context, found, arms)}",
            partial(
                arm_charts.along,
                {context.arm(arm): spreads[arm] for arm in arms},
                places,
                ("block, from the input", title),
                baseline=context.arm(baseline),
                began={context.arm(arm): found.first[arm] for arm in arms if arm in found.first},
            ),
            f"{found.metric} by block. First / last: {_ratios(context, found, arms)}.",
        )
        for arms in arm_charts.shared(list(found.last), baseline)
    ]
    n = words.listed(f"{context.arm(arm)} {found.n[arm]}" for arm in found.last)
    caption = (
        f"{found.metric} by block, from the input (0) to the output, at the last evaluation. Marks: means over seeds "
        f"(n: {n}); bars: {RANGE}; dotted: the mean at step {found.first_step}, the first evaluation. Over the panel: "
        "the value of the first block over that of the last."
    )
    ends = [value for one in (*found.runs.values(), *found.first.values()) for value in one.values()]
    caption += " The scale is logarithmic." if is_wide(ends) else ""
    return Figure(f"{found.metric} from block to block", caption, tuple(panels))


def _ratios(context: ReportContext, found: Profiles, arms: Sequence[str]) -> str:
    shares = {arm: _shares(found, arm) for arm in arms}
    ratios = {arm: estimates.significant(fmean(one)) if one else NONE for arm, one in shares.items()}
    return "; ".join(f"{context.arm(arm)} {ratio}" for arm, ratio in ratios.items())


def _shares(found: Profiles, arm: str) -> list[float]:
    """First block over last, run by run: a ratio of means would be that of the largest run."""
    return [one[0] / one[max(one)] for (name, _), one in found.runs.items() if name == arm and one[max(one)] != 0.0]


def _spreads(profiles: Sequence[Profile]) -> dict[float, Spread]:
    places = set.intersection(*(set(one) for one in profiles))
    return {float(place): _spread([one[place] for one in profiles]) for place in places}


def _spread(values: Sequence[float]) -> Spread:
    return Spread(fmean(values), min(values), max(values))


def _finals(context: ReportContext, metrics: Mapping[str, str]) -> dict[str, dict[str, list[float]]]:
    """Arm -> place (the value that `metrics` maps a metric to) -> final values of its runs, of recorded metrics."""
    found: dict[str, dict[str, list[float]]] = {}
    for metric, place in metrics.items():
        for (arm, _), value in sorted(context.evidence.final(metric).items()):
            found.setdefault(arm, {}).setdefault(place, []).append(value)
    return {arm: found[arm] for arm in context.study.arms if arm in found}


def _by_position(context: ReportContext) -> Iterator[Figure]:
    found = _finals(context, POSITIONS)
    places = [place for place in POSITIONS.values() if any(place in one for one in found.values())]
    whole = {arm: one for arm, one in found.items() if set(one) == set(places)}
    if len(places) < 2 or not whole:
        return
    baseline = context.study.baseline
    ticks = [(float(at), place) for at, place in enumerate(places)]
    lines = {arm: {float(at): _spread(line[place]) for at, place in enumerate(places)} for arm, line in whole.items()}
    gaps = {arm: estimates.significant(line[1.0].mean - line[0.0].mean) for arm, line in lines.items()}
    panels = []
    for arms in arm_charts.shared(list(whole), baseline):
        said = f"{places[1].capitalize()} minus {places[0]}: " + "; ".join(
            f"{context.arm(arm)} {gaps[arm]}" for arm in arms
        )
        titles = ("positions of the window", "loss (nats/token)")
        drawn = {context.arm(arm): lines[arm] for arm in arms}
        part = partial(arm_charts.along, drawn, ticks, titles, baseline=context.arm(baseline))
        panels.append(Panel(said, part, f"Loss by position in the window. {said}."))
    n = words.listed(f"{context.arm(arm)} {len(next(iter(one.values())))}" for arm, one in whole.items())
    caption = f"Loss by position in the window, at the last step. Marks: means over seeds (n: {n}); bars: {RANGE}."
    if "beyond" in places:
        caption += " Beyond: the positions from the context length to twice it."
    yield Figure("Loss by position", caption, tuple(panels))


def _by_class(context: ReportContext) -> Iterator[Figure]:
    found = _finals(context, {f"embedding/norm_{name}": name.replace("_", " ") for name in TOKEN_CLASSES})
    if not found:
        return
    spreads = {arm: {name: _spread(one) for name, one in classes.items()} for arm, classes in found.items()}
    panels = []
    for arms in arm_charts.shared(list(found), context.study.baseline):
        largest = {arm: max(spreads[arm], key=lambda name: spreads[arm][name].mean) for arm in arms}
        said = "; ".join(f"{context.arm(arm)}: largest of {name}" for arm, name in largest.items())
        part = partial(
            arm_charts.by_class,
            {context.arm(arm): spreads[arm] for arm in arms},
            "embedding/norm",
            baseline=context.arm(context.study.baseline),
        )
        panels.append(Panel(said, part, f"Embedding norm by token class. {said}."))
    n = words.listed(f"{context.arm(arm)} {max(map(len, one.values()))}" for arm, one in found.items())
    caption = (
        f"{METRICS['embedding/norm'].definition[0].upper()}{METRICS['embedding/norm'].definition[1:]}, by the class of "
        f"the token at the position, at the last step. Marks: means over seeds (n: {n}); bars: {RANGE}."
    )
    yield Figure("Embedding norm by token class", caption, tuple(panels))


def _table(found: Profiles) -> Table:
    rows = []
    definition = METRICS[f"{found.metric}_0"].definition.replace("block 0 (from 0)", "a block")
    for arm, line in found.last.items():
        deepest = max(line)
        shares = _shares(found, arm)
        rows.append(
            (
                arm,
                str(deepest + 1),
                estimates.significant(line[0]),
                estimates.significant(line[deepest]),
                estimates.significant(fmean(shares)) if shares else NONE,
                str(found.n[arm]),
            )
        )
    return Table(
        f"{found.metric} of the first and the last block at the last evaluation: means over seeds.",
        columns("Arm", "Blocks:", "First:", "Last:", "First / last:", "n:"),
        tuple(rows),
        note=f"First / last is the mean of the runs' own ratios; below 1, {found.metric} falls towards the input. "
        f"{definition[0].upper()}{definition[1:]}.",
    )


def _by_block(rows: Any) -> Profile:
    return {int(block): float(value) for block, value in sorted(zip(rows["block"], rows["value"], strict=True))}


def _mean(profiles: Sequence[Profile]) -> Profile:
    shared = set.intersection(*(set(one) for one in profiles))
    return {block: fmean(one[block] for one in profiles) for block in sorted(shared)}


def _has(runs: Mapping[tuple[str, int], Profile], arm: str) -> bool:
    return any(name == arm for name, _ in runs)
