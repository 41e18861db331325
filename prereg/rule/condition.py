"""Conditions of the decision language: their grammar, and what each is worth under given outcomes.

    either   := both { 'or' both }
    both     := denied { 'and' denied }
    denied   := 'not' denied | '(' either ')' | question
    question := ('supported' | 'refuted' | 'inconclusive' | 'stable') '(' NAME ')'
              | ('all' | 'any') ('supported' | 'refuted' | 'inconclusive') '(' FAMILY ')'

A FAMILY is a line `per: task`: `all` is the conjunction of the question over its hypotheses, `any` the disjunction, and
nothing that reads a condition needs to know more.

Nothing else exists, and no text is ever handed to an interpreter. Whether the names belong to a study
and whether a list of conditions decides every case is `prereg.rule.rule`'s work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

from prereg.errors import RuleError, nearest
from prereg.study.claim import Claim
from prereg.text import listed

if TYPE_CHECKING:
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
_TOKEN = re.compile(r"(?P<mark>[()])|(?P<word>[A-Za-z0-9_.\-]+)|(?P<other>\S)")
_JOINS = ("and", "or", "not")
_QUANTIFIERS = ("all", "any")


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
    """Whether a condition holds. Every name it mentions must have an outcome."""
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
    first term that is true, from left to right."""
    match condition:
        case Question():
            return (condition,)
        case Not(part=part):
            return deciding_term(part, outcomes, stable, holding=not holding)
        case All(parts=parts) | AnyOf(parts=parts):
            # All parts of an `and` make it hold; one makes it fail. Of an `or` it is the other way round.
            if isinstance(condition, AnyOf) is holding:
                parts = (next(part for part in parts if holds(part, outcomes, stable) is holding),)
            found = (deciding_term(part, outcomes, stable, holding=holding) for part in parts)
            return tuple(dict.fromkeys(question for term in found for question in term))


def questions(condition: Condition) -> Iterator[Question]:
    """Every question of a condition, from left to right."""
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
    """Read one condition. Raises `RuleError` with a caret under the place."""
    if len(text) > LONGEST:
        raise RuleError(f"a condition of {len(text)} characters", required=f"at most {LONGEST}")
    if not text.strip():
        raise RuleError(
            "an empty condition",
            required="a condition, or no 'when' at all on the last line",
            fix='when: "supported(H)"',
        )
    return _Parser(text, groups).whole()


def pointed(text: str, column: int, message: str) -> str:
    """The message, the condition below it, and a caret under the column (from 1)."""
    shown = re.sub(r"\s", " ", text.rstrip())
    start = max(0, column - 70)  # a long condition is shown around the fault
    return f"{message}, column {column}\n    {shown[start : start + 100]}\n    {' ' * (column - 1 - start)}^"


@dataclass(frozen=True)
class _Token:
    text: str
    column: int


class _Parser:
    """Recursive descent over the tokens of one condition."""

    def __init__(self, text: str, groups: Groups) -> None:
        self.text = text
        self.groups = groups
        self.tokens = [_Token(match.group(), match.start() + 1) for match in _TOKEN.finditer(text)]
        self.end = _Token("", len(text.rstrip()) + 1)
        self.position = 0
        self.depth = 0

    def whole(self) -> Condition:
        condition = self.either()
        left = self.peek()
        if left.text == ")":
            raise self.error(left, "')' closes nothing", "as many '(' as ')'")
        if left.text:
            raise self.error(
                left,
                f"'{left.text}' after a whole condition",
                "'and' or 'or' between two conditions",
                self.suggest(left, ("and", "or")),
            )
        return condition

    def either(self) -> Condition:
        parts = [self.both()]
        while self.peek().text == "or":
            self.take()
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def both(self) -> Condition:
        parts = [self.denied()]
        while self.peek().text == "and":
            self.take()
            parts.append(self.denied())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def denied(self) -> Condition:
        token = self.take()
        if token.text in ("not", "("):
            self.depth += 1
            if self.depth > DEEPEST:
                raise self.error(token, f"'not' and '(' nested more than {DEEPEST} deep", "a simpler condition")
            if token.text == "not":
                inner: Condition = Not(self.denied())
            else:
                inner = self.either()
                self.close(token)
            self.depth -= 1
            return inner
        if token.text in _QUANTIFIERS and self.peek().text in STATES:
            return self.quantified(token)
        found = self.question(token)
        if found.name in self.groups and found.state != "stable":
            wrong = _Token(found.name, found.column)
            said = f"'{found.name}' is a family of {len(self.groups[found.name])} hypotheses"
            question = f"{found.state}({found.name})"
            raise self.error(wrong, said, f"all {question} or any {question}", f"all {question}")
        return found

    def quantified(self, token: _Token) -> Condition:
        """`all` or `any` of a family: the plain conjunction, or disjunction, over its hypotheses."""
        question = self.question(self.take())
        if question.name not in self.groups or question.state == "stable":
            wrong = _Token(question.name, question.column)
            known = listed(self.groups) or "none: no hypothesis of this study is `per: task`"
            fix = nearest(question.name, tuple(self.groups)) or f"{question.state}({question.name})"
            raise self.error(wrong, f"'{question.name}' is no family", f"a family of hypotheses ({known})", fix)
        each = tuple(Question(question.state, name, question.column) for name in self.groups[question.name])
        return All(each, question) if token.text == "all" else AnyOf(each, question)

    def question(self, token: _Token) -> Question:
        state = next((known for known in STATES if known == token.text), None)
        if state is None:
            if not token.text:
                raise self.error(token, "the condition ends where a question should be", self.grammar())
            found = (
                f"'{token.text}' is where a question should be"
                if token.text in (*_JOINS, ")")
                else f"'{token.text}' is not a question of the decision language"
            )
            raise self.error(token, found, self.grammar(), self.suggest(token, (*STATES, "not")))
        opening = self.take()
        if opening.text != "(":
            raise self.error(opening, f"no '(' after '{state}'", f"{state}(NAME)")
        name = self.take()
        if not re.fullmatch(r"[A-Za-z0-9_.\-]+", name.text):
            raise self.error(name, f"no name in '{state}(...)'", f"{state}(NAME)")
        self.close(opening)
        return Question(state, name.text, name.column)

    def close(self, opening: _Token) -> None:
        token = self.take()
        if token.text != ")":
            found = f"'{token.text}'" if token.text else "the end"
            raise self.error(token, f"{found} where the '(' of column {opening.column} should close", "')'")

    def peek(self) -> _Token:
        return self.tokens[self.position] if self.position < len(self.tokens) else self.end

    def take(self) -> _Token:
        token = self.peek()
        self.position += 1
        return token

    def error(self, token: _Token, found: str, required: str, fix: str = "") -> RuleError:
        return RuleError(pointed(self.text, token.column, found), required=required, fix=fix)

    @staticmethod
    def grammar() -> str:
        return "supported(H), refuted(H), inconclusive(H), stable(V), joined by and, or, not, ( )"

    @staticmethod
    def suggest(token: _Token, known: tuple[str, ...]) -> str:
        close = nearest(token.text[:80].lower(), known)
        return close if close.startswith("did") else ""


Ending = tuple[str, Outcome]
"""A hypothesis and how it ends."""


@dataclass(frozen=True)
class Contradiction:
    """Two endings that exclude each other."""

    first: Ending
    second: Ending


def contradictions(hypotheses: Mapping[str, Hypothesis], claims: Mapping[str, Claim]) -> tuple[Contradiction, ...]:
    """Every such pair of a study, in the order of its hypotheses."""
    found = []
    for one, other in combinations(hypotheses, 2):
        turned = _turned(claims[one], claims[other])
        apart = (hypotheses[one].scale, hypotheses[one].read) != (hypotheses[other].scale, hypotheses[other].read)
        if turned is None or apart:
            continue
        for first, towards in _directed(claims[one]):
            for second, its in _directed(claims[other]):
                if towards != its * turned:
                    found.append(Contradiction((one, first), (other, second)))
    return tuple(found)


def _directed(claim: Claim) -> list[tuple[Outcome, int]]:
    """Endings that need the statistic to point one way, with that way."""
    if claim.verb in ("lowers", "raises"):
        return [("supported", claim.direction)]
    if claim.verb == "does_not_worsen" and claim.better != "neither":
        return [("refuted", claim.direction)]
    return []


def _turned(one: Claim, other: Claim) -> int | None:
    """1 if two claims read the same differences, -1 if the one reads the other's with the sign turned, else None.

    Arms that cancel out count too: a seed that they lack is lacking in their claim only.
    """
    if one.metric != other.metric or set(one.named) != set(other.named):
        return None
    left, right = one.weights, other.weights
    if not left or set(left) != set(right):
        return None
    sizes = [left[arm] / right[arm] for arm in left]
    # Exactly proportional: what differs by rounding could point both ways.
    return (1 if sizes[0] > 0 else -1) if all(size == sizes[0] for size in sizes) else None
