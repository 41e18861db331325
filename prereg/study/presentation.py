"""Fields `labels` and `report`: display names in place of ids, and up to four diagnostics of a report.

Presentation alone: ids stay in the ledger, the records, the verdict and CSV. Both are in the study's file and so in the
hash of its registration; an amendment that changes nothing else touches no claim and no run. What no report draws is in
the CSV files of `ablate report --as csv`.

To add a diagnostic: its name in `DIAGNOSTICS`, and its figure in `ablate.reporting.sections.curves`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field

from prereg.errors import field_error, nearest, not_one_of
from prereg.escape import visible
from prereg.frozen import FrozenModel, once
from prereg.metrics.catalogue import METRICS

if TYPE_CHECKING:
    from prereg.study.spec import Study

LONGEST = 60
"""Characters of a label: more do not fit beside a line of a figure."""
_NAMES = re.compile(r"[^\s()*+,]+")
"""What can be a name in the claim language: arms, metrics, verbs and numbers."""


def _one_line(label: str) -> str:
    # In LaTeX, SVG and a terminal the same: a line break or a mark of direction would move what comes after it.
    plain = " ".join(label.split())
    if label != plain or visible(label) != label or len(label) > LONGEST:
        fault = f"a label of {len(label)} characters" if len(label) > LONGEST else f"the label {label!a}"
        required = f"one line of at most {LONGEST} characters, without blanks at its ends"
        raise ValueError(fault, required, plain[:LONGEST].strip() or "NAME")
    return label


Label = Annotated[str, Field(min_length=1), AfterValidator(_one_line)]


class Labels(FrozenModel):
    """Display names by id."""

    arms: dict[str, Label] = {}
    """Arm -> what figures, tables and sentences call it."""
    claims: dict[str, Label] = {}
    """Hypothesis -> what they call it."""
    metrics: dict[str, Label] = {}
    """Metric -> what they call it."""

    def arm(self, name: str) -> str:
        """An arm as people read it."""
        return self.arms.get(name, name)

    def claim(self, name: str) -> str:
        """A hypothesis as people read it."""
        return self.claims.get(name, name)

    def metric(self, name: str) -> str:
        """A metric as people read it."""
        return self.metrics.get(name, name)

    def in_claim(self, text: str) -> str:
        """A claim, or one side of it, with the arms and metrics that it names as people read them.

        >>> Labels(arms={"fast": "Fast warmup"}, metrics={"val/loss": "Loss"}).in_claim("fast lowers val/loss")
        'Fast warmup lowers Loss'
        """
        # Arms last: where an arm has the name of a metric, a side of a claim means the arm.
        labels = self.metrics | self.arms
        return _NAMES.sub(lambda name: labels.get(name[0], name[0]), text)


NO_LABELS = Labels()


def check_labels(study: Study) -> None:
    """Raise `SpecError` for a label of nothing, and for one that two things would have."""
    labels = study.labels
    read = [*(claim.metric for claim in study.claims.values()), *study.tie_breakers, *labels.metrics]
    # What a trainer of the user's own records is known when its runs have ended, so any name may be labelled.
    # Names that can be labelled: those that a claim or a tie-breaker reads, and those that are labelled and exist.
    metrics = [
        metric for metric in dict.fromkeys(read) if study.trainer == "command" or study.declaration(metric) is not None
    ]
    _check(labels.arms, "arms", study.arms)
    _check(labels.claims, "claims", study.hypotheses)
    _check(labels.metrics, "metrics", metrics)


def _check(labels: dict[str, str], kind: str, ids: Collection[str]) -> None:
    # An id without a label is shown as it is, so a label may not be such an id either.
    id_by_label = {name: name for name in ids if name not in labels}
    for name, label in labels.items():
        place = ("labels", kind, name)
        if name not in ids:
            raise not_one_of(place, f"a label of '{name}'", name, ids)
        if label in id_by_label:
            whose = f"that of '{id_by_label[label]}'" if id_by_label[label] != label else "the id of another"
            raise field_error(place, f"the label '{label}', which is {whose} too", "a name each")
        id_by_label[label] = name


MOST_SHOWN: Final = 4
DIAGNOSTICS: Final[Mapping[str, str]] = {
    "differences": "each claimed metric minus the baseline of the same seed, by step",
    "positions": "the loss by position in the window",
    "token_classes": "the embedding norm by class of token",
    "reliability": "accuracy over confidence",
    "cost": "the first claimed metric over the seconds of training",
    "power": "power by number of seeds, as the registration froze it",
}
"""Diagnostic that is no metric of its own -> what it draws."""
FAMILIES: Final = tuple(metric.name.removesuffix("_N") for metric in METRICS.families if metric.counted == "block")
"""Metrics with a value for each block: `grad/layer` of `grad/layer_N`. They are drawn by block, at the last step."""


def _few(show: tuple[str, ...]) -> tuple[str, ...]:
    if len(show) > MOST_SHOWN:
        required = f"at most {MOST_SHOWN}: the report is for what was claimed, and every recorded value is in CSV"
        raise ValueError(f"{len(show)} diagnostics", required, "ablate report STUDY --as csv")
    return show


class Report(FrozenModel):
    """What the report shows in addition to the claims."""

    show: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=120)], ...],
        once("diagnostic", "each diagnostic once"),
        AfterValidator(_few),
    ] = ()
    """Up to four diagnostics: a recorded metric (by step), a metric of every block (`grad/layer`, by block), or
    `differences`, `positions`, `token_classes`, `reliability`, `cost`, `power`. Each is a chart, and the metrics among
    them have rows in a table of final values."""


def check_report(study: Study) -> None:
    """Raise `SpecError` for a diagnostic that does not exist."""
    for at, name in enumerate(study.report.show):
        # What a trainer of the user's own records is known when its runs have ended.
        if study.trainer == "gpt" and name not in (*DIAGNOSTICS, *FAMILIES) and study.metric(name) is None:
            required = f"a metric of the study, a metric of every block such as grad/layer, or {', '.join(DIAGNOSTICS)}"
            fix = nearest(name, [*DIAGNOSTICS, *FAMILIES, *METRICS])
            raise field_error(("report", "show", at), f"'{name}'", required, fix)
