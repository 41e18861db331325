"""`ablate gate`: two commits of a user's own training code, compared by a registered study that is named after them.

A study with the arms `base` and `head` says once what is trained, what is claimed of it and how many seeds there are
(`prereg.commits.gate`). `gate` writes the same study for two commits, registers it before its first run, trains it from
look to look and gives the verdict of its rule. It judges nothing itself.

What has been compared is not compared again unawares: the same commits resume, or show the verdict that there is, and
another attempt is a registration of its own that the answer counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ablate.workspace import HERE, StudyContext, Workspace, placed
from prereg.commits.gate import BASE, HEAD, attempt_of, commit_in_name, comparison, name_of, require_gate
from prereg.errors import RegistrationError, StudyError, StudyFileError, Where
from prereg.registry.disk import write_whole
from prereg.registry.ledger_entry import DecidedEntry, LookedEntry, RegisteredEntry, SealEntry
from prereg.text import listed

if TYPE_CHECKING:
    from ablate.notebook.results import Decided, Ran
    from ablate.runner.options import RunOptions
    from prereg.commits.objects import Repository
    from prereg.registry.ledger_entry import Entry
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
    """`equivalent`, `better` and `worse` are verdicts of the rule, `undecided` is its `inconclusive`. `identical`: that
    too, and every pair of runs left the same values to the bit. `same code`: nothing was compared, because both commits
    start the same runs."""
    n_files: int
    """Files of head that a run is started from."""
    path: Path | None = None
    """The file of the study that compares them; none of the same code."""
    ran: Ran | None = None
    """How far its runs are, where this call made some."""
    decided: Decided | None = None
    """Its decision; none before there is one."""
    earlier: tuple[str, ...] = ()
    """Other registered comparisons of these commits, by their names, oldest first."""
    study_changed: bool = False
    """Whether the study's file differs from that of base."""

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
    context = workspace.open(study)
    placed(context, lambda: require_gate(context.study))
    # What is compared: full hashes, and whether base and head start the same files at all.
    repository, sides = _sides(context, {BASE: base, HEAD: head})
    n_files, same = _compared_files(context, repository, sides)
    before = _registered(context, sides)
    gated = Gated(
        source=context.path,
        base=sides[BASE],
        head=sides[HEAD],
        answer="same code",
        n_files=n_files,
        study_changed=_changed(context, repository, sides[BASE]),
    )
    if same:
        return gated
    # A study of its own for these two commits, with its own file and registration. What was compared before is
    # resumed.
    name, document, is_new = _planned(context, sides, before, again, workspace)
    if is_new:
        _require_as_committed(context, repository, sides)
    path = _file_of(context, name)
    _write(context, path, document, is_new)
    gated = replace(gated, path=path, earlier=tuple(compared for compared in before if compared != name))
    workspace = replace(workspace, root=context.root.path)
    try:
        return _carried_out(gated, workspace, options, accept_underpowered)
    except StudyError as error:
        if any(entry.study == name for entry in context.ledger.entries()):
            raise
        # What was not registered leaves nothing behind, and the mistake is one of the study that it was written from.
        path.unlink(missing_ok=True)
        first, *others = (_of_source(context, each) for each in (error, *error.others))
        raise first.followed_by(others) from None


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
    """Refuse to register a commit that is checked out where the files that lie here differ from it."""
    from prereg.commits.pins import WORKTREE
    from prereg.commits.resolve import LaidOut, require_as_committed

    laid_out = LaidOut.of(context.study)
    for arm, side in sides.items():
        if side.name != WORKTREE:
            named, worktree = f"--{arm} {side.name}", f"--{arm} {WORKTREE}"
            require_as_committed(repository, side.hash, laid_out, named=named, worktree=worktree)


def _compared_files(context: StudyContext, repository: Repository, sides: dict[str, Commit]) -> tuple[int, bool]:
    """How many files of head a run is started from, and whether base and head start the same runs."""
    from prereg.commits.resolve import LaidOut, pin_commit
    from prereg.registry.canon import sha256_of

    laid_out = LaidOut.of(context.study)
    pins = {arm: pin_commit(repository, commit.hash, laid_out) for arm, commit in sides.items()}
    # Both what is started and with which settings.
    runs = {sha256_of({"files": pins[arm].sha256, "config": context.study.arms[arm].config}) for arm in (BASE, HEAD)}
    return len(pins[HEAD].files), len(runs) == 1


def _changed(context: StudyContext, repository: Repository, base: Commit) -> bool:
    """Whether base holds another file of this study: who changes the code may have changed what it has to pass."""
    inside = context.root.relative(context.path)
    held = repository.git("cat-file", "blob", f"{base.hash}:{repository.prefix}{inside}")
    return held.is_yes and held.output != context.loaded.source_bytes


def _registered(context: StudyContext, sides: dict[str, Commit]) -> dict[str, Entry | None]:
    """Registered comparisons of these two commits by any study, in the order of the ledger -> their decision."""
    # In the order of the ledger, where a decision comes after the registration that it is of.
    decisions: dict[str, Entry | None] = {}
    for entry in context.ledger.entries():
        if isinstance(entry, RegisteredEntry) and attempt_of(entry.study, sides[BASE].hash, sides[HEAD].hash):
            decisions[entry.study] = None
        elif isinstance(entry, DecidedEntry) and entry.study in decisions:
            decisions[entry.study] = entry
    return decisions


def _planned(
    context: StudyContext,
    sides: dict[str, Commit],
    before: dict[str, Entry | None],
    again: str | None,
    workspace: Workspace,
) -> tuple[str, dict[str, Any], bool]:
    """The name and the plain data of the study to carry out, and whether it is not registered yet."""
    from ablate.deciding import is_barred
    from prereg.yaml_reader import parse_yaml

    source, (base, head) = context.study.study, (sides[BASE].hash, sides[HEAD].hash)
    document = parse_yaml(context.loaded.source_bytes, {})
    seeds_line = Where(file=context.path, line=context.loaded.line(("seeds",)))
    if context.study.base_runs == "shared" and isinstance(document["seeds"], list):
        raise RegistrationError(
            "base_runs: shared, and the seeds are a list, which somebody chose",
            required="seeds that follow from study and base commit",
            fix=f"seeds: fresh {len(document['seeds'])}",
            where=seeds_line,
        )
    # The name counts the attempts: source, both hashes, and the number of the attempt.
    own = [name for name in before if (attempt_of(name, base, head) or ("", 0))[0] == source]
    attempt = len(own) + (again is not None or not own)
    name = name_of(source, base, head, attempt)
    # Without --again the last attempt is meant, or the first one that there will be.
    if again is None:
        return name, comparison(document, base, head, attempt=attempt), not own
    fix = f"ablate gate {context.path} --base {sides[BASE].name} --head {sides[HEAD].name}"
    if not again.strip():
        raise RegistrationError(
            "--again without a reason", required="why they are compared again", fix=f'{fix} --again "..."'
        )
    if not own:
        raise RegistrationError(
            f"{sides[BASE].short} and {sides[HEAD].short} were not compared by '{source}' before",
            required="--again only for commits that were",
            fix=fix,
        )
    # Without a decision it goes on, but where its evidence forbids every further look.
    if before[own[-1]] is None and not is_barred(_file_of(context, own[-1]), workspace=workspace):
        raise RegistrationError(
            f"'{own[-1]}' compares these commits and is not decided",
            required="its end, before they are compared again",
            fix=fix,
        )
    if isinstance(document["seeds"], list):
        raise RegistrationError(
            f"--again, and '{source}' lists its seeds: the same seeds are the same runs",
            required="seeds of its own for each comparison",
            fix=f"seeds: fresh {len(document['seeds'])}",
            where=seeds_line,
        )
    return name, comparison(document, base, head, attempt=attempt, why=again.strip()), True


_HEADER = """# Written by `ablate gate` from studies/{source}.yaml for two commits, and registered as it is.
#   base  {base}
#   head  {head}
"""


def _write(context: StudyContext, path: Path, document: dict[str, Any], is_new: bool) -> None:
    """Write the study of two commits. Raises `StudyFileError` where another one of them was registered."""
    from prereg.yaml_model import yaml_text
    from prereg.yaml_reader import parse_yaml

    if is_new:
        variants = document["variants"]
        header = _HEADER.format(
            source=context.study.study, base=variants[BASE]["commit"], head=variants[HEAD]["commit"]
        )
        write_whole(path, (header + yaml_text(document)).encode())
        return
    registered = parse_yaml(path.read_bytes(), {}) if path.is_file() else {}
    fields = [
        field
        for field in {**registered, **document}
        # The question of a further attempt is its reason.
        if field != "question" and registered.get(field) != document.get(field)
    ]
    if fields:
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


def _carried_out(
    gated: Gated, workspace: Workspace, options: RunOptions | None, accept_underpowered: str | None
) -> Gated:
    """Run to the look that decides, and decide."""
    from ablate.deciding import decide, results
    from ablate.runner.options import RunOptions
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
        ran = run(gated.path, options or RunOptions(), workspace=workspace, accept_underpowered=accept_underpowered)
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
    elif decision.verdict in ("equivalent", "better", "worse"):
        answer = decision.verdict  # type: ignore[assignment]  # one of the three
    else:
        answer = "identical" if _all_identical(context.entries, gated) else "undecided"
    return replace(gated, answer=answer)


def _all_identical(entries: Sequence[Entry], gated: Gated) -> bool:
    """Whether both runs of every judged seed have one outcome: no test over differences has a standard error then."""
    registration = gated.registration
    assert registration is not None
    outcomes: dict[int, set[str]] = defaultdict(set)
    runs = 0
    for entry in entries:
        if isinstance(entry, SealEntry) and entry.registration in registration.lineage and entry.status == "done":
            outcomes[entry.seed].add(entry.outcome_sha256)
            runs += 1
    planned = registration.study.judged
    return runs >= len(planned) and all(len(hashes) == 1 for hashes in outcomes.values())
