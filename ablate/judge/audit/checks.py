"""`@check_body`, by which a check of the evidence is made: its declaration in checks.toml, and a function that looks.

    @check_body("no run failed")
    def _failed(context: AuditContext) -> Found:
        return [named_run(run) for run in context.runs if run.status == "failed"]

To add a check: a row of checks.toml, and its body like the one above in a module of this folder; then `python -m
docs.generator`. Where it may go, and what holds of every check, is tested by tests/judge/test_checks.py.

A check returns its faults and passes without any; a `CheckResult` where text, severity or requirement depend on what
was found; None where it does not apply. checks.toml gives name, consequence, what it looks at, why and what is
required; the order there is that of every verdict. Nothing else describes a check: docs/checks.md and the report read
that file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Literal, ParamSpec

from ablate.judge.readings import read_values, reading_of
from ablate.judge.verdict import Check, Severity
from ablate.records.evidence import Evidence
from ablate.records.run_record import RunRecord
from prereg.frozen import FrozenModel
from prereg.registry.ledger_entry import Entry, SealEntry
from prereg.registry.ledger_lines import K
from prereg.registry.looks import Look
from prereg.registry.plan import Cell, newest_seals
from prereg.registry.registration import Registration
from prereg.study.spec import Study

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class AuditContext:
    """What checks look at: a registration, its evidence, and what is derived from both once."""

    registration: Registration
    evidence: Evidence
    """What may be judged; at a look of a sequential study, the runs of its seeds only."""
    look: Look | None = None
    whole: Evidence | None = None
    """All evidence, where `evidence` is that of a look."""

    @property
    def study(self) -> Study:
        """The registered study."""
        return self.registration.study

    @property
    def runs(self) -> tuple[RunRecord, ...]:
        """The records of all runs."""
        return self.evidence.runs

    @cached_property
    def ended(self) -> list[RunRecord]:
        """Runs that are done or diverged."""
        return [run for run in self.runs if run.status in ("done", "diverged")]

    @cached_property
    def done(self) -> list[RunRecord]:
        """Runs that reached their last step."""
        return [run for run in self.runs if run.status == "done"]

    @cached_property
    def entries(self) -> list[Entry]:
        """The ledger's entries under this registration, and under others that share their runs with it."""
        return [entry for entry in self.evidence.ledger if entry.registration in self.registration.lineage]

    @cached_property
    def seals(self) -> dict[Cell, SealEntry]:
        """The newest seal of every run."""
        return newest_seals(self.entries, self.registration.runs_sha256)

    @cached_property
    def readings(self) -> list[tuple[str, str, dict[Cell, float]]]:
        """Each value that the claims read once: its name, a hypothesis that reads it, and the values by run."""
        hypotheses = {reading_of(self.study, name): name for name in self.study.hypotheses}
        return [(reading, name, read_values(self.study, name, self.evidence)) for reading, name in hypotheses.items()]

    def of(self, *kinds: type[K]) -> list[K]:
        """Those of `entries` that are of these kinds."""
        return [entry for entry in self.entries if isinstance(entry, kinds)]


@dataclass(frozen=True)
class CheckResult:
    """What a check found, where a list of faults does not say it all."""

    faults: Sequence[str] = ()
    """What is listed; the check passes when nothing is, unless `passed` says otherwise."""
    found: str = ""
    """Text before the list; else the number of faults."""
    after: str = ""
    """Text after the list."""
    passed: bool | None = None
    severity: Severity | None = None
    """What a failure means, where that depends on the evidence; else the first severity that the check declares."""
    required: str = ""
    """What was required, where that depends on the study; else as declared."""
    name: str = ""
    """The name of a check that the study brings; else as declared."""


Found = list[str] | CheckResult | None


class DeclaredCheck(FrozenModel):
    """One check of checks.toml."""

    name: str
    """Its name in verdicts; of checks that a study brings, the beginning of their names."""
    of: Literal["evidence", "findings"]
    """Made by `audit` of the evidence alone, or by `decide` of what it has found."""
    consequence: tuple[Severity, ...]
    """What a failure means; the gravest first where it depends on what was found."""
    looks_at: str
    why: str
    """Why it means that, and what it depends on."""
    required: str = ""
    only_failed: bool = False
    """Whether it is listed only when it fails."""

    @property
    def reason(self) -> str:
        """Why, and whether the check is listed where it holds."""
        return f"listed only when it fails; {self.why}" if self.only_failed else self.why


def _read() -> dict[str, DeclaredCheck]:
    # TOML lists become tuples, since the models are strict and frozen.
    rows = tomllib.loads(Path(__file__).with_name("checks.toml").read_text(encoding="utf-8"))["check"]
    declared = [DeclaredCheck.model_validate(row | {"consequence": tuple(row["consequence"])}) for row in rows]
    assert len({declaration.name for declaration in declared}) == len(declared), "a name stands twice in checks.toml"
    return {declaration.name: declaration for declaration in declared}


DECLARED = _read()
"""Every check by its name, in the order of every verdict."""

BODIES: dict[str, Callable[..., tuple[Check, ...]]] = {}
"""What makes each, as far as its module is imported."""


def check_body(
    name: str, *, applies: Callable[[AuditContext], bool] | None = None
) -> Callable[[Callable[Arguments, Found]], Callable[Arguments, tuple[Check, ...]]]:
    """Make a function the body of a declared check; it then returns it as a tuple of one `Check`, or of none.

    `applies` says in which studies the check is made.
    """
    declared = DECLARED[name]

    def decorate(find: Callable[Arguments, Found]) -> Callable[Arguments, tuple[Check, ...]]:
        @wraps(find)
        def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> tuple[Check, ...]:
            # A check that does not apply is in no verdict: it would look like one that held.
            if applies is not None and not applies(args[0]):  # type: ignore[arg-type]  # a context, by the declaration
                return ()
            result = find(*args, **kwargs)
            if result is None:
                return ()
            if isinstance(result, list):
                result = CheckResult(result)
            passed = not result.faults if result.passed is None else result.passed
            if passed and declared.only_failed:
                return ()
            # A number of faults says more than the first few of them, which follow it.
            heading = result.found or (str(len(result.faults)) if result.faults else "none against it")
            return (
                Check(
                    name=result.name or name,
                    passed=passed,
                    severity=result.severity or declared.consequence[0],
                    found=f"{heading}{first_few(result.faults)}{result.after}",
                    required=result.required or declared.required,
                ),
            )

        # Two bodies for one declaration: the second would silently replace the first.
        assert name not in BODIES, name
        BODIES[name] = run
        return run

    return decorate


def shown(context: AuditContext) -> bool:
    """Whether outcomes were read; they are not while planned runs are missing."""
    return not context.evidence.withheld


def built_in(context: AuditContext) -> bool:
    """Whether the built-in trainer made the runs; it states more than a user's own can."""
    return context.study.trainer == "gpt"


_MOST = 5
"""Faults that a check names one by one."""


def first_few(faults: Sequence[str]) -> str:
    """`: ` and the first few of a list, with how many more there are; empty for an empty list.

    Examples
    --------
    >>> first_few(["a", "b"]), first_few(list("abcdefg"))
    (': a; b', ': a; b; c; d; e and 2 more')
    """
    more = f" and {len(faults) - _MOST} more" if len(faults) > _MOST else ""
    return f": {'; '.join(faults[:_MOST])}{more}" if faults else ""


def named(cell: Cell) -> str:
    """The run of an arm and a seed.

    Examples
    --------
    >>> named(("rope", 3))
    'rope seed 3'
    """
    return f"{cell[0]} seed {cell[1]}"


def named_run(run: RunRecord) -> str:
    """The same, of a run's record."""
    return named(run.cell)
