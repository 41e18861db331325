"""Validation between fields of a study, each contradiction by its field; single fields are checked by their types.

Every check is a function of the whole study, run in the order in which a reader would look (`_STAGES`, at the end).
Types and ranges of single fields are checked by the fields' own models, what excludes what is a table
(`prereg.study.conflicts`), and lines of the file are added by `prereg.study.load`.

A loss in nats a token depends on what a token is: with larger tokens it rises though the model is no worse. Bits a byte
do not: the border between training and validation is drawn in the text, before a tokenizer sees it, and only the first
token, which nothing predicts, is left out. So a claim across tokenizers must be about bits a byte. What the
configurations show is refused when the study is read, and what only the texts show (single characters of two corpora)
when it is registered.

To add a check: a function that raises by `field_error` at the field that the user should change, its name in the stage
of `_STAGES` whose earlier stages make true what it rests on, and a row in tests/designs/test_refusals.py. Where two
settings exclude each other it is a row of `prereg.study.conflicts` instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from math import isclose
from typing import TYPE_CHECKING, Final

from prereg.errors import ClaimError, FieldPath, SpecError, field_error, nearest, not_one_of
from prereg.metrics.catalogue import (
    EVERY_STEP,
    ITEM_METRICS,
    METRICS,
    SUITES,
    Metric,
    task_of,
    without_side,
)
from prereg.registry.canon import canonical_bytes
from prereg.study.analysis import LEAST_RUNS, AtStep, Gate, OverLast, members
from prereg.study.claim import Claim
from prereg.study.command import check_command_words
from prereg.study.conflicts import OF_BLOCKS, OF_CLAIMS, OF_SETTINGS, Conflict, conflicts
from prereg.study.designs.per_task import check_per_task
from prereg.study.designs.tune import check_tune
from prereg.study.macros import all_seeds, two_margins
from prereg.study.measure import check_known, check_suite, of_each_task
from prereg.study.presentation import check_labels, check_report
from prereg.study.training import Bpe, Data, Training
from prereg.text import counted, listed

if TYPE_CHECKING:
    from prereg.study.spec import Study


def check_promises(study: Study) -> None:
    """Raise `SpecError`, `ClaimError` or `RuleError` for the first contradiction, with others after it.

    What rests on arms or claims is checked once those hold: otherwise each mistake in one would be reported again.
    """
    faults: list[SpecError] = []
    # All of a stage's faults at once, and no further stage: what rests on a fault would be a fault, too.
    for rows, checks in _STAGES:
        faults += conflicts(study, rows)
        for check in checks:
            try:
                check(study)
            except SpecError as error:
                if error.found not in (fault.found for fault in faults):  # met again by a check that rests on it
                    faults.append(error)
            except Exception:
                if not faults:  # else it may rest on what an earlier check refused
                    raise
        if faults:
            raise faults[0].followed_by(faults[1:])


# Arms, seeds and runs


def _check_arms(study: Study) -> None:
    # Next to components, which write variants, factors are a row of the table of conflicts.
    if bool(study.variants) == bool(study.factors) and study.components is None:
        raise field_error(
            ("variants",) if study.variants else (),
            f"{'both variants and' if study.variants else 'neither variants nor'} factors are given",
            "one of the two",
            "variants: {none: {}, layernorm: {model.embedding_norm: layernorm}}",
        )
    if study.baseline not in study.arms:
        fault = f"baseline '{study.baseline}' is not a variant"
        raise not_one_of(("baseline",), fault, study.baseline, study.arms)


def _check_names_of_arms(study: Study) -> None:
    place: FieldPath = ("variants",) if study.variants else ("factors",)
    # One arm alone can only be compared with constants. By the text: that each claim is a sentence is checked later.
    if len(study.arms) < 2 and not all(" below " in h.claim or " above " in h.claim for h in study.hypotheses.values()):
        raise field_error(
            place,
            "only one variant",
            "at least two, one of them the baseline, unless every claim compares with a constant",
            "claim: record lowers val/loss below 3.28",
        )
    # Runs lie in folders named after their variant, and some file systems do not tell capitals apart.
    (twin, times), *_ = Counter(name.casefold() for name in study.arms).most_common(1)
    if times > 1:
        fault = f"two variants are named '{twin}' but for capital letters"
        raise field_error(place, fault, "names that differ in more than that")


_ENOUGH = (
    f"{LEAST_RUNS} runs or more of every arm, and better five: from two, a test without pairs calls up to 12% of true "
    "nulls different instead of 5%"
)


def _check_seeds_of_arms(study: Study) -> None:
    """Raise `SpecError` where arms have seeds of their own and these do not fit the arms or the test."""
    if not study.arm_seeds:
        return
    if set(study.arm_seeds) != set(study.arms):
        lacking = [arm for arm in study.arms if arm not in study.arm_seeds]
        unknown = [arm for arm in study.arm_seeds if arm not in study.arms]
        fault = f"no seeds for {', '.join(lacking)}" if lacking else f"seeds for {', '.join(unknown)}, which is no arm"
        every = ", ".join(f"{arm}: [...]" for arm in study.arms)
        raise field_error(("seeds",), fault, "a list of seeds for every arm", f"seeds: {{{every}}}")
    for arm, seeds in study.arm_seeds.items():
        place = ("seeds", arm)
        if len(seeds) < LEAST_RUNS:
            raise field_error(place, counted(len(seeds), "run"), _ENOUGH, f"{arm}: [1, 2, 3, 4, 5]")
    # In a lock both are stored, and either could be edited.
    if list(study.seeds) != all_seeds(study.arm_seeds):
        raise field_error(("arm_seeds",), "other seeds than in seeds", "seeds: every seed of arm_seeds, once")


def _check_unpaired(study: Study) -> None:
    """Raise `SpecError` where a test without pairs has too few runs."""
    analysis = study.analysis
    if study.paired:
        return
    if not study.arm_seeds and len(study.seeds) < LEAST_RUNS:
        raise field_error(("seeds",), counted(len(study.seeds), "run") + " of each arm", _ENOUGH, "[1, 2, 3, 4, 5]")
    if analysis.least_pairs is not None and analysis.least_pairs < LEAST_RUNS:
        raise field_error(
            ("analysis", "least_pairs"), f"least_pairs is {analysis.least_pairs}", _ENOUGH, f"least_pairs: {LEAST_RUNS}"
        )


def _check_looks(study: Study) -> None:
    # The last look is the end of the study: alpha that no look spends would be lost, and later seeds read by nobody.
    n_seeds, looks = len(study.seeds), getattr(study.stopping, "looks", None)
    if looks is not None and (not looks or list(looks) != sorted(set(looks)) or looks[-1] != n_seeds):
        raise field_error(
            ("stopping", "looks"),
            f"looks {list(looks)} with {n_seeds} seeds",
            "ascending numbers of seeds, the last equal to the number of seeds",
        )


def _check_suites(study: Study) -> None:
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


def _check_inference(study: Study) -> None:
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


# Claims, and the metrics that they read


PER_TOKEN: Final = ("train/loss", "val/loss", "val/perplexity", "val/accuracy")
"""Metrics whose meaning depends on what a token is."""


def _check_claims(study: Study) -> None:
    """Raise `ClaimError` or `SpecError` for the first claim that this study cannot decide."""
    if not study.hypotheses:
        fix = "hypotheses: {gain: {claim: layernorm lowers val/loss, smallest: 0.02}}"
        raise field_error(("hypotheses",), "no hypothesis", "at least one claim", fix)
    for name, hypothesis in study.hypotheses.items():
        place = ("hypotheses", name, "claim")
        try:
            claim = study.contrast(hypothesis.claim)
        except ClaimError as error:
            raise error.at(field=place) from None
        # Arms that cancel out of the weights too: their runs are still part of what is compared.
        for arm in claim.named:
            if arm not in study.arms:
                fault = f"'{arm}' in claim '{hypothesis.claim}' is not a variant"
                names = [*study.arms, *study.arm_groups]
                raise field_error(place, fault, "one of " + ", ".join(study.arms), nearest(arm, names))
        _check_metric(study, name, claim)
        _check_margin(study, name, claim)
        if claim.kind.towards == "worse":
            _check_worsening(study, name, claim)


def _check_metric(study: Study, name: str, claim: Claim) -> None:
    declared, place = study.metric(claim.metric), ("hypotheses", name)
    check_known(study, claim.metric, (*place, "claim"), f"{name} reads {claim.metric}")
    # Which metrics there will be: of the built-in trainer all are known, of a command those that its columns
    # name.
    if study.trainer == "gpt":
        if declared is not None:
            _check_recorded(study, name, claim, declared)
        _check_comparable(study, name, claim)
    elif study.metrics.columns and claim.metric not in study.metrics.columns:
        columns = tuple(study.metrics.columns)
        shown = f"metrics.columns names {listed(columns)}, and no others are read"
        otherwise = f"columns: {{{claim.metric}: COLUMN}}, with the column that holds it"
        near = _nearest_metric(claim.metric, columns)
        fix = f"claim: {study.hypotheses[name].claim.replace(claim.metric, near)}" if near else otherwise
        fault = f"no run records {claim.metric}: {shown}"
        raise field_error((*place, "claim"), fault, "a metric that metrics.columns names", fix)
    if claim.metric.startswith("harness/") and study.measure.harness is None:
        fault = f"{name} needs {claim.metric} and no harness is declared"
        raise field_error(("measure", "harness"), fault, "measure.harness", "harness: {tasks: blimp}")
    if declared is not None and not declared.raw_scale and study.hypotheses[name].scale == "raw":
        required = "its logarithm, or the loss it comes from: a mean of raw perplexities is ruled by its worst run"
        fault = f"raw differences of {claim.metric}"
        raise field_error((*place, "scale"), fault, required, "claim val/loss, or scale: log")


_SAME = (("valid", "val"), ("validation", "val"), ("eval", "val"), ("dev", "val"), ("accuracy", "acc"))


def _nearest_metric(name: str, recorded: tuple[str, ...]) -> str:
    """Return the one of the names that most likely means the same; empty where none does.

    >>> _nearest_metric("val/accuracy", ("loss", "valid_acc"))
    'valid_acc'
    """

    def plain(text: str) -> str:
        words = re.findall("[a-z0-9]+", text.lower())
        return " ".join(dict(_SAME).get(word, word) for word in words)

    # Of two names that read alike the first is the one that is suggested.
    name_by_plain = {plain(metric): metric for metric in reversed(recorded)}
    close = get_close_matches(plain(name), name_by_plain, n=1, cutoff=0.8)
    return name_by_plain[close[0]] if close else ""


def _check_recorded(study: Study, name: str, claim: Claim, declared: Metric) -> None:
    """Every arm that the claim names will have the metric, as far as its configuration tells."""
    measure, metric, place = study.measure, claim.metric, ("hypotheses", name, "claim")
    check_suite(study, declared, f"{name} needs")
    if metric == "val/steps_to_level" and measure.loss_level is None:
        fault = f"{name} asks for the steps to a level of the loss, and no level is declared"
        raise field_error(("measure", "loss_level"), fault, "measure.loss_level", "loss_level: 2.0")
    number, n_bins = METRICS.bin(metric), measure.calibration.bins
    if number is not None and number >= n_bins:
        fault = f"{name} reads {metric}, and there are {n_bins} bins, counted from 0"
        raise field_error(place, fault, f"at most {metric.rpartition('_')[0]}_{n_bins - 1}")
    for arm in claim.named:
        _check_of_model(study.training(arm), metric, place, f"{name} reads {metric}, and '{arm}'")


def _check_of_model(training: Training, metric: str, place: FieldPath, reads: str) -> None:
    """The model and the optimiser of an arm have what a metric is about."""
    # Refused here and not when runs end: a claim about what no run can record would be left without evidence.
    layer, layers = METRICS.layer(metric), training.model.layers
    if layer is not None and layer >= layers:
        required = f"at most {metric.rpartition('_')[0]}_{layers - 1}"
        raise field_error(place, f"{reads} has {layers} layers, counted from 0", required)
    if metric.startswith("length/") and training.model.positions == "learned":
        fault = f"{reads} has learned positions, which end with the context"
        raise field_error(place, fault, "positions that go on: rope, sinusoidal or none")
    if metric.startswith("adam/") and training.optim.name == "sgd":
        raise field_error(place, f"{reads} trains with sgd", "an optimiser with second moments")


def _check_comparable(study: Study, name: str, claim: Claim) -> None:
    """Refuse a claim whose arms cannot be compared, as far as their configurations show it."""
    read = {arm: study.training(arm).data for arm in sorted(claim.named)}
    _require_one(name, claim, {arm: _vocabulary(data) for arm, data in read.items()})


def require_one_tokenizer(study: Study, tokenizers: Mapping[str, str]) -> None:
    """Raise `ClaimError` where a claim per token is about arms with different tokenizers, given arm by arm by hash."""
    for name, claim in study.claims.items():
        _require_one(name, claim, tokenizers)


def _require_one(name: str, claim: Claim, tokenizers: Mapping[str, str]) -> None:
    arms = sorted(claim.named)
    if claim.metric not in PER_TOKEN:
        return
    differing = next((arm for arm in arms if tokenizers[arm] != tokenizers[arms[0]]), None)
    if differing is not None:
        raise field_error(
            ("hypotheses", name, "claim"),
            f"{name} compares {claim.metric} of '{arms[0]}' and '{differing}', whose tokens are not the same",
            "bits/byte: val/bits_per_byte means the same whatever the tokenizer, for the same validation text",
            "claim val/bits_per_byte; or one tokenizer, over the same text, for the arms of the claim",
        )


def _vocabulary(data: Data) -> str:
    """What the configuration shows of a tokenizer: byte pairs follow from the training text too."""
    # Single characters follow from the text as well, but two corpora may have the same; registration reads
    # them.
    trained_on = [data.corpus, data.validation] if isinstance(data.tokenizer, Bpe) else []
    return canonical_bytes([data.model_dump(mode="json")["tokenizer"], *trained_on]).decode()


def _check_margin(study: Study, name: str, claim: Claim) -> None:
    hypothesis, place = study.hypotheses[name], ("hypotheses", name)
    # A margin in percent is a logarithm, which two machines may round differently; any other is the number as
    # written.
    if claim.by is not None and not isclose(hypothesis.smallest, claim.by, rel_tol=1e-9 if claim.percent else 0.0):
        raise two_margins(place, f"{hypothesis.smallest:g}", f"{claim.by:g}")
    if hypothesis.smallest == 0.0 and claim.kind.is_absence:
        required = "a margin above zero: no data can show a difference to be exactly nothing"
        raise field_error((*place, "smallest"), f"smallest is 0 and the claim is '{claim.verb}'", required)
    if claim.constant is not None and claim.constant <= 0.0 and hypothesis.scale != "raw":
        fault = f"{name} compares with {claim.constant:g}, and scale is '{hypothesis.scale}'"
        raise field_error((*place, "scale"), fault, "a constant above 0, which has a logarithm", "scale: raw")


def _check_worsening(study: Study, name: str, claim: Claim) -> None:
    place = ("hypotheses", name)
    if study.claims[name].better == "neither":
        raise without_side((*place, "better"), claim.metric)
    # (a - b) rises when a rises or b falls: neither is worse by itself.
    if not isclose(sum(claim.left.values()), 1.0):
        fault = f"'{study.hypotheses[name].claim}' asks whether a difference worsens"
        raise field_error((*place, "claim"), fault, "does_not_change for a difference of differences")


def _check_readings(study: Study) -> None:
    """Raise `SpecError` for the first claim that reads its metric where it is not evaluated."""
    for name, hypothesis in study.hypotheses.items():
        if hypothesis.read == "best" and study.claims[name].better == "neither":
            fault = f"the best {study.claims[name].metric}, and nothing says which way it improves"
            required = "better: lower, or better: higher"
            raise field_error(("hypotheses", name, "read"), fault, required, "better: lower")
        if hypothesis.read != "final":
            _check_reading(study, name)


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
    if not isinstance(read, AtStep):
        what = f"the last {read.last}" if isinstance(read, OverLast) else read
        _check_even_steps(study, claim, what, place)


def _check_window(study: Study, arm: str, metric: str, window: int, place: FieldPath) -> None:
    steps = study.training(arm).budget.steps
    # Some values are recorded at every step; all else each `every` steps and at the last one.
    evaluations = steps if metric in EVERY_STEP else -(-steps // study.measure.every)
    if window > evaluations:
        raise field_error(
            (*place, "last"),
            f"the last {window} evaluations, and '{arm}' has {evaluations} after step 0",
            "no more evaluations than there are",
            f"last: {evaluations}" if evaluations > 1 else "read: final",
        )


def _check_step(study: Study, arm: str, metric: str, step: int, place: FieldPath) -> None:
    steps, every = study.training(arm).budget.steps, study.measure.every
    measured = step % every == 0 or step == steps or metric in EVERY_STEP
    if step > steps or not measured:
        raise field_error(
            (*place, "step"),
            f"step {step}, and '{arm}' trains {steps} steps, evaluated every {every}",
            "a step at which the metric is evaluated",
            f"step: {min(steps, step - step % every)}",
        )


def _check_even_steps(study: Study, claim: Claim, what: str, place: FieldPath) -> None:
    # A mean over evaluations, or the best of them, depends on where and how often one looks.
    lengths = {study.training(arm).budget.steps: arm for arm in claim.named}
    if len(lengths) > 1:
        (fewer, first), (more, second), *_ = sorted(lengths.items())
        raise field_error(
            place,
            f"{what} of '{first}', which trains {fewer} steps, and of '{second}', which trains {more}: they are "
            "evaluated at other steps",
            "evaluations at the same steps, or the value at the end",
            "read: final",
        )


def _check_levels(study: Study) -> None:
    """Raise `SpecError` for a level that `stable` asks of a metric which has no direction, or no value by that step."""
    for metric in study.stable.levels:
        _check_level(study, metric)
        if study.trainer == "gpt":
            _check_step_of_level(study, metric)


def _check_level(study: Study, metric: str) -> None:
    place, declared, measure = ("stable", "reached"), study.metric(metric), study.measure
    if study.better(metric) == "neither":
        fault = f"a level of {metric}, and nothing says which way it improves"
        raise field_error(place, fault, "a metric that has a better side, such as val/loss", "val/loss: 3.0")
    if _one_value(study, metric):
        required = "a metric that is evaluated during training"
        raise field_error(place, f"{metric} has no curve", required, "val/loss: 3.0")
    recorded = declared is not None and declared.suite in measure.recorded
    if study.trainer == "gpt" and not recorded:
        raise field_error(place, f"{metric} is not recorded", "a recorded metric", "val/loss: 3.0")


def _check_step_of_level(study: Study, metric: str) -> None:
    # Before the first evaluation no run has a value, and after its own end an arm has no further one.
    by, every = study.stable.by, study.measure.every
    shortest = min(study.training(arm).budget.steps for arm in study.arms)
    first = 1 if metric in EVERY_STEP else min(every, shortest)
    if not first <= by <= shortest:
        raise field_error(
            ("stable", "reached", "by"),
            f"step {by}, and the shortest arm trains {shortest} steps, evaluated every {every}",
            "a step at or after the first evaluation, within the steps of every arm",
            f"by: {min(max(by, first), shortest)}",
        )


def _one_value(study: Study, metric: str) -> str:
    """Why a metric has one value, at the end of a run; nothing where it has a curve."""
    declared, measure = study.metric(metric), study.measure
    if study.trainer == "gpt" and declared is not None and declared.suite in measure.at_end:
        return f"{metric} has no curve, for it is measured at the end"
    by_nature = metric.startswith("harness/") or (declared is not None and declared.suite in ("speed", "cost"))
    return f"{metric} has no curve" if by_nature else ""


# Analysis, the rule and assumptions


def _check_analysis(study: Study) -> None:
    analysis, n_seeds = study.analysis, min(len(study.seeds_of(arm)) for arm in study.arms)
    # Shown twice, one test would look like two that agree.
    if analysis.test in analysis.also:
        fault = f"'{analysis.test}' decides and is under 'also'"
        raise field_error(("analysis", "also"), fault, "tests other than the deciding one")
    if analysis.least_pairs is not None and analysis.least_pairs > n_seeds:
        raise field_error(
            ("analysis", "least_pairs"),
            f"least_pairs is {analysis.least_pairs} with {n_seeds} seeds",
            f"2 to {n_seeds} {'pairs' if study.paired else 'runs of each arm'}",
            f"least_pairs: {n_seeds}",
        )
    for index, metric in enumerate(study.tie_breakers):
        check_known(study, metric, ("tie_breakers", index), f"a tie-breaker reads {metric}")


def _check_gate(study: Study) -> None:
    """Raise `SpecError` for the first contradiction of a gate with itself or with the rest of the study."""
    if study.analysis.gate is not None:
        _check_order(study, study.analysis.gate)


def _check_order(study: Study, gate: Gate) -> None:
    place = ("analysis", "gate", "order")
    for entry in (entry for step in gate.order for entry in ((step,) if isinstance(step, str) else step)):
        _check_entry(study, entry)
    # By hypotheses and not by entries: one may come by its own name and by that of its role.
    times = Counter(name for step in gate.order for name in members(study, step))
    twice = next((name for name, count in times.items() if count > 1), None)
    if twice is not None:
        raise field_error(place, f"'{twice}' comes twice", "every hypothesis once, by its name or by its role")
    missing = [name for name in _in_the_gate(study) if name not in times]
    if missing:
        fault = f"{listed(missing)} {'is' if len(missing) == 1 else 'are'} in no step"
        required = "every hypothesis that is not exploratory, so that one alpha holds over all of them"
        raise field_error(place, fault, required, f"order: [..., {', '.join(missing)}], or role: exploratory")


def _check_entry(study: Study, entry: str) -> None:
    place, roles, hypothesis = ("analysis", "gate", "order"), study.families, study.hypotheses.get(entry)
    if hypothesis is not None and entry in roles:
        raise field_error(place, f"'{entry}' is a hypothesis and a role", "names that are not those of roles")
    if hypothesis is None and entry not in roles:
        entries = [*_in_the_gate(study), *(role for role in roles if role != "exploratory")]
        fault = f"'{entry}' is neither a hypothesis nor a role that has any"
        raise not_one_of(place, fault, entry, entries)
    if "exploratory" in (entry, hypothesis and hypothesis.role):
        required = "hypotheses that may decide: an exploratory one would spend alpha of those that do"
        raise field_error(place, f"'{entry}' is exploratory", required, "leave it out, or give it another role")


def _in_the_gate(study: Study) -> tuple[str, ...]:
    return tuple(name for name, hypothesis in study.hypotheses.items() if hypothesis.role != "exploratory")


def _check_rule(study: Study) -> None:
    _ = study.rule  # parsed and proved when it is first read


def _check_assumed_metrics(study: Study) -> None:
    claimed = {claim.metric for claim in study.claims.values()}
    claimed |= {of_each_task(metric) for metric in claimed}  # `harness/accuracy/*` is said of every task at once
    for metric, assumed in study.assume.metrics.items():
        place: FieldPath = ("assume", "metrics", metric)
        if metric not in claimed:
            required = "one of " + ", ".join(sorted(name for name in claimed if task_of(name) is None))
            raise field_error(place, f"'{metric}' is in no claim", required, nearest(metric, claimed))
        if assumed.over_items is not None and metric.removesuffix("/*") not in ITEM_METRICS:
            required, fix = "over_items for " + " or ".join(ITEM_METRICS), f"{metric}: without over_items"
            raise field_error((*place, "over_items"), f"{metric} is no mean over items", required, fix)


def _check_assumed_correlations(study: Study) -> None:
    for metric, assumed in study.assume.metrics.items():
        # Against a constant a run has no partner. Design simulates the correlation as a part of the noise that arms of
        # a seed share, and a variance cannot be negative.
        against = next((n for n, c in study.claims.items() if c.metric == metric and c.constant is not None), None)
        if assumed.correlation < 0.0 and against is not None and len(study.arms) > 1:
            raise field_error(
                ("assume", "metrics", metric, "correlation"),
                f"correlation is {assumed.correlation:g}, and {against} compares {metric} with a constant",
                "0 or more: what the arms of a seed share is simulated there as noise of the seed",
                "correlation: 0",
            )


def _check_assumed_effects(study: Study) -> None:
    for name in study.assume.effects:
        if name not in study.hypotheses or study.claims[name].kind.is_absence:
            raise field_error(
                ("assume", "effects", name),
                f"'{name}' is " + ("a claim of no change" if name in study.hypotheses else "not a hypothesis"),
                "a hypothesis that claims a change; a claim of no change has its power where there is none",
                nearest(name, study.hypotheses),
            )


_STAGES: tuple[tuple[tuple[Conflict, ...], tuple[Callable[[Study], None], ...]], ...] = (
    (OF_BLOCKS, ()),
    (
        (),
        (
            _check_arms,
            _check_names_of_arms,
            check_tune,
            check_command_words,
            _check_looks,
            _check_seeds_of_arms,
            _check_suites,
            _check_inference,
        ),
    ),
    (
        (),
        (_check_claims, check_labels, check_report, check_per_task, _check_unpaired, _check_analysis, _check_rule),
    ),
    (
        (*OF_SETTINGS, *OF_CLAIMS),
        (
            _check_assumed_metrics,
            _check_assumed_correlations,
            _check_assumed_effects,
            _check_readings,
            _check_levels,
            _check_gate,
        ),
    ),
)
"""Rows of the table of conflicts and checks of the whole study, stage by stage: what rests on what."""
