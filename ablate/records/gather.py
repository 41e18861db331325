"""From folders and ledger to `Evidence`: read what is there, verify every seal, conclude nothing."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ablate.records.evidence import METRIC_COLUMNS, Evidence
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from prereg.canon import sha256_file
from prereg.errors import EvidenceError, LedgerError
from prereg.ledger import Ledger
from prereg.plan import plan
from prereg.register import Registration
from prereg.root import Root

Seal = tuple[str, int, str]


def sealed_in_ledger(ledger: Ledger, registration: str) -> dict[Seal, str]:
    """(variant, seed, metrics hash) -> hash of run.json, of every run the ledger has seen sealed."""
    return {
        (str(entry.body["variant"]), int(str(entry.body["seed"])), str(entry.body["metrics_sha256"])): str(
            entry.body["run_sha256"]
        )
        for entry in ledger.entries()
        if entry.event == "sealed" and entry.registration == registration
    }


def gather(root: Root, registration: Registration) -> Evidence:
    """The evidence of a registration as it lies on disk."""
    study = registration.study.study
    ledger = Ledger(root.ledger)
    faults = tuple(ledger.faults())
    try:
        entries = ledger.entries()
        head = ledger.head()
    except LedgerError:
        # The faults say what is wrong; a damaged ledger binds nothing.
        entries, head = (), ""
    planned = tuple((spec.variant, spec.seed) for spec in plan(registration))
    bound = {} if faults else sealed_in_ledger(ledger, registration.sha256)
    runs: list[RunRecord] = []
    broken: list[str] = []
    sealed: list[Path] = []
    for variant, seed in planned:
        folder = RunFolder(root.run(study, registration.sha256, variant, seed))
        try:
            record = folder.read_record()
        except EvidenceError as error:
            broken.append(error.found)
            continue
        if record is None:
            continue
        runs.append(record)
        if record.status not in ("done", "diverged"):
            continue
        wrong = folder.faults(record) or _unlike_its_place(record, registration, variant, seed)
        run_hash = bound.get((variant, seed, str(record.metrics_sha256)))
        if not wrong and not faults and run_hash is not None and run_hash != sha256_file(folder.record_path):
            wrong = [f"{folder.record_path} is not what the ledger sealed"]
        broken += wrong
        if not wrong:
            sealed.append(folder.sealed_path)
    return Evidence(
        planned=planned,
        runs=tuple(runs),
        metrics=read_metrics(sealed),
        broken=tuple(_relative(text, root) for text in broken),
        extra=_strangers(root, registration, set(planned)),
        ledger=tuple(entry for entry in entries if entry.study == study),
        ledger_faults=faults,
        ledger_head=head,
    )


def read_metrics(sealed: list[Path]) -> pd.DataFrame:
    """Sealed metrics of many runs as one tidy table."""
    if not sealed:
        return pd.DataFrame(
            {
                "variant": pd.Series(dtype=str),
                "seed": pd.Series(dtype="int64"),
                "step": pd.Series(dtype="int64"),
                "metric": pd.Series(dtype=str),
                "value": pd.Series(dtype="float64"),
            }
        )
    import duckdb

    with duckdb.connect() as connection:
        columns = ", ".join(METRIC_COLUMNS)
        query = f"select {columns} from read_parquet(?) order by variant, seed, metric, step"  # noqa: S608
        frame: pd.DataFrame = connection.execute(query, [[str(path) for path in sealed]]).df()
    return frame


def _unlike_its_place(record: RunRecord, registration: Registration, variant: str, seed: int) -> list[str]:
    if (record.variant, record.seed, record.registration) == (variant, seed, registration.sha256):
        return []
    return [
        f"the record in the folder of {variant}/{seed} is of {record.variant}/{record.seed} "
        f"under registration {record.registration[:8]}"
    ]


def _strangers(root: Root, registration: Registration, planned: set[tuple[str, int]]) -> tuple[str, ...]:
    """Run folders that no plan names."""
    base = root.runs(registration.study.study, registration.sha256)
    found = []
    for folder in sorted(path.parent for path in base.glob("*/*/run.json")):
        variant, seed = folder.parent.name, folder.name
        if not seed.isdecimal() or (variant, int(seed)) not in planned:
            found.append(f"{variant}/{seed}")
    return tuple(found)


def _relative(text: str, root: Root) -> str:
    return text.replace(f"{root.path}/", "")
