"""What the members of a cohort compute, as functions of tensors alone: so the same lines are run, or compiled.

The forward is `GPT.loss` itself under `torch.func.vmap`. Nothing is summed over members but the losses, whose gradient
with respect to a member's weights is that of its own loss, so nothing that is not finite crosses from member to member.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ablate.training.model import GPT
from ablate.training.streams import DropoutStream
from ablate.training.trainer import arithmetic
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
    """Lets everything pass and records each request."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.requests: list[tuple[str, Tensor, float]] = []

    def mask(self, place: str, like: Tensor, rate: float) -> Tensor:
        """Ones."""
        # One value that looks like the whole: shape, type and device without the memory.
        self.requests.append((place, torch.empty((), dtype=like.dtype, device=like.device).expand(like.shape), rate))
        return torch.ones_like(like)


class MemberMasks:
    """The masks of every member, one step at a time, for a whole batch or one micro-batch after another."""

    def __init__(self, model: GPT, config: Training, seeds: tuple[int, ...], device: torch.device) -> None:
        self.model, self.config, self.seeds, self.device = model, config, seeds, device
        self.streams = {seed: DropoutStream(seed) for seed in seeds}
        self._requests: list[tuple[str, Tensor, float]] | None = None
        self._live: Collection[int] = ()

    def at(self, step: int, live: Collection[int]) -> None:
        """Move to a step. Vacant members draw no masks."""
        self._live = live
        for seed in live:
            self.streams[seed].at(step)

    def blank(self, inputs: Tensor) -> dict[str, Tensor]:
        """Tensors like the masks that `drawn` gives for such inputs. Nothing is drawn, and no key counted."""
        if self.config.model.dropout == 0.0:
            return {}
        if self._requests is None:
            self._requests = self._listed(inputs)
        return {
            place: torch.zeros((len(self.seeds), *like.shape), dtype=like.dtype, device=like.device)
            for place, like, _ in self._requests
        }

    def drawn(self, inputs: Tensor, first: int) -> dict[str, Tensor]:
        """Place -> masks of all members for the sequences of a batch from one on; nothing where nothing is dropped.

        `inputs` are those of one member: every member's have the same shape, in every micro-batch.
        """
        if self.config.model.dropout == 0.0:
            return {}
        if self._requests is None:
            self._requests = self._listed(inputs)
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
            for place, like, rate in self._requests
        }

    def _listed(self, inputs: Tensor) -> list[tuple[str, Tensor, float]]:
        listed = Listed()
        with torch.no_grad(), arithmetic(self.config, self.device):
            self.model(inputs, listed)
        places = [place for place, _, _ in listed.requests]
        assert len(set(places)) == len(places), places
        return listed.requests


CLIP_EPS = 1e-6
"""Added to the norm before dividing, as `torch.nn.utils.clip_grad_norm_` does."""
# On the CPU vmap takes the fused attention member by member, which is as exact, and says so in every call.
_MEMBER_BY_MEMBER = "There is a performance drop because we have not yet implemented the batching rule"


Norms = tuple[Tensor, ...]


class Loss(nn.Module):
    """The loss of a model as a module's call, which is what `functional_call` can replace parameters in."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor, masks: Masks | None) -> Tensor:
        return self.model.loss(inputs, targets, masks)


class Joint:
    """Gradient, norms and clipping of all members of one configuration."""

    def __init__(self, model: GPT, config: Training, device: torch.device) -> None:
        self.config, self.device = config, device
        self.loss = Loss(model)
        self.constants = dict(model.named_buffers())
        """The model's tables. Handed in like everything else, so that no tensor hides in what is compiled."""
        batch = config.budget.batch
        self.at_once = config.budget.micro_batch or batch
        self.parts = batch // self.at_once
        assert self.parts * self.at_once == batch, (batch, self.at_once)

    def gradient(
        self,
        weights: Mapping[str, Tensor],
        inputs: Tensor,
        targets: Tensor,
        masks: dict[str, Tensor],
        constants: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Each member's share of its mean loss over the whole batch, and the gradient of that share."""
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in weights.items()}
            known = self.constants if constants is None else constants
            losses = self._losses(leaves, inputs, targets, masks, known) / self.parts
            found = torch.autograd.grad(losses.sum(), list(leaves.values()))
        return losses.detach(), {name: value.contiguous() for name, value in zip(leaves, found, strict=True)}

    def _losses(
        self,
        weights: Mapping[str, Tensor],
        inputs: Tensor,
        targets: Tensor,
        masks: dict[str, Tensor],
        constants: Mapping[str, Tensor],
    ) -> Tensor:
        """Mean cross-entropy of every member."""

        def of_one(own: Mapping[str, Tensor], x: Tensor, y: Tensor, drawn: dict[str, Tensor]) -> Tensor:
            replaced = {f"model.{name}": value for name, value in (*own.items(), *constants.items())}
            loss: Tensor = functional_call(self.loss, replaced, (x, y, Masks(drawn) if drawn else None))
            return loss

        with warnings.catch_warnings(), arithmetic(self.config, self.device):
            warnings.filterwarnings("ignore", message=_MEMBER_BY_MEMBER)
            losses: Tensor = vmap(of_one)(weights, inputs, targets, masks)
        return losses

    def clip(self, gradient: Mapping[str, Tensor], vacant: Tensor | None) -> tuple[dict[str, Tensor], Norms]:
        """The gradient with each member clipped by its own norm and vacant ones at zero.

        And its norm before clipping, of every member, then of each block of every member.
        """
        norms = {
            name: torch.linalg.vector_norm(value.reshape(len(value), -1), dim=1) for name, value in gradient.items()
        }
        norm = torch.linalg.vector_norm(torch.stack(list(norms.values())), dim=0)
        layers = []
        for layer in range(self.config.model.layers):
            inside = [value for name, value in norms.items() if name.startswith(f"blocks.{layer}.")]
            layers.append(torch.linalg.vector_norm(torch.stack(inside), dim=0))
        limit = self.config.optim.clip if self.config.optim.clip > 0.0 else math.inf
        factor = torch.clamp(limit / (norm + CLIP_EPS), max=1.0)
        clipped = {}
        for name, value in gradient.items():
            shape = (-1, *[1] * (value.dim() - 1))
            scaled = value * factor.view(shape)
            clipped[name] = scaled if vacant is None else scaled.masked_fill(vacant.view(shape), 0.0)
        return clipped, (norm, *layers)
