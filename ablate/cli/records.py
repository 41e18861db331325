"""Commands on records: import of runs made elsewhere, judge of a table without a study, export-model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.command import Result, WholeText, command
from ablate.cli.options import Exit, StudyFile
from ablate.workspace import Workspace
from prereg.errors import EvidenceError

if TYPE_CHECKING:
    from ablate.records.rows import TableLayout


@command(interrupted="runs that the ledger holds are imported; repeat the command for the rest")
def import_command(
    workspace: Workspace,
    study: StudyFile,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A folder of run folders, a file of rows, mlflow:URI#EXPERIMENT or tensorboard:DIR."
        ),
    ],
    note: Annotated[str, typer.Option(help="Where the runs come from; kept in ledger and report.")] = "",
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
        str | None,
        typer.Option(help='Of a tracker or W&B panel: arm and seed in names, "{variant}/seed{seed}".'),
    ] = None,
    template: Annotated[
        bool, typer.Option("--template", help="Import nothing; print a mapping guessed from the table's columns.")
    ] = False,
    mapping: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of a wide table: a mapping, in place of the columns' options.")
    ] = None,
) -> Result:
    """Import runs made elsewhere.

    Run folders that `ablate run` made from the same lock on another machine keep their seals and count. So do rows
    with a manifest.json that names the registration and the times of every run. Anything else is exploratory, also
    what MLflow and TensorBoard hold.

    Example:  ablate import studies/embnorm.yaml node7/data/runs/embnorm/1a2b3c4d --note "node 7"
    """
    from ablate import running
    from ablate.records.rows import TableLayout

    if template:
        # --template and --manifest import nothing: they write what an import then needs.
        guessed = running.mapping_template(study, Path(source), workspace=workspace)
        return Result({"mapping": guessed}, lambda: [WholeText(guessed)])
    metrics: dict[str, str | None] = dict(map(_metric_column, columns or ()))
    # Where the values are. Of a tracker and of run folders none of it is used.
    layout = TableLayout(arm=arm_column, seed=seed_column, step=step_column, at_step=at_step, metrics=metrics)
    if mapping is not None:
        layout = _mapped(mapping, layout)
    if manifest:
        place = running.write_manifest(study, Path(source), layout=layout, workspace=workspace)
        again = f"ablate import {study} {place.parent} --note TEXT"
        then = f"fill in started_at and ended_at of every run, then {again}"
        return Result({"wrote": place}, lambda: [f"wrote {place}"], next=then)
    done = running.import_runs(
        study,
        source,
        note=note,
        exploratory=exploratory,
        only=only or (),
        layout=layout,
        run_pattern=run_pattern,
        workspace=workspace,
    )

    def text() -> Iterator[str]:
        how = "bound to the registration" if done.bound else "exploratory: this study gives no verdict now"
        yield f"{done.study}: {len(done.imported)} runs imported, {how}"
        if done.already_here:
            yield f"{len(done.already_here)} were already here, byte for byte"
        yield from (f"left there  {run}" for run in done.unfinished)
        yield f"ledger head {done.head}"

    # A study whose runs are all here is decided; otherwise the rest is trained.
    return Result(done, text, next=f"ablate {'run' if done.missing else 'decide'} {study}")


def _mapped(mapping: Path, typed: TableLayout) -> TableLayout:
    from ablate.records.tables import LONG, read_mapping

    if typed != LONG:
        # LONG is what the options are by default: anything else was typed.
        raise EvidenceError(
            "--mapping and an option that names a column", required="one of them", fix=f"--mapping {mapping}"
        )
    return read_mapping(mapping)


def _metric_column(word: str) -> tuple[str, str]:
    metric, _, column = word.partition("=")
    if not metric or not column:
        raise EvidenceError(f"--column {word}", required="METRIC=COLUMN", fix="--column val/loss=valid_loss")
    return metric, column


@command(interrupted="nothing was written")
def judge_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A table: .csv, .jsonl or .parquet.")],
    claims: Annotated[
        list[str], typer.Argument(metavar="CLAIM", help='Such as "b raises acc by at least 0.01" (repeatable).')
    ],
    *,
    baseline: Annotated[str | None, typer.Option(metavar="ARM", help="The first row's arm unless given.")] = None,
    alpha: Annotated[float, typer.Option(min=0.001, max=0.1, help="The error rate over all claims (Holm).")] = 0.05,
    pair: Annotated[bool, typer.Option("--pair/--no-pair", help="Pair runs by seed; else Welch's t.")] = True,
    arm_column: Annotated[str | None, typer.Option(metavar="COLUMN", help="Guessed unless given.")] = None,
    seed_column: Annotated[str | None, typer.Option(metavar="COLUMN", help="Guessed unless given.")] = None,
    step_column: Annotated[str | None, typer.Option(metavar="COLUMN", help="Guessed unless given.")] = None,
    run_pattern: Annotated[
        str | None, typer.Option(help='Of a W&B panel: arm and seed in a run\'s name, "{variant}-{seed}".')
    ] = None,
) -> Result:
    """Test claims on a table of results, without a registration.

    The paired test of a study on the last step of every run. What others promised is unknown to a table, so the result
    is exploratory and says so; nothing is registered, logged or written. Reads wide tables, long rows (metric, value)
    and the panel export of W&B. Ends with 3 if a claim is inconclusive.

    Example:  ablate judge results.csv "b raises acc by at least 0.01"
    """
    from ablate.frame import LABEL, judge_frame

    # Without a workspace: nothing of a project is read, and nothing is written.
    judged = judge_frame(
        file,
        claims,
        baseline=baseline,
        alpha=alpha,
        test="paired_t" if pair else "welch",
        arm=arm_column,
        seed=seed_column,
        step=step_column,
        run_pattern=run_pattern,
    )
    facts = {
        "status": judged.status,
        "label": LABEL,
        "findings": [finding.model_dump(mode="json") for finding in judged.judged],
    }
    # One is enough, as in a study whose rule needs every claim.
    inconclusive = any(finding.outcome == "inconclusive" for finding in judged.judged)
    return Result(facts, lambda: [str(judged)], exit=Exit.INCONCLUSIVE if inconclusive else Exit.OK)


@command(interrupted="no model was exported")
def export_model_command(
    workspace: Workspace,
    study: StudyFile,
    run: Annotated[str, typer.Argument(metavar="ARM/SEED", help="A run of a decided study, such as layernorm/1.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
) -> Result:
    """Export a trained model to Hugging Face transformers.

    Writes model.safetensors, config.json and the tokenizer, for AutoModelForCausalLM.from_pretrained(FOLDER): a GPT-2,
    Llama or Qwen3 that computes what was trained. A model that none of them computes is refused, and its field named.

    Example:  ablate export-model studies/positions.yaml rope/1 rope-1
    """
    from ablate.exporting import export_model as write

    files = write(study, run, folder, workspace=workspace)
    return Result({"files": files}, lambda: [f"wrote {path}" for path in files])
