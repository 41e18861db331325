"""Section of the design: its facts and power chart, and what the ledger shows of looks.

Every number of it comes from `Design`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import floor, log10
from typing import Final

from ablate.judge.design.characteristics import Design
from ablate.judge.design.error_rate import TOLERATED
from ablate.judge.design.simulate import SimulatedChance, SimulatedScenario
from ablate.reporting import estimates
from ablate.reporting.blocks import Figure, Panel
from ablate.reporting.charts import power_chart
from ablate.reporting.context import ReportContext
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.registry.ledger_entry import DecidedEntry, Entry, LookedEntry, PeekedEntry, SealEntry
from prereg.registry.looks import recorded_afterwards

_HEIGHT, _WIDTH = 10, 80
_FULL, _ADOPTING = "●", "○"


def facts_of(design: Design) -> Iterator[tuple[str, str]]:
    """What a reader must know of a design: how often the rule errs, and by how many simulated studies that is known."""
    if design.false_adoption is not None:
        worst = {
            "skewed": _worst_of(design, "lognormal", "exponential"),
            "failing": _worst_of(design, "failed_seed"),
            "diverging": max(
                (
                    scenario
                    for scenario in design.scenarios
                    if scenario.divergence and scenario.false_adopting is not None
                ),
                key=lambda scenario: scenario.false_adopting.share if scenario.false_adopting else 0.0,
                default=None,
            ),
        }
        chances = {
            kind: said_chance(scenario.false_adopting)
            for kind, scenario in worst.items()
            if scenario is not None and scenario.false_adopting is not None
        }
        false_adoption = phrase("design.false_adoption", design, said_chance(design.false_adoption), chances)
        yield phrase("design.false_adoption_term"), false_adoption
    if design.wrong_answer is not None:
        others = {
            {"failed_seed": "failing"}.get(scenario.law, "skewed"): said_chance(scenario.wrong_answer)
            for scenario in design.wrong_answers[1:]
            if scenario.wrong_answer is not None
        }
        said = phrase(
            "design.wrong_answer",
            design,
            said_chance(design.wrong_answer),
            others,
            _lower_alpha(design),
            _errs_without_findings(design),
        )
        yield phrase("design.wrong_answer_term"), said
    if design.gate:
        yield phrase("design.gate_term"), phrase("design.gate", design.gate)
    if design.scenarios:
        # Standard error of a share p of n studies: sqrt(p (1 - p) / n); the largest is stated for all.
        errors = [chance.error for scenario in design.scenarios for chance in scenario.verdicts]
        yield phrase("design.simulated_term"), phrase("design.simulated", design, words.share(max(errors)))


def _lower_alpha(design: Design) -> str:
    """About the alpha with which a rule that errs too often holds what is tolerated; empty where it holds that, and
    where it errs more often than all false findings together."""
    wrong, tolerated = design.wrong_answer, max(TOLERATED, design.alpha)
    if wrong is None or wrong.share - 2.0 * wrong.error <= tolerated or _errs_without_findings(design):
        return ""
    # Rounded down to two digits: an alpha that is rounded up would hold less.
    exact = design.alpha * tolerated / wrong.share
    step = 10.0 ** (floor(log10(exact)) - 1)
    return words.compact(round(floor(exact / step) * step, 6))


def _errs_without_findings(design: Design) -> bool:
    """Whether a rule errs more often than every claim is falsely supported or refuted, so that it answers where a claim
    was merely not refuted."""
    wrong, all_findings = design.wrong_answer, 2.0 * design.alpha * len(design.hypotheses)
    return wrong is not None and wrong.share - 2.0 * wrong.error > all_findings


def plans_of(design: Design) -> Iterator[tuple[str, str]]:
    """What a plan needs in addition: seeds for power 80 and 90%, and the cost of them."""
    if design.curve:
        yield phrase("design.seeds_term"), phrase("design.seeds", design)
    if design.seconds_per_run is not None and design.cost_s is not None:
        costs = [
            (share, words.duration(cost), n)
            for share, cost, n in ((80, design.cost_80_s, design.seeds_80), (90, design.cost_90_s, design.seeds_90))
            if cost is not None and n is not None
        ]
        each, all_runs = words.duration(design.seconds_per_run), words.duration(design.cost_s)
        yield phrase("design.cost_term"), phrase("design.cost", design, each, all_runs, costs)


def said_chance(chance: SimulatedChance) -> str:
    """A simulated chance with its error; of what no simulated study showed, an upper bound in place of a zero."""
    if chance.at_most is not None:
        return phrase("design.never_met", estimates.bound_in_words(chance.at_most))
    # 0.04% must not be shown as 0.0%.
    places = 2 if chance.share < 0.001 else 1
    return f"{words.number(100 * chance.share, places)}% ±{words.number(100 * chance.error, places)}%"


def _worst_of(design: Design, *laws: str) -> SimulatedScenario | None:
    drawn = (*design.scenarios, *design.worst)
    scenarios = [scenario for scenario in drawn if scenario.law in laws and scenario.false_adopting is not None]
    return (
        max(scenarios, key=lambda scenario: scenario.false_adopting.share if scenario.false_adopting else 0.0)
        if scenarios
        else None
    )


def least_power(design: Design) -> list[tuple[int, float]]:
    """Seeds -> the least power over the hypotheses that the decision asks to be supported."""
    needed = [hypothesis.hypothesis for hypothesis in design.hypotheses if hypothesis.needed]
    return [
        (at.n, min(at.power[name] for name in needed))
        for at in design.curve
        if needed and all(name in at.power for name in needed)
    ]


def adopting_by_seeds(design: Design) -> list[tuple[int, float]]:
    """Seeds -> the chance of an adopting verdict when every claim is true."""
    return [(at.n, at.adopting.share) for at in design.curve if at.adopting is not None]


def power_figure(design: Design) -> Figure | None:
    """Power by number of seeds, if the design computed it."""
    power, adopting = least_power(design), adopting_by_seeds(design)
    if not power and not adopting:
        return None
    chances = "; ".join(f"{words.counted(n, 'seed')}: {words.share(share)}" for n, share in power or adopting)
    chart = partial(power_chart, power, adopting, registered=design.n_seeds)
    # Of a rule that needs no support there is no least power; the chance of adoption takes its place.
    here = dict(power or adopting).get(design.n_seeds)
    name = phrase("design.power", bool(power), None if here is None else words.share(here), design.n_seeds)
    caption = phrase("design.power_caption", design.n_seeds)
    return Figure(name, caption, (Panel("", chart, f"{name}. {chances}."),), tuple(text_chart(design)))


def text_chart(design: Design) -> list[str]:
    """The same chart in characters, a column for each number of seeds."""
    power, adopting = dict(least_power(design)), dict(adopting_by_seeds(design))
    seeds = sorted({*power, *adopting})
    step = 4
    # Eight columns are the axis and its labels.
    seeds = seeds[: (_WIDTH - 8) // step]
    if not seeds:
        return []
    lines = []
    for level in range(_HEIGHT, -1, -1):
        label = f"{10 * level:>4}% " if level % 2 == 0 else "      "
        cells = []
        for n in seeds:
            # Floor, so that 79.6% is not drawn on the line of 80%.
            here = [
                mark
                for mark, line in ((_FULL, power), (_ADOPTING, adopting))
                if n in line and int(10 * line[n]) == level
            ]
            rule = "-" if level == 8 else " "
            cells.append((here[0] if len(here) == 1 else "◉" if here else rule).rjust(step, rule))
        lines.append((label + "|" + "".join(cells)).rstrip())
    lines.append("      +" + "-" * (step * len(seeds)))
    lines.append(
        "seeds  " + "".join((f"[{n}]" if n == design.n_seeds else f"{n} ").rjust(step + 1)[-step:] for n in seeds)
    )
    lines.append(f"{_FULL} least power of what must be supported  {_ADOPTING} an adopting verdict, all true  ◉ both")
    return lines


LOOKS: Final = ("peeked", "looked", "decided")
"""Entries that somebody who wrote them had seen outcomes for."""


def looks_shown(context: ReportContext) -> str:
    """What the ledger shows of looks before the last planned run was sealed; of a sequential study, of all looks."""
    evidence = context.evidence
    if evidence.ledger_faults:
        return phrase("promised_parts.looks_unknown", True)
    before = _before_the_decision(context)
    mine = [entry for entry in before if entry.registration in context.registration.lineage]
    # Before a run is sealed there is nothing to look at; after damage nothing can be said.
    if not any(isinstance(entry, SealEntry) for entry in mine):
        return phrase("promised_parts.looks_unknown", False)
    shown = _before_the_last(context, before) if context.study.stopping == "fixed" else _of_a_sequence(context, before)
    elsewhere = sum(entry.event == "imported" for entry in mine)
    return phrase("promised_parts.looks_elsewhere", shown, elsewhere) if elsewhere else shown


def _before_the_decision(context: ReportContext) -> list[Entry]:
    """The ledger up to what this decision wrote into it, so that a report written again says what it said."""
    decision, entries = context.decision, []
    for entry in context.evidence.ledger:
        if entry.registration in context.registration.lineage:
            look = decision.look
            own = entry.registration == context.registration.sha256  # an amended study is decided again
            if isinstance(entry, LookedEntry) and entry.final and look is not None and entry.look == look.number:
                break
            if own and isinstance(entry, DecidedEntry) and entry.evidence == decision.evidence:
                break
        entries.append(entry)
    return entries


def _before_the_last(context: ReportContext, before: Sequence[Entry]) -> str:
    """Entries of any registration of this study: what an earlier one has shown is known under the next."""
    waiting, last, looks = set(context.evidence.planned), None, []
    for entry in before:
        if not waiting:
            break
        if isinstance(entry, SealEntry) and entry.registration in context.registration.lineage:
            waiting.discard(entry.cell)
            last = entry
        elif entry.event in LOOKS:
            looks.append(entry)
    assert last is not None
    looks += [entry for entry in recorded_afterwards(context.evidence.ledger) if entry not in looks]
    planned = len(context.evidence.planned)
    end = "" if waiting else f"entry {last.index}, {words.moment(last.at)}"
    return phrase("promised_parts.looks", _named(context, looks), planned, planned - len(waiting), end)


def _of_a_sequence(context: ReportContext, before: Sequence[Entry]) -> str:
    looked = [
        entry for entry in before if entry.event == "looked" and entry.registration in context.registration.lineage
    ]
    peeked = [entry for entry in before if entry.event == "peeked"]
    peeked += [entry for entry in recorded_afterwards(context.evidence.ledger) if entry not in peeked]
    return phrase("promised_parts.looks_of_a_sequence", _named(context, looked), _named(context, peeked))


def _named(context: ReportContext, entries: Sequence[Entry]) -> list[str]:
    own = context.registration.sha256
    return [phrase("promised_parts.look", entry, _when(entry), entry.registration != own) for entry in entries]


def _when(entry: Entry) -> str:
    at = words.moment(entry.at)
    if not isinstance(entry, PeekedEntry) or entry.took_place is None:
        return at
    return phrase("promised_parts.look_recorded_afterwards", words.moment(entry.took_place), at)
