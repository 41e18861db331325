"""The verbs that import runs made elsewhere, and export a trained model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ablate
from ablate.cli.options import AsJson, RootFolder, StudyFile, put, put_document, put_json
from prereg.errors import EvidenceError

if TYPE_CHECKING:
    from ablate.records.tables import TableLayout


def import_records(
    study: StudyFile,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A folder of run folders, a file of rows, mlflow:URI#EXPERIMENT or tensorboard:DIR."
        ),
    ],
    note: Annotated[str, typer.Option(help="Where the runs come from; kept in ledger and report.")] = "",
    root: RootFolder = None,
    *,
    manifest: Annotated[
        bool, typer.Option("--manifest", help="Import nothing; write a manifest.json for a file of rows.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(metavar="ARM/SEED", help="Only this run (repeatable).")] = None,
    exploratory: Annotated[
        bool, typer.Option("--exploratory", help="Import runs not bound to the registration: no verdict then.")
    ] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="METRIC=COLUMN", help="Of a wide table: where a metric is (repeatable)."),
    ] = None,
    arm_column: Annotated[str, typer.Option(help="Of a wide table: where the arm is.")] = "variant",
    seed_column: Annotated[str, typer.Option(help="Of a wide table: where the seed is.")] = "seed",
    step_column: Annotated[str, typer.Option(help="Of a wide table: where the step is.")] = "step",
    at_step: Annotated[int | None, typer.Option(min=0, help="Of a wide table without steps: the step of all.")] = None,
    run_pattern: Annotated[
        str | None, typer.Option(help='Of a tracker: arm and seed in the name of a run, "{variant}/seed{seed}".')
    ] = None,
    template: Annotated[
        bool, typer.Option("--template", help="Import nothing; print a mapping guessed from the table's columns.")
    ] = False,
    mapping: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of a wide table: a mapping, in place of the columns' options.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import runs made elsewhere.

    Run folders that `ablate run` made from the same lock on another machine keep their seals and count. So do rows
    with a manifest.json that names the registration and the times of every run. Anything else is exploratory, also
    what MLflow and TensorBoard hold.

    Example:  ablate import studies/embnorm.yaml node7/data/runs/embnorm/1a2b3c4d --note "node 7"
    """
    from ablate.records.tables import TableLayout

    if template:
        return put_document(ablate.mapping_template(study, Path(source), root=root))
    metrics = dict(map(_metric_column, columns or ()))
    layout = TableLayout(arm_column, seed_column, step_column, at_step, metrics)
    if mapping is not None:
        layout = _mapped(mapping, layout)
    if manifest:
        place = ablate.write_manifest(study, Path(source), layout=layout, root=root)
        if as_json:
            return put_json(json.dumps({"wrote": str(place)}))
        again = f"ablate import {study} {place.parent} --note TEXT"
        return put(f"wrote {place}", f"next:  fill in started_at and ended_at of every run, then {again}")
    done = ablate.import_runs(
        study,
        source,
        note=note,
        exploratory=exploratory,
        only=only or (),
        layout=layout,
        run_pattern=run_pattern,
        root=root,
    )
    if as_json:
        facts = {"study": done.registration.study.study, "imported": done.imported, "already_here": done.already_here}
        facts |= {"unfinished": done.unfinished}
        rest = {"bound": done.bound, "missing": done.missing, "head": done.head}
        return put_json(json.dumps({**facts, **rest}, indent=2))
    how = "bound to the registration" if done.bound else "exploratory: this study gives no verdict now"
    put(f"{done.registration.study.study}: {len(done.imported)} runs imported, {how}")
    if done.already_here:
        put(f"{len(done.already_here)} were already here, byte for byte")
    put(*(f"left there  {run}" for run in done.unfinished))
    put(f"ledger head {done.head}")
    put(f"next:  ablate {'run' if done.missing else 'decide'} {study}")
    return None


def _mapped(mapping: Path, given: TableLayout) -> TableLayout:
    from ablate.records.tables import LONG, read_mapping

    if given != LONG:
        raise EvidenceError(
            "--mapping and an option that names a column", required="one of them", fix=f"--mapping {mapping}"
        )
    return read_mapping(mapping)


def _metric_column(word: str) -> tuple[str, str]:
    metric, _, column = word.partition("=")
    if not metric or not column:
        raise EvidenceError(f"--column {word}", required="METRIC=COLUMN", fix="--column val/loss=valid_loss")
    return metric, column


def export_model(
    study: StudyFile,
    run: Annotated[str, typer.Argument(metavar="ARM/SEED", help="A run of a decided study, such as layernorm/1.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    root: RootFolder = None,
    as_json: AsJson = False,
) -> None:
    """Export a trained model to Hugging Face transformers.

    Writes model.safetensors, config.json and the tokenizer, for AutoModelForCausalLM.from_pretrained(FOLDER): a GPT-2,
    Llama or Qwen3 that computes what was trained. A model that none of them computes is refused, and its field named.

    Example:  ablate export-model studies/positions.yaml rope/1 rope-1
    """
    files = ablate.export_model(study, run, folder, root=root)
    if as_json:
        return put_json(json.dumps({"files": [str(path) for path in files]}, indent=2))
    put(*(f"wrote {path}" for path in files))
    return None
