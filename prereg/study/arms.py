"""Arms: variants or factor levels applied to the base, each override checked against it.

An override names a field of the base by its dotted path. A path that does not exist, a value of the
wrong type and two arms that resolve to the same configuration are mistakes, found here. `commit` is no
field of a configuration: it says which files of the user's repository an arm is started from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import product, takewhile
from math import prod
from typing import Any

from pydantic import JsonValue, ValidationError

from prereg.errors import FieldPath, SpecError, field_error, nearest
from prereg.registry.canon import canonical_bytes
from prereg.study.command import texts_of
from prereg.study.faults import spec_error
from prereg.study.removed import removed_error
from prereg.study.training import Training

Config = Training | dict[str, JsonValue]

_MOST_ARMS = 512
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Arm:
    """One variant: its name, what it overrides, and the configuration that results."""

    name: str
    overrides: Mapping[str, JsonValue]
    config: Config
    commit: str | None = None
    """The commit whose files it is started from, as the study writes it; none where its code is that of the root."""


def resolve_arms(
    base: Config,
    variants: Mapping[str, Mapping[str, JsonValue]],
    factors: Mapping[str, Mapping[str, Mapping[str, JsonValue]]],
    tuned: Collection[str] = (),
) -> dict[str, Arm]:
    """All arms in the order of the file; factor arms are named by their levels, joined by hyphens. Raises `SpecError`
    at the variant or level that does not fit.

    >>> list(resolve_arms({"lr": 0.1, "seed": 0}, {}, {"rate": {"low": {"lr": 0.1}, "high": {"lr": 0.3}}}))
    ['low', 'high']

    An arm that is `tuned` may have the configuration of one that is not, where the pilot starts from it.
    """
    # Before any is made: nine factors of ten levels are a billion arms.
    _check_size(variants, factors)
    arms: dict[str, Arm] = {}
    arm_by_content: dict[tuple[bytes, str | None, bool], str] = {}
    for name, overrides, paths in _cells(variants, factors):
        # No single level is to blame for a combination of them.
        field: FieldPath = ("variants", name) if variants else ("factors",)
        if name in arms or len(name) > _LONGEST_NAME:
            fault = (
                f"two combinations of levels are both named '{name}'"
                if name in arms
                else f"the name '{name[:40]}...' has {len(name)} characters"
            )
            raise field_error(
                field,
                fault,
                f"level names that stay distinct when joined by hyphens, and at most {_LONGEST_NAME} characters in all",
            )
        config, commit = configured(base, overrides, paths)
        # Compared as canonical bytes: to Python, true equals 1.
        dumped = config.model_dump(mode="json") if isinstance(config, Training) else config
        content = canonical_bytes(dumped), commit, name in tuned
        if content in arm_by_content:
            raise field_error(
                field,
                f"'{name}' and '{arm_by_content[content]}' resolve to the same configuration",
                "variants that differ",
                f"remove '{name}', or change what it overrides",
            )
        arm_by_content[content] = name
        arms[name] = Arm(name, overrides, config, commit)
    _require_all_or_none(arms, variants)
    return arms


def _require_all_or_none(arms: Mapping[str, Arm], variants: Mapping[str, object]) -> None:
    without = [name for name, arm in arms.items() if arm.commit is None]
    if not without or len(without) == len(arms):
        return
    with_one = next(arm for arm in arms.values() if arm.commit is not None)
    raise field_error(
        ("variants", without[0]) if variants else ("factors",),
        f"'{with_one.name}' is commit '{with_one.commit}', and '{without[0]}' is none",
        "a commit for every arm, so that each is pinned alike: its own, or that of the base",
        "base: {commit: HEAD, ...}; or commit: WORKTREE, the files as they lie here",
    )


def _check_size(variants: Mapping[str, object], factors: Mapping[str, Mapping[str, object]]) -> None:
    for factor, levels in factors.items():
        if not levels:
            raise field_error(("factors", factor), f"factor '{factor}' has no level", "at least two levels")
    cells = len(variants) if variants else prod(len(levels) for levels in factors.values())
    if cells > _MOST_ARMS:
        raise field_error(("variants",) if variants else ("factors",), f"{cells} variants", f"at most {_MOST_ARMS}")


def _cells(
    variants: Mapping[str, Mapping[str, JsonValue]],
    factors: Mapping[str, Mapping[str, Mapping[str, JsonValue]]],
) -> list[tuple[str, dict[str, JsonValue], dict[str, FieldPath]]]:
    """(name, overrides, where each override is written) of every arm."""
    if variants:
        return [(name, dict(over), {key: ("variants", name, key) for key in over}) for name, over in variants.items()]
    cells = []
    # The last factor changes fastest, so that a file's order of factors is that of its tables.
    for levels in product(*(list(levels) for levels in factors.values())):
        merged: dict[str, JsonValue] = {}
        paths: dict[str, FieldPath] = {}
        for factor, level in zip(factors, levels, strict=True):
            for key, value in factors[factor][level].items():
                if key in merged:
                    raise field_error(
                        ("factors", factor, level, key),
                        f"two factors override '{key}'",
                        "each field moved by one factor",
                    )
                merged[key] = value
                paths[key] = ("factors", factor, level, key)
        cells.append(("-".join(levels), merged, paths))
    return cells


COMMIT = "commit"
"""The override, and the field of the base, that names the commit of an arm."""
_NAME_OF_COMMIT = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@./+#{}^~-]*")


def configured(
    base: Config, overrides: Mapping[str, JsonValue], paths: Mapping[str, FieldPath]
) -> tuple[Config, str | None]:
    """The base with overrides, and the commit that they name. Raises `SpecError`, as `apply_overrides` does."""
    if isinstance(base, Training):
        if COMMIT in overrides:
            raise field_error(
                paths[COMMIT],
                "'commit' with trainer: gpt, whose code is that of ablate itself",
                "arms of the built-in trainer differ by fields of the base; of your own trainer they can be commits",
                "trainer: command",
            )
        return apply_overrides(base, overrides, paths), None
    # `commit` says where the code comes from and is in no configuration: two arms may differ by it alone.
    values = {key: value for key, value in overrides.items() if key != COMMIT}
    config = apply_overrides({key: value for key, value in base.items() if key != COMMIT}, values, paths)
    commit = overrides.get(COMMIT, base.get(COMMIT))
    if commit is not None and not (isinstance(commit, str) and _NAME_OF_COMMIT.fullmatch(commit)):
        is_number = isinstance(commit, int | float) and not isinstance(commit, bool)
        raise field_error(
            paths[COMMIT] if COMMIT in overrides else ("base", COMMIT),
            f"commit is {json.dumps(commit)[:60]}" + (", which YAML takes for a number" if is_number else ""),
            "a tag, branch or hash of a commit as text, or WORKTREE",
            'commit: "1234567"' if is_number else "commit: v1.2",
        )
    return config, commit


def apply_overrides(base: Config, overrides: Mapping[str, JsonValue], paths: Mapping[str, FieldPath]) -> Config:
    """The base with overrides. Raises `SpecError` at the path of the override that does not fit.

    >>> apply_overrides({"optim": {"lr": 0.1}}, {"optim.lr": 0.3}, {"optim.lr": ("variants", "fast", "optim.lr")})
    {'optim': {'lr': 0.3}}
    """
    # A tree of plain data, in which each override replaces a leaf that is there; the models then check the whole.
    tree: dict[str, Any] = base.model_dump(mode="json") if isinstance(base, Training) else deepcopy(base)
    if isinstance(base, Training):
        # What a dump leaves out at its default can be overridden all the same.
        tree["numerics"].setdefault("compile", base.numerics.compile)
    for key, value in overrides.items():
        *parents, leaf = key.split(".")
        # With two overrides of one field, the order of the file would decide; order must mean nothing.
        for depth in range(1, len(parents) + 1):
            outer = ".".join(parents[:depth])
            if outer in overrides:
                raise field_error(paths[key], f"'{outer}' and '{key}' override the same field", "each field moved once")
        branch = tree
        for part in parents:
            below = branch.get(part)
            if not isinstance(below, dict):
                raise _unknown(key, base, tree, paths[key])
            branch = below
        if leaf not in branch:
            raise _unknown(key, base, tree, paths[key])
        # Of the built-in trainer every mapping below a section is a value (`init: {normal: 0.02}`). Of a free mapping
        # one that replaces a mapping by a mapping means the value, and anything else has lost the path to its field.
        section = (
            not parents
            if isinstance(base, Training)
            else isinstance(branch[leaf], dict) and not isinstance(value, dict)
        )
        if section:
            raise field_error(
                paths[key],
                f"'{key}' is a section of the base, not a field",
                "the dotted path of a field under base",
                ", ".join([*texts_of({leaf: branch[leaf]}, key.removesuffix(leaf))][:5]),
            )
        branch[leaf] = value
    if not isinstance(base, Training):
        return tree
    # A budget in tokens holds for every arm: its steps follow from its own batch and context.
    if tree["budget"]["tokens"] is not None and "budget.steps" not in overrides:
        del tree["budget"]["steps"]
    try:
        return Training.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        fault = spec_error(error, Training)
        raise fault.at(field=paths[_blamed(fault.where.field, overrides)]) from None


def _unknown(key: str, base: Config, tree: Mapping[str, Any], path: FieldPath) -> SpecError:
    if isinstance(base, Training) and (removed := removed_error(("base", *key.split(".")), path)):
        return removed
    required = "the dotted path of a field under base"
    return field_error(path, f"'{key}' is not a field of the base", required, nearest(key, texts_of(tree)))


def _blamed(fault: FieldPath, overrides: Mapping[str, JsonValue]) -> str:
    """The override to blame for a fault: the one that shares the longest path with it."""

    def shared(key: str) -> int:
        return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(key.split("."), map(str, fault), strict=False))))

    return max(overrides, key=shared)
