"""What the code gives to each generated page: for every `$name` of the page's template its Markdown."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import typer
from pydantic import BaseModel
from typer.cli import get_docs_for_click

from ablate import cli
from ablate.cli.options import Exit
from ablate.judge.audit.audit import rows as rows_of_checks
from ablate.judge.verdict import WORDS_OF, Decision
from ablate.records import imports, store
from ablate.records.outcome import MEANS_OF_COLUMNS
from ablate.records.rows import Row, TableLayout
from ablate.records.run_record import RunRecord
from ablate.runner.slurm import SlurmSettings
from ablate.verification.guide import KINDS
from ablate.verification.manifest import FORMAT, BundleManifest
from docs.generator.fields import NONE, Fields, Texts
from docs.generator.markdown import code, indented_block, sentence, table
from prereg.campaign.spec import Campaign
from prereg.frozen import field_texts
from prereg.metrics.catalogue import METRICS, SUITES, TASK_METRICS, TOKEN_CLASSES, Metric
from prereg.registry.amendments import AMENDMENT_EFFECTS
from prereg.registry.ledger_entry import ENTRY_KINDS, REPAIRS, Entry
from prereg.registry.registration import Registration
from prereg.rule.condition import CONDITIONS, DEEPEST, LONGEST, MEANS
from prereg.rule.rule import MOST_NAMES
from prereg.study.claim import CLAIMS
from prereg.study.conflicts import OF_BLOCKS, OF_CLAIMS, OF_SETTINGS, Conflict
from prereg.study.schema import json_schema
from prereg.study.spec import Study
from prereg.study.verbs import MEANS_OF_VERBS

Parts = Mapping[str, object]
ROOT = Path(__file__).resolve().parents[2]
MOST_CALLERS = 6
"""Files that are named as the callers of another."""


def checks() -> Parts:
    """Every check of the evidence, and what an amendment of each field touches."""
    effects = [
        (", ".join(map(code, row.fields)), row.said, "kept" if row.keeps_runs else "made anew", row.why)
        for row in AMENDMENT_EFFECTS
    ]
    return {
        "checks": table(("check", "what it looks at", "when it fails", "why"), rows_of_checks()),
        "fields": table(("field", "what is touched", "runs", "why"), effects),
    }


def conflicts() -> Parts:
    """Settings of a study that exclude each other."""

    def thing(text: str) -> str:
        return code(text) if ": " in text else text  # a setting, or a fact in words

    def listed(each: Iterable[Conflict]) -> str:
        cells = [(thing(row.this), thing(row.other), sentence(row.because), sentence(row.fix)) for row in each]
        return table(("this", "not with", "required", "for instance"), cells)

    return {"blocks": listed(OF_BLOCKS), "settings": listed(OF_SETTINGS), "claims": listed(OF_CLAIMS)}


def exit_codes() -> Parts:
    """How a command ends."""
    rows = [(f"**{int(ending)}**", ending.meaning, ending.of) for ending in sorted(Exit)]
    return {"codes": table(("code", "meaning", "of"), rows)}


def metrics() -> Parts:
    """Every metric, from the table in `prereg.metrics.catalogue`."""
    curves, of_tasks = ((*each.values(), *each.families) for each in (METRICS, TASK_METRICS))
    sections = []
    for name, suite in SUITES.items():
        about = suite.about[0].upper() + suite.about[1:]
        only = " It can only be measured at the last step." if suite.only_at_end else ""
        rows = _metrics(metric for metric in curves if metric.suite == name)
        sections.append(f"## {name}\n\n{about}. Its price: {suite.cost}.{only}\n\n{rows}")
    return {
        "classes": ", ".join(kind.replace("_", " ") for kind in TOKEN_CLASSES),
        "suites": "\n".join(sections),
        "items": _metrics((metric for metric in of_tasks if metric.suite == "items"), columns=4),
        "others": _metrics((metric for metric in of_tasks if metric.suite == "tasks"), columns=4),
    }


def _metrics(each: Iterable[Metric], columns: int = 6) -> str:
    """A table of metrics; the last two of its six columns say nothing of metrics of tasks."""
    head = ("metric", "unit", "better", "formula", "reference", "same bits")
    rows = [
        (code(metric.name), metric.unit or "-", metric.better, metric.definition, metric.reference or "-", same_bits)
        for metric in each
        for same_bits in ["yes" if metric.repeatable else "no"]
    ]
    return table(head[:columns], [row[:columns] for row in rows])


def study_file() -> Parts:
    """Every field of a study file."""
    schema = json_schema()
    needed = {name for name, field in Study.model_fields.items() if field.is_required()} - {*schema["required"]}
    unless = {("", name): "required, unless `components` writes it" for name in needed}
    unless["Hypothesis", "smallest"] = "required, unless the claim says it"
    return {"fields": Fields(schema, unless=unless).page()}


def campaign_file() -> Parts:
    """Every field of a campaign file."""
    return {"fields": Fields(Campaign.model_json_schema()).page()}


def rule() -> Parts:
    """The language of claims and of the decision rule."""
    return {
        "claim_grammar": CLAIMS.shown,
        "verbs": table(("verb", "claims that"), [(code(verb), text) for verb, text in MEANS_OF_VERBS.items()]),
        "rule_grammar": CONDITIONS.shown,
        "longest": f"{LONGEST:,}",
        "deepest": DEEPEST,
        "names": MOST_NAMES,
        "states": table(("question", "holds if"), [(code(question), text) for question, text in MEANS.items()]),
    }


def files() -> Parts:
    """Every file that ablate writes or reads, with its fields."""
    study = {"Study": "[the study](study-file.md), with every default filled in"}
    whose: dict[str, Any] = {"study": "study", "registration": "0" * 64, "variant": "arm", "seed": 1}
    run = RunRecord.model_construct(**whose)
    value, score = Row(1, "val/loss", 1.0), store.ItemScore("task", "item", "0" * 64, "metric", 1.0)
    bodies = [
        (code(str(kind.model_fields["event"].default)), code(kind.keys.get(field, field)), field_texts(kind)[field])
        for kind in ENTRY_KINDS
        for field in kind.model_fields
        if field not in Entry.model_fields
    ]
    events = [(code(str(kind.model_fields["event"].default)), kind.what_happened()) for kind in ENTRY_KINDS]
    return {
        "lock": _fields(Registration, "lock", study, left_out=("lock_sha256", "rewordings")),
        "ledger": _fields(Entry, "ledger"),
        "repairs": " or ".join(map(code, REPAIRS)),
        "events": table(("event", "what happened"), events),
        "bodies": table(("event", "field", "meaning"), bodies),
        "folder": indented_block(store.__doc__),
        "metrics": _columns(store.parquet_bytes(run, [value])),
        "items": _columns(store.items_bytes(run, [score])),
        "run": _fields(RunRecord, "run.json"),
        "verdict": _fields(Decision, "verdict.json"),
        "form": FORMAT,
        "members": table(("file", "what it is"), [(code(name.format(study="NAME")), text) for name, text in KINDS]),
        "manifest": _fields(BundleManifest, "MANIFEST.json"),
        "sources": indented_block(imports.__doc__),
        "made": _fields(imports.ImportManifest, "import manifest"),
        "mapping": _fields(TableLayout, "mapping"),
        "cluster": _fields(SlurmSettings, "cluster.yaml"),
    }


def _fields(model: type[BaseModel], file: str, elsewhere: Texts = NONE, left_out: Sequence[str] = ()) -> str:
    """The fields of one file; what is in the model and never in the file is left out."""
    schema: dict[str, Any] = model.model_json_schema(mode="validation")
    unwritten = {model: left_out} | ({**WORDS_OF} if model is Decision else {})
    for part, names in unwritten.items():
        properties = (schema if part is model else schema["$defs"][part.__name__])["properties"]
        for name in names:
            del properties[name]
    return Fields(schema, elsewhere, prefix=f"{file}: ").page()


def _columns(data: bytes) -> str:
    """The columns of a table, from one that was written."""
    columns = pq.read_schema(io.BytesIO(data))
    cells = [(code(column.name), str(column.type), MEANS_OF_COLUMNS[column.name]) for column in columns]
    return table(("column", "type", "meaning"), cells)


def options() -> Parts:
    """Every command with its arguments and options, as `--help` says them, by typer's own writer of documentation."""
    texts = []
    for words, command in commands():
        context = typer.Context(command, info_name=words)
        text = get_docs_for_click(obj=command, ctx=context, name=words, call_prefix="ablate", indent=1)
        texts.append(re.sub(r"(?s)Example: +(.*?)\n\n\*\*Usage", r"```sh\n\1\n```\n\n**Usage", text).strip() + "\n")
    return {"commands": "\n".join(texts)}


def commands(group: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command by the words that call it, in the order of `ablate --help`."""
    group = group or typer.main.get_command(cli.app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


def modules() -> Parts:
    """Every module of the product by folder, with the first sentence of its docstring; in `ablate/` also its verbs."""
    rows_by_folder: dict[str, list[tuple[str, ...]]] = {}
    for path in sorted(path for folder in ("prereg", "ablate") for path in (ROOT / folder).rglob("*.py")):
        folder = path.parent.relative_to(ROOT).as_posix()
        if about := ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "":
            paragraph = " ".join(about.split("\n\n", maxsplit=1)[0].split())
            first_sentence = re.split(r"(?<=[.?])\s", paragraph, maxsplit=1)[0].rstrip(":.")
            verb = (_verbs_by_file().get(path.name, "-"),) if folder == "ablate" else ()
            rows_by_folder.setdefault(folder, []).append(
                (code(path.name), *verb, first_sentence if first_sentence.endswith("?") else f"{first_sentence}.")
            )
    tables = []
    for folder, rows in rows_by_folder.items():
        head = ("module", "verb", "about") if folder == "ablate" else ("module", "about")
        tables.append(f"## {folder}\n\n{table(head, rows)}")
    return {"folders": "\n".join(tables)}


@cache
def _verbs_by_file() -> Mapping[str, str]:
    """File of `ablate/` -> the commands whose functions import it; where more files of the folder do, these too."""
    code_by_name: dict[str, ast.FunctionDef | ast.ClassDef] = {}  # functions and classes of the command line
    names_by_module: dict[str, dict[str, str]] = {}  # the dotted name that a word there means
    for path in (ROOT / "ablate" / "cli").glob("*.py"):
        tree, module = ast.parse(path.read_text(encoding="utf-8")), f"ablate.cli.{path.stem}"
        own = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        code_by_name |= {f"{module}.{name}": node for name, node in own.items()}
        names_by_module[module] = {name.rpartition(".")[2]: name for name in _imports(tree)}
        names_by_module[module] |= {name: f"{module}.{name}" for name in own}
    verbs_by_file: dict[str, list[str]] = {}
    every_command = [("", command) for panel in cli.PANELS.values() for command in panel]
    for group, command in (*every_command, *(("corpus ", command) for command in cli.CORPUS)):
        reached = [f"{command.verb.__module__}.{command.verb.__name__}"]
        for name in reached:  # grows while it is read: each function, and what it calls
            meant = names_by_module[name.rpartition(".")[0]]
            called = {meant.get(node.id, "") for node in ast.walk(code_by_name[name]) if isinstance(node, ast.Name)}
            reached += sorted(called.intersection(code_by_name).difference(reached))
        for file in sorted({file for name in reached for file in _files_of_ablate(code_by_name[name])}):
            verbs_by_file.setdefault(file, []).append(code(f"{group}{command.name}"))
    callers_by_file: dict[str, list[str]] = {}
    for path in sorted((ROOT / "ablate").glob("[!_]*.py")):
        for file in _files_of_ablate(ast.parse(path.read_text(encoding="utf-8"))):
            callers_by_file.setdefault(file, []).append(code(path.name))
    cells: dict[str, str] = {}
    for file in verbs_by_file.keys() | callers_by_file.keys():
        verbs, callers = verbs_by_file.get(file, []), callers_by_file.get(file, [])
        through = f"through {', '.join(callers) if len(callers) <= MOST_CALLERS else 'most of these'}"
        # A file that commands call themselves is theirs, although others may use a function of it, too.
        cells[file] = "; ".join(
            [*([", ".join(verbs)] if verbs else []), *([through] if len(callers) > len(verbs) else [])]
        )
    return cells


def _imports(tree: ast.AST) -> Iterator[str]:
    """The dotted names that a piece of code takes from modules, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _files_of_ablate(tree: ast.AST) -> set[str]:
    """The files of `ablate/` itself that a piece of code imports from, by name."""
    parts = [name.split(".") for name in _imports(tree)]
    return {
        f"{words[1]}.py" for words in parts if words[0] == "ablate" and (ROOT / "ablate" / f"{words[1]}.py").is_file()
    }
