"""Claims about whole studies without pairs: registered, run, decided and imported with other seeds in every arm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from evidence_factory import one_claim
from own_trainer import OwnHouse
from typer.testing import CliRunner

from ablate.cli import app
from prereg.errors import SpecError
from prereg.registry.registration import read_lock

SEEDS = {"slow": [1, 2, 3, 4, 5], "fast": [11, 12, 13]}


def ablate(house: OwnHouse, *words: str) -> Any:
    return CliRunner().invoke(app, [*words, "--root", str(house.path)])


@pytest.mark.slow
def test_a_study_with_unequal_arms_is_run_decided_and_verified(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path)
    study = str(house.write(seeds=SEEDS, analysis={"test": "welch"}))
    assert ablate(house, "run", study).exit_code == 0
    runs = {(path.parent.name, path.name) for path in house.path.glob("data/runs/own/*/*/*") if path.is_dir()}
    assert {(arm, seed) for arm, seed in runs if not arm.startswith(".")} == {
        (arm, str(seed)) for arm, seeds in SEEDS.items() for seed in seeds
    }
    assert ablate(house, "decide", study).exit_code == 0
    verdict = json.loads((house.path / "reports/own/verdict.json").read_text())
    (finding,) = verdict["findings"]
    assert verdict["verdict"] == "take fast" and finding["estimate"]["sizes"] == [3, 5]
    assert finding["pairs"] == [] and [one["seeds"] for one in finding["samples"]] == [[11, 12, 13], [1, 2, 3, 4, 5]]
    assert finding["shared"] is None and finding["also"] == []
    page = (house.path / "reports/own/report.md").read_text()
    assert "Matched pairs" not in page and "Every pair, seed by seed" not in page and "3 + 5" in page
    assert ablate(house, "verify", study).exit_code == 0
    lock = read_lock(house.path / "studies/own.lock.json")
    assert lock.study.arm_seeds == {arm: tuple(seeds) for arm, seeds in SEEDS.items()}
    registered = (house.path / "studies/own.registration.md").read_text()
    assert "5 of slow (seeds 1 to 5) and 3 of fast (seeds 11 to 13)" in registered


@pytest.mark.slow
def test_runs_of_somebody_else_enter_one_arm(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path)
    study = str(house.write(seeds=SEEDS, analysis={"test": "welch"}))
    assert ablate(house, "register", study).exit_code == 0
    rows = [
        {"variant": "slow", "seed": seed, "step": 4, "metric": metric, "value": 1.9 + seed / 1000}
        for seed in SEEDS["slow"]
        for metric in ("val/loss", "train/loss")
    ]
    theirs = tmp_path / "theirs.jsonl"
    theirs.write_text("\n".join(map(json.dumps, rows)))
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(json.dumps(rows[0] | {"seed": 11}))
    as_found = ("--exploratory", "--note", "runs of somebody else")
    refused = ablate(house, "import", study, str(wrong), *as_found)
    assert "one of 1, 2, 3, 4, 5" in str(refused.exception)
    imported = ablate(house, "import", study, str(theirs), *as_found)
    assert imported.exit_code == 0, imported.output
    assert ablate(house, "run", study).exit_code == 0
    assert ablate(house, "decide", study).exit_code != 2
    verdict = json.loads((house.path / "reports/own/verdict.json").read_text())
    assert verdict["verdict"] is None and verdict["findings"][0]["estimate"]["sizes"] == [3, 5]


@pytest.mark.parametrize("analysis", [{}, {"test": "sign_flip"}])
def test_seeds_by_arm_need_a_test_without_pairs_and_nothing_is_written(
    tmp_path: Path, analysis: dict[str, str]
) -> None:
    house = OwnHouse(tmp_path)
    study = house.write(seeds=SEEDS, analysis=analysis)
    before = house.snapshot()
    refused = ablate(house, "register", str(study))
    assert isinstance(refused.exception, SpecError) and "analysis: {test: welch}" in str(refused.exception)
    assert house.snapshot() == before


def test_the_schema_takes_seeds_by_arm(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")

    from prereg.documents.published import json_schema

    document = yaml.safe_load(OwnHouse(tmp_path).write(seeds=SEEDS, analysis={"test": "welch"}).read_text())
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(document)
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(document | {"seeds": {"slow": 5}})


def test_a_claim_against_a_constant_has_no_second_group_of_runs() -> None:
    with pytest.raises(SpecError, match="against a constant"):
        one_claim("layernorm lowers val/loss below 2.0", analysis={"test": "welch"})
