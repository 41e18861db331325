"""Files written so that a crash leaves the old one or the new one; locks (`flock`), and removal."""

from __future__ import annotations

import atexit
import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, BinaryIO

from prereg.errors import UnsupportedError, missing_posix

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)
"""What locking fails with on a file system that has no locks."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a write fails with where the disk, or a share of it, is full."""
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}


def open_regular(path: Path) -> BinaryIO:
    """A regular file, open for reading. Anything else raises an `OSError` that says what it is, without waiting."""
    # O_NONBLOCK: opening a FIFO would otherwise wait for a writer. The flags are not there on Windows.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    # Of the open file and not of the path, which may name another one by now.
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'no file')}, not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a regular file. Raises an `OSError` for anything else, and for more bytes than `most`."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, and {most:,} are the most", str(path))
        return stream.read(size)


def _nothing() -> None:
    """Do nothing: between the writing of a file and its renaming."""


def write_whole(path: Path, data: bytes, *, earlier: Path | None = None, before: Callable[[], None] = _nothing) -> None:
    """Replace a file atomically and durably: temporary file, fsync, rename, fsync of the folder.

    The file that is replaced is kept under the name `earlier`, if one is given, in place of what that was. At no moment
    are both gone, and between the two renames only `earlier` is there. `before` is called when all bytes are on the
    disk, before the first rename.
    """
    _write(path, data, earlier=earlier, before=before)


def write_passing(path: Path, data: bytes, *, before: Callable[[], None] = _nothing) -> None:
    """Replace a file atomically, not durably: for what means nothing once the machine has gone down."""
    _write(path, data, earlier=None, before=before, durable=False)


def write_in_turn(files: Sequence[tuple[Path, bytes]]) -> None:
    """Replace files of one folder, each atomically and the later ones never without the earlier, and all durably."""
    written: list[tuple[Path, Path]] = []
    try:
        # All are filled before the first is renamed: a full disk then leaves every old file in its place.
        for path, data in files:
            written.append((temporary := _temporary(path), path))
            _fill(temporary, data, durable=True)
        for temporary, path in written:
            temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)
        raise _named(error, path) from None


def _write(path: Path, data: bytes, *, earlier: Path | None, before: Callable[[], None], durable: bool = True) -> None:
    temporary = _temporary(path)
    try:
        _fill(temporary, data, durable=durable)
        before()
        # Two renames: between them the file has only its earlier name, and a reader must look for both.
        if earlier is not None and path.exists():
            move(path, earlier)
        if durable:
            move(temporary, path)
        else:
            temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _named(error, path) from None


def _temporary(path: Path) -> Path:
    # The process id keeps two writers apart; a leftover of a killed one is overwritten or ignored.
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _fill(path: Path, data: bytes, *, durable: bool) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        if durable:
            os.fsync(stream.fileno())


def _named(error: OSError, path: Path) -> OSError:
    """The same error with the file's name: a write that fails carries none, or that of a temporary file."""
    return OSError(error.errno, error.strerror, str(path)) if error.errno else error


def move(source: Path, target: Path) -> None:
    """Rename within a folder, durably."""
    source.replace(target)
    sync_folder(target.parent)


def write_from(path: Path, position: int, data: bytes, *, durable: bool = True) -> None:
    """Cut a file back to a position and write on from there. What fails halfway is cut back again.

    What is not written durably outlives this process all the same, though not a loss of power.
    """
    # A file that is new needs its folder synced too, or the name is lost with power.
    new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.ftruncate(descriptor, position)
        os.lseek(descriptor, position, os.SEEK_SET)
        # os.write may write less than it was handed, on a full disk above all.
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        if durable:
            os.fsync(descriptor)
    except OSError as error:
        os.ftruncate(descriptor, position)
        raise _named(error, path) from None
    finally:
        os.close(descriptor)
    if new:
        sync_folder(path.parent)


def create_whole(path: Path, data: bytes) -> bool:
    """Create a file with its content, unless there is one; of several processes, on any machine, one succeeds.

    Returns whether this one did. The folder must be there.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        _fill(temporary, data, durable=True)
        # A hard link fails where the name exists, on NFS too; O_EXCL has not always done so there.
        with suppress(FileExistsError):
            os.link(temporary, path)
        # Over a network the answer to a link that succeeded may be lost, and the repeated request then fails.
        return temporary.stat().st_nlink == 2
    except OSError as error:
        raise _named(error, path) from None
    finally:
        temporary.unlink(missing_ok=True)


def posix_locks() -> Any:
    """The module of file locks. Raises `UnsupportedError` where the system has none (Windows)."""
    try:
        import fcntl
    except ModuleNotFoundError:
        raise missing_posix("file locks (fcntl)") from None
    return fcntl


def has_posix_locks() -> bool:
    """Whether the system has file locks. Windows has none of this kind."""
    try:
        posix_locks()
    except UnsupportedError:
        return False
    return True


def flock(file: int | IO[Any], *, shared: bool = False, wait: bool = True) -> None:
    """Lock an open file until it is closed. Raises `BlockingIOError` where another holds it and `wait` is false, and
    `UnsupportedError` where the system or the file system has no such locks."""
    fcntl = posix_locks()
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise _without_locks(file) from None
        raise


def _without_locks(file: int | IO[Any]) -> UnsupportedError:
    place = "a temporary folder" if isinstance(file, int) else Path(file.name).parent
    return UnsupportedError(
        f"{place} lies on a file system without locks (flock)",
        required="locks: without them two processes might make one run, or write one ledger",
        fix="mount it with locks (NFS: without nolock; Lustre: with flock), or put the repository elsewhere",
    )


def open_locked(path: Path) -> IO[str]:
    """A file for reading and writing, locked until it is closed; created with its folders where it is not there.

    Raises `BlockingIOError` where another process holds it, `UnsupportedError` where there are no locks, and `OSError`
    where it cannot be created. Without locks nothing that was created for it is left.
    """
    # Innermost first: what is created here, to be removed again where there are no locks.
    new = [*takewhile(lambda place: not place.exists(), (path, *path.parents))]
    posix_locks()  # before anything is created
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = path.open("a+", encoding="utf-8")
    try:
        flock(stream, wait=False)
    except UnsupportedError:
        stream.close()
        for place in new:
            place.unlink() if place == path else place.rmdir()
        raise
    except BaseException:
        stream.close()
        raise
    return stream


def is_locked(path: Path) -> bool:
    """Whether another process holds the lock of a file. Asks without creating or waiting for anything."""
    try:
        with path.open("rb") as stream:
            flock(stream, shared=True, wait=False)
    except BlockingIOError:
        return True
    except (OSError, UnsupportedError):
        return False
    return False


def sync_folder(folder: Path) -> None:
    """Make the folder's own entries durable: a new name is not on disk before this. Windows opens no folder."""
    # Windows.
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


MARK = ".ablate-scratch"
"""The file that is locked. A folder without it is none of ours, whatever its name."""

_held: dict[Path, tuple[int, int | None]] = {}
"""This process' folders: its number, which a forked child does not share, and the descriptor that holds the lock."""


def make(kind: str) -> Path:
    """A new folder that only this user may enter. Call `remove` when done with it."""
    sweep()
    while True:
        # mkdtemp gives the folder mode 0700: nobody else may look into a stranger's unpacked bundle.
        path = Path(tempfile.mkdtemp(prefix=f"ablate-{kind}-"))
        mark = path / MARK
        descriptor = os.open(mark, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            flock(descriptor)
        except (OSError, UnsupportedError):
            # A file system, or a system, without locks: unmarked, no sweep removes it.
            os.close(descriptor)
            mark.unlink()
            _held[path] = os.getpid(), None
            return path
        if mark.exists():
            _held[path] = os.getpid(), descriptor
            return path
        os.close(descriptor)  # before it was locked, a sweep took it for one that was left


def remove(path: Path) -> None:
    """Remove a folder of this process, and all that is in it."""
    _, descriptor = _held.pop(path, (0, None))
    shutil.rmtree(path, ignore_errors=True)
    if descriptor is not None:
        os.close(descriptor)


@atexit.register
def remove_all() -> None:
    """Remove every folder that this process made: at its end, and before an end that runs no handlers."""
    for path, (process, _) in list(_held.items()):
        # A forked child has the list of its parent, whose folders are still in use.
        if process == os.getpid():
            remove(path)


@contextmanager
def scratch(kind: str) -> Iterator[Path]:
    """A folder for the while of a block."""
    path = make(kind)
    try:
        yield path
    finally:
        remove(path)


def sweep() -> None:
    """Remove what processes of this user that are no more have left. What cannot be identified or removed stays."""
    if not has_posix_locks():
        return  # no folder is marked there
    for mark in Path(tempfile.gettempdir()).glob(f"ablate-*/{MARK}"):
        with suppress(OSError):
            _remove_if_left(mark)


def _remove_if_left(mark: Path) -> None:
    if mark.parent in _held or not _mine(mark):
        return
    # Through no link: the temporary folder is everybody's, and a mark could point anywhere.
    descriptor = os.open(mark, os.O_RDWR | os.O_NOFOLLOW)
    try:
        # A lock that can be had means that its process has ended; BlockingIOError is an OSError, which `sweep`
        # passes over.
        flock(descriptor, wait=False)
        shutil.rmtree(mark.parent, ignore_errors=True)
    finally:
        os.close(descriptor)


def _mine(mark: Path) -> bool:
    """Whether folder and mark are what they should be, and of this user: others may write where they stand."""
    folder, file = mark.parent.lstat(), mark.lstat()
    return stat.S_ISDIR(folder.st_mode) and stat.S_ISREG(file.st_mode) and folder.st_uid == file.st_uid == os.getuid()
