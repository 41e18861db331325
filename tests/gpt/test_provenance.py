"""The hash of the code covers what a run executes: held against the modules that a real run loads and calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from conftest import House
from test_run import longer

import ablate as api
from ablate.judge.design import characteristics as design_room
from ablate.records import provenance
from ablate.records.provenance import code_hash, executed_files
from prereg.registry.plan import plan

ROOT = Path(provenance.__file__).resolve().parents[2]

WORKER = """
import sys
from ablate.runner.builtin.process import main
main()
files = [getattr(module, "__file__", None) or "" for name, module in sys.modules.items() if name != "__main__"]
open(sys.argv[1], "w").write("\\n".join(files))
"""


@pytest.mark.slow
def test_every_module_that_a_run_loads_is_hashed(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(design_room, "design", partial(design_room.design, n_sims=20))
    registration, _ = api.register(house.write(base=longer(2)))
    spec = plan(registration)[0].model_dump(mode="json")
    order = {"do": "run", "spec": spec, "folder": str(tmp_path / "run"), "study_folder": str(house.path)}
    order |= {"corpora": str(house.path / "data" / "corpora"), "root": str(house.path)}
    words = [sys.executable, "-c", WORKER, str(tmp_path / "files")]
    # Without a compiler on its path the worker takes torch's operators: compiling our own takes longer than all else.
    bare = os.environ | {"PATH": str(tmp_path)}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=bare) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        print(json.dumps(order), file=worker.stdin, flush=True)
        next(line for line in worker.stdout if '"event":"begun"' in line)
        print(json.dumps({"do": "noted"}), file=worker.stdin, flush=True)
        ended = next(line for line in worker.stdout if '"event":"ended"' in line)
        print(json.dumps({"do": "stop"}), file=worker.stdin, flush=True)
        worker.wait(60)
    assert json.loads(ended)["status"] == "done", ended
    files = map(Path, (tmp_path / "files").read_text().splitlines())
    ours = {file.relative_to(ROOT).as_posix() for file in files if file.is_relative_to(ROOT)}
    loaded = {file for file in ours if file.startswith(("ablate/", "prereg/")) and file.endswith(".py")}
    hashed = {file.relative_to(ROOT).as_posix() for file in executed_files()}
    assert {
        "ablate/records/store.py",
        "prereg/registry/plan.py",
        "prereg/study/sizes.py",
        "ablate/gpt/trainer.py",
    } <= loaded & hashed
    # Importing the package loads the functions of the chain, and no run calls one.
    ours = ("ablate", "ablate/notebook")
    assert all(file.rpartition("/")[0] in ours for file in loaded - hashed), loaded - hashed


@pytest.mark.parametrize(
    "file", ["ablate/records/store.py", "prereg/study/sizes.py", "prereg/registry/plan.py", "ablate/data/new.py"]
)
def test_a_changed_byte_of_any_of_them_is_another_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr(provenance, "SOURCE", tmp_path)
    for place in ("ablate/records/store.py", "prereg/study/sizes.py", "prereg/registry/plan.py", "prereg/seals/git.py"):
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
    for place in ("ablate/records/store.py", "prereg/study/sizes.py", "prereg/seals/git.py", "ablate/judge/x.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("one")
    who = ("-c", "user.name=x", "-c", "user.email=x@y")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "one")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    monkeypatch.setattr(provenance, "SOURCE", tmp_path)
    (tmp_path / changed).write_text("other")
    assert provenance.collect(threads=1).dirty is dirty
