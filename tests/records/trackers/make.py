"""Writes the files next to it with the libraries themselves: README.md says how, and with which versions.

Arms slow and fast, seeds 1 to 3, four steps; `value(arm, seed)` is the validation loss at the last one.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

CELLS = [(arm, seed) for seed in (1, 2, 3) for arm in ("slow", "fast")]
STEPS = (1, 2, 3, 4)


def value(arm: str, seed: int) -> float:
    return 1.0 + seed / 8 + (arm == "slow") * (4 + seed) / 16


def in_mlflow(folder: Path) -> None:
    """A file store as a training script leaves it, and the table of its runs as CSV."""
    os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    import mlflow

    mlflow.set_tracking_uri((folder / "mlruns").as_uri())
    mlflow.set_experiment("sweep")
    for arm, seed in CELLS:
        with mlflow.start_run(run_name=f"{arm}-{seed}"):
            mlflow.log_params({"model": arm, "seed": seed, "lr": 0.1})
            for step in STEPS:
                mlflow.log_metric("train_loss", 3.0 / step, step=step)
            mlflow.log_metric("val_loss", value(arm, seed), step=STEPS[-1])
    mlflow.search_runs(experiment_names=["sweep"]).to_csv(folder / "mlflow_search_runs.csv", index=False)
    shutil.make_archive(str(folder / "mlruns"), "zip", folder, "mlruns")


def on_tensorboard(folder: Path) -> None:
    """Event files of torch's SummaryWriter: simple values of seeds 1 and 2, and tensors of seed 3."""
    from torch.utils.tensorboard import SummaryWriter

    for arm, seed in CELLS:
        with SummaryWriter(str(folder / "runs" / arm / f"seed{seed}")) as writer:
            for step in STEPS:
                writer.add_scalar("train/loss", 3.0 / step, step, new_style=seed == 3)
            writer.add_scalar("val/loss", value(arm, seed), STEPS[-1], new_style=seed == 3)
            writer.add_text("note", "no scalar", 0)
    for path in folder.glob("runs/*/*/events*"):
        path.rename(path.with_name("events.out.tfevents.0.host.0.0"))  # in place of the time and the machine's name
    shutil.make_archive(str(folder / "tensorboard"), "zip", folder, "runs")


if __name__ == "__main__":
    folder = Path(sys.argv[2]).resolve()
    {"mlflow": in_mlflow, "tensorboard": on_tensorboard}[sys.argv[1]](folder)
