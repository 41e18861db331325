"""Batches, drawn and hashed: that of a step is a pure function of (seed, step), so that resuming is exact.

Windows start anywhere in the training split, uniformly, with replacement. A chained hash of the token
ids consumed so far is what the matched-pairs audit compares.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
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


def halves(tokens: Tokens, context: int) -> tuple[Tokens, Tokens]:
    """A text cut between two windows; every token but the first is predicted in one of them.

    The token at the cut is in both halves: it is the last target of one and the first input of the other.

    >>> halves(np.arange(9), context=2)
    (array([0, 1, 2, 3, 4]), array([4, 5, 6, 7, 8]))
    """
    # Between two windows, so that both halves together have the windows of the whole; a text of one window is cut in
    # its middle.
    predicted = len(tokens) - 1
    middle = predicted // context // 2 * context or predicted // 2
    return tokens[: middle + 1], tokens[middle : len(tokens)]


def predictions_in(tokens: Tokens) -> int:
    """Tokens that have one before them.

    >>> predictions_in(np.arange(9))
    8
    """
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


@dataclass(frozen=True)
class Split:
    """Token ids to train on, and those that are never trained on."""

    train: Tokens
    validation: Tokens

    def require(self, context: int) -> None:
        """Refuse a corpus too short for one window on either side."""
        for name, tokens in (("training", self.train), ("validation", self.validation)):
            if len(tokens) < context + 1:
                raise CorpusError(
                    f"the {name} split has {len(tokens)} tokens",
                    required=f"at least {context + 1}, one window of the context length and its target",
                    fix="a longer corpus, a shorter model.context, or another data.validation",
                )


@dataclass(frozen=True)
class Batches:
    """The batches of one run."""

    tokens: Tokens
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
