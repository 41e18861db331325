"""A claim that is registered again until it wins: every place that shows its verdict names the studies before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from own_trainer import OwnHouse, own_document
from test_cli import ablate

import ablate as api
from ablate import deciding
from ablate.cli.options import Exit
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import DecidedEntry
from prereg.registry.paths import Root

LINE = "Claimed before in this repository: 1 study (own: supported)."


def entry_of(house: OwnHouse, study: str) -> DecidedEntry:
    entries = Ledger(Root(house.path).ledger).entries()
    return [entry for entry in entries if isinstance(entry, DecidedEntry) and entry.study == study][-1]


def again(house: OwnHouse) -> Path:
    """A second study of the same claim on other seeds, run."""
    path = house.write(study="again", seeds=[4, 5, 6], variants={"slow": {}, "fast": {"lr": 0.4 * 1.000006}})
    house.make_runs(house.register(own_document(study="again", seeds=[4, 5, 6],
                                                variants={"slow": {}, "fast": {"lr": 0.4 * 1.000006}})))  # fmt: skip
    return path


@pytest.mark.slow
def test_every_place_names_the_studies_before(
    decided_copy: OwnHouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(decided_copy.path)

    def said(*words: Any) -> str:
        assert ablate(monkeypatch, *words) in (Exit.OK, Exit.DEVIATIONS)
        return " ".join(capsys.readouterr().out.split())

    assert LINE not in said("verify", "own")
    path = again(decided_copy)
    decided_before = len(Ledger(Root(decided_copy.path).ledger).entries())
    assert LINE in said("decide", path)
    assert entry_of(decided_copy, "again").outcomes == {"gain": "supported"}
    assert LINE in (decided_copy.path / "reports/again/report.md").read_text(encoding="utf-8")
    assert LINE in said("verify", "again") and LINE in said("verify")
    # Decided again, nothing new is logged, and an entry from before there was such a line stays the decision.
    n_entries = len(Ledger(Root(decided_copy.path).ledger).entries())
    assert n_entries > decided_before
    assert LINE in said("decide", path)
    assert len(Ledger(Root(decided_copy.path).ledger).entries()) == n_entries
    # A bundle holds neither lock nor entries of the other study.
    said("bundle", path)
    assert LINE in said("verify", "again.ablate.zip")
    assert LINE in str(api.results("again.ablate.zip"))
    # A third one is told when it is registered, by `run` as by `register`.
    third = decided_copy.write(study="third", seeds=[7, 8, 9])
    two = "Claimed before in this repository: 2 studies (own: supported, again: supported)."
    assert two in said("run", third, "--jobs", "1")
    fourth = decided_copy.write(study="fourth", seeds=[10, 11, 12])
    assert two.replace("2 studies", "3 studies").replace("d).", "d, third: never decided).") in said("register", fourth)


@pytest.mark.slow
@pytest.mark.usefixtures("no_reports")
@pytest.mark.parametrize(
    ("lie", "fault"),
    [
        (lambda fields: fields.pop("claimed_before"), "the decision names 0 earlier studies of the same claim"),
        (
            lambda fields: fields.update(claimed_before=fields["claimed_before"].model_copy(update={"n": 3})),
            "the decision names 3 earlier studies of the same claim",
        ),
        (lambda fields: fields["outcomes"].update(gain="refuted"), "the ledger has 'gain' as 'refuted'"),
    ],
)
def test_a_decision_that_hides_them_is_found(
    lie: Any, fault: str, decided_copy: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, honest = again(decided_copy), deciding.claims_in_entry

    def lying(*arguments: Any) -> dict[str, Any]:
        fields = honest(*arguments)
        lie(fields)
        return fields

    monkeypatch.setattr(deciding, "claims_in_entry", lying)
    api.decide(path)
    faults = [fault for item in api.verify(path).items for fault in item.faults]
    assert len(faults) == 1 and fault in faults[0]


@pytest.mark.slow
@pytest.mark.usefixtures("no_reports")
def test_a_decision_of_another_version_may_name_others(decided_copy: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    # An entry of an earlier version has neither outcomes nor a line: `verify` says what it finds, and that is no fault.
    path = again(decided_copy)
    monkeypatch.setattr(deciding, "claims_in_entry", lambda *arguments: {})
    api.decide(path)
    checked = api.verify(path)
    assert checked.intact
    claims = checked.studies[0].claimed_before
    assert claims is not None and f"{claims.words}." == LINE
