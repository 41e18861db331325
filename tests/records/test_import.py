"""Runs made elsewhere: they count when they name the promise they were made under, and never replace another run."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledger_samples import enter
from own_trainer import OwnHouse
from test_own_trainer import check_named, events, judged
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from ablate.records.gather import gather
from ablate.records.outcome import outcome_hash
from ablate.records.rows import Row, TableLayout
from ablate.records.store import ItemScore, RunFolder
from ablate.reporting.context import ReportContext
from ablate.runner.options import RunOptions
from ablate.running import Imported
from ablate.verification.verify import verify_target
from prereg.errors import EvidenceError, RegistrationError
from prereg.registry.canon import sha256_bytes, sha256_file
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.registration import Pins, Registration, load_registration

CELLS = [(variant, seed) for seed in (1, 2, 3) for variant in ("slow", "fast")]
NOTE = "made on the cluster"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A registered house without runs, and a copy of it in which all runs were made."""
    base = tmp_path_factory.mktemp("made")
    house = OwnHouse(base / "here")
    registration = house.register()
    elsewhere = OwnHouse(base / "elsewhere", of=house.path)
    for variant, seed in CELLS:
        assert elsewhere.carry_out(registration, variant, seed)[0].status == "done"
    return house.path, elsewhere.path / "data" / "runs" / "own" / registration.sha256[:8]


@pytest.fixture
def here(made: tuple[Path, Path], tmp_path: Path) -> OwnHouse:
    return OwnHouse(tmp_path / "here", of=made[0])


@pytest.fixture
def cluster(made: tuple[Path, Path], tmp_path: Path) -> Path:
    """The run folders of the other machine, to be spoiled."""
    return Path(shutil.copytree(made[1], tmp_path / "cluster"))


def promise(here: OwnHouse) -> Registration:
    found = load_registration(Root(here.path), "own")
    assert found is not None
    return found


def bring(here: OwnHouse, source: Path, **options: Any) -> Imported:
    return api.import_runs(here.study, source, note=options.pop("note", NOTE), **options)


def refused(here: OwnHouse, source: Path, match: str, **options: Any) -> None:
    """The import is refused, and nothing has changed on disk but the file of the study's lock."""
    before = here.snapshot()
    with pytest.raises(EvidenceError, match=match):
        bring(here, source, **options)
    after = here.snapshot()
    after.pop("data/runs/own/.lock", None)
    before.pop("data/runs/own/.lock", None)
    assert after == before


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "run.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def reseal(folder: Path, **columns: list[Any]) -> None:
    """Forge the table of a run, and its hash with it."""
    table = pq.read_table(folder / "metrics.parquet").to_pydict()
    pq.write_table(pa.table(table | columns), folder / "metrics.parquet")
    rewrite(folder, lambda record: record.update(metrics_sha256=sha256_file(folder / "metrics.parquet")))


def reseal_outcome(folder: Path, **columns: list[Any]) -> None:
    """Forge the outcome too, so that every hash holds."""
    reseal(folder, **columns)
    table = pq.read_table(folder / "metrics.parquet").to_pydict()
    rows = [Row(*cells) for cells in zip(table["step"], table["metric"], table["value"], strict=True)]
    rewrite(folder, lambda record: record.update(outcome_sha256=outcome_hash(rows)))


def rows_of(cluster: Path) -> list[dict[str, Any]]:
    """The tidy rows of all runs."""
    keys = ("variant", "seed", "step", "metric", "value")
    tables = [pq.read_table(path).to_pylist() for path in sorted(cluster.glob("*/*/metrics.parquet"))]
    return [{key: row[key] for key in keys} for table in tables for row in table]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        path.write_text(text.getvalue())
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def write_manifest(folder: Path, registration: Registration, /, **changes: Any) -> Path:
    runs = [
        {"variant": v, "seed": s, "started_at": "2026-01-02T04:00:00+00:00", "ended_at": "2026-01-02T05:00:00+00:00"}
        for v, s in CELLS
    ]
    code = {pin.path: pin.sha256 for pin in registration.scripts or ()}
    folder.mkdir(exist_ok=True)
    whole = {"registration": registration.sha256, "runs": runs, "code": code} | changes
    (folder / "manifest.json").write_text(json.dumps(whole))
    return folder


def test_run_folders_of_the_same_lock_keep_their_seals_and_count(here: OwnHouse, cluster: Path) -> None:
    done = bring(here, cluster)
    assert (len(done.imported), done.already_here, done.bound, done.missing) == (6, (), True, 0)
    entries = Ledger(here.path / "studies" / "ledger.jsonl").entries()
    assert [entry.event for entry in entries] == ["registered", *["imported"] * 6]
    assert entries[1].run_sha256 == sha256_file(cluster / "slow" / "1" / "run.json")
    decision = judged(here, promise(here))
    assert (decision.status, decision.verdict) == ("decided_with_deviations", "take fast")
    elsewhere = check_named(decision, "every run was made here")
    assert (elsewhere.passed, elsewhere.severity) == (False, "deviation")
    assert elsewhere.found.startswith("6 of 6 runs were made elsewhere and imported: slow seed 1; ")
    assert NOTE in elsewhere.found and "their maker's word" in elsewhere.found
    assert verify_target(here.study).intact


def test_scores_of_items_come_along_and_are_checked(here: OwnHouse, cluster: Path) -> None:
    folder = RunFolder(cluster / "slow" / "1")
    record = folder.read_record()
    assert record is not None
    score = ItemScore("task", "item 1", "ab" * 32, "harness/accuracy", 1.0)
    folder.seal(record, folder.sealed_rows(), [score])
    sealed = folder.items_path.read_bytes()
    folder.items_path.write_bytes(sealed + b"x")
    refused(here, cluster, "items.parquet is not what run.json sealed")
    folder.items_path.write_bytes(sealed)
    bring(here, cluster)
    assert (here.run_folder("slow", 1) / folder.items_path.name).read_bytes() == sealed
    assert gather(Root(here.path), promise(here)).broken == ()


@pytest.mark.slow
def test_an_import_and_runs_made_here_mix_and_are_listed(here: OwnHouse, cluster: Path) -> None:
    done = bring(here, cluster, only=["slow/1", "fast/1"])
    assert (done.imported, done.missing) == (("slow/1", "fast/1"), 4)
    ran = api.run(here.study, RunOptions(slots=2))
    assert ran.summary.complete, ran.summary.failed
    assert events(here).count("sealed") == 4
    assert events(here)[-1] == "finished"
    decision = judged(here, promise(here))
    assert decision.status == "decided_with_deviations"
    found = check_named(decision, "every run was made here").found
    assert found.startswith("2 of 6 runs were made elsewhere and imported: slow seed 1; fast seed 1. Note: ")


def test_runs_that_have_not_ended_are_left_there_and_named(here: OwnHouse, cluster: Path) -> None:
    rewrite(cluster / "fast" / "2", lambda record: record.update(status="running"))
    rewrite(cluster / "slow" / "3", lambda record: record.update(status="failed"))
    done = bring(here, cluster)
    assert len(done.imported) == 4 and done.missing == 2
    assert sorted(done.unfinished) == ["fast seed 2: running", "slow seed 3: failed"]
    for folder in cluster.glob("*/*"):
        rewrite(folder, lambda record: record.update(status="running"))
    refused(here, cluster, "no run has ended: fast seed 1: running")


@pytest.mark.slow
def test_a_manifest_is_written_for_a_file_and_counts_once_its_times_are_filled_in(
    here: OwnHouse, cluster: Path, tmp_path: Path
) -> None:
    (tmp_path / "node").mkdir()
    source = write_rows(tmp_path / "node" / "metrics.csv", rows_of(cluster))
    words = ["import", str(here.study), str(source), "--manifest", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (done.output, done.exception)
    place = tmp_path / "node" / "manifest.json"
    assert json.loads(done.stdout) == {"wrote": str(place)}
    refused(here, place.parent, "has the time ''")
    with pytest.raises(EvidenceError, match="is there already"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    manifest = json.loads(place.read_text())
    assert manifest["registration"] == promise(here).sha256 and len(manifest["runs"]) == 6
    for run in manifest["runs"]:
        run["started_at"] = run["ended_at"] = "2026-01-02T04:00:00+00:00"
    place.write_text(json.dumps(manifest))
    assert bring(here, place.parent).bound


def test_twice_changes_nothing(here: OwnHouse, cluster: Path) -> None:
    bring(here, cluster)
    before = here.snapshot()
    done = bring(here, cluster, note="again")
    assert (done.imported, len(done.already_here)) == ((), 6)
    assert here.snapshot() == before


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])
def test_rows_without_a_binding_are_exploratory_and_give_no_verdict(
    here: OwnHouse, cluster: Path, tmp_path: Path, name: str
) -> None:
    source = write_rows(tmp_path / name, rows_of(cluster))
    refused(here, source, "neither when they were made nor under which registration")
    assert not bring(here, source, exploratory=True).bound
    registration = promise(here)
    evidence = gather(Root(here.path), registration)
    assert evidence.broken == evidence.missing == ()
    decision = judged(here, registration)
    assert (decision.status, decision.verdict) == ("inadmissible", None)
    check = check_named(decision, "every run was made under this registration")
    assert "6 runs were imported without a registration hash: slow seed 1; " in check.found
    assert [finding.estimate is not None for finding in decision.findings] == [True]
    assert ReportContext(decision, registration, evidence, "0" * 64, "2026-01-02T03:04:05+00:00").unusable


WIDE = TableLayout(arm="run_name", seed="seed", step="iter", metrics={"val/loss": "valid_loss", "train/loss": "loss"})
TABLE = """run_name,seed,iter,loss,valid_loss,notes
slow,1,1,3.0,,first
slow,1,2,2.5,1.9,
fast,1,1,3.1,,
fast,1,2,2.0,1.6,
"""


@pytest.mark.parametrize("name", ["results.csv", "results.jsonl", "results.parquet"])
def test_a_wide_table_is_read_by_its_columns(here: OwnHouse, tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    header, *lines = TABLE.splitlines()
    if name.endswith(".csv"):
        source.write_text(TABLE)
    else:
        rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
        numbers = ("seed", "iter", "loss", "valid_loss")
        typed = [row | {key: json.loads(row[key] or "null") for key in numbers} for row in rows]
        if name.endswith(".jsonl"):
            source.write_text("".join(json.dumps(row) + "\n" for row in typed))
        else:
            pd.DataFrame(typed).to_parquet(source)  # whose blanks are nulls
    refused(here, source, "rows|columns run_name|which is none of|has no column")  # without a layout
    done = bring(here, source, exploratory=True, layout=WIDE)
    assert done.imported == ("slow/1", "fast/1") and done.missing == 4
    folder = RunFolder(here.run_folder("fast", 1))
    assert [(row.step, row.metric, row.value) for row in folder.sealed_rows()] == [
        (1, "train/loss", 3.1),
        (2, "val/loss", 1.6),
        (2, "train/loss", 2.0),
    ]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("run_name", "name", "line 1: no column 'run_name'"),
        ("slow,1,2", "slow,1.5,2", "line 3: seed 1.5, which is not a whole number"),
        ("slow,1,2", "slow,1,x", "line 3: step"),
        ("1.9", "low", "line 3: 'valid_loss': value \"low\", which is not a number"),
        ("1.9", "nan", "line 3: 'valid_loss': val/loss is nan"),
        ("fast,1,2", "fast,1,1", "train/loss of fast seed 1 at step 1 is already on line 4"),
        ("fast,1,2,2.0,1.6,", "fast,1,2,2.0", "line 5: 4 fields under 6 columns"),
        ("fast", "quick", "quick"),
    ],
)
def test_a_faulty_wide_table_is_named_by_its_line(
    here: OwnHouse, tmp_path: Path, old: str, new: str, found: str
) -> None:
    source = tmp_path / "results.csv"
    source.write_text(TABLE.replace(old, new))
    refused(here, source, re.escape(found), exploratory=True, layout=WIDE)


def test_a_table_without_steps_is_of_one_step(here: OwnHouse, tmp_path: Path) -> None:
    source = tmp_path / "results.csv"
    source.write_text("run,seed,loss,val\nslow,1,2.5,1.9\n")
    words = ["import", str(here.study), str(source), "--note", NOTE, "--exploratory", "--arm-column", "run"]
    words += ["--at-step", "1", "--column", "val/loss=val", "--column", "train/loss=loss"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "1 runs imported" in done.output, (done.output, done.exception)
    with pytest.raises(EvidenceError, match="--column val"):
        CliRunner().invoke(app, [*words, "--column", "val"], catch_exceptions=False)


@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.csv", "metrics.parquet"])
def test_rows_with_a_manifest_are_bound(here: OwnHouse, cluster: Path, tmp_path: Path, name: str) -> None:
    source = write_manifest(tmp_path / "brought", promise(here))
    write_rows(source / name, rows_of(cluster))
    assert bring(here, source).bound
    decision = judged(here, promise(here))
    assert (decision.status, decision.verdict) == ("decided_with_deviations", "take fast")
    outcomes = {p.parent.name: json.loads(p.read_text())["outcome_sha256"] for p in cluster.glob("slow/*/run.json")}
    for seed, outcome in outcomes.items():
        assert json.loads((here.run_folder("slow", int(seed)) / "run.json").read_text())["outcome_sha256"] == outcome


def test_a_manifest_that_does_not_state_the_code_gives_no_verdict(
    here: OwnHouse, cluster: Path, tmp_path: Path
) -> None:
    source = write_manifest(tmp_path / "brought", promise(here), code={})
    write_rows(source / "metrics.csv", rows_of(cluster))
    bring(here, source)
    assert not check_named(judged(here, promise(here)), "every run used the registered code").passed


def test_runs_of_a_study_that_pins_no_code_are_bound_without_any(here: OwnHouse, cluster: Path, tmp_path: Path) -> None:
    house = OwnHouse(tmp_path / "bare")
    registration = house.register(command=["/bin/sh", "-c", "exit 1"])
    assert registration.files == ()
    source = write_manifest(tmp_path / "brought", registration, code={})
    write_rows(source / "metrics.csv", rows_of(cluster))
    assert bring(house, source).bound
    decision = judged(house, registration)
    assert (decision.status, decision.verdict) == ("decided_with_deviations", "take fast")
    assert not check_named(decision, "the trainer's code is registered").passed


@pytest.mark.slow
def test_runs_that_say_they_were_made_before_the_registration_are_replayed(
    here: OwnHouse, cluster: Path, tmp_path: Path
) -> None:
    times = {"started_at": "2025-01-02T04:00:00+00:00", "ended_at": "2025-01-02T05:00:00+00:00"}
    runs = [{"variant": variant, "seed": seed, **times} for variant, seed in CELLS]
    source = write_manifest(tmp_path / "brought", promise(here), runs=runs)
    write_rows(source / "metrics.csv", rows_of(cluster))
    refused(here, source, "before the registration")
    assert not bring(here, source, exploratory=True).bound
    decision = judged(here, promise(here))
    check = check_named(decision, "every run was made under this registration")
    assert decision.status == "inadmissible"
    assert "6 runs were made before the registration: slow seed 1; " in check.found


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"registration": "ab" * 32}, "was made under registration abababab"),
        ({"registration": 7}, "registration: Input should be a valid string"),
        ({"runs": []}, "the manifest does not hold fast seed 1"),
        ({"extra": 1}, "extra: Extra inputs are not permitted"),
    ],
)
def test_a_manifest_that_does_not_bind_is_refused(
    here: OwnHouse, cluster: Path, tmp_path: Path, changes: dict[str, Any], found: str
) -> None:
    source = write_manifest(tmp_path / "brought", promise(here), **changes)
    write_rows(source / "metrics.jsonl", rows_of(cluster))
    refused(here, source, found)


@pytest.mark.parametrize(
    ("started", "ended", "found"),
    [
        ("2026-01-01T00:00:00+00:00", "2026-01-03T00:00:00+00:00", "before the registration of 2026-01-02T03:04:05"),
        ("2026-01-02T04:00:00+02:00", "2026-01-03T00:00:00+00:00", "before the registration"),
        ("2026-01-03T00:00:00+00:00", "2026-01-02T12:00:00+00:00", "before it began"),
        ("2026-01-03T00:00:00+00:00", "2999-01-01T00:00:00+00:00", "which has not come yet"),
        ("2026-01-03T00:00:00", "2026-01-04T00:00:00+00:00", "has the time '2026-01-03T00:00:00'"),
        ("yesterday", "2026-01-04T00:00:00+00:00", "has the time 'yesterday'"),
        ("2026-01-03T00:00:00+00:00", None, "has the time ''"),
    ],
)
def test_times_that_cannot_be_are_refused(
    here: OwnHouse, cluster: Path, started: str, ended: str | None, found: str
) -> None:
    rewrite(cluster / "fast" / "2", lambda record: record.update(started_at=started, ended_at=ended))
    refused(here, cluster, found)


SPOILT: dict[str, tuple[Callable[[Path], None], str]] = {
    "another registration": (
        lambda f: (rewrite(f, lambda r: r.update(registration="cd" * 32)), reseal(f, registration=["cd" * 32] * 5))[0],
        "was made under registration cdcdcdcd",
    ),
    "another study": (
        lambda f: (rewrite(f, lambda r: r.update(study="other")), reseal(f, study=["other"] * 5))[0],
        "is of study 'other'",
    ),
    "an arm of another name": (lambda f: rewrite(f, lambda r: r.update(variant="none")), '"none" is no variant'),
    "a path for a name": (
        lambda f: rewrite(f, lambda r: r.update(variant="../../../../escape")),
        r'"\.\./\.\./\.\./\.\./escape" is no variant',
    ),
    "a seed that is not planned": (lambda f: rewrite(f, lambda r: r.update(seed=4)), "seed 4 of fast is not planned"),
    "another cell's record": (
        lambda f: rewrite(f, lambda r: r.update(variant="slow")),
        "variant 'fast' in the record of 'slow'",
    ),
    "a run twice": (lambda f: shutil.copytree(f, f.parent / "9") and None, "a second run of fast seed 2"),
    "another configuration": (
        lambda f: rewrite(f, lambda r: r["config"].update(lr=9.0)),
        "fast seed 2 has another configuration",
    ),
    "no record": (lambda f: (f / "run.json").write_text("{}"), "not a run record"),
    "other metrics": (
        lambda f: (f / "metrics.parquet").write_bytes(b"PAR1"),
        "metrics.parquet is not what run.json sealed",
    ),
    "no metrics": (lambda f: (f / "metrics.parquet").unlink(), "metrics.parquet is missing"),
    "forged values": (lambda f: reseal(f, value=[0.0] * 5), "have the outcome [0-9a-f]{8}, and run.json says"),
    "a value that is no number": (
        lambda f: reseal_outcome(f, value=[float("inf"), 2.0, 2.0, 2.0, 2.0]),
        "row 1: a value that is not finite",
    ),
    "rows twice": (
        lambda f: reseal_outcome(f, step=[1] * 5),
        "row 2: train/loss at step 1 is already on line 1",
    ),
    "a name that is none": (lambda f: reseal_outcome(f, metric=["val loss"] * 5), "row 1: metric .val loss."),
    "a row after the last step": (lambda f: reseal_outcome(f, step=[1, 2, 3, 4, 9]), "holds rows after step 4"),
    "rows of another study": (
        lambda f: reseal(f, study=["other"] * 5),
        "holds rows of another run: study 'other' in the record of 'own'",
    ),
    "rows of another seed": (lambda f: reseal(f, seed=[3] * 5), "holds rows of another run: seed 3 in the record of 2"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_run_that_is_not_what_it_says_is_refused_and_nothing_is_taken(
    here: OwnHouse, cluster: Path, how: str
) -> None:
    spoil, found = SPOILT[how]
    spoil(cluster / "fast" / "2")
    refused(here, cluster, found)
    assert not list(here.path.parent.rglob("escape*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"variant": "../../x"}, r'"\.\./\.\./x" is no variant'),
        ({"variant": "Slow"}, '"Slow" is no variant'),
        ({"seed": 9}, "seed 9 of fast is not planned"),
        ({"seed": "1"}, 'line 1: seed "1", which is not a whole number'),
        ({"seed": True}, "line 1: seed true"),
        ({"value": float("nan"), "metric": "val/loss"}, "line 1: val/loss is nan"),
        ({"value": "0.5"}, 'line 1: value "0.5"'),
        ({"step": 2}, "line 2: train/loss of fast seed 1 at step 2 is already on line 1"),
        ({"step": -1}, "line 1: step -1"),
        ({"host": "n1"}, 'line 1: "host", which is none of'),
    ],
)
def test_a_faulty_row_is_named_and_nothing_is_taken(
    here: OwnHouse, cluster: Path, tmp_path: Path, change: dict[str, Any], found: str
) -> None:
    rows = rows_of(cluster)
    rows[0] |= change
    source = write_manifest(tmp_path / "brought", promise(here))
    write_rows(source / "metrics.jsonl", rows)
    refused(here, source, found)
    refused(here, source, found, exploratory=True)


@pytest.mark.parametrize(
    "case",
    [
        ("variant,seed", "variant,sed", "line 1: no 'seed' and \"sed\", which is none of variant, seed"),
        ("fast,1,1,", "fast,1,1,x,", "line 2: 6 fields under 5 columns"),
        ("fast,1,1,", "fast,1_0,1,", 'line 2: seed "1_0"'),
        ("fast,1,1,", 'fast,"1,1,', "not CSV"),
        ("fast,1,1,train/loss,", "fast,1,1,train/loss,0x", 'line 2: value "0x'),
    ],
)
def test_csv_is_read_as_strictly(here: OwnHouse, cluster: Path, tmp_path: Path, case: tuple[str, str, str]) -> None:
    old, new, found = case
    path = write_rows(tmp_path / "rows.csv", rows_of(cluster))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    refused(here, path, found, exploratory=True)


@pytest.mark.slow
def test_no_run_is_ever_replaced(here: OwnHouse, cluster: Path, tmp_path: Path) -> None:
    registration = promise(here)
    here.carry_out(registration, "fast", 1)
    refused(here, cluster, "a run of fast seed 1 lies in ")
    bring(here, cluster, only=["slow/1"])
    source = write_manifest(tmp_path / "brought", registration)
    write_rows(source / "metrics.csv", rows_of(cluster))
    refused(here, source, "the ledger has another run of slow seed 1", only=["slow/1"])
    shutil.rmtree(here.run_folder("slow", 1))  # not even when its folder is gone
    refused(here, source, "the ledger has another run of slow seed 1", only=["slow/1"])
    assert bring(here, cluster, only=["slow/1"]).imported == ("slow/1",)  # the same bytes may come back
    assert events(here).count("imported") == 1


def test_a_failed_run_is_not_replaced_by_a_better_one(here: OwnHouse, cluster: Path) -> None:
    registration = promise(here)
    entry = {"variant": "fast", "seed": 1, "error": "exit status 1"}
    enter(
        Ledger(here.path / "studies" / "ledger.jsonl"),
        "failed",
        entry,
        study="own",
        registration=registration.sha256,
        at="2026-01-02T06:00:00+00:00",
    )
    refused(here, cluster, r"another run of fast seed 1 \(failed, entry 1\)")


@pytest.mark.parametrize(("only", "found"), [(["slow/9"], "no run of slow seed 9"), (["slow"], "--only slow")])
def test_a_subset_is_named_as_it_is(here: OwnHouse, cluster: Path, only: list[str], found: str) -> None:
    refused(here, cluster, found, only=only)


def test_a_note_is_needed(here: OwnHouse, cluster: Path) -> None:
    refused(here, cluster, "without a note", note=" ")
    refused(here, cluster, "a note of 2,001 characters", note="x" * 2001)


def test_a_source_of_no_known_kind_is_refused(here: OwnHouse, tmp_path: Path) -> None:
    refused(here, tmp_path / "gone", "no such file or folder")
    (tmp_path / "empty").mkdir()
    refused(here, tmp_path / "empty", "neither run.json nor manifest.json")
    (tmp_path / "rows.txt").write_text("x")
    refused(here, tmp_path / "rows.txt", "is of no known kind", exploratory=True)


def test_a_curve_that_diverges_is_an_outcome_here_too(here: OwnHouse, cluster: Path, tmp_path: Path) -> None:
    rows = rows_of(cluster)
    spoilt = next(r for r in rows if (r["variant"], r["seed"], r["step"], r["metric"]) == ("fast", 1, 3, "train/loss"))
    spoilt["value"] = float("nan")
    source = write_manifest(tmp_path / "brought", promise(here))
    write_rows(source / "metrics.jsonl", rows)
    bring(here, source)
    record = RunFolder(here.run_folder("fast", 1)).read_record()
    assert record is not None
    assert (record.status, record.steps) == ("diverged", 3)


CRASHES = """
import os, signal, sys
from pathlib import Path
import ablate as api
from ablate.records import imports
real, calls = imports.NAME, []
def dies(*words):
    calls.append(words)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*words)
imports.NAME = dies
api.import_runs(Path(sys.argv[1]), Path(sys.argv[2]), note="made on the cluster")
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["put", "move"])
def test_a_killed_import_is_completed_by_the_same_import(here: OwnHouse, cluster: Path, moment: str) -> None:
    words = [sys.executable, "-c", CRASHES.replace("NAME", moment), str(here.study), str(cluster)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert events(here).count("imported") == 3
    assert judged(here, promise(here)).findings == ()
    again = bring(here, cluster)
    assert (len(again.imported), len(again.already_here)) == (4, 2)
    assert events(here).count("imported") == 6
    assert judged(here, promise(here)).status == "decided_with_deviations"
    assert not list(here.path.rglob("*.import"))


def test_an_amendment_after_an_import_comes_after_outcomes_were_read(here: OwnHouse, cluster: Path) -> None:
    bring(here, cluster)
    import prereg.registry.register as promises
    from prereg.study.load import load_study

    text = here.study.read_text().replace("smallest: 0.05", "smallest: 0.01")
    here.study.write_text(text)
    registration = promise(here)
    _, entry = promises.amend_study(
        Root(here.path),
        load_study(here.study),
        pins=Pins(scripts=registration.scripts),
        design=None,
        tool={},
        at="2026-01-05T00:00:00+00:00",
        reason="later",
        evidence="none",
    )
    assert entry.evidence == "outcomes read"


@pytest.mark.slow
def test_from_the_command_line(here: OwnHouse, cluster: Path) -> None:
    words = [sys.executable, "-m", "ablate", "import", str(here.study), str(cluster), "--note", NOTE]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    assert "own: 6 runs imported, bound to the registration" in done.stdout
    assert "next:  ablate decide" in done.stdout
    assert (
        sha256_bytes((cluster / "slow" / "1" / "run.json").read_bytes())
        in (here.path / "studies" / "ledger.jsonl").read_text()
    )


def test_an_import_before_a_registration_proposes_to_register_and_not_to_train(own_house: OwnHouse) -> None:
    path = own_house.write()
    before = own_house.snapshot()
    with pytest.raises(RegistrationError, match="is not registered") as refused:
        api.import_runs(path, own_house.path / "rows.csv", note="elsewhere")
    assert refused.value.fix == f"ablate register {path}, then import again"
    assert own_house.snapshot() == before


def panel(**changes: str) -> str:
    """What W&B exports from a panel, quoted, with the ends of its bands; W&B's own _step among the metrics."""
    values = {f"{arm}/seed{seed}": f"{1.0 + seed / 10 + (arm == 'slow') / 5}" for arm, seed in CELLS}
    columns = [f"{run} - {name}{end}" for run in values for name in ("_step", "val/loss") for end in ENDS]
    lines = [["Step", *columns]]
    for step in ("1", "4"):
        cells = {f"{run} - _step{end}": step for run in values for end in ENDS}
        cells |= {f"{run} - val/loss{end}": value for run, value in values.items() for end in ENDS}
        cells |= {"slow/seed2 - val/loss" + end: "" for end in ENDS if step == "1"} | changes
        lines.append([step, *(cells[column] for column in columns)])
    return "".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in lines)


ENDS = ("", "__MIN", "__MAX")


def test_a_panel_that_wandb_exported_is_imported_as_it_is(here: OwnHouse, tmp_path: Path) -> None:
    source = tmp_path / "wandb_export.csv"
    source.write_text(panel())
    refused(here, source, "neither when they were made")
    assert len(bring(here, source, exploratory=True).imported) == 6
    rows = {cell: RunFolder(here.run_folder(*cell)).sealed_rows() for cell in CELLS}
    assert [(row.step, row.metric) for row in rows["fast", 1]] == [(1, "val/loss"), (4, "val/loss")]
    assert [row.value for row in rows["slow", 2]] == [1.4]  # a blank is no value


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("fast/seed1 -", "fast -", "the name 'fast' does not say its arm and seed"),
        ("fast/seed1 -", "fast-2 -", "two runs of fast seed 2"),
        ('"Step"', '"When"', "a panel of W&B without a column of steps"),
        ("fast/seed1 -", "quick/seed1 -", '"quick" is no variant'),
        ('"1.1"', '"high"', "line 2: 'fast/seed1 - val/loss': value \"high\""),
    ],
)
def test_a_panel_that_does_not_say_whose_values_it_holds_is_refused(
    here: OwnHouse, tmp_path: Path, old: str, new: str, found: str
) -> None:
    source = tmp_path / "wandb_export.csv"
    source.write_text(panel().replace(old, new))
    refused(here, source, re.escape(found), exploratory=True)


def test_means_that_a_panel_shows_are_no_runs_own_values(here: OwnHouse, tmp_path: Path) -> None:
    source = tmp_path / "wandb_export.csv"
    source.write_text(panel(**{"slow/seed3 - val/loss__MAX": "1.75"}))
    refused(
        here, source, "'slow/seed3 - val/loss' is a mean of several points or runs, from 1.5 to 1.75", exploratory=True
    )


@pytest.mark.slow
def test_a_pattern_says_how_the_runs_of_a_panel_are_named(here: OwnHouse, tmp_path: Path) -> None:
    source = tmp_path / "wandb_export.csv"
    source.write_text(re.sub(r"(slow|fast)/seed(\d)", r"\2 of \1", panel()))
    pattern = "{seed} of {variant}"
    assert len(bring(here, source, exploratory=True, run_pattern=pattern).imported) == 6
    source.write_text(TABLE)
    refused(here, source, "no panel of W&B", exploratory=True, layout=WIDE, run_pattern=pattern)


def test_a_run_without_any_value_is_refused_by_name(here: OwnHouse, tmp_path: Path) -> None:
    source = tmp_path / "results.csv"
    source.write_text(TABLE + "fast,2,2,,,\n")
    refused(here, source, "fast seed 2: it is empty", exploratory=True, layout=WIDE)
