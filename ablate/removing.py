"""Removals from a campaign's best: `ablate confirm --remove`, which of the kept changes can be taken out again.

Each kept change is tried once, the smallest estimated gain first: a study of two arms, the stack so far and the same
without the change, on seeds that no run had before. Where its gain within the stack is shown to be below `smallest`, it
is taken out, and the next is tried against what is left. Last, the best is compared with all that is left. What is
said is a proposal to the reader: the campaign's best stays what its proposals made it.

    removing -> registered -> its runs -> decided -> ended      for each removal

After a crash the same command continues from the last of these steps. `prereg.campaign.record.next_removal` says what
comes next, `ablate.judge.campaign.removal` at which level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import JsonValue

from ablate.campaigning import CampaignContext, open_campaign, refuse_name_of_study
from ablate.confirming import put_on_record, require_start, run_and_decide
from ablate.workspace import HERE, Workspace
from prereg.campaign.record import (
    BegunRemoval,
    CampaignRecord,
    NextRemoval,
    next_removal,
    seeds_of_removal,
    setup_without,
    why_not_removable,
)
from prereg.errors import RegistrationError, Where
from prereg.registry.disk import write_whole
from prereg.registry.ledger_entry import EndedEntry, RemovingEntry

if TYPE_CHECKING:
    from ablate.judge.campaign.removal import GainWithin
    from ablate.judge.verdict import Decision
    from ablate.notebook.results import Decided, Ran
    from ablate.runner.options import RunOptions
    from prereg.campaign.record import Setup

RemovalAnswer = Literal["reduced", "nothing removed", "inadmissible", "unfinished"]


@dataclass(frozen=True)
class TriedRemoval:
    """A removal that has ended, or the last comparison, with its numbers."""

    removal: BegunRemoval
    level: float
    """One-sided, at which it was tested."""
    gain: GainWithin | None
    """The gain of the change within the stack; none of one that was given up, or had a run without a value."""
    not_shown: tuple[str, ...] = ()
    """The metrics that were not shown to be within their margins without it."""

    @property
    def outcome(self) -> str:
        """`within_margin` or `not_shown`."""
        assert self.removal.end is not None, self.removal
        return self.removal.end.outcome


@dataclass(frozen=True)
class RemovedLine:
    """A value of the best that what is left does not have."""

    path: str
    """Dotted path of a setting, or `commit`."""
    best: JsonValue
    left: JsonValue
    """Null where neither another kept change nor the start's `base` sets it: the default."""


@dataclass(frozen=True)
class RemovalResult:
    """How far a reduction of a campaign's best is."""

    source: Path
    """The campaign's file."""
    record: CampaignRecord
    """The campaign, as it is now."""
    answer: RemovalAnswer
    """`reduced`: at least one change was taken out. `unfinished`: runs are missing. `inadmissible`: the evidence of a
    removal is no basis for a verdict."""
    tried: tuple[TriedRemoval, ...]
    """The removals of this reduction that have ended, in their order; the last comparison is not among them."""
    together: TriedRemoval | None = None
    """The last comparison: the best against what is left."""
    open: BegunRemoval | None = None
    """The removal that has not ended."""
    ran: Ran | None = None
    """How far its runs are, where this call made some."""
    faults: tuple[str, ...] = ()
    """Of an inadmissible one, what is wrong with its evidence."""

    @property
    def removed(self) -> tuple[int, ...]:
        """The proposals whose changes were taken out, in the order in which they were."""
        return tuple(each.removal.entry.change or 0 for each in self.tried if each.removal.is_removed)

    @cached_property
    def left(self) -> Setup:
        """The best without what was taken out."""
        return setup_without(self.record.start, self.record.kept, self.removed)

    @cached_property
    def not_tried(self) -> dict[int, str]:
        """Kept changes that cannot be taken out of what is left by themselves, and why."""
        tried = {each.removal.entry.change for each in self.tried}
        numbers = (each.entry.number for each in self.record.kept)
        whys = {each: why_not_removable(self.record, self.removed, each) for each in numbers if each not in tried}
        return {number: why for number, why in whys.items() if why is not None}

    @cached_property
    def diff(self) -> tuple[RemovedLine, ...]:
        """What is deleted from the best: its settings, and its commit, that are others in what is left."""
        best, left = self.record.best, self.left
        base = self.record.campaign.start.get("base")
        lines = []
        for path, value in best.settings.items():
            if path not in left.settings or left.settings[path] != value:
                back = left.settings[path] if path in left.settings else value_at(base, path)
                lines.append(RemovedLine(path, value, back))
        if best.commit != left.commit:
            lines.append(RemovedLine("commit", best.commit, left.commit))
        return tuple(lines)

    @property
    def reductions(self) -> tuple[int, ...]:
        """The numbers of all reductions of this best, this one among them."""
        best = self.record.best.sha256
        mine = (each.entry.reduction for each in self.record.removals if each.entry.best_sha256 == best)
        return tuple(dict.fromkeys(mine))

    @property
    def deviations(self) -> tuple[str, ...]:
        """What was done otherwise than registered, over all removals."""
        return tuple(
            deviation
            for each in (*self.tried, *([self.together] if self.together else []))
            for deviation in (each.removal.end.deviations if each.removal.end else ())
        )


@dataclass(frozen=True)
class PlannedRemovals:
    """What a reduction of the present best would take, before anything is on record."""

    source: Path
    record: CampaignRecord
    order: tuple[int, ...]
    """Proposals whose changes would be tried, in this order as long as none is taken out."""
    n_seeds: int
    """Pairs of each removal."""
    level: float
    """One-sided level of the first; that of each later one is at least as large."""
    is_over: bool
    """Whether the best was reduced, so that `remove_changes` answers again and runs nothing."""

    @property
    def most_runs(self) -> int:
        """Runs where every change is tried, and one at least is taken out."""
        return 0 if self.is_over else 2 * self.n_seeds * (len(self.order) + 1)


def plan_removals(
    campaign: str | Path, *, seeds: int | None = None, again: str | None = None, workspace: Workspace = HERE
) -> PlannedRemovals:
    """What `remove_changes` would try, and at most how many runs it would take; writes nothing. Raises as that does.

    ablate.removing.plan_removals("campaigns/night.yaml").most_runs
    """
    from ablate.judge.campaign.removal import removal_level, seeds_of_removals_by_default
    from prereg.campaign.record import in_order_of_removal

    context = open_campaign(campaign, workspace=workspace)
    record = _record(context)
    _require_consistent(context, record, seeds, again)
    going_on = _goes_on(record)
    # What was tried counts where this call goes on, or answers again.
    reduction = record.reduction if again is None or going_on else ()
    tried = {each.entry.change for each in reduction if each.end is not None}
    removed = frozenset(each.entry.change or 0 for each in reduction if each.is_removed)
    is_over = bool(reduction) and not going_on
    numbers = (each.entry.number for each in in_order_of_removal(record) if each.entry.number not in tried)
    left = tuple(each for each in numbers if why_not_removable(record, removed, each) is None)
    n_seeds = len(reduction[0].entry.seeds) if reduction else seeds or seeds_of_removals_by_default(record)
    level = removal_level(len(record.kept), ())
    return PlannedRemovals(context.path, record, () if is_over else left, n_seeds, level, is_over)


def remove_changes(
    campaign: str | Path,
    *,
    seeds: int | None = None,
    again: str | None = None,
    give_up: str | None = None,
    options: RunOptions | None = None,
    workspace: Workspace = HERE,
) -> RemovalResult:
    """Try which kept changes of a campaign's best can be taken out again, one after the other.

    `seeds` is the number of pairs of each removal (`seeds_of_removals_by_default` where it is left out). A reduction
    that has not ended goes on; one that has is answered again, and `again` is the reason to reduce the same best once
    more, on other seeds. `give_up` is the reason to end the open removal unseen, so that its change stays. Raises
    `StudyError` for a campaign of which nothing can be removed, while a proposal is open, and for whatever `run` and
    `decide` refuse.

        ablate.removing.remove_changes("campaigns/night.yaml").removed
    """
    context = open_campaign(campaign, workspace=workspace)
    record = _record(context)
    if give_up is not None:
        record = _given_up(context, record, give_up)
    _require_consistent(context, record, seeds, again)
    is_new = not _goes_on(record) and (again is not None or not record.reduction)
    # One removal a round: which change is next, and at which level, follows from how the one before it ended.
    while True:
        record = _record(context)
        removal = record.open_removal
        if removal is None:
            step = next_removal(record, () if is_new else record.reduction)
            if step is None:
                return _result(context)
            removal = _begun(context, step, seeds, again if is_new else None)
            is_new = False
        # A crash may have come between the entry of the removal and its study.
        write_study = partial(_write_study, context, record, removal)
        ran, decided = run_and_decide(context, removal.entry.run_as, write_study, options)
        if decided is None or decided.status in ("unfinished", "inadmissible"):
            return _result(context, removal, ran, decided)
        context.ledger.append(_end(context, record, removal, decided.decision))


def value_at(base: JsonValue, path: str) -> JsonValue:
    """The value at a dotted path of the start's `base`; none where it has none.

    >>> value_at({"optim": {"lr": 0.1}}, "optim.lr"), value_at({"optim.lr": 0.2}, "optim.lr")
    (0.1, 0.2)
    """
    if isinstance(base, dict) and path in base:
        return base[path]
    first, _, rest = path.partition(".")
    return value_at(base[first], rest) if rest and isinstance(base, dict) and first in base else None


def read_removals(context: CampaignContext, record: CampaignRecord) -> RemovalResult | None:
    """The last reduction of the present best with its decisions; none where it was not reduced. Runs and decides
    nothing. Raises `EvidenceError` where a decision is not what was taken."""
    if not record.reduction:
        return None
    open_removal = record.open_removal
    result = _result(context, open_removal)
    # Between two removals nothing is open, and the reduction has not ended.
    return result if open_removal is not None or not _goes_on(record) else replace(result, answer="unfinished")


def _record(context: CampaignContext) -> CampaignRecord:
    """The campaign's record. Raises `RegistrationError` where nothing of it can be removed now."""
    record = context.record()
    if record is None or not record.kept:
        raise RegistrationError(
            f"'{context.campaign.campaign}' has kept no change",
            required="a kept change, to see whether it can be removed",
            fix=f'ablate propose {context.path} --set PATH=VALUE --why "..."',
            where=Where(file=context.path),
        )
    # The best that is reduced has to stay the best until the last removal has ended.
    if record.open is not None:
        raise RegistrationError(
            f"proposal {record.open.entry.number} of '{context.campaign.campaign}' has not ended",
            required="its end first: it may change the best",
            fix=f"ablate propose {context.path}   (goes on with it; --give-up REASON drops it)",
        )
    if record.campaign.smallest <= 0.0:
        raise RegistrationError(
            "smallest is 0: no gain is too small to be kept",
            required="a smallest gain above 0, which is the margin of a removal",
            fix="none for this campaign, whose promises stay; in the next, the gain that a change has to be worth",
            where=Where(file=context.path, line=context.loaded.line(("smallest",)), field=("smallest",)),
        )
    return record


def _goes_on(record: CampaignRecord) -> bool:
    """Whether the last reduction of the present best has not ended."""
    if record.open_removal is not None:
        return True
    return bool(record.reduction) and next_removal(record, record.reduction) is not None


def _require_consistent(context: CampaignContext, record: CampaignRecord, seeds: int | None, again: str | None) -> None:
    """Refuse what does not fit the reduction that goes on, or the one that has ended."""
    if again is not None and not again.strip():
        raise RegistrationError(
            "--again without a reason", required="why, in words; it goes into the ledger", fix='--again "..."'
        )
    reduction = record.reduction
    if again is not None and not (reduction or record.open_removal):
        raise RegistrationError(
            "--again, and this best was not reduced before",
            required="--again only for one that was",
            fix="leave it out",
        )
    if again is not None and _goes_on(record) and again.strip() != (reduction[0].entry.again if reduction else None):
        raise RegistrationError(
            f"--again, and a reduction of '{record.campaign.campaign}' has not ended",
            required="its end first: another begun in between would choose among them",
            fix=f"ablate confirm {context.path} --remove   (goes on with it)",
        )
    # All removals of a reduction have as many pairs as its first: a number chosen later could be chosen for an end.
    if seeds is not None and again is None and reduction and len(reduction[0].entry.seeds) != seeds:
        raise RegistrationError(
            f"--seeds {seeds}, and reduction {reduction[0].entry.reduction} has {len(reduction[0].entry.seeds)} seeds",
            required="the number that was registered",
            fix="leave it out; or, as another reduction that is counted: --again REASON",
        )
    if record.open_removal is None and next_removal(record, ()) is None:
        raise RegistrationError(
            f"no kept change of '{record.campaign.campaign}' can be taken out by itself",
            required="a kept setting, or the last kept commit",
            fix=f'git revert, and then ablate propose {context.path} --commit REF --why "..."',
            where=Where(file=context.path),
        )


def _begun(context: CampaignContext, step: NextRemoval, n_seeds: int | None, again: str | None) -> BegunRemoval:
    """Put a removal on record, with its study and seeds; everything that can be refused is refused before."""
    from ablate.judge.campaign.removal import seeds_of_removals_by_default

    # The seeds follow from the last entry of the ledger: none may come between.
    with context.ledger.hold():
        record = _record(context)
        assert record.open_removal is None, context.path
        number = len(record.removals) + 1
        name = f"{record.campaign.campaign}-remove{number}"
        refuse_name_of_study(context, name)
        require_start(context, record)
        going_on = _goes_on(record)
        same = record.reduction[0].entry if going_on else None
        last = max((each.entry.reduction for each in record.removals), default=0)
        if same is not None:
            n_seeds = len(same.seeds)
        repeated: dict[str, Any] = {} if again is None else {"again": again.strip()}
        entry = RemovingEntry(
            study=record.campaign.campaign,
            registration=record.entry.registration,
            at=context.workspace.clock(),
            number=number,
            reduction=last + 1 if same is None else same.reduction,
            change=step.change,
            best_sha256=record.best.sha256,
            seeds=seeds_of_removal(
                record.entry.registration,
                number,
                # Of a merge, the end that the next entry names as the one before it.
                head=context.ledger.head().partition("+")[0],
                after_sha256=step.after.sha256,
                n_seeds=n_seeds or seeds_of_removals_by_default(record),
                used=record.used_seeds,
            ),
            run_as=name,
            **repeated,
        )
        begun = BegunRemoval(entry, step.before, step.after, len(record.kept))
        put_on_record(context, entry, _write_study(context, record, begun))
    begun_now = _record(context).open_removal
    assert begun_now is not None, context.path
    return begun_now


def _write_study(context: CampaignContext, record: CampaignRecord, removal: BegunRemoval) -> Path:
    """Write the study that carries out a removal; it follows from the campaign and its entries alone."""
    from ablate.judge.campaign.removal import removal_document
    from prereg.yaml_model import yaml_text

    path = context.root.study(removal.entry.run_as)
    header = f"# Written by `ablate confirm --remove` for removal {removal.entry.number} of {record.entry.file}.\n"
    write_whole(path, (header + yaml_text(removal_document(record, removal))).encode())
    return path


def _end(context: CampaignContext, record: CampaignRecord, removal: BegunRemoval, decision: Decision) -> EndedEntry:
    """The entry of a removal's end, by the verdict of its study."""
    from prereg.campaign.record import WITHIN_MARGIN

    deviations = tuple(
        f"{check.name}: {check.found}"
        for check in decision.checks
        if not check.passed and check.severity == "deviation"
    )
    shown: dict[str, Any] = {"deviations": deviations} if deviations else {}
    return EndedEntry(
        study=record.campaign.campaign,
        registration=record.entry.registration,
        at=context.workspace.clock(),
        number=removal.entry.number,
        outcome="within_margin" if decision.verdict == WITHIN_MARGIN else "not_shown",
        **shown,
    )


def _given_up(context: CampaignContext, record: CampaignRecord, reason: str) -> CampaignRecord:
    """End the open removal without a look at its runs: its change stays."""
    if not reason.strip():
        raise RegistrationError(
            "--give-up without a reason", required="why, in words; it goes into the ledger", fix='--give-up "..."'
        )
    if record.open_removal is None:
        raise RegistrationError(
            f"no removal of '{record.campaign.campaign}' is open",
            required="--give-up only while one is",
            fix=f"ablate ledger {record.campaign.campaign}",
        )
    # Unseen it can only stay: what is given up never takes a change out.
    context.ledger.append(
        EndedEntry(
            study=record.campaign.campaign,
            registration=record.entry.registration,
            at=context.workspace.clock(),
            number=record.open_removal.entry.number,
            outcome="not_shown",
            given_up=reason.strip(),
        )
    )
    return _record(context)


def _result(
    context: CampaignContext,
    open_removal: BegunRemoval | None = None,
    ran: Ran | None = None,
    decided: Decided | None = None,
) -> RemovalResult:
    """How far a reduction is: that of a removal which is open, or else the last of the present best."""
    record = context.record()
    assert record is not None, context.path
    reduction = record.reduction if open_removal is None else _same_reduction(record, open_removal)
    tried = tuple(_tried(context, record, reduction))
    # The last comparison of a reduction, best against what is left, takes out no change of its own.
    removals = tuple(each for each in tried if each.removal.entry.change is not None)
    together = next((each for each in tried if each.removal.entry.change is None), None)
    faults: tuple[str, ...] = ()
    if open_removal is not None:
        is_inadmissible = decided is not None and decided.status == "inadmissible"
        answer: RemovalAnswer = "inadmissible" if is_inadmissible else "unfinished"
        if decided is not None:
            checks = decided.decision.checks
            failed = [check for check in checks if not check.passed and check.severity == "inadmissible"]
            faults = tuple(f"{check.name}: {check.found}" for check in failed)
    else:
        answer = "reduced" if any(each.removal.is_removed for each in removals) else "nothing removed"
    return RemovalResult(context.path, record, answer, removals, together, open_removal, ran, faults)


def _same_reduction(record: CampaignRecord, removal: BegunRemoval) -> tuple[BegunRemoval, ...]:
    return tuple(each for each in record.removals if each.entry.reduction == removal.entry.reduction)


def _tried(
    context: CampaignContext, record: CampaignRecord, reduction: tuple[BegunRemoval, ...]
) -> Iterator[TriedRemoval]:
    """The removals that have ended, with their numbers from the decisions of their studies."""
    from ablate.deciding import results
    from ablate.judge.campaign.removal import gain_within, level_of_removal

    workspace = replace(context.workspace, root=context.root.path)
    for removal in reduction:
        if removal.end is None:
            continue
        tried = TriedRemoval(removal, level_of_removal(record, removal), None)
        if removal.end.given_up is None:
            decision = results(context.root.study(removal.entry.run_as), workspace=workspace).decision
            not_shown = tuple(each.metric for each in decision.findings if each.outcome != "supported")
            tried = replace(tried, gain=gain_within(record, decision), not_shown=not_shown)
        yield tried
