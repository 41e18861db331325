"""Pins: what a study's names mean, hashed, and required later: corpora, tokenizers, tasks, own files, commits.

`pin` finds and hashes them for a registration; `require_pinned` refuses to train on anything else. How each kind is
hashed is elsewhere: tasks in `ablate.evaluation.harness.pins`, commits in `prereg.commits.pins`, files in
`prereg.study.command`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ablate.workspace import StudyContext, placed
from prereg.commits.keeping import keep_commits
from prereg.errors import CorpusError, RegistrationError, UnsupportedError, Where

if TYPE_CHECKING:
    from ablate.data.reading import TokenizedCorpus, Tokenizer
    from ablate.data.tokenizers import BpeTokenizer
    from prereg.registry.paths import Root
    from prereg.registry.registration import CorpusPin, DataPins, Pins, Registration, TaskPin


def read_data(context: StudyContext, registered: DataPins | None = None) -> dict[str, TokenizedCorpus]:
    """What each arm reads now: found, verified, long enough. What several arms read is read once.

    A tokenizer is trained from the text, unless the one that is `registered` is kept.
    """
    from ablate.data.corpora import Library
    from ablate.data.reading import read_corpus

    library = Library.of(context.root.corpora)
    readings: dict[str, TokenizedCorpus] = {}
    by_arm: dict[str, TokenizedCorpus] = {}
    for arm in context.study.arms:
        config = context.study.training(arm)
        # By content: arms that differ in the optimizer alone read the same text, which takes seconds to tokenize.
        key = config.data.model_dump_json()
        if key not in readings:
            tokenizer = registered.tokenizers.get(arm) if registered is not None else None
            readings[key] = read_corpus(library, config.data, registered=tokenizer)
        by_arm[arm] = readings[key]
        by_arm[arm].split.require(config.model.context)
    return by_arm


def pin_corpora(
    context: StudyContext, readings: Mapping[str, TokenizedCorpus]
) -> tuple[CorpusPin, DataPins | None, tuple[BpeTokenizer, ...]]:
    """What the study's corpus names and tokenizers mean now, measured; and the tokenizers that were trained.

    `data` stays empty where all arms read one text, character by character: its corpus says all.
    """
    from ablate.capabilities import require_no_bytes
    from ablate.data.tokenizers import BpeTokenizer
    from prereg.registry.registration import CorpusPin, DataPins
    from prereg.study.validate import require_one_tokenizer

    # One pin a corpus, one hash a tokenizer, over all arms; `plain` holds as long as one text is read character by
    # character.
    corpora: dict[str, CorpusPin] = {}
    tokenizers: dict[str, str] = {}
    plain, baseline = True, context.study.training(context.study.baseline).data
    for arm, reading in readings.items():
        config = context.study.training(arm)
        tokenizers[arm] = reading.tokenizer.sha256
        plain = plain and config.data.tokenizer == "char"
        manifest = reading.manifest
        corpora[manifest.name] = CorpusPin(
            name=manifest.name,
            sha256=manifest.sha256,
            size_bytes=manifest.size_bytes,
            characters=reading.characters,
            tokens=None if manifest.shards is None else manifest.shards.tokens,
        )
        if reading.tokenizer.byte_lengths() is None:
            placed(context, partial(require_no_bytes, context.study, arm))
    placed(context, lambda: require_one_tokenizer(context.study, tokenizers))
    # The corpus of the baseline is the one that the lock names by itself.
    first = corpora[baseline.corpus]
    if plain and len(corpora) == 1:
        return first, None, ()
    trained = tuple(t for t in _different(readings) if isinstance(t, BpeTokenizer))
    return first, DataPins(corpora=dict(sorted(corpora.items())), tokenizers=tokenizers), trained


def _different(readings: Mapping[str, TokenizedCorpus]) -> list[Tokenizer]:
    """The tokenizers of all arms, each once."""
    return list({reading.tokenizer.sha256: reading.tokenizer for reading in readings.values()}.values())


@dataclass(frozen=True)
class Pinned:
    """What the names in a study mean now, found and hashed."""

    pins: Pins
    trained: tuple[BpeTokenizer, ...] = ()
    """Tokenizers that were trained from the texts, to be kept once the registration is valid."""

    def keep_commits(self, root: Root, study: str) -> None:
        """Keep the commits of arms in the repository, whatever becomes of their branches. Raises `RegistrationError`
        where it takes no reference."""
        keep_commits(root, study, self.pins.commits)

    def keep(self, root: Root) -> None:
        """Keep the trained tokenizers for the workers. A registration is valid without them."""
        if self.trained:
            from ablate.data.corpora import Library
            from ablate.data.tokenizers import keep_bpe

            for tokenizer in self.trained:
                keep_bpe(tokenizer, Library.of(root.corpora).tokenizers)


def pin(context: StudyContext, registered: DataPins | None = None) -> Pinned:
    """The bytes that the study's names stand for, found and hashed."""
    from prereg.registry.registration import Pins

    if context.study.trainer == "gpt":
        from ablate.capabilities import require_gpt

        require_gpt()
        # Read and not only hashed: a corpus too short for a window, or a tokenizer that cannot be trained, is refused
        # before it is promised.
        readings = read_data(context, registered)
        corpus, data, trained = pin_corpora(context, readings)
        return Pinned(Pins(corpus=corpus, data=data, tasks=pin_tasks(context, readings)), trained)
    return Pinned(pin_code(context))


def pin_tasks(context: StudyContext, readings: Mapping[str, TokenizedCorpus]) -> TaskPin | None:
    """What the study's zero- and few-shot tasks are now; none where it declares none. Nothing is scored."""
    harness = context.study.measure.harness
    if harness is None:
        return None
    from ablate.data.tokenizers import CharTokenizer, FileTokenizer
    from ablate.evaluation.harness.pins import task_pin as pinned

    # A tokenizer of bytes can write every text, and is not checked.
    checked = dict.fromkeys(
        tokenizer if isinstance(tokenizer, CharTokenizer | FileTokenizer) else None
        for tokenizer in _different(readings)
    )
    claimed = tuple(context.study.tasks_claimed.values())
    pin_each = partial(pinned, harness, context.root, claimed=claimed)
    pins_by_tokenizer = [placed(context, partial(pin_each, tokenizer)) for tokenizer in checked]
    if len(set(pins_by_tokenizer)) > 1:
        left_out = sorted({pin.n_unencodable for pin in pins_by_tokenizer})
        raise UnsupportedError(
            f"the variants' tokenizers cannot write the same items of '{harness.tasks}': they leave out {left_out}",
            required="the same items for every variant",
            fix="one tokenizer for all variants, or tasks that all of them can write",
            where=Where(file=context.path, field=("measure", "harness", "tasks")),
        )
    return pins_by_tokenizer[0]


def pin_code(context: StudyContext, *, keeps: bool = True) -> Pins:
    """The files of a user's own trainer and those it reads, as they are now; its program is here to be started.

    Where arms are commits, a name that is registered keeps what it meant; with `keeps` false nothing is left in the
    repository of one that is pinned only to be shown.

        >>> [pin.path for pin in pin_code(ablate.Workspace().open("studies/own.yaml")).scripts]
        ['train.py']
    """
    from ablate.capabilities import require_program
    from prereg.commits.resolve import resolve_with_changes
    from prereg.registry.registration import Pins
    from prereg.study.command import pin_data, pin_scripts

    # Arms that are commits pin their code by the commits; any other study by the files that `code:` and the command
    # name.
    root, study = context.root, context.study
    registered = context.load_registration() if study.commits else None
    earlier = None if registered is None else registered.commits
    commits, changes = placed(context, lambda: resolve_with_changes(study, root, earlier, keeps=keeps))
    scripts = () if commits else placed(context, lambda: pin_scripts(root, study))
    data = placed(context, lambda: pin_data(root, study))
    pins = Pins(scripts=scripts, data_files=data, commits=commits, code_changes=changes)
    placed(context, lambda: require_program(study, root, commits))
    return pins


def require_pinned(context: StudyContext, registration: Registration) -> None:
    """The corpus, or the trainer's code, that was registered is here, and is still the same.

    Raises `CorpusError` or `RegistrationError` naming the first thing that is not.
    """
    now = pin(context, registration.data).pins
    # Compared in the order in which a user would look for the cause: corpus, commits, tokenizers, tasks, files.
    if now.corpus is not None and now.corpus != registration.corpus:
        sha256 = registration.corpus.sha256 if registration.corpus else "none"
        raise CorpusError(
            f"corpus '{now.corpus.name}' is now another text (sha256 {now.corpus.sha256})",
            required=f"the registered one, sha256 {sha256}",
        )
    if now.commits != registration.commits:
        changed = next(name for name, pin in registration.commits.items() if now.commits.get(name) != pin)
        raise RegistrationError(
            f"commit '{changed}' ({registration.commits[changed].short}) does not hold the files that were registered "
            f"on {registration.registered_at}",
            required=f"files that have, together, sha256 {registration.commits[changed].sha256}",
            fix="git fsck; a copy of the repository whose objects are whole",
        )
    if now.data != registration.data:
        _refuse_data(now.data, registration)
    if now.tasks != registration.tasks:
        raise RegistrationError(
            f"the tasks '{now.tasks.name if now.tasks else ''}' are not what was registered on "
            f"{registration.registered_at}",
            required=f"sha256 {registration.tasks.sha256 if registration.tasks else 'none'}",
            fix=f'restore their files, or: ablate amend {context.path} --reason "..."',
        )
    for what, registered, here in (
        ("code", registration.scripts, now.scripts),
        ("data", registration.data_files, now.data_files),
    ):
        if here != registered:
            was, are = ({pin.path: pin.sha256 for pin in pins or ()} for pins in (registered, here))
            moved = sorted(path for path in was.keys() | are.keys() if was.get(path) != are.get(path))
            raise RegistrationError(
                f"the trainer's {what} is not what was registered on {registration.registered_at}: "
                + ", ".join(moved[:5]),
                required="the registered files, byte for byte",
                fix=f'restore them, or: ablate amend {context.path} --reason "..."',
            )


def _refuse_data(now: DataPins | None, registration: Registration) -> None:
    from prereg.study.training import TokenizerFile

    # By name: which corpus or whose tokenizer, not only that something differs.
    was, here = registration.data, now
    for name, registered in (was.corpora if was else {}).items():
        if here is not None and here.corpora.get(name) != registered:
            raise CorpusError(
                f"corpus '{name}' is now another text",
                required=f"the registered one, sha256 {registered.sha256}",
            )
    for arm, sha256 in (was.tokenizers if was else {}).items():
        if here is not None and here.tokenizers.get(arm) != sha256:
            raise CorpusError(
                f"the tokenizer of '{arm}' is now another one (sha256 {here.tokenizers.get(arm)})",
                required=f"the registered one, sha256 {sha256}",
                fix=f"restore '{chosen.file}'"
                if isinstance(chosen := registration.study.training(arm).data.tokenizer, TokenizerFile)
                else "the version of the library `tokenizers` under which the study was registered",
            )
    raise CorpusError("the study's corpora are not pinned as they were", required="the registered corpora")
