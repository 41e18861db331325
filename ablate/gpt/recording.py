"""Work on tensors, recorded once and then replayed: a CUDA graph, behind an interface that a test can stand in for.

A graph launches the kernels of a step in one call, on the very addresses that they had when it was recorded. So inputs
are copied into places of their own, outputs are copied out, and whatever the work changes (weights, moments, averages,
gradients) must stay where it is: who puts other tensors in their place makes a new `Recorded`. Numbers of Python are
recorded as they were: the learning rate comes as a tensor. Random numbers are none of it: masks are inputs.

The work is done a few times before it is recorded, as CUDA wants it (libraries choose and allocate in their first
calls), and everything it changed is then put back, also where that fails. Every step of a run, the first too, is
therefore a replay, and a run that is taken up again meets the bits of one that was not interrupted.

Unmeasured, and never run on a device: `CudaRecorder` alone needs one. Everything else is tested on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch import Tensor

from prereg.errors import RunError

Tensors = tuple[Tensor, ...]
WARM_UPS = 3
"""As many as NVIDIA's and torch's notes on CUDA graphs take."""


class Recorder(Protocol):
    """What records."""

    def warm(self, work: Callable[[], object]) -> None:
        """Do the work, in the surroundings in which it will be recorded."""

    def record(self, work: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], None]]:
        """Record the work without doing it: where its outputs will stand, and how it is replayed."""


class CudaRecorder:
    """CUDA graphs of one device."""

    def __init__(self, device: torch.device) -> None:
        assert device.type == "cuda", device
        self.device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def warm(self, work: Callable[[], object]) -> None:
        """On a stream of its own, as it will be recorded."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            work()
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def record(self, work: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], None]]:
        """One graph, with memory of its own: two that share some may be replayed in one order only."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            outputs = work()
        return outputs, graph.replay


class Recorded:
    """A function of tensors that is recorded at its first call."""

    def __init__(
        self, work: Callable[..., Tensors], recorder: Recorder, changed: Callable[[], Iterable[Tensor]]
    ) -> None:
        self.work, self.recorder, self.changed = work, recorder, changed
        self._places: Tensors = ()
        self._outputs: Tensors = ()
        self._replay: Callable[[], None] | None = None

    def __call__(self, *given: Tensor) -> Tensors:
        if self._replay is None:
            self._replay = self._record(given)
        for place, one in zip(self._places, given, strict=True):
            assert (place.shape, place.dtype, place.device) == (one.shape, one.dtype, one.device), (place, one)
            place.copy_(one)
        self._replay()
        # The next replay writes over them.
        return tuple(one.clone() for one in self._outputs)

    def _record(self, given: Tensors) -> Callable[[], None]:
        self._places = tuple(one.clone() for one in given)
        before = [(tensor, tensor.detach().clone()) for tensor in self.changed()]
        try:
            try:
                for _ in range(WARM_UPS):
                    self.recorder.warm(lambda: self.work(*self._places))
            finally:
                self._put_back(before)
            self._outputs, replay = self.recorder.record(lambda: self.work(*self._places))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            # Nothing takes its place in silence: other steps are other bits.
            said = str(error).strip().splitlines() or [""]
            raise RunError(
                f"a step cannot be recorded: {type(error).__name__}: {said[0]}",
                required="work that this device can replay; the worker's log has all that it said",
                fix="ablate run with --step eager",
            ) from error
        return replay

    def _put_back(self, before: list[tuple[Tensor, Tensor]]) -> None:
        """What was there as it was; what the work brought into being (an optimiser's moments) at zero, where it begins.

        So does SGD's momentum: its first is the gradient itself, which is what is left of a sum with zero.
        """
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)
            known = {id(tensor) for tensor, _ in before}
            for tensor in self.changed():
                if id(tensor) not in known:
                    tensor.zero_()
