"""The hash of the code covers what a run executes: held against the modules that a real run loads and calls."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from conftest import House
from test_run import longer

import ablate as api
from ablate.gpt.main import Paths, RunJob
from ablate.judge.design import characteristics as design_room
from ablate.records import provenance
from ablate.records.provenance import code_hash, executed_files
from prereg.registry.plan import RunSpec, plan

ROOT = Path(provenance.__file__).resolve().parents[2]

RUN = """
import os, sys
from ablate.gpt.main import main
from ablate.records.store import RunFolder
from ablate.runner import pool
from ablate.runner.process import held, make_run, queue_attempt
status = main(os.environ)
files = [getattr(module, "__file__", None) or "" for name, module in sys.modules.items() if name != "__main__"]
open(sys.argv[1], "w").write("\\n".join(files))
sys.exit(status)
"""


@pytest.mark.slow
def test_every_module_that_a_run_loads_is_hashed(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(design_room, "simulate_design", partial(design_room.simulate_design, n_sims=20))
    registration, _ = api.register(house.write(base=longer(2)))
    spec, home = plan(registration)[0], tmp_path / "run"
    assert isinstance(spec, RunSpec)
    home.mkdir()
    paths = {"root": house.path, "corpora": house.path / "data" / "corpora"}
    job = RunJob.model_validate(spec.model_dump() | {"paths": Paths(**paths)})
    (tmp_path / "config.json").write_text(job.model_dump_json())
    # Without a compiler on its path the trainer takes torch's operators: compiling takes longer than all else.
    bare = os.environ | {"PATH": str(tmp_path), "ABLATE_RUN_DIR": str(home)}
    bare |= {"ABLATE_CONFIG": str(tmp_path / "config.json"), "ABLATE_ATTEMPT": "1"}
    words = [sys.executable, "-c", RUN, str(tmp_path / "files")]
    done = subprocess.run(words, env=bare, capture_output=True, text=True, check=False, cwd=home)
    assert done.returncode == 0, done.stderr
    files = map(Path, (tmp_path / "files").read_text().splitlines())
    ours = {file.relative_to(ROOT).as_posix() for file in files if file.is_relative_to(ROOT)}
    loaded = {file for file in ours if file.startswith(("ablate/", "prereg/")) and file.endswith(".py")}
    hashed = {file.relative_to(ROOT).as_posix() for file in executed_files()}
    assert {
        "ablate/records/store.py",
        "prereg/registry/plan.py",
        "prereg/study/training.py",
        "ablate/gpt/trainer.py",
    } <= loaded & hashed
    # Importing the package loads the functions of the chain, and no run calls one.
    ours = ("ablate", "ablate/notebook")
    assert all(file.rpartition("/")[0] in ours for file in loaded - hashed), loaded - hashed


@pytest.mark.parametrize(
    "file", ["ablate/records/store.py", "prereg/study/training.py", "prereg/registry/plan.py", "ablate/data/new.py"]
)
def test_a_changed_byte_of_any_of_them_is_another_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr(provenance, "SOURCE", tmp_path)
    places = ("ablate/records/store.py", "prereg/study/training.py", "prereg/registry/plan.py", "prereg/seals/git.py")
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(b"one")
    before = code_hash.__wrapped__()
    (tmp_path / "prereg/seals/git.py").write_bytes(b"other")
    assert code_hash.__wrapped__() == before
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_bytes(b"other")
    assert code_hash.__wrapped__() != before


@pytest.mark.parametrize(
    ("changed", "dirty"),
    [("ablate/records/store.py", True), ("ablate/judge/x.py", False), ("prereg/seals/git.py", False)],
)
def test_the_dirty_check_asks_git_about_the_same_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, dirty: bool
) -> None:
    for place in ("ablate/records/store.py", "prereg/study/training.py", "prereg/seals/git.py", "ablate/judge/x.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("one")
    who = ("-c", "user.name=x", "-c", "user.email=x@y")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "one")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    monkeypatch.setattr(provenance, "SOURCE", tmp_path)
    (tmp_path / changed).write_text("other")
    assert provenance.current_provenance(threads=1).dirty is dirty
