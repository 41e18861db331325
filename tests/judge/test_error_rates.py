"""What README.md and the page say of error rates is what the committed table says, and the table is whole."""

from __future__ import annotations

from typing import Any

import error_rates as rates
import pytest


def test_the_readme_says_what_the_committed_table_says() -> None:
    readme = rates.README.read_text(encoding="utf-8")
    assert readme == rates.with_paragraph(readme, rates.committed()), "python tests/error_rates.py --text"
    assert "has the error rate it claims" not in readme


def test_the_page_says_what_the_committed_table_says() -> None:
    assert rates.PAGE.read_text(encoding="utf-8") == rates.page(rates.committed()), "python tests/error_rates.py --text"


def test_every_combination_has_its_numbers_or_the_reason_why_it_cannot_be_registered() -> None:
    found = rates.committed()
    measured = [rates.Cell(row["design"], row["test"], row["n"], row["law"]) for row in found["cells"]]
    out = [rates.Cell(row["design"], row["test"], row["n"], row["law"]) for row in found["not_registrable"]]
    assert sorted(map(vars_of, measured + out)) == sorted(map(vars_of, rates.cells()))
    assert all(row["reason"] for row in found["not_registrable"])
    for row in found["cells"]:
        asked = ("adoption",) if row["law"] in rates.DIVERGING else rates.NUMBERS
        assert all(row[key]["n"] >= 20 and 0.0 < row[key]["error"] < 0.08 for key in asked), row


@pytest.mark.parametrize("law", ["normal", "exponential"])
def test_what_cannot_be_registered_is_refused(law: str) -> None:
    refused = {cell.words: rates.refused(cell) for cell in rates.cells() if cell.law == law and cell.design == "fixed"}
    for test in ("sign_flip", "wilcoxon"):
        assert "can never be supported" in str(refused[f"fixed, {test}, 5 seeds, {law}"])
    assert refused[f"fixed, paired_t, 3 seeds, {law}"] is None


@pytest.mark.parametrize("law", rates.LAWS)
def test_a_law_has_mean_0_and_sd_1(law: str) -> None:
    drawn = rates.draw(law, (400_000,), rates.np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(0.0, abs=0.01)
    # With 3 degrees of freedom the fourth moment is infinite: the SD of a sample comes close slowly.
    assert drawn.std() == pytest.approx(1.0, abs=0.05 if law == "t3" else 0.01)


def test_a_rate_above_nominal_is_named() -> None:
    row: dict[str, Any] = {"design": "fixed", "test": "paired_t", "n": 3, "law": "normal"}
    row |= {key: rates.rate(50, 1000) for key in rates.NUMBERS}
    assert rates.excesses({"cells": [row]}) == []
    above = row | {"support": rates.rate(90, 1000)}
    assert rates.excesses({"cells": [above]}) == ["fixed, paired_t, 3 seeds, normal: support 0.090 ± 0.009"]
    assert rates.excesses({"cells": [above | {"law": "exponential"}]}) == []


def vars_of(cell: rates.Cell) -> tuple[str, str, int, str]:
    return cell.design, cell.test, cell.n, cell.law
