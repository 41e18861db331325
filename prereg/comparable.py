"""Can a metric of two arms be compared at all, when the arms read different corpora or cut text differently?

A loss in nats a token depends on what a token is: with larger tokens it rises though the model is no worse. Bits a byte
do not: the border between training and validation is drawn in the text, before a tokenizer sees it, and only the first
token, which nothing predicts, is left out. So a claim across tokenizers must be about bits a byte. What the
configurations show is refused when the study is read, and what only the texts show (single characters of two corpora)
when it is registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prereg.canon import canonical_bytes
from prereg.errors import ClaimError, Where
from prereg.metrics import source_of
from prereg.training import Bpe, Data

if TYPE_CHECKING:
    from prereg.claim import Claim
    from prereg.spec import Study

PER_TOKEN = ("train/loss", "val/loss", "val/perplexity", "val/accuracy")
"""Metrics whose meaning depends on what a token is."""
_IN_BYTES = "bits/byte: val/bits_per_byte means the same whatever the tokenizer, for the same validation text"


def per_token(metric: str) -> bool:
    """Whether a metric depends on what a token is."""
    source = source_of(metric)
    return (metric if source is None else metric.removesuffix(f"/{source}")) in PER_TOKEN


def check_comparable(study: Study, name: str, claim: Claim) -> None:
    """Refuse a claim whose arms cannot be compared, as far as their configurations show it."""
    arms = sorted(claim.named)
    read = {arm: study.training(arm).data for arm in arms}
    source = source_of(claim.metric)
    for arm, data in read.items():
        if source is not None and (data.mixture is None or source not in data.mixture):
            raise ClaimError(
                f"{name} reads {claim.metric}, and '{arm}' reads no mixture with a source '{source}'",
                required="a source of the mixture of every arm that the claim names",
                fix=f"data.mixture: {{{source}: 0.0, ...}} where it is to be validated and not trained on",
                where=Where(field=("hypotheses", name, "claim")),
            )
    if per_token(claim.metric):
        _require_one(name, claim.metric, {arm: _vocabulary(data) for arm, data in read.items()})


def require_one_tokenizer(study: Study, tokenizers: Mapping[str, str]) -> None:
    """The same for the tokenizers themselves, by their hashes, arm by arm."""
    for name, claim in study.claims.items():
        if per_token(claim.metric):
            _require_one(name, claim.metric, {arm: tokenizers[arm] for arm in sorted(claim.named)})


def _require_one(name: str, metric: str, tokenizers: Mapping[str, str]) -> None:
    arms = list(tokenizers)
    other = next((arm for arm in arms if tokenizers[arm] != tokenizers[arms[0]]), None)
    if other is not None:
        raise ClaimError(
            f"{name} compares {metric} of '{arms[0]}' and '{other}', whose tokens are not the same",
            required=_IN_BYTES,
            fix="claim val/bits_per_byte; or one tokenizer, over the same sources, for the arms of the claim",
            where=Where(field=("hypotheses", name, "claim")),
        )


def _vocabulary(data: Data) -> str:
    """What the configuration shows of a tokenizer: byte pairs follow from the training text too."""
    trained_on = [*data.sources, data.validation] if isinstance(data.tokenizer, Bpe) else []
    return canonical_bytes([data.model_dump(mode="json")["tokenizer"], *trained_on]).decode()
