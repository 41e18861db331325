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
from conftest import WARM, House
from test_own_metrics import TOKENS, WORST, own_document, small

from ablate import chain
from ablate.measure.limit import EXIT_STATUS, Overdue, at_most
from ablate.measure.own import Source, measure_own
from ablate.records.store import RunFolder
from ablate.run.again import make_again
from ablate.run.messages import Measuring, Message
from ablate.run.watch import PlainWatcher
from prereg.errors import EvidenceError, RunError, SpecError
from prereg.export.measures import recorded
from prereg.ledger import Ledger
from prereg.own import OwnMetric
from prereg.plan import plan
from prereg.registration import load_registration
from prereg.root import Root
from prereg.spec import study_from_document


def asked(folder: Path, body: str, limit_s: float = 0.2) -> float:
    (folder / "mine.py").write_text(f"import time\ndef worst(view):\n{body}", encoding="utf-8")
    metric = OwnMetric.model_validate({**WORST, "limit_s": limit_s})
    source = Source(metric, folder / "mine.py", (folder / "mine.py").read_bytes())
    return measure_own((source,), small(), TOKENS, None, 7)["own/worst"]


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
            with at_most(0.05):
                time.sleep(0.2)
        except Overdue:
            said.append("overdue")
        with at_most(60.0):
            said.append("in time")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert said == ["overdue", "in time"]


LIMIT_S = 2.0
"""Far more than the metric of the other arm takes, on a machine that is busy too."""


def limited(**changes: Any) -> dict[str, Any]:
    """The tiny study; the metric of one arm never ends."""
    return own_document(measure={"every": 30, "own": [{**WORST, "limit_s": LIMIT_S}]}, **changes)


def endless_house(house: House) -> Path:
    code = [
        "import itertools",
        "def worst(view):",
        "    if view.model.config.embedding_norm == 'none':",
        # No signal is heard in there, and nobody else gets the interpreter: an endless loop in C.
        "        return sum(itertools.repeat(0))",
        "    return 1.0",
    ]
    (house.path / "studies" / "mine.py").write_text("\n".join(code) + "\n")
    return house.write(limited())


def test_a_metric_that_nothing_interrupts_fails_its_run_alone_and_says_why(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The watchdog waits this long for what was interrupted, and nothing here hears an interruption.
    monkeypatch.setattr(WARM, "before", "from ablate.measure import limit\nlimit.GRACE_S = 0.3")
    study, stream = endless_house(house), StringIO()
    summary = chain.run(study, slots=1, watcher=PlainWatcher(stream)).summary
    assert (summary.sealed, len(summary.failed)) == (2, 2)
    assert all("own/worst took longer than its limit of 2 s" in one for one in summary.failed)
    assert "died" not in stream.getvalue(), "it is not tried again"
    root = Root(house.path)
    registration = load_registration(root, "tiny")
    assert registration is not None
    records = [RunFolder(path.parent).read_record() for path in house.path.glob("data/runs/*/*/*/*/run.json")]
    ends = {(record.variant, record.status, "limit of 2 s" in str(record.error)) for record in records if record}
    assert ends == {("layernorm", "done", False), ("none", "failed", True)}
    failed = [entry.body for entry in Ledger(root.ledger).entries() if entry.event == "failed"]
    assert [body["variant"] for body in failed] == ["none"] * 2 and "limit_s" in str(failed[0]["error"])
    (log,) = [path.read_text() for path in house.path.glob("data/runs/*/*/worker-0.log")]
    assert "mine.py" in log and "in worst" in log, "where it stood"
    # A run made again by itself ends likewise.
    with pytest.raises(RunError, match="own/worst took longer than its limit"):
        make_again(plan(registration)[0], house.path / "again", root)


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
