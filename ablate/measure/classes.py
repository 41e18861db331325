"""The class of a token by its text: letters, numbers, punctuation, white space, end of document, pieces of a character.

It takes the bytes of every entry of a vocabulary, so that it is one rule for characters and for byte-level pieces. The
space that byte-pair tokenisers glue to the word behind it does not make a word white space.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np

from prereg.metrics.declarations import TOKEN_CLASSES

_BY_CATEGORY = {"L": "alphabetic", "M": "alphabetic", "N": "numeric"}


def class_of(piece: bytes) -> str:
    """The class of one token; the rule stands beside `TOKEN_CLASSES`."""
    if not piece:
        return "end_of_document"
    text = piece.decode("utf-8", errors="ignore")
    if not text:
        return "other"
    first = next((character for character in text if not character.isspace()), "")
    if not first:
        return "whitespace"
    return _BY_CATEGORY.get(unicodedata.category(first)[0], "punctuation")


def classes_of(pieces: Sequence[bytes]) -> np.ndarray:
    """The class of every entry of a vocabulary, as its place in `TOKEN_CLASSES`."""
    return np.array([TOKEN_CLASSES.index(class_of(piece)) for piece in pieces], dtype=np.int64)


def by_class(values: np.ndarray, classes: np.ndarray) -> dict[str, float]:
    """The mean of values of tokens, by the class of each; classes without a token are left out."""
    counts = np.bincount(classes, minlength=len(TOKEN_CLASSES))
    sums = np.bincount(classes, weights=values, minlength=len(TOKEN_CLASSES))
    return {kind: float(total / count) for kind, total, count in zip(TOKEN_CLASSES, sums, counts, strict=True) if count}
