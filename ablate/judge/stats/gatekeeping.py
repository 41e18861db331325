"""The graphical procedure of Bretz, Maurer, Brannath and Posch (2009), and stages of it one after the other.

Each hypothesis has a share of alpha. One that is rejected leaves the graph: its share goes along its transitions, and
they are joined to lead around it (Algorithm 1 of the paper; the result does not depend on the order of rejections). The
adjusted p of a hypothesis is the smallest alpha at which the procedure rejects it (Algorithm 2).

The procedure is the closed test with a weighted Bonferroni test of every intersection J: rejected where p_i <= w_i(J)
alpha for some i in J, w_i(J) the share of i once all outside of J have left the graph. Every such test has level alpha
whatever the dependence of the p values, because the w_i(J) sum to at most 1; so the chance of any false rejection is
at most alpha (Marcus, Peritz and Gabriel 1976). A stage after the first is tested once all before it are rejected: for
J that meets an earlier stage, w_i(J) = 0 there. Shares only grow as hypotheses leave, which makes the steps a shortcut
of the closed test. `ablate.judge.recompute` computes the closed test itself, with shares by another formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ablate.judge.stats.paired_t import Floats
from prereg.study.designs.gate import Stage


@lru_cache(maxsize=1 << 14)
def _without(stage: Stage, gone: int) -> tuple[Floats, Floats]:
    """Weights and transitions once the hypotheses of a set, as bits, have left the graph."""
    if not gone:
        return np.array(stage.weights), np.array(stage.transitions).reshape(len(stage.names), -1)
    j = gone.bit_length() - 1
    weights, moves = _without(stage, gone ^ 1 << j)
    weights = weights + weights[j] * moves[j]
    back = moves[:, j] * moves[j]
    with np.errstate(divide="ignore", invalid="ignore"):
        joined = (moves + np.outer(moves[:, j], moves[j])) / (1.0 - back)[:, None]
    # A share that could only go to and fro between two hypotheses stays where it is.
    joined[back >= 1.0] = 0.0
    np.fill_diagonal(joined, 0.0)
    joined[j], joined[:, j], weights[j] = 0.0, 0.0, 0.0
    return weights, joined


def shares(stage: Stage, gone: int) -> Floats:
    """The share of alpha of every hypothesis once those of a set, as bits, have left the graph; 0 of those."""
    # A sum of shares that rounding made larger than 1 would spend more than alpha.
    found = _without(stage, gone)[0]
    return found / max(1.0, float(found.sum()))


@lru_cache(maxsize=64)
def _table(stage: Stage) -> Floats:
    """The shares of all sets that may have left, by their bits."""
    return np.stack([shares(stage, gone) for gone in range(1 << len(stage.names))])


def rejected_rows(stages: Sequence[Stage], p: Floats, alpha: float) -> npt.NDArray[np.bool_]:
    """Whether each adjusted p is at most alpha, several times faster: all that can be rejected leave at once."""
    rejected, is_open, first = np.zeros(p.shape, dtype=bool), np.ones(len(p), dtype=bool), 0
    for stage in stages:
        m = len(stage.names)
        mine, table, bits = p[:, first : first + m], _table(stage), np.arange(m)
        gone = np.zeros(len(p), dtype=np.int64)
        for _ in stage.names:
            with np.errstate(divide="ignore"):
                more = gone | (mine / table[gone] <= alpha) @ (1 << bits)
            if (more == gone).all():
                break
            gone = more
        found = (gone[:, None] >> bits & 1).astype(bool) & is_open[:, None]
        rejected[:, first : first + m] = found
        is_open &= found.all(axis=1)
        first += m
    return rejected


def adjusted_rows(stages: Sequence[Stage], p: Floats) -> Floats:
    """Adjusted p values of many studies (rows), hypotheses in the order of the stages."""
    adjusted, before = np.ones(p.shape), np.zeros(len(p))
    rows, first = np.arange(len(p)), 0
    for stage in stages:
        m = len(stage.names)
        mine, found = p[:, first : first + m], adjusted[:, first : first + m]
        gone, running = np.zeros(len(p), dtype=np.int64), before
        for _ in stage.names:
            with np.errstate(divide="ignore"):
                ratio = mine / _table(stage)[gone]
            at = ratio.argmin(axis=1)
            running = np.minimum(1.0, np.maximum(running, ratio[rows, at]))
            some = np.isfinite(ratio[rows, at])  # else no share of alpha is left for any
            found[rows[some], at[some]] = running[some]
            gone[some] |= np.left_shift(1, at[some])
        before, first = found.max(axis=1), first + m
    return adjusted


def adjusted(stages: Sequence[Stage], p: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p values of one study, hypotheses in the order of the stages."""
    return tuple(adjusted_rows(stages, np.array([p]))[0].tolist())


def shares_tested(stages: Sequence[Stage], rejected: Sequence[bool]) -> tuple[float, ...]:
    """The share of alpha that each hypothesis was tested at in the end: with all others that were rejected gone. It is
    rejected exactly where its p is at most alpha times this."""
    found: list[float] = []
    is_open = True
    for stage in stages:
        mine = rejected[len(found) : len(found) + len(stage.names)]
        all_gone = sum(1 << at for at, one in enumerate(mine) if one)
        found += [float(shares(stage, all_gone & ~(1 << at))[at]) * is_open for at in range(len(mine))]
        is_open &= all(mine)
    return tuple(found)


@lru_cache(maxsize=256)
def shares_possible(stage: Stage, at: int) -> tuple[float, ...]:
    """All shares above 0 that a hypothesis of a stage may be tested at, descending."""
    others = (gone for gone in range(1 << len(stage.names)) if not gone >> at & 1)
    found = sorted({round(float(shares(stage, gone)[at]), 15) for gone in others}, reverse=True)
    return tuple(one for one in found if one > 0.0)
