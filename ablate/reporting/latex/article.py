"""Paper of several decided studies (`ablate paper`): prose from Markdown, and between it what the studies found.

Numbers are those of the decisions; sentences are those of the report and of the prose. This module says what a paper
takes from each study and in which order. A study by itself as files for a paper is `paper.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ablate.judge.verdict import with_deviations
from ablate.reporting import tables
from ablate.reporting.blocks import Block, Figure, Panel, Paragraph, Section, Table
from ablate.reporting.blocks import Facts as Terms
from ablate.reporting.charts import forest
from ablate.reporting.context import ReportContext
from ablate.reporting.document import banner_of, compose
from ablate.reporting.exports import figures
from ablate.reporting.latex.paper import LINE_OF_PAGE, Paper, methods, preamble, standalone, style_of
from ablate.reporting.latex.prose import prose
from ablate.reporting.latex.references import WORKS, Works, bibtex, keys_in
from ablate.reporting.latex.render import Style, block, float_figure, float_table, latex_sections
from ablate.reporting.sections.audit import runs_section
from ablate.reporting.sections.registration import registration_section
from ablate.reporting.view import FindingView, Shared, by_scale, views_of
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.documents.facts import StudyFacts
from prereg.documents.sentences import macro, say
from prereg.errors import SpecError, StudyError, Where, nearest
from prereg.escape import latex
from prereg.frozen import FrozenModel

PROSE = ("abstract", "introduction", "related", "methods", "discussion", "recommendation")
"""The files of a paper, each NAME.md, in the order in which they are read."""
SHOWN_FACTS = (
    *("Registered", "Seeds", "Looks, as observed", "Commit", "Code sha256"),
    *("Registration sha256", "Registered file sha256", "Evidence sha256", "Ledger head", "Time"),
)
"""Of the facts of a registration and of its runs, those of the appendix."""
MOST_CLAIMS, MOST_PIXELS = 26, 1000
"""Claims of one panel of the forest; and pixels of the panels of one float, which a page holds with its caption."""
_SENTENCE = re.compile(r"(?<=[.!?)]) (?=[A-Z])")


class PaperPlan(FrozenModel):
    """`paper.yaml`: what a paper is made of, apart from its prose."""

    title: str
    """Of the paper."""
    authors: tuple[str, ...] = ()
    """Their names, in order."""
    studies: tuple[str, ...]
    """Decided studies, in the order in which they are reported."""
    figures: dict[str, tuple[str, ...]] = {}
    """Study -> figures of its report that the paper shows, by their names."""


@dataclass(frozen=True)
class PaperSource:
    """What a paper is written from."""

    plan: PaperPlan
    prose: Mapping[str, str]
    """Name of `PROSE` -> its Markdown."""
    studies: Mapping[str, ReportContext]
    works: Works
    """Those that the prose cites, next to ours."""


def article(source: PaperSource) -> Paper:
    """The files of a paper. Raises `SpecError` for prose that cannot be carried over, with its file, and for a figure
    that a report does not have."""
    # Names for people from here on, as in a report: every table, figure and sentence below reads them.
    studies = {
        name: replace(context, decision=context.decision.labelled(context.study.labels))
        for name, context in source.studies.items()
    }
    style = _style(studies, source.works)
    # What may raise comes first, prose then figures: nothing of the paper is made for a plan with a mistake.
    parts = {name: _prose(name, text, _asked_for(studies)) for name, text in source.prose.items()}
    drawn, shown = _figures(source.plan, studies, style)
    forests, forest_floats = _forest(studies, style)
    shared = _shared_methods(studies)
    body = [
        _abstract(parts["abstract"], style),
        *(_section(parts[name], style) for name in ("introduction", "related")),
        _section(parts["methods"], style),
        # What most studies share is said once, after the authors' own methods and before the results that rest on it.
        *_headed("subsection", phrase("paper.shared"), [*shared, phrase("paper.own")], style),
        *_headed("section", "Results", [phrase("paper.results", len(studies))], style),
        float_table(_verdicts(studies), style, "tab:verdicts"),
        *forest_floats,
        *(
            part
            for number, (name, context) in enumerate(studies.items(), start=1)
            for part in (*_results(context, number, style), *shown.get(name, ()))
        ),
        *(_section(parts[name], style) for name in ("discussion", "recommendation")),
    ]
    appendix = [
        *_headed("section", phrase("paper.registrations"), [phrase("paper.about_registrations")], style),
        *(_registered(context, style) for context in studies.values()),
        *_headed("section", phrase("paper.claims"), [], style),
        block(_claims(studies), style, {}),
    ]
    page = standalone(
        style.text(source.plan.title),
        "",
        "\n\n".join(body),
        head=preamble(),
        author=r" \and ".join(map(latex, source.plan.authors)),
        numbered=True,
        works=style.works,
        appendix="\n\n".join(appendix),
    )
    # What the page cites, and no more.
    texts = {"paper.tex": page, "references.bib": bibtex(keys_in(page, works=style.works), style.works)}
    return Paper(texts, (*forests, *drawn))


def _style(studies: Mapping[str, ReportContext], works: Works) -> Style:
    # Set in typewriter wherever a text has them.
    names = [name for context in studies.values() for name in style_of(context).names]
    return Style(frozenset([*studies, *names]), LINE_OF_PAGE, dict(sorted({**WORKS, **works}.items())))


def _asked_for(studies: Mapping[str, ReportContext]) -> dict[str, str]:
    """What prose may ask for: the verdict of a study, and what it found of a claim."""
    text_by_name = {}
    for name, context in studies.items():
        text_by_name[name] = phrase("paper.verdict", context.decision, with_deviations(context.decision))
        text_by_name |= {f"{name}.{view.name}": view.clause for view in _views(context)}
    return text_by_name


def _views(context: ReportContext) -> Sequence[FindingView]:
    return views_of(context.decision.findings, context.study)


def _prose(name: str, text: str, findings: Mapping[str, str]) -> tuple[Section, ...]:
    try:
        return prose(name, text, findings)
    except StudyError as error:
        raise error.at(file=file_of(name)) from None


def _section(parts: Sequence[Section], style: Style) -> str:
    first, *others = parts
    return "\n\n".join(
        filter(None, [latex_sections([first], style, {}), latex_sections(others, style, {}, "subsection")])
    )


def _abstract(parts: Sequence[Section], style: Style) -> str:
    inside = "\n\n".join(block(content, style, {}) for part in parts for content in part.blocks)
    return f"\\begin{{abstract}}\\noindent\n{inside}\n\\end{{abstract}}"


def _headed(level: str, title: str, paragraphs: Sequence[str], style: Style) -> Iterator[str]:
    yield latex_sections([Section("", title, tuple(map(Paragraph, paragraphs)))], style, {}, level)


# -- methods: what most studies share is said once ---------------------------------------------------------------------


def _shared_methods(studies: Mapping[str, ReportContext]) -> list[str]:
    """Sentences of methods that more than half of the studies have, in paragraphs, with the studies that lack one."""
    paragraphs_by_study = {
        name: [_SENTENCE.split(part) for part in methods(context)] for name, context in studies.items()
    }
    # Sentence -> the studies whose methods have it, word for word. A number that differs makes it another sentence.
    owners: dict[str, list[str]] = {}
    for name, paragraphs in paragraphs_by_study.items():
        for sentence in dict.fromkeys(sentence for part in paragraphs for sentence in part):
            owners.setdefault(sentence, []).append(name)
    written: set[str] = set()
    made = []
    for part in (part for paragraphs in paragraphs_by_study.values() for part in paragraphs):
        fresh = [text for text in dict.fromkeys(part) if text not in written and 2 * len(owners[text]) > len(studies)]
        written |= {*fresh}
        lacking = ([name for name in studies if name not in owners[sentence]] for sentence in fresh)
        if fresh:
            made.append(
                " ".join(phrase("paper.shared_by", text, names) for text, names in zip(fresh, lacking, strict=True))
            )
    return made


def _setting(context: ReportContext) -> str:
    """What the runs of a study were, in the sentences of its methods."""
    parts = [macro("training", StudyFacts(context.study, context.registration)), say("tuning", context.study)]
    return " ".join(filter(None, parts))


# -- results -----------------------------------------------------------------------------------------------------------


def _verdicts(studies: Mapping[str, ReportContext]) -> Table:
    return tables.VERDICTS.of(
        tables.VerdictRow(
            name,
            len(context.study.arms),
            words.ranged(context.study.seeds),
            phrase("paper.verdict", context.decision, with_deviations(context.decision)),
            phrase("paper.outcomes", Counter(view.outcome for view in _deciding(context))),
        )
        for name, context in studies.items()
    )


def _deciding(context: ReportContext) -> list[FindingView]:
    return [view for view in _views(context) if not view.exploratory]


def _claims(studies: Mapping[str, ReportContext]) -> Table:
    return tables.CLAIMS.of(
        tables.EffectRow(name, view.label, view.finding.claim_shown, view.outcome, view)
        for name, context in studies.items()
        for view in _deciding(context)
        # Of a family per task the report has the rows.
        if not any(view.name in names for names in context.study.task_families.values())
    )


def _results(context: ReportContext, number: int, style: Style) -> Iterator[str]:
    """The verdict of a study, what deviated, and the findings that made the line of the rule hold, with the number of
    the appendix's section that has its setting: the appendix has the studies in the same order."""
    banner = banner_of(context.decision, context.registration)
    verdict = phrase("paper.verdict_by_rule", banner.word, banner.headline, [*banner.failed, *banner.reasons])
    title = f"{context.study.study}: {context.registration.worded.title}"
    yield from _headed("subsection", title, [f"{verdict} {phrase('paper.setting_at', number)}"], style)


def _forest(studies: Mapping[str, ReportContext], style: Style) -> tuple[list[figures.Drawing], list[str]]:
    """Primary claims of all studies, a panel for each metric, and the floats that show them."""
    # Of all studies one list, so that claims about one metric share a panel and its axis, each with its study's name.
    views = []
    for name, context in studies.items():
        labels = context.study.labels
        named = {claim: f"{name}: {labels.claim(claim)}" for claim in context.study.hypotheses}
        decision = context.decision.labelled(labels.model_copy(update={"claims": named}))
        views += [view for view in views_of(decision.findings, context.study) if view.role == "primary"]
    groups = [group[at : at + MOST_CLAIMS] for group in by_scale(views) for at in range(0, len(group), MOST_CLAIMS)]
    panels = [Panel("", partial(forest, group, wide=False, named_only=True), "") for group in groups]
    figure = Figure("Claims", phrase("paper.forest", Shared(views)), tuple(panels))
    drawn = [figures.Drawing(figure, panel, f"forest-{at}") for at, panel in enumerate(panels, start=1)]
    # Panels fill a float until a page holds no more: 22 pixels a claim and 60 for axis and title, as the forest is
    # drawn.
    floats: list[list[str]] = [[]]
    room = MOST_PIXELS
    for drawing, group in zip(drawn, groups, strict=True):
        room -= (height := 22 * len(group) + 60)
        if room < 0 and floats[-1]:
            floats.append([])
            room = MOST_PIXELS - height
        floats[-1].append(f"figures/{drawing.stem}.pdf")
    more = replace(figure, caption=f"{figure.name} (continued).")
    return drawn, [
        float_figure(figure if at == 1 else more, style, files, f"fig:forest:{at}", broad=True)
        for at, files in enumerate(floats if views else [], start=1)
    ]


def _figures(
    plan: PaperPlan, studies: Mapping[str, ReportContext], style: Style
) -> tuple[list[figures.Drawing], dict[str, list[str]]]:
    """The figures that the plan names: their drawings, and by study the floats that show them."""
    drawn: list[figures.Drawing] = []
    floats: dict[str, list[str]] = {}
    for study, names in plan.figures.items():
        if study not in studies:
            raise _error(("figures", study), f"'{study}' is no study of this paper", nearest(study, studies))
        # The report's own drawings: a paper shows what the report shows, and draws nothing else.
        drawings = figures.drawings(compose(studies[study]))
        by_name = {drawing.figure.name: drawing.figure for drawing in drawings}
        stems = figures.files_of(drawings)
        for at, name in enumerate(names):
            if name not in by_name:
                raise _error(("figures", study, at), f"{study} has no figure '{name}'", nearest(name, by_name))
            used = [
                replace(drawing, stem=f"{study}-{drawing.stem}") for drawing in drawings if drawing.stem in stems[name]
            ]
            drawn += used
            caption = f"{study}. {by_name[name].caption}"
            files = [f"figures/{drawing.stem}.pdf" for drawing in used]
            figure = replace(by_name[name], caption=caption)
            floats.setdefault(study, []).append(float_figure(figure, style, files, f"fig:{study}:{at + 1}"))
    return drawn, floats


def _error(field: tuple[str | int, ...], fault: str, fix: str) -> SpecError:
    required = "a study of this paper and a figure of its report"
    return SpecError(fault, required=required, fix=fix, where=Where(field=field))


# -- appendix ----------------------------------------------------------------------------------------------------------


def _registered(context: ReportContext, style: Style) -> str:
    """The setting of a study, the line of its rule that held, what deviated, and when and under which hashes it was
    promised and decided."""
    parts: list[Block] = [*registration_section(context).blocks, *runs_section(context).blocks]
    # Taken out of the report's own sections by their terms, so that a hash in the paper is written as in the report.
    facts = {term: text for part in parts if isinstance(part, Terms) for term, text in part.items}
    reasons = [phrase("first_screen.reason", check) for check in context.decision.deviations]
    items = (
        ("Setting", _setting(context)),
        ("Rule", phrase("paper.rule", context.study.decision, context.decision.line)),
        ("Deviations", phrase("paper.deviations", reasons)),
        *((term, facts[term]) for term in SHOWN_FACTS if term in facts),
    )
    return latex_sections([Section("", context.study.study, (Terms(items),))], style, {}, "subsection")


def file_of(name: str) -> Path:
    """The file of a part of the prose.

    >>> str(file_of("abstract"))
    'abstract.md'
    """
    return Path(f"{name}.md")
