"""A small causal language model in plain PyTorch, trained on sentences of a made-up language: `python train.py`.

Ordinary code with the places where trainers go wrong; `mutants/` has forty changes of this file. AdamW is by hand, for
torch.optim imports a compiler, which takes as long as the rest of a run.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ablate import config, log, must_match, seed

VOCABULARY, PAD, LAG = 17, 0, 4
DEFAULTS = {
    "width": 32, "heads": 4, "layers": 2, "context": 16, "dropout": 0.1, "sentences": 510, "validation": 900,
    "epochs": 4, "batch": 20, "micro_batch": 10, "lr": 0.01, "warmup": 20, "weight_decay": 0.1, "clip": 1.0,
}  # fmt: skip


def make_sentences(n: int, length: int, rng: torch.Generator) -> Tensor:
    """n rows of length + 1 tokens, padded at their end. A token follows its predecessor, or repeats the LAG-th one."""
    successors = torch.randint(1, VOCABULARY, (VOCABULARY, 3), generator=torch.Generator().manual_seed(0))
    tokens = torch.zeros(n, length + 1, dtype=torch.long)
    tokens[:, 0] = torch.randint(1, VOCABULARY, (n,), generator=rng)
    for t in range(1, length + 1):
        choice = torch.multinomial(torch.tensor([0.6, 0.3, 0.1]), n, replacement=True, generator=rng)
        tokens[:, t] = successors[tokens[:, t - 1], choice]
        if t >= LAG:
            tokens[:, t] = torch.where(torch.rand(n, generator=rng) < 0.5, tokens[:, t - LAG], tokens[:, t])
    lengths = torch.randint(length // 2, length + 2, (n, 1), generator=rng)
    return tokens.masked_fill(torch.arange(length + 1) >= lengths, PAD)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_size = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        projected = self.query(x), self.key(x), self.value(x)
        q, k, v = (part.view(batch, length, self.heads, self.head_size).transpose(1, 2) for part in projected)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.head_size)  # (batch, heads, length, length)
        visible = torch.ones(length, length, dtype=torch.bool).tril()
        weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width, eps=1e-5)
        self.attention = Attention(width, heads)
        self.norm_2 = nn.LayerNorm(width, eps=1e-5)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm_1(x)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm_2(x)))))


class Model(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, context: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width, eps=1e-5)

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.dropout(self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1])))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.tokens.weight)  # the output projection is the token embedding


def initialize(model: Model, layers: int, rng: torch.Generator) -> None:
    """Matrices from normal(0, 0.1), those into the residual stream smaller by sqrt(2 x layers); biases are zero."""
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            residual = name.endswith(("out.weight", "down.weight"))
            nn.init.normal_(parameter, std=0.1 / math.sqrt(2 * layers) if residual else 0.1, generator=rng)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
        must_match(f"initial {name}", parameter.detach().numpy().tobytes())


class AdamW:
    """AdamW (Loshchilov and Hutter 2019) that decays matrices, and neither biases nor norms."""

    def __init__(self, model: Model, decay: float, betas: tuple[float, float] = (0.9, 0.95), eps: float = 1e-8) -> None:
        self.decays = [(p, decay if p.dim() >= 2 else 0.0) for p in model.parameters()]
        self.moments = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()}
        self.betas, self.eps, self.t = betas, eps, 0

    @torch.no_grad()
    def step(self, lr: float) -> None:
        self.t += 1
        for p, decay in self.decays:
            mean, square = self.moments[p]
            mean.mul_(self.betas[0]).add_(p.grad, alpha=1 - self.betas[0])
            square.mul_(self.betas[1]).addcmul_(p.grad, p.grad, value=1 - self.betas[1])
            corrected_mean = mean / (1 - self.betas[0] ** self.t)
            corrected_square = square / (1 - self.betas[1] ** self.t)
            p.mul_(1 - lr * decay).sub_(lr * corrected_mean / (corrected_square.sqrt() + self.eps))


def learning_rate(step: int, total: int, peak: float, warmup: int) -> float:
    """Linear warmup, then a cosine to a tenth of the peak."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / (total - warmup)
    return peak * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))


def summed_loss(model: Model, rows: Tensor) -> Tensor:
    """Cross-entropy in nats, summed over the tokens that are no padding."""
    logits, labels = model(rows[:, :-1]), rows[:, 1:]
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, reduction="sum")


def n_labels(rows: Tensor) -> int:
    """The labels that are no padding."""
    return int((rows[:, 1:] != PAD).sum())


@torch.no_grad()
def evaluate(model: Model, rows: Tensor) -> float:
    """Mean loss over the labels of all rows, without dropout."""
    model.eval()
    total = sum(summed_loss(model, part).item() for part in rows.split(256))
    model.train()
    return total / n_labels(rows)


def main() -> None:
    c = config(DEFAULTS)
    run_seed = seed(1)
    torch.set_num_threads(1)
    torch.manual_seed(run_seed)  # for dropout; weights and order have generators of their own
    rows = make_sentences(c["sentences"] + c["validation"], c["context"], torch.Generator().manual_seed(1))
    training, validation = rows[: c["sentences"]], rows[c["sentences"] :]
    model = Model(c["width"], c["heads"], c["layers"], c["context"], c["dropout"])
    initialize(model, c["layers"], torch.Generator().manual_seed(run_seed))
    optimizer = AdamW(model, c["weight_decay"])
    total = c["epochs"] * math.ceil(len(training) / c["batch"])
    step = 0
    for epoch in range(c["epochs"]):
        rng = torch.Generator().manual_seed(1_000_000 + 1000 * run_seed + epoch)
        order = torch.randperm(len(training), generator=rng)
        must_match(f"order of epoch {epoch + 1}", order.numpy().tobytes())
        for start in range(0, len(training), c["batch"]):
            batch = training[order[start : start + c["batch"]]]
            model.zero_grad()
            loss_sum = 0.0
            for part in batch.split(c["micro_batch"]):
                loss = summed_loss(model, part) / n_labels(batch)
                loss.backward()
                loss_sum += loss.item()
            norm = nn.utils.clip_grad_norm_(model.parameters(), c["clip"])
            optimizer.step(learning_rate(step, total, c["lr"], c["warmup"]))
            step += 1
            log(step, {"train/loss": loss_sum, "train/grad_norm": norm.item()})
        log(step, {"val/loss": evaluate(model, validation)})


if __name__ == "__main__":
    main()
