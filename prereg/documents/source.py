"""What a document is written from: a study, and where it is registered its lock, frozen design and ledger entries.

Entries that come after the registration (starts, seals, decisions) are left out, so that the document of a registration
does not change while the study runs. Of a design this reads only what it says, from the plain data in the lock, and
says nothing where there is nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from prereg.documents.claims import amount, per, plain
from prereg.escape import visible
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import PROMISES, Entry
from prereg.registry.paths import Root
from prereg.registry.registration import Registration, load_registration
from prereg.study.designs.tune import before_choice
from prereg.study.measure import Assume
from prereg.study.spec import Study
from prereg.text import compact, counted, duration, listed, moment, share, unit_of


@dataclass(frozen=True)
class Source:
    """A study to describe."""

    study: Study
    registration: Registration | None = None
    """None for a draft."""
    entries: tuple[Entry, ...] = ()
    """The ledger's entries that registered and amended it, oldest first."""

    @property
    def draft(self) -> bool:
        return self.registration is None

    @property
    def entry(self) -> Entry:
        """The entry of the registration in force."""
        assert self.entries, self.study.study
        return self.entries[-1]


def registered_source(root: Root, name: str) -> Source | None:
    """The source of a registered study; none when it is not registered."""
    registration = load_registration(root, name)
    if registration is None:
        return None
    entries = tuple(
        entry for entry in Ledger(root.ledger).readable() if entry.study == name and entry.event in PROMISES
    )
    # What is described is the promise: what a pilot chose since is no part of it.
    registration = registration.model_copy(update={"study": before_choice(registration.study)})
    return Source(registration.study, registration, entries)


EVIDENCE = {
    "none": "no run had been started",
    "runs started": "runs had been started, and no outcome had been read",
    "outcomes read": "outcomes had been read",
}
"""State of the evidence at an amendment -> what was known then."""


def status(source: Source) -> str:
    """The first line of every document: a draft, or which registration it tells."""
    if source.registration is None:
        return f'DRAFT: the study "{source.study.study}" is not registered. Nothing below binds anybody yet.'
    registration = source.registration
    amended = f", amending {registration.previous[:12]}" if registration.previous else ""
    at, name = moment(registration.registered_at), source.study.study
    return f'Registered {at} as {registration.sha256[:12]}{amended} (study "{name}").'


def identity(source: Source) -> str:
    """Which registration this is, so that a reader can check it."""
    registration = source.registration
    if registration is None:
        return ""
    text = f"Registration sha256: {registration.sha256}."
    if registration.previous:
        text += f" It amends {registration.previous[:12]}: {_ended(registration.reason or 'no reason recorded')}"
    if registration.override is not None:
        text += f" {override(source)}"
    return text


def override(source: Source) -> str:
    """An obstacle that was accepted on record."""
    assert source.registration is not None and source.registration.override is not None, source.study.study
    accepted = source.registration.override
    return (
        f"It was registered although the design says: {_ended(accepted.obstacle)} The reason given is: "
        f"{_ended(accepted.reason)}"
    )


def versions(source: Source) -> str:
    """What registered it."""
    assert source.registration is not None, source.study.study
    return f"Registered with {listed(f'{name} {version}' for name, version in source.registration.tool.items())}."


def amendments(source: Source) -> Iterator[tuple[Entry, str, list[tuple[str, str, str]]]]:
    """Every amendment: its entry, what was known by then, and (field, registered, now) of what changed."""
    for entry in source.entries:
        if entry.event == "amended":
            known = EVIDENCE.get(str(entry.body.get("evidence")), "what was known of outcomes was not recorded")
            yield entry, known, list(_differences(entry.body.get("differences")))


def _differences(listed_: JsonValue) -> Iterator[tuple[str, str, str]]:
    for one in listed_ if isinstance(listed_, list) else []:
        if isinstance(one, dict):
            yield str(one.get("field")), _value(one.get("registered")), _value(one.get("now"))


def _value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _ended(text: str) -> str:
    text = visible(text.strip())
    return text if text.endswith((".", "!", "?")) else text + "."


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Chance(_Read):
    """A simulated probability."""

    of: str
    share: float
    error: float


class Scenario(_Read):
    """One state of the world."""

    name: str
    n_sims: int
    divergence: float = 0.0
    verdicts: tuple[Chance, ...] = ()
    false_supported: tuple[Chance, ...] = ()
    false_refuted: tuple[Chance, ...] = ()


class Power(_Read):
    """What can become of one hypothesis."""

    hypothesis: str
    detectable_sd_corrected: float
    sd_difference: float | None = None
    detectable: float | None = None
    power: float | None = None
    seeds_80: int | None = None
    effect: float | None = None


class Belief(_Read):
    """What was believed of a metric, and why."""

    metric: str
    scale: str
    sd: float
    correlation: float
    source: str


class Frozen(_Read):
    """What a lock's design holds, as far as it is used here."""

    hypotheses: tuple[Power, ...] = ()
    beliefs: tuple[Belief, ...] = ()
    scenarios: tuple[Scenario, ...] = ()
    false_adoption: Chance | None = None
    adopting: tuple[str, ...] = ()
    worst: tuple[Scenario, ...] = ()
    seconds_per_run: float | None = None
    timed: str = ""
    cost_s: float | None = None


def frozen_design(registration: Registration | None) -> Frozen | None:
    """The design of a lock; none where it holds none that can be read."""
    if registration is None or registration.design is None:
        return None
    data: Mapping[str, JsonValue] = registration.design
    try:
        found = Frozen.model_validate(data)
    except ValidationError:
        return None
    return found if found.hypotheses else None


def unknown_power(registration: Registration) -> str:
    """That nothing is known of the power of some claims, because `assume` says nothing of their noise; else empty."""
    design = frozen_design(registration)
    unknown = [one.hypothesis for one in design.hypotheses if one.sd_difference is None] if design is not None else []
    if not unknown:
        return ""
    # No metric is named: what a run prints has no word of what it measures.
    return (
        f"the power of {listed(unknown)} is unknown: nothing is assumed of the noise (ablate try --seeds 3, before "
        "registering)"
    )


def beliefs(study: Study, design: Frozen | None) -> str:
    """What the design takes for granted."""
    said = (
        [
            f"{_spread(study, study.assume.name_of(one.metric), one.sd, one.correlation)} ({one.source})"
            for one in design.beliefs
        ]
        if design is not None and design.beliefs
        else [_spread(study, name, one.sd, one.correlation) for name, one in study.assume.metrics.items()]
    )
    text = (
        f"Believed before data: {'; '.join(dict.fromkeys(said))}."
        if said
        else "No belief about the spread of a metric is stated."
    )
    # Without a spread to draw from nothing is simulated, and no run is taken to diverge.
    drawn = design is None or any(scenario.divergence for scenario in design.scenarios)
    if study.assume.divergence and drawn:
        text += f" In scenarios with divergence, {share(study.assume.divergence)} of runs are taken to diverge."
    seconds = study.assume.seconds_per_run
    if design is not None and design.seconds_per_run is not None:
        seconds = design.seconds_per_run
    if seconds is not None:
        timed = f" ({design.timed})" if design is not None and design.timed else ""
        text += f" A run is taken to last {duration(seconds)}{timed}."
    if study.assume.power_floor != Assume().power_floor:
        text += f" A claim that the decision needs may have a power of {share(study.assume.power_floor)}, and no less."
    return text


def power_rows(study: Study, design: Frozen) -> list[tuple[str, str, str, str]]:
    """For each hypothesis: what is detectable, power with the effect at which it is stated, seeds for power 80%."""
    return [
        (
            one.hypothesis,
            _detectable(study, one),
            "unknown" if one.power is None else f"{share(one.power)} {_at(study, one)}",
            "unknown" if one.seeds_80 is None else str(one.seeds_80),
        )
        for one in design.hypotheses
        if one.hypothesis in study.hypotheses
    ]


def power_sentences(study: Study, design: Frozen) -> list[str]:
    """The same in sentences, hypotheses of which the same is said in one."""
    groups: dict[str, list[str]] = {}
    for one in design.hypotheses:
        if one.hypothesis not in study.hypotheses:
            continue
        absence = study.claims[one.hypothesis].kind.is_absence
        least = _detectable(study, one)
        text = f"a margin of {least} is" if absence else f"a difference of {least} is"
        text += " shown with power 80% if there is no difference" if absence else " found with power 80%"
        if one.power is not None:
            at = "at the registered margin" if absence else _at(study, one)
            text += f"; the power {at} is {share(one.power)}"
            if one.seeds_80 is not None:
                text += f", and {counted(one.seeds_80, 'seed')} would give 80%"
        groups.setdefault(text, []).append(one.hypothesis)
    return [f"{listed(names)}: {text}." for text, names in groups.items()]


def scenario_rows(design: Frozen) -> list[tuple[str, str, str]]:
    """For each simulated state of the world: the chance of every verdict, and how many studies were simulated."""
    return [
        (
            _state(scenario.name),
            "; ".join(f"{one.of}: {share(one.share)} ± {share(one.error)}" for one in scenario.verdicts),
            f"{scenario.n_sims:,}",
        )
        for scenario in design.scenarios
    ]


def false_adoption(design: Frozen) -> str:
    """The false-positive rate of the whole rule, or of the tests where that was not counted."""
    if design.false_adoption is not None:
        return (
            f"By simulation of the registered rule ({design.worst[0].n_sims:,} studies), the largest chance, over "
            "true effects and over the correlation of metrics, of an adopting verdict "
            f"({listed(design.adopting, last='or')}) that rests on a false finding, or adopts an arm beyond the "
            f"margin of its own claim of no harm, is {share(design.false_adoption.share)} ± "
            f"{share(design.false_adoption.error)} (simulation error), with normal differences and no divergence."
        )
    worst = [
        (chance.share, chance.error, chance.of, scenario)
        for scenario in design.scenarios
        for chance in scenario.false_supported
    ]
    if not worst:
        return ""
    highest, error, role, scenario = max(worst, key=lambda one: one[0])
    return (
        f"By simulation of the registered rule ({scenario.n_sims:,} studies for each state of the world), the largest "
        f'chance of any false "supported" in a family is {share(highest)} ± {share(error)} (simulation error): in the '
        f'{role} family, if the truth is "{_state(scenario.name)}". This design did not count false adoptions.'
    )


def cost(design: Frozen) -> str:
    """How long the runs take."""
    if design.cost_s is None:
        return ""
    return f"All runs one after another are expected to take {duration(design.cost_s)}."


def _at(study: Study, one: Power) -> str:
    """The true effect at which the power and the seeds of a claim are stated."""
    effect = abs(one.effect or 0.0)
    return f"at a true difference of {amount(study, one.hypothesis, effect) if effect else '0'}"


def _detectable(study: Study, one: Power) -> str:
    if one.detectable is None:
        of = "the per-seed differences" if study.paired else "the difference of two independent runs"
        by = study.claims[one.hypothesis].by
        beyond = (
            "" if by is None else f"{amount(study, one.hypothesis, study.hypotheses[one.hypothesis].smallest)} and "
        )
        return f"{beyond}{one.detectable_sd_corrected:.2f} standard deviations of {of}"
    return amount(study, one.hypothesis, float(f"{one.detectable:.3g}"))


def _state(name: str) -> str:
    """The name of a simulated truth without the words of the claim language."""
    return name.replace("does_not claim", "claim of no harm or no change")


def _spread(study: Study, metric: str, sd: float, correlation: float) -> str:
    return (
        f"for {plain(metric)}, a standard deviation over seeds of {_three(sd)}{_unit(study, metric)} and a correlation "
        f"between arms of {_three(correlation)}"
    )


def _three(value: float) -> str:
    """Three significant digits: what is believed is not known better."""
    return compact(float(f"{value:.3g}"))


def _unit(study: Study, metric: str) -> str:
    scales = {study.hypotheses[name].scale for name, claim in study.claims.items() if claim.metric == metric}
    unit = per(unit_of(metric, own=study.own_units))
    if scales != {"raw"}:
        return " on the claim's scale"
    return f" {unit}" if unit not in ("", "share") else ""
