"""What is measured, in sentences: metrics, tasks, when they are read, on which scale."""

from __future__ import annotations

from prereg.documents.claims import PLAIN, capital, per, plain, reading
from prereg.metrics.catalogue import TASK_METRICS
from prereg.registry.registration import TaskPin
from prereg.study.analysis import OverLast
from prereg.study.designs.per_task import of_any_task, said_once
from prereg.study.measure import OwnMetric
from prereg.study.spec import Study
from prereg.text import compact, counted, listed

AS_THE_TRAINER_DEFINES = "as the researcher's own trainer defines it"


def measured(study: Study) -> str:
    """Every claimed metric: its name, its definition, its unit, and when it is read."""
    sentences = []
    read = {name: of_any_task(study, label, study.claims[name].metric) for label, name in said_once(study).items()}
    for metric in dict.fromkeys(read.values()):
        known = study.metric(metric) or (TASK_METRICS.get(metric) if study.trainer == "gpt" else None)
        own = "" if plain(metric) == metric else f" ({metric})"
        shown = study.labels.metrics.get(metric)
        text = f"{shown} ({metric})" if shown else f"{capital(plain(metric)) if metric in PLAIN else metric}{own}"
        if known is not None:
            unit = f", in {per(known.unit)}" if known.unit not in ("", "share") else ""
            text += f": {known.definition or AS_THE_TRAINER_DEFINES}{unit}"
            if any(study.hypotheses[name].family and one == metric for name, one in read.items()):
                text += ", and of the items of each task"
            better = known.better
            if better != "neither":
                text += f"; {better} is better"
        else:
            text += f": {AS_THE_TRAINER_DEFINES}"
        sentences.append(text + ".")
    return " ".join([*sentences, when_read(study)])


def when_read(study: Study) -> str:
    """Where on their curves the claims read their metrics, and on which scale."""
    special = [
        f"{name} reads the {reading(study, name)}"
        for name, hypothesis in study.hypotheses.items()
        if hypothesis.read != "final" or hypothesis.scale != "raw"
    ]
    stated = [
        f"{name} counts {hypothesis.better} values as better"
        for name, hypothesis in study.hypotheses.items()
        if hypothesis.better is not None
    ]
    most = f"All values are read at the last {study.step_name}"
    if special:
        most += f", unless it says otherwise here: {'; '.join(special)}"
    text = most + "." + (f" By the study file, {listed(stated)}." if stated else "")
    if study.measure.uneven_steps is not None:
        text += f" Runs of a pair may be evaluated at different steps: {study.measure.uneven_steps.rstrip('.')}."
    return text


def recorded(study: Study) -> str:
    """What is recorded while a run trains, and how often."""
    if study.trainer == "command":
        text = "What else is recorded, and how often, is up to the researcher's own trainer."
        return f"{text} {tasks_sentence(study)}".strip()
    measure = study.measure
    often = "every step" if measure.every == 1 else f"every {counted(measure.every, 'step')}"
    text = (
        f"Metrics are evaluated {often}, at the start and at the last step; the recorded families are "
        f"{listed(measure.suites) or 'none'}."
    )
    if measure.at_end:
        text += f" At the last step alone: {listed(measure.at_end)}."
    if "calibration" in measure.recorded:
        text += f" Calibration is looked at in {counted(measure.calibration.bins, 'bin')} of confidence."
    if "cost" in measure.recorded:
        timed = measure.inference
        tokens = f"{counted(timed.length, 'token')}" if timed.length else "the context length"
        text += (
            f" Inference is timed on {counted(timed.batch, 'sequence')} of {tokens}, the median of "
            f"{counted(timed.repeats, 'pass', 'passes')}."
        )
    for one in measure.own:
        when = "at the last step" if one.at_end else "at every evaluation"
        if one.limit_s != OwnMetric.model_fields["limit_s"].default:
            when += f", within {compact(one.limit_s)} s"
        text += f" The study's own metric {one.name} ({one.entry_point}, {when}): {one.definition.rstrip('.')}."
    if measure.loss_level is not None:
        text += f" The level of the validation loss is {compact(measure.loss_level)} nats per token."
    return f"{text} {tasks_sentence(study)}".strip()


def tasks_sentence(study: Study) -> str:
    """The zero- and few-shot tasks, if there are any."""
    harness = study.measure.harness
    if harness is None:
        return ""
    shots = listed(str(n) for n in harness.shots)
    examples = "example" if harness.shots == (1,) else "examples"
    text = (
        f"At the end of each run the task pack {harness.tasks} is answered, the first "
        f"{counted(harness.items_per_task, 'item')} of each task, with {shots} {examples} in the prompt."
    )
    if max(harness.shots) == 0:
        return text
    drawn = f"Examples are items that are not scored, drawn with the seed {harness.examples_seed}, for all runs alike."
    return f"{text} {drawn}"


def pinned_tasks(pin: TaskPin | None) -> str:
    """What the registration holds of the tasks; nothing where there are none."""
    if pin is None:
        return ""
    left = f", of which {pin.n_unencodable:,} cannot be written by the tokenizer and are left out" * bool(
        pin.n_unencodable
    )
    under = f" Every item is asked under the prompts {listed(pin.prompts)}." if len(pin.prompts) > 1 else ""
    return (
        f"The tasks {pin.name} ({counted(pin.n_tasks, 'task')}, {counted(pin.n_items, 'item')}{left}) have the sha256 "
        f"{pin.sha256}.{under}"
    )


def transformations(study: Study) -> str:
    """Scales on which differences are taken."""
    logs = [
        f"{name} on the {'natural' if hypothesis.scale == 'log' else 'base-10'} logarithm"
        for name, hypothesis in ((one, study.hypotheses[two]) for one, two in said_once(study).items())
        if hypothesis.scale != "raw"
    ]
    if not logs:
        return "None. Differences are taken on the raw scale of every metric."
    rest = "" if len(logs) == len(said_once(study)) else " All other differences are taken on the raw scale."
    return f"Differences are taken for {listed(logs)}.{rest}"


def indices(study: Study) -> str:
    """How measures are combined before they are tested."""
    combined = [
        f"{name} uses the {reading(study, name)}"
        for name, hypothesis in study.hypotheses.items()
        if hypothesis.read in ("area", "best") or isinstance(hypothesis.read, OverLast)
    ]
    if not combined:
        return "None. Every hypothesis uses one recorded value a run."
    return f"{listed(combined)}. No other measures are combined."
