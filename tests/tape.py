"""Stands in for a CUDA graph on the CPU: operators are noted with the very tensors they touched, and done again there.

As strict as the real thing where it matters: a replay reads and writes the addresses of the recording, numbers of
Python are what they were then, nothing is done while recording, and reading a number back from a tensor is refused.
Code that runs outside torch's operators (a compiled function) is not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Tensors = tuple[Tensor, ...]


class Tape(TorchDispatchMode):
    """The operators of a piece of work."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Tensor]]] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}
        self.fresh: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing: a number was read back")
        self._keep_written(func, args, kwargs)
        out = func(*args, **kwargs)
        outputs = tensors(out)
        given = {address(one) for one in tensors((args, kwargs))}
        self.fresh |= {address(one) for one in outputs} - given
        self.done.append((func, args, kwargs, outputs))
        return out

    def _keep_written(self, func: Any, args: Any, kwargs: Any) -> None:
        schema = func._schema.arguments
        named = dict(zip((one.name for one in schema), args, strict=False)) | kwargs
        for one in schema:
            if one.alias_info is not None and one.alias_info.is_write and one.name in named:
                for tensor in tensors(named[one.name]):
                    if address(tensor) not in self.fresh:
                        self.before.setdefault(tensor.data_ptr(), (tensor, tensor.detach().clone()))

    def undo(self) -> None:
        """Nothing has been done."""
        with torch.no_grad():
            for tensor, value in self.before.values():
                tensor.copy_(value)

    def replay(self) -> None:
        """Everything once more."""
        with torch.no_grad():
            for func, args, kwargs, places in self.done:
                for place, value in zip(places, tensors(func(*args, **kwargs)), strict=True):
                    if place.data_ptr() != value.data_ptr():
                        place.copy_(value)


class TapeRecorder:
    """A recorder of `ablate.gpt.recording`, which counts."""

    def __init__(self) -> None:
        self.warmed = self.recorded = 0

    def warm(self, work: Callable[[], object]) -> None:
        """Just done."""
        self.warmed += 1
        work()

    def record(self, work: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], None]]:
        """On a new tape."""
        self.recorded += 1
        with Tape() as tape:
            outputs = work()
        tape.undo()
        return outputs, tape.replay


def tensors(tree: Any) -> list[Tensor]:
    return [one for one in tree_leaves(tree) if isinstance(one, Tensor)]


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
