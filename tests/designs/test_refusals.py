"""REFUSALS: what is no design, and the field and the words with which it is refused before anything is registered.

A row is one change of a study that is taken as it stands. Whoever adds a refusal adds a row. Refusals of the text of a
file (YAML, lines, spelling) are in test_load.py; of what a command changes on disk, in test_cli.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import tiny_document
from evidence_factory import one_claim, small_study
from own_trainer import own_document
from report_samples import document as labelled_document
from study_samples import (
    DONE,
    LINE,
    PARTS,
    based,
    components_document,
    of_components,
    of_task,
    over_tasks,
    per_task_document,
    tuned_document,
)
from study_samples import unpaired as samples

from ablate.capabilities import require_supported
from prereg.errors import StudyError
from prereg.study.arms import resolve_arms
from prereg.study.spec import Study, study_from_document
from prereg.study.training import Training

BASE = Training()
Row = tuple[Callable[..., object], dict[str, Any], str, str]


def own(**changes: Any) -> Study:
    """A trainer of one's own."""
    return study_from_document(own_document(**changes))


def tiny(claim: str = "", read: Any = "final", budget: dict[str, Any] | None = None, **changes: Any) -> Study:
    """The built-in trainer, with one claim or another budget."""
    if claim:
        changes["hypotheses"] = {"gain": {"claim": claim, "smallest": 0.05, "read": read}}
    return study_from_document(tiny_document(**changes) if budget is None else based(budget, **changes))


def supported(**changes: Any) -> None:
    """A study that can be read, and cannot be carried out."""
    require_supported(tiny(**changes))


def tuned(**tune: Any) -> Study:
    """A pilot that chooses; None leaves a field out."""
    fields = {name: value for name, value in (tuned_document()["tune"] | tune).items() if value is not None}
    return study_from_document(tuned_document(tune=fields))


def chosen(**changes: Any) -> Study:
    """A study with a pilot that chooses."""
    return study_from_document(tuned_document(**changes))


def parts(**block: Any) -> Study:
    """A component ablation with another block; a factorial has a claim of its own."""
    if block.get("design", "leave_one_out") != "leave_one_out":
        block = {"claim": "improves val/loss by at least 0.1"} | block
    document = components_document()
    return study_from_document(document | {"components": document["components"] | block})


def per_task(tasks: tuple[str, ...] = ("a-easy", "b", "c"), **changes: Any) -> Study:
    """Claims of one line for each task."""
    return study_from_document(per_task_document(tasks, **changes))


def families(pack: str = "tasks/mine", **hypotheses: Any) -> Study:
    """Claims about single tasks, written by hand."""
    return study_from_document(over_tasks(hypotheses, pack=pack))


def over_items(claim: str = "layernorm raises harness/accuracy", **changes: Any) -> Study:
    """One claim about items of a harness."""
    taken = {"measure": {"every": 20, "harness": {"tasks": "blimp"}}, "analysis": CROSSED}
    return one_claim(claim, 0.01, **(taken | changes))


def margin(claim: str, smallest: Any = None, **hypothesis: Any) -> Study:
    """One claim whose margin is written as given, or in the claim alone."""
    return one_claim(
        hypotheses={"h": {"claim": claim, **({} if smallest is None else {"smallest": smallest}), **hypothesis}}
    )


def constant(claim: str = "layernorm lowers val/loss below 3.28", **changes: Any) -> Study:
    """A claim against a number."""
    return one_claim(claim, 0.0, **changes)


def arms(variants: dict[str, Any] | None = None, base: Any = BASE, **factors: Any) -> object:
    """The arms of a base."""
    return resolve_arms(base, variants or {}, factors)


def labels(**names: Any) -> Study:
    """Names for people."""
    return study_from_document(labelled_document(labels=names))


def gated(gate: Any, **changes: Any) -> Study:
    """Steps of a gate over two primary claims, two guardrails and one that is exploratory."""
    noise = {"noise": {"claim": "rmsnorm changes val/loss", "smallest": 0.0, "role": "exploratory"}}
    hypotheses = {name: one.model_dump() for name, one in small_study().hypotheses.items()} | noise
    return small_study(hypotheses=hypotheses, analysis={"gate": gate, **changes.pop("analysis", {})}, **changes)


CROSSED = {"test": "items", "estimand": "new_seeds_and_items"}
ALL = {"every": 10, "suites": ["loss", "activations", "gradients", "speed", "length"],
       "at_end": ["calibration", "cost"], "loss_level": 2.0}  # fmt: skip
TRAIN = {"gain": {"claim": "layernorm lowers train/loss", "smallest": 0.1}}
ROLES = {"order": ["primary", "guardrail"]}
OPTIM = {"lr": 0.1, "steps": 4, "optim": {"name": "sgd"}}
MINE: dict[str, Any] = {"trainer": "command", "command": ["python", "t.py"], "base": {"lr": 0.1},
                        "variants": {"none": {}, "layernorm": {"lr": 0.2}}}  # fmt: skip

# fmt: off
REFUSALS: list[Row] = [
    # the builder of a study that is taken, its changes, the field of the error, words of it
    # Arms, seeds and looks.
    (small_study, {"baseline": "nne"}, "baseline", "baseline 'nne' is not a variant"),
    (small_study, {"factors": {"a": {"b": {}}}}, "variants", "both variants and factors"),
    (small_study, {"variants": {}}, "", "neither variants nor factors"),
    (small_study, {"variants": {"none": {}, "None": {"optim.lr": 0.1}}}, "variants", "but for capital"),
    (small_study, {"seeds": [1]}, "seeds", "1 seed"),
    (small_study, {"seeds": [1, 2, 1]}, "seeds", "seed 1 is given twice"),
    (small_study, {"stopping": {"looks": [3, 4]}}, "stopping.looks", "looks [3, 4] with 5 seeds"),
    (small_study, {"stopping": {"looks": [5, 3, 5]}}, "stopping.looks", "looks [5, 3, 5] with 5 seeds"),
    (small_study, MINE | {"command": []}, "command", "no command is given"),
    (small_study, {"command": ["ls"]}, "command", "command is given and trainer is 'gpt'"),
    (arms, {"variants": {"a": {}, "b": {"model.embeding_norm": "layernorm"}}},
     "variants.b.model.embeding_norm", "did you mean 'model.embedding_norm'?"),
    (arms, {"variants": {"a": {}, "b": {"": 1}}}, "variants.b.", "is not a field of the base"),
    (arms, {"variants": {"a": {}, "b": {"model.": 1}}}, "variants.b.model.", "is not a field of the base"),
    (arms, {"variants": {"a": {}, "b": {".layers": 1}}}, "variants.b..layers", "is not a field of the base"),
    (arms, {"variants": {"a": {}, "b": {"model.layers.deep": 1}}},
     "variants.b.model.layers.deep", "is not a field of the base"),
    (arms, {"variants": {"a": {}, "b": {"layers": 1}}}, "variants.b.layers", "is not a field of the base"),
    (arms, {"variants": {"a": {}, "b": {"model": {"layers": 3}}}},
     "variants.b.model", "'model' is a section of the base"),
    (arms, {"variants": {"a": {}, "b": {"optim.lr": 0.1, "model.layers": "many"}}},
     "variants.b.model.layers", "found \"many\""),
    (arms, {"variants": {"a": {}, "b": {"optim.lr": 0.1, "model.heads": 7}}},
     "variants.b.model.heads", "does not divide"),
    (arms, {"variants": {"a": {}, "b": {"model.layers": Training().model.layers}}},
     "variants.b", "resolve to the same"),
    (arms, {"variants": {"a": {}, "b": {"data.tokenizer": {"bpe": 512}, "data.tokenizer.bpe": 1024}}},
     "variants.b.data.tokenizer.bpe", "override the same field"),
    (arms, {"a": {"x": {"optim.lr": 0.1}, "y": {}}, "b": {"z": {"optim.lr": 0.2}}},
     "factors.b.z.optim.lr", "two factors override 'optim.lr'"),
    (arms, {"f": {"a": {"optim.lr": 0.1}, "a-b": {"optim.lr": 0.2}}, "g": {"b-c": {"model.layers": 2},
     "c": {"model.layers": 3}}},
     "factors", "both named 'a-b-c'"),
    (arms, {"f": {}}, "factors.f", "factor 'f' has no level"),
    (arms, {f"f{i}": {f"l{j}": {} for j in range(8)} for i in range(12)}, "factors", "at most 512"),
    (arms, {"base": {"optim": {"lr": 1}}, "variants": {"a": {}, "b": {"optim.momentum": 0.9}}},
     "variants.b.optim.momentum", "not a field"),
    # Claims and what they need measured.
    (one_claim, {"claim": "layernorm lowers val/los"}, "hypotheses.h.claim", "'val/los' is not a metric"),
    (one_claim, {"claim": "layernorm lowers grad/layer_8"},
     "hypotheses.h.claim", "'layernorm' has 2 layers, counted from 0"),
    (one_claim, {"claim": "layernrm lowers val/loss"}, "hypotheses.h.claim", "'layernrm' in claim"),
    (one_claim, {"claim": "(layernorm + zz) lowers val/loss than (none + zz)"}, "hypotheses.h.claim",
     "'zz' in claim"),
    (one_claim, {"claim": "layernorm lowers val/perplexity"},
     "hypotheses.h.scale", "raw differences of val/perplexity"),
    (one_claim, {"claim": "layernorm lowers harness/accuracy"}, "measure.harness", "no harness is declared"),
    (one_claim, {"measure": {"every": 20, "suites": ["activations"]}},
     "measure.suites", "h needs val/loss, of the suite 'loss'"),
    (one_claim, {"claim": "layernorm does_not_worsen val/accuracy", "smallest": 0},
     "hypotheses.h.smallest", "smallest is 0"),
    (one_claim, {"claim": "layernorm does_not_worsen grad/norm"},
     "hypotheses.h.better", "nothing says which way grad/norm improves"),
    (one_claim, {"claim": "(layernorm - none) does_not_worsen val/loss than (rmsnorm - none)"},
     "hypotheses.h.claim", "whether a difference worsens"),
    (one_claim, {"claim": "layernorm lowers val/loss by at least 0.02", "smallest": 0.03},
     "hypotheses.h.smallest", "by at least 0.02"),
    (one_claim, {"analysis": {"also": ["paired_t"]}}, "analysis.also", "'paired_t' decides and is under 'also'"),
    (one_claim, {"analysis": {"test": "items"}}, "analysis.test", "test is 'items' and no measure.harness"),
    (one_claim, {"tie_breakers": ["vla/bits_per_byte"]}, "tie_breakers[0]", "'vla/bits_per_byte' is not a metric"),
    (one_claim, {"assume": {"metrics": {"grad/norm": {"sd": 1.0}}}},
     "assume.metrics.grad/norm", "'grad/norm' is in no claim"),
    (tiny, {"claim": "layernorm lowers calibration/ece", "measure": {"every": 10}},
     "measure.suites", "of the suite 'calibration'"),
    (tiny, {"claim": "layernorm lowers cost/mfu", "measure": {"every": 10}}, "measure.suites", "of the suite 'cost'"),
    (tiny, {"claim": "layernorm lowers val/steps_to_level", "measure": {"every": 10}},
     "measure.loss_level", "no level is declared"),
    (tiny, {"claim": "layernorm lowers calibration/bin_accuracy_15", "measure": ALL},
     "hypotheses.gain.claim", "there are 15 bins"),
    (tiny, {"claim": "layernorm lowers residual/norm_1", "measure": ALL}, "hypotheses.gain.claim", "has 1 layers"),
    (tiny, {"claim": "layernorm lowers residual/cosine_7", "measure": ALL},
     "hypotheses.gain.claim", "at most residual/cosine_0"),
    (tiny, {"claim": "layernorm lowers length/loss_beyond", "measure": ALL},
     "hypotheses.gain.claim", "learned positions"),
    (tiny, {"claim": "layernorm lowers adam/second_moment", "variants": {"none": {},
     "layernorm": {"optim.name": "sgd"}}},
     "hypotheses.gain.claim", "trains with sgd"),
    (tiny, {"hypotheses": TRAIN, "measure": {"suites": ["loss", "cost"]}},
     "measure.suites", "the suite 'cost' at every evaluation"),
    (tiny, {"hypotheses": TRAIN, "measure": {"suites": ["loss", "calibration"], "at_end": ["calibration"]}},
     "measure.at_end", "'calibration' is named twice"),
    (tiny, {"hypotheses": TRAIN, "measure": {"at_end": ["cost", "cost"]}}, "measure.at_end", "'cost' is named twice"),
    (tiny, {"hypotheses": TRAIN, "measure": {"suites": ["speed"], "at_end": ["loss"], "loss_level": 2.0}},
     "measure.loss_level", "a level of the loss"),
    (tiny, {"hypotheses": TRAIN, "measure": {"at_end": ["cost"], "inference": {"length": 17}}},
     "measure.inference.length", "17 tokens"),
    (tiny, {"claim": "layernorm lowers calibration/ece", "read": "area", "measure": ALL},
     "hypotheses.gain.read", "measured at the end"),
    (tiny, {"claim": "layernorm lowers calibration/ece", "read": {"last": 2}, "measure": ALL},
     "hypotheses.gain.read", "measured at the end"),
    (tiny, {"claim": "layernorm lowers val/loss", "read": {"last": 4}, "measure": ALL},
     "hypotheses.gain.read.last", "has 3 after step 0"),
    (tiny, {"claim": "layernorm lowers cost/peak_memory", "read": "best", "measure": ALL},
     "hypotheses.gain.read", "has no curve"),
    (tiny, {"claim": "layernorm lowers val/loss", "read": {"last": 1}}, "hypotheses.gain.read.last", "found 1"),
    (tiny, {"budget": {"batch": 8, "tokens": 3841, "steps": 30}},
     "base.budget", "30 steps of 128 tokens (batch 8 x context 16) consume 3,840"),
    (tiny, {"budget": {"batch": 8, "tokens": 3850}}, "base.budget", "nearest are 3,840 and 3,968"),
    (tiny, {"budget": {"batch": 8, "tokens": 100}}, "base.budget", "the nearest is 128"),
    (tiny, {"budget": {"batch": 8, "tokens": 3840}, "variants": {"none": {}, "layernorm": {"budget.steps": 31}}},
     "variants.layernorm.budget.steps", "31 steps"),
    # Margins in percent, constants.
    (margin, {"claim": "layernorm lowers val/loss", "smallest": "2%", "scale": "raw"},
     "hypotheses.h.scale", "scale is 'raw' and the margin is 2%"),
    (margin, {"claim": "layernorm lowers val/loss by at least 2%", "scale": "log10"},
     "hypotheses.h.scale", "scale is 'log10'"),
    (margin, {"claim": "layernorm lowers val/loss by at least 2%", "smallest": "3%"},
     "hypotheses.h.smallest", "smallest is 3% and the claim says"),
    (margin, {"claim": "layernorm lowers val/loss by at least 2%", "smallest": 0.05},
     "hypotheses.h.smallest", "smallest is 0.05 and the margin is 2%"),
    (margin, {"claim": "layernorm lowers val/loss by at least 0.05", "smallest": "2%"},
     "hypotheses.h.smallest", "smallest is"),
    (margin, {"claim": "layernorm lowers val/loss", "smallest": "0%"}, "hypotheses.h.smallest", "a margin of 0%"),
    (margin, {"claim": "layernorm lowers val/loss", "smallest": "100%"}, "hypotheses.h.smallest", "a margin of 100%"),
    (margin, {"claim": "layernorm does_not_worsen val/accuracy", "smallest": "100%"},
     "hypotheses.h.smallest", "a margin of 100%"),
    (margin, {"claim": "layernorm lowers val/loss", "smallest": "2 %"}, "hypotheses.h.smallest", "found \"2 %\""),
    (margin, {"claim": "layernorm lowers val/loss", "smallest": "-2%"}, "hypotheses.h.smallest", "found \"-2%\""),
    (margin, {"claim": "layernorm lowers val/loss", "smallest": "two%"}, "hypotheses.h.smallest", "found \"two%\""),
    (margin, {"claim": "layernorm lowers val/loss", "smallest": 0.02, "percent": 3.0},
     "hypotheses.h.smallest", "smallest is 0.02 and the margin is 3%, which is 0.0304592 on"),
    (margin, {"claim": "layernorm lowers val/loss below -1", "smallest": "2%"}, "hypotheses.h.scale",
     "scale is 'log'"),
    (margin, {"claim": "layernorm lowers val/loss"}, "hypotheses.h.smallest", "smallest"),
    (constant, {"claim": "layernorm lowers val/loss below -1", "hypothesis": {"scale": "log"}},
     "hypotheses.h.scale", "scale is 'log'"),
    (constant, {"assume": {"metrics": {"val/loss": {"sd": 0.01, "correlation": -0.2}}}},
     "assume.metrics.val/loss.correlation", "correlation is -0.2"),
    (constant, {"claim": "none lowers val/loss", "variants": {"none": {}}}, "variants", "only one"),
    (constant, {"analysis": {"test": "welch"}}, "hypotheses.h.claim", "h compares with a constant and test is 'welch'"),
    (over_items, {"claim": "layernorm raises harness/accuracy above 0.6", "analysis": {"test": "items",
     "estimand": "new_seeds"}},
     "hypotheses.h.claim", "compares with a constant"),
    # Tests, and what they do not go with.
    (supported, MINE | {"measure": {"harness": {"tasks": "blimp"}}}, "measure.harness", "harness"),
    (supported, {"seeds": [1, 2, 3], "analysis": {"test": "bootstrap_t"}}, "analysis.test", "decides from 4 on"),
    (one_claim, {"analysis": {"zeros": "wilcox"}}, "analysis.zeros", "no test ranks"),
    (over_items, {"analysis": {"estimand": "new_seeds_and_items"}}, "analysis.estimand", "test is 'paired_t'"),
    (over_items, {"analysis": {"test": "items"}}, "analysis.estimand", "nothing says what the verdict speaks of"),
    (over_items, {"stopping": {"looks": [3, 5]}}, "analysis.test", "test is 'items' and stopping has 'looks'"),
    (over_items, {"hypothesis": {"read": "best"}}, "hypotheses.h.read", "has no curve"),
    (over_items, {"hypothesis": {"read": {"step": 20}}}, "hypotheses.h.read", "has no curve"),
    (over_items, {"hypothesis": {"scale": "log"}}, "hypotheses.h.scale", "scale is 'log'"),
    (over_items, {"claim": "layernorm lowers val/loss"}, "hypotheses.h.claim", "val/loss has no items"),
    (over_items, {"claim": "layernorm lowers harness/ece"}, "hypotheses.h.claim", "harness/ece has no items"),
    (over_items, {"claim": "layernorm lowers val/loss", "measure": {"every": 20}},
     "analysis.test", "test is 'items' and no measure.harness"),
    (over_items, {"claim": "layernorm lowers val/loss", "analysis": {"also": ["items"]}},
     "analysis.also", "no claim is about a metric with items"),
    (over_items, MINE | {"hypothesis": {"better": "higher"}}, "analysis.test", "trainer is 'command'"),
    (samples, {"first": 5, "second": 3, "analysis": {"test": "paired_t"}}, "seeds", "analysis: {test: welch}"),
    (samples, {"first": 5, "second": 3, "analysis": {"test": "sign_flip"}}, "seeds", "analysis: {test: welch}"),
    (samples, {"first": 5, "second": 3, "seeds": {"none": [1, 2], "layernorm": [3, 4]}},
     "seeds", "no seeds for rmsnorm"),
    (samples, {"first": 5, "second": 3, "seeds": {"none": [1, 2], "layernorm": [3, 4], "rmsnorm": [1, 2],
     "other": [1, 2]}},
     "seeds", "seeds for other, which is no arm"),
    (samples, {"first": 5, "second": 3, "seeds": {"none": [1, 2], "layernorm": [3, 4, 5], "rmsnorm": [1, 2, 3]}},
     "seeds.none", "2 runs"),
    (samples, {"first": 5, "second": 3, "seeds": {"none": [1, 1, 2], "layernorm": [3, 4, 5], "rmsnorm": [1, 2, 3]}},
     "seeds.none", "seed 1 is given twice"),
    (samples, {"first": 5, "second": 3, "seeds": {"none": ["a"], "layernorm": [3, 4], "rmsnorm": [1, 2]}},
     "seeds.none", "['a']"),
    (samples, {"first": 5, "second": 3, "seeds": [1, 2]}, "seeds", "2 runs of each arm"),
    (samples, {"first": 5, "second": 3, "analysis": {"test": "welch", "least_pairs": 2}},
     "analysis.least_pairs", "least_pairs is 2"),
    (samples, {"first": 5, "second": 3, "analysis": {"test": "welch", "least_pairs": 4}},
     "analysis.least_pairs", "least_pairs is 4 with 3 seeds"),
    (samples, {"first": 5, "second": 3, "analysis": {"test": "welch", "also": ["paired_t"]}},
     "analysis.also", "also has 'paired_t' and test is 'welch'"),
    (samples, {"first": 5, "second": 3, "seeds": [1, 2, 3], "analysis": {"test": "paired_t", "also": ["welch"]}},
     "analysis.also", "also has 'welch' and test is 'paired_t'"),
    (samples, {"first": 5, "second": 3, "seeds": [1, 2, 3], "stopping": {"looks": [2, 3]}},
     "stopping", "stopping has 'looks' and test is 'welch'"),
    (gated, {"gate": {"order": ["primary"]}}, "analysis.gate.order", "harm_ln and harm_rms are in no step"),
    (gated, {"gate": {"order": ["primary", "gain_ln", "guardrail"]}}, "analysis.gate.order", "'gain_ln' comes twice"),
    (gated, {"gate": {"order": ["primary", "guardrails"]}}, "analysis.gate.order", "'guardrails' is neither"),
    (gated, {"gate": {"order": ["primary", "guardrail", "noise"]}}, "analysis.gate.order", "'noise' is exploratory"),
    (gated, {"gate": {"order": ["primary", "guardrail", []]}}, "analysis.gate.order[2]", "found []"),
    (gated, {"gate": {"steps": ["primary"]}}, "analysis.gate.steps", "unknown"),
    (gated, {"gate": ROLES, "analysis": {"correct": "none"}},
     "analysis.correct", "correct is 'none' and gate is given"),
    (gated, {"gate": ROLES, "stopping": {"looks": [3, 5]}}, "analysis.gate", "gate is given and stopping has 'looks'"),
    # Pilots.
    (tuned, {"grid": {}}, "tune", "neither grid nor settings"),
    (tuned, {"settings": {"sgd": [{"lr": 1.0}, {"lr": 2.0}]}}, "tune.grid", "grid is given and settings is given"),
    (tuned, {"grid": {"lr": [0.1]}}, "tune.grid", "1 settings"),
    (tuned, {"grid": {"lr": [0.1, 0.1]}}, "tune.grid.lr", "value 0.1 is given twice"),
    (tuned, {"grid": {"rate": [0.1, 0.2]}}, "tune.grid", "not a field of the base"),
    (tuned, {"grid": {"optimizer": ["sgd", "adamw"]}}, "tune.grid", "'optimizer' is tuned, and 'adamw' sets it"),
    (tuned, {"arms": ["sgd", "adamw", "lion"]}, "tune.arms", "not a variant"),
    (tuned, {"seeds": [1, 101]}, "tune.seeds", "pilot seed 1 is a seed of the study too"),
    (tuned, {"seeds": [101, 101]}, "tune.seeds", "given twice"),
    (tuned, {"better": None, "choose_by": "val/own"}, "tune.better", "which way val/own improves"),
    (tuned, {"grid": {}, "arms": [], "settings": {"sgd": [{"lr": 1.0}, {"lr": 2.0}], "adamw": [{"lr": 3.0},
     {"lr": 3.0}]}},
     "tune.settings.adamw", "twice"),
    (tuned, {"grid": {}, "arms": [], "settings": {"sgd": [{"lr": 1}, {"lr": 2}], "adamw": [{"lr": x} for x in (1, 2,
     3)]}},
     "tune.settings", "unequal numbers"),
    (one_claim, {"tune": {"grid": {"budget.batch": [4, 8]}, "seeds": [101], "choose_by": "val/loss"}},
     "tune.grid", "budget.batch"),
    (one_claim, {"tune": {"grid": {"optim.lr": [0.1, 0.2]}, "seeds": [101], "choose_by": "val/loss"},
     "stopping": {"looks": [2, 5]}},
     "tune", "tune is given and stopping has 'looks'"),
    # Parts of a system.
    (parts, {"parts": {"rotary": PARTS["rotary"]}}, "components.parts", "1 part"),
    (parts, {"parts": PARTS | {"idle": {}}}, "components.parts.idle", "changes nothing"),
    (parts, {"parts": PARTS | {"again": {"without": {"model.positions": "none"}}}},
     "components.parts.again", "both change 'model.positions'"),
    (parts, {"parts": PARTS | {"typo": {"without": {"model.positon": "none"}}}},
     "components.parts.typo.without.model.positon", "not a field"),
    (parts, {"parts": PARTS | {"typo": {"witout": {}}}}, "components.parts.typo.witout", "unknown field"),
    (parts, {"claim": "worsens val/los by at least 0.1"}, "components.better", "which way val/los improves"),
    (parts, {"claim": "raises val/los by at least 0.1"}, "components.claim", "not a metric"),
    (parts, {"claim": "hurts val/loss by at least 0.1"}, "components.claim", "'hurts' where a verb should be"),
    (parts, {"claim": "worsens val/loss than full"}, "components.claim", "than full"),
    (parts, {"claim": "worsens val/loss"}, "components.smallest", "no smallest"),
    (parts, {"claim": "worsens val/loss by at least 0.1", "smallest": 0.2}, "components.smallest", "one number"),
    (parts, {"interactions": "all"}, "components.interactions", "with design: leave_one_out"),
    (parts, {"design": "factorial", "interactions": ["rotary*norm"]}, "components.interactions[0]", "rotary*norm"),
    (parts, {"design": "pairwise"}, "components.design", "\"pairwise\""),
    (parts, {"design": "factorial", "interactions": ["rotary*swiglu", "swiglu*rotary"]},
     "components.interactions[1]", "each pair once"),
    (parts, {"design": "factorial", "parts": {f"p{n}": {"with": {f"x.p{n}": 1}} for n in range(10)}},
     "components.parts", "2^10 arms"),
    (parts, {"design": "factorial", "interactions": "all",
     "parts": PARTS | {"rotary_x_swiglu": {"with": {"model.bias": False}}}},
     "components.parts.rotary_x_swiglu", "would be named"),
    (parts, {"role": "exploratory"}, "components.role", "exploratory"),
    (of_components, {"over": {"variants": {"no_rotary": {}}}}, "variants.no_rotary", "no_rotary"),
    (of_components, {"over": {"hypotheses": {"rotary": {"claim": "no_rotary lowers val/loss", "smallest": 1.0}}}},
     "hypotheses.rotary", "rotary"),
    (of_components, {"over": {"factors": {"a": {"x": {}, "y": {"model.width": 32}}}}},
     "factors", "factors is given and components is given"),
    (of_components, {"design": "factorial",
     "over": {"hypotheses": {"h": {"claim": "with:rotry lowers val/loss than plain", "smallest": 0.1}}}},
     "hypotheses.h.claim", "with:rotary"),
    (of_components, {"over": {"hypotheses": {"h": {"claim": "with:rotary lowers val/loss", "smallest": 0.1}}}},
     "hypotheses.h.claim", "not a variant"),
    # Claims for each task.
    (per_task, {"hypotheses": {"no_harm": LINE | {"claim": "layernorm raises harness/macro_accuracy"}},
     "decision": DONE},
     "hypotheses.no_harm.claim", "for each task"),
    (per_task, {"hypotheses": {"no_harm": LINE | {"claim": "layernorm lowers val/loss"}}, "decision": DONE},
     "hypotheses.no_harm.claim", "for each task"),
    (per_task, {"hypotheses": {"no_harm": LINE | {"claim": "layernorm does_not_worsen harness/accuracy_shots_3"}},
     "decision": DONE},
     "measure.harness.shots", "shots are"),
    (per_task, {"hypotheses": {"no_harm": LINE, "no_harm.b": {"claim": "layernorm lowers val/loss",
     "smallest": 0.1}}},
     "hypotheses.no_harm.b", "and there is another one of that name"),
    (per_task, {"tasks": ("x" * 80,)}, "hypotheses.no_harm", "would be named"),
    (per_task, {"hypotheses": {"guardrail": LINE}}, "hypotheses.guardrail", "is a role"),
    (families, {"no_harm": LINE}, "hypotheses.no_harm.per", "not known here"),
    (per_task, {"decision": [{"verdict": "adopt", "when": "supported(no_harm)"}, *DONE]},
     "decision[0].when", "is a family of 3 hypotheses"),
    (per_task, {"decision": [{"verdict": "adopt", "when": "all supported(macro)"}, *DONE]},
     "decision[0].when", "is no family"),
    (per_task, {"decision": [{"verdict": "adopt", "when": "any stable(no_harm)"}, *DONE]},
     "decision[0].when", "where supported, refuted or inconclusive should be"),
    (per_task, {"decision": [{"verdict": "adopt", "when": "all (supported(macro))"}, *DONE]},
     "decision[0].when", "where supported, refuted or inconclusive should be"),
    (per_task, {"decision": [{"verdict": "keep", "when": "any refuted(no_harm)"}, {"verdict": "drop",
     "when": "all refuted(no_harm)"}, *DONE]},
     "decision[1].when", "can never decide"),
    (families, {f"h{at}.{task}": of_task(task, family=f"h{at}") for at, task in enumerate("abcd")},
     "hypotheses.h0.a.family", "'b'"),
    (families, {"h0.a": of_task("a", family="h0"), "b": of_task("b"), "c": of_task("c")},
     "hypotheses.h0.a.family", "no claim about the task 'b'"),
    (families, {"pack": "lm_eval:piqa,arc_easy", "h0.piqa": of_task("piqa", family="h0")},
     "hypotheses.h0.piqa.family", "no claim about the task 'arc_easy'"),
    (families, {"pack": "lm_eval:piqa", "h0.piqa": of_task("piqa", family="h0"), "h0.boolq": of_task("boolq",
     family="h0")},
     "hypotheses.h0.piqa.family", "'boolq'"),
    (families, {"h0.a": of_task("a", family="secondary"), "h": of_task("a", role="secondary")},
     "hypotheses.h0.a.family", "the family is named 'secondary'"),
    (families, {"h": of_task("a"), "h0.a": of_task("a", family="primary")},
     "hypotheses.h0.a.family", "the family is named 'primary'"),
    (families, {"gain": of_task("a"), "h0.a": of_task("a", family="gain")},
     "hypotheses.h0.a.family", "the family is named 'gain'"),
    (families, {"h0.a": of_task("a", family="")}, "hypotheses.h0.a.family", "the family is named ''"),
    (families, {"h0.None": {"claim": "layernorm lowers val/loss", "smallest": 0.02, "family": "h0"}},
     "hypotheses.h0.None.family", "other claims than one for each task"),
    # What is read of a curve, spikes, levels, runs that diverge, looks.
    (one_claim, {"hypothesis": {"read": {"step": 30}}}, "hypotheses.h.read.step", "step 30"),
    (one_claim, {"hypothesis": {"read": {"step": 80}}}, "hypotheses.h.read.step", "step 80"),
    (one_claim, {"hypothesis": {"read": "best"}, "claim": "layernorm changes embedding/norm"},
     "hypotheses.h.read", "which way"),
    (one_claim, {"hypothesis": {"read": "area"}, "claim": "layernorm raises speed/tokens_per_s"},
     "hypotheses.h.read", "has no curve"),
    (one_claim, {"hypothesis": {"read": "median"}}, "hypotheses.h.read", "median"),
    (one_claim, {"hypothesis": {"read": "best"}, "variants": {"none": {}, "layernorm": {"budget.steps": 40}}},
     "hypotheses.h.read", "evaluated at other steps"),
    (one_claim, {"stable": {"loss_spike": {"above": 5.0, "false_alarms": 0.02}}},
     "stable.loss_spike", "above is 5 and false_alarms is 0.02"),
    (one_claim, {"stable": {"reached": {"val/loss": 2.5}}}, "stable.reached", "by no step"),
    (one_claim, {"stable": {"reached": {"by": 20}}}, "stable.reached", "no metric, by 20"),
    (one_claim, {"stable": {"reached": {"val/loss": 2.5, "by": 20.5}}}, "stable.reached", "by 20.5"),
    (one_claim, {"stable": {"reached": {"val/loss": 2.5, "by": 10}}},
     "stable.reached.by", "step 10, and the shortest arm trains 60 steps"),
    (one_claim, {"stable": {"reached": {"val/loss": 2.5, "by": 80}}},
     "stable.reached.by", "step 80, and the shortest arm trains 60"),
    (one_claim, {"stable": {"reached": {"grad/norm": 2.5, "by": 20}}}, "stable.reached", "nothing says which way"),
    (one_claim, {"stable": {"reached": {"speed/tokens_per_s": 2.5, "by": 20}}}, "stable.reached", "has no curve"),
    (one_claim, {"stable": {"reached": {"val/nonsense": 2.5, "by": 20}}}, "stable.reached", "nothing says which way"),
    (one_claim, {"analysis": {"least_pairs": 6}}, "analysis.least_pairs", "least_pairs"),
    (one_claim, {"analysis": {"least_pairs": 1}}, "analysis.least_pairs", "found 1"),
    (one_claim, {"seeds": 10, "stopping": {"looks": [3, 10]}, "analysis": {"test": "sign_flip"}},
     "analysis.test", "test is 'sign_flip' and stopping has 'looks'"),
    # Metrics and tasks.
    (tiny, {"claim": "layernorm does_not_worsen own/worst"}, "hypotheses.gain.claim", "'own/worst' is not a metric"),
    (tiny, {"hypotheses": TRAIN, "measure": {"harness": {"tasks": "tasks/mine", "shots": [0, 0]}}},
     "measure.harness.shots", "number of examples 0 is given twice"),
    (tiny, {"hypotheses": TRAIN, "measure": {"harness": {"tasks": "../elsewhere"}}},
     "measure.harness.tasks", "does not lie under the root"),
    (tiny, {"hypotheses": TRAIN, "measure": {"harness": {"tasks": "/tasks/mine"}}},
     "measure.harness.tasks", "does not lie under the root"),
    (tiny, {"hypotheses": TRAIN, "measure": {"harness": {"tasks": "a b"}}}, "measure.harness.tasks",
     "names no tasks"),
    (tiny, {"hypotheses": TRAIN, "measure": {"harness": {"tasks": "lm_eval:"}}},
     "measure.harness.tasks", "names no tasks"),
    (tiny, {"hypotheses": TRAIN, "measure": {"harness": {"tasks": "tasks/mine", "shots": []}}},
     "measure.harness.shots", "at least 1"),
    (over_items, {"claim": "layernorm raises harness/accuracy_shots_3"}, "measure.harness.shots", "shots are [0]"),
    (over_items, {"claim": "layernorm raises harness/acuracy"}, "hypotheses.h.claim", "is not a metric"),
    # A trainer of one's own, its metrics, names for people.
    (own, {"base": OPTIM, "command": ["python", "--lr={lrr}"]}, "command[1]", "'{lrr}' at character 6 of word 2"),
    (own, {"base": OPTIM, "command": ["python", "{optim}"]},
     "command[1]", "is a section of the configuration of 'slow'"),
    (own, {"base": OPTIM, "command": ["python", "{}"]}, "command[1]", "it is empty"),
    (own, {"base": OPTIM, "command": ["python", "a{"]}, "command[1]", "a lone '{' at character 2 of word 2"),
    (own, {"base": OPTIM, "command": ["python", "}b"]}, "command[1]", "a lone '}' at character 1 of word 2"),
    (own, {"base": OPTIM, "command": ["python", "{seed!r}"]}, "command[1]", "'{seed!r}' at character 1"),
    (own, {"base": OPTIM, "command": ["python", "{--amp if lr}"]},
     "command[1]", "'lr' in word 2, '{--amp if lr}', is 0.1"),
    (own, {"base": OPTIM, "command": ["python", "{--amp if no}"]}, "command[1]", "is no value of the configuration"),
    (own, {"base": OPTIM, "command": ["python", "{optim.name.x}"]}, "command[1]", "is no value of the configuration"),
    (own, {"base": OPTIM, "command": ["x", "{optim.name}"], "variants": {"slow": {}, "fast": {"optim": {"kind": 1}}}},
     "command[1]", "optim"),
    (own, {"base": {"seed": 1, "lr": 1}, "command": ["x", "{seed}"]}, "command[1]", "is also a field of base"),
    (own, {"metrics": {"file": "/somewhere/x"}}, "metrics.file", "'/somewhere/x'"),
    (own, {"metrics": {"file": "a/../../x"}}, "metrics.file", "'a/../../x'"),
    (own, {"code": ["../x"]}, "code[0]", "'../x'"),
    (own, {"code": [""]}, "code[0]", "''"),
    (own, {"metrics": {"declare": {"a": {"unit": "s", "range": [1, 1]}}}}, "metrics.declare.a.range", "from 1 to 1"),
    (own, {"metrics": {"declare": {"a b": {"unit": "s"}}}}, "metrics.declare.a b", "'a b'"),
    (own, {"metrics": {"step_name": "2 epochs"}}, "metrics.step_name", "found \"2 epochs\""),
    (own, {"metrics": {"declare": {"a": {"unit": "s", "better": "up"}}}}, "metrics.declare.a.better", "found \"up\""),
    (own, {"hypotheses": {"gain": {"claim": "fast does_not_worsen dev/loss", "smallest": 0.1}}},
     "hypotheses.gain.better", "nothing says which way dev/loss improves"),
    (labels, {"arms": {"none": ""}}, "labels.arms.none", "at least 1 character"),
    (labels, {"arms": {"none": "  "}}, "labels.arms.none", "without blanks"),
    (labels, {"arms": {"none": "x" * 61}}, "labels.arms.none", "61 characters"),
    (labels, {"arms": {"none": "two\nlines"}}, "labels.arms.none", "one line"),
    (labels, {"arms": {"none": "\x1b[31mred"}}, "labels.arms.none", "one line"),
    (labels, {"arms": {"none": "Same", "layernorm": "Same"}}, "labels.arms.layernorm", "'none' too"),
    (labels, {"arms": {"none": "layernorm"}}, "labels.arms.none", "the id of another"),
    (labels, {"arms": {"nobody": "Nobody"}}, "labels.arms.nobody", "one of none"),
    (labels, {"claims": {"gain": "Gain"}}, "labels.claims.gain", "gain_ln"),
    (labels, {"metrics": {"val/los": "Loss"}}, "labels.metrics.val/los", "val/loss"),]
# fmt: on


@pytest.mark.parametrize(("build", "changes", "field", "words"), REFUSALS)
def test_what_is_no_design_is_refused_at_its_field(
    build: Callable[..., object], changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(StudyError) as refused:
        build(**changes)
    error = refused.value
    assert str(error.where) == field
    assert words in f"{error.found} {error.required} {error.fix}"


TAKEN: list[tuple[Callable[..., object], dict[str, Any]]] = [
    (over_items, {"analysis": {"also": ["items"]}}),
    (over_items, {"analysis": CROSSED | {"also": ["paired_t", "sign_flip"]}}),
    (over_items, {"claim": "layernorm does_not_worsen harness/macro_accuracy",
                  "measure": {"every": 20, "harness": {"tasks": "blimp", "clusters": "tasks"}}}),
    (over_items, {"claim": "(layernorm - none) raises harness/accuracy than (rmsnorm - none)"}),
    (one_claim, {"analysis": {"test": "wilcoxon", "zeros": "wilcox"}}),
    (families, {"pack": "lm_eval:piqa", "h0.piqa": of_task("piqa", family="h0")}),
    (tiny, {"claim": "layernorm lowers val/loss", "read": {"last": 3}, "measure": ALL}),
    (tiny, {"budget": {"batch": 8, "tokens": 3840, "steps": 30}}),
    (own, {"base": {"seed": 1, "lr": 1}, "command": ["x", "{lr}"]}),
    (arms, {"base": {"flag": 0}, "variants": {"one": {"flag": 1}, "true": {"flag": True}}}),
]  # fmt: skip
"""Next to a refusal, and taken."""


@pytest.mark.parametrize(("build", "changes"), TAKEN)
def test_what_lies_next_to_a_refusal_is_taken_and_a_stored_one_is_itself(
    build: Callable[..., object], changes: dict[str, Any]
) -> None:
    study = build(**changes)
    if isinstance(study, Study):
        assert study_from_document(study.model_dump(mode="json")) == study
