"""`Study`: its fields (`fields.py`), and what follows from them (arms, runs, claims, families, rule), frozen.

`Study` is the resolved whole: its fields (`prereg.study.fields`) with every default filled in and every
cross-reference checked, and what follows from them: arms, runs, claims, families, the rule. What must hold between
fields is in `prereg.study.validate`, reading YAML and naming lines in `prereg.study.load`, and whether this version can
carry a study out in `ablate.capabilities`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, Self

from pydantic import ConfigDict, ValidationError, model_validator

from prereg.errors import SpecError
from prereg.metrics.catalogue import METRICS, TASK_METRICS, Better, Metric, task_of
from prereg.rule.condition import contradictions
from prereg.rule.rule import Rule
from prereg.study.analysis import Step, steps_of
from prereg.study.arms import Arm, resolve_arms
from prereg.study.claim import Claim, parse_claim, with_groups
from prereg.study.designs.components import components_write_the_rest, written_by_components
from prereg.study.designs.tune import Pilot, pilots_of
from prereg.study.faults import spec_error
from prereg.study.fields import StudyFields
from prereg.study.macros import Document, Expansion, expand, written_for_arm_seeds, written_for_percentages
from prereg.study.training import Training
from prereg.study.validate import check_promises
from prereg.text import unit_of

MACROS = (written_for_arm_seeds, written_by_components, written_for_percentages)
"""What writes fields of a study from nothing but the study; `prereg.study.load` adds what needs the file's folder."""


def _for_a_file(schema: dict[str, Any]) -> None:
    components_write_the_rest(schema)
    schema["description"] = schema["description"].partition("\n\n")[0]  # an editor shows no examples of Python


class Study(StudyFields):
    """One pre-registered comparison of training configurations.

    Raises `SpecError`, `ClaimError` or `RuleError` for fields that make no study (`study_from_document`, for plain
    data; built by its constructor, pydantic wraps them in a `ValidationError`).

    >>> study = study_from_document({
    ...     "study": "tiny",
    ...     "title": "Does a larger step help?",
    ...     "trainer": "command",
    ...     "command": ["{python}", "train.py", "--lr={lr}", "--seed={seed}"],
    ...     "base": {"lr": 0.1},
    ...     "variants": {"small": {}, "large": {"lr": 0.3}},
    ...     "baseline": "small",
    ...     "seeds": [1, 2, 3],
    ...     "hypotheses": {"gain": {"claim": "large lowers val/loss by at least 0.02"}},
    ...     "decision": [{"verdict": "take it", "when": "supported(gain)"}, {"verdict": "keep it"}],
    ... })
    >>> study.arms["large"].config
    {'lr': 0.3}
    >>> study.judged[:3]
    (('small', 1), ('large', 1), ('small', 2))
    >>> study.claims["gain"].weights
    {'large': 1.0, 'small': -1.0}
    >>> study.rule.decide({"gain": "supported"}, stable={}).verdict
    'take it'

    To add a field: its line and docstring in `StudyFields` (`prereg.study.fields`), what it excludes in
    `prereg.study.conflicts`, what else it must fit in `prereg.study.validate`; then whether an amendment of it touches
    evidence, in `AMENDMENT_EFFECTS` (`prereg.registry.amendments`), and `python -m docs.generator`.
    """

    model_config = ConfigDict(json_schema_extra=_for_a_file)

    @model_validator(mode="after")
    def _promises_fit_together(self) -> Self:
        # A stored study holds the block and what it wrote. It must expand to itself: else one of the two was edited,
        # and the macro refuses it.
        if self.components is not None:
            expand(self.model_dump(mode="json"), MACROS)
        check_promises(self)
        return self

    @cached_property
    def arms(self) -> dict[str, Arm]:
        """Every arm with its configuration, in the order of the file; of a pilot what the ledger froze."""
        if self.tune is None or not self.tune.chosen:
            return self.untuned
        # With each tuned arm's configuration replaced by that of the setting that the ledger has as chosen.
        return self.untuned | {
            pilot.of: Arm(pilot.of, self.untuned[pilot.of].overrides, pilot.config, pilot.commit)
            for pilot in self.pilots.values()
            if pilot.setting == self.tune.chosen.get(pilot.of)
        }

    @cached_property
    def untuned(self) -> dict[str, Arm]:
        """Every arm as it is written, in the order of the file."""
        # Under a grid without `arms` every arm is tuned, and then none can be like one that is not.
        tuned = () if self.tune is None else (*self.tune.arms, *self.tune.settings)
        return resolve_arms(self.base, self.variants, self.factors, tuned=tuned)

    @cached_property
    def pilots(self) -> dict[str, Pilot]:
        """The arms of the pilot by name: every setting of every tuned arm; none where nothing is tuned."""
        return pilots_of(self)

    @cached_property
    def trained(self) -> dict[str, Arm]:
        """Every arm that is trained: those of the pilot, and those that are judged."""
        return {**self.pilots, **self.arms}

    @cached_property
    def commits(self) -> dict[str, str]:
        """Arm -> its commit as the study writes it, of every arm that is trained; empty where arms are no commits."""
        return {name: arm.commit for name, arm in self.trained.items() if arm.commit is not None}

    @property
    def settings_known(self) -> bool:
        """Whether the configurations of all arms are known: nothing is chosen by a pilot, or the ledger has it."""
        return self.tune is None or bool(self.tune.chosen)

    @property
    def pilot_seeds(self) -> tuple[int, ...]:
        """The seeds of the pilot; none where nothing is chosen by one."""
        return () if self.tune is None else self.tune.seeds

    @cached_property
    def pilot_runs(self) -> dict[str, int]:
        """Tuned arm -> how many runs of the pilot choose for it."""
        n_settings = Counter(pilot.of for pilot in self.pilots.values())
        return {arm: n * len(self.pilot_seeds) for arm, n in n_settings.items()}

    @cached_property
    def cells(self) -> tuple[tuple[str, int], ...]:
        """Every planned run in the order of the file: those of the pilot, then those that are judged. In which order
        they are made says the registration (`prereg.registry.run_order`)."""
        return (*((arm, seed) for seed in self.pilot_seeds for arm in self.pilots), *self.judged)

    @cached_property
    def judged(self) -> tuple[tuple[str, int], ...]:
        """Every planned run that is judged: all arms of the first seed, then of the second, and so on."""
        return tuple(
            (arm, seed) for seed in self.seeds for arm in self.arms if seed in self.arm_seeds.get(arm, (seed,))
        )

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        """The planned seeds of an arm that is judged, or of one of the pilot."""
        if arm in self.pilots:
            return self.pilot_seeds
        return self.arm_seeds.get(arm, self.seeds)

    @property
    def n_seeds(self) -> int:
        """Seeds of each arm; where arms have seeds of their own, of the arm with most."""
        return max((len(seeds) for seeds in self.arm_seeds.values()), default=len(self.seeds))

    @property
    def paired(self) -> bool:
        """Whether the deciding test is over pairs of runs of one seed."""
        return self.analysis.test != "welch"

    @cached_property
    def claims(self) -> dict[str, Claim]:
        """Every hypothesis' claim, parsed, and which way its metric improves."""
        claims = {}
        for name, hypothesis in self.hypotheses.items():
            claim = self.contrast(hypothesis.claim)
            better = hypothesis.better or self._better(claim.metric)
            claims[name] = replace(claim, better=better, percent=hypothesis.percent, labels=self.labels)
        return claims

    def contrast(self, claim: str) -> Claim:
        """A claim about arms of this study, parsed, with the weights of its arms. Raises `ClaimError`."""
        return with_groups(parse_claim(claim, baseline=self.baseline), self.arm_groups)

    @cached_property
    def arm_groups(self) -> dict[str, tuple[str, ...]]:
        """Groups of arms that a claim can name: those of a factorial of `components`."""
        return {} if self.components is None else self.components.groups()

    @cached_property
    def compares_sides(self) -> bool:
        """Whether any claim compares two sides of each seed; else each seed gives one number."""
        return any(claim.is_paired for claim in self.claims.values())

    @cached_property
    def families(self) -> dict[str, tuple[str, ...]]:
        """Family -> its hypotheses, corrected together but for support under a gate: a role, or a line `per: task`."""
        families: dict[str, list[str]] = {}
        for name, hypothesis in self.hypotheses.items():
            families.setdefault(hypothesis.family or hypothesis.role, []).append(name)
        return {family: tuple(names) for family, names in families.items()}

    @property
    def task_families(self) -> dict[str, tuple[str, ...]]:
        """The families among them that are written from a line `per: task`."""
        return {family: names for family, names in self.families.items() if self.hypotheses[names[0]].family}

    def family_of(self, name: str) -> tuple[str, ...]:
        """The hypotheses of a hypothesis' own family, itself among them."""
        return self.families[self.hypotheses[name].family or self.hypotheses[name].role]

    @cached_property
    def tasks_claimed(self) -> dict[str, str]:
        """Hypothesis -> the one task that it is about, where it is about one."""
        tasks = {name: task_of(claim.metric) for name, claim in self.claims.items()}
        return {name: task for name, task in tasks.items() if task is not None}

    @cached_property
    def gate_steps(self) -> tuple[Step, ...]:
        """The steps of the gate in the order in which they are tested; none without a gate."""
        return steps_of(self)

    @cached_property
    def corrected_together(self) -> dict[str, tuple[str, ...]]:
        """What is corrected together for support: the families; under a gate "gate" -> all that it holds, in order."""
        if not self.gate_steps:
            return dict(self.families.items())
        # What is exploratory is in no gate, so it cannot spend the alpha of what is.
        apart = {key: names for key, names in self.families.items() if self._is_exploratory(names[0])}
        return {"gate": tuple(name for step in self.gate_steps for name in step)} | apart

    def corrected_with(self, name: str) -> tuple[str, ...]:
        """The hypotheses that one is corrected with for support, itself among them."""
        return next(names for names in self.corrected_together.values() if name in names)

    @cached_property
    def rule(self) -> Rule:
        """The decision list, parsed and proved."""
        # Contradictions come from the claims: without them the proof would ask for lines that no data could
        # reach.
        return Rule.parse(
            self.decision,
            hypotheses=tuple(self.hypotheses),
            variants=tuple(self.arms),
            exploratory=tuple(filter(self._is_exploratory, self.hypotheses)),
            contradictions=contradictions(self.hypotheses, self.claims),
            groups=self.task_families,
        )

    def _is_exploratory(self, name: str) -> bool:
        return self.hypotheses[name].role == "exploratory"

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with fields replaced and every promise checked again; nothing cached is carried over. A study is
        frozen, so `deep` changes nothing. Raises `SpecError`."""
        # Pydantic's own copy checks nothing, and would carry over the arms and claims of the old fields.
        fields = {name: getattr(self, name) for name in type(self).model_fields} | dict(update or {})
        try:
            return type(self).model_validate(fields)
        except ValidationError as error:
            raise spec_error(error, Study) from None

    def _better(self, name: str) -> Better:
        metric = self.declaration(name)
        return metric.better if metric is not None else "neither"

    def unit(self, hypothesis: str) -> str:
        """The unit of a claim's effect."""
        return unit_of(self.claims[hypothesis].metric, self.hypotheses[hypothesis].scale, self.own_units)

    def better(self, name: str) -> Better:
        """Which way a metric improves: as declared, or as a claim about it says."""
        declared = self._better(name)
        of_claims = (claim.better for claim in self.claims.values() if claim.metric == name)
        return next((better for better in (declared, *of_claims) if better != "neither"), "neither")

    def metric(self, name: str) -> Metric | None:
        """The declaration of a metric: the tool's, or the study's own; none where only the user's trainer knows it."""
        # The study's own word first, then the catalogue's.
        declared = self.metrics.declare.get(name)
        if declared is not None:
            return Metric(name, declared.unit, declared.better, "own", declared.definition.rstrip("."))
        metric = METRICS.get(name)
        # What a trainer of the user's own computes under a name of the catalogue is not known here.
        return metric if metric is None or self.trainer == "gpt" else replace(metric, definition="")

    def declaration(self, name: str) -> Metric | None:
        """The declaration of any metric that a claim can be about, those of tasks included."""
        return self.metric(name) or TASK_METRICS.get(name)

    @property
    def own_units(self) -> dict[str, str]:
        """Unit of each metric that the study declares."""
        return {name: declared.unit for name, declared in self.metrics.declare.items()}

    @property
    def step_name(self) -> str:
        """What a step of training is called in sentences."""
        return self.metrics.step_name

    @property
    def step_axis(self) -> str:
        """What a step of training is called on axes."""
        return "optimiser step" if self.trainer == "gpt" else self.metrics.step_name

    def training(self, arm: str) -> Training:
        """The configuration of an arm of a `trainer: gpt` study."""
        config = self.trained[arm].config
        assert isinstance(config, Training), (arm, self.trainer)
        return config


def study_from_document(document: Document) -> Study:
    """A study from plain data (what YAML or a lock holds). Raises `SpecError` naming the field."""
    return study_from_expansion(expand(document, MACROS))


def study_from_expansion(expansion: Expansion) -> Study:
    """The study of plain data with all that its macros write. Raises `SpecError` naming the field of the file: for what
    a macro wrote, where its block says it."""
    try:
        # As JSON: in strict mode pydantic then takes a list for a tuple, and still no text for a number.
        return _validated(json.dumps(expansion.document, allow_nan=False))
    except ValidationError as error:
        raise expansion.placed(spec_error(error, Study)) from None
    except SpecError as error:
        raise expansion.placed(error) from None


@lru_cache(maxsize=64)
def _validated(text: str) -> Study:
    """The study of a JSON text. It is frozen, so that all who read the same text in a process may share it."""
    return Study.model_validate_json(text)
