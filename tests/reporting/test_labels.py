"""Display names: in every title, caption, legend, axis and sentence in place of ids, and nowhere in the evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import StringIO

import pytest
from evidence_factory import make_evidence, small_study
from own_trainer import OwnHouse, own_document
from report_samples import document as sample
from report_samples import factorial, told, told_of
from rich.console import Console
from test_tune import tuned_evidence

import ablate as api
from ablate.judge.interim import early_look
from ablate.judge.overview import StudyOverview
from ablate.reporting import charts
from ablate.reporting.blocks import Facts, Figure, Paragraph, Table
from ablate.reporting.context import ReportContext
from ablate.reporting.document import compose, decision_document
from ablate.reporting.exports.files import export_files
from ablate.reporting.exports.index import effects_table
from ablate.reporting.html import html_page
from ablate.reporting.latex.paper import paper
from ablate.reporting.markdown import markdown_page
from ablate.reporting.summaries.run import early_look_section
from ablate.reporting.summaries.study import study_section
from ablate.reporting.terminal import show_document
from prereg.registry.amendments import AMENDMENT_EFFECTS
from prereg.study.presentation import Labels
from prereg.study.spec import study_from_document

LABELS = {
    "arms": {"none": "Plain GPT", "layernorm": "With LayerNorm", "rmsnorm": "With RMSNorm"},
    "claims": {"gain_ln": "LayerNorm helps", "gain_rms": "RMSNorm helps", "harm_ln": "LayerNorm is harmless"},
    "metrics": {"val/loss": "Validation loss", "val/accuracy": "Top-1 accuracy"},
}
IDS = [name for names in LABELS.values() for name in names if name != "none"]
AN_ID = re.compile(rf"(?<![\w/.-])({'|'.join(map(re.escape, IDS))})(?![\w/])")


def labelled() -> ReportContext:
    return told(labels=LABELS)


def on_terminal(context: ReportContext) -> str:
    console = Console(file=StringIO(), width=100)
    show_document(console, decision_document(context.decision, context.registration))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def headings(context: ReportContext) -> Iterator[str]:
    """Every title, caption, heading of a column, first cell of a row and term, and every text in a drawing."""
    document = compose(context)
    blocks = [block for section in document.sections for block in section.blocks]
    yield from (section.title for section in document.sections)
    for block in (*document.on_opening, *blocks):
        if isinstance(block, Figure):
            yield from (block.name, block.caption, *block.characters)
            for panel in block.panels:
                yield from (panel.title, panel.words)
                yield from re.findall(r"<text[^>]*>([^<]+)<", charts.draw_chart(panel.make))
        elif isinstance(block, Table):
            yield from (block.caption, *(column.name for column in block.columns))
            yield from (row[0] for row in block.rows)
        elif isinstance(block, Facts):
            yield from (term for term, _ in block.items)


@pytest.mark.slow
def test_no_title_caption_axis_legend_or_first_cell_has_an_id() -> None:
    found = [*headings(labelled())]
    assert not [text for text in found if AN_ID.search(text)]
    words = " ".join(found)
    for label in (label for names in LABELS.values() for label in names.values()):
        assert label in words, label
    # `none` is a word of our own sentences too: by itself it is nowhere a name.
    assert not [text for text in found if re.search(r"\bnone\b", text) and text != "none"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["factorial", "tuned"])
def test_headings_of_other_designs_have_no_id_of_an_arm(kind: str) -> None:
    registration, evidence = make_evidence(factorial()) if kind == "factorial" else tuned_evidence()
    arms = {arm: f"Arm number {at}" for at, arm in enumerate(registration.study.arms)}
    study = registration.study.model_copy(update={"labels": Labels(arms=arms)})
    context = told_of((registration.model_copy(update={"study": study}), evidence))
    an_id = re.compile(rf"(?<![\w/.-])({'|'.join(arm for arm in arms if arm != 'none')})(?![\w/-])")
    assert not [text for text in headings(context) if an_id.search(text)]


@pytest.mark.slow
def test_every_rendering_calls_things_by_their_labels() -> None:
    context = labelled()
    document = compose(context)
    texts = paper(context, document).texts
    results = texts["results.tex"] + texts["table-findings.tex"] + texts["table-values.tex"] + texts["methods.tex"]
    pages = {
        "markdown": markdown_page(document),
        "html": html_page(document),
        "terminal": on_terminal(context),
        "latex": results,
    }
    for form, page in pages.items():
        for label in ("With LayerNorm", "LayerNorm helps", "Top-1 accuracy"):
            assert label in page, (form, label)
    lead = pages["markdown"].split("##")[0]
    assert not AN_ID.search(lead.replace("adopt layernorm", "").replace("Adopt layernorm", "")), lead
    assert "gain\\_ln" not in texts["results.tex"] and "gain\\_ln" not in texts["figures.tex"]


def test_ids_stay_in_the_verdict_and_in_csv() -> None:
    context = labelled()
    findings = [finding.model_dump() for finding in context.decision.labelled(context.study.labels).findings]
    assert "LayerNorm helps" not in json.dumps(findings, default=str)
    files = dict(export_files("csv", context, compose(context)))
    assert b"gain_ln" in files["csv/findings.csv"] and b"LayerNorm helps" not in files["csv/findings.csv"]
    assert b",layernorm," in files["csv/curves.csv"] and b"With LayerNorm" not in files["csv/curves.csv"]


def test_a_study_without_labels_reads_as_before_and_an_amendment_of_one_touches_nothing() -> None:
    assert study_from_document(sample()).labels.arm("none") == "none"
    (effect,) = [one for one in AMENDMENT_EFFECTS if "labels" in one.fields]
    assert effect.scope == "nothing" and effect.keeps_runs


def test_the_index_over_studies_has_labels_too() -> None:
    context = labelled()
    one = StudyOverview("embnorm", "decided", context.registration, decision=context.decision)
    rows = [cell for row in effects_table([one]).rows for cell in row]
    assert "LayerNorm helps" in rows and "With LayerNorm lowers Validation loss" in rows
    assert not [cell for cell in rows if AN_ID.search(cell)]


@pytest.mark.slow
def test_another_label_after_the_verdict_leaves_runs_and_verdict_as_they_are(decided_copy: OwnHouse) -> None:
    before = api.decide(decided_copy.study).decision
    decided_copy.write(own_document(labels={"arms": {"fast": "Quick"}}))
    amended, _ = api.amend(decided_copy.study, reason="a better name")
    after = api.decide(decided_copy.study).decision
    assert amended.runs_sha256 != amended.sha256 and after.registration == amended.sha256
    assert (after.verdict, after.status) == (before.verdict, before.status) != (None, "inadmissible")
    assert not any(finding.amended for finding in after.findings)
    reports = decided_copy.path / "reports" / "own"
    assert "Quick lowers" in (reports / "report.md").read_text()
    written = (reports / "verdict.json").read_text()
    assert "Quick" not in written and "gain" in written


def test_what_check_says_and_what_an_early_look_shows_has_labels_in_place_of_ids() -> None:
    study = small_study(labels=LABELS)
    checked = study_section(study)
    seen = early_look_section(early_look(*make_evidence(study, left_out=[("none", 5)])))
    sentences = [block.text for block in checked.blocks if isinstance(block, Paragraph)]
    sentences += [text for block in checked.blocks if isinstance(block, Facts) for _, text in block.items]
    cells = [cell for block in seen.blocks if isinstance(block, Table) for row in block.rows for cell in row]
    assert "baseline Plain GPT" in sentences[0] and any(
        text.startswith("LayerNorm helps supported:") for text in sentences
    )
    assert any("once a run of Plain GPT" in text for text in sentences), sentences
    assert any(cell.startswith("With LayerNorm lowers Validation loss") for cell in cells), cells
    assert any(re.match(r"With LayerNorm \d.*; Plain GPT \d", cell) for cell in cells), cells
    # What is in quotes is the study's own: a verdict's name.
    assert not [text for text in (*sentences, *cells) if AN_ID.search(re.sub("'[^']*'", "", text))]
