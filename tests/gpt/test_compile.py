"""`numerics.compile`: the same training by compiled code, resumed exactly, refused where it cannot be."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from conftest import House, tiny_document
from split_samples import split_of

import ablate as api
from ablate.gpt.compiling import cannot_compile, compiler_name
from ablate.gpt.trainer import Trainer
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from prereg.errors import RunError, SpecError
from prereg.study.spec import study_from_document
from prereg.study.training import Training

QUIET = PlainWatcher(StringIO())
BASE = tiny_document()["base"]
COMPILED = {"none": {}, "compiled": {"numerics.compile": True}}
CLAIM = {"same": {"claim": "compiled lowers val/loss", "smallest": 0.05}}


def document(**changes: object) -> dict[str, object]:
    base = BASE | {"budget": {"steps": 12, "batch": 8}}
    decision = [{"verdict": "compile", "when": "supported(same)"}, {"verdict": "inconclusive"}]
    whole = tiny_document(base=base, variants=COMPILED, hypotheses=CLAIM, decision=decision, seeds=[1, 2])
    return whole | {"measure": {"every": 6}} | changes


def test_a_study_with_it_says_so() -> None:
    study = study_from_document(document())
    assert json.loads(study.training("compiled").model_dump_json())["numerics"]["compile"] is True


@pytest.mark.parametrize("other", [{"model": {"dropout": 0.1}}, {"numerics": {"compile": True, "recompute": "blocks"}}])
def test_what_cannot_be_compiled_is_refused_when_the_study_is_read(other: dict[str, dict[str, object]]) -> None:
    base = BASE | {"numerics": {"compile": True}}
    for part, values in other.items():
        base[part] = {**base.get(part, {}), **values}
    with pytest.raises(SpecError, match=r"numerics.compile with"):
        study_from_document(tiny_document(base=base))


def test_several_devices_are_refused_and_so_is_a_machine_without_a_compiler(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = house.write(document())
    before = house.snapshot()
    with pytest.raises(RunError, match="--devices-per-run 2, and the built-in trainer makes each run on one device"):
        api.run(study, RunOptions(devices_per_run=2), workspace=api.Workspace(console=QUIET))
    monkeypatch.setattr("ablate.runner.machine.cannot_compile", lambda _device: "no C++ compiler (g++, clang++)")
    with pytest.raises(RunError, match=r"numerics.compile, and here is no C\+\+ compiler"):
        api.run(study, workspace=api.Workspace(console=QUIET))
    assert house.snapshot() == before


@pytest.mark.long
@pytest.mark.skipif(bool(cannot_compile("cpu")), reason=cannot_compile("cpu"))
def test_compiled_steps_train_the_same_model_and_resume_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    plain = study_from_document(document()).training("none")
    config = study_from_document(document()).training("compiled")
    tokens = np.random.default_rng(0).integers(0, 7, 400)

    def begun(one: Training) -> Trainer:
        trainer = Trainer(one, split_of(tokens, 0.1, one.model.context), 7)
        trainer.begin(3)
        return trainer

    expected = [step.loss for trainer in [begun(plain)] for step in (trainer.step() for _ in range(8))]
    trainer = begun(config)
    assert trainer.compiler == compiler_name("cpu")
    losses = [trainer.step().loss for _ in range(4)]
    (tmp_path / "checkpoint").write_bytes(trainer.checkpoint())
    rest = [trainer.step().loss for _ in range(4)]
    assert losses + rest == pytest.approx(expected, rel=1e-5)
    resumed = begun(config)
    resumed.restore(tmp_path / "checkpoint")
    assert [resumed.step().loss for _ in range(4)] == rest
    assert resumed.weights() == trainer.weights()
