"""`ReportContext`: everything a report may speak of, gathered once. It computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ablate.judge.verdict import Decision
from ablate.records.evidence import Evidence
from prereg.documents.published import LoadedPublished
from prereg.registry.registration import Registration
from prereg.study.spec import Study


@dataclass(frozen=True)
class ReportContext:
    """The decision, what was promised, what was found, and when the telling happened."""

    decision: Decision
    registration: Registration
    evidence: Evidence
    ledger_head: str
    generated_at: str
    floors: Mapping[str, float] = field(default_factory=dict)
    """Metric -> value no model can pass, for instance the entropy rate of a generated corpus."""
    published: LoadedPublished | None = None
    """Figures of somebody else that stand next to the study's own; no part of the registration."""

    @property
    def study(self) -> Study:
        """The study as registered."""
        return self.registration.study

    @property
    def withheld(self) -> bool:
        """Whether anything that separates the variants must stay hidden: runs are missing, so there are no findings."""
        return not self.decision.findings

    @property
    def unusable(self) -> bool:
        """Whether the findings are shown only for the record."""
        return self.decision.status == "inadmissible"
