"""Estimates after an early stop: when they are given, what they equal, and the bias and error of those not chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from evidence_factory import make_evidence, one_claim
from scipy import optimize, stats

from ablate.judge.decide import decide
from ablate.judge.description import adjust
from ablate.judge.findings import judge_hypotheses
from ablate.judge.stats.spending import nominal_levels
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.described import stopped_table
from prereg.registry.looks import looks_of
from prereg.study.spec import Study

Floats = npt.NDArray[np.float64]
LOOKS = (3, 5, 8)


def sequential(spending: str = "pocock") -> Study:
    """A claim of any change, which only a rejection at zero ends."""
    rule = [{"verdict": "changed", "when": "supported(h)"}, {"verdict": "inconclusive"}]
    return one_claim(
        "layernorm changes val/loss",
        0.0,
        seeds=8,
        stopping={"looks": list(LOOKS), "spending": spending},
        decision=rule,
    )


def stopped_at(study: Study, differences: list[float], number: int, **given: Any) -> Any:
    """The adjusted estimate of these differences at a look."""
    values = {("none", seed): 2.0 for seed in study.seeds}
    values |= {("layernorm", seed): 2.0 + one for seed, one in enumerate(differences, 1)}
    look = looks_of(study)[number - 1]
    seen = {cell: value for cell, value in values.items() if cell[1] <= look.n_seeds}
    return adjust(study, judge_hypotheses(study, {"val/loss": seen}, look=look), look, rng_seed=1, **given)


def stop(x: Floats, critical: Floats) -> tuple[npt.NDArray[np.int64], Floats, Floats, Floats]:
    """The look where each study stops, and its mean, SD and t there: by plain t statistics, nothing of the judge."""
    means = np.stack([x[:, :n].mean(axis=1) for n in LOOKS], axis=1)
    sds = np.stack([x[:, :n].std(axis=1, ddof=1) for n in LOOKS], axis=1)
    t = means / sds * np.sqrt(LOOKS)
    crossed = np.abs(t) >= critical
    crossed[:, -1] = True
    at, rows = crossed.argmax(axis=1), np.arange(len(x))
    return at, means[rows, at], sds[rows, at], t[rows, at]


def bounds_of(spending: Any) -> Floats:
    levels = nominal_levels(np.array([0.05]), LOOKS, spending)[:, 0]
    return np.array([stats.t.isf(level / 2.0, n - 1) for level, n in zip(levels, LOOKS, strict=True)])


def test_only_a_study_that_stopped_before_its_last_look_has_one() -> None:
    study = sequential()
    differences = [1.3, 0.9, 1.6, 0.7, 1.4, 1.0, 1.2, 1.1]
    assert stopped_at(study, differences, 3) == ()
    (found,) = stopped_at(study, differences, 2)
    assert (found.hypothesis, found.n) == ("h", 5) and found.observed == pytest.approx(np.mean(differences[:5]))
    fixed = one_claim("layernorm changes val/loss", 0.0, seeds=8)
    assert adjust(fixed, (), None, rng_seed=1) == ()
    assert stopped_at(study, [0.5] * 8, 2) == ()  # differences that do not vary have no law


@pytest.mark.parametrize(
    ("spending", "differences", "number"),
    [
        ("pocock", [1.3, 0.2, 2.1, 0.8, 1.6], 2),
        pytest.param("pocock", [1.9, 0.8, 1.4], 1, marks=pytest.mark.simulation),
        pytest.param("obrien_fleming", [1.3, 0.2, 2.1, 0.8, 1.6], 2, marks=pytest.mark.simulation),
    ],
)
def test_it_is_the_effect_at_which_the_expected_stopped_mean_is_the_observed_one(
    spending: str, differences: list[float], number: int
) -> None:
    study = sequential(spending)
    (found,) = stopped_at(study, differences, number, n_sims=10_000)
    mean, sd = float(np.mean(differences)), float(np.std(differences, ddof=1))
    noise = sd * np.random.default_rng(3).standard_normal((50_000, 8))
    critical = bounds_of(spending)

    def missing(effect: float) -> float:
        x = noise + effect
        return float((stop(x, critical)[1] - x.mean(axis=1)).mean()) + effect - mean

    wanted = optimize.brentq(missing, mean - 2.0 * sd, mean + sd, xtol=1e-4)
    assert found.adjusted == pytest.approx(wanted, abs=4.0 * (found.error + 1e-3 * sd))
    assert found.adjusted < found.observed


def test_an_e_process_that_stopped_early_has_one_too() -> None:
    study = one_claim(seeds=6, stopping={"evidence": "e_process", "max_seeds": 6})
    (found,) = stopped_at(study, [-0.031, -0.018, -0.028, -0.022], 2, n_sims=1_000)
    assert found.n == 4 and found.observed < found.adjusted < 0.0


def test_the_report_shows_it_as_description() -> None:
    study = sequential()
    finals = {("none", seed): 2.0 + 0.001 * seed for seed in study.seeds}
    finals |= {
        ("layernorm", s): 2.0 + 0.001 * s - d for s, d in zip(study.seeds, (0.08, 0.09, 0.085) * 3, strict=False)
    }
    left_out = tuple(cell for cell in study.cells if cell[1] > 3)
    registration, evidence = make_evidence(study, finals={"val/loss": finals}, left_out=left_out)
    decided = decide(registration, evidence)
    assert decided.verdict == "changed" and decided.look is not None and not decided.look.last
    context = ReportContext(decided, registration, evidence, "0" * 64, "2026-05-04")
    table = stopped_table(context)
    assert table is not None and "They decide nothing" in table.caption and "look 1 of 3" in table.caption
    (row,) = table.rows
    (again,) = adjust(study, decided.findings, decided.look)
    assert row[0] == "h" and row[3] == "3" and f"{abs(again.adjusted):.4f}"[:5] in row[2]


@pytest.mark.simulation
@pytest.mark.parametrize("spending", ["obrien_fleming", "pocock"])
def test_whitehead_s_estimate_has_the_least_bias_of_those_compared(spending: str) -> None:
    """The table of reports/LOG.md: 20,000 studies a row, SD 1, two-sided alpha .05, looks at 3, 5 and 8 seeds.

    Naive: the mean at the stop. Whitehead: as `after_stopping`, with the SD of each study. Median: the median-unbiased
    effect in SDs by stagewise ordering (exact, as the law of the t statistics knows no other parameter) times the SD.
    Conditional: the effect at which the mean of studies that stop at that look is the observed one, times the SD.
    """
    critical = bounds_of(spending)
    half = np.random.default_rng(1).standard_normal((20_000, 8))
    noise = np.concatenate([half, -half])
    grid = np.concatenate([np.linspace(-12, -3.1, 60), np.linspace(-3, 3, 121), np.linspace(3.1, 12, 60)])
    expected, conditional, ordered = [], [], []
    for effect in grid:
        at, mean, _, t = stop(noise + effect, critical)
        expected.append(mean.mean())
        conditional.append([mean[at == k].mean() if (at == k).sum() > 50 else np.nan for k in range(3)])
        ordered.append([np.sort(t[at == k]) for k in range(3)])
    for effect in (0.0, 0.5, 1.0, 2.0):
        at, mean, sd, t = stop(effect + np.random.default_rng(77).standard_normal((20_000, 8)), critical)
        found = {"naive": mean, "Whitehead": np.interp(mean / sd, np.maximum.accumulate(expected), grid) * sd}
        median, given = np.empty_like(mean), np.empty_like(mean)
        for k in range(3):
            mine = at == k
            above = [
                sum((earlier > 0).sum() for earlier in laws[:k]) + laws[k].size - np.searchsorted(laws[k], t[mine])
                for laws in ordered
            ]
            share = np.maximum.accumulate(np.array(above) / len(noise), axis=0) + 1e-12 * np.arange(grid.size)[:, None]
            median[mine] = [np.interp(0.5, column, grid) for column in share.T]
            curve = np.array(conditional)[:, k]
            usable = np.isfinite(curve)
            given[mine] = np.interp((mean / sd)[mine], np.maximum.accumulate(curve[usable]), grid[usable])
        found |= {"median": median * sd, "conditional": given * sd}
        early = at < 2
        bias = {}
        for name, value in found.items():
            bias[name] = float(value.mean() - effect)
            rmse = np.sqrt(((value - effect) ** 2).mean())
            of_early = value[early].mean() - effect
            print(
                spending, effect, f"{early.mean():.3f}", name, f"{bias[name]:+.3f}", f"{rmse:.3f}", f"{of_early:+.3f}"
            )
        assert abs(bias["Whitehead"]) < 0.02
        assert abs(bias["Whitehead"]) <= abs(bias["naive"]) + 0.01
