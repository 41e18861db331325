"""Random streams: draws of initial weights, batches and dropout as a pure function of (seed, purpose, counter).

Every draw of a run has its own key. Two variants with the same seed therefore share initial weights
(keyed by parameter name), batches (keyed by step) and dropout masks (keyed by step and place) without
any care taken about the order of draws, and a resumed run needs no random state at all.

Philox raw words are specified for ever by numpy; distributions built on them are ours, so that no
library release can move a batch.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def key(seed: int, *labels: str | int) -> int:
    """A 63-bit key for one purpose; different labels give unrelated keys.

    >>> key(1, "init", "token.weight") == key(1, "init", "position.weight")
    False
    """
    text = "/".join([str(seed), *(str(label) for label in labels)])
    # Half of a 64-bit word: torch's generators and numpy's Philox both take every value below 2^63.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def draw_below(seed: int, label: str, counter: int, *, count: int, bound: int) -> np.ndarray:
    """`count` integers uniform on [0, bound). Multiply-shift: bias under bound/2^64, below any detection here.

    >>> draw_below(1, "batches", 1, count=4, bound=10).tolist()  # seed 1, step 1: the same with every numpy
    [3, 9, 4, 4]
    """
    # The counter's highest word is the step: a stream of one step can reach 2^192 words before it meets that of the
    # next.
    words = np.random.Philox(key=key(seed, label), counter=[0, 0, 0, counter]).random_raw(count)
    assert 0 < bound < 2**63, bound
    # (word * bound) >> 64 without 128-bit integers: four products of halves of 32 bits (`mulhu` in Warren, Hacker's
    # Delight), and no sum below exceeds 64 bits. Lemire 2019, without the step that rejects.
    half, ones = np.uint64(32), np.uint64(0xFFFFFFFF)
    high, low = words >> half, words & ones
    bound_high, bound_low = np.uint64(bound >> 32), np.uint64(bound & 0xFFFFFFFF)
    middle = high * bound_low + ((low * bound_low) >> half)
    crossed = low * bound_high + (middle & ones)
    return np.asarray((high * bound_high + (middle >> half) + (crossed >> half)).astype(np.int64))


def raw_words(seed: int, label: str, count: int) -> list[int]:
    """`count` 64-bit words of one stream, as exact integers."""
    return [int(word) for word in np.random.Philox(key=key(seed, label)).random_raw(count)]


def generator(seed: int, *labels: str | int) -> torch.Generator:
    """A fresh CPU generator for one purpose.

    >>> int(generator(1, "init", "head.weight").initial_seed()) == key(1, "init", "head.weight")
    True
    """
    import torch  # here: `ablate check` draws a corpus, and no tensor

    return torch.Generator().manual_seed(key(seed, *labels))


class DropoutStream:
    """The dropout masks of one run: a mask is a pure function of (seed, step, place) and the whole batch's shape.

    A process that computes a part of the batch is given that part of the mask, so a batch may be cut into
    micro-batches, or computed twice (activation checkpointing), and meets the same masks. CPU and GPU draw different
    ones, the same on every CPU: runs are compared on one kind of device. The
    stream keeps a chained hash of the keys it has handed out, which is what the audit compares: a place counts once a
    step, in the order of the first pass, however often its mask is drawn.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._step = 0
        self._first = 0
        self._sequences = 0
        self._counted: set[str] = set()
        self.chain = hashlib.sha256(b"dropout").hexdigest()

    def at(self, step: int) -> None:
        """Move to a step, and to the first sequence of its batch."""
        self._step, self._first, self._sequences = step, 0, 0
        self._counted.clear()

    def from_sequence(self, first: int, *, of: int) -> None:
        """The sequences that follow are those of a batch of so many from this one on."""
        self._first, self._sequences = first, of

    def mask(self, place: str, like: torch.Tensor, rate: float) -> torch.Tensor:
        """A mask with values 0 and 1/(1 - rate), for as many sequences as `like` has, from the first one on."""
        import torch

        mask_key = key(self._seed, "dropout", self._step, place)
        if place not in self._counted:
            self._counted.add(place)
            self.chain = hashlib.sha256(f"{self.chain}/{mask_key}".encode()).hexdigest()
        # Drawn where it is needed: on the CPU, the masks of a large model take longer than its step on a GPU.
        # A generator cannot leap, so that a part of a batch is cut out of the mask of all of it.
        source = torch.Generator(like.device).manual_seed(mask_key)
        batch_shape = (self._sequences or len(like), *like.shape[1:])
        draws = torch.rand(batch_shape, generator=source, device=like.device)[self._first : self._first + len(like)]
        # Scaled where it is drawn (inverted dropout), so that evaluation needs no factor.
        return (draws >= rate).to(like.dtype) / (1.0 - rate)
