"""Claims about the audit: each broken promise is caught by its own check, with the right severity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from evidence_factory import (
    chain,
    make_evidence,
    make_registration,
    sealed_body,
    small_study,
    with_amendments,
    with_entry,
    with_run,
)

from ablate.judge.audit.audit import admissible, audit
from ablate.judge.audit.checks import AuditContext
from ablate.judge.verdict import Check
from ablate.records.evidence import Evidence
from prereg.registry.registration import Registration

CELL = ("layernorm", 2)
Break = Callable[[Registration, Evidence], Evidence]


def failed(registration: Registration, evidence: Evidence) -> dict[str, Check]:
    return {check.name: check for check in audit(AuditContext(registration, evidence)) if not check.passed}


def pairing(**changes: str) -> Break:
    def change(_: Registration, evidence: Evidence) -> Evidence:
        run = next(run for run in evidence.runs if (run.variant, run.seed) == CELL)
        assert run.must_match is not None and changes.keys() <= run.must_match.keys()
        return with_run(evidence, CELL, must_match=run.must_match | changes)

    return change


def provenance(**changes: object) -> Break:
    def change(_: Registration, evidence: Evidence) -> Evidence:
        run = next(run for run in evidence.runs if (run.variant, run.seed) == CELL)
        return with_run(evidence, CELL, provenance=run.provenance.model_copy(update=changes))

    return change


def initial(_: Registration, evidence: Evidence) -> Evidence:
    return pairing(**{"initial/tokens.weight": "0" * 64})(_, evidence)


def unstated(prefix: str) -> Break:
    """A run that leaves out what it has to state."""

    def change(_: Registration, evidence: Evidence) -> Evidence:
        run = next(run for run in evidence.runs if (run.variant, run.seed) == CELL)
        left = {name: sha256 for name, sha256 in (run.must_match or {}).items() if not name.startswith(prefix)}
        assert left != run.must_match
        return with_run(evidence, CELL, must_match=left)

    return change


def resealed(same: bool) -> Break:
    def change(registration: Registration, evidence: Evidence) -> Evidence:
        run = next(run for run in evidence.runs if (run.variant, run.seed) == CELL)
        earlier = sealed_body(run) | ({} if same else {"outcome_sha256": "1" * 64, "metrics_sha256": "2" * 64})
        return with_entry(registration, evidence, "sealed", earlier, at=2)

    return change


def test_evidence_as_promised_passes_every_check() -> None:
    registration, evidence = make_evidence(small_study())
    checks = audit(AuditContext(registration, evidence))
    assert all(check.passed for check in checks) and admissible(checks)
    assert len({check.name for check in checks}) == len(checks)
    assert all(check.found for check in checks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "severity", "change"),
    [
        (
            "the ledger and the registration are intact",
            "inadmissible",
            lambda r, e: replace(e, ledger_faults=("entry 3 does not follow entry 2",)),
        ),
        ("registered before any run", "inadmissible", lambda r, e: replace(e, ledger=e.ledger[1:])),
        (
            "no amendment after outcomes were read",
            "inadmissible",  # what is not on record is taken to be everything, and an unknown answer for the worst
            lambda r, e: with_amendments(r, e, ("who knows", []))[1],
        ),
        (
            "no amendment after outcomes were read",
            "inadmissible",
            lambda r, e: with_amendments(r, e, ("outcomes read", [("decision[0].verdict", "a", "b")]))[1],
        ),
        (
            "no amendment after runs started",
            "inadmissible",
            lambda r, e: with_amendments(r, e, ("runs started", [("decision[0].verdict", "a", "b")]))[1],
        ),
        (
            "no amendment after outcomes were read",
            "note",  # it touches nothing
            lambda r, e: with_amendments(r, e, ("outcomes read", [("title", "a", "b")]))[1],
        ),
        (
            "no amendment after runs started",
            "deviation",
            lambda r, e: with_amendments(r, e, ("runs started", [("hypotheses.gain_ln.smallest", 0.01, 0.02)]))[1],
        ),
        (
            "the ledger and the registration are intact",
            "inadmissible",  # an amendment of something that the ledger never registered
            lambda r, e: with_entry(r, e, "amended", {"previous": "9" * 64, "evidence": "none"}, at=1),
        ),
        ("no look before the last run ended", "inadmissible", lambda r, e: with_entry(r, e, "peeked", {}, at=5)),
        ("no look before the last run ended", "inadmissible", lambda r, e: with_entry(r, e, "peeked", {}, at=16)),
        ("every run was made at the same commit", "note", provenance(commit="another")),
        (
            "every planned run is present",
            "inadmissible",
            lambda r, e: replace(e, runs=tuple(run for run in e.runs if (run.variant, run.seed) != CELL)),
        ),
        ("no run failed", "inadmissible", lambda r, e: with_run(e, CELL, status="failed", error="out of memory")),
        ("every seal matches", "inadmissible", lambda r, e: replace(e, broken=("metrics.parquet differs",))),
        ("every sealed run is in the ledger", "inadmissible", lambda r, e: with_run(e, CELL, metrics_sha256="0" * 64)),
        ("every sealed run is in the ledger", "inadmissible", lambda r, e: with_run(e, CELL, outcome_sha256="0" * 64)),
        (
            "every sealed run is in the ledger",
            "inadmissible",
            lambda r, e: replace(e, ledger=tuple(x for x in e.ledger if x.body.get("seed") != 2)),
        ),
        ("no run outside the plan", "inadmissible", lambda r, e: replace(e, extra=("layernorm/99",))),
        (
            "every run was made under this registration",
            "inadmissible",
            lambda r, e: with_run(e, CELL, registration="f" * 64),
        ),
        (
            "every configuration is the registered one",
            "inadmissible",
            lambda r, e: with_run(e, CELL, config=r.study.training("none").model_dump(mode="json")),
        ),
        ("every run consumed its tokens", "inadmissible", lambda r, e: with_run(e, CELL, tokens=12)),
        ("every run states what its pair shares", "inadmissible", lambda r, e: with_run(e, CELL, must_match=None)),
        *(
            ("every run states what its pair shares", "inadmissible", unstated(name))
            for name in ("initial/", "batches", "dropout", "corpus", "tokenizer")
        ),
        ("pairs start from the same weights", "inadmissible", initial),
        ("pairs read the same batches", "inadmissible", pairing(batches="0" * 64)),
        ("pairs drew the same dropout", "inadmissible", pairing(dropout="0" * 64)),
        ("pairs used the same tokenizer", "inadmissible", pairing(tokenizer="0" * 64)),
        ("every run read the registered corpus", "inadmissible", pairing(corpus="0" * 64)),
        ("every run used the same code", "inadmissible", provenance(code="0" * 64)),
        ("every run used the same device class", "inadmissible", provenance(device="an accelerator")),
        ("every run used the same library versions", "deviation", provenance(torch="2.5.0")),
        ("every run used the same processor and platform", "note", provenance(processor="another")),
        ("the tool's source tree was clean", "note", provenance(dirty=True)),
        ("every run was made in one go", "note", lambda r, e: with_run(e, CELL, attempts=2, resumed_from=(20,))),
        (
            "every run was made in one go",
            "note",
            lambda r, e: with_entry(r, e, "failed", {"variant": CELL[0], "seed": CELL[1], "error": "killed"}, at=3),
        ),
        ("no sealed run was trained again", "inadmissible", resealed(same=False)),
        ("no sealed run was trained again", "note", resealed(same=True)),
        (
            "every finished run has every claimed metric",
            "inadmissible",
            lambda r, e: replace(e, metrics=e.metrics[(e.metrics["seed"] != 2) | (e.metrics["metric"] != "val/loss")]),
        ),
        (
            "every finished run has its train/loss at every step",
            "inadmissible",
            lambda r, e: replace(e, metrics=e.metrics[e.metrics["metric"] != "train/loss"]),
        ),
    ],
)
def test_a_broken_promise_is_caught(name: str, severity: str, change: Break) -> None:
    registration, evidence = make_evidence(small_study())
    found = failed(registration, change(registration, evidence))
    assert name in found and found[name].severity == severity, found
    assert admissible(found.values()) == (severity != "inadmissible")


def test_both_outcomes_of_a_run_that_was_sealed_twice_are_named_and_none_is_called_reproduced() -> None:
    registration, evidence = make_evidence(small_study())
    run = next(run for run in evidence.runs if (run.variant, run.seed) == CELL)
    assert run.outcome_sha256 is not None
    outcome, name = run.outcome_sha256[:8], "no sealed run was trained again"
    check = failed(registration, resealed(same=True)(registration, evidence))[name]
    assert f"layernorm seed 2 ({outcome}, then {outcome})" in check.found and "reproduced" not in check.found
    check = failed(registration, resealed(same=False)(registration, evidence))[name]
    assert check.found == f"1 with another outcome: layernorm seed 2 (11111111, then {outcome})"
    # A seal that names no outcome agrees with none, not even with another such seal.
    nameless = sealed_body(run) | {"outcome_sha256": None}
    for _ in range(2):
        evidence = with_entry(registration, evidence, "sealed", nameless, at=2)
    check = failed(registration, evidence)[name]
    assert check.severity == "inadmissible" and f"(no outcome, then no outcome, then {outcome})" in check.found


def test_resumption_without_deterministic_numerics_is_a_deviation() -> None:
    study = small_study(base={"numerics": {"deterministic": False}, "budget": {"steps": 60}})
    registration, evidence = make_evidence(study)
    found = failed(registration, with_run(evidence, CELL, attempts=2, resumed_from=(20,)))
    assert found["every run was made in one go"].severity == "deviation"


def test_a_diverged_run_is_present_and_is_not_held_to_the_same_batches() -> None:
    registration, evidence = make_evidence(small_study(), diverged=(("none", 3),))
    assert set(failed(registration, evidence)) == {"no pair was left out for divergence"}


def test_how_much_was_compared_is_counted() -> None:
    registration, evidence = make_evidence(small_study())
    checks = {check.name: check for check in audit(AuditContext(registration, evidence))}
    # Two further variants a seed, six shared names each, and one norm weight that layernorm and rmsnorm share.
    assert checks["pairs start from the same weights"].found == "65 shared parameters compared, 0 differ"
    assert checks["pairs read the same batches"].found == "10 pairs of runs compared, 0 differ"


def test_variants_that_legitimately_differ_are_noted_and_not_faulted() -> None:
    study = small_study(variants={"none": {}, "layernorm": {"model.width": 32}, "rmsnorm": {"budget.batch": 8}})
    registration, evidence = make_evidence(study)
    found = failed(registration, evidence)
    assert {check.severity for check in found.values()} == {"note"}
    assert "model.width" in found["pairs start from the same weights, for all variants"].found
    assert "budget.batch" in found["pairs read the same batches, for all variants"].found


def test_a_mismatch_among_equals_is_still_a_fault_when_others_differ() -> None:
    study = small_study(
        variants={"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}, "rmsnorm": {"budget.batch": 8}}
    )
    registration, evidence = make_evidence(study)
    assert "pairs read the same batches" in failed(registration, pairing(batches="0" * 64)(registration, evidence))


def test_a_registration_after_the_first_seal_came_too_late() -> None:
    registration, evidence = make_evidence(small_study())
    events = [(entry.event, dict(entry.body)) for entry in evidence.ledger]
    late = [*events[1:4], events[0], *events[4:]]
    found = failed(registration, replace(evidence, ledger=chain(registration, late)))  # type: ignore[arg-type]
    assert set(found) == {"registered before any run"}


def test_entries_of_another_registration_bind_nothing() -> None:
    registration, evidence = make_evidence(small_study())
    other = make_registration(small_study(title="Another"))
    events = [(entry.event, dict(entry.body)) for entry in evidence.ledger]
    found = failed(registration, replace(evidence, ledger=chain(other, events)))  # type: ignore[arg-type]
    assert {"registered before any run", "every sealed run is in the ledger"} <= set(found)


def test_a_look_under_an_earlier_registration_still_counts() -> None:
    registration, evidence = make_evidence(small_study())
    other = make_registration(small_study(title="Another"))
    ledger = (*chain(other, [("peeked", {})]), *evidence.ledger)
    assert "no look before the last run ended" in failed(registration, replace(evidence, ledger=ledger))


def test_a_peek_after_the_last_run_was_sealed_is_not_early_unless_looks_cost_alpha() -> None:
    registration, evidence = make_evidence(small_study())
    assert failed(registration, with_entry(registration, evidence, "peeked", {}, at=17)) == {}
    sequential, evidence = make_evidence(small_study(stopping={"looks": [3, 5]}))
    found = failed(sequential, with_entry(sequential, evidence, "peeked", {}, at=17))
    assert "no look before the last run ended" in found


def test_the_training_curve_is_asked_for_only_where_the_rule_reads_stability() -> None:
    study = small_study(decision=[{"verdict": "yes", "when": "supported(gain_ln)"}, {"verdict": "inconclusive"}])
    registration, evidence = make_evidence(study)
    bare = replace(evidence, metrics=evidence.metrics[evidence.metrics["metric"] != "train/loss"])
    assert failed(registration, bare) == {}
