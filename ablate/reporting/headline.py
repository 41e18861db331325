"""The verdict in one sentence with size and uncertainty, and what to do next where it is inconclusive.

`headline_of` takes a decision and its registration. Of which findings it speaks follows from the rule: those whose
outcomes made the line hold (`prereg.rule.rule.Rule.decided_by`). What it says of each follows from the estimate, the
deciding interval and the margin, and never says more than the interval. Terminal, Markdown, HTML and LaTeX use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ablate.judge.audit.sensitivity import UNDECIDED
from ablate.judge.design.retrospective import look_back
from ablate.judge.verdict import Decision, Estimate, Finding, Interval, Stability
from ablate.judge.wording import (
    bounds_in_words,
    disagreement,
    is_pseudomedian,
    is_ratio,
    kind_of_interval,
    said_p,
    stability_in_words,
)
from ablate.reporting import estimates
from prereg import text as words
from prereg.documents.claims import capital, reading
from prereg.documents.procedures import PSEUDOMEDIAN, margin, meaning
from prereg.registry.registration import Registration
from prereg.study.claim import Claim
from prereg.study.spec import Study

MOST_FINDINGS = 3
"""How many findings a headline gives in full; the rest it names."""


@dataclass(frozen=True)
class Headline:
    """The verdict, and what it rests on."""

    verdict: str
    """The registered words, or that there is no verdict, with a capital letter."""
    clauses: tuple[str, ...]
    """What the findings that made the line of the rule hold say, a clause each; then stability and what is left out."""

    @property
    def sentence(self) -> str:
        """`Keep none: layernorm worsens validation loss by 0.096 nats/token, 97.5% CI 0.088 to 0.104, n = 5 pairs.`"""
        return f"{self.verdict}: {'; '.join(self.clauses)}." if self.clauses else f"{self.verdict}."


def headline_of(decision: Decision, registration: Registration) -> Headline:
    """The headline of a decision."""
    if decision.status == "unfinished":
        ended, _, rest = decision.because.partition("; ")
        return Headline(ended, (rest.rstrip("."),) if rest else ())
    if decision.status == "continue":
        return Headline("No verdict yet, more seeds are planned", (decision.because.rstrip("."),))
    if decision.verdict is None or decision.line is None:
        failed = next((one for one in decision.checks if not one.passed and one.severity == "inadmissible"), None)
        why = () if failed is None else (f"{failed.name}: {failed.found}",)
        return Headline("No verdict, the evidence is inadmissible", why)
    study, (findings, stability) = registration.study, _decisive(decision, registration.study)
    clauses = [clause_of(study, finding) for finding in findings[:MOST_FINDINGS]]
    left = [finding.label for finding in findings[MOST_FINDINGS:]]
    clauses += [f"and so {words.listed(left)}"] if left else []
    clauses += [stability_in_words(one, study.labels) for one in stability]
    return Headline(capital(decision.verdict), tuple(clauses))


def _decisive(decision: Decision, study: Study) -> tuple[list[Finding], list[Stability]]:
    """The findings and the arms whose answers made the line of the rule hold, in the order of its questions."""
    by_name = {finding.hypothesis: finding for finding in decision.findings}
    by_arm = {one.variant: one for one in decision.stability}
    outcomes = {name: finding.outcome for name, finding in by_name.items()}
    stable = {arm: one.stable for arm, one in by_arm.items()}
    questions = study.rule.decided_by(decision.line or 0, outcomes, stable)
    findings = [by_name[name] for name in dict.fromkeys(one.name for one in questions if one.state != "stable")]
    undecided = [finding for finding in findings if finding.outcome == "inconclusive"]
    if decision.verdict == UNDECIDED and undecided:
        return undecided, []
    return findings, [by_arm[arm] for arm in dict.fromkeys(one.name for one in questions if one.state == "stable")]


def clause_of(study: Study, finding: Finding) -> str:
    """What a finding says, with its difference, deciding interval, n and margin.

    Where the interval, and the one against zero, exclude zero and agree with the outcome: the direction and its size.
    Else the outcome.
    """
    name, estimate, bounds = finding.hypothesis, finding.estimate, estimates.shown_interval(finding)
    claim = replace(study.claims[name], metric=reading(study, name))
    unit = "" if finding.unit == "share" else finding.unit
    said = meaning(claim, finding.outcome, finding.smallest, unit=unit, baseline=study.baseline)
    if estimate is None:
        text = estimates.proper(finding.sentence).rstrip(".")
        return text[0].lower() + text[1:]
    counted = n_in_words(study, finding)
    if estimate.difference is None:
        return f"{said}; runs diverged, so no difference can be stated, {counted}"
    amount, ratio = _amounts(study, finding, estimate)
    shown_unit = f" {unit}" if unit and not ratio else ""
    on_margin = finding.margin if estimates.rests_on_margin(finding) else None
    apart = disagreement(study, name, finding.outcome, bounds, on_margin)
    # An interval at 1 - 2 alpha is too short to state a direction.
    sign = _side(bounds) if _side(bounds) == _side(finding.simultaneous or estimate.interval) else 0
    one_effect = claim.constant is None and claim.trend is None
    if finding.outcome != "inconclusive" and sign and not apart and one_effect:
        by = f"by {_centre(estimate)}{amount(sign * estimate.difference, sign)}{shown_unit}"
        interval = _interval(study, finding, lambda value: amount(sign * value, sign), sign)
        than = "" if claim.right_side == study.labels.arm(study.baseline) else f" compared with {claim.right_side}"
        what = f"{claim.left_side} {_verb(claim, sign)} {claim.metric}{than} {by}"
        return f"{what}, {interval}, {counted}{_against_margin(claim, finding, bounds, sign)}"
    shown = f"{_centre(estimate)}{amount(estimate.difference, 0)}{shown_unit}"
    interval = _interval(study, finding, lambda value: amount(value, 0), 1)
    margin_said = margin(claim, finding.smallest, unit) if finding.smallest else ""
    ending = "" if not margin_said or margin_said in said else f"; the margin is {margin_said}"
    effect = "slope" if claim.trend is not None else "difference"
    return "".join([f"{said}: {effect} {shown}, {interval}, {counted}", ending, *(f"; {why}" for why in apart)])


def n_in_words(study: Study, finding: Finding) -> str:
    """`n = 5 pairs`, `n = 5 and 6 runs`, `n = 5 pairs x 500 items`."""
    estimate = finding.estimate
    if estimate is not None and estimate.sizes:
        return f"n = {words.listed(map(str, estimate.sizes))} runs"
    kind = "pair" if study.claims[finding.hypothesis].is_paired else "seed"
    items = "" if estimate is None or estimate.items is None else f" x {estimate.items.n_units:,} {estimate.items.unit}"
    return f"n = {words.counted(finding.n, kind)}{items}"


def _side(bounds: Interval | None) -> int:
    """On which side of zero an interval lies, all of it; 0 where it holds zero."""
    if bounds is None:
        return 0
    return (
        1 if bounds.low is not None and bounds.low > 0.0 else -1 if bounds.high is not None and bounds.high < 0.0 else 0
    )


def _verb(claim: Claim, sign: int) -> str:
    if claim.better == "neither":
        return "raises" if sign > 0 else "lowers"
    return "improves" if (sign > 0) == (claim.better == "higher") else "worsens"


def _centre(estimate: Estimate) -> str:
    return f"a {PSEUDOMEDIAN} of " if is_pseudomedian(estimate) else ""


def _amounts(study: Study, finding: Finding, estimate: Estimate) -> tuple[Callable[[float, int], str], bool]:
    """How a difference is written, with its sign unless a direction (not 0) is named, and whether as a ratio.

    A difference of logarithms whose margin is in percent is a ratio, and is written in percent.
    """
    bounds = estimates.shown_interval(finding)
    if finding.percent is None or not is_ratio(study, finding.hypothesis, estimate):
        decimals = estimates.finding_decimals(finding)
        return lambda value, sign: (words.number if sign else estimates.signed)(value, decimals), False
    ends = [] if bounds is None else [percent_of(end) for end in (bounds.low, bounds.high) if end is not None]
    wanted = estimates.decimals_for((max(ends) - min(ends)) / 2) if len(ends) == 2 else 1
    marks = (0.0, percent_of(finding.smallest), percent_of(-finding.smallest))
    kept = next((more for more in range(wanted, 9) if not any(words.crosses(end, more, marks) for end in ends)), wanted)

    def write(value: float, sign: int) -> str:
        # The sign that the caller took out belongs inside the logarithm.
        return (words.number if sign else estimates.signed)((sign or 1) * percent_of((sign or 1) * value), kept) + "%"

    return write, True


def percent_of(difference: float) -> float:
    """A difference of natural logarithms as a change in percent."""
    return 100.0 * math.expm1(difference)


def _interval(study: Study, finding: Finding, write: Callable[[float], str], sign: int) -> str:
    """`97.5% CI 0.088 to 0.104`, the end nearer to zero first where a direction is named."""
    kind, bounds = kind_of_interval(study), estimates.shown_interval(finding)
    if bounds is None:
        if finding.outcome == "inconclusive" or finding.estimate is None or finding.estimate.interval is None:
            return f"no finite {kind} at this n"
        return f"which p {said_p(finding.p_shown or 1.0, estimates.levels_of(finding))} alone shows"
    low = f"{words.MINUS}∞" if bounds.low is None else write(bounds.low)
    high = "∞" if bounds.high is None else write(bounds.high)
    first, last = (low, high) if sign > 0 else (high, low.replace(f"{words.MINUS}∞", "∞"))
    ends = f" ({bounds_in_words(bounds)})" if estimates.shows_bounds(finding) else ""
    return f"{words.level(bounds.level)} {kind} {first} to {last}{ends}"


def _against_margin(claim: Claim, finding: Finding, bounds: Interval | None, sign: int) -> str:
    """Where the interval lies against the margin, on its side of zero; a claim of no harm has a margin of harm."""
    if not finding.smallest or bounds is None:
        return ""
    said = margin(claim, finding.smallest, "")
    if claim.verb == "does_not_worsen" and sign != claim.direction:
        return f", so that harm of {said} or more is ruled out"
    near, far = (bounds.low, bounds.high) if sign > 0 else (bounds.high, bounds.low)
    if near is not None and abs(near) >= finding.smallest:
        return f", beyond the margin of {said}"
    if far is not None and abs(far) < finding.smallest:
        return f", less than the margin of {said}"
    return f"; the margin is {said}"


def next_step(decision: Decision, registration: Registration) -> str:
    """What can be done after an inconclusive verdict: another study, never more seeds for this one. Empty after any
    other decision."""
    if decision.status != "inconclusive":
        return ""
    study = registration.study
    undecided = [one.hypothesis for one in decision.findings if one.outcome == "inconclusive"]
    looked = [one for one in look_back(registration, decision.findings) if one.hypothesis in undecided]
    totals = {one.hypothesis: one.n + one.more_seeds for one in looked if one.more_seeds is not None}
    over = "This study is complete: seeds added to it would be chosen by its outcome."
    plan = f"To plan it: ablate design NEW.yaml --pilot {study.study}."
    effects = {one.hypothesis: one.effect for one in looked}

    def where(name: str) -> str:
        [finding] = [one for one in decision.findings if one.hypothesis == name]
        return estimates.stated_at(finding, effects[name]) + f" ({finding.label})" * (len(undecided) > 1)

    if beyond := [one.hypothesis for one in looked if one.beyond_reach]:
        none = f"no 2,000 seeds give power 80% {where(beyond[0])}"
        return f"Next: a less noisy measure; at the spread seen here {none}. {over}"
    if study.stopping != "fixed":
        return f"Next: a new study that may take more seeds. {plan} {over}"
    step = "a new study with more seeds of its own"
    if totals:
        most = max(totals, key=totals.__getitem__)
        step = (
            f"a new study with seeds of its own; by the spread seen here, which n = {looked[0].n} gives only roughly, "
            f"{totals[most]} seeds have power 80% {where(most)}"
        )
    return f"Next: {step}; or one with sequential stopping (`stopping:`). {plan} {over}"
