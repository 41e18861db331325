"""When a sequential study ends: the rule that `decide` asks at a look, and the same rule over simulated studies.

Rows of an array are studies, as in `ablate.judge.stats.batch`, whose judge over rows is used at every look.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import numpy.typing as npt

from ablate.judge.audit.lost_pairs import UNDECIDED, ends_of_rows, same_verdict_rows
from ablate.judge.stats.batch import OUTCOME, Codes, judge_rows, judge_rows_at_worst
from ablate.judge.stats.procedure import TINY, Floats, Side
from ablate.judge.stats.rows import Kept, Rows, RowsOfT
from ablate.judge.stats.sequential import e_from, repeated_ps
from ablate.judge.verdict import Outcome
from prereg.registry.looks import Look, looks_of
from prereg.study.analysis import Looks
from prereg.study.spec import Study


def settles(study: Study, outcomes: Mapping[str, Outcome], stable: Mapping[str, bool]) -> bool:
    """Whether these outcomes end a sequential study at a look that is not its last.

    They do when the line that holds has a verdict, and would not hold if nothing had been found.
    """
    ruling = study.rule.decide(outcomes, stable)
    nothing: dict[str, Outcome] = dict.fromkeys(outcomes, "inconclusive")
    return ruling.verdict != UNDECIDED and ruling.line != study.rule.decide(nothing, stable).line


def run_to_the_stop(
    study: Study,
    differences: Mapping[str, Floats],
    kept: Mapping[str, Kept] | None,
    stable: Kept,
    lost: Kept | None = None,
) -> tuple[Codes, npt.NDArray[np.int64], Kept]:
    """Outcome codes of simulated sequential studies at the look where each stops, which look that was, from 1, and
    whether each has a verdict there: whether it is the same with lost pairs at their worst.

    Which arms were stable is taken over all seeds, not over those that a look sees: a difference only to rules that
    ask for stability, in scenarios where runs diverge.
    """
    names = list(study.hypotheses)
    codes = np.full((len(stable), len(names)), OUTCOME.index("inconclusive"), dtype=np.int8)
    stopped = np.zeros(len(stable), dtype=np.int64)
    ruled: Kept = np.ones(len(stable), dtype=bool)
    for look in looks_of(study):
        going = np.flatnonzero(stopped == 0)
        if not going.size:
            break
        seen = {name: values[going, : look.n_seeds] for name, values in differences.items()}
        whole = None if kept is None else {name: values[going, : look.n_seeds] for name, values in kept.items()}
        rows_of = partial(_rows_at, study, look)
        if whole is None or lost is None:
            found, same = judge_rows(study, seen, whole, rows_of=rows_of), np.ones(going.size, dtype=bool)
        else:
            ends = ends_of_rows(study, lost[going, :, : look.n_seeds])
            found, possible = judge_rows_at_worst(study, seen, whole, ends, rows_of=rows_of)
            same = same_verdict_rows(study, found, possible, stable[going])
        codes[going], ruled[going] = found, same
        # A look that is not the last ends nothing where its verdict would not be given.
        ends_here = np.ones(going.size, dtype=bool) if look.last else same & _settled(study, found, stable[going])
        stopped[going[ends_here]] = look.number
    return codes, stopped, ruled


def _settled(study: Study, codes: Codes, stable: Kept) -> Kept:
    """`settles` over rows, evaluated once for every distinct case."""
    cases, place = np.unique(np.concatenate([codes, stable.astype(np.int8)], axis=1), axis=0, return_inverse=True)
    split, names, arms = codes.shape[1], list(study.hypotheses), list(study.arms)
    answers = [
        settles(
            study,
            {name: OUTCOME[code] for name, code in zip(names, case[:split], strict=True)},
            {arm: bool(value) for arm, value in zip(arms, case[split:], strict=True)},
        )
        for case in cases
    ]
    found: Kept = np.array(answers, dtype=bool)[place.reshape(-1)]
    return found


def _rows_at(study: Study, look: Look, values: Floats) -> Rows:
    return _RowsOfLook(values, study.stopping, look) if isinstance(study.stopping, Looks) else _RowsOfE(values)


class _RowsOfLook(RowsOfT):
    """`RepeatedT` over rows."""

    def __init__(self, values: Floats, stopping: Looks, look: Look) -> None:
        super().__init__(values)
        self.looks, self.look, self.spending = stopping.looks, look.number, stopping.spending

    def p(self, null: float, side: Side) -> Floats:
        return repeated_ps(super().p(null, side), self.looks, self.look, self.spending, two_sided=side == "two")


class _RowsOfE(RowsOfT):
    """`EProcessT` over rows."""

    def __init__(self, values: Floats) -> None:
        super().__init__(values)
        count = np.arange(1.0, self.n + 1)
        self._n = count
        values = self.values
        self._means = np.cumsum(values, axis=1) / count
        centred = values - values.mean(axis=1, keepdims=True)
        middle = np.cumsum(centred, axis=1) / count
        self._squares = np.cumsum(centred**2, axis=1) - count * middle**2
        spread = np.maximum.accumulate(values, axis=1) - np.minimum.accumulate(values, axis=1)
        self._known = spread > 1e-12 * self.size[:, None]
        best = self._e(0.0).argmax(axis=1)
        self.leaning = np.sign(np.take_along_axis(self._means, best[:, None], axis=1)[:, 0])

    def _e(self, null: float) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self._n * (self._means - self.to_unit(null)[:, None]) ** 2 / self._squares
        return np.where(self._known, e_from(np.where(self._known, ratio, 0.0), self._n), 1.0)

    def p(self, null: float, side: Side) -> Floats:
        values = self._e(null)
        if side != "two":
            wanted = 1.0 if side == "greater" else -1.0
            values = np.where(np.sign(self._means - self.to_unit(null)[:, None]) == wanted, values, 1.0)
        found: Floats = np.clip(1.0 / values.max(axis=1), TINY, 1.0)
        return found
