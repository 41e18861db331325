"""The ledger, entry by entry, and every hypothesis that it ever registered.

What an entry's body says is repeated and never judged; of an entry whose body lacks a part, that part reads None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ablate.judge.programme import ENDINGS, Programme
from ablate.reporting.blocks import Section
from ablate.reporting.summaries import tables
from ablate.reporting.wording import blocks, phrase
from prereg import text as words
from prereg.registry.ledger import Sound
from prereg.registry.ledger_entry import Entry

if TYPE_CHECKING:
    from pydantic import JsonValue

    Body = Mapping[str, JsonValue]


def ledger_section(sound: Sound, *, study: str | None = None) -> Section:
    """Every sound entry (of one study, if named), then the state of the chain and its head."""
    shown = [entry for entry in sound.entries if study is None or entry.study == study]
    made = blocks(
        "ledger",
        entries=tables.LEDGER.of((entry, describe(entry)) for entry in shown) if shown else None,
        of_study=study is not None,
        others=len(sound.entries) - len(shown),
        n=len(sound.entries),
        sound=sound,
    )
    return Section("ledger", "", made)


def describe(entry: Entry) -> str:
    """What happened, in words from the entry's body. A part that the body lacks reads None."""
    body, event = _Body(entry.body), entry.event
    cut = body["cut_back"]
    pages = [name for name in body if name.startswith("report.")]
    line = phrase("ledger_parts.entry", event, body, _values(body), pages)
    text = describe_decision(body) if event == "decided" else line
    return phrase("ledger_parts.described", text, cut if isinstance(cut, dict) else None, "ended_line" in body)


class _Body(dict[str, "JsonValue"]):
    """The body of an entry, of which any key can be read: the ledger of another version may lack some."""

    def __missing__(self, key: str) -> None:
        return None


def describe_decision(body: Body) -> str:
    """What a `decided` entry says: the verdict, or why there is none."""
    status, verdict = str(body.get("status")), body.get("verdict")
    return phrase("ledger_parts.decision", status, None if verdict is None else str(verdict))


def _values(body: Body) -> str:
    """What a body says, plainly; hashes are left to --json."""
    return ", ".join(
        f"{key} {value}"
        for key, value in body.items()
        if isinstance(value, str | int | float) and not key.endswith("sha256") and key not in ("evidence", "code")
    )


def programme_section(programme: Programme) -> Section:
    """How many hypotheses were registered, how each ended, and the false discovery rate over all. No verdict.

    Every p has its n and its method next to it, or says that there is none.
    """
    confirmatory = programme.confirmatory
    counts = [
        (programme.count(ending), ending, sum(claim.carried_over for claim in confirmatory if claim.ending == ending))
        for ending in ENDINGS
        if programme.count(ending)
    ]
    made = blocks(
        "programme",
        found=programme,
        counts=counts,
        repeated=sum(claim.times_decided > 1 for claim in confirmatory),
        untold=[(untold, words.moment(untold.registered_at)) for untold in programme.untold],
        unproven=sorted({(claim.study, claim.registration[:8]) for claim in confirmatory if not claim.proven}),
        hypotheses=tables.PROGRAMME.of(confirmatory) if confirmatory else None,
        steps=tables.FALSE_DISCOVERIES.of(programme.steps) if programme.steps else None,
        n_found=sum(step.bh_found for step in programme.steps),
        unknown=sum(step.p is None for step in programme.steps),
    )
    return Section("programme", phrase("ledger_parts.programme", programme), made)
