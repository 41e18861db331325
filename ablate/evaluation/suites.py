"""Suites of metrics called in one place (`evaluate`), on a model at rest; cost and moments, which a run itself calls.

The measuring contract.

A suite is a function of the model and the validation split that returns `{metric: value}`, with names
declared in `prereg.metrics.catalogue`. It may not change the model or draw random numbers. It does not read the clock:
a caller that wants times passes a clock to `evaluate`. Two suites are called by the run itself:

    cost      what a trained model costs to use, and what training it cost in arithmetic and memory: the one suite
              that reads clocks and the machine, at the last step. What that does not say is not recorded
    moments   Adam's second moments, read where the optimiser's state lies
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import nn

from ablate.data.batches import Tokens, windows_at
from ablate.evaluation.activations import measure_activations
from ablate.evaluation.calibration import measure_calibration
from ablate.evaluation.loss import measure_length, measure_loss
from ablate.gpt.model import GPT
from prereg.metrics.catalogue import METRICS, Suite
from prereg.study.measure import Calibration, Inference
from prereg.study.training import flops_per_token


def evaluate(
    model: GPT,
    tokens: Tokens,
    byte_lengths: np.ndarray | None,
    suites: tuple[Suite, ...],
    *,
    classes: np.ndarray | None = None,
    calibration: Calibration | None = None,
    clock: Callable[[], float] | None = None,
) -> dict[str, float]:
    """Every metric of the registered suites that is read off a model at rest, and the seconds of each by a clock.

    `classes` holds the class of each entry of the vocabulary (`ablate.evaluation.loss`); without it, nothing is said by
    class of token.
    """
    bins = (calibration or Calibration()).bins
    # In a fixed order and not in that of `suites`, so that the metrics of a record have one order.
    measures: dict[Suite, Callable[[], dict[str, float]]] = {
        "loss": lambda: measure_loss(model, tokens, byte_lengths, classes),
        "calibration": lambda: measure_calibration(model, tokens, bins),
        "activations": lambda: measure_activations(model, tokens, classes),
        "length": lambda: measure_length(model, tokens),
    }
    metrics: dict[str, float] = {}
    # Dropout off and no gradients; nothing here draws a random number, so a run continues with the same bits.
    model.eval()
    with torch.inference_mode():
        for suite, measure in measures.items():
            if suite not in suites:
                continue
            started = clock() if clock is not None else 0.0
            metrics |= measure()
            if clock is not None:
                metrics[f"speed/measure_{suite}_s"] = clock() - started
    model.train()
    # A metric without a declaration has no unit and no direction: no table and no claim could use it.
    unknown = {metric for metric in metrics if metric not in METRICS}
    assert not unknown, unknown
    return metrics


_PEAK_SIZE = 1024

Clock = Callable[[], float]


def inference_speed(model: GPT, tokens: Tokens, inference: Inference, clock: Clock) -> float:
    """Tokens a second of plain forward passes: the registered batch and length, the median of warm repeats."""
    length = inference.length or model.config.context
    # Windows one after another; a text that is too short for the batch is read from its beginning again.
    starts = np.arange(inference.batch) * length % max(1, len(tokens) - length)
    inputs = torch.from_numpy(windows_at(tokens, starts, length)).to(model.token.weight.device)

    def seconds() -> float:
        started = clock()
        model(inputs)
        if inputs.is_cuda:  # a kernel is only queued when the call returns
            torch.cuda.synchronize()
        return clock() - started

    seconds()  # the first pass allocates, and on a GPU loads kernels
    return inputs.numel() / statistics.median(seconds() for _ in range(inference.repeats))


def matmul_speed(device: torch.device, clock: Clock) -> float:
    """FLOP a second of the fastest of three large matrix products, in the arithmetic that is in force here."""
    left = torch.ones(_PEAK_SIZE, _PEAK_SIZE, device=device)
    times = []
    for _ in range(4):
        started = clock()
        left @ left  # 2 n^3 FLOP
        if left.is_cuda:
            torch.cuda.synchronize()
        times.append(clock() - started)
    return 2.0 * _PEAK_SIZE**3 / min(times[1:])  # the first one is warming up


def measure_cost(
    model: GPT,
    tokens: Tokens,
    inference: Inference,
    *,
    trained_tokens_per_s: float,
    peak_bytes: int | None,
    clock: Clock,
) -> dict[str, float]:
    """The `cost` suite, at the end of a run."""
    arithmetic = float(flops_per_token(model.config, model.token.num_embeddings))
    reached = arithmetic * trained_tokens_per_s
    metrics = {
        "cost/inference_tokens_per_s": inference_speed(model, tokens, inference, clock),
        "cost/flops_per_token": arithmetic,
        "cost/flops_per_s": reached,
        # Chowdhery et al. (2022) divide by the peak of a data sheet. A measured peak exists on every machine,
        # and uses the same arithmetic.
        "cost/mfu": reached / matmul_speed(model.token.weight.device, clock),
    }
    return metrics if peak_bytes is None else metrics | {"cost/peak_memory": float(peak_bytes)}


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
                # In float64: a sum of millions of squares in float32 loses the small ones.
                correction = 1.0 - group["betas"][1] ** float(state["step"])
                moment = state["exp_avg_sq"].double() / correction
                largest = max(largest, float(moment.max()))
                # None is the whole model; of a parameter outside the blocks both places are that one.
                for place in {None, block_of(names[parameter])}:
                    sums[place] = sums.get(place, 0.0) + float(moment.sum())
                    counts[place] = counts.get(place, 0) + moment.numel()
    if not counts:
        return {}
    metrics = {
        "adam/second_moment" + ("" if place is None else f"_{place}"): (sums[place] / counts[place]) ** 0.5
        for place in counts
    }
    return metrics | {"adam/largest_second_moment": largest**0.5}


def block_of(name: str) -> int | None:
    """The block a parameter belongs to, by its name; none outside the blocks.

    >>> block_of("blocks.3.mlp.up.weight"), block_of("token.weight")
    (3, None)
    """
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "blocks" else None


def steps_to_level(curve: Sequence[tuple[int, float]], level: float) -> float:
    """The step at which (step, loss) first is at or below the level, on straight lines between evaluations.

    While no evaluation has been there, the last step of the curve: a run that never comes there counts its whole
    length, which can only make it look better than it is.

    >>> steps_to_level([(100, 4.0), (200, 3.0)], level=3.5), steps_to_level([(100, 4.0), (200, 3.0)], level=2.0)
    (150.0, 200.0)
    """
    assert curve, level
    before: tuple[int, float] | None = None
    for step, loss in curve:
        if loss <= level:
            if before is None:
                return float(step)
            # before[1] > level >= loss, so the divisor is never 0 and the share lies in (0, 1].
            share = (before[1] - level) / (before[1] - loss)
            return before[0] + share * (step - before[0])
        before = (step, loss)
    return float(curve[-1][0])
