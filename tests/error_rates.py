"""Error rates of every paired test of a study, by simulation through the functions that judge real studies.

    python tests/error_rates.py        # writes reports/bench/error-rates.{json,md} and the paragraph in README.md
    python tests/error_rates.py --only items     # the same, and measures only cells that the table lacks, or cells
                                                 # whose words hold "items" (`--only` repeats)

A cell is a design, a test, a number of seeds and a law of the differences. In each, four numbers, each with the number
of simulated studies and its Monte Carlo standard error:

    adoption   the rule "adopt when supported(gain) and supported(no_harm)" adopts where it must not: there is no gain
               and the harm is far away, or the gain is large and the harm at its margin; the worse of the two
    support    a claim is supported at the border of its null; the worst of five verbs (of a family: any of its claims)
    misses     1 - coverage of the 95% interval (of a family: of Bonferroni's intervals together)
    misses_2a  the same of the 90% interval, which is the one that a margin is compared with

Skewed laws are drawn with their long tail against the claim and for it, and the worse counts. They are laws of the
differences: a difference of two arms with the same skewed law would be symmetric, and hide what skewness does.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import sqrt
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd
from evidence_factory import LEVELS, make_evidence, small_study, with_entry, with_items
from scipy import stats

from ablate.capabilities import require_supported
from ablate.judge.decide import decide
from ablate.judge.design.characteristics import simulate_design
from ablate.judge.design.refusal import obstacle
from ablate.judge.design.scenarios import Drawn
from ablate.judge.design.simulate import judge_drawn
from ablate.judge.interim import restrict
from ablate.judge.judge import OUTCOME, Items, ItemsOf, at_look, judge_rows
from ablate.judge.stats.kinds import over_seeds
from ablate.judge.stats.significance_tests import PairedT
from ablate.judge.stats.two_way import Spread, Tail, TwoWay, spread_of, tail_of
from ablate.records.evidence import ITEM_COLUMNS, Evidence
from prereg.errors import StudyError
from prereg.registry.looks import looks_of
from prereg.registry.registration import Registration
from prereg.study.spec import Study

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "reports" / "bench" / "error-rates.json"
PAGE = TABLE.with_suffix(".md")
README = ROOT / "README.md"
START, END = "<!-- error-rates -->", "<!-- /error-rates -->"

ALPHA = 0.05
MARGIN = 10.0
"""In SDs of the differences: so far from zero that a claim of no change meets only one of its two borders."""
FAR = {3: 30.0, 4: 22.0, 5: 18.0, 6: 15.0, 7: 13.0, 8: 11.0, 9: 10.0, 10: 10.0}
"""By the number of seeds, an effect that every test finds."""
LAWS = ("normal", "exponential", "t3", "mixture", "uniform", "bimodal", "failed seed")
"""Of the differences, mean 0 and SD 1. mixture: one difference in ten is 5 SDs of the others away, on one side.
bimodal: as often at -1 as at 1, each with an SD of 0.1. failed seed: one seed in ten ends, without diverging, 100 SDs
of the others away, on one side."""
LAWS_OVER_ITEMS = LAWS[:4]
"""Those that tables of items are drawn from, which take longest."""
ROUNDED = "rounded"
"""Normal differences in steps of one SD, as records with few digits may have them: many are equal."""
SKEWED = ("exponential", "mixture", "failed seed")
FAILED, FAR_AWAY = 0.1, 100.0
"""The chance of a failed seed, and how far away it ends, in SDs of the others."""
TESTS = ("paired_t", "bootstrap_t", "sign_flip", "wilcoxon")
SEEDS = (3, 5, 8)
DIVERGING = {"31% diverge": 0.31, "10% diverge": 0.10}
"""Share of the candidate's runs that diverge, the worst ones."""
PLAIN = ("normal", "correlated", *DIVERGING)
"""Where every rate is to be nominal."""
VERBS = ("lowers", "changes", "lowers_by", "does_not_worsen", "does_not_change")
ITEMS = 200
SIZES = {"items": (1,) * ITEMS, "equal tasks": (20,) * 10, "unequal tasks": (4, 4, 6, 8, 10, 16, 24, 40, 80, 160)}
SPREADS = ((0.02, 0.4, 1.0), (0.3, 0.4, 1.0), (1.0, 0.1, 0.5))
"""SDs of seeds, of items (or tasks) and of both: a seed component that is small, moderate, and all that matters."""
JOINED = (0.0, 0.5, 0.9)
"""Correlations of the noise of the four claims of a family."""


@dataclass(frozen=True)
class Cell:
    """What is simulated."""

    design: str
    """fixed, looks, or what is crossed with the seeds."""
    test: str
    n: int
    law: str

    @property
    def words(self) -> str:
        return f"{self.design}, {self.test}, {self.n} seeds, {self.law}"


def cells() -> Iterator[Cell]:
    """Every combination, registrable or not."""
    for law in (*LAWS, "correlated", *DIVERGING):
        for n in SEEDS:
            yield from (Cell("fixed", test, n, law) for test in TESTS)
        yield Cell("looks", "paired_t", 8, law)
    yield from (Cell("fixed", test, 4, "bimodal") for test in TESTS)
    yield from (Cell("fixed", "paired_t", n, ROUNDED) for n in range(3, 11))
    # With more pairs few resamples draw equal differences alone; tests/precision_rates.py goes on to ten.
    yield from (Cell("fixed", "bootstrap_t", n, ROUNDED) for n in range(3, 8))
    for law in (*LAWS_OVER_ITEMS, "correlated", *DIVERGING):
        for n in SEEDS:
            yield Cell("items", "items: new_seeds", n, law)
            yield from (Cell(crossed, "items: new_seeds_and_items", n, law) for crossed in SIZES)


LEFT_OUT = (
    "Not registrable, and so without a cell: looks with another test than paired_t; items with looks; "
    "every combination that registration refuses because the test cannot support a claim with so few seeds, or does "
    "not decide from so few. Every other combination of these tests, laws and designs is simulated, but for tables of "
    "items, which are drawn from normal, exponential, t3 and mixture laws only; "
    "of diverging runs false adoption alone, which is what the loss of pairs could raise."
)


def study_of(cell: Cell, hypotheses: Mapping[str, Mapping[str, Any]], when: str = "supported(h)") -> Study:
    """The study of a cell. Raises `StudyError` where it cannot be registered."""
    kind, _, estimand = cell.test.partition(": ")
    fields: dict[str, Any] = {"analysis": {"test": kind, **({"estimand": estimand} if estimand else {})}}
    if estimand:
        clusters = "none" if cell.design == "items" else "tasks"
        fields["measure"] = {"every": 4, "harness": {"tasks": "blimp", "clusters": clusters, "shots": [0, 1, 2, 3, 4]}}
    if cell.design == "looks":
        fields["stopping"] = {"looks": list(SEEDS), "spending": "obrien_fleming"}
    decision = [{"verdict": "adopt", "when": when}]
    if cell.law in DIVERGING:
        decision.append({"verdict": "unstable", "when": "not stable(none) or not stable(layernorm)"})
    document = {
        "base": {"budget": {"steps": 4, "batch": 4}, "model": {"layers": 1, "width": 16, "heads": 2, "context": 8}},
        "variants": {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}},
        "seeds": list(range(1, cell.n + 1)),
        "measure": {"every": 4},
        "hypotheses": hypotheses,
        "decision": [*decision, {"verdict": "inconclusive"}],
        "tie_breakers": [],
        "assume": {},
    }
    study = small_study(**(document | fields))
    require_supported(study)
    return study


def over_items(cell: Cell) -> bool:
    return cell.test.startswith("items")


def rule_of(cell: Cell) -> Study:
    """The rule that adopts: one gain, or any of four, and one guardrail."""
    metrics = ["val/loss", "val/bits_per_byte", "train/loss", "grad/norm"]
    verb, guarded = "lowers", "val/accuracy"
    if over_items(cell):
        metrics, verb, guarded = [f"harness/accuracy_shots_{n}" for n in range(4)], "raises", "harness/accuracy_shots_4"
    if cell.law != "correlated":
        metrics = metrics[:1]
    gains = {f"gain_{at}" if at > 1 else "gain": f"layernorm {verb} {one}" for at, one in enumerate(metrics, start=1)}
    hypotheses: dict[str, dict[str, Any]] = {name: {"claim": claim, "smallest": 0.0} for name, claim in gains.items()}
    harm = {"claim": f"layernorm does_not_worsen {guarded}", "smallest": MARGIN, "role": "guardrail"}
    asked = " or ".join(f"supported({name})" for name in gains)
    return study_of(cell, hypotheses | {"no_harm": harm}, f"({asked}) and supported(no_harm)")


def one_of(cell: Cell, verb: str) -> Study:
    """One claim."""
    metric = "harness/accuracy" if over_items(cell) else "val/loss"
    claim = f"layernorm {verb} {metric}"
    if verb == "lowers_by":
        return study_of(cell, {"h": {"claim": f"layernorm lowers {metric} by at least {MARGIN:g}"}})
    return study_of(cell, {"h": {"claim": claim, "smallest": MARGIN if verb.startswith("does_not") else 0.0}})


def refused(cell: Cell) -> str | None:
    """Why the rule of a cell cannot be registered; none where it can."""
    try:
        study = rule_of(cell)
        found = obstacle(simulate_design(study, n_sims=1))
    except StudyError as error:
        return error.found
    return None if found is None else found.found


def draw(law: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Differences of mean 0 and SD 1, the long tail above."""
    if law == "exponential":
        return rng.standard_exponential(shape) - 1.0
    if law in ("t3", "uniform"):
        return rng.standard_t(3, shape) / sqrt(3.0) if law == "t3" else rng.uniform(-sqrt(3.0), sqrt(3.0), shape)
    if law == "mixture":
        return (rng.standard_normal(shape) + 5.0 * (rng.random(shape) < 0.1) - 0.5) / sqrt(1.0 + 25.0 * 0.09)
    if law == "bimodal":
        return (np.where(rng.random(shape) < 0.5, -1.0, 1.0) + 0.1 * rng.standard_normal(shape)) / sqrt(1.01)
    if law == "failed seed":
        failed = FAR_AWAY * (rng.random(shape) < FAILED) - FAR_AWAY * FAILED
        return (rng.standard_normal(shape) + failed) / sqrt(1.0 + FAR_AWAY**2 * FAILED * (1.0 - FAILED))
    z = rng.standard_normal(shape)
    return np.round(z) if law == ROUNDED else z


def tails(law: str) -> tuple[int, ...]:
    """Long tail against the claim, and for it."""
    return (1, -1) if law in SKEWED else (1,)


def claimed(study: Study, name: str) -> int:
    """The sign of an effect that goes the claimed way; towards better for a claim that nothing worsens, and for changes
    and no change below zero."""
    verb, better = study.claims[name].verb, study.claims[name].better
    if verb == "does_not_worsen":
        return -1 if better == "lower" else 1
    return 1 if verb.startswith("raises") else -1


def border(study: Study, name: str) -> float:
    """The effect at the border of the null of a supported claim, where an error is most frequent."""
    verb = study.claims[name].verb
    if verb in ("lowers", "raises", "changes"):
        return 0.0
    way = claimed(study, name)
    # A claim of at least a margin is false just short of it, a claim of no change at the margin on the other side.
    return MARGIN * (way if verb.endswith("_by") else -way)


Rate = dict[str, Any]


def rate(hits: int, n: int, **where: Any) -> Rate:
    """A share, its studies and its error (Agresti and Coull 1998, so that it is not 0 at a share of 0)."""
    centre = (hits + 2.0) / (n + 4.0)
    return {"share": hits / n, "error": sqrt(centre * (1.0 - centre) / (n + 4.0)), "n": n, **where}


def worst(found: Iterable[Rate]) -> Rate:
    return max(found, key=lambda one: one["share"])


def measure(cell: Cell, seed: int, scale: float = 1.0) -> dict[str, Rate]:
    """The four numbers of a cell; `scale` multiplies the number of studies."""
    if cell.law in DIVERGING:
        decided = 60 if cell.design == "fixed" else 20 if over_items(cell) else 40
        return _diverging(cell, seed, max(500, int(scale * 4_000)), max(10, int(scale * decided)))
    study = rule_of(cell)
    many = _studies(cell)
    n = max(200, int(scale * many))
    return {
        "adoption": worst(_adoptions(cell, study, seed, n)),
        "support": worst(_supports(cell, study, seed, n)),
        **_misses(cell, study, seed, max(200, int(scale * _intervals(cell)))),
    }


def _studies(cell: Cell) -> int:
    """As many as a few CPU seconds allow."""
    many = {"paired_t": 20_000, "sign_flip": 20_000, "wilcoxon": 2_000}.get(cell.test, 800 if cell.n > 6 else 3_000)
    if over_items(cell):
        many = 4_000
    elif cell.design != "fixed":
        many = 2_500
    return many // 2 if cell.law == "correlated" else many


def _intervals(cell: Cell) -> int:
    slow = cell.design != "fixed" or cell.test == "bootstrap_t"
    some = 4_000 if over_items(cell) else 1_000 if slow else 3_000
    return some // 3 if cell.law == "correlated" else some


def judged(cell: Cell, study: Study, differences: Mapping[str, np.ndarray]) -> np.ndarray:
    """Codes of outcomes, studies x hypotheses: over rows where the judge can, one by one elsewhere. Over items the
    differences are tables, studies x seeds x units (items, or tasks)."""
    if study.analysis.test == "items":
        found = {name: _summed(cell, table) for name, table in differences.items()}
        return judge_rows(study, {name: one[0] for name, one in found.items()}, items=_items(found)).codes
    studies = len(next(iter(differences.values())))
    stable = np.ones((studies, len(study.arms)), dtype=bool)
    return judge_drawn(study, Drawn(dict(differences), None, stable)).codes


@lru_cache(maxsize=8)
def _weights(design: str) -> tuple[np.ndarray, Tail]:
    """What each unit counts in the mean, and the tail that follows from it."""
    sizes = np.array(SIZES[design], dtype=np.float64)
    return sizes / sizes.sum(), tail_of(sizes / sizes.sum())


def _summed(cell: Cell, table: np.ndarray) -> tuple[np.ndarray, ItemsOf]:
    """Seeds' means, and what the test knows of the items beyond them."""
    weights, tail = _weights(cell.design)
    spread = spread_of(table, weights)
    return table @ weights, ItemsOf(np.asarray(spread.units), np.asarray(spread.both), tail)


def _items(found: Mapping[str, tuple[np.ndarray, ItemsOf]]) -> Items:
    return {name: one[1] for name, one in found.items()}


def _adopted(study: Study, codes: np.ndarray) -> np.ndarray:
    """Studies whose verdict is to adopt, every arm stable."""
    cases, place = np.unique(codes, axis=0, return_inverse=True)
    stable = dict.fromkeys(study.arms, True)
    answers = [
        study.rule.decide(dict(zip(study.hypotheses, (OUTCOME[code] for code in case), strict=True)), stable).verdict
        == "adopt"
        for case in cases
    ]
    return np.array(answers)[place.reshape(-1)]


def _effects(study: Study, state: str) -> dict[str, float]:
    """Effects in a state of the world in which adoption is false."""
    return {
        name: border(study, name)
        if (state == "no gain") == (name != "no_harm")
        else claimed(study, name) * FAR[len(study.seeds)]
        for name in study.hypotheses
    }


STATES = ("no gain", "harm at its margin")


def noise(
    cell: Cell, study: Study, n: int, rng: np.random.Generator, *, tail: int = 1, joined: float = 0.0, spread: int = 0
) -> dict[str, np.ndarray]:
    """Centred differences, the long tail against each claim where `tail` is 1."""
    common = _one_noise(cell, n, rng, spread) if joined else 0.0
    found = {}
    for name in study.hypotheses:
        mixed = sqrt(joined) * common + sqrt(1.0 - joined) * _one_noise(cell, n, rng, spread)
        found[name] = -tail * claimed(study, name) * mixed
    return found


def _one_noise(cell: Cell, n: int, rng: np.random.Generator, spread: int) -> np.ndarray:
    """Centred differences of one metric, studies x seeds; over items studies x seeds x units."""
    law = cell.law if cell.law in (*LAWS, ROUNDED) else "normal"
    if not over_items(cell):
        return draw(law, (n, cell.n), rng)
    by_seed = SPREADS[spread][0] * draw(law, (n, cell.n, 1), rng)
    return by_seed + _item_noise(cell, law, n, rng, spread)


def _item_noise(cell: Cell, law: str, n: int, rng: np.random.Generator, spread: int) -> np.ndarray:
    """What items and tasks add, studies x seeds x units; a task's mean stands for its items."""
    sizes, (_, by_unit, both) = np.array(SIZES[cell.design], dtype=np.float64), SPREADS[spread]
    found = both * rng.standard_normal((n, cell.n, sizes.size)) / np.sqrt(sizes)
    # With the items fixed their own luck is no error: it is the effect.
    if not cell.test.endswith("new_seeds"):
        found += by_unit * draw(law, (n, 1, sizes.size), rng)
    if cell.design != "items":
        found += 0.3 * draw(law, (n, cell.n, sizes.size), rng)
    return found


def _joined(cell: Cell) -> tuple[float, ...]:
    return JOINED if cell.law == "correlated" else (0.0,)


def _spreads(cell: Cell) -> range:
    return range(len(SPREADS) if over_items(cell) else 1)


def _adoptions(cell: Cell, study: Study, seed: int, n: int) -> Iterator[Rate]:
    for place, state in enumerate(STATES):
        for tail in tails(cell.law):
            for joined, spread in product(_joined(cell), _spreads(cell)):
                rng = np.random.default_rng([seed, place, tail + 1, int(10 * joined), 1, *_of(spread)])
                effects = _effects(study, state)
                drawn = noise(cell, study, n, rng, tail=tail, joined=joined, spread=spread)
                codes = judged(cell, study, {name: values + effects[name] for name, values in drawn.items()})
                yield rate(int(_adopted(study, codes).sum()), n, state=state, **_said(cell, tail, joined, spread))


def _of(spread: int) -> tuple[int, ...]:
    return (spread,) if spread else ()


def _said(cell: Cell, tail: int, joined: float, spread: int) -> dict[str, Any]:
    said: dict[str, Any] = {"tail": "against" if tail == 1 else "for"} if cell.law in SKEWED else {}
    said |= {"spread": spread} if over_items(cell) else {}
    return said | ({"correlation": joined} if cell.law == "correlated" else {})


def _supports(cell: Cell, study: Study, seed: int, n: int) -> Iterator[Rate]:
    if cell.law == "correlated":
        gains = [name for name in study.hypotheses if name != "no_harm"]
        for true in (0, 1):  # of the four claims: Holm's later steps are met only where one is true
            for joined, spread in product(JOINED, _spreads(cell)):
                rng = np.random.default_rng([seed, true, int(10 * joined), 2, *_of(spread)])
                drawn = noise(cell, study, n, rng, joined=joined, spread=spread)
                for name in gains[:true]:
                    drawn[name] = drawn[name] + claimed(study, name) * FAR[len(study.seeds)]
                codes = judged(cell, study, drawn)[:, [list(study.hypotheses).index(name) for name in gains[true:]]]
                yield rate(int((codes == 0).any(axis=1).sum()), n, true=true, **_said(cell, 1, joined, spread))
        return
    for place, verb in enumerate(VERBS):
        one = one_of(cell, verb)
        for tail, spread in product(tails(cell.law), _spreads(cell)):
            rng = np.random.default_rng([seed, place, tail + 1, 3, *_of(spread)])
            # For a claim of no change the side that can be taken for none is the one inside.
            drawn = noise(cell, one, n, rng, tail=tail, spread=spread)["h"] + border(one, "h")
            hits = int((judged(cell, one, {"h": drawn})[:, 0] == 0).sum())
            yield rate(hits, n, verb=verb, **_said(cell, tail, 0.0, spread))


def _misses(cell: Cell, study: Study, seed: int, n: int) -> dict[str, Rate]:
    """Of a family all four intervals at once; at looks every look's at once. Without an interval nothing is missed."""
    family = 4 if cell.law == "correlated" else 1
    found: dict[str, list[Rate]] = {"misses": [], "misses_2a": []}
    for joined, spread in product(_joined(cell), _spreads(cell)):
        rng = np.random.default_rng([seed, int(10 * joined), 4, *_of(spread)])
        common = _one_noise(cell, n, rng, spread)
        outside = np.zeros((n, 2), dtype=bool)
        for _ in range(family):
            x = sqrt(joined) * common + sqrt(1.0 - joined) * _one_noise(cell, n, rng, spread)
            if over_items(cell):
                outside |= _outside_items(cell, x, family)
                continue
            for index in range(n):
                outside[index] |= _outside(study, x[index], family, index)
        for place, rates in enumerate(found.values()):
            rates.append(rate(int(outside[:, place].sum()), n, **_said(cell, 1, joined, spread)))
    return {key: worst(rates) for key, rates in found.items()}


def _outside(study: Study, x: np.ndarray, family: int, index: int) -> list[bool]:
    """Whether the intervals of centred differences, at 1 - alpha and at 1 - 2 alpha, leave zero out."""
    looks = looks_of(study)
    if looks:
        tests = [at_look(x[None, : look.n_seeds], study.stopping, look) for look in looks]
    else:
        tests = [over_seeds(study.analysis.test, x[None, :], rng_seed=index, zeros=study.analysis.zeros)]
    return [any(_beyond(test.bounds(alpha / family)) for test in tests) for alpha in (ALPHA, 2.0 * ALPHA)]


def _beyond(bounds: tuple[np.ndarray, np.ndarray]) -> bool:
    low, high = (float(end[0]) for end in bounds)
    return low > 0.0 or high < 0.0


def _outside_items(cell: Cell, tables: np.ndarray, family: int) -> np.ndarray:
    """The same over items, for all studies: whether the test rejects zero at each level."""
    means, over = _summed(cell, tables)
    found = []
    for alpha in (ALPHA / family, 2.0 * ALPHA / family):
        if cell.test.endswith("new_seeds"):
            found.append(PairedT(means).p(0.0, "two") <= alpha)
        else:
            spread = Spread(means.var(axis=1, ddof=1) / cell.n, over.units, over.both)
            found.append(TwoWay(means, spread, over.tail, levels=(alpha,)).p(0.0, "two") <= alpha)
    return np.stack(found, axis=1)


def _diverging(cell: Cell, seed: int, n: int, decided: int) -> dict[str, Rate]:
    """The candidate's worst runs diverge. `decide` is asked of the studies whose remaining pairs support both claims,
    at some look: without that no version of the rule adopts."""
    share = DIVERGING[cell.law]
    found = []
    for (place, state), spread in product(enumerate(STATES), _spreads(cell)):
        study = rule_of(cell)
        rng = np.random.default_rng([seed, place, 6, *_of(spread)])
        # Luck of a run is that of both metrics, up being better.
        luck = sqrt(0.5) * rng.standard_normal((n, 2, cell.n))
        lost = luck[:, 1] < sqrt(0.5) * stats.norm.ppf(share)
        effects = _effects(study, state)
        scale = SPREADS[spread][0] if over_items(cell) else 1.0
        differences = {
            name: effects[name]
            + scale * (1 if study.claims[name].better == "higher" else -1) * (luck[:, 1] - luck[:, 0])
            for name in study.hypotheses
        }
        if over_items(cell):
            differences = {
                name: values[:, :, None] + _item_noise(cell, "normal", n, rng, spread)
                for name, values in differences.items()
            }
        candidates = np.flatnonzero(_both_supported(cell, study, differences, ~lost))
        asked = candidates[:decided]
        adopted = sum(
            _decided(cell, study, scale * luck[index], lost[index], {k: v[index] for k, v in differences.items()})
            == "adopt"
            for index in asked
        )
        supported = candidates.size / n
        among = rate(int(adopted), max(1, asked.size))
        error = sqrt((among["share"] * rate(candidates.size, n)["error"]) ** 2 + (supported * among["error"]) ** 2)
        where = {"state": state, **({"spread": spread} if over_items(cell) else {})}
        found.append({"share": supported * among["share"], "error": error, "n": n, "decided": int(asked.size), **where})
    return {"adoption": worst(found)}


def _both_supported(cell: Cell, study: Study, differences: Mapping[str, np.ndarray], whole: np.ndarray) -> np.ndarray:
    """Whether the pairs that are left support every claim, at any look; studies as rows."""
    kept = dict.fromkeys(study.hypotheses, whole)
    if over_items(cell):
        found = np.zeros(len(whole), dtype=bool)
        masks, place = np.unique(whole, axis=0, return_inverse=True)
        for index, mask in enumerate(masks):
            rows = np.flatnonzero(place.reshape(-1) == index)
            if mask.sum() > 1:
                summed = {name: _summed(cell, table[rows][:, mask]) for name, table in differences.items()}
                means = {name: np.zeros((rows.size, cell.n)) for name in summed}
                for name, (values, _) in summed.items():
                    means[name][:, mask] = values
                codes = judge_rows(study, means, {k: v[rows] for k, v in kept.items()}, items=_items(summed)).codes
                found[rows] = (codes == 0).all(axis=1)
        return found
    looks = looks_of(study)
    if not looks:
        lost = np.stack([np.zeros_like(whole), ~whole], axis=1)
        drawn = Drawn(dict(differences), kept, ~lost.any(axis=2), lost)
        return (judge_drawn(study, drawn).codes == 0).all(axis=1)
    codes = [
        judge_rows(
            study,
            {name: values[:, : look.n_seeds] for name, values in differences.items()},
            {name: values[:, : look.n_seeds] for name, values in kept.items()},
            look=look,
        ).codes
        for look in looks
    ]
    return np.any([(one == 0).all(axis=1) for one in codes], axis=0)


def _decided(
    cell: Cell, study: Study, luck: np.ndarray, lost: np.ndarray, differences: Mapping[str, np.ndarray]
) -> str | None:
    """The verdict of the whole judge on evidence made by hand; of looks the first that ends the study."""
    diverged = tuple(("layernorm", one) for one, gone in zip(study.seeds, lost, strict=True) if gone)
    metrics = {study.claims[name].metric: name for name in study.hypotheses}
    if over_items(cell):
        registration, evidence = make_evidence(study, diverged=diverged)
        evidence = _with_tables(cell, registration, evidence, luck[0], differences)
        return decide(registration, evidence).verdict
    finals: dict[str, dict[tuple[str, int], float]] = {metric: {} for metric in metrics}
    for metric, name in metrics.items():
        up = 1 if study.claims[name].better == "higher" else -1
        for place, one in enumerate(study.seeds):
            base = LEVELS[metric] + up * float(luck[0, place])
            finals[metric]["none", one] = base
            # A diverged run's value comes from the registered rule; a finite one stands here only because every run
            # of the evidence has one.
            by = 0.0 if lost[place] else float(differences[name][place])
            finals[metric]["layernorm", one] = base + by
    registration, evidence = make_evidence(study, finals=finals, diverged=diverged)
    looks = looks_of(study)
    for look in looks:
        decision = decide(registration, evidence)
        if decision.status != "continue":
            return decision.verdict
        seen = restrict(evidence, study.seeds[: look.n_seeds]).sha256
        body = {"look": look.number, "of": look.of, "seeds": look.n_seeds, "evidence": seen, "final": False}
        evidence = with_entry(registration, evidence, "looked", body)
    return decide(registration, evidence).verdict


def _with_tables(
    cell: Cell, registration: Registration, evidence: Evidence, luck: np.ndarray, differences: Mapping[str, np.ndarray]
) -> Evidence:
    """The evidence with an item's score for every metric and finished run: the baseline's is its luck alone."""
    study, done = registration.study, {(run.variant, run.seed) for run in evidence.runs if run.status == "done"}
    sizes, tables = np.array(SIZES[cell.design]), []
    tasks = None if cell.design == "items" else [f"{at:03d}" for at in np.repeat(np.arange(sizes.size), sizes)]
    for name, table in differences.items():
        scores = {
            (arm, one): np.repeat(luck[place] + (table[place] if arm == "layernorm" else 0.0 * table[place]), sizes)
            for place, one in enumerate(study.seeds)
            for arm in study.arms
            if (arm, one) in done
        }
        evidence = with_items(registration, evidence, scores, tasks=tasks)
        assert evidence.items is not None
        tables.append(evidence.items.assign(metric=study.claims[name].metric))
    return replace(evidence, items=pd.concat(tables, ignore_index=True)[list(ITEM_COLUMNS)])


def table(
    seed: int = 0, scale: float = 1.0, *, known: Mapping[str, Any] | None = None, only: Iterable[str] = ()
) -> dict[str, Any]:
    """All cells, measured, and which could not be registered. Those of a `known` table are taken from it, unless their
    words hold one of `only`."""
    rows, out = [], []
    have = {} if known is None else {cell_of(row): row for row in known["cells"]}
    for cell in cells():
        if cell in have and not any(part in cell.words for part in only):
            rows.append(have[cell])
            continue
        reason = refused(cell)
        if reason is not None:
            out.append({**vars(cell), "reason": reason})
            continue
        rows.append(row_of(cell, seed, scale))
        print(cell.words, {key: round(rows[-1][key]["share"], 4) for key in NUMBERS if key in rows[-1]}, flush=True)
    return {"alpha": ALPHA, "seed": seed, "scale": scale, "cells": rows, "not_registrable": out}


def row_of(cell: Cell, seed: int, scale: float) -> dict[str, Any]:
    """The row of a cell, measured."""
    row = {**vars(cell), **measure(cell, seed, scale)}
    if excesses({"cells": [row]}, errors=2.0):
        # The worst of a dozen rates is the unluckiest, too: fresh and more draws say whether it is above nominal.
        row = {**vars(cell), **measure(cell, seed + 1, 4.0 * scale), "measured": "again"}
    return row


def cell_of(row: Mapping[str, Any]) -> Cell:
    return Cell(row["design"], row["test"], row["n"], row["law"])


NUMBERS = ("adoption", "support", "misses", "misses_2a")


@lru_cache(maxsize=1)
def committed() -> dict[str, Any]:
    """The table in the repository."""
    found: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def excesses(found: Mapping[str, Any], *, errors: float = 3.0) -> list[str]:
    """Cells with normal differences whose rate is above nominal by more than so many standard errors."""
    lines = []
    for row in found["cells"]:
        for key in NUMBERS if row["law"] in PLAIN else ():
            nominal = 2.0 * ALPHA if key == "misses_2a" else ALPHA
            if key in row and row[key]["share"] > nominal + errors * sqrt(
                nominal * (1.0 - nominal) / _effective(row[key])
            ):
                lines.append(f"{cell_of(row).words}: {key} {_said_rate(row[key])}")
    return lines


def _effective(one: Rate) -> float:
    """Studies behind a rate; where few were decided, as many as would have its error."""
    spread = max(one["share"], 0.01) * (1.0 - max(one["share"], 0.01))
    return min(one["n"], spread / one["error"] ** 2) if "decided" in one else one["n"]


def _said_rate(one: Rate) -> str:
    return f"{one['share']:.3f} ± {one['error']:.3f}"


def _found(found: Mapping[str, Any], *laws: str) -> list[dict[str, Any]]:
    return [row for row in found["cells"] if row["law"] in laws]


def _most(rows: Iterable[Mapping[str, Any]], key: str) -> tuple[Mapping[str, Any], Rate]:
    row = max((one for one in rows if key in one), key=lambda one: one[key]["share"])
    return row, row[key]


def paragraph(found: Mapping[str, Any]) -> str:
    """What the README says of the rates."""
    plain = _found(found, *PLAIN)
    _, adoption = _most(plain, "adoption")
    _, support = _most(plain, "support")
    _, misses = _most(plain, "misses")
    above = excesses(found)
    holds = "stays at its nominal 5%" if not above else f"stays at its nominal 5% but in {len(above)} of them"
    by_law = _found(found, *LAWS)

    def largest(laws: Container[str], seeds: int, designs: Container[str]) -> tuple[Mapping[str, Any], Rate]:
        rows = [row for row in by_law if row["law"] in laws and row["n"] == seeds and row["design"] in designs]
        return _most(rows, "support")

    others = [law for law in LAWS if law not in ("normal", "failed seed")]
    designs = {row["design"] for row in by_law}
    worst_rates = []
    for n in sorted({row["n"] for row in by_law}):
        row, one = largest(others, n, designs)
        worst_rates.append(f"{_percent(one)} with {n} seeds ({_named(row)}, {row['law']}; {one['n']:,} studies)")
    failed = [f"{_percent(largest(['failed seed'], n, ['fixed'])[1])} with {n}" for n in SEEDS]
    failed_at_looks = largest(["failed seed"], max(SEEDS), ["looks"])[1]
    shares = " and ".join(dict.fromkeys(f"{100 * share:.0f}%" for share in DIVERGING.values()))
    said = (
        f"Here, with normal differences, correlated metrics and diverging runs ({shares} of the candidate's, the worst "
        "ones: left out with their pairs), the error "
        f"rate of every paired test that can be registered {holds}, within three standard errors of a simulation "
        f"({len(plain)} combinations of test, seeds and design): false adoption at most {_percent(adoption)}, false "
        f"support at most {_percent(support)}, and 95% intervals miss at most {_percent(misses)}. It does **not** hold "
        "for other laws of the differences where seeds are few: a claim at the border of its null (the worst of five "
        f"kinds of claim) was supported in {', '.join(worst_rates)}. Where one in ten seeds fails without diverging, "
        f"far from the others, it was in {', '.join(failed)} of fixed seeds, about as often as no seed fails, "
        f"and in {_percent(failed_at_looks)} with looks at {SEEDS[0]}, {SEEDS[1]} and {SEEDS[2]}, since the first look "
        "has fewer seeds; no test sees that. These are the largest over the designs and the "
        f"{len(LAWS)} laws tried ({', '.join(LAWS)}), which is no bound: another law can give more. "
        "[All rates](reports/bench/error-rates.md)."
    )
    return "\n".join(wrap(said, 120, break_long_words=False, break_on_hyphens=False))


def _named(row: Mapping[str, Any]) -> str:
    """Return the test of a cell, and its design where that is not fixed seeds."""
    test = str(row["test"])
    return test if row["design"] == "fixed" or test.startswith(row["design"]) else f"{test} at {row['design']}"


def _percent(one: Rate) -> str:
    return f"{100 * one['share']:.1f} ± {100 * one['error']:.1f}%"


def page(found: Mapping[str, Any]) -> str:
    """All cells as Markdown."""
    purpose = [line.strip() for line in (__doc__ or "").strip().splitlines()]
    lines = [
        "# Error rates",
        "",
        purpose[0],
        "`python tests/error_rates.py` makes this page, its JSON and the paragraph in README.md.",
        "",
        f"Nominal: {ALPHA:g} for false adoption, false support and missing 95% intervals, {2 * ALPHA:g} for missing "
        "90% intervals. Each number is a share of simulated studies ± its Monte Carlo standard error; in brackets the "
        "studies, in thousands. False adoption: by the rule 'adopt when supported(gain) and supported(no_harm)', the "
        "worse of no gain and of a harm at its margin. False support: the worst of five verbs at the border "
        "of their null; of a family of four (correlated), any of its claims. Laws of the differences, each "
        "with mean 0 and SD 1: normal; exponential; t3 (t with 3 degrees of freedom); mixture (one difference"
        " in ten lies 5 SDs away on one side); uniform; bimodal (as often at -1 as at 1); failed seed (one "
        "seed in ten ends, without diverging, 100 SDs of the others away on one side); rounded (normal differences in "
        "steps of one SD, so that many are equal; their SD is 1.04). Of skewed laws the "
        "worse of a long tail against the claim and for it counts. The largest rate over these laws is no "
        "bound: another law can give more. diverge: the worst of the candidate's runs diverge and their pairs"
        " are left out."
        " A run that failed, or has no value, is never left out: it is made again, or there is no verdict. "
        "Over items: the worst of three sets of variances. Cells with normal differences or diverging runs "
        "that come out above nominal by more than two standard errors are measured again, with other draws "
        "and four times the studies, and only that counts: "
        f"{sum('measured' in row for row in found['cells'])} of {len(found['cells'])}.",
        "",
    ]
    above = excesses(found)
    lines += [
        "Above nominal by more than three standard errors, with normal differences or diverging runs: "
        + ("none." if not above else "")
    ]
    lines += [*(f"- {line}" for line in above), ""]
    lines += [
        "| design | test | seeds | law | false adoption | false support | 95% interval misses | 90% misses |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["cells"]:
        shown = [f"{_said_rate(row[key])} ({row[key]['n'] / 1000:g})" if key in row else "-" for key in NUMBERS]
        lines.append("| " + " | ".join([row["design"], row["test"], str(row["n"]), row["law"], *shown]) + " |")
    lines += ["", LEFT_OUT, ""]
    reasons: dict[str, list[str]] = {}
    for one in found["not_registrable"]:
        reasons.setdefault(one["reason"], []).append(f"{one['design']} {one['test']}, {one['n']} seeds")
    lines += [f"- {'; '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]
    return "\n".join(lines).rstrip() + "\n"


def with_paragraph(readme: str, found: Mapping[str, Any]) -> str:
    """The README with the paragraph between its markers."""
    before, _, rest = readme.partition(START)
    _, _, after = rest.partition(END)
    assert rest and after, f"README.md lacks {START} or {END}"
    return f"{before}{START}\n{paragraph(found)}\n{END}{after}"


def main() -> None:
    """Measure every cell and write the table, the page and the paragraph; or only these two."""
    options = argparse.ArgumentParser(prog="python tests/error_rates.py", description=(__doc__ or "").splitlines()[0])
    options.add_argument("--text", action="store_true", help="write page and paragraph from the table that is there")
    options.add_argument("--scale", type=float, default=1.0, help="more or fewer studies a cell")
    options.add_argument(
        "--only",
        action="append",
        metavar="WORDS",
        help="measure only cells that the table lacks, or whose words hold these; may be given more than once",
    )
    given = options.parse_args()
    known = None if given.only is None else committed()
    found = committed() if given.text else table(scale=given.scale, known=known, only=given.only or ())
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(found), encoding="utf-8")
    README.write_text(with_paragraph(README.read_text(encoding="utf-8"), found), encoding="utf-8")
    print(paragraph(found), *excesses(found), sep="\n")


if __name__ == "__main__":
    main()
