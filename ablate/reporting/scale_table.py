"""A plan at scale on a terminal: 80 columns, every number beside how it comes about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from ablate.reporting.screen import fit, say
from ablate.scale.plan import Line, ScalePlan
from prereg.text import counted

_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def print_scale(console: Console, plan: ScalePlan) -> None:
    """All of it."""
    say(console, f"Plan at scale: {plan.title}", style="bold")
    for section in plan.sections:
        console.print()
        say(console, section.title, style="bold")
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(style="dim", overflow="fold")
        for line in section.lines:
            table.add_row(*(fit(console, told) for told in (line.name, said(line), line.how)))
        console.print(Padding(table, (0, 0, 0, 2)))
    console.print()
    for note in plan.notes:
        console.print(Padding(fit(console, note, style="dim"), (0, 0, 0, 2)))


class _Arm(Protocol):
    @property
    def arm(self) -> str: ...
    @property
    def parameters(self) -> int | None: ...
    @property
    def tokens(self) -> int | None: ...
    @property
    def flops(self) -> int | None: ...


def print_runs(console: Console, study: str, n_seeds: int, arms: Sequence[_Arm]) -> None:
    """The runs of a study, arm by arm."""
    runs = f"{counted(len(arms) * n_seeds, 'run')}: {counted(len(arms), 'arm')} x {counted(n_seeds, 'seed')}"
    say(console, f"{study}: {runs}, all arms of the first seed first")
    if any(arm.parameters is None for arm in arms):
        say(console, "Of a trainer of the study's own, size and cost are not known.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("Arm", "Parameters", "Tokens a run", "FLOPs a run"):
        table.add_column(name, justify="left" if name == "Arm" else "right", no_wrap=name != "Arm", overflow="fold")
    for arm in arms:
        table.add_row(fit(console, arm.arm), f"{arm.parameters:,}", f"{arm.tokens:,}", f"{arm.flops:.3e}")
    console.print(table)
    say(console, 'Memory, time and cost:  ablate plan STUDY --scale "on 1 H100" --mfu 0.4')


def as_json(plan: ScalePlan) -> str:
    """Every number by its key, in bytes, FLOPs, hours and plain shares."""
    numbers = {line.key: {"value": line.value, "how": line.how} for section in plan.sections for line in section.lines}
    return json.dumps({"plan": plan.title, "numbers": numbers, "notes": list(plan.notes)}, indent=2, ensure_ascii=False)


def said(line: Line) -> str:
    """A number as a person reads it."""
    if line.value is None:
        return "not known"
    if line.unit == "%":
        return f"{line.value:.1%}"
    if line.unit:
        size, prefix = next(((step, name) for step, name in _STEPS if line.value >= step), (1.0, ""))
        return f"{line.value / size:,.4g} {prefix}{line.unit}"
    if line.value >= 1e15:
        return f"{line.value:.3e}"
    return f"{line.value:,.0f}" if line.value == round(line.value) or line.value >= 1000 else f"{line.value:,.4g}"
