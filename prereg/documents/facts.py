"""Facts of a registration: the one record that every document's template reads, of a study and its frozen design.

Entries that come after the registration (starts, seals, decisions) are left out, so that the document of a registration
does not change while the study runs. Of a design this reads only what it says, from the plain data in the lock, and
says nothing where there is nothing. Sentences are in `templates/`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from prereg.documents.claims import PLAIN, ClaimFacts, amount, capital, claims_of, per, plain, reading
from prereg.documents.procedures import SPENDING, at_level
from prereg.documents.training import (
    ArmFacts,
    CommitFacts,
    FactorFacts,
    Parts,
    arms_of,
    base_parts,
    commits_of,
    factors_of,
    kept_by_no_arm,
)
from prereg.escape import quoted, visible
from prereg.metrics.catalogue import TASK_METRICS
from prereg.registry.amendments import amendments_of
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import PromiseEntry
from prereg.registry.paths import Root
from prereg.registry.registration import CorpusPin, Registration, load_registration, promises_of
from prereg.rule.condition import All, AnyOf, Condition, Not, Question
from prereg.rule.divergence import cost_of_divergence
from prereg.study.analysis import Looks, OverLast
from prereg.study.designs.per_task import of_any_task, said_once
from prereg.study.designs.tune import before_choice, better
from prereg.study.measure import Assume
from prereg.study.spec import Study
from prereg.study.timed import timed_promises
from prereg.study.training import Training
from prereg.study.words_of_tests import TESTS, TestWords
from prereg.text import compact, listed, ranged, share, unit_of


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

    @property
    def shown(self) -> str:
        """The name without the words of the claim language."""
        return self.name.replace("does_not claim", "claim of no harm or no change")

    @property
    def chances(self) -> str:
        """The chance of every verdict."""
        return "; ".join(f"{chance.of}: {share(chance.share)} ± {share(chance.error)}" for chance in self.verdicts)


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
    wrong_answer: Chance | None = None
    seconds_per_run: float | None = None
    timed: str = ""
    cost_s: float | None = None


def frozen_design(registration: Registration | None) -> Frozen | None:
    """The design of a lock; none where it holds none that can be read."""
    if registration is None or registration.design is None:
        return None
    try:
        design = Frozen.model_validate(registration.design)
    except ValidationError:
        return None
    return design if design.hypotheses else None


def unknown_power(registration: Registration) -> str:
    """That nothing is known of the power of some claims, because `assume` says nothing of their noise; else empty."""
    design = frozen_design(registration)
    unknown = (
        [power.hypothesis for power in design.hypotheses if power.sd_difference is None] if design is not None else []
    )
    if not unknown:
        return ""
    # No metric is named: what a run prints has no word of what it measures.
    return (
        f"the power of {listed(unknown)} is unknown: nothing is assumed of the noise (ablate try --seeds 3, before "
        "registering)"
    )


EVIDENCE = {
    "none": "no run had been started",
    "runs started": "runs had been started, and no outcome had been read",
    "outcomes read": "outcomes had been read",
}
"""State of the evidence at an amendment -> what was known then."""


@dataclass(frozen=True)
class MetricFacts:
    """A claimed metric."""

    shown: str
    definition: str = ""
    unit: str = ""
    better: str = "neither"
    of_each_task: bool = False


@dataclass(frozen=True)
class PilotFacts:
    """What a pilot tries before the runs that are judged."""

    arms: list[str]
    settings: list[str]
    n_runs: int
    better: str


@dataclass(frozen=True)
class BeliefFacts:
    """The believed spread of a metric, three digits of it: what is believed is not known better."""

    metric: str
    sd: str
    unit: str
    correlation: str
    source: str = ""


@dataclass(frozen=True)
class PowerFacts:
    """Power of one claim, or of several alike."""

    names: list[str]
    least: str
    """What is found with power 80%."""
    at: str
    """The true effect at which power and seeds are stated."""
    absence: bool
    power: float | None
    seeds_80: int | None

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True)
class AmendmentFacts:
    """An amendment, as the ledger has it."""

    index: int
    at: str
    previous: str
    registration: str
    known: str
    """What was known of outcomes by then."""
    reason: str
    differences: list[tuple[str, str, str]]
    """(field, registered, now) of what changed."""


@dataclass(frozen=True)
class DecisionFacts:
    """A line of the decision list."""

    when: str
    """Its condition in words; empty of the line that holds in every other case."""
    verdict: str


@dataclass(frozen=True)
class StudyFacts:
    """A study to describe, and where it is registered its lock and the entries that registered and amended it."""

    study: Study
    registration: Registration | None = None
    """None for a draft."""
    entries: tuple[PromiseEntry, ...] = ()
    """The ledger's entries that registered and amended it, oldest first."""

    @property
    def draft(self) -> bool:
        return self.registration is None

    @property
    def entry(self) -> PromiseEntry:
        """The entry of the registration in force."""
        assert self.entries, self.study.study
        return self.entries[-1]

    @property
    def first_seed(self) -> tuple[str, ...]:
        """The arms in the order of the first seed; none where a registration names no order of runs."""
        has_order = self.registration is None or self.registration.run_order is not None
        return tuple(self.study.arms) if has_order else ()

    @property
    def timed(self) -> tuple[str, ...]:
        """Why runs are made one at a time, where they have to be."""
        return timed_promises(self.study) if self.registration is None else self.registration.timed

    @property
    def question(self) -> list[str]:
        return [line for line in self.study.question.split("\n") if line.strip()]

    # --- claims and rule

    @cached_property
    def claims(self) -> tuple[ClaimFacts, ...]:
        return claims_of(self.study)

    @property
    def exploratory(self) -> list[str]:
        return [claim.label for claim in self.claims if claim.role == "exploratory"]

    @property
    def single(self) -> list[str]:
        """Claims in which a seed gives one number."""
        return [name for name, claim in self.study.claims.items() if not claim.is_paired]

    @property
    def both_of_a_change(self) -> bool:
        """Whether a claim of a change can have both its nulls rejected."""
        return any(c.smallest > 0.0 and not c.kind.is_absence and not c.kind.has_margin for c in self.claims)

    @property
    def both_of_an_absence(self) -> bool:
        """The same of a claim of no harm or no change."""
        return any(c.smallest > 0.0 and c.kind.is_absence for c in self.claims)

    @property
    def decision(self) -> list[DecisionFacts]:
        lines = zip(self.study.decision, self.study.rule.conditions, strict=True)
        return [
            DecisionFacts("" if parsed is None else condition_in_words(parsed), visible(line.verdict))
            for line, parsed in lines
        ]

    @property
    def arms_asked(self) -> list[str]:
        """Arms of which the decision list asks whether they are stable."""
        return [name for name in self.study.arms if name in self.study.rule.arms_read]

    @property
    def lost_verdicts(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """(verdicts that can no longer be given, arms of which one run has diverged)."""
        return [(v, tuple(arms)) for v, arms in cost_of_divergence(self.study).items() if v is not None]

    # --- design, tests, error rates

    @property
    def looks(self) -> Looks | None:
        return self.study.stopping if isinstance(self.study.stopping, Looks) else None

    @property
    def spending(self) -> str:
        return SPENDING[self.looks.spending] if self.looks else ""

    @property
    def alpha(self) -> str:
        return compact(self.study.analysis.alpha)

    @property
    def either(self) -> str:
        """The level of either error."""
        return compact(min(1.0, 2 * self.study.analysis.alpha))

    @property
    def at_level(self) -> str:
        return at_level(self.study.analysis.correct)

    @property
    def deciding_test(self) -> TestWords:
        return TESTS[self.study.analysis.test]

    @property
    def also(self) -> list[str]:
        return [f"the {TESTS[test].name}" for test in self.study.analysis.also]

    @property
    def outside_the_gate(self) -> list[str]:
        # The first group is the gate itself.
        return [name for names in list(self.study.corrected_together.values())[1:] for name in names]

    @property
    def crossed(self) -> str:
        """`2 x 3`."""
        return " x ".join(str(len(levels)) for levels in self.study.factors.values())

    @property
    def shared_seeds(self) -> bool:
        return bool(set.intersection(*(set(self.study.seeds_of(arm)) for arm in self.study.arms)))

    @property
    def runs_of_arms(self) -> list[str]:
        """`5 of none (seeds 1 to 5)`."""
        seeds = {arm: self.study.seeds_of(arm) for arm in self.study.arms}
        return [f"{len(mine)} of {self.study.labels.arm(arm)} (seeds {ranged(mine)})" for arm, mine in seeds.items()]

    @property
    def pilot(self) -> PilotFacts | None:
        """What a pilot tries; none where there is none."""
        study, tune = self.study, self.study.tune
        if tune is None:
            return None
        # The settings of the first arm stand for all: a pilot tries equally many for each.
        settings = tune.of(tuple(study.arms))
        tried = [
            ", ".join(f"{field} {json.dumps(value)}" for field, value in setting.items())
            for setting in next(iter(settings.values()))
        ]
        names = [study.labels.arm(name) for name in settings]
        return PilotFacts(names, tried, len(study.pilots) * len(tune.seeds), better(study, tune))

    # --- what is measured

    @property
    def metrics(self) -> list[MetricFacts]:
        """Every claimed metric: its name, its definition, its unit."""
        study = self.study
        read = {name: of_any_task(study, label, study.claims[name].metric) for label, name in said_once(study).items()}
        return [
            self._metric(metric, of_each_task=any(study.hypotheses[n].family and m == metric for n, m in read.items()))
            for metric in dict.fromkeys(read.values())
        ]

    def _metric(self, metric: str, *, of_each_task: bool) -> MetricFacts:
        study = self.study
        own = "" if plain(metric) == metric else f" ({metric})"
        label = study.labels.metrics.get(metric)
        shown = f"{label} ({metric})" if label else f"{capital(plain(metric)) if metric in PLAIN else metric}{own}"
        declared = study.metric(metric) or (TASK_METRICS.get(metric) if study.trainer == "gpt" else None)
        if declared is None:
            return MetricFacts(shown)
        unit = "" if declared.unit in ("", "share") else per(declared.unit)
        return MetricFacts(shown, declared.definition, unit, declared.better, of_each_task)

    @property
    def readings_elsewhere(self) -> list[tuple[str, str]]:
        """(claim, what it reads) where that is not the value at the last step on its raw scale."""
        hypotheses = self.study.hypotheses.items()
        return [(name, reading(self.study, name)) for name, h in hypotheses if h.read != "final" or h.scale != "raw"]

    @property
    def stated_better(self) -> list[tuple[str, str]]:
        return [(name, h.better) for name, h in self.study.hypotheses.items() if h.better is not None]

    @property
    def logarithms(self) -> list[tuple[str, str]]:
        """(claim, logarithm on which its differences are taken)."""
        scales = {label: self.study.hypotheses[name].scale for label, name in said_once(self.study).items()}
        of = {"log": "natural", "log10": "base-10"}
        return [(label, f"{of[scale]} logarithm") for label, scale in scales.items() if scale != "raw"]

    @property
    def combined(self) -> list[tuple[str, str]]:
        """(claim, what it reads) where that is made of several evaluations."""
        hypotheses = self.study.hypotheses.items()
        of_several = [name for name, h in hypotheses if h.read in ("area", "best") or isinstance(h.read, OverLast)]
        return [(name, reading(self.study, name)) for name in of_several]

    # --- what is trained

    @property
    def own_trainer(self) -> bool:
        return not isinstance(self.study.base, Training)

    @property
    def command(self) -> str:
        return visible(shlex.join(self.study.command))

    @property
    def base(self) -> Parts | list[str]:
        """The base in words."""
        return base_parts(self.study, self.registration.corpus if self.registration else None, pins=self.registration)

    @property
    def kept(self) -> Parts | list[str]:
        """The base in words as far as some arm keeps it."""
        corpus = self.registration.corpus if self.registration else None
        return base_parts(self.study, corpus, kept_by_no_arm(self.study), self.registration)

    @cached_property
    def commits(self) -> list[CommitFacts]:
        """The commits that the arms are, as they were pinned."""
        return commits_of(self.study, self.registration)

    @cached_property
    def arms(self) -> list[ArmFacts]:
        return arms_of(self.study, self.registration)

    @property
    def any_change(self) -> bool:
        return any(arm.changes for arm in self.arms)

    @cached_property
    def factors(self) -> list[FactorFacts]:
        return factors_of(self.study, self.registration)

    @property
    def tokens(self) -> dict[str, int]:
        return {arm: self.study.training(arm).tokens for arm in self.study.arms}

    @property
    def tokens_of_all(self) -> int | None:
        """Tokens of a run where they are the same in every arm."""
        tokens = set(self.tokens.values())
        return next(iter(tokens)) if len(tokens) == 1 else None

    @property
    def corpora(self) -> tuple[CorpusPin, ...]:
        return self.registration.pinned if self.registration else ()

    @property
    def tokenizers(self) -> str:
        """The trained tokenizers, by hash: nothing else says which merges were registered."""
        data = self.registration.data if self.registration else None
        if data is None:
            return ""
        hashes = list(dict.fromkeys(data.tokenizers.values()))
        if len(hashes) == 1:
            return f"The definition of the tokenizer has the sha256 `{hashes[0]}`."
        each = [f"`{sha256}` ({listed([a for a, h in data.tokenizers.items() if h == sha256])})" for sha256 in hashes]
        return f"The definitions of the arms' tokenizers have the sha256 {listed(each)}."

    # --- what the design could find

    @cached_property
    def design(self) -> Frozen | None:
        return frozen_design(self.registration)

    @property
    def beliefs(self) -> list[BeliefFacts]:
        """What is believed of the spread of metrics, by the design where it holds any, else by the study file."""
        study = self.study
        if self.design is not None and self.design.beliefs:
            beliefs = [(study.assume.name_of(b.metric), b.sd, b.correlation, b.source) for b in self.design.beliefs]
        else:
            beliefs = [(name, belief.sd, belief.correlation, "") for name, belief in study.assume.metrics.items()]
        facts = [
            BeliefFacts(plain(name), _three(sd), self._unit(name), _three(correlation), source)
            for name, sd, correlation, source in beliefs
        ]
        return list(dict.fromkeys(facts))

    def _unit(self, metric: str) -> str:
        study = self.study
        # An SD is on the scale of its claim; where claims differ in it, no single unit is right.
        scales = {study.hypotheses[name].scale for name, claim in study.claims.items() if claim.metric == metric}
        unit = per(unit_of(metric, own=study.own_units))
        if scales != {"raw"}:
            return " on the claim's scale"
        return f" {unit}" if unit not in ("", "share") else ""

    @property
    def divergence_drawn(self) -> bool:
        """Whether some scenario has runs diverge: without a spread to draw from nothing is simulated, and none does."""
        drawn = self.design is None or any(scenario.divergence for scenario in self.design.scenarios)
        return bool(self.study.assume.divergence) and drawn

    @property
    def seconds_per_run(self) -> float | None:
        by_design = None if self.design is None else self.design.seconds_per_run
        return self.study.assume.seconds_per_run if by_design is None else by_design

    @property
    def own_power_floor(self) -> bool:
        return self.study.assume.power_floor != Assume().power_floor

    @property
    def worst_family(self) -> tuple[Scenario, Chance] | None:
        """The scenario and family with the largest chance of a false "supported"; none where none was counted."""
        # Over all scenarios: the rate of a family is its largest, not that of the first scenario.
        design = self.design
        chances = [(s, chance) for s in (design.scenarios if design else ()) for chance in s.false_supported]
        return max(chances, key=lambda pair: pair[1].share) if chances else None

    @property
    def power(self) -> list[PowerFacts]:
        """Power, hypothesis by hypothesis."""
        hypotheses = self.design.hypotheses if self.design else ()
        return [self._power(power) for power in hypotheses if power.hypothesis in self.study.hypotheses]

    @property
    def power_alike(self) -> list[PowerFacts]:
        """The same, hypotheses of which the same is said together."""
        # By everything that is said: of a pack of tasks, dozens of claims have one power.
        groups: dict[tuple[object, ...], list[str]] = {}
        for facts in self.power:
            at = "" if facts.absence or facts.power is None else facts.at
            key = (facts.least, at, facts.absence, facts.power, facts.seeds_80 if facts.power is not None else None)
            groups.setdefault(key, []).append(facts.name)
        return [PowerFacts(names, *key) for key, names in groups.items()]  # type: ignore[arg-type]

    def _power(self, power: Power) -> PowerFacts:
        # The size: the sentence says the direction already.
        name, effect = power.hypothesis, abs(power.effect or 0.0)
        at = f"at a true difference of {amount(self.study, name, effect) if effect else '0'}"
        absence = self.study.claims[name].kind.is_absence
        return PowerFacts([name], self._detectable(power), at, absence, power.power, power.seeds_80)

    def _detectable(self, power: Power) -> str:
        # In the claim's unit where the SD is known, else in SDs; of a claim by at least D, counted from D.
        study, name = self.study, power.hypothesis
        if power.detectable is not None:
            return amount(study, name, float(f"{power.detectable:.3g}"))
        of = "the per-seed differences" if study.paired else "the difference of two independent runs"
        margin = study.hypotheses[name].smallest
        beyond = "" if study.claims[name].by is None else f"{amount(study, name, margin)} and "
        return f"{beyond}{power.detectable_sd_corrected:.2f} standard deviations of {of}"

    # --- amendments

    @property
    def amendments(self) -> Iterator[AmendmentFacts]:
        for entry in amendments_of(self.entries):
            yield AmendmentFacts(
                index=entry.index,
                at=entry.at,
                previous=entry.amends[:12],
                registration=entry.registration[:12],
                known=EVIDENCE[entry.evidence],
                reason=entry.reason,
                differences=[
                    (change.field, _value(change.registered), _value(change.now)) for change in entry.differences
                ],
            )


def registered_facts(root: Root, name: str) -> StudyFacts | None:
    """The facts of a registered study; none when it is not registered."""
    registration = load_registration(root, name)
    if registration is None:
        return None
    entries = promises_of(Ledger(root.ledger).readable(), name)
    # What is described is the promise: what a pilot chose since is no part of it.
    registration = registration.model_copy(update={"study": before_choice(registration.study)})
    return StudyFacts(registration.study, registration, entries)


def condition_in_words(condition: Condition, *, outer: bool = True) -> str:
    """A condition of the decision list in words; names and grouping are kept. In parentheses where it joins several
    and is not the `outer` one.

    >>> from prereg.rule.condition import parse_condition
    >>> condition_in_words(parse_condition("supported(gain) and not stable(fast)"))
    'gain is supported and arm "fast" is not stable'
    """
    # From the special to the general: `not stable(V)` reads as one phrase, and a family is named once for all
    # members.
    match condition:
        case Question(state="stable", name=name):
            return f"arm {quoted(name)} is stable"
        case Question(state=state, name=name):
            return f"{name} is {state}"
        case Not(part=Question(state="stable", name=name)):
            return f"arm {quoted(name)} is not stable"
        case Not(part=Question(state=state, name=name)):
            return f"{name} is not {state}"
        case Not(part=part):
            return f"it is not so that ({condition_in_words(part)})"
        case All(over=Question(state=state, name=family)):
            text, outer = f"every claim of {family} is {state}", True
        case AnyOf(over=Question(state=state, name=family)):
            text, outer = f"some claim of {family} is {state}", True
        case All(parts=parts):
            text = listed(condition_in_words(part, outer=False) for part in parts)
        case AnyOf(parts=parts):
            text = listed((condition_in_words(part, outer=False) for part in parts), last="or")
    return text if outer else f"({text})"


def _value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _three(value: float) -> str:
    return compact(float(f"{value:.3g}"))
