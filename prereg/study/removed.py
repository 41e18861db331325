"""Fields that the study format no longer has: what a file that names one reads, and how an older lock is read.

A lock holds every field of its study, also those that nobody wrote. So a removed field is left out where it has the
value that stands for "not used", and a lock that used it is read by the version that registered it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from prereg.errors import FieldPath

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
    ("on_divergence",): RemovedField(
        "exclude_pair", "stable(ARM) in the decision: lost pairs are left out, and count at their worst for the verdict"
    ),
    ("stopping", "evidence"): RemovedField(None, "stopping: {looks: [...]}"),
    ("measure", "uneven_steps"): RemovedField(None, "runs of one claim are evaluated at the same steps"),
}


def without_removed(study: Mapping[str, Any]) -> dict[str, Any]:
    """Return the study of a lock without the removed fields. Raises `ValueError` for one that the study used."""
    current: dict[Any, Any] = dict(study)
    for path, field in REMOVED.items():
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
