"""Checkout of a pinned commit: its files written into a folder, and which of them are other bytes now.

Bytes come from git's object store and are hashed before they are written: what somebody exchanged in the store since
the registration is not what runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from prereg.commits.objects import Repository, TreeEntry
from prereg.commits.pins import LINK, CommitPin, CommittedFile
from prereg.registry.canon import sha256_bytes, sha256_file


def read_files(repository: Repository, pin: CommitPin) -> Iterator[tuple[CommittedFile, bytes | None]]:
    """Every file of a pin with its bytes; none in place of bytes that are missing or are not those that were pinned.

    Raises `RegistrationError` where git cannot be asked.
    """
    # The sizes of the objects are not pinned: without them all are asked for at once, as registration limits them.
    entries = [TreeEntry(file.path, file.mode, file.blob, 0) for file in pin.files]
    for file, (_, data) in zip(pin.files, repository.blobs(entries), strict=True):
        yield file, data if data is not None and sha256_bytes(data) == file.sha256 else None


def damaged(repository: Repository, pin: CommitPin) -> Iterator[str]:
    """Yield what speaks against a pinned commit in its repository, a clause each; nothing where its files are whole.

    A commit that is gone is a fault only together with a file: after an amended message other commits hold its files.
    """
    lost = [file for file, data in read_files(repository, pin) if data is None]
    if lost and not repository.has(pin.commit):
        where = "this shallow clone" if repository.is_shallow else "this repository"
        yield f"commit {pin.short} is not in {where}"
    for file in lost:
        here = "is other bytes than" if repository.has(file.blob) else "is missing, which is"
        yield f"{file.path} of commit {pin.short}: object {file.blob[:12]} {here} the registered file"


def lay_out(repository: Repository, pin: CommitPin, folder: Path) -> CommittedFile | None:
    """Write the files of a pin below an empty folder; the first one whose bytes are not to be had, none where all were.

    Raises `OSError` where the folder takes no file.
    """
    for file, data in read_files(repository, pin):
        if data is None:
            return file
        place = folder / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.mode == LINK:
            place.symlink_to(os.fsdecode(data))
            continue
        with place.open("xb") as stream:
            stream.write(data)
        # Read-only: a script that writes next to itself would change the code that the next run is started
        # from.
        place.chmod(0o555 if file.mode == "100755" else 0o444)
    return None


def changed_file(pin: CommitPin, folder: Path) -> CommittedFile | None:
    """The first file of a pin that is not in a folder as it was laid out; none where all are."""
    return next((file for file in pin.files if not _is_there(file, folder / file.path)), None)


def _is_there(file: CommittedFile, place: Path) -> bool:
    if file.mode == LINK:
        return place.is_symlink() and sha256_bytes(os.fsencode(place.readlink())) == file.sha256
    return not place.is_symlink() and place.is_file() and sha256_file(place) == file.sha256
