"""Component ablations: arms, claims and a decision, all written from a list of the parts of a system.

    leave_one_out   the whole system, and the whole system without each part
    add_one_in      the plain system, and the plain system with each part
    factorial       every combination of parts; effects are averaged over the other parts (Fisher 1935, Yates 1937)
    fractional      a fraction of them (Box and Hunter 1961): `prereg.study.designs.fractions`
    path            from the system without the parts to the one with all, one part at a time, the one that helps most
                    first (Fawcett and Hoos 2016): `prereg.study.designs.path`

They are written when the study is read (`prereg.study.designs.resolve_components`), and the registration holds them
next to `components`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, PrivateAttr, SerializerFunctionWrapHandler, model_serializer

from prereg.errors import ClaimError, field_error
from prereg.frozen import FrozenModel
from prereg.metrics.catalogue import METRICS, TASK_METRICS, Better
from prereg.study.analysis import Hypothesis, Read, Role, Scale
from prereg.study.claim import margin_of, parse_claim
from prereg.study.designs.fractions import Effect, Fraction, generator_text, read_generators, sign_of
from prereg.study.measure import Name, Seed
from prereg.text import counted, listed

FULL, PLAIN = "full", "plain"
SOURCE, TARGET, TOTAL = "source", "target", "total"
"""Of a path: its first arm, its last, and the claim that compares them."""


class Part(FrozenModel):
    """A part of the system: what the base is changed to where the part is left out, or put in."""

    without: dict[str, JsonValue] = Field(default_factory=dict)
    """Overrides of the base where the part is left out; left out itself where the base lacks the part."""
    with_: dict[str, JsonValue] = Field(default_factory=dict, alias="with")
    """Overrides of the base where the part is there; left out where the base has it."""
    why: str = ""
    """Why the part is looked at, for people."""

    @model_serializer(mode="wrap")
    def _as_it_is_read(self, handler: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        written: dict[str, JsonValue] = handler(self)
        return {name.removesuffix("_"): value for name, value in written.items()}


class Components(FrozenModel):
    """A component ablation: the arms and the claims that follow from its parts are written when the study is read."""

    design: Literal["leave_one_out", "add_one_in", "factorial", "fractional", "path"]
    """leave_one_out: `full` and `no_PART` for each part. add_one_in: `plain` and `with_PART`. factorial: every
    combination of parts. fractional: a fraction of them. path: `source`, `step_1` and so on to `target`, the part of
    each step chosen by a pilot."""
    parts: dict[Name, Part]
    """By name. No two of them change the same field."""
    claim: str
    """VERB METRIC [by at least D]: what removing a part does under leave_one_out, and what having it does under the
    others, where a factorial takes the mean over the other parts, and a path the parts of the steps before as given.
    The verb is worsens, improves or one of a claim."""
    smallest: Annotated[float, Field(ge=0.0)] | None = None
    """The smallest difference that matters; a claim `by at least D` says it already."""
    role: Role = "primary"
    """The family that all these claims are corrected in."""
    scale: Scale = "raw"
    """Scale on which differences are taken."""
    read: Read = "final"
    """Where on its curve the metric is read, as of a hypothesis."""
    better: Better | None = None
    """Which way the metric improves, where this tool does not know it."""
    interactions: Literal["none", "all"] | tuple[str, ...] = "none"
    """Of a factorial or a fraction: claims that two parts interact, for all pairs or for those listed, such as
    [rotary*swiglu]. An interaction is half the difference between the effect of one part with the other and without."""
    generators: dict[Name, str] = Field(default_factory=dict)
    """Of a fraction: part -> product of parts, such as {dropout: rotary*swiglu*norm}, or -rotary*swiglu."""
    resolution: Annotated[int, Field(ge=3, le=6)] | None = None
    """Of a fraction: the least resolution. Without generators those of the smallest such fraction are filled in."""
    seeds: tuple[Seed, ...] = ()
    """Of a path: the pilot seeds; none of them may be a seed of the study. Not written in other designs."""
    choose_by: str = ""
    """Of a path: the metric whose mean over the pilot seeds, at the last step of a run, chooses the part of each step;
    left out, it is the metric of the claim. Not written in other designs."""
    _chosen: dict[str, dict[str, JsonValue]] = PrivateAttr(default_factory=dict)

    @property
    def chosen(self) -> Mapping[str, dict[str, JsonValue]]:
        """Of a path: arm -> {part: the part that its step takes}, as far as the ledger has it."""
        return self._chosen

    def frozen(self, chosen: Mapping[str, dict[str, JsonValue]]) -> Components:
        """The same with the steps that the ledger holds."""
        copy = self.model_copy()
        copy._chosen = dict(chosen)
        return copy

    @property
    def steps(self) -> tuple[str, ...]:
        """Of a path: the arm that each step leads to; none of another design."""
        if self.design != "path":
            return ()
        return (*(f"step_{at}" for at in range(1, len(self.parts))), TARGET)

    @property
    def path(self) -> tuple[str, ...]:
        """Of a path: its parts in the order in which they are taken, as far as the ledger has it."""
        taken: list[str] = []
        for step in self.steps:
            part = self._chosen.get(step, {}).get("part")
            if not isinstance(part, str) or part not in self.parts or part in taken:
                break
            taken.append(part)
        return tuple(taken)

    def follows(self, chosen: Mapping[str, dict[str, JsonValue]]) -> bool:
        """Whether these choices are the beginning of a path: parts of it, each once, from the first step on."""
        return len(self.frozen(chosen).path) == len(chosen)

    @property
    def open_steps(self) -> tuple[str, ...]:
        """Of a path: the arms whose parts the pilot has still to choose."""
        return self.steps[len(self.path) : -1]

    def candidates(self) -> dict[str, tuple[str, str, frozenset[str]]]:
        """Of a path: pilot arm -> (the step that it is tried for, the part it takes, all parts it has), of the steps
        whose start is known. The last step has one candidate, the target, and no pilot."""
        path, found = self.path, {}
        for at, step in enumerate(self.steps[:-1]):
            if at <= len(path):
                for part in self.parts:
                    if part not in path[:at]:
                        found[f"{step}.{part}"] = step, part, frozenset((*path[:at], part))
        return found

    @property
    def fraction(self) -> Fraction | None:
        """The combinations of a factorial or a fraction; none of the designs of one part at a time."""
        if self.design == "factorial":
            return Fraction(tuple(self.parts))
        return read_generators(tuple(self.parts), self.generators) if self.design == "fractional" else None

    def arms(self) -> dict[str, frozenset[str]]:
        """Arm -> the parts that it has."""
        whole, fraction = frozenset(self.parts), self.fraction
        if fraction is not None:
            return {combination(present, self.parts): present for present in fraction.runs()}
        if self.design == "path":
            # Steps that are not known yet stand in the order of the file.
            order = [*self.path, *(part for part in self.parts if part not in self.path)]
            return {SOURCE: frozenset()} | {step: frozenset(order[: at + 1]) for at, step in enumerate(self.steps)}
        if self.design == "leave_one_out":
            return {FULL: whole} | {f"no_{part}": whole - {part} for part in self.parts}
        return {PLAIN: frozenset()} | {f"with_{part}": frozenset({part}) for part in self.parts}

    def overrides(self) -> dict[str, dict[str, JsonValue]]:
        """Arm -> what it overrides."""
        return {arm: self.overrides_of(present) for arm, present in self.arms().items()}

    def overrides_of(self, present: frozenset[str]) -> dict[str, JsonValue]:
        """What a system with these parts alone overrides."""
        return {
            key: value
            for name, part in self.parts.items()
            for key, value in (part.with_ if name in present else part.without).items()
        }

    def reasons(self) -> dict[str, str]:
        """Arm -> why there is such an arm."""
        found = {}
        if self.design == "path":
            return self._reasons_of_steps()
        for arm, present in self.arms().items():
            absent = [part for part in self.parts if part not in present]
            there = [part for part in self.parts if part in present]
            if self.design == "leave_one_out":
                said = f"all but {absent[0]}: what it is worth to the rest" if absent else "the whole system"
            elif self.design == "add_one_in":
                said = f"{there[0]} alone: what it brings by itself" if there else "the system without the parts"
            else:
                sides = (("with", there), ("without", absent))
                said = ", ".join(f"{side} {listed(names)}" for side, names in sides if names)
            single = [*absent] if self.design == "leave_one_out" else there if self.design == "add_one_in" else []
            why = self.parts[single[0]].why.strip() if single else ""
            found[arm] = f"{said} ({why})" if why else said
        return found

    def _reasons_of_steps(self) -> dict[str, str]:
        found = {SOURCE: "the system without the parts"}
        for at, step in enumerate(self.steps, start=1):
            taken = "the pilot chooses it" if step in self.open_steps else "the one that is left"
            if at <= len(self.path):
                why = self.parts[self.path[at - 1]].why.strip()
                taken = self.path[at - 1] + (f" ({why})" if why else "")
            found[step] = f"one part{' more' * (at > 1)}: {taken}"
        return found

    def of_one_part(self) -> tuple[str, ...]:
        """The hypotheses that are about single parts: by their names, of a path by its steps."""
        return tuple(f"step_{at}" for at in range(1, len(self.steps) + 1)) or tuple(self.parts)

    def part_of(self, hypothesis: str) -> str:
        """Of a path: the part that a step takes; empty where it is not known yet, and for anything else."""
        return dict(zip(self.of_one_part(), self.path, strict=False)).get(hypothesis, "")

    def effects(self) -> dict[str, Effect]:
        """Hypothesis -> the effect that it is about: of one part, or the interaction of two; of a path, where no name
        of a part says which, nothing."""
        if self.design == "path":
            return dict.fromkeys((*self.of_one_part(), TOTAL), ())
        found: dict[str, Effect] = {part: (part,) for part in self.parts}
        return found | {"_x_".join(pair): pair for pair in self.interacting()}

    def aliases(self, effect: Effect) -> dict[Effect, int]:
        """What the contrast of an effect estimates besides: interactions of two parts, and of three where no two are
        aliased with it. Empty where nothing of so low an order is, and in designs that are no fraction."""
        fraction = self.fraction
        found = {} if fraction is None else fraction.aliases(effect)
        pairs = {other: sign for other, sign in found.items() if len(other) <= 2}
        return pairs or {other: sign for other, sign in found.items() if len(other) == 3}

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Groups of arms that a claim can name: with:PART, without:PART, both_or_neither:P&Q and only_one:P&Q."""
        if self.fraction is None:
            return {}
        arms = self.arms()
        found = {}
        for effect in [(part,) for part in self.parts] + list(combinations(self.parts, 2)):
            for sign, group in zip((1, -1), _group_names(effect), strict=True):
                found[group] = tuple(arm for arm, present in arms.items() if sign_of(effect, present) == sign)
        return found

    def hypotheses(self, own: Mapping[str, Better]) -> dict[str, Hypothesis]:
        """The claims; `own`: which way the study's own metrics improve. Raises `SpecError` where none can be made."""
        verb, metric, rest = self._claim(own)
        smallest = margin_of(f" {rest}") if self.smallest is None else self.smallest
        if smallest is None:
            required = "the smallest difference that matters, or a claim 'by at least D'"
            raise field_error(("components", "smallest"), "no smallest", required, "smallest: 0.02")
        shared: dict[str, Any] = {"smallest": smallest, "role": self.role, "scale": self.scale}
        shared |= {"read": self.read, "better": self.better}
        found = {}
        for name, effect in self.effects().items():
            left, right = self._sides(name, effect)
            said = f"{verb} {metric} {rest}".strip() if len(effect) < 2 else f"changes {metric}"
            found[name] = Hypothesis(claim=f"{left} {said} than {right}", **shared)
        return found

    def baseline(self) -> str:
        """The arm of the system as it was before: plain where there is one and parts are added, else full; of a path
        its source."""
        arms = self.arms()
        return next(arm for arm in (SOURCE, PLAIN, FULL, *arms) if arm in arms)

    def decision(self) -> list[dict[str, JsonValue]]:
        """The rule of a study that writes none: whether all parts, some or none do as claimed."""
        verb = self.claim.split()[0]
        if self.design == "path":
            return self._decision_of_a_path(verb)
        words = ("every claim is supported", "some claim is refuted", "some claim is supported")
        if self.design == "leave_one_out":
            known = {
                "worsens": ("every part matters", "some part can go", "some part matters"),
                "changes": ("every part matters", "some part can go", "some part matters"),
                "does_not_worsen": ("each part alone can go", "some part matters", "some part can go"),
            }
        else:
            known = {"improves": ("every part helps", "some part does not help", "some part helps")}
        words = known.get(verb, words)
        conditions = (("supported", " and "), ("refuted", " or "), ("supported", " or "))
        lines: list[dict[str, JsonValue]] = [
            {"verdict": verdict, "when": join.join(f"{state}({part})" for part in self.parts)}
            for verdict, (state, join) in zip(words, conditions, strict=True)
            # No data show that a change of any size is nothing.
            if state != "refuted" or (verb, self.smallest) != ("changes", 0.0)
        ]
        return [*lines, {"verdict": "inconclusive"}]

    def _decision_of_a_path(self, verb: str) -> list[dict[str, JsonValue]]:
        """Whether target and source differ as claimed, and whether every step does."""
        words = ("every claim is supported", "the total is supported", "the total is refuted")
        if verb == "improves":
            words = ("the target is better, and every step helps", "the target is better", "the target is not better")
        every = " and ".join(f"supported({name})" for name in (TOTAL, *self.of_one_part()))
        whens = (every, f"supported({TOTAL})", f"refuted({TOTAL})")
        lines: list[dict[str, JsonValue]] = [
            {"verdict": verdict, "when": when}
            for verdict, when in zip(words, whens, strict=True)
            if not when.startswith("refuted") or (verb, self.smallest) != ("changes", 0.0)
        ]
        return [*lines, {"verdict": "inconclusive"}]

    def title(self) -> str:
        """For instance `fractional factorial 2^(4-1), resolution IV, of 4 parts: D = A*B*C`."""
        fraction = self.fraction
        kinds = {
            "leave_one_out": "leave one out",
            "add_one_in": "add one in",
            "factorial": "full factorial",
            "fractional": "fractional factorial",
            "path": "path from source to target",
        }
        of = f"{kinds[self.design]}{'' if fraction is None else f' {fraction.text()}'}"
        said = f"{of}{',' * (self.design == 'fractional')} of {counted(len(self.parts), 'part')}"
        set_by = [] if fraction is None else [f"{p} = {generator_text(q, sign)}" for p, q, sign in fraction.generators]
        return f"{said}: {', '.join(set_by)}" if set_by else said

    def _sides(self, name: str, effect: Effect) -> tuple[str, str]:
        if self.design == "path":
            arms = list(self.arms())
            at = len(arms) - 1 if name == TOTAL else self.of_one_part().index(name) + 1
            return arms[at], SOURCE if name == TOTAL else arms[at - 1]
        if self.design == "leave_one_out":
            return f"no_{effect[0]}", FULL
        if self.design == "add_one_in":
            return f"with_{effect[0]}", PLAIN
        return _group_names(effect)

    def interacting(self) -> list[Effect]:
        """The pairs whose interaction is claimed: of pairs that one contrast estimates together, all: the first one."""
        fraction = self.fraction
        if self.interactions == "none" or fraction is None:
            return []
        if self.interactions != "all":
            return [pair_of(text, self.parts) for text in self.interactions]
        found: list[Effect] = []
        for pair in combinations(self.parts, 2):
            aliases = self.aliases(pair)
            if not any(len(other) == 1 or other in found for other in aliases):
                found.append(pair)
        return found

    def _claim(self, own: Mapping[str, Better]) -> tuple[str, str, str]:
        """Verb, metric and the rest of the claim."""
        place = ("components", "claim")
        verb, metric, rest = (*self.claim.split(maxsplit=2), "", "", "")[:3]
        if " than " in f" {rest} " or not metric:
            required = "VERB METRIC [by at least D]: the arms follow from the parts"
            raise field_error(place, f"claim '{self.claim}'", required, "claim: worsens val/loss by at least 0.02")
        if verb in ("worsens", "improves"):
            known = METRICS.get(metric) or TASK_METRICS.get(metric)
            better = self.better or own.get(metric) or (known.better if known is not None else "neither")
            if better == "neither":
                found, required = f"nothing says which way {metric} improves", "better: lower, or better: higher"
                raise field_error(("components", "better"), found, required, "better: lower")
            verb = "lowers" if (verb == "improves") == (better == "lower") else "raises"
        try:
            parse_claim(f"a {verb} {metric} {rest} than b", baseline="b")
        except ClaimError as error:
            verbs = f"{error.required} (or worsens, improves)" if "is not a verb" in error.found else error.required
            raise ClaimError(error.found, required=verbs, fix=error.fix).at(field=place) from None
        return verb, metric, rest


def combination(present: frozenset[str], parts: Mapping[str, Part]) -> str:
    there = [part for part in parts if part in present]
    return PLAIN if not there else FULL if len(there) == len(parts) else f"with_{'-'.join(there)}"


def _group_names(effect: Effect) -> tuple[str, str]:
    """The groups of arms whose means an effect compares."""
    names = "&".join(effect)
    return (
        (f"with:{names}", f"without:{names}") if len(effect) == 1 else (f"both_or_neither:{names}", f"only_one:{names}")
    )


def pair_of(text: str, parts: Mapping[str, Part]) -> Effect:
    """Two parts in the order of the study; empty where the text is no such pair."""
    names = [one.strip() for one in text.split("*")]
    pair = tuple(part for part in parts if part in names)
    return pair if len(names) == 2 == len(pair) else ()
