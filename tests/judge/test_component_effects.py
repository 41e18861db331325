"""Effects of factorials against published examples, and the error rates of component ablations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from evidence_factory import make_evidence
from scipy import stats

from ablate.judge.decide import decide
from ablate.judge.design.assumptions import assumed
from ablate.judge.design.scenarios import TrueEffects
from ablate.judge.design.simulate import Scenario, simulate
from ablate.judge.verdict import Finding
from prereg.study.spec import Study, study_from_document

OVERRIDES: tuple[dict[str, Any], ...] = (
    {"model.qk_norm": True},
    {"model.bias": False},
    {"model.tie_embeddings": False},
    {"model.norm": "post"},
    {"model.positions": "rope"},
    {"model.embedding_norm": "rmsnorm"},
    {"model.dropout": 0.1},
)


def lettered(letters: str, design: str, n_seeds: int = 2, sd: float = 1.0, **block: Any) -> Study:
    """A study of parts that are called by letters, as the factors of a textbook are."""
    parts = {letter: {"with": over} for letter, over in zip(letters, OVERRIDES, strict=False)}
    claim = {"claim": "changes val/loss", "smallest": 1.0}
    return study_from_document(
        {
            "study": "small",
            "title": "Parts by letters",
            "base": {"budget": {"steps": 4, "batch": 4}, "model": {"layers": 1, "width": 16, "heads": 2, "context": 8}},
            "seeds": list(range(1, n_seeds + 1)),
            "measure": {"every": 4},
            "components": {"design": design, "parts": parts, **claim, **block},
            "assume": {"metrics": {"val/loss": {"sd": sd, "correlation": 0.0}}},
        }
    )


def arm_of(treatment: str, letters: str) -> str:
    """The arm of a treatment combination in the usual notation: (1), a, b, ab."""
    present = [letter for letter in letters if letter.lower() in treatment]
    return "plain" if not present else "full" if len(present) == len(letters) else f"with_{'-'.join(present)}"


def found(study: Study, letters: str, values: Mapping[str, Sequence[float]]) -> dict[str, Finding]:
    """The findings of the judge on published values: a sequence of replicates by treatment combination."""
    finals = {
        (arm_of(treatment, letters), seed): value
        for treatment, replicates in values.items()
        for seed, value in enumerate(replicates, start=1)
    }
    assert {arm for arm, _ in finals} == set(study.arms)
    registration, evidence = make_evidence(study, finals={"val/loss": finals})
    return {one.hypothesis: one for one in decide(registration, evidence).findings}


def difference(finding: Finding) -> float:
    assert finding.estimate is not None and finding.estimate.difference is not None, finding.notes
    return finding.estimate.difference


# Montgomery, Design and Analysis of Experiments (8th ed. 2013), example 6.1: etch rate, A gap, B flow, C power, n = 2.
PLASMA = {
    "(1)": (550, 604), "a": (669, 650), "b": (633, 601), "ab": (642, 635),
    "c": (1037, 1052), "ac": (749, 868), "bc": (1075, 1063), "abc": (729, 860),
}  # fmt: skip
# Box, Hunter and Hunter, Statistics for Experimenters (2nd ed. 2005), table 5.2: yield of a pilot plant, two runs,
# whose order within a combination means nothing.
PILOT = {
    "(1)": (61, 59), "t": (74, 70), "c": (50, 58), "tc": (69, 67),
    "k": (50, 54), "tk": (81, 85), "ck": (46, 44), "tck": (79, 81),
}  # fmt: skip


@pytest.mark.parametrize(
    ("letters", "values", "published"),
    [
        (
            "ABC",
            PLASMA,
            {"A": -101.625, "B": 7.375, "C": 306.125, "A_x_B": -24.875, "A_x_C": -153.625, "B_x_C": -2.125},
        ),
        ("TCK", PILOT, {"T": 23.0, "C": -5.0, "K": 1.5, "T_x_C": 1.5, "T_x_K": 10.0, "C_x_K": 0.0}),
    ],
)
def test_a_factorial_has_the_published_effects_and_the_paired_t_of_their_contrasts(
    letters: str, values: dict[str, Sequence[float]], published: dict[str, float]
) -> None:
    study = lettered(letters, "factorial", interactions="all")
    findings = found(study, letters, values)
    assert {name: difference(one) for name, one in findings.items()} == pytest.approx(published)
    for name, finding in findings.items():
        factors = name.split("_x_")
        signs = {t: np.prod([1 if one.lower() in t else -1 for one in factors]) for t in values}
        sides = [
            [np.mean([values[t][seed] for t in values if signs[t] == sign]) for seed in (0, 1)] for sign in (1, -1)
        ]
        assert finding.estimate is not None
        assert finding.estimate.p == pytest.approx(stats.ttest_rel(*sides).pvalue)
        # An effect is twice the coefficient of a regression on signs (Montgomery, section 6.2).
        rows = [(np.array(list(signs.values()), float), np.array([values[t][seed] for t in values])) for seed in (0, 1)]
        slopes = [2.0 * stats.linregress(x, y).slope for x, y in rows]
        assert [pair.difference for pair in finding.pairs] == pytest.approx(slopes)


DESIGNS: dict[str, tuple[str, dict[str, Any]]] = {
    "leave_one_out": ("ABCD", {"claim": "worsens val/loss by at least 1.0"}),
    "add_one_in": ("ABCD", {"claim": "improves val/loss"}),
    "factorial": ("ABC", {"claim": "improves val/loss", "interactions": "all"}),
}


def family_errors(design: str, n_sims: int) -> dict[str, float]:
    """The largest chance of any false 'supported' and any false 'refuted' over all parts, at the borders of both nulls,
    with all parts there and with half of them far beyond it."""
    letters, block = DESIGNS[design]
    study = lettered(letters, design, n_seeds=5, **block)
    sign = {name: claim.direction or 1 for name, claim in study.claims.items()}
    margin = study.claims["A"].by is not None
    worst = {"supported": 0.0, "refuted": 0.0}
    for kind, border in (("supported", 1.0 if margin else 0.0), ("refuted", 1.0)):
        for far in (0, len(letters) // 2):
            # Beyond the border a claim is true where support is tested, and false where refutation is.
            beyond = 40.0 if kind == "supported" else -40.0
            effects = {
                name: sign[name]
                * (beyond if at < far else border * (1.0 - 1e-9 if kind == "supported" else 1.0 + 1e-9))
                for at, name in enumerate(study.hypotheses)
            }
            scenario = simulate(study, TrueEffects("border", effects), assumed(study), n_sims=n_sims, seed=[7, far])
            (chance,) = scenario.false_supported if kind == "supported" else scenario.false_refuted
            worst[kind] = max(worst[kind], chance.share)
    return worst


@pytest.mark.parametrize("design", DESIGNS)
def test_the_family_of_parts_keeps_its_error(design: str) -> None:
    worst = family_errors(design, 3_000)
    assert 0.0 < worst["supported"] < 0.065 and 0.0 < worst["refuted"] < 0.065, worst


def power_of(study: Study, effect: float, n_sims: int) -> float:
    """The least chance over parts that a part's claim is supported, all parts having the same effect."""
    effects = {name: (claim.direction or 1) * effect for name, claim in study.claims.items()}
    scenario: Scenario = simulate(study, TrueEffects("all", effects), assumed(study), n_sims=n_sims, seed=[3])
    return min(one.share for one in scenario.supported)


def test_a_factorial_finds_more_than_one_part_at_a_time_with_the_same_runs() -> None:
    # docs/designs.md: three parts, 64 runs, effects of one SD of an arm.
    claim = {"claim": "improves val/loss", "smallest": 1.0}
    factorial = power_of(lettered("ABC", "factorial", n_seeds=8, **claim), 1.0, 4_000)
    single = power_of(lettered("ABC", "add_one_in", n_seeds=16, **claim), 1.0, 4_000)
    assert factorial == pytest.approx(0.89, abs=0.02) and single == pytest.approx(0.66, abs=0.02)
