"""Claims about `ablate amend` on disk: it says what it touches, the chain is verified, and old runs stay outside."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from conftest import House
from ledger_samples import enter
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from ablate.records.gather import gather
from ablate.runner.progress import PlainWatcher
from ablate.verification.verify import verify_target
from ablate.workspace import Workspace, require_registered
from prereg.errors import RegistrationError
from prereg.registry.canon import canonical_bytes, from_canonical, sha256_of
from prereg.registry.ledger import Ledger

GAIN = {"gain": {"claim": "layernorm lowers val/loss", "smallest": 0.02}}


def amend(path: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["amend", str(path), "--reason", "a better idea", *words], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert all(
        len(line) <= 80
        for line in done.output.splitlines()
        if "ledger head" not in line and "registration page" not in line
    ), done.output
    return done.output


def test_the_verb_says_what_changed_what_was_known_and_what_it_made_exploratory(house: House) -> None:
    path = house.write()
    first, _ = api.register(path)
    house.write(hypotheses=GAIN)
    before = amend(path)
    assert "evidence by then: none" in before and "hypotheses.gain.smallest: 0.05 -> 0.02" in before
    assert "exploratory" not in before
    enter(
        Ledger(house.path / "studies" / "ledger.jsonl"),
        "peeked",
        {},
        study="tiny",
        registration="0" * 64,
        at="2026-01-02T03:04:05+00:00",
    )
    house.write(hypotheses={"gain": GAIN["gain"] | {"smallest": 0.01}})
    refused = CliRunner().invoke(app, ["amend", str(path), "--reason", "a better idea", "--json"])
    assert isinstance(refused.exception, RegistrationError) and refused.stdout == ""
    assert "exploratory from now on" in refused.stderr.replace("\n", " ")
    after = amend(path, "--yes")
    assert "evidence by then: outcomes read" in after
    assert "exploratory from now on: gain; no verdict rests on them" in after.replace("\n", " ")
    now = require_registered(Workspace().open(path))
    assert f"registrations: {first.sha256[:8]} -> " in after and f"-> {now.sha256[:8]}" in after
    house.write(hypotheses={"gain": GAIN["gain"] | {"smallest": 0.01}}, title="Another", seeds=[1, 2, 3, 4])
    assert "stable(none) and stable(layernorm)" in amend(path, "--yes").replace("\n", " ")


@pytest.mark.slow
def test_runs_are_kept_unless_what_they_depend_on_is_changed(house: House) -> None:
    base = {"model": {"layers": 1, "width": 16, "heads": 2, "context": 16}, "data": {"corpus": "tiny"}}
    small = {"base": base | {"budget": {"steps": 3, "batch": 2}}, "seeds": [1, 2, 3], "measure": {"every": 3}}
    path = house.write(**small)
    assert api.run(path, workspace=api.Workspace(console=PlainWatcher(StringIO()))).summary.complete
    house.write(**small, title="The same study, said better", assume={"seconds_per_run": 1})
    registration, entry = api.amend(path, reason="a typo")
    assert entry.evidence == "runs started"
    assert not gather(Workspace().open(path).root, registration).missing
    decided = api.decide(path).decision
    assert decided.status in ("decided", "inconclusive") and decided.findings
    house.write(**small | {"measure": {"every": 1}}, title="The same study, said better")
    registration, entry = api.amend(path, reason="more evaluations")
    assert entry.runs_of == ""
    evidence = gather(Workspace().open(path).root, registration)
    assert evidence.runs == () and len(evidence.missing) == 6 and evidence.metrics.empty
    decided = api.decide(path).decision
    assert decided.status == "unfinished" and decided.findings == ()


@pytest.mark.parametrize("spoil", ["previous", "registered again"])
def test_verify_follows_the_chain_of_registrations(house: House, spoil: str) -> None:
    path = house.write()
    api.register(path)
    house.write(hypotheses=GAIN)
    amend(path)
    assert verify_target(path).intact
    # A ledger written anew as a whole has sound hashes; the chain of registrations still has to hold.
    ledger = house.path / "studies" / "ledger.jsonl"
    entries = [dict(from_canonical(line)) for line in ledger.read_bytes().splitlines()]
    lock = house.path / "studies" / "tiny.lock.json"
    if spoil == "previous":
        entries[1]["body"]["previous"] = "d" * 64
        lock.write_text(json.dumps(json.loads(lock.read_text()) | {"previous": "d" * 64}))
        from prereg.registry.canon import sha256_bytes

        entries[1]["body"]["lock_sha256"] = sha256_bytes(lock.read_bytes())
        entries[1]["sha256"] = sha256_of({key: value for key, value in entries[1].items() if key != "sha256"})
        ledger.write_bytes(b"".join(canonical_bytes(entry) + b"\n" for entry in entries))
        wanted = "amends dddddddd, and the registration before it, entry 0, is"
    else:
        enter(Ledger(ledger), "registered", {}, study="tiny", registration="1" * 64, at=entries[1]["at"])
        wanted = "entry 2 registers what entry 1 had registered already"
    faults = [fault for item in verify_target(path).items for fault in item.faults]
    assert any(wanted in fault for fault in faults), faults
