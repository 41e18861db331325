"""Workspace, what every verb needs: where studies lie, the clock, who hears of progress; and a study file, opened."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from prereg.errors import (
    EvidenceError,
    RegistrationError,
    StudyError,
    StudyFileError,
    Where,
)
from prereg.registry.paths import Root
from prereg.text import listed

if TYPE_CHECKING:
    from ablate.data.corpora import Library
    from ablate.runner.progress import Watcher
    from prereg.registry.ledger import Ledger
    from prereg.registry.ledger_entry import Entry
    from prereg.registry.registration import Registration
    from prereg.study.load import Loaded
    from prereg.study.spec import Study

Clock = Callable[[], str]
Answer = TypeVar("Answer")
StudySource: TypeAlias = "str | Path | Study | Mapping[str, Any]"
"""The path of a study's file, the study itself, or the plain data of one."""


def utc_now() -> str:
    """Now, in UTC, with its offset."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Workspace:
    """Where studies lie, what the time is, and who hears what a verb does while it works."""

    root: str | Path | None = None
    """The folder that holds studies/; found from a study's file, or from the current folder upward, where none is
    given."""
    clock: Clock = utc_now
    """Gives the dates of the ledger and of records."""
    console: Watcher | None = None
    """Hears progress and notes; plain lines on standard error where none is given."""

    @property
    def project(self) -> Root:
        """The root, found from the current folder. Raises `StudyFileError` where no folder upward holds studies/."""
        return Root.around(Path(), self.root)

    @property
    def watcher(self) -> Watcher:
        """Who hears of progress."""
        from ablate.runner.progress import PlainWatcher

        return self.console if self.console is not None else PlainWatcher(sys.stderr)

    def open(self, study: StudySource) -> StudyContext:
        """Read a study file; a bare name is looked for under `studies/`, and so is the file of a study in memory, which
        must say the same. What was registered from its bytes holds.

        Raises `StudyFileError` where a study in memory has no file, or another one.
        """
        from prereg.registry.history import as_registered
        from prereg.registry.registration import load_registration
        from prereg.study.load import load_study

        in_memory = None if isinstance(study, (str, Path)) else load(study)
        path = Path(study) if isinstance(study, (str, Path)) else _file_of(load(study), self.root)
        if path.suffix not in (".yaml", ".yml") and not path.exists():  # ablate run norm
            path = Path(self.root or "") / "studies" / f"{path.name}.yaml"
        as_written, root = load_study(path, self.root), Root.find(path, self.root)
        try:
            registration = load_registration(root, as_written.study.study)
        except StudyError:
            registration = None  # whatever needs the registration says what is wrong with it
        # What was registered is read with the fields that the registration resolved, fresh seeds among them.
        loaded = as_written if registration is None else as_registered(registration, as_written)
        context = StudyContext(self, path, root, loaded)
        if in_memory is not None and in_memory not in (as_written.study, context.study):
            _refuse_other(in_memory, context)
        return context


HERE = Workspace()
"""The root of the study's file, today's clock, notes on standard error."""


@dataclass(frozen=True)
class StudyContext:
    """A study file that has been read, and the project it lies in."""

    workspace: Workspace
    path: Path
    root: Root
    loaded: Loaded
    evidence_path: Path | None = None
    """The committed evidence whose runs are read, because no sealed run is in `data/runs`."""

    @property
    def study(self) -> Study:
        return self.loaded.study

    @property
    def ledger(self) -> Ledger:
        """The ledger of all studies of this root."""
        from prereg.registry.ledger import Ledger

        return Ledger(self.root.ledger)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The ledger's entries about this study, oldest first."""
        return tuple(entry for entry in self.ledger.entries() if entry.study == self.study.study)

    @property
    def library(self) -> Library:
        """The corpora of this root."""
        from ablate.data.corpora import Library

        return Library.of(self.root.corpora)

    def now(self) -> str:
        """The time, for the ledger."""
        return self.workspace.clock()

    def about(self, registration: str) -> dict[str, Any]:
        """What an entry about this study says of it: the study, the registration and the time."""
        return {"study": self.study.study, "registration": registration, "at": self.now()}

    def load_registration(self) -> Registration | None:
        """The registration in force, whatever the file says now; none of a study that is not registered."""
        from prereg.registry.registration import load_registration

        return load_registration(self.root, self.study.study)


def load(study: StudySource) -> Study:
    """The study of a file, resolved and checked; a study as it is, and that of a mapping. Raises `StudyError`.

    >>> ablate.load("studies/own.yaml").claims["gain"].metric
    'val/loss'
    """
    if isinstance(study, (str, Path)):
        return HERE.open(study).study
    from prereg.study.spec import Study
    from prereg.yaml_model import study_in_memory

    if not isinstance(study, (Study, Mapping)):
        raise StudyFileError(
            f"{type(study).__name__} in place of a study",
            required="the path of a study's file, a Study, or a mapping of its fields",
            fix='ablate.load("studies/NAME.yaml")',
        )
    return study if isinstance(study, Study) else study_in_memory(study)


def _file_of(study: Study, root: str | Path | None) -> Path:
    """Where the file of a study in memory lies. Raises `StudyFileError` where it is not there."""
    try:
        path = Root.around(Path(), root).study(study.study)
    except StudyFileError:
        path = Path().resolve() / "studies" / f"{study.study}.yaml"
    # As one would type it, in messages and commands.
    path = path.relative_to(Path().resolve()) if path.is_relative_to(Path().resolve()) else path
    if not path.is_file():
        raise StudyFileError(
            f"study '{study.study}' is in memory alone, and {path} is not there",
            required="a file, which is what is registered",
            fix=f'study.to_yaml("{path}")',
        )
    return path


def _refuse_other(in_memory: Study, context: StudyContext) -> None:
    from prereg.registry.history import differing_fields

    fields = listed([difference.field for difference in differing_fields(context.study, in_memory)][:5])
    raise StudyFileError(
        f"this study is not the one in memory, which differs in {fields}",
        required="the same study in the file, which is what is registered",
        fix=f'study.to_yaml("{context.path}", replace=True); or give the path',
        where=Where(file=context.path),
    )


@contextmanager
def with_evidence(context: StudyContext) -> Iterator[StudyContext]:
    """The study with its runs: those of `data/runs`, or, where none of its sealed runs is there, those of its committed
    evidence, or of its campaign's, whose file is then its `evidence_path`.

    Raises `EvidenceError` where they would be read and are not what was committed.
    """
    from ablate.verification.evidence import committed_as, committed_evidence

    study, entries = context.study.study, context.ledger.readable()
    name = committed_as(context.root, study, entries)
    with committed_evidence(context.root, name, entries) as evidence:
        runs = context.root.all_runs(study)
        # Damaged evidence is no fault as long as it is not read: runs in data/runs come first.
        if evidence.item is not None and evidence.item.faults and not any(runs.glob("*/*/*/run.json")):
            raise EvidenceError(
                evidence.item.faults[0],
                required="the evidence as it was committed, since no run is in data/runs",
                fix=f"ablate verify {context.path}; restore the file from version control",
            )
        path = context.root.evidence(name) if evidence.in_use else None
        yield replace(context, root=evidence.root, evidence_path=path)


def require_registered(context: StudyContext, *, fix: str = "") -> Registration:
    """The registration in force, of an unchanged study. `fix` is what to type where there is none, unless it is
    `ablate run`, which trains.

        >>> require_registered(HERE.open("studies/own.yaml")).study.seeds
        (1, 2, 3)
    """
    from prereg.registry.history import require_unchanged

    registered = context.load_registration()
    if registered is None:
        raise RegistrationError(
            f"'{context.study.study}' is not registered",
            required="a registration before any evidence",
            fix=fix or f"ablate run {context.path}   (registers, then trains)",
        )
    require_unchanged(registered, context.loaded)
    return registered


def placed(context: StudyContext, ask: Callable[[], Answer]) -> Answer:
    """What `ask` returns; an error about a field, and those after it, are given the file and line of their fields."""
    try:
        return ask()
    except StudyError as error:
        # A model reports several mistakes at once, each with its field: each gets the line of its own.
        first, *others = (
            mistake.at(file=context.path, line=context.loaded.line(mistake.where.field))
            for mistake in (error, *error.others)
        )
        raise first.followed_by(others) from None
