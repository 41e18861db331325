"""The checks between what is measured, when, and what claims read of it; `prereg.study.validate` asks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prereg.errors import ClaimError, FieldPath, SpecError, Where, nearest
from prereg.metrics.catalogue import ITEM_METRICS, METRICS, SUITES, Metric, source_of
from prereg.registry.canon import canonical_bytes
from prereg.study.claim import Claim
from prereg.study.training import Bpe, Data

if TYPE_CHECKING:
    from prereg.study.spec import Study


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


def check_items(study: Study) -> None:
    """Raise `SpecError` for the first promise about items that is broken."""
    analysis = study.analysis
    decides, beside = analysis.test == "items", "items" in analysis.also
    if analysis.estimand == "new_seeds_and_items" and not decides:
        raise _fault(
            ("analysis", "estimand"),
            f"estimand is 'new_seeds_and_items' and test is '{analysis.test}'",
            required="test: items, because a test over seeds knows no items and speaks of new seeds on these ones",
            fix="test: items, or estimand: new_seeds",
        )
    if not (decides or beside):
        return
    place: FieldPath = ("analysis", "test" if decides else "also")
    asked = "test is 'items'" if decides else "'items' is under 'also'"
    if study.trainer == "command":
        raise _fault(
            place,
            f"{asked} and trainer is 'command'",
            required="trainer: gpt, because a command leaves one number a step and metric, and no items",
            fix="test: paired_t",
        )
    if study.measure.harness is None:
        raise _fault(
            place,
            f"{asked} and no item is measured",
            required="measure.harness, or a test over seeds",
            fix="test: paired_t",
        )
    _check_claims(study, place, asked, decides=decides)
    if decides:
        _check_deciding(study)
    crossed = beside or analysis.estimand == "new_seeds_and_items"
    if crossed and study.measure.harness.clusters != "tasks":
        _check_units(study)


def _check_claims(study: Study, place: FieldPath, asked: str, *, decides: bool) -> None:
    """A claim has items when its metric is a mean over them; a logarithm of a score that is 0 or 1 is none."""
    about = {name: claim.metric for name, claim in study.claims.items()}
    if not decides and not set(about.values()) & set(ITEM_METRICS):
        raise _fault(
            place,
            f"{asked} and no claim is about a metric with items",
            required="a claim about " + " or ".join(ITEM_METRICS),
            fix="also: []",
        )
    for name, metric in about.items():
        if metric not in ITEM_METRICS:
            if decides:
                raise _fault(
                    ("hypotheses", name, "claim"),
                    f"{asked}, and {metric} has no items",
                    required="claims about " + " or ".join(ITEM_METRICS) + ", or a test over seeds",
                    fix=nearest(metric, ITEM_METRICS) if metric.startswith("harness/") else "test: paired_t",
                )
        elif study.hypotheses[name].scale != "raw":
            raise _fault(
                ("hypotheses", name, "scale"),
                f"{asked}, and scale is '{study.hypotheses[name].scale}'",
                required="scale: raw, because the score of one item may be 0, which has no logarithm",
                fix="scale: raw",
            )


def _check_deciding(study: Study) -> None:
    """Settings beside `test: items` that have no meaning there; ranks and looks are refused with those of others."""
    if "estimand" not in study.analysis.model_fields_set:
        raise _fault(
            ("analysis", "estimand"),
            "test is 'items', and nothing says what the verdict speaks of",
            required="estimand: new_seeds (these items are the ones that matter), or new_seeds_and_items (both are "
            "samples, and the interval is wider)",
            fix="estimand: new_seeds_and_items",
        )
    if study.analysis.correct == "max_t":
        raise _fault(
            ("analysis", "correct"),
            "correct is 'max_t' and test is 'items'",
            required="holm or none: there is no joint resampling of seeds and items under the null",
            fix="correct: holm",
        )
    if not isinstance(study.on_divergence, str):
        raise _fault(
            ("on_divergence",),
            "a ceiling for diverged runs and test is 'items'",
            required="exclude_pair: a ceiling is one value of a run, and its items would have none",
            fix="on_divergence: exclude_pair",
        )


def _check_units(study: Study) -> None:
    for name, claim in study.claims.items():
        metric = ITEM_METRICS.get(claim.metric)
        if metric is not None and metric.counts_alike == "tasks":
            raise _fault(
                ("measure", "harness", "clusters"),
                f"{name} is about {metric.name} over new items, and clusters is 'none'",
                required="clusters: tasks, because every task counts the same there, so that tasks are what is sampled",
                fix="clusters: tasks, or a claim about harness/accuracy",
            )


PER_TOKEN = ("train/loss", "val/loss", "val/perplexity", "val/accuracy")
"""Metrics whose meaning depends on what a token is."""
_IN_BYTES = "bits/byte: val/bits_per_byte means the same whatever the tokenizer, for the same validation text"


def per_token(metric: str) -> bool:
    """Whether a metric depends on what a token is."""
    source = source_of(metric)
    return (metric if source is None else metric.removesuffix(f"/{source}")) in PER_TOKEN


def check_comparable(study: Study, name: str, claim: Claim) -> None:
    """Refuse a claim whose arms cannot be compared, as far as their configurations show it."""
    arms = sorted(claim.named)
    read = {arm: study.training(arm).data for arm in arms}
    source = source_of(claim.metric)
    for arm, data in read.items():
        if source is not None and (data.mixture is None or source not in data.mixture):
            raise ClaimError(
                f"{name} reads {claim.metric}, and '{arm}' reads no mixture with a source '{source}'",
                required="a source of the mixture of every arm that the claim names",
                fix=f"data.mixture: {{{source}: 0.0, ...}} where it is to be validated and not trained on",
                where=Where(field=("hypotheses", name, "claim")),
            )
    if per_token(claim.metric):
        _require_one(name, claim.metric, {arm: _vocabulary(data) for arm, data in read.items()})


def require_one_tokenizer(study: Study, tokenizers: Mapping[str, str]) -> None:
    """The same for the tokenizers themselves, by their hashes, arm by arm."""
    for name, claim in study.claims.items():
        if per_token(claim.metric):
            _require_one(name, claim.metric, {arm: tokenizers[arm] for arm in sorted(claim.named)})


def _require_one(name: str, metric: str, tokenizers: Mapping[str, str]) -> None:
    arms = list(tokenizers)
    other = next((arm for arm in arms if tokenizers[arm] != tokenizers[arms[0]]), None)
    if other is not None:
        raise ClaimError(
            f"{name} compares {metric} of '{arms[0]}' and '{other}', whose tokens are not the same",
            required=_IN_BYTES,
            fix="claim val/bits_per_byte; or one tokenizer, over the same sources, for the arms of the claim",
            where=Where(field=("hypotheses", name, "claim")),
        )


def _vocabulary(data: Data) -> str:
    """What the configuration shows of a tokenizer: byte pairs follow from the training text too."""
    trained_on = [*data.sources, data.validation] if isinstance(data.tokenizer, Bpe) else []
    return canonical_bytes([data.model_dump(mode="json")["tokenizer"], *trained_on]).decode()
