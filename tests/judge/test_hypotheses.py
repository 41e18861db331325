"""Claims about findings: nulls and sides, correction by role, pairing by seed, scales, sentences."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pandas as pd
import pytest
from evidence_factory import one_claim, small_study
from hypothesis import given, settings
from hypothesis import strategies as st
from paired_tests import p_against, prepare, weigh
from scipy import stats
from sentences import sentence_of

from ablate.judge.findings import contrast, judge_hypotheses
from ablate.judge.judge import judge_rows
from ablate.judge.recompute import pingouin_without_plots
from ablate.judge.stats.effects import effect_sizes
from ablate.judge.stats.null_hypotheses import nulls_of
from ablate.judge.verdict import Finding, shown_zone
from ablate.judge.wording import said_p
from ablate.reporting.view import FindingView
from prereg.study.spec import Study
from prereg.study.verbs import KINDS, Verb

JITTER = np.array([0.3, -0.5, 0.1, 0.6, -0.5, 0.2, -0.2, 0.45])


def values_of(
    differences: np.ndarray,
    *,
    metric: str = "val/loss",
    level: float = 2.0,
    arm: str = "layernorm",
) -> dict[str, dict[tuple[str, int], float]]:
    """Baseline at a level that swings with the seed, and the arm above it by the differences."""
    found = {}
    for seed, difference in enumerate(differences, start=1):
        found["none", seed] = level + 0.01 * seed
        found[arm, seed] = level + 0.01 * seed + float(difference)
    return {metric: found}


def judged(study: Study, differences: np.ndarray, **more: object) -> Finding:
    return judge_hypotheses(study, values_of(differences, **more), rng_seed=7)[0]  # type: ignore[arg-type]


def around(centre: float, spread: float = 0.004, n: int = 5) -> np.ndarray:
    jitter = JITTER[:n] - JITTER[:n].mean()
    return centre + spread * jitter / jitter.std(ddof=1)


@pytest.mark.parametrize(
    ("claim", "difference", "outcome"),
    [
        ("layernorm lowers val/loss", -0.05, "supported"),
        ("layernorm lowers val/loss", 0.05, "refuted"),
        ("layernorm lowers val/loss", 0.0, "refuted"),  # an improvement of 0.02 is ruled out
        ("layernorm lowers val/loss", -0.01, "refuted"),  # both hold: real, but smaller than what matters
        ("layernorm raises val/loss", 0.05, "supported"),
        ("layernorm raises val/loss", -0.05, "refuted"),
        ("layernorm raises val/loss", 0.01, "refuted"),
        ("layernorm changes val/loss", 0.05, "supported"),
        ("layernorm changes val/loss", -0.05, "supported"),
        ("layernorm changes val/loss", 0.0, "refuted"),
        ("layernorm changes val/loss", 0.01, "refuted"),
        ("layernorm does_not_worsen val/loss", -0.05, "supported"),
        ("layernorm does_not_worsen val/loss", 0.0, "supported"),
        ("layernorm does_not_worsen val/loss", 0.01, "supported"),  # both hold: worse, by less than what matters
        ("layernorm does_not_worsen val/loss", 0.05, "refuted"),
        ("layernorm does_not_change val/loss", 0.0, "supported"),
        ("layernorm does_not_change val/loss", 0.01, "supported"),
        ("layernorm does_not_change val/loss", 0.05, "refuted"),
        ("layernorm does_not_change val/loss", -0.05, "refuted"),
    ],
)
def test_every_verb_ends_where_the_table_of_the_format_says(claim: str, difference: float, outcome: str) -> None:
    assert judged(one_claim(claim), around(difference)).outcome == outcome


@pytest.mark.parametrize(
    ("claim", "difference", "outcome", "zone"),
    [
        ("layernorm lowers val/loss", -0.03, "supported", "at least the margin"),
        ("layernorm lowers val/loss", -0.02, "supported", "undecided"),
        ("layernorm lowers val/loss", -0.01, "refuted", "short of the margin"),
        ("layernorm lowers val/loss by at least 0.02", -0.03, "supported", "at least the margin"),
        ("layernorm lowers val/loss by at least 0.02", -0.02, "inconclusive", "undecided"),
        ("layernorm lowers val/loss by at least 0.02", -0.01, "refuted", "short of the margin"),
        ("layernorm lowers val/loss by at least 0.02", 0.03, "refuted", "short of the margin"),
        ("layernorm raises val/loss by at least 0.02", 0.03, "supported", "at least the margin"),
        ("layernorm raises val/loss by at least 0.02", 0.01, "refuted", "short of the margin"),
        ("layernorm does_not_worsen val/loss", 0.0, "supported", "short of the margin"),
        ("layernorm does_not_worsen val/loss", 0.03, "refuted", "at least the margin"),
        ("layernorm does_not_worsen val/loss", 0.02, "refuted", "undecided"),
        ("layernorm changes val/loss", -0.03, "supported", "at least the margin"),
        ("layernorm does_not_change val/loss", 0.0, "supported", "short of the margin"),
        ("layernorm does_not_change val/loss", -0.03, "refuted", "at least the margin"),
    ],
)
def test_outcome_and_zone_of_every_verb(claim: str, difference: float, outcome: str, zone: str) -> None:
    found = judged(one_claim(claim), around(difference))
    assert found.margin is not None
    assert (found.outcome, found.margin.zone) == (outcome, zone)


@pytest.mark.parametrize(("claim", "sign"), [("lowers", -1), ("does_not_worsen", 1)])
def test_no_zone_is_stated_where_zero_is_not_ruled_out(claim: str, sign: int) -> None:
    # scipy.stats.ttest_1samp: t = 4.234 against zero, two-sided p .0515; 3.935 against the margin, one-sided p .0295.
    found = judged(one_claim(f"layernorm {claim} val/loss", seeds=3), [sign * one for one in (0.15, 0.34, 0.36)])
    assert found.estimate is not None and found.estimate.p == pytest.approx(0.0515070, rel=1e-5)
    assert found.margin is not None and found.margin.p_reached == pytest.approx(0.0294617, rel=1e-5)
    assert (found.outcome, shown_zone(found.outcome, found.margin)) == ("inconclusive", "undecided")
    assert FindingView(found, one_claim(f"layernorm {claim} val/loss", seeds=3)).zone == "undecided"
    assert found.margin.zone == "at least the margin"  # as verdicts have recorded it


@pytest.mark.parametrize("test", ["paired_t", "sign_flip", "wilcoxon", "bootstrap_t"])
@pytest.mark.parametrize("claim", ["lowers val/loss by at least 0.02", "lowers val/loss", "does_not_worsen val/loss"])
def test_a_claim_about_the_margin_agrees_with_the_interval_at_one_minus_two_alpha(claim: str, test: str) -> None:
    rng = np.random.default_rng(11)
    study = one_claim(f"layernorm {claim}", seeds=7, analysis={"test": test})
    for _ in range(40):
        found = judged(study, rng.normal(-0.02, 0.02, 7))
        assert found.margin is not None and found.margin.interval is not None
        bounds = found.margin.interval
        assert bounds.level == pytest.approx(0.9) and bounds.low is not None and bounds.high is not None
        edge = 0.02 if "worsen" in claim else -0.02
        beyond, short = (bounds.low > edge, bounds.high < edge) if edge > 0 else (bounds.high < edge, bounds.low > edge)
        if test != "bootstrap_t":  # its one-sided p has two tails of its own, its interval is symmetric
            assert (found.margin.p_reached <= 0.05, found.margin.p_short <= 0.05) == (beyond, short)


def test_few_seeds_support_effects_too_small_to_matter_only_without_a_least_effect() -> None:
    # A true effect of half the margin, SD of the differences one margin. `lowers` is supported by any effect, so that
    # few seeds favour effects that do not matter; `by at least` errs in at most alpha at any number of seeds.
    rng, rates = np.random.default_rng(12), {}
    for claim in ("layernorm lowers val/loss", "layernorm lowers val/loss by at least 0.02"):
        for n in (3, 8, 15):
            study = one_claim(claim, seeds=n)
            codes = judge_rows(study, {"h": rng.normal(-0.01, 0.01, (20_000, n))}).codes
            rates[claim, n] = float((codes[:, 0] == 0).mean())
    plain, least = (list(rates.values())[at : at + 3] for at in (0, 3))
    assert max(plain) > 0.15, rates
    assert max(least) <= 0.01, rates


@pytest.mark.parametrize("verb", ["lowers", "raises", "changes", "does_not_worsen", "does_not_change"])
def test_wide_noise_leaves_every_claim_inconclusive(verb: str) -> None:
    study = one_claim(f"layernorm {verb} val/loss")
    found = judged(study, around(0.005, spread=0.1))
    assert found.outcome == "inconclusive"
    assert "undecided" in sentence_of(found, study) and "no effect" not in sentence_of(found, study)


def test_worse_means_lower_where_higher_is_better() -> None:
    study = one_claim("layernorm does_not_worsen val/accuracy", 0.005)
    assert judged(study, around(-0.03), metric="val/accuracy").outcome == "refuted"
    assert judged(study, around(0.03), metric="val/accuracy").outcome == "supported"


def test_the_p_values_are_those_of_the_named_nulls() -> None:
    differences = around(-0.015)
    found = judged(one_claim(), differences)
    t = stats.ttest_1samp(found.pairs and [pair.difference for pair in found.pairs], 0.0)
    assert found.p_support == pytest.approx(t.pvalue, rel=1e-6)
    beyond = stats.ttest_1samp(differences, -0.02, alternative="greater").pvalue
    assert found.p_refute == pytest.approx(beyond, rel=1e-6)


def test_support_counts_only_in_the_claimed_direction() -> None:
    assert judged(one_claim(), around(0.05)).p_support == 1.0
    assert judged(one_claim("layernorm raises val/loss"), around(-0.05)).p_support == 1.0


@given(
    st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=5, max_size=5, unique=True),
    st.sampled_from(["paired_t", "bootstrap_t", "sign_flip", "wilcoxon"]),
)
@settings(max_examples=60, deadline=None)
def test_lowers_of_the_mirrored_data_is_raises(differences: list[float], method: str) -> None:
    tests = [prepare(sign * np.array(differences), method, 1) for sign in (1.0, -1.0)]  # type: ignore[arg-type]
    there = weigh(tests[0], "lowers", "lower", 0.2)
    back = weigh(tests[1], "raises", "lower", 0.2)
    assert there.support == pytest.approx(back.support) and there.refute == pytest.approx(back.refute)


def test_at_smallest_zero_a_direction_is_refuted_only_by_evidence_of_the_other_one() -> None:
    study = one_claim(smallest=0.0)
    assert judged(study, around(0.05)).outcome == "refuted"
    tiny = judged(study, around(0.0001, spread=0.01))
    assert tiny.outcome == "inconclusive"
    # Both cannot hold at d = 0: a gain, however small, is a gain.
    assert judged(study, around(-0.01)).outcome == "supported"


def test_a_change_cannot_be_refuted_at_smallest_zero() -> None:
    found = judged(one_claim("layernorm changes val/loss", 0.0), around(0.0))
    assert (found.p_refute, found.p_refute_adjusted, found.outcome) == (None, None, "inconclusive")


def test_equivalence_is_the_interval_at_one_minus_two_alpha_inside_the_margin() -> None:
    for centre in np.linspace(-0.02, 0.02, 21):
        differences = around(float(centre), spread=0.012)
        low, high = stats.t.interval(0.90, 4, differences.mean(), stats.sem(differences))
        inside = low > -0.02 and high < 0.02
        assert (judged(one_claim("layernorm does_not_change val/loss"), differences).outcome == "supported") == inside


def test_equivalence_agrees_with_the_documented_example_of_pingouin() -> None:
    # pingouin.tost, documented paired example: bound 0.5, p = 0.954854.
    a, b = np.array([4, 7, 8, 6, 3, 2.0]), np.array([6, 8, 7, 10, 11, 9.0])
    theirs = float(pingouin_without_plots().tost(a, b, bound=0.5, paired=True)["pval"].iloc[0])
    test = prepare(a - b, "paired_t", 0)
    ours = weigh(test, "does_not_change", "neither", 0.5).support
    assert ours == pytest.approx(theirs, abs=1e-9) == pytest.approx(0.954854, abs=5e-7)


def test_holm_is_taken_within_a_role_and_separately_for_support_and_refutation() -> None:
    values = {
        "val/loss": values_of(around(-0.05))["val/loss"] | values_of(around(-0.03), arm="rmsnorm")["val/loss"],
        "val/accuracy": values_of(around(0.0, 0.001), metric="val/accuracy")["val/accuracy"]
        | values_of(around(0.001, 0.001), metric="val/accuracy", arm="rmsnorm")["val/accuracy"],
    }
    found = {one.hypothesis: one for one in judge_hypotheses(small_study(), values)}
    for one in found.values():
        assert one.family == 2 and one.p_support is not None and one.p_support_adjusted is not None
        assert one.p_support <= one.p_support_adjusted <= 2 * one.p_support
    smaller, larger = sorted((found["gain_ln"], found["gain_rms"]), key=lambda one: one.p_support or 0)
    assert smaller.p_support_adjusted == pytest.approx(2 * (smaller.p_support or 0))
    assert larger.p_support_adjusted == pytest.approx(larger.p_support)


def test_correct_none_corrects_nothing_and_holm_does() -> None:
    values = {
        "val/loss": values_of(around(-0.05))["val/loss"] | values_of(around(-0.03), arm="rmsnorm")["val/loss"],
        "val/accuracy": values_of(around(0.0), metric="val/accuracy")["val/accuracy"],
    }
    plain = judge_hypotheses(small_study(analysis={"correct": "none"}), values)
    assert all(one.p_support == one.p_support_adjusted for one in plain)
    assert any(one.p_support != one.p_support_adjusted for one in judge_hypotheses(small_study(), values))


def test_an_untestable_hypothesis_keeps_its_place_in_the_family() -> None:
    values = values_of(around(-0.05)) | {"val/accuracy": {}}
    found = {one.hypothesis: one for one in judge_hypotheses(small_study(), values)}
    assert found["gain_rms"].outcome == "inconclusive" and found["gain_rms"].estimate is None
    assert found["gain_ln"].family == 2
    assert found["gain_ln"].p_support_adjusted == pytest.approx(2 * (found["gain_ln"].p_support or 0))


def test_only_seeds_with_every_arm_enter_and_the_others_are_named() -> None:
    values = values_of(around(-0.05))
    del values["val/loss"]["layernorm", 3]
    found = judge_hypotheses(one_claim(), values)[0]
    assert found.n == 4 and [pair.seed for pair in found.pairs] == [1, 2, 4, 5]
    assert "seed 3 is left out: no val/loss from layernorm" in found.notes


def test_fewer_than_two_pairs_are_inconclusive_with_a_note() -> None:
    values = {"val/loss": {("none", 1): 2.0, ("layernorm", 1): 1.9}}
    found = judge_hypotheses(one_claim(), values)[0]
    assert (found.outcome, found.estimate, found.p_support) == ("inconclusive", None, None)
    assert any("at least two" in note for note in found.notes) and "cannot be tested" in sentence_of(found, one_claim())


def test_pairing_is_by_seed_and_not_by_order() -> None:
    values = values_of(around(-0.05))["val/loss"]
    shuffled = dict(sorted(values.items(), key=lambda item: -item[0][1]))
    assert judge_hypotheses(one_claim(), {"val/loss": shuffled}) == judge_hypotheses(one_claim(), {"val/loss": values})
    swapped = dict(values)
    swapped["none", 1], swapped["none", 5] = values["none", 5], values["none", 1]
    assert judge_hypotheses(one_claim(), {"val/loss": swapped}) != judge_hypotheses(one_claim(), {"val/loss": values})


def test_a_difference_of_differences_follows_the_weights() -> None:
    study = one_claim("(layernorm - none) raises val/loss than (rmsnorm - none)")
    values = {
        "val/loss": {("none", s): 2.0 for s in range(1, 6)}
        | {("layernorm", s): 2.3 for s in range(1, 6)}
        | {("rmsnorm", s): 2.1 + 0.001 * s for s in range(1, 6)}
    }
    found = judge_hypotheses(study, values)[0]
    assert found.estimate is not None and found.estimate.difference == pytest.approx(0.3 - 0.103)
    assert "(layernorm - none)" in sentence_of(found, study)


def test_the_log_scale_is_taken_of_each_value_before_the_contrast() -> None:
    study = one_claim(hypothesis={"scale": "log10"}, smallest=0.0)
    values = {
        "val/loss": {("none", s): 10.0 ** (1 + 0.01 * s) for s in range(1, 6)}
        | {("layernorm", s): 10.0 ** (0.5 + 0.013 * s) for s in range(1, 6)}
    }
    found = judge_hypotheses(study, values)[0]
    assert found.estimate is not None and found.estimate.difference == pytest.approx(-0.5 + 0.003 * 3)
    assert found.unit == "nats/token, log10 scale"
    assert found.arms[0].mean > 1.0  # description stays on the metric's own scale


@pytest.mark.parametrize(
    ("scale", "bad", "said"),
    [
        ("log", 0.0, "no logarithm"),
        ("log", -1.0, "no logarithm"),
        ("raw", float("nan"), "not finite"),
        ("raw", float("inf"), "not finite"),
    ],
)
def test_a_value_that_has_no_place_on_the_scale_makes_the_finding_inconclusive(
    scale: str, bad: float, said: str
) -> None:
    values = values_of(around(-0.05))
    values["val/loss"]["layernorm", 2] = bad
    found = judge_hypotheses(one_claim(hypothesis={"scale": scale}), values)[0]
    assert found.outcome == "inconclusive" and any(said in note for note in found.notes)


def test_equal_differences_are_inconclusive_under_t_and_decided_under_sign_flip() -> None:
    same = np.full(6, -0.5)
    values = {"val/loss": {("none", s): 2.0 for s in range(1, 7)} | {("layernorm", s): 1.5 for s in range(1, 7)}}
    assert judge_hypotheses(one_claim(seeds=6), values)[0].outcome == "inconclusive"
    assert judge_hypotheses(one_claim(seeds=6, analysis={"test": "sign_flip"}), values)[0].outcome == "supported"
    assert same.size == 6


def test_the_simultaneous_interval_is_bonferroni_and_says_so() -> None:
    values = {"val/loss": values_of(around(-0.05))["val/loss"] | values_of(around(-0.03), arm="rmsnorm")["val/loss"]}
    found = judge_hypotheses(small_study(), values)[0]
    differences = np.array([pair.difference for pair in found.pairs])
    low, high = stats.t.interval(1 - 0.05 / 2, 4, differences.mean(), stats.sem(differences))
    assert found.simultaneous is not None and found.simultaneous.method == "paired t, Bonferroni over 2"
    assert (found.simultaneous.low, found.simultaneous.high) == pytest.approx((low, high))
    assert found.simultaneous.level == pytest.approx(0.975)


def test_where_no_simultaneous_interval_is_attainable_the_note_says_so() -> None:
    found = judged(one_claim(analysis={"test": "sign_flip"}), around(-0.05))
    assert found.simultaneous is None
    assert any("no simultaneous interval" in note for note in found.notes)


def test_tests_under_also_describe_and_never_decide() -> None:
    plain = judged(one_claim(), around(-0.05))
    more = judged(one_claim(analysis={"also": ["sign_flip", "wilcoxon", "bootstrap_t"]}), around(-0.05))
    assert [one.method for one in more.also] == ["sign_flip", "wilcoxon", "bootstrap_t"]
    assert more.also[0].p > 0.05
    assert (more.outcome, more.p_support, more.estimate) == (plain.outcome, plain.p_support, plain.estimate)


@pytest.mark.slow
def test_the_same_evidence_gives_the_same_bytes_and_another_seed_another_bootstrap() -> None:
    study = one_claim(seeds=14, analysis={"test": "bootstrap_t"})
    values = values_of(np.random.default_rng(0).normal(-0.03, 0.03, 14))
    first, again = (judge_hypotheses(study, values, rng_seed=5)[0].model_dump_json() for _ in range(2))
    assert first == again != judge_hypotheses(study, values, rng_seed=6)[0].model_dump_json()


def test_company_does_not_change_a_p() -> None:
    study = small_study(analysis={"test": "bootstrap_t", "correct": "none"}, seeds=list(range(1, 9)))
    values = {
        "val/loss": values_of(around(-0.03, 0.03, 8))["val/loss"]
        | values_of(around(-0.01, 0.03, 8), arm="rmsnorm")["val/loss"]
    }
    together = {one.hypothesis: one.p_support for one in judge_hypotheses(study, values, rng_seed=3)}
    alone = judge_hypotheses(one_claim(seeds=8, analysis={"test": "bootstrap_t"}), values, rng_seed=3)[0]
    assert together["gain_ln"] == alone.p_support


def test_the_sentence_says_what_by_how_much_how_sure_and_from_how_many() -> None:
    values = {
        "val/loss": values_of(around(-0.0311, 0.0049))["val/loss"]
        | values_of(around(-0.03, 0.005), arm="rmsnorm")["val/loss"]
    }
    found = judge_hypotheses(small_study(), values)[0]
    assert sentence_of(found, small_study()) == (
        "layernorm improves validation loss by 0.0311 nats/token, 97.5% CI 0.0234 to 0.0388, n = 5 pairs, beyond the "
        f"margin of 0.02; paired t, Holm p {said_p(found.p_support_adjusted or 0)} over 2."
    )


@pytest.mark.parametrize(("p", "said"), [(5e-324, "< .0001"), (0.0004, "= .0004"), (0.0312, "= .031"), (1.0, "= 1")])
def test_a_p_is_never_printed_as_zero(p: float, said: str) -> None:
    assert said_p(p) == said


def test_description_stands_beside_every_finding() -> None:
    found = judged(one_claim(), around(-0.05))
    left, right = (np.array([getattr(pair, side) for pair in found.pairs]) for side in ("left", "right"))
    assert found.effects == effect_sizes(left, right, alpha=0.05)
    assert found.correlation == pytest.approx(pd.Series(left).corr(pd.Series(right)))
    assert [arm.arm for arm in found.arms] == ["layernorm", "none"]
    assert found.estimate is not None and (found.estimate.n, found.estimate.method) == (5, "paired_t")


def test_one_sided_p_against_a_margin_is_the_tost_of_statsmodels() -> None:
    from statsmodels.stats.weightstats import ttost_paired

    a, b = 2.0 + around(0.003), np.full(5, 2.0)
    theirs = ttost_paired(a, b, -0.02, 0.02)[0]
    ours = max(
        p_against(a - b, "paired_t", null=-0.02, side="greater", rng_seed=0),
        p_against(a - b, "paired_t", null=0.02, side="less", rng_seed=0),
    )
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_equivalence_gives_the_clinic_data_of_r() -> None:
    # R package equivalence, tost(clinic$var2[1:15] - clinic$var2[16:30], eps = 0.6): p = 0.4412034046
    # (as quoted by statsmodels' test_tost.py).
    treated = [4.00, 3.26, 4.14, 3.42, 3.25, 4.34, 4.97, 4.31, 3.11, 3.41, 5.02, 4.21, 4.59, 5.30, 4.32]
    control = [3.76, 3.66, 3.65, 3.60, 3.48, 2.87, 3.24, 3.92, 3.99, 4.21, 4.21, 3.31, 3.61, 2.97, 2.73]
    test = prepare(np.array(treated) - np.array(control), "paired_t", 0)
    assert test.mean == pytest.approx(0.5626666666666665) and (
        test.estimate(0.05).se == pytest.approx(0.2478276410785118)
    )
    assert weigh(test, "does_not_change", "neither", 0.6).support == pytest.approx(0.4412034046017588, abs=1e-9)


def test_a_mean_of_two_arms_is_compared_by_its_weights_and_named_so() -> None:
    study = one_claim("(0.5*layernorm + 0.5*rmsnorm) lowers val/loss")
    values = {
        "val/loss": values_of(around(-0.04))["val/loss"] | values_of(around(-0.08), arm="rmsnorm")["val/loss"],
    }
    found = judge_hypotheses(study, values)[0]
    assert found.estimate is not None
    assert found.estimate.difference == pytest.approx(-0.06)
    assert sentence_of(found, study).startswith("(0.5*layernorm + 0.5*rmsnorm) improves validation loss by 0.0600")
    named = one_claim("mean(layernorm, rmsnorm) lowers val/loss")
    by_name = judge_hypotheses(named, values)[0]
    assert (by_name.estimate, by_name.pairs, by_name.outcome) == (found.estimate, found.pairs, "supported")
    assert sentence_of(by_name, named).startswith("mean(layernorm, rmsnorm) improves validation loss by 0.0600")


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e300, 1.7e308])
def test_values_at_the_edge_of_the_numbers_are_judged_or_say_why_not(size: float) -> None:
    study = one_claim(smallest=0.0)
    values = {
        "val/loss": {
            (arm, seed): sign * size * (1.0 - 0.01 * seed)
            for seed in study.seeds
            for arm, sign in (("none", 1.0), ("layernorm", -1.0))
        }
    }
    found = contrast(study, "h", values)
    if size < 1e308:
        assert prepare(found.differences, "paired_t", 0).p(0.0, "two") < 1e-6
    else:  # the difference of two such numbers is none
        assert found.refused is not None and "largest number" in found.refused


SMALL = 0.2
SUPPORTING: dict[Verb, tuple[float, ...]] = {
    "lowers": (-0.3, -0.1),
    "raises": (0.1, 0.3),
    "lowers_by": (-0.3,),
    "raises_by": (0.3,),
    "lowers_below": (-0.3, -0.1),
    "raises_above": (0.1, 0.3),
    "changes": (-0.3, -0.1, 0.1, 0.3),
    "does_not_worsen": (-0.3, -0.1, 0.0, 0.1),
    "does_not_change": (-0.1, 0.0, 0.1),
}
"""Of the effects -.3, -.1, 0, .1 and .3, at a margin of .2 and a metric that is better lower: those that support."""
REFUTING: dict[Verb, tuple[float, ...]] = {
    "lowers": (-0.1, 0.0, 0.1, 0.3),
    "raises": (-0.3, -0.1, 0.0, 0.1),
    "lowers_by": (-0.1, 0.0, 0.1, 0.3),
    "raises_by": (-0.3, -0.1, 0.0, 0.1),
    "lowers_below": (-0.1, 0.0, 0.1, 0.3),
    "raises_above": (-0.3, -0.1, 0.0, 0.1),
    "changes": (-0.1, 0.0, 0.1),
    "does_not_worsen": (0.1, 0.3),
    "does_not_change": (-0.3, -0.1, 0.1, 0.3),
}


@pytest.mark.parametrize("verb", KINDS)
def test_every_verb_is_supported_and_refuted_by_the_effects_that_it_speaks_of(verb: Verb) -> None:
    assert set(KINDS) == set(SUPPORTING) == set(get_args(Verb))
    support, refute = nulls_of(verb, "lower", SMALL)
    assert refute is not None
    effects = (-0.3, -0.1, 0.0, 0.1, 0.3)
    assert tuple(effect for effect in effects if support.excludes(effect)) == SUPPORTING[verb]
    assert tuple(effect for effect in effects if refute.excludes(effect)) == REFUTING[verb]
    assert (nulls_of(verb, "lower", SMALL if KINDS[verb].is_absence else 0.0)[1] is None) == (verb == "changes")
