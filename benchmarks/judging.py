"""P5 and P6: the design's simulation, and inference over seeds x items, in this process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DESIGN_SCENARIOS, DESIGN_STUDIES, DESIGN_REPEATS = 12, 20_000, 5


def measure_design(path: Path) -> dict[str, Any]:
    """Twelve states of the world x 20,000 simulated studies through the registered rule, in this process."""
    from ablate.judge.design.assumptions import assumed
    from ablate.judge.design.scenarios import effect_scenarios
    from ablate.judge.design.simulate import simulate
    from prereg.study.load import load_study

    study = load_study(path).study
    beliefs = assumed(study)
    states = effect_scenarios(study, divergence=beliefs.divergence)
    states = (states * DESIGN_SCENARIOS)[:DESIGN_SCENARIOS]
    simulate(study, states[0], beliefs, n_sims=100, seed=[0])  # imports and caches
    walls = []
    for _ in range(DESIGN_REPEATS):
        started = time.perf_counter()
        for index, state in enumerate(states):
            simulate(study, state, beliefs, n_sims=DESIGN_STUDIES, seed=[0, index])
        walls.append(time.perf_counter() - started)
    return {
        "design_s": round(statistics.median(walls), 2),
        "design_s_each": [round(wall, 2) for wall in walls],
        "scenarios": DESIGN_SCENARIOS,
        "studies": DESIGN_STUDIES,
        "hypotheses": len(study.hypotheses),
        "seeds": len(study.seeds),
    }


def measure_items() -> dict[str, Any]:
    """Seeds x items by the judge, and scipy's BCa bootstrap of the same differences with as many resamples."""
    import numpy as np
    from scipy import stats

    from ablate.judge.stats.crossed_items import Crossed, TwoWay
    from ablate.judge.stats.effects import pigeonhole, pigeonhole_interval
    from ablate.judge.stats.resample import RESAMPLES

    values = np.random.default_rng(0).integers(-1, 2, size=(5, 10_000)).astype(float)
    table = Crossed(values, seeds=(1, 2, 3, 4, 5), clusters=np.arange(10_000))

    def timed(work: Callable[[], object], repeats: int) -> float:
        each = []
        for _ in range(repeats):
            started = time.perf_counter()
            work()
            each.append(time.perf_counter() - started)
        return statistics.median(each)

    def bca(data: Any) -> object:  # in batches: with batch=None it takes gigabytes
        options = {"n_resamples": RESAMPLES, "batch": 50, "method": "BCa", "rng": np.random.default_rng(0)}
        return stats.bootstrap((data,), np.mean, **options)

    found = {
        "two_way_s": timed(lambda: TwoWay(table).bounds(0.05), 7),
        "pigeonhole_s": timed(lambda: pigeonhole_interval(pigeonhole(table, np.random.default_rng(0)), 0.05), 7),
        "bca_item_means_s": timed(lambda: bca(values.mean(axis=0)), 3),
        "bca_all_s": timed(lambda: bca(values.ravel()), 1),
    }
    ratio = found["bca_all_s"] / found["pigeonhole_s"]
    return {name: round(value, 4) for name, value in found.items()} | {
        "ratio": round(ratio, 1),
        "resamples": RESAMPLES,
        "items": "5 seeds x 10,000 items, differences of accuracy (-1, 0, 1)",
    }
