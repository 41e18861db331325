"""Configurations in words: what every run is made of, and what each arm changes.

Every field of `Training` has its words here; one that a later version adds falls back to its dotted path and value. The
configuration of a user's own trainer is a free mapping, and is told by its paths and values.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from prereg.export.claims import quoted
from prereg.registration import CorpusPin
from prereg.spec import Study
from prereg.training import Training
from prereg.words import compact, counted, listed

Say = Callable[[Any], str]


def _number(value: float) -> str:
    return compact(value) if value == 0 or abs(value) > 1e-5 else f"{value:g}"


def _norm(value: str) -> str:
    return {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[value]


_ON_EMBEDDINGS = "the summed embeddings"
_MODEL: dict[str, Say] = {
    "model.layers": lambda n: counted(n, "layer"),
    "model.width": lambda n: f"width {n:,}",
    "model.heads": lambda n: counted(n, "attention head"),
    "model.context": lambda n: f"context {n:,}",
    "model.norm": {"pre": "Pre-LN", "post": "Post-LN"}.__getitem__,
    "model.block_norm": lambda v: f"{_norm(v)} in the blocks",
    "model.embedding_norm": {
        "none": "no embedding normalisation",
        "layernorm": f"LayerNorm on {_ON_EMBEDDINGS}",
        "rmsnorm": f"RMSNorm on {_ON_EMBEDDINGS}",
        "center": f"the mean subtracted from {_ON_EMBEDDINGS}",
    }.__getitem__,
    "model.positions": lambda v: f"{v} positions",
    "model.activation": {"gelu": "exact GELU", "gelu_tanh": "tanh GELU"}.__getitem__,
    "model.tie_embeddings": lambda v: "tied embeddings" if v else "untied embeddings",
    "model.dropout": lambda v: f"dropout {_number(v)}" if v else "no dropout",
}
_DATA: dict[str, Say] = {
    "data.corpus": lambda v: f"corpus {quoted(v)}",
    "data.tokenizer": lambda v: (
        "one token a character" if v == "char" else f"byte-pair tokens with a vocabulary of {v['bpe']:,}"
    ),
    "data.validation": lambda v: f"its last {compact(100 * v)}% held out",
}
_OPTIM: dict[str, Say] = {
    "optim.name": {"adamw": "AdamW", "adam": "Adam"}.__getitem__,
    "optim.lr": lambda v: f"learning rate {_number(v)}",
    "optim.schedule": {
        "constant": "constant schedule",
        "linear": "linear schedule to zero",
        "cosine": "cosine schedule to a tenth of the peak",
    }.__getitem__,
    "optim.warmup": lambda n: f"{counted(n, 'step')} of warmup" if n else "no warmup",
    "optim.betas": lambda v: f"betas {_number(v[0])} and {_number(v[1])}",
    "optim.eps": lambda v: f"epsilon {_number(v)}",
    "optim.weight_decay": lambda v: f"weight decay {_number(v)}" if v else "no weight decay",
    "optim.clip": lambda v: f"gradients clipped at norm {_number(v)}" if v else "no gradient clipping",
}
_LENGTH: dict[str, Say] = {
    "budget.steps": lambda n: counted(n, "step"),
    "budget.batch": lambda n: f"{counted(n, 'sequence')} a step",
}
_NUMERICS: dict[str, Say] = {
    "numerics.dtype": str,
    "numerics.deterministic": lambda v: "deterministic kernels" if v else "kernels that need not be deterministic",
}
SAID: dict[str, Say] = _MODEL | _DATA | _OPTIM | _LENGTH | _NUMERICS
"""Field of `Training` -> its words."""


_BRIEF = (
    ("model.layers", "model.width", "model.heads", "model.context", "model.norm", "model.block_norm", "model.dropout"),
    ("data.corpus", "data.tokenizer", "data.validation"),
    ("optim.name", "optim.lr", "optim.schedule", "optim.warmup", "budget.steps", "budget.batch"),
)


def base_sentences(study: Study, corpus: CorpusPin | None) -> str:
    """What every run is made of, before an arm changes anything."""
    if not isinstance(study.base, Training):
        return _command_sentences(study)
    model, data, optim, length, numerics = _base_parts(study.base, corpus)
    return (
        f"Each run trains a decoder-only transformer language model ({model}) on the {data}. Optimiser: {optim}. "
        f"Length: {length}. Arithmetic: {numerics}."
    )


def base_in_brief(study: Study, corpus: CorpusPin | None) -> str:
    """The same with fewer words, and without what readers of a short form can look up."""
    if not isinstance(study.base, Training):
        return _command_sentences(study)
    at = _leaves(study.base.model_dump(mode="json"))
    model, data, rest = (", ".join(SAID[path](at[path]) for path in part) for part in _BRIEF)
    where = "the registration" if corpus is not None else "the study file"
    return f"Base: decoder-only transformer ({model}); {data}; {rest}. Other settings: see {where}."


def _base_parts(base: Training, corpus: CorpusPin | None) -> tuple[str, str, str, str, str]:
    at = _leaves(base.model_dump(mode="json"))

    def said(part: Mapping[str, Say], prefix: str) -> str:
        later = [path for path in at if path.startswith(prefix) and path not in SAID]
        return ", ".join([say(at[path]) for path, say in part.items()] + [_plainly(path, at[path]) for path in later])

    data = said(_DATA, "data.")
    if corpus is not None and corpus.name == base.data.corpus:
        name = quoted(corpus.name)
        data = data.replace(name, f"{name} ({counted(corpus.characters, 'character')})", 1)
    length = f"{said(_LENGTH, 'budget.')}, {counted(base.tokens, 'token')} a run"
    return said(_MODEL, "model."), data, said(_OPTIM, "optim."), length, said(_NUMERICS, "numerics.")


def _command_sentences(study: Study) -> str:
    assert not isinstance(study.base, Training), study.study
    handed = "; ".join(_told(study.base)) or "empty"
    return (
        f"Each run is made by the researcher's own trainer, started without a shell as `{shlex.join(study.command)}`. "
        f"The configuration handed to it, before an arm changes anything, is: {handed}. It leaves its metrics in the "
        f"file {study.metrics.file}."
    )


def arm_sentences(study: Study) -> list[str]:
    """One sentence an arm: what it changes in the base."""
    return [f"Arm {said}." for said in _arms_said(study, unchanged="the base configuration, unchanged")]


def arms_in_brief(study: Study) -> str:
    """All arms in one sentence."""
    return f"{len(study.arms)} arms: {'; '.join(_arms_said(study, unchanged='the base, unchanged'))}."


def _arms_said(study: Study, *, unchanged: str) -> list[str]:
    said = []
    for name, arm in study.arms.items():
        changes = list(change_words(study, arm.overrides, arm.config))
        role = " (the baseline)" if name == study.baseline else ""
        said.append(f"{quoted(name)}{role}: {listed(changes) or unchanged}")
    return said


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


def _told(tree: Mapping[str, JsonValue]) -> list[str]:
    return [_plainly(path, value) for path, value in _leaves(tree).items()]


def _plainly(path: str, value: JsonValue) -> str:
    return f"{path} set to {json.dumps(value, ensure_ascii=False)}"
