"""`ablate register`, `amend`, `design`: pins, design, what would stop it; written by `prereg/registry/register.py`.

`prereg.registering` does the same for other tools, without a design or corpora; `ablate.cli.registering` has the
commands.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from ablate.checking import check
from ablate.pinning import Pinned, pin
from ablate.workspace import HERE, StudyContext, StudySource, Workspace, load, placed, require_registered
from prereg.errors import RegistrationError, StudyFileError, UndecidableDesignError, Where
from prereg.registry.disk import write_whole
from prereg.registry.ledger_entry import PromiseEntry

if TYPE_CHECKING:
    from ablate.judge.design.characteristics import Design
    from ablate.notebook.design import ShownDesign
    from prereg.documents.facts import StudyFacts
    from prereg.registry.ledger_entry import AmendedEntry, Entry, Override
    from prereg.registry.registration import Registration

Registered = TypeVar("Registered")


def design(study: StudySource, *, workspace: Workspace = HERE, pilot: str | None = None) -> ShownDesign:
    """Operating characteristics of a study's registered rule, by simulation: of a file, or of a study in memory.

    Raises `StudyError` for a study that this version cannot carry out, and for a `pilot` of a study without a file.

    >>> ablate.design("studies/own.yaml")
    Design(study='own', test='paired_t', n_seeds=3, n_runs=6)
    """
    from ablate.notebook.design import ShownDesign

    if pilot is not None or isinstance(study, (str, Path)):
        return ShownDesign.of(characterise(check(study, workspace), pilot=pilot))
    from ablate.capabilities import require_supported
    from ablate.judge.design.characteristics import simulate_design as simulate

    in_memory = load(study)
    require_supported(in_memory)
    return ShownDesign.of(simulate(in_memory))


def characterise(context: StudyContext, *, pilot: str | None = None) -> Design:
    """The design of a study, from its own beliefs or from what a pilot's records tell."""
    from ablate.judge.design.assumptions import learned
    from ablate.judge.design.characteristics import simulate_design as simulate
    from ablate.records.gather import gather

    if pilot is None:
        return simulate(context.study)
    # A pilot lies in the root of its study.
    pilot_context = replace(context.workspace, root=context.root.path).open(Path(pilot))
    earlier = require_registered(pilot_context)
    evidence = gather(pilot_context.root, earlier)
    return placed(context, lambda: simulate(context.study, beliefs=learned(context.study, earlier, evidence)))


def accepted(context: StudyContext, characteristics: Design, reason: str | None) -> Override | None:
    """Refuse an undecidable design, or put on record that the user goes on with it and why."""
    from ablate.judge.design.refusal import obstacle
    from prereg.registry.ledger_entry import Override

    # Of a decidable design there is nothing to accept, and a reason for it would read like one; of an undecidable one
    # the reason is required.
    refusal = obstacle(characteristics)
    if refusal is None and reason is None:
        return None
    if refusal is None:
        raise RegistrationError(
            "--accept-underpowered has nothing to accept: data could lead to every verdict of this design",
            required="the option only where registration is refused",
            fix="leave it out",
        )
    if reason is None or not reason.strip():
        advice = "; or, on record: --accept-underpowered " + '"why it is run all the same"'
        undecidable = UndecidableDesignError(
            refusal.found, required=refusal.required, fix=refusal.fix + advice, where=refusal.where
        )
        raise undecidable.at(file=context.path, line=context.loaded.line(refusal.where.field))
    return Override(obstacle=refusal.found, reason=reason.strip())


@dataclass(frozen=True)
class Prepared:
    """All that a registration of a study takes, found before anything is written."""

    context: StudyContext
    pinned: Pinned
    design: Design
    override: Override | None
    """Why it is registered although its design is undecidable, where it is."""

    def write(self, promise: Callable[..., Registered]) -> Registered:
        """Write lock and ledger by `promise`, and keep tokenizers and page."""
        from ablate.records.provenance import tool_versions
        from prereg.documents.page import keep_page

        context = self.context
        # Before the lock: git must not collect a commit that a registration names.
        self.pinned.keep_commits(context.root, context.study.study)
        written = promise(
            context.root,
            context.loaded,
            pins=self.pinned.pins,
            design=self.design.model_dump(mode="json"),
            tool=tool_versions(),
            at=context.now(),
            override=self.override,
        )
        # After it: tokenizers and the page can be made again, and a registration is valid without them.
        self.pinned.keep(context.root)
        keep_page(context.root, context.study.study)
        return written


def prepare(context: StudyContext, *, accept_underpowered: str | None = None, pilot: str | None = None) -> Prepared:
    """What would stop a registration is found here: bytes that are not there, and a design that cannot decide."""
    # Bytes first, which takes seconds; the simulation of the design takes up to minutes.
    pinned = pin(context)
    characteristics = characterise(context, pilot=pilot)
    return Prepared(context, pinned, characteristics, accepted(context, characteristics, accept_underpowered))


def register(
    study: StudySource,
    *,
    workspace: Workspace = HERE,
    accept_underpowered: str | None = None,
    pilot: str | None = None,
) -> tuple[Registration, Entry | None]:
    """Register a study, or return the registration that is already in force (then with no entry).

    Raises `StudyError` for a study that this version cannot carry out, whose design cannot decide, or that was
    registered otherwise.

    >>> registration, entry = ablate.register("studies/own.yaml")
    >>> registration.study.seeds, entry  # registered before
    ((1, 2, 3), None)
    """
    context = check(study, workspace)
    return register_once(context, partial(prepare, context, accept_underpowered=accept_underpowered, pilot=pilot))


def register_once(context: StudyContext, prepared: Callable[[], Prepared]) -> tuple[Registration, Entry | None]:
    """The registration in force, or the one that is made now, which is `prepared` only then."""
    from prereg.documents.page import keep_page
    from prereg.registry import register as promise
    from prereg.registry.history import require_unchanged

    registered = context.load_registration()
    if registered is None:
        return prepared().write(promise.register_study)
    require_unchanged(registered, context.loaded)
    promise.complete(context.root, context.study.study)  # moves a lock that a crash left next to its place
    keep_page(context.root, context.study.study)
    return registered, None


def amend(
    study: StudySource,
    *,
    reason: str,
    workspace: Workspace = HERE,
    accept_underpowered: str | None = None,
    pilot: str | None = None,
) -> tuple[Registration, Entry]:
    """Register a changed study in place of its earlier registration, with a reason; or put other words on record.

    Returns the registration in force and its entry. A change of text alone keeps the promise, and needs no design.
    Raises `RegistrationError` where nothing differs or there is nothing to amend, `StudyError` as `register` does.

        registration, entry = ablate.amend("studies/own.yaml", reason="the second corpus is no longer distributed")
    """
    from ablate.campaigning import refuse_amendment
    from prereg.registry import register as promise

    context = check(study, workspace)
    refuse_amendment(context)
    # Of evidence the ledger knows more than "none", and what it shows counts.
    amended = partial(promise.amend_study, reason=reason, evidence="none")
    registered = context.load_registration()
    if registered is not None and reason.strip():
        pins = pin(context).pins
        if promise.words_alone(promise.changes_since(registered, context.loaded, pins)):
            return amended(context.root, context.loaded, pins=pins, design=None, tool={}, at=context.now())
    return prepare(context, accept_underpowered=accept_underpowered, pilot=pilot).write(amended)


def preview_amendment(study: StudySource, *, workspace: Workspace = HERE) -> AmendedEntry:
    """The entry that `amend` would make now. Raises `RegistrationError` where nothing differs."""
    from ablate.campaigning import refuse_amendment
    from prereg.registry.canon import sha256_bytes
    from prereg.registry.history import as_registered
    from prereg.registry.ledger_entry import AmendedEntry
    from prereg.registry.register import changes_since, evidence_by_now

    context = check(study, workspace)
    refuse_amendment(context)
    name = context.study.study
    # The entry without what only the ledger can give it (hashes of registration and lock, time): those fields stay
    # empty.
    registered = context.load_registration()
    if registered is None:
        fix = f"ablate register {context.path}"
        raise RegistrationError(f"'{name}' is not registered", required="a registration to amend", fix=fix)
    changes = changes_since(registered, as_registered(registered, context.loaded), pin(context).pins)
    evidence, failed_runs = evidence_by_now(context.ledger.entries(), name)
    return AmendedEntry(
        study=name,
        registration="",
        at="",
        lock_sha256="",
        source_sha256=sha256_bytes(context.loaded.source_bytes),
        file=context.root.relative(context.path),
        replaces=registered.sha256,
        reason="",
        evidence=evidence,
        differences=changes,
        failed_runs=failed_runs if evidence == "none" else 0,
    )


def registrations(study: StudySource, workspace: Workspace = HERE) -> tuple[PromiseEntry, ...]:
    """The ledger's entries that registered a study and amended it, oldest first.

    >>> [entry.event for entry in registrations("studies/own.yaml")]
    ['registered']
    """
    return tuple(entry for entry in workspace.open(study).entries if isinstance(entry, PromiseEntry))


FormName = Literal["osf", "markdown"]


@dataclass(frozen=True)
class RegistrationDocument:
    """A document, and what a person must still add."""

    text: str
    draft: bool
    """Whether the study is not registered."""
    blanks: tuple[str, ...]
    """Titles of the fields that are left to a person."""


def export(
    study: StudySource, *, form: FormName, workspace: Workspace = HERE, as_json: bool = False
) -> RegistrationDocument:
    """Describe a registration, or an unregistered study as a draft. A study that changed since is refused.

    >>> document = ablate.export("studies/own.yaml", form="osf")
    >>> document.draft, document.blanks[:1]
    (False, ('Foreknowledge of the data',))
    """
    from prereg.documents.forms import osf
    from prereg.documents.page import markdown, sections
    from prereg.documents.sentences import macro
    from prereg.escape import json_visible

    facts = _facts(study, workspace)
    if form == "markdown":
        summary = {"status": macro("status", facts)} | sections(facts)  # the page's parts by name, for a tool
        text = json_visible(json.dumps(summary, indent=2, ensure_ascii=False)) + "\n" if as_json else markdown(facts)
        return RegistrationDocument(text, facts.draft, ())
    # The form of OSF has questions that no study's file answers: those stay blank, and are named.
    filled = osf(facts)
    blanks = tuple(field.title for field in filled.fields if field.blank)
    return RegistrationDocument(filled.json() if as_json else filled.markdown(), facts.draft, blanks)


def save(text: str, path: Path) -> None:
    """Write a document; a file that says something else is left alone, for it may hold a person's answers.

    >>> save("# Registration", Path("page.md"))
    >>> Path("page.md").read_text()
    '# Registration'
    """
    if path.is_dir():
        raise StudyFileError(
            "a folder", required="the name of a file", fix=f"--out {path / 'document.md'}", where=Where(file=path)
        )
    if path.exists() and (not path.is_file() or path.read_bytes() != text.encode()):
        raise StudyFileError(
            "this file is there already and says something else",
            required="a new file: answers that somebody filled in are not written over",
            fix=f"--out {path.with_stem(path.stem + '-2')}, or move the file away",
            where=Where(file=path),
        )
    write_whole(path, text.encode())


def _facts(study: StudySource, workspace: Workspace) -> StudyFacts:
    from prereg.documents.facts import StudyFacts, registered_facts

    context = workspace.open(study)
    if context.load_registration() is None:
        return StudyFacts(context.study)
    require_registered(context)
    facts = registered_facts(context.root, context.study.study)
    assert facts is not None, context.study.study
    return facts
