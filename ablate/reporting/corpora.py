"""What the runs counted of the corpora that they read: how much of one repeats itself, and how often it was drawn."""

from __future__ import annotations

from collections.abc import Iterable

from ablate.records.run_record import Repetition
from ablate.reporting.context import ReportContext

_NOT_RECORDED = "; how much of it repeats itself was not recorded"


def counts_of(told: ReportContext, name: str) -> str:
    """What follows the facts of a corpus in the line about it. Nothing before there are runs."""
    if not told.evidence.runs or told.study.trainer == "command":
        return ""
    return _repetition(told, name) + _drawn(told, name)


def _repetition(told: ReportContext, name: str) -> str:
    found = [run.repetition[name] for run in told.evidence.runs if run.repetition and name in run.repetition]
    if not found:
        return _NOT_RECORDED
    if reason := next((one.not_measured for one in found if one.not_measured is not None), None):
        return f"; how much of it repeats itself: {reason}"
    about = "about " if any(one.one_in > 1 for one in found) else ""
    # Arms may hold out different shares of one text.
    return (
        f"; {about}{_of(found, 'lines')} of its lines and {_of(found, 'paragraphs')} of its paragraphs occur earlier "
        f"in it, exactly alike; {about}{_of(found, 'held_out_lines')} of its held-out lines occur in the rest"
    )


def _of(found: Iterable[Repetition], part: str) -> str:
    counted = [getattr(one, part) for one in found]
    shares = [one.share for one in counted if one.units]
    return _ranged(shares) if shares else "none (there are none)"


def _drawn(told: ReportContext, name: str) -> str:
    """The share of windows that mixtures drew from it."""
    mixtures = [run.mixture for run in told.evidence.runs if run.mixture is not None and name in run.mixture]
    if not mixtures:
        return ""
    shares = [drawn[name] / sum(drawn.values()) for drawn in mixtures if sum(drawn.values())]
    return "" if not shares else f"; {_ranged(shares)} of the windows that a run was trained on came from it"


def _ranged(shares: Iterable[float]) -> str:
    """Shares that are all alike as one, others from the least to the most."""
    held = sorted(shares)
    least, most = _percent(held[0]), _percent(held[-1])
    return least if least == most else f"{least} to {most}"


def _percent(share: float) -> str:
    """A share that is not 0 is not told as 0."""
    return "less than 0.01%" if 0.0 < share < 0.00005 else f"{100 * share:.2f}%"
