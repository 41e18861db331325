"""The rules that are handed out err, all answers together, no more often than they state.

The committed table has 20,000 studies a rate; here it is checked, and measured again with fewer draws.
"""

from __future__ import annotations

import re
from math import hypot
from typing import Any

import numpy as np
import pytest
import rule_error_rates as rates
import yaml
from evidence_factory import one_claim
from scipy import stats
from test_design_warnings import study as tiny_study

from ablate.judge.design.assumptions import assumed
from ablate.judge.design.characteristics import simulate_design
from ablate.judge.design.scenarios import TrueEffects, draw_studies
from ablate.judge.design.simulate import answering_verdicts, simulate
from ablate.reporting.sections.design import facts_of
from prereg.study.spec import Study, study_from_document

ROWS = rates.committed()
TABLE = {(row.rule, row.law): row for row in ROWS}
HANDED_OUT = [name for name in rates.rules() if name not in rates.BEFORE]
SIGMAS = 3.0
# Rates of the table that are compared with a second measurement: two maxima over many, each with an error.
AGAIN = 4.0


def test_the_page_is_written_from_the_numbers_and_has_every_rule() -> None:
    assert rates.OUT.with_suffix(".md").read_text(encoding="utf-8") == rates.page(ROWS)
    assert [*TABLE] == [(name, law) for name in rates.rules() for law, _ in rates.LAWS]
    for name, study in rates.rules().items():
        assert TABLE[name, "normal"].alpha == study.analysis.alpha
    assert {"how-to better-branch", "how-to harmless-refactor", "how-to own-script"} < set(HANDED_OUT)
    assert sum(name.startswith("template ") for name in HANDED_OUT) == len(rates._templates()) == 12


@pytest.mark.parametrize("name", HANDED_OUT)
def test_any_wrong_answer_of_a_rule_that_is_handed_out_is_as_rare_as_stated(name: str) -> None:
    row = TABLE[name, "normal"]
    assert row.share <= rates.LEVEL + SIGMAS * row.error, row


@pytest.mark.parametrize("name", rates.BEFORE)
def test_a_rule_that_was_changed_erred_more_often(name: str) -> None:
    row = TABLE[name, "normal"]
    assert row.share > rates.LEVEL + SIGMAS * row.error, row


@pytest.mark.parametrize("name", ["template gpt", "template factorial", "how-to better-branch"])
def test_a_quick_measurement_is_as_rare_as_stated_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MOST_TRUTHS", 60)
    row = rates.worst(name, "normal", 2_000, seed=5, few=300)
    assert row.share <= rates.LEVEL + SIGMAS * row.error, row


@pytest.mark.simulation
@pytest.mark.parametrize("law", ["normal", "exponential", "lognormal"])
@pytest.mark.parametrize("name", rates.rules())
def test_a_rate_measured_again_agrees_with_the_table(name: str, law: Any) -> None:
    measured, row = rates.worst(name, law, 5_000, seed=77), TABLE[name, law]
    assert abs(measured.share - row.share) <= AGAIN * hypot(measured.error, row.error) + 0.01, (measured, row)
    if law == "normal" and name in HANDED_OUT:
        assert measured.share <= rates.LEVEL + SIGMAS * measured.error, measured


def better_branch(**changes: Any) -> Study:
    """The study of the how-to, with an SD for each of its metrics."""
    text = (rates.ROOT / "docs" / "how-to" / "better-branch.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```yaml\n(study: .*?)^```", text, re.DOTALL | re.MULTILINE)
    document = yaml.safe_load(block) | {"seeds": [1, 2, 3, 4, 5, 6, 7, 8]}
    sds = {"val/loss": {"sd": 0.035}, "val/accuracy": {"sd": 0.007}}
    return study_from_document(document | {"assume": {"metrics": sds}} | changes)


def test_a_loss_that_is_worse_by_thirty_sds_is_worse_also_where_accuracy_is_equal() -> None:
    study = better_branch()
    by = 30.0 * 0.035 * 2**0.5
    effects = {"gain": by, "no_harm": 0.0, "same": by, "loss": -by}
    found = simulate(study, TrueEffects("", effects), assumed(study), n_sims=500, seed=[3])
    assert {one.of: one.share for one in found.verdicts}["worse"] == 1.0
    before = study_from_document(
        study.model_dump(mode="json") | rates._BETTER_BEFORE | {"tie_breakers": []}  # what the rule was
    )
    found = simulate(before, TrueEffects("", {name: effects[name] for name in before.hypotheses}), assumed(before),
                     n_sims=500, seed=[3])  # fmt: skip
    assert {one.of: one.share for one in found.verdicts}["inconclusive"] > 0.9


def test_a_design_states_the_chance_of_any_wrong_answer_and_the_alpha_that_lowers_it() -> None:
    before = better_branch(**rates._BETTER_BEFORE)
    design = simulate_design(before)
    wrong = design.wrong_answer
    assert wrong is not None and design.false_adoption is not None
    # Equivalence at its margin, .05, and harm that is none, .025: errors that exclude each other add up.
    assert 0.06 < wrong.share < 0.08 and wrong.share > design.false_adoption.share
    assert [one.law == "normal" for one in design.wrong_answers] == [True, False, False]
    said = dict(facts_of(design))["Any wrong answer of the whole rule"]
    assert "correlations of metrics from −0.9 to 0.9" in said and "if differences are skewed" in said
    assert re.search(r"with about alpha 0\.03\d? they are at most 0\.05 together", said), said
    after = simulate_design(better_branch())
    assert after.wrong_answer is not None
    assert after.wrong_answer.share <= rates.LEVEL + SIGMAS * after.wrong_answer.error
    assert "with about alpha" not in dict(facts_of(after))["Any wrong answer of the whole rule"]


def test_a_claim_at_its_margin_is_wrong_on_one_side_only() -> None:
    # `lowers by at least d` at d: its support or its refutation is false, and never both.
    claim = {"h": {"claim": "layernorm lowers val/loss by at least 0.05"}}
    assume = {"metrics": {"val/loss": {"sd": 0.02, "correlation": 0.5}}}
    design = simulate_design(one_claim(hypotheses=claim, assume=assume))
    assert design.wrong_answer is not None and abs(design.wrong_answer.share - 0.05) < 4 * design.wrong_answer.error
    assert re.match(r"h just (short of|beyond) its margin", design.wrong_answer_in)


def test_what_is_said_where_nothing_is_found_is_no_answer() -> None:
    lines = [{"verdict": "adopt", "when": "supported(gain)"}, {"verdict": "keep"}]
    assert answering_verdicts(tiny_study(decision=lines)) == {"adopt"}
    lines = [{"verdict": "adopt", "when": "supported(gain)"}, {"verdict": "keep", "when": "refuted(gain)"}]
    assert answering_verdicts(tiny_study(decision=[*lines, {"verdict": "inconclusive"}])) == {"adopt", "keep"}


@pytest.mark.parametrize("correlation", [-0.9, 0.0, 0.9])
def test_noise_of_two_metrics_is_correlated_as_stated(correlation: float) -> None:
    study = better_branch()
    truth = TrueEffects("", dict.fromkeys(study.hypotheses, 0.0), correlation=correlation)
    drawn = draw_studies(study, truth, assumed(study), n_sims=4_000, n_seeds=8, rng=np.random.default_rng(1))
    loss, accuracy = (drawn.differences[name].ravel() for name in ("gain", "no_harm"))
    # Turned so that up is better: a low loss is a high accuracy.
    found = float(np.corrcoef(-loss, accuracy)[0, 1])
    assert abs(found - correlation) < 4.0 / 32_000**0.5
    assert np.allclose(loss, -drawn.differences["loss"].ravel())


@pytest.mark.parametrize(("tail", "sign"), [("better", 1.0), ("worse", -1.0)])
def test_two_claims_of_one_difference_have_its_long_tail_on_one_side(tail: Any, sign: float) -> None:
    study = better_branch()
    nothing = dict.fromkeys(study.hypotheses, 0.0)
    truth = TrueEffects("", nothing, "exponential", tail=tail)
    drawn = draw_studies(study, truth, assumed(study), n_sims=2_000, n_seeds=8, rng=np.random.default_rng(1))
    assert np.allclose(drawn.differences["gain"], -drawn.differences["loss"])
    # Lower is better: a tail towards better is one of negative differences, head minus base; of accuracy of positive.
    assert np.sign(stats.skew(drawn.differences["gain"].ravel())) == -sign
    assert np.sign(stats.skew(drawn.differences["no_harm"].ravel())) == sign
