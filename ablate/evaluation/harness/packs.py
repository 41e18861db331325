"""Task packs: folders of items, found by name and known by the hash of their files. Never a silent stand-in.

A pack is looked for in the folders of `ABLATE_CORPORA`, in the repository's `data/corpora/` and `data/`, and in the
user's cache, as `NAME/`. Known packs are pinned here, any other by the registration. A folder of the user's own is
given from the root and may hold `prompts.json` next to its items:

    TASK.jsonl     one object a line: {"query": ..., "choices": [...], "gold": 0}, or a minimal pair,
                   {"sentence_good": ..., "sentence_bad": ...}
    prompts.json   {"NAME": "text with {query}, {options} or {choice_1}"}; without it, the query alone. With answers
                   that stand for the choices: {"NAME": {"text": "... A or B? ", "answers": ["A", "B"]}}
    *.yaml         tasks in the harness' own format instead, which may bring code: see `ablate.evaluation.harness.tasks`

Choices of a minimal pair are put in an order that follows from the text alone. The harness breaks a tie in favour of
the first choice, so that a model without an opinion would be right on every item whose right choice always came first.
A pair of two equal sentences (BLiMP has a few) asks nothing: it is passed over, and counted in the registration.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prereg.errors import CorpusError, Where, nearest
from prereg.registry.canon import sha256_bytes, sha256_of
from prereg.registry.paths import Root
from prereg.study.designs.per_task import PACK_FAMILIES, PACK_FOLDERS, pack_folders
from prereg.study.measure import is_folder


@dataclass(frozen=True)
class TaskItem:
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


def parse_items(path: Path, data: bytes) -> tuple[TaskItem, ...]:
    """The items of a task's file: JSON lines, or pairs of lines, the ungrammatical one first.

    >>> parse_items(Path("sums.jsonl"), b'{"query": "1 + 1 =", "choices": [" 2", " 3"], "gold": 0}')
    (TaskItem(number=0, query='1 + 1 =', choices=(' 2', ' 3'), gold=0),)
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} is not UTF-8 at byte {error.start}", required="UTF-8 text", where=_FIELD) from error
    return _pairs(path, text) if path.suffix == ".txt" else _objects(path, text)


def minimal_pair(number: int, good: str, bad: str) -> TaskItem:
    """A pair of sentences of which one is right, in an order that neither a file nor a tie can favour.

    >>> pair = minimal_pair(0, good="it rains.", bad="it rain.")
    >>> pair.choices[pair.gold], pair.choices == minimal_pair(0, good="it rain.", bad="it rains.").choices
    ('it rains.', True)
    """
    # The order follows from a hash of the two sentences: independent of which is right and of where they are
    # written.
    first = int(sha256_bytes("\n".join(sorted((good, bad))).encode())[:8], 16) % 2
    choices = tuple(sorted((good, bad), reverse=bool(first)))
    return TaskItem(number, "", choices, choices.index(good))


def _objects(path: Path, text: str) -> tuple[TaskItem, ...]:
    items = []
    # Any line that is no item stops the pack: a skipped one would change which items are the first n.
    for number, line in enumerate(text.splitlines()):
        try:
            record: Any = json.loads(line)
            if "sentence_good" in record:
                item = minimal_pair(number, _text(record["sentence_good"]), _text(record["sentence_bad"]))
            else:
                choices = tuple(_text(choice) for choice in record["choices"])
                item = TaskItem(number, str(record.get("query", "")), choices, int(record["gold"]))
            if len(item.choices) < 2 or not 0 <= item.gold < len(item.choices):
                # Raised to be caught below, which adds the file and the line.
                raise ValueError("two or more choices, and gold the number of one of them from 0")
        except (ValueError, KeyError, TypeError) as error:
            raise CorpusError(
                f"{path.name}, line {number + 1} is no item ({error})",
                required='{"query": "...", "choices": ["...", "..."], "gold": 0}, or sentence_good and sentence_bad',
                where=_FIELD,
            ) from error
        items.append(item)
    return tuple(items)


def _pairs(path: Path, text: str) -> tuple[TaskItem, ...]:
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


@dataclass(frozen=True)
class Prompt:
    """One way to ask an item."""

    text: str
    """What stands before the answer; `{query}`, `{options}` and `{choice_1}`, `{choice_2}`, ... are filled in."""
    answers: tuple[str, ...] = ()
    """What the model may answer: the first stands for the first choice, and so on. The choices themselves where there
    are none."""

    @property
    def plain(self) -> str | dict[str, object]:
        """As `prompts.json` writes it, and as a pack is hashed."""
        return {"text": self.text, "answers": list(self.answers)} if self.answers else self.text


PLAIN: Mapping[str, Prompt] = {"plain": Prompt("{query}")}
"""The item unchanged."""

THREE: Mapping[str, Prompt] = {
    "bare": Prompt(""),
    "quoted": Prompt("Here is a sentence of good English: "),
    "chosen": Prompt("Which of these is good English?\n{options}\nAnswer: "),
}
"""Over minimal pairs: the sentence alone, the sentence announced, the sentence chosen from the two."""

INSTRUCTIONS: Mapping[str, Prompt] = {
    "bare": Prompt(""),
    "completion": Prompt("This sentence is written in correct English: "),
    "which": Prompt("Which of these two sentences is grammatical?\n{options}\nAnswer: "),
    "editor": Prompt("An editor keeps the correct sentence and deletes the other one.\n{options}\nShe keeps: "),
    "a_or_b": Prompt("A: {choice_1}\nB: {choice_2}\nWhich sentence is correct English, A or B? ", ("A", "B")),
    "yes_no": Prompt("{choice_1}\nIs this sentence grammatical, yes or no? ", ("yes", "no")),
    "right_wrong": Prompt("{choice_1}\nIs the English of this sentence right or wrong? ", ("right", "wrong")),
}
"""Over minimal pairs, in the style of T0 (Sanh et al. 2022): the sentence alone, and six instructions, of which three
are answered by a sentence and three by a word."""

BETWEEN = "\n"
"""The separator between an example and what follows it."""
_LONGEST = 4000
_PLACE = re.compile(r"\{(query|options|choice_([1-9][0-9]*))\}")


def filled_prompt(prompt: Prompt, item: TaskItem) -> str:
    """The text before the answer. No brace means anything but those of the places.

    >>> filled_prompt(Prompt("{choice_2}\\nYes or no? "), TaskItem(0, "", ("it rain.", "it rains."), 1))
    'it rains.\\nYes or no? '
    """

    def text_of(place: re.Match[str]) -> str:
        if place[2] is not None:
            return item.choices[int(place[2]) - 1]
        return item.query if place[1] == "query" else "\n".join(item.choices)

    # In one pass over the prompt: a query that holds "{options}" must not be filled in turn.
    return _PLACE.sub(text_of, prompt.text)


def read_prompts(path: Path) -> Mapping[str, Prompt]:
    """A folder's own prompts, or the plain one."""
    if not path.is_file():
        return dict(PLAIN)
    try:
        prompts = json.loads(path.read_bytes())
        if not isinstance(prompts, dict) or not prompts:
            raise ValueError("no object of names and texts")
        return {name: _prompt(name, written) for name, written in prompts.items()}
    except (OSError, ValueError) as error:
        raise CorpusError(
            f"{path} holds no prompts ({error})",
            required='{"NAME": "text with {query} and {options}"}, or {"NAME": {"text": "...", "answers": ["yes", '
            '"no"]}}; names of letters, digits, - and _',
            where=Where(field=("measure", "harness", "tasks")),
        ) from error


def plain_prompts(prompts: Mapping[str, Prompt]) -> dict[str, object]:
    """Prompts as `prompts.json` writes them."""
    return {name: prompt.plain for name, prompt in prompts.items()}


def _prompt(name: str, written: object) -> Prompt:
    """One entry of `prompts.json`; `ValueError` says what is wrong with it."""
    if not name.replace("_", "").replace("-", "").isalnum():
        raise ValueError(f"'{name}' is no name")
    if isinstance(written, str):
        text, answers = written, None
    elif isinstance(written, dict) and set(written) == {"text", "answers"}:
        text, answers = written["text"], written["answers"]
        if not isinstance(answers, list) or not all(isinstance(answer, str) and answer for answer in answers):
            raise ValueError(f"the answers of '{name}' are no list of texts")
        # An answer that stands for two choices would be right and wrong at once.
        if len(answers) < 2 or len(set(answers)) < len(answers):
            raise ValueError(f"the answers of '{name}' are not two or more different texts")
    else:
        raise ValueError(f"'{name}' is neither a text nor a text with answers")
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise ValueError(f"'{name}' has no text of at most {_LONGEST} characters")
    return Prompt(text, tuple(answers or ()))


def _require_fit(prompts: Mapping[str, Prompt], items: Mapping[str, tuple[TaskItem, ...]]) -> None:
    """Raise `CorpusError` where some item has not the choices that a prompt writes of."""
    for name, prompt in prompts.items():
        # The largest choice_N that the prompt names; 0 where it names none.
        last = max((int(place[2]) for place in _PLACE.finditer(prompt.text) if place[2]), default=0)
        for task, of_task in items.items():
            for item in of_task:
                n = len(item.choices)
                if n < last or (prompt.answers and n != len(prompt.answers)):
                    demand = f"{len(prompt.answers)} answers" if prompt.answers else f"the place {{choice_{last}}}"
                    raise CorpusError(
                        f"the prompt '{name}' has {demand}, and item {item.number} of task '{task}' has {n} choices",
                        required="an answer for each choice of every item, and no place for a choice that it lacks",
                        fix=f"another prompt than '{name}' in prompts.json, or the task in a folder of its own",
                        where=_FIELD,
                    )


_FIELD = Where(field=("measure", "harness", "tasks"))
LARGEST_BYTES = 256 * 1024**2


@dataclass(frozen=True)
class Known:
    """What the name of a pack means."""

    folder: str
    files_sha256: str
    """Hash over {file: sha256} of all its items."""
    n_tasks: int
    source: str
    prompts: Mapping[str, Prompt] = field(default_factory=lambda: dict(PLAIN))
    families: tuple[str, ...] = ("",)
    """What the names of its tasks begin with, where it has not all that lie in the folder."""


_BLIMP = Known(
    folder=PACK_FOLDERS["blimp"],
    files_sha256="8219d73f0b6a9fe332f720776d9c328653202356032aeac62ba9bca539f04935",
    n_tasks=67,
    source="the 67 files of data/ in https://github.com/alexwarstadt/blimp (Warstadt et al. 2020, CC BY)",
)
_ZORRO = Known(
    folder=PACK_FOLDERS["zorro"],
    files_sha256="3ebda86a964f75c100bcf9e550302a7888350d23f8e7d59d11d15a7685a30631",
    n_tasks=23,
    source="the 23 files of sentences/babyberta in https://github.com/phueb/Zorro (Huebner et al. 2021, MIT)",
)
KNOWN: Mapping[str, Known] = {
    "blimp": _BLIMP,
    "blimp-prompts": replace(_BLIMP, prompts=THREE),
    "zorro": _ZORRO,
    "zorro-prompts": replace(
        _ZORRO,
        files_sha256="bd7f3ca1d139c94eb51c0c45d8a22396fe82aca3d753dcfcc6f4251ac44ca1a4",
        n_tasks=5,
        families=PACK_FAMILIES["zorro-prompts"],
        prompts=INSTRUCTIONS,
    ),
}


@dataclass(frozen=True)
class Pack:
    """Tasks that have been read and hashed."""

    name: str
    folder: Path
    files: Mapping[str, str]
    """File -> sha256."""
    items: Mapping[str, tuple[TaskItem, ...]]
    """Task -> its items, in the order of the file; empty where the harness itself reads the folder."""
    prompts: Mapping[str, Prompt]

    @property
    def sha256(self) -> str:
        """Of everything that is evaluated: the files and the prompts."""
        return sha256_of({"files": dict(self.files), "prompts": plain_prompts(self.prompts)})

    @property
    def foreign(self) -> bool:
        """Whether its tasks are in the harness' own format."""
        return not self.items


def find_pack(tasks: str, root: Root, environment: Mapping[str, str] = os.environ) -> Pack:
    """The pack that a study names, read whole, or one error that says where it was looked for."""
    if is_folder(tasks):
        folder = root.path / tasks
        if not folder.is_dir():
            raise CorpusError(
                f"the folder of tasks {folder} is not here", required="a folder, from the root", where=_FIELD
            )
        return read_pack(tasks, folder)
    pinned = KNOWN.get(tasks)
    folders = [parent / (pinned.folder if pinned else tasks) for parent in pack_folders(root, environment)]
    # The first folder that exists decides: a second copy further down is never mixed in.
    folder = next((place for place in folders if place.is_dir()), Path())
    if folder == Path():
        looked = ", ".join(map(str, folders))
        raise CorpusError(
            f"the task pack '{tasks}' is not here. Looked for: {looked}",
            required=pinned.source if pinned else "a folder of that name that holds TASK.jsonl files",
            fix=f"put the files into {folders[-2] if len(folders) > 1 else folders[0]}"
            if pinned
            else nearest(tasks, KNOWN) or "tasks: blimp",
            where=_FIELD,
        )
    # A name that the literature knows stands for exact files: other items under it would not be comparable.
    pack = read_pack(tasks, folder, pinned)
    if pinned is not None and sha256_of(dict(pack.files)) != pinned.files_sha256:
        raise CorpusError(
            f"{folder} is not the pack '{tasks}': its {len(pack.files)} files together have sha256 "
            f"{sha256_of(dict(pack.files))}",
            required=f"{pinned.n_tasks} files, together {pinned.files_sha256}: {pinned.source}",
            fix=f"restore them, or give your own items a folder of their own: tasks: tasks/my-{tasks}",
            where=_FIELD,
        )
    return pack


def read_pack(name: str, folder: Path, pinned: Known | None = None) -> Pack:
    """A folder as a pack, whatever it holds. Nothing in it is executed."""
    # 1. Tasks in the harness' format: hashed whole, read later by the harness. A known pack is always items,
    # whatever lies near.
    if pinned is None and any(folder.rglob("*.yaml")):
        files = {
            path.relative_to(folder).as_posix(): path
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not any(part.startswith((".", "__")) for part in path.relative_to(folder).parts)
        }
        return Pack(name, folder, {file: sha256_bytes(_bytes(path)) for file, path in files.items()}, {}, dict(PLAIN))
    # 2. Items: sorted by name, so that the order of tasks does not depend on the file system. *.txt is Zorro's
    # format only.
    paths = sorted([*folder.glob("*.jsonl"), *(folder.glob("*.txt") if pinned is not None else ())])
    paths = [path for path in paths if pinned is None or path.name.startswith(pinned.families)]
    if not paths:
        raise CorpusError(
            f"{folder} holds no tasks", required="TASK.jsonl files, or tasks of the harness as *.yaml", where=_FIELD
        )
    # 3. Hash and parse the same bytes: a file that changes in between cannot have another content than its hash.
    hashes, items = {}, {}
    for path in paths:
        data = _bytes(path)
        hashes[path.name] = sha256_bytes(data)
        items[path.stem] = parse_items(path, data)
    prompts = dict(pinned.prompts) if pinned is not None else read_prompts(folder / "prompts.json")
    _require_fit(prompts, items)
    return Pack(name, folder, hashes, items, prompts)


def _bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        # Asked before it is read: a folder may be given by mistake, with checkpoints in it.
        if size > LARGEST_BYTES:
            raise CorpusError(f"{path} has {size} bytes", required=f"at most {LARGEST_BYTES}", where=_FIELD)
        return path.read_bytes()
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}", where=_FIELD) from error
