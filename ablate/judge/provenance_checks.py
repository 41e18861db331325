"""Was every run made with the same means: code, device, libraries, path through attention, machine?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ablate.judge.checks import listed, named_run, none_against
from ablate.judge.verdict import Check, Severity
from ablate.records.run_record import RunRecord


def check_provenance(ended: list[RunRecord], *, stated: bool) -> tuple[Check, ...]:
    """One check for each means; `stated` says whether the trainer tells its device and its libraries."""
    asked: tuple[tuple[str, Severity, Callable[[RunRecord], str]], ...] = (
        ("every run used the same code", "inadmissible", lambda run: run.provenance.code),
        ("every run used the same device class", "inadmissible", lambda run: run.provenance.device),
        (
            "every run used the same library versions",
            "deviation",
            lambda run: ", ".join(
                (f"python {run.provenance.python}", f"torch {run.provenance.torch}", f"numpy {run.provenance.numpy}")
            ),
        ),
        ("every run took the same path through attention", "deviation", lambda run: run.provenance.paths),
        (
            "every run used the same processor and platform",
            "note",
            lambda run: f"{run.provenance.platform}, {run.provenance.processor}",
        ),
    )
    checks = []
    for name, severity, ask in asked:
        if not stated and ("device" in name or "library" in name):
            continue
        kinds: dict[str, int] = defaultdict(int)
        for run in ended:
            kinds[ask(run)] += 1
        if name == "every run took the same path through attention" and len(kinds) <= 1:
            continue
        counted = [f"{kind if len(kind) < 64 else kind[:12]} ({count} runs)" for kind, count in sorted(kinds.items())]
        checks.append(
            Check(
                name=name,
                passed=len(kinds) <= 1,
                severity=severity,
                found=f"{len(kinds)} over {len(ended)} runs" + listed(counted),
                required="one",
            )
        )
        if name == "every run used the same code":
            checks += _commits(ended)
    if not stated:
        return tuple(checks)
    dirty = [named_run(run) for run in ended if run.provenance.dirty]
    return (*checks, none_against("the tool's source tree was clean", dirty, "no uncommitted change", "note"))


def _commits(ended: list[RunRecord]) -> list[Check]:
    """A remark where the source tree moved on between runs; the hash of what a run executes is asked on its own."""
    commits = sorted({run.provenance.commit or "no commit" for run in ended})
    if len(commits) < 2:
        return []
    return [none_against("every run was made at the same commit", [commit[:12] for commit in commits], "one", "note")]
