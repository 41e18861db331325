"""Order of runs (`cells_in_order`): arms rotate over the seeds, and every second seed mirrors the one before it.

A machine that grows slower, or faster, while a study runs would favour whichever arm always comes first. With k arms:

    seed 1   A B C      seed 3   B C A      seed 5   C A B
    seed 2   C B A      seed 4   A C B      seed 6   B A C

- Over every two seeds, counted from the first, each arm has the same mean place: a drift that is linear in the number
  of runs made so far adds the same to every arm's mean, and nothing to a difference of means.
- Over every 2k seeds each arm has each place of a seed twice, and a drift that is quadratic cancels too.
- What remains after an odd number of seeds is the drift within the last of them, divided by the number of seeds.

Two arms come as AB BA BA AB. Which arm follows which is balanced by the mirror alone: what one run leaves behind for
the next (a warm cache, a hot processor) cancels for two arms, and for more of them only in part.

A registration names this rule (`run_order`), and the lock has the arms in the order of the file, with which the first
seed begins. One that names no rule was made before there was one: its runs come in the order of the file
(`Study.cells`), seed by seed, when they are resumed or amended too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from prereg.study.spec import Study

RunOrder = Literal["mirrored_rotation"]
"""Names of rules."""

MIRRORED_ROTATION: RunOrder = "mirrored_rotation"
"""The rule of every new registration."""


def cells_in_order(study: Study) -> tuple[tuple[str, int], ...]:
    """Every planned run by this rule: those of a pilot, then those that are judged.

    >>> cells_in_order(Study.from_yaml("studies/own.yaml"))
    (('slow', 1), ('fast', 1), ('fast', 2), ('slow', 2), ('fast', 3), ('slow', 3))
    """
    pilot_seeds = dict.fromkeys(study.pilots, study.pilot_seeds)
    judged_seeds = {arm: study.seeds_of(arm) for arm in study.arms}
    return (*_in_rounds(pilot_seeds), *_in_rounds(judged_seeds))


def order_in_words(study: Study, timed: Sequence[str]) -> str:
    """What a user reads of the order before the first run, where `timed` says why it matters."""
    first, second = (" ".join(arms_of_round(tuple(study.arms), number)) for number in range(2))
    return (
        f"runs are made one at a time and in order ({first}, then {second}, and so on), since {timed[0]}: on a machine "
        "that grows slower no arm comes later than another on average"
    )


def arms_of_round(arms: Sequence[str], number: int) -> tuple[str, ...]:
    """The arms of a round (the runs of one seed), counted from 0, in the order of their runs.

    >>> [" ".join(arms_of_round("ABC", number)) for number in range(4)]
    ['A B C', 'C B A', 'B C A', 'A C B']
    """
    shift = (number // 2) % len(arms)
    rotated = (*arms[shift:], *arms[:shift])
    return rotated if number % 2 == 0 else rotated[::-1]


def _in_rounds(seeds_by_arm: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, int]]:
    """The runs of some arms, round by round. Arms with fewer seeds than others have them spread over all rounds."""
    n_rounds = max((len(seeds) for seeds in seeds_by_arm.values()), default=0)
    rounds: list[dict[str, int]] = [{} for _ in range(n_rounds)]
    for arm, seeds in seeds_by_arm.items():
        for position, seed in enumerate(seeds):
            # The middle of the share of rounds that this seed speaks for: 2 seeds of 12 rounds are in the 4th and 10th.
            rounds[(2 * position + 1) * n_rounds // (2 * len(seeds))][arm] = seed
    for number, seed_by_arm in enumerate(rounds):
        for arm in arms_of_round(tuple(seeds_by_arm), number):
            if arm in seed_by_arm:
                yield arm, seed_by_arm[arm]
