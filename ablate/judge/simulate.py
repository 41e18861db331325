"""Made-up differences through the functions that will judge the real ones: the chance of every verdict.

Differences are drawn on the claims' scales and passed through `prepare`, `weigh` and `judge_families` (all that
`judge_hypotheses` decides by) and `Rule.decide`. Draws are normal, seeds independent, metrics independent of each
other, runs stable: the chances hold under these beliefs, and the study's `assume:` block states the rest of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf, sqrt

import numpy as np

from ablate.judge.estimate import NoTestError, prepare
from ablate.judge.nulls import Nulls, judge_families, weigh
from ablate.judge.procedure import Floats
from ablate.judge.verdict import Outcome
from prereg.claim import Verb
from prereg.metrics import Better
from prereg.part import Part
from prereg.spec import Study, Test

Group = tuple[str, str]
_EDGE = 1e-9
"""True effects this close to a null, relative to the margin, lie on it."""


class Chance(Part):
    """A simulated probability."""

    of: str
    """What."""
    share: float
    """Share of simulated studies."""
    error: float
    """Monte Carlo standard error (Agresti-Coull, so that it is not 0 at a share of 0 or 1)."""


class Scenario(Part):
    """One state of the world, and what the registered rule makes of it."""

    name: str
    """Which truth."""
    effects: dict[str, float]
    """The true effect of every claim, on its scale."""
    n_sims: int
    """Simulated studies."""
    verdicts: tuple[Chance, ...]
    """The chance of every verdict, in the order of the decision."""
    supported: tuple[Chance, ...]
    """The chance that each hypothesis is supported."""
    refuted: tuple[Chance, ...]
    """The chance that each hypothesis is refuted."""
    false_supported: tuple[Chance, ...]
    """By role: the chance of any false "supported"."""
    false_refuted: tuple[Chance, ...]
    """By role: the chance of any false "refuted"."""


def outcomes_of(study: Study, differences: Mapping[str, Floats], rng_seed: int = 0) -> dict[str, Outcome]:
    """What `judge_hypotheses` decides, from per-seed differences on the claims' scales, without the description."""
    nulls: dict[str, Nulls | None] = {}
    for name, claim in study.claims.items():
        try:
            test = prepare(differences[name], study.analysis.test, np.random.default_rng(rng_seed))
            nulls[name] = weigh(test, claim.verb, study.better(name), study.hypotheses[name].smallest)
        except NoTestError:
            nulls[name] = None
    return {name: judged.outcome for name, judged in judge_families(study, nulls).items()}


def verdicts_of(study: Study) -> tuple[str, ...]:
    """Every verdict of the decision, once."""
    return tuple(dict.fromkeys(line.verdict for line in study.decision))


def truths(study: Study, *, assumed: bool) -> list[tuple[str, dict[str, float]]]:
    """Scenario name -> true effect of every claim. Only the first can be drawn without knowing the SDs."""
    truths = [("no effect anywhere", dict.fromkeys(study.hypotheses, 0.0))]
    if assumed:
        gains = {name: _smallest_true(study, name) for name in study.hypotheses}
        truths.append(("every claim true at its smallest", gains))
        margins = {
            name: _at_margin(study, name) for name in study.hypotheses if study.claims[name].verb.startswith("does_not")
        }
        if margins:
            truths.append(("gains true, every does_not claim false at its margin", gains | margins))
    return truths


def _smallest_true(study: Study, name: str) -> float:
    verb, smallest = study.claims[name].verb, study.hypotheses[name].smallest
    return {"lowers": -smallest, "raises": smallest, "changes": smallest}.get(verb, 0.0)


def _at_margin(study: Study, name: str) -> float:
    worse = -1.0 if study.claims[name].verb == "does_not_worsen" and study.better(name) == "higher" else 1.0
    return worse * study.hypotheses[name].smallest


def arm_means(study: Study, effects: Mapping[str, float]) -> dict[Group, Floats] | None:
    """Means of the arms, by metric and scale, that give every claim its effect; none when no means do."""
    found = {}
    for group, names in _groups(study).items():
        weights = _weights(study, names)
        wanted = np.array([effects[name] for name in names])
        means = np.linalg.lstsq(weights, wanted, rcond=None)[0]
        if not np.allclose(weights @ means, wanted, rtol=_EDGE, atol=_EDGE * max(np.abs(wanted).max(), 1e-300)):
            return None
        found[group] = means
    return found


def _groups(study: Study) -> dict[Group, list[str]]:
    groups: dict[Group, list[str]] = {}
    for name, claim in study.claims.items():
        groups.setdefault((claim.metric, study.hypotheses[name].scale), []).append(name)
    return groups


def _weights(study: Study, names: list[str]) -> Floats:
    return np.array([[study.claims[name].weights.get(arm, 0.0) for arm in study.arms] for name in names])


def simulate(
    study: Study, name: str, effects: dict[str, float], *, means: dict[Group, Floats], n_sims: int, seed: list[int]
) -> Scenario:
    rng = np.random.default_rng(seed)
    n, stable = len(study.seeds), dict.fromkeys(study.arms, True)
    drawn: dict[str, Floats] = {}
    for group, names in _groups(study).items():
        belief = study.assume.metrics.get(group[0])
        # A component that all arms of a seed share cancels in every contrast, so only the rest is drawn.
        sd = 1.0 if belief is None else belief.sd * sqrt(1.0 - belief.correlation)
        values = means[group][None, :, None] + sd * rng.standard_normal((n_sims, len(study.arms), n))
        for hypothesis, differences in zip(
            names, np.einsum("ha,san->hsn", _weights(study, names), values), strict=True
        ):
            drawn[hypothesis] = differences
    verdicts: Counter[str] = Counter()
    counts: dict[str, Counter[str]] = {key: Counter() for key in ("supported", "refuted")}
    wrong: dict[str, Counter[str]] = {key: Counter() for key in ("supported", "refuted")}
    false = {key: {one for one in effects if not _true(study, one, effects[one], key)} for key in counts}
    for index in range(n_sims):
        outcomes = outcomes_of(study, {one: rows[index] for one, rows in drawn.items()}, rng_seed=index)
        verdicts[study.rule.decide(outcomes, stable).verdict] += 1
        for key, count in counts.items():
            found = [one for one, outcome in outcomes.items() if outcome == key]
            count.update(found)
            wrong[key].update({study.hypotheses[one].role for one in found if one in false[key]})
    roles = tuple(dict.fromkeys(hypothesis.role for hypothesis in study.hypotheses.values()))
    return Scenario(
        name=name,
        effects=effects,
        n_sims=n_sims,
        verdicts=_chances(verdicts, verdicts_of(study), n_sims),
        supported=_chances(counts["supported"], tuple(effects), n_sims),
        refuted=_chances(counts["refuted"], tuple(effects), n_sims),
        false_supported=_chances(wrong["supported"], roles, n_sims),
        false_refuted=_chances(wrong["refuted"], roles, n_sims),
    )


def _true(study: Study, name: str, effect: float, outcome: str) -> bool:
    """Whether a "supported" or "refuted" would be right: whether the null it rejects is false."""
    verb, smallest, better = study.claims[name].verb, study.hypotheses[name].smallest, study.better(name)
    along = effect * _direction(verb, better)
    short = along < smallest * (1.0 - _EDGE)
    within = abs(effect) < smallest * (1.0 - _EDGE)
    if verb in ("lowers", "raises"):
        return along > 0 if outcome == "supported" else (short if smallest > 0 else along < 0)
    if verb == "changes":
        return effect != 0 if outcome == "supported" else within
    if verb == "does_not_worsen":
        return short if outcome == "supported" else along > 0
    return within if outcome == "supported" else effect != 0


def _direction(verb: Verb, better: Better) -> float:
    """The sign of an effect that goes the way the verb speaks of: the claimed way, or towards worse."""
    if verb == "lowers" or (verb == "does_not_worsen" and better == "higher"):
        return -1.0
    return 1.0


def _chances(counts: Mapping[str, int], names: tuple[str, ...], n: int) -> tuple[Chance, ...]:
    found = []
    for name in names:
        k = counts.get(name, 0)
        centre = (k + 2.0) / (n + 4.0)
        found.append(Chance(of=name, share=k / n, error=sqrt(centre * (1.0 - centre) / (n + 4.0))))
    return tuple(found)


def affordable(test: Test, n: int) -> int:
    """How many simulated studies take seconds, not minutes: by test and n alone, so that a design repeats."""
    slow: dict[str, list[tuple[float, int]]] = {
        "bootstrap_t": [(6, 2_000), (inf, 200)],
        "sign_flip": [(12, 2_000), (16, 400), (inf, 50)],
    }
    return next((count for most, count in slow.get(test, []) if n <= most), 1_000_000)
