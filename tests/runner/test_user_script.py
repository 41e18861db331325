"""A user's PyTorch script, unchanged but for four lines, gives the same bits whichever way its study is launched."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import made_once
from launchers import Launcher, LocalLauncher, SlurmLauncher, outcomes, starts
from own_trainer import OwnHouse

import ablate
from ablate.records.store import RunFolder

pytestmark = pytest.mark.usefixtures("no_reports")

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "plain_torch"
COLUMNS = {
    "own/processes": "processes",
    "train/loss": "train_loss",
    "val/loss": "val_loss",
    "val/accuracy": "val_acc",
}


def register(house: OwnHouse, study: str, script: str, seeds: list[int]) -> Path:
    """A study of the example with fewer seeds, in a house that holds nothing else of it but the script."""
    shutil.copy(FOLDER / script, house.path / script)
    document = yaml.safe_load((FOLDER / "studies" / f"{study}.yaml").read_text(encoding="utf-8"))
    house.register(document | {"seeds": seeds})
    return house.path / "studies" / f"{study}.yaml"


def sealed_values(house: OwnHouse, study: str) -> dict[str, dict[tuple[int, str], str]]:
    """ARM/SEED -> (epoch, metric) -> value in hexadecimal, of every sealed run."""
    folders = [path.parent for path in house.path.glob(f"data/runs/{study}/*/*/*/metrics.parquet")]
    return {
        f"{folder.parent.name}/{folder.name}": {
            (row.step, row.metric): row.value.hex() for row in RunFolder(folder).sealed_rows()
        }
        for folder in folders
    }


def by_hand(file: Path, *program: str, dropout: float, seed: int) -> None:
    """Run a program of the example where no study is, which writes a file."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ABLATE_")}
    words = [f"--dropout={dropout}", f"--seed={seed}", f"--out={file}"]
    subprocess.run([sys.executable, *program, *words], cwd=FOLDER, env=environment, check=True)


def written_values(file: Path) -> dict[tuple[int, str], str]:
    """(epoch, metric) -> value in hexadecimal, of what a program has written."""
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    columns = {metric: column for metric, column in COLUMNS.items() if column in rows[0]}
    return {(int(row["epoch"]), metric): float(row[column]).hex() for row in rows for metric, column in columns.items()}


@pytest.fixture(scope="session")
def two_by_hand(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[tuple[int, str], str], ...]:
    """The values of `none/1` and `half/2`: the same reference for every launcher, so that they equal each other too."""

    def make(folder: Path) -> None:
        folder.mkdir()
        by_hand(folder / "none.csv", "train.py", dropout=0.0, seed=1)
        by_hand(folder / "half.csv", "train.py", dropout=0.5, seed=2)

    made = made_once("by-hand", tmp_path_factory, make)
    return written_values(made / "none.csv"), written_values(made / "half.csv")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_launcher_gives_the_bits_of_the_script_run_by_hand(
    launcher: Launcher, two_by_hand: tuple[dict[tuple[int, str], str], ...]
) -> None:
    # Each run loads torch and scikit-learn for 5 s. A whole study is made on this machine, elsewhere the two runs that
    # were made by hand; whole studies of a lighter script are made by each launcher in test_faults.py.
    launcher.path = register(launcher.house, "dropout", "train.py", [1, 2])
    is_local = isinstance(launcher, LocalLauncher)
    runs = ["none/1", "half/2", "none/2", "half/1"] if is_local else ["none/1", "half/2"]
    launcher.at_once, launcher.n_runs, launcher.only = 2, len(runs), () if is_local else tuple(runs)
    launcher.finish()
    values = sealed_values(launcher.house, "dropout")
    assert values.keys() == set(runs)
    assert outcomes(launcher.house).keys() == values.keys() and set(starts(launcher.house).values()) == {1}
    assert (values["none/1"], values["half/2"]) == two_by_hand
    assert len({json.dumps(sorted(run.items())) for run in values.values()}) == len(values), "no two runs are alike"
    if is_local:
        decided = ablate.decide(launcher.path).decision
        assert decided.gives_verdict and not decided.deviations


ELSEWHERE = [pytest.param(name, marks=pytest.mark.long) for name in ("slurm", "ray", "commands")]
"""A run under torchrun imports torch three times: the other launchers have their turn at night."""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("launcher", ["local", *ELSEWHERE], indirect=True)
def test_under_torchrun_two_processes_train_each_run(launcher: Launcher, tmp_path: Path) -> None:
    launcher.path = register(launcher.house, "dropout_ddp", "train_ddp.py", [1, 2])
    launcher.at_once, launcher.patience_s = 2, 900
    launcher.launch()
    launcher.wait()
    if isinstance(launcher, SlurmLauncher):
        launcher.launch()  # the second call collects
        launcher.wait()
    values = sealed_values(launcher.house, "dropout_ddp")
    assert values.keys() == outcomes(launcher.house).keys() == {"none/1", "none/2", "half/1", "half/2"}
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train_ddp.py")
    by_hand(tmp_path / "by_hand.csv", *torchrun, dropout=0.5, seed=2)
    assert values["half/2"] == written_values(tmp_path / "by_hand.csv"), "two processes add in one order"
    for run in values.values():
        assert {value for (_, metric), value in run.items() if metric == "own/processes"} == {(2.0).hex()}
        assert len(run) == 12 * 4, "one process writes, every epoch once"
