"""Which findings an amendment after evidence made exploratory, and whether the verdict rests on one of them.

`prereg.registry.amendments` says what an amendment changed. Two things need the numbers. Under Holm the corrected p of
a hypothesis depends on the p values of its whole role: a hypothesis is exploratory too unless its outcome is equal with
every p of an exploratory one at its best (as if 0: one hypothesis less to correct for) and at its worst (1). And a
verdict is given only if it is the same over all outcomes of what is exploratory, and both answers of such a `stable`;
otherwise there is none, and a smallest set of names on which it rests is given.

The numbers of an exploratory hypothesis are shown like any others. They decide nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ablate.judge.audit.checks import Found, Result, check
from ablate.judge.stats.nulls import Nulls, found_nulls, judge_families
from ablate.judge.stats.procedure import TINY
from ablate.judge.verdict import Finding, Outcome
from prereg.registry.amendments import Touched
from prereg.rule.condition import OUTCOMES
from prereg.study.spec import Study


def spread(study: Study, findings: Sequence[Finding], touched: Touched) -> Touched:
    """The same, with the hypotheses whose outcome hangs on touched ones of their role."""
    if not touched.hypotheses or study.analysis.correct != "holm":
        return touched
    best, worst = (_outcomes_with(study, findings, touched, p) for p in (TINY, 1.0))
    reached = dict(touched.hypotheses)
    for name, hypothesis in study.hypotheses.items():
        if name not in reached and best[name] != worst[name]:
            by = [other for other in study.family(hypothesis.role) if other in touched.hypotheses]
            reached[name] = (f"its corrected p hangs on {', '.join(by)}",)
    ordered = {name: reached[name] for name in study.hypotheses if name in reached}
    return touched.model_copy(update={"hypotheses": ordered})


def mark(findings: Sequence[Finding], touched: Touched) -> tuple[Finding, ...]:
    """The findings, those that were touched with the reason why they are exploratory."""
    return tuple(
        finding.model_copy(update={"amended": touched.hypotheses[finding.hypothesis]})
        if finding.hypothesis in touched.hypotheses
        else finding
        for finding in findings
    )


def rests_on(
    study: Study, outcomes: Mapping[str, Outcome], stable: Mapping[str, bool], touched: Touched
) -> tuple[str, ...]:
    """A smallest set of touched names, as the rule asks for them, on which the verdict rests; empty when on none."""
    free = [*((name, False) for name in touched.hypotheses), *((arm, True) for arm in touched.arms)]

    def verdicts(freed: Sequence[tuple[str, bool]]) -> tuple[str, ...]:
        return study.rule.verdicts(
            {name: OUTCOMES if (name, False) in freed else (outcome,) for name, outcome in outcomes.items()},
            {arm: (False, True) if (arm, True) in freed else (answer,) for arm, answer in stable.items()},
        )

    if len(verdicts(free)) == 1:
        return ()
    for one in list(free):
        fewer = [other for other in free if other != one]
        if len(verdicts(fewer)) > 1:
            free = fewer
    return tuple(f"stable({name})" if of_arm else name for name, of_arm in free)


@check(
    "the verdict rests on nothing that an amendment made exploratory",
    "inadmissible",
    looks_at="the rule, over every outcome of what amendments touched",
    why="an outcome may have chosen the test that it passed",
    required="the same verdict for every outcome of what was touched",
)
def check_verdict(touched: Touched, resting: Sequence[str]) -> Found:
    """The check that fails when the verdict rests on something touched; none where amendments touched nothing."""
    named = [*touched.hypotheses, *(f"stable({arm})" for arm in touched.arms)]
    if not named:
        return None
    if resting:
        found = f"it rests on {', '.join(resting)}, touched by {_reasons(touched, resting)}"
        return Result(passed=False, found=found)
    return Result(found=f"the same verdict whatever had become of {', '.join(named)}")


def _reasons(touched: Touched, resting: Sequence[str]) -> str:
    by_name = touched.hypotheses | {f"stable({arm})": reasons for arm, reasons in touched.arms.items()}
    return "; ".join(dict.fromkeys(reason for name in resting for reason in by_name[name]))


def because_it_rests(touched: Touched, resting: Sequence[str]) -> str:
    """Why there is no verdict, in a sentence."""
    are = "which an amendment after evidence made exploratory"
    return f"The verdict rests on {', '.join(resting)}, {are}: {_reasons(touched, resting)}."


def _outcomes_with(study: Study, findings: Sequence[Finding], touched: Touched, p: float) -> dict[str, Outcome]:
    """Outcomes with every touched p set to one value."""
    nulls = {name: Nulls(p, p) if name in touched.hypotheses else one for name, one in found_nulls(findings).items()}
    return {name: judged.outcome for name, judged in judge_families(study, nulls).items()}
