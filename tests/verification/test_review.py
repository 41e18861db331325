"""What a sceptical reviewer tried: each attack or accident, and what must come of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import House
from gpt_runs import KilledError, carry_out

import ablate as api
from ablate import cli
from ablate.records.store import RunFolder
from prereg.errors import CorpusError
from prereg.registry.canon import sha256_bytes
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import CutBack
from prereg.registry.plan import RunSpec, plan


def ablate(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["ablate", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def first_run(house: House) -> tuple[RunSpec, RunFolder]:
    registration, _ = api.register(house.write())
    return plan(registration)[0], RunFolder(house.path / "run")


@pytest.fixture
def copy(trained: House, tmp_path: Path) -> Path:
    """A copy of it, to be spoiled."""
    return Path(shutil.copytree(trained.path, tmp_path / "copy"))


@pytest.mark.slow
@pytest.mark.parametrize("asked", [0, 1, 13, 29])
def test_a_stop_at_any_step_the_zeroth_too_leads_to_the_same_bits(house: House, asked: int) -> None:
    spec, folder = first_run(house)
    carry_out(house.path, folder.path, spec)
    whole = folder.read_record()
    other = RunFolder(house.path / "other")
    assert carry_out(house.path, other.path, spec, stop_at=asked).event == "stopped"
    assert carry_out(house.path, other.path, spec).status == "done"
    again = other.read_record()
    assert whole is not None
    assert again is not None
    assert again.outcome_sha256 == whole.outcome_sha256
    assert again.must_match == whole.must_match
    assert again.resumed_from == (asked,)


def test_a_run_whose_live_rows_have_a_hole_is_started_over_and_sealed_whole(house: House) -> None:
    spec, folder = first_run(house)
    with pytest.raises(KilledError):
        carry_out(house.path, folder.path, spec, kill_at=15, checkpoint_every_s=0.0)
    live = folder.path / "work" / "metrics.jsonl"
    lines = live.read_text().splitlines(keepends=True)
    live.write_text("".join(lines[:3]))
    assert carry_out(house.path, folder.path, spec).status == "done"
    record = folder.read_record()
    assert record is not None and record.resumed_from == ()
    assert [mishap.partition(":")[0] for mishap in record.mishaps] == ["attempt 2 started over"]
    steps = [row.step for row in folder.sealed_rows() if row.metric == "train/loss"]
    assert steps == list(range(1, record.steps + 1))


def test_the_torso_of_an_entry_hinders_neither_decide_nor_run(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, ledger = copy / "studies" / "tiny.yaml", copy / "studies" / "ledger.jsonl"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole + b'{"at":"2026')
    assert ablate(monkeypatch, "verify", study) == 4
    assert ablate(monkeypatch, "decide", study) in (0, 3)
    assert Ledger(ledger).faults() == []
    assert Ledger(ledger).entries()[-2].cut_back == CutBack(bytes=11, sha256=sha256_bytes(b'{"at":"2026'))
    torso = {"cut_back": {"bytes": 11, "sha256": sha256_bytes(b'{"at":"2026')}}
    ended = {"ended_line": {"index": whole.count(b"\n") - 1}}
    for left, repair in ((whole + b'{"at":"2026', torso), (whole[:-1], ended)):
        ledger.write_bytes(left)
        assert ablate(monkeypatch, "run", study) == 0
        assert ledger.read_bytes().startswith(whole)
        last = Ledger(ledger).entries()[-1]
        assert last.model_dump(mode="json")["body"] == {"runs": 6, **repair} and last.event == "finished"
        assert Ledger(ledger).faults() == []


def test_a_lock_left_beside_its_place_by_a_crash_is_moved_there(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, lock = copy / "studies" / "tiny.yaml", copy / "studies" / "tiny.lock.json"
    lock.rename(copy / "studies" / ".tiny.lock.pending")
    assert ablate(monkeypatch, "verify", study) == 4
    assert ablate(monkeypatch, "register", study) == 0
    assert ablate(monkeypatch, "verify", study) == 0
    assert lock.is_file()


@pytest.mark.parametrize(("part", "value"), [("model", {"context": 9000}), ("data", {"validation": 0.0001})])
def test_a_corpus_too_short_for_an_arm_is_found_before_registration(
    house: House, part: str, value: dict[str, object]
) -> None:
    base = {"model": {"layers": 1, "width": 16, "heads": 2, "context": 16}, "data": {"corpus": "tiny"}}
    base[part] = base[part] | value
    study = house.write(base=base)
    before = house.snapshot()
    for verb in (api.register, api.run):
        with pytest.raises(CorpusError, match="split has"):
            verb(study)
    assert house.snapshot() == before


@pytest.mark.parametrize("place", ["reports", "reports/tiny", "reports/tiny/verdict.json/x", "studies/.ledger.lock/x"])
def test_a_file_where_a_folder_should_be_is_a_mistake_and_not_our_bug(
    copy: Path, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy / place
    if path.name == "x":  # a folder where a file should be
        path.parent.unlink(missing_ok=True)
        path.parent.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    assert ablate(monkeypatch, "decide", copy / "studies" / "tiny.yaml") == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert "Traceback" not in message
    assert not list(copy.rglob("*.tmp"))


@pytest.mark.slow
def test_reports_are_written_again_where_their_folder_is_gone(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = copy / "studies" / "tiny.yaml"
    ablate(monkeypatch, "decide", study)
    shutil.rmtree(copy / "reports")
    assert ablate(monkeypatch, "report", study) == 0
    assert (copy / "reports" / "tiny" / "report.html").is_file()


@pytest.mark.parametrize("named", ["studies/nope.yaml", "studies", "studies/tiny.lock.json", "nope"])
def test_verify_does_not_vouch_for_what_does_not_exist(copy: Path, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy)
    assert ablate(monkeypatch, "verify", named) == 2


def test_corpora_belong_to_a_root_and_are_never_put_where_no_run_looks(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("mine\n" * 50)
    monkeypatch.chdir(house.path / "studies")
    assert ablate(monkeypatch, "corpus", "add", "mine", text) == 0
    assert (house.path / "data" / "corpora" / "mine" / "input.txt").is_file()
    monkeypatch.chdir(tmp_path)
    assert ablate(monkeypatch, "corpus", "add", "other", text) == 2
    assert ablate(monkeypatch, "corpus", "list", "--root", tmp_path / "nowhere") == 2
    assert not (tmp_path / "data").exists()
    text.write_text("\n \n")
    assert ablate(monkeypatch, "corpus", "add", "blank", text, "--root", house.path) == 2
    assert ablate(monkeypatch, "corpus", "add", "x" * 300, text, "--root", house.path) == 2


@pytest.mark.slow
def test_a_reader_who_leaves_early_does_not_change_the_exit_code(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = copy / "studies" / "tiny.yaml"
    words = [sys.executable, "-m", "ablate", "decide", str(study)]
    whole = ablate(monkeypatch, "decide", study)
    left = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert left.stdout is not None
    assert left.stderr is not None
    left.stdout.close()
    with left.stderr:
        said = left.stderr.read()
    assert left.wait(timeout=60) == whole
    assert whole in (0, 3)
    assert said == ""
