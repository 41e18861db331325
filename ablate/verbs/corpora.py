"""The verbs of `ablate corpus`: texts that models read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.verbs.options import RootFolder, console
from prereg.errors import StudyError

if TYPE_CHECKING:
    from ablate.gpt.corpus import Library


def corpus_list(root: RootFolder = None) -> None:
    """List every corpus by name.

    Says whether it is here, and where.

    Example:  ablate corpus list
    """
    from ablate.report import console as told

    library = _library(root)
    rows = []
    for name in library.names():
        manifest = library.manifest(name)
        try:
            found = library.find(name, download=False).found
        except StudyError as error:
            found = "not here" if "is not here" in error.found else error.found
        rows.append((name, manifest.size_bytes, manifest.sha256, found, manifest.licence))
    told.print_corpora(console(), rows)


def corpus_add(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")],
    file: Annotated[Path, typer.Argument(help="A UTF-8 text file.")],
    licence: Annotated[str, typer.Option(help="Licence or source, kept beside the text.")] = "",
    root: RootFolder = None,
) -> None:
    """Take a local text in under a name.

    A pinned name takes only its own text.

    Example:  ablate corpus add tinyshakespeare input.txt
    """
    library = _library(root)
    manifest = library.add(name, file, licence=licence)
    print(f"added {name}: {manifest.size_bytes:,} bytes, sha256 {manifest.sha256}")


def corpus_fetch(name: Annotated[str, typer.Argument(help="Name of the corpus.")], root: RootFolder = None) -> None:
    """Download a corpus and check its sha256.

    From its public address, into data/corpora/.

    Example:  ablate corpus fetch tinyshakespeare
    """
    print(f"wrote {_library(root).fetch(name)}")


def _library(root: Path | None) -> Library:
    from ablate.gpt.corpus import Library
    from prereg.root import Root

    return Library.of(Root.around(Path(), root).corpora)
