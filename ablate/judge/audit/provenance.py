"""Was every run made with the same means: code, device, libraries, path through attention, machine?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ablate.judge.audit.checks import AuditContext, Found, Result, built_in, check, named_run
from ablate.judge.verdict import Severity
from ablate.records.run_record import Provenance


def _one_kind(
    name: str,
    consequence: Severity,
    kind_of: Callable[[Provenance], str],
    *,
    looks_at: str,
    why: str,
    only_failed: bool = False,
    applies: Callable[[AuditContext], bool] | None = None,
) -> None:
    """Declare that a part of the provenance is the same for all runs."""

    @check(name, consequence, looks_at=looks_at, why=why, required="one", only_failed=only_failed, applies=applies)
    def _kinds(context: AuditContext) -> Found:
        kinds = Counter(kind_of(run.provenance) for run in context.ended)
        counts = [f"{kind if len(kind) < 64 else kind[:12]} ({count} runs)" for kind, count in sorted(kinds.items())]
        return Result(counts, f"{len(kinds)} over {len(context.ended)} runs", passed=len(kinds) <= 1)


_one_kind(
    "every run used the same code",
    "inadmissible",
    lambda made: made.code,
    looks_at="hash of every module that a run executes",
    why="arms and seeds would differ in code too",
)


@check(
    "every run was made at the same commit",
    "note",
    looks_at="git commits of the tool's source tree",
    why="the hash of the source decides, not the commit",
    required="one",
    only_failed=True,
)
def _commits(context: AuditContext) -> Found:
    commits = sorted({run.provenance.commit or "no commit" for run in context.ended})
    return [commit[:12] for commit in commits] if len(commits) > 1 else []


_one_kind(
    "every run used the same device class",
    "inadmissible",
    lambda made: made.device,
    looks_at="the device of each run",
    why="arithmetic differs between devices, and with it pairs",
    applies=built_in,
)
_one_kind(
    "every run used the same library versions",
    "deviation",
    lambda made: f"python {made.python}, torch {made.torch}, numpy {made.numpy}",
    looks_at="Python, torch and numpy of each run",
    why="arithmetic may differ, mostly by rounding",
    applies=built_in,
)
_one_kind(
    "every run took the same path through attention",
    "deviation",
    lambda made: made.paths,
    looks_at="which of equal computations each run took, as its machine measured them",
    why="they differ by rounding, and pairs then differ by it too",
    only_failed=True,
)
_one_kind(
    "every run used the same processor and platform",
    "note",
    lambda made: f"{made.platform}, {made.processor}",
    looks_at="processor and system of each run",
    why="rounding may differ",
)


@check(
    "the tool's source tree was clean",
    "note",
    looks_at="uncommitted changes, by git, in the modules that a run executes",
    why="the hash of the source names the code all the same",
    required="no uncommitted change",
    applies=built_in,
)
def _clean(context: AuditContext) -> Found:
    return [named_run(run) for run in context.ended if run.provenance.dirty]
