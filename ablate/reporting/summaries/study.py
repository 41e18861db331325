"""A study as its file declares it, before anything of it is registered or started, and what an amendment changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns
from prereg import text as words
from prereg.documents.procedures import can_be_refuted, errors_held, lost_starts, meanings
from prereg.registry.amendments import TOUCHES, amendments_of, touched
from prereg.registry.ledger import Entry
from prereg.rule.divergence import said_losses
from prereg.study.command import ScriptPin, command_line, filled
from prereg.study.measure import is_folder
from prereg.study.sizes import WIDTH, Count, Match, count, fit, mismatch, vocabulary_of
from prereg.study.spec import Study

_COUNTS: tuple[tuple[Count, str], ...] = (("parameters", "Parameters"), ("flops", "Training FLOPs per token"))


def study_section(study: Study, scripts: Sequence[ScriptPin] = (), data: Sequence[ScriptPin] = ()) -> Section:
    """What a study promises: arms, claims, errors and its rule as a table; of a command, all that will be started."""
    from ablate.judge.audit.stability import false_alarm_text

    extent = (
        f"{words.counted(len(study.arms), 'arm')} x {words.counted(len(study.seeds), 'seed')} "
        f"({words.ranged(study.seeds)}) = {words.counted(len(study.arms) * len(study.seeds), 'run')}; "
        f"baseline {study.baseline}; {study.analysis.test}, alpha {words.compact(study.analysis.alpha)}, "
        f"correction {study.analysis.correct}"
    )
    blocks: list[Block] = [Paragraph(extent)]
    if study.trainer == "command":
        blocks += _command(study, scripts, data)
    blocks += [replace(arms_table(study), caption=""), replace(hypotheses_table(study), caption="")]
    for name in study.hypotheses:
        supported, refuted = meanings(study, name)
        blocks.append(Paragraph(f"{name} supported: {supported}."))
        if can_be_refuted(study, name):
            blocks.append(Paragraph(f"{name} refuted: {refuted}."))
    blocks += map(Paragraph, _own_code(study))
    rows = tuple((str(row.line), row.when, row.verdict, f"{row.settles:,} of {row.of:,}") for row in study.rule.table())
    decides = (
        "Decides: how many of all outcome combinations the line decides. Every combination has a line, and every line "
        "can decide."
    )
    heads = columns("Line:", "When", "Verdict", "Decides:")
    errors = tuple(("", f"{scope[0].lower()}{scope[1:]}: {text}.") for scope, text in errors_held(study).items())
    blocks += [Table("", heads, rows, note=decides), Paragraph("Errors held:"), Facts(errors)]
    spikes, lost = false_alarm_text(study), lost_starts(study)
    notes = [*([] if lost is None else [lost]), *said_losses(study)]
    facts = [*([("Stability", f"{spikes}.")] if spikes else []), *(("Note", f"{note}.") for note in notes)]
    return Section("study", f"{study.study}: {study.title}", (*blocks, Facts(tuple(facts))))


def arms_table(study: Study) -> Table:
    """Every arm, what it changes in the base, and which one is the baseline."""
    rows = []
    for arm in study.arms.values():
        moved = "; ".join(f"{field} = {json.dumps(value)}" for field, value in arm.overrides.items())
        rows.append((arm.name, moved or "the base, unchanged", "baseline" if arm.name == study.baseline else ""))
    return Table(
        "Arms and what each changes in the base configuration.",
        columns("Arm", "Changes", "Used as"),
        tuple(rows),
    )


def hypotheses_table(study: Study) -> Table:
    """Every hypothesis with its claim, role, smallest difference that matters and the better direction."""
    rows = []
    for name, hypothesis in study.hypotheses.items():
        unit = words.unit_of(study.claims[name].metric, hypothesis.scale, study.own_units)
        way = {"lower": "lower", "higher": "higher", "neither": "neither way"}[study.better(name)]
        smallest = f"{words.compact(hypothesis.smallest)} {unit}".strip()
        rows.append((name, hypothesis.claim, hypothesis.role, smallest, way))
    heads = columns("Hypothesis", "Claim", "Role", "Smallest difference that matters", "Better")
    return Table("Hypotheses, in the registered words.", heads, tuple(rows))


def _command(study: Study, scripts: Sequence[ScriptPin], data: Sequence[ScriptPin]) -> Iterator[Block]:
    """Every word and every file of a user's own trainer, before anything of it is started."""
    arm, seed = next(iter(study.arms.values())), study.seeds[0]
    assert isinstance(arm.config, dict), arm.name
    first = filled(study.command, variant=arm.name, seed=seed, config=arm.config, python="python")
    yield Paragraph("Runs this command, without a shell: " + command_line(study.command))
    yield Paragraph(f"For {arm.name}, seed {seed}: " + command_line(first))
    yield Paragraph(f"Each run in a directory of its own; its metrics are read from {study.metrics.file} there.")
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


def sizes_sections(study: Study, vocabulary: int | None) -> list[Section]:
    """Every arm's size and cost against the baseline's, and the feed-forward width that would match; empty if equal.

    An arm that is larger, or costs more, may win by that alone; `match:` in a study prevents it. `vocabulary`: tokens
    of a text at hand.
    """
    base = study.training(study.baseline)
    configs = {arm: study.training(arm) for arm in study.arms}
    if not any(mismatch(config, base, kind, vocabulary=1) for config in configs.values() for kind, _ in _COUNTS):
        return []
    given = study.match.vocabulary if isinstance(study.match, Match) else None
    known = vocabulary_of(base.data) or vocabulary or given
    rows, offers = [], []
    for arm, config in configs.items():
        cells, widths = [arm], []
        tokens = vocabulary_of(config.data) or known
        for kind, _ in _COUNTS:
            share = mismatch(config, base, kind, vocabulary=known)
            cells.append("?" if tokens is None else f"{count(config.model, kind).at(tokens):,}")
            cells.append("?" if share is None else _percent(share))
            found = fit(config, base, kind, vocabulary=known)
            if found is not None and found.feed_width != config.model.inner_width:
                widths.append(f"{WIDTH}: {found.feed_width} for the baseline's {kind} ({_percent(found.remaining)})")
        rows.append(tuple(cells))
        offers += [f"To match, {arm} would take " + "; ".join(widths)] if widths else []
    heads = columns("Arm", *(head for _, name in _COUNTS for head in (f"{name}:", "Against:")))
    note = "?: the number of tokens comes with the corpus, which is not here."
    if known is not None:
        note = f"With {words.counted(known, 'token')} in the vocabulary."
    table = Table("", heads, tuple(rows))
    return [Section("sizes", "", (table, *map(Paragraph, (note, *offers))))]


def _percent(share: float) -> str:
    return "equal" if share == 0.0 else f"{share:+.2%}".replace("-", words.MINUS)


def checks_sections() -> list[Section]:
    """Every check of the evidence: what it looks at, what its failure means, and why."""
    from ablate.judge.audit.consequences import rows

    return [
        Section(check, check, (Facts((("looks at", looks), ("if it fails", f"{means}; {why}"))),))
        for check, looks, means, why in rows()
    ]


def amendment_rules_sections() -> list[Section]:
    """What a change of each field affects, when it is made after evidence."""
    return [
        Section(row.fields[0], ", ".join(row.fields), (Facts((("affects", f"{row.said}; {row.why}"),)),))
        for row in TOUCHES
    ]


def amendment_section(study: Study, registered: Sequence[Entry], entry: Entry) -> Section:
    """What an amendment changed, what was known by then, and what it made exploratory."""
    amendment = amendments_of([entry])[0]
    found = touched(study, [amendment])
    lines = []
    if found.hypotheses:
        lines.append(f"exploratory from now on: {words.listed(found.hypotheses)}; no verdict rests on them")
    if found.arms:
        lines.append(f"no verdict rests on {words.listed(f'stable({arm})' for arm in found.arms)} either")
    if found.verdict:
        lines.append("no verdict will be given: a rule chosen after evidence decides nothing")
    if lines:
        lines.append("to decide all the same: copy the study under another name, with seeds nobody has seen")
    lines.append("registrations: " + " -> ".join(one.registration[:8] for one in registered))
    value = estimates.value
    changes = tuple(("", f"{one.field}: {value(one.registered)} -> {value(one.now)}") for one in amendment.differences)
    title = (
        f"amended {study.study}: {amendment.previous[:8]} is now {amendment.registration[:8]}; "
        f"evidence by then: {amendment.evidence}"
    )
    return Section("amendment", title, (Facts(changes), *map(Paragraph, lines)))
