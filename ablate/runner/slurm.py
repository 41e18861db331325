"""Slurm: a study on its cluster, its runs as the tasks of one job array, each of which calls `ablate train`.

Slurm decides when and where a task runs; which runs are made, and which are sealed, is decided by the study's own files
alone. A job id is for people to read: after a controller has lost its state, ids come again.

    runs / .slurm / N.json    which task makes which runs
    runs / .slurm / N.py      the job script: `run_task` in each task
    runs / .slurm / job.json  the newest `Job`
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
"""Seconds before its time limit that a task is sent its signal: its run saves its state, and is queued again."""
MOST_TASKS = 1000
"""Slurm's own default limit of an array (MaxArraySize is 1001)."""
_OURS = ("array", "job-name", "output", "error", "open-mode", "requeue", "no-requeue", "signal", "wrap", "chdir")
_QUERY_S = 10.0
_STOPPED = 130
"""The exit status of `ablate train` for a run that was stopped and can go on."""


class SlurmSettings(FrozenModel):
    """How the runs of a study are submitted. None of it is registered."""

    tasks: int | None = Field(default=None, ge=1, le=100_000)
    """Tasks of the job array, to which the runs are dealt; by default one per run, and at most 1,000."""
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
    """What `cluster.yaml` in the root says under `slurm`, and KEY=VALUE flags over it. Raises `RunError`.

    >>> settings = read_settings(Root(Path(".")), ["tasks=8", "partition=gpu"])
    >>> settings.tasks, settings.options
    (8, {'partition': 'gpu'})
    """
    path = root.path / SETTINGS
    try:
        # One section, so that another tool's file of this name is refused and not half understood.
        content = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _wrong(f"it is not YAML: {str(error).splitlines()[0]}", path) from None
    section = content.get("slurm") if isinstance(content, dict) and set(content) <= {"slurm"} else None
    if content and not isinstance(section, dict):
        raise _wrong("it has no section slurm alone", path)
    settings: dict[str, object] = dict(section or {})
    options = settings.get("options") or {}
    if not isinstance(options, dict):
        raise _wrong("slurm.options is no mapping", path)
    for flag in flags:
        key, equals, value = flag.partition("=")
        if not equals or not key:
            raise RunError(f"--slurm {flag}", required="KEY=VALUE", fix="--slurm partition=gpu --slurm tasks=8")
        if key in ("tasks", "at_once"):  # what is no number is left for the model to refuse
            settings[key] = int(value) if value.isdecimal() else value
        else:
            options = {**options, key: value}
    # They become lines of a job script: a newline in a value would be another line, an option of ours would undo it.
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


def require_slurm() -> None:
    """Raise `RunError` where no job can be submitted from here."""
    from shutil import which

    if which("sbatch") is None:
        raise RunError(
            "there is no sbatch here",
            required="a machine from which jobs can be submitted to Slurm",
            fix="log in to one, or: ablate plan STUDY --commands, under another scheduler",
        )


def submit(
    root: Root, runs: Path, name: str, commands: Sequence[Sequence[str]], settings: SlurmSettings, *, at: str
) -> Job:
    """Submit runs as one job array. `commands` are the words of `ablate` that make one run each.

    They are dealt to the tasks like cards, so that each task makes its share one after another. Raises `RunError`
    where sbatch refuses.
    """
    folder = runs / ".slurm"
    folder.mkdir(parents=True, exist_ok=True)
    # A number of our own: job ids come again, and tasks of two submissions must not share a plan.
    number = 1 + max((int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()), default=0)
    # Each task its every `tasks`-th run: 10 runs on 3 tasks are 4, 3 and 3.
    tasks = min(settings.tasks or MOST_TASKS, len(commands))
    shares = [commands[task::tasks] for task in range(tasks)]
    plan, script = folder / f"{number}.json", folder / f"{number}.py"
    # Both files are whole before the job exists: a task may begin before sbatch returns.
    write_whole(plan, json.dumps(shares, indent=1).encode())
    write_whole(script, _script(f"ablate-{name}-{number}", folder, plan, settings, tasks).encode())
    words = ["sbatch", "--parsable", str(script)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    job_id = done.stdout.strip().partition(";")[0]
    if done.returncode != 0 or not job_id.isdecimal():
        last_line = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise RunError(
            f"sbatch refused the job: {last_line}",
            required="options that this cluster takes",
            fix=f"--slurm KEY=VALUE, or edit {root.path / SETTINGS}",
        )
    job = Job(id=job_id, at=at, tasks=tasks, script=script.relative_to(root.path).as_posix())
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
    n_by_state: dict[str, int] = {}
    for line in done.stdout.splitlines():
        state, _, name = line.partition(" ")
        if name.strip().startswith("ablate-") and name.strip().endswith(f"-{Path(job.script).stem}"):
            n_by_state[state] = n_by_state.get(state, 0) + 1  # another job may have the number by now
    return n_by_state


def run_task(plan: str) -> NoReturn:
    """One task of the job array: the runs of its share, one after another.

    SIGTERM (a preemption, or `scancel`) stops the run, which saves its state. SIGUSR1, which comes before the time
    limit, does the same, and then the task is queued again: Slurm starts it anew, and its runs go on.
    """
    shares = json.loads(Path(plan).read_bytes())
    number = os.environ["SLURM_ARRAY_TASK_ID"]
    run: subprocess.Popen[bytes] | None = None
    stopped = again = False

    def stop(received: int, _frame: object) -> None:
        nonlocal stopped, again
        stopped, again = True, again or received == signal.SIGUSR1
        if run is not None:
            run.send_signal(signal.SIGTERM)

    # "signal": B:USR1 goes to the batch process alone, and each run gets SIGTERM from here.
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGUSR1, stop)
    status = 0
    for words in shares[int(number) - 1]:
        if stopped:
            break
        run = subprocess.Popen([sys.executable, "-m", "ablate", *words])
        status = max(status, run.wait())
    if again and status in (0, _STOPPED):  # a run that failed is not tried again by itself
        words = ["scontrol", "requeue", f"{os.environ['SLURM_ARRAY_JOB_ID']}_{number}"]
        subprocess.run(words, check=False)
    sys.exit(status)


def _script(job_name: str, folder: Path, plan: Path, settings: SlurmSettings, tasks: int) -> str:
    at_once = f"%{settings.at_once}" if settings.at_once else ""  # sbatch's own notation: 1-8%4
    options: Mapping[str, object] = {
        "job-name": job_name,
        "array": f"1-{tasks}{at_once}",
        "output": str(folder / "%A_%a.txt"),
        "open-mode": "append",
        "requeue": True,
        "signal": f"B:USR1@{NOTICE_S}",
        **settings.options,
    }
    lines = [
        f"#SBATCH --{key}" if value is True else f"#SBATCH --{key}={shlex.quote(str(value))}"
        for key, value in options.items()
        if value is not False  # an option that cluster.yaml switches off
    ]
    call = f"from ablate.runner.slurm import run_task\n\nrun_task({str(plan)!r})\n"
    return "\n".join([f"#!{sys.executable}", *lines, "", call])


def _wrong(fault: str, path: Path) -> RunError:
    return RunError(
        f"{path.name}: {fault}",
        required="slurm: {tasks: 8, at_once: 4, options: {partition: gpu, time: '4:00:00'}}",
        fix=f"edit {path}",
        where=Where(file=path),
    )
