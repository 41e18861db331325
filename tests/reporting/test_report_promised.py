"""What the report says of a corpus next to the promise: what its runs counted, and never more than they did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from report_samples import told

from ablate.records.run_record import CountedBaselines, RepeatedUnits, Repetition
from ablate.reporting import markdown
from ablate.reporting.context import ReportContext

COUNTED = Repetition(
    lines=RepeatedUnits(repeated=300, units=400),
    paragraphs=RepeatedUnits(repeated=1, units=8),
    held_out_lines=RepeatedUnits(repeated=3, units=40),
    held_out_paragraphs=RepeatedUnits(repeated=0, units=1),
)


def name() -> str:
    [pin] = told().registration.pinned
    return pin.name


def recorded(*records: dict[str, Any]) -> ReportContext:
    """The sample, its runs with these in turn."""
    whole = told()
    runs = (run.model_copy(update=records[place % len(records)]) for place, run in enumerate(whole.evidence.runs))
    return replace(whole, evidence=replace(whole.evidence, runs=tuple(runs)))


def line(of: ReportContext) -> str:
    [found] = [
        line for line in markdown.render_markdown(of).splitlines() if "sha256 " in line and f"{name()}: " in line
    ]
    return found


RARE, EMPTY = RepeatedUnits(repeated=1, units=1_000_000), RepeatedUnits(repeated=0, units=0)
MORE = COUNTED.model_copy(update={"held_out_lines": RepeatedUnits(repeated=6, units=40), "one_in": 4})
IDS = Repetition(not_measured="not measured, since ids show no lines")
ONE = CountedBaselines(uniform=4.1744, unigram=3.3091, bigram=2.4612, tokens=111_540)
TOY = ONE.model_copy(update={"floor": 0.3124})
LARGE = CountedBaselines(not_computed="not computed for more than 16,777,216 tokens")


def repeats(*counted: Repetition) -> tuple[dict[str, Any], ...]:
    return tuple({"repetition": {name(): one}} for one in counted)


LINES: list[tuple[tuple[dict[str, Any], ...], list[str]]] = [
    # what the runs recorded in turn, what the line of the corpus says; the page of test_pages.py has the plain case
    (repeats(COUNTED, MORE), ["about 75.00% of its lines", "about 7.50% to 15.00% of its held-out lines"]),
    (
        repeats(COUNTED.model_copy(update={"held_out_lines": EMPTY})),
        ["and none (there are none) of its held-out lines"],
    ),
    (repeats(COUNTED.model_copy(update={"held_out_lines": RARE})), ["and less than 0.01% of its held-out lines"]),
    (repeats(IDS), ["repeats itself: not measured, since ids show no lines"]),
    (({},), ["how much of it repeats itself was not recorded"]),
]


@pytest.mark.parametrize(("records", "says"), LINES)
def test_the_line_of_a_corpus_tells_what_was_counted_and_never_leaves_it_out(
    records: tuple[dict[str, Any], ...], says: list[str]
) -> None:
    text = line(recorded(*records))
    assert not [needed for needed in says if needed not in text], text


@pytest.mark.slow
def test_nothing_is_said_of_what_no_run_recorded() -> None:
    assert "repeats itself" not in line(replace(told(), evidence=replace(told().evidence, runs=())))
    assert "Losses to compare with" not in markdown.render_markdown(told())


@pytest.mark.parametrize(
    ("baselines", "says"),
    [
        ([TOY], "; the source's own entropy is 0.312"),
        ([ONE, TOY], "with**: they differ between arms"),
        ([LARGE], "with**: not computed for more than 16,777,216 tokens"),
    ],
)
def test_losses_of_counting_are_given_where_runs_recorded_them(baselines: list[CountedBaselines], says: str) -> None:
    assert says in markdown.render_markdown(recorded(*({"baselines": one} for one in baselines)))
