"""Component ablations: arms, claims and a decision, all written from a list of the parts of a system.

    leave_one_out   the whole system, and the whole system without each part
    add_one_in      the plain system, and the plain system with each part
    factorial       every combination of parts; effects are averaged over the other parts (Fisher 1935, Yates 1937)

They are written when the study is read (`prereg.study.designs.resolve_components`), and the registration holds them
next to `components`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from prereg.errors import ClaimError, field_error
from prereg.frozen import FrozenModel
from prereg.metrics.catalogue import METRICS, TASK_METRICS, Better
from prereg.study.analysis import Hypothesis, Read, Role, Scale
from prereg.study.claim import margin_of, parse_claim
from prereg.study.measure import Name
from prereg.text import counted, listed

Effect = tuple[str, ...]
"""Parts whose product an effect is: one part for its main effect, two for an interaction."""

FULL, PLAIN = "full", "plain"


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

    design: Literal["leave_one_out", "add_one_in", "factorial"]
    """leave_one_out: `full` and `no_PART` for each part. add_one_in: `plain` and `with_PART`. factorial: every
    combination of parts."""
    parts: dict[Name, Part]
    """By name. No two of them change the same field."""
    claim: str
    """VERB METRIC [by at least D]: what removing a part does under leave_one_out, and what having it does under the
    others, where a factorial takes the mean over the other parts. The verb is worsens, improves or one of a claim."""
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
    """Of a factorial: claims that two parts interact, for all pairs or for those listed, such as
    [rotary*swiglu]. An interaction is half the difference between the effect of one part with the other and without."""

    def combinations(self) -> list[frozenset[str]]:
        """The parts that are present in each arm of a factorial, in standard order: the first part changes fastest."""
        return [
            frozenset(part for at, part in enumerate(self.parts) if number >> at & 1)
            for number in range(2 ** len(self.parts))
        ]

    def arms(self) -> dict[str, frozenset[str]]:
        """Arm -> the parts that it has."""
        whole = frozenset(self.parts)
        if self.design == "factorial":
            return {combination(present, self.parts): present for present in self.combinations()}
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

    def effects(self) -> dict[str, Effect]:
        """Hypothesis -> the effect that it is about: of one part, or the interaction of two."""
        found: dict[str, Effect] = {part: (part,) for part in self.parts}
        return found | {"_x_".join(pair): pair for pair in self.interacting()}

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Groups of arms that a claim can name: with:PART, without:PART, both_or_neither:P&Q and only_one:P&Q."""
        if self.design != "factorial":
            return {}
        arms = self.arms()
        found = {}
        for effect in [(part,) for part in self.parts] + list(combinations(self.parts, 2)):
            for sign, group in zip((1, -1), _group_names(effect), strict=True):
                found[group] = tuple(arm for arm, present in arms.items() if _sign_of(effect, present) == sign)
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
            left, right = self._sides(effect)
            said = f"{verb} {metric} {rest}".strip() if len(effect) < 2 else f"changes {metric}"
            found[name] = Hypothesis(claim=f"{left} {said} than {right}", **shared)
        return found

    def baseline(self) -> str:
        """The arm of the system as it was before: plain where there is one and parts are added, else full."""
        arms = self.arms()
        return next(arm for arm in (PLAIN, FULL, *arms) if arm in arms)

    def decision(self) -> list[dict[str, JsonValue]]:
        """The rule of a study that writes none: whether all parts, some or none do as claimed."""
        verb = self.claim.split()[0]
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

    def title(self) -> str:
        """For instance `full factorial 2^3 of 3 parts`."""
        kinds = {
            "leave_one_out": "leave one out",
            "add_one_in": "add one in",
            "factorial": f"full factorial 2^{len(self.parts)}",
        }
        return f"{kinds[self.design]} of {counted(len(self.parts), 'part')}"

    def _sides(self, effect: Effect) -> tuple[str, str]:
        if self.design == "leave_one_out":
            return f"no_{effect[0]}", FULL
        if self.design == "add_one_in":
            return f"with_{effect[0]}", PLAIN
        return _group_names(effect)

    def interacting(self) -> list[Effect]:
        """The pairs whose interaction is claimed."""
        if self.interactions == "none":
            return []
        if self.interactions == "all":
            return list(combinations(self.parts, 2))
        return [pair_of(text, self.parts) for text in self.interactions]

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


def _sign_of(effect: Effect, present: frozenset[str]) -> int:
    """The product of the signs of some parts in one run: + for present, - for absent."""
    return -1 if sum(part not in present for part in effect) % 2 else 1


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
