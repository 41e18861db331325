"""A run that failed: whether it left values, whether another failed in the same way, and what to do about it."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ablate.records.rows import Row, range_fix, readable_rows
from ablate.records.store import RunFolder
from prereg.errors import nearest
from prereg.escape import visible
from prereg.registry.plan import CommandSpec, Planned

_TAIL_CHARACTERS = 2**14


def advise(error: str, spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    """The next step after a failed run, in words of the study file; empty where none is known."""
    said = _tail(folder.path / "stderr.txt")
    for pattern, advice in _KNOWN:
        found = re.search(pattern, f"{error}\n{said}")
        if found is not None and (text := advice(found, spec, folder, root)):
            return text
    return ""


def left_values(spec: Planned, folder: RunFolder) -> bool:
    """Whether a run that failed left a value of a claimed metric."""
    return bool(_claimed(spec, folder))


def claimed_values(spec: Planned, folder: RunFolder) -> dict[str, float]:
    """METRIC at STEP -> finite value of every claimed metric, as far as what a run has recorded can be read."""
    return {place_of(row): row.value for row in _claimed(spec, folder) if math.isfinite(row.value)}


def _claimed(spec: Planned, folder: RunFolder) -> list[Row]:
    rows = readable_rows(folder.path / "work" / spec.metrics.file, spec.metrics)
    return [row for row in rows if row.metric in spec.claimed]


def place_of(row: Row) -> str:
    """METRIC at STEP."""
    return f"{row.metric} at {row.step}"


def kind_of(error: str, spec: Planned) -> str:
    """An error without what differs from run to run."""
    return re.sub(r"[0-9]+", "0", error.replace(f"/{spec.variant}/", "/").replace(spec.run_id, ""))


def recorded(spec: CommandSpec, folder: RunFolder) -> tuple[str, ...]:
    """Names of the metrics that a run left, as far as they can be read."""
    rows = readable_rows(folder.path / "work" / spec.metrics.file, spec.metrics)
    return tuple(dict.fromkeys(row.metric for row in rows))


def _module(found: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    name = found[1]
    places = [place / leaf for place in (root, root / "src") for leaf in (name, f"{name}.py")]
    own = next((path for path in places if path.exists()), None)
    if own is not None:
        return f"code: [{own.relative_to(root).as_posix()}], and its folder on the script's sys.path or PYTHONPATH"
    with_python = "{python}" in spec.command
    where = f"{{python}} is {sys.executable}" if with_python else f"the program is {spec.command[0]}"
    return f"install {name} for it, or name another program: {where}"


def _file(found: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    name = found[1]
    if Path(name).is_absolute() or not (root / name).exists():
        return f"put {name} there, or name the right path (relative to {root}: {{root}}/PATH)"
    return f"working_directory: root, or {{root}}/{name}: a run starts in a directory of its own"


def _flags(found: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    known = sorted(set(re.findall(r"--[A-Za-z][\w-]*", _tail(folder.path / "stderr.txt"))) - {found[1].split("=")[0]})
    close = nearest(found[1].split("=")[0], known) if known else ""
    return f"command: a flag that the script has{f' ({close})' if close else ''}"


def _value_after_flag(found: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    name = found[1].lstrip("-").replace("-", "_")
    return f'command: a word "{{{found[1]} if {name}}}", which is left out where {name} is false'


def _metric(found: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    names = recorded(spec, folder)
    if found[1] in names:
        return f"record {found[1]} at the last step too, or name another step in the claim: read: {{step: N}}"
    return f"the run recorded {', '.join(names[:8]) or 'nothing'}; " + (
        nearest(found[1], names) if names else "its script must write metrics"
    )


def _missing(found: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    home = folder.path / "work"
    left = sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
    if left:
        return f"metrics: {{file: {visible(left[0])}}}, if that is it; the run left {visible(', '.join(left[:5]))}"
    return "write the file named by ABLATE_METRICS, or a path under {run_dir}; or call ablate.log(step, {...})"


def _csv(found: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    first = _text(folder.path / "work" / spec.metrics.file).partition("\n")[0]
    if "," in first and not first.startswith(("{", "[")):
        return f"a name that ends in .csv: metrics: {{file: {Path(spec.metrics.file).stem}.csv, step: STEP_COLUMN}}"
    return 'a line {"step": 10, "val/loss": 2.31} per step'


def _range(found: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    limits = spec.metrics.range_of(found[1])
    return "" if limits is None else range_fix(found[1], limits)


_KNOWN: tuple[tuple[str, Callable[[re.Match[str], CommandSpec, RunFolder, Path], str]], ...] = (
    (r"No module named '([\w.]+)'", _module),
    (r"argument (--[\w-]+)(?:/-\w+)?: ignored explicit argument", _value_after_flag),
    (r"unrecognized arguments: (\S+)", _flags),
    (r"arguments are required: (--[\w-]+)", lambda found, *_: f"command: {found[1]}, which the script requires"),
    (r"[Nn]o such option:? (--?[\w-]+)", _flags),
    (r"No such file or directory: '([^']+)'", _file),
    (r"no (\S+) at step \d+", _metric),
    (r"is not there", _missing),
    (r"line \d+: not JSON", _csv),
    (r"it is empty", lambda *_: "write at least the claimed metrics at the last step"),
    (r"(\S+) is (nan|inf|-inf), which is not finite", lambda *_: "leave such a value out, or record it as train/loss"),
    (r"(\S+) is (?:above|below) \S+, the (?:largest|smallest) value that it can have", _range),
    (r"no column '([^']+)'; there are (.+)", lambda *_: "metrics: {step: COLUMN, columns: {METRIC: COLUMN}}"),
)


def same_values(one: Iterable[tuple[int, str, float]], other: Sequence[tuple[int, str, float]]) -> bool:
    """Whether two runs recorded the same values, metrics of time apart."""
    return [row for row in one if not _is_time(row[1])] == [row for row in other if not _is_time(row[1])]


def _is_time(metric: str) -> bool:
    return re.search(r"time|second|speed|_s$|/s$|per_s|throughput", metric) is not None


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return ""


def _tail(path: Path) -> str:
    return _text(path)[-_TAIL_CHARACTERS:]
