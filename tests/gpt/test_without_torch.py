"""Without the extra `gpt` everything but the built-in trainer works, and what needs it says what to install."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import House
from wheel_check import build, check_installed, linked, own_trainer

import ablate as api

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and what its core needs alone."""
    return linked(tmp_path_factory.mktemp("environment"), build(tmp_path_factory.mktemp("source"))).with_name("python")


def ablate(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The result of a command of `ablate` in that environment."""
    environment = {"XDG_CACHE_HOME": str(folder / "cache"), "PATH": os.environ["PATH"]}
    return subprocess.run(
        [python, "-m", "ablate", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_environment_lacks_the_extra(python: Path) -> None:
    for package in ("torch", "tokenizers", "safetensors"):
        done = subprocess.run([python, "-c", f"import {package}"], capture_output=True, text=True, check=False)
        assert f"No module named '{package}'" in done.stderr
    check_installed(python)


def test_a_study_with_an_own_trainer_goes_from_its_template_to_a_bundle(python: Path, tmp_path: Path) -> None:
    own_trainer(python.with_name("ablate"), tmp_path)


def test_records_of_the_built_in_trainer_are_judged_and_verified(python: Path, decided: House, tmp_path: Path) -> None:
    folder = decided.copy(tmp_path / "tiny").path
    before = (folder / "reports" / "tiny" / "verdict.json").read_bytes()
    api.bundle(folder / "studies" / "tiny.yaml", out=folder / "tiny.ablate.zip")
    bundle = ablate(python, folder, "verify", "tiny.ablate.zip")
    assert bundle.returncode == 0, bundle
    decided = ablate(python, folder, "decide", "studies/tiny.yaml")
    assert decided.returncode in (0, 3), decided
    assert (folder / "reports" / "tiny" / "verdict.json").read_bytes() == before


@pytest.mark.parametrize("verb", ["register", "run"])
def test_the_built_in_trainer_names_the_extra_and_changes_nothing(python: Path, tmp_path: Path, verb: str) -> None:
    (tmp_path / "studies").mkdir()
    shutil.copy(ROOT / "studies" / "quickstart.yaml", tmp_path / "studies")
    done = ablate(python, tmp_path, verb, "studies/quickstart.yaml")
    assert done.returncode == 2, done
    assert "torch" in done.stderr and "ablate-prereg[gpt]" in done.stderr
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["quickstart.yaml"]


def test_a_command_that_finds_the_extra_missing_on_its_way_says_the_same(python: Path, tmp_path: Path) -> None:
    code = "from ablate import cli\ncli.application = lambda *_: lambda: __import__('torch')\ncli.main()"
    done = subprocess.run([python, "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "ablate-prereg[gpt]" in done.stderr, done
