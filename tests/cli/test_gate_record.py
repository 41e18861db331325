"""The action keeps the record of comparisons from job to job: its own steps, in clones that are thrown away."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_automation import ACTION, environment, start, step
from test_gate import OTHER_NOISE, Repository
from test_gate import repository as repository_of_a_gate

__all__ = ["repository_of_a_gate"]

TAKE_UP, COMPARE, GATHER = "Take up the record", "Compare two commits", "Gather the record"


@dataclass(frozen=True)
class Job:
    """What became of one job of the action."""

    code: str
    summary: str
    said: str
    studies: tuple[str, ...]
    ledger: tuple[dict[str, object], ...]

    @property
    def registered(self) -> list[object]:
        return [entry["study"] for entry in self.ledger if entry["event"] == "registered"]


def job(origin: Path, place: Path, branch: str = "feature") -> Job:
    """Run the action in a fresh clone; `place / "ablate-record"` is what the cache restored, and is replaced."""
    clone = place / "clone"
    shutil.rmtree(clone, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", "-b", branch, f"file://{origin}", str(clone)], check=True)
    outputs, summary = place / "output", place / "summary"
    for path in (outputs, summary):
        path.write_text("", encoding="utf-8")
    env = environment(place) | {
        "ROOT": "clone",
        "RECORD": str(place / "ablate-record"),
        "GITHUB_OUTPUT": str(outputs),
        "GITHUB_STEP_SUMMARY": str(summary),
        "RUNNER_TEMP": str(place),
        "STUDY": "studies/harmless.yaml",
        "BASE": "origin/main",
        "HEAD": "HEAD",
    }

    def python(name: str) -> None:
        words = [sys.executable, "-c", step(name)["run"]]
        subprocess.run(words, cwd=place, env=env, check=True, capture_output=True, text=True)

    python(TAKE_UP)
    said = dict(line.split("=", 1) for line in outputs.read_text(encoding="utf-8").splitlines())["said"]
    done = start(step(COMPARE)["run"], place, env | {"RECORD": said})
    assert done.returncode == 0, done
    python(GATHER)
    ended = dict(line.split("=", 1) for line in outputs.read_text(encoding="utf-8").splitlines())
    lines = (clone / "studies" / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    return Job(
        code=ended["code"],
        summary=summary.read_text(encoding="utf-8"),
        said=said,
        studies=tuple(sorted(path.name for path in (clone / "studies").glob("harmless-*.yaml"))),
        ledger=tuple(json.loads(line) for line in lines),
    )


@pytest.mark.slow
def test_a_second_job_finds_the_record_of_the_first_after_a_force_push(
    repository_of_a_gate: Repository, tmp_path: Path
) -> None:
    origin = repository_of_a_gate
    origin.commit(OTHER_NOISE, branch="feature")
    place = tmp_path / "runner"
    place.mkdir()
    first = job(origin.path, place)
    assert first.code == "0" and "no record of earlier comparisons was restored" in first.said
    assert "no record of earlier comparisons was restored" in first.summary
    assert "Earlier comparisons unknown" in first.summary
    origin.git("commit", "-q", "--amend", "-m", "another message")
    second = job(origin.path, place)
    # The same study, the same runs, not one entry more.
    assert (second.code, second.said, second.studies, second.ledger) == ("0", "", first.studies, first.ledger)
    assert "the same files and settings" in second.summary and "no record" not in second.summary
    # Another head is another comparison, and knows of the first.
    origin.commit({"import json, os": "import json,  os"})
    third = job(origin.path, place)
    assert len(third.registered) == 2 and "1 earlier comparison of other heads with this base" in third.summary
    # A job without the cache says that it knows nothing.
    shutil.rmtree(place / "ablate-record")
    fourth = job(origin.path, place)
    assert len(fourth.registered) == 1 and "Earlier comparisons unknown" in fourth.summary


@pytest.mark.slow
def test_a_record_joins_a_ledger_that_has_moved_on(repository_of_a_gate: Repository, tmp_path: Path) -> None:
    """The repository commits a ledger of its own, and gains entries that the cache has not."""
    origin = repository_of_a_gate
    origin.commit(OTHER_NOISE, branch="feature")
    place = tmp_path / "runner"
    place.mkdir()
    first = job(origin.path, place)
    # Another comparison, whose record is committed.
    origin.git("checkout", "-q", "main")
    origin.commit(OTHER_NOISE | {"0.0,": "0.5,"}, branch="other")
    origin.gate("--base", "main", "--head", "other")
    origin.git("checkout", "-q", "feature")
    origin.git("add", "studies")
    origin.git("commit", "-q", "-m", "a record")
    second = job(origin.path, place)
    assert second.said == "" and len(second.registered) == 2
    assert {*first.studies} < {*second.studies} and "the same files and settings" in second.summary
    # And what is compared then follows both.
    origin.commit({"import json, os": "import json,  os"})
    third = job(origin.path, place)
    assert len(third.registered) == 3
    assert "2 earlier comparisons of other heads with this base: 1 equivalent, 1 worse" in third.summary


@pytest.mark.slow
def test_a_damaged_record_is_left_out_and_the_summary_says_so(repository_of_a_gate: Repository, tmp_path: Path) -> None:
    origin = repository_of_a_gate
    origin.commit(OTHER_NOISE, branch="feature")
    place = tmp_path / "runner"
    (place / "ablate-record" / "studies").mkdir(parents=True)
    (place / "ablate-record" / "studies" / "ledger.jsonl").write_text('{"format": 1}\n', encoding="utf-8")
    done = job(origin.path, place)
    assert done.code == "0" and "is damaged, and was left out" in done.summary
    assert "Earlier comparisons unknown" in done.summary


def test_the_record_is_cached_by_study_and_kept_whatever_the_job_came_to() -> None:
    steps = {one["name"]: one for one in ACTION["runs"]["steps"] if "name" in one}
    restore, keep = steps["Restore the record of earlier comparisons"], steps["Keep the record"]
    assert restore["with"]["key"] == keep["with"]["key"]
    assert restore["with"]["path"] == keep["with"]["path"] == steps[TAKE_UP]["env"]["RECORD"]
    assert restore["with"]["key"].startswith(restore["with"]["restore-keys"]) and "inputs.gate" in str(restore["with"])
    for one in (keep, steps[GATHER]):
        assert one["if"].startswith("always()")
    env = {"CODE": "0", "UNDECIDED": "fail", "KEPT": "failure", "GITHUB_STEP_SUMMARY": "/dev/null", "PATH": "/usr/bin"}
    done = start(steps["Result of the comparison"]["run"], Path.cwd(), env)
    assert done.returncode == 0 and "the record of this comparison could not be kept" in done.stdout
