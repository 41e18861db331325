"""Component ablations: what is written from the parts of a system, what is refused, and a study from file to report."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from evidence_factory import make_evidence, make_registration
from own_trainer import OwnHouse
from typer.testing import CliRunner

from ablate.cli import app
from ablate.judge.decide import decide
from ablate.judge.verdict import Decision
from ablate.reporting import markdown
from ablate.reporting.blocks import Table
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.components import components_section
from prereg.documents.forms import osf
from prereg.documents.page import sections
from prereg.documents.source import Source
from prereg.errors import RegistrationError, SpecError
from prereg.registry.amendments import reached
from prereg.registry.history import differing_fields
from prereg.registry.registration import promise_sha256, read_lock
from prereg.study.load import load_study
from prereg.study.spec import Study, study_from_document

PARTS: dict[str, Any] = {
    "rotary": {"without": {"model.positions": "learned"}, "why": "positions that go on"},
    "swiglu": {"with": {"model.activation": "swiglu"}},
    "qk_norm": {"without": {"model.qk_norm": False}, "with": {"model.qk_norm": True}},
}


def document(design: str = "leave_one_out", *, parts: dict[str, Any] | None = None, **block: Any) -> dict[str, Any]:
    claim = "worsens val/loss by at least 0.02" if design == "leave_one_out" else "improves val/loss by at least 0.02"
    return {
        "study": "own",
        "title": "What each part is worth",
        "base": {
            "model": {"layers": 1, "width": 16, "heads": 2, "context": 8, "positions": "rope"},
            "budget": {"steps": 4, "batch": 4},
        },
        "seeds": [1, 2, 3, 4, 5],
        "measure": {"every": 4},
        "components": {"design": design, "parts": PARTS if parts is None else parts, "claim": claim} | block,
    }


def made(design: str = "leave_one_out", *, over: dict[str, Any] | None = None, **block: Any) -> Study:
    return study_from_document(document(design, **block) | (over or {}))


def refusal(written: dict[str, Any]) -> SpecError:
    with pytest.raises(SpecError) as error:
        study_from_document(written)
    assert error.value.required, error.value
    return error.value


def test_leave_one_out_compares_the_whole_system_with_each_system_without_a_part() -> None:
    study = made()
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
    study = made("add_one_in", role="secondary")
    assert list(study.variants) == ["plain", "with_rotary", "with_swiglu", "with_qk_norm"]
    assert study.variants["with_rotary"] == {"model.qk_norm": False}
    assert study.baseline == "plain" and set(study.families) == {"secondary"}
    claim = study.claims["swiglu"]
    assert (claim.verb, claim.weights) == ("lowers_by", {"with_swiglu": 1.0, "plain": -1.0})


def test_a_factorial_runs_every_combination_and_claims_averages_over_the_other_parts() -> None:
    study = made("factorial", interactions=["swiglu*rotary"])
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
    study = study_from_document(document(parts=parts, **block) | trainer | {"measure": {}})
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
    study = made("factorial", over=own)
    assert len(study.arms) == 9 and list(study.hypotheses)[-2:] == ["wide", "accuracy"]
    assert study.claims["accuracy"].weights == study.claims["rotary"].weights
    assert study.claims["wide"].weights == {"wide": 1.0, "plain": -1.0}


def test_a_written_rule_has_no_line_that_no_data_can_reach() -> None:
    assert [line.verdict for line in made(claim="changes val/loss", smallest=0.0).decision] == [
        "every part matters", "some part matters", "inconclusive",
    ]  # fmt: skip
    assert len(made(claim="changes val/loss", smallest=0.1).decision) == 4
    assert made(claim="does_not_worsen val/loss", smallest=0.1).decision[0].verdict == "each part alone can go"
    assert made("add_one_in", claim="raises val/loss", smallest=0.1).decision[0].verdict == "every claim is supported"


def test_a_claim_about_a_group_of_arms_is_plain_yaml(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    written = json.dumps(document("factorial") | {"hypotheses": {"h": "CLAIM"}})
    claim = "{claim: with:rotary lowers train/loss than without:rotary, smallest: 0.1}"
    path.write_text(written.replace('"CLAIM"', claim))
    assert load_study(path).study.claims["h"].weights == load_study(path).study.claims["rotary"].weights


@pytest.mark.parametrize(
    ("change", "place", "found"),
    [
        ({"parts": {"rotary": PARTS["rotary"]}}, "components.parts", "1 part"),
        ({"parts": PARTS | {"idle": {}}}, "components.parts.idle", "changes nothing"),
        (
            {"parts": PARTS | {"again": {"without": {"model.positions": "none"}}}},
            "components.parts.again",
            "both change 'model.positions'",
        ),
        ({"parts": PARTS | {"typo": {"without": {"model.positon": "none"}}}}, "components.parts.typo", "not a field"),
        ({"parts": PARTS | {"typo": {"witout": {}}}}, "components.parts.typo.witout", "unknown field"),
        ({"claim": "worsens val/los by at least 0.1"}, "components.better", "which way val/los improves"),
        ({"claim": "raises val/los by at least 0.1"}, "components.claim", "not a metric"),
        ({"claim": "hurts val/loss by at least 0.1"}, "components.claim", "'hurts' is not a verb"),
        ({"claim": "worsens val/loss than full"}, "components.claim", "than full"),
        ({"claim": "worsens val/loss"}, "components.smallest", "no smallest"),
        ({"claim": "worsens val/loss by at least 0.1", "smallest": 0.2}, "components.smallest", "one number"),
        ({"interactions": "all"}, "components.interactions", "with design: leave_one_out"),
        ({"design": "factorial", "interactions": ["rotary*norm"]}, "components.interactions[0]", "rotary*norm"),
        ({"design": "pairwise"}, "components.design", '"pairwise"'),
        (
            {"design": "factorial", "interactions": ["rotary*swiglu", "swiglu*rotary"]},
            "components.interactions[1]",
            "each pair once",
        ),
        (
            {"design": "factorial", "parts": {f"p{n}": {"with": {f"x.p{n}": 1}} for n in range(10)}},
            "components.parts",
            "2^10 arms",
        ),
        ({"design": "factorial", "parts": PARTS | {"rotary_x_swiglu": {"with": {"model.bias": False}}},
          "interactions": "all"}, "components.parts.rotary_x_swiglu", "would be named"),
        ({"role": "exploratory"}, "components.role", "exploratory"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_where_it_stands(change: dict[str, Any], place: str, found: str) -> None:
    block = dict(change)
    if block.get("design", "leave_one_out") != "leave_one_out" and "claim" not in block:
        block["claim"] = "improves val/loss by at least 0.1"
    error = refusal(document() | {"components": document()["components"] | block})
    assert str(error.where).startswith(place), error
    assert found in f"{error.found} {error.required}", error


def test_names_that_clash_and_factors_are_refused() -> None:
    arm = refusal(document() | {"variants": {"no_rotary": {}}})
    assert str(arm.where) == "variants.no_rotary"
    claim = refusal(document() | {"hypotheses": {"rotary": {"claim": "no_rotary lowers val/loss", "smallest": 1.0}}})
    assert str(claim.where) == "hypotheses.rotary"
    levels = {"a": {"x": {}, "y": {"model.width": 32}}, "b": {"z": {}, "w": {"model.bias": False}}}
    assert "components and factors" in refusal(document() | {"factors": levels}).found
    unknown = refusal(document("factorial") | {"hypotheses": {"h": {"claim": "with:rotry lowers val/loss than plain",
                                                                    "smallest": 0.1}}})  # fmt: skip
    assert "with:rotary" in unknown.fix
    groups_of_one = {"h": {"claim": "with:rotary lowers val/loss", "smallest": 0.1}}
    assert "not a variant" in refusal(document() | {"hypotheses": groups_of_one}).found


def test_the_schema_asks_for_components_or_for_what_they_write() -> None:
    schema = Study.model_json_schema(mode="validation")
    assert not {"baseline", "hypotheses", "decision"} & set(schema["required"])
    assert {"required": ["components"]} in schema["anyOf"]
    assert set(schema["$defs"]["Part"]["properties"]) == {"without", "with", "why"}


def test_a_study_with_components_holds_both() -> None:
    study = made("factorial")
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
    registration = make_registration(made())
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
    with pytest.raises(RegistrationError, match="components write"):
        read_lock(written(edited))


def test_an_amended_design_touches_every_claim() -> None:
    parts = {name: part | {"why": "because"} for name, part in PARTS.items()}
    study = made("factorial", parts=parts)
    changed = reached(study, differing_fields(made("factorial"), study))
    assert all(names == set(study.hypotheses) for names, _, _ in changed.values()) and changed


def test_the_documents_name_the_design_and_the_arms() -> None:
    source = Source(made("factorial"))
    page = sections(source)
    title = "full factorial 2^3 of 3 parts"
    assert title in page["Arms"]
    assert "with rotary and qk_norm, without swiglu" in page["Arms"]
    assert "the mean of the arms with rotary" in page["Hypotheses"]
    form = {field.key: field.text for field in osf(source).fields}
    assert title in form["design"] and '"with_rotary-swiglu"' in form["manipulated"]


def judged(study: Study, effects: dict[str, float]) -> tuple[Decision, ReportContext]:
    registration, evidence = make_evidence(study, effects={"val/loss": effects}, sd=0.004)
    decision = decide(registration, evidence)
    return decision, ReportContext(decision, registration, evidence, "0" * 64, "2026-01-02T03:04:05+00:00")


def test_the_table_of_parts_has_the_numbers_of_the_findings() -> None:
    study = made("leave_one_out")
    decision, context = judged(study, {"no_rotary": 0.3, "no_swiglu": 0.001, "no_qk_norm": 0.021})
    assert decision.verdict == "some part can go"
    section = components_section(context)
    assert section is not None
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    heads = [column.name for column in table.columns]
    rows = {row[0]: dict(zip(heads, row, strict=True)) for row in table.rows}
    assert [rows[part]["Outcome"] for part in PARTS] == ["supported", "refuted", "inconclusive"]
    page = markdown.render(context)
    for finding in decision.findings:
        assert rows[finding.hypothesis]["n"] == str(finding.n) == "5"
        shown = rows[finding.hypothesis]["Interval"]
        assert page.count(shown) >= 2, shown  # here and among the findings
    assert rows["rotary"]["Arm"] == "no_rotary" and "positions that go on" in rows["rotary"]["Reason"]


def test_interactions_have_the_means_that_they_come_from() -> None:
    study = made("factorial", interactions="all")
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


# Montgomery, Design and Analysis of Experiments (2013), example 6.1, as a trainer: effects -101.625, 7.375, 306.125.
ETCH = """
import json, os
config, seed = json.load(open(os.environ["ABLATE_CONFIG"])), int(os.environ["ABLATE_SEED"])
rates = [(550, 604), (669, 650), (633, 601), (642, 635), (1037, 1052), (749, 868), (1075, 1063), (729, 860)]
value = rates[config["gap"] + 2 * config["flow"] + 4 * config["power"]][seed - 1]
open("metrics.jsonl", "w").write(json.dumps({"step": 1, "metric": "etch/rate", "value": value}) + "\\n")
"""


@pytest.mark.slow
def test_a_textbook_factorial_from_file_to_verdict(own_house: OwnHouse, tmp_path: Path) -> None:
    own_house.script(ETCH)
    parts = {name: {"with": {name: 1}} for name in ("gap", "flow", "power")}
    path = own_house.write(
        {
            "study": "etch",
            "title": "Plasma etching",
            "trainer": "command",
            "command": ["{python}", "train.py"],
            "base": dict.fromkeys(parts, 0),
            "seeds": [1, 2],
            "components": {
                "design": "factorial",
                "parts": parts,
                "claim": "improves etch/rate",
                "smallest": 50.0,
                "better": "higher",
                "interactions": ["gap*power"],
            },
        }
    )
    for verb in ("check", "plan", "design", "run", "decide", "verify"):
        ended = CliRunner().invoke(app, [verb, str(path)], env={"COLUMNS": "80"})
        assert ended.exit_code == (3 if verb == "decide" else 0), (verb, ended.output)  # two seeds decide nothing
        lines = [line for line in ended.output.splitlines() if str(tmp_path) not in line]
        assert all(len(line) <= 80 for line in lines) or verb not in ("check", "design"), verb
        assert "full factorial 2^3 of 3 parts" in ended.output or verb in ("run", "decide", "verify")
    verdict = json.loads((own_house.path / "reports" / "etch" / "verdict.json").read_text())
    found = {one["hypothesis"]: one["estimate"]["difference"] for one in verdict["findings"]}
    assert found == pytest.approx({"gap": -101.625, "flow": 7.375, "power": 306.125, "gap_x_power": -153.625})
    page = (own_house.path / "reports" / "etch" / "report.md").read_text()
    assert "## Component ablation" in page and "306.1" in page
    assert "Component ablation" in (own_house.path / "reports" / "etch" / "report.html").read_text()
    lock = json.loads((own_house.path / "studies" / "etch.lock.json").read_text())
    assert load_study(path).study == Study.model_validate_json(json.dumps(lock["study"]))
