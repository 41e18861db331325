"""Git references (`refs/ablate/STUDY/HASH`) that keep a study's commits from being removed by git.

    refs/ablate/STUDY/HASH      one for each commit that the study pinned; no branch, and pushed only by its name

Without one, git removes after some weeks what no branch holds: a commit of the working tree, or one that was amended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prereg.commits.objects import Repository
from prereg.commits.pins import CommitPin

if TYPE_CHECKING:
    from prereg.registry.paths import Root


def keep_commits(root: Root, study: str, pins: Mapping[str, CommitPin]) -> None:
    """Refer to the commits of a study. Raises `RegistrationError` where the repository takes no reference."""
    repository = Repository.around(root.path) if pins else None
    if repository is not None:
        # One call for all references: git then takes all of them or none.
        commits = dict.fromkeys(pin.commit for pin in pins.values())
        lines = "".join(f"update {reference(study, commit)} {commit}\n" for commit in commits)
        repository.output("update-ref", "--no-deref", "--stdin", data=lines.encode())


def reference(study: str, commit: str) -> str:
    """The name of the reference that keeps a commit of a study.

    >>> reference("width", "0" * 40)
    'refs/ablate/width/0000000000000000000000000000000000000000'
    """
    return f"refs/ablate/{study}/{commit}"
