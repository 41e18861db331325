"""Markdown that reads the same on a code host and on the site: tables, anchors, blocks of a docstring."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from inspect import cleandoc
from textwrap import dedent

NOTE = "Generated from the code by `python -m docs.generator`; do not edit."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are one line each, and a bar in one does not end it."""
    lines = [head, ["---"] * len(head), *([_cell(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def anchor(heading: str) -> str:
    """What a heading is called in a link, on a code host and by MyST."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def link(heading: str, text: str = "") -> str:
    """A link to a heading of the same page."""
    return f"[{text or heading}](#{anchor(heading)})"


def code(text: str) -> str:
    """A word of code."""
    return f"`{text}`"


def indented_block(docstring: str | None) -> str:
    """The first indented block of a docstring as a block of code: a grammar, or a list of files."""
    lines = cleandoc(docstring or "").splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("    "))
    last = next(
        (at for at, line in enumerate(lines) if at > first and line and not line.startswith("    ")), len(lines)
    )
    return "```text\n" + dedent("\n".join(lines[first:last])).strip("\n") + "\n```\n"


def sentence(text: str) -> str:
    """A plain text in one line; outside of code no character of it is markup."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if at % 2 else re.sub(r"([*<])", r"\\\1", part) for at, part in enumerate(parts))
