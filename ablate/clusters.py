"""A study's parts on a cluster: submitted to Slurm, or as tasks of Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ablate.checking import check
from ablate.notebook.results import Ran
from ablate.pins import require_pinned
from ablate.registering import register
from ablate.runner.options import RunOptions
from ablate.running import run, runs_left
from ablate.workspace import HERE, StudySource, Workspace
from prereg.errors import RunError
from prereg.registry.paths import resolved

if TYPE_CHECKING:
    from ablate.runner.slurm import Job
    from prereg.registry.paths import Root
    from prereg.registry.registration import Registration


@dataclass(frozen=True)
class Prepared:
    """A registered study, ready for parts."""

    root: Root
    registration: Registration
    registered_now: bool
    left: int
    """Runs that are not sealed."""
    words: tuple[str, ...]
    """The command of every part, but for its number."""


@dataclass(frozen=True)
class Submitted:
    """What a call of `submit` did."""

    registration: Registration
    registered_now: bool
    left: int
    """Runs that were not sealed."""
    job: Job | None
    """None where no run was left."""


def submit(
    study: StudySource,
    options: RunOptions = RunOptions(),  # noqa: B008
    *,
    flags: Sequence[str] = (),
    workspace: Workspace = HERE,
    accept_underpowered: str | None = None,
    pilot: str | None = None,
) -> Submitted:
    """Register if need be, and submit the rest of the plan to Slurm; `flags` are KEY=VALUE over `cluster.yaml`.

    Raises `StudyError` where the study cannot be carried out, or Slurm does not take it.
    """
    from ablate.runner.slurm import read_settings
    from ablate.runner.slurm import submit as submit_parts

    settings = read_settings(check(study, workspace).root, flags)
    ready = _prepared(study, options, workspace=workspace, accepted=accept_underpowered, pilot=pilot)
    job = None
    if ready.left:
        name = ready.registration.study.study
        runs = ready.root.runs(name, ready.registration.runs_sha256)
        job = submit_parts(ready.root, runs, name, ready.words, settings, left=ready.left, at=workspace.clock())
    return Submitted(ready.registration, ready.registered_now, ready.left, job)


def run_on_ray(
    study: StudySource,
    options: RunOptions = RunOptions(),  # noqa: B008
    *,
    tasks: int | None = None,
    address: str | None = None,
    workspace: Workspace = HERE,
    accept_underpowered: str | None = None,
    pilot: str | None = None,
) -> Ran:
    """Register if need be, make the rest of the plan by tasks of a Ray cluster, and return how far it is.

    Raises `StudyError` where the study cannot be carried out, there is no cluster, or its tasks left runs unmade.
    """
    from ablate.runner.ray_cluster import run_parts

    ready = _prepared(study, options, workspace=workspace, accepted=accept_underpowered, pilot=pilot)
    if ready.left:
        slots = () if options.slots is not None else ("--slots", "1")
        run_parts((*ready.words, *slots), tasks=tasks, left=ready.left, address=address, note=workspace.watcher.note)
        left = _prepared(study, options, workspace=workspace, accepted=accept_underpowered, pilot=pilot).left
        if left:
            raise RunError(
                f"the tasks have ended, and {left} runs are not sealed",
                required="runs that end well",
                fix="ablate status STUDY, then the same command again",
            )
    return run(study, options, workspace=workspace)


def _prepared(
    study: StudySource,
    options: RunOptions,
    *,
    workspace: Workspace,
    accepted: str | None,
    pilot: str | None,
) -> Prepared:
    from ablate.runner.machine import require_devices
    from prereg.registry.plan import planned_runs

    context = check(study, workspace)
    if options.part is not None:
        raise RunError("--part with --on", required="one of them: each task is a part", fix="leave --part out")
    require_devices(context.study, options)
    before = context.load_registration()
    planned_runs(context.study if before is None else before.study, options.only)
    if before is not None:
        require_pinned(context, before)
    registration, entry = register(context.path, workspace=workspace, accept_underpowered=accepted, pilot=pilot)
    left, _ = runs_left(context, registration, planned_runs(registration.study, options.only))
    words = ("run", str(resolved(context.path)), "--root", str(context.root.path.resolve()), *options.words())
    return Prepared(context.root, registration, entry is not None, len(left), words)
