"""Trial (`ablate try`): short runs on seeds outside the plan, in a folder of their own, that find mistakes and costs.

A trial run is made by the same worker as a planned one, from the same pinned bytes. Nothing goes into the ledger, and
no value of a metric is shown but the loss by which a run diverged: a trial finds mistakes and costs, never which arm is
better.

To add a check: in `TrialMaker.make` for one run, in `_compare_runs` for what no run shows by itself; it appends a
`Problem`, which says what to change, or a note where nothing is wrong. Tests: tests/runner/test_try.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from time import perf_counter
from typing import Any, Literal

from ablate.gpt.device import CPU, choose_device
from ablate.records.outputs import RESUMABLE
from ablate.records.rows import Row, divergence_of, read_rows
from ablate.records.store import RunFolder
from ablate.runner.alone import run_alone
from ablate.runner.failures import advise, failure_kind, same_values
from ablate.runner.messages import Message
from ablate.runner.process import Place
from prereg.errors import RunError, StudyError, nearest
from prereg.frozen import FrozenModel
from prereg.metrics.catalogue import task_of
from prereg.registry.paths import Root
from prereg.registry.plan import CommandSpec, RunSpec, plan
from prereg.registry.registration import Registration
from prereg.study.designs.tune import with_choice
from prereg.text import compact

NEAR_LIMIT = 1.5
"""A trial warns of a training loss of more than the limit of divergence divided by this."""

Values = list[tuple[int, str, float]]
"""Step, metric and value of every row of a run."""


class Problem(FrozenModel):
    """What would fail later, and what to do about it."""

    run: str
    """ARM/SEED, or the study."""
    found: str
    """What was found."""
    required: str
    """What is required."""
    fix: str
    """What to do next."""


class TrialRun(FrozenModel):
    """One run of a trial: how it ended and what it cost, no value of a metric."""

    variant: str
    """The arm."""
    seed: int
    """A seed outside the plan."""
    status: Literal["done", "diverged", "stopped", "failed"]
    """How it ended; stopped at the limit of time."""
    steps: int
    """Its last step."""
    seconds: float
    """From its start to its end, the start of its process included."""
    peak_memory_bytes: int | None
    """Most resident memory; none where it was not measured."""
    size_bytes: int
    """What its folder holds."""
    metrics: tuple[str, ...]
    """Names of the metrics that it recorded."""


class TrialSpread(FrozenModel):
    """How noisy a metric is over seeds, as far as a trial can tell; nothing of which arm is better."""

    sd: float
    """SD of one arm over seeds to plan with: the upper end of the range, exceeded in one of five trials."""
    estimate: float
    """The SD that was seen."""
    low: float
    """Lower end of the range."""
    correlation: float | None = None
    """Correlation of two arms over shared seeds to plan with, at its cautious end; none from fewer than ten seeds."""


class Trial(FrozenModel):
    """What a trial found."""

    study: str
    """The study's id."""
    limit_s: float
    """Seconds after which each run was stopped."""
    shortened: tuple[str, ...]
    """Values of the configuration that were replaced in the trial, as PATH=VALUE."""
    runs: tuple[TrialRun, ...]
    """One per arm and seed."""
    problems: tuple[Problem, ...]
    """What would fail later; none where the study is ready."""
    notes: tuple[str, ...]
    """What to know."""
    resumes: Literal["exactly", "with other values", "from the start", "not tested"]
    """Whether a run that was stopped resumes."""
    planned: int
    """Runs of the plan."""
    seconds_in_all: float | None
    """About how long they take one after another; none where no run ended."""
    bytes_in_all: int | None
    """About how much they leave on disk."""
    assume: dict[str, TrialSpread]
    """Metric -> its spread, for `assume:`; empty with fewer than three seeds."""
    metric_correlation: float | None = None
    """Correlation of the noise of two metrics in one run, for `assume:`; none with fewer than ten seeds or two
    metrics."""
    folder: str
    """Where the runs lie; empty where they were removed."""


def at_first_setting(registration: Registration) -> Registration:
    """A study whose pilot has not chosen yet, each arm at the first of its settings; any other as it is."""
    study = registration.study
    if study.tune is None or study.tune.chosen:
        return registration
    first = {arm: settings[0] for arm, settings in study.tune.of(tuple(study.arms)).items()}
    return registration.model_copy(update={"study": with_choice(study, first)})


class TrialMaker:
    """The runs of one trial as they are made. `registration` is what the study would be registered as."""

    def __init__(
        self,
        registration: Registration,
        root: Root,
        *,
        limit_s: float,
        replaced: tuple[str, ...],
        on_run: Callable[[str], None],
    ) -> None:
        registration = at_first_setting(registration)
        self.study, self.root = registration.study, root
        self.limit_s, self.replaced, self.on_run = limit_s, replaced, on_run
        # One planned run per arm; reversed, so that the first of each arm is the one that stays.
        self.specs = {spec.variant: self._shortened(spec) for spec in reversed(plan(registration))}
        self.place = root.trial(self.study.study)
        shutil.rmtree(self.place, ignore_errors=True)
        self.runs: list[TrialRun] = []
        self.rows: dict[tuple[str, int], Values] = {}
        self.problems: list[Problem] = []
        self.kinds: dict[str, int] = {}
        """Kind of failure -> its problem."""
        self.notes: list[str] = []
        self.near_limit: list[str] = []
        """Runs whose training loss came near the limit of divergence, as `ARM/SEED at step N`."""
        self.own = self.study.trainer == "command"

    def make(self, arm: str, seed: int) -> None:
        """One run of the trial, and what is wrong with it."""
        spec, folder = self.specs[arm].model_copy(update={"seed": seed}), self._folder(arm, seed)
        self.on_run(f"{arm}/{seed}")
        started, status, peak, steps = perf_counter(), "failed", None, 0
        try:
            last = self._run(spec, folder, self.limit_s)
            status, peak, steps = last.status or "stopped", last.peak_memory_bytes, last.step
            if last.status == "failed":
                self._failed(f"{arm}/{seed}", str(last.error), spec, folder)
        except StudyError as error:
            self._failed(f"{arm}/{seed}", error.found, spec, folder)
        # Costs from the record where there is one: a run that failed early may have none.
        record = folder.readable_record()
        rows = self._read(spec, folder, sealed=status in ("done", "diverged"))
        self.runs.append(
            TrialRun(
                variant=arm,
                seed=seed,
                status=status,  # type: ignore[arg-type]  # a worker says no other
                steps=steps or (record.steps if record is not None else 0),
                seconds=perf_counter() - started,
                peak_memory_bytes=record.peak_memory_bytes if record and record.peak_memory_bytes else peak,
                size_bytes=sum(path.lstat().st_size for path in folder.path.rglob("*") if path.is_file()),
                metrics=tuple(dict.fromkeys(row.metric for row in rows)),
            )
        )
        # A trainer of the user's own fails by itself here, before its run is sealed.
        absent = {name for name in spec.claimed if task_of(name) is None} - {row.metric for row in rows}
        if status == "done" and not self.own and absent:
            self._failed(f"{arm}/{seed}", f"no value of {', '.join(sorted(absent))}, which is claimed", spec, folder)
        if status in ("done", "diverged"):
            self.rows[arm, seed] = [(row.step, row.metric, row.value) for row in rows]
        if status == "diverged":
            why = "" if record is None or record.divergence is None else f": {record.divergence.words}"
            self.notes.append(f"{arm}/{seed} diverged by the registered rule, at step {steps}{why}")
        else:
            self._look_for_near_limit(f"{arm}/{seed}", spec, rows)

    def _look_for_near_limit(self, run: str, spec: RunSpec | CommandSpec, rows: list[Row]) -> None:
        """Keep in mind a training loss that comes near the declared limit, which a valid planned run may exceed."""
        if spec.diverged_above is None:
            return
        # Of a limit below `NEAR_LIMIT` times the first loss: any loss above the first.
        near = divergence_of(rows, max(1.0, spec.diverged_above / NEAR_LIMIT))
        if near is not None and near.value is not None:
            self.near_limit.append(f"{run} at step {near.step:,}")

    def _note_near_limit(self) -> None:
        """One note for all runs that came near the limit. It shows no value, by which arms could be compared."""
        limit = self.study.stable.diverged.loss_above
        if self.near_limit and limit is not None:
            self.notes.append(
                f"train/loss came within a factor of {NEAR_LIMIT:g} of the limit above which a run has diverged, "
                f"{compact(limit)} times the first that it records: {', '.join(self.near_limit)}; try: a higher "
                "stable.diverged.loss_above, or null (only a loss that is not finite)"
            )

    def result(self, first: int) -> Trial:
        """What the runs show together."""
        # Each question makes sense only where the runs so far show nothing wrong: one mistake is reported once.
        resumes = self._resumes(first) if self.own and not self.problems else "not tested"
        if not self.problems:
            self._compare_runs(first)
        self._note_near_limit()
        ended = [run for run in self.runs if run.status in ("done", "diverged")]
        planned = len(self.study.cells)
        # Kept only where something is wrong, to be looked at: a clean trial leaves nothing that could be taken for a
        # run.
        folder = str(self.place) if self.problems else ""
        if not self.problems:
            shutil.rmtree(self.place, ignore_errors=True)
            with suppress(OSError):
                self.place.parent.rmdir()
        return Trial(
            study=self.study.study,
            limit_s=self.limit_s,
            shortened=self.replaced,
            runs=tuple(self.runs),
            problems=tuple(self.problems),
            notes=tuple(self.notes),
            resumes=resumes,
            planned=planned,
            # A shortened run of one's own trainer says nothing of the whole.
            seconds_in_all=self._seconds(ended) * planned if ended and (self.own <= (not self.replaced)) else None,
            bytes_in_all=round(sum(run.size_bytes for run in ended) / len(ended) * planned) if ended else None,
            assume={},
            folder=folder,
        )

    def _folder(self, arm: str, seed: int, kind: str = "") -> RunFolder:
        return RunFolder(self.place / arm / f"{seed}{kind}")

    def _run(self, spec: RunSpec | CommandSpec, folder: RunFolder, limit_s: float) -> Message:
        device = CPU if self.own else choose_device("auto")
        return run_alone(spec, folder.path, Place(self.root.path, device), limit_s=limit_s)

    def _failed(self, run: str, error: str, spec: RunSpec | CommandSpec, folder: RunFolder) -> None:
        # One mistake, met by several runs, is one problem that names them all.
        index = self.kinds.setdefault(failure_kind(error, spec), len(self.problems))
        if index < len(self.problems):
            problem = self.problems[index]
            self.problems[index] = problem.model_copy(update={"run": f"{problem.run}, {run}"})
            return
        fix = advise(error, spec, folder, self.root.path) if isinstance(spec, CommandSpec) else ""
        stderr = folder.path / "stderr.txt"
        # The built-in trainer leaves an empty one where it ended as it should.
        telling = stderr.is_file() and (self.own or stderr.stat().st_size > 0)
        read = f"read {stderr.relative_to(self.root.path)}" if telling else ""
        self.problems.append(
            Problem(
                run=run,
                found=error,
                required="a run that ends, with its metrics",
                fix="; ".join(filter(None, (fix, read))),
            )
        )

    def _read(self, spec: RunSpec | CommandSpec, folder: RunFolder, *, sealed: bool) -> list[Row]:
        """The rows of a run; of one that was stopped as far as they go, with what is wrong with them by then."""
        if sealed:
            return folder.sealed_rows()
        if not isinstance(spec, CommandSpec):
            return []
        path, run = folder.path / "work" / spec.metrics.file, f"{spec.variant}/{spec.seed}"
        has_problem = any(run in problem.run.split(", ") for problem in self.problems)
        try:
            rows = read_rows(path, spec.metrics, torn=True) if path.is_file() else []
        except StudyError as error:
            if not has_problem:
                self.problems.append(Problem(run=run, found=error.found, required=error.required, fix=error.fix))
            return []
        names = {row.metric for row in rows}
        for metric in () if has_problem else (metric for metric in spec.needed if metric not in names):
            # A name that is nearly right is a mistake; one that is not there may be recorded later than the limit.
            if close := get_close_matches(metric, names, n=1, cutoff=0.8):
                fault, required = f"{close[0]}, and no {metric}", f"the claimed metric under its exact name, {metric}"
                fix = f"the name that the claim has; metrics: {{columns: {{{metric}: {close[0]}}}}} for wide rows"
                self.problems.append(Problem(run=run, found=fault, required=required, fix=fix))
            else:
                self.notes.append(f"{run} was stopped after {self.limit_s:g} s, and had not recorded {metric} yet")
        return rows

    def _compare_runs(self, first: int) -> None:
        """What no run shows by itself: a setting or a seed that changes nothing, arms that end at other steps."""
        # Every pair of arms on the first seed of the trial: the same values at every step mean that a setting never
        # arrived.
        arms = [arm for arm in self.study.arms if (arm, first) in self.rows]
        for at, arm in enumerate(arms):
            for other_arm in arms[at + 1 :]:
                if not same_values(self.rows[arm, first], self.rows[other_arm, first]):
                    continue
                if _settings(self.specs[arm]) == _settings(self.specs[other_arm]):  # they differ in what was shortened
                    shortened = ", ".join(self.replaced)
                    self.notes.append(f"{arm} and {other_arm} are the same under {shortened}, and were not compared")
                    continue
                required, fix = "arms whose settings change what is trained", "other settings, or one arm less"
                if self.own:
                    required = "arms that differ: their settings may not reach the trainer"
                    fix = "hand them over in command: or read ABLATE_CONFIG"
                self.problems.append(
                    Problem(
                        run=f"{arm}, {other_arm}",
                        found="both arms recorded the same values at every step",
                        required=required,
                        fix=fix,
                    )
                )
        if self.own and any(run.status == "stopped" for run in self.runs):
            self.notes.append(
                f"runs were stopped after {self.limit_s:g} s, and so it is not known that every value and the seed "
                "reach the script: --limit SECONDS, or --set PATH=VALUE for a shorter run"
            )
        last = {arm: max(step for step, *_ in self.rows[arm, first]) for arm in arms}
        if len(set(last.values())) > 1:
            last_steps = ", ".join(f"{arm} at {step:,}" for arm, step in last.items())
            self.notes.append(
                f"the arms end at different steps ({last_steps}), and a claim reads each at its own last one"
            )
        if self.own and arms and not self.problems:
            self._require_seed(arms[0], first)

    def _require_seed(self, arm: str, first: int) -> None:
        """Another seed must give other values: without variation there is no test."""
        if (arm, first + 1) not in self.rows:
            if not self._in_time(arm, first):
                return
            self.make(arm, first + 1)
        if (arm, first + 1) in self.rows and same_values(self.rows[arm, first], self.rows[arm, first + 1]):
            self.problems.append(
                Problem(
                    run=f"{arm}/{first}, {arm}/{first + 1}",
                    found="two seeds gave the same values at every step",
                    required="a trainer that draws its randomness from the seed",
                    fix='command: "--seed={seed}", or ablate.seed(), or ABLATE_SEED',
                )
            )

    def _resumes(self, first: int) -> Literal["exactly", "with other values", "from the start", "not tested"]:
        """Stop a run halfway, start it again, and compare with the one that was not stopped.

        On record later as `redrawn`: a trainer that resumes with other values has two outcomes for one seed.
        """
        # One arm on one seed: resuming is a matter of the trainer, not of its settings.
        arm = self.study.baseline
        if (arm, first) not in self.rows or not self._in_time(arm, first):
            return "not tested"
        record = self._folder(arm, first).readable_record()
        took = record.wall_s if record is not None else 0.0
        spec, folder = self.specs[arm].model_copy(update={"seed": first}), self._folder(arm, first, "-resumed")
        self.on_run(f"{arm}/{first}, stopped and resumed")
        if self._run(spec, folder, 0.5 * took).event != "stopped":  # it ended within half its time: nothing to resume
            return "not tested"
        if not (folder.path / "work" / RESUMABLE).is_file():
            return "from the start"
        last = self._run(spec, folder, self.limit_s)
        if last.status == "failed":
            self._failed(f"{arm}/{first} resumed", str(last.error), spec, folder)
        if last.status not in ("done", "diverged"):
            return "not tested"
        resumed = [(row.step, row.metric, row.value) for row in folder.sealed_rows()]
        return "exactly" if same_values(self.rows[arm, first], resumed) else "with other values"

    def _in_time(self, arm: str, seed: int) -> bool:
        took = next(run.seconds for run in self.runs if (run.variant, run.seed) == (arm, seed))
        return took < self.limit_s / 2

    def _seconds(self, ended: list[TrialRun]) -> float:
        """Seconds of a whole run: of the built-in trainer its steps scaled up, evaluation and start as they were."""
        if self.own:
            return sum(run.seconds for run in ended) / len(ended)
        full_run_s = []
        for run in ended:
            record = self._folder(run.variant, run.seed).readable_record()
            budget = self.study.training(run.variant).budget
            train_s = record.train_s if record is not None else 0.0
            # seconds + train_s * (planned steps / steps of the trial - 1): what is no training costs as much in a
            # long run.
            full_run_s.append(run.seconds + train_s * (budget.steps / max(1, run.steps) - 1.0))
        return sum(full_run_s) / len(full_run_s)

    def _shortened(self, spec: RunSpec | CommandSpec) -> RunSpec | CommandSpec:
        """The run with the values that the trial replaces."""
        if not self.replaced:
            return spec
        # Without `needed` steps for one's own trainer, as a shortened run records other ones; the built-in budget
        # says them itself.
        plain = isinstance(spec, CommandSpec)
        tree = json.loads(json.dumps(spec.config)) if plain else spec.config.model_dump(mode="json", exclude_unset=True)  # type: ignore[union-attr]
        for path, value in map(assignment, self.replaced):
            _put(tree, path, value, must_exist=plain)
        if plain:
            return spec.model_copy(update={"config": tree, "needed": dict.fromkeys(spec.needed, ())})
        tree["budget"].pop("tokens", None)  # tokens and steps are two ways to say the same; --set has said steps
        try:
            config = type(spec.config).model_validate_json(json.dumps(tree))  # type: ignore[union-attr]
        except ValueError as error:
            raise RunError(f"--set {', '.join(self.replaced)}: {str(error).splitlines()[-2].strip()}") from error
        return spec.model_copy(update={"config": config})


def _settings(spec: RunSpec | CommandSpec) -> dict[str, Any]:
    return spec.config if isinstance(spec, CommandSpec) else spec.config.model_dump()


def assignment(text: str) -> tuple[str, object]:
    """Path and value of PATH=VALUE, the value read as JSON where it is some. Raises `RunError`."""
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise RunError(
            f"--set {text}", required="PATH=VALUE, a value of the configuration", fix="--set budget.steps=20"
        )
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


def _put(tree: dict[str, object], path: str, value: object, *, must_exist: bool) -> None:
    """Set a value by its dotted path. Raises `RunError` for a path that a user's own configuration does not have."""
    *sections, name = path.split(".")
    inside: object = tree
    for section in sections:
        inside = inside.get(section) if must_exist else inside.setdefault(section, {})  # type: ignore[attr-defined]
        if not isinstance(inside, dict):
            break
    if not isinstance(inside, dict) or (must_exist and name not in inside):
        raise RunError(
            f"--set {path}: the configuration has no such value",
            required="the dotted path of a value under base",
            fix=nearest(path, list(_paths(tree))),
        )
    inside[name] = value


def _paths(tree: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        yield from _paths(value, f"{prefix}{name}.") if isinstance(value, dict) else [prefix + name]
