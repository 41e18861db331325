"""Batches, drawn and hashed: that of a step is a pure function of (seed, step), so that resuming is exact.

Windows start anywhere in the training split, uniformly, with replacement; of a mixture, in a source drawn by its
weight. A chained hash of the token
ids consumed so far is what the matched-pairs audit compares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ablate.gpt.streams import draw_below
from prereg.errors import CorpusError


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
    """A text cut between two windows; every token but the first is predicted in one of them. Pooled: part by part.

    The token at the cut is in both halves: it is the last target of one and the first input of the other.

    >>> halves(np.arange(9), context=2)
    (array([0, 1, 2, 3, 4]), array([4, 5, 6, 7, 8]))
    """
    if isinstance(tokens, Pooled):
        halves_by_source = {name: halves(part, context) for name, part in tokens.parts.items()}
        return tuple(Pooled({name: pair[side] for name, pair in halves_by_source.items()}) for side in (0, 1))  # type: ignore
    # Between two windows, so that both halves together have the windows of the whole; a text of one window is cut in
    # its middle.
    predicted = len(tokens) - 1
    middle = predicted // context // 2 * context or predicted // 2
    return tokens[: middle + 1], tokens[middle : len(tokens)]


def whole(tokens: Tokens | Pooled) -> np.ndarray:
    """All ids in memory; of pooled parts one after another.

    >>> whole(Pooled({"code": np.array([1, 2]), "prose": np.array([3])})).tolist()
    [1, 2, 3]
    """
    if isinstance(tokens, Pooled):
        return np.concatenate([whole(part) for part in tokens.parts.values()])
    return np.array(tokens[0 : len(tokens)])


def predictions_in(tokens: Tokens | Pooled) -> int:
    """Tokens that have one before them.

    >>> predictions_in(np.arange(9))
    8
    """
    if isinstance(tokens, Pooled):
        return sum(predictions_in(part) for part in tokens.parts.values())
    return max(0, len(tokens) - 1)


def windows_at(tokens: Tokens, starts: np.ndarray, width: int) -> np.ndarray:
    """The ids from each start on, (len(starts), width).

    >>> windows_at(np.arange(10), np.array([0, 5]), width=3)
    array([[0, 1, 2],
           [5, 6, 7]])
    """
    if isinstance(tokens, np.ndarray):
        # (count, 1) + (width,) -> (count, width).
        windows: np.ndarray = tokens[starts[:, None] + np.arange(width)]
        return windows
    return tokens.windows(starts, width)


_ONE = 2**53
"""How finely a draw divides the sources of a mixture: as finely as a float64 in [0, 1)."""


@dataclass(frozen=True)
class Mixture:
    """The training parts of several sources."""

    sources: Mapping[str, Tokens]
    """By name, in order of name."""
    weights: Mapping[str, float]
    """By name; only their proportions count."""

    def windows(self, seed: int, step: int, count: int, width: int) -> np.ndarray:
        """The windows of a step, one row each."""
        # Each source draws a start for every window and uses those of its own: window k depends on draw k alone, and
        # another weight moves the windows that change their source, no others.
        source_of_window = self._chosen(seed, step, count)
        windows = np.empty((count, width), dtype=np.int64)
        for place, tokens in enumerate(self.sources.values()):
            rows = np.flatnonzero(source_of_window == place)
            if len(rows):
                starts = draw_below(seed, "batch", step, count=count, bound=len(tokens) - width + 1)
                windows[rows] = windows_at(tokens, starts[rows], width)
        return windows

    def drawn(self, seed: int, steps: int, count: int) -> dict[str, int]:
        """How many windows of each source a run of so many steps has read.

        >>> parts = {"code": np.arange(50), "prose": np.arange(50)}
        >>> Mixture(parts, {"code": 3.0, "prose": 1.0}).drawn(seed=1, steps=10, count=8)
        {'code': 62, 'prose': 18}
        """
        totals = np.zeros(len(self.sources), dtype=np.int64)
        for step in range(1, steps + 1):
            # Drawn again rather than counted on the way: a run that was resumed has not seen its first steps.
            totals += np.bincount(self._chosen(seed, step, count), minlength=len(totals))
        return {name: int(total) for name, total in zip(self.sources, totals, strict=True)}

    def _chosen(self, seed: int, step: int, count: int) -> np.ndarray:
        """The number of the source of each window."""
        draws = draw_below(seed, "mixture", step, count=count, bound=_ONE)
        # A source of weight 0 begins where it ends, and no draw lies there.
        return np.searchsorted(self._ends, draws, side="right")

    @cached_property
    def _ends(self) -> np.ndarray:
        """Where each source's share of [0, 2^53) ends. Fractions: the same integers on every machine."""
        weights = [Fraction(self.weights[name]) for name in self.sources]
        total = sum(weights)
        return np.array([int(end * _ONE / total) for end in accumulate(weights)], dtype=np.int64)


@dataclass(frozen=True)
class Split:
    """Token ids to train on, and those that are never trained on."""

    train: Tokens | Mixture
    validation: Tokens | Pooled

    def require(self, context: int) -> None:
        """Refuse a corpus too short for one window on either side."""
        for name, tokens in (("training", self.train), ("validation", self.validation)):
            parts = (
                {f" of '{source}'": part for source, part in _sources(tokens).items()}
                if isinstance(tokens, Mixture | Pooled)
                else {"": tokens}
            )
            for source, part in parts.items():
                if len(part) < context + 1:
                    raise CorpusError(
                        f"the {name} split{source} has {len(part)} tokens",
                        required=f"at least {context + 1}, one window of the context length and its target",
                        fix="a longer corpus, a shorter model.context, or another data.validation",
                    )


def _sources(tokens: Mixture | Pooled) -> Mapping[str, Tokens]:
    return tokens.sources if isinstance(tokens, Mixture) else tokens.parts


@dataclass(frozen=True)
class Batches:
    """The batches of one run."""

    tokens: Tokens | Mixture
    context: int
    batch: int
    seed: int

    def at(self, step: int) -> tuple[Tensor, Tensor, bytes]:
        """Inputs, targets (both (batch, context)), and the bytes that identify them, of one step, counted from 1.

        >>> batches = Batches(np.arange(100) % 7, context=4, batch=2, seed=1)
        >>> inputs, targets, _ = batches.at(step=3)
        >>> inputs.shape, bool((targets[:, :-1] == inputs[:, 1:]).all())
        (torch.Size([2, 4]), True)
        """
        if isinstance(self.tokens, Mixture):
            windows = self.tokens.windows(self.seed, step, self.batch, self.context + 1)
        else:
            # Starts from 0 to len - context - 1: the last window of context + 1 tokens ends with the last token.
            starts = draw_below(self.seed, "batch", step, count=self.batch, bound=len(self.tokens) - self.context)
            windows = windows_at(self.tokens, starts, self.context + 1)
        # One window holds both sides: targets are its inputs, one token later.
        pair = torch.from_numpy(windows)
        # The ids as little-endian 32-bit words, so that the chain is the same on every machine and whatever type
        # holds them.
        return pair[:, :-1].contiguous(), pair[:, 1:].contiguous(), windows.astype("<u4").tobytes()


def chain_start() -> str:
    """Where every run's chain of batches begins."""
    return hashlib.sha256(b"batches").hexdigest()


def chain_next(chain: str, batch: bytes) -> str:
    """The chain after one more batch. Two runs with equal chains have read the same batches in the same order.

    >>> one, other = chain_next(chain_start(), b"a"), chain_next(chain_start(), b"b")
    >>> chain_next(one, b"b") == chain_next(other, b"a")
    False
    """
    return hashlib.sha256(chain.encode() + batch).hexdigest()
