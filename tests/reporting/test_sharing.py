"""What the runs of a seed share where arms are commits, and what their pairs were worth, from runs that were made."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist, correlation, variance

import pytest
from committed_trainer import CommitHouse, commits_document
from own_trainer import OwnHouse, own_document
from quiet import QUIET

import ablate as api
from ablate.runner.options import RunOptions

SCRIPT = """
import random
import ablate
width, seed = 4, ablate.seed()
weights, data = random.Random(seed), random.Random(seed + 1000)
initial = [weights.gauss(0, 1) for _ in range(width)]
order = list(range(50))
data.shuffle(order)
ablate.fingerprint("initial weights", repr(initial).encode())
ablate.must_match("data order", repr(order).encode())
loss = 2.0 + 0.02 * order[0] / 50 + 0.004 * initial[-1] - width / 40
ablate.log(1, {"train/loss": loss + 1})
ablate.log(2, {"train/loss": loss + 1, "val/loss": loss})
"""
SEEDS = [1, 2, 3, 4, 5, 6]


@pytest.fixture(scope="module")
def wider(tmp_path_factory: pytest.TempPathFactory) -> CommitHouse:
    """A commit with other shapes: its runs draw other initial values, and read the same batches."""
    house = CommitHouse(tmp_path_factory.mktemp("wider") / "house")
    house.script(SCRIPT)
    house.commit("Narrow")
    house.git("tag", "-f", "v1")
    house.script(SCRIPT.replace("width, seed = 4,", "width, seed = 8,"))
    house.commit("Wide")
    study = house.write(commits_document(seeds=SEEDS))
    api.run(study, RunOptions(slots=2), workspace=api.Workspace(console=QUIET))
    api.decide(study)
    return house


def table(house: OwnHouse, caption: str) -> list[dict[str, str]]:
    """The rows of the table of a report whose caption begins so."""
    report = (house.path / "reports" / "own" / "report.md").read_text(encoding="utf-8").splitlines()
    at = next(at for at, line in enumerate(report) if caption in line)
    lines = [line for line in report[at:] if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:8]]
    return [dict(zip(header, row, strict=False)) for row in rows if len(row) == len(header)]


def test_a_report_says_what_was_shared_and_what_was_not(wider: CommitHouse) -> None:
    (row,) = table(wider, "What the runs of one seed share")[:1]
    assert row["Arm"] == "after" and row["Code"] == "2 of 3 files the same"
    assert (row["Initial values equal"], row["Batches equal"]) == ("0 of 6", "6 of 6")


def test_a_report_says_how_many_runs_without_pairs_would_be_as_good(wider: CommitHouse) -> None:
    decision = api.decide(wider.study).decision
    (finding,) = decision.findings
    left, right = ([getattr(pair, side) for pair in finding.pairs] for side in ("left", "right"))
    r, n = correlation(left, right), len(SEEDS)
    assert finding.correlation == pytest.approx(r)
    measured = n * (variance(left) + variance(right)) / variance([a - b for a, b in zip(left, right, strict=True)])
    half = NormalDist().inv_cdf(0.975) / math.sqrt(n - 3)
    low, high = math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)
    (row,) = table(wider, "What the pairs were worth")[:1]
    assert row["Pairs"] == "6" and row["Correlation"] == f"{r:.2f}".replace("-", "−")
    assert row["95%"] == f"{low:.2f} to {high:.2f}".replace("-", "−")
    assert row["As good without pairs"].startswith(f"{round(measured):,} (")


def test_what_is_not_stated_is_not_known(decided_own: OwnHouse) -> None:
    (row,) = table(decided_own, "What the runs of one seed share")[:1]
    assert (row["Code"], row["Initial values equal"], row["Batches equal"]) == ("the same", "not stated", "not stated")


def test_fingerprints_that_differ_forbid_no_verdict(wider: CommitHouse, own_house: OwnHouse, tmp_path: Path) -> None:
    decision = api.decide(wider.study).decision
    (matched,) = (check for check in decision.checks if check.name.startswith("pairs match in what"))
    assert matched.passed and decision.verdict is not None
    # The same hash under a name that must match is another matter.
    own_house.script(
        SCRIPT.replace("ablate.fingerprint", "ablate.must_match").replace(
            "width, seed = 4", 'width, seed = ablate.config({"width": 4})["width"]'
        )
    )
    variants = {"slow": {}, "fast": {"width": 8}}
    study = own_house.write(own_document(base={"width": 4}, variants=variants))
    api.run(study, RunOptions(slots=2), workspace=api.Workspace(console=QUIET))
    assert api.decide(study).decision.verdict is None
