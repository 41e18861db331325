"""Index of a repository's studies (`ablate report --all`): how each ended, and their effects.

No study is dropped: what is not decided or inadmissible has its line, without a number that could be taken for one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ablate.judge.overview import NOT_REGISTERED, StudyOverview
from ablate.reporting.blocks import Block, Paragraph, Section, Table
from ablate.reporting.document import Banner, Document
from ablate.reporting.estimates import NONE
from ablate.reporting.latex.paper import LINE_OF_PAGE, preamble, standalone
from ablate.reporting.latex.render import Style, block, float_table, latex_sections
from ablate.reporting.tables import EFFECTS_BY_STUDY, INDEX, EffectRow
from ablate.reporting.view import views_of
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.study.presentation import NO_LABELS

TITLE = "Studies"


def index_document(studies: Sequence[StudyOverview]) -> Document:
    """The index."""
    states = Counter(study.state.replace("_", " ") for study in studies)
    ended = words.listed(f"{n} {state}" for state, n in states.items())
    headline = words.counted(len(studies), "study", "studies")
    because = f"{ended}." if ended else phrase("index.nothing")
    return Document(
        "",
        TITLE,
        Banner("index", TITLE, headline, (because,), ()),
        (),
        (
            Section("studies", "How each study ended", tuple(_states(studies))),
            Section("effects", "Effects by study", (effects_table(studies),)),
        ),
    )


def _states(studies: Sequence[StudyOverview]) -> Iterator[Block]:
    yield INDEX.of(studies)
    for study in studies:
        if study.notes:
            yield Paragraph(f"{study.study}: {'; '.join(study.notes)}.")


def effects_table(studies: Sequence[StudyOverview]) -> Table:
    """Every hypothesis of every study, next to each other: a number only where its study gave a verdict."""
    return EFFECTS_BY_STUDY.of(row for study in studies for row in _effects(study))


def _effects(overview: StudyOverview) -> Iterator[EffectRow]:
    decision, study = overview.decision, None if overview.registration is None else overview.registration.study
    labels = NO_LABELS if study is None else study.labels
    # Without a verdict no number: a study that was peeked at must not lend one to the index.
    findings = decision.labelled(labels).findings if decision is not None and overview.gives_verdict else ()
    for view in views_of(findings, study):
        yield EffectRow(overview.study, view.label, view.finding.claim_shown, view.outcome, view)
    if findings:
        return
    state = overview.state_in_words
    if overview.decision is None and overview.decided_at is not None:
        state = phrase("index.verdict_not_here", state)
    for name, hypothesis in {} if study is None else study.hypotheses.items():
        yield EffectRow(overview.study, labels.claim(name), labels.in_claim(hypothesis.claim), state, None)
    if study is None or not study.hypotheses:
        yield EffectRow(
            overview.study, NONE, NONE, overview.state_in_words if overview.state == NOT_REGISTERED else state, None
        )


def latex_index(document: Document, studies: Sequence[StudyOverview]) -> dict[str, str]:
    """The index as a page that compiles by itself, and its table of effects as a part for a paper."""
    names = {row[1] for row in effects_table(studies).rows}  # the column of hypotheses
    # Names of hypotheses and metrics are set in typewriter, in the cells too.
    metrics = {f.metric for study in studies if study.decision is not None for f in study.decision.findings}
    style = Style(frozenset(names | metrics))
    page = Style(style.names, LINE_OF_PAGE)
    banner = block(Paragraph(f"{document.banner.headline}: {' '.join(document.banner.reasons)}", "lead"), page, {})
    body = f"{banner}\n\n{latex_sections(document.sections, page, {})}"
    part = float_table(effects_table(studies), style, "tab:studies")
    return {
        "index.tex": standalone(TITLE, "", body, head=preamble()),
        "studies.tex": f"% Effects by study; needs the preamble.tex of a study.\n{part}\n",
    }
