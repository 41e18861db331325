"""A study file that has been read, the house it lies in, and what must hold before anything is done with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prereg.command import ScriptPin
    from prereg.load import Loaded
    from prereg.registration import CorpusPin, Registration
    from prereg.root import Root
    from prereg.spec import Study
    from prereg.task_pin import TaskPin

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
    placed(case, lambda: require_supported(case.study))
    placed(case, lambda: require_own_checks(case))
    placed(case, lambda: require_harness(case))
    return case


def require_harness(case: Case) -> None:
    """The harness that a study asks for is installed, in the version that its numbers come from."""
    if case.study.measure.harness is not None:
        from ablate.harness.extra import require_extra

        require_extra()


def require_own_checks(case: Case) -> None:
    """The code of every check that the study brings can be found and read. None of it is executed."""
    from prereg.own_checks import pin_checks

    pin_checks(case.study, case.path.parent)


def require_registered(case: Case) -> Registration:
    """The registration that stands, of an unchanged study."""
    from prereg.differences import require_unchanged
    from prereg.errors import RegistrationError
    from prereg.registration import load_registration

    standing = load_registration(case.root, case.study.study)
    if standing is None:
        raise RegistrationError(
            f"'{case.study.study}' is not registered",
            required="a registration before any evidence",
            fix=f"ablate run {case.path}   (registers, then trains)",
        )
    require_unchanged(standing, case.loaded)
    return standing


def pin_corpus(case: Case) -> CorpusPin:
    """What the study's corpus name means now: found, verified, long enough for every arm, measured."""
    from ablate.gpt.batches import Split
    from ablate.gpt.corpus import Library
    from ablate.gpt.tokenizer import CharTokenizer
    from prereg.registration import CorpusPin

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


@dataclass(frozen=True)
class Pins:
    """What the names in a study mean now: corpus and tasks for the built-in trainer, files of code for a user's own."""

    corpus: CorpusPin | None
    scripts: tuple[ScriptPin, ...] | None
    tasks: TaskPin | None = None


def pin(case: Case) -> Pins:
    """The bytes that the study's names stand for, found and hashed."""
    if case.study.trainer == "gpt":
        return Pins(pin_corpus(case), None, pin_tasks(case))
    return Pins(None, pin_code(case))


def pin_tasks(case: Case) -> TaskPin | None:
    """What the study's zero- and few-shot tasks are now; none where it declares none. Nothing is scored."""
    harness = case.study.measure.harness
    if harness is None:
        return None
    from ablate.gpt.corpus import Library
    from ablate.gpt.tokenizer import CharTokenizer
    from ablate.harness.pins import pin_tasks as pinned
    from prereg.errors import UnsupportedError, Where

    library, found = Library.of(case.root.corpora), []
    # A tokenizer of bytes can write every text, and is not trained here to say so.
    data = [case.study.training(arm).data for arm in case.study.arms]
    for corpus in dict.fromkeys(one.corpus if one.tokenizer == "char" else None for one in data):
        tokenizer = None if corpus is None else CharTokenizer.of(library.find(corpus).text)
        placed(case, lambda known=tokenizer: found.append(pinned(harness, case.root, known)))  # type: ignore[misc]
    if len(set(found)) > 1:
        left_out = sorted({one.n_unencodable for one in found})
        raise UnsupportedError(
            f"the variants' tokenizers cannot write the same items of '{harness.tasks}': they leave out {left_out}",
            required="the same items for every variant",
            fix="one tokenizer for all variants, or tasks that all of them can write",
            where=Where(file=case.path, field=("measure", "harness", "tasks")),
        )
    return found[0]


def pin_code(case: Case) -> tuple[ScriptPin, ...]:
    """The files of a user's own trainer as they are now; its program is here to be started."""
    from prereg.command import pin_scripts

    found: list[tuple[ScriptPin, ...]] = []
    placed(case, lambda: found.append(pin_scripts(case.root, case.study)))
    placed(case, lambda: _require_program(case))
    return found[0]


def _require_program(case: Case) -> None:
    import os
    import shutil

    from prereg.command import script_of
    from prereg.errors import RunError, Where

    word = case.study.command[0]
    if word == "{python}":
        return
    script = script_of(case.root.path, word)
    if os.access(script, os.X_OK) if script is not None else shutil.which(word):
        return
    raise RunError(
        f"the command's program '{word}' is not here" if script is None else f"'{word}' is not executable",
        required="a program on the PATH, or an executable file under the root",
        fix=f"chmod +x {script}" if script is not None else '"{python}" is the Python that ablate runs under',
        where=Where(field=("command", 0)),
    )


def require_pinned(case: Case, registration: Registration) -> None:
    """The corpus, or the trainer's code, that was registered is here, and is still the same."""
    from prereg.errors import CorpusError, RegistrationError

    now = pin(case)
    if now.corpus is not None and now.corpus != registration.corpus:
        wanted = registration.corpus.sha256 if registration.corpus else "none"
        raise CorpusError(
            f"corpus '{now.corpus.name}' is now another text (sha256 {now.corpus.sha256})",
            required=f"the registered one, sha256 {wanted}",
        )
    if now.tasks != registration.tasks:
        raise RegistrationError(
            f"the tasks '{now.tasks.name if now.tasks else ''}' are not what was registered on "
            f"{registration.registered_at}",
            required=f"sha256 {registration.tasks.sha256 if registration.tasks else 'none'}",
            fix=f'restore their files, or: ablate amend {case.path} --reason "..."',
        )
    if now.scripts != registration.scripts:
        was, are = ({pin.path: pin.sha256 for pin in pins or ()} for pins in (registration.scripts, now.scripts))
        moved = sorted(path for path in was.keys() | are.keys() if was.get(path) != are.get(path))
        raise RegistrationError(
            f"the trainer's code is not what was registered on {registration.registered_at}: {', '.join(moved[:5])}",
            required="the registered files, byte for byte",
            fix=f'restore them, or: ablate amend {case.path} --reason "..."',
        )


def placed(case: Case, ask: Callable[[], None]) -> None:
    """Give an error about a field the file and line of that field."""
    from prereg.errors import StudyError

    try:
        ask()
    except StudyError as error:
        raise error.at(file=case.path, line=case.loaded.line(error.where.field)) from None
