"""A study as its file declares it, before anything of it is registered or started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from ablate.reporting import text as words
from ablate.reporting.screen import new_table, put_row, say, show_table
from prereg.documents.procedures import can_be_refuted, errors_held, lost_starts, meanings
from prereg.rule.divergence import said_losses
from prereg.study.command import ScriptPin, command_line, filled
from prereg.study.measure import is_folder

if TYPE_CHECKING:
    from prereg.study.spec import Study


def print_check(
    console: Console, study: Study, scripts: Sequence[ScriptPin] = (), data: Sequence[ScriptPin] = ()
) -> None:
    """What a study promises: its arms, its claims and its rule as a table; of a command, all that will be started."""
    say(console, f"{study.study}: {study.title}", style="bold")
    say(
        console,
        f"{words.counted(len(study.arms), 'arm')} x {words.counted(len(study.seeds), 'seed')} "
        f"({words.ranged(study.seeds)}) = {words.counted(len(study.arms) * len(study.seeds), 'run')}; "
        f"baseline {study.baseline}; {study.analysis.test}, alpha {words.compact(study.analysis.alpha)}, "
        f"correction {study.analysis.correct}",
    )
    if study.trainer == "command":
        _command(console, study, scripts, data)
    arms = new_table(console, ("Arm", "left"), ("Changes", "left"))
    for arm in study.arms.values():
        changes = ", ".join(f"{field} = {value}" for field, value in arm.overrides.items())
        put_row(console, arms, arm.name, changes or "nothing")
    show_table(console, arms)
    claims = new_table(console, ("Hypothesis", "left"), ("Claim", "left"), ("Smallest", "right"), ("Role", "left"))
    for name, hypothesis in study.hypotheses.items():
        unit = words.unit_of(study.claims[name].metric, hypothesis.scale, study.own_units)
        put_row(
            console,
            claims,
            name,
            hypothesis.claim,
            f"{words.compact(hypothesis.smallest)} {unit}".strip(),
            hypothesis.role,
        )
    show_table(console, claims)
    for name in study.hypotheses:
        supported, refuted = meanings(study, name)
        say(console, f"{name} supported: {supported}.")
        if can_be_refuted(study, name):
            say(console, f"{name} refuted: {refuted}.")
    if study.measure.harness is not None:
        asked = study.measure.harness
        shots = words.listed(str(n) for n in asked.shots)
        code = "; *.yaml there may bring code, which register and run execute" * is_folder(asked.tasks)
        say(
            console,
            f"Evaluated after each run: {asked.tasks}, the first {words.counted(asked.items_per_task, 'item')} of each "
            f"task, examples in the prompt: {shots}{code}.",
        )
    for check in study.checks:
        means = {"inadmissible": "no verdict", "deviation": "a deviation", "note": "a remark"}[check.consequence]
        limit = f"within {words.compact(check.limit_s)} s"
        say(console, f"Own check {check.name}: {check.entry_point}, executed by decide {limit}; if it fails, {means}.")
    for metric in study.measure.own:
        when = "at the last step" if metric.at_end else "at every evaluation"
        limit = f"within {words.compact(metric.limit_s)} s, or the run fails"
        say(console, f"Own metric {metric.name}: {metric.entry_point}, executed by run {when}, {limit}.")
    rule = new_table(console, ("Line", "right"), ("When", "left"), ("Verdict", "left"), ("Decides", "right"))
    for row in study.rule.table():
        put_row(console, rule, str(row.line), row.when, row.verdict, f"{row.settles:,} of {row.of:,}")
    show_table(console, rule)
    say(
        console,
        "Decides: how many of all outcome combinations the line decides. Every combination has a line, and every "
        "line can decide.",
        style="dim",
    )
    say(console, "Errors held:")
    for scope, text in errors_held(study).items():
        say(console, f"- {scope[0].lower()}{scope[1:]}: {text}.")
    from ablate.judge.audit.stability import false_alarm_text

    spikes = false_alarm_text(study)
    if spikes:
        say(console, f"Stability: {spikes}.")
    lost = lost_starts(study)
    for note in (*([] if lost is None else [lost]), *said_losses(study)):
        say(console, f"Note: {note}.")


def _command(console: Console, study: Study, scripts: Sequence[ScriptPin], data: Sequence[ScriptPin]) -> None:
    """Every word and every file of a user's own trainer, before anything of it is started."""
    arm, seed = next(iter(study.arms.values())), study.seeds[0]
    assert isinstance(arm.config, dict), arm.name
    first = filled(study.command, variant=arm.name, seed=seed, config=arm.config, python="python")
    say(console, "Runs this command, without a shell: " + command_line(study.command), wrap=False)
    say(console, f"For {arm.name}, seed {seed}: " + command_line(first), wrap=False)
    say(console, f"Each run in a directory of its own; its metrics are read from {study.metrics.file} there.")
    for pin in scripts:
        say(console, f"Code, to be pinned: {pin.path}, sha256 {pin.sha256[:12]}", wrap=False)
    if not scripts:
        say(console, "No file of its code is pinned: no word names a file under the root, and there is no code:")
    for pin in data:
        say(console, f"Data, to be pinned: {pin.path}, sha256 {pin.sha256[:12]}", wrap=False)
