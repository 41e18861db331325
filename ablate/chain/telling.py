"""The documents of a registration: AsPredicted, OSF, or the page, from the lock where there is one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ablate.chain.case import open_case, require_registered

if TYPE_CHECKING:
    from prereg.documents.source import Source

FormName = Literal["aspredicted", "osf", "markdown"]


@dataclass(frozen=True)
class Document:
    """A document, and what a person must still add."""

    text: str
    draft: bool
    """Whether the study is not registered."""
    blanks: tuple[str, ...]
    """Titles of the fields that are left to a person."""


def export(path: str | Path, *, form: FormName, root: Path | None = None, as_json: bool = False) -> Document:
    """Tell a registration, or an unregistered study as a draft. A study that changed since is refused."""
    from prereg.documents.forms import aspredicted, osf
    from prereg.documents.page import markdown, sections
    from prereg.documents.source import status
    from prereg.escape import json_visible

    source = _source(Path(path), root)
    if form == "markdown":
        told = {"status": status(source)} | sections(source)
        text = json_visible(json.dumps(told, indent=2, ensure_ascii=False)) + "\n" if as_json else markdown(source)
        return Document(text, source.draft, ())
    filled = {"aspredicted": aspredicted, "osf": osf}[form](source)
    blanks = tuple(field.title for field in filled.fields if field.blank)
    return Document(filled.json() if as_json else filled.markdown(), source.draft, blanks)


def save(text: str, path: Path) -> None:
    """Write a document; a file that says something else is left alone, for it may hold a person's answers."""
    from prereg.errors import StudyFileError, Where
    from prereg.registry.disk import write_whole

    if path.exists() and (not path.is_file() or path.read_bytes() != text.encode()):
        raise StudyFileError(
            "this file is there already and says something else",
            required="a new file: answers that somebody filled in are not written over",
            fix=f"--out {path.with_stem(path.stem + '-2')}, or move the file away",
            where=Where(file=path),
        )
    write_whole(path, text.encode())


def _source(path: Path, root: Path | None) -> Source:
    from prereg.documents.source import Source, registered_source
    from prereg.registry.registration import load_registration

    case = open_case(path, root)
    if load_registration(case.root, case.study.study) is None:
        return Source(case.study)
    require_registered(case)
    source = registered_source(case.root, case.study.study)
    assert source is not None, case.study.study
    return source
