"""Claims about the verdict: nothing early, nothing without clean evidence, the registered line, the same bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_factory import (
    make_evidence,
    one_claim,
    small_study,
    with_amendments,
    with_entry,
    with_losses,
    with_run,
)

from ablate.judge import decide as judge
from ablate.judge.decide import decide
from ablate.judge.verdict import with_deviations
from ablate.reporting.document import banner_of
from prereg.registry.registration import Override

GAIN = {"val/loss": {"layernorm": -0.06}}
# An amendment that touches two claims on which no verdict below rests.
RMSNORM = ("variants.rmsnorm.model.embedding_norm", "layernorm", "rmsnorm")


def test_clean_evidence_gets_the_first_line_that_holds() -> None:
    registration, evidence = make_evidence(small_study(), effects=GAIN, sd=0.002)
    found = decide(registration, evidence)
    assert (found.status, found.verdict, found.line) == ("decided", "adopt layernorm", 1)
    assert "supported(gain_ln) and supported(harm_ln)" in found.because
    assert [one.hypothesis for one in found.findings] == list(registration.study.hypotheses)
    assert found.evidence == evidence.sha256 and found.registration == registration.sha256


def test_noise_is_inconclusive_and_says_so() -> None:
    registration, evidence = make_evidence(small_study(), sd=0.05)
    found = decide(registration, evidence)
    assert (found.status, found.verdict, found.line) == ("inconclusive", "inconclusive", 5)
    assert "every other case" in found.because


def test_no_gain_worth_having_refutes() -> None:
    registration, evidence = make_evidence(small_study(), sd=0.001)
    assert decide(registration, evidence).verdict == "keep none"


def test_while_runs_are_missing_no_contrast_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    registration, evidence = make_evidence(small_study(), effects=GAIN, sd=0.002, left_out=(("rmsnorm", 5),))

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a contrast was computed early")

    monkeypatch.setattr(judge, "judge_study", forbidden)
    monkeypatch.setattr(judge, "judge_stability", forbidden)
    found = decide(registration, evidence)
    assert (found.status, found.verdict, found.findings, found.stability) == ("unfinished", None, (), ())
    assert "14 of 15 planned runs have ended" in found.because
    assert not any(check.passed for check in found.checks if check.name == "every planned run is present")


def test_a_running_or_failed_run_is_a_missing_one() -> None:
    registration, evidence = make_evidence(small_study(), effects=GAIN, sd=0.002, left_out=(("rmsnorm", 5),))
    for status in ("running", "failed"):
        assert decide(registration, with_run(evidence, ("none", 1), status=status)).findings == ()


def test_missing_runs_with_any_other_fault_are_inadmissible_and_not_unfinished() -> None:
    registration, evidence = make_evidence(small_study(), effects=GAIN, sd=0.002, left_out=(("rmsnorm", 5),))
    assert decide(registration, evidence).status == "unfinished"
    faults = {
        "broken": replace(evidence, broken=("metrics.parquet differs",)),
        "unregistered": replace(evidence, ledger=evidence.ledger[1:]),
        "unmatched": with_run(evidence, ("none", 1), metrics_sha256="0" * 64),
        "looked at": with_entry(registration, evidence, "peeked", {}, at=5),
    }
    for name, faulty in faults.items():
        found = decide(registration, faulty)
        assert (found.status, found.findings) == ("inadmissible", ()), name
    # A sealed run whose record is gone was made, and is not still to be made.
    whole = make_evidence(small_study(), effects=GAIN, sd=0.002)[1]
    gone = replace(whole, runs=tuple(run for run in whole.runs if run.cell != ("none", 1)))
    assert decide(registration, gone).status == "inadmissible"


def test_inadmissible_evidence_shows_its_numbers_and_no_verdict() -> None:
    registration, evidence = make_evidence(small_study(), effects=GAIN, sd=0.002)
    found = decide(registration, with_entry(registration, evidence, "peeked", {}, at=4))
    assert (found.status, found.verdict, found.line) == ("inadmissible", None, None)
    assert len(found.findings) == 4 and found.findings[0].outcome == "supported"
    assert "no look before the last run ended" in found.because and found.tie_breakers == {}


def test_a_damaged_ledger_shows_no_number_and_no_verdict() -> None:
    # Nothing can be logged in it, and what is not logged is not shown: that would be a free look.
    registration, evidence = make_evidence(small_study())
    assert decide(registration, evidence).verdict is not None
    decision = decide(registration, replace(evidence, ledger_faults=("line 3: its content does not match its hash",)))
    assert (decision.status, decision.verdict, decision.line) == ("inadmissible", None, None)
    assert (decision.findings, decision.stability) == ((), ())


def test_a_deviation_does_not_stop_a_verdict_and_gives_it_a_status_of_its_own() -> None:
    registration, evidence = make_evidence(small_study(), effects=GAIN, sd=0.002)
    amended = with_amendments(registration, evidence, ("runs started", [RMSNORM]))
    found = decide(*amended)
    assert (found.status, found.verdict) == ("decided_with_deviations", "adopt layernorm") and found.gives_verdict
    assert [check.name for check in found.deviations] == ["no amendment after runs started"]
    assert with_deviations(found) == "with 1 deviation"
    assert decide(registration, evidence).status == "decided"


def test_an_inconclusive_verdict_with_deviations_stays_inconclusive_and_names_them() -> None:
    registration, evidence = make_evidence(small_study(), sd=0.2)
    underpowered = Override(obstacle="power of 9% for gain_ln", reason="what the budget allows")
    registration = registration.model_copy(update={"override": underpowered})
    found = decide(registration, evidence)
    assert found.status == "inconclusive" and with_deviations(found) == "with 1 deviation"
    assert banner_of(found, registration).headline == "inconclusive, with 1 deviation"


def test_the_same_evidence_gives_the_same_bytes() -> None:
    study = small_study(analysis={"test": "bootstrap_t", "also": ["paired_t", "sign_flip"]}, seeds=list(range(1, 9)))
    registration, evidence = make_evidence(study, effects=GAIN, sd=0.02)
    again = make_evidence(study, effects=GAIN, sd=0.02)[1]
    shuffled = replace(again, metrics=again.metrics.sample(frac=1.0, random_state=1), runs=tuple(reversed(again.runs)))
    first = decide(registration, evidence).model_dump_json()
    assert first == decide(registration, again).model_dump_json() == decide(registration, shuffled).model_dump_json()


@pytest.mark.slow
@pytest.mark.parametrize(("test", "n"), [("bootstrap_t", 7), ("bootstrap_t", 14), ("sign_flip", 44)])
def test_no_p_follows_from_the_hash_of_the_registration(test: str, n: int) -> None:
    """A title that is written twelve ways would otherwise be twelve draws of a p near alpha."""
    found = []
    for title in ("One", "Other", "A third"):
        study = small_study(title=title, seeds=list(range(1, n + 1)), analysis={"test": test})
        registration, evidence = make_evidence(study, effects={"val/loss": {"layernorm": -0.02}}, sd=0.02)
        found.append((registration.sha256, [one.p_support for one in decide(registration, evidence).findings]))
    assert len({sha256 for sha256, _ in found}) == 3 and found[0][1] == found[1][1] == found[2][1]


def test_a_spike_decides_through_the_stability_line() -> None:
    registration, evidence = make_evidence(small_study(), sd=0.05)
    found = decide(registration, with_losses(evidence, ("none", 3), {50: 30.0}))
    assert (found.verdict, found.line) == ("adopt layernorm", 3)
    assert not found.stability[0].stable


def test_a_diverged_run_leaves_its_pair_out_and_is_said() -> None:
    registration, evidence = make_evidence(small_study(), effects=GAIN, sd=0.002, diverged=(("none", 3),))
    found = decide(registration, evidence)
    assert found.findings[0].n == 4
    assert any("seed 3 is left out: no val/loss from none" in note for note in found.findings[0].notes)
    assert found.stability[0].diverged == (3,)


def test_several_lines_that_hold_show_the_tie_breakers() -> None:
    registration, evidence = make_evidence(
        small_study(), effects={"val/loss": {"layernorm": -0.06, "rmsnorm": -0.05}}, sd=0.002
    )
    found = decide(registration, evidence)
    assert found.verdict == "adopt layernorm" and "2 (adopt rmsnorm)" in found.because
    assert set(found.tie_breakers["speed/tokens_per_s"]) == {"none", "layernorm", "rmsnorm"}  # type: ignore[arg-type]
    only = decide(*make_evidence(small_study(), effects=GAIN, sd=0.002))
    assert only.tie_breakers == {}


def test_seeds_lost_to_divergence_do_not_leave_the_lucky_rest_to_decide() -> None:
    # Two of five runs of the arm diverge; the three that are left look like a gain, and once decided alone.
    lost = (("layernorm", 1), ("layernorm", 2))
    rule = [{"verdict": "adopt", "when": "supported(h)"}, {"verdict": "inconclusive"}]
    asking = [{"verdict": "adopt", "when": "supported(h) and stable(layernorm)"}, {"verdict": "inconclusive"}]
    for decision, wanted in ((rule, "inadmissible"), (asking, "inconclusive")):
        study = one_claim(decision=decision)
        registration, evidence = make_evidence(
            study, effects={"val/loss": {"layernorm": -0.1}}, sd=0.0005, diverged=lost
        )
        found = decide(registration, evidence)
        assert found.status == wanted, found.because
        assert [c.passed for c in found.checks if c.name == "no pair was left out for divergence"] == [False]
