"""Windows from several sources in proportion to weights, as a pure function of (seed, step).

The source of each window is drawn from the run's own stream, and its start within the source from the stream that a
single corpus has: a mixture with one weight above 0 reads exactly what that source alone would be read as. What was
drawn so far needs no counter that a checkpoint would have to keep: it follows from seed and step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np

from ablate.gpt.streams import draw_below
from ablate.gpt.tokens import Tokens, windows_at

_ONE = 2**53


@dataclass(frozen=True)
class Mixture:
    """The training parts of several sources."""

    sources: Mapping[str, Tokens]
    """By name, in order of name."""
    weights: Mapping[str, float]
    """By name; only their proportions count."""

    def windows(self, seed: int, step: int, count: int, width: int) -> np.ndarray:
        """The windows of a step, one row each."""
        chosen = self._chosen(seed, step, count)
        found = np.empty((count, width), dtype=np.int64)
        for place, tokens in enumerate(self.sources.values()):
            rows = np.flatnonzero(chosen == place)
            if len(rows):
                starts = draw_below(seed, "batch", step, count=count, bound=len(tokens) - width + 1)
                found[rows] = windows_at(tokens, starts[rows], width)
        return found

    def drawn(self, seed: int, steps: int, count: int) -> dict[str, int]:
        """How many windows of each source a run of so many steps has read."""
        totals = np.zeros(len(self.sources), dtype=np.int64)
        for step in range(1, steps + 1):
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
        whole = sum(weights)
        return np.array([int(end * _ONE / whole) for end in accumulate(weights)], dtype=np.int64)
