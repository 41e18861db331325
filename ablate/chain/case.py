"""A study file that has been read, the house it lies in, and what must hold before anything is done with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prereg.load import Loaded
    from prereg.register import CorpusPin, Registration
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
    return case


def require_own_checks(case: Case) -> None:
    """The code of every check that the study brings can be found and read. None of it is executed."""
    from prereg.own_checks import pin_checks

    pin_checks(case.study, case.path.parent)


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


def placed(case: Case, ask: Callable[[], None]) -> None:
    """Give an error about a field the file and line of that field."""
    from prereg.errors import StudyError

    try:
        ask()
    except StudyError as error:
        raise error.at(file=case.path, line=case.loaded.line(error.where.field)) from None
