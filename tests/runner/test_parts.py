"""Parts of a study on one folder: real processes, some killed, some stopped, with and without file locks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pytest
from conftest import House
from own_trainer import SCRIPT, OwnHouse
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from ablate.health import read_status
from ablate.runner.claims import owners, working_folder
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from ablate.workspace import Workspace
from prereg.errors import RunError
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry

QUIET = PlainWatcher(StringIO())
RESUMABLE = """
import json, os, sys, time
config = json.load(open(os.environ["ABLATE_CONFIG"]))
seed = int(os.environ["ABLATE_SEED"])
rows = [json.loads(line) for line in open("metrics.jsonl")] if os.path.exists("metrics.jsonl") else []
begun = max((row["step"] for row in rows), default=0)
open("resumable", "w").close()
with open("metrics.jsonl", "a") as out:
    for step in range(begun + 1, config["steps"] + 1):
        noise = (seed * 7919 * step % 13) / 1000
        print(json.dumps({"step": step, "train/loss": 3.0 - config["lr"] * step / 100 + noise,
                          "val/loss": 2.0 - config["lr"] + noise * config["lr"]}), file=out, flush=True)
        time.sleep(config["sleep"])
"""
ELSEWHERE = """
import fcntl, os, socket
fcntl.flock = lambda *given: None
socket.gethostname = lambda: os.environ["AS_HOST"]
"""


DIES_AT_ITS_FIRST_SEAL = """
import os
from ablate.runner.part import PartScheduler
PartScheduler.seal_in_ledger = lambda *given, **named: os._exit(9)
"""


def ready(house: OwnHouse, script: str = RESUMABLE, *, sleep: float = 0.05, steps: int = 12) -> Path:
    house.script(script)
    house.register(base={"lr": 0.1, "steps": steps, "sleep": sleep})
    return house.path / "studies" / "own.yaml"


def start(
    path: Path, part: str, *words: str, host: str = "", lost_after: float = 3.0, altered: str = ELSEWHERE
) -> subprocess.Popen[str]:
    """A part, in a process group of its own; with `host`, as on a machine that shares no locks with any other."""
    environment = dict(os.environ)
    if host:
        (path.parent / host).mkdir(exist_ok=True)
        (path.parent / host / "sitecustomize.py").write_text(altered)
        environment |= {"AS_HOST": host, "PYTHONPATH": f"{path.parent / host}:{environment.get('PYTHONPATH', '')}"}
    given = [] if not part else ["--part", part]
    return subprocess.Popen(
        [sys.executable, "-m", "ablate", "run", str(path), *given, "--lost-after", str(lost_after), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str], timeout: float = 60) -> tuple[int, str]:
    said, _ = process.communicate(timeout=timeout)
    return process.returncode, said


def entries(house: OwnHouse | House) -> tuple[Entry, ...]:
    return Ledger(house.path / "studies" / "ledger.jsonl").entries()


def runs_of(house: OwnHouse | House) -> Path:
    """The folder of all runs of the one registration."""
    (found,) = house.path.glob("data/runs/*/????????")
    return found


def starts(house: OwnHouse | House) -> Counter[str]:
    found = [e.body for e in entries(house) if e.event == "started" and "variant" in e.body]
    return Counter(f"{body['variant']}/{body['seed']}" for body in found)


def outcomes(house: OwnHouse | House) -> dict[str, str]:
    """The outcome of every sealed run. Fails where a run was sealed twice."""
    seals = [entry.body for entry in entries(house) if entry.event == "sealed"]
    found = {f"{body['variant']}/{body['seed']}": str(body["outcome_sha256"]) for body in seals}
    assert len(found) == len(seals)
    return found


def decision(path: Path) -> dict[str, object]:
    """The decision without what names moments and machines. Interruptions may be named, and move nothing."""
    decided = api.decide(path).decision
    interrupted = {
        "every run was made in one go",
        "every seal was reported by the run that made it",
        # Of a machine that is gone nobody knows what its run had recorded: one such start may be.
        "no start of a run was lost before its seal",
    }
    assert {check.name for check in decided.deviations} <= interrupted, decided.deviations
    found: dict[str, object] = json.loads(decided.model_dump_json())
    return {"gives a verdict": decided.gives_verdict} | {key: found[key] for key in ("verdict", "findings")}


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def recording(house: OwnHouse, runs: int = 1) -> bool:
    """Whether so many runs at work have recorded two rows: a process alone may not have begun yet."""
    files = [*house.path.glob("data/runs/*/*/.parts/*/*/*/work/metrics.jsonl")]
    files += house.path.glob("data/runs/*/*/*/*/work/metrics.jsonl")
    found = 0
    for file in files:
        with suppress(OSError):  # moved to its place meanwhile
            found += file.read_bytes().count(b"\n") >= 2 and not (file.parents[1] / "metrics.parquet").exists()
    return found >= runs


def kill_group(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    end(process)


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, object]]:
    """The study as one process makes it."""
    house = OwnHouse(tmp_path_factory.mktemp("alone") / "house")
    path = ready(house, sleep=0.0)
    assert api.run(path, workspace=api.Workspace(console=QUIET)).summary.complete
    return outcomes(house), decision(path)


def same_but_for_time(house: OwnHouse, path: Path, alone: tuple[dict[str, str], dict[str, object]]) -> None:
    assert outcomes(house) == alone[0]
    found = decision(path)
    assert found["gives a verdict"]
    # The configuration holds a pause, which no value depends on.
    assert found == alone[1]
    assert not Ledger(house.path / "studies" / "ledger.jsonl").faults()
    assert CliRunner().invoke(app, ["verify", str(path)]).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "elsewhere",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["one machine", "three machines without locks"],
)
def test_three_parts_one_killed_seal_every_run_once(
    own_house: OwnHouse, alone: tuple[dict[str, str], dict[str, object]], elsewhere: bool
) -> None:
    path = ready(own_house)
    hosts = ("node1", "node2", "node3") if elsewhere else ("", "", "")
    parts = [start(path, f"{n}/3", host=host) for n, host in zip((1, 2, 3), hosts, strict=True)]
    wait_for(lambda: len(starts(own_house)) >= 3)
    kill_group(parts[1])
    assert [end(part)[0] for part in (parts[0], parts[2])] == [0, 0]
    same_but_for_time(own_house, path, alone)
    made = starts(own_house)
    assert len(made) == 6 and sum(made.values()) <= 7  # the run of the killed part was begun twice
    assert sum(entry.event == "finished" for entry in entries(own_house)) == 1
    left = [path.name for path in (own_house.path / "data" / "runs" / "own").glob("*/.*")]
    assert left == [] and not list((own_house.path / "studies").glob(".ledger.jsonl.slots-*"))


@pytest.mark.slow
def test_a_run_whose_part_died_before_its_seal_is_bound_before_the_study_is_finished(
    own_house: OwnHouse, alone: tuple[dict[str, str], dict[str, object]]
) -> None:
    path = ready(own_house)
    parts = [start(path, "1/2"), start(path, "2/2", host="node", altered=DIES_AT_ITS_FIRST_SEAL)]
    assert [end(part)[0] for part in parts] == [0, 9]
    assert outcomes(own_house) == alone[0]
    assert [entry.event for entry in entries(own_house)].index("finished") == len(entries(own_house)) - 1
    assert [bool(e.body.get("recovered")) for e in entries(own_house) if e.event == "sealed"].count(True) == 1
    same_but_for_time(own_house, path, alone)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["", "node1"])
def test_a_part_that_was_stopped_too_long_finds_its_run_taken_over(
    own_house: OwnHouse, alone: tuple[dict[str, str], dict[str, object]], host: str
) -> None:
    path = ready(own_house)
    slow = start(path, "1/2", host=host)
    wait_for(lambda: len(starts(own_house)) >= 1)
    time.sleep(0.2)
    os.killpg(slow.pid, signal.SIGSTOP)
    # Its workers have groups of their own.
    workers = [int(pid) for pid in _descendants(slow.pid)]
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    other = start(path, "2/2", host=host.replace("1", "2"))
    status, _ = end(other)
    assert status == 0
    for pid in [*workers, slow.pid]:
        os.kill(pid, signal.SIGCONT)
    status, said = end(slow)
    assert status == 0, said
    same_but_for_time(own_house, path, alone)
    assert sum(starts(own_house).values()) == 7


def _descendants(pid: int) -> list[str]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    children = found.stdout.split()
    return [*children, *(below for child in children for below in _descendants(int(child)))]


@pytest.mark.slow
def test_a_lost_run_resumes_where_it_was(own_house: OwnHouse, alone: tuple[dict[str, str], dict[str, object]]) -> None:
    path = ready(own_house, sleep=0.1)
    first = start(path, "1/2")
    wait_for(lambda: recording(own_house))
    kill_group(first)
    assert end(start(path, "2/2"))[0] == 0
    again = [e.body for e in entries(own_house) if e.event == "started" and e.body.get("attempt") == 2]
    (body,) = again
    assert body["resumed_from"] >= 1 and body["part"] == "2/2"
    same_but_for_time(own_house, path, alone)


@pytest.mark.slow
def test_what_stopped_parts_left_is_collected_by_one_process(
    own_house: OwnHouse, alone: tuple[dict[str, str], dict[str, object]]
) -> None:
    path = ready(own_house, sleep=0.3)
    parts = [start(path, f"{n}/2") for n in (1, 2)]
    wait_for(lambda: recording(own_house, 2))
    for part in parts:
        part.terminate()
    assert [end(part)[0] for part in parts] == [130, 130]
    assert not owners(runs_of(own_house))
    assert api.run(path, workspace=api.Workspace(console=QUIET)).summary.complete
    same_but_for_time(own_house, path, alone)
    resumed = [e.body for e in entries(own_house) if e.event == "started" and "resumed_from" in e.body]
    assert len(resumed) == 2


@pytest.mark.slow
def test_status_names_parts_and_reads_their_runs(own_house: OwnHouse) -> None:
    path = ready(own_house, sleep=0.3)
    part = start(path, "1/2", host="node7")
    wait_for(lambda: len(starts(own_house)) >= 1)
    time.sleep(1.5)
    health = read_status(Workspace().open(path))
    (process,) = health.processes
    assert process.host == "node7" and process.part == "1/2" and process.silent_s < 10
    (running,) = [run for run in health.runs if run.state == "running"]
    assert working_folder(runs_of(own_house), running.variant, running.seed).read_record() is not None
    part.terminate()
    end(part)
    assert read_status(Workspace().open(path)).count("stopped") == 1


@pytest.mark.slow
def test_one_process_and_parts_exclude_each_other(own_house: OwnHouse) -> None:
    path = ready(own_house, sleep=0.3)
    part = start(path, "1/1", host="node7")
    wait_for(lambda: len(starts(own_house)) >= 1)
    before = [entry.sha256 for entry in entries(own_house)]
    with pytest.raises(RunError, match=r"part 1/1 on node7") as caught:
        api.run(path, workspace=api.Workspace(console=QUIET))
    assert "parts alone" in caught.value.required
    part.terminate()
    assert end(part)[0] == 130
    assert [entry.sha256 for entry in entries(own_house)][: len(before)] == before
    whole = start(path, "", host="node8")
    wait_for(lambda: len(starts(own_house)) >= 1 and bool(owners(runs_of(own_house))))
    with pytest.raises(RunError, match="ablate run on node8"):
        api.run(path, RunOptions(part="1/2"), workspace=api.Workspace(console=QUIET))
    whole.terminate()
    end(whole)


def test_parts_are_refused_before_a_registration_and_by_a_wrong_name(own_house: OwnHouse) -> None:
    own_house.script(SCRIPT)
    path = own_house.write()
    before = own_house.snapshot()
    with pytest.raises(RunError, match="is not registered") as caught:
        api.run(path, RunOptions(part="1/2"), workspace=api.Workspace(console=QUIET))
    assert caught.value.fix == f"ablate register {path}"
    for wrong in ("3/2", "0/2", "1", "1/2/3", "a/b", "-1/2"):
        with pytest.raises(RunError, match="--part"):
            api.run(path, RunOptions(part=wrong), workspace=api.Workspace(console=QUIET))
    assert own_house.snapshot() == before


@pytest.mark.slow
def test_parts_give_up_together_on_the_same_failure(own_house: OwnHouse) -> None:
    path = ready(own_house, "import sys\nsys.exit('no such flag')\n")
    parts = [start(path, f"{n}/3") for n in (1, 2, 3)]
    ended = [end(part) for part in parts]
    assert {status for status, _ in ended} == {5}
    failed = [entry for entry in entries(own_house) if entry.event == "failed"]
    assert 2 <= len(failed) <= 4
    assert all(".parts" not in str(entry.body["error"]) for entry in failed)
    # A later call makes failed runs again, with a script that works.
    own_house.script(RESUMABLE)
    assert not outcomes(own_house)


@pytest.mark.slow
def test_a_run_that_failed_in_one_part_is_not_made_again_by_another(own_house: OwnHouse) -> None:
    script = RESUMABLE.replace("rows = [", "if (seed, config['lr']) == (2, 0.4): sys.exit('bad luck')\nrows = [")
    path = ready(own_house, script)
    parts = [start(path, f"{n}/2") for n in (1, 2)]
    assert [end(part)[0] for part in parts] == [5, 5]
    assert starts(own_house)["fast/2"] == 1 and len(outcomes(own_house)) == 5
    assert end(start(path, "1/1"))[0] == 5
    assert starts(own_house)["fast/2"] == 2


@pytest.mark.slow
def test_the_built_in_trainer_in_parts_gives_the_bytes_of_one_process(trained: House, tmp_path: Path) -> None:
    house = House(tmp_path / "house")
    path = house.write()
    api.register(path)
    parts = [start(path, f"{n}/2", "--slots", "1") for n in (1, 2)]
    wait_for(lambda: len(starts(house)) >= 1)
    kill_group(parts[0])
    assert end(parts[1], 120)[0] == 0
    assert outcomes(house) == outcomes(trained)
    assert api.decide(path).decision.status == "decided"
