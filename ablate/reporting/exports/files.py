"""What a report is written as besides its two pages: the files of each form, by path in the folder of the study.

The pages are bound to the decision by the ledger. These files are for a paper and are meant to be edited: nothing
verifies them, and each follows from the same decision at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ablate.reporting.context import ReportContext
from ablate.reporting.document import Document
from ablate.reporting.exports import figures
from ablate.reporting.exports.csv_files import csv_files
from ablate.reporting.latex.paper import paper

Export = Literal["latex", "figures", "csv"]
EXPORTS: tuple[Export, ...] = ("latex", "figures", "csv")


def export_files(form: Export, context: ReportContext, document: Document) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of every file of a form, one after the other."""
    if form == "csv":
        yield from ((f"csv/{name}", data) for name, data in csv_files(context).items())
    elif form == "latex":
        made = paper(context, document)
        yield from ((f"latex/{name}", text.encode()) for name, text in made.texts.items())
        yield from ((f"latex/figures/{one.stem}.pdf", figures.draw(one.panel, "pdf")) for one in made.drawings)
    else:
        drawn = figures.drawings(document)
        for one in drawn:
            yield from ((f"figures/{one.stem}.{form_}", figures.draw(one.panel, form_)) for form_ in figures.FORMS)
        yield "figures/captions.md", figures.captions(drawn).encode()
