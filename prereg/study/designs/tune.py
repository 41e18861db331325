"""Tuned comparison (`tune`): each arm's settings are chosen by a pilot on seeds of its own, then arms are compared.

One learning rate for arms of different scale is a confound: the verdict then speaks of that rate alone. Under `tune:`
every tuned arm gets equally many settings and the same pilot seeds. The best setting of an arm is frozen in the ledger
before the first run that is judged, and those runs have other seeds: whatever the pilot chose, no value that chose a
setting enters a test, so the tests keep their level given the choice.

A pilot run is a run of an arm of its own, `ARM.FIELD-VALUE`, at the full budget. The rule: the lowest (or highest) mean
of the metric at the last step over the pilot seeds; a setting with a diverged run comes after all others; of equal ones
the first in the order of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import product
from math import fsum, isfinite
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, JsonValue, PrivateAttr, model_validator

from prereg.errors import FieldPath, field_error, not_one_of
from prereg.frozen import FrozenModel, once
from prereg.metrics.catalogue import Better, without_side
from prereg.study.arms import Arm, configured
from prereg.study.measure import Name, Seed, check_known, check_suite

if TYPE_CHECKING:
    from prereg.study.spec import Study

Setting = dict[str, JsonValue]
"""Dotted override -> value."""
_MOST_PILOTS = 512
_FIXED = ("data", "budget")


class Tune(FrozenModel):
    """How the settings of arms are chosen before the runs that are judged."""

    grid: dict[str, Annotated[tuple[JsonValue, ...], Field(min_length=1), once("value")]] = {}
    """Dotted field -> values to try; every tuned arm is run at all combinations."""
    settings: dict[Name, Annotated[tuple[Setting, ...], Field(min_length=2), once("setting")]] = {}
    """In place of a grid: ARM -> list of overrides to try, equally many for each arm."""
    arms: tuple[Name, ...] = ()
    """The arms that are tuned under a grid; by default all. The others keep their configuration."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1), once("pilot seed")]
    """Pilot seeds; none of them may be a seed of the study."""
    choose_by: str
    """The metric whose mean over the pilot seeds, at the last step, chooses the setting."""
    better: Literal["lower", "higher"] | None = None
    """Which way that metric improves; needed where this tool does not define it."""

    @model_validator(mode="after")
    def _tries_something(self) -> Self:
        if not self.grid and not self.settings:
            raise ValueError("neither grid nor settings", "one of the two", "grid: {optim.lr: [1e-3, 3e-3]}")
        return self

    _chosen: dict[str, Setting] = PrivateAttr(default_factory=dict)

    @property
    def chosen(self) -> Mapping[str, Setting]:
        """ARM -> its frozen setting; empty until the ledger has the choice."""
        return self._chosen

    def frozen(self, chosen: Mapping[str, Setting]) -> Tune:
        """The same with the choice that the ledger holds."""
        copy = self.model_copy()
        copy._chosen = dict(chosen)
        return copy

    def of(self, arms: Sequence[str]) -> dict[str, tuple[Setting, ...]]:
        """Tuned arm -> its settings, of a study with these arms."""
        if self.settings:
            return dict(self.settings)
        combinations = tuple(dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values()))
        return dict.fromkeys(self.arms or arms, combinations)


@dataclass(frozen=True)
class Pilot(Arm):
    """One setting of a tuned arm, run on the pilot seeds."""

    _: KW_ONLY
    of: str
    """The arm."""
    setting: Mapping[str, JsonValue]
    """What is tried: overrides."""


@dataclass(frozen=True)
class Choice:
    """What the pilot says of one arm."""

    arm: str
    pilot: str
    """The pilot arm that was chosen."""
    setting: Setting
    means: Mapping[str, float | None]
    """Pilot arm -> mean over the pilot seeds, in the order of the file; none where a run diverged or has no value."""
    at_edge: tuple[str, ...]
    """Fields whose chosen value is the smallest or largest of at least three that were tried."""


def pilots_of(study: Study) -> dict[str, Pilot]:
    """Every pilot arm of a tuned study by name, in the order of arms and settings; none where nothing is tuned."""
    if study.tune is None:
        return {}
    pilots: dict[str, Pilot] = {}
    # A field that the arm overrides itself would have two values in one pilot.
    for arm, settings in study.tune.of(tuple(study.untuned)).items():
        for at, setting in enumerate(settings):
            base, place = study.untuned[arm], _place(study.tune, arm, at)
            set_twice = sorted(set(setting) & set(base.overrides))
            if set_twice:
                field = set_twice[0]
                raise field_error(
                    place,
                    f"'{field}' is tuned, and '{arm}' sets it",
                    "fields that the pilot alone sets",
                    f"leave {field} out of '{arm}', or tune another field",
                )
            overrides = {**base.overrides, **setting}
            config, commit = configured(study.base, overrides, dict.fromkeys(overrides, place))
            name = f"{arm}.{_label(setting)}"
            # `a b` and `a_b` have one label, and the name is that of a folder.
            if name in pilots or len(name) > 80:
                name = f"{arm}.setting-{at + 1}"
            pilots[name] = Pilot(name, overrides, config, commit, of=arm, setting=setting)
    return pilots


def _place(tune: Tune, arm: str, at: int) -> FieldPath:
    return ("tune", "settings", arm, at) if tune.settings else ("tune", "grid")


def _label(setting: Mapping[str, JsonValue]) -> str:
    """`lr-0.003` of {optim.lr: 0.003}; characters that a name cannot have become underscores."""
    words = []
    for field, value in setting.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words.append(f"{field.rpartition('.')[2]}-{text.replace('+', '')}")
    # A pilot arm is a folder and a name in the claim language: no blanks, no signs in a row, none at the end.
    return re.sub(r"[-.]+(?=[-.])|[-.]+$", "", re.sub(r"[^A-Za-z0-9_.-]+", "_", "-".join(words)))


def check_tune(study: Study) -> None:
    """Raise `SpecError` for the first thing that keeps a pilot from choosing."""
    if study.tune is not None:
        for check in (_check_tuned_arms, _check_settings, _check_pilot_seeds, _check_choice, _check_pilot_names):
            check(study, study.tune)


def _check_tuned_arms(study: Study, tune: Tune) -> None:
    # Under a grid the arms are listed, under settings they are keys: both must be variants.
    for place, names in ((("tune", "arms"), tune.arms), (("tune", "settings"), tuple(tune.settings))):
        for arm in names:
            if arm not in study.arms:
                raise not_one_of(place, f"'{arm}' is not a variant", arm, study.arms)


def _check_pilot_seeds(study: Study, tune: Tune) -> None:
    shared = sorted(set(tune.seeds) & set(study.seeds))
    if shared:
        raise field_error(
            ("tune", "seeds"),
            f"pilot seed {shared[0]} is a seed of the study too",
            "seeds of their own: a run that chose a setting may not test it",
            f"seeds: [{', '.join(str(1001 + at) for at in range(max(2, len(tune.seeds))))}]",
        )


def _check_choice(study: Study, tune: Tune) -> None:
    check_known(study, tune.choose_by, ("tune", "choose_by"), "the pilot chooses by it")
    metric = study.metric(tune.choose_by)
    if metric is not None:
        check_suite(study, metric, "the pilot chooses by")
    if better(study, tune) == "neither":
        raise without_side(("tune", "better"), tune.choose_by)


def _check_pilot_names(study: Study, _: Tune) -> None:
    # Both are folders next to each other, on file systems that may not tell capitals apart.
    arms = {arm.casefold() for arm in study.arms}
    twin = next((name for name in study.pilots if name.casefold() in arms), None)
    if twin is not None:
        fault = f"a pilot of '{twin}' has the name of a variant"
        raise field_error(("tune",), fault, "another name of the variant")


def _check_settings(study: Study, tune: Tune) -> None:
    settings = tune.of(tuple(study.arms))
    # The best of more tries is better by luck alone: equal numbers keep the comparison of arms fair.
    sizes = {arm: len(listed) for arm, listed in settings.items()}
    place: FieldPath = ("tune", "settings" if tune.settings else "grid")
    if len(set(sizes.values())) > 1:
        fault = ", ".join(f"{arm} {size}" for arm, size in sizes.items())
        raise field_error(place, f"unequal numbers of settings ({fault})", "equally many: more tries find more luck")
    if min(sizes.values()) < 2 or sum(sizes.values()) > _MOST_PILOTS:
        fault = f"{min(sizes.values())} settings for each of {len(sizes)} arms"
        raise field_error(place, fault, f"at least two for an arm, and at most {_MOST_PILOTS} in all")
    # A setting with more data or steps than another would win by what it costs.
    for arm, listed in settings.items():
        for at, setting in enumerate(listed):
            for field in setting:
                if field.partition(".")[0] in _FIXED and study.trainer == "gpt":
                    raise field_error(
                        _place(tune, arm, at),
                        f"'{field}' is tuned",
                        "fields of model, optim or numerics: data and budget are the same for all settings",
                    )
    _ = study.pilots  # each setting is a configuration, checked when it is made


def better(study: Study, tune: Tune) -> Better:
    """Which way the metric improves by which the pilot chooses."""
    metric = study.declaration(tune.choose_by)
    return tune.better or (metric.better if metric is not None else "neither")


def with_choice(study: Study, chosen: Mapping[str, dict[str, JsonValue]]) -> Study:
    """A study at the settings that its pilot chose, by arm. A study without a pilot or a choice, as it is."""
    if study.tune is None or not chosen:
        return study
    return study.model_copy(update={"tune": study.tune.frozen(chosen)})


def before_choice(study: Study) -> Study:
    """The study as it was registered, without what its pilot has chosen since."""
    if study.tune is None or not study.tune.chosen:
        return study
    return study.model_copy(update={"tune": study.tune.frozen({})})


def choose(study: Study, values: Mapping[tuple[str, int], float]) -> tuple[Choice, ...]:
    """The choice of every tuned arm from the values of finished pilot runs, by pilot arm and seed.

    A run without a value diverged. Returns no choice for an arm each of whose settings has such a run.
    """
    tune = study.tune
    assert tune is not None, study.study
    # Turned so that the smallest is the best; of a metric without a side the study was refused.
    sign = -1.0 if better(study, tune) == "higher" else 1.0
    choices = []
    for arm in dict.fromkeys(pilot.of for pilot in study.pilots.values()):
        pilots = {name: pilot for name, pilot in study.pilots.items() if pilot.of == arm}
        means: dict[str, float | None] = {}
        for name in pilots:
            finite = [values[name, seed] for seed in tune.seeds if isfinite(values.get((name, seed), float("nan")))]
            # One diverged run takes its setting out: a mean over the other seeds would be of the lucky ones.
            means[name] = fsum(finite) / len(finite) if len(finite) == len(tune.seeds) else None
        with_mean = [name for name, mean in means.items() if mean is not None]
        if with_mean:
            # `min` takes the first of equal ones, which is the rule.
            best = min(with_mean, key=lambda name: sign * (means[name] or 0.0))
            setting = dict(pilots[best].setting)
            at_edge = tuple(field for field in setting if _is_edge(setting[field], field, list(pilots.values())))
            choices.append(Choice(arm, best, setting, means, at_edge))
    return tuple(choices)


def _is_edge(value: JsonValue, field: str, pilots: Sequence[Pilot]) -> bool:
    # A choice at the edge of the grid says that the best may lie outside: worth a warning, and no fault.
    tried = [pilot.setting[field] for pilot in pilots if field in pilot.setting]
    numbers = {float(number) for number in tried if isinstance(number, int | float) and not isinstance(number, bool)}
    # Of two values either is an edge; that says nothing of whether the best lies beyond.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and len(numbers) > 2 and float(value) in (min(numbers), max(numbers))  # type: ignore[arg-type]
