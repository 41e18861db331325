"""Steps that are compiled and then recorded, and what is said where a recording fails: on the CPU, by stand-ins.

The tape stands in for CUDA graphs (`tape.py`), what torch's compiler is handed for what it makes of it (`opaque.py`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import House
from opaque import seen, trace_only
from tape import TapeRecorder, Tensors
from test_cohort import AGREES, SEEDS, SPLIT, cohort, configuration
from test_cohort_run import planned, records
from test_recording import exact, unlike

from ablate.gpt import cohort as cohorts
from ablate.gpt import compiling
from ablate.gpt.cohort import CohortTrainer
from ablate.gpt.compiler import cannot_compile
from ablate.gpt.compiling import Made
from ablate.gpt.recording import WARM_UPS
from ablate.runner.cohort import carry_out_together
from ablate.runner.messages import Message
from ablate.runner.seating import Machine, step_of
from ablate.runner.worker import Worker
from prereg.errors import RunError
from prereg.training import Training

torch.set_num_threads(1)
WHOLE: dict[str, Any] = {"clip": 0.05, "ema": 0.9, "weight_decay": 0.5, "model": {"layers": 1, "dropout": 0.2}}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was made of a step, in order."""
    order: list[str] = []

    def compile_noted(work: Callable[..., Tensors], examples: Tensors, folder: Path, *, deterministic: bool) -> Made:
        order.append("compile")
        return trace_only(work, examples, folder, deterministic=deterministic)

    monkeypatch.setattr(compiling, "compile_once", compile_noted)
    monkeypatch.setattr(cohorts, "compiler_name", lambda _device: "a stand-in")
    monkeypatch.setattr(cohorts, "compiled_folder", Path)
    return order


class Noting(TapeRecorder):
    """A tape that says when it warms up and records."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self.order = order

    def warm(self, work: Callable[[], object]) -> None:
        self.order.append("warm")
        super().warm(work)

    def record(self, work: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], None]]:
        self.order.append("record")
        found = super().record(work)
        self.order.append("recorded")
        return found


def cohort_of(step: str, config: Training, order: list[str] | None = None) -> CohortTrainer:
    made = CohortTrainer(config, SPLIT, 7, SEEDS, step=step, recorder=Noting([] if order is None else order))
    made.begin(SEEDS)
    return made


def both(config: Training, order: list[str] | None = None) -> CohortTrainer:
    return cohort_of("compiled-graph", config, order)


def test_all_is_compiled_before_anything_is_recorded_and_each_once(said: list[str]) -> None:
    trainer = both(configuration(**WHOLE), said)
    assert said == []
    assert len(trainer.prepare()) == 2
    assert said == ["compile"] * 2
    for _ in range(3):
        trainer.step()
    assert said == ["compile"] * 2 + [*["warm"] * WARM_UPS, "record", "recorded"] * 2


def test_what_nobody_prepared_is_compiled_in_the_first_warm_up_and_never_while_recording(said: list[str]) -> None:
    both(configuration(**WHOLE), said).step()
    piece = ["warm", "compile", *["warm"] * (WARM_UPS - 1), "record", "recorded"]
    assert said == [*piece, *piece]


@pytest.mark.parametrize(
    "changes",
    [{}, {"name": "sgd"}, {"model": {"norm": "post", "positions": "rope", "activation": "swiglu"}, "ema": 0.0}],
    ids=json.dumps,
)
def test_compiled_and_replayed_steps_are_the_eager_ones_within_the_stated_tolerance(
    said: list[str], changes: dict[str, Any]
) -> None:
    config = configuration(**json.loads(json.dumps(WHOLE | changes)))
    plain, replayed = cohort(config), both(config, said)
    assert unlike(30, plain, replayed) <= AGREES
    for one in (plain, replayed):
        one.vacate(2)
    assert unlike(20, plain, replayed) <= AGREES
    for ours, theirs in ((replayed.stacked, plain.stacked), (replayed.average, plain.average)):
        assert all(float((ours[name] - value).detach().abs().max()) <= AGREES for name, value in theirs.items())
    for seed in (1, 5):
        assert replayed.progress[seed].batches == plain.progress[seed].batches
        assert replayed.progress[seed].dropout == plain.progress[seed].dropout
    assert not any(bool(value[1].any()) for value in replayed.stacked.values())
    assert said.count("compile") == said.count("recorded") == 2, "an empty seat needs nothing new"


def test_replayed_steps_are_those_that_were_compiled_to_the_bit(said: list[str]) -> None:
    config = exact(**WHOLE)
    compiled, replayed = cohort_of("compiled", config), both(config, said)
    for _ in range(9):
        assert replayed.step() == compiled.step()
    assert all(torch.equal(replayed.stacked[name], value) for name, value in compiled.stacked.items())
    assert said.count("recorded") == 2


def test_micro_batches_are_replays_of_one_compiled_part(said: list[str]) -> None:
    plain = exact(model={"dropout": 0.2, "layers": 1})
    config = plain.model_copy(update={"budget": plain.budget.model_copy(update={"micro_batch": 2})})
    assert unlike(6, cohort(config), both(config, said)) <= AGREES
    assert said.count("compile") == said.count("recorded") == 2


def test_what_is_taken_up_is_recorded_anew_from_what_was_compiled_and_goes_on_to_the_bit(
    said: list[str], tmp_path: Path
) -> None:
    config = configuration(**WHOLE)
    whole = both(config)
    for _ in range(3):
        whole.step()
    path = tmp_path / "cohort.safetensors"
    path.write_bytes(whole.checkpoint())
    rest = [whole.step() for _ in range(4)]
    said.clear()
    other = both(config, said)
    other.step()  # recorded where the restored tensors will not stand
    other.begin(SEEDS)
    other.restore(path)
    assert [other.step() for _ in range(4)] == rest
    assert other.checkpoint() == whole.checkpoint()
    assert (said.count("compile"), said.count("recorded")) == (2, 4)


class Refusing(TapeRecorder):
    """A recorder that fails at its n-th piece of work: when it is warmed up for the second time, or recorded."""

    def __init__(self, at: str, piece: int) -> None:
        super().__init__()
        self.at, self.piece = at, piece

    def warm(self, work: Callable[[], object]) -> None:
        super().warm(work)
        if self.at == "warm" and self.warmed == WARM_UPS * (self.piece - 1) + 2:
            raise RuntimeError("no such kernel\nand much more")

    def record(self, work: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], None]]:
        if self.at == "record" and self.recorded == self.piece - 1:
            raise RuntimeError("no such kernel\nand much more")
        return super().record(work)


@pytest.mark.parametrize("step", ["graph", "compiled-graph"])
@pytest.mark.parametrize(("at", "piece"), [("warm", 1), ("record", 1), ("warm", 2), ("record", 2)])
def test_a_recording_that_fails_says_how_to_go_on_and_has_moved_no_weight(
    said: list[str], step: str, at: str, piece: int
) -> None:
    trainer = CohortTrainer(configuration(**WHOLE), SPLIT, 7, SEEDS, step=step, recorder=Refusing(at, piece))
    trainer.begin(SEEDS)
    before = [value.detach().clone() for value in (*trainer.stacked.values(), *trainer.average.values())]
    with pytest.raises(RunError) as refused:
        trainer.step()
    assert refused.value.found == "a step cannot be recorded: RuntimeError: no such kernel"
    assert refused.value.required and refused.value.fix == "ablate run with --step eager"
    held = [*trainer.stacked.values(), *trainer.average.values()]
    assert all(torch.equal(now, then) for now, then in zip(held, before, strict=True))
    assert trainer.taken == 0, "no step is counted"
    assert said == ([] if step == "graph" else ["compile"] * piece)


def test_memory_that_is_lacking_is_told_as_such_and_not_as_a_recording_that_fails(said: list[str]) -> None:
    class Full(TapeRecorder):
        def record(self, work: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], None]]:
            raise torch.OutOfMemoryError

    trainer = CohortTrainer(configuration(**WHOLE), SPLIT, 7, SEEDS, step="compiled-graph", recorder=Full())
    trainer.begin(SEEDS)
    with pytest.raises(torch.OutOfMemoryError):
        trainer.step()
    assert said == ["compile"]


def test_runs_whose_steps_cannot_be_recorded_all_fail_by_name_and_are_no_guide_for_the_next_call(
    said: list[str], house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    assigned = planned(house)
    layout = "cohort of 3: seeds 1,2,3; steps compiled-graph"
    monkeypatch.setattr(cohorts, "CudaRecorder", lambda _device: Refusing("record", 2))
    told = carry_out(house, assigned)
    assert [message.status for message in told if message.event == "ended"] == ["failed"] * 3
    why = "a step cannot be recorded: RuntimeError: no such kernel; try: ablate run with --step eager"
    standing = records(house)
    assert {(one.status, one.error, one.provenance.layout) for one in standing.values()} == {("failed", why, layout)}
    assert step_of((1, 2, 3), Machine("cuda:0"), standing) == "eager"

    monkeypatch.setattr("ablate.gpt.stepping.cannot_compile", lambda _device: "")
    monkeypatch.setattr(cohorts, "CudaRecorder", lambda _device: TapeRecorder())
    told = carry_out(house, assigned)
    assert [message.status for message in told if message.event == "ended"] == ["done"] * 3
    assert any("none: steps compiled" in message.text for message in told)
    ended = records(house)
    assert {(one.status, one.provenance.layout) for one in ended.values()} == {("done", layout)}
    assert all(one.provenance.paths.endswith("compiled by a stand-in") for one in ended.values())
    assert step_of((1, 2, 3), Machine("cuda:0"), ended) == "compiled-graph"


def carry_out(house: House, assigned: Any) -> list[Message]:
    told: list[Message] = []
    worker = Worker(house.path / "data" / "corpora", told.append, threading.Event())
    checkpoint = house.path / "data" / "cohort.safetensors"
    carry_out_together(worker, assigned, (1, 2, 3), checkpoint, "compiled-graph")
    return told


@pytest.mark.slow
@pytest.mark.skipif(bool(cannot_compile("cpu")), reason=f"nothing compiles here: {cannot_compile('cpu')}")
def test_what_the_real_compiler_makes_is_recorded_and_replayed_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = compiling.compile_once
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiling, "compile_once", lambda *given, **named: seen(real(*given, **named)))
    config, order = exact(**WHOLE), list[str]()
    plain, replayed, compiled = cohort(config), both(config, order), cohort_of("compiled", config)
    assert order == [] and len(replayed.prepare()) == 2
    for _ in range(12):
        expected, found, unrecorded = plain.step(), replayed.step(), compiled.step()
        assert found == unrecorded
        assert max(abs(found[seed].loss - expected[seed].loss) for seed in SEEDS) <= AGREES
    assert order.count("recorded") == 2
