"""Trackers get the health of runs while a study is blind, and everything once it is decided; they change nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from conftest import House
from own_trainer import SCRIPT, OwnHouse
from typer.testing import CliRunner

from ablate import api
from ablate.api import mirroring
from ablate.cli import app
from ablate.records.store import RunFolder
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from ablate.trackers import target as targets
from ablate.trackers.mirrors import usable
from ablate.trackers.target import parse_target
from prereg.errors import RunError
from prereg.registry.registration import Registration

mlflow = pytest.importorskip("mlflow")
pytest.importorskip("tensorboard")

CELLS = [(arm, seed) for seed in (1, 2, 3) for arm in ("quokka", "zebra")]
# Words that separate arms, or are an outcome; "zebra" and "quokka" alone are too common among bytes of libraries.
SECRETS = (b"variant", b"quokka/", b"zebra/", b"val/loss", b"train/loss", b'"lr"', b"config.lr")


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnHouse:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(mirroring, "EVERY_S", 0.2)
    monkeypatch.chdir(tmp_path)
    found = OwnHouse(tmp_path / "house")
    register(found)
    return found


def register(house: OwnHouse) -> Registration:
    """The quick study of an own trainer, with arms whose names can be looked for among bytes."""
    return house.register(
        base={"lr": 0.1, "steps": 4, "sleep": 0.05},
        baseline="quokka",
        variants={"quokka": {}, "zebra": {"lr": 0.4}},
        hypotheses={"gain": {"claim": "zebra lowers val/loss", "smallest": 0.05}},
        decision=[
            {"verdict": "take zebra", "when": "supported(gain) and stable(zebra)"},
            {"verdict": "inconclusive"},
        ],
    )


def study_of(house: OwnHouse) -> Path:
    return house.path / "studies" / "own.yaml"


def run(house: OwnHouse, *words: str, only: tuple[str, ...] = ()) -> tuple[api.running.Ran, str]:
    said = StringIO()
    options = RunOptions(slots=2, mirror=words, only=only)
    return api.run(study_of(house), options, watcher=PlainWatcher(said)), said.getvalue()


def decide(house: OwnHouse, *words: str) -> list[str]:
    said: list[str] = []
    api.decide(study_of(house), mirror=words, note=said.append)
    return said


def masks(house: OwnHouse, registration: Registration) -> dict[str, str]:
    return mirroring.masks_of(mirroring.group_of(api.open_study(study_of(house)).root, registration), registration)


def runs_of_mlflow(place: Path) -> dict[str, Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=place.as_uri())
    experiment = client.get_experiment_by_name("own")
    assert experiment is not None
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}


def board(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Scalars of the event files of a folder, by TensorBoard's own reader."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    tags = events.PluginTagToContent("scalars") if "scalars" in events.ActivePlugins() else ()
    return {tag: [(e.step, make_ndarray(e.tensor_proto).item()) for e in events.Tensors(tag)] for tag in tags}


def leaks(folder: Path) -> list[tuple[Path, bytes]]:
    """Files under a folder whose path or bytes hold a word that no blind mirror may hold."""
    found = []
    for path in folder.rglob("*"):
        whole = str(path.relative_to(folder)).encode() + b"\n" + (path.read_bytes() if path.is_file() else b"")
        found += [(path, secret) for secret in SECRETS if secret in whole]
    return found


def outcomes(house: OwnHouse) -> dict[tuple[str, int], str]:
    records = {cell: RunFolder(house.run_folder(*cell)).read_record() for cell in CELLS}
    return {cell: str(record.outcome_sha256) for cell, record in records.items() if record is not None}


@pytest.mark.slow
def test_a_blind_study_sends_health_alone_under_masks(house: OwnHouse, tmp_path: Path) -> None:
    store = tmp_path / "ml"
    done, said = run(house, f"mlflow:{store.as_uri()}", "tensorboard:tb", only=("quokka/1", "zebra/1"))
    assert done.summary.complete and "mirror" not in said, said
    known = masks(house, done.registration)
    first = runs_of_mlflow(store)
    done, _ = run(house, f"mlflow:{store.as_uri()}", "tensorboard:tb")
    assert masks(house, done.registration) == known
    found = runs_of_mlflow(store)
    assert set(found) == set(known.values()) and len(found) == 7
    assert all(found[name].info.run_id == one.info.run_id for name, one in first.items())
    assert {one.info.status for name, one in found.items() if name != known["study"]} == {"FINISHED"}
    assert {one.data.metrics["health/step"] for name, one in found.items() if name != known["study"]} == {4.0}
    assert found[known["study"]].data.metrics["health/runs_done"] == 6.0
    assert all(key.startswith("health/") for one in found.values() for key in one.data.metrics)
    assert all(not one.data.params for one in found.values())
    (group,) = (tmp_path / "tb").iterdir()
    assert {path.name for path in (group / "blind").iterdir()} == set(known.values())
    for path in (group / "blind").iterdir():
        read = board(path)
        assert read and all(tag.startswith("health/") for tag in read)
    assert leaks(store) == [] and leaks(tmp_path / "tb") == []


@pytest.mark.slow
def test_the_health_of_a_built_in_run_is_what_watch_shows(
    house: OwnHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirroring, "EVERY_S", 0.05)
    built_in = House(tmp_path / "gpt")
    done = api.run(built_in.write(), RunOptions(slots=2, mirror=("tensorboard:tb",)), watcher=PlainWatcher(StringIO()))
    assert done.summary.complete
    (group,) = (tmp_path / "tb").iterdir()
    tags = {tag for path in (group / "blind").iterdir() for tag in board(path)}
    assert tags >= {"health/step", "health/steps_per_s", "health/falling", "health/attempts", "health/runs_done"}
    of_runs = {"step", "attempts", "steps_per_s", "falling"}
    of_all = {"runs_running", "runs_done", "runs_diverged", "runs_failed", "pooled_loss"}
    assert tags <= {f"health/{name}" for name in of_runs | of_all}
    assert leaks(tmp_path / "tb") == []


@pytest.mark.slow
def test_a_run_that_failed_is_marked_and_goes_on_in_the_same_tracker_run(house: OwnHouse, tmp_path: Path) -> None:
    word = f"mlflow:{(tmp_path / 'ml').as_uri()}"
    other = OwnHouse(tmp_path / "failing")
    trouble = tmp_path / "trouble"
    trouble.touch()
    other.script(f"import pathlib, sys\nif pathlib.Path({str(trouble)!r}).exists(): sys.exit(3)\n{SCRIPT}")
    register(other)
    done, _ = run(other, word, only=("quokka/1",))
    mask = masks(other, done.registration)["quokka/1"]
    failed = runs_of_mlflow(tmp_path / "ml")[mask]
    assert done.summary.failed and failed.info.status == "FAILED"
    trouble.unlink()
    assert run(other, word, only=("quokka/1",))[0].summary.complete
    again = runs_of_mlflow(tmp_path / "ml")[mask]
    assert (again.info.run_id, again.info.status) == (failed.info.run_id, "FINISHED")
    assert again.data.metrics["health/attempts"] == 2.0


def test_masks_say_nothing_of_arms_and_differ_between_houses(house: OwnHouse, tmp_path: Path) -> None:
    registration = api.open_study(study_of(house))
    known = masks(house, api.require_registered(registration))
    assert all(re.fullmatch("[0-9a-f]{16}", mask) for mask in known.values()) and len(set(known.values())) == 7
    other = OwnHouse(tmp_path / "other")
    same = register(other)
    assert same.sha256 == api.require_registered(registration).sha256
    assert not set(masks(other, same).values()) & set(known.values())


def test_damaged_masks_are_refused(house: OwnHouse) -> None:
    registration = api.require_registered(api.open_study(study_of(house)))
    masks(house, registration)
    (path,) = (house.path / "data" / "runs" / ".mirrors").iterdir()
    path.write_text('{"quokka/1": "x"}')
    with pytest.raises(RunError, match="does not hold the masks"):
        masks(house, registration)


@pytest.mark.slow
def test_the_decision_sends_everything_once(house: OwnHouse, tmp_path: Path) -> None:
    store, words = tmp_path / "ml", (f"mlflow:{(tmp_path / 'ml').as_uri()}", "tensorboard:tb")
    run(house, *words)
    assert decide(house, *words) == [f"{word}: 6 runs mirrored, 0 were there; the verdict with them" for word in words]
    found = runs_of_mlflow(store)
    assert set(found) == {f"{arm}/seed{seed}" for arm, seed in CELLS} | {"own: verdict"}
    for (arm, seed), outcome in outcomes(house).items():
        rows = RunFolder(house.run_folder(arm, seed)).sealed_rows()
        one = found[f"{arm}/seed{seed}"]
        assert one.data.tags["ablate.outcome_sha256"] == outcome
        params = one.data.params
        assert (params["variant"], params["seed"]) == (arm, str(seed))
        assert params["config.lr"] == ("0.4" if arm == "zebra" else "0.1")
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=store.as_uri())
        curve = [(row.step, row.value) for row in rows if row.metric == "train/loss"]
        assert [(m.step, m.value) for m in client.get_metric_history(one.info.run_id, "train/loss")] == curve
        (group,) = (tmp_path / "tb").iterdir()
        assert board(group / arm / f"seed{seed}") == {
            metric: [(row.step, row.value) for row in rows if row.metric == metric]
            for metric in ("train/loss", "val/loss")
        }
    tags = found["own: verdict"].data.tags
    assert (tags["ablate.verdict"], tags["ablate.finding.gain"]) == ("take zebra", "supported")
    again = decide(house, *words)
    assert again == [f"{word}: 0 runs mirrored, 6 were there; the verdict with them" for word in words]
    assert set(runs_of_mlflow(store)) == set(found)


def test_an_undecided_study_sends_nothing(house: OwnHouse, tmp_path: Path) -> None:
    run(house, only=("quokka/1",))
    assert decide(house, "tensorboard:tb") == ["nothing was mirrored: the study is not decided"]
    assert not (tmp_path / "tb").exists()


@pytest.mark.slow
def test_mirroring_changes_no_outcome_and_no_ledger_event(house: OwnHouse, tmp_path: Path) -> None:
    run(house, "tensorboard:tb")
    other = OwnHouse(tmp_path / "other")
    register(other)
    run(other)
    assert outcomes(house) == outcomes(other)
    assert len((house.path / "studies" / "ledger.jsonl").read_text().splitlines()) == len(
        (other.path / "studies" / "ledger.jsonl").read_text().splitlines()
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["folder", "server"])
def test_a_broken_tracker_stops_no_run(house: OwnHouse, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    Path("tb").write_text("a file where the folder belongs")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    word = "tensorboard:tb" if fault == "folder" else "mlflow:http://127.0.0.1:9"
    done, said = run(house, word)
    assert done.summary.complete
    assert said.count(f"{word} failed, and its mirror ended: ") == 1
    assert decide(house, word)[0].startswith(f"{word} failed, and its mirror ended: ")


@pytest.mark.slow
def test_a_tracker_that_hangs_is_left_behind(house: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = threading.Event()
    monkeypatch.setattr(mirroring, "PATIENCE_S", 0.2)
    monkeypatch.setattr("ablate.trackers.mirrors.TensorboardTracker.health", lambda *_: gone.wait(60))
    done, said = run(house, "tensorboard:tb")
    gone.set()
    assert done.summary.complete and "did not answer within 0.2 s" in said


def test_parts_and_unknown_or_missing_trackers_are_refused(house: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    before = house.snapshot()
    for word, match in (
        ("comet", "the tracker 'comet'"),
        ("mlflow", "the tracker 'mlflow'"),
        ("tensorboard:", "the tracker 'tensorboard:'"),
        ("mlflow:ftp://x", "ftp"),
    ):
        with pytest.raises(RunError, match=match):
            run(house, word)
    with pytest.raises(RunError, match="--mirror wandb with parts"):
        api.run(study_of(house), RunOptions(part="1/2", mirror=("wandb",)))
    with pytest.raises(RunError, match="--mirror wandb with parts"):
        api.submit(study_of(house), RunOptions(mirror=("wandb",)))
    Path("wandb").mkdir()
    monkeypatch.setattr(targets, "find_spec", lambda _: None)
    with pytest.raises(RunError, match="not installed") as caught:
        run(house, "wandb")
    assert caught.value.fix == "pip install 'ablate-prereg[wandb]'"
    words = ["decide", str(study_of(house)), "--mirror", "wandb"]
    assert isinstance(CliRunner().invoke(app, words).exception, RunError)
    assert house.snapshot() == before


def test_a_folder_named_like_a_package_is_none(tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()
    code = (
        "import sys; sys.path[:] = [sys.argv[1]]; from importlib.util import find_spec as f; print(f('wandb').origin)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"


@pytest.mark.slow
def test_wandb_offline_gets_masks_alone_then_everything(house: OwnHouse, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    code = (
        "import sys; from ablate.api import mirroring; mirroring.EVERY_S = 0.2\n"
        "from ablate.cli import app; app(sys.argv[1:], standalone_mode=False)"
    )

    def ablate(*words: str) -> str:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        given = [sys.executable, "-c", code, *words, "--mirror", "wandb:proj"]
        done = subprocess.run(given, capture_output=True, text=True, env=environment, check=False, timeout=200)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout + done.stderr

    said = ablate("run", str(study_of(house)), "--only", "zebra/1")
    assert "mirror" not in said, said
    folder = house.path / "data" / "runs" / ".mirrors" / "wandb"
    assert len(list(folder.glob("offline-run-*/*.wandb"))) == 2
    assert leaks(folder) == []
    ablate("run", str(study_of(house)))
    assert leaks(folder) == []
    assert "wandb:proj: 6 runs mirrored, 0 were there" in ablate("decide", str(study_of(house)))
    written = b"".join(path.read_bytes() for path in folder.glob("offline-run-*/*.wandb"))
    assert all(word in written for word in (b"val/loss", b"zebra/seed3", b"take zebra"))
    assert "wandb:proj: 0 runs mirrored, 6 were there" in ablate("decide", str(study_of(house)))


def test_usable_and_parsed_targets() -> None:
    assert str(parse_target("wandb")) == "wandb" and str(parse_target("wandb:p")) == "wandb:p"
    assert usable("tensorboard:x/y").place == "x/y"
