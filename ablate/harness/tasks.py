"""The tasks of a pack as objects of the harness, ready to be asked of one model after another.

Built in code and not from YAML: columns instead of templates take a tenth of the time, and no file of ours has to lie
on disk for the harness to read. The examples are the same for all items of a task and for all runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.harness.documents import Item
from ablate.harness.packs import Pack
from ablate.harness.pins import draw
from ablate.harness.prompts import BETWEEN, filled
from ablate.harness.writing import Tokenizer
from prereg.registry.canon import sha256_of
from prereg.study.measure import Harness


@dataclass(frozen=True)
class Group:
    """Every task under one number of shots and one prompt: what the harness evaluates in one go."""

    shots: int
    prompt: str
    tasks: Mapping[str, Any]
    """Task -> the harness' object for it, under this prompt."""


@dataclass(frozen=True)
class Questions:
    """All that a run is asked, the same for every run that writes with the same tokenizer."""

    name: str
    sha256: str
    """Of the tasks, as in the registration's pin."""
    prompts_sha256: str
    prompts: tuple[str, ...]
    groups: tuple[Group, ...]
    numbers: Mapping[str, tuple[int, ...]]
    """Task -> the numbers of its scored items, in the order in which they are asked."""
    places: Mapping[str, tuple[int, ...]] | None
    """Task -> where these lie among the documents of the harness' object; none where they are all it has."""
    unencodable: int
    seed: int


def questions_of_pack(pack: Pack, harness: Harness, tokenizer: Tokenizer) -> Questions:
    """The questions of a pack, without the items that the tokenizer cannot write. Needs `load_harness`."""
    texts, drawn = dict(pack.prompts), draw(pack, harness, tokenizer)
    shown = {
        task: [[filled(text, item) + item.choices[item.gold] for item in items] for text in texts.values()]
        for task, items in drawn.examples.items()
    }
    groups = tuple(
        Group(shots, prompt, tasks)
        for prompt, text in texts.items()
        for tasks in [{task: _task(task, text, items, drawn.examples[task]) for task, items in drawn.asked.items()}]
        for shots in harness.shots
    )
    return Questions(
        name=pack.name,
        sha256=pack.sha256,
        prompts_sha256=sha256_of(
            {"prompts": texts, "shots": list(harness.shots), "examples": shown, "between": BETWEEN}
        ),
        prompts=tuple(texts),
        groups=groups,
        numbers={task: tuple(item.number for item in items) for task, items in drawn.asked.items()},
        places=None,
        unencodable=drawn.unencodable,
        seed=harness.examples_seed,
    )


def _task(name: str, prompt: str, items: tuple[Item, ...], examples: tuple[Item, ...]) -> Any:
    import datasets
    from lm_eval.api.task import ConfigurableTask

    rows = datasets.Dataset.from_list([_row(prompt, item) for item in items])
    return ConfigurableTask(
        config={
            "task": name,
            "custom_dataset": lambda **_: {"validation": rows},
            "output_type": "multiple_choice",
            "validation_split": "validation",
            "doc_to_text": "before",
            "doc_to_choice": "choices",
            "doc_to_target": "gold",
            "target_delimiter": "",
            "fewshot_delimiter": BETWEEN,
            "fewshot_config": {"sampler": "first_n", "samples": [_row(prompt, item) for item in examples]},
            "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        }
    )


def _row(prompt: str, item: Item) -> dict[str, object]:
    return {"before": filled(prompt, item), "choices": list(item.choices), "gold": item.gold}
