"""The batch of a step is a pure function of (seed, step): random access, so that resuming is exact.

Windows start anywhere in the training split, uniformly, with replacement. A chained hash of the token
ids consumed so far is what the matched-pairs audit compares.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ablate.gpt.streams import draw_below
from prereg.errors import CorpusError


@dataclass(frozen=True)
class Split:
    """Token ids of a corpus, the validation part taken from the end."""

    train: np.ndarray
    validation: np.ndarray

    @classmethod
    def of(cls, ids: np.ndarray, share: float, context: int) -> Split:
        """Split, and refuse a corpus too short for one window on either side."""
        boundary = int(len(ids) * (1.0 - share))
        split = cls(ids[:boundary], ids[boundary:])
        for name, part in (("training", split.train), ("validation", split.validation)):
            if len(part) < context + 1:
                raise CorpusError(
                    f"the {name} split has {len(part)} tokens",
                    required=f"at least {context + 1}, one window of the context length and its target",
                    fix="a longer corpus, a shorter model.context, or another data.validation",
                )
        return split


@dataclass(frozen=True)
class Batches:
    """The batches of one run."""

    tokens: np.ndarray
    context: int
    batch: int
    seed: int

    def at(self, step: int) -> tuple[Tensor, Tensor, bytes]:
        """Inputs, targets, and the bytes that identify them, of one step (counted from 1)."""
        starts = draw_below(self.seed, "batch", step, count=self.batch, bound=len(self.tokens) - self.context)
        windows = self.tokens[starts[:, None] + np.arange(self.context + 1)]
        pair = torch.from_numpy(windows)
        return pair[:, :-1].contiguous(), pair[:, 1:].contiguous(), windows.astype("<u4").tobytes()


def chain_start() -> str:
    """Where every run's chain of batches begins."""
    return hashlib.sha256(b"batches").hexdigest()


def chain_next(chain: str, batch: bytes) -> str:
    """The chain after one more batch."""
    return hashlib.sha256(chain.encode() + batch).hexdigest()
