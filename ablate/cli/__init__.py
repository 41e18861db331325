"""Command line `ablate`: collects the commands of this folder (`PANELS`), and ends a failed one with its exit code.

Importing this loads neither torch nor pandas nor altair: every command imports what it needs when it is called.
`main` turns a `StudyError` into one message and exit code 2, and any other exception into a plain admission that the
bug is ours (exit code 1, with the traceback).

To add a command: see `ablate.cli.command`. To add an exit code: `Exit` in `ablate.cli.options`, the epilog below, and
`python -m docs.generator` for the reference; tests/cli/test_every_command.py compares the three.
"""

from __future__ import annotations

import atexit
import gc
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO, cast

import typer
from typer.core import TyperGroup

from ablate.cli import campaigns, corpora, gate, proof, records, registering, reports, runs, studies
from ablate.cli.command import Command, Interrupted
from ablate.cli.options import Exit, Patient, mistake_of_disk, put_error
from prereg.errors import SpecError, StudyError, missing_gpt, missing_posix
from prereg.escape import visible

PANELS: dict[str, tuple[Command, ...]] = {
    "Everyday commands": (
        studies.new_command,
        studies.check_command,
        studies.try_command,
        studies.design_command,
        registering.register_command,
        runs.run_command,
        runs.status_command,
        runs.decide_command,
        reports.report_command,
    ),
    "Design": (registering.amend_command, studies.plan_command),
    "Campaigns": (campaigns.propose_command, campaigns.confirm_command, campaigns.mcp_command),
    "Pull requests": (gate.gate_command,),
    "Proof": (proof.verify_command, proof.reproduce_command, proof.bundle_command, registering.seal_command),
    "Records": (
        runs.train_command,
        proof.ledger_command,
        records.import_command,
        records.judge_command,
        records.export_model_command,
    ),
}
CORPUS = (corpora.list_command, corpora.show_command, corpora.add_command, corpora.fetch_command)
# Reading importlib.metadata instead takes as long as everything else that the help does.
_OTHERS = re.compile(r"(ablate|prereg)-([0-9][^-]*)\.(?:dist|egg)-info")
# typer carries a click of its own from 0.26 on, so the class is found by what both export.
_UsageError: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
_TYPED = "ablate.typed"
"""Key of the words of a command line in the context of its parsing."""


class _Panels(TyperGroup):
    """Commands under the names of their panels, in plain text: the boxes that typer draws leave too few columns.

    What is wrong with a command line is a `StudyError` like any other mistake: found, required, what to type instead.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_TYPED] = tuple(args)  # parsing empties the list
        with _usage_as_mistake(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _usage_as_mistake(ctx):
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))  # of all panels, so that their columns line up
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            row = (name.ljust(width), command.get_short_help_str(formatter.width - width - 6))
            panels.setdefault(getattr(command, "rich_help_panel", "Commands"), []).append(row)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


@contextmanager
def _usage_as_mistake(ctx: Any) -> Iterator[None]:
    """Turn click's usage errors into ours. Raises `SpecError`."""
    try:
        yield
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # no mistake: it prints the help
            raise
        raise _mistake(error, ctx.meta[_TYPED]) from None


def _mistake(error: Any, typed: tuple[str, ...]) -> SpecError:
    """What is wrong with a command line, and the same line with what it lacks."""
    verb = " ".join(_path(error.ctx))
    # click's message is a sentence; here it goes on after "error:".
    message = error.format_message().rstrip(".")
    fault = message[:1].lower() + message[1:]
    parameter = getattr(error, "param", None)
    if parameter is None:
        return SpecError(fault, required=f"what {verb} --help lists", fix=_corrected(error, typed) or f"{verb} --help")
    name = parameter.opts[0] if parameter.param_type_name == "option" else ""
    placeholder = (parameter.metavar or parameter.name or "").upper().strip("[]")
    required = f"{f'{name} {placeholder}'.strip()}: {parameter.help.rstrip('.')}"
    if type(error).__name__ != "MissingParameter":
        return SpecError(fault, required=required, fix=f"{verb} --help")
    # The placeholder is not quoted as typed words are: it is to be replaced.
    line = " ".join(filter(None, [shlex.join(["ablate", *typed]), name, placeholder]))
    return SpecError(f"{name or placeholder} is missing", required=required, fix=line)


def _path(ctx: Any) -> list[str]:
    """`ablate` and the names of the commands below it; click's own path begins with whatever started this process."""
    return [*_path(ctx.parent), ctx.info_name] if ctx.parent is not None else ["ablate"]


def _corrected(error: Any, typed: tuple[str, ...]) -> str:
    """The line with the nearest command or option in place of one that does not exist; empty where none is near."""
    wrong, near = getattr(error, "option_name", ""), getattr(error, "possibilities", None) or ()
    if not wrong and (commands := getattr(error.ctx.command, "commands", None)):
        wrong = typed[len(_path(error.ctx)) - 1]  # the word after the commands that exist
        near = get_close_matches(wrong, commands, n=1)
    if wrong not in typed or not near:  # click reports --opt of --opt=value, which was not typed so
        return ""
    at = typed.index(wrong)
    return shlex.join(["ablate", *typed[:at], near[0], *typed[at + 1 :]])


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        print(f"ablate {version('ablate-prereg')}")
        raise typer.Exit


def _foreign() -> list[str]:
    """Distributions of other projects, by name and version, that install import names of this one."""
    projects = []
    # By the names of folders: metadata of every installed package would have to be read otherwise.
    for folder in dict.fromkeys(sys.path):
        try:
            names = [entry.name for entry in Path(folder).iterdir()]
        except OSError:
            continue
        projects += [match for name in names if (match := _OTHERS.fullmatch(name))]
    return [f"{project[1]} {project[2]}" for project in projects]


def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the name of a verb; each is carried out when it is read."""


def application(name: str = "") -> typer.Typer:
    """The command line; where `name` is that of a command, that command alone, so that the others need not be built."""
    app = typer.Typer(
        cls=_Panels,
        name="ablate",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        help="Pre-registered ablation studies for language models.\n\n"
        "\b\nStart with:\n  ablate new first\n  ablate run studies/first.yaml\n  ablate decide studies/first.yaml",
        epilog="Exit codes: 0 done or decided, 2 your mistake, 3 inconclusive or to be continued, 4 inadmissible, "
        "5 runs failed, 6 unfinished, 7 deviations, 8 judged differently, 9 worse or dropped, 130 interrupted, "
        "1 our bug (of reproduce: not reproduced).",
    )
    app.callback()(options)
    every = [(command, panel) for panel, commands in PANELS.items() for command in commands]
    # Building all of them takes longer than most commands do: typer inspects every parameter.
    named = [row for row in every if row[0].name == name]
    for command, panel in named or every:
        app.command(command.name, rich_help_panel=panel)(command.callback())
    if not named:
        corpus = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Manage training corpora.")
        for command in CORPUS:
            corpus.command(command.name)(command.callback())
        app.add_typer(corpus, name="corpus", rich_help_panel="Corpora")
    return app


app = application()


def _interrupt(_signal: int, _frame: object) -> None:
    """SIGTERM ends a verb as Ctrl-C does; while runs are made, the scheduler counts both instead."""
    raise KeyboardInterrupt


def _first(error: BaseException) -> BaseException:
    """What began a chain of exceptions, or the ending of a command that has said how it was interrupted."""
    # typer raises Exit while it handles a KeyboardInterrupt, so what happened first is at the end of the chain.
    while error.__context__ is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error


def main() -> None:
    """The command `ablate`."""
    # Imports make a million objects and hardly any garbage: by default, 700 more of them start a search for cycles.
    gc.set_threshold(100_000, *gc.get_threshold()[1:])
    # Nor are cycles looked for among them at the end, which takes a third of a second after `decide`.
    atexit.register(gc.freeze)
    signal.signal(signal.SIGTERM, _interrupt)
    # A terminal without UTF-8 gets escapes in place of an exception halfway through a report.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    out, err = Patient(sys.stdout), Patient(sys.stderr)
    with redirect_stdout(cast("TextIO", out)), redirect_stderr(cast("TextIO", err)):
        try:
            _main()
        finally:
            out.flush()
            err.flush()


def _main() -> None:
    # `pip install ablate` installs another project: its modules and ours would be mixed in one folder.
    for project in _foreign():
        name = project.split()[0]
        warning = (
            f"warning: {project} is another project, which installs the import name '{name}' too: pip uninstall {name}"
        )
        print(f"{warning}, then install ablate-prereg again", file=sys.stderr)
    try:
        # The first word is a command in most calls. Where it is an option, or no command, all are built, and typer
        # says so.
        application(*sys.argv[1:2])()
    except StudyError as error:
        put_error(error)
        sys.exit(Exit.MISTAKE)
    except (KeyboardInterrupt, SystemExit) as ended:
        # typer turns an interrupt, and Ctrl-D at a prompt, into an exit.
        if not isinstance(_first(ended), (KeyboardInterrupt, EOFError)):
            raise
        print("interrupted: nothing sealed was lost; repeat the command to go on", file=sys.stderr)
        sys.exit(Exit.INTERRUPTED)
    except OSError as error:
        put_error(mistake_of_disk(error))
        sys.exit(Exit.MISTAKE)
    except ModuleNotFoundError as error:
        if error.name == "resource":
            missing = missing_posix("module 'resource', which measures memory")
        elif error.name in ("torch", "tokenizers", "safetensors"):
            missing = missing_gpt(error.name)
        else:
            _admit_bug()  # a package of our own dependencies: the installation is broken
        put_error(missing)
        sys.exit(Exit.MISTAKE)
    except Exception:
        _admit_bug()


def _admit_bug() -> NoReturn:
    """Print the exception that is being handled, and exit."""
    import traceback

    print(visible(traceback.format_exc(), lines=True), end="", file=sys.stderr)
    print("this is a bug in ablate, not in your study; nothing sealed was lost", file=sys.stderr)
    sys.exit(Exit.BUG)


if __name__ == "__main__":
    main()
