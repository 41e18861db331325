"""A study's own metric that never ends: ended at its registered limit, the run failed, the others made."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from conftest import WARM, House
from test_own_metrics import TOKENS, WORST, own_document, small

from ablate import api
from ablate.evaluation.user_metrics import Source, measure_own
from ablate.records.store import RunFolder
from ablate.runner.messages import Measuring, Message
from ablate.runner.options import RunOptions
from ablate.runner.processes import rerun
from ablate.runner.progress import PlainWatcher
from prereg.documents.measures import recorded
from prereg.errors import EvidenceError, RunError, SpecError
from prereg.metrics import user_code as limit
from prereg.metrics.user_code import EXIT_STATUS, Overdue, at_most
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.plan import plan
from prereg.registry.registration import load_registration
from prereg.study.measure import OwnMetric
from prereg.study.spec import study_from_document


def asked(folder: Path, body: str, limit_s: float = 0.2) -> float:
    (folder / "mine.py").write_text(f"import time\ndef worst(view):\n{body}", encoding="utf-8")
    metric = OwnMetric.model_validate({**WORST, "limit_s": limit_s})
    source = Source(metric, folder / "mine.py", (folder / "mine.py").read_bytes())
    return measure_own((source,), small(), TOKENS, None, 7)["own/worst"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "    while True: pass\n",
        "    time.sleep(60)\n",
        # Swallowed as errors are, swallowed altogether, turned into another error, or simply too late.
        "    while True:\n        try: time.sleep(60)\n        except Exception: pass\n",
        "    try: time.sleep(60)\n    except BaseException: return 1.0\n",
        "    try: time.sleep(60)\n    finally: raise KeyError('x')\n",
        "    end = time.monotonic() + 0.5\n"
        "    while time.monotonic() < end:\n        try: time.sleep(0.5)\n        except BaseException: pass\n"
        "    return 1.0\n",
    ],
)
def test_what_takes_longer_than_its_limit_is_interrupted_and_gives_no_number(tmp_path: Path, body: str) -> None:
    began = time.monotonic()
    with pytest.raises(EvidenceError, match=r"own/worst took longer than its limit of 0\.2 s") as caught:
        asked(tmp_path, body)
    assert time.monotonic() - began < 5.0 and "limit_s" in caught.value.fix


def test_a_module_that_does_not_end_is_interrupted_too(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="longer than its limit"):
        asked(tmp_path, "    return 1.0\n\ntime.sleep(60)\n")


def test_what_ends_in_time_is_left_alone_and_so_is_an_alarm_of_somebody_else(tmp_path: Path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    mine = signal.getsignal(signal.SIGALRM)
    earlier = signal.setitimer(signal.ITIMER_REAL, 0.4)
    try:
        assert asked(tmp_path, "    return 2.5\n", limit_s=0.3) == 2.5
        with pytest.raises(EvidenceError, match="raised KeyError"):
            asked(tmp_path, "    raise KeyError('x')\n", limit_s=30.0)
        assert signal.getsignal(signal.SIGALRM) is mine and heard == []
        time.sleep(0.6)
        assert heard == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *earlier)


def test_outside_the_main_thread_lateness_is_told_when_it_ends() -> None:
    said: list[str] = []

    def work() -> None:
        try:
            at_most(0.05, lambda: time.sleep(0.2))
        except Overdue:
            said.append("overdue")
        at_most(60.0, lambda: said.append("in time"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert said == ["overdue", "in time"]


class Clock:
    """The time as the limit reads it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Alarms:
    """Delivers an alarm that is due between two given steps of the interpreter, as a signal is: by a handler's call."""

    def __init__(self, clock: Clock, *, within: tuple[str, ...], at: int, late_s: float, stays: bool = False) -> None:
        self.clock, self.files, self.at, self.late_s, self.stays = clock, within, at, late_s, stays
        self.points = 0
        self.rung: list[str] = []

    def __call__(self, frame: FrameType, event: str, _arg: object) -> Any:
        handler = signal.getsignal(signal.SIGALRM)
        if frame.f_code.co_filename not in self.files or frame.f_code.co_name in ("interrupt", "monotonic"):
            return None
        frame.f_trace_opcodes = True
        self.points += 1
        if self.points == self.at and callable(handler):
            self.rung.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
            self.clock.now += self.late_s
            try:
                handler(signal.SIGALRM, frame)
            finally:
                if not self.stays:
                    self.clock.now -= self.late_s
        return self


def traced(alarms: Alarms, work: Callable[[], float], seconds: float = 60.0) -> float:
    earlier = sys.gettrace()
    sys.settrace(alarms)
    try:
        return at_most(seconds, work)
    finally:
        sys.settrace(earlier)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """A clock that a test moves, and an alarm of somebody else, who is to find everything as it was."""
    heard: list[int] = []
    made = Clock()
    monkeypatch.setattr(limit, "time", made)
    before = signal.signal(signal.SIGALRM, lambda number, _frame: heard.append(number))
    mine = signal.getsignal(signal.SIGALRM)
    earlier = signal.setitimer(signal.ITIMER_REAL, 500.0)
    try:
        yield made
        assert signal.getsignal(signal.SIGALRM) is mine
        time.sleep(0.01)
        # By this clock hours may have passed, and then it has rung.
        assert heard or 400.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 500.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *earlier)


def in_time() -> float:
    return 2.5


def test_an_alarm_at_any_step_outside_the_work_leaves_what_was_in_time_as_it_is(clock: Clock) -> None:
    files = (limit.__file__, signal.__file__, contextlib.__file__)
    whole = Alarms(clock, within=files, at=-1, late_s=1000.0)
    assert traced(whole, in_time) == 2.5
    rung: list[str] = []
    for point in range(1, whole.points + 1):
        alarms = Alarms(clock, within=files, at=point, late_s=1000.0)
        assert traced(alarms, in_time) == 2.5, alarms.rung
        rung += alarms.rung
    assert len(rung) > 100
    # CPython 3.12 traces no instruction of a generator that was resumed, nor of what it calls.
    generators = set() if sys.version_info[:2] == (3, 12) else {"_under_alarm", "_carried_out", "signal"}
    assert {"at_most", *generators} <= {one.split(":")[0] for one in rung}


def test_an_alarm_at_any_step_of_the_work_is_lateness_and_before_its_time_it_is_nothing(clock: Clock) -> None:
    def work() -> float:
        found = [float(one) for one in range(3)]
        return sum(found)

    files = (__file__,)
    whole = Alarms(clock, within=files, at=-1, late_s=1000.0)
    assert traced(whole, work) == 3.0
    assert whole.points > 20
    for point in range(1, whole.points + 1):
        clock.now = 0.0
        with pytest.raises(Overdue):
            traced(Alarms(clock, within=files, at=point, late_s=1000.0, stays=True), work)
        assert traced(Alarms(clock, within=files, at=point, late_s=59.0), work) == 3.0


@pytest.mark.slow
def test_an_alarm_after_one_that_was_heard_changes_nothing_more(clock: Clock) -> None:
    files = (limit.__file__, signal.__file__, contextlib.__file__)

    def late() -> float:
        clock.now += 100.0
        raise KeyError("swallowed, whatever it is")

    whole = Alarms(clock, within=files, at=-1, late_s=0.0)
    with pytest.raises(Overdue):
        traced(whole, late)
    for point in range(1, whole.points + 1):
        clock.now = 0.0
        alarms = Alarms(clock, within=files, at=point, late_s=1000.0)
        with pytest.raises(Overdue) as caught:
            traced(alarms, late)
        assert isinstance(caught.value.__cause__, KeyError), alarms.rung


def test_alarms_that_ring_just_when_the_work_ends_are_late_or_not_and_nothing_else() -> None:
    """Real signals, around the end of the work: whatever comes is told by the clock, and everything is as it was."""
    before, found = signal.getsignal(signal.SIGALRM), {"in time": 0, "overdue": 0}
    left, _ = signal.getitimer(signal.ITIMER_REAL)  # pytest has one of its own
    for turn in range(400):

        def work(until: float = time.monotonic() + 1e-3 + (turn % 40 - 20) * 5e-6) -> float:
            while time.monotonic() < until:
                pass
            return 2.5

        try:
            assert at_most(1e-3, work) == 2.5
            found["in time"] += 1
        except Overdue:
            found["overdue"] += 1
        assert signal.getsignal(signal.SIGALRM) is before
        assert left - 60.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= left
    assert sum(found.values()) == 400 and found["overdue"] > 0


def test_a_limit_within_a_limit_hears_its_own_alarm_alone(clock: Clock) -> None:
    def outer() -> float:
        with pytest.raises(Overdue):
            at_most(1.0, inner)
        return at_most(30.0, in_time)

    def inner() -> float:
        clock.now += 2.0
        return 1.0

    assert at_most(60.0, outer) == 2.5


LIMIT_S = 2.0
"""Far more than the metric of the other arm takes, on a machine that is busy too."""


def limited(**changes: Any) -> dict[str, Any]:
    """The tiny study; the metric of one arm never ends."""
    return own_document(measure={"every": 30, "own": [{**WORST, "limit_s": LIMIT_S}]}, **changes)


def endless_house(house: House) -> Path:
    code = [
        "import ctypes",
        "def worst(view):",
        "    if view.model.config.embedding_norm != 'none':",
        # No signal is heard in there, and nobody else gets the interpreter: a deadlock in C.
        "        library, lock = ctypes.PyDLL(None), ctypes.create_string_buffer(64)",
        "        return library.pthread_mutex_lock(lock) or library.pthread_mutex_lock(lock)",
        "    return 1.0",
    ]
    (house.path / "studies" / "mine.py").write_text("\n".join(code) + "\n")
    return house.write(limited())


@pytest.mark.slow
def test_a_metric_that_nothing_interrupts_fails_its_run_alone_and_says_why(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The watchdog waits this long for what was interrupted, and nothing here hears an interruption.
    monkeypatch.setattr(WARM, "before", "from prereg.metrics import user_code\nuser_code.GRACE_S = 0.3")
    study, stream = endless_house(house), StringIO()
    summary = api.run(study, RunOptions(slots=1), watcher=PlainWatcher(stream)).summary
    assert (summary.sealed, len(summary.failed)) == (2, 2)
    assert all("own/worst took longer than its limit of 2 s" in one for one in summary.failed)
    assert "died" not in stream.getvalue(), "it is not tried again"
    root = Root(house.path)
    registration = load_registration(root, "tiny")
    assert registration is not None
    records = [RunFolder(path.parent).read_record() for path in house.path.glob("data/runs/*/*/*/*/run.json")]
    ends = {(record.variant, record.status, "limit of 2 s" in str(record.error)) for record in records if record}
    assert ends == {("none", "done", False), ("layernorm", "failed", True)}
    failed = [entry.body for entry in Ledger(root.ledger).entries() if entry.event == "failed"]
    assert [body["variant"] for body in failed] == ["layernorm"] * 2 and "limit_s" in str(failed[0]["error"])
    (log,) = [path.read_text() for path in house.path.glob("data/runs/*/*/worker-0.log")]
    assert "mine.py" in log and "in worst" in log, "how far it was"
    # A run made again by itself ends likewise.
    with pytest.raises(RunError, match="own/worst took longer than its limit"):
        rerun(plan(registration)[1], house.path / "again", root)


def test_only_an_own_metric_that_was_silent_for_its_limit_is_blamed_for_a_death() -> None:
    measuring = Measuring(metric="own/worst", limit_s=2.0)
    said = Message(event="progress", run_id="a", measuring=measuring)
    assert said.overdue(2.5, EXIT_STATUS) is not None
    assert said.overdue(1.5, EXIT_STATUS) is None
    assert said.overdue(2.5, -9) is None, "killed by somebody else"
    assert Message(event="progress", run_id="a").overdue(9.0, EXIT_STATUS) is None


def test_a_promise_without_a_limit_keeps_its_bytes_and_one_with_it_says_so() -> None:
    plain = study_from_document(own_document())
    (own,) = plain.model_dump(mode="json")["measure"]["own"]
    assert "limit_s" not in own and plain.measure.own[0].limit_s == 3600.0
    assert "at the last step):" in recorded(plain)
    strict = study_from_document(limited())
    assert strict.model_dump(mode="json")["measure"]["own"][0]["limit_s"] == LIMIT_S
    assert study_from_document(json.loads(strict.model_dump_json())) == strict
    assert "own/worst (mine:worst, at the last step, within 2 s)" in recorded(strict)
    with pytest.raises(SpecError):
        study_from_document(own_document(measure={"every": 10, "own": [{**WORST, "limit_s": 0}]}))
