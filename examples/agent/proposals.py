"""The thirty proposals of the campaign agent-night, and what is known of each before its first run.

The start is poor on purpose in six settings, so six proposals are useful by construction; the other 24 are no-ops, take
a little away, or harm. Every row says why. A setting that the agent has to read off the best so far is `BEST`.

    >>> from collections import Counter
    >>> sorted(Counter(each.truth for each in PROPOSALS).items())
    [('a little less', 6), ('harmful', 8), ('no-op', 6), ('rounding', 4), ('useful', 6)]
    >>> len(in_order()), len({each.name for each in in_order()})
    (30, 30)
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Truth = Literal["useful", "no-op", "rounding", "a little less", "harmful"]
ORDER = 20261127
"""Seed of the order."""
BEST = "of the best"
"""A place in a value that the agent fills from the best so far."""


@dataclass(frozen=True)
class Proposal:
    """One change, its truth, and what the agent says for it."""

    truth: Truth
    """`useful`; `no-op`: the same function by another name, so that both sides have the same bits; `rounding`: the same
    in exact arithmetic, or as good as; `a little less` text, context or width, so that noise is all that could speak
    for it; `harmful`."""
    change: Mapping[str, Any]
    why: str
    """What the agent says: the ledger keeps it."""
    because: str
    """Why the truth is what it is, by construction."""

    @property
    def name(self) -> str:
        """Its settings in one line."""
        return ", ".join(f"{path}={value}" for path, value in self.change.items())


USEFUL = (
    Proposal(
        "useful",
        {"optim.lr": 0.003},
        "the loss is still falling steeply at the last step",
        "200 steps at 5e-4 are far from a minimum; six times the rate is the usual one at this width",
    ),
    Proposal(
        "useful",
        {"optim.warmup": 10},
        "all 200 steps are warmup, so the mean rate is half the peak",
        "a rate that is too low is halved again by a warmup as long as the run",
    ),
    Proposal(
        "useful",
        {"optim.betas": [0.9, 0.95]},
        "momentum of .98 remembers 50 of 200 steps",
        "with beta1 .98 the direction is that of 50 steps ago, a quarter of the run",
    ),
    Proposal(
        "useful",
        {"optim.weight_decay": 0.1},
        "decay of 6 pulls the weights down as fast as they grow",
        "sixty times the usual decay; the run sees no text often enough to need any",
    ),
    Proposal(
        "useful",
        {"optim.ema": 0.0},
        "the evaluated weights are an average over 50 steps of a run of 200",
        "the average lags behind weights that improve with every step",
    ),
    Proposal(
        "useful",
        {"model.dropout": 0.0},
        "no run overfits in 200 steps",
        "dropout of .3 takes a third of a model that has too little capacity and time already",
    ),
)
NO_OPS = (
    Proposal(
        "no-op", {"optim.decay": 0.3}, "a longer decay at the end", "only the schedule wsd reads it; ours is constant"
    ),
    Proposal(
        "no-op", {"model.head_size": 16}, "heads of size 16", "width 32 over two heads is 16: the default in words"
    ),
    Proposal(
        "no-op", {"model.feed_width": 128}, "a feed-forward layer of 128", "four times the width, which is the default"
    ),
    Proposal(
        "no-op",
        {"model.final_norm": "layernorm"},
        "a LayerNorm before the output",
        "the block's norm is there already, and it is a LayerNorm",
    ),
    Proposal("no-op", {"optim.clip": 0.0}, "no clipping", "no gradient comes near the norm of 100 that is clipped"),
    Proposal(
        "no-op",
        {"numerics.recompute": "blocks"},
        "recompute the blocks instead of keeping them",
        "the same numbers are computed a second time",
    ),
)
ROUNDING = (
    Proposal(
        "rounding",
        {"budget.micro_batch": 8},
        "accumulate the gradient over two halves of the batch",
        "the gradient is that of the whole batch, added in another order",
    ),
    Proposal("rounding", {"optim.eps": 1e-9}, "a smaller epsilon in Adam", "both are far below the second moments"),
    Proposal(
        "rounding",
        {"model.activation": "gelu"},
        "the exact GELU instead of its tanh formula",
        "the formulas differ by less than .0005",
    ),
    Proposal(
        "rounding",
        {"optim.betas": [BEST, 0.951]},
        "a second moment that remembers a little longer",
        "beta2 .951 instead of .95 averages 20.4 steps instead of 20",
    ),
)
LESS = (
    Proposal("a little less", {"budget.batch": 15}, "a smaller batch has more noise", "6% less text in every step"),
    Proposal("a little less", {"budget.batch": 14}, "a still smaller batch", "12% less text in every step"),
    Proposal(
        "a little less", {"budget.steps": 197}, "stop before the last steps spoil it", "three steps of 200 are left out"
    ),
    Proposal(
        "a little less",
        {"model.context": 31},
        "a slightly shorter context",
        "one token less to see, and 3% less text",
    ),
    Proposal(
        "a little less",
        {"model.feed_width": 124},
        "a narrower feed-forward layer",
        "3% less width where the model underfits",
    ),
    Proposal(
        "a little less",
        {"model.feed_width": 120},
        "a narrower feed-forward layer",
        "6% less width where the model underfits",
    ),
)
HARMFUL = (
    Proposal("harmful", {"optim.lr": 1e-4}, "a gentler rate", "a fifth of a rate that is too low"),
    Proposal("harmful", {"model.dropout": 0.5}, "more regularisation", "more of what takes capacity away"),
    Proposal("harmful", {"optim.ema": 0.995}, "a longer average", "an average over as many steps as the run has"),
    Proposal("harmful", {"optim.warmup": 2000}, "a longer warmup", "the run ends at a tenth of the peak rate"),
    Proposal("harmful", {"optim.name": "sgd"}, "SGD generalises better", "its rates are a hundred times those of Adam"),
    Proposal("harmful", {"optim.weight_decay": 100.0}, "stronger decay", "weights shrink by 1% a step or more"),
    Proposal("harmful", {"budget.steps": 100}, "half the cost", "half the training of a run that has not converged"),
    Proposal("harmful", {"model.width": 8}, "a smaller model is easier to train", "a quarter of the width"),
)
PROPOSALS = (*USEFUL, *NO_OPS, *ROUNDING, *LESS, *HARMFUL)


def in_order() -> list[Proposal]:
    """The proposals as the agent makes them: by a seed that was fixed before the first run, one useful in every five,
    so that others meet a best that is as poor as the start, half repaired, and repaired."""
    generator = random.Random(ORDER)  # noqa: S311
    useful, others = list(USEFUL), list(PROPOSALS[len(USEFUL) :])
    generator.shuffle(useful)
    generator.shuffle(others)
    n_others = len(others) // len(useful)
    ordered: list[Proposal] = []
    for at, one_useful in enumerate(useful):
        block = [one_useful, *others[at * n_others : (at + 1) * n_others]]
        generator.shuffle(block)
        ordered += block
    return ordered
