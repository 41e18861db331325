"""What README.md and the page say of error rates is what the committed table says, and the table is whole."""

from __future__ import annotations

from math import sqrt
from typing import Any

import error_rates as rates
import numpy as np
import pandas as pd
import pytest

from ablate.judge.findings import judge_hypotheses
from ablate.judge.judge import OUTCOME
from ablate.judge.readings import item_means
from ablate.records.evidence import ITEM_COLUMNS

QUOTED_LAWS = {
    "normal": "normal",
    "heavy tails (t with 3 degrees of freedom)": "t3",
    "exponential, the worse direction": "exponential",
    "one in ten is an outlier on one side": "mixture",
}
"""How docs/explanation/bootstrap.md calls the laws of the table."""


def fixed_cells() -> list[dict[str, Any]]:
    return [row for row in rates.committed()["cells"] if row["design"] == "fixed" and "support" in row]


def percent(rate: dict[str, float]) -> str:
    """Share and standard error in percent, as pages write them."""
    return f"{100 * rate['share']:.1f} ± {100 * rate['error']:.1f}"


def test_the_readme_says_what_the_committed_table_says() -> None:
    readme = rates.README.read_text(encoding="utf-8")
    assert readme == rates.with_paragraph(readme, rates.committed()), "python tests/error_rates.py --text"
    assert "has the error rate it claims" not in readme


def test_the_readme_gives_the_largest_rate_of_every_design_with_its_error_and_n() -> None:
    """Looks and seeds x items err more than fixed seeds, which alone it named once."""
    paragraph = " ".join(rates.paragraph(rates.committed()).split())
    for seeds in (3, 4, 5, 8):
        cells = [
            row["support"]
            for row in rates.committed()["cells"]
            if row["law"] in {"exponential", "t3", "mixture", "uniform", "bimodal"} and row["n"] == seeds
        ]
        largest = max(cells, key=lambda one: one["share"])
        rate = f"{100 * largest['share']:.1f} ± {100 * largest['error']:.1f}% with {seeds} seeds"
        assert rate in paragraph and f"{largest['n']:,} studies" in paragraph, rate


def test_the_page_says_what_the_committed_table_says() -> None:
    assert rates.PAGE.read_text(encoding="utf-8") == rates.page(rates.committed()), "python tests/error_rates.py --text"


def test_other_pages_quote_the_committed_table() -> None:
    support = {(row["test"], row["law"], row["n"]): row["support"] for row in fixed_cells()}
    page = (rates.README.parent / "docs/explanation/bootstrap.md").read_text(encoding="utf-8")
    for words, law in QUOTED_LAWS.items():
        shares = [f"{100 * support['paired_t', law, n]['share']:.1f}%" for n in (3, 5, 8)]
        assert f"| {words} | {' | '.join(shares)} |" in page, law
    normal = support["bootstrap_t", "normal", 5]
    assert f"it supports a false one in {percent(normal)}% ({normal['n']:,})" in page
    (misses,) = (
        row["misses"] for row in fixed_cells() if (row["test"], row["law"], row["n"]) == ("bootstrap_t", "normal", 5)
    )
    assert f"95% intervals miss in {percent(misses)}% ({misses['n']:,} simulated studies)" in page
    advice = (rates.README.parent / "docs/how-to/choose-margin-seeds-test.md").read_text(encoding="utf-8")
    skewed = {test: support[test, "exponential", 8] for test in ("paired_t", "sign_flip", "wilcoxon")}
    assert f"`paired_t` errs in {100 * skewed['paired_t']['share']:.1f}%" in advice
    assert f"`sign_flip` in {100 * skewed['sign_flip']['share']:.1f}%" in advice
    assert f"`wilcoxon` in {percent(skewed['wilcoxon'])}%" in advice


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


Z = 4.5
"""Standard errors of a difference: of some 150 comparisons one in a thousand sets fails by chance."""
AGAIN = [
    *((rates.Cell("fixed", "paired_t", n, law), 0.5) for n in rates.SEEDS for law in (*rates.LAWS, "correlated")),
    *((rates.Cell("fixed", "sign_flip", 8, law), 0.3) for law in (*rates.LAWS, "correlated")),
    *((rates.Cell("fixed", "bootstrap_t", 5, law), 0.1) for law in ("normal", "exponential")),
    (rates.Cell("fixed", "bootstrap_t", 8, "normal"), 1.0),
    *((rates.Cell("fixed", "wilcoxon", 8, law), 0.3) for law in ("normal", "exponential")),
    *((rates.Cell("looks", "paired_t", 8, law), 0.2) for law in ("normal", "exponential", "correlated")),
    *((rates.Cell("items", "items: new_seeds", n, "normal"), 0.3) for n in rates.SEEDS),
    *((rates.Cell(crossed, "items: new_seeds_and_items", 5, "normal"), 0.3) for crossed in rates.SIZES),
    *((rates.Cell("items", "items: new_seeds_and_items", 3, law), 0.3) for law in ("normal", "exponential")),
    (rates.Cell("equal tasks", "items: new_seeds_and_items", 5, "correlated"), 0.2),
    (rates.Cell("items", "items: new_seeds", 3, "correlated"), 0.2),
    (rates.Cell("unequal tasks", "items: new_seeds_and_items", 8, "correlated"), 0.2),
    (rates.Cell("unequal tasks", "items: new_seeds_and_items", 3, "31% diverge"), 0.3),
    (rates.Cell("looks", "paired_t", 8, "31% diverge"), 0.2),
    *((rates.Cell("fixed", test, 8, "31% diverge"), 0.4) for test in ("paired_t", "sign_flip")),
    (rates.Cell("fixed", "paired_t", 5, "31% diverge"), 0.4),
    (rates.Cell("fixed", "paired_t", 8, "10% diverge"), 0.4),
]


@pytest.mark.simulation
def test_with_normal_differences_no_rate_of_the_table_is_above_nominal() -> None:
    assert rates.excesses(rates.committed()) == []


@pytest.mark.simulation
@pytest.mark.parametrize(("cell", "scale"), AGAIN, ids=[cell.words for cell, _ in AGAIN])
def test_a_cell_measured_again_agrees_with_the_table(cell: rates.Cell, scale: float) -> None:
    row = next(one for one in rates.committed()["cells"] if rates.cell_of(one) == cell)
    measured = rates.row_of(cell, 12345, scale)
    found = {key: measured[key] for key in rates.NUMBERS if key in measured}
    print(cell.words, {key: f"{one['share']:.4f} ± {one['error']:.4f}" for key, one in found.items()})
    assert rates.excesses({"cells": [row | found]}) == []
    for key, one in found.items():
        error = sqrt(one["error"] ** 2 + row[key]["error"] ** 2)
        assert abs(one["share"] - row[key]["share"]) <= Z * error, (cell.words, key, one, row[key])


@pytest.mark.simulation
def test_only_cells_that_the_table_lacks_or_that_are_named_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    known, measured = rates.committed(), []
    lacking = known | {"cells": known["cells"][1:]}
    first = rates.cell_of(known["cells"][0])

    def measure(cell: rates.Cell, *_: object) -> dict[str, object]:
        measured.append(cell)
        return {key: known["cells"][0][key] for key in rates.NUMBERS if key in known["cells"][0]}

    monkeypatch.setattr(rates, "measure", measure)
    monkeypatch.setattr(rates, "refused", lambda cell: None if cell in wanted else "not asked")
    wanted = {rates.cell_of(row) for row in known["cells"]}
    found = rates.table(known=lacking, only=("looks, paired_t, 8 seeds, t3",))
    assert measured == [first, rates.Cell("looks", "paired_t", 8, "t3")]
    assert [rates.cell_of(row) for row in found["cells"]] == [rates.cell_of(row) for row in known["cells"]]
    rest = [row for row in known["cells"] if rates.cell_of(row) not in measured]
    assert [row for row in found["cells"] if rates.cell_of(row) not in measured] == rest


@pytest.mark.simulation
@pytest.mark.parametrize("crossed", rates.SIZES)
def test_items_are_judged_here_as_from_a_table_of_items(crossed: str) -> None:
    cell = rates.Cell(crossed, "items: new_seeds_and_items", 5, "normal")
    study, rng = rates.rule_of(cell), np.random.default_rng(9)
    sizes = np.array(rates.SIZES[crossed])
    tasks = np.repeat(np.arange(sizes.size), sizes)
    centred = rates.noise(cell, study, 8, rng, spread=1)
    effects = {
        "gain": np.linspace(-2.0, 2.0, 8).reshape(8, 1, 1),
        "no_harm": np.linspace(2.0, -2.0, 8).reshape(8, 1, 1) - rates.MARGIN,
    }
    ours = rates.judged(cell, study, {name: table + effects[name] for name, table in centred.items()})
    seen = set()
    for row in range(8):
        rows = [
            (arm, seed, f"{task:03d}", f"{item:04d}", f"{item}", claim.metric, float(shift * score))
            for name, claim in study.claims.items()
            for shift, arm in enumerate(study.arms)
            for seed, units in zip(study.seeds, centred[name][row] + effects[name][row], strict=True)
            for item, (task, score) in enumerate(zip(tasks, np.repeat(units, sizes), strict=True))
        ]
        table = pd.DataFrame(rows, columns=list(ITEM_COLUMNS))
        read = {claim.metric: item_means(table, claim.metric) for claim in study.claims.values()}
        for place, finding in enumerate(judge_hypotheses(study, read, items=table)):
            assert OUTCOME[ours[row, place]] == finding.outcome, (finding.hypothesis, finding.notes)
            seen.add((finding.hypothesis, finding.outcome))
    assert {("gain", "supported"), ("gain", "inconclusive"), ("no_harm", "supported"), ("no_harm", "refuted")} <= seen
