"""Paths: every file and folder of a project, each spelled once (`Root`).

The root is the folder that holds `studies/`. It is found upward from the study's own path, so the
tool works in any repository of studies. Nothing here touches the disk except `find`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from prereg.errors import StudyFileError, Where

_DEVICE = re.compile(r"(CON|PRN|AUX|NUL|COM[0-9]|LPT[0-9]) *(\..*)?", re.IGNORECASE)


def is_device(name: str) -> bool:
    """Whether Windows takes a file or folder of this name for a device, whatever its ending.

    >>> is_device("con"), is_device("AUX.yaml"), is_device("console")
    (True, True, False)
    """
    return _DEVICE.fullmatch(name) is not None


def resolved(path: Path) -> Path:
    """A path with its symbolic links followed. Raises `StudyFileError` where they are a loop, or no path is so long."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links is a RuntimeError before Python 3.13
        reason = error.strerror if isinstance(error, OSError) else str(error).partition(" from ")[0]
        raise StudyFileError(
            f"the path cannot be followed: {reason}",
            required="a path whose symbolic links lead to a file or a folder",
            fix=f"ls -l {path}   (shows where a link leads)",
            where=Where(file=path),
        ) from None


@dataclass(frozen=True)
class Root:
    """The folder that holds `studies/`, and the paths below it."""

    path: Path
    ledger_name: str = "ledger.jsonl"
    """Another name only where a bundle has been unpacked that holds a slice of its ledger."""
    runs_from: Path | None = None
    """Another root to read runs from: where committed evidence has been unpacked, because no run is here."""

    @classmethod
    def find(cls, study_file: Path, given: str | Path | None = None) -> Root:
        """The root of a study: the one given, else the nearest folder above the file that holds `studies/`."""
        if given is not None:
            given = Path(given)
            if not (given / "studies").is_dir():
                raise StudyFileError(
                    f"--root {given} holds no folder named 'studies'",
                    required="the folder that holds studies/",
                    fix=f"mkdir -p {given / 'studies'}",
                )
            return cls(resolved(given))
        # Links are followed first: the file's own repository counts, and not that of the link.
        for folder in resolved(study_file).parents:
            if (folder / "studies").is_dir():
                return cls(folder)
        raise StudyFileError(
            "this study is not in a folder named 'studies', nor next to one",
            required="a repository of studies: a folder with studies/NAME.yaml in it",
            fix=f"mkdir -p studies && mv {study_file} studies/",
            where=Where(file=study_file),
        )

    @classmethod
    def around(cls, folder: Path, given: str | Path | None = None) -> Root:
        """The root for a verb that names no study: the one given, else the nearest folder upward with `studies/`."""
        if given is not None:
            return cls.find(Path(given), given)
        begin = resolved(folder)
        for place in (begin, *begin.parents):
            if (place / "studies").is_dir():
                return cls(place)
        raise StudyFileError(
            f"neither {begin} nor a folder above it holds a folder named 'studies'",
            required="a repository of studies",
            fix="cd to one, use --root FOLDER, or begin one: ablate new NAME",
        )

    @property
    def studies(self) -> Path:
        return self.path / "studies"

    @property
    def ledger(self) -> Path:
        return self.studies / self.ledger_name

    @property
    def corpora(self) -> Path:
        return self.path / "data" / "corpora"

    def study(self, name: str) -> Path:
        return self.studies / f"{name}.yaml"

    def lock(self, name: str) -> Path:
        return self.studies / f"{name}.lock.json"

    def page(self, name: str) -> Path:
        """The registration in words."""
        return self.studies / f"{name}.registration.md"

    def seal(self, name: str, lock_sha256: str, suffix: str, number: int = 1) -> Path:
        """A seal of one lock, named by its bytes: an amendment keeps the seals of the lock it replaces.

        >>> Root(Path("work")).seal("width", "0123456789abcdef", ".sig", number=2).name
        'width.01234567.2.sig'
        """
        # The second signer's seal is NAME.HASH8.2.sig; the first has no number.
        again = "" if number == 1 else f".{number}"
        return self.studies / f"{name}.{lock_sha256[:8]}{again}{suffix}"

    @property
    def allowed_signers(self) -> Path:
        """Whose ssh keys are believed, in the format of ssh-keygen."""
        return self.studies / "allowed_signers"

    @property
    def timestamp_roots(self) -> Path:
        """The certificates, as PEM, of the time-stamping authorities that are believed."""
        return self.studies / "timestamp_roots.pem"

    def runs(self, name: str, registration: str) -> Path:
        """All runs made under one registration (the first eight hex digits of its sha256)."""
        return self.all_runs(name) / registration[:8]

    def all_runs(self, name: str) -> Path:
        """All runs made of a study, under any registration."""
        return (self.runs_from or self.path) / "data" / "runs" / name

    def run(self, name: str, registration: str, variant: str, seed: int) -> Path:
        return self.runs(name, registration) / variant / str(seed)

    def trial(self, name: str) -> Path:
        """The runs of the last trial of a study, which are no evidence."""
        return self.path / "data" / "try" / name

    def report(self, name: str) -> Path:
        return self.path / "reports" / name

    def evidence(self, name: str) -> Path:
        """The committed evidence of a decided study: a bundle without weights."""
        return self.report(name) / "evidence.ablate.zip"

    def relative(self, path: Path) -> str:
        """The name of a path below this root, or below the one that runs are read from; any other path as it is.

        >>> root = Root(Path("work"))
        >>> root.relative(Path("work/studies/width.yaml"))
        'studies/width.yaml'
        """
        # With slashes on every system, so that what is printed and written is the same on all.
        for folder in (self.runs_from, self.path):
            if folder is not None and path.is_relative_to(folder):
                return path.relative_to(folder).as_posix()
        return path.as_posix()

    def shortened(self, text: str) -> str:
        """A text that names paths, each without its root."""
        for folder in (self.runs_from, self.path):
            text = text if folder is None else text.replace(f"{folder}/", "")
        return text
