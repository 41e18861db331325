"""Corrections for several hypotheses: Holm, and a gate of steps in order.

Under a gate one alpha holds over the hypotheses of all steps. Each step is tested by Holm's procedure at the full
alpha, and only once every hypothesis of all earlier steps is rejected: a fixed sequence where each step is one
hypothesis (Maurer, Hothorn and Lehmacher 1995), serial gatekeeping where a step is several (Westfall and Krishen 2001).

It is the closed test whose test of an intersection J is Bonferroni's over those hypotheses of J that are in the first
step which J meets. Every such test has level alpha whatever the dependence of the p values, so the chance of any false
rejection is at most alpha (Marcus, Peritz and Gabriel 1976).

To add a correction: a function over rows of p values here, its word in `prereg.study.analysis`, and a branch of
`ablate.judge.judge.judge_p`, which is the only place that corrects.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ablate.judge.stats.significance_tests import Floats

Step = Sequence[str]
"""The hypotheses of one step of a gate."""


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """p values adjusted by Holm's step-down procedure: any false rejection has a chance of at most alpha.

    Parameters
    ----------
    p : sequence of float
        Uncorrected p values of one family, above 0.

    Returns
    -------
    tuple of float, in the order given: monotone in p, never above 1. A hypothesis is rejected where its
    adjusted p is at most alpha.

    Notes
    -----
    With p(1) <= ... <= p(m), the adjusted p(i) is max over j <= i of min(1, (m - j + 1) p(j)). It holds
    whatever the dependence of the p values, since it is Bonferroni's test of every intersection.

    References
    ----------
    Holm (1979), A simple sequentially rejective multiple test procedure. Scand. J. Statist. 6, 65-70.

    Examples
    --------
    R, ``p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")``: 0.03 0.06 0.06 0.02.

    >>> [round(value, 6) for value in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    # A p of 0 would stay 0 under any correction; the tests give the smallest double in its place.
    assert all(0.0 < value <= 1.0 for value in p), p
    return tuple(holm_rows(np.array([p]))[0].tolist())


def holm_rows(p: Floats) -> Floats:
    """`holm` of many studies, one a row.

    Examples
    --------
    >>> holm_rows(np.array([[0.25, 0.5], [0.125, 0.125]])).tolist()
    [[0.5, 0.5], [0.25, 0.25]]
    """
    order = np.argsort(p, axis=1, kind="stable")
    # (m - j + 1) p(j), j from the smallest p on.
    steps = np.minimum(1.0, np.arange(p.shape[1], 0, -1) * np.take_along_axis(p, order, axis=1))
    adjusted = np.empty_like(p)
    # The running maximum is what makes it monotone: leaving it out is the classical mistake.
    np.put_along_axis(adjusted, order, np.maximum.accumulate(steps, axis=1), axis=1)
    return adjusted


def adjusted_rows(steps: Sequence[Step], p: Floats) -> Floats:
    """p values adjusted over a gate, of many studies (rows), hypotheses in the order of the steps.

    Parameters
    ----------
    steps : sequence of steps
        The hypotheses of each step of the gate, by name.
    p : array, studies x hypotheses
        Uncorrected p values, in the order of the steps.

    Notes
    -----
    Within a step Holm's procedure; and no adjusted p is below the largest of the step before: a step is
    tested only once every hypothesis of all earlier steps is rejected.

    References
    ----------
    Maurer, Hothorn and Lehmacher (1995), Multiple comparisons in drug clinical trials and preclinical
    assays: a-priori ordered hypotheses. Westfall and Krishen (2001), Optimally weighted, fixed sequence
    and gatekeeper multiple testing procedures. J. Statist. Plann. Inference 99, 25-40.

    Examples
    --------
    By hand: the second step's .01 counts as the first step's .04.

    >>> adjusted_rows([["a"], ["b", "c"]], np.array([[0.04, 0.01, 0.03]])).round(6).tolist()
    [[0.04, 0.04, 0.04]]
    """
    # before: (studies,), the largest adjusted p of the steps so far, which the next step cannot go below.
    adjusted, before, first = np.empty_like(p), np.zeros(len(p)), 0
    for step in steps:
        mine = slice(first, first + len(step))
        # No hypothesis is rejected before all of the earlier steps are: its p is at least the largest of theirs.
        adjusted[:, mine] = np.maximum(holm_rows(p[:, mine]), before[:, None])
        before, first = adjusted[:, mine].max(axis=1), mine.stop
    return adjusted


def adjusted(steps: Sequence[Step], p: Sequence[float]) -> tuple[float, ...]:
    """`adjusted_rows` of one study.

    Examples
    --------
    >>> adjusted([["a"], ["b"]], [0.5, 0.25])
    (0.5, 0.5)
    """
    return tuple(adjusted_rows(steps, np.array([p]))[0].tolist())


def levels_tested(steps: Sequence[Step], rejected: Sequence[bool], alpha: float) -> tuple[float, ...]:
    """The level at which each hypothesis was tested in the end, with all others of its step that were
    rejected gone; 0 behind a step that did not pass. It is rejected exactly where its p is at most this.

    Examples
    --------
    Of a step of two one is rejected, so that the other was tested at the full level, and failed.

    >>> levels_tested([["a", "b"], ["c"]], [True, False, False], 0.05)
    (0.025, 0.05, 0.0)
    """
    levels: list[float] = []
    is_open = True
    for step in steps:
        # `levels` has one entry for each hypothesis of the earlier steps, so its length is where this step
        # begins.
        mine = rejected[len(levels) : len(levels) + len(step)]
        # Holm's last step: a rejected hypothesis met itself and all that were not, any other those alone.
        levels += [alpha / (len(step) - sum(mine) + passed) if is_open else 0.0 for passed in mine]
        # A step passes only where all of it is rejected (serial gatekeeping); what follows a step that did not
        # is level 0.
        is_open &= all(mine)
    return tuple(levels)
