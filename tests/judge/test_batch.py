"""Claims about the judge over rows: blocks, losses and the levels of items give each study what it gets by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from evidence_factory import small_study
from hypothesis import given, settings
from hypothesis import strategies as st
from paired_tests import judge_families, outcomes_of, two_way, weigh

from ablate.judge.judge import OUTCOME, ItemsOf, judge_rows
from ablate.judge.stats.crossed_items import Crossed
from ablate.judge.stats.null_hypotheses import Nulls
from ablate.judge.stats.significance_tests import FAST_ENUMERATED_PAIRS, Floats
from ablate.judge.stats.two_way import spread_of, tail_of
from prereg.study.spec import Study

VERBS = ("lowers", "raises", "changes", "does_not_worsen", "does_not_change")


@st.composite
def studies(draw: Any) -> Study:
    test = draw(st.sampled_from(["paired_t", "bootstrap_t", "sign_flip", "wilcoxon"]))
    hypotheses = {}
    for index in range(draw(st.integers(1, 4))):
        verb = draw(st.sampled_from(VERBS))
        least = 0.25 if verb.startswith("does_not") else 0.0
        claim = f"{draw(st.sampled_from(['layernorm', 'rmsnorm']))} {verb} "
        claim += draw(st.sampled_from(["val/loss", "val/accuracy"]))
        if verb in ("lowers", "raises") and draw(st.booleans()):
            claim += " below 2" if verb == "lowers" else " above 2"
        hypotheses[f"h{index}"] = {
            "claim": claim,
            "smallest": draw(st.sampled_from([least, 0.25, 0.5, 1.0])),
            "role": draw(st.sampled_from(["primary", "secondary", "guardrail"])),
        }
    sizes = st.one_of(st.integers(2, 10), st.sampled_from([12, 14]))
    if test == "bootstrap_t":
        sizes = st.integers(2, FAST_ENUMERATED_PAIRS)  # of more pairs, rows take fewer resamples than a real study
    return small_study(
        hypotheses=hypotheses,
        decision=[{"verdict": "yes", "when": "supported(h0)"}, {"verdict": "inconclusive"}],
        seeds=list(range(draw(sizes))),
        analysis={
            "test": test,
            "zeros": draw(st.sampled_from(["pratt", "wilcox"])) if test == "wilcoxon" else "pratt",
            "correct": draw(st.sampled_from(["holm", "none"])),
            "alpha": draw(st.sampled_from([0.01, 0.05, 0.1])),
        },
        assume={},
        tie_breakers=[],
    )


@given(studies(), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
@pytest.mark.simulation
def test_a_study_among_others_has_the_outcomes_that_it_has_alone(
    study: Study, seed: int, coarse: bool, losses: bool
) -> None:
    rng, rows, n = np.random.default_rng(seed), 8, len(study.seeds)
    drawn = {name: rng.standard_normal((rows, n)) + rng.normal(0, 0.6) for name in study.hypotheses}
    if coarse:  # ties, zeros, equal rows: where rounding decides
        drawn = {name: np.round(values * 4) / 4 * 0.1 for name, values in drawn.items()}
        drawn = {name: np.where(rng.random((rows, 1)) < 0.2, values[:, :1], values) for name, values in drawn.items()}
    kept = {name: rng.random((rows, n)) < 0.7 for name in study.hypotheses} if losses else None
    found = judge_rows(study, drawn, kept, rng_seed=seed % 3).codes
    for row in range(rows):
        one = {name: values[row] if kept is None else values[row][kept[name][row]] for name, values in drawn.items()}
        expected = outcomes_of(study, one, seed % 3, left_out=losses)
        assert [OUTCOME[code] for code in found[row]] == [expected[name] for name in study.hypotheses], row


def test_all_outcomes_occur_so_that_the_comparison_means_something() -> None:
    study, rng = small_study(), np.random.default_rng(0)
    drawn = {name: rng.normal(0.0, 0.01, (500, 5)) + rng.normal(0, 0.02, (500, 1)) for name in study.hypotheses}
    assert set(np.unique(judge_rows(study, drawn).codes)) == {0, 1, 2}


N_TABLES = 8
SIZES = {"equal": (3,) * 12, "unequal": (1, 2, 2, 3, 5, 8, 13, 21)}


@pytest.mark.simulation
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("correct", ["holm", "none"])
def test_the_levels_of_the_correction_decide_as_the_p_of_each_table(sizes: tuple[int, ...], correct: str) -> None:
    rng, weights = np.random.default_rng(len(sizes)), np.array(sizes) / sum(sizes)
    tail = tail_of(weights)
    hypotheses = {
        f"h{at}": {
            "claim": f"layernorm {verb} harness/accuracy",
            "smallest": 0.75 if "not" in verb else 0.25,
            "role": ("primary", "guardrail")[at // 3],
        }
        for at, verb in enumerate(VERBS)
    }
    seen = set()
    for n in (2, 3, 6):
        study = small_study(
            hypotheses=hypotheses,
            decision=[{"verdict": "yes", "when": "supported(h0)"}, {"verdict": "inconclusive"}],
            seeds=list(range(n)),
            analysis={"test": "items", "estimand": "new_seeds_and_items", "alpha": 0.1, "correct": correct},
            measure={"every": 20, "harness": {"tasks": "blimp", "clusters": "tasks"}},
            assume={},
            tie_breakers=[],
        )
        tables = {
            name: rng.standard_normal((N_TABLES, n, weights.size))
            + rng.choice([0.0, 0.5]) * rng.standard_normal((N_TABLES, n, 1))
            + rng.choice([0.0, 0.5]) * rng.standard_normal((N_TABLES, 1, weights.size))
            + rng.normal(0.0, 1.0, (N_TABLES, 1, 1))
            for name in study.hypotheses
        }
        kept = np.arange(n) < np.where(np.arange(N_TABLES) < N_TABLES // 2, n, max(2, n - 2))[:, None]
        rows: dict[str, Floats] = {name: table @ weights for name, table in tables.items()}
        items = {}
        for name, table in tables.items():
            each = [spread_of(one[mine], weights) for one, mine in zip(table, kept, strict=True)]
            over = (np.array([float(getattr(one, term)) for one in each]) for term in ("units", "both"))
            items[name] = ItemsOf(*over, tail)
        found = judge_rows(study, rows, dict.fromkeys(rows, kept), items=items).codes
        for row in range(N_TABLES):
            nulls: dict[str, Nulls | None] = {}
            for name, claim in study.claims.items():
                mine = np.repeat(tables[name][row][kept[row]], sizes, axis=1)
                if len(mine) < (2 if kept[row].all() else 3):  # fewer than the least are left
                    nulls[name] = None
                    continue
                table = Crossed(mine, np.repeat(np.arange(len(sizes)), sizes))
                test = two_way(table)
                nulls[name] = weigh(test, claim.verb, claim.better, study.hypotheses[name].smallest)
            expected = judge_families(study, nulls)
            assert [OUTCOME[code] for code in found[row]] == [one.outcome for one in expected.values()], (n, row)
            seen |= {one.outcome for one in expected.values()}
    assert seen == set(OUTCOME)
