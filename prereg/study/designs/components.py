"""Component ablations (`components`): arms, claims and a decision, all written from a list of the parts of a system.

    leave_one_out   the whole system, and the whole system without each part
    add_one_in      the plain system, and the plain system with each part
    factorial       every combination of parts; effects are averaged over the other parts (Fisher 1935, Yates 1937)

A file says `components`, and `written_by_components` writes the rest when the study is read (`prereg.study.macros`). A
lock holds both.

To add a design: its name in `Components.design`, a row of `_DESIGNS` if one arm is compared with each of the others,
and its studies in tests/designs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from prereg.errors import ClaimError, FieldPath, SpecError, field_error, nearest
from prereg.frozen import FrozenModel, branch, chosen_by
from prereg.metrics.catalogue import Better, without_side
from prereg.study.analysis import Hypothesis, Read, Role, Scale
from prereg.study.claim import margin_of, parse_claim
from prereg.study.faults import read_model
from prereg.study.macros import Document, Written, improves
from prereg.study.measure import Name
from prereg.study.verbs import VERBS
from prereg.text import counted, listed

Effect = tuple[str, ...]
"""Parts whose product an effect is: one part for its main effect, two for an interaction."""

FULL, PLAIN = "full", "plain"
_MOST_ARMS = 512
_MOST_CROSSED = 9
"""Parts of a factorial: 2^9 arms are the most that a study has."""


class _Design(NamedTuple):
    """A design that compares one arm, the reference, with one arm for each part."""

    reference: str
    reference_has_parts: bool
    about_reference: str
    arm: str
    """Name of a part's arm: the reference with that one part taken out, or put in."""
    about: str
    verdicts: Mapping[str, tuple[str, str, str]]
    """Verb of the claim -> the verdict where every claim is supported, where some is refuted, where some is supported;
    a verb that is not here gets those of `_VERDICTS`."""


_OF_REMOVALS = ("every part matters", "some part can go", "some part matters")
_DESIGNS = {
    "leave_one_out": _Design(
        FULL,
        True,
        "the whole system",
        "no_{part}",
        "all but {part}: what it is worth to the rest",
        {
            "worsens": _OF_REMOVALS,
            "changes": _OF_REMOVALS,
            "does_not_worsen": ("each part alone can go", "some part matters", "some part can go"),
        },
    ),
    "add_one_in": _Design(
        PLAIN,
        False,
        "the system without the parts",
        "with_{part}",
        "{part} alone: what it brings by itself",
        {"improves": ("every part helps", "some part does not help", "some part helps")},
    ),
}
"""A factorial is no such design: its effects are differences of means over groups of arms."""
_VERDICTS = ("every claim is supported", "some claim is refuted", "some claim is supported")


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
        # `with` is a word of Python: the field is `with_`, and the file and the lock say `with`.
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
        # Bit k of the arm's number says whether part k is there (Yates 1937).
        return [
            frozenset(part for at, part in enumerate(self.parts) if number >> at & 1)
            for number in range(2 ** len(self.parts))
        ]

    def arms(self) -> dict[str, frozenset[str]]:
        """Arm -> the parts that it has."""
        design = _DESIGNS.get(self.design)
        if design is None:
            return {_combination(present, self.parts): present for present in self.combinations()}
        # reference ^ {part} takes the part out where the reference has it, and puts it in where it has not.
        reference = frozenset(self.parts if design.reference_has_parts else ())
        return {design.reference: reference} | {design.arm.format(part=part): reference ^ {part} for part in self.parts}

    def changes(self, present: Collection[str]) -> Iterator[tuple[FieldPath, str, JsonValue]]:
        """What an arm with these parts overrides in the base: where the block says it, the field, its value."""
        for name, part in self.parts.items():
            side, overrides = ("with", part.with_) if name in present else ("without", part.without)
            for key, value in overrides.items():
                yield ("components", "parts", name, side, key), key, value

    def reasons(self) -> dict[str, str]:
        """Arm -> why there is such an arm."""
        design = _DESIGNS.get(self.design)
        reasons = {}
        for arm, present in self.arms().items():
            absent = [part for part in self.parts if part not in present]
            there = [part for part in self.parts if part in present]
            if design is None:
                sides = (("with", there), ("without", absent))
                reasons[arm] = ", ".join(f"{side} {listed(names)}" for side, names in sides if names)
            elif arm == design.reference:
                reasons[arm] = design.about_reference
            else:
                (part,) = absent if design.reference_has_parts else there
                why = self.parts[part].why.strip()
                reasons[arm] = design.about.format(part=part) + (f" ({why})" if why else "")
        return reasons

    def effects(self) -> dict[str, Effect]:
        """Hypothesis -> the effect that it is about: of one part, or the interaction of two."""
        of_parts: dict[str, Effect] = {part: (part,) for part in self.parts}
        return of_parts | {"_x_".join(pair): pair for pair in self.interacting()}

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Groups of arms that a claim can name: with:PART, without:PART, both_or_neither:P&Q and only_one:P&Q."""
        if self.design != "factorial":
            return {}
        arms = self.arms()
        groups = {}
        # Groups of every part and pair, claimed or not: a claim written by hand may name any of them.
        for effect in [(part,) for part in self.parts] + list(combinations(self.parts, 2)):
            for sign, group in zip((1, -1), _group_names(effect), strict=True):
                groups[group] = tuple(arm for arm, present in arms.items() if _sign_of(effect, present) == sign)
        return groups

    def hypotheses(self, document: Document) -> dict[str, Hypothesis]:
        """The claims; the `document` of the study says which way its metrics improve. Raises `SpecError` where no
        claim can be made."""
        verb, metric, rest = self._claim(document)
        smallest = margin_of(f"PART {verb} {metric} {rest}") if self.smallest is None else self.smallest
        if smallest is None:
            required = "the smallest difference that matters, or a claim 'by at least D'"
            raise field_error(("components", "smallest"), "no smallest", required, "smallest: 0.02")
        # Every claim has the block's margin, role and reading: parts are compared with each other.
        shared: dict[str, Any] = {"smallest": smallest, "role": self.role, "scale": self.scale}
        shared |= {"read": self.read, "better": self.better}
        hypotheses = {}
        for name, effect in self.effects().items():
            left, right = self._sides(effect)
            # An interaction has no better side: two parts that hinder each other may each be worth having.
            says = f"{verb} {metric} {rest}".strip() if len(effect) < 2 else f"changes {metric}"
            hypotheses[name] = Hypothesis(claim=f"{left} {says} than {right}", **shared)
        return hypotheses

    def baseline(self) -> str:
        """The arm of the system as it was before: plain where there is one and parts are added, else full."""
        arms = self.arms()
        return next(arm for arm in (PLAIN, FULL, *arms) if arm in arms)

    def decision(self) -> list[dict[str, JsonValue]]:
        """The rule of a study that writes none: whether all parts, some or none do as claimed."""
        verb = self.claim.split()[0]
        design = _DESIGNS.get(self.design)
        # A factorial speaks of parts that are there, as adding them does.
        verdicts = (design or _DESIGNS["add_one_in"]).verdicts.get(verb, _VERDICTS)
        conditions = (("supported", " and "), ("refuted", " or "), ("supported", " or "))
        lines: list[dict[str, JsonValue]] = [
            {"verdict": verdict, "when": join.join(f"{state}({part})" for part in self.parts)}
            for verdict, (state, join) in zip(verdicts, conditions, strict=True)
            # No data show that a change of any size is nothing.
            if state != "refuted" or (verb, self.smallest) != ("changes", 0.0)
        ]
        return [*lines, {"verdict": "inconclusive"}]

    def title(self) -> str:
        """For instance `full factorial 2^3 of 3 parts`."""
        n_parts = len(self.parts)
        kind = self.design.replace("_", " ") if self.design in _DESIGNS else f"full factorial 2^{n_parts}"
        return f"{kind} of {counted(n_parts, 'part')}"

    def _sides(self, effect: Effect) -> tuple[str, str]:
        design = _DESIGNS.get(self.design)
        return _group_names(effect) if design is None else (design.arm.format(part=effect[0]), design.reference)

    def interacting(self) -> list[Effect]:
        """The pairs whose interaction is claimed."""
        if self.interactions == "none":
            return []
        if self.interactions == "all":
            return list(combinations(self.parts, 2))
        return [_pair_of(text, self.parts) for text in self.interactions]

    def _claim(self, document: Document) -> tuple[str, str, str]:
        """Verb, metric and the rest of the claim; of `worsens` and `improves` the verb that the metric's side makes."""
        place = ("components", "claim")
        # Padded with empty texts, so that a claim of one or two words comes apart like any other.
        verb, metric, rest = (*self.claim.split(maxsplit=2), "", "", "")[:3]
        if " than " in f" {rest} " or not metric:
            required = "VERB METRIC [by at least D]: the arms follow from the parts"
            raise field_error(place, f"claim '{self.claim}'", required, "claim: worsens val/loss by at least 0.02")
        if verb in ("worsens", "improves"):
            better = self.better or improves(document, metric)
            if better == "neither":
                raise without_side(("components", "better"), metric)
            # Improves and lower is better, or worsens and higher is better: both lower the metric.
            verb = "lowers" if (verb == "improves") == (better == "lower") else "raises"
        if verb not in VERBS:
            verbs = (*VERBS, "worsens", "improves")
            fault, required = f"'{verb}' where a verb should be", f"one of {', '.join(verbs)}"
            close = nearest(verb, verbs)
            fix = close if close.startswith("did") else "claim: worsens val/loss by at least 0.02"
            raise ClaimError(fault, required=required, fix=fix).at(field=place)
        # With a name in the arm's place, so that the caret stands under the user's own words.
        try:
            parse_claim(f"PART {verb} {metric} {rest}".strip(), baseline="")
        except ClaimError as error:
            raise error.at(field=place) from None
        return verb, metric, rest


def _combination(present: frozenset[str], parts: Mapping[str, Part]) -> str:
    """The name of one arm of a factorial: of the parts that it has, in the order of the study."""
    there = [part for part in parts if part in present]
    return PLAIN if not there else FULL if len(there) == len(parts) else f"with_{'-'.join(there)}"


def _sign_of(effect: Effect, present: frozenset[str]) -> int:
    """The product of the signs of some parts in one run: + for present, - for absent."""
    # Yates' rule: the effect of a product is the mean of its + arms minus the mean of its - arms. For two parts that is
    # half the difference of differences.
    return -1 if sum(part not in present for part in effect) % 2 else 1


def _group_names(effect: Effect) -> tuple[str, str]:
    """The groups of arms whose means an effect compares."""
    names = "&".join(effect)
    return (
        (f"with:{names}", f"without:{names}") if len(effect) == 1 else (f"both_or_neither:{names}", f"only_one:{names}")
    )


def _pair_of(text: str, parts: Mapping[str, Part]) -> Effect:
    """Two parts in the order of the study; empty where the text is no such pair."""
    names = [name.strip() for name in text.split("*")]
    pair = tuple(part for part in parts if part in names)
    return pair if len(names) == 2 == len(pair) else ()


def written_by_components(document: Document) -> Iterator[Written]:
    """The arms, claims, baseline and decision that `components` leave to this module. Raises `SpecError` where they
    cannot be written."""
    # Plain data that no model has seen: anything may be in the place of a mapping.
    raw, beside = document.get("components"), [document.get(kind) or {} for kind in ("variants", "hypotheses")]
    if not isinstance(raw, dict) or not all(isinstance(names, dict) for names in beside):
        return  # the models say what is wrong with them
    components, block = components_from(raw), ("components",)
    for arm, present in components.arms().items():
        changes = [*components.changes(present)]
        # An error about the arm as such belongs to its part, where it has one of its own.
        own_part = [part for part in components.parts if arm in (f"no_{part}", f"with_{part}")][:1]
        yield Written(
            ("variants", arm),
            {key: value for _, key, value in changes},
            (*block, "parts", *own_part),
            inner={("variants", arm, key): origin for origin, key, _ in changes},
        )
    for name, hypothesis in components.hypotheses(document).items():
        inner: dict[FieldPath, FieldPath] = {
            ("hypotheses", name, field): (*block, field) for field in Components.model_fields
        }
        yield Written(("hypotheses", name), hypothesis.model_dump(mode="json"), block, inner=inner, same=_same)
    yield Written(("baseline",), components.baseline(), block, "default")
    if "decision" not in document and components.role == "exploratory":
        raise field_error(
            ("components", "role"),
            "the claims are exploratory, and there is no decision",
            "a decision of the study's own: exploratory claims decide nothing",
            "decision: [{verdict: inconclusive}]",
        )
    yield Written(("decision",), components.decision(), block, "default")


def _same(stored: Any, written: Any) -> bool:
    """Whether two hypotheses as plain data are the same with their defaults filled in."""
    try:
        return read_model(Hypothesis, stored) == read_model(Hypothesis, written)
    except SpecError:
        return False


def components_from(raw: Mapping[str, Any]) -> Components:
    """The block of a study, checked by itself. Raises `SpecError` placed under `components`."""
    components = read_model(Components, raw, within=("components",))
    _check_parts(components)
    _check_options(components)
    # Parts a-b and a, b give the same name of an arm, with_a-b.
    factorial = components.combinations() if components.design == "factorial" else []
    names = [_combination(present, components.parts) for present in factorial]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise field_error(("components", "parts"), f"two arms would be named '{twice}'", "other names of the parts")
    return components


def _check_parts(components: Components) -> None:
    place: FieldPath = ("components", "parts")
    n_parts = len(components.parts)
    if n_parts < 2:
        fix = "parts: {rotary: {without: {model.positions: learned}}, ...}"
        raise field_error(place, counted(n_parts, "part"), f"at least 2 under {components.design}", fix)
    part_by_field: dict[str, str] = {}
    for name, part in components.parts.items():
        _check_part(name, part, part_by_field)
    if components.design == "factorial" and n_parts > _MOST_CROSSED:
        fix = "fewer parts, several changes in one; or design: leave_one_out"
        raise field_error(place, f"2^{n_parts} arms", f"at most {_MOST_ARMS}", fix)
    # One arm for each part, and the reference.
    if n_parts >= _MOST_ARMS:
        raise field_error(place, f"{n_parts} parts", f"at most {_MOST_ARMS} arms")


def _check_part(name: str, part: Part, part_by_field: dict[str, str]) -> None:
    """One part changes something, and nothing that another one changes; its own fields are added to the record."""
    place: FieldPath = ("components", "parts", name)
    if part.without == part.with_:
        fault = f"'{name}' changes {'the same with it and without it' if part.without else 'nothing'}"
        fix = "without: {model.positions: learned}"
        raise field_error(place, fault, "overrides of the base without the part, or with it", fix)
    for key in dict.fromkeys([*part.without, *part.with_]):
        # `opt` and `opt.name` are one field too: the outer override replaces the inner one.
        overlapping = (
            field for field in part_by_field if f"{field}.".startswith(f"{key}.") or f"{key}.".startswith(f"{field}.")
        )
        owner = part_by_field.get(next(overlapping, ""), name)
        if owner != name:
            raise field_error(
                place,
                f"'{owner}' and '{name}' both change '{key}'",
                "parts that change different fields, so that each can be there without the other",
                "one part of the two; or variants, written by hand",
            )
        part_by_field[key] = name


def _check_options(components: Components) -> None:
    place: FieldPath = ("components",)
    if components.interactions != "none" and components.design != "factorial":
        raise field_error(
            (*place, "interactions"),
            f"interactions with design: {components.design}",
            "design: factorial",
            "leave it out",
        )
    # Of pairs that are listed: two parts of the study, and none twice (a*b is b*a).
    if not isinstance(components.interactions, str):
        earlier: list[Effect] = []
        for at, text in enumerate(components.interactions):
            pair = _pair_of(text, components.parts)
            if not pair or pair in earlier:
                fix = "*".join([*components.parts][:2])
                raise field_error((*place, "interactions", at), f"'{text}'", "two parts, each pair once", fix)
            earlier.append(pair)
    names = ("_x_".join(pair) for pair in components.interacting())
    taken = next((name for name in names if name in components.parts), None)
    if taken is not None:
        fault = f"an interaction would be named '{taken}'"
        raise field_error((*place, "parts", taken), fault, "another name of the part")


def components_write_the_rest(schema: dict[str, Any]) -> None:
    """Ask in the schema of a study for components, or for what they write."""
    of_components = ["baseline", "hypotheses", "decision"]
    schema["required"] = [field for field in schema["required"] if field not in of_components]
    schema["anyOf"] = [{"required": of_components}, {"required": ["components"]}]
