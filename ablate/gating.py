"""`ablate gate`: two commits of a user's own training code, compared by a registered study of its own.

A study with the arms `base` and `head` says once what is trained, what is claimed of it and how many seeds there are
(`prereg.commits.gate`). `gate` writes the same study for two commits, registers it before its first run, trains it from
look to look and gives the verdict of its rule. It judges nothing itself.

A comparison is known by what its arms start from (`prereg.registry.compared`): the same contents resume, or show the
verdict that there is, under whatever commit they lie. Another attempt is a registration of its own that the answer
counts, and so is another head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ablate.workspace import HERE, StudyContext, Workspace, placed
from prereg.commits.gate import (
    BASE,
    HEAD,
    commit_in_name,
    comparison,
    fresh_seeds,
    name_of,
    require_gate,
)
from prereg.errors import RegistrationError, StudyError, StudyFileError, Where
from prereg.registry.compared import (
    NO_RECORD,
    ComparisonRecord,
    EarlierComparisons,
    arm_contents,
    seeds_of_comparison,
)
from prereg.registry.disk import write_whole
from prereg.registry.ledger_entry import ComparedArm, ComparedContents, DecidedEntry, LookedEntry, SealEntry
from prereg.seeds import draw_nonce
from prereg.text import listed

if TYPE_CHECKING:
    from ablate.notebook.results import Decided, Ran
    from ablate.runner.options import RunOptions
    from prereg.commits.objects import Repository
    from prereg.commits.pins import CommitPin
    from prereg.registry.ledger_entry import Entry
    from prereg.registry.looks import Look
    from prereg.registry.registration import Registration

Answer = Literal["equivalent", "better", "worse", "undecided", "identical", "same code", "inadmissible", "unfinished"]


@dataclass(frozen=True)
class Commit:
    """One side of a comparison."""

    name: str
    """As it was given: a branch, a tag, a hash."""
    hash: str
    """Its full hash."""

    @property
    def short(self) -> str:
        return commit_in_name(self.hash)


@dataclass(frozen=True)
class Gated:
    """What became of two commits."""

    source: Path
    """The file of the study that was carried out for them."""
    base: Commit
    head: Commit
    answer: Answer
    """`equivalent`, `better` and `worse` are verdicts of the rule, `undecided` is its `inconclusive`. `identical`: each
    pair of runs left the same values to the bit, whatever the rule makes of that. `same code`: nothing was compared,
    because both commits start the same runs."""
    n_files: int
    """Files of head that a run is started from."""
    path: Path | None = None
    """The file of the study that compares them; none of the same code."""
    ran: Ran | None = None
    """How far its runs are, where this call made some."""
    decided: Decided | None = None
    """Its decision; none before there is one."""
    earlier: EarlierComparisons = NO_RECORD
    """Comparisons before this one, as far as the ledger at hand has them."""
    seeds_are_listed: bool = False
    """True where the study lists its seeds, so that they were chosen and not drawn."""
    not_compared: tuple[str, ...] = ()
    """Files that no run is started from and that differ between the two commits, or here from the commit that is
    checked out."""
    study_changed: bool = False
    """Whether the study's file differs from that of base."""

    @property
    def renamed(self) -> tuple[str, ...]:
        """Registered commits that start the same runs as the given ones, and were used in their place."""
        registration = self.registration
        if registration is None:
            return ()
        pins = ((registration.commit_of(arm), side) for arm, side in ((BASE, self.base), (HEAD, self.head)))
        return tuple(commit_in_name(pin.commit) for pin, side in pins if pin is not None and pin.commit != side.hash)

    @property
    def registration(self) -> Registration | None:
        """What was registered."""
        if self.decided is not None:
            return self.decided.registration
        return None if self.ran is None else self.ran.registration


def gate(
    study: str | Path,
    *,
    base: str | None = None,
    head: str | None = None,
    again: str | None = None,
    options: RunOptions | None = None,
    accept_underpowered: str | None = None,
    workspace: Workspace = HERE,
) -> Gated:
    """Compare two commits by a study with the arms `base` and `head`: register, train to the look that decides, judge.

    `base` and `head` are names of commits, those that the study writes where they are left out. `again` is the reason
    to compare commits anew that were compared before; without it their comparison resumes, or its verdict is given.
    Raises `StudyError` for a study that is no gate, a commit that is not here, and whatever `run` and `decide` refuse.

        ablate.gate("studies/harmless.yaml", base="main", head="HEAD").answer
    """
    from ablate.runner.options import RunOptions

    context = workspace.open(study)
    placed(context, lambda: require_gate(context.study))
    # What is compared: full hashes, and whether base and head start the same files at all.
    repository, sides = _sides(context, {BASE: base, HEAD: head})
    _require_as_committed(context, repository, sides)
    pins = _pins(context, repository, sides)
    arms = arm_contents(context.study, pins)
    gated = Gated(
        source=context.path,
        base=sides[BASE],
        head=sides[HEAD],
        answer="same code",
        n_files=len(pins[HEAD].files),
        study_changed=_changed(context, repository, sides[BASE]),
        not_compared=tuple(_not_compared(context, repository, sides)),
    )
    if arms[BASE] == arms[HEAD]:
        return gated
    # A study of its own for these contents, with its own file and registration. What was compared before is resumed.
    commits = {arm: side.hash for arm, side in sides.items()}
    record = ComparisonRecord(context.ledger.entries(), commits)
    planned = _planned(context, sides, arms, record, again)
    workspace = replace(workspace, root=context.root.path)
    path = _file_of(context, planned.name)
    if planned.is_new:
        _register(replace(context, workspace=workspace), planned, path, options or RunOptions(), accept_underpowered)
    else:
        _require_same_study(context, planned, path)
    gated = replace(
        gated,
        path=path,
        earlier=record.before(planned.name, context.study.study, arms),
        seeds_are_listed=fresh_seeds(planned.document) is None,
    )
    return _carried_out(gated, workspace, options or RunOptions())


def _file_of(context: StudyContext, name: str) -> Path:
    """The file of a comparison, as the user wrote the path of the gate's study, which lies next to it."""
    path, place = context.path.with_name(f"{name}.yaml"), context.root.study(name)
    return path if path.resolve() == place.resolve() else place


def _of_source(context: StudyContext, error: StudyError) -> StudyError:
    """An error of the study of two commits, at the place of the study that it was written from."""
    where = Where(file=context.path, line=context.loaded.line(error.where.field), field=error.where.field)
    return type(error)(error.found, required=error.required, fix=error.fix, where=where)


def _sides(context: StudyContext, names: dict[str, str | None]) -> tuple[Repository, dict[str, Commit]]:
    """What the names of commits mean now."""
    from prereg.commits.pins import WORKTREE
    from prereg.commits.resolve import LaidOut, missing_commit, repository_of
    from prereg.commits.worktree import commit_worktree

    repository = repository_of(context.root, context.study)
    sides = {}
    for arm, chosen in names.items():
        name = chosen or context.study.commits[arm]
        if name == WORKTREE:
            commit: str | None = commit_worktree(repository, LaidOut.of(context.study).counts)
        else:
            commit = repository.commit_of(name)
        if commit is None:
            raise missing_commit(repository, f"--{arm} {name} is no commit of this repository")
        sides[arm] = Commit(name, commit)
    return repository, sides


def _require_as_committed(context: StudyContext, repository: Repository, sides: dict[str, Commit]) -> None:
    """Refuse a commit that is checked out where the files that lie here differ from it.

    An answer about the commit, given to somebody who looks at other files, would be read as one about these.
    """
    from prereg.commits.pins import WORKTREE
    from prereg.commits.resolve import LaidOut, require_as_committed

    # The difference from HEAD is what is compared then.
    if any(side.name == WORKTREE for side in sides.values()):
        return
    laid_out = LaidOut.of(context.study)
    for arm, side in sides.items():
        named, worktree = f"--{arm} {side.name}", f"--{HEAD} {WORKTREE}"
        require_as_committed(repository, side.hash, laid_out, named=named, worktree=worktree)


def _pins(context: StudyContext, repository: Repository, sides: dict[str, Commit]) -> dict[str, CommitPin]:
    """Return the files of both sides that a run is started from, by arm."""
    from prereg.commits.resolve import LaidOut, pin_commit

    laid_out = LaidOut.of(context.study)
    return {arm: pin_commit(repository, commit.hash, laid_out) for arm, commit in sides.items()}


def _not_compared(context: StudyContext, repository: Repository, sides: dict[str, Commit]) -> Iterator[str]:
    """Yield the files outside of what runs start from that differ between the commits, then those that differ here."""
    from prereg.commits.pins import WORKTREE
    from prereg.commits.resolve import LaidOut
    from prereg.commits.worktree import changed_paths

    is_left_out = LaidOut.of(context.study).is_left_out
    between = [change.path for change in repository.changes(sides[BASE].hash, sides[HEAD].hash)]
    committed = [path for path in between if is_left_out(path)]
    yield from committed
    # A user who compares the checked-out commit means the files that are here, untracked ones included.
    checked_out = repository.commit_of("HEAD")
    if any(side.name == WORKTREE or side.hash == checked_out for side in sides.values()):
        here = changed_paths(repository, is_left_out)
        yield from (f"{path} (not committed)" for path in here if path not in committed)


def _changed(context: StudyContext, repository: Repository, base: Commit) -> bool:
    """Whether base holds another file of this study: who changes the code may have changed what it has to pass."""
    inside = context.root.relative(context.path)
    held = repository.git("cat-file", "blob", f"{base.hash}:{repository.prefix}{inside}")
    return held.is_yes and held.output != context.loaded.source_bytes


@dataclass(frozen=True)
class _Planned:
    """The comparison to carry out."""

    name: str
    """Its study."""
    document: dict[str, Any]
    """The gate's study, as its file has it now."""
    commits: dict[str, str]
    """The full hashes of base and head."""
    arms: dict[str, ComparedArm]
    """Contents from which the runs of base and head start."""
    attempt: int
    """Number of this comparison among those of the same contents by the gate, from 1."""
    is_new: bool
    """True where it is not registered yet."""
    why: str
    """The reason of a further attempt."""

    def written(self, seeds: Sequence[int] | None) -> dict[str, Any]:
        """Return the plain data of its study with these seeds; with those that the gate lists, where it does."""
        document = comparison(
            self.document,
            name=self.name,
            base=self.commits[BASE],
            head=self.commits[HEAD],
            seeds=seeds if fresh_seeds(self.document) is not None else None,
            why=self.why,
        )
        # Arms that record the same values to the bit leave nothing to test: no further run is made for them.
        stopping = document.get("stopping")
        if isinstance(stopping, dict) and "looks" in stopping:
            document["stopping"] = {"if_identical": "stop", **stopping}
        return document


def _planned(
    context: StudyContext,
    sides: dict[str, Commit],
    arms: dict[str, ComparedArm],
    record: ComparisonRecord,
    again: str | None,
) -> _Planned:
    """Return the comparison to carry out: the last one on record by this gate, or a new one."""
    from ablate.deciding import is_barred
    from prereg.yaml_reader import parse_yaml

    source, commits = context.study.study, {arm: side.hash for arm, side in sides.items()}
    before = record.by_gate(source, arms)
    document = parse_yaml(context.loaded.source_bytes, {})
    # The name counts the attempts.
    attempt = len(before) + (again is not None or not before)
    planned = _Planned(
        name=name_of(source, arms[BASE].sha256, arms[HEAD].sha256, attempt),
        document=document,
        commits=commits,
        arms=arms,
        attempt=attempt,
        is_new=again is not None or not before,
        why="",
    )
    # Without --again the last attempt is meant, or the first one that there will be.
    if again is None:
        return replace(planned, name=before[-1].name) if before else planned
    fix = f"ablate gate {context.path} --base {sides[BASE].name} --head {sides[HEAD].name}"
    if not again.strip():
        raise RegistrationError(
            "--again without a reason", required="why they are compared again", fix=f'{fix} --again "..."'
        )
    if not before:
        raise RegistrationError(
            f"{sides[BASE].short} and {sides[HEAD].short} were not compared by '{source}' before",
            required="--again only for commits that were",
            fix=fix,
        )
    # Without a decision it goes on, but where its evidence forbids every further look.
    last = before[-1]
    if last.decision is None and not is_barred(_file_of(context, last.name), workspace=context.workspace):
        raise RegistrationError(
            f"'{last.name}' compares these commits and is not decided",
            required="its end, before they are compared again",
            fix=fix,
        )
    if isinstance(document["seeds"], list):
        raise RegistrationError(
            f"--again, and '{source}' lists its seeds: the same seeds are the same runs",
            required="seeds of its own for each comparison",
            fix=f"seeds: fresh {len(document['seeds'])}",
            where=Where(file=context.path, line=context.loaded.line(("seeds",))),
        )
    return replace(planned, why=again.strip())


_HEADER = """# Written by `ablate gate` from studies/{source}.yaml for two commits, and registered as it is.
#   base  {base}
#   head  {head}
"""


def _register(
    context: StudyContext,
    planned: _Planned,
    path: Path,
    options: RunOptions,
    accept_underpowered: str | None,
) -> None:
    """Write and register a new comparison. The nonce is drawn last: whatever refuses it, no seeds were seen."""
    from ablate.checking import check
    from ablate.registering import prepare
    from ablate.runner.machine import choose_machine
    from prereg.registry.register import draft, refuse_sealed_elsewhere, register_study

    n_seeds, workspace = fresh_seeds(planned.document), context.workspace
    try:
        # 1. All that can be refused, with seeds that stand in for those to come: design and pins are the same with any.
        stand_ins = None if n_seeds is None else range(1, n_seeds + 1)
        _write_unregistered(context, planned, path, stand_ins)
        drafted = check(path, workspace)
        choose_machine(drafted.study, [], options)
        prepared = prepare(drafted, accept_underpowered=accept_underpowered)
        if n_seeds is None:
            entries = context.ledger.entries()
            refuse_sealed_elsewhere(entries, draft(drafted.loaded, prepared.pinned.pins), drafted.loaded)
        # 2. The nonce, in the very entry of the registration.
        with context.ledger.hold():
            nonce = None if n_seeds is None else draw_nonce()
            seeds = None if nonce is None or n_seeds is None else seeds_of_comparison(nonce, n_seeds)
            _write_unregistered(context, planned, path, seeds)
            compared = ComparedContents(
                gate=context.study.study,
                attempt=planned.attempt,
                base=planned.arms[BASE],
                head=planned.arms[HEAD],
                nonce=nonce,
            )
            promise = partial(register_study, compared=compared)
            registration, entry = replace(prepared, context=workspace.open(path)).write(promise)
    except StudyError as error:
        if _is_registered(context, planned.name):
            raise
        # The mistake is one of the study that it was written from.
        first, *others = (_of_source(context, each) for each in (error, *error.others))
        raise first.followed_by(others) from None
    finally:
        # What was not registered leaves nothing behind, also after Ctrl-C.
        if not _is_registered(context, planned.name):
            path.unlink(missing_ok=True)
    workspace.watcher.note(f"registered {planned.name} before any run; registration {registration.sha256}")
    workspace.watcher.note(f"ledger head {entry.sha256}")


def _write_unregistered(context: StudyContext, planned: _Planned, path: Path, seeds: Sequence[int] | None) -> None:
    """Write the study of a comparison. Raises `RegistrationError` where a study of its name is registered by now."""
    from prereg.yaml_model import yaml_text

    header = _HEADER.format(source=context.study.study, base=planned.commits[BASE], head=planned.commits[HEAD])
    if _is_registered(context, planned.name):
        raise RegistrationError(
            f"'{planned.name}' is registered, by another call just now or by hand",
            required="one registration of a comparison, by ablate gate",
            fix=f"the same command again; if it says this again, another name of {context.path}",
            where=Where(file=context.path),
        )
    write_whole(path, (header + yaml_text(planned.written(seeds))).encode())


def _is_registered(context: StudyContext, name: str) -> bool:
    return any(entry.study == name for entry in context.ledger.entries())


def _require_same_study(context: StudyContext, planned: _Planned, path: Path) -> None:
    """Refuse to go on with a comparison whose gate says something else now than when it was registered."""
    from prereg.yaml_reader import parse_yaml

    registered = parse_yaml(path.read_bytes(), {}) if path.is_file() else {}
    document = _as_registered(planned, registered) if registered else {}
    # The question of a further attempt is its reason.
    fields = [
        field
        for field in {**registered, **document}
        if field != "question" and registered.get(field) != document.get(field)
    ]
    if fields or not registered:
        raise StudyFileError(
            f"{path.name} compares these commits, and {context.path} has changed since, in {listed(sorted(fields))}"
            if registered
            else f"{path.name} is registered, and its file is gone",
            required="one study for one comparison",
            fix=f'restore {context.path}; or, as a second comparison that is counted: --again "..."'
            if registered
            else f"git checkout -- {path}",
            where=Where(file=context.path),
        )


def _as_registered(planned: _Planned, registered: dict[str, Any]) -> dict[str, Any]:
    """Return what the gate says now, with the commits and seeds of a registered comparison of these contents."""
    # Its commits may have other names by now, and its seeds are not in the gate's file.
    commits = {arm: registered["variants"][arm]["commit"] for arm in (BASE, HEAD)}
    is_as_many = len(registered["seeds"]) == fresh_seeds(planned.document)
    document = replace(planned, commits=commits).written(registered["seeds"] if is_as_many else None)
    # An earlier version registered no rule for runs that are identical.
    stopping = document.get("stopping")
    if isinstance(stopping, dict) and "if_identical" not in registered.get("stopping", {}):
        document["stopping"] = {key: value for key, value in stopping.items() if key != "if_identical"}
    return document


def _carried_out(gated: Gated, workspace: Workspace, options: RunOptions) -> Gated:
    """Run to the look that decides, and decide."""
    from ablate.deciding import decide, results
    from ablate.running import run

    assert gated.path is not None
    context = workspace.open(gated.path)
    if any(isinstance(entry, DecidedEntry) for entry in context.entries):
        return _answered(context, replace(gated, decided=results(gated.path, workspace=workspace)))
    # A call that ended between the look that decides and its decision.
    if any(isinstance(entry, LookedEntry) and entry.final for entry in context.entries):
        return _answered(context, replace(gated, decided=decide(gated.path, workspace=workspace)))
    while True:
        # One look a round: a sequential study goes on while its looks say "continue".
        ran = run(gated.path, options, workspace=workspace)
        if not ran.summary.complete:
            return replace(gated, ran=ran, answer="unfinished")
        decided = decide(gated.path, workspace=workspace)
        if decided.status != "continue":
            return _answered(context, replace(gated, ran=ran, decided=decided))


def _answered(context: StudyContext, gated: Gated) -> Gated:
    decision = gated.decided.decision if gated.decided is not None else None
    assert decision is not None, gated.path
    if decision.status in ("inadmissible", "unfinished"):
        answer: Answer = "inadmissible" if decision.status == "inadmissible" else "unfinished"
    # Before the verdict: that nothing differs says more than that any difference is small.
    elif decision.verdict in ("equivalent", "inconclusive") and _all_identical(context.entries, gated, decision.look):
        answer = "identical"
    elif decision.verdict in ("equivalent", "better", "worse"):
        answer = decision.verdict  # type: ignore[assignment]  # one of the three
    else:
        answer = "undecided"
    return replace(gated, answer=answer)


def _all_identical(entries: Sequence[Entry], gated: Gated, look: Look | None) -> bool:
    """Return true where both runs of every judged seed have one outcome; of a look, of every seed that it saw."""
    from ablate.judge.interim import all_identical

    registration = gated.registration
    assert registration is not None
    seals = [entry for entry in entries if isinstance(entry, SealEntry) and entry.registration in registration.lineage]
    seeds = registration.study.seeds if look is None else registration.study.seeds[: look.n_seeds]
    return all_identical(registration.study, seals, seeds)
