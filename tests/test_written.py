"""What an earlier version wrote still verifies, and its records still give its verdict to the last byte.

The fixtures and what each is for: tests/written/README.md. A verdict holds neither a time nor a head of the ledger: no
field of it is excepted.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ablate import cli
from ablate.judge.decide import decide
from ablate.judge.verdict import verdict_bytes
from ablate.records.gather import gather
from prereg.registry.paths import Root
from prereg.registry.registration import load_registration

WRITTEN = Path(__file__).resolve().parent / "written"
NAMES = sorted(path.parent.name for path in WRITTEN.glob("*/written.json"))


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)


class Copy:
    """A fixture in a folder of its own, and what the version here says of it."""

    def __init__(self, name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.name = name
        self.path = Path(shutil.copytree(WRITTEN / name, folder / name))
        self.told = json.loads((self.path / "written.json").read_text())
        self.study, self.bundle = self.path / "studies" / f"{name}.yaml", self.path / f"{name}.ablate.zip"
        self.verdict = (self.path / "reports" / name / "verdict.json").read_bytes()
        self._capsys = capsys

    def ask(self, verb: str, of: Path) -> tuple[int, dict[str, Any]]:
        """The exit code and the answer of a verb."""
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.setattr(sys, "argv", ["ablate", verb, str(of), "--json"])
            self._capsys.readouterr()
            cli.main()
        return int(ended.value.code or 0), json.loads(self._capsys.readouterr().out)

    def faults(self, of: Path) -> list[str]:
        """What `ablate verify` finds wrong."""
        return self.verified(of)[0]

    def verified(self, of: Path) -> tuple[list[str], dict[str, Any]]:
        """What `ablate verify` finds wrong, and all it says; an exit code other than the fixture's is a fault too."""
        code, said = self.ask("verify", of)
        found = [f"{item['what']}: {fault}" for item in said["items"] for fault in item["faults"]]
        ended = (
            [] if code == self.told["verify"] else [f"verify ends with {code}, and ended with {self.told['verify']}"]
        )
        return found + ended, said

    def other_verdict(self) -> str:
        """Where the verdict of the records differs from the one that was written by more than `REWORDED` and the last
        digits of numbers: exp and log of numpy are other code on other processors."""
        root = Root(self.path)
        registration = load_registration(root, self.name)
        assert registration is not None, self.name
        now = verdict_bytes(decide(registration, gather(root, registration)))
        written = self.verdict
        for old, new in REWORDED:
            now, written = now.replace(new, old), written.replace(new, old)
        was, new = json.loads(written), json.loads(now)
        where = first_difference(was, new) or ("the way it is written" if was == new and now != written else "")
        return where and f"{self.name}: verdict.json differs at {where}"

    def alter(self, file: str, old: bytes = b"", new: bytes = b"") -> None:
        """Replace the first `old` in a file, or else change one bit in its middle."""
        (path,) = self.path.glob(file)
        data = path.read_bytes()
        middle = len(data) // 2
        changed = data.replace(old, new, 1) if old else bytes([*data[:middle], data[middle] ^ 1, *data[middle + 1 :]])
        assert changed != data, file
        path.chmod(0o644)
        path.write_bytes(changed)


REWORDED = ((b"was promised: not so that ", b"was promised. Failed: "),)
"""Sentences that a later version words differently: as written, and now. CHANGELOG.md lists each, Results affected."""


def first_difference(old: Any, new: Any, at: str = "") -> str:
    """The first field in which two JSON values differ, and both values; empty where they are equal."""
    if isinstance(old, dict) and isinstance(new, dict) and list(old) == list(new):
        pairs = [(f"{at}.{key}" if at else key, old[key], new[key]) for key in old]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(f"{at}[{index}]", *both) for index, both in enumerate(zip(old, new, strict=True))]
    elif isinstance(old, dict) and isinstance(new, dict):
        return f"{at or 'the top'}: {list(old)} was written, {list(new)} is now"
    else:
        near = isinstance(old, float) and isinstance(new, float) and math.isclose(old, new, rel_tol=1e-13)
        same = near or (type(old) is type(new) and old == new)
        return "" if same else f"{at or 'the top'}: {old!r} was written, {new!r} is now"
    return next((found for where, *both in pairs if (found := first_difference(*both, where))), "")


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Copy:
    return Copy(getattr(request, "param", "fixed"), tmp_path, capsys)


def test_no_fixture_is_lost() -> None:
    assert {"fixed", "sequential", "gpt", "imported", "amended", "sealed", "lost", "remade", "peeked"} <= set(NAMES)


@pytest.mark.parametrize("copy", NAMES, indirect=True)
def test_what_was_written_verifies_and_gives_its_verdict(copy: Copy) -> None:
    faults, said = copy.verified(copy.study)
    assert faults == [], copy.name
    assert [f"{seal['kind']}: {seal['state']}" for seal in said["seals"]] == copy.told["seals"], copy.name
    judged = [item["note"] for item in said["items"] if item["what"] == "verdict, judged again"]
    assert judged and not judged[0].startswith("not judged"), f"{copy.name}: {judged}"
    verdict = json.loads(copy.verdict)
    code, health = copy.ask("status", copy.study)
    assert (code, health["unchanged"], health["decided"]) == (0, True, verdict["verdict"] or verdict["status"]), (
        copy.name
    )
    assert copy.other_verdict() == ""
    assert copy.faults(copy.bundle) == [], f"{copy.name}: its bundle"


ALTERED: dict[str, tuple[bytes, bytes]] = {
    "data/runs/fixed/*/new/2/metrics.parquet": (b"", b""),
    "data/runs/fixed/*/new/2/run.json": (b'"steps": 4', b'"steps": 5'),
    "studies/fixed.lock.json": (b"0.02", b"0.03"),
    "studies/ledger.jsonl": (b'"seed":1', b'"seed":2'),
    "studies/fixed.yaml": (b"0.02", b"0.03"),
    "train.py": (b"0.005", b"0.006"),
    "reports/fixed/verdict.json": (b'"supported"', b'"Supported"'),
    "reports/fixed/report.md": (b"supported", b"Supported"),
    "reports/fixed/report.html": (b"supported", b"Supported"),
}


@pytest.mark.parametrize("file", ALTERED)
def test_one_altered_byte_is_found_and_its_file_named(file: str, copy: Copy) -> None:
    copy.alter(file, *ALTERED[file])
    faults = copy.faults(copy.study)
    assert any(Path(file).name in fault for fault in faults), faults
    assert any("verify ends with 4" in fault for fault in faults)


def test_one_altered_byte_of_a_bundle_is_found(copy: Copy) -> None:
    copy.alter("fixed.ablate.zip")
    assert copy.faults(copy.bundle) != []


@pytest.mark.parametrize("copy", ["sealed"], indirect=True)
@pytest.mark.parametrize("file", ["studies/*.sig", "studies/*.tsr"])
def test_one_altered_byte_of_a_seal_is_found(file: str, copy: Copy) -> None:
    copy.alter(file)
    assert copy.faults(copy.study) != []


def test_another_verdict_is_told_with_the_fixture_and_the_first_field_that_differs(copy: Copy) -> None:
    copy.verdict = copy.verdict.replace(b'"supported"', b'"refuted"', 1)
    told = copy.other_verdict()
    assert told.startswith("fixed: verdict.json differs at findings"), told
    assert told.endswith("'refuted' was written, 'supported' is now")
    copy.alter("data/runs/fixed/*/new/2/metrics.parquet")
    assert copy.other_verdict().startswith("fixed: verdict.json differs at status: 'decided' was written, '")


def test_the_first_difference_is_named() -> None:
    old = {"a": [1.0, {"b": 2}], "c": None}
    assert first_difference(old, {"a": [1.0, {"b": 2}], "c": None}) == ""
    assert first_difference(old, {"a": [1.0, {"b": 3}], "c": 1}) == "a[1].b: 2 was written, 3 is now"
    assert first_difference(old, {"a": [1, {"b": 2}], "c": None}) == "a[0]: 1.0 was written, 1 is now"
    assert first_difference(old, {"c": None}) == "the top: ['a', 'c'] was written, ['c'] is now"
