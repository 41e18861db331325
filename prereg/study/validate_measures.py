"""The checks of single claims: that every arm records what the claim reads, when it reads it, in comparable units.

A loss in nats a token depends on what a token is: with larger tokens it rises though the model is no worse. Bits a byte
do not: the border between training and validation is drawn in the text, before a tokenizer sees it, and only the first
token, which nothing predicts, is left out. So a claim across tokenizers must be about bits a byte. What the
configurations show is refused when the study is read, and what only the texts show (single characters of two corpora)
when it is registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose
from typing import TYPE_CHECKING, Final

from prereg.errors import ClaimError, FieldPath, SpecError, field_error, nearest
from prereg.metrics.catalogue import METRICS, SUITES, TASK_METRICS, TASK_NAMES, Metric, source_of
from prereg.registry.canon import canonical_bytes
from prereg.study.analysis import AtStep, OverLast
from prereg.study.claim import Claim, parse_claim, with_groups
from prereg.study.designs.trends import with_weights
from prereg.study.handover import nearest_metric
from prereg.study.training import Bpe, Data, Training
from prereg.text import listed

if TYPE_CHECKING:
    from prereg.study.spec import Study

PER_TOKEN: Final = ("train/loss", "val/loss", "val/perplexity", "val/accuracy")
"""Metrics whose meaning depends on what a token is."""


def check_claims(study: Study) -> None:
    """Raise `ClaimError` or `SpecError` for the first claim that this study cannot decide."""
    if not study.hypotheses:
        fix = "hypotheses: {gain: {claim: layernorm lowers val/loss, smallest: 0.02}}"
        raise field_error(("hypotheses",), "no hypothesis", "at least one claim", fix)
    for name, hypothesis in study.hypotheses.items():
        place = ("hypotheses", name, "claim")
        try:
            claim = with_weights(parse_claim(hypothesis.claim, baseline=study.baseline), study.factors)
            claim = with_groups(claim, study.arm_groups)
        except ClaimError as error:
            raise error.at(field=place) from None
        for arm in claim.named:
            if arm not in study.arms:
                found = f"'{arm}' in claim '{hypothesis.claim}' is not a variant"
                known = [*study.arms, *study.arm_groups]
                raise field_error(place, found, "one of " + ", ".join(study.arms), nearest(arm, known))
        _check_metric(study, name, claim)
        _check_verb(study, name, claim)


def check_suites(study: Study) -> None:
    """Raise `SpecError` for a suite at every evaluation that measures a whole run."""
    measure = study.measure
    for suite in measure.suites if study.trainer == "gpt" else ():
        if SUITES[suite].only_at_end:
            raise field_error(
                ("measure", "suites"),
                f"the suite '{suite}' at every evaluation",
                "the last step: it measures a whole run",
                f"at_end: [{', '.join([*measure.at_end, suite])}]",
            )


def check_inference(study: Study) -> None:
    """Raise `SpecError` for a length of inference that some arm cannot see at once."""
    length = study.measure.inference.length
    for arm in study.arms if study.trainer == "gpt" and length is not None else ():
        context = study.training(arm).model.context
        if length is not None and length > context:
            raise field_error(
                ("measure", "inference", "length"),
                f"{length} tokens, and '{arm}' sees {context} at once",
                "no more than the context of every arm",
                f"length: {context}",
            )


def check_known(study: Study, metric: str, place: FieldPath, reader: str) -> None:
    """Raise `SpecError` where the built-in trainer does not record a metric, or not for shots that are declared."""
    harness = study.measure.harness
    if study.trainer != "gpt" or study.metric(metric) is not None:
        return
    if not metric.startswith("harness/"):
        fix = nearest(metric, [*METRICS, *study.own_units])
        raise field_error(place, f"'{metric}' is not a metric", "a recorded metric", fix)
    if metric not in TASK_METRICS:
        fix = nearest(metric, TASK_NAMES)
        raise field_error(place, f"'{metric}' is not a metric", "a recorded metric of the tasks", fix)
    shots = TASK_METRICS.number(metric, "shots")
    if harness is not None and shots is not None and shots not in harness.shots:
        raise field_error(
            ("measure", "harness", "shots"),
            f"{reader}, and shots are {list(harness.shots)}",
            f"{shots} among the shots",
            f"shots: {sorted({*harness.shots, shots})}",
        )


def _check_metric(study: Study, name: str, claim: Claim) -> None:
    known, place = study.metric(claim.metric), ("hypotheses", name)
    check_known(study, claim.metric, (*place, "claim"), f"{name} reads {claim.metric}")
    if study.trainer == "gpt":
        if known is not None and known.suite != "own":
            _check_recorded(study, name, claim, known)
        _check_comparable(study, name, claim)
    elif study.metrics.columns and claim.metric not in study.metrics.columns:
        raise _no_column(study, name, claim)
    if claim.metric.startswith("harness/") and study.measure.harness is None:
        found = f"{name} needs {claim.metric} and no harness is declared"
        raise field_error(("measure", "harness"), found, "measure.harness", "harness: {tasks: blimp}")
    if known is not None and not known.raw_scale and study.hypotheses[name].scale == "raw":
        required = "its logarithm, or the loss it comes from: a mean of raw perplexities is ruled by its worst run"
        found = f"raw differences of {claim.metric}"
        raise field_error((*place, "scale"), found, required, "claim val/loss, or scale: log")


def _no_column(study: Study, name: str, claim: Claim) -> SpecError:
    columns = tuple(study.metrics.columns)
    near = nearest_metric(claim.metric, columns)
    text = study.hypotheses[name].claim.replace(claim.metric, near)
    return field_error(
        ("hypotheses", name, "claim"),
        f"no run records {claim.metric}: metrics.columns names {listed(columns)}, and no others are read",
        "a metric that metrics.columns names",
        f"claim: {text}" if near else f"columns: {{{claim.metric}: COLUMN}}, with the column that holds it",
    )


def _check_recorded(study: Study, name: str, claim: Claim, known: Metric) -> None:
    """Every arm that the claim names will have the metric, as far as its configuration tells."""
    measure, metric, suite = study.measure, claim.metric, known.suite
    place: FieldPath = ("hypotheses", name, "claim")
    if suite not in measure.recorded:
        field, kept = ("at_end", measure.at_end) if SUITES[suite].only_at_end else ("suites", measure.suites)
        found, fix = f"{name} needs {metric}, of the suite '{suite}'", f"{field}: [{', '.join([*kept, suite])}]"
        raise field_error(("measure", "suites"), found, f"'{suite}' among the suites", fix)
    if metric == "val/steps_to_level" and measure.loss_level is None:
        found = f"{name} asks for the steps to a level of the loss, and no level is declared"
        raise field_error(("measure", "loss_level"), found, "measure.loss_level", "loss_level: 2.0")
    number, n_bins = METRICS.bin(metric), measure.calibration.bins
    if number is not None and number >= n_bins:
        found = f"{name} reads {metric}, and there are {n_bins} bins, counted from 0"
        raise field_error(place, found, f"at most {metric.rpartition('_')[0]}_{n_bins - 1}")
    for arm in claim.named:
        _check_of_model(study.training(arm), metric, place, f"{name} reads {metric}, and '{arm}'")


def _check_of_model(training: Training, metric: str, place: FieldPath, reads: str) -> None:
    """The model and the optimiser of an arm have what a metric is about."""
    layer, layers = METRICS.layer(metric), training.model.layers
    if layer is not None and layer >= layers:
        required = f"at most {metric.rpartition('_')[0]}_{layers - 1}"
        raise field_error(place, f"{reads} has {layers} layers, counted from 0", required)
    if metric.startswith("length/") and training.model.positions == "learned":
        found = f"{reads} has learned positions, which end with the context"
        raise field_error(place, found, "positions that go on: rope, sinusoidal or none")
    if metric.startswith("adam/") and training.optim.name == "sgd":
        raise field_error(place, f"{reads} trains with sgd", "an optimiser with second moments")


def _check_comparable(study: Study, name: str, claim: Claim) -> None:
    """Refuse a claim whose arms cannot be compared, as far as their configurations show it."""
    source = source_of(claim.metric)
    read = {arm: study.training(arm).data for arm in sorted(claim.named)}
    for arm, data in read.items():
        if source is not None and (data.mixture is None or source not in data.mixture):
            raise field_error(
                ("hypotheses", name, "claim"),
                f"{name} reads {claim.metric}, and '{arm}' reads no mixture with a source '{source}'",
                "a source of the mixture of every arm that the claim names",
                f"data.mixture: {{{source}: 0.0, ...}} where it is to be validated and not trained on",
            )
    _require_one(name, claim, {arm: _vocabulary(data) for arm, data in read.items()})


def require_one_tokenizer(study: Study, tokenizers: Mapping[str, str]) -> None:
    """Raise `ClaimError` where a claim per token is about arms with different tokenizers, given arm by arm by hash."""
    for name, claim in study.claims.items():
        _require_one(name, claim, tokenizers)


def _require_one(name: str, claim: Claim, tokenizers: Mapping[str, str]) -> None:
    source, arms = source_of(claim.metric), sorted(claim.named)
    if (claim.metric.removesuffix(f"/{source}") if source else claim.metric) not in PER_TOKEN:
        return
    other = next((arm for arm in arms if tokenizers[arm] != tokenizers[arms[0]]), None)
    if other is not None:
        raise field_error(
            ("hypotheses", name, "claim"),
            f"{name} compares {claim.metric} of '{arms[0]}' and '{other}', whose tokens are not the same",
            "bits/byte: val/bits_per_byte means the same whatever the tokenizer, for the same validation text",
            "claim val/bits_per_byte; or one tokenizer, over the same sources, for the arms of the claim",
        )


def _vocabulary(data: Data) -> str:
    """What the configuration shows of a tokenizer: byte pairs follow from the training text too."""
    trained_on = [*data.sources, data.validation] if isinstance(data.tokenizer, Bpe) else []
    return canonical_bytes([data.model_dump(mode="json")["tokenizer"], *trained_on]).decode()


def _check_verb(study: Study, name: str, claim: Claim) -> None:
    hypothesis, place = study.hypotheses[name], ("hypotheses", name)
    if claim.by is not None and not isclose(hypothesis.smallest, claim.by, rel_tol=1e-9 if claim.percent else 0.0):
        raise field_error(
            (*place, "smallest"),
            f"smallest is {hypothesis.smallest:g} and the claim says 'by at least {claim.by:g}'",
            "one number: of a claim 'by at least D' the smallest difference that matters is D",
            "leave smallest out",
        )
    if hypothesis.smallest == 0.0 and claim.kind.is_absence:
        required = "a margin above zero: no data can show a difference to be exactly nothing"
        raise field_error((*place, "smallest"), f"smallest is 0 and the claim is '{claim.verb}'", required)
    if claim.constant is not None and claim.constant <= 0.0 and hypothesis.scale != "raw":
        found = f"{name} compares with {claim.constant:g}, and scale is '{hypothesis.scale}'"
        raise field_error((*place, "scale"), found, "a constant above 0, which has a logarithm", "scale: raw")
    if claim.kind.towards != "worse":
        return
    if study.claims[name].better == "neither":
        found = f"nothing says which way {claim.metric} improves"
        raise field_error((*place, "better"), found, "better: lower, or better: higher", "better: lower")
    if not isclose(sum(claim.left.values()), 1.0):
        found = f"'{hypothesis.claim}' asks whether a difference worsens"
        raise field_error((*place, "claim"), found, "does_not_change for a difference of differences")


def check_readings(study: Study) -> None:
    """Raise `SpecError` for the first claim that reads its metric where it is not evaluated."""
    for name, hypothesis in study.hypotheses.items():
        if hypothesis.read == "best" and study.claims[name].better == "neither":
            found = f"the best {study.claims[name].metric}, and nothing says which way it improves"
            required = "better: lower, or better: higher"
            raise field_error(("hypotheses", name, "read"), found, required, "better: lower")
        if hypothesis.read != "final":
            _check_reading(study, name)


def check_levels(study: Study) -> None:
    """Raise `SpecError` for a level that `stable` asks of a metric which has no direction, or no value by that step."""
    for metric in study.stable.levels:
        _check_level(study, metric)
        if study.trainer == "gpt":
            _check_step_of_level(study, metric)


def _check_level(study: Study, metric: str) -> None:
    place, known, measure = ("stable", "reached"), study.metric(metric), study.measure
    if study.better(metric) == "neither":
        found = f"a level of {metric}, and nothing says which way it improves"
        raise field_error(place, found, "a metric that has a better side, such as val/loss", "val/loss: 3.0")
    if _one_value(study, metric):
        required = "a metric that is evaluated during training"
        raise field_error(place, f"{metric} has no curve", required, "val/loss: 3.0")
    unknown = known is None or (known.suite not in measure.recorded and all(o.name != metric for o in measure.own))
    if study.trainer == "gpt" and unknown:
        raise field_error(place, f"{metric} is not recorded", "a recorded metric", "val/loss: 3.0")


def _check_step_of_level(study: Study, metric: str) -> None:
    by, every = study.stable.by, study.measure.every
    shortest = min(study.training(arm).budget.steps for arm in study.arms)
    first = 1 if metric == "train/loss" else min(every, shortest)
    if not first <= by <= shortest:
        raise field_error(
            ("stable", "reached", "by"),
            f"step {by}, and the shortest arm trains {shortest} steps, evaluated every {every}",
            "a step at or after the first evaluation, within the steps of every arm",
            f"by: {min(max(by, first), shortest)}",
        )


def _one_value(study: Study, metric: str) -> str:
    """Why a metric has one value, at the end of a run; nothing where it has a curve."""
    known, measure = study.metric(metric), study.measure
    if study.trainer == "gpt" and (
        (known is not None and known.suite in measure.at_end)
        or any(own.name == metric and own.at_end for own in measure.own)
    ):
        return f"{metric} has no curve, for it is measured at the end"
    by_nature = metric.startswith("harness/") or (known is not None and known.suite in ("speed", "cost"))
    return f"{metric} has no curve" if by_nature else ""


def _check_reading(study: Study, name: str) -> None:
    claim, read, place = study.claims[name], study.hypotheses[name].read, ("hypotheses", name, "read")
    if reason := _one_value(study, claim.metric):
        raise field_error(place, reason, "a metric that is evaluated during training", "read: final")
    if study.trainer != "gpt":
        return
    for arm in claim.named:
        if isinstance(read, OverLast):
            _check_window(study, arm, claim.metric, read.last, place)
        elif isinstance(read, AtStep):
            _check_step(study, arm, claim.metric, read.step, place)
    if not isinstance(read, AtStep) and study.measure.uneven_steps is None:
        what = f"the last {read.last}" if isinstance(read, OverLast) else read
        _check_even_steps(study, claim, what, place)


def _check_window(study: Study, arm: str, metric: str, window: int, place: FieldPath) -> None:
    steps = study.training(arm).budget.steps
    evaluations = steps if metric == "train/loss" else -(-steps // study.measure.every)
    if window > evaluations:
        raise field_error(
            (*place, "last"),
            f"the last {window} evaluations, and '{arm}' has {evaluations} after step 0",
            "no more evaluations than there are",
            f"last: {evaluations}" if evaluations > 1 else "read: final",
        )


def _check_step(study: Study, arm: str, metric: str, step: int, place: FieldPath) -> None:
    steps, every = study.training(arm).budget.steps, study.measure.every
    measured = step % every == 0 or step == steps or metric == "train/loss"
    if step > steps or not measured:
        raise field_error(
            (*place, "step"),
            f"step {step}, and '{arm}' trains {steps} steps, evaluated every {every}",
            "a step at which the metric is evaluated",
            f"step: {min(steps, step - step % every)}",
        )


def _check_even_steps(study: Study, claim: Claim, what: str, place: FieldPath) -> None:
    lengths = {study.training(arm).budget.steps: arm for arm in claim.named}
    if len(lengths) > 1:
        (one, first), (other, second), *_ = sorted(lengths.items())
        raise field_error(
            place,
            f"{what} of '{first}', which trains {one} steps, and of '{second}', which trains {other}: they are "
            "evaluated at other steps",
            "evaluations at the same steps, the value at the end, or a reason in measure.uneven_steps",
            "read: final",
        )
