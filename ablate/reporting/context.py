"""`ReportContext`: everything that a report may speak of, gathered once, and what may be shown. It computes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ablate.judge.verdict import Decision
from ablate.records.evidence import Evidence
from ablate.reporting.blocks import Block, Paragraph, Section
from ablate.reporting.wording import phrase
from prereg.registry.ledger_entry import EarlierClaims
from prereg.registry.registration import Registration
from prereg.study.spec import Study


def not_to_be_used() -> str:
    """The warning over everything that is shown of inadmissible evidence."""
    return phrase("first_screen.not_to_be_used")


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
    claimed_before: EarlierClaims | None = None
    """The earlier studies that claimed the same, by the ledger's entry of the decision; none where it names none."""

    @property
    def study(self) -> Study:
        """The study as registered."""
        return self.registration.study

    def arm(self, name: str) -> str:
        """An arm as people read it."""
        return self.study.labels.arm(name)

    def metric(self, name: str) -> str:
        """A metric as people read it."""
        return self.study.labels.metric(name)

    @property
    def withheld(self) -> bool:
        """Whether anything that separates the variants must stay hidden: runs are missing, so there are no findings."""
        return not self.decision.findings

    @property
    def unusable(self) -> bool:
        """Whether the findings are shown only for the record."""
        return self.decision.status == "inadmissible"

    def outcomes(self, id: str, title: str, blocks: Iterable[Block]) -> Section | None:
        """A section of outcomes, marked where they are not to be used; none where it is empty or must stay hidden."""
        # `tuple` only here: of blocks that must stay hidden not even the content is computed.
        shown = () if self.withheld else tuple(blocks)
        marked = (Paragraph(not_to_be_used(), "warning"),) if self.unusable else ()
        return Section(id, title, (*marked, *shown)) if shown else None
