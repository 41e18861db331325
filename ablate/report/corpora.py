"""What the runs counted of the corpora that they read: how much of one repeats itself, and how often it was drawn."""

from __future__ import annotations

from collections.abc import Iterable

from ablate.records.run_record import Repetition
from ablate.report.told import Told

_NOT_RECORDED = "; how much of it repeats itself was not recorded"


def counts_of(told: Told, name: str) -> str:
    """What follows the facts of a corpus in the line about it. Nothing before there are runs."""
    if not told.evidence.runs or told.study.trainer == "command":
        return ""
    return _repetition(told, name) + _drawn(told, name)


def _repetition(told: Told, name: str) -> str:
    found = [run.repetition[name] for run in told.evidence.runs if run.repetition and name in run.repetition]
    if not found:
        return _NOT_RECORDED
    if reason := next((one.not_measured for one in found if one.not_measured is not None), None):
        return f"; how much of it repeats itself: {reason}"
    about = "about " if any(one.one_in > 1 for one in found) else ""
    # Arms may hold out different shares of one text.
    return (
        f"; {about}{_of(found, 'lines')} of its lines and {_of(found, 'paragraphs')} of its paragraphs stood earlier "
        f"in it, exactly alike; {about}{_of(found, 'held_out_lines')} of its held-out lines stand in the rest"
    )


def _of(found: Iterable[Repetition], part: str) -> str:
    shares = [getattr(one, part).share for one in found]
    return _ranged(shares)


def _drawn(told: Told, name: str) -> str:
    """The share of windows that mixtures drew from it."""
    mixtures = [run.mixture for run in told.evidence.runs if run.mixture is not None and name in run.mixture]
    if not mixtures:
        return ""
    shares = [drawn[name] / sum(drawn.values()) for drawn in mixtures if sum(drawn.values())]
    return "" if not shares else f"; {_ranged(shares)} of the windows that a run was trained on came from it"


def _ranged(shares: Iterable[float]) -> str:
    """Shares that are all alike as one, others from the least to the most."""
    told = sorted({round(100 * share, 2) for share in shares})
    return f"{told[0]:.2f}%" if told[0] == told[-1] else f"{told[0]:.2f}% to {told[-1]:.2f}%"
