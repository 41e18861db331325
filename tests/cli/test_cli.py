"""The verbs as a user meets them: exit codes, messages, and bad input that changes nothing on disk."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import os
import pty
import re
import shutil
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from conftest import SHORT, House, tiny_document

import ablate as api
from ablate import cli
from ablate.cli.options import Exit, put_error
from ablate.creating import STEPS
from ablate.runner.local import Summary, study_lock
from ablate.workspace import Workspace, require_registered
from prereg.errors import StudyError, Where
from prereg.registry.paths import Root

Spoil = Callable[[House], Path]


def ablate(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    """Run a verb in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["ablate", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def replace(house: House, old: str, new: str) -> Path:
    path = house.write()
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


def wrong_corpus(house: House) -> Path:
    (house.path / "data" / "corpora" / "tiny" / "input.txt").write_text("another text altogether\n" * 40)
    return house.write()


def missing_corpus(house: House) -> Path:
    shutil.rmtree(house.path / "data" / "corpora" / "tiny")
    return house.write()


def unwritable(house: House) -> Path:
    # A file where the folder of runs should be: refused by every user, root too.
    (house.path / "data" / "runs").write_text("")
    return house.write()


MISTAKES: dict[str, tuple[Spoil, str, str]] = {
    "unknown field": (lambda h: replace(h, "title:", "titel:"), "titel", "title"),
    "unknown field in depth": (lambda h: replace(h, "layers: 1", "layrs: 1"), "layrs", "layers"),
    "wrong type": (lambda h: replace(h, "layers: 1", "layers: one"), "base.model.layers", "whole number"),
    "misspelt variant in a claim": (
        lambda h: replace(h, "claim: layernorm", "claim: layernrm"),
        "layernrm",
        "layernorm",
    ),
    "misspelt metric": (lambda h: replace(h, "val/loss", "val/los"), "val/los", "val/loss"),
    "baseline that is no variant": (lambda h: replace(h, "baseline: none", "baseline: nonne"), "nonne", "none"),
    "unknown path of an override": (
        lambda h: replace(h, "model.embedding_norm", "model.embeding_norm"),
        "embeding_norm",
        "embedding_norm",
    ),
    "duplicate key": (lambda h: replace(h, "title:", "title: twice\ntitle:"), "title", "line"),
    "not a number": (lambda h: replace(h, "smallest: 0.05", "smallest: .nan"), "smallest", "finite"),
    "rule with an unknown hypothesis": (lambda h: replace(h, "supported(gain)", "supported(gian)"), "gian", "gain"),
    "missing corpus": (missing_corpus, "tiny", "ablate corpus"),
    "wrong sha256": (wrong_corpus, "its sha256 is", "sha256"),
    "more byte pairs than the text gives": (
        lambda h: replace(h, "corpus: tiny", "corpus: tiny\n    tokenizer: {bpe: 4000}"),
        "gives 280 byte-pair entries",
        "{bpe: 280}",
    ),
    "path not writable": (unwritable, "cannot be written", "writable"),
    "missing file": (lambda h: h.path / "studies" / "tinny.yaml", "tinny", "tiny"),
    "missing tasks": (
        lambda h: replace(h, "every: 10", "every: 10\n  harness: {tasks: blimp}"),
        "the task pack 'blimp' is not here",
        "put the files into",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_clear_message_exit_code_two_and_changes_nothing(
    mistake: str, house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, found, helped = MISTAKES[mistake]
    house.write()
    study = spoil(house)
    before = house.snapshot()
    assert ablate(monkeypatch, "run", study) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert message.count("error:") == 1
    assert "Traceback" not in message
    assert found in message
    assert helped in message
    assert house.snapshot() == before


def test_a_mistake_in_the_file_is_named_with_its_line(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = replace(house, "layers: 1", "layrs: 1")
    line = 1 + study.read_text().splitlines().index(next(x for x in study.read_text().splitlines() if "layrs" in x))
    ablate(monkeypatch, "check", study)
    assert f"tiny.yaml:{line}" in capsys.readouterr().err


def test_help_shows_six_everyday_commands_first_and_every_other_in_a_panel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert ablate(monkeypatch, "--help") == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    panels = dict(re.findall(r"^(\S[^:\n]+):\n((?:  .+\n)+)", said, re.MULTILINE))
    assert list(panels) == [
        "Options",
        "Everyday commands",
        "Design",
        "Campaigns",
        "Pull requests",
        "Proof",
        "Records",
        "Corpora",
    ]
    shown = {panel: [row.split()[0] for row in rows.splitlines()] for panel, rows in panels.items()}
    assert shown["Everyday commands"] == ["new", *STEPS[:-1], "status", "decide", "report"]
    verbs = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    assert [name for panel in list(shown)[1:] for name in shown[panel]] == list(verbs)


def test_a_named_command_is_built_alone_and_every_other_word_meets_all_of_them() -> None:
    def built(*words: str) -> list[str]:
        return list(typer.main.get_command(cli.application(*words)).commands)  # type: ignore[attr-defined]

    every = built()
    for name in every:
        assert built(name) == ([name] if name != "corpus" else every)
    assert built("statu") == built("--help") == built("") == every


def test_the_version_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ablate(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"ablate {version('ablate-prereg')}\n"


def test_a_project_with_the_same_import_name_is_named_at_every_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ablate-0.2.3.dist-info", "prereg-0.6.1.dist-info", "ablate_tools-0.1.0.dist-info"):
        (tmp_path / name).mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert ablate(monkeypatch, "--version") == 0
    said = capsys.readouterr()
    assert said.out == f"ablate {version('ablate-prereg')}\n" and said.err.count("warning: ") == 2
    assert "warning: ablate 0.2.3 is another project" in said.err and "pip uninstall prereg," in said.err


def test_a_second_run_at_the_same_time_is_a_mistake_with_the_first_ones_pid(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = house.write()
    with study_lock(Root(house.path), "tiny"):
        before = house.snapshot()
        assert ablate(monkeypatch, "run", study) == 2
        assert house.snapshot() == before
    assert "is being run by another process" in capsys.readouterr().err


def test_the_whole_chain_from_file_to_report(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = house.write(**SHORT)
    assert ablate(monkeypatch, "check", study) == 0
    assert not (house.path / "studies" / "tiny.lock.json").exists()
    assert ablate(monkeypatch, "decide", study) == 2
    assert "not registered" in capsys.readouterr().err
    assert ablate(monkeypatch, "run", study) == 0
    said = capsys.readouterr().out
    assert "registered tiny before any run; registration" in said
    assert "the power of gain is unknown: nothing is assumed of the noise" in said
    assert "4 of 4 runs sealed" in said
    assert ablate(monkeypatch, "status", study) == 0
    code = ablate(monkeypatch, "decide", study)
    assert code in (0, 3)
    folder = house.path / "reports" / "tiny"
    verdict = json.loads((folder / "verdict.json").read_text())
    assert code == {"decided": 0, "inconclusive": 3}[verdict["status"]]
    assert verdict["findings"][0]["n"] == 2
    assert (folder / "report.md").stat().st_size > 1000
    assert ablate(monkeypatch, "verify", study) == 0
    monkeypatch.chdir(house.path)
    assert ablate(monkeypatch, "verify") == 0
    monkeypatch.chdir(house.path.parent)
    assert ablate(monkeypatch, "verify") == 2  # not in a repository of studies


@pytest.mark.slow
def test_deciding_twice_and_reporting_again_change_no_byte(copied: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house, study = copied, copied.study
    code = ablate(monkeypatch, "decide", study)
    before = house.snapshot()
    assert ablate(monkeypatch, "decide", study) == code
    assert house.snapshot() == before
    assert ablate(monkeypatch, "report", study) == 0
    assert house.snapshot() == before


def test_an_unfinished_study_has_a_state_and_an_exit_code_of_its_own_and_shows_no_contrast(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = house.write()
    assert ablate(monkeypatch, "register", study) == 0
    before = house.snapshot()
    assert ablate(monkeypatch, "check", study) == 0
    shown = capsys.readouterr().out
    assert f"next:  ablate status {study}" in shown and "next:  ablate try" not in shown
    assert ablate(monkeypatch, "decide", study) == cli.Exit.UNFINISHED == 6
    shown = capsys.readouterr().out
    assert "UNFINISHED: 0 of 6 planned runs have ended" in shown and "INADMISSIBLE" not in shown
    assert "No report was written." in shown and f"next:  ablate run {study}" in shown
    assert house.snapshot() == before
    assert ablate(monkeypatch, "decide", study, "--json") == 6
    said = json.loads(capsys.readouterr().out)
    assert (said["status"], said["verdict"], said["findings"]) == ("unfinished", None, [])


@pytest.mark.slow
def test_a_study_changed_since_registration_is_refused_with_its_fields_and_both_ways_on(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = house.write(**SHORT)
    ablate(monkeypatch, "register", study)
    study.write_text(study.read_text().replace("smallest: 0.05", "smallest: 0.01"))
    before = house.snapshot()
    capsys.readouterr()
    assert ablate(monkeypatch, "run", study) == 2
    message = capsys.readouterr().err
    assert "hypotheses.gain.smallest" in message
    assert "0.05" in message
    assert "0.01" in message
    assert "ablate amend" in message
    assert "another name" in message
    assert house.snapshot() == before
    assert ablate(monkeypatch, "amend", study, "--reason", "a finer margin, before any run") == 0
    assert ablate(monkeypatch, "run", study) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        "studies/tiny.yaml",
        "studies/tiny.lock.json",
        "studies/ledger.jsonl",
        "run.json",
        "metrics.parquet",
        "reports/tiny/verdict.json",
    ],
)
def test_one_changed_byte_is_found_and_named(
    part: str, decided: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = decided.path / "studies" / "tiny.yaml"
    path = next(decided.path.glob(f"data/runs/tiny/*/none/2/{part}")) if "/" not in part else decided.path / part
    original = path.read_bytes()
    data = bytearray(original)
    for place in (len(data) // 3, len(data) // 2, len(data) - 2):
        data[place] ^= 1
        path.write_bytes(bytes(data))
        assert ablate(monkeypatch, "verify", study) == 4, place
        assert path.name in capsys.readouterr().out
        data[place] ^= 1
    path.write_bytes(original)
    assert ablate(monkeypatch, "verify", study) == 0


@pytest.mark.slow
def test_json_progress_is_one_object_a_line_with_a_summary_last(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate(monkeypatch, "run", house.write(**SHORT), "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["event"] == "summary"
    assert lines[-1]["done"] == 4
    assert len([line for line in lines if line["event"] == "ended"]) == 4


@pytest.mark.slow
def test_progress_never_tells_one_arm_from_another(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = house.write(**SHORT)
    assert ablate(monkeypatch, "run", study) == 0
    told = capsys.readouterr().out
    assert ablate(monkeypatch, "status", study) == 0
    status = capsys.readouterr().out
    assert told and "loss" not in told.replace("loss falls", "")
    assert status and "val/loss" not in status


def test_our_own_bugs_are_admitted_with_exit_code_one(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("ablate.checking.check", broken)
    assert ablate(monkeypatch, "check", house.write()) == 1
    assert "this is a bug in ablate" in capsys.readouterr().err


def test_corpora_are_listed_and_added(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = house.path / "mine.txt"
    text.write_text("mine\n" * 100)
    assert ablate(monkeypatch, "corpus", "add", "mine", text, "--root", house.path) == 0
    assert ablate(monkeypatch, "corpus", "list", "--root", house.path) == 0
    listed = capsys.readouterr().out
    for name in ("toy", "tinyshakespeare", "mine", "tiny"):
        assert name in listed


def test_the_study_may_be_named_without_its_path(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.write(tiny_document())
    monkeypatch.chdir(house.path)
    assert ablate(monkeypatch, "check", "tiny") == 0


def test_check_warns_of_a_study_that_was_edited_after_its_registration(
    copied: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied.path / "studies" / "tiny.yaml"
    registered = require_registered(Workspace().open(path))

    def warned() -> list[dict[str, str]]:
        assert ablate(monkeypatch, "check", "--json", path) == 0
        found = json.loads(capsys.readouterr().out)["warnings"]
        return [one for one in found if one["kind"] == "registration"]

    assert not warned()
    path.write_text(path.read_text() + "# a comment changes nothing\n")
    assert not warned()
    path.write_text(path.read_text().replace("smallest: 0.05", "smallest: 0.04"))
    [warning] = warned()
    assert warning["found"].startswith(f"registered as {registered.sha256[:12]} on ")
    assert warning["found"].endswith("hypotheses.gain.smallest")
    assert warning["try"].startswith(f"ablate amend {path} --reason TEXT")
    assert ablate(monkeypatch, "check", path) == 0
    assert f"Warning: registered as {registered.sha256[:12]}" in capsys.readouterr().out


@contextmanager
def stream_without_reader() -> Iterator[io.TextIOWrapper]:
    """The write end of a pipe that nobody reads any more, as `ablate ... | head -1` leaves it."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as stream:
        yield stream


def test_a_reader_who_leaves_early_stops_nothing_and_changes_no_exit_code(
    copied: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied.path / "studies" / "tiny.yaml"
    with stream_without_reader() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert ablate(monkeypatch, "decide", path, "--json") in (Exit.OK, Exit.INCONCLUSIVE)
        assert (copied.path / "reports" / "tiny" / "report.html").is_file()
        path.write_text(path.read_text().replace("steps: 30", "steps: 40"))
        assert ablate(monkeypatch, "verify", path, "--json") == Exit.INADMISSIBLE
        assert ablate(monkeypatch, "ledger", "--root", copied.path, "--json") == Exit.OK


def test_json_is_json_on_a_stream_that_writes_ascii_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = api.new("first", "target", title="Größe δ 🎲", workspace=api.Workspace(tmp_path)).study
    for words in (("check", path), ("plan", path, "--as", "osf")):
        out = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
        assert ablate(monkeypatch, *words, "--json") == 0
        found = json.loads(out.getvalue())
        assert words[0] == "plan" or found["study"]["title"] == "Größe δ 🎲"
    assert ablate(monkeypatch, *words) == 0


def test_a_message_on_a_terminal_is_broken_at_its_width_and_what_is_copied_is_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Where(file=Path("studies/a folder/" + "with-a-long-name/" * 3 + "own.yaml"), line=3)
    command = 'ablate amend studies/own.yaml --reason "why it is another study now, in a sentence"'
    error = StudyError("found " * 20, required="something else " * 10, fix=command, where=place)
    put_error(error)
    assert capsys.readouterr().err == f"error: {error.text()}\n"
    terminal, behind = pty.openpty()
    termios.tcsetwinsize(behind, (24, 60))
    with os.fdopen(behind, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        put_error(error)
    shown = b""
    with suppress(OSError):  # what ends the reading of a terminal
        while piece := os.read(terminal, 1 << 16):
            shown += piece
    os.close(terminal)
    lines = shown.decode().replace("\r", "").splitlines()
    whole = {f"error: {place}:", f"  try:      {command}"}
    assert whole <= {*lines} and all(len(line) <= 60 for line in {*lines} - whole)
    assert " ".join(" ".join(lines).split()) == " ".join(f"error: {error.text()}".split())


def test_runs_that_a_cluster_left_have_the_exit_code_of_runs_that_are_left(
    copied: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied.path / "studies" / "tiny.yaml"
    done = api.run(path)
    summary = Summary(**{**vars(done.summary), "sealed": 1})
    monkeypatch.setattr("ablate.running.run", lambda *_, **__: type(done)(done.registration, False, summary))
    assert ablate(monkeypatch, "run", path, "--on", "ray") == Exit.INCOMPLETE
    assert "1 of 6 runs sealed" in capsys.readouterr().out


def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_a_mistake(
    copied: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = copied.path / "studies" / "tiny.yaml"
    os.mkfifo(tmp_path / "pipe.zip")
    for words, message in (
        (("verify", tmp_path / "pipe.zip"), "it is a FIFO"),
        (("corpus", "add", "mine", tmp_path / "pipe.zip", "--root", copied.path), "it is a FIFO"),
        (("bundle", path, "--out", "."), "error: .: a folder"),
        (("bundle", path, "--out", tmp_path / "absent" / "x.zip"), "its folder is not there"),
        (("plan", path, "--as", "osf", "--out", ""), "error: .: a folder"),
        (("plan", path, "--as", "osf", "--out", tmp_path / "absent" / "x.md"), f"{tmp_path / 'absent' / 'x.md'}: No"),
    ):
        assert ablate(monkeypatch, *words) == Exit.MISTAKE
        assert message in capsys.readouterr().err
    assert {one.name for one in tmp_path.iterdir()} <= {"pipe.zip", "house", "cache"}


def test_a_type_checker_knows_only_names_that_exist() -> None:
    """mypy takes every name for one of a module that has `__getattr__` (PEP 562)."""
    for name in ("ablate",):
        assert getattr(importlib.import_module(name), "__getattr__", None)
        source = inspect.getsource(importlib.import_module(name))
        assert "if not TYPE_CHECKING:" in source.partition("def __getattr__")[0]
