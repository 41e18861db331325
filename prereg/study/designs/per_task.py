"""Claims for each task (`per: task`): a hypothesis is written out as one hypothesis for each task of the harness.

    no_harm: {claim: fast does_not_worsen harness/accuracy, smallest: 0.02, per: task}

becomes no_harm.TASK about harness/accuracy/TASK for every task of `measure.harness`, in the order of their names. They
are a family of their own, corrected over the tasks, and the decision asks of all or any of them by the one name. They
are written when the file is read, from the pack that lies here, or where it does not from the study's own lock; the
registration holds them one by one, each with its `family`. A file does not say `family`, and in plain data a family
holds what one line writes: a claim corrected alone is not corrected.

Only names of files are read here; items are read, hashed and pinned at registration (`ablate.evaluation.harness`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, get_args

from prereg.errors import FieldPath, field_error
from prereg.metrics.catalogue import ITEM_METRICS, OF_TASKS, task_of
from prereg.registry.paths import Root
from prereg.study import corpora
from prereg.study.analysis import Hypothesis, Role
from prereg.study.macros import Document, Written, expand, hypotheses_of, mapping_at
from prereg.study.measure import OWN_TASKS, is_folder
from prereg.text import counted, listed

if TYPE_CHECKING:
    from prereg.study.spec import Study

PACK_FOLDERS: Final[Mapping[str, str]] = {
    "blimp": "blimp",
    "blimp-prompts": "blimp",
    "zorro": "zorro",
    "zorro-prompts": "zorro",
}
"""Known task packs, and the folder that each lies in."""
PACK_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {"zorro-prompts": ("argument_structure", "island-effects")}
"""What the names of a pack's tasks begin with, where it has not all tasks of its folder."""
_METRIC = re.compile(rf"(?<!\S){OF_TASKS}(?!\S)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*([-.][A-Za-z0-9_]+)*")
_LONGEST = 80
_ROLES: tuple[Role, ...] = get_args(Role)


def pack_folders(root: Root, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Folders that packs are looked for in, in order: those of corpora, and data/ before the user's cache."""
    *nearer, cached = corpora.search_path(root.corpora, environment)
    return [*nearer, root.path / "data", cached]


def task_folder(tasks: str, root: Root, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where a pack, or a folder of tasks, lies; none where it is not here."""
    if is_folder(tasks):
        places = [root.path / tasks]
    else:
        places = [folder / PACK_FOLDERS.get(tasks, tasks) for folder in pack_folders(root, environment)]
    return next((place for place in places if place.is_dir()), None)


def task_names(tasks: str, root: Root, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The tasks of a pack, a folder or a list `lm_eval:NAME,NAME`, in the order of their names; none where the pack is
    not here, or where only the harness could say (a folder of *.yaml)."""
    if tasks.startswith(OWN_TASKS):
        return tuple(sorted({*tasks.removeprefix(OWN_TASKS).split(",")}))
    folder, is_pack = task_folder(tasks, root, environment), tasks in PACK_FOLDERS
    # A folder of the harness' own tasks: its *.yaml may include, group and generate, which only the harness can read.
    if folder is None or (not is_pack and any(folder.rglob("*.yaml"))):
        return ()
    files = [*folder.glob("*.jsonl"), *(folder.glob("*.txt") if is_pack else ())]
    families = PACK_FAMILIES.get(tasks, ("",))
    return tuple(sorted(file.stem for file in files if file.name.startswith(families)))


def refuse_families(document: Document) -> None:
    """Raise `SpecError` where a study file says `family`, which is for the claims that `written_for_tasks` writes."""
    for name, hypothesis in hypotheses_of(document).items():
        if "family" in hypothesis:
            raise field_error(
                ("hypotheses", name, "family"),
                "a family is written by hand, which would take the hypothesis out of the correction over its role",
                "no family in a file: hypotheses of one role are corrected together, and only the claims of a line "
                "`per: task` are a family of their own",
                "delete it; or for one claim a task NAME: {claim: ARM raises harness/accuracy, smallest: 0.02, per: "
                "task}",
            )


def names_tasks(document: Document) -> str:
    """The tasks whose names a document needs before it is a study; empty where it has no line `per: task`. Raises
    `SpecError` where it has one and names no tasks."""
    # Asked before the pack is looked for: most studies have no such line.
    lines = _lines(document)
    if not lines:
        return ""
    tasks = mapping_at(document, "measure", "harness").get("tasks")
    if not isinstance(tasks, str):
        place: FieldPath = ("hypotheses", next(iter(lines)), "per")
        raise field_error(place, "per: task, and no harness is declared", "measure.harness", "harness: {tasks: blimp}")
    return tasks


def written_for_tasks(document: Document, tasks: tuple[str, ...]) -> Iterator[Written]:
    """What every line `per: task` writes: a claim for each task, and what is expected of it. Raises `SpecError` where
    it cannot be written."""
    # What is expected of the line is expected of each of its claims.
    effects = mapping_at(document, "assume", "effects")
    # In the place of the line, so that the registration keeps the order of the file.
    for line, hypothesis in _lines(document).items():
        for name, of_task in _of_line(line, hypothesis, tasks).items():
            yield Written(("hypotheses", name), of_task, ("hypotheses", line), "replaces")
        for task in tasks if line in effects else ():
            place = ("assume", "effects")
            yield Written((*place, f"{line}.{task}"), effects[line], (*place, line), "replaces")


def with_tasks(document: Document, tasks: tuple[str, ...]) -> Document:
    """Plain data of a study with every line `per: task` written out for these tasks."""
    return expand(document, [partial(written_for_tasks, tasks=tasks)]).document


def check_per_task(study: Study) -> None:
    """Raise `SpecError` where hypotheses of a family are not those that one line `per: task` writes.

    Which tasks a pack has is not known here. But all lines are written over the same tasks, those of the one harness,
    so each family has a claim about every task that any claim of the study is about, or that `lm_eval:` lists.
    """
    for name, hypothesis in study.hypotheses.items():
        if hypothesis.per is not None:
            raise field_error(
                ("hypotheses", name, "per"),
                "per: task, and the names of the tasks are not known here",
                "a study read from its file, next to the task pack",
                "ablate check STUDY, in the root of the project",
            )
    # Not by `task_families`: a family named like a role would hide there, among the hypotheses of the role.
    families: dict[str, list[str]] = {}
    for name, hypothesis in study.hypotheses.items():
        if hypothesis.family is not None:
            families.setdefault(hypothesis.family, []).append(name)
    for family, names in families.items():
        _check_family(study, family, names)


def _check_family(study: Study, family: str, names: list[str]) -> None:
    place: FieldPath = ("hypotheses", names[0], "family")
    if family in ("", *study.hypotheses, *_ROLES):
        required = "a name that no hypothesis and no role has"
        raise field_error(place, f"the family is named '{family}'", required, "leave `family` out")
    if fault := _fault_of_family(study, family, names):
        fix = f"{family}: {{..., per: task}}, or leave `family` out"
        raise field_error(place, f"the family '{family}' {fault}", "what a line `per: task` writes", fix)


def _fault_of_family(study: Study, family: str, names: list[str]) -> str:
    """In what a family differs from what one line writes; nothing where it does not."""
    claimed, listed_tasks = study.tasks_claimed, _tasks_listed(study)
    # Else a claim could be put alone into a family of its own, where nothing is corrected.
    same_but_for_the_task = len({_without_task(name, study) for name in names}) == 1
    named_by_task = all(name in claimed and name == f"{family}.{claimed[name]}" for name in names)
    if not same_but_for_the_task or not named_by_task:
        return "holds other claims than one for each task"
    tasks = {claimed[name] for name in names}
    if lacking := sorted({*claimed.values(), *listed_tasks} - tasks):
        return f"has no claim about the task '{lacking[0]}'"
    if listed_tasks and (unlisted := sorted(tasks - listed_tasks)):
        return f"has a claim about the task '{unlisted[0]}', which measure.harness does not list"
    return ""


def said_once(study: Study) -> dict[str, str]:
    """Label -> the hypothesis that is shown for it: every one by its own name, and of a family the first by the
    family's."""
    # setdefault: of a family the first hypothesis stands for all, which differ in the task alone.
    shown: dict[str, str] = {}
    for name, hypothesis in study.hypotheses.items():
        shown.setdefault(hypothesis.family or name, name)
    return shown


def of_any_task(study: Study, label: str, text: str) -> str:
    """What is said of the first hypothesis of a family, without its task; any other text as it is."""
    # Not the beginning of a longer name: /acc of /accuracy.
    names = study.task_families.get(label)
    return text if names is None else re.sub(rf"/{re.escape(study.tasks_claimed[names[0]])}(?!\w)", "", text)


def tasks_of(study: Study, label: str) -> tuple[str, ...]:
    """The tasks of a family; none of a single hypothesis."""
    return tuple(study.tasks_claimed[name] for name in study.task_families.get(label, ()))


def tasks_are_strata(study: Study) -> bool:
    """Whether some claimed mean counts tasks alike and speaks of new items of these very tasks."""
    harness = study.measure.harness
    if study.analysis.estimand == "new_seeds" or harness is None or harness.clusters == "tasks":
        return False
    claimed = [ITEM_METRICS[claim.metric] for claim in study.claims.values() if claim.metric in ITEM_METRICS]
    return any(metric.counts_alike == "tasks" for metric in claimed)


class OfClaim(Protocol):
    """Anything about one hypothesis."""

    @property
    def hypothesis(self) -> str:
        """Its name."""

    @property
    def claim(self) -> str:
        """Its claim, as written."""


T = TypeVar("T", bound=OfClaim)


def by_family(each: Iterable[T]) -> dict[str, list[T]]:
    """What is about single hypotheses, by their names, and about claims per task together, by their line's name."""
    by_label: dict[str, list[T]] = {}
    # By the claim's metric and not by a dot in the name: hypotheses may have names with dots.
    for about in each:
        task = next((task for word in about.claim.split() if (task := task_of(word)) is not None), None)
        label = about.hypothesis if task is None else about.hypothesis.removesuffix(f".{task}")
        by_label.setdefault(label, []).append(about)
    return by_label


def families_listed(study: Study) -> str:
    """Every family with its hypotheses: `primary (gain) and no_harm (one for each of 23 tasks)`."""
    return listed(
        f"{family} (one for each of {counted(len(names), 'task')}; {study.hypotheses[names[0]].role})"
        if family in study.task_families
        else f"{family} ({listed(names)})"
        for family, names in study.families.items()
    )


def _lines(document: Document) -> dict[str, Mapping[str, Any]]:
    """The lines `per: task` of plain data."""
    return {name: each for name, each in hypotheses_of(document).items() if each.get("per") == "task"}


def _of_line(line: str, hypothesis: Mapping[str, Any], tasks: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The hypotheses that one line writes, by their names."""
    place: FieldPath = ("hypotheses", line)
    claim = hypothesis.get("claim")
    # A family and a role are one kind of name: in a gate, and in what is corrected together.
    if line in _ROLES:
        raise field_error(place, f"per: task, and '{line}' is a role", "a name that is no role's")
    if not isinstance(claim, str) or len(_METRIC.findall(claim)) != 1:
        raise field_error(
            (*place, "claim"),
            f"claim '{claim}' for each task",
            "harness/accuracy, or harness/accuracy_shots_N, which a task has of its own",
            "claim: layernorm does_not_worsen harness/accuracy",
        )
    rest = {field: value for field, value in hypothesis.items() if field not in ("per", "claim")}
    by_name = {}
    for task in tasks:
        name = f"{line}.{task}"
        if not _NAME.fullmatch(name) or len(name) > _LONGEST:
            raise field_error(
                place,
                f"the claim about the task '{task}' would be named '{name}'",
                f"at most {_LONGEST} letters, digits and underscores, parts joined by '-' or '.'",
                "a shorter name of the line, or claims written out: harness/accuracy/TASK",
            )
        about_task = _METRIC.sub(lambda metric, task=task: f"{metric[0]}/{task}", claim)  # type: ignore[misc]
        by_name[name] = {"claim": about_task, **rest, "family": line}
    return by_name


def _without_task(name: str, study: Study) -> str:
    """A claim and its settings but for the task."""
    hypothesis, metric = study.hypotheses[name], study.claims[name].metric
    # The metric as a whole: of harness/accuracy/acc not the first "/acc".
    of_all = metric.removesuffix(f"/{task_of(metric)}")
    plain: Hypothesis = hypothesis.model_copy(update={"claim": hypothesis.claim.replace(metric, of_all)})
    return plain.model_dump_json()


def _tasks_listed(study: Study) -> set[str]:
    """The tasks that the study itself lists, after `lm_eval:`; none where they are those of a pack."""
    tasks = "" if study.measure.harness is None else study.measure.harness.tasks
    return set(tasks.removeprefix(OWN_TASKS).split(",")) if tasks.startswith(OWN_TASKS) else set()
