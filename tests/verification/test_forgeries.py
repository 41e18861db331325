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
from ledger_samples import enter
from own_trainer import OwnHouse
from test_cli import ablate

import ablate as api
from ablate import deciding
from ablate.judge.verdict import Decision
from ablate.verification.bundle import write_bundle
from ablate.verification.result import Verification
from ablate.verification.verify import verify_target
from ablate.workspace import Workspace, require_registered
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_bytes
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Event
from prereg.registry.paths import Root
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
        enter(Ledger(self.root.ledger), event, body, study="own", registration=self.registration, at=at)

    @property
    def registration(self) -> str:
        return next(entry.registration for entry in Ledger(self.root.ledger).entries())

    def verified(self) -> Verification:
        return verify_target(self.study)

    def faults(self) -> str:
        return "; ".join(fault for item in self.verified().items for fault in item.faults)

    def notes(self) -> str:
        return "; ".join(item.note or item.unchecked for item in self.verified().items)

    def decided(self) -> Decision:
        return api.decide(self.study).decision

    def bundled(self, out: Path) -> Path:
        case = Workspace().open(self.study)
        told = write_bundle(case.root, require_registered(case), out, check=checked)
        assert told.check.intact
        return told.path


def checked(path: Path) -> Any:
    """The check of a bundle without drawing its reports again."""
    return verify_target(path, reports_of=lambda *_: {})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study of six short runs, made and decided."""
    path = tmp_path_factory.mktemp("derived") / "house"
    registration = OwnHouse(path).register()
    house = Decided(path)
    house.make_runs(registration, AT)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deciding, "pages", lambda *_: {})
        assert house.decided().verdict == "take fast"
    return path


@pytest.fixture
def house(whole: Path, tmp_path: Path, no_reports: None) -> Decided:
    """A copy of it, to be attacked."""
    return Decided(Path(shutil.copytree(whole, tmp_path / "house")))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.write_text("print('another trainer')\n"), "train.py: its bytes differ from those of the re"),
        (Path.unlink, "train.py: missing; the registered code had sha256 "),
    ],
)
def test_code_that_is_not_the_registered_code_gives_no_verdict_and_no_bundle_until_it_is_restored(
    house: Decided, tmp_path: Path, change: Callable[[Path], object], said: str
) -> None:
    code, verdict = (house.path / "train.py").read_bytes(), verdict_of(house)
    change(house.path / "train.py")
    assert said in house.faults()
    with pytest.raises(EvidenceError, match=said):
        house.bundled(tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()
    decision = house.decided()
    (check,) = (check for check in decision.checks if not check.passed and check.severity == "inadmissible")
    assert (
        decision.verdict is None and check.found.startswith(f"1: {said}") and "git checkout -- FILE" in check.required
    )
    (house.path / "train.py").write_bytes(code)
    assert house.decided().verdict == "take fast" and verdict_of(house) == verdict
    assert house.verified().intact, house.faults()


def test_a_lock_cannot_have_files_outside_the_root_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    for path in ("../secret", str(tmp_path / "secret")):
        (fault,) = script_faults((ScriptPin(path=path, sha256=sha256_bytes(b"x")),), tmp_path / "root")
        assert "no path inside the root" in fault


def redecide(house: Decided, data: bytes, **changes: Any) -> None:
    """Another decision, with the ledger's entries to match."""
    entry = next(e for e in reversed(Ledger(house.root.ledger).entries()) if e.event == "decided")
    (house.path / "reports" / "own" / "verdict.json").write_bytes(data)
    outcomes = {finding["hypothesis"]: finding["outcome"] for finding in json.loads(data)["findings"]}
    house.log("decided", entry.stated | {"verdict_sha256": sha256_bytes(data), "outcomes": outcomes} | changes)
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
        said = "verdict.json: verdict is inconclusive, and take fast when judged here"
        assert (said in house.faults()) == (data == lie)
    assert "verdict.json is not here, and its numbers were not compared" in house.notes()


FACTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "findings.gain.outcome is ": lambda verdict: verdict["findings"][0].update(outcome="inconclusive"),
    "checks.no run failed is missing": lambda verdict: verdict.update(
        checks=[check for check in verdict["checks"] if check["name"] != "no run failed"]
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("place", FACTS)
def test_another_fact_is_a_fault_of_this_version_and_judged_differently_of_another(
    house: Decided, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = json.loads(verdict_of(house))
    FACTS[place](facts)
    other = json.dumps(facts, indent=2).encode() + b"\n"
    redecide(house, other)
    assert f"verdict.json: {place}" in house.faults()
    assert not house.verified().judged_differently
    with pytest.raises(EvidenceError, match="does not give the decision in the ledger"):
        api.report(house.study)
    redecide(house, other, code="0" * 64)
    found = house.verified()
    assert found.intact and found.judged_differently, house.faults()
    (item,) = (item for item in found.items if item.judged_differently)
    assert item.judged_differently[0].startswith(place) and "code 00000000 decided" in item.note
    with pytest.raises(EvidenceError, match="this version judges the same evidence differently"):
        api.report(house.study)
    assert ablate(monkeypatch, "verify", house.study) == 8
    assert "judged differently by this version" in " ".join(capsys.readouterr().out.split())


def test_evidence_that_changed_is_never_a_matter_of_the_version(house: Decided) -> None:
    redecide(house, verdict_of(house), code="0" * 64, evidence="0" * 64)
    assert "the evidence has changed" in house.faults()
    assert not house.verified().judged_differently


def test_the_verdict_holds_facts_and_no_sentence(house: Decided) -> None:
    facts = json.loads(verdict_of(house))
    assert facts["format"] == 1
    assert not {"because", "title"} & facts.keys()
    for finding in facts["findings"]:
        assert not {"sentence", "notes"} & finding.keys() and "notes" not in finding["estimate"]
        assert set(finding["estimate"]["interval"]) == {"low", "high", "level", "over", "one_sided"}
    assert {tuple(check) for check in facts["checks"]} == {("name", "passed", "severity")}


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
    assert "checks.the ledger's times run forward is missing, and not when judged here" in house.faults()


def test_a_deviation_that_came_about_afterwards_is_a_note(house: Decided) -> None:
    house.log("finished", {})
    house.log("finished", {}, AT)
    assert house.verified().intact, house.faults()
    assert "the same bytes; deviations came about afterwards" in house.notes()
    api.report(house.study)


def test_a_sealed_run_that_is_gone_is_named_unless_none_is_here(house: Decided) -> None:
    place = house.run_folder("fast", 2)
    shutil.rmtree(place)
    found = house.verified()
    (fault,) = (fault for item in found.items for fault in item.faults)
    assert fault == f"{place.relative_to(house.path)} is missing, and other sealed runs are here"
    assert "what it rests on has changed" in house.notes()
    shutil.rmtree(house.path / "data" / "runs")
    found = house.verified()
    assert found.intact and not found.inadmissible, house.faults()
    states = {item.what: item for item in found.items}
    assert states["verdict judged again"].unchecked == "none of the 6 sealed runs is here"
    assert states["sealed records"].unchecked == "all of 6 sealed runs not here"
    assert all(states[what].fix for what in ("verdict judged again", "sealed records"))


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
    assert ("CHANGED" not in said) == honest, said
    assert ("status is decided, and inadmissible by entries of the ledger since then" in " ".join(said.split())) == (
        not honest
    )
