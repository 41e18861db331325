"""`ablate export-model`, for `transformers`; files of `report --as`, for a paper; the index of `report --all`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, get_args

from ablate.proving import recorded_run
from ablate.workspace import HERE, StudySource, Workspace, require_registered
from prereg.errors import CorpusError, EvidenceError, RunError, nearest
from prereg.registry.disk import write_whole

if TYPE_CHECKING:
    from ablate.judge.verdict import Decision
    from ablate.records.evidence import Evidence
    from ablate.reporting.context import ReportContext
    from ablate.reporting.document import Document
    from prereg.registry.ledger_entry import Entry
    from prereg.registry.registration import Registration

PAGES = {"html": "report.html", "markdown": "report.md"}
"""Forms of a report that the ledger binds to the decision, and their files."""


def export_model(study: StudySource, run: str, folder: Path, *, workspace: Workspace = HERE) -> tuple[Path, ...]:
    """Write the sealed weights of a run, ARM/SEED, with config.json and its tokenizer into a new folder.

    Returns the files. Raises `RunError` for a user's own trainer and for a folder that exists, `EvidenceError` before
    the decision, for weights that are not the sealed ones, and for a model that `transformers` has no architecture for.

        ablate.export_model("studies/norm.yaml", "rmsnorm/1", Path("models/rmsnorm"))
    """
    from safetensors.torch import load, save_file

    from ablate.data.reading import read_corpus
    from ablate.data.tokenizers import StoredVocabulary, library_json
    from ablate.gpt.export import transformers_model
    from ablate.records.store import RunFolder
    from prereg.registry.canon import sha256_bytes, sha256_file
    from prereg.registry.plan import RunSpec, newest_seals

    context = workspace.open(study)
    registration = require_registered(context)
    spec, record = recorded_run(context, registration, run)
    if not isinstance(spec, RunSpec):
        raise RunError(
            f"'{context.study.study}' brings its own trainer, which keeps its weights itself",
            required="a run of the built-in trainer",
        )
    entries = [entry for entry in context.ledger.entries() if entry.registration in registration.lineage]
    if not any(entry.event == "decided" for entry in entries):
        raise EvidenceError(
            f"'{context.study.study}' is not decided, and weights would show how the arms do",
            required="a decision first",
            fix=f"ablate decide {context.path}",
        )
    if folder.exists():
        raise RunError(f"{folder} exists", required="a folder that is not there yet", fix=f"{folder}-2")
    sealed = RunFolder(context.root.run(spec.study, spec.registration, spec.variant, spec.seed))
    # A run that was trained again has two seals: the newest counts.
    entry = newest_seals(entries, registration.runs_sha256).get((spec.variant, spec.seed))
    if entry is None or entry.run_sha256 != sha256_file(sealed.record_path):
        raise EvidenceError(
            f"{sealed.record_path} is not what the ledger sealed",
            required="the record of a run, byte for byte",
            fix=f"ablate verify {context.path}",
        )
    # The ledger vouches for run.json, and that for the weights; read once, so that what is hashed is what is exported.
    place = sealed.weights_path
    data = place.read_bytes() if place.is_file() else b""
    if sha256_bytes(data) != record.weights_sha256:
        raise EvidenceError(
            f"{place} is not what run.json sealed" if data else f"{place} is not there",
            required=f"sha256 {record.weights_sha256}",
            fix=f"ablate reproduce {context.path} --run {run} --keep FOLDER   (trains it again)",
        )
    config, weights = transformers_model(spec.config.model, load(data))
    made = {"study": spec.study, "registration": spec.registration, "arm": spec.variant, "seed": spec.seed}
    made["weights_sha256"] = str(record.weights_sha256)
    library = context.library
    tokenizer = read_corpus(library, spec.config.data, registered=spec.tokenizer).tokenizer
    # Weights without their tokenizer are no model: ids would mean other text than those of training.
    trained_with = (record.must_match or {}).get("tokenizer")
    if trained_with not in (None, tokenizer.sha256):
        raise CorpusError(
            f"the tokenizer of {run} is now another one (sha256 {tokenizer.sha256})",
            required=f"the one that it was trained with, sha256 {trained_with}",
            fix=f"ablate verify {context.path}   (names the corpus or the file that changed)",
        )
    texts = {"config.json": {**config, "ablate": made}}
    if not isinstance(tokenizer, StoredVocabulary):  # of stored ids nobody said what they mean
        texts["tokenizer.json"] = json.loads(library_json(tokenizer))
        texts["tokenizer_config.json"] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "model_max_length": spec.config.model.context,
        }
    # Filled next to its place and then renamed: nobody loads half a model.
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as made_in:
        complete = Path(made_in) / folder.name
        complete.mkdir()
        save_file(weights, complete / "model.safetensors", metadata={"format": "pt"})
        for name, content in texts.items():
            (complete / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        complete.rename(folder)
    return tuple(sorted(folder.iterdir()))


def known_forms(forms: Sequence[str]) -> list[str]:
    """The forms, each once; of `all`, every one. Raises `EvidenceError` for one that there is not.

    >>> known_forms(["latex", "csv", "csv"])
    ['latex', 'csv']
    """
    from ablate.reporting.exports.files import Export

    every = [*PAGES, *get_args(Export)]
    for form in forms:
        if form not in (*every, "all"):
            required = f"one of {', '.join([*every, 'all'])}"
            raise EvidenceError(f"a report as '{form}'", required=required, fix=nearest(form, every) or every[0])
    return every if "all" in forms else list(dict.fromkeys(forms))


def write_forms(folder: Path, text: ReportContext, document: Document, forms: Sequence[str]) -> tuple[Path, ...]:
    """Write the files of forms other than pages; the ledger does not hold them."""
    from ablate.reporting.exports.files import EXPORTS, export_files

    written = []
    for form in EXPORTS:  # in their own order, whatever order was typed
        for name, data in export_files(form, text, document) if form in forms else ():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
            written.append(path)
    return tuple(written)


def report_index(*, workspace: Workspace = HERE) -> tuple[Path, ...]:
    """Write reports/index.md, index.html, index.tex and studies.tex over all studies; returns the files.

    Judges nothing and logs nothing: effects are those of verdict files that the ledger vouches for.

    >>> [path.name for path in ablate.report_index()]
    ['index.md', 'index.html', 'index.tex', 'studies.tex']
    """
    from ablate.judge.overview import studies_of
    from ablate.reporting import html, markdown
    from ablate.reporting.exports.index import index_document, latex_index

    project = workspace.project
    studies = studies_of(project)
    # Four files of one document: text and table cannot tell different things.
    document = index_document(studies)
    texts = {"index.md": markdown.markdown_page(document), "index.html": html.html_page(document)}
    texts |= latex_index(document, studies)
    folder = project.path / "reports"
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        write_whole(folder / name, text.encode())
    return tuple(folder / name for name in texts)


def pages(text: ReportContext) -> dict[str, bytes]:
    """The two pages of a report, by file name. Writes nothing."""
    from ablate.reporting import html, markdown
    from ablate.reporting.document import compose

    document = compose(text)
    return {
        "report.md": markdown.render_markdown(text, document).encode(),
        "report.html": html.render_html(text, document).encode(),
    }


def report_context(registration: Registration, entry: Entry, decision: Decision, evidence: Evidence) -> ReportContext:
    """What the report of the decision of a ledger entry is written from."""
    from ablate.data import toy
    from ablate.reporting.context import ReportContext
    from prereg.registry.ledger_entry import DecidedEntry

    # The entropy rate of the toy's characters is a floor for every arm's loss where all arms read them one by one.
    corpus = registration.corpus
    reads_toy = corpus is not None and corpus.name == "toy" and registration.data is None
    floors = {"val/loss": toy.entropy_rate()} if reads_toy else {}
    return ReportContext(
        decision=decision,
        registration=registration,
        evidence=evidence,
        ledger_head=entry.sha256,
        floors=floors,
        generated_at=entry.at,
        claimed_before=entry.claimed_before if isinstance(entry, DecidedEntry) else None,
    )
