"""Section of tasks: what a mean over zero- or few-shot tasks is a mean of, and claims `per: task`.

The claims of a family have simultaneous intervals, which go with their outcomes. Of a mean whose tasks are in no family
the intervals of tasks are each by itself, and description. Chance is one over the number of an item's choices, from the
sealed items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from ablate.judge.stats.crossed_items import cross, over_items
from ablate.judge.stats.estimate import interval_of
from ablate.judge.stats.significance_tests import NoTestError
from ablate.judge.verdict import Finding, Interval
from ablate.reporting import estimates
from ablate.reporting.blocks import Table
from ablate.reporting.context import ReportContext
from ablate.reporting.tables import TASKS, TaskRow
from ablate.reporting.view import FindingView, views_of
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.metrics.catalogue import ITEM_METRICS, task_of

_LIKELIHOOD = "harness/loglikelihood/"


def task_tables(context: ReportContext) -> list[Table]:
    """One table for each family per task, with the means over the same tasks that are claimed of the same arms, and one
    for each other such mean; none where no item was sealed."""
    items, study = context.evidence.items, context.study
    if items is None:
        return []
    by_name = {finding.hypothesis: finding for finding in context.decision.findings}
    means = [
        finding for finding in by_name.values() if finding.metric in ITEM_METRICS and task_of(finding.metric) is None
    ]
    chances = _chances(items)
    made, placed = [], set()
    for family, names in study.task_families.items():
        members = [by_name[name] for name in names]
        # A mean over the tasks is placed under those that it is a mean of.
        mine = [finding for finding in means if _alike(context, finding, members[0])]
        placed |= {finding.hypothesis for finding in mine}
        rows = [
            _row(FindingView(finding, study), study.tasks_claimed[finding.hypothesis], items, chances)
            for finding in members
        ]
        shown = (FindingView(finding, study).bounds for finding in members)
        methods = words.listed(dict.fromkeys(bounds.method for bounds in shown if bounds is not None))
        intervals = phrase("tables.intervals_of_family", methods or "none")
        whole_views = views_of(mine, None)
        rows += _wholes(whole_views, items, chances)
        made.append(TASKS.of(rows, label=family, intervals=intervals, wholes=whole_views))
    for finding in means:
        if finding.hypothesis not in placed and finding.pairs:
            intervals = phrase("tables.intervals_of_tasks", words.level(1 - finding.alpha))
            described, whole_views = _described(context, finding, items, chances), views_of([finding], None)
            rows = [*described, *_wholes(whole_views, items, chances)]
            made.append(TASKS.of(rows, label=finding.label, intervals=intervals, wholes=whole_views))
    return made


def summary_of_family(findings: Sequence[Finding]) -> str:
    """How the claims of a family ended, by outcome, with the tasks of those that are refuted."""
    counts = Counter(finding.outcome for finding in findings)
    refuted = [str(task_of(finding.metric)) for finding in findings if finding.outcome == "refuted"]
    # Tasks that lost pairs have another n: all of them are named.
    n = sorted({finding.n for finding in findings})
    return phrase("findings_parts.family_summary", len(findings), counts, refuted, n)


def _alike(context: ReportContext, mean: Finding, member: Finding) -> bool:
    """Whether a mean over tasks is that of the same scores and arms as a claim about one of them."""
    claims = context.study.claims
    ours, theirs = claims[mean.hypothesis], claims[member.hypothesis]
    same = ITEM_METRICS[mean.metric].scores == ITEM_METRICS[member.metric].scores
    return same and mean.scale == member.scale and (ours.left, ours.right) == (theirs.left, theirs.right)


def _row(view: FindingView, task: str, items: pd.DataFrame, chances: Mapping[str, float]) -> TaskRow:
    scored = items[(items["task"] == task) & (items["metric"] == ITEM_METRICS[view.finding.metric].scores)]
    n_items = int(scored["item"].nunique())
    shown = (view.difference, view.interval, view.outcome, view.finding.n)
    return TaskRow(task, view.sides, chances.get(task), *shown, n_items)


def _wholes(views: Sequence[FindingView], items: pd.DataFrame, chances: Mapping[str, float]) -> Iterator[TaskRow]:
    """The line of each mean over the tasks."""
    for view in views:
        declared = ITEM_METRICS[view.finding.metric]
        sizes = items[items["metric"] == declared.scores].groupby("task")["item"].nunique()
        # A macro mean counts tasks alike, a micro mean items: chance is averaged as the metric is.
        weights = sizes * 0.0 + 1.0 if declared.counts_alike == "tasks" else sizes
        chance = None
        if all(task in chances for task in sizes.index):
            chance = sum(chances[str(task)] * float(w) for task, w in weights.items()) / float(weights.sum())
        shown = (view.difference, view.interval, view.outcome, view.finding.n)
        yield TaskRow(phrase("tables.whole", view, len(sizes)), view.sides, chance, *shown, int(sizes.sum()))


def _described(
    context: ReportContext, finding: Finding, items: pd.DataFrame, chances: Mapping[str, float]
) -> Iterator[TaskRow]:
    """The tasks of a mean without a family: each with the interval of its own test."""
    claim, scores = context.study.claims[finding.hypothesis], ITEM_METRICS[finding.metric].scores
    seeds = [pair.seed for pair in finding.pairs]
    for task, mine in items[items["metric"] == scores].groupby("task", sort=True):
        means = mine.groupby(["variant", "seed"])["value"].mean()
        left, right = (_side(means, weights, seeds) for weights in (claim.left, claim.right))
        bounds: Interval | None = None
        try:
            # The same two-way test as the claim's, over the items of this task alone.
            crossed = cross(items, f"{scores}/{task}", claim.left, claim.right, seeds)
            bounds = interval_of(over_items(crossed, estimand=context.study.analysis.estimand), finding.alpha)
        except NoTestError:
            pass
        width = 0.0 if bounds is None or bounds.low is None or bounds.high is None else (bounds.high - bounds.low) / 2.0
        decimals = estimates.apart(estimates.decimals_for(width), [bounds])
        yield TaskRow(
            str(task),
            (words.number(left, decimals), words.number(right, decimals)),
            chances.get(str(task)),
            estimates.signed(left - right, decimals),
            estimates.interval(bounds, decimals),
            phrase("tables.not_claimed"),
            finding.n,
            int(mine["item"].nunique()),
        )


def _side(means: pd.Series, weights: Mapping[str, float], seeds: Sequence[int]) -> float:
    """Mean over seeds of one side's weighted sum of arms."""
    return sum(weight * float(means[arm][seeds].mean()) for arm, weight in weights.items())


def _chances(items: pd.DataFrame) -> dict[str, float]:
    """Task -> mean over its items of one over the number of choices; none where no likelihood of a choice is sealed."""
    scored = items[items["metric"].str.startswith(_LIKELIHOOD)]
    if scored.empty:
        return {}
    # All runs met the same items: those of one of them tell.
    variant, seed = scored["variant"].iloc[0], scored["seed"].iloc[0]
    scored = scored[(scored["variant"] == variant) & (scored["seed"] == seed)]
    asking = scored["metric"].str.rpartition("/")[0].rename("asking")  # level 0 would be this one, by its name
    choices = scored.groupby([scored["task"], scored["item"], asking]).size()
    return {str(task): float((1.0 / n_choices).mean()) for task, n_choices in choices.groupby(level="task")}
