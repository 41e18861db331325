"""Every hypothesis as a sentence, and its two nulls as a statistician writes them.

δ is the left side of the claim minus its right side (an arm, or a constant), the mean over the population of seeds.
The rules are those of `ablate.judge.stats.null_hypotheses`, said for a reader; nothing is tested here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isclose

from prereg.documents.designs import arms, group_text
from prereg.escape import quoted
from prereg.metrics.catalogue import TASK_METRICS
from prereg.rule.divergence import refutable
from prereg.study.analysis import AtStep, OverLast
from prereg.study.claim import Claim, weights_in_words
from prereg.study.designs.per_task import of_any_task, said_once, tasks_of
from prereg.study.spec import Study
from prereg.study.verbs import BEYOND, Rejected
from prereg.text import compact, counted, listed, side

PLAIN = {
    "train/loss": "training loss",
    "val/loss": "validation loss",
    "val/perplexity": "validation perplexity",
    "val/bits_per_byte": "validation loss in bits per byte",
    "val/accuracy": "validation accuracy",
    "grad/norm": "gradient norm",
    "embedding/norm": "norm of the first block's input",
    "speed/tokens_per_s": "training speed",
    "speed/eval_s": "time spent in evaluation",
    "harness/macro_accuracy": "mean accuracy over the zero- and few-shot tasks",
}
"""Metric -> what a reader calls it; a metric that has no plain name is called by its own."""

_LOGARITHM = {"log": "natural logarithm", "log10": "base-10 logarithm"}
DIRECTED = "two-sided, counted in this direction only"
_WORSE = {"lower": "higher", "higher": "lower"}


@dataclass(frozen=True)
class Null:
    """What is rejected, in favour of what, and by how many sides."""

    null: str
    alternative: str
    sided: str


def plain(metric: str) -> str:
    """The metric as a reader calls it."""
    return PLAIN.get(metric, metric)


def per(unit: str) -> str:
    """`nats per token` for `nats/token`."""
    return unit.replace("/", " per ")


def amount(study: Study, name: str, value: float) -> str:
    """A difference of the claim's metric on the claim's scale, with its unit; the margin in percent where it is so
    registered."""
    hypothesis = study.hypotheses[name]
    if hypothesis.percent is not None and value == hypothesis.smallest:
        return f"{compact(hypothesis.percent)}% ({compact(value)} in the natural logarithm){_per(study, name)}"
    return _on_scale(study, name, value) + _per(study, name)


def _on_scale(study: Study, name: str, value: float) -> str:
    hypothesis, claimed = study.hypotheses[name], study.claims[name].metric
    metric = study.metric(claimed) or TASK_METRICS.get(claimed)
    shown = compact(value)
    if hypothesis.scale != "raw":
        base = 10.0 if hypothesis.scale == "log10" else 2.718281828459045
        return f"{shown} in the {_LOGARITHM[hypothesis.scale]} (a factor of {base**value:.4g})"
    if metric is not None and metric.unit == "share":
        points = compact(100 * value)
        return f"{shown} ({points} percentage {'point' if points == '1' else 'points'})"
    return f"{shown} {per(metric.unit)}" if metric is not None and metric.unit else shown


def bare(study: Study, name: str, value: float) -> str:
    """The same without its explanation, for a formula."""
    return _on_scale(study, name, value).partition(" (")[0] + _per(study, name)


def _per(study: Study, name: str) -> str:
    """What the effect of a trend is per."""
    trend = study.claims[name].trend
    return "" if trend is None else f" {trend.per}"


def value_read(study: Study, name: str) -> str:
    """What a claim reads of each run: the metric, and where on its curve."""
    hypothesis, metric = study.hypotheses[name], plain(study.claims[name].metric)
    metric = study.labels.metrics.get(study.claims[name].metric, metric)
    if isinstance(hypothesis.read, AtStep):
        return f"{metric} at {study.step_name} {hypothesis.read.step:,}"
    if isinstance(hypothesis.read, OverLast):
        return f"{metric} averaged over the last {hypothesis.read.last} evaluations"
    best = "lowest" if study.claims[name].better == "lower" else "highest"
    return {
        "final": metric,
        "best": f"{best} {metric} of any evaluation",
        "area": f"{metric} averaged over the {study.step_name}s of training",
    }[hypothesis.read]


def reading(study: Study, name: str) -> str:
    """The quantity that the claim compares: what it reads, on its scale."""
    hypothesis, text = study.hypotheses[name], value_read(study, name)
    if hypothesis.percent is not None:
        return f"geometric mean {text}"  # by so many percent of which it differs, and not of its logarithm
    return text if hypothesis.scale == "raw" else f"{_LOGARITHM[hypothesis.scale]} of the {text}"


def statement(study: Study, name: str) -> str:
    """The claim as one sentence."""
    return _statement(study, name, _left(study, name))


def statements(study: Study, *, mark: str = "") -> list[str]:
    """Every claim with its role and what matters, those of one family per task in one, with all its tasks; names are
    set between two `mark`."""
    found = []
    for label, name in said_once(study).items():
        tasks = tasks_of(study, label)
        said = of_any_task(study, label, f"{statement(study, name)} {matters(study, name)}".strip())
        each = f" Claimed of each of {counted(len(tasks), 'task')}, and corrected over them: {listed(tasks)}."
        found.append(f"{mark}{label}{mark} ({study.hypotheses[name].role}): {said}{each * bool(tasks)}")
    return found


def _left(study: Study, name: str) -> str:
    claim = study.claims[name]
    return _sides(claim)[0] if claim.trend is None else claim.trend.text


def _statement(study: Study, name: str, left: str) -> str:
    claim = study.claims[name]
    what = f"the {reading(study, name)}"
    margin = amount(study, name, study.hypotheses[name].smallest)
    if not claim.is_paired:
        return _of_one_side(study, name, what, left, margin)
    right, least = _sides(claim)[1], "" if claim.by is None else f", by at least {margin}"
    if not isclose(sum(claim.left.values()), 1.0):
        verb = {
            "lowers": f"lower than {right}{least}",
            "raises": f"higher than {right}{least}",
            "changes": f"different from {right}, in either direction",
            "does_not_change": f"equal to {right} within {margin} in either direction",
        }[claim.plain_verb]
        kind = "no interaction" if claim.verb == "does_not_change" else "an interaction"
        return f"In {what}, {left} is {verb} ({kind})."
    if claim.verb == "does_not_worsen":
        worse = _WORSE[study.claims[name].better]
        return f"{capital(what)} is not {worse} for {left} than for {right} by {margin} or more (non-inferiority)."
    if claim.verb == "does_not_change":
        return f"{capital(what)} for {left} differs from that for {right} by less than {margin} (equivalence)."
    if claim.verb == "changes":
        return f"{capital(what)} for {left} differs from that for {right}, in either direction."
    way = "lower" if claim.plain_verb == "lowers" else "higher"
    return f"{capital(what)} is {way} for {left} than for {right}{least}."


def _of_one_side(study: Study, name: str, what: str, left: str, margin: str) -> str:
    """A claim against a constant, or about a trend."""
    claim, hypothesis = study.claims[name], study.hypotheses[name]
    least = "" if claim.by is None else f", by at least {margin}"
    if claim.trend is not None:
        verb = {
            "lowers": f"below zero{least}",
            "raises": f"above zero{least}",
            "changes": "not zero, in either direction",
            "does_not_change": f"zero within {margin} in either direction",
        }[claim.plain_verb]
        weights = weights_in_words(claim.trend, study.factors)
        return f"In {what}, {left} is {verb}; {weights}."
    assert claim.constant is not None, name
    bound = compact(claim.constant)
    if hypothesis.scale != "raw" and hypothesis.percent is None:
        bound = f"that of {bound}"
    mean = "" if hypothesis.percent is not None else "mean "
    return f"The {mean}{reading(study, name)} over seeds is {BEYOND[claim.plain_verb]} {bound} for {left}{least}."


def matters(study: Study, name: str) -> str:
    """The smallest difference that matters, as a sentence; nothing where the claim's own sentence has said it."""
    if study.claims[name].kind.is_absence or study.claims[name].by is not None:
        return ""
    smallest = study.hypotheses[name].smallest
    if smallest == 0.0:
        return "A difference of any size matters."
    return f"The smallest difference that matters is {amount(study, name, smallest)}."


def support(study: Study, name: str) -> Null:
    """What must be rejected for the claim to be supported."""
    return _null(study, name, study.claims[name].kind.supported)


def refutation(study: Study, name: str) -> Null | None:
    """What must be rejected for the claim to be refuted; none when no data could refute it."""
    return _null(study, name, study.claims[name].kind.refuted) if refutable(study, name) else None


def _null(study: Study, name: str, rejected: Rejected) -> Null:
    smallest, sign = study.hypotheses[name].smallest, study.claims[name].direction
    margin = bare(study, name, smallest)
    if rejected == "margins":
        return Null(f"|δ| ≥ {margin}", f"|δ| < {margin}", "two one-sided tests")
    if rejected == "zero":
        left = {-1: "δ < 0", 0: "δ ≠ 0", 1: "δ > 0"}[sign]
        return Null("δ = 0", left, DIRECTED if sign else "two-sided")
    bound = "0" if rejected == "short of zero" or smallest == 0.0 else bare(study, name, sign * smallest)
    if (rejected == "margin") == (sign > 0):
        return Null(f"δ ≥ {bound}", f"δ < {bound}", "one-sided")
    return Null(f"δ ≤ {bound}", f"δ > {bound}", "one-sided")


def _sides(claim: Claim) -> tuple[str, str]:
    """Left and right side of a claim; a group of arms by what its arms have in common."""
    written, weights = (claim.left_as_written, claim.right_as_written), (claim.left, claim.right)
    left, right = (
        group_text(text) or _side({claim.labels.arm(name): weight for name, weight in side.items()})
        for text, side in zip(written, weights, strict=True)
    )
    return left, right


def _side(weights: Mapping[str, float]) -> str:
    """One side of a claim: an arm, a mean of arms, a difference of two arms, or a weighted sum."""
    names, values = list(weights), list(weights.values())
    if values == [1.0]:
        return arms(names)
    if isclose(sum(values), 1.0) and len(values) > 1 and all(isclose(value, values[0]) for value in values):
        return f"the mean of {arms(names)}"
    if values == [1.0, -1.0]:
        return f"the difference {quoted(names[0])} minus {quoted(names[1])}"
    return f"the combination {side({quoted(name): value for name, value in weights.items()})} of arms"


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[0].upper() + text[1:]
