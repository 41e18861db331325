"""Verbs before any data: what a study promises, and putting it on record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate import chain
from ablate.verbs.options import (
    Accept,
    AsJson,
    Ots,
    Pilot,
    RootFolder,
    Sign,
    StudyFile,
    Timestamp,
    console,
    put,
    put_json,
)

if TYPE_CHECKING:
    from prereg.registry.registration import Registration


def check(
    study: Annotated[
        Path | None, typer.Argument(metavar="STUDY", help="Path of a study file, such as studies/embnorm.yaml.")
    ] = None,
    root: RootFolder = None,
    *,
    admissibility: Annotated[
        bool,
        typer.Option("--admissibility", help="Instead: every check of the evidence and its consequence."),
    ] = False,
    amendments: Annotated[
        bool, typer.Option("--amendments", help="Instead: what an amendment after evidence touches.")
    ] = False,
) -> None:
    """Validate a study and show its decision table.

    Reads the file, checks every field, claim and rule, and writes nothing. Nothing that a study brings is executed.
    Its published figures (docs/published.md) are checked with it.

    Example:  ablate check studies/embnorm.yaml
    """
    from ablate.reporting.declaration_lines import print_admissibility, print_touches
    from ablate.reporting.sizes import print_sizes, sizes_differ
    from ablate.reporting.study_lines import print_check
    from prereg.errors import StudyFileError

    if admissibility:
        return print_admissibility(console())
    if amendments:
        return print_touches(console())
    if study is None:
        raise StudyFileError("no study is named", required="a study file", fix="ablate check studies/quickstart.yaml")
    case = chain.check(study, root)
    beside = chain.published_beside(case)
    scripts, data = chain.pin_code(case) if case.study.trainer == "command" else ((), ())
    print_check(console(), case.study, scripts, data)
    _print_repeated(case)
    if case.study.trainer == "gpt" and sizes_differ(case.study):
        print_sizes(console(), case.study, chain.find_vocabulary(case))
    if beside is not None:
        put(beside.words)
    return None


def schema(
    *,
    published: Annotated[
        bool, typer.Option("--published", help="Instead: of the published figures of a study (docs/published.md).")
    ] = False,
) -> None:
    """Print the JSON schema of a study file.

    Give it to an editor for completion and hover text.

    Example:  ablate schema > study.schema.json
    """
    from ablate.cli.studies import json_schema, published_schema

    put_json(json.dumps(published_schema() if published else json_schema(), indent=2, ensure_ascii=False))


def design(study: StudyFile, root: RootFolder = None, pilot: Pilot = None, as_json: AsJson = False) -> None:
    """Simulate the registered rule before any data.

    Says what can be found with these seeds, how often by chance, and how many seeds it would take.

    Example:  ablate design studies/embnorm.yaml
    """
    from ablate.reporting.design_lines import print_design

    found = chain.design(study, root=root, pilot=pilot)
    if as_json:
        put_json(found.model_dump_json(indent=2))
    else:
        print_design(console(), found)


def register(
    study: StudyFile,
    root: RootFolder = None,
    pilot: Pilot = None,
    accept: Accept = None,
    *,
    sign: Sign = None,
    timestamp: Timestamp = None,
    ots: Ots = False,
) -> None:
    """Freeze a study in its lock and in the ledger.

    Doing it twice changes nothing. Seals are for others, and optional: see ablate seal.

    Example:  ablate register studies/embnorm.yaml
    """
    from ablate.attest import attest, require_able
    from ablate.verbs.seals import tell_seals

    require_able(sign=sign, timestamp=timestamp, ots=ots)
    registration, entry = chain.register(study, root=root, pilot=pilot, accept_underpowered=accept)
    name = registration.study.study
    if entry is None:
        put(f"{name} is registered already, {registration.sha256[:8]} since {registration.registered_at}")
        if sign is None and timestamp is None and not ots:
            return
    else:
        put(f"registered {name} as {registration.sha256[:8]} at {registration.registered_at}")
        _print_repeated(chain.open_case(study, root))
        _print_power(registration)
        put(f"registration page: {chain.open_case(study, root).root.page(name)}")
    case = chain.open_case(study, root)
    tell_seals(attest(case, registration, sign=sign, timestamp=timestamp, ots=ots), study)


def _print_repeated(case: chain.Case) -> None:
    """Other registered studies whose runs this one would make again."""
    from prereg.registry.history import repeated

    for other in repeated(case.root, case.study):
        put(f"Note: {other.words}.")


def _print_power(registration: Registration) -> None:
    """What the new registration can find."""
    from ablate.judge.design.hindsight import frozen_design
    from ablate.reporting.design_lines import print_power

    found = frozen_design(registration)
    assert found is not None, registration.study.study
    print_power(console(), found)


def amend(
    study: StudyFile,
    reason: Annotated[str, typer.Option(help="Why, in a sentence; kept in the ledger.")],
    root: RootFolder = None,
    pilot: Pilot = None,
    accept: Accept = None,
) -> None:
    """Register a changed study, with a reason.

    The earlier registration stays in the ledger, with what differs and whether evidence existed by then. If it
    did, hypotheses that the change touches are exploratory from then on, and no verdict rests on them.

    Example:  ablate amend studies/embnorm.yaml --reason "two more seeds, before any run"
    """
    from ablate.reporting.amendment_lines import print_amendment

    registration, entry = chain.amend(study, reason=reason, root=root, pilot=pilot, accept_underpowered=accept)
    print_amendment(console(), registration.study, chain.registrations(study, root), entry)
    put(f"registration page: {chain.open_case(study, root).root.page(registration.study.study)}")
    put(f"ledger head {entry.sha256}")
