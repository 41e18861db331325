"""One run over several devices: real processes, the same curve, the same files, no orphans."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import House, tiny_document
from test_run import alive, descendants, kill_tree, longer, outcomes, start

from ablate import api
from ablate.records.gather import gather
from ablate.records.provenance import differing
from ablate.records.run_record import Provenance
from ablate.runner.builtin.worker import Worker
from ablate.runner.layout import Spread
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from ablate.training.distributed import ALONE, Ranks, Replicated, Shard, is_lost_connection, join, part, together
from ablate.training.trainer import Step, Trainer
from prereg.errors import EvidenceError, RunError
from prereg.registry.plan import RunSpec, plan

torch.set_num_threads(1)

QUIET = PlainWatcher(StringIO())
STEPS = 12
ROUNDING = 2e-6
"""How far losses in float32 may lie apart, relatively, when sums are taken in another order. Measured over seeds 1, 2
and 3, both ways of spreading, on 2 and 4 devices: at most 1.9e-7, as far as a run strays whose weights are each turned
by their last unit (0.9e-7); `test_accumulation` shows for the same sums that float64 shrinks the gap by nine digits."""
MODEL: dict[str, Any] = {"layers": 2, "width": 18, "heads": 2, "context": 8, "dropout": 0.1}


def spec_of(house: House, **base: dict[str, Any]) -> RunSpec:
    """The first run of a tiny study whose base is as given."""
    parts: dict[str, Any] = {
        "model": MODEL,
        "data": {"corpus": "tiny"},
        "optim": {"lr": 3e-3},
        "budget": {"steps": STEPS, "batch": 8},
    }
    for name, change in base.items():
        parts[name] = {**parts.get(name, {}), **change}
    study = house.write(tiny_document(base=parts))
    api.register(study)
    return plan(api.require_registered(api.open_study(study)))[0]


def trainer_of(house: House, spec: RunSpec, ranks: Ranks = ALONE) -> Trainer:
    text = Worker(house.path / "data" / "corpora", lambda _: None, threading.Event()).text(spec)
    return Trainer(spec.config, text.split, text.tokenizer.size, ranks)


@contextmanager
def joined(devices: int, shard: Shard) -> Iterator[tuple[Replicated, list[subprocess.Popen[bytes]]]]:
    """This process as the first rank, and processes that follow it, as `torchrun` would start them."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        place = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(devices)}
    words = [sys.executable, "-m", "ablate.runner.builtin.process", shard]
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    others = [
        subprocess.Popen(words, env={**os.environ, **place, "RANK": str(rank)}, **silent)  # type: ignore[call-overload]
        for rank in range(1, devices)
    ]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**place, "RANK": "0"}.items():
            patch.setenv(name, value)
        try:
            yield join(shard), others
        finally:
            part()
            for other in others:
                other.kill()
                other.wait()


@contextmanager
def spread(house: House, spec: RunSpec, devices: int, shard: Shard) -> Iterator[Trainer]:
    """A trainer whose run is spread over this process and others."""
    with spread_with_others(house, spec, devices, shard) as (run, _):
        yield run


@contextmanager
def spread_with_others(
    house: House, spec: RunSpec, devices: int, shard: Shard
) -> Iterator[tuple[Trainer, list[subprocess.Popen[bytes]]]]:
    """The same, and the others."""
    with joined(devices, shard) as (ranks, others):
        corpora = str(house.path / "data" / "corpora")
        ranks.send("run", (spec.model_dump_json(), corpora, "cpu"))
        yield trainer_of(house, spec, ranks), others
        ranks.send("end")
        assert [other.wait(60) for other in others] == [0] * (devices - 1)


def losses(steps: list[Step]) -> list[float]:
    return [step.loss for step in steps]


def train(run: Trainer, steps: int) -> list[Step]:
    return [run.step() for _ in range(steps)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "shard", "base"),
    [
        (2, "ddp", {"budget": {"micro_batch": 2}, "optim": {"ema": 0.9}}),
        (2, "fsdp", {"budget": {"micro_batch": 2}, "optim": {"ema": 0.9}, "numerics": {"recompute": "blocks"}}),
        pytest.param(4, "ddp", {"numerics": {"recompute": "blocks"}}, marks=pytest.mark.slow),
        pytest.param(4, "fsdp", {"model": {"tie_embeddings": False}, "optim": {"clip": 0.1}}, marks=pytest.mark.slow),
    ],
    ids=["2 ddp", "2 fsdp", "4 ddp", "4 fsdp"],
)
def test_a_spread_run_is_the_run_of_one_device_within_rounding(
    house: House, tmp_path: Path, devices: int, shard: Shard, base: dict[str, Any]
) -> None:
    spec = spec_of(house, **base)
    alone = trainer_of(house, spec)
    initial = alone.begin(1)
    curve = train(alone, STEPS)
    norms = alone.mean_grad_norms()
    with spread(house, spec, devices, shard) as run:
        assert run.begin(1) == initial
        found = train(run, STEPS)
        assert losses(found) == pytest.approx(losses(curve), rel=ROUNDING)
        # Norms before clipping, of all and of each block: were one taken over a shard, it would be far too small.
        assert [s.grad_norm for s in found] == pytest.approx([s.grad_norm for s in curve], rel=100 * ROUNDING)
        assert run.mean_grad_norms() == pytest.approx(norms, rel=100 * ROUNDING)
        assert run.progress.batches == alone.progress.batches
        assert run.progress.dropout == alone.progress.dropout
        assert run.progress.tokens == alone.progress.tokens
        inputs, targets, _ = run.batches.at(1)
        with run.evaluated() as one, alone.evaluated() as other, torch.inference_mode():
            assert float(one.loss(inputs, targets)) == pytest.approx(float(other.loss(inputs, targets)), rel=ROUNDING)
        path = tmp_path / "c.safetensors"
        path.write_bytes(run.checkpoint())
        weights = run.weights()
        run.begin(1)
        run.restore(path)
        assert run.weights() == weights
    # One format: a device alone reads what several wrote.
    alone.begin(1)
    alone.restore(path)
    assert alone.weights() == weights


@pytest.mark.slow
def test_two_ranks_do_share_the_work(house: House) -> None:
    spec = spec_of(house, model={"dropout": 0.0})
    with spread(house, spec, 2, "fsdp") as run:
        run.begin(1)
        seen: list[int] = []
        run.model.register_forward_pre_hook(lambda _, words: seen.append(len(words[0])))
        run.step()
        assert seen == [4]
        held = sum(p.to_local().numel() for p in run.model.parameters())  # type: ignore[attr-defined]
        assert held < 0.55 * run.parameters


@pytest.mark.slow
def test_bfloat16_keeps_float32_weights_and_the_registered_arithmetic(house: House) -> None:
    spec = spec_of(house, numerics={"dtype": "bfloat16"})
    alone = trainer_of(house, spec)
    alone.begin(1)
    curve = losses(train(alone, STEPS))
    with spread(house, spec, 2, "fsdp") as run:
        run.begin(1)
        found = losses(train(run, STEPS))
        assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    # The unit of bfloat16 is 4e-3; float32 throughout would be closer to itself than this curve is to float32's.
    assert found == pytest.approx(curve, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "shard"), [(3, "ddp"), (2, "fsdp")])
def test_a_spread_run_resumes_to_the_last_bit_in_new_processes(
    house: House, tmp_path: Path, devices: int, shard: Shard
) -> None:
    # Three ranks: with two, a sum has no order, and pieces that change after a resumption would go unnoticed.
    spec = spec_of(house, optim={"ema": 0.9}, budget={"batch": 6})
    with spread(house, spec, devices, shard) as whole:
        whole.begin(1)
        train(whole, 4)
        (tmp_path / "c.safetensors").write_bytes(whole.checkpoint())
        rest, weights, progress = train(whole, 5), whole.weights(), whole.progress
    with spread(house, spec, devices, shard) as other:
        other.begin(1)
        other.restore(tmp_path / "c.safetensors")
        assert train(other, 5) == rest
        assert other.weights() == weights
        assert other.progress == progress


FIRST = ("none/1", "layernorm/1")
"""The run that is stopped, and another after it."""


def study_of(house: House, *, steps: int = 30) -> Path:
    """One arm's baseline and one variant, one seed each, with dropout."""
    base = longer(steps)
    base["model"] = MODEL
    return house.write(base=base, seeds=[1, 2], measure={"every": 10})


def records(house: House) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(house.path.glob("data/runs/*/*/*/*/run.json"))]


def require_same_bits(one: House, other: House) -> None:
    """The same outcomes of all runs, made by the same code: a tree that is edited or merged while it trains here hands
    other code to the workers that start later, and their other bits are no fault of a resumption."""
    pairs = list(zip(records(one), records(other), strict=True))
    for mine, theirs in pairs:
        made_by = (Provenance.model_validate(record["provenance"]) for record in (mine, theirs))
        assert differing(*made_by) == (), (mine["variant"], mine["seed"])
    assert outcomes(one) == outcomes(other)


def until_gone(pids: list[int], within_s: float = 15.0) -> list[int]:
    """Those still alive after a while."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and any(alive(pid) for pid in pids):
        time.sleep(0.05)
    return [pid for pid in pids if alive(pid)]


@contextmanager
def at_work(house: House, study: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`ablate run` on a study, some steps into a run. Whatever is left of it at the end is killed."""
    process = start(study, "--slots", "1", "--devices-per-run", "2", *words)
    try:
        deadline = time.monotonic() + 240  # three processes that import torch, on a machine that may be busy
        live = house.path / "data" / "runs"
        while not any(path.read_bytes().count(b"\n") >= 20 for path in live.glob("*/*/*/*/metrics.jsonl")):
            assert time.monotonic() < deadline and process.poll() is None, "no run began to train"
            time.sleep(0.02)
        yield process
    finally:
        if process.poll() is None:
            kill_tree(process)
        if process.stdout is not None:
            process.stdout.close()


def family(process: subprocess.Popen[str]) -> tuple[int, int, int]:
    """The launcher and its two ranks."""
    _, launcher, first, second = descendants(process.pid)
    return launcher, first, second


@pytest.mark.slow
def test_a_study_is_trained_on_two_devices_a_run_and_reproduced_so_and_every_record_says_it(house: House) -> None:
    study = study_of(house)
    done = api.run(study, RunOptions(slots=1, devices_per_run=2, shard="fsdp"), watcher=QUIET)
    assert done.summary.complete
    again = api.reproduce(study, "none/1")
    assert again.weights == "equal"
    assert "layout" not in [other.part for other in again.provenance]
    assert {r["provenance"]["layout"] for r in records(house)} == {"2 devices, fsdp"}
    alone = House(house.path.parent / "alone")
    api.run(study_of(alone), watcher=QUIET)
    assert all("layout" not in r["provenance"] for r in records(alone))
    curves = []
    for one in (house, alone):
        case = api.open_study(one.path / "studies" / "tiny.yaml")
        evidence = gather(case.root, api.require_registered(case))
        curves.append(evidence.curve("val/loss").sort_values(["variant", "seed", "step"])["value"].tolist())
    assert len(curves[0]) == 4 * 4
    assert curves[0] == pytest.approx(curves[1], rel=ROUNDING)
    for one, other in zip(records(house), records(alone), strict=True):
        assert one["pairing"] == other["pairing"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> House:
    """The first runs of the study, each over two devices, with nobody killed."""
    made = House(tmp_path_factory.mktemp("undisturbed") / "house")
    api.run(study_of(made, steps=120), RunOptions(slots=1, devices_per_run=2, only=FIRST), watcher=QUIET)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("whom", [0, 1])
def test_a_killed_rank_ends_its_worker_and_the_run_resumes_to_the_same_bits(
    house: House, undisturbed: House, whom: int
) -> None:
    only = [word for run in FIRST for word in ("--only", run)]
    with at_work(house, study_of(house, steps=120), *only) as process:
        launcher, *ranks = family(process)
        os.kill(ranks[whom], signal.SIGKILL)
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert re.search(r"the worker of tiny/\w+/none/1 died \(exit 1\); resuming the run", output), output
    assert until_gone([launcher, *ranks]) == []
    assert sorted(record["attempts"] for record in records(house)) == [1, 2]
    require_same_bits(house, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["scheduler", "launcher"])
def test_no_rank_outlives_the_scheduler_or_the_launcher(house: House, whom: str) -> None:
    with at_work(house, study_of(house, steps=100_000), "--shard", "fsdp") as process:
        launcher, *ranks = family(process)
        os.kill(process.pid if whom == "scheduler" else launcher, signal.SIGKILL)
        assert until_gone([launcher, *ranks]) == []


@pytest.mark.slow
def test_ctrl_c_saves_a_spread_run_which_resumes_under_its_spread_and_starts_over_under_another(house: House) -> None:
    study = study_of(house, steps=120)
    with at_work(house, study, "--shard", "fsdp") as process:
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 130, output
    assert len(list(house.path.glob("data/runs/*/*/*/*/checkpoint.safetensors"))) == 1
    other = House(house.path.parent / "other")
    shutil.copytree(house.path, other.path, dirs_exist_ok=True)
    # A run that failed has no outcome, and would look like one with another.
    spread_again = RunOptions(slots=1, devices_per_run=2, shard="fsdp", only=FIRST[:1])
    done = api.run(study, spread_again, watcher=QUIET).summary
    assert done.complete, done.failed
    alone = RunOptions(slots=1, only=FIRST[:1])
    done = api.run(other.path / "studies" / "tiny.yaml", alone, watcher=QUIET).summary
    assert done.complete, done.failed
    ((taken_up,), (begun_again,)) = map(records, (house, other))
    assert taken_up["attempts"] == begun_again["attempts"] == 2
    assert 0 < taken_up["resumed_from"][0] < 120
    assert begun_again["resumed_from"] == []
    assert "layout" not in begun_again["provenance"]
    whole = House(house.path.parent / "whole")
    done = api.run(study_of(whole, steps=120), spread_again, watcher=QUIET).summary
    assert done.complete, done.failed
    require_same_bits(house, whole)


@pytest.mark.slow
def test_an_error_of_one_spread_run_is_recorded_and_the_others_go_on_with_new_ranks(house: House) -> None:
    study = study_of(house)
    api.register(study)
    case = api.open_study(study)
    spoiled = case.root.run("tiny", api.require_registered(case).sha256, "none", 1)
    (spoiled / "metrics.jsonl").mkdir(parents=True)  # a folder where the live rows should go
    done = api.run(study, RunOptions(slots=1, devices_per_run=2), watcher=QUIET)
    assert len(done.summary.failed) == 1 and "/none/1: " in done.summary.failed[0]
    assert (done.summary.sealed, done.summary.planned) == (3, 4)


@pytest.mark.slow
def test_an_error_of_one_rank_alone_is_reported_to_the_first() -> None:
    with joined(2, "ddp") as (ranks, others):
        ranks.send("step")  # before any configuration: an error there
        assert others[0].wait(60) == 1
        with pytest.raises(RuntimeError) as broken:  # nobody is left to sum with, and that is not waited for
            ranks.mean(torch.zeros(()))
        assert is_lost_connection(broken.value)
        assert ranks.reported_error() == "AssertionError: step (rank 1 of 2)"


@pytest.mark.slow
def test_a_rank_that_was_killed_reports_nothing() -> None:
    with joined(2, "ddp") as (ranks, others):
        others[0].kill()
        with pytest.raises(RuntimeError) as broken:
            ranks.mean(torch.zeros(()))
        assert is_lost_connection(broken.value) and ranks.reported_error() is None


FAILS_ON_THE_SECOND_RANK = """
import os, sys
if os.environ.get("RANK") == "1":
    from ablate.training.trainer import Trainer
    gradient = Trainer._gradient
    def failing(self, *words):
        if self.progress.step == 2 and not os.path.exists(os.environ["FAULT_ONCE"]):
            open(os.environ["FAULT_ONCE"], "w").close()
            raise MemoryError("of one rank alone")
        return gradient(self, *words)
    Trainer._gradient = failing
"""


@pytest.mark.slow
def test_a_run_whose_other_rank_meets_an_error_fails_with_it_and_the_next_runs_are_made(house: House) -> None:
    study = study_of(house)
    faulty = house.path.parent / "faulty"
    faulty.mkdir()
    (faulty / "sitecustomize.py").write_text(FAILS_ON_THE_SECOND_RANK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{faulty}:{os.environ.get('PYTHONPATH', '')}")
        patch.setenv("FAULT_ONCE", str(faulty / "met"))
        done = api.run(study, RunOptions(slots=1, devices_per_run=2), watcher=QUIET)
    assert len(done.summary.failed) == 1
    assert "MemoryError: of one rank alone (rank 1 of 2)" in done.summary.failed[0]
    assert (done.summary.sealed, done.summary.planned) == (3, 4)


def test_a_spread_is_read_back_from_the_words_of_a_provenance() -> None:
    for spread_over in (Spread(), Spread.of(2, None), Spread.of(16, "fsdp")):
        assert Spread.of_layout(spread_over.layout) == spread_over
    assert Spread.of_layout("cohort of 2: seeds 1,2") == Spread()


@pytest.mark.slow
def test_a_damaged_checkpoint_is_met_by_all_ranks_and_they_begin_anew_together(house: House, tmp_path: Path) -> None:
    spec = spec_of(house)
    path = tmp_path / "c.safetensors"
    with spread(house, spec, 2, "fsdp") as run:
        run.begin(1)
        first = train(run, 2)
        whole = run.checkpoint()
        for damaged in (whole[:-10], b""):
            path.write_bytes(damaged)
            with pytest.raises(EvidenceError, match="cannot be read"):
                run.restore(path)
            run.begin(1)
            assert train(run, 2) == first


@pytest.mark.slow
def test_no_rank_goes_on_before_all_have_read_the_checkpoint(house: House, tmp_path: Path) -> None:
    spec = spec_of(house)
    path = tmp_path / "c.safetensors"
    with spread_with_others(house, spec, 2, "fsdp") as (run, others):
        run.begin(1)
        train(run, 2)
        path.write_bytes(run.checkpoint())
        rest = train(run, 2)
        run.begin(1)
        [follower] = [other.pid for other in others]
        os.kill(follower, signal.SIGSTOP)  # a busy machine: the other rank comes late
        later = threading.Timer(1.0, os.kill, (follower, signal.SIGCONT))
        later.start()
        run.restore(path)
        path.rename(tmp_path / "moved")  # as a checkpoint that takes the place of a damaged one is
        later.join()
        assert train(run, 2) == rest


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="a file that one process alone sees")
def test_a_checkpoint_that_one_rank_alone_can_read_is_taken_up_by_none(house: House, tmp_path: Path) -> None:
    spec = spec_of(house)
    path = tmp_path / "c.safetensors"
    with spread(house, spec, 2, "ddp") as run:
        run.begin(1)
        first = train(run, 2)
        path.write_bytes(run.checkpoint())
        with path.open("rb") as stream, pytest.raises(EvidenceError, match="another rank found something else"):
            run.restore(Path(f"/proc/self/fd/{stream.fileno()}"))
        run.begin(1)
        assert train(run, 2) == first


@pytest.mark.parametrize(
    ("devices", "shard", "base", "said"),
    [
        (3, None, {}, "a batch of 8 sequences does not divide over 3 devices"),
        (4, None, {"budget": {"steps": 3, "batch": 8, "micro_batch": 4}}, "micro-batches of 4 do not divide the 2"),
        (2, "fsdp", {"optim": {"name": "muon"}}, "--shard fsdp with optim.name muon"),
        (2, "fsdp", {"model": {**MODEL, "residual_scale": "rezero"}}, "--shard fsdp with model.residual_scale rezero"),
        (1, "fsdp", {}, "--shard fsdp needs more than one device a run"),
        (2, "zero", {}, "--shard zero is not known"),
    ],
)
def test_a_spread_that_cannot_be_is_refused_before_anything_is_written(
    house: House, devices: int, shard: str | None, base: dict[str, Any], said: str
) -> None:
    study = house.write(base={**longer(30), **base})
    before = house.snapshot()
    with pytest.raises(RunError, match=re.escape(said)) as caught:
        api.run(study, RunOptions(devices_per_run=devices, shard=shard), watcher=QUIET)
    assert caught.value.required and caught.value.fix
    assert house.snapshot() == before


def test_muon_and_a_learned_scalar_may_be_replicated(house: House) -> None:
    study = api.check(house.write(base={**longer(30), "optim": {"name": "muon"}})).study
    Spread.of(2, "ddp").require_possible(study)
    Spread.of(1, None).require_possible(study)


def test_a_rank_that_is_found_gone_by_sending_an_order_leaves_the_ranks_busy() -> None:
    """Gloo may notice only then; the worker must end and not record the run as failed."""

    class Gone(Ranks):
        size = 2

        def send(self, order: str, words: tuple[str | int, ...] = ()) -> None:
            raise RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection reset by peer")

    class Trained:
        ranks: Ranks = Gone()

        @together
        def step(self) -> None:
            raise AssertionError("nobody follows")

    trained = Trained()
    with pytest.raises(RuntimeError, match="gloo") as lost:
        trained.step()
    assert trained.ranks.busy and is_lost_connection(lost.value)
