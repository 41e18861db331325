"""Where runs are computed: chosen by name, refused before anything is written, nothing left on the CPU by mistake."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import House
from own_trainer import own_document
from split_samples import split_of
from test_run import QUIET
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typer.testing import CliRunner

import ablate as api
from ablate import cli
from ablate.cli import app
from ablate.evaluation.suites import evaluate
from ablate.gpt import device as devices
from ablate.gpt import trainer
from ablate.gpt.device import ENVIRONMENT, choose_device, cuda_devices, device_name
from ablate.gpt.main import load_inputs
from ablate.gpt.trainer import Trainer, arithmetic
from ablate.records.provenance import current_provenance, differing
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from ablate.runner import local, pool
from ablate.runner.alone import run_alone
from ablate.runner.machine import Machine, choose_machine
from ablate.runner.options import RunOptions
from ablate.runner.process import Place
from ablate.workspace import Workspace, require_registered
from prereg.errors import RunError, StudyError
from prereg.registry.plan import plan
from prereg.study.spec import study_from_document
from prereg.study.training import Training

torch.set_num_threads(1)
SPLIT = split_of(np.random.default_rng(0).integers(0, 7, 400), 0.1, 8)


def with_gpus(monkeypatch: pytest.MonkeyPatch, count: int, name: str = "An Accelerator") -> None:
    """As on a machine with GPUs, for everything that only asks."""
    monkeypatch.setattr(devices, "cuda_devices", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: name)


@pytest.mark.parametrize(
    ("wanted", "count", "chosen"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda:0"),
        ("cpu", 2, "cpu"),
        ("cuda", 1, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
    ],
)
def test_a_device_is_chosen_by_its_name(monkeypatch: pytest.MonkeyPatch, wanted: str, count: int, chosen: str) -> None:
    with_gpus(monkeypatch, count)
    assert choose_device(wanted) == chosen
    assert device_name(chosen) == ("cpu" if chosen == "cpu" else "An Accelerator")


@pytest.mark.parametrize(
    ("wanted", "count", "fix"),
    [
        ("cuda", 0, "--device cpu"),
        ("cuda:1", 1, "--device cuda:0"),
        ("cuda:0", 0, "--device cpu"),
        ("gpu", 1, "--device auto"),
        ("cuda:x", 1, "--device auto"),
        ("cuda:²", 1, "--device auto"),
        ("", 1, "--device auto"),
    ],
)
def test_a_device_that_is_not_here_is_refused_with_one_that_is(
    monkeypatch: pytest.MonkeyPatch, wanted: str, count: int, fix: str
) -> None:
    with_gpus(monkeypatch, count)
    with pytest.raises(RunError) as caught:
        choose_device(wanted)
    assert caught.value.fix == fix


def test_the_verb_refuses_with_exit_code_2_before_anything_is_written(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = house.write()
    before = house.snapshot()
    monkeypatch.setattr(sys, "argv", ["ablate", "run", str(study), "--device", "cuda:7"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "cuda:7" in said and "try:" in said
    assert house.snapshot() == before


def test_without_a_driver_or_with_a_torch_of_the_cpu_alone_torch_is_not_even_loaded() -> None:
    code = (
        "import sys; from ablate.gpt.device import choose_device\nprint(choose_device('auto'), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if "+cpu" in torch.__version__:
        assert done.stdout.split() == ["cpu", "False"]
    else:
        assert done.stdout.split()[0] == choose_device("auto")


@pytest.mark.parametrize(
    ("built", "driver", "asked"), [("2.13.0+cpu", True, 0), ("2.13.0", False, 0), ("2.13.0", True, 3)]
)
def test_cuda_is_asked_of_torch_only_where_a_driver_stands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, built: str, driver: bool, asked: int
) -> None:
    place = tmp_path / "driver"
    place.touch() if driver else None
    monkeypatch.setattr(devices, "DRIVER", (tmp_path / "none", place))
    monkeypatch.setattr(devices, "version", lambda _name: built)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert cuda_devices() == asked


def test_a_users_own_trainer_chooses_for_itself() -> None:
    study = study_from_document(own_document())
    assert choose_machine(study, [], RunOptions()) == Machine()
    with pytest.raises(RunError, match="brings its own trainer"):
        choose_machine(study, [], RunOptions(device="cpu"))


def test_resuming_asks_for_the_device() -> None:
    mine = current_provenance(threads=1)
    assert differing(mine, current_provenance(threads=1)) == ()
    assert differing(mine, current_provenance(threads=1, device="An Accelerator")) == ("device",)


# A study keeps to the device of its sealed runs.


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> House:
    made = House(tmp_path_factory.mktemp("sealed") / "house")
    base = {
        "model": {"layers": 1, "width": 8, "heads": 1, "context": 8},
        "data": {"corpus": "tiny"},
        "budget": {"steps": 2, "batch": 2},
    }
    api.run(made.write(base=base, measure={"every": 2}, seeds=[1, 2, 3]), workspace=api.Workspace(console=QUIET))
    return made


def records(house: House, device: str) -> list[RunRecord]:
    read = [RunFolder(path.parent).read_record() for path in house.path.glob("data/runs/*/*/*/*/run.json")]
    return [
        record.model_copy(update={"provenance": record.provenance.model_copy(update={"device": device})})
        for record in read
        if record is not None
    ]


@pytest.mark.slow
def test_runs_begun_on_one_device_are_not_completed_on_another(sealed: House, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Workspace().open(sealed.path / "studies" / "tiny.yaml").study
    with_gpus(monkeypatch, 1)
    on_cpu, on_gpu, elsewhere = (records(sealed, name) for name in ("cpu", "An Accelerator", "Another"))
    assert choose_machine(study, on_cpu, RunOptions()) == Machine("cpu")
    assert choose_machine(study, on_gpu, RunOptions()) == Machine("cuda:0")
    assert choose_machine(study, on_gpu, RunOptions(device="cuda")) == Machine("cuda:0")
    assert choose_machine(study, [], RunOptions()) == Machine("cuda:0")
    assert choose_machine(study, records(sealed, "not stated"), RunOptions()).device == "cuda:0"
    for standing, wanted, said in (
        (on_cpu, "cuda", "6 sealed runs of 'tiny' were made on cpu"),
        (on_gpu, "cpu", "made on An Accelerator"),
        (elsewhere, "auto", "made on Another"),
    ):
        with pytest.raises(RunError, match=said):
            choose_machine(study, standing, RunOptions(device=wanted))
    with_gpus(monkeypatch, 0)
    with pytest.raises(RunError, match="would use cpu"):
        choose_machine(study, on_gpu, RunOptions())


def test_a_refusal_to_mix_devices_changes_nothing(sealed: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, 1)
    before = sealed.snapshot()
    with pytest.raises(RunError, match="--device cpu"):
        api.run(
            sealed.path / "studies" / "tiny.yaml", RunOptions(device="cuda"), workspace=api.Workspace(console=QUIET)
        )
    done = CliRunner().invoke(app, ["run", str(sealed.path / "studies" / "tiny.yaml"), "--device", "cuda"])
    assert isinstance(done.exception, StudyError)
    assert sealed.snapshot() == before


def test_runs_of_a_gpu_start_with_what_deterministic_products_need_and_one_at_a_time(
    sealed: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = Workspace().open(sealed.path / "studies" / "tiny.yaml")
    assert local.slots_of(case.study, Machine("cuda:0")) == 1
    assert local.slots_of(case.study, Machine("cpu")) == local.default_slots()
    started: list[dict[str, str]] = []

    class StartedError(Exception):
        pass

    def popen(*_words: object, env: dict[str, str], **_rest: object) -> None:
        started.append(env)
        raise StartedError

    monkeypatch.setattr(pool.subprocess, "Popen", popen)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    specs = plan(require_registered(case))
    for name in ("cpu", "cuda:0"):
        with pytest.raises(StartedError), (tmp_path / "log").open("w") as log:
            pool.Pool(specs, Place(case.root.path, name), log).__enter__()
    assert "CUBLAS_WORKSPACE_CONFIG" not in started[0]
    assert ENVIRONMENT.items() <= started[1].items()


@pytest.mark.slow
def test_what_forks_the_trainer_does_not_ask_cuda(
    sealed: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CUDA cannot be used in a fork of a process that has initialised it: torch refuses, and every run fails."""
    case = Workspace().open(sealed.path / "studies" / "tiny.yaml")
    spec = plan(require_registered(case))[0]
    asked = tmp_path / "asked"

    def name_of(device: str) -> str:
        with asked.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return "An Accelerator"

    monkeypatch.setattr(torch.cuda, "get_device_name", name_of)
    ended = run_alone(spec, tmp_path / "run", Place(case.root.path, "cuda:0"))
    assert ended.status == "failed", "there is no GPU here: the trainer itself must have found out"
    assert "get_device_name" not in (tmp_path / "run" / "stderr.txt").read_text()
    assert set(asked.read_text().split()) == {str(os.getpid())}, "nobody but the caller, who forks no trainer"


@pytest.mark.slow
def test_what_is_loaded_before_the_forks_asks_no_accelerator(
    sealed: House, monkeypatch: pytest.MonkeyPatch, no_own_corpora: None
) -> None:
    def refuse(*_given: object, **_named: object) -> None:
        raise AssertionError("asks for an accelerator")

    for module in (torch.cuda, torch.accelerator):
        for name in ("is_available", "device_count"):
            monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", refuse)
    case = Workspace().open(sealed.path / "studies" / "tiny.yaml")
    load_inputs(plan(require_registered(case)), case.root.path / "data" / "corpora", case.root.path)


# No GPU is needed to see that nothing stays behind on the CPU: tensors on torch's device `meta` have no values, but
# every operation is told where its tensors are.


class OneDevice(TorchDispatchMode):
    """Refuses an operation whose tensors lie on two devices, moves and single numbers aside."""

    MOVES = ("aten::_to_copy", "aten::copy_")

    def __init__(self) -> None:
        super().__init__()
        self.products: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        kinds = {one.device.type for one in given if one.dim()}
        if func.name().split(".")[0] not in self.MOVES:
            self.products |= kinds if func.name().split(".")[0].endswith("mm") else set()
            assert len(kinds) < 2, f"{func.name()} mixes {sorted(kinds)}"
        return func(*args, **(kwargs or {}))


@pytest.fixture
def without_values(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What cannot be done where there are no values: hashing the first bytes, reading numbers, fused optimisers."""
    monkeypatch.setattr(trainer, "initialise", lambda *_given: {})
    monkeypatch.setattr(torch.Tensor, "__float__", lambda _self: 0.0, raising=False)
    monkeypatch.setattr(torch.Tensor, "__int__", lambda _self: 0, raising=False)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: torch.zeros(tuple(self.shape), dtype=self.dtype))
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: np.zeros(tuple(self.shape)).tolist(), raising=False)
    for name in ("AdamW", "Adam", "SGD"):
        plain: Callable[..., Any] = getattr(torch.optim, name)

        def unfused(params: Any, *, fused: bool, make: Callable[..., Any] = plain, **words: Any) -> Any:
            assert fused
            return make(params, foreach=False, **words)

        monkeypatch.setattr(torch.optim, name, functools.partial(unfused))
    # No generator draws there; without one torch.rand gives shape and device.
    generator = torch.Generator

    def seeded(device: Any = "cpu") -> Any:
        return SimpleNamespace(manual_seed=lambda _seed: None) if str(device) == "meta" else generator(device)

    monkeypatch.setattr(torch, "Generator", seeded)
    yield


MODELS: list[dict[str, Any]] = [
    {"dropout": 0.1},
    {"positions": "rope", "qk_norm": True, "norm": "post", "block_norm": "rmsnorm", "activation": "swiglu"},
    {"positions": "sinusoidal", "norm": "sandwich", "residual_scale": "rezero", "embedding_norm": "center"},
]


# Where a tensor of a model lies does not depend on the optimizer, so each is tried with one of the other.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "optim"),
    list(zip(MODELS, [{}, {"name": "sgd", "ema": 0.9}, {"name": "muon"}], strict=True)),
    ids=json.dumps,
)
@pytest.mark.usefixtures("without_values")
def test_no_tensor_of_a_step_or_an_evaluation_stays_behind_on_the_cpu(
    model: dict[str, Any], optim: dict[str, Any]
) -> None:
    config = Training.model_validate_json(
        json.dumps(
            {
                "model": {"layers": 2, "width": 16, "heads": 2, "context": 8} | model,
                "budget": {"steps": 5, "batch": 2},
                "optim": optim,
            }
        )
    )
    run = Trainer(config, SPLIT, 7, device="meta")
    with OneDevice() as watched:
        run.begin(1)
        for _ in range(2):
            run.step()
        with run.evaluated() as judged:
            assert judged.device.type == "meta"
            evaluate(judged, SPLIT.validation, np.ones(7, dtype=int), ("loss",))  # others ask for values
    assert watched.products == {"meta"}


def test_bfloat16_is_asked_of_the_device_the_run_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(torch, "autocast", lambda kind, dtype: asked.append((kind, dtype)))
    config = Training.model_validate({"numerics": {"dtype": "bfloat16"}})
    for name in ("cpu", "cuda:1"):
        arithmetic(config, torch.device(name))
    assert asked == [("cpu", torch.bfloat16), ("cuda", torch.bfloat16)]
