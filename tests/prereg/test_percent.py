"""Margins in percent: ratios on the natural logarithm, by the direction of the claim; a published bioequivalence."""

from __future__ import annotations

import re
from math import exp, log
from typing import Any

import numpy as np
import pytest
from evidence_factory import make_evidence, one_claim
from export_samples import claim_facts, statement
from hypothesis import given
from hypothesis import strategies as st
from own_trainer import own_document
from scipy import stats
from sentences import sentence_of

from ablate.judge.decide import decide
from ablate.judge.design.assumptions import assumed
from ablate.judge.design.scenarios import TrueEffects, draw_studies
from ablate.judge.design.simulate import judge_drawn
from ablate.judge.findings import judge_hypotheses
from ablate.judge.judge import OUTCOME
from ablate.judge.recompute import recompute
from ablate.judge.verdict import Finding
from ablate.reporting import markdown
from ablate.reporting.context import ReportContext
from ablate.reporting.view import FindingView
from prereg.documents.sentences import say
from prereg.errors import ClaimError, StudyError
from prereg.study.claim import parse_claim
from prereg.study.spec import Study, study_from_document

# Wellek (2003), Testing Statistical Hypotheses of Equivalence, p. 212, as used in part by the SAS/STAT User's Guide,
# The TTEST Procedure, "Equivalence Testing with Lognormal Data": AUC of a test and a reference drug in 12 subjects.
# Its output: geometric mean of the ratios 0.9412, 90% limits 0.8634 and 1.0260, equivalent within 0.8 and 1.25; two
# one-sided tests t = 3.38 (p = .0031) against 0.8 and t = -5.90 (p < .0001) against 1.25.
TEST_AUC = (103.4, 59.92, 68.17, 94.54, 69.48, 72.17, 74.37, 84.44, 96.74, 94.26, 48.52, 95.68)
REFERENCE_AUC = (90.11, 77.71, 77.71, 97.51, 58.21, 101.3, 79.84, 96.06, 89.30, 97.22, 61.62, 85.80)


def margin(claim: str, smallest: Any = None, **changes: Any) -> Study:
    """A study of one hypothesis whose margin is written as given, or in the claim alone."""
    return one_claim(
        hypotheses={"h": {"claim": claim, **({} if smallest is None else {"smallest": smallest}), **changes}}
    )


@pytest.mark.parametrize(
    ("claim", "smallest", "least"),
    [
        ("layernorm lowers val/loss by at least 2%", None, -log(0.98)),
        ("layernorm raises val/accuracy by at least 2%", None, log(1.02)),
        ("layernorm lowers val/loss", "2%", -log(0.98)),
        ("layernorm raises val/accuracy", "150%", log(2.5)),
        ("layernorm does_not_worsen val/loss", "2%", log(1.02)),
        ("layernorm does_not_worsen val/accuracy", "2%", -log(0.98)),
        ("layernorm changes val/loss", "2%", log(1.02)),
        ("layernorm does_not_change val/loss", ".5%", log(1.005)),
        ("layernorm lowers val/loss below 3.28 by at least 1.5%", None, -log(0.985)),
        ("mean(layernorm, rmsnorm) lowers val/loss than none", "10%", -log(0.9)),
    ],
)
def test_a_percentage_is_a_ratio_in_the_direction_of_the_claim(claim: str, smallest: str | None, least: float) -> None:
    study = margin(claim, smallest)
    (one,) = study.hypotheses.values()
    assert one.smallest == pytest.approx(least, rel=1e-14)
    assert one.scale == "log"
    assert f"{one.percent:g}%" in f"{claim} {smallest}".replace(".5%", "0.5%").replace("10.5%", "1.5%")
    assert study.claims["h"].percent == one.percent


@pytest.mark.parametrize("word", ["0%", "100%", "-2%", "%", "2%%", "1e400%"])
def test_a_least_fall_in_percent_lies_between_nothing_and_all(word: str) -> None:
    with pytest.raises(ClaimError, match="a least effect"):
        parse_claim(f"a lowers m by at least {word}", baseline="b")


@given(st.floats(0.01, 99.0), st.sampled_from(["lowers", "raises"]))
def test_any_percentage_makes_the_ratio_it_says(percent: float, verb: str) -> None:
    claim = parse_claim(f"a {verb} m by at least {percent:.6f}%", baseline="b")
    assert claim.by is not None and claim.percent is not None
    expected = 1.0 + claim.direction * claim.percent / 100.0
    assert exp(claim.direction * claim.by) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("claim", ["layernorm lowers val/loss by at least 2%", "layernorm lowers val/loss"])
def test_a_lock_is_read_back_as_it_was_written(claim: str) -> None:
    study = margin(claim, None if "%" in claim else "2%")
    document = study.model_dump(mode="json")
    assert document["hypotheses"]["h"]["percent"] == 2.0
    assert study_from_document(document) == study
    assert study.model_copy(update={"seeds": (1, 2, 3)}).hypotheses == study.hypotheses
    # The last digit of a logarithm may be another on the machine that reads the lock: its number holds.
    document["hypotheses"]["h"]["smallest"] *= 1.0 + 2e-16
    assert study_from_document(document).hypotheses["h"].smallest == document["hypotheses"]["h"]["smallest"]
    document["hypotheses"]["h"]["smallest"] *= 1.001
    with pytest.raises(StudyError):
        study_from_document(document)


def test_two_percentages_of_one_margin_are_refused_whichever_says_it() -> None:
    with pytest.raises(StudyError, match=r"percent: smallest is 3% and percent is 2%"):
        margin("layernorm lowers val/loss", "3%", percent=2.0)
    with pytest.raises(StudyError, match=r"smallest: smallest is 3% and the claim says 'by at least 2%'"):
        margin("layernorm lowers val/loss by at least 2%", "3%")


def crossover(claim: str, margin: str, **changes: Any) -> Study:
    return one_claim(seeds=12, hypotheses={"h": {"claim": claim, "smallest": margin}}, **changes)


def bioequivalence(claim: str, margin: str, **changes: Any) -> Finding:
    study = crossover(claim, margin, **changes)
    values = {("layernorm", seed): value for seed, value in enumerate(TEST_AUC, 1)}
    values |= {("none", seed): value for seed, value in enumerate(REFERENCE_AUC, 1)}
    found = judge_hypotheses(study, {"val/loss": values})
    assert all(number.equal for number in recompute(study, found).numbers)
    return found[0]


def test_the_bioequivalence_of_sas_has_its_ratio_its_limits_and_its_p() -> None:
    # Within a factor of 1.25 either way: 0.8 to 1.25.
    found = bioequivalence("layernorm does_not_change val/loss", "25%")
    assert found.outcome == "supported"
    assert found.estimate is not None and found.estimate.difference is not None
    assert exp(found.estimate.difference) == pytest.approx(0.9412, abs=5e-5)
    assert found.margin is not None and found.margin.interval is not None
    low, high = found.margin.interval.low, found.margin.interval.high
    assert low is not None and high is not None and found.margin.interval.level == pytest.approx(0.9)
    assert (exp(low), exp(high)) == pytest.approx((0.8634, 1.0260), abs=5e-5)
    assert found.p_support == pytest.approx(0.0031, abs=5e-5)
    said = sentence_of(found, crossover("layernorm does_not_change val/loss", "25%"))
    assert "difference −5.9%, 90% CI −13.7% to +2.6%" in said and "by 25% or more" in said


def test_a_narrower_range_is_not_shown() -> None:
    assert bioequivalence("layernorm does_not_change val/loss", "10%").outcome == "inconclusive"


def test_a_claim_by_percent_is_a_test_of_the_ratio() -> None:
    found = bioequivalence("layernorm lowers val/loss", "20%")
    differences = np.log(np.array(TEST_AUC) / np.array(REFERENCE_AUC))
    assert found.p_refute == pytest.approx(stats.ttest_1samp(differences, log(0.8), alternative="greater").pvalue)
    assert found.outcome == "refuted"
    assert "by 20% or more" in FindingView(found, None).meaning
    assert found.percent == 20.0


def test_a_ratio_is_worded_where_it_is_one() -> None:
    ranked = bioequivalence("layernorm lowers val/loss", "2%", analysis={"test": "wilcoxon"})
    study = crossover("layernorm lowers val/loss", "2%", analysis={"test": "wilcoxon"})
    said = sentence_of(ranked, study)
    assert "pseudomedian" in said and "log scale" in said and "geometric" not in said
    assert "geometric" not in statement(study, "h")
    interaction = one_claim(
        variants={name: {"optim.lr": 0.001 * at} for at, name in enumerate("abcd", 1)},
        baseline="a",
        hypotheses={"h": {"claim": "(a - b) lowers val/loss than (c - d)", "smallest": "2%"}},
    )
    rng = np.random.default_rng(0)
    values = {(arm, seed): 2.0 + 0.01 * rng.standard_normal() for arm in "abcd" for seed in interaction.seeds}
    said = sentence_of(judge_hypotheses(interaction, {"val/loss": values})[0], interaction)
    assert "log scale" in said and not re.search(r"difference \S+%", said) and "geometric" not in said
    assert statement(interaction, "h").startswith("In the natural logarithm of the validation loss, the difference")


def test_a_ratio_to_a_constant_names_it() -> None:
    study = one_claim(hypotheses={"h": {"claim": "layernorm lowers val/loss below 3", "smallest": "1%"}})
    values = {("layernorm", seed): 2.7 + 0.001 * seed for seed in study.seeds}
    said = sentence_of(judge_hypotheses(study, {"val/loss": values})[0], study)
    assert "geometric mean validation loss below 3: difference −9.900%, 90% CI −9.950% to −9.850%" in said


def test_documents_say_the_percentage() -> None:
    study = margin("layernorm lowers val/loss by at least 2%")
    assert "by at least 2%" in statement(study, "h")
    assert statement(study, "h").startswith("The geometric mean validation loss is lower")
    assert "logarithm" not in statement(margin("layernorm lowers val/loss below 3", "2%"), "h")
    raw = margin("layernorm lowers val/loss", "2%")
    assert "2%" in say("claims.matters", raw, claim_facts(raw, "h"))


def rates(claim: str, smallest: str | None, ratio: float, outcome: str, n_sims: int) -> float:
    study = one_claim(
        hypotheses={"h": {"claim": claim, **({} if smallest is None else {"smallest": smallest})}},
        assume={"metrics": {"val/loss": {"sd": 0.01, "correlation": 0.5}}, "divergence": 0},
    )
    truth = TrueEffects("", {"h": log(ratio)})
    drawn = draw_studies(study, truth, assumed(study), n_sims=n_sims, n_seeds=5, rng=np.random.default_rng(2))
    return float((judge_drawn(study, drawn).codes == OUTCOME.index(outcome)).mean())


@pytest.mark.parametrize(
    ("claim", "smallest", "ratio", "outcome"),
    [
        ("layernorm lowers val/loss by at least 10%", None, 0.9, "supported"),
        ("layernorm does_not_worsen val/loss", "10%", 1.1, "supported"),
        ("layernorm does_not_change val/loss", "10%", 1 / 1.1, "supported"),
        ("layernorm lowers val/loss", "10%", 0.9, "refuted"),
    ],
)
def test_at_its_ratio_a_margin_errs_by_alpha(claim: str, smallest: str | None, ratio: float, outcome: str) -> None:
    assert rates(claim, smallest, ratio, outcome, 8_000) == pytest.approx(0.05, abs=0.01)


def test_a_table_of_a_percentage_has_no_digits_of_its_logarithm() -> None:
    found = bioequivalence("layernorm lowers val/loss", "2%")
    assert FindingView(found, None).decimals <= 4
    assert not re.search(r"0\.0202", sentence_of(found, crossover("layernorm lowers val/loss", "2%")))


def test_a_margin_in_percent_is_said_to_be_of_geometric_means() -> None:
    """With arithmetic means 2% apart and SDs of the logarithm of .02 and .2, "no worse by 2%" of them errs in .073."""
    study = margin("layernorm does_not_worsen val/loss", "2%")
    registration, evidence = make_evidence(study, sd=0.02)
    text = markdown.render_markdown(
        ReportContext(decide(registration, evidence), registration, evidence, "ab" * 32, "2026-05-04T15:20:11+00:00")
    )
    assert "difference of logarithms: a ratio of geometric means over seeds" in text
    assert "geometric mean" in sentence_of(decide(registration, evidence).findings[0], study)


def test_methods_name_no_mean_where_the_test_has_none() -> None:
    study = one_claim(
        hypotheses={"h": {"claim": "layernorm does_not_worsen val/loss", "smallest": "2%"}},
        analysis={"test": "wilcoxon"},
        seeds=8,
    )
    registration, evidence = make_evidence(study, sd=0.02)
    text = markdown.render_markdown(
        ReportContext(decide(registration, evidence), registration, evidence, "ab" * 32, "2026-05-04T15:20:11+00:00")
    )
    assert "geometric" not in text and "pseudomedian of the pairs' log ratios" in text


def test_a_percent_sign_in_the_name_of_a_metric_is_no_margin() -> None:
    study = study_from_document(own_document(hypotheses={"gain": {"claim": "fast lowers dev%loss", "smallest": 0.1}}))
    assert (study.claims["gain"].metric, study.hypotheses["gain"].percent) == ("dev%loss", None)
