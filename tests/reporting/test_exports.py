"""`report --as`: figures, CSV and LaTeX next to the pages, which stay as they are."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from conftest import House
from pydantic import ValidationError
from report_samples import told
from test_latex import assert_clean, compile_latex
from typer.testing import CliRunner

import ablate as api
from ablate import cli
from ablate.judge.verdict import Decision
from ablate.reporting.document import compose
from ablate.reporting.exports import figures
from ablate.reporting.exports.files import COLUMNS, csv_files
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_bytes
from prereg.registry.ledger import Ledger


def rows(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


def run(*words: object) -> Any:
    return CliRunner().invoke(cli.app, ["report", *map(str, words)], catch_exceptions=False)


def test_csv_gives_every_number_back_as_it_was_computed() -> None:
    context = told()
    files = csv_files(context)
    assert files == csv_files(told())
    for found, finding in zip(rows(files["findings.csv"]), context.decision.findings, strict=True):
        assert finding.estimate is not None and finding.estimate.interval is not None
        assert (found["hypothesis"], found["outcome"], found["status"]) == (
            finding.hypothesis,
            finding.outcome,
            "decided",
        )
        assert float(found["difference"]) == finding.estimate.difference
        assert float(found["alone_low"]) == finding.estimate.interval.low
        assert float(found["p_support_adjusted"]) == finding.p_support_adjusted and int(found["n"]) == finding.n
        assert float(found["margin"]) == finding.smallest
    pairs = rows(files["pairs.csv"])
    gain = context.decision.findings[0]
    sides = {(one["side"], int(one["seed"])): one for one in pairs if one["hypothesis"] == gain.hypothesis}
    for pair in gain.pairs:
        assert float(sides["left", pair.seed]["value"]) == pair.left and sides["left", pair.seed]["arm"] == "layernorm"
        assert sides["right", pair.seed]["arm"] == "none" and sides["difference", pair.seed]["arm"] == ""
    curves = [one for one in rows(files["curves.csv"]) if one["metric"] == "val/loss"]
    recorded = context.evidence.lines("val/loss")
    assert len(curves) == sum(len(steps) for steps, _ in recorded.values())
    assert float(curves[-1]["value"]) == recorded[curves[-1]["arm"], int(curves[-1]["seed"])][1][-1]


def test_csv_columns_are_documented_and_hold_nothing_that_may_not_be_shown() -> None:
    files = csv_files(told("incomplete"))
    empty = [name for name in COLUMNS if name not in ("checks.csv", "design.csv")]
    assert [len(rows(files[name])) for name in empty] == [0] * len(empty)
    assert {(one["file"], one["column"]) for one in rows(files["columns.csv"])} == {
        (name, column) for name, columns in COLUMNS.items() for column in columns
    }
    for name, columns in COLUMNS.items():
        assert files[name].decode().splitlines()[0].split(",") == list(columns)
    assert {one["status"] for one in rows(csv_files(told("inadmissible"))["findings.csv"])} == {"inadmissible"}


@pytest.mark.slow
def test_every_panel_is_drawn_in_three_forms_in_black_on_white() -> None:
    document = compose(told())
    found = figures.drawings(document)
    panels = [panel for one in document.figures for panel in one.panels]
    assert [one.panel for one in found] == panels and len({one.stem for one in found}) == len(found)
    pair = next(one.panel for one in found if one.stem == "pairs-1")
    pdf, svg, png = (figures.draw_panel(pair, form) for form in figures.FORMS)
    assert pdf.startswith(b"%PDF-") and b"layernorm lowers val/loss, n = 5" in svg and b'fill="white"' in svg
    width, _ = struct.unpack(">II", png[16:24])
    assert width == pytest.approx(300 * figures.PRINTED_SCALE, abs=2)
    captions = figures.captions(found)
    assert all(f"- `{one.stem}`: " in captions for one in found)


def test_report_writes_the_pages_by_default_and_other_forms_next_to_them(decided: House, tmp_path: Path) -> None:
    house = decided.copy(tmp_path / "house")
    before = house.snapshot()
    assert run(house.study).exit_code == 0
    assert house.snapshot() == before  # the same pages, and nothing to log
    shown = run(house.study, "--as", "csv").stdout
    assert "csv/ (10 files)" in shown and "ledger head" in shown
    after = house.snapshot()
    assert {name for name in after if name not in before} == {
        f"reports/tiny/csv/{name}" for name in (*COLUMNS, "columns.csv")
    }
    assert {name: data for name, data in after.items() if name in before} == before


@pytest.mark.slow
def test_every_form_is_written_and_the_study_still_verifies(decided: House, tmp_path: Path) -> None:
    house = decided.copy(tmp_path / "house")
    folder = house.path / "reports" / "tiny"
    done = run(house.study, "--as", "all", "--json")
    wrote = {Path(one).relative_to(folder).as_posix() for one in json.loads(done.stdout)["wrote"]}
    assert {"csv/findings.csv", "latex/report.tex", "latex/references.bib", "report.html", "report.md"} <= wrote
    stems = {name.removesuffix(".svg") for name in wrote if name.endswith(".svg")}
    assert stems and {f"{stem}.{form}" for stem in stems for form in figures.FORMS} <= wrote
    assert CliRunner().invoke(cli.app, ["verify", str(house.study)]).exit_code == 0
    assert_clean(compile_latex(folder / "latex", "report.tex"))


def test_one_page_alone_leaves_the_reports_verified(decided: House, tmp_path: Path) -> None:
    house = decided.copy(tmp_path / "house")
    folder, ledger = house.path / "reports" / "tiny", Ledger(house.path / "studies" / "ledger.jsonl")
    (folder / "report.md").unlink()
    assert run(house.study, "--as", "html").exit_code == 0
    assert not (folder / "report.md").exists()
    (folder / "report.md").write_text("another")
    assert run(house.study, "--as", "html").exit_code == 0
    page = (folder / "report.md").read_bytes()
    assert sha256_bytes(page) == ledger.entries()[-1].report_md  # one entry vouches for both


def test_what_cannot_be_reported_says_why_and_writes_nothing(decided: House, trained: House, tmp_path: Path) -> None:
    before = trained.snapshot()
    with pytest.raises(EvidenceError, match="has not been decided"):
        api.report(trained.study, forms=["latex"])
    with pytest.raises(EvidenceError, match="a report as 'latx'"):
        api.report(decided.study, forms=["latx"])
    assert trained.snapshot() == before
    house = decided.copy(tmp_path / "house")
    run_folder = next((house.path / "data" / "runs" / "tiny").glob("*/none/1"))
    run_folder.rename(house.path / "elsewhere")
    before = house.snapshot()
    with pytest.raises(EvidenceError, match="the sealed records of 1 of 6 runs are not here"):
        api.report(house.study, forms=["csv"])
    assert house.snapshot() == before


@pytest.mark.parametrize("words", [[], ["--all", "studies/x.yaml"], ["--all", "--as", "csv"]])
def test_report_wants_one_study_or_all(words: list[str]) -> None:
    done = CliRunner().invoke(cli.app, ["report", *words])
    assert done.exit_code != 0 and "required" in getattr(done.exception, "text", lambda: "")()


def test_the_index_has_every_study_whatever_became_of_it(decided: House, tmp_path: Path) -> None:
    house = decided.copy(tmp_path / "house")
    text = house.study.read_text(encoding="utf-8")
    fresh = re.sub(r"(?m)^seeds:.*(\n(- |  ).*)*$", "seeds: [11, 12, 13]", text)
    assert fresh != text
    for name in ("waiting", "draft"):
        (house.path / "studies" / f"{name}.yaml").write_text(fresh.replace("study: tiny", f"study: {name}"))
    api.register(house.path / "studies" / "waiting.yaml")
    before = house.snapshot()
    done = run("--all", "--root", house.path)
    assert done.exit_code == 0 and done.stdout.count("wrote ") == 4
    after = house.snapshot()
    assert {name: data for name, data in after.items() if name in before} == before
    page = after["reports/index.md"].decode()
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    (finding,) = json.loads(before["reports/tiny/verdict.json"])["findings"]
    effect = next(line for line in lines if line.startswith("| tiny | gain"))
    shown = f"{finding['estimate']['difference']:+.3f}"
    assert finding["outcome"] in effect and shown.replace("-", "−") in effect
    assert any(
        line.startswith("| waiting | gain | layernorm lowers val/loss | not decided | – | – |") for line in lines
    )
    assert any(line.startswith("| draft | – | – | not registered | – |") for line in lines)
    assert "6 of 6" in page and "0 of 6" in page
    assert b"not decided" in after["reports/index.html"] and b"not registered" in after["reports/studies.tex"]


def test_a_changed_verdict_file_gives_no_number_in_the_index(decided: House, tmp_path: Path) -> None:
    house = decided.copy(tmp_path / "house")
    verdict = house.path / "reports" / "tiny" / "verdict.json"
    verdict.write_text(verdict.read_text().replace("layernorm lowers", "layernorm raises"))
    page = next(
        path for path in api.report_index(workspace=api.Workspace(house.path)) if path.name == "index.md"
    ).read_text()
    assert "its verdict is not here" in page and "layernorm raises" not in page


def test_a_verdict_that_does_not_say_its_format_is_not_read(decided: House) -> None:
    verdict = json.loads((decided.path / "reports" / "tiny" / "verdict.json").read_bytes())
    assert Decision.model_validate_json(json.dumps(verdict)).format == 1
    del verdict["format"]
    with pytest.raises(ValidationError, match="format"):
        Decision.model_validate_json(json.dumps(verdict))
