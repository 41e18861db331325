"""`prereg.verify`: chain, locks, files, seals; with records of runs: `ablate/verification/verify.py`.

Asks no server. Hashes show that a file is what the ledger says it was; the chain shows that no entry was edited.
Neither shows that not the whole was made up: against that stand only things that somebody else holds, the head of the
ledger or a seal of a lock. What rests on records of runs is checked by `ablate.verification.verify`, which begins here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import computed_field

from prereg.campaign.record import (
    CAMPAIGN_EVENTS,
    campaign_faults,
    campaigns_of,
    other_campaigns,
    studies_of_campaign,
)
from prereg.commits.held import compare_commits
from prereg.documents.page import compare_page
from prereg.errors import RegistrationError, StudyError, StudyFileError, nearest
from prereg.frozen import FrozenModel
from prereg.registry.amendments import chain_faults
from prereg.registry.canon import sha256_bytes, sha256_file
from prereg.registry.compared import faults_of_comparison
from prereg.registry.history import as_registered, differing_fields
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import (
    ConfirmingEntry,
    ContinuedEntry,
    Entry,
    PromiseEntry,
    ProposedEntry,
)
from prereg.registry.ledger_graph import is_merged
from prereg.registry.paths import Root
from prereg.registry.registration import (
    CorpusPin,
    Registration,
    disagreements,
    lines_of_a_branch,
    load_registration,
    lock_matches,
    newest_promise,
    promises_of,
    read_lock,
)
from prereg.seals.examine import SealCheck, Trust, examine_seals, unnamed_seals
from prereg.seals.git import ledger_history
from prereg.study.command import ScriptPin, differing_files, script_faults
from prereg.study.corpora import KNOWN, TOY_SHA256, Manifest, read_manifest, search_path, whole_sha256
from prereg.study.load import load_study
from prereg.study.training import Bpe, TokenizerFile
from prereg.text import counted, listed

HISTORY = "history of the ledger"
State = Literal["ok", "changed", "judged differently", "not checked"]


class Item(FrozenModel):
    """One thing, and whether it is what was frozen. What was only partly looked at is two items."""

    study: str
    """The study; `ledger` or `bundle` for what is of all."""
    what: str
    """For instance 'sealed records'."""
    faults: tuple[str, ...] = ()
    """What has changed, one sentence each; empty when nothing has."""
    note: str = ""
    """What was found, with counts."""
    remarks: tuple[str, ...] = ()
    """What a reader has to know although nothing has changed; shown without `--all` too."""
    unchecked: str = ""
    """Why it was not checked, as a clause; empty where it was."""
    fix: str = ""
    """What to type or to do so that it can be checked, or is right again."""
    judged_differently: tuple[str, ...] = ()
    """Facts that this version judges differently from the evidence of the decision, each with both values."""
    inadmissible: bool = False
    """Whether the judge gives no verdict from what is here, be it as it was decided."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> State:
        """One word for it."""
        if self.faults:
            return "changed"
        if self.judged_differently:
            return "judged differently"
        return "not checked" if self.unchecked else "ok"


def item(study: str, what: str, *faults: str, note: str = "", fix: str = "") -> Item:
    """Something that was checked, with what is wrong with it."""
    return Item(study=study, what=what, faults=faults, note=note, fix=fix if faults else "")


def not_checked(study: str, what: str, why: str, fix: str = "") -> Item:
    """Something that was not checked, and what to type so that it can be."""
    return Item(study=study, what=what, unchecked=why, fix=fix)


class Verification(FrozenModel):
    """Everything that was checked, and what was not."""

    items: tuple[Item, ...]
    """In order."""
    head: str
    """The ledger's head hash, to be compared with one that somebody else holds; empty of a damaged ledger."""
    seals: tuple[SealCheck, ...] = ()
    """Every seal that the ledger names; what is broken is among the faults of `items` too."""

    @property
    def intact(self) -> bool:
        """Whether nothing that was checked has changed."""
        return not any(item.faults for item in self.items)

    @property
    def unchecked(self) -> tuple[Item, ...]:
        """What was not checked."""
        return tuple(item for item in self.items if item.state == "not checked")


def verify(
    target: str | Path | None = None,
    *,
    root: str | Path | None = None,
    signers: Path | None = None,
    roots: Path | None = None,
) -> Verification:
    """Check a registered study by its file or name, or every study of a repository; no record of a run is read.

    `root` is the folder that holds `studies/`. `signers` and `roots` are whom the reader believes (ssh keys, PEM
    certificates), in place of the files that the repository brings. Returns what is wrong; raises `StudyFileError`
    where there is no such study.

    >>> verification = verify("studies/own.yaml")
    >>> verification.intact, [item.what for item in verification.items if item.state == "ok"][:3]
    (True, ['chain', 'study and lock'])
    """
    # 1. The chain; a damaged ledger gives no entries to check anything by.
    where, named = target_study(target, root)
    chain = list(check_chain(where))
    sound = all(chain_item.state != "changed" for chain_item in chain if chain_item.what == "chain")
    entries = Ledger(where.ledger).entries() if sound else ()
    trust, items, seals = Trust.of(where, signers=signers, roots=roots), chain, list[SealCheck]()
    # 2. Campaigns, then study by study: registration, pinned files, seals.
    items += check_campaigns(where, entries, named)
    for name in studies_to_check(where, entries, named):
        items += check_registration(where, name, entries if sound else None)
        items += _pins_of(where, name)
        checks = examine_seals(where, name, entries, trust)
        items += seal_items(where, name, checks, unnamed_seals(where, name, entries) if sound else ())
        seals += checks
    return Verification(items=tuple(items), head=Ledger(where.ledger).head() if sound else "", seals=tuple(seals))


def target_study(target: str | Path | None, root: str | Path | None) -> tuple[Root, str | None]:
    """The root, and the study that is meant, whose file may be gone; no study where all are.

    Raises `StudyFileError` where there is no such study.
    """
    if target is None:
        return Root.around(Path(), root), None
    path = Path(target)
    # A bare name is a study of the root; a path is taken as it is.
    if path.suffix != ".yaml" and path.name == str(path):
        path = Path(root or "") / "studies" / f"{path.name}.yaml"
    where = Root.find(path, root)
    readable = Ledger(where.ledger).readable()
    studies = (*known_studies(where, readable), *campaigns_of(readable))
    if path.suffix == ".yaml" and (path.stem in studies or path.is_file()):
        return where, path.stem
    raise StudyFileError(
        f"'{target}' is neither a study file nor the name of a registered study",
        required="studies/NAME.yaml, or what `ablate bundle` wrote",
        fix=nearest(path.stem, studies) or "ablate verify",
    )


def known_studies(root: Root, entries: Iterable[Entry]) -> tuple[str, ...]:
    """Every study that has a lock, or that the ledger or its history speaks of."""
    names = {lock.name.removesuffix(".lock.json") for lock in root.studies.glob("*.lock.json")}
    names |= {entry.study for entry in entries if entry.event not in ("continued", *CAMPAIGN_EVENTS)}
    # A study whose entries were all taken back has neither lock nor entry, and is known by git alone.
    lost = (taken.entry for taken in ledger_history(root).taken_back)
    names |= {entry.study for entry in lost if entry.event not in CAMPAIGN_EVENTS}
    return tuple(sorted(names))


def studies_to_check(root: Root, entries: Sequence[Entry], named: str | None) -> tuple[str, ...]:
    """Every study, the one that is named, or those that carry out what a campaign that is named began."""
    if named is None:
        return known_studies(root, entries)
    if named not in campaigns_of(entries):
        return (named,)
    # One that a crash kept from being registered has nothing to be checked.
    registered = {entry.study for entry in entries if isinstance(entry, PromiseEntry)}
    return tuple(study for study in studies_of_campaign(entries, named) if study in registered)


def check_campaigns(root: Root, entries: Sequence[Entry], named: str | None) -> Iterator[Item]:
    """The record of every campaign, or of the one that is named: registered once, every proposal begun before its runs,
    on seeds that follow by rule, none left out, and none taken back that git's history holds."""
    history = ledger_history(root)
    here = campaigns_of(entries)
    for name in dict.fromkeys((*here, *campaigns_of(taken.entry for taken in history.taken_back))):
        if named not in (None, name):
            continue
        if against := history.faults(root, name):
            yield item(name, HISTORY, *against)
        if name in here:
            faults = campaign_faults(entries, name)
            n = sum(isinstance(entry, ProposedEntry) and entry.study == name for entry in entries)
            remarks = () if faults else tuple(_remarks_on_campaign(entries, name))
            note = "; ".join((counted(n, "proposal"), *remarks))
            checked = item(name, "campaign", *faults, note=note)
            yield checked.model_copy(update={"remarks": remarks})


def _remarks_on_campaign(entries: Sequence[Entry], name: str) -> Iterator[str]:
    """Yield what a reader of a sound campaign has to know of the ledger around it."""
    if others := other_campaigns(entries, name):
        yield (
            f"its error leaves out {counted(len(others), 'other campaign')} of the same trainer, start or metric: "
            f"{listed(each.words for each in others)}"
        )
    if n_without := _without_nonce(entries, name):
        yield f"{n_without} of its entries have no nonce: their seeds could be computed beforehand"


def _without_nonce(entries: Sequence[Entry], name: str) -> int:
    """Return how many proposals and confirmations of a campaign are from before there were nonces."""
    begun = [entry for entry in entries if entry.study == name and isinstance(entry, ProposedEntry | ConfirmingEntry)]
    return sum(entry.nonce is None for entry in begun)


def check_chain(root: Root) -> Iterator[Item]:
    """The chain of a repository's ledger, and git's history that stands behind it."""
    ledger = Ledger(root.ledger)
    faults, entries = ledger.faults(), ledger.readable()
    faults += [
        fault for entry in entries if isinstance(entry, ContinuedEntry) for fault in _another_ledger(root, entry)
    ]
    yield item("ledger", "chain", *faults, note=extent_of(entries))
    if why := ledger_history(root).not_compared:
        fix = "git fetch --unshallow" if "shallow" in why else "git add studies && git commit"
        yield not_checked("ledger", HISTORY, why, fix)


def extent_of(entries: Sequence[Entry]) -> str:
    """How many entries a ledger has, and whether they are of several branches."""
    note = counted(len(entries), "entry", "entries")
    if is_merged(entries):
        note += f" of branches that were merged ({sum(len(entry.joins) for entry in entries)} joined)"
    return note


def _another_ledger(root: Root, entry: ContinuedEntry) -> list[str]:
    """What is wrong with the file of the ledger that this one continues, where it lies here."""
    path = root.path / entry.ledger
    if not path.is_file() or sha256_file(path) == entry.ledger_sha256:
        return []
    return [f"{root.relative(path)} is not the ledger that entry {entry.index} continues"]


def verify_registration(root: Root, name: str) -> list[str]:
    """Everything that speaks against a registration, a sentence each, naming the file. Empty when it holds."""
    ledger = Ledger(root.ledger)
    faults, entry, lock = ledger.faults(), newest_promise(ledger.readable(), name), root.lock(name)
    if entry is None:
        if not lock.exists():
            return [*faults, f"{root.ledger.name}: no entry registers '{name}'"]
        elsewhere = f"its entries are on another branch, or were cut off ({lines_of_a_branch(root, name)})"
        return [*faults, f"{lock.name}: no entry of {root.ledger.name} names it: {elsewhere}"]
    # 1. The study's file as it was registered, or as the ledger holds it reworded.
    source = root.path / entry.file
    if not source.is_file():
        faults.append(f"{source.name}: missing; the registered file had sha256 {entry.source_sha256}")
    elif sha256_file(source) != entry.source_sha256 and not _is_reworded(root, name, source):
        faults.append(f"{source.name}: its bytes differ from those registered on {entry.at}")
    if not lock.is_file():
        return [*faults, f"{lock.name}: missing; the ledger registered it on {entry.at}"]
    try:
        # 2. The lock: its bytes, its own hash, and what the entry says of it.
        registration = read_lock(lock)
    except RegistrationError as error:
        changed = [f"{lock.name}: its bytes differ from those the ledger names"] * (not lock_matches(lock, entry))
        return [*faults, *changed, f"{lock.name}: {error.found}"]
    faults += [f"{lock.name}: {fault}" for fault in disagreements(registration, entry)]
    # 3. Code that the registration pins.
    return faults + script_faults(registration.scripts or (), root.path)


def _is_reworded(root: Root, name: str, source: Path) -> bool:
    """Whether a study's file has bytes that the ledger names as other words, and says the same in all but words."""
    try:
        registration, loaded = load_registration(root, name), load_study(source)
    except StudyError:
        return False
    if registration is None:
        return False
    sources = {rewording.source_sha256 for rewording in registration.rewordings}
    if sha256_bytes(loaded.source_bytes) not in sources:
        return False
    return not differing_fields(registration.study, as_registered(registration, loaded).study)


def check_registration(root: Root, name: str, entries: Sequence[Entry] | None) -> list[Item]:
    """Study file, lock and registered code against the ledger, and the registration in words.

    Of a damaged ledger (no `entries`) what it says is left to the item of the chain.
    """
    # Neither entry nor lock: a draft, of which nothing can have changed.
    if not promises_of(entries or (), name) and not root.lock(name).exists():
        fix = f"ablate register {root.relative(root.study(name))}"
        return [not_checked(name, "registration", "nothing is frozen yet", fix)]
    faults = [fault for fault in verify_registration(root, name) if "ledger.jsonl" not in fault or entries is not None]
    faults += chain_faults(entry for entry in entries or () if entry.study == name)
    faults += _comparison_faults(root, name, entries or ())
    study_and_lock = item(name, "study and lock", *faults, note="as registered", fix="restore it from version control")
    return [study_and_lock, *_page(root, name)]


def _comparison_faults(root: Root, name: str, entries: Sequence[Entry]) -> list[str]:
    """What a comparison of commits contradicts in its ledger entry, its seeds among it; nothing of other studies."""
    try:
        registration = load_registration(root, name)
    except StudyError:
        return []  # what is wrong with the lock is a fault already
    return [] if registration is None else [*faults_of_comparison(registration, entries)]


def _page(root: Root, name: str) -> Iterator[Item]:
    """The registration in words. It promises nothing by itself, and a reader without the tool believes it."""
    what, fix = "registration in words", f"ablate register {root.relative(root.study(name))}"
    try:
        standing = None if load_registration(root, name) is None else compare_page(root, name)
    except StudyError:
        return  # what is wrong with lock or study is an item of its own
    if standing == "other":
        fault = f"{root.relative(root.page(name))} does not say what the lock and the ledger say"
        yield item(name, what, fault, fix=fix)
    elif standing == "as the lock says":
        yield item(name, what, note=standing)
    elif standing is not None:
        why = "not written yet" if standing == "missing" else "written by another version"
        yield not_checked(name, what, why, fix)


def _pins_of(root: Root, name: str) -> Iterator[Item]:
    try:
        registration = load_registration(root, name)
    except StudyError:
        return  # what is wrong with the lock is an item of its own
    if registration is None:
        return
    yield from check_pins(root, registration)
    if registration.tasks is not None:
        yield not_checked(name, f"tasks '{registration.tasks.name}'", "not read here", "ablate verify")


def check_pins(root: Root, registration: Registration) -> Iterator[Item]:
    """An item for each corpus, data file and tokenizer that the lock names and does not hold, and a second one for the
    part of it that is not here: none of them need be on this disk."""
    name = registration.study.study
    for pin in registration.pinned:
        yield _corpus(root, name, pin)
    yield from _files(root, name, "data files", registration.data_files)
    yield from _commits(root, registration)
    tokenizers = {} if registration.data is None else registration.data.tokenizers
    # Trained tokenizers lie under their hash, those of a file where the study says.
    chosen = {arm: registration.study.training(arm).data.tokenizer for arm in tokenizers}
    trained = dict.fromkeys(sha256 for arm, sha256 in tokenizers.items() if isinstance(chosen[arm], Bpe))
    yield from _trained_tokenizers(root, name, tuple(trained))
    files = {
        tokenizer.file: tokenizers[arm] for arm, tokenizer in chosen.items() if isinstance(tokenizer, TokenizerFile)
    }
    pins = tuple(ScriptPin(path=path, sha256=sha256) for path, sha256 in sorted(files.items()))
    yield from _files(root, name, "tokenizer files", pins)


def _corpus(root: Root, study: str, pin: CorpusPin) -> Item:
    """A corpus, every byte of which is read."""
    what = f"corpus '{pin.name}'"
    if pin.name == "toy":
        # It lies nowhere: the generator checks its text against this hash whenever it makes it.
        faults = ("'toy' was generated otherwise when it was registered",) if pin.sha256 != TOY_SHA256 else ()
        return item(study, what, *faults, note="generated, of the registered sha256")
    folders = [folder / pin.name for folder in search_path(root.corpora)]
    try:
        listed = next((path for folder in folders if (path := folder / "manifest.json").is_file()), None)
        manifest = KNOWN.get(pin.name) or (read_manifest(listed, pin.name) if listed is not None else None)
    except StudyError as error:
        return item(study, what, error.found)
    # A text without a manifest is the one file that its name has always meant.
    manifest = manifest or Manifest(pin.name, pin.sha256, pin.size_bytes, None, "")
    hashes = ((folder, whole_sha256(folder, manifest)) for folder in folders)
    folder, sha256 = next(((folder, sha256) for folder, sha256 in hashes if sha256 is not None), (None, None))
    if folder is None:
        fix = f"ablate corpus fetch {pin.name}" if pin.name in KNOWN else f"ablate corpus add {pin.name} FILE"
        return not_checked(study, what, "not here", fix)
    if sha256 == pin.sha256:
        return item(study, what, note="the registered text" if manifest.shards is None else "the registered shards")
    text = folder / (manifest.texts[0].name if manifest.shards is None else manifest.shards.folder)
    differs = "is not the text that was" if manifest.shards is None else "are not the shards that were"
    return item(study, what, f"{root.shortened(str(text))} {differs} registered as '{pin.name}'")


def _files(root: Root, study: str, what: str, pins: Sequence[ScriptPin]) -> Iterator[Item]:
    """Files that a user's trainer or tokenizer reads, every byte of them."""
    changed, absent = differing_files(root.path, tuple(pins))
    if held := len(pins) - len(absent):
        faults = [f"{path}: its bytes differ from those of the registered data" for path in changed]
        yield item(study, what, *faults, note=f"{held - len(changed)} of {len(pins)} are as registered")
    if absent:
        why = f"{counted(len(absent), 'file')} not here, {absent[0]} among them" if absent[1:] else "not here"
        yield not_checked(study, f"{what}, absent" if held else what, why, f"put them in place: {absent[0]}")


def _commits(root: Root, registration: Registration) -> Iterator[Item]:
    """The commits of arms, every object of them: in the repository, or as a bundle holds their files."""
    name = registration.study.study
    each = compare_commits(root, registration.commits)
    checked = [compared for compared in each if not compared.unchecked]
    if checked:
        faults = [fault for compared in checked for fault in compared.faults]
        moved = [
            f"{compared.name} is now {compared.moved_to[:10]}, and {compared.pin.short} counts"
            for compared in checked
            if compared.moved_to
        ]
        n_whole = sum(not compared.faults for compared in checked)
        gone = [
            f"commit {compared.pin.short} is gone, and other commits hold its files"
            for compared in checked
            if compared.is_gone and not compared.faults
        ]
        note = "; ".join([f"{n_whole} of {len(each)} hold what was registered", *moved, *gone])
        yield item(name, "commits of arms", *faults, note=note, fix="git fetch --all --tags; git fsck")
    if unchecked := [compared for compared in each if compared.unchecked]:
        why = f"{listed([compared.pin.short for compared in unchecked])}: {unchecked[0].unchecked}"
        yield not_checked(name, "commits of arms", why, "verify in the repository that has them")


def _trained_tokenizers(root: Root, study: str, registered: Sequence[str]) -> Iterator[Item]:
    """Kept tokenizers, each named by the hash of its canonical bytes."""
    places = {sha256: root.corpora.parent / "tokenizers" / f"bpe-{sha256}.json" for sha256 in registered}
    here = {sha256: path for sha256, path in places.items() if path.is_file()}
    faults = [
        f"{root.relative(path)} is not the tokenizer that was registered"
        for sha256, path in here.items()
        if sha256_bytes(path.read_bytes().removesuffix(b"\n")) != sha256
    ]
    if here:
        note = f"{len(here) - len(faults)} of {len(places)} are as registered"
        yield item(study, "tokenizers", *faults, note=note)
    if absent := len(places) - len(here):
        why = f"{counted(absent, 'tokenizer')} not here; trained again, and checked, when needed"
        yield not_checked(study, "tokenizers, absent" if here else "tokenizers", why, "ablate run STUDY")


def seal_items(root: Root, name: str, checks: Sequence[SealCheck], unnamed: Sequence[str]) -> Iterator[Item]:
    """A broken seal is a fault. A stranger's is none: it was not checked against anybody who is believed."""
    faults = [f"{check.file or 'a seal in the ledger'}: {check.says}" for check in checks if check.state == "broken"]
    holding = sum(check.state == "holds" for check in checks)
    if faults or holding:
        yield item(name, "seals", *faults, note=f"{holding} of {len(checks)} hold")
    remedies = {
        "unvouched": "ablate verify TARGET --signers FILE (ssh keys), --roots FILE (certificates of authorities)",
        "unchecked": "install ssh-keygen, openssl and git; verify in the repository",
        "incomplete": f"git commit, then ablate seal {root.relative(root.study(name))}",
    }
    for check in checks:
        if check.state in remedies:
            what = f"seal {check.file}" if check.file else "seal by git"
            yield not_checked(name, what, check.says, remedies[check.state])
    for file in unnamed:
        why = "not in the ledger: left by a crash, or its end was cut off"
        yield not_checked(name, f"seal {file}", why, f"git log -p {root.relative(root.ledger)}")
