"""Overview of a repository's studies, a line each: how it ended, with what findings, and what its runs took.

A decision is read from verdict.json, and believed only where the ledger holds the hash of its bytes; no record is read
for its values. No study is left out: one that is not registered, not decided or inadmissible says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ablate.judge.verdict import WITH_VERDICT, Decision, with_deviations
from ablate.records.store import RunFolder
from prereg.errors import StudyError
from prereg.registry.canon import sha256_bytes
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import DecidedEntry, Entry, PromiseEntry
from prereg.registry.looks import recorded_afterwards
from prereg.registry.paths import Root
from prereg.registry.plan import places_of
from prereg.registry.registration import Registration, load_registration

NOT_REGISTERED, UNDECIDED = "not registered", "not decided"


@dataclass(frozen=True)
class StudyOverview:
    """One study as its lock, the ledger and its verdict file show it."""

    study: str
    state: str
    """not registered, not decided, or the status of the decision that the ledger holds."""
    registration: Registration | None
    """None where it is not registered, or its lock cannot be read."""
    registered_at: str | None = None
    decided_at: str | None = None
    verdict: str | None = None
    """The registered words, as the ledger has them; none of an inadmissible study."""
    decision: Decision | None = None
    """None where there is none, or its file is not the one that the ledger hashed."""
    notes: tuple[str, ...] = ()
    """What a reader of the line must know."""
    n_planned: int = 0
    n_sealed: int = 0
    n_timed: int = 0
    """Sealed runs whose records are on this disk."""
    wall_s: float = 0.0
    """Seconds of those runs, one after the other."""

    @property
    def gives_verdict(self) -> bool:
        """Whether the rule gave a verdict, "inconclusive" included, that still holds."""
        return self.state in WITH_VERDICT

    @property
    def state_in_words(self) -> str:
        """`decided with 2 deviations`; where verdict.json is not here, how many is not known."""
        if self.decision is not None and self.gives_verdict and (text := with_deviations(self.decision)):
            return f"{self.state.partition('_')[0]} {text}"
        return self.state.replace("_", " ")


def studies_of(root: Root) -> tuple[StudyOverview, ...]:
    """Every study in the order of registration, then those with a file and no registration by name."""
    entries = Ledger(root.ledger).sound().entries
    # A dict keeps the order of registration and each study once.
    registered = dict.fromkeys(entry.study for entry in entries if entry.event == "registered")
    files = (path.stem for path in sorted(root.studies.glob("*.yaml")))
    overviews = [_registered(root, name, [entry for entry in entries if entry.study == name]) for name in registered]
    others = [name for name in files if name not in registered]
    return (*overviews, *(StudyOverview(name, NOT_REGISTERED, None) for name in others))


def _registered(root: Root, name: str, mine: Sequence[Entry]) -> StudyOverview:
    notes = []
    try:
        registration = load_registration(root, name)
    except StudyError as error:
        registration, notes = None, [f"its lock cannot be read: {error.found}"]
    # What the ledger says, then what lies on this disk: the second may lack files, the first not.
    promised = [entry for entry in mine if isinstance(entry, PromiseEntry)]
    decided = [entry for entry in mine if isinstance(entry, DecidedEntry)]
    current = decided[-1].registration if decided else promised[-1].registration
    runs = places_of(root, mine, current)
    records = [record for path in runs if (record := _record(path)) is not None]
    # The ledger decides the state; verdict.json adds the findings, where it is the file that the ledger hashed.
    state, verdict, decision = UNDECIDED, None, None
    if decided:
        state, verdict = decided[-1].status, decided[-1].verdict
        decision = _decision(root, name, decided[-1])
        notes += [] if decision is not None else ["verdict.json is not here, or is not what the ledger holds"]
        # By the registered rules there is no verdict then, whatever the file says.
        if any(look.index > decided[-1].index for look in recorded_afterwards(mine)):
            state, verdict = "inadmissible", None
            notes.append("an early look was recorded after the decision")
        if promised[-1].index > decided[-1].index:
            notes.append("amended after the decision")
    return StudyOverview(
        name,
        state,
        registration,
        promised[-1].at,
        decided[-1].at if decided else None,
        verdict,
        decision,
        tuple(notes),
        0 if registration is None else len(registration.study.cells),
        len(runs),
        len(records),
        sum(records),
    )


def _record(folder: Path) -> float | None:
    """Seconds of the run in a folder; none where its record is not here or cannot be read."""
    try:
        record = RunFolder(folder).read_record()
    except StudyError:
        return None
    return None if record is None else record.wall_s


def _decision(root: Root, name: str, entry: DecidedEntry) -> Decision | None:
    try:
        data = (root.report(name) / "verdict.json").read_bytes()
    except OSError:
        return None
    if sha256_bytes(data) != entry.verdict_sha256:
        return None
    try:
        return Decision.model_validate_json(data)
    except ValidationError:  # of a version whose verdicts this one does not read
        return None
