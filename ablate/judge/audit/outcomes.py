"""Checks of recorded values: claimed metrics, answers to the same tasks, the same items, and diverged runs.

Numbers of two versions of a harness, of two wordings, or of other examples are not numbers of one measure. The checks
compare identities and sums, never arms: a run that was scored on other items, on an item whose text changed, or twice
on one, has no partner, and nothing is dropped to make it one. Pairing itself is
`ablate.judge.stats.crossed_items.cross`, which refuses the same again.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from ablate.judge.audit.checks import AuditContext, CheckResult, Found, check_body, named, named_run, shown
from ablate.judge.audit.stability import CURVE
from ablate.judge.readings import item_means
from ablate.judge.verdict import Severity
from ablate.records.run_record import RunRecord
from prereg.metrics.catalogue import ITEM_METRICS
from prereg.registry.plan import Cell

_ROUNDING = 1e-9
"""How far a recorded mean may lie from that of its items: two ways of adding up the same scores differ by less."""
_REQUESTS = {
    "version": "version",
    "tasks_sha256": "tasks",
    "prompts_sha256": "prompts",
    "arguments_sha256": "requests",
    "precision": "precision",
    "unencodable": "items left out",
}
"""Fields of a harness record that must be equal over runs, and what they are called."""


@check_body("every finished run has every claimed metric", applies=shown)
def _measured(context: AuditContext) -> Found:
    return [
        f"{reading} of {named_run(run)}"
        for reading, _, values in context.readings
        for run in context.done
        if run.cell not in values
    ]


@check_body(
    "every finished run has its train/loss at every step",
    applies=lambda context: shown(context) and bool(context.study.rule.arms_read),
)
def _whole_curve(context: AuditContext) -> Found:
    lines, nothing = context.evidence.lines(CURVE), (np.empty(0), np.empty(0))
    holed = []
    for run in context.done:
        steps = lines.get(run.cell, nothing)[0]
        # Step 0 is before any training: a trainer may log it or not.
        steps = steps[steps != 0]
        every_step = np.arange(1, run.steps + 1)
        if not np.array_equal(steps, every_step) and not np.array_equal(np.unique(steps), every_step):
            holed.append(named_run(run))
    return holed


@check_body(
    "every finished run has a value by the step of stable.reached",
    applies=lambda context: shown(context) and bool(context.study.rule.arms_read and context.study.stable.reached),
)
def _in_time(context: AuditContext) -> Found:
    by, faults = context.study.stable.by, []
    for metric in context.study.stable.levels:
        lines, nothing = context.evidence.lines(metric), (np.empty(0), np.empty(0))
        for run in context.done:
            steps = lines.get(run.cell, nothing)[0]
            if not ((steps > 0) & (steps <= by)).any():
                faults.append(f"{metric} of {named_run(run)}")
    return faults


def _requests(run: RunRecord) -> tuple[object, ...]:
    return tuple(getattr(run.harness, field) for field in _REQUESTS)


@check_body("every run was asked by the same harness")
def _harness(context: AuditContext) -> Found:
    if context.registration.tasks is None:
        return None
    # What most runs were asked is taken for the usual way: which run is named changes with that, not whether one is.
    runs = [run for run in context.done if run.harness is not None]
    ways = Counter(_requests(run) for run in runs)
    usual = ways.most_common(1)[0][0] if ways else ()
    asked_otherwise = []
    for run in (run for run in runs if _requests(run) != usual):
        rows = zip(_REQUESTS.values(), _requests(run), usual, strict=True)
        words = (f"{word} {str(value)[:12]}, not {str(most)[:12]}" for word, value, most in rows if value != most)
        asked_otherwise.append(f"{named_run(run)}: {', '.join(words)}")
    count = "one way" if len(ways) == 1 else f"{len(ways)} ways of asking"
    return CheckResult(asked_otherwise, f"{count} over {len(runs)} runs")


@check_body("every run answered the registered tasks")
def _tasks(context: AuditContext) -> Found:
    pin = context.registration.tasks
    if pin is None:
        return None
    # An item that the tokenizer cannot write is left out of every run alike, and its number is registered.
    expected = (pin.n_items - pin.n_unencodable, pin.n_unencodable, pin.n_tasks)
    wrong, short = [], []
    for run in context.done:
        harness = run.harness
        if harness is None or harness.tasks_sha256 != pin.sha256:
            wrong.append(f"{named_run(run)}: {'no tasks' if harness is None else harness.tasks_sha256[:12]}")
        if harness is not None and (harness.n_items, harness.unencodable, harness.n_tasks) != expected:
            short.append(f"{named_run(run)}: {harness.n_items} of {pin.n_items} items scored")
    name = f"'{pin.name}', sha256 {pin.sha256[:12]}"
    return CheckResult(
        [*wrong, *short],
        f"{len(context.done) - len(wrong)} of {len(context.done)} runs answered {name}",
        required=f"{name}, every item of it that the tokenizer can write",
    )


def _by_items(context: AuditContext, faults: list[str]) -> CheckResult:
    # A claim about items rests on their pairing; elsewhere faulty items change nothing that is judged.
    claimed = any(claim.metric in ITEM_METRICS for claim in context.study.claims.values())
    severity: Severity = "inadmissible" if claimed else "deviation"
    return CheckResult(faults, severity=severity)


@check_body("every finished run scored the same items")
def _same_items(context: AuditContext) -> Found:
    items, keys = context.evidence.items, ["metric", "task", "item", "item_sha256"]
    if items is None:
        return None
    # Numbered once for all runs: compared a row at a time, 700,000 rows take seconds.
    rows = items.assign(
        identity=items.groupby(keys, sort=False, dropna=False).ngroup(),
        known_as=items.groupby(keys[:3], sort=False, dropna=False).ngroup(),
    )
    met: dict[Cell, bytes] = {}
    twice: list[str] = []
    for (arm, seed), run in rows.groupby(["variant", "seed"], sort=True):
        cell = (str(arm), int(str(seed)))
        met[cell] = np.sort(run["identity"].to_numpy(np.int64)).tobytes()
        repeated = len(run) - run["known_as"].nunique()
        if repeated:
            twice.append(f"{named(cell)}: {repeated} twice")
    done = [run.cell for run in context.done]
    # The items of most runs are taken for the right ones: which run is named changes with that, not whether one is.
    usual = Counter(met[cell] for cell in done if cell in met).most_common(1)
    on_other_items = [
        f"{named(cell)}: {'other items' if cell in met else 'no items'}"
        for cell in done
        if usual and met.get(cell) != usual[0][0]
    ]
    return _by_items(context, [*twice, *on_other_items])


@check_body("every item is sealed with its run")
def _items_sealed(context: AuditContext) -> Found:
    if context.evidence.items is None:
        return None
    sealed = {run.cell for run in context.runs if run.items_sha256 is not None}
    scored = context.evidence.items.groupby(["variant", "seed"], sort=True)
    cells = [(str(arm), int(str(seed))) for (arm, seed), _ in scored]
    return _by_items(context, [named(cell) for cell in cells if cell not in sealed])


@check_body("every recorded mean is that of its items")
def _item_means(context: AuditContext) -> Found:
    evidence, wrong = context.evidence, []
    if evidence.items is None:
        return None
    names = {*evidence.metrics["metric"].unique(), *ITEM_METRICS}
    for metric in sorted(name for name in names if name in ITEM_METRICS):
        recorded, means = evidence.final(metric), item_means(evidence.items, metric)
        wrong += [
            f"{metric} of {named(cell)} is {value:.6g}, its items' mean {means[cell]:.6g}"
            for cell, value in recorded.items()
            if cell in means and not abs(value - means[cell]) <= _ROUNDING * max(1.0, abs(value))
        ]
    return _by_items(context, wrong)


@check_body("no pair was left out for divergence")
def _divergence(context: AuditContext) -> Found:
    # Whether the other pairs may decide: `ablate.judge.audit.sensitivity`.
    judged = [run for run in context.ended if run.variant not in context.study.pilots]
    diverged = [named_run(run) for run in judged if run.status == "diverged"]
    return diverged or None
