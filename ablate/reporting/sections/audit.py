"""Section of the audit, by which a reader may distrust the report: pairs, checks, deviations, runs, provenance, times.

The judge's checks decide admissibility; the tables here only lay out what the records say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ablate.judge.audit.audit import MEANS, why
from ablate.judge.verdict import Check
from ablate.judge.wording import share_of_bound
from ablate.records.run_record import RunRecord
from ablate.reporting import estimates, tables
from ablate.reporting.blocks import Block, Facts, Figure, Paragraph, Section, Table
from ablate.reporting.context import ReportContext, not_to_be_used
from ablate.reporting.description import seconds_by_suite
from ablate.reporting.estimates import NONE
from ablate.reporting.sections.findings import runs_as_pairs
from ablate.reporting.sections.sharing import sharing_blocks
from ablate.reporting.summaries.proof import describe_decision
from ablate.reporting.tables import AmendedField, ArmRow, FailedCheck
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.documents.sentences import say
from prereg.registry.amendments import affected, amendments_of, reached
from prereg.registry.ledger_entry import AmendedEntry, DecidedEntry
from prereg.registry.looks import decisions_before

SEVERITY_ORDER = {"inadmissible": 0, "deviation": 1, "note": 2}


def pairs_section(context: ReportContext) -> Section:
    """The pairs as they are, how large the arms are, and whether runs of one seed share what they must."""
    study = context.study
    # A user's trainer states neither parameters nor hashes of batches; what it does state, the checks
    # compare.
    counts = parameters_of(context) if study.trainer == "gpt" else {}
    matched = _matched_by_arm(context) if study.trainer == "gpt" and study.paired else {}
    blocks: list[Block] = [] if context.withheld else runs_as_pairs(context)
    if blocks and context.unusable:
        blocks.insert(0, Paragraph(not_to_be_used(), "warning"))
    if counts:
        blocks.append(_arms(context, counts, matched))
    title = "Pairs"
    if len(study.arms) == 1:
        title = "Seeds" if any(isinstance(block, Figure) for block in blocks) else "The arm"
        blocks.append(Paragraph(phrase("audit.pairs_none")))
    elif not study.paired:
        title = "Arms and their runs"
        blocks.append(Paragraph(f"{say('sample', study)} {say('pairing', study)}"))
    elif study.trainer == "command":
        blocks += [Paragraph(phrase("audit.pairs_own")), *sharing_blocks(context)]
    elif not matched:
        blocks.append(Paragraph(phrase("audit.pairs_unbegun")))
    return Section("pairs", title, tuple(blocks))


def _by_cell(context: ReportContext) -> dict[tuple[str, int], RunRecord]:
    return {run.cell: run for run in context.evidence.runs}


def parameters_of(context: ReportContext) -> dict[str, int]:
    """Trainable parameters of every arm that has run; its seeds must agree."""
    counts: dict[str, set[int]] = {}
    for run in context.evidence.runs:
        counts.setdefault(run.variant, set()).add(run.parameters)
    return {arm: counts[arm].pop() for arm in context.study.arms if len(counts.get(arm, set())) == 1}


@dataclass(frozen=True)
class _Matched:
    """What the runs of an arm share with the baseline's of the same seed, by hash: how many are equal, of how many."""

    tensors: tuple[int, int]
    batches: tuple[int, int]
    dropout: tuple[int, int]
    tokens: tuple[int, int]
    alone: tuple[str, ...]
    """Tensors that one of the two arms alone has."""

    @property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """Equal and compared, in the order of the table's columns."""
        return (self.tensors, self.batches, self.dropout, self.tokens)

    @property
    def whole(self) -> bool:
        """Whether nothing differs, of pairs that all state what they share."""
        pairs = {of for _, of in self.counts[1:]}
        return all(equal == of for equal, of in self.counts) and len(pairs) == 1 and not self.alone

    @property
    def cells(self) -> tuple[str, ...]:
        """Its cells of the table."""
        return (*(phrase("audit.equal_of", *count) for count in self.counts), words.listed(self.alone) or NONE)


def _arms(context: ReportContext, counts: Mapping[str, int], matched: Mapping[str, _Matched]) -> Table | Paragraph:
    """Parameters of each arm, and how its runs agree with the baseline's of the same seed; a sentence where nothing
    differs."""
    baseline = context.study.baseline
    others, agreements = [arm for arm in counts if arm != baseline], {*matched.values()}
    if len(counts) == len(context.study.arms) > 1 and len({*counts.values()}) == 1 and len(agreements) == 1:
        [agreement] = agreements
        if agreement.whole and matched.keys() == {*others}:
            n_tensors, n_pairs = agreement.tensors[0], agreement.batches[0]
            return Paragraph(phrase("audit.arms_alike", counts[baseline], n_tensors, n_pairs, len(others)))
    of_baseline = counts.get(baseline, 0)
    rows = []
    for arm, count in counts.items():
        gap = count - of_baseline if arm != baseline and baseline in counts else None
        shared = matched[arm].cells if arm in matched else ()
        rows.append(ArmRow(context.arm(arm), arm == baseline, count, gap, of_baseline, shared))
    return tables.ARMS.of(rows, matched=bool(matched))


def _matched_by_arm(context: ReportContext) -> dict[str, _Matched]:
    """What the runs of each arm share with the baseline's; of no arm without two runs of a seed that state it."""
    by_arm = {arm: _matched(context, arm) for arm in parameters_of(context) if arm != context.study.baseline}
    return {arm: agreement for arm, agreement in by_arm.items() if agreement is not None}


def _matched(context: ReportContext, arm: str) -> _Matched | None:
    cells, baseline = _by_cell(context), context.study.baseline
    pairs = [
        (cells[arm, seed], cells[baseline, seed])
        for seed in context.study.seeds
        if (arm, seed) in cells and (baseline, seed) in cells
    ]
    # Imported runs may have no hashes: they are not counted as unequal.
    hashed = [(mine.must_match, theirs.must_match) for mine, theirs in pairs if mine.must_match and theirs.must_match]
    if not hashed:
        return None
    initial = "initial/"
    shared = [
        mine[name] == theirs[name]
        for mine, theirs in hashed
        for name in mine.keys() & theirs.keys()
        if name.startswith(initial)
    ]
    # A tensor that one arm alone has (an added norm) has no partner: named, and no mismatch.
    alone = sorted({name.removeprefix(initial) for mine, theirs in hashed for name in mine.keys() ^ theirs.keys()})
    batches, dropout = (sum(mine[name] == theirs[name] for mine, theirs in hashed) for name in ("batches", "dropout"))
    return _Matched(
        tensors=(sum(shared), len(shared)),
        batches=(batches, len(hashed)),
        dropout=(dropout, len(hashed)),
        tokens=(sum(mine.tokens == theirs.tokens for mine, theirs in pairs), len(pairs)),
        alone=tuple(alone),
    )


def checks_section(context: ReportContext) -> Section:
    """What did not hold, amendments and earlier decisions; then what held, by name, and stability."""
    checks = gravest_first(context.decision.checks)
    failed = [check for check in checks if not check.passed]
    blocks: list[Block] = [_failed(failed, len(checks))] if failed else []
    earlier = decisions_before(context.evidence.ledger, context.registration.lineage, context.ledger_head)
    if earlier:
        blocks.append(Paragraph(phrase("audit.earlier", decisions_in_words(earlier))))
    amendments = amendments_of(context.evidence.ledger)
    if amendments:
        blocks.append(_amendments(context, amendments))
    held = phrase("audit.held", len(checks) - len(failed), len(checks))
    blocks.append(Paragraph(held, "plain" if checks else "warning"))
    if not context.withheld:
        blocks.append(_stability(context))
    blocks.append(Paragraph(phrase("audit.beyond_checks"), "aside"))
    return Section("checks", "Checks and deviations", tuple(blocks))


def gravest_first(checks: Iterable[Check]) -> list[Check]:
    """Failed checks first, the gravest on top."""
    # Sorting is stable: within a severity the order is that of checks.toml.
    return sorted(checks, key=lambda check: (check.passed, SEVERITY_ORDER[check.severity]))


def _stability(context: ReportContext) -> Table | Paragraph:
    """One sentence where every arm is stable over as many runs, else a row for each."""
    stability = context.decision.stability
    # One sentence needs one bound, which depends on the number of runs.
    if stability and all(arm.stable for arm in stability) and len({arm.runs for arm in stability}) == 1:
        arms = words.listed(context.arm(arm.variant) for arm in stability)
        return Paragraph(phrase("audit.all_stable", arms, stability[0].runs, share_of_bound(stability[0])))
    return tables.STABILITY.of((context.arm(arm.variant), arm) for arm in stability)


def runs_section(context: ReportContext) -> Section:
    """Attempts, provenance, times, the hashes that tie the report to its evidence, and where the rest is."""
    blocks = _attempts(context)
    if context.evidence.runs:
        blocks += [*_divergences(context), *_mishaps(context), _provenance(context)]
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
    blocks.append(Paragraph(phrase("audit.left_out"), "aside"))
    return Section("runs", "Runs and provenance", tuple(blocks))


def _divergences(context: ReportContext) -> list[Block]:
    """The value by which each run diverged, and its limit. While runs are missing, which arm diverged is not shown."""
    diverged = [] if context.withheld else [run for run in context.evidence.runs if run.divergence is not None]
    why = tuple(
        (f"{context.arm(run.variant)} seed {run.seed} diverged", run.divergence.words)
        for run in diverged
        if run.divergence is not None
    )
    return [Facts(why)] if why else []


def _mishaps(context: ReportContext) -> list[Block]:
    """What was got over in runs of one attempt; of others the check of attempts tells it."""
    runs = [run for run in context.evidence.runs if run.mishaps and run.attempts == 1]
    mishaps = tuple((f"{context.arm(run.variant)} seed {run.seed}", "; ".join(run.mishaps)) for run in runs)
    return [Facts(mishaps)] if mishaps else []


def _attempts(context: ReportContext) -> list[Block]:
    cells = _by_cell(context)
    statuses = Counter(cells[cell].status if cell in cells else "not started" for cell in context.evidence.planned)
    counted = words.listed(f"{count} {status}" for status, count in sorted(statuses.items()))
    eventful = [run for run in context.evidence.runs if run.attempts > 1 or run.resumed_from or run.status != "done"]
    missing = None
    if context.withheld:  # which arm failed or diverged is an outcome too
        eventful, missing = [run for run in eventful if run.status != "diverged"], len(context.evidence.missing)
    summary = phrase("audit.runs", len(context.evidence.planned), counted, missing, bool(eventful))
    if not eventful:
        return [Paragraph(summary)]
    return [Paragraph(summary), tables.ATTEMPTS.of((context.arm(run.variant), run) for run in eventful)]


def _machine(run: RunRecord) -> str:
    made = run.provenance
    return phrase("audit.machine", [made.platform, made.processor, made.device, made.compiler], made.threads)


PROVENANCE: tuple[tuple[str, Callable[[RunRecord], str]], ...] = (
    ("Code sha256", lambda run: run.provenance.code),
    ("Commit", lambda run: phrase("audit.commit", run.provenance.commit, run.provenance.dirty)),
    ("Software", lambda run: phrase("audit.software", run.provenance)),
    ("Machine", _machine),
)


def _provenance(context: ReportContext) -> Facts:
    items = []
    for name, read in PROVENANCE:
        # Runs of one study may come from several machines or commits: each is named with its share.
        n_by_text = Counter(read(run) for run in context.evidence.runs)
        if text := phrase("audit.over_runs", n_by_text.most_common()):
            items.append((name, text))
    tool = context.registration.tool.get("ablate", "")
    return Facts((*items, ("Registered with", phrase("audit.registered_with", tool)), ("Time", _time(context))))


def _time(context: ReportContext) -> str:
    """All time of the runs, and what it was spent on where they say it."""
    runs = context.evidence.runs
    training, evaluation, wall = (sum(getattr(run, name) for run in runs) for name in ("train_s", "eval_s", "wall_s"))
    parts: tuple[str, ...] = ()
    costliest = ""
    if context.study.trainer != "command" and wall:  # a command does not say what it spent its time on
        parts = (f"{training / wall:.0%}", f"{evaluation / wall:.0%}")
        by_suite = seconds_by_suite(context.evidence).items()
        costliest = next((f"{suite} {words.duration(seconds)}" for suite, seconds in by_suite), "")
    return phrase("audit.time", words.duration(wall), len(runs), parts, costliest)


def decisions_in_words(entries: Sequence[DecidedEntry]) -> str:
    """`entry 18 (2026-11-20 23:38 UTC, keep none)`, of each decision."""
    return words.listed(
        phrase("audit.decision", entry.index, words.moment(entry.at), describe_decision(entry)) for entry in entries
    )


def _failed(failed: list[Check], total: int) -> Table:
    rows = [FailedCheck(check, MEANS[check.severity], why(check)) for check in failed]
    consequences = words.listed(MEANS.values(), last="or")
    return tables.CHECKS_FAILED.of(rows, failed=len(failed), total=total, consequences=consequences)


def _amendments(context: ReportContext, amendments: tuple[AmendedEntry, ...]) -> Table:
    chain = [amendments[0].amends, *(amendment.registration for amendment in amendments)]
    marked_findings = {finding.hypothesis for finding in context.decision.findings if finding.amended}
    exploratory = {*affected(context.study, amendments).hypotheses, *marked_findings}
    return tables.AMENDMENTS.of(
        _amended_fields(context, amendments),
        n=len(amendments),
        chain=" → ".join(words.short(amendment) for amendment in chain),
        untouched=words.listed(name for name in context.study.hypotheses if name not in exploratory),
        reasons=[(amendment.index, amendment.reason.rstrip(".")) for amendment in amendments],
    )


def _amended_fields(context: ReportContext, amendments: tuple[AmendedEntry, ...]) -> Iterator[AmendedField]:
    for amendment in amendments:
        when = f"{words.moment(amendment.at)}, entry {amendment.index}"
        for field, (hypotheses, arms, rule) in reached(context.study, amendment.differences).items():
            difference = next((changed for changed in amendment.differences if changed.field == field), None)
            values = (NONE, NONE)
            if difference is not None:
                values = (estimates.value(difference.registered), estimates.value(difference.now))
            # Before any evidence a change costs nothing.
            late = amendment.after_evidence and bool(hypotheses or arms or rule)
            touches = _touches(hypotheses, arms, context, rule=rule) if late else ""
            yield AmendedField(when, amendment.evidence, field, *values, touches)


def _touches(hypotheses: set[str], arms: set[str], context: ReportContext, *, rule: bool) -> str:
    named = [name for name in context.study.hypotheses if name in hypotheses]
    named += [f"stable({arm})" for arm in context.study.arms if arm in arms]
    return words.listed([*named, *([phrase("audit.no_verdict_left")] if rule else [])])
