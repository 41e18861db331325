"""Claims about what the ledger shows of a history: starts removed, runs made again, studies repeated, times set back.

The attacks are real: worker processes are killed, folders removed, records put in their place.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from evidence_factory import Cell, chain, make_evidence, sealed_body, small_study, with_entry, with_run
from own_trainer import OwnHouse
from test_run import kill_tree, start
from typer.testing import CliRunner

import ablate as verbs
from ablate.cli import app
from ablate.judge.audit.audit import audit
from ablate.judge.audit.checks import AuditContext
from ablate.judge.audit.history import Starts, starts_of
from ablate.judge.decide import decide
from ablate.judge.verdict import Check, Decision
from ablate.records.evidence import Evidence
from ablate.records.gather import gather, repeated_elsewhere
from ablate.reporting import html as html_room
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.audit import deviations_section
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from ablate.verification.verify import verify_root
from ablate.workspace import Workspace, require_registered
from prereg.errors import EvidenceError
from prereg.registry import register as register_room
from prereg.registry.ledger import Ledger, sliced
from prereg.registry.ledger_entry import Entry, Event
from prereg.registry.paths import Root
from prereg.registry.registration import Registration

QUIET = PlainWatcher(StringIO())
SAME = "the verdict is the same with runs begun again at their worst"
LOST = "no start of a run was lost before its seal"
AFTER = "no run was sealed after the decision"
ELSEWHERE = "no run repeats one of another study"
FORWARD = "the ledger's times run forward"
BEGUN = "no run began before its registration"
AGAIN = "every run was made in one go"
RECOVERED = "every seal was reported by the run that made it"
CELL = ("layernorm", 2)
CLAIM = {"gain": {"claim": "fast lowers val/loss", "smallest": 0.01}}

SCRIPT = """
import json, os, shutil, signal, sys, time
from pathlib import Path
config = json.load(open(os.environ["ABLATE_CONFIG"]))
plan = Path(os.environ["ATTACK"])
seed, lr, run = int(os.environ["ABLATE_SEED"]), config["lr"], Path(os.environ["ABLATE_RUN_DIR"]).parent
todo = json.loads(plan.read_text()) if plan.exists() else {}
me = f"{os.environ['ABLATE_VARIANT']}/{seed}"
with open("metrics.jsonl", "w") as out:
    for step in range(1, 5):
        print(json.dumps({"step": step, "metric": "train/loss", "value": 3.0 - lr * step / 100}), file=out)
    value = 2.0 - lr + seed * lr / 1000 + todo.get("noise", 0.0)
    if not todo.get("early") or todo.get("run") != me or not todo["times"]:
        print(json.dumps({"step": 4, "metric": "val/loss", "value": value}), file=out)
if todo.get("run") == me and todo["times"] > 0:
    todo["times"] -= 1
    plan.write_text(json.dumps(todo))
    if todo["do"] == "wait":
        (run.parent.parent / "waiting").touch()
        time.sleep(600)
    if todo["do"] == "fail":
        raise SystemExit(3)
    if todo["do"] in ("remove", "swap"):
        shutil.rmtree(run)
    if todo["do"] == "swap":
        shutil.copytree(todo["from"], run)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)
"""


class Attacked(OwnHouse):
    """A study whose trainer, where the file `attack` says so, kills the worker that started it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.script(SCRIPT)
        self.ledger = Ledger(path / "studies" / "ledger.jsonl")

    def run(self, **todo: Any) -> None:
        Path(os.environ["ATTACK"]).write_text(json.dumps(todo))
        verbs.run(self.study, RunOptions(slots=1), workspace=verbs.Workspace(console=QUIET))

    def decide(self) -> Decision:
        return verbs.decide(self.study).decision

    def failed(self) -> dict[str, Check]:
        return failed(*self.judged())

    def judged(self) -> tuple[Registration, Evidence]:
        registration = require_registered(Workspace().open(self.study))
        return registration, gather(Root(self.path.resolve()), registration)

    def folder(self, cell: str) -> Path:
        (found,) = self.path.glob(f"data/runs/own/*/{cell}")
        return found


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attacked:
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
    monkeypatch.setenv("ATTACK", str(tmp_path / "attack"))
    # Charts take most of the time of a decision, and are tested on their own.
    monkeypatch.setattr(html_room, "render", lambda told, _document: f"<p>{told.decision.status}</p>")
    return Attacked(tmp_path / "house")


def failed(registration: Registration, evidence: Evidence) -> dict[str, Check]:
    return {check.name: check for check in audit(AuditContext(registration, evidence)) if not check.passed}


@pytest.mark.slow
def test_removed_starts_are_named_and_more_than_one_gives_no_verdict(house: Attacked) -> None:
    house.register(seeds=[1, 2])
    house.run(do="remove", run="fast/1", times=2)
    found = house.failed()
    assert found[LOST].severity == "inadmissible"
    assert "fast seed 1: 3 starts, 0 resumed, 0 failed on record, 2 removed" in found[LOST].found
    assert "fast seed 1: 2 starts removed" in found[AGAIN].found
    assert house.decide().verdict is None


@pytest.mark.slow
@pytest.mark.parametrize("do", ["kill", "fail"])
def test_a_run_begun_again_after_it_recorded_a_claimed_value_counts(house: Attacked, do: str) -> None:
    house.register(seeds=[1, 2, 3])
    house.run(do=do, run="fast/1", times=1)
    house.run()
    found = house.failed()[LOST]
    assert found.severity == "deviation" and found.found.startswith("1 counts, and 1 may: fast seed 1: 2 starts, ")
    assert found.found.endswith("1 lost with a value of a claimed metric")
    decision = house.decide()
    assert decision.verdict == "take fast"
    (same,) = [check for check in decision.checks if check.name == SAME]
    assert same.passed and same.found == "'take fast' with fast seed 1 as bad, or as good, as any other too"
    other = Attacked(house.path.with_name("other"))
    other.register(seeds=[1, 2, 3])
    for _ in range(1 if do == "kill" else 2):
        other.run(do=do, run="fast/1", times=2 if do == "kill" else 1)
    other.run()
    found = other.failed()[LOST]
    assert found.severity == "inadmissible" and found.found.startswith("2 count, and 1 may: fast seed 1: 3 starts, ")
    assert other.decide().status == "inadmissible"


@pytest.mark.slow
@pytest.mark.parametrize("do", ["kill", "fail"])
def test_starts_that_ended_before_a_claimed_value_do_not_count(house: Attacked, do: str) -> None:
    house.register(seeds=[1, 2, 3])
    for _ in range(1 if do == "kill" else 2):
        house.run(do=do, run="fast/1", times=2 if do == "kill" else 1, early=True)
    house.run()
    assert LOST not in house.failed() and house.failed()[AGAIN].severity == "deviation"
    assert house.decide().verdict == "take fast"


@pytest.mark.slow
def test_values_that_are_removed_after_a_kill_count_as_recorded(house: Attacked) -> None:
    house.register(seeds=[1, 2, 3])
    interrupt(house)
    (house.folder("slow/1") / "work" / "metrics.jsonl").unlink()
    house.run()
    assert house.failed()[LOST].found.startswith("1 counts, and 1 may: slow seed 1: 2 starts, ")


def interrupt(house: Attacked) -> None:
    """Ctrl-C as soon as slow/1 has recorded its claimed value."""
    Path(os.environ["ATTACK"]).write_text(json.dumps({"do": "wait", "run": "slow/1", "times": 1}))
    process = start(house.study, "--slots", "1")
    while not list(house.path.glob("data/runs/own/*/waiting")):
        assert process.poll() is None
    next(house.path.glob("data/runs/own/*/waiting")).unlink()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0


@pytest.mark.slow
def test_interrupting_a_run_whenever_its_value_is_bad_gives_no_verdict(house: Attacked) -> None:
    house.register(seeds=[1, 2, 3])
    for _ in range(3):
        interrupt(house)
    house.run()
    found = house.failed()[LOST]
    assert found.severity == "inadmissible"
    assert "slow seed 1: 4 starts, 0 resumed, 0 failed on record, 3 begun again from the first step" in found.found
    assert house.decide().status == "inadmissible"


@pytest.mark.slow
def test_a_registered_number_counts_every_start_without_a_seal(house: Attacked) -> None:
    house.register(seeds=[1, 2], analysis={"most_lost_starts": 1})
    house.run(do="kill", run="fast/1", times=1)
    assert house.failed()[LOST].severity == "deviation"
    other = Attacked(house.path.with_name("other"))
    other.register(seeds=[1, 2], analysis={"most_lost_starts": 1})
    other.run(do="fail", run="fast/1", times=1)
    other.run(do="kill", run="fast/1", times=1)
    found = other.failed()[LOST]
    assert found.severity == "inadmissible"
    assert "fast seed 1: 3 starts, 0 resumed, 1 failed on record, 1 begun again from the first step" in found.found


@pytest.mark.slow
def test_looking_killing_and_removing_by_hand_is_a_removed_start(house: Attacked) -> None:
    house.register(seeds=[1, 2])
    for _ in range(2):
        Path(os.environ["ATTACK"]).write_text(json.dumps({"do": "wait", "run": "slow/1", "times": 1}))
        process = start(house.study, "--slots", "1")
        while not list(house.path.glob("data/runs/own/*/waiting")):
            assert process.poll() is None
        assert json.loads((house.folder("slow/1") / "work" / "metrics.jsonl").read_text().splitlines()[-1])["value"]
        kill_tree(process)
        shutil.rmtree(house.path / "data" / "runs" / "own")
    house.run()
    assert house.failed()[LOST].severity == "inadmissible"


@pytest.mark.slow
def test_a_record_put_in_place_of_a_killed_run_is_marked_and_must_be_of_that_run(house: Attacked) -> None:
    other = Attacked(house.path.with_name("other"))
    other.register(seeds=[1, 2])
    other.run(noise=-0.5)
    house.register(seeds=[1, 2])
    house.run(do="swap", run="fast/1", times=1, **{"from": str(other.folder("fast/1"))})
    seal = next(e for e in house.ledger.entries() if e.event == "sealed" and e.body["variant"] == "fast")
    assert seal.body["recovered"] is True
    assert "fast seed 1" in house.failed()[RECOVERED].found
    third = Attacked(house.path.with_name("third"))
    third.register(seeds=[1, 2])
    third.run(do="swap", run="fast/1", times=1, **{"from": str(other.folder("fast/2"))})
    events = [(e.event, e.body.get("variant"), e.body.get("seed")) for e in third.ledger.entries()]
    assert ("failed", "fast", 1) in events and ("sealed", "fast", 1) not in events
    assert third.decide().status == "inadmissible"
    with pytest.raises(EvidenceError, match="another run: its seed is 2, not 1"):
        third.run()


@pytest.mark.slow
def test_runs_sealed_after_a_decision_give_no_verdict_unless_they_repeat_it(house: Attacked) -> None:
    house.register(seeds=[1, 2])
    house.run()
    first = house.decide()
    assert first.verdict == "take fast"
    shutil.rmtree(house.folder("fast/1"))
    house.run()
    assert AFTER not in house.failed()
    assert house.decide().verdict == "take fast"
    for seed in (1, 2):
        shutil.rmtree(house.folder(f"fast/{seed}"))
    house.run(noise=1.0)
    check = house.failed()[AFTER]
    decided = next(e for e in house.ledger.entries() if e.event == "decided")
    assert check.severity == "inadmissible" and f"decided as entry {decided.index} (take fast, " in check.found
    assert "sealed afterwards 2: fast seed 1" in check.found
    again = house.decide()
    assert (again.status, again.verdict) == ("inadmissible", None)
    assert house.decide() == again


@pytest.mark.slow
def test_seeds_of_later_looks_are_no_runs_after_a_decision(house: Attacked) -> None:
    house.register(seeds=[1, 2, 3, 4], stopping={"looks": [2, 4]})
    house.run()
    while (decision := house.decide()).status == "continue":
        house.run()
    assert decision.status != "inadmissible" and AFTER not in house.failed()


@pytest.mark.slow
def test_a_study_that_repeats_another_names_it_and_says_when_it_was_read(house: Attacked) -> None:
    house.register(seeds=[1, 2])
    house.run()
    decided = house.decide()
    assert decided.verdict is not None
    with pytest.MonkeyPatch.context() as patch:  # a version that does not refuse
        patch.setattr(register_room, "refuse_sealed_elsewhere", lambda *_: None)
        house.register(
            study="other", seeds=[1, 2], hypotheses={"gain": {"claim": "fast lowers val/loss", "smallest": 0.01}}
        )
    house.study = house.path / "studies" / "other.yaml"
    house.run()
    house.decide()
    check = house.failed()[ELSEWHERE]
    assert check.severity == "inadmissible"
    assert "4 runs of 'own', the first sealed before this registration as entry" in check.found
    assert "decided as entry" in check.found
    registration, evidence = house.judged()
    # What a bundle shows of the ledger holds enough to find it again.
    entries = Ledger(Root(house.path.resolve()).ledger).entries()
    also = {entry.sha256 for entry in repeated_elsewhere(entries, registration)}
    path = house.path / "ledger.slice.jsonl"
    path.write_bytes(sliced(entries, "other", also))
    assert repeated_elsewhere(Ledger(path).entries(), registration) == evidence.elsewhere
    # The first study is judged as before.
    house.study = house.path / "studies" / "own.yaml"
    assert ELSEWHERE not in house.failed()
    assert house.decide() == decided
    assert verify_root(Root(house.path.resolve()), "own").intact
    bundle = house.path.with_name("other.ablate.zip")
    verbs.bundle(house.path / "studies" / "other.yaml", out=bundle)
    checked = verbs.check_bundle(bundle)
    assert checked.intact, checked


Line = tuple[Event, dict[str, Any]]


def begun(cell: Cell, attempt: int, resumed_from: int | None = None, made_with: str = "m") -> Line:
    body: dict[str, Any] = {"variant": cell[0], "seed": cell[1], "attempt": attempt, "made_with": made_with}
    return "started", body if resumed_from is None else body | {"resumed_from": resumed_from}


def story(evidence: Evidence, *lines: Line) -> list[Line]:
    """A whole ledger, with these lines for one run in place of its seal alone."""
    found: list[Line] = []
    for entry in evidence.ledger:
        if entry.event == "sealed" and (entry.body["variant"], entry.body["seed"]) == CELL:
            found += lines
        found.append((entry.event, dict(entry.body)))
    return found


FAILED: Line = ("failed", {"variant": CELL[0], "seed": CELL[1], "error": "x"})


@pytest.mark.parametrize(
    ("lines", "attempts", "words", "severity"),
    [
        ([], 1, None, None),
        ([begun(CELL, 1)], 1, None, None),
        ([begun(CELL, 2)], 2, None, None),
        ([begun(CELL, 1), begun(CELL, 2, 30), begun(CELL, 3, 60)], 3, None, None),
        ([begun(CELL, 1), begun(CELL, 2)], 2, None, None),  # killed before its first checkpoint
        ([begun(CELL, 1), begun(CELL, 3)], 3, None, None),  # a kill between record and entry
        ([begun(CELL, 1), FAILED, begun(CELL, 1)], 1, None, None),  # a failed run whose folder was removed
        ([begun(CELL, 1), FAILED, begun(CELL, 2)], 2, None, None),
        ([begun(CELL, 1), begun(CELL, 1)], 1, "2 starts, 0 resumed, 0 failed on record, 1 removed", "deviation"),
        # Deterministic, and made with the same: any number of them gives the same bits.
        ([begun(CELL, 1, made_with="n"), begun(CELL, 1)], 1, "1 counts, and 1 may", "deviation"),
        ([begun(CELL, 1)] * 28, 1, "28 starts, 0 resumed, 0 failed on record, 27 removed", "deviation"),
        (
            [begun(CELL, 1), begun(CELL, 2, 9), begun(CELL, 1, made_with="n"), begun(CELL, 1)],
            1,
            "4 starts, 1 resumed, 0 failed on record, 2 removed",
            "inadmissible",
        ),
        (
            [begun(CELL, 1), begun(CELL, 2), begun(CELL, 3)],
            1,
            "3 starts, 0 resumed, 0 failed on record, 3 removed",
            "deviation",
        ),
    ],
)
def test_starts_are_counted_against_seals_resumptions_and_failures(
    lines: list[Line], attempts: int, words: str | None, severity: str | None
) -> None:
    registration, evidence = make_evidence(small_study())
    evidence = with_run(evidence, CELL, attempts=attempts)
    events = story(evidence, *lines)
    for event, body in events:
        if event == "sealed" and (body["variant"], body["seed"]) == CELL:
            body["attempts"] = attempts
    evidence = replace(evidence, ledger=chain(registration, events))
    check = failed(registration, evidence).get(LOST)
    assert (check is None) == (words is None)
    if check is not None:
        assert words is not None and words in check.found
        assert check.severity == severity


@pytest.mark.parametrize("event", ["started", "failed", "sealed", "imported"])
@pytest.mark.parametrize("body", [{}, {"variant": CELL[0]}, {"variant": CELL[0], "seed": "x", "attempt": "y"}])
def test_an_entry_that_lacks_its_parts_stops_no_check(event: Any, body: dict[str, Any]) -> None:
    registration, evidence = make_evidence(small_study())
    before = len(audit(AuditContext(registration, evidence)))
    assert len(audit(AuditContext(registration, with_entry(registration, evidence, event, body)))) >= before


def test_a_start_that_does_not_say_which_attempt_it_was_counts_as_one_removed() -> None:
    registration, _ = make_evidence(small_study())
    unsaid = ("started", {"variant": CELL[0], "seed": CELL[1], "made_with": "m"})
    ledger = chain(registration, [begun(CELL, 1), unsaid, begun(CELL, 1)])
    assert starts_of(registration, ledger)[CELL].removed == 1
    assert starts_of(registration, chain(registration, [begun(CELL, 1), unsaid, unsaid]))[CELL].removed == 2


def test_random_honest_starts_are_never_removed_ones_and_removed_ones_always_are() -> None:
    rng = Random(12)  # noqa: S311
    registration, evidence = make_evidence(small_study())
    seal = sealed_body(next(run for run in evidence.runs if (run.variant, run.seed) == CELL))
    for _ in range(200):
        attempt, lines = 0, []
        for _ in range(rng.randrange(6)):
            happens = rng.choice(["kill", "resume", "fail", "early kill"])
            attempt += 1
            if happens != "early kill":  # one before the ledger took the start
                lines.append(begun(CELL, attempt, 10 * attempt if happens == "resume" and attempt > 1 else None))
            if happens == "fail":
                lines.append(FAILED)
        lines += [begun(CELL, attempt + 1), ("sealed", seal | {"attempts": attempt + 1})]
        assert starts_of(registration, chain(registration, lines))[CELL].removed == 0
        removed = rng.randrange(1, 5)
        shopped = [*[begun(CELL, 1)] * (removed + 1), ("sealed", seal)]
        assert starts_of(registration, chain(registration, shopped))[CELL] == Starts(
            made=removed + 1, removed=removed, lost=removed, with_values=removed, made_with={"m"}
        )


def test_lost_starts_count_unless_the_ledger_says_that_they_had_no_claimed_value() -> None:
    registration, evidence = make_evidence(small_study())
    seal = sealed_body(next(run for run in evidence.runs if (run.variant, run.seed) == CELL))

    def again(attempt: int, left: bool | None = None, resumed_from: int | None = None) -> Line:
        event, body = begun(CELL, attempt, resumed_from)
        return event, body if left is None else body | {"left_values": left}

    def with_values(*lines: Line, **sealed: Any) -> int:
        return starts_of(registration, chain(registration, [*lines, ("sealed", seal | sealed)]))[CELL].with_values

    quiet: Line = ("failed", FAILED[1] | {"left_values": False})
    assert with_values(again(1), attempts=1) == 0
    assert with_values(again(1), again(2, left=True), attempts=2) == 1
    assert with_values(again(1), again(2, left=False), attempts=2) == 0
    assert with_values(again(1), again(2), attempts=2) == 1  # no word of it says nothing
    assert with_values(again(1), again(3, left=False), attempts=3) == 1  # the second cleared away what the first left
    assert with_values(again(1), FAILED, again(2, left=False), attempts=2) == 1
    assert with_values(again(1), quiet, again(2, left=False), attempts=2) == 0
    assert with_values(again(1), quiet, again(1), attempts=1) == 0
    assert with_values(again(1), again(1), attempts=1) == 1
    assert with_values(again(1), FAILED, again(2, resumed_from=4), attempts=2) == 0
    assert with_values(again(1), again(2, resumed_from=4), attempts=2, redrawn=1) == 1


def test_an_import_in_place_of_starts_names_them_and_keeps_the_verdict() -> None:
    registration, evidence = make_evidence(small_study())
    events = story(evidence, begun(CELL, 1), begun(CELL, 2, made_with="n"))
    events = [
        ("imported", body | {"bound": True, "note": "x"})
        if event == "sealed" and (body["variant"], body["seed"]) == CELL
        else (event, body)
        for event, body in events
    ]
    check = failed(registration, replace(evidence, ledger=chain(registration, events)))[LOST]
    assert (
        check.severity == "deviation"
        and "2 starts, 0 resumed, 0 failed on record, 2 replaced by an import" in check.found
    )


def dated(entries: tuple[Entry, ...], hours: dict[int, float]) -> tuple[Entry, ...]:
    """The entries with some of them later or earlier. The chain is not what is looked at here."""
    return tuple(
        entry.model_copy(
            update={"at": (datetime.fromisoformat(entry.at) + timedelta(hours=hours.get(entry.index, 0))).isoformat()}
        )
        for entry in entries
    )


def test_times_that_run_back_are_deviations_and_clocks_that_differ_are_not() -> None:
    registration, evidence = make_evidence(small_study())
    assert not {FORWARD, BEGUN} & failed(registration, evidence).keys()
    assert FORWARD not in failed(registration, replace(evidence, ledger=dated(evidence.ledger, {5: -9 / 60})))
    check = failed(registration, replace(evidence, ledger=dated(evidence.ledger, {5: -3})))[FORWARD]
    assert check.severity == "deviation" and "entry 5 (sealed) at " in check.found and check.found.startswith("1: ")
    assert FORWARD not in failed(registration, replace(evidence, ledger=dated(evidence.ledger, {0: -30})))


def test_a_run_that_began_before_its_registration_is_inadmissible_and_an_import_is_not() -> None:
    registration, evidence = make_evidence(small_study())
    early = with_run(evidence, CELL, started_at="2026-05-04T12:00:00+00:00")
    check = failed(registration, early)[BEGUN]
    assert check.severity == "inadmissible" and "layernorm seed 2 started at 2026-05-04T12:00:00+00:00" in check.found
    near = with_run(evidence, CELL, started_at="2026-05-04T13:15:00+00:00")
    assert BEGUN not in failed(registration, near)
    run = next(run for run in early.runs if (run.variant, run.seed) == CELL)
    brought = with_entry(registration, early, "imported", sealed_body(run) | {"bound": True, "note": "x"})
    assert BEGUN not in failed(registration, brought)


def test_a_registered_number_of_lost_starts_is_judged_by() -> None:
    named = small_study(analysis={"most_lost_starts": 0})
    assert named.model_dump(mode="json")["analysis"]["most_lost_starts"] == 0
    registration, evidence = make_evidence(named)
    events = story(evidence, begun(CELL, 1), begun(CELL, 2))
    evidence = replace(with_run(evidence, CELL, attempts=2), ledger=chain(registration, events))
    assert failed(registration, evidence)[LOST].severity == "inadmissible"


def test_check_names_registered_studies_with_the_same_runs_and_none_with_new_seeds(house: Attacked) -> None:
    house.register(seeds=[1, 2])
    other = house.write(study="other", seeds=[2, 3], hypotheses=CLAIM)
    said = " ".join(CliRunner().invoke(app, ["check", str(other)]).output.split())
    assert "2 arms (slow and fast) with seeds 2 are runs of 'own' too (registered, 2026-01-02" in said
    third = house.write(study="third", seeds=[7, 8])
    assert "too (" not in CliRunner().invoke(app, ["check", str(third)]).output
    fourth = house.write(study="fourth", seeds=[1, 2], base={"lr": 0.2, "steps": 4})
    assert "1 arm (fast)" in " ".join(CliRunner().invoke(app, ["check", str(fourth)]).output.split())


def test_earlier_decisions_are_in_the_report_and_the_first_has_none() -> None:
    registration, evidence = make_evidence(small_study())
    decision = decide(registration, evidence)
    first = with_entry(registration, evidence, "decided", {"status": "decided", "verdict": "keep none"})
    again = with_entry(registration, first, "decided", {"status": "decided", "verdict": "adopt rmsnorm"})

    def text(found: Evidence, head: str) -> str:
        return repr(deviations_section(ReportContext(decision, registration, found, head, "2026-05-04T14:00:00+00:00")))

    assert "Earlier decisions" not in text(first, first.ledger[-1].sha256)
    at = first.ledger[-1].index
    for found in (first, again):  # as it is decided, and as it is reported again
        said = text(found, again.ledger[-1].sha256)
        assert f"Earlier decisions of this registration: entry {at} (2026-05-04" in said and "keep none)" in said
        assert "adopt rmsnorm)" not in said
