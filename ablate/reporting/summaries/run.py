"""Runs as the terminal shows them: progress, a trial, an early look, a run made again, and the corpora they read.

`ablate status` must answer at once, so nothing here loads statistics or charts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns
from ablate.reporting.estimates import NONE
from prereg import text as words

if TYPE_CHECKING:
    from ablate.health import RunCosts, StudyHealth
    from ablate.judge.interim import ClaimSoFar, EarlyLook
    from ablate.records.comparison import MetricCompared, Reproduction
    from ablate.runner.trial import Trial

_FALLING = {True: "falling", False: "NOT FALLING", None: ""}
_MOST_METRICS = 12


def status_section(health: StudyHealth) -> Section:
    """How far the runs have come: progress only, nothing that separates arms."""
    return Section("status", f"{health.study}: {health.title}", tuple(_status(health)))


def studies_section(studies: Sequence[StudyHealth]) -> Section:
    """A line for each study: whether it is registered, how many of its runs are sealed, and its verdict."""
    rows = tuple(
        (
            health.study,
            "registered" if health.registered and health.unchanged else "changed" if health.registered else "",
            f"{health.count('done') + health.count('diverged')} of {len(health.runs)}",
            ", ".join(f"{health.count(state)} {state}" for state in ("running", "failed") if health.count(state)),
            health.decided or "",
        )
        for health in studies
    )
    if not rows:
        return Section("studies", "", (Paragraph("No study is in studies/."),))
    heads = columns("Study", "Registration", "Runs sealed", "At work", "Decided")
    return Section("studies", words.counted(len(rows), "study", "studies"), (Table("", heads, rows),))


def _status(health: StudyHealth) -> Iterator[Block]:
    changed = "" if health.unchanged else ", but the study file has changed since"
    registered = health.registered and f"Registered as {words.short(health.registered)}{changed}."
    yield Paragraph(registered or "Not registered.")
    tally = ", ".join(f"{count} {state}" for state, count in Counter(run.state for run in health.runs).items())
    active = " A process is at work." if health.active else ""
    yield Paragraph(f"{words.counted(len(health.runs), 'run')}: {tally}.{active}")
    if health.job is not None:
        states = ", ".join(f"{count} {state.lower()}" for state, count in health.queued.items())
        tasks = words.counted(health.job.tasks, "task")
        known = states or "ended, or not known to Slurm"
        yield Paragraph(f"Slurm job {health.job.id}, submitted {health.job.at}, {tasks}: {known}")
    if health.decided is not None:
        deviates = " with deviations from what was registered" * health.with_deviations
        yield Paragraph(f"Decided{deviates}: {health.decided}")
    if health.overruled:
        yield Paragraph("An early look was recorded after the decision: by the registered rules there is no verdict.")
    if health.peeked:
        looks = words.counted(health.peeked, "early look")
        yield Paragraph(f"The ledger holds {looks} at its numbers; every report will say so.")
    if health.next_look is not None:
        yield Paragraph(f"Next: {health.next_look}. The runs of later seeds wait for what it says.")
    rows = tuple(
        (
            f"{run.variant}, seed {run.seed}",
            run.state,
            f"{run.step:,} of {run.steps:,}",
            _FALLING[run.falling],
            str(run.attempts),
        )
        for run in health.runs
        if run.state not in ("done", "waiting")
    )
    if rows:
        yield Table("", columns("Run", "State", "Step:", "Training loss", "Attempts:"), rows)
    for run in health.runs:
        if run.error:
            yield Paragraph(f"{run.variant}, seed {run.seed}: {run.error}")
        for breach in run.breaches:
            yield Paragraph(f"{run.variant}, seed {run.seed}, beyond its budget: {breach}")


def early_look_section(seen: EarlyLook) -> Section:
    """An early look: description by claim, and what it is not."""
    rows = []
    for claim in seen.claims:
        means = [(seen.labels.arm(arm.arm), arm) for arm in claim.arms]
        arms = "; ".join(f"{label} {arm.mean:.4g} ({_spread(arm.sd)}, {arm.n})" for label, arm in means)
        rows.append((seen.labels.in_claim(claim.claim), arms or "no run yet", _difference(claim)))
    heads = columns("Claim", "By arm: mean (SD, n)", "Difference (SD, n)")
    blocks: list[Block] = [Table("", heads, tuple(rows))]
    if seen.diverged:
        blocks.append(Paragraph(f"Diverged, and without a number here: {words.listed(seen.diverged)}"))
    by = "paired by seed" if seen.paired else "of arm means, without pairs,"
    nature = (
        f"Description only: means over the seeds that have ended, differences {by} and left minus right. No "
        "test is made: at an unplanned look its error rate would not be the registered one."
    )
    title = f"{seen.study}: {seen.ended} of {words.counted(seen.planned, 'planned run')} ended."
    return Section("early-look", title, (*blocks, Paragraph(nature, "aside")))


def _difference(claim: ClaimSoFar) -> str:
    if claim.difference is None:
        return claim.note or "no pair yet"
    return f"{estimates.signed(claim.difference, 4)} {claim.unit} ({_spread(claim.sd)}, {claim.n})"


def _spread(sd: float | None) -> str:
    return NONE if sd is None else f"{sd:.2g}"


def reproduction_section(found: Reproduction) -> Section:
    """Whether a run made again is the sealed one, and by how much it differs: differences only, no value."""
    return Section("reproduction", _result(found), tuple(_comparison(found)))


def _comparison(found: Reproduction) -> Iterator[Block]:
    for one in found.provenance:
        sealed, again = (text[:12] if len(text) == 64 else text for text in (one.sealed, one.again))
        yield Paragraph(f"{one.part}: sealed {sealed}, again {again}")
    if found.status_again not in (found.status_sealed, "beginning"):
        yield Paragraph(f"The sealed run ended as {found.status_sealed}, this one as {found.status_again}.")
    different = sorted((m for m in found.metrics if not m.equal), key=lambda m: -m.largest_relative)
    if different:
        heads = columns("Metric", "Differs at", "First at step:", "Largest absolute:", "Largest relative:")
        more = len(different) - _MOST_METRICS
        note = f"{more} more metrics differ by less (--json shows all)." if more > 0 else ""
        yield Table("", heads, tuple(map(_metric_row, different[:_MOST_METRICS])), note=note)
    same, values = len(found.metrics) - len(different), sum(m.n for m in found.metrics)
    metrics = words.counted(len(found.metrics), "metric")
    yield Paragraph(f"{same} of {metrics} equal to the bit, over {values:,} values.")
    weights = f"{found.weights}"
    if found.weights == "not compared":
        only = found.status_again == "beginning"
        why = "only the beginning was made" if only else "one of the records holds no hash of them"
        weights += f", since {why}"
    yield Paragraph(f"Final weights: {weights}.")
    if found.items != "not compared":
        by = f", by at most {found.items_apart:.3g} relatively" if found.items_apart else ""
        other = ", for they are not those of the same items" if found.items_apart is None else ""
        yield Paragraph(f"Scores of items: {found.items}{by}{other}.")
    if found.left_out:
        yield Paragraph(f"Not repeatable by definition, and left out: {words.listed(found.left_out)}.", "aside")


def _metric_row(metric: MetricCompared) -> tuple[str, ...]:
    lone = metric.only_sealed + metric.only_again
    steps = f"{metric.n_different:,} of {metric.n:,} steps" + (f", {lone:,} in one run only" if lone else "")
    first = "" if metric.first_step is None else f"{metric.first_step:,}"
    absolute = NONE if metric.largest_absolute is None else f"{metric.largest_absolute:.3g}"
    return metric.metric, steps, first, absolute, f"{metric.largest_relative:.3g}"


def _result(found: Reproduction) -> str:
    run = f"{found.study}: {found.variant}, seed {found.seed}"
    steps = f"{found.steps:,} of {found.of_steps:,} steps" if found.status_again == "beginning" else "the whole run"
    unpromised = "; ".join(found.unpromised)
    if found.exact:
        not_promised = f" (not promised here: {unpromised})" if unpromised else ""
        return f"{run}: REPRODUCED to the last bit, {steps}{not_promised}."
    largest = f"the largest relative difference is {found.largest_relative:.3g}"
    if not unpromised:
        return f"{run}: NOT REPRODUCED, {steps}: equal bits were promised, and {largest}."
    why = f"equal bits are not promised here ({unpromised}); {largest}"
    if found.reproduced:
        return f"{run}: REPRODUCED within {found.within:g}, {steps}: {why}."
    beyond = f", beyond the {found.within:g} that was accepted" if found.within is not None else ""
    return f"{run}: NOT REPRODUCED, {steps}: {why}{beyond}."


def costs_section(costs: RunCosts) -> Section:
    """What a call of `ablate run` would make."""
    new = "" if costs.registered else ", after registering the study"
    title = f"{costs.study}: {words.counted(len(costs.runs), 'run')} to make, {costs.slots} side by side{new}."
    time = "about how long is unknown (ablate try says)"
    if costs.seconds is not None and costs.seconds_per_run is not None:
        time = f"about {words.duration(costs.seconds)}, at {words.duration(costs.seconds_per_run)} per run"
    disk = "unknown before a run is sealed (ablate try says)"
    if costs.bytes_per_run is not None:
        disk = f"about {costs.bytes_per_run * len(costs.runs) / 2**20:,.1f} MiB"
    free = f"{costs.free_bytes / 2**30:,.1f} GiB are free"
    facts = (("Time", f"{time} ({costs.timed})"), ("Disk", f"{disk}; {free}"))
    listed = ", ".join(costs.runs[:_MOST_METRICS]) + (", ..." if len(costs.runs) > _MOST_METRICS else "")
    return Section("costs", title, (*((Paragraph(listed),) if listed else ()), Facts(facts)))


def trial_section(trial: Trial) -> Section:
    """What a trial found: costs and mistakes, no value of a metric."""
    n, found = len(trial.runs), words.counted(len(trial.problems), "problem")
    title = f"{trial.study}: {words.counted(n, 'trial run')}, {found if trial.problems else 'no problem found'}."
    return Section("trial", title, tuple(_trial(trial)))


def _trial(trial: Trial) -> Iterator[Block]:
    rows = tuple(
        (
            f"{run.variant}, seed {run.seed}",
            run.status,
            f"{run.steps:,}",
            f"{run.seconds:.1f}",
            NONE if run.peak_memory_bytes is None else f"{run.peak_memory_bytes / 2**20:,.0f}",
            str(len(run.metrics)),
        )
        for run in trial.runs
    )
    heads = columns("Run", "Ended", "Steps:", "Seconds:", "MiB:", "Metrics:")
    seeds = "Seeds outside the plan; nothing of it is evidence, and no value is shown."
    yield Table("", heads, rows, note=seeds)
    for one in trial.problems:
        yield Facts((("Problem", f"{one.run}: {one.found}"), ("required", one.required), ("try", one.fix or NONE)))
    if trial.shortened:
        yield Paragraph(f"Shortened for the trial: {words.listed(trial.shortened)}.")
    names = dict.fromkeys(name for run in trial.runs for name in run.metrics)
    if names:
        more = f" and {len(names) - _MOST_METRICS} more" if len(names) > _MOST_METRICS else ""
        yield Paragraph(f"Recorded: {', '.join(list(names)[:_MOST_METRICS])}{more}.")
    if trial.resumes != "not tested":
        yield Paragraph(f"A stopped run resumes {trial.resumes}.")
    yield from (Paragraph(f"Note: {note}.") for note in trial.notes)
    if trial.seconds_in_all is not None and trial.bytes_in_all is not None:
        yield Paragraph(
            f"The plan: {words.counted(trial.planned, 'run')}, about {words.duration(trial.seconds_in_all)} one after "
            f"another, about {trial.bytes_in_all / 2**20:,.1f} MiB on disk."
        )
    if trial.assume:
        yield from _to_assume(trial)
    if trial.folder:
        yield Paragraph(f"The runs lie in {trial.folder} until the next trial.", "aside")


def _to_assume(trial: Trial) -> Iterator[Block]:
    """The range of every SD, and the line that plans with its larger end."""
    n = len({run.seed for run in trial.runs})
    ranges = {name: (_up(one.sd), one) for name, one in trial.assume.items()}
    yield Facts(
        tuple(
            (
                name,
                f"SD over seeds {one.estimate:.2g}; by {n} seeds alone it may be {one.low:.2g} to {words.compact(sd)}",
            )
            for name, (sd, one) in ranges.items()
        )
    )
    beliefs = [
        f"{name}: {{sd: {words.compact(sd)}"
        + ("" if one.correlation is None else f", correlation: {floor(100 * one.correlation) / 100:.2g}")
        + "}"
        for name, (sd, one) in ranges.items()
    ]
    values = [f"metrics: {{{', '.join(beliefs)}}}"]
    if trial.metric_correlation is not None:
        values.append(f"metric_correlation: {trial.metric_correlation:.2g}")
    yield Paragraph(f"To plan with, at the larger end: assume: {{{', '.join(values)}}}")
    yield Paragraph(
        "Each end of a range is wrong in one trial of five (80% chi-square limits)."
        + (
            f" {n} seeds are too few to estimate how arms correlate: the plan assumes none, which is cautious."
            if all(one.correlation is None for one in trial.assume.values())
            else ""
        ),
        "aside",
    )


def _up(value: float) -> float:
    """Rounded up to two digits: a limit that is rounded down is none."""
    unit = 10.0 ** (floor(log10(value)) - 1)
    return float(f"{ceil(value / unit - 1e-9) * unit:.2g}")


def corpora_section(rows: Iterable[tuple[str, int, str, object, str]]) -> Section:
    """Corpora by name: size, hash, where they are, licence."""
    shown = tuple(
        (name, f"{size:,}", words.short(sha256), str(at), licence) for name, size, sha256, at, licence in rows
    )
    return Section("corpora", "", (Table("", columns("Corpus", "Bytes:", "sha256", "Where", "Licence"), shown),))
