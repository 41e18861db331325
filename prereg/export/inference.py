"""How the data are judged, in sentences: tests, families and error rates, the decision list."""

from __future__ import annotations

from prereg.analysis import EProcess
from prereg.condition import All, AnyOf, Condition, Not, Question, parse_condition
from prereg.export.claims import DIRECTED, Null, plain, quoted, reading, refutation, support
from prereg.plain import visible
from prereg.procedures import (
    ABOUT_CORRECTIONS,
    ABOUT_E_PROCESS,
    ABOUT_TESTS,
    CORRECTIONS,
    TESTS,
    can_be_refuted,
    errors_held,
    meanings,
    test,
)
from prereg.spec import Study
from prereg.words import compact, listed

OTHERWISE = "in every other case"


def deciding_test(study: Study) -> str:
    """The test that decides, with its assumption."""
    return ABOUT_E_PROCESS_HERE if isinstance(study.stopping, EProcess) else ABOUT_TESTS[study.analysis.test]


ABOUT_E_PROCESS_HERE = ABOUT_E_PROCESS.replace(", described below", "")


def test_in_brief(study: Study) -> str:
    """The tests by name."""
    also = listed(TESTS[one] for one in study.analysis.also)
    beside_it = f" Beside it, deciding nothing: {also}." if also else ""
    name = test(study)
    return f"{name[0].upper()}{name[1:]} on per-seed differences δ (first side minus second).{beside_it}"


def beside(study: Study) -> str:
    """Tests that are reported and decide nothing."""
    if not study.analysis.also:
        return ""
    also = listed(f"the {TESTS[test]}" for test in study.analysis.also)
    return f"Reported beside the deciding test, and deciding nothing: {also}."


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
    for name in study.hypotheses:
        supported, refuted = meanings(study, name, f"the {reading(study, name)}")
        second = f"; {name} refuted: {refuted}" if can_be_refuted(study, name) else ""
        said.append(f"{name} supported: {supported}{second}.")
    return said


def when_both(study: Study) -> str:
    """Which of two findings counts when both nulls are rejected."""
    verbs = {claim.verb for name, claim in study.claims.items() if study.hypotheses[name].smallest > 0.0}
    parts = []
    if verbs & {"lowers", "raises", "changes"}:
        parts.append("claims of a change are refuted (real, but too small to matter)")
    if verbs & {"does_not_worsen", "does_not_change"}:
        parts.append("claims of no harm or no change are supported (real, but within the margin)")
    return f"If both nulls are rejected, {listed(parts)}." if parts else ""


def when_both_in_brief(study: Study) -> str:
    """The same, without the reason."""
    both = when_both(study)
    parts = []
    if "of a change" in both:
        parts.append("claims of a change refuted")
    if "of no harm" in both:
        parts.append("claims of no harm or no change supported")
    return f" Both rejected: {', '.join(parts)}." if parts else ""


def families(study: Study) -> str:
    """Which hypotheses are corrected together, how, and what error rate that holds."""
    roles = dict.fromkeys(hypothesis.role for hypothesis in study.hypotheses.values())
    said = listed(f"{role} ({listed(study.family(role))})" for role in roles)
    word = "family" if len(roles) == 1 else "families"
    alpha = compact(study.analysis.alpha)
    if study.analysis.correct == "none":
        return (
            f"Alpha is {alpha} for each test by itself: no correction for several hypotheses is made. "
            f"{word.capitalize()} by role: {said}. {_of_the_verdict(study)}"
        )
    return (
        f"Alpha is {alpha} within each family of hypotheses of one role, and p values are corrected "
        f"{ABOUT_CORRECTIONS[study.analysis.correct]}. {word.capitalize()}: {said}. The chance of any false "
        f'"supported" in a family is at most {alpha}, that of any false "refuted" likewise, and that of either at most '
        f"{compact(min(1.0, 2 * study.analysis.alpha))}. {_of_the_verdict(study)}"
    )


def _of_the_verdict(study: Study) -> str:
    return f"The chance of a wrong verdict is {errors_held(study)['For the verdict']}."


def families_in_brief(study: Study) -> str:
    """The same in one sentence; which hypothesis has which role is said elsewhere."""
    alpha = compact(study.analysis.alpha)
    if study.analysis.correct == "none":
        return f"Alpha is {alpha} for each test, uncorrected."
    correction = CORRECTIONS[study.analysis.correct]
    return f"Correction: {correction}, alpha {alpha} within each role, supports and refutations separately."


def estimand(study: Study) -> str:
    """What the verdict speaks of."""
    if study.analysis.estimand == "new_seeds":
        return "The verdict speaks of new seeds on the same validation data."
    return "The verdict speaks of new seeds and of new validation items."


def decision_rows(study: Study) -> list[tuple[str, str]]:
    """(condition, verdict) of every line of the decision list, in words."""
    return [
        (OTHERWISE if line.when is None else condition(line.when), visible(line.verdict)) for line in study.decision
    ]


def decision_sentences(study: Study) -> str:
    """The decision list as numbered lines."""
    lines = [f"{number}. {_lead(when)}: {verdict}" for number, (when, verdict) in enumerate(decision_rows(study), 1)]
    return "\n".join(lines)


def decision_in_brief(study: Study) -> str:
    """The same with the verbs left out."""
    rows = [
        (
            "otherwise" if line.when is None else _words(parse_condition(line.when), outer=True, verb=""),
            visible(line.verdict),
        )
        for line in study.decision
    ]
    return "\n".join(f"{number}. {when}: {verdict}" for number, (when, verdict) in enumerate(rows, 1))


def _lead(when: str) -> str:
    return "Otherwise" if when == OTHERWISE else f"If {when}"


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
    for name in study.hypotheses:
        groups.setdefault(nulls_sentence(study, name), []).append(name)
    return [f"{listed(names)}: {text}." for text, names in groups.items()]


def _rejected(null: Null) -> str:
    """`δ = 0 with δ < 0 (two-sided)`."""
    if null.sided == DIRECTED:
        return f"{null.null} with {null.alternative} (two-sided)"
    return f"{null.null} ({null.sided})"


def _words(condition_: Condition, *, outer: bool = False, verb: str = "is ") -> str:
    match condition_:
        case Question(asked="stable", name=name):
            return f"arm {quoted(name)} {verb}stable"
        case Question(asked=asked, name=name):
            return f"{name} {verb}{asked}"
        case Not(part=Question(asked="stable", name=name)):
            return f"arm {quoted(name)} {verb}not stable"
        case Not(part=Question(asked=asked, name=name)):
            return f"{name} {verb}not {asked}"
        case Not(part=part):
            return f"it is not so that ({_words(part, outer=True, verb=verb)})"
        case All(parts=parts):
            text = listed(_words(part, verb=verb) for part in parts)
        case AnyOf(parts=parts):
            text = listed((_words(part, verb=verb) for part in parts), last="or")
    return text if outer else f"({text})"
