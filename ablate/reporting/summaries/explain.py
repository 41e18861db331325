"""What a check, a metric or an amendment means, from the tables that the code itself follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import chain

from ablate.judge.audit.audit import rows
from ablate.reporting import estimates
from ablate.reporting.blocks import Facts, Paragraph, Section
from prereg import text as words
from prereg.errors import SpecError
from prereg.metrics.catalogue import METRICS, TASK_METRICS, Metric
from prereg.registry.amendments import AMENDMENT_EFFECTS, Amendment, affected, keeps_runs
from prereg.registry.ledger_entry import Entry
from prereg.registry.register import words_alone
from prereg.study.spec import Study

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
    return [
        (
            ", ".join(row.fields),
            (("affects", row.said), ("runs", "kept" if row.keeps_runs else "made anew"), ("why", row.why)),
        )
        for row in AMENDMENT_EFFECTS
    ]


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


KEPT = "its runs are kept, with every look, failure and lost start: nothing that they depend on is changed"
MADE_ANEW = (
    "all runs are made anew; one that is made again with the same configuration, code, data and seed must have the "
    "outcome that was sealed, or there is no verdict"
)


def amendment_section(study: Study, registered: Sequence[Entry], amendment: Amendment) -> Section:
    """What an amendment changes or would change, what was known by then, and what it makes exploratory."""
    found = affected(study, [amendment])
    lines = []
    if found.hypotheses:
        lines.append(f"exploratory from now on: {words.listed(found.hypotheses)}; no verdict rests on them")
    if found.arms:
        lines.append(f"no verdict rests on {words.listed(f'stable({arm})' for arm in found.arms)} either")
    if found.verdict:
        lines.append("no verdict will be given: a rule chosen after evidence decides nothing")
    if lines:
        lines.append("to decide all the same: copy the study under another name, with seeds nobody has seen")
    if amendment.failed_runs:
        lines.append(f"{words.counted(amendment.failed_runs, 'run')} failed by then and left no contrast: no evidence")
    if words_alone(amendment.differences):
        lines.append("words alone: runs and verdict are kept, and the report names the change")
    else:
        if amendment.after_evidence:
            lines.append(KEPT if keeps_runs(amendment.differences) else MADE_ANEW)
        chain = "registrations: " + " -> ".join(one.registration[:8] for one in registered)
        lines.append(chain if amendment.registration else "nothing is written yet")
    value = estimates.value
    changes = tuple(("", f"{one.field}: {value(one.registered)} -> {value(one.now)}") for one in amendment.differences)
    done = f"amended {study.study}: {amendment.previous[:8]} is now {amendment.registration[:8]}"
    what = done if amendment.registration else f"an amendment of {study.study}, {amendment.previous[:8]}"
    title = f"{what}; evidence by {'then' if amendment.registration else 'now'}: {amendment.evidence}"
    return Section("amendment", title, (Facts(changes), *map(Paragraph, lines)))
