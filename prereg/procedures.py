"""What a study registers of its conduct, in words: tests, corrections, stopping, divergence, stability.

The report and the documents of a registration say these things with the same words, which stand here once. Nothing
here decides anything: what a procedure does is `ablate.judge`'s.
"""

from __future__ import annotations

from prereg.analysis import EProcess, Looks, Test
from prereg.divergence import least_pairs
from prereg.instability import Ceiling
from prereg.spec import Study
from prereg.words import compact, level, listed

TESTS: dict[Test, str] = {
    "paired_t": "paired t test",
    "bootstrap_t": "studentised paired bootstrap (bootstrap-t)",
    "sign_flip": "exact sign-flip test",
    "wilcoxon": "exact Wilcoxon signed-rank test",
    "items": "two-way test over seeds and items",
    "percentile": "percentile bootstrap (description)",
    "bca": "BCa bootstrap (description)",
}
CORRECTIONS = {"holm": "Holm (1979)", "max_t": "max-T over shared seeds", "none": "none"}
SPENDING = {"obrien_fleming": "O'Brien-Fleming type", "pocock": "Pocock type"}

ABOUT_TESTS: dict[Test, str] = {
    "paired_t": "The deciding test is the paired t test (Student 1908) on per-seed differences. It holds its error "
    "rate when these differences are close to normal; with few seeds, strongly skewed differences raise "
    "the rate.",
    "bootstrap_t": "The deciding test is the studentised paired bootstrap (Efron and Tibshirani 1993), which resamples "
    "pairs, never arms.",
    "sign_flip": "The deciding test is the exact sign-flip test on per-seed differences (Fisher 1935). It assumes "
    "that, under the null, each difference is as likely to have either sign.",
    "wilcoxon": "The deciding test is the exact Wilcoxon signed-rank test (Wilcoxon 1945). It assumes that, under the "
    "null, differences are symmetric about zero.",
    "items": "The deciding test is over seeds and items, paired by seed and by the item's task, name and text.",
    "percentile": "The deciding test is the percentile bootstrap of the mean (Efron 1979).",
    "bca": "The deciding test is the BCa bootstrap of the mean (Efron 1987).",
}
"""The deciding test, in a sentence or two."""
ABOUT_E_PROCESS = (
    "The deciding test is a t-test e-process on per-seed differences, described below. It holds its error rate when "
    "these differences are close to normal; with few seeds, strongly skewed differences raise the rate."
)
ABOUT_CORRECTIONS = {
    "holm": "by Holm's step-down procedure (Holm 1979), which needs no assumption on how the tests depend on one "
    "another",
    "max_t": "by the joint distribution of the largest statistic over shared seeds (Westfall and Young 1993)",
    "none": "",
}
"""Within each family, p values are corrected ..."""


def test(study: Study) -> str:
    """The name of the deciding test."""
    return "t-test e-process" if isinstance(study.stopping, EProcess) else TESTS[study.analysis.test]


def stopping(study: Study) -> str:
    """When the number of seeds is settled."""
    if isinstance(study.stopping, Looks):
        looks = listed(str(n) for n in study.stopping.looks)
        return f"looks after {looks} seeds, spending the level by a function of {SPENDING[study.stopping.spending]}"
    if isinstance(study.stopping, EProcess):
        return f"when the e-process decides, after at most {study.stopping.max_seeds} seeds"
    return "fixed number of seeds; no look at outcomes before the last planned run has ended"


def divergence(study: Study) -> str:
    """What becomes of a diverged run in the tests."""
    if isinstance(study.on_divergence, Ceiling):
        return (
            f"scored at {compact(study.on_divergence.ceiling)}, which must be worse than any value that a run reached"
        )
    return {
        "exclude_pair": "its pair is left out of the tests; a verdict is given only if it is the same with the lost "
        f"pairs at their worst, and a hypothesis that lost pairs needs {least_pairs(study)} of {len(study.seeds)}",
        "rank": "ranked worst",
    }[study.on_divergence]


def instability(study: Study) -> str:
    """What makes a run unstable."""
    return (
        f"training loss of a step {spike(study)}, or above {compact(study.stable.diverged.loss_above)} times the first "
        "step's, or not finite"
    )


def spike(study: Study) -> str:
    """How far above the last steps a training loss is a spike."""
    rule = study.stable.loss_spike
    last = f"robust standard deviations above the median of the last {rule.window} steps"
    if rule.above is not None:
        return f"more than {compact(rule.above)} {last}"
    assert rule.false_alarms is not None, rule
    return (
        f"so many {last} that losses of stationary normal noise have such a step in {level(rule.false_alarms)} of "
        "studies of this size"
    )
