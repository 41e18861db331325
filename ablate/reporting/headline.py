"""Headline: the verdict in one sentence with size and uncertainty, and what to do next where it is inconclusive.

Of which findings a headline speaks follows from the rule: those whose outcomes made the line hold
(`prereg.rule.rule.Rule.decided_by`). What it says of each is the clause of its view. Every form of the report uses
it, and so does a notebook.
"""

from __future__ import annotations

from dataclasses import dataclass

from ablate.judge.design.retrospective import look_back
from ablate.judge.judge import UNDECIDED
from ablate.judge.verdict import Decision, Finding, Stability
from ablate.judge.wording import share_of_bound
from ablate.reporting.view import FindingView
from ablate.reporting.wording import phrase
from prereg.documents.claims import capital
from prereg.registry.registration import Registration
from prereg.study.analysis import Stable
from prereg.study.presentation import Labels
from prereg.study.spec import Study

MOST_FINDINGS = 3
"""How many findings a headline gives in full; of the rest it says the outcome."""


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
    # Without a verdict: why there is none.
    if decision.status == "unfinished":
        ended, _, rest = decision.because.partition("; ")
        return Headline(ended, (rest.rstrip("."),) if rest else ())
    if decision.status == "continue":
        return Headline(phrase("first_screen.continues"), (decision.because.rstrip("."),))
    if decision.verdict is None or decision.line is None:
        failed = next(
            (check for check in decision.checks if not check.passed and check.severity == "inadmissible"), None
        )
        why = () if failed is None else (f"{failed.name}: {failed.found}",)
        return Headline(phrase("first_screen.no_verdict"), why)
    study, (findings, stability) = registration.study, _decisive(decision, registration.study)
    clauses = [FindingView(finding, study).clause for finding in findings[:MOST_FINDINGS]]
    if findings[MOST_FINDINGS:]:
        # Two findings that share a clause may have ended differently: each is named with its outcome.
        labels_by_outcome: dict[str, list[str]] = {}
        for finding in findings[MOST_FINDINGS:]:
            labels_by_outcome.setdefault(finding.outcome, []).append(finding.label)
        clauses.append(phrase("first_screen.outcomes", labels_by_outcome))
    clauses += [stability_in_words(arm, study.labels, study.stable) for arm in stability]
    return Headline(capital(decision.verdict), (*_without_a_claim(decision, study), *clauses))


def _without_a_claim(decision: Decision, study: Study) -> tuple[str, ...]:
    """That no claim, or no finding, carries a verdict, and why the rule gave it; nothing of any other verdict."""
    # "Inconclusive" states nothing that a claim would have to carry.
    if decision.verdict == UNDECIDED or decision.line is None:
        return ()
    rule = study.rule
    constant = rule.constant_verdict is not None
    if constant or rule.is_remainder(decision.line):
        return (phrase("first_screen.no_claim", constant),)
    outcomes = {finding.hypothesis: finding.outcome for finding in decision.findings}
    questions = rule.decided_by(decision.line, outcomes, {arm.variant: arm.stable for arm in decision.stability})
    # `not supported(gain)` holds of an inconclusive gain too; who asks `inconclusive(gain)` means it.
    open_ones = [
        question.name
        for question in questions
        if question.state in ("supported", "refuted") and outcomes[question.name] == "inconclusive"
    ]
    if len(open_ones) < len(questions):
        return ()
    labels = {finding.hypothesis: finding.label for finding in decision.findings}
    return (phrase("first_screen.no_finding", [labels[name] for name in dict.fromkeys(open_ones)]),)


def _decisive(decision: Decision, study: Study) -> tuple[list[Finding], list[Stability]]:
    """The findings and the arms whose answers made the line of the rule hold, in the order of its questions."""
    by_name = {finding.hypothesis: finding for finding in decision.findings}
    by_arm = {arm.variant: arm for arm in decision.stability}
    outcomes = {name: finding.outcome for name, finding in by_name.items()}
    stable = {name: arm.stable for name, arm in by_arm.items()}
    # Of a line with `or`, only what was true of it; of the default, what made each earlier line fail.
    questions = study.rule.decided_by(decision.line or 0, outcomes, stable)
    findings = [
        by_name[name] for name in dict.fromkeys(question.name for question in questions if question.state != "stable")
    ]
    undecided = [finding for finding in findings if finding.outcome == "inconclusive"]
    # Of an undecided study the news is what is open, not what was decided on the way.
    if decision.verdict == UNDECIDED and undecided:
        return undecided, []
    return findings, [
        by_arm[arm] for arm in dict.fromkeys(question.name for question in questions if question.state == "stable")
    ]


def stability_in_words(arm: Stability, labels: Labels, rule: Stable) -> str:
    """`fast is stable: of 5 runs none diverged or had a loss spike; the rate may still be up to 45% (95% bound)`.

    Where the rule has levels that each run must reach, a stable arm is said to have reached them.
    """
    spiked = sum(bool(steps) for steps in arm.spikes.values())
    return phrase("first_screen.stability", labels.arm(arm.variant), arm, spiked, share_of_bound(arm), rule)


def later_study(decision: Decision, registration: Registration) -> str:
    """What can be done after an inconclusive verdict: another study, never more seeds for this one. Empty after any
    other decision."""
    if decision.status != "inconclusive":
        return ""
    study = registration.study
    # Power is that at the registered effect with the SD that came, never that at the observed effect, which
    # restates p (Hoenig and Heisey 2001).
    undecided = [finding.hypothesis for finding in decision.findings if finding.outcome == "inconclusive"]
    looked = {
        hindsight.hypothesis: hindsight
        for hindsight in look_back(registration, decision.findings)
        if hindsight.hypothesis in undecided
    }
    seeds = {
        name: hindsight.n + hindsight.more_seeds
        for name, hindsight in looked.items()
        if hindsight.more_seeds is not None
    }
    beyond = next((name for name, hindsight in looked.items() if hindsight.beyond_reach), "")
    # One claim sets the plan: one that no number of seeds decides, else the one that needs most.
    named = beyond or (max(seeds, key=seeds.__getitem__) if seeds else "")
    where = ""
    if named:
        [finding] = [finding for finding in decision.findings if finding.hypothesis == named]
        view = FindingView(finding, study)
        where = phrase("findings_parts.stated_at", view, looked[named].effect)
        where += f" ({view.label})" * (len(undecided) > 1)
    return phrase(
        "first_screen.later_study",
        study=study.study,
        beyond=bool(beyond),
        sequential=study.stopping != "fixed",
        where=where,
        seeds=seeds.get(named),
        n=next((hindsight.n for hindsight in looked.values()), 0),
    )
