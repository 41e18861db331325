"""The design in words: whether runs of one seed are pairs, what a pilot chooses, component ablations."""

from __future__ import annotations

import json
from collections.abc import Sequence

from prereg.documents.procedures import counted_as
from prereg.escape import quoted
from prereg.rule.divergence import said_least
from prereg.study.designs.tune import better
from prereg.study.spec import Study
from prereg.text import counted, listed, ranged

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
}


def arms(names: Sequence[str], *, last: str = "and") -> str:
    """`arm "a"`, `arms "a" and "b"`."""
    return f"{'arm' if len(names) == 1 or last == 'or' else 'arms'} {listed((quoted(one) for one in names), last=last)}"


def group_text(text: str) -> str | None:
    """One side of a claim in words, where it is a group of arms: `the mean of the arms with rotary`."""
    kind, _, names = text.partition(":")
    if not names or kind not in _GROUPS:
        return None
    return _GROUPS[kind].format(listed(names.split("&")))


def design_sentences(study: Study) -> str:
    """The design and what its claims are about; nothing where the study has no components."""
    components = study.components
    if components is None:
        return ""
    said = f"Component ablation, {components.title()}."
    if components.design != "factorial":
        return f"{said} {_OF_A_PART[components.design]}"
    said += (
        " The effect of a part is the mean of the arms with it minus the mean of the arms without it: an average over "
        "the other parts."
    )
    if components.interactions != "none":
        said += " An interaction is half the difference between the effect of a part with the other and without it."
    return said


def runs_of_arms(study: Study) -> str:
    """`5 of none (seeds 1 to 5) and 3 of fast (seeds 11, 12, 13)`."""
    return listed(
        f"{len(seeds)} of {study.labels.arm(arm)} (seeds {ranged(seeds)})"
        for arm in study.arms
        for seeds in [study.seeds_of(arm)]
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
    tune = study.tune
    if tune is None:
        return ""
    settings = tune.of(tuple(study.arms))
    tried = [
        ", ".join(f"{field} {json.dumps(value)}" for field, value in one.items())
        for one in next(iter(settings.values()))
    ]
    which = f"the same {len(tried)} settings ({'; '.join(tried)})" if tune.grid else f"{len(tried)} settings of its own"
    best = "highest" if better(study, tune) == "higher" else "lowest"
    tuned = [study.labels.arm(name) for name in settings]
    n_runs = counted(len(study.pilots) * len(tune.seeds), "run")
    return (
        f"Before any run that is judged, {arms(tuned)} {'is' if len(settings) == 1 else 'are each'} trained "
        f"at {which} on pilot seeds {ranged(tune.seeds)} ({n_runs}). The setting with the {best} mean "
        f"{study.labels.metric(tune.choose_by)} "
        f"at the last {study.step_name} is frozen in the ledger; one with a diverged run comes last, and of equal ones "
        "the first counts. No pilot run enters a test, and the verdict speaks of the arms at the frozen settings."
    )


def and_tuning(study: Study) -> str:
    """The same after another sentence; empty where nothing is chosen by a pilot."""
    return f" {tuning(study)}" if study.tune is not None else ""
