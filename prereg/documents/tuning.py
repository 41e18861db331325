"""How a pilot chooses the settings of tuned arms, or the path of a component ablation, in sentences."""

from __future__ import annotations

import json

from prereg.documents.claims import arms
from prereg.study.designs.components import Components
from prereg.study.designs.tune import better
from prereg.study.spec import Study
from prereg.text import counted, listed, ranged


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
        "at the last step is frozen in the ledger; one with a diverged run comes last, and of equal ones the first "
        "counts. No pilot run enters a test, and the verdict speaks of the arms at the frozen settings."
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
