"""Failed runs: the advice to the user (`advise`), whether one left values, whether two failed in the same way.

To add advice for an error: its pattern in `_KNOWN`, before any that matches more, with a function that says what to
write in the study file; and a trainer that fails in that way in tests/runner/test_commands.py.
"""

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
    # What a trainer dies of is in its last lines; a megabyte of its log would be searched by a dozen patterns.
    stderr_tail = _tail(folder.path / "stderr.txt")
    for pattern, advice in _KNOWN:
        # In the order of `_KNOWN`: the first advice that fits is given, and no second.
        match = re.search(pattern, f"{error}\n{stderr_tail}")
        if match is not None and (text := advice(match, spec, folder, root)):
            return text
    return ""


def left_values(spec: Planned, folder: RunFolder) -> bool:
    """Whether a run that failed left a value of a claimed metric."""
    return bool(_claimed(spec, folder))


def claimed_values(spec: Planned, folder: RunFolder) -> dict[str, float]:
    """METRIC at STEP -> finite value of every claimed metric, as far as what a run has recorded can be read.

    For run.json, where a resumed attempt is compared with what the one before had recorded. Shown nowhere.
    """
    return {place_of(row): row.value for row in _claimed(spec, folder) if math.isfinite(row.value)}


def _claimed(spec: Planned, folder: RunFolder) -> list[Row]:
    rows = readable_rows(folder.path / "work" / spec.metrics.file, spec.metrics)
    return [row for row in rows if row.metric in spec.claimed]


def place_of(row: Row) -> str:
    """METRIC at STEP.

    >>> place_of(Row(10, "val/loss", 2.5))
    'val/loss at 10'
    """
    return f"{row.metric} at {row.step}"


def failure_kind(error: str, spec: Planned) -> str:
    """An error without what differs from run to run: two of the same kind end a call where no run has ended well.

    >>> from types import SimpleNamespace
    >>> spec = SimpleNamespace(variant="wide", run_id="width/1f/wide/3")
    >>> failure_kind("data/wide/3/x: line 14", spec) == failure_kind("data/wide/12/x: line 5", spec)
    True
    """
    # Seeds, steps, line numbers, addresses and sizes differ between runs that fail for one reason.
    return re.sub(r"[0-9]+", "0", error.replace(f"/{spec.variant}/", "/").replace(spec.run_id, ""))


def recorded(spec: CommandSpec, folder: RunFolder) -> tuple[str, ...]:
    """Names of the metrics that a run left, as far as they can be read."""
    rows = readable_rows(folder.path / "work" / spec.metrics.file, spec.metrics)
    return tuple(dict.fromkeys(row.metric for row in rows))


def _module(match: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    name = match[1]
    # A module of the project itself is nothing to install: it lies where the copy of the code that a run gets does
    # not show it.
    places = [place / leaf for place in (root, root / "src") for leaf in (name, f"{name}.py")]
    own = next((path for path in places if path.exists()), None)
    if own is not None:
        return f"code: [{own.relative_to(root).as_posix()}], and its folder on the script's sys.path or PYTHONPATH"
    with_python = "{python}" in spec.command
    where = f"{{python}} is {sys.executable}" if with_python else f"the program is {spec.command[0]}"
    return f"install {name} for it, or name another program: {where}"


def _file(match: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    name = match[1]
    # There, but not from where the run starts: a run has a working directory of its own.
    if Path(name).is_absolute() or not (root / name).exists():
        return f"put {name} there, or name the right path (relative to {root}: {{root}}/PATH)"
    return f"working_directory: root, or {{root}}/{name}: a run starts in a directory of its own"


def _flags(match: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    flags = sorted(set(re.findall(r"--[A-Za-z][\w-]*", _tail(folder.path / "stderr.txt"))) - {match[1].split("=")[0]})
    close = nearest(match[1].split("=")[0], flags) if flags else ""
    return f"command: a flag that the script has{f' ({close})' if close else ''}"


def _value_after_flag(match: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    name = match[1].lstrip("-").replace("-", "_")
    return f'command: a word "{{{match[1]} if {name}}}", which is left out where {name} is false'


def _metric(match: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    names = recorded(spec, folder)
    if match[1] in names:
        return f"record {match[1]} at the last step too, or name another step in the claim: read: {{step: N}}"
    return f"the run recorded {', '.join(names[:8]) or 'nothing'}; " + (
        nearest(match[1], names) if names else "its script must write metrics"
    )


def _missing(match: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    home = folder.path / "work"
    left = sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
    if left:
        return f"metrics: {{file: {visible(left[0])}}}, if that is it; the run left {visible(', '.join(left[:5]))}"
    return "write the file named by ABLATE_METRICS, or a path under {run_dir}; or call ablate.log(step, {...})"


def _csv(match: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    first = _text(folder.path / "work" / spec.metrics.file).partition("\n")[0]
    if "," in first and not first.startswith(("{", "[")):
        return f"a name that ends in .csv: metrics: {{file: {Path(spec.metrics.file).stem}.csv, step: STEP_COLUMN}}"
    return 'a line {"step": 10, "val/loss": 2.31} per step'


def _range(match: re.Match[str], spec: CommandSpec, folder: RunFolder, root: Path) -> str:
    limits = spec.metrics.range_of(match[1])
    return "" if limits is None else range_fix(match[1], limits)


# Python's, argparse's and click's words, then this package's own, of `ablate.records.rows`.
_KNOWN: tuple[tuple[str, Callable[[re.Match[str], CommandSpec, RunFolder, Path], str]], ...] = (
    (r"No module named '([\w.]+)'", _module),
    (r"argument (--[\w-]+)(?:/-\w+)?: ignored explicit argument", _value_after_flag),
    (r"unrecognized arguments: (\S+)", _flags),
    (r"arguments are required: (--[\w-]+)", lambda match, *_: f"command: {match[1]}, which the script requires"),
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


def same_values(first: Iterable[tuple[int, str, float]], second: Sequence[tuple[int, str, float]]) -> bool:
    """Whether two runs recorded the same values, metrics of time apart: those differ between equal runs.

    >>> same_values([(1, "val/loss", 2.5), (1, "step_time", 0.1)], [(1, "val/loss", 2.5), (1, "step_time", 0.2)])
    True
    """
    return [row for row in first if not _is_time(row[1])] == [row for row in second if not _is_time(row[1])]


def _is_time(metric: str) -> bool:
    # By name alone, since a user's own trainer declares no kind of its metrics. A loss whose name looks like a time
    # is left out of the comparison with it.
    return re.search(r"time|second|speed|_s$|/s$|per_s|throughput", metric) is not None


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return ""


def _tail(path: Path) -> str:
    return _text(path)[-_TAIL_CHARACTERS:]
