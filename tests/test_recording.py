"""Steps that are recorded once and replayed: by a tape on the CPU, where a GPU would take a CUDA graph."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tape import TapeRecorder
from test_cohort import AGREES, MODELS, OPTIMIZERS, SEEDS, SPLIT, cohort, configuration
from torch import Tensor

from ablate.gpt.cohort import CohortTrainer
from ablate.gpt.recording import WARM_UPS, Recorded
from prereg.errors import RunError
from prereg.training import Training

torch.set_num_threads(1)
RECORDED = [one for one in (*OPTIMIZERS, *MODELS) if one.get("name") != "muon"]


def recorded(config: Training, live: tuple[int, ...] = SEEDS) -> tuple[CohortTrainer, TapeRecorder]:
    recorder = TapeRecorder()
    made = CohortTrainer(config, SPLIT, 7, SEEDS, step="graph", recorder=recorder)
    made.begin(live)
    return made, recorder


def exact(**changes: Any) -> Training:
    """Rates of powers of two, which are the same numbers in float32 as in Python."""
    return configuration(**{"lr": 2.0**-9, "warmup": 4, "schedule": "constant", **json.loads(json.dumps(changes))})


def unlike(steps: int, one: CohortTrainer, other: CohortTrainer) -> float:
    """The largest difference of any loss of any run."""
    apart = [
        abs(a.loss - b.loss)
        for _ in range(steps)
        for a, b in zip(one.step().values(), other.step().values(), strict=True)
    ]
    assert len(apart) == steps * len(one.live)
    return max(apart)


@pytest.mark.parametrize("changes", RECORDED, ids=json.dumps)
def test_replayed_steps_are_the_eager_ones_to_the_bit(changes: dict[str, Any]) -> None:
    config = exact(**{key: value for key, value in changes.items() if key != "lr"})
    plain, (replayed, _) = cohort(config), recorded(config)
    for _ in range(9):
        assert replayed.step() == plain.step()
    for name, value in plain.stacked.items():
        assert torch.equal(replayed.stacked[name], value), name
    for name, value in plain.average.items():
        assert torch.equal(replayed.average[name], value), name


def test_the_rate_of_every_step_is_its_own_and_not_that_of_the_recording() -> None:
    config = configuration(warmup=6, schedule="cosine")
    plain, (replayed, _) = cohort(config), recorded(config)
    assert unlike(40, plain, replayed) <= AGREES  # the rate is rounded to float32 here
    # A rate that stood still would be seen: the same steps without a schedule lie far outside.
    still = cohort(configuration(warmup=0, schedule="constant", lr=1e-3 / 6))
    assert unlike(40, cohort(config), still) > 100 * AGREES


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_micro_batches_are_replays_of_one_recording(dropout: float) -> None:
    plain = exact(model={"dropout": dropout})
    config = plain.model_copy(update={"budget": plain.budget.model_copy(update={"micro_batch": 1})})
    eager, (replayed, recorder) = cohort(config), recorded(config)
    assert unlike(6, eager, replayed) == 0.0
    assert recorder.recorded == 2
    assert {seed: replayed.progress[seed].dropout for seed in SEEDS} == {s: eager.progress[s].dropout for s in SEEDS}


def test_it_is_recorded_once_after_warm_ups_that_leave_no_trace_and_not_again_for_an_empty_seat() -> None:
    plain, (replayed, recorder) = cohort(exact()), recorded(exact())
    assert (recorder.warmed, recorder.recorded) == (0, 0)
    assert unlike(3, plain, replayed) == 0.0
    assert (recorder.warmed, recorder.recorded) == (2 * WARM_UPS, 2)
    for one in (plain, replayed):
        one.vacate(2)
    assert unlike(5, plain, replayed) == 0.0
    assert recorder.recorded == 2
    assert not any(bool(value[1].any()) for value in replayed.stacked.values())


@pytest.mark.parametrize("changes", [{}, {"name": "sgd"}, {"ema": 0.9}], ids=json.dumps)
def test_what_is_taken_up_is_recorded_anew_and_goes_on_to_the_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    config = configuration(model={"dropout": 0.2}, **changes)
    whole, _ = recorded(config)
    for _ in range(3):
        whole.step()
    path = tmp_path / "cohort.safetensors"
    path.write_bytes(whole.checkpoint())
    rest = [whole.step() for _ in range(4)]
    other, recorder = recorded(config)
    other.step()  # recorded where the restored tensors will not stand
    other.begin(SEEDS)
    other.restore(path)
    assert [other.step() for _ in range(4)] == rest
    assert other.checkpoint() == whole.checkpoint()
    assert recorder.recorded == 4


def test_what_is_not_finite_in_one_seat_stays_there_when_it_is_replayed() -> None:
    (calm, _), (wild, _) = recorded(exact(clip=0.05)), recorded(exact(clip=0.05))
    for number in range(4):
        with torch.no_grad():
            if number == 2:
                wild.stacked["token.weight"][1] = math.nan
        expected, found = calm.step(), wild.step()
        assert {seed: found[seed] for seed in (1, 5)} == {seed: expected[seed] for seed in (1, 5)}
    assert math.isnan(found[2].loss)


def test_the_tape_keeps_numbers_and_places_as_a_graph_does() -> None:
    factor, held = 2.0, torch.ones(2)
    made = Recorded(lambda x: (x * factor + held,), TapeRecorder(), lambda: ())
    assert made(torch.ones(2))[0].tolist() == [3.0, 3.0]
    factor, earlier, held = 5.0, held, torch.zeros(2)
    assert made(torch.ones(2))[0].tolist() == [3.0, 3.0], "a number of Python, or another tensor, was looked at anew"
    earlier.fill_(10.0)
    first, second = made(torch.ones(2))[0], made(torch.zeros(2))[0]
    assert (first.tolist(), second.tolist()) == ([12.0, 12.0], [10.0, 10.0]), "an output was written over"


def test_reading_a_number_back_and_other_shapes_are_refused() -> None:
    def reads(x: Tensor) -> tuple[Tensor, ...]:
        return (x * float(x.sum()),)

    with pytest.raises(RunError, match=r"cannot be recorded: RuntimeError: operation not permitted when stream is cap"):
        Recorded(reads, TapeRecorder(), lambda: ())(torch.ones(2))
    made = Recorded(lambda x: (x + 1,), TapeRecorder(), lambda: ())
    made(torch.ones(2))
    with pytest.raises(AssertionError):
        made(torch.ones(3))
    with pytest.raises(AssertionError):
        made(torch.ones(2, dtype=torch.float64))


def test_warm_ups_are_put_back_also_what_they_brought_into_being() -> None:
    weight, moments = torch.full((2,), 4.0), {}

    def work(x: Tensor) -> tuple[Tensor, ...]:
        if "sum" not in moments:
            moments["sum"] = torch.zeros(2)
        moments["sum"].add_(x)
        weight.sub_(moments["sum"])
        return (weight.sum(),)

    made = Recorded(work, TapeRecorder(), lambda: [weight, *moments.values()])
    outputs = [float(made(torch.ones(2))[0]) for _ in range(3)]
    assert np.allclose(outputs, [6.0, 2.0, -4.0])
    assert moments["sum"].tolist() == [3.0, 3.0] and weight.tolist() == [-2.0, -2.0]


def test_muon_is_not_recorded() -> None:
    config = configuration(name="muon")
    made = CohortTrainer(config, SPLIT, 7, SEEDS, step="graph", recorder=TapeRecorder())
    with pytest.raises(AssertionError):
        made.begin(SEEDS)
