"""`prereg.register` and `amend`, for a tool that carries studies out itself; of ablate: `ablate/registering.py`.

The study's trainer is a command of that tool: the files of its code and data, and the commits of its arms, are hashed
here. Corpora, tokenizers and tasks of the built-in trainer are measured by `ablate.registering`, which also simulates
the design. Lock and ledger entry are written by `prereg.registry.register` for both.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from pydantic import JsonValue

from prereg.commits.keeping import keep_commits
from prereg.commits.resolve import resolve_with_changes
from prereg.documents.page import keep_page
from prereg.errors import RegistrationError, Where
from prereg.registry.history import as_registered
from prereg.registry.ledger_entry import Entry, EvidenceState, PromiseEntry
from prereg.registry.paths import Root
from prereg.registry.register import amend_study, register_study
from prereg.registry.registration import Pins, Registration, load_registration
from prereg.study.command import pin_data, pin_scripts
from prereg.study.load import Loaded, load_study


def register(
    study: str | Path, *, design: dict[str, JsonValue] | None = None, tool: dict[str, str] | None = None
) -> tuple[Registration, PromiseEntry]:
    """Freeze the study of a file: its lock, an entry of the ledger, and the registration in words.

    `design` is what is known of power and error rates, `tool` names and versions of what registers; both are kept in
    the lock. Returns the registration and its entry, of an unchanged study those that it has. Raises a child of
    `StudyError`, with nothing written, for a study that is not as registered or whose files are not here.

    >>> registration, entry = register("studies/own.yaml")
    >>> registration.study.seeds, entry.event, entry.file
    ((1, 2, 3), 'registered', 'studies/own.yaml')
    """
    root, loaded, pins = _opened(Path(study))
    at = datetime.now(UTC).isoformat(timespec="seconds")
    written = register_study(root, loaded, pins=pins, design=design, tool=tool or _TOOL, at=at)
    # Last: the page is made of the lock and the ledger as they are after the entry.
    keep_page(root, loaded.study.study)
    return written


def amend(
    study: str | Path,
    *,
    reason: str,
    evidence: EvidenceState = "none",
    design: dict[str, JsonValue] | None = None,
    tool: dict[str, str] | None = None,
) -> tuple[Registration, Entry]:
    """Replace a registration by that of the changed file, on the record: why, what changed, what was known by then.

    `evidence` is what the caller knows; where the ledger knows more, that counts. Returns the registration and its
    entry; where title or question alone are others, the registration stays and the entry is of the new words. Raises
    `RegistrationError` for a study that is not registered, an empty reason and a file in which nothing has changed,
    and as `register`.

    >>> path = Path("studies/own.yaml")
    >>> _ = path.write_text(path.read_text().replace("0.05", "0.04"))
    >>> registration, entry = amend(path, reason="a smaller difference matters")
    >>> [change.field for change in entry.differences], entry.evidence
    (['hypotheses.gain.smallest'], 'outcomes read')
    """
    root, loaded, pins = _opened(Path(study))
    at = datetime.now(UTC).isoformat(timespec="seconds")
    written = amend_study(
        root, loaded, pins=pins, design=design, tool=tool or _TOOL, at=at, reason=reason, evidence=evidence
    )
    # After new words alone, too: title and question are on the page.
    keep_page(root, loaded.study.study)
    return written


_TOOL = {"ablate": version("ablate-prereg")}


def _opened(path: Path) -> tuple[Root, Loaded, Pins]:
    loaded = load_study(path)
    root, study = Root.find(path), loaded.study
    if study.trainer != "command":
        raise RegistrationError(
            f"'{study.study}' is trained by ablate itself, whose corpora and tokenizers are not read here",
            required="a study with trainer: command",
            fix=f"ablate register {path}",
            where=Where(file=path, line=loaded.line(("trainer",))),
        )
    # A registered name keeps its commit, wherever the branch has moved since.
    registered = load_registration(root, study.study)
    commits, changes = resolve_with_changes(study, root, None if registered is None else registered.commits)
    # Kept before the entry: a lock must not name a commit that git may collect.
    keep_commits(root, study.study, commits)
    # Where arms are commits, the code is in the commits and not in the root.
    scripts = () if commits else pin_scripts(root, study)
    pins = Pins(scripts=scripts, data_files=pin_data(root, study), commits=commits, code_changes=changes)
    return root, loaded if registered is None else replace(loaded, study=as_registered(registered, loaded).study), pins
