"""The line about a corpus tells what the runs counted of it, and never leaves it out in silence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from report_samples import told

from ablate.records.run_record import CountedBaselines, Repeated, Repetition
from ablate.reporting import markdown
from ablate.reporting.context import ReportContext

COUNTED = Repetition(
    lines=Repeated(repeated=300, units=400),
    paragraphs=Repeated(repeated=1, units=8),
    held_out_lines=Repeated(repeated=3, units=40),
    held_out_paragraphs=Repeated(repeated=0, units=1),
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
    [found] = [line for line in markdown.render(of).splitlines() if "sha256 " in line and f"{name()}: " in line]
    return found


def test_what_was_counted_stands_in_the_line_of_the_corpus() -> None:
    assert (
        "75.00% of its lines and 12.50% of its paragraphs occur earlier in it, exactly alike; 7.50% of its held-out "
        "lines occur in the rest"
    ) in line(recorded({"repetition": {name(): COUNTED}}))


def test_an_estimate_is_told_as_one_and_arms_that_hold_out_other_parts_as_a_range() -> None:
    more = COUNTED.model_copy(update={"held_out_lines": Repeated(repeated=6, units=40), "one_in": 4})
    found = line(recorded({"repetition": {name(): COUNTED}}, {"repetition": {name(): more}}))
    assert "about 75.00% of its lines" in found and "about 7.50% to 15.00% of its held-out lines" in found


def test_a_share_of_nothing_is_not_told_as_nought_nor_a_tiny_one_as_none() -> None:
    empty = COUNTED.model_copy(update={"held_out_lines": Repeated(repeated=0, units=0)})
    assert "; none (there are none) of its held-out lines" in line(recorded({"repetition": {name(): empty}}))
    rare = COUNTED.model_copy(update={"held_out_lines": Repeated(repeated=1, units=1_000_000)})
    assert "; less than 0.01% of its held-out lines" in line(recorded({"repetition": {name(): rare}}))


def test_what_was_not_measured_or_not_recorded_is_said() -> None:
    ids = Repetition(not_measured="not measured, since ids show no lines")
    assert "repeats itself: not measured, since ids show no lines" in line(recorded({"repetition": {name(): ids}}))
    assert "how much of it repeats itself was not recorded" in line(recorded({}))
    assert "repeats itself" not in line(replace(told(), evidence=replace(told().evidence, runs=())))


def test_the_share_that_mixtures_drew_stands_there_too() -> None:
    drawn = [{"mixture": {name(): n, "other": 100 - n}} for n in (40, 41)]
    assert "40.00% to 41.00% of the windows that a run was trained on came from it" in line(recorded(*drawn))
    assert "windows that a run" not in line(recorded({}))


def test_losses_of_counting_are_given_where_runs_recorded_them() -> None:
    assert "Losses to compare with" not in markdown.render(told())
    one = CountedBaselines(uniform=4.1744, unigram=3.3091, bigram=2.4612, tokens=111_540)
    page = markdown.render(recorded({"baselines": one}))
    assert (
        "- **Losses to compare with**: guessing evenly 4.174, token frequencies 3.309, the token before 2.461 "
        "nats/token, counted in the training part and measured on 111,540 validation tokens\n" in page
    )
    toy = one.model_copy(update={"floor": 0.3124})
    assert "; the source's own entropy is 0.312" in markdown.render(recorded({"baselines": toy}))
    assert "with**: they differ between arms" in markdown.render(recorded({"baselines": one}, {"baselines": toy}))
    mixed = CountedBaselines(not_computed="not computed for a mixture")
    assert "with**: not computed for a mixture" in markdown.render(recorded({"baselines": mixed}))
