"""Nothing is kept that is not needed: neither over ten thousand steps, nor over many runs of one process."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import TINY_CORPUS, House, tiny_document

from ablate import chain
from ablate.gpt.batches import Split
from ablate.gpt.train import Trainer
from ablate.records.store import RunFolder
from ablate.run.messages import Message
from ablate.run.worker import Worker
from prereg.plan import RunSpec, plan
from prereg.training import Training

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for the resident size"),
]

STEPS, WARM = 10_000, 1_000
GROWTH_BYTES = 4 * 2**20
"""What the allocator may do over nine thousand steps; a leak of one scalar tensor a step would take more."""
CONFIG = {
    "model": {"layers": 1, "width": 8, "heads": 2, "context": 8, "dropout": 0.1, "norm": "sandwich"},
    "optim": {"ema": 0.9},
    "budget": {"steps": STEPS, "batch": 2},
}


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def live_tensors() -> int:
    gc.collect()
    # By its type: asking an object for its class may run code of libraries.
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


def growth(step: Callable[[int], object], warm: int, steps: int) -> tuple[int, int]:
    """(bytes, tensors) more at the end than after warming up."""
    for number in range(warm):
        step(number)
    held, alive = resident_bytes(), live_tensors()
    for number in range(warm, steps):
        step(number)
    found = resident_bytes() - held, live_tensors() - alive
    print(f"{steps - warm} times: {found[0] / 2**10:.0f} KiB and {found[1]} tensors more")
    return found


@pytest.fixture
def trainer() -> Trainer:
    torch.set_num_threads(1)
    config = Training.model_validate_json(json.dumps(CONFIG))
    ids = torch.arange(4000) * 7919 % 23
    made = Trainer(config, Split.of(ids.numpy(), 0.1, 8), 23)
    made.begin(1)
    return made


def test_no_step_leaks_over_ten_thousand(trainer: Trainer) -> None:
    grown, tensors = growth(lambda _: trainer.step(), WARM, STEPS)
    assert trainer.progress.step == STEPS
    assert tensors == 0
    assert grown < GROWTH_BYTES, f"{grown / 2**20:.1f} MiB"


def test_the_measure_sees_a_step_that_keeps_one_tensor(trainer: Trainer) -> None:
    kept: list[torch.Tensor] = []

    def leaking(_: int) -> None:
        trainer.step()
        kept.append(torch.ones(16_384))  # more in all than what a process of many tests has freed before

    grown, tensors = growth(leaking, 500, 5_000)
    assert tensors == 4_500
    assert grown > GROWTH_BYTES, f"{grown / 2**20:.1f} MiB"


def test_a_worker_keeps_nothing_of_the_runs_it_has_made(house: House) -> None:
    torch.set_num_threads(1)
    document = tiny_document(seeds=list(range(1, 31)), measure={"every": 5})
    document["base"] = {**document["base"], "budget": {"steps": 10, "batch": 4}}
    assert document["base"]["data"]["corpus"] == TINY_CORPUS
    registration, _ = chain.register(house.write(document))
    specs = [spec for spec in plan(registration) if isinstance(spec, RunSpec)]
    assert len(specs) == 60
    said: list[Message] = []
    worker = Worker(house.path / "data" / "corpora", said.append, threading.Event())

    def run(number: int) -> None:
        spec = specs[number]
        worker.carry_out(spec, RunFolder(house.path / "made" / spec.variant / str(spec.seed)))

    grown, tensors = growth(run, 20, 60)
    assert [message.status for message in said if message.event == "ended"] == ["done"] * 60
    assert tensors == 0
    assert grown < 2 * GROWTH_BYTES, f"{grown / 2**20:.1f} MiB"
