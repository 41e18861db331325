"""Cohorts for real: worker processes, records beside those of separate runs, crashes, divergence, company kept."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SHORT, House
from test_run import QUIET, descendants, events, longer, outcomes, start, wait_until_training

from ablate import api
from ablate.records.checkpoints import Checkpoints
from ablate.records.gather import gather
from ablate.records.run_record import WHOLE_ONLY, RunRecord, layout_of, members_in
from ablate.records.store import RunFolder
from ablate.runner.builtin import cohort as cohorts
from ablate.runner.builtin import run
from ablate.runner.builtin.cohort import carry_out_together
from ablate.runner.builtin.worker import Worker
from ablate.runner.layout import Machine, Spread, choose_machine, cohorts_by_seed
from ablate.runner.messages import Message
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from ablate.training import device as devices
from prereg.errors import RunError
from prereg.registry.plan import RunSpec, plan
from prereg.study.spec import study_from_document

torch.set_num_threads(1)
SEATS = (1, 2, 3)
LAYOUT = "cohort of 3: seeds 1,2,3"


class Killed(BaseException):
    """What no `except Exception` stops: the worker ends as if killed."""


def records(house: House) -> dict[tuple[str, int], RunRecord]:
    read = [RunFolder(path.parent).read_record() for path in house.path.glob("data/runs/*/*/*/*/run.json")]
    return {(record.variant, record.seed): record for record in read if record is not None}


def planned(house: House, lr: float = 1e-3, variant: str = "none") -> list[tuple[RunSpec, RunFolder]]:
    """The runs of one variant of the tiny study, registered and not begun."""
    model = {"layers": 1, "width": 16, "heads": 2, "context": 16, "dropout": 0.1}
    study = house.write(base=longer(30) | {"model": model, "optim": {"lr": lr}})
    api.register(study)
    case = api.open_study(study)
    found = []
    for spec in plan(api.require_registered(case)):
        assert isinstance(spec, RunSpec)
        if spec.variant == variant:
            found.append((spec, RunFolder(case.root.run(spec.study, spec.registration, spec.variant, spec.seed))))
    return found


def carry_out(
    house: House, assigned: list[tuple[RunSpec, RunFolder]], say: Callable[[Message], None] | None = None
) -> list[Message]:
    """As a worker process would, in this one; where its words are listened to, with a checkpoint at every step."""
    said: list[Message] = []
    worker = Worker(house.path / "data" / "corpora", say or said.append, threading.Event())
    worker.checkpoint_every_s = 0.0 if say is not None else 60.0
    carry_out_together(worker, assigned, SEATS, house.path / "data" / "cohort.safetensors")
    return said


def kill(house: House, assigned: list[tuple[RunSpec, RunFolder]], *, step: int, member: int | None = None) -> None:
    """The same, until one of the runs, or that of a member, is at a step: there the worker ends as if killed."""

    def dies(message: Message) -> None:
        here = member is None or message.run_id == assigned[member][0].run_id
        if message.event == "progress" and message.step == step and here:
            raise Killed

    with pytest.raises(Killed):
        carry_out(house, assigned, dies)


@pytest.fixture(scope="module")
def pair_of_houses(trained: House, tmp_path_factory: pytest.TempPathFactory) -> tuple[House, House]:
    """The tiny study, its runs one by one and in cohorts."""
    apart = trained.copy(tmp_path_factory.mktemp("apart") / "house")  # on the CPU `auto` trains each by itself
    together = House(tmp_path_factory.mktemp("together") / "house")
    api.run(together.write(), RunOptions(cohort="on"), watcher=QUIET)
    return apart, together


@pytest.mark.slow
def test_a_study_in_cohorts_is_sealed_run_by_run_and_comes_to_the_same_verdict(
    pair_of_houses: tuple[House, House],
) -> None:
    apart, together = pair_of_houses
    assert events(together) == events(apart) == ["registered", "started", *["sealed"] * 6, "finished"]
    decisions = []
    for house in pair_of_houses:
        decision = api.decide(house.path / "studies" / "tiny.yaml").decision
        assert not [check.name for check in decision.checks if not check.passed and check.severity == "inadmissible"]
        decisions.append(decision)
    assert decisions[0].verdict == decisions[1].verdict
    text = (together.path / "reports" / "tiny" / "report.md").read_text()
    assert LAYOUT in text and "Layout" not in (apart.path / "reports" / "tiny" / "report.md").read_text()
    assert not list(together.path.glob("data/runs/**/*.safetensors.tmp")) and not list(
        together.path.glob("data/runs/*/*/cohort-*")
    )


def test_records_of_a_cohort_are_those_of_separate_runs_but_for_rounding_and_layout(
    pair_of_houses: tuple[House, House],
) -> None:
    ones, others = map(records, pair_of_houses)
    assert set(ones) == set(others) and len(ones) == 6
    for cell, one in ones.items():
        other = others[cell]
        assert (one.provenance.layout, other.provenance.layout) == ("single", LAYOUT)
        assert one.provenance.model_copy(update={"layout": LAYOUT}) == other.provenance
        assert one.pairing == other.pairing
        same = ("status", "steps", "tokens", "parameters", "config", "attempts", "resumed_from", "seed", "variant")
        assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]
        assert other.train_s > 0 and other.eval_s > 0 and other.wall_s > other.train_s
    found = []
    for house in pair_of_houses:
        case = api.open_study(house.path / "studies" / "tiny.yaml")
        metrics = gather(case.root, api.require_registered(case)).metrics.astype({"variant": str, "metric": str})
        names = metrics["metric"].str
        kept = metrics[~names.startswith("speed/") & ~names.startswith(WHOLE_ONLY)]
        # A member of a cohort has no weights and moments of its own to be measured.
        assert bool(names.startswith(WHOLE_ONLY).any()) == (house is pair_of_houses[0])
        found.append(kept.set_index(["variant", "seed", "step", "metric"])["value"].sort_index())
    assert found[0].index.equals(found[1].index) and len(found[0]) > 100
    assert np.abs(found[0] / found[1] - 1).max() < 1e-3
    losses = found[0].index.get_level_values("metric") == "val/loss"
    assert np.abs(found[0] - found[1])[losses].max() < 2e-5
    record = next(pair_of_houses[0].path.glob("data/runs/*/*/none/1/run.json")).read_text()
    assert "layout" not in record  # as an earlier version wrote it, and reads it


@pytest.mark.slow
def test_a_run_made_again_keeps_its_company_and_so_its_bits(
    pair_of_houses: tuple[House, House], tmp_path: Path
) -> None:
    shutil.copytree(pair_of_houses[1].path, tmp_path / "house")
    house = House.__new__(House)
    house.path = tmp_path / "house"
    before = outcomes(house)
    (lost,) = house.path.glob("data/runs/tiny/*/none/2")
    shutil.rmtree(lost)
    (lost.parents[1] / "cohort-none-00000000-checkpoint.safetensors").touch()  # of some earlier company, after a crash
    api.run(house.path / "studies" / "tiny.yaml", watcher=QUIET)  # on the CPU `auto` would train it by itself
    assert outcomes(house) == before
    assert records(house)["none", 2].provenance.layout == LAYOUT
    assert not list(house.path.glob("data/runs/**/*cohort-*"))


def test_a_killed_cohort_is_taken_up_again_to_the_same_bits(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SAY_EVERY_S", 0.0)
    assigned = planned(house)
    kill(house, assigned, step=17, member=1)
    assert [folder.read_record().status for _, folder in assigned] == ["running"] * 3  # type: ignore[union-attr]
    carry_out(house, assigned)
    resumed = {seed: record for (_, seed), record in records(house).items()}
    assert all(0 < record.resumed_from[0] <= 16 and record.status == "done" for record in resumed.values())
    for _, folder in assigned:
        shutil.rmtree(folder.path)
    carry_out(house, assigned)
    for (_, seed), whole in records(house).items():
        assert whole.resumed_from == () and whole.outcome_sha256 == resumed[seed].outcome_sha256
        assert (whole.weights_sha256, whole.pairing) == (resumed[seed].weights_sha256, resumed[seed].pairing)


def test_a_cohorts_damaged_newest_checkpoint_is_passed_over_aloud_and_costs_no_bit(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SAY_EVERY_S", 0.0)
    assigned = planned(house)
    kill(house, assigned, step=9, member=2)
    kept = Checkpoints.at(house.path / "data" / "cohort.safetensors")
    kept.newest.write_bytes(b"damaged")
    carry_out(house, assigned)
    resumed = {seed: record for (_, seed), record in records(house).items()}
    for record in resumed.values():
        assert record.resumed_from == (7,)
        assert record.mishaps == (
            "attempt 2 resumed at step 7: cohort.safetensors is not what was written (its sha256 does not hold)",
        )
    assert not kept.exist() and not kept.hashes.exists()
    for _, folder in assigned:
        shutil.rmtree(folder.path)
    carry_out(house, assigned)
    whole = {seed: record.outcome_sha256 for (_, seed), record in records(house).items()}
    assert {seed: record.outcome_sha256 for seed, record in resumed.items()} == whole


def test_a_run_of_a_cohort_is_made_again_by_itself_and_equal_bits_are_not_promised(
    pair_of_houses: tuple[House, House],
) -> None:
    study = pair_of_houses[1].path / "studies" / "tiny.yaml"
    strict, tolerant = (api.reproduce(study, "none/2", within=within) for within in (None, 1e-3))
    assert strict.unpromised == ("layout not as in the sealed run",)
    assert not strict.exact and not strict.reproduced
    assert tolerant.reproduced and 0.0 < tolerant.largest_relative <= 1e-3


def test_the_peak_memory_of_a_cohort_is_in_the_record_of_each_of_its_runs(pair_of_houses: tuple[House, House]) -> None:
    for record in records(pair_of_houses[1]).values():
        assert record.peak_memory_bytes and record.memory_since == "run"
        assert record.provenance.paths == ""


@pytest.mark.slow
def test_a_diverged_run_is_sealed_the_others_go_on_to_the_same_bits_and_so_does_what_is_left_after_a_crash(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    assigned = planned(house, lr=1e-6)  # nothing is learned, so that losses go up as often as down
    carry_out(house, assigned)
    calm = {seed: record.outcome_sha256 for (_, seed), record in records(house).items()}
    # A bound that the second run's loss passes somewhere in the middle, and not before.
    curve = np.array(_sealed_losses(assigned[1][1]))
    step = 1 + next(i for i in range(3, 20) if curve[i] > curve[:i].max())
    bound = float(curve[: step - 1].max() + curve[step - 1]) / 2 / curve[0]
    wild = [(s.model_copy(update={"diverged_above": bound}) if s.seed == 2 else s, f) for s, f in assigned]
    for _, folder in assigned:
        shutil.rmtree(folder.path)
    carry_out(house, wild)
    found = {seed: record for (_, seed), record in records(house).items()}
    assert (found[2].status, found[2].steps) == ("diverged", step)
    assert {seed: found[seed].outcome_sha256 for seed in (1, 3)} == {seed: calm[seed] for seed in (1, 3)}

    # Killed after it: the second run is sealed, the rest are taken up without it.
    monkeypatch.setattr(run, "SAY_EVERY_S", 0.0)
    for _, folder in assigned:
        shutil.rmtree(folder.path)

    kill(house, wild, step=20)
    assert [f.is_sealed() for _, f in wild] == [False, True, False]
    carry_out(house, [wild[0], wild[2]])
    again = {seed: record for (_, seed), record in records(house).items()}
    assert {seed: again[seed].outcome_sha256 for seed in SEATS} == {s: found[s].outcome_sha256 for s in SEATS}
    assert again[1].resumed_from and again[3].resumed_from and not again[2].resumed_from


def _sealed_losses(folder: RunFolder) -> list[float]:
    import pyarrow.parquet as pq

    rows = pq.read_table(folder.sealed_path).to_pylist()
    return [row["value"] for row in sorted(rows, key=lambda r: r["step"]) if row["metric"] == "train/loss"]


def test_one_run_that_fails_leaves_its_seat_and_the_others_end_with_the_bits_they_would_have_had(house: House) -> None:
    assigned = planned(house)
    carry_out(house, assigned)
    whole = outcomes(house)
    for _, folder in assigned:
        shutil.rmtree(folder.path)
    (assigned[1][1].path / "metrics.jsonl").mkdir(parents=True)  # a folder where the live rows should go
    said = carry_out(house, assigned)
    assert sorted(message.status for message in said if message.event == "ended") == ["done", "done", "failed"]
    assert {cell: digest for cell, digest in outcomes(house).items() if cell != "none/2"} == {
        cell: digest for cell, digest in whole.items() if cell != "none/2"
    }


def test_steps_that_cannot_be_compiled_fail_aloud_and_say_how_to_go_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_self: object) -> tuple[()]:
        raise ValueError("no such operator\nand much more")

    monkeypatch.setattr(cohorts.CohortTrainer, "prepare", refuses)
    ended = [message for message in carry_out(house, planned(house)) if message.event == "ended"]
    assert [message.status for message in ended] == ["failed"] * 3
    wanted = "the steps of none cannot be compiled: ValueError: no such operator; try: ablate run with --step eager"
    assert {message.error for message in ended} == {wanted}


def test_runs_that_cannot_all_be_taken_up_start_over_together(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SAY_EVERY_S", 0.0)
    assigned = planned(house)
    kill(house, assigned, step=5)
    shutil.rmtree(assigned[0][1].path)
    carry_out(house, assigned)
    assert [record.resumed_from for record in records(house).values()] == [()] * 3
    assert sorted(record.attempts for record in records(house).values()) == [1, 2, 2]
    assert {record.status for record in records(house).values()} == {"done"}


@pytest.mark.slow
def test_a_cohort_starts_over_where_the_rows_of_one_seat_were_changed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SAY_EVERY_S", 0.0)
    assigned = planned(house)
    kill(house, assigned, step=9, member=2)
    live = assigned[1][1].live_path
    rows = live.read_bytes()
    at = rows.index(b'"value": ') + len(b'"value": ')
    live.write_bytes(rows[:at] + (b"1" if rows[at : at + 1] != b"1" else b"2") + rows[at + 1 :])
    carry_out(house, assigned)
    for record in records(house).values():
        assert (record.status, record.attempts, record.resumed_from) == ("done", 2, ())
        said = "seed 2: metrics.jsonl is not what was written (its sha256 does not hold)"
        assert record.mishaps == (f"attempt 2 started over: {said}",)


@pytest.mark.slow
def test_a_killed_worker_of_a_cohort_is_replaced_and_every_run_is_sealed(house: House) -> None:
    study, said = house.write(base=longer(300), measure={"every": 150}), StringIO()

    def kill_worker() -> None:
        wait_until_training(house, 2)
        os.kill(descendants(os.getpid())[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill_worker)
    killer.start()
    assert api.run(study, RunOptions(cohort="on", slots=1), watcher=PlainWatcher(said)).summary.complete
    killer.join()
    assert "resuming the runs" in said.getvalue()
    assert events(house).count("sealed") == 6


@pytest.mark.slow
def test_ctrl_c_saves_a_cohort_and_the_next_call_resumes_it_to_the_same_bits(house: House) -> None:
    study = house.write(base=longer(400), seeds=[1, 2, 3], measure={"every": 200})
    process = start(study, "--cohort", "on", "--slots", "1")
    wait_until_training(house, 2)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert list(house.path.glob("data/runs/*/*/cohort-*.safetensors"))
    assert api.run(study, watcher=QUIET).summary.complete
    found = records(house)
    assert any(0 < step < 400 for record in found.values() for step in record.resumed_from)
    assert {record.provenance.layout for record in found.values()} == {LAYOUT}
    other = House(house.path.parent / "other")
    api.run(
        other.write(base=longer(400), seeds=[1, 2, 3], measure={"every": 200}), RunOptions(cohort="on"), watcher=QUIET
    )
    assert outcomes(house) == outcomes(other)


@pytest.mark.slow
def test_a_runs_error_in_a_cohort_is_final_for_the_call_and_the_ledger_has_each(house: House) -> None:
    study = house.write(**SHORT)
    api.register(study)
    case = api.open_study(study)
    spoiled = case.root.run("tiny", api.require_registered(case).sha256, "none", 1)
    (spoiled / "metrics.jsonl").mkdir(parents=True)
    told = StringIO()
    ran = api.run(study, RunOptions(cohort="on"), watcher=PlainWatcher(told))
    assert [line.split(":")[0] for line in ran.summary.failed] == [f"tiny/{ran.registration.sha256[:8]}/none/1"]
    assert (events(house).count("failed"), events(house).count("sealed")) == (1, 3)
    (spoiled / "metrics.jsonl").rmdir()
    assert api.run(study, watcher=QUIET).summary.complete
    assert {record.provenance.layout for record in records(house).values()} == {"cohort of 2: seeds 1,2"}


# Who sits together: a function of plan, option and what stands.


def test_layouts_are_read_as_they_are_written() -> None:
    for members in ((1,), (1, 2, 5), (-3, 0, 12)):
        assert members_in(layout_of(members)) == (members if len(members) > 1 else ())
    assert members_in("cohort of 2: seeds 1,2 and more") == ()


def sequential(**changes: object) -> object:
    from conftest import tiny_document

    return study_from_document(tiny_document(seeds=[1, 2, 3, 4, 5, 6, 7], **changes))


def test_seats_are_filled_in_the_order_of_the_plan_and_never_across_a_look(pair_of_houses: tuple[House, House]) -> None:
    fixed, looking = sequential(), sequential(stopping={"looks": [3, 5, 7]})
    on = cohorts_by_seed(fixed, Machine("cpu", "on"), {})  # type: ignore[arg-type]
    assert set(on.values()) == {(1, 2, 3, 4, 5, 6, 7)}
    assert sorted(set(cohorts_by_seed(fixed, Machine("cpu", "3"), {}).values())) == [(1, 2, 3), (4, 5, 6), (7,)]  # type: ignore[arg-type]
    assert sorted(set(cohorts_by_seed(looking, Machine("cpu", "on"), {}).values())) == [(1, 2, 3), (4, 5), (6, 7)]  # type: ignore[arg-type]
    assert set(cohorts_by_seed(fixed, Machine("cpu", "auto"), {}).values()) == {(seed,) for seed in range(1, 8)}  # type: ignore[arg-type]
    assert set(cohorts_by_seed(fixed, Machine("cuda:0", "auto"), {}).values()) == {(1, 2, 3, 4, 5, 6, 7)}  # type: ignore[arg-type]
    assert set(cohorts_by_seed(fixed, Machine("cuda:0", "off"), {}).values()) == {(seed,) for seed in range(1, 8)}  # type: ignore[arg-type]
    standing = records(pair_of_houses[1])
    stays = cohorts_by_seed(fixed, Machine("cpu", "auto"), standing)  # type: ignore[arg-type]
    assert stays == {seed: (1, 2, 3) if seed <= 3 else (seed,) for seed in range(1, 8)}


@pytest.mark.parametrize("word", ["many", "0", "-2", "1.5", "²"])
def test_a_word_that_names_no_company_is_refused_and_nothing_changes(house: House, word: str) -> None:
    study = house.write()
    before = house.snapshot()
    with pytest.raises(RunError, match=r"auto, on, off, or a number"):
        api.run(study, RunOptions(cohort=word), watcher=QUIET)
    assert house.snapshot() == before


@pytest.mark.parametrize("word", ["on", "2"])
def test_a_run_is_spread_over_devices_or_in_company_not_both(house: House, word: str) -> None:
    study = house.write()
    before = house.snapshot()
    with pytest.raises(RunError, match=f"--cohort {word} with --devices-per-run 2"):
        api.run(study, RunOptions(cohort=word, devices_per_run=2), watcher=QUIET)
    assert house.snapshot() == before
    tiny = api.open_study(study).study
    assert choose_machine(tiny, [], RunOptions(device="cpu", devices_per_run=2, shard="ddp")) == Machine(
        "cpu", "off", spread=Spread(2, "ddp")
    )


def test_arms_that_compute_blocks_again_are_trained_one_by_one_and_it_is_said(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = house.write(base=longer(4) | {"numerics": {"recompute": "blocks"}})
    before = house.snapshot()
    with pytest.raises(RunError, match=r"numerics\.recompute"):
        api.run(study, RunOptions(cohort="on"), watcher=QUIET)
    assert house.snapshot() == before
    tiny = api.open_study(study).study
    assert choose_machine(tiny, [], RunOptions(device="cpu")) == Machine("cpu", "off")  # as it would have been
    monkeypatch.setattr(devices, "cuda_devices", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "An Accelerator")
    found = choose_machine(tiny, [], RunOptions())
    assert found.members == 1 and found.why_apart.startswith("runs are trained one by one: arm ")
    with pytest.raises(RunError, match=r"--devices-per-run 2 on cuda:0"):
        choose_machine(tiny, [], RunOptions(devices_per_run=2, shard="ddp"))


def test_a_device_without_memory_says_how_to_go_on() -> None:
    error = cohorts._plain(torch.OutOfMemoryError("CUDA out of memory"), (1, 2, 3, 4))
    assert isinstance(error, RunError) and "--cohort 2" in error.fix
    other = ValueError("x")
    assert cohorts._plain(other, (1, 2)) is other
