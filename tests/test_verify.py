"""Every frozen byte: ten thousand flips, each found; and what verify says it does not cover."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TINY_CORPUS, House

from ablate import api, cli
from ablate.data.corpora import Library
from ablate.records.store import RunFolder
from ablate.reporting.withdrawn import taken_off
from ablate.verification.result import Item, check_pins, corpus_folders
from ablate.verification.verify import (
    check_ledger,
    check_records,
    check_registration,
    check_reports,
    check_verdict,
    verify_study,
)
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_file
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root

STUDY = Path("studies/tiny.yaml")


@pytest.fixture
def copy(decided: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to be spoiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
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
    return verify_study(house / STUDY).intact


def flip(path: Path, n: int, rng: random.Random, found: Callable[[], bool]) -> list[tuple[int, int]]:
    """Change one byte at a time, n times, and put it back; the flips that `found` did not find."""
    whole = path.read_bytes()
    missed = []
    try:
        with path.open("r+b") as stream:
            for _ in range(n):
                at = rng.randrange(len(whole))
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
    return next(one for one in verify_study(house / STUDY).items if one.what == what)


def test_a_decided_study_stands_and_everything_it_says_is_checked(copy: Path) -> None:
    found = verify_study(copy / STUDY)
    assert found.intact
    assert [one.what for one in found.items] == [
        "chain",
        "study and lock",
        "registration in words",
        "sealed records",
        "verdict",
        "verdict, judged again",
        "reports",
        "corpus",
    ]
    assert item(copy, "verdict, judged again").note == "keep none; the same bytes"
    assert item(copy, "sealed records").note == "6 of 6 sealed runs hold"
    assert item(copy, "reports").note == "2 of 2 pages are as they were written"
    assert item(copy, "corpus").note == "'tiny' is the registered text"


@pytest.mark.parametrize("kind", ["ledger", "lock", "run.json"])
def test_some_flips_of_a_byte_are_found(kind: str, copy: Path) -> None:
    assert flip(frozen(copy)[kind], 8, random.Random(1), lambda: not stands(copy)) == []  # noqa: S311
    assert stands(copy)


@pytest.mark.slow
def test_ten_thousand_flips_of_a_byte_are_all_found(copy: Path) -> None:
    # What `ablate verify` asks of each file, without asking the other files again ten thousand times.
    rng, files, root = random.Random(20260101), frozen(copy), Root(copy)  # noqa: S311
    entries = list(Ledger(root.ledger).entries())
    asked: dict[str, Callable[[], Item]] = {
        "study file": lambda: check_registration(root, "tiny"),
        "lock": lambda: check_registration(root, "tiny"),
        "ledger": lambda: check_ledger(root),
        "metrics": lambda: check_records(root, "tiny", entries),
        "run.json": lambda: check_records(root, "tiny", entries),
        "weights": lambda: check_records(root, "tiny", entries),
        "corpus": lambda: check_pins(root, "tiny")[0],
        "verdict": lambda: check_verdict(root, "tiny", entries),
        "report.md": lambda: check_reports(root, "tiny", entries),
        "report.html": lambda: check_reports(root, "tiny", entries),
    }
    assert sum(N_FLIPS.values()) == 10_000
    for kind, n in N_FLIPS.items():
        assert asked[kind]().faults == (), kind
        missed = flip(files[kind], n, rng, lambda ask=asked[kind]: bool(ask().faults))  # type: ignore[misc]
        assert missed == [], (kind, missed)
    assert stands(copy)


# More where a byte means something to a parser.
N_FLIPS = {
    "study file": 300,
    "lock": 1_500,
    "ledger": 2_500,
    "metrics": 1_500,
    "run.json": 1_500,
    "weights": 300,
    "corpus": 100,
    "verdict": 1_800,
    "report.md": 250,
    "report.html": 250,
}


@pytest.mark.parametrize("kind", sorted(N_FLIPS))
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
    before, render = ledger.entries(), markdown.render
    monkeypatch.setattr(markdown, "render", lambda told, document: render(told, document) + "\nAnother version.\n")
    told = api.report(copy / STUDY)
    (entry,) = ledger.entries()[len(before) :]
    assert (entry.event, told.head) == ("reported", entry.sha256)
    assert entry.body["decision"] == before[-2].sha256
    assert entry.body["report.md"] == sha256_file(frozen(copy)["report.md"])
    assert stands(copy)


def test_pages_that_are_not_here_are_no_fault_and_pages_without_a_decision_are(copy: Path) -> None:
    frozen(copy)["report.md"].unlink()
    assert item(copy, "reports").note == "1 of 2 pages are as they were written"
    ledger = copy / "studies" / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:-1]))
    assert item(copy, "reports").faults == ()
    assert "written before hashes of reports were kept" in item(copy, "reports").note
    ledger.write_bytes(b"".join(lines[:-2]))
    assert "its end may have been cut off" in item(copy, "reports").faults[0]


def test_reports_of_an_earlier_decision_are_said_to_be_that(copy: Path) -> None:
    ledger = Ledger(copy / "studies" / "ledger.jsonl")
    last = [entry for entry in ledger.entries() if entry.event == "decided"][-1]
    ledger.append("decided", study="tiny", registration=last.registration, body=last.body, at=last.at)
    assert "show an earlier decision" in item(copy, "reports").faults[0]


def test_a_corpus_or_weights_that_are_elsewhere_are_said_and_are_no_fault(copy: Path) -> None:
    files = frozen(copy)
    files["weights"].unlink()
    files["corpus"].unlink()
    assert stands(copy)
    assert item(copy, "corpus").note == "'tiny' is not on this disk and was not checked"


def test_weights_of_a_run_whose_record_has_no_hash_of_them_are_said_not_to_be_covered(copy: Path) -> None:
    # As records were before the hash was kept: a study sealed then must still be told the truth.
    root, ledger = Root(copy), Ledger(copy / "studies" / "ledger.jsonl")
    lines = [entry for entry in ledger.entries() if entry.event not in ("finished", "decided", "reported")]
    root.ledger.unlink()
    for entry in lines:
        body = dict(entry.body)
        if entry.event == "sealed":
            folder = RunFolder(root.run("tiny", entry.registration, str(body["variant"]), int(str(body["seed"]))))
            record = folder.read_record()
            assert record is not None
            assert record.weights_sha256 == sha256_file(folder.weights_path)
            folder.write_record(record.model_copy(update={"weights_sha256": None}))
            body["run_sha256"] = sha256_file(folder.record_path)
        ledger.append(entry.event, study="tiny", registration=entry.registration, body=body, at=entry.at)
    shutil.rmtree(copy / "reports")
    assert stands(copy)
    assert "weights.safetensors of 6 are not covered" in item(copy, "sealed records").note


def test_corpora_are_looked_for_where_the_trainer_looks(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Root(copy)
    for listed in ("", "/a:/b", ":/a:"):
        monkeypatch.setenv("ABLATE_CORPORA", listed)
        assert corpus_folders(root) == Library.of(root.corpora, os.environ).folders


def page_of(house: Path, name: str) -> Path:
    return house / "reports" / "tiny" / name


def without_records(house: Path) -> dict[str, bytes]:
    """The pages as they were written; the runs are moved away."""
    shutil.move(house / "data" / "runs", house / "elsewhere")
    return {page: page_of(house, page).read_bytes() for page in ("report.md", "report.html")}


def test_a_report_whose_records_are_gone_is_kept_under_a_notice(copy: Path) -> None:
    written = without_records(copy)
    told = api.report(copy / STUDY)
    assert told.absent == 6 and stands(copy)
    for page, data in written.items():
        kept = page_of(copy, page).read_bytes()
        assert taken_off(page, kept) == data != kept
        assert b"Written by an older version of ablate; the sealed records are gone." in kept
        assert b"The sealed records of its 6 runs are no longer here" in kept
    assert page_of(copy, "report.md").read_text().startswith("<!-- ablate notice: begin -->\n> **NOT JUDGED AGAIN")
    assert "kept with a notice" in item(copy, "reports").note
    ledger = Ledger(copy / "studies" / "ledger.jsonl")
    last = ledger.entries()[-1]
    assert last.event == "reported" and set(written) == set(last.body["kept"])  # type: ignore[arg-type]
    before = {page: sha256_file(page_of(copy, page)) for page in written}
    assert api.report(copy / STUDY).head == last.sha256
    assert {page: sha256_file(page_of(copy, page)) for page in written} == before
    shutil.move(copy / "elsewhere", copy / "data" / "runs")
    assert api.report(copy / STUDY).absent == 0
    assert {page: page_of(copy, page).read_bytes() for page in written} == written and stands(copy)


def test_what_came_after_the_decision_is_said_above_the_kept_report(copy: Path) -> None:
    written = without_records(copy)
    api.report(copy / STUDY)
    ledger = Ledger(copy / "studies" / "ledger.jsonl")
    sealed = [entry for entry in ledger.entries() if entry.event == "sealed"]
    look = api.record_look(copy / STUDY, reason="read <b>by hand</b>", took_place=sealed[-1].at)
    assert stands(copy) and "inadmissible by the registered rules" in item(copy, "verdict").note
    api.report(copy / STUDY)
    assert stands(copy)
    html, text = (page_of(copy, page).read_text() for page in ("report.html", "report.md"))
    assert text.splitlines()[1].startswith("> **INADMISSIBLE: An early look was recorded after the decision")
    assert '<aside class="kept grave"' in html and "&lt;b&gt;by hand" in html and "&lt;b>by hand" in text
    assert f"(ledger entry {look.index})" in html and f"(ledger entry {look.index})" in text
    assert {page: taken_off(page, page_of(copy, page).read_bytes()) for page in written} == written
    study = copy / STUDY
    study.write_text(study.read_text().replace("smallest: 0.05", "smallest: 0.06"))
    _, entry = api.amend(study, reason="another margin")
    api.report(study)
    assert f"amended after this decision (ledger entry {entry.index}" in page_of(copy, "report.md").read_text()
    assert stands(copy)


def test_a_kept_report_names_what_was_reworded_and_corrected_after_it(copy: Path) -> None:
    figures = copy / "studies" / "tiny.published.yaml"
    text = (
        "source: a table\nlooks: [{step: 30, seeds: 2}]\nfigures:\n"
        "  - {label: loss, metric: val/loss, published: {none: 3.0}, note: on other data}\n"
    )
    figures.write_text(text)
    api.report(copy / STUDY)
    written = without_records(copy)
    api.report(copy / STUDY)
    assert "corrected later" not in page_of(copy, "report.md").read_text() and stands(copy)
    assert item(copy, "reports").note.endswith("studies/tiny.published.yaml is the file that they show")
    figures.write_text(text.replace("on other data", "on data that the source does not name"))
    assert not stands(copy)
    study = copy / STUDY
    title = study.read_text().partition("title: ")[2].splitlines()[0]
    study.write_text(study.read_text().replace(title, "Another title"))
    api.amend(study, reason="the title said too much")
    api.report(study)
    assert stands(copy)
    newer = "studies/tiny.published.yaml is newer than the kept pages, as their notice says"
    assert item(copy, "reports").note.endswith(newer)
    for page, data in written.items():
        kept = page_of(copy, page).read_text()
        assert "published figures was corrected later in studies/tiny.published.yaml" in kept
        assert "Another title" in kept and "the title said too much" in kept
        assert taken_off(page, kept.encode()) == data


def test_nothing_is_kept_that_is_not_what_was_written(copy: Path) -> None:
    files, written = frozen(copy), without_records(copy)
    ledger = Ledger(copy / "studies" / "ledger.jsonl")
    head = ledger.head()

    def refused(found: str) -> None:
        with pytest.raises(EvidenceError, match=found):
            api.report(copy / STUDY)
        assert ledger.head() == head

    files["report.md"].write_bytes(written["report.md"] + b"It works wonders.\n")
    refused("this page is not what was written")
    files["report.md"].unlink()
    files["report.html"].unlink()
    refused("neither is a report")
    verdict = files["verdict"].read_bytes()
    files["verdict"].write_bytes(verdict + b" ")
    refused("verdict.json is not the decision")
    # A page from before hashes were kept is bound to its decision by the ledger's head that it names.
    files["verdict"].write_bytes(verdict)
    ledger.path.write_bytes(b"".join(ledger.path.read_bytes().splitlines(keepends=True)[:-1]))
    head = ledger.head()
    files["report.md"].write_bytes(written["report.md"].replace(head.encode(), b"0" * 64))
    refused("this page is not what was written")
    files["report.md"].write_bytes(written["report.md"])
    assert api.report(copy / STUDY).html_path is None and stands(copy)
    assert "the ledger kept no hash of it at that time" in files["report.md"].read_text()
    assert api.report(copy / STUDY).head == ledger.head()


def test_of_some_records_gone_the_notice_says_how_many(copy: Path) -> None:
    shutil.rmtree(next(copy.glob("data/runs/tiny/*/none/2")))
    assert api.report(copy / STUDY).absent == 1
    assert "The sealed records of 1 of its 6 runs are no longer here" in page_of(copy, "report.md").read_text()
