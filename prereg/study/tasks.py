"""What must hold between the fields of a study that measures zero- and few-shot tasks, each named by its field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prereg.errors import ClaimError, FieldPath, SpecError, Where, nearest
from prereg.frozen import Part
from prereg.metrics.catalogue import TASK_METRICS, TASK_NAMES

if TYPE_CHECKING:
    from prereg.study.spec import Study


OWN_TASKS = "lm_eval:"
"""What begins the names of tasks that the harness itself defines."""
_PACK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_OWN = re.compile(r"lm_eval:[A-Za-z0-9][\w.-]*(,[A-Za-z0-9][\w.-]*)*")


def is_folder(tasks: str) -> bool:
    """Whether the tasks are a folder from the root, and not a name."""
    return not tasks.startswith(OWN_TASKS) and "/" in tasks


def check_harness(study: Study) -> None:
    """Raise `SpecError` for the first broken promise of `measure.harness`."""
    harness = study.measure.harness
    if harness is None:
        return
    place: FieldPath = ("measure", "harness")
    _check_tokenizers(study)
    if len(set(harness.shots)) != len(harness.shots):
        raise _fault(
            (*place, "shots"),
            f"shots {list(harness.shots)} name a number twice",
            required="each number of examples once",
            fix=f"shots: {sorted(set(harness.shots))}",
        )
    parts = harness.tasks.split("/")
    if is_folder(harness.tasks):
        if harness.tasks.startswith("/") or ".." in parts:
            raise _fault(
                (*place, "tasks"),
                f"the folder '{harness.tasks}' does not lie under the root",
                required="a folder of tasks, from the root, so that the study means the same on every machine",
                fix="tasks: tasks/mine",
            )
    elif not (_OWN if harness.tasks.startswith(OWN_TASKS) else _PACK).fullmatch(harness.tasks):
        raise _fault(
            (*place, "tasks"),
            f"'{harness.tasks}' names no tasks",
            required="the name of a pack, a folder with a slash in it, or lm_eval:NAME",
            fix="tasks: blimp",
        )


def _check_tokenizers(study: Study) -> None:
    """Every arm has a tokenizer that turns the text of a task into token ids."""
    for arm in study.arms if study.trainer == "gpt" else ():
        if study.training(arm).data.tokenizer == "own":
            raise _fault(
                ("measure", "harness"),
                f"tasks are texts, and '{arm}' reads token ids (tokenizer: own), whose tokenizer is not here",
                required="tokenizer: char or {bpe: N}, over a corpus of text, for every variant",
                fix="a corpus of text; or no measure.harness",
            )


def check_harness_metric(study: Study, metric: str, place: FieldPath, asked: str) -> None:
    """A metric of the tasks is one that there is, and about shots that are declared."""
    if metric not in TASK_METRICS:
        raise ClaimError(
            f"'{metric}' is not a metric",
            required="a recorded metric of the tasks",
            fix=nearest(metric, TASK_NAMES),
            where=Where(field=place),
        )
    harness, shots = study.measure.harness, TASK_METRICS.number(metric, "shots")
    if harness is not None and shots is not None and shots not in harness.shots:
        raise _fault(
            ("measure", "harness", "shots"),
            f"{asked}, and shots are {list(harness.shots)}",
            required=f"{shots} among the shots",
            fix=f"shots: {sorted({*harness.shots, shots})}",
        )


def _fault(path: FieldPath, found: str, *, required: str = "", fix: str = "") -> SpecError:
    return SpecError(found, required=required, fix=fix, where=Where(field=path))


class TaskPin(Part):
    """The tasks of `measure.harness` as they were found."""

    name: str
    """The name or folder that the study writes."""
    sha256: str
    """Hash over the names and sha256 of all files, and over the prompts; of tasks of the harness itself, over the
    documents that it fetched."""
    n_files: int
    """Files that the hash covers; 0 for tasks of the harness itself."""
    n_tasks: int
    """Tasks."""
    n_items: int
    """Items that are to be scored, all tasks together."""
    n_unencodable: int
    """Of these, items that are left out because the tokenizer cannot write them."""
    n_void: int
    """Items passed over because their choices are the same text."""
    prompts: tuple[str, ...]
    """Names of the prompts under which every item is asked."""
