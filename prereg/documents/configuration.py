"""Configurations in words: what every run is made of, and what each arm changes.

Every field of `Training` has its words here; one that a later version adds falls back to its dotted path and value. The
configuration of a user's own trainer is a free mapping, and is described by its paths and values.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from pydantic import JsonValue

from prereg.escape import quoted, visible
from prereg.registry.registration import CorpusPin
from prereg.study.spec import Study
from prereg.study.training import Training
from prereg.text import compact, counted, listed

Say = Callable[[Any], str]


def _number(value: float) -> str:
    return compact(value) if value == 0 or abs(value) > 1e-5 else f"{value:g}"


def _norm(value: str) -> str:
    return {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm", "none": "no normalisation"}[value]


def _init(value: Any) -> str:
    if isinstance(value, dict):
        return f"all matrices drawn from a normal distribution with standard deviation {_number(value['normal'])}"
    return {
        "gpt2": "GPT-2's initialisation",
        "small_embedding": "GPT-2's initialisation with small embeddings",
        "torch": "PyTorch's default initialisation of each layer",
    }[value]


def _mixture(weights: Mapping[str, float]) -> str:
    whole = sum(weights.values())
    shares = [f"{quoted(name)} ({compact(100 * weight / whole)}%)" for name, weight in sorted(weights.items())]
    return f"mixture of {listed(shares)}, each window drawn in that proportion"


_ON_EMBEDDINGS = "the summed embeddings"
_MODEL: dict[str, Say] = {
    "model.layers": lambda n: counted(n, "layer"),
    "model.width": lambda n: f"width {n:,}",
    "model.heads": lambda n: counted(n, "attention head"),
    "model.head_size": lambda n: f"heads of size {n:,}" if n else "heads of size width / heads",
    "model.context": lambda n: f"context {n:,}",
    "model.norm": {
        "pre": "Pre-LN",
        "post": "Post-LN",
        "sandwich": "Sandwich-LN",
        "none": "no norms around the sub-layers",
    }.__getitem__,
    "model.block_norm": lambda v: f"{_norm(v)} in the blocks",
    "model.embedding_norm": {
        "none": "no embedding normalisation",
        "layernorm": f"LayerNorm on {_ON_EMBEDDINGS}",
        "rmsnorm": f"RMSNorm on {_ON_EMBEDDINGS}",
        "center": f"the mean subtracted from {_ON_EMBEDDINGS}",
    }.__getitem__,
    "model.final_norm": {
        "block": "the blocks' own norm before the output",
        "layernorm": "LayerNorm before the output",
        "rmsnorm": "RMSNorm before the output",
        "none": "no norm before the output",
    }.__getitem__,
    "model.positions": {
        "learned": "learned positions",
        "sinusoidal": "sinusoidal positions",
        "rope": "rotary positions",
        "none": "no positions",
    }.__getitem__,
    "model.qk_norm": lambda v: "RMSNorm on queries and keys" if v else "no norm on queries and keys",
    "model.activation": {
        "gelu": "exact GELU",
        "gelu_tanh": "tanh GELU",
        "relu2": "squared ReLU",
        "swiglu": "SwiGLU",
    }.__getitem__,
    "model.feed_width": lambda n: (
        f"feed-forward width {n:,}" if n else "the feed-forward width that follows from the width"
    ),
    "model.bias": lambda v: "linear layers with biases" if v else "linear layers without biases",
    "model.tie_embeddings": lambda v: "tied embeddings" if v else "untied embeddings",
    "model.residual_scale": {
        "none": "sub-layers added to the residual stream as they are",
        "depth": "sub-layers scaled by 1 / sqrt(2 x layers)",
        "rezero": "sub-layers scaled by learned scalars that start at zero",
    }.__getitem__,
    "model.init": _init,
    "model.dropout": lambda v: f"dropout {_number(v)}" if v else "no dropout",
}
_DATA: dict[str, Say] = {
    "data.corpus": lambda v: f"corpus {quoted(v)}",
    "data.mixture": lambda v: _mixture(v) if v else "no mixture",
    "data.tokenizer": lambda v: (
        {"char": "one token a character", "own": "the token ids that it is stored as"}[v]
        if isinstance(v, str)
        else f"byte-pair tokens with a vocabulary of {v['bpe']:,}"
        if "bpe" in v
        else f"tokens of the tokenizer file {quoted(v['file'])}"
    ),
    "data.validation": lambda v: (
        "its own validation part held out" if v == "own" else f"its last {compact(100 * v)}% held out"
    ),
}
_OPTIM: dict[str, Say] = {
    "optim.name": {
        "adamw": "AdamW",
        "adam": "Adam",
        "sgd": "SGD with momentum",
        "muon": "Muon for the matrices of the blocks and AdamW for the rest",
    }.__getitem__,
    "optim.lr": lambda v: f"learning rate {_number(v)}",
    "optim.schedule": {
        "constant": "constant schedule",
        "linear": "linear schedule to zero",
        "cosine": "cosine schedule to a tenth of the peak",
        "wsd": "constant schedule with a linear fall to zero at the end",
    }.__getitem__,
    "optim.decay": lambda v: f"a fall, where there is one, over the last {compact(100 * v)}% of the steps",
    "optim.warmup": lambda n: f"{counted(n, 'step')} of warmup" if n else "no warmup",
    "optim.betas": lambda v: f"betas {_number(v[0])} and {_number(v[1])}",
    "optim.eps": lambda v: f"epsilon {_number(v)}",
    "optim.weight_decay": lambda v: f"weight decay {_number(v)}" if v else "no weight decay",
    "optim.clip": lambda v: f"gradients clipped at norm {_number(v)}" if v else "no gradient clipping",
    "optim.ema": lambda v: (
        f"evaluated on a moving average of the weights that keeps {compact(v)} of itself a step"
        if v
        else "evaluated on the weights themselves"
    ),
}
_LENGTH: dict[str, Say] = {
    "budget.steps": lambda n: counted(n, "step"),
    "budget.batch": lambda n: f"{counted(n, 'sequence')} a step",
    "budget.tokens": lambda n: f"a budget of exactly {counted(n, 'token')}" if n else "a budget in steps",
    "budget.max_memory_gib": lambda v: f"at most {_number(v)} GiB of memory" if v else "no promise about memory",
    "budget.max_wall_s": lambda v: f"at most {_number(v)} seconds of time" if v else "no promise about time",
    "budget.micro_batch": lambda n: f"computed {counted(n, 'sequence')} at a time" if n else "computed at once",
}
_NUMERICS: dict[str, Say] = {
    "numerics.dtype": str,
    "numerics.deterministic": lambda v: "deterministic kernels" if v else "kernels that need not be deterministic",
    "numerics.recompute": {
        "none": "activations kept for the backward pass",
        "blocks": "activations inside the blocks computed again in the backward pass",
    }.__getitem__,
    "numerics.compile": lambda v: "compiled by torch.compile" if v else "not compiled",
}
SAID: dict[str, Say] = _MODEL | _DATA | _OPTIM | _LENGTH | _NUMERICS
"""Field of `Training` -> its words."""
_UNSAID: dict[str, Any] = {
    "model.head_size": None,
    "data.mixture": None,
    "model.final_norm": "block",
    "model.qk_norm": False,
    "model.feed_width": None,
    "model.bias": True,
    "model.residual_scale": "none",
    "model.init": "gpt2",
    "optim.decay": 0.2,
    "optim.ema": 0.0,
    "budget.tokens": None,
    "budget.max_memory_gib": None,
    "budget.max_wall_s": None,
    "budget.micro_batch": None,
    "numerics.recompute": "none",
    "numerics.compile": False,
}
"""Fields with the defaults that nobody asks about: a base is described by them only where it has another value."""


def base_sentences(study: Study, corpus: CorpusPin | None) -> str:
    """What every run is made of, before an arm changes anything."""
    if not isinstance(study.base, Training):
        return _command_sentences(study)
    return f"Each run trains a {_base_in_words(study.base, corpus, tokens=study.base.tokens)}"


def training_sentences(study: Study, corpus: CorpusPin | None) -> str:
    """What the judged runs were trained with: the base as far as an arm keeps it, then what each arm has in its place.

    A value of the base that no arm keeps was trained nowhere, such as the learning rate where a pilot chose each arm's.
    """
    said = arms_sentence(study)
    base, configs = study.base, [_leaves(_plain(arm.config)) for arm in study.arms.values()]
    unused = {path for path, value in _leaves(_plain(base)).items() if all(at.get(path) != value for at in configs)}
    if not isinstance(base, Training):
        return f"{_command_sentences(study, without=unused)} {said}"
    if all(at["optim.name"] == "sgd" for at in configs):
        unused.add("optim.eps")  # SGD reads neither epsilon nor the second beta, and takes the first as its momentum
    tokens = {arm: study.training(arm).tokens for arm in study.arms}
    same = next(iter(tokens.values())) if len(set(tokens.values())) == 1 else None
    if same is None:
        said += f" Tokens of a run: {'; '.join(f'{quoted(arm)} {n:,}' for arm, n in tokens.items())}."
    changed = any(at != _leaves(_plain(base)) for at in configs)
    opening = "But for what its arm changes, each run" if changed else "Each run"
    return f"{opening} trains a {_base_in_words(base, corpus, without=unused, tokens=same)} {said}"


def _base_in_words(
    base: Training, corpus: CorpusPin | None, *, tokens: int | None, without: Set[str] = frozenset()
) -> str:
    model, data, optim, length, numerics = _base_parts(base, corpus, without)
    length += [] if tokens is None else [f"{counted(tokens, 'token')} a run"]
    said = {"Optimiser": optim, "Length": length, "Arithmetic": numerics}
    about = f" ({', '.join(model)})" if model else ""
    rest = "".join(f" {name}: {', '.join(parts)}." for name, parts in said.items() if parts)
    return f"decoder-only transformer language model{about} on the {', '.join(data)}.{rest}"


def _is_described(path: str, at: Mapping[str, Any]) -> bool:
    """Whether a base is described by a field: not by one of `_UNSAID` at its default, unless something reads it."""
    if path == "data.corpus" and at["data.mixture"]:
        return False
    in_play = path == "optim.decay" and at["optim.schedule"] == "wsd"
    return path not in _UNSAID or at.get(path, _UNSAID[path]) != _UNSAID[path] or in_play


def _base_parts(base: Training, corpus: CorpusPin | None, without: Set[str]) -> tuple[list[str], ...]:
    """Words of model, data, optimiser, length and arithmetic, but for the fields that are left out."""
    at = _leaves(base.model_dump(mode="json"))

    def said(part: Mapping[str, Say], prefix: str) -> list[str]:
        later = [path for path in at if path.startswith(prefix) and path not in SAID]
        lines = [path for path in part if _is_described(path, at)]
        if "optim.eps" in without and at["optim.name"] == "sgd":
            part = {**part, "optim.betas": lambda v: f"momentum {_number(v[0])}"}
        return [part[path](at[path]) for path in lines if path not in without] + [
            _plainly(path, at[path]) for path in later if path not in without
        ]

    elsewhere = bool(without & {"data.corpus", "data.mixture"})
    without |= {"data.corpus"} if elsewhere else set()
    data = [*["corpus of its arm"] * elsewhere, *said(_DATA, "data.")]
    if corpus is not None and corpus.name == base.data.corpus and base.data.mixture is None:
        name = quoted(corpus.name)
        data[0] = data[0].replace(name, f"{name} ({extent(corpus)})", 1)
    return (
        said(_MODEL, "model."),
        data,
        said(_OPTIM, "optim."),
        said(_LENGTH, "budget."),
        said(_NUMERICS, "numerics."),
    )


def extent(corpus: CorpusPin) -> str:
    """How long a corpus is, in what it is stored as."""
    return counted(corpus.characters, "character") if corpus.tokens is None else counted(corpus.tokens, "token")


def _command_sentences(study: Study, *, without: Set[str] = frozenset()) -> str:
    assert not isinstance(study.base, Training), study.study
    described = [_plainly(path, value) for path, value in _leaves(study.base).items() if path not in without]
    handed, words = "; ".join(described) or "empty", visible(shlex.join(study.command))
    return (
        f"Each run is made by the researcher's own trainer, started without a shell as `{words}`. "
        f"The configuration handed to it, before an arm changes anything, is: {handed}. It leaves its metrics in the "
        f"file {study.metrics.file}." + _metrics_layout(study)
    )


def _metrics_layout(study: Study) -> str:
    """How that file is read and where the command starts, as far as a study says more than the default."""
    said = [f"{metric} is read from its column {column}." for metric, column in study.metrics.columns.items()]
    if study.metrics.step != "step":
        said.append(f"The step is read from its column {study.metrics.step}.")
    if study.working_directory == "root":
        said.append("The trainer starts in the root folder of the project, with the pinned code as a private copy.")
    return "".join(f" {visible(one)}" for one in said)


def arm_sentences(study: Study) -> list[str]:
    """One sentence an arm: what it changes in the base."""
    reasons = {} if study.components is None else study.components.reasons()
    unchanged = "the base configuration, unchanged"
    return [f"Arm {said}." for said in _arms_said(study, unchanged=unchanged, reasons=reasons)]


def arms_sentence(study: Study) -> str:
    """All arms in one sentence."""
    return f"{counted(len(study.arms), 'arm')}: {'; '.join(_arms_said(study, unchanged='the base, unchanged'))}."


def _arms_said(study: Study, *, unchanged: str, reasons: Mapping[str, str] | None = None) -> list[str]:
    said = []
    for name, arm in study.arms.items():
        changes = list(change_words(study, arm.overrides, arm.config))
        frozen = {} if study.tune is None else study.tune.chosen.get(name, {})
        changes += [f"{one} (chosen by the pilot)" for one in change_words(study, frozen, arm.config)]
        changes += change_words(study, _follows(study, {**arm.overrides, **frozen}, arm.config), arm.config)
        # A registration names ids, which its rule and the ledger use, where a paper has labels alone.
        notes = [name] * (reasons is not None and name in study.labels.arms)
        notes += [*(["the baseline"] if name == study.baseline else []), *filter(None, [(reasons or {}).get(name)])]
        role = f" ({visible('; '.join(notes))})" if notes else ""
        said.append(f"{quoted(study.labels.arm(name))}{role}: {listed(changes) or unchanged}")
    return said


def _follows(
    study: Study, written: Mapping[str, JsonValue], config: Training | dict[str, JsonValue]
) -> dict[str, JsonValue]:
    """What differs from the base and is not written, such as steps that follow from a budget in tokens."""
    before = _leaves(_plain(study.base))
    return {
        path: value
        for path, value in _leaves(_plain(config)).items()
        if value != before.get(path)
        and not any(path == one or path.startswith(f"{one}.") or one.startswith(f"{path}.") for one in written)
    }


def factor_sentences(study: Study) -> list[str]:
    """One sentence a factor, with its levels; none where the arms are listed one by one."""
    sentences = []
    for factor, levels in study.factors.items():
        said = []
        for level, overrides in levels.items():
            arm = next(arm for arm in study.arms.values() if overrides.items() <= arm.overrides.items())
            changes = listed(change_words(study, overrides, arm.config)) or "the base, unchanged"
            said.append(f"{quoted(level)} ({changes})")
        sentences.append(f"Factor {quoted(factor)} has {counted(len(levels), 'level')}: {listed(said)}.")
    return sentences


def change_words(
    study: Study, overrides: Mapping[str, JsonValue], config: Training | dict[str, JsonValue]
) -> Iterator[str]:
    """Each override in words."""
    if not isinstance(study.base, Training) or not isinstance(config, Training):
        yield from (_plainly(path, value) for path, value in overrides.items())
        return
    at = _leaves(config.model_dump(mode="json"))
    for path, value in overrides.items():
        known = next((field for field in SAID if path == field or path.startswith(field + ".")), None)
        yield _plainly(path, value) if known is None else SAID[known](at[known])


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted path -> value; a field that has words is a leaf, whatever its value."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        path = prefix + key
        found |= _leaves(value, path + ".") if isinstance(value, dict) and path not in SAID else {path: value}
    return found


def _plain(config: Training | dict[str, JsonValue]) -> Mapping[str, JsonValue]:
    """A configuration as a run is given it, and as its `run.json` holds it."""
    return config.model_dump(mode="json") if isinstance(config, Training) else config


def _plainly(path: str, value: JsonValue) -> str:
    return f"{path} set to {json.dumps(value, ensure_ascii=False)}"
