"""Claims about amendments: what a change of each field touches, from when on, and in which chain they must stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evidence_factory import EARLIER, Change, make_evidence, small_study, with_amendments
from report_samples import factorial

from prereg.registry.amendments import AMENDMENT_EFFECTS, affected, amendments_of, chain_faults, scope_of
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
        ("on_divergence", "rank", "exclude_pair", (ALL, set(), False)),
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
        ("checks", [], [1], (set(), set(), True)),
        ("own_checks.mine.sha256", "a", "b", (set(), set(), True)),
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
    entry = evidence.ledger[1].model_copy(update={"body": {"evidence": "none", "differences": [{"field": "title"}]}})
    found = amendments_of([entry])[0]
    assert found.differences == () and found.evidence == "none" and not found.after_evidence


def test_registrations_form_a_chain() -> None:
    _, evidence = with_amendments(*make_evidence(small_study()), ("none", []), ("none", []))
    ledger = evidence.ledger
    assert chain_faults(ledger) == []
    assert "does not hold" in chain_faults(ledger[1:])[0]
    assert "registers what entry 0 had" in chain_faults([ledger[0], *ledger])[0]
    left_out = chain_faults([ledger[0], *ledger[2:]])
    assert len(left_out) == 1 and f"is {EARLIER[:8]}" in left_out[0]
    assert chain_faults(replace(evidence, ledger=()).ledger) == []
