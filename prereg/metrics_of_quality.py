"""Declarations: how well a model predicts (suites loss and length), and whether it knows how well (calibration)."""

from __future__ import annotations

from typing import Final

from prereg.metric import Metric

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
