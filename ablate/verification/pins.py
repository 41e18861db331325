"""Pins of a lock, verified: corpora, tokenizers, code and tasks that it names and does not hold.

None of them need be on this disk.
"""

from __future__ import annotations

from collections.abc import Iterator

import prereg.verification
from prereg.errors import StudyError
from prereg.registry.paths import Root
from prereg.registry.registration import Registration
from prereg.study.designs.per_task import task_folder
from prereg.study.measure import OWN_TASKS
from prereg.verification import Item, item, not_checked


def pin_items(root: Root, registration: Registration) -> Iterator[Item]:
    """An item for each thing that is pinned, and a second one for the part of it that is not here."""
    yield from prereg.verification.check_pins(root, registration)
    harness = registration.study.measure.harness
    if registration.tasks is not None and harness is not None:
        yield _tasks(root, registration.study.study, harness.tasks, registration.tasks.sha256)


def _tasks(root: Root, study: str, name: str, registered: str) -> Item:
    """The files of zero- and few-shot tasks, every one of which is read."""
    # Here and not above: most studies measure no tasks.
    from ablate.evaluation.harness.packs import find_pack

    what = f"tasks '{name}'"
    if name.startswith(OWN_TASKS):
        return not_checked(study, what, "fetched by the harness, which checks them", "ablate run STUDY")
    if task_folder(name, root) is None:
        return not_checked(study, what, "not here", f"put them below {root.relative(root.corpora.parent)}")
    try:
        pack = find_pack(name, root).sha256
    except StudyError as error:
        return item(study, what, root.shortened(error.found))
    # The hash is of the files and the prompts (`Pack.sha256`): a changed prompt asks another question.
    changed = (f"the tasks '{name}' are not those that were registered",) if pack != registered else ()
    return item(study, what, *changed, note="the registered tasks")
