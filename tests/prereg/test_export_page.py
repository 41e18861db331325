"""The page next to the lock: written at registration, repaired after a crash, compared by verify, never believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import House, tiny_document
from ledger_samples import enter
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from ablate.runner.options import RunOptions
from ablate.verification.result import Verification
from ablate.verification.verify import verify_target
from prereg.documents.page import keep_page
from prereg.errors import RegistrationError, StudyFileError
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root

AT = "2026-03-04T05:06:07+00:00"


def at() -> str:
    return AT


def page_of(house: House, name: str = "tiny") -> Path:
    return Root(house.path).page(name)


def item(found: Verification) -> Any:
    return next((one for one in found.items if one.what == "registration in words"), None)


def amended(house: House, path: Path) -> None:
    house.write(tiny_document(title="Another title", assume={"seconds_per_run": 1}))
    api.amend(path, reason="a better title", workspace=api.Workspace(clock=at))


def test_registering_writes_the_page_from_the_lock_and_the_ledger_alone(house: House) -> None:
    registration, entry = api.register(house.write(), workspace=api.Workspace(clock=at))
    page = page_of(house).read_bytes()
    assert entry is not None
    for proof in (registration.sha256, registration.lock_sha256, registration.source_sha256, entry.sha256):
        assert proof.encode() in page
    assert f"Ledger entry {entry.index}, of 2026-03-04 05:06 UTC".encode() in page
    page_of(house).unlink()
    assert keep_page(Root(house.path), "tiny") == page_of(house)
    assert page_of(house).read_bytes() == page
    assert b"*.registration.md -text\n" in (house.path / "studies" / ".gitattributes").read_bytes()


def test_a_study_that_is_not_registered_has_no_page(house: House) -> None:
    house.write()
    assert keep_page(Root(house.path), "tiny") is None
    assert not page_of(house).exists()


def test_what_happens_after_registration_leaves_the_page_as_it_is(house: House) -> None:
    study = house.write()
    registration, _ = api.register(study, workspace=api.Workspace(clock=at))
    before = page_of(house).read_bytes()
    for event in ("started", "finished", "decided"):
        enter(Ledger(Root(house.path).ledger), event, {}, study="tiny", registration=registration.sha256, at=AT)
    keep_page(Root(house.path), "tiny")
    assert page_of(house).read_bytes() == before
    assert item(verify_target(study)).note == "as the lock says"


def test_an_amendment_rewrites_the_page_with_what_differs_and_what_was_known(house: House) -> None:
    study = house.write()
    first, _ = api.register(study, workspace=api.Workspace(clock=at))
    amended(house, study)
    text = page_of(house).read_text()
    assert "| title | A tiny study | Another title |" in text
    assert "By then no run had been started. Reason given: a better title" in text
    assert f"amending {first.sha256[:12]}" in text.splitlines()[0]
    assert verify_target(study).intact


@pytest.mark.parametrize("verb", ["register", pytest.param("run", marks=pytest.mark.slow)])
def test_a_crash_before_the_page_is_mended_by_the_next_verb(
    house: House, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = house.write()
    api.register(study, workspace=api.Workspace(clock=at))
    earlier = page_of(house).read_bytes()
    with monkeypatch.context() as crashing:
        crashing.setattr("prereg.documents.page.write_whole", _crash)
        with pytest.raises(KeyboardInterrupt):
            amended(house, study)
    assert page_of(house).read_bytes() == earlier, "the registration has moved on, its page has not"
    assert "does not say what the lock" in item(verify_target(study)).faults[0]
    api.register(study) if verb == "register" else api.run(study, RunOptions(slots=1))
    assert b"Another title" in page_of(house).read_bytes()
    assert verify_target(study).intact


def _crash(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_page_that_cannot_be_written_is_a_message_and_the_registration_stands(house: House) -> None:
    study = house.write()
    page_of(house).mkdir()
    with pytest.raises(RegistrationError, match="is registered, and its page cannot be written"):
        api.register(study, workspace=api.Workspace(clock=at))
    page_of(house).rmdir()
    _, entry = api.register(study)
    assert entry is None and page_of(house).is_file()


def test_an_edited_page_is_a_fault_a_missing_one_a_note_and_one_of_another_version_is_not_compared(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = house.write()
    api.register(study, workspace=api.Workspace(clock=at))
    page = page_of(house).read_bytes()
    assert item(verify_target(study)).note == "as the lock says"
    page_of(house).write_bytes(page.replace(b"0.05 nats", b"0.04 nats"))
    assert item(verify_target(study)).faults and not verify_target(study).intact
    page_of(house).write_bytes(page.replace(b"\n", b"\r\n"))
    assert item(verify_target(study)).faults
    monkeypatch.setattr("prereg.documents.page.version", lambda _: "99")
    assert verify_target(study).intact
    assert item(verify_target(study)).unchecked == "written by another version"
    page_of(house).unlink()
    assert verify_target(study).intact and "not written yet" in item(verify_target(study)).unchecked


def test_an_accepted_obstacle_stands_on_the_page(house: House) -> None:
    document = tiny_document(analysis={"test": "sign_flip"}, assume={"metrics": {"val/loss": {"sd": 0.01}}})
    study = house.write(document)
    api.register(study, workspace=api.Workspace(clock=at), accept_underpowered="only a rehearsal")
    text = page_of(house).read_text()
    assert "It was registered although the design says:" in text
    assert "The reason given is: only a rehearsal." in text
    assert "only a rehearsal" in api.export(study, form="osf").text


def say(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_the_verb_prints_writes_and_names_what_is_left(house: House, tmp_path: Path) -> None:
    study, out = house.write(), tmp_path / "osf.md"
    code, said = say("plan", study, "--as", "osf")
    assert code == 0 and said.startswith("DRAFT")
    before = house.snapshot()
    code, said = say("plan", study, "--as", "osf", "--out", out)
    assert code == 0 and said.splitlines() == [
        f"wrote {out}, a DRAFT: the study is not registered",
        "left to you: Foreknowledge of the data",
        "left to you: Explanation of foreknowledge",
        "left to you: Sample size rationale",
    ]
    assert house.snapshot() == before, "export changes nothing in the house"
    code, said = say("plan", study, "--as", "osf", "--json")
    assert code == 0 and json.loads(said)["status"].startswith("DRAFT")
    code, said = say("plan", study, "--as", "markdown", "--json")
    assert {"status", "Arms", "Hypotheses", "Decision"} <= set(json.loads(said))


def test_answers_that_somebody_filled_in_are_not_written_over(house: House, tmp_path: Path) -> None:
    study, out = house.write(), tmp_path / "osf.md"
    say("plan", study, "--as", "osf", "--out", out)
    say("plan", study, "--as", "osf", "--out", out)  # the same bytes are no loss
    out.write_text(out.read_text() + "mine")
    with pytest.raises(StudyFileError, match="already"):
        say("plan", study, "--as", "osf", "--out", out)
    assert out.read_text().endswith("mine")


def test_a_study_that_changed_since_its_registration_is_not_exported(house: House) -> None:
    study = house.write()
    api.register(study, workspace=api.Workspace(clock=at))
    house.write(tiny_document(title="Another title"))
    with pytest.raises(RegistrationError, match="title"):
        api.export(study, form="osf")


def test_registering_says_where_the_page_is(house: House) -> None:
    study = house.write()
    _, said = say("register", study)
    assert str(page_of(house)) in said.replace("\n", "")
