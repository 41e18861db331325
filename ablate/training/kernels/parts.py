"""What a kernel is given of a model: weights and biases by what they are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Linear = tuple[Tensor, Tensor | None]
"""The weight and the bias of a linear layer."""


@dataclass(frozen=True)
class Norm:
    """The norm before a part of a block."""

    kind: Literal["none", "layernorm", "rmsnorm"]
    weight: Tensor | None = None
    bias: Tensor | None = None
    eps: float = 0.0

    @property
    def arguments(self) -> tuple[int, float]:
        """As the library knows it."""
        return ("none", "layernorm", "rmsnorm").index(self.kind), self.eps


@dataclass(frozen=True)
class BlockPart:
    """A part of a block: a norm and two linear layers, with attention or a GELU between these."""

    norm: Norm
    first: Linear
    second: Linear

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All its weights and biases, those of the norm first."""
        return self.norm.weight, self.norm.bias, *self.first, *self.second

    @property
    def without_biases(self) -> tuple[Tensor | None, ...]:
        """What a backward pass reads: no bias of a linear layer."""
        return self.norm.weight, self.norm.bias, self.first[0], self.second[0]
