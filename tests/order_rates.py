"""How often two arms that are alike are told apart on a machine that drifts, by the order of their runs.

    python tests/order_rates.py            # writes reports/bench/order.{json,md}; a minute
    python tests/order_rates.py --page     # writes the page again from the numbers

The arms have the same law. A run's value is its noise (SD 1) plus the drift of the machine at the place of the run, and
the place is that of the plan: `Study.cells` for the order of the file, `cells_in_order` for the registered one. The
claim is that the last arm changes the metric, two-sided at alpha .05, so a study that supports it has found an effect
that is not there. Differences are judged by `judge_rows`, as those of real studies are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from evidence_factory import one_claim

from ablate.judge.judge import OUTCOME, judge_rows
from prereg.registry.run_order import cells_in_order
from prereg.study.spec import Study

OUT = Path(__file__).resolve().parents[1] / "reports" / "bench" / "order.json"
STUDIES = 20_000
PER_RUN = (0.5, 3.0)
"""Drift from one run to the next, in SDs of a run; of curves, on average."""
ARMS: dict[int, dict[str, Any]] = {
    2: {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}},
    3: {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}, "rmsnorm": {"model.embedding_norm": "rmsnorm"}},
}
SEEDS = {2: (5, 6, 8), 3: (5, 6)}

Floats = npt.NDArray[np.float64]
Drift = Callable[[Floats], Floats]
"""From the places of runs, from 0 to 1 over the study, to what the machine adds, in units of the whole drift."""

DRIFTS: dict[str, Drift] = {
    "none": lambda place: 0.0 * place,
    "linear": lambda place: place,
    "quadratic": lambda place: place**2,
    "warming up: e-fold in a fifth of the study": lambda place: 1.0 - np.exp(-5.0 * place),
    "a jump after a third": lambda place: np.where(place > 1.0 / 3.0, 1.0, 0.0),
}


@dataclass(frozen=True)
class Rate:
    """One row of the table."""

    arms: int
    seeds: int
    drift: str
    per_run: float
    order: str
    studies: int
    bias: float
    """Mean of the differences of the last arm and the first, in SDs of a run: what the order leaves of the drift."""
    found: float
    """Share of studies that find an effect."""

    @property
    def error(self) -> float:
        """Monte Carlo standard error of that share."""
        return sqrt(self.found * (1.0 - self.found) / self.studies)


def study_of(n_arms: int, n_seeds: int) -> Study:
    """A two-sided claim of the last arm against the first."""
    last = list(ARMS[n_arms])[-1]
    return one_claim(f"{last} changes val/loss", 0.0, seeds=n_seeds, variants=ARMS[n_arms])


def drift_of_differences(study: Study, cells: tuple[tuple[str, int], ...], drift: Drift, per_run: float) -> Floats:
    """What the drift adds to the difference of the last arm and the first, seed by seed."""
    arms = list(study.arms)
    whole = per_run * (len(cells) - 1)
    added = dict(zip(cells, whole * drift(np.linspace(0.0, 1.0, len(cells))), strict=True))
    return np.array([added[arms[-1], seed] - added[arms[0], seed] for seed in study.seeds])


def measured(  # noqa: PLR0917
    n_arms: int, n_seeds: int, drift: str, per_run: float, order: str, studies: int = STUDIES
) -> Rate:
    """One row, by simulation."""
    study = study_of(n_arms, n_seeds)
    cells = study.cells if order == "file" else cells_in_order(study)
    added = drift_of_differences(study, cells, DRIFTS[drift], per_run)
    noise = np.random.default_rng([n_arms, n_seeds]).standard_normal((2, studies, n_seeds))
    judged = judge_rows(study, {"h": noise[0] - noise[1] + added})
    found = float((judged.codes[:, 0] == OUTCOME.index("supported")).mean())
    return Rate(n_arms, n_seeds, drift, per_run, order, studies, float(added.mean()), found)


def rows() -> Iterator[Rate]:
    """Every row."""
    for n_arms, numbers in SEEDS.items():
        for n_seeds in numbers:
            for drift, per_run in product(DRIFTS, PER_RUN):
                if drift == "none" and per_run != PER_RUN[0]:
                    continue
                yield from (measured(n_arms, n_seeds, drift, per_run, order) for order in ("file", "registered"))


def page(made: list[Rate]) -> str:
    """The table in Markdown."""
    lines = [
        "# Order of arms on a machine that drifts",
        "",
        "Written by `python tests/order_rates.py`. Two arms with the same law are compared, the last with the first,",
        "by a paired t at alpha .05, two-sided. The machine adds a drift, of so many SDs of a run from one run to the",
        "next on average. *Bias* is what the order leaves of it in the mean difference, in SDs of a run; *found* is",
        f"the share of {made[0].studies:,} simulated studies that find an effect, ± its Monte Carlo standard error.",
        "",
        "| Arms | Seeds | Drift | a run | Bias, order of the file | found | Bias, registered order | found |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for rate, registered in zip(made[::2], made[1::2], strict=True):
        drift = "" if rate.drift == "none" else f"{rate.per_run:g} SD"
        cells = [str(rate.arms), str(rate.seeds), rate.drift, drift]
        cells += [word for one in (rate, registered) for word in (_bias(one), _found(one))]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "What remains: with an odd number of seeds the drift within the last one, over the number of seeds; of a",
        "quadratic drift a part, unless seeds are a multiple of 2k for k arms; of any other curve, a part too. Where",
        "no bias remains, the drift still widens the spread of the differences: less is found than alpha allows, and",
        "power is lost. A machine at rest and a warm-up before the first seed are better than any order.",
    ]
    return "\n".join(lines) + "\n"


def _bias(rate: Rate) -> str:
    return f"{rate.bias:+.2f}".replace("-0.00", "+0.00")


def _found(rate: Rate) -> str:
    return f"{rate.found:.4f} ± {rate.error:.4f}".replace("0.", ".")


def committed() -> list[Rate]:
    """The rows of the committed table."""
    return [Rate(**row) for row in json.loads(OUT.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    if "--page" not in sys.argv:
        OUT.write_text(json.dumps([asdict(rate) for rate in rows()], indent=1) + "\n", encoding="utf-8")
    OUT.with_suffix(".md").write_text(page(committed()), encoding="utf-8")
