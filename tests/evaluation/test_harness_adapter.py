"""Claims about the adapter: log-likelihoods that add up, the same bits whatever they are scored beside, no sampling."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
from harness_samples import LETTERS, tiny_model, tokenizer

from ablate.data.tokenizers import CharTokenizer
from ablate.evaluation.harness import adapter
from ablate.evaluation.harness.adapter import Scorer, Stopped, as_lm
from ablate.evaluation.harness.pins import prefix_of
from ablate.evaluation.harness.tasks import load_harness
from prereg.errors import CorpusError, UnsupportedError

CONTEXT = 32
REQUESTS = [
    ("", "the cat sat on the mat."),
    ("the cat sat on", " the mat."),
    ("the rain fell ", "on the plain."),
    ("a", "t"),
    ("", "h"),
    ("no rain fell on the plain.\nno rain fell on the sea.\n", "the hat."),
    ("the cat", " sat on the mat and the rain fell on the plain the".replace("d", "t")),
]


def scorer(**changes: object) -> Scorer:
    model = changes.pop("model", None) or tiny_model(CONTEXT)
    return Scorer(model, CONTEXT, tokenizer(), **changes)  # type: ignore[arg-type]


def by_hand(context: str, continuation: str) -> float:
    """One token after another, each with as much as fits before it; a line break where there is no context."""
    model = tiny_model(CONTEXT).eval()
    before = tokenizer().encode(context or "\n").tolist()
    total = 0.0
    for token in tokenizer().encode(continuation).tolist():
        with torch.inference_mode():
            logits = model(torch.tensor([before[-CONTEXT:]]))[0, -1]
        total += float(torch.log_softmax(logits.double(), dim=-1)[token])
        before.append(token)
    return total


def test_a_continuation_scores_the_sum_of_its_tokens() -> None:
    for context, continuation in REQUESTS[:5]:
        found = scorer().loglikelihoods([(context, continuation)])[0][0]
        # A blank at the context's end belongs to the continuation.
        blanks = len(context) - len(context.rstrip())
        at = len(context) - blanks
        assert found == pytest.approx(by_hand(context[:at], context[at:] + continuation), abs=1e-4)


def test_likelihoods_multiply_over_the_parts_of_a_text() -> None:
    whole, first, second = (
        score for score, _ in scorer().loglikelihoods([("", "the mat."), ("", "the"), ("\nthe", " mat.")])
    )
    assert first + second == pytest.approx(whole, abs=1e-5)


def test_a_whole_text_is_scored_in_windows_and_each_token_counts_once() -> None:
    short, long = "the cat sat on the mat.", "the rain fell on the plain. " * 4
    found = scorer()
    assert found.rolling([short])[0] == found.loglikelihoods([("", short)])[0][0]
    tokens = tokenizer().encode("\n" + long)
    model, expected, counted = tiny_model(CONTEXT).eval(), 0.0, 0
    for start in range(1, len(tokens), CONTEXT):
        end = min(start + CONTEXT, len(tokens))
        window = torch.from_numpy(tokens[max(0, end - CONTEXT - 1) : end])
        with torch.inference_mode():
            chances = torch.log_softmax(model(window[None, :-1])[0].double(), dim=-1)
        expected += float(chances.gather(-1, window[1:, None])[-(end - start) :].sum())
        counted += end - start
    assert counted == len(long)
    assert found.rolling([long])[0] == pytest.approx(expected, abs=1e-4)


def test_the_same_question_has_the_same_bits() -> None:
    assert scorer().loglikelihoods(REQUESTS) == scorer().loglikelihoods(REQUESTS)


@pytest.mark.parametrize("at_once", [1, 2, 5, 64])
def test_the_bits_do_not_depend_on_how_many_are_asked_at_once_or_in_which_order(at_once: int) -> None:
    rng = random.Random(at_once)  # noqa: S311 (no secret)
    words = ["".join(rng.choices(LETTERS, k=rng.randint(1, 30))) for _ in range(60)]
    requests = [(rng.choice(["", "the ", "rain"]), word) for word in words]
    together = dict(zip(requests, scorer().loglikelihoods(requests), strict=True))
    shuffled = rng.sample(requests, len(requests))
    apart = [
        answer
        for start in range(0, len(shuffled), at_once)
        for answer in scorer().loglikelihoods(shuffled[start : start + at_once])
    ]
    assert apart == [together[request] for request in shuffled]


@pytest.mark.parametrize("batch", [1, 3, 16, 17, 100])
def test_the_bits_do_not_depend_on_the_batch(batch: int) -> None:
    # More of one length than two passes hold, so that batches of every size meet other neighbours in other places.
    rng = random.Random(7)  # noqa: S311 (no secret)
    requests = [("", "".join(rng.choices(LETTERS, k=k))) for k in (3, 9, 30) for _ in range(40)] + REQUESTS
    assert scorer(batch=batch).loglikelihoods(requests) == scorer().loglikelihoods(requests)


def test_every_forward_pass_has_the_same_number_of_rows_and_none_of_them_padding() -> None:
    model = tiny_model(CONTEXT)
    shapes = []
    model.register_forward_pre_hook(lambda _, inputs: shapes.append(tuple(inputs[0].shape)))
    scorer(model=model).loglikelihoods(REQUESTS)
    assert {rows for rows, _ in shapes} == {adapter.ROWS}
    assert len({length for _, length in shapes}) == len(shapes) > 3
    shapes.clear()
    scorer(model=model, batch=3 * adapter.ROWS).loglikelihoods(
        [("", one + other) for one in LETTERS for other in LETTERS]
    )
    assert len(shapes) == len(LETTERS) ** 2 // adapter.ROWS + 1
    assert {rows for rows, _ in shapes} == {adapter.ROWS}


def test_another_model_gives_other_numbers() -> None:
    assert scorer(model=tiny_model(CONTEXT, seed=2)).loglikelihoods(REQUESTS) != scorer().loglikelihoods(REQUESTS)


def test_what_is_too_long_loses_its_beginning_and_is_counted() -> None:
    found = scorer()
    long = "no rain fell on the plain. no rain fell on the sea."
    answer = found.loglikelihoods([(long, " the hat.")])[0][0]
    assert found.truncated == 1
    kept = (long + " the hat.")[-(CONTEXT + 1) :]
    at = len(kept) - len(" the hat.")
    assert answer == scorer().loglikelihoods([(kept[:at], kept[at:])])[0][0]
    found.loglikelihoods([("", "a" * CONTEXT)])
    assert found.truncated == 1, "one that just fits is not cut"


def test_a_continuation_longer_than_the_context_is_scored_whole() -> None:
    found = scorer()
    text = "the cat sat on the mat. the rain fell on the plain. no hat is on"
    assert len(text) > 2 * CONTEXT - 1
    parts = found.rolling([text])[0]
    assert found.truncated == 0
    assert found.loglikelihoods([("", text)])[0][0] == parts
    assert found.truncated == 1


def test_it_says_whether_the_continuation_is_what_the_model_would_say() -> None:
    model = tiny_model(CONTEXT).eval()
    with torch.inference_mode():
        best = int(model(torch.from_numpy(tokenizer().encode("the"))[None])[0, -1].argmax())
    word = tokenizer().decode(np.array([best]))
    other = next(letter for letter in LETTERS if letter != word)
    answers = scorer().loglikelihoods([("the", word), ("the", other)])
    assert [greedy for _, greedy in answers] == [True, False]


def test_answers_are_in_float32_whatever_the_arithmetic_of_training() -> None:
    plain = scorer().loglikelihoods(REQUESTS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert scorer().loglikelihoods(REQUESTS) == plain


def test_the_model_is_left_as_it_was() -> None:
    model = tiny_model(CONTEXT).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    scorer(model=model).loglikelihoods(REQUESTS)
    assert model.training and torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_large_vocabulary_is_scored_with_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "MOST_LOGITS", 3 * len(LETTERS) * CONTEXT)
    few = scorer()
    assert few.rows == 3
    for (one, _), (other, _) in itertools.zip_longest(few.loglikelihoods(REQUESTS), scorer().loglikelihoods(REQUESTS)):
        assert one == pytest.approx(other, abs=1e-4)


def test_a_scheduler_that_wants_to_stop_is_heard() -> None:
    with pytest.raises(Stopped):
        scorer(stop=lambda: True).loglikelihoods(REQUESTS)


@pytest.mark.slow
def test_the_harness_gets_likelihoods_and_no_text() -> None:
    load_harness()
    from lm_eval.api.instance import Instance

    lm = as_lm(scorer())
    asked = [Instance("loglikelihood", {}, request, 0) for request in REQUESTS]
    assert lm.loglikelihood(asked) == scorer().loglikelihoods(REQUESTS)
    assert lm.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, ("the mat.",), 0)]) == scorer().rolling(
        ["the mat."]
    )
    with pytest.raises(UnsupportedError, match="generate"):
        lm.generate_until([])


def test_a_token_that_spans_context_and_choice_is_cut_between_them_and_every_letter_scored() -> None:
    class Merging:
        """Letters, and one token for "at" wherever it stands."""

        size = len(LETTERS) + 1

        def encode(self, text: str) -> np.ndarray:
            ids = []
            for part in text.replace("at", "@"):
                ids.append(len(LETTERS) if part == "@" else int(tokenizer().encode(part)[0]))
            return np.array(ids, dtype=np.int64)

    found = Scorer(tiny_model(CONTEXT), CONTEXT, Merging())
    c, a, t, at, h = (int(Merging().encode(text)[0]) for text in ("c", "a", "t", "at", "h"))
    assert found.encoded("c", "at") == ([c], [at])
    assert found.encoded("ca", "t") == ([c, a], [t]), "written together it would be c, at: nothing left to score"
    assert found.encoded("ca", "the") == ([c, a], [t, h, int(Merging().encode("e")[0])])


def test_an_empty_context_is_a_line_break_or_a_blank_or_refused() -> None:
    assert prefix_of(tokenizer()) == "\n"
    assert prefix_of(CharTokenizer.of("a b")) == " "
    with pytest.raises(CorpusError, match="line break"):
        prefix_of(CharTokenizer.of("ab"))
