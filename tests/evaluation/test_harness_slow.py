"""Claims about the whole of BLiMP: 67 paradigms x 100 items, with and without examples, where there is no network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import House
from harness_samples import items_document

import ablate as api
from ablate.runner.options import RunOptions

HERE = Path(__file__).resolve().parents[1]
PARADIGMS, ITEMS = 67, 100

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture(name="folder")
def _folder(shakespeare: Path) -> Path:
    if not (shakespeare / "blimp").is_dir():
        pytest.skip(f"{shakespeare} holds no blimp/")
    return shakespeare


def evaluated(folder: Path, **wanted: Any) -> dict[str, Any]:
    """The program's answer, from a process that has no network where the machine allows that to be arranged."""
    words = [sys.executable, str(HERE / "harness_program.py"), str(folder), json.dumps(wanted)]
    alone = shutil.which("unshare")
    if alone and subprocess.run([alone, "-n", "true"], capture_output=True, check=False).returncode == 0:
        words = [alone, "-n", *words]
    environment = os.environ | {"PYTHONPATH": str(HERE.parent), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if words[0] == alone:
        assert not found["reachable"]
    return found


def test_all_paradigms_are_evaluated_whole_and_twice_the_same(folder: Path) -> None:
    small = {"layers": 2, "width": 32, "heads": 4}
    found = evaluated(folder, tasks="blimp", items=ITEMS, shots=[0, 3], model=small, steps=10, batches=[16, 16])
    first, again = found["answers"]
    record = first["record"]
    assert (record["n_tasks"], record["n_items"], record["unencodable"]) == (PARADIGMS, PARADIGMS * ITEMS, 0)
    assert record["n_requests"] == PARADIGMS * ITEMS * 2 * 2
    # An item's score, its score for each number of shots, and the log-likelihoods of both sentences for each.
    assert first["scores"] == PARADIGMS * ITEMS * (1 + 2 + 2 * 2)
    assert first["outcome"] == again["outcome"] and first["metrics"] == again["metrics"]
    assert 0.3 < first["metrics"]["harness/macro_accuracy"] < 0.8


def test_three_prompts_over_all_paradigms(folder: Path) -> None:
    small = {"layers": 1, "width": 16, "heads": 2}
    (found,) = evaluated(folder, tasks="blimp-prompts", items=10, shots=[0], model=small, steps=5)["answers"]
    assert found["record"]["n_requests"] == PARADIGMS * 10 * 2 * 3
    each = sorted(found["metrics"][f"harness/macro_accuracy_prompt_{number}"] for number in range(3))
    assert found["metrics"]["harness/macro_accuracy_median_prompt"] == each[1]


def test_a_study_over_paradigms_of_blimp_is_run_and_decided(
    folder: Path, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_CORPORA", str(folder))  # the house has shut it off
    document = items_document(
        measure={
            "every": 8,
            "suites": ["loss"],
            "harness": {"tasks": "blimp", "items_per_task": 5, "shots": [0, 3], "clusters": "tasks"},
        },
        hypotheses={"harm": {"claim": "layernorm does_not_worsen harness/macro_accuracy", "smallest": 0.5}},
        decision=[{"verdict": "adopt layernorm", "when": "supported(harm)"}, {"verdict": "inconclusive"}],
        seeds=[1, 2, 3],
    )
    document["base"] = document["base"] | {"data": {"corpus": "tinyshakespeare"}}
    study = house.write(document)
    assert api.run(study, RunOptions(slots=1)).summary.complete
    decided = api.decide(study)
    assert decided.decision.status == "decided" and decided.decision.verdict == "adopt layernorm"
    page = decided.markdown_path.read_text()
    assert "67 tasks (335 items)" in page and "blimp: 67 tasks, 335 items" in page


def test_the_number_evaluated_at_once_moves_no_bit_of_the_embnorm_model(folder: Path) -> None:
    found = evaluated(folder, tasks="blimp", items=3, shots=[0, 3], model={}, steps=5, batches=[16, 5, 37])
    assert found["parameters"] > 1_500_000
    sixteen, *others = found["answers"]
    for other in others:
        assert other["outcome"] == sixteen["outcome"] and other["metrics"] == sixteen["metrics"]
