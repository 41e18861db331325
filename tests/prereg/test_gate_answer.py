"""Claims about gates: the grammar, adjusted p values against their definitions, error rates, a study."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from evidence_factory import make_evidence, small_study
from hypothesis import given, settings
from hypothesis import strategies as st
from own_trainer import AT
from paired_tests import judge_families, nulls_of_study
from scipy import stats
from statsmodels.stats.multitest import multipletests

from ablate.judge.audit.sensitivity import spread_to_claims
from ablate.judge.decide import decide
from ablate.judge.design.assumptions import assumed
from ablate.judge.design.characteristics import simulate_design
from ablate.judge.design.reach import attainable
from ablate.judge.design.refusal import obstacle
from ablate.judge.design.scenarios import TrueEffects, draw_studies
from ablate.judge.findings import judge_hypotheses
from ablate.judge.judge import OUTCOME, judge_nulls, judge_p, judge_rows, possible_codes
from ablate.judge.recompute import recompute
from ablate.judge.stats.multiplicity import adjusted, adjusted_rows, holm, levels_tested
from ablate.judge.stats.null_hypotheses import Nulls, found_nulls, levels_of
from ablate.judge.verdict import Finding
from ablate.reporting import markdown
from ablate.reporting.context import ReportContext
from prereg.registry.amendments import Affected
from prereg.study.spec import Study, study_from_document

ROLES = {"order": ["primary", "guardrail"]}
ADOPT = [{"verdict": "adopt", "when": "supported(gain_ln) and supported(harm_ln)"}, {"verdict": "inconclusive"}]


def gated(gate: Any, **changes: Any) -> Study:
    return small_study(**({"analysis": {"gate": gate}} | changes))


def closed(steps: Sequence[Sequence[str]], p: Sequence[float]) -> list[float]:
    """Adjusted p by the definition, the closed test: of every intersection Bonferroni's over those of its hypotheses
    that are in the first step which it meets; a hypothesis has the largest p of all intersections that it is in."""
    n = sum(map(len, steps))
    found = [0.0] * n
    for size in range(1, n + 1):
        for left in combinations(range(n), size):
            start = 0
            for step in steps:
                mine = [at for at in left if start <= at < start + len(step)]
                if mine:
                    break
                start += len(step)
            least = min(1.0, len(mine) * min(p[at] for at in mine))
            for at in left:
                found[at] = max(found[at], least)
    return found


# Adjusted p values.


@pytest.mark.slow
def test_one_step_is_holm() -> None:
    # Every order and every tie, against statsmodels.
    step = ("a", "b", "c", "d")
    for p in product((0.004, 0.012, 0.3), repeat=4):
        assert adjusted([step], p) == pytest.approx(tuple(multipletests(p, method="holm")[1]), rel=1e-12)
    # R: p.adjust(c(.01, .04, .03, .005), "holm")
    assert adjusted([step], (0.01, 0.04, 0.03, 0.005)) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    # R package gMCP, help page of gMCP(): BonferroniHolm(5), with the output on the reference pages of gMCPLite.
    published = adjusted([("h1", "h2", "h3", "h4", "h5")], (0.01, 0.02, 0.04, 0.04, 0.7))
    assert published == pytest.approx((0.05, 0.08, 0.12, 0.12, 0.70))


@pytest.mark.parametrize("p", [(0.01, 0.02, 0.03), (0.03, 0.01, 0.04), (0.04, 0.001, 0.06), (0.2, 0.001, 0.001)])
def test_a_fixed_sequence_adjusts_by_the_largest_p_so_far(p: tuple[float, ...]) -> None:
    # Its definition: the k-th is rejected at alpha if and only if it and all before it are at most alpha.
    assert adjusted([("a",), ("b",), ("c",)], p) == tuple(np.maximum.accumulate(p))


@pytest.mark.parametrize("p", [(0.01, 0.02, 0.03, 0.001), (0.03, 0.02, 0.001, 0.001), (0.02, 0.024, 0.02, 0.9)])
def test_serial_gatekeeping_is_holm_behind_holm(p: tuple[float, ...]) -> None:
    # Its definition: a family is tested by Holm's procedure once every hypothesis of the one before is rejected.
    first = holm(p[:2])
    second = [max(*first, one) for one in holm(p[2:])]
    assert adjusted([("a", "b"), ("c", "d")], p) == pytest.approx((*first, *second))


def random_steps(rng: np.random.Generator, m: int) -> tuple[tuple[str, ...], ...]:
    names = tuple(f"h{at}" for at in range(m))
    cuts = [0, *sorted({int(at) for at in rng.integers(1, m, 2)}), m]
    return tuple(names[start:end] for start, end in pairwise(cuts))


def test_steps_are_their_closed_test() -> None:
    rng, seen = np.random.default_rng(0), 0
    for _ in range(300):
        m = int(rng.integers(2, 6))
        steps, p = random_steps(rng, m), rng.random(m) ** 3
        p[rng.random(m) < 0.2] = p[0]
        found = adjusted(steps, p.tolist())
        assert found == pytest.approx(closed(steps, p.tolist()), rel=1e-12), (steps, p)
        rejected = [one <= 0.2 for one in found]
        assert (
            p <= np.array(levels_tested(steps, rejected, 0.2))
        ).tolist() == rejected  # the level that is shown decides
        seen += any(rejected) and not all(rejected)
    assert seen > 30


def test_a_larger_p_never_lowers_an_adjusted_one() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        steps, p = random_steps(rng, 4), rng.random((40, 4)) ** 3
        more = np.minimum(1.0, p * rng.choice([1.0, 1.5], p.shape))
        assert (adjusted_rows(steps, more) >= adjusted_rows(steps, p)).all()


# The grammar.


# The judge.


def nulls(study: Study, support: Sequence[float], refute: Sequence[float]) -> dict[str, Nulls | None]:
    return {name: Nulls(s, r) for name, s, r in zip(study.hypotheses, support, refute, strict=True)}


def test_a_closed_gate_leaves_what_is_behind_it_untested_for_support_and_open_for_refutation() -> None:
    study = gated(ROLES)
    judged = judge_families(study, nulls(study, (0.01, 0.03, 0.0001, 0.0001), (1.0, 1.0, 1.0, 0.001)))
    assert [one.outcome for one in judged.values()] == ["supported", "supported", "supported", "supported"]
    judged = judge_families(study, nulls(study, (0.01, 0.06, 0.0001, 0.0001), (1.0, 1.0, 1.0, 0.001)))
    assert [one.outcome for one in judged.values()] == ["supported", "inconclusive", "inconclusive", "refuted"]
    found = judged["harm_ln"].gate
    assert found is not None and (found.weight, found.level) == (0.0, 0.0)
    assert judged["harm_ln"].support == 0.06


def test_a_hypothesis_that_cannot_be_tested_keeps_the_gate_closed() -> None:
    study = gated({"order": ["gain_ln", "gain_rms", "guardrail"]})
    found = nulls(study, (0.01, 0.01, 0.01, 0.01), (1.0, 1.0, 1.0, 1.0)) | {"gain_ln": None}
    assert {one.outcome for one in judge_families(study, found).values()} == {"inconclusive"}


def test_what_is_real_but_too_small_opens_the_gate_and_is_refuted() -> None:
    study = gated({"order": ["gain_ln", "gain_rms", "guardrail"]})
    judged = judge_families(study, nulls(study, (0.01, 0.01, 0.2, 0.2), (0.001, 1.0, 1.0, 1.0)))
    assert [one.outcome for one in judged.values()][:2] == ["refuted", "supported"]


GATES: tuple[dict[str, Any], ...] = (
    ROLES,
    {"order": ["gain_rms", ["gain_ln", "harm_rms"], "harm_ln"]},
)


@pytest.mark.parametrize("gate", GATES)
def test_many_studies_under_a_gate_get_what_each_gets_alone(gate: dict[str, Any]) -> None:
    study, rng = gated(gate, analysis={"gate": gate, "alpha": 0.1}), np.random.default_rng(0)
    support, refute = rng.random((2, 300, 4)) ** 3
    codes = judge_p(study, list(study.hypotheses), support, refute).codes
    for row, (s, r) in enumerate(zip(support, refute, strict=True)):
        judged = judge_families(study, nulls(study, s.tolist(), r.tolist()))
        assert [OUTCOME[code] for code in codes[row]] == [one.outcome for one in judged.values()]
    # Those of the levels that a gate may test at decide alike.
    for place, name in enumerate(study.hypotheses):
        levels = np.array([0.0, *sorted(levels_of(study, name))])
        for p in (support, refute):
            above = np.searchsorted(levels, p[:, place], side="left")
            p[:, place] = np.where(above < levels.size, levels[np.minimum(above, levels.size - 1)] * (1 - 1e-9), 1.0)
    assert (judge_p(study, list(study.hypotheses), support, refute).codes == codes).all()


@pytest.mark.parametrize("gate", GATES)
def test_lost_pairs_over_rows_are_those_of_one_study_under_a_gate(gate: dict[str, Any]) -> None:
    study, rng = gated(gate), np.random.default_rng(1)
    drawn = {name: rng.normal(0, 1, (60, 5)) * 0.01 + rng.normal(0, 0.03, (60, 1)) for name in study.hypotheses}
    ends = {end: rng.random((60, 4)) < 0.3 for end in ("supported", "refuted")}
    judged = judge_rows(study, drawn)
    codes, possible = judged.codes, possible_codes(judged, ends)  # type: ignore[arg-type]
    for row in range(60):
        found = nulls_of_study(study, {name: values[row] for name, values in drawn.items()})
        outcomes = {name: one.outcome for name, one in judge_families(study, found).items()}
        mine = {end: pushed_there[row : row + 1] for end, pushed_there in ends.items()}
        alone = possible_codes(judge_nulls(study, found), mine)[0]  # type: ignore[arg-type]
        assert [OUTCOME[code] for code in codes[row]] == list(outcomes.values())
        assert possible[row].tolist() == alone.tolist()


EFFECTS = {"val/loss": {"layernorm": -0.05, "rmsnorm": -0.05}}


def test_a_verdict_under_a_gate_shows_its_levels_and_is_recomputed() -> None:
    study = gated(ROLES, decision=ADOPT)
    registration, evidence = make_evidence(study, effects=EFFECTS, sd=0.003)
    decision = decide(registration, evidence)
    assert decision.verdict == "adopt" and all(check.passed for check in decision.checks)
    first, _, third, _ = decision.findings
    assert first.gate is not None and third.gate is not None
    assert (first.gate.weight, first.gate.level) == (0.5, 0.05) and (third.gate.weight, third.gate.level) == (0.0, 0.05)
    # Over the two hypotheses of the first step; those of a later step have none.
    assert first.simultaneous is not None and first.simultaneous.level == pytest.approx(0.975)
    assert first.simultaneous.method == "paired t, Bonferroni over 2"
    assert third.simultaneous is None
    numbers = recompute(study, decision.findings).numbers
    assert sum(one.name == "p_support, adjusted" for one in numbers) == 4 and all(one.equal for one in numbers)
    wrong = [f.model_copy(update={"p_support_adjusted": 0.5 * f.p_support_adjusted}) for f in decision.findings]  # type: ignore[operator]
    assert not all(one.equal for one in recompute(study, wrong).numbers)
    told = ReportContext(decision, registration, evidence, ledger_head="0" * 64, generated_at=AT)
    text = markdown.render_markdown(told)
    assert "Gate: support was tested in this order" in text and "Tested at level" in text


def test_no_zone_says_what_the_gate_left_untested() -> None:
    # The guardrails hold by far, and the gains are nothing: without a gate they are shown to be within their margins.
    found = {}
    for gate in (None, ROLES):
        registration, evidence = make_evidence(gated(gate, decision=ADOPT), sd=0.0005)
        found[gate is None] = decide(registration, evidence).findings[2]
    assert found[True].outcome == "supported" and found[False].outcome == "inconclusive"
    zones = [one.margin.zone for one in (found[True], found[False]) if one.margin is not None]
    assert zones == ["short of the margin", "undecided"]
    assert "the gate before it did not open" in " ".join(found[False].notes)


def test_what_hangs_on_an_amended_hypothesis_through_the_gate_is_exploratory_too() -> None:
    study = gated({"order": ["gain_ln", "gain_rms", "guardrail"]})
    registration, evidence = make_evidence(study, effects=EFFECTS, sd=0.003)
    findings: tuple[Finding, ...] = decide(registration, evidence).findings
    assert {one.outcome for one in findings} == {"supported"}

    def reached(name: str) -> set[str]:
        judgement = judge_nulls(study, found_nulls(findings))
        return set(spread_to_claims(judgement, Affected(hypotheses={name: ("amended",)})).hypotheses)

    assert reached("gain_ln") == set(study.hypotheses)
    assert reached("harm_ln") == {"harm_ln"}


def test_the_smallest_p_behind_a_gate_is_that_of_the_way_to_it() -> None:
    # Six sign-flips: 2/2^6 = .03125 for a gain; Holm over two makes it .0625, so that the guardrails are never tested.
    study = gated(ROLES, analysis={"gate": ROLES, "test": "sign_flip"}, seeds=list(range(1, 7)))
    assert (
        not attainable(study, "gain_ln", 6) and not attainable(study, "harm_ln", 6) and attainable(study, "harm_ln", 7)
    )
    in_turn = {"order": ["gain_ln", "gain_rms", "harm_ln", "harm_rms"]}
    study = gated(in_turn, analysis={"gate": in_turn, "test": "sign_flip"}, seeds=list(range(1, 7)))
    assert all(attainable(study, name, 6) for name in study.hypotheses)
    assert all(levels_of(study, name) == (0.05, 0.025) for name in study.hypotheses)


# What the search finds of a rule behind a gate.


@pytest.mark.slow
def test_a_rule_that_needs_support_errs_in_alpha_and_one_that_misses_a_harm_as_often_as_the_harm_is_missed() -> None:
    two = {
        "gain": {"claim": "layernorm lowers val/loss", "smallest": 0.02},
        "harm": {"claim": "layernorm does_not_worsen val/accuracy", "smallest": 0.005, "role": "guardrail"},
    }
    rule = "supported(gain) and {}(harm)"
    found = {}
    for asked in ("supported", "not refuted"):
        decision = [{"verdict": "adopt", "when": rule.format(asked)}, {"verdict": "inconclusive"}]
        study = gated({"order": ["gain", "harm"]}, hypotheses=two, decision=decision)
        found[asked] = simulate_design(study, n_sims=2_000)
    kept, missed = found["supported"], found["not refuted"]
    assert kept.correct == "gate"
    assert kept.false_adoption is not None and missed.false_adoption is not None
    assert kept.false_adoption.share <= 0.05 + 3 * kept.false_adoption.error
    # With the harm at its margin and a gain that is never missed: the chance that a two-sided t test misses the harm,
    # or finds it and, in error, that it is within the margin. Drawn here by scipy alone; the SD of differences is .003.
    drawn = stats.norm.rvs(-0.005, 0.003, (50_000, 5), random_state=0)
    worse = stats.ttest_1samp(drawn, 0.0, axis=1)
    within = stats.ttest_1samp(drawn, -0.005, axis=1, alternative="greater").pvalue <= 0.05
    chance = 1.0 - ((worse.pvalue <= 0.05) & (worse.statistic < 0.0) & ~within).mean()
    assert missed.false_adoption.share == pytest.approx(chance, abs=4 * missed.false_adoption.error)


@given(st.lists(st.floats(1e-6, 1.0), min_size=8, max_size=8))
@settings(max_examples=50, deadline=None)
def test_a_gate_makes_no_refutation_harder(p: list[float]) -> None:
    # A rule on `not refuted` would adopt the more often in error.
    plain, behind = (judge_families(one, nulls(one, p[:4], p[4:])) for one in (small_study(), gated(ROLES)))
    assert [one.refute for one in plain.values()] == [one.refute for one in behind.values()]


# Error rates through the real decision function.

THREE = {
    "gain": {"claim": "layernorm lowers val/loss by at least 0.02"},
    "rival": {"claim": "rmsnorm lowers val/loss by at least 0.02"},
    "no_harm": {"claim": "layernorm does_not_worsen val/accuracy", "smallest": 0.005, "role": "guardrail"},
    "same": {"claim": "rmsnorm does_not_worsen train/loss", "smallest": 0.02, "role": "secondary"},
}
BORDER = {"gain": -0.02, "rival": -0.02, "no_harm": -0.005, "same": 0.02}
"""Every null of support at its border, against which the tests are one-sided at alpha."""
TRUE = {"gain": -0.2, "rival": -0.2, "no_harm": 0.0, "same": -0.2}
ERROR_GATES: dict[str, dict[str, Any] | None] = {
    "none": None,
    "roles": {"order": ["primary", "guardrail", "secondary"]},
    "sequence": {"order": ["gain", "no_harm", "rival", "same"]},
}
PARTIAL = ((), ("gain",), ("rival",), ("gain", "rival"), ("gain", "rival", "no_harm"), ("gain", "no_harm", "rival"))
"""Claims that are true while the rest lie at their borders."""


def error_study(gate: dict[str, Any] | None) -> Study:
    belief = {"sd": 0.01, "correlation": 0.5}
    return small_study(
        hypotheses=THREE,
        analysis={} if gate is None else {"gate": gate},
        decision=[
            {"verdict": "adopt", "when": "supported(gain) and supported(no_harm)"},
            {"verdict": "adopt the rival", "when": "supported(rival) and supported(same)"},
            {"verdict": "inconclusive"},
        ],
        assume={"metrics": {"val/loss": belief, "val/accuracy": belief | {"sd": 0.003}, "train/loss": belief}},
    )


def false_supports(study: Study, true: Sequence[str], n_sims: int, seed: int) -> float:
    """Share of studies with any false "supported" among all hypotheses, by the judge of a design."""
    effects = {name: (TRUE if name in true else BORDER)[name] for name in THREE}
    drawn = draw_studies(
        study,
        TrueEffects("", effects),
        assumed(study),
        n_sims=n_sims,
        n_seeds=len(study.seeds),
        rng=np.random.default_rng(seed),
    )
    codes = judge_rows(study, drawn.differences).codes
    return float((codes[:, [name not in true for name in THREE]] == 0).any(axis=1).mean())


def error_rates(n_sims: int) -> dict[str, float]:
    """Gate -> the largest familywise error over the partial nulls, all hypotheses together."""
    return {
        name: max(false_supports(error_study(gate), true, n_sims, at) for at, true in enumerate(PARTIAL))
        for name, gate in ERROR_GATES.items()
    }


def test_one_alpha_holds_over_all_hypotheses_behind_a_gate_and_not_without() -> None:
    found = error_rates(3_000)
    assert found.pop("none") > 0.1
    assert all(0.02 < one < 0.05 + 4 * 0.004 for one in found.values()), found


# A study from its file to its verdict.


def test_forms_of_a_gated_study_name_its_order() -> None:
    from prereg.documents.sentences import say

    study = gated({"order": ["gain_ln", "gain_rms", "guardrail"]}, decision=ADOPT)
    order = "gain_ln, then gain_rms, then harm_ln and harm_rms (by Holm)"
    assert order in say("families", study)
    assert study_from_document(study.model_dump(mode="json")) == study


def test_a_design_in_which_a_gate_never_opens_is_refused() -> None:
    study = gated(
        ROLES, analysis={"gate": ROLES, "test": "sign_flip"}, seeds=list(range(1, 7)), decision=ADOPT, assume={}
    )
    found = obstacle(simulate_design(study))
    assert found is not None and "can never be supported" in found.found and "after gate over 4" in found.found


def test_a_gate_holds_claims_against_a_constant_too() -> None:
    hypotheses = {
        "record": {"claim": "layernorm lowers val/loss below 2.0", "smallest": 0.01},
        "gain": {"claim": "layernorm lowers val/loss", "smallest": 0.01, "role": "secondary"},
    }
    study = small_study(
        hypotheses=hypotheses,
        analysis={"gate": {"order": ["record", "gain"]}},
        decision=[{"verdict": "yes", "when": "supported(record)"}, {"verdict": "inconclusive"}],
        tie_breakers=[],
        assume={},
    )
    low = {("layernorm", seed): 1.9 + seed / 1000 for seed in study.seeds}
    high = {("none", seed): 2.5 + seed / 700 for seed in study.seeds}
    record, gain = judge_hypotheses(study, {"val/loss": low | high})
    assert (record.outcome, gain.outcome) == ("supported", "supported")
    # The interval of a one-sided claim is at 1 - 2 alpha; the gate gives the first all of alpha, the second none.
    assert record.simultaneous is not None and record.simultaneous.level == pytest.approx(0.9)
    assert gain.simultaneous is None
    closed = judge_hypotheses(study, {"val/loss": {cell: value + 0.2 for cell, value in low.items()} | high})
    assert [one.outcome for one in closed] == ["refuted", "inconclusive"]
