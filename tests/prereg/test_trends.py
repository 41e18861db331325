"""Trends over a factor: weights by the textbook, slopes with published values, and what a factor must be for one."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from export_samples import statement
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sentences import sentence_of
from statsmodels.stats.anova import AnovaRM
from study_samples import over

from ablate.judge.design.assumptions import assumed
from ablate.judge.design.reach import sd_difference
from ablate.judge.design.scenarios import TrueEffects, draw_studies
from ablate.judge.design.simulate import harmful_verdicts, judge_drawn
from ablate.judge.findings import judge_hypotheses
from ablate.judge.judge import OUTCOME
from ablate.judge.recompute import recompute
from ablate.judge.verdict import Finding
from prereg.study.claim import parse_claim, with_weights
from prereg.study.spec import Study

# Potthoff and Roy (1964), Biometrika 51; Orthodont in R's nlme. Distance at ages 8, 10, 12, 14 of 11 girls and 16 boys.
# Pinheiro and Bates (2000): lme(distance ~ age, random = ~ age | Subject) has a slope of 0.660185, SE 0.071253; in
# balanced data these are the mean and standard error of the children's own slopes.
GIRLS = """
21 20 21.5 23; 21 21.5 24 25.5; 20.5 24 24.5 26; 23.5 24.5 25 26.5; 21.5 23 22.5 23.5; 20 21 21 22.5; 21.5 22.5 23 25;
23 23 23.5 24; 20 21 22 21.5; 16.5 19 19 19.5; 24.5 25 28 28
"""
BOYS = """
26 25 29 31; 21.5 22.5 23 26.5; 23 22.5 24 27.5; 25.5 27.5 26.5 27; 20 23.5 22.5 26; 24.5 25.5 27 28.5; 22 22 24.5 26.5;
24 21.5 24.5 25.5; 23 20.5 31 26; 27.5 28 31 31.5; 23 23 23.5 25; 21.5 23.5 24 28; 17 24.5 26 29.5; 22.5 25.5 25.5 26;
23 24.5 26 30; 22 21.5 23.5 25
"""
ORTHODONT = [[float(word) for word in row.split()] for row in f"{GIRLS};{BOYS}".split(";")]
# Howell (Statistical Methods for Psychology), duration of migraines of nine people in five weeks: F(4, 32) = 85.04.
MIGRAINE = [
    [21.0, 22.0, 8.0, 6.0, 6.0],
    [20.0, 19.0, 10.0, 4.0, 4.0],
    [17.0, 15.0, 5.0, 4.0, 5.0],
    [25.0, 30.0, 13.0, 12.0, 17.0],
    [30.0, 27.0, 13.0, 8.0, 6.0],
    [19.0, 27.0, 8.0, 7.0, 4.0],
    [26.0, 16.0, 5.0, 2.0, 5.0],
    [17.0, 18.0, 8.0, 1.0, 5.0],
    [26.0, 24.0, 14.0, 8.0, 9.0],
]


def weights(claim: str, factors: dict[str, dict[str, dict[str, Any]]]) -> dict[str, float]:
    return with_weights(parse_claim(claim, baseline="none"), factors).weights


def rates(values: list[float]) -> dict[str, dict[str, dict[str, Any]]]:
    return {"rate": {f"l{at}": {"lr": value} for at, value in enumerate(values)}}


@pytest.mark.parametrize(
    ("values", "scale", "contrast"),
    [
        # Fisher and Yates, table XXIII; Snedecor and Cochran, table A 17: linear coefficients for 3, 4, 5 and 6 levels.
        ([1, 2, 3], "", [-1, 0, 1]),
        ([10, 20, 30, 40], "", [-3, -1, 1, 3]),
        ([1, 2, 3, 4, 5], "", [-2, -1, 0, 1, 2]),
        ([1, 2, 3, 4, 5, 6], "", [-5, -3, -1, 1, 3, 5]),
        # R: contr.poly(4)[, 1] and, of unequal spacing, contr.poly(3, scores = c(1, 2, 4))[, 1].
        ([1, 2, 3, 4], "", [-0.6708204, -0.2236068, 0.2236068, 0.6708204]),
        ([1, 2, 4], "", [-0.6172134, -0.1543033, 0.7715167]),
        ([0.1, 0.2, 0.4, 0.8], "log2 ", [-3, -1, 1, 3]),
        ([0.001, 0.01, 0.1], "log10 ", [-1, 0, 1]),
        ([0.4, 0.1, 0.2], "log2 ", [1, -1, 0]),
    ],
)
def test_weights_are_the_linear_contrast(values: list[float], scale: str, contrast: list[float]) -> None:
    found = weights(f"trend({scale}rate) lowers m", rates(values))
    got = np.array([found.get(f"l{at}", 0.0) for at in range(len(values))])
    wanted = np.array(contrast, dtype=np.float64)
    assert got / sqrt((got**2).sum()) == pytest.approx(wanted / sqrt((wanted**2).sum()), abs=1e-7)


def test_an_effect_is_per_unit_per_doubling_or_per_factor_of_ten() -> None:
    values = [0.1, 0.2, 0.4, 0.8]
    for scale, score in (("", lambda x: x), ("log2 ", np.log2), ("log10 ", np.log10)):
        found = weights(f"trend({scale}rate) lowers m", rates(values))
        means = np.array([5.0 - 3.0 * score(value) for value in values])
        assert sum(found[f"l{at}"] * mean for at, mean in enumerate(means)) == pytest.approx(-3.0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=8, unique_by=lambda x: round(np.log(x), 3)),
    st.integers(1, 3),
    st.sampled_from(["", "log2 ", "log10 "]),
)
def test_weights_sum_to_zero_and_give_the_slope_of_statsmodels(values: list[float], others: int, scale: str) -> None:
    factors = {"other": {f"o{at}": {"x": at} for at in range(others)}, **rates(values)}
    found = weights(f"trend({scale}rate) lowers m", factors)
    assert sum(found.values()) == pytest.approx(0.0, abs=1e-9 * max(abs(one) for one in found.values()))
    rng = np.random.default_rng(0)
    arms = [(f"o{other}-l{at}", value) for other in range(others) for at, value in enumerate(values)]
    y = rng.standard_normal(len(arms))
    x = np.array([value for _, value in arms])
    x = {"": x, "log2 ": np.log2(x), "log10 ": np.log10(x)}[scale]
    fitted = sm.OLS(y, sm.add_constant((x - x.mean()) / np.ptp(x))).fit().params[1] / np.ptp(x)
    slope = sum(found.get(arm, 0.0) * one for (arm, _), one in zip(arms, y, strict=True))
    assert slope == pytest.approx(fitted, rel=1e-6, abs=1e-6 / np.ptp(x))


def judged(table: list[list[float]], xs: list[float], claim: str, smallest: float = 0.0, **changes: Any) -> Finding:
    study = over(
        xs,
        claim,
        seeds=list(range(1, len(table) + 1)),
        hypotheses={"h": {"claim": claim, "smallest": smallest}},
        **changes,
    )
    values = {(f"l{at}", seed): value for seed, row in enumerate(table, 1) for at, value in enumerate(row)}
    found = judge_hypotheses(study, {"val/loss": values})
    assert all(number.equal for number in recompute(study, found).numbers)
    return found[0]


def test_growth_of_children_has_its_published_slope() -> None:
    claim = "trend(rate) raises val/loss"
    found = judged(ORTHODONT, [8, 10, 12, 14], claim)
    assert found.estimate is not None and found.outcome == "supported"
    assert found.estimate.difference == pytest.approx(0.660185, abs=5e-7)
    assert found.estimate.se == pytest.approx(0.071253, abs=5e-7)
    assert found.n == 27 and found.unit == "nats/token per unit of rate"
    study = over([8, 10, 12, 14], claim, seeds=list(range(1, 28)), hypotheses={"h": {"claim": claim, "smallest": 0.0}})
    assert "pair" not in sentence_of(found, study) and "one-sample t" in sentence_of(found, study)
    assert {effect.name for effect in found.effects} == {"d_z", "g_z"} and found.correlation is None


def test_the_linear_trend_of_migraines_is_that_of_each_persons_slope() -> None:
    long = pd.DataFrame([(i, j, y) for i, row in enumerate(MIGRAINE) for j, y in enumerate(row)], columns=list("swy"))
    anova = AnovaRM(long, "y", "s", within=["w"]).fit().anova_table
    assert anova["F Value"].iloc[0] == pytest.approx(85.04, abs=0.005)  # the data are the book's
    slopes = [sm.OLS(row, sm.add_constant(np.arange(5.0))).fit().params[1] for row in MIGRAINE]
    expected = stats.ttest_1samp(slopes, 0.0)
    found = judged(MIGRAINE, [1, 2, 3, 4, 5], "trend(rate) lowers val/loss")
    assert found.estimate is not None and found.estimate.se is not None and found.estimate.difference is not None
    assert found.estimate.difference / found.estimate.se == pytest.approx(expected.statistic)
    assert found.estimate.p == pytest.approx(expected.pvalue)


def test_a_margin_is_per_step_and_in_percent_per_step() -> None:
    at_least = "trend(rate) raises val/loss by at least"
    assert judged(ORTHODONT, [8, 10, 12, 14], f"{at_least} 0.5", 0.5).outcome == "supported"
    assert judged(ORTHODONT, [8, 10, 12, 14], f"{at_least} 0.8", 0.8).outcome == "refuted"
    study = over([1, 2, 4], hypotheses={"h": {"claim": "trend(log2 rate) lowers val/loss by at least 2%"}})
    assert study.hypotheses["h"].scale == "log"
    assert "2% per doubling of rate" in statement(study, "h").replace(" (0.0202027 in the natural logarithm)", "")


def test_arms_that_are_all_equal_have_a_slope_of_exactly_zero() -> None:
    table = [[2.0 + 0.1 * seed / 3.0] * 3 for seed in range(1, 6)]
    found = judged(table, [0.1, 0.3, 0.7], "trend(rate) lowers val/loss", analysis={"test": "sign_flip"})
    assert {pair.difference for pair in found.pairs} == {0.0}
    assert found.outcome == "inconclusive"


def test_a_trend_needs_every_arm_and_documents_show_its_weights() -> None:
    study = over([1, 2, 3])
    assert study.claims["h"].named == ("l0", "l1", "l2")  # the middle one too, whose weight is 0
    said = statement(study, "h")
    assert "l0 (1) −0.5, l1 (2) 0, l2 (3) 0.5" in said


def designed(claims: dict[str, Any], **changes: Any) -> Study:
    return over(
        [0.1, 0.2, 0.4, 0.8],
        hypotheses=claims,
        decision=[{"verdict": "adopt", "when": "supported(h)"}, {"verdict": "inconclusive"}],
        **({"assume": {"metrics": {"val/loss": {"sd": 0.01, "correlation": 0.5}}, "divergence": 0}} | changes),
    )


def test_the_noise_of_a_slope_is_that_of_its_weights() -> None:
    study = designed({"h": {"claim": "trend(log2 rate) lowers val/loss", "smallest": 0.01}})
    expected = 0.01 * sqrt(0.5) * sqrt(12 / (4 * (4**2 - 1)))  # as docs/designs.md has it
    assert sd_difference(study, "h", assumed(study)) == pytest.approx(expected)
    drawn = draw_studies(
        study,
        TrueEffects("", {"h": -0.02}),
        assumed(study),
        n_sims=10_000,
        n_seeds=5,
        rng=np.random.default_rng(0),
    ).differences["h"]
    assert drawn.std() == pytest.approx(expected, rel=0.02) and drawn.mean() == pytest.approx(-0.02, abs=1e-4)


def test_a_slope_adopts_no_arm_that_another_claim_could_find_harmful() -> None:
    study = designed(
        {
            "h": {"claim": "trend(log2 rate) lowers val/loss", "smallest": 0.01},
            "flat": {"claim": "trend(rate) does_not_change val/loss", "smallest": 0.01, "role": "guardrail"},
        }
    )
    assert harmful_verdicts(study, {"h": -0.01, "flat": 1.0}) == frozenset()


def error(case: tuple[str, float, float, str], n_sims: int, test: str = "paired_t") -> float:
    """The rate of an outcome of a claim, with a margin, at an effect."""
    claim, smallest, effect, outcome = case
    n = 5 if test == "paired_t" else 8
    study = designed(
        {"h": {"claim": claim, "smallest": smallest}}, analysis={"test": test}, seeds=list(range(1, n + 1))
    )
    rng = np.random.default_rng(3)
    drawn = draw_studies(study, TrueEffects("", {"h": effect}), assumed(study), n_sims=n_sims, n_seeds=n, rng=rng)
    return float((judge_drawn(study, drawn).codes == OUTCOME.index(outcome)).mean())


CASES = [
    (("trend(rate) lowers val/loss", 0.0, 0.0, "supported"), 0.025),
    (("trend(rate) changes val/loss", 0.0, 0.0, "supported"), 0.05),
    (("trend(log2 rate) lowers val/loss by at least 1", 1.0, -1.0, "supported"), 0.05),
    (("trend(log10 rate) does_not_change val/loss", 1.0, 1.0, "supported"), 0.05),
    (("trend(log2 rate) lowers val/loss", 1.0, -1.0, "refuted"), 0.05),
]


@pytest.mark.parametrize(("case", "nominal"), CASES)
def test_a_slope_at_its_border_errs_by_its_level(case: tuple[str, float, float, str], nominal: float) -> None:
    assert error(case, 6_000) == pytest.approx(nominal, abs=0.012)
