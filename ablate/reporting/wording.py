"""Templates of reports (`templates/*.txt`), which hold every sentence, rendered to text or to blocks.

Takes values, gives text or blocks; it decides nothing. A file holds phrases (Jinja2 macros, which give one line) or a
page, which is parsed into the blocks of `blocks.py`:

    a paragraph over any number of lines                 Paragraph
    !warning a paragraph; also !lead, !aside, !trust     Paragraph of that tone
    - term :: text                                       Facts, an item a line; without a term: - text
    [[name]]                                             the table or figure that was given under that name, if any

What is put into a template is data: `finalize` writes its signs so that none of them is read as one of these. The
renderers escape for their own formats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from ablate.reporting.blocks import Block, Facts, Figure, Paragraph, Table, Tone
from prereg import text as words
from prereg.documents.claims import capital
from prereg.escape import visible

# What is put into a page may begin with a sign of the page: while the page is parsed, such signs of a value are
# characters of Unicode's private use area.
_SIGNS = str.maketrans("-![:", "\ue001\ue002\ue003\ue004")
_READ_BACK = str.maketrans("\ue001\ue002\ue003\ue004", "-![:")
_TONE = re.compile(r"!(warning|lead|aside|trust)\s+")
_PLACE = re.compile(r"\[\[(\w+)\]\]")
_TONES: dict[str, Tone] = {"warning": "warning", "lead": "lead", "aside": "aside", "trust": "trust"}


def phrase(name: str, *args: object, **values: object) -> str:
    """A line of text: `finding.clause` is the macro `clause` of `finding.txt`.

    >>> phrase("charts.seed", 3)
    'seed 3'
    """
    file, _, macro = name.partition(".")
    # A macro that does not exist is our mistake, and an AttributeError with its name.
    text: str = getattr(_template(file).module, macro)(*args, **values)
    return _plain(text)


def blocks(name: str, **values: object) -> tuple[Block, ...]:
    """A page as blocks. Tables and figures among the values take the place of their names."""
    page = _template(name).render(**values)
    return tuple(_blocks(page, values))


def _blocks(page: str, values: dict[str, object]) -> Iterator[Block]:
    for part in re.split(r"\n\s*\n", page):
        text = part.strip()
        if not text:
            continue
        if place := _PLACE.fullmatch(text):
            block = values[place[1]]
            assert block is None or isinstance(block, Table | Figure | Paragraph | Facts), (place[1], block)
            if block is not None:
                yield block
        elif text.startswith("- "):
            yield Facts(tuple(_item(item) for item in re.split(r"(?:^|\n)- ", text)[1:]))
        else:
            tone = _TONE.match(text)
            yield Paragraph(_plain(text[tone.end() :] if tone else text), _TONES[tone[1]] if tone else "plain")


def _item(text: str) -> tuple[str, str]:
    term, separator, rest = text.partition(" :: ")
    return (_plain(term), _plain(rest)) if separator else ("", _plain(text))


def _plain(text: str) -> str:
    # Templates break their lines where they like; a sentence is one line.
    return " ".join(text.split()).translate(_READ_BACK)


@cache
def _template(name: str) -> Template:
    return _environment().get_template(f"{name}.txt")


@cache
def _environment() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(  # noqa: S701 - plain text: renderers escape for their own formats
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_data
    )
    environment.filters |= {
        "listed": words.listed,
        "counted": words.counted,
        "compact": words.compact,
        "significant": words.significant,
        "share": words.share,
        "capital": capital,
        "json": partial(json.dumps, ensure_ascii=False),
        "sentence_case": lambda text: text[:1].upper() + text[1:],
    }
    return environment


def _data(value: object) -> object:
    return visible(value).translate(_SIGNS) if isinstance(value, str) else value
