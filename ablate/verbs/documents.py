"""Verbs that write a registration for people without the tool."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ablate import chain
from ablate.verbs.options import AsJson, RootFolder, StudyFile, put, put_document


class Form(StrEnum):
    """The documents there are."""

    aspredicted = "aspredicted"
    osf = "osf"
    markdown = "markdown"


def export(
    study: StudyFile,
    form: Annotated[Form, typer.Option("--as", help="Which document: a form to hand in, or a page to read.")],
    root: RootFolder = None,
    out: Annotated[Path | None, typer.Option(help="A file to write; printed if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Export a registration for OSF or AsPredicted.

    Full sentences from the lock; a study that is not registered is marked as a draft. Fields that only you can answer
    stay blank.

    Example:  ablate export studies/embnorm.yaml --as osf --out osf.md
    """
    document = chain.export(study, form=form.value, root=root, as_json=as_json)
    if out is None:
        put_document(document.text)
        return
    chain.save(document.text, out)
    put(f"wrote {out}" + (", a DRAFT: the study is not registered" if document.draft else ""))
    for title in document.blanks:
        put(f"left to you: {title}")
