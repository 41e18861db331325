"""Limits as promises: tokens that must add up, time that is measured, and a breach that is an event."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from conftest import House
from own_trainer import OwnHouse
from quiet import QUIET
from study_samples import based

import ablate as api
from ablate.gpt.device import Peak
from ablate.reporting.summaries.proof import describe
from ablate.runner.options import RunOptions
from prereg.documents.sentences import field_in_words, say
from prereg.errors import RunError
from prereg.registry.history import as_json
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry
from prereg.study.spec import Study, study_from_document
from prereg.study.training import Budget, Model, Training, breach_of

LIMITS = "every run kept to its promised limits"


def study(budget: dict[str, object], **changes: object) -> Study:
    return study_from_document(based(budget, **changes))


def breached(house: House) -> list[Entry]:
    return [e for e in Ledger(house.path / "studies" / "ledger.jsonl").entries() if e.event == "breached"]


# --- Tokens. ------------------------------------------------------------------------------------------------------


def test_tokens_alone_give_the_steps() -> None:
    made = study({"batch": 8, "tokens": 3840})
    assert made.training("none").budget.steps == 30
    assert made.training("none").tokens == 3840


def test_a_budget_in_tokens_holds_for_an_arm_of_another_batch_or_context() -> None:
    made = study(
        {"batch": 8, "tokens": 3840},
        variants={
            "none": {},
            "wide": {"budget.batch": 16},
            "long": {"model.context": 32},
            "twice": {"budget.tokens": 7680},
        },
        hypotheses={"gain": {"claim": "wide lowers val/loss", "smallest": 0.05}},
        decision=[{"verdict": "adopt", "when": "supported(gain)"}, {"verdict": "inconclusive"}],
    )
    assert {arm: made.training(arm).budget.steps for arm in made.arms} == {
        "none": 30,
        "wide": 15,
        "long": 15,
        "twice": 60,
    }
    assert {made.training(arm).tokens for arm in ("none", "wide", "long")} == {3840}


def test_what_a_lock_holds_resolves_to_the_same_arms_again() -> None:
    made = study({"batch": 8, "tokens": 3840}, variants={"none": {}, "layernorm": {"budget.batch": 16}})
    again = study_from_document(as_json(made))
    assert as_json(again) == as_json(made)
    assert again.arms == made.arms


# --- Limits. ------------------------------------------------------------------------------------------------------


def test_a_limit_is_broken_by_more_and_not_by_as_much() -> None:
    budget = Budget(max_wall_s=10.0)
    assert breach_of(budget, wall_s=10.0) is None
    breach = breach_of(budget, wall_s=10.5)
    assert breach is not None and (breach.limit, breach.promised, breach.measured) == ("max_wall_s", 10.0, 10.5)
    assert breach.words == "10.5 s of time, promised at most 10 s"
    assert breach_of(Budget(), wall_s=1e9) is None


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux forgets a peak")
def test_the_peak_of_a_run_forgets_what_an_earlier_run_took() -> None:
    block = bytearray(256 * 2**20)
    before = Peak.reset()
    held = before.read_bytes()
    del block
    after = Peak.reset()
    assert after.since == "run"
    assert held - after.read_bytes() > 200 * 2**20
    block = bytearray(256 * 2**20)
    del block  # freed again: a sample taken now would miss it
    assert after.read_bytes() > held - 20 * 2**20


def test_where_the_peak_cannot_be_reset_the_record_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys.modules[Peak.__module__], "RESET", tmp_path / "nowhere" / "clear_refs")
    peak = Peak.reset()
    assert peak.since == "process"
    assert peak.read_bytes() > 10 * 2**20


@pytest.fixture(scope="module")
def costly(tmp_path_factory: pytest.TempPathFactory) -> House:
    """A study whose promise about time no run can keep."""
    made = House(tmp_path_factory.mktemp("costly") / "house")
    budget = {"steps": 10, "batch": 8, "max_wall_s": 0.001}
    api.run(made.write(based(budget, seeds=[1, 2])), workspace=api.Workspace(console=QUIET))
    return made


@pytest.mark.slow
def test_every_run_is_measured_and_a_breach_takes_no_pair_away(costly: House) -> None:
    records = [json.loads(p.read_text()) for p in costly.path.glob("data/runs/*/*/*/*/run.json")]
    assert len(records) == 4
    assert {r["status"] for r in records} == {"done"}
    assert all(50 * 2**20 < r["peak_memory_bytes"] < 4 * 2**30 for r in records)
    assert {r["memory_since"] for r in records} <= {"run", "process"}


def test_every_breach_is_an_event_before_the_seal_and_stands_there_once(costly: House) -> None:
    entries = Ledger(costly.path / "studies" / "ledger.jsonl").entries()
    kinds = [entry.event for entry in entries]
    assert kinds.count("breached") == 4
    for place, entry in enumerate(entries):
        if entry.event == "sealed":
            assert [(e.event, e.cell) for e in entries[place - 1 : place]] == [("breached", entry.cell)]
    first = breached(costly)[0]
    assert (first.limit, first.promised) == ("max_wall_s", 0.001)
    assert isinstance(first.measured, float) and first.measured > 0.001
    assert "s of time, promised at most 0.001 s" in describe(first)


def test_a_crash_between_breach_and_seal_repeats_no_breach(costly: House, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(costly.path, tmp_path / "copy"))
    ledger = copy / "studies" / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-2]))  # the last seal, and `finished`
    assert api.run(copy / "studies" / "tiny.yaml", workspace=api.Workspace(console=QUIET)).summary.complete
    kinds = [entry.event for entry in Ledger(ledger).entries()]
    assert kinds.count("breached") == 4
    assert kinds.count("sealed") == 4


def test_the_verdict_stands_and_the_breaches_are_listed_beside_it(costly: House) -> None:
    decided = api.decide(costly.path / "studies" / "tiny.yaml")
    assert decided.decision.status != "inadmissible"
    check = {check.name: check for check in decided.decision.checks}[LIMITS]
    assert (check.passed, check.severity) == (False, "deviation")
    assert check.found.startswith("4 runs with limits, 4 breaches: ")
    assert LIMITS in decided.markdown_path.read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("no_reports")
def test_limits_that_are_kept_are_a_check_that_holds(house: House) -> None:
    budget = {"steps": 4, "batch": 8, "max_wall_s": 3600}
    path = house.write(based(budget, seeds=[1, 2], measure={"every": 4}))
    api.run(path, workspace=api.Workspace(console=QUIET))
    assert breached(house) == []
    check = {check.name: check for check in api.decide(path).decision.checks}[LIMITS]
    assert check.passed


# --- Words. -------------------------------------------------------------------------------------------------------


def test_limits_are_told_in_the_promise_and_a_study_without_them_as_before() -> None:
    plainly = study({"steps": 30, "batch": 8})
    bounded = study({"steps": 30, "batch": 8, "tokens": 3840, "max_wall_s": 600})
    told = say("base", bounded)
    for words in ("a budget of exactly 3,840 tokens", "at most 600 seconds of time"):
        assert words in told
        assert words not in say("base", plainly)
    assert "no promise" not in say("base", plainly)


@pytest.mark.parametrize("field", ["budget.tokens", "budget.max_wall_s"])
def test_a_limit_that_an_arm_takes_back_has_words(field: str) -> None:
    assert field_in_words(field, None)


def test_a_model_of_another_context_alone_has_other_tokens() -> None:
    assert Training(model=Model(context=64), budget=Budget(batch=4, tokens=2560)).budget.steps == 10


def test_a_users_own_trainer_saves_where_it_stands_itself(own_house: OwnHouse) -> None:
    before = own_house.snapshot()
    path = own_house.write()
    with pytest.raises(RunError, match="checkpoint-every is for the built-in trainer"):
        api.run(path, RunOptions(checkpoint_every_s=5.0), workspace=api.Workspace(console=QUIET))
    assert own_house.snapshot().keys() - before.keys() == {"studies/own.yaml"}
