"""Output of `ablate ledger`: the ledger, entry by entry, and every hypothesis that it ever registered.

What an entry says is repeated and never judged.
"""

from __future__ import annotations

from ablate.judge.programme import ENDINGS, Programme
from ablate.reporting.blocks import Section
from ablate.reporting.summaries import tables
from ablate.reporting.wording import blocks, phrase
from prereg import text as words
from prereg.registry.ledger import Sound
from prereg.registry.ledger_entry import DecidedEntry, Entry


def ledger_section(sound: Sound, *, study: str | None = None) -> Section:
    """Every sound entry (of one study, if named), then the state of the chain and its head."""
    # The chain is checked over all entries, whichever are shown.
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
    """What happened, in words from what the entry says."""
    # A `reported` entry has a hash for each page, under its name.
    pages = [name for name in entry.stated if name.startswith("report.")]
    text = phrase("ledger_parts.entry", entry, _values(entry), pages)  # most entries; a decision has words of its own
    if isinstance(entry, DecidedEntry):
        text = describe_decision(entry)
    return phrase("ledger_parts.described", text, entry.cut_back, entry.ended_line is not None)


def describe_decision(entry: DecidedEntry) -> str:
    """What the entry of a decision says: the verdict, or why there is none."""
    return phrase("ledger_parts.decision", entry.status, entry.verdict)


def _values(entry: Entry) -> str:
    """What an entry says, plainly; hashes are left to --json."""
    return ", ".join(
        f"{key} {value}"
        for key, value in entry.stated.items()
        if isinstance(value, str | int | float) and not key.endswith("sha256") and key not in ("evidence", "code")
    )


def programme_section(programme: Programme) -> Section:
    """How many hypotheses were registered, how each ended, and the false discovery rate over all. No verdict.

    Every p has its n and its method next to it, or says that there is none.
    """
    confirmatory = programme.confirmatory
    # Endings that occur, in a fixed order; of each how many were carried over by an amendment.
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
