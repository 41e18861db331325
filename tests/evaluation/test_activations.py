"""What flows inside, against other computations: numpy's singular values, cosines pair by pair, a model by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from sklearn.metrics.pairwise import cosine_similarity

from ablate.data.tokenizers import StoredVocabulary, train_bpe
from ablate.evaluation.activations import (
    mean_cosine,
    measure_activations,
)
from ablate.evaluation.loss import class_of, classes_of
from ablate.evaluation.suites import evaluate
from ablate.gpt.model import GPT, initialise
from prereg.metrics.catalogue import METRICS
from prereg.study.training import Model

VOCABULARY = 9
CONTEXT = 8


def built(**fields: Any) -> GPT:
    model = GPT(Model(**{"layers": 2, "width": 16, "heads": 2, "context": CONTEXT, **fields}), VOCABULARY)
    initialise(model, 4)
    with torch.no_grad():
        model.token.weight.mul_(20.0)
    return model


@pytest.fixture
def tokens() -> np.ndarray:
    return np.random.default_rng(1).integers(0, VOCABULARY, 157)


def measured(model: GPT, tokens: np.ndarray, classes: np.ndarray | None = None) -> dict[str, float]:
    with torch.inference_mode():
        return measure_activations(model, tokens, classes)


def pairwise(vectors: np.ndarray) -> float:
    """Mean cosine of two different rows, one pair at a time."""
    table = cosine_similarity(vectors)
    return float(table[~np.eye(len(vectors), dtype=bool)].mean())


@pytest.mark.parametrize("norm", ["none", "layernorm", "rmsnorm"])
def test_the_effect_of_the_embedding_norm_is_visible(norm: str, tokens: np.ndarray) -> None:
    model = built(embedding_norm=norm)
    found = measured(model, tokens)
    inputs = torch.from_numpy(tokens[: 16 * CONTEXT].reshape(-1, CONTEXT))
    with torch.no_grad():
        before, after = model.embedded(inputs).double().numpy(), model.first_input(inputs).double().numpy()
    for ending, vectors in (("", after), ("_before", before)):
        lengths = np.linalg.norm(vectors, axis=-1)
        assert found[f"embedding/norm{ending}"] == pytest.approx(lengths.mean(), rel=1e-6)
        assert found[f"embedding/norm{ending}_sd"] == pytest.approx(lengths.std(), rel=1e-5, abs=1e-6)
        assert found[f"embedding/cosine{ending}"] == pytest.approx(np.mean([pairwise(w) for w in vectors]), rel=1e-6)
    same = found["embedding/norm"] == pytest.approx(found["embedding/norm_before"], rel=1e-9)
    assert same == (norm == "none")


def test_the_table_of_embeddings_is_measured_over_the_vocabulary(tokens: np.ndarray) -> None:
    model = built()
    table = model.token.weight.detach().double().numpy()
    found = measured(model, tokens)
    assert found["embedding/table_norm"] == pytest.approx(float(np.linalg.norm(table, axis=1).mean()), rel=1e-6)


def test_the_residual_stream_is_what_each_block_gives(tokens: np.ndarray) -> None:
    model = built()
    found = measured(model, tokens)
    x = model.first_input(torch.from_numpy(tokens[: 16 * CONTEXT].reshape(-1, CONTEXT)))
    for index, block in enumerate(model.blocks):
        x = block(x, None)
        vectors = x.detach().double().numpy()
        assert found[f"residual/norm_{index}"] == pytest.approx(np.linalg.norm(vectors, axis=-1).mean(), rel=1e-6)
        assert found[f"residual/cosine_{index}"] == pytest.approx(np.mean([pairwise(w) for w in vectors]), rel=1e-5)


def test_the_logits_are_told_by_size_and_spread(tokens: np.ndarray) -> None:
    model = built()
    found = measured(model, tokens)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens[: 16 * CONTEXT].reshape(-1, CONTEXT))).double().numpy()
    assert found["logits/rms"] == pytest.approx(np.sqrt((logits**2).mean()))
    assert found["logits/sd"] == pytest.approx(logits.std(axis=-1).mean())
    assert found["logits/largest"] == np.abs(logits).max()
    assert found["logits/log_z"] == pytest.approx(logsumexp(logits, axis=-1).mean())


def test_equal_vectors_are_oversmoothed_and_orthogonal_ones_are_not() -> None:
    assert mean_cosine(torch.ones(5, 3)) == pytest.approx(1.0)
    assert mean_cosine(torch.eye(4)) == pytest.approx(0.0, abs=1e-15)
    assert mean_cosine(torch.tensor([[1.0, 0.0], [-2.0, 0.0]])) == pytest.approx(-1.0)
    assert mean_cosine(torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])) == pytest.approx(1 / 3)  # zero: with none
    assert mean_cosine(torch.ones(1, 3)) is None


def test_norms_by_class_are_means_over_the_positions_of_that_class(tokens: np.ndarray) -> None:
    model = built()
    classes = classes_of([b"a", b"b", b"1", b".", b" ", b"\n", b"c", b"", b"d"])
    found = measured(model, tokens, classes)
    ids = tokens[: 16 * CONTEXT]
    with torch.no_grad():
        lengths = model.first_input(torch.from_numpy(ids.reshape(-1, CONTEXT))).double().norm(dim=-1).numpy().ravel()
    assert found["embedding/norm_numeric"] == pytest.approx(lengths[ids == 2].mean(), rel=1e-6)
    assert found["embedding/norm_whitespace"] == pytest.approx(lengths[(ids == 4) | (ids == 5)].mean(), rel=1e-6)
    assert found["embedding/norm_end_of_document"] == pytest.approx(lengths[ids == 7].mean(), rel=1e-6)
    assert "embedding/norm_other" not in found


def test_looking_inside_changes_nothing_and_leaves_no_hook(tokens: np.ndarray) -> None:
    model = built(positions="rope")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    evaluate(model, tokens, np.ones(VOCABULARY, dtype=int), ("activations", "length", "calibration", "loss"))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_a_bfloat16_model_is_measured_in_full_precision(tokens: np.ndarray) -> None:
    model = built()
    full = measured(model, tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = measured(model, tokens)
    for name, value in full.items():
        assert half[name] == pytest.approx(value, rel=0.05, abs=0.01), name
    assert half["embedding/cosine"] == full["embedding/cosine"]


def test_everything_inside_is_declared_and_every_declaration_is_measured(tokens: np.ndarray) -> None:
    classes = classes_of([b"a", b"1", b".", b" ", b"", "é".encode()[:1], b"b", b"c", b"d"])
    found = set(measured(built(), tokens, classes))
    declared = {name for name, metric in METRICS.items() if metric.suite == "activations"}
    families = {f.name.replace("_N", f"_{n}") for f in METRICS.families if f.suite == "activations" for n in (0, 1)}
    assert found == declared | families


def test_byte_pairs_have_classes_and_stored_ids_have_none() -> None:
    tokenizer = train_bpe("the cat and the dog, the cat and 12 dogs. " * 20, 270)
    pieces = tokenizer.pieces()
    assert [len(piece) for piece in pieces] == tokenizer.byte_lengths().tolist()
    ids = tokenizer.encode("the cat, é")
    assert b"".join(pieces[i] for i in ids).decode() == "the cat, é"
    assert {class_of(piece) for piece in pieces} == {"alphabetic", "numeric", "punctuation", "whitespace", "other"}
    assert StoredVocabulary(3, "0" * 64, (1, 1, 1)).pieces() is None


@pytest.mark.parametrize(
    ("piece", "kind"),
    [
        (b"a", "alphabetic"),
        ("é".encode(), "alphabetic"),
        (b" the", "alphabetic"),
        ("ह".encode(), "alphabetic"),
        (b"7", "numeric"),
        (b" 1990", "numeric"),
        ("½".encode(), "numeric"),
        (b".", "punctuation"),
        (b"'s", "punctuation"),
        (b"\n  {", "punctuation"),
        ("€".encode(), "punctuation"),
        (b" ", "whitespace"),
        (b"\n\n\t", "whitespace"),
        (b"", "end_of_document"),
        ("é".encode()[1:], "other"),
        ("é".encode()[:1], "other"),
    ],
)
def test_a_token_is_of_the_class_of_its_first_character_that_is_not_white(piece: bytes, kind: str) -> None:
    assert class_of(piece) == kind
