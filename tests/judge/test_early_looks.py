"""Claims about looking early: the entry comes before the numbers, nothing is tested, and the look counts."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from conftest import House, tiny_document
from evidence_factory import make_evidence, one_claim
from ledger_samples import enter
from quiet import QUIET
from test_cli import ablate as run_verb

import ablate as api
from ablate.judge.interim import early_look
from ablate.records.gather import gather, open_tables
from ablate.workspace import Workspace, require_registered
from prereg.errors import EvidenceError
from prereg.registry.ledger import Ledger

REASON = "one arm looks broken"


class Verb:
    """A verb run in this process: exit code, what it said, what it complained of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *words: str | Path) -> tuple[int, str, str]:
        self.capsys.readouterr()
        code = run_verb(self.monkeypatch, *words)
        return (code, *self.capsys.readouterr())


@pytest.fixture
def ablate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    return Verb(monkeypatch, capsys)


@pytest.fixture
def unfinished(trained: House, tmp_path: Path) -> Path:
    """The same study as it was before one arm's last run: its folder and every entry from its seal on are gone."""
    copy = tmp_path / "house"
    shutil.copytree(trained.path, copy)
    (missing,) = copy.glob("data/runs/tiny/*/none/3")
    shutil.rmtree(missing)
    path = copy / "studies" / "ledger.jsonl"
    entries = Ledger(path).entries()
    ended = [one.index for one in entries if one.event == "sealed"]
    seals = {(entries[at].variant, entries[at].seed): at for at in ended}
    mine = seals["none", 3]
    for later in ended[ended.index(mine) + 1 :]:  # two runs end side by side, in either order
        arm, seed = entries[later].cell
        shutil.rmtree(next(copy.glob(f"data/runs/tiny/*/{arm}/{seed}")))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:mine]))
    return copy / "studies" / "tiny.yaml"


def ledger(study: Path) -> Ledger:
    return Ledger(study.parent / "ledger.jsonl")


@pytest.mark.slow
def test_a_look_is_logged_before_it_is_shown_and_spoils_the_verdict(ablate: Verb, unfinished: Path) -> None:
    before = len(ledger(unfinished).entries())
    code, said, error = ablate("status", unfinished, "--results", "--reason", REASON)
    assert code == 0, error
    entry = ledger(unfinished).entries()[-1]
    assert (entry.event, entry.index, entry.reason) == ("peeked", before, REASON)
    assert (entry.ended, entry.planned) == (5, 6)
    assert f"this look is entry {before} of the ledger" in said
    assert f"ledger head {entry.sha256}" in said
    assert "5 of 6 planned runs ended" in said and "Description only" in said
    assert "p =" not in said and "interval" not in said
    assert "holds 1 early look at its numbers" in ablate("status", unfinished)[1]
    api.run(unfinished, workspace=api.Workspace(console=QUIET))
    decided = api.decide(unfinished).decision
    assert decided.status == "inadmissible" and decided.verdict is None
    assert "no look before the last run ended" in decided.because


def test_what_cannot_be_logged_is_not_shown(unfinished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise EvidenceError("the disk is full")

    monkeypatch.setattr(Ledger, "append", full)
    monkeypatch.setattr("ablate.judge.interim.early_look", None)
    with pytest.raises(EvidenceError, match="the disk is full"):
        api.early_results(unfinished, reason=REASON)


def test_the_numbers_are_the_paired_differences_of_the_runs_that_ended(unfinished: Path) -> None:
    peeked = api.early_results(unfinished, reason=REASON)
    case = Workspace().open(unfinished)
    found = gather(case.root, require_registered(case))
    final = open_tables(case.root, found, look=peeked.entry).final("val/loss")
    (claim,) = peeked.early_look.claims
    differences = [final["layernorm", seed] - final["none", seed] for seed in (1, 2)]
    assert claim.n == 2
    assert claim.difference == pytest.approx(sum(differences) / 2, rel=1e-12)
    assert claim.sd == pytest.approx(abs(differences[0] - differences[1]) / 2**0.5, rel=1e-9)
    assert {arm.arm: arm.n for arm in claim.arms} == {"layernorm": 3, "none": 2}


def test_one_pair_is_shown_and_a_claim_without_pairs_says_so() -> None:
    study = one_claim(seeds=3)
    last = tuple((arm, seed) for seed in study.seeds[1:] for arm in study.arms)
    (claim,) = early_look(*make_evidence(study, left_out=last)).claims
    assert (claim.n, claim.sd) == (1, None) and claim.difference is not None
    none = tuple(("layernorm", seed) for seed in study.seeds)
    (claim,) = early_look(*make_evidence(study, left_out=none)).claims
    assert claim.difference is None and "0 complete pair(s)" in claim.note


def test_a_reason_alone_shows_nothing_and_two_ways_to_look_are_refused(ablate: Verb, unfinished: Path) -> None:
    for words in (("--reason", REASON), ("--results", "--watch", "--reason", REASON)):
        before = ledger(unfinished).head()
        code, said, error = ablate("status", unfinished, *words)
        assert (code, said) == (2, "") and "one look with its reason" in error
        assert ledger(unfinished).head() == before


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_look_needs_a_reason(ablate: Verb, unfinished: Path, reason: str) -> None:
    before = ledger(unfinished).head()
    code, said, error = ablate("status", unfinished, "--results", "--reason", reason)
    assert (code, said) == (2, "") and "a look without a reason" in error
    assert ledger(unfinished).head() == before


def test_nothing_is_logged_where_there_is_nothing_to_look_at(ablate: Verb, trained: House, house: House) -> None:
    study = trained.path / "studies" / "tiny.yaml"
    for path, found, fix in (
        (study, "every planned run has ended", "ablate decide"),
        (house.write(), "none of the 6 planned runs", "ablate status"),
    ):
        if path != study:
            api.register(path, workspace=api.Workspace(house.path))
        before = ledger(path).head()
        code, said, error = ablate("status", path, "--results", "--reason", REASON)
        assert (code, said) == (2, ""), said
        assert found in error and fix in error
        assert ledger(path).head() == before


@pytest.mark.slow
def test_a_due_look_of_a_sequential_study_is_not_looked_at_early(trained: House, tmp_path: Path) -> None:
    made = House(tmp_path / "house")
    study = made.write(tiny_document(seeds=[1, 2, 3, 4], stopping={"looks": [3, 4]}))
    api.run(study, workspace=api.Workspace(made.path, console=QUIET))
    with pytest.raises(EvidenceError, match=r"look 1 of 2.* is due"):
        api.early_results(study, reason=REASON)


def test_records_that_changed_are_refused_and_not_logged(ablate: Verb, unfinished: Path) -> None:
    root = unfinished.parents[1]
    sealed = next(root.glob("data/runs/tiny/*/none/1/metrics.parquet"))
    data = bytearray(sealed.read_bytes())
    data[len(data) // 2] ^= 1
    sealed.write_bytes(bytes(data))
    before = ledger(unfinished).head()
    code, said, error = ablate("status", unfinished, "--results", "--reason", REASON)
    assert (code, said) == (2, "") and "ablate verify" in error
    assert ledger(unfinished).head() == before


def test_as_json_it_holds_the_same_and_the_entry(ablate: Verb, unfinished: Path) -> None:
    code, said, _ = ablate("status", unfinished, "--results", "--reason", REASON, "--json")
    seen = json.loads(said)
    assert code == 0 and seen["head"] == ledger(unfinished).head()
    assert seen["claims"][0]["n"] == 2


def test_values_of_an_unfinished_study_are_not_read_without_an_entry(unfinished: Path) -> None:
    case = Workspace().open(unfinished)
    found = gather(case.root, require_registered(case))
    assert found.withheld and found.metrics.empty and found.items is None
    for read in (found.curve, found.final):
        with pytest.raises(EvidenceError, match="values of val/loss while 1 of 6"):
            read("val/loss")
    said = api.decide(unfinished).decision
    assert not said.findings and not any("claimed metric" in check.name for check in said.checks)
    entry = api.early_results(unfinished, reason=REASON).entry
    fields = {"study": entry.study, "registration": entry.registration, "at": entry.at}
    of_other_evidence = enter(ledger(unfinished), "peeked", {"evidence": "0" * 64}, **fields)
    for other in (entry.model_copy(update={"at": entry.at + "0"}), of_other_evidence):
        with pytest.raises(EvidenceError, match="the ledger does not hold"):
            open_tables(case.root, found, look=other)
    assert set(open_tables(case.root, found, look=entry).curve("val/loss")["seed"]) == {1, 2, 3}


@pytest.mark.slow
def test_at_a_look_of_a_sequence_the_values_of_later_seeds_are_not_read(tmp_path: Path) -> None:
    made = House(tmp_path / "house")
    study = made.write(tiny_document(seeds=[1, 2, 3, 4], stopping={"looks": [3, 4]}))
    api.run(study, workspace=api.Workspace(made.path, console=QUIET))
    case = Workspace().open(study)
    registration = require_registered(case)
    found = gather(case.root, registration)
    assert not found.withheld and set(found.metrics["seed"]) == {1, 2, 3}
    last = next(made.path.glob("data/runs/tiny/*/none/3"))
    shutil.move(last, tmp_path / "away")
    assert gather(case.root, registration).withheld


def moment_of(study: Path, event: str, *, last: bool = False) -> datetime:
    entries = [entry for entry in ledger(study).entries() if entry.event == event]
    return datetime.fromisoformat(entries[-1 if last else 0].at)


@pytest.mark.slow
def test_a_look_recorded_afterwards_takes_the_verdict_away(ablate: Verb, trained: House, tmp_path: Path) -> None:
    study = Path(shutil.copytree(trained.path, tmp_path / "house")) / "studies" / "tiny.yaml"
    first = api.decide(study).decision
    assert first.status != "inadmissible"
    when = moment_of(study, "sealed").isoformat()
    code, said, error = ablate("status", study, "--reason", REASON, "--past", when)
    assert code == 0, error
    entry = ledger(study).entries()[-1]
    assert (entry.event, entry.took_place, entry.planned) == ("peeked", when, 6)
    assert 1 <= int(str(entry.ended)) <= 6 and f"this look is entry {entry.index}" in said
    assert "by the registered rules there is no verdict" in " ".join(ablate("status", study)[1].split())
    assert "recorded afterwards" in " ".join(ablate("ledger", study)[1].split())
    with pytest.raises(EvidenceError, match="does not give the decision"):
        api.report(study)
    again = api.decide(study).decision
    assert again.status == "inadmissible" and again.verdict is None
    (failed,) = [check for check in again.checks if check.name == "no look before the last run ended"]
    assert f"entry {entry.index}, recorded afterwards: the look took place at {when}" in failed.found
    page = (study.parents[1] / "reports" / "tiny" / "report.md").read_text()
    assert f"entry {entry.index} (peeked" in page and "recorded afterwards" in page


def test_only_an_early_look_can_be_recorded_afterwards(trained: House, tmp_path: Path) -> None:
    study = Path(shutil.copytree(trained.path, tmp_path / "house")) / "studies" / "tiny.yaml"
    begun, ended = moment_of(study, "started"), moment_of(study, "sealed", last=True)
    minute = timedelta(seconds=60)
    for when, now, found in (
        (begun - minute, ended + minute, "the first run was started at"),
        (ended + 2 * minute, ended + minute, "it is 20"),
        (ended + minute, ended + 2 * minute, "the last run ended"),
    ):
        with pytest.raises(EvidenceError, match=found):
            api.record_look(
                study, reason=REASON, took_place=when.isoformat(), workspace=api.Workspace(clock=now.isoformat)
            )
    assert api.record_look(study, reason=REASON, took_place=ended.isoformat()).ended == 6


def test_a_look_recorded_afterwards_needs_a_reason_a_time_with_its_offset_and_a_run(
    ablate: Verb, trained: House, house: House
) -> None:
    study = trained.path / "studies" / "tiny.yaml"
    before = ledger(study).head()
    for text in ("yesterday", "2026-11-22T00:31:20"):
        code, said, error = ablate("status", study, "--reason", REASON, "--past", text)
        assert (code, said) == (2, "") and "offset from UTC" in error
    code, said, error = ablate("status", study, "--reason", " ", "--past", "2026-11-22T00:31:20Z")
    assert (code, said) == (2, "") and "a look without a reason" in error
    assert ledger(study).head() == before
    unbegun = house.write()
    api.register(unbegun, workspace=api.Workspace(house.path))
    with pytest.raises(EvidenceError, match="no run has been started"):
        api.record_look(unbegun, reason=REASON, took_place="2026-01-01T00:00:00Z")
