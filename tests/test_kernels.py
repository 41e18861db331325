"""Our kernels compute what torch computes in float64, refuse to be believed without it, and say why they are absent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.gpt import kernels as module
from ablate.gpt.kernels import Absent, Kernels, load
from ablate.gpt.own import own_attention, own_gelu

FOLDER = module.cache_folder()


@pytest.fixture(scope="module")
def built() -> Kernels:
    found = load(FOLDER)
    if isinstance(found, Absent):
        pytest.skip(f"no kernels on this machine: {found.reason}")
    return found


def exact(qkv: torch.Tensor) -> torch.Tensor:
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


@pytest.mark.usefixtures("built")
@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 70), st.integers(1, 5), st.integers(1, 40)),
    st.floats(0.01, 6.0),
    st.booleans(),
)
def test_attention_and_its_gradient_are_those_of_float64(
    shape: tuple[int, int, int, int], spread: float, half: bool
) -> None:
    batch, time, heads, size = shape
    drawn = torch.Generator().manual_seed(batch * 7919 + time * 31 + heads * 7 + size)
    dtype = torch.bfloat16 if half else torch.float32
    qkv = (torch.randn(batch, time, 3, heads, size, generator=drawn) * spread).to(dtype).requires_grad_()
    dy = torch.randn(batch, time, heads, size, generator=drawn).to(dtype)
    y = own_attention(qkv)
    (slope,) = torch.autograd.grad(y, qkv, dy)
    wide = qkv.detach().double().requires_grad_()
    told = exact(wide)
    (told_slope,) = torch.autograd.grad(told, wide, dy.double())
    # bfloat16 keeps eight bits, float32 twenty-four. A score is a product of two, so what a softmax sees errs with the
    # square of the spread, and its gradient multiplies by the spread once more.
    allowed = (2e-2 if half else 1e-6) * max(1.0, spread**3)
    with torch.no_grad():
        assert float((y.double() - told).abs().max()) <= allowed * max(1.0, float(told.abs().max()))
        assert float((slope.double() - told_slope).abs().max()) <= allowed * max(1.0, float(told_slope.abs().max()))


@pytest.mark.usefixtures("built")
def test_gelu_and_its_gradient_are_those_of_float64_far_out_too() -> None:
    x = torch.cat((torch.linspace(-30.0, 30.0, 999), torch.tensor([0.0, -0.0, 1e-30, -1e-30]))).requires_grad_()
    dy = torch.linspace(-2.0, 3.0, len(x))
    (slope,) = torch.autograd.grad(own_gelu(x), x, dy)
    wide = x.detach().double().requires_grad_()
    told = F.gelu(wide, approximate="tanh")
    (told_slope,) = torch.autograd.grad(told, wide, dy.double())
    assert torch.allclose(own_gelu(x).double(), told, rtol=2e-6, atol=2e-6)
    assert torch.allclose(slope.double(), told_slope, rtol=2e-6, atol=4e-6)


@pytest.mark.usefixtures("built")
def test_a_later_token_moves_no_earlier_output() -> None:
    one = torch.randn(1, 40, 3, 2, 8, generator=torch.Generator().manual_seed(3))
    other = one.clone()
    other[:, 25:] += 5.0
    assert torch.equal(own_attention(one)[:, :25], own_attention(other)[:, :25])
    assert not torch.equal(own_attention(one)[:, 25:], own_attention(other)[:, 25:])


@pytest.mark.usefixtures("built")
def test_the_same_input_gives_the_same_bits() -> None:
    qkv = torch.randn(2, 50, 3, 3, 16, generator=torch.Generator().manual_seed(4)).requires_grad_()
    dy = torch.randn(2, 50, 3, 16, generator=torch.Generator().manual_seed(5))
    first, second = (torch.autograd.grad(own_attention(qkv), qkv, dy)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_number_that_is_none_is_not_hidden(bad: float, dtype: torch.dtype) -> None:
    qkv = torch.zeros(1, 20, 3, 1, 16, dtype=dtype)
    qkv[0, 4, 0, 0, 0] = bad
    qkv[0, :, 1] = 1.0
    y = own_attention(qkv)
    assert not torch.isfinite(y[0, 4]).all()
    assert torch.isfinite(y[0, :4]).all() and torch.isfinite(y[0, 5:]).all()
    assert not torch.isfinite(own_gelu(torch.full((17,), float("nan"), dtype=dtype))).any()


def test_a_machine_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    found = load(tmp_path)
    assert isinstance(found, Absent) and "no C++ compiler" in found.reason
    assert not list(tmp_path.iterdir())


def test_a_source_that_does_not_compile_is_told_with_the_compilers_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, built: Kernels
) -> None:
    broken = tmp_path / "broken.cpp"
    broken.write_text("int attention_forward( {\n")
    monkeypatch.setattr(module, "SOURCE", broken)
    found = load(tmp_path / "cache")
    assert isinstance(found, Absent) and "error" in found.reason
    assert not list((tmp_path / "cache").glob("*.so"))
    assert built.sha256 != ""


def test_a_library_that_computes_something_else_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, built: Kernels
) -> None:
    wrong = tmp_path / "wrong.cpp"
    source = module.SOURCE.read_text()
    assert source.count("0.044715f") == 1
    wrong.write_text(source.replace("0.044715f", "0.144715f"))
    monkeypatch.setattr(module, "SOURCE", wrong)
    found = load(tmp_path / "cache")
    assert isinstance(found, Absent) and "errs by" in found.reason
    assert module.worst_error(built) < 1e-5


def test_a_library_cut_short_is_built_again(tmp_path: Path, built: Kernels) -> None:
    kept = tmp_path / f"{built.sha256[:16]}.so"
    kept.write_bytes(b"\x7fELF")
    found = load(tmp_path)
    assert isinstance(found, Kernels) and found.sha256 == built.sha256
    assert kept.stat().st_size > 1000
