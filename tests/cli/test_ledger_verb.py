"""`ablate ledger` as a person meets it: lines that read well, and damage that is named."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path

import ledger_samples
import pytest
from ledger_samples import enter
from prereg_samples import EMBNORM, changed
from rich.console import Console
from two_studies import P, amends, day, decides, registers

from ablate import cli
from ablate.reporting.summaries.proof import describe, ledger_section
from ablate.reporting.terminal import show
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry, Event
from prereg.registry.paths import Root

HASH = "a" * 64


def ablate(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["ablate", *map(str, words)])
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """Two studies: one decided, one amended and open."""
    (tmp_path / "studies").mkdir()
    monkeypatch.chdir(tmp_path)
    root = Root(tmp_path)
    registers(root, "one")
    registers(root, "two")
    decides(root, "one", P)
    amends(root, "two", changed(EMBNORM, "smallest: 0.02", "smallest: 0.03"))
    return root


def entry(event: Event, **body: object) -> Entry:
    return ledger_samples.entry(event, body)


def test_every_entry_is_a_line_with_its_place_date_study_event_words_and_hash(
    root: Root, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate(monkeypatch, "ledger") == 0
    said = capsys.readouterr().out
    entries = Ledger(root.ledger).entries()
    for number, one in enumerate(entries):
        assert any(
            line.split()[:4] == [str(number), one.at[:10], one.study, one.event] and one.sha256[:8] in line
            for line in said.splitlines()
        )
    assert "The chain holds: 4 entries." in said
    assert said.rstrip().endswith(f"Ledger head: {entries[-1].sha256}")
    head = said.index("Ledger head")
    assert all(len(line) <= 80 for line in said[:head].splitlines())


def test_one_study_alone_by_name_by_path_and_when_its_file_is_gone(
    root: Root, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for named in ("two", "studies/two.yaml", root.studies / "two.yaml"):
        assert ablate(monkeypatch, "ledger", named) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] == told[2]
    assert "amended" in told[0]
    assert "2 entries of other studies not shown" in told[0]
    assert "one" not in told[0].replace("nothing", "").replace("none", "").split()
    root.study("two").unlink()
    assert ablate(monkeypatch, "ledger", "studies/two.yaml") == 0
    assert ablate(monkeypatch, "ledger", "twoo") == 2
    assert "did you mean 'two'?" in capsys.readouterr().err


def test_a_damaged_ledger_is_shown_as_far_as_it_is_sound_with_exit_code_four(
    root: Root, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = root.ledger.read_bytes()
    root.ledger.write_bytes(whole.replace(b'"status":"decided"', b'"status":"unclear"'))
    assert ablate(monkeypatch, "ledger") == 4
    said = " ".join(capsys.readouterr().out.split())
    assert "DAMAGED ledger.jsonl, line 3: its content does not match its hash: it was edited" in said
    assert "2 lines from there on: not shown" in said
    assert "registered" in said
    assert "amended" not in said
    root.ledger.write_bytes(whole + b'{"at":"2026')
    assert ablate(monkeypatch, "ledger") == 4
    said = " ".join(capsys.readouterr().out.split())
    assert "not ended; an append was cut off" in said
    assert "11 bytes of an unfinished entry" in said
    root.ledger.write_bytes(bytes(range(256)) * 40)
    assert ablate(monkeypatch, "ledger") == 4


def test_a_ledger_that_is_not_there_is_empty_and_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "studies").mkdir()
    assert ablate(monkeypatch, "ledger", "--root", tmp_path) == 0
    assert "The chain holds: 0 entries." in capsys.readouterr().out
    assert not list((tmp_path / "studies").iterdir())


def test_json_holds_the_entries_whole(
    root: Root, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate(monkeypatch, "ledger", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    lines = root.ledger.read_text().splitlines()
    assert told["entries"] == [json.loads(line) for line in lines]
    assert (told["faults"], told["head"]) == ([], json.loads(lines[-1])["sha256"])
    assert ablate(monkeypatch, "ledger", "one", "--json") == 0
    assert {one["study"] for one in json.loads(capsys.readouterr().out)["entries"]} == {"one"}


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (entry("registered", file="studies/s.yaml"), "studies/s.yaml"),
        (entry("registered", file="f", override={"obstacle": "o", "reason": "why not"}), "f, against advice: why not"),
        (
            entry(
                "amended",
                differences=[{"field": x, "registered": 1, "now": 2} for x in "abcde"],
                evidence="none",
                reason="r",
            ),
            "a, b, c and 2 more; evidence by then: none; because: r",
        ),
        (entry("started", runs=4, of=6, slots=2), "4 of 6 runs to do, 2 side by side"),
        (entry("sealed", variant="v", seed=1, status="done", attempts=1), "v, seed 1: done"),
        (
            entry("sealed", variant="v", seed=1, status="diverged", attempts=3, recovered=True),
            "v, seed 1: diverged in 3 attempts, recovered after a crash",
        ),
        (entry("failed", variant="v", seed=1, error="no room"), "v, seed 1: no room"),
        (entry("finished", runs=6), "all 6 runs are sealed"),
        (entry("looked", look=1, of=3, seeds=3, final=False), "look 1 of 3, at 3 seeds: the study goes on"),
        (entry("looked", look=2, of=3, seeds=5, final=True), "look 2 of 3, at 5 seeds: it ended the study"),
        (entry("peeked", ended=2, planned=6, reason="a grant"), "2 of 6 runs had ended; because: a grant"),
        (entry("decided", status="decided", verdict="adopt it"), "adopt it"),
        (entry("decided", status="inconclusive", verdict="inconclusive"), "inconclusive"),
        (entry("decided", status="inconclusive", verdict="go on"), "inconclusive: go on"),
        (entry("decided", status="inadmissible", verdict=None), "inadmissible"),
        (
            entry("imported", variant="v", seed=1, status="done", attempts=1, bound=True, note="of a cluster"),
            "variant v, seed 1, status done, attempts 1, bound True, note of a cluster",
        ),
        (
            entry("finished", runs=6, cut_back={"bytes": 11, "sha256": HASH}),
            "all 6 runs are sealed; cut back 11 bytes that a crash had left",
        ),
    ],
)
def test_every_event_is_told_describe(one: Entry, words: str) -> None:
    assert describe(one) == words


def test_nothing_in_a_ledger_is_read_as_markup(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    enter(ledger, "failed", {"variant": "[bold]v", "seed": 1, "error": "[/]"}, study="s", registration=HASH, at=day(1))
    stream = StringIO()
    show(Console(file=stream, width=80), ledger_section(ledger.sound()))
    assert "[bold]v, seed 1: [/]" in stream.getvalue()
