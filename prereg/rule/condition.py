"""Conditions of the decision rule: their grammar, and whether one holds under given outcomes (`holds`).

    supported(gain) and not (refuted(harm) or any refuted(FAMILY))

A FAMILY is a line `per: task`: `all` is the conjunction of the question over its hypotheses, `any` the disjunction, and
nothing that reads a condition needs to know more.

Nothing else exists, and no text is ever handed to an interpreter. Whether the names belong to a study
and whether a list of conditions decides every case is `prereg.rule.rule`'s work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast, get_args

from prereg.errors import RuleError, SpecError, nearest
from prereg.grammar import Expected, Language
from prereg.study.claim import Claim
from prereg.text import listed

if TYPE_CHECKING:
    from lark import Token, Tree
    from lark.tree import Meta

    from prereg.study.analysis import Hypothesis


Outcome = Literal["supported", "refuted", "inconclusive"]
State = Literal["supported", "refuted", "inconclusive", "stable"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
STATES: tuple[State, ...] = get_args(State)
"""The outcomes of a hypothesis, in the order of OUTCOMES, then what a condition says of a variant."""

MEANS: Mapping[str, str] = {
    "supported(H)": "the test of H rejects, at the level left after correction, the null that contradicts the claim",
    "refuted(H)": "it rejects the null that the claim is true by as much as matters",
    "inconclusive(H)": "neither: the interval holds effects that would support the claim and effects that would refute "
    "it, or too few pairs are left",
    "stable(V)": "of the runs of variant V none diverged, none had a loss spike, and each reached the "
    "registered levels, by the rule in `stable`",
}
"""What makes each question hold."""

LONGEST = 10_000
"""Characters of a condition."""
DEEPEST = 50
"""Levels of `not` and parentheses."""
_QUESTIONS = "supported(H), refuted(H), inconclusive(H), stable(V), joined by and, or, not, ( )"
CONDITIONS = Language(
    rules=r"""
        ?either: both (_OR both)*
        ?both: denied (_AND denied)*
        ?denied: _NOT denied -> negation
            | "(" either ")" -> group
            | (SUPPORTED | REFUTED | INCONCLUSIVE | STABLE) "(" NAME ")" -> question
            | (ALL | ANY) (SUPPORTED | REFUTED | INCONCLUSIVE) "(" NAME ")" -> family
        NAME: /[A-Za-z0-9_.\-]+/
    """,
    # `either` holds `both` holds `denied`: `not` binds closest and `or` loosest. `?` leaves out a level with one part.
    keywords={"_OR": "or", "_AND": "and", "_NOT": "not", "ALL": "all", "ANY": "any"}
    | {state.upper(): state for state in STATES},
    expected=(
        Expected("NAME", "a name", "the name of a hypothesis, of a family, or of a variant after stable"),
        Expected("_NOT", "a question", _QUESTIONS),
        Expected("SUPPORTED", "supported, refuted or inconclusive", "all or any, and a question about a family"),
        Expected("LPAR", "'('", "a name in parentheses: supported(H), stable(V)"),
        Expected("RPAR", "the ')'", "a ')' for each '(', and 'and' or 'or' between two conditions"),
        Expected("$END", "'and', 'or' or the end", "'and' or 'or' between two conditions, as many ')' as '('"),
    ),
    error=RuleError,
    names=r"A-Za-z0-9_.\-",
)


@dataclass(frozen=True)
class Question:
    """`supported(H)` and its kin."""

    state: State
    name: str
    column: int
    """Column of the name, from 1."""


@dataclass(frozen=True)
class Not:
    """True when its part is false."""

    part: Condition


@dataclass(frozen=True)
class All:
    """True when every part is."""

    parts: tuple[Condition, ...]
    over: Question | None = None
    """The question about a family, under its own name, where it is written `all STATE(FAMILY)`."""


@dataclass(frozen=True)
class AnyOf:
    """True when one part is."""

    parts: tuple[Condition, ...]
    over: Question | None = None
    """The same, where it is written `any STATE(FAMILY)`."""


Condition = Question | Not | All | AnyOf


def holds(condition: Condition, outcomes: Mapping[str, Outcome], stable: Mapping[str, bool]) -> bool:
    """Whether a condition holds. Every name it mentions must have an outcome.

    >>> condition = parse_condition("supported(gain) or refuted(harm)")
    >>> holds(condition, {"gain": "inconclusive", "harm": "refuted"}, stable={})
    True
    """
    match condition:
        case Question(state="stable", name=name):
            return stable[name]
        case Question(state=state, name=name):
            return outcomes[name] == state
        case Not(part=part):
            return not holds(part, outcomes, stable)
        case All(parts=parts):
            return all(holds(part, outcomes, stable) for part in parts)
        case AnyOf(parts=parts):
            return any(holds(part, outcomes, stable) for part in parts)


def deciding_term(
    condition: Condition, outcomes: Mapping[str, Outcome], stable: Mapping[str, bool], *, holding: bool = True
) -> tuple[Question, ...]:
    """The questions whose answers make a condition hold, or fail without `holding`: of its disjunctive normal form the
    first term that is true, from left to right.

    >>> condition = parse_condition("supported(gain) or refuted(harm)")
    >>> [question.name for question in deciding_term(condition, {"gain": "refuted", "harm": "refuted"}, stable={})]
    ['harm']
    """
    match condition:
        case Question():
            return (condition,)
        case Not(part=part):
            return deciding_term(part, outcomes, stable, holding=not holding)
        case All(parts=parts) | AnyOf(parts=parts):
            # All parts of an `and` make it hold; one makes it fail. Of an `or` it is the other way round.
            if isinstance(condition, AnyOf) is holding:
                parts = (next(part for part in parts if holds(part, outcomes, stable) is holding),)
            terms = (deciding_term(part, outcomes, stable, holding=holding) for part in parts)
            return tuple(dict.fromkeys(question for term in terms for question in term))


def questions(condition: Condition) -> Iterator[Question]:
    """Every question of a condition, from left to right.

    >>> condition = parse_condition("not supported(gain) and stable(fast)")
    >>> [(question.state, question.name) for question in questions(condition)]
    [('supported', 'gain'), ('stable', 'fast')]
    """
    match condition:
        case Question():
            yield condition
        case Not(part=part):
            yield from questions(part)
        case All(parts=parts) | AnyOf(parts=parts):
            for part in parts:
                yield from questions(part)


Groups = Mapping[str, tuple[str, ...]]
"""Family -> its hypotheses, of every family that `all` and `any` can ask about."""


def parse_condition(text: str, groups: Groups = MappingProxyType({})) -> Condition:
    """Read one condition. Raises `RuleError` with a caret under the place.

    >>> condition = parse_condition("supported(gain) and not refuted(harm)")
    >>> holds(condition, {"gain": "supported", "harm": "inconclusive"}, stable={})
    True
    >>> [question.name for question in questions(condition)]
    ['gain', 'harm']
    """
    if len(text) > LONGEST:
        raise RuleError(f"a condition of {len(text)} characters", required=f"at most {LONGEST}")
    if not text.strip():
        raise RuleError(
            "an empty condition",
            required="a condition, or no 'when' at all on the last line",
            fix='when: "supported(H)"',
        )
    return _Reader(text, groups).read(CONDITIONS.parse(text), 0)


@dataclass(frozen=True)
class _Reader:
    """A condition from its tree."""

    text: str
    groups: Groups

    def read(self, tree: Tree[Token], depth: int) -> Condition:
        if depth > DEEPEST:
            raise self.mistake(tree.meta, f"'not' and '(' nested more than {DEEPEST} deep", "a simpler condition")
        # Only `not` and parentheses count: a flat list of a hundred `and` is no deep condition.
        deeper = depth + (tree.data in ("negation", "group"))
        if tree.data in ("question", "family"):
            return self.question(*tree.children)  # type: ignore[arg-type]
        parts = tuple(self.read(part, deeper) for part in tree.children if not isinstance(part, str))
        match tree.data:
            case "either":
                return AnyOf(parts)
            case "both":
                return All(parts)
            case "negation":
                return Not(*parts)
        return parts[0]

    def question(self, *words: Token) -> Condition:
        """`STATE(NAME)`; of a family the plain conjunction, or disjunction, over its hypotheses."""
        *quantifier, state, name = words
        question = Question(cast("State", str(state)), str(name), (name.start_pos or 0) + 1)
        # stable() asks about arms, and an arm may have the name of a family.
        family = self.groups.get(question.name) if question.state != "stable" else None
        if not quantifier and family is None:
            return question
        text = f"{state}({name})"
        if not quantifier:
            # All or any of them is the study's to say: the one is far easier to be supported than the other.
            fault = f"'{name}' is a family of {len(family or ())} hypotheses"
            raise self.mistake(name, fault, f"all {text} or any {text}", f"all {text}")
        if family is None:
            families = listed(self.groups) or "none: no hypothesis of this study is `per: task`"
            fix = nearest(question.name, tuple(self.groups)) or text
            raise self.mistake(name, f"'{name}' is no family", f"a family of hypotheses ({families})", fix)
        # Written out over the members, so that nothing after the parser knows families; `over` keeps how it was
        # written.
        each = tuple(replace(question, name=member) for member in family)
        return All(each, question) if quantifier[0] == "all" else AnyOf(each, question)

    def mistake(self, at: Token | Meta, found: str, required: str, fix: str = "") -> SpecError:
        return CONDITIONS.mistake(self.text, at.start_pos or 0, found, required, fix)


Ending = tuple[str, Outcome]
"""A hypothesis and how it ends."""


@dataclass(frozen=True)
class Contradiction:
    """Two endings that exclude each other."""

    first: Ending
    second: Ending


def contradictions(hypotheses: Mapping[str, Hypothesis], claims: Mapping[str, Claim]) -> tuple[Contradiction, ...]:
    """Every such pair of a study, in the order of its hypotheses.

    Two claims over the same differences have one test statistic, and it cannot point both ways. So of `a lowers M than
    b` and `b lowers M than a` not both are supported, and no line of the rule need cover that case.
    """
    pairs = []
    # Each pair once. On another scale or at another step the two read other differences, and nothing excludes them.
    for left, right in combinations(hypotheses, 2):
        turned = _turned(claims[left], claims[right])
        readings = {(hypotheses[name].scale, hypotheses[name].read) for name in (left, right)}
        if turned is None or len(readings) > 1:
            continue
        for of_left, left_points in _directed(claims[left]):
            for of_right, right_points in _directed(claims[right]):
                if left_points != right_points * turned:
                    pairs.append(Contradiction((left, of_left), (right, of_right)))
    return tuple(pairs)


def _directed(claim: Claim) -> list[tuple[Outcome, int]]:
    """Endings that need the statistic to point one way, with that way."""
    # Only a null at zero: to reach a margin, or to fall short of it, leaves the sign of the effect open.
    if not claim.direction or (claim.kind.towards == "worse" and claim.better == "neither"):
        return []
    endings: tuple[tuple[Outcome, str], ...] = (("supported", claim.kind.supported), ("refuted", claim.kind.refuted))
    return [(outcome, claim.direction) for outcome, rejected in endings if rejected == "zero"]


def _turned(claim: Claim, converse: Claim) -> int | None:
    """1 if two claims read the same differences, -1 if the one reads the other's with the sign turned, else None.

    Arms that cancel out count too: a seed that they lack is lacking in their claim only.
    """
    if claim.metric != converse.metric or set(claim.named) != set(converse.named):
        return None
    # The effect is a weighted sum of arm means: the claims read the same differences where weights are
    # proportional.
    left, right = claim.weights, converse.weights
    if not left or set(left) != set(right):
        return None
    ratios = [left[arm] / right[arm] for arm in left]
    # Exactly proportional: what differs by rounding could point both ways.
    return (1 if ratios[0] > 0 else -1) if all(ratio == ratios[0] for ratio in ratios) else None
