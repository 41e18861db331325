"""What a machine cannot offer is said where the run is watched, in its record, by `status` and in the report."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from conftest import House, tiny_document
from typer.testing import CliRunner

from ablate import api
from ablate.cli import app
from ablate.records.provenance import MOVES_BITS, collect, differing
from ablate.records.run_record import Provenance
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher

SAID = "no kernels of our own: no C++ compiler (c++, g++, clang++)"


def felt(**changes: object) -> dict[str, object]:
    """The tiny study, large enough that the choice of a path could be felt."""
    model = {"layers": 1, "width": 16, "heads": 4, "context": 128}
    base = tiny_document()["base"] | {"model": model, "budget": {"steps": 4, "batch": 8}}
    return tiny_document(base=base, measure={"every": 4}, **changes)


def provenances(house: House) -> list[dict[str, str]]:
    return [json.loads(p.read_text())["provenance"] for p in house.path.glob("data/runs/*/*/*/*/run.json")]


@pytest.mark.slow
def test_a_machine_without_a_compiler_says_so_once_and_every_record_keeps_it(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    study, told = house.write(felt()), StringIO()
    assert api.run(study, RunOptions(slots=2), watcher=PlainWatcher(told)).summary.complete
    assert told.getvalue().count(SAID) == 1, told.getvalue()
    found = provenances(house)
    assert [one["lacking"] for one in found] == [SAID] * 6
    assert all("kernels" not in one["paths"] for one in found)
    shown = CliRunner().invoke(app, ["status", str(study)]).output
    assert f"6 runs: {SAID}" in shown
    api.decide(study)
    assert SAID in (house.path / "reports" / "tiny" / "report.md").read_text()


@pytest.mark.slow
def test_where_the_choice_cannot_be_felt_nothing_is_said(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    base = tiny_document()["base"] | {"budget": {"steps": 2, "batch": 4}}
    study, told = house.write(tiny_document(base=base)), StringIO()
    assert api.run(study, watcher=PlainWatcher(told)).summary.complete
    assert "kernels" not in told.getvalue()
    assert all("lacking" not in one for one in provenances(house)), "a record as earlier versions wrote it"


def test_what_was_lacking_moves_no_bit_of_what_was_taken() -> None:
    one = collect(threads=1, lacking=SAID)
    assert "lacking" not in MOVES_BITS and differing(one, collect(threads=1)) == ()
    assert Provenance.model_validate(one.model_dump()) == one
    assert "lacking" not in collect(threads=1).model_dump()
