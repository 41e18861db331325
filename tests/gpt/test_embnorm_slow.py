"""The embnorm study on its real corpus, cut short: the whole chain, at the size that is registered."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
import yaml
from conftest import House

import ablate as api
from ablate.records.gather import gather
from ablate.runner.progress import PlainWatcher
from ablate.workspace import Workspace
from prereg.yaml_reader import parse_yaml

EMBNORM = Path(__file__).resolve().parents[2] / "studies" / "embnorm.yaml"


@pytest.mark.long
@pytest.mark.timeout(1200)  # two minutes of an idle core without AVX-512
def test_three_steps_of_embnorm_go_from_file_to_verdict(house: House, shakespeare: Path) -> None:
    assert shakespeare.is_dir()
    document = parse_yaml(EMBNORM.read_bytes(), {})
    base = document["base"]
    assert isinstance(base, dict)
    document |= {"base": base | {"budget": {"steps": 3, "batch": 16}}, "seeds": [1, 2], "measure": {"every": 3}}
    study = house.path / "studies" / "embnorm.yaml"
    study.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    ran = api.run(
        study,
        workspace=api.Workspace(console=PlainWatcher(StringIO())),
        accept_underpowered="a test of the chain, with two seeds",
    )
    assert ran.summary.complete
    decided = api.decide(study)
    assert decided.html_path is not None
    assert {finding.n for finding in decided.decision.findings} == {2}
    evidence = gather(Workspace().open(study).root, ran.registration)
    parameters = {run.variant: run.parameters for run in evidence.runs}
    assert parameters == {"none": 1_611_136, "layernorm": 1_611_392, "rmsnorm": 1_611_264}
    assert {run.tokens for run in evidence.runs} == {3 * 16 * 128}
    # A fresh model is as surprised as chance: ln 65 = 4.174.
    start = evidence.curve("val/loss").query("step == 0")["value"]
    assert start.between(4.1, 4.3).all()
