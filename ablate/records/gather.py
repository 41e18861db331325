"""Gathering `Evidence` from run folders and ledger: what is there is read, every seal verified, nothing concluded.

    run.json of every planned run -> files against its seals -> seals against the ledger (`_records`)
    -> tables whose values give the outcome that the record states (`read_curves`)
    -> frames of all runs, one row per value (`metrics_frame`, `items_frame`), where nothing is withheld

A hash of a file protects against accidents alone, since whoever writes the file can write its hash. So each outcome is
derived from the values again, and the seal must be in the ledger, whose chain shows a later edit.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ablate.records.evidence import ITEM_COLUMNS, Evidence
from ablate.records.outcome import OF_ITEMS, coded, numbers, ranked
from ablate.records.parquet import read_parquet
from ablate.records.rows import RangeError, require_range
from ablate.records.run_record import RunRecord
from ablate.records.seals import Seal, sealed_in_ledger
from ablate.records.store import RunFolder
from prereg.errors import EvidenceError, LedgerError
from prereg.registry.amendments import promise_in_force
from prereg.registry.canon import sha256_file
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry, PeekedEntry, SealEntry
from prereg.registry.looks import due_look
from prereg.registry.paths import Root
from prereg.registry.plan import Cell, recipes_of
from prereg.registry.registration import (
    Registration,
    bases_of,
)
from prereg.seals.git import ledger_history
from prereg.study.command import MetricsFile

_LONG_RUN = 10_000
"""Steps from which on a table is read by a thread: of a shorter one, the thread costs more than the reading."""


def gather(root: Root, registration: Registration) -> Evidence:
    """The evidence of a registration as it lies on disk.

    No metric is read while runs are missing (of a sequential study: runs of the look that is due, and never those of
    later seeds): the tables are then `withheld`, and only `open_tables` gives them, for a look that the ledger holds.
    Until the ledger has all that a pilot chooses, those of the pilot alone are read.

    A damaged ledger or a run that does not match its seal raises nothing: `ledger_faults`, `broken` and `unsealed` say
    it, and the judge decides what follows.

        from prereg.registry.paths import Root
        from prereg.registry.registration import load_registration

        root = Root(Path("."))
        evidence = gather(root, load_registration(root, "width"))
        evidence.missing, evidence.broken
    """
    # The ledger first: what it does not hold is not sealed, whatever a run's own record says.
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
    # Then the runs of the plan, by their seals, without a look at a value.
    runs, sealed, broken, unsealed = _records(root, registration, planned, bound)
    runs_of = root.runs(study, registration.runs_sha256)
    mine = tuple(entry for entry in entries if entry.study == study)
    # Every outcome is derived again, and values are kept only where no planned run is missing: anything else would be
    # an early look at the outcome.
    seeds_read = _seeds_to_see(registration, mine, runs)
    ended = {run.cell for run in sealed}
    all_ended = all(cell in ended for cell in planned if cell[1] in seeds_read)
    tables = _read_again(runs_of, sealed, kept_seeds=seeds_read if all_ended else ())
    for cell, curves in tables.items():
        if isinstance(curves, Curves) and (fault := curves.out_of_range(registration.study.metrics)):
            tables[cell] = f"{cell[0]}/{cell[1]}: {fault}"
    forged = {cell: fault for cell, fault in tables.items() if isinstance(fault, str)}
    broken += forged.values()
    unsealed += [cell for cell in forged if cell not in unsealed]
    evidence = Evidence(
        planned=planned,
        runs=tuple(runs),
        metrics=metrics_frame([]),
        broken=tuple(root.shortened(text) for text in broken),
        extra=_unplanned(root, registration, set(planned)),
        ledger=mine,
        elsewhere=repeated_elsewhere(entries, registration),
        ledger_faults=faults,
        history_faults=history_faults(root, study),
        places={entry.sha256: place for place, entry in enumerate(entries)},
        ledger_head=head,
        unsealed=tuple(unsealed),
        withheld=True,
    )
    # `missing` knows more than `all_ended`: a table that is forged, or a run that the ledger did not seal.
    if any(seed in seeds_read for _, seed in evidence.missing):
        return evidence
    curves_read = [table for table in tables.values() if isinstance(table, Curves)]
    return _with_tables(runs_of, evidence, [run for run in sealed if run.seed in seeds_read], curves_read)


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
        # Do the files match run.json, is run.json of this run, and is it the one that the ledger sealed?
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


def history_faults(root: Root, study: str) -> tuple[str, ...]:
    """What a sound ledger and git's history of it say against a study's entries, a sentence each."""
    twice = Ledger(root.ledger).continued_twice().get(study)
    return (*([] if twice is None else [twice]), *ledger_history(root).faults(root, study))


def repeated_elsewhere(entries: Sequence[Entry], registration: Registration) -> tuple[Entry, ...]:
    """Seals of other studies that a run of this registration repeats, by its outcome or by what it is made of, and the
    looks at those studies that precede it, in the ledger's order. Later entries of others do not change it. A run that
    diverged is compared by what it is made of alone.

    `entries` are those of `Ledger.entries`, in its order: of a slice no other is left, since links have no time.
    """
    study = registration.study.study
    of_study = [entry for entry in entries if entry.study == study]
    order = {entry.sha256: place for place, entry in enumerate(entries)}
    promise = promise_in_force(of_study, registration.lineage)
    promised = -1 if promise is None else order[promise.sha256]
    # Hash of an outcome or a recipe -> place in the ledger: a seal of another study before it was there first.
    # By what a run is made of, too: a trainer that is not deterministic never gives the same bits.
    first: dict[str | None, int] = dict.fromkeys(recipes_of(registration).values(), promised)
    ended = [entry for entry in of_study if isinstance(entry, SealEntry)]
    for entry in reversed(ended):
        first |= dict.fromkeys(_known_by(entry), order[entry.sha256])
    first.pop(None, None)  # a seal without a recipe
    others = [
        entry
        for entry in entries
        if isinstance(entry, SealEntry)
        and entry.study != study
        and any(order[entry.sha256] < first.get(same, -1) for same in _known_by(entry))
    ]
    studies = {entry.study for entry in others}
    looks = [
        entry
        for entry in entries
        if entry.study in studies and entry.event in ("decided", "looked", "peeked") and order[entry.sha256] < promised
    ]
    return tuple(sorted((*others, *looks), key=lambda entry: order[entry.sha256]))


def _known_by(seal: SealEntry) -> tuple[str | None, ...]:
    """Return the hashes by which a run is known again: of its outcome, and of what it is made of."""
    # Two runs whose first value is not a number have recorded nothing, or the same learning rate, and are alike
    # whatever they train.
    outcome = () if seal.status == "diverged" else (seal.outcome_sha256,)
    return (*outcome, seal.recipe_sha256)


def open_tables(root: Root, evidence: Evidence, *, look: PeekedEntry) -> Evidence:
    """Unfinished evidence with the values of the runs that have ended. `look` is the entry that puts this on record.

    Raises `EvidenceError` where the ledger does not hold that entry, or it is of other evidence.
    """
    # The look must be on record before a value is shown, and of this very evidence: a later run would be
    # unannounced.
    entries = Ledger(root.ledger).entries()
    if look not in entries or look.evidence != evidence.sha256:
        raise EvidenceError(
            "an early look that the ledger does not hold",
            required="the `peeked` entry of this evidence",
            fix='ablate status STUDY --results --reason "..."',
        )
    # Runs that have ended and are vouched for; the others have no value that anything rests on.
    ended = [run for run in evidence.runs if run.status in ("done", "diverged")]
    sealed = [run for run in ended if run.cell not in evidence.unsealed]
    # An amendment that leaves runs as they are shares the folder of the registration before it.
    base = bases_of(entry for entry in entries if entry.study == look.study).get(look.registration, look.registration)
    runs = root.runs(look.study, base)
    tables = _read_again(runs, sealed, kept_seeds=[run.seed for run in sealed])
    curves = [table for table in tables.values() if isinstance(table, Curves)]
    for fault in (table for table in tables.values() if isinstance(table, str)):
        raise EvidenceError(fault, required="the table that was sealed")
    return _with_tables(runs, evidence, sealed, curves)


def _with_tables(runs: Path, evidence: Evidence, records: list[RunRecord], metrics: list[Curves]) -> Evidence:
    scored = [_folder(runs, run).items_path for run in records if run.items_sha256 is not None]
    return replace(
        evidence, metrics=metrics_frame(metrics), items=items_frame(scored) if scored else None, withheld=False
    )


def _folder(runs: Path, run: RunRecord) -> RunFolder:
    return RunFolder(runs / run.variant / str(run.seed))


def _seeds_to_see(registration: Registration, ledger: Sequence[Entry], runs: Sequence[RunRecord]) -> tuple[int, ...]:
    """The seeds whose runs must have ended before any value is read, and whose values are read then."""
    study = registration.study
    if not study.settings_known:
        return study.pilot_seeds
    # A sequential study reads the seeds of one look: those of later looks would change when it stops.
    look = due_look(registration, ledger, {run.seed for run in runs})
    return (*study.pilot_seeds, *study.seeds) if look is None else study.seeds[: look.n_seeds]


@dataclass(frozen=True)
class Curves:
    """The sealed metrics of one run, by metric and step."""

    cell: Cell

    names: list[str]
    """Its metrics, in order."""

    metrics: npt.NDArray[np.integer]
    """Of every row, a place in `names`."""

    steps: npt.NDArray[np.int64]

    values: npt.NDArray[np.float64]

    def out_of_range(self, layout: MetricsFile) -> str:
        """What is wrong with the first value that its metric cannot have; empty where there is none."""
        # Rows are sorted by metric, so each metric is one slice; its smallest and largest value decide.
        ends = np.searchsorted(self.metrics, np.arange(len(self.names)), side="right")
        for name, values in zip(self.names, np.split(self.values, ends), strict=False):
            try:
                for value in (values.min(), values.max()) if len(values) else ():
                    require_range(name, float(value), layout.range_of(name))
            except RangeError as fault:
                return f"{fault} ({fault.fix})"
        return ""


def read_curves(folder: RunFolder, run: RunRecord) -> Curves | str:
    """The sealed metrics of a run whose outcome is that of its record, or what is wrong with them."""
    table = folder.read_metrics(run)
    if isinstance(table, str):
        return table
    (metrics, names), steps, values = ranked(*coded(table["metric"])), numbers(table["step"]), numbers(table["value"])
    metrics = metrics.astype(np.min_scalar_type(len(names)))  # uint8 for up to 255 metrics
    # By metric, then step. Steps rise as a trainer writes them, and a stable sort keeps that order. Small integers are
    # sorted by radix, several times faster.
    rising = (steps[1:] >= steps[:-1]).all()
    order = np.argsort(metrics, kind="stable") if rising else np.lexsort((steps, metrics))
    return Curves(run.cell, names, metrics[order], steps[order], values[order])


def metrics_frame(runs: Sequence[Curves]) -> pd.DataFrame:
    """The metrics of many runs as one frame: variant, seed, step, metric, value, one row per value.

    Sorted by variant, seed, metric and step. `variant` and `metric` are categories: a text per row would be most of the
    memory.

        >>> import numpy as np
        >>> curves = Curves(("wide", 0), ["val/loss"], np.zeros(2, np.uint8), np.array([1, 2]), np.array([2.5, 2.25]))
        >>> metrics_frame([curves]).to_dict("list")["value"]
        [2.5, 2.25]
    """
    # Every run is in order, and so is the table of all: of ten million rows, sorting them again takes longest.
    runs = sorted(runs, key=lambda run: run.cell)
    variants, names = sorted({run.cell[0] for run in runs}), sorted({name for run in runs for name in run.names})
    sizes = [len(run.steps) for run in runs]
    place_of = {name: place for place, name in enumerate(names)}
    places = [np.array([place_of[name] for name in run.names], np.int64)[run.metrics] for run in runs]
    # Codes of names differ between runs: each run's are mapped to places in the list of all names.
    columns = {
        "variant": _categories([np.repeat([variants.index(run.cell[0]) for run in runs], sizes)], variants),
        "seed": np.repeat(np.array([run.cell[1] for run in runs], np.int64), sizes),
        "step": np.concatenate([np.empty(0, np.int64), *(run.steps for run in runs)]),
        "metric": _categories(places, names),
        "value": np.concatenate([np.empty(0), *(run.values for run in runs)]),
    }
    return pd.DataFrame(columns, copy=False)


def _categories(codes: Sequence[npt.NDArray[np.int64]], texts: list[str]) -> pd.Categorical[Any]:
    kind = np.min_scalar_type(-len(texts) - 1)  # signed, as pandas has -1 for no category
    place_of_row = np.concatenate([np.empty(0, kind), *(part.astype(kind) for part in codes)])
    return pd.Categorical.from_codes(place_of_row, categories=pd.Index(texts, dtype=str))


def items_frame(scored: list[Path]) -> pd.DataFrame:
    """Sealed items of many runs as one frame: `ITEM_COLUMNS`, one row per run, metric and item.

    Sorted by variant, seed, metric, task and item, so that the same runs give the same frame whatever their order.
    Raises `TableError` for a file that is no such table.
    """
    assert scored, "no run has items: there is no table, and an empty one would be taken for a run without any"
    import pyarrow as pa

    # Texts arrive as dictionaries, each file with its own; as plain strings they can be put together.
    kinds = pa.schema([(name, OF_ITEMS[name]) for name in ITEM_COLUMNS])
    # Sorted by Arrow, before its texts become Python objects.
    table = pa.concat_tables([read_parquet(path, ITEM_COLUMNS).cast(kinds) for path in scored])
    keys = ("variant", "seed", "metric", "task", "item")
    frame: pd.DataFrame = table.sort_by([(key, "ascending") for key in keys]).to_pandas()
    return frame


def _read_again(
    runs: Path, records: list[RunRecord], *, kept_seeds: Collection[int]
) -> dict[Cell, Curves | str | None]:
    """Every outcome derived from its tables again: the fault of a run whose tables hold other values than its record
    says, its metrics where its seed is to be kept, and none for the others."""

    def read(run: RunRecord) -> Curves | str | None:
        curves = read_curves(_folder(runs, run), run)
        return curves if isinstance(curves, str) or run.seed in kept_seeds else None

    # Reading, sorting and hashing let go of the interpreter's lock; of short tables, threads would wait for it.
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        long = {run.cell: pool.submit(read, run) for run in records if run.steps > _LONG_RUN}
        return {run.cell: long[run.cell].result() if run.cell in long else read(run) for run in records}


def _unlike_its_place(record: RunRecord, registration: Registration, variant: str, seed: int) -> list[str]:
    if record.cell == (variant, seed) and record.registration in registration.lineage:
        return []
    return [
        f"the record in the folder of {variant}/{seed} is of {record.variant}/{record.seed} "
        f"under registration {record.registration[:8]}"
    ]


def _unplanned(root: Root, registration: Registration, planned: set[tuple[str, int]]) -> tuple[str, ...]:
    """Run folders that no plan names."""
    # By folders, since a run that no plan names is in no list: a seed that was added and not registered shows here.
    base = root.runs(registration.study.study, registration.runs_sha256)
    names = {(arm, str(seed)) for arm, seed in planned}
    unplanned = []
    for folder in sorted(path.parent for path in base.glob("*/*/run.json")):
        variant, seed = folder.parent.name, folder.name
        if (variant, seed) not in names:
            unplanned.append(f"{variant}/{seed}")
    return tuple(unplanned)
