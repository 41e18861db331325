"""What a lock names and does not hold: corpora, data files, tokenizers, tasks. None of them need be on this disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.verification.result import Item, item, not_checked
from prereg.errors import StudyError
from prereg.registry.canon import sha256_bytes
from prereg.registry.paths import Root
from prereg.registry.registration import CorpusPin, Registration
from prereg.study.command import ScriptPin, differing_files
from prereg.study.corpora import KNOWN, TOY_SHA256, Manifest, read_manifest, search_path, whole_sha256
from prereg.study.designs.per_task import task_folder
from prereg.study.measure import OWN_TASKS
from prereg.study.training import Bpe, TokenizerFile
from prereg.text import counted


def check_pins(root: Root, registration: Registration) -> Iterator[Item]:
    """An item for each thing that is pinned, and a second one for the part of it that is not here."""
    name = registration.study.study
    for pin in registration.pinned:
        yield _corpus(root, name, pin)
    yield from _files(root, name, "data files", registration.data_files)
    tokenizers = {} if registration.data is None else registration.data.tokenizers
    chosen = {arm: registration.study.training(arm).data.tokenizer for arm in tokenizers}
    trained = dict.fromkeys(sha256 for arm, sha256 in tokenizers.items() if isinstance(chosen[arm], Bpe))
    yield from _trained_tokenizers(root, name, tuple(trained))
    files = {one.file: tokenizers[arm] for arm, one in chosen.items() if isinstance(one, TokenizerFile)}
    pins = tuple(ScriptPin(path=path, sha256=sha256) for path, sha256 in sorted(files.items()))
    yield from _files(root, name, "tokenizer files", pins)
    harness = registration.study.measure.harness
    if registration.tasks is not None and harness is not None:
        yield _tasks(root, name, harness.tasks, registration.tasks.sha256)


def _corpus(root: Root, study: str, pin: CorpusPin) -> Item:
    """A corpus, every byte of which is read."""
    what = f"corpus '{pin.name}'"
    if pin.name == "toy":
        # It lies nowhere: the generator checks its text against this hash whenever it makes it.
        other = ("'toy' was generated otherwise when it was registered",) if pin.sha256 != TOY_SHA256 else ()
        return item(study, what, *other, note="generated, of the registered sha256")
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


def _tasks(root: Root, study: str, name: str, registered: str) -> Item:
    """The files of zero- and few-shot tasks, every one of which is read."""
    from ablate.evaluation.harness.packs import find_pack

    what = f"tasks '{name}'"
    if name.startswith(OWN_TASKS):
        return not_checked(study, what, "fetched by the harness, which checks them", "ablate run STUDY")
    if task_folder(name, root) is None:
        return not_checked(study, what, "not here", f"put them below {root.relative(root.corpora.parent)}")
    try:
        pack = find_pack(name, root).sha256
    except StudyError as error:
        return item(study, what, root.shortened(error.found))
    changed = (f"the tasks '{name}' are not those that were registered",) if pack != registered else ()
    return item(study, what, *changed, note="the registered tasks")
