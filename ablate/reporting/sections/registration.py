"""The part of the report that tells what was promised before any data.

It reads the registration. Next to it stand two things as they were observed, and said to be: what a corpus is like, as
the runs counted it, and what the ledger shows of looks at outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ablate.judge.design.reach import HypothesisDesign
from ablate.judge.design.retrospective import frozen_design
from ablate.records.run_record import Repetition
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns, table_of
from ablate.reporting.context import ReportContext
from ablate.reporting.estimates import NONE
from ablate.reporting.sections.design import facts_of, looks_shown
from ablate.reporting.summaries.study import hypotheses_table
from ablate.reporting.wording import blocks, phrase
from prereg import text as words
from prereg.documents.procedures import lost_starts, not_reached
from prereg.documents.sentences import say
from prereg.documents.training import extent
from prereg.registry.registration import CorpusPin, Rewording, TaskPin
from prereg.study.claim import parse_claim
from prereg.study.command import ScriptPin, command_line
from prereg.study.designs.per_task import tasks_are_strata
from prereg.study.spec import Study

_NOT_RECORDED = "; how much of it repeats itself was not recorded"


def counts_of(context: ReportContext, name: str) -> str:
    """What follows the facts of a corpus in the line about it. Nothing before there are runs."""
    if not context.evidence.runs or context.study.trainer == "command":
        return ""
    return _repetition(context, name) + _drawn(context, name)


def _repetition(context: ReportContext, name: str) -> str:
    found = [run.repetition[name] for run in context.evidence.runs if run.repetition and name in run.repetition]
    if not found:
        return _NOT_RECORDED
    if reason := next((one.not_measured for one in found if one.not_measured is not None), None):
        return f"; how much of it repeats itself: {reason}"
    about = "about " if any(one.one_in > 1 for one in found) else ""
    # Arms may hold out different shares of one text.
    return (
        f"; {about}{_of(found, 'lines')} of its lines and {_of(found, 'paragraphs')} of its paragraphs occur earlier "
        f"in it, exactly alike; {about}{_of(found, 'held_out_lines')} of its held-out lines occur in the rest"
    )


def _of(found: Iterable[Repetition], part: str) -> str:
    counted = [getattr(one, part) for one in found]
    shares = [one.share for one in counted if one.units]
    return _ranged(shares) if shares else "none (there are none)"


def _drawn(context: ReportContext, name: str) -> str:
    """The share of windows that mixtures drew from it."""
    mixtures = [run.mixture for run in context.evidence.runs if run.mixture is not None and name in run.mixture]
    if not mixtures:
        return ""
    shares = [drawn[name] / sum(drawn.values()) for drawn in mixtures if sum(drawn.values())]
    return "" if not shares else f"; {_ranged(shares)} of the windows that a run was trained on came from it"


def baselines_of(context: ReportContext) -> str:
    """What a validation loss is read next to, per token; empty where no run recorded it."""
    found = list(dict.fromkeys(run.baselines for run in context.evidence.runs if run.baselines is not None))
    if not found:
        return ""
    if len(found) > 1:
        return "they differ between arms, which read other data or tokenizers"
    [one] = found
    if one.not_computed is not None:
        return one.not_computed
    losses = {"guessing evenly": one.uniform, "token frequencies": one.unigram, "the token before": one.bigram}
    text = ", ".join(f"{name} {value:.3f}" for name, value in losses.items() if value is not None)
    floor = f"; the source's own entropy is {one.floor:.3f}" if one.floor is not None else ""
    return f"{text} nats/token, counted in the training part and measured on {one.tokens:,} validation tokens{floor}"


def _ranged(shares: Iterable[float]) -> str:
    """Shares that are all alike as one, others from the least to the most."""
    held = sorted(shares)
    least, most = _percent(held[0]), _percent(held[-1])
    return least if least == most else f"{least} to {most}"


def _percent(share: float) -> str:
    """A share that is not 0 is not shown as 0."""
    return "less than 0.01%" if 0.0 < share < 0.00005 else f"{100 * share:.2f}%"


def registration_section(context: ReportContext) -> Section:
    """The question, the claims and the rule, with the line of the decision list that held."""
    study, registration = context.study, context.registration
    made = blocks(
        "promised",
        question=registration.worded.question.strip(),
        amends=words.short(registration.previous) if registration.previous else "",
        reason=registration.reason or "no reason recorded",
        rewordings=[_reworded(context, one) for one in registration.rewordings],
        title=study.title,
        facts=dict(_facts(context)),
        hypotheses=hypotheses_table(study),
        decision=_decision_list(context),
    )
    return Section("promised", "What was promised", (*made, *_frozen_design(context)))


def _reworded(context: ReportContext, one: Rewording) -> dict[str, str]:
    changed = [field for field, text in one.words.items() if text != getattr(context.study, field)]
    at = f"{words.moment(one.at)} (entry {one.index})"
    return {"at": at, "changed": " and ".join(changed) or "no word", "reason": one.reason}


def _facts(context: ReportContext) -> Iterator[tuple[str, object]]:
    """What `templates/promised.txt` states; an empty fact has no line."""
    study, registration = context.study, context.registration
    own = study.trainer == "command"
    yield "registered", words.moment(registration.registered_at)
    yield "command", command_line(study.command) if own else ""
    yield "code", _files(registration.scripts or ())
    yield "own", own
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
    yield "diverged", say("divergence_in_short", study)
    yield "unstable", _instability(context)


def _instability(context: ReportContext) -> str:
    """What makes a run unstable, its limit in numbers where the judge has found it from the rate of false alarms."""
    study = context.study
    above = next((arm.above for arm in context.decision.stability if arm.above is not None), None)
    if above is None:
        return say("instability", study)
    rule, not_reached_ = study.stable.loss_spike, not_reached(study)
    return phrase("promised_parts.unstable", above, rule.window, study.stable.diverged.loss_above, not_reached_)


def _runs_of_others(context: ReportContext) -> str:
    """The studies that had the same arms and seeds when this one was registered, and what was known of them by then."""
    promised = (
        entry.body.get("same_runs_as")
        for entry in context.evidence.ledger
        if entry.event in ("registered", "amended") and entry.registration in context.registration.lineage
    )
    others = next(promised, None)
    said = ""
    for study, other in others.items() if isinstance(others, dict) else ():
        shared = other if isinstance(other, dict) else {}
        seeds, arms = ([*found] if isinstance(found := shared.get(key), list) else [] for key in ("seeds", "arms"))
        which = (
            f"{words.listed(map(str, arms))}, seeds {words.ranged([seed for seed in seeds if isinstance(seed, int)])}"
        )
        said += f"; the same seeds as {study} ({which}), which was {shared.get('known')} by then"
    return said


def _files(pins: Sequence[ScriptPin]) -> str:
    return "; ".join(f"{pin.path}, sha256 {pin.sha256}" for pin in pins)


def _corpus(context: ReportContext, corpus: CorpusPin) -> str:
    size = f"{extent(corpus)}, {words.counted(corpus.size_bytes, 'byte')}, sha256 {corpus.sha256}"
    return f"{corpus.name}: {size}{counts_of(context, corpus.name)}"


def _tasks(study: Study, pin: TaskPin) -> str:
    harness = study.measure.harness
    assert harness is not None, study.study
    left = f" ({words.counted(pin.n_unencodable, 'item')} left out: the tokenizer cannot write them)" * bool(
        pin.n_unencodable
    )
    prompts = f"; under the prompts {words.listed(pin.prompts)}" if len(pin.prompts) > 1 else ""
    return (
        f"{pin.name}: {words.counted(pin.n_tasks, 'task')}, {words.counted(pin.n_items, 'item')}{left}, with "
        f"{words.listed(str(n) for n in harness.shots)} examples{prompts}; evaluated with lm-evaluation-harness; "
        f"sha256 {pin.sha256}"
    )


def _estimand(study: Study) -> str:
    if study.analysis.test != "items":
        return "new seeds on these validation data"
    units = units_of(study)
    if study.analysis.estimand == "new_seeds":
        return f"new seeds on these {units}"
    together = " (the items of a task belong together)" if units == "tasks" else ""
    return f"new seeds and new {units}{together}" + " of these tasks" * tasks_are_strata(study)


def units_of(study: Study) -> str:
    """What is sampled where items are: single items, or the tasks that hold them."""
    harness = study.measure.harness
    return "tasks" if harness is not None and harness.clusters == "tasks" else "items"


def _frozen_design(context: ReportContext) -> list[Block]:
    """What this study could find, said before it looked; every simulated scenario is in design.csv."""
    if context.registration.design is None:
        return []
    design = frozen_design(context.registration)
    if design is None:  # of another version
        return [Paragraph(phrase("promised_parts.unreadable"), "warning")]
    power = table_of(
        design.hypotheses,
        phrase("promised_parts.design"),
        {
            "Hypothesis": lambda one: context.study.labels.claim(one.hypothesis),
            "Detectable:": detectable_of,
            "Power:": lambda one: estimates.power_at(one.power, one.effect),
            "Seeds for power 80%:": lambda one: NONE if one.seeds_80 is None else str(one.seeds_80),
            "n:": lambda one: str(one.n),
        },
        note=TERMS,
    )
    facts = tuple(facts_of(design))
    return [Facts(facts), power] if facts else [power]


TERMS = phrase("promised_parts.design_note")


def detectable_of(one: HypothesisDesign) -> str:
    """The difference found with power 80% after correction, on the claim's scale where that is known."""
    if one.detectable is not None:
        return estimates.significant(one.detectable)
    # Nothing is known of the spread: a claim by at least D needs that many SDs beyond D.
    by = parse_claim(one.claim, baseline="").by
    beyond = "" if by is None else f"{words.compact(by)} + "
    return f"{beyond}{words.number(one.detectable_sd_corrected, 2)} SD of differences"


def _decision_list(context: ReportContext) -> Table:
    held = context.decision.line
    rows = tuple(
        (str(at), line.when or "in every other case", line.verdict, "this line held" if at == held else "")
        for at, line in enumerate(context.study.decision, start=1)
    )
    return Table(
        phrase("promised_parts.decision"),
        columns("Line", "When", "Verdict", "Held"),
        rows,
        "" if held else phrase("promised_parts.no_line"),
        marked=frozenset({held - 1}) if held else frozenset(),
    )
