"""What choosing a path by a pilot does to error rates and power: simulated studies, from pilot to outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from evidence_factory import make_registration
from test_component_effects import lettered

from ablate.judge.design.error_rate import taken_first
from ablate.judge.findings import judge_hypotheses
from ablate.judge.stats.vectorized_judge import OUTCOME, judge_rows
from prereg.study.designs.path import chosen_by
from prereg.study.designs.tune import choose, with_choice
from prereg.study.spec import Study

Worth = Callable[[frozenset[str]], float]
"""The true mean of a system by its parts, in SDs of a run; lower is better."""


@dataclass(frozen=True)
class Rates:
    """Shares of simulated studies."""

    false: float
    """Any claim supported that is not true."""
    supported: dict[str, float]
    """Part -> its claim is supported: of a path, that of the step that takes it."""
    first: float
    """The first claim is supported."""
    bias: float
    """Mean of the first claim's difference, less what it is in truth."""
    either: float
    """The claim about the first or about the second part is supported."""
    paths: dict[tuple[str, ...], float]
    """Path -> how often the pilot gives it."""


def simulated(study: Study, worth: Worth, n_sims: int, *, seed: int = 0, fresh: bool = True) -> Rates:
    """Studies of runs with independent normal noise of SD 1, by the judge of the product. Where the seeds of the pilot
    are not `fresh`, the runs that chose the path are judged."""
    rng, components = np.random.default_rng(seed), study.components
    assert components is not None
    arms, parts, n = list(study.arms), list(components.parts), len(study.seeds)
    pilots, prefixes = drawn_paths(study, worth, n_sims, rng)
    noise = rng.standard_normal((n_sims, len(arms), n))
    present = {arm: [having] * n_sims for arm, having in components.arms().items()}
    for at, arm in enumerate(arms[1:-1] if components.design == "path" else ()):
        present[arm] = [frozenset(path[: at + 1]) for path in prefixes]
        if not fresh:
            noise[:, at + 1] = np.stack([pilots[sim][having] for sim, having in enumerate(present[arm])])
    means = np.array([[worth(having) for having in present[arm]] for arm in arms]).T
    weights = {name: np.array([claim.weights.get(arm, 0.0) for arm in arms]) for name, claim in study.claims.items()}
    values = means[:, :, None] + noise
    differences = {name: np.einsum("a,san->sn", own, values) for name, own in weights.items()}
    codes = judge_rows(study, differences)[0]
    effects = np.stack([means @ own for own in weights.values()], axis=1)
    margins = np.array([study.hypotheses[name].smallest if one.by else 0.0 for name, one in study.claims.items()])
    signs = np.array([claim.direction for claim in study.claims.values()])
    said = codes == OUTCOME.index("supported")
    found = {}
    for at, part in enumerate(parts):
        place = np.array([path.index(part) if path else at for path in prefixes])
        found[part] = said[np.arange(n_sims), place]
    return Rates(
        false=float((said & (signs * effects <= margins)).any(axis=1).mean()),
        supported={part: float(share.mean()) for part, share in found.items()},
        first=float(said[:, 0].mean()),
        bias=float((next(iter(differences.values())).mean(axis=1) - effects[:, 0]).mean()),
        either=float((found[parts[0]] | found[parts[1]]).mean()),
        paths={path: prefixes.count(path) / n_sims for path in sorted(set(prefixes))},
    )


def drawn_paths(
    study: Study, worth: Worth, n_sims: int, rng: np.random.Generator
) -> tuple[list[dict[frozenset[str], np.ndarray]], list[tuple[str, ...]]]:
    """Pilot noise of each study by the parts of a candidate, and the path that it gives; none of other designs."""
    if study.components is None or study.components.design != "path":
        return [], [()] * n_sims
    parts, n = list(study.components.parts), len(study.pilot_seeds)
    noise, paths = [], []
    for _ in range(n_sims):
        drawn: dict[frozenset[str], np.ndarray] = {}
        taken: list[str] = []
        while len(taken) < len(parts) - 1:
            tried = {part: frozenset([*taken, part]) for part in parts if part not in taken}
            drawn |= {having: rng.standard_normal(n) for having in tried.values()}
            # What `choose` does, which takes too long for this many: the test below compares the two.
            taken.append(min(tried, key=lambda part: worth(tried[part]) + drawn[tried[part]].mean()))
        noise.append(drawn)
        paths.append((*taken, *(part for part in parts if part not in taken)))
    return noise, paths


def path_of(letters: str, n_seeds: int, n_pilot: int, claim: str = "improves val/loss") -> Study:
    return lettered(letters, "path", n_seeds=n_seeds, claim=claim, seeds=list(range(101, 101 + n_pilot)))


def nothing(having: frozenset[str]) -> float:
    return 0.0


def additive(having: frozenset[str]) -> float:
    return -float(len(having))


def redundant(having: frozenset[str]) -> float:
    """Either of A and B does the same work."""
    return -1.5 * bool(having & {"A", "B"}) - 1.0 * ("C" in having)


def test_the_simulated_rounds_are_those_of_the_product_and_its_outcomes_those_of_the_scalar_judge() -> None:
    study = path_of("ABC", 5, 2)
    for sim in range(10):
        noise, (path,) = drawn_paths(study, redundant, 1, np.random.default_rng(sim))
        frozen = study
        for _ in range(2):
            assert frozen.components is not None
            values = {
                (name, seed): redundant(having) + float(noise[0][having][at])
                for name, (_, _, having) in frozen.components.candidates().items()
                for at, seed in enumerate(study.pilot_seeds)
            }
            frozen = with_choice(study, [{"chosen": {**chosen_by(frozen, choose(frozen, values))}}])
        assert frozen.components is not None and frozen.components.path == path
        rng = np.random.default_rng([sim, 1])
        judged = {
            (arm, seed): redundant(having) + float(rng.standard_normal())
            for arm, having in frozen.components.arms().items()
            for seed in study.seeds
        }
        findings = judge_hypotheses(make_registration(frozen).study, {"val/loss": judged})
        rows = {
            name: np.array([[sum(w * judged[arm, seed] for arm, w in claim.weights.items()) for seed in study.seeds]])
            for name, claim in frozen.claims.items()
        }
        assert [one.outcome for one in findings] == [OUTCOME[code] for code in judge_rows(study, rows)[0][0]]


def test_a_path_chosen_on_other_seeds_costs_no_error_and_one_chosen_on_its_own_is_biased() -> None:
    honest = simulated(path_of("ABC", 5, 2), nothing, 3_000)
    assert honest.false < 0.025 + 4 * (0.025 * 0.975 / 3_000) ** 0.5
    assert set(honest.paths) == {tuple(order) for order in ("ABC", "ACB", "BAC", "BCA", "CAB", "CBA")}
    assert honest.first < 0.0063 + 4 * (0.0063 / 3_000) ** 0.5 and abs(honest.bias) < 4 * (2 / 5 / 3_000) ** 0.5
    # On the runs that chose it, the first step is the lowest of three means of five: .846 / sqrt(5) below its truth
    # (the expectation of the largest of three standard normals).
    same = simulated(path_of("ABC", 5, 5), nothing, 3_000, fresh=False)
    assert same.first > honest.first and same.bias == pytest.approx(-0.846 / 5**0.5, abs=0.03)


@pytest.mark.simulation
@pytest.mark.parametrize("n_pilot", [1, 2, 5])
@pytest.mark.parametrize(
    ("claim", "worth"),
    [
        ("improves val/loss", nothing),
        # One part is worth a lot, the others nothing: what is left to choose from are null steps.
        ("improves val/loss", lambda having: -5.0 * ("A" in having)),
        # Every step at its margin, where a claim by at least that much is false.
        ("improves val/loss by at least 1.0", additive),
        ("improves val/loss by at least 1.0", redundant),
    ],
)
def test_the_family_of_steps_keeps_its_error(claim: str, worth: Worth, n_pilot: int) -> None:
    # 20,000 studies: standard error .0015 at .05, of one-sided .05 against a margin and .025 against zero.
    level = 0.05 if "least" in claim else 0.025
    found = simulated(path_of("ABC", 5, n_pilot, claim), worth, 20_000)
    assert found.false < level + 4 * (level * (1 - level) / 20_000) ** 0.5, found


@pytest.mark.simulation
def test_power_by_design_is_what_the_designs_page_says() -> None:
    # docs/designs.md: three parts, 64 runs (62 of the path, 10 of them its pilot's), 20,000 studies each.
    for worth, shown in POWER.items():
        for design, study in at_64_runs().items():
            found = simulated(study, worth, 20_000)
            chances = [*found.supported.values(), found.either]
            assert chances == pytest.approx(shown[design], abs=0.015), (worth, design, found)


def at_64_runs() -> dict[str, Study]:
    return {
        "path": path_of("ABC", 13, 2),
        "leave_one_out": lettered("ABC", "leave_one_out", n_seeds=16, claim="worsens val/loss"),
        "factorial": lettered("ABC", "factorial", n_seeds=8, claim="improves val/loss"),
    }


# A, B, C, and A or B.
POWER: dict[Worth, dict[str, list[float]]] = {
    additive: {
        "path": [0.53, 0.53, 0.52, 0.77],
        "leave_one_out": [0.66, 0.66, 0.66, 0.76],
        "factorial": [0.89, 0.89, 0.89, 0.97],
    },
    redundant: {
        "path": [0.44, 0.43, 0.51, 0.86],
        "leave_one_out": [0.014, 0.014, 0.56, 0.024],
        "factorial": [0.61, 0.61, 0.84, 0.79],
    },
}


def test_a_pilot_takes_the_best_part_more_often_the_more_it_stands_out() -> None:
    components = path_of("ABC", 5, 2).components
    assert components is not None
    shares = [taken_first(components, gap, 0.0, n_sims=20_000, seed=0) for gap in (0.0, 1.0, 2.0)]
    # No gap: one of three. One SD, two seeds: the largest of three normal means, by numerical integration .745.
    assert shares[0] == pytest.approx(1 / 3, abs=0.015) and shares[1] == pytest.approx(0.745, abs=0.015)
    assert shares[2] > 0.9
    # What the runs of a seed share cancels.
    assert taken_first(components, 1.0, 0.75, n_sims=20_000, seed=0) == pytest.approx(shares[2], abs=0.015)
