"""How large every arm is against the baseline, and the feed-forward width that would make it as large.

An arm that is larger, or costs more, may win by that alone. Nothing is changed here; `match:` in the study does that.
"""

from __future__ import annotations

from rich.console import Console

from ablate.reporting import text
from ablate.reporting.screen import Justify, new_table, put_row, say, show_table
from prereg.study.sizes import WIDTH, Count, Match, count, fit, mismatch, vocabulary_of
from prereg.study.spec import Study

_COUNTS: tuple[tuple[Count, str], ...] = (("parameters", "Parameters"), ("flops", "Training FLOPs a token"))


def sizes_differ(study: Study) -> bool:
    """Whether some arm has another count than the baseline."""
    base = study.training(study.baseline)
    return any(
        mismatch(study.training(arm), base, kind, vocabulary=1) != 0.0 for arm in study.arms for kind, _ in _COUNTS
    )


def print_sizes(console: Console, study: Study, vocabulary: int | None) -> None:
    """Every arm's counts against the baseline's, and what would match them. `vocabulary`: tokens of a text at hand."""
    base = study.training(study.baseline)
    given = study.match.vocabulary if isinstance(study.match, Match) else None
    known = vocabulary_of(base.data) or vocabulary or given
    heads: list[tuple[str, Justify]] = [(head, "right") for _, name in _COUNTS for head in (name, "Against")]
    table = new_table(console, ("Arm", "left"), *heads)
    for arm in study.arms:
        cells = []
        for kind, _ in _COUNTS:
            config = study.training(arm)
            tokens = vocabulary_of(config.data) or known
            cells.append("?" if tokens is None else f"{count(config.model, kind).at(tokens):,}")
            share = mismatch(config, base, kind, vocabulary=known)
            cells.append("?" if share is None else _percent(share))
        put_row(console, table, arm, *cells)
    show_table(console, table)
    if known is None:
        say(console, "?: the number of tokens comes with the corpus, which is not here.")
    else:
        say(console, f"With {text.counted(known, 'token')} in the vocabulary.")
    for line in _offers(study, known):
        say(console, line)


def _offers(study: Study, vocabulary: int | None) -> list[str]:
    """The width that would match each arm that is not matched as it stands."""
    base = study.training(study.baseline)
    lines = []
    for arm in study.arms:
        config = study.training(arm)
        told = []
        for kind, _ in _COUNTS:
            found = fit(config, base, kind, vocabulary=vocabulary)
            if found is not None and found.feed_width != config.model.inner_width:
                told.append(f"{WIDTH}: {found.feed_width} for the baseline's {kind} ({_percent(found.remaining)})")
        if told:
            lines.append(f"To match, {arm} would take " + "; ".join(told))
    return lines


def _percent(share: float) -> str:
    return "equal" if share == 0.0 else f"{share:+.2%}".replace("-", text.MINUS)
