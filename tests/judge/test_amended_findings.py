"""Claims about amended hypotheses: their numbers are shown, their marks too, and no verdict rests on them."""

from __future__ import annotations

import pytest
from evidence_factory import Change, make_evidence, small_study, with_amendments
from hypothesis import given
from hypothesis import strategies as st

from ablate.judge.audit.sensitivity import rests_on, spread
from ablate.judge.decide import decide
from ablate.judge.verdict import Decision
from prereg.registry.amendments import Affected
from prereg.rule.condition import OUTCOMES, Outcome
from prereg.study.spec import Study

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
    assert spread(study, findings, one) == one


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
