"""An index over the studies of a repository."""

from __future__ import annotations

from pathlib import Path

from ablate.api.context import Clock, utc_now

FALSE_DISCOVERY_RATE = 0.05
ABANDONED_AFTER_DAYS = 90


def report_index(*, root: Path | None = None, now: Clock = utc_now) -> tuple[Path, ...]:
    """Write reports/index.md, index.html, index.tex and studies.tex over all studies; returns the files.

    Judges nothing and logs nothing: effects are those of verdict files that the ledger vouches for.
    """
    from ablate.judge.overview import studies_of
    from ablate.judge.programme import count_programme
    from ablate.reporting import html, markdown
    from ablate.reporting.exports.index import index_document, latex_index
    from prereg.registry.disk import write_whole
    from prereg.registry.paths import Root

    project = Root.around(Path(), root)
    studies = studies_of(project)
    programme = count_programme(
        project, level=FALSE_DISCOVERY_RATE, now=now(), abandoned_after_days=ABANDONED_AFTER_DAYS
    )
    document = index_document(studies, programme)
    texts = {"index.md": markdown.page(document), "index.html": html.page(document)}
    texts |= latex_index(document, studies)
    folder = project.path / "reports"
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        write_whole(folder / name, text.encode())
    return tuple(folder / name for name in texts)
