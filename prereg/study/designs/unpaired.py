"""Runs without pairs: arms with seeds of their own, compared by Welch's t (`test: welch`).

A study file then may give `seeds:` as a mapping ARM -> list. It is kept as `seeds`, every seed once, and `arm_seeds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prereg.errors import FieldPath, field_error
from prereg.study.analysis import LEAST_RUNS
from prereg.study.macros import Document, Written
from prereg.text import counted

if TYPE_CHECKING:
    from prereg.study.spec import Study

_ENOUGH = (
    f"{LEAST_RUNS} runs or more of every arm, and better five: from two, a test without pairs calls up to 12% of true "
    "nulls different instead of 5%"
)


def written_for_arm_seeds(document: Document) -> Iterator[Written]:
    """Of `seeds: {ARM: list}` the fields `seeds` and `arm_seeds`."""
    seeds, each = document.get("seeds"), document.get("arm_seeds")
    if isinstance(seeds, Mapping):
        for arm, listed in seeds.items():
            if not isinstance(listed, list | tuple) or any(type(seed) is not int or seed < 0 for seed in listed):
                fix = f"{arm}: [1, 2, 3, 4, 5]"
                required = "a list of whole numbers from 0 on"
                raise field_error(("seeds", str(arm)), f"{str(listed)[:80]}", required, fix)
        each = {str(arm): list(listed) for arm, listed in seeds.items()}
        inner: dict[FieldPath, FieldPath] = {("arm_seeds", arm): ("seeds", arm) for arm in each}
        yield Written(("arm_seeds",), each, ("seeds",), inner=inner)
        yield Written(("seeds",), _all_seeds(each), ("seeds",), "sets")


def check_seeds_of_arms(study: Study) -> None:
    """Raise `SpecError` where arms have seeds of their own and these do not fit the arms or the test."""
    if not study.arm_seeds:
        return
    if set(study.arm_seeds) != set(study.arms):
        lacking = [arm for arm in study.arms if arm not in study.arm_seeds]
        unknown = [arm for arm in study.arm_seeds if arm not in study.arms]
        found = f"no seeds for {', '.join(lacking)}" if lacking else f"seeds for {', '.join(unknown)}, which is no arm"
        every = ", ".join(f"{arm}: [...]" for arm in study.arms)
        raise field_error(("seeds",), found, "a list of seeds for every arm", f"seeds: {{{every}}}")
    for arm, seeds in study.arm_seeds.items():
        place = ("seeds", arm)
        if len(seeds) < LEAST_RUNS:
            raise field_error(place, counted(len(seeds), "run"), _ENOUGH, f"{arm}: [1, 2, 3, 4, 5]")
    if list(study.seeds) != _all_seeds(study.arm_seeds):
        raise field_error(("arm_seeds",), "other seeds than in seeds", "seeds: every seed of arm_seeds, once")


def check_unpaired(study: Study) -> None:
    """Raise `SpecError` where a test without pairs has too few runs."""
    analysis = study.analysis
    if study.paired:
        return
    if not study.arm_seeds and len(study.seeds) < LEAST_RUNS:
        raise field_error(("seeds",), counted(len(study.seeds), "run") + " of each arm", _ENOUGH, "[1, 2, 3, 4, 5]")
    if analysis.least_pairs is not None and analysis.least_pairs < LEAST_RUNS:
        raise field_error(
            ("analysis", "least_pairs"), f"least_pairs is {analysis.least_pairs}", _ENOUGH, f"least_pairs: {LEAST_RUNS}"
        )


def _all_seeds(each: Mapping[str, Iterable[int]]) -> list[int]:
    return list(dict.fromkeys(seed for seeds in each.values() for seed in seeds))
