"""Another title or question of a registered study: runs, verdict and seals stay, and nothing else slips in."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ledger_samples import enter
from own_trainer import AT, OwnHouse, own_document
from quiet import QUIET
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from ablate.judge.verdict import verdict_bytes
from ablate.study_status import status
from prereg.errors import RegistrationError
from prereg.registry.ledger import Ledger


@pytest.fixture
def own_house(decided_copy: OwnHouse) -> OwnHouse:
    return decided_copy


@pytest.fixture
def path(decided_copy: OwnHouse) -> Path:
    """A decided study."""
    return decided_copy.study


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(yaml.safe_dump(own_document(**changes), sort_keys=False))


def verified(path: Path) -> int:
    return CliRunner().invoke(app, ["verify", str(path)]).exit_code


@pytest.mark.slow
def test_a_decided_study_keeps_runs_and_verdict_under_another_title(own_house: OwnHouse, path: Path) -> None:
    before = (own_house.path / "reports/own/verdict.json").read_bytes()
    lock = (own_house.path / "studies/own.lock.json").read_bytes()
    rewrite(path, title="A better title", question="Does it?")
    with pytest.raises(RegistrationError, match="is not what was registered"):
        api.decide(path)
    said = CliRunner().invoke(app, ["amend", str(path), "--reason", "a typing error", "--dry-run"])
    assert said.exit_code == 0 and "runs and verdict are kept" in said.output
    assert len(Ledger(own_house.path / "studies/ledger.jsonl").entries()) == before_entries(own_house)
    said = CliRunner().invoke(app, ["amend", str(path), "--reason", "a typing error"])
    assert said.exit_code == 0, said.output
    entry = Ledger(own_house.path / "studies/ledger.jsonl").entries()[-1]
    assert entry.event == "reworded" and entry.words == {"title": "A better title", "question": "Does it?"}
    assert (own_house.path / "studies/own.lock.json").read_bytes() == lock
    assert verified(path) == 0
    assert api.run(path, workspace=api.Workspace(console=QUIET)).summary.complete
    after = api.decide(path).decision
    assert after.title == "A better title"
    assert verdict_bytes(after) == before
    report = (own_house.path / "reports/own/report.md").read_text()
    assert "A better title" in report and "a typing error" in report and "A trainer of one" in report
    assert verified(path) == 0
    assert status(path).title == "A better title"


def before_entries(house: OwnHouse) -> int:
    return sum(1 for _ in (house.path / "studies/ledger.jsonl").read_text().splitlines())


@pytest.mark.slow
def test_words_can_be_changed_again_and_back(own_house: OwnHouse, path: Path) -> None:
    for title in ("Second", "Third", "Second", own_document()["title"]):
        rewrite(path, title=title)
        api.amend(path, reason=f"now {title}")
        assert api.decide(path).decision.title == title
        with pytest.raises(RegistrationError, match="nothing differs"):
            api.amend(path, reason="again")
    assert sum(entry.event == "reworded" for entry in Ledger(own_house.path / "studies/ledger.jsonl").entries()) == 4


def test_a_real_amendment_after_words_is_one_and_the_other_way_round(own_house: OwnHouse, path: Path) -> None:
    rewrite(path, title="Second")
    first, _ = api.amend(path, reason="words")
    hypotheses = {"gain": {"claim": "fast lowers val/loss", "smallest": 0.08}}
    rewrite(path, title="Third", hypotheses=hypotheses)
    second, entry = api.amend(path, reason="another margin")
    assert entry.event == "amended" and second.previous == first.sha256 and second.study.title == "Third"
    assert entry.evidence == "outcomes read"
    rewrite(path, title="Fourth", hypotheses=hypotheses)
    third, entry = api.amend(path, reason="words")
    assert entry.event == "reworded" and third.sha256 == second.sha256
    assert verified(path) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"hypotheses": {"gain": {"claim": "fast lowers val/loss", "smallest": 0.01}}},
        {"seeds": [1, 2]},
        {"decision": [{"verdict": "take fast"}]},
    ],
    ids=["margin", "seeds", "rule"],
)
def test_an_entry_that_vouches_for_more_than_words_vouches_for_nothing(
    own_house: OwnHouse, path: Path, change: dict[str, object]
) -> None:
    """A hostile entry names the bytes of a changed study as mere other words."""
    from prereg.registry.canon import sha256_bytes

    rewrite(path, title="Second", **change)
    ledger = Ledger(own_house.path / "studies/ledger.jsonl")
    registered = next(entry for entry in ledger.entries() if entry.event == "registered")
    enter(
        ledger,
        "reworded",
        {
            "words": {"title": "Second"},
            "reason": "words",
            "source_sha256": sha256_bytes(path.read_bytes()),
        },
        study="own",
        registration=registered.registration,
        at=AT,
    )
    with pytest.raises(RegistrationError, match="is not what was registered"):
        api.decide(path)
    assert verified(path) != 0
    rewrite(path)  # the study as it was registered still stands, in the words of the entry
    assert api.decide(path).decision.verdict == "take fast"


def test_words_without_a_reason_are_refused(own_house: OwnHouse, path: Path) -> None:
    rewrite(path, title="Second")
    before = own_house.snapshot()
    with pytest.raises(RegistrationError, match="without a reason"):
        api.amend(path, reason="  ")
    assert own_house.snapshot() == before
