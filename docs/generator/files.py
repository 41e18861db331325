"""docs/reference/files.md: every file that ablate writes or reads, with its fields."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from ablate.judge.verdict import WORDS_OF, Check, Decision
from ablate.records import imports, rows, store
from ablate.records.outcome import MEANS_OF_COLUMNS
from ablate.records.rows import Row
from ablate.records.run_record import RunRecord
from ablate.records.store import ItemScore, items_bytes, parquet_bytes
from ablate.runner.slurm import SlurmSettings
from ablate.verification.guide import KINDS
from ablate.verification.manifest import FORMAT, Manifest
from docs.generator.fields import Fields
from docs.generator.markdown import NOTE, code, indented_block, table
from prereg.documents.published import published_schema
from prereg.registry.ledger_entry import EVENTS, REPAIRS, Entry
from prereg.registry.registration import Registration

_PAGE = """# File formats

{note}

This is format 1: lock, ledger entry, run record, verdict and bundle say so in the field `format`. A version of ablate
that reads format 1 verifies every file of it, and none of another format. Every file is UTF-8 text (JSON, JSON lines,
YAML, Markdown) or Parquet; nothing is a pickle. Every field of a file is written, with its default where it has one.
All sha256 are 64 hexadecimal digits. Times are ISO 8601 with an offset. Where each file lies, and who writes it, is
in [Architecture](../../ARCHITECTURE.md#where-state-lives).

## NAME.lock.json

What was promised, as JSON: the lock, `studies/NAME.lock.json`. Its `sha256` is over the canonical JSON (RFC 8785) of
`study`, the order of the factors, `corpus`, `scripts`, `data_files`, `data`, `tasks` and `own_checks`.

{lock}
## ledger.jsonl

The ledger, `studies/ledger.jsonl`: what was done with every study of a repository, append-only. One canonical JSON
object (RFC 8785) a line, each with the hash of the line before.

{ledger}
### Events of the ledger

{events}
### Bodies of the ledger's entries

The fields of `body`, by event. One that does not apply is left out. Any body may also have {repairs}: what an append
repaired that a crash had left behind. In a bundle, `ledger.slice.jsonl` reduces the entries of other studies to
`index`, `previous` and `sha256`.

{bodies}
## The folder of a run

`data/runs/NAME/REGISTRATION/ARM/SEED/`, with the first eight digits of the registration's sha256. What is in it:

{folder}
A run of your own trainer also has `config.json` (the arm's configuration, which `ABLATE_CONFIG` names), `stdout.txt`,
`stderr.txt` and `work/`, the directory it runs in.

### metrics.parquet

One row for each value.

{metrics}
### items.parquet

One row for each scored item and metric.

{items}
### run.json

{run}
## verdict.json

`reports/NAME/verdict.json`: the verdict and everything it rests on, as facts: numbers, outcomes, names. What reports
say in words is derived from them and is in no file that is compared. It holds no clock time and no path: the same
evidence under the same registration gives the same bytes. `found` and `required` are written of the study's own checks
only.

{verdict}
## A bundle

`NAME.ablate.zip`, and `reports/NAME/evidence.ablate.zip`: a plain zip archive without compression. `ablate verify
FILE` checks it. Its form is `{form}`.

{members}
### MANIFEST.json

{manifest}
## Published figures

`studies/NAME.published.yaml`: figures that the report compares with the study's own. [Published
figures](../published.md) says how they are read.

{published}
## Metrics of your own trainer

`metrics.jsonl` in the run's own directory, or the file that `metrics.file` names: see [the study
file](study-file.md#metrics) and [your own trainer](../own-trainer.md#metrics).

## Imports

`ablate import` reads these sources:

{sources}
### Import manifest

Of a folder with a manifest, `manifest.json`.

{made}
### A mapping of columns

What `ablate import --mapping FILE.yaml` reads, and `--template` prints.

{mapping}
## cluster.yaml

In the root, with one section, `slurm`: how `ablate run --on slurm` submits a study. [Several
machines](../clusters.md#slurm) shows it. None of it is registered.

{cluster}"""


def files_page() -> str:
    """The whole page."""
    study = {"Study": "[the study](study-file.md), with every default filled in"}
    left_out = ("lock_sha256", "rewordings")
    bodies = [(code(event), code(field), text) for event, (_, body) in EVENTS.items() for field, text in body.items()]
    return _PAGE.format(
        note=NOTE,
        lock=_fields(Registration, "lock", study, left_out=left_out),
        ledger=_fields(Entry, "ledger"),
        repairs=" or ".join(map(code, REPAIRS)),
        events=table(("event", "what happened"), [(code(event), said) for event, (said, _) in EVENTS.items()]),
        bodies=table(("event", "field", "meaning"), bodies),
        folder=indented_block(store.__doc__),
        metrics=_columns(parquet_bytes(_RUN, [Row(1, "val/loss", 1.0)])),
        items=_columns(items_bytes(_RUN, [ItemScore("task", "item", "0" * 64, "metric", 1.0)])),
        run=_fields(RunRecord, "run.json"),
        verdict=_fields(Decision, "verdict.json"),
        form=FORMAT,
        members=table(("file", "what it is"), [(code(name.format(study="NAME")), text) for name, text in KINDS]),
        manifest=_fields(Manifest, "MANIFEST.json"),
        published=Fields(published_schema(), prefix="published: ").page(3),
        sources=indented_block(imports.__doc__),
        made=_fields(imports.Manifest, "import manifest"),
        mapping=_fields(rows.TableLayout, "mapping"),
        cluster=_fields(SlurmSettings, "cluster.yaml"),
    )


def _fields(
    model: type[BaseModel], file: str, elsewhere: Mapping[str, str] | None = None, left_out: tuple[str, ...] = ()
) -> str:
    schema: dict[str, Any] = model.model_json_schema(mode="validation")
    schema["properties"] = {name: value for name, value in schema["properties"].items() if name not in left_out}
    if model is Decision:
        for worded, names in WORDS_OF.items():
            part = schema if worded is Decision else schema["$defs"][worded.__name__]
            for name in names if worded is not Check else ():  # of a study's own check they are written
                del part["properties"][name]
    return Fields(schema, elsewhere, prefix=f"{file}: ").page(3)


def _columns(data: bytes) -> str:
    """The columns of a table, by writing one."""
    schema: pa.Schema = pq.read_schema(io.BytesIO(data))
    rows = [(code(field.name), str(field.type), MEANS_OF_COLUMNS[field.name]) for field in schema]
    return table(("column", "type", "meaning"), rows)


_WHOSE: dict[str, Any] = {"study": "study", "registration": "0" * 64, "variant": "arm", "seed": 1}
_RUN = RunRecord.model_construct(**_WHOSE)
"""Of which run the written tables are."""
