"""What the ledger shows of looks at outcomes, beside what was planned: observed, with the entries that show it.

A plan is no observation. What stands here is read from the ledger's entries alone; it judges nothing (that is the
matter of `ablate.judge.audit.ledger`), and it says what no ledger can show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ablate.reporting import words
from ablate.reporting.context import ReportContext
from prereg.registry.ledger import SEALS, Entry
from prereg.registry.looks import TOOK_PLACE, recorded_afterwards
from prereg.registry.plan import cell_of

LOOKS: Final = ("peeked", "looked", "decided")
"""Entries that somebody who wrote them had seen outcomes for."""
BEYOND: Final = "whether anybody read the records of a run by hand, no ledger can show"


def looks_shown(told: ReportContext) -> str:
    """What the ledger shows of looks before the last planned run was sealed; of a sequential study, of all looks."""
    evidence = told.evidence
    if evidence.ledger_faults:
        return f"the ledger is damaged, and cannot show whether outcomes were looked at; {BEYOND}"
    before = _before_the_decision(told)
    mine = [entry for entry in before if entry.registration == told.registration.sha256]
    if not any(entry.event in SEALS for entry in mine):
        return f"the ledger has sealed no planned run, and cannot show whether outcomes were looked at before; {BEYOND}"
    shown = _before_the_last(told, before) if told.study.stopping == "fixed" else _of_a_sequence(told, before)
    elsewhere = sum(entry.event == "imported" for entry in mine)
    if elsewhere:
        runs = words.counted(elsewhere, "run")
        shown += f"; {runs} came from elsewhere, and of looks there this ledger shows nothing"
    return f"{shown}; {BEYOND}"


def _before_the_decision(told: ReportContext) -> list[Entry]:
    """The ledger up to what this decision wrote into it, so that a report written again says what it said."""
    decision, found = told.decision, []
    for entry in told.evidence.ledger:
        if entry.registration == told.registration.sha256:
            body, look = entry.body, decision.look
            if entry.event == "looked" and body.get("final") and look is not None and body.get("look") == look.number:
                break
            if entry.event == "decided" and body.get("evidence") == decision.evidence:
                break
        found.append(entry)
    return found


def _before_the_last(told: ReportContext, before: Sequence[Entry]) -> str:
    """Entries of any registration of this study: what an earlier one has shown is known under the next."""
    waiting, last, found = set(told.evidence.planned), None, []
    for entry in before:
        if not waiting:
            break
        if entry.event in SEALS and entry.registration == told.registration.sha256:
            waiting.discard(cell_of(entry))
            last = entry
        elif entry.event in LOOKS:
            found.append(entry)
    assert last is not None
    found += [entry for entry in recorded_afterwards(told.evidence.ledger) if entry not in found]
    n_planned = len(told.evidence.planned)
    until = (
        f"before the seal of the last planned run (entry {last.index}, {words.moment(last.at)})"
        if not waiting
        else f"so far, with {n_planned - len(waiting)} of {n_planned} planned runs sealed"
    )
    if not found:
        return f"the ledger has no entry of a look at outcomes ({words.listed(LOOKS, last='or')}) {until}"
    entries = words.counted(len(found), "entry", "entries")
    return f"the ledger has {entries} of a look at outcomes {until}: {_named(told, found)}"


def _of_a_sequence(told: ReportContext, before: Sequence[Entry]) -> str:
    looked = [entry for entry in before if entry.event == "looked" and entry.registration == told.registration.sha256]
    peeked = [entry for entry in before if entry.event == "peeked"]
    peeked += [entry for entry in recorded_afterwards(told.evidence.ledger) if entry not in peeked]
    planned = f": {_named(told, looked)}" if looked else ""
    others = f"{words.counted(len(peeked), 'other')}: {_named(told, peeked)}" if peeked else "no other"
    looks = words.counted(len(looked), "planned look")
    return f"before the look that decided, the ledger has {looks}{planned}; and {others}"


def _named(told: ReportContext, found: Sequence[Entry]) -> str:
    return words.listed(
        f"entry {entry.index} ({entry.event} {_when(entry)}"
        + ("" if entry.registration == told.registration.sha256 else ", under an earlier registration")
        + ")"
        for entry in found
    )


def _when(entry: Entry) -> str:
    if TOOK_PLACE not in entry.body:
        return words.moment(entry.at)
    return f"{words.moment(str(entry.body[TOOK_PLACE]))}, recorded afterwards, {words.moment(entry.at)}"
