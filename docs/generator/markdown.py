"""Markdown that reads the same on a code host and on the site: tables, anchors, blocks of a docstring."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from inspect import cleandoc
from textwrap import dedent


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are one line each, and a bar in one does not end it."""
    cells = [[re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split())) for text in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *cells)) + "\n"


def anchor(heading: str) -> str:
    """What a heading is called in a link, on a code host and by MyST."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def code(text: object) -> str:
    """A word of code."""
    return f"`{text}`"


def sentence(text: str) -> str:
    """A plain text in one line; outside of code no character of it is markup."""
    segments = " ".join(text.split()).split("`")
    # Every other segment lies between two backticks.
    return "`".join(text if at % 2 else re.sub(r"([*<])", r"\\\1", text) for at, text in enumerate(segments))


def indented_block(docstring: str | None) -> str:
    """The indented paragraphs of a docstring as a block of code: a list of files."""
    paragraphs = cleandoc(docstring or "").split("\n\n")
    listed = "\n\n".join(paragraph for paragraph in paragraphs if paragraph.startswith("    "))
    return f"```text\n{dedent(listed)}\n```\n"
