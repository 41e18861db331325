"""What a report over seeds x items says: method, seeds x items, df and what the verdict speaks of."""

from __future__ import annotations

from io import StringIO

from evidence_factory import make_evidence, one_claim
from rich.console import Console
from test_items_verdict import case, drawn, items_study

from ablate.judge.decide import decide
from ablate.judge.design.characteristics import design
from ablate.reporting.context import ReportContext
from ablate.reporting.document import decision_document
from ablate.reporting.markdown import render
from ablate.reporting.summaries.study import design_section
from ablate.reporting.terminal import show, show_document
from prereg.study.spec import Study

TASKS = [f"paradigm{place % 6}" for place in range(60)]


def told(study: Study, *, gain: float = 0.2) -> ReportContext:
    registration, evidence = case(study, drawn(study, gain=gain, by_seed=0.05), tasks=TASKS)
    planned = design(study, n_sims=50).model_dump(mode="json")
    return ReportContext(
        decision=decide(registration, evidence),
        registration=registration.model_copy(update={"design": planned}),
        evidence=evidence,
        ledger_head="f" * 64,
        generated_at="2026-05-04T15:20:11+00:00",
    )


def terminal(told: ReportContext) -> str:
    stream = StringIO()
    console = Console(file=stream, width=80, force_terminal=False)
    show(console, design_section(design(told.study, n_sims=50)))
    show_document(console, decision_document(told.decision, told.registration))
    assert max(map(len, stream.getvalue().splitlines())) <= 80
    return stream.getvalue()


def test_a_report_over_new_items_names_them_in_sentence_tables_and_methods() -> None:
    account = told(items_study())
    page = render(account)
    finding = account.decision.findings[0]
    assert finding.estimate is not None
    assert "two-way t over 5 seeds x 60 items, df 4 over seeds and 59 over items, for new seeds and new items" in page
    rows = [line for line in page.splitlines() if line.startswith("| h |")]
    numbers, details = (next(row for row in rows if mark in row) for mark in ("| supported |", "| 4; 59 |"))
    for row in (numbers, details):
        assert "5 x 60 items" in row and "two-way t, new seeds and new items" in row
    assert "**Verdict speaks of**: new seeds and new items" in page
    assert "**Test**: two-way test over seeds and items, the effect" in page
    assert "critical value of t for its own degrees of freedom (Banerjee 1960)" in page
    assert "Not simulated: a test over new seeds" in page
    # What new items add is in no difference over seeds: nothing is looked back at from them alone.
    assert "Looking back at the plan" not in page
    said = " ".join(terminal(account).split())
    assert "n = 5 x 60 items" in said and "two-way t, new seeds and new items" in said and "not simulated" in said


def test_a_report_over_these_items_says_that_it_is_a_paired_t() -> None:
    account = told(items_study("new_seeds"))
    page = render(account)
    assert "paired t over 5 seeds on their means of 60 items, df 4, for new seeds on these items" in page
    assert "**Verdict speaks of**: new seeds on these items" in page and "very items" in page
    assert "Looking back at the plan" in page
    assert "paired t over seeds' means, new seeds on these items" in " ".join(terminal(account).split())


def test_a_report_over_tasks_counts_tasks_and_the_items_in_them() -> None:
    account = told(items_study(claim="layernorm raises harness/macro_accuracy", clusters="tasks"))
    page = render(account)
    assert "two-way t over 5 seeds x 6 tasks (60 items)" in page and "| 5 x 6 tasks (60 items) |" in page
    assert "new seeds and new tasks (the items of a task belong together)" in page
    assert "n = 5 x 6 tasks (60 items)" in " ".join(terminal(account).split())


def test_a_report_without_items_says_nothing_of_them() -> None:
    study = one_claim()
    registration, evidence = make_evidence(study)
    page = render(
        ReportContext(
            decision=decide(registration, evidence),
            registration=registration,
            evidence=evidence,
            ledger_head="f" * 64,
            generated_at="2026-05-04T15:20:11+00:00",
        )
    )
    assert "items" not in page
