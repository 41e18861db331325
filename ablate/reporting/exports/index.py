"""An index over the studies of a repository: how each ended, effects next to each other, and every hypothesis so far.

No study is dropped: what is not decided or inadmissible has its line, without a number that could be taken for one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ablate.judge.overview import NOT_REGISTERED, StudyOverview
from ablate.judge.programme import Programme
from ablate.reporting.blocks import Block, Paragraph, Section, Table, table_of
from ablate.reporting.document import Banner, Document
from ablate.reporting.estimates import NONE
from ablate.reporting.latex.paper import LINE_OF_PAGE, preamble, standalone
from ablate.reporting.latex.render import Style, block, float_table, sections
from ablate.reporting.summaries.proof import programme_section
from ablate.reporting.tables import EFFECTS_BY_STUDY
from ablate.reporting.view import FindingView
from prereg import text as words
from prereg.study.labels import NO_LABELS

TITLE = "Studies"


def index_document(studies: Sequence[StudyOverview], programme: Programme) -> Document:
    """The index."""
    states = Counter(one.state.replace("_", " ") for one in studies)
    ended = words.listed(f"{n} {state}" for state, n in states.items())
    headline = words.counted(len(studies), "study", "studies")
    because = f"{ended}." if ended else "Nothing is registered and there is no study file."
    tested = programme_section(programme)
    blocks = [Paragraph(tested.title, "lead"), *tested.blocks]
    return Document(
        "",
        TITLE,
        Banner("index", TITLE, headline, (because,), ()),
        (),
        (
            Section("studies", "How each study ended", tuple(_states(studies))),
            Section("effects", "Effects by study", (effects_table(studies),)),
            Section("hypotheses", "Hypotheses tested so far", tuple(blocks)),
        ),
    )


def _states(studies: Sequence[StudyOverview]) -> Iterator[Block]:
    yield table_of(
        studies,
        "Every study, in the order of registration.",
        {
            "Study": lambda one: one.study,
            "Question": _title,
            "Status": lambda one: one.state_in_words,
            "Verdict": lambda one: one.verdict or NONE,
            "Registered": lambda one: _day(one.registered_at),
            "Decided": lambda one: _day(one.decided_at),
            "Runs:": lambda one: f"{one.n_sealed} of {one.n_planned}" if one.n_planned else NONE,
            "Time of runs:": _time,
        },
        note="Runs: sealed, of those planned. Time: of the sealed runs one after the other, as far as their records "
        "are on this disk.",
    )
    for one in studies:
        if one.notes:
            yield Paragraph(f"{one.study}: {'; '.join(one.notes)}.")


def _title(one: StudyOverview) -> str:
    return one.registration.worded.title if one.registration is not None else NONE


def _day(at: str | None) -> str:
    return NONE if at is None else words.moment(at)[:10]


def _time(one: StudyOverview) -> str:
    if not one.n_timed:
        return NONE
    part = "" if one.n_timed == one.n_sealed else f" ({one.n_timed} of {one.n_sealed} runs)"
    return words.duration(one.wall_s) + part


def effects_table(studies: Sequence[StudyOverview]) -> Table:
    """Every hypothesis of every study, next to each other: a number only where its study gave a verdict."""
    made = EFFECTS_BY_STUDY.of(found for one in studies for found in _effects(one))
    rows = {one.study: [row for row in made.rows if row[0] == one.study] or [*_without(one)] for one in studies}
    return replace(made, rows=tuple(row for found in rows.values() for row in found))


def _effects(one: StudyOverview) -> Iterator[tuple[str, FindingView]]:
    decision, study = one.decision, None if one.registration is None else one.registration.study
    if decision is not None and one.gives_verdict:
        labels = NO_LABELS if study is None else study.labels
        yield from ((one.study, FindingView(finding, study)) for finding in decision.labelled(labels).findings)


def _without(one: StudyOverview) -> Iterator[tuple[str, ...]]:
    """The rows of a study that shows no number."""
    labels = NO_LABELS if one.registration is None else one.registration.study.labels
    known = {} if one.registration is None else one.registration.study.hypotheses
    state = one.state_in_words
    without = state if one.decision is not None or one.decided_at is None else f"{state}, its verdict is not here"
    for name, hypothesis in known.items():
        yield (one.study, labels.claim(name), labels.in_claim(hypothesis.claim), without, *[NONE] * 5)
    if not known:
        yield (one.study, NONE, NONE, state if one.state == NOT_REGISTERED else without, *[NONE] * 5)


def latex_index(document: Document, studies: Sequence[StudyOverview]) -> dict[str, str]:
    """The index as a page that compiles by itself, and its table of effects as a part for a paper."""
    names = {row[1] for row in effects_table(studies).rows}
    metrics = {f.metric for one in studies if one.decision is not None for f in one.decision.findings}
    style = Style(frozenset(names | metrics))
    page = Style(style.names, LINE_OF_PAGE)
    banner = block(Paragraph(f"{document.banner.headline}: {' '.join(document.banner.reasons)}", "lead"), page, {})
    body = f"{banner}\n\n{sections(document.sections, page, {})}"
    part = float_table(effects_table(studies), style, "tab:studies")
    return {
        "index.tex": standalone(TITLE, "", body, head=preamble()),
        "studies.tex": f"% Effects by study; needs the preamble.tex of a study.\n{part}\n",
    }
