"""Pins of a study's tasks: what they mean now, found, read and counted before anything is registered or trained."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ablate.evaluation.harness.packs import BETWEEN, Pack, Prompt, TaskItem, filled_prompt, find_pack
from prereg.errors import CorpusError, Where, nearest
from prereg.registry.canon import canonical_bytes
from prereg.registry.paths import Root
from prereg.registry.registration import TaskPin
from prereg.study.measure import OWN_TASKS, Harness

PREFIXES = ("\n", " ")
"""What replaces an empty context: the first of these that the tokenizer can write."""


class Tokenizer(Protocol):
    """What the adapter asks of a tokenizer."""

    @property
    def size(self) -> int:
        """Number of entries."""

    def encode(self, text: str) -> np.ndarray:
        """Token ids; `CorpusError` for what it cannot write."""


def can_write(tokenizer: Tokenizer, text: str) -> bool:
    """Whether the tokenizer has tokens for every character of a text."""
    try:
        tokenizer.encode(text)
    except CorpusError:
        return False
    return True


def prefix_of(tokenizer: Tokenizer) -> str:
    """The text that replaces an empty context."""
    for text in PREFIXES:
        if can_write(tokenizer, text):
            return text
    raise CorpusError(
        "the tokenizer can write neither a line break nor a blank",
        required="one of them, to stand before a text that has no context",
        fix="a corpus that holds line breaks",
    )


def task_pin(
    harness: Harness, root: Root, tokenizer: Tokenizer | None = None, *, claimed: Iterable[str] = ()
) -> TaskPin:
    """The pin of a study's tasks. Enough items, enough others for the examples, and every task that a claim is about,
    or an error.

    Without a tokenizer every text can be written, as byte-level ones can.
    """
    # Three sources of tasks: the harness' own, a folder in its format, a pack of items. Imported late: the first
    # two need the extra.
    if harness.tasks.startswith(OWN_TASKS):
        from ablate.evaluation.harness.tasks import own_tasks

        foreign = own_tasks(harness)
        _require_claimed(claimed, foreign.tasks)
        return foreign.pin(harness, tokenizer)
    pack = find_pack(harness.tasks, root)
    if pack.foreign:
        from ablate.evaluation.harness.tasks import folder_tasks

        foreign = folder_tasks(pack)
        _require_claimed(claimed, foreign.tasks)
        return foreign.pin(harness, tokenizer)
    _require_claimed(claimed, pack.items)
    drawn = draw_items(pack, harness, tokenizer)
    return TaskPin(
        name=pack.name,
        sha256=pack.sha256,
        n_files=len(pack.files),
        n_tasks=len(pack.items),
        # Promised items; those that the tokenizer cannot write are counted apart and not replaced by later
        # ones.
        n_items=len(pack.items) * harness.items_per_task,
        n_void=sum(item.void for items in pack.items.values() for item in items),
        n_unencodable=drawn.unencodable,
        prompts=tuple(pack.prompts),
    )


def _require_claimed(claimed: Iterable[str], tasks: Iterable[str]) -> None:
    """Raise `CorpusError` where a claim is about a task that is not among these."""
    names = list(tasks)
    missing = next((task for task in claimed if task not in names), None)
    if missing is not None:
        raise CorpusError(
            f"a claim is about the task '{missing}', which is none of the {len(names)} tasks",
            required="tasks of measure.harness",
            fix=nearest(missing, names) or f"one of {', '.join(names[:5])}",
            where=Where(field=("measure", "harness", "tasks")),
        )


@dataclass(frozen=True)
class DrawnItems:
    """Which items of a pack are scored, and which stand before them as examples."""

    scored: Mapping[str, tuple[TaskItem, ...]]
    examples: Mapping[str, tuple[TaskItem, ...]]
    unencodable: int
    """Items that would have been scored, and that the tokenizer cannot write under some prompt."""


def draw_items(pack: Pack, harness: Harness, tokenizer: Tokenizer | None) -> DrawnItems:
    """The scored items and the examples of every task; an item that cannot be written is neither."""
    scored, examples, unencodable = {}, {}, 0
    for task, items in pack.items.items():
        # First the scored items, then the tokenizer: which items are asked is the same under every tokenizer.
        promised = scored_items(harness, task, items)
        scored[task] = tuple(item for item in promised if _writable(tokenizer, pack.prompts, item))
        unencodable += len(promised) - len(scored[task])
        # A generator: the pool is large, and only as many items are encoded as examples are needed.
        others = (item for item in pool(harness, task, items) if _writable(tokenizer, pack.prompts, item))
        examples[task] = tuple(item for item, _ in zip(others, range(max(harness.shots)), strict=False))
        if not scored[task] or len(examples[task]) < max(harness.shots):
            # Without a tokenizer every item can be written, and `pool` has raised already where there were
            # too few.
            assert tokenizer is not None, task
            raise unwritable(task, len(scored[task]), len(promised), tokenizer)
    return DrawnItems(scored, examples, unencodable)


def unwritable(task: str, n_left: int, n_scored: int, tokenizer: Tokenizer) -> CorpusError:
    """The error of a task of which the tokenizer leaves nothing to score, or too few examples."""
    return CorpusError(
        f"the tokenizer of {tokenizer.size} entries can write {n_left} of the {n_scored} items of task '{task}', or "
        "too few others for the examples",
        required="tasks in the characters of the training corpus",
        fix="tokenizer: {bpe: 4096}, which can write every text; or other tasks",
        where=Where(field=("measure", "harness", "tasks")),
    )


def _writable(tokenizer: Tokenizer | None, prompts: Mapping[str, Prompt], item: TaskItem) -> bool:
    # All texts of an item under all prompts in one call: an item is written under each of them or left out of each.
    texts = list(item.choices)
    for prompt in prompts.values():
        texts += [filled_prompt(prompt, item), *prompt.answers]
    return tokenizer is None or can_write(tokenizer, BETWEEN.join(texts))


def require_pin(name: str, sha256: str, pin: TaskPin) -> None:
    """The tasks found now are those that were registered."""
    if sha256 != pin.sha256:
        raise CorpusError(
            f"the tasks '{name}' are not those registered (sha256 {sha256})", required=f"sha256 {pin.sha256}"
        )


def scored_items(harness: Harness, task: str, items: tuple[TaskItem, ...]) -> tuple[TaskItem, ...]:
    """The first so many items of a task that ask something."""
    asking = tuple(item for item in items if not item.void)[: harness.items_per_task]
    if len(asking) < harness.items_per_task:
        raise CorpusError(
            f"task '{task}' has {len(asking)} items, and items_per_task is {harness.items_per_task}",
            required="as many items in every task, so that all tasks are known equally well",
            fix=f"items_per_task: {max(1, len(asking))}",
            where=Where(field=("measure", "harness", "items_per_task")),
        )
    return asking


def pool(harness: Harness, task: str, items: tuple[TaskItem, ...]) -> tuple[TaskItem, ...]:
    """Items that examples may be drawn from, in the order of drawing: none of those that are scored, nor their like."""
    most = max(harness.shots)
    if most == 0:
        return ()
    scored = {(item.query, item.choices) for item in scored_items(harness, task, items)}
    # Equal items count once, and none that equals a scored one. Reversed: of equal ones the first in the file
    # remains.
    rest = {
        (item.query, item.choices): item
        for item in reversed(items)
        if not item.void and (item.query, item.choices) not in scored
    }
    if len(rest) < most:
        raise CorpusError(
            f"task '{task}' has {len(rest)} items that are not scored, and {most} examples are needed",
            required="examples that are none of the scored items",
            fix=f"shots: [0], or fewer items_per_task than {harness.items_per_task}",
            where=Where(field=("measure", "harness", "shots")),
        )
    # Sorted by a keyed hash: a random order that no library version changes, unlike a shuffle.
    return tuple(sorted(rest.values(), key=lambda item: _draw(harness.examples_seed, task, item)))


def _draw(seed: int, task: str, item: TaskItem) -> bytes:
    """A key of its own for every item: another item in the file moves no other's turn."""
    identity: Mapping[str, object] = {"seed": seed, "task": task, "query": item.query, "choices": list(item.choices)}
    return hashlib.sha256(canonical_bytes(dict(identity))).digest()
