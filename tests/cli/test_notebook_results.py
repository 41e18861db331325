"""What `decide` and `results` return: frames with the numbers of the CSV files, figures, the first screen; and what of
an unfinished or inadmissible study they show, which is no more than the command line does."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import House, tiny_document
from report_samples import ENDINGS, LOSS, Ending, told

import ablate
from ablate.frame import JudgedFrame
from ablate.notebook.results import Decided
from ablate.reporting.context import not_to_be_used
from ablate.reporting.exports import frames
from ablate.reporting.exports.files import csv_files
from prereg.errors import EvidenceError, StudyError

ASKED: dict[str, Callable[[Decided], object]] = {
    "findings": lambda one: one.findings,
    "runs": lambda one: one.runs,
    "curves": lambda one: one.curves(),
    "a curve": lambda one: one.curves("val/loss"),
    "pairs": lambda one: one.pairs(),
    "figures": lambda one: one.figures,
    "a figure": lambda one: one.figure("differences-wide-1"),
}


@cache
def decided_as(ending: Ending = "decided") -> Decided:
    context = told(ending)
    return Decided(context.decision, context.registration, context.ledger_head, context=context)


@pytest.fixture
def whole() -> Decided:
    return decided_as()


def from_csv(result: Decided, name: str) -> pd.DataFrame:
    assert result.context is not None
    return pd.read_csv(io.BytesIO(csv_files(result.context)[name]))


def test_findings_and_curves_are_those_of_the_csv_files_and_every_column_is_documented(whole: Decided) -> None:
    for frame, name in ((whole.findings, "findings.csv"), (whole.curves(), "curves.csv")):
        pd.testing.assert_frame_equal(frame, from_csv(whole, name), check_dtype=False, rtol=1e-12)
    assert list(whole.pairs()) == list(frames.COLUMNS["pairs"]) and list(whole.findings) == list(
        frames.COLUMNS["findings"]
    )
    metrics = ["val/loss", "val/accuracy", "speed/tokens_per_s"]
    assert list(whole.runs) == [*frames.COLUMNS["runs"], *metrics] and len(whole.runs) == 15
    assert (whole.findings.filter(like="p_") > 0).all(axis=None)


def test_a_pair_is_a_row_and_its_difference_the_variant_minus_the_baseline(whole: Decided) -> None:
    pairs = whole.pairs("gain_ln")
    assert pairs["variant"].unique() == ["layernorm"] and pairs["baseline"].unique() == ["none"]
    expected = np.array(LOSS["layernorm"]) - np.array(LOSS["none"])
    np.testing.assert_allclose(pairs["difference"], expected, rtol=1e-12)
    assert (pairs["difference"] == pairs["left"] - pairs["right"]).all()
    assert set(whole.pairs("val/loss")["hypothesis"]) == {"gain_ln", "gain_rms"} and len(whole.pairs()) == 15
    long = from_csv(whole, "pairs.csv").pivot_table(index=["hypothesis", "seed"], columns="side", values="value")
    wide = whole.pairs().set_index(["hypothesis", "seed"])[["difference", "left", "right"]].sort_index()
    np.testing.assert_allclose(long[["difference", "left", "right"]], wide, rtol=1e-12)
    with pytest.raises(StudyError, match="neither a hypothesis nor a metric") as refused:
        whole.pairs("gain_l")
    assert "gain_ln" in refused.value.fix


def test_a_number_that_does_not_exist_is_missing_and_no_zero(whole: Decided) -> None:
    assert whole.context is not None
    runs = tuple(
        run.model_copy(update={"status": "diverged"}) if run.cell == ("none", 2) else run
        for run in whole.context.evidence.runs
    )
    lost = replace(whole, context=replace(whole.context, evidence=replace(whole.context.evidence, runs=runs)))
    row = lost.runs.set_index(["arm", "seed"]).loc[("none", 2)]
    assert row["ended"] == "diverged" and np.isnan(row["val/loss"])
    assert lost.runs["val/loss"].isna().sum() == 1 and lost.runs["val/loss"].dtype == float
    blank = whole.decision.findings[0].model_copy(
        update={"estimate": None, "simultaneous": None, "margin": None, "p_support": None, "p_refute": None}
    )
    empty = replace(whole, decision=whole.decision.model_copy(update={"findings": (blank,)}), context=None).findings
    numbers = ["difference", "se", "df", "p_support", "p_refute", "interval_low", "alone_level", "n_items"]
    assert empty[numbers].isna().all(axis=None) and set(empty[numbers].dtypes) == {np.dtype(float)}


@pytest.mark.parametrize("asked", ASKED)
def test_an_unfinished_study_shows_no_contrast_by_any_door(asked: str) -> None:
    unfinished = decided_as("incomplete")
    with pytest.raises(EvidenceError, match="13 of 15 planned runs have ended; nothing is judged") as refused:
        ASKED[asked](unfinished)
    assert refused.value.fix == 'ablate.run("studies/embnorm.yaml")'
    between = unfinished.decision.model_copy(update={"status": "continue", "because": "Look 1 has settled nothing."})
    with pytest.raises(EvidenceError, match="Look 1 has settled nothing"):
        ASKED[asked](replace(unfinished, decision=between))
    assert unfinished.verdict is None and unfinished.status == "unfinished"


def test_what_an_unfinished_study_shows_of_itself_holds_no_value_and_no_drawing() -> None:
    unfinished = decided_as("incomplete")
    for text in (unfinished._repr_html_(), repr(unfinished), str(unfinished), unfinished.headline):
        assert "13 of 15 planned runs have ended" in text or text == repr(unfinished)
        assert "<svg" not in text and "val/loss" not in text
        assert not [value for values in LOSS.values() for value in values if f"{value:.3f}"[:5] in text]


def test_findings_of_inadmissible_evidence_say_so_wherever_they_go() -> None:
    result = decided_as("inadmissible")
    assert result.verdict is None and "inadmissible" in result.headline
    for frame in (result.findings, result.pairs(), result.curves(), result.runs):
        assert set(frame["status"]) == {"inadmissible"}
    html = result._repr_html_()
    assert "<svg" not in html and "Failed check &#39;no early look&#39;" in html and "0.0489" not in html
    for name in result.figures[:3]:
        assert not_to_be_used().split(":")[0] in result.figure(name).title.subtitle[0]


def checked(result: Decided, names: tuple[str, ...]) -> None:
    for name in names:
        chart = result.figure(name).to_dict()  # checked against the schema of Vega-Lite
        assert chart["title"]["subtitle"] and chart["width"] > 0


def test_a_figure_is_a_chart_with_its_caption_and_an_unknown_one_names_the_known(whole: Decided) -> None:
    assert "pairs-1" in whole.figures and not [name for name in whole.figures if "narrow" in name]
    checked(whole, ("differences-wide-1", "pairs-1"))
    with pytest.raises(StudyError, match="no figure is named 'pairs'") as refused:
        whole.figure("pairs")
    assert "pairs-1" in refused.value.required and "pairs-" in refused.value.fix


@pytest.mark.slow
@pytest.mark.parametrize("ending", [one for one in ENDINGS if one != "incomplete"])
def test_every_figure_is_a_chart(ending: Ending) -> None:
    checked(decided_as(ending), decided_as(ending).figures)


def test_the_first_screen_is_small_escaped_and_says_verdict_size_n_and_trust() -> None:
    title = "A <script>alert(1)</script> study"
    result = replace(decided_as(), decision=decided_as().decision.model_copy(update={"title": title}))
    html = result._repr_html_()
    assert len(html) < 25_000 and "<script" not in html and "&lt;script&gt;" in html
    for said in ("adopt layernorm", "97.5% CI 0.0400 to 0.0578, n = 5 pairs", "Complete, matched, recomputed.", "<svg"):
        assert said in html
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids)) and all(one.startswith("ablate-") for one in ids)
    assert repr(result) == "Decided(study='embnorm', status='decided', verdict='adopt layernorm')"
    assert str(result).startswith("DECIDED: adopt layernorm") and max(map(len, str(result).splitlines())) <= 80


def test_a_design_shows_itself_before_any_data() -> None:
    found = ablate.design(tiny_document(assume={"metrics": {"val/loss": {"sd": 0.02, "correlation": 0.5}}}))
    assert repr(found) == "Design(study='tiny', test='paired_t', n_seeds=3, n_runs=6)"
    html = found._repr_html_()
    assert "Design, before any data" in html and "<td>gain</td>" in html and "<script" not in html


def test_without_pairs_there_are_none_and_a_judged_table_has_the_same_frames() -> None:
    table = pd.DataFrame(
        {
            "variant": ["a"] * 4 + ["b"] * 4,
            "seed": [*range(4), *range(4)],
            "loss": [2.0, 2.1, 2.2, 2.3, 1.7, 1.9, 1.8, 2],
        }
    )
    paired = ablate.judge_frame(table, "b lowers loss by at least 0.1")
    assert isinstance(paired, JudgedFrame) and paired.status == "exploratory"
    assert set(paired.findings["status"]) == {"exploratory"} and paired.findings["n"].tolist() == [4]
    np.testing.assert_allclose(paired.pairs()["difference"], [-0.3, -0.2, -0.4, -0.3])
    assert paired.figures == ("differences-wide",) and paired.figure("differences-wide").to_dict()["title"]["subtitle"]
    html = paired._repr_html_()
    assert "Exploratory" in html and "Nothing here was promised" in html and "n = 4" in html and "<svg" in html
    assert repr(paired).endswith("status='exploratory')")
    with pytest.raises(StudyError, match="has no pairs: its test is welch"):
        ablate.judge_frame(table, "b lowers loss by at least 0.1", test="welch").pairs()


@pytest.mark.slow
def test_results_gives_the_decision_again_and_changes_nothing(decided: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(decided.path)
    before = decided.snapshot()
    study = ablate.load("studies/tiny.yaml")
    found = [ablate.results(one) for one in ("studies/tiny.yaml", "tiny", study, tiny_document())]
    assert decided.snapshot() == before
    again = ablate.decide(study)
    for one in found:
        assert one.decision == again.decision and one.findings.equals(again.findings)
        assert one.curves().equals(again.curves()) and one.runs.equals(again.runs) and one.figures == again.figures
    loss = found[0].runs.set_index(["arm", "seed"])["val/loss"].unstack("arm")
    pairs = found[0].pairs("gain").set_index("seed")
    np.testing.assert_array_equal(pairs["difference"], loss["layernorm"] - loss["none"])
    assert ablate.status(study).count("done") == 6


def test_results_refuses_what_is_not_the_last_decision_and_needs_its_records(
    decided: House, trained: House, tmp_path: Path
) -> None:
    with pytest.raises(EvidenceError, match="has not been decided"):
        ablate.results(trained.study)
    house = decided.copy(tmp_path / "house")
    verdict = house.path / "reports" / "tiny" / "verdict.json"
    kept = verdict.read_bytes()
    verdict.write_bytes(kept.replace(b"layernorm", b"layernarm", 1))
    with pytest.raises(EvidenceError, match="is not the decision taken"):
        ablate.results(house.study)
    verdict.write_bytes(kept)
    shutil.rmtree(house.path / "data" / "runs" / "tiny")
    with pytest.raises(EvidenceError, match="the sealed records of 6 of 6 runs are not here"):
        ablate.results(house.study)


def test_an_early_look_recorded_afterwards_leaves_no_results(decided: House, tmp_path: Path) -> None:
    house = decided.copy(tmp_path / "house")
    entries = [entry for entry in api_ledger(house) if entry.event == "sealed"]
    ablate.record_look(house.study, reason="seen by hand", took_place=entries[0].at)
    with pytest.raises(EvidenceError, match="an early look was recorded after the decision"):
        ablate.results(house.study)


def api_ledger(house: House) -> Any:
    from prereg.registry.ledger import Ledger

    return Ledger(house.path / "studies" / "ledger.jsonl").entries()


@pytest.mark.slow
def test_results_of_a_bundle_are_those_of_the_study(decided: House, tmp_path: Path) -> None:
    path = tmp_path / "tiny.ablate.zip"
    ablate.bundle(decided.study, out=path)
    bundled, own = ablate.results(path), ablate.results(decided.study)
    assert bundled.decision == own.decision and bundled.curves().equals(own.curves())


def test_a_study_in_memory_without_a_file_is_refused_with_the_line_that_writes_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(house.path)
    study, before = ablate.load(tiny_document()), house.snapshot()
    assert ablate.load(study) is study and ablate.design(study) == ablate.design(tiny_document())
    for call in (
        ablate.register,
        ablate.run,
        ablate.status,
        ablate.decide,
        ablate.report,
        ablate.results,
        lambda one: ablate.early_results(one, reason="why"),
    ):
        for given in (study, tiny_document()):
            with pytest.raises(StudyError, match="'tiny' is in memory alone") as refused:
                call(given)
            assert refused.value.fix == 'study.to_yaml("studies/tiny.yaml")'
    assert house.snapshot() == before
    exec_line = refused.value.fix
    study.to_yaml(exec_line.partition('"')[2].rpartition('"')[0])
    assert ablate.status(study).study == "tiny"
    with pytest.raises(StudyError, match="differs in seeds") as refused:
        ablate.register(tiny_document(seeds=[1, 2, 3, 4]))
    assert "replace=True" in refused.value.fix and not (house.path / "studies" / "tiny.lock.json").exists()


def test_every_public_name_is_there_and_importing_them_loads_nothing_heavy() -> None:
    assert all(getattr(ablate, name) is not None for name in ablate.__all__) and set(ablate.__all__) <= set(dir(ablate))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ablate.nothing  # noqa: B018
    code = "import sys, ablate; print(' '.join(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "pandas", "altair", "numpy", "scipy", "pyarrow", "pydantic", "statsmodels", "pingouin", "yaml"}
    assert not set(done.stdout.split()) & heavy
