"""A slip in a registered trainer costs two runs, and an amendment that mends it hurts nothing that was registered."""

from __future__ import annotations

from io import StringIO

import pytest
from ledger_samples import entry
from own_trainer import SCRIPT, OwnHouse
from test_try import SLIPS
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from prereg.registry.amendments import affected, amendments_of, in_short
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry
from prereg.registry.register import evidence_by_now

pytestmark = pytest.mark.usefixtures("no_reports")

RUNS_FAIL = [name for name in SLIPS if "does nothing" not in name]


@pytest.fixture
def house(own_house: OwnHouse) -> OwnHouse:
    own_house.script("0", "data/bias.txt")
    return own_house


def run(house: OwnHouse) -> str:
    done = CliRunner().invoke(
        app, ["run", str(house.path / "studies" / "own.yaml"), "--jobs", "1"], env={"COLUMNS": "80"}
    )
    return f"{done.exit_code} {done.output}"


def entries(house: OwnHouse) -> list[Entry]:
    return list(Ledger(house.path / "studies" / "ledger.jsonl").entries())


@pytest.mark.slow
@pytest.mark.parametrize("slip", RUNS_FAIL)
def test_two_failures_stop_the_study_and_the_amendment_is_free(house: OwnHouse, slip: str) -> None:
    script, changes, found, _ = SLIPS[slip]
    house.script(script)
    house.register(**changes)
    said = run(house)
    assert said.startswith("5 ") and said.count("failed  own/") == 1 and found.split(":")[0] in said, said
    assert "2 runs failed in the same way, and 4 were not started" in said and "next:  ablate try" in said
    assert "data/runs/own/" in said and "stderr.txt" in said
    failed = [entry for entry in entries(house) if entry.event == "failed"]
    assert [entry.cell for entry in failed] == [("slow", 1), ("slow", 2)]
    house.script(SCRIPT)
    path = house.write()
    registration, entry = api.amend(path, reason="the slip is gone")
    (amendment,) = amendments_of([entry])
    assert amendment.evidence == "none" and amendment.failed_runs == 2
    assert in_short(amendment).endswith("after 2 runs that failed and left no contrast")
    found_affected = affected(registration.study, [amendment])
    assert not (found_affected.hypotheses or found_affected.arms or found_affected.verdict)


@pytest.mark.slow
def test_a_study_that_was_stopped_and_amended_reaches_its_verdict(house: OwnHouse) -> None:
    house.script("import no_such_package\n" + SCRIPT)
    house.register()
    assert run(house).startswith("5 ")
    house.script(SCRIPT)
    path = house.write()
    api.amend(path, reason="a package that is not there", workspace=api.Workspace(house.path))
    assert run(house).startswith("0 ")
    decision = api.decide(path).decision
    assert (decision.status, decision.verdict) == ("decided", "take fast")
    assert "no amendment after runs started" not in {one.name for one in decision.checks if not one.passed}


@pytest.mark.slow
def test_failures_that_differ_or_come_after_a_sealed_run_stop_nothing(house: OwnHouse) -> None:
    house.script(SCRIPT + "if seed == 1:\n    raise SystemExit('this ' + os.environ['ABLATE_VARIANT'])\n")
    house.register()
    ran = api.run(
        house.path / "studies" / "own.yaml",
        RunOptions(slots=1),
        workspace=api.Workspace(console=PlainWatcher(StringIO())),
    )
    summary = ran.summary
    assert (summary.sealed, len(summary.failed), summary.gave_up) == (4, 2, "")
    assert evidence_by_now(entries(house), "own") == ("runs started", 2)


def ledger_of(*events: tuple[str, dict[str, object]]) -> list[Entry]:
    """Entries of the study `own`, the chain aside."""
    return [entry(event, body, study="own", index=index) for index, (event, body) in enumerate(events, start=1)]


CALL = ("started", {"runs": 2, "of": 6})
A1, B1 = {"variant": "a", "seed": 1}, {"variant": "b", "seed": 1}


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([CALL], "none"),
        ([CALL, ("started", A1)], "runs started"),
        ([CALL, ("started", A1), ("failed", A1 | {"left_values": False})], "none"),
        ([("started", A1), ("failed", A1 | {"left_values": True})], "none"),
        (
            [
                (event, run | more)
                for run in (A1, B1)
                for event, more in (("started", {}), ("failed", {"left_values": True}))
            ],
            "runs started",
        ),
        (
            [
                *[(event, A1 | more) for event, more in (("started", {}), ("failed", {"left_values": True}))],
                *[(event, B1 | more) for event, more in (("started", {}), ("failed", {"left_values": False}))],
            ],
            "none",
        ),
        ([("started", A1), ("started", A1), ("failed", A1 | {"left_values": False})], "runs started"),
        ([("started", A1), ("failed", A1 | {"left_values": False}), ("peeked", {})], "outcomes read"),
        ([("started", A1), ("sealed", A1)], "runs started"),
    ],
)
def test_what_counts_as_evidence(events: list[tuple[str, dict[str, object]]], state: str) -> None:
    assert evidence_by_now(ledger_of(*events), "own")[0] == state


@pytest.mark.slow
def test_consequences_are_shown_first_and_confirmed(house: OwnHouse) -> None:
    house.register()
    assert run(house).startswith("0 ")
    path = house.write(hypotheses={"gain": {"claim": "fast lowers val/loss", "smallest": 0.01}})
    before = house.snapshot()
    words = ["amend", str(path), "--reason", "a smaller difference matters"]
    for more, code in (["--dry-run"], 0), ([], 2):
        done = CliRunner().invoke(app, words + more)
        said = done.output.replace("\n", " ")
        assert "evidence by now: runs started" in said and "exploratory from now on: gain" in said
        assert done.exit_code == code if code == 0 else done.exception is not None
        assert house.snapshot() == before
    assert CliRunner().invoke(app, [*words, "--yes"]).exit_code == 0
    assert [entry.event for entry in entries(house)][-1] == "amended"
