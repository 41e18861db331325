"""Claims about a study whose registered code or data were altered after its runs: `decide` and `verify` both say so."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from own_trainer import OwnHouse

from ablate import api as verbs
from ablate.judge.verdict import Check
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from ablate.verification.verify import verify_root
from prereg.registry.paths import Root

AS_REGISTERED = "the registered code and data are as they were registered"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> OwnHouse:
    house = OwnHouse(tmp_path_factory.mktemp("house"))
    (house.path / "words.txt").write_text("some words")
    house.register(data=["words.txt"])
    study = house.path / "studies" / "own.yaml"
    verbs.run(study, RunOptions(slots=1), watcher=PlainWatcher(StringIO()))
    assert verbs.decide(study).decision.verdict == "take fast"
    return house


def failed(house: OwnHouse) -> dict[str, Check]:
    decision = verbs.decide(house.path / "studies" / "own.yaml").decision
    assert (decision.verdict is None) == (decision.status == "inadmissible")
    return {check.name: check for check in decision.checks if not check.passed}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("train.py", "print('another')", "1: train.py: its bytes differ from those of the registered code"),
        ("train.py", None, "1: train.py: missing; the registered code had sha256 "),
        ("words.txt", "other words", "1: words.txt: its bytes differ from those of the registered data"),
    ],
)
def test_altered_files_give_no_verdict_until_they_are_restored(
    ended: OwnHouse, file: str, text: str | None, found: str
) -> None:
    path, root = ended.path / file, Root(ended.path.resolve())
    before, verdict = path.read_bytes(), (root.report("own") / "verdict.json").read_bytes()
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    assert not verify_root(root, "own").intact
    check = failed(ended)[AS_REGISTERED]
    assert check.severity == "inadmissible" and check.found.startswith(found)
    assert "git checkout -- FILE" in check.required
    path.write_bytes(before)
    assert AS_REGISTERED not in failed(ended)
    assert (root.report("own") / "verdict.json").read_bytes() == verdict
    assert verify_root(root, "own").intact


@pytest.mark.slow
def test_data_that_are_not_on_this_disk_are_no_fault(ended: OwnHouse) -> None:
    path: Path = ended.path / "words.txt"
    before = path.read_bytes()
    path.unlink()
    assert AS_REGISTERED not in failed(ended)
    path.write_bytes(before)
