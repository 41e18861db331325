"""Commands of `ablate corpus`: list, show, add and fetch training texts and token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ablate.cli.command import Result, Shown, command
from ablate.workspace import Workspace
from prereg.errors import CorpusError, StudyError

if TYPE_CHECKING:
    from ablate.data.corpora import Library
    from ablate.data.repetition import RepetitionCounts, Share
    from prereg.study.corpora import Manifest, Shards

HELD_OUT = 0.1
"""The share that `data.validation` holds out unless a study says otherwise."""


@command()
def list_command(workspace: Workspace) -> Result:
    """List every corpus by name.

    Says whether it is here, and where.

    Example:  ablate corpus list
    """
    library = _library(workspace)
    rows = []
    for name in library.names():
        manifest = library.manifest(name)
        try:
            place = _place(library, manifest)
        except StudyError as error:
            # The message of an absent corpus says where it was looked for, too much for a table; any other fault is
            # shown as it is.
            place = "not here" if "is not here" in error.found else error.found
        rows.append((name, manifest.size_bytes, manifest.sha256, place, manifest.licence))

    def text() -> Sequence[Shown]:
        from ablate.reporting.summaries.run import corpora_section

        return [corpora_section(rows)]

    names = ("name", "size_bytes", "sha256", "found", "licence")
    return Result([dict(zip(names, row, strict=True)) for row in rows], text)


@command(interrupted="the corpus was not added")
def add_command(
    workspace: Workspace,
    name: Annotated[str, typer.Argument(help="Name of the corpus.")],
    file: Annotated[Path, typer.Argument(help="A UTF-8 text file, or a folder of shards of token ids.")],
    *,
    licence: Annotated[str, typer.Option(help="Licence or source, kept with the text.")] = "",
    validation: Annotated[Path | None, typer.Option(help="A validation text of its own.")] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Shards: entries of the vocabulary.")] = None,
    stored: Annotated[
        Literal["uint16", "uint32"] | None,
        typer.Option(help="Shards: how ids are stored, if not as the vocabulary needs."),
    ] = None,
    byte_lengths: Annotated[
        Path | None, typer.Option(help="Shards: JSON list of the UTF-8 bytes of every entry, for bits per byte.")
    ] = None,
) -> Result:
    """Add a local text, or a folder of token ids, under a name.

    A pinned name takes only its own text. Shards are files *.bin of little-endian ids, read in order of name, or
    folders train and validation of such files. Every byte is read and hashed; the shards stay where they are.

    Example:  ablate corpus add tinyshakespeare input.txt
    """
    library = _library(workspace)
    if not file.is_dir():
        # A text: its tokenizer is the study's affair, and what is said of ids here would be ignored.
        if not (vocabulary is None and stored is None and byte_lengths is None):
            raise CorpusError(
                f"{file} is no folder, and --vocabulary, --stored and --byte-lengths are for folders of shards",
                required="a folder of shards, or a text without these options",
            )
        manifest = library.add(name, file, licence=licence, held_out=validation)
        return _added(manifest, f"{manifest.size_bytes:,} bytes, sha256 {manifest.sha256}")
    if validation is not None:
        raise CorpusError(
            f"--validation names a text, and {file} is a folder of shards",
            required="folders train and validation that hold the shards",
        )
    from ablate.data.corpora import require_name
    from ablate.data.shards import take_in

    # Shards: read and hashed where they lie. The name must be free before that, which may take minutes.
    require_name(name)
    if name in library.known or name == "toy":
        raise CorpusError(f"'{name}' is a text and takes no shards", required="another name")
    if vocabulary is None:
        raise CorpusError(
            f"{file} is a folder of shards, and nothing says how many entries their vocabulary has",
            required="the size of the vocabulary that the ids are of",
            fix=f"ablate corpus add {name} {file} --vocabulary 50257",
        )
    manifest = take_in(
        name, file, library.cache, vocabulary=vocabulary, stored=stored, byte_lengths=byte_lengths, licence=licence
    )
    library.require_new(manifest, file)  # the manifest last: by it the name is known
    library.keep(manifest)
    assert manifest.shards is not None, name
    count = f"{len(manifest.shards.files)} shards, {manifest.shards.tokens:,} tokens"
    return _added(manifest, f"{count}, {manifest.size_bytes:,} bytes, sha256 {manifest.sha256}")


def _added(manifest: Manifest, size: str) -> Result:
    return Result(manifest, lambda: [f"added {manifest.name}: {size}"])


@command()
def show_command(workspace: Workspace, name: Annotated[str, typer.Argument(help="Name of the corpus.")]) -> Result:
    """Show facts about a corpus.

    Files and hashes, size, and how much of it repeats itself: lines and paragraphs that occur earlier in it, and those
    of its validation part (its own, or the last tenth) that occur in the training part.

    Example:  ablate corpus show toy
    """
    from ablate.data.repetition import repetition_in

    library = _library(workspace)
    manifest = library.manifest(name)
    # Verified, and refused if it is not what it was, before anything is said of it.
    place = _place(library, manifest)
    repetition = repetition_in(library, name, "own" if manifest.own_validation else HELD_OUT)

    def text() -> Iterator[str]:
        yield f"{name}: {manifest.size_bytes:,} bytes, sha256 {manifest.sha256}"
        yield f"licence: {manifest.licence or 'not stated'}"
        yield f"found: {place}"
        yield from _stored_facts(manifest.shards) if manifest.shards is not None else _text_facts(library, name)
        yield from _repetition_facts(repetition, own=manifest.own_validation)

    return Result({**asdict(manifest), "found": place, "repetition": repetition}, text)


@command(interrupted="the corpus was not added")
def fetch_command(workspace: Workspace, name: Annotated[str, typer.Argument(help="Name of the corpus.")]) -> Result:
    """Download a corpus and check its sha256.

    From its public address, into data/corpora/.

    Example:  ablate corpus fetch tinyshakespeare
    """
    path = _library(workspace).fetch(name)
    return Result({"wrote": path}, lambda: [f"wrote {path}"])


def _library(workspace: Workspace) -> Library:
    from ablate.data.corpora import Library

    return Library.of(workspace.project.corpora)


def _place(library: Library, manifest: Manifest) -> str:
    """Where a corpus lies. Raises `CorpusError` where it is not here, or not what it was."""
    from ablate.data.shards import open_shards

    if manifest.shards is None:
        return library.find(manifest.name, download=False).found
    open_shards(manifest, library.cache)  # hashes are checked, or known from the cache
    return str(manifest.shards.folder)


def _text_facts(library: Library, name: str) -> Iterator[str]:
    corpus = library.find(name, download=False)
    texts = (corpus.text, corpus.held_out or "")  # characters of both, as tokenizers count them
    for file in corpus.manifest.files:
        yield f"file: {file.name}, {file.size_bytes:,} bytes, sha256 {file.sha256}"
    yield f"characters: {sum(map(len, texts)):,}, {len(set().union(*texts)):,} different ones"


def _stored_facts(shards: Shards) -> Iterator[str]:
    lengths = "given: val/bits_per_byte is recorded" if shards.byte_lengths else "not given: no val/bits_per_byte"
    files = f"{len(shards.files)} shards of {shards.stored}"
    yield f"tokens: {shards.tokens:,} in {files}, vocabulary {shards.vocabulary:,}"
    yield f"bytes of each entry: {lengths}"
    for file in shards.files:
        yield f"shard: {file.name} ({file.role}), {file.tokens:,} tokens, sha256 {file.sha256}"


def _repetition_facts(repetition: RepetitionCounts | str, *, own: bool) -> Iterator[str]:
    if isinstance(repetition, str):
        yield f"repetition: {repetition}"
        return
    held_out = "its own validation text" if own else "its last tenth"
    for unit, inside, across in (
        ("lines", repetition.lines, repetition.held_out_lines),
        ("paragraphs", repetition.paragraphs, repetition.held_out_paragraphs),
    ):
        yield f"repeated {unit}: {_share(inside)} occur earlier in the text, exactly alike"
        yield f"held-out {unit}: {_share(across)} of {held_out} occur in the rest"
    if repetition.one_in > 1:
        yield f"of repetition one in {repetition.one_in} different units was followed, chosen by its hash"


def _share(share: Share) -> str:
    return f"{share.repeated:,} of {share.units:,} ({100 * share.share:.2f}%)"
