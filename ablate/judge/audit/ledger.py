"""Does the ledger tell the promised order? Registered first, nothing looked at early, every run sealed once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ablate.judge.audit.checks import listed, named, named_run, none_against
from ablate.judge.verdict import Check, Severity
from ablate.records.evidence import Evidence
from ablate.records.run_record import RunRecord
from prereg.registry.amendments import amendments_of, chain_faults, touched
from prereg.registry.ledger import SEALS, Entry
from prereg.registry.looks import TOOK_PLACE, recorded_afterwards
from prereg.registry.plan import Cell, cell_of, newest_seals
from prereg.registry.registration import Registration
from prereg.study.spec import Study

_GRAVEST: Severity = "inadmissible"


def check_registered_first(registration: Registration, ledger: tuple[Entry, ...]) -> Check:
    """Whether the promise stands before the first run in the ledger."""
    mine = [entry for entry in ledger if entry.registration == registration.sha256]
    promised = [entry.index for entry in mine if entry.event in ("registered", "amended")]
    ran = [entry.index for entry in mine if entry.event in ("started", "sealed", "failed", "finished", "imported")]
    passed = bool(promised) and (not ran or min(promised) < min(ran))
    found = (
        "the registration is not in the ledger"
        if not promised
        else f"registered as entry {min(promised)}, " + (f"first run as entry {min(ran)}" if ran else "no run yet")
    )
    return Check(
        name="registered before any run",
        passed=passed,
        severity="inadmissible",
        found=found,
        required="the registration's entry before the first run's",
    )


def check_intact(ledger: tuple[Entry, ...], faults: Iterable[str]) -> Check:
    """The chain of hashes, and that of the study's registrations."""
    return none_against(
        "the ledger and the registration are intact",
        [*faults, *chain_faults(ledger)],
        "an unbroken chain and an unchanged registration",
    )


def check_design(registration: Registration) -> tuple[Check, ...]:
    """A study that was registered although some verdict can never happen says so before anything else it says."""
    override = registration.override
    if override is None:
        return ()
    return (
        Check(
            name="the design could reach every verdict",
            passed=False,
            severity="deviation",
            found=f"underpowered, and accepted before any run: {override.obstacle}. Reason given: {override.reason}",
            required="data that could lead to every verdict",
        ),
    )


def check_amendments(study: Study, ledger: tuple[Entry, ...]) -> tuple[Check, ...]:
    """An amendment after evidence may have been chosen by it: what it touched is exploratory, see `judge.touched`.

    Here only a change of what the verdict is made of forbids it; that such amendments happened is a deviation.
    """
    made = amendments_of(ledger)
    checks = []
    for state, name, required, severity in (
        ("outcomes read", "no amendment after outcomes were read", "amendments before any outcome is read", _GRAVEST),
        ("runs started", "no amendment after runs started", "amendments before any run", "deviation"),
    ):
        late = [one for one in made if one.evidence == state]
        spoilt = touched(study, late).verdict
        said = [f"entry {one.index} ({one.reason})" for one in late]
        check = none_against(name, said, required, severity)
        if late:
            # Of the check that held, the weight is what it always was: verdicts keep their bytes.
            check = check.model_copy(update={"severity": _GRAVEST if spoilt else "deviation"})
        if spoilt:
            check = check.model_copy(update={"found": f"{check.found}; changed: {'; '.join(spoilt)}"})
        checks.append(check)
    return tuple(checks)


def check_looks(registration: Registration, evidence: Evidence) -> Check:
    """Peeks before the last planned run was sealed, under whatever registration; of a sequential study, all peeks.

    A look recorded afterwards is an early one wherever its entry lies: it is recorded only where it was.
    """
    waiting, found = set(evidence.planned), []
    afterwards = {entry.index for entry in recorded_afterwards(evidence.ledger)}
    for entry in evidence.ledger:
        if entry.event == "sealed" and entry.registration == registration.sha256:
            waiting.discard(cell_of(entry))
        elif entry.index in afterwards:
            found.append(f"entry {entry.index}, recorded afterwards: the look took place at {entry.body[TOOK_PLACE]}")
        elif entry.event == "peeked" and (waiting or registration.study.stopping != "fixed"):
            found.append(f"entry {entry.index}, at {entry.at}")
    return none_against("no look before the last run ended", found, "no look at outcomes while runs are missing")


def check_bound_to_ledger(registration: Registration, evidence: Evidence, ended: list[RunRecord]) -> Check:
    """The last `sealed` entry of every run names the very hashes that lie on disk.

    The hash of run.json itself needs the file: whoever gathered the evidence compared it and named it `broken`.
    """
    last = newest_seals(evidence.ledger, registration.sha256)
    wrong = []
    for run in ended:
        entry = last.get((run.variant, run.seed))
        if entry is None:
            wrong.append(f"{named_run(run)} is not in the ledger")
        elif [entry.body.get(key) for key in ("status", "metrics_sha256", "outcome_sha256", "items_sha256")] != [
            run.status,
            run.metrics_sha256,
            run.outcome_sha256,
            run.items_sha256,
        ] or not entry.body.get("run_sha256"):
            wrong.append(f"{named_run(run)} is not what the ledger sealed")
    return none_against(
        "every sealed run is in the ledger",
        wrong,
        "a sealed entry with the same hashes for every ended run",
        found=f"{len(ended) - len(wrong)} of {len(ended)} runs match",
    )


def check_reported(registration: Registration, ledger: tuple[Entry, ...]) -> tuple[Check, ...]:
    """Runs whose seal no process of ours reported: what a crash leaves, and what a copied folder looks like."""
    found = [
        named(cell_of(entry))
        for entry in ledger
        if entry.event == "sealed" and entry.registration == registration.sha256 and entry.body.get("recovered")
    ]
    name, required = "every seal was reported by the run that made it", "a seal in the ledger the moment a run ends"
    return (none_against(name, found, required, "deviation"),) if found else ()


def check_trained_once(registration: Registration, ledger: tuple[Entry, ...]) -> Check:
    """A sealed run that was trained again. Of two outcomes one may have been chosen, and neither is believed.

    The values of an earlier seal are gone, so that they were the same is the ledger's word. Every outcome is named, and
    nothing is said to be reproduced.
    """
    ends: dict[Cell, list[tuple[str, str]]] = defaultdict(list)
    for entry in ledger:
        if entry.event in SEALS and entry.registration == registration.sha256:
            ends[cell_of(entry)].append((str(entry.body.get("status")), str(entry.body.get("outcome_sha256") or "")))
    again = {cell: found for cell, found in ends.items() if len(found) > 1}
    # A seal that names no outcome agrees with none; the same values under another status are another outcome.
    other = {cell: found for cell, found in again.items() if len(set(found)) > 1 or not found[0][1]}
    same = {cell: found for cell, found in again.items() if cell not in other}
    found = f"{len(other)} with another outcome" + listed(_named_ends(other)) if other else "none"
    if same:
        found += f"; {len(same)} sealed again with the same outcome by the ledger" + listed(_named_ends(same))
    return Check(
        name="no sealed run was trained again",
        passed=not again,
        severity="inadmissible" if other else "note",
        found=found,
        required="each run sealed once",
    )


def _named_ends(ends: dict[Cell, list[tuple[str, str]]]) -> list[str]:
    """`rope seed 3 (1f0c9a2e, then 77b1d0c4)`, of each run; with the status where that is not always the same."""
    said = []
    for cell, found in ends.items():
        differ = len({status for status, _ in found}) > 1
        words = [(outcome[:8] or "no outcome") + (f" {status}" if differ else "") for status, outcome in found]
        said.append(f"{named(cell)} ({', then '.join(words)})")
    return said


def _imports(registration: Registration, evidence: Evidence) -> dict[Cell, Entry]:
    """The runs whose last seal says that they were brought from elsewhere."""
    last = newest_seals(evidence.ledger, registration.sha256)
    return {cell: entry for cell, entry in last.items() if entry.event == "imported"}


def check_bound_to_promise(registration: Registration, evidence: Evidence) -> Check:
    """Every run names this registration, and every import too."""
    mine = (registration.sha256, registration.study.study)
    other = [named_run(run) for run in evidence.runs if (run.registration, run.study) != mine]
    return none_against(
        "every run was made under this registration",
        [*other, *_unbound(registration, evidence)],
        registration.sha256,
    )


def _unbound(registration: Registration, evidence: Evidence) -> list[str]:
    loose = [cell for cell, entry in _imports(registration, evidence).items() if entry.body.get("bound") is not True]
    said = [named(cell) for cell in loose]
    runs = "run was" if len(said) == 1 else "runs were"
    return [f"{len(said)} {runs} imported without a registration hash{listed(said)}"] if said else []


def check_made_here(registration: Registration, evidence: Evidence) -> tuple[Check, ...]:
    """Bound imports count, and are told: that they were made after the promise rests on more than this ledger."""
    bound = {cell: e for cell, e in _imports(registration, evidence).items() if e.body.get("bound") is True}
    if not bound:
        return ()
    notes = list(dict.fromkeys(str(entry.body.get("note")) for entry in bound.values()))
    cells = [named(cell) for cell in bound]
    return (
        Check(
            name="every run was made here",
            passed=False,
            severity="deviation",
            found=f"{len(bound)} of {len(evidence.runs)} runs were made elsewhere and imported{listed(cells)}. Note"
            + listed(notes)
            + ". They name this registration; that they were made after it is their maker's word",
            required="runs whose start this ledger recorded",
        ),
    )
