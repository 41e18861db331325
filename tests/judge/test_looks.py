"""Claims about looks from file to report: trained up to the look, judged at it, nothing shown early, no seed after."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import House, tiny_document
from evidence_factory import make_evidence, one_claim, with_entry
from test_cli import ablate

from ablate.judge import decide as judge
from ablate.judge.decide import decide
from ablate.judge.judge import settles
from ablate.records.evidence import Evidence
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry
from prereg.registry.registration import Registration

LOOKS = {"looks": [3, 5, 8]}
STRONG = {"val/loss": {"layernorm": -0.5}}
WEAK = {"val/loss": {"layernorm": -0.03}}


def at_look(registration: Registration, evidence: Evidence, number: int, *, final: bool = False) -> dict[str, Any]:
    """What the ledger says of a look."""
    looks = {1: 3, 2: 5, 3: 8}
    seen = judge.view(registration, replace(evidence, ledger=())).evidence if number == 1 else evidence
    if number > 1:
        from ablate.judge.interim import restrict

        seen = restrict(evidence, registration.study.seeds[: looks[number]])
    return {"look": number, "of": 3, "seeds": looks[number], "evidence": seen.sha256, "final": final}


def up_to(n_seeds: int, **changes: Any) -> tuple[Registration, Evidence]:
    """Evidence of the first so many of eight seeds, looks at 3, 5 and 8."""
    study = one_claim(seeds=8, stopping=LOOKS)
    left_out = tuple((arm, seed) for seed in study.seeds[n_seeds:] for arm in study.arms)
    registration, evidence = make_evidence(study, left_out=left_out, **changes)
    return registration, evidence


def before_later_seeds(registration: Registration, evidence: Evidence, body: dict[str, Any], seeds: int) -> Evidence:
    """The evidence with a look in the ledger right after the runs of its seeds."""
    place = 2 + seeds * len(registration.study.arms)
    return with_entry(registration, evidence, "looked", body, at=place)


def failed(found: Any) -> list[str]:
    return [check.name for check in found.checks if not check.passed and check.severity != "note"]


def test_a_look_that_is_not_complete_shows_nothing_and_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    registration, evidence = up_to(2, effects=STRONG)
    monkeypatch.setattr(judge, "judge_study", None)
    found = decide(registration, evidence)
    assert (found.status, found.findings) == ("unfinished", ())
    assert "Look 1 of 3, at 3 seeds, needs 9 runs, and 6 have ended" in found.because


@pytest.mark.slow
def test_a_clear_finding_ends_the_study_at_the_first_look() -> None:
    registration, evidence = up_to(3, effects=STRONG, sd=0.001)
    found = decide(registration, evidence)
    assert (found.status, found.verdict) == ("decided", "yes") and found.look is not None
    assert found.look.number == 1 and found.findings[0].n == 3 and failed(found) == []
    assert "Decided at look 1 of 3, at 3 seeds" in found.because


def test_what_a_fixed_test_would_have_taken_at_the_first_look_goes_on() -> None:
    registration, evidence = up_to(3, effects={"val/loss": {"layernorm": -0.06}}, sd=0.01)
    found = decide(registration, evidence)
    assert (found.status, found.verdict, found.findings, found.stability) == ("continue", None, (), ())
    assert "not final" in found.because and "Next look at 5 seeds" in found.because
    fixed = one_claim(seeds=3)
    assert decide(*make_evidence(fixed, effects={"val/loss": {"layernorm": -0.06}}, sd=0.01)).verdict == "yes"


def test_the_next_look_sees_more_and_the_last_one_always_ends() -> None:
    registration, evidence = up_to(5, effects=WEAK, sd=0.05)
    evidence = before_later_seeds(registration, evidence, at_look(registration, evidence, 1), 3)
    found = decide(registration, evidence)
    assert found.status == "continue" and found.look is not None and found.look.number == 2 and failed(found) == []
    registration, evidence = up_to(8, effects=WEAK, sd=0.05)
    evidence = before_later_seeds(registration, evidence, at_look(registration, evidence, 1), 3)
    evidence = with_entry(registration, evidence, "looked", at_look(registration, evidence, 2), at=2 + 15 + 1)
    found = decide(registration, evidence)
    assert (found.status, found.verdict) == ("inconclusive", "inconclusive") and failed(found) == []
    assert found.look is not None and found.look.last and found.findings[0].n == 8


def test_a_look_told_again_is_the_same_and_one_that_ended_the_study_stays() -> None:
    registration, evidence = up_to(3, effects=WEAK, sd=0.05)
    first = decide(registration, evidence)
    again = with_entry(registration, evidence, "looked", at_look(registration, evidence, 1))
    assert decide(registration, again) == first
    registration, evidence = up_to(3, effects=STRONG, sd=0.001)
    first = decide(registration, evidence)
    again = with_entry(registration, evidence, "looked", at_look(registration, evidence, 1, final=True))
    assert decide(registration, again).model_dump_json() == first.model_dump_json()


def test_a_look_left_out_is_found_and_gives_no_verdict() -> None:
    registration, evidence = up_to(8, effects=STRONG, sd=0.001)
    skipped = with_entry(registration, evidence, "looked", at_look(registration, evidence, 2))
    found = decide(registration, skipped)
    assert (found.status, found.look and found.look.number) == ("inadmissible", 3)
    assert "every look was taken in its turn" in failed(found) and "look 1 was left out" in found.because


def test_a_look_taken_twice_on_different_evidence_is_found() -> None:
    registration, evidence = up_to(3, effects=STRONG, sd=0.001)
    body = at_look(registration, evidence, 1) | {"evidence": "0" * 64}
    found = decide(registration, with_entry(registration, evidence, "looked", body))
    assert found.status == "inadmissible" and found.findings == ()
    assert "no look was taken twice on different evidence" in failed(found)


def test_seeds_trained_before_their_look_are_not_seen_and_are_told() -> None:
    registration, evidence = up_to(8, effects=STRONG, sd=0.001)
    found = decide(registration, evidence)
    assert found.status == "decided_with_deviations" and found.findings[0].n == 3
    assert {arm.n for arm in found.findings[0].arms} == {arm.runs for arm in found.stability} == {3}
    assert failed(found) == ["no seed was trained before the look it follows"]


def test_a_seed_added_after_the_verdict_makes_it_inadmissible() -> None:
    registration, evidence = up_to(5, effects=STRONG, sd=0.001)
    ended = before_later_seeds(registration, evidence, at_look(registration, evidence, 1, final=True), 3)
    assert "no seed was added after the verdict" in failed(decide(registration, ended))


def test_neither_futility_nor_the_stability_of_a_few_runs_ends_a_study_early() -> None:
    study = one_claim(
        seeds=8,
        stopping=LOOKS,
        decision=[
            {"verdict": "yes", "when": "supported(h) or not stable(none)"},
            {"verdict": "no", "when": "not refuted(h) and stable(rmsnorm)"},
            {"verdict": "inconclusive"},
        ],
    )
    stable = dict.fromkeys(study.arms, True)
    assert settles(study, {"h": "supported"}, stable)
    assert not settles(study, {"h": "inconclusive"}, stable)
    assert not settles(study, {"h": "supported"}, stable | {"none": False})
    assert not settles(study, {"h": "refuted"}, stable), "its line is the inconclusive one"


def test_a_verdict_of_a_fixed_design_is_written_without_a_look() -> None:
    written = json.loads(decide(*make_evidence(one_claim())).model_dump_json())
    assert written["look"] is None
    registration, evidence = up_to(3, effects=STRONG, sd=0.001)
    assert json.loads(decide(registration, evidence).model_dump_json())["look"] == {"number": 1, "of": 3, "n_seeds": 3}


# From YAML to report, with real runs.

NEVER = {"gain": {"claim": "layernorm lowers val/loss", "smallest": 5.0}}


def entries(house: House) -> tuple[Entry, ...]:
    return Ledger(house.path / "studies" / "ledger.jsonl").entries()


def sealed_seeds(house: House) -> set[int]:
    return {int(str(entry.seed)) for entry in entries(house) if entry.event == "sealed"}


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a verb; its exit code and what it said."""

    def verb(*words: str | Path) -> tuple[int, str]:
        code = ablate(monkeypatch, *words)
        out = capsys.readouterr()
        return code, " ".join((out.out + out.err).split())

    return verb


@pytest.mark.slow
def test_a_study_with_looks_from_file_to_report(house: House, say: Any) -> None:
    # An effect of 5 nats is far from these data, and still two seeds cannot rule it out at .001 spent by two of three:
    # the nominal level there is 6e-5, and a t of one degree of freedom would have to pass 5,000.
    strict = {"alpha": 0.001}
    study = house.write(tiny_document(seeds=[1, 2, 3], stopping={"looks": [2, 3]}, hypotheses=NEVER, analysis=strict))
    code, said = say("run", study, "--next-look")
    assert code == 0 and "4 of 4 runs sealed" in said
    assert (
        "look 1 of 2, at 2 seeds; planned seeds that wait for its result: 1" in said and "next: ablate decide" in said
    )
    assert sealed_seeds(house) == {1, 2}
    code, said = say("run", study)
    assert code == 0 and sealed_seeds(house) == {1, 2}, "no further before the look is taken"
    before = house.snapshot()
    code, said = say("decide", study)
    assert code == 3 and "CONTINUE" in said and "not final" in said and "Next look at 3 seeds" in said
    assert "--next-look" in said and not (house.path / "reports" / "tiny").exists()
    changed = {name for name, data in house.snapshot().items() if before.get(name) != data}
    assert changed == {"studies/ledger.jsonl"} and entries(house)[-1].event == "looked"
    before = house.snapshot()
    assert say("decide", study)[0] == 3 and house.snapshot() == before, "a look told again is one look"
    assert "To come: look 2 of 2, at 3 seeds" in say("status", study)[1]
    code, said = say("run", study)
    assert code == 0 and "6 of 6 runs sealed" in said and sealed_seeds(house) == {1, 2, 3}
    code, said = say("decide", study)
    assert code == 0 and "KEEP NONE" in said.upper()
    assert [entry.event for entry in entries(house)[-3:]] == ["looked", "decided", "reported"]
    before = house.snapshot()
    assert say("decide", study)[0] == 0 and say("report", study)[0] == 0 and house.snapshot() == before
    report = (house.path / "reports" / "tiny" / "report.md").read_text()
    assert "repeated CI" in report and "Jennison and Turnbull" in report and "look 2 of 2" in report
    assert say("verify", study)[0] == 0 and "To come:" not in say("status", study)[1]
    code, said = say("run", study)
    assert code == 2 and "was decided at look 2 of 2" in said and "no seed added after the verdict" in said


def test_deciding_before_a_look_is_complete_shows_and_logs_nothing(house: House, say: Any) -> None:
    study = house.write(tiny_document(stopping={"looks": [2, 3]}))
    assert say("register", study)[0] == 0
    before = house.snapshot()
    code, said = say("decide", study)
    assert code == 6 and "Look 1 of 2, at 2 seeds, needs 4 runs, and 0 have ended" in said
    assert house.snapshot() == before


def test_the_next_look_of_a_fixed_number_of_seeds_is_a_mistake(house: House, say: Any) -> None:
    study = house.write()
    before = house.snapshot()
    code, said = say("run", study, "--next-look")
    assert code == 2 and "fixed number of seeds" in said and house.snapshot() == before
