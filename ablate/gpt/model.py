"""A whole GPT in one file. Every ablatable part is a field of `prereg.training.Model`.

    tokens ─▶ embedding + position ─▶ embedding norm ─▶ [ attention, feed-forward ] x layers ─▶ norm ─▶ logits

Initialisation follows GPT-2 (Radford et al. 2019): normal(0, 0.02), biases zero, projections into the
residual stream scaled by 1/sqrt(2 x layers). Each parameter draws from its own stream, keyed by seed and
parameter name, so variants of one seed share every parameter they both have, bit for bit.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.gpt.streams import DropoutStream, generator
from prereg.training import Model

LAYERNORM_EPS = 1e-5
RMSNORM_EPS = 1e-6
INIT_STD = 0.02


class Center(nn.Module):
    """Subtract the mean over features; nothing is learned. The half of LayerNorm that RMSNorm drops."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=-1, keepdim=True)


def norm_layer(kind: str, width: int) -> nn.Module:
    """A normalisation by its registered name."""
    if kind == "layernorm":
        return nn.LayerNorm(width, eps=LAYERNORM_EPS)
    if kind == "rmsnorm":
        return nn.RMSNorm(width, eps=RMSNORM_EPS)
    if kind == "center":
        return Center()
    assert kind == "none", kind
    return nn.Identity()


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, config: Model, place: str) -> None:
        super().__init__()
        self.heads = config.heads
        self.rate = config.dropout
        self.place = place
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        mask = torch.full((config.context, config.context), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)
        self.mask: Tensor

    def forward(self, x: Tensor, dropout: DropoutStream | None) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        masked = dropout is not None and self.rate > 0.0
        if q.dtype == torch.float32 and not masked:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            # The fused CPU kernel's bfloat16 backward is over ten times slower than these three lines at small
            # head sizes, and it cannot take a mask drawn elsewhere.
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1])) + self.mask[:time, :time].to(q.dtype)
            weights = scores.softmax(dim=-1)
            if masked and dropout is not None:
                weights = weights * dropout.mask(f"{self.place}.attention", weights, self.rate)
            y = weights.to(v.dtype) @ v
        merged: Tensor = self.out(y.transpose(1, 2).reshape(batch, time, width))
        return merged


class FeedForward(nn.Module):
    """Two linear layers around a non-linearity, four times as wide inside."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width)
        self.out = nn.Linear(4 * config.width, config.width)
        self.approximate = "tanh" if config.activation == "gelu_tanh" else "none"

    def forward(self, x: Tensor) -> Tensor:
        fed: Tensor = self.out(F.gelu(self.up(x), approximate=self.approximate))
        return fed


class Block(nn.Module):
    """One transformer block, normalised before (pre) or after (post) each residual sum."""

    def __init__(self, config: Model, index: int) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.rate = config.dropout
        self.place = f"block{index}"
        self.norm_attention = norm_layer(config.block_norm, config.width)
        self.attention = Attention(config, self.place)
        self.norm_feed = norm_layer(config.block_norm, config.width)
        self.feed = FeedForward(config)

    def forward(self, x: Tensor, dropout: DropoutStream | None) -> Tensor:
        if self.pre:
            x = x + self._drop(self.attention(self.norm_attention(x), dropout), "residual_attention", dropout)
            return x + self._drop(self.feed(self.norm_feed(x)), "residual_feed", dropout)
        x = self.norm_attention(x + self._drop(self.attention(x, dropout), "residual_attention", dropout))
        fed: Tensor = self.norm_feed(x + self._drop(self.feed(x), "residual_feed", dropout))
        return fed

    def _drop(self, x: Tensor, place: str, dropout: DropoutStream | None) -> Tensor:
        if dropout is None or self.rate == 0.0:
            return x
        return x * dropout.mask(f"{self.place}.{place}", x, self.rate)


class GPT(nn.Module):
    """The language model. `forward` gives logits; `first_input` gives what the first block sees."""

    def __init__(self, config: Model, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Embedding(vocabulary, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.embedding_norm = norm_layer(config.embedding_norm, config.width)
        self.blocks = nn.ModuleList([Block(config, index) for index in range(config.layers)])
        # A post-norm block already ends in a norm.
        self.final_norm = norm_layer(config.block_norm if config.norm == "pre" else "none", config.width)
        self.head = nn.Linear(config.width, vocabulary, bias=False)
        if config.tie_embeddings:
            self.head.weight = self.token.weight

    def first_input(self, tokens: Tensor) -> Tensor:
        """Summed token and position embeddings after the embedding norm: the first block's input."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.embedding_norm(self.token(tokens) + self.position(positions))  # type: ignore[no-any-return]

    def forward(self, tokens: Tensor, dropout: DropoutStream | None = None) -> Tensor:
        x = self.first_input(tokens)
        if dropout is not None and self.config.dropout > 0.0:
            x = x * dropout.mask("embedding", x, self.config.dropout)
        for block in self.blocks:
            x = block(x, dropout)
        return self.head(self.final_norm(x))  # type: ignore[no-any-return]

    def loss(self, tokens: Tensor, targets: Tensor, dropout: DropoutStream | None = None) -> Tensor:
        """Mean cross-entropy in nats a token, taken in float32 whatever the arithmetic before it."""
        logits = self(tokens, dropout)
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))


def initialise(model: GPT, seed: int) -> dict[str, str]:
    """Set every parameter from its own stream; return sha256 of each one's initial bytes by name."""
    residual_std = INIT_STD / math.sqrt(2 * model.config.layers)
    hashes = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                std = residual_std if name.endswith(("attention.out.weight", "feed.out.weight")) else INIT_STD
                draws = torch.empty(parameter.shape, dtype=torch.float32)
                parameter.copy_(draws.normal_(0.0, std, generator=generator(seed, "init", name)))
            else:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
            hashes[name] = hashlib.sha256(parameter.detach().cpu().numpy().tobytes()).hexdigest()
    return hashes


def count_parameters(model: GPT) -> int:
    """Trainable parameters; tied ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())
