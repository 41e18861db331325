"""Path of a component ablation: from a source to a target, one part at a time, each the one that then helps most.

Ablation analysis after Fawcett and Hoos (2016): at every step each part that is left is tried alone on top of the parts
taken so far, and the best one is taken. The order attributes the difference of target and source to parts, and sees
what leaving one part out of the target misses: a part whose work another one can do.

A step is chosen on pilot seeds, by the rule of `prereg.study.designs.tune`: the best mean over the pilot seeds, a part
with a diverged run after all others, of equal ones the first in the order of the file. So round r has k - r + 1
candidates, arms of their own named `step_r.PART`; the last step takes the part that is left. No configuration is run
twice, because every round has one part more. Each round is frozen in the ledger (event `tuned`) before the next one is
run, and the whole path before the first judged run. Judged runs have other seeds: given the path, the tests of its
steps keep their level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from pydantic import JsonValue

from prereg.errors import FieldPath, field_error
from prereg.study.arms import Arm, Config, apply_overrides
from prereg.study.designs.components import Components
from prereg.study.designs.tune import Choice, Pilot, Setting, check_pilot

if TYPE_CHECKING:
    from prereg.study.spec import Study

_PLACE: FieldPath = ("components",)


def candidates_of(study: Study) -> dict[str, Pilot]:
    """Every pilot arm of a path by name, of the steps whose start is known; none where the study has no path."""
    components = _path(study)
    if components is None:
        return {}
    found = {}
    for name, (step, part, present) in components.candidates().items():
        overrides = components.overrides_of(present)
        setting: dict[str, JsonValue] = {"part": part}
        found[name] = Pilot(name, overrides, _config(study, components, present), step, setting)
    return found


def tried_in_any_round(study: Study) -> tuple[str, ...]:
    """The names of all pilot arms that rounds of a path may have, however it turns out; none where there is no path."""
    components = _path(study)
    if components is None:
        return ()
    return tuple(f"{step}.{part}" for step in components.steps[:-1] for part in components.parts)


def steps_of(study: Study) -> dict[str, Arm]:
    """The arms of the steps that the ledger has, as they are trained; none where it has none."""
    components = _path(study)
    if components is None:
        return {}
    known = components.steps[: len(components.path)]
    return {
        arm: Arm(arm, components.overrides_of(present), _config(study, components, present))
        for arm, present in components.arms().items()
        if arm in known
    }


def pilot_sizes(study: Study) -> dict[str, int]:
    """Arm -> how many pilot arms are run for it, those of later rounds of a path included."""
    if study.tune is not None:
        return {arm: len(settings) for arm, settings in study.tune.of(tuple(study.arms)).items()}
    components = _path(study)
    if components is None:
        return {}
    n = len(components.steps)
    return {step: n - at for at, step in enumerate(components.steps[:-1])}


def chosen_by(study: Study, choices: Sequence[Choice]) -> dict[str, Setting]:
    """Arm -> what was chosen for it; of a path whose other steps are known also the last one, which has no choice."""
    chosen = {choice.arm: choice.setting for choice in choices}
    components = _path(study)
    if components is None or len(chosen) < len(components.steps) - 1:
        return chosen
    taken = {setting["part"] for setting in chosen.values()}
    left = [part for part in components.parts if part not in taken]
    return chosen | ({components.steps[-1]: {"part": left[0]}} if len(left) == 1 else {})


def follows(chosen: Mapping[str, JsonValue], derived: Mapping[str, Setting]) -> bool:
    """Whether what the ledger holds of a path is the beginning of the path that was derived."""
    return bool(chosen) and list(chosen.items()) == list(derived.items())[: len(chosen)]


def check_path(study: Study) -> None:
    """Raise `SpecError` for the first thing that keeps a path from being found."""
    components = _path(study)
    if components is None:
        return
    if study.tune is not None:
        required = "one pilot: either settings or the parts of a path are chosen"
        raise field_error(("tune",), "tune and a path", required, "leave tune out; or design: leave_one_out")
    if study.match is not None:
        required = "sizes that do not depend on the path"
        raise field_error(("match",), "match and a path", required, "write the sizes into the parts")
    data = [(name, side, key) for name, part in components.parts.items()
            for side, over in (("without", part.without), ("with", part.with_))
            for key in over if key.partition(".")[0] == "data"]  # fmt: skip
    if data and study.trainer == "gpt":
        required = "parts of model, optim, budget or numerics: what arms read is pinned before the path is known"
        raise field_error((*_PLACE, "parts", *data[0]), f"'{data[0][2]}' on a path", required, "leave_one_out")
    runs = [name.casefold() for name in (*tried_in_any_round(study), *study.arms)]
    twice = next((name for name in runs if runs.count(name) > 1), None)
    if twice is not None:
        found = f"two arms, pilot arms among them, would be named '{twice}' but for capital letters"
        raise field_error((*_PLACE, "parts"), found, "other names of the parts, or of the variants")
    names = () if components.chosen else tuple(components.parts)  # checked once, before any round
    for size in range(len(names) + 1):
        for present in combinations(names, size):
            _config(study, components, frozenset(present))
    known = study.metric(components.choose_by)
    of_claim = components.choose_by == components.claim.split()[1]
    if components.better and not of_claim and (known is None or known.better == "neither"):
        found = f"nothing says which way {components.choose_by} improves: better is about the claim"
        required = "the metric of the claim, or one whose better way is known"
        raise field_error((*_PLACE, "choose_by"), found, required, "leave choose_by out")
    check_pilot(study, _PLACE)


def _path(study: Study) -> Components | None:
    return study.components if study.components is not None and study.components.design == "path" else None


def _config(study: Study, components: Components, present: frozenset[str]) -> Config:
    overrides = components.overrides_of(present)
    places: dict[str, FieldPath] = {
        key: (*_PLACE, "parts", name, "with" if name in present else "without", key)
        for name, part in components.parts.items()
        for key in (part.with_ if name in present else part.without)
    }
    return apply_overrides(study.base, overrides, places)
