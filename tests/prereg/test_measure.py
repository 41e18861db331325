"""Metrics against independent float64 computations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from conftest import House, tiny_document
from quiet import QUIET
from sklearn.metrics import recall_score

import ablate as api
from ablate.capabilities import require_supported
from ablate.evaluation.activations import measure_activations
from ablate.evaluation.loss import classes_of, measure_loss, windows
from ablate.evaluation.suites import evaluate
from ablate.gpt.model import GPT, initialise
from ablate.records.gather import gather
from ablate.workspace import Workspace, require_registered
from prereg.documents.sentences import say
from prereg.metrics.catalogue import EVERY_STEP, METRICS, SUITES, TOKEN_CLASSES
from prereg.study.measure import Measure
from prereg.study.spec import study_from_document
from prereg.study.training import Model

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


def test_accuracy_by_class_is_that_of_scikit_learn_and_every_class_counts_alike(model: GPT, tokens: np.ndarray) -> None:
    pieces = [b"a", b"b", b"1", b".", b" ", b"\n", b"c", b"2", b","]
    classes = classes_of(pieces)
    found = evaluate(model, tokens, np.ones(VOCABULARY, dtype=int), ("loss",), classes=classes)
    with torch.no_grad():
        said = np.concatenate([model(x).argmax(dim=-1).numpy().ravel() for x, _ in windows(tokens, 8)])
    right, kinds = said == tokens[1:], classes[tokens[1:]]
    # Recall of a class, where the prediction counts as its own class when it is right and as none when it is wrong.
    shares = recall_score(kinds, np.where(right, kinds, -1), labels=np.unique(kinds), average=None, zero_division=0)
    names = [TOKEN_CLASSES[kind] for kind in np.unique(kinds)]
    assert names == ["alphabetic", "numeric", "punctuation", "whitespace"]
    assert [found[f"val/accuracy_{name}"] for name in names] == pytest.approx(shares)
    assert found["val/macro_accuracy"] == pytest.approx(balanced(right, kinds))
    assert "val/accuracy_end_of_document" not in found and "val/accuracy_other" not in found
    assert found["val/macro_accuracy"] != pytest.approx(found["val/accuracy"])


def balanced(right: np.ndarray, kinds: np.ndarray) -> float:
    return float(np.mean([right[kinds == kind].mean() for kind in np.unique(kinds)]))


def test_one_class_has_the_accuracy_of_all(model: GPT, tokens: np.ndarray) -> None:
    found = evaluate(model, tokens, np.ones(VOCABULARY, dtype=int), ("loss",), classes=np.zeros(VOCABULARY, dtype=int))
    assert found["val/macro_accuracy"] == found["val/accuracy_alphabetic"] == found["val/accuracy"]


def test_the_loss_by_position_is_that_of_the_positions(model: GPT, tokens: np.ndarray) -> None:
    found = evaluate(model, tokens, np.ones(VOCABULARY, dtype=int), ("loss",))
    early, late = [], []
    for start in range(0, len(tokens) - 1, 8):
        piece = tokens[start : start + 9]
        with torch.no_grad():
            log_p = model(torch.from_numpy(piece[None, :-1])).double().log_softmax(dim=-1).numpy()[0]
        losses = -log_p[np.arange(len(piece) - 1), piece[1:]]
        early += list(losses[:2])
        late += list(losses[6:8])
    assert len(late) < len(early)  # the last window is shorter, and has no late positions
    assert found["val/loss_first_quarter"] == pytest.approx(np.mean(early), rel=1e-6)
    assert found["val/loss_last_quarter"] == pytest.approx(np.mean(late), rel=1e-6)


@pytest.mark.parametrize("positions", ["rope", "sinusoidal", "none"])
def test_beyond_the_context_the_same_weights_are_measured_at_the_positions_that_follow(
    positions: Any, tokens: np.ndarray
) -> None:
    fields = {"layers": 1, "width": 16, "heads": 2, "positions": positions}
    model, longer = GPT(Model(context=8, **fields), VOCABULARY), GPT(Model(context=16, **fields), VOCABULARY)
    initialise(model, 4)
    initialise(longer, 4)  # the same draws: a parameter's first values depend on its name and the seed alone
    found = evaluate(model, tokens, np.ones(VOCABULARY, dtype=int), ("length",))
    beyond, late = [], []
    for start in range(0, len(tokens) - 1, 16):
        piece = tokens[start : start + 17]
        with torch.no_grad():
            log_p = longer(torch.from_numpy(piece[None, :-1])).double().log_softmax(dim=-1).numpy()[0]
        losses = -log_p[np.arange(len(piece) - 1), piece[1:]]
        beyond += list(losses[8:])
        late += list(losses[6:8])
    assert found["length/loss_beyond"] == pytest.approx(np.mean(beyond), rel=1e-6)
    assert found["length/brittleness"] == pytest.approx(np.mean(beyond) - np.mean(late), rel=1e-4)


def test_learned_positions_end_with_the_context(model: GPT, tokens: np.ndarray) -> None:
    assert evaluate(model, tokens, np.ones(VOCABULARY, dtype=int), ("length",)) == {}


def test_a_text_that_ends_with_the_context_has_nothing_beyond_it() -> None:
    model = GPT(Model(layers=1, width=16, heads=2, context=8, positions="rope"), VOCABULARY)
    assert evaluate(model, np.arange(9) % VOCABULARY, np.ones(VOCABULARY, dtype=int), ("length",)) == {}
    assert evaluate(model, np.arange(10) % VOCABULARY, np.ones(VOCABULARY, dtype=int), ("length",))


def test_a_clock_tells_the_seconds_of_each_suite(model: GPT, tokens: np.ndarray) -> None:
    times = iter(range(100))
    lengths = np.ones(VOCABULARY, dtype=int)
    found = evaluate(model, tokens, lengths, ("loss", "activations"), clock=lambda: float(next(times)))
    timed = {name: value for name, value in found.items() if name.startswith("speed/")}
    assert timed == {"speed/measure_loss_s": 1.0, "speed/measure_activations_s": 1.0}
    assert not any(name.startswith("speed/") for name in evaluate(model, tokens, lengths, ("loss", "activations")))


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
        assert metric.suite in SUITES
    for family in METRICS.families:
        assert family.counted and " N (from 0)" in family.definition
        assert METRICS[family.name.replace("_N", "_0")].name == family.name.replace("_N", "_0")


def test_a_member_of_a_family_is_declared_by_its_own_name_and_nothing_like_it_is() -> None:
    third = METRICS["grad/layer_3"]
    assert (third.name, third.suite) == ("grad/layer_3", "gradients")
    assert "block 3 (from 0)" in third.definition
    assert "grad/layer_12" in METRICS
    for name in ("grad/layer_", "grad/layer_03", "grad/layer_N", "grad/layer_-1", "grad/layer_3/x", "xgrad/layer_3"):
        assert name not in METRICS
        assert METRICS.get(name) is None
    assert METRICS.layer("grad/layer_12") == 12 and METRICS.layer("grad/norm") is None
    assert METRICS.bin("calibration/bin_share_3") == 3 and METRICS.layer("calibration/bin_share_3") is None


ALL = {
    "every": 10,
    "suites": ["loss", "activations", "gradients", "speed", "length"],
    "at_end": ["calibration", "cost"],
    "loss_level": 2.0,
}


def test_a_measure_is_written_with_the_settings_of_its_suites_and_said() -> None:
    assert set(Measure().model_dump(mode="json")) == {*Measure.model_fields} - {"calibration", "inference"}
    study = study_from_document(tiny_document(measure=ALL))
    written = study.model_dump(mode="json")["measure"]
    # What its suites go by is written out whole, so that a later default changes no old study.
    assert written["calibration"] == {"bins": 15}
    assert written["inference"] == {"batch": 16, "length": None, "repeats": 5}
    text = say("recorded", study)
    assert "At the last step alone: calibration and cost." in text
    assert "15 bins of confidence" in text and "16 sequences of the context length, the median of 5 passes" in text
    assert "The level of the validation loss is 2 nats per token." in text


@pytest.mark.slow
def test_every_suite_is_recorded_when_it_was_promised(house: House) -> None:
    """Each declared metric comes, at its own steps, and claims about new ones find their values."""
    claims = {
        "ece": {"claim": "layernorm lowers calibration/ece", "smallest": 0.01},
        "steps": {"claim": "layernorm lowers val/steps_to_level", "smallest": 1.0},
        "late": {"claim": "layernorm lowers val/loss", "smallest": 0.05, "read": {"last": 2}},
        "move": {"claim": "layernorm raises adam/second_moment_0", "smallest": 0.0},
    }
    rope = {"layers": 1, "width": 16, "heads": 2, "context": 16, "positions": "rope"}
    document = tiny_document(
        hypotheses=claims,
        seeds=[1, 2],
        measure=ALL,
        decision=[{"verdict": "adopt layernorm", "when": "supported(ece)"}, {"verdict": "inconclusive"}],
    )
    document["base"]["model"] = rope
    path = house.write(document)
    require_supported(study_from_document(document))
    api.run(path, workspace=api.Workspace(console=QUIET))
    case = Workspace().open(path)
    frame = gather(case.root, require_registered(case)).metrics
    steps = {str(name): sorted(rows["step"].unique()) for name, rows in frame.groupby("metric")}
    absent = {name for name in METRICS if name not in steps}
    assert (
        absent
        <= {
            "cost/peak_memory",  # where the machine does not tell
            # A text of letters, spaces and full stops.
            *(f"{stem}_{kind}" for stem in ("val/accuracy", "embedding/norm") for kind in TOKEN_CLASSES[1:]),
        }
    )
    assert "val/accuracy_alphabetic" in steps and "val/accuracy_punctuation" in steps
    for name, found in steps.items():
        suite = METRICS[name].suite
        if suite in ("calibration", "cost") or name.startswith(("speed/measure_calibration", "speed/measure_cost")):
            assert found == [30], name
        elif name in EVERY_STEP:
            assert found == list(range(1, 31)), name
        elif suite in ("gradients", "speed") and not name.startswith("speed/measure_"):
            assert found == [10, 20, 30], name
        elif name.startswith("val/"):
            assert found == [0, 10, 20, 30], name
    decided = api.decide(path).decision
    assert decided.status in ("decided", "inconclusive"), decided.because  # admissible: every claim found its values
    assert {one.hypothesis for one in decided.findings} == set(claims)


def test_every_declared_metric_has_a_plain_unit_or_none() -> None:
    assert {m.unit for m in METRICS.values()} <= {
        "", "nats/token", "bits/byte", "share", "steps", "tokens/s", "s", "bytes", "FLOP/token", "FLOP/s", "J", "nats",
    }  # fmt: skip
