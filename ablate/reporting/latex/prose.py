"""Prose of a paper: a file of Markdown as blocks, which the one writer of LaTeX renders.

Takes in headings, paragraphs, lists, tables and `code`; a cited work is named in words, as in every text here. A number
of a study is referred to and not typed: `[[STUDY.CLAIM]]` is what was found, with interval, n and margin, `[[STUDY]]`
the verdict. What this cannot carry over, such as emphasis and links, is refused and not dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from operator import itemgetter

from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table
from ablate.reporting.catalogue import Catalogued
from prereg.errors import SpecError, Where, nearest

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ASKED = re.compile(r"\[\[([^\[\]]+)\]\]")
_CODE = re.compile(r"`[^`]+`")
_RULE = re.compile(r"\|[\s|:-]+\|")
_NOT_CARRIED = (
    (re.compile(r"```|~~~"), "a block of code"),
    (re.compile(r"!?\[[^\]]*\]\("), "a link or a picture"),
    (re.compile(r"\*|(?<!\w)_\w|__"), "emphasis"),
    (re.compile(r"#{3,} "), "a heading of the third level"),
    (re.compile(r">|\d{1,2}[.)] "), "a quotation or a numbered list"),
)
"""A pattern at the beginning of a line, or for the first three anywhere in it, and what it is in Markdown."""
_ANYWHERE = 3


def prose(name: str, text: str, findings: Mapping[str, str]) -> tuple[Section, ...]:
    """The section of a file, whose first heading is its title, and its subsections after it.

    `findings` holds what `[[...]]` may ask for. Raises `SpecError` with the line of what cannot be carried over.

        >>> (section,) = prose("abstract", "# Norms\\n\\nWith a norm it is [[norm]].", {"norm": "better"})
        >>> section.title, section.blocks[0].text
        ('Norms', 'With a norm it is better.')
    """
    # A comment keeps its lines, so that errors name those of the file.
    lines = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text).split("\n")
    titles: list[tuple[str, list[Block]]] = []
    for at, part in _parts(lines):
        _require_plain(part, at)
        heading = re.fullmatch(r"(##?) (.+)", part[0])
        if (heading is None or len(heading[1]) == 2) and not titles:  # a subsection too has no section to be in
            raise _error(f"{name} begins with other text", "a heading first, which is the section's", at, "# TITLE")
        if heading is not None and len(heading[1]) == 1 and titles:
            raise _error("a second heading of the first level", "one section a file", at, f"#{part[0]}")
        if heading is not None:
            titles.append((heading[2].strip(), []))
        first = int(heading is not None)  # a heading may have its paragraph right under it
        if text_lines := [_filled(line, at + n, findings) for n, line in enumerate(part)][first:]:
            titles[-1][1].append(_block(text_lines, at + first))
    if not titles:
        raise _error(f"{name} is empty", "a heading and text", 1, "# TITLE")
    return tuple(Section(f"{name}-{at}", title, tuple(blocks)) for at, (title, blocks) in enumerate(titles))


def _parts(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """What blank lines separate, each with the number of its first line, from 1."""
    part: list[str] = []
    for at, line in enumerate([*lines, ""], start=1):
        if line.strip():
            part.append(line.rstrip())
        elif part:
            yield at - len(part), part  # the blank line that ends a part is not one of it
            part = []


def _require_plain(part: list[str], at: int) -> None:
    for n, line in enumerate(part):
        plain = _CODE.sub("", line)  # in `code` a star is a star
        for row, (pattern, what) in enumerate(_NOT_CARRIED):
            if (pattern.search if row < _ANYWHERE else pattern.match)(plain):
                required = "headings, paragraphs, lists with '- ', tables and `code`"
                raise _error(f"{what}: {line.strip()[:60]!a}", required, at + n, "write it as plain text")


def _filled(line: str, at: int, findings: Mapping[str, str]) -> str:
    def of(reference: re.Match[str]) -> str:
        if reference[1] not in findings:
            required = "a study of this paper, or one of its claims as STUDY.CLAIM"
            raise _error(
                f"'{reference[1]}' is neither a study nor a claim", required, at, nearest(reference[1], findings)
            )
        return findings[reference[1]]

    return _ASKED.sub(of, line)


def _block(part: list[str], at: int) -> Block:
    if part[0].startswith("|"):
        return _table(part, at)
    if part[0].startswith("- "):
        items = re.split(r"(?:^|\n)- ", "\n".join(part))[1:]  # an item goes on over lines that do not begin with "- "
        return Facts(tuple(("", " ".join(item.split())) for item in items))
    return Paragraph(" ".join(line.strip() for line in part))


def _table(part: list[str], at: int) -> Table:
    rows = [tuple(cell.strip() for cell in line.strip().strip("|").split("|")) for line in part]
    ruled = len(part) > 2 and _RULE.fullmatch(part[1]) is not None
    if not ruled or len({len(row) for row in rows}) > 1 or len(set(rows[0])) < len(rows[0]):
        fault = "a table with rows of different lengths, two columns of one name, or without its second line"
        raise _error(fault, "a heading for each column, a second line such as |---|---:|, and rows", at)
    # A colon ends the heading of a column of numbers, as in `blocks.columns`.
    heads = [head + ":" * rule.endswith(":") for head, rule in zip(rows[0], rows[1], strict=True)]
    written = Catalogued[tuple[str, ...]](
        "", {head: itemgetter(column) for column, head in enumerate(heads)}, caption=False
    )
    return written.of(rows[2:])


def _error(fault: str, required: str, line: int, fix: str = "") -> SpecError:
    return SpecError(fault, required=required, fix=fix, where=Where(line=line))
