"""The forest plot: every finding with its deciding interval and its margin, a hypothesis on a line.

Takes findings and gives one figure: charts for a page, and the same in characters for a terminal and Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ablate.judge.stats.estimate import one_sample
from ablate.judge.stats.null_hypotheses import has_bounds
from ablate.judge.verdict import Estimate, Finding
from ablate.judge.wording import is_pseudomedian
from ablate.reporting import estimates
from ablate.reporting.blocks import Figure, Panel
from ablate.reporting.charts import DIRECTIONS, forest, forest_domain
from ablate.reporting.tasks import of_all_tasks
from prereg import text as words
from prereg.documents.procedures import PSEUDOMEDIAN
from prereg.metrics.catalogue import task_of

WIDTH = 80
LEAST_PLOT = 16
"""Columns that a plot in characters needs next to its numbers; with fewer it gets a line of its own."""


SHORT_TESTS = {
    "paired_t": "paired t",
    "bootstrap_t": "bootstrap-t",
    "sign_flip": "sign-flip",
    "wilcoxon": "Wilcoxon",
    "e_process": "e-process",
    "items": "seeds x items",
    "welch": "Welch's t",
}


_APART = re.compile(r"decided by [^,;]+, [^,;]*this interval[^,;]*")
"""How the judge's sentence says that its interval lies on another side than the outcome."""


def forest_figure(findings: Sequence[Finding]) -> Figure:
    """Every finding with its deciding interval and margin, metrics on scales of their own; `legend` is its caption."""
    panels = []
    for group in by_scale(findings):
        said = "; ".join(
            f"{f.label}: {estimates.difference_of(f)} {estimates.interval_of(f)}, {f.outcome}, n = {f.n}" for f in group
        )
        for shape in ("wide", "narrow"):
            drawing = partial(forest, group, wide=shape == "wide")
            panels.append(Panel("", drawing, f"Forest plot. {said}.", shape))
    return Figure("", "", tuple(panels), tuple(text_forest(findings)))


def centre_in_words(findings: Iterable[Finding]) -> str:
    """Which number the differences are."""
    kinds = {is_pseudomedian(finding.estimate) for finding in findings if finding.estimate}
    names = {False: "mean difference", True: PSEUDOMEDIAN}
    return " or ".join(names[kind] for kind in sorted(kinds)) or names[False]


def legend(findings: Sequence[Finding]) -> str:
    """What is drawn, about its numbers, and which outcome is not the one that its interval shows, and why."""
    apart = [(one.label, found[0]) for one in findings if (found := _APART.search(one.sentence))]
    agrees = "agrees with the outcome" + (", but for what is named below" if apart else "")
    return (
        f"Point and bar: {centre_in_words(findings)}, and the interval that {agrees}. Shaded: differences too small to "
        f"matter, as registered. {about_numbers(findings)}" + "".join(f" {name}: {why}." for name, why in apart)
    )


def about_numbers(findings: Sequence[Finding]) -> str:
    """What the percentages of the intervals are and why, the tests, and what n counts."""
    tests = words.listed(dict.fromkeys(method_of(finding) for finding in findings))
    numbers = {n_of(finding.estimate, finding.n) for finding in findings}
    n = f"n = {numbers.pop()}" if len(numbers) == 1 else "n"
    return f"{_about_intervals(findings)} Test: {tests}. {n}: {counted(findings)}."


def _about_intervals(findings: Sequence[Finding]) -> str:
    """The rule by which intervals have their level, which no outcome changes, and the levels."""
    kinds = {has_bounds(estimates.claim_of(finding).verb) for finding in findings if finding.estimate}
    if len(kinds) == 1:
        of = "a margin or constant" if kinds == {True} else "zero"
        return f"Intervals: {estimates.levels_in_words(findings)}; claims about {of}."
    return (
        "Intervals follow the claim, not the outcome: two-sided where it is about zero; where it is about a margin, "
        f"ends are one-sided bounds. {estimates.levels_in_words(findings)}."
    )


def about_p(findings: Sequence[Finding]) -> str:
    """Which p values are given."""
    how = "corrected over a role, " if estimates.is_corrected(findings) else ""
    if any(finding.gate for finding in findings):
        how = "adjusted by the gate, or for refutation over the role, "
    return f"p: {how}of refutation where refuted, else of support."


def method_of(finding: Finding) -> str:
    """The test of a finding in words."""
    if finding.estimate is None:
        return "no test"
    return test_of(finding.estimate, paired=estimates.claim_of(finding).is_paired)


def test_of(estimate: Estimate, *, paired: bool = True) -> str:
    """A test in words; over items, what it speaks of too. Without `paired` each seed gives one number."""
    items = estimate.items
    if items is None:
        name = SHORT_TESTS.get(estimate.method, estimate.method)
        return name if paired else one_sample(name)
    if items.estimand == "new_seeds":
        return f"paired t over seeds' means, new seeds on these {items.unit}"
    return f"two-way t, new seeds and new {items.unit}" + " of these tasks" * (items.strata is not None)


def n_of(estimate: Estimate | None, pairs: int) -> str:
    """Pairs; over items, seeds x items."""
    items = None if estimate is None else estimate.items
    if estimate is not None and estimate.sizes:
        return runs_in_words(estimate.sizes)
    if items is None:
        return str(pairs)
    unit = items.unit if items.n_units > 1 else items.unit[:-1]
    return f"{pairs} x {items.n_units:,} {unit}" + (f" ({items.n_items:,} items)" if items.unit == "tasks" else "")


def any_unpaired(estimates_: Iterable[Estimate | None]) -> bool:
    """Whether any of these tests has no pairs."""
    return any(one is not None and one.sizes for one in estimates_)


def what_n_counts(findings: Sequence[Finding]) -> str:
    """What n is."""
    if any_unpaired(finding.estimate for finding in findings):
        return "runs of each arm of the claim, without pairs"
    paired = any(estimates.claim_of(finding).is_paired for finding in findings)
    return "pairs of runs that share a seed" if paired else "seeds"


def counted(findings: Sequence[Finding]) -> str:
    """What n counts."""
    over_items = any(finding.estimate and finding.estimate.items for finding in findings)
    return what_n_counts(findings) + (", and the items or tasks that every run was scored on" if over_items else "")


def runs_in_words(sizes: Iterable[int]) -> str:
    """Numbers of runs by arm, left side first: `6 + 5`."""
    return " + ".join(map(str, sizes))


CELLS: Mapping[str, Callable[[Finding], str]] = {
    "Hypothesis": lambda finding: finding.label,
    "Claim": lambda finding: finding.claim_shown,
    "Role": lambda finding: finding.role,
    "Outcome": lambda finding: finding.outcome,
    "Difference:": estimates.difference_of,
    "Interval:": estimates.interval_of,
    "p:": estimates.p_of,
    "n:": lambda finding: n_of(finding.estimate, finding.n),
    "Test": method_of,
}
"""Heading -> cell, of every table in which a finding is a row."""


def by_scale(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings that can be drawn on one axis."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        # The tasks of a family share one axis.
        groups.setdefault((of_all_tasks(finding.metric), finding.scale, finding.unit), []).append(finding)
    return list(groups.values())


def text_forest(findings: Sequence[Finding]) -> Iterator[str]:
    """The forest in characters: a heading for each metric, a line for each hypothesis."""
    cells = {finding.hypothesis: _cells(finding) for finding in findings}
    sizes = [max(map(len, column)) for column in zip(*cells.values(), strict=True)]
    # One n for all is in the legend.
    shown = range(4 if len({row[-1] for row in cells.values()}) == 1 else 5)
    room = WIDTH - sum(sizes[at] + 2 for at in shown)
    for group in by_scale(findings):
        unit = f", {group[0].unit}" if group[0].unit else ""
        metric = group[0].metric_shown
        if len(group) > 1 and task_of(group[0].metric):
            metric = group[0].labels.metric(of_all_tasks(group[0].metric))
        yield f"{metric}{unit} ({DIRECTIONS[group[0].better]})"
        for finding in group:
            row = cells[finding.hypothesis]
            line = "  ".join(row[at].ljust(sizes[at]) if at < 3 else row[at].rjust(sizes[at]) for at in shown)
            if room >= LEAST_PLOT:
                yield f"{line}  {_plot(finding, group, room)}".rstrip()
            else:
                yield line.rstrip()
                yield f"  {_plot(finding, group, WIDTH - 2)}".rstrip()


def _cells(finding: Finding) -> tuple[str, str, str, str, str]:
    """Name, outcome, difference and interval, level, n."""
    estimate, bounds = finding.estimate, estimates.shown_interval(finding)
    n = f"n {runs_in_words(estimate.sizes) if estimate is not None and estimate.sizes else finding.n}"
    if estimate is None:
        return finding.label, finding.outcome, "no estimate", "", n
    decimals = estimates.finding_decimals(finding)
    without = "[no finite interval]" if estimate.interval is None else f"[{estimates.ONLY_P}]"
    interval = estimates.interval(bounds, decimals) if bounds is not None else without
    numbers = f"{estimates.signed(estimate.difference, decimals)} {interval}"
    return finding.label, finding.outcome, numbers, "" if bounds is None else words.level(bounds.level), n


def _plot(finding: Finding, group: Sequence[Finding], width: int) -> str:
    low, high = forest_domain(group)

    def place(value: float) -> int:
        return min(width - 1, max(0, round((value - low) / (high - low) * (width - 1))))

    cells = [" "] * width
    for at in range(place(-finding.smallest), place(finding.smallest) + 1 if finding.smallest else 0):
        cells[at] = "░"
    cells[place(0.0)] = "│"
    if finding.estimate is None:
        return "".join(cells)
    bounds = estimates.shown_interval(finding)
    if bounds is not None:
        first, last = (
            place(low if bounds.low is None else bounds.low),
            place(high if bounds.high is None else bounds.high),
        )
        cells[first : last + 1] = "─" * (last + 1 - first)
        cells[first] = "─" if bounds.low is None else "├"
        cells[last] = "─" if bounds.high is None else "┤"
    if finding.estimate.difference is not None:
        cells[place(finding.estimate.difference)] = "●"
    return "".join(cells)
