"""Markdown report, its figures in characters where they have any. Escapes what a study brings, adds nothing."""

from __future__ import annotations

from typing import assert_never

from ablate.reporting.blocks import Block, Facts, Figure, Paragraph, Section, Table
from ablate.reporting.context import ReportContext
from ablate.reporting.document import Banner, Document, compose
from prereg.escape import markdown_line as escape
from prereg.escape import visible


def render_markdown(context: ReportContext, document: Document | None = None) -> str:
    """report.md of a decision, from its document where the caller has composed it."""
    return markdown_page(document or compose(context))


def markdown_page(document: Document) -> str:
    """A document as a page of its own."""
    parts = [f"# {escape(document.title)}", _banner(document.banner, document.study)]
    parts += [_block(block) for block in document.opening]
    parts += [part(section) for section in document.sections]
    return "\n\n".join(parts) + "\n"


def _banner(banner: Banner, study: str) -> str:
    # A list within a quotation needs an empty line of the quotation before it.
    failed = [">", *[f"> - {escape(reason)}" for reason in banner.failed]] if banner.failed else []
    reasons = [part for reason in banner.reasons for part in (">", f"> {escape(reason)}")]
    lines = [f"> **{escape(banner.word)}: {escape(banner.headline)}**", *failed, *reasons]
    return "\n".join([*([f"Study `{study}`", ""] if study else []), *lines])


def part(section: Section) -> str:
    """One section, with its heading.

    >>> print(part(Section("runs", "Runs", (Paragraph("Six, all sealed."),))))
    ## Runs
    <BLANKLINE>
    Six, all sealed.
    """
    return "\n\n".join([f"## {escape(section.title)}", *[_block(block) for block in section.blocks]])


def _block(block: Block) -> str:
    match block:
        case Paragraph():
            return f"**{escape(block.text)}**" if block.tone == "warning" else escape(block.text)
        case Facts():
            return "\n".join(
                f"- **{escape(term)}**: {escape(text)}" if term else f"- {escape(text)}" for term, text in block.items
            )
        case Table():
            return _table(block)
        case Figure(characters=lines) if lines:
            # Within a fence nothing is escaped; a run of backticks would end it.
            drawn = "\n".join(visible(line).replace("`", "'") for line in lines)
            return f"```text\n{drawn}\n```\n\n{escape(block.caption)}".rstrip()
        case Figure():
            return f"*Figure (drawn in report.html): {escape(block.name)}.* {escape(block.caption)}"
        case _:
            assert_never(block)


def _table(table: Table) -> str:
    heads = [escape(column.name) for column in table.columns]
    rules = ["---:" if column.numeric else ":---" for column in table.columns]
    rows = []
    for at, row in enumerate(table.rows):
        cells = [escape(cell) for cell in row]
        # Bold takes the place of the page's colour; of an empty cell the asterisks would be shown.
        if at in table.marked:
            cells = [f"**{cell}**" if cell else cell for cell in cells]
        rows.append(cells)
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, rules, *rows)]
    text = "\n".join(lines)
    text = f"*{escape(table.caption)}*\n\n{text}" if table.caption else text
    return f"{text}\n\n{escape(table.note)}" if table.note else text
