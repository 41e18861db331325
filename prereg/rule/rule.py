"""Decision rule (`Rule`): parsed, proved complete before any data, and evaluated once to the verdict's words.

Read from the top, the first line that holds is the verdict. At registration every line must be able
to decide some combination of outcomes, and every combination must have a line; a rule that fails is
refused with a witness. Of outcomes that exclude each other the proof knows what it is given: a claim and
its converse (`prereg.rule.condition`). What is merely improbable is found by the design's simulation, not here.

To add a question, such as `tied(H)`: its word in `STATES` and in the grammar of `prereg.rule.condition`, what it is
worth in `holds`, its values in `_Proof._diagram`, and rules that are proved and refused in tests/prereg/test_rule.py.
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
        families that `all` and `any` can ask about.

        >>> lines = [DecisionLine(verdict="take it", when="supported(gain) and not refuted(harm)")]
        >>> rule = Rule.parse([*lines, DecisionLine(verdict="keep it")], hypotheses=["gain", "harm"], variants=[])
        >>> rule.decide({"gain": "supported", "harm": "inconclusive"}, stable={}).verdict
        'take it'
        >>> Rule.parse(lines, hypotheses=["gain", "harm"], variants=[])
        Traceback (most recent call last):
        prereg.errors.RuleError: decision: no line covers this case: gain is supported, harm is refuted
          required: a verdict for every combination of outcomes
          try:      end the list with: - {verdict: inconclusive}
        """
        if not lines:
            raise _refusal(("decision",), "no decision line", "a list of {verdict, when}", "- {verdict: inconclusive}")

        # Each condition by itself: its grammar, then its names.
        conditions = []
        for index, line in enumerate(lines):
            try:
                condition = None if line.when is None else parse_condition(line.when, groups)
                if condition is not None and line.when is not None:
                    _check_names(condition, line.when, hypotheses, variants, exploratory)
            except RuleError as error:
                raise error.at(field=("decision", index, "when")) from None
            conditions.append(condition)

        # The list as one.
        rule = cls(tuple(lines), tuple(conditions), tuple(contradictions))
        try:
            rule._proof.check()
        except TooLargeError:
            raise _refusal(
                ("decision",),
                f"the rule is too entangled to prove over {len(_names(conditions))} names",
                "conditions whose cases can all be checked before any data",
                "fewer names, or shorter conditions",
            ) from None
        return rule

    @cached_property
    def needed_support(self) -> dict[str, frozenset[str]]:
        """Verdict -> the hypotheses whose support its lines need; nothing for "inconclusive"."""
        needed: dict[str, frozenset[str]] = {}
        for line, condition in zip(self.lines, self.conditions, strict=True):
            # "inconclusive" claims nothing, so nothing need be supported for it.
            of_line = frozenset() if condition is None or line.verdict == "inconclusive" else _supports(condition)
            needed[line.verdict] = needed.get(line.verdict, frozenset()) | of_line
        return needed

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
        earlier = [condition for condition in self.conditions[: line - 1] if condition is not None]
        terms = [deciding_term(condition, outcomes, stable, holding=False) for condition in earlier]
        # Each question once, whatever columns it stands in.
        return tuple({(question.state, question.name): question for term in terms for question in term}.values())

    def excludes(self, outcomes: Mapping[str, Outcome]) -> bool:
        """Whether some of these outcomes exclude each other, so that they are no case."""
        ends = outcomes.items()
        return any(pair.first in ends and pair.second in ends for pair in self._excluded)

    def reached(self, possible: Mapping[str, Collection[Outcome]]) -> tuple[int, ...]:
        """Lines that decide some case when hypotheses can end only as given; what is not given can end as anything."""
        return self._proof.reached(possible)

    def verdicts(
        self, outcomes: Mapping[str, Collection[Outcome]], stable: Mapping[str, Collection[bool]]
    ) -> tuple[str, ...]:
        """Every verdict that the rule can give when hypotheses and variants end as one of what is listed for each.

        >>> lines = [DecisionLine(verdict="yes", when="supported(gain)"), DecisionLine(verdict="no")]
        >>> rule = Rule.parse(lines, hypotheses=["gain"], variants=[])
        >>> rule.verdicts({"gain": ("inconclusive", "refuted")}, stable={})
        ('no',)
        """
        # By the proof's diagrams: exact, however many cases the possible outcomes have.
        lines = self._proof.reached(outcomes, stable)
        return tuple(dict.fromkeys(self.lines[line - 1].verdict for line in lines))

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """Every question that some line asks, in the order of the lines.

        >>> lines = [DecisionLine(verdict="yes", when="supported(gain) or refuted(gain)"), DecisionLine(verdict="no")]
        >>> [question.state for question in Rule.parse(lines, hypotheses=["gain"], variants=[]).questions]
        ['supported', 'refuted']
        """
        of_lines = (questions(condition) for condition in self.conditions if condition is not None)
        return tuple(question for of_line in of_lines for question in of_line)

    @property
    def constant_verdict(self) -> str | None:
        """The verdict that the rule gives in every case; none where outcomes or stability can change it.

        >>> lines = [DecisionLine(verdict="yes", when="supported(gain)"), DecisionLine(verdict="yes")]
        >>> Rule.parse(lines, hypotheses=["gain"], variants=[]).constant_verdict
        'yes'
        """
        verdicts = {line.verdict for line in self.lines}
        return next(iter(verdicts)) if len(verdicts) == 1 else None

    @cached_property
    def deciding_hypotheses(self) -> frozenset[str]:
        """The hypotheses whose outcome can change the verdict: one that is asked about in vain is not among them.

        >>> asked = "supported(gain) and (supported(harm) or not supported(harm))"
        >>> lines = [DecisionLine(verdict="yes", when=asked), DecisionLine(verdict="no")]
        >>> sorted(Rule.parse(lines, hypotheses=["gain", "harm"], variants=[]).deciding_hypotheses)
        ['gain']
        """
        return self._proof.deciding_hypotheses()

    def is_remainder(self, line: int) -> bool:
        """Whether a line, from 1, holds whatever comes out, so that it is what is left when no line above it holds.

        >>> lines = [DecisionLine(verdict="yes", when="supported(gain)")]
        >>> lines += [DecisionLine(verdict="no", when="supported(gain) or not supported(gain)")]
        >>> rule = Rule.parse(lines, hypotheses=["gain"], variants=[])
        >>> rule.is_remainder(1), rule.is_remainder(2)
        (False, True)
        """
        return self._proof.holds_always(line)

    @property
    def arms_read(self) -> tuple[str, ...]:
        """Variants whose stability some line reads, in the order of first mention."""
        return tuple(dict.fromkeys(question.name for question in self.questions if question.state == "stable"))

    def table(self) -> list[RuleRow]:
        """For each line: its condition, how many combinations of outcomes it settles, and one of them.

        >>> lines = [DecisionLine(verdict="yes", when="supported(gain)"), DecisionLine(verdict="no")]
        >>> for row in Rule.parse(lines, hypotheses=["gain"], variants=[]).table():
        ...     print(row)
        RuleRow(line=1, verdict='yes', when='supported(gain)', settles=1, of=3, example='gain is supported')
        RuleRow(line=2, verdict='no', when='otherwise', settles=2, of=3, example='gain is refuted')
        """
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
            found = f"the rule asks about {len(self.names)} hypotheses and variants"
            raise _refusal(("decision",), found, f"at most {MOST_NAMES}")

        # One variable for each name, in the order of first mention: names of one condition then lie next to each
        # other, which keeps its diagram small (Bryant 1986 shows how much the order matters).
        self.order = {name: position for position, name in enumerate(self.names)}
        self.diagrams = Diagrams(tuple(2 if of_variant else len(OUTCOMES) for of_variant, _ in self.names))
        hypotheses = {name for of_variant, name in self.names if not of_variant}

        # The cases that can come about: all but those in which two endings exclude each other.
        self.excluded = [pair for pair in excluded if {pair.first[0], pair.second[0]} <= hypotheses]
        self.possible = TRUE
        for pair in self.excluded:
            self.possible = self.diagrams.both(self.possible, self.diagrams.denied(self._together(pair)))

        # Of each line the cases that satisfy its condition, those of them that can come about, and those that no
        # earlier line has taken; and what is left after the last.
        self.satisfied = [TRUE if condition is None else self._diagram(condition) for condition in conditions]
        self.true_for = [self.diagrams.both(cases, self.possible) for cases in self.satisfied]
        self.settled: list[int] = []
        self.left = self.possible
        for cases in self.true_for:
            self.settled.append(self.diagrams.both(cases, self.left))
            self.left = self.diagrams.both(self.left, self.diagrams.denied(cases))

    def check(self) -> None:
        """Every line decides some case, and every case has a line."""
        # In the order of the file: a line that cannot hold is the cause of what later lines lack.
        for index, (cases, settled) in enumerate(zip(self.true_for, self.settled, strict=True)):
            where: FieldPath = ("decision", index) if self.lines[index].when is None else ("decision", index, "when")
            title = f"line {index + 1} ('{self.lines[index].verdict}')"
            if cases == FALSE:
                raise _refusal(
                    where,
                    f"no combination of outcomes satisfies {title}{self._excluded_by(index)}",
                    "a condition that can hold: a hypothesis has exactly one outcome",
                    "remove the line, or fix its condition",
                )
            if settled == FALSE:
                raise _refusal(
                    where,
                    f"{title} can never decide: {self._blamed(index)}",
                    "every line decides at least one combination of outcomes",
                    f"move line {index + 1} up, or remove it",
                )
        if self.left != FALSE:
            raise _refusal(
                ("decision",),
                f"no line covers this case: {self._words(self.left)}",
                "a verdict for every combination of outcomes",
                "end the list with: - {verdict: inconclusive}",
            )

    def rows(self) -> list[RuleRow]:
        """The decision table."""
        # Of the cases that can come about: what exclude each other are no case and in no count.
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

    def holds_always(self, line: int) -> bool:
        """Whether every case that can come about satisfies a line, from 1."""
        return self.true_for[line - 1] == self.possible

    def deciding_hypotheses(self) -> frozenset[str]:
        """The hypotheses whose outcome can change the verdict."""
        # Cases that exclude each other are counted here too: they can only add a hypothesis, and never hide one.
        cases_of: dict[str, int] = {}
        left = TRUE
        for line, cases in zip(self.lines, self.satisfied, strict=True):
            settled = self.diagrams.both(cases, left)
            cases_of[line.verdict] = self.diagrams.either(cases_of.get(line.verdict, FALSE), settled)
            left = self.diagrams.both(left, self.diagrams.denied(cases))
        deciding: frozenset[int] = frozenset().union(*map(self.diagrams.variables, cases_of.values()))
        names = [self.names[variable] for variable in deciding]
        return frozenset(name for of_variant, name in names if not of_variant)

    def reached(
        self, possible: Mapping[str, Collection[Outcome]], stable: Mapping[str, Collection[bool]] | None = None
    ) -> tuple[int, ...]:
        """Numbers of the lines that settle a case within the possible outcomes, and answers of `stable`."""
        # Variable of the diagram -> its allowed values; a name that is not given may have any.
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
        # Named only where the condition can hold by itself: then it is the contradiction that makes it
        # impossible.
        pairs = [
            f"{_question(pair.first)} and {_question(pair.second)}"
            for pair in self.excluded
            if self.diagrams.both(cases, self._together(pair)) != FALSE
        ]
        return f": {'; '.join(pairs)} cannot both be, one being the converse of the other" if pairs else ""

    def _together(self, pair: Contradiction) -> int:
        """The cases in which both endings of a contradiction come about."""
        endings = [
            self.diagrams.among(self.order[False, name], {OUTCOMES.index(outcome)})
            for name, outcome in (pair.first, pair.second)
        ]
        return self.diagrams.both(*endings)

    def _blamed(self, index: int) -> str:
        """A smallest set of earlier lines that leaves nothing for this one."""
        for earlier in range(index):
            if self._uncovered(index, [earlier]) == FALSE:
                return f"line {earlier + 1} always holds first"
        # Leave out one after the other what is not needed; what remains is smallest in that none of it can go.
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
        answers = []
        for variable, value in self.diagrams.example(cases).items():
            of_variant, name = self.names[variable]
            answers.append(f"{name} is {('not stable', 'stable')[value] if of_variant else OUTCOMES[value]}")
        return ", ".join(answers) or "any outcomes"

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


def _refusal(field: FieldPath, found: str, required: str, fix: str = "") -> RuleError:
    return RuleError(found, required=required, fix=fix, where=Where(field=field))


def _question(ending: tuple[str, Outcome]) -> str:
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


def _supports(condition: Condition, holding: bool = True) -> frozenset[str]:
    """Hypotheses whose support a condition needs to hold, or without `holding` to fail."""
    match condition:
        case Question(state=state, name=name):
            return frozenset({name} if holding and state == "supported" else ())
        case Not(part=part):
            return _supports(part, not holding)
        case All(parts=parts) | AnyOf(parts=parts):
            return frozenset().union(*(_supports(part, holding) for part in parts))


def _check_names(
    condition: Condition, text: str, hypotheses: Sequence[str], variants: Sequence[str], exploratory: Sequence[str]
) -> None:
    for question in questions(condition):
        name = question.name
        if question.state == "stable":
            names, others, kind, instead = variants, hypotheses, "variant", f"supported({name})"
        else:
            names, others, kind, instead = hypotheses, variants, "hypothesis", f"stable({name})"
        if name not in names:
            # A name of the other kind is a wrong question, and not a misspelt name.
            raise RuleError(
                pointed(text, question.column, f"'{name}' is not a {kind}"),
                required=f"a {kind} of this study",
                fix=instead if name in others else nearest(name, names),
            )
        if question.state != "stable" and name in exploratory:
            raise RuleError(
                pointed(text, question.column, f"'{name}' is exploratory, and a rule asks about it"),
                required="exploratory hypotheses are reported and decide nothing",
                fix=f"give {name} another role, or take it out of the rule",
            )
