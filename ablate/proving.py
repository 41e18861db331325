"""`ablate reproduce`: one sealed run made again, held against its record; and `bundle`, `verify`, `report` of a bundle.

What is proved: that the records are those that were sealed and give the verdict that was decided (`verify`, whose
checks are in `ablate.verification`), and that training gives those values again (`reproduce`). To reproduce a run
changes nothing: it is made in a scratch folder, nothing in the project is written, and the ledger gets no entry,
because nothing is decided, chosen or replaced. It reports differences, never values, so that doing it while a study
is unfinished is no look at its outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.pinning import require_pinned
from ablate.workspace import HERE, StudyContext, StudySource, Workspace, require_registered, with_evidence
from prereg.errors import EvidenceError, RunError, SpecError, StudyFileError, Where, nearest
from prereg.registry.disk import scratch
from prereg.registry.paths import Root, resolved
from prereg.text import listed

if TYPE_CHECKING:
    from ablate.judge.verdict import Decision
    from ablate.notebook.results import Decided
    from ablate.records.comparison import Reproduction
    from ablate.records.evidence import Evidence
    from ablate.records.run_record import RunRecord
    from ablate.runner.messages import Message
    from ablate.verification.bundle import Bundled
    from ablate.verification.result import Verification
    from prereg.registry.ledger_entry import Entry
    from prereg.registry.plan import CommandSpec, RunSpec
    from prereg.registry.registration import Registration


def reproduce(
    study: StudySource,
    run: str,
    *,
    steps: int | None = None,
    within: float | None = None,
    keep: Path | None = None,
    workspace: Workspace = HERE,
    onlooker: Callable[[Message], None] | None = None,
) -> Reproduction:
    """Train a recorded run, VARIANT/SEED, again and compare every repeatable metric at every step, and the weights.

    `steps` makes only so many, of the same schedule. `within` is the largest relative difference to accept where equal
    bits are not promised: another processor, other libraries, other code. `keep` keeps the records of the new run.
    Where no sealed run is in `data/runs`, the record is the one in the committed evidence. Raises `RunError` where the
    run fails or cannot be made here, `EvidenceError` where it has no sealed record.

        made = ablate.reproduce("studies/norm.yaml", "rmsnorm/1", steps=100)
        made.exact, made.largest_relative
    """
    # Where data/runs holds no sealed run of the study, the record comes out of its committed evidence.
    with with_evidence(workspace.open(study)) as context:
        return _reproduce(context, run, steps=steps, within=within, keep=keep, onlooker=onlooker)


def _reproduce(
    context: StudyContext,
    run: str,
    *,
    steps: int | None,
    within: float | None,
    keep: Path | None,
    onlooker: Callable[[Message], None] | None,
) -> Reproduction:
    from prereg.registry.looks import is_unfinished

    registration = require_registered(context)
    spec, sealed = recorded_run(context, registration, run)
    _require_possible(context, spec, sealed, steps)
    require_pinned(context, registration)
    # Of an unfinished study nothing may show a value: an absolute difference over a relative one is one.
    unfinished = is_unfinished(registration, context.ledger.entries())
    if keep is not None:
        _require_elsewhere(context, keep)
        if unfinished:
            raise RunError(
                f"--keep while runs of '{context.study.study}' are missing: what it keeps holds the values of the run",
                required="a study of which every planned run has ended",
                fix=f"ablate reproduce {context.path} --run {run}",
            )
        return _held_against(context, spec, sealed, resolved(keep), steps=steps, within=within, onlooker=onlooker)
    with scratch("reproduce") as folder:
        place = folder / "run"
        reproduction = _held_against(context, spec, sealed, place, steps=steps, within=within, onlooker=onlooker)
    if not unfinished:
        return reproduction
    hidden = tuple(metric.model_copy(update={"largest_absolute": None}) for metric in reproduction.metrics)
    return reproduction.model_copy(update={"metrics": hidden})


def _held_against(
    context: StudyContext,
    spec: RunSpec | CommandSpec,
    sealed: RunRecord,
    scratch: Path,
    *,
    steps: int | None,
    within: float | None,
    onlooker: Callable[[Message], None] | None,
) -> Reproduction:
    from time import perf_counter

    from ablate.records.comparison import Reproduction, compare_items, compare_rows, provenance_differences
    from ablate.records.rows import read_rows
    from ablate.records.store import RunFolder
    from ablate.runner.alone import rerun

    started = perf_counter()
    # All of its steps is the whole run, with its end: weights and items are then compared too.
    until = None if steps is None or steps >= sealed.steps else steps
    device = sealed.provenance.device
    made = rerun(spec, scratch, context.root, made_on=device, until=until, onlooker=onlooker)
    record = made.read_record()
    assert record is not None, scratch
    has_ended = record.status in ("done", "diverged")
    place = RunFolder(context.root.run(spec.study, spec.registration, spec.variant, spec.seed))
    rows = made.sealed_rows() if has_ended else read_rows(made.path / "work" / spec.metrics.file, spec.metrics)
    compared = max(sealed.steps, record.steps) if until is None else until
    metrics, left_out = compare_rows(place.sealed_rows(), rows, up_to=compared)
    hashes = (sealed.weights_sha256, record.weights_sha256)
    # Items are scored at the end: a run that was stopped has none to compare.
    items_of_both = (place.sealed_items(), made.sealed_items()) if has_ended else ((), ())
    items, items_apart = compare_items(*items_of_both)
    differences = provenance_differences(sealed.provenance, record.provenance)
    return Reproduction(
        study=spec.study,
        registration=spec.registration,
        variant=spec.variant,
        seed=spec.seed,
        steps=compared,
        of_steps=sealed.steps,
        status_sealed=sealed.status,
        status_again=record.status if has_ended else "beginning",
        unpromised=_unpromised(spec, [difference.part for difference in differences]),
        provenance=differences,
        metrics=metrics,
        left_out=left_out,
        weights="not compared" if None in hashes else "equal" if hashes[0] == hashes[1] else "different",
        items=items,
        items_apart=items_apart,
        within=within,
        seconds=perf_counter() - started,
    )


def _unpromised(spec: RunSpec | CommandSpec, others: list[str]) -> tuple[str, ...]:
    """Why equal bits are not promised."""
    from prereg.registry.plan import RunSpec

    if not isinstance(spec, RunSpec):
        return ("of a user's own trainer, equal bits are the user's promise",)
    why = [] if spec.config.numerics.deterministic else ["numerics.deterministic is false"]
    return (*why, f"{listed(others)} not as in the sealed run") if others else tuple(why)


def recorded_run(
    context: StudyContext, registration: Registration, run: str
) -> tuple[RunSpec | CommandSpec, RunRecord]:
    """The planned run of a name, and its sealed record.

    >>> context = HERE.open("studies/own.yaml")
    >>> spec, record = recorded_run(context, require_registered(context), "fast/1")
    >>> spec.seed, record.status
    (1, 'done')
    """
    from ablate.records.store import RunFolder
    from prereg.registry.plan import plan

    # The plan is that of the registration, whatever the study's file says now.
    specs = {f"{spec.variant}/{spec.seed}": spec for spec in plan(registration)}
    if run not in specs:
        raise RunError(
            f"'{run}' is not a run of '{context.study.study}'",
            required="VARIANT/SEED of a planned run",
            fix=nearest(run, specs),
        )
    spec = specs[run]
    folder = RunFolder(context.root.run(spec.study, spec.registration, spec.variant, spec.seed))
    record = folder.read_record()
    if record is None or record.status not in ("done", "diverged"):
        raise EvidenceError(
            f"run {run} has no sealed record: "
            + ("nothing is here" if record is None else f"its status is {record.status}"),
            required="a run that has ended",
            fix=f"ablate run {context.path}   (or ablate import, where it was made elsewhere)",
        )
    faults = folder.faults(record)  # hashes of its tables and weights, derived again
    if faults:
        raise EvidenceError(faults[0], required="the record that was sealed", fix=f"ablate verify {context.path}")
    return spec, record


def _require_possible(context: StudyContext, spec: RunSpec | CommandSpec, sealed: RunRecord, steps: int | None) -> None:
    """Refuse what could only end in a difference that says nothing."""
    from ablate.records.seals import unlike
    from prereg.registry.plan import RunSpec

    if steps is not None and not isinstance(spec, RunSpec):
        raise RunError(
            "--steps with a user's own trainer, which alone knows what a step is",
            required="the whole run",
            fix=f"ablate reproduce {context.path} --run {spec.variant}/{spec.seed}",
        )
    if unlike(sealed, spec):
        raise EvidenceError(
            f"the record of {spec.variant}/{spec.seed} is of another configuration or registration",
            required="a run of what is registered",
            fix=f"ablate verify {context.path}",
        )


def _require_elsewhere(context: StudyContext, keep: Path) -> None:
    """A new record must not lie where it could be taken for evidence, or over anything."""
    runs = (context.root.path / "data" / "runs").resolve()
    taken = keep.exists() and (not keep.is_dir() or any(keep.iterdir()))
    if taken or resolved(keep).is_relative_to(runs):
        raise RunError(
            f"{keep} is not empty" if taken else f"{keep} lies among the runs of the studies",
            required="a new or empty folder outside data/runs",
            fix="--keep FOLDER with another folder",
        )


def bundle(
    study: StudySource,
    *,
    workspace: Workspace = HERE,
    out: Path | None = None,
    whole_ledger: bool = False,
    weights: bool = False,
    evidence: bool = False,
) -> Bundled:
    """Write the bundle of a registered study, and check it as a stranger would before it is left behind.

    Of a campaign's file the bundle holds the studies of all its proposals, but for the runs of an open one. `out` is
    the file, STUDY.ablate.zip by default. `whole_ledger` includes the entries of other studies, `weights` the final
    weights. `evidence` writes the committed evidence of a decided study, or of a campaign, every sealed run in it, over
    what was committed before. Raises `StudyFileError` where another file is in its place, `EvidenceError` where the
    bundle would fail its own check.

        bundled = ablate.bundle("studies/own.yaml", out=Path("own.ablate.zip"))
        bundled.path, bundled.check.intact
    """
    from ablate.verification.bundle import SUFFIX, write_bundle
    from prereg.campaign.load import is_campaign

    if isinstance(study, str | Path) and Path(study).is_file() and is_campaign(Path(study)):
        return _bundle_campaign(
            Path(study), workspace, out, whole_ledger=whole_ledger, weights=weights, evidence=evidence
        )
    with with_evidence(workspace.open(study)) as context:
        registration = require_registered(context)
        # The evidence of a decided study has one place, in git; any other bundle lies where the user wants it.
        target = out or Path(f"{context.study.study}{SUFFIX}")
        if evidence:
            target = _place_of_evidence(context, registration, chosen=out is not None or weights)
        return write_bundle(
            context.root,
            registration,
            target,
            check=verify,
            whole_ledger=whole_ledger,
            weights=weights,
            replace=evidence,
        )


def _bundle_campaign(
    path: Path, workspace: Workspace, out: Path | None, *, whole_ledger: bool, weights: bool, evidence: bool
) -> Bundled:
    """The bundle of a registered campaign, with all its proposals."""
    from ablate.campaigning import open_campaign
    from ablate.verification.bundle import SUFFIX, write_campaign_bundle
    from ablate.verification.evidence import entries_about

    context = open_campaign(path, workspace=workspace)
    record = context.record()
    if record is None:
        raise EvidenceError(
            f"'{context.campaign.campaign}' is not registered",
            required="a registered campaign",
            fix=f"ablate register {path}",
        )
    target = out or Path(f"{context.campaign.campaign}{SUFFIX}")
    if evidence:
        _require_no_choice(path, chosen=out is not None or weights)
        if record.open is not None or not record.proposals:
            raise EvidenceError(
                f"a proposal of '{record.campaign.campaign}' is open"
                if record.open is not None
                else f"'{record.campaign.campaign}' has no proposal",
                required="proposals that have ended, whose evidence is to be kept",
                fix=f"ablate propose {path}",
            )
        entries = context.ledger.entries()
        # Evidence that lacks runs could not decide every proposal again in a clone.
        _require_every_run(context.root, entries_about(entries, record.campaign.campaign))
        target = context.root.evidence(record.campaign.campaign)
        target.parent.mkdir(parents=True, exist_ok=True)
    return write_campaign_bundle(
        context.root, record, target, check=verify, whole_ledger=whole_ledger, weights=weights, replace=evidence
    )


def _place_of_evidence(context: StudyContext, registration: Registration, *, chosen: bool) -> Path:
    """Where the committed evidence lies, of a decided study of which every sealed run is here."""
    _require_no_choice(context.path, chosen=chosen)
    if not any(entry.event == "decided" and entry.registration == registration.sha256 for entry in context.entries):
        raise EvidenceError(
            f"'{context.study.study}' has not been decided",
            required="a decision whose evidence is to be kept",
            fix=f"ablate decide {context.path}",
        )
    _require_every_run(context.root, context.entries)
    return context.root.evidence(context.study.study)


def _require_no_choice(path: Path, *, chosen: bool) -> None:
    """Refuse another place, or weights, for what is committed."""
    if chosen:
        raise SpecError(
            "--evidence with --out or --weights",
            required="one or the other: what is committed has its place, and holds no weights",
            fix=f"ablate bundle {path} --evidence",
        )


def _require_every_run(root: Root, mine: Sequence[Entry]) -> None:
    """Raise `EvidenceError` unless every sealed run that these entries name is here."""
    from prereg.registry.plan import sealed_places

    # Every run that any registration of the study sealed: what was decided before an amendment is evidence too.
    sealed = [place for runs in sealed_places(root, mine).values() for place in runs]
    if absent := [root.relative(place) for place in sealed if not place.exists()]:
        raise EvidenceError(
            f"{len(absent)} of {len(sealed)} sealed runs are not here, {absent[0]} among them",
            required="every run that the ledger sealed: evidence with gaps would take the place of the whole",
            fix="restore them from where they were made",
        )


def verify(
    target: Path | None = None,
    *,
    workspace: Workspace = HERE,
    signers: Path | None = None,
    roots: Path | None = None,
) -> Verification:
    """Check a study, a bundle, or without a target every study of a repository. A bundle is checked with nothing but
    itself, and whom the reader believes; its reports are written again.

    >>> ablate.verify(Path("studies/own.yaml")).intact
    True
    """
    from ablate.verification.verify import verify_target as check

    return check(target, workspace.root, reports_of=_reports_again, signers=signers, roots=roots)


def report_bundle(path: Path, out: Path | None = None) -> tuple[Verification, tuple[Path, ...]]:
    """Write the reports of a bundle, as this version writes them, into a folder; its check, and the pages.

    The folder is `STUDY.report` next to the bundle unless `out` names one. Nothing is written where the bundle has a
    fault or no decision, or where another file is in the place of a page (`EvidenceError`, `StudyFileError`).
    """
    from ablate.verification.verify import verify_target as check
    from prereg.registry.disk import write_whole

    written: dict[str, bytes] = {}

    # `check` calls this with the decision that it has judged again, so what is kept is what was checked.
    def keep(*decided: Any) -> dict[str, bytes]:
        written.update(_reports_again(*decided))
        return written

    checked = check(path, reports_of=keep)
    _require_decided(path, checked, decided=bool(written))
    assert checked.bundle is not None, path
    folder = out or resolved(path).parent / f"{checked.bundle.study}.report"
    # All pages are compared before the first is written.
    for name, data in written.items():
        page = folder / name
        if page.exists() and not (page.is_file() and page.read_bytes() == data):
            raise StudyFileError(
                "there is another file in the place of the report, and it is kept",
                required="an empty or new folder",
                fix=f"ablate report {path} --out FOLDER",
                where=Where(file=page),
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in written.items():
        write_whole(folder / name, data)
    return checked, tuple(folder / name for name in written)


def results_of_bundle(path: Path) -> Decided:
    """The decision of a bundle, judged again from its records. Raises `EvidenceError` where it has a fault or none."""
    from ablate.exporting import report_context
    from ablate.notebook.results import Decided
    from ablate.verification.verify import verify_target as check

    decisions: list[Decided] = []

    def keep(
        root: Root, registration: Registration, entry: Entry, decision: Decision, evidence: Evidence
    ) -> dict[str, bytes]:
        text = report_context(registration, entry, decision, evidence)
        decisions.append(Decided(decision, registration, entry.sha256, context=text, evidence_path=path))
        return _reports_again(root, registration, entry, decision, evidence)

    _require_decided(path, check(path, reports_of=keep), decided=bool(decisions))
    return decisions[0]


def _require_decided(path: Path, checked: Verification, *, decided: bool) -> None:
    """Raise `EvidenceError` where a bundle has a fault or no decision."""
    if fault := next((fault for item in checked.items for fault in item.faults), ""):
        raise EvidenceError(
            f"the bundle is not sound: {fault}", required="a bundle that verifies", fix=f"ablate verify {path}"
        )
    if not decided:
        why = "; ".join(item.unchecked for item in checked.items if item.what == "verdict judged again")
        raise EvidenceError(
            f"there is no decision to report: {why or 'the study has not been decided'}",
            required="a bundle of a decided study",
            fix=f"ablate verify {path}",
        )


def _reports_again(
    root: Root, registration: Registration, entry: Entry, decision: Decision, evidence: Evidence
) -> dict[str, bytes]:
    """The reports of what lies under an unpacked root."""
    from ablate.exporting import pages, report_context

    return pages(report_context(registration, entry, decision, evidence))
