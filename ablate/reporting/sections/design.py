"""The design: in facts and one chart, what the ledger shows of looks, and afterwards, plan against outcome.

Every number of a design comes from `Design` as frozen; the comparison is computed after the data and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil, floor, log10
from typing import Final

from ablate.judge.design.characteristics import Design
from ablate.judge.design.retrospective import LOW_POWER, Retrospective, look_back
from ablate.judge.design.simulate import Chance, Scenario
from ablate.judge.verdict import Finding
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Figure, Panel, Paragraph, Section, Table, table_of
from ablate.reporting.charts import power_by_seeds
from ablate.reporting.context import ReportContext
from ablate.reporting.estimates import NONE
from prereg import text as words
from prereg.documents.procedures import after_correction, at_level, counted_as
from prereg.registry.ledger_entry import SEALS, Entry
from prereg.registry.looks import TOOK_PLACE, Look, recorded_afterwards
from prereg.registry.plan import cell_of
from prereg.study.spec import Study

_HEIGHT, _WIDTH = 10, 80
_FULL, _ADOPTING = "●", "○"


def facts_of(design: Design) -> Iterator[tuple[str, str]]:
    """What a reader must know of a design, a term and a sentence each."""
    if design.false_adoption is not None:
        over = "the printed scenarios" if design.not_searched else "true effects"
        yield (
            "False-positive rate of the whole rule",
            f"{'Not searched, and at least ' * bool(design.not_searched)}{said_chance(design.false_adoption)}: the "
            f"largest chance, over {over} and over the correlation of metrics, with normal differences and no "
            f"divergence, of an adopting verdict ({words.listed(design.adopting)}) that rests on a false finding or on "
            "a false alarm of stability, or that adopts an arm beyond the margin of its own harm claim. It is largest "
            f"if the truth is: {design.false_adoption_in}."
            + (f" Other true effects may give more: {design.not_searched}." if design.not_searched else ""),
        )
    if design.gate:
        yield "Gate", f"Support is tested {design.gate}; refutations by Holm's procedure within each role."
    skewed = _worst_of(design, "lognormal", "exponential")
    if skewed is not None and skewed.false_adopting is not None:
        yield (
            "The same if differences are skewed",
            f"{said_chance(skewed.false_adopting)} at worst ({skewed.name}).",
        )
    failing = _worst_of(design, "failed_seed")
    if failing is not None and failing.false_adopting is not None:
        yield (
            "The same if seeds fail",
            f"{said_chance(failing.false_adopting)} if one seed in ten fails without diverging, unseen where a study "
            "has none.",
        )
    diverging = [one for one in design.scenarios if one.divergence and one.false_adopting is not None]
    if diverging:
        worst = max(diverging, key=lambda one: one.false_adopting.share if one.false_adopting else 0.0)
        assert worst.false_adopting is not None
        yield (
            "The same if runs diverge",
            f"{said_chance(worst.false_adopting)} at worst ({worst.name}, every arm equally often).",
        )
    if design.curve:
        yield "Seeds for power 80% and 90%", _said_seeds(design)
    if design.seconds_per_run is not None:
        yield "Cost", _said_cost(design)
    if design.scenarios:
        errors = [chance.error for scenario in design.scenarios for chance in scenario.verdicts]
        yield (
            "Simulated",
            f"{design.scenarios[0].n_sims:,} studies for each of {len(design.scenarios)} states of the world, seed "
            f"{design.seed}, through the registered tests{', correction' * (design.correct != 'none')} and decision "
            f"list; Monte Carlo standard error of a verdict's chance at most {words.share(max(errors))}.",
        )


def said_chance(chance: Chance) -> str:
    """A simulated chance with its error; of what no simulated study showed, an upper bound in place of a zero."""
    if chance.at_most is not None:
        return f"{said_bound(chance.at_most)} (never met; 95% bound)"
    places = 2 if chance.share < 0.001 else 1
    return f"{words.number(100 * chance.share, places)}% ±{words.number(100 * chance.error, places)}%"


def said_bound(at_most: float) -> str:
    """An upper bound in a sentence or a cell: `at most 0.075%`."""
    return f"at most {bound_of(at_most)}"


def bound_of(at_most: float) -> str:
    """An upper bound in percent, rounded up to two digits."""
    percent = 100.0 * at_most
    unit = 10.0 ** (floor(log10(percent)) - 1)
    return f"{words.compact(float(f'{ceil(percent / unit) * unit:.6g}'))}%"


def _worst_of(design: Design, *laws: str) -> Scenario | None:
    drawn = (*design.scenarios, *design.worst)
    found = [one for one in drawn if one.law in laws and one.false_adopting is not None]
    return max(found, key=lambda one: one.false_adopting.share if one.false_adopting else 0.0) if found else None


def _said_seeds(design: Design) -> str:
    def said(n: int | None) -> str:
        return "beyond reach or unknown" if n is None else str(n)

    text = (
        f"{said(design.seeds_80)} and {said(design.seeds_90)} (for every hypothesis that the decision asks to be "
        "supported, with every claim true at the stated effect)"
    )
    if design.adoption_80 is not None:
        text += f"; an adopting verdict reaches 80% with {design.adoption_80} if every claim is true"
    return text + "."


def _said_cost(design: Design) -> str:
    assert design.seconds_per_run is not None and design.cost_s is not None, design.study
    each = f"{words.duration(design.seconds_per_run)} a run ({design.timed})"
    parts = [f"{words.duration(design.cost_s)} for the {design.n_runs} runs of this study"]
    for share, cost, n in ((80, design.cost_80_s, design.seeds_80), (90, design.cost_90_s, design.seeds_90)):
        if cost is not None and n is not None:
            parts.append(f"{words.duration(cost)} for power {share}% ({words.counted(n, 'seed')})")
    return f"{each}, one after another: " + "; ".join(parts) + "."


def least_power(design: Design) -> list[tuple[int, float]]:
    """Seeds -> the least power over the hypotheses that the decision asks to be supported."""
    needed = [one.hypothesis for one in design.hypotheses if one.needed]
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
    said = "; ".join(f"{n} seeds: {words.share(share)}" for n, share in power or adopting)
    chart = partial(power_by_seeds, power, adopting, registered=design.n_seeds)
    here = dict(power or adopting).get(design.n_seeds)
    of = "least power" if power else "chance of adoption"
    ended = "" if here is None else f": {of} {words.share(here)} with the registered {design.n_seeds}"
    return Figure(
        f"Power by number of seeds{ended}",
        "Solid line and discs: the least power over the hypotheses that the decision asks to be supported. Dashed line "
        "and rings: the chance of any adopting verdict. Both with every claim true at the effect where its power is "
        "stated, by simulation of the registered rule. Vertical line: the "
        f"registered {words.counted(design.n_seeds, 'seed')}. Horizontal line: 80%.",
        (Panel("", chart, f"Power by seeds. {said}."),),
        tuple(text_chart(design)),
    )


def text_chart(design: Design) -> list[str]:
    """The same chart in characters, a column for each number of seeds."""
    power, adopting = dict(least_power(design)), dict(adopting_by_seeds(design))
    seeds = sorted({*power, *adopting})
    step = 4
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
BEYOND: Final = "whether anybody read the records of a run by hand, no ledger can show"


def looks_shown(context: ReportContext) -> str:
    """What the ledger shows of looks before the last planned run was sealed; of a sequential study, of all looks."""
    evidence = context.evidence
    if evidence.ledger_faults:
        return f"the ledger is damaged, and cannot show whether outcomes were looked at; {BEYOND}"
    before = _before_the_decision(context)
    mine = [entry for entry in before if entry.registration in context.registration.lineage]
    if not any(entry.event in SEALS for entry in mine):
        return f"the ledger has sealed no planned run, and cannot show whether outcomes were looked at before; {BEYOND}"
    shown = _before_the_last(context, before) if context.study.stopping == "fixed" else _of_a_sequence(context, before)
    elsewhere = sum(entry.event == "imported" for entry in mine)
    if elsewhere:
        runs = words.counted(elsewhere, "run")
        shown += f"; {runs} came from elsewhere, and of looks there this ledger shows nothing"
    return f"{shown}; {BEYOND}"


def _before_the_decision(context: ReportContext) -> list[Entry]:
    """The ledger up to what this decision wrote into it, so that a report written again says what it said."""
    decision, found = context.decision, []
    for entry in context.evidence.ledger:
        if entry.registration in context.registration.lineage:
            body, look = entry.body, decision.look
            own = entry.registration == context.registration.sha256  # an amended study is decided again
            if entry.event == "looked" and body.get("final") and look is not None and body.get("look") == look.number:
                break
            if own and entry.event == "decided" and body.get("evidence") == decision.evidence:
                break
        found.append(entry)
    return found


def _before_the_last(context: ReportContext, before: Sequence[Entry]) -> str:
    """Entries of any registration of this study: what an earlier one has shown is known under the next."""
    waiting, last, found = set(context.evidence.planned), None, []
    for entry in before:
        if not waiting:
            break
        if entry.event in SEALS and entry.registration in context.registration.lineage:
            waiting.discard(cell_of(entry))
            last = entry
        elif entry.event in LOOKS:
            found.append(entry)
    assert last is not None
    found += [entry for entry in recorded_afterwards(context.evidence.ledger) if entry not in found]
    n_planned = len(context.evidence.planned)
    until = (
        f"before the seal of the last planned run (entry {last.index}, {words.moment(last.at)})"
        if not waiting
        else f"so far, with {n_planned - len(waiting)} of {n_planned} planned runs sealed"
    )
    if not found:
        return f"the ledger has no entry of a look at outcomes ({words.listed(LOOKS, last='or')}) {until}"
    entries = words.counted(len(found), "entry", "entries")
    return f"the ledger has {entries} of a look at outcomes {until}: {_named(context, found)}"


def _of_a_sequence(context: ReportContext, before: Sequence[Entry]) -> str:
    looked = [
        entry for entry in before if entry.event == "looked" and entry.registration in context.registration.lineage
    ]
    peeked = [entry for entry in before if entry.event == "peeked"]
    peeked += [entry for entry in recorded_afterwards(context.evidence.ledger) if entry not in peeked]
    planned = f": {_named(context, looked)}" if looked else ""
    others = f"{words.counted(len(peeked), 'other')}: {_named(context, peeked)}" if peeked else "no other"
    looks = words.counted(len(looked), "planned look")
    return f"before the look that decided, the ledger has {looks}{planned}; and {others}"


def _named(context: ReportContext, found: Sequence[Entry]) -> str:
    return words.listed(
        f"entry {entry.index} ({entry.event} {_when(entry)}"
        + ("" if entry.registration == context.registration.sha256 else ", under an earlier registration")
        + ")"
        for entry in found
    )


def _when(entry: Entry) -> str:
    if TOOK_PLACE not in entry.body:
        return words.moment(entry.at)
    return f"{words.moment(str(entry.body[TOOK_PLACE]))}, recorded afterwards, {words.moment(entry.at)}"


POST_HOC = (
    "Post hoc: computed after the data and no part of the verdict. Power is at the true effect of the design, never at "
    "the observed one; only the spread is taken from the data, and from few seeds it is uncertain."
)


def _said_look(look: Look, planned: int) -> str:
    return (
        f"The study ended at {look.words}, of at most {planned}. SD and correlation are those of the pairs it saw. "
        f"Detectable difference and power are those of all {planned} planned seeds judged once, as in the design: a "
        "study with looks has less power than that. It could stop because of what it found, which selects "
        "large estimates; by how much is not said here, nor how many seeds more it would have taken."
    )


def retrospective_section(context: ReportContext) -> Section | None:
    """Achieved against assumed, or nothing while nothing may be shown."""
    if context.withheld:
        return None
    found = look_back(context.registration, context.decision.findings)
    if not found:
        return None
    findings = {finding.hypothesis: finding for finding in context.decision.findings}
    correct = context.study.analysis.correct
    blocks: list[Block] = [Paragraph(POST_HOC, "aside"), _table(context.study, found, findings)]
    if context.decision.look is not None:
        blocks.insert(1, Paragraph(_said_look(context.decision.look, len(context.study.seeds)), "aside"))
    paired = [(one, findings[one.hypothesis]) for one in found]
    said = tuple(
        (finding.label, counted_as(context.study, text))
        for one, finding in paired
        if (text := _sentence(one, finding, correct))
    )
    if said:
        blocks.append(Facts(said))
    return Section("hindsight", "Looking back at the plan", tuple(blocks))


def _table(study: Study, found: tuple[Retrospective, ...], findings: dict[str, Finding]) -> Table:
    after = after_correction(study.analysis.correct)

    def pair(achieved: float | None, assumed: float | None, places: int) -> str:
        return " / ".join(NONE if one is None else words.number(one, places) for one in (achieved, assumed))

    def decimals(one: Retrospective) -> int:
        return estimates.finding_decimals(findings[one.hypothesis]) + 1

    return table_of(
        found,
        "Achieved / assumed.",
        {
            "Hypothesis": lambda one: findings[one.hypothesis].label,
            "SD of differences:": lambda one: pair(one.sd, one.sd_assumed, decimals(one)),
            "Correlation of the sides:": lambda one: pair(one.correlation, one.correlation_assumed, 2),
            "Detectable:": lambda one: pair(one.detectable, one.detectable_assumed, decimals(one)),
            "Power:": lambda one: estimates.power_at(one.power, one.effect),
            "n:": lambda one: str(one.n) if one.planned is None else f"{one.n} of {one.planned}",
        },
        note=f"Detectable: the true effect, or of a claim of no change the margin, found with power 80% by a "
        f"{counted_as(study, 'paired t')} {after}. Power: at the true effect in brackets, with the achieved SD.",
    )


def _sentence(one: Retrospective, finding: Finding, correct: str) -> str:
    size = f"{words.compact(one.effect or finding.smallest)} {finding.unit}".strip()
    where = estimates.stated_at(finding, one.effect)
    if one.exaggeration is not None and one.wrong_sign is not None and one.power is not None:
        return (
            f"Beware of the winner's curse. If the true difference were the registered {size}, this test would "
            f"find it with power {words.share(one.power)} (below {words.share(LOW_POWER)}), and an estimate that it "
            f"does find would on average be {words.number(one.exaggeration, 1)} times too large (type M error), with "
            f"the wrong sign in {words.share(one.wrong_sign)} of cases (type S error). "
            f"SD {words.compact(float(f'{one.sd:.3g}'))}, n = {one.n}, paired t {at_level(correct)} (Gelman "
            "and Carlin 2014)."
        )
    if one.beyond_reach:
        return (
            f"Inconclusive, and at the achieved SD no number of seeds up to 2,000 would give power 80% {where}: "
            "a less noisy measure is needed. Post hoc."
        )
    if one.more_seeds is None or one.power is None:
        return ""
    if one.more_seeds == 0:
        return (
            f"Inconclusive although the power {where} was {words.share(one.power)} at the achieved SD with n = "
            f"{one.n}: more seeds are not what was lacking. Post hoc."
        )
    more = words.counted(one.more_seeds, "more seed")
    return (
        f"Inconclusive. The same rule would need {more} ({one.n + one.more_seeds} in all) for power 80% {where}, "
        f"at the achieved SD and by a paired t {after_correction(correct)}. Post hoc: it plans another study and must "
        "not extend this one."
    )
