"""Tasks of a pack as objects of the harness, ready to be evaluated on one model after another.

Built in code and not from YAML: columns instead of templates take a tenth of the time, and no file of ours has to lie
on disk for the harness to read. The examples are the same for all items of a task and for all runs.

The language-model evaluation harness is an optional extra, shut off from the network. Its import takes seconds and
brings much with it, so it is loaded only when tasks are evaluated. A study that asks for it where it is missing is
refused before anything is registered.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ablate.evaluation.harness.packs import BETWEEN, PLAIN, Pack, Prompt, TaskItem, filled_prompt, plain_prompts
from ablate.evaluation.harness.pins import Tokenizer, can_write, draw_items, require_pin, unwritable
from prereg.errors import CorpusError, StudyError, UnsupportedError, Where
from prereg.registry import disk
from prereg.registry.canon import sha256_bytes, sha256_of
from prereg.registry.registration import TaskPin
from prereg.study.measure import OWN_TASKS, Harness

WANTED = "0.4.13"
"""The version whose numbers, task objects and records this package was checked against."""
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def installed() -> str | None:
    """The version of the harness that is installed, or none."""
    try:
        return version("lm_eval")
    except PackageNotFoundError:
        return None


def require_extra() -> str:
    """The installed version, which must be the one we know; checked before anything is registered."""
    installed_version = installed()
    if installed_version != WANTED:
        missing = "lm_eval, the language-model evaluation harness, is not installed"
        raise UnsupportedError(
            missing if installed_version is None else f"lm_eval {installed_version} is installed",
            required=f"lm_eval {WANTED}: another version may ask and score in another way",
            fix=f"pip install 'ablate-prereg[harness]'   (or: pip install lm_eval=={WANTED})",
            where=Where(field=("measure", "harness")),
        )
    return installed_version


@cache
def load_harness(*, network: bool = False) -> None:
    """Import the harness, quiet, and without a network unless its own tasks need one.

    What its libraries cache goes into a folder that ends with the process, so that no earlier data is mistaken for what
    is on disk now.
    """
    require_extra()
    # Variables before the import: the libraries read them once.
    os.environ.setdefault("TQDM_DISABLE", "1")
    if not network:
        os.environ.update(_OFFLINE)
        # Read at its import; where a user's notebook has imported it, its cache remains as it is.
        if "datasets" not in sys.modules:
            os.environ["HF_HOME"] = _scratch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import datasets
        import lm_eval.api.task
        import lm_eval.evaluator
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    # Its bars would fill the worker's log; the variable above is read only by the first import of tqdm.
    lm_eval.api.task.tqdm = _bare_progress


def _bare_progress(items: object, **_: object) -> object:
    return items


@cache
def _scratch() -> str:
    return str(disk.make("harness"))


@dataclass(frozen=True)
class Group:
    """Every task under one number of shots and one prompt: what the harness evaluates in one go."""

    shots: int
    prompt: str
    tasks: Mapping[str, Any]
    """Task -> the harness' object for it, under this prompt."""


@dataclass(frozen=True)
class Questions:
    """All requests to a run, the same for every run that writes with the same tokenizer."""

    name: str
    sha256: str
    """Of the tasks, as in the registration's pin."""
    prompts_sha256: str
    prompts: tuple[str, ...]
    groups: tuple[Group, ...]
    numbers: Mapping[str, tuple[int, ...]]
    """Task -> the numbers of its scored items, in the order of evaluation."""
    places: Mapping[str, tuple[int, ...]] | None
    """Task -> where these lie among the documents of the harness' object; none where they are all it has."""
    unencodable: int
    seed: int


def questions_of_pack(pack: Pack, harness: Harness, tokenizer: Tokenizer) -> Questions:
    """The questions of a pack, without the items that the tokenizer cannot write. Needs `load_harness`."""
    # 1. Which items, and which examples before them.
    drawn = draw_items(pack, harness, tokenizer)
    shown = {
        task: [[_shown(prompt, item) for item in items] for prompt in pack.prompts.values()]
        for task, items in drawn.examples.items()
    }
    # 2. Task objects are built once a prompt and shared by its groups: only the number of shots differs.
    groups = tuple(
        Group(shots, name, tasks)
        for name, prompt in pack.prompts.items()
        for tasks in [{task: _task(task, prompt, items, drawn.examples[task]) for task, items in drawn.scored.items()}]
        for shots in harness.shots
    )
    return Questions(
        name=pack.name,
        sha256=pack.sha256,
        # Everything that decides the text of a request, apart from the items, which `sha256` covers.
        prompts_sha256=sha256_of(
            {
                "prompts": plain_prompts(pack.prompts),
                "shots": list(harness.shots),
                "examples": shown,
                "between": BETWEEN,
            }
        ),
        prompts=tuple(pack.prompts),
        groups=groups,
        numbers={task: tuple(item.number for item in items) for task, items in drawn.scored.items()},
        places=None,
        unencodable=drawn.unencodable,
        seed=harness.examples_seed,
    )


def _task(name: str, prompt: Prompt, items: tuple[TaskItem, ...], examples: tuple[TaskItem, ...]) -> Any:
    import datasets
    from lm_eval.api.task import ConfigurableTask

    # A data set in memory, which the harness neither caches nor looks for on its hub.
    rows = datasets.Dataset.from_list([_row(prompt, item) for item in items])
    return ConfigurableTask(
        config={
            "task": name,
            # Names of columns instead of Jinja templates: a tenth of the time, and braces in a sentence
            # mean nothing.
            "custom_dataset": lambda **_: {"validation": rows},
            "output_type": "multiple_choice",
            "validation_split": "validation",
            "doc_to_text": "before",
            "doc_to_choice": "choices",
            "doc_to_target": "gold",
            "target_delimiter": "",
            "fewshot_delimiter": BETWEEN,
            # first_n: the same examples in the same order for every item. The default sampler draws others
            # for each.
            "fewshot_config": {"sampler": "first_n", "samples": [_row(prompt, item) for item in examples]},
            "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        }
    )


def _row(prompt: Prompt, item: TaskItem) -> dict[str, object]:
    answers = prompt.answers or item.choices
    return {"before": filled_prompt(prompt, item), "choices": list(answers), "gold": item.gold}


def _shown(prompt: Prompt, item: TaskItem) -> str:
    """An item with its right answer, as it stands among the examples."""
    return filled_prompt(prompt, item) + (prompt.answers or item.choices)[item.gold]


_FIELD = Where(field=("measure", "harness", "tasks"))


@dataclass(frozen=True)
class Foreign:
    """Tasks that the harness has loaded."""

    name: str
    sha256: str
    n_files: int
    tasks: Mapping[str, Any]

    def pin(self, harness: Harness, tokenizer: Tokenizer | None) -> TaskPin:
        """What the registration keeps."""
        self._require_fit(harness)
        places = self._places(harness, tokenizer)
        return TaskPin(
            name=self.name,
            sha256=self.sha256,
            n_files=self.n_files,
            n_tasks=len(self.tasks),
            n_items=len(self.tasks) * harness.items_per_task,
            n_void=0,
            n_unencodable=sum(harness.items_per_task - len(left) for left in places.values()),
            prompts=tuple(PLAIN),
        )

    def questions(self, harness: Harness, pin: TaskPin, tokenizer: Tokenizer) -> Questions:
        """The questions, without the items that the tokenizer cannot write under some number of shots."""
        require_pin(self.name, self.sha256, pin)
        self._require_fit(harness)
        places = self._places(harness, tokenizer)
        numbers = {task: tuple(sorted(left)) for task, left in places.items()}
        return Questions(
            name=self.name,
            sha256=self.sha256,
            prompts_sha256=sha256_of({"shots": list(harness.shots), "examples_seed": harness.examples_seed}),
            prompts=tuple(PLAIN),
            groups=tuple(Group(shots, "plain", self.tasks) for shots in harness.shots),
            numbers=numbers,
            places=numbers,
            unencodable=sum(harness.items_per_task - len(left) for left in numbers.values()),
            seed=harness.examples_seed,
        )

    def _places(self, harness: Harness, tokenizer: Tokenizer | None) -> dict[str, set[int]]:
        """Where the scored items lie that the tokenizer can write, under every number of shots."""
        places = {}
        for task, definition in self.tasks.items():
            places[task] = set(range(harness.items_per_task))
            # Requests are longer with more examples, and an example may hold what the tokenizer cannot
            # write.
            for shots in harness.shots if tokenizer is not None else ():
                places[task] -= _unwritable(definition, shots, harness, tokenizer)
            if tokenizer is not None and not places[task]:
                raise unwritable(task, 0, harness.items_per_task, tokenizer)
        return places

    def _require_fit(self, harness: Harness) -> None:
        for name, task in self.tasks.items():
            _require_choices(name, task)
            # As hashes: documents are dicts of any kind, and have to be compared with those of the
            # examples.
            documents = [_plain(document) for document in task.eval_docs]
            if len(documents) < harness.items_per_task:
                raise CorpusError(
                    f"task '{name}' has {len(documents)} items, and items_per_task is {harness.items_per_task}",
                    required="as many items in every task, so that all tasks are known equally well",
                    fix=f"items_per_task: {max(1, len(documents))}",
                    where=Where(field=("measure", "harness", "items_per_task")),
                )
            if max(harness.shots):
                scored = set(documents[: harness.items_per_task])
                # Fewer than all of them means that some example is itself scored: its answer would be
                # in the prompt.
                others = [document for document in map(_plain, task.fewshot_docs() or ()) if document not in scored]
                if len(others) < max(harness.shots) or len(others) < len(list(task.fewshot_docs())):
                    raise CorpusError(
                        f"task '{name}' draws its examples from items that are scored, or has too few others",
                        required="fewshot_split: a split that shares no document with the scored ones",
                        fix="shots: [0]",
                        where=Where(field=("measure", "harness", "shots")),
                    )


def folder_tasks(pack: Pack) -> Foreign:
    """Every task that a folder of the user's defines."""
    load_harness()
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(pack.folder), include_defaults=False)
    return Foreign(pack.name, pack.sha256, len(pack.files), _loaded(manager, manager.all_subtasks, str(pack.folder)))


def own_tasks(harness: Harness) -> Foreign:
    """Tasks that the harness defines, with the documents that it fetches now or has kept."""
    load_harness(network=True)
    from lm_eval.tasks import TaskManager

    names = harness.tasks.removeprefix(OWN_TASKS).split(",")
    tasks = _loaded(TaskManager(), names, "the harness")
    documents = {
        name: [
            _plain(document)
            for document in [*task.eval_docs, *(task.fewshot_docs() or () if max(harness.shots) else ())]
        ]
        for name, task in tasks.items()
    }
    return Foreign(harness.tasks, sha256_of({"documents": documents}), 0, tasks)


def _loaded(manager: Any, names: list[str], source: str) -> dict[str, Any]:
    try:
        tasks: dict[str, Any] = dict(sorted(manager.load(list(names))["tasks"].items())) if names else {}
    except StudyError:
        raise
    # A task's YAML may name code of its own, so no narrower class covers what it raises.
    except Exception as error:  # whatever a task's files or the network come up with
        first_line = (str(error).splitlines() or [""])[0]
        raise CorpusError(
            f"the tasks of {source} cannot be loaded: {type(error).__name__}: {first_line}",
            required="tasks of lm_eval whose documents are here, or a network to fetch them",
            fix="tasks: blimp, which needs no network",
            where=_FIELD,
        ) from error
    if not tasks:
        raise CorpusError(f"{source} defines no task", required="a *.yaml with task: NAME", where=_FIELD)
    return tasks


def _require_choices(name: str, task: Any) -> None:
    metrics = set(getattr(task, "_metric_fn_list", {}))
    target = task.doc_to_target(task.eval_docs[0]) if task.OUTPUT_TYPE == "multiple_choice" else None
    if not isinstance(target, int) or "acc" not in metrics or "acc_mutual_info" in metrics:
        raise UnsupportedError(
            f"task '{name}' is '{task.OUTPUT_TYPE}', with metrics {', '.join(sorted(metrics)) or 'none'}",
            required="output_type: multiple_choice, one right answer by its number, and the metric acc: what is "
            "answered by likelihood is never sampled",
            fix="tasks: blimp",
            where=_FIELD,
        )


def _unwritable(task: Any, shots: int, harness: Harness, tokenizer: Tokenizer | None) -> set[int]:
    """Documents, of those that are scored, with some request that the tokenizer cannot write."""
    task.set_config("num_fewshot", shots)
    task.set_fewshot_seed(harness.examples_seed)
    # Asked of the harness itself: only it knows what text its templates make of a document.
    task.build_all_requests(limit=harness.items_per_task)
    assert tokenizer is not None
    return {
        int(request.doc_id)
        for request in task.instances
        if not can_write(tokenizer, "".join(map(str, request.args[:2])))
    }


def _plain(document: Any) -> str:
    """A document as one text, to be compared and hashed."""
    return sha256_bytes(json.dumps(document, sort_keys=True, default=str).encode())
