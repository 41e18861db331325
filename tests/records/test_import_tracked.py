"""Runs that trackers hold: the same rows as a file would give, and what is left out is named."""

from __future__ import annotations

import csv
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from own_trainer import SCRIPT, OwnHouse
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from ablate.records.rows import TableLayout
from ablate.records.store import RunFolder
from ablate.records.tables import read_mapping
from ablate.records.tracked import Tracked, read_tracked
from ablate.runner.process import tracker_names
from ablate.running import Imported
from prereg.errors import EvidenceError, StudyError
from prereg.registry.plan import CommandSpec, plan

# Importing them takes seconds, which every worker of the tests would spend on collecting this file.
if not (find_spec("mlflow") and find_spec("tensorboard")):
    pytest.skip("mlflow or tensorboard is not installed", allow_module_level=True)

CELLS = [(arm, seed) for seed in (1, 2, 3) for arm in ("slow", "fast")]
VALUES = {cell: 1.0 + number / 10 for number, cell in enumerate(CELLS)}


@pytest.fixture
def house(own_house: OwnHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnHouse:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    own_house.register()
    return own_house


def read(house: OwnHouse, source: str, pattern: str | None = None, **layout: Any) -> Tracked:
    return read_tracked(source, api.load(house.study), TableLayout(**layout, run_pattern=pattern))


def bring(house: OwnHouse, source: str, **options: Any) -> Imported:
    return api.import_runs(house.study, source, note="from a tracker", exploratory=True, **options)


def refused(house: OwnHouse, source: str, match: str, **options: Any) -> None:
    before = house.snapshot()
    with pytest.raises(StudyError, match=match):
        bring(house, source, **options)
    after = house.snapshot()
    after.pop("data/runs/own/.lock", None)
    assert after == before


def in_mlflow(place: Path, experiment: str = "mine") -> Any:
    """A store with every run, arm and seed as parameters, and its client."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=place.as_uri())
    known = client.create_experiment(experiment)
    for (arm, seed), value in VALUES.items():
        run = client.create_run(known, run_name=f"{arm}-{seed}").info.run_id
        client.log_param(run, "model", arm)
        client.set_tag(run, "rng", str(seed))
        client.log_metric(run, "loss", 3.0, step=1)
        client.log_metric(run, "loss", value, step=4)
        client.log_metric(run, "health/step", 4.0, step=4)
        client.set_terminated(run)
    return client, known


def on_board(place: Path, *, steps: int = 4, only: tuple[str, ...] = ()) -> None:
    """Event files as other tools write them: single precision, a folder for each run."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for (arm, seed), value in VALUES.items():
        if only and f"{arm}/{seed}" not in only:
            continue
        writer = EventFileWriter(str(place / f"{seed}_{arm}"))
        for step in range(1, steps + 1):
            found = [Summary.Value(tag="train/loss", simple_value=3.0)]
            found += [Summary.Value(tag="val/loss", simple_value=value)] if step == 4 else []
            writer.add_event(Event(wall_time=1.0, step=step, summary=Summary(value=found)))
        writer.close()


def test_mlflow_gives_rows_by_parameters_tags_or_names(house: OwnHouse, tmp_path: Path) -> None:
    in_mlflow(tmp_path / "ml")
    source = f"mlflow:{(tmp_path / 'ml').as_uri()}#mine"
    found = read(house, source, arm="model", seed="rng", metrics={"val/loss": "loss"})
    assert set(found.rows) == set(CELLS) and found.left_out == ()
    for cell, rows in found.rows.items():
        assert [(row.step, row.metric, row.value) for row in rows] == [
            (1, "val/loss", 3.0),
            (4, "val/loss", VALUES[cell]),
        ]
    assert read(house, source, "{variant}-{seed}", metrics={"val/loss": "loss"}).rows == found.rows
    words = ["import", str(house.study), source, "--note", "x"]
    words += ["--arm-column", "model", "--seed-column", "rng", "--column", "val/loss=loss"]
    with pytest.raises(EvidenceError, match="neither when they were made"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    words.append("--exploratory")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "6 runs imported, exploratory" in done.output
    assert RunFolder(house.run_folder("fast", 3)).sealed_rows()[-1].value == VALUES["fast", 3]


def test_what_mlflow_has_not_finished_is_left_out_and_named(house: OwnHouse, tmp_path: Path) -> None:
    client, known = in_mlflow(tmp_path / "ml")
    source = f"mlflow:{(tmp_path / 'ml').as_uri()}#mine"
    names = {run.info.run_name: run.info.run_id for run in client.search_runs([known])}
    client.update_run(names["slow-1"], status="RUNNING")
    client.set_terminated(names["fast-2"], "KILLED")
    client.set_terminated(client.create_run(known, run_name="odd").info.run_id)
    layout = TableLayout(arm="model", seed="rng", metrics={"val/loss": "loss"})
    done = bring(house, source, layout=layout)
    assert len(done.imported) == 4 and done.missing == 2
    assert sorted(done.unfinished) == [
        "fast-2: killed",
        "odd: no 'model' among its parameters and tags",
        "slow-1: running",
    ]


def test_faults_of_a_tracker_change_nothing(house: OwnHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, known = in_mlflow(tmp_path / "ml")
    uri = (tmp_path / "ml").as_uri()
    layout = TableLayout(arm="model", seed="rng", metrics={"val/loss": "loss"})
    (first, *_) = client.search_runs([known], "tags.rng = '1' and params.model = 'slow'")
    refused(house, f"mlflow:{uri}#other", "no experiment 'other'")
    refused(house, f"mlflow:{uri}", "the source 'mlflow:")
    refused(house, f"mlflow:{uri}#mine", "no 'variant' among its parameters and tags")
    refused(house, f"mlflow:{uri}#mine", "each once", run_pattern="{variant}")
    client.log_metric(first.info.run_id, "loss", 2.5, step=4)
    refused(house, f"mlflow:{uri}#mine", "val/loss at step 4 is 1.0 and 2.5", layout=layout)
    client.set_tag(first.info.run_id, "rng", "x")
    refused(house, f"mlflow:{uri}#mine", "which is not a whole number", layout=layout)
    client.set_tag(first.info.run_id, "rng", "2")
    refused(house, f"mlflow:{uri}#mine", "a second run of slow seed 2", layout=layout)
    client.set_tag(first.info.run_id, "rng", "9")
    client.delete_run(first.info.run_id)
    assert len(read(house, f"mlflow:{uri}#mine", arm="model", seed="rng").rows) == 5
    client.restore_run(first.info.run_id)
    client.log_metric(first.info.run_id, "bad", float("nan"), step=4)
    refused(house, f"mlflow:{uri}#mine", "bad is nan", layout=TableLayout(arm="model", seed="rng"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    refused(house, "mlflow:http://127.0.0.1:9#mine", "mlflow:http")
    refused(house, "wandb:proj", "no stable way")
    refused(house, "tensorboard:nowhere", "no such folder")
    refused(house, str(tmp_path), "--run-pattern", run_pattern="{variant}/{seed}")


def test_tensorboard_gives_rows_by_a_pattern(house: OwnHouse, tmp_path: Path) -> None:
    on_board(tmp_path / "tb")
    found = read(house, "tensorboard:tb", "{seed}_{variant}")
    assert set(found.rows) == set(CELLS) and found.left_out == ()
    for cell, rows in found.rows.items():
        assert [(r.step, r.value) for r in rows if r.metric == "train/loss"] == [(step, 3.0) for step in (1, 2, 3, 4)]
        (last,) = [row for row in rows if row.metric == "val/loss"]
        assert last.step == 4 and last.value == pytest.approx(VALUES[cell], rel=1e-7)
    done = bring(house, "tensorboard:tb", run_pattern="{seed}_{variant}")
    assert len(done.imported) == 6 and not done.bound


def test_a_folder_without_a_claimed_value_is_left_out_and_named(house: OwnHouse, tmp_path: Path) -> None:
    on_board(tmp_path / "tb", only=("slow/1", "fast/1"))
    on_board(tmp_path / "tb", steps=3, only=("slow/2",))
    on_board(tmp_path / "tb" / "else", only=("slow/3",))
    done = bring(house, "tensorboard:tb", run_pattern="{seed}_{variant}")
    assert sorted(done.imported) == ["fast/1", "slow/1"]
    assert done.unfinished == (
        "slow seed 2: no val/loss at step 3, its last",
        "else/3_slow: its name is not of the pattern",
    )


TRACKED = """
import mlflow
with mlflow.start_run():
    for line in open("metrics.jsonl"):
        row = json.loads(line)
        mlflow.log_metric(row["metric"], row["value"], step=row["step"])
"""


@pytest.mark.slow
def test_a_trainer_that_names_no_run_finds_the_names_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow reads them by itself, and an import takes arm and seed from the tags."""
    place = (tmp_path / "ml").as_uri()
    for name, word in {"ALLOW_FILE_STORE": "true", "TRACKING_URI": place, "DISABLE_TELEMETRY": "true"}.items():
        monkeypatch.setenv(f"MLFLOW_{name}", word)
    house = OwnHouse(tmp_path / "house")
    house.script(SCRIPT + TRACKED)
    registration = house.register(seeds=[1, 2])
    cells = [(arm, seed) for arm in ("slow", "fast") for seed in (1, 2)]
    assert {house.carry_out(registration, *cell)[0].status for cell in cells} == {"done"}
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=place)
    experiment = client.get_experiment_by_name("own")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {str(run.info.run_name) for run in runs} == {f"{arm}/seed{seed}" for arm, seed in cells}
    assert {run.data.tags["ablate.registration"] for run in runs} == {registration.sha256}
    other = OwnHouse(tmp_path / "other")
    other.register()
    assert len(bring(other, f"mlflow:{place}#own").imported) == 4
    for cell in cells:
        mine, theirs = (RunFolder(one.run_folder(*cell)).read_record() for one in (house, other))
        assert mine is not None and theirs is not None and mine.outcome_sha256 == theirs.outcome_sha256


def test_an_experiment_that_the_user_names_is_kept(house: OwnHouse) -> None:
    (spec, *_) = plan(house.register(study="mine"))
    assert isinstance(spec, CommandSpec)
    assert tracker_names(spec, {})["MLFLOW_EXPERIMENT_NAME"] == "mine"
    assert "MLFLOW_EXPERIMENT_NAME" not in tracker_names(spec, {"MLFLOW_EXPERIMENT_ID": "7"})


def test_the_table_that_wandb_exports_is_a_wide_table(house: OwnHouse, tmp_path: Path) -> None:
    path = tmp_path / "wandb_export.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["_step", "_runtime", "_timestamp", "arm", "seed", "train/loss", "val/loss"])
        for (arm, seed), value in VALUES.items():
            for step in range(1, 5):
                writer.writerow([step, 0.5 * step, 1.7e9, arm, seed, 3.0, value if step == 4 else ""])
    columns = {"train/loss": "train/loss", "val/loss": "val/loss"}
    done = bring(house, str(path), layout=TableLayout(arm="arm", step="_step", metrics=columns))
    assert len(done.imported) == 6
    rows = RunFolder(house.run_folder("fast", 2)).sealed_rows()
    assert [(row.step, row.value) for row in rows if row.metric == "val/loss"] == [(4, VALUES["fast", 2])]


MADE = Path(__file__).parent / "trackers"
"""Files that the libraries themselves wrote (README.md there)."""
METRICS = {"train/loss": "train_loss", "val/loss": "val_loss"}


def value(arm: str, seed: int) -> float:
    """As trackers/make.py has it."""
    return 1.0 + seed / 8 + (arm == "slow") * (4 + seed) / 16


def rows_made(arm: str, seed: int) -> list[tuple[str, int, float]]:
    return [*(("train/loss", step, 3.0 / step) for step in (1, 2, 3, 4)), ("val/loss", 4, value(arm, seed))]


def test_the_store_of_an_mlflow_script_is_read_to_the_last_value(house: OwnHouse, tmp_path: Path) -> None:
    shutil.unpack_archive(MADE / "mlruns.zip", tmp_path)
    source = f"mlflow:{(tmp_path / 'mlruns').as_uri()}#sweep"
    found = read(house, source, arm="model", seed="seed", metrics=METRICS)
    assert set(found.rows) == set(CELLS) and found.left_out == ()
    for cell, rows in found.rows.items():
        assert sorted((row.metric, row.step, row.value) for row in rows) == rows_made(*cell)
    assert read(house, source, "{variant}-{seed}", metrics=METRICS).rows == found.rows


def test_the_event_files_of_a_torch_script_are_read_whichever_way_it_wrote_scalars(
    house: OwnHouse, tmp_path: Path
) -> None:
    shutil.unpack_archive(MADE / "tensorboard.zip", tmp_path)
    found = read(house, f"tensorboard:{tmp_path / 'runs'}")
    assert set(found.rows) == set(CELLS) and found.left_out == ()
    for cell, rows in found.rows.items():
        made = rows_made(*cell)
        assert sorted((row.metric, row.step) for row in rows) == [(metric, step) for metric, step, _ in made]
        assert sorted(row.value for row in rows) == pytest.approx(sorted(v for *_, v in made), rel=1e-7)


@pytest.mark.slow
def test_the_table_of_runs_that_mlflow_writes_is_judged_and_imported_by_one_guess(
    house: OwnHouse, tmp_path: Path
) -> None:
    source = MADE / "mlflow_search_runs.csv"
    judged = api.judge_frame(source, "slow raises val/loss by at least 0.125", baseline="fast")
    (finding,) = judged.judged
    assert finding.estimate is not None and finding.estimate.difference == 0.375 and finding.n == 3
    mapping = api.mapping_template(house.study, source)
    for line in ('arm: "params.model"', 'seed: "params.seed"', '  val/loss: "metrics.val_loss"'):
        assert line in mapping.splitlines()
    (tmp_path / "map.yaml").write_text(mapping.replace('step: ""', "at_step: 4"))
    assert len(bring(house, str(source), layout=read_mapping(tmp_path / "map.yaml")).imported) == 6
    rows = RunFolder(house.run_folder("slow", 3)).sealed_rows()
    assert {row.metric: row.value for row in rows} == {"val/loss": value("slow", 3), "train/loss": 0.75}
