"""From folders and ledger to `Evidence`: read what is there, verify every seal, conclude nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import JsonValue, ValidationError

from ablate.records.evidence import ITEM_COLUMNS, METRIC_COLUMNS, Evidence
from ablate.records.outcome import OF_ITEMS
from ablate.records.parquet import TableError, read_parquet
from ablate.records.rows import RangeError, require_range
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from prereg.errors import EvidenceError, LedgerError
from prereg.registry.amendments import promise_in_force
from prereg.registry.canon import sha256_file
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import SEALS, Entry
from prereg.registry.ledger_graph import continued_twice, is_merged, places
from prereg.registry.looks import due_look
from prereg.registry.paths import Root
from prereg.registry.plan import CommandSpec, RunSpec, cell_of, recipes_of
from prereg.registry.registration import (
    Registration,
    bases_of,
)
from prereg.seals.git import ledger_history
from prereg.study.command import MetricsFile
from prereg.study.training import Training

if TYPE_CHECKING:
    import pyarrow as pa

Seal = tuple[str, int, str]
_LONG_RUN = 10_000
"""Steps from which on a table is long."""


def sealed_in_ledger(ledger: Ledger, registration: str) -> dict[Seal, str]:
    """(variant, seed, metrics hash) -> hash of run.json, of every run the ledger has seen sealed.

    Of every seal and not the newest alone (`prereg.registry.plan`): a run that lies here as an earlier seal has it was
    sealed, and that it is not the last one is for the audit to find.
    """
    found: dict[Seal, str] = {}
    for entry in ledger.entries():
        if entry.event in SEALS and entry.registration == registration:
            metrics, run = (entry.body.get(key) for key in ("metrics_sha256", "run_sha256"))
            # An entry that lacks a part binds nothing; the audit then finds the run unbound.
            if isinstance(metrics, str) and isinstance(run, str):
                found[(*cell_of(entry), metrics)] = run
    return found


def gather(root: Root, registration: Registration) -> Evidence:
    """The evidence of a registration as it lies on disk.

    No metric is read while runs are missing (of a sequential study: runs of the look that is due, and never those of
    later seeds): the tables are then `withheld`, and only `open_tables` gives them, for a look that the ledger holds.
    Until the ledger has all that a pilot chooses, those of the pilot alone are read.
    """
    study = registration.study.study
    ledger = Ledger(root.ledger)
    # An unfinished last line is what a crash leaves: it binds nothing, and the next append cuts it back.
    faults = tuple(ledger.damage())
    try:
        entries = ledger.entries()
        head = ledger.head()
    except LedgerError:
        # The faults say what is wrong; a damaged ledger binds nothing.
        entries, head = (), ""
    planned = registration.study.cells
    bound = None if faults else sealed_in_ledger(ledger, registration.runs_sha256)
    runs, sealed, broken, unsealed = _records(root, registration, planned, bound)
    runs_of = root.runs(study, registration.runs_sha256)
    mine = tuple(entry for entry in entries if entry.study == study)
    seen = _seeds_to_see(registration, mine, runs)
    ended = {run.cell for run in sealed}
    whole = all(cell in ended for cell in planned if cell[1] in seen)
    tables = _read_again(runs_of, sealed, kept=seen if whole else ())
    for cell, rows in tables.items():
        if isinstance(rows, _Rows) and (wrong := rows.out_of_range(registration.study.metrics)):
            tables[cell] = f"{cell[0]}/{cell[1]}: {wrong}"
    forged = {cell: wrong for cell, wrong in tables.items() if isinstance(wrong, str)}
    broken += forged.values()
    unsealed += [cell for cell in forged if cell not in unsealed]
    found = Evidence(
        planned=planned,
        runs=tuple(runs),
        metrics=_tidy([]),
        broken=tuple(root.shortened(text) for text in broken),
        extra=_unplanned(root, registration, set(planned)),
        ledger=mine,
        elsewhere=repeated_elsewhere(entries, registration),
        ledger_faults=faults,
        history_faults=history_faults(root, study, entries),
        places=places(entries) if is_merged(entries) else {},
        ledger_head=head,
        unsealed=tuple(unsealed),
        withheld=True,
    )
    if any(seed in seen for _, seed in found.missing):
        return found
    kept = [one for one in tables.values() if isinstance(one, _Rows)]
    return _with_tables(runs_of, found, [run for run in sealed if run.seed in seen], kept)


def _records(
    root: Root, registration: Registration, planned: Sequence[tuple[str, int]], bound: Mapping[Seal, str] | None
) -> tuple[list[RunRecord], list[RunRecord], list[str], list[tuple[str, int]]]:
    """The records of planned runs: all, those whose files match their seals, what is wrong, and the cells whose end
    nothing vouches for. `bound` are the seals of the ledger; none where the ledger is damaged."""
    runs: list[RunRecord] = []
    broken: list[str] = []
    unsealed: list[tuple[str, int]] = []
    sealed: list[RunRecord] = []
    for variant, seed in planned:
        folder = RunFolder(root.run(registration.study.study, registration.runs_sha256, variant, seed))
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
        run_hash = (bound or {}).get((variant, seed, str(record.metrics_sha256)))
        if not wrong and run_hash is not None and run_hash != sha256_file(folder.record_path):
            wrong = [f"{folder.record_path} is not what the ledger sealed"]
        broken += wrong
        if wrong or run_hash is None:
            unsealed.append((variant, seed))
        if not wrong:
            sealed.append(record)
    return runs, sealed, broken, unsealed


def history_faults(root: Root, study: str, entries: Sequence[Entry]) -> tuple[str, ...]:
    """What a sound ledger and git's history of it say against a study's entries, a sentence each."""
    twice = continued_twice(entries).get(study)
    return (*([] if twice is None else [twice]), *ledger_history(root).faults(root, study))


def repeated_elsewhere(entries: Sequence[Entry], registration: Registration) -> tuple[Entry, ...]:
    """Seals of other studies that a run of this registration repeats, by its outcome or by what it is made of, and the
    looks at those studies that precede it, in the ledger's order. Later entries of others do not change it."""
    study = registration.study.study
    of_study = [entry for entry in entries if entry.study == study]
    order, promise = places(entries), promise_in_force(of_study, registration.lineage)
    promised = -1 if promise is None else order[promise.sha256]
    # By what a run is made of, too: a trainer that is not deterministic never gives the same bits.
    first: dict[JsonValue, int] = dict.fromkeys(recipes_of(registration).values(), promised)
    ended = [entry for entry in of_study if entry.event in SEALS]
    keys = ("outcome_sha256", "recipe_sha256")
    mine = {entry.body.get(key): order[entry.sha256] for entry in reversed(ended) for key in keys}
    first |= {known: at for known, at in mine.items() if known is not None}
    others = [
        entry
        for entry in entries
        if entry.event in SEALS
        and entry.study != study
        and any(order[entry.sha256] < first.get(entry.body.get(key), -1) for key in keys)
    ]
    studies = {entry.study for entry in others}
    looks = [
        entry
        for entry in entries
        if entry.study in studies and entry.event in ("decided", "looked", "peeked") and order[entry.sha256] < promised
    ]
    return tuple(sorted((*others, *looks), key=lambda entry: order[entry.sha256]))


def open_tables(root: Root, evidence: Evidence, *, look: Entry) -> Evidence:
    """Unfinished evidence with the values of the runs that have ended. `look` is the entry that puts this on record.

    Raises `EvidenceError` where the ledger does not hold that entry, or it is of other evidence.
    """
    entries = Ledger(root.ledger).entries()
    if look not in entries or look.body.get("evidence") != evidence.sha256:
        raise EvidenceError(
            "an early look that the ledger does not hold",
            required="the `peeked` entry of this evidence",
            fix='ablate status STUDY --results --reason "..."',
        )
    ended = [run for run in evidence.runs if run.status in ("done", "diverged")]
    sealed = [run for run in ended if run.cell not in evidence.unsealed]
    base = bases_of(entry for entry in entries if entry.study == look.study).get(look.registration, look.registration)
    runs = root.runs(look.study, base)
    return _with_tables(runs, evidence, sealed, [_rows_of(_folder(runs, run).sealed_path) for run in sealed])


def _with_tables(runs: Path, evidence: Evidence, records: list[RunRecord], metrics: list[_Rows]) -> Evidence:
    scored = [_folder(runs, run).items_path for run in records if run.items_sha256 is not None]
    return replace(evidence, metrics=_tidy(metrics), items=read_items(scored) if scored else None, withheld=False)


def _folder(runs: Path, run: RunRecord) -> RunFolder:
    return RunFolder(runs / run.variant / str(run.seed))


def _seeds_to_see(registration: Registration, ledger: Sequence[Entry], runs: Sequence[RunRecord]) -> tuple[int, ...]:
    """The seeds whose runs must have ended before any value is read, and whose values are read then."""
    study = registration.study
    if not study.settings_known:
        return study.pilot_seeds
    look = due_look(registration, ledger, {run.seed for run in runs})
    return (*study.pilot_seeds, *study.seeds) if look is None else study.seeds[: look.n_seeds]


def read_metrics(sealed: list[Path]) -> pd.DataFrame:
    """Sealed metrics of many runs as one tidy table."""
    return _tidy([_rows_of(path) for path in sealed])


def _tidy(runs: list[_Rows]) -> pd.DataFrame:
    """One table of the rows of many files, which are used up."""
    if not runs:
        return pd.DataFrame(
            {
                "variant": pd.Series(dtype=str),
                "seed": pd.Series(dtype="int64"),
                "step": pd.Series(dtype="int64"),
                "metric": pd.Series(dtype=str),
                "value": pd.Series(dtype="float64"),
            }
        )
    texts = {name: sorted({text for run in runs for text in run.texts[name]}) for name in ("variant", "metric")}
    # A sealed file holds one run, and is sorted by itself: of ten million rows, sorting all takes longest.
    runs.sort(key=lambda run: run.first)
    in_order = all(run.alone for run in runs) and len({run.first for run in runs}) == len(runs)
    columns: dict[str, Any] = {}
    for name in METRIC_COLUMNS:
        if name in texts:
            places = {text: at for at, text in enumerate(texts[name])}
            kind = np.min_scalar_type(-len(places) - 1)  # that of a categorical's codes
            codes = [np.array([places[text] for text in run.texts[name]], kind)[run.columns.pop(name)] for run in runs]
            columns[name] = pd.Categorical.from_codes(np.concatenate(codes), categories=pd.Index(texts[name]))
        else:
            columns[name] = np.concatenate([run.columns.pop(name) for run in runs])
    frame = pd.DataFrame(columns, copy=False)
    return frame if in_order else frame.sort_values(["variant", "seed", "metric", "step"], ignore_index=True)


@dataclass(frozen=True)
class _Rows:
    """The sealed rows of one file, sorted by metric and step."""

    columns: dict[str, npt.NDArray[Any]]
    """Of texts, places in `texts`."""
    texts: dict[str, list[str]]
    """Column -> its different texts."""
    alone: bool
    """Whether all rows are of one run, as in every file that we sealed."""

    def out_of_range(self, layout: MetricsFile) -> str:
        """What is wrong with the first value that its metric cannot have; empty where there is none."""
        for place, metric in enumerate(self.texts["metric"]):
            limits = layout.range_of(metric)
            values = self.columns["value"][self.columns["metric"] == place] if limits is not None else ()
            try:
                for value in (min(values), max(values)) if len(values) else ():
                    require_range(metric, float(value), limits)
            except RangeError as fault:
                return f"{fault} ({fault.fix})"
        return ""

    @property
    def first(self) -> tuple[str, int]:
        """Variant and seed of the first row."""
        if not len(self.columns["seed"]):
            return "", 0
        return self.texts["variant"][int(self.columns["variant"][0])], int(self.columns["seed"][0])


def _rows_of(path: Path) -> _Rows:
    """The rows of a sealed file. Raises `EvidenceError` where they are not of the types that a trainer seals."""
    import pyarrow as pa

    try:
        return _ordered(read_parquet(path, METRIC_COLUMNS))
    except (TableError, pa.ArrowException) as error:
        raise EvidenceError(
            f"{path} cannot be read: {str(error).splitlines()[0]}",
            required="rows of variant, seed, step, metric and value, as they were sealed",
            fix=f"restore it, or rm -r {path.parent} to train the run again (the ledger keeps both)",
        ) from error


def _ordered(table: pa.Table) -> _Rows:
    """The rows of a table, sorted. Raises `ArrowException` where they are not of the types that a trainer seals."""
    import pyarrow as pa

    kinds = {"seed": pa.int64(), "step": pa.int64(), "value": pa.float64()}
    columns: dict[str, npt.NDArray[Any]] = {}
    texts: dict[str, list[str]] = {}
    for name in METRIC_COLUMNS:
        column = table[name].combine_chunks()
        if column.null_count:
            raise pa.ArrowInvalid(f"a row without {name}")
        if name in kinds:
            columns[name] = column.cast(kinds[name]).to_numpy(zero_copy_only=False)
        else:
            column = column.cast(pa.dictionary(pa.int32(), pa.string()))
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            columns[name], texts[name] = column.indices.to_numpy(), column.dictionary.to_pylist()
    alone = all(bool((columns[name] == columns[name][:1]).all()) for name in ("variant", "seed"))
    rank = np.argsort(np.argsort(np.array(texts["metric"], dtype=object)))
    # Small integers are sorted by radix, several times faster.
    ranks = rank.astype(np.min_scalar_type(max(len(rank) - 1, 0)))[columns["metric"]]
    step = columns["step"]
    rising = bool((step[1:] >= step[:-1]).all())
    order = np.argsort(ranks, kind="stable") if rising else np.lexsort((step, ranks))
    for name, column in columns.items():
        same = alone and name in ("variant", "seed")
        columns[name] = np.broadcast_to(column[:1].copy(), column.shape) if same else column[order]
    return _Rows(columns, texts, alone)


def read_items(scored: list[Path]) -> pd.DataFrame:
    """Sealed items of many runs as one tidy table."""
    assert scored, "no run has items: there is no table, and an empty one would be taken for a run without any"
    import pyarrow as pa

    kinds = pa.schema([(name, OF_ITEMS[name]) for name in ITEM_COLUMNS])
    table = pa.concat_tables([read_parquet(path, ITEM_COLUMNS).cast(kinds) for path in scored])
    keys = ("variant", "seed", "metric", "task", "item")
    frame: pd.DataFrame = table.sort_by([(key, "ascending") for key in keys]).to_pandas()
    return frame


def _read_again(
    runs: Path, records: list[RunRecord], *, kept: Sequence[int]
) -> dict[tuple[str, int], _Rows | str | None]:
    """Every outcome derived from its tables again: the fault of a run whose tables hold other values than its record
    says, its metrics where its seed is to be kept, and none for the others."""

    def read(run: RunRecord) -> _Rows | str | None:
        table = _folder(runs, run).read_metrics(run)
        return table if isinstance(table, str) else _ordered(table) if run.seed in kept else None

    # Reading, sorting and hashing let go of the interpreter's lock; of short tables, threads would wait for it.
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        long = {run.cell: pool.submit(read, run) for run in records if run.steps > _LONG_RUN}
        return {run.cell: long[run.cell].result() if run.cell in long else read(run) for run in records}


def _unlike_its_place(record: RunRecord, registration: Registration, variant: str, seed: int) -> list[str]:
    if (record.variant, record.seed) == (variant, seed) and record.registration in registration.lineage:
        return []
    return [
        f"the record in the folder of {variant}/{seed} is of {record.variant}/{record.seed} "
        f"under registration {record.registration[:8]}"
    ]


def unlike(record: RunRecord, spec: RunSpec | CommandSpec) -> str:
    """What makes a record one of another run than the planned one, in words; empty where it is of this run."""
    for what in ("study", "registration", "variant", "seed"):
        if getattr(record, what) != getattr(spec, what):
            return f"its {what} is {getattr(record, what)}, not {getattr(spec, what)}"
    try:
        found = Training.model_validate_json(json.dumps(record.config)) if isinstance(spec, RunSpec) else record.config
    except ValidationError:
        found = None
    return "" if found == spec.config else "its configuration is not the registered one"


def _unplanned(root: Root, registration: Registration, planned: set[tuple[str, int]]) -> tuple[str, ...]:
    """Run folders that no plan names."""
    base = root.runs(registration.study.study, registration.runs_sha256)
    names = {(arm, str(seed)) for arm, seed in planned}
    found = []
    for folder in sorted(path.parent for path in base.glob("*/*/run.json")):
        variant, seed = folder.parent.name, folder.name
        if (variant, seed) not in names:
            found.append(f"{variant}/{seed}")
    return tuple(found)
