"""Verbs before any data: what a study promises, and putting it on record."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ablate import chain
from ablate.verbs.options import Accept, AsJson, Pilot, RootFolder, StudyFile, console


def check(study: StudyFile, root: RootFolder = None) -> None:
    """Show what a study promises, its rule as a table.

    Reads the file, checks every field, claim and rule, and writes nothing.

    Example:  ablate check studies/embnorm.yaml
    """
    from ablate.report import console as told

    case = chain.check(study, root)
    told.print_check(console(), case.study, chain.pin_code(case) if case.study.trainer == "command" else ())


def schema() -> None:
    """Print the JSON schema of a study file.

    Give it to an editor for completion and hover text.

    Example:  ablate schema > study.schema.json
    """
    from prereg.schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def design(study: StudyFile, root: RootFolder = None, pilot: Pilot = None, as_json: AsJson = False) -> None:
    """Simulate the registered rule before any data.

    Says what can be found with these seeds, how often by chance, and how many seeds it would take.

    Example:  ablate design studies/embnorm.yaml
    """
    from ablate.report import console as told

    found = chain.design(study, root=root, pilot=pilot)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        told.print_design(console(), found)


def register(study: StudyFile, root: RootFolder = None, pilot: Pilot = None, accept: Accept = None) -> None:
    """Freeze a study in its lock and in the ledger.

    Doing it twice changes nothing.

    Example:  ablate register studies/embnorm.yaml
    """
    registration, entry = chain.register(study, root=root, pilot=pilot, accept_underpowered=accept)
    name = registration.study.study
    if entry is None:
        print(f"{name} is registered already, {registration.sha256[:8]} since {registration.registered_at}")
        return
    print(f"registered {name} as {registration.sha256[:8]} at {registration.registered_at}")
    print(f"told in words: {chain.open_case(study, root).root.page(name)}")
    print(f"ledger head {entry.sha256}")


def amend(
    study: StudyFile,
    reason: Annotated[str, typer.Option(help="Why, in a sentence; kept in the ledger.")],
    root: RootFolder = None,
    pilot: Pilot = None,
    accept: Accept = None,
) -> None:
    """Register a changed study, with a reason.

    The earlier registration stays in the ledger, with what differs and whether evidence existed by then.

    Example:  ablate amend studies/embnorm.yaml --reason "two more seeds, before any run"
    """
    registration, entry = chain.amend(study, reason=reason, root=root, pilot=pilot, accept_underpowered=accept)
    print(
        f"amended {registration.study.study}: {str(registration.previous)[:8]} is now {registration.sha256[:8]}; "
        f"evidence by then: {entry.body['evidence']}"
    )
    print(f"told in words: {chain.open_case(study, root).root.page(registration.study.study)}")
    print(f"ledger head {entry.sha256}")
