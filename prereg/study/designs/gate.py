"""Gatekeeping: one alpha over all claims, in an order of steps.

    gate: {order: [gain, no_harm, [speed, memory]]}      steps, one after the other; a step of several by Holm
    gate: {order: [primary, guardrail, secondary]}       the same with whole roles as steps

A step is tested only when every hypothesis of all earlier steps has passed: a fixed sequence where each step is one
hypothesis, serial gatekeeping where a step is several (`ablate.judge.stats.multiplicity`).

To pass is to reject the null that support rejects. Refutations wait for no gate and are corrected by Holm's procedure
over their role, as without one: harm must be found whether or not a gain was, and a rule that says `not refuted(harm)`
adopts the more often in error the harder a refutation is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from prereg.errors import field_error, nearest
from prereg.frozen import FrozenModel, branch, chosen_by
from prereg.study.measure import Name
from prereg.text import listed

if TYPE_CHECKING:
    from prereg.study.spec import Study

Step = tuple[str, ...]
"""Hypotheses that are tested together, by Holm's procedure."""


_Together = Annotated[tuple[Name, ...], Field(min_length=1), branch("list")]
Entry = Annotated[Annotated[Name, branch("text")] | _Together, chosen_by(listed="list")]


class Gate(FrozenModel):
    """Steps that are tested one after the other, each at the full alpha."""

    order: tuple[Entry, ...]
    """Hypotheses or roles, or lists of them. A step is tested when every hypothesis of the earlier steps has passed;
    within a step of several, Holm's procedure holds alpha. Every hypothesis that is not exploratory comes once."""


def steps_of(study: Study) -> tuple[Step, ...]:
    """The steps of a study's gate, in the order in which they are tested; none without a gate."""
    gate = study.analysis.gate
    return () if gate is None else tuple(tuple(_members(study, step)) for step in gate.order)


def check_gate(study: Study) -> None:
    """Raise `SpecError` for the first contradiction of a gate with itself or with the rest of the study."""
    if study.analysis.gate is not None:
        _check_order(study, study.analysis.gate)


def in_words(study: Study) -> str:
    """The gate in a sentence's part; nothing without one."""
    if not study.gate_steps:
        return ""
    steps = [" and ".join(step) + " (by Holm)" * (len(step) > 1) for step in study.gate_steps]
    return f"in this order, each step at the full alpha and only if all before it passed: {', then '.join(steps)}"


def _in_the_gate(study: Study) -> tuple[str, ...]:
    return tuple(name for name, one in study.hypotheses.items() if one.role != "exploratory")


def _members(study: Study, step: str | tuple[str, ...]) -> Iterator[str]:
    for one in (step,) if isinstance(step, str) else step:
        if one in study.hypotheses:
            yield one
        else:
            yield from study.families.get(one, ())


def _check_order(study: Study, gate: Gate) -> None:
    place = ("analysis", "gate", "order")
    for entry in (one for step in gate.order for one in ((step,) if isinstance(step, str) else step)):
        _check_entry(study, entry)
    times = Counter(name for step in gate.order for name in _members(study, step))
    twice = next((name for name, count in times.items() if count > 1), None)
    if twice is not None:
        raise field_error(place, f"'{twice}' comes twice", "every hypothesis once, by its name or by its role")
    left = [name for name in _in_the_gate(study) if name not in times]
    if left:
        found = f"{listed(left)} {'is' if len(left) == 1 else 'are'} in no step"
        required = "every hypothesis that is not exploratory, so that one alpha holds over all of them"
        raise field_error(place, found, required, f"order: [..., {', '.join(left)}], or role: exploratory")


def _check_entry(study: Study, entry: str) -> None:
    place, roles, hypothesis = ("analysis", "gate", "order"), study.families, study.hypotheses.get(entry)
    if hypothesis is not None and entry in roles:
        raise field_error(place, f"'{entry}' is a hypothesis and a role", "names that are not those of roles")
    if hypothesis is None and entry not in roles:
        known = [*_in_the_gate(study), *(role for role in roles if role != "exploratory")]
        found = f"'{entry}' is neither a hypothesis nor a role that has any"
        raise field_error(place, found, "one of " + ", ".join(known), nearest(entry, known))
    if "exploratory" in (entry, hypothesis and hypothesis.role):
        required = "hypotheses that may decide: an exploratory one would spend alpha of those that do"
        raise field_error(place, f"'{entry}' is exploratory", required, "leave it out, or give it another role")
