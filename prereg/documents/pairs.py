"""Whether runs of one seed are pairs; and of a study without pairs, how many runs there are of each arm."""

from __future__ import annotations

from prereg.documents.procedures import counted_as
from prereg.rule.divergence import said_least
from prereg.study.spec import Study
from prereg.text import counted, listed, ranged


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
