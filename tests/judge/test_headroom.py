"""Claims about headroom: a metric at its floor or ceiling is named in the final evidence too, beside the verdict."""

from __future__ import annotations

import numpy as np
import pytest
from evidence_factory import make_evidence, small_study

from ablate.judge.audit.headroom import no_room
from ablate.judge.decide import decide
from ablate.judge.verdict import Check, Decision

HEADROOM = "every claimed metric had headroom"


def told(found: Decision) -> Check | None:
    return next((check for check in found.checks if check.name == HEADROOM), None)


@pytest.mark.parametrize(("level", "word"), [(0.999, "ceiling"), (0.001, "floor")])
def test_a_baseline_at_the_end_of_its_range_is_a_deviation(level: float, word: str) -> None:
    study = small_study()
    rng = np.random.default_rng(0)
    cells = {
        (arm, seed): float(np.clip(level + 0.002 * rng.standard_normal(), 0, 1))
        for arm in study.arms
        for seed in study.seeds
    }
    found = decide(*make_evidence(study, finals={"val/accuracy": cells}))
    check = told(found)
    assert check is not None and check.severity == "deviation" and found.status != "inadmissible"
    assert f"val/accuracy of none lies at its {word}: mean" in check.found and "n = 5 runs" in check.found


def test_a_baseline_that_never_moves_is_named_and_other_arms_are_not_looked_at() -> None:
    study = small_study()
    stuck = {"val/accuracy": {("none", seed): 0.25 for seed in study.seeds}}
    check = told(decide(*make_evidence(study, finals=stuck)))
    assert check is not None and "val/accuracy of none is the same for every seed (0.25, n = 5 runs)" in check.found
    other = {"val/accuracy": {("layernorm", seed): 0.25 for seed in study.seeds}}
    assert told(decide(*make_evidence(study, finals=other))) is None


def test_a_metric_with_room_says_nothing_and_one_without_bounds_has_only_to_move() -> None:
    assert told(decide(*make_evidence(small_study()))) is None
    values = np.array([[0.001], [0.002], [0.004]])
    assert no_room("val/loss", values) is None
    floor = no_room("harness/macro_accuracy", values)
    assert floor is not None and floor[1] == "floor"


def test_while_runs_are_missing_nothing_is_said_of_it() -> None:
    study = small_study()
    stuck = {"val/accuracy": {("none", seed): 0.25 for seed in study.seeds}}
    assert told(decide(*make_evidence(study, finals=stuck, left_out=(("rmsnorm", 1),)))) is None
