"""Checks that runs are comparable as measured: at the same steps within a pair, and distinct between seeds.

A reading that takes a best value, a mean of the last evaluations or an area depends on the steps at which a run was
evaluated: of two equal laws, the one that is evaluated more often has the better best value. A seed that the trainer
ignores gives the same run again, and a test that counts it twice takes its noise for smaller than it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from ablate.judge.audit.checks import AuditContext, Found, built_in, check_body, shown
from ablate.judge.readings import reading_of
from ablate.records.evidence import Line
from ablate.records.outcome import is_repeatable
from prereg.metrics.catalogue import task_of
from prereg.registry.plan import Cell
from prereg.study.analysis import AtStep, OverLast
from prereg.text import counted, listed

ENOUGH = 10
"""So much do equal values of two runs weigh that chance did not make them equal: see `_weight`."""


@check_body("pairs were measured at the same steps", applies=shown)
def _same_steps(context: AuditContext) -> Found:
    study, done = context.study, {run.cell: run.steps for run in context.done}
    # One line for all claims and seeds of which the same is to be said.
    claims_by_fault: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    seeds_by_fault: dict[tuple[str, str], dict[int, None]] = defaultdict(dict)
    for name, claim in study.claims.items():
        metric, read = claim.metric, study.hypotheses[name].read
        # Values at the end depend on the last step alone; other readings on every step that was evaluated.
        at_end = read == "final" or study.analysis.test == "items" or task_of(metric) is not None
        if isinstance(read, AtStep) or (at_end and built_in(context)):
            continue  # one registered step; "every run consumed its tokens" compares the last
        curves = {} if at_end else context.evidence.lines(metric)
        groups: dict[int, dict[tuple[int, ...], list[Cell]]] = defaultdict(lambda: defaultdict(list))
        # In one order for every claim, the baseline last.
        for arm in (arm for arm in reversed(list(study.arms)) if arm in claim.named):
            for cell in ((arm, seed) for seed in study.seeds_of(arm) if (arm, seed) in done):
                steps = (done[cell],)
                if cell in curves:
                    line = curves[cell][0]
                    line = line[line > 0][-read.last :] if isinstance(read, OverLast) else line
                    steps = (*line.tolist(), done[cell])
                elif not at_end:
                    continue  # "every finished run has every claimed metric"
                in_pairs = study.paired and len(claim.named) > 1
                groups[cell[1] if in_pairs else -1][steps].append(cell)
        for group, cells_by_steps in sorted(groups.items()):
            if len(cells_by_steps) > 1:
                fault = (reading_of(study, name), _against(cells_by_steps, at_end=at_end, with_seeds=group < 0))
                claims_by_fault[fault][name] = None
                if group >= 0:
                    seeds_by_fault[fault][group] = None
    return [
        f"{listed(claims_by_fault[fault])} ({fault[0]}), {_at(list(seeds_by_fault[fault]))}{fault[1]}"
        for fault in claims_by_fault
    ]


def _against(cells_by_steps: dict[tuple[int, ...], list[Cell]], *, at_end: bool, with_seeds: bool) -> str:
    """For instance `fast 5 evaluations from step 0 to 100 against slow 101 evaluations from step 0 to 100`."""
    parts = []
    for steps, cells in cells_by_steps.items():
        who = listed([f"{arm} seed {seed}" if with_seeds else arm for arm, seed in cells[:3]])
        more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
        *line, last = steps
        over = "" if at_end else f"{counted(len(line), 'evaluation')} from step {line[0]} to {line[-1]}, "
        parts.append(f"{who}{more} {over}last step {last}")
    shown = parts[:3] + [f"{len(parts) - 3} other sets of steps"] * (len(parts) > 3)
    return " against ".join(shown)


def _at(seeds: list[int]) -> str:
    """For instance `seeds 3, 4, 5 and 2 more: `, and nothing where the text names its seeds."""
    if len(seeds) < 2:
        return f"seed {seeds[0]}: " if seeds else ""
    more = [f"{len(seeds) - 3} more"] if len(seeds) > 3 else []
    return f"seeds {listed([*map(str, seeds[:3]), *more])}: "


@check_body("seeds gave distinct runs", applies=shown)
def _distinct(context: AuditContext) -> Found:
    study, evidence = context.study, context.evidence
    claimed = sorted({claim.metric for claim in study.claims.values()})
    names = sorted({*map(str, evidence.metrics["metric"].unique())})
    lines = {name: evidence.lines(name) for name in names if is_repeatable(name)}
    arms = sorted({arm for claim in study.claims.values() for arm in claim.named})
    cells = [run.cell for run in context.ended]
    # What must differ between seeds: claimed metrics, and whatever does differ somewhere.
    by_seed = [name for name in lines if _follows_seeds(lines[name], cells)]
    follow = {*claimed, *by_seed}
    outcomes = {run.cell: run.outcome_sha256 for run in context.ended}
    faults: dict[str, None] = {}
    for arm in arms:
        runs = sorted(cell for cell in cells if cell[0] == arm)
        of_claims: dict[bytes, list[Cell]] = defaultdict(list)
        of_all: dict[bytes, list[Cell]] = defaultdict(list)
        for cell in runs:
            values = _bits(lines[name].get(cell) for name in claimed if name in lines)
            if any(cell in lines[name] for name in claimed if name in lines):
                of_claims[values].append(cell)
            if outcomes[cell] is not None:
                of_all[str(outcomes[cell]).encode()].append(cell)
        # Runs are the same by the values that the claims read, or by everything they sealed: the second sees a run
        # that was copied under another seed although a claimed metric has few digits.
        for groups, judged in ((of_claims, claimed), (of_all, sorted(follow))):
            for same in (group for group in groups.values() if len(group) > 1):
                if _no_chance([(lines[name].get(same[0]), name in follow) for name in judged if name in lines]):
                    faults[f"{arm}, seeds {listed([str(seed) for _, seed in same])}, of {len(runs)} runs"] = None
    return list(faults)


def _follows_seeds(lines: dict[Cell, Line], cells: Iterable[Cell]) -> bool:
    """Whether a metric has other values under another seed, in any arm: the number of parameters has not."""
    first: dict[str, bytes] = {}
    return any(
        _bits([lines[cell]]) != first.setdefault(cell[0], _bits([lines[cell]])) for cell in cells if cell in lines
    )


def _bits(lines: Iterable[Line | None]) -> bytes:
    """Steps and values of some lines, every bit of them."""
    return b"|".join(b"" if line is None else line[0].tobytes() + b":" + line[1].tobytes() for line in lines)


def _no_chance(lines: Iterable[tuple[Line | None, bool]]) -> bool:
    """Whether lines that are equal in two runs are so many or so exact that chance did not make them equal.

    Each comes with whether it follows the seeds, as a claimed metric must. One that does not, such as a learning rate,
    shows nothing by one exact value; a curve of many values would change with the seed.
    """
    # Each value counts by how unlikely it is to be equal by chance, up to a sum that no chance explains.
    weight = 0
    for line, follows in lines:
        values = [] if line is None else np.unique(line[1][np.isfinite(line[1])]).tolist()
        for value in values:
            weight += _weight(value) if follows else 1
            if weight >= ENOUGH:
                return True
    return False


def _weight(value: float) -> int:
    """10 of a value with all digits of a double, 4 of one with those of a single, 1 of one on a coarse grid.

    A share of up to a million items, or a number of up to six decimals, is on a coarse grid: two of them are equal by
    chance. In single precision a share of more than a thousand items looks like any number; three values that differ
    are taken together.
    """
    with np.errstate(over="ignore"):
        single = np.float32(value)
    if float(single) == value:
        return 1 if np.float32(float(Fraction(value).limit_denominator(1_000))) == single else 4
    return 1 if float(Fraction(value).limit_denominator(1_000_000)) == value else ENOUGH
