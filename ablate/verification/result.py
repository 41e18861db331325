"""What a verification found: one item for each thing checked, and above them what a study claims and found."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, computed_field

from ablate.judge.verdict import Decision
from ablate.verification.manifest import LeftOut, Tool
from prereg.frozen import FrozenModel
from prereg.registry.registration import Registration
from prereg.seals.examine import SealCheck

State = Literal["ok", "changed", "judged differently", "not checked"]


class Item(FrozenModel):
    """One thing, and whether it is what was frozen. What was only partly looked at is two items."""

    study: str
    """The study; `ledger` or `bundle` for what is of all."""
    what: str
    """For instance 'sealed records'."""
    faults: tuple[str, ...] = ()
    """What has changed, one sentence each; empty when nothing has."""
    note: str = ""
    """What was found, with counts."""
    unchecked: str = ""
    """Why it was not checked, as a clause; empty where it was."""
    fix: str = ""
    """What to type or to do so that it can be checked, or is right again."""
    judged_differently: tuple[str, ...] = ()
    """Facts that this version judges differently from the evidence of the decision, each with both values."""
    inadmissible: bool = False
    """Whether the judge gives no verdict from what is here, be it as it was decided."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> State:
        """One word for it."""
        if self.faults:
            return "changed"
        if self.judged_differently:
            return "judged differently"
        return "not checked" if self.unchecked else "ok"


def item(study: str, what: str, *faults: str, note: str = "", fix: str = "") -> Item:
    """Something that was checked, with what is wrong with it."""
    return Item(study=study, what=what, faults=faults, note=note, fix=fix if faults else "")


def not_checked(study: str, what: str, why: str, fix: str = "") -> Item:
    """Something that was not checked, and what to type so that it can be."""
    return Item(study=study, what=what, unchecked=why, fix=fix)


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
    decision: Decision | None = None
    """The verdict and every finding, as judged here; none where nothing was decided, or where what was decided is not
    what the records give."""
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


class Verification(FrozenModel):
    """Everything that was checked, and what was not."""

    items: tuple[Item, ...]
    """In order."""
    head: str
    """The ledger's head hash, to be compared with one that somebody else holds."""
    seals: tuple[SealCheck, ...] = ()
    """Every seal that the ledger names; what is broken is among the faults of `items` too."""
    studies: tuple[StudySummary, ...] = ()
    """What each study claims and found."""
    bundle: BundleFacts | None = None
    """Of a bundle that could be read; none of a repository."""
    target: str = ""
    """What was verified, as it was named; empty for all studies of a repository."""

    @property
    def intact(self) -> bool:
        """Whether nothing that was checked has changed."""
        return not any(item.faults for item in self.items)

    @property
    def unchecked(self) -> tuple[Item, ...]:
        """What was not checked."""
        return tuple(item for item in self.items if item.state == "not checked")

    @property
    def judged_differently(self) -> bool:
        """Whether this version judges a decision differently, from the evidence that it was taken on."""
        return any(item.judged_differently for item in self.items)

    @property
    def inadmissible(self) -> bool:
        """Whether a decided study is one of which `ablate decide` gives no verdict."""
        return any(item.inadmissible for item in self.items)
