"""What every command has by its decorator: common options, help that fits, exit codes; `status` of all studies."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from own_trainer import OwnHouse
from test_cli import ablate

from ablate.cli import app
from ablate.cli.options import Exit


def commands() -> dict[str, Any]:
    """Every command by its words, with those of `corpus`."""
    found: dict[str, Any] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        found |= {f"{name} {below}": one for below, one in getattr(command, "commands", {}).items()} or {name: command}
    return found


@pytest.mark.parametrize("words", ["", "corpus", *commands()])
def test_help_fits_80_columns_and_cuts_no_summary(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((80, 24)))
    assert ablate(monkeypatch, *words.split(), "--help") == 0
    lines = capsys.readouterr().out.splitlines()[1:]  # the first line has ARGS...
    assert lines and max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith("...")]


JSON_OF_A_STUDY = (
    *("check", "plan", "register", "status", "run", "decide", "report", "verify", "ledger", "bundle", "seal"),
)


@pytest.mark.slow
@pytest.mark.parametrize("verb", JSON_OF_A_STUDY)
def test_of_a_decided_study_json_is_one_document_and_quiet_is_silent(
    verb: str, decided_copy: OwnHouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(decided_copy.path)
    code = ablate(monkeypatch, verb, decided_copy.study, "--json")
    lines = capsys.readouterr().out
    document = lines.splitlines()[-1] if verb == "run" else lines  # `run` prints an event a line
    assert isinstance(json.loads(document), dict)
    assert ablate(monkeypatch, verb, decided_copy.study, "--quiet") == code
    assert tuple(capsys.readouterr()) == ("", "")


@pytest.mark.parametrize(
    ("typed", "found", "instead"),
    [
        ("reproduce s.yaml", "--run is missing", "ablate reproduce s.yaml --run VARIANT/SEED"),
        ("judge table.csv", "CLAIM is missing", "ablate judge table.csv CLAIM"),
        ("run s.yaml --jbs 2", "no such option: --jbs", "ablate run s.yaml --jobs 2"),
        ("run s.yaml --jobs two", "invalid value for '--jobs'", "ablate run --help"),
        ("corpus lst", "no such command 'lst'", "ablate corpus list"),
    ],
)
def test_what_is_wrong_with_a_command_line_is_a_mistake_like_any_other(
    typed: str, found: str, instead: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate(monkeypatch, *typed.split()) == Exit.MISTAKE
    said, required, fix = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: {found}") and required.startswith("  required: ")
    assert fix == f"  try:      {instead}"


def test_quiet_leaves_mistakes_and_the_exit_code(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = own_house.write(seeds=[])
    assert ablate(monkeypatch, "check", path, "-q") == Exit.MISTAKE
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and "seeds" in err


def test_status_without_a_study_has_a_line_for_each_and_names_files_that_are_none(
    decided_copy: OwnHouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decided_copy.write(study="waiting")
    monkeypatch.chdir(decided_copy.path)
    assert ablate(monkeypatch, "status") == 0
    (own,) = [line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["own"]]
    assert "registered" in own and "6 of 6" in own and "take fast" in own
    (decided_copy.path / "studies" / "broken.yaml").write_text("study: [")
    assert ablate(monkeypatch, "status", "--json") == Exit.MISTAKE
    out, err = capsys.readouterr()
    assert [study["study"] for study in json.loads(out)] == ["own", "waiting"]
    assert "broken.yaml" in err
    assert ablate(monkeypatch, "status", "--results", "--reason", "why") == Exit.MISTAKE
    assert "ablate status STUDY" in capsys.readouterr().err


def test_check_prints_the_schema_and_takes_no_study_with_it(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablate(monkeypatch, "check", "--schema", "study") == 0
    text = capsys.readouterr().out
    assert "hypotheses" in json.loads(text)["properties"]
    assert ablate(monkeypatch, "check", "--schema", "study", "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(text)
    assert ablate(monkeypatch, "check", own_house.write(), "--schema", "study") == Exit.MISTAKE
    assert "--schema with a study" in capsys.readouterr().err
    assert ablate(monkeypatch, "check") == Exit.MISTAKE
    assert "no study to check" in capsys.readouterr().err


def test_a_document_of_the_plan_is_written_only_where_one_is_named(
    own_house: OwnHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = own_house.write()
    assert ablate(monkeypatch, "plan", study, "--out", tmp_path / "plan.md") == Exit.MISTAKE
    assert "--out without --as" in capsys.readouterr().err
    assert not (tmp_path / "plan.md").exists()
