"""Checks of runs against the plan: missing, failed, outside the plan, not sealed, of another configuration.

Which planned runs are missing is `Evidence.missing` of `ablate/records/evidence.py`; what follows, `judge/decide.py`.
"""

from __future__ import annotations

import json

from ablate.judge.audit.checks import (
    AuditContext,
    CheckResult,
    Found,
    built_in,
    check_body,
    first_few,
    named,
    named_run,
)
from ablate.records.run_record import RunRecord
from prereg.registry.canon import sha256_of
from prereg.registry.ledger_entry import ImportedEntry
from prereg.registry.plan import Cell
from prereg.study.removed import config_without_removed
from prereg.study.spec import Study
from prereg.study.training import Training, breach_of
from prereg.text import counted


@check_body("every planned run is present")
def _present(context: AuditContext) -> Found:
    lacking, total = [named(cell) for cell in context.evidence.missing], len(context.evidence.planned)
    return CheckResult(lacking, f"{total - len(lacking)} of {total} planned runs ended")


@check_body("no run failed")
def _failed(context: AuditContext) -> Found:
    failed = [run for run in context.runs if run.status == "failed"]
    return [named_run(run) + (f" ({run.error})" if run.error else "") for run in failed]


@check_body("every seal matches")
def _seals(context: AuditContext) -> Found:
    return [*context.evidence.broken]


@check_body("every sealed run is in the ledger")
def _in_ledger(context: AuditContext) -> Found:
    wrong = []
    for run in context.ended:
        entry, hashes = context.seals.get(run.cell), ("metrics_sha256", "outcome_sha256", "items_sha256")
        if entry is None:
            wrong.append(f"{named_run(run)} is not in the ledger")
        # The hash of run.json itself needs the file: who gathered the evidence compared it and named it `broken`.
        elif any(getattr(entry, field) != getattr(run, field) for field in ("status", *hashes)):
            wrong.append(f"{named_run(run)} is not what the ledger sealed")
    return CheckResult(wrong, f"{len(context.ended) - len(wrong)} of {len(context.ended)} runs match")


@check_body("no run outside the plan")
def _planned(context: AuditContext) -> Found:
    planned = set(context.evidence.planned)
    return [*context.evidence.extra, *(named_run(run) for run in context.runs if run.cell not in planned)]


def _imports(context: AuditContext, *, bound: bool) -> dict[Cell, ImportedEntry]:
    """The runs whose newest seal says that they were imported, with a registration hash or without."""
    return {
        cell: entry
        for cell, entry in context.seals.items()
        if isinstance(entry, ImportedEntry) and entry.bound == bound
    }


@check_body("every run was made under this registration")
def _registration(context: AuditContext) -> Found:
    lineage, study = context.registration.lineage, context.study.study
    faults = [named_run(run) for run in context.runs if run.registration not in lineage or run.study != study]
    imported = _imports(context, bound=False)
    # Two ways to lack the hash: a foreign run that never had one, and one of ours made before there was a promise.
    replayed = [named(cell) for cell, entry in imported.items() if entry.replayed]
    unbound = [named(cell) for cell, entry in imported.items() if not entry.replayed]
    for runs, how in ((unbound, "imported without a registration hash"), (replayed, "made before the registration")):
        if runs:
            faults.append(f"{counted(len(runs), 'run')} {'was' if len(runs) == 1 else 'were'} {how}{first_few(runs)}")
    return CheckResult(faults, required=context.registration.runs_sha256)


@check_body("every run was made here")
def _made_here(context: AuditContext) -> Found:
    bound = _imports(context, bound=True)
    if not bound:
        return None
    notes = list(dict.fromkeys(entry.note for entry in bound.values()))
    return CheckResult(
        [named(cell) for cell in bound],
        f"{len(bound)} of {len(context.runs)} runs were made elsewhere and imported",
        f". Note{first_few(notes)}. They name this registration; that they were made after it is their maker's word",
    )


@check_body("every configuration is the registered one")
def _configuration(context: AuditContext) -> Found:
    registered_sha256 = {}
    for arm, variant in context.study.trained.items():
        config = variant.config
        registered_sha256[arm] = sha256_of(config.model_dump(mode="json") if isinstance(config, Training) else config)
    return [
        named_run(run)
        for run in context.runs
        if run.variant in registered_sha256 and _config_sha256(context.study, run) != registered_sha256[run.variant]
    ]


def _config_sha256(study: Study, run: RunRecord) -> str:
    """Of a run's configuration with every field that this version knows; an earlier one wrote fewer."""
    if study.trainer != "gpt":
        return sha256_of(run.config)
    # A field that a later version added has its default in an earlier record, and the default is what was run.
    try:
        return sha256_of(
            Training.model_validate_json(json.dumps(config_without_removed(run.config))).model_dump(mode="json")
        )
    except ValueError:
        return sha256_of(run.config)


@check_body("every run consumed its tokens", applies=built_in)
def _tokens(context: AuditContext) -> Found:
    wrong = []
    for run in (run for run in context.done if run.variant in context.study.trained):
        config = context.study.training(run.variant)
        tokens, steps = config.tokens, config.budget.steps
        # Both: as many tokens in other steps are other updates.
        if (run.tokens, run.steps) != (tokens, steps):
            wrong.append(f"{named_run(run)}: {run.tokens} tokens in {run.steps} steps, planned {tokens} in {steps}")
    return wrong


@check_body("every run kept to its promised limits", applies=built_in)
def _limits(context: AuditContext) -> Found:
    planned_runs = [run for run in context.ended if run.variant in context.study.trained]
    held = [(run, context.study.training(run.variant).budget) for run in planned_runs]
    held = [(run, budget) for run, budget in held if budget.max_wall_s is not None]
    if not held:
        return None
    broken = [(run, breach_of(budget, wall_s=run.wall_s)) for run, budget in held]
    wrong = [f"{named_run(run)}: {breach.words}" for run, breach in broken if breach is not None]
    return CheckResult(wrong, f"{len(held)} runs with limits, {len(wrong)} breaches")


def _own_trainer(context: AuditContext) -> bool:
    return not built_in(context)


@check_body("the trainer's code is registered", applies=_own_trainer)
def _code_registered(context: AuditContext) -> Found:
    scripts = context.registration.scripts or ()
    if context.registration.commits:
        commits = context.registration.commits.items()
        return CheckResult([f"{name} ({pin.short}): {len(pin.files)} files" for name, pin in commits], passed=True)
    if not scripts:
        text = "no word of the command names a file under the root, and there is no code:"
        return CheckResult(passed=False, found=text)
    return CheckResult([f"{pin.path} ({pin.sha256[:12]})" for pin in scripts], f"{len(scripts)} files", passed=True)


@check_body("every run used the registered code", applies=_own_trainer)
def _code(context: AuditContext) -> Found:
    registration = context.registration
    sha256_by_arm = {arm: registration.code_sha256(arm) for arm in registration.study.trained}
    with_other_code = [named_run(run) for run in context.ended if run.provenance.code != sha256_by_arm.get(run.variant)]
    each = "" if registration.commits else f", together {registration.codes_sha256[:12]}"
    files = "the files of its arm's commit" if registration.commits else "the registered files"
    return CheckResult(with_other_code, required=f"{files}{each}")


PAIRING_LINES = (
    "for_data = torch.Generator().manual_seed(ablate.seed())",
    "DataLoader(..., shuffle=True, generator=for_data)",
    'ablate.must_match(f"last batch of epoch {epoch}", inputs.numpy().tobytes())',
)
"""What a PyTorch script lacks whose pairs are not compared. Dropout moves the random state: with one generator for all,
arms of a seed read other batches from the second epoch on."""
_PROMISE = "that one seed fixes the same randomness for every variant is the trainer's promise"


@check_body("pairs are matched", applies=lambda context: _own_trainer(context) and context.study.paired)
def _pairs_promised(context: AuditContext) -> Found:
    if len(context.study.arms) == 1:
        return None
    # Where a trainer states hashes of its own, those are compared (`pairs match in what their trainer says they
    # must`), and nothing is known of the rest.
    stated = sorted({name for run in context.ended for name in run.must_match or ()})
    if stated:
        names = f"{', '.join(stated[:5])}{', ...' * (len(stated) > 5)}"
        return CheckResult(passed=False, found=f"a user's own trainer states hashes of {names}, and no others")
    return CheckResult(
        passed=False,
        found="a user's own trainer states no hashes of weights, batches or dropout",
        required=f"{_PROMISE}; to have it compared, in PyTorch: {'; '.join(PAIRING_LINES)}",
    )


@check_body("device and library versions are known", applies=_own_trainer)
def _device_promised(_: AuditContext) -> Found:
    text = "a user's own trainer does not state them; what its files import is pinned only if code: names it"
    return CheckResult(passed=False, found=text)
