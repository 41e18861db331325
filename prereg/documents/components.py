"""Component ablations in words: the design, and in a fraction what each contrast estimates besides its own effect."""

from __future__ import annotations

from prereg.study.designs.components import Components
from prereg.study.designs.fractions import Effect
from prereg.study.spec import Study
from prereg.text import MINUS, listed

_GROUPS = {
    "with": "the mean of the arms with {}",
    "without": "the mean of the arms without {}",
    "both_or_neither": "the mean of the arms with both or neither of {}",
    "only_one": "the mean of the arms with only one of {}",
}
_OF_A_PART = {
    "leave_one_out": "Each part is left out of the whole system, one at a time, and the rest is kept: a claim is about "
    "a part given all the others.",
    "add_one_in": "Each part is added to the plain system, one at a time: a claim is about a part without the others.",
    "path": "Each step adds one part to those of the steps before it: the claim about a step is about its part given "
    "those, and total is about all parts together.",
}


def group_text(text: str, *, any_part: bool = False) -> str | None:
    """One side of a claim in words, where it is a group of arms: `the mean of the arms with rotary`, or `with the part`
    where one sentence is about every part."""
    kind, _, names = text.partition(":")
    if not names or kind not in _GROUPS:
        return None
    parts = names.split("&")
    return _GROUPS[kind].format(("the part" if len(parts) == 1 else "the two parts") if any_part else listed(parts))


def design_sentences(study: Study) -> str:
    """The design and what its claims are about; nothing where the study has no components."""
    components = study.components
    if components is None:
        return ""
    said = f"Component ablation, {components.title()}."
    if components.fraction is None:
        said += f" {_OF_A_PART[components.design]}"
        return (
            f"{said} The path: {', then '.join(components.path)}." if study.settings_known and components.path else said
        )
    said += (
        " The effect of a part is the mean of the arms with it minus the mean of the arms without it: an average over "
        "the other parts."
    )
    if components.interactions != "none":
        said += " An interaction is half the difference between the effect of a part with the other and without it."
    if components.design == "fractional":
        said += (
            " Not every combination is run, so one contrast estimates the sum of several effects: a claim about a part "
            "is about that sum, and about the part alone only where the others are nothing."
        )
    return said


def part_note(study: Study, name: str) -> str:
    """Which part a step of a path takes, where it is known; else nothing."""
    part = study.part_of(name)
    return f"this step takes {part}" if part else ""


def effect_text(effect: Effect) -> str:
    """`rotary`, or `rotary*swiglu`."""
    return "*".join(effect)


def estimated(components: Components, effect: Effect) -> str:
    """All that the contrast of an effect estimates, up to the order that is shown: `rotary + swiglu*norm`."""
    others = (f" {'+' if sign > 0 else MINUS} {effect_text(one)}" for one, sign in components.aliases(effect).items())
    return effect_text(effect) + "".join(others)


def alias_note(study: Study, name: str) -> str:
    """What the contrast of a hypothesis estimates, where that is more than its own effect; else nothing."""
    components = study.components
    if components is None or name not in components.effects():
        return ""
    effect = components.effects()[name]
    return f"the contrast estimates {estimated(components, effect)}" if components.aliases(effect) else ""


def alias_rows(components: Components) -> list[tuple[str, str]]:
    """(effect, what its contrast estimates) of every part, and of pairs that no part is aliased with."""
    if components.design != "fractional":
        return []
    every = components.model_copy(update={"interactions": "all"}).effects()
    return [(effect_text(effect), estimated(components, effect)) for effect in every.values()]


ALIASES_LEFT_OUT = (
    "Interactions of three parts are shown where none of two is aliased with the effect; those of higher order are "
    "left out."
)
