"""The error of removals, by simulation through the record, the studies and the judge of real ones.

A reduction of four kept changes is followed from removal to removal: what comes next says `next_removal`, its study and
level `removal_document`, and what becomes of it the judge, for all simulated reductions that ended alike so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from campaign_samples import campaign_document

from ablate.judge.campaign.evidence import GAIN
from ablate.judge.campaign.procedure import PartOfNull, ProposalDecision
from ablate.judge.campaign.removal import REMOVAL_ERROR, level_of_removal, removal_document, removal_level
from ablate.judge.judge import OUTCOME, judge_rows
from ablate.judge.stats.significance_tests import Floats, Kept
from prereg.campaign.load import campaign_from_document
from prereg.campaign.record import (
    WITHIN_MARGIN,
    BegunProposal,
    BegunRemoval,
    CampaignRecord,
    next_removal,
    setup_without,
    why_not_removable,
)
from prereg.registry.ledger_entry import (
    Change,
    EndedEntry,
    OpenedEntry,
    ProposedEntry,
    RemovingEntry,
    StagedEntry,
)
from prereg.study.spec import Study, study_from_document

REDUCTIONS = 20_000
N_SEEDS = 8
MARGIN = 2.0
"""`smallest` in SDs of the paired differences: 8 pairs take out a change without gain with power .97 and more."""
COMMON: dict[str, Any] = {"study": "night", "registration": "0" * 64, "at": "2026-01-01T00:00:00Z"}


def setting(**settings: float) -> Change:
    return Change(commit=None, settings=dict(settings))


def record_of(changes: list[Change], gains: list[float] | None = None, **fields: Any) -> CampaignRecord:
    """A campaign that kept these changes, with estimated gains that rise from the first to the last."""
    names = {path for change in changes for path in change.settings}
    document = campaign_document(smallest=MARGIN, **fields)
    document["start"]["base"] = {"lr": 0.1, **dict.fromkeys(sorted(names), 0.0)}
    document["start"]["command"] += [f"{{{name}}}" for name in sorted(names)]
    opened = OpenedEntry(
        **COMMON, file="campaigns/night.yaml", source_sha256="", campaign=document, start_sha256="0" * 64
    )
    record = CampaignRecord(opened, campaign_from_document(document), ())
    for number, change in enumerate(changes, start=1):
        gain = 3.0 + number if gains is None else gains[number - 1]
        decision = ProposalDecision(
            number=number,
            stage=1,
            n_seeds=2,
            outcome="keep",
            reason="shown",
            level=0.01,
            stage_level=0.01,
            p=0.001,
            limiting="val/loss",
            parts=(PartOfNull(metric="val/loss", improvement=gain, bound=None, p=0.001),),
            runs_left=100,
        ).model_dump(mode="json")
        proposed = ProposedEntry(
            **COMMON,
            number=number,
            change=change,
            why="it may help",
            seeds=(1, 2),
            best_sha256=record.best.sha256,
            content_sha256=str(number),
            run_as=f"night-p{number}",
        )
        staged = StagedEntry(**COMMON, number=number, stage=1, seeds=2, outcome="keep", decision=decision)
        record = replace(record, proposals=(*record.proposals, BegunProposal(proposed, record.best, (staged,))))
    return record


def begun(record: CampaignRecord) -> BegunRemoval | None:
    """What is tried next, on record; none where the reduction is over."""
    step = next_removal(record, record.reduction)
    if step is None:
        return None
    number = len(record.removals) + 1
    entry = RemovingEntry(
        **COMMON,
        number=number,
        reduction=1,
        change=step.change,
        best_sha256=record.best.sha256,
        seeds=tuple(range(100 * number, 100 * number + N_SEEDS)),
        run_as=f"night-remove{number}",
    )
    return BegunRemoval(entry, step.before, step.after, len(record.kept))


def ended(record: CampaignRecord, removal: BegunRemoval, accepted: bool) -> CampaignRecord:
    """The record after a removal."""
    outcome = "within_margin" if accepted else "not_shown"
    end = EndedEntry(**COMMON, number=removal.entry.number, outcome=outcome)  # type: ignore[arg-type]
    return replace(record, removals=(*record.removals, replace(removal, end=end)))


def within(study: Study, differences: dict[str, Floats]) -> Kept:
    """Which studies end as `within margin`, by the judge and the registered rule."""
    codes = judge_rows(study, differences).codes
    verdicts = [
        study.rule.decide({name: OUTCOME[code] for name, code in zip(study.hypotheses, row, strict=True)}, {}).verdict
        for row in np.unique(codes, axis=0)
    ]
    place = np.unique(codes, axis=0, return_inverse=True)[1].ravel()
    return np.array([verdict == WITHIN_MARGIN for verdict in verdicts])[place]


World = Callable[[frozenset[int]], tuple[float, float]]
"""What a stack without some of the changes gains, and how good its guardrail is, in SDs."""


def any_false_removal(record: CampaignRecord, world: World, rng: np.random.Generator) -> tuple[float, float]:
    """The share of reductions in which a change is taken out that truly loses the margin or worsens the guardrail by
    its own; and the mean number of changes that are taken out."""
    false = np.zeros(REDUCTIONS, dtype=bool)
    n_removed = np.zeros(REDUCTIONS)
    open_records = [(record, np.arange(REDUCTIONS))]
    while open_records:
        now, rows = open_records.pop()
        removal = begun(now)
        if removal is None or removal.entry.change is None or not rows.size:
            continue
        study = study_from_document(removal_document(now, removal))
        out = frozenset(each.entry.change or 0 for each in now.reduction if each.is_removed)
        (gain, guard), (gain_without, guard_without) = world(out), world(out | {removal.entry.change})
        lost, worsened = gain - gain_without, guard - guard_without
        # Both metrics improve downwards: a loss is a positive difference of without minus with.
        shape = rows.size, N_SEEDS
        differences = {name: rng.normal(lost if name == GAIN else worsened, 1.0, shape) for name in study.hypotheses}
        accepted = within(study, differences)
        n_removed[rows] += accepted
        if lost >= MARGIN or (len(study.hypotheses) > 1 and worsened >= MARGIN):
            false[rows] |= accepted
        open_records += [(ended(now, removal, end), rows[accepted == end]) for end in (True, False)]
    return float(false.mean()), float(n_removed.mean())


def additive(*gains: float) -> World:
    return lambda out: (sum(gain for at, gain in enumerate(gains, start=1) if at not in out), 0.0)


def substitutes(out: frozenset[int]) -> tuple[float, float]:
    """Changes 1 and 2, and 3 and 4, do the same: one of each pair gains the margin, the other nothing more."""
    return MARGIN * ((not {1, 2} <= out) + (not {3, 4} <= out)), 0.0


def guarded(out: frozenset[int]) -> tuple[float, float]:
    """Nothing gains, and without the second or the fourth the guardrail is worse by its margin."""
    return 0.0, MARGIN * ((2 not in out) + (4 not in out))


# fmt: off
WORLDS = {
    #            the world, P(any false removal) where it follows from the levels, changes that are taken out at least
    "every change gains the margin": (additive(*[MARGIN] * 4), 1.0 - (1.0 - REMOVAL_ERROR / 4) ** 4, 0.0),
    "three gain nothing, and the last the margin": (additive(0.0, 0.0, 0.0, MARGIN), None, 2.8),
    "the second and the last gain the margin": (additive(0.0, MARGIN, 0.0, MARGIN), None, 1.8),
    "pairs of substitutes": (substitutes, None, 1.8),
    "a guardrail": (guarded, None, 1.5),
}
# fmt: on


@pytest.mark.parametrize("name", WORLDS)
def test_no_more_removals_are_false_than_the_error_allows(name: str) -> None:
    world, exact, least = WORLDS[name]
    guardrails = [{"metric": "cost", "margin": MARGIN, "better": "lower"}] if name == "a guardrail" else []
    record = record_of([setting(**{each: 1.0}) for each in "abcd"], guardrails=guardrails)
    share, n_removed = any_false_removal(record, world, np.random.default_rng(5))
    error = sqrt(REMOVAL_ERROR * (1.0 - REMOVAL_ERROR) / REDUCTIONS)
    assert share <= REMOVAL_ERROR + 4.0 * error, (share, error)
    if exact is not None:
        assert share == pytest.approx(exact, abs=4.0 * error)
    # Not for want of removals.
    assert n_removed >= least, n_removed


def test_the_smallest_gain_is_tried_first_and_what_is_accepted_passes_its_level_on() -> None:
    record = record_of([setting(**{each: 1.0}) for each in "abcd"], gains=[4.0, 2.0, 3.0, 2.0])
    tried = []
    # Of equal gains the newest first.
    for accepted in (True, False, True, True):
        removal = begun(record)
        assert removal is not None
        tried.append((removal.entry.change, level_of_removal(record, removal) * 4 / REMOVAL_ERROR))
        record = ended(record, removal, accepted)
    assert tried == [(4, 1.0), (2, 2.0), (3, 1.0), (1, 2.0)]
    # Then the best against what is left, which is a comparison of its own.
    last = begun(record)
    assert last is not None and (last.entry.change, level_of_removal(record, last)) == (None, 0.025)
    assert (last.before.settings, last.after.settings) == ({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, {"b": 1.0})
    record = ended(record, last, True)
    assert next_removal(record, record.reduction) is None
    assert removal_level(1, ()) == REMOVAL_ERROR


def test_a_value_goes_back_to_the_last_other_change_and_a_commit_to_the_one_before_it() -> None:
    changes = [
        setting(a=1.0, b=1.0),
        Change(commit="c1" * 20, settings={}),
        setting(a=2.0),
        Change(commit="c2" * 20, settings={"b": 3.0}),
    ]
    record = record_of(changes)
    without = {number: setup_without(record.start, record.kept, {number}) for number in (1, 3, 4)}
    assert (without[1].settings, without[1].commit) == ({"a": 2.0, "b": 3.0}, "c2" * 20)
    assert (without[3].settings, without[3].commit) == ({"a": 1.0, "b": 3.0}, "c2" * 20)
    assert (without[4].settings, without[4].commit) == ({"a": 2.0, "b": 1.0}, "c1" * 20)
    # All that the first change set has been replaced; the second is a commit that a later one may have.
    whys = [why_not_removable(record, (), number) for number in (1, 2, 3, 4)]
    assert whys == ["replaced", "in a later commit", None, None]
    # Without the last change both can be taken out.
    assert [why_not_removable(record, (4,), number) for number in (1, 2, 3)] == [None, None, None]
