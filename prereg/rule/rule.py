"""The decision list: parsed, proved complete before any data, and evaluated once.

Read from the top, the first line that holds is the verdict. At registration every line must be able
to decide some combination of outcomes, and every combination must have a line; a rule that fails is
refused with a witness. Of outcomes that exclude each other the proof knows what it is given: a claim and
its converse (`prereg.rule.condition`). What is merely improbable is found by the design's simulation, not here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from prereg.errors import FieldPath, RuleError, Where, nearest
from prereg.frozen import FrozenModel
from prereg.grammar import pointed
from prereg.rule.condition import (
    OUTCOMES,
    STATES,
    All,
    AnyOf,
    Condition,
    Contradiction,
    Groups,
    Not,
    Outcome,
    Question,
    deciding_term,
    holds,
    parse_condition,
    questions,
)
from prereg.rule.diagram import FALSE, TRUE, Diagrams, TooLargeError

MOST_NAMES = 250
"""Hypotheses and variants that a rule asks about."""


class DecisionLine(FrozenModel):
    """A verdict and the condition under which it is given."""

    verdict: Annotated[str, Field(pattern=r"\S", max_length=200)]
    """The words of the verdict."""
    when: str | None = None
    """The condition: supported(H), refuted(H), inconclusive(H), stable(V), and, or, not, parentheses; of a line H
    `per: task` all supported(H), any refuted(H) and so on.
    The last line may leave it out, and then holds always."""


@dataclass(frozen=True)
class Ruling:
    """What the rule says of given outcomes."""

    verdict: str
    line: int
    """The line that decided, from 1."""
    also: tuple[int, ...] = ()
    """Later lines whose condition held too. A line without a condition says nothing and is never among them."""


@dataclass(frozen=True)
class RuleRow:
    """One line of the decision table that `ablate check` prints."""

    line: int
    verdict: str
    when: str
    """The condition; "otherwise" for a line without one."""
    settles: int
    """Combinations of outcomes that this line decides."""
    of: int
    """Combinations there are, over the names that the rule mentions."""
    example: str
    """One combination that it decides, in words."""


@dataclass(frozen=True)
class Rule:
    """A decision list, proved: every line can decide, every case is decided."""

    lines: tuple[DecisionLine, ...]
    conditions: tuple[Condition | None, ...] = field(repr=False, compare=False)
    """That of each line; none of a line that holds always."""
    _excluded: tuple[Contradiction, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def parse(
        cls,
        lines: Sequence[DecisionLine],
        *,
        hypotheses: Sequence[str],
        variants: Sequence[str],
        exploratory: Sequence[str] = (),
        contradictions: Sequence[Contradiction] = (),
        groups: Groups = MappingProxyType({}),
    ) -> Rule:
        """Read and prove a decision list. Raises `RuleError` with the field, a caret or a witness. `groups` are the
        families that `all` and `any` can ask about."""
        if not lines:
            raise RuleError(
                "no decision line",
                required="a list of {verdict, when}",
                fix="- {verdict: inconclusive}",
                where=Where(field=("decision",)),
            )
        conditions = []
        for index, line in enumerate(lines):
            try:
                condition = None if line.when is None else parse_condition(line.when, groups)
                if condition is not None and line.when is not None:
                    _check_names(condition, line.when, hypotheses, variants, exploratory)
            except RuleError as error:
                raise error.at(field=("decision", index, "when")) from None
            conditions.append(condition)
        rule = cls(tuple(lines), tuple(conditions), tuple(contradictions))
        try:
            rule._proof.check()
        except TooLargeError:
            raise RuleError(
                f"the rule is too entangled to prove over {len(_names(conditions))} names",
                required="conditions whose cases can all be checked before any data",
                fix="fewer names, or shorter conditions",
                where=Where(field=("decision",)),
            ) from None
        return rule

    @cached_property
    def needed_support(self) -> dict[str, frozenset[str]]:
        """Verdict -> the hypotheses whose support its lines need; nothing for "inconclusive"."""
        found: dict[str, frozenset[str]] = {}
        for line, condition in zip(self.lines, self.conditions, strict=True):
            needed = frozenset() if condition is None or line.verdict == "inconclusive" else _supports(condition)
            found[line.verdict] = found.get(line.verdict, frozenset()) | needed
        return found

    def decide(self, outcomes: Mapping[str, Outcome], stable: Mapping[str, bool]) -> Ruling:
        """The verdict: the first line that holds. Every hypothesis and variant that the rule names is needed.

        Outcomes that exclude each other are no case: the judge does not produce them, and no line need cover them.
        """
        held = [
            number
            for number, condition in enumerate(self.conditions, start=1)
            if condition is None or holds(condition, outcomes, stable)
        ]
        assert held, (dict(outcomes), dict(stable))  # the proof found every case covered
        first, *later = held
        return Ruling(
            verdict=self.lines[first - 1].verdict,
            line=first,
            also=tuple(number for number in later if self.conditions[number - 1] is not None),
        )

    def decided_by(
        self, line: int, outcomes: Mapping[str, Outcome], stable: Mapping[str, bool]
    ) -> tuple[Question, ...]:
        """The questions whose answers made a line, from 1, the verdict; of a line that holds in every other case, those
        that kept every earlier line from holding."""
        own = self.conditions[line - 1]
        if own is not None:
            return deciding_term(own, outcomes, stable)
        earlier = [one for one in self.conditions[: line - 1] if one is not None]
        terms = [deciding_term(one, outcomes, stable, holding=False) for one in earlier]
        return tuple({(one.state, one.name): one for term in terms for one in term}.values())

    def excludes(self, outcomes: Mapping[str, Outcome]) -> bool:
        """Whether some of these outcomes exclude each other, so that they are no case."""
        ends = outcomes.items()
        return any(one.first in ends and one.second in ends for one in self._excluded)

    def reached(self, possible: Mapping[str, Collection[Outcome]]) -> tuple[int, ...]:
        """Lines that decide some case when hypotheses can end only as given; what is not given can end as anything."""
        return self._proof.reached(possible)

    def verdicts(
        self, outcomes: Mapping[str, Collection[Outcome]], stable: Mapping[str, Collection[bool]]
    ) -> tuple[str, ...]:
        """Every verdict that the rule can give when hypotheses and variants end as one of what is listed for each."""
        lines = self._proof.reached(outcomes, stable)
        return tuple(dict.fromkeys(self.lines[line - 1].verdict for line in lines))

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """Every question that some line asks, in the order of the lines."""
        return tuple(one for condition in self.conditions if condition is not None for one in questions(condition))

    @property
    def arms_read(self) -> tuple[str, ...]:
        """Variants whose stability some line reads, in the order of first mention."""
        return tuple(dict.fromkeys(one.name for one in self.questions if one.state == "stable"))

    def table(self) -> list[RuleRow]:
        """For each line: its condition, how many combinations of outcomes it settles, and one of them."""
        return self._proof.rows()

    @cached_property
    def _proof(self) -> _Proof:
        return _Proof(self.lines, self.conditions, self._excluded)


class _Proof:
    """The cases of a decision list, as diagrams."""

    def __init__(
        self,
        lines: tuple[DecisionLine, ...],
        conditions: tuple[Condition | None, ...],
        excluded: tuple[Contradiction, ...],
    ) -> None:
        self.lines = lines
        self.names = _names(conditions)
        if len(self.names) > MOST_NAMES:
            raise RuleError(
                f"the rule asks about {len(self.names)} hypotheses and variants",
                required=f"at most {MOST_NAMES}",
                where=Where(field=("decision",)),
            )
        self.order = {name: position for position, name in enumerate(self.names)}
        self.diagrams = Diagrams(tuple(2 if of_variant else len(OUTCOMES) for of_variant, _ in self.names))
        known = {name for of_variant, name in self.names if not of_variant}
        self.excluded = [one for one in excluded if {one.first[0], one.second[0]} <= known]
        self.possible = TRUE
        for one in self.excluded:
            self.possible = self.diagrams.both(self.possible, self.diagrams.denied(self._together(one)))
        self.satisfied = [TRUE if condition is None else self._diagram(condition) for condition in conditions]
        self.true_for = [self.diagrams.both(cases, self.possible) for cases in self.satisfied]
        self.settled: list[int] = []
        self.left = self.possible
        for cases in self.true_for:
            self.settled.append(self.diagrams.both(cases, self.left))
            self.left = self.diagrams.both(self.left, self.diagrams.denied(cases))

    def check(self) -> None:
        """Every line decides some case, and every case has a line."""
        for index, (cases, settled) in enumerate(zip(self.true_for, self.settled, strict=True)):
            where: FieldPath = ("decision", index) if self.lines[index].when is None else ("decision", index, "when")
            title = f"line {index + 1} ('{self.lines[index].verdict}')"
            if cases == FALSE:
                raise RuleError(
                    f"no combination of outcomes satisfies {title}{self._excluded_by(index)}",
                    required="a condition that can hold: a hypothesis has exactly one outcome",
                    fix="remove the line, or fix its condition",
                    where=Where(field=where),
                )
            if settled == FALSE:
                raise RuleError(
                    f"{title} can never decide: {self._blamed(index)}",
                    required="every line decides at least one combination of outcomes",
                    fix=f"move line {index + 1} up, or remove it",
                    where=Where(field=where),
                )
        if self.left != FALSE:
            raise RuleError(
                f"no line covers this case: {self._words(self.left)}",
                required="a verdict for every combination of outcomes",
                fix="end the list with: - {verdict: inconclusive}",
                where=Where(field=("decision",)),
            )

    def rows(self) -> list[RuleRow]:
        """The decision table."""
        total = self.diagrams.count(self.possible)
        return [
            RuleRow(
                line=number,
                verdict=line.verdict,
                when="otherwise" if line.when is None else " ".join(line.when.split()),
                settles=self.diagrams.count(settled),
                of=total,
                example=self._words(settled),
            )
            for number, (line, settled) in enumerate(zip(self.lines, self.settled, strict=True), start=1)
        ]

    def reached(
        self, possible: Mapping[str, Collection[Outcome]], stable: Mapping[str, Collection[bool]] | None = None
    ) -> tuple[int, ...]:
        """Numbers of the lines that settle a case within the possible outcomes, and answers of `stable`."""
        within: dict[int, set[int]] = {}
        for (of_variant, name), position in self.order.items():
            if of_variant and name in (stable or {}):
                within[position] = {int(answer) for answer in (stable or {})[name]}
            elif not of_variant and name in possible:
                within[position] = {OUTCOMES.index(outcome) for outcome in possible[name]}
        return tuple(
            number for number, settled in enumerate(self.settled, start=1) if self.diagrams.meets(settled, within)
        )

    def _excluded_by(self, index: int) -> str:
        """What makes a satisfiable condition impossible: a contradiction that all its cases hold."""
        cases = self.satisfied[index]
        if cases == FALSE:
            return ""
        said = [
            f"{_said(one.first)} and {_said(one.second)}"
            for one in self.excluded
            if self.diagrams.both(cases, self._together(one)) != FALSE
        ]
        return f": {'; '.join(said)} cannot both be, one being the converse of the other" if said else ""

    def _together(self, one: Contradiction) -> int:
        """The cases in which both endings of a contradiction come about."""
        ends = [
            self.diagrams.among(self.order[False, name], {OUTCOMES.index(end)}) for name, end in (one.first, one.second)
        ]
        return self.diagrams.both(*ends)

    def _blamed(self, index: int) -> str:
        """A smallest set of earlier lines that leaves nothing for this one."""
        for earlier in range(index):
            if self._uncovered(index, [earlier]) == FALSE:
                return f"line {earlier + 1} always holds first"
        blamed = list(range(index))
        for candidate in range(index):
            fewer = [line for line in blamed if line != candidate]
            if self._uncovered(index, fewer) == FALSE:
                blamed = fewer
        return f"one of lines {', '.join(str(line + 1) for line in blamed)} always holds first"

    def _uncovered(self, index: int, earlier: list[int]) -> int:
        cases = self.true_for[index]
        for line in earlier:
            cases = self.diagrams.both(cases, self.diagrams.denied(self.true_for[line]))
        return cases

    def _words(self, cases: int) -> str:
        said = []
        for variable, value in self.diagrams.example(cases).items():
            of_variant, name = self.names[variable]
            said.append(
                f"{name} is {('not stable', 'stable')[value]}" if of_variant else f"{name} is {OUTCOMES[value]}"
            )
        return ", ".join(said) or "any outcomes"

    def _diagram(self, condition: Condition) -> int:
        match condition:
            case Question(state="stable", name=name):
                return self.diagrams.among(self.order[True, name], {1})
            case Question(state=state, name=name):
                return self.diagrams.among(self.order[False, name], {[*STATES].index(state)})
            case Not(part=part):
                return self.diagrams.denied(self._diagram(part))
            # From the last part on: names are in the order of first mention, and each step then adds a node on top.
            case All(parts=parts):
                return reduce(self.diagrams.both, (self._diagram(part) for part in reversed(parts)))
            case AnyOf(parts=parts):
                return reduce(self.diagrams.either, (self._diagram(part) for part in reversed(parts)))


def _said(ending: tuple[str, Outcome]) -> str:
    return f"{ending[1]}({ending[0]})"


def _names(conditions: Sequence[Condition | None]) -> tuple[tuple[bool, str], ...]:
    """(whether it is a variant, name) of every question, in the order of first mention."""
    return tuple(
        dict.fromkeys(
            (question.state == "stable", question.name)
            for condition in conditions
            if condition is not None
            for question in questions(condition)
        )
    )


def _supports(condition: Condition, wanted: bool = True) -> frozenset[str]:
    """Hypotheses whose support a condition needs."""
    match condition:
        case Question(state=state, name=name):
            return frozenset({name} if wanted and state == "supported" else ())
        case Not(part=part):
            return _supports(part, not wanted)
        case All(parts=parts) | AnyOf(parts=parts):
            return frozenset().union(*(_supports(part, wanted) for part in parts))


def _check_names(
    condition: Condition, text: str, hypotheses: Sequence[str], variants: Sequence[str], exploratory: Sequence[str]
) -> None:
    for question in questions(condition):
        name = question.name
        known, other, kind = (
            (variants, hypotheses, "variant") if question.state == "stable" else (hypotheses, variants, "hypothesis")
        )
        if name not in known:
            fix = nearest(name, known)
            if name in other:
                fix = f"supported({name})" if kind == "variant" else f"stable({name})"
            raise RuleError(
                pointed(text, question.column, f"'{name}' is not a {kind}"), required=f"a {kind} of this study", fix=fix
            )
        if question.state != "stable" and name in exploratory:
            raise RuleError(
                pointed(text, question.column, f"'{name}' is exploratory, and a rule asks about it"),
                required="exploratory hypotheses are reported and decide nothing",
                fix=f"give {name} another role, or take it out of the rule",
            )
