"""The path through attention is measured once a machine, kept, taken again, and named by the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ablate.training.kernels import backends as module
from ablate.training.kernels.backends import Paths, choose_paths, default_paths
from ablate.training.kernels.library import Absent
from ablate.training.model import GPT, initialise
from prereg.study.training import Training


def felt(**changes: object) -> Training:
    """A configuration large enough that a choice is measured: 16 x 8 x 64 x 64 attention weights a layer."""
    model = {"layers": 2, "width": 64, "heads": 8, "context": 64, **changes}
    return Training.model_validate({"model": model, "budget": {"batch": 16, "steps": 2}})


def test_small_work_is_not_measured_and_leaves_no_file(tmp_path: Path) -> None:
    small = Training.model_validate({"model": {"layers": 1, "width": 16, "heads": 2, "context": 16}})
    assert choose_paths(small, tmp_path / "cache") == default_paths(small) == Paths("fused", "torch")
    half = small.model_copy(update={"numerics": small.numerics.model_copy(update={"dtype": "bfloat16"})})
    assert default_paths(half).attention == "plain"
    assert not (tmp_path / "cache").exists()


def test_a_choice_is_recorded_with_its_times_and_taken_again(tmp_path: Path) -> None:
    chosen = choose_paths(felt(), tmp_path)
    (entry,) = json.loads((tmp_path / "paths.json").read_text())
    taken = [entry[part]["taken"] for part in ("attention", "gelu", "products")]
    assert taken == [chosen.attention, chosen.gelu, chosen.products]
    assert {"fused", "plain"} <= set(entry["attention"]["ms"]) and min(entry["attention"]["ms"].values()) > 0
    # Another measurement would never give the same times: the record is what decides.
    other = "plain" if chosen.attention != "plain" else "fused"
    entry["attention"]["taken"], entry["gelu"]["taken"], entry["products"]["taken"] = other, "torch", "torch"
    (tmp_path / "paths.json").write_text(json.dumps([entry]))
    assert choose_paths(felt(), tmp_path) == Paths(other, "torch")
    choose_paths(felt(heads=16), tmp_path)
    assert len(json.loads((tmp_path / "paths.json").read_text())) == 2


def test_a_record_that_cannot_be_read_is_measured_anew(tmp_path: Path) -> None:
    (tmp_path / "paths.json").write_text("[{]")
    choose_paths(felt(), tmp_path)
    assert len(json.loads((tmp_path / "paths.json").read_text())) == 1


def test_the_fastest_is_taken_unless_it_is_no_clear_winner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    times = iter([10.0, 9.5, 4.0, 3.0, 2.9, 7.0, 6.0])
    monkeypatch.setattr(module, "_milliseconds", lambda _candidate, _given: next(times))
    chosen = choose_paths(felt(), tmp_path)
    (entry,) = json.loads((tmp_path / "paths.json").read_text())
    if len(entry["attention"]["ms"]) < 3:
        pytest.skip("no kernels of our own on this machine")
    assert entry["attention"]["ms"] == {"fused": 10.0, "plain": 9.5, "own": 4.0}
    assert entry["products"]["ms"] == {"torch": 7.0, "own": 6.0}
    assert (chosen.attention, chosen.gelu, chosen.products) == ("own", "torch", "own")
    assert str(chosen).startswith("attention own, gelu torch, products own, kernels ")
    assert chosen.kernels and chosen.kernels[:12] in str(chosen)


def test_without_kernels_torchs_own_are_chosen_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "kernels", lambda: Absent("no C++ compiler"))
    chosen = choose_paths(felt(), tmp_path)
    (entry,) = json.loads((tmp_path / "paths.json").read_text())
    assert set(entry["attention"]["ms"]) == {"fused", "plain"} and entry["asked"]["kernels"] == "no C++ compiler"
    assert chosen.gelu == chosen.products == "torch" and chosen.kernels == ""


@pytest.mark.parametrize("changes", [{"width": 72}, {"width": 24}])
def test_widths_that_our_products_do_not_know_are_left_to_torch(changes: dict[str, int], tmp_path: Path) -> None:
    chosen = choose_paths(felt(**changes), tmp_path)
    (entry,) = json.loads((tmp_path / "paths.json").read_text())
    assert set(entry["products"]["ms"]) == {"torch"} and chosen.products == "torch"
    # Asked to take them, a model takes torch's where it must.
    config = felt(**changes).model
    tokens = torch.randint(0, 11, (2, 65), generator=torch.Generator().manual_seed(1))
    one, other = (GPT(config, 11, Paths("fused", products=path)) for path in ("own", "torch"))  # type: ignore[arg-type]
    for model in (one, other):
        initialise(model, 3)
    assert torch.allclose(one.loss(tokens[:, :-1], tokens[:, 1:]), other.loss(tokens[:, :-1], tokens[:, 1:]), rtol=1e-6)


def test_products_in_bfloat16_are_left_to_torch(tmp_path: Path) -> None:
    asked = felt()
    half = asked.model_copy(update={"numerics": asked.numerics.model_copy(update={"dtype": "bfloat16"})})
    assert choose_paths(half, tmp_path).products == "torch"
    (entry,) = json.loads((tmp_path / "paths.json").read_text())
    assert set(entry["products"]["ms"]) == {"torch"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "rope"},
        {"qk_norm": True},
        {"positions": "rope", "qk_norm": True, "head_size": 10},
        {"block_norm": "rmsnorm", "bias": False},
        {"norm": "post"},
        {"norm": "sandwich", "activation": "relu2"},
        {"norm": "none", "init": {"normal": 0.05}},
        {"activation": "swiglu"},
        {"activation": "gelu", "residual_scale": "depth"},
        {"head_size": 6},
    ],
)
def test_every_path_gives_the_same_loss_and_gradients(changes: dict[str, object]) -> None:
    config = felt(**changes).model
    tokens = torch.randint(0, 11, (4, 65), generator=torch.Generator().manual_seed(1))
    found = {}
    taken = [Paths("fused"), Paths("plain")]
    if not isinstance(module.kernels(), Absent):
        taken += [Paths("own", "own"), Paths("own", "own", "own"), Paths("fused", "torch", "own")]
    for paths in taken:
        model = GPT(config, 11, paths)
        initialise(model, 3)
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        found[paths] = (loss.detach(), [p.grad for p in model.parameters()])
    reference = found[Paths("fused")]
    for loss, slopes in found.values():
        assert torch.allclose(loss, reference[0], rtol=1e-6)
        for one, other in zip(slopes, reference[1], strict=True):
            assert one is not None and other is not None
            assert float((one - other).abs().max()) <= 1e-6 + 1e-4 * float(other.abs().max())


@pytest.mark.slow
def test_two_processes_that_ask_at_once_are_told_the_same(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom ablate.training.kernels.backends import choose_paths\n"
        "from prereg.study.training import Training\n"
        f"config = Training.model_validate_json({felt().model_dump_json()!r})\n"
        "print(choose_paths(config, Path(sys.argv[1])))\n"
    )
    asked = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = {process.communicate(timeout=120)[0] for process in asked}
    assert len(told) == 1 and all(process.returncode == 0 for process in asked)
    assert len(json.loads((tmp_path / "paths.json").read_text())) == 1
