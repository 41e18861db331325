"""The sentence that a report says of a finding, for tests of what a reader is told."""

from __future__ import annotations

from ablate.judge.verdict import Finding
from ablate.reporting.view import FindingView
from ablate.reporting.wording import phrase
from prereg.study.spec import Study


def sentence_of(found: Finding, study: Study) -> str:
    """The finding alone, in one sentence."""
    return phrase("finding.sentence", FindingView(found, study))
