"""The scalar judge on per-seed differences: one test by itself, and the outcomes of all claims of a study."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ablate.judge.stats.estimate import prepare, summarise, undecided
from ablate.judge.stats.null_hypotheses import Nulls, judge_families, weigh
from ablate.judge.stats.paired_t import Floats, NoTestError, Side
from ablate.judge.verdict import Estimate
from prereg.rule.condition import Outcome
from prereg.rule.divergence import least_pairs
from prereg.study.analysis import Test, Zeros
from prereg.study.spec import Study


def estimate(
    differences: Floats, method: Test, *, alpha: float, rng: np.random.Generator, zeros: Zeros = "pratt"
) -> Estimate:
    """The effect, its two-sided interval at 1 - alpha and the two-sided p against zero, without any correction."""
    return summarise(prepare(differences, method, rng, zeros), alpha)


def p_against(differences: Floats, method: Test, *, null: float, side: Side, rng: np.random.Generator) -> float:
    """p of the null; `greater` is evidence that the effect is above it."""
    return prepare(differences, method, rng).p(null, side)


def nulls_of_study(
    study: Study, differences: Mapping[str, Floats], rng_seed: int = 0, *, left_out: bool = False
) -> dict[str, Nulls | None]:
    """Both p values of every claim; none where it cannot be tested, or has too few pairs where some are `left_out`."""
    nulls: dict[str, Nulls | None] = {}
    for name, claim in study.claims.items():
        n, method = len(differences[name]), study.analysis.test
        nulls[name] = None
        if undecided(method, n) is None and not (left_out and n < least_pairs(study)):
            try:
                test = prepare(differences[name], method, np.random.default_rng(rng_seed), study.analysis.zeros)
                nulls[name] = weigh(test, claim.verb, claim.better, study.hypotheses[name].smallest)
            except NoTestError:
                pass
    return nulls


def outcomes_of(
    study: Study, differences: Mapping[str, Floats], rng_seed: int = 0, *, left_out: bool = False
) -> dict[str, Outcome]:
    """What `judge_hypotheses` decides, from per-seed differences on the claims' scales, without the description."""
    nulls = nulls_of_study(study, differences, rng_seed, left_out=left_out)
    return {name: judged.outcome for name, judged in judge_families(study, nulls).items()}
