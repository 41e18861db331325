"""The runs of one configuration trained together: every tensor has a leading axis of members, one member a seed.

A model of a few million parameters keeps a GPU waiting for kernels to be launched, so one step of many runs costs
little more than one step of one. What the members compute is in `ablate.training.cohort.joint`, and in which of
equal ways it is computed in `ablate.training.device`. What belongs to one run stays its own: initial weights,
batches, dropout masks, gradient norm and clipping, moments, averages, divergence.

The number of members never changes. A seed that has ended leaves its place vacant: zeros, with no gradient. What the
others compute then has the same shapes, and the same bits, as if it had stayed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.nn import Parameter

from ablate.data.batches import Batches, Split
from ablate.training.cohort.joint import CompiledJoint, Joint, Made, MemberMasks, Norms
from ablate.training.compiling import compiled_folder, compiler_name
from ablate.training.device import COMPILED, EAGER
from ablate.training.model import GPT, count_parameters, initialise
from ablate.training.trainer import (
    Progress,
    Step,
    Trained,
    learning_rate,
    optimizer_of,
    optimizers_of,
    takes_fused_attention,
)
from prereg.errors import EvidenceError
from prereg.study.training import Training


class CohortTrainer:
    """Runs of one configuration in step with one another, one for each seed."""

    def __init__(
        self,
        config: Training,
        split: Split,
        vocabulary: int,
        seeds: tuple[int, ...],
        device: str = "cpu",
        *,
        step: str = EAGER,
    ) -> None:
        torch.use_deterministic_algorithms(config.numerics.deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        assert len(set(seeds)) == len(seeds) > 0, seeds
        # What is computed again in the backward pass is computed outside `vmap`, where there are no members.
        assert config.numerics.recompute == "none", config.numerics
        self.config = config
        self.split = split
        self.seeds = seeds
        self.device = torch.device(device)
        self.model = GPT(config.model, vocabulary, fused=takes_fused_attention(config)).to(self.device)
        self.kind, self.compiler = step, ""
        joint = Joint(self.model, config, self.device)
        self.joint: Joint | CompiledJoint = joint
        if step == COMPILED:
            self.joint = CompiledJoint(joint, compiled_folder(self.device.type))
            self.compiler = compiler_name(self.device.type)
        self.at_once = joint.at_once
        self.parameters = count_parameters(self.model)

    def begin(self, live: Collection[int]) -> dict[int, dict[str, str]]:
        """Give every seed that is to be trained a member; returns the hash of each one's initial parameters."""
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
        vacant = [seed not in self.live for seed in self.seeds]
        self.vacant = torch.tensor(vacant, device=self.device)
        self._build_optimizers()
        model, budget = self.config.model, self.config.budget
        self.batches = {seed: Batches(self.split.train, model.context, budget.batch, seed) for seed in self.live}
        self.masks = MemberMasks(self.model, self.config, self.seeds, self.device)
        self.progress = {
            seed: Progress(dropout=self.masks.streams[seed].chain, layer_norm_sums=[0.0] * model.layers)
            for seed in self.live
        }
        self.model.train()
        return hashes

    def prepare(self) -> tuple[Made, ...]:
        """Compile what is to be compiled, before any step is timed. Moves nothing."""
        if not isinstance(self.joint, CompiledJoint):
            return ()
        inputs, targets, _ = self.batches[self.live[0]].at(1)
        rows = [one[: self.at_once].to(self.device) for one in (inputs, targets)]
        expanded = [one.expand(len(self.seeds), *one.shape).contiguous() for one in rows]
        self.joint.prepare(self.stacked, expanded[0], expanded[1], self.masks.blank(rows[0]))
        return tuple(self.joint.made.values())

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
        losses, clipped, (norm, *layers) = self._gradient(inputs, targets)
        self._move(clipped, rate)
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
        """A run has ended: its member stays, empty."""
        member = self.seeds.index(seed)
        self.live.remove(seed)
        self.vacant[member] = True
        del self.progress[seed]
        with torch.no_grad():
            for value in (*self.stacked.values(), *self.average.values()):
                value[member].zero_()
            for name, parameter in self._held.items():
                # The count of steps that some optimisers keep is shared by all members.
                moments = [value for value in self._state(parameter).values() if value.shape == parameter.shape]
                for moment in moments:
                    if "@" not in name:
                        moment[member].zero_()
                    elif name.endswith(f"@{seed}"):
                        moment.zero_()

    def member(self, seed: int) -> Member:
        """One run of the cohort, for its recorder."""
        return Member(self, seed)

    def _gradient(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, dict[str, Tensor], Norms]:
        """Each member's mean loss of its whole batch, its gradient, clipped, and the norms of that before clipping.

        The gradient is summed over equal micro-batches, as of one run.
        """
        losses = []
        gradient: dict[str, Tensor] = {}
        for first in range(0, inputs.shape[1], self.at_once):
            rows = slice(first, first + self.at_once)
            masks = self.masks.drawn(inputs[0, rows], first)
            its, found = self.joint.gradient(self.stacked, inputs[:, rows], targets[:, rows], masks)
            losses.append(its)
            gradient = {name: gradient[name] + value if name in gradient else value for name, value in found.items()}
        all_taken = len(self.live) == len(self.seeds) and isinstance(self.joint, Joint)
        clipped, norms = self.joint.clip(gradient, None if all_taken else self.vacant)
        return torch.stack(losses).sum(dim=0), clipped, norms

    def _move(self, clipped: dict[str, Tensor], rate: float) -> None:
        """Update the weights, and their averages."""
        for name, parameter in self._held.items():
            if "@" not in name:
                parameter.grad = clipped[name]
        for name, apart in self._members_apart.items():
            for one, its in zip(apart, clipped[name], strict=True):
                one.grad = its
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.average:
            with torch.no_grad():
                for name, parameter in self.stacked.items():
                    self.average[name].lerp_(parameter, 1.0 - self.config.optim.ema)

    def _build_optimizers(self) -> None:
        """Which parameters decay, and which Muon takes, goes by the dimensions of one run's, not of the stack."""
        dims = {name: value.dim() - 1 for name, value in self.stacked.items()}
        inner = [name for name, dim in dims.items() if dim >= 2 and name.startswith("blocks.")]
        outer = [name for name, dim in dims.items() if dim >= 2 and name not in inner]
        vectors = [name for name, dim in dims.items() if dim < 2]
        self._members_apart: dict[str, list[Parameter]] = {}
        self._held = {name: self.stacked[name] for name in outer + vectors}
        if self.config.optim.name == "muon":
            # Muon orthogonalises one matrix at a time, so each member's is a parameter of its own: the same memory.
            self._members_apart = {name: [Parameter(one) for one in self.stacked[name].data] for name in inner}
            for name, apart in self._members_apart.items():
                self._held |= {f"{name}@{seed}": one for seed, one in zip(self.seeds, apart, strict=True)}
        else:
            self._held |= {name: self.stacked[name] for name in inner}
        self.optimizers = optimizers_of(
            [value for name, value in self._held.items() if name.split("@")[0] in inner],
            [self.stacked[name] for name in outer],
            [self.stacked[name] for name in vectors],
            self.config.optim,
        )

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
        """Resume the runs where `checkpoint` left them. Call `begin` first; members that ended since stay vacant."""
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
                        optimizer_of(parameter, self.optimizers).state[parameter] = moments
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


class Member(Trained):
    """One run of a cohort: its own progress and its own weights. The cohort takes the steps."""

    def __init__(self, cohort: CohortTrainer, seed: int) -> None:
        self.cohort, self.seed = cohort, seed
        self.config, self.device = cohort.config, cohort.device
        self.compiler, self.parameters = cohort.compiler, cohort.parameters

    @property
    def progress(self) -> Progress:  # type: ignore[override]
        return self.cohort.progress[self.seed]

    @contextmanager
    def evaluated(self) -> Iterator[GPT]:
        """The cohort's one plain model, with this run's weights, or their average."""
        member = self.cohort.seeds.index(self.seed)
        values = self.cohort.average or self.cohort.stacked
        with torch.no_grad():
            for name, parameter in self.cohort.model.named_parameters():
                parameter.copy_(values[name][member])
        yield self.cohort.model


def read_cohort(path: Path) -> dict[int, Progress]:
    """Which runs a cohort's checkpoint holds, and the progress of each."""
    try:
        with safe_open(path, framework="pt") as stored:
            cohort = json.loads(stored.metadata()["cohort"])
        return {int(seed): Progress(**progress) for seed, progress in cohort["progress"].items()}
    except (OSError, KeyError, ValueError, TypeError, SafetensorError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> EvidenceError:
    """A checkpoint that cannot be resumed."""
    return EvidenceError(
        f"checkpoint {path} cannot be read: {error}",
        fix=f"remove {path}; its runs then start again from their first step",
    )
