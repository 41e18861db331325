"""Ask a model all questions and say what it answered: scores of items, metrics, and a record of how it was asked.

The harness builds the requests and decides which choice was given (its `acc`); everything is read off its samples, none
of its own summaries is used. Every count is asserted: it returns empty results where it should raise.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from ablate.evaluation.harness.adapter import ROWS, Course, Scorer, Standing, as_lm
from ablate.evaluation.harness.extra import load_harness, require_extra
from ablate.evaluation.harness.packs import find_pack
from ablate.evaluation.harness.pins import Tokenizer, prefix_of, require_pin
from ablate.evaluation.harness.tasks import Group, Questions, questions_of_pack
from ablate.records.run_record import HarnessRecord
from ablate.records.store import ItemScore
from prereg.metrics.catalogue import TASK_METRICS
from prereg.registry.canon import canonical_bytes, sha256_bytes, sha256_of
from prereg.registry.paths import Root
from prereg.study.measure import OWN_TASKS, Harness
from prereg.study.tasks import TaskPin

Floats = npt.NDArray[np.float64]
BINS = 15
"""As many bins of equal width as Guo et al. (2017) use."""


def probabilities(scores: Sequence[float]) -> Floats:
    """The softmax of log-likelihoods."""
    values = np.asarray(scores, dtype=np.float64)
    shifted = np.exp(values - values.max())
    return np.asarray(shifted / shifted.sum())


def brier(asked: Sequence[tuple[Floats, int]]) -> float:
    """Mean squared distance between the probabilities and the right answer, summed over choices (Brier 1950)."""
    total = 0.0
    for chances, gold in asked:
        truth = np.zeros_like(chances)
        truth[gold] = 1.0
        total += float(((chances - truth) ** 2).sum())
    return total / len(asked)


def calibration_error(asked: Sequence[tuple[Floats, int]]) -> float:
    """Expected calibration error (Guo et al. 2017): |accuracy - confidence|, over bins of confidence, weighted by n."""
    sure = np.array([chances.max() for chances, _ in asked])
    right = np.array([float(chances.argmax() == gold) for chances, gold in asked])
    # Bins are half open to the left: a confidence of exactly 1 falls into the last.
    places = np.clip(np.ceil(sure * BINS).astype(int) - 1, 0, BINS - 1)
    gaps = np.bincount(places, weights=right - sure, minlength=BINS)
    return float(np.abs(gaps).sum() / len(asked))


Item = tuple[str, int]


@dataclass(frozen=True)
class Asking:
    """One item under one number of shots and one prompt, and the answer."""

    shots: int
    prompt: str
    right: bool
    gold: int
    scores: tuple[float, ...]
    """Log-likelihood of every choice, in nats."""
    lengths: tuple[int, ...]
    """Characters of every choice."""
    arguments: tuple[tuple[str, str], ...]
    """(context, continuation) of every choice."""


@dataclass(frozen=True)
class Answers:
    """What one model answered."""

    metrics: Mapping[str, float]
    items: tuple[ItemScore, ...]
    record: HarnessRecord


def prepare(harness: Harness, pin: TaskPin, root: Root, tokenizer: Tokenizer) -> Questions:
    """Everything that can go wrong before a model is trained: the harness, the tasks, what the tokenizer can write."""
    own = harness.tasks.startswith(OWN_TASKS)
    load_harness(network=own)
    if own:
        from ablate.evaluation.harness.tasks import own_tasks

        return own_tasks(harness).questions(harness, pin, tokenizer)
    pack = find_pack(harness.tasks, root)
    require_pin(pack.name, pack.sha256, pin)
    if pack.foreign:
        from ablate.evaluation.harness.tasks import folder_tasks

        return folder_tasks(pack).questions(harness, pin, tokenizer)
    return questions_of_pack(pack, harness, tokenizer)


def ask(
    questions: Questions,
    model: nn.Module,
    context: int,
    tokenizer: Tokenizer,
    *,
    batch: int = ROWS,
    stop: Callable[[], bool] = lambda: False,
    tell: Callable[[Standing], None] = lambda _: None,
) -> Answers:
    """All questions, one group after another. The model is at rest, in float32, and left as it was.

    No bit of an answer depends on `batch`, the sequences taken at once. `tell` hears how far it has come.
    """
    began = time.perf_counter()
    course = Course([group.shots for group in questions.groups], context, tell, time.perf_counter)
    scorer = Scorer(model, context, tokenizer, batch=batch, stop=stop, course=course)
    asked: dict[Item, list[Asking]] = defaultdict(list)
    for group in questions.groups:
        course.next_group()
        for item, asking in _answers(group, questions, scorer):
            asked[item].append(asking)
    expected = {(task, number) for task, numbers in questions.numbers.items() for number in numbers}
    assert set(asked) == expected, (len(asked), len(expected))
    assert {len(askings) for askings in asked.values()} == {len(questions.groups)}, len(questions.groups)
    metrics = _metrics(questions, asked)
    metrics |= {"harness/truncated": float(scorer.truncated), "harness/unencodable": float(questions.unencodable)}
    unknown = [name for name in metrics if name not in TASK_METRICS]
    assert not unknown, unknown
    record = HarnessRecord(
        version=require_extra(),
        tasks=questions.name,
        tasks_sha256=questions.sha256,
        prompts_sha256=sha256_of([questions.prompts_sha256, prefix_of(tokenizer)]),
        arguments_sha256=sha256_bytes(b"\n".join(_identity(item, asked[item]).encode() for item in sorted(asked))),
        precision="float32",
        n_tasks=len(questions.numbers),
        n_items=len(asked),
        n_requests=sum(len(one.scores) for askings in asked.values() for one in askings),
        unencodable=questions.unencodable,
        truncated=scorer.truncated,
        wall_s=time.perf_counter() - began,
    )
    return Answers(metrics, tuple(_item_scores(asked)), record)


def _answers(group: Group, questions: Questions, scorer: Scorer) -> list[tuple[Item, Asking]]:
    from lm_eval.evaluator import evaluate

    for task in group.tasks.values():
        task.set_config("num_fewshot", group.shots)
        task.set_fewshot_seed(questions.seed)
    places = None if questions.places is None else {task: list(at) for task, at in questions.places.items()}
    found = evaluate(
        as_lm(scorer),
        {"tasks": dict(group.tasks), "groups": {}, "group_map": {}},
        samples=places,
        bootstrap_iters=0,
        log_samples=True,
    )
    assert found is not None and found["samples"] is not None
    answers = []
    for task, numbers in questions.numbers.items():
        samples = sorted(found["samples"][task], key=lambda sample: int(sample["doc_id"]))
        assert len(samples) == len(numbers), (task, len(samples), len(numbers))
        answers += [((task, number), _asking(group, sample)) for number, sample in zip(numbers, samples, strict=True)]
    return answers


def _asking(group: Group, sample: Mapping[str, Any]) -> Asking:
    scores = tuple(float(score) for score, _ in sample["filtered_resps"])
    arguments = tuple((str(context), str(choice)) for context, choice in sample["arguments"])
    gold, right = int(sample["target"]), bool(sample["acc"])
    assert len(scores) == len(arguments) and 0 <= gold < len(scores), sample["doc_id"]
    assert right == (int(np.argmax(scores)) == gold), sample["doc_id"]
    lengths = tuple(len(choice) for _, choice in arguments)
    return Asking(group.shots, group.prompt, right, gold, scores, lengths, arguments)


def _metrics(questions: Questions, asked: Mapping[Item, list[Asking]]) -> dict[str, float]:
    every = [one for item in sorted(asked) for one in asked[item]]
    found = {
        "harness/accuracy": _mean_over_items(asked, _every_asking),
        "harness/macro_accuracy": _macro(asked, _every_asking),
    }
    for shots in dict.fromkeys(group.shots for group in questions.groups):
        found[f"harness/accuracy_shots_{shots}"] = _mean_over_items(asked, _with_shots(shots))
        found[f"harness/macro_accuracy_shots_{shots}"] = _macro(asked, _with_shots(shots))
    by_prompt = [_macro(asked, _under_prompt(name)) for name in questions.prompts]
    if len(by_prompt) > 1:
        found |= {f"harness/macro_accuracy_prompt_{number}": value for number, value in enumerate(by_prompt)}
    found["harness/macro_accuracy_median_prompt"] = statistics.median(by_prompt)
    found["harness/macro_accuracy_spread_prompt"] = max(by_prompt) - min(by_prompt)
    for name, divided in (("", False), ("_normalised", True)):
        answers = [
            (
                probabilities([s / n for s, n in zip(one.scores, one.lengths, strict=True)] if divided else one.scores),
                one.gold,
            )
            for one in every
        ]
        found[f"harness/ece{name}"] = calibration_error(answers)
        found[f"harness/brier{name}"] = brier(answers)
    return found


def _every_asking(_: Asking) -> bool:
    """All of them count."""
    return True


def _with_shots(shots: int) -> Callable[[Asking], bool]:
    """Those with so many examples count."""
    return lambda one: one.shots == shots


def _under_prompt(prompt: str) -> Callable[[Asking], bool]:
    """Those under one prompt count."""
    return lambda one: one.prompt == prompt


def _score(askings: list[Asking], counts: Callable[[Asking], bool]) -> float:
    right = [one.right for one in askings if counts(one)]
    return sum(right) / len(right)


def _mean_over_items(asked: Mapping[Item, list[Asking]], counts: Callable[[Asking], bool]) -> float:
    return statistics.fmean(_score(askings, counts) for askings in asked.values())


def _macro(asked: Mapping[Item, list[Asking]], counts: Callable[[Asking], bool]) -> float:
    tasks: dict[str, list[float]] = defaultdict(list)
    for (task, _), askings in asked.items():
        tasks[task].append(_score(askings, counts))
    return statistics.fmean(statistics.fmean(scores) for scores in tasks.values())


def _item_scores(asked: Mapping[Item, list[Asking]]) -> list[ItemScore]:
    """One row for the score, one for that of each number of shots, one for every choice's log-likelihood."""
    rows = []
    for (task, number), askings in sorted(asked.items()):
        sha256 = sha256_bytes(_identity((task, number), askings).encode())
        values = {"harness/accuracy": _score(askings, _every_asking)}
        for shots in dict.fromkeys(one.shots for one in askings):
            values[f"harness/accuracy_shots_{shots}"] = _score(askings, _with_shots(shots))
        for one in askings:
            for place, score in enumerate(one.scores):
                role = "right" if place == one.gold else f"wrong_{place - (place > one.gold)}"
                values[f"harness/loglikelihood/shots_{one.shots}/{one.prompt}/{role}"] = score
        rows += [ItemScore(task, str(number), sha256, metric, value) for metric, value in values.items()]
    return rows


def _identity(item: Item, askings: list[Asking]) -> str:
    """Everything that the model was given for an item, and which answer is right."""
    task, number = item
    asked = [[one.shots, one.prompt, one.gold, [list(pair) for pair in one.arguments]] for one in askings]
    return canonical_bytes({"task": task, "item": number, "asked": asked}).decode()
