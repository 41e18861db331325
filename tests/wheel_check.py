"""Checks the wheel in an empty environment: `pip check`, then the first commands of a user.

    python tests/wheel_check.py [--extra gpt] PYTHON...     (make wheel-check)

For each interpreter, makes an environment outside the repository, installs the wheel and what it needs under
constraints.txt, prints the installed size, and goes from `ablate new` to a verified verdict. Removes what it made.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

from licenses import ROOT, closure, project

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def build(folder: Path) -> Path:
    """The wheel of this checkout, built from a copy of the files that it is made of."""
    for name in ("prereg", "ablate"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", folder / "dist", folder], check=True)
    [wheel] = (folder / "dist").glob("*.whl")
    return wheel


def linked(folder: Path, wheel: Path, *extras: str) -> Path:
    """The `ablate` of an environment with the wheel and, linked from this one, what it and its extras need alone."""
    venv.create(folder, with_pip=False, symlinks=True)
    [site] = folder.glob("lib/python3*/site-packages")
    packages = Path(sysconfig.get_path("purelib"))
    parts = project()
    for one in closure([*parts["core"], *(need for extra in extras for need in parts[extra])]).values():
        for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            if (packages / top).exists() and not (site / top).exists():
                (site / top).symlink_to(packages / top)
    subprocess.run([*PIP, "--python", folder / "bin" / "python", "install", "--no-deps", wheel], check=True)
    return folder / "bin" / "ablate"


def check_installed(program: Path) -> None:
    """Raises `CalledProcessError` where `pip check` finds a requirement of that environment that is not met."""
    python = program.parent / "python"
    own = (python.parent / "pip").exists()  # the pip of one Python can fail under a newer one
    subprocess.run([python, *PIP[1:], "check"] if own else [*PIP, "--python", python, "check"], check=True)


def call(ablate: Path, folder: Path, *words: str, code: int = 0) -> str:
    """What a command printed in a folder, with nothing of this checkout; another exit code is an assertion."""
    done = subprocess.run(
        [ablate, *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def own_trainer(ablate: Path, folder: Path) -> None:
    """A study of one's own script, from its template to a bundle that verifies."""
    call(ablate, folder, "new", "own", "--template", "command")
    for verb in ("check", "design", "run"):
        call(ablate, folder, verb, "studies/own.yaml")
    assert "use momentum" in call(ablate, folder, "decide", "studies/own.yaml")
    for words in (
        ("report", "studies/own.yaml"),
        ("verify",),
        ("bundle", "studies/own.yaml"),
        ("verify", "own.ablate.zip"),
    ):
        call(ablate, folder, *words)
    assert "use momentum" in (folder / "reports" / "own" / "report.html").read_text(encoding="utf-8")


def built_in(ablate: Path, folder: Path) -> None:
    """The quickstart, which is the template `gpt`, with fewer steps."""
    call(ablate, folder, "new", "first", "--template", "gpt")
    study = folder / "studies" / "first.yaml"
    text = study.read_text(encoding="utf-8")
    assert "steps: 120" in text
    study.write_text(text.replace("steps: 120", "steps: 40"), encoding="utf-8")
    for verb in ("check", "design", "run"):
        call(ablate, folder, verb, "studies/first.yaml")
    assert "fast improves validation loss by" in call(ablate, folder, "decide", "studies/first.yaml")
    call(ablate, folder, "verify")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("python", nargs="+")
    parser.add_argument("--extra", choices=["gpt"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build(Path(scratch) / "source")
        for python in given.python:
            environment = Path(scratch) / "environment"
            subprocess.run([python, "-m", "venv", environment], check=True)
            ablate = environment / "bin" / "ablate"
            needs = f"{wheel}[{given.extra}]" if given.extra else wheel
            pip = [environment / "bin" / "python", *PIP[1:]]
            empty = size(environment)
            subprocess.run([*pip, "install", "--constraint", ROOT / "constraints.txt", needs], check=True)
            check_installed(ablate)
            grown = size(environment) - empty
            for what in (own_trainer, *([built_in] if given.extra else ())):
                folder = Path(scratch) / what.__name__
                folder.mkdir()
                what(ablate, folder)
                shutil.rmtree(folder)
            version = call(environment / "bin" / "python", Path(scratch), "--version").strip()
            what = given.extra or "core"
            print(f"{version}, {what}: {grown / 1e9:.2f} GB installed, pip check clean, commands passed")
            shutil.rmtree(environment)


def size(folder: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


if __name__ == "__main__":
    main()
