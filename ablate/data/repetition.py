"""Repetition in a text, counted exactly: lines, paragraphs, and held-out text that occurs in training text.

A line counts without the white space at its ends, and only if something is left; a paragraph is the text between
empty lines. A unit is repeated when the same unit occurs earlier in the text: of three equal lines two are. Near
repetitions (Lee et al. 2022) are not looked for. It describes a corpus; nothing is left out because of it.

Of a text so long that its units would fill the memory, a share of the different units is followed, chosen by their
hash: every copy of a chosen unit is counted and none of another, so the repeated share is estimated
(Gibbons 2001), and the same text is counted the same everywhere. Nothing is said of the estimate's error, which is
large where a few units make up most copies.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np

from ablate.data.cache import cached
from ablate.data.corpora import Library

_EMPTY_LINES = re.compile(r"\n[^\S\n]*\n\s*")
EVERY_UNIT_UPTO = 2**26
"""Characters of a text of which every unit is followed; of more, one in 2, 4, 8 and so on."""
IDS_SHOW_NO_LINES = "not measured, since ids show no lines"
_METHOD = 1
"""Counts that were kept under another number are made again."""


@dataclass(frozen=True)
class Share:
    """So many of so many."""

    repeated: int
    units: int

    @property
    def share(self) -> float:
        """Their share; 0 of nothing."""
        return self.repeated / self.units if self.units else 0.0


@dataclass(frozen=True)
class RepetitionCounts:
    """How much of a corpus occurs earlier in it, and how much of its held-out part occurs in the rest."""

    lines: Share
    paragraphs: Share
    held_out_lines: Share
    held_out_paragraphs: Share
    one_in: int
    """One in so many of the different units was followed; 1: every one."""


def repetition_in(library: Library, name: str, validation: float | Literal["own"]) -> RepetitionCounts | str:
    """Of a corpus with this validation part, counted once and kept in the user's cache; or why it is not measured."""
    manifest = library.manifest(name)
    if manifest.shards is not None:
        return IDS_SHOW_NO_LINES
    key = {"method": _METHOD, "sha256": manifest.sha256, "validation": validation, "upto": EVERY_UNIT_UPTO}

    def count() -> RepetitionCounts:
        corpus = library.find(name)
        held_out = corpus.held_out if validation == "own" else validation
        assert held_out is not None, name
        return repetition(corpus.text, held_out)

    return cached(library.cache / "repetition", key, count, _read_counts, asdict)


def _read_counts(note: dict[str, Any]) -> RepetitionCounts:
    return RepetitionCounts(**{part: Share(**note[part]) for part in _PARTS}, one_in=note["one_in"])


def repetition(text: str, held_out: str | float) -> RepetitionCounts:
    """Of a text whose held-out part is another text, or a share of this one, taken from its end.

    >>> counts = repetition("to be\\nor not\\nto be\\n", held_out="to be\\nat all\\n")
    >>> counts.lines, counts.held_out_lines
    (Share(repeated=2, units=5), Share(repeated=1, units=2))
    """
    texts: tuple[str, ...]
    if isinstance(held_out, str):
        # The held-out text counts as a part of the corpus, after the training text.
        train, held, texts = text, held_out, (text, held_out)
    else:
        border = int(len(text) * (1.0 - held_out))
        train, held, texts = text[:border], text[border:], (text,)
    # Powers of two: the units that are followed at 1 in 4 are among those at 1 in 2.
    one_in = 1
    while sum(map(len, texts)) > one_in * EVERY_UNIT_UPTO:
        one_in *= 2
    return RepetitionCounts(
        lines=repeated_units(chain.from_iterable(map(text_lines, texts)), one_in),
        paragraphs=repeated_units(chain.from_iterable(map(text_paragraphs, texts)), one_in),
        held_out_lines=repeated_from(text_lines(train), text_lines(held), one_in),
        held_out_paragraphs=repeated_from(text_paragraphs(train), text_paragraphs(held), one_in),
        one_in=one_in,
    )


_PARTS = ("lines", "paragraphs", "held_out_lines", "held_out_paragraphs")


def text_lines(text: str) -> Iterator[str]:
    """Lines that hold something, without the white space at their ends.

    >>> list(text_lines("to be \\n\\n  or not\\n"))
    ['to be', 'or not']
    """
    begin = 0
    # A generator in place of `splitlines`, which would hold a second copy of the text, and cuts at characters that
    # are no line breaks.
    while begin <= len(text):
        end = text.find("\n", begin)
        end = len(text) if end < 0 else end
        if line := text[begin:end].strip():
            yield line
        begin = end + 1


def text_paragraphs(text: str) -> Iterator[str]:
    """Text between empty lines, without the white space at its ends.

    >>> list(text_paragraphs("to be\\nor not\\n\\nto be"))
    ['to be\\nor not', 'to be']
    """
    begin = 0
    for gap in _EMPTY_LINES.finditer(text):
        if part := text[begin : gap.start()].strip():
            yield part
        begin = gap.end()
    if part := text[begin:].strip():
        yield part


def repeated_units(units: Iterable[str], one_in: int = 1) -> Share:
    """Units that occur earlier among the same units; of those that are followed.

    >>> repeated_units(["a", "b", "a", "a"]).share
    0.5
    """
    hashes = _followed(units, one_in)
    return Share(len(hashes) - len(np.unique(hashes)), len(hashes))


def repeated_from(earlier: Iterable[str], units: Iterable[str], one_in: int = 1) -> Share:
    """Units that occur among earlier ones: of held-out text, what training text gives away.

    >>> repeated_from(["a", "b"], ["b", "c"])
    Share(repeated=1, units=2)
    """
    hashes = _followed(units, one_in)
    return Share(int(np.isin(hashes, _followed(earlier, one_in)).sum()), len(hashes))


def _followed(units: Iterable[str], one_in: int) -> np.ndarray:
    """A hash of each unit that is followed: of ten million units, two differing ones meet once in 300,000 corpora."""
    hashes = array("Q")  # 8 bytes a unit, where a set of Python integers takes about 60
    for unit in units:
        digest = hashlib.blake2b(unit.encode(), digest_size=16).digest()
        # Chosen and named by different bytes: of the same ones, chosen units would share their last bits, and meet
        # more often.
        if int.from_bytes(digest[:8], "big") % one_in == 0:
            hashes.append(int.from_bytes(digest[8:], "big"))
    return np.array(hashes, dtype=np.uint64)
