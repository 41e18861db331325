"""The checks between what is measured, when, and what claims read of it; `prereg.promises` asks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prereg.claim import Claim
from prereg.errors import ClaimError, FieldPath, SpecError, Where
from prereg.metric import SUITES, Metric
from prereg.metrics import METRICS

if TYPE_CHECKING:
    from prereg.spec import Study


def check_measure(study: Study) -> None:
    """Every suite at one cadence, and nothing asked of a suite that is not recorded."""
    measure = study.measure
    for suite in measure.at_end:
        if measure.at_end.count(suite) + measure.suites.count(suite) > 1:
            raise _fault(
                ("measure", "at_end"),
                f"the suite '{suite}' is named twice",
                required="each suite at every evaluation (suites) or at the last step alone (at_end)",
                fix=f"suites: [{', '.join(one for one in measure.suites if one != suite)}]",
            )
    for suite in measure.suites:
        if SUITES[suite].only_at_end and study.trainer == "gpt":
            raise _fault(
                ("measure", "suites"),
                f"the suite '{suite}' at every evaluation",
                required="the last step: it measures a whole run",
                fix=f"at_end: [{', '.join([*measure.at_end, suite])}]",
            )
    if measure.loss_level is not None and "loss" not in measure.suites:
        raise _fault(
            ("measure", "loss_level"),
            "a level of the loss, and the loss is not evaluated during training",
            required="'loss' among the suites",
            fix=f"suites: [{', '.join([*measure.suites, 'loss'])}]",
        )
    names = [one.name for one in measure.own]
    for index, name in enumerate(names):
        if study.trainer != "gpt":
            raise _fault(
                ("measure", "own"),
                "a metric of the study's own, of a user's own trainer",
                required="the built-in trainer: a user's own trainer writes what it likes to its file of metrics",
            )
        if name in names[:index]:
            raise _fault(("measure", "own", index, "name"), f"two metrics are named '{name}'", required="a name each")
    length = measure.inference.length
    for arm in study.arms if study.trainer == "gpt" and length is not None else ():
        context = study.training(arm).model.context
        if length is not None and length > context:
            raise _fault(
                ("measure", "inference", "length"),
                f"{length} tokens, and '{arm}' sees {context} at once",
                required="no more than the context of every arm",
                fix=f"length: {context}",
            )


def check_recorded(study: Study, name: str, claim: Claim, known: Metric) -> None:
    """Every arm that the claim names will have the metric, as far as its configuration tells."""
    measure, suite = study.measure, known.suite
    if suite == "own":
        return
    if suite not in measure.recorded:
        only = SUITES[suite].only_at_end
        kept = measure.at_end if only else measure.suites
        field = "at_end" if only else "suites"
        raise _fault(
            ("measure", "suites"),
            f"{name} needs {claim.metric}, of the suite '{suite}'",
            required=f"'{suite}' among the suites",
            fix=f"{field}: [{', '.join([*kept, suite])}]",
        )
    if claim.metric == "val/steps_to_level" and measure.loss_level is None:
        raise _fault(
            ("measure", "loss_level"),
            f"{name} asks for the steps to a level of the loss, and no level is declared",
            required="measure.loss_level",
            fix="loss_level: 2.0",
        )
    place = METRICS.bin(claim.metric)
    if place is not None and place >= measure.calibration.bins:
        raise _refused(
            name,
            f"{name} reads {claim.metric}, and there are {measure.calibration.bins} bins, counted from 0",
            f"at most {claim.metric.rpartition('_')[0]}_{measure.calibration.bins - 1}",
        )
    for arm in claim.named:
        _check_arm(study, name, claim.metric, arm)


def _check_arm(study: Study, name: str, metric: str, arm: str) -> None:
    training, layer = study.training(arm), METRICS.layer(metric)
    layers = training.model.layers
    if layer is not None and layer >= layers:
        raise _refused(
            name,
            f"{name} reads {metric}, and '{arm}' has {layers} layers, counted from 0",
            f"at most {metric.rpartition('_')[0]}_{layers - 1}",
        )
    if metric.startswith("length/") and training.model.positions == "learned":
        raise _refused(
            name,
            f"{name} reads {metric}, and '{arm}' has learned positions, which end with the context",
            "positions that go on: rope, sinusoidal or none",
        )
    if metric.startswith("adam/") and training.optim.name == "sgd":
        raise _refused(name, f"{name} reads {metric}, and '{arm}' trains with sgd", "an optimiser with second moments")


def check_reading(study: Study, name: str) -> None:
    """A claim reads its metric where it is evaluated."""
    read, metric = study.hypotheses[name].read, study.claims[name].metric
    place: FieldPath = ("hypotheses", name, "read")
    if read == "final":
        return
    known, measure = study.metric(metric), study.measure
    once = study.trainer == "gpt" and (
        (known is not None and known.suite in measure.at_end) or any(o.name == metric and o.at_end for o in measure.own)
    )
    if metric.startswith("harness/") or once or (known is not None and known.suite in ("speed", "cost")):
        raise _fault(
            place,
            f"{metric} has no curve" + (", for it is measured at the end" if once else ""),
            required="a metric that is evaluated during training",
            fix="read: final",
        )
    if study.trainer != "gpt":
        return
    step, window = getattr(read, "step", None), getattr(read, "last", None)
    every = measure.every
    for arm in study.claims[name].named:
        steps = study.training(arm).budget.steps
        evaluations = -(-steps // every) if metric != "train/loss" else steps
        if window is not None and window > evaluations:
            raise _fault(
                (*place, "last"),
                f"the last {window} evaluations, and '{arm}' has {evaluations} after step 0",
                required="no more evaluations than there are",
                fix=f"last: {evaluations}" if evaluations > 1 else "read: final",
            )
        if step is None:
            continue
        measured = step % every == 0 or step == steps or metric == "train/loss"
        if step > steps or not measured:
            raise _fault(
                (*place, "step"),
                f"step {step}, and '{arm}' trains {steps} steps, evaluated every {every}",
                required="a step at which the metric is evaluated",
                fix=f"step: {min(steps, step - step % every)}",
            )


def _refused(name: str, found: str, required: str) -> ClaimError:
    return ClaimError(found, required=required, where=Where(field=("hypotheses", name, "claim")))


def _fault(path: FieldPath, found: str, *, required: str, fix: str = "") -> SpecError:
    return SpecError(found, required=required, fix=fix, where=Where(field=path))
