"""Random histories of a study, with the scheduler, the ledger and the records as they are, and no other process.

The process of a run is a thread at the other end of a real connection, and the user's trainer is a function that writes
what the script would. So a history takes a fraction of a second, and a death is at a chosen line rather than at a
chosen moment. Real processes are killed in test_own_trainer.py and test_run.py.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import IO, Any

import pytest
import yaml
from ledger_samples import enter
from own_trainer import OwnHouse, Stop
from pydantic import JsonValue

import ablate as api
from ablate.judge.verdict import Check
from ablate.notebook.results import Decided
from ablate.records import provenance as provenance_room
from ablate.records.outcome import outcome_hash
from ablate.records.rows import Row
from ablate.records.store import RunFolder, parquet_bytes
from ablate.reporting import document as document_room
from ablate.reporting import html as html_room
from ablate.reporting import markdown as markdown_room
from ablate.runner import process as process_room
from ablate.runner import scheduler as scheduler_room
from ablate.runner.messages import Message
from ablate.runner.options import RunOptions
from ablate.runner.pool import Maker
from ablate.runner.process import Place, Spec, make_run
from ablate.runner.progress import PlainWatcher, Tally
from ablate.study_status import status
from prereg.errors import StudyError
from prereg.registry import register as register_room
from prereg.registry.canon import canonical_bytes, sha256_bytes, sha256_file
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Event
from prereg.registry.paths import Root
from prereg.registry.register import register_study
from prereg.registry.registration import Pins, Registration
from prereg.study.command import pin_scripts
from prereg.study.load import load_study


class Killed(BaseException):
    """The death of a process, where no code of its own runs any more."""


@dataclass
class Luck:
    """What happens to the runs that are made from now on, by the number of the start: 0 is the next."""

    noise: int = 0
    """Seed of what the trainer draws besides its seed: an honest trainer has always the same."""
    dies: set[int] = field(default_factory=set)
    """Starts whose worker dies while the trainer works."""
    dies_after_seal: set[int] = field(default_factory=set)
    """Starts whose worker dies between the seal and its message."""
    fails: set[int] = field(default_factory=set)
    """Starts whose trainer ends with exit status 1."""
    late: bool = False
    """Whether a run that dies or fails has recorded its claimed value by then."""
    resumable: bool = False
    """Whether a trainer leaves its checkpoint."""
    same_seeds: bool = False
    """Whether the trainer ignores its seed."""
    stops_early: str = ""
    """The arm whose runs end after half of their steps."""
    writes_into: str = ""
    """ARM/SEED of another run, in whose folder every run leaves a record."""
    starts: int = 0


class FakeTrainer:
    """What `ablate.runner.child.Child` is to a run: here the script's work is done at once, by a function."""

    luck: Luck
    machine = 0
    """The number of the machine that runs are made on."""

    def __init__(self, given: tuple[Path, Mapping[str, str]], folder: Path) -> None:
        home, environment = given
        luck = self.luck
        start, luck.starts = luck.starts, luck.starts + 1
        config = json.loads(Path(environment["ABLATE_CONFIG"]).read_bytes())
        arm, seed = environment["ABLATE_VARIANT"], "" if luck.same_seeds else environment["ABLATE_SEED"]
        rng = Random(f"{arm} {seed} {luck.noise}")  # noqa: S311
        config["steps"] //= 2 if arm == luck.stops_early else 1
        rows = [(step, "train/loss", 3.0 - step / 10 + rng.gauss(0, 0.01)) for step in range(1, config["steps"] + 1)]
        final = 2.0 - config["lr"] + rng.gauss(0, 0.02)
        rows.append((config["steps"], "val/loss", final))
        if luck.resumable:
            (home / "resumable").touch()
        self.status = 0
        broken = start in luck.dies or start in luck.fails
        kept = rows[: config["steps"] // 2] if broken and not luck.late else rows
        lines = [json.dumps({"step": step, "metric": metric, "value": value}) for step, metric, value in kept]
        (home / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        if luck.writes_into:
            other = folder.parent.parent / luck.writes_into
            other.mkdir(parents=True, exist_ok=True)
            (other / "run.json").write_text("{}", encoding="utf-8")
        self.left: tuple[str, ...] = ()
        self.peak_memory_bytes = 2**20
        self.stderr = SimpleNamespace(last_lines=lambda: ["no memory left"])
        if start in luck.fails:
            self.status = 1
        if start in luck.dies:
            raise Killed

    def ended(self) -> int:
        return self.status

    def stop(self) -> None:
        """It has ended."""

    kill = stop

    def finish(self) -> int:
        return self.status


class FakeMaker(Maker):
    """A maker as its scheduler sees it: each run is a thread at the other end of a real connection."""

    def __init__(self, place: Place) -> None:
        here, self.there = socket.socketpair()
        super().__init__(here, is_ready=True)
        self.place, self.threads = place, list[threading.Thread]()

    def make(self, spec: Spec, folder: RunFolder, lock: IO[str], **_: Any) -> None:
        self.spec = spec
        thread = threading.Thread(target=self._make, args=(spec, folder, os.dup(lock.fileno())), daemon=True)
        self.threads.append(thread)
        thread.start()

    def _make(self, spec: Spec, folder: RunFolder, held: int) -> None:
        dies = FakeTrainer.luck.starts in FakeTrainer.luck.dies_after_seal
        last = Message(event="died", exit_status=-9)
        with suppress(Killed):
            ended = make_run(spec, folder, self.place, Stop(), lambda _: None, start=lambda _, *given: given)  # type: ignore[arg-type,return-value]
            last = last if dies else ended
        os.close(held)
        with suppress(OSError):
            self.there.sendall(last.model_dump_json(exclude_defaults=True).encode() + b"\n")
        if last.event == "died":
            self.there.close()


class FakePool:
    """The server that forks makers."""

    def __init__(self, _specs: Sequence[Spec], place: Place, _log: IO[str]) -> None:
        self.place, self.makers = place, list[FakeMaker]()
        self.connection, self._there = socket.socketpair()

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self._there.close()
        for maker in self.makers:
            for thread in maker.threads:
                thread.join()
            maker.there.close()

    def fork(self, _lane: int) -> FakeMaker:
        self.makers.append(FakeMaker(self.place))
        return self.makers[-1]


class Watcher(PlainWatcher):
    """Ends the whole process at a chosen one of its calls."""

    def __init__(self, dies_at: int | None, *, with_worker: bool = False) -> None:
        super().__init__(StringIO())
        self.left, self.with_worker = dies_at, with_worker

    def note(self, text: str) -> None:
        if self.with_worker and "died" in text:
            raise Killed

    def ended(self, run_id: str, message: Message) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed
        super().ended(run_id, message)

    def tick(self, tally: Tally) -> None:
        """Nobody looks on."""


def document(rng: Random, *, looks: bool) -> dict[str, Any]:
    """A study of two arms; its trainer is never executed, and its file is registered all the same."""
    seeds = 5 if looks else rng.choice([2, 3, 4])
    changes: dict[str, Any] = {"seeds": list(range(1, seeds + 1))}
    if looks:
        changes["stopping"] = {"looks": [3, 5], "spending": "obrien_fleming"}
    return changes


class History:
    """A repository with one registered study, and the time as it passes there."""

    def __init__(self, path: Path, rng: Random, *, looks: bool = False) -> None:
        self.house, self.rng = OwnHouse(path), rng
        self.clock = datetime.now(UTC) - timedelta(days=2)
        """Records hold the real time of their runs, which is later than that of every entry."""
        self.expected: set[str] = set()
        """Checks that may fail after what has happened."""
        self.luck = Luck()
        self.root = Root(path.resolve())
        self.sequential = looks
        loaded = load_study(self.house.write(**document(rng, looks=looks)))
        pins = pin_scripts(self.root, loaded.study)
        made = register_study(self.root, loaded, pins=Pins(scripts=pins), design=None, tool={}, at=self.now())
        self.registration: Registration = made[0]
        self.study = path / "studies" / "own.yaml"

    def now(self) -> str:
        self.clock += timedelta(seconds=self.rng.choice([1, 5, 60, 4000]))
        return self.clock.isoformat(timespec="seconds")

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.root.ledger)

    @property
    def runs(self) -> list[Path]:
        return sorted(path.parent for path in self.house.path.glob("data/runs/own/*/*/*/run.json"))

    def run(self, *, dies_at: int | None = None, with_worker: bool = False, **luck: Any) -> bool:
        """One call of `ablate run`; whether it lived to its end. It dies at a chosen end of a run, or with a worker."""
        self.luck = FakeTrainer.luck = Luck(**luck)
        try:
            api.run(
                self.study,
                RunOptions(slots=1),
                workspace=api.Workspace(clock=self.now, console=Watcher(dies_at, with_worker=with_worker)),
            )
        except Killed:
            return False
        return True

    def run_if_allowed(self, **luck: Any) -> None:
        """The same where it may be refused, for one who tries."""
        with suppress(StudyError):
            self.run(**luck)

    def decide(self) -> Decided:
        return api.decide(self.study, workspace=api.Workspace(clock=self.now))

    def failed_checks(self, decided: Decided) -> dict[str, Check]:
        return {check.name: check for check in decided.decision.checks if not check.passed}


AS_ALWAYS = {"pairs are matched", "device and library versions are known"}
"""Remarks on every study whose trainer is the user's own."""
AGAIN = "every run was made in one go"
RECOVERED = "every seal was reported by the run that made it"
MACHINES = "every run used the same processor and platform"
AMENDED = {"no amendment after runs started", "no amendment after outcomes were read"}


def train_honestly(history: History, most: int = 4) -> None:
    """Random mishaps, then the study to its end."""
    rng = history.rng
    for _ in range(rng.randrange(most)):
        at = rng.randrange(4)
        mishaps = [
            "fails",
            "worker dies",
            "all dies",
            "dies after seal",
            "torn ledger",
            "look at status",
            "other words",
            "other assumption",
            "other machine",
        ]
        happens = rng.choice(mishaps)
        if happens == "fails":
            history.run(fails={at}, resumable=rng.random() < 0.5)
            history.expected.add(AGAIN)
        elif happens == "worker dies":
            history.run(dies={at, at + 1} if rng.random() < 0.3 else {at}, resumable=rng.random() < 0.5)
            history.expected.add(AGAIN)
        elif happens == "dies after seal":
            history.run(dies_after_seal={at})
            history.expected.add(RECOVERED)
        elif happens == "all dies":
            if rng.random() < 0.5:
                history.run(dies_at=at)
            else:
                history.run(dies={at}, with_worker=True, resumable=rng.random() < 0.5)
            history.expected |= {AGAIN, RECOVERED}
        elif happens in MOVES:
            MOVES[happens](history)
        elif happens == "torn ledger":
            line = history.root.ledger.read_bytes().splitlines()[-1]
            with history.root.ledger.open("ab") as stream:
                stream.write(line[: rng.randrange(1, len(line) - 1)])
        else:
            status(history.study)
    assert history.run()


def reword(history: History) -> None:
    """Amend the title."""
    text = history.study.read_text(encoding="utf-8")
    history.study.write_text(text.replace("A trainer of", "A trainer which is of", 1), encoding="utf-8")
    if history.study.read_text(encoding="utf-8") != text:
        api.amend(history.study, reason="clearer words", workspace=api.Workspace(clock=history.now))


def change_machine(history: History) -> None:
    """Runs that are made from now on are made on another machine."""
    FakeTrainer.machine += 1
    history.expected.add(MACHINES)


def assume(history: History) -> None:
    """Amend what the design assumes of the noise: runs and verdict stay."""
    text = history.study.read_text(encoding="utf-8")
    document = yaml.safe_load(text) | {"assume": {"metrics": {"val/loss": {"sd": history.rng.uniform(0.0001, 0.001)}}}}
    history.study.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    api.amend(history.study, reason="another belief", workspace=api.Workspace(clock=history.now))
    history.expected |= AMENDED


MOVES: dict[str, Callable[[History], None]] = {
    "other words": reword,
    "other assumption": assume,
    "other machine": change_machine,
}


def decide_honestly(history: History) -> Decided:
    """To the verdict: of a sequential study over its looks."""
    decided = history.decide()
    while decided.decision.status == "continue":
        train_honestly(history, 2)
        decided = history.decide()
    if history.rng.random() < 0.3:
        decided = history.decide()
    if history.rng.random() < 0.3:
        api.report(history.study, workspace=api.Workspace(clock=history.now))
    if history.rng.random() < 0.3:
        moved = history.house.path.with_name("elsewhere")
        shutil.move(history.house.path, moved)
        history.house.path, history.root = moved, Root(moved.resolve())
        history.study = moved / "studies" / "own.yaml"
        decided = history.decide()
    return decided


def honest(path: Path, rng: Random) -> History:
    """A study without a lie, up to its verdict."""
    history = History(path, rng, looks=rng.random() < 0.25)
    train_honestly(history)
    return history


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers and trainers without a process."""
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
    monkeypatch.setattr(scheduler_room, "Pool", FakePool)
    monkeypatch.setattr(process_room, "Child", FakeTrainer)
    monkeypatch.setattr(FakeTrainer, "machine", 0)
    monkeypatch.setattr(provenance_room, "processor_name", lambda: f"processor {FakeTrainer.machine}")
    # Pages take most of a history, and are tested on their own; `verify` knows these by their hashes like any other.
    monkeypatch.setattr(document_room, "compose", lambda _context: None)
    monkeypatch.setattr(markdown_room, "render_markdown", lambda context, _document: f"{context.decision.status}\n")
    monkeypatch.setattr(html_room, "render_html", lambda context, _document: f"<p>{context.decision.status}</p>")


def sealed_run(history: History, arm: str | None = None) -> RunFolder:
    """One of the runs that have ended, at random."""
    runs = [path for path in history.runs if arm in (None, path.parent.name)]
    return RunFolder(history.rng.choice([path for path in runs if (path / "metrics.parquet").exists()]))


def reseal(history: History, folder: RunFolder, rows: list[Row], *, keep_outcome: bool) -> None:
    """Other values in a sealed record, with hashes that match in run.json and in a seal of the ledger."""
    record = folder.read_record()
    assert record is not None
    data = parquet_bytes(record, rows)
    folder.sealed_path.write_bytes(data)
    changes = {"metrics_sha256": sha256_bytes(data)}
    if not keep_outcome:
        changes["outcome_sha256"] = outcome_hash(rows)
    record = record.model_copy(update=changes)
    folder.write_record(record)
    append(history, "sealed", record.seal(sha256_file(folder.record_path)))


def append(history: History, event: Event, body: Mapping[str, JsonValue], *, at: str | None = None) -> None:
    """An entry by hand."""
    enter(history.ledger, event, body, study="own", registration=history.registration.sha256, at=at or history.now())


def forge(history: History) -> None:
    """Move the final loss of one arm, with every hash made to match but that of the outcome."""
    if history.rng.random() < 0.5:
        decide_honestly(history)
    for path in history.runs:
        folder = RunFolder(path)
        if path.parent.name == "fast" and folder.sealed_path.exists():
            rows = [
                Row(row.step, row.metric, row.value + 1.0 * (row.metric == "val/loss")) for row in folder.sealed_rows()
            ]
            reseal(history, folder, rows, keep_outcome=True)


def forge_whole(history: History) -> None:
    """The same with the outcome's hash, too: the ledger then holds two outcomes of the run."""
    folder = sealed_run(history, "fast")
    rows = [Row(row.step, row.metric, row.value + 1.0 * (row.metric == "val/loss")) for row in folder.sealed_rows()]
    reseal(history, folder, rows, keep_outcome=False)


def shop(history: History) -> None:
    """Look at the values of a run, delete it before it is sealed, and try again with other randomness."""
    for noise in range(1, history.rng.randrange(8, 12)):
        history.run_if_allowed(dies={0}, with_worker=True, noise=noise)
        for path in history.runs:
            if not (path / "metrics.parquet").exists():
                shutil.rmtree(path)
    history.run_if_allowed(noise=99)


def shop_a_little(history: History) -> None:
    """The same, once."""
    history.run(dies={history.rng.randrange(3)}, with_worker=True, noise=3)
    for path in history.runs:
        if not (path / "metrics.parquet").exists():
            shutil.rmtree(path)
    history.run()


def shop_after_decision(history: History) -> None:
    """Delete the sealed runs of an arm once the verdict is known, and train them again with other randomness."""
    decide_honestly(history)
    for path in history.runs:
        if path.parent.name == "fast":
            shutil.rmtree(path)
    history.run_if_allowed(noise=7)


def fail_when_unlucky(history: History) -> None:
    """A trainer that ends with an error whenever its value is not the wanted one."""
    for noise in range(1, history.rng.randrange(8, 12)):
        history.run_if_allowed(fails={0, 1, 2, 3}, noise=noise)
    history.run_if_allowed(noise=99)


def fail_when_bad(history: History) -> None:
    """A guard in the trainer that ends it with an error once it has recorded a bad value."""
    for noise in range(1, history.rng.randrange(4, 8)):
        history.run_if_allowed(fails={0, 1}, noise=noise, late=True)
    history.run_if_allowed(noise=99)


def interrupt_when_bad(history: History) -> None:
    """All is ended while the live value is bad, and begun again, the record kept."""
    for noise in range(1, history.rng.randrange(4, 8)):
        history.run_if_allowed(dies={0}, with_worker=True, noise=noise, late=True)
    history.run_if_allowed(noise=99)


def interrupt_once(history: History) -> None:
    """The same, once."""
    history.run(dies={history.rng.randrange(3)}, with_worker=True, noise=3, late=True)
    history.run()


def write_into_another(history: History) -> None:
    """A run that leaves a record in the folder of another."""
    history.run_if_allowed(writes_into=history.rng.choice(["slow/2", "fast/2"]))
    for path in history.house.path.glob("data/runs/own/*/*/*/run.json"):
        if path.read_text() == "{}":
            shutil.rmtree(path.parent)
    history.run_if_allowed()


def edit_live_metrics(history: History) -> None:
    """A better value in the metrics of a run that failed and would resume."""
    history.run(fails={0}, resumable=True, late=True)
    (run,) = [path for path in history.runs if not (path / "metrics.parquet").exists()]
    metrics = run / "work" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    lines[-1]["value"] -= 1.0
    metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    history.run_if_allowed(resumable=True)


def alter_script_before_deciding(history: History) -> None:
    """Other code, or none, between the last run and the verdict."""
    if history.rng.random() < 0.5:
        history.house.script("print('nothing of the kind')")
    else:
        (history.house.path / "train.py").unlink()


def change_script(history: History) -> None:
    """Other code after the verdict."""
    decide_honestly(history)
    history.house.script("print('nothing of the kind')")


def delete_script(history: History) -> None:
    """No code after the verdict."""
    decide_honestly(history)
    (history.house.path / "train.py").unlink()


def decide_by_hand(history: History) -> None:
    """A decision that the judge never gave, its hash in the ledger."""
    decide_honestly(history)
    path = history.root.report("own") / "verdict.json"
    verdict = json.loads(path.read_bytes())
    verdict["verdict"] = "take fast" if verdict["verdict"] != "take fast" else "inconclusive"
    path.write_bytes(canonical_bytes(verdict))
    last = [entry for entry in history.ledger.entries() if entry.event == "decided"][-1]
    body = {**last.stated, "verdict": verdict["verdict"], "verdict_sha256": sha256_file(path)}
    append(history, "decided", body)


def lose_a_run(history: History) -> None:
    """Delete one sealed run after the verdict."""
    decide_honestly(history)
    shutil.rmtree(sealed_run(history).path)


def swap_arms(history: History) -> None:
    """Exchange two runs of a seed, with what their records say of themselves."""
    fast = sealed_run(history, "fast")
    slow = RunFolder(fast.path.parent.parent / "slow" / fast.path.name)
    parked = fast.path.with_name("parked")
    shutil.move(fast.path, parked)
    shutil.move(slow.path, fast.path)
    shutil.move(parked, slow.path)
    if history.rng.random() < 0.5:
        for folder, arm in ((fast, "fast"), (slow, "slow")):
            record = folder.read_record()
            assert record is not None
            folder.write_record(record.model_copy(update={"variant": arm}))


def edit_ledger(history: History) -> None:
    """One digit in the middle of the ledger."""
    lines = history.root.ledger.read_bytes().splitlines(keepends=True)
    at = history.rng.randrange(1, len(lines))
    place = history.rng.choice([i for i, byte in enumerate(lines[at]) if chr(byte).isdigit()])
    lines[at] = lines[at][:place] + (b"1" if lines[at][place : place + 1] != b"1" else b"2") + lines[at][place + 1 :]
    history.root.ledger.write_bytes(b"".join(lines))


def drop_entries(history: History) -> None:
    """Entries that are gone from the middle."""
    lines = history.root.ledger.read_bytes().splitlines(keepends=True)
    at = history.rng.randrange(1, len(lines) - 1)
    history.root.ledger.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))


def cut_the_end(history: History) -> None:
    """The decision is cut off, and its page left."""
    decide_honestly(history)
    lines = history.root.ledger.read_bytes().splitlines(keepends=True)
    events = [json.loads(line)["event"] for line in lines]
    history.root.ledger.write_bytes(b"".join(lines[: events.index("decided")]))


def retrain_sealed(history: History) -> None:
    """Delete one sealed run before the verdict, and train it with other randomness."""
    shutil.rmtree(sealed_run(history).path)
    history.run_if_allowed(noise=5)


def add_a_seed(history: History) -> None:
    """A run that no plan names."""
    folder = sealed_run(history)
    shutil.copytree(folder.path, folder.path.with_name("77"))


def edit_a_file(history: History) -> None:
    """One byte of the lock, the study, the verdict or a page."""
    decide_honestly(history)
    reports = history.root.report("own")
    path = history.rng.choice(
        [
            history.root.lock("own"),
            history.study,
            reports / "verdict.json",
            reports / "report.md",
            reports / "report.html",
        ]
    )
    data = bytearray(path.read_bytes())
    place = history.rng.choice([i for i, byte in enumerate(data) if chr(byte).isalnum()])
    data[place] = ord("Q") if data[place] != ord("Q") else ord("R")
    path.write_bytes(bytes(data))


def peek_early(history: History) -> None:
    """A look that the ledger holds, before the last seal."""
    history.run(fails={2})
    append(history, "peeked", {"reason": "curious", "evidence": "0" * 64, "ended": 1, "planned": 4})
    history.run()


def backdate(history: History) -> None:
    """An entry whose time lies before that of the entry before it."""
    early = history.clock - timedelta(hours=history.rng.randrange(3, 30))
    append(history, "finished", {"runs": 4}, at=early.isoformat(timespec="seconds"))


def begin_before_the_registration(history: History) -> None:
    """A run that says itself that it began earlier than the promise."""
    folder = sealed_run(history)
    record = folder.read_record()
    assert record is not None
    folder.write_record(record.model_copy(update={"started_at": "2020-01-01T00:00:00+00:00"}))
    reseal(history, folder, folder.sealed_rows(), keep_outcome=True)


def claim_after_looking(history: History) -> None:
    """The same configuration and seeds under another name, with a claim that the first study suggested."""
    decide_honestly(history)
    register_another(history, hypotheses={"gain": {"claim": "fast lowers val/loss", "smallest": 0.01}})
    history.run(noise=history.rng.choice([0, 31]))  # of a trainer that is not deterministic, too


def copy_after_peeking(history: History) -> None:
    """A study that was looked at early, copied under another name."""
    history.run(dies_at=2)
    append(history, "peeked", {"reason": "curious", "evidence": "0" * 64, "ended": 3, "planned": 4})
    history.run()
    register_another(history)
    history.run(noise=history.rng.choice([0, 31]))


def register_another(history: History, **changes: Any) -> None:
    """Register the same arms and seeds under another name, past the refusal: with a version that has none."""
    changes = document(history.rng, looks=False) | {"seeds": list(history.registration.study.seeds)} | changes
    path = history.house.write(study="other", **changes)
    loaded = load_study(path)
    pins = pin_scripts(history.root, loaded.study)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(register_room, "refuse_sealed_elsewhere", lambda *_: None)
        made = register_study(history.root, loaded, pins=Pins(scripts=pins), design=None, tool={}, at=history.now())
    history.registration, history.study = made[0], path


def never_started(history: History) -> None:
    """Runs that lie there with a seal, and that this ledger never started."""
    lines = history.root.ledger.read_bytes().splitlines(keepends=True)
    events = [json.loads(line) for line in lines]
    begun = next(at for at, entry in enumerate(events) if "variant" in entry["body"])
    history.root.ledger.write_bytes(b"".join(lines[:begun]))
    for entry in events[begun:]:
        if entry["event"] not in ("started", "decided", "reported", "looked"):
            append(history, entry["event"], entry["body"])


def ignore_the_seed(history: History) -> None:
    """A trainer that gives one run for all seeds of an arm."""
    history.run_if_allowed(same_seeds=True)


def stop_an_arm_early(history: History) -> None:
    """A trainer that ends one arm before its loss has settled, or after the best moment."""
    history.run_if_allowed(stops_early=history.rng.choice(["fast", "slow"]))


def remake_after_amending(history: History) -> None:
    """An amendment that touches nothing, after the verdict, and then the runs of an arm with other randomness."""
    decide_honestly(history)
    assume(history)
    for path in history.runs:
        if path.parent.name == "fast":
            shutil.rmtree(path)
    history.run_if_allowed(noise=8)


def roll_back(history: History) -> None:
    """The ledger cut back to its registration and everything made again, where a commit holds what it said before."""
    decide_honestly(history)
    git = ("git", "-C", str(history.house.path), "-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "studies", "train.py"), ("commit", "-q", "-m", "the verdict")):
        subprocess.run((*git, *words), check=True)
    lines = history.root.ledger.read_bytes().splitlines(keepends=True)
    history.root.ledger.write_bytes(lines[0])
    for folder in ("data/runs", "reports"):
        shutil.rmtree(history.house.path / folder)
    history.run_if_allowed(noise=9)


def word_the_verdict(history: History) -> None:
    """Another title in verdict.json, with its hash in a decision in the ledger."""
    decide_honestly(history)
    path = history.root.report("own") / "verdict.json"
    verdict = json.loads(path.read_bytes()) | {"title": "Proof that fast wins everywhere"}
    path.write_bytes(canonical_bytes(verdict))
    last = [entry for entry in history.ledger.entries() if entry.event == "decided"][-1]
    append(history, "decided", {**last.stated, "verdict_sha256": sha256_file(path)})


Attack = Callable[[History], None]

FROM_THE_START: tuple[Attack, ...] = (
    shop,
    shop_a_little,
    fail_when_unlucky,
    fail_when_bad,
    interrupt_when_bad,
    interrupt_once,
    write_into_another,
    edit_live_metrics,
    peek_early,
    copy_after_peeking,
    ignore_the_seed,
    stop_an_arm_early,
)
"""What is done to a study of which nothing was trained."""
