"""What a built-in training run is made of: model, data, optimiser, budget, numerics.

These are the `base:` of a study whose `trainer` is `gpt`; variants override single fields of it by
dotted path. Every ablatable part is a field here and nowhere else. This module knows no torch.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from prereg.part import Part

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class Model(Part):
    """A decoder-only transformer language model."""

    layers: Positive = 8
    """Number of transformer blocks."""
    width: Positive = 128
    """Width of the residual stream."""
    heads: Positive = 8
    """Attention heads in a block; must divide the width."""
    context: Positive = 128
    """Tokens the model sees at once."""
    norm: Literal["pre", "post"] = "pre"
    """Where the block's normalisation sits: before each sub-layer (Pre-LN, Xiong et al. 2020) or after the sum."""
    block_norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    """Normalisation inside the blocks and at the end: LayerNorm (eps 1e-5) or RMSNorm (eps 1e-6, scale, no bias)."""
    embedding_norm: Literal["none", "layernorm", "rmsnorm", "center"] = "none"
    """Normalisation of the summed token and position embeddings: none, LayerNorm (eps 1e-5, scale and bias),
    RMSNorm (eps 1e-6, scale, no bias), or subtraction of the mean alone."""
    positions: Literal["learned"] = "learned"
    """Position information: learned absolute embeddings added to the token embeddings."""
    activation: Literal["gelu", "gelu_tanh"] = "gelu_tanh"
    """Non-linearity of the feed-forward layer: GELU (Hendrycks and Gimpel 2016), exact or by the tanh formula
    that GPT-2 uses."""
    tie_embeddings: bool = True
    """Whether the output projection is the token embedding (Press and Wolf 2017)."""
    dropout: Share = 0.0
    """Dropout on embeddings, attention weights and residual branches."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide width ({self.width})")
        return self


class Bpe(Part):
    """Byte-level byte-pair encoding, trained on the training split only."""

    bpe: Annotated[int, Field(ge=257, le=65536)]
    """Vocabulary size."""


class Data(Part):
    """What the model reads."""

    corpus: str = "toy"
    """Name of a corpus (`ablate corpus list`)."""
    tokenizer: Literal["char"] | Bpe = "char"
    """`char`: one token a character; `{bpe: N}`: byte-level BPE with N entries."""
    validation: Annotated[float, Field(gt=0.0, le=0.5)] = 0.1
    """Share of the text, taken from its end, that is never trained on."""


class Optim(Part):
    """How the weights move."""

    name: Literal["adamw", "adam"] = "adamw"
    """AdamW (Loshchilov and Hutter 2019) decays matrices only; Adam (Kingma and Ba 2015) takes no decay."""
    lr: Annotated[float, Field(gt=0.0)] = 3.0e-4
    """Peak learning rate."""
    betas: tuple[Share, Share] = (0.9, 0.95)
    """Decay rates of the two moment estimates."""
    eps: Annotated[float, Field(gt=0.0)] = 1.0e-8
    """Added to the root of the second moment."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.1
    """Decoupled weight decay, on matrices (two or more dimensions) only."""
    clip: Annotated[float, Field(ge=0.0)] = 1.0
    """Global gradient norm above which gradients are scaled down; 0 never clips."""
    warmup: Annotated[int, Field(ge=0)] = 0
    """Steps over which the learning rate rises linearly from zero."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after warmup: constant, linear to zero, or cosine to a tenth of the peak."""

    @model_validator(mode="after")
    def _adam_has_no_decay(self) -> Self:
        if self.name == "adam" and self.weight_decay > 0:
            raise ValueError("optim.name adam takes no weight decay; write weight_decay: 0.0, or name: adamw")
        return self


class Budget(Part):
    """How long a run lasts. Consumed tokens are counted and checked against it."""

    steps: Positive = 300
    """Optimiser steps."""
    batch: Positive = 16
    """Sequences a step; a step consumes batch x context tokens."""


class Numerics(Part):
    """With which arithmetic."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the matrix products; weights and optimiser state stay in float32."""
    deterministic: bool = True
    """Same seed, same machine, same bits: deterministic kernels only."""


class Training(Part):
    """One run's whole configuration, seed apart."""

    model: Model = Model()
    """The model."""
    data: Data = Data()
    """The text and its tokens."""
    optim: Optim = Optim()
    """The optimiser and its schedule."""
    budget: Budget = Budget()
    """The length of a run."""
    numerics: Numerics = Numerics()
    """The arithmetic."""

    @property
    def tokens(self) -> int:
        """Tokens a whole run consumes."""
        return self.budget.steps * self.budget.batch * self.model.context
