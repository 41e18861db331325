"""Calibration against independent computations: scikit-learn, scipy, and ten-line float64 references."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss

from ablate.evaluation.calibration import (
    NODES,
    best_temperature,
    equal_width,
    measure_calibration,
    tempered,
)
from ablate.evaluation.loss import measure_loss, windows
from ablate.gpt.model import GPT, initialise
from prereg.study.training import Model

VOCABULARY = 9
BINS = 7


class Fixed(torch.nn.Module):
    """A model that says the same logits at every position, or those of a table by token."""

    def __init__(self, table: torch.Tensor, context: int = 8) -> None:
        super().__init__()
        self.table, self.config = table, Model(layers=1, width=16, heads=2, context=context)
        self.device = torch.device("cpu")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table[tokens]


def measured(table: torch.Tensor, tokens: np.ndarray, bins: int = BINS) -> dict[str, float]:
    with torch.inference_mode():
        return measure_calibration(Fixed(table), tokens, bins)  # type: ignore[arg-type]


@pytest.fixture
def table() -> torch.Tensor:
    return 3.0 * torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def tokens() -> np.ndarray:
    return np.random.default_rng(1).integers(0, VOCABULARY, 1999)


def seen(table: torch.Tensor, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, confidence and correctness of every prediction, in float64."""
    p = softmax(table.double().numpy()[tokens[:-1]], axis=1)
    return p, p.max(axis=1), (p.argmax(axis=1) == tokens[1:]).astype(float)


def by_hand(confidence: np.ndarray, correct: np.ndarray, bins: int) -> float:
    """The expected error, bin by bin, as Guo et al. (2017) write it."""
    expected = 0.0
    for i in range(bins):
        above = confidence > i / bins if i else confidence >= 0.0
        inside = above & (confidence <= (i + 1) / bins)
        if inside.any():
            expected += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    return expected


def test_the_errors_are_those_of_the_hand_computation(table: torch.Tensor, tokens: np.ndarray) -> None:
    found = measured(table, tokens)
    _, confidence, correct = seen(table, tokens)
    expected = by_hand(confidence, correct, BINS)
    assert found["calibration/ece"] == pytest.approx(expected, rel=1e-12)


def test_the_reliability_curve_is_that_of_scikit_learn(table: torch.Tensor, tokens: np.ndarray) -> None:
    found = measured(table, tokens)
    _, confidence, correct = seen(table, tokens)
    accuracy, mean = calibration_curve(correct, confidence, n_bins=BINS, strategy="uniform")
    here = [i for i in range(BINS) if f"calibration/bin_accuracy_{i}" in found]
    assert [found[f"calibration/bin_accuracy_{i}"] for i in here] == pytest.approx(accuracy)
    assert [found[f"calibration/bin_confidence_{i}"] for i in here] == pytest.approx(mean)
    shares = [found[f"calibration/bin_share_{i}"] for i in range(BINS)]
    assert sum(shares) == pytest.approx(1.0) and [i for i in range(BINS) if shares[i] > 0] == here


def test_brier_is_that_of_scikit_learn(table: torch.Tensor, tokens: np.ndarray) -> None:
    found = measured(table, tokens)
    p, _, _ = seen(table, tokens)
    ours = brier_score_loss(tokens[1:], p, labels=list(range(VOCABULARY)), scale_by_half=False)
    assert found["calibration/brier"] == pytest.approx(ours, rel=1e-9)


def test_the_loss_at_a_temperature_is_that_of_scikit_learn(table: torch.Tensor, tokens: np.ndarray) -> None:
    found = measured(table, tokens)
    logits = table.double().numpy()[tokens[:-1]]
    for ending, temperature in (("050", 0.5), ("071", math.sqrt(0.5)), ("141", math.sqrt(2.0)), ("200", 2.0)):
        wanted = log_loss(tokens[1:], softmax(logits / temperature, axis=1), labels=list(range(VOCABULARY)))
        assert found[f"calibration/loss_t{ending}"] == pytest.approx(wanted, rel=1e-9)


def test_the_temperature_is_fitted_on_one_half_and_tried_on_the_other(tokens: np.ndarray) -> None:
    # Logits of a bigram table, made 1.7 times too sure: the best temperature is near 1.7.
    rng = np.random.default_rng(5)
    truth = rng.normal(size=(VOCABULARY, VOCABULARY))
    drawn = [0]
    for _ in range(4000):
        drawn.append(int(rng.choice(VOCABULARY, p=softmax(truth[drawn[-1]]))))
    text = np.array(drawn)
    table = torch.from_numpy(1.7 * truth).float()
    found = measured(table, text)
    middle = (len(text) - 1) // 8 // 2 * 8

    def loss(temperature: float, part: np.ndarray) -> float:
        log_p = log_softmax(table.double().numpy()[part[:-1]] / temperature, axis=1)
        return float(-log_p[np.arange(len(part) - 1), part[1:]].mean())

    first = text[: middle + 1]
    best = minimize_scalar(lambda t: loss(t, first), bounds=(0.25, 4.0), method="bounded", options={"xatol": 1e-9}).x
    assert best == pytest.approx(1.7, rel=0.1)
    assert found["calibration/temperature"] == pytest.approx(best, rel=1e-3)


def test_a_temperature_beyond_the_ends_is_the_end() -> None:
    sure_and_wrong = torch.tensor([[0.0, 9.0], [9.0, 0.0]])
    text = np.zeros(33, dtype=int)
    assert measured(sure_and_wrong, text)["calibration/temperature"] == 4.0
    assert measured(-sure_and_wrong, text)["calibration/temperature"] == 0.25


def test_uniform_predictions_gain_nothing_by_any_temperature(tokens: np.ndarray) -> None:
    found = measured(torch.zeros(VOCABULARY, VOCABULARY), tokens)
    assert found["calibration/temperature"] == 1.0
    # Nine-fold ties: the prediction is the lowest id, the confidence one ninth, all in one bin.
    accuracy = float((tokens[1:] == 0).mean())
    assert found["calibration/ece"] == pytest.approx(abs(accuracy - 1 / VOCABULARY))
    assert sum(name.startswith("calibration/bin_accuracy_") for name in found) == 1


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 1e-3])
def test_a_temperature_near_zero_gives_the_limit(temperature: float) -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [5.0, 1.0, 2.0], [1.0, 2.0, 5.0]], dtype=torch.bfloat16)
    loss, slope = tempered(logits, torch.tensor([2, 0, 0]), temperature)
    assert loss[:2].tolist() == pytest.approx([math.log(2.0), 0.0])  # a tie of two; the only largest
    assert loss[2] == pytest.approx(4.0 / temperature)  # a wrong one, which is finite
    assert slope[:2].tolist() == [0.0, 0.0]


def test_the_slope_is_the_derivative_by_the_logarithm_of_the_temperature(table: torch.Tensor) -> None:
    targets = torch.arange(VOCABULARY)
    for temperature in (0.3, 1.0, 2.5):
        step = 1e-5
        high, low = (tempered(table, targets, temperature * math.exp(s))[0] for s in (step, -step))
        _, slope = tempered(table, targets, temperature)
        assert slope.numpy() == pytest.approx(((high - low) / (2 * step)).numpy(), abs=1e-7)


def test_one_class_is_perfectly_calibrated_and_nothing_is_divided_by_zero() -> None:
    found = measured(torch.zeros(1, 1), np.zeros(20, dtype=int))
    for metric in ("ece", "brier"):
        assert found[f"calibration/{metric}"] == 0.0, metric
    assert found["calibration/temperature"] == 1.0


def test_bins_are_closed_above_and_the_first_holds_zero() -> None:
    confidence = np.array([0.0, 0.25, 0.5, np.nextafter(0.5, 1.0), 1.0])
    curve = equal_width(confidence, np.ones(5), 4)
    assert curve.count.tolist() == [2, 1, 1, 1]


def test_the_shortest_text_there_can_be_is_measured() -> None:
    found = measured(torch.zeros(3, 3), np.array([1, 0]))
    assert found["calibration/ece"] == pytest.approx(2 / 3)
    assert found["calibration/temperature"] == 1.0


def test_the_best_temperature_of_a_parabola_is_exact() -> None:
    at = np.log(NODES)
    for centre in (-1.0, 0.0, 0.4):
        found = best_temperature((at - centre) ** 2, 2 * (at - centre))
        assert math.log(found) == pytest.approx(centre, abs=1e-12)


def test_a_real_model_in_bfloat16_is_measured_in_the_windows_of_the_loss() -> None:
    model = GPT(Model(layers=1, width=16, heads=2, context=8), VOCABULARY)
    initialise(model, 4)
    with torch.no_grad():
        model.token.weight.mul_(20.0)
    text = np.random.default_rng(1).integers(0, VOCABULARY, 157)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = measure_calibration(model, text, 5)
        plain = measure_loss(model, text, np.ones(VOCABULARY, dtype=int))
        p = [softmax(model(x).float().double().numpy(), axis=-1).reshape(-1, VOCABULARY) for x, _ in windows(text, 8)]
    confidence = np.concatenate(p).max(axis=1)
    # bfloat16 keeps eight bits, so logits tie: the prediction is the lowest id in both.
    correct = (np.concatenate(p).argmax(axis=1) == text[1:]).astype(float)
    assert found["calibration/ece"] == pytest.approx(by_hand(confidence, correct, 5), rel=1e-9)
    accuracy = sum(
        found[f"calibration/bin_share_{i}"] * found.get(f"calibration/bin_accuracy_{i}", 0.0) for i in range(5)
    )
    assert accuracy == pytest.approx(plain["val/accuracy"])
