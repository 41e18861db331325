"""What a check, a metric or an amendment means, from the tables that the code itself follows."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import chain

from ablate.judge.audit.audit import rows
from prereg.errors import SpecError
from prereg.metrics.catalogue import METRICS, TASK_METRICS, Metric
from prereg.registry.amendments import AMENDMENT_EFFECTS

Explained = tuple[str, tuple[tuple[str, str], ...]]
"""A name, and the facts about it."""


def explained(topic: str) -> list[Explained]:
    """The facts about every check, amendment or metric, or about the one that the topic names.

    Raises `SpecError` for a topic that is none of these.
    """
    tables = {"checks": _checks(), "amendments": _amendments(), "metrics": _metrics(_all_metrics())}
    if topic in tables:
        return tables[topic]
    # A member of a family (`residual/norm_3`) is in no list of names.
    if topic in METRICS or topic in TASK_METRICS:
        return _metrics([METRICS[topic] if topic in METRICS else TASK_METRICS[topic]])
    names = {name: (name, facts) for name, facts in chain(tables["checks"], tables["metrics"])}
    if topic in names:
        return [names[topic]]
    close = get_close_matches(topic[:100], [*tables, *names], n=1, cutoff=0.5)
    raise SpecError(
        f"nothing is called '{topic}'",
        required="checks, amendments, metrics, or the name of one check or metric",
        fix=f"ablate explain '{close[0]}'" if close else "ablate explain metrics",
    )


def _checks() -> list[Explained]:
    return [(check, (("looks at", looks), ("if it fails", means), ("why", why))) for check, looks, means, why in rows()]


def _amendments() -> list[Explained]:
    return [(", ".join(row.fields), (("affects", row.said), ("why", row.why))) for row in AMENDMENT_EFFECTS]


def _all_metrics() -> Iterable[Metric]:
    return (*METRICS.values(), *METRICS.families, *TASK_METRICS.values(), *TASK_METRICS.families)


def _metrics(metrics: Iterable[Metric]) -> list[Explained]:
    return [
        (
            one.name,
            tuple(
                (term, text)
                for term, text in (
                    ("unit", one.unit),
                    ("better", one.better),
                    ("suite", one.suite),
                    ("definition", one.definition),
                    ("reference", one.reference),
                )
                if text
            ),
        )
        for one in metrics
    ]
