"""Pinned files of a user's own trainer, for one run: its code as a private copy, its data where it lies.

    run folder / code     the root as the trainer sees it, while the run lives

Each pinned file of the code lies in the copy under its path from the root, written from bytes that were hashed in the
copy itself: what is exchanged under the root afterwards is not what runs. Next to these files lie links to whatever
else the root has there, so that paths relative to a script lead where they always led; none inside a folder that
`code:` names, none to `__pycache__`, and none to a module that would be imported in place of a pinned one. So no
bytecode that somebody left is taken for that of a pinned file. Of an arm that is a commit the copy holds the commit's
files and nothing else of the root (`CommittedCopy`). A process that may write under the root may write in the
copy too: a change that is undone before the run ends shows nowhere.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from prereg.commits.layout import changed_file, damaged, lay_out
from prereg.commits.objects import Repository
from prereg.commits.pins import CommitPin
from prereg.errors import RegistrationError, RunError
from prereg.registry.canon import sha256_file
from prereg.registry.plan import CommandSpec
from prereg.study.command import ScriptPin, script_of

_MODULES = (".py", ".pyc", ".pyd", ".so")
SETTLED_NS = 2 * 10**9
"""A file that was touched less long ago may be touched again within what its file system calls the same moment."""


@dataclass
class Hashed:
    """Hashes of large files, kept while their inode, size and times stay as they are. Only for one process.

    Data files may be many gigabytes and are hashed before and after each run. Code is hashed anew every time.
    """

    known: dict[tuple[str, int, int, int, int, int], str] = field(default_factory=dict)

    def sha256(self, path: Path) -> str:
        """The hash of a file. Raises `OSError`."""
        status = path.stat()
        # ctime is set by the kernel alone: who restores mtime after a change still moves it.
        key = (str(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if key not in self.known:
            sha256 = sha256_file(path)
            if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < SETTLED_NS:
                return sha256  # its times could be those of what is written next
            self.known[key] = sha256
        return self.known[key]


def require_registered_files(
    root: Path, pins: Iterable[ScriptPin], hashed: Callable[[Path], str] = sha256_file
) -> None:
    """The files under the root are the registered ones. Raises `RunError` naming the first that is not.

    Called before the trainer starts, on its private copy, and after it has ended, on the root. A file that was changed
    for the time of a run alone is found by neither, and by the copy's own hashes (`PrivateCopy.require_unchanged`).
    """
    for pin in pins:
        path = root / pin.path
        if not path.is_file() or hashed(path) != pin.sha256:
            raise _other(pin, "the file that was registered", "restore it, or amend the study")


def _other(pin: ScriptPin, than: str, fix: str) -> RunError:
    return RunError(f"{pin.path} is not {than}", required=f"sha256 {pin.sha256}", fix=fix)


def private_copy(root: Path, spec: CommandSpec, place: Path) -> PrivateCopy:
    """The code of one run, in a folder of its own: of the commit of its arm, or else of the root."""
    return (PrivateCopy if spec.commit is None else CommittedCopy)(root, spec, place)


@dataclass(frozen=True)
class PrivateCopy:
    """The code of one run, in a folder of its own."""

    root: Path
    spec: CommandSpec
    place: Path

    def lay_out(self) -> None:
        """Copy and link, in place of whatever an earlier attempt left. Raises `RunError` for bytes that differ."""
        self.remove()  # of a killed attempt; what cannot be removed makes mkdir fail
        self.place.mkdir()
        for pin in self.spec.scripts:
            copy = self.place / pin.path
            copy.parent.mkdir(parents=True, exist_ok=True)
            try:
                # Copied and then hashed in the copy: hashed under the root, a file could change before it is copied.
                shutil.copyfile(self.root / pin.path, copy)
                # Readable and startable, as under the root, and written by nobody.
                copy.chmod(stat.S_IMODE((self.root / pin.path).stat().st_mode) & 0o555)
            except FileNotFoundError:
                pass  # said below
        require_registered_files(self.place, self.spec.scripts)
        # Folder -> names of the pinned modules in it, which nothing that is linked there may shadow.
        stems: dict[PurePosixPath, set[str]] = {}
        for path in map(PurePosixPath, (pin.path for pin in self.spec.scripts)):
            stems.setdefault(path.parent, set()).add(path.stem)
        # Every folder of the copy on the way to a pinned file lacks what lies next to it under the root: linked level
        # by level.
        for folder in set(stems).union(*(inner.parents for inner in stems)):
            self._link_others(folder, stems.get(folder, set()))
        self._link_data()

    def _link_data(self) -> None:
        for pin in self.spec.data_files:
            read = self.place / pin.path
            if not read.exists():
                read.parent.mkdir(parents=True, exist_ok=True)
                read.symlink_to(self.root / pin.path)

    def require_unchanged(self) -> None:
        """Every file of the copy still has the registered bytes. Raises `RunError` naming the one that has not."""
        for pin in self.spec.scripts:
            copy = self.place / pin.path
            if copy.is_symlink() or not copy.is_file() or sha256_file(copy) != pin.sha256:
                than = "the registered file in the run's own copy, since the run began"
                raise _other(pin, than, "a trainer that leaves its own code alone")

    def require_source_unchanged(self) -> None:
        """What the copy was made from is still what was registered. Raises `RunError` naming a file that is not."""
        require_registered_files(self.root, self.spec.scripts)

    def remove(self) -> None:
        """Nothing of it is left, or what cannot be removed: then the next attempt says so."""
        shutil.rmtree(self.place, ignore_errors=True)

    def word(self, word: str) -> str:
        """A word of the command: the place of a pinned file that it names, else unchanged."""
        path = script_of(self.root, word)
        name = "" if path is None else path.relative_to(self.root).as_posix()
        if any(pin.path == name for pin in self.spec.scripts):
            return str(self.place / name)
        return str(path) if any(pin.path == name for pin in self.spec.data_files) else word

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Variables under which Python imports from the copy, and finds no bytecode for it but its own."""
        # PYTHONPYCACHEPREFIX would have bytecode for the copy looked up in a shared folder.
        variables = {name: value for name, value in inherited.items() if name != "PYTHONPYCACHEPREFIX"}
        if "PYTHONPATH" in variables:
            variables["PYTHONPATH"] = os.pathsep.join(map(self._moved, variables["PYTHONPATH"].split(os.pathsep)))
        return variables

    def _moved(self, entry: str) -> str:
        """A folder under the root as the copy has it, where it holds pinned code."""
        path = Path(os.path.normpath(entry)) if entry else Path()
        if not path.is_absolute() or not path.is_relative_to(self.root):
            return entry
        inside = PurePosixPath(path.relative_to(self.root).as_posix())
        holds = any(inside in PurePosixPath(pin.path).parents for pin in self.spec.scripts)
        return str(self.place / inside) if holds else entry

    def _link_others(self, folder: PurePosixPath, pinned: set[str]) -> None:
        """Link what lies in a folder of the root next to its pinned files, given by their names without endings."""
        here = self.place / folder
        code_paths = {PurePosixPath(name) for name in self.spec.code}
        in_pinned_folder = bool(code_paths & {folder, *folder.parents})
        for entry in os.scandir(self.root / folder):
            inside = folder / entry.name
            if (
                entry.name.startswith("__pycache__")
                or (in_pinned_folder and not entry.name.startswith("."))
                or inside in code_paths
            ):
                continue
            # train.so or a package train/ would be imported in place of the pinned train.py.
            module = entry.name.endswith(_MODULES) or Path(entry.path, "__init__.py").exists()
            if (module and entry.name.partition(".")[0] in pinned) or os.path.lexists(here / entry.name):
                continue
            (here / entry.name).symlink_to(entry.path)


@dataclass(frozen=True)
class CommittedCopy(PrivateCopy):
    """The code of one run whose arm is a commit: the files of that commit, and next to them only what `data:` names.

    Nothing else of the root is linked: it is that of the working tree, and of no arm. Python finds the commit's modules
    before any other of their names, also where the project is installed from the working tree.
    """

    def lay_out(self) -> None:
        """Write the commit's files, in place of whatever an earlier attempt left. Raises `RunError` where one is not
        to be had as it was registered."""
        pin = self._pin
        self.remove()  # of a killed attempt; what cannot be removed makes mkdir fail
        self.place.mkdir()
        try:
            repository = Repository.around(self.root)
            if repository is None:
                raise RunError(f"{self.root} lies in no git repository", required=f"one that has commit {pin.commit}")
            file = lay_out(repository, pin, self.place)
            if file is not None:
                raise RunError(
                    next(damaged(repository, pin), f"{file.path} of commit {pin.short} is not to be had"),
                    required=f"{file.path} of commit {pin.commit}, sha256 {file.sha256}",
                    fix="git fetch --all --tags; git fsck; or amend the study",
                )
        except RegistrationError as error:
            raise RunError(error.found, required=error.required, fix=error.fix) from None
        self._link_data()

    def require_unchanged(self) -> None:
        """Every file of the copy still has the registered bytes. Raises `RunError` naming the one that has not."""
        file = changed_file(self._pin, self.place)
        if file is not None:
            than = "the file of its commit in the run's own copy, since the run began"
            raise _other(
                ScriptPin(path=file.path, sha256=file.sha256), than, "a trainer that leaves its own code alone"
            )

    def require_source_unchanged(self) -> None:
        """Nothing to compare: a commit's hash is of its files."""

    def word(self, word: str) -> str:
        """A word of the command: the place of a file of the commit, or of the data, that it names, else unchanged."""
        name = _below(self.root, word)
        if self._pin.file(name) is not None:
            return str(self.place / name)
        return str(self.root / name) if any(pin.path == name for pin in self.spec.data_files) else word

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Variables under which Python imports from the copy alone."""
        variables = super().environment(inherited)
        # A project that is installed from the working tree (`pip install -e`) would come from there in every arm.
        # What is on PYTHONPATH comes before what is installed.
        folders = [self.place / "src", self.place]
        before = [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
        variables["PYTHONPATH"] = os.pathsep.join([*before, *(str(folder) for folder in folders if folder.is_dir())])
        return variables

    @property
    def _pin(self) -> CommitPin:
        assert self.spec.commit is not None, self.spec.run_id
        return self.spec.commit


def _below(root: Path, word: str) -> str:
    """The path from the root that a word names, whether or not anything is there; empty where it names none."""
    if not word or "\0" in word:
        return ""
    path = Path(os.path.normpath(root / word))
    return path.relative_to(root).as_posix() if path.is_relative_to(root) and path != root else ""
