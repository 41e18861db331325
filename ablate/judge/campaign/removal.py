"""Removals from a campaign's best: the study of each, its level, and what it says of the change.

A change is taken out where its gain within the stack is shown to be less than `smallest`, below which a change is not
worth its code, and where every guardrail is within its margin without it. Both sides are trained anew on seeds that no
run had before:

    H_t:  what is left loses `smallest` or more, or worsens some guardrail by its margin or more.

An accepted removal changes what the next is compared with. Which change comes next (`prereg.campaign.record.
next_removal`) and at which level follows from what ended before, F, so that with fresh seeds

    P(accept t | F) <= a_t   wherever H_t is true,                                                          (1)

by the one-sided paired t, of which the largest over gain and guardrails counts (intersection-union, Berger 1982).

**The level.** With K kept changes each removal has a share alpha / K of its own, and the level of an accepted removal
passes on to the next:

    a_t = alpha / K + a_{t-1} 1{t - 1 was accepted},   a_0 = 0

(the fallback procedure of Wiens and Dmitrienko 2005, equal weights). The chance that any removal is accepted whose H_t
is true is at most alpha: up to the first false acceptance the level at a true H_t consists of its own share and those
of the accepted removals right before it, whose H were false. A true H_t that is not accepted passes nothing on. So the
shares at different true H_t are disjoint, the sum of a_t over them is at most alpha on every path, and by (1) so is the
chance of a first false acceptance, and that of any. It is never below Bonferroni's alpha / K, and unlike a fixed
sequence it goes on after a removal that is not shown.

**Margins add up.** The error is that of single removals: r of them may each lose a little less than `smallest`, and
together nearly r times that. So the best is compared with what is left once more, on fresh seeds (the last comparison
of a reduction). Its interval is the one to be read: those of accepted removals are of the ones that looked harmless.

References
----------
Wiens and Dmitrienko (2005), The fallback procedure for evaluating a single family of hypotheses. J. Biopharm. Stat.
15, 929-942.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ablate.judge.campaign.confirmation import seeds_that_show, turned
from ablate.judge.campaign.evidence import GAIN
from ablate.judge.campaign.proposal_study import claims_about, compared_arms
from ablate.judge.verdict import Decision
from prereg.campaign.record import NOT_SHOWN, WITHIN_MARGIN, BegunRemoval, CampaignRecord
from prereg.campaign.spec import BEST
from prereg.frozen import FrozenModel

WITH, WITHOUT, REDUCED = "with", "without", "reduced"
"""Arms of a removal; of the last comparison `best` and `reduced`."""
REMOVAL_ERROR: Final = 0.05
"""The chance that any removal of a reduction is accepted that loses `smallest` or more."""
_LAST_LEVEL: Final = 0.025
"""One-sided, of the last comparison: its interval is at 95%, as that of a confirmation."""


def removal_level(n_kept: int, removed: Sequence[bool]) -> float:
    """The one-sided level of the next removal.

    Parameters
    ----------
    n_kept : int
        Kept changes of the best.
    removed : sequence of bool
        Whether each removal of the reduction so far was accepted.

    Examples
    --------
    Five kept changes; the second removal was not accepted:

    >>> [round(removal_level(5, ends), 3) for ends in ([], [True], [True, False], [True, False, True])]
    [0.01, 0.02, 0.01, 0.02]
    """
    assert len(removed) < n_kept, (n_kept, removed)
    # Its own share, and those of the accepted removals right before it: one that was not accepted passes nothing on.
    shares = 1
    for accepted in reversed(removed):
        if not accepted:
            break
        shares += 1
    return REMOVAL_ERROR * shares / n_kept


def level_of_removal(record: CampaignRecord, removal: BegunRemoval) -> float:
    """The one-sided level of a removal that is on record."""
    entry = removal.entry
    if entry.change is None:
        return _LAST_LEVEL
    earlier = [
        each.is_removed
        for each in record.removals
        if each.entry.reduction == entry.reduction and each.entry.number < entry.number
    ]
    return removal_level(removal.n_kept, earlier)


def seeds_of_removals_by_default(record: CampaignRecord) -> int:
    """How many seeds each removal has where the user names no number: as many as the last stage, and where `assume`
    says the noise, as many more as remove a change without any gain with power 80% at the level of the first, up to
    64."""
    level = removal_level(len(record.kept), ())
    return seeds_that_show(record.campaign, level, level)


def removal_document(record: CampaignRecord, removal: BegunRemoval) -> dict[str, Any]:
    """The plain data of a removal's study; it follows from the campaign and the ledger's entries alone."""
    campaign, entry = record.campaign, removal.entry
    names = (BEST, REDUCED) if entry.change is None else (WITH, WITHOUT)
    left_out = "all that was removed" if entry.change is None else f"proposal {entry.change}"
    claims = claims_about(campaign, names[1])
    # The gain's claim in the direction of harm: what is left loses less than `smallest`.
    claims[GAIN] |= {"claim": f"{names[1]} does_not_worsen {campaign.metric}"}
    document: dict[str, Any] = {
        "study": entry.run_as,
        "title": f"{campaign.title} (removal {entry.number}: without {left_out})",
        **({} if entry.again is None else {"question": entry.again}),
        **campaign.start,
    }
    document |= compared_arms(campaign, dict(zip(names, (removal.before, removal.after), strict=True)))
    document |= {
        "seeds": list(entry.seeds),
        "hypotheses": claims,
        "decision": [
            {"verdict": WITHIN_MARGIN, "when": " and ".join(f"supported({name})" for name in claims)},
            {"verdict": NOT_SHOWN},
        ],
        # Every claim has to hold, so that none needs a correction.
        "analysis": {"alpha": level_of_removal(record, removal), "correct": "none"},
        "assume": {
            "metrics": {metric: each.model_dump(mode="json") for metric, each in campaign.assume.metrics.items()},
            "power_floor": 0.0,
        },
    }
    return document


class GainWithin(FrozenModel):
    """The gain of a change within the stack, or of all that was removed together: positive where what is left is
    worse."""

    gain: float
    """The mean of the paired differences, on the registered scale."""
    low: float | None
    """Lower end of its interval; none where there is no finite one."""
    high: float | None
    """Upper end: a one-sided bound at the level of the removal, which is within the margin where this is below it."""
    level: float | None
    """Confidence level of the interval, 1 - 2 times the removal's."""
    n_seeds: int
    """Pairs."""


def gain_within(record: CampaignRecord, decision: Decision) -> GainWithin | None:
    """What a removal says of the gain of its change; none where a run has no value."""
    finding = next((each for each in decision.findings if each.hypothesis == GAIN), None)
    if finding is None or finding.estimate is None:
        return None
    # Differences are without minus with.
    sign = 1.0 if record.campaign.lower_is_better(finding.metric) else -1.0
    interval = None if finding.margin is None else finding.margin.interval
    low, high = turned(interval, sign)
    return GainWithin(
        gain=sign * finding.estimate.difference,
        low=low,
        high=high,
        level=None if interval is None else interval.level,
        n_seeds=finding.n,
    )
