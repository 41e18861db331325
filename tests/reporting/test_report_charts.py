"""Figures and the description behind them: thinning, means, label places, and drawings that hold what they claim."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import FLOOR, LOSS, told

from ablate.records.evidence import Evidence
from ablate.reporting import charts, html
from ablate.reporting.charts import Extent, axis_range, forest, lines
from ablate.reporting.description import (
    LINES,
    MOST_POINTS,
    by_step,
    differences_by_step,
    recorded_metrics,
    summarise_arms,
)
from ablate.reporting.view import views_of

ARMS = ("none", "layernorm", "rmsnorm")


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=14), st.floats(0.01, 5))
def test_labels_keep_their_distance_and_their_order(values: list[float], gap: float) -> None:
    places = charts.spread_labels(values, gap)
    ordered = sorted(places)
    assert all(above - below >= gap * (1 - 1e-6) for below, above in pairwise(ordered))
    ranked = sorted(range(len(values)), key=lambda at: values[at])
    assert [places[at] for at in ranked] == ordered


def test_labels_that_do_not_collide_stay_where_they_are() -> None:
    assert charts.spread_labels([3.0, 1.0, 2.0], 0.5) == [3.0, 1.0, 2.0]


def test_means_and_deviations_by_arm_are_those_of_the_final_values() -> None:
    by_arm = {summary.arm: summary for summary in summarise_arms(told().evidence, "val/loss", ARMS)}
    values = LOSS["layernorm"]
    mean = sum(values) / 5
    assert by_arm["layernorm"].mean == pytest.approx(mean)
    assert by_arm["layernorm"].sd == pytest.approx(math.sqrt(sum((value - mean) ** 2 for value in values) / 4))
    assert by_arm["layernorm"].n == 5
    assert summarise_arms(told().evidence, "no/such", ARMS) == ()


def test_a_line_is_the_mean_of_every_run_and_its_band_their_range() -> None:
    frame = by_step(told().evidence, "val/loss", ARMS)
    assert list(frame["arm"].unique()) == list(ARMS) and set(frame["n"]) == {5}
    last = frame[(frame["arm"] == "none") & (frame["x"] == 300)].iloc[0]
    assert last["mean"] == pytest.approx(sum(LOSS["none"]) / 5)
    assert (last["low"], last["high"]) == (pytest.approx(min(LOSS["none"])), pytest.approx(max(LOSS["none"])))


def test_differences_by_step_end_at_the_differences_that_were_tested() -> None:
    whole = told()
    frame = differences_by_step(whole.evidence, "val/loss", ARMS, "none")
    assert set(frame["arm"]) == {"layernorm", "rmsnorm"}
    finding = whole.decision.findings[0]
    last = frame[(frame["arm"] == "layernorm") & (frame["x"] == 300)].iloc[0]
    assert finding.estimate is not None and last["mean"] == pytest.approx(finding.estimate.difference)
    assert last["low"] == pytest.approx(min(pair.difference for pair in finding.pairs))


def test_a_mean_stops_where_the_first_run_of_the_arm_stops() -> None:
    whole = told()
    frame = whole.evidence.metrics
    cut = frame[~((frame["variant"] == "none") & (frame["seed"] == 1) & (frame["step"] > 100))]
    shown = by_step(replace(whole.evidence, metrics=cut), "val/loss", ARMS)
    assert shown[shown["arm"] == "none"]["x"].max() == 100 and shown[shown["arm"] == "layernorm"]["x"].max() == 300


def test_a_metric_recorded_once_has_no_curve() -> None:
    assert by_step(told().evidence, "grad/norm", ARMS).empty
    assert "grad/norm" in recorded_metrics(told().evidence)


def test_a_thinned_line_keeps_ends_and_spikes_and_invents_nothing() -> None:
    evidence = _longer(told(every=1).evidence, 10)
    spiked = evidence.metrics.copy()
    at = (
        (spiked["variant"] == "none")
        & (spiked["seed"] == 2)
        & (spiked["step"] == 1234)
        & (spiked["metric"] == "val/loss")
    )
    assert at.sum() == 1
    spiked.loc[at, "value"] = 99.0
    frame = by_step(replace(evidence, metrics=spiked), "val/loss", ARMS)
    mine = frame[frame["arm"] == "none"]
    assert frame.attrs["thinned"] > 1 and len(mine) <= MOST_POINTS + 1
    assert (
        mine["high"].max() == 99.0 and mine["x"].iloc[0] == 0 and mine["x"].iloc[-1] == evidence.metrics["step"].max()
    )
    recorded = evidence.metrics[(evidence.metrics["variant"] == "none") & (evidence.metrics["metric"] == "val/loss")]
    assert set(mine["x"]) <= set(recorded["step"]) and mine["low"].min() == recorded["value"].min()


@pytest.mark.slow
def test_thousands_of_evaluations_are_thinned_and_the_page_says_so() -> None:
    whole = told(every=1)
    page = html.render_html(replace(whole, evidence=_longer(whole.evidence, 10)))
    assert re.search("Of every [0-9]+ evaluations one is drawn", page)
    assert len(page) < 1_500_000


def _longer(evidence: Evidence, times: int) -> Evidence:
    frame = evidence.metrics
    parts = [frame.assign(step=frame["step"] * times + shift) for shift in range(times)]
    last = frame["step"].max()
    whole = pd.concat([part[part["step"] <= last * times] for part in parts])
    runs = tuple(run.model_copy(update={"steps": int(last * times)}) for run in evidence.runs)
    return replace(evidence, metrics=whole, runs=runs)


def text_of(svg: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", piece) for piece in re.findall(r"<text.*?</text>", svg, flags=re.DOTALL))


def test_a_forest_plot_writes_each_name_number_outcome_and_n() -> None:
    findings = views_of(told().decision.findings[:2], told().study)
    svg = text_of(charts.draw_chart(lambda: forest(findings, wide=True)))
    for needed in (
        "gain_ln",
        "gain_rms",
        "supported, 97.5%, n = 5",
        "refuted, 97.5%, n = 5",
        "−0.0489 [−0.0578, −0.0400]",
        "lower is better",
    ):
        assert needed in svg
    narrow = text_of(charts.draw_chart(lambda: forest(findings, wide=False)))
    assert "gain_ln" in narrow and "refuted" in narrow


def test_an_open_interval_is_drawn_to_the_edge() -> None:
    finding = told().decision.findings[0]
    assert finding.simultaneous is not None
    opened = finding.model_copy(update={"simultaneous": finding.simultaneous.model_copy(update={"low": None})})
    assert "[−∞, −0.0400]" in text_of(charts.draw_chart(lambda: forest(views_of([opened], told().study), wide=True)))


def test_a_paired_plot_names_both_sides_and_every_seed() -> None:
    svg = text_of(
        charts.draw_chart(
            lambda: charts.paired(views_of(told().decision.findings, told().study)[0], "layernorm", "none")
        )
    )
    for needed in ("none", "layernorm", *(f"seed {seed}" for seed in range(1, 6))):
        assert needed in svg


def test_a_level_and_marks_are_drawn_and_named() -> None:
    frame = by_step(told().evidence, "val/loss", ARMS)
    x, y = Extent("optimiser step", (0.0, 300.0)), axis_range("val/loss", [*frame["low"], *frame["high"], FLOOR])
    made = lines(frame, x, y, baseline="none", level=(FLOOR, "floor 1.4321"), marks=[(100.0, 3.0, "× diverged")])
    assert made.to_dict()  # by altair's schema
    svg = text_of(charts.draw_chart(lambda: made))
    assert "floor 1.4321" in svg and "× diverged" in svg and "optimiser step" in svg
    assert all(arm in svg for arm in ARMS)


def test_an_exploratory_claim_has_not_the_colour_of_one_that_a_verdict_rests_on() -> None:
    finding = told().decision.findings[0]
    drawn = {
        role: charts.draw_chart(
            lambda role=role: forest(views_of([finding.model_copy(update={"role": role})], told().study), wide=True)
        )
        for role in ("primary", "exploratory")
    }
    assert charts.BLUE in drawn["primary"] and charts.BLUE not in drawn["exploratory"]


def test_inline_drawings_share_no_identifier() -> None:
    svg = '<svg width="1" height="2" viewBox="0 0 1 2"><g id="a" clip-path="url(#a)"></g></svg>'
    inlined = html.inline_svg(svg, words='say "<x>"', prefix="f1")
    assert 'id="f1-a"' in inlined and "url(#f1-a)" in inlined
    assert 'aria-label="say &#34;&lt;x&gt;&#34;"' in inlined


@pytest.mark.parametrize(
    ("first", "last", "ticks"),
    [
        # d3.ticks of d3-array 3.2, as far as it gives as many
        (0, 300, [0, 100, 200, 300]),
        (0, 120, [0, 50, 100]),
        (0, 7, [0, 2, 4, 6]),
        (0.1, 0.9, [0.2, 0.4, 0.6, 0.8]),
        (25, 25, [25]),
    ],
)
def test_ticks_are_round_and_lie_within_the_range(first: float, last: float, ticks: list[float]) -> None:
    assert charts.round_ticks(first, last) == ticks


@pytest.mark.parametrize(
    ("first", "last", "ticks"),
    [
        (0.03, 0.6, [0.05, 0.1, 0.2, 0.5]),
        (0.05, 3.0, [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]),
        (0.2, 900.0, [1.0, 10.0, 100.0]),
        (7e-12, 0.3, [1e-10, 1e-8, 1e-6, 1e-4, 1e-2]),
    ],
)
def test_a_logarithmic_axis_has_few_round_ticks(first: float, last: float, ticks: list[float]) -> None:
    assert charts.log_ticks(first, last) == ticks


@given(st.floats(-14, 6), st.floats(1.31, 14))
def test_a_logarithmic_axis_has_two_ticks_or_more_within_its_range(low: float, decades: float) -> None:
    first, last = 10**low, 10 ** (low + decades)
    ticks = charts.log_ticks(first, last)
    assert 2 <= len(ticks) <= 8
    assert all(first * 0.999 <= tick <= last * 1.001 for tick in ticks)


def test_a_long_name_at_the_end_of_a_line_is_written_whole() -> None:
    rows = [
        (arm, x, mean, mean, mean, 1)
        for arm, mean in (("post-wide-cold", 1.0), ("post-wide-warm", 1.1))
        for x in (0.0, 9.0)
    ]
    frame = pd.DataFrame(rows, columns=list(LINES))
    svg = charts.draw_chart(lambda: lines(frame, axis_range("block", [0.0, 9.0]), axis_range("norm", [0.9, 1.2])))
    for part in ("post-wide-", "cold", "warm"):
        assert f">{part}<" in svg, part


def test_many_arms_share_panels_each_with_the_baseline() -> None:
    arms = ["none", *"abcdefg"]
    assert charts.shared(arms, "none") == [["none", *"abc"], ["none", *"def"], ["none", "g"]]
    assert charts.shared(["none"], "none") == [["none"]]
