"""Claims about amendments: what a change of each field touches, from when on, and in which chain they must stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evidence_factory import EARLIER, Change, make_evidence, small_study, with_amendments
from hypothesis import given
from hypothesis import strategies as st
from report_samples import factorial

from ablate.judge.audit.sensitivity import rests_on, spread_to_claims
from ablate.judge.decide import decide
from ablate.judge.judge import judge_nulls
from ablate.judge.stats.null_hypotheses import found_nulls
from ablate.judge.verdict import Decision
from prereg.registry.amendments import AMENDMENT_EFFECTS, Affected, affected, amendments_of, chain_faults, scope_of
from prereg.rule.condition import OUTCOMES, Outcome
from prereg.study.spec import Study

ALL = {"gain_ln", "gain_rms", "harm_ln", "harm_rms"}
ARMS = {"none", "layernorm", "rmsnorm"}
LN, GAINS = {"gain_ln", "harm_ln"}, {"gain_ln", "gain_rms"}


def after(
    changes: list[Change], known: str = "outcomes read", study: Study | None = None
) -> tuple[set[str], set[str], bool]:
    study = study or small_study()
    _, evidence = with_amendments(*make_evidence(study), (known, changes))
    found = affected(study, amendments_of(evidence.ledger))
    return set(found.hypotheses), set(found.arms), bool(found.verdict)


@pytest.mark.parametrize(
    ("field", "old", "new", "wanted"),
    [
        ("title", "a", "b", (set(), set(), False)),
        ("question", "a", "b", (set(), set(), False)),
        ("tie_breakers[0]", "a", "b", (set(), set(), False)),
        ("assume.metrics.val/loss.sd", 0.1, 0.2, (set(), set(), False)),
        ("analysis.also", [], ["sign_flip"], (set(), set(), False)),
        ("hypotheses.gain_ln.smallest", 0.01, 0.02, ({"gain_ln"}, set(), False)),
        ("hypotheses.gain_ln.claim", "a", "b", ({"gain_ln"}, set(), False)),
        ("hypotheses.gain_ln.role", "secondary", "primary", (GAINS, set(), False)),
        ("hypotheses.gain_ln", "(absent)", {"role": "primary"}, (GAINS, set(), False)),
        ("hypotheses.gone", {"role": "primary"}, "(absent)", (GAINS, set(), False)),
        ("hypotheses.gone", {"role": "exploratory"}, "(absent)", (set(), set(), False)),
        ("variants.layernorm.model.embedding_norm", "rmsnorm", "layernorm", (LN, {"layernorm"}, False)),
        ("variants.none.optim.lr", 0.1, 0.2, (ALL, {"none"}, False)),
        ("variants.gone", {}, "(absent)", (set(), set(), False)),
        ("baseline", "rmsnorm", "none", (ALL, set(), False)),
        ("analysis.alpha", 0.1, 0.05, (ALL, set(), False)),
        ("stable.loss_spike.above", 5.0, 6.0, (set(), ARMS, False)),
        ("stable.diverged.loss_above", 3.0, 2.0, (ALL, ARMS, False)),
        ("base.budget.steps", 50, 60, (ALL, ARMS, False)),
        ("base.data.corpus", "a", "toy", (ALL, ARMS, False)),
        ("corpus.sha256", "a", "b", (ALL, ARMS, False)),
        ("seeds", [1, 2], [1, 2, 3, 4, 5], (ALL, ARMS, False)),
        ("measure.every", 10, 20, (ALL, ARMS, False)),
        ("stopping", "fixed", {"looks": [3, 5]}, (ALL, ARMS, False)),
        ("decision[0].when", "a", "b", (set(), set(), True)),
        ("decision", [1], [1, 2], (set(), set(), True)),
        ("a field of a later version", 1, 2, (ALL, ARMS, True)),
    ],
)
def test_what_a_change_touches(field: str, old: Any, new: Any, wanted: tuple[set[str], set[str], bool]) -> None:
    assert after([(field, old, new)]) == wanted
    assert after([(field, old, new)], "runs started") == wanted
    assert after([(field, old, new)], "none") == (set(), set(), False)


def test_every_field_of_a_study_has_a_place_in_the_table() -> None:
    for field in Study.model_fields:
        assert field == "study" or scope_of(field) is not None, (
            f"{field}: say in AMENDMENT_EFFECTS what its change touches"
        )
    assert len({field for row in AMENDMENT_EFFECTS for field in row.fields}) == sum(
        len(row.fields) for row in AMENDMENT_EFFECTS
    )


def test_correction_ties_a_role_together_as_it_is_registered() -> None:
    role: list[Change] = [("hypotheses.gain_ln.role", "secondary", "primary")]
    assert after(role, study=small_study(analysis={"correct": "none"}))[0] == {"gain_ln"}


def test_a_claim_that_names_its_right_side_does_not_hang_on_the_baseline() -> None:
    claims = {
        "named": {"claim": "layernorm lowers val/loss than rmsnorm", "smallest": 0.02},
        "left": {"claim": "layernorm lowers val/loss", "smallest": 0.02},
    }
    decision = [{"verdict": "yes", "when": "supported(named)"}, {"verdict": "inconclusive"}]
    study = small_study(hypotheses=claims, decision=decision, assume={})
    assert after([("baseline", "rmsnorm", "none")], study=study)[0] == {"left"}


def test_a_level_touches_the_arms_that_have_it() -> None:
    study = factorial()
    everything = {"pre_helps", "interacts"}
    hypotheses, arms, _ = after([("factors.warmup.warm.optim.warmup", 10, 20)], study=study)
    assert hypotheses == set() and arms == {name for name in study.arms if name.endswith("-warm")}
    assert after([("factors.depth.shallow.model.layers", 2, 1)], study=study)[0] == {"interacts"}
    assert after([("factors.depth.shallow", "(absent)", {})], study=study)[0] == everything
    assert after([("factors", ["depth", "norm"], ["norm", "depth"])], study=study)[0] == everything


def test_names_with_dots_are_not_taken_apart() -> None:
    claim = {"claim": "layernorm lowers val/loss", "smallest": 0.02}
    decision = [{"verdict": "yes", "when": "supported(a)"}, {"verdict": "inconclusive"}]
    study = small_study(
        hypotheses={"a": claim, "a.b": claim}, decision=decision, analysis={"correct": "none"}, assume={}
    )
    assert after([("hypotheses.a.b.smallest", 0.01, 0.02)], study=study)[0] == {"a", "a.b"}
    assert after([("hypotheses.a.smallest", 0.01, 0.02)], study=study)[0] == {"a"}


def test_a_second_amendment_does_not_wash_the_first_one_clean() -> None:
    there: list[Change] = [("hypotheses.gain_ln.smallest", 0.02, 0.01)]
    back: list[Change] = [("hypotheses.gain_ln.smallest", 0.01, 0.02)]
    study = small_study()
    _, evidence = with_amendments(*make_evidence(study), ("outcomes read", there), ("outcomes read", back))
    found = affected(study, amendments_of(evidence.ledger))
    assert found.hypotheses["gain_ln"] == (
        "hypotheses.gain_ln.smallest (entry 1, after outcomes were read)",
        "hypotheses.gain_ln.smallest (entry 2, after outcomes were read)",
    )


def test_what_is_not_on_record_is_everything() -> None:
    assert after([]) == (ALL, ARMS, True)
    _, evidence = with_amendments(*make_evidence(small_study()), ("outcomes read", []))
    (late,) = amendments_of(evidence.ledger)
    assert late.after_evidence and affected(small_study(), [late]).verdict


def test_registrations_form_a_chain() -> None:
    _, evidence = with_amendments(*make_evidence(small_study()), ("none", []), ("none", []))
    ledger = evidence.ledger
    assert chain_faults(ledger) == []
    assert "does not hold" in chain_faults(ledger[1:])[0]
    assert "registers what entry 0 had" in chain_faults([ledger[0], *ledger])[0]
    left_out = chain_faults([ledger[0], *ledger[2:]])
    assert len(left_out) == 1 and f"is {EARLIER[:8]}" in left_out[0]
    assert chain_faults(replace(evidence, ledger=()).ledger) == []


RESTS_ON_NOTHING_AMENDED = "the verdict rests on nothing that an amendment made exploratory"

GAIN = {"val/loss": {"layernorm": -0.06}}
SMALLEST: list[Change] = [("hypotheses.gain_ln.smallest", 0.01, 0.02)]


def decided(
    changes: list[Change], known: str = "outcomes read", study: Study | None = None, sd: float = 0.002
) -> Decision:
    made = make_evidence(study or small_study(), effects=GAIN, sd=sd)
    return decide(*with_amendments(*made, (known, changes)))


@pytest.mark.parametrize("known", ["outcomes read", "runs started"])
def test_a_verdict_that_rests_on_an_amended_hypothesis_is_not_given(known: str) -> None:
    found = decided(SMALLEST, known)
    assert (found.status, found.verdict, found.line) == ("inadmissible", None, None)
    state = "after outcomes were read" if known == "outcomes read" else "after runs started"
    assert found.because.startswith("The verdict rests on gain_ln, which an amendment after evidence made exploratory")
    assert f"hypotheses.gain_ln.smallest (entry 1, {state})" in found.because
    first = found.findings[0]
    assert first.outcome == "supported" and first.p_support is not None and first.label == "gain_ln (exploratory)"
    assert [one.hypothesis for one in found.findings if one.amended] == ["gain_ln"]


def test_an_amendment_before_any_evidence_changes_nothing() -> None:
    found = decided(SMALLEST, "none")
    assert (found.status, found.verdict) == ("decided", "adopt layernorm")
    assert not any(finding.amended for finding in found.findings)
    assert RESTS_ON_NOTHING_AMENDED not in {check.name for check in found.checks}
    clean = decide(*make_evidence(small_study(), effects=GAIN, sd=0.002))
    assert found.findings == clean.findings and found.checks[1:] == clean.checks[1:]


def test_a_verdict_stands_that_would_be_the_same_whatever_became_of_what_was_touched() -> None:
    # With gain_ln and harm_ln supported, line 1 holds whatever gain_rms and harm_rms are.
    found = decided([("variants.rmsnorm.model.embedding_norm", "layernorm", "rmsnorm")])
    assert (found.status, found.verdict) == ("decided_with_deviations", "adopt layernorm")
    assert [one.hypothesis for one in found.findings if one.amended] == ["gain_rms", "harm_rms"]
    check = next(check for check in found.checks if check.name == RESTS_ON_NOTHING_AMENDED)
    assert check.passed and "gain_rms, harm_rms, stable(rmsnorm)" in check.found


def test_a_changed_rule_gives_no_verdict_and_a_changed_title_touches_nothing() -> None:
    found = decided([("decision[0].verdict", "adopt it", "adopt layernorm")])
    assert found.status == "inadmissible" and found.findings and not any(one.amended for one in found.findings)
    found = decided([("title", "A smal study", "A small study")])
    assert (found.status, found.verdict) == ("decided", "adopt layernorm")
    assert not any(one.amended for one in found.findings)
    late = next(check for check in found.checks if check.name == "no amendment after outcomes were read")
    assert not late.passed and late.severity == "note"


def test_stability_by_an_amended_rule_decides_nothing_either() -> None:
    # Noise: nothing is found, and line 3 hangs on stable(none) and stable(layernorm) alone.
    found = decided([("stable.loss_spike.above", 5.0, 6.0)], sd=0.05)
    assert found.status == "inadmissible" and "stable(none)" in found.because
    assert not any(finding.amended for finding in found.findings)


def test_an_outcome_that_hangs_on_a_touched_neighbour_is_touched_too() -> None:
    study = small_study()
    for shift, hangs in ((-0.06, False), (-0.0125, True)):
        made = make_evidence(study, effects={"val/loss": {"layernorm": -0.06, "rmsnorm": shift}}, sd=0.006, seed=3)
        found = decide(*with_amendments(*made, ("outcomes read", SMALLEST)))
        neighbour = found.findings[1]
        assert bool(neighbour.amended) == hangs, neighbour
        assert not found.findings[2].amended and not found.findings[3].amended
        if hangs:
            assert neighbour.amended == ("its corrected p hangs on gain_ln",)
            assert neighbour.p_support is not None and 0.025 < neighbour.p_support <= 0.05


def test_no_correction_ties_no_neighbours() -> None:
    study = small_study(analysis={"correct": "none"})
    registration, evidence = make_evidence(study, sd=0.02)
    findings = decide(registration, evidence).findings
    one = Affected(hypotheses={"gain_ln": ("x",)})
    assert spread_to_claims(judge_nulls(study, found_nulls(findings)), one) == one


@given(
    outcomes=st.fixed_dictionaries({name: st.sampled_from(OUTCOMES) for name in small_study().hypotheses}),
    stable=st.fixed_dictionaries({arm: st.booleans() for arm in small_study().arms}),
    names=st.sets(st.sampled_from(sorted(small_study().hypotheses))),
    arms=st.sets(st.sampled_from(sorted(small_study().arms))),
)
def test_it_rests_on_nothing_exactly_when_every_case_gives_the_same_verdict(
    outcomes: dict[str, Outcome], stable: dict[str, bool], names: set[str], arms: set[str]
) -> None:
    from itertools import product

    study = small_study()
    found = rests_on(
        study, outcomes, stable, Affected(hypotheses=dict.fromkeys(names, ("x",)), arms=dict.fromkeys(arms, ("x",)))
    )
    free = [*sorted(names), *sorted(arms)]
    cases = product(*([OUTCOMES] * len(names)), *([(False, True)] * len(arms)))
    verdicts = set()
    for case in cases:
        changed = dict(zip(free, case, strict=True))
        ruling = study.rule.decide(
            {name: changed.get(name, outcome) for name, outcome in outcomes.items()},
            {arm: changed.get(arm, answer) for arm, answer in stable.items()},
        )
        verdicts.add(ruling.verdict)
    assert (found == ()) == (len(verdicts) == 1)
    assert set(found) <= names | {f"stable({arm})" for arm in arms}


def test_an_early_look_is_not_ended_by_what_was_touched() -> None:
    study = small_study(seeds=list(range(1, 9)), stopping={"looks": [4, 8]}, assume={}, tie_breakers=[])
    registration, _ = make_evidence(study, effects=GAIN, sd=0.0005)
    early = tuple((arm, seed) for arm in study.arms for seed in range(5, 9))
    _, first = make_evidence(study, effects=GAIN, sd=0.0005, left_out=early)
    assert decide(registration, first).status == "decided"
    found = decide(*with_amendments(registration, first, ("outcomes read", SMALLEST)))
    assert (found.status, found.findings) == ("continue", ())
