"""How the study is carried out, in sentences: seeds and pairs, stopping, divergence, stability, what is missing."""

from __future__ import annotations

from prereg.documents.claims import DIRECTED, Null, plain, reading, refutation, support
from prereg.documents.designs import and_tuning, arms, lost_runs, sample
from prereg.documents.procedures import (
    ABOUT_CORRECTIONS,
    SPENDING,
    about_test,
    counted_as,
    errors_held,
    gatekeeping,
    instability,
    lost_starts,
    meanings,
)
from prereg.escape import quoted, visible
from prereg.registry.looks import FIRST_OF_E_PROCESS
from prereg.rule.condition import All, AnyOf, Condition, Not, Question, parse_condition
from prereg.rule.divergence import cost_of_divergence, least_pairs, refutable
from prereg.study.analysis import Ceiling, EProcess, Looks
from prereg.study.designs.per_task import families_listed, of_any_task, said_once, tasks_are_strata
from prereg.study.spec import Study
from prereg.study.tests import TESTS
from prereg.text import compact, counted, listed, ranged


def sample_size(study: Study) -> str:
    """How many seeds, arms and runs."""
    if not study.paired:
        return sample(study)
    seeds, n_arms = len(study.seeds), len(study.arms)
    most = "" if study.stopping == "fixed" else "at most "
    return (
        f"{most.capitalize()}{counted(seeds, 'seed')} ({ranged(study.seeds)}) in each of {counted(n_arms, 'arm')}, "
        f"{most}{counted(seeds * n_arms, 'run')} in all. The unit of analysis is the seed: each gives "
        + counted_as(study, "one paired difference for each hypothesis.")
        + and_tuning(study)
    )


def randomization(study: Study) -> str:
    """Why nothing is assigned by lot."""
    derived = "" if study.trainer == "command" else ", and all randomness of a run derives from its seed"
    meets = "each seed meets all of them" if study.paired else "the plan says which seeds each of them has"
    return (
        f"Nothing is assigned to an arm by lot: {meets}. The seeds are the listed numbers, fixed "
        f"before any run{derived}. Runs are made in a fixed order: "
        "all arms of the first seed, then all arms of the second, and so on."
    )


def stopping(study: Study) -> str:
    """When the number of seeds is settled, and who may look before."""
    if isinstance(study.stopping, Looks):
        sizes = listed(str(n) for n in study.stopping.looks)
        return (
            f"Group-sequential design: the outcomes are looked at after {sizes} seeds and at no other time. The level "
            f"is spent over the looks by a Lan-DeMets (1983) function of {SPENDING[study.stopping.spending]}, "
            "half of it on each side of a two-sided test. A look "
            "before the last ends the study only if a finding at its level makes a line of the decision list hold; it "
            "never ends for futility, and it shows no contrast if it does not end."
        )
    if isinstance(study.stopping, EProcess):
        most = study.stopping.max_seeds
        return (
            f"Seeds are added one by one, in the listed order, from a first look at {min(FIRST_OF_E_PROCESS, most)} "
            f"seeds until a finding makes a line of the decision list hold, and at most {most} are run. The evidence "
            "is an e-process, which keeps its error rate at any number of seeds."
        )
    return (
        "The number of seeds is fixed, and no seed is added afterwards. Contrasts between arms are computed when the "
        "last planned run has ended; a look at them before that goes on record and forfeits the verdict."
    )


def starting(study: Study) -> str:
    """When the first run may start, whose runs it may have again, and how many starts may be lost, where registered."""
    said = "No run starts before this registration stands in the study's hash-chained ledger."
    if study.reuses:
        said += (
            f" Runs that {listed(study.reuses)} sealed before may be made again here, so every claim is exploratory."
        )
    lost = lost_starts(study)
    return said if lost is None else f"{said} There is {lost}."


def divergence(study: Study) -> str:
    """When a run has diverged, and what becomes of it in the tests."""
    first = (
        "A run has diverged, and ends, when its training loss is not finite or exceeds "
        f"{compact(study.stable.diverged.loss_above)} times that of its first step. "
    )
    if isinstance(study.on_divergence, Ceiling):
        metric = plain(next(iter(study.claims.values())).metric)
        return (
            f"{first}It is scored at a {metric} of {compact(study.on_divergence.ceiling)}, on the metric's own scale. "
            "If a run that did not diverge is as bad as that, no verdict is given."
        )
    if study.on_divergence == "rank":
        return f"{first}It enters the tests by its rank, as worse than every run that did not diverge."
    cost = "".join(
        f" Once a run of {arms(named, last='or')} has diverged, "
        f"{listed(map(quoted, verdicts), last='or')} can no longer be the verdict."
        for verdicts, named in cost_of_divergence(study).items()
        if verdicts is not None
    )
    if not study.paired:
        return f"{first}{lost_runs(study)}{cost}"
    left_out = (
        "The pairs that it belongs to are left out of the tests, and a verdict is given only if it is the same "
        "with the lost pairs at their worst. A hypothesis that lost pairs is inconclusive with fewer than "
        f"{least_pairs(study)} of {len(study.seeds)} left."
    )
    return f"{first}{counted_as(study, left_out)}{cost}"


def stability(study: Study) -> str:
    """What an unstable run is, and who asks."""
    read = [name for name in study.arms if name in study.rule.arms_read]
    used = f"The decision list asks it of {arms(read)}." if read else "The decision list asks it of no arm."
    return (
        f"An arm is stable when none of its runs is unstable. What makes a run unstable: {instability(study)}. {used}"
    )


def exclusions(study: Study) -> str:
    """What may be left out, and what may not."""
    return f"Every planned run is included; none is left out as an outlier. {divergence(study)}"


def missing(study: Study) -> str:
    """What becomes of runs that are not there."""
    then = "the study" if study.stopping == "fixed" else "a look"
    return (
        f"No value is imputed. A run that is missing or has failed is made again with the same seed and configuration; "
        f"{then} gives no verdict while one is missing. Runs that diverged are not missing; what "
        "becomes of them is said above."
    )


OTHERWISE = "in every other case"


def deciding_test(study: Study) -> str:
    """The test that decides, with its assumption."""
    return about_test(study).replace(", described below", "")


def secondary_tests(study: Study) -> str:
    """Tests that are reported and decide nothing."""
    also = listed(f"the {TESTS[test].name}" for test in study.analysis.also)
    return f"Reported beside the deciding test, and deciding nothing: {also}." if also else ""


def two_questions(study: Study) -> str:
    """How a hypothesis ends."""
    after = "" if study.analysis.correct == "none" else ", each after correction"
    return (
        "Each hypothesis ends as supported, refuted or inconclusive. It is supported when the first of its two null "
        f"hypotheses is rejected and refuted when the second is{after}; otherwise it is inconclusive, "
        "which is not evidence of no effect."
    )


def plain_outcomes(study: Study) -> list[str]:
    """What each outcome says, hypothesis by hypothesis: a refuted claim of no harm is a finding of harm."""
    said = []
    for label, name in said_once(study).items():
        supported, refuted = meanings(study, name, f"the {of_any_task(study, label, reading(study, name))}")
        of_one = label + " of a task" * (label in study.task_families)
        second = f"; {of_one} refuted: {refuted}" if refutable(study, name) else ""
        said.append(f"{of_one} supported: {supported}{second}.")
    return said


def when_both(study: Study) -> str:
    """Which of two findings counts when both nulls are rejected."""
    change, absence = _can_reject_both(study)
    parts = ["claims of a change are refuted (real, but too small to matter)"] * change
    parts += ["claims of no harm or no change are supported (real, but within the margin)"] * absence
    return f"If both nulls are rejected, {listed(parts)}." if parts else ""


def _can_reject_both(study: Study) -> tuple[bool, bool]:
    """Whether a claim of a change, and whether one of an absence, can have both its nulls rejected."""
    kinds = [claim.kind for name, claim in study.claims.items() if study.hypotheses[name].smallest > 0.0]
    changes = any(not kind.is_absence and not kind.has_margin for kind in kinds)
    return changes, any(kind.is_absence for kind in kinds)


def families(study: Study) -> str:
    """Which hypotheses are corrected together, how, and what error rate that holds."""
    said = families_listed(study)
    word = "family" if len(study.families) == 1 else "families"
    alpha = compact(study.analysis.alpha)
    held = errors_held(study)
    verdict = f"The chance of a wrong verdict is {held['For the verdict']}."
    if study.gate_steps:
        return f"{gatekeeping(study)} {verdict}"
    if study.analysis.correct == "none":
        return (
            f"Alpha is {alpha} for each test by itself: no correction for several hypotheses is made. "
            f"{word.capitalize()} by role: {said}. {verdict}"
        )
    return (
        f"Alpha is {alpha} within each family of hypotheses of one role"
        f"{' or of one claim per task' * bool(study.task_families)}, and p values are corrected "
        f"{ABOUT_CORRECTIONS[study.analysis.correct]}. {word.capitalize()}: {said}. The chance of any false "
        f'"supported" in a family is at most {alpha}, that of any false "refuted" likewise, and that of either at most '
        f"{compact(min(1.0, 2 * study.analysis.alpha))}. {verdict}"
    )


def estimand(study: Study) -> str:
    """What the verdict speaks of."""
    if study.analysis.estimand == "new_seeds":
        return "The verdict speaks of new seeds on the same validation data."
    these = " of the same tasks, which are strata that count alike" * tasks_are_strata(study)
    return f"The verdict speaks of new seeds and of new validation items{these}."


def decision_rows(study: Study) -> list[tuple[str, str]]:
    """(condition, verdict) of every line of the decision list, in words."""
    return [
        (OTHERWISE if parsed is None else _words(parsed, outer=True), visible(line.verdict))
        for line, parsed in zip(study.decision, study.rule.conditions, strict=True)
    ]


def decision_sentences(study: Study) -> str:
    """The decision list as numbered lines."""
    return "\n".join(
        f"{number}. {'Otherwise' if when == OTHERWISE else f'If {when}'}: {verdict}"
        for number, (when, verdict) in enumerate(decision_rows(study), 1)
    )


def tie_breakers(study: Study) -> str:
    """Metrics that are shown when several adopting lines hold."""
    if not study.tie_breakers:
        return ""
    shown = listed(plain(metric) for metric in study.tie_breakers)
    return f"Shown if several adopting lines hold, deciding nothing: {shown}."


def condition(text: str) -> str:
    """A condition of the decision list in words; names and grouping are kept."""
    return _words(parse_condition(text), outer=True)


def nulls_sentence(study: Study, name: str) -> str:
    """Both nulls of a hypothesis in one sentence."""
    text = f"supported by rejecting {_rejected(support(study, name))}"
    second = refutation(study, name)
    if second is None:
        return f"{text}; no data can refute it, because no smallest difference is set"
    return f"{text}; refuted by rejecting {_rejected(second)}"


def grouped_nulls(study: Study) -> list[str]:
    """The nulls of all hypotheses, those with the same nulls in one sentence."""
    groups: dict[str, list[str]] = {}
    for label, name in said_once(study).items():
        groups.setdefault(nulls_sentence(study, name), []).append(label)
    return [f"{listed(names)}: {text}." for text, names in groups.items()]


def _rejected(null: Null) -> str:
    """`δ = 0 with δ < 0 (two-sided)`."""
    if null.sided == DIRECTED:
        return f"{null.null} with {null.alternative} (two-sided)"
    return f"{null.null} ({null.sided})"


def _words(condition_: Condition, *, outer: bool = False) -> str:
    match condition_:
        case Question(state="stable", name=name):
            return f"arm {quoted(name)} is stable"
        case Question(state=state, name=name):
            return f"{name} is {state}"
        case Not(part=Question(state="stable", name=name)):
            return f"arm {quoted(name)} is not stable"
        case Not(part=Question(state=state, name=name)):
            return f"{name} is not {state}"
        case Not(part=part):
            return f"it is not so that ({_words(part, outer=True)})"
        case All(over=Question(state=state, name=family)):
            text, outer = f"every claim of {family} is {state}", True
        case AnyOf(over=Question(state=state, name=family)):
            text, outer = f"some claim of {family} is {state}", True
        case All(parts=parts):
            text = listed(_words(part) for part in parts)
        case AnyOf(parts=parts):
            text = listed((_words(part) for part in parts), last="or")
    return text if outer else f"({text})"
