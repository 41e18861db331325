"""One recorded run made again: equal to the bit where that is promised, and how far apart where it is not."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from conftest import House, tiny_document
from hypothesis import given
from hypothesis import strategies as st
from own_trainer import SCRIPT, OwnHouse
from rich.console import Console

import ablate as api
from ablate import cli
from ablate.records.comparison import MetricCompared, Reproduction, compare_items, compare_rows
from ablate.records.rows import Row
from ablate.records.run_record import RunRecord
from ablate.records.store import ItemScore, RunFolder, items_bytes, parquet_bytes
from ablate.reporting.summaries.run import reproduction_section
from ablate.reporting.terminal import show
from ablate.runner.messages import Message
from ablate.runner.progress import PlainWatcher
from ablate.workspace import Workspace, require_registered
from prereg.errors import CorpusError, EvidenceError, RegistrationError, RunError, StudyError
from prereg.registry.canon import sha256_bytes
from prereg.registry.ledger import Ledger

QUIET = PlainWatcher(StringIO())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study of two arms that has been run, one of them diverging."""
    made = House(tmp_path_factory.mktemp("finished") / "house")
    document = tiny_document(
        variants={"none": {"model.dropout": 0.1}, "wild": {"optim.lr": 1000.0}},
        seeds=[1, 2],
        hypotheses={"gain": {"claim": "wild lowers val/loss", "smallest": 0.05}},
        decision=[{"verdict": "adopt", "when": "supported(gain) and stable(wild)"}, {"verdict": "inconclusive"}],
        measure={"every": 5},
    )
    assert api.run(made.write(document), workspace=api.Workspace(console=QUIET)).summary.complete
    return made.path


@pytest.fixture
def house(finished: Path, tmp_path: Path) -> House:
    """A copy of it, to be spoiled."""
    made = object.__new__(House)
    made.path = Path(shutil.copytree(finished, tmp_path / "house"))
    return made


def study_of(house: House) -> Path:
    return house.path / "studies" / "tiny.yaml"


def folder_of(house: House, run: str = "none/1") -> RunFolder:
    case = Workspace().open(study_of(house))
    variant, seed = run.split("/")
    return RunFolder(case.root.run("tiny", require_registered(case).sha256, variant, int(seed)))


def reseal(folder: RunFolder, change: Callable[[Row], Row] = lambda row: row, **fields: Any) -> None:
    """Another record in the place of a sealed one, sealed as well: as if the run had come out so."""
    record = folder.read_record()
    assert record is not None
    data = parquet_bytes(record, [change(row) for row in folder.sealed_rows()])
    folder.sealed_path.write_bytes(data)
    folder.write_record(record.model_copy(update={"metrics_sha256": sha256_bytes(data), **fields}))


def moved(metric: str, step: int, factor: float) -> Callable[[Row], Row]:
    def change(row: Row) -> Row:
        here = (row.metric, row.step) == (metric, step)
        return replace(row, value=row.value * factor) if here else row

    return change


def told(found: Reproduction) -> str:
    stream = StringIO()
    show(Console(file=stream, width=120), reproduction_section(found))
    return " ".join(stream.getvalue().split())


def ablate(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["ablate", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.mark.slow
def test_a_run_comes_out_again_to_the_last_bit_and_nothing_in_the_house_moves(house: House) -> None:
    before = house.snapshot()
    heard: list[Message] = []
    found = api.reproduce(study_of(house), "none/1", onlooker=heard.append)
    assert house.snapshot() == before
    assert found.reproduced
    assert found.exact
    assert found.unpromised == ()
    assert (found.steps, found.of_steps) == (30, 30)
    assert found.weights == "equal"
    assert {m.metric for m in found.metrics} >= {"train/loss", "val/loss", "val/accuracy", "grad/norm"}
    assert {m.metric: m.n for m in found.metrics}["train/loss"] == 30
    assert {m.metric: m.n for m in found.metrics}["val/loss"] == 7
    assert all(name.startswith("speed/") for name in found.left_out)
    assert found.left_out
    assert "REPRODUCED to the last bit, the whole run" in told(found)


@pytest.mark.slow
def test_a_diverged_run_comes_out_again_too(house: House) -> None:
    found = api.reproduce(study_of(house), "wild/2")
    assert (found.status_sealed, found.status_again) == ("diverged", "diverged")
    assert found.reproduced
    assert 0 < found.steps < 30


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 7, 10])
def test_the_beginning_alone_is_a_cheap_check(house: House, steps: int) -> None:
    found = api.reproduce(study_of(house), "none/2", steps=steps)
    assert found.exact
    assert found.steps == steps
    assert {m.metric: m.n for m in found.metrics}["train/loss"] == steps
    assert {m.metric: m.n for m in found.metrics}["val/loss"] == 1 + steps // 5
    assert found.weights == "not compared"
    assert f"{steps} of 30 steps" in told(found)


@pytest.mark.slow
def test_more_steps_than_the_run_has_are_the_whole_run(house: House) -> None:
    found = api.reproduce(study_of(house), "none/1", steps=31)
    assert (found.steps, found.weights, found.exact) == (30, "equal", True)


@pytest.mark.slow
def test_one_bit_of_one_value_is_found_where_bits_are_promised(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reseal(folder_of(house), moved("val/loss", 20, 1.0 + 2.0**-52))
    assert ablate(monkeypatch, "reproduce", study_of(house), "--run", "none/1", "--json", "--within", "0.5") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["reproduced"], found["exact"], found["unpromised"]) == (False, False, [])
    (apart,) = [m for m in found["metrics"] if m["n_different"]]
    assert (apart["metric"], apart["n_different"], apart["first_step"]) == ("val/loss", 1, 20)
    assert 0 < apart["largest_relative"] < 3e-16


@pytest.mark.slow
def test_a_difference_after_the_beginning_is_not_seen_by_the_beginning(house: House) -> None:
    reseal(folder_of(house), moved("train/loss", 12, 1.5))
    assert api.reproduce(study_of(house), "none/1", steps=11).exact
    assert not api.reproduce(study_of(house), "none/1", steps=12).reproduced


@pytest.mark.slow
def test_other_weights_are_found(house: House) -> None:
    reseal(folder_of(house), weights_sha256="0" * 64)
    found = api.reproduce(study_of(house), "none/1")
    assert (found.weights, found.reproduced) == ("different", False)


@pytest.mark.slow
def test_a_record_of_old_without_a_hash_of_weights_is_compared_without(house: House) -> None:
    reseal(folder_of(house), weights_sha256=None)
    found = api.reproduce(study_of(house), "none/1")
    assert (found.weights, found.reproduced) == ("not compared", True)


@pytest.mark.slow
def test_elsewhere_the_distance_is_told_with_what_differs_and_accepted_only_where_asked(house: House) -> None:
    record = folder_of(house).read_record()
    assert record is not None
    other = record.provenance.model_copy(update={"torch": "1.0", "processor": "another"})
    reseal(folder_of(house), moved("val/loss", 20, 1.0 + 1e-6), provenance=other, weights_sha256="0" * 64)
    found = api.reproduce(study_of(house), "none/1")
    assert not found.reproduced
    assert [one.part for one in found.provenance] == ["torch", "processor"]
    assert found.unpromised == ("torch and processor not as in the sealed run",)
    assert found.largest_relative == pytest.approx(1e-6, rel=1e-3)
    assert "NOT REPRODUCED" in told(found)
    assert "torch: sealed 1.0, again 2" in told(found)
    assert found.model_copy(update={"within": 1e-5}).reproduced
    assert not found.model_copy(update={"within": 1e-7}).reproduced
    assert "REPRODUCED within 1e-05" in told(found.model_copy(update={"within": 1e-5}))


@pytest.mark.slow
def test_equal_bits_elsewhere_count_though_nobody_promised_them(house: House) -> None:
    record = folder_of(house).read_record()
    assert record is not None
    reseal(folder_of(house), provenance=record.provenance.model_copy(update={"numpy": "1.0"}))
    found = api.reproduce(study_of(house), "none/1", steps=3)
    assert found.reproduced
    assert found.unpromised
    assert "not promised here" in told(found)


@pytest.mark.slow
def test_rows_that_only_one_record_has_are_a_difference(house: House) -> None:
    folder = folder_of(house)
    record = folder.read_record()
    assert record is not None
    data = parquet_bytes(record, [row for row in folder.sealed_rows() if (row.metric, row.step) != ("train/loss", 3)])
    folder.sealed_path.write_bytes(data)
    folder.write_record(record.model_copy(update={"metrics_sha256": sha256_bytes(data)}))
    found = api.reproduce(study_of(house), "none/1", steps=4)
    assert not found.reproduced
    (apart,) = [m for m in found.metrics if not m.equal]
    assert (apart.metric, apart.only_again, apart.only_sealed) == ("train/loss", 1, 0)


@pytest.mark.parametrize(
    ("words", "error", "match"),
    [
        ({"run": "none/9"}, RunError, "is not a run of"),
        ({"run": "none"}, RunError, "is not a run of"),
        ({"run": "nona/1"}, RunError, "is not a run of"),
    ],
)
def test_a_run_that_was_never_planned_is_refused(
    house: House, words: dict[str, str], error: type[StudyError], match: str
) -> None:
    before = house.snapshot()
    with pytest.raises(error, match=match) as raised:
        api.reproduce(study_of(house), **words)
    assert "none/1" in raised.value.fix or "none/2" in raised.value.fix
    assert house.snapshot() == before


FILES = ("run.json", "metrics.parquet", "weights.safetensors", "config.json", "stdout.txt", "stderr.txt", ".lock")


def test_what_is_not_sealed_or_no_longer_holds_is_refused_with_what_to_do(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = folder_of(house)
    record = folder.read_record()
    assert record is not None
    folder.write_record(record.model_copy(update={"status": "running"}))
    with pytest.raises(EvidenceError, match="its status is running"):
        api.reproduce(study_of(house), "none/1")
    folder.write_record(record)
    reseal(folder_of(house), config={**record.config, "data": {"corpus": "other"}})
    with pytest.raises(EvidenceError, match="another configuration"):
        api.reproduce(study_of(house), "none/1")
    folder.sealed_path.write_bytes(b"x")
    before = house.snapshot()
    assert ablate(monkeypatch, "reproduce", study_of(house), "--run", "none/1") == 2
    assert "is not what run.json sealed" in capsys.readouterr().err
    shutil.rmtree(folder.path)
    with pytest.raises(EvidenceError, match="nothing is here"):
        api.reproduce(study_of(house), "none/1")
    assert ablate(monkeypatch, "reproduce", study_of(house), "--run", "none/1", "--steps", "0") == 2
    corpus = house.path / "data" / "corpora" / "tiny" / "input.txt"
    corpus.write_text(corpus.read_text() + "more")
    with pytest.raises(CorpusError):
        api.reproduce(study_of(house), "none/2")
    assert before.keys() - house.snapshot().keys() == {
        p.relative_to(house.path).as_posix() for p in map(folder.path.joinpath, FILES)
    }


def test_a_study_that_is_not_registered_has_no_runs(house: House) -> None:
    other = tiny_document(study="other")
    with pytest.raises(RegistrationError, match="is not registered"):
        api.reproduce(house.write(other), "none/1")


@pytest.mark.slow
def test_the_new_records_are_kept_where_asked_and_nowhere_among_the_evidence(house: House, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert api.reproduce(study_of(house), "none/1", keep=kept).exact
    record, sealed = RunFolder(kept).read_record(), folder_of(house).read_record()
    assert record is not None
    assert sealed is not None
    assert record.outcome_sha256 == sealed.outcome_sha256
    with pytest.raises(RunError, match="is not empty"):
        api.reproduce(study_of(house), "none/1", keep=kept)
    with pytest.raises(RunError, match="lies among the runs"):
        api.reproduce(study_of(house), "none/1", keep=house.path / "data" / "runs" / "tiny" / "new")


@pytest.mark.slow
def test_of_an_unfinished_study_no_value_can_be_worked_out(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ablate.records import comparison

    def as_on_another_machine(sealed: list[Row], again: list[Row], **options: Any) -> Any:
        last = [row for row in again if row.metric == "val/loss"][-1]
        rows = [replace(row, value=row.value * (1.0 + 1e-6)) if row is last else row for row in again]
        return compare_rows(sealed, rows, **options)

    monkeypatch.setattr(comparison, "compare_rows", as_on_another_machine)
    value = [row.value for row in folder_of(house).sealed_rows() if row.metric == "val/loss"][-1]

    def distances() -> MetricCompared:
        return next(m for m in api.reproduce(study_of(house), "none/1").metrics if m.metric == "val/loss")

    finished = distances()
    assert finished.largest_absolute is not None
    assert finished.largest_absolute / finished.largest_relative == pytest.approx(value, rel=1e-4)
    ledger = house.path / "studies" / "ledger.jsonl"
    seals = [entry.index for entry in Ledger(ledger).entries() if entry.event == "sealed"]
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[: seals[-1]]))
    going = distances()
    assert going.largest_absolute is None and going.largest_relative == finished.largest_relative
    with pytest.raises(RunError, match="--keep while runs of 'tiny' are missing"):
        api.reproduce(study_of(house), "none/1", keep=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.slow
def test_a_run_that_was_made_elsewhere_and_imported_comes_out_here(finished: Path, tmp_path: Path) -> None:
    here = object.__new__(House)
    here.path = tmp_path / "here"
    shutil.copytree(finished / "studies", here.path / "studies")
    shutil.copytree(finished / "data" / "corpora", here.path / "data" / "corpora")
    ledger = here.path / "studies" / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().splitlines(keepends=True)[0])  # registered here, run over there
    source = next(path for path in (finished / "data" / "runs" / "tiny").iterdir() if path.is_dir())
    assert api.import_runs(study_of(here), source, note="the other machine").bound
    assert api.reproduce(study_of(here), "none/2").exact


@pytest.mark.slow
def test_a_users_own_trainer_is_started_again_and_compared(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path / "house")
    registration = house.register()
    assert house.carry_out(registration, "fast", 2)[0].status == "done"
    study = house.path / "studies" / "own.yaml"
    found = api.reproduce(study, "fast/2")
    assert found.reproduced
    assert found.exact
    assert {m.metric: m.n for m in found.metrics} == {"train/loss": 4, "val/loss": 1}
    assert "the user's promise" in found.unpromised[0]
    with pytest.raises(RunError, match="alone knows what a step is"):
        api.reproduce(study, "fast/2", steps=2)


@pytest.mark.slow
def test_a_users_own_trainer_that_rolls_dice_is_not_reproduced_and_told_by_how_much(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path / "house")
    house.script(SCRIPT.replace("2.0 - lr", "2.0 + time.time() / 1e12 - lr"))
    registration = house.register()
    assert house.carry_out(registration, "fast", 2)[0].status == "done"
    found = api.reproduce(house.path / "studies" / "own.yaml", "fast/2")
    assert not found.reproduced
    assert [m.metric for m in found.metrics if not m.equal] == ["val/loss"]
    assert 0 < found.largest_relative < 1e-6
    assert found.model_copy(update={"within": 1e-6}).reproduced


@pytest.mark.slow
def test_a_users_own_trainer_that_fails_now_is_an_error_that_says_why(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path / "house")
    house.script(SCRIPT + '\nif "ablate-reproduce" in os.getcwd(): sys.exit("no more")\n')
    registration = house.register()
    assert house.carry_out(registration, "slow", 1)[0].status == "done"
    with pytest.raises(RunError, match=r"the run failed: exit status 1; stderr ends: no more"):
        api.reproduce(house.path / "studies" / "own.yaml", "slow/1")


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_equal_means_every_bit_and_distance_is_symmetric(one: float, other: float) -> None:
    if abs(one) > 1e300 or abs(other) > 1e300:
        one, other = one / 1e10, other / 1e10
    ((found,), _), ((back,), _) = (
        compare_rows([Row(1, "x", a)], [Row(1, "x", b)], up_to=1) for a, b in ((one, other), (other, one))
    )
    assert found.equal == (one.hex() == other.hex())
    assert found == back
    assert found.largest_absolute == abs(one - other)


def test_zeros_of_opposite_sign_differ_in_a_bit_and_by_nothing() -> None:
    ((found,), _) = compare_rows([Row(1, "x", 0.0)], [Row(1, "x", -0.0)], up_to=1)
    assert not found.equal
    assert (found.largest_absolute, found.largest_relative) == (0.0, 0.0)


def test_scores_of_items_are_compared_whatever_their_order(tmp_path: Path, finished: Path) -> None:
    made = object.__new__(House)
    made.path = finished
    record = folder_of(made).read_record()
    assert isinstance(record, RunRecord)
    items = [ItemScore("t", str(n), "0" * 64, "m", n / 3) for n in range(4)]
    folder = RunFolder(tmp_path)
    assert folder.sealed_items() == []
    folder.items_path.write_bytes(items_bytes(record, items[::-1]))
    assert compare_items(items, folder.sealed_items()) == ("equal", 0.0)
    moved = [*items[:3], replace(items[3], value=1.0 + 2**-52)]
    assert compare_items(items, moved) == ("different", 2**-52 / (1.0 + 2**-52))
    assert compare_items(items, items[:3]) == compare_items(items, []) == ("different", None)
    assert compare_items([], []) == ("not compared", None)


@pytest.mark.parametrize(
    ("apart", "within", "unpromised", "accepted"),
    [
        (1e-7, 1e-6, ("another processor",), True),
        (1e-5, 1e-6, ("another processor",), False),
        (None, 1e-6, ("another processor",), False),
        (1e-7, None, ("another processor",), False),
        (1e-7, 1e-6, (), False),
    ],
)
def test_scores_of_items_are_accepted_within_what_metrics_are(
    apart: float | None, within: float | None, unpromised: tuple[str, ...], accepted: bool
) -> None:
    found = Reproduction(
        study="s",
        registration="0" * 64,
        variant="none",
        seed=1,
        steps=1,
        of_steps=1,
        status_sealed="done",
        status_again="done",
        unpromised=unpromised,
        provenance=(),
        metrics=(),
        left_out=(),
        weights="different",
        items="different",
        items_apart=apart,
        within=within,
    )
    assert not found.exact and found.reproduced is accepted
