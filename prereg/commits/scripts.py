"""Python files of a study's commits in a temporary folder, for as long as `ablate check` reads what they hand over."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from prereg.commits.layout import lay_out
from prereg.commits.pins import LINK, WORKTREE, CommitPin
from prereg.commits.resolve import repository_of, resolve

if TYPE_CHECKING:
    from prereg.registry.paths import Root
    from prereg.study.spec import Study


@contextmanager
def script_roots(study: Study, root: Root, registered: Mapping[str, CommitPin] | None = None) -> Iterator[list[Root]]:
    """A root for each commit of a study that holds its Python files.

    Of a working tree that is not registered it is the root itself. Raises `RegistrationError` for a commit that cannot
    be pinned.
    """
    # Nothing is kept in the repository by a mere reading of scripts.
    pins = resolve(study, root, registered, keeps=False)
    repository = repository_of(root, study)
    with tempfile.TemporaryDirectory(prefix="ablate-scripts-") as folder:
        places = []
        for name, pin in pins.items():
            place = Path(folder, pin.commit)
            # Its commit was made of objects that are gone again; the files lie in the root as they are.
            if name == WORKTREE and not repository.has(pin.commit):
                places.append(root)
                continue
            # Two names may mean one commit.
            if not place.is_dir():
                place.mkdir()
                python = (file for file in pin.files if file.path.endswith(".py") and file.mode != LINK)
                lay_out(repository, CommitPin.of(pin.commit, pin.tree, python), place)
            places.append(type(root)(place))
        yield places
