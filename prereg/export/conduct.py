"""How the study is carried out, in sentences: seeds and pairs, stopping, divergence, stability, what is missing."""

from __future__ import annotations

from prereg.analysis import EProcess, Looks
from prereg.divergence import cost_of_divergence, least_pairs
from prereg.export.claims import arms, plain, quoted
from prereg.instability import Ceiling
from prereg.looks import FIRST_OF_E_PROCESS
from prereg.procedures import SPENDING, instability, lost_starts, spike
from prereg.spec import Study
from prereg.words import compact, counted, listed, ranged


def sample_size(study: Study) -> str:
    """How many seeds, arms and runs."""
    seeds, n_arms = len(study.seeds), len(study.arms)
    most = "" if study.stopping == "fixed" else "at most "
    return (
        f"{most.capitalize()}{counted(seeds, 'seed')} ({ranged(study.seeds)}) in each of {n_arms} arms, "
        f"{most}{counted(seeds * n_arms, 'run')} in all. The unit of analysis is the seed: each gives one paired "
        "difference for each hypothesis."
    )


def sample_in_brief(study: Study) -> str:
    """How many, what a seed is and when the number is settled, with fewer words."""
    seeds, n_arms = len(study.seeds), len(study.arms)
    n = f"{counted(seeds, 'seed')} ({ranged(study.seeds)}) in each of {n_arms} arms, {counted(seeds * n_arms, 'run')}"
    fixes = " fixes weights, batches and dropout alike in every arm and" if study.trainer == "gpt" else ""
    each = f"A seed{fixes} gives one paired difference for each hypothesis."
    if study.stopping != "fixed":
        return f"At most {n}. {each} {stopping(study)}"
    return f"{n}. {each} A look before the last run ends forfeits the verdict; no seed is added."


def pairing(study: Study) -> str:
    """What a seed is, and why runs of one seed are a pair."""
    if study.trainer == "command":
        return (
            "Every seed is run in every arm, and arms are compared within seeds. The seed is handed "
            "to the researcher's own trainer; what it fixes there is up to that trainer."
        )
    return (
        "Every seed is run in every arm, and arms are compared within seeds. A seed fixes initial "
        "weights, the order of batches and dropout, and does so alike in every arm wherever the configurations allow."
    )


def randomization(study: Study) -> str:
    """Why nothing is assigned by lot."""
    derived = "" if study.trainer == "command" else ", and all randomness of a run derives from its seed"
    return (
        "Nothing is assigned to an arm by lot: each seed meets all of them. The seeds are the listed numbers, fixed "
        f"before any run{derived}. Runs are made in a fixed order: "
        "all arms of the first seed, then all arms of the second, and so on."
    )


def stopping(study: Study) -> str:
    """When the number of seeds is settled, and who may look before."""
    if isinstance(study.stopping, Looks):
        sizes = listed(str(n) for n in study.stopping.looks)
        return (
            f"Group-sequential design: the outcomes are looked at after {sizes} seeds and at no other time. The level "
            f"is spent over the looks by a Lan-DeMets (1983) function of {SPENDING[study.stopping.spending]}. A look "
            "before the last ends the study only if a finding at its level makes a line of the decision list hold; it "
            "never ends for futility, and it shows no contrast if it does not end."
        )
    if isinstance(study.stopping, EProcess):
        most = study.stopping.max_seeds
        return (
            f"Seeds are added one by one, in the listed order, from a first look at {min(FIRST_OF_E_PROCESS, most)} "
            f"seeds until a finding makes a line of the decision list hold, and at most {most} are run. The evidence "
            "is an e-process, which keeps its error rate at any number of seeds."
        )
    return (
        "The number of seeds is fixed, and no seed is added afterwards. Contrasts between arms are computed when the "
        "last planned run has ended; a look at them before that goes on record and forfeits the verdict."
    )


def starting(study: Study) -> str:
    """When the first run may start, and how many starts may be lost where a number is registered."""
    said = "No run starts before this registration stands in the study's hash-chained ledger."
    lost = lost_starts(study)
    return said if lost is None else f"{said} There is {lost}."


def divergence(study: Study) -> str:
    """When a run has diverged, and what becomes of it in the tests."""
    first = (
        "A run has diverged, and ends, when its training loss is not finite or exceeds "
        f"{compact(study.stable.diverged.loss_above)} times that of its first step. "
    )
    if isinstance(study.on_divergence, Ceiling):
        metric = plain(next(iter(study.claims.values())).metric)
        return (
            f"{first}It is scored at a {metric} of {compact(study.on_divergence.ceiling)}, on the metric's own scale. "
            "If a run that did not diverge is as bad as that, no verdict is given."
        )
    if study.on_divergence == "rank":
        return f"{first}It enters the tests by its rank, as worse than every run that did not diverge."
    cost = "".join(
        f" Once a run of {arms(named, last='or')} has diverged, {_verdicts(verdicts)} can no longer be the verdict."
        for verdicts, named in cost_of_divergence(study).items()
        if verdicts is not None
    )
    return (
        f"{first}The pairs that it belongs to are left out of the tests, and a verdict is given only if it is the same "
        f"with the lost pairs at their worst. A hypothesis that lost pairs is inconclusive with fewer than "
        f"{least_pairs(study)} of {len(study.seeds)} left.{cost}"
    )


def _verdicts(verdicts: tuple[str, ...]) -> str:
    return listed(map(quoted, verdicts), last="or")


def exclusions_in_brief(study: Study) -> str:
    """What may be left out, with fewer words."""
    above = compact(study.stable.diverged.loss_above)
    text = (
        "No outlier is excluded. A run diverges, and ends, when its training loss is not finite or above "
        f"{above} times the first step's; "
    )
    if isinstance(study.on_divergence, Ceiling):
        text += f"it is scored at {compact(study.on_divergence.ceiling)}, on the metric's own scale."
    elif study.on_divergence == "rank":
        text += "it is ranked as worse than every run that did not."
    else:
        text += "its pair is left out, and a verdict must be the same with lost pairs at their worst and "
        text += f"{least_pairs(study)} of {len(study.seeds)} pairs left."
    return f"{text} Missing and failed runs are made again."


def stability_in_brief(study: Study) -> str:
    """What an unstable run is, with fewer words."""
    asked, rule = [name for name in study.arms if name in study.rule.arms_read], study.stable.loss_spike
    far = spike(study)
    if rule.above is not None:
        last = counted(rule.window, "step")
        far = f"over {compact(rule.above)} robust standard deviations above the median of the last {last}"
    return f"Stable (asked of {arms(asked) if asked else 'no arm'}): no run diverged or had a training loss {far}."


def stability(study: Study) -> str:
    """What an unstable run is, and who asks."""
    asked = [name for name in study.arms if name in study.rule.arms_read]
    used = f"The decision list asks it of {arms(asked)}." if asked else "The decision list asks it of no arm."
    return (
        f"An arm is stable when none of its runs is unstable. What makes a run unstable: {instability(study)}. {used}"
    )


def exclusions(study: Study) -> str:
    """What may be left out, and what may not."""
    return f"Every planned run is included; none is left out as an outlier. {divergence(study)}"


def missing(study: Study) -> str:
    """What becomes of runs that are not there."""
    then = "the study" if study.stopping == "fixed" else "a look"
    return (
        f"No value is imputed. A run that is missing or has failed is made again with the same seed and configuration; "
        f"{then} gives no verdict while one is missing. Runs that diverged are not missing; what "
        "becomes of them is said above."
    )
