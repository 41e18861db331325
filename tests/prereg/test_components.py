"""Component ablations: what is written from the parts of a system, what is refused, and a study from file to report."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evidence_factory import make_evidence, make_registration
from scipy import stats
from study_samples import PARTS, components_document, of_components

from ablate.judge.decide import decide
from ablate.judge.design.assumptions import assumed
from ablate.judge.design.scenarios import TrueEffects
from ablate.judge.design.simulate import SimulatedScenario, simulate
from ablate.judge.verdict import Decision, Finding
from ablate.reporting import markdown
from ablate.reporting.blocks import Table
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.components import components_section
from prereg.documents.facts import StudyFacts
from prereg.documents.forms import osf
from prereg.documents.page import sections
from prereg.errors import RegistrationError, SpecError
from prereg.registry.amendments import reached
from prereg.registry.history import differing_fields
from prereg.registry.registration import promise_sha256, read_lock
from prereg.study.load import load_study
from prereg.study.spec import Study, study_from_document


def refusal(written: dict[str, Any]) -> SpecError:
    with pytest.raises(SpecError) as error:
        study_from_document(written)
    assert error.value.required, error.value
    return error.value


def test_leave_one_out_compares_the_whole_system_with_each_system_without_a_part() -> None:
    study = of_components()
    assert study.baseline == "full"
    assert study.variants == {
        "full": {"model.activation": "swiglu", "model.qk_norm": True},
        "no_rotary": {"model.positions": "learned", "model.activation": "swiglu", "model.qk_norm": True},
        "no_swiglu": {"model.qk_norm": True},
        "no_qk_norm": {"model.activation": "swiglu", "model.qk_norm": False},
    }
    claim = study.claims["rotary"]
    assert (claim.verb, claim.by, claim.weights) == ("raises_by", 0.02, {"no_rotary": 1.0, "full": -1.0})
    assert study.families == {"primary": ("rotary", "swiglu", "qk_norm")}
    assert study.components is not None
    reasons = study.components.reasons()
    assert set(reasons) == set(study.arms) and "positions that go on" in reasons["no_rotary"]
    every, outcomes = dict.fromkeys(study.arms, True), dict.fromkeys(PARTS, "supported")
    assert study.rule.decide(outcomes, every).verdict == "every part matters"  # type: ignore[arg-type]
    mixed = outcomes | {"rotary": "refuted"}
    assert study.rule.decide(mixed, every).verdict == "some part can go"  # type: ignore[arg-type]
    none = dict.fromkeys(PARTS, "inconclusive")
    assert study.rule.decide(none, every).verdict == "inconclusive"  # type: ignore[arg-type]


def test_add_one_in_compares_each_part_alone_with_the_plain_system() -> None:
    study = of_components("add_one_in", role="secondary")
    assert list(study.variants) == ["plain", "with_rotary", "with_swiglu", "with_qk_norm"]
    assert study.variants["with_rotary"] == {"model.qk_norm": False}
    assert study.baseline == "plain" and set(study.families) == {"secondary"}
    claim = study.claims["swiglu"]
    assert (claim.verb, claim.weights) == ("lowers_by", {"with_swiglu": 1.0, "plain": -1.0})


def test_a_factorial_runs_every_combination_and_claims_averages_over_the_other_parts() -> None:
    study = of_components("factorial", interactions=["swiglu*rotary"])
    assert len(study.arms) == 8 and {"plain", "full", "with_rotary-qk_norm"} < set(study.arms)
    assert list(study.hypotheses) == [*PARTS, "rotary_x_swiglu"]
    with_it = {arm for arm, weight in study.claims["rotary"].weights.items() if weight == 0.25}
    assert with_it == {"with_rotary", "with_rotary-swiglu", "with_rotary-qk_norm", "full"}
    assert sorted(study.claims["rotary"].weights.values()) == [-0.25] * 4 + [0.25] * 4
    joint = study.claims["rotary_x_swiglu"]
    assert {arm for arm, weight in joint.weights.items() if weight > 0} == {
        "plain", "with_rotary-swiglu", "with_qk_norm", "full",
    }  # fmt: skip
    assert joint.verb == "changes"


@pytest.mark.parametrize(
    ("metric", "better", "word", "verb"),
    [
        ("val/accuracy", None, "worsens", "lowers"),
        ("val/accuracy", None, "improves", "raises"),
        ("val/loss", None, "improves", "lowers"),
        ("my/score", "higher", "worsens", "lowers"),
    ],
)
def test_worse_and_better_follow_the_metric(metric: str, better: str | None, word: str, verb: str) -> None:
    trainer = {"trainer": "command", "command": ["train"], "base": {"a": 1, "b": 1}}
    parts = {"one": {"without": {"a": 0}}, "two": {"without": {"b": 0}}}
    block = {"claim": f"{word} {metric}", "smallest": 0.1} | ({"better": better} if better else {})
    study = study_from_document(components_document(parts=parts, **block) | trainer | {"measure": {}})
    assert study.claims["one"].verb == verb


def test_own_arms_and_claims_stand_next_to_those_that_are_written() -> None:
    own = {
        "variants": {"wide": {"model.width": 32}},
        "hypotheses": {
            "wide": {"claim": "wide lowers val/loss", "smallest": 0.02, "role": "secondary"},
            "accuracy": {"claim": "with:rotary does_not_worsen val/accuracy than without:rotary", "smallest": 0.01,
                         "role": "guardrail"},
        },
        "decision": [{"verdict": "keep rotary", "when": "supported(rotary) and supported(accuracy)"},
                     {"verdict": "inconclusive"}],
    }  # fmt: skip
    study = of_components("factorial", over=own)
    assert len(study.arms) == 9 and list(study.hypotheses)[-2:] == ["wide", "accuracy"]
    assert study.claims["accuracy"].weights == study.claims["rotary"].weights
    assert study.claims["wide"].weights == {"wide": 1.0, "plain": -1.0}


def test_a_written_rule_has_no_line_that_no_data_can_reach() -> None:
    assert [line.verdict for line in of_components(claim="changes val/loss", smallest=0.0).decision] == [
        "every part matters", "some part matters", "inconclusive",
    ]  # fmt: skip
    assert len(of_components(claim="changes val/loss", smallest=0.1).decision) == 4
    assert of_components(claim="does_not_worsen val/loss", smallest=0.1).decision[0].verdict == "each part alone can go"
    assert (
        of_components("add_one_in", claim="raises val/loss", smallest=0.1).decision[0].verdict
        == "every claim is supported"
    )


def test_a_claim_about_a_group_of_arms_is_plain_yaml(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    written = json.dumps(components_document("factorial") | {"hypotheses": {"h": "CLAIM"}})
    claim = "{claim: with:rotary lowers train/loss than without:rotary, smallest: 0.1}"
    path.write_text(written.replace('"CLAIM"', claim))
    assert load_study(path).study.claims["h"].weights == load_study(path).study.claims["rotary"].weights


def test_the_schema_asks_for_components_or_for_what_they_write() -> None:
    schema = Study.model_json_schema(mode="validation")
    assert not {"baseline", "hypotheses", "decision"} & set(schema["required"])
    assert {"required": ["components"]} in schema["anyOf"]
    assert set(schema["$defs"]["Part"]["properties"]) == {"without", "with", "why"}


def test_a_study_with_components_holds_both() -> None:
    study = of_components("factorial")
    whole = study.model_dump(mode="json")
    assert whole["components"]["parts"]["swiglu"] == {"without": {}, "with": {"model.activation": "swiglu"}, "why": ""}
    assert len(whole["variants"]) == 8 and set(whole["hypotheses"]) == {*PARTS}
    assert Study.model_validate_json(json.dumps(whole)) == study == study_from_document(whole)
    plain = {name: value for name, value in whole.items() if name != "components"}
    assert "is not a variant" in refusal(plain).found  # a claim about a group of arms needs the parts


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("variants", "no_rotary", "model.positions"), "none"),
        (("hypotheses", "rotary", "smallest"), 0.01),
        (("hypotheses", "rotary", "role"), "secondary"),
        (("components", "parts", "rotary", "without", "model.positions"), "none"),
        (("components", "claim"), "worsens val/loss by at least 0.01"),
    ],
)
def test_neither_side_of_a_lock_can_be_edited_without_the_other(
    tmp_path: Path, path: tuple[str, ...], value: Any
) -> None:
    registration = make_registration(of_components())
    lock = json.loads(registration.model_dump_json(exclude={"lock_sha256", "rewordings"}))

    def written(study: dict[str, Any]) -> Path:
        edited = lock | {"study": study, "sha256": promise_sha256({"study": study, "corpus": lock["corpus"]})}
        target = tmp_path / "own.lock.json"
        target.write_text(json.dumps(edited))
        return target

    assert read_lock(written(lock["study"])).study == registration.study
    edited = deepcopy(lock["study"])
    inner = edited
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(RegistrationError, match="another one of that name"):
        read_lock(written(edited))


def test_an_amended_design_touches_every_claim() -> None:
    parts = {name: part | {"why": "because"} for name, part in PARTS.items()}
    study = of_components("factorial", parts=parts)
    changed = reached(study, differing_fields(of_components("factorial"), study))
    assert all(names == set(study.hypotheses) for names, _, _ in changed.values()) and changed


def test_the_documents_name_the_design_and_the_arms() -> None:
    facts = StudyFacts(of_components("factorial"))
    page = sections(facts)
    title = "full factorial 2^3 of 3 parts"
    assert title in page["Arms"]
    assert "with rotary and qk_norm, without swiglu" in page["Arms"]
    assert "the mean of the arms with rotary" in page["Hypotheses"]
    form = {field.key: field.text for field in osf(facts).fields}
    assert title in form["design"] and '"with_rotary-swiglu"' in form["manipulated"]


def judged(study: Study, effects: dict[str, float]) -> tuple[Decision, ReportContext]:
    registration, evidence = make_evidence(study, effects={"val/loss": effects}, sd=0.004)
    decision = decide(registration, evidence)
    return decision, ReportContext(decision, registration, evidence, "0" * 64, "2026-01-02T03:04:05+00:00")


def test_the_table_of_parts_has_the_numbers_of_the_findings() -> None:
    study = of_components("leave_one_out")
    decision, context = judged(study, {"no_rotary": 0.3, "no_swiglu": 0.001, "no_qk_norm": 0.021})
    assert decision.verdict == "some part can go"
    section = components_section(context)
    assert section is not None
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    heads = [column.name for column in table.columns]
    rows = {row[0]: dict(zip(heads, row, strict=True)) for row in table.rows}
    assert [rows[part]["Outcome"] for part in PARTS] == ["supported", "refuted", "inconclusive"]
    page = markdown.render_markdown(context)
    for finding in decision.findings:
        assert rows[finding.hypothesis]["n"] == str(finding.n) == "5"
        low, high = re.findall(r"[+−][\d.]+", rows[finding.hypothesis]["Interval"])[:2]
        # The sentence of the finding has the same interval, without signs where it says which way.
        assert f"{low} to {high}" in page or f"{low[1:]} to {high[1:]}" in page, (low, high)
    assert rows["rotary"]["Arm"] == "no_rotary" and "positions that go on" in rows["rotary"]["Reason"]


def test_interactions_have_the_means_that_they_come_from() -> None:
    study = of_components("factorial", interactions="all")
    effects = dict.fromkeys(study.arms, 0.0)
    effects |= {arm: -0.4 for arm in study.arms if "rotary" in arm and "swiglu" in arm} | {"full": -0.4}
    decision, context = judged(study, effects)
    found = {one.hypothesis: one for one in decision.findings}
    assert found["rotary_x_swiglu"].outcome == "supported" and found["rotary"].outcome == "supported"
    estimate = found["rotary_x_swiglu"].estimate
    assert estimate is not None and estimate.difference == pytest.approx(-0.2, abs=0.01)
    section = components_section(context)
    assert section is not None
    tables = [block for block in section.blocks if isinstance(block, Table)]
    (row,) = [row for row in tables[1].rows if row[0] == "rotary*swiglu"]
    neither, first, second, both = map(float, row[1:5])
    assert (both - second) - (first - neither) == pytest.approx(2 * estimate.difference, abs=0.01)
    assert components_section(ReportContext(decision.model_copy(update={"findings": ()}), context.registration,
                                            context.evidence, "0" * 64, context.generated_at)) is None  # fmt: skip


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
    scenario: SimulatedScenario = simulate(study, TrueEffects("all", effects), assumed(study), n_sims=n_sims, seed=[3])
    return min(one.share for one in scenario.supported)


def test_a_factorial_finds_more_than_one_part_at_a_time_with_the_same_runs() -> None:
    # docs/designs.md: three parts, 64 runs, effects of one SD of an arm.
    claim = {"claim": "improves val/loss", "smallest": 1.0}
    factorial = power_of(lettered("ABC", "factorial", n_seeds=8, **claim), 1.0, 4_000)
    single = power_of(lettered("ABC", "add_one_in", n_seeds=16, **claim), 1.0, 4_000)
    assert factorial == pytest.approx(0.89, abs=0.02) and single == pytest.approx(0.66, abs=0.02)
