"""Metrics of every block are shown as profiles: right numbers, by arm and depth, and nothing while it is withheld."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from report_samples import told

from ablate.records.evidence import METRIC_COLUMNS
from ablate.reporting.blocks import Figure, Table
from ablate.reporting.charts import draw
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.curves import by_block_section, families, profile
from ablate.reporting.sections.final_values import final_values_section


def with_blocks(account: ReportContext, depths: dict[str, int]) -> ReportContext:
    """Gradient norms of every block: 10^block at step 25, twice that and a hundredth more a seed at step 300."""
    rows = []
    for run in account.evidence.runs:
        for block in range(depths.get(run.variant, 0)):
            for step, value in ((25, 10.0**block), (300, 2.0 * 10.0**block * (1 + run.seed / 100))):
                made = {"variant": run.variant, "seed": run.seed, "step": step, "value": value}
                rows.append(made | {"metric": f"grad/layer_{block}"})
    frame = account.evidence.metrics
    more = pd.DataFrame(rows).reindex(columns=frame.columns)
    for column in set(METRIC_COLUMNS) - {"variant", "seed", "step", "metric", "value"}:
        more[column] = frame[column].iloc[0]
    return replace(account, evidence=replace(account.evidence, metrics=pd.concat([frame, more], ignore_index=True)))


def test_the_members_of_a_family_are_found_together() -> None:
    account = with_blocks(told(), {"none": 3, "layernorm": 3, "rmsnorm": 2})
    assert families(account.evidence) == {"grad/layer": ["grad/layer_0", "grad/layer_1", "grad/layer_2"]}
    assert families(told().evidence) == {}


def test_a_profile_is_the_mean_over_seeds_at_the_first_and_the_last_evaluation() -> None:
    account = with_blocks(told(), {"none": 3, "layernorm": 3, "rmsnorm": 2})
    members = families(account.evidence)["grad/layer"]
    found = profile(account.evidence, "grad/layer", members, list(account.study.arms))
    assert found.first["none"] == {0: 1.0, 1: 10.0, 2: 100.0} and found.first_step == 25
    # Seeds 1 to 5 lie 1 to 5 hundredths above: three on average.
    assert found.last["none"] == pytest.approx({0: 2.06, 1: 20.6, 2: 206.0})
    assert set(found.last["rmsnorm"]) == {0, 1} and found.n == {"none": 5, "layernorm": 5, "rmsnorm": 5}


def test_the_section_names_first_last_and_their_ratio_and_draws_every_arm() -> None:
    section = by_block_section(with_blocks(told(), {"none": 3, "layernorm": 3, "rmsnorm": 2}))
    assert section is not None
    figure, table = section.blocks
    assert isinstance(figure, Figure) and isinstance(table, Table)
    (panel,) = figure.panels
    assert panel.title == "First / last: none 0.01; layernorm 0.01; rmsnorm 0.1"
    assert (
        "none 5, layernorm 5 and rmsnorm 5" in figure.caption and "from the lowest to the highest run" in figure.caption
    )
    assert table.rows[0] == ("none", "3", "2.06", "206", "0.01", "5")
    assert table.rows[2] == ("rmsnorm", "2", "2.06", "20.6", "0.1", "5")
    drawn = draw(panel.make)
    assert all(f">{arm}</text>" in drawn for arm in ("none", "layernorm", "rmsnorm", "block, from the input"))


def test_what_is_told_from_block_to_block_is_not_told_again_among_final_values() -> None:
    account = with_blocks(told(), {"none": 3, "layernorm": 3, "rmsnorm": 3})
    section = final_values_section(account)
    assert section is not None and isinstance(section.blocks[0], Table)
    assert not [row for row in section.blocks[0].rows if row[0].startswith("grad/layer")]


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
