"""The part of the report that tells what was promised before any data.

It reads the registration. Next to it stand two things as they were observed, and said to be: what a corpus is like, as
the runs counted it, and what the ledger shows of looks at outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ablate.judge.design.characteristics import Design
from ablate.judge.design.reach import HypothesisDesign
from ablate.judge.design.retrospective import frozen_design
from ablate.records.run_record import Repetition
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns, table_of
from ablate.reporting.context import ReportContext
from ablate.reporting.estimates import NONE
from ablate.reporting.sections.design import bound_of, facts_of, looks_shown, power_figure
from ablate.reporting.summaries.study import arms_table, hypotheses_table
from prereg import text as words
from prereg.documents.claims import capital
from prereg.documents.configuration import extent
from prereg.documents.designs import runs_of_arms, tuning
from prereg.documents.procedures import (
    CORRECTIONS,
    counted_as,
    divergence,
    errors_held,
    instability,
    lost_starts,
    stopping,
    test,
)
from prereg.registry.registration import CorpusPin, TaskPin
from prereg.study.claim import parse_claim
from prereg.study.command import ScriptPin, command_line
from prereg.study.designs.gate import in_words
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
    study = context.study
    question = context.registration.worded.question
    blocks: list[Block] = [Paragraph(question.strip(), "lead")] if question else []
    tables = (arms_table(study), hypotheses_table(study), _decision_list(context))
    blocks += [_terms(context), *tables, *_frozen_design(context)]
    if context.registration.previous:
        amends = words.short(context.registration.previous)
        reason = context.registration.reason or "no reason recorded"
        said = f"This registration amends an earlier one ({amends}). Reason given: {reason}."
        blocks.insert(1, Paragraph(said, "warning"))  # after what the report opens with
    for one in context.registration.rewordings:
        changed = " and ".join(field for field, text in one.words.items() if text != getattr(study, field)) or "no word"
        said = f"Reworded on {words.moment(one.at)} (entry {one.index}), runs and verdict kept: {changed} since the "
        blocks.append(Paragraph(f"{said}registration. Reason given: {one.reason}. The registered title: {study.title}"))
    return Section("promised", "What was promised", tuple(blocks))


def _terms(context: ReportContext) -> Facts:
    return Facts(tuple((term, text) for term, text in _terms_and_texts(context) if text))


def _terms_and_texts(context: ReportContext) -> Iterator[tuple[str, str | None]]:
    study, analysis, registration = context.study, context.study.analysis, context.registration
    yield "Registered", f"{words.moment(registration.registered_at)}, registration {registration.sha256}"
    yield (
        "Arms",
        f"{len(study.arms)}: {words.listed(map(context.arm, study.arms))}; the baseline is "
        f"{context.arm(study.baseline)}, and claims compare with it unless they say otherwise",
    )
    if study.trainer == "command":
        yield "Trainer", f"the command {command_line(study.command)}"
        yield "Code", _files(registration.scripts or ()) or "no file of it is pinned"
        yield "Data", _files(registration.data_files)
    for corpus in registration.pinned[:1]:
        yield "Corpus", _corpus(context, corpus)
    if registration.tasks is not None:
        yield "Tasks", _tasks(study, registration.tasks)
    for corpus in registration.pinned[1:]:
        yield "Corpus", _corpus(context, corpus)
    yield "Losses to compare with", baselines_of(context)
    fixed = "what the trainer, which is given the same one for every arm, makes of it"
    if study.trainer == "gpt":
        fixed = "initial weights, batches and dropout, the same for every arm"
    each = f"{words.ranged(study.seeds)} ({len(study.seeds)} for each arm, {len(study.judged)} runs)"
    if not study.paired:
        fixed = "initial weights, batches and dropout" if study.trainer == "gpt" else "what the trainer makes of it"
        each = f"{words.counted(len(study.judged), 'run')}: {runs_of_arms(study)}"
    yield "Seeds", f"{each}; a seed fixes {fixed}{_runs_of_others(context)}"
    yield "Settings", tuning(study)
    over = "" if analysis.test == "items" else counted_as(study, " on per-seed differences")
    over = over if study.paired else ", without pairs"
    yield "Test", f"{test(study)}{over}, the effect always left side minus right side"
    each = f"each family; correction: {CORRECTIONS[analysis.correct]}, over the hypotheses of one role"
    each += " or of one claim per task" * bool(study.task_families)
    if analysis.correct == "none":
        each = "each test, no correction"
    if study.gate_steps:
        each = f"all supports together, by {CORRECTIONS['gate']}"
        each += f"; and for the refutations of each role, by {CORRECTIONS['holm']}"
        yield "Gate", in_words(study)
    yield "Error rate", f"alpha {words.compact(analysis.alpha)} for {each}"
    yield "Errors held", "; ".join(f"{scope.lower()}: {text}" for scope, text in errors_held(study).items())
    yield "Verdict speaks of", _estimand(study)
    yield "Stopping", f"planned: {stopping(study)}"
    yield "Looks, as observed", looks_shown(context)
    yield "Lost starts", lost_starts(study)
    yield "Diverged runs", divergence(study)
    yield "Unstable run", instability(study)


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
    """The operating characteristics that the registration froze: what this study could find, said before it looked."""
    if context.registration.design is None:
        return []
    design = frozen_design(context.registration)
    if design is None:  # of another version
        return [
            Paragraph(
                "The design frozen in the registration was written in a format that this version does not read.",
                "warning",
            )
        ]
    power = table_of(
        design.hypotheses,
        "Design, frozen at registration: what could be found.",
        {
            "Hypothesis": lambda one: context.study.labels.claim(one.hypothesis),
            "Detectable:": detectable_of,
            "Power:": lambda one: estimates.power_at(one.power, one.effect),
            "Smallest p possible:": lambda one: estimates.p_cell(one.attainable_support),
            "Seeds for power 80%:": lambda one: NONE if one.seeds_80 is None else str(one.seeds_80),
            "n:": lambda one: str(one.n),
        },
        note=TERMS,
    )
    facts = tuple(facts_of(design))
    blocks: list[Block] = [Facts(facts), power] if facts else [power]
    figure = None if context.withheld else power_figure(design)
    if figure is not None:
        blocks.append(figure)
    chances = tuple(_chances(context, design))
    if chances:
        caption = (
            "Design, frozen at registration: the chance of each verdict and of false findings, by simulation of "
            "the registered rule."
        )
        heads = columns("If the truth is", "Outcome of the study", "Chance:", "Simulation error:", "Simulated studies:")
        blocks.append(Table(caption, heads, chances, folded=True, note=_noted(design)))
    elif design.notes:
        blocks.append(Paragraph(_noted(design), "aside"))
    return blocks


def _chances(context: ReportContext, design: Design) -> Iterator[tuple[str, ...]]:
    """The chance of each ending of a study, for each simulated state of the world."""
    for scenario in design.scenarios:
        endings = [(f"verdict: {one.of}", one) for one in scenario.verdicts]
        if scenario.inadmissible:
            endings.append(("no verdict: inadmissible", scenario.inadmissible))
        endings += [(f"any false 'supported', {one.of}", one) for one in scenario.false_supported]
        endings += [(f"any false 'refuted', {one.of}", one) for one in scenario.false_refuted]
        truth, n_sims = estimates.shown_truth(scenario.name, context.study.labels), f"{scenario.n_sims:,}"
        for ending, chance in endings:
            bounded = chance.at_most is not None
            shown = f"≤ {bound_of(chance.at_most)}" if chance.at_most is not None else words.share(chance.share)
            yield truth, ending, shown, "95% bound" if bounded else f"±{words.share(chance.error)}", n_sims


def _noted(design: Design) -> str:
    # A note that begins with the name of a metric, such as "val/loss: SD 0.03", keeps its letters.
    return " ".join(f"{note if '/' in note.split()[0] else capital(note)}." for note in design.notes)


TERMS = (
    "Detectable: the true effect, or of a claim of no change the margin, found with power 80% by the registered rule. "
    "Power: the chance of 'supported' at the true effect in brackets, every other claim true; by simulation under the "
    "study's assumptions."
)


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
    note = "" if held else "No line was applied, because the evidence is inadmissible."
    return Table(
        "Decision list. It is read from the top; the first line that holds is the verdict.",
        columns("Line", "When", "Verdict", "Held"),
        rows,
        note=note,
        marked=frozenset({held - 1}) if held else frozenset(),
    )
