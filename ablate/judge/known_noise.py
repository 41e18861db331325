"""Known noise: the spread of paired differences over the sealed runs of another study, for registration and `verify`.

`known_noise` reads the runs of `assume: {sd: known from STUDY}` and computes, for each hypothesis, the SD of the very
differences that its test would see; `compare_spread` is the F test that withdraws it once the study has a spread of its
own. Which runs count is decided in `prereg.registry.known_noise`.

The verdict rests on the study's own differences alone. A t test that pools the known SD errs in up to .08 to .14 at a
nominal .05 where the study varies more (tests/known_noise_rates.py, docs/decisions.md): what is known helps to plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isclose, isfinite

import numpy as np
from scipy import special

from ablate.judge.audit.checks import AuditContext, Found, check_body
from ablate.judge.findings import contrast
from ablate.judge.readings import final_values
from ablate.judge.stats.significance_tests import SAME, sd_of
from ablate.judge.verdict import Finding, SpreadComparison
from ablate.records.gather import gather
from prereg.errors import EvidenceError, RegistrationError, Where
from prereg.registry.known_noise import LEVEL, cells_of_same_setup, seals_of
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.plan import recipes_of
from prereg.registry.registration import KnownNoise, KnownRun, KnownSpread, Registration, load_registration
from prereg.text import listed

FEWEST = 3
"""Pairs of a spread that is called known: of two, the upper 95% limit of the SD is 16 times what was seen."""
_WHERE = Where(field=("assume", "sd"))


def known_noise(root: Root, registration: Registration) -> KnownNoise | None:
    """The spread that a study's `assume.sd` names, from the sealed runs under a root; none where it names none.

    Parameters
    ----------
    registration : Registration
        The study with its pins: what its arms are made of. It need not be in force yet.

    Raises
    ------
    RegistrationError
        Where the study named is this one or is not registered, has no sealed runs of the setup of an arm that a claim
        names, has a run that this study has too, or has too few pairs.
    EvidenceError
        Where its runs are missing or damaged.
    """
    study, source = registration.study, registration.study.assume.known_from
    if source is None:
        return None
    if source == study.study:
        raise RegistrationError(
            f"'{source}' names itself",
            required="another study, whose runs were sealed before: what a test is planned with may not come from the "
            "data that it will judge",
            fix="assume.metrics, with the SD that is believed",
            where=_WHERE,
        )
    earlier = load_registration(root, source)
    if earlier is None:
        raise RegistrationError(
            f"no study '{source}' is registered here",
            required="a registered study whose runs are sealed",
            fix=f"ablate register {root.relative(root.study(source))}",
            where=_WHERE,
        )
    evidence = gather(root, earlier)
    faults = [*evidence.broken, *evidence.ledger_faults, *evidence.history_faults]
    if faults:
        raise EvidenceError(f"'{source}' is damaged: {faults[0]}", required="runs whose seals hold", where=_WHERE)
    if evidence.missing:
        raise EvidenceError(
            f"'{source}' lacks {len(evidence.missing)} of {len(evidence.planned)} planned runs",
            required="a finished study: reading an unfinished one's values is an early look at it",
            fix=f"ablate run {root.relative(root.study(source))}",
            where=_WHERE,
        )
    # By recipe, so that an arm may have another name there, and the seal is what the lock names.
    seals = seals_of(Ledger(root.ledger).entries(), source, earlier.runs_sha256)
    cell_by_seal = cells_of_same_setup(registration, seals)
    _refuse_other_setups(registration, source, {arm for arm, _ in cell_by_seal.values()})
    mine = set(recipes_of(registration).values())
    shared = [seal for seal in seals if seal.recipe_sha256 in mine]
    if shared:
        raise RegistrationError(
            f"{shared[0].variant} seed {shared[0].seed} of '{source}' is a run of this study too",
            required="runs that this study does not have: its own spread would count twice",
            fix=f"seeds: fresh {study.n_seeds}",
            where=_WHERE,
        )
    cell_here = {seal.cell: cell_by_seal[seal.sha256] for seal in seals if seal.sha256 in cell_by_seal}
    values = {
        reading: {cell_here[cell]: value for cell, value in of_runs.items() if cell in cell_here and isfinite(value)}
        for reading, of_runs in final_values(study, evidence).items()
    }
    seeds = sorted({seed for _, seed in cell_here.values()})
    spreads = []
    for name in study.hypotheses:
        pairs = contrast(study, name, values, seeds, fewest=FEWEST)
        if pairs.refused is not None:
            raise RegistrationError(
                f"'{source}' gives no spread of {name}: {pairs.refused}",
                required=f"the values of at least {FEWEST} seeds of every arm that {name} names",
                fix="assume.metrics, with the SD that is believed",
                where=_WHERE,
            )
        if np.ptp(pairs.differences) <= SAME * np.abs(pairs.differences).max():
            raise RegistrationError(
                f"the {len(pairs.seeds)} differences of {name} in '{source}' are all the same",
                required="differences that vary over seeds",
                fix="assume.metrics, with the SD that is believed",
                where=_WHERE,
            )
        spreads.append(KnownSpread(hypothesis=name, sd=sd_of(pairs.differences), n=len(pairs.seeds)))
    return KnownNoise(
        study=source,
        registration=earlier.runs_sha256,
        runs=tuple(KnownRun(variant=arm, seed=seed, seal=seal) for seal, (arm, seed) in cell_by_seal.items()),
        spreads=tuple(spreads),
        level=LEVEL,
    )


def _refuse_other_setups(registration: Registration, source: str, arms: Iterable[str]) -> None:
    """Refuse where an arm that a claim names has no run of its setup in the other study."""
    named = dict.fromkeys(arm for claim in registration.study.claims.values() for arm in claim.named)
    lacking = [f"'{arm}'" for arm in named if arm not in set(arms)]
    if lacking:
        raise RegistrationError(
            f"'{source}' has no sealed run of the setup of {listed(lacking)}",
            required="for every arm that a claim names runs of the same configuration, command, code and data, with "
            "other seeds: the spread of a difference is that of its two arms",
            fix="assume.metrics, with the SD that is believed",
            where=_WHERE,
        )


def same_spread(registered: KnownNoise, now: KnownNoise) -> bool:
    """Whether both are of the same runs and, but for last digits, the same spreads."""
    of = [(noise.registration, noise.runs, [(known.hypothesis, known.n) for known in noise.spreads])
          for noise in (registered, now)]  # fmt: skip
    close = zip(registered.spreads, now.spreads, strict=False)
    return of[0] == of[1] and all(isclose(one.sd, other.sd, rel_tol=1e-9) for one, other in close)


def compare_spread(noise: KnownNoise, findings: Iterable[Finding]) -> tuple[SpreadComparison, ...]:
    """The study's own spread of each hypothesis against the one that was known; none of one without two pairs.

    F = s^2 / s0^2 with n - 1 and n0 - 1 degrees of freedom, one-sided, at the registered level over the number of
    hypotheses (Bonferroni): the known spread is withdrawn where the study's own is larger than that.
    """
    spread_by_hypothesis, compared = {spread.hypothesis: spread for spread in noise.spreads}, []
    for finding in findings:
        differences = np.array([pair.difference for pair in finding.pairs])
        spread = spread_by_hypothesis.get(finding.hypothesis)
        if spread is None or differences.size < 2:
            continue
        sd = sd_of(differences)
        # One-sided: a spread smaller than the known one makes the test conservative and withdraws nothing.
        f = (sd / spread.sd) ** 2
        p = float(special.fdtrc(differences.size - 1, spread.df, f))
        compared.append(
            SpreadComparison(
                hypothesis=finding.hypothesis,
                known_sd=spread.sd,
                known_n=spread.n,
                sd=sd,
                n=int(differences.size),
                f=f,
                p=p,
                withdrawn=p <= noise.level / len(spread_by_hypothesis),
            )
        )
    return tuple(compared)


def _knows_noise(context: AuditContext) -> bool:
    return context.registration.noise is not None


@check_body("the spread is no larger than it was known to be", applies=_knows_noise)
def check_spread(context: AuditContext, compared: tuple[SpreadComparison, ...]) -> Found:
    """The remark where the study's own spread withdraws the one that was known."""
    return [
        f"{spread.hypothesis} {spread.sd:.3g} (n = {spread.n}), known {spread.known_sd:.3g} (n = {spread.known_n}), "
        f"F = {spread.f:.3g}, p {spread.p:.2g}"
        for spread in compared
        if spread.withdrawn
    ]
