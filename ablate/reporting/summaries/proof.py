"""Output of `ablate ledger`: the ledger, entry by entry.

What an entry says is repeated and never judged.
"""

from __future__ import annotations

from ablate.reporting.blocks import Section
from ablate.reporting.summaries import tables
from ablate.reporting.wording import blocks, phrase
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
