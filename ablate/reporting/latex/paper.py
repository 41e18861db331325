"""LaTeX files of one study: the report as a page of its own, and the parts that a paper takes in.

Sentences are those of the judge, of the report and of the documents of a registration; this module only says which of
them a paper needs. Every file but `report.tex` is a part, to be taken in by `\\input`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ablate.reporting import estimates, tables
from ablate.reporting.blocks import Block, Paragraph, Table
from ablate.reporting.context import ReportContext
from ablate.reporting.document import Document, banner_of
from ablate.reporting.exports import figures
from ablate.reporting.headline import MOST_FINDINGS
from ablate.reporting.latex.number_macros import number_macros
from ablate.reporting.latex.references import bibtex, keys_in, list_of_references
from ablate.reporting.latex.render import Style, block, float_figure, float_table, latex_paragraphs, latex_sections
from ablate.reporting.sections.audit import checks_section
from ablate.reporting.sections.components import components_section
from ablate.reporting.sections.findings import findings_section
from ablate.reporting.sections.methods import methods_section
from ablate.reporting.sections.registration import registration_section
from ablate.reporting.sections.tasks import summary_of_family
from ablate.reporting.summaries.study import arms_table
from ablate.reporting.view import FindingView, Shared, views_of
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.documents.claims import value_read
from prereg.documents.facts import StudyFacts
from prereg.documents.sentences import macro
from prereg.escape import latex
from prereg.study.designs.per_task import by_family
from prereg.study.spec import Study

LINE_OF_PAGE = 455.0
"""Points of a line of `report.tex`."""


@dataclass(frozen=True)
class Paper:
    """The files of a study for a paper, by path in their folder."""

    texts: Mapping[str, str]
    drawings: tuple[figures.Drawing, ...]
    """Of which each is `figures/STEM.pdf`."""


def paper(context: ReportContext, document: Document) -> Paper:
    """The files of a decision, from its document."""
    context = replace(context, decision=context.decision.labelled(context.study.labels))
    drawn = figures.drawings(document)
    # Figure -> the files of its panels, by the names that `ablate report --as figures` uses too.
    files = {name: [f"figures/{stem}.pdf" for stem in stems] for name, stems in figures.files_of(drawn).items()}
    style, study = style_of(context), context.study
    parts = {
        "results.tex": latex_paragraphs([*results_in_prose(context)], style),
        "methods.tex": latex_paragraphs([*methods(context)], style),
        **{
            f"table-{name}.tex": float_table(table, style, f"tab:{study.study}:{name}")
            for name, table in paper_tables(context).items()
        },
        "figures.tex": "\n\n".join(
            float_figure(figure, style, files[figure.name], f"fig:{study.study}:{at}")
            for at, figure in enumerate(document.figures, start=1)
        ),
        "appendix.tex": "\n\n".join(block(part, style, files) for part in appendix(context)),
    }
    parts["numbers.tex"] = number_macros(context, style)
    own_page = _page(context, document, Style(style.names, LINE_OF_PAGE), files)
    texts = {name: _part(name, text) for name, text in parts.items()}
    texts |= {"report.tex": own_page, "preamble.tex": preamble()}
    texts["references.bib"] = bibtex(keys_in(*texts.values()))  # last: it holds what the parts cite
    # What is not drawn on paper (a shape for broad pages) has no file here.
    shown = {file for panels in files.values() for file in panels}
    return Paper(texts, tuple(drawing for drawing in drawn if f"figures/{drawing.stem}.pdf" in shown))


def _part(name: str, text: str) -> str:
    """A part with what it is in a comment. Names in typewriter are not hyphenated, so lines may stretch more."""
    kind = name.partition("-")[0].removesuffix(".tex")
    if kind == "numbers":
        return text
    body = text if kind in ("table", "figures") else f"{{\\emergencystretch=3em\n{text}\n\\par}}"
    return f"{_NOTE[kind]}{body}\n"


_NOTE = {
    "results": "% Results: the verdict by the registered rule, and every hypothesis.\n",
    "methods": "% Methods: training, arms, seeds, tests, error rates and the rule.\n",
    "table": "% A table that floats; needs preamble.tex.\n",
    "figures": "% Figures that float; need preamble.tex.\n",
    "appendix": "% Appendix: the pre-registration and what deviated from it.\n",
}


def style_of(context: ReportContext) -> Style:
    """Names of the study that are set in typewriter."""
    study = context.study
    metrics = [claim.metric for claim in study.claims.values()]
    fields = [field for arm in study.arms.values() for field in arm.overrides]
    return Style(frozenset([*study.arms, *study.hypotheses, *metrics, *fields, *study.tie_breakers]))


def results_in_prose(context: ReportContext) -> Iterator[str]:
    """The verdict by the registered rule, then for each role three sentences: how its claims ended; estimates with
    interval, n and margin; tests with p. A family of claims per task has one line."""
    banner = banner_of(context.decision, context.registration)
    by_rule = " by the registered rule" * (context.decision.verdict is not None)
    failed = [f"{reason.rstrip('.')}." for reason in banner.failed]
    # The clauses of findings are in the paragraphs that follow.
    clauses = [view.clause for view in views_of(context.decision.findings, context.study)]
    others = [
        reason for reason in banner.reasons if reason.rstrip(".").lower() not in {clause.lower() for clause in clauses}
    ]
    yield " ".join([f"{banner.word}{by_rule}: {banner.headline}.", *failed, *others])
    # Of the findings' section its warnings alone: its tables are files of their own.
    for part in findings_section(context).blocks:
        if isinstance(part, Paragraph) and part.tone == "warning":
            yield part.text
    by_role: dict[str, list[FindingView]] = {}
    of_a_task = {name for names in context.study.task_families.values() for name in names}
    for view in views_of(context.decision.findings, context.study):
        if view.name not in of_a_task:  # a claim of one task would be one of dozens
            by_role.setdefault(view.role, []).append(view)
    for role, views in by_role.items():
        yield phrase("finding.results", role, views, MOST_FINDINGS)
    for label, members in by_family(context.decision.findings).items():
        if label in context.study.task_families:
            yield f"{phrase('findings_parts.family', label)}: {summary_of_family(members)}"


def methods(context: ReportContext) -> Iterator[str]:
    """How runs were trained and by whom, what an arm changes, when it stopped, and how it was judged."""
    for part in methods_section(context, paper=True).blocks:
        if isinstance(part, Paragraph):
            # In a paper, "this report" would be the paper.
            yield part.text.replace("this report", "the report of the study")


def paper_tables(context: ReportContext) -> dict[str, Table]:
    """The tables of a paper: findings, arms, values by arm, seeds, and of a component ablation its parts."""
    made = {"arms": arms_table(context.study)}
    views = [] if context.withheld else views_of(context.decision.findings, context.study)
    if views:
        made |= {"findings": tables.PAPER.of(views, all=Shared(views)), "values": values_table(context.study, views)}
        made |= {"seeds": seeds} if (seeds := tables.SEEDS.of(tables.seed_rows(views))).rows else {}
    components = components_section(context)
    parts = [part for part in components.blocks if isinstance(part, Table)] if components is not None else []
    return made | {f"parts-{at}": table for at, table in enumerate(parts, start=1)}


def values_table(study: Study, views: Sequence[FindingView]) -> Table:
    """Mean, standard deviation and n of what the claims read, for each arm that a claim names."""
    rows: dict[tuple[str, str], tables.ValueRow] = {}
    for finding in (view.finding for view in views):
        decimals = estimates.decimals_of((arm.sd for arm in finding.arms), [arm.mean for arm in finding.arms])
        name, metric = finding.hypothesis, finding.metric_shown
        read = metric if study.hypotheses[name].read == "final" else value_read(study, name)
        for arm in finding.arms:
            # Two claims may read one value of an arm: one row.
            rows.setdefault((read, arm.arm), tables.ValueRow(read, study.labels.arm(arm.arm), arm, decimals))
    return tables.CLAIMED_VALUES.of(rows.values())


def appendix(context: ReportContext) -> Iterator[Block]:
    """The registration: its hash and date, hypotheses, rule, what it could find; then what deviated from it."""
    yield from registration_section(context).blocks
    facts = StudyFacts(context.study)
    yield from (Paragraph(macro("claims.outcomes", facts, claim)) for claim in facts.claims)
    yield from checks_section(context).blocks


@cache
def preamble() -> str:
    """What the parts need."""
    return (Path(__file__).parents[1] / "templates" / "preamble.tex").read_text(encoding="utf-8")


def standalone(title: str, line: str, body: str, *, head: str = r"\input{preamble}") -> str:
    """Return a page of its own: it compiles by plain pdflatex, with the list of what it cites in it."""
    return "\n".join(
        [
            r"\documentclass[10pt,a4paper]{article}",
            r"\usepackage[T1]{fontenc}",
            r"\usepackage[utf8]{inputenc}",
            r"\usepackage{lmodern,microtype}",
            r"\usepackage[a4paper,margin=25mm]{geometry}",
            r"\newcommand{\ablatecite}[2]{\hyperlink{cite.#1}{#2}}",
            r"\newcommand{\ablatecitet}[2]{\ablatecite{#1}{#2}}",
            head,
            r"\usepackage[hidelinks]{hyperref}",
            r"\emergencystretch=3em",
            r"\setlength{\parindent}{0pt}\setlength{\parskip}{0.5\baselineskip plus 2pt}",
            r"\setcounter{secnumdepth}{0}",
            rf"\title{{{title}}}",
            r"\author{}",
            rf"\date{{{line}}}",
            r"\begin{document}",
            r"\maketitle",
            body,
            list_of_references(keys_in(body)),
            r"\end{document}",
            "",
        ]
    )


def _page(context: ReportContext, document: Document, style: Style, files: Mapping[str, Sequence[str]]) -> str:
    banner = document.banner
    failed = [rf"\item {style.text(reason)}" for reason in banner.failed]
    inside = [
        rf"{{\large\bfseries {style.text(f'{banner.word}: {banner.headline}')}\par}}",
        *([r"\begin{itemize}", *failed, r"\end{itemize}"] if failed else []),
        *(rf"\smallskip {style.text(reason)}\par" for reason in banner.reasons),
    ]
    framed = [r"\noindent\fbox{\begin{minipage}{\dimexpr\linewidth-2\fboxsep-2\fboxrule}", *inside, r"\end{minipage}}"]
    # Without the legend, which is the figure's caption there.
    opening = (part for content in document.on_opening for part in (block(content, style, files), ""))
    body = "\n".join([*framed, "", *opening, latex_sections(document.sections, style, files)])
    at = words.moment(context.generated_at)
    return standalone(style.text(document.title), latex(f"Study {document.study}, decided {at}"), body)
