"""Which kind of step is taken: what was asked for, else what stands, else operator by operator; refused by name."""

from __future__ import annotations

import shutil
from importlib import util
from pathlib import Path

import pytest
from conftest import House
from test_run import QUIET

from ablate import api
from ablate.cli import main
from ablate.records.run_record import RunRecord, layout_of, members_in, step_in
from ablate.records.store import RunFolder
from ablate.runner import layout
from ablate.runner.layout import Machine, choose_machine, step_of
from ablate.runner.options import RunOptions
from ablate.training import device
from ablate.training.device import AUTO, EAGER, KINDS, cannot_take, choose_step
from prereg.errors import RunError

LAYOUT, COMPILED = layout_of((1, 2, 3)), layout_of((1, 2, 3), "compiled")


def test_layouts_with_a_kind_of_step_are_read_as_they_are_written() -> None:
    for kind in (*KINDS, "graph", "compiled-graph"):  # the last two in records of earlier versions
        layout = layout_of((1, 2, 5), kind)
        assert (members_in(layout), step_in(layout)) == ((1, 2, 5), kind)
    assert layout_of((1, 2), EAGER) == "cohort of 2: seeds 1,2"  # as before there were kinds
    assert layout_of((1, 2), "compiled") == "cohort of 2: seeds 1,2; steps compiled"
    assert step_in("single") == step_in("2 devices, ddp") == step_in("cohort of 2: seeds 1,2") == EAGER
    assert members_in("cohort of 2: seeds 1,2; steps many words") == ()


@pytest.mark.parametrize("word", ["many", "", "Compiled", "graph", "compiled-graph"])
def test_a_word_that_names_no_kind_is_refused_in_one_message_and_nothing_changes(
    house: House, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = house.write()
    before = house.snapshot()
    monkeypatch.setattr("sys.argv", ["ablate", "run", str(study), "--cohort", "on", "--step", word])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.count("error:") == 1
    assert f"--step {word}" in told
    assert "  required: auto, eager, compiled\n  try:      --step auto\n" in told
    assert house.snapshot() == before


def test_kinds_are_of_runs_trained_together_and_of_one_device(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.training.device.cannot_compile", lambda _device: "")
    tiny = api.open_study(house.write()).study
    with pytest.raises(RunError, match=r"--step compiled, and runs are trained one by one"):
        choose_machine(tiny, [], RunOptions(device="cpu", step="compiled"))
    with pytest.raises(RunError, match=r"--step compiled with --devices-per-run 2"):
        choose_machine(tiny, [], RunOptions(device="cpu", step="compiled", devices_per_run=2, shard="ddp"))
    found = choose_machine(tiny, [], RunOptions(device="cpu", cohort="on", step="compiled"))
    assert found == Machine("cpu", "on", step="compiled")
    for step in (AUTO, EAGER):  # which runs by themselves take anyway
        assert choose_machine(tiny, [], RunOptions(device="cpu", cohort="off", step=step)).step == step


def test_a_machine_that_cannot_compile_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no C++ compiler (g++, clang++)" in cannot_take("compiled", "cpu")
    with pytest.raises(RunError, match=r"no C\+\+ compiler"):
        choose_step("compiled", "cpu")
    assert cannot_take(EAGER, "cpu") == cannot_take(EAGER, "cuda:0") == ""
    (tmp_path / "g++").write_text("#!/bin/sh\n")
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setattr(device.sysconfig, "get_path", lambda _name: str(tmp_path))
    assert "Python.h" in cannot_take("compiled", "cpu")
    (tmp_path / "Python.h").touch()
    assert cannot_take("compiled", "cpu") == ""
    if util.find_spec("triton") is None:
        assert "triton" in cannot_take("compiled", "cuda:0")


def record(house: House, seed: int, layout: str) -> RunRecord:
    (path,) = house.path.glob(f"data/runs/*/*/none/{seed}/run.json")
    found = RunFolder(path.parent).read_record()
    assert found is not None
    return found.model_copy(update={"provenance": found.provenance.model_copy(update={"layout": layout})})


@pytest.mark.slow
def test_auto_keeps_the_kind_of_what_stands_and_is_eager_where_nothing_does(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.training.device.cannot_compile", lambda _device: "")
    api.run(house.write(base=short()), watcher=QUIET)
    members, auto = (1, 2, 3), Machine("cpu", "on")
    standing = {("none", seed): record(house, seed, layout_of(members, "compiled")) for seed in members}
    assert step_of(members, auto, {}) == step_of(members, Machine("cuda:0"), {}) == EAGER
    assert step_of(members, auto, standing) == "compiled"
    assert step_of(members, Machine("cpu", "on", step=EAGER), standing) == EAGER
    assert step_of((1, 2), auto, standing) == EAGER, "of another company"
    failed = {cell: one.model_copy(update={"status": "failed"}) for cell, one in standing.items()}
    assert step_of(members, auto, failed) == EAGER, "of runs that failed"
    gone = {("none", seed): record(house, seed, layout_of(members, "compiled-graph")) for seed in members}
    with pytest.raises(RunError, match=r"3 runs of .* with steps compiled-graph.*this version knows eager, compiled"):
        step_of(members, auto, gone)
    assert step_of(members, Machine("cpu", "on", step=EAGER), gone) == EAGER


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> House:
    """A study in cohorts, all of whose records say that steps were compiled."""
    made = House(tmp_path_factory.mktemp("finished") / "house")
    api.run(made.write(base=short()), RunOptions(cohort="on"), watcher=QUIET)
    for path in made.path.glob("data/runs/*/*/*/*/run.json"):
        path.write_text(path.read_text().replace(LAYOUT, COMPILED))
    return made


@pytest.fixture
def here_without_a_compiler(finished: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    """That study where nothing can be compiled."""
    copy = House.__new__(House)
    copy.path = Path(shutil.copytree(finished.path, tmp_path / "house"))
    monkeypatch.setattr("ablate.training.device.cannot_compile", lambda _device: "no C++ compiler")
    return copy


def lose_a_run(house: House) -> None:
    (lost,) = house.path.glob("data/runs/*/*/layernorm/2")
    shutil.rmtree(lost)


@pytest.mark.slow
def test_what_stands_compiled_is_not_gone_on_with_in_silence_where_there_is_no_compiler(
    here_without_a_compiler: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    house = here_without_a_compiler
    study = house.path / "studies" / "tiny.yaml"
    api.run(study, watcher=QUIET)  # nothing is left to be trained, so nothing is refused
    lose_a_run(house)
    before = house.snapshot()
    monkeypatch.setattr("sys.argv", ["ablate", "run", str(study)])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.count("error:") == 1
    assert "5 runs of seeds 1, 2, 3 were trained with steps compiled" in told and "no C++ compiler" in told
    assert "required: steps compiled" in told and "--step eager" in told.split("try: ")[1]
    assert house.snapshot() == before

    api.run(study, RunOptions(step=EAGER), watcher=QUIET)  # asked for in words, it is trained, and the report lists it
    found = {check.name: check for check in api.decide(study).decision.checks if not check.passed}
    apart = found["pairs were trained in the same layout"]
    assert apart.severity == "deviation" and f"layernorm {LAYOUT} against none {COMPILED}" in apart.found


def test_what_changed_between_the_question_and_the_lock_is_refused_before_runs_are_given_out(
    here_without_a_compiler: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = here_without_a_compiler
    lose_a_run(house)
    monkeypatch.setattr(layout, "require_steps", lambda *_given: None)
    before = house.snapshot()
    with pytest.raises(RunError, match="5 runs of seeds 1, 2, 3"):
        api.run(house.path / "studies" / "tiny.yaml", watcher=QUIET)
    assert {path: held for path, held in house.snapshot().items() if path in before} == before


def short() -> dict[str, object]:
    from conftest import tiny_document

    base: dict[str, object] = tiny_document()["base"]
    return base | {"budget": {"steps": 3, "batch": 4}}
