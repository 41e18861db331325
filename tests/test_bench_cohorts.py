"""P4 measures every kind of step beside runs one by one, and a way that fails takes no other with it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from ablate.training.device import KINDS
from benchmarks.studies import APART, WAYS, measure_cohorts
from benchmarks.tables import cohorts_table, page


def compare(_study: Path, dtype: str, seeds: int, steps: int | None, **how: Any) -> dict[str, Any]:
    if how["step"] == "eager":
        raise subprocess.CalledProcessError(5, "ablate run")
    wall = {"auto": 100.0, "compiled": 20.0}[how["step"]]
    found = {"ours_wall_s": wall, "ours_train_s_per_run": wall / 20, "runs": 3 * seeds, "steps": steps, "dtype": dtype}
    return found | ({"peer_wall_s": 400.0} if how["with_peer"] else {}) | {"device": how["device"]}


def test_every_kind_is_measured_against_runs_one_by_one_and_against_the_peer() -> None:
    found = measure_cohorts(Path("x.yaml"), 5, 200, compare=compare)
    assert list(found) == list(WAYS) and len(WAYS) == 1 + len(KINDS)
    assert {one["device"] for one in found.values() if "device" in one} == {"cuda"}
    text = cohorts_table(found)
    assert "| one by one | 100.0 | 5.0 | 1.00x | 4.00x |" in text
    assert "| together, steps compiled | 20.0 | 1.0 | 5.00x | 20.00x |" in text
    assert "| together, steps eager | failed, exit 5 | | | |" in text
    assert "n: 15 runs of 200 steps, each way once." in text


def test_without_runs_one_by_one_or_a_peer_no_ratio_is_invented() -> None:
    way, how = "together, steps compiled", {"step": "compiled", "with_peer": False, "device": "cuda"}
    found = {way: compare(Path(), "bfloat16", 1, 2, **how)}
    assert "| 20.0 | 1.0 | not measured | not measured |" in cohorts_table({APART: {"failed": "exit 1"}} | found)


def test_the_page_says_where_nothing_was_measured() -> None:
    made = {"processor": "p", "cores": 2, "torch": "t", "python": "3"}
    bare = {"machine": made, "date": "2026-01-01"}
    assert "never been run on a device" in page(bare)
    whole = page(bare | {"P4": measure_cohorts(Path(), 1, 2, compare=compare)})
    assert "## Cohorts on a GPU" in whole and "never been run" not in whole
