"""What a gate's two error rates bound of the verdict, from the decision list alone.

Under a gate any false "supported" has a chance of at most alpha, and any false "refuted" of a role one of at most
alpha, whatever the true effects. An adopting verdict (one whose line asks `supported(H)`) errs if it rests on a false
finding, or if an arm that it adopts is in truth beyond the margin of a claim that it does no harm. All combinations of
outcomes are tried:

    at most alpha       where every claim of no harm about an adopted arm is supported wherever the verdict is given, so
                        that harm takes a false "supported"
    and alpha more      for each role whose "refuted" it needs: without it the verdict would be another
    nothing             where the verdict is given although such a claim was not supported, as under `not
                        refuted(harm)`: that a harm is not found is the likeliest end of a small study of it. Nor where
                        the verdict is given because an arm was called unstable, which is no test at level alpha

Lines that rest on the absence of a finding are listed, also where no claim of no harm is concerned.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, product

from prereg.frozen import FrozenModel
from prereg.rule.condition import OUTCOMES, All, AnyOf, Condition, Not, Outcome, Question, State, holds
from prereg.study.designs.ties import ROLE, TieBreakers, line_of_the_tie
from prereg.study.spec import Study
from prereg.text import compact, listed

_MOST_CASES = 3**8


class VerdictBound(FrozenModel):
    """The chance of a false adoption that the gate bounds, whatever the true effects are."""

    at_most: float | None
    """The bound, where the tests' assumptions hold; none where nothing bounds it."""
    why: str
    """What it rests on, or why there is none."""
    absences: tuple[str, ...] = ()
    """Lines with an adopting verdict that rest on the absence of a finding, in words."""


def needed_support(study: Study) -> dict[str, set[str]]:
    """Verdict -> the hypotheses whose support its lines need; nothing for "inconclusive"."""
    found: dict[str, set[str]] = {line.verdict: set() for line in study.decision}
    for line, condition in zip(study.decision, study.rule.conditions, strict=True):
        if condition is not None and line.verdict != "inconclusive":
            found[line.verdict] |= _supports(condition)
    return found


def adopting_claims(study: Study, names: Collection[str]) -> tuple[str, ...]:
    """Of the hypotheses whose support a verdict needs those whose arms it adopts: the tie-breakers among them, else
    all."""
    deciding = tuple(name for name in names if study.hypotheses[name].role == ROLE)
    return deciding or tuple(names)


def resting_on_worse(study: Study) -> tuple[tuple[str, str], ...]:
    """(verdict, hypothesis) of each line that needs `supported(H)` where H says, by `raises` or `lowers`, that a metric
    gets worse: such a claim may be turned the wrong way round."""
    found = []
    for verdict, names in needed_support(study).items():
        for name in sorted(names):
            claim = study.claims[name]
            worse = {"raises": "lower", "lowers": "higher"}.get(claim.plain_verb)
            if worse is not None and claim.better == worse and study.components is None:
                found.append((verdict, name))
    return tuple(found)


def _supports(condition: Condition, wanted: bool = True) -> set[str]:
    """Hypotheses whose support a condition needs."""
    match condition:
        case Question(state=state, name=name):
            return {name} if wanted and state == "supported" else set()
        case Not(part=part):
            return _supports(part, not wanted)
        case All(parts=parts) | AnyOf(parts=parts):
            return set().union(*(_supports(part, wanted) for part in parts))


def verdict_bound(study: Study) -> VerdictBound | None:
    """What the gate bounds of the verdict; none without a gate, or where no verdict adopts anything."""
    needed = {verdict: names for verdict, names in needed_support(study).items() if names}
    if not study.stages or not needed:
        return None
    read = list(dict.fromkeys(one.name for one in study.rule.questions if one.state != "stable"))
    arms = study.rule.arms_read
    if 3 ** len(read) * 2 ** len(arms) > _MOST_CASES:
        return VerdictBound(at_most=None, why="the rule has too many cases to try them all")
    harms = {verdict: _harm_claims(study, names) for verdict, names in needed.items()}
    unguarded: dict[str, set[str]] = {}
    by_refutation: set[str] = set()
    by_instability = False
    absences: dict[str, None] = {}
    for ends, answers in product(product(OUTCOMES, repeat=len(read)), product((True, False), repeat=len(arms))):
        outcomes: dict[str, Outcome] = dict(zip(read, ends, strict=True))
        stable = dict(zip(arms, answers, strict=True))
        verdict = _verdict(study, outcomes, stable)
        if verdict not in needed:
            continue
        line = study.rule.decide(outcomes, stable).line
        unguarded.setdefault(verdict, set()).update(one for one in harms[verdict] if outcomes.get(one) != "supported")
        by_refutation |= _roles_refuted(study, outcomes, stable, verdict)
        by_instability |= _verdict(study, outcomes, dict.fromkeys(arms, True)) != verdict
        for name, end in product((one for one in read if outcomes[one] == "inconclusive"), OUTCOMES[:2]):
            other = outcomes | {name: end}
            # A support that only lets an earlier line hold is no absence that this line asks for.
            own = study.rule.conditions[line - 1]
            earlier = end == "supported" and (own is None or holds(own, other, stable))
            if not earlier and _verdict(study, other, stable) not in (verdict, None):
                absences[f"line {line} ('{verdict}') rests on {name} not being {end}"] = None
    lines = tuple(sorted(absences))
    missed = {verdict: names for verdict, names in unguarded.items() if names}
    if missed:
        said = "; ".join(
            f"'{verdict}' is given also where {listed((one for one in study.hypotheses if one in names), last='or')} "
            "was not supported"
            for verdict, names in missed.items()
        )
        why = f"{said}, and no correction bounds how often a harm is missed"
        return VerdictBound(at_most=None, why=why, absences=lines)
    if by_instability:
        why = "an adopting verdict may be given because an arm was called unstable, which is no test at level alpha"
        return VerdictBound(at_most=None, why=why, absences=lines)
    alpha = study.analysis.alpha
    if by_refutation:
        roles = listed(family for family in study.families if family in by_refutation)
        why = f"any false 'supported' at most {compact(alpha)}, and any false 'refuted', on which it can rest, likewise"
        at_most = min(1.0, (1.0 + len(by_refutation)) * alpha)
        return VerdictBound(at_most=at_most, why=f"{why} for each role: {roles}", absences=lines)
    why = f"any false 'supported' at most {compact(alpha)} over all hypotheses, and it takes one to err"
    return VerdictBound(at_most=alpha, why=why, absences=lines)


def _verdict(study: Study, outcomes: dict[str, Outcome], stable: dict[str, bool]) -> str | None:
    """None where outcomes exclude each other."""
    return None if study.rule.excludes(outcomes) else study.rule.decide(outcomes, stable).verdict


def bound_in_words(bound: VerdictBound) -> str:
    """The bound in a sentence's part, with the lines that rest on the absence of a finding."""
    said = f"not bounded by the gate: {bound.why}"
    if bound.at_most is not None:
        said = f"at most {compact(bound.at_most)} by the gate for an adopting verdict that rests on a false finding or "
        said += "adopts an arm beyond the margin of its own claim of no harm, where the tests' assumptions hold "
        said += f"({bound.why})"
    return said + (f"; {'; '.join(bound.absences)}" if bound.absences else "")


def _harm_claims(study: Study, names: set[str]) -> set[str]:
    """Claims of no harm about the arms that are adopted where the support of some hypotheses is needed."""
    adopted = {
        arm for name in adopting_claims(study, names) for arm in study.claims[name].left if arm != study.baseline
    }
    return {
        name
        for name, hypothesis in study.hypotheses.items()
        if hypothesis.role != "exploratory" and study.claims[name].verb.startswith("does_not")
        if adopted & set(study.claims[name].left) and not _ruled_out_by_a_gain(study, name, names)
    }


def _ruled_out_by_a_gain(study: Study, name: str, names: set[str]) -> bool:
    """Whether a claim of no change can be broken towards worse only where a gain that the verdict needs is false: both
    read the same difference."""
    claim = study.claims[name]
    verb = {"lower": "lowers", "higher": "raises", "neither": ""}[claim.better]
    gains = [study.claims[one] for one in names if study.claims[one].plain_verb == verb]
    return claim.verb == "does_not_change" and any(
        (gain.metric, gain.weights) == (claim.metric, claim.weights) for gain in gains
    )


def _roles_refuted(study: Study, outcomes: dict[str, Outcome], stable: dict[str, bool], verdict: str) -> set[str]:
    """Roles whose false refutations can bring the verdict about: of every smallest set of hypotheses without whose
    "refuted" it would be another, the role of one, because all of the set must then be false."""
    refuted = [name for name, end in outcomes.items() if end == "refuted"]
    smallest: list[set[str]] = []
    for count in range(1, len(refuted) + 1):
        for chosen in combinations(refuted, count):
            if any(one <= set(chosen) for one in smallest):
                continue
            if _verdict(study, outcomes | dict.fromkeys(chosen, "inconclusive"), stable) != verdict:
                smallest.append(set(chosen))
    return {study.hypotheses[min(one)].family or study.hypotheses[min(one)].role for one in smallest}


def tie_errors(study: Study) -> str:
    """What bounds a verdict by a tie-breaker, in a sentence's part; nothing where tie-breakers do not decide.

    Such a verdict is wrong if the arm is not better by the margin, or if a finding that the tie needs is false. Where
    the tie needs all of its findings, one that is false must have been made, which has at most alpha; where none is
    false, a tie-breaking claim must be, and over all of them that has at most alpha too (intersection-union test).
    Where it may hold by one of several findings, `_errors_of_the_tie` says how many alphas add up.
    """
    ties = study.tie_breakers
    if not isinstance(ties, TieBreakers):
        return ""
    alpha, n = study.analysis.alpha, len(study.families[ROLE])
    condition, absent = _tie(study), absences_of_the_tie(study)
    if study.analysis.correct == "none" and not study.stages:
        return f"not held: no correction is registered, and the errors of {n} tie-breaking claims add up"
    if absent:
        return (
            f"the arm that it names is not better by the margin in at most {compact(alpha)}, where the tests' "
            "assumptions hold; nothing bounds how often arms are called tied that are not, because the tie rests on "
            f"the absence of a finding ({listed(absent)}), which is the likeliest end of a small study"
        )
    errors = _errors_of_the_tie(study, condition)
    tie = "the tie is a finding" if errors == 1 else "the tie may be one of several findings, whose errors add up"
    return (
        "wrong (a finding that the tie needs is false, or the arm is not better by the margin) in at most "
        f"{compact(min(1.0, alpha * errors))}, where the tests' assumptions hold: {tie}, and any false support of the "
        f"{n} tie-breaking claims has at most {compact(alpha)}"
    )


def absences_of_the_tie(study: Study) -> tuple[str, ...]:
    """The parts of the tie's condition that hold where nothing was found; nothing where tie-breakers do not decide."""
    return absences_of(_tie(study)) if isinstance(study.tie_breakers, TieBreakers) else ()


def _tie(study: Study) -> Condition:
    condition = study.rule.conditions[line_of_the_tie(study)]
    assert condition is not None, study.decision
    return condition


def absences_of(condition: Condition, wanted: bool = True) -> tuple[str, ...]:
    """The parts of a condition that hold where nothing was found: `inconclusive(H)`, `not supported(H)`, `not
    refuted(H)`."""
    match condition:
        case Question(state="stable"):
            return ()
        case Question(state=state, name=name):
            absent = (state == "inconclusive") is wanted
            return (f"{'' if wanted else 'not '}{state}({name})",) if absent else ()
        case Not(part=part):
            return absences_of(part, not wanted)
        case All(parts=parts) | AnyOf(parts=parts):
            return tuple(dict.fromkeys(one for part in parts for one in absences_of(part, wanted)))


def _errors_of_the_tie(study: Study, condition: Condition) -> int:
    """How many errors of at most alpha each can make a verdict by a tie-breaker wrong, whatever the true effects are.

    One where a single case is left. Else the tie may rest on a false finding of any kind, and where another case is
    true, on that one and a false tie-breaking claim. The two do not go together where every kind has one case: the case
    that is true takes its kind away.
    """
    cases = _cases(condition)
    if len(cases) == 1:
        return 1
    kinds = [kind for case in cases for kind in {_kind(study, *finding) for finding in case}]
    found = set(kinds)
    if len(found) < len(kinds) or frozenset() in cases:
        found.add(_kind(study, study.families[ROLE][0], "supported"))
    return len(found)


def _kind(study: Study, name: str, state: State) -> tuple[State, str]:
    """Findings of one kind have one alpha for any false one among them: those that are corrected together."""
    groups = study.corrected_together if state == "supported" else study.families
    return state, next(group for group, names in groups.items() if name in names)


def _cases(condition: Condition, wanted: bool = True) -> set[frozenset[tuple[str, State]]]:
    """The findings (hypothesis, outcome) by which a condition may hold, those that are needed together in one set; an
    empty set where it may hold by what is stable. Of conditions without absences."""
    match condition:
        case Question(state="stable"):
            return {frozenset()}
        case Question(state="inconclusive", name=name):
            # Not inconclusive, since there are no absences: either finding will do.
            return {frozenset({(name, "supported")}), frozenset({(name, "refuted")})}
        case Question(state=state, name=name):
            return {frozenset({(name, state)})}
        case Not(part=part):
            return _cases(part, not wanted)
        case All(parts=parts) | AnyOf(parts=parts):
            found = [_cases(part, wanted) for part in parts]
            if isinstance(condition, AnyOf) is wanted:
                return set().union(*found)
            needed = frozenset().union(*(case for cases in found if len(cases) == 1 for case in cases))
            several = set().union(*(cases for cases in found if len(cases) > 1))
            return several | {needed} if needed or not several else several
