"""`ablate try`: a trial before registration, one short run per arm, its problems, and what the study costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from ablate.checking import check
from ablate.data.cache import keep, note_of
from ablate.pinning import pin, pin_code
from ablate.workspace import HERE, StudyContext, StudySource, Workspace
from prereg.study.corpora import cache_folder

if TYPE_CHECKING:
    from ablate.judge.stats.significance_tests import Floats
    from ablate.runner.trial import Trial, TrialSpread, Values
    from prereg.registry.registration import Pins, Registration
    from prereg.study.spec import Study

STEPS = 20
"""Steps of a trial run of the built-in trainer, which give its speed."""
LIMIT_S = 60.0
"""Seconds after which a trial run is stopped."""
FEWEST_SEEDS_FOR_SD = 3


def try_out(
    study: StudySource,
    *,
    workspace: Workspace = HERE,
    seeds: int = 1,
    limit_s: float = LIMIT_S,
    replaced: Sequence[str] = (),
    on_run: Callable[[str], None] = lambda _: None,
) -> Trial:
    """Make one short run per arm and seed, and say what would fail later. Raises `StudyError` where none can start.

    With seeds enough for a spread the built-in trainer makes whole runs, because a spread of short ones plans nothing.
    `replaced` holds PATH=VALUE for the trial alone, to shorten a run; `on_run` hears the name of each run that begins.
    Returns problems, notes and costs, and no value of a metric; nothing goes on record.

        trial = ablate.try_out("studies/own.yaml", limit_s=20.0)
        trial.problems, trial.seconds_in_all
    """
    from ablate.runner.trial import TrialMaker

    context = check(study, workspace)
    pinned = pin(context)
    whole_runs = seeds >= FEWEST_SEEDS_FOR_SD or any(setting.startswith("budget.steps=") for setting in replaced)
    if context.study.trainer == "gpt" and not whole_runs:
        steps = min(STEPS, *(context.study.training(arm).budget.steps for arm in context.study.arms))
        replaced = (*replaced, f"budget.steps={steps}")
    # For the workers of the trial, which read a trained tokenizer by its hash.
    pinned.keep(context.root)
    maker = TrialMaker(
        _provisional(context, pinned.pins),
        context.root,
        limit_s=limit_s,
        replaced=tuple(replaced),
        on_run=on_run,
    )
    # Seeds after every planned one: a trial shows nothing of a run that will count.
    first = max(seed for _, seed in context.study.cells) + 1
    for seed in range(first, first + seeds):
        for arm in context.study.arms:
            maker.make(arm, seed)
    trial = maker.result(first)
    if context.study.trainer == "command" and not trial.problems:
        keep(cache_folder() / "tried", _of_trial(context), {})
    if trial.problems or replaced or seeds < FEWEST_SEEDS_FOR_SD:
        return trial
    # A value at half of the steps has another spread than the last.
    if any(run.status == "stopped" for run in trial.runs):
        note = f"no values to assume, because runs were stopped after {limit_s:g} s: --limit SECONDS"
        return trial.model_copy(update={"notes": (*trial.notes, note)})
    assume, correlation = _spreads(context.study, maker.rows)
    return trial.model_copy(update={"assume": assume, "metric_correlation": correlation})


def untried(context: StudyContext) -> str:
    """Return the sentence on a study that no trial showed to be ready as it and its code are now; empty where one did.

    The built-in trainer takes every value of a study, so only a script of the user's own has to be tried.
    """
    if context.study.trainer != "command" or note_of(cache_folder() / "tried", _of_trial(context)).is_file():
        return ""
    finds = f"ablate try {context.path} finds a value or seed that never reaches the script"
    return f"no trial of this study with this code: {finds}"


def _of_trial(context: StudyContext) -> dict[str, object]:
    """Return what a trial is about: the study, and the bytes of its code."""
    study, code = context.study, pin_code(context, keeps=False)
    return {"study": study.model_dump(mode="json"), "code": code.model_dump(mode="json", exclude={"code_changes"})}


def _spreads(study: Study, rows: Mapping[tuple[str, int], Values]) -> tuple[dict[str, TrialSpread], float | None]:
    """The spread of every metric that is claimed on its own scale, where there are seeds enough to say; and the mean
    correlation of two of them within a run, each turned so that up is better, from 0 to 1."""
    import numpy as np

    from ablate.judge.design.effects import FEWEST_FOR_CORRELATION

    arms = list(study.arms)
    seeds = sorted({seed for _, seed in rows if all((arm, seed) in rows for arm in arms)})
    spreads: dict[str, TrialSpread] = {}
    if len(seeds) < FEWEST_SEEDS_FOR_SD or len(arms) < 2:
        return spreads, None
    # A loss that falls and an accuracy that rises: one direction.
    better = {claim.metric: -1.0 if claim.better == "lower" else 1.0 for claim in study.claims.values()}
    # Seeds in rows, arms in columns; each metric's deviations from its arm's mean, turned so that up is better.
    noise = []
    raw = (claim.metric for name, claim in study.claims.items() if study.hypotheses[name].scale == "raw")
    for metric in dict.fromkeys(raw):
        table = np.array([[_final(rows[arm, seed], metric) for arm in arms] for seed in seeds])  # (seeds, arms)
        if all(map(isfinite, table.flat)) and (spread := spread_over_seeds(table, paired=study.paired)) is not None:
            spreads[metric] = spread
            noise.append(better[metric] * (table - table.mean(axis=0)).ravel())
    if len(noise) < 2 or len(seeds) < FEWEST_FOR_CORRELATION:
        return spreads, None
    pairs = np.corrcoef(noise)[np.triu_indices(len(noise), 1)]  # each pair of metrics once: above the diagonal
    return spreads, float(np.clip(pairs.mean(), 0.0, 1.0))


def spread_over_seeds(table: Floats, *, paired: bool) -> TrialSpread | None:
    """From values, a row a seed and a column an arm; none where they do not vary.

    >>> import numpy as np
    >>> two_arms = np.array([[2.50, 2.40], [2.54, 2.43], [2.47, 2.38], [2.52, 2.41]])  # a row a seed
    >>> spread = spread_over_seeds(two_arms, paired=True)
    >>> spread.low < spread.estimate < spread.sd
    True
    """
    from ablate.judge.design.assumptions import cautious, sd_range, variances
    from ablate.runner.trial import TrialSpread

    n_seeds, n_arms = table.shape
    rest, total = variances(table)
    if total <= 0.0:
        return None
    # To plan with the estimate itself would be too hopeful in half of all trials: the upper end of a range is taken,
    # see `assumptions.cautious`.
    sd, correlation = cautious(rest, total, n_seeds, n_arms, paired=paired)
    low, _ = sd_range(total, n_seeds - 1 if paired else (n_seeds - 1) * n_arms)
    return TrialSpread(sd=sd, estimate=total**0.5, low=low, correlation=correlation)


def _final(rows: Iterable[tuple[int, str, float]], metric: str) -> float:
    """The value at the last step at which a metric was recorded; NaN without one."""
    return max(((step, value) for step, name, value in rows if name == metric), default=(0, float("nan")))[1]


def _provisional(context: StudyContext, pins: Pins) -> Registration:
    """A registration of the study as it is now, written nowhere."""
    from prereg.registry.registration import Registration

    nothing = "0" * 64  # no hash: what is made from it can be taken for no registered run
    return Registration(
        study=context.study,
        sha256=nothing,
        source_sha256=nothing,
        registered_at="",
        tool={},
        design=None,
        previous=None,
        reason=None,
        lock_sha256=nothing,
        **dict(pins),
    )
