"""What a seal binds: a record to the run that was planned, and the bytes of a run to the ledger.

Apart from `ablate.records.gather`, which loads pandas: a scheduler reads records and seals, and no frame.
"""

from __future__ import annotations

import json

from ablate.records.run_record import RunRecord
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import SealEntry
from prereg.registry.plan import CommandSpec, RunSpec
from prereg.study.removed import config_without_removed
from prereg.study.training import Training

Seal = tuple[str, int, str]
"""Arm, seed, and sha256 of metrics.parquet."""


def sealed_in_ledger(ledger: Ledger, registration: str) -> dict[Seal, str]:
    """(variant, seed, metrics hash) -> hash of run.json, of every run the ledger has seen sealed.

    Of every seal and not the newest alone (`prereg.registry.plan`): a run that lies here as an earlier seal has it was
    sealed, and that it is not the last one is for the audit to find.
    """
    run_sha256_by_seal: dict[Seal, str] = {}
    for entry in ledger.entries():
        if isinstance(entry, SealEntry) and entry.registration == registration:
            run_sha256_by_seal[(*entry.cell, entry.metrics_sha256)] = entry.run_sha256
    return run_sha256_by_seal


def unlike(record: RunRecord, spec: RunSpec | CommandSpec) -> str:
    """What makes a record one of another run than the planned one, in words; empty where it is of this run."""
    # In this order, so that the message names the widest difference first.
    for field in ("study", "registration", "variant", "seed"):
        if getattr(record, field) != getattr(spec, field):
            return f"its {field} is {getattr(record, field)}, not {getattr(spec, field)}"
    # A record keeps JSON. The model that wrote it reads it again: defaults that a later version adds are no difference.
    try:
        recorded_config = (
            Training.model_validate_json(json.dumps(config_without_removed(record.config)))
            if isinstance(spec, RunSpec)
            else record.config
        )
    except ValueError:
        recorded_config = None
    return "" if recorded_config == spec.config else "its configuration is not the registered one"
