"""Model: a whole GPT in one file. Every ablatable part is a field of `prereg.study.training.Model`.

    tokens ─▶ embedding + position ─▶ embedding norm ─▶ [ attention, feed-forward ] x layers ─▶ norm ─▶ logits

Each parameter draws from its own stream, keyed by seed and parameter name, so variants of one seed share every
parameter they both have, bit for bit, whatever else they have.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its customary name)
from torch.utils.checkpoint import checkpoint

from ablate.gpt.streams import DropoutStream, generator
from prereg.study.training import Model, NormalInit

# torch's and GPT-2's for LayerNorm, Llama's for RMSNorm.
LAYERNORM_EPS = 1e-5
RMSNORM_EPS = 1e-6
# GPT-2's (Radford et al. 2019); with `small_embedding` the embeddings start near zero (SmallInit of RWKV,
# Peng et al. 2023).
INIT_STD = 0.02
SMALL_EMBEDDING_STD = 1e-4
_EMBEDDINGS = ("token.weight", "position.weight")
WAVE_BASE = 10_000.0
"""Base of the wavelengths of sinusoids and rotary embeddings."""


class Center(nn.Module):
    """Subtract the mean over features; nothing is learned. The half of LayerNorm that RMSNorm drops."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=-1, keepdim=True)


def norm_layer(kind: str, width: int) -> nn.Module:
    """A normalisation by its registered name.

    >>> norm_layer("center", width=2)(torch.tensor([1.0, 3.0])).tolist()
    [-1.0, 1.0]
    """
    if kind == "layernorm":
        return nn.LayerNorm(width, eps=LAYERNORM_EPS)
    if kind == "rmsnorm":
        return nn.RMSNorm(width, eps=RMSNORM_EPS)
    if kind == "center":
        return Center()
    assert kind == "none", kind
    return nn.Identity()


def angles(length: int, width: int) -> Tensor:
    """position x (width / 2): position times the frequency of each pair of features (Vaswani et al. 2017).

    >>> angles(3, 4).tolist()  # three positions, two frequencies: 1 and 10,000 ** (-2 / 4)
    [[0.0, 0.0], [1.0, 0.01], [2.0, 0.02]]
    """
    frequency = WAVE_BASE ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.arange(length, dtype=torch.float64)[:, None] * frequency


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn each pair of features (one from either half) by its angle (Su et al. 2021).

    >>> quarter_turn = (torch.tensor([0.0]), torch.tensor([1.0]))  # cosine and sine
    >>> rotate(torch.tensor([1.0, 0.0]), *quarter_turn).tolist()
    [0.0, 1.0]
    """
    # Halves as in GPT-NeoX and Llama, not neighbours as in the paper: the same up to an order of features.
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Attention(nn.Module):
    """Causal multi-head self-attention.

    With `fused` by torch's scaled_dot_product_attention where no attention weights are dropped; otherwise by two
    products around a softmax.
    """

    def __init__(self, config: Model, place: str, *, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.heads, self.size = config.heads, config.size_of_head
        self.rate = config.dropout
        self.place = place
        inner = self.heads * self.size
        # One matrix for queries, keys and values: (width, 3 * heads * size).
        self.qkv = nn.Linear(config.width, 3 * inner, bias=config.bias)
        self.out = nn.Linear(inner, config.width, bias=config.bias)
        # Over the `size` features of each head, before the rotation: the scores are then bounded by the learned
        # scales, however large the queries and keys grow (Dehghani et al. 2023).
        self.q_norm = norm_layer("rmsnorm" if config.qk_norm else "none", self.size)
        self.k_norm = norm_layer("rmsnorm" if config.qk_norm else "none", self.size)
        self.rotary = config.positions == "rope"
        if self.rotary:
            turns = angles(config.context, self.size)  # (context, size / 2)
            self.register_buffer("cosine", turns.cos().float(), persistent=False)
            self.register_buffer("sine", turns.sin().float(), persistent=False)
            self.cosine: Tensor
            self.sine: Tensor
        # Added to the scores: 0 where a position may look, -inf at every later one. Moves with the model,
        # saved with none.
        # (context, context).
        mask = torch.full((config.context, config.context), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)
        self.mask: Tensor

    def forward(self, x: Tensor, dropout: DropoutStream | None) -> Tensor:
        batch, time, _ = x.shape
        # (batch, time, 3 * heads * size) -> three of (batch, heads, time, size).
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        q, k = self._placed(self.q_norm(q)), self._placed(self.k_norm(k))
        y = self._weighted(q, k, v, dropout if self.rate > 0.0 else None)
        # Heads side by side again: (batch, time, heads * size) -> (batch, time, width).
        merged: Tensor = self.out(y.transpose(1, 2).reshape(batch, time, self.heads * self.size))
        return merged

    def _weighted(self, q: Tensor, k: Tensor, v: Tensor, dropout: DropoutStream | None) -> Tensor:
        """Values weighted by attention: (batch, heads, time, size)."""
        if self.fused and dropout is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        time = q.shape[-2]
        # torch's kernel draws its dropout itself, and ours has to be the same mask in every variant of a
        # seed. Scores and weights are (batch, heads, time, time), divided by sqrt(size) so that their
        # variance does not grow with it.
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(self.size)) + self.mask[:time, :time].to(q.dtype)
        weights = scores.softmax(dim=-1)
        if dropout is not None:
            weights = weights * dropout.mask(f"{self.place}.attention", weights, self.rate)
        return weights.to(v.dtype) @ v

    def _placed(self, x: Tensor) -> Tensor:
        if not self.rotary:
            return x
        time = x.shape[-2]
        return rotate(x, self.cosine[:time].to(x.dtype), self.sine[:time].to(x.dtype))


class FeedForward(nn.Module):
    """Two linear layers around a non-linearity; SwiGLU's is the product with a third, gating one."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.inner_width, bias=config.bias)
        self.out = nn.Linear(config.inner_width, config.width, bias=config.bias)
        self.activation = config.activation
        if config.activation == "swiglu":
            self.gate = nn.Linear(config.width, config.inner_width, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        fed: Tensor = self.out(self._activated(x))
        return fed

    def _activated(self, x: Tensor) -> Tensor:
        up: Tensor = self.up(x)
        if self.activation == "swiglu":  # Shazeer 2020
            return F.silu(self.gate(x)) * up
        if self.activation == "relu2":  # So et al. 2021 (Primer)
            return F.relu(up).square()
        # The tanh formula is that of GPT-2 (Hendrycks and Gimpel 2016); the two differ by up to 5e-4.
        return F.gelu(up, approximate="tanh" if self.activation == "gelu_tanh" else "none")


class Block(nn.Module):
    """One transformer block: norms before (pre), after the sum (post), on both sides of a sub-layer, or none."""

    def __init__(self, config: Model, index: int, *, fused: bool) -> None:
        super().__init__()
        self.placement = config.norm
        self.rate = config.dropout
        self.place = f"block{index}"
        kind = config.block_norm if config.norm != "none" else "none"
        behind = kind if config.norm == "sandwich" else "none"
        self.norm_attention = norm_layer(kind, config.width)
        self.attention = Attention(config, self.place, fused=fused)
        self.norm_attention_out = norm_layer(behind, config.width)
        self.norm_feed = norm_layer(kind, config.width)
        self.feed = FeedForward(config)
        self.norm_feed_out = norm_layer(behind, config.width)
        # Each block adds two sub-layers to the residual stream: scaled so, its variance stays that of one
        # (GPT-2's idea, but at every step and not only at the start). Rezero starts every sub-layer at
        # nothing (Bachlechner et al. 2021).
        self.factor = 1.0 / math.sqrt(2 * config.layers) if config.residual_scale == "depth" else 1.0
        self.learned = config.residual_scale == "rezero"
        if self.learned:
            self.scale_attention = nn.Parameter(torch.zeros(()))
            self.scale_feed = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, dropout: DropoutStream | None) -> Tensor:
        # Post-norm (Vaswani et al. 2017) normalises the sum, so the residual stream itself; the others only
        # what goes in and comes out of a sub-layer, which is why they train without warmup (Xiong et al.
        # 2020).
        if self.placement == "post":
            x = self.norm_attention(x + self._attended(x, dropout))
            fed: Tensor = self.norm_feed(x + self._fed(x, dropout))
            return fed
        x = x + self._attended(self.norm_attention(x), dropout)
        return x + self._fed(self.norm_feed(x), dropout)

    def _attended(self, x: Tensor, dropout: DropoutStream | None) -> Tensor:
        y = self.norm_attention_out(self.attention(x, dropout))
        return self._joining(y, self.scale_attention if self.learned else None, "residual_attention", dropout)

    def _fed(self, x: Tensor, dropout: DropoutStream | None) -> Tensor:
        y = self.norm_feed_out(self.feed(x))
        return self._joining(y, self.scale_feed if self.learned else None, "residual_feed", dropout)

    def _joining(self, y: Tensor, learned: Tensor | None, place: str, dropout: DropoutStream | None) -> Tensor:
        if dropout is not None and self.rate > 0.0:
            y = y * dropout.mask(f"{self.place}.{place}", y, self.rate)
        if learned is not None:
            return y * learned
        return y * self.factor if self.factor != 1.0 else y


class GPT(nn.Module):
    """The language model. `forward` gives logits; `first_input` gives what the first block sees."""

    def __init__(self, config: Model, vocabulary: int, *, fused: bool = True) -> None:
        super().__init__()
        self.config = config
        self.recompute = False
        """Whether the backward pass computes the inside of each block again (Chen et al. 2016)."""
        # Names are part of the promise: a parameter draws from the stream of its name, and is exported and compared
        # by it.
        self.token = nn.Embedding(vocabulary, config.width)
        if config.positions == "learned":
            self.position = nn.Embedding(config.context, config.width)
        if config.positions == "sinusoidal":
            # (context, width): sine and cosine of one frequency side by side (Vaswani et al. 2017, section 3.5).
            # Twice `width / 2` frequencies: an odd width is refused with the study.
            turns = angles(config.context, config.width)
            waves = torch.stack((turns.sin(), turns.cos()), dim=-1).flatten(1).float()
            self.register_buffer("waves", waves, persistent=False)
            self.waves: Tensor
        self.embedding_norm = norm_layer(config.embedding_norm, config.width)
        self.blocks = nn.ModuleList([Block(config, index, fused=fused) for index in range(config.layers)])
        self.final_norm = norm_layer(_final_norm(config), config.width)
        self.head = nn.Linear(config.width, vocabulary, bias=False)  # weight: (vocabulary, width), as the embedding's
        if config.tie_embeddings:
            self.head.weight = self.token.weight

    @property
    def device(self) -> torch.device:
        """Where its weights are, and its tokens must be."""
        return self.token.weight.device

    def embedded(self, tokens: Tensor) -> Tensor:
        """Token embeddings with what is added for positions, before the embedding norm."""
        x: Tensor = self.token(tokens)
        if self.config.positions == "learned":
            return x + self.position(torch.arange(tokens.shape[1], device=tokens.device))  # type: ignore[no-any-return]
        return x + self.waves[: tokens.shape[1]] if self.config.positions == "sinusoidal" else x

    def first_input(self, tokens: Tensor) -> Tensor:
        """Embeddings after the embedding norm: the first block's input."""
        return self.embedding_norm(self.embedded(tokens))  # type: ignore[no-any-return]

    def forward(self, tokens: Tensor, dropout: DropoutStream | None = None) -> Tensor:
        x = self.first_input(tokens)
        if dropout is not None and self.config.dropout > 0.0:
            x = x * dropout.mask("embedding", x, self.config.dropout)
        for block in self.blocks:
            if self.recompute and torch.is_grad_enabled():
                # Masks are keyed by their place: there is no random state to keep, and a mask drawn twice is
                # the same.
                x = checkpoint(block, x, dropout, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x, dropout)
        return self.head(self.final_norm(x))  # type: ignore[no-any-return]

    def loss(self, tokens: Tensor, targets: Tensor, dropout: DropoutStream | None = None) -> Tensor:
        """Mean cross-entropy in nats a token, taken in float32 whatever the arithmetic before it."""
        logits = self(tokens, dropout)
        # (B, T, V) and (B, T) -> (B * T, V) and (B * T). In bfloat16 the sum over the vocabulary would lose digits
        # that the difference of two arms is made of.
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))


def _final_norm(config: Model) -> str:
    if config.final_norm != "block":
        return config.final_norm
    # A post-norm block already ends in a norm.
    return config.block_norm if config.norm in ("pre", "sandwich") else "none"


def initialise(model: GPT, seed: int) -> dict[str, str]:
    """Set every parameter from its own stream; return sha256 of each one's initial bytes by name.

    >>> small = Model(layers=1, heads=2, width=8, context=4)
    >>> unplaced = small.model_copy(update={"positions": "none"})
    >>> initialise(GPT(unplaced, 5), seed=1).items() <= initialise(GPT(small, 5), seed=1).items()
    True
    """
    hashes = {}
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Norms' weights start at one; biases, norms' biases and learned scales at zero.
            value = torch.full(parameter.shape, 1.0 if "norm" in name and name.endswith("weight") else 0.0)
            reach = _uniform_reach(model.config, name, shapes)
            if reach is not None:
                value.uniform_(-reach, reach, generator=generator(seed, "init", name))
            elif parameter.dim() >= 2:
                value.normal_(0.0, _initial_std(model.config, name), generator=generator(seed, "init", name))
            parameter.copy_(value)  # drawn on the CPU, whatever the device: the same bytes everywhere
            hashes[name] = hashlib.sha256(value.numpy().tobytes()).hexdigest()
    return hashes


def _uniform_reach(config: Model, name: str, shapes: Mapping[str, torch.Size]) -> float | None:
    """Half the width of the uniform distribution a parameter starts from; none where it starts otherwise.

    1 / sqrt(inputs), for a layer's matrix and its bias alike: torch's own `nn.Linear`.
    """
    matrix = shapes.get(name.removesuffix("bias") + "weight" if name.endswith("bias") else name)
    if config.init != "torch" or name in _EMBEDDINGS or matrix is None or len(matrix) < 2:
        return None
    return 1.0 / math.sqrt(matrix[1])


def _initial_std(config: Model, name: str) -> float:
    """Standard deviation of a matrix' first values."""
    if isinstance(config.init, NormalInit):
        return config.init.normal
    if name in _EMBEDDINGS and config.init != "gpt2":
        return SMALL_EMBEDDING_STD if config.init == "small_embedding" else 1.0
    # GPT-2: what is added to the residual stream starts smaller, by how many such sums there are.
    if name.endswith(("attention.out.weight", "feed.out.weight")):
        return INIT_STD / math.sqrt(2 * config.layers)
    return INIT_STD


def count_parameters(model: GPT) -> int:
    """Trainable parameters; tied ones count once.

    >>> count_parameters(GPT(Model(layers=2, heads=2, width=8, context=4), vocabulary=5))
    1832
    """
    # `parameters()` gives a shared tensor once.
    return sum(parameter.numel() for parameter in model.parameters())
