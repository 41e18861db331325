"""What the tasks of a study meant at registration: by the hash of their files, as the corpus by that of its text."""

from __future__ import annotations

from prereg.frozen import FrozenModel


class TaskPin(FrozenModel):
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
    """Names of the prompts under which every item is evaluated."""
