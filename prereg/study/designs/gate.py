"""Gatekeeping: one alpha over all claims, passed on from hypothesis to hypothesis as they are supported.

    gate: {order: [gain, no_harm, [speed, memory]]}      steps, one after the other; a step of several by Holm
    gate: {order: [primary, guardrail, secondary]}       the same with whole roles as steps
    gate: {weights: {gain: 0.5, speed: 0.5}, transitions: {gain: {speed: 1}, speed: {gain: 1}}}

A step of `order` is tested only when every hypothesis of all earlier steps has passed (a fixed sequence where each step
is one hypothesis; serial gatekeeping where a step is several). `weights` are the shares of alpha that hypotheses start
with, and `transitions` say what becomes of the share of one that has passed: the graph of Bretz, Maurer, Brannath and
Posch (2009, Statistics in Medicine 28:586-604).

Both become `Stage`s: graphs in series. A fixed sequence is one stage per hypothesis, Holm's procedure is the complete
graph with equal weights, and a graph that the study writes is one stage. That a whole step must pass before the next
one is tested is no graph with numbers: Bretz et al. draw edges of infinitesimal weight, and stages are their limit.

To pass is to reject the null that support rejects. Refutations wait for no gate and are corrected by Holm's procedure
over their role, as without one: harm must be found whether or not a gain was, and a rule that says `not refuted(harm)`
adopts the more often in error the harder a refutation is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from prereg.errors import field_error, nearest
from prereg.frozen import FrozenModel
from prereg.study.measure import Name
from prereg.text import compact, listed

if TYPE_CHECKING:
    from prereg.study.spec import Study

Share = Annotated[float, Field(ge=0.0, le=1.0)]
MOST_IN_A_STAGE = 12
"""2^12 sets of hypotheses that may be left are tabulated."""
_SLACK = 1e-12
"""Shares that sum to 1 but for rounding do."""
_PLACE = ("analysis", "gate")


class Order(FrozenModel):
    """Steps that are tested one after the other, each at the full alpha."""

    order: tuple[Name | tuple[Name, ...], ...]
    """Hypotheses or roles, or lists of them. A step is tested when every hypothesis of the earlier steps has passed;
    within a step of several, Holm's procedure holds alpha. Every hypothesis that is not exploratory comes once."""


class Graph(FrozenModel):
    """Shares of alpha, and where each goes when its hypothesis has passed."""

    weights: dict[Name, Share]
    """Hypothesis -> the share of alpha that it starts with; 0 where it is left out. They sum to at most 1."""
    transitions: dict[Name, dict[Name, Share]] = Field(default_factory=dict)
    """Hypothesis -> the parts of its share that go to other hypotheses once it has passed. They sum to at most 1."""


Gate = Order | Graph


@dataclass(frozen=True)
class Stage:
    """A graph over some hypotheses; it is tested when every hypothesis of the stages before it has passed."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    transitions: tuple[tuple[float, ...], ...]


def holm_stage(names: tuple[str, ...]) -> Stage:
    """Holm's procedure as a graph: equal weights, and the share of each goes to all others alike."""
    m = len(names)
    rows = tuple(tuple(0.0 if i == j else 1.0 / (m - 1) for j in range(m)) for i in range(m))
    return Stage(names, (1.0 / m,) * m, rows)


def stages_of(study: Study) -> tuple[Stage, ...]:
    """The graphs of a study's gate, in the order in which they are tested; none without a gate."""
    gate = study.analysis.gate
    if gate is None:
        return ()
    if isinstance(gate, Order):
        return tuple(holm_stage(tuple(_members(study, step))) for step in gate.order)
    names = _in_the_gate(study)
    rows = tuple(tuple(gate.transitions.get(one, {}).get(to, 0.0) for to in names) for one in names)
    return (Stage(names, tuple(gate.weights.get(one, 0.0) for one in names), rows),)


def check_gate(study: Study) -> None:
    """Raise `SpecError` for the first contradiction of a gate with itself or with the rest of the study."""
    analysis, gate = study.analysis, study.analysis.gate
    if gate is None:
        return
    if analysis.correct != "holm":
        raise field_error(
            ("analysis", "correct"),
            f"correct is '{analysis.correct}' and a gate is given",
            "holm: a gate is a correction of its own, and what it leaves out (refutations) is corrected by Holm",
            "correct: holm, or no gate",
        )
    if study.stopping != "fixed":
        raise field_error(
            _PLACE,
            "a gate in a sequential study",
            "a fixed number of seeds: no joint error rate of gates and looks is established here",
            "stopping: fixed, or no gate",
        )
    if isinstance(gate, Order):
        _check_order(study, gate)
    else:
        _check_graph(study, gate)
    for stage in stages_of(study):
        if len(stage.names) > MOST_IN_A_STAGE:
            raise field_error(
                _PLACE,
                f"{len(stage.names)} hypotheses in one {'step' if isinstance(gate, Order) else 'graph'}",
                f"at most {MOST_IN_A_STAGE}, so that every set of them can be looked at",
                "several steps, or fewer hypotheses",
            )


def in_words(study: Study) -> str:
    """The gate in a sentence's part; nothing without one."""
    gate = study.analysis.gate
    if gate is None:
        return ""
    if isinstance(gate, Order):
        steps = [" and ".join(stage.names) + " (by Holm)" * (len(stage.names) > 1) for stage in study.stages]
        return f"in this order, each step at the full alpha and only if all before it passed: {', then '.join(steps)}"
    stage = study.stages[0]
    weights = [f"{name} {compact(weight)}" for name, weight in zip(stage.names, stage.weights, strict=True)]
    moves = [
        f"{name} to {listed(f'{to} ({compact(part)})' for to, part in zip(stage.names, row, strict=True) if part)}"
        for name, row in zip(stage.names, stage.transitions, strict=True)
        if any(row)
    ]
    passed = f"; the share of one that passed goes from {', from '.join(moves)}" if moves else ""
    return f"by the graph with initial weights {listed(weights)}{passed}"


def _in_the_gate(study: Study) -> tuple[str, ...]:
    return tuple(name for name, one in study.hypotheses.items() if one.role != "exploratory")


def _members(study: Study, step: str | tuple[str, ...]) -> Iterator[str]:
    for one in (step,) if isinstance(step, str) else step:
        if one in study.hypotheses:
            yield one
        else:
            yield from study.families.get(one, ())


def _check_order(study: Study, gate: Order) -> None:
    place = (*_PLACE, "order")
    roles = study.families
    written = [one for step in gate.order for one in ((step,) if isinstance(step, str) else step)]
    for one in written:
        if one in study.hypotheses and one in roles:
            raise field_error(place, f"'{one}' is a hypothesis and a role", "names that are not those of roles")
        if one not in (*study.hypotheses, *roles):
            known = [*_in_the_gate(study), *(role for role in roles if role != "exploratory")]
            raise field_error(
                place,
                f"'{one}' is neither a hypothesis nor a role that has any",
                "one of " + ", ".join(known),
                nearest(one, known),
            )
        if one == "exploratory" or (one in study.hypotheses and study.hypotheses[one].role == "exploratory"):
            _refuse_exploratory(place, one)
    if not all(gate.order):
        raise field_error(place, "an empty step", "steps that name a hypothesis or a role")
    times = Counter(name for step in gate.order for name in _members(study, step))
    twice = next((name for name, count in times.items() if count > 1), None)
    if twice is not None:
        raise field_error(place, f"'{twice}' comes twice", "every hypothesis once, by its name or by its role")
    left = [name for name in _in_the_gate(study) if name not in times]
    if left:
        raise field_error(
            place,
            f"{listed(left)} {'is' if len(left) == 1 else 'are'} in no step",
            "every hypothesis that is not exploratory, so that one alpha holds over all of them",
            f"order: [..., {', '.join(left)}], or role: exploratory",
        )


def _check_graph(study: Study, gate: Graph) -> None:
    known = _in_the_gate(study)
    for name in (*gate.weights, *gate.transitions, *(to for row in gate.transitions.values() for to in row)):
        if name in study.hypotheses and name not in known:
            _refuse_exploratory(_PLACE, name)
        if name not in known:
            found = f"'{name}' is not a hypothesis"
            raise field_error(_PLACE, found, "one of " + ", ".join(known), nearest(name, known))
    _check_sum((*_PLACE, "weights"), "the weights", gate.weights)
    for name, row in gate.transitions.items():
        place = (*_PLACE, "transitions", name)
        if row.get(name):
            raise field_error(place, f"'{name}' passes its share to itself", "transitions to other hypotheses")
        _check_sum(place, f"what '{name}' passes on", row)
    reached = {name for name, weight in gate.weights.items() if weight > 0.0}
    for _ in known:
        reached |= {to for name in reached for to, part in gate.transitions.get(name, {}).items() if part > 0.0}
    never = [name for name in known if name not in reached]
    if never:
        raise field_error(
            _PLACE,
            f"{listed(never)} can never be tested: no share of alpha reaches {'it' if len(never) == 1 else 'them'}",
            "a weight above 0, or a transition from a hypothesis that is reached, for all that are not exploratory",
            f"transitions: {{{known[0]}: {{{never[0]}: 1}}}}, or role: exploratory",
        )


def _check_sum(place: tuple[str | int, ...], what: str, shares: Mapping[str, float]) -> None:
    total = fsum(shares.values())
    if total > 1.0 + _SLACK:
        parts = " + ".join(compact(one) for one in shares.values())
        scaled = ", ".join(f"{name}: {share / total:.6g}" for name, share in shares.items())
        found = f"{what} sum to {total:.6g} ({parts})"
        raise field_error(place, found, "at most 1, or more than alpha would be spent", f"{{{scaled}}}")


def _refuse_exploratory(place: tuple[str | int, ...], name: str) -> None:
    raise field_error(
        place,
        f"'{name}' is exploratory",
        "hypotheses that may decide: an exploratory one would spend alpha of those that do",
        "leave it out, or give it another role",
    )
