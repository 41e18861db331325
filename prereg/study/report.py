"""What a study's report draws in addition to its claims: at most four diagnostics, named by the study.

Presentation alone, as labels are: it is in the hash of the registration, and an amendment of it touches no claim and
no run. What no report draws is in the CSV files of `ablate report --as csv`.

To add a diagnostic: its name in `DIAGNOSTICS`, and its figure in `ablate.reporting.sections.curves`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field

from prereg.errors import field_error, nearest
from prereg.frozen import FrozenModel, once
from prereg.metrics.catalogue import METRICS

if TYPE_CHECKING:
    from prereg.study.spec import Study

MOST_SHOWN: Final = 4
DIAGNOSTICS: Final[Mapping[str, str]] = {
    "differences": "each claimed metric minus the baseline of the same seed, by step",
    "positions": "the loss by position in the window",
    "token_classes": "the embedding norm by class of token",
    "reliability": "accuracy over confidence",
    "cost": "the first claimed metric over the seconds of training",
    "power": "power by number of seeds, as the registration froze it",
}
"""Diagnostic that is no metric of its own -> what it draws."""
FAMILIES: Final = tuple(metric.name.removesuffix("_N") for metric in METRICS.families if metric.counted == "block")
"""Metrics with a value for each block: `grad/layer` of `grad/layer_N`. They are drawn by block, at the last step."""


def _few(show: tuple[str, ...]) -> tuple[str, ...]:
    if len(show) > MOST_SHOWN:
        required = f"at most {MOST_SHOWN}: the report is for what was claimed, and every recorded value is in CSV"
        raise ValueError(f"{len(show)} diagnostics", required, "ablate report STUDY --as csv")
    return show


class Report(FrozenModel):
    """What the report shows in addition to the claims."""

    show: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=120)], ...],
        once("diagnostic", "each diagnostic once"),
        AfterValidator(_few),
    ] = ()
    """Up to four diagnostics: a recorded metric (by step), a metric of every block (`grad/layer`, by block), or
    `differences`, `positions`, `token_classes`, `reliability`, `cost`, `power`. Each is a chart, and the metrics among
    them have rows in a table of final values."""


def check_report(study: Study) -> None:
    """Raise `SpecError` for a diagnostic that does not exist."""
    for at, name in enumerate(study.report.show):
        # What a trainer of the user's own records is known when its runs have ended.
        if study.trainer == "gpt" and name not in (*DIAGNOSTICS, *FAMILIES) and study.metric(name) is None:
            required = f"a metric of the study, a metric of every block such as grad/layer, or {', '.join(DIAGNOSTICS)}"
            fix = nearest(name, [*DIAGNOSTICS, *FAMILIES, *METRICS])
            raise field_error(("report", "show", at), f"'{name}'", required, fix)
