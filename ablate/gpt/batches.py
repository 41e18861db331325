"""The batch of a step is a pure function of (seed, step): random access, so that resuming is exact.

Windows start anywhere in the training split, uniformly, with replacement; of a mixture, in a source drawn by its
weight. A chained hash of the token
ids consumed so far is what the matched-pairs audit compares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ablate.gpt.mixture import Mixture
from ablate.gpt.streams import draw_below
from ablate.gpt.tokens import Pooled, Tokens, windows_at
from prereg.errors import CorpusError


@dataclass(frozen=True)
class Split:
    """Token ids to train on, and those that are never trained on."""

    train: Tokens | Mixture
    validation: Tokens | Pooled

    @classmethod
    def of(cls, ids: np.ndarray, share: float, context: int) -> Split:
        """Split one sequence, the validation part taken from its end; refused where it is too short."""
        boundary = int(len(ids) * (1.0 - share))
        split = cls(ids[:boundary], ids[boundary:])
        split.require(context)
        return split

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
        """Inputs, targets, and the bytes that identify them, of one step (counted from 1)."""
        if isinstance(self.tokens, Mixture):
            windows = self.tokens.windows(self.seed, step, self.batch, self.context + 1)
        else:
            starts = draw_below(self.seed, "batch", step, count=self.batch, bound=len(self.tokens) - self.context)
            windows = windows_at(self.tokens, starts, self.context + 1)
        pair = torch.from_numpy(windows)
        return pair[:, :-1].contiguous(), pair[:, 1:].contiguous(), windows.astype("<u4").tobytes()


def chain_start() -> str:
    """Where every run's chain of batches begins."""
    return hashlib.sha256(b"batches").hexdigest()


def chain_next(chain: str, batch: bytes) -> str:
    """The chain after one more batch."""
    return hashlib.sha256(chain.encode() + batch).hexdigest()
