"""How the weights move: the size of one update against the weights it moves, and Adam's second moments.

The trainer is only looked at: weights are copied before the step whose update is measured, and the optimiser's state is
read where it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn


def copy_of(model: nn.Module) -> dict[str, Tensor]:
    """The weights now, to be compared with those after the next step."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def update_ratios(model: nn.Module, before: Mapping[str, Tensor]) -> dict[str, float]:
    """|change| / |weights before|, of all weights and of each block; none where the weights were all zero."""
    changes: dict[int | None, float] = {}
    sizes: dict[int | None, float] = {}
    for name, parameter in model.named_parameters():
        change = float((parameter.detach() - before[name]).double().square().sum())
        size = float(before[name].double().square().sum())
        for place in {None, block_of(name)}:
            changes[place] = changes.get(place, 0.0) + change
            sizes[place] = sizes.get(place, 0.0) + size
    return {
        _named("update/ratio", place): (changes[place] / sizes[place]) ** 0.5 for place in changes if sizes[place] > 0.0
    }


def second_moments(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, float]:
    """Root mean of the bias-corrected second moments of Adam, of all parameters that have one and of each block.

    Kingma and Ba (2015): v_hat = v / (1 - beta2^t). Empty before the first step, and of optimisers without any.
    """
    sums: dict[int | None, float] = {}
    counts: dict[int | None, int] = {}
    largest = 0.0
    names = {parameter: name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                state = optimizer.state.get(parameter, {})
                if "exp_avg_sq" not in state:
                    continue
                correction = 1.0 - group["betas"][1] ** float(state["step"])
                moment = state["exp_avg_sq"].double() / correction
                largest = max(largest, float(moment.max()))
                for place in {None, block_of(names[parameter])}:
                    sums[place] = sums.get(place, 0.0) + float(moment.sum())
                    counts[place] = counts.get(place, 0) + moment.numel()
    if not counts:
        return {}
    found = {_named("adam/second_moment", place): (sums[place] / counts[place]) ** 0.5 for place in counts}
    return found | {"adam/largest_second_moment": largest**0.5}


def block_of(name: str) -> int | None:
    """The block a parameter belongs to, by its name; none outside the blocks."""
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "blocks" else None


def _named(metric: str, place: int | None) -> str:
    return metric if place is None else f"{metric}_{place}"


def steps_to_level(curve: Sequence[tuple[int, float]], level: float) -> float:
    """The step at which (step, loss) first is at or below the level, on straight lines between evaluations.

    While no evaluation has been there, the last step of the curve: a run that never comes there counts its whole
    length, which can only make it look better than it is.
    """
    assert curve, level
    before: tuple[int, float] | None = None
    for step, loss in curve:
        if loss <= level:
            if before is None:
                return float(step)
            share = (before[1] - level) / (before[1] - loss)
            return before[0] + share * (step - before[0])
        before = (step, loss)
    return float(curve[-1][0])
