"""Baseline losses of a text: guessing evenly, by frequency, and by the token before, to tell what a loss is worth.

A loss of 2.5 nats per token says little by itself. Next to ln V (uniform), the loss of training frequencies (unigram)
and of training pairs (bigram) a reader sees what a model has learned; for the `toy` corpus, whose source is known, also
the entropy that no model goes below on average. Every count gets a pseudo-count: one token drawn evenly for the
unigram, one token drawn by the unigram for each context of the bigram (MacKay and Peto 1995, with weight 1), so that no
loss is infinite.

Reads counts alone: no model, no torch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import log
from pathlib import Path

import numpy as np

from ablate.data.batches import Split
from ablate.data.cache import cached
from ablate.data.toy import entropy_rate

MOST_TOKENS = 2**24
"""Training tokens up to which pairs are counted: two seconds and half a gigabyte."""
_METHOD = 1
"""Losses that were kept under another number are computed again."""


@dataclass(frozen=True)
class Baselines:
    """Losses in nats per token on the validation part, of predictors that only count."""

    uniform: float
    unigram: float
    bigram: float
    tokens: int
    """Validation tokens that were predicted."""
    floor: float | None = None
    """Entropy rate of the source, where it is known."""


def counting_baselines(split: Split, vocabulary: int, *, corpus: str, characters: bool) -> Baselines | str:
    """Of a split, or why they are not computed. `characters`: whether tokens are characters.

    >>> import numpy as np
    >>> split = Split(train=np.array([0, 1] * 8), validation=np.array([0, 1, 0, 1]))
    >>> losses = counting_baselines(split, 2, corpus="mine", characters=True)
    >>> round(losses.uniform, 3), round(losses.bigram, 3)  # ln 2; the pairs alternate
    (0.693, 0.06)
    """
    return _why_not(split) or _computed(split, vocabulary, corpus=corpus, characters=characters)


def _why_not(split: Split) -> str:
    if max(len(split.train), len(split.validation)) > MOST_TOKENS:
        return f"not computed for more than {MOST_TOKENS:,} tokens"
    return ""


def _computed(split: Split, vocabulary: int, *, corpus: str, characters: bool) -> Baselines:
    # 64 bits, since a pair becomes first * vocabulary + second.
    train, held = (np.asarray(part[0 : len(part)], dtype=np.int64) for part in (split.train, split.validation))
    counts = np.bincount(train, minlength=vocabulary).astype(np.float64)
    unigram = (counts + 1.0 / vocabulary) / (len(train) + 1.0)
    # A pair of tokens as one number, first * vocabulary + second: sorted once, then looked up. A table of all
    # pairs would have vocabulary^2 places, most of them empty.
    pairs, times = np.unique(train[:-1] * vocabulary + train[1:], return_counts=True)
    held_pairs = held[:-1] * vocabulary + held[1:]
    # `searchsorted` puts a pair beyond the last one at the end, which is no place: it meets another pair there and
    # counts 0.
    at = np.minimum(np.searchsorted(pairs, held_pairs), len(pairs) - 1)
    n_pair = np.where(pairs[at] == held_pairs, times[at], 0)
    contexts = np.bincount(train[:-1], minlength=vocabulary)
    # MacKay and Peto 1995: as if one more token had followed each context, drawn by the unigram.
    bigram = (n_pair + unigram[held[1:]]) / (contexts[held[:-1]] + 1.0)
    return Baselines(
        uniform=log(vocabulary),
        unigram=float(-np.log(unigram[held[1:]]).mean()),
        bigram=float(-np.log(bigram).mean()),
        tokens=len(held) - 1,
        floor=entropy_rate() if corpus == "toy" and characters else None,
    )


def kept_baselines(
    cache: Path, key: dict[str, str], split: Split, vocabulary: int, *, corpus: str, characters: bool
) -> Baselines | str:
    """The same, computed once for a key that names corpus, tokenizer and validation part, and kept in a cache."""

    def compute() -> Baselines:
        return _computed(split, vocabulary, corpus=corpus, characters=characters)

    named = {"method": _METHOD, **key}
    return _why_not(split) or cached(cache / "baselines", named, compute, lambda note: Baselines(**note), asdict)
