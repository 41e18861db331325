"""Result of a verification: one item for each thing checked, and above them what a study claims and found."""

from __future__ import annotations

from pydantic import Field

import prereg.verification
from ablate.judge.verdict import Decision
from ablate.verification.manifest import LeftOut, Tool
from prereg.frozen import FrozenModel
from prereg.registry.ledger_entry import EarlierClaims
from prereg.registry.registration import Registration


class StudySummary(FrozenModel):
    """What a reviewer asks first of a study. Its dates are those that the ledger states."""

    study: str
    """Its id."""
    title: str = ""
    """Its title."""
    registered: str | None = None
    """sha256 of the registration in force; none where there is none."""
    registered_at: str | None = None
    """When that was."""
    first_run_at: str | None = None
    """When the first run under it began, or the first records were imported."""
    decided_at: str | None = None
    """When the last decision was taken."""
    n_runs: int = 0
    """Sealed runs."""
    campaign: str | None = None
    """The campaign whose proposal it carries out, which decides it; none of a study of its own."""
    proposal: int | None = None
    """Which proposal."""
    end: str | None = None
    """How that proposal ended by the ledger; none while it is open."""
    decision: Decision | None = None
    """The verdict and every finding, as judged here; none where nothing was decided, or where what was decided is not
    what the records give."""
    claimed_before: EarlierClaims | None = None
    """Earlier studies of the repository that claimed the same, and how each ended; none where there are none."""
    registration: Registration | None = Field(default=None, exclude=True, repr=False)
    """What the sentences about findings are made from; the lock holds it."""


class BundleFacts(FrozenModel):
    """Of a bundle: what it is and what its author left out."""

    contents_sha256: str
    """The manifest's own hash, which covers every other file: the same however the bundle is packed. To be quoted."""
    sha256: str
    """sha256 of the zip file; empty for a folder."""
    size_bytes: int
    """Size of the zip file; of a folder, of the files in it."""
    study: str
    """The study."""
    left_out: tuple[LeftOut, ...]
    """What is not in it, and why, as its author says."""
    made_with: Tool
    """What made it, by its own word."""
    checked_with: Tool
    """What checked it."""


class Verification(prereg.verification.Verification):
    """Everything that was checked, of records and verdicts too: what `ablate.verify` returns.

    verification = ablate.verify("width.ablate.zip")
    verification.intact, [fault for item in verification.items for fault in item.faults]
    """

    studies: tuple[StudySummary, ...] = ()
    """What each study claims and found."""
    bundle: BundleFacts | None = None
    """Of a bundle that could be read; none of a repository."""
    target: str = ""
    """What was verified, as it was named; empty for all studies of a repository."""

    @property
    def judged_differently(self) -> bool:
        """Whether this version judges a decision differently, from the evidence that it was taken on."""
        # Apart from `intact`: every file may be what it was and the verdict another here.
        return any(item.judged_differently for item in self.items)

    @property
    def inadmissible(self) -> bool:
        """Whether a decided study is one of which `ablate decide` gives no verdict."""
        return any(item.inadmissible for item in self.items)
