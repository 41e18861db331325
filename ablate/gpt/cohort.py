"""The runs of one configuration trained together: every tensor has a leading axis of seats, one seat a seed.

A model of a few million parameters keeps a GPU waiting for kernels to be launched, so one step of many runs costs
little more than one step of one. The forward is `GPT.loss` itself under `torch.func.vmap`, so a new part of the model
needs no second version here. What belongs to one run stays its own: initial weights, batches, dropout masks, gradient
norm and clipping, moments, averages, divergence. Nothing is summed over seats but the losses, whose gradient with
respect to a seat's weights is that of its own loss, so nothing that is not finite crosses from seat to seat.

The number of seats never changes. A seed that has ended leaves its seat vacant: zeros, with no gradient. What the
others compute then has the same shapes, and the same bits, as if it had stayed.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import Parameter

from ablate.gpt.batches import Batches, Split
from ablate.gpt.masks import Masks, SeatMasks
from ablate.gpt.model import GPT, count_parameters, initialise
from ablate.gpt.paths import default_paths
from ablate.gpt.schedule import learning_rate, optimizers_of
from ablate.gpt.train import Progress, Step, Trained, arithmetic
from prereg.errors import EvidenceError
from prereg.training import Training

CLIP_EPS = 1e-6
"""Added to the norm before dividing, as `torch.nn.utils.clip_grad_norm_` does."""
# On the CPU vmap takes the fused attention seat by seat, which is as exact, and says so in every call.
_SEAT_BY_SEAT = "There is a performance drop because we have not yet implemented the batching rule"


class Loss(nn.Module):
    """The loss of a model as a module's call, which is what `functional_call` can replace parameters in."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor, masks: Masks | None) -> Tensor:
        return self.model.loss(inputs, targets, masks)


class CohortTrainer:
    """Runs of one configuration in step with one another, one for each seed."""

    def __init__(
        self, config: Training, split: Split, vocabulary: int, seeds: tuple[int, ...], device: str = "cpu"
    ) -> None:
        torch.use_deterministic_algorithms(config.numerics.deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        assert len(set(seeds)) == len(seeds) > 0, seeds
        # What is computed again in the backward pass is computed outside `vmap`, where there are no seats.
        assert config.numerics.recompute == "none", config.numerics
        self.config = config
        self.split = split
        self.seeds = seeds
        self.device = torch.device(device)
        # Our own kernels are for one run on a CPU; `vmap` knows only torch's operations.
        self.paths = default_paths(config)
        self.model = GPT(config.model, vocabulary, self.paths).to(self.device)
        self.loss = Loss(self.model)
        self.parameters = count_parameters(self.model)

    def begin(self, live: Collection[int]) -> dict[int, dict[str, str]]:
        """Seat the seeds that are to be trained; returns the hash of each one's initial parameters."""
        self.live = [seed for seed in self.seeds if seed in live]
        assert set(self.live) == set(live), (live, self.seeds)
        names = dict(self.model.named_parameters())
        stacked = {name: torch.zeros((len(self.seeds), *p.shape), device=self.device) for name, p in names.items()}
        hashes = {}
        for seed in self.live:
            hashes[seed] = initialise(self.model, seed)
            for name, parameter in names.items():
                stacked[name][self.seeds.index(seed)] = parameter.detach()
        self.stacked = {name: Parameter(value) for name, value in stacked.items()}
        averaged = self.config.optim.ema > 0.0
        self.average = {name: value.detach().clone() for name, value in self.stacked.items()} if averaged else {}
        self._build_optimizers()
        model, budget = self.config.model, self.config.budget
        self.batches = {seed: Batches(self.split.train, model.context, budget.batch, seed) for seed in self.live}
        self.masks = SeatMasks(self.model, self.config, self.seeds, self.device)
        self.progress = {
            seed: Progress(dropout=self.masks.streams[seed].chain, layer_norm_sums=[0.0] * model.layers)
            for seed in self.live
        }
        self.model.train()
        return hashes

    @property
    def taken(self) -> int:
        """Steps taken, by every run alike."""
        (steps,) = {self.progress[seed].step for seed in self.live}
        return steps

    def step(self) -> dict[int, Step]:
        """One optimiser step of every run. Each loss is that of the run's batch before the update."""
        number = self.taken + 1
        read = {seed: self.batches[seed].at(number) for seed in self.live}
        blank = torch.zeros_like(next(iter(read.values()))[0])
        inputs = torch.stack([read[seed][0] if seed in read else blank for seed in self.seeds]).to(self.device)
        targets = torch.stack([read[seed][1] if seed in read else blank for seed in self.seeds]).to(self.device)
        self.masks.at(number, self.live)
        rate = learning_rate(self.config.optim, number, self.config.budget.steps)
        for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
            group["lr"] = rate
        losses = self._gradient(inputs, targets)
        by_parameter = self._norms()
        norm = torch.linalg.vector_norm(torch.stack(list(by_parameter.values())), dim=0)
        layers = self._layer_norms(by_parameter)
        self._clip(norm)
        self._update()
        # One transfer a step: each would wait for the device.
        table = torch.stack([losses, norm, *layers]).T.tolist()
        steps = {}
        for seed in self.live:
            loss, grad_norm, *of_layers = table[self.seeds.index(seed)]
            steps[seed] = Step(number, loss, grad_norm)
            identity, dropout = read[seed][2], self.masks.streams[seed].chain
            self.progress[seed].count(steps[seed], read[seed][1].numel(), identity, dropout, of_layers)
        return steps

    def vacate(self, seed: int) -> None:
        """A run has ended: its seat stays, empty."""
        seat = self.seeds.index(seed)
        self.live.remove(seed)
        del self.progress[seed]
        with torch.no_grad():
            for value in (*self.stacked.values(), *self.average.values()):
                value[seat].zero_()
            for name, parameter in self._held.items():
                # The count of steps that some optimisers keep is shared by all seats.
                moments = [value for value in self._state(parameter).values() if value.shape == parameter.shape]
                for moment in moments:
                    if "@" not in name:
                        moment[seat].zero_()
                    elif name.endswith(f"@{seed}"):
                        moment.zero_()

    def seat(self, seed: int) -> Seat:
        """One run of the cohort, for whoever records it."""
        return Seat(self, seed)

    def _gradient(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Each seat's mean loss of its whole batch; leaves gradients, summed over equal micro-batches as of one run."""
        batch = inputs.shape[1]
        at_once = self.config.budget.micro_batch or batch
        parts = batch // at_once
        assert parts * at_once == batch, (batch, at_once)
        found = []
        for first in range(0, batch, at_once):
            rows = slice(first, first + at_once)
            masks = self.masks.drawn(inputs[0, rows], first)
            losses = self._losses(inputs[:, rows], targets[:, rows], masks) / parts
            losses.sum().backward()  # type: ignore[no-untyped-call]
            found.append(losses.detach())
        return torch.stack(found).sum(dim=0)

    def _losses(self, inputs: Tensor, targets: Tensor, masks: dict[str, Tensor]) -> Tensor:
        """Mean cross-entropy of every seat."""

        def of_one(weights: Mapping[str, Tensor], x: Tensor, y: Tensor, drawn: dict[str, Tensor]) -> Tensor:
            replaced = {f"model.{name}": value for name, value in weights.items()}
            given = Masks(drawn) if drawn else None
            loss: Tensor = functional_call(self.loss, replaced, (x, y, given))
            return loss

        with warnings.catch_warnings(), arithmetic(self.config, self.device):
            warnings.filterwarnings("ignore", message=_SEAT_BY_SEAT)
            losses: Tensor = vmap(of_one)(self.stacked, inputs, targets, masks)
        return losses

    def _norms(self) -> dict[str, Tensor]:
        """L2 norm of each parameter's gradient, seat by seat, before clipping."""
        norms = {}
        for name, parameter in self.stacked.items():
            assert parameter.grad is not None, name
            norms[name] = torch.linalg.vector_norm(parameter.grad.reshape(len(self.seeds), -1), dim=1)
        return norms

    def _layer_norms(self, by_parameter: dict[str, Tensor]) -> list[Tensor]:
        """L2 norm of each block's gradient, seat by seat."""
        found = []
        for layer in range(self.config.model.layers):
            inside = [norm for name, norm in by_parameter.items() if name.startswith(f"blocks.{layer}.")]
            found.append(torch.linalg.vector_norm(torch.stack(inside), dim=0))
        return found

    def _clip(self, norm: Tensor) -> None:
        """Each seat by its own norm; a vacant one stands still."""
        limit = self.config.optim.clip if self.config.optim.clip > 0.0 else math.inf
        factor = torch.clamp(limit / (norm + CLIP_EPS), max=1.0)
        vacant = torch.tensor([seed not in self.live for seed in self.seeds], device=self.device)
        for parameter in self.stacked.values():
            assert parameter.grad is not None
            shape = (-1, *[1] * (parameter.dim() - 1))
            parameter.grad.mul_(factor.view(shape))
            if len(self.live) < len(self.seeds):
                parameter.grad.masked_fill_(vacant.view(shape), 0.0)

    def _build_optimizers(self) -> None:
        """Which parameters decay, and which Muon takes, goes by the dimensions of one run's, not of the stack."""
        dims = {name: value.dim() - 1 for name, value in self.stacked.items()}
        inner = [name for name, dim in dims.items() if dim >= 2 and name.startswith("blocks.")]
        outer = [name for name, dim in dims.items() if dim >= 2 and name not in inner]
        vectors = [name for name, dim in dims.items() if dim < 2]
        self._seats_apart: dict[str, list[Parameter]] = {}
        self._held = {name: self.stacked[name] for name in outer + vectors}
        if self.config.optim.name == "muon":
            # Muon orthogonalises one matrix at a time, so each seat's is a parameter of its own: the same memory.
            self._seats_apart = {name: [Parameter(one) for one in self.stacked[name].data] for name in inner}
            for name, apart in self._seats_apart.items():
                self._held |= {f"{name}@{seed}": one for seed, one in zip(self.seeds, apart, strict=True)}
        else:
            self._held |= {name: self.stacked[name] for name in inner}
        self.optimizers = optimizers_of(
            [value for name, value in self._held.items() if name.split("@")[0] in inner],
            [self.stacked[name] for name in outer],
            [self.stacked[name] for name in vectors],
            self.config.optim,
        )

    def _update(self) -> None:
        for name, apart in self._seats_apart.items():
            gradient = self.stacked[name].grad
            assert gradient is not None, name
            for one, its in zip(apart, gradient, strict=True):
                one.grad = its
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        for parameter in self.stacked.values():
            parameter.grad = None
        if self.average:
            with torch.no_grad():
                for name, parameter in self.stacked.items():
                    self.average[name].lerp_(parameter, 1.0 - self.config.optim.ema)

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        """What the optimiser keeps of a parameter; SGD without momentum keeps an empty place."""
        for optimizer in self.optimizers:
            if parameter in optimizer.state:
                return {moment: value for moment, value in optimizer.state[parameter].items() if value is not None}
        return {}

    def checkpoint(self) -> bytes:
        """Weights, moments and progress of every run, in one self-describing block of bytes."""
        tensors = {f"weight/{name}": value.detach().cpu() for name, value in self.stacked.items()}
        tensors |= {f"average/{name}": value.cpu() for name, value in self.average.items()}
        for name, parameter in self._held.items():
            for moment, value in self._state(parameter).items():
                tensors[f"{moment}/{name}"] = value.detach().cpu().contiguous()
        cohort = {
            "seeds": list(self.seeds),
            "progress": {str(seed): asdict(self.progress[seed]) for seed in self.live},
        }
        return bytes(save(tensors, metadata={"cohort": json.dumps(cohort, allow_nan=False)}))

    def restore(self, path: Path) -> None:
        """Take up the runs where `checkpoint` left them. Call `begin` first; seats that ended since stay vacant."""
        try:
            cohort = read_cohort(path)
            with safe_open(path, framework="pt") as stored, torch.no_grad():
                names = set(stored.keys())
                for name, weight in self.stacked.items():
                    weight.copy_(stored.get_tensor(f"weight/{name}"))
                for name, mean in self.average.items():
                    mean.copy_(stored.get_tensor(f"average/{name}"))
                for name, parameter in self._held.items():
                    kept = {full.split("/", 1)[0] for full in names if full.split("/", 1)[1] == name}
                    moments = {
                        moment: stored.get_tensor(f"{moment}/{name}").to(self.device, copy=True)
                        for moment in sorted(kept - {"weight", "average"})
                    }
                    if moments:
                        self._optimizer_of(parameter).state[parameter] = moments
            waiting = self.live
            self.live = [seed for seed in self.seeds if seed in cohort]
            for seed in list(self.live):
                self.progress[seed] = cohort[seed]
                self.masks.streams[seed].chain = cohort[seed].dropout
                if seed not in waiting:
                    self.vacate(seed)
        except (OSError, KeyError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
            raise unreadable(path, error) from error
        assert self.live == waiting, (self.live, waiting)

    def _optimizer_of(self, parameter: Tensor) -> torch.optim.Optimizer:
        return next(
            optimizer
            for optimizer in self.optimizers
            if any(parameter is one for group in optimizer.param_groups for one in group["params"])
        )


class Seat(Trained):
    """One run of a cohort: its own progress and its own weights. The cohort takes the steps."""

    def __init__(self, cohort: CohortTrainer, seed: int) -> None:
        self.cohort, self.seed = cohort, seed
        self.config, self.device = cohort.config, cohort.device
        self.paths, self.parameters = cohort.paths, cohort.parameters

    @property
    def progress(self) -> Progress:  # type: ignore[override]
        return self.cohort.progress[self.seed]

    @contextmanager
    def evaluated(self) -> Iterator[GPT]:
        """The cohort's one plain model, with this run's weights, or their average."""
        seat = self.cohort.seeds.index(self.seed)
        values = self.cohort.average or self.cohort.stacked
        with torch.no_grad():
            for name, parameter in self.cohort.model.named_parameters():
                parameter.copy_(values[name][seat])
        yield self.cohort.model


def read_cohort(path: Path) -> dict[int, Progress]:
    """Which runs a cohort's checkpoint holds, and where each stands."""
    try:
        with safe_open(path, framework="pt") as stored:
            cohort = json.loads(stored.metadata()["cohort"])
        return {int(seed): Progress(**progress) for seed, progress in cohort["progress"].items()}
    except (OSError, KeyError, ValueError, TypeError, SafetensorError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> EvidenceError:
    """A checkpoint that cannot be taken up."""
    return EvidenceError(
        f"checkpoint {path} cannot be read: {error}",
        fix=f"remove {path}; its runs then start again from their first step",
    )
