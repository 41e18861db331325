"""Error rates of the gates of one base: each with base runs of its own, all with the same ones, and with chosen ones.

    python tests/shared_base_rates.py [FAMILIES]     # writes reports/bench/shared-base.{json,md}
    python tests/shared_base_rates.py --page         # writes the page again from the numbers

A family is K comparisons of K heads with one base by the study of `examples/gate`: pairs by seed, two looks, three
claims at alpha .05. The value of a run is the mean of its arm, plus what all runs of its seed share, plus noise of its
own, all normal. The shared part goes out of every difference. So differences of two gates are independent where each
has base runs of its own, and correlated by 1/2 where both have the same ones: half of the variance of a difference is
the base run's.

Two truths. At none, "worse" and "better" are false; at a true difference of the margin, "equivalent" is. Every verdict
is the rule's, by the functions that judge real studies and stop them at their looks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ablate.judge.design.scenarios import Drawn
from ablate.judge.design.simulate import judge_drawn
from ablate.judge.judge import case_of, distinct
from prereg.study.load import load_study
from prereg.study.spec import Study

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "reports" / "bench" / "shared-base.json"
STUDY = ROOT / "examples" / "gate" / "studies" / "harmless.yaml"
GATES = (1, 5, 20)
BASES = ("own", "shared", "chosen")
"""own: each gate trains base anew. shared: all gates have the same base runs, by rule. chosen: all have those of two
trainings of base that have the larger loss, which is what the rule forbids."""
FALSE = {"alarm": 0.1, "equivalent": 2.5}
"""What is counted, and the margin in SDs of a difference. alarm: "worse" or "better" at no difference, with a margin so
small that "equivalent", which the rule asks for first, never hides one. equivalent: that word at a true difference of
the margin, with one that eight pairs can show."""
Hits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FamilyRates:
    """One row of the table: K gates of one base."""

    base: str
    error: str
    gates: int
    families: int
    each: float
    """Share of gates that err: of one gate, whatever K."""
    each_se: float
    """Its standard error over families, whose gates depend on each other."""
    any: float
    """Share of families with at least one error."""
    any_se: float
    sd: float
    """SD over families of the number of errors."""
    correlation: float | None
    """Of the errors of two gates of a family; none of one gate."""
    correlation_se: float | None


def gate_study(margin: float) -> Study:
    """The study of the example, with a margin in SDs of the differences."""
    study = load_study(STUDY).study
    hypotheses = {name: claim.model_copy(update={"smallest": margin}) for name, claim in study.hypotheses.items()}
    return study.model_copy(update={"hypotheses": hypotheses})


def differences(study: Study, base: str, gates: int, families: int, rng: np.random.Generator) -> np.ndarray:
    """Head minus base, families x gates x seeds, of SD 1 and true mean 0."""
    runs = rng.standard_normal((families, gates, study.n_seeds))
    if base == "own":
        base_runs = rng.standard_normal((families, gates, study.n_seeds))
    else:
        trainings = rng.standard_normal((families, 1 + (base == "chosen"), study.n_seeds))
        largest = trainings.mean(axis=2).argmax(axis=1)
        base_runs = trainings[np.arange(families), largest][:, None, :]
    return (runs - base_runs) / sqrt(2.0)


def verdicts(study: Study, values: np.ndarray) -> list[str]:
    """The verdict of each row of differences of head from base, each study stopped at its look."""
    # Of each claim in its own orientation: `base lowers M than head` reads base minus head.
    by_claim = {name: values * claim.weights["head"] for name, claim in study.claims.items()}
    stable = np.ones((len(values), len(study.arms)), dtype=bool)
    ended = judge_drawn(study, Drawn(differences=by_claim, kept=None, stable=stable))
    cases, place = distinct(np.concatenate([ended.codes, stable], axis=1))
    of_cases = [study.rule.decide(*case_of(study, row)).verdict for row in cases.tolist()]
    return [of_cases[at] for at in place.tolist()]


def errors(study: Study, base: str, error: str, gates: int, families: int, *, seed: int) -> Hits:
    """Which gates err, families x gates."""
    rng = np.random.default_rng([seed, BASES.index(base), [*FALSE].index(error), gates])
    drawn = differences(study, base, gates, families, rng)
    # Of the two borders of "no change" the one at which a base with too large a loss hides the harm of a head.
    shift = FALSE[error] if error == "equivalent" else 0.0
    given = verdicts(study, (drawn + shift).reshape(families * gates, -1))
    wrong = {"alarm": ("worse", "better"), "equivalent": ("equivalent",)}[error]
    return np.array([verdict in wrong for verdict in given]).reshape(families, gates)


def rates(base: str, error: str, gates: int, families: int, *, seed: int = 7) -> FamilyRates:
    """The row of one kind of base runs, one kind of error and a number of gates."""
    hits = errors(gate_study(FALSE[error]), base, error, gates, families, seed=seed)
    counts, p = hits.sum(axis=1), float(hits.mean())
    any_error = float((counts > 0).mean())
    correlation = correlation_se = None
    if gates > 1 and 0.0 < p < 1.0:
        # Var of the number of errors = K p (1 - p) (1 + (K - 1) r), solved for r within each tenth of the families,
        # whose spread gives the standard error.
        def correlation_of(some: np.ndarray) -> float:
            binomial = gates * (q := some.mean() / gates) * (1.0 - q)
            return float((some.var() / binomial - 1.0) / (gates - 1))

        correlation = correlation_of(counts)
        tenths = [correlation_of(part) for part in np.array_split(counts, 10) if 0 < part.mean() < gates]
        correlation_se = float(np.std(tenths, ddof=1) / sqrt(len(tenths))) if len(tenths) > 1 else None
    return FamilyRates(
        base=base,
        error=error,
        gates=gates,
        families=families,
        each=p,
        each_se=float(counts.std() / gates / sqrt(families)),
        any=any_error,
        any_se=sqrt(any_error * (1.0 - any_error) / families),
        sd=float(counts.std()),
        correlation=correlation,
        correlation_se=correlation_se,
    )


def rows(families: int) -> Iterator[FamilyRates]:
    """Every row, as it is measured."""
    for error in FALSE:
        for gates in GATES:
            for base in BASES:
                row = rates(base, error, gates, families)
                print(row, flush=True)
                yield row


def page(measured: list[FamilyRates]) -> str:
    """The table in Markdown."""
    lines = [
        "# Gates that share the runs of their base",
        "",
        "Written by `python tests/shared_base_rates.py`; do not edit.",
        "",
        "K comparisons of one base by the study of `examples/gate` (eight pairs, looks at 4 and 8, alpha .05),",
        f"{measured[0].families:,} simulated families a row, ± the standard error of the simulation. *own*: each",
        "comparison trains base anew. *shared*: all have the same base runs, by rule. *chosen*: of two trainings of",
        'base all have the worse. An alarm is "worse" or "better" where there is no difference, with a margin of',
        f'{FALSE["alarm"]:g} SDs of a difference, so that "equivalent" hides none; "equivalent" is counted at a true',
        f"difference of the margin, {FALSE['equivalent']:g} SDs. The correlation is that of the errors of two.",
        "",
        "| false | K | base runs | one comparison errs | any of K errs | errors of K, mean and SD | correlation |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in measured:
        share, of_any = (
            f"{value:.4f} ± {error:.4f}".replace("0.", ".")
            for value, error in ((row.each, row.each_se), (row.any, row.any_se))
        )
        together = "" if row.correlation is None else f"{row.correlation:.3f}"
        if row.correlation_se is not None:
            together += f" ± {row.correlation_se:.3f}"
        spread = f"{row.each * row.gates:.3f}, {row.sd:.3f}"
        lines.append(f"| {row.error} | {row.gates} | {row.base} | {share} | {of_any} | {spread} | {together} |")
    return "\n".join([*lines, ""])


def main(words: list[str]) -> None:
    if words == ["--page"]:
        measured = [FamilyRates(**row) for row in json.loads(OUT.read_text(encoding="utf-8"))]
    else:
        measured = list(rows(int(words[0]) if words else 40_000))
        OUT.write_text(json.dumps([asdict(row) for row in measured], indent=2) + "\n", encoding="utf-8")
    OUT.with_suffix(".md").write_text(page(measured), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
