"""Divergence of a user's own trainer: by default a loss that is not finite, else by the declared limit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from own_trainer import OwnHouse
from typer.testing import CliRunner

import ablate
from ablate.cli import app
from prereg.registry.paths import Root
from prereg.registry.plan import plan
from prereg.registry.registration import load_registration

BATCHES = """
import json, os
seed = int(os.environ["ABLATE_SEED"])
fast = os.environ["ABLATE_VARIANT"] == "fast"
losses = [0.0073, {second}, 0.021, 0.013]
with open("metrics.jsonl", "w") as out:
    for step, loss in enumerate(losses, 1):
        value = 2.0 - 0.1 * step - 0.3 * fast + (seed * 7919 * (step + fast) % 13) / 1000
        row = {{"step": step, "train/loss": loss + seed / 1e6 - fast / 1e5, "val/loss": value}}
        print(json.dumps(row), file=out)
"""
"""A script that logs the loss of single batches, the second of which is 7 times the first."""


def house_of_batches(path: Path, *, second: str = "0.0500", **changes: Any) -> OwnHouse:
    house = OwnHouse(path)
    house.script(BATCHES.format(second=second))
    house.register(
        seeds=[1, 2, 3],
        decision=[{"verdict": "take fast", "when": "supported(gain)"}, {"verdict": "inconclusive"}],
        **changes,
    )
    return house


@pytest.mark.usefixtures("no_reports")
def test_losses_of_single_batches_are_no_divergence_by_default(tmp_path: Path) -> None:
    house = house_of_batches(tmp_path)
    assert ablate.run(house.study).summary.complete
    records = [json.loads(path.read_text()) for path in house.path.glob("data/runs/*/*/*/*/run.json")]
    assert [record["status"] for record in records] == ["done"] * 6
    assert all(record["divergence"] is None for record in records)
    assert ablate.decide(house.study).decision.verdict == "take fast"


def test_the_lock_states_the_limit_and_an_earlier_one_keeps_its_own(tmp_path: Path) -> None:
    house_of_batches(tmp_path)
    lock = json.loads((tmp_path / "studies" / "own.lock.json").read_text())
    assert lock["study"]["stable"]["diverged"] == {"loss_above": None}
    root = Root(tmp_path.resolve())
    assert {spec.diverged_above for spec in plan(load_registration(root, "own"))} == {None}
    # A registration from before this default holds 2, and so do its runs.
    earlier = house_of_batches(tmp_path / "earlier", stable={"diverged": {"loss_above": 2.0}})
    assert {spec.diverged_above for spec in plan(load_registration(Root(earlier.path.resolve()), "own"))} == {2.0}


NAN = """
import json, os
seed = int(os.environ["ABLATE_SEED"])
bad = os.environ["ABLATE_VARIANT"] == "fast" and seed == 2
nan = float("nan")
rows = {rows}
with open("metrics.jsonl", "w") as out:
    for row in rows if bad else [{{"step": 1, "train/loss": 2.0, "val/loss": 2.0 + seed / 100}}]:
        print(json.dumps(row), file=out)
"""
"""A script that writes some rows for one seed of one arm, and a finite one for all others."""


@pytest.mark.parametrize(
    "rows",
    [
        '[{"step": 1, "train/loss": nan, "val/loss": nan}]',
        '[{"step": 1, "train/loss": nan}, {"step": 2, "train/loss": nan, "val/loss": nan}]',
        '[{"step": 1, "train/loss": 2.0, "val/loss": 2.0}, {"step": 2, "val/loss": nan, "train/loss": nan}]',
        '[{"step": 1, "metric": "val/loss", "value": nan}, {"step": 1, "metric": "train/loss", "value": nan}]',
    ],
)
def test_a_run_whose_metrics_are_nan_with_its_loss_has_diverged_and_is_not_made_again(
    rows: str, tmp_path: Path
) -> None:
    house = OwnHouse(tmp_path)
    house.script(NAN.format(rows=rows))
    house.register(seeds=[1, 2, 3])
    ablate.run(house.study)
    path = house.run_folder("fast", 2) / "run.json"
    record = path.read_bytes()
    assert json.loads(record)["status"] == "diverged"
    assert ablate.run(house.study).summary.complete and path.read_bytes() == record, "an outcome, and no second draw"


def test_a_metric_that_is_nan_while_the_loss_is_finite_is_a_mistake_with_its_line(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path)
    rows = '[{"step": 1, "train/loss": 2.0, "val/loss": 2.0}, {"step": 2, "train/loss": 2.0, "val/loss": nan}]'
    house.script(NAN.format(rows=rows))
    house.register(seeds=[1, 2, 3])
    ablate.run(house.study)
    record = json.loads((house.run_folder("fast", 2) / "run.json").read_text())
    assert record["status"] == "failed" and "line 2: 'val/loss': val/loss is nan, which is not finite" in str(record)


@pytest.mark.usefixtures("no_reports")
def test_a_loss_that_is_not_finite_has_diverged_by_default(tmp_path: Path) -> None:
    house = house_of_batches(tmp_path, second="float('nan') if fast and seed == 2 else 0.05")
    shown = CliRunner().invoke(app, ["run", str(house.study), "--jobs", "1"])
    assert "fast/2: diverged: train/loss is not finite at step 2\n" in shown.output
    record = json.loads((house.run_folder("fast", 2) / "run.json").read_text())
    assert record["status"] == "diverged"
    assert record["divergence"] == {
        "metric": "train/loss", "step": 2, "value": None, "first": None, "limit": None, "stated": False
    }  # fmt: skip


@pytest.mark.slow
def test_who_declares_a_limit_reads_value_limit_step_and_metric(
    tmp_path: Path,
) -> None:
    house = house_of_batches(
        tmp_path, second="0.05 if fast and seed == 2 else 0.009", stable={"diverged": {"loss_above": 4}}
    )
    shown = CliRunner().invoke(app, ["run", str(house.study), "--jobs", "1"])
    sentence = r"train/loss is 0\.049992 at step 2, above the limit of 0\.029168 \(4 times the first, 0\.007292\)"
    assert re.search("fast/2: diverged: " + sentence, shown.output)
    record = json.loads((house.run_folder("fast", 2) / "run.json").read_text())
    assert record["status"] == "diverged" and record["divergence"]["metric"] == "train/loss"
    assert (record["divergence"]["step"], record["divergence"]["value"]) == (2, pytest.approx(0.049992))
    assert record["divergence"]["limit"] == pytest.approx(4 * record["divergence"]["first"]) == pytest.approx(0.029168)
    ablate.decide(house.study)
    ablate.report(house.study)
    page = (tmp_path / "reports" / "own" / "report.md").read_text()
    assert "fast seed 2 diverged" in page and re.search(sentence, page)
    assert CliRunner().invoke(app, ["verify", str(house.study)]).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "warned"), [(4, True), (5, True), (20, False), (None, False)])
def test_a_trial_warns_where_the_first_steps_come_near_the_limit(
    tmp_path: Path, limit: float | None, warned: bool
) -> None:
    house = OwnHouse(tmp_path)
    house.script(BATCHES.format(second="0.0073 * 3.5"))
    house.write(stable={"diverged": {"loss_above": limit}})
    notes = [note for note in ablate.try_out(house.study).notes if "within a factor of 1.5 of the limit" in note]
    assert len(notes) == warned
    for note in notes:
        assert f"{limit} times the first that it records: slow/4 at step 2, fast/4 at step 2, " in note
        assert "0.02" not in note  # no value of an arm
