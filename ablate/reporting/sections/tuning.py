"""Section of tuning: every setting's pilot values, the choice, and its cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from statistics import stdev

from ablate.judge.audit.checks import AuditContext
from ablate.judge.audit.tuning import choices_of
from ablate.reporting import estimates, tables
from ablate.reporting.blocks import Section, Table
from ablate.reporting.catalogue import Cell
from ablate.reporting.context import ReportContext
from ablate.reporting.estimates import NONE
from ablate.reporting.tables import PilotRow
from ablate.reporting.wording import blocks, phrase
from prereg import text as words
from prereg.documents.sentences import say
from prereg.study.claim import Claim
from prereg.study.designs.tune import Choice, Tune


def tuning_section(context: ReportContext) -> Section | None:
    """The pilot of a tuned study; none where nothing is tuned, or runs are missing."""
    choices, tune = choices_of(AuditContext(context.registration, context.evidence)), context.study.tune
    if not choices or tune is None:
        return None
    # What choosing cost, next to what was judged: wall seconds of all runs of either kind.
    pilot, judged = (
        [run.wall_s for run in context.evidence.runs if run.variant in arms]
        for arms in (context.study.pilots, context.study.arms)
    )
    made = blocks(
        "tuning",
        tuning=say("tuning", context.study),
        edges=[f"{context.arm(choice.arm)} ({', '.join(choice.at_edge)})" for choice in choices if choice.at_edge],
        pilot=tables.PILOT.of(
            _pilot(context, tune, choices), metric=_metric(context, tune), step=context.study.step_name
        ),
        untuned=_untuned(context, tune),
        n_pilot=len(pilot),
        n_judged=len(judged),
        pilot_time=words.duration(sum(pilot)) if all(pilot) else "",
        judged_time=words.duration(sum(judged)) if all(judged) else "",
    )
    return context.outcomes("tuning", "How the settings were chosen", made)


def _metric(context: ReportContext, tune: Tune) -> str:
    unit = words.unit_of(tune.choose_by, own=context.study.own_units)
    return estimates.with_unit(context.metric(tune.choose_by), unit)


def _pilot(context: ReportContext, tune: Tune, choices: tuple[Choice, ...]) -> Iterator[PilotRow]:
    """The pilot's values of every setting."""
    values, chosen = context.evidence.final(tune.choose_by), {choice.pilot for choice in choices}
    means = [abs(mean) for choice in choices for mean in choice.means.values() if mean is not None]
    # A hundredth of the smallest mean: a pilot of two seeds has no SD that could set the decimals.
    decimals = estimates.decimals_for(min(filter(None, means), default=1.0) / 100.0)
    for choice in choices:
        for name, mean in choice.means.items():
            recorded = [values[name, seed] for seed in tune.seeds if (name, seed) in values]
            sd = stdev(recorded) if len(recorded) > 1 else None
            setting = setting_in_words(context.study.pilots[name].setting)
            arm, n = context.arm(choice.arm), len(tune.seeds)
            yield PilotRow(arm, setting, mean, sd, len(recorded), n, name in chosen, decimals)


def _untuned(context: ReportContext, tune: Tune) -> Table | None:
    """The claims' differences at each setting that all their arms were tried at, over the pilot seeds; none where there
    is no such setting."""
    study = context.study
    claims = {
        name: claim
        for name, claim in study.claims.items()
        # Pilot values are raw and final: other claims cannot be read from them.
        if study.hypotheses[name].scale == "raw" and study.hypotheses[name].read == "final"
    }
    # Keyed by the setting in words: two arms were tried at the same setting where it reads the same.
    rows = []
    for text, setting in {setting_in_words(pilot.setting): pilot.setting for pilot in study.pilots.values()}.items():
        pilot_of = {pilot.of: name for name, pilot in study.pilots.items() if pilot.setting == setting}
        rows.append((text, {name: _difference(context, tune, claim, pilot_of) for name, claim in claims.items()}))
    shown = [name for name in claims if any(cells[name] != NONE for _, cells in rows)]
    columns = {f"{study.labels.claim(name)}:": _cell(name) for name in shown}
    return tables.UNTUNED.of(rows, further=columns) if shown else None


def _cell(name: str) -> Cell[tuple[str, Mapping[str, str]]]:
    return lambda row: row[1][name]


def _difference(context: ReportContext, tune: Tune, claim: Claim, pilot_of: Mapping[str, str]) -> str:
    values, weights = context.evidence.final(claim.metric), claim.weights
    # Only seeds that every arm of the claim was tried with: a contrast over other seeds would be of seeds.
    seeds = [seed for seed in tune.seeds if all(arm in pilot_of and (pilot_of[arm], seed) in values for arm in weights)]
    if not seeds:
        return NONE
    effects = [sum(weight * values[pilot_of[arm], seed] for arm, weight in weights.items()) for seed in seeds]
    return phrase("tables.untuned_difference", estimates.signed(sum(effects) / len(effects), 3), len(effects))


def setting_in_words(setting: Mapping[str, object]) -> str:
    """`optim.lr = 0.003`.

    >>> setting_in_words({"optim.lr": 0.003, "optim.warmup": 10})
    'optim.lr = 0.003, optim.warmup = 10'
    """
    return ", ".join(f"{field} = {json.dumps(value)}" for field, value in setting.items())
