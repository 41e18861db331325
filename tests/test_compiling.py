"""Compiled steps: the eager ones but for rounding, to the bit with themselves, kept for the next process.

On the CPU, by torch's compiler and a C++ one. A GPU's are unmeasured.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import House
from test_cohort import AGREES, MUON_AGREES, SEEDS, SPLIT, configuration
from test_cohort_run import Killed, carry_out, planned, records
from test_run import QUIET, outcomes

from ablate import api
from ablate.runner.builtin import cohort as cohorts
from ablate.runner.builtin import run
from ablate.runner.messages import Message
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from ablate.training.cohort.joint import Made
from ablate.training.cohort.trainer import CohortTrainer
from ablate.training.compiling import cannot_compile
from prereg.study.training import Training

torch.set_num_threads(1)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(cannot_compile("cpu")), reason=f"nothing compiles here: {cannot_compile('cpu')}"),
]
EVERYTHING: dict[str, Any] = {"clip": 0.05, "ema": 0.9, "weight_decay": 0.5, "warmup": 7}
BFLOAT16_AGREES = 5e-3
"""A compiled step keeps in float32 what lies between two operators that it joins; an eager one rounds it."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for all tests, so that a shape is compiled once; empty at first."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def trainer(config: Training, step: str = "compiled", live: tuple[int, ...] = SEEDS) -> CohortTrainer:
    made = CohortTrainer(config, SPLIT, 7, SEEDS, step=step)
    made.begin(live)
    return made


def config_of(steps: int = 50, model: dict[str, Any] | None = None, **changes: Any) -> Training:
    """One layer, for every operator of every member is compiled."""
    whole = {"layers": 1, "dropout": 0.2} | (model or {})
    return configuration(steps, model=whole, **json.loads(json.dumps(EVERYTHING | changes)))


def test_compiled_steps_are_the_eager_ones_within_the_stated_tolerance() -> None:
    config = config_of()
    plain, compiled = trainer(config, "eager"), trainer(config)
    for number in range(50):
        if number == 30:
            for one in (plain, compiled):
                one.vacate(2)
        expected, found = plain.step(), compiled.step()
        for seed in expected:
            assert abs(found[seed].loss - expected[seed].loss) <= AGREES
            assert found[seed].grad_norm == pytest.approx(expected[seed].grad_norm, rel=1e-3)
    for ours, theirs in ((compiled.stacked, plain.stacked), (compiled.average, plain.average)):
        assert max(float((ours[name] - theirs[name]).detach().abs().max()) for name in theirs) <= AGREES
    for seed in (1, 5):
        ours, theirs = compiled.progress[seed], plain.progress[seed]
        assert (ours.batches, ours.dropout) == (theirs.batches, theirs.dropout)
        assert ours.layer_norm_sums == pytest.approx(theirs.layer_norm_sums, rel=1e-3)
    assert not any(bool(value[1].any()) for value in compiled.stacked.values())


def test_the_rate_is_that_of_each_step_and_not_of_the_compiled_one() -> None:
    config = config_of(lr=3e-2, warmup=9)
    rising, still = trainer(config), trainer(config_of(lr=3e-2 / 9, warmup=0, schedule="constant"))
    plain = trainer(config, "eager")
    apart, otherwise = [], []
    for _ in range(25):
        expected, found, other = (one.step() for one in (plain, rising, still))
        apart.append(max(abs(found[seed].loss - expected[seed].loss) for seed in SEEDS))
        otherwise.append(max(abs(other[seed].loss - expected[seed].loss) for seed in SEEDS))
    assert max(apart) < 1e-4
    assert max(otherwise) > 1e-2


def test_one_shape_is_compiled_once_and_found_by_the_next_trainer() -> None:
    first = trainer(config_of())
    made = first.prepare()
    assert [one.seconds > 0.0 for one in made] == [True, True]
    before = {name: value.detach().clone() for name, value in first.stacked.items()}
    chains = {seed: first.progress[seed].dropout for seed in SEEDS}
    assert first.prepare() == made, "made a second time"
    assert all(torch.equal(first.stacked[name], value) for name, value in before.items())
    assert {seed: first.masks.streams[seed].chain for seed in SEEDS} == chains
    first.step()
    assert tuple(first.joint.made.values()) == made  # type: ignore[union-attr]
    # Of the optimiser only the limit of clipping is in the graph.
    other = trainer(config_of(lr=7e-4, warmup=3, schedule="constant", weight_decay=0.0))
    assert [one.found for one in other.prepare()] == [True, True]


def test_the_next_process_finds_what_was_compiled(cache: Path) -> None:
    trainer(config_of()).prepare()
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from test_compiling import trainer, config_of\n"
        "print([one.found for one in trainer(config_of()).prepare()])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    assert done.stdout.split("\n")[0] == "[True, True]", done.stdout + done.stderr
    (kept,) = (cache / "ablate" / "compiled").iterdir()
    assert kept.name.startswith("cpu-")
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ or not os.environ["TORCHINDUCTOR_CACHE_DIR"].startswith(
        str(cache)
    )


def test_a_compiled_cohort_is_taken_up_to_the_last_bit_and_without_a_run_that_ended(tmp_path: Path) -> None:
    config = config_of()
    whole = trainer(config)
    for _ in range(3):
        whole.step()
    path = tmp_path / "cohort.safetensors"
    path.write_bytes(whole.checkpoint())
    rest = [whole.step() for _ in range(4)]
    other, fewer = trainer(config), trainer(config, live=(1, 5))
    other.restore(path)
    fewer.restore(path)
    assert [other.step() for _ in range(4)] == rest
    assert other.checkpoint() == whole.checkpoint()
    assert [fewer.step() for _ in range(4)] == [{seed: one[seed] for seed in (1, 5)} for one in rest]


def test_what_is_not_finite_in_one_seat_changes_no_bit_of_the_others() -> None:
    calm, wild = trainer(config_of()), trainer(config_of())
    for number in range(4):
        with torch.no_grad():
            if number == 1:
                wild.stacked["token.weight"][1] = math.nan
        expected, found = calm.step(), wild.step()
        assert {seed: found[seed] for seed in (1, 5)} == {seed: expected[seed] for seed in (1, 5)}
    assert wild.member(2).diverged(found[2], 2.0)
    wild.vacate(2)
    for _ in range(3):
        expected, found = calm.step(), wild.step()
        assert found == {seed: expected[seed] for seed in (1, 5)}


@pytest.mark.parametrize(
    "changes",
    [
        {"numerics": {"dtype": "bfloat16"}},
        {"name": "muon", "ema": 0.0},
        {"model": {"norm": "post", "positions": "rope", "qk_norm": True, "activation": "swiglu", "dropout": 0.0}},
        {"model": {"positions": "sinusoidal", "residual_scale": "rezero", "tie_embeddings": False, "layers": 2}},
    ],
    ids=json.dumps,
)
def test_other_arithmetic_optimisers_and_models_compile_too(changes: dict[str, Any]) -> None:
    config = config_of(20, **changes)
    plain, compiled = trainer(config, "eager"), trainer(config)
    taken = [(plain.step(), compiled.step()) for _ in range(20)]
    apart = max(abs(a[seed].loss - b[seed].loss) for a, b in taken for seed in SEEDS)
    wider = {"bfloat16": BFLOAT16_AGREES, "muon": MUON_AGREES}
    assert apart <= max(AGREES, *(wider.get(word, 0.0) for word in (config.numerics.dtype, config.optim.name)))


def test_micro_batches_are_summed_over_one_compiled_part() -> None:
    plain = config_of()
    config = plain.model_copy(update={"budget": plain.budget.model_copy(update={"micro_batch": 2})})
    eager, compiled = trainer(config, "eager"), trainer(config)
    assert not compiled.prepare()[0].found, "another shape"
    for _ in range(10):
        expected, found = eager.step(), compiled.step()
        assert max(abs(found[seed].loss - expected[seed].loss) for seed in SEEDS) <= AGREES
    assert len(compiled.prepare()) == 2


LAYOUT = "cohort of 3: seeds 1,2,3; steps compiled"


def test_a_study_of_compiled_steps_says_so_in_every_record_and_comes_to_the_same_verdict(house: House) -> None:
    apart = House(house.path.parent / "apart")
    api.run(apart.write(), RunOptions(cohort="on"), watcher=QUIET)
    study, told = house.write(), StringIO()
    ran = api.run(study, RunOptions(cohort="on", step="compiled"), watcher=PlainWatcher(told))
    assert ran.summary.complete, told.getvalue()
    assert told.getvalue().count(": steps ") == 2, told.getvalue()
    others = records(apart)
    for cell, record in records(house).items():
        assert record.provenance.layout == LAYOUT
        assert "compiled by " in record.provenance.paths
        assert record.pairing == others[cell].pairing
    verdicts = [api.decide(one.path / "studies" / "tiny.yaml").decision for one in (house, apart)]
    assert verdicts[0].verdict == verdicts[1].verdict
    assert not [c.name for c in verdicts[0].checks if not c.passed and c.severity == "inadmissible"]
    assert LAYOUT in (house.path / "reports" / "tiny" / "report.md").read_text()

    # A run made again is compiled again, without being asked, from the cache: the same bits.
    before = outcomes(house)
    (lost,) = house.path.glob("data/runs/tiny/*/none/2")
    shutil.rmtree(lost)
    told = StringIO()
    api.run(study, watcher=PlainWatcher(told))
    assert outcomes(house) == before and "none: steps taken from the cache in" in told.getvalue()

    # Of two kinds in one pair the judge is told.
    (lost,) = house.path.glob("data/runs/tiny/*/none/3")
    shutil.rmtree(lost)
    api.run(study, RunOptions(cohort="on", step="eager"), watcher=QUIET)
    found = [check for check in api.decide(study).decision.checks if "same layout" in check.name]
    assert [check.passed for check in found] == [False] and "steps compiled" in found[0].found


def test_a_run_is_taken_up_only_by_steps_of_its_kind(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SAY_EVERY_S", 0.0)
    assigned = planned(house)

    def dies(message: Message) -> None:
        if message.event == "progress" and message.step == 9:
            raise Killed

    with pytest.raises(Killed):
        carry_out(house, assigned, dies)
    _carry_out_compiled(house, assigned)
    for record in records(house).values():
        assert record.resumed_from == () and record.attempts == 2
        assert any("not as" in mishap for mishap in record.mishaps), record.mishaps
    whole = {seed: record.outcome_sha256 for (_, seed), record in records(house).items()}
    for _, folder in assigned:
        shutil.rmtree(folder.path)
    with pytest.raises(Killed):
        _carry_out_compiled(house, assigned, dies)
    _carry_out_compiled(house, assigned)
    resumed = {seed: record for (_, seed), record in records(house).items()}
    assert all(record.resumed_from for record in resumed.values())
    assert {seed: record.outcome_sha256 for seed, record in resumed.items()} == whole


def _carry_out_compiled(house: House, assigned: Any, say: Any = None) -> None:
    import threading

    from ablate.runner.builtin.cohort import carry_out_together
    from ablate.runner.builtin.worker import Worker

    worker = Worker(house.path / "data" / "corpora", say or (lambda _message: None), threading.Event())
    worker.checkpoint_every_s = 0.0 if say is not None else 60.0
    carry_out_together(worker, assigned, (1, 2, 3), house.path / "data" / "cohort.safetensors", "compiled")


def test_compiling_is_told_in_one_line() -> None:
    made = Made(lambda: (), 2.25, found=False)
    found = Made(lambda: (), 0.5, found=True)
    assert cohorts.compiled_words("none", (made, found)) == "none: steps compiled, and kept for the next time in 2.8 s"
    assert cohorts.compiled_words("none", (found, found)) == "none: steps taken from the cache in 1.0 s"
