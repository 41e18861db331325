"""What a study registers of its analysis, in words: tests, claims, errors, corrections, stopping, lost runs, stability.

The report and the documents of a registration say these things with the same words, which are here once. Nothing
here decides anything: what a procedure does is `ablate.judge`'s.
"""

from __future__ import annotations

from dataclasses import replace

from prereg.metrics.catalogue import Better
from prereg.rule.divergence import least_pairs, said_least
from prereg.study.analysis import Ceiling, EProcess, Looks, in_words
from prereg.study.claim import Claim
from prereg.study.designs.per_task import families_listed
from prereg.study.spec import Study
from prereg.study.tests import TESTS, TestWords
from prereg.study.verbs import KINDS, Verb
from prereg.text import compact, counted, level, listed, without_pairs

CORRECTIONS = {
    "gate": "gatekeeping in a fixed order (Westfall and Krishen 2001)",
    "holm": "Holm (1979)",
    "none": "none",
}
SPENDING = {"obrien_fleming": "O'Brien-Fleming type", "pocock": "Pocock type"}

ABOUT_CORRECTIONS = {
    "holm": "by Holm's step-down procedure (Holm 1979), which needs no assumption on how the tests depend on one "
    "another",
    "gate": "step by step, each by Holm's procedure (Westfall and Krishen 2001), which needs no assumption on how the "
    "tests depend on one another",
    "none": "",
}
"""Within each family, p values are corrected ..."""


def meaning(claim: Claim, outcome: str, smallest: float, *, unit: str = "", baseline: str = "") -> str:
    """What an outcome says of a claim, in plain words: of a refuted `a does_not_worsen M` that `a worsens M`."""
    left, right, verb = claim.left_side, claim.right_side, claim.kind.bare
    than = "" if right == claim.labels.arm(baseline) or not claim.is_paired else f" compared with {right}"
    metric = claim.compared
    amount = f" by {margin(claim, smallest, unit)}" if smallest > 0.0 else ""
    absence = claim.kind.is_absence
    if outcome == "inconclusive":
        by = f"{amount} or more" if absence else _at_least(claim, unit)
        return f"whether {left} {verb}s {metric}{by}{than} is undecided"
    if absence is (outcome == "supported"):
        return f"{left} does not {verb} {metric}{amount}{' or more' * bool(amount)}{than}"
    return f"{left} {verb}s {metric}{_at_least(claim, unit)}{than}"


def meanings(study: Study, name: str, metric: str | None = None) -> tuple[str, str]:
    """What 'supported' and what 'refuted' says of a hypothesis' claim, in plain words; `metric` renames it."""
    claim, hypothesis = study.claims[name], study.hypotheses[name]
    unit = study.unit(name)
    claim = replace(claim, metric=metric or claim.metric)
    supported, refuted = (
        meaning(claim, outcome, hypothesis.smallest, unit=unit, baseline=study.baseline)
        for outcome in ("supported", "refuted")
    )
    return supported, refuted


def _at_least(claim: Claim, unit: str) -> str:
    return "" if claim.by is None else f" by at least {margin(claim, claim.by, unit)}"


def margin(claim: Claim, smallest: float, unit: str) -> str:
    """The smallest difference that matters with its unit, or in percent where the study writes it so."""
    if claim.percent is None:
        return f"{compact(smallest)} {unit}".strip()
    return f"{compact(claim.percent)}%" + ("" if claim.trend is None else f" {claim.trend.per}")


def zone_in_words(verb: Verb, better: Better, zone: str) -> str:
    """A zone (`ablate.judge.verdict.Zone`) as it reads for the claim."""
    if zone == "undecided":
        return zone
    reached = zone == "at least the margin"
    kind = KINDS[verb]
    if kind.towards == "worse":
        return "worse by the margin or more" if reached else "less than the margin"
    if kind.towards == "either":
        return zone if reached else "less than the margin"
    if reached:
        return zone
    other = "the other way" if better == "neither" else "worse" if kind.towards == better else "better"
    return f"{other} or too small to matter"


def counted_as(study: Study, text: str) -> str:
    """A sentence of ours about pairs as it reads for the study: without pairs where no claim compares two sides."""
    return text if study.compares_sides else without_pairs(text)


def about_test(study: Study) -> str:
    """The deciding test, in a sentence or two; with the claims in which a seed gives one number."""
    text = counted_as(study, deciding_test(study).about)
    single = [name for name, claim in study.claims.items() if not claim.is_paired]
    if not single or not study.compares_sides:
        return text
    return f"{text} Of {listed(single)} each seed gives one number, and the test is that of one sample."


def after_correction(correct: str) -> str:
    """At which level a power was computed."""
    return "without correction" if correct == "none" else "after correction"


def at_level(correct: str) -> str:
    """The same of a level."""
    return "at the level of each test alone" if correct == "none" else "at the corrected level"


def power_test(study: Study) -> str:
    """The test whose power sizes in SDs are of."""
    return counted_as(study, "a paired t test") if study.paired else "Welch's t test of independent runs"


def errors_held(study: Study) -> dict[str, str]:
    """Per claim, per role and for the verdict: which chance of an error is held, and which is not."""
    alpha, either = compact(study.analysis.alpha), compact(min(1.0, 2 * study.analysis.alpha))
    said = listed(f"{family} ({counted(len(names), 'claim')})" for family, names in study.families.items())
    ends = "the gate" if study.gate_steps else "a role"
    verdict = (
        f"not held by any correction, which ends at {ends}; ablate design simulates how often the rule gives a wrong "
        "verdict, under the assumptions it states"
    )
    if study.gate_steps:
        n = len(study.corrected_together["gate"])
        return {
            "Per claim": f"a false 'supported' at most {alpha}, a false 'refuted' at most {alpha}, where the test's "
            "assumptions hold",
            "Over the gate": f"over {counted(n, 'claim')} together, any false 'supported' at most {alpha}",
            "Per role": f"in each of {said}, any false 'refuted' at most {alpha}",
            "For the verdict": verdict,
        }
    family = (
        f"in each of {said}, any false 'supported' at most {alpha}, any false 'refuted' at most {alpha}, either at "
        f"most {either}"
    )
    if study.analysis.correct == "none" and any(len(names) > 1 for names in study.families.values()):
        family = f"not held: no correction is registered, and false findings add up over the claims of a role: {said}"
    return {
        "Per claim": f"a false 'supported' at most {alpha}, a false 'refuted' at most {alpha}, where the test's "
        "assumptions hold",
        "Per role": family,
        "For the verdict": verdict,
    }


def gatekeeping(study: Study) -> str:
    """How the gate tests its hypotheses, and what error rates that holds."""
    alpha = compact(study.analysis.alpha)
    apart = [name for names in (*study.corrected_together.values(),)[1:] for name in names]
    left_out = f" Corrected apart, by Holm's procedure: {listed(apart)} (exploratory)." if apart else ""
    roles = families_listed(study)
    return (
        f"One alpha of {alpha} holds over the support of {listed(study.corrected_together['gate'])}. They are tested "
        f"{in_words(study)}. P values are adjusted {ABOUT_CORRECTIONS['gate']}; a hypothesis passes when its null is "
        f'rejected. The chance of any false "supported" is at most {alpha}.{left_out} Refutations wait for no gate: '
        f"within each role their p values are corrected {ABOUT_CORRECTIONS['holm']}, and the chance of any false "
        f'"refuted" in a role is at most {alpha}. Roles: {roles}.'
    )


def deciding_test(study: Study) -> TestWords:
    """The row of the test that decides."""
    return TESTS["e_process" if isinstance(study.stopping, EProcess) else study.analysis.test]


def test(study: Study) -> str:
    """The name of the deciding test."""
    return counted_as(study, deciding_test(study).name)


def stopping(study: Study) -> str:
    """When the number of seeds is settled."""
    if isinstance(study.stopping, Looks):
        looks = listed(str(n) for n in study.stopping.looks)
        return f"looks after {looks} seeds, spending the level by a function of {SPENDING[study.stopping.spending]}"
    if isinstance(study.stopping, EProcess):
        return f"when the e-process decides, after at most {study.stopping.max_seeds} seeds"
    return "fixed number of seeds; no look at outcomes before the last planned run has ended"


def lost_starts(study: Study) -> str | None:
    """How many starts of runs may be lost, in words; none where no number is registered."""
    most = study.analysis.most_lost_starts
    if most is None:
        return None
    return f"no verdict with more than {counted(most, 'start')} of runs that have no seal and were not resumed"


def divergence(study: Study) -> str:
    """What becomes of a diverged run in the tests."""
    if isinstance(study.on_divergence, Ceiling):
        return (
            f"scored at {compact(study.on_divergence.ceiling)}, which must be worse than any value that a run reached"
        )
    text = {
        "exclude_pair": "its pair is left out of the tests; a verdict is given only if it is the same with the lost "
        f"pairs at their worst, and a hypothesis that lost pairs needs {least_pairs(study)} of {len(study.seeds)}"
        if study.paired
        else "it is left out of the tests; a verdict is given only if it is the same with the lost runs at their "
        f"worst, and a hypothesis that lost runs of an arm needs {said_least(study)} of it",
        "rank": "ranked worst",
    }[study.on_divergence]
    return counted_as(study, text)


def instability(study: Study) -> str:
    """What makes a run unstable."""
    return (
        f"training loss of a step {spike(study)}, or above {compact(study.stable.diverged.loss_above)} times the first "
        f"step's, or not finite{''.join(f', or {said}' for said in not_reached(study))}"
    )


def not_reached(study: Study) -> list[str]:
    """What a run lacks that does not reach a registered level, in words; nothing where no level is registered."""
    sides = {"lower": "at or below", "higher": "at or above"}
    return [
        f"no {metric} {sides[study.better(metric)]} {compact(level)} by step {study.stable.by}"
        for metric, level in study.stable.levels.items()
    ]


def spike(study: Study) -> str:
    """How far above the last steps a training loss is a spike."""
    rule = study.stable.loss_spike
    last = f"robust standard deviations above the median of the last {rule.window} steps"
    if rule.first_steps:
        last += " (of the first steps: of those before and of the window that follows)"
    if rule.above is not None:
        return f"more than {compact(rule.above)} {last}"
    assert rule.false_alarms is not None, rule
    return (
        f"so many {last} that losses of stationary normal noise have such a step in {level(rule.false_alarms)} of "
        "studies of this size"
    )
