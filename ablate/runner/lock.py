"""One `ablate run` of a study at a time: the lock that says so, and who holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from prereg.errors import RunError
from prereg.registry.paths import Root


@contextmanager
def study_lock(root: Root, study: str) -> Iterator[None]:
    """Hold a study for one `ablate run`. The kernel lets go of it however the process ends."""
    folder = root.path / "data" / "runs" / study
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{folder} cannot be written: {error.strerror}",
            required="a writable data/runs folder",
            fix=f"ls -ld {root.path / 'data'}   (or use --root)",
        ) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            stream.seek(0)
            holder = stream.read().strip() or "unknown"
            raise RunError(
                f"'{study}' is being run by another process (pid {holder})",
                required="one run of a study at a time",
                fix=f"wait for it, or: ablate status {root.study(study)}",
            ) from error
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield
