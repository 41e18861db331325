"""Output of `ablate gate`: two commits compared, on a terminal, in a job's summary, in a pull request's comment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ablate.judge.design.retrospective import Retrospective, look_back
from ablate.judge.verdict import Decision
from ablate.judge.wording import upper_bound
from ablate.reporting import tables
from ablate.reporting.blocks import Block, Facts, Paragraph, Section
from ablate.reporting.document import banner_of, trust_line
from ablate.reporting.view import FindingView, views_of
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.registry.registration import Registration
from prereg.study.analysis import Looks

if TYPE_CHECKING:
    from ablate.gating import Gated

_MOST_CLAIMS = 3
"""Rows: with its facts the section then has at most fifteen lines of Markdown."""


def gate_section(gated: Gated, *, table: bool = True) -> Section:
    """What became of two commits: the answer, what it rests on, and what was compared. A terminal is too narrow for its
    `table`, and the sentence above has the numbers."""
    name = gated.source.stem
    # Without a decision: the same code, or runs that are still to be made.
    if gated.decided is None:
        text = phrase("gate.same_code", gated)
        if gated.ran is not None:
            text = phrase("gate.unfinished", gated.ran.summary)
        facts = tuple(_compared(gated, is_answered=gated.answer != "same code"))
        blocks = (Paragraph(text), Facts(facts)) if facts else (Paragraph(text),)
        return Section("gate", phrase("gate.title", gated, name, "", 0), blocks)
    registration = gated.decided.registration
    decision = gated.decided.decision.labelled(registration.study.labels)
    views = views_of(decision.findings, registration.study)
    # Claims of no change that were shown.
    equal = [view for view in views if view.claim.kind.supported == "margins" and view.outcome == "supported"]
    # A sequential study may have stopped early.
    n_seeds = decision.look.n_seeds if decision.look is not None else len(registration.study.seeds)
    title = phrase("gate.title", gated, name, phrase("gate.within", equal) if equal else "", n_seeds)
    reasons = Paragraph(" ".join(_reasons(gated, decision, registration, views, n_seeds)))
    claims = _table(gated, views) if table else ()
    return Section("gate", title, (reasons, *claims, Facts(tuple(_facts(gated, decision, registration, views)))))


def _reasons(
    gated: Gated, decision: Decision, registration: Registration, views: Sequence[FindingView], n_seeds: int
) -> Iterator[str]:
    """The answer in sentences, deviations first."""
    banner = banner_of(decision, registration)
    yield from (f"{reason}." for reason in banner.failed)
    if gated.answer == "identical":
        # Equal to the bit in n of n seeds is no proof for the next seed: the bound says how many could still differ.
        yield phrase("gate.identical", n_seeds, words.share(upper_bound(0, n_seeds)))
    elif gated.answer == "undecided":
        by_name = {view.name: view for view in views}
        hindsight = _plan(decision, registration)
        if hindsight is not None:
            view = by_name[hindsight.hypothesis]
            where = phrase("findings_parts.stated_at", view, hindsight.effect)
            yield phrase("gate.more_seeds", hindsight, view, where)
        else:
            yield from banner.reasons
    else:
        yield from banner.reasons


def _plan(decision: Decision, registration: Registration) -> Retrospective | None:
    """The claim by which further seeds are counted: that of no change, else the one that needs most."""
    is_open = {finding.hypothesis for finding in decision.findings if finding.outcome == "inconclusive"}
    looked_back = [plan for plan in look_back(registration, decision.findings) if plan.hypothesis in is_open]
    claims = registration.study.claims
    of_no_change = [plan for plan in looked_back if claims[plan.hypothesis].kind.supported == "margins"]
    # Beyond reach counts as most.
    return max(of_no_change or looked_back, key=lambda plan: plan.seeds_80 or float("inf"), default=None)


def _table(gated: Gated, views: Sequence[FindingView]) -> Iterator[Block]:
    """The claims, those first that have the answer's outcome."""
    # Of runs that left the same values nothing was estimated, and a table would be one of dashes.
    if gated.answer in ("inadmissible", "identical") or not views:
        return
    ordered = sorted(views, key=lambda view: view.outcome != "supported")
    yield tables.OF_COMMITS.of(ordered[:_MOST_CLAIMS])


def _compared(gated: Gated, *, is_answered: bool) -> Iterator[tuple[str, str]]:
    """What was compared, and in one line with it what was compared before and what was not compared."""
    parts = []
    if is_answered:
        parts += [phrase("gate.compared", gated), phrase("gate.earlier", gated.earlier)]
    if gated.not_compared:
        parts.append(phrase("gate.not_compared", gated.not_compared, is_answered))
    if parts:
        yield "Compared" if is_answered else "Not compared", ". ".join(parts)


def _facts(
    gated: Gated, decision: Decision, registration: Registration, views: Sequence[FindingView]
) -> Iterator[tuple[str, str]]:
    study = registration.study
    n_runs = len(study.judged) if decision.look is None else decision.look.n_seeds * len(study.arms)
    yield from _compared(gated, is_answered=True)
    test = words.listed(
        dict.fromkeys(view.test for view in views if view.estimate is not None)
    ) or study.analysis.test.replace("_", " ")
    spending = study.stopping.spending if isinstance(study.stopping, Looks) else ""
    yield "Runs", phrase("gate.runs", decision, study, n_runs, test, spending)
    at = words.moment(registration.registered_at)
    assert gated.decided is not None
    yield "Registered", phrase("gate.registered", registration, gated.decided.head, at)
    yield "Evidence", trust_line(decision, study)
    # A comment on a pull request is short; the command shows the claims that are left out.
    more = len(views) - _MOST_CLAIMS
    command = phrase("gate.command", gated)
    yield "More", f"{phrase('gate.others', more)}: {command}" if more > 0 else command
