"""`ablate paper`: one paper of several decided studies, from a folder that holds its plan and its prose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.deciding import results
from ablate.proving import verify
from ablate.workspace import HERE, Workspace
from prereg.errors import EvidenceError, SpecError, StudyError, StudyFileError, Where
from prereg.study.faults import read_model
from prereg.yaml_reader import Lines, line_of, parse_yaml

if TYPE_CHECKING:
    from ablate.reporting.context import ReportContext
    from ablate.reporting.latex.article import PaperPlan
    from ablate.reporting.latex.references import Works

PLAN, WORKS = "paper.yaml", "works.bib"


def write_paper(folder: str | Path, *, workspace: Workspace = HERE) -> tuple[Path, ...]:
    """Write paper.tex, references.bib and figures/ into the folder of a paper; returns the files.

    The folder holds paper.yaml (title, authors, studies, figures), the prose as Markdown, and works.bib for what it
    cites. Decides and logs nothing: every study is verified and judged again. Raises `EvidenceError` where one is not
    decided, gives no verdict or does not verify, and `StudyFileError` or `SpecError` for a file of the folder; nothing
    is written then.

        ablate.write_paper("reports/paper")
    """
    from ablate.reporting.exports.figures import draw_panel
    from ablate.reporting.latex.article import PROSE, PaperSource, article, file_of
    from prereg.registry.disk import write_whole

    # Plan, prose, works, then the studies: what is quick to check is refused first.
    place = Path(folder)
    plan, lines = _plan(place / PLAN)
    prose = _prose(place, {name: place / file_of(name) for name in PROSE})
    works = _works(place / WORKS)
    source = PaperSource(plan, prose, _decided(plan, place / PLAN, workspace), works)
    try:
        # An error of the article names a file of the folder, or a field of the plan: here it gets the line of it.
        made = article(source)
    except StudyError as error:
        raise error.at(
            file=place / (error.where.file or PLAN), line=error.where.line or line_of(error.where.field, lines)
        ) from None
    # Everything is made before anything is written.
    files = {name: text.encode() for name, text in made.texts.items()}
    files |= {f"figures/{drawing.stem}.pdf": draw_panel(drawing.panel, "pdf") for drawing in made.drawings}
    (place / "figures").mkdir(exist_ok=True)
    for name, data in files.items():
        write_whole(place / name, data)
    return tuple(place / name for name in files)


def _plan(path: Path) -> tuple[PaperPlan, Lines]:
    """What paper.yaml says, and the lines of its fields."""
    from ablate.reporting.latex.article import PaperPlan

    if not path.is_file():
        raise StudyFileError(
            "there is no plan of a paper here",
            required=f"a folder with {PLAN}: title, authors, studies",
            fix="ablate paper FOLDER",
            where=Where(file=path),
        )
    lines: Lines = {}  # filled by parse_yaml: field -> line
    try:
        plan = read_model(PaperPlan, parse_yaml(path.read_bytes(), lines, first="title: TITLE"), form="a paper")
        if not plan.studies or len(set(plan.studies)) < len(plan.studies):
            fault = "no study" if not plan.studies else "a study twice"
            raise SpecError(fault, required="each study once", where=Where(field=("studies",)))
    except StudyError as error:
        raise error.at(file=path, line=error.where.line or line_of(error.where.field, lines)) from None
    return plan, lines


def _prose(folder: Path, files: Mapping[str, Path]) -> dict[str, str]:
    """The text of every part. Raises `StudyFileError` naming those that are not there."""
    if missing := [path for path in files.values() if not path.is_file()]:
        raise StudyFileError(
            f"{', '.join(path.name for path in missing)} not here",
            required=", ".join(path.name for path in files.values()),
            fix=f"write {missing[0]}; its first line is the heading: # TITLE",
            where=Where(file=folder),
        )
    return {name: path.read_text(encoding="utf-8") for name, path in files.items()}


def _works(path: Path) -> Works:
    from ablate.reporting.latex.references import works_of

    try:
        return works_of(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except StudyError as error:
        raise error.at(file=path) from None


def _decided(plan: PaperPlan, path: Path, workspace: Workspace) -> dict[str, ReportContext]:
    """What each study found. Raises one `EvidenceError` that names every study without a verdict that verifies."""
    contexts: dict[str, ReportContext] = {}
    faults: dict[str, str] = {}
    for name in plan.studies:
        study = workspace.project.study(name)
        try:
            faults[name], context = "", results(study, workspace=workspace).context
            # Both: `results` judges what is on disk again, `verify` checks that it is what was sealed and signed.
            verification = verify(study, workspace=workspace)
        except StudyError as error:
            faults[name] = error.found
            continue
        faults[name] = next((fault for item in verification.items for fault in item.faults), "")
        if verification.judged_differently:
            faults[name] = faults[name] or "this version judges its evidence differently"
        assert context is not None, name
        if not context.decision.gives_verdict:
            faults[name] = faults[name] or f"its evidence is {context.decision.status}"
        contexts[name] = context
    if refused := {name: fault for name, fault in faults.items() if fault}:
        project = workspace.project
        first = project.relative(project.study(next(iter(refused))))
        raise EvidenceError(
            "; ".join(f"'{name}': {fault}" for name, fault in refused.items()),
            required="studies that are decided and verify, since every number of a paper is that of a verdict",
            fix=f"ablate decide {first}, or ablate verify {first}; or take it out of studies:",
            where=Where(file=path),
        )
    return contexts
