"""docs/metrics.md: every metric, from the table in `prereg.metrics.catalogue`."""

from __future__ import annotations

from collections.abc import Iterable

from docs.generator.markdown import NOTE, table
from prereg.metrics.catalogue import METRICS, SUITES, TASK_METRICS, TOKEN_CLASSES, Metric

_HEAD = """# Metrics

{note}

Every metric that the built-in trainer records, from the table in `prereg/metrics/catalogue.py`.

A study names the suites it wants: `measure.suites` at every evaluation (each `measure.every` steps, at step 0 and at
the last step), `measure.at_end` at the last step alone. By default it records loss, activations, gradients and
speed. The seconds of every suite are recorded as `speed/measure_SUITE_s`, and the report sums them.

- **N** in a name is the number of a block or of a bin, from 0.
- **Better** is the direction of `does_not_worsen` and of `read: best`; a metric with none needs `better:` in the claim.
- **Same bits**: whether the same seed on the same machine gives the same bits. What a clock or a counter reports
  does not.
- A metric that is not available (a class without tokens, an empty bin, a machine without the counter) is not recorded,
  and a claim that reads it has no evidence: no zero is put in its place.
- Classes of tokens: {classes}.
  The class of a token is that of its first character that is not white space.
"""

_TAIL = """## Tasks

What a study with `measure.harness` records once, at the end of each run: text choices scored by their likelihood. An
*asking* is one item under one number of examples (shots) and one prompt. Means over scored items can also be judged
over seeds and items (`analysis.test: items`). The same seed on the same machine gives the same bits.

{items}
`harness/accuracy/TASK` and `harness/accuracy_shots_N/TASK` are the means over the items of one task. They are derived
from the scored items, and no run records them; a claim `per: task` is about one of each task.

The rest are numbers of a run, judged over seeds:

{others}
## Your own

`measure.own` names a function of yours; its name, unit and direction are what the study says, its source is registered
by hash, and code that has changed since is not executed. One that takes longer than its `limit_s`, an hour unless the
study says otherwise, is ended, and the run fails. Its fields: [the
study file](reference/study-file.md#measureown).
"""


def metrics_page() -> str:
    """The whole page."""
    sections = [_HEAD.format(note=NOTE, classes=", ".join(kind.replace("_", " ") for kind in TOKEN_CLASSES))]
    for name, suite in SUITES.items():
        about = suite.about[0].upper() + suite.about[1:]
        only = " It can only be measured at the last step." if suite.only_at_end else ""
        found = [metric for metric in (*METRICS.values(), *METRICS.families) if metric.suite == name]
        sections.append(f"## {name}\n\n{about}. Its price: {suite.cost}.{only}\n\n{_table(found)}")
    tasks = (*TASK_METRICS.values(), *TASK_METRICS.families)
    tables = {kind: _table([metric for metric in tasks if metric.suite == kind], 4) for kind in ("items", "tasks")}
    return "\n".join(sections) + "\n" + _TAIL.format(items=tables["items"], others=tables["tasks"])


def _table(metrics: Iterable[Metric], columns: int = 6) -> str:
    """A table of the first so many columns."""
    head = ("metric", "unit", "better", "formula", "reference", "same bits")
    rows = [
        (
            f"`{one.name}`",
            one.unit or "-",
            one.better,
            one.definition,
            one.reference or "-",
            "yes" if one.repeatable else "no",
        )
        for one in metrics
    ]
    return table(head[:columns], [row[:columns] for row in rows])
