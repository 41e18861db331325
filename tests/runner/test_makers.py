"""What a slot makes: run after run in one process, none of which leaves anything to the next."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from own_trainer import SCRIPT, OwnHouse

import ablate
from ablate.records.run_record import RunRecord
from ablate.runner.options import RunOptions
from ablate.runner.process import LOCK
from ablate.runner.progress import PlainWatcher
from prereg.registry.disk import is_locked

SAYS_WHERE = """
import json, os
first = (os.environ["ABLATE_SEED"], os.environ["ABLATE_VARIANT"]) == ("1", "slow")
if first:
    held = bytearray(os.urandom(2**20)) * 600
state = {"maker": os.getppid(), "threads": os.environ.get("OPENBLAS_NUM_THREADS"), "folder": os.getcwd()}
json.dump(state, open("state.json", "w"))
"""


def run(house: OwnHouse, slots: int) -> None:
    console = PlainWatcher(StringIO())
    assert ablate.run(
        house.study, RunOptions(slots=slots), workspace=ablate.Workspace(console=console)
    ).summary.complete


@pytest.mark.slow
def test_one_process_makes_the_runs_of_a_slot_and_measures_each_alone(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    own_house.script(SAYS_WHERE + SCRIPT)
    own_house.register()
    run(own_house, 1)
    folders = [path.parent for path in own_house.path.glob("data/runs/own/*/*/*/run.json")]
    states = [json.loads((folder / "work" / "state.json").read_bytes()) for folder in folders]
    assert len(folders) == 6 and len({state["maker"] for state in states}) == 1
    assert {state["folder"] for state in states} == {str((folder / "work").resolve()) for folder in folders}
    assert {state["threads"] for state in states} == {None}, "how the maker keeps to one thread is its own business"
    records = [RunRecord.model_validate_json((folder / "run.json").read_bytes()) for folder in folders]
    peak_by_run = {(record.variant, record.seed): record.peak_memory_bytes or 0 for record in records}
    first = peak_by_run.pop(("slow", 1))
    assert first > 600 * 2**20 and 0 < max(peak_by_run.values()) < first - 200 * 2**20
    assert not any(is_locked(folder / LOCK) for folder in folders)


@pytest.mark.slow
def test_each_slot_has_a_process_of_its_own(own_house: OwnHouse) -> None:
    own_house.script(SAYS_WHERE + SCRIPT + "time.sleep(0.5)\n")
    own_house.register()
    run(own_house, 2)
    states = [json.loads(path.read_bytes()) for path in own_house.path.glob("data/runs/own/*/*/*/work/state.json")]
    assert len(states) == 6 and len({state["maker"] for state in states}) == 2
