"""Differences that are equal as far as records can tell are equal to every test, and equal arms are equal."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import precision_rates as rates
import pytest
from campaign_samples import a_campaign
from evidence_factory import make_evidence, small_study

from ablate.judge.campaign.evidence import decision_of
from ablate.judge.campaign.procedure import ProposalDecision
from ablate.judge.decide import decide
from ablate.judge.findings import judge_hypotheses
from ablate.judge.judge import OUTCOME, judge_rows
from ablate.judge.recompute import recompute
from ablate.judge.stats.kinds import over_seeds
from ablate.judge.stats.precision import ROUNDING, levelled, on_a_grid
from ablate.judge.stats.significance_tests import BootstrapT
from ablate.judge.verdict import Decision, Finding
from prereg.study.spec import Study

HIGH, LOW = (0.90, 0.91, 0.89), (0.88, 0.89, 0.87)
LOSSES = (3.2783412, 3.2766871, 3.2801739, 3.2771204, 3.2790068)
"""As a trainer of its own writes them, with seven decimals."""


def in_single(values: Sequence[float]) -> list[float]:
    """The doubles that `.item()` gives of float32 values."""
    return [float(np.float32(value)) for value in values]


def as_text(values: Sequence[float]) -> list[float]:
    """The doubles of the decimals that a script prints of float32 values."""
    return [float(f"{np.float32(value):.8f}") for value in values]


def over_batches(values: Sequence[float]) -> list[float]:
    """Means in double precision of float32 values: no float32 any more."""
    return [float(np.mean([float(np.float32(value + by)) for by in (-0.01, 0.0, 0.01)])) for value in values]


def study_of(claim: str, smallest: float, n: int, **changes: Any) -> Study:
    fields = {"hypotheses": {"gain": {"claim": claim, "smallest": smallest}}}
    fields["decision"] = [{"verdict": "yes", "when": "supported(gain)"}, {"verdict": "inconclusive"}]
    fields |= {"variants": {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}}, "tie_breakers": []}
    return small_study(**(fields | {"seeds": list(range(1, n + 1)), "assume": {}} | changes))


def decided(study: Study, left: Sequence[float], right: Sequence[float]) -> Decision:
    metric = study.claims["gain"].metric
    values = {("layernorm", seed): value for seed, value in zip(study.seeds, left, strict=True)}
    values |= {("none", seed): value for seed, value in zip(study.seeds, right, strict=True)}
    return decide(*make_evidence(study, finals={metric: values}))


def finding_of(decision: Decision) -> Finding:
    assert decision.status in ("decided", "inconclusive"), [check for check in decision.checks if not check.passed]
    return decision.findings[0]


# -- precision ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", [in_single, as_text, over_batches, list])
@pytest.mark.parametrize("changes", [{}, {"scale": "log"}], ids=["raw", "log"])
def test_gains_that_are_equal_but_for_rounding_are_no_evidence(recorded: Any, changes: dict[str, Any]) -> None:
    hypothesis = {"claim": "layernorm raises val/accuracy", "smallest": 0.001, **changes}
    study = study_of("", 0.0, 3, hypotheses={"gain": hypothesis})
    # On the log scale equal ratios are equal gains.
    high = HIGH if not changes else [low * 1.02 for low in LOW]
    finding = finding_of(decided(study, recorded(high), recorded(LOW)))
    assert finding.outcome == "inconclusive" and finding.estimate is None and finding.p_support is None
    assert any("standard error is zero" in note for note in finding.notes)
    assert not any(effect.name in ("d_z", "g_z") for effect in finding.effects)


def test_gains_that_are_equal_but_for_rounding_are_no_evidence_at_a_look() -> None:
    study = study_of("layernorm raises val/accuracy", 0.001, 8, stopping={"looks": [3, 5, 8]}, assume={})
    left = {("layernorm", seed): value for seed, value in zip((1, 2, 3), in_single(HIGH), strict=True)}
    right = {("none", seed): value for seed, value in zip((1, 2, 3), in_single(LOW), strict=True)}
    left_out = tuple((arm, seed) for seed in study.seeds[3:] for arm in study.arms)
    decision = decide(*make_evidence(study, finals={"val/accuracy": left | right}, left_out=left_out))
    assert decision.status == "continue"


@pytest.mark.parametrize("test", ["sign_flip", "wilcoxon"])
def test_rounding_of_one_sign_is_no_difference_and_no_error_of_the_second_opinion(test: str) -> None:
    any_gain = study_of("layernorm lowers val/loss", 0.0, 7, analysis={"test": test})
    losses = [3.27834, 3.27669, 3.28017, 3.27712, 3.279, 3.2768, 3.2812]
    finding = finding_of(decided(any_gain, [loss - 1e-7 * (1 + at % 3) for at, loss in enumerate(losses)], losses))
    assert finding.outcome != "supported" and finding.estimate is not None and finding.estimate.p == 1.0
    study = study_of("layernorm lowers val/loss", 0.01, 7, analysis={"test": test})
    gains = [0.02, 0.02 + 2e-8, 0.02 - 3e-8, 0.02, 0.02 + 1e-8, 0.02, 0.02 - 1e-8]
    decision = decided(study, [loss - gain for loss, gain in zip(losses, gains, strict=True)], losses)
    # Equal differences have a p under these tests, which no library computes from values that are not equal.
    assert finding_of(decision).outcome == "supported"
    assert recompute(study, decision.findings).not_covered == ("gain",)


def test_a_spread_that_records_can_tell_is_evidence_as_before() -> None:
    study = study_of("layernorm lowers val/loss", 0.001, 5)
    gains = [0.0100, 0.0101, 0.0099, 0.0102, 0.0098]
    finding = finding_of(
        decided(study, in_single([a - b for a, b in zip(LOSSES, gains, strict=True)]), in_single(LOSSES))
    )
    assert finding.outcome == "supported" and finding.p_support is not None and 1e-9 < finding.p_support < 1e-6


def test_levelled_rows_do_not_depend_on_each_other_and_a_row_that_varies_keeps_its_bits() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(3.0, 0.01, (200, 6))
    gains = np.where(rng.random((200, 1)) < 0.5, 0.02, rng.normal(0.02, 0.01, (200, 6)))
    left = (values + gains).astype(np.float32).astype(np.float64)
    right = values.astype(np.float32).astype(np.float64)
    rounding = ROUNDING * (np.abs(left) + np.abs(right))
    together = levelled(left - right, rounding)
    assert together.tolist() == [levelled((left - right)[[at]], rounding[[at]])[0].tolist() for at in range(200)]
    equal = np.ptp(together, axis=1) == 0.0
    assert equal.tolist() == (np.ptp(gains, axis=1) == 0.0).tolist()
    assert (together[~equal] == (left - right)[~equal]).all()


def test_one_value_that_is_far_away_makes_no_other_pair_equal() -> None:
    left, right = np.array([[3.1, 3.2, 1e9]]), np.array([[3.0, 3.0, 1e9 - 64.0]])
    x, rounding = left - right, ROUNDING * (np.abs(left) + np.abs(right))
    # The last pair tells nothing (its gain is 64, give or take 950), and the first two differ.
    assert levelled(x, rounding).tolist() == x.tolist()


def proposal_of(high: Sequence[float], low: Sequence[float], metric: str = "val/accuracy") -> ProposalDecision:
    """The decision of a campaign's first proposal from the records of its runs."""
    study = small_study(
        baseline="best",
        variants={"best": {}, "proposal": {"model.embedding_norm": "layernorm"}},
        seeds=list(range(1, len(high) + 1)),
        hypotheses={"gain": {"claim": f"proposal raises {metric} than best", "smallest": 0.0}},
        decision=[{"verdict": "keep", "when": "supported(gain)"}, {"verdict": "inconclusive"}],
        tie_breakers=[],
        assume={},
    )
    values = {("proposal", seed): value for seed, value in zip(study.seeds, high, strict=True)}
    values |= {("best", seed): value for seed, value in zip(study.seeds, low, strict=True)}
    registration, evidence = make_evidence(study, finals={metric: values})
    campaign = a_campaign(metric=metric, smallest=0.0, stages={"seeds": [3, 6]})
    record: Any = SimpleNamespace(campaign=campaign, history=())
    return decision_of(record, 1, registration, evidence)


@pytest.mark.parametrize("recorded", [in_single, as_text, over_batches, list])
def test_a_campaign_keeps_no_gain_that_is_equal_but_for_rounding(recorded: Any) -> None:
    decision = proposal_of(recorded(HIGH), recorded(LOW))
    assert (decision.outcome, decision.p, decision.parts[0].bound) == ("next_stage", 1.0, None)
    worse = proposal_of(recorded(LOW), recorded(HIGH))
    assert (worse.outcome, worse.reason) == ("drop", "no_spread")


@pytest.mark.slow
def test_campaigns_over_few_items_err_as_often_in_single_precision_as_in_double() -> None:
    row = rates.campaign_row("3, 6, 12", 100, 0.9, "float32", 1_500)
    assert row.with_rule[0] <= 0.05 + 4.0 * sqrt(0.05 * 0.95 / row.n)
    # The cell can see the fault: without the rule it errs three times as often.
    assert row.without[0] > 0.11


def test_the_page_says_what_the_committed_table_says() -> None:
    assert rates.PAGE.read_text(encoding="utf-8") == rates.page(rates.committed()), "tests/precision_rates.py --page"
    for row in rates.committed():
        if row.of == "campaign":
            assert row.with_rule[0] <= 0.05 + 4.0 * sqrt(0.05 * 0.95 / row.n), row


# -- bootstrap-t with ties ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("n", "without"), [(4, 0.12), (7, 0.06)])
def test_bootstrap_t_does_not_reject_where_most_differences_are_equal(n: int, without: float) -> None:
    row = rates.tied_row(n, 1.0, 2_000)
    assert row.without[0] > without
    assert row.with_rule[0] <= 0.065 + 3.0 * sqrt(0.05 * 0.95 / row.n)


def test_a_resample_of_equal_differences_counts_as_beyond_every_t() -> None:
    # By hand: of the 4^4 index vectors 4 draw one pair; 3^4 - 3 draw the three equal differences alone.
    test = BootstrapT(np.array([[0.0, 1.0, 1.0, 1.0]]))
    t_star, weights = test.draws(0)
    assert weights.sum() == 4**4 - 4 and weights[np.isinf(t_star)].sum() == 3**4 - 3
    # t is 3, which no resample with spread reaches but the sample itself and those like it.
    assert test.p(0.0, "two")[0] > (3**4 - 3) / 4**4
    assert np.isnan(test.bounds(0.05)).all() and "equal differences" in test.without_interval(0.05)
    mirrored = BootstrapT(np.array([[0.0, -1.0, -1.0, -1.0]]))
    assert mirrored.p(0.0, "less")[0] == test.p(0.0, "greater")[0]


# -- arms that are equal to the bit ------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ["paired_t", "bootstrap_t"])
@pytest.mark.parametrize("claim", ["layernorm does_not_change val/loss", "layernorm does_not_worsen val/loss"])
def test_arms_that_are_equal_to_the_bit_are_equivalent_and_the_finding_says_why(claim: str, test: str) -> None:
    finding = finding_of(decided(study_of(claim, 0.01, 5, analysis={"test": test}), LOSSES, LOSSES))
    assert finding.outcome == "supported"
    assert any("exactly zero" in note and "no count" in note and "up to 45% of runs" in note for note in finding.notes)
    assert finding.p_support == over_seeds(test, np.zeros((1, 5))).floor(5)  # type: ignore[arg-type]
    assert finding.margin is not None and finding.margin.zone == "short of the margin"


def test_a_claim_of_an_improvement_is_refuted_by_arms_that_are_equal_to_the_bit() -> None:
    finding = finding_of(decided(study_of("layernorm lowers val/loss", 0.01, 5), LOSSES, LOSSES))
    assert finding.outcome == "refuted"


def test_differences_of_rounding_alone_are_within_a_margin_that_records_can_tell_and_no_other() -> None:
    # As sealed in studies/embnorm-centring.yaml: a refactor that changes the order of a sum.
    rounded = [loss * (1.0 + by * 1e-8) for loss, by in zip(LOSSES, (3, -2, 5, 1, -4), strict=True)]
    finding = finding_of(decided(study_of("layernorm does_not_change val/loss", 0.01, 5), rounded, LOSSES))
    assert finding.outcome == "supported" and finding.estimate is not None and finding.estimate.se
    fine = study_of("layernorm does_not_change val/loss", 1e-7, 5)
    assert finding_of(decided(fine, rounded, LOSSES)).outcome == "inconclusive"


def test_equal_gains_of_a_count_below_the_margin_are_no_evidence_of_being_small() -> None:
    study = study_of("layernorm does_not_change val/accuracy", 0.05, 3)
    assert finding_of(decided(study, in_single(HIGH), in_single(LOW))).outcome == "inconclusive"


def test_the_judge_of_simulated_studies_has_the_same_rule() -> None:
    zeros = {"gain": np.zeros((3, 5))}
    for metric, outcome in (("val/loss", "supported"), ("val/accuracy", "inconclusive")):
        codes = judge_rows(study_of(f"layernorm does_not_change {metric}", 0.01, 5), zeros).codes
        assert [OUTCOME[code] for code in codes[:, 0]] == [outcome] * 3


def test_a_look_ends_a_study_whose_arms_are_equal_to_the_bit() -> None:
    study = study_of("layernorm does_not_change val/loss", 0.01, 8, stopping={"looks": [3, 5, 8]})
    finals = {"val/loss": {(arm, seed): LOSSES[seed - 1] for arm in study.arms for seed in (1, 2, 3)}}
    left_out = tuple((arm, seed) for seed in study.seeds[3:] for arm in study.arms)
    decision = decide(*make_evidence(study, finals=finals, left_out=left_out))
    assert decision.verdict == "yes" and decision.look is not None and decision.look.number == 1


@pytest.mark.parametrize(
    ("metric", "values", "because"),
    [
        ("val/accuracy", (0.9012345, 0.9123456, 0.8934567, 0.9034561, 0.9045672), "counts"),
        ("val/loss", (3.2783, 3.2766, 3.2801, 3.2771, 3.2790), "multiples of one number"),
        ("val/loss", (41.0, 37.0, 44.0, 39.0, 40.0), "multiples of one number"),
        ("val/loss", (3.2783412,) * 5, "one value under several seeds"),
        ("val/loss", (*LOSSES[:4], LOSSES[0]), "one value under several seeds"),
    ],
    ids=["accuracy", "four decimals", "whole numbers", "a metric that is stuck", "a value twice"],
)
def test_equal_values_of_a_count_or_of_a_metric_that_is_stuck_are_no_evidence(
    metric: str, values: tuple[float, ...], because: str
) -> None:
    study = study_of(f"layernorm does_not_change {metric}", 0.01, 5)
    # Not by `decide`: runs that end alike in every metric have no verdict at all.
    value_by_run = {(arm, seed): value for arm in study.arms for seed, value in zip(study.seeds, values, strict=True)}
    (finding,) = judge_hypotheses(study, {metric: value_by_run})
    assert finding.outcome == "inconclusive" and finding.p_support is None
    assert any(because in note for note in finding.notes), finding.notes


def test_one_pair_that_differs_takes_the_rule_away() -> None:
    study = study_of("layernorm does_not_change val/loss", 0.01, 5)
    finding = finding_of(decided(study, (*LOSSES[:4], LOSSES[4] + 0.05), LOSSES))
    assert finding.outcome == "inconclusive" and not any("no count" in note for note in finding.notes)


def test_a_grid_is_seen_in_either_precision_and_random_values_have_none() -> None:
    rng = np.random.default_rng(3)
    for items in (7, 100, 1_319, 10_000):
        shares = rng.binomial(items, 0.8, 6) / items
        assert on_a_grid(shares) and on_a_grid(shares.astype(np.float32).astype(np.float64))
    losses = rng.normal(3.0, 0.1, (2_000, 3)).astype(np.float32).astype(np.float64)
    assert np.mean([on_a_grid(row) for row in losses]) < 0.005
