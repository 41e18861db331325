"""Fields of `base` for the built-in trainer: model, data, optimiser, budget, numerics; `ablate/gpt/` carries them out.

These are the `base:` of a study whose `trainer` is `gpt`; variants override single fields of it by
dotted path. Every ablatable part is a field here and nowhere else. This module knows no torch.

To add a field: its line with a docstring that says what it does and who published it, its share in `parameters` and
`flops_per_token`, its use in `ablate.gpt.model` or `ablate.gpt.trainer`, and as its default what was done before, so
that no stored study changes its meaning.
"""

from __future__ import annotations

from math import gcd
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from prereg.frozen import FrozenModel, branch, chosen_by
from prereg.study.command import is_inside
from prereg.text import compact

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class NormalInit(FrozenModel):
    """Every matrix from one normal distribution."""

    normal: Annotated[float, Field(gt=0.0)]
    """Its standard deviation."""


Init = Annotated[
    Annotated[Literal["gpt2", "small_embedding", "torch"], branch("text, or a mapping")]
    | Annotated[NormalInit, branch("NormalInit")],
    chosen_by(NormalInit, text="text, or a mapping"),
]


class Model(FrozenModel):
    """A decoder-only transformer language model."""

    layers: Positive = 8
    """Number of transformer blocks."""
    width: Positive = 128
    """Width of the residual stream."""
    heads: Positive = 8
    """Attention heads in a block (Vaswani et al. 2017); must divide the width unless `head_size` is given."""
    head_size: Positive | None = None
    """Width of one attention head; width / heads if left out (Bhojanapalli et al. 2020 set it by itself)."""
    context: Positive = 128
    """Tokens the model sees at once."""
    norm: Literal["pre", "post", "sandwich", "none"] = "pre"
    """Where the block's normalisation sits: before each sub-layer (Pre-LN, Xiong et al. 2020), after the residual sum
    (Vaswani et al. 2017), before and after each sub-layer (Sandwich-LN, Ding et al. 2021), or nowhere."""
    block_norm: Literal["layernorm", "rmsnorm", "none"] = "layernorm"
    """Normalisation inside the blocks: LayerNorm (Ba et al. 2016; eps 1e-5) or RMSNorm (Zhang and Sennrich 2019;
    eps 1e-6, scale, no bias)."""
    embedding_norm: Literal["none", "layernorm", "rmsnorm", "center"] = "none"
    """Normalisation of the summed token and position embeddings (Dettmers et al. 2022): none, LayerNorm (eps 1e-5,
    scale and bias), RMSNorm (eps 1e-6, scale, no bias), or subtraction of the mean alone."""
    final_norm: Literal["block", "layernorm", "rmsnorm", "none"] = "block"
    """Normalisation before the output projection. `block`: the block norm after pre-norm and sandwich blocks, none
    after post-norm blocks, which end in one, and none where `norm` is none."""
    positions: Literal["learned", "sinusoidal", "rope", "none"] = "learned"
    """Position information: learned absolute embeddings, fixed sinusoids (Vaswani et al. 2017) added to the token
    embeddings, rotary embedding of queries and keys (Su et al. 2021; base 10,000), or none (Kazemnejad et al. 2023)."""
    qk_norm: bool = False
    """RMSNorm with a learned scale on each head's queries and keys (Henry et al. 2020; Dehghani et al. 2023)."""
    activation: Literal["gelu", "gelu_tanh", "relu2", "swiglu"] = "gelu_tanh"
    """Non-linearity of the feed-forward layer: GELU (Hendrycks and Gimpel 2016), exact or by the tanh formula that
    GPT-2 uses; squared ReLU (So et al. 2021); SwiGLU, a gated layer (Shazeer 2020)."""
    feed_width: Positive | None = None
    """Width inside the feed-forward layer. If left out, 4 x width; for SwiGLU, whose gate is a third matrix, 8/3 x
    width rounded up to a multiple of 8, so that the parameters are about as many."""
    bias: bool = True
    """Whether linear layers have biases (without: Chowdhery et al. 2022). Norms keep theirs."""
    tie_embeddings: bool = True
    """Whether the output projection is the token embedding (Press and Wolf 2017)."""
    residual_scale: Literal["none", "depth", "rezero"] = "none"
    """Factor on each sub-layer before it joins the residual stream: none, 1 / sqrt(2 x layers) (Hayou et al. 2021), or
    a learned scalar that starts at zero (ReZero, Bachlechner et al. 2021)."""
    init: Init = "gpt2"
    """Initial matrices. `gpt2`: normal(0, 0.02), those into the residual stream by 1 / sqrt(2 x layers) smaller
    (Radford et al. 2019); `small_embedding`: the same with embeddings at 1e-4 (SmallInit, Peng 2021); `torch`: the
    defaults of PyTorch's layers, embeddings normal(0, 1), linear layers and their biases
    uniform within 1 / sqrt(inputs) (LeCun et al. 1998); `{normal: S}`: all matrices normal(0, S)."""
    dropout: Share = 0.0
    """Dropout on embeddings, attention weights and residual branches (Srivastava et al. 2014)."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        # Attention splits the width into heads; rotations and sinusoids come in pairs (sine and cosine).
        if self.head_size is None and self.width % self.heads:
            width = self.heads * max(1, self.width // self.heads)
            fix = f"width: {width}, or head_size: {max(1, self.width // self.heads)}"
            raise ValueError(f"heads ({self.heads}) does not divide width ({self.width})", "heads of equal size", fix)
        if self.positions == "rope" and self.size_of_head % 2:
            fault = f"positions: rope turns pairs of features, and a head has {self.size_of_head}"
            raise ValueError(fault, "an even number of features in a head", f"head_size: {self.size_of_head + 1}")
        if self.positions == "sinusoidal" and self.width % 2:
            fault = f"positions: sinusoidal, and the width is {self.width}"
            raise ValueError(fault, "an even width", f"width: {self.width + 1}")
        return self

    @property
    def size_of_head(self) -> int:
        """Width of one attention head."""
        # The width divides evenly: `_parts_fit` has seen to it.
        return self.head_size if self.head_size is not None else self.width // self.heads

    @property
    def inner_width(self) -> int:
        """Width inside the feed-forward layer."""
        if self.feed_width is not None:
            return self.feed_width
        # SwiGLU: 8/3 x width, rounded up to a multiple of 8, by 8 x ceil(width / 3).
        return 4 * self.width if self.activation != "swiglu" else 8 * -(-self.width // 3)


class Bpe(FrozenModel):
    """Byte-level byte-pair encoding (Sennrich et al. 2016; on bytes: Radford et al. 2019), trained on the training
    split only."""

    bpe: Annotated[int, Field(ge=257, le=65536)]
    """Vocabulary size."""


class TokenizerFile(FrozenModel):
    """A tokenizer as the library `tokenizers` stores it, and `transformers` saves it: tokenizer.json."""

    file: Annotated[str, Field(min_length=1)]
    """Its path from the root. The registration holds its hash."""

    @model_validator(mode="after")
    def _lies_below_the_root(self) -> Self:
        if not is_inside(self.file):
            raise ValueError(f"'{self.file}' is no path below the root: it begins with / or holds ..")
        return self


Tokenizer = Annotated[
    Annotated[Literal["char", "own"], branch("text, or a mapping")]
    | Annotated[Bpe, branch("Bpe")]
    | Annotated[TokenizerFile, branch("TokenizerFile")],
    chosen_by(Bpe, TokenizerFile, text="text, or a mapping"),
]
Validation = Annotated[
    Annotated[float, Field(gt=0.0, le=0.5), branch("number, or 'own'")]
    | Annotated[Literal["own"], branch("text, or a number")],
    chosen_by(text="text, or a number", number="number, or 'own'"),
]


class Data(FrozenModel):
    """The text that a model is trained on, and how it becomes tokens."""

    corpus: str = "toy"
    """Name of a corpus (`ablate corpus list`)."""
    tokenizer: Tokenizer = "char"
    """`char`: one token per character; `{bpe: N}`: byte-level BPE with N entries, trained on the training split only;
    `{file: tokenizer.json}`: a tokenizer that exists, as Hugging Face stores it; `own`: the token ids that a corpus of
    shards is stored as."""
    validation: Validation = 0.1
    """Share of the text (of shards: of the tokens), taken from its end, that is never trained on; `own` where the
    corpus comes with a validation part of its own, which is then read whole."""


class Optim(FrozenModel):
    """How the weights are trained."""

    name: Literal["adamw", "adam", "sgd", "muon"] = "adamw"
    """AdamW (Loshchilov and Hutter 2019) decays matrices only; Adam (Kingma and Ba 2015) takes no decay; SGD with
    momentum betas[0] (Sutskever et al. 2013); Muon (Jordan et al. 2024): orthogonalised momentum for the matrices
    of the blocks, AdamW for everything else."""
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
    """Steps over which the learning rate rises linearly, from `warmup_from` to the peak."""
    warmup_from: Annotated[float, Field(ge=0.0)] = 0.0
    """Learning rate that the warmup rises from, one step before the first; at most the peak."""
    schedule: Literal["constant", "linear", "cosine", "wsd"] = "constant"
    """Learning rate after warmup: constant, linear to zero, cosine to a tenth of the peak (Loshchilov and Hutter 2017),
    or warmup-stable-decay (Hu et al. 2024): constant, then linear to zero over the last `decay` of the steps."""
    decay: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2
    """Share of all steps over which `wsd` falls."""
    ema: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Decay per step of an exponential moving average of the weights; the average is then evaluated and kept (Polyak
    and Juditsky 1992). 0 evaluates the weights themselves."""

    @model_validator(mode="after")
    def _adam_has_no_decay(self) -> Self:
        if self.name == "adam" and self.weight_decay > 0:
            raise ValueError("optim.name adam takes no weight decay; write weight_decay: 0.0, or name: adamw")
        return self

    @model_validator(mode="after")
    def _warmup_rises(self) -> Self:
        # The schedule starts from `warmup_from`: above the peak it would be a decay under another name.
        if self.warmup_from > self.lr:
            found = f"warmup_from ({self.warmup_from:g}) is above the peak rate, lr ({self.lr:g})"
            raise ValueError(found, "a warmup that rises", f"warmup_from: {self.lr / 10:g}")
        if self.warmup_from and not self.warmup:
            found = f"warmup_from ({self.warmup_from:g}) without a warmup"
            raise ValueError(found, "steps over which the rate rises from it", "warmup: 100")
        return self


class Budget(FrozenModel):
    """How long a run lasts. Consumed tokens are counted and checked against it."""

    steps: Positive = 300
    """Optimiser steps. Where `tokens` is given and this is not, as many as make up the tokens."""
    batch: Positive = 16
    """Sequences per step; a step consumes batch x context tokens."""
    tokens: Positive | None = None
    """Tokens that a run consumes, in place of steps; where both are given, steps x batch x context must equal it. It
    holds for every arm: one that changes batch or context takes as many steps as make up the same tokens, unless it
    sets its own steps."""
    max_wall_s: Annotated[float, Field(gt=0.0)] | None = None
    """A promise about time, in seconds from the moment a process takes a run to its seal, over all attempts. A
    run that exceeds it continues, and the breach is logged and listed next to the verdict."""
    micro_batch: Positive | None = None
    """Sequences computed at once; must divide the batch. The gradient is still that of the whole batch, summed over
    micro-batches (gradient accumulation), which changes rounding only. If left out, the whole batch at once."""

    @model_validator(mode="after")
    def _micro_batches_are_equal(self) -> Self:
        # Equal parts: the mean of their gradients is then the gradient of the batch.
        if self.micro_batch is not None and self.batch % self.micro_batch:
            fault = f"micro_batch ({self.micro_batch}) does not divide batch ({self.batch})"
            raise ValueError(fault, "micro-batches of equal size", f"micro_batch: {gcd(self.micro_batch, self.batch)}")
        return self


class Breach(FrozenModel):
    """One limit that one run did not keep to."""

    limit: str
    """The field of the budget."""
    promised: float
    """Its value, in the field's own unit."""
    measured: float
    """What the run took, in the same unit."""

    @property
    def words(self) -> str:
        """What was promised and what came."""
        return f"{compact(round(self.measured, 3))} s of time, promised at most {compact(self.promised)} s"


def breach_of(budget: Budget, *, wall_s: float) -> Breach | None:
    """Return the limit of a budget that a run broke; none where it kept to it, and where none was promised.

    >>> breach_of(Budget(max_wall_s=60.0), wall_s=75.5).words
    '75.5 s of time, promised at most 60 s'
    """
    if budget.max_wall_s is None or wall_s <= budget.max_wall_s:
        return None
    return Breach(limit="max_wall_s", promised=budget.max_wall_s, measured=wall_s)


class Numerics(FrozenModel):
    """The arithmetic of a run."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the matrix products; weights and optimiser state stay in float32."""
    deterministic: bool = True
    """Same seed, same machine, same bits: deterministic kernels only."""
    recompute: Literal["none", "blocks"] = "none"
    """What the backward pass computes again instead of keeping it: nothing, or the inside of each block, of which only
    the input is kept (activation checkpointing, Chen et al. 2016). It changes no bit and costs another forward pass."""
    compile: bool = False
    """Whether forward and backward pass are compiled by torch.compile. It changes the last
    bits, and needs a C++ compiler or Triton. Without dropout."""


class Training(FrozenModel):
    """The whole configuration of a run, except its seed."""

    model: Model = Model()
    """The model."""
    data: Data = Data()
    """The text and its tokens."""
    optim: Optim = Optim()
    """The optimiser and its schedule."""
    budget: Budget = Budget()
    """The length of a run, and limits of its cost."""
    numerics: Numerics = Numerics()
    """The arithmetic."""

    @model_validator(mode="after")
    def _what_is_compiled_draws_nothing(self) -> Self:
        if self.numerics.compile and (self.model.dropout > 0.0 or self.numerics.recompute != "none"):
            drawn = "model.dropout" if self.model.dropout > 0.0 else "numerics.recompute"
            raise ValueError(f"numerics.compile with {drawn}: masks and recomputed blocks are not compiled")
        return self

    @field_validator("budget")
    @classmethod
    def _steps_make_up_the_tokens(cls, budget: Budget, info: ValidationInfo) -> Budget:
        if budget.tokens is None or "model" not in info.data:  # a model that is refused has no context
            return budget
        context = info.data["model"].context
        step = budget.batch * context
        # Rounded steps would give arms of other batch sizes other numbers of tokens, which they promise not to.
        if "steps" not in budget.model_fields_set:
            steps, rest = divmod(budget.tokens, step)
            if rest or not steps:
                near = [f"{n * step:,}" for n in (steps, steps + 1) if n]
                raise ValueError(
                    f"budget.tokens is {budget.tokens:,}, which whole steps of {step:,} tokens (batch {budget.batch} x "
                    f"context {context}) do not make up; "
                    + (f"the nearest are {near[0]} and {near[1]}" if len(near) == 2 else f"the nearest is {near[0]}")
                )
            return budget.model_copy(update={"steps": steps})
        if budget.steps * step != budget.tokens:
            raise ValueError(
                f"budget.tokens is {budget.tokens:,}, but {budget.steps:,} steps of {step:,} tokens (batch "
                f"{budget.batch} x context {context}) consume {budget.steps * step:,}"
            )
        return budget

    @property
    def tokens(self) -> int:
        """Tokens a whole run consumes."""
        return self.budget.steps * self.budget.batch * self.model.context


def parameters(model: Model, vocabulary: int) -> int:
    """Trainable parameters, tied ones counted once; tests/prereg/test_size.py counts torch's own.

    >>> parameters(Model(layers=1, width=16, heads=2, context=16), vocabulary=65)
    4608
    """
    width, inner, feed, bias = model.width, model.heads * model.size_of_head, model.inner_width, int(model.bias)

    # In each block: queries, keys, values and the way back; the feed-forward layer, with a gate for SwiGLU; its norms.
    ways_in = 2 if model.activation == "swiglu" else 1
    attention = 3 * inner * (width + bias) + width * (inner + bias) + (2 * model.size_of_head if model.qk_norm else 0)
    feed_forward = ways_in * feed * (width + bias) + width * (feed + bias)
    kind = model.block_norm if model.norm != "none" else "none"
    norms = (4 if model.norm == "sandwich" else 2) * _norm(kind, width)
    block = attention + feed_forward + norms + (2 if model.residual_scale == "rezero" else 0)

    # Around the blocks: norms after the embedding and before the output, and the tables.
    around = _norm(model.embedding_norm, width) + _norm(_final_norm(model), width)
    positions = model.context * width if model.positions == "learned" else 0
    embeddings = (width if model.tie_embeddings else 2 * width) * vocabulary
    return model.layers * block + around + positions + embeddings


def flops_per_token(model: Model, vocabulary: int) -> int:
    """FLOPs of training on one token, forward and backward (Chowdhery et al. 2022, appendix B).

        6 x weights in products + 12 x layers x heads x head size x context

    6: a multiplication and an addition for each weight, once forward and twice backward. 12: queries by keys and scores
    by values, likewise, over the whole context (causal masks are not subtracted).

    >>> flops_per_token(Model(layers=1, width=16, heads=2, context=16), vocabulary=65)
    27744
    """
    # Weights in products of one block: queries, keys, values and the way back (4 matrices), and the feed-forward
    # layer (2, or 3 with a gate). Biases, norms and embeddings multiply nothing; the output projection does, tied
    # or not.
    inner, feed = model.heads * model.size_of_head, model.inner_width
    matrices = 4 * model.width * inner + (3 if model.activation == "swiglu" else 2) * model.width * feed
    attention = 12 * model.layers * inner * model.context
    return 6 * model.layers * matrices + attention + 6 * model.width * vocabulary


def _norm(kind: str, width: int) -> int:
    # Scale and bias of LayerNorm, the scale alone of RMSNorm.
    return {"layernorm": 2 * width, "rmsnorm": width, "center": 0, "none": 0}[kind]


def _final_norm(model: Model) -> str:
    if model.final_norm != "block":
        return model.final_norm
    # A post-norm block ends in a norm already.
    return model.block_norm if model.norm in ("pre", "sandwich") else "none"
