"""Claims about tests without pairs: Welch's t decides on arm means, with unequal numbers of runs, and holds or
misses its error rate as it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from evidence_factory import make_evidence, one_claim, small_study
from hypothesis import given, settings
from hypothesis import strategies as st
from own_trainer import OwnHouse
from paired_tests import single
from scipy import special, stats
from statsmodels.stats.multitest import multipletests
from study_samples import unpaired

from ablate.judge.decide import decide
from ablate.judge.design.characteristics import simulate_design
from ablate.judge.design.scenarios import TrueEffects
from ablate.judge.findings import judge_hypotheses
from ablate.judge.judge import OUTCOME, judge_rows
from ablate.judge.recompute import recompute
from ablate.judge.stats.significance_tests import NoTestError
from ablate.judge.stats.unpaired import Sample, welch
from ablate.judge.verdict import Decision, Finding
from prereg.study.spec import Study, study_from_document

SLEEP = (
    (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0),
    (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4),
)
"""R's `sleep` (Student 1908, Cushny and Peebles 1905)."""
AUTOMATIC = (21.4, 18.7, 18.1, 14.3, 24.4, 22.8, 19.2, 17.8, 16.4, 17.3, 15.2, 10.4, 10.4, 14.7, 21.5, 15.5, 15.2)
MPG = (
    (*AUTOMATIC, 13.3, 19.2),
    (21.0, 21.0, 22.8, 32.4, 30.4, 33.9, 27.3, 26.0, 30.4, 15.8, 19.7, 15.0, 21.4),
)
"""R's `mtcars`, mpg by am (Henderson and Velleman 1981)."""
TEN_AND_TWENTY = (
    (17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8),
    (
        *(21.5, 22.8, 21.0, 23.0, 21.6, 23.6, 22.5, 20.7, 23.4, 21.8),
        *(20.7, 21.7, 21.5, 22.5, 23.6, 21.5, 22.5, 23.5, 21.5, 21.8),
    ),
)


def judged(study: Study, first: Sequence[float], second: Sequence[float]) -> Finding:
    """The finding on these values of layernorm and none."""
    values = {("layernorm", seed): value for seed, value in zip(study.seeds_of("layernorm"), first, strict=True)}
    values |= {("none", seed): value for seed, value in zip(study.seeds_of("none"), second, strict=True)}
    (found,) = judge_hypotheses(study, {"val/loss": values})
    return found


def deciding(finding: Finding) -> tuple[float, float, float, float, float]:
    """t, df, two-sided p and the ends of the interval."""
    found = finding.estimate
    assert found is not None and found.se and found.df and found.difference is not None and found.interval is not None
    assert found.interval.low is not None and found.interval.high is not None
    return found.difference / found.se, found.df, found.p, found.interval.low, found.interval.high


# Published values, through the judge


def test_welch_gives_the_published_values_of_r() -> None:
    # R 4, ?t.test: t.test(extra ~ group, data = sleep).
    t, df, p, low, high = deciding(judged(unpaired(10, 10), *SLEEP))
    assert (t, df, p) == (
        pytest.approx(-1.8608, abs=5e-5),
        pytest.approx(17.776, abs=5e-4),
        pytest.approx(0.07939, abs=5e-6),
    )
    assert (low, high) == (pytest.approx(-3.3654832, abs=5e-8), pytest.approx(0.2054832, abs=5e-8))
    # R, t.test(mpg ~ am, data = mtcars).
    t, df, p, low, high = deciding(judged(unpaired(19, 13), *MPG))
    assert (t, df, p) == (
        pytest.approx(-3.7671, abs=5e-5),
        pytest.approx(18.332, abs=5e-4),
        pytest.approx(0.001374, abs=5e-7),
    )
    assert (low, high) == (pytest.approx(-11.280194, abs=5e-7), pytest.approx(-3.209684, abs=5e-7))
    # R, the examples of ?t.test: t.test(1:10, y = c(7:20)) has p = .00001855, with 200 appended p = .1245.
    assert deciding(judged(unpaired(10, 14), range(1, 11), range(7, 21)))[2] == pytest.approx(1.855e-5, abs=5e-9)
    assert deciding(judged(unpaired(10, 15), range(1, 11), [*range(7, 21), 200]))[2] == pytest.approx(0.1245, abs=5e-5)


def test_welch_gives_the_published_values_of_nist_and_of_an_unequal_design() -> None:
    # NIST/SEMATECH e-Handbook 1.3.5.3, AUTO83B, unequal variances: T = -12.94627, 136.8750 degrees of freedom. They
    # follow from n, mean and standard deviation of both samples, which other values of these have too.
    def sample(n: int, mean: float, sd: float) -> list[float]:
        z = np.linspace(-1.0, 1.0, n)
        return (mean + sd * (z - z.mean()) / z.std(ddof=1)).tolist()

    t, df, *_ = deciding(judged(unpaired(249, 79), sample(249, 20.14458, 6.41470), sample(79, 30.48101, 6.10771)))
    assert (t, df) == (pytest.approx(-12.94627, abs=5e-6), pytest.approx(136.8750, abs=5e-4))
    # Ten runs of SD 2.9 against twenty of SD 0.9: t = -1.57, nu = 9.9, p = .1488417 (Wikipedia, Welch's t-test, second
    # example; Rosetta Code, Welch's t-test).
    t, df, p, *_ = deciding(judged(unpaired(10, 20), *TEN_AND_TWENTY))
    assert (round(t, 2), round(df, 1), p) == (-1.57, 9.9, pytest.approx(0.148841696605327, rel=1e-12))
    # Three runs against four: p = .010751561149785 (Rosetta Code).
    found = deciding(judged(unpaired(4, 3), (3.0, 4.0, 1.0, 2.1), (490.2, 340.0, 433.9)))
    assert found[2] == pytest.approx(0.010751561149785, rel=1e-12)


@pytest.mark.parametrize("sizes", [(3, 8), (5, 3)])
@pytest.mark.parametrize(
    "claim", ["lowers", "raises", "changes", "does_not_change", "does_not_worsen", "lowers at least"]
)
def test_every_deciding_number_is_recomputed_by_scipy(sizes: tuple[int, int], claim: str) -> None:
    rng = np.random.default_rng(7)
    said = "layernorm lowers val/loss by at least 0.5" if "at least" in claim else f"layernorm {claim} val/loss"
    study = unpaired(*sizes, claim=said)
    finding = judged(study, rng.normal(-1.0, 1.0, sizes[0]), rng.normal(0.0, 2.0, sizes[1]))
    found = recompute(study, (finding,))
    assert not found.not_covered and all(one.equal for one in found.numbers), found
    names = {one.name for one in found.numbers}
    assert {"p", "p_support", "p_refute", "difference"} <= names
    assert {"interval, low", "degrees of freedom", "interval against the margin, high"} <= names
    wrong = finding.model_copy(
        update={"samples": (finding.samples[0].model_copy(update={"values": (9.0,) * sizes[0]}), finding.samples[1])}
    )
    assert recompute(study, (wrong,)).not_covered or not all(one.equal for one in recompute(study, (wrong,)).numbers)


def test_a_contrast_of_four_arms_has_the_degrees_of_freedom_of_satterthwaite() -> None:
    rng, sizes = np.random.default_rng(1), (3, 4, 5, 6)
    weights = (1.0, -1.0, -1.0, 1.0)
    samples = [
        Sample(f"arm{at}", weight, tuple(range(size)), rng.normal(at, 1.0 + at, size))
        for at, (weight, size) in enumerate(zip(weights, sizes, strict=True))
    ]
    test = single(welch(samples))
    parts = [one.weight**2 * one.values.var(ddof=1) / one.values.size for one in samples]
    df = sum(parts) ** 2 / sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    mean = sum(one.weight * one.values.mean() for one in samples)
    assert test.estimate(0.05).df == pytest.approx(df, rel=1e-12) and test.mean == pytest.approx(mean, rel=1e-12)
    assert test.p(0.3, "greater") == pytest.approx(stats.t.sf((mean - 0.3) / sqrt(sum(parts)), df), rel=1e-10)


@pytest.mark.parametrize("sizes", [(3, 3), (5, 4), (3, 8), (9, 9)])
def test_intervals_are_the_nulls_that_are_not_rejected(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    samples = [
        Sample("a", 0.5, tuple(range(sizes[0])), rng.exponential(1.0, sizes[0])),
        Sample("b", -0.5, tuple(range(sizes[1])), rng.exponential(2.0, sizes[1])),
    ]
    test = single(welch(samples))
    for alpha in (0.05, 0.2):
        bounds = test.bounds(alpha)
        assert bounds is not None
        low, high = bounds
        assert all(test.p(one, "two") > alpha * (1 - 1e-9) for one in (low + 1e-9, high - 1e-9))
        assert all(test.p(one, "two") <= alpha * (1 + 1e-9) for one in (low - 1e-9, high + 1e-9))


def test_effect_sizes_are_those_of_independent_groups() -> None:
    found = {one.name: one for one in judged(unpaired(10, 10), *SLEEP).effects}
    assert set(found) == {"hedges_g", "cliff_delta"}
    first, second = map(np.array, SLEEP)
    d = (first.mean() - second.mean()) / sqrt((first.var(ddof=1) + second.var(ddof=1)) / 2.0)
    # Hedges (1981): J(18) = Gamma(9) / (sqrt(9) Gamma(8.5)). d = -0.8321811 is d_av of these data.
    assert d == pytest.approx(-0.832181, abs=5e-7)
    g, interval = found["hedges_g"], found["hedges_g"].interval
    assert g.value == pytest.approx(d * special.gamma(9.0) / (3.0 * special.gamma(8.5)), rel=1e-12) and g.df == 18.0
    # The noncentral t's covers .66 with 12 and 3 runs, of which the three have four times the SD.
    assert interval is None
    assert found["cliff_delta"].value == -0.49
    assert judged(unpaired(3, 5), (1.0, 2.0, 3.0), (4.0, 5.0, 6.0, 7.0, 8.0)).effects[-1].value == -1.0


# What is undefined


def test_runs_without_any_spread_decide_nothing() -> None:
    for first, second in (((1.0,) * 3, (2.0,) * 4), ((1.0,) * 3, (1.0,) * 4)):
        for claim in ("layernorm lowers val/loss", "layernorm does_not_change val/loss"):
            found = judged(unpaired(3, 4, claim=claim), first, second)
            assert found.outcome == "inconclusive" and any(
                "one value" in note or "same value" in note for note in found.notes
            )
    # One arm without spread: the other's alone counts, as in scipy.
    study = unpaired(3, 4)
    found = judged(study, (1.0,) * 3, (2.0, 2.1, 1.9, 2.3))
    assert found.estimate is not None and found.estimate.df == 3.0
    assert found.estimate.p == pytest.approx(stats.ttest_1samp((2.0, 2.1, 1.9, 2.3), 1.0).pvalue, rel=1e-12)
    assert any("the seed seems to do nothing" in note for note in found.notes)


@pytest.mark.parametrize("power", [-300, 0, 300])
def test_no_sum_or_square_over_or_underflows(power: int) -> None:
    first, second = (np.ldexp(np.array(one), power) for one in SLEEP)
    found = single(welch([Sample("a", 1.0, tuple(range(10)), first), Sample("b", -1.0, tuple(range(10)), second)]))
    assert found.p(0.0, "two") == pytest.approx(0.0793941401873583, rel=1e-9)


# Seeds and the study


def test_seeds_by_arm_are_planned_run_and_registered_as_they_are_written() -> None:
    study = unpaired(3, 3, seeds={"layernorm": [1, 2, 4], "none": [1001, 1002, 1003], "rmsnorm": [1, 2, 3]})
    assert study.cells == (
        *(("layernorm", 1), ("rmsnorm", 1), ("layernorm", 2), ("rmsnorm", 2), ("layernorm", 4)),
        *(("none", 1001), ("none", 1002), ("none", 1003), ("rmsnorm", 3)),
    )
    assert (study.n_seeds, study.paired, study.seeds_of("none")) == (3, False, (1001, 1002, 1003))
    written = study.model_dump(mode="json")
    assert written["seeds"] == [1, 2, 4, 1001, 1002, 1003, 3] and study_from_document(written) == study
    plain = one_claim()
    assert plain.paired
    assert plain.cells == tuple((arm, seed) for seed in plain.seeds for arm in plain.arms)


# Diverged runs


def lost(study: Study, *diverged: tuple[str, int], gap: float = -1.0, **evidence: Any) -> Decision:
    """The decision where these runs of a clear difference diverged."""
    return decide(*make_evidence(study, effects={"val/loss": {"layernorm": gap}}, diverged=diverged, **evidence))


def test_a_seed_that_one_arm_lacks_still_counts_for_the_other() -> None:
    study = small_study(
        hypotheses={"h": {"claim": "layernorm lowers val/loss", "smallest": 0.02}},
        decision=[{"verdict": "yes", "when": "supported(h)"}, {"verdict": "inconclusive"}],
        analysis={"test": "welch"},
        assume={},
        tie_breakers=[],
    )
    found = lost(study, ("none", 2))
    (finding,) = found.findings
    assert finding.estimate is not None and finding.estimate.sizes == (5, 4) and finding.n == 9 and not finding.pairs
    assert [sample.seeds for sample in finding.samples] == [(1, 2, 3, 4, 5), (1, 3, 4, 5)]
    assert (
        finding.shared is not None and finding.shared.n == 4 and any("none, seed 2" in note for note in finding.notes)
    )
    # A lost run of the baseline pushes towards "supported", which was found; one of layernorm towards "refuted".
    assert found.verdict == "yes"
    against = lost(study, ("layernorm", 2))
    assert against.verdict is None and against.status == "inadmissible"
    assert any(
        one.name == "the verdict is the same with lost pairs at their worst" and not one.passed
        for one in against.checks
    )


def test_too_few_runs_of_one_arm_leave_the_hypothesis_inconclusive() -> None:
    study = unpaired(5, 8, claim="layernorm lowers val/loss", smallest=0.02)
    enough, few = (lost(study, *(("none", seed) for seed in range(1001, 1001 + gone))) for gone in (4, 5))
    assert [one.findings[0].outcome for one in (enough, few)] == ["supported", "inconclusive"]
    assert few.findings[0].estimate is None and "3 of 8 runs of none" in " ".join(few.findings[0].notes)


# The audit


def test_nothing_is_asked_of_pairs_and_code_device_and_tokens_still_match() -> None:
    registration, evidence = make_evidence(unpaired(5, 3))
    checks = {one.name: one for one in decide(registration, evidence).checks}
    assert checks["runs are compared without pairs"].found == "h: no seed shared"
    assert not {name for name in checks if name.startswith(("pairs start", "pairs read", "pairs drew"))}
    assert checks["every run used the same device class"].passed and checks["every run used the same code"].passed
    shared = decide(*make_evidence(small_study(analysis={"test": "welch"})))
    assert any(one.found.startswith("gain_ln: 5 seeds shared") for one in shared.checks)


@pytest.mark.parametrize("field", ["code", "device"])
def test_other_code_or_another_device_leaves_no_verdict(field: str) -> None:
    registration, evidence = make_evidence(unpaired(5, 3))
    first, *others = evidence.runs
    other = first.model_copy(update={"provenance": first.provenance.model_copy(update={field: "another"})})
    found = decide(registration, type(evidence)(**{**vars(evidence), "runs": (other, *others)}))
    assert found.verdict is None


def test_what_pairing_would_have_given_is_described_over_shared_seeds() -> None:
    found = decide(*make_evidence(small_study(analysis={"test": "welch"}), rho=0.9, sd=0.1)).findings[0]
    assert found.shared is not None and found.shared.correlation is not None and not found.pairs
    first, second = (np.array(one.values) for one in found.samples)
    assert found.shared.se_paired == pytest.approx((first - second).std(ddof=1) / sqrt(5), rel=1e-9)
    assert found.shared.se_unpaired == pytest.approx(sqrt((first.var(ddof=1) + second.var(ddof=1)) / 5), rel=1e-9)
    assert found.shared.correlation == pytest.approx(np.corrcoef(first, second)[0, 1], rel=1e-9)
    assert found.shared.se_paired < found.shared.se_unpaired


# Over rows, and error rates through the rule that decides


@st.composite
def row_studies(draw: Any) -> Study:
    sizes = {arm: draw(st.integers(3, 5)) for arm in ("none", "layernorm", "rmsnorm")}
    verbs = ("lowers", "raises", "changes", "does_not_worsen", "does_not_change")
    hypotheses = {
        f"h{index}": {
            "claim": f"{draw(st.sampled_from(['layernorm', 'rmsnorm']))} {draw(st.sampled_from(verbs))} val/loss",
            "smallest": draw(st.sampled_from([0.25, 0.5, 1.0])),
            "role": draw(st.sampled_from(["primary", "secondary"])),
        }
        for index in range(draw(st.integers(1, 3)))
    }
    return small_study(
        hypotheses=hypotheses,
        decision=[{"verdict": "yes", "when": "supported(h0)"}, {"verdict": "inconclusive"}],
        seeds={arm: list(range(10 * at, 10 * at + size)) for at, (arm, size) in enumerate(sizes.items())},
        analysis={
            "test": "welch",
            "correct": draw(st.sampled_from(["holm", "none"])),
            "alpha": draw(st.sampled_from([0.05, 0.1])),
        },
        assume={},
        tie_breakers=[],
    )


def columns_of(study: Study, values: Mapping[tuple[str, int], np.ndarray]) -> dict[str, np.ndarray]:
    """Values of cells (one a study) as the judge over rows takes them."""
    found = {}
    for name, claim in study.claims.items():
        widest = max(len(study.seeds_of(arm)) for arm in study.arms)
        blank = np.full_like(next(iter(values.values())), np.nan)
        columns = [
            values[arm, study.seeds_of(arm)[at]] if at < len(study.seeds_of(arm)) else blank
            for arm in claim.weights
            for at in range(widest)
        ]
        found[name] = np.stack(columns, axis=1)
    return found


@given(row_studies(), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_study_without_pairs_among_others_has_the_outcomes_that_it_has_alone(
    study: Study, seed: int, coarse: bool, losses: bool
) -> None:
    rng, rows = np.random.default_rng(seed), 6
    values = {(arm, one): rng.standard_normal(rows) + 2.0 * (arm == "layernorm") for arm, one in study.cells}
    if coarse:  # ties, and arms without any spread
        values = {cell: np.round(value) / 4 for cell, value in values.items()}
    there = {cell: rng.random(rows) < 0.8 if losses else np.ones(rows, dtype=bool) for cell in values}
    kept = {
        name: np.nan_to_num(mask).astype(bool)
        for name, mask in columns_of(study, {cell: one.astype(float) for cell, one in there.items()}).items()
    }
    found = judge_rows(study, columns_of(study, values), kept if losses else None).codes
    for row in range(rows):
        mine = {"val/loss": {cell: float(value[row]) for cell, value in values.items() if there[cell][row]}}
        assert [OUTCOME[code] for code in found[row]] == [one.outcome for one in judge_hypotheses(study, mine)], row


def error_rate(sizes: tuple[int, int], *, law: str = "normal", ratio: float = 1.0, draws: int) -> float:
    """How often "changes" is supported where two arms have one mean and variances in this ratio, second to first."""
    rng, study = np.random.default_rng(11), unpaired(*sizes, smallest=0.0)
    values = np.full((draws, 2, max(sizes)), np.nan)
    for at, (size, scale) in enumerate(zip(sizes, (1.0, sqrt(ratio)), strict=True)):
        z = rng.standard_normal((draws, size)) if law == "normal" else rng.exponential(1.0, (draws, size)) - 1.0
        values[:, at, :size] = scale * z
    codes = judge_rows(study, {"h": values.reshape(draws, -1)}).codes
    return float((codes == OUTCOME.index("supported")).mean())


RATES = [
    # sizes, law, ratio of variances (second arm to first), rate at nominal .05: 100,000 draws.
    ((5, 5), "normal", 1.0, 0.044),
    ((5, 5), "normal", 4.0, 0.049),
    ((3, 3), "normal", 1.0, 0.035),
    ((3, 3), "normal", 4.0, 0.042),
    ((8, 3), "normal", 1.0, 0.058),
    ((8, 3), "normal", 4.0, 0.071),
    ((3, 8), "normal", 4.0, 0.046),
    ((5, 5), "exponential", 1.0, 0.026),
    ((8, 3), "exponential", 1.0, 0.061),
]
"""Those of docs/designs.md."""


@pytest.mark.parametrize(("sizes", "law", "ratio", "rate"), RATES)
def test_error_rates_are_about_those_that_are_stated(
    sizes: tuple[int, int], law: str, ratio: float, rate: float
) -> None:
    found = error_rate(sizes, law=law, ratio=ratio, draws=3_000)
    assert found == pytest.approx(rate, abs=4.5 * sqrt(rate / 3_000))


@pytest.mark.slow
def test_from_two_runs_of_an_arm_nothing_is_decided() -> None:
    """Welch's t with 12 and 2 normal runs of one variance calls .107 of true nulls different (100,000 studies)."""
    study = planned((12, 3))
    rng, draws = np.random.default_rng(0), 400
    values = rng.standard_normal((draws, 24))
    kept = np.ones((draws, 24), dtype=bool)
    kept[:, 14:] = False  # one of three runs was lost, and more were never planned
    assert (judge_rows(study, {"h": values}, {"h": kept}).codes == OUTCOME.index("inconclusive")).all()
    with pytest.raises(NoTestError, match="b has 2 run"):
        welch([Sample("a", 1.0, tuple(range(12)), rng.standard_normal(12)), Sample("b", -1.0, (1, 2), np.ones(2) / 3)])


def test_an_sd_many_times_another_is_said_in_the_finding_and_by_a_check() -> None:
    study = unpaired(5, 5)
    wide = np.array([-8.0, -4.0, 0.0, 4.0, 8.0])
    said = [note for note in judged(study, wide, wide / 20).notes if note.startswith("the SD of")]
    assert len(said) == 1 and "layernorm (5 runs) is 20 times that of none (5)" in said[0]
    assert not [note for note in judged(study, wide, wide / 3.9).notes if note.startswith("the SD of")]
    for times, severity in ((20.0, "note"), (3.9, None)):
        finals = {("layernorm", seed): 4.0 + value for seed, value in zip((1, 2, 3, 4, 5), wide / 10, strict=True)}
        finals |= {("none", 1000 + at): 4.0 + value for at, value in enumerate(wide / 10 / times, start=1)}
        checks = decide(*make_evidence(study, finals={"val/loss": finals})).checks
        failed = [one for one in checks if one.name == "arms without pairs vary alike"]
        assert [one.severity for one in failed] == ([severity] if severity else []), failed
        assert all("h: the SD of layernorm (5 runs) is 20 times that of none (5)" in one.found for one in failed)


@pytest.mark.parametrize(("sizes", "ratio"), [((5, 5), 1.0), ((5, 5), 4.0), ((8, 8), 4.0)])
def test_holm_keeps_the_rate_of_a_role_of_two_unpaired_claims(sizes: tuple[int, int], ratio: float) -> None:
    rng, draws = np.random.default_rng(2), 40_000
    study = small_study(
        seeds={"none": list(range(sizes[0])), "layernorm": list(range(sizes[1])), "rmsnorm": list(range(sizes[1]))},
        hypotheses={
            f"h{arm}": {"claim": f"{arm} changes val/loss", "smallest": 0.0} for arm in ("layernorm", "rmsnorm")
        },
        decision=[
            {"verdict": "yes", "when": "supported(hlayernorm) or supported(hrmsnorm)"},
            {"verdict": "inconclusive"},
        ],
        analysis={"test": "welch"},
        assume={},
        tie_breakers=[],
    )
    values = {
        (arm, seed): rng.standard_normal(draws) * (sqrt(ratio) if arm == "none" else 1.0) for arm, seed in study.cells
    }
    codes = judge_rows(study, columns_of(study, values)).codes
    assert (codes == OUTCOME.index("supported")).any(axis=1).mean() <= 0.055


# Designs


def planned(sizes: tuple[int, int], **changes: Any) -> Study:
    assume = {"metrics": {"val/loss": {"sd": 0.25, "correlation": 0.5}}, "seconds_per_run": 10.0}
    return unpaired(*sizes, **{"claim": "layernorm lowers val/loss", "assume": assume} | changes)


@pytest.mark.slow
def test_power_is_that_of_independent_runs_and_an_assumed_correlation_is_ignored() -> None:
    rng, n_sims = np.random.default_rng(0), 20_000
    for sizes in ((5, 5), (8, 3)):
        found = simulate_design(planned(sizes), n_sims=2_000)
        first, second = (rng.normal(mean, 0.25, (n_sims, size)) for mean, size in zip((-0.5, 0.0), sizes, strict=True))
        p = stats.ttest_ind(first, second, axis=1, equal_var=False).pvalue
        short = stats.ttest_ind(first + 0.5, second, axis=1, equal_var=False, alternative="greater").pvalue
        lower = first.mean(axis=1) < second.mean(axis=1)
        expected = np.mean((p <= 0.05) & lower & (short > 0.05))
        assert found.hypotheses[0].power == pytest.approx(expected, abs=0.025)
        assert found.n_runs == sum(sizes) + 3 and found.cost_s == 10.0 * found.n_runs
        assert found.beliefs[0].correlation == 0.0 and any("correlation is ignored" in note for note in found.notes)
        assert any("twice the SD" in one.name for one in found.scenarios)


@pytest.mark.slow
def test_pairs_find_what_unpaired_runs_miss_where_seeds_are_correlated() -> None:
    # Effect of two SDs of an arm, five seeds: the numbers of docs/designs.md.
    shares = []
    for correlation in (0.0, 0.5, 0.9):
        assume = {"metrics": {"val/loss": {"sd": 0.25, "correlation": correlation}}}
        paired = one_claim("layernorm lowers val/loss by at least 0.1", 0.1, assume=assume | {"effects": {"h": 0.6}})
        shares.append(simulate_design(paired, n_sims=2_000).hypotheses[0].power)
    assume = {"metrics": {"val/loss": {"sd": 0.25}}, "effects": {"h": 0.6}}
    unpaired_ = planned((5, 5), claim="layernorm lowers val/loss by at least 0.1", smallest=0.1, assume=assume)
    share = simulate_design(unpaired_, n_sims=2_000).hypotheses[0].power
    assert share is not None and shares[0] is not None and shares[1] is not None and shares[2] is not None
    assert shares[0] < share < shares[2]


def test_lost_runs_are_simulated_with_the_rule_for_the_worst() -> None:
    found = simulate_design(planned((5, 3)), n_sims=1_000)
    diverging = [one for one in found.scenarios if one.divergence]
    assert diverging and all(one.inadmissible is not None and one.inadmissible.share > 0 for one in diverging)


def test_a_design_draws_unequal_arms_and_only_what_is_planned() -> None:
    from ablate.judge.design.assumptions import assumed
    from ablate.judge.design.scenarios import draw_studies

    study = planned((8, 3))
    drawn = draw_studies(
        study, TrueEffects("no effect", {"h": 0.0}), assumed(study), n_sims=50, n_seeds=8, rng=np.random.default_rng(0)
    )
    values = drawn.differences["h"].reshape(50, 2, 8)
    assert np.isnan(values).sum(axis=(0, 2)).tolist() == [0, 250] and drawn.kept is None


# R, data set `recovery` of multcomp: minutes to recover under blankets b0 to b3 (Westfall et al. 1999, p. 66).
RECOVERY: dict[str, tuple[int, ...]] = {
    "b0": (15, 13, 12, 16, 16, 17, 13, 13, 16, 17, 17, 19, 17, 15, 13, 12, 16, 10, 17, 12),
    "b1": (13, 16, 9),
    "b2": (5, 8, 9),
    "b3": (14, 16, 16, 12, 7, 12, 13, 13, 9, 16, 13, 18, 13, 12, 13),
}


def test_holm_over_welch_next_to_a_published_dunnett() -> None:
    """Dunnett's test is not offered (docs/decisions.md). Three runs of an arm are where it gains most."""
    seeds = {arm: list(range(100 * at, 100 * at + len(found))) for at, (arm, found) in enumerate(RECOVERY.items(), 1)}
    study = small_study(
        variants={arm: {"optim.lr": 0.1 + at} for at, arm in enumerate(RECOVERY)},
        baseline="b0",
        seeds=seeds,
        hypotheses={arm: {"claim": f"{arm} changes val/loss", "smallest": 1.0} for arm in ("b1", "b2", "b3")},
        decision=[{"verdict": "b2", "when": "supported(b2)"}, {"verdict": "inconclusive"}],
        analysis={"test": "welch"},
        tie_breakers=[],
        assume={},
    )
    values = {(arm, seed): float(x) for arm in seeds for seed, x in zip(seeds[arm], RECOVERY[arm], strict=True)}
    ours = judge_hypotheses(study, {"val/loss": values})
    # R, summary(glht(lm(minutes ~ blanket), mcp(blanket = "Dunnett"))), two-sided; of simulated integrals, 3 digits.
    published = (0.4559, 0.000124, 0.1819)
    dunnett = stats.dunnett(*(RECOVERY[arm] for arm in ("b1", "b2", "b3")), control=RECOVERY["b0"])
    assert dunnett.pvalue == pytest.approx(published, abs=2e-3)
    assert [one.outcome == "supported" for one in ours] == [p <= 0.05 for p in published] == [False, True, False]
    holm_welch = [one.p_support_adjusted for one in ours]
    assert holm_welch == pytest.approx([0.4043, 0.0373, 0.1446], abs=5e-5)
    raw = [stats.ttest_ind(RECOVERY[arm], RECOVERY["b0"], equal_var=False).pvalue for arm in ("b1", "b2", "b3")]
    assert holm_welch == pytest.approx(multipletests(raw, method="holm")[1])


SEEDS = {"slow": [1, 2, 3, 4, 5], "fast": [11, 12, 13]}


def test_the_schema_takes_seeds_by_arm(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")

    from prereg.study.schema import json_schema

    document = yaml.safe_load(OwnHouse(tmp_path).write(seeds=SEEDS, analysis={"test": "welch"}).read_text())
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(document)
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(document | {"seeds": {"slow": 5}})
