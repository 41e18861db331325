"""Retrospective, after the data: what was assumed against what came, and how far luck may have carried a finding.

Nothing here decides: outcomes and verdict are settled before it is called. It is computed from findings and
registration whenever a report is made and is not in verdict.json. All of it is post hoc. Power is never taken at the
observed effect, which would only say the p value again (Hoenig and Heisey 2001), but at the effect at which the design
stated it; the data give the SD.

Type M and type S (Gelman and Carlin 2014), for a true effect D > 0, SD s of the differences, n pairs, and a two-sided
paired t test at the level that the finding had to reach: given the sample SD, the mean is normal about D with SE
s/sqrt(n) and is significant beyond +-c, c = t* x sample SD / sqrt(n). So power, E|mean| and the chance of the wrong
sign have closed forms given the sample SD, and are averaged over its chi law by quadrature. Gelman and Carlin shift a
central t instead of averaging, which is the same for large n and too heavy in the tails for a few seeds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np
from scipy import special

from ablate.judge.design.characteristics import Design
from ablate.judge.design.effects import distance, effect_when_true
from ablate.judge.design.reach import HypothesisDesign, level_of
from ablate.judge.stats import t_power
from ablate.judge.stats.significance_tests import sd_of
from ablate.judge.verdict import Finding
from prereg.frozen import FrozenModel
from prereg.registry.registration import Registration
from prereg.study.spec import Study

LOW_POWER: Final = 0.8
"""Below this power, significance selects estimates that are too large: the report says by how much."""


@dataclass(frozen=True)
class Selection:
    """What significance does to an estimate."""

    power: float
    exaggeration: float
    """Type M: expected |estimate| / true effect, given significance."""
    wrong_sign: float
    """Type S: chance that a significant estimate has the wrong sign."""


class Retrospective(FrozenModel):
    """One hypothesis, looked back at. Every number is post hoc."""

    hypothesis: str
    """Its name."""
    n: int
    """Pairs."""
    sd: float
    """SD of the differences, observed."""
    sd_assumed: float | None
    """The design's; none when nothing was assumed."""
    correlation: float | None
    """Correlation of the two sides, observed."""
    correlation_assumed: float | None
    """The design's."""
    effect: float
    """Size of the true effect at which `power`, `more_seeds` and exaggeration are stated: that of the design."""
    detectable: float
    """True effect (for does_not claims: the margin) found with power .80 by a paired t at the corrected level, at the
    observed SD and n; in a sequential study at its most seeds, `planned`, as the design's is."""
    detectable_assumed: float | None
    """The same as it was planned."""
    power: float | None
    """Power at `effect` with the observed SD; none where `effect` is no more than what must be ruled out."""
    more_seeds: int | None = None
    """Further seeds for power .80 there, for an inconclusive hypothesis; none where it is not, or beyond reach."""
    seeds_80: int | None = None
    """Seeds with which one test of all of them at once, without looks, has power .80 there, for an inconclusive
    hypothesis; none where it is not, or beyond reach."""
    beyond_reach: bool = False
    """Whether an inconclusive hypothesis would need more seeds than are ever tried."""
    exaggeration: float | None = None
    """Type M at `effect`, where significance selected the estimate and power is low."""
    wrong_sign: float | None = None
    """Type S there."""
    planned: int | None = None
    """The most seeds a sequential study could take; none for a fixed number. `n` are the pairs of the look reached."""


def look_back(registration: Registration, findings: tuple[Finding, ...]) -> tuple[Retrospective, ...]:
    """Every hypothesis with a spread to look back at, in the order of the study."""
    planned = design_in_lock(registration)
    by_name = {} if planned is None else {row.hypothesis: row for row in planned.hypotheses}
    looked_back = [_one(registration.study, finding, planned, by_name.get(finding.hypothesis)) for finding in findings]
    return tuple(review for review in looked_back if review is not None)


def design_in_lock(registration: Registration) -> Design | None:
    """The design in a lock; none where there is none, or where another version wrote it."""
    if registration.design is None:
        return None
    try:
        return Design.model_validate_json(json.dumps(registration.design))
    except ValueError:  # pydantic
        return None


def _one(
    study: Study, finding: Finding, design: Design | None, planned: HypothesisDesign | None
) -> Retrospective | None:
    # Differences that are equal but for rounding have no test, and an SD of rounding is no spread to plan by.
    if finding.estimate is None:
        return None
    differences = np.array([pair.difference for pair in finding.pairs])
    if differences.size < 2:
        return None
    items = finding.estimate.items
    if items is not None and items.estimand != "new_seeds":
        return None  # what new items add to the spread is not in these differences
    # From here on the data give the SD alone: effects are those that the design stated.
    sd = sd_of(differences)
    if sd <= 0.0:
        return None
    # Looks select and stop in their own way: plan and outcome are set side by side, at the seeds that were planned.
    fixed = study.stopping == "fixed"
    n = int(differences.size) if fixed else len(study.seeds)
    level = level_of(study, finding.hypothesis)
    # A change that is shown to be too small to matter is refuted, and counts against the power of its claim.
    claim = study.claims[finding.hypothesis]
    kind, smallest, beyond = claim.kind.power, finding.smallest, distance(study, finding.hypothesis)
    below = smallest / sd if claim.by is None and not claim.kind.is_absence else None
    reached = min(1.0, t_power.t_test_power(kind, beyond / sd, n, level, refuted_below=below)) if beyond > 0 else None
    seeds = t_power.seeds_for(kind, beyond / sd, level, 0.8, refuted_below=below) if beyond > 0 else None
    # More seeds would have helped only where a fixed number was inconclusive: looks stop in their own way, and what is
    # said of them is how many seeds a test without looks would take.
    is_open = finding.outcome == "inconclusive" and beyond > 0
    undecided = is_open and fixed
    # A claim by at least D is selected against D, which is not the test that `selection` describes.
    selected = finding.outcome == ("refuted" if claim.kind.is_absence else "supported")
    border = smallest if claim.by is not None else 0.0
    # As the observed one is computed, so that the two differ by the SD alone.
    sd_assumed = None if planned is None else planned.sd_difference
    luck = None
    if fixed and selected and beyond > 0 and claim.by is None and claim.constant is None:
        luck = selection(beyond / sd, n, level)
        luck = luck if luck.power < LOW_POWER else None
    return Retrospective(
        hypothesis=finding.hypothesis,
        n=int(differences.size),
        planned=None if fixed else n,
        sd=sd,
        sd_assumed=sd_assumed,
        correlation=finding.correlation,
        correlation_assumed=_assumed_correlation(study, finding, design),
        effect=abs(effect_when_true(study, finding.hypothesis)),
        detectable=border + t_power.detectable(kind, n, level) * sd,
        detectable_assumed=None
        if sd_assumed is None or planned is None
        else border + planned.detectable_sd_corrected * sd_assumed,
        power=reached,
        more_seeds=max(0, seeds - n) if undecided and seeds is not None else None,
        seeds_80=seeds if is_open else None,
        beyond_reach=undecided and seeds is None,
        exaggeration=None if luck is None else luck.exaggeration,
        wrong_sign=None if luck is None else luck.wrong_sign,
    )


def _assumed_correlation(study: Study, finding: Finding, design: Design | None) -> float | None:
    for belief in () if design is None else design.beliefs:
        if (belief.metric, belief.scale) == (finding.metric, finding.scale):
            return belief.correlation
    assumption = study.assume.of(finding.metric)
    return None if assumption is None else assumption.correlation


def selection(size_sd: float, n: int, alpha: float) -> Selection:
    """Power, type M and type S of a two-sided paired t, for a true effect in SDs of the differences.

    References
    ----------
    Gelman and Carlin (2014), Beyond power calculations: assessing type S (sign) and type M (magnitude)
    errors. Perspect. Psychol. Sci. 9, 641-651.

    Examples
    --------
    With power near 1 significance selects nothing.

    >>> luck = selection(2.0, 20, 0.05)
    >>> round(luck.power, 3), round(luck.exaggeration, 3), luck.wrong_sign < 1e-9
    (1.0, 1.0, True)
    """
    assert size_sd > 0 and n >= 2, (size_sd, n)
    shift = size_sd * sqrt(n)  # in standard errors, as is everything below
    at_mode = float(special.stdtrit(n - 1, 1.0 - alpha / 2.0))
    # Nodes are as dense as the chance of a finding rises; where no sample can miss the effect, it rises nowhere.
    steepness = shift if shift < t_power.MOST_SPREAD * at_mode else 1.0
    spread, weight = map(np.array, t_power.sample_sd(n - 1, largest_shift=steepness))
    critical = at_mode * spread
    right, wrong = special.ndtr(shift - critical), special.ndtr(-shift - critical)

    def density(z: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * z**2) / sqrt(2.0 * np.pi)

    # E[X; X > c] = shift P(X > c) + phi(c - shift), and the mirror image for X < -c.
    size = shift * (right - wrong) + density(critical - shift) + density(critical + shift)
    chance = float(((right + wrong) * weight).sum())
    return Selection(
        power=chance,
        exaggeration=float((size * weight).sum()) / chance / shift,
        wrong_sign=float((wrong * weight).sum()) / chance,
    )
