"""Error rates where equal differences are likely: shares of few items, in single precision, and rounded differences
under bootstrap-t; with the rules of `ablate.judge.stats.precision` and of `BootstrapT`, and without them.

    nice python tests/precision_rates.py           # writes reports/bench/precision.json and precision.md
    python tests/precision_rates.py --page         # precision.md of what was measured last

Both arms answer each of so many items rightly with the same chance, and no change has an effect. Their accuracies are
divided in float32 or in float64, as trainers do. Campaigns go through `simulate_campaigns`, single studies through
`PairedT`, which is what `decide` asks. Rounded differences are normal ones in steps of their SD, or half of it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from typing import Literal

import numpy as np
from campaign_rates import campaign_of, decimal

from ablate.judge.campaign.design import rate_of
from ablate.judge.campaign.simulate import Counts, Noise, World, simulate_campaigns
from ablate.judge.stats.precision import ROUNDING, levelled
from ablate.judge.stats.significance_tests import EQUAL, BootstrapT, Floats, PairedT

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "reports" / "bench" / "precision.json"
PAGE = OUT.with_suffix(".md")
CAMPAIGNS = 6_000
STUDIES = 400_000
TIED_STUDIES = 6_000
Precision = Literal["float32", "float64"]
STAGES = {
    "3, 6, 12": {"seeds": [3, 6, 12], "futility": [0.5, 0.2]},
    "3, 6, pocock": {"seeds": [3, 6], "spending": "pocock", "futility": [0.5]},
    "2, 4, 8": {"seeds": [2, 4, 8], "futility": [0.5, 0.2]},
}
CAMPAIGN_CELLS = (
    ("3, 6, 12", 100, 0.9),
    ("3, 6, 12", 50, 0.9),
    ("3, 6, 12", 100, 0.5),
    ("3, 6, 12", 1000, 0.9),
    ("3, 6, pocock", 100, 0.9),
    ("2, 4, 8", 100, 0.9),
)
STUDY_CELLS = ((3, 100, 0.9), (3, 20, 0.9), (4, 20, 0.9), (5, 20, 0.9), (8, 20, 0.9), (5, 100, 0.98))


@dataclass(frozen=True)
class Row:
    """A cell that was measured: a share with its standard error, without the rule and with it."""

    of: Literal["campaign", "study", "bootstrap_t"]
    pairs: str
    items: int
    """0 of rounded differences."""
    level: float
    """The chance of a right answer; of rounded differences their step, in SDs."""
    precision: Precision
    n: int
    without: tuple[float, float]
    with_rule: tuple[float, float]


def accuracies(
    rng: np.random.Generator, items: int, level: float, precision: Precision, shape: tuple[int, ...]
) -> Floats:
    """Shares of items that are answered rightly, as a trainer in this precision records them."""
    right = rng.binomial(items, level, shape)
    return (right.astype(precision) / np.dtype(precision).type(items)).astype(np.float64)


def gains_of(items: int, level: float, precision: Precision) -> Noise:
    """Differences of two accuracies of the same law."""

    def noise(rng: np.random.Generator, number: int, n_kept: Counts, n_seeds: int) -> Floats:
        proposal, best = accuracies(rng, items, level, precision, (2, n_kept.size, n_seeds))
        return proposal - best

    return noise


def campaign_row(stages: str, items: int, level: float, precision: Precision, campaigns: int = CAMPAIGNS) -> Row:
    """The chance of any false keep in 100 proposals, at most .05 promised."""
    campaign = campaign_of("any false keep", stages=dict(STAGES[stages]))

    def any_false(rounding: float) -> tuple[float, float]:
        world = World(0.0, 0.0, 1.0, noise=gains_of(items, level, precision), rounding=rounding)
        rng = np.random.default_rng([20261129, items, round(1000 * level)])
        rate = rate_of(simulate_campaigns(campaign, world, campaigns, rng).any_false_keep)
        return rate.mean, rate.se

    # Two values of about this size.
    return Row(
        "campaign", stages, items, level, precision, campaigns, any_false(0.0), any_false(2.0 * ROUNDING * level)
    )


def study_row(n: int, items: int, level: float, precision: Precision, studies: int = STUDIES) -> Row:
    """The chance that a paired t of n pairs rejects equality at .05, two-sided."""
    rng = np.random.default_rng([20261129, n, items])
    left, right = accuracies(rng, items, level, precision, (2, studies, n))
    differences = left - right
    known = levelled(differences, ROUNDING * (np.abs(left) + np.abs(right)))
    without, with_rule = (float((PairedT(x).p(0.0, "two") <= 0.05).mean()) for x in (differences, known))

    def pair(share: float) -> tuple[float, float]:
        return share, sqrt(share * (1.0 - share) / studies)

    return Row("study", str(n), items, level, precision, studies, pair(without), pair(with_rule))


def tied_row(n: int, step: float, studies: int | None = None) -> Row:
    """The chance that bootstrap-t rejects equality at .05, two-sided; without its rule resamples of several pairs with
    equal differences are dropped, as those of one pair are."""
    studies = studies or (TIED_STUDIES if n <= 7 else TIED_STUDIES // 5)
    rng = np.random.default_rng([20261129, n, round(10 * step)])
    x = np.round(rng.standard_normal((studies, n)) / step) * step
    test = BootstrapT(x, simulated=True)
    t, dropped = np.abs(test.statistic(0.0)), np.ones(studies)
    for row in np.flatnonzero(test.usable):
        t_star, weights = test.draws(int(row))
        weights = np.where(np.isinf(t_star), 0.0, weights)
        reached = np.abs(t_star) >= t[row] - EQUAL * max(1.0, t[row])
        dropped[row] = (1.0 + weights[reached].sum()) / (1.0 + weights.sum())
    rates = [rate_of((p <= 0.05).astype(np.float64)) for p in (dropped, test.p(0.0, "two"))]
    without, with_rule = ((rate.mean, rate.se) for rate in rates)
    return Row("bootstrap_t", str(n), 0, step, "float64", studies, without, with_rule)


def rows() -> Iterator[Row]:
    """Every cell, in either precision, from the same draws."""
    precisions: tuple[Precision, ...] = ("float32", "float64")
    for stages, items, level in CAMPAIGN_CELLS:
        yield from (campaign_row(stages, items, level, precision) for precision in precisions)
    for n, items, level in STUDY_CELLS:
        yield from (study_row(n, items, level, precision) for precision in precisions)
    yield from (tied_row(n, 1.0) for n in range(4, 11))
    yield from (tied_row(n, 0.5) for n in range(4, 8))


HEAD = """# Equal differences: shares of few items, in single precision, and rounded differences

Written by `nice python tests/precision_rates.py`; do not edit. Numbers depend on no machine.

No change has an effect: both arms answer each item rightly with the same chance. Without the rule that differences
within the rounding of float32 are equal (`ablate/judge/stats/precision.py`), and with it; the same draws in either
precision. ± is the standard error of the simulation.

The steps of a coarse metric are no error of their own: in float64, where equal gains are equal to the last bits, the
promised .05 holds within the error of the simulation, or nearly so."""
CAMPAIGN = (
    "Any false keep of 100 proposals, at most .05 promised, {n:,} campaigns a row, levels of O'Brien-Fleming type:"
)
TIED = (
    "Bootstrap-t rejects equality at .05, two-sided, of normal differences that are rounded to such steps, {n:,} "
    "studies a row up to 7 pairs and a fifth of that beyond. The rule, up to 7 pairs: a resample of several pairs with "
    "equal differences counts as beyond every t; without it, and with more pairs, it is dropped:"
)
STUDY = "A paired t of n pairs rejects equality at .05, two-sided, {n:,} studies a row:"


def page(measured: list[Row]) -> str:
    """The report in Markdown."""
    lines = [*HEAD.split("\n")]
    for of, words, pairs in (("campaign", CAMPAIGN, "stages"), ("study", STUDY, "n")):
        table = [row for row in measured if row.of == of]
        lines += [
            "",
            words.format(n=table[0].n),
            "",
            f"| {pairs} | items | accuracy | in | without the rule | with it |",
        ]
        lines += ["|---|---|---|---|---|---|"]
        lines += [
            f"| {row.pairs} | {row.items:,} | {row.level:g} | {row.precision} | {decimal(row.without, 4)} | "
            f"{decimal(row.with_rule, 4)} |"
            for row in table
        ]
    tied = [row for row in measured if row.of == "bootstrap_t"]
    lines += ["", TIED.format(n=tied[0].n), "", "| n | step, SDs | without the rule | with it |", "|---|---|---|---|"]
    lines += [
        f"| {row.pairs} | {row.level:g} | {decimal(row.without, 4)} | {decimal(row.with_rule, 4)} |" for row in tied
    ]
    return "\n".join([*lines, ""])


def committed() -> list[Row]:
    """The table in the repository."""
    table = json.loads(OUT.read_text(encoding="utf-8"))
    return [Row(**row | {key: tuple(row[key]) for key in ("without", "with_rule")}) for row in table]


def main() -> None:
    """Measure, and write both files; `--page` writes the page of what was measured last."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--page", action="store_true")
    measured = committed() if parser.parse_args().page else []
    for row in [] if measured else rows():
        measured.append(row)
        print(row, flush=True)
    OUT.write_text(json.dumps([asdict(row) for row in measured], indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(measured), encoding="utf-8")


if __name__ == "__main__":
    main()
