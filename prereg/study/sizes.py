"""Arms made as large as the baseline: the width of their feed-forward layers is set so that a count agrees.

An arm that has more parameters than the baseline, or costs more, may win by that alone. The feed-forward width is the
finest part that moves the size and nothing else. It is set when a study is read and is stored in the registration, so
that what was promised is a number and no formula. Arms of other widths share no initial feed-forward weights with the
baseline; the check of pairs says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from prereg.errors import field_error, nearest
from prereg.frozen import FrozenModel
from prereg.study.arms import Arm
from prereg.study.training import Bpe, Data, Model, Positive, TokenizerFile, Training

Count = Literal["parameters", "flops"]


@dataclass(frozen=True)
class Linear:
    """A count that is linear in the vocabulary: not known before the text where a token is a character."""

    fixed: int
    by_vocabulary: int

    def at(self, vocabulary: int) -> int:
        """The count with so many tokens."""
        return self.fixed + self.by_vocabulary * vocabulary


def parameters(model: Model, vocabulary: int) -> int:
    """Trainable parameters, tied ones counted once."""
    return count(model, "parameters").at(vocabulary)


def flops_per_token(model: Model, vocabulary: int) -> int:
    """FLOPs of training on one token, forward and backward."""
    return count(model, "flops").at(vocabulary)


def count(model: Model, kind: Count) -> Linear:
    """One of the two counts, as a function of the vocabulary."""
    return _parameters(model) if kind == "parameters" else _flops(model)


def vocabulary_of(data: Data) -> int | None:
    """Number of tokens, where the configuration alone says it."""
    return data.tokenizer.bpe if isinstance(data.tokenizer, Bpe) else None


def other_file(data: Data, other: Data) -> bool:
    """Whether two tokenizers, one of them of a file, may differ in their number of tokens: files are not read here."""
    chosen = (data.tokenizer, other.tokenizer)
    return chosen[0] != chosen[1] and any(isinstance(one, TokenizerFile) for one in chosen)


def _parameters(model: Model) -> Linear:
    width, inner, feed, bias = model.width, model.heads * model.size_of_head, model.inner_width, int(model.bias)
    ways_in = 2 if model.activation == "swiglu" else 1
    attention = 3 * inner * (width + bias) + width * (inner + bias) + (2 * model.size_of_head if model.qk_norm else 0)
    feed_forward = ways_in * feed * (width + bias) + width * (feed + bias)
    kind = model.block_norm if model.norm != "none" else "none"
    norms = (4 if model.norm == "sandwich" else 2) * _norm(kind, width)
    block = attention + feed_forward + norms + (2 if model.residual_scale == "rezero" else 0)
    around = _norm(model.embedding_norm, width) + _norm(_final_norm(model), width)
    positions = model.context * width if model.positions == "learned" else 0
    return Linear(model.layers * block + around + positions, width if model.tie_embeddings else 2 * width)


def _flops(model: Model) -> Linear:
    inner, feed = model.heads * model.size_of_head, model.inner_width
    matrices = 4 * model.width * inner + (3 if model.activation == "swiglu" else 2) * model.width * feed
    attention = 12 * model.layers * inner * model.context
    return Linear(6 * model.layers * matrices + attention, 6 * model.width)


def _norm(kind: str, width: int) -> int:
    return {"layernorm": 2 * width, "rmsnorm": width, "center": 0, "none": 0}[kind]


def _final_norm(model: Model) -> str:
    if model.final_norm != "block":
        return model.final_norm
    return model.block_norm if model.norm in ("pre", "sandwich") else "none"


WIDTH = "model.feed_width"


class Match(FrozenModel):
    """Which arms are made as large as the baseline, and by which count."""

    by: Count
    """parameters: trainable ones, tied ones counted once. flops: of training on a token, see `prereg.study.sizes`."""
    arms: tuple[str, ...] = ()
    """Only these arms; all but the baseline if left out."""
    within: Annotated[float, Field(gt=0.0, le=0.1)] = 0.01
    """The largest mismatch that is taken, as a share of the baseline's count."""
    vocabulary: Annotated[int, Field(ge=2)] | None = None
    """Number of tokens: needed where arms differ in width or in tied embeddings and the tokenizer takes its tokens from
    the corpus. Registration holds it against the corpus."""
    feed_width: dict[str, Positive] = Field(default_factory=dict)
    """The widths that were found, by arm. Filled in when the study is read, and stored in the registration."""


@dataclass(frozen=True)
class Fit:
    """How an arm's size compares with the baseline's, and the feed-forward width that comes nearest to it."""

    mismatch: float
    """(arm - baseline) / baseline, with the arm as it is."""
    feed_width: int
    """The width that comes nearest."""
    remaining: float
    """The mismatch that it leaves."""


def resolved(match: Match, arms: Mapping[str, Arm], baseline: str) -> Match:
    """The same with its widths filled in, each checked. `arms` are those of the study before any of them is matched."""
    for place, name in enumerate(match.arms):
        if name not in arms or name == baseline:
            raise field_error(
                ("match", "arms", place),
                f"'{name}' is the baseline" if name == baseline else f"'{name}' is not a variant",
                "arms that are to be matched to the baseline",
                "" if name == baseline else nearest(name, arms),
            )
    chosen = match.arms or tuple(name for name in arms if name != baseline)
    strangers = [name for name in match.feed_width if name not in chosen or WIDTH in arms[name].overrides]
    if strangers:
        raise field_error(
            ("match", "feed_width", strangers[0]),
            f"a width for '{strangers[0]}', which is not matched",
            "no widths: they are found when the study is read",
        )
    widths: dict[str, int] = {}
    for name in chosen:
        width = _width(match, arms, name, baseline)
        if width is not None:
            widths[name] = width
    return match.model_copy(update={"feed_width": widths})


def _width(match: Match, arms: Mapping[str, Arm], name: str, baseline: str) -> int | None:
    """The width to set in one arm; none where it fits as it is."""
    arm, other = arms[name].config, arms[baseline].config
    assert isinstance(arm, Training) and isinstance(other, Training), name
    found = fit(arm, other, match.by, vocabulary=match.vocabulary)
    if found is None:
        what = "tokenizer" if other_file(arm.data, other.data) else "width or tied embeddings"
        raise field_error(
            ("match",),
            f"'{name}' and '{baseline}' differ in {what}, so their sizes depend on the number of tokens, which a "
            "corpus or a tokenizer's file holds",
            "the number of tokens, to match their sizes",
            f"match: {{by: {match.by}, vocabulary: 65}}   (`ablate check` shows the number of a corpus)",
        )
    own = WIDTH in arms[name].overrides
    if own:
        remaining, width = found.mismatch, arm.model.inner_width
    elif match.feed_width:
        width = match.feed_width.get(name, arm.model.inner_width)
        remaining = mismatch(with_width(arm, width), other, match.by, vocabulary=match.vocabulary) or 0.0
    else:
        remaining, width = found.remaining, found.feed_width
    if abs(remaining) > match.within:
        better = f"{WIDTH}: {found.feed_width} leaves {found.remaining:+.2%}" if found.feed_width != width else ""
        raise field_error(
            ("variants", name, WIDTH) if own and len(arms[name].overrides) else ("match",),
            f"'{name}' with {WIDTH} {width} differs from '{baseline}' by {remaining:+.2%} in {match.by}",
            f"at most {match.within:.2%} either way",
            better or f"match: {{by: {match.by}, arms: [...]}} without it, or another size of the baseline",
        )
    return None if own or width == arm.model.inner_width else width


def fit(arm: Training, baseline: Training, by: Count, *, vocabulary: int | None = None) -> Fit | None:
    """The nearest feed-forward width; none where nobody knows how many tokens there are and it matters."""
    now = mismatch(arm, baseline, by, vocabulary=vocabulary)
    if now is None:
        return None
    # The count is a straight line in the width: two points of it give all of it.
    one, two = (mismatch(with_width(arm, width), baseline, by, vocabulary=vocabulary) for width in (1, 2))
    assert one is not None and two is not None and two > one, (one, two)
    width = max(1, round(1 - one / (two - one)))
    remaining = mismatch(with_width(arm, width), baseline, by, vocabulary=vocabulary)
    assert remaining is not None
    return Fit(now, width, remaining)


def mismatch(arm: Training, baseline: Training, by: Count, *, vocabulary: int | None = None) -> float | None:
    """(arm - baseline) / baseline. Where tokens cancel and are not known, over a count without them: an upper bound."""
    mine, theirs = count(arm.model, by), count(baseline.model, by)
    sizes = [vocabulary_of(arm.data) or vocabulary, vocabulary_of(baseline.data) or vocabulary]
    if None in sizes and (mine.by_vocabulary != theirs.by_vocabulary or other_file(arm.data, baseline.data)):
        return None
    ours, others = (size or 0 for size in sizes) if None not in sizes else (0, 0)
    whole = theirs.at(others)
    return (mine.at(ours) - whole) / whole


def with_width(config: Training, width: int) -> Training:
    """The configuration with another feed-forward width."""
    return config.model_copy(update={"model": config.model.model_copy(update={"feed_width": width})})
