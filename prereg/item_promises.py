"""What must hold between the fields of a study that judges over items, each broken promise named by its field.

Under `test: items` the registered estimand decides what the verdict speaks of. Under `also` the items always speak of
new seeds and new items: over these items they would only repeat the paired t.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prereg.errors import FieldPath, SpecError, Where, nearest
from prereg.item_metrics import ITEM_METRICS

if TYPE_CHECKING:
    from prereg.spec import Study


def check_items(study: Study) -> None:
    """Raise `SpecError` for the first promise about items that is broken."""
    analysis = study.analysis
    decides, beside = analysis.test == "items", "items" in analysis.also
    if analysis.estimand == "new_seeds_and_items" and not decides:
        raise _fault(
            ("analysis", "estimand"),
            f"estimand is 'new_seeds_and_items' and test is '{analysis.test}'",
            required="test: items, because a test over seeds knows no items and speaks of new seeds on these ones",
            fix="test: items, or estimand: new_seeds",
        )
    if not (decides or beside):
        return
    place: FieldPath = ("analysis", "test" if decides else "also")
    asked = "test is 'items'" if decides else "'items' is under 'also'"
    if study.trainer == "command":
        raise _fault(
            place,
            f"{asked} and trainer is 'command'",
            required="trainer: gpt, because a command leaves one number a step and metric, and no items",
            fix="test: paired_t",
        )
    if study.measure.harness is None:
        raise _fault(
            place,
            f"{asked} and no item is measured",
            required="measure.harness, or a test over seeds",
            fix="test: paired_t",
        )
    _check_claims(study, place, asked, decides=decides)
    if decides:
        _check_deciding(study)
    crossed = beside or analysis.estimand == "new_seeds_and_items"
    if crossed and study.measure.harness.clusters != "tasks":
        _check_units(study)


def _check_claims(study: Study, place: FieldPath, asked: str, *, decides: bool) -> None:
    """A claim has items when its metric is a mean over them; a logarithm of a score that is 0 or 1 is none."""
    about = {name: claim.metric for name, claim in study.claims.items()}
    if not decides and not set(about.values()) & set(ITEM_METRICS):
        raise _fault(
            place,
            f"{asked} and no claim is about a metric with items",
            required="a claim about " + " or ".join(ITEM_METRICS),
            fix="also: []",
        )
    for name, metric in about.items():
        if metric not in ITEM_METRICS:
            if decides:
                raise _fault(
                    ("hypotheses", name, "claim"),
                    f"{asked}, and {metric} has no items",
                    required="claims about " + " or ".join(ITEM_METRICS) + ", or a test over seeds",
                    fix=nearest(metric, ITEM_METRICS) if metric.startswith("harness/") else "test: paired_t",
                )
        elif study.hypotheses[name].scale != "raw":
            raise _fault(
                ("hypotheses", name, "scale"),
                f"{asked}, and scale is '{study.hypotheses[name].scale}'",
                required="scale: raw, because the score of one item may be 0, which has no logarithm",
                fix="scale: raw",
            )


def _check_deciding(study: Study) -> None:
    """Settings beside `test: items` that have no meaning there; ranks and looks are refused with those of others."""
    if "estimand" not in study.analysis.model_fields_set:
        raise _fault(
            ("analysis", "estimand"),
            "test is 'items', and nothing says what the verdict speaks of",
            required="estimand: new_seeds (these items are the ones that matter), or new_seeds_and_items (both are "
            "samples, and the interval is wider)",
            fix="estimand: new_seeds_and_items",
        )
    if study.analysis.correct == "max_t":
        raise _fault(
            ("analysis", "correct"),
            "correct is 'max_t' and test is 'items'",
            required="holm or none: there is no joint resampling of seeds and items under the null",
            fix="correct: holm",
        )
    if not isinstance(study.on_divergence, str):
        raise _fault(
            ("on_divergence",),
            "a ceiling for diverged runs and test is 'items'",
            required="exclude_pair: a ceiling is one value of a run, and its items would have none",
            fix="on_divergence: exclude_pair",
        )


def _check_units(study: Study) -> None:
    for name, claim in study.claims.items():
        metric = ITEM_METRICS.get(claim.metric)
        if metric is not None and metric.counts_alike == "tasks":
            raise _fault(
                ("measure", "harness", "clusters"),
                f"{name} is about {metric.name} over new items, and clusters is 'none'",
                required="clusters: tasks, because every task counts the same there, so that tasks are what is sampled",
                fix="clusters: tasks, or a claim about harness/accuracy",
            )


def _fault(path: FieldPath, found: str, *, required: str, fix: str) -> SpecError:
    return SpecError(found, required=required, fix=fix, where=Where(field=path))
