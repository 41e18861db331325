"""Items as they stand in files: a question, its choices, and which of them is right.

Choices of a minimal pair are put in an order that follows from the text alone. The harness breaks a tie in favour of
the first choice, so that a model without an opinion would be right on every item whose right choice always came first.
A pair of two equal sentences (BLiMP has a few) asks nothing: it is passed over, and counted in the registration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prereg.errors import CorpusError, Where
from prereg.registry.canon import sha256_bytes

_FIELD = Where(field=("measure", "harness", "tasks"))


@dataclass(frozen=True)
class Item:
    """One item of a task, known by its number in the file."""

    number: int
    query: str
    choices: tuple[str, ...]
    gold: int

    @property
    def void(self) -> bool:
        """Whether its choices are the same, so that it asks nothing."""
        return len(set(self.choices)) < len(self.choices)

    @property
    def texts(self) -> tuple[str, ...]:
        """Everything in it that a tokenizer must be able to write."""
        return (self.query, *self.choices)


def read_items(path: Path, data: bytes) -> tuple[Item, ...]:
    """The items of a task's file: JSON lines, or pairs of lines, the ungrammatical one first."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} is not UTF-8 at byte {error.start}", required="UTF-8 text", where=_FIELD) from error
    return _pairs(path, text) if path.suffix == ".txt" else _objects(path, text)


def minimal_pair(number: int, good: str, bad: str) -> Item:
    """A pair of sentences of which one is right, in an order that neither a file nor a tie can favour."""
    first = int(sha256_bytes("\n".join(sorted((good, bad))).encode())[:8], 16) % 2
    choices = tuple(sorted((good, bad), reverse=bool(first)))
    return Item(number, "", choices, choices.index(good))


def _objects(path: Path, text: str) -> tuple[Item, ...]:
    items = []
    for number, line in enumerate(text.splitlines()):
        try:
            found: Any = json.loads(line)
            if "sentence_good" in found:
                item = minimal_pair(number, _text(found["sentence_good"]), _text(found["sentence_bad"]))
            else:
                choices = tuple(_text(choice) for choice in found["choices"])
                item = Item(number, str(found.get("query", "")), choices, int(found["gold"]))
            if len(item.choices) < 2 or not 0 <= item.gold < len(item.choices):
                raise ValueError("two or more choices, and gold the number of one of them from 0")
        except (ValueError, KeyError, TypeError) as error:
            raise CorpusError(
                f"{path.name}, line {number + 1} is no item ({error})",
                required='{"query": "...", "choices": ["...", "..."], "gold": 0}, or sentence_good and sentence_bad',
                where=_FIELD,
            ) from error
        items.append(item)
    return tuple(items)


def _pairs(path: Path, text: str) -> tuple[Item, ...]:
    lines = text.splitlines()
    if len(lines) % 2:
        raise CorpusError(f"{path.name} has {len(lines)} lines", required="pairs of lines", where=_FIELD)
    return tuple(
        minimal_pair(number, good, bad) for number, (bad, good) in enumerate(zip(lines[::2], lines[1::2], strict=True))
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is no text")
    return value


PLAIN: Mapping[str, str] = {"plain": "{query}"}
"""The item unchanged."""

THREE: Mapping[str, str] = {
    "bare": "",
    "quoted": "Here is a sentence of good English: ",
    "chosen": "Which of these is good English?\n{options}\nAnswer: ",
}
"""Over minimal pairs: the sentence alone, the sentence announced, the sentence chosen from the two."""

BETWEEN = "\n"
"""The separator between an example and what follows it."""
_LONGEST = 4000


def filled(prompt: str, item: Item) -> str:
    """The text before the choice. Only the two places are filled; no other brace means anything."""
    # In one pass over the prompt: a query that holds "{options}" must not be filled in turn.
    head, *rest = prompt.split("{query}")
    options = "\n".join(item.choices)
    return item.query.join(part.replace("{options}", options) for part in (head, *rest))


def read_prompts(path: Path) -> Mapping[str, str]:
    """A folder's own prompts, or the plain one."""
    if not path.is_file():
        return dict(PLAIN)
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict) or not found:
            raise ValueError("no object of names and texts")
        for name, text in found.items():
            if (
                not isinstance(text, str)
                or len(text) > _LONGEST
                or not name.replace("_", "").replace("-", "").isalnum()
            ):
                raise ValueError(f"'{name}' is no prompt")
    except (OSError, ValueError) as error:
        raise CorpusError(
            f"{path} holds no prompts ({error})",
            required='{"NAME": "text with {query} and {options}"}, names of letters, digits, - and _',
            where=Where(field=("measure", "harness", "tasks")),
        ) from error
    return found
