"""Component ablations: arms, claims and a decision, all written from a list of the parts of a system.

    leave_one_out   the whole system, and the whole system without each part
    add_one_in      the plain system, and the plain system with each part
    factorial       every combination of parts; effects are averaged over the other parts (Fisher 1935, Yates 1937)

A file says `components`, and `written_by_components` writes the rest when the study is read (`prereg.study.macros`). A
lock holds both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from prereg.errors import ClaimError, FieldPath, SpecError, field_error, nearest
from prereg.frozen import FrozenModel, branch, chosen_by
from prereg.metrics.catalogue import Better
from prereg.study.analysis import Hypothesis, Read, Role, Scale
from prereg.study.claim import margin_of, parse_claim
from prereg.study.faults import read_model
from prereg.study.macros import Document, Written
from prereg.study.measure import Name, improves, own_better
from prereg.study.verbs import VERBS
from prereg.text import counted, listed

Effect = tuple[str, ...]
"""Parts whose product an effect is: one part for its main effect, two for an interaction."""

FULL, PLAIN = "full", "plain"
_MOST_ARMS = 512
_MOST_CROSSED = 9


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
    interactions: Annotated[
        Annotated[Literal["none", "all"], branch("text, or a list")] | Annotated[tuple[str, ...], branch("list")],
        chosen_by(text="text, or a list", listed="list"),
    ] = "none"
    """Of a factorial: claims that two parts interact, for all pairs or for those listed, such as [rotary*swiglu]. An
    interaction is half the difference between the effect of one part with the other and without."""

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
            return {_combination(present, self.parts): present for present in self.combinations()}
        if self.design == "leave_one_out":
            return {FULL: whole} | {f"no_{part}": whole - {part} for part in self.parts}
        return {PLAIN: frozenset()} | {f"with_{part}": frozenset({part}) for part in self.parts}

    def overrides(self) -> dict[str, dict[str, JsonValue]]:
        """Arm -> what it overrides in the base, part by part."""
        return {
            arm: {
                key: value
                for name, part in self.parts.items()
                for key, value in (part.with_ if name in present else part.without).items()
            }
            for arm, present in self.arms().items()
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
        smallest = margin_of(f"PART {verb} {metric} {rest}") if self.smallest is None else self.smallest
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
        return [_pair_of(text, self.parts) for text in self.interactions]

    def _claim(self, own: Mapping[str, Better]) -> tuple[str, str, str]:
        """Verb, metric and the rest of the claim."""
        place = ("components", "claim")
        verb, metric, rest = (*self.claim.split(maxsplit=2), "", "", "")[:3]
        if " than " in f" {rest} " or not metric:
            required = "VERB METRIC [by at least D]: the arms follow from the parts"
            raise field_error(place, f"claim '{self.claim}'", required, "claim: worsens val/loss by at least 0.02")
        if verb in ("worsens", "improves"):
            better = self.better or improves(metric, own)
            if better == "neither":
                found, required = f"nothing says which way {metric} improves", "better: lower, or better: higher"
                raise field_error(("components", "better"), found, required, "better: lower")
            verb = "lowers" if (verb == "improves") == (better == "lower") else "raises"
        if verb not in VERBS:
            verbs = (*VERBS, "worsens", "improves")
            found, required = f"'{verb}' where a verb should be", f"one of {', '.join(verbs)}"
            close = nearest(verb, verbs)
            fix = close if close.startswith("did") else "claim: worsens val/loss by at least 0.02"
            raise ClaimError(found, required=required, fix=fix).at(field=place)
        try:
            parse_claim(f"PART {verb} {metric} {rest}".strip(), baseline="")
        except ClaimError as error:
            raise error.at(field=place) from None
        return verb, metric, rest


def _combination(present: frozenset[str], parts: Mapping[str, Part]) -> str:
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


def _pair_of(text: str, parts: Mapping[str, Part]) -> Effect:
    """Two parts in the order of the study; empty where the text is no such pair."""
    names = [one.strip() for one in text.split("*")]
    pair = tuple(part for part in parts if part in names)
    return pair if len(names) == 2 == len(pair) else ()


def written_by_components(document: Document) -> Iterator[Written]:
    """The arms, claims, baseline and decision that `components` leave to this module. Raises `SpecError` where they
    cannot be written."""
    raw, here = document.get("components"), [document.get(kind) or {} for kind in ("variants", "hypotheses")]
    if not isinstance(raw, dict) or not all(isinstance(names, dict) for names in here):
        return
    found, block = components_from(raw), ("components",)
    for arm, overrides in found.overrides().items():
        alone = [part for part in found.parts if arm in (f"no_{part}", f"with_{part}")][:1]
        yield Written(("variants", arm), overrides, (*block, "parts", *alone), inner=_origins(found, arm))
    for name, hypothesis in found.hypotheses(own_better(document)).items():
        inner: dict[FieldPath, FieldPath] = {
            ("hypotheses", name, field): (*block, field) for field in Components.model_fields
        }
        yield Written(("hypotheses", name), hypothesis.model_dump(mode="json"), block, inner=inner, same=_same)
    yield Written(("baseline",), found.baseline(), block, "default")
    if "decision" not in document and found.role == "exploratory":
        raise field_error(
            ("components", "role"),
            "the claims are exploratory, and there is no decision",
            "a decision of the study's own: exploratory claims decide nothing",
            "decision: [{verdict: inconclusive}]",
        )
    yield Written(("decision",), found.decision(), block, "default")


def _same(stored: Any, written: Any) -> bool:
    """Whether two hypotheses as plain data are the same with their defaults filled in."""
    try:
        return read_model(Hypothesis, stored) == read_model(Hypothesis, written)
    except SpecError:
        return False


def _origins(found: Components, arm: str) -> dict[FieldPath, FieldPath]:
    """Each override of an arm -> the part and the side of it that sets it."""
    present = found.arms()[arm]
    return {
        ("variants", arm, key): ("components", "parts", name, "with" if name in present else "without", key)
        for name, part in found.parts.items()
        for key in (part.with_ if name in present else part.without)
    }


def components_from(raw: Mapping[str, Any]) -> Components:
    """The block of a study, checked by itself. Raises `SpecError` placed under `components`."""
    found = read_model(Components, raw, within=("components",))
    _check_parts(found)
    _check_options(found)
    names = (
        [_combination(present, found.parts) for present in found.combinations()] if found.design == "factorial" else []
    )
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise field_error(("components", "parts"), f"two arms would be named '{twice}'", "other names of the parts")
    return found


def _check_parts(found: Components) -> None:
    place: FieldPath = ("components", "parts")
    if len(found.parts) < 2:
        fix = "parts: {rotary: {without: {model.positions: learned}}, ...}"
        raise field_error(place, counted(len(found.parts), "part"), f"at least 2 under {found.design}", fix)
    changed: dict[str, str] = {}
    for name, part in found.parts.items():
        _check_part(name, part, changed)
    if found.design == "factorial" and len(found.parts) > _MOST_CROSSED:
        fix = "fewer parts, several changes in one; or design: leave_one_out"
        raise field_error(place, f"2^{len(found.parts)} arms", f"at most {_MOST_ARMS}", fix)
    if len(found.parts) >= _MOST_ARMS:
        raise field_error(place, f"{len(found.parts)} parts", f"at most {_MOST_ARMS} arms")


def _check_part(name: str, part: Part, changed: dict[str, str]) -> None:
    """One part changes something, and nothing that another one has `changed`, by field; its own fields are added."""
    place: FieldPath = ("components", "parts", name)
    if part.without == part.with_:
        found = f"'{name}' changes {'the same with it and without it' if part.without else 'nothing'}"
        fix = "without: {model.positions: learned}"
        raise field_error(place, found, "overrides of the base without the part, or with it", fix)
    for key in dict.fromkeys([*part.without, *part.with_]):
        other = next((one for one in changed if f"{one}.".startswith(f"{key}.") or f"{key}.".startswith(f"{one}.")), "")
        if other and changed[other] != name:
            raise field_error(
                place,
                f"'{changed[other]}' and '{name}' both change '{key}'",
                "parts that change different fields, so that each can be there without the other",
                "one part of the two; or variants, written by hand",
            )
        changed[key] = name


def _check_options(found: Components) -> None:
    place: FieldPath = ("components",)
    if found.interactions != "none" and found.design != "factorial":
        raise field_error(
            (*place, "interactions"), f"interactions with design: {found.design}", "design: factorial", "leave it out"
        )
    if not isinstance(found.interactions, str):
        earlier: list[Effect] = []
        for at, text in enumerate(found.interactions):
            pair = _pair_of(text, found.parts)
            if not pair or pair in earlier:
                required = "two parts, each pair once"
                raise field_error((*place, "interactions", at), f"'{text}'", required, "*".join([*found.parts][:2]))
            earlier.append(pair)
    taken = next((name for name in ("_x_".join(pair) for pair in found.interacting()) if name in found.parts), None)
    if taken is not None:
        raise field_error(
            (*place, "parts", taken), f"an interaction would be named '{taken}'", "another name of the part"
        )


def components_write_the_rest(schema: dict[str, Any]) -> None:
    """Ask in the schema of a study for components, or for what they write."""
    written = ["baseline", "hypotheses", "decision"]
    schema["required"] = [field for field in schema["required"] if field not in written]
    schema["anyOf"] = [{"required": written}, {"required": ["components"]}]
