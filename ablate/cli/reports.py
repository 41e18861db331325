"""The command that writes what was decided: pages, forms for a paper, and an index over all studies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import ablate
from ablate.cli.options import AsJson, RootFolder, put, put_json
from ablate.cli.proof import report_bundle
from prereg.errors import SpecError
from prereg.text import counted


class ReportForm(StrEnum):
    """What a report is written as."""

    html = "html"
    markdown = "markdown"
    latex = "latex"
    figures = "figures"
    csv = "csv"
    all = "all"


def report(
    study: Annotated[
        Path | None, typer.Argument(metavar="STUDY", help="Path of a study file, or of a bundle: zip file or folder.")
    ] = None,
    root: RootFolder = None,
    *,
    forms: Annotated[
        list[ReportForm] | None,
        typer.Option("--as", help="What to write (repeatable; default: html and markdown)."),
    ] = None,
    every_study: Annotated[
        bool, typer.Option("--all", help="Instead: an index over all studies, reports/index.html, .md and .tex.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Of a bundle: where to write (STUDY.report next to it).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the last decision's reports, in any form.

    Decides nothing new. latex: report.tex, which compiles by itself, and parts for a paper. figures: PDF, SVG and PNG.
    csv: findings, pairs and curves. Where sealed records are gone, committed evidence is read. Of a bundle, writes the
    pages from its records alone, once all its checks pass.

    Example:  ablate report studies/embnorm.yaml --as latex
    """
    from ablate.verification.bundle.container import is_bundle

    if (study is None) is not every_study or (every_study and forms):
        raise SpecError(
            "--all with a study or with --as" if every_study else "no study to report",
            required="one study, or --all for an index over all of them",
            fix="ablate report --all" if every_study else "ablate report STUDY, or ablate report --all",
        )
    if study is None:
        return _report_index(root, as_json=as_json)
    if is_bundle(study) and not forms:
        return report_bundle(study, out, as_json=as_json)
    if out is not None or is_bundle(study):
        raise SpecError(
            "--out with a study, whose reports have their place" if out is not None else "--as with a bundle",
            required="a bundle without --as, or a study without --out",
            fix=f"ablate report {study}",
        )
    chosen = [form.value for form in forms or (ReportForm.html, ReportForm.markdown)]
    if ReportForm.all in chosen:
        chosen = [form.value for form in ReportForm if form is not ReportForm.all]
    written = ablate.report(study, root=root, forms=chosen)
    pages = [page for page in (written.markdown_path, written.html_path) if page is not None]
    if as_json:
        files = [str(path) for path in (*pages, *written.exported)]
        used = {} if written.evidence_path is None else {"evidence": str(written.evidence_path)}
        facts = {"wrote": files, "head": written.head, **used}
        return put_json(json.dumps(facts, indent=2))
    if written.evidence_path is not None:
        put(from_evidence(written.evidence_path))
    put(*(f"wrote {page}" for page in pages), *_wrote(written.exported), f"ledger head {written.head}")
    return None


def from_evidence(path: Path) -> str:
    """What says that committed evidence was read."""
    return f"no sealed run is in data/runs: judged from the committed evidence, {path}"


def _wrote(files: Sequence[Path]) -> list[str]:
    """A line for each folder of files."""
    folders: dict[Path, int] = {}
    for path in files:
        folders[path.parent] = folders.get(path.parent, 0) + 1
    return [f"wrote {folder}/ ({counted(n, 'file')})" for folder, n in folders.items()]


def _report_index(root: Path | None, *, as_json: bool) -> None:
    files = ablate.report_index(root=root)
    if as_json:
        return put_json(json.dumps({"wrote": [str(path) for path in files]}, indent=2))
    return put(*(f"wrote {path}" for path in files))
