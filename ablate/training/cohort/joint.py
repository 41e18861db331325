"""What the members of a cohort compute, as functions of tensors alone: so the same lines are run, or compiled.

The forward is `GPT.loss` itself under `torch.func.vmap`. Nothing is summed over members but the losses, whose gradient
with respect to a member's weights is that of its own loss, so nothing that is not finite crosses from member to member.

Compiled, the functions are traced first into one list of elementary operations, `vmap` and gradient included, so that
nothing is left of the Python they are written in: no guard, no break of the graph, no compiling in the middle of a
run. Weights, batches, masks and the model's tables are inputs. The learning rate is none of it: the optimiser is
torch's, as ever.

What is kept lies in torch's own format in the user's cache, see `ablate.training.compiling`.
torch names it by a hash of graph, settings and its own version; the folder is named by processor and compiler, so that
a cache on a shared disk hands no machine's code to another.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ablate.training.compiling import compile_settings, load_compiler
from ablate.training.model import GPT
from ablate.training.streams import DropoutStream
from ablate.training.trainer import arithmetic
from prereg.study.training import Training


class Masks(DropoutStream):
    """Masks drawn beforehand, by place."""

    def __init__(self, drawn: dict[str, Tensor]) -> None:
        super().__init__(seed=0)
        self.drawn = drawn

    def mask(self, place: str, like: Tensor, rate: float) -> Tensor:
        """The mask of a place."""
        return self.drawn[place]


class Listed(DropoutStream):
    """Lets everything pass and records each request."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.requests: list[tuple[str, Tensor, float]] = []

    def mask(self, place: str, like: Tensor, rate: float) -> Tensor:
        """Ones."""
        # One value that looks like the whole: shape, type and device without the memory.
        self.requests.append((place, torch.empty((), dtype=like.dtype, device=like.device).expand(like.shape), rate))
        return torch.ones_like(like)


class MemberMasks:
    """The masks of every member, one step at a time, for a whole batch or one micro-batch after another."""

    def __init__(self, model: GPT, config: Training, seeds: tuple[int, ...], device: torch.device) -> None:
        self.model, self.config, self.seeds, self.device = model, config, seeds, device
        self.streams = {seed: DropoutStream(seed) for seed in seeds}
        self._requests: list[tuple[str, Tensor, float]] | None = None
        self._live: Collection[int] = ()

    def at(self, step: int, live: Collection[int]) -> None:
        """Move to a step. Vacant members draw no masks."""
        self._live = live
        for seed in live:
            self.streams[seed].at(step)

    def blank(self, inputs: Tensor) -> dict[str, Tensor]:
        """Tensors like the masks that `drawn` gives for such inputs. Nothing is drawn, and no key counted."""
        if self.config.model.dropout == 0.0:
            return {}
        if self._requests is None:
            self._requests = self._listed(inputs)
        return {
            place: torch.zeros((len(self.seeds), *like.shape), dtype=like.dtype, device=like.device)
            for place, like, _ in self._requests
        }

    def drawn(self, inputs: Tensor, first: int) -> dict[str, Tensor]:
        """Place -> masks of all members for the sequences of a batch from one on; nothing where nothing is dropped.

        `inputs` are those of one member: every member's have the same shape, in every micro-batch.
        """
        if self.config.model.dropout == 0.0:
            return {}
        if self._requests is None:
            self._requests = self._listed(inputs)
        live = self._live
        for seed in live:
            self.streams[seed].from_sequence(first)
        return {
            place: torch.stack(
                [
                    self.streams[seed].mask(place, like, rate) if seed in live else torch.zeros_like(like)
                    for seed in self.seeds
                ]
            )
            for place, like, rate in self._requests
        }

    def _listed(self, inputs: Tensor) -> list[tuple[str, Tensor, float]]:
        listed = Listed()
        with torch.no_grad(), arithmetic(self.config, self.device):
            self.model(inputs, listed)
        places = [place for place, _, _ in listed.requests]
        assert len(set(places)) == len(places), places
        return listed.requests


CLIP_EPS = 1e-6
"""Added to the norm before dividing, as `torch.nn.utils.clip_grad_norm_` does."""
# On the CPU vmap takes the fused attention member by member, which is as exact, and says so in every call.
_MEMBER_BY_MEMBER = "There is a performance drop because we have not yet implemented the batching rule"


Norms = tuple[Tensor, ...]


class Loss(nn.Module):
    """The loss of a model as a module's call, which is what `functional_call` can replace parameters in."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor, masks: Masks | None) -> Tensor:
        return self.model.loss(inputs, targets, masks)


class Joint:
    """Gradient, norms and clipping of all members of one configuration."""

    def __init__(self, model: GPT, config: Training, device: torch.device) -> None:
        self.config, self.device = config, device
        self.loss = Loss(model)
        self.constants = dict(model.named_buffers())
        """The model's tables. Handed in like everything else, so that no tensor hides in what is compiled."""
        batch = config.budget.batch
        self.at_once = config.budget.micro_batch or batch
        self.parts = batch // self.at_once
        assert self.parts * self.at_once == batch, (batch, self.at_once)

    def gradient(
        self,
        weights: Mapping[str, Tensor],
        inputs: Tensor,
        targets: Tensor,
        masks: dict[str, Tensor],
        constants: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Each member's share of its mean loss over the whole batch, and the gradient of that share."""
        known = self.constants if constants is None else constants

        def of_one(own: Mapping[str, Tensor], x: Tensor, y: Tensor, drawn: dict[str, Tensor]) -> Tensor:
            replaced = {f"model.{name}": value for name, value in (*own.items(), *known.items())}
            loss: Tensor = functional_call(self.loss, replaced, (x, y, Masks(drawn) if drawn else None))
            return loss

        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in weights.items()}
            with warnings.catch_warnings(), arithmetic(self.config, self.device):
                warnings.filterwarnings("ignore", message=_MEMBER_BY_MEMBER)
                losses: Tensor = vmap(of_one)(leaves, inputs, targets, masks)
            losses = losses / self.parts
            found = torch.autograd.grad(losses.sum(), list(leaves.values()))
        return losses.detach(), {name: value.contiguous() for name, value in zip(leaves, found, strict=True)}

    def clip(self, gradient: Mapping[str, Tensor], vacant: Tensor | None) -> tuple[dict[str, Tensor], Norms]:
        """The gradient with each member clipped by its own norm and vacant ones at zero.

        And its norm before clipping, of every member, then of each block of every member.
        """
        norms = {
            name: torch.linalg.vector_norm(value.reshape(len(value), -1), dim=1) for name, value in gradient.items()
        }
        norm = torch.linalg.vector_norm(torch.stack(list(norms.values())), dim=0)
        layers = []
        for layer in range(self.config.model.layers):
            inside = [value for name, value in norms.items() if name.startswith(f"blocks.{layer}.")]
            layers.append(torch.linalg.vector_norm(torch.stack(inside), dim=0))
        limit = self.config.optim.clip if self.config.optim.clip > 0.0 else math.inf
        factor = torch.clamp(limit / (norm + CLIP_EPS), max=1.0)
        clipped = {}
        for name, value in gradient.items():
            shape = (-1, *[1] * (value.dim() - 1))
            scaled = value * factor.view(shape)
            clipped[name] = scaled if vacant is None else scaled.masked_fill(vacant.view(shape), 0.0)
        return clipped, (norm, *layers)


Tensors = tuple[Tensor, ...]
_PLACE = "TORCHINDUCTOR_CACHE_DIR"
_HITS = (("aot_autograd", "autograd_cache_hit"), ("inductor", "fxgraph_cache_hit"))
"""What torch counts when it finds something compiled."""


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
    load_compiler()
    from torch._dynamo.utils import counters
    from torch._inductor import standalone_compile
    from torch.fx.experimental.proxy_tensor import make_fx

    started, before = time.perf_counter(), sum(counters[part][hit] for part, hit in _HITS)
    with _kept_in(folder):
        traced = make_fx(work, tracing_mode="fake")(*examples)
        settings = compile_settings(examples[0].device.type, deterministic=deterministic)
        run = standalone_compile(
            traced,
            list(examples),
            dynamic_shapes="from_example_inputs",
            options={"config_patches": settings},
            donate_graph_module=True,
        )
    found = sum(counters[part][hit] for part, hit in _HITS) > before
    return Made(run, time.perf_counter() - started, found)


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
