"""What runs is what was pinned: attacks on a user's own trainer with real children, and what honest ones may do."""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from conftest import tiny_document
from own_trainer import OwnHouse, own_document
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from ablate.judge.decide import decide as judge
from ablate.judge.design import characteristics as design_room
from ablate.records.gather import gather
from ablate.records.store import RunFolder
from ablate.runner import pinned as pinned_room
from ablate.runner.child import Started, start_program
from ablate.runner.pinned import Hashed
from ablate.runner.progress import PlainWatcher
from ablate.verification.bundle import gathered
from ablate.verification.verify import verify_target
from prereg.errors import RegistrationError, SpecError
from prereg.registry.history import past_registrations
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.registration import Registration, load_registration
from prereg.study.command import differing_files, pin_data, pin_scripts
from prereg.study.load import load_study
from prereg.study.spec import study_from_document

QUIET = PlainWatcher(StringIO())
RECORDS = """
import json
def record(value):
    with open("metrics.jsonl", "w") as out:
        for step in (1, 2):
            print(json.dumps({"step": step, "metric": "train/loss", "value": 3.0}), file=out)
        print(json.dumps({"step": 2, "metric": "val/loss", "value": value}), file=out)
"""
IMPORTS = RECORDS + "import lib\nrecord(lib.value)\n"
HONEST, EVIL = "value = 2.0\n", "value = 1.0\n"


@pytest.fixture
def house(own_house: OwnHouse) -> OwnHouse:
    own_house.script(IMPORTS)
    own_house.script(HONEST, "lib.py")
    return own_house


def value_of(house: OwnHouse, registration: Registration, **given: Any) -> float:
    """The val/loss that one run by a worker of this process sealed."""
    record, said = house.carry_out(registration, "slow", 1, **given)
    assert record.status == "done", said
    rows = RunFolder(house.run_folder("slow", 1)).sealed_rows()
    return next(row.value for row in rows if row.metric == "val/loss")


def test_a_script_exchanged_between_its_check_and_its_start_is_not_what_runs(
    house: OwnHouse,
) -> None:
    path = house.script(RECORDS + "record(2.0)\n")
    honest = path.read_bytes()

    def start_late(words: Sequence[str], home: Path, environment: Mapping[str, str]) -> Started:
        """Starts after the script was exchanged; it is back in its place before anybody looks again."""
        path.write_text(RECORDS + "record(1.0)\n")
        process = start_program(words, home, environment)
        while process.poll() is None:
            time.sleep(0.01)
        path.write_bytes(honest)
        return process

    assert value_of(house, house.register(), start=start_late) == 2.0


def test_a_module_exchanged_while_the_run_goes_on_is_not_what_is_imported(house: OwnHouse) -> None:
    waits = "import os, time\nopen('waiting', 'w').close()\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\n"
    house.script(waits + IMPORTS + "open('imported', 'w').close()\nwhile os.path.exists('go'):\n    time.sleep(0.01)\n")
    registration = house.register(code=["lib.py"])
    found: list[float] = []
    running = threading.Thread(target=lambda: found.append(value_of(house, registration)))
    running.start()
    work = house.path / "data/runs/own" / registration.sha256[:8] / "slow/1/work"
    until((work / "waiting").exists)
    house.script(EVIL, "lib.py")
    (work / "go").touch()
    until((work / "imported").exists)
    house.script(HONEST, "lib.py")
    (work / "go").unlink()
    running.join(60)
    assert found == [2.0]
    assert not (work.parent / "code").exists()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 150
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("prefix", [False, True], ids=["beside the source", "under a prefix of the environment"])
def test_bytecode_that_does_not_look_at_its_source_is_not_what_is_imported(
    house: OwnHouse, monkeypatch: pytest.MonkeyPatch, prefix: bool
) -> None:
    registration = house.register(code=["lib.py"])
    evil = house.path.parent / "evil.py"
    evil.write_text(EVIL)
    # Where the bytecode would be looked for: of the registered file, and of the one that the run will see.
    folder = Root(house.path.resolve()).run("own", registration.sha256, "slow", 1)
    if prefix:
        monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(house.path.parent / "prefix"))
        monkeypatch.setattr(sys, "pycache_prefix", str(house.path.parent / "prefix"))
    for source in (house.path.resolve() / "lib.py", *([folder / "code" / "lib.py"] if prefix else [])):
        cached = importlib.util.cache_from_source(str(source))
        py_compile.compile(
            str(evil), cfile=cached, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, doraise=True
        )
    assert value_of(house, registration) == 2.0


@pytest.mark.parametrize("shadow", ["lib/__init__.py", "src/json.py"])
def test_what_nobody_pinned_is_not_imported_in_place_of_what_is(house: OwnHouse, shadow: str) -> None:
    house.script(RECORDS + "import lib\nrecord(lib.value)\n", "src/train.py")
    house.script(HONEST, "src/lib.py")
    inside = shadow.startswith("src")
    changes = {"command": ["{python}", "src/train.py"], "code": ["src"]} if inside else {"code": ["lib.py"]}
    registration = house.register(**changes)
    house.script(EVIL, shadow)  # of json, a module without what the script calls
    assert value_of(house, registration) == 2.0


def test_an_entry_of_the_python_path_leads_to_the_copy(house: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    house.script(IMPORTS + "assert '/code/src/' in lib.__file__ and lib.other == 3\n")
    (house.path / "lib.py").unlink()
    house.script(HONEST + "from elsewhere import other\n", "src/lib.py")
    house.script("other = 3\n", "unpinned/elsewhere.py")
    root = house.path.resolve()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "src"), str(root / "unpinned")]))
    assert value_of(house, house.register(code=["src"])) == 2.0


def test_a_script_that_changes_its_own_copy_is_named_and_nothing_is_sealed(house: OwnHouse) -> None:
    house.script(IMPORTS + "import os\nos.chmod(__file__, 0o644)\nopen(__file__, 'a').write('#')\n")
    before = (house.path / "train.py").read_bytes()
    record, said = house.carry_out(house.register(), "slow", 1)
    assert (record.status, record.metrics_sha256) == ("failed", None)
    assert "train.py is not the registered file in the run's own copy, since the run began" in said
    assert (house.path / "train.py").read_bytes() == before
    assert not (house.run_folder("slow", 1) / "code").exists()


def test_paths_relative_to_a_script_lead_where_they_led_and_what_it_writes_there_stays(house: OwnHouse) -> None:
    house.script(
        RECORDS + "import os\nfrom pathlib import Path\nfrom helper import value\nhere = Path(__file__).resolve()\n"
        "assert Path.cwd() == Path(os.environ['ABLATE_RUN_DIR']).resolve()\n"
        "assert (here.parent / 'words.txt').read_text() == 'beside'\n"
        "assert (here.parents[2] / 'data' / 'text.bin').read_text() == 'data'\n"
        "(here.parent / 'cache' / 'kept').write_text('kept')\nrecord(value)\n",
        "studies/mine/train.py",
    )
    house.script(HONEST, "studies/mine/helper.py")
    house.script("beside", "studies/mine/words.txt")
    house.script("data", "data/text.bin")
    (house.path / "studies/mine/cache").mkdir()
    assert value_of(house, house.register(command=["{python}", "studies/mine/train.py"])) == 2.0
    assert (house.path / "studies/mine/cache/kept").read_text() == "kept"


def test_an_executable_script_is_started_from_its_copy(house: OwnHouse) -> None:
    path = house.script(f"#!{sys.executable}\n" + RECORDS + "assert '/code/' in __file__\nrecord(2.0)\n", "train.py")
    path.chmod(0o755)
    assert value_of(house, house.register(command=["train.py"])) == 2.0


def test_a_word_that_a_file_was_made_for_after_registration_stays_a_word(house: OwnHouse) -> None:
    house.script(RECORDS + "import sys\nassert sys.argv[1] == 'fast'\nrecord(2.0)\n")
    registration = house.register(command=["{python}", "train.py", "fast"])
    house.script("", "fast")
    assert value_of(house, registration) == 2.0


@pytest.mark.parametrize("field", ["code", "data"])
@pytest.mark.parametrize("folder", [True, False])
def test_a_symbolic_link_inside_a_named_folder_is_refused(house: OwnHouse, field: str, folder: bool) -> None:
    outside = house.path.parent / "outside"
    outside.mkdir()
    (outside / "evil.py").write_text(EVIL)
    house.script(HONEST, "src/lib.py")
    (house.path / "src" / "link").symlink_to(outside if folder else outside / "evil.py")
    study = house.write(**{field: ["src"]})
    with pytest.raises(RegistrationError, match="'src/link' is a symbolic link") as caught:
        CliRunner().invoke(app, ["check", str(study)], catch_exceptions=False)
    assert str(caught.value.where).endswith(f"{field}[0]")
    (house.path / "src" / "link").rename(house.path / "src" / ".hidden")
    pins = (pin_scripts if field == "code" else pin_data)(Root(house.path), load_study(study).study)
    assert "src/lib.py" in [pin.path for pin in pins]


READS = RECORDS + "import sys\nrecord(float(open(sys.argv[1]).read()))\n"


@pytest.fixture
def reading(house: OwnHouse) -> OwnHouse:
    """A trainer that is told the file it reads."""
    house.script(READS)
    house.script("2.0", "data/number.txt")
    return house


WORDS = {"command": ["{python}", "train.py", "data/number.txt"], "data": ["data/number.txt"]}


def data_in_verify(root: Root) -> tuple[tuple[str, ...], str]:
    (item,) = (item for item in verify_target(root.study("own"), root.path).items if item.what == "data files")
    return item.faults, item.note


def test_data_is_pinned_shown_and_read_where_it_lies(reading: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(design_room, "simulate_design", partial(design_room.simulate_design, n_sims=20))
    reading.script(READS + "assert '/code/' not in sys.argv[1]\n")
    study = reading.write(**WORDS)
    shown = CliRunner().invoke(app, ["check", str(study)])
    assert "Data, to be pinned: data/number.txt, sha256 d84bdb34d4ee" in shown.output
    api.register(study)
    root = Root(reading.path.resolve())
    registration = load_registration(root, "own")
    assert registration is not None and registration.scripts is not None
    assert [pin.path for pin in registration.scripts] == ["train.py"]
    assert [pin.path for pin in registration.files] == ["train.py", "data/number.txt"]
    assert json.loads(root.lock("own").read_text())["data_files"][0]["path"] == "data/number.txt"
    assert value_of(reading, registration) == 2.0
    assert differing_files(root.path, registration.files) == ((), ())
    left_out = gathered(root, registration, whole_ledger=True, weights=False)[1]
    assert "1 data file of the trainer" in [one.what for one in left_out]
    assert data_in_verify(root) == ((), "1 of 1 are as registered")
    reading.script("1.0", "data/number.txt")
    changed = "data/number.txt: its bytes differ from those of the registered data"
    assert data_in_verify(root) == ((changed,), "0 of 1 are as registered")
    (reading.path / "train.py").unlink()
    assert differing_files(root.path, registration.files) == (("data/number.txt",), ("train.py",))


def test_other_data_is_refused_by_run_and_by_every_start(reading: OwnHouse) -> None:
    registration = reading.register(**WORDS)
    reading.script("1.0", "data/number.txt")
    with pytest.raises(RegistrationError, match=r"the trainer's data is not what was registered .*: data/number\.txt"):
        api.run(reading.path / "studies" / "own.yaml", workspace=api.Workspace(console=QUIET))
    record, said = reading.carry_out(registration, "slow", 1)
    assert record.status == "failed" and "data/number.txt is not the file that was registered" in said
    reading.script("2.0", "data/number.txt")
    assert value_of(reading, registration) == 2.0


def test_data_that_changes_while_a_run_is_made_fails_the_run(reading: OwnHouse) -> None:
    reading.script(READS + "open(sys.argv[1], 'w').write('1.0')\n")
    record, said = reading.carry_out(reading.register(**WORDS), "slow", 1)
    assert record.status == "failed" and "data/number.txt is not the file that was registered" in said


def test_runs_on_other_data_are_inadmissible(reading: OwnHouse) -> None:
    rule = [{"verdict": "go", "when": "supported(gain)"}, {"verdict": "no"}]
    registration = reading.register(**WORDS, seeds=[1, 2], decision=rule)
    for variant in ("slow", "fast"):
        for seed in (1, 2):
            assert reading.carry_out(registration, variant, seed)[0].status == "done"
    evidence = gather(Root(reading.path), registration)

    def registered_code(seen: Registration) -> bool:
        checks = {check.name: check for check in judge(seen, evidence).checks}
        check = checks["every run used the registered code"]
        assert check.severity == "inadmissible"
        return check.passed

    other = registration.data_files[0].model_copy(update={"sha256": "0" * 64})
    assert registered_code(registration)
    assert not registered_code(registration.model_copy(update={"data_files": (other,)}))


def test_earlier_promises_are_rebuilt_over_changes_of_data(reading: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(design_room, "simulate_design", partial(design_room.simulate_design, n_sims=20))
    reading.script("x", "data/other.txt")
    study = reading.write(command=WORDS["command"])
    api.register(study)
    for data in (["data/number.txt"], ["data"], ["data/other.txt"], []):
        reading.write(command=WORDS["command"], **({"data": data} if data else {}))
        api.amend(study, reason=f"reads {data}")
    reading.script("y", "train.py")
    api.amend(study, reason="other code")
    root = Root(reading.path.resolve())
    made = past_registrations(root, "own", Ledger(root.ledger).entries())
    assert len(made) == 6 and all(promise.proven for promise in made), [promise.unknown for promise in made]
    read = [promise.document.get("data") for promise in made if promise.document is not None]
    assert read == [[], ["data/number.txt"], ["data"], ["data/other.txt"], [], []]


def test_data_of_the_built_in_trainer_is_refused(house: OwnHouse) -> None:
    registration = house.register()
    assert registration.data_files == ()
    with pytest.raises(SpecError, match="data is given and trainer is 'gpt'"):
        study_from_document(tiny_document(data=["x"]))
    with pytest.raises(SpecError, match=r"'\.\./x'"):
        study_from_document(own_document(data=["../x"]))


def test_a_large_file_is_hashed_once_until_it_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, hashed = tmp_path / "large.bin", Hashed()
    path.write_bytes(b"one")
    first = hashed.sha256(path)
    assert not hashed.known  # touched a moment ago: the next write may bear the same time
    monkeypatch.setattr(pinned_room, "SETTLED_NS", 0)
    assert hashed.sha256(path) == first and len(hashed.known) == 1
    monkeypatch.setattr(pinned_room, "sha256_file", lambda path: "read again")
    assert hashed.sha256(path) == first
    path.write_bytes(b"two")
    assert hashed.sha256(path) == "read again"
