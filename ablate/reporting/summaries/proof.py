"""The ledger, entry by entry, and every hypothesis that it ever registered.

What an entry's body says is repeated and never judged; of an entry whose body lacks a part, that part reads None.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ablate.judge.programme import ENDINGS, Programme
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns, table_of
from ablate.reporting.estimates import NONE
from prereg import text as words
from prereg.registry.ledger import Sound
from prereg.registry.ledger_entry import Entry
from prereg.registry.looks import TOOK_PLACE

if TYPE_CHECKING:
    from pydantic import JsonValue

    Body = Mapping[str, JsonValue]


def ledger_section(sound: Sound, *, study: str | None = None) -> Section:
    """Every sound entry (of one study, if named), then the state of the chain and its head."""
    shown = [entry for entry in sound.entries if study is None or entry.study == study]
    blocks: list[Block] = []
    if shown:
        rows = [
            (str(one.index), words.moment(one.at)[:10], one.study, one.event, describe(one), one.sha256[:8])
            for one in shown
        ]
        blocks.append(Table("", columns("#:", "Date", "Study", "Event", "What", "Hash"), tuple(rows)))
    if study is not None:
        others = words.counted(len(sound.entries) - len(shown), "entry", "entries")
        blocks.append(Paragraph(f"{others} of other studies not shown; the chain is theirs too."))
    blocks += _damage(sound.faults)
    if sound.n_beyond:
        lines = words.counted(sound.n_beyond, "line")
        blocks.append(Paragraph(f"{lines} from there on: not shown, because nothing vouches for them any more."))
    if sound.torso_bytes:
        torso = words.counted(sound.torso_bytes, "byte")
        blocks.append(Paragraph(f"{torso} of an unfinished entry at the end: not an entry."))
    state = f"The chain holds: {words.counted(len(sound.entries), 'entry', 'entries')}."
    if sound.faults:
        state = "The chain does not hold. Restore the ledger from version control; nothing is appended before."
    return Section("ledger", "", (*blocks, Paragraph(state, "lead"), Paragraph(f"Ledger head: {sound.head}")))


def describe(entry: Entry) -> str:
    """What happened, in words from the entry's body."""
    body = entry.body
    text = _DESCRIPTIONS.get(entry.event, _values)(body)
    cut = body.get("cut_back")
    if isinstance(cut, dict):
        text += f"; cut back {cut.get('bytes')} bytes that a crash had left"
    if "ended_line" in body:
        text += "; ended the line before, whose end a crash had cut off"
    return text


def describe_decision(body: Body) -> str:
    """What a `decided` entry says: the verdict, or why there is none."""
    status, verdict = str(body.get("status")), body.get("verdict")
    if status in ("decided", verdict):
        return str(verdict)
    if status == "decided_with_deviations":
        return f"{verdict}, with deviations"
    return status if verdict is None else f"{status}: {verdict}"


def _registered(body: Body) -> str:
    override = body.get("override")
    return f"{body.get('file')}" + (f", against advice: {override.get('reason')}" if isinstance(override, dict) else "")


def _amended(body: Body) -> str:
    differences = body.get("differences")
    found = differences if isinstance(differences, list) else []
    fields = [str(one.get("field")) for one in found if isinstance(one, dict)]
    shown = ", ".join(fields[:3]) + (f" and {len(fields) - 3} more" if len(fields) > 3 else "")
    return f"{shown}; evidence by then: {body.get('evidence')}; because: {body.get('reason')}"


def _started(body: Body) -> str:
    if "variant" not in body:
        return f"{body.get('runs')} of {body.get('of')} runs to do, {body.get('slots')} side by side"
    resumed = f", resumed from step {body['resumed_from']}" if "resumed_from" in body else ""
    return f"{_run(body)}: attempt {body.get('attempt')}{resumed}"


def _breached(body: Body) -> str:
    what, unit = ("memory", "GiB") if body.get("limit") == "max_memory_gib" else ("time", "s")
    return f"{_run(body)}: {body.get('measured')} {unit} of {what}, promised at most {body.get('promised')} {unit}"


def _sealed(body: Body) -> str:
    attempts = body.get("attempts")
    more = f" in {attempts} attempts" if isinstance(attempts, int) and attempts > 1 else ""
    return f"{_run(body)}: {body.get('status')}{more}" + ", recovered after a crash" * bool(body.get("recovered"))


def _looked(body: Body) -> str:
    ended = "it ended the study" if body.get("final") else "the study goes on"
    return f"look {body.get('look')} of {body.get('of')}, at {body.get('seeds')} seeds: {ended}"


def _peeked(body: Body) -> str:
    past = f"recorded afterwards, the look took place {body[TOOK_PLACE]}; " if TOOK_PLACE in body else ""
    return f"{past}{body.get('ended')} of {body.get('planned')} runs had ended; because: {body.get('reason')}"


def _reported(body: Body) -> str:
    pages = [name for name in body if name.startswith("report.")]
    return f"{words.listed(pages)} written, of decision {str(body.get('decision'))[:8]}"


def _run(body: Body) -> str:
    return f"{body.get('variant')}, seed {body.get('seed')}"


def _values(body: Body) -> str:
    """What a body says, plainly; hashes are left to --json."""
    return ", ".join(
        f"{key} {value}"
        for key, value in body.items()
        if isinstance(value, str | int | float) and not key.endswith("sha256") and key not in ("evidence", "code")
    )


_DESCRIPTIONS: dict[str, Callable[[Body], str]] = {
    "registered": _registered,
    "amended": _amended,
    "started": _started,
    "breached": _breached,
    "sealed": _sealed,
    "failed": lambda body: f"{_run(body)}: {body.get('error')}",
    "finished": lambda body: f"all {body.get('runs')} runs are sealed",
    "looked": _looked,
    "decided": describe_decision,
    "peeked": _peeked,
    "reported": _reported,
    "tuned": lambda body: (
        f"settings chosen by {body.get('by')} over {body.get('pilot_runs')} pilot runs: "
        + json.dumps(body.get("chosen"), ensure_ascii=False)
    ),
    "reworded": lambda body: f"other words, runs and verdict kept; because: {body.get('reason')}",
}


def programme_section(found: Programme) -> Section:
    """How many hypotheses were registered, how each ended, and the false discovery rate over all. No verdict.

    Every p has its n and its method next to it, or says that there is none.
    """
    confirmatory = found.confirmatory
    registrations = words.counted(found.n_registrations, "registration")
    title = (
        f"{words.counted(len(confirmatory), 'confirmatory hypothesis', 'confirmatory hypotheses')} ever registered, in "
        f"{registrations} of {words.counted(found.n_studies, 'study', 'studies')}."
    )
    counts = []
    for ending in filter(found.count, ENDINGS):
        kept = sum(one.carried_over for one in confirmatory if one.ending == ending)
        more = f" ({kept} of them carried over unchanged into the registration that followed)" if kept else ""
        counts.append(("", f"{found.count(ending)} {ending}{more}"))
    blocks: list[Block] = [Facts(tuple(counts))]
    repeated = sum(one.times_decided > 1 for one in confirmatory)
    if repeated:
        blocks.append(Paragraph(f"{repeated} of these were decided more than once, on different evidence."))
    blocks.append(Paragraph(f"Exploratory hypotheses, counted apart: {len(found.exploratory)}."))
    blocks += [
        Paragraph(
            f"Not counted: the hypotheses of '{one.study}' as registered {words.moment(one.registered_at)}, "
            f"{one.registration[:8]} ({one.why})."
        )
        for one in found.untold
    ]
    blocks += [
        Paragraph(f"'{study}', {registration[:8]}: rebuilt from the ledger, but not to its hash.")
        for study, registration in sorted({(one.study, one.registration) for one in confirmatory if not one.proven})
    ]
    if confirmatory:
        blocks.append(_hypotheses(found))
    if found.steps:
        blocks += _rates(found)
    blocks += _damage(found.faults)
    if found.faults:
        blocks.append(Paragraph("Only what precedes the damage is counted."))
    return Section("programme", title, (*blocks, Paragraph(f"Ledger head: {found.head}")))


def _damage(faults: Sequence[str]) -> list[Block]:
    return [Paragraph(f"DAMAGED  {fault}", "warning") for fault in faults]


def _hypotheses(found: Programme) -> Table:
    return table_of(
        found.confirmatory,
        "",
        {
            "Hypothesis": lambda one: f"{one.study} {one.registration[:8]} {one.hypothesis}",
            "Role": lambda one: one.role,
            "Ended as": lambda one: (
                one.ending + (f" (decided {one.times_decided} times)" if one.times_decided > 1 else "")
            ),
            "p:": lambda one: estimates.p_cell(one.p),
            "Adjusted:": lambda one: estimates.p_cell(one.p_adjusted),
            "n:": lambda one: NONE if one.n is None else str(one.n),
            "Test": lambda one: one.method or NONE,
        },
        note="p: of support, uncorrected. Adjusted: within its study, by the correction registered there; it decided. "
        "n: pairs of seeds.",
    )


def _rates(found: Programme) -> list[Block]:
    level, finds = words.compact(found.level), {True: "yes", False: "no"}
    steps = table_of(
        found.steps,
        "",
        {
            "#:": lambda step: str(step.number),
            "Decided test": lambda step: f"{step.study} {step.registration[:8]} {step.hypothesis}",
            "p:": lambda step: estimates.p_cell(step.p),
            "BH:": lambda step: estimates.p_cell(step.bh_adjusted),
            "BH finds": lambda step: finds[step.bh_found],
        },
    )
    unknown = sum(step.p is None for step in found.steps)
    blocks: list[Block] = [
        steps,
        Paragraph(
            f"Over {words.counted(len(found.steps), 'decided test')} at a false discovery rate of {level}: "
            f"Benjamini-Hochberg finds {sum(step.bh_found for step in found.steps)}. This changes no verdict.",
            "lead",
        ),
    ]
    if unknown:
        text = f"A p that cannot be known ({unknown} of them) counts as 1: it takes its place and finds nothing."
        blocks.append(Paragraph(text))
    explained = (
        "BH: p adjusted over all of these at once (Benjamini and Hochberg 1995); a later study can change it. It wants "
        "independent p values, and hypotheses of one study share runs: read it as a scale, not as a guarantee."
    )
    return [*blocks, Paragraph(explained, "aside")]
