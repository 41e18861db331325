"""One run's training: state, one step at a time, exact save and restore. No files, no clock, no printing.

`Trainer` holds what the runs of one configuration share (the model object and the split);
`Trainer.begin(seed)` resets it to a run's first step. The caller decides when to evaluate, when to
save and when to stop; a diverged loss is reported, not raised, because it is an outcome.
"""

from __future__ import annotations

import json
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ablate.gpt.batches import Batches, Split, chain_next, chain_start
from ablate.gpt.model import GPT, count_parameters, initialise
from ablate.gpt.schedule import build_optimizer, learning_rate
from ablate.gpt.streams import DropoutStream
from prereg.errors import EvidenceError
from prereg.training import Training


@dataclass(frozen=True)
class Step:
    """What one step gave."""

    step: int
    loss: float
    grad_norm: float


@dataclass
class Progress:
    """Everything beside the tensors that a resumed run needs. JSON holds floats exactly."""

    step: int = 0
    tokens: int = 0
    first_loss: float | None = None
    batches: str = field(default_factory=chain_start)
    dropout: str = ""
    grad_norm_sum: float = 0.0
    grad_norm_count: int = 0
    train_s: float = 0.0
    eval_s: float = 0.0


class Trainer:
    """The runs of one configuration, one after another, on one model object."""

    def __init__(self, config: Training, split: Split, vocabulary: int) -> None:
        torch.use_deterministic_algorithms(config.numerics.deterministic)
        self.config = config
        self.split = split
        self.model = GPT(config.model, vocabulary)
        self.parameters = count_parameters(self.model)

    def begin(self, seed: int) -> dict[str, str]:
        """Set the model to a seed's initial weights; returns the hash of each parameter."""
        hashes = initialise(self.model, seed)
        self.optimizer = build_optimizer(self.model, self.config.optim)
        self.batches = Batches(self.split.train, self.config.model.context, self.config.budget.batch, seed)
        self.dropout = DropoutStream(seed)
        self.progress = Progress(dropout=self.dropout.chain)
        self.model.train()
        return hashes

    def arithmetic(self) -> AbstractContextManager[None]:
        """The registered arithmetic of matrix products."""
        if self.config.numerics.dtype == "bfloat16":
            return torch.autocast("cpu", dtype=torch.bfloat16)
        return nullcontext()

    def step(self) -> Step:
        """One optimiser step. The loss is that of the batch before the update."""
        progress, optim = self.progress, self.config.optim
        number = progress.step + 1
        inputs, targets, identity = self.batches.at(number)
        self.dropout.at(number)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(optim, number, self.config.budget.steps)
        with self.arithmetic():
            stream = self.dropout if self.config.model.dropout > 0.0 else None
            loss = self.model.loss(inputs, targets, stream)
        loss.backward()  # type: ignore[no-untyped-call]
        limit = optim.clip if optim.clip > 0.0 else math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        result = Step(number, float(loss.detach()), float(norm))
        progress.step = number
        progress.tokens += targets.numel()
        progress.first_loss = result.loss if progress.first_loss is None else progress.first_loss
        progress.batches = chain_next(progress.batches, identity)
        progress.dropout = self.dropout.chain
        progress.grad_norm_sum += result.grad_norm
        progress.grad_norm_count += 1
        return result

    def mean_grad_norm(self) -> float | None:
        """Mean gradient norm since the last call; none before the first step."""
        progress = self.progress
        if not progress.grad_norm_count:
            return None
        mean = progress.grad_norm_sum / progress.grad_norm_count
        progress.grad_norm_sum, progress.grad_norm_count = 0.0, 0
        return mean

    def diverged(self, step: Step, loss_above: float) -> bool:
        """The registered rule: not finite, or above so many times the first step's loss."""
        first = self.progress.first_loss
        assert first is not None, step
        return not math.isfinite(step.loss) or not math.isfinite(step.grad_norm) or step.loss > loss_above * first

    def checkpoint(self) -> bytes:
        """Weights, both moments and progress, in one self-describing block of bytes."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in self.model.named_parameters():
            tensors[f"weight/{name}"] = parameter.detach().contiguous()
            for moment, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"{moment}/{name}"] = value.detach().contiguous()
        return bytes(save(tensors, metadata={"progress": json.dumps(asdict(self.progress), allow_nan=False)}))

    def restore(self, path: Path) -> None:
        """Take up a run where `checkpoint` left it. Call `begin` with its seed first."""
        try:
            with safe_open(path, framework="pt") as stored:
                progress = json.loads(stored.metadata()["progress"])
                names = set(stored.keys())
                for name, parameter in self.model.named_parameters():
                    with torch.no_grad():
                        parameter.copy_(stored.get_tensor(f"weight/{name}"))
                    moments = [
                        full for full in sorted(names) if full.split("/", 1)[1] == name and full[:7] != "weight/"
                    ]
                    if moments:
                        state = {full.split("/", 1)[0]: stored.get_tensor(full).clone() for full in moments}
                        self.optimizer.state[parameter] = state
        except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
            raise EvidenceError(
                f"checkpoint {path} cannot be read: {error}",
                fix=f"remove {path}; the run then starts again from its first step",
            ) from error
        self.progress = Progress(**progress)
        self.dropout.chain = self.progress.dropout

    def weights(self) -> bytes:
        """The weights alone."""
        return bytes(save({name: p.detach().contiguous() for name, p in self.model.named_parameters()}))
