"""Client for a training script of your own: `from ablate import config, log, must_match, seed`.

Works without a study too.

    args = config(parser.parse_args())      values of the study's configuration in place of the defaults
    torch.manual_seed(seed(args.seed))      the run's seed; without a study the one that is given
    log(step, {"val/loss": loss})           a line of the run's metrics; without a study a line on the terminal
    must_match("data order", order_bytes)   what every run of the seed must have in common; without a study nothing
    fingerprint("initial weights", bytes)   what it had, and runs of the seed may or may not share; likewise

Only the standard library: a script that imports this does not load what the rest of ablate needs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

Given = TypeVar("Given", argparse.Namespace, dict[str, Any])

_started: set[Path] = set()
"""Files that this process has written to."""


def seed(default: int = 0) -> int:
    """The seed of the run; `default` outside a study.

        torch.manual_seed(seed(args.seed))

    >>> ablate.seed(3)  # outside a study
    3
    """
    return int(os.environ.get("ABLATE_SEED", default))


def config(defaults: Given) -> Given:
    """The configuration of the run's arm over `defaults`, a dictionary or parsed arguments; outside a study `defaults`.

    Parsed arguments take a value by the last part of its dotted path (`optim.lr` sets `lr`); a dictionary keeps
    sections. Raises `KeyError` for a value that the arguments do not have, and for a name that two paths end in: a
    setting that reached nothing would make two arms the same.

        args = config(parser.parse_args())
        settings = config({"optim": {"lr": 3e-4}})

    >>> ablate.config({"optim": {"lr": 3e-4}})  # outside a study
    {'optim': {'lr': 0.0003}}
    """
    path = os.environ.get("ABLATE_CONFIG")
    if path is None:
        return defaults
    values = json.loads(Path(path).read_text(encoding="utf-8"))
    if isinstance(defaults, dict):
        return _merged(defaults, values)  # type: ignore[return-value]  # a dictionary for a dictionary
    arguments = argparse.Namespace(**vars(defaults))  # a copy: what was parsed stays as it was
    set_by: dict[str, str] = {}
    for dotted, value in _leaves(values):
        name = dotted.rpartition(".")[2].replace("-", "_")
        if not hasattr(arguments, name) or name in set_by:
            reason = f", as does {set_by[name]}" if name in set_by else ", which the script does not have"
            raise KeyError(f"the study's configuration has {dotted}, which sets the argument {name}{reason}")
        set_by[name] = dotted
        setattr(arguments, name, value)
    return arguments


def log(step: int, metrics: Mapping[str, float]) -> None:
    """Record values of one step: a line of the run's metrics file; outside a study they are printed.

    A resumed run drops what an earlier attempt recorded at this step or later. Raises `ValueError` where the study
    reads CSV, `OSError` where the file cannot be written.

        log(step, {"train/loss": loss.item(), "val/loss": val_loss})

    >>> ablate.log(10, {"val/loss": 2.5})  # outside a study
    step 10  val/loss 2.5
    """
    values = {name: float(value) for name, value in metrics.items()}
    place = os.environ.get("ABLATE_METRICS")
    if place is None:  # outside a study
        print(f"step {step}", *(f"{name} {value:.6g}" for name, value in values.items()), sep="  ", flush=True)
        return
    path = Path(place)
    if path.suffix == ".csv":
        raise ValueError(f"log writes JSON lines, and the study reads {path.name}: metrics: {{file: metrics.jsonl}}")
    # At the first line of an attempt, and not at import: only then is it known from which step it goes on.
    if path not in _started:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and int(os.environ.get("ABLATE_ATTEMPT", "1")) > 1:
            _keep_before(path, step)
        _started.add(path)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"step": int(step), **values}) + "\n")


def must_match(name: str, data: bytes) -> None:
    """State what all runs of a seed must have in common that state this name too, such as the initial weights.

    Its sha256 goes on record, and runs of a seed whose hashes differ give no verdict. Raises `ValueError` where the run
    has stated something else under this name, `OSError` where the file cannot be written.

        must_match("initial weights", b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters()))
    """
    _state("must_match.json", name, data)


def fingerprint(name: str, data: bytes) -> None:
    """State what this run had, such as its initial weights, where the runs of a seed may have it in common or not.

    Its sha256 goes on record. The report says in how many pairs it is the same, and no verdict depends on it: an arm
    with other shapes draws other initial values. Raises as `must_match` does.

        fingerprint("initial weights", b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters()))
    """
    _state("fingerprints.json", name, data)


def _state(file: str, name: str, data: bytes) -> None:
    place = os.environ.get("ABLATE_RUN_DIR")
    if place is None:
        return
    path = Path(place) / file
    stated = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    sha256 = hashlib.sha256(data).hexdigest()
    if stated.setdefault(name, sha256) != sha256:
        raise ValueError(f"this run has stated another {name!r} before: {stated[name][:12]}, and now {sha256[:12]}")
    # By a rename: a run that is killed here leaves the old file or the new one, and no half of it.
    written = path.with_suffix(".part")
    written.write_text(json.dumps(stated), encoding="utf-8")
    written.replace(path)


def _keep_before(path: Path, step: int) -> None:
    # A line without its end was cut off by a kill, and belongs to no step.
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    earlier_lines = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] < step]
    path.write_text("".join(earlier_lines), encoding="utf-8")


def _merged(defaults: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(defaults)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for name, value in tree.items():
        leaves += _leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return leaves
