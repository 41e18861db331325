"""Provenance of a run, with what it was made: source (`code_hash`), versions, device.

No host name, no user name, no path.
"""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ablate.records.run_record import Provenance
from prereg.errors import SealError
from prereg.git import ask_git
from prereg.registry.canon import sha256_bytes, sha256_of

# What a run executes, wing by wing, so that no list of modules can go stale: a test compares it with what a real run
# loads and calls. Left out are the judge, reports, and the verbs in `ablate` itself: importing the package loads some
# of them, and no run calls one.
_WINGS = ("ablate/data", "ablate/gpt", "ablate/evaluation", "ablate/records", "ablate/runner")
_REGISTRATION = (
    "prereg",
    "prereg/study",
    "prereg/study/designs",
    "prereg/rule",
    "prereg/metrics",
    "prereg/registry",
    "prereg/commits",
)
"""Without seals and documents, which are no part of a run."""
NOT_STATED = "not stated"
NOT_INSTALLED = "not installed"
SOURCE = Path(__file__).resolve().parents[2]
"""Where the packages lie: the source tree, or site-packages."""


def executed_files() -> tuple[Path, ...]:
    """The source files of every module that a run executes."""
    # Sorted, and wing by wing: the hash must not follow the order in which a file system lists files.
    within = (file for wing in _WINGS for file in (SOURCE / wing).rglob("*.py"))
    return (*sorted(within), *(file for wing in _REGISTRATION for file in sorted((SOURCE / wing).glob("*.py"))))


@cache
def code_hash() -> str:
    """sha256 over the source files of every module that a run executes."""
    return sha256_of(
        {file.relative_to(SOURCE).as_posix(): sha256_bytes(file.read_bytes()) for file in executed_files()}
    )


def current_provenance(*, threads: int, device: str = "cpu") -> Provenance:
    """The provenance of a run made by this process.

    `threads` are those of one run, `device` is a device class ("cpu", "NVIDIA H100"). What compiles its steps is stated
    by the trainer. The commit is of the source tree of ablate, None where it is installed as a wheel.

        >>> current_provenance(threads=1).device
        'cpu'
    """
    # Uncommitted changes count in what a run executes alone: an edited page of the documentation moves no bit.
    commit = _git(SOURCE, "rev-parse", "HEAD")
    status = (
        _git(SOURCE, "status", "--porcelain", "--", *_WINGS, *(f":(glob){wing}/*.py" for wing in _REGISTRATION))
        if commit
        else None
    )
    return Provenance(
        code=code_hash(),
        commit=commit,
        dirty=None if status is None else bool(status),
        python=platform.python_version(),
        torch=version("torch"),
        numpy=version("numpy"),
        platform=f"{platform.system()} {platform.machine()}",
        processor=processor_name(),
        device=device,
        threads=threads,
    )


MOVES_BITS = ("code", "python", "torch", "numpy", "platform", "processor", "device", "threads", "compiler")
"""The parts of a provenance that may move the last bit of a step."""


def differing(first: Provenance, second: Provenance) -> tuple[str, ...]:
    """The parts in which two runs differ that may move a bit; none where both would take a step to the same bits."""
    # `commit` and `dirty` are not among them: they are names of code, and `code` is the code.
    return tuple(part for part in MOVES_BITS if getattr(first, part) != getattr(second, part))


def made_with(provenance: Provenance) -> str:
    """A hash of the parts of a provenance that may move a bit: equal where `differing` finds nothing."""
    # Without the commit: a commit that touches no executed module is another name for the same code.
    return sha256_of([getattr(provenance, part) for part in MOVES_BITS])


def of_command(code: str) -> Provenance:
    """The provenance of a run of a user's own trainer. What only that trainer could tell is not guessed."""
    return Provenance(
        code=code,
        commit=None,
        dirty=None,
        python=NOT_STATED,
        torch=NOT_STATED,
        numpy=NOT_STATED,
        platform=f"{platform.system()} {platform.machine()}",
        processor=processor_name(),
        device=NOT_STATED,
        threads=0,
    )


def tool_versions() -> dict[str, str]:
    """Versions that a registration keeps; torch may not be installed where no built-in trainer runs."""
    versions = {"ablate": version("ablate-prereg"), "python": platform.python_version()}
    for name in ("torch", "numpy", "scipy", "pydantic"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = NOT_INSTALLED
    return versions


@cache
def _git(source: Path, *words: str) -> str | None:
    """Output of a git command about the tool's own source tree, or none where there is no such tree."""
    # A wheel in site-packages may lie below a user's repository, whose commit says nothing of this code.
    if not (source / ".git").exists():
        return None
    try:
        answer = ask_git(source, *words, seconds=10)
    except (OSError, SealError):
        return None
    return answer.output.decode("utf-8", "replace").strip() if answer.is_yes else None


@cache
def processor_name() -> str:
    """The processor's model. `platform.processor()` is empty or "x86_64" on Linux, which tells no two apart."""
    # Two models of one architecture can take different kernels, and so round differently.
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
