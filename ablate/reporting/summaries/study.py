"""Output about a study before any data: `check`, `design`, `plan`, and what `amend` changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table
from ablate.reporting.summaries import tables
from ablate.reporting.summaries.tables import ArmPlan, ClaimPlan
from ablate.reporting.wording import blocks, phrase
from prereg import text as words
from prereg.documents.claims import margin, meanings
from prereg.documents.procedures import errors_held, lost_starts, spike
from prereg.documents.sentences import counted_as, say
from prereg.registry.amendments import affected, keeps_runs
from prereg.registry.register import words_alone
from prereg.registry.registration import Pins
from prereg.rule.divergence import refutable, said_losses
from prereg.study.analysis import in_words
from prereg.study.command import command_line, filled
from prereg.study.designs.per_task import by_family, of_any_task, said_once, tasks_of
from prereg.study.measure import is_folder
from prereg.study.spec import Study

if TYPE_CHECKING:
    from ablate.judge.design.characteristics import Design
    from ablate.judge.design.warnings import DesignWarning
    from ablate.planning import PlannedRuns
    from prereg.registry.ledger_entry import AmendedEntry, Entry


NO_PINS = Pins()


def study_section(study: Study, pins: Pins = NO_PINS) -> Section:
    """What a study promises: arms, claims, errors and its rule as a table; of a command, all that will be started."""
    components, harness, lost = study.components, study.measure.harness, lost_starts(study)
    made = blocks(
        "study",
        runs=0 if study.paired else len(study.judged),
        arms="" if study.paired else say("runs_of_arms", study),
        n_arms=len(study.arms),
        n_seeds=len(study.seeds),
        seeds=words.ranged(study.seeds),
        n_runs=len(study.judged),
        baseline=study.labels.arm(study.baseline),
        test=study.analysis.test,
        alpha=words.compact(study.analysis.alpha),
        gate=in_words(study) if study.gate_steps else "",
        correct=study.analysis.correct,
        **_command(study, pins),
        design="" if components is None else say("design", study),
        reasons=None if components is None else tables.REASONS.of(components.reasons().items()),
        arm_table=replace(arms_table(study), caption=""),
        tuning=say("tuning", study),
        hypotheses=replace(hypotheses_table(study), caption=""),
        claims=[*_claims(study)],
        harness=harness,
        shots="" if harness is None else words.listed(str(n) for n in harness.shots),
        folder=harness is not None and is_folder(harness.tasks),
        rule=tables.RULE.of(study.rule.table()),
        errors=[(f"{scope[0].lower()}{scope[1:]}", text) for scope, text in errors_held(study).items()],
        # The limit in numbers, and how often noise exceeds it, take a search over integrals: `ablate design` has them.
        spike=spike(study) if study.rule.arms_read else "",
        notes=[*([lost] if lost else []), *(counted_as(study, loss) for loss in said_losses(study))],
    )
    return Section("study", phrase("study_parts.title", study.study, study.title), made)


def _claims(study: Study) -> Iterator[dict[str, object]]:
    """What support and refutation of each claim mean; of a family per task, of any task."""
    for label, name in said_once(study).items():
        # Said once for all tasks of a family.
        supported, refuted = (of_any_task(study, label, meaning) for meaning in meanings(study, name))
        tasks = tasks_of(study, label)
        yield {
            "name": f"{study.labels.claim(label)}{'.TASK' * bool(tasks)}",
            "supported": supported,
            "refuted": refuted if refutable(study, name) else "",
            "tasks": tasks,
        }


def _command(study: Study, pins: Pins) -> dict[str, object]:
    """Every word and every file of a user's own trainer, before anything of it is started."""
    if study.trainer != "command":
        return {"command": ""}
    arm = next(iter(study.arms.values()))
    # One command in full, that of the first run: what `run` will start, to the word.
    seed = study.seeds_of(arm.name)[0]
    assert isinstance(arm.config, dict), arm.name
    # Folders are not known before a run: placeholders stand for them.
    own = {"variant": arm.name, "seed": str(seed), "python": "python", "root": "ROOT", "run_dir": "RUN_DIR"}
    return {
        "command": command_line(study.command),
        "first_arm": arm.name,
        "first_seed": seed,
        "first": command_line(tuple(word for word in filled(study.command, own, arm.config) if word is not None)),
        "metrics_file": study.metrics.file,
        "in_root": study.working_directory != "run",
        "scripts": pins.scripts,
        "commits": pins.commits,
        "pins": [
            (kind, pin) for kind, files in (("Code", pins.scripts or ()), ("Data", pins.data_files)) for pin in files
        ],
    }


def notes_section(notes: Sequence[str]) -> Section:
    """Notes on a study, a paragraph each."""
    return Section("notes", "", tuple(Paragraph(note) for note in notes))


def warnings_section(warnings: Sequence[DesignWarning]) -> Section:
    """What is legal in a study and likely a mistake, each with what to type instead."""
    made: list[Block] = []
    for warning in warnings:
        made += [Paragraph(phrase("study_parts.warning", warning.found), "warning"), Facts((("  try", warning.fix),))]
    return Section("warnings", "", tuple(made))


def study_facts(
    study: Study, costs: PlannedRuns, notes: Sequence[str], warnings: Sequence[DesignWarning]
) -> dict[str, object]:
    """A study with its defaults written out, its number of runs, what arms cost, its rule by line, and warnings."""
    from ablate.judge.design.warnings import warnings_as_json

    rule = [
        {"line": row.line, "when": row.when, "verdict": row.verdict, "decides": row.settles, "of": row.of}
        for row in study.rule.table()
    ]
    return {
        "study": study.model_dump(mode="json"),
        "runs": len(study.cells),
        "decision": rule,
        "notes": list(notes),
        "costs": {"arms": [asdict(arm) for arm in costs.arms], "device_hours_from": costs.timed},
        "warnings": warnings_as_json(warnings),
    }


def arms_table(study: Study) -> Table:
    """Every arm, what it changes in the base, and which one is the baseline."""
    rows = []
    for arm in study.arms.values():
        # As it is written in the study's file.
        changes = [*(f"{field} = {json.dumps(value)}" for field, value in arm.overrides.items())]
        changes += _tuned(study, arm.name)
        own = arm.name if study.labels.arms else ""
        used = "baseline" if arm.name == study.baseline else ""
        rows.append(ArmPlan(study.labels.arm(arm.name), own, "; ".join(changes), used))
    return tables.ARMS.of(rows)


def _tuned(study: Study, arm: str) -> list[str]:
    """What a pilot sets in an arm, or is to set; nothing where the arm is not tuned."""
    tune = study.tune
    tried = () if tune is None else tune.of(tuple(study.arms)).get(arm, ())
    if tune is None or not tried:
        return []
    if arm in tune.chosen:
        return [phrase("study_parts.chosen", field, json.dumps(value)) for field, value in tune.chosen[arm].items()]
    return [
        phrase("study_parts.to_choose", field)
        for field in dict.fromkeys(field for setting in tried for field in setting)
    ]


def hypotheses_table(study: Study) -> Table:
    """Every hypothesis with its claim, role, smallest difference that matters and the better direction."""
    return tables.HYPOTHESES.of(_claim_plan(study, label, name) for label, name in said_once(study).items())


def _claim_plan(study: Study, label: str, name: str) -> ClaimPlan:
    tasks, hypothesis, claim = tasks_of(study, label), study.hypotheses[name], study.claims[name]
    written = study.labels.in_claim(of_any_task(study, label, hypothesis.claim))
    return ClaimPlan(
        study.labels.claim(label),
        label if study.labels.claims else "",
        phrase("study_parts.per_task", written, len(tasks)) if tasks else written,
        hypothesis.role,
        margin(claim, hypothesis.smallest, study.unit(name)),
        phrase("tables.better", claim.better),
    )


def design_section(design: Design) -> Section:
    """What the registered rule can find with these seeds, and how often it errs, by simulation."""
    from ablate.judge.design.refusal import obstacle
    from ablate.reporting.sections.design import facts_of, plans_of, power_figure
    from ablate.reporting.tables import SCENARIOS

    cost = "" if design.cost_s is None else words.duration(design.cost_s)
    # Each claim's power, then the whole rule in simulated truths, then what cannot happen, what is refused, and what
    # to do.
    made: list[Block] = [_hypotheses(design), Facts((*facts_of(design), *plans_of(design)))]
    if design.scenarios:
        made.append(SCENARIOS.of(design.scenarios, gate=design.gate))
    figure = power_figure(design)
    if figure is not None:
        made.append(figure)
    made += [Paragraph(phrase("study_parts.unreachable", line), "warning") for line in design.unreachable]
    refused = obstacle(design)
    if refused is not None:
        made.append(Paragraph(phrase("study_parts.refused", refused.found), "warning"))
    if design.remedy:
        made.append(Paragraph(phrase("study_parts.remedy", design.remedy), "lead"))
    notes = Facts(tuple(("", note) for note in design.notes))
    return Section("design", phrase("study_parts.design_title", design, cost), (*made, notes))


def _hypotheses(design: Design) -> Table:
    from ablate.reporting.tables import DESIGN_TO_COME, HypothesisPlan

    rows = []
    for label, members in by_family(design.hypotheses).items():
        shown = label if len(members) == 1 else phrase("study_parts.least_power", label, len(members))
        # Of a family per task the weakest, as registration refuses by it.
        rows.append(HypothesisPlan(min(members, key=lambda member: member.power or 0.0), shown))
    return DESIGN_TO_COME.of(rows)


def power_section(design: Design) -> Section:
    """Power of every claim that the decision needs, in one line each: what registration rests on."""
    lines = []
    for label, members in by_family(plan for plan in design.hypotheses if plan.needed).items():
        # Of a family per task the weakest: registration refuses by it.
        plan = min(members, key=lambda plan: plan.power or 0.0)
        power = "" if plan.power is None else estimates.power_at(plan.power, plan.effect)
        lines.append(Paragraph(phrase("study_parts.power", label, len(members), power, plan.n)))
    return Section("power", "", tuple(lines))


def planned_runs_section(runs: PlannedRuns) -> Section:
    """The runs of a study, and what they cost, arm by arm."""
    each = []
    if len(runs.cells) != len(runs.arms) * len(runs.seeds):
        # Arms with seeds of their own: each has its number of runs.
        counts = ((arm.arm, sum(name == arm.arm for name, _ in runs.cells)) for arm in runs.arms)
        each = [phrase("study_parts.runs_of", n, arm) for arm, n in counts]
    title = phrase("study_parts.runs_title", runs.study, len(runs.cells), len(runs.arms), len(runs.seeds), each)
    return Section("runs", title, (*map(Paragraph, runs.about), *arm_costs_section(runs).blocks))


def arm_costs_section(runs: PlannedRuns) -> Section:
    """Size, FLOPs and device-hours of every arm; ? is not known, and what is known of no arm has no column."""
    hours = [arm.device_hours for arm in runs.arms if arm.device_hours is not None]
    flops = any(arm.flops is not None for arm in runs.arms)
    note = phrase("study_parts.costs", flops, sum(hours) if hours else None, runs.timed)
    return Section("costs", "", (tables.COSTS.of(runs.arms), Paragraph(note)))


def amendment_section(study: Study, registered: Sequence[Entry], amendment: AmendedEntry) -> Section:
    """What an amendment changes or would change, what was known by then, and what it makes exploratory."""
    # What it makes exploratory follows from the fields that differ and from what was known by then.
    exploratory, value = affected(study, [amendment]), estimates.value
    made = blocks(
        "amendment",
        changes=[
            phrase("study_parts.changed", change.field, value(change.registered), value(change.now))
            for change in amendment.differences
        ],
        found=exploratory,
        stable=[f"stable({arm})" for arm in exploratory.arms],
        n_seeds=study.n_seeds,
        failed=amendment.failed_runs,
        words_alone=words_alone(amendment.differences),
        after_evidence=amendment.after_evidence,
        keeps_runs=keeps_runs(amendment.differences),
        chain=[entry.registration[:8] for entry in registered],
        written=bool(amendment.registration),
    )
    return Section("amendment", phrase("study_parts.amendment_title", study.study, amendment), made)
