"""Tasks scored on a model: scores of items, metrics, and a record of how each was answered.

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
from ablate.evaluation.harness.packs import find_pack
from ablate.evaluation.harness.pins import Tokenizer, prefix_of, require_pin
from ablate.evaluation.harness.tasks import Group, Questions, load_harness, questions_of_pack, require_extra
from ablate.records.run_record import HarnessRecord
from ablate.records.store import ItemScore
from prereg.metrics.catalogue import TASK_METRICS
from prereg.registry.canon import canonical_bytes, sha256_bytes, sha256_of
from prereg.registry.paths import Root
from prereg.registry.registration import TaskPin
from prereg.study.measure import OWN_TASKS, Harness

Floats = npt.NDArray[np.float64]
BINS = 15
"""As many bins of equal width as Guo et al. (2017) use."""


def probabilities(scores: Sequence[float]) -> Floats:
    """The softmax of log-likelihoods.

    >>> probabilities([-1000.0, -1000.0]).tolist()  # far below the smallest float64 when exponentiated
    [0.5, 0.5]
    """
    values = np.asarray(scores, dtype=np.float64)
    shifted = np.exp(values - values.max())
    return np.asarray(shifted / shifted.sum())


def brier(answered: Sequence[tuple[Floats, int]]) -> float:
    """Mean squared distance between the probabilities and the right answer, summed over choices (Brier 1950).

    >>> round(brier([(np.array([0.8, 0.2]), 0)]), 9)  # .2^2 + .2^2
    0.08
    """
    total = 0.0
    for chances, gold in answered:
        truth = np.zeros_like(chances)
        truth[gold] = 1.0
        total += float(((chances - truth) ** 2).sum())
    return total / len(answered)


def calibration_error(answered: Sequence[tuple[Floats, int]]) -> float:
    """Expected calibration error (Guo et al. 2017): |accuracy - confidence|, over bins of confidence, weighted by n.

    >>> sure_and_right, sure_and_wrong = (np.array([0.9, 0.1]), 0), (np.array([0.9, 0.1]), 1)
    >>> round(calibration_error([sure_and_right, sure_and_wrong]), 3)  # |.5 - .9|
    0.4
    """
    sure = np.array([chances.max() for chances, _ in answered])
    right = np.array([float(chances.argmax() == gold) for chances, gold in answered])
    # Bins are half open to the left: a confidence of exactly 1 falls into the last.
    # sure: largest probability of each answer; gaps: sum over a bin of (right - sure) = n_bin (accuracy -
    # confidence).
    places = np.clip(np.ceil(sure * BINS).astype(int) - 1, 0, BINS - 1)
    gaps = np.bincount(places, weights=right - sure, minlength=BINS)
    return float(np.abs(gaps).sum() / len(answered))


ItemKey = tuple[str, int]


@dataclass(frozen=True)
class Response:
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


def prepare_questions(harness: Harness, pin: TaskPin, root: Root, tokenizer: Tokenizer) -> Questions:
    """Everything that can go wrong before a model is trained: the harness, the tasks, what the tokenizer can write."""
    # The harness' own tasks are the only ones that are fetched, so the only ones that need a network.
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


def evaluate_tasks(
    questions: Questions,
    model: nn.Module,
    context: int,
    tokenizer: Tokenizer,
    *,
    batch: int = ROWS,
    stop: Callable[[], bool] = lambda: False,
    report: Callable[[Standing], None] = lambda _: None,
) -> Answers:
    """All questions, one group after another. The model is at rest, in float32, and left as it was.

    No bit of an answer depends on `batch`, the sequences taken at once. `report` hears how far it has come.
    """
    began = time.perf_counter()
    course = Course([group.shots for group in questions.groups], context, report, time.perf_counter)
    scorer = Scorer(model, context, tokenizer, batch=batch, stop=stop, course=course)
    answered: dict[ItemKey, list[Response]] = defaultdict(list)
    # 1. Ask: each group is one number of shots under one prompt.
    for group in questions.groups:
        course.next_group()
        for item, response in _answers(group, questions, scorer):
            answered[item].append(response)

    # The harness leaves tasks out without a word where their documents are gone: every promised item must
    # have its answers.
    # 2. Every promised item has its answers.
    expected = {(task, number) for task, numbers in questions.numbers.items() for number in numbers}
    assert set(answered) == expected, (len(answered), len(expected))
    assert {len(responses) for responses in answered.values()} == {len(questions.groups)}, len(questions.groups)
    # 3. Metrics, all of them declared.
    metrics = _metrics(questions, answered)
    metrics |= {"harness/truncated": float(scorer.truncated), "harness/unencodable": float(questions.unencodable)}
    unknown = [name for name in metrics if name not in TASK_METRICS]
    assert not unknown, unknown
    # 4. How the questions were put: a rerun or another study compares by these hashes.
    record = HarnessRecord(
        version=require_extra(),
        tasks=questions.name,
        tasks_sha256=questions.sha256,
        prompts_sha256=sha256_of([questions.prompts_sha256, prefix_of(tokenizer)]),
        # Sorted by item: the hash says what was put to the model, and not in which order.
        arguments_sha256=sha256_bytes(
            b"\n".join(_identity(item, answered[item]).encode() for item in sorted(answered))
        ),
        precision="float32",
        n_tasks=len(questions.numbers),
        n_items=len(answered),
        n_requests=sum(len(response.scores) for responses in answered.values() for response in responses),
        unencodable=questions.unencodable,
        truncated=scorer.truncated,
        wall_s=time.perf_counter() - began,
    )
    return Answers(metrics, tuple(_item_scores(answered)), record)


def _answers(group: Group, questions: Questions, scorer: Scorer) -> list[tuple[ItemKey, Response]]:
    # An optional extra whose import takes seconds: only where tasks are evaluated.
    from lm_eval.evaluator import evaluate

    for task in group.tasks.values():
        # The groups share the task objects, so each sets its number of shots and its seed again.
        task.set_config("num_fewshot", group.shots)
        task.set_fewshot_seed(questions.seed)
    places = None if questions.places is None else {task: list(at) for task, at in questions.places.items()}
    results = evaluate(
        as_lm(scorer),
        {"tasks": dict(group.tasks), "groups": {}, "group_map": {}},
        samples=places,
        # No standard errors by the harness: items are judged by the study's own tests.
        bootstrap_iters=0,
        log_samples=True,
    )
    assert results is not None and results["samples"] is not None
    answers = []
    for task, numbers in questions.numbers.items():
        # The harness gives samples in its own order; doc_id counts documents in the order in which they were
        # given.
        samples = sorted(results["samples"][task], key=lambda sample: int(sample["doc_id"]))
        assert len(samples) == len(numbers), (task, len(samples), len(numbers))
        answers += [((task, number), _response(group, sample)) for number, sample in zip(numbers, samples, strict=True)]
    return answers


def _response(group: Group, sample: Mapping[str, Any]) -> Response:
    scores = tuple(float(score) for score, _ in sample["filtered_resps"])
    arguments = tuple((str(context), str(choice)) for context, choice in sample["arguments"])
    gold, right = int(sample["target"]), bool(sample["acc"])
    assert len(scores) == len(arguments) and 0 <= gold < len(scores), sample["doc_id"]
    # The harness' `acc` is the first largest log-likelihood, like argmax: another rule in a new version would show
    # here.
    assert right == (int(np.argmax(scores)) == gold), sample["doc_id"]
    lengths = tuple(len(choice) for _, choice in arguments)
    return Response(group.shots, group.prompt, right, gold, scores, lengths, arguments)


def _metrics(questions: Questions, answered: Mapping[ItemKey, list[Response]]) -> dict[str, float]:
    every = [response for item in sorted(answered) for response in answered[item]]
    metrics = {
        "harness/accuracy": _mean_over_items(answered, _every_response),
        "harness/macro_accuracy": _macro(answered, _every_response),
    }
    # dict.fromkeys: each number once, in registered order, whatever the prompts.
    for shots in dict.fromkeys(group.shots for group in questions.groups):
        metrics[f"harness/accuracy_shots_{shots}"] = _mean_over_items(answered, _with_shots(shots))
        metrics[f"harness/macro_accuracy_shots_{shots}"] = _macro(answered, _with_shots(shots))
    by_prompt = [_macro(answered, _under_prompt(name)) for name in questions.prompts]
    if len(by_prompt) > 1:
        metrics |= {f"harness/macro_accuracy_prompt_{number}": value for number, value in enumerate(by_prompt)}
    # Median and spread over prompts: one lucky wording must not carry a claim.
    metrics["harness/macro_accuracy_median_prompt"] = statistics.median(by_prompt)
    metrics["harness/macro_accuracy_spread_prompt"] = max(by_prompt) - min(by_prompt)
    # A softmax over the choices' log-probabilities; normalised: each divided by its characters first.
    for name, divided in (("", False), ("_normalised", True)):
        answers = [
            (
                probabilities(
                    [s / n for s, n in zip(response.scores, response.lengths, strict=True)]
                    if divided
                    else response.scores
                ),
                response.gold,
            )
            for response in every
        ]
        metrics[f"harness/ece{name}"] = calibration_error(answers)
        metrics[f"harness/brier{name}"] = brier(answers)
    return metrics


def _every_response(_: Response) -> bool:
    """All of them count."""
    return True


def _with_shots(shots: int) -> Callable[[Response], bool]:
    """Those with so many examples count."""
    return lambda response: response.shots == shots


def _under_prompt(prompt: str) -> Callable[[Response], bool]:
    """Those under one prompt count."""
    return lambda response: response.prompt == prompt


def _score(responses: list[Response], counts: Callable[[Response], bool]) -> float:
    right = [response.right for response in responses if counts(response)]
    return sum(right) / len(right)


def _mean_over_items(answered: Mapping[ItemKey, list[Response]], counts: Callable[[Response], bool]) -> float:
    return statistics.fmean(_score(responses, counts) for responses in answered.values())


def _macro(answered: Mapping[ItemKey, list[Response]], counts: Callable[[Response], bool]) -> float:
    tasks: dict[str, list[float]] = defaultdict(list)
    for (task, _), responses in answered.items():
        tasks[task].append(_score(responses, counts))
    return statistics.fmean(statistics.fmean(scores) for scores in tasks.values())


def _item_scores(answered: Mapping[ItemKey, list[Response]]) -> list[ItemScore]:
    """One row for the score, one for that of each number of shots, one for every choice's log-likelihood."""
    rows = []
    for (task, number), responses in sorted(answered.items()):
        sha256 = sha256_bytes(_identity((task, number), responses).encode())
        values = {"harness/accuracy": _score(responses, _every_response)}
        for shots in dict.fromkeys(response.shots for response in responses):
            values[f"harness/accuracy_shots_{shots}"] = _score(responses, _with_shots(shots))
        for response in responses:
            for place, score in enumerate(response.scores):
                # Wrong choices are numbered without the right one, so that wrong_0 exists for every
                # item and means the same.
                role = "right" if place == response.gold else f"wrong_{place - (place > response.gold)}"
                values[f"harness/loglikelihood/shots_{response.shots}/{response.prompt}/{role}"] = score
        rows += [ItemScore(task, str(number), sha256, metric, value) for metric, value in values.items()]
    return rows


def _identity(item: ItemKey, responses: list[Response]) -> str:
    """Everything that the model was given for an item, and which answer is right."""
    # The key "asked" is part of hashes that were recorded: renamed, old records would compare as other questions.
    task, number = item
    requests = [
        [response.shots, response.prompt, response.gold, [list(pair) for pair in response.arguments]]
        for response in responses
    ]
    return canonical_bytes({"task": task, "item": number, "asked": requests}).decode()
