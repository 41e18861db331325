"""Our kernels compute what torch computes in float64, refuse to be believed without it, and say why they are absent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from conftest import require_kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.training.kernels import library as module
from ablate.training.kernels.backends import own_attend, own_attention, own_feed, own_gelu, own_linear
from ablate.training.kernels.library import Absent, BlockPart, Kernels, Norm, load, worst_error

FOLDER = module.cache_folder()


@pytest.fixture(scope="module")
def built() -> Kernels:
    return require_kernels()


@pytest.fixture
def hastily(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries that are built now are not optimized, which takes a third of the time."""
    monkeypatch.setattr(module, "FLAGS", tuple("-O0" if flag == "-O3" else flag for flag in module.FLAGS))


def exact(qkv: torch.Tensor) -> torch.Tensor:
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def asked(*given: torch.Tensor | None) -> list[torch.Tensor]:
    """The inputs there are."""
    return [one for one in given if one is not None]


@pytest.mark.usefixtures("built")
@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 70), st.integers(1, 5), st.integers(1, 40)),
    st.floats(0.01, 6.0),
    st.booleans(),
    st.booleans(),
)
def test_attention_and_its_gradient_are_those_of_float64(
    shape: tuple[int, int, int, int], spread: float, half: bool, biased: bool
) -> None:
    batch, time, heads, size = shape
    drawn = torch.Generator().manual_seed(batch * 7919 + time * 31 + heads * 7 + size)
    dtype = torch.bfloat16 if half else torch.float32
    qkv = (torch.randn(batch, time, 3, heads, size, generator=drawn) * spread).to(dtype).requires_grad_()
    dy = torch.randn(batch, time, heads, size, generator=drawn).to(dtype)
    bias = torch.randn(3 * heads * size, generator=drawn).requires_grad_() if biased else None
    y = own_attention(qkv, bias)
    slope = torch.cat([one.flatten() for one in torch.autograd.grad(y, asked(qkv, bias), dy)])
    wide, wide_bias = (None if one is None else one.detach().double().requires_grad_() for one in (qkv, bias))
    assert wide is not None
    told = exact(wide if wide_bias is None else wide + wide_bias.view(3, heads, size))
    told_slope = torch.cat([one.flatten() for one in torch.autograd.grad(told, asked(wide, wide_bias), dy.double())])
    # bfloat16 keeps eight bits, float32 twenty-four. A score is a product of two, so what a softmax sees errs with the
    # square of the spread, and its gradient multiplies by the spread once more.
    # The bias, of spread 1, is added to both, and its gradient is a sum over all rows.
    allowed = (2e-2 if half else 1e-6) * max(1.0, spread + biased) ** 3
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
@pytest.mark.parametrize("width", [1, 15, 16, 50])
def test_a_bias_is_added_and_its_gradient_is_the_sum_over_rows(width: int) -> None:
    drawn = torch.Generator().manual_seed(width)
    x, bias = torch.randn(3, 71, width, generator=drawn), torch.randn(width, generator=drawn).requires_grad_()
    dy = torch.randn(3, 71, width, generator=drawn)
    y = own_gelu(x, bias)
    (slope,) = torch.autograd.grad(y, bias, dy)
    wide = bias.detach().double().requires_grad_()
    told = F.gelu(x.double() + wide, approximate="tanh")
    (told_slope,) = torch.autograd.grad(told, wide, dy.double())
    assert torch.allclose(y.detach().double(), told.detach(), atol=2e-6)
    assert torch.allclose(slope.double(), told_slope, rtol=1e-5, atol=2e-5)


def slopes_of(y: torch.Tensor, given: list[torch.Tensor], dy: torch.Tensor) -> list[torch.Tensor]:
    return [y.detach().double(), *(one.double() for one in torch.autograd.grad(y, given, dy.to(y.dtype)))]


def assert_near(ours: list[torch.Tensor], exact: list[torch.Tensor]) -> None:
    """A few units of float32 in the last place of the largest entry: what sums of up to 200 terms come to."""
    for one, other in zip(ours, exact, strict=True):
        assert float((one - other).abs().max()) <= 5e-6 * max(1.0, float(other.abs().max()))


whole_widths = st.sampled_from([16, 32, 48, 64, 80, 128, 144])


@pytest.mark.usefixtures("built")
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), whole_widths, whole_widths, st.booleans())
def test_a_linear_layer_and_its_gradients_are_those_of_float64(height: int, width: int, out: int, biased: bool) -> None:
    drawn = torch.Generator().manual_seed(height * 7919 + width * 31 + out)
    x, dy = torch.randn(height, width, generator=drawn), torch.randn(height, out, generator=drawn)
    weight, bias = torch.randn(out, width, generator=drawn) / width**0.5, torch.randn(out, generator=drawn)
    given = [one.requires_grad_() for one in (x, weight, *([bias] if biased else []))]
    wide = [one.detach().double().requires_grad_() for one in given]
    assert_near(slopes_of(own_linear(*given), given, dy), slopes_of(F.linear(*wide), wide, dy))


def part_of(
    drawn: torch.Generator, kind: str, widths: tuple[int, int, int], biased: bool
) -> tuple[list[torch.Tensor], list[int]]:
    """Tensors of a part of a block that there are, and their places among its six."""
    width, first, second = widths
    sizes = [(width,), (width,), (first, width), (first,), (width, second), (width,)]
    there = [kind != "none", kind == "layernorm", True, biased, True, biased]
    places = [place for place in range(6) if there[place]]
    return [torch.randn(*sizes[at], generator=drawn) / sizes[at][-1] ** 0.5 for at in places], places


def assembled(kind: str, tensors: list[torch.Tensor], places: list[int]) -> BlockPart:
    found: dict[int, torch.Tensor] = dict(zip(places, tensors, strict=True))
    norm = Norm(kind, found.get(0), found.get(1), 1e-5)  # type: ignore[arg-type]
    return BlockPart(norm, (found[2], found.get(3)), (found[4], found.get(5)))


def normed(x: torch.Tensor, norm: Norm) -> torch.Tensor:
    if norm.kind == "layernorm":
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
    return F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps) if norm.kind == "rmsnorm" else x


kinds = st.sampled_from(["none", "layernorm", "rmsnorm"])


@pytest.mark.usefixtures("built")
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), whole_widths, whole_widths, kinds, st.booleans())
def test_a_feed_forward_part_and_its_gradients_are_those_of_float64(
    height: int, width: int, inner: int, kind: str, biased: bool
) -> None:
    drawn = torch.Generator().manual_seed(height * 7919 + width * 31 + inner)
    x, dy = torch.randn(height, width, generator=drawn), torch.randn(height, width, generator=drawn)
    tensors, places = part_of(drawn, kind, (width, inner, inner), biased)
    given = [one.requires_grad_() for one in (x, *tensors)]
    y = own_feed(given[0], assembled(kind, given[1:], places))
    with torch.no_grad():
        assert torch.equal(y, own_feed(x, assembled(kind, tensors, places)))
    wide = [one.detach().double().requires_grad_() for one in given]
    part = assembled(kind, wide[1:], places)
    curve = F.gelu(F.linear(normed(wide[0], part.norm), *part.first), approximate="tanh")
    assert_near(slopes_of(y, given, dy), slopes_of(wide[0] + F.linear(curve, *part.second), wide, dy))


@pytest.mark.usefixtures("built")
@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 120), whole_widths),
    st.sampled_from([(1, 16), (2, 8), (4, 4), (2, 40), (3, 16), (2, 32)]),
    kinds,
    st.booleans(),
)
def test_an_attention_part_and_its_gradients_are_those_of_float64(
    shape: tuple[int, int, int], heads_and_size: tuple[int, int], kind: str, biased: bool
) -> None:
    (batch, time, width), (heads, size) = shape, heads_and_size
    inner = heads * size
    drawn = torch.Generator().manual_seed(time * 7919 + width * 31 + inner)
    x, dy = torch.randn(batch, time, width, generator=drawn), torch.randn(batch, time, width, generator=drawn)
    tensors, places = part_of(drawn, kind, (width, 3 * inner, inner), biased)
    given = [one.requires_grad_() for one in (x, *tensors)]
    y = own_attend(given[0], assembled(kind, given[1:], places), heads)
    with torch.no_grad():
        assert torch.equal(y, own_attend(x, assembled(kind, tensors, places), heads))
    wide = [one.detach().double().requires_grad_() for one in given]
    part = assembled(kind, wide[1:], places)
    mixed = exact(F.linear(normed(wide[0], part.norm), *part.first).view(batch, time, 3, heads, size))
    told = wide[0] + F.linear(mixed.flatten(2), *part.second)
    assert_near(slopes_of(y, given, dy), slopes_of(told, wide, dy))


@pytest.mark.usefixtures("built")
def test_a_row_gives_the_same_bits_among_few_and_many() -> None:
    drawn = torch.Generator().manual_seed(6)
    x, part = torch.randn(200, 48, generator=drawn), part_of(drawn, "layernorm", (48, 144, 144), True)
    whole = assembled("layernorm", *part)
    for count in (1, 5, 96, 131):
        assert torch.equal(own_feed(x, whole)[:count], own_feed(x[:count], whole))
        assert torch.equal(own_linear(x, *whole.first)[:count], own_linear(x[:count], *whole.first))


@pytest.mark.usefixtures("built")
def test_a_row_that_is_no_number_spoils_no_other() -> None:
    drawn = torch.Generator().manual_seed(7)
    x, part = torch.randn(120, 32, generator=drawn), part_of(drawn, "rmsnorm", (32, 64, 64), True)
    x[100, 3] = float("nan")
    y = own_feed(x, assembled("rmsnorm", *part))
    assert y[100].isnan().all()
    assert torch.isfinite(torch.cat((y[:100], y[101:]))).all()


@pytest.mark.usefixtures("built")
def test_gelu_of_a_number_that_is_none_is_none_and_its_neighbour_in_another_row_is_kept() -> None:
    x = torch.ones(3, 32)
    x[1, 20] = float("nan")
    y = own_gelu(x)
    assert y[1, 20].isnan() and torch.isfinite(y[[0, 2]]).all()


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
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "attention.cpp").write_text("int attention_forward( {\n")
    monkeypatch.setattr(module, "SOURCE", broken)
    found = load(tmp_path / "cache")
    assert isinstance(found, Absent) and "error" in found.reason
    assert not list((tmp_path / "cache").glob("*.so"))
    assert built.sha256 != ""


@pytest.mark.slow
@pytest.mark.usefixtures("hastily")
@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("gelu.h", ("0.044715f", "0.144715f")),
        ("norm.h", ("(slope - level - value * tilt)", "(slope - value * tilt)")),
        ("products.h", ("add_up(dy + t * out, rows, out, dbias)", "add_up(dy, rows, out, dbias)")),
        ("attention.h", ("(load(moves + j * LANES) - mean)", "load(moves + j * LANES)")),
    ],
)
def test_a_library_that_computes_something_else_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, built: Kernels, file: str, change: tuple[str, str]
) -> None:
    folder = tmp_path / "native"
    shutil.copytree(module.SOURCE, folder)
    source = (folder / file).read_text()
    assert source.count(change[0]) == 1
    (folder / file).write_text(source.replace(*change))
    monkeypatch.setattr(module, "SOURCE", folder)
    found = load(tmp_path / "cache")
    assert isinstance(found, Absent) and "errs by" in found.reason
    assert worst_error(built) < 1e-5


def test_a_library_cut_short_is_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, built: Kernels) -> None:
    kept = tmp_path / f"{built.sha256[:16]}.so"
    kept.write_bytes(b"\x7fELF")
    whole = (FOLDER / kept.name).read_bytes()
    monkeypatch.setattr(module, "_compiled", lambda _compiler: whole)
    found = load(tmp_path)
    assert isinstance(found, Kernels) and found.sha256 == built.sha256
    assert kept.read_bytes() == whole
