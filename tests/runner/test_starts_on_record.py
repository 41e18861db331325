"""Every start of a run is in the ledger, whatever its record says; one that drew nothing costs nothing."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from killed_at_entry import WHEN
from launchers import entries
from own_trainer import AT, OwnHouse

import ablate
from ablate.judge.audit.history import starts_under
from ablate.records.store import RunFolder
from ablate.runner.child import Process, start_program
from ablate.runner.logbook import Logbook
from ablate.runner.messages import said
from ablate.runner.process import held
from ablate.runner.progress import Tally
from prereg.errors import RunError
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry, FailedEntry, RunStartedEntry, SealedEntry
from prereg.registry.paths import Root
from prereg.registry.plan import CommandSpec, plan
from prereg.registry.registration import Registration

pytestmark = pytest.mark.usefixtures("no_reports")

CELL = ("slow", 1)
ONE_GO = "every run was made in one go"
NONE_LOST = "no start of a run was lost before its seal"


class Silent:
    """A watcher that shows nothing."""

    def note(self, text: str) -> None: ...


def logbook(house: OwnHouse, registration: Registration) -> Logbook:
    """What one call knows of the ledger."""
    root = Root(house.path.resolve())
    watcher: Any = Silent()
    return Logbook(
        root=root,
        registration=registration,
        ledger=Ledger(root.ledger),
        now=lambda: AT,
        watcher=watcher,
        tally=Tally(planned=6, steps_planned=0),
    )


def spec_of(registration: Registration) -> CommandSpec:
    (spec,) = (spec for spec in plan(registration) if spec.cell == CELL)
    assert isinstance(spec, CommandSpec)
    return spec


def queue_here(house: OwnHouse, registration: Registration, *, unbegun: bool = False) -> None:
    """Put the next start of the run on record as a call on this machine does, and go no further.

    What is on the disk then is what somebody leaves who kills the run, writes `queued` into run.json and deletes what
    it had recorded.
    """
    book, spec = logbook(house, registration), spec_of(registration)
    if unbegun:
        book.unbegun.add(spec.cell)
    folder = book.folder(spec)
    with held(folder):
        book.log_start(spec, book.queue(spec, book.place("cpu")))


def starts_of_run(house: OwnHouse) -> list[RunStartedEntry]:
    return [entry for entry in entries(house) if isinstance(entry, RunStartedEntry) and entry.cell == CELL]


def deviations(house: OwnHouse) -> dict[str, str]:
    return {check.name: check.found for check in ablate.decide(house.study).decision.deviations}


def test_a_queued_run_whose_start_is_in_the_ledger_gets_a_second_start(own_house: OwnHouse) -> None:
    registration = own_house.register()
    queue_here(own_house, registration)
    assert ablate.run(own_house.study).summary.complete
    assert [(entry.attempt, entry.left_values) for entry in starts_of_run(own_house)] == [(1, None), (2, None)]
    found = deviations(own_house)
    assert "slow seed 1: 2 attempts, 1 begun again from the first step" in found[ONE_GO]
    assert "slow seed 1: 2 starts" in found[NONE_LOST] and "1 lost with a value of a claimed metric" in found[NONE_LOST]


def test_two_such_starts_leave_no_verdict(own_house: OwnHouse) -> None:
    registration = own_house.register()
    for _ in range(2):
        queue_here(own_house, registration)
    assert ablate.run(own_house.study).summary.complete
    assert [entry.attempt for entry in starts_of_run(own_house)] == [1, 2, 3]
    decided = ablate.decide(own_house.study).decision
    lost = next(check for check in decided.checks if check.name == NONE_LOST)
    assert decided.status == "inadmissible" and not lost.passed and lost.severity == "inadmissible"


def test_within_one_call_a_start_that_found_no_maker_is_entered_once(own_house: OwnHouse) -> None:
    registration = own_house.register()
    queue_here(own_house, registration)
    queue_here(own_house, registration, unbegun=True)
    assert [entry.attempt for entry in starts_of_run(own_house)] == [1]


def test_a_start_here_is_no_hand_out_and_a_hand_out_is_taken_over_on_record(own_house: OwnHouse) -> None:
    registration = own_house.register()
    spec, book = spec_of(registration), logbook(own_house, registration)
    # Handed out twice it waits, and is one start.
    for _ in range(2):
        book.hand_out([spec], "cpu", launcher="commands")
    assert [(entry.attempt, entry.launcher) for entry in starts_of_run(own_house)] == [(1, "commands")]
    # Made here, it is entered as the same attempt; once more, as another one.
    queue_here(own_house, registration)
    assert [(entry.attempt, entry.taken_over) for entry in starts_of_run(own_house)] == [(1, False), (1, True)]
    assert starts_under([registration.sha256], entries(own_house))[CELL].made == 1
    queue_here(own_house, registration)
    assert starts_of_run(own_house)[-1].attempt == 2
    # And so it is where it is handed out after a start here.
    logbook(own_house, registration).hand_out([spec], "cpu", launcher="commands")
    assert [(entry.attempt, entry.launcher) for entry in starts_of_run(own_house)][2:] == [(2, None), (3, "commands")]
    assert starts_under([registration.sha256], entries(own_house))[CELL].with_values == 2


def test_runs_that_were_handed_out_and_are_made_here_have_no_deviation(own_house: OwnHouse) -> None:
    own_house.register()
    assert len(ablate.plan_commands(own_house.study)) == 6
    assert ablate.run(own_house.study).summary.complete
    assert len(starts_of_run(own_house)) == 2 and not deviations(own_house)


def test_a_record_edited_to_queued_is_another_attempt_of_train(own_house: OwnHouse) -> None:
    own_house.script("raise SystemExit(3)")
    registration = own_house.register()
    assert own_house.carry_out(registration, *CELL)[0].attempts == 1
    record = own_house.run_folder(*CELL) / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"status": "queued", "error": None}))
    shutil.rmtree(own_house.run_folder(*CELL) / "work")
    assert own_house.carry_out(registration, *CELL)[0].attempts == 2


def started(attempt: int, **changes: Any) -> RunStartedEntry:
    return RunStartedEntry(
        study="own", registration="r", at=AT, variant="slow", seed=1, attempt=attempt, recipe_sha256="x", **changes
    )


def failed(**changes: Any) -> FailedEntry:
    fields = {"error": "no", "left_values": False} | changes
    return FailedEntry(study="own", registration="r", at=AT, variant="slow", seed=1, **fields)


def sealed(attempts: int) -> SealedEntry:
    hashes = dict.fromkeys(("metrics_sha256", "outcome_sha256", "run_sha256"), "x")
    return SealedEntry(
        study="own", registration="r", at=AT, variant="slow", seed=1, status="done", attempts=attempts, **hashes
    )


@pytest.mark.parametrize(
    ("history", "made", "lost", "with_values"),
    [
        ([started(1), failed(before_start=1), started(1), sealed(1)], 1, 0, 0),
        ([started(1), failed(before_start=1), started(1), failed(before_start=1), started(1), sealed(1)], 1, 0, 0),
        ([started(1), failed(before_start=1)], 0, 0, 0),
        # A failure that names another start than the last one takes none back.
        ([started(1), failed(before_start=2), started(2, left_values=False), sealed(2)], 2, 1, 0),
        ([started(1), failed(), failed(before_start=2), started(2, left_values=False), sealed(2)], 2, 1, 0),
        # What the start before it had recorded stays lost.
        (
            [started(1), started(2, left_values=True), failed(before_start=2),
             started(2, left_values=False), sealed(2)], 2, 1, 1,
        ),
        # A start that resumed the run, and is begun once more.
        (
            [started(1), started(2, resumed_from=5), failed(before_start=2), started(2, resumed_from=5), sealed(2)],
            2, 0, 0,
        ),
        # One that really began is no longer free.
        ([started(1), failed(before_start=1), started(1), started(1), sealed(1)], 2, 1, 1),
        # Taken over only from a launcher, and only the same attempt.
        ([started(1, launcher="ray"), started(1, taken_over=True), sealed(1)], 1, 0, 0),
        ([started(1), started(1, taken_over=True), sealed(1)], 2, 1, 1),
        ([started(1, launcher="ray"), started(1, taken_over=True), started(1, taken_over=True), sealed(1)], 2, 1, 1),
    ],
)  # fmt: skip
def test_what_starts_count(history: Sequence[Entry], made: int, lost: int, with_values: int) -> None:
    starts = starts_under(["r"], history).get(CELL)
    counts = (0, 0, 0) if starts is None else (starts.made, starts.lost, starts.with_values)
    assert counts == (made, lost, with_values)


def test_a_program_that_cannot_be_started_costs_no_attempt(own_house: OwnHouse) -> None:
    program = own_house.path.parent / "bin" / "python"
    program.parent.mkdir()
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    registration = own_house.register(command=[str(program), "train.py"])
    assert not ablate.run(own_house.study).summary.sealed
    failures = [entry for entry in entries(own_house) if isinstance(entry, FailedEntry)]
    assert failures and all(entry.before_start == 1 for entry in failures)
    assert all(
        "bin/python' cannot be started: the interpreter in its first line is missing" in entry.error
        for entry in failures
    )
    program.unlink()
    program.symlink_to(sys.executable)
    assert ablate.run(own_house.study).summary.complete
    seals = [entry for entry in entries(own_house) if isinstance(entry, SealedEntry)]
    assert len(seals) == 6 and all(entry.attempts == 1 and not entry.without_start for entry in seals)
    starts = starts_under([registration.sha256], entries(own_house))
    assert all((of_run.made, of_run.lost) == (1, 0) for of_run in starts.values())
    assert not deviations(own_house)


def test_a_lie_that_a_run_failed_before_its_start_is_an_attempt(own_house: OwnHouse) -> None:
    """Who kills a run after a value cannot call it one that never began: the ledger has no such failure."""
    registration = own_house.register()
    queue_here(own_house, registration)
    record = own_house.run_folder(*CELL) / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"status": "failed", "error": "cannot be started"}))
    queue_here(own_house, registration)
    assert [entry.attempt for entry in starts_of_run(own_house)] == [1, 2]


def without_home(words: Sequence[str], home: Path, environment: Mapping[str, str]) -> Process:
    home.rmdir()
    return start_program(words, home, environment)


def no_process(words: Sequence[str], home: Path, environment: Mapping[str, str]) -> Process:
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def test_a_missing_folder_is_not_called_a_missing_program(own_house: OwnHouse) -> None:
    registration = own_house.register()
    record, ended = own_house.carry_out(registration, *CELL, start=without_home)
    assert f"the folder in which '{sys.executable}' is to be started cannot be entered: " in ended
    assert f"{CELL[0]}/{CELL[1]}/work (No such file or directory)" in ended and record.status == "failed"
    assert own_house.carry_out(registration, *CELL)[1] == "ended done: "


def test_a_fork_that_fails_says_so(own_house: OwnHouse) -> None:
    _, ended = own_house.carry_out(own_house.register(), *CELL, start=no_process)
    assert "no process can be started (Resource temporarily unavailable): end others, or raise the limit" in ended


@contextmanager
def no_room_for_records() -> Iterator[None]:
    """A disk without room for run.json, as this process sees it."""
    open_file = Path.open

    def without_room(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if path.name.startswith(".run.json") and "w" in mode:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return open_file(path, mode, *rest, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "open", without_room)
        yield


def test_a_first_record_that_cannot_be_written_is_one_mistake(
    own_house: OwnHouse, capfd: pytest.CaptureFixture[str]
) -> None:
    own_house.register()
    with no_room_for_records(), pytest.raises(RunError) as caught:
        ablate.run(own_house.study)
    assert caught.value.found.endswith("/slow/1/run.json cannot be written: No space left on device")
    assert "room for the record of a run" in caught.value.required and "free space" in caught.value.fix
    assert "Traceback" not in "".join(capfd.readouterr())
    assert [path.name for path in own_house.run_folder(*CELL).iterdir()] == [".lock"]
    assert not [entry for entry in entries(own_house) if isinstance(entry, RunStartedEntry | FailedEntry)]
    assert ablate.run(own_house.study).summary.complete and not deviations(own_house)


def test_a_record_that_cannot_be_written_leaves_what_the_attempt_before_had_recorded(own_house: OwnHouse) -> None:
    own_house.script("open('metrics.jsonl', 'w').write('{\"step\": 1, \"val/loss\": 2.0}\\n'); raise SystemExit(3)")
    registration = own_house.register()
    own_house.carry_out(registration, *CELL)
    metrics = own_house.run_folder(*CELL) / "work" / "metrics.jsonl"
    with no_room_for_records(), pytest.raises(OSError, match="No space left"):
        queue_here(own_house, registration)
    assert metrics.is_file()
    queue_here(own_house, registration)
    (start,) = starts_of_run(own_house)
    assert start.attempt == 2 and start.left_values is True


def test_a_full_disk_promises_a_checkpoint_only_where_there_is_one(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "run.json")
    (tmp_path / "work").mkdir()
    assert said(full, RunFolder(tmp_path)).endswith("and run again: the run begins at its first step")
    (tmp_path / "work" / "resumable").touch()
    assert said(full, RunFolder(tmp_path)).endswith("and run again: the run resumes from what it saved last")


@pytest.mark.slow
@pytest.mark.parametrize("when", WHEN)
def test_a_kill_next_to_the_entry_of_a_start_loses_no_verdict(own_house: OwnHouse, when: str) -> None:
    own_house.register()
    # The first `started` is that of the call.
    script = Path(__file__).parents[1] / "killed_at_entry.py"
    words = [str(script), "started", "3", when, "run", str(own_house.study), "--jobs", "1"]
    killed = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert ablate.run(own_house.study).summary.complete
    starts = starts_under({entry.registration for entry in entries(own_house)}, entries(own_house))
    # Only a start that is on record, and of which nobody can say that it did not begin, counts.
    on_record = when in ("unended", "after")
    assert sum(of_run.lost for of_run in starts.values()) == on_record
    assert set(deviations(own_house)) == ({ONE_GO, NONE_LOST} if on_record else set())
    assert ablate.decide(own_house.study).decision.gives_verdict
