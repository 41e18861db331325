"""Declarations: what flows inside a model (suite activations), and how its weights move (suite gradients)."""

from __future__ import annotations

from typing import Final

from prereg.metric import Metric
from prereg.metrics_of_quality import TOKEN_CLASSES

_OVER = "over the positions of the first 16 validation windows"
_RANK = "exp of the entropy of the singular values as shares of their sum"
_COSINE = "mean cosine of two different positions of a window, mean over the first 16 validation windows"
_BEFORE = "what the embedding norm is given (the same where there is none)"


def _inside(name: str, definition: str, reference: str = "", **more: str) -> Metric:
    return Metric(name, "", "neither", "activations", definition, reference=reference, **more)  # type: ignore[arg-type]


INSIDE: Final = (
    _inside(
        "embedding/norm",
        "mean over validation positions (first 16 windows) of the L2 norm of the first block's input",
    ),
    _inside("embedding/norm_sd", f"standard deviation {_OVER} of the L2 norm of the first block's input"),
    *(
        _inside(
            f"embedding/norm_{kind}",
            f"embedding/norm over the positions that hold tokens of the class {kind.replace('_', ' ')}; not recorded "
            "where there are none",
        )
        for kind in TOKEN_CLASSES
    ),
    _inside("embedding/norm_before", f"mean {_OVER} of the L2 norm of {_BEFORE}", "Dettmers et al. 2022"),
    _inside("embedding/norm_before_sd", f"standard deviation {_OVER} of the L2 norm of {_BEFORE}"),
    _inside("embedding/cosine", f"of the first block's input: {_COSINE}; 1 is oversmoothed", "Ethayarajh 2019"),
    _inside("embedding/cosine_before", f"of {_BEFORE}: {_COSINE}", "Ethayarajh 2019"),
    _inside("embedding/effective_rank", f"of the first block's input, {_OVER}: {_RANK}", "Roy and Vetterli 2007"),
    _inside("embedding/effective_rank_before", f"of {_BEFORE}, {_OVER}: {_RANK}", "Roy and Vetterli 2007"),
    _inside("embedding/table_norm", "mean L2 norm of the rows of the token embedding table"),
    _inside(
        "embedding/table_cosine", "mean cosine of two different rows of the token embedding table", "Ethayarajh 2019"
    ),
    _inside("embedding/table_effective_rank", f"of the token embedding table: {_RANK}", "Roy and Vetterli 2007"),
    _inside("logits/rms", f"root mean square of the logits, {_OVER} and the vocabulary"),
    _inside("logits/sd", f"mean {_OVER} of the standard deviation of a position's logits over the vocabulary"),
    _inside("logits/largest", f"largest absolute logit, {_OVER}"),
    _inside(
        "logits/log_z",
        f"mean {_OVER} of the logarithm of the softmax' normaliser: how far the logits have drifted",
        "Chowdhery et al. 2022",
    ),
)

INSIDE_FAMILIES: Final = (
    _inside("residual/norm_N", f"mean {_OVER} of the L2 norm of what block N (from 0) gives", counted="block"),
    _inside(
        "residual/cosine_N",
        f"of what block N (from 0) gives: {_COSINE}; 1 is oversmoothed",
        "Shi et al. 2022",
        counted="block",
    ),
    _inside(
        "residual/effective_rank_N",
        f"of what block N (from 0) gives, {_OVER}: {_RANK}",
        "Roy and Vetterli 2007",
        counted="block",
    ),
    Metric(
        "attention/entropy_N",
        "nats",
        "neither",
        "activations",
        "mean over heads and queries (first 16 validation windows) of the entropy of the attention weights of block N "
        "(from 0)",
        reference="Zhai et al. 2023",
        counted="block",
    ),
)


def _moving(name: str, definition: str, reference: str = "", *, counted: bool = False) -> Metric:
    return Metric(name, "", "neither", "gradients", definition, reference=reference, counted="block" if counted else "")


_MOMENT = "root of the mean of Adam's bias-corrected second moments"
_SINGLE = "change of the step before the evaluation, as L2 norm, over the L2 norm of the weights before it"

MOVING: Final = (
    _moving(
        "grad/norm", "global L2 norm of the gradient before clipping, mean over the steps since the last evaluation"
    ),
    _moving(
        "adam/second_moment",
        f"{_MOMENT}, over all parameters that have one (with Muon, those outside the blocks' matrices; none with SGD)",
        "Kingma and Ba 2015",
    ),
    _moving(
        "adam/largest_second_moment",
        "root of the largest of Adam's bias-corrected second moments",
        "Kingma and Ba 2015",
    ),
    _moving("update/ratio", f"of all weights: {_SINGLE}"),
)

MOVING_FAMILIES: Final = (
    _moving(
        "grad/layer_N",
        "L2 norm of the gradient of block N (from 0) before clipping, mean over the steps since the last evaluation",
        counted=True,
    ),
    _moving("adam/second_moment_N", f"{_MOMENT}, over block N (from 0)", "Kingma and Ba 2015", counted=True),
    _moving("update/ratio_N", f"of block N (from 0): {_SINGLE}", counted=True),
)
