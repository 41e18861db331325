"""`prereg` by itself: what docs/prereg.md says of it, in an environment with what that page installs and no more."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from licenses import ROOT, closure
from own_trainer import OwnHouse, own_document

import prereg
from prereg.registry.paths import Root

PAGE = (ROOT / "docs" / "prereg.md").read_text(encoding="utf-8")
HEAVY = ("torch", "numpy", "pandas", "scipy", "pyarrow", "typer", "rich", "ablate")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel, without what it requires, and the packages of the page."""
    folder = tmp_path_factory.mktemp("alone")
    for name in ("prereg", "ablate"):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=folder / "source", check=True, capture_output=True)
    venv.create(folder / "env", with_pip=False, symlinks=True)
    [site] = (folder / "env").glob("lib/python3*/site-packages")
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    [named] = re.findall(r"^pip install (pydantic .*)$", PAGE, re.MULTILINE)
    for one in closure(named.split()).values():
        for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(one.locate_file(top))))
    return folder / "env" / "bin" / "python"


def call(python: Path, folder: Path, code: str) -> str:
    done = subprocess.run([python, "-I", "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_example_of_the_page_runs_without_the_heavy_packages(python: Path, tmp_path: Path) -> None:
    files = re.findall(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for name, text in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    [example] = re.findall(r"^```python\n(from pathlib.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    absent = f"import importlib.util as u\nassert not any(map(u.find_spec, {HEAVY[:-1]}))\n"
    loaded = f"import sys\nassert not set(sys.modules) & set({HEAVY})\n"
    said = call(python, tmp_path, absent + example + loaded)
    assert "['strong', 'weak'] val/loss" in said
    assert "['fit.py']" in said
    assert "'penalty' is not what was registered" in said
    assert {path.name for path in (tmp_path / "studies").iterdir()} >= {
        "penalty.lock.json",
        "penalty.registration.md",
        "ledger.jsonl",
    }


def test_what_was_changed_is_named_and_the_rest_is_unchanged(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path)
    path = house.write(own_document())
    registration, entry = prereg.register(path)
    assert entry.lock_sha256 == registration.lock_sha256
    assert prereg.register(path) == (registration, entry), "nothing is registered twice"
    checked = prereg.verify(path)
    assert checked.intact
    assert checked.head == entry.sha256
    [script] = registration.scripts or ()
    places = {
        "study and lock": (path, Root(tmp_path).lock(registration.study.study), tmp_path / script.path),
        "registration in words": (Root(tmp_path).page(registration.study.study),),
        "chain": (Root(tmp_path).ledger,),
    }
    for what, files in places.items():
        for file in files:
            kept = file.read_bytes()
            file.write_bytes(kept.replace(b"a", b"e", 1))
            assert what in {one.what for one in prereg.verify(path).items if one.faults}, file
            file.write_bytes(kept)
    assert prereg.verify(root=tmp_path).intact


def test_an_amendment_names_its_reason_and_what_was_known(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path)
    path = house.write(own_document())
    first, _ = prereg.register(path)
    house.write(own_document(seeds=[1, 2, 3, 4, 5, 6, 7]))
    before = Root(tmp_path).ledger.read_bytes()
    with pytest.raises(prereg.StudyError, match="not what was registered"):
        prereg.register(path)
    assert Root(tmp_path).ledger.read_bytes() == before
    second, entry = prereg.amend(path, reason="more seeds", evidence="runs started")
    assert (second.previous, entry.reason, entry.evidence) == (
        first.sha256,
        "more seeds",
        "runs started",
    )
    assert prereg.verify(path).intact


def test_a_study_of_the_built_in_trainer_is_left_to_ablate(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    path = tmp_path / "studies" / "quickstart.yaml"
    shutil.copy(ROOT / "studies" / "quickstart.yaml", path)
    with pytest.raises(prereg.StudyError, match="ablate itself"):
        prereg.register(path)
    assert sorted(path.parent.iterdir()) == [path]


@pytest.mark.slow
def test_importing_the_package_loads_nothing_else(python: Path, tmp_path: Path) -> None:
    loaded = "import sys, prereg\nassert not [name for name in sys.modules if name.startswith(('prereg.', 'yaml'))]"
    call(python, tmp_path, loaded)
