"""Claims about evaluation: counts complete, numbers as an independent computation gives them, without a network."""

from __future__ import annotations

import socket
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness_samples import N_TASKS, TASKS, tiny_model, tokenizer, write_pack
from torch import Tensor, nn

from ablate.evaluation.harness.adapter import Scorer
from ablate.evaluation.harness.evaluate import (
    Answers,
    brier,
    calibration_error,
    evaluate_tasks,
    prepare_questions,
    probabilities,
)
from ablate.evaluation.harness.packs import Prompt, filled_prompt, find_pack, plain_prompts
from ablate.evaluation.harness.pins import draw_items, task_pin
from ablate.evaluation.harness.tasks import Questions
from prereg.errors import CorpusError
from prereg.metrics.catalogue import ITEM_METRICS, TASK_METRICS
from prereg.registry.paths import Root
from prereg.study.measure import Harness

CONTEXT = 32
HARNESS = Harness(tasks=TASKS, items_per_task=6, shots=(0, 2))
THREE = {"bare": "", "told": "the rain: ".replace(":", "."), "chosen": "{options}\nit is "}


@pytest.fixture(name="root")
def _root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a network was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    write_pack(tmp_path)
    return Root(tmp_path)


def questions(root: Root, harness: Harness = HARNESS) -> Questions:
    return prepare_questions(harness, task_pin(harness, root, tokenizer()), root, tokenizer())


def answers(root: Root, model: nn.Module | None = None, harness: Harness = HARNESS) -> Answers:
    return evaluate_tasks(questions(root, harness), model or tiny_model(CONTEXT), CONTEXT, tokenizer())


def outcome(found: Answers) -> tuple[Any, ...]:
    """Everything but the time."""
    return found.metrics, found.items, found.record.model_copy(update={"wall_s": 0.0})


def test_every_item_is_asked_under_every_number_of_shots(root: Root) -> None:
    found = answers(root)
    n = N_TASKS * 6
    assert (found.record.n_tasks, found.record.n_items, found.record.n_requests) == (N_TASKS, n, n * 2 * 2)
    by_metric = defaultdict(set)
    for one in found.items:
        by_metric[one.metric].add((one.task, one.item))
    assert set(by_metric) == {
        "harness/accuracy",
        "harness/accuracy_shots_0",
        "harness/accuracy_shots_2",
        *(f"harness/loglikelihood/shots_{k}/plain/{role}" for k in (0, 2) for role in ("right", "wrong_0")),
    }
    assert {len(items) for items in by_metric.values()} == {n}
    assert len({one.item_sha256 for one in found.items}) == n


def test_the_answers_are_those_of_an_independent_count(root: Root) -> None:
    found, pack = answers(root), find_pack(TASKS, root)
    drawn = draw_items(pack, HARNESS, tokenizer())
    scorer = Scorer(tiny_model(CONTEXT), CONTEXT, tokenizer())
    scores: dict[int, dict[str, list[float]]] = {0: defaultdict(list), 2: defaultdict(list)}
    for task, items in drawn.scored.items():
        shown = "".join(example.choices[example.gold] + "\n" for example in drawn.examples[task])
        for item in items:
            for shots in (0, 2):
                before = shown if shots else ""
                likely = [score for score, _ in scorer.loglikelihoods([(before, choice) for choice in item.choices])]
                scores[shots][task].append(float(int(np.argmax(likely)) == item.gold))
    for shots in (0, 2):
        macro = statistics.fmean(statistics.fmean(one) for one in scores[shots].values())
        assert found.metrics[f"harness/macro_accuracy_shots_{shots}"] == pytest.approx(macro, abs=1e-12)
    both = [found.metrics[f"harness/macro_accuracy_shots_{shots}"] for shots in (0, 2)]
    assert found.metrics["harness/macro_accuracy"] == pytest.approx(statistics.fmean(both), abs=1e-12)
    assert 0.0 < found.metrics["harness/macro_accuracy"] < 1.0


def test_every_metric_is_declared_and_means_are_those_of_the_items(root: Root) -> None:
    found = answers(root)
    assert all(name in TASK_METRICS for name in found.metrics)
    for name in (name for name in found.metrics if name in ITEM_METRICS):
        declared = ITEM_METRICS[name]
        tasks = defaultdict(list)
        for one in found.items:
            if one.metric == declared.scores:
                tasks[one.task if declared.counts_alike == "tasks" else ""].append(one.value)
        assert found.metrics[name] == pytest.approx(statistics.fmean(map(statistics.fmean, tasks.values())), abs=1e-12)


def test_asking_again_gives_the_same_bits_and_another_model_other_ones(root: Root) -> None:
    prepared = questions(root)
    first = evaluate_tasks(prepared, tiny_model(CONTEXT), CONTEXT, tokenizer())
    assert outcome(evaluate_tasks(prepared, tiny_model(CONTEXT), CONTEXT, tokenizer())) == outcome(first)
    assert outcome(answers(root)) == outcome(first), "prepared anew"
    assert answers(root, tiny_model(CONTEXT, seed=2)).items != first.items


def test_a_model_that_has_read_the_right_answers_is_right_more_often(root: Root) -> None:
    torch.manual_seed(0)
    model = tiny_model(CONTEXT, width=32)
    drawn = draw_items(find_pack(TASKS, root), HARNESS, tokenizer())
    rights = [item.choices[item.gold] for items in drawn.scored.values() for item in items]
    rows = [torch.from_numpy(tokenizer().encode("\n" + right))[None] for right in rights]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    before = answers(root, model).metrics
    for _ in range(25):
        optimizer.zero_grad()
        torch.stack([model.loss(row[:, :-1], row[:, 1:]) for row in rows]).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    after = answers(root, model).metrics
    assert after["harness/accuracy_shots_0"] > 0.9 > before["harness/accuracy_shots_0"]
    assert after["harness/brier"] < before["harness/brier"]


def test_a_model_without_an_opinion_is_right_by_chance_and_not_by_the_order_of_choices(root: Root) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(()))

        def forward(self, tokens: Tensor) -> Tensor:
            return torch.zeros(*tokens.shape, tokenizer().size)

    pack = {task: tuple(item.gold for item in items[:6]) for task, items in find_pack(TASKS, root).items.items()}
    share = statistics.fmean(gold == 0 for golds in pack.values() for gold in golds)
    found = answers(root, Flat()).metrics
    assert found["harness/accuracy"] == pytest.approx(share)
    assert 0.2 < share < 0.8
    assert found["harness/brier"] == pytest.approx(0.5), "even odds, as both choices have as many letters"


def test_each_prompt_has_its_accuracy_and_the_pack_its_median_and_spread(root: Root) -> None:
    write_pack(root.path, prompts=THREE)
    found = answers(root)
    assert plain_prompts(find_pack(TASKS, root).prompts) == THREE
    each = [found.metrics[f"harness/macro_accuracy_prompt_{number}"] for number in range(3)]
    assert found.metrics["harness/macro_accuracy_median_prompt"] == statistics.median(each)
    assert found.metrics["harness/macro_accuracy_spread_prompt"] == max(each) - min(each) > 0
    assert found.metrics["harness/macro_accuracy"] == pytest.approx(statistics.fmean(each), abs=1e-12)
    assert found.record.n_requests == N_TASKS * 6 * 2 * 2 * 3
    write_pack(root.path, prompts={"bare": ""})
    (alone,) = [answers(root).metrics["harness/macro_accuracy"]]
    assert alone == pytest.approx(each[0], abs=1e-12), "a prompt means the same beside others"


def test_prompts_and_examples_stand_before_the_choice_as_they_are_written(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pack(root.path, prompts=THREE)
    asked: list[tuple[str, str]] = []
    original = Scorer.loglikelihoods

    def listening(self: Scorer, requests: Any) -> Any:
        asked.extend(requests)
        return original(self, requests)

    monkeypatch.setattr(Scorer, "loglikelihoods", listening)
    answers(root)
    drawn = draw_items(find_pack(TASKS, root), HARNESS, tokenizer())
    expected = set()
    for prompt in map(Prompt, THREE.values()):
        for task, items in drawn.scored.items():
            shown = "".join(filled_prompt(prompt, one) + one.choices[one.gold] + "\n" for one in drawn.examples[task])
            expected |= {
                (b + filled_prompt(prompt, item), c) for item in items for b in ("", shown) for c in item.choices
            }
    assert set(asked) == expected


def test_a_prompt_with_answers_asks_for_the_word_that_stands_for_the_right_choice(root: Root) -> None:
    """One prompt names the first sentence and asks for `on` or `not`, the letters of the tiny corpus."""
    write_pack(root.path, prompts={"first": {"text": "{choice_1} is it ", "answers": ["on", "not"]}})
    asked = answers(root, tiny_model(96))
    drawn = draw_items(find_pack(TASKS, root), HARNESS, tokenizer())
    scorer = Scorer(tiny_model(96), 96, tokenizer())
    right = []
    for task, items in drawn.scored.items():
        for shots in HARNESS.shots:
            shown = "".join(
                f"{item.choices[0]} is it {('on', 'not')[item.gold]}\n" for item in drawn.examples[task][:shots]
            )
            for item in items:
                context = f"{shown}{item.choices[0]} is it "
                (on, _), (not_, _) = scorer.loglikelihoods([(context, "on"), (context, "not")])
                right.append((on < not_) == (item.gold == 1))
    assert asked.metrics["harness/accuracy"] == pytest.approx(statistics.fmean(right))


def test_the_record_knows_versions_prompts_and_requests(root: Root) -> None:
    first = answers(root).record
    assert (first.version, first.precision, first.tasks) == ("0.4.13", "float32", TASKS)
    assert first.tasks_sha256 == find_pack(TASKS, root).sha256
    other_examples = answers(root, harness=HARNESS.model_copy(update={"examples_seed": 5})).record
    assert other_examples.tasks_sha256 == first.tasks_sha256
    assert other_examples.prompts_sha256 != first.prompts_sha256
    assert other_examples.arguments_sha256 != first.arguments_sha256
    other_model = answers(root, tiny_model(CONTEXT, seed=3)).record
    assert other_model.arguments_sha256 == first.arguments_sha256, "what is asked does not depend on who answers"


def test_what_does_not_fit_is_cut_and_counted(root: Root) -> None:
    roomy = tiny_model(256)
    assert evaluate_tasks(questions(root), roomy, 256, tokenizer()).metrics["harness/truncated"] == 0.0
    found = answers(root)
    # Two examples and an item are longer than 32 characters, an item alone is shorter: all of one half of the requests.
    assert found.metrics["harness/truncated"] == found.record.truncated == N_TASKS * 6 * 2


def test_items_that_cannot_be_written_are_not_asked_and_said(root: Root) -> None:
    write_pack(root.path, strange=True)
    found = answers(root)
    assert found.metrics["harness/unencodable"] == found.record.unencodable == 1
    assert found.record.n_items == N_TASKS * 6 - 1
    assert ("article", "2") not in {(one.task, one.item) for one in found.items}


def test_tasks_that_are_not_the_registered_ones_are_not_asked(root: Root) -> None:
    pin = task_pin(HARNESS, root, tokenizer())
    path = root.path / TASKS / "end.jsonl"
    path.write_text(path.read_text().replace("fell", "sat", 1))
    with pytest.raises(CorpusError, match="not those registered"):
        prepare_questions(HARNESS, pin, root, tokenizer())


def test_a_lost_answer_is_our_bug_and_no_average_over_the_rest(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval import evaluator

    prepared = questions(root)
    original = evaluator.evaluate

    def forgetful(*given: Any, **named: Any) -> Any:
        found = original(*given, **named)
        next(iter(found["samples"].values())).pop()
        return found

    monkeypatch.setattr(evaluator, "evaluate", forgetful)
    with pytest.raises(AssertionError):
        evaluate_tasks(prepared, tiny_model(CONTEXT), CONTEXT, tokenizer())


def test_calibration_is_that_of_its_formulas() -> None:
    even, sure = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    assert brier([(even, 0)]) == pytest.approx(0.5)
    assert brier([(sure, 0), (sure, 1)]) == pytest.approx((0.02 + 1.62) / 2)
    # 0.9 lies in the 14th of 15 bins: right once in two, |0.5 - 0.9|.
    assert calibration_error([(sure, 0), (sure, 1)]) == pytest.approx(0.4)
    assert calibration_error([(sure, 0)] * 9 + [(sure, 1)]) == pytest.approx(0.0)
    assert calibration_error([(np.array([1.0, 0.0]), 0)]) == 0.0
    assert probabilities([-1000.0, -1000.0]).tolist() == [0.5, 0.5]
    assert probabilities([0.0, np.log(3.0)]) == pytest.approx([0.25, 0.75])


def test_normalised_probabilities_are_milder(root: Root) -> None:
    found = answers(root).metrics
    for name in ("harness/ece", "harness/brier"):
        assert found[f"{name}_normalised"] != found[name]
    assert abs(found["harness/brier_normalised"] - 0.5) < abs(found["harness/brier"] - 0.5) + 0.05
