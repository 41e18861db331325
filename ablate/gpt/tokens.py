"""Sequences of token ids: in memory, or far longer than memory. What batches and measures read.

A sequence has a length, gives a slice as int64, and gives windows at given starts. An array does all that; what is too
long for memory (`ablate.gpt.shards`) does it without being loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class LongTokens(Protocol):
    """Token ids that are not in memory."""

    def __len__(self) -> int: ...

    def __getitem__(self, where: slice) -> np.ndarray:
        """The ids of a slice, as int64."""
        ...

    def windows(self, starts: np.ndarray, width: int) -> np.ndarray:
        """The ids from each start on, one row a start, as int64."""
        ...


Tokens = np.ndarray | LongTokens


@dataclass(frozen=True)
class Pooled:
    """The validation parts of several sources: each is read by itself, and every token of all counts alike."""

    parts: Mapping[str, Tokens]
    """By source, in order of name."""

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts.values())


def halves(tokens: Tokens | Pooled, context: int) -> tuple[Tokens | Pooled, Tokens | Pooled]:
    """A text cut between two windows; every token but the first is predicted in one of them. Pooled: part by part."""
    if isinstance(tokens, Pooled):
        cut = {name: halves(part, context) for name, part in tokens.parts.items()}
        return tuple(Pooled({name: two[side] for name, two in cut.items()}) for side in (0, 1))  # type: ignore
    predicted = len(tokens) - 1
    middle = predicted // context // 2 * context or predicted // 2
    return tokens[: middle + 1], tokens[middle : len(tokens)]


def whole(tokens: Tokens | Pooled) -> np.ndarray:
    """All ids in memory; of pooled parts one after another."""
    if isinstance(tokens, Pooled):
        return np.concatenate([whole(part) for part in tokens.parts.values()])
    return np.array(tokens[0 : len(tokens)])


def predictions_in(tokens: Tokens | Pooled) -> int:
    """Tokens that have one before them."""
    if isinstance(tokens, Pooled):
        return sum(predictions_in(part) for part in tokens.parts.values())
    return max(0, len(tokens) - 1)


def windows_at(tokens: Tokens, starts: np.ndarray, width: int) -> np.ndarray:
    """The ids from each start on, one row a start."""
    if isinstance(tokens, np.ndarray):
        found: np.ndarray = tokens[starts[:, None] + np.arange(width)]
        return found
    return tokens.windows(starts, width)
