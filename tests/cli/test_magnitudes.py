"""Values of any size: the unit of a metric changes no outcome and no p, and a number near 1e300 or 1e-12 is shown."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from evidence_factory import make_evidence, small_study
from hypothesis import given, settings
from hypothesis import strategies as st

import ablate
from ablate.judge.decide import decide
from ablate.judge.design.characteristics import simulate_design
from ablate.judge.findings import judge_hypotheses
from ablate.reporting import html, markdown
from ablate.reporting.context import ReportContext
from ablate.reporting.estimates import decimals_for, decimals_of
from prereg.study.spec import Study
from prereg.text import MINUS, number

TESTS = ("paired_t", "bootstrap_t", "sign_flip", "wilcoxon", "welch")
MAGNITUDES = (1e-300, 1e-150, 1e-12, 1e12, 1e150, 1e300)


def study_of(unit: float, test: str = "paired_t", **changes: Any) -> Study:
    """Two claims whose margins are in a unit."""
    claims = {
        "gain": {"claim": "layernorm lowers val/loss", "smallest": 0.02 * unit},
        "same": {"claim": "rmsnorm does_not_change val/loss", "smallest": 0.02 * unit},
    }
    rule = [{"verdict": "yes", "when": "supported(gain)"}, {"verdict": "inconclusive"}]
    assume = {"metrics": {"val/loss": {"sd": 0.02 * unit, "correlation": 0.5}}}
    document = {"hypotheses": claims, "decision": rule, "assume": assume, "tie_breakers": []}
    return small_study(**document, seeds=[1, 2, 3, 4, 5, 6], analysis={"test": test}, **changes)


def values_of(study: Study, unit: float, seed: int = 0) -> dict[tuple[str, int], float]:
    """Losses about 1 of that unit; layernorm's are .05 lower."""
    rng = np.random.default_rng(seed)
    level = {one: 1.0 + 0.1 * rng.standard_normal() for one in study.seeds}
    gap = {"layernorm": -0.05}
    return {(arm, s): unit * (level[s] + gap.get(arm, 0.0) + 0.01 * rng.standard_normal()) for arm, s in study.cells}


@pytest.mark.slow
@given(st.integers(-996, 996), st.sampled_from(TESTS), st.integers(0, 2**16))
@settings(max_examples=60, deadline=None)
def test_a_power_of_two_as_the_unit_changes_no_p_no_outcome_and_the_estimate_by_itself(
    power: int, test: str, seed: int
) -> None:
    """From 1e-300 to 1e300, to the last bit: numbers are computed in a unit of their own."""
    unit = 2.0**power
    here, there = (
        judge_hypotheses(study_of(one, test), {"val/loss": values_of(study_of(one, test), one, seed)})
        for one in (1.0, unit)
    )
    for ours, theirs in zip(here, there, strict=True):
        assert ours.outcome == theirs.outcome
        assert (ours.p_support, ours.p_refute) == (theirs.p_support, theirs.p_refute)
        assert ours.estimate is not None and theirs.estimate is not None
        assert theirs.estimate.difference == ours.estimate.difference * unit  # type: ignore[operator]
        one, other = ours.estimate.interval, theirs.estimate.interval
        assert (one is None) is (other is None)
        if one is not None and other is not None:
            assert (other.low, other.high) == (one.low * unit, one.high * unit)  # type: ignore[operator]
        assert [effect.value for effect in ours.effects] == [effect.value for effect in theirs.effects]


@pytest.mark.slow
@pytest.mark.parametrize("unit", MAGNITUDES)
def test_decide_report_and_design_take_values_of_any_size_and_show_them(unit: float) -> None:
    plain = decide(*make_evidence(study_of(1.0), finals={"val/loss": values_of(study_of(1.0), 1.0)}))
    study = study_of(unit)
    registration, evidence = make_evidence(study, finals={"val/loss": values_of(study, unit)})
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = decide(registration, evidence)
        designed = simulate_design(study, n_sims=50)
    assert (found.verdict, found.status) == (plain.verdict, plain.status) == ("yes", "decided")
    assert [one.found for one in found.checks if not one.passed] == [
        one.found for one in plain.checks if not one.passed
    ]
    powers = [(one.hypothesis, one.can_be_supported, one.can_be_refuted) for one in designed.hypotheses]
    assert powers == [
        (one.hypothesis, one.can_be_supported, one.can_be_refuted)
        for one in simulate_design(study_of(1.0), n_sims=50).hypotheses
    ]
    context = ReportContext(found, registration, evidence, "ab12" * 16, "2026-05-04T15:20:11+00:00")
    for text in (
        markdown.render_markdown(context),
        re.sub(r"<svg.*?</svg>", "", html.render_html(context), flags=re.DOTALL),
    ):
        assert not re.search(r"0\.000000|[0-9](,[0-9]{3}){6}|(?<![0-9a-f])[0-9]{25}", text)
        exponent = str(int(np.floor(np.log10(abs(found.findings[0].estimate.difference)))))  # type: ignore[union-attr, arg-type]
        large = "48,035,499,836.5" if unit < 1e15 else "4.80355e+"
        shown = f"4.8e{exponent.replace('-', MINUS)}" if unit < 1 else large
        assert shown in text, exponent


@pytest.mark.parametrize("unit", (*MAGNITUDES, 1e-7))
@pytest.mark.parametrize("test", ["paired_t", "welch", "bootstrap_t"])
def test_judge_frame_shows_no_zero_and_no_row_of_digits(unit: float, test: str) -> None:
    study = study_of(unit)
    rows = [(arm, seed, value) for (arm, seed), value in values_of(study, unit).items()]
    table = pd.DataFrame(rows, columns=["variant", "seed", "val/loss"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        judged = ablate.judge_frame(
            table, "layernorm lowers val/loss", smallest=0.02 * unit, baseline="none", test=test
        )
    assert not re.search(r"[^0-9.]0\.0+[^0-9]|[0-9](,[0-9]{3}){6}|[0-9]{25}", str(judged))


def test_a_number_has_a_power_of_ten_where_decimals_would_not_do() -> None:
    assert number(-5e-14, 15) == f"{MINUS}5.0e{MINUS}14" and number(0.0, 15) == "0" and number(4e-17, 15) == "0"
    assert number(-4.996790039829127e298, 0) == f"{MINUS}4.99679e+298" and number(999e12, 0) == "999,000,000,000,000"
    # A spread that is rounding alone gives a number of ordinary size no row of zeros.
    assert (decimals_for(1e-15), decimals_for(1e-15, 2.0), decimals_for(1e-15, 5e-14)) == (8, 8, 16)
    assert decimals_of([None, 2e-14], [3e-13, 2e-13]) == 15 and decimals_of([None, 0.02], [2.31]) == 3
