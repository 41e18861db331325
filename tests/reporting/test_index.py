"""`report --all`: an index over the studies of a repository that drops none and shows no number without a verdict."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import House
from pydantic import ValidationError
from test_exports import run

import ablate as api
from ablate.judge.verdict import Decision


def test_the_index_has_every_study_whatever_became_of_it(decided: House, tmp_path: Path) -> None:
    house = decided.copy(tmp_path / "house")
    text = house.study.read_text(encoding="utf-8")
    fresh = re.sub(r"(?m)^seeds:.*(\n(- |  ).*)*$", "seeds: [11, 12, 13]", text)
    assert fresh != text
    for name in ("waiting", "draft"):
        (house.path / "studies" / f"{name}.yaml").write_text(fresh.replace("study: tiny", f"study: {name}"))
    api.register(house.path / "studies" / "waiting.yaml")
    before = house.snapshot()
    done = run("--all", "--root", house.path)
    assert done.exit_code == 0 and done.stdout.count("wrote ") == 4
    after = house.snapshot()
    assert {name: data for name, data in after.items() if name in before} == before
    page = after["reports/index.md"].decode()
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    (finding,) = json.loads(before["reports/tiny/verdict.json"])["findings"]
    effect = next(line for line in lines if line.startswith("| tiny | gain"))
    shown = f"{finding['estimate']['difference']:+.3f}"
    assert finding["outcome"] in effect and shown.replace("-", "−") in effect
    assert any(
        line.startswith("| waiting | gain | layernorm lowers val/loss | not decided | – | – |") for line in lines
    )
    assert any(line.startswith("| draft | – | – | not registered | – |") for line in lines)
    assert "6 of 6" in page and "0 of 6" in page and "2 confirmatory hypotheses ever registered" in page
    assert b"not decided" in after["reports/index.html"] and b"not registered" in after["reports/studies.tex"]


def test_a_changed_verdict_file_gives_no_number_in_the_index(decided: House, tmp_path: Path) -> None:
    house = decided.copy(tmp_path / "house")
    verdict = house.path / "reports" / "tiny" / "verdict.json"
    verdict.write_text(verdict.read_text().replace("layernorm lowers", "layernorm raises"))
    page = next(
        path for path in api.report_index(workspace=api.Workspace(house.path)) if path.name == "index.md"
    ).read_text()
    assert "its verdict is not here" in page and "layernorm raises" not in page


def test_a_verdict_that_does_not_say_its_format_is_not_read(decided: House) -> None:
    verdict = json.loads((decided.path / "reports" / "tiny" / "verdict.json").read_bytes())
    assert Decision.model_validate_json(json.dumps(verdict)).format == 1
    del verdict["format"]
    with pytest.raises(ValidationError, match="format"):
        Decision.model_validate_json(json.dumps(verdict))
