"""A ledger that is damaged, or does not hold a run, decides nothing: no entry, no file and no number comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from own_trainer import OwnHouse

import ablate as api
from ablate import deciding
from ablate.judge.decide import decide
from ablate.records.gather import gather
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.registration import load_registration


def an_edited_entry(data: bytes) -> bytes:
    return data.replace(b'"variant":"fast"', b'"variant":"slow"', 1)


def a_line_taken_out(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:2] + lines[3:])


def a_line_that_is_none(data: bytes) -> bytes:
    return data + b"{}\n"


@pytest.mark.parametrize("damage", [an_edited_entry, a_line_taken_out, a_line_that_is_none])
def test_a_damaged_ledger_decides_nothing(damage: Callable[[bytes], bytes], decided_copy: OwnHouse) -> None:
    root = Root(decided_copy.path)
    (root.report("own") / "verdict.json").unlink()
    root.ledger.write_bytes(damage(root.ledger.read_bytes()))
    before = sorted(path for path in root.path.rglob("*") if path.is_file())
    ledger = root.ledger.read_bytes()
    registration = load_registration(root, "own")
    assert registration is not None
    assert gather(root, registration).ledger_faults
    decided = api.decide(decided_copy.study)
    assert (decided.status, decided.decision.verdict, decided.decision.findings) == ("inadmissible", None, ())
    assert root.ledger.read_bytes() == ledger
    assert sorted(path for path in root.path.rglob("*") if path.is_file()) == before


def test_whatever_evidence_a_damaged_ledger_leaves_nothing_is_logged(
    decided_copy: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every run is here and bound; the fault alone stops it, though an append would find this file sound.
    root = Root(decided_copy.path)
    (root.report("own") / "verdict.json").unlink()
    ledger = root.ledger.read_bytes()

    def judged(_: Any, registration: Any) -> Any:
        evidence = replace(gather(root, registration), ledger_faults=("line 3: its content does not match its hash",))
        assert not evidence.missing
        return decide(registration, evidence), evidence

    monkeypatch.setattr(deciding, "judge_evidence", judged)
    assert api.decide(decided_copy.study).status == "inadmissible"
    assert root.ledger.read_bytes() == ledger
    assert not (root.report("own") / "verdict.json").exists()


CELL = ("fast", 2)


def test_a_run_that_the_ledger_did_not_seal_shows_no_value(decided_copy: OwnHouse) -> None:
    # Its files are whole and name their own hashes; the chain holds, and has no seal of it.
    root = Root(decided_copy.path)
    ledger = Ledger(root.ledger)
    entries = [entry for entry in ledger.entries() if getattr(entry, "cell", None) != CELL or entry.event != "sealed"]
    root.ledger.unlink()
    for entry in entries[: next(at for at, entry in enumerate(entries) if entry.event == "finished")]:
        ledger.append(entry)
    assert ledger.faults() == []
    registration = load_registration(root, "own")
    assert registration is not None
    evidence = gather(root, registration)
    assert evidence.unsealed == (CELL,) and CELL in evidence.missing
    assert evidence.withheld and evidence.metrics.empty
    assert decide(registration, evidence).findings == ()


def test_a_failed_run_is_no_broken_seal_and_no_value(decided_copy: OwnHouse) -> None:
    root = Root(decided_copy.path)
    registration = load_registration(root, "own")
    assert registration is not None
    place = root.run("own", registration.runs_sha256, *CELL) / "run.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"status": "failed", "error": "out of memory"}))
    evidence = gather(root, registration)
    assert evidence.broken == () and CELL in evidence.missing
    assert [run.error for run in evidence.runs if run.status == "failed"] == ["out of memory"]
    assert evidence.withheld and decide(registration, evidence).findings == ()
