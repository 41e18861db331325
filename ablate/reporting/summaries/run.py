"""Output about runs: `status`, `try`, an early look, `reproduce`, `run --dry-run`, and `corpus list`.

`ablate status` must answer at once, so nothing here loads statistics or charts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from ablate.reporting.blocks import Block, Facts, Paragraph, Section
from ablate.reporting.summaries import tables
from ablate.reporting.wording import blocks, phrase
from prereg import text as words

if TYPE_CHECKING:
    from ablate.judge.interim import EarlyLook
    from ablate.records.comparison import Reproduction
    from ablate.runner.trial import Trial
    from ablate.study_status import RunCosts, StudyHealth

_MOST_METRICS = 12


def status_section(health: StudyHealth) -> Section:
    """How far the runs have come: progress only, nothing that separates arms."""
    # Runs that are done or wait are a number in the tally, and no row.
    at_work = [run for run in health.runs if run.state not in ("done", "waiting")]
    tally = Counter(run.state for run in health.runs)
    made = blocks(
        "status",
        health=health,
        registered=words.short(health.registered) if health.registered else "",
        tally=[phrase("run_parts.tally", n, state) for state, n in tally.items()],
        queued=[phrase("run_parts.tally", n, state.lower()) for state, n in health.queued.items()],
        runs=tables.RUNS.of(at_work) if at_work else None,
    )
    return Section("status", phrase("run_parts.title", health.study, health.title), made)


def studies_section(studies: Sequence[StudyHealth]) -> Section:
    """A line for each study: whether it is registered, how many of its runs are sealed, and its verdict."""
    if not studies:
        return Section("studies", "", (Paragraph(phrase("run_parts.no_study")),))
    return Section("studies", phrase("run_parts.studies", len(studies)), (tables.STUDIES.of(studies),))


def early_look_section(look: EarlyLook) -> Section:
    """An early look: description by claim, and what it is not."""
    made: list[Block] = [tables.EARLY_LOOK.of((claim, look.labels) for claim in look.claims)]
    if look.diverged:
        made.append(Paragraph(phrase("run_parts.diverged", [*look.diverged])))
    nature = Paragraph(phrase("run_parts.description_only", look.paired), "aside")
    return Section("early-look", phrase("run_parts.early_look", look), (*made, nature))


def reproduction_section(reproduction: Reproduction) -> Section:
    """Whether a run made again is the sealed one, and by how much it differs: differences only, no value."""
    # The largest difference first.
    different = sorted((m for m in reproduction.metrics if not m.equal), key=lambda m: -m.largest_relative)
    more = len(different) - _MOST_METRICS
    made = blocks(
        "reproduction",
        found=reproduction,
        provenance=[(field.part, _short(field.sealed), _short(field.again)) for field in reproduction.provenance],
        compared=tables.COMPARED.of(different[:_MOST_METRICS], more=more) if different else None,
        same=len(reproduction.metrics) - len(different),
        values=f"{sum(metric.n for metric in reproduction.metrics):,}",
    )
    return Section(
        "reproduction", phrase("run_parts.reproduced", reproduction, "; ".join(reproduction.unpromised)), made
    )


def _short(text: str) -> str:
    """The beginning of a hash; any other text as it is."""
    return text[:12] if len(text) == 64 else text


def run_costs_section(costs: RunCosts) -> Section:
    """What a call of `ablate run` would make."""
    all_of_it = "" if costs.seconds is None else words.duration(costs.seconds)
    each = "" if costs.seconds_per_run is None else words.duration(costs.seconds_per_run)
    mib = "" if costs.bytes_per_run is None else f"{costs.bytes_per_run * len(costs.runs) / 2**20:,.1f}"
    listed = phrase("run_parts.first_runs", costs.runs, _MOST_METRICS)
    facts = (
        ("Time", phrase("run_parts.time", all_of_it if each else "", each, costs.timed)),
        ("Disk", phrase("run_parts.disk", mib, f"{costs.free_bytes / 2**30:,.1f}")),
    )
    first: tuple[Block, ...] = (Paragraph(listed),) if listed else ()
    return Section("costs", phrase("run_parts.costs_title", costs), (*first, Facts(facts)))


def trial_section(trial: Trial) -> Section:
    """What a trial found: costs and mistakes, no value of a metric."""
    # A range a metric, its upper end as `assume:` has it, so that table and line agree.
    ranges = {name: (_up(noise.sd), noise) for name, noise in trial.assume.items()}
    made = blocks(
        "trial",
        trial=trial,
        runs=tables.TRIAL.of(trial.runs),
        names=[*dict.fromkeys(name for run in trial.runs for name in run.metrics)],
        most=_MOST_METRICS,
        seconds="" if trial.seconds_in_all is None else words.duration(trial.seconds_in_all),
        bytes="" if trial.bytes_in_all is None else f"{trial.bytes_in_all / 2**20:,.1f}",
        n_seeds=len({run.seed for run in trial.runs}),
        ranges=[
            (name, f"{noise.estimate:.2g}", f"{noise.low:.2g}", words.compact(sd))
            for name, (sd, noise) in ranges.items()
        ],
        assume=_assume(trial) if trial.assume else "",
        uncorrelated=all(noise.correlation is None for noise in trial.assume.values()),
    )
    return Section("trial", phrase("run_parts.trial", trial), made)


def _assume(trial: Trial) -> str:
    """The value of `assume:` that plans with the larger end of every SD."""
    beliefs = []
    for name, noise in trial.assume.items():
        # Rounded down, as SDs are rounded up: both make the plan more cautious.
        correlation = "" if noise.correlation is None else f", correlation: {floor(100 * noise.correlation) / 100:.2g}"
        beliefs.append(f"{name}: {{sd: {words.compact(_up(noise.sd))}{correlation}}}")
    values = [f"metrics: {{{', '.join(beliefs)}}}"]
    if trial.metric_correlation is not None:
        values.append(f"metric_correlation: {trial.metric_correlation:.2g}")
    return f"{{{', '.join(values)}}}"


def _up(value: float) -> float:
    """Rounded up to two digits: a limit that is rounded down is none."""
    # 0.14 / 0.01 is 14.000000000000002, and 0.14 must not become 0.15.
    unit = 10.0 ** (floor(log10(value)) - 1)
    return float(f"{ceil(value / unit - 1e-9) * unit:.2g}")


def corpora_section(rows: Iterable[tuple[str, int, str, object, str]]) -> Section:
    """Corpora by name: size, hash, where they are, licence."""
    return Section("corpora", "", (tables.CORPORA.of(rows),))
