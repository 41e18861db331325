"""With what a run was made: source, versions, device. No host name, no user name, no path."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ablate.records.run_record import SINGLE, Provenance
from prereg.canon import sha256_bytes, sha256_of

# Everything that can move a number of a run. Reports and the judge may change without touching a run.
_MOVES_NUMBERS = (
    "ablate/gpt",
    "ablate/measure",
    "ablate/harness",
    "ablate/run/serving.py",
    "ablate/run/worker.py",
    "ablate/run/equipment.py",
    "ablate/run/text.py",
    "ablate/run/one_run.py",
    "ablate/run/single.py",
    "ablate/run/observing.py",
    "ablate/run/follower.py",
    "ablate/run/cohort.py",
    "prereg/training.py",
    "prereg/metrics.py",
)
NOT_STATED = "not stated"
_SOURCE = Path(__file__).resolve().parents[2]


@cache
def code_hash() -> str:
    """sha256 over the source files that can move a number of a run."""
    files: dict[str, str] = {}
    for place in _MOVES_NUMBERS:
        path = _SOURCE / place
        for file in (
            sorted(f for f in path.rglob("*") if f.suffix in (".py", ".cpp", ".h")) if path.is_dir() else [path]
        ):
            files[file.relative_to(_SOURCE).as_posix()] = sha256_bytes(file.read_bytes())
    return sha256_of(files)


def collect(
    *, threads: int, device: str = "cpu", paths: str = "", layout: str = SINGLE, lacking: str = ""
) -> Provenance:
    """The provenance of a run made by this process."""
    commit = _git("rev-parse", "HEAD")
    status = _git("status", "--porcelain", "--", *_MOVES_NUMBERS) if commit else None
    return Provenance(
        code=code_hash(),
        commit=commit,
        dirty=None if status is None else bool(status),
        python=platform.python_version(),
        torch=version("torch"),
        numpy=version("numpy"),
        platform=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        device=device,
        threads=threads,
        paths=paths,
        layout=layout,
        lacking=lacking,
    )


MOVES_BITS = ("code", "python", "torch", "numpy", "platform", "processor", "device", "threads", "paths", "layout")
"""The parts of a provenance that may move the last bit of a step."""


def differing(one: Provenance, other: Provenance) -> tuple[str, ...]:
    """The parts in which two runs differ that may move a bit; none where both would take a step to the same bits."""
    return tuple(part for part in MOVES_BITS if getattr(one, part) != getattr(other, part))


def made_with(provenance: Provenance) -> str:
    """A hash of the parts of a provenance that may move a bit: equal where `differing` finds nothing."""
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
        processor=_processor(),
        device=NOT_STATED,
        threads=0,
    )


def tool_versions() -> dict[str, str]:
    """Versions that a registration keeps."""
    names = ("torch", "numpy", "scipy", "pydantic")
    return {"ablate": version("ablate-prereg"), "python": platform.python_version(), **{n: version(n) for n in names}}


@cache
def _git(*words: str) -> str | None:
    """Output of a git command about the tool's own source tree, or none where there is no such tree."""
    if not (_SOURCE / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(_SOURCE), *words],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
