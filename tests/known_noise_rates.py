"""Error rates of a t test that pools an SD known from earlier runs, withdrawn where the study's own SD is larger.

    python tests/known_noise_rates.py [STUDIES]     # writes reports/bench/known-noise.{json,md}
    python tests/known_noise_rates.py --page        # writes the page again from the numbers

A study has n paired differences of true mean 0 and SD `ratio`; earlier runs of SD 1 gave n0 = df + 1 differences, whose
variance s0^2 has df degrees of freedom. The rule that is measured (Bancroft 1944):

    withdrawn   where s^2 / s0^2 > F(1 - level; n - 1, df): Student's t of the study alone, n - 1 degrees of freedom
    pooled      else: t = mean / (sp / sqrt(n)), sp^2 = ((n - 1) s^2 + df s0^2) / (n - 1 + df), with n - 1 + df degrees

Three questions: how often the rule errs over a grid of ratios; how often where the earlier runs were followed up
because they had been significant themselves; and, by linear programming, how much power *any* rule of mean, s and s0
can gain at ratio 1 that errs at most at alpha whatever the ratio.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse, special, stats

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "reports" / "bench" / "known-noise.json"
ALPHA = 0.05
SEEDS = (3, 5, 8)
PRIOR_DF = (2, 5, 10, 20)
LEVELS = (0.05, 0.10, 0.25, 0.50)
"""Of the preliminary test, one-sided."""
RATIOS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 1.75, 2.0, 2.5, 3.0)
"""Of the study's SD to that of the earlier runs."""
LAWS = ("normal", "t with 3 df", "lognormal")
CEILINGS = (3, 4, 5, 8)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """One row: a number of seeds, a prior and a law, of the rule at each level and of the study's own t."""

    law: str
    n: int
    df: int
    studies: int
    own: float
    """Error of the study's own t at ratio 1, which no ratio changes."""
    errors: dict[str, list[float]]
    """Level of the preliminary test -> error at each of `RATIOS`."""
    withdrawn: dict[str, list[float]]
    """Level -> how often the prior was withdrawn, at each of `RATIOS`."""
    power: dict[str, float]
    """Level -> power at ratio 1, at the effect at which the study's own t has .50."""
    followed: dict[str, float]
    """Level -> error at ratio 1 where the earlier runs, with no effect, had been significant at .05 by their own t."""
    followed_of: int
    """Simulated studies in which they had."""


@dataclass(frozen=True)
class Ceiling:
    """The most power at ratio 1 of any rule that errs at most at alpha whatever the ratio, of a prior without error."""

    n: int
    effect: float
    """In standard errors of the mean of n differences."""
    own: float
    known: float
    """Of a z test, whose SD is known: it errs at most at alpha only where the ratio is 1 or less."""
    any_rule: float


def draws(law: str, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Differences of mean 0 and SD 1."""
    if law == "normal":
        return rng.standard_normal(shape)
    if law == "lognormal":
        # Of a normal with SD 1: mean sqrt(e), variance e (e - 1), a skewness of 6.2.
        return np.asarray((np.exp(rng.standard_normal(shape)) - np.exp(0.5)) / sqrt(np.e * (np.e - 1.0)))
    return np.asarray(rng.standard_t(3, shape) / sqrt(3.0))  # the variance of t with f degrees is f / (f - 2)


def rejections(
    mean: Floats, variance: Floats, n: int, prior: Floats, df: int, *, level: float, alpha: float = ALPHA
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which studies the rule rejects at a null of 0, two-sided, and of which it withdraws the prior.

    Parameters
    ----------
    mean, variance, prior : array
        Of the n differences of each study, and the variance of its earlier runs.

    Examples
    --------
    By hand: mean 2, s^2 = 1, s0^2 = 4, 2 and 2 degrees of freedom, F = .25; sp^2 = 2.5, t = 2 / sqrt(2.5 / 3) = 2.19
    of 4 degrees, p = .094. With s0^2 = .04 F is 25 > 9, and t = 2 / sqrt(1 / 3) = 3.46 of 2 degrees has p = .074.

    >>> two = np.array([2.0, 2.0]), np.array([1.0, 1.0]), 3, np.array([4.0, 0.04]), 2
    >>> [part.tolist() for part in rejections(*two, level=0.10, alpha=0.08)]
    [[False, True], [False, True]]
    """
    withdrawn = variance / prior > stats.f.isf(level, n - 1, df)
    pooled = ((n - 1) * variance + df * prior) / (n - 1 + df)
    t = np.abs(mean) * sqrt(n) / np.sqrt(np.where(withdrawn, variance, pooled))
    return t >= np.where(withdrawn, critical(n - 1, alpha), critical(n - 1 + df, alpha)), withdrawn


def critical(df: int, alpha: float = ALPHA) -> float:
    """The two-sided critical value of Student's t."""
    return float(stats.t.isf(alpha / 2.0, df))


def effect_of_half_power(n: int) -> float:
    """In standard errors, where Student's t of n differences has power .50 at `ALPHA`."""
    limit = float(stats.t.isf(ALPHA / 2.0, n - 1))
    # The bracket near the limit: scipy's noncentral t is not a number far from it.
    return float(optimize.brentq(lambda effect: own_power(n, effect) - 0.5, 0.5, limit))


def own_power(n: int, effect: float) -> float:
    """Power of Student's t towards an effect in standard errors."""
    limit = stats.t.isf(ALPHA / 2.0, n - 1)
    # Rejections on the other side, below 1e-4 from an effect of 2 on, are left out.
    return float(stats.nct.sf(limit, n - 1, effect))


def rates(law: str, n: int, df: int, studies: int, *, seed: int = 7) -> Rates:
    """The row of one number of seeds, prior and law."""
    rng = np.random.default_rng([seed, LAWS.index(law), n, df])
    x, earlier = draws(law, rng, (studies, n)), draws(law, rng, (studies, df + 1))
    mean, variance, prior = x.mean(axis=1), x.var(axis=1, ddof=1), earlier.var(axis=1, ddof=1)
    significant = np.abs(earlier.mean(axis=1)) * sqrt(df + 1) >= critical(df) * np.sqrt(prior)
    own = np.abs(mean) * sqrt(n) >= critical(n - 1) * np.sqrt(variance)
    shift = effect_of_half_power(n) / sqrt(n)
    errors: dict[str, list[float]] = {}
    withdrawn: dict[str, list[float]] = {}
    power, followed = {}, {}
    for level in LEVELS:
        of_ratios = [rejections(ratio * mean, ratio**2 * variance, n, prior, df, level=level) for ratio in RATIOS]
        errors[f"{level:g}"] = [float(rejected.mean()) for rejected, _ in of_ratios]
        withdrawn[f"{level:g}"] = [float(gone.mean()) for _, gone in of_ratios]
        power[f"{level:g}"] = float(rejections(mean + shift, variance, n, prior, df, level=level)[0].mean())
        followed[f"{level:g}"] = float(of_ratios[RATIOS.index(1.0)][0][significant].mean())
    return Rates(law, n, df, studies, float(own.mean()), errors, withdrawn, power, followed, int(significant.sum()))


def ceiling(n: int, *, cells: int = 60, alpha: float = ALPHA) -> Ceiling:
    """The linear programme over rules that reject the more the larger the mean is, on a grid of mean and s in units of
    s0, with the error bounded at 60 ratios from .05 to 30."""
    nu, effect = n - 1, effect_of_half_power(n)
    means = np.concatenate([[0.0], np.geomspace(0.1, 200.0, cells - 1), [np.inf]])
    squares = np.concatenate([[0.0], np.geomspace(0.004, 2e4, cells * 2 // 3 - 1), [np.inf]])

    def chances(ratio: float, shift: float) -> Floats:
        of_mean = np.diff(special.ndtr((means - shift) / ratio)) + np.diff(special.ndtr((means + shift) / ratio))
        return np.outer(of_mean, np.diff(stats.chi2.cdf(squares / ratio**2, nu))).ravel()

    rows, columns = len(means) - 1, len(squares) - 1
    cell = np.arange(rows * columns).reshape(rows, columns)
    size = sparse.csr_matrix(np.array([chances(ratio, 0.0) for ratio in np.geomspace(0.05, 30.0, 60)]))
    # A rule that rejects a mean rejects each that is larger: phi of a cell is at most that of the next one.
    steps, ones = np.arange((rows - 1) * columns), np.ones((rows - 1) * columns)
    rising = sparse.csr_matrix(
        (np.r_[ones, -ones], (np.r_[steps, steps], np.r_[cell[:-1].ravel(), cell[1:].ravel()])),
        shape=(steps.size, rows * columns),
    )
    solved = optimize.linprog(
        -chances(1.0, effect),
        A_ub=sparse.vstack([size, rising]),
        b_ub=np.r_[np.full(size.shape[0], alpha), np.zeros(steps.size)],
        bounds=(0.0, 1.0),
        method="highs",
    )
    z = float(special.ndtri(1.0 - alpha / 2.0))
    known = float(special.ndtr(effect - z) + special.ndtr(-effect - z))
    return Ceiling(n, effect, own_power(n, effect), known, float(-solved.fun))


def standard_error(share: float, studies: int) -> float:
    """Of a simulated share."""
    return sqrt(share * (1.0 - share) / studies)


def _share(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".replace("0.", ".", 1)


def page(rows: list[Rates], ceilings: list[Ceiling]) -> str:
    """The tables in Markdown."""
    studies = rows[0].studies
    of_laws = [row for row in rows if row.law == "normal" or row.df in (5, 20)]
    lines = [
        "# An SD that is known from earlier runs",
        "",
        "Written by `python tests/known_noise_rates.py`; do not edit.",
        "",
        "A t test that pools the SD of a study's n differences with that of earlier runs (df degrees of freedom),",
        "unless an F test finds the study's own SD larger: then the earlier one is withdrawn, and the t of the study",
        f"alone decides. Nominal level .05, two-sided, no true effect; {studies:,} simulated studies a row, whose",
        f"standard error is at most {_share(standard_error(0.2, studies), 4)}. *Ratio*: the true SD of the study over",
        "that of the earlier runs. *Worst*: the largest error over ratios from .5 to 3. *Withdrawn*: at ratios 1 and",
        "2. *Power*: at ratio 1, where the t of the study alone has .50. *Followed*: the error at ratio 1 where the",
        "earlier runs, without an effect as well, had been significant at .05, which makes somebody run them again.",
        "",
        "| law | n | df | F test at | error at ratio .5 | .7 | 1 | 1.5 | 2 | 3 | worst | withdrawn | power | followed "
        "| own t |",
        "|" + "---|" * 15,
    ]
    for row in of_laws:
        for level in ("0.1", "0.25", "0.5"):
            errors = row.errors[level]
            at = dict(zip(RATIOS, errors, strict=True))
            gone = dict(zip(RATIOS, row.withdrawn[level], strict=True))
            cells = [row.law, str(row.n), str(row.df), _share(float(level), 2)]
            cells += [_share(at[ratio]) for ratio in (0.5, 0.7, 1.0, 1.5, 2.0, 3.0)]
            cells += [_share(max(errors)), f"{_share(gone[1.0], 2)}, {_share(gone[2.0], 2)}"]
            cells += [_share(row.power[level], 2) if row.law == "normal" else "", _share(row.followed[level])]
            lines.append("| " + " | ".join([*cells, _share(row.own)]) + " |")
    lines += [
        "",
        "## The most that any rule can gain",
        "",
        "Power at ratio 1 of the best rule that errs at most at .05 *whatever the ratio*, by linear programming over",
        "all rules of mean, s and s0 that reject a mean where they reject a smaller one; s0 has no error of its own.",
        "*Known*: a z test, which errs more as soon as the ratio is above 1. At the effect at which the t of the study",
        "alone has power .50.",
        "",
        "| n | effect, in standard errors | own t | any rule | known |",
        "|---|---|---|---|---|",
    ]
    for most in ceilings:
        powers = [_share(value) for value in (most.own, most.any_rule, most.known)]
        lines.append(f"| {most.n} | {most.effect:.2f} | " + " | ".join(powers) + " |")
    return "\n".join([*lines, ""])


def read() -> tuple[list[Rates], list[Ceiling]]:
    """The committed numbers."""
    stored = json.loads(OUT.read_text(encoding="utf-8"))
    return [Rates(**row) for row in stored["rates"]], [Ceiling(**row) for row in stored["ceilings"]]


def write(rows: list[Rates], ceilings: list[Ceiling]) -> None:
    """The numbers, a row a line."""
    parts = []
    for name, of_kind in (("rates", rows), ("ceilings", ceilings)):
        lines = ",\n".join(json.dumps(asdict(row)) for row in of_kind)
        parts.append(f'"{name}": [\n{lines}\n]')
    OUT.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


def main(words: list[str]) -> None:
    if words != ["--page"]:
        studies = int(words[0]) if words else 200_000
        rows = [rates(law, n, df, studies) for law in LAWS for n in SEEDS for df in PRIOR_DF]
        write(rows, [ceiling(n) for n in CEILINGS])
    OUT.with_suffix(".md").write_text(page(*read()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
