"""Callback for the Trainer of Hugging Face `transformers`: records its metrics, in a training script of your own.

    trainer = Trainer(..., callbacks=[AblateCallback()])
    trainer.train(resume_from_checkpoint=last_checkpoint(training_args.output_dir))

Without a study both do nothing.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from ablate.client import log

NAMES = {"loss": "train/loss"}
"""Names of the Trainer -> names of the study. Of others, `eval_NAME` becomes `val/NAME`; the rest is not recorded."""


class AblateCallback(TrainerCallback):
    """Records what the Trainer logs, at its steps; and says that a run can resume once a checkpoint was saved."""

    def __init__(self, names: Mapping[str, str] = NAMES) -> None:
        self.names = names
        self._resumed_at: int | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raises `ValueError` where the Trainer would hide that a loss is not finite."""
        if "ABLATE_METRICS" not in os.environ:
            return
        if args.logging_nan_inf_filter:
            raise ValueError(
                "the Trainer records a loss that is not finite as another number: a run that diverged would pass for "
                "one that did not; try: TrainingArguments(..., logging_nan_inf_filter=False)"
            )
        self._resumed_at = state.global_step or None  # 0 in a first attempt

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """The Trainer logs the training loss every `logging_steps`, and each evaluation when it has been made."""
        if "ABLATE_METRICS" not in os.environ or not state.is_world_process_zero:
            return
        if state.global_step == self._resumed_at:
            return  # an evaluation at the start of a resumed run, which was recorded before the checkpoint
        values = {self._name(key): float(value) for key, value in (logs or {}).items() if self._name(key)}
        # A metric that does not apply is NaN; only a loss may be, where training has diverged.
        values = {name: value for name, value in values.items() if math.isfinite(value) or name.endswith("loss")}
        if values:
            log(state.global_step, values)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """From here on the run resumes, if the script gives `last_checkpoint` to `Trainer.train`."""
        if "ABLATE_RUN_DIR" in os.environ and state.is_world_process_zero:
            (Path(os.environ["ABLATE_RUN_DIR"]) / "resumable").touch()

    def _name(self, key: str) -> str:
        if key in self.names:
            return self.names[key]
        # Times and counts of an evaluation depend on the machine, and are no outcome.
        timed = key.endswith(("_runtime", "_per_second"))
        return f"val/{key.removeprefix('eval_')}" if key.startswith("eval_") and not timed else ""


def last_checkpoint(folder: str | Path) -> str | None:
    """The newest checkpoint of a run that is resumed; none in a first attempt, and without a study.

    Not that of the last step: resumed there, the Trainer takes a step more. Without an earlier one the run starts over.
    """
    if int(os.environ.get("ABLATE_ATTEMPT", "1")) == 1 or not Path(folder).is_dir():
        return None
    # The state of the Trainer is the last file of a checkpoint: without it the save was cut off.
    complete = [path.parent for path in Path(folder).glob("checkpoint-*/trainer_state.json") if _has_steps_left(path)]
    return max((str(path) for path in complete), key=lambda name: int(name.rpartition("-")[2]), default=None)


def _has_steps_left(state: Path) -> bool:
    try:
        progress = json.loads(state.read_text(encoding="utf-8"))
        return bool(progress["global_step"] < progress["max_steps"])
    except (ValueError, KeyError, TypeError):
        return False  # cut off while it was written
