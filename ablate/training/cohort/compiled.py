"""`Joint`'s functions compiled by torch's own compiler, once a shape, kept on disk for the processes that follow.

They are traced first into one list of elementary operations, `vmap` and gradient included, so that nothing is left of
the Python they are written in: no guard, no break of the graph, no compiling anew in the middle of a run. Weights,
batches, masks and the model's tables are inputs. The learning rate is none of it: the optimiser is torch's, as ever.

What is kept lies in torch's own format in the user's cache, next to the libraries of `ablate.training.kernels.library`.
torch names it by a hash of graph, settings and its own version; the folder is named by processor and compiler, so that
a cache on a shared disk hands no machine's code to another.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ablate.training.cohort.functions import Joint, Norms
from ablate.training.cohort.steps import KNOWN_TO_INDUCTOR, compiler_name, find_compiler
from ablate.training.kernels.library import cache_folder, processor_flags
from prereg.registry.canon import sha256_of

Tensors = tuple[Tensor, ...]
_PLACE = "TORCHINDUCTOR_CACHE_DIR"
_OWN_WORDS = "`torch.jit.script"
_HITS = (("aot_autograd", "autograd_cache_hit"), ("inductor", "fxgraph_cache_hit"))
"""What torch counts when it finds something compiled."""


def compiled_folder(device: str) -> Path:
    """Where this machine's compiled steps for a kind of device are kept."""
    made_for = sha256_of([processor_flags(), compiler_name(device)])
    return cache_folder().parent / "compiled" / f"{device}-{made_for[:16]}"


@dataclass(frozen=True)
class Made:
    """One compiled function."""

    run: Callable[..., Tensors]
    seconds: float
    """What tracing and compiling took."""
    found: bool
    """Whether it lay in the cache."""


class CompiledJoint:
    """A `Joint` whose gradient and clipping are compiled when they are first needed."""

    def __init__(self, joint: Joint, folder: Path) -> None:
        self.joint, self.folder = joint, folder
        self.made: dict[str, Made] = {}

    def prepare(
        self, weights: Mapping[str, Tensor], inputs: Tensor, targets: Tensor, masks: Mapping[str, Tensor]
    ) -> None:
        """Compile for tensors like these, so that no step is measured with it. What they hold does not matter."""
        self.gradient(weights, inputs, targets, masks)
        blank = {name: torch.zeros_like(value) for name, value in weights.items()}
        self.clip(blank, torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device))

    def gradient(
        self, weights: Mapping[str, Tensor], inputs: Tensor, targets: Tensor, masks: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """As `Joint.gradient`."""
        names, places, tables = list(weights), list(masks), list(self.joint.constants)

        def flat(*given: Tensor) -> Tensors:
            rest = iter(given)
            own = {name: next(rest) for name in names}
            x, y = next(rest), next(rest)
            drawn = {place: next(rest) for place in places}
            constants = {name: next(rest) for name in tables}
            losses, found = self.joint.gradient(own, x, y, drawn, constants)
            return losses, *found.values()

        given = (*weights.values(), inputs, targets, *masks.values(), *self.joint.constants.values())
        losses, *found = self._run("gradient", flat, given)
        return losses, dict(zip(names, found, strict=True))

    def clip(self, gradient: Mapping[str, Tensor], vacant: Tensor | None) -> tuple[dict[str, Tensor], Norms]:
        """As `Joint.clip`; here every call names the vacant members, so that there is one graph for all."""
        assert vacant is not None
        names = list(gradient)

        def flat(*given: Tensor) -> Tensors:
            clipped, norms = self.joint.clip(dict(zip(names, given[:-1], strict=True)), given[-1])
            return *clipped.values(), *norms

        found = self._run("clip", flat, (*gradient.values(), vacant))
        return dict(zip(names, found[: len(names)], strict=True)), found[len(names) :]

    def _run(self, name: str, work: Callable[..., Tensors], given: Tensors) -> Tensors:
        # What is compiled reads its inputs as they lay when it was: a part of a batch lies otherwise than a whole one.
        plain = tuple(one.detach().contiguous() for one in given)
        with torch.no_grad():
            if name not in self.made:
                config = self.joint.config.numerics
                self.made[name] = compile_once(work, plain, self.folder, deterministic=config.deterministic)
            return tuple(self.made[name].run(*plain))


def compile_once(work: Callable[..., Tensors], examples: Tensors, folder: Path, *, deterministic: bool) -> Made:
    """A function of tensors of these shapes, compiled or found in the folder."""
    # Only here: loading torch's compiler takes seconds, and most runs need none.
    with warnings.catch_warnings():
        # One of torch's own modules uses what torch has deprecated, and says so when it is loaded.
        warnings.filterwarnings("ignore", message=_OWN_WORDS, category=DeprecationWarning)
        import torch._inductor.compile_fx  # noqa: F401
        from torch._dynamo.utils import counters
        from torch._inductor import standalone_compile
        from torch.fx.experimental.proxy_tensor import make_fx

    started, before = time.perf_counter(), sum(counters[part][hit] for part, hit in _HITS)
    with _kept_in(folder):
        traced = make_fx(work, tracing_mode="fake")(*examples)
        settings = _settings(examples[0].device, deterministic)
        run = standalone_compile(
            traced,
            list(examples),
            dynamic_shapes="from_example_inputs",
            options={"config_patches": settings},
            donate_graph_module=True,
        )
    found = sum(counters[part][hit] for part, hit in _HITS) > before
    return Made(run, time.perf_counter() - started, found)


def _settings(device: torch.device, deterministic: bool) -> dict[str, Any]:
    # Whatever is chosen by timing on the device may differ from process to process, and with it the last bits.
    settings: dict[str, Any] = {"deterministic": deterministic, "fx_graph_cache": True}
    if device.type == "cpu":
        settings["cpp.cxx"] = (None, find_compiler(KNOWN_TO_INDUCTOR))
    return settings


@contextmanager
def _kept_in(folder: Path) -> Iterator[None]:
    """torch reads from the environment where it keeps what it compiles; nothing else of this process is to see it."""
    earlier = os.environ.get(_PLACE)
    os.environ[_PLACE] = str(folder)
    try:
        yield
    finally:
        if earlier is None:
            del os.environ[_PLACE]
        else:
            os.environ[_PLACE] = earlier
