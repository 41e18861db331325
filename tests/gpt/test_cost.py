"""What a run costs, by a clock that ticks here and by folders that look like the system's."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch

from ablate.evaluation.suites import inference_speed, matmul_speed, measure_cost
from ablate.gpt.model import GPT
from prereg.study.measure import Inference
from prereg.study.training import Model, flops_per_token

TOKENS = np.random.default_rng(0).integers(0, 7, 100)


def built(**fields: Any) -> GPT:
    return GPT(Model(**{"layers": 2, "width": 16, "heads": 2, "context": 8, **fields}), 7)


def clock_of(*durations: float) -> Any:
    """A clock that is read before and after each of these durations."""
    times = iter([t for end, length in zip(accumulate(durations), durations, strict=True) for t in (end - length, end)])
    return lambda: next(times)


def test_inference_is_the_median_of_the_passes_after_the_first() -> None:
    speed = inference_speed(built(), TOKENS, Inference(batch=4, repeats=3), clock_of(50.0, 2.0, 9.0, 4.0))
    assert speed == 4 * 8 / 4.0
    shorter = inference_speed(built(), TOKENS, Inference(batch=3, length=5, repeats=1), clock_of(9.0, 1.0))
    assert shorter == 3 * 5


def test_a_batch_larger_than_the_text_is_still_whole_windows() -> None:
    assert inference_speed(built(), TOKENS[:9], Inference(batch=64, repeats=1), clock_of(9.0, 1.0)) == 64 * 8


def test_the_limit_is_the_fastest_product_after_the_first() -> None:
    assert matmul_speed(torch.device("cpu"), clock_of(0.1, 4.0, 2.0, 3.0)) == 2.0 * 1024**3 / 2.0


def test_what_the_machine_does_not_tell_is_not_recorded() -> None:
    seconds = (9.0, 1.0, 1.0, 4.0, 2.0, 3.0)
    found = measure_cost(
        built(),
        TOKENS,
        Inference(batch=2, repeats=1),
        trained_tokens_per_s=1000.0,
        peak_bytes=None,
        clock=clock_of(*seconds),
    )
    arithmetic = flops_per_token(built().config, 7)
    assert found == {
        "cost/inference_tokens_per_s": 16.0,
        "cost/flops_per_token": arithmetic,
        "cost/flops_per_s": 1000.0 * arithmetic,
        "cost/mfu": pytest.approx(1000.0 * arithmetic / (1024**3)),
    }
