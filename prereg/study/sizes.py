"""How many parameters an arm has and what training it costs, from its configuration alone.

An arm that has more parameters than the baseline, or costs more, may win by that alone: `ablate check` states both.
"""

from __future__ import annotations

from prereg.study.training import Model


def parameters(model: Model, vocabulary: int) -> int:
    """Trainable parameters, tied ones counted once."""
    width, inner, feed, bias = model.width, model.heads * model.size_of_head, model.inner_width, int(model.bias)
    ways_in = 2 if model.activation == "swiglu" else 1
    attention = 3 * inner * (width + bias) + width * (inner + bias) + (2 * model.size_of_head if model.qk_norm else 0)
    feed_forward = ways_in * feed * (width + bias) + width * (feed + bias)
    kind = model.block_norm if model.norm != "none" else "none"
    norms = (4 if model.norm == "sandwich" else 2) * _norm(kind, width)
    block = attention + feed_forward + norms + (2 if model.residual_scale == "rezero" else 0)
    around = _norm(model.embedding_norm, width) + _norm(_final_norm(model), width)
    positions = model.context * width if model.positions == "learned" else 0
    embeddings = (width if model.tie_embeddings else 2 * width) * vocabulary
    return model.layers * block + around + positions + embeddings


def flops_per_token(model: Model, vocabulary: int) -> int:
    """FLOPs of training on one token, forward and backward (Chowdhery et al. 2022, appendix B)."""
    inner, feed = model.heads * model.size_of_head, model.inner_width
    matrices = 4 * model.width * inner + (3 if model.activation == "swiglu" else 2) * model.width * feed
    attention = 12 * model.layers * inner * model.context
    return 6 * model.layers * matrices + attention + 6 * model.width * vocabulary


def _norm(kind: str, width: int) -> int:
    return {"layernorm": 2 * width, "rmsnorm": width, "center": 0, "none": 0}[kind]


def _final_norm(model: Model) -> str:
    if model.final_norm != "block":
        return model.final_norm
    return model.block_norm if model.norm in ("pre", "sandwich") else "none"
