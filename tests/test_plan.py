"""The plan: every promised run, whole pairs first."""

from __future__ import annotations

from pathlib import Path

import pytest
from prereg_samples import AT, COMMAND, EMBNORM, NORMPLACE, PIN, house_with

from prereg.errors import UnsupportedError
from prereg.plan import RunSpec, plan
from prereg.register import Registration, load_registration, register


def registered(tmp_path: Path, text: str, name: str) -> Registration:
    root, loaded = house_with(tmp_path, text, name)
    corpus = None if loaded.study.trainer == "command" else PIN
    return register(root, loaded, corpus=corpus, design=None, tool={}, at=AT)[0]


def test_all_variants_of_a_seed_come_before_the_next_seed(tmp_path: Path) -> None:
    runs = plan(registered(tmp_path, EMBNORM, "embnorm"))
    assert [(run.seed, run.variant) for run in runs[:4]] == [(1, "none"), (1, "layernorm"), (1, "rmsnorm"), (2, "none")]
    assert len(runs) == 15
    assert len({run.run_id for run in runs}) == 15


def test_a_run_is_told_its_configuration_and_no_hypothesis(tmp_path: Path) -> None:
    registration = registered(tmp_path, EMBNORM, "embnorm")
    run = plan(registration)[2]
    assert run.run_id == f"embnorm/{registration.sha256[:8]}/rmsnorm/1"
    assert run.config.model.embedding_norm == "rmsnorm"
    assert (run.corpus, run.diverged_above, run.measure.every) == (PIN, 2.0, 25)
    assert set(RunSpec.model_fields) == {
        "study",
        "registration",
        "variant",
        "seed",
        "config",
        "measure",
        "diverged_above",
        "corpus",
    }
    assert RunSpec.model_validate_json(run.model_dump_json()) == run


def test_a_factorial_plan_is_the_same_from_the_lock(tmp_path: Path) -> None:
    registration = registered(tmp_path, NORMPLACE, "normplace")
    runs = plan(registration)
    assert len(runs) == 24
    assert runs[0].variant == "pre-shallow-cold"
    from prereg.root import Root

    again = load_registration(Root(tmp_path), "normplace")
    assert again is not None
    assert plan(again) == runs


def test_a_command_cannot_be_planned_yet(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="trainer 'command'"):
        plan(registered(tmp_path, COMMAND, "own"))
