"""Forest plot, put together: its panels, which `charts.forest` draws, and the same in characters.

Every finding with the interval that it was judged by and its margin, a hypothesis on a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ablate.reporting.blocks import Figure, Panel
from ablate.reporting.charts import forest, forest_domain
from ablate.reporting.view import FindingView, by_scale, of_all_tasks
from ablate.reporting.wording import phrase
from prereg.metrics.catalogue import task_of

WIDTH = 80
LEAST_PLOT = 16
"""Columns that a plot in characters needs next to its numbers; with fewer it gets a line of its own."""


def forest_figure(views: Sequence[FindingView]) -> Figure:
    """Every finding, metrics on scales of their own; the phrase `finding.legend` is its caption."""
    panels = []
    for group in by_scale(views):
        spoken = phrase("finding.forest", group)
        for shape in ("wide", "narrow"):
            panels.append(Panel("", partial(forest, group, wide=shape == "wide"), spoken, shape))
    return Figure("", "", tuple(panels), tuple(text_forest(views)))


def text_forest(views: Sequence[FindingView]) -> Iterator[str]:
    """The forest in characters: a heading for each metric, a line for each hypothesis."""
    cells = {view.name: _cells(view) for view in views}
    # Columns line up over all metrics, not within each, so that outcomes are compared down the page.
    sizes = [max(map(len, column)) for column in zip(*cells.values(), strict=True)]
    # One n for all is in the legend.
    shown = range(4 if len({row[-1] for row in cells.values()}) == 1 else 5)
    # Two blanks stand behind each column; the plot gets the rest of the line.
    room = WIDTH - sum(sizes[at] + 2 for at in shown)
    for group in by_scale(views):
        first = group[0]
        unit = f", {first.unit}" if first.unit else ""
        metric = first.metric
        # Claims per task share an axis, and its heading names the metric of all of them.
        if len(group) > 1 and task_of(first.finding.metric):
            metric = first.labels.metric(of_all_tasks(first.finding.metric))
        yield f"{metric}{unit} ({phrase('charts.direction', first.finding.better)})"
        for view in group:
            row = cells[view.name]
            # Words are flush left, numbers (level and n) flush right.
            line = "  ".join(row[at].ljust(sizes[at]) if at < 3 else row[at].rjust(sizes[at]) for at in shown)
            if room >= LEAST_PLOT:
                yield f"{line}  {_plot(view, group, room)}".rstrip()
            else:
                yield line.rstrip()
                yield f"  {_plot(view, group, WIDTH - 2)}".rstrip()


def _cells(view: FindingView) -> tuple[str, str, str, str, str]:
    """Name, outcome, difference and interval, level, n."""
    n = f"n {' + '.join(map(str, view.sizes)) if view.sizes else view.finding.n}"
    if view.estimate is None:
        return view.label, view.outcome, "no estimate", "", n
    # Words that stand for an interval get its brackets, and are read in its place.
    bracket = view.bracket if view.bounds is not None else f"[{view.bracket}]"
    return view.label, view.outcome, f"{view.amount} {bracket}", view.level, n


def _plot(view: FindingView, group: Sequence[FindingView], width: int) -> str:
    low, high = forest_domain(group)
    smallest, bounds = view.finding.smallest, view.bounds

    def place(value: float) -> int:
        # The ends of the domain are the middles of the first and the last column.
        return min(width - 1, max(0, round((value - low) / (high - low) * (width - 1))))

    # From back to front, as a painter: margins, zero, interval, estimate.
    cells = [" "] * width
    for at in range(place(-smallest), place(smallest) + 1 if smallest else 0):
        cells[at] = "░"
    cells[place(0.0)] = "│"
    if bounds is not None:
        # An open end runs to the edge of the plot, and below gets no cap.
        first = place(low if bounds.low is None else bounds.low)
        last = place(high if bounds.high is None else bounds.high)
        cells[first : last + 1] = "─" * (last + 1 - first)
        # Zero and the margins are drawn over the interval: an inconclusive one covers them.
        for mark, sign in ((-smallest, "┊"), (smallest, "┊"), (0.0, "┼")):
            if first < place(mark) < last and (mark or sign == "┼"):
                cells[place(mark)] = sign
        cells[first] = "─" if bounds.low is None else "├"
        cells[last] = "─" if bounds.high is None else "┤"
    if view.difference_value is not None:
        cells[place(view.difference_value)] = "●"
    return "".join(cells)
