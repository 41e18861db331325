"""From a study to its registration: the design, what would stop it, register and amend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ablate.chain.case import Case, Clock, check, open_case, pin, placed, require_registered, utc_now

if TYPE_CHECKING:
    from ablate.judge.design.characteristics import Design
    from prereg.registry.ledger import Entry
    from prereg.registry.registration import Override, Registration


def design(path: str | Path, *, root: Path | None = None, pilot: str | None = None) -> Design:
    """Operating characteristics of a study's registered rule, by simulation."""
    return characterise(check(Path(path), root), pilot=pilot)


def characterise(case: Case, *, pilot: str | None = None) -> Design:
    """The design of a study, from its own beliefs or from what a pilot's records tell."""
    from ablate.judge.design.assumptions import learned
    from ablate.judge.design.characteristics import design as simulate
    from ablate.records.gather import gather

    if pilot is None:
        return simulate(case.study)
    other = open_case(Path(pilot), case.root.path)
    earlier = require_registered(other)
    found: list[Design] = []
    evidence = gather(other.root, earlier)
    placed(case, lambda: found.append(simulate(case.study, beliefs=learned(case.study, earlier, evidence))))
    return found[0]


def accepted(case: Case, characteristics: Design, reason: str | None) -> Override | None:
    """Refuse a hopeless design, or put on record that the user goes on with it and why."""
    from ablate.judge.design.undecidable import obstacle
    from prereg.errors import HopelessDesignError, RegistrationError
    from prereg.registry.registration import Override

    found = obstacle(characteristics)
    if found is None and reason is None:
        return None
    if found is None:
        raise RegistrationError(
            "--accept-underpowered has nothing to accept: data could lead to every verdict of this design",
            required="the option only where registration is refused",
            fix="leave it out",
        )
    if reason is None or not reason.strip():
        advice = "; or, on record: --accept-underpowered " + '"why it is run all the same"'
        hopeless = HopelessDesignError(found.found, required=found.required, fix=found.fix + advice, where=found.where)
        raise hopeless.at(file=case.path, line=case.loaded.line(found.where.field))
    return Override(obstacle=found.found, reason=reason.strip())


def preflight(case: Case, *, accept_underpowered: str | None = None, pilot: str | None = None) -> Design:
    """What would stop a registration, found before anything is written; returns the design."""
    pin(case)
    characteristics = characterise(case, pilot=pilot)
    accepted(case, characteristics, accept_underpowered)
    return characteristics


def register(
    path: str | Path,
    *,
    root: Path | None = None,
    now: Clock = utc_now,
    accept_underpowered: str | None = None,
    pilot: str | None = None,
    planned: Design | None = None,
) -> tuple[Registration, Entry | None]:
    """Register a study, or return the registration that already stands (then with no entry).

    `planned` is its design where the caller has it already.
    """
    from ablate.records.provenance import tool_versions
    from prereg.documents.page import keep_page
    from prereg.registry import register as promise
    from prereg.registry.history import require_unchanged
    from prereg.registry.registration import load_registration

    case = check(Path(path), root)
    standing = load_registration(case.root, case.study.study)
    if standing is not None:
        require_unchanged(standing, case.loaded)
        promise.complete(case.root, case.study.study)
        keep_page(case.root, case.study.study)
        return standing, None
    pins = pin(case)
    characteristics = planned or characterise(case, pilot=pilot)
    override = accepted(case, characteristics, accept_underpowered)
    registered = promise.register(
        case.root,
        case.loaded,
        corpus=pins.corpus,
        scripts=pins.scripts,
        data=pins.data,
        tasks=pins.tasks,
        data_files=pins.data_files,
        design=characteristics.model_dump(mode="json"),
        tool=tool_versions(),
        at=now(),
        override=override,
    )
    pins.keep(case.root)
    keep_page(case.root, case.study.study)
    return registered


def amend(
    path: Path,
    *,
    reason: str,
    root: Path | None = None,
    now: Clock = utc_now,
    accept_underpowered: str | None = None,
    pilot: str | None = None,
) -> tuple[Registration, Entry]:
    """Register a changed study in place of its earlier registration, with a reason."""
    from ablate.records.provenance import tool_versions
    from prereg.documents.page import keep_page
    from prereg.registry import register as promise

    case = check(path, root)
    pins = pin(case)
    characteristics = characterise(case, pilot=pilot)
    override = accepted(case, characteristics, accept_underpowered)
    amended = promise.amend(
        case.root,
        case.loaded,
        corpus=pins.corpus,
        scripts=pins.scripts,
        data=pins.data,
        tasks=pins.tasks,
        data_files=pins.data_files,
        design=characteristics.model_dump(mode="json"),
        tool=tool_versions(),
        at=now(),
        reason=reason,
        evidence="none",  # the ledger knows of more, and what it shows counts
        override=override,
    )
    pins.keep(case.root)
    keep_page(case.root, case.study.study)
    return amended


def registrations(path: Path, root: Path | None = None) -> tuple[Entry, ...]:
    """The ledger's entries that registered a study and amended it, oldest first."""
    from prereg.registry.ledger import Ledger

    case = open_case(path, root)
    entries = Ledger(case.root.ledger).entries()
    return tuple(
        entry for entry in entries if entry.study == case.study.study and entry.event in ("registered", "amended")
    )
