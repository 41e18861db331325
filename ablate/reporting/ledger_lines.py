"""The ledger as a person reads it: each entry in a line of words, and where the chain stops being sound.

What an entry's body says is repeated and never judged: whether a sealed file still has its hash is
`ablate.verification.verify`'s question. An entry whose body lacks a part is told without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from ablate.reporting import text
from ablate.reporting.screen import Justify, new_table, put_row, say, show_table
from prereg.registry.ledger import Entry, Sound
from prereg.registry.looks import TOOK_PLACE

if TYPE_CHECKING:
    from pydantic import JsonValue

    Body = Mapping[str, JsonValue]


_COLUMNS: tuple[tuple[str, Justify], ...] = (
    ("#", "right"),
    ("Date", "left"),
    ("Study", "left"),
    ("Event", "left"),
    ("What", "left"),
    ("Hash", "left"),
)


def print_ledger(console: Console, sound: Sound, *, study: str | None = None) -> None:
    """Every sound entry (of one study, if named), then the state of the chain and its head."""
    shown = [entry for entry in sound.entries if study is None or entry.study == study]
    if shown:
        table = new_table(console, *_COLUMNS)
        for entry in shown:
            date = text.moment(entry.at)[:10]
            put_row(console, table, str(entry.index), date, entry.study, entry.event, in_words(entry), entry.sha256[:8])
        show_table(console, table)
    if study is not None:
        others = text.counted(len(sound.entries) - len(shown), "entry", "entries")
        say(console, f"{others} of other studies not shown; the chain is theirs too.")
    for fault in sound.faults:
        say(console, f"DAMAGED  {fault}", style="bold red", wrap=False)
    if sound.n_beyond:
        lines = text.counted(sound.n_beyond, "line")
        say(console, f"{lines} from there on: not shown, because nothing vouches for them any more.")
    if sound.torso_bytes:
        torso = text.counted(sound.torso_bytes, "byte")
        say(console, f"{torso} of an unfinished entry at the end: not an entry.")
    if sound.faults:
        say(console, "The chain does not hold. Restore the ledger from version control; nothing is appended before.")
    else:
        say(console, f"The chain holds: {text.counted(len(sound.entries), 'entry', 'entries')}.", style="bold")
    say(console, f"Ledger head: {sound.head}", wrap=False)


def in_words(entry: Entry) -> str:
    """What happened, from the entry's body."""
    told = _WORDS.get(entry.event, _facts)(entry.body)
    cut = entry.body.get("cut_back")
    if isinstance(cut, dict):
        told += f"; cut back {cut.get('bytes')} bytes that a crash had left"
    if "ended_line" in entry.body:
        told += "; ended the line before, whose end a crash had cut off"
    return told


def _registered(body: Body) -> str:
    override = body.get("override")
    underpowered = f", against advice: {override.get('reason')}" if isinstance(override, dict) else ""
    return f"{body.get('file')}{underpowered}"


def _amended(body: Body) -> str:
    differences = body.get("differences")
    if not isinstance(differences, list):
        differences = []
    fields = [str(one.get("field")) for one in differences if isinstance(one, dict)]
    shown = ", ".join(fields[:3]) + (f" and {len(fields) - 3} more" if len(fields) > 3 else "")
    return f"{shown}; evidence by then: {body.get('evidence')}; because: {body.get('reason')}"


def _started(body: Body) -> str:
    if "variant" in body:
        how = f", resumed from step {body['resumed_from']}" if "resumed_from" in body else ""
        return f"{body.get('variant')}, seed {body.get('seed')}: attempt {body.get('attempt')}{how}"
    return f"{body.get('runs')} of {body.get('of')} runs to do, {body.get('slots')} side by side"


def _breached(body: Body) -> str:
    what, unit = ("memory", "GiB") if body.get("limit") == "max_memory_gib" else ("time", "s")
    took = f"{body.get('measured')} {unit} of {what}, promised at most {body.get('promised')} {unit}"
    return f"{body.get('variant')}, seed {body.get('seed')}: {took}"


def _sealed(body: Body) -> str:
    attempts = body.get("attempts")
    more = f" in {attempts} attempts" if isinstance(attempts, int) and attempts > 1 else ""
    recovered = ", recovered after a crash" if body.get("recovered") else ""
    return f"{body.get('variant')}, seed {body.get('seed')}: {body.get('status')}{more}{recovered}"


def _failed(body: Body) -> str:
    return f"{body.get('variant')}, seed {body.get('seed')}: {body.get('error')}"


def _finished(body: Body) -> str:
    return f"all {body.get('runs')} runs are sealed"


def _looked(body: Body) -> str:
    ended = "it ended the study" if body.get("final") else "the study goes on"
    return f"look {body.get('look')} of {body.get('of')}, at {body.get('seeds')} seeds: {ended}"


def verdict_of(decision: Entry) -> str:
    """What a `decided` entry says: the verdict, or why there is none."""
    return _decided(decision.body)


def _decided(body: Body) -> str:
    status, verdict = str(body.get("status")), body.get("verdict")
    if status in ("decided", verdict):
        return str(verdict)
    return status if verdict is None else f"{status}: {verdict}"


def _peeked(body: Body) -> str:
    past = f"recorded afterwards, the look took place {body[TOOK_PLACE]}; " if TOOK_PLACE in body else ""
    return f"{past}{body.get('ended')} of {body.get('planned')} runs had ended; because: {body.get('reason')}"


def _reported(body: Body) -> str:
    pages = [name for name in body if name.startswith("report.")]
    how = "kept, with a notice that the records are gone" if "kept" in body else "written"
    return f"{text.listed(pages)} {how}, of decision {str(body.get('decision'))[:8]}"


def _facts(body: Body) -> str:
    """What a body says, plainly; hashes are left to --json."""
    return ", ".join(
        f"{key} {value}"
        for key, value in body.items()
        if isinstance(value, str | int | float) and not key.endswith("sha256") and key not in ("evidence", "code")
    )


_WORDS: dict[str, Callable[[Body], str]] = {
    "registered": _registered,
    "amended": _amended,
    "started": _started,
    "breached": _breached,
    "sealed": _sealed,
    "failed": _failed,
    "finished": _finished,
    "looked": _looked,
    "decided": _decided,
    "peeked": _peeked,
    "reported": _reported,
}
