"""Which runs a call makes, on which GPUs, and what it says of the cost beforehand."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from own_trainer import SCRIPT, OwnHouse
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from ablate.gpt.device import visible_gpus
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from ablate.runner import local, scheduler
from ablate.runner.machine import Machine
from ablate.runner.options import RunOptions
from ablate.runner.process import held, name_holder
from ablate.runner.progress import PlainWatcher
from prereg.errors import RunError
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.study.load import load_study

pytestmark = pytest.mark.usefixtures("no_reports")

QUIET = PlainWatcher(StringIO())


def sealed(house: OwnHouse) -> set[str]:
    paths = house.path.glob("data/runs/own/*/*/*/metrics.parquet")
    return {f"{path.parts[-3]}/{path.parts[-2]}" for path in paths}


@pytest.mark.slow
def test_chosen_runs_are_made_and_the_rest_later(own_house: OwnHouse) -> None:
    own_house.register()
    path = own_house.study
    ran = api.run(path, RunOptions(only=("fast/2", "slow/2")), workspace=api.Workspace(console=QUIET))
    assert sealed(own_house) == {"slow/2", "fast/2"}
    assert (ran.summary.planned, ran.summary.complete, ran.summary.whole) == (2, True, False)
    said = CliRunner().invoke(app, ["run", str(path), "--only", "slow/1"]).output
    assert f"next:  ablate run {path}" in said
    assert api.run(path, workspace=api.Workspace(console=QUIET)).summary.complete and len(sealed(own_house)) == 6
    assert api.decide(path).decision.verdict == "take fast"


def test_a_run_that_is_not_planned_is_refused_before_anything_is_written(own_house: OwnHouse) -> None:
    path = own_house.write()
    before = own_house.snapshot()
    for call in (
        lambda options: api.run(path, options, workspace=api.Workspace(console=QUIET)),
        lambda options: CliRunner().invoke(
            app, ["run", str(path), "--dry-run", "--only", *options.only], catch_exceptions=False
        ),
    ):
        with pytest.raises(RunError, match="--only fats/2") as caught:
            call(RunOptions(only=("fats/2",)))
        assert caught.value.fix == "did you mean 'fast/2'?"
    assert own_house.snapshot() == before


@pytest.mark.slow
def test_a_dry_run_names_runs_and_costs_and_writes_nothing(own_house: OwnHouse) -> None:
    path = own_house.write(assume={"seconds_per_run": 90})
    before = own_house.snapshot()

    def dry(*words: str) -> dict[str, object]:
        done = CliRunner().invoke(app, ["run", str(path), "--dry-run", "--json", *words], catch_exceptions=False)
        found: dict[str, object] = json.loads(done.output)
        return found

    first = dry("--jobs", "4")
    assert (first["slots"], first["seconds"], first["registered"]) == (4, 180.0, False)
    assert first["runs"] == ["slow/1", "fast/1", "fast/2", "slow/2", "fast/3", "slow/3"]
    assert own_house.snapshot() == before
    own_house.register()
    api.run(path, RunOptions(only=("slow/1", "fast/1")), workspace=api.Workspace(console=QUIET))
    before = own_house.snapshot()
    later = dry()
    assert later["runs"] == ["fast/2", "slow/2", "fast/3", "slow/3"] and later["timed"] == "mean of 2 sealed runs"
    assert isinstance(later["bytes_per_run"], int) and later["bytes_per_run"] > 1000
    assert own_house.snapshot() == before
    side_by_side = f"4 runs to make, {local.default_slots()} side by side."
    assert side_by_side in CliRunner().invoke(app, ["run", str(path), "--dry-run"]).output


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("3,5", ("3", "5")),
        ("", ()),
        ("-1", ()),
        ("0, 2,-1,4", ("0", "2")),
        ("GPU-8932f937,MIG-1", ("GPU-8932f937", "MIG-1")),
    ],
)
def test_the_environment_says_which_gpus_are_visible(
    monkeypatch: pytest.MonkeyPatch, named: str, found: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_gpus() == found


def test_gpus_are_dealt_out_by_slot() -> None:
    four = Machine(gpus=("0", "1", "2", "3"))
    assert [four.gpus_of(lane) for lane in range(5)] == [("0",), ("1",), ("2",), ("3",), ("0",)]
    pairs = Machine(gpus=("0", "1", "2", "3", "4"), gpus_per_run=2)
    assert pairs.gpu_slots == 2 and [pairs.gpus_of(lane) for lane in range(3)] == [("0", "1"), ("2", "3"), ("0", "1")]
    assert Machine().gpu_slots == 1 and Machine().gpus_of(0) == ()


def test_runs_side_by_side_are_one_per_core_or_gpu_and_fewer_where_memory_is_short(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load_study(own_house.write()).study
    monkeypatch.setattr(local, "default_slots", lambda: 8)
    monkeypatch.setattr(local, "available_memory", lambda: 10 * 2**30)
    assert local.slots_of(study, Machine()) == 8
    assert local.slots_of(study, Machine(gpus=("0", "1", "2"))) == 3

    def took(*peaks: int | None) -> list[RunRecord]:
        return [RunRecord.model_construct(peak_memory_bytes=peak) for peak in peaks]

    assert local.slots_of(study, Machine(), took(None)) == 8
    assert local.slots_of(study, Machine(), took(2**30, 3 * 2**30, None)) == 3
    assert local.slots_of(study, Machine(), took(64 * 2**30)) == 1


@pytest.mark.slow
def test_no_runs_side_by_side_is_to_take_in_what_others_made(own_house: OwnHouse) -> None:
    own_house.register()
    path = own_house.study
    ended = [CliRunner().invoke(app, ["train", str(path), f"{arm}/1"]).exit_code for arm in ("slow", "fast")]
    assert ended == [0, 0]
    said = CliRunner().invoke(app, ["run", str(path), "--jobs", "0"])
    assert said.exit_code == 5 and "2 of 6 runs sealed" in said.output
    entries = Ledger(own_house.path / "studies" / "ledger.jsonl").entries()
    assert [entry.event for entry in entries] == ["registered", "sealed", "sealed"]
    assert [entry.without_start for entry in entries[1:]] == [1, 1]


@pytest.mark.slow
def test_a_run_at_work_in_another_process_is_left_out_and_named(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "BUSY_PATIENCE_S", 0.5)
    registration = own_house.register()
    folder = RunFolder(Root(own_house.path).run("own", registration.runs_sha256, "fast", 2))
    with held(folder) as lock, name_holder(lock):
        summary = api.run(own_house.study, workspace=api.Workspace(console=QUIET)).summary
    assert (summary.sealed, summary.elsewhere, summary.failed) == (5, ("fast/2",), ())
    assert api.run(own_house.study, workspace=api.Workspace(console=QUIET)).summary.complete
    assert api.decide(own_house.study).decision.status == "decided"


@pytest.mark.slow
def test_each_run_of_an_own_trainer_sees_the_gpus_of_its_slot(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    own_house.script(SCRIPT + "open('seen', 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])\ntime.sleep(0.3)\n")
    own_house.register()
    path = own_house.study
    api.run(path, workspace=api.Workspace(console=QUIET))
    seen = [path.read_text() for path in own_house.path.glob("data/runs/own/*/*/*/work/seen")]
    assert len(seen) == 6 and set(seen) == {"3", "5"}
    with pytest.raises(RunError, match="--devices-per-run 3 with trainer: command, and 2 GPUs are visible"):
        api.run(path, RunOptions(devices_per_run=3), workspace=api.Workspace(console=QUIET))


@pytest.mark.slow
def test_a_run_that_asks_for_all_gpus_sees_them(own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    own_house.script(SCRIPT + "open('seen', 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])\n")
    own_house.register()
    api.run(own_house.study, RunOptions(devices_per_run=2), workspace=api.Workspace(console=QUIET))
    assert {path.read_text() for path in own_house.path.glob("data/runs/own/*/*/*/work/seen")} == {"3,5"}
