"""A mirror in MLflow, through its client alone: nothing of the process or of its command line is recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ablate.trackers.target import Conclusion, Group, SealedRun, Target
from prereg.errors import RunError

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

Sent = TypeVar("Sent")
MASK = "ablate.mirror"
OUTCOME = "ablate.outcome_sha256"
_MOST_METRICS = 1000
_MOST_PARAMS = 100
_LONGEST = 5000
"""Characters of a parameter or a note; MLflow takes 6000 or more."""


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
