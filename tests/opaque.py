"""A compiled function as a device sees it: one operator of torch, into which nobody outside looks.

Torch's compiler leaves a function that runs below torch's operators, where the tape of `tape.py` sees nothing, although
a CUDA graph would record its kernels like any others. So it is made an operator of its own, which the tape notes. What
stands in for the compiler itself here is the list of elementary operations that the compiler is handed, carried out one
after another: no C++ compiler is needed, and a function that cannot be traced fails as it would.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ablate.gpt.compiling import Made

Tensors = tuple[Tensor, ...]
_MADE: list[Callable[..., Tensors]] = []


@torch.library.custom_op("ablate_tests::opaque", mutates_args=())
def opaque(number: int, given: Sequence[Tensor]) -> list[Tensor]:
    """The function of a number."""
    return [one.clone() for one in _MADE[number](*given)]


def seen(made: Made) -> Made:
    """The same as one operator."""
    _MADE.append(made.run)
    number = len(_MADE) - 1
    return dataclasses.replace(made, run=lambda *given: tuple(opaque(number, given)))


def trace_only(work: Callable[..., Tensors], examples: Tensors, _folder: Path, *, deterministic: bool) -> Made:
    """In the place of `ablate.gpt.compiling.compile_once`."""
    from torch.fx.experimental.proxy_tensor import make_fx

    assert isinstance(deterministic, bool)
    return seen(Made(make_fx(work, tracing_mode="fake")(*examples), 0.0, found=False))
