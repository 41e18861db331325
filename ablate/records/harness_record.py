"""What `run.json` says of the tasks that a run was asked: versions, hashes, counts. Scores are in the tables."""

from __future__ import annotations

from prereg.frozen import Part


class HarnessRecord(Part):
    """How one run was asked. Equal over runs but for time and truncation, or runs were asked differently."""

    version: str
    """Version of the harness."""
    tasks: str
    """The tasks' name."""
    tasks_sha256: str
    """Their hash, as in the registration's pin."""
    prompts_sha256: str
    """Hash over prompts, numbers of shots, the examples drawn for every task, and the text for an empty context."""
    arguments_sha256: str
    """Hash over every (context, continuation) that the model was given, in order, with the right answers."""
    precision: str
    """Arithmetic of the answers."""
    n_tasks: int
    """Tasks."""
    n_items: int
    """Items that were scored, all tasks together."""
    n_requests: int
    """Log-likelihoods asked for, over all shots, prompts and choices."""
    unencodable: int
    """Items left out because the tokenizer cannot write them."""
    truncated: int
    """Requests longer than the model's context."""
    wall_s: float
    """Seconds, of building requests and answering them."""
