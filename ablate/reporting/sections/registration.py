"""Section of the registration: what was promised before any data.

It reads the registration. Next to it stand two things as they were observed, and said to be: what a corpus is like, as
the runs counted it, and what the ledger shows of looks at outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ablate.judge.design.retrospective import design_in_lock
from ablate.records.run_record import Repetition
from ablate.reporting import tables
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.design import facts_of, looks_shown
from ablate.reporting.summaries.study import hypotheses_table
from ablate.reporting.tables import HypothesisPlan
from ablate.reporting.wording import blocks, phrase
from prereg import text as words
from prereg.commits.pins import CodeChanges
from prereg.documents.procedures import lost_starts, not_reached
from prereg.documents.sentences import say
from prereg.documents.training import commits_of, extent
from prereg.registry.ledger_entry import PromiseEntry, RewordedEntry
from prereg.registry.registration import CorpusPin, TaskPin
from prereg.study.command import ScriptPin, command_line
from prereg.study.designs.per_task import tasks_are_strata
from prereg.study.spec import Study


def counts_of(context: ReportContext, name: str) -> str:
    """What follows the facts of a corpus in the line about it. Nothing before there are runs."""
    if not context.evidence.runs or context.study.trainer == "command":
        return ""
    return _repetition(context, name)


def _repetition(context: ReportContext, name: str) -> str:
    counts = [run.repetition[name] for run in context.evidence.runs if run.repetition and name in run.repetition]
    if not counts:
        return phrase("promised_parts.not_repeated", "")
    if reason := next((count.not_measured for count in counts if count.not_measured is not None), None):
        return phrase("promised_parts.not_repeated", reason)
    # Large corpora are sampled: one in so many lines, chosen by its hash.
    about = "about " if any(count.one_in > 1 for count in counts) else ""
    # Arms may hold out different shares of one text.
    shares = (_of(counts, part) for part in ("lines", "paragraphs", "held_out_lines"))
    return phrase("promised_parts.repetition", about, *shares)


def _of(counts: Iterable[Repetition], part: str) -> str:
    counted = [getattr(part_count, part) for part_count in counts]
    shares = [part_count.share for part_count in counted if part_count.units]
    return _ranged(shares) if shares else phrase("promised_parts.none_of_them")


def baselines_of(context: ReportContext) -> str:
    """What a validation loss is read next to, per token; empty where no run recorded it."""
    # Runs of one study mostly agree: each baseline once.
    baselines = list(dict.fromkeys(run.baselines for run in context.evidence.runs if run.baselines is not None))
    if not baselines:
        return ""
    # A loss per token cannot be compared over tokenizers.
    if len(baselines) > 1:
        return phrase("promised_parts.baselines_differ")
    [losses_of_all] = baselines
    if losses_of_all.not_computed is not None:
        return losses_of_all.not_computed
    losses = {
        "guessing evenly": losses_of_all.uniform,
        "token frequencies": losses_of_all.unigram,
        "the token before": losses_of_all.bigram,
    }
    shown = [f"{name} {value:.3f}" for name, value in losses.items() if value is not None]
    return phrase(
        "promised_parts.baselines",
        shown,
        losses_of_all.tokens,
        "" if losses_of_all.floor is None else f"{losses_of_all.floor:.3f}",
    )


def _ranged(shares: Iterable[float]) -> str:
    """Shares that are all alike as one, others from the least to the most."""
    held = sorted(shares)
    least, most = _percent(held[0]), _percent(held[-1])
    return least if least == most else f"{least} to {most}"


def _percent(share: float) -> str:
    """A share that is not 0 is not shown as 0."""
    return phrase("promised_parts.little") if 0.0 < share < 0.00005 else f"{100 * share:.2f}%"


def registration_section(context: ReportContext) -> Section:
    """The question, the claims and the rule, with the line of the decision list that held."""
    study, registration = context.study, context.registration
    made = blocks(
        "promised",
        question=registration.worded.question.strip(),
        amends=words.short(registration.previous) if registration.previous else "",
        reason=registration.reason or phrase("promised_parts.no_reason"),
        rewordings=[_reworded(context, rewording) for rewording in registration.rewordings],
        title=study.title,
        facts=dict(_facts(context)),
        hypotheses=hypotheses_table(study),
        decision=_decision_list(context),
    )
    return Section("promised", "What was promised", (*made, *_frozen_design(context)))


def _reworded(context: ReportContext, rewording: RewordedEntry) -> dict[str, str]:
    changed = [field for field, text in rewording.words.items() if text != getattr(context.study, field)]
    at = f"{words.moment(rewording.at)} (entry {rewording.index})"
    return {"at": at, "changed": " and ".join(changed) or "no word", "reason": rewording.reason}


def _facts(context: ReportContext) -> Iterator[tuple[str, object]]:
    """What `templates/promised.txt` states; an empty fact has no line."""
    study, registration = context.study, context.registration
    own = study.trainer == "command"
    yield "registered", words.moment(registration.registered_at)
    yield "command", command_line(study.command) if own else ""
    yield "code", _files(registration.scripts or ())
    yield "commits", (commits := commits_of(study, registration))
    yield "changed", {commit.name: _changed(commit.changes) for commit in commits if commit.changes is not None}
    yield "data", _files(registration.data_files) if own else ""
    yield "corpora", [_corpus(context, corpus) for corpus in registration.pinned]
    yield "tasks", "" if registration.tasks is None else _tasks(study, registration.tasks)
    yield "baselines", baselines_of(context)
    yield "paired", study.paired
    yield "seeds", words.ranged(study.seeds)
    yield "n_seeds", len(study.seeds)
    yield "n_runs", len(study.judged)
    yield "runs", "" if study.paired else say("runs_of_arms", study)
    yield "others", _runs_of_others(context)
    yield "settings", say("tuning", study)
    yield "estimand", _estimand(study)
    yield "looks", looks_shown(context)
    yield "lost", lost_starts(study)
    # Rules that no run met are in the registration's own page. While runs are missing, to leave one out would tell.
    runs, stability = context.evidence.runs, context.decision.stability
    diverged = context.withheld or any(run.status == "diverged" for run in runs)
    unstable = context.withheld or bool(study.rule.arms_read) or not all(arm.stable for arm in stability)
    yield "diverged", say("divergence_in_short", study) if diverged else ""
    yield "unstable", _instability(context) if unstable else ""


def _instability(context: ReportContext) -> str:
    """What makes a run unstable, its limit in numbers where the judge has found it from the rate of false alarms."""
    study = context.study
    above = next((arm.above for arm in context.decision.stability if arm.above is not None), None)
    if above is None:
        return say("instability", study)
    # The judge searched the limit that gives the registered rate of false alarms.
    rule, not_reached_ = study.stable.loss_spike, not_reached(study)
    return phrase("promised_parts.unstable", above, rule.window, study.stable.diverged.loss_above, not_reached_)


def _runs_of_others(context: ReportContext) -> str:
    """The studies that had the same arms and seeds when this one was registered, and what was known of them by then."""
    promises = (
        entry
        for entry in context.evidence.ledger
        if isinstance(entry, PromiseEntry) and entry.registration in context.registration.lineage
    )
    # The entry that registered it first says what was known then; an amendment says what is known now.
    first = next(promises, None)
    others = {} if first is None else first.same_runs_as
    return "".join(
        phrase("promised_parts.same_seeds", study, [*shared.arms], words.ranged(shared.seeds), shared.known)
        for study, shared in others.items()
    )


_MOST_SHOWN = 12
"""Files of a change that are named; the registration's own page has more."""


def _changed(changes: CodeChanges) -> str:
    shown = changes.files[:_MOST_SHOWN]
    return phrase("promised_parts.changed", shown, len(changes.files) - len(shown))


def _files(pins: Sequence[ScriptPin]) -> str:
    return "; ".join(f"{pin.path}, sha256 {pin.sha256}" for pin in pins)


def _corpus(context: ReportContext, corpus: CorpusPin) -> str:
    return f"{corpus.name}: {extent(corpus)}, sha256 {corpus.sha256}{counts_of(context, corpus.name)}"


def _tasks(study: Study, pin: TaskPin) -> str:
    harness = study.measure.harness
    assert harness is not None, study.study
    return phrase("promised_parts.tasks", pin, [*map(str, harness.shots)], pin.prompts)


def _estimand(study: Study) -> str:
    units, new = sampling_units(study), study.analysis.estimand != "new_seeds"
    of_items, strata = study.analysis.test == "items", tasks_are_strata(study)
    return phrase("promised_parts.estimand", units, of_items, new, together=units == "tasks", strata=strata)


def sampling_units(study: Study) -> str:
    """What is sampled where items are: single items, or the tasks that hold them."""
    harness = study.measure.harness
    return "tasks" if harness is not None and harness.clusters == "tasks" else "items"


def _frozen_design(context: ReportContext) -> list[Block]:
    """What this study could find, said before it looked; every simulated scenario is in design.csv."""
    if context.registration.design is None:
        return []
    design = design_in_lock(context.registration)
    if design is None:  # of another version
        return [Paragraph(phrase("promised_parts.unreadable"), "warning")]
    facts = tuple(facts_of(design))
    power = tables.DESIGN.of(
        [HypothesisPlan(planned, context.study.labels.claim(planned.hypothesis)) for planned in design.hypotheses]
    )
    return [Facts(facts), power] if facts else [power]


def _decision_list(context: ReportContext) -> Table:
    held = context.decision.line
    lines = [(at, line, at == held) for at, line in enumerate(context.study.decision, start=1)]
    return tables.DECISION.of(lines, held=held)
