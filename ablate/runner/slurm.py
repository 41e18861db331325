"""A study on a cluster with Slurm: its parts as the tasks of one job array.

Slurm decides when and where a task runs; which runs are made, and which are sealed, is decided by the study's own files
alone. A job id is for people to read: after a controller has lost its state, ids come again.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import yaml
from pydantic import Field, ValidationError

from prereg.errors import RunError, Where
from prereg.frozen import FrozenModel
from prereg.registry.disk import write_whole
from prereg.registry.paths import Root

SETTINGS = "cluster.yaml"
NOTICE_S = 120
"""Seconds before its time limit that a task is sent its signal: it saves checkpoints, and is queued again."""
_OURS = ("array", "job-name", "output", "error", "open-mode", "requeue", "no-requeue", "signal", "wrap", "chdir")
_QUERY_S = 10.0


class SlurmSettings(FrozenModel):
    """How the tasks of a study are submitted. None of it is registered."""

    tasks: int | None = Field(default=None, ge=1, le=100_000)
    """Tasks of the job array; by default one per run that is left, and at most 100."""
    at_once: int | None = Field(default=None, ge=1)
    """Tasks that run at the same time at most."""
    options: dict[str, str | int | float | bool] = {}
    """Long options of sbatch by name, such as partition, time, gres, account, cpus-per-task, mem."""


class Job(FrozenModel):
    """What was submitted."""

    id: str
    """Slurm's number."""
    at: str
    """When."""
    tasks: int
    """Tasks of the array."""
    script: str
    """The job script, from the root."""


def read_settings(root: Root, flags: Sequence[str] = ()) -> SlurmSettings:
    """What `cluster.yaml` in the root says under `slurm`, and KEY=VALUE flags over it. Raises `RunError`."""
    path = root.path / SETTINGS
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _wrong(f"it is not YAML: {str(error).splitlines()[0]}", path) from None
    given = found.get("slurm") if isinstance(found, dict) and set(found) <= {"slurm"} else None
    if found and not isinstance(given, dict):
        raise _wrong("it has no section slurm alone", path)
    settings: dict[str, object] = dict(given or {})
    options = settings.get("options") or {}
    if not isinstance(options, dict):
        raise _wrong("slurm.options is no mapping", path)
    for flag in flags:
        key, equals, value = flag.partition("=")
        if not equals or not key:
            raise RunError(f"--slurm {flag}", required="KEY=VALUE", fix="--slurm partition=gpu --slurm tasks=8")
        if key in ("tasks", "at_once"):
            settings[key] = int(value) if value.isdecimal() else value
        else:
            options = {**options, key: value}
    for key, value in options.items():
        if key in _OURS or not re.fullmatch(r"[a-z][a-z-]*", str(key)) or not str(value).isprintable():
            raise RunError(
                f"the option {key!s} of sbatch is not one to choose here",
                required=f"a long option of sbatch, none of {', '.join(_OURS)}",
                fix="--slurm partition=gpu --slurm time=4:00:00 --slurm gres=gpu:1",
            )
    try:
        return SlurmSettings.model_validate({**settings, "options": options})
    except ValidationError as error:
        first = error.errors()[0]
        raise RunError(
            f"slurm: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            required="tasks, at_once, and options of sbatch under options",
            fix=f"edit {path}, or --slurm tasks=8",
        ) from None


def submit(
    root: Root, runs: Path, name: str, words: Sequence[str], settings: SlurmSettings, *, left: int, at: str
) -> Job:
    """Submit the parts that make what is left, as one job array. `words` are those of `ablate run`, without the part.

    Raises `RunError` where sbatch refuses, or a job that was submitted before has not ended.
    """
    if queued := queue(newest_job(runs)):
        counts = ", ".join(f"{count} {state.lower()}" for state, count in queued.items())
        job = newest_job(runs)
        assert job is not None
        raise RunError(
            f"job {job.id} of '{name}', submitted {job.at}, has not ended: {counts}",
            required="one job array of a study at a time",
            fix=f"wait for it (ablate status), or: scancel {job.id}",
        )
    tasks = min(settings.tasks or 100, left)
    folder = runs / ".slurm"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"{name}.py"
    write_whole(script, _script(name, folder, words, settings, tasks).encode())
    try:
        command = ["sbatch", "--parsable", str(script)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root.path)
    except FileNotFoundError:
        raise RunError(
            "--on slurm, and there is no sbatch here",
            required="a machine from which jobs are submitted",
            fix="log in to one, or: ablate run STUDY --part I/N under another scheduler",
        ) from None
    number = done.stdout.strip().partition(";")[0]
    if done.returncode != 0 or not number.isdecimal():
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise RunError(
            f"sbatch refused the job: {said}",
            required="options that this cluster takes",
            fix=f"--slurm KEY=VALUE, or edit {root.path / SETTINGS}",
        )
    job = Job(id=number, at=at, tasks=tasks, script=script.relative_to(root.path).as_posix())
    write_whole(folder / "job.json", job.model_dump_json().encode())
    return job


def newest_job(runs: Path) -> Job | None:
    """The last job that was submitted for the runs of a registration."""
    with suppress(OSError, ValidationError):
        return Job.model_validate_json((runs / ".slurm" / "job.json").read_bytes())
    return None


def queue(job: Job | None) -> dict[str, int]:
    """How many tasks of a job are in which state, by Slurm; none where it does not know the job, or does not answer."""
    if job is None:
        return {}
    words = ["squeue", "--noheader", "--array", "--jobs", job.id, "--format", "%T %j"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_QUERY_S)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    counts: dict[str, int] = {}
    for line in done.stdout.splitlines():
        state, _, name = line.partition(" ")
        if name.strip() == f"ablate-{Path(job.script).stem}":  # another job may have the number by now
            counts[state] = counts.get(state, 0) + 1
    return counts


def run_task(words: Sequence[str], of: int) -> NoReturn:
    """One task of the job array: the part with its number, until it has ended or is to be queued again."""
    again = False
    part = f"{os.environ['SLURM_ARRAY_TASK_ID']}/{of}"
    child = subprocess.Popen([sys.executable, "-m", "ablate", *words, "--part", part])

    def stop(_signal: int, _frame: object) -> None:
        child.send_signal(signal.SIGTERM)

    def stop_and_queue(_signal: int, _frame: object) -> None:
        nonlocal again
        again = True
        child.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGUSR1, stop_and_queue)
    status = child.wait()
    if again and status == 130:
        number = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
        requeue = ["scontrol", "requeue", number]
        subprocess.run(requeue, check=False)
    sys.exit(status)


def _script(name: str, folder: Path, words: Sequence[str], settings: SlurmSettings, tasks: int) -> str:
    at_once = f"%{settings.at_once}" if settings.at_once else ""
    options: Mapping[str, object] = {
        "job-name": f"ablate-{name}",
        "array": f"1-{tasks}{at_once}",
        "output": str(folder / "%A_%a.txt"),
        "open-mode": "append",
        "requeue": True,
        "signal": f"B:USR1@{NOTICE_S}",
        **settings.options,
    }
    lines = [f"#SBATCH --{key}" if value is True else f"#SBATCH --{key}={shlex.quote(str(value))}"
             for key, value in options.items() if value is not False]  # fmt: skip
    call = f"from ablate.runner.slurm import run_task\n\nrun_task({json.dumps(list(words))}, of={tasks})\n"
    return "\n".join([f"#!{sys.executable}", *lines, "", call])


def _wrong(found: str, path: Path) -> RunError:
    return RunError(
        f"{path.name}: {found}",
        required="slurm: {tasks: 8, at_once: 4, options: {partition: gpu, time: '4:00:00'}}",
        fix=f"edit {path}",
        where=Where(file=path),
    )
