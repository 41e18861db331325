"""The deciding numbers by pingouin, scipy and statsmodels: equal to ours wherever one computes the registered test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_factory import make_evidence, one_claim, small_study
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.judge import decide as deciding
from ablate.judge.audit.audit import admissible
from ablate.judge.findings import JudgedStudy, judge_hypotheses, judge_study
from ablate.judge.recompute import check_numbers, recompute
from ablate.judge.verdict import Finding
from prereg.study.spec import Study

VERBS = ("lowers", "raises", "changes", "does_not_worsen", "does_not_change", "lowers val/loss by at least")


def findings(study: Study, seed: int, shift: float, spread: float = 0.01) -> tuple[Finding, ...]:
    """Findings over values drawn for every arm and seed."""
    rng = np.random.default_rng(seed)
    values: dict[str, dict[tuple[str, int], float]] = {"val/loss": {}, "val/accuracy": {}}
    for metric, level in (("val/loss", 2.0), ("val/accuracy", 0.4)):
        for one in study.seeds:
            for arm in study.arms:
                values[metric][arm, one] = level + (arm != study.baseline) * shift + spread * float(rng.normal())
    return judge_hypotheses(study, values, rng_seed=seed)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.sampled_from(["paired_t", "wilcoxon", "sign_flip"]),
    st.sampled_from(VERBS),
    st.sampled_from([-0.05, -0.02, 0.0, 0.01, 0.04]),
    st.integers(3, 12),
    st.integers(0, 10**6),
)
def test_every_number_of_a_claim_agrees(test: str, verb: str, shift: float, n: int, seed: int) -> None:
    by_margin = verb.endswith("at least")
    claim = f"layernorm {verb} 0.02" if by_margin else f"layernorm {verb} val/loss"
    hypothesis = {"claim": claim} if by_margin else {"claim": claim, "smallest": 0.02}
    study = one_claim(claim, seeds=n, hypothesis=hypothesis, analysis={"test": test})
    found = findings(study, seed, shift)
    redone = recompute(study, found)
    names = {one.name for one in redone.numbers}
    assert {"p", "p_support", "p_refute"} <= names or test == "sign_flip", (names, redone.not_covered)
    if test == "paired_t":
        assert {"interval, low", "interval, high", "standard error", "d_z", "cliff_delta"} <= names
    assert check_numbers(redone) == (), check_numbers(redone)[0].found
    assert f"{len(redone.numbers)} numbers were recomputed by " in redone.summary and "scipy " in redone.summary
    assert ("pingouin" in redone.summary) == (test == "wilcoxon"), "libraries that computed nothing are not named"


@pytest.mark.slow
@given(st.integers(0, 10**6))
@settings(max_examples=15)
def test_holm_over_two_roles_agrees(seed: int) -> None:
    study = small_study()
    redone = recompute(study, findings(study, seed, -0.015))
    assert sum(one.name.endswith("adjusted") for one in redone.numbers) == 8
    assert check_numbers(redone) == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.model_copy(update={"p_support": one.p_support * (1 + 1e-6)}),
        lambda one: one.model_copy(update={"p_refute_adjusted": one.p_refute_adjusted + 1e-6}),
        lambda one: one.model_copy(update={"estimate": one.estimate.model_copy(update={"difference": 0.5})}),
        lambda one: one.model_copy(update={"pairs": (*one.pairs[:-1], one.pairs[-1].model_copy(update={"left": 2.5}))}),
    ],
)
def test_a_number_that_differs_is_named(change: object) -> None:
    study = small_study()
    first, *others = findings(study, 3, -0.015)
    [check] = check_numbers(recompute(study, (change(first), *others)))  # type: ignore[operator]
    assert check.severity == "inadmissible" and first.hypothesis in check.found
    assert not admissible((check,))


def test_what_no_library_computes_is_named_and_never_failed() -> None:
    study = one_claim(seeds=9, analysis={"test": "bootstrap_t"})
    redone = recompute(study, findings(study, 1, -0.03))
    assert redone.not_covered == ("h",) and check_numbers(redone) == ()
    assert "Not covered: h" in redone.summary
    ties = one_claim(analysis={"test": "wilcoxon"})
    values = {(arm, seed): 2.0 - 0.1 * (arm == "layernorm") for arm in ties.arms for seed in ties.seeds}
    assert recompute(ties, judge_hypotheses(ties, {"val/loss": values})).not_covered == ("h",)


@pytest.mark.slow
@pytest.mark.parametrize("test", ["paired_t", "wilcoxon", "sign_flip"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_rounded_values_of_any_size_raise_no_false_alarm(test: str, scale: float) -> None:
    rng = np.random.default_rng(11)
    for _ in range(12):
        n, decimals = int(rng.integers(3, 12)), int(rng.integers(1, 4))
        study = one_claim("layernorm does_not_change val/loss", 0.02 * scale, seeds=n, analysis={"test": test})
        values = {
            (arm, seed): scale * round(2.0 + 0.05 * float(rng.normal()) + 0.03 * (arm != "none"), decimals)
            for arm in study.arms
            for seed in study.seeds
        }
        assert check_numbers(recompute(study, judge_hypotheses(study, {"val/loss": values}))) == ()


def test_a_wrong_p_of_ours_gives_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    registration, evidence = make_evidence(small_study())
    assert deciding.decide(registration, evidence).status != "inadmissible"

    def wrong(*words: object, **named: object) -> JudgedStudy:
        judged = judge_study(*words, **named)  # type: ignore[arg-type]
        first, *others = judged.findings
        return replace(judged, findings=(first.model_copy(update={"p_support": 0.5}), *others))

    monkeypatch.setattr(deciding, "judge_study", wrong)
    decision = deciding.decide(registration, evidence)
    assert decision.status == "inadmissible" and decision.verdict is None
    assert "independent computations of the deciding numbers agree" in decision.because
