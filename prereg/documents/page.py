"""Registration page `studies/NAME.registration.md`, next to the lock, which can be read without the tool.

It follows from the lock and from the ledger's entries of this registration, byte for byte, so that `ablate verify` can
tell a page that was edited. Its text is in `templates/registration.md`.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Literal

from prereg.documents.facts import StudyFacts, registered_facts
from prereg.documents.sentences import paragraphs, rendered
from prereg.errors import RegistrationError, Where
from prereg.registry.disk import write_whole
from prereg.registry.paths import Root


def markdown(facts: StudyFacts) -> str:
    """The page."""
    return "\n\n".join(paragraphs(rendered("registration.md", facts))) + "\n"


def sections(facts: StudyFacts) -> dict[str, str]:
    """Title -> text of every section that has something to say."""
    # No text of a study begins a line with a mark of a heading: what it brings is escaped.
    _, *parts = markdown(facts).rpartition("\n\n---\n\n")[0].split("\n\n## ")
    return dict(part.split("\n\n", 1) for part in parts)


Standing = Literal["missing", "as the lock says", "other", "of another version"]


def keep_page(root: Root, name: str) -> Path | None:
    """Write the page of a registered study unless it is written already; none where nothing is registered."""
    page = _page(root, name)
    if page is None:
        return None
    path = root.page(name)
    # An unchanged page is not written again, and keeps its time of change for version control.
    if not path.is_file() or path.read_bytes() != page:
        try:
            write_whole(path, page)
        except OSError as error:
            raise RegistrationError(
                f"'{name}' is registered, and its page cannot be written: {error.strerror}",
                required=f"a folder with room that can be written to: {path.parent}",
                fix=f"ablate register {root.study(name)}   (registers nothing twice, and writes the page)",
                where=Where(file=path),
            ) from None
    return path


def compare_page(root: Root, name: str) -> Standing:
    """How the page of a registered study relates to its lock.

    What another version wrote, as the lock says, is not compared: it may be in other words, or have been edited.
    """
    path, facts = root.page(name), registered_facts(root, name)
    assert facts is not None and facts.registration is not None, name
    if not path.is_file():
        return "missing"
    # Byte for byte first: whatever version wrote it, equal bytes are right.
    if path.read_bytes() == markdown(facts).encode():
        return "as the lock says"
    return "other" if facts.registration.tool.get("ablate") == version("ablate-prereg") else "of another version"


def _page(root: Root, name: str) -> bytes | None:
    facts = registered_facts(root, name)
    return None if facts is None else markdown(facts).encode()
