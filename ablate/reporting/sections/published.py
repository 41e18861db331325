"""The part of the report that sets published figures next to the study's own, and says what it does not show.

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
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns
from ablate.reporting.charts import DIRECTIONS
from ablate.reporting.context import ReportContext
from ablate.reporting.estimates import NONE
from prereg import text as words
from prereg.documents.published import LoadedPublished, PublishedFigure, PublishedLook
from prereg.metrics.catalogue import TASK_METRICS
from prereg.study.spec import Study
from prereg.study.training import Training

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
        elif seed in losses and losses[seed] < _LARGEST_LOSS:
            values[seed] = math.exp(losses[seed])
            derived.add(seed)
        else:
            lacking[seed] = _why(runs.get(seed), step)
    later = {seed: runs[seed].steps for seed in values if seed in runs and runs[seed].status == "diverged"}
    return ArmAtStep(arm, tuple(seeds), values, lacking, frozenset(derived), later)


def _at(evidence: Evidence, metric: str, arm: str, step: int) -> dict[int, float]:
    frame = evidence.metrics
    rows = frame[(frame["metric"] == metric) & (frame["variant"] == arm) & (frame["step"] == step)]
    return {int(seed): float(value) for seed, value in zip(rows["seed"], rows["value"], strict=True)}


def _why(run: RunRecord | None, step: int) -> str:
    if run is None:
        return "no run"
    if run.status == "diverged" and run.steps <= step:
        return f"diverged at step {run.steps:,}"
    if run.steps < step:
        return f"ends at step {run.steps:,}"
    return f"not recorded at step {step:,}"


NOT_REGISTERED = (
    "Not part of the registration; nothing is tested against these figures. Which figures are shown, which steps and "
    "seeds they are compared with and what is said of each difference was chosen outside the registration, possibly "
    "with the results in view. No verdict rests on any of it."
)
FALLING = {
    "linear": "falls to zero over the whole run",
    "cosine": "falls along a cosine over the whole run",
    "wsd": "falls over the last part of the run",
}
MOST_NAMED = 6


def published_section(context: ReportContext) -> Section | None:
    """Every published figure next to the study's; none where none are published or nothing may be shown."""
    if context.published is None:
        return None
    return context.outcomes("published", "Next to published figures", _blocks(context, context.published))


def _blocks(context: ReportContext, loaded: LoadedPublished) -> Iterator[Block]:
    yield Paragraph(NOT_REGISTERED, "lead")
    yield _sources(context, loaded)
    for figure in loaded.published.figures:
        found = {look: _arms_at(context, figure, look) for look in loaded.published.looks}
        yield _table(context, figure, found)
        yield _said(figure, found)


def _arms_at(context: ReportContext, figure: PublishedFigure, look: PublishedLook) -> tuple[ArmAtStep, ...]:
    study = context.study
    arms = [arm for arm in study.arms if arm in figure.published]
    return tuple(
        read_at(context.evidence, figure.metric, arm, study.seeds_of(arm)[: look.seeds], look.step) for arm in arms
    )


def _sources(context: ReportContext, loaded: LoadedPublished) -> Facts:
    published = loaded.published
    over = "how many runs each published value is over is not stated"
    if published.runs is not None:
        over = f"each published value is over {words.counted(published.runs, 'run')}"
    arms = [arm for arm in context.study.arms if any(arm in figure.published for figure in published.figures)]
    study = context.study
    looks = tuple(
        (
            look_in_words(look).capitalize(),
            (
                f"The first {words.counted(look.seeds, 'seed')} of each arm. {said}"
                if study.arm_seeds
                else f"Seeds {words.ranged(study.seeds[: look.seeds])}. {said}"
            ),
        )
        for look in published.looks
        for said in [comparable(context.study, arms, look.step)]
    )
    return Facts(
        (
            ("Source", f"{published.source.strip()} ({over})"),
            ("File", f"{loaded.file}, sha256 {loaded.sha256}"),
            (
                "Ours",
                "Mean and sample standard deviation (n − 1) over seeds of the value recorded at the step. Difference: "
                "our mean minus the published value",
            ),
            *looks,
        )
    )


def look_in_words(look: PublishedLook) -> str:
    """`step 150, 3 seeds`."""
    return f"step {look.step:,}, {words.counted(look.seeds, 'seed')}"


def comparable(study: Study, arms: Sequence[str], step: int) -> str:
    """Whether a step of these runs is like a run that ends there: only where no rate depends on the run's length."""
    if study.trainer != "gpt":
        return (
            "The trainer is the user's own: whether a run that ends at this step would be at these values is not known "
            "here."
        )
    said: dict[str, list[str]] = {}
    for arm in arms:
        said.setdefault(_comparable(study.training(arm), step), []).append(arm)
    if len(said) == 1:
        return next(iter(said))
    return " ".join(f"{words.listed(map(study.labels.arm, named))}: {text}" for text, named in said.items())


def _comparable(config: Training, step: int) -> str:
    steps, optim = config.budget.steps, config.optim
    if step == steps:
        return "This is the last step of these runs."
    if step > steps:
        return f"These runs end before it, at step {steps:,}."
    if step == 0:
        return "Nothing has been trained at this step."
    warmup = f" after {words.counted(optim.warmup, 'step')} of warmup" if optim.warmup else ""
    if optim.schedule == "constant":
        return (
            f"A step before the end of these runs, at {steps:,}. The registered learning rate is constant{warmup} "
            f"and does not depend on how long a run is: a run of {step:,} steps would be at these values."
        )
    return (
        f"A step before the end of these runs, at {steps:,}. The registered learning rate {FALLING[optim.schedule]}, "
        f"so it depends on how long a run is: a run of {step:,} steps would have ended with another rate, and these "
        "values are not those of such a run."
    )


def _table(
    context: ReportContext, figure: PublishedFigure, found: Mapping[PublishedLook, tuple[ArmAtStep, ...]]
) -> Table:
    published = _decimals_written(figure.published.values())
    spreads = [one.sd for arms in found.values() for one in arms if one.sd]
    ours = estimates.decimals_for(min(spreads)) if spreads else max(3, published)
    rows: list[tuple[str, ...]] = []
    marked: set[int] = set()
    for look, arms in found.items():
        for one in arms:
            theirs, spread, mean = figure.published[one.arm], figure.spread.get(one.arm), one.mean
            if not one.whole:
                marked.add(len(rows))
            rows.append(
                (
                    look_in_words(look),
                    context.arm(one.arm),
                    words.number(theirs, published),
                    *([] if not figure.spread else [NONE if spread is None else words.compact(spread)]),
                    NONE if mean is None else words.number(mean, ours),
                    NONE if one.sd is None else words.number(one.sd, ours),
                    str(one.n) if one.whole else f"{one.n} of {len(one.planned)}",
                    # A published value is rounded: further digits of the difference would be digits of the rounding.
                    NONE if mean is None else estimates.signed(mean - theirs, min(ours, published + 1)),
                )
            )
    spread_of_theirs = ["Published SD:"] if figure.spread else []
    return Table(
        f"{figure.label.strip()}: {_metric_in_words(context.study, figure.metric)}",
        columns("At", "Arm", "Published:", *spread_of_theirs, "Ours, mean:", "SD:", "n (seeds):", "Difference:"),
        tuple(rows),
        note=_note(context, figure, found),
        marked=frozenset(marked),
        grouped=True,
        stacked=True,
    )


def _metric_in_words(study: Study, metric: str) -> str:
    declared = study.metric(metric) or TASK_METRICS.get(metric)
    if declared is None:
        return f"{study.labels.metric(metric)} of the user's own trainer"
    about = ", ".join(part for part in (declared.unit, DIRECTIONS[declared.better]) if part)
    return f"{study.labels.metric(metric)} ({about})"


def _decimals_written(values: Iterable[float]) -> int:
    """The decimals of the most exact of the published values, so that 22.10 next to 20.64 keeps its zero."""
    return max(len(words.compact(value).partition(".")[2]) for value in values)


def _note(context: ReportContext, figure: PublishedFigure, found: Mapping[PublishedLook, tuple[ArmAtStep, ...]]) -> str:
    """The metric's definition, what was derived, and every value that is lacking, by seed and reason."""
    declared = context.study.metric(figure.metric) or TASK_METRICS.get(figure.metric)
    said = [f"{figure.metric}: {declared.definition}."] if declared is not None and declared.definition else []
    derived = sum(len(one.derived) for arms in found.values() for one in arms)
    values = sum(one.n for arms in found.values() for one in arms)
    if derived:
        which = "every value is" if derived == values else f"{derived} of the {values} values are"
        said.append(f"It was not recorded everywhere: {which} exp of the {LOSS} of the same run and step, run by run.")
    for look, arms in found.items():
        gaps = _gaps(arms)
        said += [f"Missing at {look_in_words(look)}: {gaps}."] if gaps else []
        diverged = [
            f"{one.arm} seed {seed} at step {step:,}" for one in arms for seed, step in sorted(one.later.items())
        ]
        said += [f"Diverged after step {look.step:,}, and counted in it: {words.listed(diverged)}."] if diverged else []
    return " ".join(said)


def _gaps(arms: Sequence[ArmAtStep]) -> str:
    """`rmsnorm seed 4 (diverged at step 120), layernorm seeds 1 to 5 (not recorded at step 150)`."""
    parts = []
    for one in arms:
        reasons: dict[str, list[int]] = {}
        for seed, why in one.lacking.items():
            reasons.setdefault(why, []).append(seed)
        for why, seeds in reasons.items():
            word = "seed" if len(seeds) == 1 else "seeds"
            named, more = words.ranged(seeds), len(seeds) - MOST_NAMED
            if more > 0 and " to " not in named:
                named = f"{words.ranged(seeds[:MOST_NAMED])} and {more} more"
            parts.append(f"{one.arm} {word} {named} ({why})")
    return "; ".join(parts)


def _said(figure: PublishedFigure, found: Mapping[PublishedLook, tuple[ArmAtStep, ...]]) -> Facts:
    """The file's own sentence, and whether the arms stand in the published order."""
    items = [(f"{figure.label.strip()}, on the difference", " ".join(figure.note.split()))]
    if len(figure.published) > 1:
        items.append((f"{figure.label.strip()}, order of the arms", _orders(figure, found)))
    return Facts(tuple(items))


def _orders(figure: PublishedFigure, found: Mapping[PublishedLook, tuple[ArmAtStep, ...]]) -> str:
    theirs = figure.published
    if len(set(theirs.values())) == 1:
        return "The published values are equal, so they put the arms in no order."
    said = [f"Published: {in_order(theirs)}."]
    for look, arms in found.items():
        said.append(f"Ours at {look_in_words(look)}: {_order(theirs, arms)}.")
    return " ".join([*said, "An order of means; nothing is tested."])


def _order(theirs: Mapping[str, float], arms: Sequence[ArmAtStep]) -> str:
    ours = {one.arm: one.mean for one in arms if one.mean is not None}
    without = [one.arm for one in arms if one.mean is None]
    if without:
        return f"no order can be given, for {words.listed(without)} {'has' if len(without) == 1 else 'have'} no value"
    pairs = [pair for pair in combinations(theirs, 2) if theirs[pair[0]] != theirs[pair[1]]]
    turned = [pair for pair in pairs if (theirs[pair[0]] - theirs[pair[1]]) * (ours[pair[0]] - ours[pair[1]]) <= 0.0]
    fewer = "" if all(one.whole for one in arms) else ", from fewer values than planned"
    if not turned:
        return f"{in_order(ours)}: the published order holds{fewer}"
    kept = f"{len(pairs) - len(turned)} of {words.counted(len(pairs), 'pair')} of arms"
    named = "; ".join(f"{left} with {right}" for left, right in turned[:MOST_NAMED])
    more = f"; and {len(turned) - MOST_NAMED} more" if len(turned) > MOST_NAMED else ""
    return (
        f"{in_order(ours)}: another order; {kept} agree with the published one, and these do not: {named}{more}{fewer}"
    )


def in_order(values: Mapping[str, float]) -> str:
    """`layernorm < rmsnorm = none`, the lowest first."""
    ranked = sorted(values, key=lambda arm: values[arm])
    text = ranked[0]
    for before, arm in pairwise(ranked):
        text += f" {'=' if values[before] == values[arm] else '<'} {arm}"
    return text
