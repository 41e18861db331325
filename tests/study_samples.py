"""The studies that tests build as plain data, one builder a kind of design. Every field can be changed.

`small_study` and `one_claim`, with evidence to judge, are in evidence_factory.py; studies of a house on disk, in
conftest.py (the built-in trainer) and own_trainer.py (a trainer of one's own).
"""

from __future__ import annotations

from typing import Any

from conftest import tiny_document
from evidence_factory import small_study

from prereg.study.designs.per_task import with_tasks
from prereg.study.spec import Study, study_from_document

DONE = [{"verdict": "inconclusive"}]
YES = [{"verdict": "yes", "when": "supported(h)"}, *DONE]


def based(budget: dict[str, object], **changes: object) -> dict[str, object]:
    """The tiny study with another budget."""
    document = tiny_document(**changes)
    document["base"] = {**document["base"], "budget": budget}
    return document


def unpaired(
    first: int, second: int, *, claim: str = "layernorm changes val/loss", smallest: float = 0.5, **changes: Any
) -> Study:
    """A claim of layernorm against none, with so many runs of each and no shared seed."""
    document: dict[str, Any] = {
        "seeds": {
            "layernorm": list(range(1, first + 1)),
            "none": list(range(1001, 1001 + second)),
            "rmsnorm": [1, 2, 3],
        },
        "hypotheses": {"h": {"claim": claim, "smallest": smallest}},
        "decision": [YES[0], {"verdict": "no", "when": "refuted(h)"}, *DONE],
        "analysis": {"test": "welch"},
        "tie_breakers": [],
        "assume": {},
    }
    return small_study(**document | changes)


# A pilot chooses the learning rate of each arm: SGD and AdamW at a rate that suits SGD, and each at its best of four.

RATES = [0.003, 0.01, 0.1, 0.3]


def tuned_document(**changes: Any) -> dict[str, Any]:
    """Two arms at the rate of the base, and the same two at the rate that a pilot chooses."""
    return {
        "study": "own",
        "title": "Is AdamW better, each at its best rate?",
        "trainer": "command",
        "command": ["{python}", "train.py"],
        "base": {"optimizer": "sgd", "lr": 0.1, "fails": [], "clip": 1.0},
        "baseline": "sgd",
        "variants": {
            "sgd": {},
            "adamw": {"optimizer": "adamw"},
            "sgd_untuned": {},
            "adamw_untuned": {"optimizer": "adamw"},
        },
        "tune": {"arms": ["sgd", "adamw"], "grid": {"lr": RATES}, "seeds": [101, 102], "choose_by": "val/loss"}
        | {"better": "lower"},
        "seeds": [1, 2, 3, 4],
        "hypotheses": {
            "tuned": {"claim": "adamw lowers val/loss by at least 0.05"},
            "untuned": {
                "claim": "adamw_untuned lowers val/loss by at least 0.05 than sgd_untuned",
                "role": "secondary",
            },
        },
        "decision": [
            {"verdict": "use AdamW", "when": "supported(tuned)"},
            {"verdict": "keep SGD", "when": "refuted(tuned)"},
            *DONE,
        ],
    } | changes


# Parts of a system, of which arms, claims and rule are written.

PARTS: dict[str, Any] = {
    "rotary": {"without": {"model.positions": "learned"}, "why": "positions that go on"},
    "swiglu": {"with": {"model.activation": "swiglu"}},
    "qk_norm": {"without": {"model.qk_norm": False}, "with": {"model.qk_norm": True}},
}


def components_document(
    design: str = "leave_one_out", *, parts: dict[str, Any] | None = None, **block: Any
) -> dict[str, Any]:
    """Three parts of a small model, all there in the base."""
    word = "worsens" if design == "leave_one_out" else "improves"
    whole = {"design": design, "parts": PARTS if parts is None else parts, "claim": f"{word} val/loss by at least 0.02"}
    return {
        "study": "own",
        "title": "What each part is worth",
        "base": {
            "model": {"layers": 1, "width": 16, "heads": 2, "context": 8, "positions": "rope"},
            "budget": {"steps": 4, "batch": 4},
        },
        "seeds": [1, 2, 3, 4, 5],
        "measure": {"every": 4},
        "components": whole | block,
    }


def of_components(design: str = "leave_one_out", *, over: dict[str, Any] | None = None, **block: Any) -> Study:
    """The study of three parts, with other fields `over` it."""
    return study_from_document(components_document(design, **block) | (over or {}))


# Claims for each task of a harness.

SIZES = {"a-easy": 12, "b": 40, "c": 80}
LINE = {"claim": "layernorm does_not_worsen harness/accuracy", "smallest": 0.1, "per": "task", "role": "guardrail"}


def of_task(task: str, **changes: Any) -> dict[str, Any]:
    """A claim about one task, written by hand."""
    return {"claim": f"layernorm raises harness/accuracy/{task}", "smallest": 0.02, **changes}


def over_tasks(hypotheses: dict[str, Any], *, pack: str = "tasks/mine", **changes: Any) -> dict[str, Any]:
    """The plain data of a study of a pack of tasks, before its lines are written out."""
    return small_study().model_dump(mode="json") | {
        "variants": {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}},
        "measure": {"every": 20, "harness": {"tasks": pack, "items_per_task": 12}},
        "hypotheses": hypotheses,
        "decision": DONE,
        "tie_breakers": [],
        "assume": {},
    } | changes  # fmt: skip


def per_task_document(tasks: tuple[str, ...] = tuple(SIZES), **changes: Any) -> dict[str, Any]:
    """A macro claim and one claim of no harm, written out for each of the tasks."""
    rule = [
        {"verdict": "adopt", "when": "supported(macro) and all supported(no_harm)"},
        {"verdict": "keep", "when": "refuted(macro) or any refuted(no_harm)"},
        *DONE,
    ]
    macro = {"claim": "layernorm raises harness/macro_accuracy", "smallest": 0.01}
    document = over_tasks({"macro": macro, "no_harm": LINE}) | {"decision": rule}
    return with_tasks(document | changes, tasks)
