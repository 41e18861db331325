"""Names of corrections and procedures, and what `ablate check` says of error rates, spikes and lost starts.

What a procedure does is `ablate.judge`'s. The sentences of documents are in `templates/`, which take these as facts.
"""

from __future__ import annotations

from prereg.study.spec import Study
from prereg.text import compact, counted, level, listed

SPENDING = {"obrien_fleming": "O'Brien-Fleming type", "pocock": "Pocock type"}


def after_correction(correct: str) -> str:
    """At which level a power was computed."""
    return "without correction" if correct == "none" else "after correction"


def at_level(correct: str) -> str:
    """The same of a level."""
    return "at the level of each test alone" if correct == "none" else "at the corrected level"


def errors_held(study: Study) -> dict[str, str]:
    """Per claim, per role and for the verdict: which chance of an error is held, and which is not."""
    # Support and refutation each have alpha, so either error has at most their sum.
    alpha, either = compact(study.analysis.alpha), compact(min(1.0, 2 * study.analysis.alpha))
    roles = listed(f"{family} ({counted(len(names), 'claim')})" for family, names in study.families.items())
    within_roles = f"in each of {roles}" if len(study.families) > 1 else f"in {roles}"
    held = {
        "Per claim": f"a false 'supported' at most {alpha}, a false 'refuted' at most {alpha}, where the test's "
        "assumptions hold"
    }
    # Three cases: a gate over all supports, no correction at all, or a correction by role.
    if study.gate_steps:
        n = len(study.corrected_together["gate"])
        held["Over the gate"] = f"over {counted(n, 'claim')} together, any false 'supported' at most {alpha}"
        held["Per role"] = f"{within_roles}, any false 'refuted' at most {alpha}"
    elif study.analysis.correct == "none" and any(len(names) > 1 for names in study.families.values()):
        held["Per role"] = (
            f"not held: no correction is registered, and false findings add up over the claims of a role: {roles}"
        )
    else:
        held["Per role"] = (
            f"{within_roles}, any false 'supported' at most {alpha}, any false 'refuted' at most {alpha}, either "
            f"at most {either}"
        )
    within = "the gate" if study.gate_steps else "a role"
    return held | {
        "For the verdict": f"not controlled, since corrections work within {within}; "
        "ablate design simulates how often the rule gives a wrong verdict, under the assumptions it states"
    }


def lost_starts(study: Study) -> str:
    """How many starts of runs may be lost; empty where no number is registered."""
    most = study.analysis.most_lost_starts
    if most is None:
        return ""
    return f"no verdict with more than {counted(most, 'start')} of runs that have no seal and were not resumed"


def not_reached(study: Study) -> list[str]:
    """What a run lacks that does not reach a registered level; nothing where no level is registered."""
    sides = {"lower": "at or below", "higher": "at or above"}
    return [
        f"no {metric} {sides[study.better(metric)]} {compact(level)} by step {study.stable.by}"
        for metric, level in study.stable.levels.items()
    ]


def spike(study: Study) -> str:
    """How far above the last steps a training loss is a spike."""
    rule = study.stable.loss_spike
    last = f"above the median of the last {rule.window} steps"
    first = " (for the first steps: of the steps before and the window that follows)" if rule.first_steps else ""
    if rule.above is not None:
        return f"more than {compact(rule.above)} robust standard deviations {last}{first}"
    assert rule.false_alarms is not None, rule
    return (
        f"so far {last}{first}, in robust standard deviations, that losses of stationary normal noise alone get there "
        f"in {level(rule.false_alarms)} of studies of this size"
    )
