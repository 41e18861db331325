"""Where the system lacks what only POSIX has (Windows), reading works, and what writes evidence is refused by name.

Simulated: modules and functions that Python lacks on Windows are taken away. Nothing here runs on Windows itself.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import House

import ablate as api

ROOT = Path(__file__).resolve().parents[2]
LACKING = """
import os, signal, subprocess, sys, tempfile
for name in ("fcntl", "resource", "pwd", "grp"):
    sys.modules[name] = None
for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "fork", "getuid", "geteuid", "getpgid", "killpg", "setsid",
             "pread", "pwrite", "fchmod", "chown", "mkfifo", "statvfs", "sysconf", "sched_getaffinity", "getloadavg"):
    delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2"):
    delattr(signal, name)
"""
PROGRAM = (
    LACKING
    + """
import contextlib, io, json
from ablate.cli import main
found = []
for words in json.loads(sys.argv[1]):
    sys.argv, out = ["ablate", *words], io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main()
        except SystemExit as ended:
            found.append((ended.code or 0, out.getvalue()))
print(json.dumps(found))
"""
)
WORKS = (
    "new other --template target",
    "check studies/other.yaml",
    "design studies/other.yaml",
    "check studies/tiny.yaml",
    "verify",
    "verify tiny.ablate.zip",
    "report tiny.ablate.zip",
    "plan studies/tiny.yaml --as osf",
    "status studies/tiny.yaml",
    "ledger",
)
REFUSED = tuple(f"{verb} studies/tiny.yaml" for verb in ("run", "try", "decide", "report"))
REFUSED += ("register studies/quickstart.yaml",)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_only_reads_works(decided: House, tmp_path: Path) -> None:
    folder = decided.copy(tmp_path / "tiny").path
    api.bundle(folder / "studies" / "tiny.yaml", out=folder / "tiny.ablate.zip")
    commands = [line.split() for line in WORKS]
    for words, (code, said) in zip(WORKS, without_posix(folder, commands), strict=True):
        assert code == 0, (words, said)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_adds_to_the_ledger_is_refused_and_changes_nothing(decided: House, tmp_path: Path) -> None:
    folder = decided.copy(tmp_path / "tiny").path
    shutil.copy(ROOT / "studies" / "quickstart.yaml", folder / "studies")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    commands = [line.split() for line in REFUSED]
    for words, (code, said) in zip(REFUSED, without_posix(folder, commands), strict=True):
        assert code == 2 and "POSIX" in said and "WSL" in said and "bug" not in said, (words, said)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def without_posix(folder: Path, commands: list[list[str]]) -> list[tuple[int, str]]:
    """Exit code and words of each command, in one process that lacks POSIX."""
    words = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [(code, said) for code, said in json.loads(done.stdout)]
