"""A ledger that is damaged decides nothing: no entry, no file and no number comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from own_trainer import OwnHouse

import ablate as api
from ablate import deciding
from ablate.judge.decide import decide
from ablate.records.gather import gather
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
