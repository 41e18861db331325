"""Were all runs asked the same tasks, in the same way, and were they the registered ones?

Numbers of two versions of a harness, of two wordings, or of other examples are not numbers of one measure. Nothing here
looks at an answer; whether items pair up is asked in `ablate.judge.audit.item_scores`.
"""

from __future__ import annotations

from collections import Counter

from ablate.judge.audit.checks import named_run, none_against
from ablate.judge.verdict import Check
from ablate.records.run_record import RunRecord
from prereg.registry.registration import Registration

_ASKED = {
    "version": "version",
    "tasks_sha256": "tasks",
    "prompts_sha256": "prompts",
    "arguments_sha256": "requests",
    "precision": "precision",
    "unencodable": "items left out",
}
"""Fields that must be equal over runs, and what they are called."""


def check_asked(registration: Registration, ended: list[RunRecord]) -> tuple[Check, ...]:
    """Both checks, over finished runs; none where no tasks are registered."""
    pin = registration.tasks
    if pin is None:
        return ()
    done = [run for run in ended if run.status == "done"]
    asked = [run for run in done if run.harness is not None]
    ways = Counter(_way(run) for run in asked)
    usual = ways.most_common(1)[0][0] if ways else ()
    other = [f"{named_run(run)}: {', '.join(_differing(run, usual))}" for run in asked if _way(run) != usual]
    wrong = [
        f"{named_run(run)}: " + ("no tasks" if run.harness is None else run.harness.tasks_sha256[:12])
        for run in done
        if run.harness is None or run.harness.tasks_sha256 != pin.sha256
    ]
    short = [
        f"{named_run(run)}: {run.harness.n_items} of {pin.n_items} items scored"
        for run in asked
        if run.harness is not None
        and (run.harness.n_items, run.harness.unencodable, run.harness.n_tasks)
        != (pin.n_items - pin.n_unencodable, pin.n_unencodable, pin.n_tasks)
    ]
    said = f"{len(ways)} ways of asking over {len(asked)} runs" if len(ways) != 1 else f"one way over {len(asked)} runs"
    name = f"'{pin.name}', sha256 {pin.sha256[:12]}"
    return (
        none_against(
            "every run was asked by the same harness",
            other,
            "one version of the harness, and the same tasks, prompts and requests for every run",
            "deviation",
            found=said,
        ),
        none_against(
            "every run answered the registered tasks",
            [*wrong, *short],
            f"{name}, every item of it that the tokenizer can write",
            found=f"{len(done) - len(wrong)} of {len(done)} runs answered {name}",
        ),
    )


def _way(run: RunRecord) -> tuple[object, ...]:
    return tuple(getattr(run.harness, field) for field in _ASKED)


def _differing(run: RunRecord, usual: tuple[object, ...]) -> list[str]:
    """What is not as in most runs."""
    return [
        f"{word} {str(mine)[:12]}, not {str(theirs)[:12]}"
        for word, mine, theirs in zip(_ASKED.values(), _way(run), usual, strict=True)
        if mine != theirs
    ]
