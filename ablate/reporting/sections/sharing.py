"""Section of shared randomness: what the runs of a seed share in a trainer of one's own, and what pairs were worth.

A change of shapes draws other initial values, and with one generator for everything other batches too: pairs are then
looser, which costs seeds and not validity. What was shared is known as far as the trainer states hashes of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from statistics import NormalDist, variance

from ablate.judge.verdict import Finding
from ablate.records.run_record import RunRecord
from ablate.reporting import tables
from ablate.reporting.blocks import Block
from ablate.reporting.context import ReportContext
from ablate.reporting.tables import GainRow, SharingRow
from ablate.reporting.view import views_of
from ablate.reporting.wording import phrase

_KINDS = (
    re.compile(r"\b(init|initial|weights?|parameters?)", re.IGNORECASE),
    re.compile(r"batch|order|data|shuffl", re.IGNORECASE),
)
"""What the names of hashes say that they are of: initial values, batches. Any other is of something else."""
_FEWEST = 4
"""Pairs from which Fisher's z has an interval."""


def sharing_blocks(context: ReportContext) -> list[Block]:
    """What is shared, a row an arm, and what the pairs of each claim were worth, once outcomes may be seen."""
    rows = [_row(context, arm) for arm in context.study.arms if arm != context.study.baseline]
    blocks: list[Block] = [tables.SHARING.of(rows)]
    gains = [] if context.withheld else [*_gains(context)]
    return blocks + ([tables.GAIN.of(gains)] if gains else [])


def _row(context: ReportContext, arm: str) -> SharingRow:
    study, runs = context.study, {run.cell: run for run in context.evidence.runs}
    # Arm and baseline of each seed of which both runs are here; hashes by the names that the trainer gave them.
    pairs = [
        (_stated(runs[arm, seed]), _stated(runs[study.baseline, seed]))
        for seed in study.seeds
        if (arm, seed) in runs and (study.baseline, seed) in runs
    ]
    equal, total, alone = [0, 0, 0], [0, 0, 0], set[str]()
    for mine, theirs in pairs:
        for name in mine.keys() & theirs.keys():
            # 0 initial values, 1 batches, 2 anything else.
            kind = next((at for at, pattern in enumerate(_KINDS) if pattern.search(name)), 2)
            total[kind] += 1
            equal[kind] += mine[name] == theirs[name]
        alone |= mine.keys() ^ theirs.keys() if mine and theirs else set()  # a run that states nothing lacks nothing
    shown = tuple(phrase("audit.equal_of", n, of) if of else "" for n, of in zip(equal, total, strict=True))
    names = sorted(alone)
    return SharingRow(context.arm(arm), _code(context, arm), shown, phrase("audit.named", names[:4], len(names) - 4))


def _stated(run: RunRecord) -> Mapping[str, str]:
    return {**(run.must_match or {}), **(run.fingerprints or {})}


def _code(context: ReportContext, arm: str) -> str:
    """How the code of an arm differs from that of the baseline; empty where it does not."""
    study, registration = context.study, context.registration
    mine, theirs = registration.commit_of(arm), registration.commit_of(study.baseline)
    if mine is None or theirs is None or mine.sha256 == theirs.sha256:
        return ""
    blobs = ({file.path: (file.mode, file.blob) for file in pin.files} for pin in (mine, theirs))
    left, right = blobs
    same = sum(right.get(path) == file for path, file in left.items())  # the same bytes and mode under the same path
    return phrase("audit.code_shared", same, len(left.keys() | right.keys()))


def _gains(context: ReportContext) -> Iterator[GainRow]:
    for view in views_of(context.decision.findings, context.study):
        finding = view.finding
        if finding.correlation is None or len(finding.pairs) < _FEWEST:
            continue
        low, high = _interval(finding.correlation, len(finding.pairs))
        unpaired = _unpaired(finding, finding.correlation)
        between = _unpaired(finding, low), _unpaired(finding, high)
        # R = 1 with equal spreads: no number of unpaired runs would do.
        if all(map(math.isfinite, (unpaired, *between))):
            yield GainRow(view, finding.correlation, (low, high), unpaired, between)


def _interval(correlation: float, n: int) -> tuple[float, float]:
    """95% interval of Pearson's r: tanh(artanh r ± 1.96 / sqrt(n - 3)) (Fisher 1921)."""
    if abs(correlation) >= 1.0:
        return correlation, correlation
    z, half = math.atanh(correlation), NormalDist().inv_cdf(0.975) / math.sqrt(n - 3)
    return math.tanh(z - half), math.tanh(z + half)


def _unpaired(finding: Finding, correlation: float) -> float:
    """n (s_l² + s_r²) / s_d², where s_d² = s_l² + s_r² - 2 r s_l s_r: the variance of a difference of two independent
    means against that of the mean of n pairs."""
    left, right = (variance([getattr(pair, side) for pair in finding.pairs]) for side in ("left", "right"))
    of_pairs = left + right - 2.0 * correlation * math.sqrt(left * right)
    return len(finding.pairs) * (left + right) / of_pairs if of_pairs > 0.0 else math.inf
