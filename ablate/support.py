"""What this version can carry out of what the study format can say. Asked before anything is registered.

The format is wider than the tool: a study that needs a part that does not exist yet is refused here, by
name, so that nobody finds out after training. Delete a line when its part lands.
"""

from __future__ import annotations

from collections.abc import Iterator

from prereg.errors import UnsupportedError, Where
from prereg.spec import Ceiling, Study
from prereg.training import Bpe

Missing = tuple[tuple[str | int, ...], bool, str, str]


def require_supported(study: Study) -> None:
    """Refuse a study that this version cannot carry out whole."""
    for field, asked, what, instead in _missing_parts(study):
        if asked:
            raise UnsupportedError(
                f"this version of ablate does not do {what} yet",
                required="what this version can carry out",
                fix=instead,
                where=Where(field=field),
            )


def _missing_parts(study: Study) -> Iterator[Missing]:
    """(field, whether the study asks for it, what it is, what to write instead), in the order of the format."""
    measure = study.measure
    configs = [study.training(name) for name in study.arms] if study.trainer == "gpt" else []
    bpe = any(isinstance(config.data.tokenizer, Bpe) for config in configs)
    yield ("base", "data", "tokenizer"), bpe, "the byte-pair tokenizer", "tokenizer: char"
    several = len({config.data.corpus for config in configs}) > 1
    yield ("variants",), several, "variants that read different corpora", "one corpus for all variants"
    harness = measure.harness is not None and study.trainer == "command"
    yield ("measure", "harness"), harness, "the zero-shot harness over a trainer of your own", "no measure.harness"
    calibration = measure.suites.index("calibration") if "calibration" in measure.suites else -1
    there = ("measure", "suites", calibration)
    yield (
        there,
        calibration >= 0 and study.trainer == "gpt",
        "the calibration suite",
        "loss, activations, gradients, speed",
    )
    claimed = {claim.metric for claim in study.claims.values()}
    ceilings = isinstance(study.on_divergence, Ceiling) and len(claimed) > 1
    yield ("on_divergence",), ceilings, "one ceiling for several claimed metrics", "exclude_pair"
