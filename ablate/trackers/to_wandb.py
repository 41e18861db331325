"""A mirror in W&B, on its site or offline. Nothing of the process, its command line or the repository is recorded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ablate.trackers.target import Conclusion, Group, SealedRun, Target
from prereg.errors import RunError
from prereg.registry.disk import write_whole

if TYPE_CHECKING:
    from wandb import Run

_BEGIN_S = 20.0
"""Seconds that a run may take to begin. By default W&B waits longer, and at the end of a run for ever."""
_END_S = 60.0
_SERVICE = "WANDB_SERVICE"


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
