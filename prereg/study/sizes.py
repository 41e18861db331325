"""How large an arm is and what training it costs, from its configuration alone.

An arm that has more parameters than the baseline, or costs more, may win by that alone: `ablate check` states both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prereg.study.training import Bpe, Data, Model, TokenizerFile, Training

Count = Literal["parameters", "flops"]


@dataclass(frozen=True)
class Linear:
    """A count that is linear in the vocabulary: not known before the text where a token is a character."""

    fixed: int
    by_vocabulary: int

    def at(self, vocabulary: int) -> int:
        """The count with so many tokens."""
        return self.fixed + self.by_vocabulary * vocabulary


def parameters(model: Model, vocabulary: int) -> int:
    """Trainable parameters, tied ones counted once."""
    return count(model, "parameters").at(vocabulary)


def flops_per_token(model: Model, vocabulary: int) -> int:
    """FLOPs of training on one token, forward and backward."""
    return count(model, "flops").at(vocabulary)


def count(model: Model, kind: Count) -> Linear:
    """One of the two counts, as a function of the vocabulary."""
    return _parameters(model) if kind == "parameters" else _flops(model)


def vocabulary_of(data: Data) -> int | None:
    """Number of tokens, where the configuration alone says it."""
    return data.tokenizer.bpe if isinstance(data.tokenizer, Bpe) else None


def other_file(data: Data, other: Data) -> bool:
    """Whether two tokenizers, one of them of a file, may differ in their number of tokens: files are not read here."""
    chosen = (data.tokenizer, other.tokenizer)
    return chosen[0] != chosen[1] and any(isinstance(one, TokenizerFile) for one in chosen)


def _parameters(model: Model) -> Linear:
    width, inner, feed, bias = model.width, model.heads * model.size_of_head, model.inner_width, int(model.bias)
    ways_in = 2 if model.activation == "swiglu" else 1
    attention = 3 * inner * (width + bias) + width * (inner + bias) + (2 * model.size_of_head if model.qk_norm else 0)
    feed_forward = ways_in * feed * (width + bias) + width * (feed + bias)
    kind = model.block_norm if model.norm != "none" else "none"
    norms = (4 if model.norm == "sandwich" else 2) * _norm(kind, width)
    block = attention + feed_forward + norms + (2 if model.residual_scale == "rezero" else 0)
    around = _norm(model.embedding_norm, width) + _norm(_final_norm(model), width)
    positions = model.context * width if model.positions == "learned" else 0
    return Linear(model.layers * block + around + positions, width if model.tie_embeddings else 2 * width)


def _flops(model: Model) -> Linear:
    inner, feed = model.heads * model.size_of_head, model.inner_width
    matrices = 4 * model.width * inner + (3 if model.activation == "swiglu" else 2) * model.width * feed
    attention = 12 * model.layers * inner * model.context
    return Linear(6 * model.layers * matrices + attention, 6 * model.width)


def _norm(kind: str, width: int) -> int:
    return {"layernorm": 2 * width, "rmsnorm": width, "center": 0, "none": 0}[kind]


def _final_norm(model: Model) -> str:
    if model.final_norm != "block":
        return model.final_norm
    return model.block_norm if model.norm in ("pre", "sandwich") else "none"


def mismatch(arm: Training, baseline: Training, by: Count, *, vocabulary: int | None = None) -> float | None:
    """(arm - baseline) / baseline. Where tokens cancel and are not known, over a count without them: an upper bound."""
    mine, theirs = count(arm.model, by), count(baseline.model, by)
    sizes = [vocabulary_of(arm.data) or vocabulary, vocabulary_of(baseline.data) or vocabulary]
    if None in sizes and (mine.by_vocabulary != theirs.by_vocabulary or other_file(arm.data, baseline.data)):
        return None
    ours, others = (size or 0 for size in sizes) if None not in sizes else (0, 0)
    whole = theirs.at(others)
    return (mine.at(ours) - whole) / whole
