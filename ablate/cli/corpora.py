"""The verbs of `ablate corpus`: training texts and token ids."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.options import AsJson, RootFolder, put, put_json, show
from prereg.errors import CorpusError, StudyError
from prereg.registry.paths import Root

if TYPE_CHECKING:
    from ablate.data.corpora import Library
    from ablate.data.repetition import Share
    from prereg.study.corpora import Manifest, Stored

HELD_OUT = 0.1
"""The share that `data.validation` holds out unless a study says otherwise."""


def corpus_list(root: RootFolder = None, as_json: AsJson = False) -> None:
    """List every corpus by name.

    Says whether it is here, and where.

    Example:  ablate corpus list
    """
    from ablate.reporting.summaries.run import corpora_section

    library = _library(root)
    rows = []
    for name in library.names():
        manifest = library.manifest(name)
        try:
            found = _found(library, manifest)
        except StudyError as error:
            found = "not here" if "is not here" in error.found else error.found
        rows.append((name, manifest.size_bytes, manifest.sha256, found, manifest.licence))
    if as_json:
        names = ("name", "size_bytes", "sha256", "found", "licence")
        return put_json(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
    show(corpora_section(rows))
    return None


def corpus_add(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")],
    file: Annotated[Path, typer.Argument(help="A UTF-8 text file, or a folder of shards of token ids.")],
    *,
    licence: Annotated[str, typer.Option(help="Licence or source, kept with the text.")] = "",
    validation: Annotated[Path | None, typer.Option(help="A validation text of its own.")] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Shards: entries of the vocabulary.")] = None,
    stored: Annotated[
        str | None, typer.Option(help="Shards: uint16 or uint32, if not as the vocabulary needs.")
    ] = None,
    byte_lengths: Annotated[
        Path | None, typer.Option(help="Shards: JSON list of the UTF-8 bytes of every entry, for bits per byte.")
    ] = None,
    root: RootFolder = None,
) -> None:
    """Add a local text, or a folder of token ids, under a name.

    A pinned name takes only its own text. Shards are files *.bin of little-endian ids, read in order of name, or
    folders train and validation of such files. Every byte is read and hashed; the shards stay where they are.

    Example:  ablate corpus add tinyshakespeare input.txt
    """
    library = _library(root)
    if file.is_dir():
        if validation is not None:
            raise CorpusError(
                f"--validation names a text, and {file} is a folder of shards",
                required="folders train and validation that hold the shards",
            )
        manifest = _add_shards(
            library, name, file, licence=licence, vocabulary=vocabulary, stored=stored, byte_lengths=byte_lengths
        )
        assert manifest.shards is not None, name
        count = f"{len(manifest.shards.files)} shards, {manifest.shards.tokens:,} tokens"
        put(f"added {name}: {count}, {manifest.size_bytes:,} bytes, sha256 {manifest.sha256}")
        return
    if not (vocabulary is None and stored is None and byte_lengths is None):
        raise CorpusError(
            f"{file} is no folder, and --vocabulary, --stored and --byte-lengths are for folders of shards",
            required="a folder of shards, or a text without these options",
        )
    manifest = library.add(name, file, licence=licence, held_out=validation)
    put(f"added {name}: {manifest.size_bytes:,} bytes, sha256 {manifest.sha256}")


def corpus_show(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")], root: RootFolder = None, as_json: AsJson = False
) -> None:
    """Show facts about a corpus.

    Files and hashes, size, and how much of it repeats itself: lines and paragraphs that occur earlier in it, and those
    of its validation part (its own, or the last tenth) that occur in the training part.

    Example:  ablate corpus show toy
    """
    from ablate.data.repetition import repetition_in

    library = _library(root)
    manifest = library.manifest(name)
    if as_json:
        repeated = repetition_in(library, name, "own" if manifest.own_validation else HELD_OUT)
        facts = {
            "found": _found(library, manifest),
            "repetition": repeated if isinstance(repeated, str) else asdict(repeated),
        }
        return put_json(json.dumps({**asdict(manifest), **facts}, indent=2))
    put(f"{name}: {manifest.size_bytes:,} bytes, sha256 {manifest.sha256}")
    put(f"licence: {manifest.licence or 'not stated'}")
    put(f"found: {_found(library, manifest)}")
    put(*(_stored_facts(manifest) if manifest.shards is not None else _text_facts(library, name)))
    return None


def corpus_fetch(name: Annotated[str, typer.Argument(help="Name of the corpus.")], root: RootFolder = None) -> None:
    """Download a corpus and check its sha256.

    From its public address, into data/corpora/.

    Example:  ablate corpus fetch tinyshakespeare
    """
    put(f"wrote {_library(root).fetch(name)}")


def _library(root: Path | None) -> Library:
    from ablate.data.corpora import Library

    return Library.of(Root.around(Path(), root).corpora)


def _found(library: Library, manifest: Manifest) -> str:
    from ablate.data.shards import open_shards

    if manifest.shards is None:
        return library.find(manifest.name, download=False).found
    open_shards(manifest, library.cache)
    return str(manifest.shards.folder)


def _add_shards(
    library: Library,
    name: str,
    folder: Path,
    *,
    licence: str,
    vocabulary: int | None,
    stored: str | None,
    byte_lengths: Path | None,
) -> Manifest:
    from ablate.data.corpora import require_name
    from ablate.data.shards import take_in

    require_name(name)
    if name in library.known or name == "toy":
        raise CorpusError(f"'{name}' is a text and takes no shards", required="another name")
    if vocabulary is None:
        raise CorpusError(
            f"{folder} is a folder of shards, and nothing says how many entries their vocabulary has",
            required="the size of the vocabulary that the ids are of",
            fix=f"ablate corpus add {name} {folder} --vocabulary 50257",
        )
    if stored not in (None, "uint16", "uint32"):
        raise CorpusError(f"--stored {stored}", required="uint16 or uint32")
    kind: Stored | None = "uint16" if stored == "uint16" else "uint32" if stored == "uint32" else None
    manifest = take_in(
        name, folder, library.cache, vocabulary=vocabulary, stored=kind, byte_lengths=byte_lengths, licence=licence
    )
    library.require_new(manifest, folder)
    library.keep(manifest)
    return manifest


def _text_facts(library: Library, name: str) -> list[str]:
    from ablate.data.repetition import repetition

    corpus = library.find(name, download=False)
    held, part = (
        (HELD_OUT, "its last tenth") if corpus.held_out is None else (corpus.held_out, "its own validation text")
    )
    found = repetition(corpus.text, held)
    texts = (corpus.text, corpus.held_out or "")
    files = [f"file: {file.name}, {file.size_bytes:,} bytes, sha256 {file.sha256}" for file in corpus.manifest.files]
    whole = f"characters: {sum(map(len, texts)):,}, {len(set().union(*texts)):,} different ones"
    lines = [*files, whole]
    for unit, inside, held_out in (
        ("lines", found.lines, found.held_out_lines),
        ("paragraphs", found.paragraphs, found.held_out_paragraphs),
    ):
        lines.append(f"repeated {unit}: {_share(inside)} occur earlier in the text, exactly alike")
        lines.append(f"held-out {unit}: {_share(held_out)} of {part} occur in the rest")
    if found.one_in > 1:
        lines.append(f"of repetition one in {found.one_in} different units was followed, chosen by its hash")
    return lines


def _stored_facts(manifest: Manifest) -> list[str]:
    from ablate.data.repetition import IDS_SHOW_NO_LINES

    shards = manifest.shards
    assert shards is not None, manifest.name
    lengths = "given: val/bits_per_byte is recorded" if shards.byte_lengths else "not given: no val/bits_per_byte"
    return [
        f"tokens: {shards.tokens:,} in {len(shards.files)} shards of {shards.stored}, vocabulary {shards.vocabulary:,}",
        f"bytes of each entry: {lengths}",
        *(f"shard: {file.name} ({file.role}), {file.tokens:,} tokens, sha256 {file.sha256}" for file in shards.files),
        f"repetition: {IDS_SHOW_NO_LINES}",
    ]


def _share(found: Share) -> str:
    return f"{found.repeated:,} of {found.units:,} ({100 * found.share:.2f}%)"
