"""Claims about the judge over rows: it is the scalar judge, study by study, whatever the study says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from evidence_factory import one_claim, small_study
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.judge.batch import FLIPPED_PAIRS, OUTCOME, batchable, judge_rows
from ablate.judge.simulate import outcomes_of
from prereg.spec import Study

VERBS = ("lowers", "raises", "changes", "does_not_worsen", "does_not_change")


@st.composite
def studies(draw: Any) -> Study:
    hypotheses = {}
    for index in range(draw(st.integers(1, 4))):
        verb = draw(st.sampled_from(VERBS))
        least = 0.25 if verb.startswith("does_not") else 0.0
        hypotheses[f"h{index}"] = {
            "claim": f"{draw(st.sampled_from(['layernorm', 'rmsnorm']))} {verb} "
            f"{draw(st.sampled_from(['val/loss', 'val/accuracy']))}",
            "smallest": draw(st.sampled_from([least, 0.25, 0.5, 1.0])),
            "role": draw(st.sampled_from(["primary", "secondary", "guardrail"])),
        }
    return small_study(
        hypotheses=hypotheses,
        decision=[{"verdict": "yes", "when": "supported(h0)"}, {"verdict": "inconclusive"}],
        seeds=list(range(draw(st.integers(2, FLIPPED_PAIRS)))),
        analysis={
            "test": draw(st.sampled_from(["paired_t", "sign_flip"])),
            "correct": draw(st.sampled_from(["holm", "none"])),
            "alpha": draw(st.sampled_from([0.01, 0.05, 0.25, 0.5])),
        },
        assume={},
        tie_breakers=[],
    )


@given(studies(), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_the_judge_over_rows_is_the_scalar_judge(study: Study, seed: int, coarse: bool, losses: bool) -> None:
    rng, rows, n = np.random.default_rng(seed), 12, len(study.seeds)
    drawn = {name: rng.standard_normal((rows, n)) + rng.normal(0, 0.6) for name in study.hypotheses}
    if coarse:  # ties, zeros, equal rows: where rounding decides
        drawn = {name: np.round(values * 4) / 4 * 0.1 for name, values in drawn.items()}
        drawn = {name: np.where(rng.random((rows, 1)) < 0.2, values[:, :1], values) for name, values in drawn.items()}
    kept = {name: rng.random((rows, n)) < 0.7 for name in study.hypotheses} if losses else None
    found = judge_rows(study, drawn, kept)
    for row in range(rows):
        one = {name: values[row] if kept is None else values[row][kept[name][row]] for name, values in drawn.items()}
        whose = None if kept is None else {name: tuple(np.flatnonzero(kept[name][row])) for name in kept}
        expected = outcomes_of(study, one, seeds=whose)
        assert [OUTCOME[code] for code in found[row]] == [expected[name] for name in study.hypotheses], row


def test_all_outcomes_occur_so_that_the_comparison_means_something() -> None:
    study, rng = small_study(), np.random.default_rng(0)
    drawn = {name: rng.normal(0.0, 0.01, (500, 5)) + rng.normal(0, 0.02, (500, 1)) for name in study.hypotheses}
    assert set(np.unique(judge_rows(study, drawn))) == {0, 1, 2}


@pytest.mark.parametrize(
    "analysis", [{"test": "bootstrap_t"}, {"test": "wilcoxon"}, {"correct": "max_t"}, {"test": "sign_flip"}]
)
def test_what_has_no_form_over_rows_is_left_to_the_scalar_judge(analysis: dict[str, str]) -> None:
    assert not batchable(one_claim(analysis=analysis), FLIPPED_PAIRS + 1)
