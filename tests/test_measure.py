"""Metrics against independent float64 computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ablate.gpt.model import GPT, initialise
from ablate.measure.activations import measure_activations
from ablate.measure.loss import measure_loss, windows
from ablate.measure.suites import evaluate
from prereg.metrics import METRICS
from prereg.training import Model

VOCABULARY = 9


@pytest.fixture
def model() -> GPT:
    built = GPT(Model(layers=1, width=16, heads=2, context=8), VOCABULARY)
    initialise(built, 4)
    with torch.no_grad():
        built.token.weight.mul_(20.0)  # away from the uniform start, so that errors show
    return built


@pytest.fixture
def tokens() -> np.ndarray:
    return np.random.default_rng(1).integers(0, VOCABULARY, 157)


def by_hand(model: GPT, tokens: np.ndarray) -> tuple[float, float]:
    """Summed nats and correct predictions, window by window, from float64 logits."""
    nats, correct = 0.0, 0
    context = model.config.context
    for start in range(0, len(tokens) - 1, context):
        piece = tokens[start : start + context + 1]
        with torch.no_grad():
            logits = model(torch.from_numpy(piece[None, :-1])).double().numpy()[0]
        for row, target in zip(logits, piece[1:], strict=True):
            nats += math.log(np.exp(row - row.max()).sum()) + row.max() - row[target]
            correct += int(int(np.argmax(row)) == target)
    return nats, correct


def test_the_loss_suite_is_the_hand_computation(model: GPT, tokens: np.ndarray) -> None:
    lengths = np.arange(1, VOCABULARY + 1)
    found = evaluate(model, tokens, lengths, ("loss",))
    nats, correct = by_hand(model, tokens)
    count = len(tokens) - 1
    assert found["val/loss"] == pytest.approx(nats / count, rel=1e-6)
    assert found["val/perplexity"] == pytest.approx(math.exp(nats / count), rel=1e-6)
    assert found["val/accuracy"] == correct / count
    assert found["val/bits_per_byte"] == pytest.approx(nats / math.log(2) / lengths[tokens[1:]].sum(), rel=1e-6)


def test_every_token_but_the_first_is_predicted_exactly_once(tokens: np.ndarray) -> None:
    targets = np.concatenate([t.numpy().ravel() for _, t in windows(tokens, 8)])
    assert targets.tolist() == tokens[1:].tolist()


def test_ties_go_to_the_lowest_id() -> None:
    class Flat(torch.nn.Module):
        config = Model(layers=1, width=16, heads=2, context=8)
        device = torch.device("cpu")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(*x.shape, VOCABULARY)

    tokens = np.array([5, 0, 0, 1, 0])
    found = measure_loss(Flat(), tokens, np.ones(VOCABULARY, dtype=int))  # type: ignore[arg-type]
    assert found["val/accuracy"] == 3 / 4
    assert found["val/loss"] == pytest.approx(math.log(VOCABULARY))


def test_the_embedding_norm_is_that_of_the_first_blocks_input(model: GPT, tokens: np.ndarray) -> None:
    whole = (len(tokens) - 1) // 8
    weights = model.token.weight.detach().double().numpy(), model.position.weight.detach().double().numpy()
    ids = tokens[: min(whole, 16) * 8].reshape(-1, 8)
    norms = np.linalg.norm(weights[0][ids] + weights[1][None, :], axis=-1)
    with torch.inference_mode():
        assert measure_activations(model, tokens)["embedding/norm"] == pytest.approx(norms.mean(), rel=1e-6)


def test_evaluation_leaves_the_model_as_it_was(model: GPT, tokens: np.ndarray) -> None:
    before = {n: p.clone() for n, p in model.state_dict().items()}
    model.train()
    evaluate(model, tokens, np.ones(VOCABULARY, dtype=int), ("loss", "activations"))
    assert model.training
    assert all(torch.equal(before[n], p) for n, p in model.state_dict().items())


def test_every_metric_has_a_definition_and_says_which_way_is_better() -> None:
    for name, metric in METRICS.items():
        assert name == metric.name
        assert metric.definition
        assert metric.better in ("lower", "higher", "neither")


def test_a_member_of_a_family_is_declared_by_its_own_name_and_nothing_like_it_is() -> None:
    third = METRICS["grad/layer_3"]
    assert (third.name, third.suite) == ("grad/layer_3", "gradients")
    assert "block 3 (from 0)" in third.definition
    assert "grad/layer_12" in METRICS
    for name in ("grad/layer_", "grad/layer_03", "grad/layer_N", "grad/layer_-1", "grad/layer_3/x", "xgrad/layer_3"):
        assert name not in METRICS
        assert METRICS.get(name) is None
    assert METRICS.layer("grad/layer_12") == 12 and METRICS.layer("grad/norm") is None
