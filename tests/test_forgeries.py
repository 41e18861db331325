"""Evidence is derived again: values from sealed tables, code from its files, the verdict from the records.

Each test is a forgery that once passed, and everything that an honest study does beside it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from own_trainer import OwnHouse
from test_cli import ablate

from ablate import api
from ablate.api import deciding
from ablate.judge.verdict import Decision
from ablate.records.store import RunFolder
from ablate.verification.bundle.check import check_bundle
from ablate.verification.bundle.write import write_bundle
from ablate.verification.result import Verification
from ablate.verification.verify import verify_study
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_bytes, sha256_file
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Event
from prereg.registry.paths import Root
from prereg.registry.plan import plan
from prereg.study.command import ScriptPin, script_faults

AT = "2026-01-02T03:05:05+00:00"
LATER = "2099-01-03T03:04:05+00:00"
"""After the times that the runs write, which are real."""


class Decided(OwnHouse):
    """A house with one decided study."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.study = path / "studies" / "own.yaml"
        self.root = Root(path.resolve())

    def log(self, event: Event, body: dict[str, Any], at: str = LATER) -> None:
        """One more entry of the ledger, by whoever holds it."""
        Ledger(self.root.ledger).append(event, study="own", registration=self.registration, body=body, at=at)

    @property
    def registration(self) -> str:
        return next(entry.registration for entry in Ledger(self.root.ledger).entries())

    def log_seal(self, folder: RunFolder, at: str = LATER) -> None:
        record = folder.read_record()
        assert record is not None
        self.log("sealed", record.seal(sha256_file(folder.record_path)), at)

    def verified(self) -> Verification:
        return verify_study(self.study)

    def faults(self) -> str:
        return "; ".join(fault for item in self.verified().items for fault in item.faults)

    def notes(self) -> str:
        return "; ".join(item.note for item in self.verified().items)

    def decided(self) -> Decision:
        return api.decide(self.study).decision

    def bundled(self, out: Path) -> Path:
        case = api.open_study(self.study)
        told = write_bundle(case.root, api.require_registered(case), out, check=checked)
        assert told.check.intact
        return told.path


def checked(path: Path) -> Any:
    """The check of a bundle without drawing its reports again."""
    return check_bundle(path, reports_of=lambda *_: {})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study of six short runs, made and decided."""
    path = tmp_path_factory.mktemp("derived") / "house"
    registration = OwnHouse(path).register()
    house = Decided(path)
    runs = plan(registration)
    house.log("started", {"runs": [run.run_id for run in runs]}, AT)
    for run in runs:
        house.carry_out(registration, run.variant, run.seed)
        house.log_seal(RunFolder(house.run_folder(run.variant, run.seed)), AT)
    house.log("finished", {}, AT)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deciding, "pages", lambda *_: {})
        assert house.decided().verdict == "take fast"
    return path


@pytest.fixture
def house(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Decided:
    """A copy of it, to be attacked. Drawing reports takes seconds and is no part of this."""
    monkeypatch.setattr(deciding, "pages", lambda *_: {})
    return Decided(Path(shutil.copytree(whole, tmp_path / "house")))


def failed(decision: Decision) -> dict[str, str]:
    """Failed checks that leave no verdict, and what they found."""
    return {c.name: c.found for c in decision.checks if not c.passed and c.severity == "inadmissible"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.write_text("print('another trainer')\n"), "train.py: its bytes differ from those of the re"),
        (Path.unlink, "train.py: missing; the registered code had sha256 "),
    ],
)
def test_code_that_is_not_the_registered_code_is_a_fault_and_no_bundle_is_written(
    house: Decided, tmp_path: Path, change: Callable[[Path], object], said: str
) -> None:
    change(house.path / "train.py")
    assert said in house.faults()
    with pytest.raises(EvidenceError, match=said):
        house.bundled(tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()


def test_a_lock_cannot_have_files_outside_the_root_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    for path in ("../secret", str(tmp_path / "secret")):
        (fault,) = script_faults((ScriptPin(path=path, sha256=sha256_bytes(b"x")),), tmp_path / "root")
        assert "no path inside the root" in fault


def redecide(house: Decided, data: bytes, **changes: Any) -> None:
    """Another decision, with the ledger's entries to match."""
    entry = next(e for e in reversed(Ledger(house.root.ledger).entries()) if e.event == "decided")
    (house.path / "reports" / "own" / "verdict.json").write_bytes(data)
    house.log("decided", dict(entry.body) | {"verdict_sha256": sha256_bytes(data)} | changes)
    house.log("reported", {"decision": Ledger(house.root.ledger).head()})


def verdict_of(house: Decided) -> bytes:
    return (house.path / "reports" / "own" / "verdict.json").read_bytes()


def test_a_decision_whose_verdict_json_is_gone_is_compared_with_the_ledger(house: Decided) -> None:
    old = verdict_of(house)
    lie = old.replace(b'"verdict": "take fast"', b'"verdict": "inconclusive"')
    assert lie != old
    (house.path / "reports" / "own" / "verdict.json").unlink()
    assert "the bytes that the ledger recorded" in house.notes()
    for data, verdict in ((lie, "inconclusive"), (old + b"\n", "take fast")):
        redecide(house, data, verdict=verdict)
        (house.path / "reports" / "own" / "verdict.json").unlink()
        assert ("judged here it is not what the ledger recorded" in house.faults()) == (data == lie)
    assert "verdict.json is not here, and its words and numbers were not compared" in house.notes()


WORDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "because": lambda verdict: verdict.update(because="Proof that fast wins everywhere."),
    "findings.gain.sentence": lambda verdict: verdict["findings"][0].update(sentence="It always helps."),
    "checks.no run failed.found": lambda verdict: next(
        check for check in verdict["checks"] if check["name"] == "no run failed"
    ).update(found="nothing at all is wrong"),
}


@pytest.mark.parametrize("place", WORDS)
def test_other_words_are_a_fault_where_the_ledger_names_this_version_or_none(house: Decided, place: str) -> None:
    words = json.loads(verdict_of(house))
    WORDS[place](words)
    lie = json.dumps(words, indent=2).encode() + b"\n"
    redecide(house, lie)
    assert f"verdict.json is worded otherwise: {place}; the same version wrote it" in house.faults()
    redecide(house, lie, code=None)
    assert f"verdict.json is worded otherwise: {place}; no entry says which version wrote it" in house.faults()
    redecide(house, lie, code="0" * 64)
    assert house.verified().intact, house.faults()
    assert f"worded otherwise: {place}; the ledger says that code 00000000 wrote it" in house.notes()
    assert "What is shown is worded here" in house.notes()


def test_another_title_than_the_registered_one_is_a_fault_whoever_wrote_it(house: Decided) -> None:
    words = json.loads(verdict_of(house))
    words["title"] = "Proof that fast wins everywhere"
    redecide(house, json.dumps(words, indent=2).encode() + b"\n", code="0" * 64)
    assert 'verdict.json: title is "Proof that fast wins everywhere", and "A trainer of one' in house.faults()


def test_other_numbers_in_a_sentence_and_a_failed_check_left_out_are_faults_and_not_reported(house: Decided) -> None:
    old = verdict_of(house)
    number, check = json.loads(old), json.loads(old)
    number["findings"][0]["sentence"] = "fast lowers val/loss by 9.99 nats/token (n = 500 seeds, p < .0001)."
    failed = next(one for one in check["checks"] if not one["passed"])
    check["checks"].remove(failed)
    for lie, said in (
        (number, "verdict.json: findings.gain.sentence states 9.99, 500, which is not found when judged here"),
        (check, f"verdict.json: checks.{failed['name']} is missing, and failed when judged here: "),
    ):
        redecide(house, json.dumps(lie, indent=2).encode() + b"\n")
        assert said in house.faults()
        with pytest.raises(EvidenceError, match="does not give the decision in the ledger"):
            api.report(house.study)
    redecide(house, old)
    assert house.verified().intact, house.faults()


def test_a_deviation_that_was_found_when_it_was_decided_cannot_be_left_out(house: Decided) -> None:
    assert house.verified().intact
    house.log("finished", {}, AT)
    old = verdict_of(house)
    house.decided()
    now = json.loads(verdict_of(house))
    (clock,) = (one for one in now["checks"] if one["name"] == "the ledger's times run forward")
    assert not clock["passed"] and clock["severity"] == "deviation" and "times run forward" not in old.decode()
    assert house.verified().intact, house.faults()
    now["checks"].remove(clock)
    redecide(house, json.dumps(now, indent=2).encode() + b"\n")
    assert "checks.the ledger's times run forward is missing, and failed when judged here" in house.faults()


def test_a_deviation_that_came_about_afterwards_is_a_note(house: Decided) -> None:
    house.log("finished", {})
    house.log("finished", {}, AT)
    assert house.verified().intact, house.faults()
    assert "checks.the ledger's times run forward is missing, and failed when judged here" in house.notes()
    api.report(house.study)


def test_what_is_shown_has_the_words_of_the_judge_here_whatever_the_file_says(
    house: Decided, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Decision.model_validate_json(verdict_of(house))
    reported: list[Decision] = []
    monkeypatch.setattr(deciding, "pages", lambda _, __, decision, *___: reported.append(decision) or {})
    words = json.loads(verdict_of(house))
    for change in WORDS.values():
        change(words)
    held = next(index for index, check in enumerate(words["checks"]) if check["name"] == "every seal matches")
    del words["checks"][held]
    redecide(house, json.dumps(words, indent=2).encode() + b"\n")
    api.report(house.study)
    assert reported == [now]
    assert api.results(house.study).decision == now


def test_a_sealed_run_that_is_gone_is_named_unless_none_is_here(house: Decided) -> None:
    place = house.run_folder("fast", 2)
    shutil.rmtree(place)
    found = house.verified()
    (fault,) = (fault for item in found.items for fault in item.faults)
    assert fault == f"{place.relative_to(house.path)} is missing, and other sealed runs are here"
    assert "not judged again: what it rests on has changed" in house.notes()
    shutil.rmtree(house.path / "data" / "runs")
    found = house.verified()
    assert found.intact and not found.inadmissible, house.faults()
    assert "not judged again: none of the 6 sealed runs is on this disk" in house.notes()
    assert "6 sealed runs are not on this disk; none could be checked" in house.notes()


def test_a_decision_without_runs_is_found_though_nothing_is_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "house"
    OwnHouse(path).register()
    house = Decided(path)
    house.log("decided", {"status": "decided", "verdict": "take fast", "verdict_sha256": "0" * 64, "evidence": "0"})
    assert "6 of the 6 runs it rests on are not here as sealed" in house.faults()


@pytest.mark.parametrize("honest", [True, False])
def test_the_verb_ends_with_four_where_the_records_give_no_verdict(
    house: Decided, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], honest: bool
) -> None:
    assert ablate(monkeypatch, "verify", house.study) == 0
    capsys.readouterr()
    house.log("peeked", {"reason": "curious", "took_place": AT, "recorded_afterwards": True})
    if honest:
        assert house.decided().status == "inadmissible"
    assert ablate(monkeypatch, "verify", house.study) == 4
    said = capsys.readouterr().out
    assert "own: inadmissible, so no verdict comes from these records." in said
    assert ("CHANGED" not in said) == honest
    assert ("verdict.json: status is " in said) == (not honest)
