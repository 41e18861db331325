"""The part of the report that lets a reader distrust it: pairs, checks, deviations, runs, provenance, times.

The judge's checks decide admissibility; the tables here only lay out what the records say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from ablate.judge.audit.audit import MEANS, why
from ablate.judge.verdict import Check, Stability
from ablate.judge.wording import share_of_bound
from ablate.records.run_record import RunRecord
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns, table_of
from ablate.reporting.context import ReportContext
from ablate.reporting.description import seconds_by_suite
from ablate.reporting.estimates import NONE
from ablate.reporting.summaries.proof import describe_decision
from prereg import text as words
from prereg.documents.designs import pairing, sample
from prereg.registry.amendments import Amendment, affected, amendments_of, reached
from prereg.registry.ledger_entry import Entry
from prereg.registry.looks import decisions_before

SEVERITY_ORDER = {"inadmissible": 0, "deviation": 1, "note": 2}


def pairs_section(context: ReportContext) -> Section:
    """How large the arms are, and whether runs of one seed share what they must."""
    if len(context.study.arms) == 1:
        sizes = None if context.study.trainer == "command" else _parameters(context)
        one = Paragraph("There is one arm: no two runs of a seed are compared.")
        return Section("pairs", "The arm", (*([] if sizes is None else [sizes]), one))
    if not context.study.paired:
        sizes = _parameters(context) if context.study.trainer == "gpt" else None
        runs = Paragraph(f"{sample(context.study)} {pairing(context.study)}")
        return Section("pairs", "Arms and their runs", (*([] if sizes is None else [sizes]), runs))
    if context.study.trainer == "command":
        said = (
            "A user's own trainer made these runs. It was handed the same seed for every arm, and states neither "
            "parameters nor hashes of weights and batches: that runs of one seed form pairs is its promise."
        )
        return Section("pairs", "Arms and matched pairs", (Paragraph(said),))
    none = Paragraph("No two runs of one seed have both begun, so there is no pair to audit yet.")
    sizes = _parameters(context)
    return Section("pairs", "Arms and matched pairs", (*([] if sizes is None else [sizes]), _matched(context) or none))


def _by_cell(context: ReportContext) -> dict[tuple[str, int], RunRecord]:
    return {run.cell: run for run in context.evidence.runs}


def parameters_of(context: ReportContext) -> dict[str, int]:
    """Trainable parameters of every arm that has run; its seeds must agree."""
    counts: dict[str, set[int]] = {}
    for run in context.evidence.runs:
        counts.setdefault(run.variant, set()).add(run.parameters)
    return {arm: counts[arm].pop() for arm in context.study.arms if len(counts.get(arm, set())) == 1}


def parameters_in_words(arm: str, count: int, baseline: str, baseline_count: int) -> str:
    """`layernorm has 256 parameters more than none, 0.016%`."""
    gap = count - baseline_count
    if gap == 0:
        return f"{arm} has as many parameters as {baseline}"
    share = 100 * abs(gap) / baseline_count if baseline_count else 0.0
    percent = f", {words.number(share, estimates.decimals_for(share))}%" if baseline_count else ""
    way = "more" if gap > 0 else "fewer"
    return f"{arm} has {words.counted(abs(gap), 'parameter')} {way} than {baseline}{percent}"


def _parameters(context: ReportContext) -> Table | None:
    counts, baseline = parameters_of(context), context.study.baseline
    if not counts:
        return None
    rows = []
    for arm, count in counts.items():
        said = "the baseline" if arm == baseline else ""
        if arm != baseline and baseline in counts:
            said = parameters_in_words(context.arm(arm), count, context.arm(baseline), counts[baseline])
        rows.append((context.arm(arm), f"{count:,}", said))
    return Table(
        "Trainable parameters by arm, tied ones counted once.",
        columns("Arm", "Parameters:", "Against the baseline"),
        tuple(rows),
    )


def _matched(context: ReportContext) -> Table | None:
    cells, baseline = _by_cell(context), context.study.baseline
    rows = []
    for arm in context.study.arms:
        pairs = [
            (cells[arm, seed], cells[baseline, seed])
            for seed in context.study.seeds
            if arm != baseline and (arm, seed) in cells and (baseline, seed) in cells
        ]
        hashed = [
            (mine.must_match, theirs.must_match) for mine, theirs in pairs if mine.must_match and theirs.must_match
        ]
        if not hashed or context.study.trainer != "gpt":
            continue
        initial = "initial/"
        shared = [
            mine[name] == theirs[name]
            for mine, theirs in hashed
            for name in mine.keys() & theirs.keys()
            if name.startswith(initial)
        ]
        alone = sorted({name.removeprefix(initial) for mine, theirs in hashed for name in mine.keys() ^ theirs.keys()})
        equal = {name: sum(mine[name] == theirs[name] for mine, theirs in hashed) for name in ("batches", "dropout")}
        total = len(hashed)
        rows.append(
            (
                f"{context.arm(arm)} and {context.arm(baseline)}",
                f"{sum(shared):,} of {len(shared):,}",
                f"{equal['batches']} of {total}",
                f"{equal['dropout']} of {total}",
                f"{sum(mine.tokens == theirs.tokens for mine, theirs in pairs)} of {len(pairs)}",
                words.listed(alone) or NONE,
            )
        )
    if not rows:
        return None
    return Table(
        "Matched pairs. What runs of one seed must share, compared by hash.",
        columns(
            "Pair",
            "Shared initial tensors equal:",
            "Batches equal:",
            "Dropout keys equal:",
            "Tokens equal:",
            "In one arm only",
        ),
        tuple(rows),
        note="Initial tensors are counted over all seeds; the other columns count pairs. Arms that differ in shape, "
        "data or budget, and runs that ended early, are not expected to agree in all of it; the checks say what "
        "was required.",
    )


BEYOND_CHECKS = (
    "No check can show that values were not changed before their run was sealed, that a trainer did not treat arms "
    "differently in a way that it does not record, that the ledger was not made up as a whole, or that data and "
    "environment were the same where the registration does not pin them. What would show it: runs made again by "
    "somebody else (ablate reproduce), seals of the lock, and a ledger head that somebody else has held since."
)


def checks_section(context: ReportContext) -> Section:
    """Every check that held, and stability; what did not hold is under Deviations."""
    checks = in_order(context.decision.checks)
    blocks: list[Block] = []
    passed = [check for check in checks if check.passed]
    if passed:
        blocks.append(_checks(passed, f"Checks that held: {len(passed)} of {len(checks)}."))
    if not checks:
        blocks.append(Paragraph("No check was recorded.", "warning"))
    if not context.withheld:
        blocks.append(_stability(context))
    blocks.append(Paragraph(BEYOND_CHECKS, "aside"))
    return Section("checks", "Checks and stability", tuple(blocks))


def in_order(checks: Iterable[Check]) -> list[Check]:
    """Failed checks first, the gravest on top."""
    return sorted(checks, key=lambda check: (check.passed, SEVERITY_ORDER[check.severity]))


def _checks(checks: list[Check], caption: str) -> Table:
    rows = tuple((check.name, "held", check.found, check.required or NONE) for check in checks)
    return Table(caption, columns("Check", "Result", "Found", "Required"), rows)


def _stability(context: ReportContext) -> Table:
    stability = context.decision.stability
    above = next((f" A spike has a robust z above {words.compact(arm.above)}." for arm in stability if arm.above), "")
    short = any(arm.not_reached for arm in stability)
    return table_of(
        stability,
        f"Stability by the registered rule. One unstable run makes an arm unstable.{above}",
        {
            "Arm": lambda arm: context.arm(arm.variant),
            "Stability": lambda arm: "stable" if arm.stable else "unstable",
            "Runs:": lambda arm: str(arm.runs),
            "Diverged": lambda arm: words.listed(f"seed {seed}" for seed in arm.diverged) or NONE,
            "Loss spikes": lambda arm: "; ".join(_spikes(arm)) or NONE,
            **({"Level not reached": lambda arm: "; ".join(_not_reached(arm)) or NONE} if short else {}),
            "Rate, up to:": share_of_bound,
        },
        note="Rate: 95% upper bound (Clopper and Pearson) for the chance that a run is unstable.",
        marked=frozenset(at for at, arm in enumerate(stability) if not arm.stable),
    )


def _spikes(arm: Stability) -> Iterator[str]:
    for seed, steps in sorted(arm.spikes.items()):
        if steps:
            more = f" and {len(steps) - 6} more" if len(steps) > 6 else ""
            yield f"seed {seed}: step {', '.join(map(str, steps[:6]))}{more}"


def _not_reached(arm: Stability) -> Iterator[str]:
    for seed, best in sorted(arm.not_reached.items()):
        values = ("no value" if value is None else words.compact(float(f"{value:.5g}")) for value in best.values())
        yield f"seed {seed}: " + ", ".join(f"{metric} {value}" for metric, value in zip(best, values, strict=True))


def runs_section(context: ReportContext) -> Section:
    """Attempts, provenance, times and the hashes that tie the report to its evidence."""
    blocks = _attempts(context)
    if context.evidence.runs:
        blocks += [*_mishaps(context), _provenance(context), _times(context)]
    blocks.append(
        Facts(
            (
                ("Registration sha256", context.decision.registration),
                ("Registered file sha256", context.registration.source_sha256),
                ("Evidence sha256", context.decision.evidence),
                ("Ledger head", context.ledger_head),
                ("Report dated", words.moment(context.generated_at)),
            )
        )
    )
    return Section("runs", "Runs and provenance", tuple(blocks))


def _mishaps(context: ReportContext) -> list[Block]:
    """What was got over in runs of one attempt; of others the check of attempts tells it."""
    runs = [run for run in context.evidence.runs if run.mishaps and run.attempts == 1]
    found = tuple((f"{context.arm(run.variant)} seed {run.seed}", "; ".join(run.mishaps)) for run in runs)
    return [Facts(found)] if found else []


def _attempts(context: ReportContext) -> list[Block]:
    cells = _by_cell(context)
    statuses = Counter(cells[cell].status if cell in cells else "not started" for cell in context.evidence.planned)
    counted = words.listed(f"{count} {status}" for status, count in sorted(statuses.items()))
    summary = f"Planned runs: {len(context.evidence.planned)} ({counted or 'none'})."
    eventful = [run for run in context.evidence.runs if run.attempts > 1 or run.resumed_from or run.status != "done"]
    if context.withheld:  # which arm failed or diverged is an outcome too
        eventful = [run for run in eventful if run.status != "diverged"]
        summary = (
            f"Planned runs: {len(context.evidence.planned)}, of which {len(context.evidence.missing)} are neither "
            "done nor diverged."
        )
    if not eventful:
        return [Paragraph(f"{summary} Every run that ended did so in one attempt.")]
    attempts = table_of(
        eventful,
        "Runs that took more than one attempt, or did not end as done.",
        {
            "Arm": lambda run: context.arm(run.variant),
            "Seed:": lambda run: str(run.seed),
            "Status": lambda run: run.status,
            "Attempts:": lambda run: str(run.attempts),
            "Resumed from step": lambda run: words.listed(map(str, run.resumed_from)) or NONE,
            "Error": lambda run: run.error or NONE,
        },
    )
    return [Paragraph(summary), attempts]


def _versions(run: RunRecord) -> str:
    made = run.provenance
    return ", ".join(dict.fromkeys((made.python, made.torch, made.numpy)))


PROVENANCE: tuple[tuple[str, Callable[[RunRecord], str]], ...] = (
    ("Code sha256", lambda run: run.provenance.code),
    (
        "Commit",
        lambda run: (run.provenance.commit or "none") + (", with uncommitted changes" if run.provenance.dirty else ""),
    ),
    ("Python, torch, numpy", _versions),
    ("Platform", lambda run: run.provenance.platform),
    ("Processor", lambda run: run.provenance.processor),
    ("Device", lambda run: run.provenance.device),
    ("Compiled by", lambda run: run.provenance.compiler),
    ("Threads of a run", lambda run: str(run.provenance.threads or "not stated")),
)


def _provenance(context: ReportContext) -> Facts:
    items = []
    for name, read in PROVENANCE:
        seen = Counter(read(run) for run in context.evidence.runs)
        text = (
            next(iter(seen))
            if len(seen) == 1
            else "; ".join(
                f"{value or 'nothing stated'} ({words.counted(count, 'run')})" for value, count in seen.most_common()
            )
        )
        if text:
            items.append((name, text))
    tools = ", ".join(f"{name} {version}" for name, version in context.registration.tool.items())
    return Facts((*items, ("Registered with", tools)))


def _times(context: ReportContext) -> Table:
    runs = context.evidence.runs
    training, evaluation, wall = (sum(getattr(run, name) for run in runs) for name in ("train_s", "eval_s", "wall_s"))
    other = max(0.0, wall - training - evaluation)
    parts = [
        ("Training steps", training),
        ("Evaluation", evaluation),
        *((f"of it, suite {suite}", seconds) for suite, seconds in seconds_by_suite(context.evidence).items()),
        ("Other (start, reading, sealing)", other),
    ]
    if context.study.trainer == "command":  # it does not say what it spent its time on
        parts = []
    rows = tuple(
        (name, words.duration(seconds), f"{100 * seconds / wall:.0f}%" if wall else NONE)
        for name, seconds in [*parts, ("All", wall)]
    )
    return Table(
        f"Time, summed over {words.counted(len(runs), 'run')} and all attempts.",
        columns("Part", "Time:", "Share:"),
        rows,
    )


NONE_FOUND = (
    "Every check held, and no early look is in the ledger; no check can show whether somebody read the records by hand."
)


def deviations_section(context: ReportContext) -> Section:
    """Every check that did not hold, the gravest first, and every amendment."""
    failed = [check for check in in_order(context.decision.checks) if not check.passed]
    blocks: list[Block] = [_found(failed, len(context.decision.checks))] if failed else [Paragraph(NONE_FOUND)]
    earlier = decisions_before(context.evidence.ledger, context.registration.lineage, context.ledger_head)
    if earlier:
        blocks.append(Paragraph(f"Earlier decisions of this registration: {decisions_in_words(earlier)}."))
    amendments = amendments_of(context.evidence.ledger)
    if amendments:
        blocks.append(_amendments(context, amendments))
    return Section("deviations", "Deviations", tuple(blocks))


def decisions_in_words(entries: Sequence[Entry]) -> str:
    """`entry 18 (2026-11-20 23:38 UTC, keep none)`, of each decision."""
    return words.listed(f"entry {one.index} ({words.moment(one.at)}, {describe_decision(one.body)})" for one in entries)


def _found(failed: list[Check], total: int) -> Table:
    return table_of(
        failed,
        f"Checks that did not hold: {len(failed)} of {total}.",
        {
            "Check": lambda check: check.name,
            "Found": lambda check: check.found,
            "Required": lambda check: check.required or NONE,
            "Consequence": lambda check: MEANS[check.severity],
            "Why": lambda check: why(check) or NONE,
        },
        note=f"Consequences: {words.listed(MEANS.values(), last='or')}. The whole table of checks: docs/checks.md.",
        marked=frozenset(at for at, check in enumerate(failed) if check.severity != "note"),
    )


def _amendments(context: ReportContext, amendments: tuple[Amendment, ...]) -> Table:
    rows: list[tuple[str, ...]] = []
    marked: set[int] = set()
    for amendment in amendments:
        for field, (hypotheses, arms, rule) in reached(context.study, amendment.differences).items():
            late = amendment.after_evidence and bool(hypotheses or arms or rule)
            difference = next((one for one in amendment.differences if one.field == field), None)
            if late:
                marked.add(len(rows))
            rows.append(
                (
                    f"{words.moment(amendment.at)}, entry {amendment.index}",
                    amendment.reason,
                    amendment.evidence,
                    field,
                    NONE if difference is None else estimates.value(difference.registered),
                    NONE if difference is None else estimates.value(difference.now),
                    _touches(hypotheses, arms, context, rule=rule) if late else "nothing",
                )
            )
    chain = [amendments[0].previous, *(one.registration for one in amendments)]
    marked_findings = {finding.hypothesis for finding in context.decision.findings if finding.amended}
    exploratory = {*affected(context.study, amendments).hypotheses, *marked_findings}
    kept = [name for name in context.study.hypotheses if name not in exploratory]
    return Table(
        f"Amendments: {len(amendments)}. Registrations: {' → '.join(words.short(one) for one in chain)}.",
        columns("When", "Reason given", "Evidence by then", "Field", "Registered", "Now", "Makes exploratory"),
        tuple(rows),
        note="What an amendment after evidence touched is exploratory from then on, whatever later amendments say. "
        + (f"Untouched: {words.listed(kept)}." if kept else "No hypothesis is untouched."),
        marked=frozenset(marked),
    )


def _touches(hypotheses: set[str], arms: set[str], context: ReportContext, *, rule: bool) -> str:
    named = [name for name in context.study.hypotheses if name in hypotheses]
    named += [f"stable({arm})" for arm in context.study.arms if arm in arms]
    return words.listed([*named, *(["the verdict: there is none"] if rule else [])])
