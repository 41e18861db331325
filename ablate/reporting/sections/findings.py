"""The part of the report that tells what was found about each hypothesis, in words, tables and figures.

While runs are missing there are no findings, and nothing that separates the arms may be shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from ablate.judge.stats.paired_t import one_sample
from ablate.judge.verdict import EffectSize, Estimate, Finding
from ablate.judge.wording import is_pseudomedian
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Figure, Panel, Paragraph, Section, Table, columns, table_of
from ablate.reporting.charts import forest
from ablate.reporting.context import NOT_TO_BE_USED, ReportContext
from ablate.reporting.estimates import NONE
from ablate.reporting.sections.described import bayes_table, stopped_table
from ablate.reporting.sections.final_values import tie_breakers_table
from ablate.reporting.sections.seed_values import seed_figures
from ablate.reporting.sections.unpaired import about_pairing, any_unpaired, runs_in_words, runs_tables, what_n_counts
from ablate.reporting.tasks import of_all_tasks, summary_of_family, task_tables
from prereg import text as words
from prereg.documents.procedures import PSEUDOMEDIAN
from prereg.study.designs.gate import in_words
from prereg.study.designs.per_task import said_once

EXPLORATORY = (
    "Findings marked (exploratory) were touched by an amendment that was made after evidence existed. Their numbers "
    "are shown like any others; they test nothing that was promised beforehand, and no verdict rests on them."
)
WITHHELD = (
    "Nothing that separates the arms is shown while planned runs are missing or broken: no contrast, no curve, no "
    "final value. Seeing outcomes before the last run has ended would let the outcome choose when to stop, and the "
    "error rate promised above would no longer hold."
)
SHORT_TESTS = {
    "paired_t": "paired t",
    "bootstrap_t": "bootstrap-t",
    "sign_flip": "sign-flip",
    "wilcoxon": "Wilcoxon",
    "e_process": "e-process",
    "percentile": "percentile bootstrap",
    "bca": "BCa bootstrap",
    "items": "seeds x items",
    "welch": "Welch's t",
    "permutation": "permutation",
}
EFFECT_NAMES = {name: name for name in ("d_z", "g_z", "g_av")} | {
    "hedges_g": "Hedges' g",
    "cliff_delta": "Cliff's delta",
}


def findings_section(context: ReportContext) -> Section:
    """Every hypothesis with its numbers, and the figures of the contrasts."""
    if context.withheld:
        return Section("findings", "What was found", (Paragraph(WITHHELD, "warning"),))
    findings = context.decision.findings
    blocks: list[Block] = [Paragraph(NOT_TO_BE_USED, "warning")] if context.unusable else []
    if any(finding.amended for finding in findings):
        blocks.append(Paragraph(EXPLORATORY, "warning"))
    blocks += [
        Facts(tuple(_facts(context))),
        *task_tables(context),
        _numbers(findings),
        _outcomes(findings),
    ]
    if any(finding.gate for finding in findings):
        blocks.append(_gate(context))
    blocks += [_forest(group) for group in _by_scale(findings)]
    if any(finding.pairs for finding in findings):
        blocks += [*seed_figures(context), _seeds(findings)]
    blocks += runs_tables(findings)
    blocks += [_details(findings), _effects(findings)]
    if any(finding.also or finding.beside for finding in findings):
        blocks.append(_also(findings))
    blocks += [table for table in (bayes_table(context), stopped_table(context)) if table is not None]
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
            yield f"{by_name[name].label}: {by_name[name].outcome}", _sentence(by_name[name])


def any_paired(findings: Iterable[Finding]) -> bool:
    """Whether any finding compares two sides of each seed."""
    return any(estimates.claim_of(finding).is_paired for finding in findings)


def _sentence(finding: Finding) -> str:
    return estimates.proper(f"{finding.sentence} {_joined(finding.notes)}".strip())


def method_of(finding: Finding) -> str:
    """The test of a finding in words."""
    if finding.estimate is None:
        return "no test"
    return test_of(finding.estimate, paired=estimates.claim_of(finding).is_paired)


def test_of(estimate: Estimate, *, paired: bool = True) -> str:
    """A test in words; over items, what it speaks of too. Without `paired` each seed gives one number."""
    items = estimate.items
    if items is None:
        name = SHORT_TESTS.get(estimate.method, estimate.method)
        return name if paired else one_sample(name)
    if items.estimand == "new_seeds":
        return f"paired t over seeds' means, new seeds on these {items.unit}"
    return f"two-way t, new seeds and new {items.unit}" + " of these tasks" * (items.strata is not None)


def df_of(estimate: Estimate) -> str:
    """Degrees of freedom: of seeds and of units where both are samples, unless tasks of unequal size have none."""
    items = estimate.items
    if estimate.df is not None:
        return words.compact(round(estimate.df, 2))
    if items is None:
        return NONE
    units = f"{items.n_units - 1:,}" if items.df is None else f"{items.df:,.4g}"
    return f"{estimate.n - 1}; {units if items.effective is None else 'exact'}"


def n_of(estimate: Estimate | None, pairs: int) -> str:
    """Pairs; over items, seeds x items."""
    items = None if estimate is None else estimate.items
    if estimate is not None and estimate.sizes:
        return runs_in_words(estimate.sizes)
    if items is None:
        return str(pairs)
    unit = items.unit if items.n_units > 1 else items.unit[:-1]
    return f"{pairs} x {items.n_units:,} {unit}" + (f" ({items.n_items:,} items)" if items.unit == "tasks" else "")


def centre_in_words(findings: Iterable[Finding]) -> str:
    """Which number the differences are."""
    kinds = {is_pseudomedian(finding.estimate) for finding in findings if finding.estimate}
    names = {False: "mean difference", True: PSEUDOMEDIAN}
    return " or ".join(names[kind] for kind in sorted(kinds)) or names[False]


def _outcomes(findings: Iterable[Finding]) -> Table:
    return table_of(
        findings,
        "What each outcome says, and in which zone the effect was shown to lie.",
        {
            "Hypothesis": lambda f: f.label,
            "Outcome": lambda f: f.outcome,
            "That is": estimates.meaning_of,
            "Zone": estimates.zone_of,
            "Role": lambda f: f.role,
        },
        note="Zone: at least the smallest difference that matters, short of it, or undecided; a dash: none is set.",
    )


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
            "Hypothesis": lambda f: f.label,
            "Outcome": lambda f: f.outcome,
            "Difference:": estimates.difference_of,
            "Interval:": estimates.interval_of,
            "p to support:": lambda f: estimates.p_cell(f.p_support_adjusted, estimates.levels_of(f)),
            "p to refute:": lambda f: estimates.p_cell(f.p_refute_adjusted, estimates.levels_of(f)),
            "n:": lambda f: n_of(f.estimate, f.n),
            "Test": method_of,
        },
        note=f"n: {_counted(findings)}. Intervals: {_interval_methods(findings)}. Both p values are "
        f"{correction}; a small p to refute means that the data rule the claim out.",
    )


def _gate(context: ReportContext) -> Table:
    by_name = {finding.hypothesis: finding for finding in context.decision.findings}
    ordered = [by_name[name] for stage in context.study.stages for name in stage.names]
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
                words.compact(float(f"{gate.weight:.6g}")),
                words.compact(float(f"{gate.level:.6g}")),
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


def _counted(findings: Sequence[Finding]) -> str:
    over_items = any(finding.estimate and finding.estimate.items for finding in findings)
    return what_n_counts(findings) + (", and the items or tasks that every run was scored on" if over_items else "")


def _of_what(findings: Sequence[Finding]) -> str:
    if any_unpaired(finding.estimate for finding in findings):
        return ""
    return " of the pairs" if any_paired(findings) else " of the seeds"


def _interval_methods(findings: Iterable[Finding]) -> str:
    methods = []
    for finding in findings:
        bounds = estimates.shown_interval(finding) if finding.estimate else None
        if bounds is not None:
            why = " (1 − 2 alpha, as a margin is tested on one side)" if estimates.rests_on_margin(finding) else ""
            methods.append(f"{bounds.method.removesuffix(', Bonferroni over 1')} at {words.level(bounds.level)}{why}")
    return "; ".join(dict.fromkeys(methods)) or "none available at this n"


def _by_scale(findings: Iterable[Finding]) -> list[list[Finding]]:
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        # The tasks of a family share one figure.
        groups.setdefault((of_all_tasks(finding.metric), finding.scale, finding.unit), []).append(finding)
    return list(groups.values())


def _forest(findings: list[Finding]) -> Figure:
    metric = findings[0].metric if len(findings) == 1 else of_all_tasks(findings[0].metric)
    said = "; ".join(
        f"{f.label}: {estimates.difference_of(f)} {estimates.interval_of(f)}, {f.outcome}, n = {f.n}" for f in findings
    )
    levels = {finding.estimate.interval.level for finding in findings if finding.estimate and finding.estimate.interval}
    against_zero = any(f.estimate and f.simultaneous and not estimates.rests_on_margin(f) for f in findings)
    alone = len(levels) == 1 and against_zero
    thick = f"thick bar: the {words.level(levels.pop())} interval of a test against zero alone; " if alone else ""
    caption = (
        f"Point: {centre_in_words(findings)} (circle supported, square refuted, diamond inconclusive); {thick}thin "
        f"bar: {_interval_methods(findings)}; grey: differences too small to matter, as registered. "
        + " ".join(
            f"{f.label}: {f.outcome}, {estimates.meaning_of(f)}; zone: {estimates.zone_of(f)}; "
            f"n = {n_of(f.estimate, f.n)}, {method_of(f)}."
            for f in findings
        )
    )
    return Figure(
        f"Differences in {metric}",
        caption,
        (
            Panel("", partial(forest, findings, wide=True), f"Forest plot. {said}.", "wide"),
            Panel("", partial(forest, findings, wide=False), f"Forest plot. {said}.", "narrow"),
        ),
    )


def _seeds(findings: Sequence[Finding]) -> Table:
    rows = []
    for finding in findings:
        gaps = [abs(pair.difference) for pair in finding.pairs if pair.difference]
        decimals = max(estimates.decimals_for(min(gaps)) if gaps else 3, estimates.finding_decimals(finding))
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


def _details(findings: Sequence[Finding]) -> Table:
    notes = [note for finding in findings if finding.estimate for note in finding.estimate.notes]
    return Table(
        "The registered tests in detail, each against zero and by itself.",
        columns(
            "Hypothesis",
            "Test",
            "Interval of this test alone:",
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
        estimates.interval(bounds, decimals) + (f" ({words.level(bounds.level)})" if bounds else ""),
        estimates.p_cell(estimate.p, levels),
        estimates.p_cell(estimate.p_floor, levels),
        NONE if estimate.se is None else words.number(estimate.se, decimals + 1),
        df_of(estimate),
        NONE if finding.correlation is None else words.number(finding.correlation, 2),
        n_of(estimate, finding.n),
    )


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
        for bounds in finding.beside:
            shown = f"{estimates.interval(bounds, decimals)} ({words.level(bounds.level)})"
            n = n_of(finding.estimate, finding.n)
            rows.append((finding.hypothesis, "pigeonhole bootstrap", NONE, shown, NONE, NONE, n))
        for estimate in finding.also:
            difference = estimates.signed(estimate.difference, decimals)
            interval = estimates.interval(estimate.interval, decimals)
            ps = (estimates.p_cell(p, levels) for p in (estimate.p, estimate.p_floor))
            n = n_of(estimate, estimate.n)
            test = test_of(estimate, paired=estimates.claim_of(finding).is_paired)
            rows.append((finding.label, test, difference, interval, *ps, n))
            notes += estimate.notes
    notes += [bounds.method for finding in findings for bounds in finding.beside]
    what = "Other tests, registered as description" if any(f.also for f in findings) else "Other intervals"
    heads = ("Hypothesis", "Test", "Difference:", "Interval:", "Two-sided p, alone:", "Smallest p possible:", "n:")
    return Table(f"{what}. They decide nothing.", columns(*heads), tuple(rows), note=_joined(notes))


def _joined(notes: Iterable[str]) -> str:
    kept = [note.strip() for note in dict.fromkeys(notes) if note.strip()]
    return estimates.proper(" ".join(_capital(note) + ("" if note.endswith(".") else ".") for note in kept))


def _capital(note: str) -> str:
    return note[0].upper() + note[1:] if note[:2].isalpha() else note  # d_z stays d_z
