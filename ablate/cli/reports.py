"""Commands that write what was decided: report (pages, forms for a paper, an index of studies)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.campaigns import names_campaign
from ablate.cli.command import Result, command
from ablate.cli.proof import report_of_bundle
from ablate.workspace import Workspace
from prereg.errors import SpecError
from prereg.text import counted


@command(interrupted="the decision is in the ledger; repeat the command to write its report")
def report_command(
    workspace: Workspace,
    study: Annotated[
        Path | None, typer.Argument(metavar="STUDY", help="Path of a study, a campaign, or a bundle.")
    ] = None,
    *,
    forms: Annotated[
        list[str] | None,
        typer.Option(
            "--as",
            metavar="FORM",
            help="html, markdown, latex, figures, csv or all (repeatable; default: html and markdown).",
        ),
    ] = None,
    every_study: Annotated[
        bool, typer.Option("--all", help="Instead: an index over all studies, reports/index.html, .md and .tex.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Of a bundle: where to write (STUDY.report next to it).")
    ] = None,
) -> Result:
    """Write the last decision's reports, in any form.

    Decides nothing new. latex: report.tex, which compiles by itself, and parts for a paper. figures: PDF, SVG and PNG.
    csv: findings, pairs and curves. Where sealed records are gone, committed evidence is read. Of a bundle, writes the
    pages from its records alone, once all its checks pass. Of a campaign, a page of every proposal and its total gain.

    Example:  ablate report studies/embnorm.yaml --as latex
    """
    from ablate.verification.archive import is_bundle

    # One thing at a time: a study in some forms, a bundle into a folder, or the index over all studies.
    if (study is None) is not every_study or (every_study and forms):
        raise SpecError(
            "--all with a study or with --as" if every_study else "no study to report",
            required="one study, or --all for an index over all of them",
            fix="ablate report --all" if every_study else "ablate report STUDY, or ablate report --all",
        )
    if study is None:
        from ablate.exporting import report_index

        files = report_index(workspace=workspace)
        return Result({"wrote": files}, lambda: [f"wrote {path}" for path in files])
    if names_campaign(study):
        if out is not None or not {*(forms or ())} <= {"html", "markdown"}:
            raise SpecError(
                f"{'--out' if out is not None else '--as'} with a campaign",
                required="the two pages of a campaign, in their place; other forms are those of its studies",
                fix=f"ablate report {study}",
            )
        from ablate.campaign_report import report_campaign

        written_pages = report_campaign(study, workspace=workspace)
        return Result({"wrote": written_pages}, lambda: [f"wrote {path}" for path in written_pages])
    if is_bundle(study) and not forms:
        return report_of_bundle(study, out)
    if out is not None or is_bundle(study):
        raise SpecError(
            "--out with a study, whose reports have their place" if out is not None else "--as with a bundle",
            required="a bundle without --as, or a study without --out",
            fix=f"ablate report {study}",
        )
    from ablate.deciding import report as write

    # The decision as it was taken. What is drawn is judged again, and must be that decision.
    written = write(study, workspace=workspace, forms=forms or ("html", "markdown"))
    pages = [page for page in (written.markdown_path, written.html_path) if page is not None]
    facts: dict[str, object] = {"wrote": [*pages, *written.exported], "head": written.head}
    if written.evidence_path is not None:
        facts["evidence"] = written.evidence_path

    def text() -> Iterator[str]:
        if written.evidence_path is not None:
            yield from_evidence(written.evidence_path)
        yield from (f"wrote {page}" for page in pages)
        folders = Counter(path.parent for path in written.exported)  # figures are many: a line for each folder
        yield from (f"wrote {folder}/ ({counted(n, 'file')})" for folder, n in folders.items())
        yield f"ledger head {written.head}"

    return Result(facts, text)


def from_evidence(path: Path) -> str:
    """What says that committed evidence was read."""
    return f"no sealed run is in data/runs: judged from the committed evidence, {path}"
