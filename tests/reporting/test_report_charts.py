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
from metric_samples import as_embnorm, with_blocks
from report_samples import FLOOR, LOSS, told

from ablate.records.evidence import Evidence
from ablate.reporting import arm_charts, charts, html
from ablate.reporting.blocks import Figure
from ablate.reporting.charts import draw, forest
from ablate.reporting.context import ReportContext
from ablate.reporting.description import recorded_metrics, summarise, thin, thin_evenly, trace, trace_differences
from ablate.reporting.document import compose
from ablate.reporting.sections.curves import by_block_section, families, profile
from prereg.study.labels import NO_LABELS

ARMS = ("none", "layernorm", "rmsnorm")
lines = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300).map(lambda values: list(enumerate(values)))


def as_series(line: list[tuple[int, float]]) -> pd.Series[float]:
    return pd.Series([value for _, value in line], index=[step for step, _ in line], dtype=float)


@given(lines, st.integers(1, 40))
def test_thinning_keeps_ends_and_extremes_in_order_and_invents_nothing(
    line: list[tuple[int, float]], size: int
) -> None:
    kept = thin(as_series(line), size)
    assert set(kept) <= set(line) and kept == sorted(kept)
    assert kept[0] == line[0] and kept[-1] == line[-1]
    assert max(value for _, value in kept) == max(value for _, value in line)
    assert min(value for _, value in kept) == min(value for _, value in line)


@given(lines, st.integers(1, 40))
def test_even_thinning_keeps_the_last_point(line: list[tuple[int, float]], size: int) -> None:
    kept = thin_evenly(as_series(line), size)
    assert set(kept) <= set(line) and kept[-1] == line[-1] and kept[0] == line[0]


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=14), st.floats(0.01, 5))
def test_labels_keep_their_distance_and_their_order(values: list[float], gap: float) -> None:
    places = charts.spread(values, gap)
    ordered = sorted(places)
    assert all(above - below >= gap * (1 - 1e-6) for below, above in pairwise(ordered))
    ranked = sorted(range(len(values)), key=lambda at: values[at])
    assert [places[at] for at in ranked] == ordered


def test_labels_that_do_not_collide_stay_where_they_are() -> None:
    assert charts.spread([3.0, 1.0, 2.0], 0.5) == [3.0, 1.0, 2.0]


def test_means_and_deviations_by_arm_are_those_of_the_final_values() -> None:
    by_arm = {summary.arm: summary for summary in summarise(told().evidence, "val/loss", ARMS)}
    values = LOSS["layernorm"]
    mean = sum(values) / 5
    assert by_arm["layernorm"].mean == pytest.approx(mean)
    assert by_arm["layernorm"].sd == pytest.approx(math.sqrt(sum((value - mean) ** 2 for value in values) / 4))
    assert by_arm["layernorm"].n == 5
    assert summarise(told().evidence, "no/such", ARMS) == ()


def test_curves_hold_every_run_and_the_mean_of_each_arm() -> None:
    traced = trace(told().evidence, "val/loss", ARMS)
    assert traced is not None and traced.thinned == 1
    assert len(traced.runs) == 15 and set(traced.means) == set(ARMS)
    assert traced.means["none"][-1] == (300, pytest.approx(sum(LOSS["none"]) / 5))


def test_differences_by_step_end_at_the_differences_that_were_tested() -> None:
    whole = told()
    gaps = trace_differences(whole.evidence, "val/loss", ARMS, "none")
    assert gaps is not None and set(gaps.means) == {"layernorm", "rmsnorm"}
    finding = whole.decision.findings[0]
    assert gaps.means["layernorm"][-1][1] == pytest.approx(finding.estimate.difference)  # type: ignore[union-attr]
    for pair in finding.pairs:
        assert gaps.runs["layernorm", pair.seed][-1][1] == pytest.approx(pair.difference)


def test_a_mean_stops_where_the_first_run_of_the_arm_stops() -> None:
    whole = told()
    frame = whole.evidence.metrics
    cut = frame[~((frame["variant"] == "none") & (frame["seed"] == 1) & (frame["step"] > 100))]
    traced = trace(replace(whole.evidence, metrics=cut), "val/loss", ARMS)
    assert traced is not None
    assert traced.means["none"][-1][0] == 100 and traced.means["layernorm"][-1][0] == 300


def test_a_metric_recorded_once_has_no_curve() -> None:
    assert trace(told().evidence, "grad/norm", ARMS) is None
    assert "grad/norm" in recorded_metrics(told().evidence)


@pytest.mark.slow
def test_thousands_of_evaluations_are_thinned_and_the_page_says_so() -> None:
    whole = told(every=1)
    traced = trace(whole.evidence, "val/loss", ARMS)
    assert traced is not None
    page = html.render(replace(whole, evidence=_longer(whole.evidence, 10)))
    assert "Thinned for size: of every" in page
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
    findings = told().decision.findings[:2]
    svg = text_of(charts.draw(lambda: forest(findings, wide=True)))
    for needed in (
        "gain_ln",
        "gain_rms",
        "supported, 97.5%, n = 5",
        "refuted, 97.5%, n = 5",
        "−0.0489 [−0.0578, −0.0400]",
        "lower is better",
    ):
        assert needed in svg
    narrow = text_of(charts.draw(lambda: forest(findings, wide=False)))
    assert "gain_ln" in narrow and "refuted" in narrow


def test_an_open_interval_is_drawn_to_the_edge() -> None:
    finding = told().decision.findings[0]
    assert finding.simultaneous is not None
    opened = finding.model_copy(update={"simultaneous": finding.simultaneous.model_copy(update={"low": None})})
    assert "[−∞, −0.0400]" in text_of(charts.draw(lambda: forest([opened], wide=True)))


def test_a_paired_plot_names_both_sides_and_every_seed() -> None:
    svg = text_of(charts.draw(lambda: charts.paired(told().decision.findings[0], "layernorm", "none")))
    for needed in ("none", "layernorm", *(f"seed {seed}" for seed in range(1, 6))):
        assert needed in svg


def test_the_floor_is_drawn_and_named() -> None:
    traced = trace(told().evidence, "val/loss", ARMS)
    assert traced is not None
    chart = arm_charts.curves(
        traced,
        "layernorm",
        labels=NO_LABELS,
        baseline="none",
        unit="nats/token",
        step_axis="optimiser step",
        floor=FLOOR,
        diverged=(3,),
        domain=arm_charts.domain_of(traced, FLOOR),
    )
    svg = text_of(charts.draw(lambda: chart))
    assert "floor 1.4321" in svg and "× diverged" in svg and "optimiser step" in svg


def test_inline_drawings_share_no_identifier() -> None:
    svg = '<svg width="1" height="2" viewBox="0 0 1 2"><g id="a" clip-path="url(#a)"></g></svg>'
    inlined = html.inline_svg(svg, words='say "<x>"', prefix="f1")
    assert 'id="f1-a"' in inlined and "url(#f1-a)" in inlined
    assert 'aria-label="say &#34;&lt;x&gt;&#34;"' in inlined


def figures_of(account: ReportContext) -> dict[str, Figure]:
    blocks = [block for section in compose(account).sections for block in section.blocks]
    return {block.name: block for block in blocks if isinstance(block, Figure)}


def test_figures_of_positions_token_classes_and_cost_are_there_where_they_were_recorded() -> None:
    found = figures_of(as_embnorm())
    for name in ("Loss by position", "Embedding norm by token class", "grad/layer from block to block"):
        assert "from the lowest to the highest run, which is no interval" in found[name].caption
        assert "none 5, layernorm 5 and rmsnorm 5" in found[name].caption
    (panel,) = found["Loss by position"].panels
    assert panel.title.startswith("Last quarter minus first quarter: none ") and len(panel.title.split(";")) == 3
    for name in ("Loss by position", "Embedding norm by token class", "Cost and val/loss"):
        (panel,) = found[name].panels
        chart = panel.make()
        assert chart.to_dict()  # by altair's schema
        drawn = charts.draw(panel.make)
        assert all(f">{arm}</text>" in drawn for arm in ARMS)
    plain = figures_of(told())
    assert not {"Loss by position", "Embedding norm by token class"} & set(plain)
    assert "Cost and val/loss" in plain  # every run has its seconds of training


def test_cost_is_drawn_only_for_runs_that_recorded_it() -> None:
    account = told()
    runs = tuple(
        run.model_copy(update={"train_s": 0.0}) if run.variant != "none" else run for run in account.evidence.runs
    )
    assert "Cost and val/loss" not in figures_of(replace(account, evidence=replace(account.evidence, runs=runs)))


def test_a_band_holds_every_run_at_every_step() -> None:
    for every in (25, 1):
        traced = trace(told(every=every).evidence, "val/loss", ARMS)
        assert traced is not None and set(traced.ranges) == set(ARMS)
        for arm, band in traced.ranges.items():
            held = {step: (low, high) for step, low, high in band}
            for (name, _), line in traced.runs.items():
                inside = [held[step][0] <= value <= held[step][1] for step, value in line if step in held]
                assert name != arm or (inside and all(inside))


def test_ticks_are_round_and_lie_within_the_range() -> None:
    # d3.ticks(0, 300, 4), d3-array 3.2
    assert arm_charts.whole_ticks(300, 4) == [0.0, 100.0, 200.0, 300.0]
    assert arm_charts.whole_ticks(1, 6) == [0.0, 1.0] and arm_charts.whole_ticks(7, 6) == [0.0, 2.0, 4.0, 6.0]
    assert arm_charts.whole_ticks(0, 4) == [0.0]


@given(st.integers(0, 10**9), st.integers(2, 8))
def test_ticks_of_any_range_are_few_and_in_order(last: int, count: int) -> None:
    ticks = arm_charts.whole_ticks(last, count)
    assert ticks == sorted(ticks) and len(ticks) <= count + 1
    assert all(0 <= tick <= last and tick == int(tick) for tick in ticks)


def test_many_arms_share_panels_each_with_the_baseline() -> None:
    arms = ["none", *"abcdefg"]
    assert arm_charts.shared(arms, "none") == [["none", *"abc"], ["none", *"def"], ["none", "g"]]
    assert arm_charts.shared(["none"], "none") == [["none"]]


def test_a_profile_is_the_mean_over_seeds_at_the_first_and_the_last_evaluation() -> None:
    account = with_blocks(told(), {"none": 3, "layernorm": 3, "rmsnorm": 2})
    members = families(account.evidence)["grad/layer"]
    found = profile(account.evidence, "grad/layer", members, list(account.study.arms))
    assert found.first["none"] == {0: 1.0, 1: 10.0, 2: 100.0} and found.first_step == 25
    # Seeds 1 to 5 lie 1 to 5 hundredths above: three on average.
    assert found.last["none"] == pytest.approx({0: 2.06, 1: 20.6, 2: 206.0})
    assert set(found.last["rmsnorm"]) == {0, 1} and found.n == {"none": 5, "layernorm": 5, "rmsnorm": 5}


def test_nothing_is_shown_while_runs_are_missing_or_where_no_block_was_measured() -> None:
    assert by_block_section(told()) is None
    assert by_block_section(with_blocks(told("incomplete"), {"none": 2})) is None


def test_values_of_either_sign_are_drawn_on_a_plain_scale() -> None:
    account = with_blocks(told(), {"none": 2, "layernorm": 2, "rmsnorm": 2})
    metrics = account.evidence.metrics.copy()
    metrics.loc[metrics["metric"] == "grad/layer_0", "value"] *= -1.0
    section = by_block_section(replace(account, evidence=replace(account.evidence, metrics=metrics)))
    assert section is not None and isinstance(section.blocks[0], Figure)
    assert "logarithmic" not in section.blocks[0].caption
    assert draw(section.blocks[0].panels[0].make).startswith("<svg")
