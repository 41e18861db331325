"""A study's own metric that never ends: ended at its registered limit, the run failed, the others made."""

from __future__ import annotations

import json
import signal
import threading
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from conftest import House
from test_own_metrics import TOKENS, WORST, own_document, small

import ablate as api
from ablate.evaluation.user_metrics import MetricSource, measure_own
from ablate.records.store import RunFolder
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from prereg.documents.sentences import say
from prereg.errors import EvidenceError, SpecError
from prereg.metrics.user_code import Overdue, at_most
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.study.measure import OwnMetric
from prereg.study.spec import study_from_document


def asked(folder: Path, body: str, limit_s: float = 0.2) -> float:
    (folder / "mine.py").write_text(f"import time\ndef worst(view):\n{body}", encoding="utf-8")
    metric = OwnMetric.model_validate({**WORST, "limit_s": limit_s})
    source = MetricSource(metric, folder / "mine.py", (folder / "mine.py").read_bytes())
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


@pytest.mark.slow
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


def test_a_limit_within_a_limit_hears_its_own_alarm_alone() -> None:
    def outer() -> float:
        with pytest.raises(Overdue):
            at_most(0.05, lambda: time.sleep(60))
        return at_most(30.0, lambda: 2.5)

    assert at_most(60.0, outer) == 2.5


@pytest.mark.slow
def test_an_alarm_just_when_the_work_ends_leaves_handler_and_timer_as_they_were() -> None:
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


LIMIT_S = 2.0
"""Far more than the metric of the other arm takes, on a machine that is busy too."""


def limited(**changes: Any) -> dict[str, Any]:
    """The tiny study; the metric of one arm never ends."""
    return own_document(measure={"every": 30, "own": [{**WORST, "limit_s": LIMIT_S}]}, **changes)


@pytest.mark.slow
def test_a_metric_that_does_not_end_fails_its_run_alone_and_says_why(house: House) -> None:
    code = [
        "import time",
        "def worst(view):",
        "    if view.model.config.embedding_norm != 'none':",
        "        time.sleep(600)",
        "    return 1.0",
    ]
    (house.path / "studies" / "mine.py").write_text("\n".join(code) + "\n")
    study, stream = house.write(limited()), StringIO()
    summary = api.run(study, RunOptions(slots=1), workspace=api.Workspace(console=PlainWatcher(stream))).summary
    assert (summary.sealed, len(summary.failed)) == (2, 2)
    assert all("own/worst took longer than its limit of 2 s" in one for one in summary.failed)
    assert "died" not in stream.getvalue(), "it is not tried again"
    records = [RunFolder(path.parent).read_record() for path in house.path.glob("data/runs/*/*/*/*/run.json")]
    ends = {(record.variant, record.status, "limit of 2 s" in str(record.error)) for record in records if record}
    assert ends == {("none", "done", False), ("layernorm", "failed", True)}
    failed = [entry for entry in Ledger(Root(house.path).ledger).entries() if entry.event == "failed"]
    assert [entry.variant for entry in failed] == ["layernorm"] * 2 and "limit_s" in failed[0].error


def test_a_limit_is_an_hour_unless_the_study_says_otherwise_and_then_its_words_say_so() -> None:
    plain = study_from_document(own_document())
    assert plain.measure.own[0].limit_s == 3600.0
    assert "at the last step):" in say("recorded", plain)
    strict = study_from_document(limited())
    assert study_from_document(json.loads(strict.model_dump_json())) == strict
    assert "own/worst (mine:worst, at the last step, within 2 s)" in say("recorded", strict)
    with pytest.raises(SpecError):
        study_from_document(own_document(measure={"every": 10, "own": [{**WORST, "limit_s": 0}]}))
