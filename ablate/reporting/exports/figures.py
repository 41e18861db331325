"""Figures as files to print: PDF, SVG and PNG, each panel with its title in it, and their captions.

Panels are those of the document's figures, in black on white whatever a screen shows. The captions are in `captions.md`
next to them: a picture without its caption says neither n nor which interval it draws.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Literal

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode

from ablate.reporting.blocks import Figure, Panel
from ablate.reporting.document import Document
from prereg.escape import markdown_line, visible

Form = Literal["pdf", "svg", "png"]
FORMS: tuple[Form, ...] = ("pdf", "svg", "png")
PRINTED_SCALE = 4.17
"""Pixels of a PNG for each of the drawing's own: 300 to an inch where the drawing has 72."""
_TITLE_LINE, _LETTER = 15, 6.2
"""Height of a line of a title and width of a letter of it, in the drawing's pixels."""


@dataclass(frozen=True)
class Drawing:
    """One panel and the name of its files."""

    figure: Figure
    panel: Panel
    stem: str


def drawings(document: Document) -> tuple[Drawing, ...]:
    """Every panel of a document, in its order."""
    return tuple(_named(document.figures))


def _named(figures: Sequence[Figure]) -> Iterator[Drawing]:
    taken: set[str] = set()
    for figure in figures:
        # Names of files on any system: ASCII, lower case, at most 48 letters.
        words = re.sub(r"[^a-z0-9]+", "-", figure.name.lower()).strip("-")[:48].strip("-") or "figure"
        # Two figures may have one name after that: the second gets a number.
        name = next(stem for n in range(1, len(figures) + 1) if (stem := words + f"-{n}" * (n > 1)) not in taken)
        taken.add(name)
        shapes = [panel.shape for panel in figure.panels]
        for at, panel in enumerate(figure.panels):
            shape = f"-{panel.shape}" * (panel.shape != "panel")
            number = f"-{shapes[: at + 1].count(panel.shape)}" * (shapes.count(panel.shape) > 1)
            yield Drawing(figure, panel, name + shape + number)


def files_of(drawn: tuple[Drawing, ...]) -> Mapping[str, tuple[str, ...]]:
    """Figure's name -> the stems of its panels in a paper: of a drawing that has two shapes the narrow one, whose
    letters are still read in a column."""
    names = dict.fromkeys(drawing.figure.name for drawing in drawn)
    return {
        name: tuple(drawing.stem for drawing in drawn if drawing.figure.name == name and drawing.panel.shape != "wide")
        for name in names
    }


def draw_panel(panel: Panel, form: Form) -> bytes:
    """A panel as a file of one of the three forms."""
    with debug_mode(False):  # as `charts.draw_chart`
        spec = printable(panel.make().to_dict(validate=False), panel.title)
    version = "_".join(alt.SCHEMA_VERSION.split(".")[:2])
    if form == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(spec, vl_version=version))
    if form == "png":
        return bytes(vl_convert.vegalite_to_png(spec, vl_version=version, scale=PRINTED_SCALE, ppi=72))
    return str(vl_convert.vegalite_to_svg(spec, vl_version=version)).encode()


def printable(spec: dict[str, Any], title: str) -> dict[str, Any]:
    """A chart for paper: black letters on white, and its title above it."""
    config = spec.get("config", {})
    ink = {"labelColor": "#000000", "titleColor": "#000000", "domainColor": "#444444", "tickColor": "#444444"}
    made = spec | {"background": "white", "config": config | {"axis": config.get("axis", {}) | ink}}
    # vega breaks no title by itself and lets it run over the edge.
    lines = wrap(visible(title), max(20, int(spec["width"] / _LETTER)))
    if not lines:
        return made
    # A drawing that is fitted into its size would take the room of the title from its plot.
    height = spec["height"] + _TITLE_LINE * len(lines) * ("autosize" in spec)
    how = {"fontSize": 12, "fontWeight": "normal", "anchor": "start", "color": "#000000", "lineHeight": _TITLE_LINE}
    return made | {"height": height, "title": {"text": lines, **how}}


def chart(drawing: Drawing, *, warning: str = "") -> alt.LayerChart:
    """A panel as an altair chart, its title above it, and under that a warning and the caption, without which a picture
    says neither n nor which interval it draws."""
    made: alt.LayerChart = drawing.panel.make()
    width = max(20, int(float(made.width) / _LETTER))
    title = wrap(visible(drawing.panel.title or drawing.figure.name), width)
    # Letters of the subtitle are smaller, so a tenth more of them fit.
    below = [line for text in (warning, drawing.figure.caption) for line in wrap(visible(text), int(width * 1.1))]
    made.title = alt.TitleParams(
        text=title,
        subtitle=below,
        anchor="start",
        fontSize=12,
        lineHeight=_TITLE_LINE,
        subtitleFontSize=10,
        subtitleLineHeight=_TITLE_LINE - 2,
        subtitleColor="#444444",
        offset=8,
    )
    if made.autosize is not alt.Undefined:  # fitted into its size, which the title would take from the plot
        made.height = float(made.height) + _TITLE_LINE * (len(title) + len(below) + 1)
    return made


def captions(drawn: tuple[Drawing, ...]) -> str:
    """What each figure shows, and each of its files, as Markdown."""
    parts = []
    for name in dict.fromkeys(drawing.figure.name for drawing in drawn):
        mine = [drawing for drawing in drawn if drawing.figure.name == name]
        lines = [f"- `{drawing.stem}`: {markdown_line(drawing.panel.words)}" for drawing in mine]
        parts.append("\n".join([f"## {markdown_line(name)}", "", markdown_line(mine[0].figure.caption), "", *lines]))
    return "# Figures\n\n" + "\n\n".join(parts) + "\n"
