"""`@command`: makes a function that returns a `Result` into a command, with `--root`, `--json` and an exit code.

`@command()` adds `--root`, `--json` and `--quiet`, gives the function a `Workspace`, prints what it returns as text or
as JSON, and ends with its exit code. A command that asks, or that shows something before it has ended, also takes a
`Screen`.

To add a command: such a function, NAME_command, in the module of this folder whose subject it is, with `Example:` in
its docstring, which is its help; its name in `PANELS` of `ablate/cli/__init__.py`; what it does in a module of
`ablate/`, for a notebook too; and `python -m docs.generator`. tests/cli/test_every_command.py checks the rest.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from io import TextIOBase
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeAlias, cast, get_type_hints

import typer

from ablate.cli.options import Exit, put_error
from ablate.workspace import Workspace
from prereg.errors import StudyError
from prereg.escape import json_visible, visible

if TYPE_CHECKING:
    from rich.console import Console

    from ablate.reporting.blocks import Section
    from ablate.reporting.document import Document
    from ablate.runner.progress import Watcher

Shown: TypeAlias = "str | Section | Document"
"""Lines, sections of blocks, and a whole document."""


class WholeText(str):
    """A text of several lines, which ends its own last line."""

    __slots__ = ()


@dataclass(frozen=True)
class Result:
    """What a command found, and how it ends."""

    facts: Any = None
    """What `--json` prints: a model, a dataclass or plain data, or what gives it; nothing where there is none."""
    text: Callable[[], Iterable[Shown]] = tuple
    """What is printed otherwise; called only then, because drawing costs imports."""
    next: str = ""
    """The command to type next."""
    exit: Exit = Exit.OK
    mistakes: Sequence[StudyError] = ()
    """Mistakes in some of several files: each is printed, and the command ends with 2."""
    in_one_line: bool = False
    """Whether JSON takes one line, because other lines come before it."""


class _Nowhere(TextIOBase):
    """A stream that nobody reads."""

    def write(self, text: str) -> int:
        return len(text)


class Screen:
    """Standard output and standard error of one command: text, JSON, or nothing."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False, events: bool = False) -> None:
        self.as_json, self.quiet, self._events = as_json, quiet, events

    @property
    def asks(self) -> bool:
        """Whether somebody is there to answer a question."""
        return sys.stdin.isatty() and not self.as_json

    def ask(self, question: str) -> str:
        """What is typed at a question, which goes to standard error: standard output may be JSON's."""
        print(question, end="", file=sys.stderr, flush=True)
        return input("").strip()

    @cached_property
    def console(self) -> Console:
        """The console that text is drawn for."""
        from rich.console import Console

        return Console(highlight=False, stderr=self.as_json)  # standard output is JSON's then

    @cached_property
    def watcher(self) -> Watcher:
        """Who hears of progress: a live table on a terminal, plain lines elsewhere, with `--json` an event a line."""
        from ablate.runner.progress import JsonWatcher, LiveWatcher, PlainWatcher

        if self.quiet:
            return PlainWatcher(cast("TextIO", _Nowhere()))
        if self.as_json:
            return JsonWatcher(sys.stdout) if self._events else PlainWatcher(sys.stderr)
        return LiveWatcher(self.console) if self.console.is_terminal else PlainWatcher(sys.stdout)

    def note(self, line: str) -> None:
        """A line on standard error, next to what the command answers."""
        if not self.quiet:
            print(visible(line), file=sys.stderr)

    def show(self, *items: Shown) -> None:
        """Text now: on standard output, or on standard error where that belongs to JSON."""
        if self.quiet:
            return
        # Neighbours of one kind go to the terminal together: lines need none of what draws sections, whose import
        # takes time.
        for kind, group in groupby(items, type):
            if issubclass(kind, str):
                for text in group:
                    ends = "" if kind is WholeText else "\n"
                    print(visible(str(text), lines=not ends), end=ends, file=sys.stderr if self.as_json else None)
                continue
            from ablate.reporting import terminal
            from ablate.reporting.blocks import Section

            if kind is Section:
                terminal.show(self.console, *cast("Iterable[Section]", group))
            else:
                for document in group:
                    terminal.show_document(self.console, cast("Document", document))

    def give(self, result: Result) -> None:
        """A result as text and what to type next, or as JSON; mistakes on standard error."""
        for mistake in result.mistakes:
            put_error(mistake)
        if self.as_json:
            # What is costly to work out is not, for text.
            facts = result.facts() if callable(result.facts) else result.facts
            if facts is not None:
                text = json.dumps(as_plain_data(facts), indent=None if result.in_one_line else 2, ensure_ascii=False)
                print(json_visible(text, sys.stdout.encoding))
        elif not self.quiet:
            self.show(*result.text(), *([f"next:  {result.next}"] if result.next else []))
        sys.stdout.flush()  # before the exit, which a reader may be waiting for


class Interrupted(typer.Exit):
    """The ending of a command that was interrupted, and has said so."""


class _LateWatcher:
    """The watcher of a screen, made when it first hears something: a command that makes no run loads none of it."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._screen.watcher, name)


def as_plain_data(facts: Any) -> Any:
    """Models, dataclasses and paths as JSON's own types."""
    if hasattr(facts, "model_dump"):
        return facts.model_dump(mode="json")
    if is_dataclass(facts) and not isinstance(facts, type):
        return as_plain_data(asdict(facts))
    if isinstance(facts, Mapping):
        return {str(key): as_plain_data(value) for key, value in facts.items()}
    if isinstance(facts, list | tuple):
        return [as_plain_data(value) for value in facts]
    return str(facts) if isinstance(facts, Path) else facts


Verb = Callable[..., Result]

_COMMON = {
    "root": (
        Annotated[Path | None, typer.Option("--root", help="The folder that holds studies/ (found by itself).")],
        None,
    ),
    "as_json": (Annotated[bool, typer.Option("--json", help="JSON instead of text.")], False),
    "quiet": (Annotated[bool, typer.Option("--quiet", "-q", help="No text: mistakes and the exit code alone.")], False),
}


@dataclass(frozen=True)
class Command:
    """A function that returns a result, as the command line calls it."""

    verb: Verb
    name: str
    interrupted: str
    """What Ctrl-C, or Ctrl-D at a question, leaves behind."""
    events: bool
    """Whether `--json` prints an event a line while it works."""

    def callback(self) -> Callable[..., None]:
        """The function that typer calls: its parameters, and the common options."""
        # typer reads a signature: the function's own, without what is given by us, with the common options at its end.
        hints = get_type_hints(self.verb, include_extras=True)  # annotations are strings in these modules
        own = inspect.signature(self.verb).parameters
        given_by_us = {name: hints[name] for name in own if hints[name] in (Workspace, Screen)}
        parameters = [
            parameter.replace(annotation=hints[name]) for name, parameter in own.items() if name not in given_by_us
        ]
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, (kind, default) in _COMMON.items()
        ]

        def call(*, root: Path | None, as_json: bool, quiet: bool, **options: Any) -> None:
            screen = Screen(as_json=as_json, quiet=quiet, events=self.events)
            workspace = Workspace(root, console=cast("Watcher", _LateWatcher(screen)))
            ours = {name: workspace if kind is Workspace else screen for name, kind in given_by_us.items()}
            try:
                result = self.verb(**ours, **options)
            except (KeyboardInterrupt, EOFError):
                if sys.stderr.isatty():
                    print(file=sys.stderr)  # the cursor is behind a question, or behind ^C
                screen.note(f"interrupted: {self.interrupted}")
                raise Interrupted(Exit.INTERRUPTED) from None
            screen.give(result)
            # Of several files with mistakes, the command's own ending counts first.
            if exit_code := result.exit or (Exit.MISTAKE if result.mistakes else Exit.OK):
                raise typer.Exit(exit_code)

        call.__doc__, call.__name__ = self.verb.__doc__, self.name
        # typer reads both of them.
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return call


def command(*, interrupted: str = "nothing was written", events: bool = False) -> Callable[[Verb], Command]:
    """Make a function that returns a result into a command: `export_model_command` is `ablate export-model`."""
    # The suffix keeps the function of the API that it calls, `ablate.export_model`, the only one of that name.
    return lambda verb: Command(
        verb, verb.__name__.removesuffix("_command").replace("_", "-"), interrupted=interrupted, events=events
    )
