"""The methods of a study against its runs: what the text says was trained is what each `run.json` holds."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest
from evidence_factory import make_evidence, one_claim, small_study
from report_samples import told_of
from test_tune import tuned_evidence

from ablate.records.run_record import RunRecord
from ablate.reporting.context import ReportContext
from ablate.reporting.document import compose
from ablate.reporting.html import html_page
from ablate.reporting.latex.paper import paper
from ablate.reporting.markdown import markdown_page
from ablate.reporting.sections.methods import methods_section
from prereg.documents.sentences import say

NUMBER = r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
RATES = {"none": {"optim.lr": 1e-3}, "layernorm": {"optim.lr": 3e-3, "model.embedding_norm": "layernorm"}}
BATCHES = {"none": {}, "layernorm": {"budget.batch": 8, "model.embedding_norm": "layernorm"}}
UNTUNED = {
    "a baseline at the base": small_study(),
    "another rate in every arm": one_claim(variants=RATES),
    "another batch in one arm": one_claim(variants=BATCHES),
    "steps that follow from tokens": one_claim(
        variants=BATCHES,
        base={"budget": {"tokens": 1920, "batch": 4}, "model": {"layers": 2, "width": 16, "heads": 2, "context": 8}},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tuned", *UNTUNED])
def test_every_number_of_the_methods_is_one_of_the_judged_runs(kind: str) -> None:
    made = tuned_evidence() if kind == "tuned" else make_evidence(UNTUNED[kind])
    context = told_of(made)
    judged = [run for run in context.evidence.runs if run.variant in context.study.arms]
    for text in trained(context):
        base, of_arms = text.split(f"{len(context.study.arms)} arms: ")
        assert numbers(base) <= set().union(*(numbers_of(run) for run in judged)), base
        for run in judged:
            said = numbers(next(one for one in re.split("; |[.] ", of_arms) if run.variant in one[:20]))
            assert said <= numbers_of(run), (run.variant, of_arms)
            # Nothing of what separates this arm's configuration from that of the base is left unsaid.
            config, others = run.config["optim"]["lr"], {one.config["optim"]["lr"] for one in judged}
            assert config in (said if len(others) > 1 else said | numbers(base)), (run.variant, text)


@pytest.mark.slow
def test_the_rate_that_a_pilot_froze_is_the_one_that_the_methods_state() -> None:
    context = told_of(tuned_evidence())
    assert context.study.training("none").optim.lr == 0.001  # the base has 0.0003, at which no judged run was made
    for text in trained(context):
        assert "learning rate 0.001 (chosen by the pilot)" in text and "learning rate 0.01 (chosen" in text
        assert "0.0003" not in text and text.count("learning rate") == 2


def test_sgd_is_not_said_to_have_what_it_does_not_read() -> None:
    base = {"budget": {"steps": 60, "batch": 4}, "model": {"layers": 2, "width": 16, "heads": 2, "context": 8}}
    alone = one_claim(base=base | {"optim": {"name": "sgd"}})
    beside = one_claim(
        base=base | {"optim": {"name": "sgd"}}, variants={"none": {}, "layernorm": {"optim.name": "adamw"}}
    )
    said = say("training", alone)
    assert "SGD with momentum" in said and "momentum 0.9," in said and "epsilon" not in said and "betas" not in said
    assert "betas 0.9 and 0.95, epsilon" in say("training", beside)


def trained(context: ReportContext) -> Iterator[str]:
    """The paragraph of what was trained as LaTeX, Markdown and HTML have it, without names and the corpus' size."""
    document = compose(context)
    said = methods_section(context).blocks[0].text  # type: ignore[union-attr]
    latex = next(line for line in paper(context, document).texts["methods.tex"].splitlines() if "arms: " in line)
    assert said in markdown_page(document).replace("\\", "")
    assert said in html.unescape(html_page(document))
    for text in (said, latex.replace("\\_", "_")):
        yield re.sub(r"\(\d[\d,]* characters\)", "", text)


def numbers(text: str) -> set[float]:
    """Every number of a text; percentages as shares."""
    found = re.finditer(rf"({NUMBER})(\\?%)?", text)
    return {round(float(one[1].replace(",", "")) / (100.0 if one[2] else 1.0), 12) for one in found}


def numbers_of(run: RunRecord) -> set[float]:
    """Every number of a run's configuration, and its tokens."""

    def leaves(value: Any) -> Iterator[float]:
        if isinstance(value, dict | list):
            for one in value.values() if isinstance(value, dict) else value:
                yield from leaves(one)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield float(value)

    return {*leaves(run.config), float(run.tokens)}
