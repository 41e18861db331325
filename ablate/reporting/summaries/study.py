"""A study before any data: as its file declares it, what it can find, its runs and their cost, and its amendments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns, table_of
from ablate.reporting.estimates import NONE
from prereg import text as words
from prereg.documents.claims import margin, meanings
from prereg.documents.procedures import errors_held, lost_starts, spike
from prereg.documents.sentences import counted_as, say
from prereg.registry.amendments import Amendment, affected, keeps_runs
from prereg.registry.register import words_alone
from prereg.rule.divergence import refutable, said_losses
from prereg.study.command import ScriptPin, command_line, filled
from prereg.study.designs.gate import in_words
from prereg.study.designs.per_task import by_family, of_any_task, said_once, tasks_of
from prereg.study.designs.trends import weights_in_words
from prereg.study.measure import is_folder
from prereg.study.spec import Study

if TYPE_CHECKING:
    from ablate.judge.design.characteristics import Design
    from ablate.judge.design.warnings import DesignWarning
    from ablate.planning import PlannedRuns
    from prereg.registry.ledger_entry import Entry


def study_section(study: Study, scripts: Sequence[ScriptPin] = (), data: Sequence[ScriptPin] = ()) -> Section:
    """What a study promises: arms, claims, errors and its rule as a table; of a command, all that will be started."""
    runs = (
        f"{words.counted(len(study.arms), 'arm')} x {words.counted(len(study.seeds), 'seed')} "
        f"({words.ranged(study.seeds)}) = {words.counted(len(study.judged), 'run')}"
    )
    if not study.paired:
        runs = f"{words.counted(len(study.judged), 'run')} without pairs: {say('runs_of_arms', study)}"
    extent = (
        f"{runs}; "
        f"baseline {study.labels.arm(study.baseline)}; "
        f"{study.analysis.test}, alpha {words.compact(study.analysis.alpha)}, "
        f"correction {'gate' if study.gate_steps else study.analysis.correct}"
    )
    blocks: list[Block] = [Paragraph(extent)]
    if study.gate_steps:
        blocks.append(Paragraph(f"gate: {in_words(study)}"))
    if study.trainer == "command":
        blocks += _command(study, scripts, data)
    blocks += _components(study)
    blocks += [replace(arms_table(study), caption="")]
    blocks += [Paragraph(say("tuning", study))] if study.tune is not None else []
    blocks += [replace(hypotheses_table(study), caption="")]
    for label, name in said_once(study).items():
        supported, refuted = (of_any_task(study, label, said) for said in meanings(study, name))
        tasks = tasks_of(study, label)
        of_one = f"{study.labels.claim(label)}{'.TASK' * bool(tasks)}"
        blocks.append(Paragraph(f"{of_one} supported: {supported}."))
        if refutable(study, name):
            blocks.append(Paragraph(f"{of_one} refuted: {refuted}."))
        if tasks:
            family = f"{of_one}: {len(tasks)} hypotheses, a family of their own, corrected over the tasks"
            blocks.append(Paragraph(f"{family}: {', '.join(tasks)}."))
    blocks += map(Paragraph, _own_code(study))
    rows = tuple((str(row.line), row.when, row.verdict, f"{row.settles:,} of {row.of:,}") for row in study.rule.table())
    decides = (
        "Decides: how many of all outcome combinations the line decides. Every combination has a line, and every line "
        "can decide."
    )
    heads = columns("Line:", "When", "Verdict", "Decides:")
    errors = tuple(("", f"{scope[0].lower()}{scope[1:]}: {text}.") for scope, text in errors_held(study).items())
    blocks += [Table("", heads, rows, note=decides)]
    blocks += [Paragraph("Errors held:"), Facts(errors)]
    lost = lost_starts(study)
    notes = [*([lost] if lost else []), *(counted_as(study, said) for said in said_losses(study))]
    facts = [("Note", f"{note}.") for note in notes]
    if study.rule.arms_read:
        # The limit in numbers, and how often noise exceeds it, take a search over integrals: `ablate design` has them.
        unstable = f"a run is unstable if a training loss is {spike(study)}; the limit: ablate design"
        facts.insert(0, ("Stability", f"{unstable}."))
    return Section("study", f"{study.study}: {study.title}", (*blocks, Facts(tuple(facts))))


def warnings_section(warnings: Sequence[DesignWarning]) -> Section:
    """What is legal in a study and likely a mistake, each with what to type instead."""
    blocks: list[Block] = []
    for one in warnings:
        blocks += [Paragraph(f"Warning: {one.found}.", "warning"), Facts((("  try", one.fix),))]
    return Section("warnings", "", tuple(blocks))


def study_facts(
    study: Study, costs: PlannedRuns, notes: Sequence[str], warnings: Sequence[DesignWarning]
) -> dict[str, object]:
    """A study with its defaults written out, its number of runs, what arms cost, its rule by line, and warnings."""
    from ablate.judge.design.warnings import as_json

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
        "warnings": as_json(warnings),
    }


def arms_table(study: Study) -> Table:
    """Every arm, what it changes in the base, and which one is the baseline."""
    rows = []
    for arm in study.arms.values():
        moved = "; ".join(
            [*(f"{field} = {json.dumps(value)}" for field, value in arm.overrides.items()), *_tuned(study, arm.name)]
        )
        ids = [arm.name] * bool(study.labels.arms)
        used = "baseline" if arm.name == study.baseline else ""
        rows.append((study.labels.arm(arm.name), *ids, moved or "the base, unchanged", used))
    return Table(
        "Arms and what each changes in the base configuration.",
        columns("Arm", *["Id"] * bool(study.labels.arms), "Changes", "Used as"),
        tuple(rows),
    )


def _tuned(study: Study, arm: str) -> list[str]:
    """What a pilot sets in an arm, or is to set; nothing where the arm is not tuned."""
    tune = study.tune
    tried = () if tune is None else tune.of(tuple(study.arms)).get(arm, ())
    if tune is None or not tried:
        return []
    if arm in tune.chosen:
        return [f"{field} = {json.dumps(value)} (chosen by the pilot)" for field, value in tune.chosen[arm].items()]
    return [f"{field}: chosen by the pilot" for field in dict.fromkeys(field for one in tried for field in one)]


def hypotheses_table(study: Study) -> Table:
    """Every hypothesis with its claim, role, smallest difference that matters and the better direction."""

    shown = said_once(study)

    def smallest(label: str) -> str:
        name = shown[label]
        return margin(study.claims[name], study.hypotheses[name].smallest, study.unit(name))

    def claim(label: str) -> str:
        tasks = tasks_of(study, label)
        said = study.labels.in_claim(of_any_task(study, label, study.hypotheses[shown[label]].claim))
        return f"{said}, per task ({len(tasks)})" if tasks else said

    trends = dict.fromkeys(
        weights_in_words(claim.trend, study.factors) for claim in study.claims.values() if claim.trend is not None
    )
    return table_of(
        shown,
        "Hypotheses, in the registered words.",
        {
            "Hypothesis": study.labels.claim,
            **({"Id": str} if study.labels.claims else {}),
            "Claim": claim,
            "Role": lambda label: study.hypotheses[shown[label]].role,
            "Smallest difference that matters": smallest,
            "Better": lambda label: study.claims[shown[label]].better.replace("neither", "neither way"),
        },
        note="; ".join(trends),
    )


def _components(study: Study) -> Iterator[Block]:
    """The design of a component ablation, and the reason of each arm."""
    if study.components is None:
        return
    yield Paragraph(say("design", study))
    yield Table("", columns("Arm", "Reason"), tuple(study.components.reasons().items()))


def _command(study: Study, scripts: Sequence[ScriptPin], data: Sequence[ScriptPin]) -> Iterator[Block]:
    """Every word and every file of a user's own trainer, before anything of it is started."""
    arm = next(iter(study.arms.values()))
    seed = study.seeds_of(arm.name)[0]
    assert isinstance(arm.config, dict), arm.name
    own = {"variant": arm.name, "seed": str(seed), "python": "python", "root": "ROOT", "run_dir": "RUN_DIR"}
    first = tuple(word for word in filled(study.command, own, arm.config) if word is not None)
    yield Paragraph("Runs this command, without a shell: " + command_line(study.command))
    yield Paragraph(f"For {arm.name}, seed {seed}: " + command_line(first))
    start = "" if study.working_directory == "run" else " It starts in the root, the pinned code as a private copy."
    yield Paragraph(f"Each run in a directory of its own; its metrics are read from {study.metrics.file} there.{start}")
    if not scripts:
        yield Paragraph("No file of its code is pinned: no word names a file under the root, and there is no code:")
    for kind, pins in (("Code", scripts), ("Data", data)):
        yield from (Paragraph(f"{kind}, to be pinned: {pin.path}, sha256 {pin.sha256[:12]}") for pin in pins)


def _own_code(study: Study) -> Iterator[str]:
    """Tasks, checks and metrics that the study brings, and when each is executed."""
    if study.measure.harness is not None:
        harness = study.measure.harness
        shots = words.listed(str(n) for n in harness.shots)
        code = "; *.yaml there may bring code, which register and run execute" * is_folder(harness.tasks)
        items = words.counted(harness.items_per_task, "item")
        yield (
            f"Evaluated after each run: {harness.tasks}, the first {items} of each task, examples in the prompt: "
            f"{shots}{code}."
        )
    for check in study.checks:
        means = {"inadmissible": "no verdict", "deviation": "a deviation", "note": "a remark"}[check.consequence]
        limit = f"within {words.compact(check.limit_s)} s"
        yield f"Own check {check.name}: {check.entry_point}, executed by decide {limit}; if it fails, {means}."
    for metric in study.measure.own:
        when = "at the last step" if metric.at_end else "at every evaluation"
        limit = f"within {words.compact(metric.limit_s)} s, or the run fails"
        yield f"Own metric {metric.name}: {metric.entry_point}, executed by run {when}, {limit}."


def design_section(design: Design) -> Section:
    """What the registered rule can find with these seeds, and how often it errs, by simulation."""
    from ablate.judge.design.refusal import obstacle
    from ablate.reporting.sections.design import facts_of, plans_of, power_figure

    cost = "" if design.cost_s is None else f", {words.duration(design.cost_s)} one after another"
    title = (
        f"{design.study}: {design.test}, alpha {words.compact(design.alpha)}, correction {design.correct}, "
        f"{words.counted(design.n_seeds, 'seed')}, {words.counted(design.n_runs, 'run')}{cost}"
    )
    blocks: list[Block] = [_hypotheses(design), Facts((*facts_of(design), *plans_of(design)))]
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
    from ablate.reporting.sections.registration import TERMS, detectable_of

    rows = []
    for label, members in by_family(design.hypotheses).items():
        one = min(members, key=lambda one: one.power or 0.0)
        endings = ["supported"] * one.can_be_supported + ["refuted"] * one.can_be_refuted
        ends = "any outcome" if len(endings) == 2 else " or ".join([*endings, "inconclusive"])
        seeds = NONE if one.seeds_80 is None else str(one.seeds_80)
        shown = label if len(members) == 1 else f"{label}, per task ({len(members)}), least power"
        rows.append((shown, ends, detectable_of(one), estimates.power_at(one.power, one.effect), seeds))
    heads = columns("Hypothesis", "Can end as", "Detectable:", "Power:", "Seeds:")
    return Table("", heads, tuple(rows), note=f"{TERMS} Seeds: for power 80% there.")


def _scenarios(design: Design) -> Table:
    from ablate.reporting.sections.design import said_bound

    rows = []
    for scenario in design.scenarios:
        ends = (*scenario.verdicts, *((scenario.inadmissible,) if scenario.inadmissible else ()))
        verdicts = ", ".join(f"{one.of} {words.share(one.share)}" for one in ends if one.share > 0.0)
        wrong = max((*scenario.false_supported, *scenario.false_refuted), key=lambda one: one.share, default=None)
        shown = NONE if wrong is None else words.share(wrong.share)
        if wrong is not None and wrong.at_most is not None:
            shown = said_bound(wrong.at_most)
        rows.append((scenario.name, verdicts, shown))
    over = "over the gate and what it leaves out" if design.gate else "over roles"
    return Table(
        "",
        columns("If the truth is", "The study ends as", "False:"),
        tuple(rows),
        note=f"False: the largest chance, {over}, of any false 'supported' or any false 'refuted'. Every claim true: "
        "each at the effect where its power is stated. All chances, with simulation errors: ablate design --json.",
    )


def power_section(design: Design) -> Section:
    """Power of every claim that the decision needs, in one line each: what registration rests on."""
    lines = []
    for label, members in by_family(one for one in design.hypotheses if one.needed).items():
        one = min(members, key=lambda one: one.power or 0.0)
        power = f"{estimates.power_at(one.power, one.effect)}, n = {one.n} seeds, by simulation"
        if one.power is None:
            power = "unknown, because nothing is assumed of the spread of its metric"
        of = label if len(members) == 1 else f"{label}, the task with least of {len(members)}"
        lines.append(Paragraph(f"power of {of}: {power}"))
    return Section("power", "", tuple(lines))


def runs_section(runs: PlannedRuns) -> Section:
    """The runs of a study, and what they cost, arm by arm."""
    n_seeds = len(runs.seeds)
    extent = f"{words.counted(len(runs.arms), 'arm')} x {words.counted(n_seeds, 'seed')}"
    n_runs = words.counted(len(runs.cells), "run")
    if len(runs.cells) != len(runs.arms) * n_seeds:
        each = [f"{sum(name == arm.arm for name, _ in runs.cells)} of {arm.arm}" for arm in runs.arms]
        extent = words.listed(each)
    title = f"{runs.study}: {n_runs}: {extent}, all arms of the first seed first"
    return Section("runs", title, (*map(Paragraph, runs.about), *costs_section(runs).blocks))


def costs_section(runs: PlannedRuns) -> Section:
    """Size, FLOPs and device-hours of every arm; ? is not known, and what is known of no arm has no column."""

    def cell(value: float | None, form: str = ",") -> str:
        return "?" if value is None else format(value, form)

    by_head: dict[str, list[str]] = {
        "Arm": [arm.arm for arm in runs.arms],
        "Runs:": [str(arm.runs) for arm in runs.arms],
        "Parameters:": [cell(arm.parameters) for arm in runs.arms],
        "Tokens a run:": [cell(arm.tokens) for arm in runs.arms],
        "FLOPs a run:": [cell(arm.flops, ".3e") for arm in runs.arms],
        "Device-hours:": [cell(arm.device_hours, ".3g") for arm in runs.arms],
    }
    known = {head: cells for head, cells in by_head.items() if set(cells) != {"?"}}
    rows = tuple(zip(*known.values(), strict=True))
    notes = ["FLOPs: 6 N D (N parameters, D tokens)."] if any(arm.flops is not None for arm in runs.arms) else []
    hours = [arm.device_hours for arm in runs.arms if arm.device_hours is not None]
    if hours:
        notes.append(f"Device-hours: {sum(hours):.3g} in all, from {runs.timed}.")
    else:
        notes.append("Device-hours: unknown; ablate try measures a run, and assume.seconds_per_run states it.")
    return Section("costs", "", (Table("", columns(*known), rows), Paragraph(" ".join(notes))))


KEPT = "its runs are kept, with every look, failure and lost start: nothing that they depend on is changed"
MADE_ANEW = (
    "all runs are made anew; one that is made again with the same configuration, code, data and seed must have the "
    "outcome that was sealed, or there is no verdict"
)


def amendment_section(study: Study, registered: Sequence[Entry], amendment: Amendment) -> Section:
    """What an amendment changes or would change, what was known by then, and what it makes exploratory."""
    found = affected(study, [amendment])
    lines = []
    if found.hypotheses:
        lines.append(f"exploratory from now on: {words.listed(found.hypotheses)}; no verdict rests on them")
    if found.arms:
        lines.append(f"no verdict rests on {words.listed(f'stable({arm})' for arm in found.arms)} either")
    if found.verdict:
        lines.append("no verdict will be given: a rule chosen after evidence decides nothing")
    if lines:
        fresh = f"seeds: fresh {study.n_seeds}"
        lines.append(f"to decide all the same: copy the study under another name, with seeds nobody has seen ({fresh})")
    if amendment.failed_runs:
        lines.append(f"{words.counted(amendment.failed_runs, 'run')} failed by then and left no contrast: no evidence")
    if words_alone(amendment.differences):
        lines.append("words alone: runs and verdict are kept, and the report names the change")
    else:
        if amendment.after_evidence:
            lines.append(KEPT if keeps_runs(amendment.differences) else MADE_ANEW)
        chain = "registrations: " + " -> ".join(one.registration[:8] for one in registered)
        lines.append(chain if amendment.registration else "nothing is written yet")
    value = estimates.value
    changes = tuple(("", f"{one.field}: {value(one.registered)} -> {value(one.now)}") for one in amendment.differences)
    done = f"amended {study.study}: {amendment.previous[:8]} is now {amendment.registration[:8]}"
    what = done if amendment.registration else f"an amendment of {study.study}, {amendment.previous[:8]}"
    title = f"{what}; evidence by {'then' if amendment.registration else 'now'}: {amendment.evidence}"
    return Section("amendment", title, (Facts(changes), *map(Paragraph, lines)))
