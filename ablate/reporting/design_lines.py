"""A design on the terminal: what the registered rule can find with these seeds, and how often it errs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from ablate.reporting import text as words
from ablate.reporting.screen import new_table, put_row, say, show_table

if TYPE_CHECKING:
    from ablate.judge.design.characteristics import Design


def print_design(console: Console, design: Design) -> None:
    """What the registered rule can find with these seeds, and how often it errs, by simulation."""
    from ablate.judge.design.undecidable import obstacle
    from ablate.reporting.sections.design import facts_of
    from ablate.reporting.sections.registration import TERMS, detectable_of, power_cell

    cost = "" if design.cost_s is None else f", {words.duration(design.cost_s)} one after another"
    say(
        console,
        f"{design.study}: {design.test}, alpha {words.compact(design.alpha)}, correction {design.correct}, "
        f"{words.counted(design.n_seeds, 'seed')}, {words.counted(design.n_runs, 'run')}{cost}",
        style="bold",
    )
    table = new_table(
        console,
        ("Hypothesis", "left"),
        ("Can end as", "left"),
        ("Detectable", "right"),
        ("Power", "right"),
        ("Seeds", "right"),
    )
    for one in design.hypotheses:
        endings = [
            word
            for word, possible in (("supported", one.can_be_supported), ("refuted", one.can_be_refuted))
            if possible
        ]
        put_row(
            console,
            table,
            one.hypothesis,
            "any outcome" if len(endings) == 2 else " or ".join([*endings, "inconclusive"]),
            detectable_of(one),
            power_cell(one),
            words.NONE if one.seeds_80 is None else str(one.seeds_80),
        )
    show_table(console, table)
    say(
        console,
        f"{TERMS} Seeds: for power 80% there.",
        style="dim",
    )
    for term, text in facts_of(design):
        say(console, f"{term}: {text}")
    _print_scenarios(console, design)
    _print_power(console, design)
    for verdict in design.unreachable:
        say(console, f"No data can lead to the verdict '{verdict}'.", style="bold red")
    refused = obstacle(design)
    if refused is not None:
        say(console, f"Registration will be refused: {refused.found}.", style="bold red")
    if design.remedy:
        say(console, f"Remedy: {design.remedy}", style="bold")
    for note in design.notes:
        say(console, f"- {note}")


def print_power(console: Console, design: Design) -> None:
    """Power of every claim that the decision needs, in one line each: what registration rests on."""
    from ablate.reporting.sections.registration import power_cell

    for one in design.hypotheses:
        if not one.needed:
            continue
        if one.power_at_smallest is None:
            say(console, f"power of {one.hypothesis}: unknown, because nothing is assumed of the spread of its metric")
        else:
            say(console, f"power of {one.hypothesis}: {power_cell(one)}, n = {one.n} seeds, by simulation")


def _print_scenarios(console: Console, design: Design) -> None:
    if not design.scenarios:
        return
    table = new_table(console, ("If the truth is", "left"), ("The study ends as", "left"), ("False", "right"))
    for scenario in design.scenarios:
        ends = (*scenario.verdicts, *((scenario.inadmissible,) if scenario.inadmissible else ()))
        verdicts = ", ".join(f"{one.of} {words.share(one.share)}" for one in ends if one.share > 0.0)
        wrong = [*scenario.false_supported, *scenario.false_refuted]
        put_row(
            console,
            table,
            words.shown_truth(scenario.name),
            verdicts,
            words.share(max((one.share for one in wrong), default=0.0)),
        )
    show_table(console, table)
    say(
        console,
        "False: the largest chance, over roles, of any false 'supported' or any false 'refuted'. All of them, with "
        "their simulation errors: ablate design --json.",
        style="dim",
    )


def _print_power(console: Console, design: Design) -> None:
    """The chart, in the characters that the stream can write."""
    from ablate.reporting.sections.design import text_chart

    lines = text_chart(design)
    if not lines:
        return
    say(console, "")
    for line in lines:
        try:
            line.encode(console.encoding)
        except UnicodeEncodeError:
            line = line.translate(str.maketrans("●○◉", "*o@"))  # noqa: PLW2901
        say(console, line, wrap=False)
    say(console, "")
