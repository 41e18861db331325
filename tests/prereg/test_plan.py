"""The plan: every promised run, whole pairs first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evidence_factory import make_evidence, one_claim, small_study, with_entry
from own_trainer import OwnHouse
from prereg_samples import AT, COMMAND, EMBNORM, NORMPLACE, PIN, house_with
from study_samples import tuned_document

from prereg.commits.pins import CommitPin, CommittedFile
from prereg.registry.paths import Root
from prereg.registry.plan import CommandSpec, RunSpec, needed_metrics, newest_seals, plan, recipe_sha256, sealed_places
from prereg.registry.register import register_study
from prereg.registry.registration import Pins, Registration, load_registration
from prereg.study.command import ScriptPin
from prereg.study.spec import study_from_document


def registered(tmp_path: Path, text: str, name: str) -> Registration:
    root, loaded = house_with(tmp_path, text, name)
    return register_study(root, loaded, pins=Pins(corpus=PIN), design=None, tool={}, at=AT)[0]


def test_all_variants_of_a_seed_come_before_the_next_seed(tmp_path: Path) -> None:
    runs = plan(registered(tmp_path, EMBNORM, "embnorm"))
    assert [run.variant for run in runs[:6]] == ["none", "layernorm", "rmsnorm", "rmsnorm", "layernorm", "none"]
    assert [run.seed for run in runs] == [seed for seed in range(1, 6) for _ in range(3)]
    assert len(runs) == 15
    assert len({run.run_id for run in runs}) == 15


def test_a_run_is_told_its_configuration_and_no_hypothesis(tmp_path: Path) -> None:
    registration = registered(tmp_path, EMBNORM, "embnorm")
    run = plan(registration)[2]
    assert isinstance(run, RunSpec)
    assert run.run_id == f"embnorm/{registration.sha256[:8]}/rmsnorm/1"
    assert run.config.model.embedding_norm == "rmsnorm"
    assert (run.corpus, run.diverged_above, run.measure.every) == (PIN, 2.0, 25)
    text = run.model_dump_json()
    for hidden in (*registration.study.hypotheses, "smallest", "lowers", "adopt layernorm"):
        assert hidden not in text, "a trainer knows nothing of hypotheses"
    assert RunSpec.model_validate_json(run.model_dump_json()) == run


def test_a_factorial_plan_is_the_same_from_the_lock(tmp_path: Path) -> None:
    registration = registered(tmp_path, NORMPLACE, "normplace")
    runs = plan(registration)
    assert len(runs) == 24
    assert runs[0].variant == "pre-shallow-cold"
    from prereg.registry.paths import Root

    again = load_registration(Root(tmp_path), "normplace")
    assert again is not None
    assert plan(again) == runs


def test_a_command_is_told_its_words_its_code_and_which_metrics_are_needed(tmp_path: Path) -> None:
    root, loaded = house_with(tmp_path, COMMAND, "own")
    pin = ScriptPin(path="train.py", sha256="ab" * 32)
    registration, _ = register_study(root, loaded, pins=Pins(scripts=(pin,)), design=None, tool={}, at=AT)
    run = plan(registration)[1]
    assert isinstance(run, CommandSpec)
    assert (run.variant, run.seed, run.config) == ("fast", 1, {"optim": {"lr": 2}})
    assert run.command == loaded.study.command
    assert run.scripts == (pin,)
    assert (run.needed, run.needs_curve, run.steps) == ({"dev/loss": ()}, False, 0)
    assert not {"hypotheses", "decision", "claim"} & set(CommandSpec.model_fields)
    assert CommandSpec.model_validate_json(run.model_dump_json()) == run


def test_the_newest_seal_of_each_run_counts_and_has_its_folder(tmp_path: Path) -> None:
    registration, evidence = make_evidence(small_study())
    root, cells = Root(tmp_path), list(newest_seals(evidence.ledger, registration.sha256))
    assert cells == list(evidence.planned)
    variant, seed = cells[0]
    evidence = with_entry(registration, evidence, "imported", {"variant": variant, "seed": seed, "note": "again"})
    newest = newest_seals(evidence.ledger, registration.sha256)
    assert newest[variant, seed].note == "again" and list(newest) == cells
    assert not newest_seals(evidence.ledger, "0" * 64)
    places = sealed_places(root, evidence.ledger)
    study = registration.study.study
    assert list(places[registration.sha256]) == [root.run(study, registration.sha256, *cell) for cell in cells]
    assert list(places) == [registration.sha256]


PIN_OF_CODE, PIN_OF_DATA = (ScriptPin(path=path, sha256="ab" * 32) for path in ("train.py", "rows.csv"))


def command_spec(tmp_path: Path) -> CommandSpec:
    root, loaded = house_with(tmp_path, COMMAND, "own")
    pins = Pins(scripts=(PIN_OF_CODE,), data_files=(PIN_OF_DATA,))
    registration, _ = register_study(root, loaded, pins=pins, design=None, tool={}, at=AT)
    run = plan(registration)[0]
    assert isinstance(run, CommandSpec)
    return run


def commit(mode: str) -> CommitPin:
    file = CommittedFile(path="train.py", mode=mode, blob="1" * 40, sha256="ab" * 32)
    return CommitPin.model_construct(commit="2" * 40, files=(file,))


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 2},
        {"config": {"optim": {"lr": 3}}},
        {"command": ("{python}", "train.py", "--twice")},
        {"command": ("train.py", "{python}")},
        {"scripts": (ScriptPin(path="train.py", sha256="cd" * 32),)},
        {"scripts": (ScriptPin(path="other.py", sha256="ab" * 32),)},
        {"data_files": (ScriptPin(path="rows.csv", sha256="cd" * 32),)},
        {"data_files": ()},
        {"commit": commit("100755")},
    ],
    ids=str,
)
def test_a_run_made_of_anything_else_has_another_recipe(changes: dict[str, Any], tmp_path: Path) -> None:
    spec = command_spec(tmp_path)
    assert recipe_sha256(spec.model_copy(update=changes)) != recipe_sha256(spec)


@pytest.mark.parametrize(
    "changes",
    [
        {"study": "another"},
        {"registration": "0" * 64},
        {"variant": "another"},
        {"claimed": ("another",)},
        {"needed": {"another": ()}},
        {"diverged_above": 3.0},
    ],
    ids=str,
)
def test_a_run_under_another_name_has_the_same_recipe(changes: dict[str, Any], tmp_path: Path) -> None:
    spec = command_spec(tmp_path)
    assert recipe_sha256(spec.model_copy(update=changes)) == recipe_sha256(spec)


def test_the_recipe_of_the_built_in_trainer_has_its_configuration_data_and_tokenizer(tmp_path: Path) -> None:
    run = plan(registered(tmp_path, EMBNORM, "embnorm"))[0]
    assert isinstance(run, RunSpec)
    other = plan(registered(tmp_path, EMBNORM, "embnorm"))[1]
    changed = ({"seed": 2}, {"config": other.config}, {"tokenizer": "0" * 64},
               {"corpus": PIN.model_copy(update={"sha256": "cd" * 32})})  # fmt: skip
    recipes = [recipe_sha256(run), *(recipe_sha256(run.model_copy(update=change)) for change in changed)]
    assert len(set(recipes)) == len(recipes)
    assert recipe_sha256(run.model_copy(update={"variant": "another", "measure": other.measure})) == recipes[0]


def test_an_executable_file_of_a_commit_makes_another_recipe(tmp_path: Path) -> None:
    # A script that the command starts by its name runs, or does not.
    spec = command_spec(tmp_path)
    recipes = {recipe_sha256(spec.model_copy(update={"commit": commit(mode)})) for mode in ("100644", "100755")}
    assert len(recipes) == 2


def test_a_run_needs_what_claims_read_and_what_a_pilot_chooses_by() -> None:
    study = one_claim(hypothesis={"read": {"step": 40}})
    assert needed_metrics(study) == {"val/loss": (40,)}
    assert needed_metrics(one_claim()) == {"val/loss": ()}
    tuned = study_from_document(tuned_document())
    assert tuned.tune is not None
    by = tuned.tune.choose_by
    chosen = tuned.model_copy(update={"tune": tuned.tune.model_copy(update={"choose_by": "val/accuracy"})})
    assert by in needed_metrics(tuned) and "val/accuracy" in needed_metrics(chosen)


@pytest.mark.parametrize("stability", [True, False])
def test_a_run_needs_its_curve_where_the_rule_reads_stability(stability: bool, own_house: OwnHouse) -> None:
    when = "supported(gain) and stable(fast)" if stability else "supported(gain)"
    registration = own_house.register(decision=[{"verdict": "take fast", "when": when}, {"verdict": "no"}])
    assert {run.needs_curve for run in plan(registration)} == {stability}
