"""What `--mirror` sends to MLflow, TensorBoard and W&B, each through its own library, imported when it is named.

Nothing of the process, its command line or the repository is recorded. TensorBoard's event files lie in:

    DIR/STUDY-REGISTRATION/blind/MASK     health while the study is blind
    DIR/STUDY-REGISTRATION/ARM/seedN      everything, after the decision; ablate.json names the outcome
    DIR/STUDY-REGISTRATION/verdict        the verdict and the findings as text
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from ablate.trackers.target import Conclusion, Group, SealedRun, Target, Tracker, parse_target
from prereg.errors import RunError
from prereg.registry.disk import write_whole
from prereg.registry.paths import resolved

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from wandb import Run


Sent = TypeVar("Sent")
MASK = "ablate.mirror"
OUTCOME = "ablate.outcome_sha256"
_MOST_METRICS = 1000
_MOST_PARAMS = 100
_LONGEST = 5000
"""Characters of a parameter or a note; MLflow takes 6000 or more."""
MARKER = "ablate.json"
_BEGIN_S = 20.0
"""Seconds that a run may take to begin. By default W&B waits longer, and at the end of a run for ever."""
_END_S = 60.0
_SERVICE = "WANDB_SERVICE"


def client_of(target: Target) -> MlflowClient:
    """A client of the target's server or store. Raises `RunError` where this installation cannot use it."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    try:
        return MlflowClient(tracking_uri=target.place)
    except MlflowException as error:
        raise RunError(
            f"'{target}': {str(error).splitlines()[0]}",
            required="a tracking server, or a store that the installed MLflow can open",
            fix="--mirror mlflow:http://HOST:PORT   (sqlite:///FILE needs the whole of it: pip install mlflow)",
        ) from None


class MlflowTracker:
    """One MLflow run for each planned run, found again by the tag of its mask, in the experiment of the study."""

    def __init__(self, target: Target, group: Group) -> None:
        self._client = client_of(target)
        self._group = group
        self._experiment = ""
        self._runs: dict[str, str] = {}
        self._open: set[str] = set()

    def health(self, mask: str, step: int, values: Mapping[str, float]) -> None:
        run = self._run(mask)
        if mask not in self._open:
            self._client.update_run(run, status="RUNNING")
            self._open.add(mask)
        for name, value in values.items():
            self._client.log_metric(run, name, value, step=step)

    def ended(self, mask: str, state: str) -> None:
        self._client.set_terminated(self._run(mask), "FAILED" if state == "failed" else "FINISHED")
        self._open.discard(mask)

    def send(self, run: SealedRun) -> bool:
        from mlflow.entities import Metric, Param

        known = self._run(run.mask)
        if self._client.get_run(known).data.tags.get(OUTCOME) == run.outcome_sha256:
            return False
        self._client.update_run(known, name=f"{run.variant}/seed{run.seed}")
        params = [Param(name, word[:_LONGEST]) for name, word in run.facts.items()]
        for some in _batches(params, _MOST_PARAMS):
            self._client.log_batch(known, params=some)
        # The time is the run's own, so that a store that keeps one value of a step and a time keeps it once.
        metrics = [
            Metric(name, value, run.ended_ms, step)
            for step, found in run.curves.items()
            for name, value in found.items()
        ]
        for some_metrics in _batches(metrics, _MOST_METRICS):
            self._client.log_batch(known, metrics=some_metrics)
        self._client.set_tag(known, "ablate.status", run.status)
        self._client.set_terminated(known, "FINISHED")
        self._client.set_tag(known, OUTCOME, run.outcome_sha256)
        return True

    def conclude(self, conclusion: Conclusion) -> None:
        known = self._run(conclusion.mask)
        self._client.update_run(known, name=f"{self._group.study}: verdict")
        for name, word in conclusion.facts.items():
            self._client.set_tag(known, f"ablate.{name}", word[:_LONGEST])
        self._client.set_tag(known, "mlflow.note.content", conclusion.words[:_LONGEST])
        self._client.set_terminated(known, "FINISHED")

    def close(self) -> None:
        for mask in sorted(self._open):
            self._client.set_terminated(self._run(mask), "KILLED")
        self._open.clear()

    def _run(self, mask: str) -> str:
        if mask in self._runs:
            return self._runs[mask]
        if not self._experiment:
            there = self._client.get_experiment_by_name(self._group.study)
            self._experiment = (
                there.experiment_id if there is not None else self._client.create_experiment(self._group.study)
            )
        found = self._client.search_runs([self._experiment], f"tags.`{MASK}` = '{mask}'", max_results=1)
        tags = {MASK: mask, "ablate.registration": self._group.registration}
        run = found[0] if found else self._client.create_run(self._experiment, run_name=mask, tags=tags)
        self._runs[mask] = run.info.run_id
        return self._runs[mask]


def _batches(whole: Sequence[Sent], most: int) -> Iterator[Sequence[Sent]]:
    for first in range(0, len(whole), most):
        yield whole[first : first + most]


class TensorboardTracker:
    """A folder of event files for each run."""

    def __init__(self, target: Target, group: Group) -> None:
        self._base = resolved(Path(target.place).expanduser()) / group.name
        self._open: dict[str, EventFileWriter] = {}

    def health(self, mask: str, step: int, values: Mapping[str, float]) -> None:
        if mask not in self._open:
            self._open[mask] = _writer(self._base / "blind" / mask)
        _numbers(self._open[mask], step, values, time.time())
        self._open[mask].flush()

    def ended(self, mask: str, state: str) -> None:
        if mask in self._open:
            self._open.pop(mask).close()

    def send(self, run: SealedRun) -> bool:
        place = self._base / run.variant / f"seed{run.seed}"
        marker = place / MARKER
        if marker.is_file() and json.loads(marker.read_bytes()).get("outcome_sha256") == run.outcome_sha256:
            return False
        facts = {**run.facts, "status": run.status, "outcome_sha256": run.outcome_sha256}
        _write(place, run.facts, facts, run.curves, run.ended_ms / 1000)
        return True

    def conclude(self, conclusion: Conclusion) -> None:
        texts = {**conclusion.facts, "words": conclusion.words}
        _write(self._base / "verdict", texts, conclusion.facts)

    def close(self) -> None:
        for mask in list(self._open):
            self._open.pop(mask).close()


def _write(
    place: Path,
    texts: Mapping[str, str],
    facts: Mapping[str, str],
    curves: Mapping[int, Mapping[str, float]] = MappingProxyType({}),
    at: float = 0.0,
) -> None:
    """A folder of event files in place of an earlier one, named by its facts. One that is not ours stays as it is."""
    if place.exists() and not (place / MARKER).is_file():
        raise FileExistsError(17, "a folder of this name is there that no mirror wrote", str(place))
    half = place.with_name(f".{place.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    writer = _writer(half)
    for name, word in texts.items():
        _text(writer, name, word)
    for step, values in curves.items():
        _numbers(writer, step, values, at)
    writer.close()
    (half / MARKER).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    if place.exists():
        shutil.rmtree(place)
    half.rename(place)


def _writer(folder: Path) -> EventFileWriter:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    return EventFileWriter(str(folder))


def _numbers(writer: EventFileWriter, step: int, values: Mapping[str, float], at: float) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_DOUBLE
    from tensorboard.plugins.scalar.metadata import create_summary_metadata

    kind = create_summary_metadata("", "")
    found = [
        Summary.Value(tag=name, metadata=kind, tensor=TensorProto(dtype=DT_DOUBLE, double_val=[value]))
        for name, value in values.items()
    ]
    writer.add_event(Event(wall_time=at, step=step, summary=Summary(value=found)))


def _text(writer: EventFileWriter, name: str, word: str) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.text.metadata import create_summary_metadata

    text = TensorProto(dtype=DT_STRING, string_val=[word.encode()])
    value = Summary.Value(tag=name, metadata=create_summary_metadata("", ""), tensor=text)
    writer.add_event(Event(wall_time=0.0, step=0, summary=Summary(value=[value])))


def require_key(target: Target) -> None:
    """Raises `RunError` where W&B would have to ask for a key."""
    import wandb

    with _own_service():
        mode = wandb.setup().settings.mode
    if mode in ("online", "shared") and not wandb.login(prompt=False, verify=False):
        raise RunError(
            f"'{target}', and no key of W&B is known here",
            required="a key, or W&B offline",
            fix="wandb login   (or: export WANDB_MODE=offline)",
        )


@contextmanager
def _own_service() -> Iterator[None]:
    """W&B names its service in the environment, where a user's trainer would find it and share it."""
    earlier = os.environ.get(_SERVICE)
    yield
    if earlier is None:
        os.environ.pop(_SERVICE, None)


class WandbTracker:
    """One W&B run for each planned run; its id is the mask. What was sent is kept on this disk: W&B may be offline."""

    def __init__(self, target: Target, group: Group) -> None:
        self._group, self._project = group, target.place or group.study
        self._open: dict[str, Run] = {}
        self._sent_path = group.home / f"{group.name}.wandb.json"

    def health(self, mask: str, step: int, values: Mapping[str, float]) -> None:
        self._run(mask).log({**values, "step": step})

    def ended(self, mask: str, state: str) -> None:
        if mask in self._open:
            self._open.pop(mask).finish(exit_code=int(state == "failed"))

    def send(self, run: SealedRun) -> bool:
        sent = self._sent()
        key = f"{self._project}/{run.mask}"
        if sent.get(key) == run.outcome_sha256:
            return False
        known = self._run(run.mask, f"{run.variant}/seed{run.seed}")
        known.config.update({**run.config, "variant": run.variant, "seed": run.seed}, allow_val_change=True)  # type: ignore[no-untyped-call]
        for step, values in run.curves.items():
            known.log({**values, "step": step})
        _summarise(known, {"status": run.status, "outcome_sha256": run.outcome_sha256})
        self.ended(run.mask, run.status)
        write_whole(self._sent_path, json.dumps(sent | {key: run.outcome_sha256}, indent=2).encode() + b"\n")
        return True

    def conclude(self, conclusion: Conclusion) -> None:
        known = self._run(conclusion.mask, f"{self._group.study}: verdict")
        known.notes = conclusion.words
        _summarise(known, conclusion.facts)
        self.ended(conclusion.mask, "done")

    def close(self) -> None:
        for mask in list(self._open):
            self.ended(mask, "stopped")

    def _sent(self) -> dict[str, str]:
        try:
            return dict(json.loads(self._sent_path.read_bytes()))
        except FileNotFoundError:
            return {}

    def _run(self, mask: str, name: str | None = None) -> Run:
        if mask in self._open:
            return self._open[mask]
        import wandb

        # The command line and the repository name arms; the terminal is ours.
        settings = wandb.Settings(
            console="off",
            init_timeout=_BEGIN_S,
            finish_timeout=_END_S,
            finish_timeout_raises=True,
            silent=True,
            program="ablate",
            disable_code=True,
            disable_git=True,
            disable_job_creation=True,
            save_code=False,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
        )
        folder = os.environ.get("WANDB_DIR") or str(self._group.home)
        with _own_service():
            run = wandb.init(
                project=self._project,
                id=mask,
                name=name or mask,
                group=self._group.name,
                dir=folder,
                reinit="create_new",
                resume="allow",
                settings=settings,
            )
        run.define_metric("step")
        run.define_metric("*", step_metric="step")
        self._open[mask] = run
        return run


def _summarise(run: Run, facts: Mapping[str, str]) -> None:
    for name, word in facts.items():
        run.summary[name] = word


def usable(word: str) -> Target:
    """The tracker of a `--mirror`. Raises `RunError` where it cannot be used; nothing is sent to it yet."""
    target = parse_target(word)
    if target.kind == "mlflow":
        client_of(target)
    if target.kind == "wandb":
        require_key(target)
    return target


def open_tracker(target: Target, group: Group) -> Tracker:
    """The tracker of a target, ready for the runs of a group."""
    if target.kind == "mlflow":
        return MlflowTracker(target, group)
    return TensorboardTracker(target, group) if target.kind == "tensorboard" else WandbTracker(target, group)
