"""What must hold between the fields of a study, each broken promise named by its field.

Every check is a function of the whole study, run in the order in which a reader would look. Types
and ranges of single fields are the fields' own business; lines of the file are `prereg.study.load`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import isclose
from typing import TYPE_CHECKING, TypeVar

from prereg.errors import ClaimError, FieldPath, SpecError, Where, nearest
from prereg.metrics.catalogue import ITEM_METRICS, METRICS
from prereg.study.claim import Claim, parse_claim
from prereg.study.command import check_command
from prereg.study.tasks import check_harness, check_harness_metric
from prereg.study.validate_measures import check_comparable, check_items, check_measure, check_reading, check_recorded

if TYPE_CHECKING:
    from prereg.study.analysis import Hypothesis
    from prereg.study.spec import Study

T = TypeVar("T")


def check_promises(study: Study) -> None:
    """Raise `SpecError`, `ClaimError` or `RuleError` for the first promise that is broken."""
    _check_arms(study)
    _check_match(study)
    check_command(study)
    _check_seeds(study)
    check_measure(study)
    _check_hypotheses(study)
    _check_analysis(study)
    check_items(study)
    check_harness(study)
    _check_readings(study)
    _check_ranks(study)
    _check_stopping(study)
    _check_own(study)
    _ = study.rule


def _check_arms(study: Study) -> None:
    if bool(study.variants) == bool(study.factors):
        both = "both variants and factors" if study.variants else "neither variants nor factors"
        raise _fault(
            ("variants",) if study.variants else (),
            f"{both} are given",
            required="one of the two",
            fix="variants: {none: {}, layernorm: {model.embedding_norm: layernorm}}",
        )
    place: FieldPath = ("variants",) if study.variants else ("factors",)
    if len(study.arms) < 2:
        raise _fault(place, "only one variant", required="at least two, one of them the baseline")
    # Runs lie in folders named after their variant, and some file systems do not tell capitals apart.
    twins = _first_repeated(name.casefold() for name in study.arms)
    if twins is not None:
        raise _fault(
            place,
            f"two variants are named '{twins}' but for capital letters",
            required="names that differ in more than that",
        )
    if study.baseline not in study.arms:
        raise _fault(
            ("baseline",),
            f"baseline '{study.baseline}' is not a variant",
            required="one of " + ", ".join(study.arms),
            fix=nearest(study.baseline, study.arms),
        )


def _check_match(study: Study) -> None:
    if study.match is not None and study.trainer != "gpt":
        raise _fault(
            ("match",),
            "match: with a trainer whose configuration is not known here",
            required="the built-in trainer, whose sizes can be counted",
            fix="leave it out, and write the sizes into the variants",
        )


def _check_seeds(study: Study) -> None:
    if len(study.seeds) < 2:
        raise _fault(
            ("seeds",),
            f"{len(study.seeds)} seed(s)",
            required="at least two; one seed has no variance",
            fix="seeds: [1, 2, 3, 4, 5]",
        )
    repeated = _first_repeated(study.seeds)
    if repeated is not None:
        raise _fault(
            ("seeds",),
            f"seed {repeated} is given twice",
            required="each seed once: a repeated seed is the same run, not new evidence",
        )
    looks = getattr(study.stopping, "looks", None)
    if looks is not None and (not looks or list(looks) != sorted(set(looks)) or looks[-1] != len(study.seeds)):
        raise _fault(
            ("stopping", "looks"),
            f"looks {list(looks)} with {len(study.seeds)} seeds",
            required="ascending numbers of seeds, the last equal to the number of seeds",
        )


def _check_hypotheses(study: Study) -> None:
    if not study.hypotheses:
        raise _fault(
            ("hypotheses",),
            "no hypothesis",
            required="at least one claim",
            fix="hypotheses: {gain: {claim: layernorm lowers val/loss, smallest: 0.02}}",
        )
    for name, hypothesis in study.hypotheses.items():
        place = ("hypotheses", name, "claim")
        try:
            claim = parse_claim(hypothesis.claim, baseline=study.baseline)
        except ClaimError as error:
            raise error.at(field=place) from None
        for arm in claim.named:
            if arm not in study.arms:
                raise ClaimError(
                    f"'{arm}' in claim '{hypothesis.claim}' is not a variant",
                    required="one of " + ", ".join(study.arms),
                    fix=nearest(arm, study.arms),
                    where=Where(field=place),
                )
        _check_metric(study, name, claim)
        _check_verb(study, name, claim, hypothesis)


def _check_metric(study: Study, name: str, claim: Claim) -> None:
    known = study.metric(claim.metric)
    harness = claim.metric.startswith("harness/")
    if study.trainer == "gpt" and known is None and not harness:
        raise ClaimError(
            f"'{claim.metric}' is not a metric",
            required="a recorded metric",
            fix=nearest(claim.metric, [*METRICS, *study.own_units]),
            where=Where(field=("hypotheses", name, "claim")),
        )
    if study.trainer == "gpt" and harness:
        check_harness_metric(study, claim.metric, ("hypotheses", name, "claim"), f"{name} reads {claim.metric}")
    if study.trainer == "gpt" and known is not None:
        check_recorded(study, name, claim, known)
    if study.trainer == "gpt":
        check_comparable(study, name, claim)
    if harness and study.measure.harness is None:
        raise _fault(
            ("measure", "harness"),
            f"{name} needs {claim.metric} and no harness is declared",
            required="measure.harness",
            fix="harness: {tasks: blimp}",
        )
    if known is not None and not known.raw_scale and study.hypotheses[name].scale == "raw":
        raise _fault(
            ("hypotheses", name, "scale"),
            f"raw differences of {claim.metric}",
            required="its logarithm, or the loss it comes from: a mean of raw perplexities is ruled by its worst run",
            fix="claim val/loss, or scale: log",
        )


def _check_verb(study: Study, name: str, claim: Claim, hypothesis: Hypothesis) -> None:
    if claim.by is not None and hypothesis.smallest != claim.by:
        raise _fault(
            ("hypotheses", name, "smallest"),
            f"smallest is {hypothesis.smallest:g} and the claim says 'by at least {claim.by:g}'",
            required="one number: of a claim 'by at least D' the smallest difference that matters is D",
            fix="leave smallest out",
        )
    if hypothesis.smallest == 0.0 and claim.verb.startswith("does_not"):
        raise _fault(
            ("hypotheses", name, "smallest"),
            f"smallest is 0 and the claim is '{claim.verb}'",
            required="a margin above zero: no data can show a difference to be exactly nothing",
        )
    if claim.verb != "does_not_worsen":
        return
    if study.better(name) == "neither":
        raise _fault(
            ("hypotheses", name, "better"),
            f"nothing says which way {claim.metric} improves",
            required="better: lower, or better: higher",
            fix="better: lower",
        )
    if not isclose(sum(claim.left.values()), 1.0):
        raise ClaimError(
            f"'{hypothesis.claim}' asks whether a difference worsens",
            required="does_not_change for a difference of differences",
            where=Where(field=("hypotheses", name, "claim")),
        )


def _check_readings(study: Study) -> None:
    """A metric can be read before the end only where it is evaluated then."""
    for name, hypothesis in study.hypotheses.items():
        if hypothesis.read == "best" and study.better(name) == "neither":
            raise _fault(
                ("hypotheses", name, "read"),
                f"the best {study.claims[name].metric}, and nothing says which way it improves",
                required="better: lower, or better: higher",
                fix="better: lower",
            )
        check_reading(study, name)


def _check_ranks(study: Study) -> None:
    """A diverged run can only be ranked by a test of ranks, in a comparison of two arms, where worse has a side."""
    if study.on_divergence != "rank":
        return
    for field, tests in (("test", (study.analysis.test,)), ("also", study.analysis.also)):
        for test in tests:
            if test not in ("wilcoxon", "sign_flip"):
                raise _fault(
                    ("analysis", field),
                    f"'{test}' with on_divergence: rank",
                    required="wilcoxon or sign_flip: a diverged run has a rank and no number, and other tests need one",
                    fix="test: wilcoxon, or on_divergence: exclude_pair",
                )
    sides: dict[str, str] = {}
    for name in study.hypotheses:
        claim, better = study.claims[name], study.better(name)
        if better == "neither":
            raise _fault(
                ("hypotheses", name, "better"),
                f"a diverged run is ranked worst, and nothing says which way {claim.metric} improves",
                required="better: lower, or better: higher",
                fix="better: lower",
            )
        if sides.setdefault(claim.metric, better) != better:
            raise _fault(
                ("hypotheses", name, "better"),
                f"{claim.metric} improves both ways",
                required="one worst end for a metric on which diverged runs are ranked",
            )
        if len(claim.left) != 1 or len(claim.right) != 1:
            raise _fault(
                ("hypotheses", name, "claim"),
                "a difference of differences with on_divergence: rank",
                required="claims between two arms: the difference of two diverged runs has no rank",
                fix="on_divergence: exclude_pair",
            )


def _check_analysis(study: Study) -> None:
    ranked = study.on_divergence == "rank" or "wilcoxon" in (study.analysis.test, *study.analysis.also)
    if study.analysis.zeros != "pratt" and not ranked:
        raise _fault(
            ("analysis", "zeros"),
            f"zeros is '{study.analysis.zeros}' and no test ranks differences",
            required="wilcoxon, or on_divergence: rank",
            fix="leave it out",
        )
    if study.analysis.test in study.analysis.also:
        raise _fault(
            ("analysis", "also"),
            f"'{study.analysis.test}' decides and is under 'also'",
            required="tests other than the deciding one",
        )
    least = study.analysis.least_pairs
    if least is not None and (least > len(study.seeds) or study.on_divergence != "exclude_pair"):
        lost = study.on_divergence == "exclude_pair"
        raise _fault(
            ("analysis", "least_pairs"),
            f"least_pairs is {least} " + (f"with {len(study.seeds)} seeds" if lost else "where no pair is left out"),
            required=f"2 to {len(study.seeds)} pairs, and on_divergence: exclude_pair",
            fix=f"least_pairs: {len(study.seeds)}" if lost else "leave it out",
        )
    for index, metric in enumerate(study.tie_breakers):
        if study.trainer == "gpt" and metric.startswith("harness/"):
            check_harness_metric(study, metric, ("tie_breakers", index), f"a tie-breaker reads {metric}")
        if study.trainer == "gpt" and study.metric(metric) is None and not metric.startswith("harness/"):
            raise _fault(
                ("tie_breakers", index),
                f"'{metric}' is not a metric",
                required="a recorded metric",
                fix=nearest(metric, [*METRICS, *study.own_units]),
            )
    claimed = {claim.metric for claim in study.claims.values()}
    for metric in study.assume.metrics:
        if metric not in claimed:
            raise _fault(
                ("assume", "metrics", metric),
                f"'{metric}' is in no claim",
                required="one of " + ", ".join(sorted(claimed)),
                fix=nearest(metric, claimed),
            )
        if study.assume.metrics[metric].over_items is not None and metric not in ITEM_METRICS:
            raise _fault(
                ("assume", "metrics", metric, "over_items"),
                f"{metric} is no mean over items",
                required="over_items for " + " or ".join(ITEM_METRICS),
                fix=f"{metric}: without over_items",
            )
    for name in study.assume.effects:
        if name not in study.hypotheses or study.claims[name].verb.startswith("does_not"):
            raise _fault(
                ("assume", "effects", name),
                f"'{name}' is " + ("a claim of no change" if name in study.hypotheses else "not a hypothesis"),
                required="a hypothesis that claims a change; a claim of no change has its power where there is none",
                fix=nearest(name, study.hypotheses),
            )


def _check_stopping(study: Study) -> None:
    """Sequential levels are worked out for the t test; every seed that may ever be trained is registered."""
    if study.stopping == "fixed":
        return
    most = getattr(study.stopping, "max_seeds", None)
    if most is not None and most != len(study.seeds):
        raise _fault(
            ("stopping", "max_seeds"),
            f"max_seeds is {most} and {len(study.seeds)} seeds are listed",
            required="every seed that may be trained, in its order, and no other",
            fix=f"max_seeds: {len(study.seeds)}, or {most} seeds",
        )
    if study.analysis.test != "paired_t":
        raise _fault(
            ("analysis", "test"),
            f"test is '{study.analysis.test}' in a sequential study",
            required="paired_t: the levels of looks, and the e-process, are those of a t test",
            fix="test: paired_t, or stopping: fixed",
        )
    if study.analysis.correct == "max_t":
        raise _fault(
            ("analysis", "correct"),
            "correct is 'max_t' in a sequential study",
            required="holm or none: a joint resampling at one look knows nothing of the other looks",
            fix="correct: holm, or stopping: fixed",
        )


def _check_own(study: Study) -> None:
    twice = _first_repeated(check.name for check in study.checks)
    if twice is not None:
        raise _fault(("checks",), f"two checks are named '{twice}'", required="a name each")


def _first_repeated(values: Iterable[T]) -> T | None:
    return next((value for value, times in Counter(values).items() if times > 1), None)


def _fault(path: FieldPath, found: str, *, required: str = "", fix: str = "") -> SpecError:
    return SpecError(found, required=required, fix=fix, where=Where(field=path))
