"""The verdict with lost pairs at their worst: what diverged runs under `exclude_pair` leave of it.

Each hypothesis that lost pairs is judged again with its p values at the ends towards which its lost pairs push it
(`prereg.rule.divergence`), in the family that it is corrected in: under Holm's procedure its neighbours may owe their
outcomes to a p that rests on the luckier seeds. A hypothesis can then end as found, as at these ends, or as anything
between, and the verdict is given only if the rule gives the same for all of it. "inconclusive" is always given.

Under `max_t` the ends are corrected by Holm's procedure: a pair that is not there has no joint distribution.

`same_verdict_rows` asks the same of the design's simulated studies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ablate.judge.audit.checks import Found, Result, check, named
from ablate.judge.stats.batch import OUTCOME, Codes
from ablate.judge.stats.nulls import Nulls, judge_families
from ablate.judge.stats.procedure import TINY
from ablate.judge.stats.rows import Kept
from ablate.judge.verdict import Outcome
from prereg.registry.plan import Cell
from prereg.rule.divergence import ENDS, End, between, pushed, refutable
from prereg.study.spec import Study

UNDECIDED: Final = "inconclusive"
"""The verdict whose words mean that the study did not decide: it is given whatever was lost."""
Possible = Mapping[str, frozenset[Outcome]]


@dataclass(frozen=True)
class Lost:
    """The pairs that one hypothesis lost."""

    runs: tuple[Cell, ...]
    """Its diverged runs."""
    ends: frozenset[End]
    """Where they push it."""


def lost_pairs(study: Study, diverged: Iterable[Cell]) -> dict[str, Lost]:
    """Hypothesis -> the pairs it lost to these runs; empty where diverged runs are not left out."""
    if study.on_divergence != "exclude_pair":
        return {}
    found = {}
    cells = list(diverged)
    for name in study.hypotheses:
        ends = {cell: pushed(study, name, cell[0]) for cell in cells}
        mine = tuple(cell for cell in cells if ends[cell])
        if mine:
            found[name] = Lost(mine, frozenset().union(*(ends[cell] for cell in mine)))
    return found


def possible_outcomes(
    study: Study,
    outcomes: Mapping[str, Outcome],
    nulls: Mapping[str, Nulls | None],
    ends: Mapping[str, frozenset[End]],
) -> dict[str, frozenset[Outcome]]:
    """Hypothesis -> the outcomes to reckon with, given p values of all and the ends of those that lost pairs."""
    possible = {name: {outcome} for name, outcome in outcomes.items()}
    # Without their tests, p values are corrected by Holm's procedure also under max-T.
    bare = {name: None if one is None else Nulls(one.support, one.refute) for name, one in nulls.items()}
    for end in ENDS:
        moved = {name: _at(study, name, end) for name, mine in ends.items() if end in mine}
        roles = {study.hypotheses[name].role for name in moved}
        judged = judge_families(study, bare | moved) if moved else {}
        for name, one in judged.items():
            if study.hypotheses[name].role in roles:
                possible[name].add(one.outcome)
    return {name: between(found) for name, found in possible.items()}


def _at(study: Study, name: str, end: End) -> Nulls:
    support, refute = (TINY, 1.0) if end == "supported" else (1.0, TINY)
    return Nulls(support, refute if refutable(study, name) else None)


def other_verdicts(
    study: Study, verdict: str, possible: Possible, stable: Mapping[str, Collection[bool]]
) -> tuple[str, ...]:
    """What else the rule could have given; nothing for "inconclusive", which needs no finding."""
    if verdict == UNDECIDED:
        return ()
    return tuple(other for other in study.rule.verdicts(possible, stable) if other != verdict)


@check(
    "the verdict is the same with lost pairs at their worst",
    "inadmissible",
    looks_at="the rule, over every outcome that lost pairs leave open",
    why="listed only where pairs were left out; without it the luckier seeds decide alone",
    required="the same verdict for every outcome that the lost pairs leave open",
)
def check_lost(lost: Mapping[str, Lost], verdict: str, others: tuple[str, ...]) -> Found:
    """The check that fails when lost pairs could have changed the verdict; none where no pair was lost."""
    if not lost:
        return None
    runs = dict.fromkeys(cell for one in lost.values() for cell in one.runs)
    pairs = f"the pairs of {', '.join(named(cell) for cell in runs)}, lost to {', '.join(lost)}"
    could = " or ".join(f"'{other}'" for other in others)
    found = f"'{verdict}' could be {could} with {pairs}" if others else f"'{verdict}' whatever became of {pairs}"
    return Result(passed=not others, found=found)


def ends_of_rows(study: Study, lost: Kept) -> dict[End, Kept]:
    """`Lost.ends` of simulated studies: end -> studies x hypotheses. `lost` is studies x arms x seeds."""
    any_lost: Kept = np.any(lost, axis=2)
    arms = list(study.arms)
    found: dict[End, Kept] = {}
    for end in ENDS:
        pushing = [[at for at, arm in enumerate(arms) if end in pushed(study, name, arm)] for name in study.hypotheses]
        found[end] = np.stack([np.any(any_lost[:, places], axis=1) for places in pushing], axis=1)
    return found


def same_verdict_rows(study: Study, codes: Codes, possible: Codes, stable: Kept) -> Kept:
    """Whether each simulated study has one verdict only: `other_verdicts`, evaluated once per distinct case.

    `possible` holds a bit for every outcome to reckon with, in the order of the codes.
    """
    cases, place = np.unique(np.concatenate([codes, possible, stable], axis=1), axis=0, return_inverse=True)
    names, arms = list(study.hypotheses), list(study.arms)
    answers = []
    for case in cases:
        found, masks, calls = np.split(case, [len(names), 2 * len(names)])
        outcomes = {name: OUTCOME[code] for name, code in zip(names, found, strict=True)}
        stable_arms = {arm: bool(value) for arm, value in zip(arms, calls, strict=True)}
        open_to = {name: unmasked(mask) for name, mask in zip(names, masks, strict=True)}
        verdict = study.rule.decide(outcomes, stable_arms).verdict
        answers.append(not other_verdicts(study, verdict, open_to, {arm: (one,) for arm, one in stable_arms.items()}))
    same: Kept = np.array(answers, dtype=bool)[place.reshape(-1)]
    return same


def unmasked(mask: int | npt.NDArray[np.int8]) -> frozenset[Outcome]:
    """The outcomes of a mask."""
    return frozenset(outcome for code, outcome in enumerate(OUTCOME) if int(mask) >> code & 1)


def masked(outcomes: Iterable[Outcome]) -> int:
    """The mask of outcomes."""
    return sum(1 << OUTCOME.index(outcome) for outcome in set(outcomes))
