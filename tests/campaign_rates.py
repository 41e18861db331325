"""Error rates and gains of campaigns, by simulation through the procedure that decides real ones.

    nice python tests/campaign_rates.py                         # writes reports/campaigns/rates.json and README.md
    nice python tests/campaign_rates.py --records FOLDER        # the same with noise resampled from public runs
    nice python tests/campaign_rates.py --pairs --records FOLDER  # only best and proposal from two groups of these
    python tests/campaign_rates.py --page                       # README.md of what was measured last

A campaign tries 100 changes. Each is compared with the best so far at 2, 4 and 8 pairs of runs with new seeds, and a
keep changes the best. A useful change has a true gain of 2 SDs of the paired differences, and all others have none.
Laws of the noise are those of single runs, the same for both sides unless a row says otherwise; what is written of a
law is scaled so that differences have an SD of 1.

`--records` names the folder of `speedrun_final_val_loss.csv` (final validation losses of KellerJordan/modded-nanogpt);
without it the rows of a folder `records` on the path ABLATE_CORPORA are taken, and without any those rows are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import chain, permutations, product
from math import sqrt
from pathlib import Path

import numpy as np
import pandas as pd
from campaign_samples import a_campaign
from scipy import stats

from ablate.judge.campaign.design import rate_of
from ablate.judge.campaign.simulate import Counts, Noise, SimulatedCampaigns, World, simulate_campaigns
from ablate.judge.stats.significance_tests import Floats
from prereg.campaign.spec import Campaign

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "reports" / "campaigns" / "rates.json"
PAGE = OUT.with_name("README.md")
CAMPAIGNS = 10_000
PROPOSALS = 100
SHARES = (0.0, 0.05, 0.2)
GAIN = 2.0
"""SDs of the paired differences."""
ERRORS = {"any false keep": {"any_false_keep": 0.05}, "false discovery rate": {"false_discovery_rate": 0.1}}
END = float(np.log(4.0))
RECORDS = "speedrun_final_val_loss.csv"
LEAST_RUNS = 16
"""Of a group of public runs: eight pairs without a run twice."""
ANY_PAIR = "best and proposal from two groups of public runs"
WORST_PAIR = "best and proposal from the two groups that err most often"
CAMPAIGNS_OF_PAIR = 250
"""Campaigns of each pair of groups."""
Arm = Callable[[np.random.Generator, int, int, int], Floats]
"""Noise of single runs of one side: generator, number of the proposal, campaigns, seeds."""


@dataclass(frozen=True)
class Row:
    """A cell that was measured: means over campaigns, each with its standard error."""

    table: str
    noise: str
    useful: float
    rule: str
    campaigns: int
    any_false: tuple[float, float]
    false_keeps: tuple[float, float]
    false_rate: tuple[float, float]
    gain: tuple[float, float]
    possible: float
    runs: float


# -- laws of the noise -------------------------------------------------------------------------------------------------


def normal(rng: np.random.Generator, number: int, rows: int, seeds: int) -> Floats:
    return rng.standard_normal((rows, seeds))


def t3(rng: np.random.Generator, number: int, rows: int, seeds: int) -> Floats:
    return rng.standard_t(3.0, (rows, seeds)) / sqrt(3.0)


def failing(rng: np.random.Generator, number: int, rows: int, seeds: int) -> Floats:
    """One run in ten ends 10 SDs of the others away."""
    x = rng.standard_normal((rows, seeds)) - 10.0 * (rng.random((rows, seeds)) < 0.1)
    return (x + 1.0) / sqrt(1.0 + 100.0 * 0.09)


def uniform(rng: np.random.Generator, number: int, rows: int, seeds: int) -> Floats:
    return (rng.random((rows, seeds)) - 0.5) * sqrt(12.0)


@dataclass
class Drifting:
    """The SD of the noise walks from pair to pair, and may be 4 times what it was or a quarter of it."""

    logs: Floats | None = None
    step: float = 0.1

    def __call__(self, rng: np.random.Generator, number: int, rows: int, seeds: int) -> Floats:
        start = np.zeros(rows) if number == 0 or self.logs is None else self.logs
        walk = start[:, None] + np.cumsum(self.step * rng.standard_normal((rows, seeds)), axis=1)
        # Reflected at both ends: a triangle wave of the walk.
        walk = np.abs((walk - END) % (4.0 * END) - 2.0 * END) - END
        self.logs = walk[:, -1]
        return rng.standard_normal((rows, seeds)) * np.exp(walk)


@dataclass(frozen=True)
class Resampled:
    """Runs of one public group a proposal and campaign, without replacement, in SDs of the group."""

    groups: tuple[Floats, ...]

    def __call__(self, rng: np.random.Generator, number: int, rows: int, seeds: int) -> Floats:
        drawn = np.empty((rows, 2 * seeds))
        which = rng.integers(len(self.groups), size=rows)
        for at, group in enumerate(self.groups):
            of_group = np.flatnonzero(which == at)
            order = rng.random((of_group.size, group.size)).argpartition(2 * seeds - 1, axis=1)[:, : 2 * seeds]
            drawn[of_group] = group[rng.permuted(order, axis=1)]
        return drawn


@dataclass(frozen=True)
class TwoGroups:
    """Best and proposal from two groups of public runs, each about its own mean, in SDs of their differences.

    Two sides whose noise has another shape or another SD have a skewed difference, which the t test takes for a gain
    too often; of two sides from one group the skew cancels. Runs are drawn with replacement: without it, a mean of few
    runs of a small group would vary less than one of new runs.
    """

    best: Floats
    proposal: Floats

    def __call__(self, rng: np.random.Generator, number: int, n_kept: Counts, n_seeds: int) -> Floats:
        drawn = [group[rng.integers(group.size, size=(n_kept.size, n_seeds))] for group in (self.best, self.proposal)]
        differences: Floats = (drawn[1] - drawn[0]) / sqrt(self.best.var() + self.proposal.var())
        return differences


def paired(arm: Arm) -> Noise:
    """Differences of two sides with the same law, SD 1."""

    def noise(rng: np.random.Generator, number: int, n_kept: Counts, n_seeds: int) -> Floats:
        rows = n_kept.size
        if isinstance(arm, Resampled):
            both = arm(rng, number, rows, n_seeds)
        elif isinstance(arm, Drifting):  # both sides of a pair are run at the same time, with one SD
            return arm(rng, number, rows, n_seeds)
        else:
            both = arm(rng, number, rows, 2 * n_seeds)
        differences: Floats = (both[:, :n_seeds] - both[:, n_seeds:]) / sqrt(2.0)
        return differences

    return noise


def groups_of(folder: Path, *, in_sds: bool = True) -> tuple[Floats, ...]:
    """Groups of final losses about their mean, in SDs of the group or as they are; runs that were logged before their
    last step are left out."""
    table = pd.read_csv(folder / RECORDS)
    table = table[table["step"] == table["of"]]
    groups = [np.asarray(rows["val_loss"], dtype=np.float64) for _, rows in table.groupby("group")]
    # Turned: a lower loss is a better run.
    return tuple(
        (g.mean() - g) / (g.std(ddof=1) if in_sds else 1.0) for g in groups if g.size >= LEAST_RUNS and g.std() > 0.0
    )


def records_folder(given: Path | None) -> Path | None:
    """The folder of public runs: the one that was given, else the first on ABLATE_CORPORA that has one."""
    places = [Path(place) / "records" for place in os.environ.get("ABLATE_CORPORA", "").split(os.pathsep) if place]
    return next((place for place in ([given] if given else places) if (place / RECORDS).is_file()), None)


# -- violations --------------------------------------------------------------------------------------------------------


def candidate_fails(rng: np.random.Generator, number: int, n_kept: Counts, n_seeds: int) -> Floats:
    """The change makes one run in ten 5 SDs worse and all others better, so that its mean gain is none."""
    worse = rng.random((n_kept.size, n_seeds)) < 0.1
    x = rng.standard_normal((n_kept.size, n_seeds)) - 5.0 * worse + 0.5
    return x / sqrt(1.0 + 25.0 * 0.09)


@dataclass
class SharedBest:
    """The best is trained once, and its runs serve every proposal until the next keep. What is run later is better by
    `drift` SDs a proposal, as after an update of a library or a machine."""

    drift: float = 0.0
    runs: Floats | None = None
    n_kept: Counts | None = None

    def __call__(self, rng: np.random.Generator, number: int, n_kept: Counts, n_seeds: int) -> Floats:
        fresh = rng.standard_normal((n_kept.size, n_seeds))
        if number == 0 or self.runs is None or self.n_kept is None:
            self.runs = fresh
        else:
            is_new = (n_kept > self.n_kept)[:, None]
            self.runs = np.where(is_new, fresh + self.drift * number * sqrt(2.0), self.runs)
        self.n_kept = n_kept.copy()
        runs = rng.standard_normal((n_kept.size, n_seeds)) + self.drift * number * sqrt(2.0)
        differences: Floats = (runs - self.runs) / sqrt(2.0)
        return differences


def rounded(unit: float, rng: np.random.Generator, number: int, n_kept: Counts, n_seeds: int) -> Floats:
    """Values that are written with few digits: multiples of `unit` SDs of the differences."""
    both = rng.standard_normal((2, n_kept.size, n_seeds)) / sqrt(2.0)
    rounded_values = np.round(both / unit) * unit
    differences: Floats = rounded_values[0] - rounded_values[1]
    return differences


# -- what loops do -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Changes:
    """What is proposed: a share of useful changes, and the true gain of the others."""

    useful: float
    others: float = 0.0

    def gains(self, rng: np.random.Generator, campaigns: int) -> Floats:
        return np.where(rng.random(campaigns) < self.useful, GAIN, self.others)


def one_seed(noise: Arm, changes: Changes, campaigns: int, rng: np.random.Generator) -> SimulatedCampaigns:
    """Keep what is lower on one seed than the value that the best was kept with."""
    true_best = np.zeros(campaigns)
    best_value = _first(noise(rng, 0, campaigns, 1)) / sqrt(2.0)
    counted = _Counted(campaigns)
    for number in range(PROPOSALS):
        gain = changes.gains(rng, campaigns)
        value = true_best + gain + _first(noise(rng, number, campaigns, 1)) / sqrt(2.0)
        keeps = value > best_value
        counted.add(gain, keeps, value - best_value)
        best_value = np.where(keeps, value, best_value)
        true_best = true_best + np.where(keeps, gain, 0.0)
    return counted.campaigns(runs=1 + PROPOSALS)


def four_seeds(noise: Arm, changes: Changes, campaigns: int, rng: np.random.Generator) -> SimulatedCampaigns:
    """Keep what is better in a two-sided paired t test at .05 of four new seeds."""
    counted = _Counted(campaigns)
    differences = paired(noise)
    for number in range(PROPOSALS):
        gain = changes.gains(rng, campaigns)
        x = gain[:, None] + differences(rng, number, np.zeros(campaigns, dtype=np.int64), 4)
        mean, se = x.mean(axis=1), x.std(axis=1, ddof=1) / 2.0
        keeps = mean > stats.t.ppf(0.975, 3) * se
        counted.add(gain, keeps, mean)
    return counted.campaigns(runs=8 * PROPOSALS)


def _first(x: Floats) -> Floats:
    """One value a campaign."""
    value: Floats = x[:, 0]
    return value


LOOPS = {"one seed": one_seed, "p < .05 at 4": four_seeds}


class _Counted:
    """Keeps, as they come."""

    def __init__(self, campaigns: int) -> None:
        self.false, self.true = np.zeros(campaigns, dtype=np.int64), np.zeros(campaigns, dtype=np.int64)
        self.gain, self.estimated, self.possible = np.zeros(campaigns), np.zeros(campaigns), np.zeros(campaigns)

    def add(self, gain: Floats, keeps: np.ndarray, estimated: Floats) -> None:
        self.false += keeps & (gain <= 0.0)
        self.true += keeps & (gain > 0.0)
        self.gain += np.where(keeps, gain, 0.0)
        self.estimated += np.where(keeps, estimated, 0.0)
        self.possible += np.maximum(gain, 0.0)

    def campaigns(self, runs: int) -> SimulatedCampaigns:
        every = np.full(self.false.size, PROPOSALS, dtype=np.int64)
        return SimulatedCampaigns(
            self.false, self.true, self.gain, self.estimated, self.possible, every, np.full_like(every, runs)
        )


# -- tables ------------------------------------------------------------------------------------------------------------


def campaign_of(error: str, **changes: object) -> Campaign:
    """The campaign that is simulated: every proposal can be paid, and no gain above zero is too small."""
    stages = changes.pop("stages", {"seeds": [2, 4, 8], "futility": [0.5, 0.2]})
    most = stages["seeds"][-1]  # type: ignore[index]
    settings = {"smallest": 0.0, "stages": stages, "budget": {"proposals": PROPOSALS, "runs": 2 * most * PROPOSALS}}
    return a_campaign(**(settings | {"error": ERRORS[error]} | changes))


def laws(folder: Path | None) -> dict[str, Callable[[], Arm]]:
    """Name -> a law of single runs, made anew for each simulation because some have a state."""
    made: dict[str, Callable[[], Arm]] = {
        "normal": lambda: normal,
        "an SD that walks": Drifting,
        "Student's t, 3 df": lambda: t3,
        "1 run in 10 fails": lambda: failing,
    }
    if folder is not None:
        groups = groups_of(folder)
        made[f"public runs, {len(groups)} groups"] = lambda: Resampled(groups)
    return made


def measured(table: str, noise: str, useful: float, rule: str, simulated: SimulatedCampaigns) -> Row:
    """The means of a cell."""

    def pair(values: Floats) -> tuple[float, float]:
        rate = rate_of(values)
        return rate.mean, rate.se

    return Row(
        table,
        noise,
        useful,
        rule,
        simulated.false_keeps.size,
        pair(simulated.any_false_keep),
        pair(simulated.false_keeps.astype(np.float64)),
        pair(simulated.false_share),
        pair(simulated.true_gain),
        float(simulated.possible_gain.mean()),
        float(simulated.n_runs.mean()),
    )


def rows(campaigns: int, folder: Path | None) -> Iterator[Row]:
    """Every cell, as it is measured; each has draws of its own."""
    cell = 0

    def rng() -> np.random.Generator:
        nonlocal cell
        cell += 1
        return np.random.default_rng([20261127, cell])

    def simulated(campaign: Campaign, world: World, n: int = campaigns) -> SimulatedCampaigns:
        return simulate_campaigns(campaign, world, n, rng())

    for (noise, law), useful in product(laws(folder).items(), SHARES):
        for error in ERRORS:
            world = World(useful, GAIN, 1.0, noise=paired(law()))
            yield measured("rates", noise, useful, error, simulated(campaign_of(error), world))
        for rule, loop in LOOPS.items():
            yield measured("rates", noise, useful, rule, loop(law(), Changes(useful), campaigns, rng()))
    for useful in SHARES[1:]:
        noise = "normal, and every other change harms by half an SD"
        for error in ERRORS:
            world = World(useful, GAIN, 1.0, others=-0.5)
            yield measured("rates", noise, useful, error, simulated(campaign_of(error), world))
        for rule, loop in LOOPS.items():
            yield measured("rates", noise, useful, rule, loop(normal, Changes(useful, -0.5), campaigns, rng()))
    quiet = World(0.0, GAIN, 1.0)
    early = {"seeds": [3, 6], "spending": "pocock", "futility": [0.5]}
    limits: list[tuple[str, World, dict[str, object]]] = [
        ("a change with a rare failure, mean gain none", replace(quiet, noise=candidate_fails), {}),
        ("the same, stages 3 and 6, pocock", replace(quiet, noise=candidate_fails), {"stages": early}),
        ("normal, stages 3 and 6, pocock", quiet, {"stages": early}),
        ("t, 3 df, stages 3 and 6, pocock", replace(quiet, noise=paired(t3)), {"stages": early}),
        ("runs of the best shared until a keep", replace(quiet, noise=SharedBest()), {}),
        ("the same, and later runs are better by .02 SD a proposal", replace(quiet, noise=SharedBest(0.02)), {}),
        ("values rounded to half an SD", replace(quiet, noise=partial(rounded, 0.5)), {}),
        ("values rounded to one SD", replace(quiet, noise=partial(rounded, 1.0)), {}),
        (
            "gain of 3 SDs, a guardrail at its margin",
            World(1.0, 3.0, 1.0, guardrail_sds=(1.0,), worsens=1.0),
            {"guardrails": [{"metric": "memory", "margin": 1.0, "better": "lower"}]},
        ),
    ]
    for (noise, world, changes), error in product(limits, ERRORS):
        yield measured("limits", noise, world.useful, error, simulated(campaign_of(error, **dict(changes)), world))
    for seeds, gain, error in product(((2, 4, 8), (3, 6, 12), (4, 8, 16)), (1.0, 1.5, 2.0, 3.0), ERRORS):
        stages = {"seeds": list(seeds), "futility": [0.5, 0.2]}
        world = World(0.05, gain, 1.0)
        of_size = simulated(campaign_of(error, stages=stages), world, min(campaigns, 2_000))
        yield measured(f"sizes {seeds[-1]}", f"{gain:g}", 0.05, error, of_size)
    for error in ERRORS:
        world = replace(quiet, noise=paired(uniform))
        yield measured("limits", "both sides uniform", 0.0, error, simulated(campaign_of(error), world))


def pairs_of_groups(campaigns: int, folder: Path) -> Iterator[Row]:
    """Best and proposal from two groups of public runs: every pair of groups, then the pair that errs most often.

    The worst pair is chosen among all by `CAMPAIGNS_OF_PAIR` campaigns each, and measured with others: the largest of
    many estimates is too large.
    """
    groups = groups_of(folder, in_sds=False)
    pairs = list(permutations(range(len(groups)), 2))

    def simulated(error: str, pair: tuple[int, int], n: int, part: int) -> SimulatedCampaigns:
        best, proposal = (groups[at] for at in pair)
        rng = np.random.default_rng([20261129, part, list(ERRORS).index(error), *pair])
        return simulate_campaigns(campaign_of(error), World(0.0, GAIN, 1.0, noise=TwoGroups(best, proposal)), n, rng)

    rates: dict[tuple[int, int], float] = {}
    for error in ERRORS:
        by_pair = {pair: simulated(error, pair, CAMPAIGNS_OF_PAIR, 0) for pair in pairs}
        rates = rates or {pair: float(each.any_false_keep.mean()) for pair, each in by_pair.items()}
        together = SimulatedCampaigns(
            **{
                field.name: np.concatenate([getattr(each, field.name) for each in by_pair.values()])
                for field in fields(SimulatedCampaigns)
            }
        )
        yield measured("pairs", f"{ANY_PAIR}, mean of {len(pairs)} pairs", 0.0, error, together)
    worst = max(pairs, key=lambda pair: rates[pair])
    for error in ERRORS:
        yield measured("pairs", WORST_PAIR, 0.0, error, simulated(error, worst, campaigns, 1))


# -- the page ----------------------------------------------------------------------------------------------------------


def decimal(pair: tuple[float, float], digits: int = 3) -> str:
    """A mean and its standard error."""
    mean, se = (f"{value:.{digits}f}".replace("0.", ".", 1) if value < 1 else f"{value:.{digits}f}" for value in pair)
    return f"{mean} ± {se}"


RULES = {
    "any false keep": "campaign, any false keep ≤ .05",
    "false discovery rate": "campaign, FDR ≤ .10",
    "one seed": "keep if lower on one seed",
    "p < .05 at 4": "keep if p < .05 at 4 seeds",
}


def page(measured_rows: list[Row]) -> str:
    """The report in Markdown."""
    of_table = {name: [row for row in measured_rows if row.table == name] for name in ("rates", "limits", "pairs")}
    lines = HEAD.format(campaigns=f"{max(row.campaigns for row in of_table['rates']):,}").split("\n")
    for noise in dict.fromkeys(row.noise for row in of_table["rates"]):
        lines += ["", f"### {noise[0].upper()}{noise[1:]}", "", *_RATES_HEAD]
        for row in (row for row in of_table["rates"] if row.noise == noise):
            share = "–" if not row.possible else f"{100 * row.gain[0] / row.possible:.0f}%"
            lines.append(
                f"| {100 * row.useful:.0f}% | {RULES[row.rule]} | {decimal(row.any_false)} | "
                f"{decimal(row.false_keeps, 2)} | {decimal(row.false_rate)} | {row.gain[0]:.1f} ± {row.gain[1]:.1f} | "
                f"{share} | {row.runs:,.0f} |"
            )
    lines += [
        "",
        *LIMITS.split("\n"),
        "",
        "| what is not as assumed | bounded | any false keep | FDR |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row.noise} | {RULES[row.rule].removeprefix('campaign, ')} | {decimal(row.any_false)} | "
        f"{decimal(row.false_rate)} |"
        for row in (*of_table["limits"], *of_table["pairs"])
    ]
    lines += [
        "",
        *SIZES.split("\n"),
        "",
        "| stages | true gain, SDs | any ≤ .05: kept | runs | FDR ≤ .10: kept | runs |",
    ]
    lines += ["|---|---|---|---|---|---|"]
    sizes = [row for row in measured_rows if row.table.startswith("sizes")]
    for first, second in zip(sizes[::2], sizes[1::2], strict=True):
        most = int(first.table.split()[1])
        shares = [f"{100 * row.gain[0] / row.possible:.0f}% | {row.runs:,.0f}" for row in (first, second)]
        lines.append(f"| {most // 4}, {most // 2}, {most} | {first.noise} | {' | '.join(shares)} |")
    return "\n".join([*lines, ""])


_RATES_HEAD = (
    "| useful | rule | any false keep | false keeps | FDR | true gain, SDs | of possible | runs |",
    "|---|---|---|---|---|---|---|---|",
)
HEAD = """# Campaigns: error rates and gains

Written by `nice python tests/campaign_rates.py --records FOLDER`; do not edit. Numbers depend on no machine.

{campaigns} simulated campaigns a row (2,000 in the last table), 100 proposals each, through `judge_stage`, which
decides real proposals (`ablate/judge/campaign/procedure.py`, where the proofs are). Stages of 2, 4 and 8 pairs,
levels of O'Brien-Fleming type, futility limits .5 and .2. A useful change has a true gain of 2 SDs of the paired
differences, every other change none, which is where false keeps are likeliest. ± is the standard error of the
simulation.

- **any false keep**: share of campaigns that kept a change without gain. **false keeps**: how many, a campaign.
  **FDR**: mean share of false ones among the keeps (0 of a campaign without keeps). **of possible**: true gain over
  that of all useful changes.
- *keep if lower on one seed* compares one run with the value that the best was kept with, as loops do. *keep if p <
  .05 at 4 seeds* is a two-sided paired t test of four new seeds, both sides trained anew.

## Rates

Bounded: in rows *any false keep ≤ .05* the first number, in rows *FDR ≤ .10* the third."""
LIMITS = """## Where the bound does not hold, and where it was tried

The proof needs normal differences with one SD within a proposal, and new runs of both sides. None of these changes is
useful, but in the rows with a guardrail, where all gain 3 SDs and every keep is false because of it.

- **A rare failure breaks the bound.** A change that makes one run in ten 5 SDs worse and the others better has a mean
  gain of none and a skewed difference; where no run of eight fails it looks like a clear gain, and no t test of few
  pairs can know better. A run that *diverges* is no such case: it drops the change. What helps is more pairs at the
  last stage, a guardrail, or the confirmation.
- **Two sides whose noise differs** break it, and a real change may alter the noise. Best and proposal from two groups
  of public runs, each about its own mean and drawn with replacement, keep falsely somewhat more often than is bounded,
  in the mean over all pairs of groups (250 campaigns each); from the two groups that err most, four times as often. The
  rows *public runs* above take both sides from one group, so that the skew cancels: they are no measure of such a
  change, and no study of few runs knows which pair it has.
- **Runs of the best that later proposals share** break it as soon as anything else changes with time: each proposal
  then trains the best anew, at the same time. Without drift the bound held here; the proof does not cover it, so it
  is not offered.
- **Noise with short tails** errs more often (both sides uniform: by a tenth or less): a small SD, and so a large t, is
  likelier than under a normal law.
- **Equal gains of rounded values** are no evidence, by rule. Public runs are logged with four decimals; before that
  rule, gains of two pairs that were equal but for the rounding of doubles had a t of 1e12, and .072 ± .003 of their
  campaigns kept falsely.
- Heavy tails that both sides have, an SD that walks, stages from 3 pairs with Pocock's spending, and values rounded
  to the size of their own noise did not raise an error above its bound: the t test errs less often there."""
SIZES = """## What can be found

Normal noise, 5% useful: share of the useful changes that are kept, by true gain in SDs of the paired differences and
by stages. The price of one error rate over 100 proposals is that gains of one SD need more than eight pairs."""


def main() -> None:
    """Measure, and write both files; `--page` writes the page of what was measured last."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--campaigns", type=int, default=CAMPAIGNS)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--pairs", action="store_true")
    options = parser.parse_args()
    folder = records_folder(options.records)
    if options.page or options.pairs:
        found = [Row(**row) for row in json.loads(OUT.read_text(encoding="utf-8"))]
        if options.pairs:
            if folder is None:
                parser.error("--pairs without public runs: --records FOLDER")
            found = [row for row in found if row.table != "pairs"] + list(pairs_of_groups(options.campaigns, folder))
    else:
        found, start = [], time.monotonic()
        of_pairs = () if folder is None else pairs_of_groups(options.campaigns, folder)
        for row in chain(rows(options.campaigns, folder), of_pairs):
            found.append(row)
            words = f"{row.table}, {row.noise}, {row.useful:g}, {row.rule}: any {decimal(row.any_false)}"
            print(f"{time.monotonic() - start:6.0f} s  {words}, FDR {decimal(row.false_rate)}", flush=True)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
