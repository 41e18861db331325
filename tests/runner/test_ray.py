"""A study on a real Ray cluster of one machine, in a network namespace of its own: Ray listens on every address."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from launchers import N_RUNS, RayLauncher, decision, entries, outcomes, parent_of, ready, require_ray, starts
from own_trainer import OwnHouse

import ablate
from ablate.runner.options import RunOptions
from prereg.errors import RunError
from prereg.registry.ledger import Ledger

pytestmark = pytest.mark.usefixtures("no_reports")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_run_of_a_killed_worker_of_ray_goes_on_in_another(own_house: OwnHouse) -> None:
    require_ray()
    path = ready(own_house, sleep=0.2)
    study = RayLauncher(own_house, path)
    try:
        study.begin()
        # The trainer's parent is the command of the task; its parent waits for it in the worker of Ray.
        os.kill(parent_of(study.maker), signal.SIGKILL)
        status, printed = study.wait()
    finally:
        study.close()
    assert status == 0 and "6 of 6 runs sealed" in printed, printed
    again = [entry for entry in entries(own_house) if getattr(entry, "resumed_from", None) is not None]
    assert again and sum(starts(own_house).values()) == N_RUNS + len(again), "each start is on record"
    assert len(outcomes(own_house)) == N_RUNS and decision(path)["gives a verdict"]
    assert not [entry for entry in entries(own_house) if entry.event == "failed"]
    assert not Ledger(own_house.path / "studies" / "ledger.jsonl").faults()


def test_without_ray_the_extra_is_named(own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ready(own_house)
    before = own_house.snapshot()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match="ray is not installed"):
        ablate.run(path, RunOptions(on="ray"))
    assert own_house.snapshot() == before
