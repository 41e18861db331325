"""Fields that the study format no longer has: what a file that names one reads, and how an older lock is read.

A lock holds every field of its study, also those that nobody wrote. So a removed field is left out where it has the
value that stands for "not used", and a lock that used it is read by the version that registered it.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from prereg.errors import FieldPath, SpecError, Where

SINCE: Final = "2026-11-29"


@dataclass(frozen=True)
class RemovedField:
    """A field that is gone."""

    unused: Any
    """Its value in the lock of a study that did not use it."""
    instead: str
    """What to write instead."""


REMOVED: Final[Mapping[FieldPath, RemovedField]] = {
    ("assume", "sd"): RemovedField(
        None, "assume: {metrics: {METRIC: {sd: NUMBER}}}, or ablate design STUDY --pilot OTHER"
    ),
    ("base", "budget", "max_memory_gib"): RemovedField(
        None, "a claim about cost/peak_memory; every record has the peak of its run"
    ),
    ("base", "data", "mixture"): RemovedField(None, "data.corpus: NAME, of a corpus that holds all of the text"),
    ("reuses",): RemovedField([], "seeds: fresh N, which no other study of the ledger has sealed"),
    ("base_runs",): RemovedField("own", "leave it out: ablate gate trains base for every comparison"),
    ("on_divergence",): RemovedField(
        "exclude_pair", "stable(ARM) in the decision: lost pairs are left out, and count at their worst for the verdict"
    ),
    ("stopping", "evidence"): RemovedField(None, "stopping: {looks: [...]}"),
    ("checks",): RemovedField([], "look at the records outside the verdict: ablate report STUDY --as csv"),
    ("measure", "own"): RemovedField([], "trainer: command, whose script records it, and metrics: {declare: ...}"),
    ("measure", "uneven_steps"): RemovedField(None, "runs of one claim are evaluated at the same steps"),
}


def removed_error(path: FieldPath, written: FieldPath) -> SpecError | None:
    """Return the error of a field that is gone, at the place where a file has `written` it; none for another field."""
    for name, field in REMOVED.items():
        # A part of its value, as an arm overrides it: data.mixture.wiki.
        if path[: len(name)] == name:
            return SpecError(
                f"the field '{name[-1]}' is gone since {SINCE}",
                required="a study without it",
                fix=field.instead,
                where=Where(field=written),
            )
    return None


def without_removed(study: Mapping[str, Any]) -> dict[str, Any]:
    """Return the study of a lock without the removed fields. Raises `ValueError` for one that the study used."""
    current: dict[Any, Any] = dict(study)
    for path, field in REMOVED.items():
        if path[0] == "base" and study.get("trainer") == "command":
            continue  # the base of a user's own trainer has the user's own fields
        parent = current
        # Each mapping on the way is copied: the lock itself is hashed as it is.
        for key in path[:-1]:
            if not isinstance(parent.get(key), dict):
                break
            parent[key] = dict(parent[key])
            parent = parent[key]
        else:
            if parent.pop(path[-1], field.unused) != field.unused:
                name = ".".join(map(str, path))
                raise ValueError(f"it uses '{name}', which is gone since {SINCE}: read it with an earlier version")
    return current


def config_without_removed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration of the built-in trainer without the removed fields. Raises `ValueError` for one in use."""
    current: dict[str, Any] = without_removed({"base": config})["base"]
    return current


def config_with_removed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration of the built-in trainer as earlier versions wrote it: removed fields at their unused
    value. Seals in older ledgers hold its hash."""
    earlier: dict[Any, Any] = deepcopy(dict(config))
    for path, field in REMOVED.items():
        if path[0] == "base":
            earlier[path[1]][path[2]] = field.unused
    return earlier
