"""Training step (`Trainer.step`), optimiser and learning rate; state of a run, its exact save and restore.

No files, no clock, no printing.

`Trainer` holds what the runs of one configuration share (the model object and the split);
`Trainer.begin(seed)` resets it to a run's first step. The caller decides when to evaluate, when to
save and when to stop; a diverged loss is reported, not raised, because it is an outcome.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.nn import Parameter

from ablate.data.batches import Batches, Split, chain_next, chain_start
from ablate.gpt.compiling import compile_settings, compiled_folder, compiler_name, load_compiler
from ablate.gpt.model import GPT, count_parameters, initialise
from ablate.gpt.streams import DropoutStream
from prereg.errors import EvidenceError
from prereg.study.training import Optim, Training

COSINE_FLOOR = 0.1
"""Of the peak rate, at the end of a cosine (as in nanoGPT, after Hoffmann et al. 2022)."""


def learning_rate(optim: Optim, step: int, steps: int) -> float:
    """The rate of one step (counted from 1): linear warmup, then the schedule over the remaining steps.

    >>> optim = Optim(lr=1.0, warmup=2, schedule="linear")
    >>> [learning_rate(optim, step, steps=6) for step in range(1, 7)]
    [0.5, 1.0, 0.8, 0.6, 0.4, 0.2]
    """
    # The first step has a rate above zero, and the last step of the warmup the full one.
    if step <= optim.warmup:
        # With warmup_from 0 the first term adds nothing: the same bits as lr * step / warmup.
        return optim.warmup_from + (optim.lr - optim.warmup_from) * step / optim.warmup
    done = (step - optim.warmup) / max(1, steps - optim.warmup)
    if optim.schedule == "linear":
        # The last step still moves: the rate reaches zero one step after the end.
        span = max(1, steps - optim.warmup)
        return optim.lr * (span - (step - optim.warmup) + 1) / (span + 1)
    if optim.schedule == "cosine":
        return optim.lr * (COSINE_FLOOR + (1.0 - COSINE_FLOOR) * 0.5 * (1.0 + math.cos(math.pi * done)))
    if optim.schedule == "wsd":  # warmup, stable, decay (Hu et al. 2024): constant until the last `decay` of the steps
        falling = min(max(1, round(optim.decay * steps)), steps - optim.warmup)
        return optim.lr * min(1.0, (steps - step + 1) / (falling + 1))
    assert optim.schedule == "constant", optim.schedule  # a new name in prereg.study.training.Optim needs a branch here
    return optim.lr


def build_optimizers(model: GPT, optim: Optim) -> tuple[torch.optim.Optimizer, ...]:
    """The registered optimiser; decay on matrices only, never on norms and biases. Muon comes as two.

    >>> from prereg.study.training import Model
    >>> model = GPT(Model(layers=1, heads=2, width=8, context=4), vocabulary=5)
    >>> [type(optimizer).__name__ for optimizer in build_optimizers(model, Optim(name="muon"))]
    ['Muon', 'AdamW']
    """
    # By identity: with tied embeddings one tensor has two names, and must get one moment and one decay.
    # one block's matrices; biases and norms have one dimension
    inside = {id(p) for block in model.blocks for p in block.parameters() if p.dim() == 2}
    # Muon orthogonalises the update of a hidden layer's matrix. Embeddings and the head are tables, not maps,
    # and take AdamW.
    inner = [p for p in model.parameters() if p.dim() >= 2 and id(p) in inside]
    outer = [p for p in model.parameters() if p.dim() >= 2 and id(p) not in inside]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    if optim.name == "muon":
        return (
            # Its own rate is matched to AdamW's, so that one `lr` serves both (Liu et al. 2025).
            torch.optim.Muon(
                inner,
                lr=optim.lr,
                momentum=optim.betas[0],
                weight_decay=optim.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            ),
            _adamw(outer, vectors, optim),
        )
    matrices = inner + outer  # norms and biases are not decayed, as in nanoGPT
    if optim.name == "adamw":
        return (_adamw(matrices, vectors, optim),)
    groups = [{"params": matrices, "weight_decay": optim.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    if optim.name == "sgd":
        return (torch.optim.SGD(groups, lr=optim.lr, momentum=optim.betas[0], fused=True),)
    return (torch.optim.Adam(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=True),)


def optimizer_of(parameter: Tensor, optimizers: tuple[torch.optim.Optimizer, ...]) -> torch.optim.Optimizer:
    """The one of them that moves a parameter."""
    # By identity: `in` on tensors compares their values.
    return next(
        optimizer
        for optimizer in optimizers
        if any(parameter is moved for group in optimizer.param_groups for moved in group["params"])
    )


def _adamw(matrices: list[Parameter], vectors: list[Parameter], optim: Optim) -> torch.optim.Optimizer:
    groups = [{"params": matrices, "weight_decay": optim.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=True)


@dataclass(frozen=True)
class StepResult:
    """What one step gave."""

    step: int
    loss: float
    grad_norm: float


@dataclass
class TrainerState:
    """Everything besides the tensors that a resumed run needs. JSON holds floats exactly."""

    step: int = 0
    tokens: int = 0
    first_loss: float | None = None
    batches: str = field(default_factory=chain_start)
    dropout: str = ""
    grad_norm_sum: float = 0.0
    grad_norm_count: int = 0
    layer_norm_sums: list[float] = field(default_factory=list)
    first_layer_norms: list[float] = field(default_factory=list)
    """Each block's gradient norm at the first step, where its weights are still the initial ones."""
    train_s: float = 0.0
    eval_s: float = 0.0
    live_bytes: int = 0
    """Length of the live rows when this was kept; the run's recorder says so before each checkpoint."""
    live_sha256: str = ""
    """Their sha256; empty before the first checkpoint."""
    made_with: dict[str, str | int] = field(default_factory=dict)
    """What may move the last bit of a step: code, libraries, machine. A run is resumed where it is the same."""

    def count(self, step: StepResult, tokens: int, batch: bytes, dropout: str, layers: list[float]) -> None:
        """One more step: what it gave, what it read and drew, and each block's gradient norm."""
        self.step = step.step
        self.tokens += tokens
        self.first_loss = step.loss if self.first_loss is None else self.first_loss
        self.batches = chain_next(self.batches, batch)
        self.dropout = dropout
        self.grad_norm_sum += step.grad_norm
        self.layer_norm_sums = [a + b for a, b in zip(self.layer_norm_sums, layers, strict=True)]
        self.first_layer_norms = self.first_layer_norms or layers
        self.grad_norm_count += 1


def arithmetic(config: Training, device: torch.device) -> AbstractContextManager[None]:
    """The registered arithmetic of matrix products on a device."""
    if config.numerics.dtype == "bfloat16":
        # Weights stay float32, and so do moments and the optimizer's step; products alone are taken in bfloat16.
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def takes_fused_attention(config: Training) -> bool:
    """Whether attention without dropout is torch's fused one. Its bfloat16 backward is slow on a CPU."""
    return config.numerics.dtype == "float32"


class Trainer:
    """The runs of one configuration, one after another, on one model object.

    Weights are drawn on the CPU whatever the device, so that a seed starts from the same bytes everywhere.
    """

    def __init__(
        self,
        config: Training,
        split: Split,
        vocabulary: int,
        *,
        device: str = "cpu",
    ) -> None:
        torch.use_deterministic_algorithms(config.numerics.deterministic)
        # Deterministic mode otherwise writes NaN into every tensor before it is filled: a twentieth of a
        # step.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        self.config = config
        self.split = split
        self.device = torch.device(device)
        self.compiler = compiler_name(self.device.type) if config.numerics.compile else ""
        """What compiles its steps, with its version; empty where nothing does."""
        self.model = GPT(config.model, vocabulary, fused=takes_fused_attention(config)).to(self.device)
        self.model.recompute = config.numerics.recompute == "blocks"  # less memory for a second forward pass
        self.parameters = count_parameters(self.model)
        self.compiled = self._compiled() if config.numerics.compile else None

    def _compiled(self) -> Callable[..., Tensor]:
        """The model's loss, compiled when it is first called."""
        load_compiler()
        # torch reads it whenever it compiles, not when it is imported. What a user has set stays.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(compiled_folder(self.device.type)))
        settings = compile_settings(self.device.type, deterministic=self.config.numerics.deterministic)
        # `fullgraph` refuses a step that falls back to Python anywhere; without `dynamic` each shape is compiled as
        # it is. Both keep one step one program.
        made: Callable[..., Tensor] = torch.compile(self.model.loss, fullgraph=True, dynamic=False, options=settings)
        return made

    def begin(self, seed: int) -> dict[str, str]:
        """Set the model to a seed's initial weights; returns the hash of each parameter."""
        # The model object is used again for every seed, so all that a run moves is made anew here: weights, moments,
        # average, streams, progress.
        hashes = initialise(self.model, seed)
        self.optimizers = build_optimizers(self.model, self.config.optim)
        decay = self.config.optim.ema
        self.average = {n: p.detach().clone() for n, p in self.model.named_parameters()} if decay > 0.0 else {}
        self.batches = Batches(self.split.train, self.config.model.context, self.config.budget.batch, seed)
        self.dropout = DropoutStream(seed)
        self.progress = TrainerState(dropout=self.dropout.chain, layer_norm_sums=[0.0] * self.config.model.layers)
        self.model.train()
        return hashes

    def step(self) -> StepResult:
        """One optimiser step. The loss is that of the batch before the update."""
        progress, optim = self.progress, self.config.optim
        number = progress.step + 1

        # What the step sees: both (batch, context); `identity` is what the chain of hashes takes in.
        inputs, targets, identity = self.batches.at(number)
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        self.dropout.at(number)

        # Set at every step and kept nowhere: a resumed run needs no state of a schedule.
        rate = learning_rate(optim, number, self.config.budget.steps)
        for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
            group["lr"] = rate

        # Norms are taken before clipping. With clip: 0 the call still measures, and scales nothing.
        loss = self._gradient(inputs, targets)
        limit = optim.clip if optim.clip > 0.0 else math.inf
        layers = self._layer_norms()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)

        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self._move_average()
        result = StepResult(number, float(loss), float(norm))
        progress.count(result, targets.numel(), identity, self.dropout.chain, layers)
        return result

    def _gradient(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of the whole batch; leaves its gradient in the parameters, summed over equal micro-batches."""
        stream = self.dropout if self.config.model.dropout > 0.0 else None
        at_once = self.config.budget.micro_batch or len(inputs)
        parts = len(inputs) // at_once
        assert parts * at_once == len(inputs), (len(inputs), at_once)
        losses = []
        for first in range(0, len(inputs), at_once):
            rows = slice(first, first + at_once)
            self.dropout.from_sequence(first, of=len(inputs))  # so that micro-batches meet the masks of the whole batch
            with self.arithmetic():
                # Divided before the backward pass: the sum of the parts' gradients is then that of the mean
                # loss.
                loss = (self.compiled or self.model.loss)(inputs[rows], targets[rows], stream) / parts
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())  # no float(): it would make the CPU wait once a micro-batch
        return torch.stack(losses).sum()

    def _layer_norms(self) -> list[float]:
        """L2 norm of each block's gradient, before clipping."""
        norms = [
            torch.linalg.vector_norm(
                torch.stack([torch.linalg.vector_norm(p.grad) for p in block.parameters() if p.grad is not None])
            )
            for block in self.model.blocks
        ]
        return torch.stack(norms).tolist()  # one transfer for all blocks; on a GPU, where the CPU waits for the step

    def _move_average(self) -> None:
        if self.average:
            # average <- decay * average + (1 - decay) * weight. No correction for its start: it begins at the
            # first weights.
            decay = self.config.optim.ema
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    self.average[name].lerp_(parameter, 1.0 - decay)

    @contextmanager
    def evaluated(self) -> Iterator[GPT]:
        """The model as it is to be judged: with the averaged weights where an average is registered."""
        if not self.average:
            yield self.model
            return
        # The averaged weights take the place of the trained ones, which come back whatever happens meanwhile.
        moving = {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}
        self._set(self.average)
        try:
            yield self.model
        finally:
            self._set(moving)

    def _set(self, values: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(values[name])

    def arithmetic(self) -> AbstractContextManager[None]:
        """The registered arithmetic of matrix products."""
        return arithmetic(self.config, self.device)

    def grad_norms(self) -> dict[str, float]:
        """Mean gradient norms since the last call, of all and of each block, and those of each block at the first step;
        empty before the first step."""
        progress = self.progress
        count = progress.grad_norm_count
        if not count:
            return {}
        means = {"grad/norm": progress.grad_norm_sum / count}
        means |= {f"grad/layer_{layer}": total / count for layer, total in enumerate(progress.layer_norm_sums)}
        means |= {f"grad/first_layer_{layer}": norm for layer, norm in enumerate(progress.first_layer_norms)}
        # From here on the next mean begins. `first_layer_norms` stays: it is of the run, not of the interval.
        progress.grad_norm_sum, progress.grad_norm_count = 0.0, 0
        progress.layer_norm_sums = [0.0] * len(progress.layer_norm_sums)
        return means

    def diverged(self, step: StepResult, loss_above: float | None) -> bool:
        """The registered rule: not finite, or above so many times the first step's loss where such a limit is set."""
        # NaN is no comparison's more or less: without `isfinite` a run of NaN would train to its end.
        if not math.isfinite(step.loss) or not math.isfinite(step.grad_norm):
            return True
        first = self.progress.first_loss
        assert first is not None, step
        return loss_above is not None and step.loss > loss_above * first

    def weights(self) -> bytes:
        """The weights alone, as they were evaluated."""
        with self.evaluated() as model:
            # `named_parameters` gives a tied matrix once: safetensors refuses two names of one memory, and a view
            # that is not contiguous.
            return bytes(save({name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}))

    def checkpoint(self) -> bytes:
        """Weights, both moments and progress, in one self-describing block of bytes."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self._state()}
        # A run that diverged is handed over and never saved to be resumed, so a number here that JSON cannot hold is
        # our own fault.
        return bytes(save(tensors, metadata={"progress": json.dumps(asdict(self.progress), allow_nan=False)}))

    def _state(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor of a run's state by its name, always in the same order."""
        for name, parameter in self.model.named_parameters():
            yield f"weight/{name}", parameter
            for optimizer in self.optimizers:
                for moment, value in optimizer.state.get(parameter, {}).items():
                    if value is not None:  # SGD without momentum keeps an empty place
                        yield f"{moment}/{name}", value
        for name, value in self.average.items():
            yield f"average/{name}", value

    def restore(self, path: Path) -> None:
        """Resume a run where `checkpoint` left it. Call `begin` with its seed first."""
        try:
            self._load(path)
        except (OSError, KeyError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
            raise EvidenceError(
                f"checkpoint {path} cannot be read: {error}",
                fix=f"remove {path}; the run then starts again from its first step",
            ) from error

    def _load(self, path: Path) -> None:
        with safe_open(path, framework="pt") as stored, torch.no_grad():
            progress = json.loads(stored.metadata()["progress"])
            names = sorted(stored.keys())
            for name, parameter in self.model.named_parameters():
                parameter.copy_(stored.get_tensor(f"weight/{name}"))
                # Moments are filed by kind and parameter (exp_avg/blocks.0.norm.weight), since an optimizer's
                # own state is keyed by its order of parameters, which another version of this code may
                # change.
                kinds = {full.split("/", 1)[0]: full for full in names if full.split("/", 1)[1] == name}
                moments = {
                    kind: stored.get_tensor(full).to(self.device, copy=True)
                    for kind, full in kinds.items()
                    if kind not in ("weight", "average")
                }
                if moments:
                    optimizer_of(parameter, self.optimizers).state[parameter] = moments
                if name in self.average:
                    self.average[name].copy_(stored.get_tensor(f"average/{name}"))
        self.progress = TrainerState(**progress)
        self.dropout.chain = self.progress.dropout  # all that a stream remembers between steps
