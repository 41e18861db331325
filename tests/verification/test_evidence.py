"""Committed evidence: a clone without runs gives the verdict from what is in git, and every study's is kept."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from conftest import House
from own_trainer import OwnHouse, own_document
from test_bundle import files_of, forged
from test_cli import ablate
from test_forgeries import Decided

import ablate as api
from ablate.judge.verdict import verdict_bytes
from ablate.verification.evidence import committed_as
from ablate.verification.verify import verify_target
from ablate.workspace import utc_now
from prereg.errors import EvidenceError, SpecError
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry
from prereg.registry.paths import Root
from prereg.registry.registration import Registration
from prereg.text import moment, short
from prereg.verification import Item

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def kept(decided: House, tmp_path_factory: pytest.TempPathFactory) -> House:
    """The tiny study, decided, its evidence where it is committed."""
    made = decided.copy(tmp_path_factory.mktemp("kept") / "house")
    api.bundle(made.study, evidence=True)
    return made


@pytest.fixture
def clone(kept: House, tmp_path: Path) -> House:
    """What a clone has of it: no run, no corpus."""
    made = kept.copy(tmp_path / "clone")
    shutil.rmtree(made.path / "data")
    return made


def said(house: House) -> dict[str, Item]:
    return {item.what: item for item in verify_target(house.study).items}


def evidence_of(house: House) -> Path:
    return Root(house.path).evidence("tiny")


def test_a_clone_verifies_and_judges_from_the_committed_evidence_and_says_so(clone: House) -> None:
    before = clone.snapshot()
    assert verify_target(clone.study).intact
    items = said(clone)
    note = items["committed evidence"].note
    assert note.startswith("reports/tiny/evidence.ablate.zip holds 6 of 6 sealed runs, contents ")
    assert note.endswith("none of these is in data/runs, so they are read from there")
    assert items["sealed records"].note == "6 of 6 sealed runs hold"
    assert items["final weights"].unchecked.startswith("of 6 runs not here; only their hashes are on record")
    assert items["verdict judged again"].note == "keep none; the same bytes"
    assert clone.snapshot() == before, "nothing is left of what was unpacked"


def test_where_the_runs_are_here_the_evidence_is_compared_and_not_read(kept: House) -> None:
    items = said(kept)
    assert "so they are read from there" not in items["committed evidence"].note
    assert items["sealed records"].note == "6 of 6 sealed runs hold"
    assert not any(item.faults for item in items.values())


def test_a_clone_writes_the_same_report_and_decides_the_same(
    clone: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = clone.snapshot()
    assert ablate(monkeypatch, "report", clone.study) == 0
    assert "judged from the committed evidence" in capsys.readouterr().out
    decided = api.decide(clone.study)
    assert decided.evidence_path == evidence_of(clone)
    assert verdict_bytes(decided.decision) == before["reports/tiny/verdict.json"]
    assert clone.snapshot() == before, "the same pages, and no entry that says anything new"


@pytest.mark.slow
def test_a_bundle_made_in_a_clone_has_the_same_files_and_evidence_is_written_once(
    kept: House, clone: House, tmp_path: Path
) -> None:
    made = api.bundle(clone.study, out=tmp_path / "again.ablate.zip")
    there = files_of(evidence_of(kept))
    runs = {name: data for name, data in files_of(made.path).items() if name.startswith("data/")}
    assert runs == {name: data for name, data in there.items() if name.startswith("data/")} and len(runs) == 12
    assert not any("weights" in name for name in there)
    first = evidence_of(clone).read_bytes()
    assert api.bundle(kept.study, evidence=True).written is False
    assert evidence_of(kept).read_bytes() == first


@pytest.mark.parametrize("kind", ["run.json", "metrics.parquet"])
def test_committed_records_that_are_not_the_sealed_ones_are_found_though_the_bundle_is_sound(
    kind: str, kept: House, clone: House
) -> None:
    files = files_of(evidence_of(clone))
    name = next(name for name in files if name.endswith(f"none/2/{kind}"))
    other = files[name.replace("/2/", "/1/")]
    forged(evidence_of(clone), files | {name: other})
    found = verify_target(clone.study)
    assert not found.intact
    assert f"{name} is not what the ledger sealed" in found.model_dump_json()
    with pytest.raises(EvidenceError):
        api.report(clone.study)
    whole = kept.copy(clone.path.parent / "whole")
    shutil.copy(evidence_of(clone), evidence_of(whole))
    faults = said(whole)["committed evidence"].faults
    assert any(fault.startswith("reports/tiny/evidence.ablate.zip: ") and name in fault for fault in faults)


def test_evidence_that_lacks_a_run_or_was_damaged_is_refused(clone: House) -> None:
    files = files_of(evidence_of(clone))
    forged(evidence_of(clone), {name: data for name, data in files.items() if "/none/2/" not in name})
    assert "none/2 is missing, and other sealed runs are here" in said(clone)["sealed records"].faults[0]
    with pytest.raises(EvidenceError, match="sealed runs are not here"):
        api.bundle(clone.study, evidence=True)
    evidence_of(clone).write_bytes(evidence_of(clone).read_bytes()[:-30])
    assert "cut off" in said(clone)["committed evidence"].faults[0]
    for verb in (api.report, api.decide):
        with pytest.raises(EvidenceError, match="cut off"):
            verb(clone.study)


def test_evidence_of_another_ledger_is_refused(clone: House) -> None:
    ledger = clone.path / "studies" / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    faults = said(clone)["committed evidence"].faults
    assert faults == (
        "reports/tiny/evidence.ablate.zip: its ledger is not the beginning of the one of this repository",
    )


def test_only_a_decided_study_has_evidence_and_it_has_one_place(
    house: House, kept: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = house.write()
    api.register(study)
    with pytest.raises(EvidenceError, match="not been decided"):
        api.bundle(study, evidence=True)
    for options in ({"weights": True}, {"out": tmp_path / "x.zip"}):
        with pytest.raises(SpecError, match="--evidence with"):
            api.bundle(kept.study, evidence=True, **options)  # type: ignore[arg-type]
    assert ablate(monkeypatch, "bundle", kept.study, "--evidence") == 0
    assert f"next:  git add {evidence_of(kept).parent}" in capsys.readouterr().out
    assert ablate(monkeypatch, "report", kept.study, "--out", tmp_path) == 2


@pytest.mark.slow
def test_a_bundle_alone_gives_the_report_wherever_it_is_unpacked(
    kept: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "given" / "mine.zip"
    bundle.parent.mkdir()
    shutil.copy(evidence_of(kept), bundle)
    assert ablate(monkeypatch, "report", bundle) == 0
    assert "keep none; the same bytes" in capsys.readouterr().out
    written = bundle.parent / "tiny.report"
    assert sorted(page.name for page in written.iterdir()) == ["report.html", "report.md"]
    for page in written.iterdir():
        assert page.read_bytes() == (kept.path / "reports" / "tiny" / page.name).read_bytes()
    (written / "report.md").write_text("mine")
    assert ablate(monkeypatch, "report", bundle) == 2
    assert (written / "report.md").read_text() == "mine"
    files = files_of(bundle)
    lie = files["README.txt"].replace(b"keep none", b"adopt layernorm", 1)
    assert lie != files["README.txt"]
    capsys.readouterr()
    assert ablate(monkeypatch, "report", forged(bundle, files | {"README.txt": lie}), "--out", tmp_path / "out") == 2
    assert "README.txt: not what the other files say" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="no git is here")
def test_a_real_clone_has_what_it_needs(kept: House, tmp_path: Path) -> None:
    (kept.path / ".gitignore").write_text("data/runs/\ndata/corpora/\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(kept.path)]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "evidence"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run(["git", "clone", "-q", str(kept.path), str(tmp_path / "clone")], check=True)
    found = verify_target(tmp_path / "clone" / "studies" / "tiny.yaml")
    assert found.intact and not (tmp_path / "clone" / "data").exists()
    assert any(item.note == "keep none; the same bytes" for item in found.items)


@pytest.fixture
def own(tmp_path: Path, no_reports: None) -> Decided:
    """A decided study whose evidence is committed."""
    registration = OwnHouse(tmp_path / "house").register()
    house = Decided(tmp_path / "house")
    house.make_runs(registration, utc_now())
    api.decide(house.study)
    api.bundle(house.study, evidence=True)
    return house


def cloned(house: Decided, to: Path) -> Decided:
    return Decided(Path(shutil.copytree(house.path, to, ignore=shutil.ignore_patterns("data"))))


def found_in(house: Decided) -> dict[str, Item]:
    return {item.what: item for item in house.verified().items}


def change(house: Decided, **changes: object) -> Registration:
    """Amend the study."""
    house.study.write_text(yaml.safe_dump(own_document(**changes), sort_keys=False))
    return api.amend(house.study, reason="a reason")[0]


@pytest.mark.slow
def test_evidence_that_is_older_than_the_last_decision_is_a_fault_here_and_in_a_clone(
    own: Decided, tmp_path: Path
) -> None:
    assert own.verified().intact and cloned(own, tmp_path / "decided").verified().intact
    second = change(own, analysis={"also": ["sign_flip"]})
    assert own.verified().intact, "an amendment leaves it the evidence of the last decision"
    assert cloned(own, tmp_path / "amended").verified().intact
    assert own.decided().verdict == "take fast", "the amendment keeps the runs"
    first, entries = own.registration, Ledger(own.root.ledger).entries()
    at = next(entry.at for entry in reversed(entries) if entry.event == "decided")
    fault = (
        f"reports/own/evidence.ablate.zip was made under {short(first)} before the last decision ({moment(at)}, "
        f"registration {short(second.sha256)}), and must hold that one (ablate bundle studies/own.yaml --evidence)"
    )
    for house in (own, cloned(own, tmp_path / "clone")):
        assert found_in(house)["committed evidence"].faults == (fault,)
        assert house.faults() == fault
    assert found_in(own)["verdict judged again"].note == "take fast; the same bytes"
    assert api.bundle(own.study, evidence=True).written
    for house in (own, cloned(own, tmp_path / "again")):
        assert house.verified().intact, house.faults()
        assert found_in(house)["verdict judged again"].note == "take fast; the same bytes"


@pytest.mark.slow
def test_other_words_leave_evidence_and_verdict_as_they_are(own: Decided, tmp_path: Path) -> None:
    before = (own.path / "reports" / "own" / "verdict.json").read_bytes()
    change(own, title="A better title")
    assert own.verified().intact, own.faults()
    for house in (own, cloned(own, tmp_path / "clone")):
        assert house.decided().title == "A better title"
        assert (house.path / "reports" / "own" / "verdict.json").read_bytes() == before
        assert house.verified().intact, house.faults()
        assert found_in(house)["verdict judged again"].note == "take fast; the same bytes"


def test_a_bundle_of_another_registration_than_the_decision_s_is_no_evidence_of_it(own: Decided) -> None:
    path = own.root.evidence("own")
    forged(path, files_of(path), registration="0" * 64)
    (fault,) = found_in(own)["committed evidence"].faults
    assert fault.startswith("reports/own/evidence.ablate.zip was made under 000000000000 before the last decision (")


@cache
def committed_entries() -> tuple[Entry, ...]:
    """Return the entries of this repository's ledger as committed, without what a user decided in this clone."""
    committed = ("git", "-C", str(REPOSITORY), "show", "HEAD:studies/ledger.jsonl")
    lines = subprocess.run(committed, capture_output=True, check=True).stdout
    with TemporaryDirectory() as folder:
        path = Path(folder, "ledger.jsonl")
        path.write_bytes(lines)
        return Ledger(path).entries()


def decided_here() -> list[str]:
    """Return the studies that this repository decided and committed."""
    return sorted({entry.study for entry in committed_entries() if entry.event == "decided"})


def committed_here_as(study: str) -> str:
    """Return the name under which a study's evidence is committed: a confirmation's is its campaign's."""
    return committed_as(Root(REPOSITORY), study, committed_entries())


def test_the_evidence_of_every_decided_study_of_this_repository_is_committed() -> None:
    for study in decided_here():
        path = Root(REPOSITORY).evidence(committed_here_as(study))
        assert path.is_file(), f"ablate bundle {study} --evidence, then commit {path.name}"
        assert path.stat().st_size < 8 * 2**20, "git keeps every version of it"


@pytest.mark.slow  # a dozen seconds: all runs of all studies are hashed and judged again
@pytest.mark.parametrize("study", decided_here())
def test_the_evidence_of_a_decided_study_of_this_repository_gives_its_verdict(study: str) -> None:
    items = {item.what: item for item in verify_target(REPOSITORY / "studies" / f"{study}.yaml").items}
    # Verified alone, a study of a campaign reads its part of the campaign's bundle, which is checked with the campaign.
    assert study != committed_here_as(study) or items["committed evidence"].faults == ()
    assert items["sealed records"].faults == () and items["sealed records"].note.endswith("sealed runs hold")
    judged = items["verdict judged again"]
    assert judged.faults == () and not judged.note.startswith("not judged again"), judged
