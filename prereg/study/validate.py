"""What must hold between the fields of a study: each contradiction is reported by its field.

Every check is a function of the whole study, run in the order in which a reader would look; those of claims and of what
they read are in `prereg.study.validate_measures`. Types and ranges of single fields are checked by the fields' own
models; lines of the file are added by `prereg.study.load`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from prereg.errors import FieldPath, SpecError, field_error, nearest
from prereg.metrics.catalogue import ITEM_METRICS, task_of
from prereg.study.analysis import Ceiling
from prereg.study.command import check_command
from prereg.study.designs.gate import check_gate
from prereg.study.designs.per_task import check_per_task
from prereg.study.designs.tune import check_tune
from prereg.study.designs.unpaired import check_seeds_of_arms, check_unpaired
from prereg.study.labels import check_labels
from prereg.study.measure import OWN_TASKS, is_folder, of_each_task
from prereg.study.report import check_report
from prereg.study.validate_measures import check_claims, check_known, check_levels, check_measure, check_readings

if TYPE_CHECKING:
    from prereg.study.spec import Study

T = TypeVar("T")
_PACK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_OWN = re.compile(r"lm_eval:[A-Za-z0-9][\w.-]*(,[A-Za-z0-9][\w.-]*)*")


def check_promises(study: Study) -> None:
    """Raise `SpecError`, `ClaimError` or `RuleError` for the first contradiction, with others after it.

    What rests on arms or claims is checked once those hold: otherwise each mistake in one would be reported again.
    """
    found: list[SpecError] = []
    for checks in _CHECKS:
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


def _check_names(study: Study) -> None:
    twice = _first_repeated(check.name for check in study.checks)
    if twice is not None:
        raise field_error(("checks",), f"two checks are named '{twice}'", "a name each")


def _check_rule(study: Study) -> None:
    _ = study.rule


def _check_arms(study: Study) -> None:
    if bool(study.variants) == bool(study.factors):
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
    # Runs lie in folders named after their variant, and some file systems do not tell capitals apart.
    twins = _first_repeated(name.casefold() for name in study.arms)
    if twins is not None:
        found = f"two variants are named '{twins}' but for capital letters"
        raise field_error(place, found, "names that differ in more than that")
    if study.baseline not in study.arms:
        raise field_error(
            ("baseline",),
            f"baseline '{study.baseline}' is not a variant",
            "one of " + ", ".join(study.arms),
            nearest(study.baseline, study.arms),
        )


def _check_seeds(study: Study) -> None:
    n_seeds, repeated = len(study.seeds), _first_repeated(study.seeds)
    if n_seeds < 2:
        required = "at least two; one seed has no variance"
        raise field_error(("seeds",), f"{n_seeds} seed(s)", required, "seeds: [1, 2, 3, 4, 5]")
    if repeated is not None:
        required = "each seed once: a repeated seed is the same run, not new evidence"
        raise field_error(("seeds",), f"seed {repeated} is given twice", required, f"another seed for one {repeated}")
    looks = getattr(study.stopping, "looks", None)
    if looks is not None and (not looks or list(looks) != sorted(set(looks)) or looks[-1] != n_seeds):
        raise field_error(
            ("stopping", "looks"),
            f"looks {list(looks)} with {n_seeds} seeds",
            "ascending numbers of seeds, the last equal to the number of seeds",
        )


def _check_analysis(study: Study) -> None:
    analysis, n_seeds = study.analysis, min(len(study.seeds_of(arm)) for arm in study.arms)
    ranked = study.on_divergence == "rank" or "wilcoxon" in (analysis.test, *analysis.also)
    if analysis.zeros != "pratt" and not ranked:
        raise field_error(
            ("analysis", "zeros"),
            f"zeros is '{analysis.zeros}' and no test ranks differences",
            "wilcoxon, or on_divergence: rank",
            "leave it out",
        )
    if analysis.test in analysis.also:
        found = f"'{analysis.test}' decides and is under 'also'"
        raise field_error(("analysis", "also"), found, "tests other than the deciding one")
    least, lost = analysis.least_pairs, study.on_divergence == "exclude_pair"
    if least is not None and (least > n_seeds or not lost):
        raise field_error(
            ("analysis", "least_pairs"),
            f"least_pairs is {least} " + (f"with {n_seeds} seeds" if lost else "where no pair is left out"),
            f"2 to {n_seeds} {'pairs' if study.paired else 'runs of each arm'}, and on_divergence: exclude_pair",
            f"least_pairs: {n_seeds}" if lost else "leave it out",
        )
    for index, metric in enumerate(study.tie_breakers):
        check_known(study, metric, ("tie_breakers", index), f"a tie-breaker reads {metric}")


def _check_assumptions(study: Study) -> None:
    claimed = {claim.metric for claim in study.claims.values()}
    claimed |= {of_each_task(metric) for metric in claimed}
    for metric, assumed in study.assume.metrics.items():
        place: FieldPath = ("assume", "metrics", metric)
        if metric not in claimed:
            required = "one of " + ", ".join(sorted(one for one in claimed if task_of(one) is None))
            raise field_error(place, f"'{metric}' is in no claim", required, nearest(metric, claimed))
        if assumed.over_items is not None and metric.removesuffix("/*") not in ITEM_METRICS:
            raise field_error(
                (*place, "over_items"),
                f"{metric} is no mean over items",
                "over_items for " + " or ".join(ITEM_METRICS),
                f"{metric}: without over_items",
            )
        against = next((n for n, c in study.claims.items() if c.metric == metric and c.constant is not None), None)
        if assumed.correlation < 0.0 and against is not None and len(study.arms) > 1:
            raise field_error(
                (*place, "correlation"),
                f"correlation is {assumed.correlation:g}, and {against} compares {metric} with a constant",
                "0 or more: what the arms of a seed share is simulated there as noise of the seed",
                "correlation: 0",
            )
    for name in study.assume.effects:
        if name not in study.hypotheses or study.claims[name].verb.startswith("does_not"):
            raise field_error(
                ("assume", "effects", name),
                f"'{name}' is " + ("a claim of no change" if name in study.hypotheses else "not a hypothesis"),
                "a hypothesis that claims a change; a claim of no change has its power where there is none",
                nearest(name, study.hypotheses),
            )


def _check_items(study: Study) -> None:
    """Under `test: items` the registered estimand decides what the verdict speaks of. Under `also` the items always
    speak of new seeds and new items: over these items they would only repeat the paired t."""
    analysis = study.analysis
    decides, described = analysis.test == "items", "items" in analysis.also
    if analysis.estimand == "new_seeds_and_items" and not decides:
        raise field_error(
            ("analysis", "estimand"),
            f"estimand is 'new_seeds_and_items' and test is '{analysis.test}'",
            "test: items, because a test over seeds knows no items and speaks of new seeds on these ones",
            "test: items, or estimand: new_seeds",
        )
    if not (decides or described):
        return
    place: FieldPath = ("analysis", "test" if decides else "also")
    stated = "test is 'items'" if decides else "'items' is under 'also'"
    if study.trainer == "command":
        required = "trainer: gpt, because a command leaves one number a step and metric, and no items"
        raise field_error(place, f"{stated} and trainer is 'command'", required, "test: paired_t")
    if study.measure.harness is None:
        required = "measure.harness, or a test over seeds"
        raise field_error(place, f"{stated} and no item is measured", required, "test: paired_t")
    claimed = {name: claim.metric for name, claim in study.claims.items()}
    if not decides and not set(claimed.values()) & set(ITEM_METRICS):
        required = "a claim about " + " or ".join(ITEM_METRICS)
        raise field_error(place, f"{stated} and no claim is about a metric with items", required, "also: []")
    for name, metric in claimed.items():
        scale = study.hypotheses[name].scale
        if study.claims[name].constant is not None:
            raise field_error(
                ("hypotheses", name, "claim"),
                f"{stated}, and {name} compares with a constant",
                "claims between arms: items are compared with the same items of another arm",
                "test: paired_t, over the runs' own values",
            )
        if metric not in ITEM_METRICS and decides:
            raise field_error(
                ("hypotheses", name, "claim"),
                f"{stated}, and {metric} has no items",
                "claims about " + " or ".join(ITEM_METRICS) + ", or a test over seeds",
                nearest(metric, ITEM_METRICS) if metric.startswith("harness/") else "test: paired_t",
            )
        if metric in ITEM_METRICS and scale != "raw":
            required = "scale: raw, because the score of one item may be 0, which has no logarithm"
            raise field_error(
                ("hypotheses", name, "scale"), f"{stated}, and scale is '{scale}'", required, "scale: raw"
            )
    if decides:
        _check_item_settings(study)


def _check_item_settings(study: Study) -> None:
    """Settings that have no meaning with `test: items`; ranks and looks are refused with those of other tests."""
    if "estimand" not in study.analysis.model_fields_set:
        raise field_error(
            ("analysis", "estimand"),
            "test is 'items', and nothing says what the verdict speaks of",
            "estimand: new_seeds (these items are the ones that matter), or new_seeds_and_items (both are samples, and "
            "the interval is wider)",
            "estimand: new_seeds_and_items",
        )


def _check_harness(study: Study) -> None:
    harness, place = study.measure.harness, ("measure", "harness")
    if harness is None:
        return
    for arm in study.arms if study.trainer == "gpt" else ():
        if study.training(arm).data.tokenizer == "own":
            raise field_error(
                place,
                f"tasks are texts, and '{arm}' reads token ids (tokenizer: own), whose tokenizer is not here",
                "tokenizer: char or {bpe: N}, over a corpus of text, for every variant",
                "a corpus of text; or no measure.harness",
            )
    if len(set(harness.shots)) != len(harness.shots):
        raise field_error(
            (*place, "shots"),
            f"shots {list(harness.shots)} name a number twice",
            "each number of examples once",
            f"shots: {sorted(set(harness.shots))}",
        )
    if is_folder(harness.tasks):
        if harness.tasks.startswith("/") or ".." in harness.tasks.split("/"):
            raise field_error(
                (*place, "tasks"),
                f"the folder '{harness.tasks}' does not lie under the root",
                "a folder of tasks, from the root, so that the study means the same on every machine",
                "tasks: tasks/mine",
            )
    elif not (_OWN if harness.tasks.startswith(OWN_TASKS) else _PACK).fullmatch(harness.tasks):
        required = "the name of a pack, a folder with a slash in it, or lm_eval:NAME"
        raise field_error((*place, "tasks"), f"'{harness.tasks}' names no tasks", required, "tasks: blimp")


def _check_ceiling(study: Study) -> None:
    """A ceiling needs a test of the median: a mean moves by the whole ceiling, which few seeds often show no run of."""
    test, scored = study.analysis.test, study.on_divergence
    if not isinstance(scored, Ceiling) or test == "wilcoxon":
        return
    reason = "it is one value of a run, and its items would have none"
    if test != "items":
        reason = (
            "it moves a mean by far more than the noise, and few seeds often show none of it (one run in ten of an arm "
            "at the ceiling: 'no harm' was supported in 73%, 58% and 43% of studies with 3, 5 and 8 seeds)"
        )
    raise field_error(
        ("on_divergence",),
        f"a ceiling for diverged runs and test is '{test}'",
        f"wilcoxon with a ceiling, or another rule: {reason}",
        "on_divergence: exclude_pair, and stable(ARM) in the decision; or test: wilcoxon",
    )


def _check_ranks(study: Study) -> None:
    """A diverged run can only be ranked by a test of ranks, in a comparison of two arms, where worse has a side."""
    if study.on_divergence != "rank":
        return
    for field, tests in (("test", (study.analysis.test,)), ("also", study.analysis.also)):
        for test in tests:
            if test not in ("wilcoxon", "sign_flip"):
                raise field_error(
                    ("analysis", field),
                    f"'{test}' with on_divergence: rank",
                    "wilcoxon or sign_flip: a diverged run has a rank and no number, and other tests need one",
                    "test: wilcoxon, or on_divergence: exclude_pair",
                )
    sides: dict[str, str] = {}
    for name, claim in study.claims.items():
        place, better = ("hypotheses", name, "better"), claim.better
        if better == "neither":
            found = f"a diverged run is ranked worst, and nothing says which way {claim.metric} improves"
            raise field_error(place, found, "better: lower, or better: higher", "better: lower")
        if sides.setdefault(claim.metric, better) != better:
            required = "one worst end for a metric on which diverged runs are ranked"
            raise field_error(place, f"{claim.metric} improves both ways", required)
        if claim.constant is not None:
            raise field_error(
                ("hypotheses", name, "claim"),
                f"{name} compares with a constant, and on_divergence is rank",
                "claims between two arms: ranks of diverged runs are those of pairs",
                "on_divergence: exclude_pair, or a ceiling",
            )
        if len(claim.left) != 1 or len(claim.right) != 1:
            what = "a difference of differences" if claim.trend is None else "a trend"
            raise field_error(
                ("hypotheses", name, "claim"),
                f"{what} with on_divergence: rank",
                "claims between two arms: the difference of two diverged runs has no rank",
                "on_divergence: exclude_pair",
            )


def _check_stopping(study: Study) -> None:
    """Sequential levels are computed for the t test; every seed that may ever be trained is registered."""
    if study.stopping == "fixed":
        return
    most, n_seeds = getattr(study.stopping, "max_seeds", None), len(study.seeds)
    if most is not None and most != n_seeds:
        raise field_error(
            ("stopping", "max_seeds"),
            f"max_seeds is {most} and {n_seeds} seeds are listed",
            "every seed that may be trained, in its order, and no other",
            f"max_seeds: {n_seeds}, or {most} seeds",
        )
    if study.analysis.test != "paired_t":
        raise field_error(
            ("analysis", "test"),
            f"test is '{study.analysis.test}' in a sequential study",
            "paired_t: the levels of looks, and the e-process, are those of a t test",
            "test: paired_t, or stopping: fixed",
        )


def _first_repeated(values: Iterable[T]) -> T | None:
    return next((value for value, times in Counter(values).items() if times > 1), None)


_CHECKS: tuple[tuple[Callable[[Study], None], ...], ...] = (
    (_check_arms, check_tune, check_command, _check_seeds, check_seeds_of_arms, check_measure),
    (
        check_claims,
        check_labels,
        check_report,
        check_per_task,
        check_unpaired,
        _check_analysis,
        _check_names,
        _check_rule,
    ),
    (
        _check_assumptions,
        _check_items,
        _check_harness,
        check_readings,
        _check_ceiling,
        check_levels,
        _check_ranks,
        _check_stopping,
        check_gate,
    ),
)
