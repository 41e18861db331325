"""Claims about runs that another study of the ledger has sealed: refused at registration, or no verdict."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from histories import History, decide_honestly, document, honest, in_this_process, register_another
from ledger_samples import enter
from own_trainer import OwnHouse
from typer.testing import CliRunner

from ablate.cli import app
from ablate.records.gather import repeated_elsewhere
from prereg.errors import RegistrationError
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import RunStartedEntry, SealEntry
from prereg.registry.plan import recipes_of, sealed_elsewhere
from prereg.registry.register import register_study
from prereg.registry.registration import Pins
from prereg.study.command import pin_scripts
from prereg.study.load import load_study

__all__ = ["in_this_process"]

pytestmark = pytest.mark.usefixtures("in_this_process")

ELSEWHERE = "no run repeats one of another study"
CLAIM = {"gain": {"claim": "fast lowers val/loss", "smallest": 0.01}}


@pytest.fixture
def history(tmp_path: Path) -> History:
    found = honest(tmp_path / "house", Random(11))  # noqa: S311
    decide_honestly(found)
    return found


def write(history: History, name: str, **changes: Any) -> Path:
    seeds = {"seeds": list(history.registration.study.seeds)}
    return history.house.write(study=name, **document(Random(1), looks=False) | seeds | changes)  # noqa: S311


def register_as_it_is(history: History, path: Path) -> None:
    loaded = load_study(path)
    pins = Pins(scripts=pin_scripts(history.root, loaded.study))
    made = register_study(history.root, loaded, pins=pins, design=None, tool={}, at=history.now())
    history.registration, history.study = made[0], path


def test_registration_refuses_what_another_study_has_sealed_and_changes_nothing(history: History) -> None:
    path = write(history, "other", hypotheses=CLAIM)
    before = history.house.snapshot()
    with pytest.raises(RegistrationError) as refused:
        register_as_it_is(history, path)
    assert history.house.snapshot() == before
    error, n = refused.value, len(history.registration.study.cells)
    assert f"'own' has sealed {n} runs of this study, the first " in error.found and "(entry " in error.found
    assert error.fix == f"seeds: fresh {len(history.registration.study.seeds)}"
    assert error.where.line is not None
    history.root.lock("own").unlink()  # the ledger alone knows
    with pytest.raises(RegistrationError):
        register_as_it_is(history, path)


def test_check_says_so_beforehand_and_names_the_way_out(history: History) -> None:
    path = write(history, "other", hypotheses=CLAIM)
    said = " ".join(CliRunner().invoke(app, ["check", str(path)]).output.split())
    n = len(history.registration.study.seeds)
    assert f"registration is refused: write seeds: fresh {n}" in said


def test_other_seeds_or_another_configuration_are_new_runs(history: History) -> None:
    register_as_it_is(history, write(history, "seeded", seeds=[21, 22, 23]))
    register_as_it_is(
        history, write(history, "configured", base={"lr": 0.15, "steps": 4}, variants={"slow": {}, "fast": {"lr": 0.3}})
    )


@pytest.mark.slow
def test_the_study_that_sealed_first_keeps_its_verdict(history: History) -> None:
    first = history.decide().decision
    own, registration = history.study, history.registration
    register_another(history, hypotheses=CLAIM)
    history.run()
    history.decide()
    history.study, history.registration = own, registration
    assert history.decide().decision == first


@pytest.mark.slow
def test_runs_that_both_registered_before_either_sealed_are_a_remark(tmp_path: Path) -> None:
    history = History(tmp_path / "house", Random(2))  # noqa: S311
    own = history.study
    register_as_it_is(history, write(history, "other", hypotheses=CLAIM))
    other, history.study = history.study, own
    history.run()
    history.study = other
    history.run()
    assert history.failed_checks(history.decide())[ELSEWHERE].severity == "note"


def test_every_start_and_seal_says_what_the_run_is_made_of(history: History) -> None:
    wanted = recipes_of(history.registration)
    for entry in history.ledger.entries():
        if isinstance(entry, SealEntry | RunStartedEntry):
            assert entry.recipe_sha256 == wanted[str(entry.variant), int(str(entry.seed))]
    assert sealed_elsewhere(history.ledger.entries(), history.registration) == {}


def test_a_sealed_folder_that_the_ledger_never_started_is_named(tmp_path: Path) -> None:
    history = History(tmp_path / "house", Random(5))  # noqa: S311
    history.run()
    lines = history.root.ledger.read_bytes().splitlines(keepends=True)
    last = [at for at, line in enumerate(lines) if b'"event":"started"' in line][-1]
    history.root.ledger.write_bytes(b"".join(lines[:last]))
    history.run()
    (named,) = [check for name, check in history.failed_checks(history.decide()).items() if "put on record" in name]
    assert named.severity == "deviation" and "1 without a logged start" in named.found


def test_of_another_study_every_look_before_the_registration_is_evidence(own_house: OwnHouse) -> None:
    ledger = Ledger(own_house.path / "studies" / "ledger.jsonl")
    other = own_house.register(study="other", seeds=[4, 5, 6])
    same = {"variant": "slow", "outcome_sha256": "e" * 64}
    before = [
        enter(ledger, event, body, study="other", registration=other.sha256)
        for event, body in (("sealed", {**same, "seed": 4}), ("looked", {}), ("peeked", {}), ("decided", {}))
    ]
    registration = own_house.register()
    enter(ledger, "peeked", {}, study="other", registration=other.sha256)  # this one was not known then
    enter(ledger, "decided", {}, study="third", registration="0" * 64)
    enter(ledger, "sealed", {**same, "seed": 1}, study="own", registration=registration.sha256)
    assert repeated_elsewhere(ledger.entries(), registration) == tuple(before)
