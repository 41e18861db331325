"""A hopeless study is refused with witness and advice; going on all the same stands in lock, ledger and report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import House
from evidence_factory import make_evidence, make_registration, small_study

import ablate as api
from ablate.judge.decide import decide
from ablate.reporting.document import banner_of
from prereg.errors import RegistrationError, UndecidableDesignError
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.registration import Override, load_registration

HOPELESS = {"seeds": [1, 2, 3, 4, 5], "analysis": {"test": "sign_flip"}}
REASON = "a demonstration of the refusal"


def hopeless(house: House) -> Path:
    return house.write(**HOPELESS)


def test_a_hopeless_study_is_refused_and_nothing_is_written(house: House) -> None:
    path = hopeless(house)
    before = house.snapshot()
    with pytest.raises(UndecidableDesignError) as raised:
        api.register(path, workspace=api.Workspace(house.path))
    text = raised.value.text()
    assert "the smallest p that sign-flip gives with 5 seeds is 0.0625" in text  # the witness
    assert "'adopt layernorm' can never be the verdict" in text
    assert "give 6 seeds, or test: paired_t" in text and "--accept-underpowered" in text  # the advice
    assert "tiny.yaml" in text
    assert house.snapshot() == before


def test_an_override_stands_in_the_lock_and_in_the_ledger(house: House) -> None:
    path = hopeless(house)
    registration, entry = api.register(path, workspace=api.Workspace(house.path), accept_underpowered=f" {REASON} ")
    assert entry is not None and registration.override is not None
    assert registration.override.reason == REASON and "0.0625" in registration.override.obstacle
    assert entry.body["override"] == {"obstacle": registration.override.obstacle, "reason": REASON}
    lock = json.loads((house.path / "studies" / "tiny.lock.json").read_text())
    assert lock["override"]["reason"] == REASON
    found = load_registration(Root.find(path, house.path), "tiny")
    assert found is not None and found.override == registration.override


def test_an_override_without_a_reason_is_none(house: House) -> None:
    with pytest.raises(UndecidableDesignError):
        api.register(hopeless(house), workspace=api.Workspace(house.path), accept_underpowered="  ")


def test_there_must_be_something_to_accept(house: House) -> None:
    with pytest.raises(RegistrationError, match="nothing to accept"):
        api.register(house.write(), workspace=api.Workspace(house.path), accept_underpowered=REASON)


def test_a_study_that_needs_no_override_has_none_in_its_lock(house: House) -> None:
    registration, _ = api.register(house.write(), workspace=api.Workspace(house.path))
    assert registration.override is None
    assert json.loads((house.path / "studies" / "tiny.lock.json").read_text())["override"] is None
    assert all("override" not in entry.body for entry in Ledger(Root.find(Path(), house.path).ledger).entries())


def test_an_amendment_can_be_accepted_too(house: House) -> None:
    api.register(house.write(), workspace=api.Workspace(house.path))
    with pytest.raises(UndecidableDesignError):
        api.amend(hopeless(house), reason="an exact test", workspace=api.Workspace(house.path))
    _, entry = api.amend(
        hopeless(house), reason="an exact test", workspace=api.Workspace(house.path), accept_underpowered=REASON
    )
    assert entry.body["override"]["reason"] == REASON  # type: ignore[index, call-overload]


def test_the_report_says_it_in_its_first_lines() -> None:
    study = small_study(analysis={"test": "sign_flip"})
    registration, evidence = make_evidence(study)
    assert registration == make_registration(study)
    quiet = decide(registration, evidence)
    overridden = registration.model_copy(
        update={"override": Override(obstacle="'gain_ln' can never be supported", reason=REASON)}
    )
    decision = decide(overridden, evidence)
    first = banner_of(decision, overridden).failed[0]
    assert "'gain_ln' can never be supported" in first and REASON in first
    assert decision.status == quiet.status and not any("reach every" in check.name for check in quiet.checks)
