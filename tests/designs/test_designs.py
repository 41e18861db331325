"""DESIGNS: one table of designs, each by its golden study: what it resolves to, and the change that makes it no design.

The same studies are registered, run or imported, and judged in tests/golden. No sentence is read: a refusal is known by
its class and by the field that it names.
"""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from prereg.errors import StudyError
from prereg.study.designs.per_task import with_tasks
from prereg.study.load import load_study
from prereg.study.spec import Study, study_from_document

GOLDEN = Path(__file__).parents[1] / "golden"
TASKS = ("agreement", "islands", "order")
OVER_ITEMS = ("items", "items_fixed", "per_task")
"""Of these the tasks are named here: their pack is not in the folder of the case."""


@dataclass(frozen=True)
class Design:
    """A golden study, what it resolves to, and a change that is refused."""

    name: str
    arms: str
    n_runs: int
    claims: str
    change: dict[str, Any]
    """Dotted field -> another value; None leaves it out."""
    error: str
    refused_at: str
    """The field that the error names."""


# fmt: off
DESIGNS = [
    Design("paired_t", "none layernorm rmsnorm", 15, "gain_ln gain_rms harm_ln harm_rms",
        {"hypotheses.gain_ln.claim": "nobody lowers val/loss by at least 0.02"},
        "ClaimError", "hypotheses.gain_ln.claim"),
    Design("bootstrap_t", "plain fast", 12, "gain accuracy",
        {"analysis.test": "bootstrap"},
        "SpecError", "analysis.test"),
    Design("sign_flip", "plain fast", 16, "gain",
        {"analysis.alpha": 0.2},
        "SpecError", "analysis.alpha"),
    Design("wilcoxon", "plain fast", 16, "gain other",
        {"analysis.zeros": "drop"},
        "SpecError", "analysis.zeros"),
    Design("welch", "plain fast", 11, "gain",
        {"analysis.test": "paired_t"},
        "SpecError", "seeds"),
    Design("constant", "plain fast", 12, "gain far high",
        {"hypotheses.gain.claim": "fast raises val/loss below 2.02"},
        "ClaimError", "hypotheses.gain.claim"),
    Design("ratio", "plain fast", 12, "gain speed tens",
        {"hypotheses.gain.claim": "fast lowers val/loss by at least 120%"},
        "ClaimError", "hypotheses.gain.claim"),
    Design("equivalence", "plain fast", 12, "gain moved same",
        {"hypotheses.gain.smallest": 0},
        "SpecError", "hypotheses.gain.smallest"),
    Design("order_gate", "plain fast", 12, "gain accuracy perplexity harm",
        {"analysis.gate": {"order": ["gain", "harm"]}},
        "SpecError", "analysis.gate.order"),
    Design("looks", "plain fast", 16, "gain",
        {"stopping.looks": [3, 5, 9]},
        "SpecError", "stopping.looks"),
    Design("looks_pocock", "plain fast", 12, "gain harm",
        {"stopping.spending": "all"},
        "SpecError", "stopping.spending"),
    Design("tune", "sgd adam", 22, "gain",
        {"tune.seeds": [1, 2]},
        "SpecError", "tune.seeds"),
    Design("leave_one_out", "full no_rotary no_swiglu", 18, "rotary swiglu",
        {"components.parts.rotary": {}},
        "SpecError", "components.parts.rotary"),
    Design("add_one_in", "plain with_rotary with_swiglu", 18, "rotary swiglu",
        {"components.claim": "sideways val/loss"},
        "ClaimError", "components.claim"),
    Design("factorial", "plain with_rotary with_swiglu full", 24, "rotary swiglu",
        {"variants": {"a": {}}},
        "SpecError", "variants.a"),
    Design("diverged_excluded", "plain fast", 12, "gain",
        {"analysis": {"least_pairs": 9}},
        "SpecError", "analysis.least_pairs"),
    Design("readings", "plain fast", 10, "gain area step last",
        {"hypotheses.last.read": {"last": 1}},
        "SpecError", "hypotheses.last.read.last"),
    Design("run", "plain fast", 6, "gain",
        {"variants.fast": {"rate": 0.3}},
        "SpecError", "variants.fast.rate"),
    Design("resumed", "plain fast", 6, "gain",
        {"command": []},
        "SpecError", "command"),
    Design("exploratory", "plain fast", 12, "gain",
        {"hypotheses.gain": {"claim": "fast lowers val/loss", "smallest": -1}},
        "SpecError", "hypotheses.gain.smallest"),
    Design("amended", "plain fast", 12, "gain harm",
        {"decision": [{"verdict": "adopt", "when": "supported(gain)"}]},
        "RuleError", "decision"),
    Design("items", "none layernorm", 8, "gain",
        {"analysis": {"test": "items"}},
        "SpecError", "analysis.estimand"),
    Design("items_fixed", "none layernorm", 8, "gain",
        {"measure": {"every": 20}},
        "SpecError", "measure.harness"),
    Design("per_task", "none layernorm", 8, "gain no_harm.agreement no_harm.islands no_harm.order",
        {"hypotheses.no_harm.claim": "layernorm lowers val/loss"},
        "ClaimError", "hypotheses.no_harm.claim"),
]
# fmt: on


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((GOLDEN / name / "study.yaml").read_text(encoding="utf-8"))
    return found


def loaded(document: dict[str, Any], folder: Path) -> Study:
    """The study of a document, through its file."""
    if document["study"] in OVER_ITEMS:
        return study_from_document(with_tasks(document, TASKS))
    path = folder / "studies" / f"{document['study']}.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    shutil.copy(GOLDEN / "replay.py", folder / "replay.py")
    return load_study(path).study


def changed(document: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    whole = copy.deepcopy(document)
    for place, value in change.items():
        *outer, last = place.split(".")
        inner = whole
        for key in outer:
            inner = inner.setdefault(key, {})
        if value is None:
            del inner[last]
        else:
            inner[last] = value
    return whole


def test_every_golden_study_is_a_row() -> None:
    assert sorted(one.name for one in DESIGNS) == sorted(path.parent.name for path in GOLDEN.glob("*/study.yaml"))


@pytest.mark.parametrize("design", DESIGNS, ids=lambda one: one.name)
def test_a_design_loads_and_a_stored_one_is_itself(design: Design, tmp_path: Path) -> None:
    study = loaded(document(design.name), tmp_path)
    assert " ".join(study.arms) == design.arms
    assert " ".join(study.hypotheses) == design.claims
    assert len(study.cells) == design.n_runs
    stored = study.model_dump(mode="json")
    assert study_from_document(stored) == study
    assert study_from_document(stored).model_dump(mode="json") == stored


@pytest.mark.parametrize("design", DESIGNS, ids=lambda one: one.name)
def test_what_makes_it_no_design_is_refused_at_its_field(design: Design, tmp_path: Path) -> None:
    with pytest.raises(StudyError) as refused:
        loaded(changed(document(design.name), design.change), tmp_path)
    place = ".".join(map(str, refused.value.where.field))
    assert (type(refused.value).__name__, place) == (design.error, design.refused_at)
