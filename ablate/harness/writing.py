"""Can a tokenizer write a text? Asked before training; a character tokenizer knows only its corpus' characters."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from prereg.errors import CorpusError

PREFIXES = ("\n", " ")
"""What stands for an empty context: the first of these that the tokenizer can write."""


class Tokenizer(Protocol):
    """What the adapter asks of a tokenizer."""

    @property
    def size(self) -> int:
        """Number of entries."""

    def encode(self, text: str) -> np.ndarray:
        """Token ids; `CorpusError` for what it cannot write."""


def can_write(tokenizer: Tokenizer, text: str) -> bool:
    """Whether the tokenizer has tokens for every character of a text."""
    try:
        tokenizer.encode(text)
    except CorpusError:
        return False
    return True


def prefix_of(tokenizer: Tokenizer) -> str:
    """The text that stands for an empty context."""
    for text in PREFIXES:
        if can_write(tokenizer, text):
            return text
    raise CorpusError(
        "the tokenizer can write neither a line break nor a blank",
        required="one of them, to stand before a text that has no context",
        fix="a corpus that holds line breaks",
    )
