"""Words for each significance test, one row of `TESTS` each: what a study writes, tables show and documents say.

Where to add a test: a row here, and its class in `ablate/judge/stats/significance_tests.py`, which declares what it
costs, from how many pairs it decides and which library gives a second opinion. `tests/judge/test_conformance.py` runs
over all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Test = Literal["paired_t", "bootstrap_t", "sign_flip", "wilcoxon", "items", "welch"]
"""What a study can write."""
PSEUDOMEDIAN: Final = "Hodges-Lehmann pseudomedian"
"""What Wilcoxon's test, its interval and the difference shown with them are about."""


@dataclass(frozen=True)
class TestWords:
    """One test as people read it."""

    __test__ = False  # no class of pytest

    name: str
    """In a sentence, after "the"."""
    short: str
    """In a column of a table."""
    about: str
    """What it is and assumes, in a sentence or two."""
    centre: str = ""
    """What the difference shown with it is, where that is not the mean difference."""


TESTS: Final[dict[str, TestWords]] = {
    "paired_t": TestWords(
        "paired t test",
        "paired t",
        "The deciding test is the paired t test (Student 1908) on per-seed differences. It holds its error "
        "rate when these differences are close to normal; with few seeds, strongly skewed differences raise the rate.",
    ),
    "bootstrap_t": TestWords(
        "studentised paired bootstrap (bootstrap-t)",
        "bootstrap-t",
        "The deciding test is the studentised paired bootstrap (Efron and Tibshirani 1993), which resamples "
        "pairs, never arms.",
    ),
    "sign_flip": TestWords(
        "exact sign-flip test",
        "sign-flip",
        "The deciding test is the exact sign-flip test on per-seed differences (Fisher 1935). It assumes "
        "that, under the null, each difference is as likely to have either sign.",
    ),
    "wilcoxon": TestWords(
        "exact Wilcoxon signed-rank test",
        "Wilcoxon",
        "The deciding test is the exact Wilcoxon signed-rank test (Wilcoxon 1945). It assumes that, under the null, "
        f"differences are symmetric about zero. The difference shown, and its interval, are of the {PSEUDOMEDIAN}.",
        PSEUDOMEDIAN,
    ),
    "items": TestWords(
        "two-way test over seeds and items",
        "seeds x items",
        "The deciding test is over seeds and items, paired by seed and by the item's task, name and text.",
    ),
    "welch": TestWords(
        "Welch's t test",
        "Welch's t",
        "The deciding test is Welch's t test of arm means, without pairs (Welch 1947), with the degrees of "
        "freedom of Satterthwaite (1946). Arms may differ in variance. It holds its error rate when values are close "
        "to normal; with fewer than five runs in an arm, unequal numbers of runs, or strong skew, the rate is only "
        "near it.",
    ),
}
