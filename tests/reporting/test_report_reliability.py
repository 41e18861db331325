"""The reliability curve: right means by bin, empty bins left out, every number in its table, nothing while withheld."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest
from metric_samples import BINS, with_bins
from report_samples import told

from ablate.reporting.blocks import Figure, Paragraph, Table
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.reliability import MOST_ROWS, Bin, bins_of, drawn, reliability_section, shown_by_bin

SUITES = {"measure": {"every": 25, "suites": ["loss", "calibration", "gradients", "speed"]}}


def test_a_bin_is_the_mean_over_the_runs_in_which_it_is_not_empty() -> None:
    account = with_bins(told(**SUITES))
    found = drawn(bins_of(account.evidence, list(account.study.arms)))
    assert list(found) == ["none", "layernorm", "rmsnorm"]
    assert [one.number for one in found["none"]] == list(range(2, BINS))  # 0 and 1 are empty in every run
    lone, next_one = found["none"][:2]
    assert (lone.n, lone.n_runs, next_one.n) == (1, 5, 5)
    assert fmean(next_one.confidences.values()) == pytest.approx(3.5 / BINS)
    assert fmean(next_one.accuracies.values()) == pytest.approx(3.5 / BINS - 0.05 + 0.004 * 3)
    # The one run in which bin 2 holds tokens gives it a fifth of that run's share.
    assert lone.share == pytest.approx(lone.shares[1] / 5)


def lacking(account: ReportContext, metric: str, *seeds: int, arm: str = "none") -> ReportContext:
    """As a user's own trainer could have left it: without a value of some runs."""
    frame = account.evidence.metrics
    gone = (frame["metric"] == metric) & (frame["variant"] == arm) & frame["seed"].isin(seeds)
    assert gone.sum() == len(seeds)
    return replace(account, evidence=replace(account.evidence, metrics=frame[~gone]))


def bin_of(account: ReportContext, number: int, arm: str = "none") -> Bin:
    (found,) = [one for one in bins_of(account.evidence, list(account.study.arms))[arm] if one.number == number]
    return found


def words_of(account: ReportContext) -> tuple[str, str, list[tuple[str, ...]]]:
    """What is warned of, the caption, and the rows of the table."""
    section = reliability_section(account)
    assert section is not None
    warned = " ".join(one.text for one in section.blocks if isinstance(one, Paragraph))
    (figure,) = (one for one in section.blocks if isinstance(one, Figure))
    (table,) = (one for one in section.blocks if isinstance(one, Table))
    return warned, figure.caption, list(table.rows)


def test_a_run_with_a_share_and_no_confidence_is_missing_and_not_empty() -> None:
    whole = with_bins(told(**SUITES))
    account = lacking(whole, "calibration/bin_confidence_5", 2, 4)
    one, before = bin_of(account, 5), bin_of(whole, 5)
    assert (one.missing, one.n, one.n_runs, before.missing) == ((2, 4), 3, 5, ())
    assert one.share == pytest.approx(before.share), "its share is known all the same, and is not 0"
    assert set(one.accuracies) == set(one.confidences) == {1, 3, 5}
    warned, caption, rows = words_of(account)
    assert "Not recorded whole: bin 5 of none, seeds 2 and 4." in warned and "These are not empty bins" in warned
    assert "Hollow: empty or not recorded in some of the runs" in caption
    cells = {row[:2]: row[-1] for row in rows}
    assert cells["none", "5: 0.333 to 0.4"] == "3 of 5, 2 not recorded" and cells["none", "2: 0.133 to 0.2"] == "1 of 5"
    told_here = shown_by_bin(account)
    assert not any(name.endswith("_5") for name in told_here) and "calibration/bin_accuracy_6" in told_here


def test_a_bin_that_no_run_recorded_whole_is_on_no_curve_and_is_named() -> None:
    account = lacking(with_bins(told(**SUITES)), "calibration/bin_accuracy_7", 1, 2, 3, 4, 5)
    assert bin_of(account, 7).n == 0
    assert 7 not in {one.number for one in drawn(bins_of(account.evidence, list(account.study.arms)))["none"]}
    warned, _, rows = words_of(account)
    assert "bin 7 of none, seeds 1, 2, 3, 4 and 5" in warned
    assert len(rows) == 3 * 13 - 1
    assert "calibration/bin_share_7" not in shown_by_bin(account)


def test_without_a_share_a_bin_is_empty_only_where_the_others_hold_all_tokens() -> None:
    account = with_bins(told(**SUITES))
    for metric in ("share", "confidence", "accuracy"):
        account = lacking(account, f"calibration/bin_{metric}_6", 3)
    assert bin_of(account, 6).missing == (3,), "the other shares of the run lack some tokens"
    # Of the made-up runs only those of the first seed have shares that add up to 1.
    frame = with_bins(told(**SUITES)).evidence.metrics
    silent = frame["metric"].str.startswith("calibration/bin_share") & (frame["value"] == 0.0)
    one = bin_of(replace(account, evidence=replace(account.evidence, metrics=frame[~silent])), 2)
    assert one.missing == (2, 3, 4, 5) and set(one.shares) == {1}
    bare = frame[~(silent & (frame["seed"] == 1))]
    assert 0 not in {one.number for one in bins_of(replace(account.evidence, metrics=bare), ["none"])["none"]}


def test_only_bins_that_this_section_tells_are_counted_as_told() -> None:
    account = with_bins(told(**SUITES))
    names = shown_by_bin(account)
    assert "calibration/bin_accuracy_2" in names and "calibration/bin_share_0" in names
    frame = account.evidence.metrics
    lone = frame[~frame["metric"].str.startswith("calibration/bin_confidence")]
    assert shown_by_bin(replace(account, evidence=replace(account.evidence, metrics=lone))) == set()


@pytest.mark.slow
def test_more_bins_than_a_page_holds_are_pointed_to() -> None:
    section = reliability_section(with_bins(told(measure=SUITES["measure"] | {"calibration": {"bins": 500}}), bins=500))
    assert section is not None and isinstance(section.blocks[1], Paragraph)
    assert f"more than {MOST_ROWS:,} rows" in section.blocks[1].text and "metrics.parquet" in section.blocks[1].text


def test_nothing_is_drawn_while_runs_are_missing_or_where_no_bin_was_recorded() -> None:
    assert reliability_section(told()) is None
    assert reliability_section(with_bins(told("incomplete", **SUITES))) is None
    section = reliability_section(with_bins(told("inadmissible", **SUITES)))
    assert section is not None and isinstance(section.blocks[0], Paragraph)
