"""Output files of a trainer besides its metrics, read strictly: about.json, must_match.json, items.jsonl, others.

    metrics                step, metric, value; name and layout are the study's (`ablate.records.rows`)
    must_match.json        name -> sha256 of what the runs of a seed must have in common
    fingerprints.json      the same of what they may have in common or not, for the report
    resumable              the next attempt can go on from what lies here
    items.jsonl            scores of single items, at the end of the run
    weights.safetensors    the final weights
    about.json             what the trainer states of the run (`About`)
    progress.json          how far the run is, for a screen (`Progress`)

docs/trainer-protocol.md says when each is read. Nothing is repaired, skipped or guessed.

To add a file: a name and a reader here, a call in `ablate.runner.process._Run`, its row in docs/trainer-protocol.md,
and tests/runner/test_own_trainer.py. A fact for the report alone is a field of `About` instead.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ablate.records.rows import (
    LineError,
    cell_in_message,
    checked,
    lines_of,
    object_of,
    read_bytes,
    require_keys,
    require_range,
    value_of,
)
from ablate.records.run_record import About
from ablate.records.store import ItemScore
from prereg.errors import EvidenceError, Where
from prereg.escape import visible
from prereg.frozen import FrozenModel
from prereg.study.command import MetricsFile

RESUMABLE = "resumable"
MUST_MATCH = "must_match.json"
FINGERPRINTS = "fingerprints.json"
ITEMS = "items.jsonl"
WEIGHTS = "weights.safetensors"
ABOUT = "about.json"
PROGRESS = "progress.json"

LARGEST_OBJECT = 4 * 2**20
"""Bytes of must_match.json or about.json: hashes of some ten thousand parameters."""
_LARGEST_PROGRESS = 4096
_ITEM_KEYS = ("task", "item", "item_sha256", "metric", "value")
_LONGEST_TEXT = 400
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Progress(FrozenModel):
    """How far a run is: for the screen of whoever waits, and never a metric."""

    steps: int | None = None
    """Steps planned."""

    text: str = ""
    """What the run does besides its steps, such as `asks blimp: 300 of 4,000`."""

    seconds_left: float | None = None
    """About how long that takes."""


def read_hashes(path: Path) -> dict[str, str] | None:
    """Name -> sha256 of what a trainer states that its run had in common with others; none where it says nothing.

    Raises `EvidenceError` where the file is anything but one JSON object of such hashes.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, MUST_MATCH)
        ...     _ = path.write_text(json.dumps({"batches": "ab" * 32}))
        ...     sorted(read_hashes(path))
        ['batches']
    """
    if not path.exists():
        return None
    hashes = _object(path)
    # A name with a control character would be printed in reports; anything but a sha256 could not be compared.
    for name, sha256 in hashes.items():
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256) or visible(name) != name:
            required = "a name and the sha256 of something, 64 hexadecimal digits"
            raise EvidenceError(
                f"{cell_in_message(name)}: {cell_in_message(sha256)}", required=required, where=Where(file=path)
            )
    return {name: str(sha256) for name, sha256 in hashes.items()} or None


def read_about(path: Path) -> About | None:
    """What a trainer states of its run; none where it states nothing. Raises `EvidenceError` naming the field."""
    if not path.exists():
        return None
    return _model(About, path)


def readable_about(path: Path) -> About | None:
    """The same of an attempt that was stopped or killed: none where the file cannot be read."""
    with suppress(EvidenceError):
        return read_about(path)
    return None


def read_progress(path: Path) -> Progress | None:
    """How far a run says that it is; none where it says nothing that can be read. Never raises."""
    with suppress(OSError, ValueError):
        # Read on every tick of the screen, often while it is being written: whatever is wrong with it is no
        # fault of the run.
        if path.stat().st_size <= _LARGEST_PROGRESS:
            return Progress.model_validate_json(path.read_bytes())
    return None


def read_items(path: Path, layout: MetricsFile) -> list[ItemScore]:
    """The scores of single items; empty where the trainer scored none.

    Raises `EvidenceError` with the line for anything but the five keys, a score that is not finite or that its metric
    cannot have, and an item that is scored twice.

        >>> from tempfile import TemporaryDirectory
        >>> line = {"task": "blimp", "item": "1", "item_sha256": "ab" * 32, "metric": "acc", "value": 1.0}
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, ITEMS)
        ...     _ = path.write_text(json.dumps(line))
        ...     [(score.item, score.value) for score in read_items(path, MetricsFile())]
        [('1', 1.0)]
    """
    if not path.exists():
        return []
    items: list[ItemScore] = []
    line_by_item: dict[tuple[str, str, str], int] = {}
    number = 0
    try:
        for number, line in enumerate(lines_of(read_bytes(path)), start=1):
            # One item has one score per metric: a second would be a choice between the two.
            score = _item(object_of(line))
            first = line_by_item.setdefault((score.metric, score.task, score.item), number)
            if first != number:
                raise LineError(f"{score.metric} of item {cell_in_message(score.item)} is already on line {first}")
            require_range(score.metric, score.value, layout.range_of(score.metric))
            items.append(score)
    except LineError as fault:
        raise EvidenceError(
            f"line {number}: {fault}",
            required='a line {"task": "t", "item": "1", "item_sha256": "...", "metric": "acc", "value": 1.0} per score',
            fix=fault.fix,
            where=Where(file=path, line=number),
        ) from None
    return items


def _item(values: dict[str, object]) -> ItemScore:
    # Exactly the five keys: one that is misspelt would otherwise be a silent default.
    require_keys(values, _ITEM_KEYS)
    for name in ("task", "item"):
        text = values[name]
        if not isinstance(text, str) or not 0 < len(text) <= _LONGEST_TEXT or visible(text) != text:
            raise LineError(
                f"{name} {cell_in_message(text)}, which is no printable text of at most {_LONGEST_TEXT} characters"
            )
    sha256 = values["item_sha256"]
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise LineError(f"item_sha256 {cell_in_message(sha256)}, which is not 64 hexadecimal digits")
    metric = checked("metric", values["metric"])
    # Asked under another name: of train/loss alone a value may be infinite, and no item is a training loss.
    value = value_of(values["value"], f"{metric} of an item")
    return ItemScore(str(values["task"]), str(values["item"]), sha256, metric, value)


def _object(path: Path) -> dict[str, object]:
    try:
        # On one line, since `object_of` reads lines: it refuses a key that is given twice, which json.loads takes.
        return object_of(read_bytes(path).replace(b"\n", b" "), LARGEST_OBJECT)
    except LineError as fault:
        raise EvidenceError(str(fault), required="one JSON object", where=Where(file=path)) from None


Model = TypeVar("Model", bound=FrozenModel)


def _model(model: type[Model], path: Path) -> Model:
    values = _object(path)
    try:
        # As JSON: read strictly from Python values, a list would be no tuple.
        return model.model_validate_json(json.dumps(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise EvidenceError(
            f"{visible(field)}: {first['msg']}",
            required="the fields that docs/trainer-protocol.md names, all optional",
            where=Where(file=path),
        ) from None
