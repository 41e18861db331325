"""Whole pages as they were read: every section with every number, sentence and order, of studies of each kind.

`UPDATE_SNAPSHOTS=1` writes them anew; the difference is reviewed like code. What a page must never do
is in test_report_pages.py; what is computed for it, in the tests of the sections.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from evidence_factory import make_evidence, one_claim, small_study, with_amendments
from metric_samples import as_embnorm, full, with_blocks
from report_samples import factorial, told, told_of
from snapshot import assert_snapshot
from study_samples import of_components, unpaired
from test_items_verdict import case, drawn, items_study
from test_per_task import GAIN
from test_per_task import case as per_task_case
from test_per_task import study as per_task_study
from test_tune import tuned_evidence

from ablate.judge.design.characteristics import simulate_design
from ablate.records.run_record import CountedBaselines, RepeatedUnits, Repetition
from ablate.reporting import markdown
from ablate.reporting.context import ReportContext
from prereg.study.spec import Study

TASKS = [f"paradigm{place % 6}" for place in range(60)]


def with_text(account: ReportContext) -> ReportContext:
    """What the runs counted of their corpus."""
    [pin] = account.registration.pinned
    counted = Repetition(
        lines=RepeatedUnits(repeated=300, units=400),
        paragraphs=RepeatedUnits(repeated=1, units=8),
        held_out_lines=RepeatedUnits(repeated=3, units=40),
        held_out_paragraphs=RepeatedUnits(repeated=0, units=1),
    )
    losses = CountedBaselines(uniform=4.1744, unigram=3.3091, bigram=2.4612, tokens=111_540)
    update = {"repetition": {pin.name: counted}, "baselines": losses}
    runs = tuple(run.model_copy(update=update) for run in account.evidence.runs)
    return replace(account, evidence=replace(account.evidence, runs=runs))


def of_items(study: Study) -> ReportContext:
    registration, evidence = case(study, drawn(study, gain=0.2, by_seed=0.05), tasks=TASKS)
    planned = simulate_design(study, n_sims=50).model_dump(mode="json")
    return told_of((registration.model_copy(update={"design": planned}), evidence))


def of_study(study: Study, **made: object) -> ReportContext:
    return told_of(make_evidence(study, **made))  # type: ignore[arg-type]


GAIN_LN = {"val/loss": {"layernorm": -0.06}}
LOOKS = {"looks": [3, 5, 8], "spending": "pocock"}
AFTER = ("outcomes read", [("variants.rmsnorm.model.embedding_norm", "layernorm", "rmsnorm")])
ACCOUNTS: dict[str, Callable[[], ReportContext]] = {
    "whole": lambda: with_text(as_embnorm()),
    "inadmissible": lambda: with_blocks(full("inadmissible"), {"none": 3, "layernorm": 3, "rmsnorm": 2}),
    "incomplete": lambda: full("incomplete"),
}
"""Accounts whose whole page is kept."""
FOUND: dict[str, Callable[[], ReportContext]] = {
    "inconclusive": lambda: told("inconclusive"),
    "deviating": lambda: told("deviating"),
    "uncorrected": lambda: told(analysis={"correct": "none"}),
    "amended": lambda: told_of(with_amendments(*make_evidence(small_study(), effects=GAIN_LN, sd=0.002), AFTER)),
    "diverged": lambda: of_study(small_study(), effects=GAIN_LN, sd=0.002, diverged=(("none", 2),)),
    "factorial": lambda: of_study(factorial()),
    "sign_flip": lambda: of_study(small_study(analysis={"test": "sign_flip", "correct": "none"})),
    "wilcoxon": lambda: of_study(one_claim(seeds=8, analysis={"test": "wilcoxon"})),
    "unpaired": lambda: of_study(unpaired(5, 3)),
    "constant": lambda: of_study(one_claim("none lowers val/loss below 2.05", 0.0, variants={"none": {}})),
    "ratio": lambda: of_study(one_claim(hypotheses={"h": {"claim": "layernorm lowers val/loss by at least 2%"}})),
    "gate": lambda: of_study(small_study(analysis={"gate": {"order": ["primary", "guardrail"]}}), sd=0.003),
    "looks": lambda: of_study(one_claim(seeds=8, stopping=LOOKS), effects={"val/loss": {"layernorm": -0.5}}),
    "items": lambda: of_items(items_study()),
    "items_fixed": lambda: of_items(items_study("new_seeds")),
    "tasks": lambda: of_items(items_study(claim="layernorm raises harness/macro_accuracy", clusters="tasks")),
    "per_task": lambda: told_of(per_task_case(per_task_study(), GAIN | {"b": -0.2})),
    "components": lambda: of_study(
        of_components("factorial", interactions="all"), effects={"val/loss": {"full": -0.3}}, sd=0.004
    ),
    "tuned": lambda: told_of(tuned_evidence()),
}
"""Designs of which the verdict, what was found, deviations and methods are kept."""
KEPT = ("## What was found", "## Component", "## Deviations", "## Methods")
HERE = re.compile(r"(pingouin|scipy|statsmodels) [\d.]+\d|(largest relative difference) [\de.\\-]+\d")
"""Of the machine, not of the report."""


def page_of(account: ReportContext) -> str:
    return HERE.sub(lambda found: f"{found[1] or found[2]} ...", markdown.render_markdown(account))


@pytest.mark.parametrize("name", ACCOUNTS)
def test_a_whole_page_is_as_it_was_read(name: str) -> None:
    assert_snapshot(f"page-{name}.md", page_of(ACCOUNTS[name]()))


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_by_a_design_is_as_it_was_read(name: str) -> None:
    head, *sections = re.split(r"^(?=## )", page_of(FOUND[name]()), flags=re.MULTILINE)
    kept = [one for one in sections if one.startswith(KEPT)]
    assert len(kept) >= 2
    assert_snapshot(f"found-{name}.md", "".join([head, *kept]))
