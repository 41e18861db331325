"""Claims against a constant: one-sample tests with published values, error rates, the design, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
import pytest
from evidence_factory import make_evidence, one_claim, small_study
from export_samples import claim_facts, statement
from scipy import stats
from sentences import sentence_of

from ablate.judge.decide import decide
from ablate.judge.design.assumptions import assumed, learned
from ablate.judge.design.characteristics import simulate_design
from ablate.judge.design.reach import sd_difference
from ablate.judge.design.scenarios import TrueEffects, draw_studies, effect_scenarios
from ablate.judge.design.simulate import judge_drawn
from ablate.judge.findings import judge_hypotheses
from ablate.judge.judge import OUTCOME
from ablate.judge.recompute import recompute
from ablate.judge.stats.null_hypotheses import nulls_of
from ablate.judge.verdict import Finding
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.findings import pairs_figure
from prereg.study.spec import Study

# R, help page of `sleep`: extra hours of sleep of both groups as one sample; `t.test(extra ~ 1, data = sleep)` gives
# t = 3.413, df = 19, p = .002918, 95% CI .5955845 to 2.4844155, mean 1.54.
SLEEP = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0, 1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)
# Altman (1991), Practical Statistics for Medical Research, p. 183, in Dalgaard (2008), Introductory Statistics with R,
# section 5.1: energy intake of eleven women against 7725 kJ; t = -2.8208, df = 10, p = .01814, 95% CI 5986.348 to
# 7520.925; signed ranks V = 8.
ENERGY = (5260.0, 5470.0, 5640.0, 6180.0, 6390.0, 6515.0, 6805.0, 7515.0, 7515.0, 8230.0, 8770.0)
# NIST/SEMATECH e-Handbook of Statistical Methods, section 7.2.2: particle counts of ten wafers against 50; mean 53.7,
# s = 6.567, t = 1.782.
WAFERS = (50.0, 48.0, 44.0, 56.0, 61.0, 52.0, 53.0, 55.0, 67.0, 51.0)
# Darwin's maize, Fisher (1935), The Design of Experiments, section 17: t = 2.148, two-sided 5%.
MAIZE = (49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0, -48.0)
# Hollander and Wolfe (1973), p. 29, depression scale factors (R, help page of `wilcox.test`): first minus second,
# V = 40, one-sided p = .01953.
DEPRESSION = (0.952, -0.147, 1.022, 0.43, 0.62, 0.59, 0.49, -0.08, 0.01)

# Records of the NanoGPT speedrun (github.com/KellerJordan/modded-nanogpt, records/): validation losses of all runs
# and the p of `scipy.stats.ttest_1samp(accs, 3.28, alternative="less")` as the READMEs print it. In turn: sub-3-minute
# record of 2025; record of 2025-07-13; 2025-01-26; two of 2025-12-10.
SPEEDRUNS = [
    (
        "3.2811 3.2775 3.2797 3.2794 3.2797 3.279 3.2794 3.2785 3.2798 3.2787 3.279 3.2782 3.2776 3.2799 3.2788 3.2795 "
        "3.2794 3.2792 3.2787 3.2819",
        0.0021,
        4,
    ),
    (
        "3.2784 3.2791 3.2819 3.2801 3.2788 3.2794 3.2782 3.277 3.2784 3.2773 3.2803 3.2792 3.2792 3.2804 3.2817 "
        "3.2805 3.2783 3.2789 3.2779 3.2778",
        0.0049,
        4,
    ),
    (
        "3.2806 3.2829 3.2813 3.2789 3.2798 3.2794 3.2775 3.2768 3.2793 3.2838 3.2779 3.2782 3.2775 3.2784 3.2776 "
        "3.2814 3.2785 3.2793 3.2797 3.2782 3.2759 3.2803 3.278 3.2782",
        0.0171,
        4,
    ),
    ("3.2796 3.2781 3.2798 3.2793", 0.06323, 5),
    ("3.2758 3.2807 3.2776 3.2757 3.2793 3.2764 3.2795 3.2788 3.2785 3.2748", 0.002439, 6),
]


def finding(claim: str, values: Sequence[float], smallest: float = 0.0, **changes: Any) -> Finding:
    """The finding of a claim about val/loss of layernorm, whose numbers are recomputed by other libraries too."""
    study = one_claim(claim, smallest, seeds=len(values), **changes)
    found = judge_hypotheses(study, {"val/loss": {("layernorm", seed): x for seed, x in enumerate(values, 1)}})
    again = recompute(study, found)
    assert all(number.equal for number in again.numbers)
    return found[0]


@pytest.mark.parametrize(("losses", "p", "digits"), SPEEDRUNS, ids=["20", "20 again", "24", "4", "10"])
def test_speedrun_records_have_the_p_that_they_print(losses: str, p: float, digits: int) -> None:
    values = [float(word) for word in losses.split()]
    found = finding("layernorm lowers val/loss below 3.28", values)
    assert found.p_support is not None
    assert round(found.p_support, digits) == p
    assert found.outcome == ("supported" if p <= 0.05 else "inconclusive")
    assert found.n == len(values)


@pytest.mark.parametrize(
    ("values", "claim", "t", "two_sided", "bounds"),
    [
        (SLEEP, "raises val/loss above 0", 3.413, 0.002918, (0.5955845, 2.4844155)),
        (ENERGY, "lowers val/loss below 7725", -2.8208, 0.01814, (5986.348 - 7725, 7520.925 - 7725)),
        (WAFERS, "raises val/loss above 50", 1.782, None, None),
        (MAIZE, "raises val/loss above 0", 2.148, 0.0497, None),
    ],
    ids=["sleep", "energy", "wafers", "maize"],
)
def test_textbook_cases_of_one_sample(
    values: Sequence[float], claim: str, t: float, two_sided: float | None, bounds: tuple[float, float] | None
) -> None:
    # At alpha .025 the interval at 1 - 2 alpha is the published one at 95%.
    found = finding(f"layernorm {claim}", values, analysis={"alpha": 0.025})
    estimate = found.estimate
    assert estimate is not None and estimate.difference is not None and estimate.se is not None
    assert estimate.difference / estimate.se == pytest.approx(t, abs=5e-4)
    assert estimate.df == len(values) - 1
    assert found.p_support is not None and found.p_support == pytest.approx(estimate.p / 2.0)
    if two_sided is not None:
        assert estimate.p == pytest.approx(two_sided, abs=5e-5)
    if bounds is not None:
        assert estimate.interval is not None
        assert (estimate.interval.low, estimate.interval.high) == pytest.approx(bounds, abs=6e-4)
        assert estimate.interval.level == pytest.approx(0.95)
    assert found.outcome == ("supported" if found.p_support <= 0.025 else "inconclusive")


def test_signed_ranks_against_a_constant_are_hollanders_and_wolfes() -> None:
    found = finding("layernorm raises val/loss above 0", DEPRESSION, analysis={"test": "wilcoxon"})
    assert found.p_support == pytest.approx(0.01953125)
    # Altman's data tie; less than half of R's V = 8 is not exact there, so only its side is compared.
    assert finding("layernorm lowers val/loss below 7725", ENERGY, analysis={"test": "wilcoxon"}).p_support < 0.02


@pytest.mark.parametrize("test", ["bootstrap_t", "sign_flip", "wilcoxon"])
def test_the_other_tests_over_seeds_have_a_one_sample_form(test: str) -> None:
    shifted = [3.28 + value for value in DEPRESSION]
    found = finding("layernorm raises val/loss above 3.28", shifted, analysis={"test": test})
    zero = finding("layernorm raises val/loss above 0", DEPRESSION, analysis={"test": test})
    assert found.p_support == pytest.approx(zero.p_support)
    if test == "sign_flip":
        flips = stats.permutation_test(
            (np.array(DEPRESSION),),
            np.mean,
            permutation_type="samples",
            n_resamples=np.inf,
            alternative="greater",
        )
        assert zero.p_support == pytest.approx(flips.pvalue)


def test_both_sides_of_the_constant_can_be_shown_and_a_gain_too_small_is_refuted() -> None:
    values = [3.0 + 0.01 * step for step in range(-2, 3)]
    assert finding("layernorm lowers val/loss below 3.1", values).outcome == "supported"
    assert finding("layernorm lowers val/loss below 2.9", values).outcome == "refuted"
    assert finding("layernorm lowers val/loss below 3.0", values).outcome == "inconclusive"
    assert finding("layernorm lowers val/loss below 3.1", values, 0.2).outcome == "refuted"
    at_least = "layernorm lowers val/loss below 3.1 by at least"
    assert finding(f"{at_least} 0.05", values, 0.05).outcome == "supported"
    assert finding(f"{at_least} 0.2", values, 0.2).outcome == "refuted"
    assert finding(f"{at_least} 0.1", values, 0.1).outcome == "inconclusive"
    assert finding("layernorm raises val/loss above 2.9", values).outcome == "supported"


def test_the_interval_agrees_with_the_outcome() -> None:
    for shift in np.linspace(-0.04, 0.04, 41):
        values = [3.0 + shift + 0.01 * step for step in range(-2, 3)]
        found = finding("layernorm lowers val/loss below 3.0", values)
        assert found.estimate is not None and found.estimate.interval is not None
        low, high = found.estimate.interval.low, found.estimate.interval.high
        assert low is not None and high is not None
        expected = "supported" if high < 0 else "refuted" if low > 0 else "inconclusive"
        assert found.outcome == expected


def test_at_smallest_zero_one_of_the_two_nulls_is_always_true() -> None:
    for verb, side in (("lowers_below", "less"), ("raises_above", "greater")):
        support_null, refute_null = nulls_of(verb, "lower", 0.0)
        assert refute_null is not None
        other = {"less": "greater", "greater": "less"}[side]
        assert [support_null.points, refute_null.points] == [((0.0, side),), ((0.0, other),)]


def test_a_constant_is_put_on_the_logarithmic_scale() -> None:
    values = [3.1, 3.2, 3.05, 3.15, 3.12]
    found = finding("layernorm lowers val/loss below 3.28", values, hypothesis={"scale": "log"})
    expected = stats.ttest_1samp(np.log(values), np.log(3.28), alternative="less")
    assert found.p_support == pytest.approx(expected.pvalue)
    assert {pair.right for pair in found.pairs} == {float(np.log(3.28))}


def test_what_compares_two_samples_is_not_described() -> None:
    claim = "layernorm lowers val/loss below 3.28"
    study = one_claim(claim, 0.0, seeds=5)
    found = finding(claim, [3.2, 3.25, 3.22, 3.3, 3.21])
    assert {effect.name for effect in found.effects} == {"d_z", "g_z"}
    assert found.correlation is None
    said = sentence_of(found, study)
    assert "pair" not in said and "one-sample t" in said and "one-sided" in said
    same = finding("layernorm lowers val/loss below 3.28", [3.2] * 5)
    assert same.outcome == "inconclusive" and "pair" not in sentence_of(same, study)


def test_a_mean_of_arms_is_compared_seed_by_seed() -> None:
    study = one_claim("mean(layernorm, rmsnorm) lowers val/loss below 3")
    rng = np.random.default_rng(0)
    values = {(arm, seed): 2.98 + 0.01 * rng.standard_normal() for arm in study.arms for seed in study.seeds}
    found = judge_hypotheses(study, {"val/loss": values})[0]
    means = [np.mean([values[arm, seed] for arm in ("layernorm", "rmsnorm")]) for seed in study.seeds]
    assert found.p_support == pytest.approx(stats.ttest_1samp(means, 3.0, alternative="less").pvalue)


def test_a_study_of_one_arm_is_judged_from_its_evidence_alone() -> None:
    study = one_claim("none lowers val/loss below 2.05", 0.0, variants={"none": {}})
    registration, evidence = make_evidence(study, sd=0.01)
    decision = decide(registration, evidence)
    assert decision.verdict == "yes"
    assert not [check.name for check in decision.checks if check.name.startswith("pairs")]


# What is simulated is what will be judged.


def of_constants(**changes: Any) -> Study:
    return small_study(
        **(
            {
                "hypotheses": {
                    "ln": {"claim": "layernorm lowers val/loss below 3.28", "smallest": 0.01},
                    "rms": {"claim": "rmsnorm lowers val/loss below 3.28", "smallest": 0.01},
                    "both": {"claim": "mean(layernorm, rmsnorm) lowers val/loss below 3.28", "smallest": 0.01},
                    "gain": {"claim": "layernorm lowers val/loss than rmsnorm", "smallest": 0.01},
                },
                "decision": [{"verdict": "adopt", "when": "supported(ln)"}, {"verdict": "inconclusive"}],
                "assume": {"metrics": {"val/loss": {"sd": 0.01, "correlation": 0.6}}, "divergence": 0},
                "tie_breakers": [],
            }
            | changes
        )
    )


def test_the_noise_that_arms_share_is_in_claims_against_constants_and_not_in_contrasts() -> None:
    study = of_constants()
    beliefs = assumed(study)
    expected = {"ln": 0.01, "rms": 0.01, "both": 0.01 * np.sqrt(0.8), "gain": 0.01 * np.sqrt(0.8)}
    truth = TrueEffects("", {"ln": -0.02, "rms": 0.01, "both": -0.005, "gain": -0.03})
    drawn = draw_studies(study, truth, beliefs, n_sims=20_000, n_seeds=5, rng=np.random.default_rng(0)).differences
    for name, sd in expected.items():
        assert sd_difference(study, name, beliefs) == pytest.approx(sd)
        assert drawn[name].std() == pytest.approx(sd, rel=0.02)
        assert drawn[name].mean() == pytest.approx(truth.effects[name], abs=2e-4)
    assert np.corrcoef(drawn["ln"].ravel(), drawn["rms"].ravel())[0, 1] == pytest.approx(0.6, abs=0.01)


def test_metrics_of_one_run_share_the_luck_of_its_seed() -> None:
    claims = {"a": "none lowers val/loss below 3", "b": "none raises val/accuracy above 0.5"}
    study = of_constants(
        hypotheses={name: {"claim": claim, "smallest": 0.01} for name, claim in claims.items()},
        decision=[{"verdict": "adopt", "when": "supported(a) and supported(b)"}, {"verdict": "inconclusive"}],
        assume={"metrics": {metric: {"sd": 0.01, "correlation": 0.6} for metric in ("val/loss", "val/accuracy")}},
    )
    truth = TrueEffects("", {"a": 0.0, "b": 0.0}, correlation=0.5)
    drawn = draw_studies(
        study, truth, assumed(study), n_sims=20_000, n_seeds=5, rng=np.random.default_rng(0)
    ).differences
    # A lower loss is lucky, and so is a higher accuracy.
    assert np.corrcoef(drawn["a"].ravel(), drawn["b"].ravel())[0, 1] == pytest.approx(-0.5, abs=0.01)


def test_two_constants_for_one_arm_are_searched_for_the_worst_case() -> None:
    study = of_constants(
        hypotheses={
            "near": {"claim": "layernorm lowers val/loss below 3.28", "smallest": 0.0},
            "far": {"claim": "layernorm lowers val/loss below 3.25", "smallest": 0.0, "role": "secondary"},
        },
        decision=[{"verdict": "adopt", "when": "supported(near)"}, {"verdict": "inconclusive"}],
    )
    made = simulate_design(study, n_sims=4_000)
    assert made.false_adoption is not None
    assert made.false_adoption.share == pytest.approx(0.05, abs=0.012)
    assert "near at its constant" in made.false_adoption_in


def test_power_is_that_of_a_one_sided_t() -> None:
    study = one_claim(
        "none lowers val/loss below 3.28",
        0.01,
        variants={"none": {}},
        assume={"metrics": {"val/loss": {"sd": 0.01}}, "divergence": 0, "effects": {"h": 0.03}},
    )
    (one,) = simulate_design(study, n_sims=4_000).hypotheses
    # Power of a one-sided t at n = 5 and an effect of 3 SDs, of which too small a one is refuted in no case.
    expected = 1.0 - stats.nct.cdf(stats.t.ppf(0.95, 4), 4, 3.0 * np.sqrt(5))
    assert one.power == pytest.approx(expected, abs=0.01)
    assert one.sd_difference == pytest.approx(0.01)


def test_a_pilot_of_one_arm_tells_its_spread() -> None:
    pilot = one_claim("none lowers val/loss below 3", 0.0, study="pilot", seeds=40, variants={"none": {}})
    registration, evidence = make_evidence(pilot, sd=0.02)
    (belief,) = learned(one_claim("none lowers val/loss below 2", 0.0), registration, evidence).metrics
    final = [value for (arm, _), value in evidence.final("val/loss").items() if arm == "none"]
    upper = sqrt(39 / stats.chi2.ppf(0.2, 39))  # the 80% limit that a plan takes
    assert (belief.sd, belief.correlation) == (pytest.approx(upper * np.std(final, ddof=1)), 0.0)
    assert belief.sd_difference_low is None


@pytest.mark.slow
def test_claims_about_two_constants_leave_those_about_another_metric_their_power() -> None:
    # At most one of the first two is without effect, so that no state of the world has all true: each is planned alone.
    hypotheses = {
        "near": {"claim": "layernorm lowers val/loss below 2.02", "smallest": 0.02},
        "far": {"claim": "layernorm lowers val/loss below 1.95 by at least 0.01"},
        "other": {"claim": "none raises val/accuracy above 0.4", "smallest": 0.05},
    }
    believed = {"metrics": {"val/loss": {"sd": 0.02, "correlation": 0.3}, "val/accuracy": {"sd": 0.02}}}
    decision = [{"verdict": "adopt", "when": "supported(near)"}, {"verdict": "inconclusive"}]
    found = simulate_design(small_study(hypotheses=hypotheses, decision=decision, assume=believed), n_sims=400)
    powers = {one.hypothesis: one.power for one in found.hypotheses}
    assert powers["other"] is not None and powers["other"] > 0.9
    assert powers["near"] is not None and 0.0 < powers["near"] < 1.0


def rates(study: Study, effect: float, outcome: str, n_sims: int) -> float:
    truth = TrueEffects("", dict.fromkeys(study.hypotheses, effect))
    drawn = draw_studies(
        study, truth, assumed(study), n_sims=n_sims, n_seeds=len(study.seeds), rng=np.random.default_rng(1)
    )
    codes = judge_drawn(study, drawn).codes
    return float((codes == OUTCOME.index(outcome)).any(axis=1).mean())


def border(test: str, n: int, smallest: float, *, claims: int = 1) -> Study:
    names = [f"h{at}" for at in range(claims)]
    arms = ("none", "layernorm", "rmsnorm")
    return of_constants(
        hypotheses={
            name: {"claim": f"{arm} lowers val/loss below 3.28", "smallest": smallest}
            for name, arm in zip(names, arms, strict=False)
        },
        decision=[{"verdict": "adopt", "when": "supported(h0)"}, {"verdict": "inconclusive"}],
        seeds=list(range(1, n + 1)),
        analysis={"test": test},
    )


@pytest.mark.parametrize(("smallest", "effect", "outcome"), [(0, 0, "supported"), (0, 0, "refuted")])
def test_a_false_finding_at_the_constant_has_alpha(smallest: float, effect: float, outcome: str) -> None:
    study = border("paired_t", 5, smallest)
    assert rates(study, effect, outcome, 8_000) == pytest.approx(0.05, abs=0.01)


@pytest.mark.simulation
def test_looks_at_a_constant_keep_alpha() -> None:
    study = of_constants(
        hypotheses={"h0": {"claim": "layernorm lowers val/loss below 3.28", "smallest": 0}},
        decision=[
            {"verdict": "adopt", "when": "supported(h0)"},
            {"verdict": "no", "when": "refuted(h0)"},
            {"verdict": "inconclusive"},
        ],
        seeds=list(range(1, 9)),
        stopping={"looks": [3, 5, 8]},
    )
    for outcome in ("supported", "refuted"):
        assert rates(study, 0.0, outcome, 8_000) <= 0.05 + 3.0 * np.sqrt(0.05 * 0.95 / 8_000)


# Documents and the whole way.


def test_the_documents_say_one_sided_and_name_the_constant() -> None:
    study = of_constants()
    assert (claim_facts(study, "ln").support.null, claim_facts(study, "ln").support.sided) == ("δ ≥ 0", "one-sided")
    second = claim_facts(study, "ln").refutation
    assert second is not None and second.null.startswith("δ ≤ −0.01") and second.sided == "one-sided"
    assert "3.28" in statement(study, "ln")


def test_pairs_and_single_numbers_are_drawn_apart() -> None:
    study = of_constants()
    registration, evidence = make_evidence(study, sd=0.01)
    decision = decide(registration, evidence)
    at = "2026-01-02T03:04:05+00:00"
    context = ReportContext(decision, registration, evidence, ledger_head="0" * 64, generated_at=at)
    figure = pairs_figure(context)
    assert figure is not None and figure.name == "Pairs"
    assert [panel.title.split(":")[0] for panel in figure.panels] == ["ln", "rms", "both", "gain"]
    for panel in figure.panels:
        assert panel.make().to_dict()  # by altair's schema


def test_scenarios_start_where_the_mean_equals_the_constant() -> None:
    study = of_constants()
    assert effect_scenarios(study)[0].effects == dict.fromkeys(study.hypotheses, 0.0)
