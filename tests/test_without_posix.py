"""Where the system has no POSIX file locks (Windows), what needs them says so by name, and the rest works."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import sys
sys.modules["fcntl"] = sys.modules["resource"] = None
from ablate.cli import main
sys.argv = ["ablate", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("command", "code"), [("check", 0), ("register", 2)])
def test_a_study_is_checked_and_what_needs_locks_is_refused(tmp_path: Path, command: str, code: int) -> None:
    (tmp_path / "studies").mkdir()
    study = shutil.copy(ROOT / "studies" / "quickstart.yaml", tmp_path / "studies")
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run([sys.executable, "-c", PROGRAM, command, study], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert ("POSIX" in done.stderr) == (code == 2) and "bug" not in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
