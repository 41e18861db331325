"""What a study can find and what it costs, before any data: its design, its runs, and its plan at scale."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns
from ablate.reporting.estimates import NONE
from prereg import text as words

if TYPE_CHECKING:
    from ablate.api.planning import PlannedRuns
    from ablate.judge.design.characteristics import Design
    from ablate.scale.plan import Line, ScalePlan

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def design_section(design: Design) -> Section:
    """What the registered rule can find with these seeds, and how often it errs, by simulation."""
    from ablate.judge.design.undecidable import obstacle
    from ablate.reporting.sections.design import facts_of, power_figure

    cost = "" if design.cost_s is None else f", {words.duration(design.cost_s)} one after another"
    title = (
        f"{design.study}: {design.test}, alpha {words.compact(design.alpha)}, correction {design.correct}, "
        f"{words.counted(design.n_seeds, 'seed')}, {words.counted(design.n_runs, 'run')}{cost}"
    )
    blocks: list[Block] = [_hypotheses(design), Facts(tuple(facts_of(design)))]
    if design.scenarios:
        blocks.append(_scenarios(design))
    figure = power_figure(design)
    if figure is not None:
        blocks.append(figure)
    blocks += [Paragraph(f"No data can lead to the verdict '{one}'.", "warning") for one in design.unreachable]
    refused = obstacle(design)
    if refused is not None:
        blocks.append(Paragraph(f"Registration will be refused: {refused.found}.", "warning"))
    if design.remedy:
        blocks.append(Paragraph(f"Remedy: {design.remedy}", "lead"))
    return Section("design", title, (*blocks, Facts(tuple(("", note) for note in design.notes))))


def _hypotheses(design: Design) -> Table:
    from ablate.reporting.sections.registration import TERMS, detectable_of, power_cell

    rows = []
    for one in design.hypotheses:
        endings = ["supported"] * one.can_be_supported + ["refuted"] * one.can_be_refuted
        ends = "any outcome" if len(endings) == 2 else " or ".join([*endings, "inconclusive"])
        seeds = NONE if one.seeds_80 is None else str(one.seeds_80)
        rows.append((one.hypothesis, ends, detectable_of(one), power_cell(one), seeds))
    heads = columns("Hypothesis", "Can end as", "Detectable:", "Power:", "Seeds:")
    return Table("", heads, tuple(rows), note=f"{TERMS} Seeds: for power 80% there.")


def _scenarios(design: Design) -> Table:
    rows = []
    for scenario in design.scenarios:
        ends = (*scenario.verdicts, *((scenario.inadmissible,) if scenario.inadmissible else ()))
        verdicts = ", ".join(f"{one.of} {words.share(one.share)}" for one in ends if one.share > 0.0)
        wrong = max((one.share for one in (*scenario.false_supported, *scenario.false_refuted)), default=0.0)
        rows.append((estimates.shown_truth(scenario.name), verdicts, words.share(wrong)))
    return Table(
        "",
        columns("If the truth is", "The study ends as", "False:"),
        tuple(rows),
        note="False: the largest chance, over roles, of any false 'supported' or any false 'refuted'. All of them, "
        "with their simulation errors: ablate design --json.",
    )


def power_section(design: Design) -> Section:
    """Power of every claim that the decision needs, in one line each: what registration rests on."""
    from ablate.reporting.sections.registration import power_cell

    lines = []
    for one in (one for one in design.hypotheses if one.needed):
        power = f"{power_cell(one)}, n = {one.n} seeds, by simulation"
        if one.power_at_smallest is None:
            power = "unknown, because nothing is assumed of the spread of its metric"
        lines.append(Paragraph(f"power of {one.hypothesis}: {power}"))
    return Section("power", "", tuple(lines))


def runs_section(runs: PlannedRuns) -> Section:
    """The runs of a study, arm by arm; of a user's own trainer size and cost are not known."""
    n_seeds = len(runs.seeds)
    extent = f"{words.counted(len(runs.arms), 'arm')} x {words.counted(n_seeds, 'seed')}"
    n_runs = words.counted(len(runs.arms) * n_seeds, "run")
    title = f"{runs.study}: {n_runs}: {extent}, all arms of the first seed first"
    if any(arm.parameters is None for arm in runs.arms):
        return Section("runs", title, (Paragraph("Of a trainer of the study's own, size and cost are not known."),))
    rows = tuple((arm.arm, f"{arm.parameters:,}", f"{arm.tokens:,}", f"{arm.flops:.3e}") for arm in runs.arms)
    heads = columns("Arm", "Parameters:", "Tokens per run:", "FLOPs per run:")
    hint = 'Memory, time and cost:  ablate plan STUDY --scale "on 1 H100" --mfu 0.4'
    return Section("runs", title, (Table("", heads, rows), Paragraph(hint)))


def scale_sections(plan: ScalePlan) -> list[Section]:
    """Memory, time and cost at scale, each number with how it comes about."""
    sections = [
        Section(
            "scale",
            part.title,
            (Table("", columns("", ":", ""), tuple((x.name, quantity(x), x.how) for x in part.lines)),),
        )
        for part in plan.sections
    ]
    notes = Section("notes", "", (Facts(tuple(("", note) for note in plan.notes)),))
    return [Section("title", f"Plan at scale: {plan.title}", ()), *sections, notes]


def scale_json(plan: ScalePlan) -> str:
    """Every number by its key, in bytes, FLOPs, hours and plain shares."""
    numbers = {line.key: {"value": line.value, "how": line.how} for section in plan.sections for line in section.lines}
    return json.dumps({"plan": plan.title, "numbers": numbers, "notes": list(plan.notes)}, indent=2, ensure_ascii=False)


def quantity(line: Line) -> str:
    """A number with its unit, as a person reads it."""
    if line.value is None:
        return "not known"
    if line.unit == "%":
        return f"{line.value:.1%}"
    if line.unit:
        size, prefix = next(((step, name) for step, name in _PREFIXES if line.value >= step), (1.0, ""))
        return f"{line.value / size:,.4g} {prefix}{line.unit}"
    if line.value >= 1e15:
        return f"{line.value:.3e}"
    return f"{line.value:,.0f}" if line.value == round(line.value) or line.value >= 1000 else f"{line.value:,.4g}"
