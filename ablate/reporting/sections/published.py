"""Section of published figures next to the study's own; `prereg/documents/published.py` reads their file.

Description, chosen outside the registration: nothing is tested. Withheld, as the findings are, while runs are missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from statistics import fmean, stdev

from ablate.records.evidence import Evidence
from ablate.records.run_record import RunRecord
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table
from ablate.reporting.context import ReportContext
from ablate.reporting.tables import PUBLISHED, PublishedRow
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.documents.published import LoadedPublished, PublishedFigure, PublishedLook
from prereg.metrics.catalogue import TASK_METRICS
from prereg.study.spec import Study

PERPLEXITY, LOSS = "val/perplexity", "val/loss"
_LARGEST_LOSS = 700.0  # exp of more is no double


@dataclass(frozen=True)
class ArmAtStep:
    """The values of one metric of one arm at one step."""

    arm: str
    planned: tuple[int, ...]
    """The planned seeds."""
    values: Mapping[int, float]
    """Seed -> value."""
    lacking: Mapping[int, str]
    """Seed -> why it has no value."""
    derived: frozenset[int] = frozenset()
    """Seeds whose perplexity is exp of their recorded loss, since it was not recorded itself."""
    later: Mapping[int, int] = field(default_factory=dict)
    """Seed -> the step at which its run diverged, for those that have a value and diverged after it."""

    @property
    def n(self) -> int:
        """Seeds that have a value."""
        return len(self.values)

    @property
    def whole(self) -> bool:
        """Whether every planned seed has a value."""
        return self.n == len(self.planned)

    @property
    def mean(self) -> float | None:
        """The mean over the seeds that have a value; none where none has."""
        return fmean(self.values.values()) if self.values else None

    @property
    def sd(self) -> float | None:
        """The sample standard deviation (n - 1) over them; none below two."""
        return stdev(self.values.values()) if len(self.values) > 1 else None


def read_at(evidence: Evidence, metric: str, arm: str, seeds: Sequence[int], step: int) -> ArmAtStep:
    """What these seeds of an arm recorded of a metric at a step.

    One thing is derived where it was not recorded: perplexity, which is defined as exp of the loss, from that loss of
    the same run and step.
    """
    recorded = _at(evidence, metric, arm, step)
    losses = _at(evidence, LOSS, arm, step) if metric == PERPLEXITY else {}
    runs = {run.seed: run for run in evidence.runs if run.variant == arm}
    values: dict[int, float] = {}
    lacking: dict[int, str] = {}
    derived = set()
    for seed in seeds:
        if seed in recorded:
            values[seed] = recorded[seed]
        # By definition, and only from the loss of the same run and step; the note counts such values.
        elif seed in losses and losses[seed] < _LARGEST_LOSS:
            values[seed] = math.exp(losses[seed])
            derived.add(seed)
        else:
            lacking[seed] = _why(runs.get(seed), step)
    # A run that diverged later still had this value: it counts, and is named.
    later = {seed: runs[seed].steps for seed in values if seed in runs and runs[seed].status == "diverged"}
    return ArmAtStep(arm, tuple(seeds), values, lacking, frozenset(derived), later)


def _at(evidence: Evidence, metric: str, arm: str, step: int) -> dict[int, float]:
    frame = evidence.metrics
    rows = frame[(frame["metric"] == metric) & (frame["variant"] == arm) & (frame["step"] == step)]
    return {int(seed): float(value) for seed, value in zip(rows["seed"], rows["value"], strict=True)}


def _why(run: RunRecord | None, step: int) -> str:
    status, end = ("", 0) if run is None else (run.status, run.steps)
    return phrase("published.why", status, end, step)


MOST_NAMED = 6


def published_section(context: ReportContext) -> Section | None:
    """Every published figure next to the study's; none where none are published or nothing may be shown."""
    if context.published is None:
        return None
    return context.outcomes("published", "Next to published figures", _blocks(context, context.published))


def _blocks(context: ReportContext, loaded: LoadedPublished) -> Iterator[Block]:
    yield Paragraph(phrase("published.nature"), "lead")
    yield _sources(context, loaded)
    for figure in loaded.published.figures:
        arms_by_look = {look: _arms_at(context, figure, look) for look in loaded.published.looks}
        yield _table(context, figure, arms_by_look)
        yield _said(figure, arms_by_look)


def _arms_at(context: ReportContext, figure: PublishedFigure, look: PublishedLook) -> tuple[ArmAtStep, ...]:
    study = context.study
    arms = [arm for arm in study.arms if arm in figure.published]
    return tuple(
        # The first seeds of the study's list: which of them are shown is not chosen by their values.
        read_at(context.evidence, figure.metric, arm, study.seeds_of(arm)[: look.seeds], look.step)
        for arm in arms
    )


def _sources(context: ReportContext, loaded: LoadedPublished) -> Facts:
    study, published = context.study, loaded.published
    arms = [arm for arm in study.arms if any(arm in figure.published for figure in published.figures)]
    facts = [
        ("Source", phrase("published.source", published)),
        ("File", phrase("published.file", loaded)),
        ("Ours", phrase("published.ours")),
    ]
    for look in published.looks:
        seeds, of_each = words.ranged(study.seeds[: look.seeds]), bool(study.arm_seeds)
        text = phrase("published.seeds", look, seeds, of_each, comparable(study, arms, look.step))
        facts.append((phrase("published.look", look).capitalize(), text))
    return Facts(tuple(facts))


def comparable(study: Study, arms: Sequence[str], step: int) -> str:
    """Whether a step of these runs is like a run that ends there: only where no rate depends on the run's length."""
    if study.trainer != "gpt":
        return phrase("published.own_trainer")
    arms_by_text: dict[str, list[str]] = {}
    for arm in arms:
        config = study.training(arm)
        # Of a cosine schedule a step in the middle has another rate than the end of a run of that length.
        text = phrase("published.comparable", step, config.budget.steps, config.optim.warmup, config.optim.schedule)
        arms_by_text.setdefault(text, []).append(study.labels.arm(arm))
    if len(arms_by_text) == 1:
        return next(iter(arms_by_text))
    return phrase("published.by_arm", [(named, text) for text, named in arms_by_text.items()])


def _table(
    context: ReportContext, figure: PublishedFigure, arms_by_look: Mapping[PublishedLook, tuple[ArmAtStep, ...]]
) -> Table:
    published = _decimals_written(figure.published.values())
    # Decimals of our means by the smallest spread of ours: two significant digits of it.
    spreads = [arm.sd for arms in arms_by_look.values() for arm in arms if arm.sd]
    # Without a spread of ours, at least as exact as what was published.
    ours = estimates.decimals_for(min(spreads)) if spreads else max(3, published)
    rows = [
        PublishedRow(
            phrase("published.look", look),
            context.arm(arm.arm),
            figure.published[arm.arm],
            figure.spread.get(arm.arm),
            arm.mean,
            arm.sd,
            arm.n,
            len(arm.planned),
            ours,
            published,
        )
        for look, arms in arms_by_look.items()
        for arm in arms
    ]
    metric, note = _metric_in_words(context.study, figure.metric), _note(context, figure, arms_by_look)
    return PUBLISHED.of(rows, label=figure.label.strip(), metric=metric, note=note)


def _metric_in_words(study: Study, metric: str) -> str:
    declared, name = study.metric(metric) or TASK_METRICS.get(metric), study.labels.metric(metric)
    if declared is None:
        return phrase("published.metric_of_own_trainer", name)
    return (
        f"{name} ({', '.join(part for part in (declared.unit, phrase('charts.direction', declared.better)) if part)})"
    )


def _decimals_written(values: Iterable[float]) -> int:
    """The decimals of the most exact of the published values, so that 22.10 next to 20.64 keeps its zero."""
    return max(len(words.compact(value).partition(".")[2]) for value in values)


def _note(
    context: ReportContext, figure: PublishedFigure, arms_by_look: Mapping[PublishedLook, tuple[ArmAtStep, ...]]
) -> str:
    """The metric's definition, what was derived, and every value that is lacking, by seed and reason."""
    declared = context.study.metric(figure.metric) or TASK_METRICS.get(figure.metric)
    # One entry a look: what is lacking and what diverged later are said by seed, never left out.
    looks = [
        {
            "label": phrase("published.look", look),
            "step": look.step,
            "gaps": [*_gaps(arms)],
            "diverged": [
                phrase("published.diverged_later", arm.arm, seed, step)
                for arm in arms
                for seed, step in sorted(arm.later.items())
            ],
        }
        for look, arms in arms_by_look.items()
    ]
    of_all = [arm for arms in arms_by_look.values() for arm in arms]
    derived, values = sum(len(arm.derived) for arm in of_all), sum(arm.n for arm in of_all)
    definition = "" if declared is None else declared.definition
    return phrase("published.note", figure.metric, definition, derived, values, looks)


def _gaps(arms: Sequence[ArmAtStep]) -> Iterator[str]:
    """`rmsnorm seed 4 (diverged at step 120)`, `layernorm seeds 1 to 5 (not recorded at step 150)`."""
    for arm in arms:
        reasons: dict[str, list[int]] = {}
        for seed, why in arm.lacking.items():
            reasons.setdefault(why, []).append(seed)
        for why, seeds in reasons.items():
            named, more = words.ranged(seeds), max(0, len(seeds) - MOST_NAMED)
            # A range names all of its seeds already.
            if " to " in named:
                more = 0
            elif more:
                named = words.ranged(seeds[:MOST_NAMED])
            yield phrase("published.gap", arm.arm, len(seeds), named, more, why)


def _said(figure: PublishedFigure, arms_by_look: Mapping[PublishedLook, tuple[ArmAtStep, ...]]) -> Facts:
    """The file's own sentence, and whether the arms stand in the published order."""
    label = figure.label.strip()
    items = [(phrase("published.on_the_difference", label), " ".join(figure.note.split()))]
    if len(figure.published) > 1:
        items.append((phrase("published.order_of_arms", label), _orders(figure, arms_by_look)))
    return Facts(tuple(items))


def _orders(figure: PublishedFigure, arms_by_look: Mapping[PublishedLook, tuple[ArmAtStep, ...]]) -> str:
    theirs = figure.published
    if len(set(theirs.values())) == 1:
        return phrase("published.no_order")
    looks = [(phrase("published.look", look), _order(theirs, arms)) for look, arms in arms_by_look.items()]
    return phrase("published.orders", in_order(theirs), looks)


def _order(theirs: Mapping[str, float], arms: Sequence[ArmAtStep]) -> str:
    # By pairs of arms: how many of them lie in our data in the published order.
    ours = {arm.arm: arm.mean for arm in arms if arm.mean is not None}
    if without := [arm.arm for arm in arms if arm.mean is None]:
        return phrase("published.without_value", without)
    # A published tie orders nothing.
    pairs = [pair for pair in combinations(theirs, 2) if theirs[pair[0]] != theirs[pair[1]]]
    # A tie of ours does not keep their order.
    turned = [pair for pair in pairs if (theirs[pair[0]] - theirs[pair[1]]) * (ours[pair[0]] - ours[pair[1]]) <= 0.0]
    n_kept, more, fewer = len(pairs) - len(turned), max(0, len(turned) - MOST_NAMED), not all(arm.whole for arm in arms)
    return phrase("published.order", in_order(ours), n_kept, len(pairs), turned[:MOST_NAMED], more, fewer)


def in_order(values: Mapping[str, float]) -> str:
    """`layernorm < rmsnorm = none`, the lowest first.

    >>> in_order({"none": 1.5, "rmsnorm": 1.4, "layernorm": 1.4})
    'rmsnorm = layernorm < none'
    """
    ranked = sorted(values, key=lambda arm: values[arm])
    text = ranked[0]
    for before, arm in pairwise(ranked):
        text += f" {'=' if values[before] == values[arm] else '<'} {arm}"
    return text
