"""The part of the report that tells what was found about each hypothesis, in words, tables and figures.

The forest plot of all findings opens the report, but for findings that are not to be used.

While runs are missing there are no findings, and nothing that separates the arms may be shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import altair as alt

from ablate.judge.verdict import EffectSize, Estimate, Finding, Interval
from ablate.judge.wording import details_of
from ablate.reporting import charts, estimates
from ablate.reporting.blocks import Block, Facts, Figure, Panel, Paragraph, Section, Table, columns, table_of
from ablate.reporting.context import NOT_TO_BE_USED, ReportContext
from ablate.reporting.description import better_in
from ablate.reporting.estimates import NONE
from ablate.reporting.forest import (
    CELLS,
    any_unpaired,
    centre_in_words,
    counted,
    forest_figure,
    legend,
    method_of,
    n_of,
    test_of,
)
from ablate.reporting.headline import clause_of
from ablate.reporting.sections.final_values import tie_breakers_table
from ablate.reporting.tasks import summary_of_family, task_tables
from prereg import text as words
from prereg.documents.claims import capital
from prereg.study.designs.gate import in_words
from prereg.study.designs.per_task import said_once

EXPLORATORY = (
    "Findings marked (exploratory) were touched by an amendment that was made after evidence existed. Their numbers "
    "are shown like any others; they test nothing that was promised beforehand, and no verdict rests on them."
)
REUSED = (
    "Every finding is exploratory: other studies had sealed runs of this one before it was registered, as it declares, "
    "and their outcomes may have suggested its claims. No verdict rests on them."
)
WITHHELD = (
    "Nothing that separates the arms is shown while planned runs are missing or broken: no contrast, no curve, no "
    "final value. Seeing outcomes before the last run has ended would let the outcome choose when to stop, and the "
    "error rate promised above would no longer hold."
)
STOPPED_EARLY = (
    "The study stopped before its last look. After an early stop a mean difference errs towards what stopped it; the "
    "intervals hold whenever a study stops."
)
EFFECT_NAMES = {name: name for name in ("d_z", "g_z", "g_av")} | {
    "hedges_g": "Hedges' g (at equal variances)",
    "cliff_delta": "Cliff's delta",
}


def findings_section(context: ReportContext) -> Section:
    """Every hypothesis with its numbers, and the figures of the contrasts."""
    if context.withheld:
        because = Paragraph(context.decision.because)
        return Section("findings", "What was found", (because, Paragraph(WITHHELD, "warning")))
    findings = context.decision.findings
    blocks: list[Block] = [Paragraph(NOT_TO_BE_USED, "warning")] if context.unusable else []
    if any(finding.amended for finding in findings):
        blocks.append(Paragraph(REUSED if context.study.reuses else EXPLORATORY, "warning"))
    blocks += [
        Paragraph(context.decision.because),
        Facts(tuple(_facts(context))),
        *task_tables(context),
        _numbers(findings),
    ]
    if any(finding.gate for finding in findings):
        blocks.append(_gate(context))
    if context.unusable:
        blocks += [forest_figure(findings), Paragraph(legend(findings), "aside")]
    if any(finding.pairs for finding in findings):
        blocks += [*seed_figures(context), _seeds(findings)]
    blocks += runs_tables(findings)
    blocks += [_details(findings), _effects(findings)]
    if any(finding.also for finding in findings):
        blocks.append(_also(findings))
    if context.decision.look is not None and not context.decision.look.last:
        blocks.append(Paragraph(STOPPED_EARLY, "aside"))
    if context.decision.tie_breakers:
        blocks.append(tie_breakers_table(context))
    return Section("findings", "What was found", tuple(blocks))


def _facts(context: ReportContext) -> Iterator[tuple[str, str]]:
    """A sentence for each hypothesis, and one for each family per task."""
    by_name = {finding.hypothesis: finding for finding in context.decision.findings}
    for label, name in said_once(context.study).items():
        names = context.study.task_families.get(label)
        if names is not None:
            yield f"{label}, per task", summary_of_family([by_name[one] for one in names])
        else:
            yield f"{by_name[name].label}: {by_name[name].outcome}", _sentence(context, by_name[name])


def any_paired(findings: Iterable[Finding]) -> bool:
    """Whether any finding compares two sides of each seed."""
    return any(estimates.claim_of(finding).is_paired for finding in findings)


def _sentence(context: ReportContext, finding: Finding) -> str:
    """What it says with its numbers, in which zone the effect lies, what decided it, and its notes."""
    parts = [clause_of(context.study, finding)]
    if finding.estimate is not None:
        parts.append(f"decided by {estimates.proper(details_of(context.study, finding))}")
    if finding.margin is not None:
        parts.append(f"zone: {estimates.zone_of(finding)}")
    said = "; ".join(parts)
    return f"{capital(said) if said.startswith('whether ') else said}. {_joined(finding.notes)}".strip()


def df_of(estimate: Estimate) -> str:
    """Degrees of freedom: of seeds and of units where both are samples, unless tasks of unequal size have none."""
    items = estimate.items
    if estimate.df is not None:
        return words.compact(round(estimate.df, 2))
    if items is None:
        return NONE
    units = f"{items.n_units - 1:,}" if items.df is None else f"{items.df:,.4g}"
    return f"{estimate.n - 1}; {units if items.effective is None else 'exact'}"


def _numbers(findings: Sequence[Finding]) -> Table:
    corrected = estimates.is_corrected(findings)
    correction = "corrected over the hypotheses of the role" if corrected else "those of each test alone"
    if any(finding.gate for finding in findings):
        correction = "adjusted, support over the gate and refutation over the role"
    return table_of(
        findings,
        f"Findings by hypothesis. The difference is the claim's left side minus its right side: the "
        f"{centre_in_words(findings)}{_of_what(findings)}.",
        {
            **{name: CELLS[name] for name in ("Hypothesis", "Role", "Outcome", "Difference:", "Interval:")},
            "p to support:": lambda f: estimates.p_cell(f.p_support_adjusted, estimates.levels_of(f)),
            "p to refute:": lambda f: estimates.p_cell(f.p_refute_adjusted, estimates.levels_of(f)),
            **{name: CELLS[name] for name in ("n:", "Test")},
        },
        note=f"n: {counted(findings)}. Intervals: {estimates.levels_in_words(findings)}. Both p values are "
        f"{correction}; a small p to refute means that the data rule the claim out.",
    )


def _gate(context: ReportContext) -> Table:
    by_name = {finding.hypothesis: finding for finding in context.decision.findings}
    ordered = [by_name[name] for step in context.study.gate_steps for name in step]
    levels = [(f, f.gate) for f in ordered if f.gate is not None]

    def passed(finding: Finding, level: float) -> str:
        if finding.p_support is not None and finding.p_support <= level:
            return "yes"
        return "no" if level else "not tested: the gate before it did not open"

    return Table(
        f"Gate: support was tested {in_words(context.study)}.",
        columns("Hypothesis", "Share at first:", "Tested at level:", "p, alone:", "p, adjusted:", "Passed"),
        tuple(
            (
                f.label,
                estimates.significant(gate.weight, 6),
                estimates.significant(gate.level, 6),
                estimates.p_cell(f.p_support, estimates.levels_of(f)),
                estimates.p_cell(f.p_support_adjusted, estimates.levels_of(f)),
                passed(f, gate.level),
            )
            for f, gate in levels
        ),
        note=f"Share: of alpha = {words.compact(context.study.analysis.alpha)}. Level: alpha times the share that the "
        "hypothesis had once all others that passed had left. A claim that passed may still be refuted, as too small "
        "to matter.",
    )


def _of_what(findings: Sequence[Finding]) -> str:
    if any_unpaired(finding.estimate for finding in findings):
        return ""
    return " of the pairs" if any_paired(findings) else " of the seeds"


def _seeds(findings: Sequence[Finding]) -> Table:
    rows = []
    for finding in findings:
        gaps = [abs(pair.difference) for pair in finding.pairs if pair.difference]
        decimals = max(estimates.decimals_for(min(gaps), max(gaps)) if gaps else 3, estimates.finding_decimals(finding))
        decimals = min(decimals, estimates.finding_decimals(finding) + 2)
        for pair in finding.pairs:
            rows.append(
                (
                    finding.label,
                    str(pair.seed),
                    words.number(pair.left, decimals),
                    words.number(pair.right, decimals),
                    estimates.signed(pair.difference, decimals),
                    finding.unit,
                )
            )
    return Table(
        "The same values as numbers." if not any_paired(findings) else "The same pairs as numbers.",
        columns("Hypothesis", "Seed:", "Left side:", "Right side:", "Difference:", "Unit"),
        tuple(rows),
        folded=True,
    )


def runs_table(findings: Iterable[Finding]) -> Table:
    """Every run that entered a test, arm by arm."""
    rows = []
    for finding in findings:
        decimals = estimates.finding_decimals(finding)
        for sample in finding.samples:
            rows += [
                (finding.label, finding.labels.arm(sample.arm), str(seed), words.number(value, decimals), finding.unit)
                for seed, value in zip(sample.seeds, sample.values, strict=True)
            ]
    return Table(
        "The runs as numbers: none is paired with another.",
        columns("Hypothesis", "Arm", "Seed:", "Value:", "Unit"),
        tuple(rows),
        folded=True,
    )


def pairing_table(findings: Iterable[Finding]) -> Table | None:
    """What pairing by seed would have given where arms share seeds; none where they share none."""
    rows = []
    for finding in findings:
        shared, decimals = finding.shared, estimates.finding_decimals(finding) + 1
        if shared is not None:
            rows.append(
                (
                    finding.label,
                    str(shared.n),
                    words.number(shared.se_unpaired, decimals),
                    words.number(shared.se_paired, decimals),
                    NONE if shared.correlation is None else words.number(shared.correlation, 2),
                )
            )
    if not rows:
        return None
    return Table(
        "What pairing would have given: description over the seeds that all arms of a claim share. It decides nothing.",
        columns("Hypothesis", "Shared seeds:", "Standard error without pairs:", "With pairs:", "Correlation:"),
        tuple(rows),
        note="Both standard errors are of the difference over these seeds alone. A positive correlation makes the "
        "test without pairs more cautious than it need be; a negative one would make it err more often than alpha.",
    )


def runs_tables(findings: Sequence[Finding]) -> list[Block]:
    """Both tables of a study without pairs; nothing of another."""
    if not any(finding.samples for finding in findings):
        return []
    pairing = pairing_table(findings)
    return [*([] if pairing is None else [pairing]), runs_table(findings)]


def about_pairing(findings: Sequence[Finding]) -> str:
    """What a standard error takes for granted of the runs of one seed."""
    if any_unpaired(finding.estimate for finding in findings):
        return "The runs of different arms are taken to be independent."
    if not any(estimates.claim_of(finding).is_paired for finding in findings):
        return ""
    return "Pairing helps in proportion to the correlation of the two sides over seeds."


def _details(findings: Sequence[Finding]) -> Table:
    notes = [note for finding in findings if finding.estimate for note in finding.estimate.notes]
    return Table(
        "The registered tests in detail, each against zero and by itself. An interval given here decides nothing.",
        columns(
            "Hypothesis",
            "Test",
            "Uncorrected, against zero:",
            "Two-sided p:",
            "Smallest p possible:",
            "Standard error:",
            "df:",
            "Correlation of the sides:",
            "n:",
        ),
        tuple(map(_detail, findings)),
        note=_joined([*filter(None, [about_pairing(findings)]), *notes]),
    )


def _detail(finding: Finding) -> tuple[str, ...]:
    estimate, decimals, levels = finding.estimate, estimates.finding_decimals(finding), estimates.levels_of(finding)
    if estimate is None:
        return finding.label, "no test", *[NONE] * 7
    bounds = estimate.interval
    return (
        finding.label,
        method_of(finding),
        _alone(finding, bounds, decimals),
        estimates.p_cell(estimate.p, levels),
        estimates.p_cell(estimate.p_floor, levels),
        NONE if estimate.se is None else words.number(estimate.se, decimals + 1),
        df_of(estimate),
        NONE if finding.correlation is None else words.number(finding.correlation, 2),
        n_of(estimate, finding.n),
    )


def _alone(finding: Finding, bounds: Interval | None, decimals: int) -> str:
    """The interval of a test against zero without correction, where it is not the one that the finding has anyway."""
    shown = estimates.shown_interval(finding)
    if bounds is not None and shown is not None and (bounds.low, bounds.high) == (shown.low, shown.high):
        return "the one above"
    return estimates.interval(bounds, decimals) + (f" ({words.level(bounds.level)})" if bounds else "")


def _effect(effect: EffectSize) -> str:
    text = estimates.signed(effect.value, 2)
    return text if effect.interval is None else f"{text} {estimates.interval(effect.interval, 2)}"


def _effects(findings: Iterable[Finding]) -> Table:
    names = list(dict.fromkeys(effect.name for finding in findings for effect in finding.effects))
    rows = []
    for finding in findings:
        found = {effect.name: _effect(effect) for effect in finding.effects}
        rows.append((finding.label, *[found.get(name, NONE) for name in names], str(finding.n)))
    methods = dict.fromkeys(
        f"{EFFECT_NAMES[e.name]}: {e.interval.method} ({words.level(e.interval.level)})"
        for f in findings
        for e in f.effects
        if e.interval
    )
    note = (
        "Standardised by the spread over seeds, which is small for trained models: large values are common and say "
        "nothing about importance. The raw difference does."
    )
    return Table(
        "Effect sizes, with intervals where they exist.",
        columns("Hypothesis", *(f"{EFFECT_NAMES[name]}:" for name in names), "n:"),
        tuple(rows),
        note=_joined([note, "; ".join(methods)]),
    )


def _also(findings: Sequence[Finding]) -> Table:
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    for finding in findings:
        decimals, levels = estimates.finding_decimals(finding), estimates.levels_of(finding)
        for estimate in finding.also:
            difference = estimates.signed(estimate.difference, decimals)
            interval = estimates.interval(estimate.interval, decimals)
            ps = (estimates.p_cell(p, levels) for p in (estimate.p, estimate.p_floor))
            n = n_of(estimate, estimate.n)
            test = test_of(estimate, paired=estimates.claim_of(finding).is_paired)
            rows.append((finding.label, test, difference, interval, *ps, n))
            notes += estimate.notes
    heads = ("Hypothesis", "Test", "Difference:", "Interval:", "Two-sided p, alone:", "Smallest p possible:", "n:")
    caption = "Other tests, registered as description. They decide nothing."
    return Table(caption, columns(*heads), tuple(rows), note=_joined(notes))


def _joined(notes: Iterable[str]) -> str:
    kept = [note.strip() for note in dict.fromkeys(notes) if note.strip()]
    return estimates.proper(" ".join(_capital(note) + ("" if note.endswith(".") else ".") for note in kept))


def _capital(note: str) -> str:
    return note[0].upper() + note[1:] if note[:2].isalpha() else note  # d_z stays d_z


def seed_figures(context: ReportContext) -> tuple[Figure, ...]:
    """One figure of pairs and one of single numbers, as far as the findings hold any."""
    paired: list[Panel] = []
    single: list[Panel] = []
    for finding in context.decision.findings:
        # Dozens of claims per task would be dozens of panels; their pairs are in the table of pairs.
        if finding.pairs and not context.study.hypotheses[finding.hypothesis].family:
            of_pairs = context.study.claims[finding.hypothesis].is_paired
            (paired if of_pairs else single).append((_paired if of_pairs else _single)(context, finding))
    figures = []
    if paired:
        caption = (
            "Every pair, seed by seed: one line for each seed, from the claim's right side to its left side. Solid "
            "blue lines fall, dashed orange lines rise. No summary is drawn."
        )
        figures.append(Figure("Pairs", caption, tuple(paired)))
    if single:
        caption = (
            "Every seed's value, and what the claim compares it with as a dashed line. Blue circles lie below it, "
            "orange triangles do not. No summary is drawn."
        )
        figures.append(Figure("Seeds", caption, tuple(single)))
    return tuple(figures)


def _paired(context: ReportContext, finding: Finding) -> Panel:
    claim = context.study.claims[finding.hypothesis]
    left, right = (side[1:-1] if side.startswith("(") else side for side in (claim.left_side, claim.right_side))
    way, count = better_in(finding.better, (pair.difference for pair in finding.pairs))
    return Panel(
        f"{finding.label}: {finding.claim_shown}, n = {finding.n}; left side {way} in {count} of {len(finding.pairs)}",
        partial(charts.paired, finding, left, right),
        f"Paired plot of {finding.metric_shown}, {right} against {left}: {way} on the left side of the claim in "
        f"{count} of {len(finding.pairs)} seeds.",
    )


def _single(context: ReportContext, finding: Finding) -> Panel:
    left = context.study.claims[finding.hypothesis].left_side
    way, count = better_in(finding.better, (pair.difference for pair in finding.pairs))
    return Panel(
        f"{finding.label}: {finding.claim_shown}, n = {finding.n}; {way} in {count} of {len(finding.pairs)}",
        partial(by_seed, finding),
        f"{finding.metric_shown} of {left} by seed: {way} than {words.compact(finding.pairs[0].right)} in {count} of "
        f"{len(finding.pairs)} seeds.",
    )


def by_seed(finding: Finding) -> alt.LayerChart:
    """One point for each seed, and a line at what all are compared with."""
    rows: list[dict[str, Any]] = [
        {"seed": str(pair.seed), "value": pair.left, "way": "below" if pair.difference < 0 else "not below"}
        for pair in finding.pairs
    ]
    reference = finding.pairs[0].right
    low, high = charts.padded([reference, *(pair.left for pair in finding.pairs)])
    title = estimates.with_unit(finding.metric_shown, finding.unit)
    y = charts.quantity(alt.Y, "value", (low, high), zero=False, title=title, tickCount=5, titleLimit=220)
    x = alt.X("seed:N", sort=None, axis=alt.Axis(title="seed", labelAngle=0))
    point = alt.Chart(charts.inline(rows)).mark_point(filled=True, size=60, opacity=1)
    line = alt.Chart(charts.inline([{"value": reference}]))
    return charts.dressed(
        alt.layer(
            line.mark_rule(color=charts.INK, strokeDash=[5, 3]).encode(y=y),
            point.encode(
                x=x,
                y=y,
                color=_by_way(alt.Color, [charts.BLUE, charts.VERMILLION]),
                shape=_by_way(alt.Shape, ["circle", "triangle-up"]),
            ),
        ),
        charts.PANEL_WIDTH,
        220,
        fit=True,
    )


def _by_way(channel: Any, kinds: Sequence[str]) -> Any:
    return channel("way:N", legend=None, scale=alt.Scale(domain=["below", "not below"], range=list(kinds)))
