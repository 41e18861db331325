"""A study of one's own trainer: a house, and a script that does as it is told by the arm's configuration."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import yaml
from ledger_samples import enter

from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from ablate.runner.child import Start, start_program
from ablate.runner.process import Place, make_run
from prereg.registry.canon import sha256_file
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Event
from prereg.registry.paths import Root
from prereg.registry.plan import CommandSpec, plan
from prereg.registry.register import register_study
from prereg.registry.registration import Pins, Registration
from prereg.study.command import pin_data, pin_scripts
from prereg.study.load import load_study

AT = "2026-01-02T03:04:05+00:00"

SCRIPT = """
import json, os, sys, time
config = json.load(open(os.environ["ABLATE_CONFIG"]))
seed, lr = int(os.environ["ABLATE_SEED"]), config["lr"]
noise = (seed * 7919 % 13) / 1000
with open("metrics.jsonl", "w") as out:
    for step in range(1, config["steps"] + 1):
        print(json.dumps({"step": step, "metric": "train/loss", "value": 3.0 - lr * step / 100 + noise}), file=out)
        out.flush()
        time.sleep(config.get("sleep", 0))
    print(json.dumps({"step": config["steps"], "metric": "val/loss", "value": 2.0 - lr + noise * lr}), file=out)
"""


def own_document(**changes: Any) -> dict[str, Any]:
    """Two arms of a script, three seeds, a moment a run."""
    document: dict[str, Any] = {
        "study": "own",
        "title": "A trainer of one's own",
        "trainer": "command",
        "command": ["{python}", "train.py"],
        "base": {"lr": 0.1, "steps": 4},
        "baseline": "slow",
        "variants": {"slow": {}, "fast": {"lr": 0.4}},
        "seeds": [1, 2, 3],
        "hypotheses": {"gain": {"claim": "fast lowers val/loss", "smallest": 0.05}},
        "decision": [
            {"verdict": "take fast", "when": "supported(gain) and stable(fast)"},
            {"verdict": "inconclusive"},
        ],
    }
    return document | changes


class Stop:
    """What a run made in this process listens to: a stop that a test sends."""

    def __init__(self) -> None:
        self._sent = threading.Event()

    @property
    def stopped(self) -> bool:
        return self._sent.is_set()

    def send(self) -> None:
        self._sent.set()

    def wait(self, timeout_s: float, output: Sequence[IO[bytes]] = ()) -> None:
        self._sent.wait(min(timeout_s, 0.01))


class OwnHouse:
    """A repository of studies with a trainer of its own in it."""

    def __init__(self, path: Path, *, of: Path | None = None) -> None:
        """A new one, or a copy `of` the repository in another folder."""
        self.path = path
        self.study = path / "studies" / "own.yaml"
        if of is not None:
            shutil.copytree(of, path)
            return
        (path / "studies").mkdir(parents=True)
        self.script(SCRIPT)

    @classmethod
    def at(cls, path: Path) -> OwnHouse:
        """A repository that is there already."""
        made = cls.__new__(cls)
        made.path, made.study = path, path / "studies" / "own.yaml"
        return made

    def script(self, text: str, name: str = "train.py") -> Path:
        """Write a file of the trainer's code."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def write(self, document: Mapping[str, Any] | None = None, **changes: Any) -> Path:
        """Write the study file."""
        whole = dict(document) if document is not None else own_document(**changes)
        path = self.path / "studies" / f"{whole['study']}.yaml"
        path.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
        return path

    def register(self, document: Mapping[str, Any] | None = None, **changes: Any) -> Registration:
        """The study, registered without a design, which would take long to simulate."""
        loaded = load_study(self.write(document, **changes))
        root = Root(self.path.resolve())
        pins, read = pin_scripts(root, loaded.study), pin_data(root, loaded.study)
        return register_study(root, loaded, pins=Pins(scripts=pins, data_files=read), design=None, tool={}, at=AT)[0]

    def carry_out(
        self,
        registration: Registration,
        variant: str,
        seed: int,
        *,
        stop: Stop | None = None,
        start: Start = start_program,
    ) -> tuple[RunRecord, str]:
        """One run in this process; its record, and what was reported of its end."""
        root = Root(self.path.resolve())
        spec = next(one for one in plan(registration) if (one.variant, one.seed) == (variant, seed))
        assert isinstance(spec, CommandSpec)
        folder = RunFolder(root.run(spec.study, spec.registration, variant, seed))
        place = Place(root.path)
        ended = make_run(spec, folder, place, stop or Stop(), lambda _: None, start=start)
        record = folder.read_record()
        assert record is not None
        return record, f"{ended.event} {ended.status}: {ended.error or ''}"

    def make_runs(self, registration: Registration, at: str = AT) -> None:
        """Every run, by a worker in this process, with the entries of the ledger that a scheduler would write."""
        root, runs = Root(self.path.resolve()), plan(registration)
        ledger, name = Ledger(root.ledger), registration.study.study

        def log(event: Event, body: Mapping[str, Any]) -> None:
            enter(ledger, event, dict(body), study=name, registration=registration.sha256, at=at)

        log("started", {"runs": len(runs), "of": len(runs)})
        for run in runs:
            record, _ = self.carry_out(registration, run.variant, run.seed)
            folder = RunFolder(root.run(name, registration.sha256, run.variant, run.seed))
            log("sealed", record.seal(sha256_file(folder.record_path)))
        log("finished", {})

    def snapshot(self) -> dict[str, bytes]:
        """Every file and its bytes."""
        return {p.relative_to(self.path).as_posix(): p.read_bytes() for p in self.path.rglob("*") if p.is_file()}

    def run_folder(self, variant: str, seed: int) -> Path:
        """The folder of one run, of the one registration there is."""
        (found,) = self.path.glob(f"data/runs/own/*/{variant}/{seed}")
        return found
