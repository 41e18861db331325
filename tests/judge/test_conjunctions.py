"""A verdict that needs all of its claims errs in at most alpha without any correction between them (Berger 1982)."""

from __future__ import annotations

import numpy as np
import pytest
from evidence_factory import small_study

from ablate.judge.stats.vectorized_judge import OUTCOME, judge_rows
from prereg.study.spec import Study


def best_of_three(correct: str) -> Study:
    """Is layernorm better than each of two other arms?"""
    return small_study(
        hypotheses={
            "than_none": {"claim": "layernorm lowers val/loss", "smallest": 0.02},
            "than_rms": {"claim": "layernorm lowers val/loss than rmsnorm", "smallest": 0.02},
        },
        analysis={"correct": correct},
        decision=[
            {"verdict": "best", "when": "supported(than_none) and supported(than_rms)"},
            {"verdict": "inconclusive"},
        ],
        tie_breakers=[],
        assume={},
    )


def called_best(correct: str, none: float, rms: float, n_sims: int = 40_000) -> float:
    """Share of studies with the verdict, when the two other arms are so many SDs of a run worse."""
    study, rng = best_of_three(correct), np.random.default_rng(0)
    noise = rng.standard_normal((3, n_sims, len(study.seeds)))
    layernorm, others = noise[0], (noise[1] + none, noise[2] + rms)
    codes = judge_rows(study, dict(zip(study.hypotheses, (layernorm - other for other in others), strict=True)))[0]
    return float((codes == OUTCOME.index("supported")).all(axis=1).mean())


@pytest.mark.parametrize(("none", "rms"), [(0.0, 0.0), (0.0, 1e3), (1e3, 0.0), (0.0, 1.0)])
def test_an_arm_that_ties_with_another_is_called_best_in_at_most_alpha(none: float, rms: float) -> None:
    share = called_best("none", none, rms)
    # One direction of a two-sided test: nominal .025 where the other comparison is certain.
    assert share <= 0.025 + 4 * (0.025 * 0.975 / 40_000) ** 0.5
    if max(none, rms) == 1e3:
        assert share == pytest.approx(0.025, abs=0.004)


def test_a_correction_between_them_would_only_cost_power() -> None:
    plain, corrected = called_best("none", 2.5, 2.5), called_best("holm", 2.5, 2.5)
    assert 0.6 < corrected < plain < corrected + 0.05
