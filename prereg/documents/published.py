"""Published figures (`studies/NAME.published.yaml`), read; shown by `ablate/reporting/sections/published.py`.

Description, and no part of the registration. Its author may have seen the results, so nothing of it enters
a hash of the promise and no test reads it; the report says both, and names the file by its sha256.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import Field, JsonValue

from prereg.errors import FieldPath, StudyError, field_error, nearest
from prereg.frozen import FrozenModel
from prereg.metrics.catalogue import EVERY_STEP, METRICS, TASK_METRICS, TASK_NAMES
from prereg.registry.canon import sha256_bytes
from prereg.registry.paths import Root
from prereg.study.faults import read_model
from prereg.study.load import read_text_file
from prereg.study.spec import Study
from prereg.yaml_reader import Lines, line_of, parse_yaml

Text = Annotated[str, Field(max_length=2000, pattern=r"\S")]


class PublishedLook(FrozenModel):
    """Which numbers of the study are shown: those of one step, of the first so many seeds."""

    step: Annotated[int, Field(ge=0)]
    """The step; one at which the study evaluates."""
    seeds: Annotated[int, Field(ge=1)]
    """How many seeds, from the first of the study's list."""


class PublishedFigure(FrozenModel):
    """One published figure, arm by arm."""

    label: Annotated[str, Field(max_length=80, pattern=r"\S")]
    """What the source calls it."""
    metric: Annotated[str, Field(min_length=1, max_length=120)]
    """The metric of the study to compare it with; unit and direction are those of its declaration."""
    published: Annotated[dict[str, float], Field(min_length=1)]
    """The published value of each arm that has one."""
    spread: dict[str, Annotated[float, Field(ge=0.0)]] = Field(default_factory=dict)
    """The published standard deviation of each arm that has one."""
    note: Text
    """A sentence on the difference: why the two may differ, and what that means."""


class Published(FrozenModel):
    """Published figures for a study, `studies/NAME.published.yaml`."""

    source: Text
    """What is cited: the paper or report, and the table in it."""
    runs: Annotated[int, Field(ge=1)] | None = None
    """How many runs each published value is a mean of; left out where the source does not say."""
    looks: Annotated[tuple[PublishedLook, ...], Field(min_length=1, max_length=8)]
    """Which of the study's numbers are shown."""
    figures: Annotated[tuple[PublishedFigure, ...], Field(min_length=1, max_length=60)]
    """The published figures, in the order in which they are shown."""


@dataclass(frozen=True)
class LoadedPublished:
    """Published figures, and the file that they were read from."""

    published: Published
    file: str
    """Its path from the root."""
    sha256: str

    @property
    def words(self) -> str:
        """What is published next to the study, in a line."""
        figures, looks = len(self.published.figures), len(self.published.looks)
        return (
            f"{self.file}: {figures} published figure{'s' * (figures != 1)} for {looks} look{'s' * (looks != 1)} at "
            "this study. Not part of the registration."
        )


def load_published(root: Root, study: Study) -> LoadedPublished | None:
    """The figures published next to a study; none where there is no such file. Raises a child of `StudyError`."""
    path = root.published(study.study)
    if not path.exists():
        return None
    source = read_text_file(path)
    lines: Lines = {}
    try:
        document = parse_yaml(source, lines, first="source: TEXT")
        # NAME.published.yaml may be the file of a study called NAME.published.
        if document.get("study") == path.stem:
            return None  # a study of that very name, which lies in its usual place
        published = published_from_document(document)
        check_published(published, study)
    except StudyError as error:
        raise error.at(file=path, line=error.where.line or line_of(error.where.field, lines)) from None
    return LoadedPublished(published, path.relative_to(root.path).as_posix(), sha256_bytes(source))


def published_from_document(document: dict[str, JsonValue]) -> Published:
    """Published figures from plain data. Raises `SpecError` naming the field."""
    return read_model(Published, document, form="published figures")


def check_published(published: Published, study: Study) -> None:
    """Looks, metrics and arms are the study's. Raises `SpecError` for the first that is not."""
    reads_curve = any(figure.metric in EVERY_STEP for figure in published.figures)
    for at, look in enumerate(published.looks):
        if look in published.looks[:at]:
            raise field_error(("looks", at), "this look is given twice", "each look once")
        _check_look(study, look, at, every_step=reads_curve)
    for at, figure in enumerate(published.figures):
        if figure.label in [earlier.label for earlier in published.figures[:at]]:
            raise field_error(("figures", at, "label"), f"two figures are labelled '{figure.label}'", "a label each")
        _check_metric(study, figure.metric, ("figures", at, "metric"))
        for arm in figure.published:
            _check_arm(arm, study.arms, "is not an arm of the study", ("figures", at, "published", arm))
        for arm in figure.spread:
            _check_arm(arm, figure.published, "has no published value", ("figures", at, "spread", arm))


def _check_look(study: Study, look: PublishedLook, at: int, *, every_step: bool) -> None:
    n_seeds, every = study.n_seeds, study.measure.every
    if look.seeds > n_seeds:
        raise field_error(
            ("looks", at, "seeds"),
            f"{look.seeds} seeds, and the study lists {n_seeds}",
            "no more seeds than there are",
            f"seeds: {n_seeds}",
        )
    if study.trainer != "gpt":
        return  # how long a user's own trainer goes on, and when it evaluates, is known only from its records
    ends = [study.training(arm).budget.steps for arm in study.arms]
    longest = max(ends)
    # An arm is evaluated every so many steps, and at its own last one.
    evaluated = every_step or look.step % every == 0 or look.step in ends
    if look.step > longest or not evaluated:
        raise field_error(
            ("looks", at, "step"),
            f"step {look.step}, and the study trains {longest} steps, evaluated every {every}",
            "a step at which some arm is evaluated",
            f"step: {longest if look.step > longest else look.step - look.step % every}",
        )


def _check_metric(study: Study, metric: str, place: FieldPath) -> None:
    """A name that somebody declares. Whether the study recorded it is in the report."""
    if study.trainer == "gpt" and study.metric(metric) is None and metric not in TASK_METRICS:
        raise field_error(
            place,
            f"'{metric}' is not a metric",
            "a metric that the study can record (docs/metrics.md)",
            nearest(metric, [*METRICS, *study.own_units, *TASK_NAMES]),
        )


def _check_arm(arm: str, arms: Iterable[str], fault: str, place: FieldPath) -> None:
    names = list(arms)
    if arm not in names:
        raise field_error(place, f"'{arm}' {fault}", "one of " + ", ".join(names), nearest(arm, names))


@cache
def json_schema() -> dict[str, Any]:
    """The schema of a study file, JSON Schema draft 2020-12; made once in a process, and shared."""
    schema = Study.model_json_schema(mode="validation")
    seeds = schema["properties"]["seeds"]
    fresh = {"type": "string", "pattern": "^fresh [1-9][0-9]*$"}
    schema["properties"]["seeds"] = {
        "description": seeds.pop("description"),
        "title": seeds.pop("title"),
        "anyOf": [seeds, fresh, {"type": "object", "additionalProperties": seeds}],
    }
    schema["$defs"]["JsonValue"] = {"description": "Any value: text, a number, true or false, a list, a mapping."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        # Which of its two forms the base has follows from the trainer; without this, an editor would
        # take a misspelt field of the built-in trainer for a command's own.
        "if": {"properties": {"trainer": {"const": "command"}}, "required": ["trainer"]},
        "else": {"properties": {"base": {"$ref": "#/$defs/Training"}}},
    }


def published_schema() -> dict[str, Any]:
    """The schema of the published figures next to a study."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Published.model_json_schema(mode="validation")}
