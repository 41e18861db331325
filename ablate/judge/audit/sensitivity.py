"""Checks that doubtful things leave the verdict the same: amended hypotheses, lost pairs, retried runs.

**Amendments.** `prereg.registry.amendments` says what an amendment after evidence changed. Two things need the numbers.
Under Holm the corrected p of a hypothesis depends on the p values of its whole role, and under a gate on those of all
that it holds: a hypothesis is exploratory too
unless its outcome is equal with every p of an exploratory one at its best (as if 0: one hypothesis less to correct for)
and at its worst (1). And a verdict is given only if it is the same over all outcomes of what is exploratory, and both
answers of such a `stable`; otherwise there is none, and a smallest set of names on which it rests is given. The numbers
of an exploratory hypothesis are shown like any others. They decide nothing.

**Lost pairs**, of diverged runs. Each hypothesis that lost pairs is judged again with its p values
at the ends towards which its lost pairs push it (`prereg.rule.divergence`), in the family that it is corrected in:
under Holm's procedure its neighbours may owe their outcomes to a p that rests on the luckier seeds. A hypothesis can
then end as found, as at these ends, or as anything between, and the verdict is given only if the rule gives the same
for all of it. "inconclusive" is always given. `Judgement.one_verdict` asks the same of the design's simulated studies.

**Runs begun again** after a start that may have recorded a claimed value (`ablate.judge.audit.history`). Each
hypothesis that reads one is judged again with the p values of `ablate.judge.audit.retried`, and the verdict is given
only if the rule gives the same for all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ablate.judge.audit.checks import CheckResult, Found, check_body, named
from ablate.judge.judge import Judgement, case_of, other_verdicts, outcomes_of_masks
from ablate.judge.stats.null_hypotheses import Nulls
from ablate.judge.stats.significance_tests import TINY, Floats, Kept
from ablate.judge.verdict import Check, Finding
from prereg.registry.amendments import Affected
from prereg.registry.plan import Cell
from prereg.rule.condition import OUTCOMES, Outcome
from prereg.rule.divergence import ENDS, End, pushed
from prereg.study.spec import Study


def spread_to_claims(judgement: Judgement, affected: Affected) -> Affected:
    """The same, with the hypotheses of a study whose outcome hangs on touched ones of their role."""
    study = judgement.study
    if not affected.hypotheses or study.analysis.correct != "holm":
        return affected
    # Every touched p at its best, then at its worst: an outcome that is the same at both hangs on none of them,
    # because Holm's adjusted p values rise with each p.
    touched = np.array([[name in affected.hypotheses for name in judgement.names]])
    at_best, at_worst = (
        judgement.with_p(np.where(touched, p, judgement.support), np.where(touched, p, judgement.refute)).codes[0]
        for p in (TINY, 1.0)
    )
    # A neighbour is touched too where the outcome differs between the two ends.
    reached = dict(affected.hypotheses)
    for name, best, worst in zip(judgement.names, at_best, at_worst, strict=True):
        if name not in reached and best != worst:
            by = [neighbour for neighbour in study.corrected_with(name) if neighbour in affected.hypotheses]
            reached[name] = (f"its corrected p hangs on {', '.join(by)}",)
    ordered = {name: reached[name] for name in study.hypotheses if name in reached}
    return affected.model_copy(update={"hypotheses": ordered})


def mark(findings: Sequence[Finding], affected: Affected) -> tuple[Finding, ...]:
    """The findings, those that were touched with the reason why they are exploratory."""
    return tuple(
        finding.model_copy(update={"amended": affected.hypotheses[finding.hypothesis]})
        if finding.hypothesis in affected.hypotheses
        else finding
        for finding in findings
    )


@dataclass(frozen=True)
class Doubts:
    """Whether a verdict holds whatever had become of what amendments touched and of lost pairs."""

    hold: bool
    """Whether there is no doubt."""
    checks: tuple[Check, ...]
    because: str
    """Why there is no verdict, where it rests on what amendments touched."""


def doubts(
    judgement: Judgement,
    verdict: str,
    *,
    affected: Affected,
    diverged: Iterable[Cell],
    retried: Sequence[Cell] = (),
    worst: Mapping[End, Mapping[str, Nulls]] | None = None,
) -> Doubts:
    """Whether the verdict of one study would have been the same, and the checks that say so. `worst` are the p values
    of hypotheses with the runs `retried` at their ends."""
    study = judgement.study
    outcomes, stable = case_of(study, [*judgement.codes[0], *judgement.stable[0]])
    # Three doubts, asked one by one, because each has a check of its own.
    resting, lost = rests_on(study, outcomes, stable, affected), lost_pairs(study, diverged)

    def others_with(worst: Mapping[End, Mapping[str, Nulls]] | None) -> tuple[str, ...]:
        p_at_ends = None
        if worst is not None:
            p_at_ends = {end: _replaced(judgement, worst[end]) for end in ENDS}
        possible = outcomes_of_masks(judgement.names, judgement.possible(p_at_ends)[0])
        # Together with what amendments touched: lost pairs and an amendment may change it only between them.
        freed = Affected() if resting else affected
        possible |= dict.fromkeys(freed.hypotheses, frozenset(OUTCOMES))
        answers = {arm: (False, True) if arm in freed.arms else (answer,) for arm, answer in stable.items()}
        return other_verdicts(study, verdict, possible, answers)

    others = others_with(None) if lost else ()
    with_retried = others_with(worst) if retried else ()
    because = ""
    if resting:
        because = (
            f"The verdict rests on {', '.join(resting)}, which an amendment after evidence made exploratory: "
            f"{_reasons(affected, resting)}."
        )
    checks = check_verdict(affected, resting) + check_lost(lost, verdict, others)
    checks += check_retried(retried, verdict, with_retried)
    return Doubts(not resting and not others and not with_retried, checks, because)


def _replaced(judgement: Judgement, nulls: Mapping[str, Nulls]) -> tuple[Floats, Floats]:
    """The p values of one study, those of some hypotheses replaced."""
    support, refute = judgement.support.copy(), judgement.refute.copy()
    for name, both in nulls.items():
        at = judgement.names.index(name)
        support[0, at], refute[0, at] = both.support, 1.0 if both.refute is None else both.refute
    return support, refute


def rests_on(
    study: Study, outcomes: Mapping[str, Outcome], stable: Mapping[str, bool], affected: Affected
) -> tuple[str, ...]:
    """A smallest set of touched names, as the rule asks for them, on which the verdict rests; empty when on none."""
    free = [*((name, False) for name in affected.hypotheses), *((arm, True) for arm in affected.arms)]

    def verdicts(freed: Sequence[tuple[str, bool]]) -> tuple[str, ...]:
        return study.rule.verdicts(
            {name: OUTCOMES if (name, False) in freed else (outcome,) for name, outcome in outcomes.items()},
            {arm: (False, True) if (arm, True) in freed else (answer,) for arm, answer in stable.items()},
        )

    # A smallest set, not the smallest: each name in turn is let go if the verdict still hangs on the rest.
    if len(verdicts(free)) == 1:
        return ()
    for candidate in list(free):
        fewer = [rest for rest in free if rest != candidate]
        if len(verdicts(fewer)) > 1:
            free = fewer
    return tuple(f"stable({name})" if of_arm else name for name, of_arm in free)


@check_body("the verdict rests on nothing that an amendment made exploratory")
def check_verdict(affected: Affected, resting: Sequence[str]) -> Found:
    """The check that fails when the verdict rests on something touched; none where amendments touched nothing."""
    named = [*affected.hypotheses, *(f"stable({arm})" for arm in affected.arms)]
    if not named:
        return None
    if resting:
        text = f"it rests on {', '.join(resting)}, touched by {_reasons(affected, resting)}"
        return CheckResult(passed=False, found=text)
    return CheckResult(found=f"the same verdict whatever had become of {', '.join(named)}")


def _reasons(affected: Affected, resting: Sequence[str]) -> str:
    by_name = affected.hypotheses | {f"stable({arm})": reasons for arm, reasons in affected.arms.items()}
    return "; ".join(dict.fromkeys(reason for name in resting for reason in by_name[name]))


def lost_pairs(study: Study, diverged: Iterable[Cell]) -> dict[str, tuple[Cell, ...]]:
    """Hypothesis -> the diverged runs whose pairs it lost."""
    cells = list(diverged)
    runs = {name: tuple(cell for cell in cells if pushed(study, name, cell[0])) for name in study.hypotheses}
    return {name: lost for name, lost in runs.items() if lost}


def arms_that_lost(study: Study, diverged: Iterable[Cell]) -> Kept:
    """The same as `judge` takes it, one row."""
    arms = {arm for arm, _ in diverged}
    return np.array([[arm in arms for arm in study.arms]])


@check_body("the verdict is the same with lost pairs at their worst")
def check_lost(lost: Mapping[str, tuple[Cell, ...]], verdict: str, others: tuple[str, ...]) -> Found:
    """The check that fails when lost pairs could have changed the verdict; none where no pair was lost."""
    if not lost:
        return None
    runs = dict.fromkeys(cell for cells in lost.values() for cell in cells)
    pairs = f"the pairs of {', '.join(named(cell) for cell in runs)}, lost to {', '.join(lost)}"
    return _same_verdict(verdict, others, doubtful=pairs, otherwise=f"whatever became of {pairs}")


@check_body("the verdict is the same with runs begun again at their worst")
def check_retried(retried: Sequence[Cell], verdict: str, others: tuple[str, ...]) -> Found:
    """The check that fails when runs that were begun again could have changed the verdict; none without such runs."""
    if not retried:
        return None
    runs = f"{', '.join(named(cell) for cell in retried)} as bad, or as good, as any other"
    return _same_verdict(verdict, others, doubtful=runs, otherwise=f"with {runs} too")


def _same_verdict(verdict: str, others: tuple[str, ...], *, doubtful: str, otherwise: str) -> CheckResult:
    """Passed where no other verdict is possible."""
    could = " or ".join(f"'{possible}'" for possible in others)
    return CheckResult(
        passed=not others, found=f"'{verdict}' " + (f"could be {could} with {doubtful}" if others else otherwise)
    )
