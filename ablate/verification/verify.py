"""`ablate verify`: every frozen byte of a repository, a study or a bundle is checked, and judged again. Asks no server.

All three are one thing here: a root, whose studies are checked against its ledger, and of a bundle the manifest too. A
bundle is copied into a folder that is removed again. What a stranger's ledger says is used as a path or a table only
once it has been found harmless.

Hashes show that a file is what the ledger says it was; the chain shows that no entry was edited. Neither shows that not
the whole was made up: somebody who rewrites every part, the ledger included, passes. Against that stand only things
that somebody else holds: the head of the ledger, the contents sha256 of a bundle, a seal of the lock.

To add a check: a function here that yields `Item`s (`item`, or `not_checked` with the reason and the way to check it),
a call in `_StudyCheck.items` after those that it rests on, and a forgery that it finds in
tests/verification/test_forgeries.py. A check of the registration alone belongs to `prereg.verification`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.records.gather import history_faults
from ablate.records.store import RunFolder
from ablate.verification.archive import Unpacked, is_bundle, is_safe, unpacked
from ablate.verification.campaign import campaign_items
from ablate.verification.evidence import CommittedEvidence, committed_as, committed_evidence, oversized
from ablate.verification.guide import README, campaign_guide_differs, guide_differs
from ablate.verification.manifest import UnsoundError, is_this, this_tool, version_note
from ablate.verification.pins import pin_items
from ablate.verification.result import BundleFacts, StudySummary, Verification
from prereg.campaign.record import (
    campaign_faults,
    campaign_record,
    campaigns_of,
    end_of,
    proposal_run_as,
    studies_of_campaign,
)
from prereg.errors import StudyError
from prereg.registry.canon import sha256_file
from prereg.registry.earlier_claims import PromisedClaims, earlier_claims, entries_before, promised_claims
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import (
    DecidedEntry,
    EarlierClaims,
    Entry,
    OpenedEntry,
    PromiseEntry,
    ReportedEntry,
    RunEntry,
    SealEntry,
)
from prereg.registry.looks import recorded_afterwards
from prereg.registry.paths import Root
from prereg.registry.plan import places_of, sealed_places
from prereg.registry.registration import Registration, load_registration
from prereg.seals.examine import SealCheck, Trust, examine_seals, unnamed_seals
from prereg.text import counted
from prereg.verification import (
    HISTORY,
    Item,
    check_chain,
    check_registration,
    extent_of,
    item,
    not_checked,
    seal_items,
    studies_to_check,
    target_study,
)

if TYPE_CHECKING:
    from ablate.judge.verdict import Decision
    from ablate.verification.rejudge import ReportsOf

PACKING, GUIDE = "files and manifest", "README and figures"
JUDGED = "verdict judged again"
CLAIMED = "claimed before"
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Source:
    """What is verified: studies of a root, and the bundle that the root was unpacked from, if it was."""

    root: Root
    studies: tuple[str, ...]
    bundle: Unpacked | None = None
    named: str | None = None
    """The study or campaign that is verified; none where all of a repository are."""

    @cached_property
    def promised_claims(self) -> dict[str, PromisedClaims]:
        """The claims of every registration of the ledger, by its entry."""
        return promised_claims(self.root, Ledger(self.root.ledger).entries())


def verify_target(
    target: Path | None = None,
    folder: str | Path | None = None,
    *,
    signers: Path | None = None,
    roots: Path | None = None,
    reports_of: ReportsOf | None = None,
) -> Verification:
    """Check a study, a bundle (zip file or folder), or without a target all studies of a repository.

    `folder` is the one that holds `studies/`. `signers` and `roots` say whom the reader believes, in place of the
    files that the repository brings; a bundle brings none. `reports_of` writes the reports of a bundle again.
    Raises `StudyFileError` where there is nothing of that name, and returns what is wrong otherwise.

        verification = verify_target(Path("width.ablate.zip"))
        verification.intact, verification.head, verification.bundle.contents_sha256
    """
    target_name = "" if target is None else str(target)
    try:
        with opened(target, folder) as source:
            # Whom the reader trusts is the reader's choice: keys that a stranger's bundle brings vouch for
            # nothing.
            trust = Trust.of(source.root, signers=signers, roots=roots)
            return _verified(source, trust, reports_of).model_copy(update={"target": target_name})
    # An item and no error: "this file is damaged" is the answer to the question that was put.
    except UnsoundError as error:
        return Verification(items=(item("bundle", PACKING, str(error)),), head="", target=target_name)


@contextmanager
def opened(target: Path | None, folder: str | Path | None = None) -> Iterator[Source]:
    """A study whose file may be gone, a bundle, or all studies. Raises `StudyFileError`, or `UnsoundError` of a bundle
    whose files are not those of its manifest."""
    if target is not None and is_bundle(target):
        with unpacked(target) as bundle:
            ledger = bundle.manifest.ledger.file
            root = Root(bundle.folder, ledger_name=Path(ledger).name)
            # Root looks for it in studies/, by its name alone.
            if root.relative(root.ledger) != ledger:
                raise UnsoundError(f"the ledger is at {ledger!a}")
            # Of a campaign its proposals too: what a bundle is of says its ledger.
            name = bundle.manifest.study
            yield Source(root, studies_to_check(root, _entries(root), name), bundle, named=name)
        return
    root, named = target_study(target, folder)
    yield Source(root, studies_to_check(root, _entries(root), named), named=named)


def _verified(source: Source, trust: Trust, reports_of: ReportsOf | None) -> Verification:
    root, bundle = source.root, source.bundle
    # 1. The ledger, on which every other check rests.
    chain = list(check_ledger(source))
    sound = not any(checked.faults for checked in chain if checked.what == "chain")
    entries = Ledger(root.ledger).entries() if sound else ()
    items, summaries, seals = chain, list[StudySummary](), list[SealCheck]()
    # Of a stranger's files nothing is read that a damaged ledger, or a table of any size, leads to.
    # 2. Tables of a stranger, before one is read.
    large = oversized(root.path / "data" / "runs") if bundle is not None and sound else ""
    if large:
        items.append(item(bundle.manifest.study if bundle else "", "sealed records", large))
    with ExitStack() as stack:
        # That of a campaign is unpacked once for all of its studies.
        of_campaigns = {
            name: stack.enter_context(committed_evidence(root, name, entries))
            for name in campaigns_of(entries)
            if not large and {name, *studies_of_campaign(entries, name)} & {source.named, *source.studies}
        }
        if sound and not large:
            try:
                roots = {name: evidence.root for name, evidence in of_campaigns.items()}
                items += campaign_items(root, entries, source.named, roots)
                items += _evidence_of_campaigns(source, of_campaigns, entries)
                items += _campaign_guide(source, entries)
            except (StudyError, ValueError, TypeError, KeyError) as error:
                if bundle is None:
                    raise
                fault = error.found if isinstance(error, StudyError) else str(error)
                items.append(item(bundle.manifest.study, "campaign", f"cannot be read: {fault}"))
        # 3. Study by study. Of a bundle only once ledger and tables are harmless.
        for name in source.studies if bundle is None or (sound and not large) else ():
            try:
                with ExitStack() as of_study:
                    place = committed_as(root, name, entries)
                    evidence = (
                        CommittedEvidence(of_campaigns[place].root)
                        if place in of_campaigns
                        else of_study.enter_context(committed_evidence(root, name, entries))
                    )
                    study = _StudyCheck(source, evidence, name, entries, sound=sound)
                    items += study.items(reports_of)
                    summaries.append(study.summary())
                checks = examine_seals(root, name, entries, trust)
            except (StudyError, ValueError, TypeError, KeyError) as error:
                # In the user's own repository the error says what to fix; in a stranger's file it is a finding.
                if bundle is None:
                    raise
                # Well-formed, and yet not what any version writes: a stranger's ledger may say anything.
                fault = error.found if isinstance(error, StudyError) else str(error)
                items.append(item(name, "contents", f"cannot be read: {fault}"))
                continue
            items += seal_items(root, name, checks, unnamed_seals(root, name, entries) if sound else ())
            seals += checks
    return Verification(
        items=tuple(items),
        head=Ledger(root.ledger).head() if sound else "",
        seals=tuple(seals),
        studies=tuple(summaries),
        bundle=None if bundle is None else _facts(bundle),
    )


def _evidence_of_campaigns(
    source: Source, of_campaigns: Mapping[str, CommittedEvidence], entries: tuple[Entry, ...]
) -> Iterator[Item]:
    """The committed evidence of campaigns, whether or not its runs are read."""
    for name, evidence in of_campaigns.items():
        if source.named in (None, name) and evidence.item is not None:
            yield _checked_evidence(evidence, evidence.item, studies_of_campaign(entries, name), entries)


def _checked_evidence(
    evidence: CommittedEvidence, unpacked_as: Item, studies: Sequence[str], entries: Sequence[Entry]
) -> Item:
    """The committed evidence with the faults of its records, unless these are read: then `check_records` names them."""
    faults = unpacked_as.faults
    if evidence.bundled is not None and not evidence.in_use:
        place = evidence.root.relative(evidence.root.evidence(unpacked_as.study))
        of_records = [
            checked
            for study in studies
            for checked in check_records(evidence.bundled, study, [entry for entry in entries if entry.study == study])
        ]
        faults = tuple(f"{place}: {fault}" for checked in of_records for fault in checked.faults)
    faults += (evidence.stale,) if evidence.stale else ()
    return unpacked_as.model_copy(update={"faults": faults})


def _campaign_guide(source: Source, entries: tuple[Entry, ...]) -> Iterator[Item]:
    """README of the bundle of a campaign, against what its ledger says."""
    bundle = source.bundle
    if bundle is None or README not in bundle.manifest.members or campaign_faults(entries, bundle.manifest.study):
        return
    record = campaign_record(entries, bundle.manifest.study)
    if record is not None:
        yield from _guide_items(bundle, campaign_guide_differs(bundle.folder, bundle.manifest, record))


def _guide_items(bundle: Unpacked, changed: str) -> Iterator[Item]:
    """Whether what a reader without ablate reads in a bundle is what its other files say."""
    if changed and not is_this(bundle.manifest.made_with):
        why = f"{changed} as another version writes it; {version_note(bundle.manifest.made_with)}"
        yield not_checked("bundle", GUIDE, why, "check it with that version")
    else:
        fault = (f"{changed}: not what the other files say, and the same version wrote them",) if changed else ()
        yield item("bundle", GUIDE, *fault, note="as the other files say")


def _facts(bundle: Unpacked) -> BundleFacts:
    manifest = bundle.manifest
    return BundleFacts(
        contents_sha256=manifest.sha256,
        sha256=bundle.sha256,
        size_bytes=bundle.size_bytes,
        study=manifest.study,
        left_out=manifest.left_out,
        made_with=manifest.made_with,
        checked_with=this_tool(),
    )


def check_ledger(source: Source) -> Iterator[Item]:
    """The chain, and what stands behind it: git's history of a repository's, the manifest of a bundle's."""
    root, ledger = source.root, Ledger(source.root.ledger)
    if source.bundle is None:
        yield from check_chain(root)
        return
    # Of a bundle as far as it can be read: a file that was changed is reported, not raised.
    entries = ledger.readable()
    # `or`: entries of a broken chain are not looked into.
    faults = ledger.faults() or _outside(entries)
    differences = [] if faults else _other_manifest(source.bundle, ledger)
    files = counted(len(source.bundle.manifest.members) + 1, "file")
    yield item("bundle", PACKING, *differences, note=f"{files}, all as listed")
    yield item("ledger", "chain", *faults, note=extent_of(entries))
    if n_withheld := 0 if faults else len(ledger.withheld()):
        why = f"{counted(n_withheld, 'entry', 'entries')} withheld but for links; that these are of others is not shown"
        yield not_checked("ledger", "entries of other studies", why, "ask for: ablate bundle STUDY --whole-ledger")


def _outside(entries: tuple[Entry, ...]) -> list[str]:
    """Entries that name a place outside a bundle: nothing on this machine may be read because a stranger says so."""
    faults = []
    for entry in entries:
        # Fields of an entry that are used as parts of a path.
        places = [
            place for key in ("file", "ledger", "variant", "run_as") if (place := entry.stated.get(key)) is not None
        ]
        if not all(isinstance(place, str) and is_safe(place) for place in places) or not (
            # An entry `continued` names the ledger of another format, and has no registration.
            entry.event == "continued" or _HASH.fullmatch(entry.registration)
        ):
            faults.append(f"entry {entry.index} names a place that no study has")
    return faults


def _other_manifest(bundle: Unpacked, ledger: Ledger) -> list[str]:
    """What the manifest says of the ledger and the ledger does not."""
    manifest, entries, n_withheld = bundle.manifest, ledger.entries(), len(ledger.withheld())
    stated = (manifest.ledger.head, manifest.ledger.n_entries, manifest.ledger.n_withheld)
    faults = []
    if (ledger.head(), len(entries) + n_withheld, n_withheld) != stated:
        faults.append("head or number of entries are not those of the manifest")
    promises = PromiseEntry | OpenedEntry
    promised = [entry for entry in entries if entry.study == manifest.study and isinstance(entry, promises)]
    if not promised or promised[-1].registration != manifest.registration:
        faults.append("its newest registration of the study is not the one in the manifest")
    return faults


def _entries(root: Root) -> tuple[Entry, ...]:
    """Entries, or none when the ledger is damaged; its faults are listed on their own."""
    try:
        return Ledger(root.ledger).entries()
    except StudyError:
        return ()


class _StudyCheck:
    """Everything that is checked of one study."""

    def __init__(
        self, source: Source, evidence: CommittedEvidence, name: str, entries: tuple[Entry, ...], *, sound: bool
    ) -> None:
        self.source, self.evidence, self.name, self.sound = source, evidence, name, sound
        self.root, self.all_entries = evidence.root, entries
        self.entries = [entry for entry in entries if entry.study == name]
        self.decided = [entry for entry in self.entries if isinstance(entry, DecidedEntry)]
        try:
            # The lock, read once; every item below is about it.
            self.registration: Registration | None = load_registration(self.root, name)
        except StudyError:
            self.registration = None  # what is wrong with the lock is an item of its own
        self.judged: Decision | None = None
        self.claimed_before: EarlierClaims | None = None

    def items(self, reports_of: ReportsOf | None) -> list[Item]:
        """Every item, in the order in which one rests on another."""
        root, name = self.root, self.name
        # The order is that of the report, and later items rest on earlier ones.
        against = history_faults(root, name) if self.sound else ()
        history = [item(name, HISTORY, *against)] if against else []
        items = [*history, *check_registration(root, name, self.all_entries if self.sound else None)]
        if self.sound:
            items += self._committed()
            items += check_records(root, name, self.entries)
            items += check_verdict_file(root, name, self.entries)
            # The verdict rests on the runs that are read, and not on evidence that is only out of date.
            changed = any(fault != self.evidence.stale for checked in items for fault in checked.faults)
            items += self._guide() if not changed else []
            items += self._judged_again(reports_of, changed=changed)
            items += self._earlier_claims()
            items += check_reports(root, name, self.entries)
        if self.registration is not None:
            items += pin_items(root, self.registration)
        return items

    def _committed(self) -> list[Item]:
        """The committed evidence, whether or not its runs are read; of those that are, `check_records` speaks."""
        unpacked_as = self.evidence.item
        if unpacked_as is None:
            return []
        return [_checked_evidence(self.evidence, unpacked_as, [self.name], self.entries)]

    def _guide(self) -> Iterator[Item]:
        """What a reader without ablate reads in a bundle, against the files that it describes."""
        bundle = self.source.bundle
        if bundle is None or self.registration is None or README not in bundle.manifest.members:
            return
        # That of a campaign is checked as a whole.
        if self.name == bundle.manifest.study:
            yield from _guide_items(bundle, guide_differs(bundle.folder, bundle.manifest, self.registration))

    def _judged_again(self, reports_of: ReportsOf | None, *, changed: bool) -> list[Item]:
        """The last decision, judged again from the records."""
        if not self.decided:
            return []
        # Judged only where what it rests on is unchanged and here; otherwise a verdict would be shown of other
        # evidence.
        runs = places_of(self.root, self.entries, self.decided[-1].registration)
        if changed:
            return [not_checked(self.name, JUDGED, "what it rests on has changed", "restore that first")]
        # Of a bundle the records are a part, and their absence a fault.
        if self.source.bundle is None and runs and not any(path.exists() for path in runs):
            return [not_checked(self.name, JUDGED, f"none of the {len(runs)} sealed runs is here", _ABSENT)]
        from ablate.verification.rejudge import judged_again  # loads the judge

        maker = None if self.source.bundle is None else self.source.bundle.manifest.made_with
        pages = reports_of if maker is not None else None
        items, self.judged = judged_again(self.root, self.name, tuple(self.entries), maker, pages)
        return items

    def _earlier_claims(self) -> Iterator[Item]:
        """The earlier studies of the ledger that claim the same, and whether the last decision names them."""
        last = self.decided[-1] if self.decided else None
        if self.source.bundle is not None:
            # Locks and entries of other studies are not in it.
            if last is not None and last.claimed_before is not None:
                self.claimed_before = last.claimed_before
                yield item(self.name, CLAIMED, note=f"by the entry of the decision: {last.claimed_before.words}")
            return
        known = self.all_entries if last is None else entries_before(self.all_entries, last)
        claims = earlier_claims(self.source.promised_claims, known, self.name)
        stated = None if last is None else last.claimed_before
        # An entry of an earlier version names none, and another version may know claims again by other rules.
        is_comparable = last is not None and bool(last.outcomes) and last.code == this_tool().code
        # A lock that was gone then, or is now, is named; what its study claimed cannot be compared.
        if claims.unknown or (stated is not None and stated.unknown):
            is_comparable = False
        n_stated = 0 if stated is None else stated.n
        if is_comparable and stated != (claims if claims.n else None):
            here = claims.words or "the ledger holds none"
            fault = (
                f"the decision names {counted(n_stated, 'earlier study', 'earlier studies')} of the same claim: {here}"
            )
            yield item(self.name, CLAIMED, fault)
        elif claims.words:
            self.claimed_before = claims
            yield item(self.name, CLAIMED, note=claims.words)

    def summary(self) -> StudySummary:
        """What a reviewer asks first, from the ledger and from what was judged again."""
        promised = [entry for entry in self.entries if isinstance(entry, PromiseEntry)]
        runs = [entry for entry in self.entries if isinstance(entry, RunEntry)]
        # By cell: a run that was made again is sealed twice, and counts once.
        sealed = {(entry.registration, *entry.cell) for entry in self.entries if isinstance(entry, SealEntry)}
        return StudySummary(
            study=self.name,
            title="" if self.registration is None else self.registration.worded.title,
            registered=promised[-1].registration if promised else None,
            registered_at=promised[0].at if promised else None,
            first_run_at=runs[0].at if runs else None,
            decided_at=self.decided[-1].at if self.decided else None,
            n_runs=len(sealed),
            decision=self.judged,
            registration=self.registration,
            claimed_before=self.claimed_before,
            **self._of_campaign(),
        )

    def _of_campaign(self) -> dict[str, Any]:
        """Of a study that carries out a proposal, which, and how that ended."""
        proposal = proposal_run_as(self.all_entries, self.name)
        if proposal is None:
            return {}
        end = end_of(self.all_entries, proposal)
        return {"campaign": proposal.study, "proposal": proposal.number, "end": end}


_ABSENT = "copy data/runs from where they were made, or verify a bundle of the study"


def check_records(root: Root, name: str, entries: list[Entry]) -> Iterator[Item]:
    """Every sealed run that the ledger names, the newest seal of each cell, and ended runs that it does not name.

    Of a registration all runs may be gone from this disk. Some of them may not: those that are left may be the chosen.
    """
    # By the ledger and not by the folders: a run that was removed leaves no folder to be found.
    sealed = sealed_places(root, entries)
    newest = {path: entry for runs in sealed.values() for path, entry in runs.items()}
    # 1. Absent runs: all of a registration, or a fault.
    faults: list[str] = []
    n_absent = 0
    for runs in sealed.values():
        gone = [path for path in runs if not path.exists()]
        n_absent += len(gone)
        if len(gone) < len(runs):
            faults += [f"{root.relative(path)} is missing, and other sealed runs are here" for path in gone]
    # 2. Present runs, each against its newest seal.
    n_held = n_unhashed = n_unweighed = 0
    for path, entry in newest.items():
        if not path.exists():
            continue
        wrong, weights = _check_run(root, RunFolder(path), entry)
        faults += wrong
        n_held += not wrong
        n_unweighed += weights == "absent"
        n_unhashed += weights == "without a hash"
    # 3. What was found, and what could not be checked here.
    what = "sealed records"
    if faults or n_held:
        yield item(name, what, *faults, note=f"{n_held} of {counted(len(newest), 'sealed run')} hold")
    if n_absent and not (faults and n_absent == len(faults)):
        of = "all" if n_absent == len(newest) else str(n_absent)
        why = f"{of} of {counted(len(newest), 'sealed run')} not here"
        yield not_checked(name, f"{what}, absent" if faults or n_held else what, why, _ABSENT)
    if n_unweighed:
        why = (
            f"of {counted(n_unweighed, 'run')} not here; only their hashes are on record, and no verdict rests on them"
        )
        yield not_checked(name, "final weights", why, "verify where the runs were made")
    if n_unhashed:
        why = f"the records of {counted(n_unhashed, 'run')} have no hash of weights.safetensors"
        yield not_checked(name, "weights without a hash", why)
    # A crash between a seal and its entry leaves one such run a worker; `run` takes it into the ledger.
    unnamed = [path for path in root.all_runs(name).glob("*/*/*/metrics.parquet") if path.parent not in newest]
    if unnamed:
        why = f"{counted(len(unnamed), 'run')} sealed on disk and not in the ledger"
        yield not_checked(name, "runs outside the ledger", why, f"ablate run {root.relative(root.study(name))}")


def _check_run(root: Root, folder: RunFolder, entry: SealEntry) -> tuple[list[str], str]:
    """What is wrong with a run, whose outcome is derived again from its values; and why its weights were not."""
    files = [(folder.record_path, entry.run_sha256), (folder.sealed_path, entry.metrics_sha256)]
    # A run without items has no hash of them, and no such file.
    if entry.items_sha256 is not None or folder.items_path.exists():
        files.append((folder.items_path, entry.items_sha256 or ""))
    wrong = [file for file, sealed_sha256 in files if not file.is_file() or sha256_file(file) != sealed_sha256]
    # A record that is not the sealed one is not parsed: what it says of itself is nobody's word.
    record = None if wrong else folder.read_record()
    if record is None:
        return [f"{root.relative(file)} is not what the ledger sealed at {entry.at}" for file in wrong], ""
    # Derived again from the table's values, so that a forged outcome needs a forged table.
    faults = [root.shortened(fault) for fault in folder.outcome_faults(record)]
    if entry.outcome_sha256 != record.outcome_sha256:
        faults = [f"{root.relative(folder.record_path)} names another outcome than the ledger sealed at {entry.at}"]
    # A study is judged without its weights, and they are large: that they were put elsewhere is no fault.
    weights, sealed = folder.weights_path, record.weights_sha256
    if sealed is None or not weights.exists():
        return faults, "without a hash" if sealed is None and weights.exists() else "absent" if sealed else ""
    if sha256_file(weights) != sealed:
        faults.append(f"{root.relative(weights)} is not what run.json sealed")
    return faults, ""


def check_verdict_file(root: Root, name: str, entries: list[Entry]) -> Iterator[Item]:
    """verdict.json against the ledger's hash of it, and against what the entry says."""
    decided = [entry for entry in entries if isinstance(entry, DecidedEntry)]
    path = root.report(name) / "verdict.json"
    place = root.relative(path)
    if not decided:
        # The one trace that a ledger cut at the end of a line leaves on the disk next to it.
        if path.exists():
            yield item(
                name, "verdict", f"{place} is here and the ledger has no decision: its end may have been cut off"
            )
        return
    last = decided[-1]
    if not path.exists():
        why = "verdict.json is not here, and its numbers were not compared"
        yield not_checked(name, "verdict", why, f"ablate decide {root.relative(root.study(name))}")
        return
    faults = []
    if not path.is_file():
        faults = [f"{place} is not a file"]
    # Its bytes first; only where they are those of the ledger is there anything to read in them.
    elif sha256_file(path) != last.verdict_sha256:
        faults = [f"{place} is not the decision the ledger recorded at {last.at}"]
    else:
        faults = _other_words(path, last)
    note = last.verdict or last.status
    note += ", with deviations" * (last.status == "decided_with_deviations")
    # The decision was taken before the look was on record: worth saying, and no fault of the file.
    if any(look.index > last.index for look in recorded_afterwards(entries)):
        note += "; an early look was recorded after it: inadmissible by the registered rules"
    yield item(name, "verdict", *faults, note=note, fix=f"restore {place} from version control, or ablate decide STUDY")


def _other_words(path: Path, decided: DecidedEntry) -> list[str]:
    """What the entry of a decision says and its verdict.json does not: readers of the ledger go by the entry."""
    try:
        written = json.loads(path.read_bytes())
    except ValueError:
        written = None
    if not isinstance(written, dict):
        return ["verdict.json holds no decision"]
    findings = [finding for finding in written.get("findings", ()) if isinstance(finding, dict)]
    outcomes = {finding.get("hypothesis"): finding.get("outcome") for finding in findings}
    return [
        f"the ledger's {field} is {logged!a}, and that of verdict.json {written.get(field)!a}"
        for field, logged in (("status", decided.status), ("verdict", decided.verdict))
        if written.get(field) != logged
    ] + [
        f"the ledger has '{hypothesis}' as {outcome!a}, and verdict.json as {outcomes.get(hypothesis)!a}"
        for hypothesis, outcome in decided.outcomes.items()
        if outcomes.get(hypothesis) != outcome
    ]


def check_reports(root: Root, name: str, entries: list[Entry]) -> Iterator[Item]:
    """The pages that people read, against the hashes that the ledger took when they were last written."""
    written = [entry for entry in entries if isinstance(entry, ReportedEntry)]
    decided = [entry for entry in entries if entry.event == "decided"]
    pages = [path for page in ("report.md", "report.html") if (path := root.report(name) / page).exists()]
    again = f"ablate report {root.relative(root.study(name))}"
    if not written:
        if pages and not decided:
            gone = f"{root.relative(pages[0])} is here and the ledger has no decision: its end may have been cut off"
            yield item(name, "reports", gone)
        elif pages:
            yield not_checked(name, "reports", "the ledger holds no hash of them", again)
        return
    # 1. The pages and the figures, against the last time they were written.
    last = written[-1]
    hashes = {"report.md": last.report_md, "report.html": last.report_html}
    faults = [
        f"{root.relative(path)} is not what was written at {last.at} (ablate report writes it again)"
        for path in pages
        if not path.is_file() or sha256_file(path) != hashes[path.name]
    ]
    if decided and decided[-1].sha256 != last.decision:
        faults.append("the reports show an earlier decision than the ledger's last (ablate report writes them again)")
    # 2. What was compared, and what was not here to compare.
    if pages or faults:
        yield item(name, "reports", *faults, note=f"{len(pages)} of 2 pages are as they were written", fix=again)
    else:
        yield not_checked(name, "reports", "neither page is here", again)
