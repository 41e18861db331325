"""Arms and claims of `components` written into a study that is read, and compared with it wherever a study is made.

A file says `components`, and `with_components` writes the rest. A lock holds both, and `check_components` writes the
rest once more: one cannot be changed without the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prereg.errors import FieldPath, SpecError, field_error
from prereg.study.analysis import Hypothesis
from prereg.study.designs.components import Components, Effect, combination, pair_of
from prereg.study.faults import read_model
from prereg.study.measure import own_better
from prereg.text import counted

if TYPE_CHECKING:
    from prereg.study.spec import Study

_MOST_ARMS = 512
_MOST_CROSSED = 9


def with_components(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Plain data of a study with the arms, claims, baseline and decision that its `components` leave to this module.

    Raises `SpecError` where they cannot be written, or clash with others of the study.
    """
    raw, variants, hypotheses = document.get("components"), document.get("variants"), document.get("hypotheses")
    if not isinstance(raw, dict):
        return document
    found = components_from(raw)
    written: dict[str, Any] = {**document}
    made = {"variants": found.overrides(), "hypotheses": _plain(found.hypotheses(own_better(document)))}
    here = {"variants": variants or {}, "hypotheses": hypotheses or {}}
    if any(not isinstance(names, dict) for names in here.values()):
        return document
    clashes = [(kind, name) for kind, names in made.items() for name in names if name in here[kind]]
    if not clashes:
        written |= {kind: {**names, **here[kind]} for kind, names in made.items()}
    elif len(clashes) < sum(map(len, made.values())):
        raise _clash(*clashes[0])
    written.setdefault("baseline", found.baseline())
    if "decision" not in document:
        if found.role == "exploratory":
            raise field_error(
                ("components", "role"),
                "the claims are exploratory, and there is no decision",
                "a decision of the study's own: exploratory claims decide nothing",
                "decision: [{verdict: inconclusive}]",
            )
        written["decision"] = found.decision()
    return written


def components_from(raw: Mapping[str, Any]) -> Components:
    """The block of a study, checked by itself. Raises `SpecError` placed under `components`."""
    found = read_model(Components, raw, within=("components",))
    _check_parts(found)
    _check_options(found)
    names = (
        [combination(present, found.parts) for present in found.combinations()] if found.design == "factorial" else []
    )
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise field_error(("components", "parts"), f"two arms would be named '{twice}'", "other names of the parts")
    return found


def check_components(study: Study) -> None:
    """Raise `SpecError` where arms or claims are not those that `components` write."""
    if study.components is None:
        return
    if study.factors:
        raise field_error(
            ("factors",),
            "components and factors",
            "one of the two: components write the arms",
            "components: {design: factorial, ...}",
        )
    found = components_from(study.components.model_dump(mode="json"))
    own = {one.name: one.better for one in study.measure.own}
    made: tuple[tuple[str, Mapping[str, Any], Mapping[str, Any]], ...] = (
        ("variants", found.overrides(), study.variants),
        ("hypotheses", found.hypotheses(own), study.hypotheses),
    )
    for kind, written, here in made:
        for name, value in written.items():
            if here.get(name) != value:
                raise _clash(kind, name)


def placed(error: SpecError, components: Components) -> SpecError:
    """An error of a written arm or claim, placed where `components` say what it is written from."""
    field = error.where.field
    if len(field) < 2 or not isinstance(field[1], str):
        return error
    name, place = field[1], ("components",)
    if field[0] == "hypotheses" and name in components.effects():
        known = field[2:3] if field[2:3] and field[2] in Components.model_fields else ()
        return error.at(field=(*place, *known))
    if field[0] == "variants" and name in components.arms():
        present = components.arms()[name]
        for part, one in components.parts.items():
            side = "with" if part in present else "without"
            if field[2:] and field[2] in (one.with_ if side == "with" else one.without):
                return error.at(field=(*place, "parts", part, side, *field[2:]))
        part_alone = [part for part in components.parts if name in (f"no_{part}", f"with_{part}")]
        return error.at(field=(*place, "parts", *part_alone[:1]))
    return error


def _check_parts(found: Components) -> None:
    place: FieldPath = ("components", "parts")
    if len(found.parts) < 2:
        fix = "parts: {rotary: {without: {model.positions: learned}}, ...}"
        raise field_error(place, counted(len(found.parts), "part"), f"at least 2 under {found.design}", fix)
    changed: dict[str, str] = {}
    for name, part in found.parts.items():
        if part.without == part.with_:
            what = "the same with it and without it" if part.without else "nothing"
            required = "overrides of the base without the part, or with it"
            raise field_error(
                (*place, name), f"'{name}' changes {what}", required, "without: {model.positions: learned}"
            )
        for key in dict.fromkeys([*part.without, *part.with_]):
            other = next(
                (one for one in changed if f"{one}.".startswith(f"{key}.") or f"{key}.".startswith(f"{one}.")), ""
            )
            if other and changed[other] != name:
                raise field_error(
                    (*place, name),
                    f"'{changed[other]}' and '{name}' both change '{key}'",
                    "parts that change different fields, so that each can be there without the other",
                    "one part of the two; or variants, written by hand",
                )
            changed[key] = name
    if found.design == "factorial" and len(found.parts) > _MOST_CROSSED:
        fix = "fewer parts, several changes in one; or design: leave_one_out"
        raise field_error(place, f"2^{len(found.parts)} arms", f"at most {_MOST_ARMS}", fix)
    if len(found.parts) >= _MOST_ARMS:
        raise field_error(place, f"{len(found.parts)} parts", f"at most {_MOST_ARMS} arms")


def _check_options(found: Components) -> None:
    place: FieldPath = ("components",)
    if found.interactions != "none" and found.design != "factorial":
        raise field_error(
            (*place, "interactions"), f"interactions with design: {found.design}", "design: factorial", "leave it out"
        )
    if not isinstance(found.interactions, str):
        earlier: list[Effect] = []
        for at, text in enumerate(found.interactions):
            pair = pair_of(text, found.parts)
            if not pair or pair in earlier:
                required = "two parts, each pair once"
                raise field_error((*place, "interactions", at), f"'{text}'", required, "*".join([*found.parts][:2]))
            earlier.append(pair)
    taken = next((name for name in ("_x_".join(pair) for pair in found.interacting()) if name in found.parts), None)
    if taken is not None:
        raise field_error(
            (*place, "parts", taken), f"an interaction would be named '{taken}'", "another name of the part"
        )


def _clash(kind: str, name: str) -> SpecError:
    what = "an arm" if kind == "variants" else "a hypothesis"
    return field_error(
        (kind, name),
        f"components write {what} '{name}', and {kind} hold another one of that name or lack it",
        f"{kind} of other names next to those that components write",
        f"rename '{name}', or the part",
    )


def _plain(hypotheses: Mapping[str, Hypothesis]) -> dict[str, Any]:
    return {name: one.model_dump(mode="json") for name, one in hypotheses.items()}


def components_write_the_rest(schema: dict[str, Any]) -> None:
    """Ask in the schema of a study for components, or for what they write."""
    written = ["baseline", "hypotheses", "decision"]
    schema["required"] = [field for field in schema["required"] if field not in written]
    schema["anyOf"] = [{"required": written}, {"required": ["components"]}]
