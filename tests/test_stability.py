"""Claims about loss spikes and stable variants."""

from __future__ import annotations

import numpy as np
import pytest
from evidence_factory import make_evidence, small_study, with_losses

from ablate.judge.stability import judge_stability, spike_places


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


def test_no_step_is_judged_before_the_window_is_full() -> None:
    losses = noisy(40)
    losses[19] += 5.0
    assert spike_places(losses, above=6.0, window=20).size == 0
    losses[20] += 5.0
    assert 20 in spike_places(losses, above=6.0, window=20)
    assert spike_places(noisy(20), above=0.1, window=20).size == 0


def test_the_step_itself_is_not_in_its_window_and_later_steps_recover() -> None:
    losses = noisy(200)
    losses[100] += 3.0
    assert spike_places(losses, above=6.0, window=20).tolist() == [100]


def test_a_window_whose_mad_is_zero_is_judged_by_the_mean_deviation() -> None:
    # 15 equal values and 5 others: MAD 0, mean absolute deviation not (Iglewicz and Hoaglin 1993).
    window = np.array([1.0] * 15 + [1.1] * 5)
    limit = 1.0 + 6.0 * 1.2533 * np.abs(window - 1.0).mean()
    assert spike_places(np.append(window, limit - 1e-6), above=6.0, window=20).size == 0
    assert spike_places(np.append(window, limit + 1e-6), above=6.0, window=20).tolist() == [20]


def test_after_a_constant_window_any_rise_is_a_spike_and_a_standstill_is_not() -> None:
    assert spike_places(np.ones(30), above=6.0, window=20).size == 0
    assert spike_places(np.append(np.ones(20), 1.01), above=6.0, window=20).tolist() == [20]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_is_a_spike(bad: float) -> None:
    losses = noisy(60)
    losses[30] = bad
    assert spike_places(losses, above=6.0, window=20).tolist() == [30]
    short = noisy(10)
    short[3] = bad
    assert spike_places(short, above=6.0, window=20).tolist() == [3]


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
