"""Exit codes (`Exit`), options that commands share, standard streams, and mistakes as they are printed."""

from __future__ import annotations

import os
import shutil
import sys
from enum import IntEnum
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, Self, TextIO

import typer

from prereg.errors import StudyError
from prereg.registry.disk import NO_ROOM


class Exit(IntEnum):
    """How a command ends: its exit code, what that means, and which commands end so."""

    OK = (
        0,
        (
            "done; of `decide`, a verdict without deviations; of `gate`, head is equivalent, better, identical, or the "
            "same code; of `propose`, a keep; of `confirm`, a best that is better than the start"
        ),
        "every command",
    )
    BUG = (
        1,
        ("a bug in ablate, with its traceback; of `reproduce`, the run differs from its seal"),
        "every command",
    )
    DIFFERENT = BUG  # an alias: `reproduce` ends with 1 too
    MISTAKE = (
        2,
        ("bad input: a message says what was found, what is required and what to type next; of `try`, problems"),
        "every command",
    )
    INCONCLUSIVE = (
        3,
        (
            "the verdict is inconclusive, with deviations or without, or a look was taken after which the study "
            "continues; of `judge`, a claim is inconclusive; of `gate`, undecided; of `propose`, out of budget; of "
            "`confirm`, neither"
        ),
        "`decide`, `judge`, `gate`, `propose`, `confirm`",
    )
    INADMISSIBLE = (
        4,
        (
            "the evidence is inadmissible, so there is no verdict; of `verify`, something frozen has changed, or the "
            "records of a decided study give no verdict; of `ledger`, the ledger is damaged"
        ),
        "`decide`, `gate`, `propose`, `confirm`, `verify`, `ledger`",
    )
    INCOMPLETE = (
        5,
        "some runs failed or are left; of `train`, the run failed",
        "`run`, `train`, `gate`, `propose`, `confirm`",
    )
    UNFINISHED = 6, "planned runs have not ended; nothing was judged or logged", "`decide`"
    DEVIATIONS = (
        7,
        "a verdict with deviations from what was registered, which the first screen names",
        "`decide`, `gate`, `propose`, `confirm`",
    )
    DIFFERENTLY = (
        8,
        "nothing frozen has changed, and this version judges the same evidence differently than the one that decided",
        "`verify`",
    )
    WORSE = (
        9,
        "head is worse than base, with deviations from what was registered or without; of `propose`, a drop; of "
        "`confirm`, a best that is not better than the start by what the campaign asks",
        "`gate`, `propose`, `confirm`",
    )
    INTERRUPTED = (
        130,
        "interrupted by Ctrl-C or SIGTERM; nothing sealed is lost, and the same command resumes",
        ("every command"),
    )

    meaning: str
    of: str

    def __new__(cls, code: int, meaning: str, of: str) -> Self:
        # An int, so that `sys.exit` takes it; meaning and commands come along for the reference and for `--help`.
        exit_code = int.__new__(cls, code)
        exit_code._value_ = code
        exit_code.meaning, exit_code.of = meaning, of
        return exit_code


StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="Path of a study file, such as studies/embnorm.yaml.")]
Pilot = Annotated[
    str | None,
    typer.Option(metavar="STUDY", help="Take SDs, correlations and run time from this finished study's records."),
]
Accept = Annotated[
    str | None,
    typer.Option(
        "--accept-underpowered",
        metavar="REASON",
        help="Register although power is too low or a verdict can never happen; the reason goes on record.",
    ),
]
Sign = Annotated[
    Path | None,
    typer.Option(metavar="KEY", help="Sign with this ssh key (or an agent's key by its .pub file)."),
]


class Patient:
    """A standard stream whose reader may leave early (`ablate run STUDY | head`): the command still does all that it
    does, and its exit code says how that ended."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.left = False
        """Whether the reader has left."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """All of the text is taken, whether anybody reads it or not."""
        try:
            self.stream.write(text)
        except BrokenPipeError:
            self._forget_reader()
        return len(text)

    def flush(self) -> None:
        """Hand on what was written."""
        try:
            self.stream.flush()
        except BrokenPipeError:
            self._forget_reader()

    def _forget_reader(self) -> None:
        self.left = True
        # The descriptor too: the interpreter flushes it once more at exit, and would complain of the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())


def mistake_of_disk(error: OSError) -> StudyError:
    """The mistake that an error of the system is: a disk or a permission is the user's to repair, and no traceback says
    more than the path."""
    place = f"{error.filename}: " if error.filename else ""
    full = error.errno in NO_ROOM
    needed = "a disk with room" if full else "files and folders that can be read and written"
    fix = "free space" if full else "check the path and fix its permissions"
    return StudyError(f"{place}{error.strerror or error}", required=needed, fix=f"{fix}, then retry")


def put_error(error: StudyError) -> None:
    """A mistake on standard error. On a terminal its words are broken at the terminal's width, but no path and, but for
    a list of names, nothing to type: what is copied from there must be whole. Elsewhere each part is one line."""
    text = f"error: {error.text()}"
    if not sys.stderr.isatty():  # one line a part, for logs and tools
        print(text, file=sys.stderr)
        return
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        width = 0
    # Blanks of a path are hidden from `fill`, which would break the line at one of them.
    for head in {f"error: {mistake.where}" for mistake in (error, *error.others)}:
        text = text.replace(head, head.replace(" ", "\0") if head != "error: " else head)
    broken = partial(
        fill, width=width or shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False
    )
    for line in text.split("\n"):
        words = line.startswith(("error:", "  required:", "  try:      use one of:"))
        shown = broken(line, subsequent_indent=" " * (7 if line[0] == "e" else 12)) if words else line
        print(shown.replace("\0", " "), file=sys.stderr)
