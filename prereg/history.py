"""Every promise a study ever made: the one in its lock, and those that amendments replaced.

A lock holds only the promise in force. An amendment's entry names the promise before it by its hash, and each
field that changed with its earlier value; so the earlier promise can be rebuilt by undoing the differences, and its
hash tells whether the rebuilding is right. Where the lock is gone or changed, or a difference does not fit, the
promise is counted and not told. What was registered and never entered the ledger is unknown to everybody.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import JsonValue

from prereg.canon import canonical_bytes, sha256_bytes
from prereg.differences import ABSENT
from prereg.ledger import Entry
from prereg.part import Part
from prereg.registration import promise_sha256
from prereg.root import Root

_INDEX = re.compile(r"\[(\d+)\]\.?")


class Promise(Part):
    """One registration of a study, in force or not."""

    study: str
    """The study's id."""
    sha256: str
    """Hash of the promise."""
    at: str
    """When it was registered, by the ledger."""
    index: int
    """The ledger's entry that registered it."""
    document: dict[str, JsonValue] | None
    """The study as plain data; none where it cannot be told."""
    proven: bool
    """Whether the document has the promise's hash."""
    unknown: str = ""
    """Why the document cannot be told, or cannot be proven."""


def promises(root: Root, study: str, entries: Sequence[Entry]) -> tuple[Promise, ...]:
    """Every promise of a study, oldest first. Nothing is raised for what is missing: it is told."""
    made = [entry for entry in entries if entry.study == study and entry.event in ("registered", "amended")]
    found: list[Promise] = []
    whole, unknown = _lock(root, study, made[-1]) if made else (None, "")
    for entry in reversed(made):
        proven = whole is not None and _hash(whole) == entry.registration
        if whole is not None and not proven:
            unknown = "rebuilt from the differences in the ledger, but not to the hash of the promise"
        document = None if whole is None else whole["study"]
        found.append(
            Promise(
                study=study,
                sha256=entry.registration,
                at=entry.at,
                index=entry.index,
                document=document,
                proven=proven,
                unknown="" if proven else unknown,
            )
        )
        if whole is not None and entry.event == "amended":
            whole = _undone(whole, entry.body.get("differences"))
            unknown = "" if whole else "the differences in the ledger do not fit the promise that followed"
    return tuple(reversed(found))


def _lock(root: Root, study: str, entry: Entry) -> tuple[dict[str, Any] | None, str]:
    """Study, corpus and code of the lock in force, or why they cannot be told."""
    path = root.lock(study)
    try:
        data = path.read_bytes()
    except OSError:
        return None, f"{path.name} is not here"
    if sha256_bytes(data) != entry.body.get("lock_sha256"):
        return None, f"{path.name} is not as it was registered"
    document = json.loads(data)
    scripts = {pin["path"]: pin["sha256"] for pin in document.get("scripts") or ()}
    checks = document.get("own_checks") or {}
    pins = {name: document.get(name) for name in ("data", "tasks")}
    whole = {"study": document["study"], "corpus": document["corpus"], "own_checks": checks, "scripts": scripts}
    return whole | pins, ""


def _hash(whole: dict[str, Any]) -> str | None:
    try:
        pins = [{"path": path, "sha256": sha256} for path, sha256 in sorted(whole["scripts"].items())]
        scripts = pins if whole["study"]["trainer"] == "command" else None
        parts = (whole["own_checks"], scripts, whole["data"])
        return promise_sha256(whole["study"], whole["corpus"], *parts, tasks=whole["tasks"])
    except (ValueError, TypeError, KeyError):
        return None


def _undone(whole: dict[str, Any], differences: JsonValue) -> dict[str, Any] | None:
    """Study and corpus as they were before the differences; none when one of them does not fit."""
    before = copy.deepcopy(whole)
    if not isinstance(differences, list):
        return None
    for difference in differences:
        if not isinstance(difference, dict) or not {"field", "registered", "now"} <= difference.keys():
            return None
        field, old, new = str(difference["field"]), difference["registered"], difference["now"]
        if field == "factors" and isinstance(old, list) and isinstance(new, list):
            factors = before["study"]["factors"]
            if sorted(factors) != sorted(map(str, old)):
                return None
            before["study"]["factors"] = {str(name): factors[str(name)] for name in old}
            continue
        # Corpus and code stand beside the study, and their differences begin with their names.
        inside = before if re.match(r"(corpus|data|own_checks|scripts|tasks)($|[.\[])", field) else before["study"]
        if not any(_put_back(parent, key, old, new) for parent, key in _places(inside, field)):
            return None
    return before


def _put_back(parent: Any, key: str | int, old: JsonValue, new: JsonValue) -> bool:
    """Give a place its earlier value, if it holds the later one."""
    here = parent[key] if isinstance(key, int) or key in parent else ABSENT
    if canonical_bytes(here) != canonical_bytes(new):
        return False
    if old == ABSENT:
        del parent[key]
    else:
        parent[key] = copy.deepcopy(old)
    return True


def _places(value: Any, field: str) -> Iterator[tuple[Any, str | int]]:
    """(parent, key) of every place that a dotted path can mean: names may hold dots themselves. Deepest first."""
    if isinstance(value, dict):
        for key in value:
            if field.startswith((f"{key}.", f"{key}[")):
                yield from _places(value[key], field[len(key) :].removeprefix("."))
        yield value, field
    elif isinstance(value, list):
        match = _INDEX.match(field)
        if match is not None and int(match.group(1)) < len(value):
            index, rest = int(match.group(1)), field[match.end() :]
            if rest:
                yield from _places(value[index], rest)
            else:
                yield value, index
