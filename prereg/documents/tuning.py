"""How the settings of tuned arms are chosen, in sentences."""

from __future__ import annotations

import json

from prereg.documents.claims import arms
from prereg.study.designs.tune import better
from prereg.study.spec import Study
from prereg.text import counted, ranged


def tuning(study: Study) -> str:
    """How the settings of arms are chosen before the runs that are judged; empty where nothing is tuned."""
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


def and_tuning(study: Study) -> str:
    """The same after another sentence; empty where nothing is tuned."""
    return f" {tuning(study)}" if study.tune is not None else ""
