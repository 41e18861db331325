"""HTML report in one file: styles and figures inside, no script, nothing fetched from anywhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ablate.reporting import charts
from ablate.reporting.blocks import Panel
from ablate.reporting.context import ReportContext
from ablate.reporting.document import Document, compose
from prereg.escape import visible
from prereg.registry.canon import sha256_bytes

_OPENING = re.compile(r"<svg[^>]*\bwidth=\"([\d.]+)\" height=\"([\d.]+)\" viewBox=\"([^\"]+)\"[^>]*>")
_ROLE = re.compile(r'(<g [^<>]*?) role="graphics-(?:object|symbol)" aria-roledescription="[a-z -]*"')
_IDENTIFIER = re.compile(r"\bid=\"([^\"]+)\"|url\(#([^)]+)\)")

OPENED = (
    "findings", "components", "curves", "studies", "effects", "proposals", "best", "promise",
)  # fmt: skip
"""Sections that are open on a screen when the page is; all are on paper."""


def render_html(context: ReportContext, document: Document | None = None) -> str:
    """report.html of a decision, from its document where the caller has composed it."""
    return html_page(document or compose(context))


def html_page(document: Document) -> str:
    """A document as a page of its own."""
    template = _environment().get_template("report.html")
    drawn = iter(range(10_000))

    def draw(panel: Panel) -> Markup:
        return inline_svg(charts.draw_chart(panel.make), words=panel.words, prefix=f"figure{next(drawn)}")

    # Of inadmissible evidence the checks that failed are what there is to read.
    opened = OPENED if document.banner.status != "inadmissible" else (*OPENED, "checks", "deviations")
    return template.render(document=document, draw=draw, opened=opened)


def first_screen(document: Document) -> str:
    """The first screen of a document as a part of somebody else's page: the verdict in words, the forest plot, trust.

    It has its own ground and ink, for light and dark pages, and no script.
    """
    # Two first screens may stand in one notebook, and the same decision must give the same bytes: so
    # ids come neither from a counter nor from a random number.
    mark = sha256_bytes(repr((document.study, document.banner)).encode())[:8]

    drawn = iter(range(10_000))

    def draw(panel: Panel) -> Markup:
        return inline_svg(charts.draw_chart(panel.make), words=panel.words, prefix=f"ablate-{mark}-{next(drawn)}")

    return _environment().get_template("first_screen.html").render(document=document, draw=draw)


def inline_svg(svg: str, *, words: str, prefix: str) -> Markup:
    """An SVG that can stand next to others in one page: identifiers of its own, a name for those who cannot see it."""
    opening = _OPENING.match(svg)
    assert opening is not None, svg[:200]
    width, height, box = opening.groups()
    # Parts of a picture have no role of their own: one without a name is a fault to a screen reader.
    # Escaped before ids are written, which hold nothing of the study.
    plain = _ROLE.sub(r"\1", visible(svg[opening.end() :], lines=True))
    # Each SVG counts its clips and gradients from 0: in one page the second would use those of the first.
    body = _IDENTIFIER.sub(
        lambda match: f'id="{prefix}-{match[1]}"' if match[1] else f"url(#{prefix}-{match[2]})", plain
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label="{escape(visible(words))}" '
        f'width="{width}" height="{height}" viewBox="{box}">'
    )
    return Markup(head + body)  # noqa: S704 - the drawing library escapes text in SVG; the label is escaped above


@cache
def _environment() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_seen,
    )


def _seen(value: object) -> object:
    """Every text that a template puts into the page, before it is escaped; drawings and other values as they are."""
    return visible(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value
