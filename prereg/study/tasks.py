"""Which tasks `measure.harness` names, by the files of their pack: what `per: task` is written out over.

Only names of files are read here; items are read, hashed and pinned at registration (`ablate.evaluation.harness`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from prereg.registry.paths import Root
from prereg.study.measure import OWN_TASKS, is_folder

PACK_FOLDERS: Final[Mapping[str, str]] = {"blimp": "blimp", "blimp-prompts": "blimp", "zorro": "zorro"}
"""Known task packs, and the folder that each lies in."""


def search_path(root: Root, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Folders that packs are looked for in, in order."""
    listed = [Path(one) for one in environment.get("ABLATE_CORPORA", "").split(os.pathsep) if one]
    cached = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ablate" / "corpora"
    return [*listed, root.corpora, root.path / "data", cached]


def task_folder(tasks: str, root: Root, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where a pack, or a folder of tasks, lies; none where it is not here."""
    places = (
        [root.path / tasks]
        if is_folder(tasks)
        else [one / PACK_FOLDERS.get(tasks, tasks) for one in search_path(root, environment)]
    )
    return next((one for one in places if one.is_dir()), None)


def task_names(tasks: str, root: Root, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The tasks of a pack, a folder or a list `lm_eval:NAME,NAME`, in the order of their names; none where the pack is
    not here, or where only the harness could say (a folder of *.yaml)."""
    if tasks.startswith(OWN_TASKS):
        return tuple(sorted({*tasks.removeprefix(OWN_TASKS).split(",")}))
    folder, known = task_folder(tasks, root, environment), tasks in PACK_FOLDERS
    if folder is None or (not known and any(folder.rglob("*.yaml"))):
        return ()
    files = [*folder.glob("*.jsonl"), *(folder.glob("*.txt") if known else ())]
    return tuple(sorted(file.stem for file in files))
