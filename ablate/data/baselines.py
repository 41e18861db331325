"""What a loss is worth: the validation loss of guessing evenly, by frequency, and by the token before.

A loss of 2.5 nats per token says little by itself. Next to ln V (uniform), the loss of training frequencies (unigram)
and of training pairs (bigram) a reader sees what a model has learned; for the `toy` corpus, whose source is known, also
the entropy that no model goes below on average. Every count gets a pseudo-count: one token drawn evenly for the
unigram, one token drawn by the unigram for each context of the bigram (MacKay and Peto 1995, with weight 1), so that no
loss is infinite.

Reads counts alone: no model, no torch.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path

import numpy as np

from ablate.data.batches import Mixture, Pooled, Split
from ablate.data.toy import entropy_rate
from prereg.registry.canon import sha256_of
from prereg.registry.disk import write_whole

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


def baselines_of(split: Split, vocabulary: int, *, corpora: tuple[str, ...], characters: bool) -> Baselines | str:
    """Of a split, or why they are not computed. `characters`: whether tokens are characters."""
    if isinstance(split.train, Mixture) or isinstance(split.validation, Pooled):
        return "not computed for a mixture"
    if max(len(split.train), len(split.validation)) > MOST_TOKENS:
        return f"not computed for more than {MOST_TOKENS:,} tokens"
    train, held = (np.asarray(part[0 : len(part)], dtype=np.int64) for part in (split.train, split.validation))
    counts = np.bincount(train, minlength=vocabulary).astype(np.float64)
    unigram = (counts + 1.0 / vocabulary) / (len(train) + 1.0)
    # Pairs as one number: sorted once, then looked up.
    pairs, times = np.unique(train[:-1] * vocabulary + train[1:], return_counts=True)
    wanted = held[:-1] * vocabulary + held[1:]
    at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    seen = np.where(pairs[at] == wanted, times[at], 0)
    contexts = np.bincount(train[:-1], minlength=vocabulary)
    bigram = (seen + unigram[held[1:]]) / (contexts[held[:-1]] + 1.0)
    return Baselines(
        uniform=log(vocabulary),
        unigram=float(-np.log(unigram[held[1:]]).mean()),
        bigram=float(-np.log(bigram).mean()),
        tokens=len(held) - 1,
        floor=entropy_rate() if corpora == ("toy",) and characters else None,
    )


def kept_baselines(
    cache: Path, key: dict[str, str], split: Split, vocabulary: int, *, corpora: tuple[str, ...], characters: bool
) -> Baselines | str:
    """The same, computed once for a key that names corpora, tokenizer and validation part, and kept in a cache."""
    note = cache / "baselines" / f"{sha256_of({'method': _METHOD, **key})[:32]}.json"
    try:
        return Baselines(**json.loads(note.read_bytes()))
    except (OSError, ValueError, TypeError):
        pass  # nothing is kept of it
    found = baselines_of(split, vocabulary, corpora=corpora, characters=characters)
    if isinstance(found, Baselines):
        with suppress(OSError):  # a cache that refuses costs time only
            note.parent.mkdir(parents=True, exist_ok=True)
            write_whole(note, json.dumps(asdict(found)).encode())
    return found
