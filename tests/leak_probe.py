"""A process of its own that does one thing many times and says how much more it holds at the end.

Not within pytest: what a process has freed before, by other tests, decides how much of a leak its resident size shows.
`python tests/leak_probe.py KIND FOLDER` prints one line of JSON.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from conftest import House, tiny_document

from ablate import api
from ablate.data.batches import Split
from ablate.records.store import RunFolder
from ablate.runner.builtin.run import Worker
from ablate.runner.messages import Message
from ablate.training.trainer import Trainer
from prereg.registry.plan import RunSpec, plan
from prereg.study.training import Training

CONFIG = {
    "model": {"layers": 1, "width": 8, "heads": 2, "context": 8, "dropout": 0.1, "norm": "sandwich"},
    "optim": {"ema": 0.9},
    "budget": {"steps": 10_000, "batch": 2},
}


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def live_tensors() -> int:
    gc.collect()
    # By its type: asking an object for its class may run code of libraries.
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


def growth(step: Callable[[int], object], warm: int, times: int) -> dict[str, int]:
    """What there is more of at the end than after warming up."""
    for number in range(warm):
        step(number)
    held, alive = resident_bytes(), live_tensors()
    for number in range(warm, times):
        step(number)
    return {"times": times, "bytes": resident_bytes() - held, "tensors": live_tensors() - alive}


def trainer() -> Trainer:
    config = Training.model_validate_json(json.dumps(CONFIG))
    ids = torch.arange(4000) * 7919 % 23
    made = Trainer(config, Split.of(ids.numpy(), 0.1, 8), 23)
    made.begin(1)
    return made


def steps(_: Path) -> dict[str, int]:
    made = trainer()
    return growth(lambda _: made.step(), 1_000, 10_000)


def steps_that_keep_a_tensor(_: Path) -> dict[str, int]:
    made, kept = trainer(), []

    def leaking(_: int) -> None:
        made.step()
        kept.append(torch.ones(1_024))

    return growth(leaking, 1_000, 5_000)


def runs_of_one_worker(folder: Path) -> dict[str, int]:
    document = tiny_document(seeds=list(range(1, 31)), measure={"every": 5})
    document["base"] = {**document["base"], "budget": {"steps": 10, "batch": 4}}
    house = House(folder)
    registration, _ = api.register(house.write(document))
    specs = [spec for spec in plan(registration) if isinstance(spec, RunSpec)]
    said: list[Message] = []
    worker = Worker(house.path / "data" / "corpora", said.append, threading.Event())

    def run(number: int) -> None:
        spec = specs[number]
        worker.carry_out(spec, RunFolder(house.path / "made" / spec.variant / str(spec.seed)))

    found = growth(run, 20, len(specs))
    return found | {"done": sum(one.event == "ended" and one.status == "done" for one in said)}


KINDS = {one.__name__: one for one in (steps, steps_that_keep_a_tensor, runs_of_one_worker)}

if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(KINDS[sys.argv[1]](Path(sys.argv[2]))))
