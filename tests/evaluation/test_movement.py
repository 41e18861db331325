"""Adam's moments, against a hand computation and torch's own state, and the steps to a level."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from split_samples import split_of

from ablate.evaluation.suites import block_of, second_moments, steps_to_level
from ablate.gpt.trainer import Trainer
from prereg.study.training import Budget, Model, Optim, Training


def trainer(optim: Optim) -> Trainer:
    tokens = np.random.default_rng(0).integers(0, 7, 400)
    config = Training(model=Model(layers=2, width=8, heads=2, context=8), optim=optim, budget=Budget(steps=9, batch=2))
    built = Trainer(config, split_of(tokens, 0.2, 8), 7)
    built.begin(3)
    return built


def test_before_the_first_step_there_are_no_moments() -> None:
    built = trainer(Optim())
    assert second_moments(built.model, built.optimizers) == {}


def test_after_one_step_the_corrected_second_moment_is_the_squared_gradient() -> None:
    # v = (1 - b2) g^2 and v_hat = v / (1 - b2) = g^2 (Kingma and Ba 2015), so its root mean is |g| / sqrt(n).
    built = trainer(Optim(clip=0.0))
    step = built.step()
    found = second_moments(built.model, built.optimizers)
    n = sum(p.numel() for p in built.model.parameters())
    assert found["adam/second_moment"] == pytest.approx(step.grad_norm / math.sqrt(n), rel=1e-5)
    layers = built.grad_norms()
    for index, block in enumerate(built.model.blocks):
        inside = sum(p.numel() for p in block.parameters())
        expected = layers[f"grad/layer_{index}"] / math.sqrt(inside)
        assert found[f"adam/second_moment_{index}"] == pytest.approx(expected, rel=1e-5)
    assert found["adam/largest_second_moment"] > found["adam/second_moment"]


def test_sgd_has_no_second_moments_and_muon_has_those_of_what_it_leaves_to_adam() -> None:
    sgd, muon = trainer(Optim(name="sgd")), trainer(Optim(name="muon"))
    sgd.step()
    muon.step()
    assert second_moments(sgd.model, sgd.optimizers) == {}
    assert {"adam/second_moment", "adam/second_moment_0"} <= set(second_moments(muon.model, muon.optimizers))


def test_measuring_does_not_touch_the_run() -> None:
    watched, plain = trainer(Optim()), trainer(Optim())
    for _ in range(3):
        watched.step()
        second_moments(watched.model, watched.optimizers)
        plain.step()
    pairs = zip(watched.model.parameters(), plain.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_parameter_belongs_to_the_block_of_its_name() -> None:
    assert block_of("blocks.12.feed.up.weight") == 12 and block_of("token.weight") is None


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (3.0, 15.0),  # half way from 4 at step 10 to 2 at step 20
        (2.0, 20.0),
        (4.0, 10.0),
        (9.0, 0.0),  # there before the first step
        (1.9, 25 + 5 * 1.1 / 1.2),  # from 3 at step 25 to 1.8 at step 30; the rise before does not matter
        (1.0, 40.0),  # never: the whole length
    ],
)
def test_the_steps_to_a_level_are_where_the_curve_first_comes_down_to_it(level: float, expected: float) -> None:
    curve = [(0, 5.0), (10, 4.0), (20, 2.0), (25, 3.0), (30, 1.8), (40, 1.8)]
    assert steps_to_level(curve, level) == pytest.approx(expected)
    assert steps_to_level(curve[:1], 1.0) == 0.0
