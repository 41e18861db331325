"""One run over several devices: every rank takes its rows of the same global batch, and steps like all the others.

    Ranks        one device alone: nothing is exchanged, and no bit moves
    Replicated   whole weights on each rank, gradients averaged (`ddp`)
    Sharded      weights, gradients and moments cut over the ranks (`fsdp`; Zhao et al. 2023, ZeRO stage 3 of
                 Rajbhandari et al. 2020), gathered block by block for the arithmetic

Dropout masks are slices of the whole batch's masks, so the loss curve is that of one device but for the order of sums.
`torchrun` starts the processes and ends them all when one dies. The first rank leads: it says what is done next,
evaluates, and alone writes files; the others need neither its clock nor its decisions.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store
    from torch.distributed.tensor import DTensor

    from ablate.training.model import GPT

Shard = Literal["none", "ddp", "fsdp"]
Order = tuple[str, list[str | int]]
"""The name of what all ranks do next, and its arguments."""
_LONGEST = timedelta(days=30)
"""A rank waits as long as the first evaluates or has nothing to do: `torchrun` ends it when another has died."""
_ERROR = "ablate/error"


class Ranks:
    """One device alone."""

    rank: int = 0
    size: int = 1
    shard: Shard = "none"
    busy: bool = False
    """Whether something that ranks do together has begun and not ended: after an error nobody knows where they are."""

    def send(self, order: str, words: tuple[str | int, ...] = ()) -> None:
        """Have the other ranks do the same."""

    def rows(self, batch: int) -> range:
        """The sequences of a batch that are this rank's."""
        each = batch // self.size
        assert each * self.size == batch, (batch, self.size)
        return range(self.rank * each, (self.rank + 1) * each)

    def spread(self, model: GPT) -> None:
        """Cut a new model's parameters over the ranks, where they are to be cut."""

    def put(self, place: Tensor, value: Tensor) -> None:
        """Write a whole tensor into one that may be cut."""
        place.copy_(value)

    def like(self, place: Tensor, value: Tensor) -> Tensor:
        """A whole tensor, copied to where `place` is, and cut as that is cut, if it has its shape."""
        return value.to(place.device, copy=True)

    def whole(self, tensor: Tensor) -> Tensor:
        """A tensor that may be cut, put together. Every rank takes part."""
        return tensor

    def gather(self, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """Named tensors put together on the first rank, one at a time. Every rank takes part; the others get none."""
        return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors}

    def average_gradients(self, model: GPT) -> None:
        """After the last micro-batch: the gradient of the whole batch, where the backward pass has not left it."""

    def mean(self, value: Tensor) -> Tensor:
        """The mean of one number over all ranks."""
        return value

    def agree(self, number: int) -> bool:
        """Whether all ranks came to the same number. None goes on before all have come to theirs."""
        return True


ALONE = Ranks()


class Replicated(Ranks):
    """Whole weights on every rank.

    Gradients are averaged block by block after the last micro-batch, in pieces that never change. (Torch's own
    DistributedDataParallel reorders its buckets after the first step of a process: with more than two ranks a resumed
    run would then add in another order than the uninterrupted one, and leave its bits.)
    """

    shard: Shard = "ddp"

    def __init__(self, rank: int, size: int, store: Store) -> None:
        self.rank, self.size = rank, size
        self._store = store

    def send(self, order: str, words: tuple[str | int, ...] = ()) -> None:
        if self.rank == 0:
            data = torch.frombuffer(bytearray(json.dumps([order, list(words)]).encode()), dtype=torch.uint8)
            dist.broadcast(torch.tensor([len(data)]), 0)
            dist.broadcast(data, 0)

    def receive(self) -> Order:
        """What the first rank sends next."""
        length = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(length, 0)
        data = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(data, 0)
        order, words = json.loads(bytes(data.tolist()))
        return order, words

    def report_error(self, error: Exception) -> None:
        """Let the first rank know why this one ends."""
        self._store.set(_ERROR, f"{type(error).__name__}: {error} (rank {self.rank} of {self.size})")

    def reported_error(self) -> str | None:
        """What a rank has reported; none where it was killed."""
        return self._store.get(_ERROR).decode() if self._store.check([_ERROR]) else None

    def gather(self, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        return super().gather(tensors) if self.rank == 0 else {}

    def average_gradients(self, model: GPT) -> None:
        for piece in _pieces(model):
            gradients = [p.grad for p in piece if p.grad is not None]
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            dist.all_reduce(flat)
            flat /= self.size
            for gradient, mean in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
                gradient.copy_(mean.view_as(gradient))

    def mean(self, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total / self.size

    def agree(self, number: int) -> bool:
        ends = torch.tensor([number, -number])
        dist.all_reduce(ends, op=dist.ReduceOp.MIN)
        least, most = ends[0], -ends[1]
        return bool(least == most)


class Sharded(Replicated):
    """Every parameter cut over the ranks by its first dimension (torch's `fully_shard`), in float32.

    Bfloat16 arithmetic stays that of one device: autocast casts what has been gathered. A `MixedPrecisionPolicy` would
    gather half the bytes, but would also round embeddings, norms and the residual stream: another arithmetic than the
    registered one.
    """

    shard: Shard = "fsdp"

    def spread(self, model: GPT) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(next(model.parameters()).device.type, (self.size,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)

    def put(self, place: Tensor, value: Tensor) -> None:
        cut = _cut(place)
        cut.to_local().copy_(_shard(value, cut).to_local())

    def like(self, place: Tensor, value: Tensor) -> Tensor:
        cut = _cut(place)
        return _shard(value, cut) if value.shape == cut.shape else value.clone()

    def whole(self, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def gather(self, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        gathered = {}
        for name, tensor in tensors:
            whole = self.whole(tensor.detach()).contiguous()
            if self.rank == 0:
                gathered[name] = whole.cpu()
        return gathered

    def average_gradients(self, model: GPT) -> None:
        """Nothing: the backward pass averages as it scatters."""


class Together(Protocol):
    """Whatever steps together with its like on other ranks."""

    ranks: Ranks


_One = TypeVar("_One", bound=Together)
_Words = ParamSpec("_Words")
_Result = TypeVar("_Result")


def together(
    method: Callable[Concatenate[_One, _Words], _Result],
) -> Callable[Concatenate[_One, _Words], _Result]:
    """A method that all ranks carry out at once. Its arguments are numbers and texts, or have a text as a path has."""

    @wraps(method)
    def announced(one: _One, /, *words: _Words.args, **named: _Words.kwargs) -> _Result:
        assert not named, named
        # Before the order is sent: a rank that has gone may be noticed by the sending.
        one.ranks.busy = one.ranks.size > 1
        one.ranks.send(method.__name__, tuple(word if isinstance(word, int) else str(word) for word in words))
        result = method(one, *words, **named)
        one.ranks.busy = False
        return result

    return announced


def join(shard: Shard) -> Replicated:
    """Meet the other processes that `torchrun` has started. Blocks until all are there.

    Ranks speak over gloo on the CPU, NCCL on CUDA.
    """
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if loopback is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    store, rank, size = next(rendezvous("env://", timeout=_LONGEST))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_LONGEST)
    return Sharded(rank, size, store) if shard == "fsdp" else Replicated(rank, size, store)


def part() -> None:
    """Leave the other ranks."""
    if dist.is_initialized():
        dist.destroy_process_group()


def is_lost_connection(error: Exception) -> bool:
    """Whether an error says no more than that another rank has gone. Gloo and NCCL have no errors of their own type."""
    lost = isinstance(error, RuntimeError) and any(name in str(error).lower() for name in ("gloo", "nccl"))
    return lost or isinstance(error, dist.DistError)


def _pieces(model: GPT) -> Iterator[list[nn.Parameter]]:
    """Each block's parameters, then all others: bounded memory, and always the same order of sums."""
    inside: set[int] = set()
    for block in model.blocks:
        piece = list(block.parameters())
        inside |= {id(p) for p in piece}
        yield piece
    yield [p for p in model.parameters() if id(p) not in inside]


def _cut(tensor: Tensor) -> DTensor:
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor), type(tensor)
    return tensor


def _shard(value: Tensor, like: DTensor) -> DTensor:
    """This rank's part of a whole tensor that every rank holds: nothing is sent."""
    from torch.distributed.tensor import distribute_tensor

    value = value.to(like.device)
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
