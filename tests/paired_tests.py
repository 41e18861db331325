"""The judge on per-seed differences of one study: one test by itself, and the outcomes of all claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ablate.judge.judge import Judged, judge_nulls
from ablate.judge.stats.crossed_items import Crossed, over_items
from ablate.judge.stats.estimate import summarise
from ablate.judge.stats.kinds import over_seeds, undecided
from ablate.judge.stats.null_hypotheses import Nulls, nulls_of
from ablate.judge.stats.significance_tests import Floats, NoTestError, Side, SignificanceTest, Zeros
from ablate.judge.verdict import Estimand, Estimate
from prereg.metrics.catalogue import Better
from prereg.rule.condition import Outcome
from prereg.rule.divergence import least_pairs
from prereg.study.spec import Study
from prereg.study.verbs import Verb
from prereg.study.words_of_tests import Test


@dataclass(frozen=True)
class OneStudy:
    """A test of a single study, whose numbers are plain floats."""

    test: SignificanceTest

    def p(self, null: float, side: Side) -> float:
        """p of the null. Raises `NoTestError` where there is none."""
        if refused := self.test.refusal(null):
            raise NoTestError(refused)
        return float(self.test.p(null, side)[0])

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        """The interval at 1 - alpha; none where it is the whole line."""
        low, high = (float(end[0]) for end in self.test.bounds(alpha))
        return None if np.isnan(low) else (low, high)

    @property
    def leaning(self) -> int:
        """Where a rejection of zero would point."""
        return int(self.test.leaning_at(0.0)[0])

    @property
    def mean(self) -> float:
        """The mean, also where another effect is shown."""
        return float(self.test.from_unit(self.test.mean)[0])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know."""
        return self.test.notes

    def estimate(self, alpha: float) -> Estimate:
        """What the test says."""
        return summarise(self.test, alpha)


def prepare(differences: Floats, method: Test, rng_seed: int = 0, zeros: Zeros = "pratt") -> OneStudy:
    """The test of one study. Raises `NoTestError` where it has no p against zero."""
    return single(
        over_seeds(method, np.asarray(differences, dtype=np.float64)[None, :], rng_seed=rng_seed, zeros=zeros)
    )


def single(test: SignificanceTest) -> OneStudy:
    """A test of one row. Raises `NoTestError` where it has no p against zero."""
    if refused := test.refusal():
        raise NoTestError(refused)
    return OneStudy(test)


def two_way(crossed: Crossed, *, estimand: Estimand = "new_seeds_and_items") -> OneStudy:
    """The test over a table of items. Raises `NoTestError` where there is none."""
    return single(over_items(crossed, estimand=estimand))


def estimate(differences: Floats, method: Test, *, alpha: float, rng_seed: int = 0, zeros: Zeros = "pratt") -> Estimate:
    """The effect, its two-sided interval at 1 - alpha and the two-sided p against zero, without any correction."""
    return prepare(differences, method, rng_seed, zeros).estimate(alpha)


def p_against(differences: Floats, method: Test, *, null: float, side: Side, rng_seed: int = 0) -> float:
    """p of the null; `greater` is evidence that the effect is above it."""
    return prepare(differences, method, rng_seed).p(null, side)


def weigh(test: OneStudy | SignificanceTest, verb: Verb, better: Better, smallest: float) -> Nulls:
    """Both p values of a claim about one study. Raises `NoTestError` where there is none."""
    one = test if isinstance(test, OneStudy) else OneStudy(test)
    found = []
    for null in nulls_of(verb, better, smallest):
        if null is not None:
            for point, side in null.points:
                one.p(point, side)
        found.append(None if null is None else float(null.p(one.test)[0]))
    support, refute = found
    assert support is not None, verb
    return Nulls(support, refute)


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
                test = prepare(differences[name], method, rng_seed, study.analysis.zeros)
                nulls[name] = weigh(test, claim.verb, claim.better, study.hypotheses[name].smallest)
            except NoTestError:
                pass
    return nulls


def judge_families(study: Study, nulls: Mapping[str, Nulls | None]) -> dict[str, Judged]:
    """What becomes of every hypothesis of one study, from its p values; none of one that could not be tested."""
    return judge_nulls(study, nulls).single({name: nulls[name] is not None for name in study.hypotheses})


def outcomes_of(
    study: Study, differences: Mapping[str, Floats], rng_seed: int = 0, *, left_out: bool = False
) -> dict[str, Outcome]:
    """What `judge_hypotheses` decides, from per-seed differences on the claims' scales, without the description."""
    nulls = nulls_of_study(study, differences, rng_seed, left_out=left_out)
    return {name: judged.outcome for name, judged in judge_families(study, nulls).items()}
