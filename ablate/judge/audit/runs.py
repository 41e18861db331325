"""Is every run what the plan says it should be: there, of the registered configuration, whole, and made in one go?"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Final

import numpy as np
from pydantic import ValidationError

from ablate.judge.audit.checks import listed, named, named_run, none_against
from ablate.judge.audit.history import starts_of
from ablate.judge.audit.pairs import check_matching
from ablate.judge.audit.stability import CURVE
from ablate.judge.readings import read_values, reading_of
from ablate.judge.verdict import Check, Severity
from ablate.records.evidence import Evidence
from ablate.records.run_record import RunRecord
from prereg.registry.canon import sha256_of
from prereg.registry.plan import Cell, cell_of
from prereg.registry.registration import Registration
from prereg.rule.divergence import is_worse
from prereg.study.analysis import Ceiling, breaches, promises_any, unmeasured
from prereg.study.command import code_sha256
from prereg.study.spec import Study
from prereg.study.training import Training
from prereg.text import compact, counted

LIMITS = "every run kept to its promised limits"


def check_limits(study: Study, ended: Iterable[RunRecord]) -> tuple[Check, ...]:
    """One check where any arm promises a limit, and none where there is nothing to keep to."""
    held = [
        (run, study.training(run.variant).budget)
        for run in ended
        if run.variant in study.arms and promises_any(study.training(run.variant).budget)
    ]
    if not held:
        return ()
    wrong = []
    for run, budget in held:
        name = named_run(run)
        peak = run.peak_memory_bytes
        for breach in breaches(budget, wall_s=run.wall_s, peak_memory_bytes=peak):
            upper = " (an upper bound: this system reports it for the whole process only)"
            bound = upper if breach.limit == "max_memory_gib" and run.memory_since == "process" else ""
            wrong.append(f"{name}: {breach.words}{bound}")
        if unmeasured(budget, peak_memory_bytes=peak):
            wrong.append(f"{name}: its memory was not measured")
    return (
        none_against(
            LIMITS,
            wrong,
            "memory and time within the limits of the budget",
            "deviation",
            found=f"{len(held)} runs with limits, {len(wrong)} breaches",
        ),
    )


CEILING: Final = "the ceiling of diverged runs is worse than any value"


def check_present(evidence: Evidence) -> Check:
    """Whether every planned run ended; a diverged one has."""
    lacking = [named(cell) for cell in evidence.missing]
    total = len(evidence.planned)
    return none_against(
        "every planned run is present",
        lacking,
        "every planned run done, or diverged",
        found=f"{total - len(lacking)} of {total} planned runs ended",
    )


def check_failed(evidence: Evidence) -> Check:
    """Runs that ended in an error."""
    failed = [run for run in evidence.runs if run.status == "failed"]
    return none_against(
        "no run failed",
        [named_run(run) + (f" ({run.error})" if run.error else "") for run in failed],
        "every planned run done, or diverged",
    )


def check_planned(evidence: Evidence) -> Check:
    """Nothing beside what the plan names."""
    planned = set(evidence.planned)
    return none_against(
        "no run outside the plan",
        [*evidence.extra, *(named_run(run) for run in evidence.runs if (run.variant, run.seed) not in planned)],
        "no seed added, no run that no plan names",
    )


def check_configuration(study: Study, evidence: Evidence) -> Check:
    """What every run was made of, against what its arm means."""
    return none_against(
        "every configuration is the registered one",
        [
            named_run(run)
            for run in evidence.runs
            if run.variant in study.arms and _resolved_sha256(study, run) != _config_sha256(study, run.variant)
        ],
        "the configuration that the registration resolves for the variant",
    )


def check_built_in(registration: Registration, ended: list[RunRecord]) -> tuple[Check, ...]:
    """What only the built-in trainer states: tokens, limits, and what the runs of a seed share."""
    study = registration.study
    wrong = []
    for run in (run for run in ended if run.status == "done" and run.variant in study.arms):
        config = study.training(run.variant)
        if (run.tokens, run.steps) != (config.tokens, config.budget.steps):
            wrong.append(
                f"{named_run(run)}: {run.tokens} tokens in {run.steps} steps, "
                f"planned {config.tokens} in {config.budget.steps}"
            )
    return (
        none_against("every run consumed its tokens", wrong, "the planned tokens and steps in every finished run"),
        *check_limits(study, ended),
        *check_matching(registration, ended),
    )


def check_command(registration: Registration, ended: list[RunRecord]) -> tuple[Check, ...]:
    """What can be known of a user's own trainer, and what is its promise alone."""
    scripts = registration.scripts or ()
    wanted = code_sha256(registration.files)
    return (
        Check(
            name="the trainer's code is registered",
            passed=bool(scripts),
            severity="deviation",
            found=f"{len(scripts)} files" + listed([f"{pin.path} ({pin.sha256[:12]})" for pin in scripts])
            if scripts
            else "no word of the command names a file under the root, and there is no code:",
            required="the files of the code, so that every run is known to have used the same",
        ),
        none_against(
            "every run used the registered code",
            [named_run(run) for run in ended if run.provenance.code != wanted],
            f"the registered files, together {wanted[:12]}",
        ),
        Check(
            name="pairs are matched",
            passed=False,
            severity="note",
            found="a user's own trainer states no hashes of weights, batches or dropout",
            required="that one seed fixes the same randomness for every variant is the trainer's promise",
        ),
        Check(
            name="device and library versions are known",
            passed=False,
            severity="note",
            found="a user's own trainer does not state them; what its files import is pinned only if code: names it",
            required="one device and one set of libraries for all runs is the trainer's promise",
        ),
    )


def check_starts(registration: Registration, evidence: Evidence) -> tuple[Check, ...]:
    """Runs that took more than one attempt. Resumption is exact where numerics are, and a deviation where not."""
    study = registration.study
    removed = {cell: one.removed for cell, one in starts_of(registration, evidence.ledger).items() if one.removed}
    failures: dict[Cell, int] = defaultdict(int)
    for entry in evidence.ledger:
        if entry.event == "failed" and entry.registration == registration.sha256:
            failures[cell_of(entry)] += 1
    found = []
    exact = study.trainer == "gpt"
    for run in evidence.runs:
        failed = failures.get((run.variant, run.seed), 0)
        if run.attempts > 1 or run.resumed_from or failed:
            resumed = f", resumed from step {', '.join(map(str, run.resumed_from))}" if run.resumed_from else ""
            mishaps = f" ({'; '.join(run.mishaps)})" if run.mishaps else ""
            attempts = f"{run.attempts} attempts{resumed}" + (f", {failed} failed" if failed else "")
            found.append(f"{named_run(run)}: {attempts}{mishaps}")
            exact = exact and run.variant in study.arms and _deterministic(study, run.variant)
    if removed:
        found += [f"{named(cell)}: {counted(n, 'start')} removed before its seal" for cell, n in removed.items()]
        exact = False
    return (none_against("every run was made in one go", found, "one attempt a run", "note" if exact else "deviation"),)


def check_measured(study: Study, evidence: Evidence) -> tuple[Check, ...]:
    """Finished runs without a claimed metric would leave their pairs out in silence."""
    done = [run for run in evidence.runs if run.status == "done"]
    lacking = []
    for reading, name in {reading_of(study, name): name for name in study.hypotheses}.items():
        found = read_values(study, name, evidence)
        lacking += [f"{reading} of {named_run(run)}" for run in done if (run.variant, run.seed) not in found]
    checks = [none_against("every finished run has every claimed metric", lacking, "a value where the claim reads it")]
    if study.rule.arms_read:
        lines, nothing = evidence.lines(CURVE), (np.empty(0), np.empty(0))
        holed = []
        for run in done:
            steps = np.unique(lines.get((run.variant, run.seed), nothing)[0])
            if not np.array_equal(steps[steps != 0], np.arange(1, run.steps + 1)):
                holed.append(named_run(run))
        name = f"every finished run has its {CURVE} at every step"
        checks.append(none_against(name, holed, "the curve that the stability rule reads, without a hole"))
    return tuple(checks)


def check_divergence(study: Study, ended: list[RunRecord]) -> tuple[Check, ...]:
    """Pairs that divergence took away. Whether the rest may decide is `ablate.judge.audit.lost_pairs`' matter."""
    diverged = [named_run(run) for run in ended if run.status == "diverged"]
    if study.on_divergence != "exclude_pair" or not diverged:
        return ()
    return (none_against("no pair was left out for divergence", diverged, "every seed in", "deviation"),)


def check_ceiling(study: Study, evidence: Evidence) -> tuple[Check, ...]:
    """Whether the ceiling at which diverged runs are scored is worse than every value that a finished run has; none
    where it is, and where no run diverged."""
    if not isinstance(study.on_divergence, Ceiling) or all(run.status != "diverged" for run in evidence.runs):
        return ()
    ceiling, faults = study.on_divergence.ceiling, []
    for reading, name in {reading_of(study, name): name for name in study.hypotheses}.items():
        if study.better(name) == "neither":
            faults.append(f"nothing says which way {study.claims[name].metric} improves")
        faults += [
            f"the ceiling {compact(ceiling)} is not worse than the {reading} of {named(cell)}, {compact(value)}"
            for cell, value in read_values(study, name, evidence).items()
            if isfinite(value) and not is_worse(study, name, ceiling, value)
        ]
    return (none_against(CEILING, faults, "a ceiling worse than any value that a run reached"),) if faults else ()


def _config_sha256(study: Study, variant: str) -> str:
    config = study.arms[variant].config
    return sha256_of(config.model_dump(mode="json") if isinstance(config, Training) else config)


def _resolved_sha256(study: Study, run: RunRecord) -> str:
    """Of a run's configuration with every field that this version knows; an earlier one wrote fewer."""
    if study.trainer != "gpt":
        return sha256_of(run.config)
    try:
        return sha256_of(Training.model_validate_json(json.dumps(run.config)).model_dump(mode="json"))
    except ValidationError:
        return sha256_of(run.config)


def _deterministic(study: Study, variant: str) -> bool:
    config = study.arms[variant].config
    return isinstance(config, Training) and config.numerics.deterministic


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
