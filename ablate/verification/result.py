"""What a verification says, one item for each thing checked; and the items of what a lock pins.

Corpora, data files, trained tokenizers and tasks are compared with the lock. None of them need be on this disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prereg.errors import StudyError
from prereg.frozen import FrozenModel
from prereg.registry.canon import sha256_bytes
from prereg.registry.paths import Root
from prereg.registry.registration import CorpusPin, load_registration
from prereg.seals.examine import SealCheck
from prereg.study.command import ScriptPin, differing_files
from prereg.study.corpora import KNOWN, Manifest, read_manifest, search_path, whole_sha256
from prereg.study.designs.per_task import task_folder
from prereg.study.measure import OWN_TASKS
from prereg.study.training import Bpe, TokenizerFile


class Item(FrozenModel):
    """One thing that was checked."""

    study: str
    """The study, or `ledger`."""
    what: str
    """For instance 'sealed records'."""
    faults: tuple[str, ...]
    """What has changed, one sentence each; empty when nothing has."""
    note: str = ""
    """What was found, with counts, or why it could not be checked."""
    judged_differently: tuple[str, ...] = ()
    """Facts that this version judges differently from the evidence of the decision, each with both values."""
    inadmissible: bool = False
    """Whether the judge gives no verdict from what is here, be it as it was decided."""


def item(study: str, what: str, *faults: str, note: str = "") -> Item:
    """One thing that was checked, with what is wrong with it."""
    return Item(study=study, what=what, faults=faults, note=note)


class Verification(FrozenModel):
    """Everything that was checked."""

    items: tuple[Item, ...]
    """In order."""
    head: str
    """The ledger's head hash, to be compared with one that somebody else holds."""
    seals: tuple[SealCheck, ...] = ()
    """Every seal that the ledger names; what is broken is among the faults of `items` too."""

    @property
    def intact(self) -> bool:
        """Whether nothing has changed."""
        return not any(item.faults for item in self.items)

    @property
    def judged_differently(self) -> bool:
        """Whether this version judges a decision differently, from the evidence that it was taken on."""
        return any(item.judged_differently for item in self.items)

    @property
    def inadmissible(self) -> bool:
        """Whether a decided study is one of which `ablate decide` gives no verdict."""
        return any(item.inadmissible for item in self.items)


def check_pins(root: Root, name: str) -> list[Item]:
    """The text that a study was registered with, and data files, tokenizers and tasks of one that has some. None of
    them need be here."""
    try:
        registration = load_registration(root, name)
    except StudyError:
        registration = None  # the lock's own item says what is wrong with it
    if registration is None:
        return [item(name, "corpus", note="not checked: the registration cannot be read")]
    found = [_check_pin(root, pin) for pin in registration.pinned]
    faults, notes = ([text for text in texts if text] for texts in zip(*found, strict=True)) if found else ([], [])
    note = "; ".join(notes) if found else "none is registered: the trainer is the user's own"
    items = [item(name, "corpus", *faults, note=note)]
    if registration.data_files:
        faults, note = _data_files(root, registration.data_files)
        items.append(item(name, "data files", *faults, note=note))
    tokenizers = {} if registration.data is None else registration.data.tokenizers
    chosen = {arm: registration.study.training(arm).data.tokenizer for arm in tokenizers}
    trained = dict.fromkeys(sha256 for arm, sha256 in tokenizers.items() if isinstance(chosen[arm], Bpe))
    if trained:
        faults, note = _tokenizers(root, trained)
        items.append(item(name, "tokenizers", *faults, note=note))
    files = {one.file: tokenizers[arm] for arm, one in chosen.items() if isinstance(one, TokenizerFile)}
    if files:
        pins = tuple(ScriptPin(path=path, sha256=sha256) for path, sha256 in sorted(files.items()))
        faults, note = _data_files(root, pins)
        items.append(item(name, "tokenizer files", *faults, note=note))
    harness = registration.study.measure.harness
    if registration.tasks is not None and harness is not None:
        fault, note = _tasks(root, harness.tasks, registration.tasks.sha256)
        items.append(item(name, "tasks", *[fault] * bool(fault), note=note))
    return items


def _check_pin(root: Root, pin: CorpusPin) -> tuple[str, str]:
    """What is wrong with a corpus, or else what was found. Every byte of it is read."""
    if pin.name == "toy":
        # It is generated and lies nowhere. The generator checks its own text against the hash that it is known by.
        return "", "'toy' is generated, and checked when it is"
    folders = [folder / pin.name for folder in corpus_folders(root)]
    try:
        listed = next((path for folder in folders if (path := folder / "manifest.json").is_file()), None)
        manifest = KNOWN.get(pin.name) or (read_manifest(listed, pin.name) if listed is not None else None)
    except StudyError as error:
        return error.found, ""
    # A text without a manifest is the one file that its name has always meant.
    manifest = manifest or Manifest(pin.name, pin.sha256, pin.size_bytes, None, "")
    found = ((folder, whole_sha256(folder, manifest)) for folder in folders)
    place, sha256 = next(((folder, sha256) for folder, sha256 in found if sha256 is not None), (None, None))
    if place is None:
        return "", f"'{pin.name}' is not on this disk and was not checked"
    if sha256 != pin.sha256:
        text = place / manifest.texts[0].name if manifest.shards is None else manifest.shards.folder
        said = "is not the text that was" if manifest.shards is None else "are not the shards that were"
        return f"{str(text).replace(f'{root.path}/', '')} {said} registered as '{pin.name}'", ""
    what = "holds the registered shards" if manifest.shards is not None else "is the registered text"
    return "", f"'{pin.name}' {what}"


def _data_files(root: Root, registered: tuple[ScriptPin, ...]) -> tuple[list[str], str]:
    """What is wrong with the files that a user's own trainer reads, and what was found. Every byte is read."""
    changed, absent = differing_files(root.path, registered)
    held = len(registered) - len(changed) - len(absent)
    gone = f"; {len(absent)} are not on this disk and were not checked" if absent else ""
    faults = [f"{path}: its bytes differ from those of the registered data" for path in changed]
    return faults, f"{held} of {len(registered)} are as registered{gone}"


def _tokenizers(root: Root, registered: Iterable[str]) -> tuple[list[str], str]:
    """What is wrong with kept tokenizers, each named by the hash of its canonical bytes, and what was found."""
    faults, held, absent = [], 0, 0
    for sha256 in registered:
        path = root.corpora.parent / "tokenizers" / f"bpe-{sha256}.json"
        if not path.is_file():
            absent += 1
        elif sha256_bytes(path.read_bytes().removesuffix(b"\n")) != sha256:
            faults.append(f"{path.relative_to(root.path)} is not the tokenizer that was registered")
        else:
            held += 1
    gone = f"; {absent} are not on this disk (they are trained again when they are needed)" if absent else ""
    return faults, f"{held} of {held + absent + len(faults)} are as registered{gone}"


def _tasks(root: Root, name: str, registered: str) -> tuple[str, str]:
    """What is wrong with the files of zero- and few-shot tasks, or else what was found. Every file is read."""
    from ablate.evaluation.harness.packs import find_pack

    if name.startswith(OWN_TASKS):
        return "", f"'{name}' are fetched by the harness and were not checked"
    if task_folder(name, root) is None:
        return "", f"'{name}' are not on this disk and were not checked"
    try:
        found = find_pack(name, root).sha256
    except StudyError as error:
        return error.found.replace(f"{root.path}/", ""), ""
    if found != registered:
        return f"the tasks '{name}' are not those that were registered", ""
    return "", f"'{name}' are the registered tasks"


def corpus_folders(root: Root) -> tuple[Path, ...]:
    """Where corpora are looked for, in order."""
    return search_path(root.corpora)
