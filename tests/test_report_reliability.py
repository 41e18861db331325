"""The reliability curve: right means by bin, empty bins left out, every number in its table, nothing while withheld."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest
from beside_samples import BINS, full, with_bins
from report_samples import told

from ablate.report import html, markdown
from ablate.report.blocks import Figure, Paragraph, Table
from ablate.report.charts import draw
from ablate.report.reliability import MOST_ROWS, curves, tell_reliability, told_by_bin

SUITES = {"measure": {"every": 25, "suites": ["loss", "calibration", "gradients", "speed"]}}


def test_a_bin_is_the_mean_over_the_runs_in_which_it_is_not_empty() -> None:
    account = with_bins(told(**SUITES))
    found = curves(account.evidence, list(account.study.arms))
    assert list(found) == ["none", "layernorm", "rmsnorm"]
    assert [one.number for one in found["none"]] == list(range(2, BINS))  # 0 and 1 are empty in every run
    lone, next_one = found["none"][:2]
    assert (lone.n, lone.n_runs, next_one.n) == (1, 5, 5)
    assert fmean(next_one.confidences.values()) == pytest.approx(3.5 / BINS)
    assert fmean(next_one.accuracies.values()) == pytest.approx(3.5 / BINS - 0.05 + 0.004 * 3)
    # The one run in which bin 2 holds tokens gives it a fifth of that run's share.
    assert lone.share == pytest.approx(lone.shares[1] / 5)


def test_the_figure_has_a_panel_an_arm_and_says_what_is_drawn() -> None:
    section = tell_reliability(with_bins(told(**SUITES)))
    assert section is not None
    figure, table = section.blocks
    assert isinstance(figure, Figure) and isinstance(table, Table)
    assert [panel.title for panel in figure.panels] == [
        "none, the baseline, n = 5",
        "layernorm, n = 5",
        "rmsnorm, n = 5",
    ]
    assert "the 15 registered bins of equal width" in figure.caption and "Hollow" in figure.caption
    words = figure.panels[1].words
    assert "13 bins, 5 runs; in 13 of them accuracy lies below confidence" in words
    assert table.folded and len(table.rows) == 3 * 13
    assert table.rows[0][:2] == ("none", "2: 0.133 to 0.2") and table.rows[0][-1] == "1 of 5"
    assert table.rows[1][-1] == "5" and table.rows[1][4:6] == ("0.2333", "0")


def test_the_drawing_shows_every_bin_and_the_diagonal() -> None:
    section = tell_reliability(with_bins(told(**SUITES)))
    assert section is not None and isinstance(section.blocks[0], Figure)
    drawn = draw(section.blocks[0].panels[1].chart)
    assert drawn.startswith("<svg") and drawn.count("<path") >= 13 + 2
    assert "confidence" in drawn and "accuracy" in drawn and "<script" not in drawn


def test_without_a_partly_empty_bin_nothing_is_called_hollow() -> None:
    account = with_bins(told(**SUITES))
    frame = account.evidence.metrics
    kept = frame[~frame["metric"].str.fullmatch(r"calibration/bin_(confidence|accuracy)_2")]
    section = tell_reliability(replace(account, evidence=replace(account.evidence, metrics=kept)))
    assert section is not None and isinstance(section.blocks[0], Figure)
    assert "Hollow" not in section.blocks[0].caption


def test_only_bins_that_this_section_tells_are_counted_as_told() -> None:
    account = with_bins(told(**SUITES))
    names = told_by_bin(account)
    assert "calibration/bin_accuracy_2" in names and "calibration/bin_share_0" in names
    frame = account.evidence.metrics
    lone = frame[~frame["metric"].str.startswith("calibration/bin_confidence")]
    assert told_by_bin(replace(account, evidence=replace(account.evidence, metrics=lone))) == set()


def test_more_bins_than_a_page_holds_are_pointed_to() -> None:
    section = tell_reliability(with_bins(told(measure=SUITES["measure"] | {"calibration": {"bins": 500}}), bins=500))
    assert section is not None and isinstance(section.blocks[1], Paragraph)
    assert f"more than {MOST_ROWS:,} rows" in section.blocks[1].text and "metrics.parquet" in section.blocks[1].text


def test_nothing_is_drawn_while_runs_are_missing_or_where_no_bin_was_recorded() -> None:
    assert tell_reliability(told()) is None
    assert tell_reliability(with_bins(told("incomplete", **SUITES))) is None
    section = tell_reliability(with_bins(told("inadmissible", **SUITES)))
    assert section is not None and isinstance(section.blocks[0], Paragraph)


def test_both_pages_tell_the_bins_and_the_curve_has_a_name_for_those_who_cannot_see_it() -> None:
    account = full()
    page, text = html.render(account), markdown.render(account)
    assert 'aria-label="Reliability of rmsnorm: accuracy over confidence in 13 bins' in page
    assert "| none | 3: 0.2 to 0.267 |" in text and "Figure (drawn in report.html): Accuracy over confidence" in text
