"""What the seats of a cohort compute, as functions of tensors alone: so the same lines are run, or compiled.

The forward is `GPT.loss` itself under `torch.func.vmap`. Nothing is summed over seats but the losses, whose gradient
with respect to a seat's weights is that of its own loss, so nothing that is not finite crosses from seat to seat.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ablate.gpt.masks import Masks
from ablate.gpt.model import GPT
from ablate.gpt.train import arithmetic
from prereg.study.training import Training

CLIP_EPS = 1e-6
"""Added to the norm before dividing, as `torch.nn.utils.clip_grad_norm_` does."""
# On the CPU vmap takes the fused attention seat by seat, which is as exact, and says so in every call.
_SEAT_BY_SEAT = "There is a performance drop because we have not yet implemented the batching rule"


Norms = tuple[Tensor, ...]


class Loss(nn.Module):
    """The loss of a model as a module's call, which is what `functional_call` can replace parameters in."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor, masks: Masks | None) -> Tensor:
        return self.model.loss(inputs, targets, masks)


class Joint:
    """Gradient, norms and clipping of all seats of one configuration."""

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
        """Each seat's share of its mean loss over the whole batch, and the gradient of that share."""
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
        """Mean cross-entropy of every seat."""

        def of_one(own: Mapping[str, Tensor], x: Tensor, y: Tensor, drawn: dict[str, Tensor]) -> Tensor:
            replaced = {f"model.{name}": value for name, value in (*own.items(), *constants.items())}
            loss: Tensor = functional_call(self.loss, replaced, (x, y, Masks(drawn) if drawn else None))
            return loss

        with warnings.catch_warnings(), arithmetic(self.config, self.device):
            warnings.filterwarnings("ignore", message=_SEAT_BY_SEAT)
            losses: Tensor = vmap(of_one)(weights, inputs, targets, masks)
        return losses

    def clip(self, gradient: Mapping[str, Tensor], vacant: Tensor | None) -> tuple[dict[str, Tensor], Norms]:
        """The gradient with each seat clipped by its own norm and vacant ones at zero; none given: every seat is taken.

        And its norm before clipping, of every seat, then of each block of every seat.
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
