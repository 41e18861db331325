"""Dropout masks for runs that are trained together: each from its own run's stream, handed in from outside.

Inside `vmap` a model cannot ask a run's stream for a mask, for there it is every run at once. So the places, shapes and
types that one forward asks for are listed once, and before each step every run's stream draws its masks in that order,
which is the order in which the run alone would have drawn them: masks and chained keys are the same.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from ablate.gpt.model import GPT
from ablate.gpt.streams import DropoutStream
from ablate.gpt.train import arithmetic
from prereg.study.training import Training


class Masks(DropoutStream):
    """Masks drawn beforehand, by place."""

    def __init__(self, drawn: dict[str, Tensor]) -> None:
        super().__init__(seed=0)
        self.drawn = drawn

    def mask(self, place: str, like: Tensor, rate: float) -> Tensor:
        """The mask of a place."""
        return self.drawn[place]


class Listed(DropoutStream):
    """Lets everything pass and notes what was asked for."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.asked: list[tuple[str, Tensor, float]] = []

    def mask(self, place: str, like: Tensor, rate: float) -> Tensor:
        """Ones."""
        # One value that looks like the whole: shape, type and device without the memory.
        self.asked.append((place, torch.empty((), dtype=like.dtype, device=like.device).expand(like.shape), rate))
        return torch.ones_like(like)


class SeatMasks:
    """The masks of every seat, one step at a time, for a whole batch or one micro-batch after another."""

    def __init__(self, model: GPT, config: Training, seeds: tuple[int, ...], device: torch.device) -> None:
        self.model, self.config, self.seeds, self.device = model, config, seeds, device
        self.streams = {seed: DropoutStream(seed) for seed in seeds}
        self._asked: list[tuple[str, Tensor, float]] | None = None
        self._live: Collection[int] = ()

    def at(self, step: int, live: Collection[int]) -> None:
        """Move to a step. Vacant seats draw no masks."""
        self._live = live
        for seed in live:
            self.streams[seed].at(step)

    def blank(self, inputs: Tensor) -> dict[str, Tensor]:
        """Tensors like the masks that `drawn` gives for such inputs. Nothing is drawn, and no key counted."""
        if self.config.model.dropout == 0.0:
            return {}
        if self._asked is None:
            self._asked = self._listed(inputs)
        return {
            place: torch.zeros((len(self.seeds), *like.shape), dtype=like.dtype, device=like.device)
            for place, like, _ in self._asked
        }

    def drawn(self, inputs: Tensor, first: int) -> dict[str, Tensor]:
        """Place -> masks of all seats for the sequences of a batch from one on; nothing where nothing is dropped.

        `inputs` are those of one seat: every seat's have the same shape, in every micro-batch.
        """
        if self.config.model.dropout == 0.0:
            return {}
        if self._asked is None:
            self._asked = self._listed(inputs)
        live = self._live
        for seed in live:
            self.streams[seed].from_sequence(first)
        return {
            place: torch.stack(
                [
                    self.streams[seed].mask(place, like, rate) if seed in live else torch.zeros_like(like)
                    for seed in self.seeds
                ]
            )
            for place, like, rate in self._asked
        }

    def _listed(self, inputs: Tensor) -> list[tuple[str, Tensor, float]]:
        listed = Listed()
        with torch.no_grad(), arithmetic(self.config, self.device):
            self.model(inputs, listed)
        places = [place for place, _, _ in listed.asked]
        assert len(set(places)) == len(places), places
        return listed.asked
