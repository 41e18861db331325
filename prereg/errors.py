"""Errors: the whole tree of `StudyError`, how each is said, and "did you mean" (`nearest`).

Everything a user can get wrong is a `StudyError`; anything else is our bug.

    StudyError                    exit code 2: one message in three parts (found, required, try)
    ├── StudyFileError            the YAML text itself: syntax, duplicate key, NaN, alias bomb
    ├── SpecError                 a field of the study: unknown, wrong type, contradiction
    │   ├── ClaimError            the claim language of a hypothesis
    │   └── RuleError             the decision language, unreachable verdicts, uncovered cases
    ├── UnsupportedError          the format knows it, this version cannot do it yet
    ├── RegistrationError         not registered, or changed since
    │   └── UndecidableDesignError   a verdict that can never happen, found before any data
    ├── LedgerError               chain broken, file damaged, entry unreadable
    ├── CorpusError               missing, wrong hash, unreadable
    ├── RunError                  another run is active, path not writable, worker cannot start
    ├── EvidenceError             records that cannot be read as what they claim to be
    └── SealError                 a seal that cannot be made: key, program, a file that is no seal

An inadmissible study is not an error: it is a result, and has its own type in `ablate.judge`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Self

from prereg.escape import visible

FieldPath = tuple[str | int, ...]
_LONGEST = 1200
_MOST = 10
_NAME = 200


@dataclass(frozen=True)
class Where:
    """The place of a mistake, as exactly as it is known."""

    file: Path | None = None
    line: int | None = None
    field: FieldPath = ()

    def __str__(self) -> str:
        place = "" if self.file is None else str(self.file)
        if self.line is not None:
            place += f":{self.line}" if place else f"line {self.line}"
        return " ".join(part for part in (place, dotted(self.field)) if part)


class StudyError(Exception):
    """A user's mistake: what was found and where, what is required, what to type next."""

    def __init__(self, found: str, *, required: str = "", fix: str = "", where: Where | None = None) -> None:
        self.found = found
        self.required = required
        self.fix = fix
        self.where = where or Where()
        self.others: tuple[StudyError, ...] = ()
        """Further mistakes of the same file."""
        self.n_left_out = 0
        super().__init__(self.text())

    def followed_by(self, others: Sequence[StudyError]) -> Self:
        """The same error with further ones of the file after it, ten in all, each message once.

        >>> first, second = SpecError("no claim", where=Where(line=3)), SpecError("no seeds", required="a list")
        >>> print(first.followed_by([second, second]))
        line 3: no claim
        error: no seeds
          required: a list
        """
        by_text: dict[str, StudyError] = {self.text(): self}
        # A new error: one that was raised already keeps its text and its place.
        first = type(self)(self.found, required=self.required, fix=self.fix, where=self.where)
        first.others = tuple(by_text.setdefault(error.text(), error) for error in others if error.text() not in by_text)
        first.n_left_out = max(0, len(first.others) + 1 - _MOST)
        first.others = first.others[: _MOST - 1]
        # `str` of an exception is that of its args, which were made before there were others.
        first.args = (first.text(),)
        return first

    def at(self, *, file: Path | None = None, line: int | None = None, field: FieldPath = ()) -> Self:
        """The same error alone, placed by a caller that knows the file, the line or the field."""
        where = replace(
            self.where, file=file or self.where.file, line=line or self.where.line, field=field or self.where.field
        )
        return type(self)(self.found, required=self.required, fix=self.fix, where=where)

    def text(self) -> str:
        """The message as a user reads it, without colour, and those of the others after it.

        What a file brings into it is cut to what can be read.

        A line after the first of a part is indented, so that no part can begin a line of ours.
        """
        head = f"{_cut(str(self.where))}: {_cut(self.found)}" if str(self.where) else _cut(self.found)
        lines = [head]
        if self.required:
            lines.append(f"  required: {_cut(self.required)}")
        if self.fix:
            lines.append(f"  try:      {_cut(self.fix)}")
        lines += [f"error: {error.text()}" for error in self.others]
        lines += [f"and {self.n_left_out} more"] if self.n_left_out else []
        return "\n".join(lines)


class StudyFileError(StudyError):
    """The YAML text cannot be read safely and unambiguously."""


class SpecError(StudyError):
    """A field of the study is unknown, of the wrong type, or contradicts another."""


class ClaimError(SpecError):
    """A claim is not a sentence of the claim language."""


class RuleError(SpecError):
    """A decision rule does not parse, cannot be reached, or leaves a case uncovered."""


def field_error(field: FieldPath, found: str, required: str, fix: str = "") -> SpecError:
    """The error of one field of a study: a `ClaimError` where the field is a claim, else a `SpecError`.

    >>> error = field_error(("hypotheses", "gain", "claim"), "an empty claim", "LEFT VERB METRIC")
    >>> type(error).__name__
    'ClaimError'
    >>> print(error)
    hypotheses.gain.claim: an empty claim
      required: LEFT VERB METRIC
    """
    kind = ClaimError if field[-1:] == ("claim",) else SpecError
    return kind(found, required=required, fix=fix, where=Where(field=field))


def not_one_of(field: FieldPath, found: str, name: str, names: Collection[str]) -> SpecError:
    """The error of a name that is none of those that are known, with the nearest of them.

    >>> print(not_one_of(("trainer",), "'gtp'", "gtp", ("gpt", "command")))
    trainer: 'gtp'
      required: one of gpt, command
      try:      did you mean 'gpt'?
    """
    return field_error(field, found, "one of " + ", ".join(names), nearest(name, names))


class UnsupportedError(StudyError):
    """The study format allows it, but this version cannot do it, and says so before anything runs."""


def missing_gpt(package: str) -> UnsupportedError:
    """The error of a command that needs the built-in trainer where `package`, a part of the extra `gpt`, is missing."""
    return UnsupportedError(
        f"the built-in trainer needs {package}, which is not installed",
        required="the extra 'gpt': torch, tokenizers and safetensors",
        fix="pip install 'ablate-prereg[gpt]'   (without a GPU, install the much smaller CPU build of torch first)",
    )


def missing_posix(what: str) -> UnsupportedError:
    """The error of a command that needs what only POSIX systems have, such as file locks."""
    return UnsupportedError(
        f"this system has no {what}",
        required="a POSIX system: Linux is tested, macOS is not",
        fix="on Windows, use WSL",
    )


class RegistrationError(StudyError):
    """The study is not registered, or is no longer what was registered."""


class UndecidableDesignError(RegistrationError):
    """The registered rule has a verdict that no data could produce."""


class LedgerError(StudyError):
    """The ledger cannot be trusted or read."""


class CorpusError(StudyError):
    """A corpus is missing or is not the text its name promises."""


class RunError(StudyError):
    """Runs cannot start: another process holds the study, or the disk refuses."""


class EvidenceError(StudyError):
    """A record on disk is not what it claims to be."""


class SealError(StudyError):
    """A seal cannot be made: the key, the program or the file is not fit for it."""


def dotted(path: FieldPath) -> str:
    """`('hypotheses', 'gain', 'claim')` as a user writes it: `hypotheses.gain.claim`, indices in brackets.

    >>> dotted(("decision", 0, "when")), dotted(("base", "optim.lr"))
    ('decision[0].when', 'base.optim.lr')
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text


def nearest(word: str, words: Iterable[str]) -> str:
    """A ready sentence naming the closest known word, or listing the known ones when none is close.

    >>> nearest("lr", ["optim.lr", "data.seed"]), nearest("sead", ["seed", "steps"]), nearest("z", ["seed", "steps"])
    ("did you mean 'optim.lr'?", "did you mean 'seed'?", 'use one of: seed, steps')
    """
    names = sorted(set(words))
    # `lr` of optim.lr: closer than any word of a similar spelling, where it is the only one.
    ending = [name for name in names if name.endswith(f".{word}")]
    if len(ending) == 1:
        return f"did you mean '{ending[0]}'?"
    # Likeness costs the product of the lengths; what is that long was not mistyped.
    close = get_close_matches(word[:_NAME], [name for name in names if len(name) <= _NAME], n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return "use one of: " + ", ".join(names) if names else ""


def _cut(text: str) -> str:
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text) - _LONGEST:,} characters more)"
    # Four blanks, also before what a file brings in: nothing but ours begins at the left edge.
    first, *others = visible(cut, lines=True).split("\n")
    return "\n".join([first, *(line if line.startswith("    ") else f"    {line}" for line in others)])
