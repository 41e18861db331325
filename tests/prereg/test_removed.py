"""Fields that are gone: one clear error in a study file, and none in the lock of a study that never used them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prereg_samples import EMBNORM, load_text

from prereg.errors import FieldPath, StudyError
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.plan import newest_seals, recipes_of
from prereg.registry.registration import load_registration
from prereg.study.arms import resolve_arms
from prereg.study.removed import REMOVED, SINCE, without_removed
from prereg.study.training import Training

USED: dict[FieldPath, str] = {
    ("base", "budget", "max_memory_gib"): "base: {budget: {max_memory_gib: 2.0}}",
    ("base", "data", "mixture"): "base: {data: {mixture: {wiki: 1.0, code: 3.0}}}",
    ("assume", "sd"): "assume: {sd: known from earlier}",
    ("reuses",): "reuses: [earlier]",
    ("base_runs",): "base_runs: shared",
    ("on_divergence",): "on_divergence: rank",
    ("stopping", "evidence"): "stopping: {evidence: e_process, max_seeds: 8}",
    ("checks",): "checks: [{name: looked, entry_point: 'mine:look'}]",
    ("measure", "own"): "measure: {own: [{name: own/worst, entry_point: 'mine:worst'}]}",
    ("measure", "uneven_steps"): "measure: {uneven_steps: a shorter schedule is the question}",
}
"""Each removed field, as a study file wrote it."""


def written(line: str) -> str:
    """Return a study file with a line more, which takes the place of the field that it begins with."""
    field = line.partition(":")[0]
    kept: list[str] = []
    inside = False
    for row in EMBNORM.splitlines():
        inside = row.startswith(f"{field}:") or (inside and row[:1] in (" ", "-"))
        if not inside:
            kept.append(row)
    return "\n".join([*kept, line, ""])


def test_every_removed_field_is_tested() -> None:
    assert USED.keys() == REMOVED.keys()


@pytest.mark.parametrize("path", USED, ids=lambda path: ".".join(map(str, path)))
def test_a_study_that_names_a_removed_field_reads_since_when_it_is_gone_and_what_to_write(
    path: FieldPath, tmp_path: Path
) -> None:
    text = written(USED[path])
    with pytest.raises(StudyError) as raised:
        load_text(tmp_path, text, "embnorm")
    error = raised.value
    assert error.found == f"the field '{path[-1]}' is gone since {SINCE}" and error.others == ()
    assert error.fix == REMOVED[path].instead and error.where.field == path
    assert error.where.line == text.splitlines().index(USED[path].splitlines()[-1]) + 1


@pytest.mark.parametrize("path", USED, ids=lambda path: ".".join(map(str, path)))
def test_a_lock_that_never_used_it_is_read_and_one_that_did_is_refused(path: FieldPath) -> None:
    def lock(value: object) -> dict[str, Any]:
        study: Any = value
        for key in reversed(path):
            study = {key: study}
        return study | {"title": "t", "trainer": "gpt"}

    unused = lock(REMOVED[path].unused)
    before = repr(unused)
    emptied = without_removed(unused)
    assert path[-1] not in repr(emptied) and emptied["title"] == "t"
    assert repr(unused) == before, "the lock is hashed as it is"
    with pytest.raises(ValueError, match=f"gone since {SINCE}"):
        without_removed(lock("something else"))


OF_BASE = [path for path in USED if path[0] == "base"]


@pytest.mark.parametrize("path", OF_BASE, ids=lambda path: ".".join(map(str, path)))
@pytest.mark.parametrize("below", ["", ".wiki"])
def test_an_arm_that_overrides_a_removed_field_reads_the_same_error(path: FieldPath, below: str) -> None:
    override = ".".join(map(str, path[1:])) + below
    with pytest.raises(StudyError) as raised:
        resolve_arms(Training(), {"none": {}, "some": {override: 1.0}}, {})
    error = raised.value
    assert error.found == f"the field '{path[-1]}' is gone since {SINCE}"
    assert error.fix == REMOVED[path].instead and error.where.field == ("variants", "some", override)


def test_the_base_of_an_own_trainer_keeps_a_field_of_that_name() -> None:
    own = {"trainer": "command", "base": {"data": {"mixture": {"wiki": 1.0}}}}
    assert without_removed(own) == own
    arms = resolve_arms(own["base"], {"none": {}, "some": {"data.mixture.wiki": 2.0}}, {})
    assert arms["some"].config == {"data": {"mixture": {"wiki": 2.0}}}


def test_a_seal_of_an_earlier_version_has_the_recipe_that_this_version_computes() -> None:
    root = Root.find(Path("studies/embnorm-scale.yaml"))
    registration = load_registration(root, "embnorm-scale")
    assert registration is not None
    seals = newest_seals(Ledger(root.ledger).entries(), registration.sha256)
    recipes = recipes_of(registration)
    assert seals.keys() == recipes.keys()
    assert {cell: seal.recipe_sha256 for cell, seal in seals.items()} == recipes
