"""Loading a study file to a `Study`, with every mistake named by file, line and field.

What a file leaves to its folder is filled in here: fresh seeds that no other lock has, and one claim for each task of
a pack. `prereg.yaml_reader` reads the text; `prereg.study.spec` says whether the fields make a study.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from prereg.errors import FieldPath, StudyError, StudyFileError, Where, field_error, nearest
from prereg.registry.disk import open_regular, read_regular
from prereg.registry.paths import Root
from prereg.study.designs.per_task import names_tasks, refuse_families, task_names, written_for_tasks
from prereg.study.macros import Document, Expansion, Written, expand, hypotheses_of, mapping_at
from prereg.study.spec import MACROS, Study, study_from_expansion
from prereg.yaml_reader import Lines, file_error, line_of, parse_yaml

_LARGEST_BYTES = 1 << 20
_LARGEST_LOCK = 1 << 26
_MOST_FRESH = 5000


_FIRST = "study: NAME   (ablate new NAME writes a whole one)"


@dataclass(frozen=True)
class Loaded:
    """A study and the exact bytes it was read from."""

    study: Study
    source_bytes: bytes
    path: Path
    lines: Lines = field(default_factory=dict)
    """The line of every path of the document, from 1."""
    expansion: Expansion = field(default_factory=lambda: Expansion({}))
    """What the file's blocks write."""

    def line(self, path: FieldPath) -> int | None:
        """The line of a field, or of what it is written from, or of its nearest ancestor that the file holds."""
        return line_of(self.expansion.origin(path), self.lines)


def load_study(path: Path, root: str | Path | None = None) -> Loaded:
    """Read a study file. Raises a child of `StudyError` placed at file, line and field.

    The task pack of claims `per: task` is looked for from the root, which is that of the file where none is given.

    >>> text = '''
    ... study: tiny
    ... title: Does a larger step help?
    ... trainer: command
    ... command: ["{python}", train.py, "--lr={lr}", "--seed={seed}"]
    ... base: {lr: 0.1}
    ... variants: {small: {}, large: {lr: 0.3}}
    ... baseline: small
    ... seeds: fresh 5
    ... hypotheses: {gain: {claim: large lowers val/loss by at least 0.02}}
    ... decision: [{verdict: take it, when: supported(gain)}, {verdict: keep it}]
    ... '''
    >>> _ = Path("tiny.yaml").write_text(text)
    >>> loaded = load_study(Path("tiny.yaml"))
    >>> loaded.study.seeds
    (1, 2, 3, 4, 5)
    >>> loaded.line(("hypotheses", "gain", "smallest"))
    10
    """
    source = read_text_file(path)
    lines: Lines = {}
    try:
        # Text, then macros that need the file's folder, then all others, then the models and what holds between fields.
        document = parse_yaml(source, lines, first=_FIRST)
        _refuse_campaign(document, path)
        refuse_families(document)
        of_folder = (partial(_fresh_seeds, path=path), partial(_claims_per_task, path=path, root=root))
        expansion = expand(document, (*of_folder, *MACROS))
        study = study_from_expansion(expansion)
        _check_name(study.study, path)
    except StudyError as error:
        # `lines` holds what was read before the fault, so that an error of the reader has its line too.
        first, *others = (
            fault.at(file=path, line=fault.where.line or line_of(fault.where.field, lines))
            for fault in (error, *error.others)
        )
        raise first.followed_by(sorted(others, key=lambda fault: fault.where.line or 0)) from None
    return Loaded(study=study, source_bytes=source, path=path, lines=lines, expansion=expansion)


def read_text_file(path: Path) -> bytes:
    """The bytes of a YAML file, if it is one by its name and no larger than a study may be."""

    def refusal(found: str, required: str, fix: str = "") -> StudyFileError:
        return StudyFileError(found, required=required, fix=fix, where=Where(file=path))

    # By the name first: what a table or a folder is meant for can be said without reading it.
    if path.suffix != ".yaml":
        raise refusal(*_no_study(path))
    try:
        # A named pipe or a device would keep the command waiting, or never end.
        with open_regular(path) as stream:
            source = stream.read(_LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise refusal("no such file", "the path of a study file", _nearest_study(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise refusal(f"cannot be read: {reason}", "a readable file", f"ls -l {path}") from None
    if len(source) > _LARGEST_BYTES:
        raise refusal("the file is larger than 1 MiB", "a study that can be read")
    return source


def _no_study(path: Path) -> tuple[str, str, str]:
    """What a path without the ending of a study is, what is required, and what to type."""
    # In the order in which people mistake it: a folder, a table of runs, a name without its ending.
    if path.is_dir():
        return "a folder", "the path of a study file", _nearest_study(path / path.name)
    if path.suffix in (".csv", ".tsv", ".parquet", ".jsonl"):
        fix = f"ablate import STUDY {path} --note TEXT"
        return "a table", "the path of a study file, into which runs of a table are imported", fix
    named = Path(f"{path}.yaml")
    fix = f"{named}" if named.is_file() else f"a study's file is named NAME.yaml; {_nearest_study(path)}"
    return f"'{path.name}' does not end in .yaml", "the path of a study file", fix


def _nearest_study(path: Path) -> str:
    """The study in the same folder whose name is closest, all of them, or how to begin one."""
    try:
        studies = [str(study) for study in path.parent.glob("*.yaml")]
    except (OSError, ValueError):
        studies = []
    return nearest(str(path), studies) or f"ablate new {path.stem}   (there is no study in {path.parent})"


def _refuse_campaign(document: dict[str, JsonValue], path: Path) -> None:
    if "campaign" in document and "study" not in document:
        raise file_error(
            "a campaign, not a study",
            "the path of a study file",
            f"ablate design {path}   (simulates a campaign)",
            field=("campaign",),
        )


def _check_name(name: str, path: Path) -> None:
    if name != path.stem:
        found, required = f"study '{name}' lies in a file named '{path.name}'", "the study's id is its file's name"
        raise file_error(found, required, f"study: {path.stem}", field=("study",))


def _fresh_seeds(document: Document, path: Path) -> Iterator[Written]:
    """The seeds of `seeds: fresh N`: those in the study's own lock, then the lowest that no other lock there has.

    Other studies may have looked at runs of their seeds, and a hypothesis that they suggested needs new ones.
    """
    fresh = document.get("seeds")
    if not isinstance(fresh, str):
        return
    required = f"a list of seeds, or fresh N with N up to {_MOST_FRESH}"
    number = re.fullmatch(r"fresh ([1-9][0-9]{0,3})", fresh)
    if number is None or int(number[1]) > _MOST_FRESH:
        raise field_error(("seeds",), f"'{fresh}'", required, "seeds: fresh 5")
    n_seeds = int(number[1])
    own: list[JsonValue] = []
    used: set[JsonValue] = set()
    for lock in sorted(path.parent.glob("*.lock.json")):
        try:
            registered = _study_in(lock)
            seeds: list[JsonValue] = [int(seed) for seed in registered["seeds"]]
            pilot = [int(seed) for seed in (registered.get("tune") or {}).get("seeds", ())]
        except _UNREADABLE:
            found, needed = f"the seeds in {lock.name} cannot be read", "a lock file as it was written"
            fix = f"restore {lock.name} from version control, or list the seeds"
            raise file_error(found, needed, fix, field=("seeds",)) from None
        # The study's own lock: its seeds stay, so that a registered file reads as it was registered.
        if lock.name == f"{path.stem}.lock.json":
            own = seeds
        else:
            used.update([*seeds, *pilot])
    # The study's own seeds first: a registered file must read as what was registered, whoever came since.
    free = (seed for seed in count(1) if seed not in used and seed not in own)
    seeds = [*own, *islice(free, max(0, n_seeds - len(own)))][:n_seeds]
    yield Written(("seeds",), seeds, ("seeds",), "sets")


def _claims_per_task(document: Document, path: Path, root: str | Path | None) -> Iterator[Written]:
    """The claims of every line `per: task`: over the tasks of the pack that lies here, else over those of the study's
    own lock."""
    pack = names_tasks(document)
    if not pack:
        return
    # The pack that lies here, else the study's own lock: a registered study can be read without the pack.
    tasks = task_names(pack, Root.find(path, root)) or _tasks_of_lock(path, pack)
    if not tasks:
        raise file_error(
            f"per: task, and the tasks of '{pack}' are not known here",
            "the pack's files on this machine, from which one claim a task is written; of a folder of *.yaml no claim "
            "is",
            "put the pack into data/, or write the claims out: harness/accuracy/TASK",
            field=("measure", "harness", "tasks"),
        )
    yield from written_for_tasks(document, tasks)


def _tasks_of_lock(path: Path, pack: str) -> tuple[str, ...]:
    """The tasks of claims `per: task` in the study's own lock, if it registered this pack."""
    try:
        registered = _study_in(path.with_suffix(".lock.json"))
    except _UNREADABLE:
        return ()
    if mapping_at(registered, "measure", "harness").get("tasks") != pack:
        return ()
    # NAME.TASK of a family NAME: the rest of the name is the task.
    families = {name: each.get("family") for name, each in hypotheses_of(registered).items()}
    return tuple(dict.fromkeys(name.removeprefix(f"{family}.") for name, family in families.items() if family))


_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What reading a lock raises that is no lock: nothing has checked it yet, and it may be a stranger's."""


def _study_in(lock: Path) -> dict[str, Any]:
    """The study in a lock, as plain data that nothing has checked. Raises one of `_UNREADABLE`."""
    study: dict[str, Any] = json.loads(read_regular(lock, _LARGEST_LOCK))["study"]
    return study
