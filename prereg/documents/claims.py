"""Claims in words, for documents and reports: sides, what is read, margin in its unit, the two nulls.

δ is the left side of the claim minus its right side (an arm, or a constant), the mean over the population of seeds. The
nulls are those of `ablate.judge.stats.null_hypotheses`, written for a reader; nothing is tested here. The sentences are
in `templates/claims.txt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isclose

from prereg.escape import quoted
from prereg.metrics.catalogue import TASK_METRICS, Better
from prereg.rule.divergence import refutable
from prereg.study.analysis import AtStep, OverLast
from prereg.study.claim import Claim
from prereg.study.designs.per_task import of_any_task, said_once, tasks_of
from prereg.study.spec import Study
from prereg.study.verbs import KINDS, Rejected, Verb, VerbKind
from prereg.study.words_of_tests import TESTS
from prereg.text import after_number, compact, listed, side

PLAIN = {
    "train/loss": "training loss",
    "val/loss": "validation loss",
    "val/perplexity": "validation perplexity",
    "val/bits_per_byte": "validation loss in bits per byte",
    "val/accuracy": "validation accuracy",
    "grad/norm": "gradient norm",
    "train/grad_norm": "gradient norm of the step",
    "embedding/norm": "norm of the first block's input",
    "speed/tokens_per_s": "training speed",
    "speed/eval_s": "time spent in evaluation",
    "harness/macro_accuracy": "mean accuracy over the zero- and few-shot tasks",
}
"""Metric -> what a reader calls it; a metric that has no plain name is called by its own."""

_LOGARITHM = {"log": "natural logarithm", "log10": "base-10 logarithm"}
_GROUPS = {
    "with": "the mean of the arms with {}",
    "without": "the mean of the arms without {}",
    "both_or_neither": "the mean of the arms with both or neither of {}",
    "only_one": "the mean of the arms with only one of {}",
}


@dataclass(frozen=True)
class Null:
    """What is rejected, in favour of what, and by how many sides."""

    null: str
    alternative: str
    sided: str
    is_directed: bool = False
    """Whether the test is two-sided and counts in one direction only."""


@dataclass(frozen=True)
class ClaimFacts:
    """A hypothesis as templates read it; of a family over tasks, one for all of its tasks."""

    label: str
    role: str
    claim: Claim
    kind: VerbKind
    """The row of its verb: which effects it speaks of, what is rejected."""
    smallest: float
    margin: str
    """The smallest difference that matters, with its unit."""
    percent: bool
    """Whether that is registered in percent."""
    reading: str
    """What it compares: a metric, where on its curve, on which scale."""
    left: str
    right: str
    is_interaction: bool
    """Whether a side is a difference of arms."""
    bound: str
    """Of a claim against a constant: the constant."""
    tasks: tuple[str, ...]
    """The tasks that it is claimed of, each by itself."""
    support: Null
    """What must be rejected for the claim to be supported."""
    refutation: Null | None
    """What must be rejected for it to be refuted; none where no data could refute it."""
    meanings: tuple[str, str]
    """What 'supported' and what 'refuted' says of it."""


def claims_of(study: Study) -> tuple[ClaimFacts, ...]:
    """Every claim of a study, those of one family per task once."""
    return tuple(_claim_facts(study, label, name) for label, name in said_once(study).items())


def _claim_facts(study: Study, label: str, name: str) -> ClaimFacts:
    claim, hypothesis = study.claims[name], study.hypotheses[name]
    # A side whose weights do not sum to 1 is no mean of arms but a difference of them.
    left, right = _sides(claim)
    read, interaction = reading(study, name), claim.is_paired and not isclose(sum(claim.left.values()), 1.0)
    bound = "" if claim.constant is None else compact(claim.constant)
    return ClaimFacts(
        label=label,
        role=hypothesis.role,
        claim=claim,
        kind=claim.kind,
        smallest=hypothesis.smallest,
        margin=amount(study, name, hypothesis.smallest),
        percent=hypothesis.percent is not None,
        # A difference of differences has no percentage but on the logarithm.
        reading=f"{_LOGARITHM['log']} of the {read}" if interaction and hypothesis.percent is not None else read,
        left=left,
        right=right,
        is_interaction=interaction,
        bound=f"that of {bound}" if hypothesis.scale != "raw" and hypothesis.percent is None else bound,
        tasks=tasks_of(study, label),
        support=_null(study, name, claim.kind.supported),
        refutation=_null(study, name, claim.kind.refuted) if refutable(study, name) else None,
        meanings=meanings(study, name, f"the {of_any_task(study, label, reading(study, name))}"),
    )


def plain(metric: str) -> str:
    """The metric as a reader calls it.

    >>> plain("val/loss"), plain("mine/speed")
    ('validation loss', 'mine/speed')
    """
    return PLAIN.get(metric, metric)


def per(unit: str) -> str:
    """`nats per token` for `nats/token`.

    >>> per("nats/token"), per("s")
    ('nats per token', 's')
    """
    return unit.replace("/", " per ")


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[0].upper() + text[1:]


def amount(study: Study, name: str, value: float) -> str:
    """A difference of the claim's metric on the claim's scale, with its unit; the margin in percent where it is so
    registered."""
    hypothesis = study.hypotheses[name]
    if hypothesis.percent is not None and value == hypothesis.smallest:
        return f"{compact(hypothesis.percent)}% ({compact(value)} in the natural logarithm)"
    return _on_scale(study, name, value)


def _on_scale(study: Study, name: str, value: float) -> str:
    hypothesis, claimed = study.hypotheses[name], study.claims[name].metric
    metric = study.metric(claimed) or TASK_METRICS.get(claimed)
    shown = compact(value)
    if hypothesis.scale != "raw":
        # e, whose power turns a difference of natural logarithms into a factor.
        base = 10.0 if hypothesis.scale == "log10" else 2.718281828459045
        return f"{shown} in the {_LOGARITHM[hypothesis.scale]} (a factor of {base**value:.4g})"
    if metric is not None and metric.unit == "share":
        points = compact(100 * value)
        return f"{shown} ({points} percentage {'point' if points == '1' else 'points'})"
    return f"{shown} {per(metric.unit)}" if metric is not None and metric.unit else shown


def _bare(study: Study, name: str, value: float) -> str:
    """The same without its explanation, for a formula."""
    return _on_scale(study, name, value).partition(" (")[0]


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
    if hypothesis.percent is not None:  # by so many percent of which it differs, and not of its logarithm
        return f"geometric mean {text}" if estimates_means(study, name) else text
    return text if hypothesis.scale == "raw" else f"{_LOGARITHM[hypothesis.scale]} of the {text}"


def estimates_means(study: Study, name: str) -> bool:
    """Whether the test estimates a mean of each side over seeds: no median, and no difference of differences. Only then
    is a difference of logarithms the ratio of two geometric means."""
    claim = study.claims[name]
    sides = (claim.left, claim.right) if claim.is_paired else (claim.left,)
    return not TESTS[study.analysis.test].centre and all(isclose(sum(side.values()), 1.0) for side in sides)


def _null(study: Study, name: str, rejected: Rejected) -> Null:
    smallest, sign = study.hypotheses[name].smallest, study.claims[name].direction
    margin_ = _bare(study, name, smallest)
    if rejected == "margins":
        return Null(f"|δ| ≥ {margin_}", f"|δ| < {margin_}", "two one-sided tests")
    if rejected == "zero":
        left = {-1: "δ < 0", 0: "δ ≠ 0", 1: "δ > 0"}[sign]
        sided = "two-sided, counted in this direction only" if sign else "two-sided"
        return Null("δ = 0", left, sided, is_directed=bool(sign))
    # sign x margin is where the verb's direction reaches the margin.
    bound = "0" if rejected == "short of zero" or smallest == 0.0 else _bare(study, name, sign * smallest)
    # "margin" rejects what reaches the margin, "short of margin" what does not; a falling verb turns both round.
    if (rejected == "margin") == (sign > 0):
        return Null(f"δ ≥ {bound}", f"δ < {bound}", "one-sided")
    return Null(f"δ ≤ {bound}", f"δ > {bound}", "one-sided")


def _sides(claim: Claim) -> tuple[str, str]:
    """Left and right side of a claim; a group of arms by what its arms have in common."""
    written, weights = (claim.left_as_written, claim.right_as_written), (claim.left, claim.right)
    left, right = (
        _group(text) or _side({claim.labels.arm(name): weight for name, weight in side.items()})
        for text, side in zip(written, weights, strict=True)
    )
    return left, right


def _group(text: str) -> str | None:
    """One side of a claim in words, where it is a group of arms: `the mean of the arms with rotary`."""
    # "with:rotary&swiglu": the kind of group, then its parts.
    kind, _, names = text.partition(":")
    if not names or kind not in _GROUPS:
        return None
    return _GROUPS[kind].format(listed(names.split("&")))


def _side(weights: Mapping[str, float]) -> str:
    """One side of a claim: an arm, a mean of arms, a difference of two arms, or a weighted sum."""
    names, values = list(weights), list(weights.values())
    # From the simplest side on: an arm, a mean, a difference of two, and any other sum.
    if values == [1.0]:
        return f"arm {quoted(names[0])}"
    if isclose(sum(values), 1.0) and len(values) > 1 and all(isclose(value, values[0]) for value in values):
        return f"the mean of arms {listed(map(quoted, names))}"
    if values == [1.0, -1.0]:
        return f"the difference {quoted(names[0])} minus {quoted(names[1])}"
    return f"the combination {side({quoted(name): value for name, value in weights.items()})} of arms"


def meaning(claim: Claim, outcome: str, smallest: float, *, unit: str = "", baseline: str = "") -> str:
    """What an outcome says of a claim, in plain words: of a refuted `a does_not_worsen M` that `a worsens M`.

    >>> from prereg.study.claim import parse_claim
    >>> claim = parse_claim("a does_not_worsen val/loss", baseline="b")
    >>> meaning(claim, "refuted", 0.02, unit="nats/token")
    'a worsens val/loss compared with b'
    """
    left, right, verb = claim.left_side, claim.right_side, claim.kind.bare
    # "compared with the baseline" is what a claim means without it.
    than = "" if right == claim.labels.arm(baseline) or not claim.is_paired else f" compared with {right}"
    metric = claim.compared
    by = f" by {margin(claim, smallest, unit)}" if smallest > 0.0 else ""
    absence = claim.kind.is_absence
    if outcome == "inconclusive":
        more = f"{by} or more" if absence else _at_least(claim, unit)
        return f"whether {left} {verb}s {metric}{more}{than} is undecided"
    # A claim of absence that is supported and one of presence that is refuted say the same: it does not.
    if absence is (outcome == "supported"):
        return f"{left} does not {verb} {metric}{by}{' or more' * bool(by)}{than}"
    return f"{left} {verb}s {metric}{_at_least(claim, unit)}{than}"


def meanings(study: Study, name: str, metric: str | None = None) -> tuple[str, str]:
    """What 'supported' and what 'refuted' says of a hypothesis' claim, in plain words; `metric` renames it."""
    claim, hypothesis = study.claims[name], study.hypotheses[name]
    unit = study.unit(name)
    claim = replace(claim, metric=metric or claim.metric)
    supported, refuted = (
        meaning(claim, outcome, hypothesis.smallest, unit=unit, baseline=study.baseline)
        for outcome in ("supported", "refuted")
    )
    return supported, refuted


def _at_least(claim: Claim, unit: str) -> str:
    return "" if claim.by is None else f" by at least {margin(claim, claim.by, unit)}"


def margin(claim: Claim, smallest: float, unit: str) -> str:
    """The smallest difference that matters with its unit, or in percent where the study writes it so."""
    if claim.percent is None:
        return f"{compact(smallest)} {after_number(unit)}".strip()
    return f"{compact(claim.percent)}%"


def zone_in_words(verb: Verb, better: Better, zone: str) -> str:
    """A zone (`ablate.judge.verdict.Zone`) as it reads for the claim.

    >>> zone_in_words("lowers", "lower", "short of the margin")
    'worse or too small to matter'
    >>> zone_in_words("changes", "lower", "short of the margin")
    'less than the margin'
    """
    if zone == "undecided":
        return zone
    reached = zone == "at least the margin"
    kind = KINDS[verb]
    if kind.towards == "worse":
        return "worse by the margin or more" if reached else "less than the margin"
    if kind.towards == "either":
        return zone if reached else "less than the margin"
    if reached:
        return zone
    # Short of the margin lies everything on the other side too, however large: the words must hold for both.
    opposite = "the other way" if better == "neither" else "worse" if kind.towards == better else "better"
    return f"{opposite} or too small to matter"
