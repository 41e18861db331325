"""Every frozen byte: ten thousand flips, each found; and what verify says it does not cover."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
from conftest import TINY_CORPUS, House
from ledger_samples import enter

import ablate as api
from ablate import cli
from ablate.data.corpora import Library
from ablate.verification.pins import pin_items
from ablate.verification.verify import (
    Source,
    check_ledger,
    check_records,
    check_registration,
    check_reports,
    check_verdict_file,
    verify_target,
)
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_file
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.registration import load_registration
from prereg.study.corpora import search_path
from prereg.verification import Item

STUDY = Path("studies/tiny.yaml")


@pytest.fixture
def copy(decided: House, tmp_path: Path, no_own_corpora: None) -> Path:
    """A copy of it, to be spoiled."""
    return Path(shutil.copytree(decided.path, tmp_path / "copy"))


def frozen(house: Path) -> dict[str, Path]:
    """One file of each kind that verify covers."""
    run = next((house / "data" / "runs" / "tiny").glob("*/layernorm/2"))
    return {
        "study file": house / STUDY,
        "lock": house / "studies" / "tiny.lock.json",
        "ledger": house / "studies" / "ledger.jsonl",
        "metrics": run / "metrics.parquet",
        "run.json": run / "run.json",
        "weights": run / "weights.safetensors",
        "corpus": house / "data" / "corpora" / TINY_CORPUS / "input.txt",
        "verdict": house / "reports" / "tiny" / "verdict.json",
        "report.md": house / "reports" / "tiny" / "report.md",
        "report.html": house / "reports" / "tiny" / "report.html",
    }


def stands(house: Path) -> bool:
    return verify_target(house / STUDY).intact


def flip(path: Path, n: int, rng: random.Random, found: Callable[[], bool]) -> list[tuple[int, int]]:
    """Change one byte at a time, one in each nth part of a file, and put it back; the flips that `found` did not find.

    A file of fewer than n bytes has some of them changed more than once, to other values.
    """
    whole = path.read_bytes()
    missed = []
    try:
        with path.open("r+b") as stream:
            for part in range(n):
                at = int((part + rng.random()) * len(whole) / n)
                byte = (whole[at] + rng.randrange(1, 256)) % 256
                stream.seek(at)
                stream.write(bytes([byte]))
                stream.flush()
                if not found():
                    missed.append((at, byte))
                stream.seek(at)
                stream.write(whole[at : at + 1])
                stream.flush()
    finally:
        path.write_bytes(whole)
    return missed


def item(house: Path, what: str) -> Item:
    return next(one for one in verify_target(house / STUDY).items if one.what == what)


def test_a_decided_study_stands_and_everything_it_says_is_checked(copy: Path) -> None:
    found = verify_target(copy / STUDY)
    assert found.intact
    assert [one.what for one in found.items] == [
        "chain",
        "history of the ledger",
        "study and lock",
        "registration in words",
        "sealed records",
        "verdict",
        "verdict judged again",
        "reports",
        "corpus 'tiny'",
    ]
    assert [one.what for one in found.unchecked] == ["history of the ledger"], "the study lies in no git repository"
    assert item(copy, "verdict judged again").note == "keep none; the same bytes"
    assert item(copy, "sealed records").note == "6 of 6 sealed runs hold"
    assert item(copy, "reports").note == "2 of 2 pages are as they were written"
    assert item(copy, "corpus 'tiny'").note == "the registered text"


@pytest.mark.parametrize("kind", ["ledger", "lock", "run.json"])
def test_some_flips_of_a_byte_are_found(kind: str, copy: Path) -> None:
    assert flip(frozen(copy)[kind], 8, random.Random(1), lambda: not stands(copy)) == []  # noqa: S311
    assert stands(copy)


# A thousand, spread evenly, leave no stretch of a file untried: the longest is 20 bytes of what a parser reads and
# 1 % of a report. Ten thousand take a minute and more.
@pytest.mark.slow
@pytest.mark.parametrize("n", [1_000, pytest.param(10_000, marks=pytest.mark.simulation)])
def test_flips_of_a_byte_are_all_found(n: int, copy: Path) -> None:
    # What `ablate verify` asks of each file, without asking the other files again ten thousand times.
    rng, files, root = random.Random(20260101), frozen(copy), Root(copy)  # noqa: S311
    entries = list(Ledger(root.ledger).entries())
    registration = load_registration(root, "tiny")
    assert registration is not None
    asked: dict[str, Callable[[], Iterable[Item]]] = {
        "study file": lambda: check_registration(root, "tiny", entries),
        "lock": lambda: check_registration(root, "tiny", entries),
        "ledger": lambda: check_ledger(Source(root, ("tiny",))),
        "metrics": lambda: check_records(root, "tiny", entries),
        "run.json": lambda: check_records(root, "tiny", entries),
        "weights": lambda: check_records(root, "tiny", entries),
        "corpus": lambda: pin_items(root, registration),
        "verdict": lambda: check_verdict_file(root, "tiny", entries),
        "report.md": lambda: check_reports(root, "tiny", entries),
        "report.html": lambda: check_reports(root, "tiny", entries),
    }

    def changed(kind: str) -> bool:
        return any(one.faults for one in asked[kind]())

    assert sum(SHARES.values()) == 1_000
    for kind, share in SHARES.items():
        assert not changed(kind), kind
        missed = flip(files[kind], share * n // 1_000, rng, partial(changed, kind))
        assert missed == [], (kind, missed)
    assert stands(copy)


# Of a thousand flips; more where a byte means something to a parser.
SHARES = {
    "study file": 30,
    "lock": 150,
    "ledger": 250,
    "metrics": 150,
    "run.json": 150,
    "weights": 30,
    "corpus": 10,
    "verdict": 180,
    "report.md": 25,
    "report.html": 25,
}


@pytest.mark.parametrize("kind", sorted(SHARES))
def test_the_verb_itself_ends_with_four_and_names_the_file(
    kind: str, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = frozen(copy)[kind]
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(bytes(whole))
    monkeypatch.setattr(sys, "argv", ["ablate", "verify", str(copy / STUDY)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 4
    assert path.name in capsys.readouterr().out


def test_a_report_that_was_edited_is_found_and_written_again_by_report(copy: Path) -> None:
    page = frozen(copy)["report.md"]
    page.write_text(page.read_text() + "\nIt works wonders.\n")
    (fault,) = item(copy, "reports").faults
    assert fault.startswith("reports/tiny/report.md is not what was written at ")
    head = Ledger(copy / "studies" / "ledger.jsonl").head()
    assert api.report(copy / STUDY).head == head  # the same bytes as before: the ledger knows them already
    assert stands(copy)


def test_pages_written_by_another_version_are_taken_into_the_ledger(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ablate.reporting import markdown

    ledger = Ledger(copy / "studies" / "ledger.jsonl")
    before, render = ledger.entries(), markdown.render_markdown
    monkeypatch.setattr(
        markdown, "render_markdown", lambda told, document: render(told, document) + "\nAnother version.\n"
    )
    told = api.report(copy / STUDY)
    (entry,) = ledger.entries()[len(before) :]
    assert (entry.event, told.head) == ("reported", entry.sha256)
    assert entry.decision == before[-2].sha256
    assert entry.report_md == sha256_file(frozen(copy)["report.md"])
    assert stands(copy)


def test_pages_that_are_not_here_are_no_fault_and_pages_without_a_decision_are(copy: Path) -> None:
    frozen(copy)["report.md"].unlink()
    assert item(copy, "reports").note == "1 of 2 pages are as they were written"
    ledger = copy / "studies" / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:-1]))
    assert item(copy, "reports").faults == ()
    assert item(copy, "reports").unchecked == "the ledger holds no hash of them"
    ledger.write_bytes(b"".join(lines[:-2]))
    assert "its end may have been cut off" in item(copy, "reports").faults[0]


def test_reports_of_an_earlier_decision_are_said_to_be_that(copy: Path) -> None:
    ledger = Ledger(copy / "studies" / "ledger.jsonl")
    last = [entry for entry in ledger.entries() if entry.event == "decided"][-1]
    enter(ledger, "decided", last.stated, study="tiny", registration=last.registration, at=last.at)
    assert "show an earlier decision" in item(copy, "reports").faults[0]


def test_a_corpus_or_weights_that_are_elsewhere_are_said_and_are_no_fault(copy: Path) -> None:
    files = frozen(copy)
    files["weights"].unlink()
    files["corpus"].unlink()
    assert stands(copy)
    for what, fix in (("corpus 'tiny'", "ablate corpus add tiny FILE"), ("final weights", "verify where")):
        absent = item(copy, what)
        assert absent.state == "not checked" and "not here" in absent.unchecked and absent.fix.startswith(fix)


def test_corpora_are_looked_for_where_the_trainer_looks(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Root(copy)
    for listed in ("", "/a:/b", ":/a:"):
        monkeypatch.setenv("ABLATE_CORPORA", listed)
        assert search_path(root.corpora) == Library.of(root.corpora, os.environ).folders


@pytest.mark.parametrize("gone", ["data/runs", "data/runs/tiny/*/none/2"])
def test_without_its_records_a_report_is_refused_and_stays_as_it_was_written(copy: Path, gone: str) -> None:
    pages = {path: path.read_bytes() for path in (copy / "reports" / "tiny").iterdir()}
    shutil.rmtree(next(copy.glob(gone)))
    for verb in (api.report, api.results):
        with pytest.raises(EvidenceError, match="of 6 runs are not here"):
            verb(copy / STUDY)
    assert {path: path.read_bytes() for path in pages} == pages
    assert stands(copy) == (gone == "data/runs")
