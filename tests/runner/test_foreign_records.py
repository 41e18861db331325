"""Claims about trainers that write the records of other runs than their own: real workers, real records."""

from __future__ import annotations

import json
import shutil
from io import StringIO
from pathlib import Path

import pytest
from ledger_samples import enter
from own_trainer import AT, OwnHouse

import ablate as verbs
from ablate.judge.verdict import Check
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from prereg.errors import EvidenceError
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import RunEntry

OWN_FOLDER = "every run wrote in its own folder only"

SCRIPT = """
import json, os, shutil, signal
from pathlib import Path
config = json.load(open(os.environ["ABLATE_CONFIG"]))
seed, lr, run = int(os.environ["ABLATE_SEED"]), config["lr"], Path(os.environ["ABLATE_RUN_DIR"]).parent
with open("metrics.jsonl", "w") as out:
    for step in range(1, 5):
        print(json.dumps({"step": step, "metric": "train/loss", "value": 3.0 - lr * step / 100}), file=out)
    print(json.dumps({"step": 4, "metric": "val/loss", "value": 2.0 - lr + seed * lr / 1000}), file=out)
todo = Path(os.environ["ABLATE_ROOT"]) / "todo.json"
todo = json.loads(todo.read_text()) if todo.exists() else {}
if todo.get("run") == f"{os.environ['ABLATE_VARIANT']}/{seed}":
    for cell in todo["into"]:
        target = run.parent.parent / cell
        shutil.copytree(Path(todo["from"]) / cell, target, dirs_exist_ok=True)
    if todo.get("kill"):
        os.kill(os.getppid(), signal.SIGKILL)
"""


class Forging:
    """A house whose trainer writes the records of another house's runs in the folders of its own study's runs."""

    def __init__(self, path: Path) -> None:
        self.path = path / "house"
        self.house = OwnHouse(self.path)
        self.house.script(SCRIPT)
        self.registration = self.house.register(seeds=[1, 2])
        self.study = self.path / "studies" / "own.yaml"
        # The same registration elsewhere: records that nothing in them tells from those of this one.
        self.other = path / "other"
        shutil.copytree(self.path, self.other)
        verbs.run(
            self.other / "studies" / "own.yaml",
            RunOptions(slots=1),
            workspace=verbs.Workspace(console=PlainWatcher(StringIO())),
        )

    @property
    def made_elsewhere(self) -> Path:
        (found,) = self.other.glob("data/runs/own/*/fast")
        return found.parent

    def forge(self, run: str, *into: str, kill: bool = False) -> None:
        todo = {"run": run, "into": into, "from": str(self.made_elsewhere), "kill": kill}
        (self.path / "todo.json").write_text(json.dumps(todo))

    def run(self, slots: int = 1) -> None:
        verbs.run(self.study, RunOptions(slots=slots), workspace=verbs.Workspace(console=PlainWatcher(StringIO())))

    def entries(self, event: str) -> list[dict[str, object]]:
        ledger = Ledger(self.path / "studies" / "ledger.jsonl")
        return [entry.stated for entry in ledger.entries() if entry.event == event and isinstance(entry, RunEntry)]

    def failed(self) -> dict[str, Check]:
        return {check.name: check for check in verbs.decide(self.study).decision.checks if not check.passed}


@pytest.fixture
def forging(tmp_path: Path, no_own_corpora: None) -> Forging:
    return Forging(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True])
def test_a_trainer_that_seals_the_runs_of_others_fails_and_gives_no_verdict(forging: Forging, kill: bool) -> None:
    forging.forge("fast/1", "slow/2", "fast/2", kill=kill)
    forging.run()
    first = next(body for body in forging.entries("failed") if body["variant"] == "fast" and body["seed"] == 1)
    assert "files were written in the folders of other runs: " in str(first["error"])
    assert {"slow/2/run.json", "fast/2/run.json"} == set(first["wrote_in"])  # type: ignore[call-overload]
    assert [(body["variant"], body["seed"]) for body in forging.entries("sealed")] == [("slow", 1)]
    (forging.path / "todo.json").unlink()
    for cell in ("slow/2", "fast/2"):
        shutil.rmtree(next(forging.path.glob(f"data/runs/own/*/{cell}")))
    forging.run()
    assert len(forging.entries("sealed")) == 4
    check = forging.failed()[OWN_FOLDER]
    assert check.severity == "inadmissible" and check.found.startswith("1: fast seed 1 wrote ")
    assert verbs.decide(forging.study).decision.status == "inadmissible"


@pytest.mark.slow
def test_a_sealed_run_that_is_overwritten_is_the_fault_of_the_run_at_work(forging: Forging) -> None:
    forging.forge("fast/2", "slow/1")
    forging.run()
    (failed,) = forging.entries("failed")
    assert (failed["variant"], failed["seed"]) == ("fast", 2) and "slow/1/run.json" in failed["wrote_in"]  # type: ignore[operator]


@pytest.mark.slow
def test_runs_side_by_side_and_runs_made_again_are_no_fault(forging: Forging) -> None:
    forging.run(slots=2)
    assert not forging.entries("failed")
    shutil.rmtree(next(forging.path.glob("data/runs/own/*/slow/2")))
    forging.run(slots=2)
    assert not forging.entries("failed") and OWN_FOLDER not in forging.failed()


@pytest.mark.slow
def test_records_that_the_ledger_never_started_are_taken_in_and_named(forging: Forging) -> None:
    place = forging.path / "data" / "runs" / "own" / forging.made_elsewhere.name
    for cell in ("fast/2", "slow/2"):
        shutil.copytree(forging.made_elsewhere / cell, place / cell)
    # One of them was started here, and ended otherwise.
    ledger, sha256 = Ledger(forging.path / "studies" / "ledger.jsonl"), forging.registration.sha256
    for event, more in (("started", {"attempt": 1}), ("failed", {"error": "x", "left_values": False})):
        body = {"variant": "fast", "seed": 2, **more}
        enter(ledger, event, body, study="own", registration=sha256, at=AT)
    forging.run()
    without = {(seal["variant"], seal["seed"]): seal.get("without_start") for seal in forging.entries("sealed")}
    assert without == {("slow", 1): None, ("fast", 1): None, ("slow", 2): 1, ("fast", 2): 1}
    named = forging.failed()["every attempt at a run was put on record before it began"]
    assert named.severity == "deviation" and named.found.startswith("2: ")
    assert "fast seed 2: 1 without a logged start" in named.found
    assert verbs.decide(forging.study).decision.status == "decided_with_deviations"


def test_a_record_of_another_run_is_not_taken_in(forging: Forging) -> None:
    place = forging.path / "data" / "runs" / "own" / forging.made_elsewhere.name
    shutil.copytree(forging.made_elsewhere / "fast" / "2", place / "fast" / "1")
    with pytest.raises(EvidenceError, match="a sealed record of another run"):
        forging.run()
    assert not forging.entries("sealed") and not forging.entries("started")
