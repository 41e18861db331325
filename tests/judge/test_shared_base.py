"""Gates that share the runs of their base err as often as registered, each, and err together.

The committed table has 40,000 families a row; here it is checked, and measured again with fewer draws.
"""

from __future__ import annotations

import json
from math import hypot

import pytest
import shared_base_rates as shared

ALPHA = 0.05
ROWS = [shared.FamilyRates(**row) for row in json.loads(shared.OUT.read_text(encoding="utf-8"))]
TABLE = {(row.base, row.error, row.gates): row for row in ROWS}
SIGMAS = 4.0


def test_the_page_is_written_from_the_numbers() -> None:
    assert shared.OUT.with_suffix(".md").read_text(encoding="utf-8") == shared.page([*TABLE.values()])
    assert [*TABLE] == [(base, error, gates) for error in shared.FALSE for gates in shared.GATES
                        for base in shared.BASES]  # fmt: skip


@pytest.mark.parametrize("error", shared.FALSE)
def test_each_comparison_errs_at_most_as_registered_whether_or_not_base_is_shared(error: str) -> None:
    for gates in shared.GATES:
        own, common = (TABLE[base, error, gates] for base in ("own", "shared"))
        for row in (own, common):
            assert row.each <= ALPHA + SIGMAS * row.each_se
        assert abs(own.each - common.each) <= SIGMAS * hypot(own.each_se, common.each_se)


@pytest.mark.parametrize("error", shared.FALSE)
def test_errors_of_one_base_come_together_and_fewer_families_have_one(error: str) -> None:
    for gates in shared.GATES[1:]:
        own, common = (TABLE[base, error, gates] for base in ("own", "shared"))
        assert common.correlation is not None and common.correlation_se is not None
        assert common.correlation > SIGMAS * common.correlation_se
        assert own.correlation is not None and abs(own.correlation) < 0.01
        assert common.sd > own.sd and common.any < own.any


def test_base_runs_that_were_chosen_would_break_the_promise() -> None:
    assert TABLE["chosen", "equivalent", 1].each > ALPHA + SIGMAS * TABLE["chosen", "equivalent", 1].each_se


@pytest.mark.simulation
@pytest.mark.parametrize("error", shared.FALSE)
@pytest.mark.parametrize("base", ["shared", "own"])
def test_rows_measured_again_agree_with_the_table(base: str, error: str) -> None:
    measured, row = shared.rates(base, error, 5, 2_000, seed=8), TABLE[base, error, 5]
    assert abs(measured.each - row.each) <= SIGMAS * hypot(measured.each_se, row.each_se)
    assert abs(measured.any - row.any) <= SIGMAS * hypot(measured.any_se, row.any_se)
