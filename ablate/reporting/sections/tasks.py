"""Tables by task: what a mean over zero- or few-shot tasks is a mean of, and the claims `per: task` with intervals.

The claims of a family have simultaneous intervals, which go with their outcomes. Of a mean whose tasks are in no family
the intervals of tasks are each by itself, and description. Chance is one over the number of an item's choices, from the
sealed items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from ablate.judge.stats.crossed_items import cross, over_items
from ablate.judge.stats.estimate import interval_of
from ablate.judge.stats.tests import NoTestError
from ablate.judge.verdict import Finding, Interval
from ablate.reporting import estimates
from ablate.reporting.blocks import Table, columns
from ablate.reporting.context import ReportContext
from ablate.reporting.estimates import NONE
from ablate.reporting.view import FindingView
from prereg import text as words
from prereg.metrics.catalogue import ITEM_METRICS, task_of

_LIKELIHOOD = "harness/loglikelihood/"
HEADS = ("Task", "Left side:", "Right side:", "Chance:", "Difference:", "Interval:", "Outcome", "n:", "Items:")


def task_tables(context: ReportContext) -> list[Table]:
    """One table for each family per task, with the means over the same tasks that are claimed of the same arms, and one
    for each other such mean; none where no item was sealed."""
    items, study = context.evidence.items, context.study
    if items is None:
        return []
    by_name = {finding.hypothesis: finding for finding in context.decision.findings}
    wholes = [one for one in by_name.values() if one.metric in ITEM_METRICS and task_of(one.metric) is None]
    chances = _chances(items)
    tables, placed = [], set()
    for family, names in study.task_families.items():
        members = [by_name[name] for name in names]
        mine = [one for one in wholes if _alike(context, one, members[0])]
        placed |= {one.hypothesis for one in mine}
        rows = [_row(FindingView(one, study), study.tasks_claimed[one.hypothesis], items, chances) for one in members]
        shown = (FindingView(one, study).bounds for one in members)
        methods = words.listed(dict.fromkeys(bounds.method for bounds in shown if bounds is not None))
        said = f"of the tasks {methods or 'none'}, at the level shown"
        tables.append(_table(f"{family}, by task.", [*rows, *_wholes(mine, items, chances)], said, mine))
    for one in wholes:
        if one.hypothesis not in placed and one.pairs:
            rows = _described(context, one, items, chances)
            said = (
                f"{words.level(1 - one.alpha)}, each task by itself, of the tasks: description, which decides nothing"
            )
            title = f"{one.label}, by task."
            tables.append(_table(title, [*rows, *_wholes([one], items, chances)], said, [one]))
    return tables


def summary_of_family(findings: Sequence[Finding]) -> str:
    """How the claims of a family ended, by outcome, with the tasks of those that are refuted."""
    counts = Counter(finding.outcome for finding in findings)
    refuted = [str(task_of(finding.metric)) for finding in findings if finding.outcome == "refuted"]
    said = words.listed(f"{counts[outcome]} {outcome}" for outcome in ("supported", "refuted", "inconclusive"))
    harm = f" Refuted: {words.listed(refuted)}." if refuted else ""
    n = sorted({finding.n for finding in findings})
    pairs = words.listed(map(str, n), last="or")
    return f"Of {words.counted(len(findings), 'task')} {said}, corrected over the tasks (n = {pairs}).{harm}"


def _alike(context: ReportContext, whole: Finding, member: Finding) -> bool:
    """Whether a mean over tasks is that of the same scores and arms as a claim about one of them."""
    claims = context.study.claims
    ours, theirs = claims[whole.hypothesis], claims[member.hypothesis]
    same = ITEM_METRICS[whole.metric].scores == ITEM_METRICS[member.metric].scores
    return same and whole.scale == member.scale and (ours.left, ours.right) == (theirs.left, theirs.right)


def _table(title: str, rows: list[tuple[str, ...]], said: str, wholes: Sequence[Finding]) -> Table:
    note = f"Chance: mean over the items of one over the number of choices. n: pairs of seeds. Intervals: {said}"
    for one in wholes:
        bounds = FindingView(one, None).bounds
        if bounds is not None:
            note += f"; of {one.label} {bounds.method}"
    return Table(title, columns(*HEADS), tuple(rows), note=f"{note}.")


def _row(view: FindingView, task: str, items: pd.DataFrame, chances: Mapping[str, float]) -> tuple[str, ...]:
    scored = items[(items["task"] == task) & (items["metric"] == ITEM_METRICS[view.finding.metric].scores)]
    return (
        task,
        *view.sides,
        words.number(chances[task], 2) if task in chances else NONE,
        view.difference,
        view.interval,
        view.outcome,
        str(view.finding.n),
        f"{scored['item'].nunique():,}",
    )


def _wholes(findings: Sequence[Finding], items: pd.DataFrame, chances: Mapping[str, float]) -> list[tuple[str, ...]]:
    """The line of each mean over the tasks."""
    rows: list[tuple[str, ...]] = []
    for one in findings:
        view = FindingView(one, None)
        declared = ITEM_METRICS[one.metric]
        sizes = items[items["metric"] == declared.scores].groupby("task")["item"].nunique()
        weights = sizes * 0.0 + 1.0 if declared.counts_alike == "tasks" else sizes
        known = all(task in chances for task in sizes.index)
        chance = sum(chances[str(task)] * float(w) for task, w in weights.items()) if known else 0.0
        rows.append(
            (
                f"{one.label}: {one.metric_shown}, all {len(sizes)} tasks",
                *view.sides,
                words.number(chance / float(weights.sum()), 2) if known else NONE,
                view.difference,
                view.interval,
                one.outcome,
                str(one.n),
                f"{int(sizes.sum()):,}",
            )
        )
    return rows


def _described(
    context: ReportContext, finding: Finding, items: pd.DataFrame, chances: Mapping[str, float]
) -> list[tuple[str, ...]]:
    """The tasks of a mean without a family: each with the interval of its own test."""
    claim, scores = context.study.claims[finding.hypothesis], ITEM_METRICS[finding.metric].scores
    seeds, rows = [pair.seed for pair in finding.pairs], []
    for task, mine in items[items["metric"] == scores].groupby("task", sort=True):
        means = mine.groupby(["variant", "seed"])["value"].mean()
        sides = [_side(means, weights, seeds) for weights in (claim.left, claim.right)]
        bounds: Interval | None = None
        difference = sides[0] - sides[1]
        try:
            crossed = cross(items, f"{scores}/{task}", claim.left, claim.right, seeds)
            bounds = interval_of(over_items(crossed, estimand=context.study.analysis.estimand), finding.alpha)
        except NoTestError:
            pass
        width = 0.0 if bounds is None or bounds.low is None or bounds.high is None else (bounds.high - bounds.low) / 2.0
        decimals = estimates.apart(estimates.decimals_for(width), [bounds])
        rows.append(
            (
                str(task),
                *(words.number(side, decimals) for side in sides),
                words.number(chances[str(task)], 2) if task in chances else NONE,
                estimates.signed(difference, decimals),
                estimates.interval(bounds, decimals),
                "not claimed",
                str(finding.n),
                f"{mine['item'].nunique():,}",
            )
        )
    return rows


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
    return {str(task): float((1.0 / found).mean()) for task, found in choices.groupby(level="task")}
