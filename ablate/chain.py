"""The chain from study file to report, as plain functions: what the verbs call, and what a notebook calls.

Each function imports its room when it is called, so that `ablate --help` stays fast. The clock enters
here as an argument with a default and goes no further in than the ledger's and records' dates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import JsonValue

    from ablate.judge.design import Design
    from ablate.judge.verdict import Decision
    from ablate.records.evidence import Evidence
    from ablate.run.local import Summary
    from ablate.run.watch import Watcher
    from prereg.ledger import Entry
    from prereg.load import Loaded
    from prereg.looks import Look
    from prereg.register import CorpusPin, Override, Registration
    from prereg.root import Root
    from prereg.spec import Study

Clock = Callable[[], str]


def utc_now() -> str:
    """Now, in UTC, with its offset."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Case:
    """A study file that has been read, and the house it lies in."""

    path: Path
    root: Root
    loaded: Loaded

    @property
    def study(self) -> Study:
        return self.loaded.study


@dataclass(frozen=True)
class Ran:
    """What a call of `run` did."""

    registration: Registration
    registered_now: bool
    summary: Summary
    look: Look | None = None
    """The look that the trained seeds lead up to; none for a fixed number of seeds."""


@dataclass(frozen=True)
class Decided:
    """A decision and where it was told."""

    decision: Decision
    registration: Registration
    head: str
    verdict_path: Path | None
    markdown_path: Path | None
    html_path: Path | None


def open_case(path: Path, root: Path | None = None) -> Case:
    """Read a study file; a bare name is looked for under `studies/`."""
    from prereg.load import load_study
    from prereg.root import Root

    if path.suffix not in (".yaml", ".yml") and not path.exists():
        path = (root or Path()) / "studies" / f"{path.name}.yaml"
    loaded = load_study(path)
    return Case(path, Root.find(path, root), loaded)


def load(path: str | Path) -> Study:
    """The study of a file, resolved and checked."""
    return open_case(Path(path)).study


def check(path: Path, root: Path | None = None) -> Case:
    """Everything that can be known without a corpus: the file is well formed and this version can carry it out."""
    from ablate.support import require_supported

    case = open_case(path, root)
    _placed(case, lambda: require_supported(case.study))
    return case


def design(path: str | Path, *, root: Path | None = None, pilot: str | None = None) -> Design:
    """Operating characteristics of a study's registered rule, by simulation."""
    return characterise(check(Path(path), root), pilot=pilot)


def characterise(case: Case, *, pilot: str | None = None) -> Design:
    """The design of a study, from its own beliefs or from what a pilot's records tell."""
    from ablate.judge.beliefs import learned
    from ablate.judge.design import design as simulate
    from ablate.records.gather import gather

    if pilot is None:
        return simulate(case.study)
    other = open_case(Path(pilot), case.root.path)
    earlier = require_registered(other)
    found: list[Design] = []
    evidence = gather(other.root, earlier)
    _placed(case, lambda: found.append(simulate(case.study, beliefs=learned(case.study, earlier, evidence))))
    return found[0]


def accepted(case: Case, characteristics: Design, reason: str | None) -> Override | None:
    """Refuse a hopeless design, or put on record that the user goes on with it and why."""
    from ablate.judge.design import obstacle
    from prereg.errors import HopelessDesignError, RegistrationError
    from prereg.register import Override

    found = obstacle(characteristics)
    if found is None and reason is None:
        return None
    if found is None:
        raise RegistrationError(
            "--accept-underpowered has nothing to accept: data could lead to every verdict of this design",
            required="the option only where registration is refused",
            fix="leave it out",
        )
    if reason is None or not reason.strip():
        advice = "; or, on record: --accept-underpowered " + '"why it is run all the same"'
        hopeless = HopelessDesignError(found.found, required=found.required, fix=found.fix + advice, where=found.where)
        raise hopeless.at(file=case.path, line=case.loaded.line(found.where.field))
    return Override(obstacle=found.found, reason=reason.strip())


def register(
    path: str | Path,
    *,
    root: Path | None = None,
    now: Clock = utc_now,
    accept_underpowered: str | None = None,
    pilot: str | None = None,
    planned: Design | None = None,
) -> tuple[Registration, Entry | None]:
    """Register a study, or return the registration that already stands (then with no entry).

    `planned` is its design where the caller has it already.
    """
    from ablate.records.provenance import tool_versions
    from prereg import register as promise

    case = check(Path(path), root)
    standing = promise.load_registration(case.root, case.study.study)
    if standing is not None:
        promise.require_unchanged(standing, case.loaded)
        promise.complete(case.root, case.study.study)
        return standing, None
    pin = pin_corpus(case)
    characteristics = planned or characterise(case, pilot=pilot)
    override = accepted(case, characteristics, accept_underpowered)
    return promise.register(
        case.root,
        case.loaded,
        corpus=pin,
        design=characteristics.model_dump(mode="json"),
        tool=tool_versions(),
        at=now(),
        override=override,
    )


def amend(
    path: Path,
    *,
    reason: str,
    root: Path | None = None,
    now: Clock = utc_now,
    accept_underpowered: str | None = None,
    pilot: str | None = None,
) -> tuple[Registration, Entry]:
    """Register a changed study in place of its earlier registration, with a reason."""
    from ablate.records.provenance import tool_versions
    from prereg import register as promise
    from prereg.ledger import Ledger

    case = check(path, root)
    pin = pin_corpus(case)
    characteristics = characterise(case, pilot=pilot)
    override = accepted(case, characteristics, accept_underpowered)
    events = {entry.event for entry in Ledger(case.root.ledger).entries() if entry.study == case.study.study}
    evidence: promise.EvidenceState = "none"
    if events & {"decided", "looked", "peeked"}:
        evidence = "outcomes read"
    elif events & {"started", "sealed", "failed"}:
        evidence = "runs started"
    return promise.amend(
        case.root,
        case.loaded,
        corpus=pin,
        design=characteristics.model_dump(mode="json"),
        tool=tool_versions(),
        at=now(),
        reason=reason,
        evidence=evidence,
        override=override,
    )


def run(
    path: str | Path,
    *,
    root: Path | None = None,
    slots: int | None = None,
    watcher: Watcher | None = None,
    now: Clock = utc_now,
    next_look: bool = False,
    accept_underpowered: str | None = None,
    pilot: str | None = None,
) -> Ran:
    """Register if need be, then train what is left of the plan; of a sequential study, what its next look needs.

    `next_look` says so in words, and is refused for a fixed number of seeds.
    """
    import sys

    from ablate.run.local import default_slots, run_study, study_lock
    from ablate.run.watch import PlainWatcher
    from prereg import register as promise
    from prereg.errors import RunError
    from prereg.ledger import Ledger

    case = check(Path(path), root)
    name = case.study.study
    if next_look and case.study.stopping == "fixed":
        raise RunError(
            f"'{name}' has a fixed number of seeds, and so no next look",
            required="stopping: {looks: [...]} or {evidence: e_process, max_seeds: N}",
            fix=f"ablate run {case.path}",
        )
    standing = promise.load_registration(case.root, name)
    planned: Design | None = None
    if standing is not None:
        promise.require_unchanged(standing, case.loaded)
        require_pinned(case, standing)
        look_to_run_up_to(case, standing)
    else:
        planned = preflight(case, accept_underpowered=accept_underpowered, pilot=pilot)
    onlooker: Watcher = watcher if watcher is not None else PlainWatcher(sys.stderr)
    with study_lock(case.root, name):
        mended = Ledger(case.root.ledger).mend() if case.root.ledger.is_file() else None
        if mended:
            onlooker.note(mended)
        registration, entry = register(
            case.path, root=root, now=now, accept_underpowered=accept_underpowered, pilot=pilot, planned=planned
        )
        if entry is not None:
            onlooker.note(f"registered {name} as {registration.sha256[:8]}, before any run; ledger head {entry.sha256}")
        look = look_to_run_up_to(case, registration)
        summary = run_study(
            case.root, registration, slots=slots or default_slots(), now=now, watcher=onlooker, look=look
        )
    return Ran(registration, entry is not None, summary, look)


def look_to_run_up_to(case: Case, registration: Registration) -> Look | None:
    """The first look not taken yet, or none for a fixed number of seeds. Refused once a look has ended the study."""
    from prereg.errors import RunError
    from prereg.ledger import Ledger
    from prereg.looks import looks_of, next_look, taken_looks

    study = registration.study
    if not looks_of(study):
        return None
    taken = taken_looks(Ledger(case.root.ledger).entries(), registration.sha256)
    look = next_look(study, taken)
    if look is None:
        raise RunError(
            f"'{study.study}' was decided at look {taken[-1].number} of {len(looks_of(study))}",
            required="no seed added after the verdict: more of them would undo the error rate that was promised",
            fix=f"ablate report {case.path}",
        )
    return look


def decide(path: str | Path, *, root: Path | None = None, now: Clock = utc_now) -> Decided:
    """Judge the evidence by the registered rule, log the decision, write the reports."""
    from ablate.judge.decide import decide as judge
    from ablate.judge.view import view
    from ablate.records.gather import gather
    from prereg.canon import sha256_bytes
    from prereg.disk import write_whole
    from prereg.ledger import Ledger

    case = open_case(Path(path), root)
    registration = require_registered(case)
    evidence = gather(case.root, registration)
    decision = judge(registration, evidence)
    evidence, look = view(registration, evidence).evidence, decision.look
    unfit = look is not None and not look.last and decision.status == "inadmissible"
    if evidence.missing or evidence.ledger_faults or unfit:
        # Nothing may be written: either the study is unfinished, or the ledger cannot take an entry.
        return Decided(decision, registration, evidence.ledger_head, None, None, None)
    if look is not None:
        head = _log_look(case, registration, evidence, look, final=decision.status != "continue", at=now())
        if decision.status == "continue":
            return Decided(decision, registration, head, None, None, None)
    verdict = _verdict_bytes(decision)
    body = {
        "status": decision.status,
        "verdict": decision.verdict,
        "verdict_sha256": sha256_bytes(verdict),
        "evidence": decision.evidence,
    }
    # A folder that cannot be written is found before the decision is logged.
    folder = _report_folder(case)
    earlier = [entry for entry in evidence.ledger if entry.event == "decided"]
    if earlier and earlier[-1].registration == registration.sha256 and earlier[-1].body == body:
        entry = earlier[-1]
    else:
        entry = Ledger(case.root.ledger).append(
            "decided", study=case.study.study, registration=registration.sha256, body=body, at=now()
        )
    write_whole(folder / "verdict.json", verdict)
    return _tell(case, registration, entry, decision, evidence)


def _log_look(case: Case, registration: Registration, evidence: Evidence, look: Look, *, final: bool, at: str) -> str:
    """Put a look in the ledger, once; returns the ledger's head. Only that it was taken is said, not what it showed."""
    from prereg.ledger import Ledger

    ledger = Ledger(case.root.ledger)
    body: dict[str, JsonValue] = {
        "look": look.number,
        "of": look.of,
        "seeds": look.n_seeds,
        "evidence": evidence.sha256,
        "final": final,
    }
    if not any(
        entry.event == "looked" and entry.registration == registration.sha256 and entry.body == body
        for entry in evidence.ledger
    ):
        ledger.append("looked", study=case.study.study, registration=registration.sha256, body=body, at=at)
    return ledger.head()


def report(path: str | Path, *, root: Path | None = None) -> Decided:
    """Write the reports of a decision again, from the evidence and the ledger; decides nothing new."""
    from ablate.judge.decide import decide as judge
    from ablate.judge.view import view
    from ablate.records.gather import gather
    from prereg.canon import sha256_bytes
    from prereg.errors import EvidenceError
    from prereg.ledger import Ledger

    case = open_case(Path(path), root)
    registration = require_registered(case)
    entries = [
        entry
        for entry in Ledger(case.root.ledger).entries()
        if entry.event == "decided" and entry.registration == registration.sha256
    ]
    if not entries:
        raise EvidenceError(
            f"'{case.study.study}' has not been decided",
            required="a decision to report",
            fix=f"ablate decide {case.path}",
        )
    evidence = gather(case.root, registration)
    decision = judge(registration, evidence)
    if sha256_bytes(_verdict_bytes(decision)) != entries[-1].body["verdict_sha256"]:
        raise EvidenceError(
            "the evidence on disk does not give the decision in the ledger",
            required=f"the evidence of the decision taken {entries[-1].at}",
            fix=f"ablate verify {case.path}, then ablate decide {case.path}",
        )
    return _tell(case, registration, entries[-1], decision, view(registration, evidence).evidence)


def _verdict_bytes(decision: Decision) -> bytes:
    """The contents of verdict.json."""
    return decision.model_dump_json(indent=2).encode() + b"\n"


def _tell(case: Case, registration: Registration, entry: Entry, decision: Decision, evidence: Evidence) -> Decided:
    """Write report.md and report.html for the decision of a ledger entry."""
    from ablate.gpt import toy
    from ablate.report import html, markdown
    from ablate.report.told import Told
    from prereg.disk import write_whole

    folder = _report_folder(case)
    floors = {"val/loss": toy.entropy_rate()} if registration.corpus and registration.corpus.name == "toy" else {}
    told = Told(
        decision=decision,
        registration=registration,
        evidence=evidence,
        ledger_head=entry.sha256,
        floors=floors,
        generated_at=entry.at,
    )
    markdown_path, html_path = folder / "report.md", folder / "report.html"
    write_whole(markdown_path, markdown.render(told).encode())
    write_whole(html_path, html.render(told).encode())
    return Decided(decision, registration, entry.sha256, folder / "verdict.json", markdown_path, html_path)


def _report_folder(case: Case) -> Path:
    folder = case.root.report(case.study.study)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def require_registered(case: Case) -> Registration:
    """The registration that stands, of an unchanged study."""
    from prereg import register as promise
    from prereg.errors import RegistrationError

    standing = promise.load_registration(case.root, case.study.study)
    if standing is None:
        raise RegistrationError(
            f"'{case.study.study}' is not registered",
            required="a registration before any evidence",
            fix=f"ablate run {case.path}   (registers, then trains)",
        )
    promise.require_unchanged(standing, case.loaded)
    return standing


def preflight(case: Case, *, accept_underpowered: str | None = None, pilot: str | None = None) -> Design:
    """What would stop a registration, found before anything is written; returns the design."""
    pin_corpus(case)
    characteristics = characterise(case, pilot=pilot)
    accepted(case, characteristics, accept_underpowered)
    return characteristics


def pin_corpus(case: Case) -> CorpusPin:
    """What the study's corpus name means now: found, verified, long enough for every arm, measured."""
    from ablate.gpt.batches import Split
    from ablate.gpt.corpus import Library
    from ablate.gpt.tokenizer import CharTokenizer
    from prereg.register import CorpusPin

    name = case.study.training(case.study.baseline).data.corpus
    corpus = Library.of(case.root.corpora).find(name)
    ids = CharTokenizer.of(corpus.text).encode(corpus.text)
    for arm in case.study.arms:
        config = case.study.training(arm)
        Split.of(ids, config.data.validation, config.model.context)
    return CorpusPin(
        name=name,
        sha256=corpus.manifest.sha256,
        size_bytes=corpus.manifest.size_bytes,
        characters=len(corpus.text),
    )


def require_pinned(case: Case, registration: Registration) -> None:
    """The corpus that was registered is here, and is still that text."""
    from prereg.errors import CorpusError

    pin = pin_corpus(case)
    if pin != registration.corpus:
        wanted = registration.corpus.sha256 if registration.corpus else "none"
        raise CorpusError(
            f"corpus '{pin.name}' is now another text (sha256 {pin.sha256})",
            required=f"the registered one, sha256 {wanted}",
        )


def _placed(case: Case, ask: Callable[[], None]) -> None:
    """Give an error about a field the file and line of that field."""
    from prereg.errors import StudyError

    try:
        ask()
    except StudyError as error:
        raise error.at(file=case.path, line=case.loaded.line(error.where.field)) from None
