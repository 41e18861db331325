"""How the settings of tuned arms were chosen: every setting's pilot values, the choice, and its cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from statistics import stdev

from ablate.judge.audit.checks import AuditContext
from ablate.judge.audit.tuning import choices_of
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns
from ablate.reporting.context import ReportContext
from ablate.reporting.estimates import NONE
from prereg import text as words
from prereg.documents.sentences import say
from prereg.study.designs.tune import Choice, Tune


def tuning_section(context: ReportContext) -> Section | None:
    """The pilot of a tuned study; none where nothing is tuned, or runs are missing."""
    choices = choices_of(AuditContext(context.registration, context.evidence))
    if not choices or context.study.tune is None:
        return None
    return context.outcomes("tuning", "How the settings were chosen", _blocks(context, choices))


def _blocks(context: ReportContext, choices: tuple[Choice, ...]) -> Iterator[Block]:
    study = context.study
    assert study.tune is not None, study.study
    yield Paragraph(say("tuning", study))
    yield _pilot(context, study.tune, choices)
    edges = [f"{context.arm(choice.arm)} ({', '.join(choice.at_edge)})" for choice in choices if choice.at_edge]
    if edges:
        yield Paragraph(
            f"At the edge of what was tried: {words.listed(edges)}. Beyond it there may be a better setting.", "warning"
        )
    if table := _contrasts(context, study.tune):
        yield table
    yield Facts((("Cost", _cost(context)),))


def _pilot(context: ReportContext, tune: Tune, choices: tuple[Choice, ...]) -> Table:
    """The pilot's values of every setting."""
    study, values = context.study, context.evidence.final(tune.choose_by)
    chosen = {choice.pilot for choice in choices}
    spreads = [abs(mean) for choice in choices for mean in choice.means.values() if mean is not None]
    decimals = estimates.decimals_for(min(filter(None, spreads), default=1.0) / 100.0)
    rows = []
    for choice in choices:
        for name, mean in choice.means.items():
            found = [values[name, seed] for seed in tune.seeds if (name, seed) in values]
            rows.append(
                (
                    context.arm(choice.arm),
                    said(study.pilots[name].setting),
                    NONE if mean is None else words.number(mean, decimals),
                    words.number(stdev(found), decimals) if len(found) > 1 else NONE,
                    f"{len(found)} of {len(tune.seeds)}",
                    "chosen" if name in chosen else "",
                )
            )
    unit = words.unit_of(tune.choose_by, own=study.own_units)
    metric = estimates.with_unit(context.metric(tune.choose_by), unit)
    return Table(
        f"{metric} at the last {study.step_name} of the pilot's runs. n: pilot seeds with a value.",
        columns("Arm", "Setting", "Mean:", "SD:", "n:", ""),
        tuple(rows),
        marked=frozenset(at for at, row in enumerate(rows) if row[-1]),
        grouped=True,
    )


def _contrasts(context: ReportContext, tune: Tune) -> Table | None:
    """The claims' differences at each setting that all their arms were tried at, over the pilot seeds."""
    study = context.study
    settings = {said(pilot.setting): pilot.setting for pilot in study.pilots.values()}
    claims = {
        name: claim
        for name, claim in study.claims.items()
        if study.hypotheses[name].scale == "raw" and study.hypotheses[name].read == "final"
    }
    rows = []
    for text, setting in settings.items():
        at = {pilot.of: name for name, pilot in study.pilots.items() if pilot.setting == setting}
        cells = []
        for claim in claims.values():
            values, weights = context.evidence.final(claim.metric), claim.weights
            whole = [seed for seed in tune.seeds if all(arm in at and (at[arm], seed) in values for arm in weights)]
            effects = [sum(w * values[at[arm], seed] for arm, w in weights.items()) for seed in whole]
            mean = sum(effects) / len(effects) if effects else None
            cells.append(NONE if mean is None else f"{estimates.signed(mean, 3)} (n = {len(effects)})")
        rows.append((text, *cells))
    shown = [at for at in range(1, len(claims) + 1) if any(row[at] != NONE for row in rows)]
    if not shown:
        return None
    return Table(
        "What an untuned study would have seen at each setting: left side minus right side, mean over the pilot seeds. "
        "Description; no test.",
        columns("Setting of every arm", *(f"{study.labels.claim(list(claims)[at - 1])}:" for at in shown)),
        tuple((row[0], *(row[at] for at in shown)) for row in rows),
    )


def _cost(context: ReportContext) -> str:
    """Runs and run time of the pilot, and of what is judged."""
    study = context.study
    pilot = [run.wall_s for run in context.evidence.runs if run.variant in study.pilots]
    judged = [run.wall_s for run in context.evidence.runs if run.variant in study.arms]
    times = f", {words.duration(sum(pilot))} of run time" if all(pilot) else ""
    other = f", {words.duration(sum(judged))}" if all(judged) else ""
    return f"{words.counted(len(pilot), 'run')} of the pilot{times}; {len(judged)} runs that are judged{other}"


def said(setting: Mapping[str, object]) -> str:
    """`optim.lr = 0.003`."""
    return ", ".join(f"{field} = {json.dumps(value)}" for field, value in setting.items())
