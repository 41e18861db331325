"""Effects of factorials and fractions against published examples, and the error rates of component ablations."""

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
from prereg.study.designs.fractions import Fraction, read_generators, smallest_fraction
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
# Montgomery, example 8.1: filtration rate, the half fraction D = ABC of example 6.2. One value each.
FILTRATION = {"(1)": 45, "ad": 100, "bd": 45, "ab": 65, "cd": 75, "ac": 60, "bc": 80, "abcd": 96}
# Montgomery, example 8.7: eye focus time, 2^(7-4) with D = AB, E = AC, F = BC, G = ABC. One value each.
FOCUS = {"def": 85.5, "afg": 75.1, "beg": 93.2, "abd": 145.4, "cdg": 83.7, "ace": 77.6, "bcf": 95.0, "abcdefg": 141.8}


def replicated(values: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """One value as the mean of two seeds, which lie apart in the first arm so that there is some spread."""
    first = next(iter(values))
    return {name: (value + (name == first), value - (name == first)) for name, value in values.items()}


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


def test_a_half_fraction_has_the_published_effects_and_alias_chains() -> None:
    study = lettered("ABCD", "fractional", generators={"D": "A*B*C"}, interactions="all")
    assert study.components is not None and study.components.fraction is not None
    assert study.components.fraction.text() == "2^(4-1), resolution IV"
    findings = found(study, "ABCD", replicated(FILTRATION))
    published = {"A": 19.0, "B": 1.5, "C": 14.0, "D": 16.5, "A_x_B": -1.0, "A_x_C": -18.5, "A_x_D": 19.0}
    assert {name: difference(one) for name, one in findings.items()} == pytest.approx(published)
    aliases = {name: list(study.components.aliases(effect)) for name, effect in study.components.effects().items()}
    assert aliases["A"] == [("B", "C", "D")] and aliases["D"] == [("A", "B", "C")]
    assert aliases["A_x_C"] == [("B", "D")] and aliases["A_x_D"] == [("B", "C")]
    assert "the contrast estimates A*C + B*D" in findings["A_x_C"].sentence


def test_a_sixteenth_fraction_has_the_published_effects_and_alias_chains() -> None:
    generators = {"D": "A*B", "E": "A*C", "F": "B*C", "G": "A*B*C"}
    study = lettered("ABCDEFG", "fractional", generators=generators)
    assert study.components is not None
    findings = found(study, "ABCDEFG", replicated(FOCUS))
    published = {"A": 20.63, "B": 38.38, "C": -0.28, "D": 28.88, "E": -0.28, "F": -0.63, "G": -2.43}
    assert {name: difference(one) for name, one in findings.items()} == pytest.approx(published, abs=0.006)
    # Montgomery, example 8.7: A = BD = CE = FG, B = AD = CF = EG, and so on, higher orders left out.
    chains = {"A": "BD CE FG", "B": "AD CF EG", "C": "AE BF DG", "D": "AB CG EF", "E": "AC BG DF", "F": "AG BC DE"}
    for part, chain in chains.items():
        assert ["".join(other) for other in study.components.aliases((part,))] == chain.split()


@pytest.mark.parametrize(
    ("parts", "resolution", "generators"),
    [
        # Montgomery, table 8.14, up to the order of the letters: fractions of the highest resolution.
        ("ABCD", 4, {"D": "ABC"}),
        ("ABCDE", 3, {"D": "AB", "E": "AC"}),
        ("ABCDE", 5, {"E": "ABCD"}),
        ("ABCDEFG", 3, {"D": "AB", "E": "AC", "F": "BC", "G": "ABC"}),
        ("ABCDEFG", 4, {"E": "ABC", "F": "ABD", "G": "ACD"}),
    ],
)
def test_the_smallest_fraction_of_a_resolution_is_the_one_in_tables(
    parts: str, resolution: int, generators: dict[str, str]
) -> None:
    fraction = smallest_fraction(tuple(parts), resolution)
    assert fraction is not None and fraction.resolution == resolution
    assert {part: "".join(product) for part, product, _ in fraction.generators} == generators


def test_a_quarter_fraction_has_the_published_words() -> None:
    # Box, Hunter and Hunter (2005), section 6: 2^(5-2) with D = AB, E = AC has I = ABD = ACE = BCDE.
    fraction = read_generators("ABCDE", {"D": "A*B", "E": "A*C"})
    assert {"".join(sorted(word)) for word in fraction.words()} == {"ABD", "ACE", "BCDE"}
    assert fraction.aliases(("A",)) == {("B", "D"): 1, ("C", "E"): 1, ("A", "B", "C", "D", "E"): 1}
    turned = read_generators("ABC", {"C": "-A*B"})
    assert turned.aliases(("A",)) == {("B", "C"): -1}
    assert set(turned.runs()).isdisjoint(read_generators("ABC", {"C": "A*B"}).runs())


@pytest.mark.parametrize("resolution", [3, 4, 5])
@pytest.mark.parametrize("n_parts", [5, 6, 8])
def test_contrasts_of_a_fraction_are_orthogonal_but_for_aliases(n_parts: int, resolution: int) -> None:
    parts = tuple("ABCDEFGH"[:n_parts])
    fraction = smallest_fraction(parts, resolution)
    assert fraction is not None and (fraction.resolution or 0) >= resolution
    runs = list(fraction.runs())
    assert len(set(runs)) == len(runs) == 2 ** len(fraction.free)
    signs = np.array([[1 if part in run else -1 for part in parts] for run in runs])
    assert (signs.T @ signs == len(runs) * np.eye(n_parts)).all()
    for effect, sign in ((other, s) for part in parts for other, s in fraction.aliases((part,)).items()):
        product = np.prod(signs[:, [parts.index(one) for one in effect]], axis=1)
        assert any((product == sign * signs[:, at]).all() for at in range(n_parts)), effect
    assert list(Fraction(parts).runs()) != runs


DESIGNS: dict[str, tuple[str, dict[str, Any]]] = {
    "leave_one_out": ("ABCD", {"claim": "worsens val/loss by at least 1.0"}),
    "add_one_in": ("ABCD", {"claim": "improves val/loss"}),
    "factorial": ("ABC", {"claim": "improves val/loss", "interactions": "all"}),
    "fractional": ("ABCD", {"claim": "improves val/loss", "generators": {"D": "A*B*C"}}),
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


@pytest.mark.simulation
@pytest.mark.parametrize("design", DESIGNS)
def test_the_family_of_parts_keeps_its_error_closely(design: str) -> None:
    # Standard error .0005 at .05.
    worst = family_errors(design, 200_000)
    assert worst["supported"] < 0.052 and worst["refuted"] < 0.052, worst


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
