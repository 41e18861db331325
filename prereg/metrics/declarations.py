"""What the declaration of a metric says, and the suites that metrics come in. The metrics:
`prereg.metrics.catalogue`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Better = Literal["lower", "higher", "neither"]
Suite = Literal["loss", "calibration", "activations", "gradients", "speed", "length", "cost"]
Counted = Literal["", "block", "bin"]


@dataclass(frozen=True)
class Metric:
    """The declaration of one metric."""

    name: str
    unit: str
    better: Better
    suite: Suite | Literal["own"]
    definition: str
    repeatable: bool = True
    """Whether the same seed on the same machine gives the same bits (timings do not)."""
    raw_scale: bool = True
    """Whether a mean of raw differences is a sensible estimand (perplexity wants its logarithm)."""
    reference: str = ""
    """Who defined it, author and year; nothing where the definition is plain arithmetic."""
    counted: Counted = ""
    """What the number in its name counts, for one of a family."""


@dataclass(frozen=True)
class SuiteDeclaration:
    """What a suite looks at, and what it costs."""

    about: str
    cost: str
    only_at_end: bool = False
    """Whether it can only be measured at a run's last step."""


SUITES: Final[dict[Suite, SuiteDeclaration]] = {
    "loss": SuiteDeclaration("how well the model predicts", "one forward pass over the whole validation split"),
    "calibration": SuiteDeclaration(
        "whether its probabilities mean what they say",
        "one forward pass over the whole validation split, and 17 softmaxes per token on half of it, 6 on the rest",
    ),
    "activations": SuiteDeclaration(
        "what flows inside", "one forward pass over the first 16 validation windows, with everything between kept"
    ),
    "gradients": SuiteDeclaration(
        "how the weights move",
        "one gradient norm per block per step, and a copy of the weights in the step before an evaluation",
    ),
    "speed": SuiteDeclaration("how long training and measuring take", "nothing: clocks are read anyway"),
    "length": SuiteDeclaration(
        "what happens beyond the context length that was trained",
        "one forward pass over the whole validation split, in windows of twice the context",
    ),
    "cost": SuiteDeclaration(
        "what a trained model costs to use, and training in arithmetic, memory and energy",
        "the registered number of forward passes over one batch, and four matrix products",
        only_at_end=True,
    ),
}
"""Every suite; a study names those it wants, at every evaluation (`suites`) or at the last step alone (`at_end`)."""


TOKEN_CLASSES: Final = ("alphabetic", "numeric", "punctuation", "whitespace", "end_of_document", "other")
"""Classes of tokens by their text. A token's class is that of its first character that is no white space: a letter or
mark, a number, or anything else; white space where it has no other character, end of document where it has no text, and
other where it is a piece of a character."""

TEMPERATURES: Final = {"050": 0.5, "071": 0.5**0.5, "141": 2.0**0.5, "200": 2.0}
"""Ending of the metric's name -> temperature at which the loss is told."""

_CLASS_SAID = {"end_of_document": "end-of-document tokens", "other": "tokens that are pieces of a character"}


def _class_words(kind: str) -> str:
    return _CLASS_SAID.get(kind, f"{kind} tokens")


QUALITY: Final = (
    Metric(
        "train/loss",
        "nats/token",
        "lower",
        "loss",
        "mean cross-entropy of the step's own batch, before the update, with dropout as trained",
    ),
    Metric(
        "val/loss",
        "nats/token",
        "lower",
        "loss",
        "mean cross-entropy over every token of the validation split, in disjoint windows of the context length",
    ),
    Metric("val/perplexity", "", "lower", "loss", "exp(val/loss)", raw_scale=False, reference="Jelinek et al. 1977"),
    Metric(
        "val/bits_per_byte",
        "bits/byte",
        "lower",
        "loss",
        "summed cross-entropy over the validation split / ln 2 / bytes of its UTF-8 text",
    ),
    Metric(
        "val/accuracy",
        "share",
        "higher",
        "loss",
        "share of validation tokens that are the most probable next token (ties: lowest id)",
    ),
    Metric(
        "val/macro_accuracy",
        "share",
        "higher",
        "loss",
        "mean of the accuracies of the token classes that occur among the validation targets, every class alike",
    ),
    *(
        Metric(
            f"val/accuracy_{kind}",
            "share",
            "higher",
            "loss",
            f"val/accuracy over the validation targets that are {_class_words(kind)}; not recorded where none are",
        )
        for kind in TOKEN_CLASSES
    ),
    Metric(
        "val/loss_first_quarter",
        "nats/token",
        "lower",
        "loss",
        "val/loss over the first quarter of the positions of every window (context // 4 of them, at least one)",
    ),
    Metric(
        "val/loss_last_quarter",
        "nats/token",
        "lower",
        "loss",
        "val/loss over the last quarter of the positions of the context (as many as in the first), in every window "
        "that reaches there",
    ),
    Metric(
        "val/steps_to_level",
        "steps",
        "lower",
        "loss",
        "steps to the first evaluation at which val/loss is at or below measure.loss_level, a straight line drawn from "
        "the evaluation before; the run's own steps so far while it has not been there, so a run that never comes "
        "there counts its whole length",
    ),
    Metric(
        "length/loss_beyond",
        "nats/token",
        "lower",
        "length",
        "mean cross-entropy over the positions from the context length to twice it, in disjoint windows of twice the "
        "context; not for learned positions, which end there",
        reference="Press et al. 2022",
    ),
    Metric(
        "length/brittleness",
        "nats/token",
        "lower",
        "length",
        "length/loss_beyond minus the mean cross-entropy over the last quarter of the context in the same windows",
        reference="Press et al. 2022",
    ),
)

_BINNED = "measure.calibration.bins"

CALIBRATION: Final = (
    Metric(
        "calibration/ece",
        "share",
        "lower",
        "calibration",
        f"expected calibration error: sum over {_BINNED} equal-width bins of the largest probability, (n_bin / n) x "
        "|accuracy - mean confidence|; bins are open below and closed above, the first closed on both sides; an empty "
        "bin adds nothing",
        reference="Naeini et al. 2015; Guo et al. 2017",
    ),
    Metric(
        "calibration/ece_mass",
        "share",
        "lower",
        "calibration",
        f"the same over {_BINNED} bins of equal numbers of tokens by rank of confidence (sizes differ by at most one); "
        "tokens of one confidence share their mean accuracy, so that their order moves nothing",
        reference="Nguyen and O'Connor 2015; Nixon et al. 2019",
    ),
    Metric(
        "calibration/mce",
        "share",
        "lower",
        "calibration",
        "largest |accuracy - mean confidence| of the equal-width bins that are not empty",
        reference="Naeini et al. 2015",
    ),
    Metric(
        "calibration/overconfidence",
        "share",
        "neither",
        "calibration",
        "mean confidence minus accuracy; above zero the model claims too much",
    ),
    Metric(
        "calibration/brier",
        "",
        "lower",
        "calibration",
        "mean over tokens of the squared distance between the predicted distribution and the token's indicator, summed "
        "over the vocabulary (0 to 2)",
        reference="Brier 1950",
    ),
    Metric(
        "calibration/entropy",
        "nats/token",
        "neither",
        "calibration",
        "mean entropy of the predicted distribution",
        reference="Shannon 1948",
    ),
    *(
        Metric(
            f"calibration/loss_t{ending}",
            "nats/token",
            "lower",
            "calibration",
            f"val/loss with logits divided by {temperature:.4g}",
            reference="Guo et al. 2017",
        )
        for ending, temperature in TEMPERATURES.items()
    ),
    Metric(
        "calibration/temperature",
        "",
        "neither",
        "calibration",
        "temperature from 1/4 to 4 with the least loss on the first half of the validation split, by 17 temperatures "
        "in steps of 2^(1/4) and cubic interpolation of the loss between them; a value at an end says that the best "
        "lies beyond it",
        reference="Guo et al. 2017",
    ),
    Metric(
        "calibration/loss_tempered",
        "nats/token",
        "lower",
        "calibration",
        "mean cross-entropy over the second half of the validation split at calibration/temperature",
        reference="Guo et al. 2017",
    ),
    Metric(
        "calibration/tempering_gain",
        "nats/token",
        "neither",
        "calibration",
        "mean cross-entropy over the second half of the validation split at temperature 1, minus that at "
        "calibration/temperature: what a better temperature would have given",
        reference="Guo et al. 2017",
    ),
)

CALIBRATION_FAMILIES: Final = (
    Metric(
        "calibration/bin_share_N",
        "share",
        "neither",
        "calibration",
        "share of the tokens in the equal-width bin N (from 0)",
        counted="bin",
    ),
    Metric(
        "calibration/bin_confidence_N",
        "share",
        "neither",
        "calibration",
        "mean confidence in the equal-width bin N (from 0): the reliability curve's abscissa; not recorded for an "
        "empty bin",
        reference="DeGroot and Fienberg 1983",
        counted="bin",
    ),
    Metric(
        "calibration/bin_accuracy_N",
        "share",
        "neither",
        "calibration",
        "accuracy in the equal-width bin N (from 0): the reliability curve's ordinate; not recorded for an empty bin",
        reference="DeGroot and Fienberg 1983",
        counted="bin",
    ),
)


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
