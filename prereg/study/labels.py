"""Display names: what people read in place of the ids of arms, claims and metrics.

Presentation alone: ids stay in the ledger, the records, the verdict and CSV. Labels are in the study's file and so in
the hash of its registration; an amendment that changes nothing else touches no claim and no run.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from prereg.errors import field_error, not_one_of
from prereg.escape import visible
from prereg.frozen import FrozenModel
from prereg.metrics.catalogue import TASK_METRICS

if TYPE_CHECKING:
    from prereg.study.spec import Study

LONGEST = 60
"""Characters of a label: more do not fit beside a line of a figure."""
_NAMES = re.compile(r"[^\s()*+,]+")
"""What can be a name in the claim language: arms, metrics, verbs and numbers."""

Label = Annotated[str, Field(min_length=1)]


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
        names = self.metrics | self.arms
        return _NAMES.sub(lambda found: names.get(found[0], found[0]), text)


NO_LABELS = Labels()


def check_labels(study: Study) -> None:
    """Raise `SpecError` for a label of nothing, or one that cannot be read as one name."""
    labels = study.labels
    measured = [*(claim.metric for claim in study.claims.values()), *study.tie_breakers, *labels.metrics]
    known = [
        metric
        for metric in dict.fromkeys(measured)
        if study.trainer == "command" or study.metric(metric) is not None or metric in TASK_METRICS
    ]
    _check(labels.arms, "arms", study.arms)
    _check(labels.claims, "claims", study.hypotheses)
    _check(labels.metrics, "metrics", known)


def _check(labels: dict[str, str], kind: str, known: Collection[str]) -> None:
    seen = {name: name for name in known if name not in labels}
    for name, label in labels.items():
        place = ("labels", kind, name)
        if name not in known:
            raise not_one_of(place, f"a label of '{name}'", name, known)
        if label != " ".join(label.split()) or visible(label) != label or len(label) > LONGEST:
            found = f"a label of {len(label)} characters" if len(label) > LONGEST else f"the label {label!a}"
            required = f"one line of at most {LONGEST} characters, without blanks at its ends"
            raise field_error(place, found, required, f"{name}: {' '.join(label.split())[:LONGEST].strip() or 'NAME'}")
        if label in seen:
            whose = f"that of '{seen[label]}'" if seen[label] != label else "the id of another"
            raise field_error(place, f"the label '{label}', which is {whose} too", "a name each")
        seen[label] = name
