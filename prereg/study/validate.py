"""What must hold between the fields of a study: each contradiction is reported by its field.

Every check is a function of the whole study, run in the order in which a reader would look; those of claims and of what
they read are in `prereg.study.validate_measures`. Types and ranges of single fields are checked by the fields' own
models; lines of the file are added by `prereg.study.load`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from prereg.errors import FieldPath, SpecError, field_error, nearest
from prereg.metrics.catalogue import ITEM_METRICS, task_of
from prereg.study.command import check_command
from prereg.study.conflicts import OF_BLOCKS, OF_CLAIMS, OF_SETTINGS, Conflict, conflicts
from prereg.study.designs.gate import check_gate
from prereg.study.designs.per_task import check_per_task
from prereg.study.designs.tune import check_tune
from prereg.study.designs.unpaired import check_seeds_of_arms, check_unpaired
from prereg.study.labels import check_labels
from prereg.study.measure import of_each_task
from prereg.study.report import check_report
from prereg.study.validate_measures import (
    check_claims,
    check_inference,
    check_known,
    check_levels,
    check_readings,
    check_suites,
)

if TYPE_CHECKING:
    from prereg.study.spec import Study


def check_promises(study: Study) -> None:
    """Raise `SpecError`, `ClaimError` or `RuleError` for the first contradiction, with others after it.

    What rests on arms or claims is checked once those hold: otherwise each mistake in one would be reported again.
    """
    found: list[SpecError] = []
    for rows, checks in _CHECKS:
        found += conflicts(study, rows)
        for check in checks:
            try:
                check(study)
            except SpecError as error:
                if error.found not in (one.found for one in found):  # met again by a check that rests on it
                    found.append(error)
            except Exception:
                if not found:  # else it may rest on what an earlier check refused
                    raise
        if found:
            raise found[0].followed_by(found[1:])


def _check_rule(study: Study) -> None:
    _ = study.rule


def _check_arms(study: Study) -> None:
    # Next to components, which write variants, factors are a row of the table of conflicts.
    if bool(study.variants) == bool(study.factors) and study.components is None:
        raise field_error(
            ("variants",) if study.variants else (),
            f"{'both variants and' if study.variants else 'neither variants nor'} factors are given",
            "one of the two",
            "variants: {none: {}, layernorm: {model.embedding_norm: layernorm}}",
        )
    place: FieldPath = ("variants",) if study.variants else ("factors",)
    if len(study.arms) < 2 and not all(" below " in h.claim or " above " in h.claim for h in study.hypotheses.values()):
        raise field_error(
            place,
            "only one variant",
            "at least two, one of them the baseline, unless every claim compares with a constant",
            "claim: record lowers val/loss below 3.28",
        )
    if study.baseline not in study.arms:
        raise field_error(
            ("baseline",),
            f"baseline '{study.baseline}' is not a variant",
            "one of " + ", ".join(study.arms),
            nearest(study.baseline, study.arms),
        )


def _check_capitals(study: Study) -> None:
    """Runs lie in folders named after their variant, and some file systems do not tell capitals apart."""
    (twin, times), *_ = Counter(name.casefold() for name in study.arms).most_common(1)
    if times > 1:
        place: FieldPath = ("variants",) if study.variants else ("factors",)
        found = f"two variants are named '{twin}' but for capital letters"
        raise field_error(place, found, "names that differ in more than that")


def _check_looks(study: Study) -> None:
    n_seeds, looks = len(study.seeds), getattr(study.stopping, "looks", None)
    if looks is not None and (not looks or list(looks) != sorted(set(looks)) or looks[-1] != n_seeds):
        raise field_error(
            ("stopping", "looks"),
            f"looks {list(looks)} with {n_seeds} seeds",
            "ascending numbers of seeds, the last equal to the number of seeds",
        )


def _check_analysis(study: Study) -> None:
    analysis, n_seeds = study.analysis, min(len(study.seeds_of(arm)) for arm in study.arms)
    if analysis.test in analysis.also:
        found = f"'{analysis.test}' decides and is under 'also'"
        raise field_error(("analysis", "also"), found, "tests other than the deciding one")
    if analysis.least_pairs is not None and analysis.least_pairs > n_seeds:
        raise field_error(
            ("analysis", "least_pairs"),
            f"least_pairs is {analysis.least_pairs} with {n_seeds} seeds",
            f"2 to {n_seeds} {'pairs' if study.paired else 'runs of each arm'}",
            f"least_pairs: {n_seeds}",
        )
    for index, metric in enumerate(study.tie_breakers):
        check_known(study, metric, ("tie_breakers", index), f"a tie-breaker reads {metric}")


def _check_assumed_metrics(study: Study) -> None:
    claimed = {claim.metric for claim in study.claims.values()}
    claimed |= {of_each_task(metric) for metric in claimed}
    for metric, assumed in study.assume.metrics.items():
        place: FieldPath = ("assume", "metrics", metric)
        if metric not in claimed:
            required = "one of " + ", ".join(sorted(one for one in claimed if task_of(one) is None))
            raise field_error(place, f"'{metric}' is in no claim", required, nearest(metric, claimed))
        if assumed.over_items is not None and metric.removesuffix("/*") not in ITEM_METRICS:
            required, fix = "over_items for " + " or ".join(ITEM_METRICS), f"{metric}: without over_items"
            raise field_error((*place, "over_items"), f"{metric} is no mean over items", required, fix)


def _check_assumed_correlations(study: Study) -> None:
    for metric, assumed in study.assume.metrics.items():
        against = next((n for n, c in study.claims.items() if c.metric == metric and c.constant is not None), None)
        if assumed.correlation < 0.0 and against is not None and len(study.arms) > 1:
            raise field_error(
                ("assume", "metrics", metric, "correlation"),
                f"correlation is {assumed.correlation:g}, and {against} compares {metric} with a constant",
                "0 or more: what the arms of a seed share is simulated there as noise of the seed",
                "correlation: 0",
            )


def _check_assumed_effects(study: Study) -> None:
    for name in study.assume.effects:
        if name not in study.hypotheses or study.claims[name].kind.is_absence:
            raise field_error(
                ("assume", "effects", name),
                f"'{name}' is " + ("a claim of no change" if name in study.hypotheses else "not a hypothesis"),
                "a hypothesis that claims a change; a claim of no change has its power where there is none",
                nearest(name, study.hypotheses),
            )


def _check_stopping(study: Study) -> None:
    """Every seed that may ever be trained is registered."""
    most, n_seeds = getattr(study.stopping, "max_seeds", None), len(study.seeds)
    if most is not None and most != n_seeds:
        raise field_error(
            ("stopping", "max_seeds"),
            f"max_seeds is {most} and {n_seeds} seeds are listed",
            "every seed that may be trained, in its order, and no other",
            f"max_seeds: {n_seeds}, or {most} seeds",
        )


_OF_ASSUMPTIONS = (_check_assumed_metrics, _check_assumed_correlations, _check_assumed_effects)
_CHECKS: tuple[tuple[tuple[Conflict, ...], tuple[Callable[[Study], None], ...]], ...] = (
    (OF_BLOCKS, ()),
    (
        (),
        (
            _check_arms,
            _check_capitals,
            check_tune,
            check_command,
            _check_looks,
            check_seeds_of_arms,
            check_suites,
            check_inference,
        ),
    ),
    (
        (),
        (check_claims, check_labels, check_report, check_per_task, check_unpaired, _check_analysis, _check_rule),
    ),
    (
        (*OF_SETTINGS, *OF_CLAIMS),
        (*_OF_ASSUMPTIONS, check_readings, check_levels, _check_stopping, check_gate),
    ),
)
"""In four stages, rows of the table of conflicts and whole-study rules."""
