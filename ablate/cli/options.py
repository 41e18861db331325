"""What verbs share: exit codes, common arguments, the console."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self, TypeVar

import typer

from prereg.errors import RegistrationError, StudyError
from prereg.escape import json_visible, visible

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

    from ablate.judge.design.warnings import DesignWarning
    from ablate.reporting.blocks import Section

Found = TypeVar("Found", bound="BaseModel")


class Exit(IntEnum):
    """How a command ends: its exit code, what that means, and which commands end so."""

    OK = 0, "done; of `decide`, a verdict", "every command"
    BUG = (
        1,
        ("a bug in ablate, with its traceback; of `reproduce`, the run differs from its seal"),
        "every command",
    )
    DIFFERENT = BUG
    MISTAKE = (
        2,
        ("bad input: a message says what was found, what is required and what to type next; of `try`, problems"),
        "every command",
    )
    INCONCLUSIVE = 3, "the verdict is inconclusive, or a look was taken after which the study continues", "`decide`"
    INADMISSIBLE = (
        4,
        (
            "the evidence is inadmissible, so there is no verdict; of `verify`, something frozen has changed, or the "
            "records of a decided study give no verdict; of `ledger`, the ledger is damaged"
        ),
        "`decide`, `verify`, `ledger`",
    )
    INCOMPLETE = 5, "some runs failed or are left; of `seal`, a seal is still pending", "`run`, `seal`"
    UNFINISHED = 6, "planned runs have not ended; nothing was judged or logged", "`decide`"
    INTERRUPTED = (
        130,
        "interrupted by Ctrl-C or SIGTERM; nothing sealed is lost, and the same command resumes",
        ("every command"),
    )

    meaning: str
    of: str

    def __new__(cls, code: int, meaning: str, of: str) -> Self:
        found = int.__new__(cls, code)
        found._value_ = code
        found.meaning, found.of = meaning, of
        return found


StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="Path of a study file, such as studies/embnorm.yaml.")]
RootFolder = Annotated[Path | None, typer.Option("--root", help="The folder that holds studies/ (found by itself).")]
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
Timestamp = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Have an RFC 3161 authority timestamp it; the address goes on record."),
]
Ots = Annotated[bool, typer.Option("--ots", help="Hand its hash to the public OpenTimestamps calendars.")]
Mirrors = Annotated[
    list[str] | None,
    typer.Option(
        "--mirror", metavar="TRACKER", help="Also to mlflow:URI, tensorboard:DIR or wandb[:PROJECT] (repeatable)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


def console() -> Console:
    from rich.console import Console

    class Patient(Console):
        """A reader may leave early (`ablate decide STUDY | head`); the exit code still tells the verdict."""

        def on_broken_pipe(self) -> None:
            self.quiet = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    return Patient(highlight=False)


def show(*sections: Section) -> None:
    """Sections of blocks on standard output."""
    from ablate.reporting import terminal

    terminal.show(console(), *sections)


def show_or_json(found: Found, section: Callable[[Found], Section], *, as_json: bool) -> None:
    """What was found, as JSON or as its section."""
    if as_json:
        put_json(found.model_dump_json(indent=2))
    else:
        show(section(found))


def show_warnings(warnings: Sequence[DesignWarning]) -> None:
    """What is likely a mistake in a study, after a blank line; nothing where nothing is."""
    from ablate.reporting.summaries.study import warnings_section

    if warnings:
        print()
        show(warnings_section(warnings))


def put(*lines: str) -> None:
    """Lines of words on standard output, every character of them visible."""
    for line in lines:
        print(visible(line))


def put_note(line: str) -> None:
    """A line of words on standard error, next to what a verb answers."""
    print(visible(line), file=sys.stderr)


def put_error(error: StudyError) -> None:
    """An error on standard error: wrapped on a terminal, but for what is to be copied from it or counts columns."""
    lines = f"error: {error.text()}".splitlines()
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        lines = [line if line.startswith(("  try:", "    ")) else _wrapped(line, width) for line in lines]
    print("\n".join(lines), file=sys.stderr)


def _wrapped(line: str, width: int) -> str:
    indent = " " * (12 if line.startswith("  required: ") else 2)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def put_document(text: str) -> None:
    """A text of several lines, which ends its own last line."""
    print(visible(text, lines=True), end="")


def put_json(text: str) -> None:
    """JSON that says the same and shows every character."""
    print(json_visible(text))


def confirm_amendment(study: Path) -> None:
    """Ask on a terminal; elsewhere refuse. Raises `RegistrationError` for anything but yes."""
    answer = input("Amend all the same? [y/N] ") if sys.stdin.isatty() else ""
    if answer.strip().lower() not in ("y", "yes"):
        raise RegistrationError(
            "this amendment after evidence was not confirmed, and nothing was written",
            required="--yes, or the answer y on a terminal",
            fix=f"ablate amend {study} --reason TEXT --yes",
        )
