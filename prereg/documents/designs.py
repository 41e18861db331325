"""The design in words: whether runs of one seed are pairs, what a pilot chooses, component ablations and aliases."""

from __future__ import annotations

import json
from collections.abc import Sequence

from prereg.documents.procedures import counted_as
from prereg.escape import quoted
from prereg.rule.divergence import said_least
from prereg.study.designs.components import Components
from prereg.study.designs.fractions import Effect
from prereg.study.designs.tune import better
from prereg.study.spec import Study
from prereg.text import MINUS, counted, listed, ranged

_GROUPS = {
    "with": "the mean of the arms with {}",
    "without": "the mean of the arms without {}",
    "both_or_neither": "the mean of the arms with both or neither of {}",
    "only_one": "the mean of the arms with only one of {}",
}
_OF_A_PART = {
    "leave_one_out": "Each part is left out of the whole system, one at a time, and the rest is kept: a claim is about "
    "a part given all the others.",
    "add_one_in": "Each part is added to the plain system, one at a time: a claim is about a part without the others.",
    "path": "Each step adds one part to those of the steps before it: the claim about a step is about its part given "
    "those, and total is about all parts together.",
}


def arms(names: Sequence[str], *, last: str = "and") -> str:
    """`arm "a"`, `arms "a" and "b"`."""
    return f"{'arm' if len(names) == 1 or last == 'or' else 'arms'} {listed((quoted(one) for one in names), last=last)}"


def group_text(text: str, *, any_part: bool = False) -> str | None:
    """One side of a claim in words, where it is a group of arms: `the mean of the arms with rotary`, or `with the part`
    where one sentence is about every part."""
    kind, _, names = text.partition(":")
    if not names or kind not in _GROUPS:
        return None
    parts = names.split("&")
    return _GROUPS[kind].format(("the part" if len(parts) == 1 else "the two parts") if any_part else listed(parts))


def design_sentences(study: Study) -> str:
    """The design and what its claims are about; nothing where the study has no components."""
    components = study.components
    if components is None:
        return ""
    said = f"Component ablation, {components.title()}."
    if components.fraction is None:
        said += f" {_OF_A_PART[components.design]}"
        return (
            f"{said} The path: {', then '.join(components.path)}." if study.settings_known and components.path else said
        )
    said += (
        " The effect of a part is the mean of the arms with it minus the mean of the arms without it: an average over "
        "the other parts."
    )
    if components.interactions != "none":
        said += " An interaction is half the difference between the effect of a part with the other and without it."
    if components.design == "fractional":
        said += (
            " Not every combination is run, so one contrast estimates the sum of several effects: a claim about a part "
            "is about that sum, and about the part alone only where the others are nothing."
        )
    return said


def part_note(study: Study, name: str) -> str:
    """Which part a step of a path takes, where it is known; else nothing."""
    part = study.part_of(name)
    return f"this step takes {part}" if part else ""


def effect_text(effect: Effect) -> str:
    """`rotary`, or `rotary*swiglu`."""
    return "*".join(effect)


def estimated(components: Components, effect: Effect) -> str:
    """All that the contrast of an effect estimates, up to the order that is shown: `rotary + swiglu*norm`."""
    others = (f" {'+' if sign > 0 else MINUS} {effect_text(one)}" for one, sign in components.aliases(effect).items())
    return effect_text(effect) + "".join(others)


def alias_note(study: Study, name: str) -> str:
    """What the contrast of a hypothesis estimates, where that is more than its own effect; else nothing."""
    components = study.components
    if components is None or name not in components.effects():
        return ""
    effect = components.effects()[name]
    return f"the contrast estimates {estimated(components, effect)}" if components.aliases(effect) else ""


def alias_rows(components: Components) -> list[tuple[str, str]]:
    """(effect, what its contrast estimates) of every part, and of pairs that no part is aliased with."""
    if components.design != "fractional":
        return []
    every = components.model_copy(update={"interactions": "all"}).effects()
    return [(effect_text(effect), estimated(components, effect)) for effect in every.values()]


ALIASES_LEFT_OUT = (
    "Interactions of three parts are shown where none of two is aliased with the effect; those of higher order are "
    "left out."
)


def runs_of_arms(study: Study) -> str:
    """`5 of none (seeds 1 to 5) and 3 of fast (seeds 11, 12, 13)`."""
    return listed(
        f"{len(seeds)} of {arm} (seeds {ranged(seeds)})" for arm in study.arms for seeds in [study.seeds_of(arm)]
    )


def sample(study: Study) -> str:
    """How many runs of each arm, and what the unit of analysis is."""
    return (
        f"{counted(len(study.judged), 'run')} in all: {runs_of_arms(study)}. The unit of analysis is the run. Arms are "
        "compared by their means over runs, and no run is paired with another."
    )


def pairing(study: Study) -> str:
    """What a seed is, and why runs of one seed are a pair."""
    if not study.paired:
        shared = set.intersection(*(set(study.seeds_of(arm)) for arm in study.arms))
        said = "Some seeds are the same in all arms; that is not made use of" if shared else "No seed is in all arms"
        return (
            "Runs are not paired: each arm has runs of its own, and runs of different arms are taken to be "
            f"independent. {said}."
        )
    if study.trainer == "command":
        text = (
            "Every seed is run in every arm, and arms are compared within seeds. The seed is handed "
            "to the researcher's own trainer; what it fixes there is up to that trainer."
        )
    else:
        text = (
            "Every seed is run in every arm, and arms are compared within seeds. A seed fixes initial weights, the "
            "order of batches and dropout, and does so alike in every arm wherever the configurations allow."
        )
    return counted_as(study, text)


def lost_runs(study: Study) -> str:
    """What becomes of diverged runs that are left out, of a study without pairs."""
    return (
        "It is left out of the tests, and a verdict is given only if it is the same with the lost runs at their worst. "
        f"A hypothesis that lost runs of an arm is inconclusive with fewer than {said_least(study)} of that arm left."
    )


def tuning(study: Study) -> str:
    """What a pilot chooses before the runs that are judged, and how; empty where there is none."""
    if isinstance(study.piloting, Components):
        return _path(study, study.piloting)
    tune = study.tune
    if tune is None:
        return ""
    settings = tune.of(tuple(study.arms))
    tried = [
        ", ".join(f"{field} {json.dumps(value)}" for field, value in one.items())
        for one in next(iter(settings.values()))
    ]
    which = f"the same {len(tried)} settings ({'; '.join(tried)})" if tune.grid else f"{len(tried)} settings of its own"
    best = "highest" if better(study) == "higher" else "lowest"
    n_runs = counted(len(study.pilots) * len(tune.seeds), "run")
    return (
        f"Before any run that is judged, {arms(tuple(settings))} {'is' if len(settings) == 1 else 'are each'} trained "
        f"at {which} on pilot seeds {ranged(tune.seeds)} ({n_runs}). The setting with the {best} mean {tune.choose_by} "
        f"at the last {study.step_name} is frozen in the ledger; one with a diverged run comes last, and of equal ones "
        "the first counts. No pilot run enters a test, and the verdict speaks of the arms at the frozen settings."
    )


def _path(study: Study, components: Components) -> str:
    best = "highest" if better(study) == "higher" else "lowest"
    sizes = [str(len(components.steps) - at) for at in range(len(components.steps) - 1)]
    seeds = f"seed{'s' * (len(components.seeds) > 1)} {ranged(components.seeds)}"
    runs = counted(sum(study.pilot_runs.values()), "run")
    return (
        f"Before any run that is judged, a pilot on {seeds} chooses the part of each step: in "
        f"{counted(len(sizes), 'round')} of {listed(sizes)} candidates ({runs}) each part that is left is added to "
        f"those taken so far, and the one with the {best} mean {components.choose_by} at the last step of training is "
        "taken; one with a diverged run comes last, and of equal ones the first in the list of parts counts. The last "
        "step takes the part that is left. Each round is frozen in the ledger before the next, and the whole path "
        "before any run that is judged. No pilot run enters a test."
    )


def and_tuning(study: Study) -> str:
    """The same after another sentence; empty where nothing is chosen by a pilot."""
    return f" {tuning(study)}" if study.piloting is not None else ""
