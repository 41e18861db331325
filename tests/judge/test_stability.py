"""Claims about loss spikes and stable variants."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evidence_factory import make_evidence, small_study, with_losses
from scipy import stats

from ablate.judge.audit.stability import false_alarm_rate, false_alarm_text, judge_stability, spike_limit
from ablate.judge.decide import decide
from ablate.judge.stats.spikes import EARLY, early_spike_places, spike_chance, spike_places
from ablate.judge.verdict import Stability
from ablate.judge.wording import upper_bound
from ablate.reporting.headline import stability_in_words
from prereg.documents.sentences import say
from prereg.study.analysis import Stable
from prereg.study.load import load_study
from prereg.study.presentation import NO_LABELS
from prereg.study.spec import Study

STUDIES = Path(__file__).resolve().parents[2] / "studies"


def noisy(n: int = 100, seed: int = 0) -> np.ndarray:
    return 2.0 + 0.01 * np.random.default_rng(seed).standard_normal(n)


def test_a_spike_is_the_robust_z_score_against_the_trailing_window() -> None:
    losses = noisy()
    window = losses[30:50]
    scale = 1.4826 * np.median(np.abs(window - np.median(window)))
    losses[50] = np.median(window) + 6.01 * scale
    assert 50 in spike_places(losses, above=6.0, window=20)
    losses[50] = np.median(window) + 5.99 * scale
    assert 50 not in spike_places(losses, above=6.0, window=20)


def test_only_a_rise_is_a_spike() -> None:
    losses = noisy()
    losses[50] -= 1.0
    assert spike_places(losses, above=6.0, window=20).size == 0


def test_a_window_whose_mad_is_zero_is_judged_by_the_mean_deviation() -> None:
    # 15 equal values and 5 others: MAD 0, mean absolute deviation not (Iglewicz and Hoaglin 1993).
    window = np.array([1.0] * 15 + [1.1] * 5)
    limit = 1.0 + 6.0 * 1.2533 * np.abs(window - 1.0).mean()
    assert spike_places(np.append(window, limit - 1e-6), above=6.0, window=20).size == 0
    assert spike_places(np.append(window, limit + 1e-6), above=6.0, window=20).tolist() == [20]


def test_after_a_constant_window_a_rise_of_many_steps_of_its_grid_is_a_spike_and_a_standstill_is_not() -> None:
    assert spike_places(np.ones(30), above=6.0, window=20).size == 0
    assert spike_places(np.append(np.ones(20), 1.01), above=6.0, window=20).size == 0  # one step of two decimals
    assert spike_places(np.append(np.ones(20), 1.13), above=6.0, window=20).tolist() == [20]
    constant = np.full(20, np.pi)  # on no grid: any rise
    assert spike_places(np.append(constant, np.pi + 1e-9), above=6.0, window=20).tolist() == [20]


def bfloat16(losses: np.ndarray) -> np.ndarray:
    """Rounded to 8 significant bits, as losses are that were logged in bfloat16."""
    fraction, exponent = np.frexp(losses)
    return np.ldexp(np.rint(fraction * 256.0), exponent - 8)


ROUNDINGS = {
    "one decimal": lambda losses: np.round(losses, 1),
    "two decimals": lambda losses: np.round(losses, 2),
    "two decimals, in single precision": lambda losses: np.round(losses, 2).astype(np.float32).astype(np.float64),
    "three decimals": lambda losses: np.round(losses, 3),
    "bfloat16": bfloat16,
    "half precision": lambda losses: losses.astype(np.float16).astype(np.float64),
}


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("sd", [0.0004, 0.004, 0.02, 0.1])
@pytest.mark.parametrize("above", [3.0, 6.0])
def test_rounding_adds_no_spike(rounding: str, sd: float, above: float) -> None:
    rng = np.random.default_rng(int(1e4 * sd))
    runs = 2.5 + sd * rng.standard_normal((30, 200))
    for run in runs:
        rounded = spike_places(ROUNDINGS[rounding](run), above=above, window=20)
        assert set(rounded.tolist()) <= set(spike_places(run, above=above, window=20).tolist())


@pytest.mark.slow
def test_losses_with_two_decimals_keep_the_rate_and_a_real_spike_is_found() -> None:
    # An SD of .004, two decimals: every run was unstable before.
    limit, rng = spike_limit(study_of()), np.random.default_rng(5)
    runs = np.round(2.0 + 0.004 * rng.standard_normal((300, 300)), 2)
    assert share_unstable(runs, limit, 20) == 0.0
    runs[:, 150] += 0.3
    assert share_unstable(runs, limit, 20) > 0.98
    # Digits to spare cost no power: 12 SD are found as often at three decimals as without rounding.
    runs = 2.0 + 0.05 * rng.standard_normal((600, 21))
    runs[:, 20] += 0.6
    assert share_unstable(np.round(runs, 3), limit, 20) == pytest.approx(share_unstable(runs, limit, 20), abs=0.06)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_is_a_spike(bad: float) -> None:
    losses = noisy(60)
    losses[30] = bad
    assert spike_places(losses, above=6.0, window=20).tolist() == [30]
    short = noisy(10)
    short[3] = bad
    assert spike_places(short, above=6.0, window=20).tolist() == [3]


@pytest.mark.parametrize("window", [4, 5, 20])
def test_spikes_are_those_of_the_definition_taken_step_by_step(window: int) -> None:
    rng, found = np.random.default_rng(window), 0
    for case in range(60):
        losses = rng.standard_t(2, 80)
        if case % 2:
            losses = np.round(losses)  # ties, and windows whose MAD is 0
        grid, above = float(case % 2), float(rng.uniform(0.5, 6.0))
        expected = []
        for step in range(window, len(losses)):
            before = losses[step - window : step]
            median = np.median(before)
            scale = 1.4826 * (np.median(np.abs(before - median)) + grid)
            scale = scale if scale > 0 else 1.2533 * np.abs(before - median).mean()
            if losses[step] - median - grid > above * scale:
                expected.append(step)
        assert spike_places(losses, above=above, window=window).tolist() == expected
        found += len(expected)
    assert found > 100


def test_a_variant_is_stable_when_none_of_its_runs_spikes_or_diverges() -> None:
    study = small_study()
    _, evidence = make_evidence(study)
    assert [one.variant for one in judge_stability(study, evidence)] == ["none", "layernorm", "rmsnorm"]
    assert all(one.stable and one.runs == 5 for one in judge_stability(study, evidence))
    found = {one.variant: one for one in judge_stability(study, with_losses(evidence, ("rmsnorm", 4), {50: 9.0}))}
    assert found["none"].stable and found["layernorm"].stable and not found["rmsnorm"].stable
    assert found["rmsnorm"].spikes == {4: (50,)}


def test_a_diverged_run_makes_its_variant_unstable() -> None:
    study = small_study()
    _, evidence = make_evidence(study, diverged=(("none", 2),))
    found = judge_stability(study, evidence)[0]
    assert not found.stable and found.diverged == (2,) and found.runs == 5


def test_the_registered_limit_and_window_are_used() -> None:
    _, evidence = make_evidence(small_study())
    spiky = with_losses(evidence, ("none", 1), {50: 2.6})
    strict = small_study(stable={"loss_spike": {"above": 2.0, "window": 10}})
    blind = small_study(stable={"loss_spike": {"above": 1e6, "window": 10}})
    assert not judge_stability(strict, spiky)[0].stable and judge_stability(blind, spiky)[0].stable


def study_of(steps: int = 300, *, seeds: int = 5, **spike: Any) -> Study:
    """Three arms of so many steps."""
    shape = {"layers": 2, "width": 16, "heads": 2, "context": 8}
    return small_study(
        base={"budget": {"steps": steps, "batch": 4}, "model": shape},
        seeds=list(range(1, seeds + 1)),
        stable={"loss_spike": spike},
    )


def share_unstable(runs: np.ndarray, above: float, window: int) -> float:
    return float(np.mean([spike_places(run, above=above, window=window).size > 0 for run in runs]))


def test_the_chance_of_a_spike_is_that_of_simulated_windows() -> None:
    # Given a window the chance is a normal tail: averaging it over windows has a small error far out, too.
    rng, n = np.random.default_rng(0), 40_000
    for window in (9, 20, 21):
        before = rng.standard_normal((n, window))
        median = np.median(before, axis=1)
        scale = 1.4826 * np.median(np.abs(before - median[:, None]), axis=1)
        for above in (3.0, 6.0):
            tails = stats.norm.sf(median + above * scale)
            error = float(tails.std() / sqrt(n))
            assert spike_chance(above, window) == pytest.approx(float(tails.mean()), abs=4 * error + 1e-4)


@pytest.mark.parametrize(
    ("window", "above", "chance"),
    [
        # The integral over all four middle values of an even window, and over the two of an odd one; with a billion
        # simulated steps for a window of 20 at 6 the chance was 2.08e-4.
        (6, 6.0, 1.071478e-02),
        (20, 3.0, 1.071290e-02),
        (20, 6.0, 2.073886e-04),
        (20, 10.0, 4.351593e-06),
        (20, 20.0, 1.055245e-08),
        (21, 10.0, 4.237179e-06),
        (40, 6.0, 1.255612e-05),
        (60, 10.0, 3.141677e-10),
    ],
)
def test_the_chance_of_a_spike_far_out(window: int, above: float, chance: float) -> None:
    assert spike_chance(above, window) == pytest.approx(
        chance, rel=1e-6 if window % 2 else 0.012 if above < 5 else 6e-3
    )


def test_the_former_default_called_one_run_in_twenty_of_pure_noise_unstable() -> None:
    runs = np.random.default_rng(1).standard_normal((800, 300))
    found = share_unstable(runs, 6.0, 20)
    assert found == pytest.approx(0.0535, abs=4 * sqrt(0.0535 * 0.9465 / 800))  # 10^5 runs: .0535
    stated = false_alarm_rate(study_of(above=6.0), "none")
    assert stated == pytest.approx(0.0565, abs=5e-4)  # an upper bound: alarms of neighbouring steps come together


def test_a_study_that_says_nothing_registers_one_false_alarm_in_a_hundred_studies() -> None:
    study = study_of()
    assert study.stable.model_dump()["loss_spike"] == {"window": 20, "false_alarms": 0.01, "first_steps": False}
    rates = [false_alarm_rate(study, arm) for arm in study.arms]
    assert 1 - np.prod([(1 - rate) ** 5 for rate in rates]) == pytest.approx(0.01, rel=0.01)
    assert spike_limit(study) == 10.76  # 15 runs of 280 judged steps
    # More steps, more runs or a smaller rate: a higher limit. A longer window: lighter tails.
    assert spike_limit(study_of(600)) > spike_limit(study_of(seeds=8)) > spike_limit(study)
    assert spike_limit(study_of(false_alarms=0.001)) > spike_limit(study) > spike_limit(study_of(window=50))


@pytest.mark.simulation
@pytest.mark.parametrize("window", [20, 21, 50])
def test_the_registered_rate_of_false_alarms_is_kept(window: int) -> None:
    # A rate that a simulation can see: one in ten studies of 6 runs, 30 steps judged in each.
    study = study_of(window + 30, seeds=2, window=window, false_alarms=0.1)
    rng, n = np.random.default_rng(2), 20_000
    found = share_unstable(rng.standard_normal((n, window + 30)), spike_limit(study), window)
    rate = false_alarm_rate(study, "none")
    assert 0.85 * rate - 4 * sqrt(rate / n) < found < rate + 4 * sqrt(rate / n)


def test_arms_of_other_lengths_share_one_limit_and_short_runs_have_no_alarm() -> None:
    budgets = {"none": {}, "layernorm": {"budget.steps": 15}, "rmsnorm": {"budget.steps": 600}}
    study = small_study(variants=budgets, measure={"every": 15})
    rates = {arm: false_alarm_rate(study, arm) for arm in study.arms}
    assert rates["layernorm"] == 0.0 and rates["rmsnorm"] == pytest.approx(rates["none"] * 580 / 40, rel=1e-2)


def own_trainer(**spike: Any) -> Study:
    return small_study(
        trainer="command",
        command=["{python}", "train.py"],
        base={"norm": 0},
        variants={"none": {}, "layernorm": {"norm": 1}, "rmsnorm": {"norm": 2}},
        stable={"loss_spike": spike},
    )


def test_a_trainer_of_ones_own_is_judged_by_the_steps_that_it_took() -> None:
    study = own_trainer()
    assert spike_limit(study, longest=300) == spike_limit(study_of(300))
    assert false_alarm_rate(study, "none") == pytest.approx(0.01 / 15, rel=0.01)
    assert false_alarm_rate(own_trainer(above=6.0), "none") is None
    assert "registers no number of steps" in false_alarm_text(own_trainer(above=6.0))


def test_the_limit_in_force_is_found_and_used() -> None:
    study = small_study()
    limit = spike_limit(study)
    _, evidence = make_evidence(study)
    found = {one.variant: one for one in judge_stability(study, with_losses(evidence, ("rmsnorm", 4), {50: 9.0}))}
    assert found["none"].above == limit == found["rmsnorm"].above and not found["rmsnorm"].stable
    old = small_study(stable={"loss_spike": {"above": 6.0, "window": 20}})
    assert all(one.above is None for one in judge_stability(old, evidence))


@pytest.mark.slow
def test_a_real_spike_is_found() -> None:
    # Of 12 and 15 SDs, at the limit of 15 runs of 300 steps: the limit is 10.76 robust SDs, of a scale that varies.
    limit, rng = spike_limit(study_of()), np.random.default_rng(3)
    for size, least in ((12.0, 0.5), (15.0, 0.8), (20.0, 0.97)):
        runs = rng.standard_normal((600, 21))
        runs[:, 20] += size
        assert share_unstable(runs, limit, 20) > least


def test_a_registered_limit_keeps_its_bytes_and_its_words() -> None:
    study = load_study(STUDIES / "embnorm.yaml").study.model_dump(mode="json")
    assert study["stable"]["loss_spike"] == {"above": 6.0, "window": 20, "first_steps": False}
    assert "more than 6 robust standard deviations above the median of the last 20 steps" in say(
        "instability", study_of(above=6.0)
    )
    assert "stationary normal noise alone get there in 1% of studies of this size" in say("instability", study_of())


def test_the_rates_are_stated_where_the_decision_asks() -> None:
    said = false_alarm_text(study_of(above=6.0))
    assert "robust z above 6, over 20 steps, is a spike" in said and "5.7%, an arm of 5 runs 25%" in said
    assert "any arm of the study 1%;" in false_alarm_text(study_of())
    silent = small_study(decision=[{"verdict": "yes", "when": "supported(gain_ln)"}, {"verdict": "inconclusive"}])
    assert false_alarm_text(silent) == ""


def test_stability_is_said_with_the_bound_of_its_rate() -> None:
    """Clopper and Pearson: under the bound, so few unstable runs have a chance of 5%."""
    for n, k in product(range(1, 40), range(3)):
        if k < n:
            assert stats.binom.cdf(k, n, upper_bound(k, n)) == pytest.approx(0.05)
    assert upper_bound(5, 5) == 1.0
    none = Stability(variant="fast", stable=True, runs=5)
    assert stability_in_words(none, NO_LABELS, Stable()).endswith(
        "stable: of 5 runs none diverged or had a loss spike; the rate may still be up to 45% (95% bound)"
    )
    by_80 = Stable(reached={"val/loss": 2.9, "by": 80})
    assert "had a loss spike, and each reached the registered level of val/loss by step 80; the rate" in (
        stability_in_words(none, NO_LABELS, by_80)
    )
    some = Stability(variant="fast", stable=False, runs=5, diverged=(1, 2), spikes={2: (7,), 3: (), 4: (9,)})
    assert stability_in_words(some, NO_LABELS, Stable()) == (
        "fast is unstable: of 5 runs 2 diverged and 2 had loss spikes; the rate may be up to 92% (95% bound)"
    )


@pytest.mark.parametrize("at", [1, 3, 10, 19])
def test_a_spike_in_the_first_steps_is_found(at: int) -> None:
    losses = noisy(60)
    losses[at] += 1.0
    assert early_spike_places(losses, above=6.0, window=20).tolist() == [at]
    assert spike_places(losses, above=6.0, window=20).size == 0
    rules = [{"above": 6.0, "window": 20}, {"above": 6.0, "window": 20, "first_steps": True}]
    studies = [small_study(stable={"loss_spike": rule}) for rule in rules]
    _, evidence = make_evidence(studies[0])
    evidence = with_losses(evidence, ("none", 2), {step + 1: float(losses[step]) for step in range(60)})
    assert judge_stability(studies[0], evidence)[0].stable
    assert judge_stability(studies[1], evidence)[0].spikes == {2: (at + 1,)}
    assert [study.model_dump(mode="json")["stable"]["loss_spike"] for study in studies] == [
        {"first_steps": False} | rule for rule in rules
    ]


def test_the_early_blow_up_of_a_run_is_found() -> None:
    # Seed 4 of adamw_untuned in a study of ours, which the window of 20 steps called stable.
    losses = [3.203, 3.171, 3.14, 5.099, 3.453, 2.943, 2.919, 3.11, 3.1, 2.925, 2.975, 2.964, 2.931, 2.914, 3.009]
    losses += [2.943, 2.858, 2.908, 2.882, 2.87, 2.799, 2.875, 2.819, 2.888, 2.827, 2.875, 2.808, 2.79, 2.878, 2.881]
    losses += [2.845, 2.869, 2.828, 2.77, 2.914, 2.81, 2.807, 2.825, 2.783, 2.851, 2.818, 2.842, 2.81, 2.831, 2.793]
    assert early_spike_places(np.array(losses), above=10.0, window=20).tolist() == [3]
    assert spike_places(np.array(losses), above=10.0, window=20).size == 0


def test_a_fall_a_plateau_before_a_fall_and_a_lasting_rise_are_no_early_spikes() -> None:
    steps, noise = np.arange(100), noisy() - 2.0
    fall = 2.0 + 2.0 * np.exp(-steps / 5) + noise
    plateau = np.where(steps < 6, 4.2, 2.0) + noise  # no step of the plateau is above it
    rise = np.where(steps < 4, 2.0, 5.0) + noise
    for losses in (fall, plateau, rise, noisy(20), noisy(21)):
        assert early_spike_places(losses, above=6.0, window=20).size == 0
    assert early_spike_places(np.array([1.0] * 5 + [np.nan] + [1.0] * 40), above=6.0, window=20).size == 0


@pytest.mark.slow
def test_the_first_steps_add_little_to_the_rate_of_false_alarms() -> None:
    # At a limit of 3 over a window of 9, 31 later steps have alarms in two of three runs, the first steps in one of 75.
    window, above, n = 9, 3.0, 6000
    runs = np.random.default_rng(8).standard_normal((n, 40))
    early = np.mean([early_spike_places(run, above=above, window=window).size > 0 for run in runs])
    assert early <= EARLY * spike_chance(above, window) * (40 - window) + 4 * sqrt(0.02 / n)
    assert early > 0


def levels(evidence: Any, cell: tuple[str, int], value: float) -> Any:
    """The same evidence with a run whose val/loss stays at a value from its first evaluation on."""
    frame = evidence.metrics.copy()
    mine = (frame["variant"] == cell[0]) & (frame["seed"] == cell[1]) & (frame["metric"] == "val/loss")
    frame.loc[mine & (frame["step"] > 0), "value"] = value
    return replace(evidence, metrics=frame)


def test_a_run_that_does_not_reach_the_registered_level_is_unstable() -> None:
    study = small_study(stable={"reached": {"val/loss": 2.5, "by": 40}})
    _, evidence = make_evidence(study)
    assert all(one.stable and not one.not_reached for one in judge_stability(study, evidence))
    found = {one.variant: one for one in judge_stability(study, levels(evidence, ("rmsnorm", 4), 3.2))}
    assert found["none"].stable and not found["rmsnorm"].stable
    assert found["rmsnorm"].not_reached == {4: {"val/loss": 3.2}}
    # A level that is reached later does not count, one of another direction is turned, and a gap is no value.
    late = small_study(stable={"reached": {"val/loss": 2.05, "by": 20}})
    assert not any(one.stable for one in judge_stability(late, evidence))
    higher = small_study(stable={"reached": {"val/accuracy": 0.9, "by": 40}})
    assert len(judge_stability(higher, evidence)[0].not_reached) == 5
    lower = small_study(stable={"reached": {"val/accuracy": 0.4, "by": 40}})
    assert judge_stability(lower, evidence)[0].stable
    seen = (evidence.metrics["step"] > 40) | (evidence.metrics["metric"] != "val/loss")
    bare = replace(evidence, metrics=evidence.metrics[seen])
    assert judge_stability(study, bare)[0].not_reached[1] == {"val/loss": None}
    # That says nothing of the run: it gives no verdict.
    registration, _ = make_evidence(study)
    name = "every finished run has a value by the step of stable.reached"
    (check,) = [one for one in decide(registration, bare).checks if one.name == name]
    assert not check.passed and check.severity == "inadmissible" and "val/loss of none seed 1" in check.found
    assert all(one.name != name for one in decide(registration, evidence).checks)


def test_a_run_that_diverged_is_not_asked_for_its_level() -> None:
    study = small_study(stable={"reached": {"val/loss": 2.5, "by": 40}})
    _, evidence = make_evidence(study, diverged=(("none", 2),))
    found = judge_stability(study, evidence)[0]
    assert not found.stable and found.diverged == (2,) and not found.not_reached
