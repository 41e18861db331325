"""Display names: what people read in place of the ids of arms, claims and metrics.

Presentation alone: ids stay in the ledger, the records, the verdict and CSV. Labels are in the study's file and so in
the hash of its registration; an amendment that changes nothing else touches no claim and no run.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from prereg.errors import field_error, not_one_of
from prereg.escape import visible
from prereg.frozen import FrozenModel

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
        """A claim, or one side of it, with the arms and metrics that it names as people read them."""
        # Arms last: where an arm has the name of a metric, a side of a claim means the arm.
        labels = self.metrics | self.arms
        return _NAMES.sub(lambda name: labels.get(name[0], name[0]), text)


NO_LABELS = Labels()


def check_labels(study: Study) -> None:
    """Raise `SpecError` for a label of nothing, and for one that two things would have."""
    labels = study.labels
    read = [*(claim.metric for claim in study.claims.values()), *study.tie_breakers, *labels.metrics]
    # What a trainer of the user's own records is known when its runs have ended, so any name may be labelled.
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
