"""Claims about the benchmark that asks a trained model again: whole, the same bits, and a failure where it is not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import House
from harness_samples import N_TASKS, items_house

from ablate.evaluation.harness.evaluate import Answers
from ablate.records.store import ItemScore, RunFolder
from benchmarks import __main__ as bench
from benchmarks.studies import machine
from benchmarks.zeroshot import Different, as_markdown, differences, measure_in, require_complete, require_same

FOUND: dict[str, Any] = {
    "items_per_task": 100,
    "shots": [0, 3],
    "n_tasks": 67,
    "n_items": 6698,
    "n_requests": 6698 * 4,
    "n_scores": 6698 * 7,
    "unencodable": 2,
    "truncated": 13000,
    "accuracy": {"0": 0.5, "3": 0.5},
    "answers": "ab" * 32,
    "batch": 8,
    "scores_that_differ": 0,
    "such_as": [],
}


def test_counts_that_are_whole_pass_and_any_other_fails() -> None:
    require_complete(FOUND, 67)
    for name in ("n_tasks", "n_items", "n_requests", "n_scores", "unencodable"):
        with pytest.raises(Different, match="is"):
            require_complete({**FOUND, name: FOUND[name] - 1}, 67)


def test_an_asking_that_differs_in_anything_fails() -> None:
    require_same(dict(FOUND), FOUND)
    with pytest.raises(Different, match="batches of 8, 1 scores differ, such as"):
        require_same({**FOUND, "scores_that_differ": 1, "such_as": ["x"]}, FOUND)
    for name in ("truncated", "n_requests", "answers"):
        with pytest.raises(Different, match=name):
            require_same({**FOUND, name: 0}, FOUND)


def test_one_bit_of_one_score_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = tuple(ItemScore("t", str(n), "00", "harness/accuracy", 0.1 * n) for n in range(4))
    monkeypatch.setattr(RunFolder, "sealed_items", lambda _: items)
    monkeypatch.setattr(RunFolder, "sealed_rows", lambda _: [])

    def apart(*others: ItemScore) -> int:
        answers = Answers({}, others, None)  # type: ignore[arg-type]
        return int(differences(answers, RunFolder(tmp_path))["scores_that_differ"])

    import math

    assert apart(*items) == 0
    moved = ItemScore("t", "3", "00", "harness/accuracy", math.nextafter(items[3].value, 1.0))
    assert apart(*items[:3], moved) == 1
    assert apart(*items[:3]) == 1, "one that is missing"
    assert apart(*items, ItemScore("t", "9", "00", "harness/accuracy", 1.0)) == 1, "one too many"


def test_a_failure_is_an_exit_status_and_keeps_the_other_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import time

    def fail(*_: Any) -> None:
        raise Different("n_items is 1, not 2")

    monkeypatch.setattr(bench, "measure_zeroshot", fail)
    made = {"machine": machine(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    (tmp_path / "bench.json").write_text(json.dumps({**made, "zeroshot": {"stale": 1}, "P4": {"on": {}, "off": {}}}))
    monkeypatch.setattr(bench, "page", " ".join)
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "zeroshot", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as caught:
        bench.main()
    assert caught.value.code == "zeroshot: n_items is 1, not 2"
    assert set(json.loads((tmp_path / "bench.json").read_text())) == {"machine", "date", "P4"}


@pytest.mark.slow
def test_a_run_is_trained_asked_and_asked_again_in_processes_of_their_own(house: House) -> None:
    study = items_house(house)
    found = measure_in(study, N_TASKS, (16, 5))
    n = N_TASKS * 6
    assert (found["n_items"], found["n_requests"], found["run"]) == (n, n * 4, "tiny, none seed 1")
    assert [one["batch"] for one in found["again"]] == [16, 5]
    assert {one["answers"] for one in found["again"]} == {found["answers"]}
    assert set(found["accuracy"]) == {"0", "2"}
    page = as_markdown(found)
    assert f"{n * 4} requests" in page and f"Network {found['network']}" in page and "not apart" in page
    with pytest.raises(Different, match="n_tasks is 3, not 4"):
        measure_in(study, N_TASKS + 1, ())  # the run is there already, and is not trained again
