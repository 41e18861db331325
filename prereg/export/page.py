"""The page beside the lock: written whenever a registration is, repaired when it lags behind, compared when in doubt.

The lock and the ledger are the registration; the page only says it. So it is written after both, a crash before it
loses nothing, and the next `register`, `amend` or `run` writes what is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from prereg.disk import write_whole
from prereg.errors import RegistrationError, Where
from prereg.export.markdown import markdown, wording_of
from prereg.export.source import registered_source
from prereg.root import Root

Standing = Literal["missing", "as the lock says", "other", "in other words"]


def keep_page(root: Root, name: str) -> Path | None:
    """Write the page of a registered study unless it stands already; none where nothing is registered."""
    page = _page(root, name)
    if page is None:
        return None
    path = root.page(name)
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


def compare_page(root: Root, name: str) -> tuple[Standing, int | None]:
    """How the page of a registered study stands to its lock, and the version of the words that it says it is in.

    A page in the words of another version cannot be compared: it may be old, and it may have been edited.
    """
    path, page = root.page(name), _page(root, name)
    assert page is not None, name
    if not path.is_file():
        return "missing", None
    found = path.read_bytes()
    if found == page:
        return "as the lock says", wording_of(page)
    version = wording_of(found)
    return ("other" if version in (None, wording_of(page)) else "in other words"), version


def _page(root: Root, name: str) -> bytes | None:
    source = registered_source(root, name)
    return None if source is None else markdown(source).encode()
