"""`base_runs: shared`: comparisons of one base use its sealed runs again, by rule, and say so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from test_cli import ablate
from test_gate import HYPOTHESES, OTHER_NOISE, Repository
from test_gate import repository as repository_of_a_gate

from ablate.cli.options import Exit
from prereg.commits.gate import seeds_of_base
from prereg.study.load import load_study

__all__ = ["repository_of_a_gate"]

pytestmark = pytest.mark.slow
BASE = ("--base", "shared")
RENAMED = {"seed = int": "number = int", "seed)": "number)", "{seed}": "{number}"}
RENAMED_AGAIN = {old: new.replace("number", "key") for old, new in RENAMED.items()}
"""Values of base to the bit: no look ends such a comparison before the last, whatever seeds follow from the hashes."""


@pytest.fixture
def gates(repository_of_a_gate: Repository) -> Repository:
    """A gate whose base runs are shared, on the branch `shared`."""
    repository_of_a_gate.write(base_runs="shared")
    repository_of_a_gate.commit(branch="shared")
    return repository_of_a_gate


def head(repository: Repository, edits: dict[str, str], branch: str) -> None:
    """A branch of base with these edits, checked out."""
    repository.git("checkout", "-q", "shared")
    repository.commit(edits, branch=branch)


def runs(repository: Repository, event: str, study: str) -> list[tuple[str, int]]:
    """Arm and seed of every entry of an event of a comparison."""
    return [
        (entry["body"]["variant"], entry["body"]["seed"])
        for entry in repository.ledger()
        if (entry["event"], entry["study"]) == (event, study)
    ]


def test_seeds_follow_from_study_base_and_attempt_alone() -> None:
    base, other_base = "a" * 40, "b" * 40
    seeds = seeds_of_base("harmless", base, 1, 4)
    more = seeds_of_base("harmless", base, 1, 6)
    assert more[:4] == seeds and len({*more}) == 6
    elsewhere = [
        seeds_of_base("harmless", other_base, 1, 4),
        seeds_of_base("harmless", base, 2, 4),
        seeds_of_base("another", base, 1, 4),
    ]
    assert all(not {*drawn} & {*seeds} for drawn in elsewhere)


def test_a_second_comparison_trains_head_alone_and_says_what_it_used(gates: Repository, tmp_path: Path) -> None:
    head(gates, OTHER_NOISE, "first")
    code, first = gates.gate(*BASE)
    assert (code, first["answer"], first["decision"]["reused"]) == (Exit.OK, "equivalent", None)
    head(gates, RENAMED, "second")
    summary, page = tmp_path / "summary.md", tmp_path / "bundle.zip"
    code, second = gates.gate(*BASE, "--summary", str(summary))
    # A head that leaves base's very values has runs of its own all the same.
    assert (code, second["answer"]) == (Exit.OK, "identical")
    one, other = (Path(facts["study"]).stem for facts in (first, second))
    seeds = load_study(Path(first["study"])).study.seeds
    assert load_study(Path(second["study"])).study.seeds == seeds
    assert runs(gates, "sealed", other) == [("head", seed) for seed in seeds]
    assert runs(gates, "reused", other) == [("base", seed) for seed in seeds]
    # Lock, verdict, report and summary say which, of whom, and how many comparisons rest on them.
    locks = [json.loads((gates.path / "studies" / f"{name}.lock.json").read_bytes()) for name in (one, other)]
    assert "reused" not in locks[0] and [run["seed"] for run in locks[1]["reused"]] == [*seeds]
    verdict = json.loads((gates.path / "reports" / other / "verdict.json").read_bytes())
    assert verdict["reused"] == second["decision"]["reused"]
    assert (verdict["reused"]["runs"], verdict["reused"]["of"], verdict["reused"]["comparisons"]) == (4, 8, 2)
    assert [source["study"] for source in verdict["reused"]["sources"]] == [one]
    assert "reused" not in json.loads((gates.path / "reports" / one / "verdict.json").read_bytes())
    report = (gates.path / "reports" / other / "report.md").read_text(encoding="utf-8")
    for text in (report, summary.read_text(encoding="utf-8")):
        assert "4 of 8 runs were used again" in text and "their errors come together" in text
    assert len(summary.read_text(encoding="utf-8").splitlines()) <= 15
    # Whoever has the repository, or the bundle alone, finds the same.
    assert ablate(gates.monkeypatch, "bundle", second["study"], "--out", page) == 0
    shutil.rmtree(gates.path / "data" / "runs" / one)
    for target in (second["study"], page):
        assert ablate(gates.monkeypatch, "verify", target) == 0


def test_what_a_later_look_needs_is_trained_once_and_used_by_the_next(gates: Repository) -> None:
    gates.write(base_runs="shared", seeds="fresh 6", stopping={"looks": [4, 6], "spending": "pocock"})
    gates.git("checkout", "-q", "shared")
    gates.commit()
    counts, names = [], []
    # Two heads that noise keeps undecided up to the last look.
    noisy, noisier = (OTHER_NOISE | {"0.01": spread} for spread in ("0.2", "0.3"))
    for branch, edits in (("first", OTHER_NOISE), ("second", noisy), ("third", noisier)):
        head(gates, edits, branch)
        _, facts = gates.gate(*BASE)
        name = Path(facts["study"]).stem
        names.append(name)
        trained = [sum(arm == "base" for arm, _ in runs(gates, event, name)) for event in ("sealed", "reused")]
        counts.append((facts["answer"], *trained))
    assert counts == [("equivalent", 4, 0), ("undecided", 2, 4), ("undecided", 0, 6)]
    reused = facts["decision"]["reused"]
    assert [(source["study"], source["runs"]) for source in reused["sources"]] == [(names[0], 4), (names[1], 2)]
    assert (reused["runs"], reused["of"], reused["comparisons"]) == (6, 12, 3)


def test_what_would_be_a_choice_among_base_runs_is_refused(gates: Repository) -> None:
    head(gates, OTHER_NOISE, "first")
    _, first = gates.gate(*BASE)
    name = Path(first["study"]).stem
    # The same files under another hash: its runs are there, and were seen.
    (gates.path / ".gitignore").write_text("data/\nreports/\nbuild/\n", encoding="utf-8")
    gates.commit(branch="again")
    assert f"'{name}' has sealed head seed" in gates.refused(*BASE)
    # Another margin, now that base was seen.
    head(gates, RENAMED, "second")
    gates.write(base_runs="shared", hypotheses={key: each | {"smallest": 0.5} for key, each in HYPOTHESES.items()})
    assert "the study has changed since" in gates.refused(*BASE)
    # Seeds that somebody wrote; a registration past the gate; an amendment.
    gates.write(base_runs="shared", seeds=[1, 2, 3, 4])
    assert "a list, which somebody chose" in gates.refused(*BASE)
    gates.write(base_runs="shared")
    assert ablate(gates.monkeypatch, "register", gates.study) == Exit.MISTAKE
    assert "is not the name of a comparison" in " ".join(gates.capsys.readouterr().err.split())
    assert ablate(gates.monkeypatch, "amend", first["study"], "--reason", "later") == Exit.MISTAKE
    # A base run that is not as it was sealed, or is gone.
    record = next((gates.path / "data" / "runs" / name).glob("*/base/*/run.json"))
    sealed = record.read_bytes()
    record.write_bytes(sealed + b"\n")
    assert "is not here as it was sealed" in gates.refused(*BASE)
    record.unlink()
    assert "is not here as it was sealed" in gates.refused(*BASE)
    record.write_bytes(sealed)
    table = record.with_name("metrics.parquet")
    rows = table.read_bytes()
    table.write_bytes(rows + b"x")
    assert "metrics.parquet" in gates.refused(*BASE)
    table.write_bytes(rows)
    code, second = gates.gate(*BASE)
    assert (code, second["decision"]["reused"]["runs"]) == (Exit.OK, 4)
