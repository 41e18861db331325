"""What a study asks its report to show: a chart each and one table, right values in both, and the rest in CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from evidence_factory import make_evidence
from metric_samples import BINS, as_embnorm, full, with_bins, with_blocks, with_rows
from report_samples import ENDINGS, Ending, document, told, told_of

from ablate.reporting import charts, markdown
from ablate.reporting.blocks import Figure, Paragraph, Table
from ablate.reporting.context import ReportContext
from ablate.reporting.description import recorded_metrics, summarise_arms
from ablate.reporting.document import compose
from ablate.reporting.exports.files import csv_files
from ablate.reporting.sections.curves import diagnostics_section
from prereg.errors import SpecError
from prereg.registry.amendments import AMENDMENT_EFFECTS
from prereg.study.presentation import DIAGNOSTICS
from prereg.study.spec import study_from_document

ALL_SUITES = {"every": 25, "suites": ["loss", "calibration", "activations", "gradients", "speed"]}


def showing(account: ReportContext, *names: str) -> ReportContext:
    """The same account of a study that asks for these diagnostics."""
    study = account.study
    asked = study.model_copy(update={"report": study.report.model_copy(update={"show": names})})
    return replace(account, registration=account.registration.model_copy(update={"study": asked}))


def figures_of(account: ReportContext, *names: str) -> dict[str, Figure]:
    section = diagnostics_section(showing(account, *names))
    return {} if section is None else {one.name: one for one in section.blocks if isinstance(one, Figure)}


def drawn(figure: Figure) -> str:
    return "".join(charts.draw_chart(panel.make) for panel in figure.panels)


@pytest.mark.slow
def test_nothing_is_shown_unless_the_study_asks() -> None:
    assert diagnostics_section(as_embnorm()) is None
    assert "## Diagnostics" not in markdown.render_markdown(as_embnorm())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("positions", "Loss by position"),
        ("token_classes", "Embedding norm by class of token"),
        ("reliability", "Accuracy over confidence"),
        ("cost", "Cost and val/loss"),
        ("differences", "val/loss minus none"),
        ("grad/layer", "grad/layer by block"),
        ("val/perplexity", "val/perplexity by step"),
        ("embedding/norm", "embedding/norm by step"),
        ("train/grad_norm", "train/grad_norm by step"),
        ("grad/first_layer", "grad/first_layer by block"),
        ("power", "Power by number of seeds"),
    ],
)
def test_each_diagnostic_is_a_chart_of_every_arm_with_its_n(name: str, figure: str) -> None:
    found = figures_of(as_embnorm(), name)
    (made,) = [one for title, one in found.items() if title.startswith(figure)]
    assert made.panels and made.panels[0].make().to_dict()  # by altair's schema
    if name == "power":
        return
    assert "n: none 5, layernorm 5 and rmsnorm 5" in made.caption or "n: layernorm 5 and rmsnorm 5" in made.caption
    svg = drawn(made)
    assert all(f">{arm}</text>" in svg for arm in ("layernorm", "rmsnorm"))
    assert "(no interval)" in made.caption


def test_every_diagnostic_is_in_the_table_that_documents_them() -> None:
    account = as_embnorm()
    assert {name for name in DIAGNOSTICS if figures_of(account, name)} == set(DIAGNOSTICS)


def test_a_metric_without_a_curve_has_its_final_values_and_an_unrecorded_one_is_named() -> None:
    section = diagnostics_section(showing(told(), "grad/norm", "embedding/norm"))
    assert section is not None
    (table,) = [one for one in section.blocks if isinstance(one, Table)]
    assert [row[:2] for row in table.rows] == [("grad/norm", arm) for arm in ("none", "layernorm", "rmsnorm")]
    (warned,) = [one.text for one in section.blocks if isinstance(one, Paragraph)]
    assert warned == "'embedding/norm' is asked for and was not recorded."


def test_a_bin_is_drawn_from_the_runs_that_recorded_both_of_its_numbers() -> None:
    account = with_bins(told(measure=ALL_SUITES))
    lost = "calibration/bin_confidence_5"
    frame = account.evidence.metrics
    gone = (frame["metric"] == lost) & (frame["variant"] == "none") & frame["seed"].isin([2, 4])
    assert gone.sum() == 2
    part = replace(account, evidence=replace(account.evidence, metrics=frame[~gone]))
    data = {}
    for name, one in (("whole", account), ("part", part)):
        (panel,) = figures_of(one, "reliability")["Accuracy over confidence"].panels
        rows = [row for chart in panel.make().layer for row in getattr(chart.data, "values", ())]
        data[name] = {round(row["x"], 6): row["mean"] for row in rows if "low" in row}
    place = round(5.5 / BINS, 6)
    assert data["whole"][place] == pytest.approx(5.5 / BINS - 0.05 + 0.004 * 3)
    assert fmean(0.004 * seed for seed in (1, 3, 5)) == pytest.approx(0.012)
    # Bins 0 and 1 are empty in every run, and are on no curve.
    assert len(data["whole"]) == BINS - 2
    assert figures_of(part, "reliability")["Accuracy over confidence"].panels


@pytest.mark.parametrize("ending", ["incomplete", "inadmissible"])
def test_diagnostics_are_withheld_and_marked_as_findings_are(ending: Ending) -> None:
    section = diagnostics_section(showing(full(ending), "reliability"))
    if ending == "incomplete":
        assert section is None
    else:
        assert section is not None and isinstance(section.blocks[0], Paragraph)
        assert section.blocks[0].text.startswith("Not to be used")


def test_values_over_many_powers_of_ten_have_a_logarithmic_scale_and_of_either_sign_a_plain_one() -> None:
    account = with_blocks(told(), {"none": 3, "layernorm": 3, "rmsnorm": 3})
    assert "The scale is logarithmic." in figures_of(account, "grad/layer")["grad/layer by block"].caption
    metrics = account.evidence.metrics.copy()
    metrics.loc[metrics["metric"] == "grad/layer_0", "value"] *= -1.0
    signed = replace(account, evidence=replace(account.evidence, metrics=metrics))
    figure = figures_of(signed, "grad/layer")["grad/layer by block"]
    assert "logarithmic" not in figure.caption and drawn(figure).startswith("<svg")


def test_no_recorded_final_value_is_lost_they_are_in_values_csv() -> None:
    account = with_blocks(full(), {"none": 3, "layernorm": 3, "rmsnorm": 2})
    account = with_rows(account, [(run.variant, run.seed, 300, "theirs/odd", 7.0) for run in account.evidence.runs])
    rows = list(csv.DictReader(io.StringIO(csv_files(account)["values.csv"].decode())))
    values = {(row["arm"], int(row["seed"]), row["metric"]): float(row["value"]) for row in rows}
    checked = 0
    for metric in recorded_metrics(account.evidence):
        for cell, value in account.evidence.final(metric).items():
            assert values[*cell, metric] == value
            checked += 1
        for summary in summarise_arms(account.evidence, metric, list(account.study.arms)):
            mine = [value for (arm, _, name), value in values.items() if (arm, name) == (summary.arm, metric)]
            assert summary.mean == pytest.approx(fmean(mine)) and summary.n == len(mine)
    assert checked > 500


def test_what_the_page_leaves_out_of_tests_effects_checks_and_design_is_in_csv() -> None:
    account = told()
    files = {name: list(csv.DictReader(io.StringIO(data.decode()))) for name, data in csv_files(account).items()}
    for finding in account.decision.findings:
        mine = [row for row in files["tests.csv"] if row["hypothesis"] == finding.hypothesis]
        assert [row["decides"] for row in mine] == ["true", "false"] and finding.estimate is not None
        assert float(mine[0]["se"]) == finding.estimate.se and float(mine[0]["correlation"]) == finding.correlation
        effects = {row["effect"]: row for row in files["effects.csv"] if row["hypothesis"] == finding.hypothesis}
        assert {name: float(row["value"]) for name, row in effects.items()} == {
            effect.name: effect.value for effect in finding.effects
        }
    assert {row["check"]: row["found"] for row in files["checks.csv"]} == {
        check.name: check.found for check in account.decision.checks
    }
    assert account.registration.design is not None
    scenarios = account.registration.design["scenarios"]
    assert isinstance(scenarios, list) and {row["truth"] for row in files["design.csv"]} == {
        one["name"] for one in scenarios if isinstance(one, dict)
    }


@pytest.mark.parametrize(
    ("show", "words"),
    [
        (["nothing/such"], "a metric of the study"),
        (["reliabilty"], "did you mean 'reliability'"),
        (["cost", "cost"], "each diagnostic once"),
        (["cost", "power", "positions", "reliability", "differences"], "at most 4"),
    ],
)
def test_a_diagnostic_that_does_not_exist_is_refused_at_its_place(show: list[str], words: str) -> None:
    with pytest.raises(SpecError) as refused:
        study_from_document(document(report={"show": show}))
    assert str(refused.value.where).startswith("report.show")
    assert words in f"{refused.value.found} {refused.value.required} {refused.value.fix}"


def test_an_amendment_of_what_is_shown_touches_nothing() -> None:
    (effect,) = [one for one in AMENDMENT_EFFECTS if "report" in one.fields]
    assert effect.scope == "nothing" and effect.keeps_runs


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_report_has_at_most_nine_charts_of_three_claims_and_as_many_as_asked_for_more(ending: Ending) -> None:
    account = told(ending)
    n = sum(len(figure.panels) for figure in compose(account).figures)
    more = sum(len(figure.panels) for figure in compose(showing(account, "cost", "power")).figures)
    assert n <= 9 and more - n == (0 if ending == "incomplete" else 2)


@pytest.mark.slow
def test_claims_that_read_the_same_values_share_their_pairs(**_: Any) -> None:
    same = {"claim": "layernorm does_not_worsen val/loss", "smallest": 0.02, "role": "guardrail"}
    hypotheses = document()["hypotheses"] | {"same_ln": same}
    account = told(hypotheses=hypotheses)
    (figure,) = [one for one in compose(account).figures if one.name == "Pairs"]
    assert [panel.title.split(":")[0] for panel in figure.panels] == ["gain_ln and same_ln", "gain_rms", "harm_ln"]


def test_a_study_of_few_runs_is_described_as_well() -> None:
    study = study_from_document(document(seeds=[1, 2, 3]))
    assert "n: none 3" in figures_of(told_of(make_evidence(study)), "differences", "cost")["Cost and val/loss"].caption
