"""The verbs. One short function each; this module owns the clock, printing and exit codes.

Importing it loads neither torch nor pandas nor altair: every verb imports the rooms it needs when it is
called. `main` turns a `StudyError` into one message and exit code 2, and anything else into a plain
admission that the bug is ours (exit code 1, with the traceback).
"""

from __future__ import annotations

import json
import os
import sys
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate import chain
from prereg.errors import StudyError

if TYPE_CHECKING:
    from rich.console import Console

    from ablate.gpt.corpus import Library
    from ablate.run.watch import Watcher


class Exit(IntEnum):
    """How a verb ends. Documented in the README."""

    OK = 0
    BUG = 1
    MISTAKE = 2
    INCONCLUSIVE = 3
    INADMISSIBLE = 4
    INCOMPLETE = 5
    INTERRUPTED = 130


app = typer.Typer(
    name="ablate",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Pre-registered ablation studies for language models.\n\n"
    "\b\nStart with:\n  ablate run studies/quickstart.yaml\n  ablate decide studies/quickstart.yaml\n\n"
    "Exit codes: 0 done or decided, 2 your mistake, 3 inconclusive or to be continued, 4 inadmissible, 5 runs failed, "
    "130 interrupted, 1 our bug.",
)
corpus_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Texts that models read: list, add, fetch.")
app.add_typer(corpus_app, name="corpus")

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
        help="Register although a verdict can never happen; the reason goes into lock, ledger and report.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


@app.command()
def check(study: StudyFile, root: RootFolder = None) -> None:
    """Show what a study promises, its rule as a table.

    Reads the file, checks every field, claim and rule, and writes nothing.

    Example:  ablate check studies/embnorm.yaml
    """
    from ablate.report import console

    case = chain.check(study, root)
    console.print_check(_console(), case.study)


@app.command()
def schema() -> None:
    """Print the JSON schema of a study file.

    Give it to an editor for completion and hover text.

    Example:  ablate schema > study.schema.json
    """
    from prereg.schema import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@app.command()
def design(study: StudyFile, root: RootFolder = None, pilot: Pilot = None, as_json: AsJson = False) -> None:
    """Simulate the registered rule before any data.

    Says what can be found with these seeds, how often by chance, and how many seeds it would take.

    Example:  ablate design studies/embnorm.yaml
    """
    from ablate.report import console

    found = chain.design(study, root=root, pilot=pilot)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        console.print_design(_console(), found)


@app.command()
def register(study: StudyFile, root: RootFolder = None, pilot: Pilot = None, accept: Accept = None) -> None:
    """Freeze a study in its lock and in the ledger.

    Doing it twice changes nothing.

    Example:  ablate register studies/embnorm.yaml
    """
    registration, entry = chain.register(study, root=root, pilot=pilot, accept_underpowered=accept)
    name = registration.study.study
    if entry is None:
        print(f"{name} is registered already, {registration.sha256[:8]} since {registration.registered_at}")
        return
    print(f"registered {name} as {registration.sha256[:8]} at {registration.registered_at}")
    print(f"ledger head {entry.sha256}")


@app.command()
def amend(
    study: StudyFile,
    reason: Annotated[str, typer.Option(help="Why, in a sentence; kept in the ledger.")],
    root: RootFolder = None,
    pilot: Pilot = None,
    accept: Accept = None,
) -> None:
    """Register a changed study, with a reason.

    The earlier registration stays in the ledger, with what differs and whether evidence existed by then.

    Example:  ablate amend studies/embnorm.yaml --reason "two more seeds, before any run"
    """
    registration, entry = chain.amend(study, reason=reason, root=root, pilot=pilot, accept_underpowered=accept)
    print(
        f"amended {registration.study.study}: {str(registration.previous)[:8]} is now {registration.sha256[:8]}; "
        f"evidence by then: {entry.body['evidence']}"
    )
    print(f"ledger head {entry.sha256}")


@app.command()
def run(
    study: StudyFile,
    root: RootFolder = None,
    *,
    slots: Annotated[int | None, typer.Option(min=1, help="Runs side by side (default: one a core).")] = None,
    as_json: AsJson = False,
    next_look: Annotated[
        bool, typer.Option("--next-look", help="Only what the next look of a sequential study needs (as without it).")
    ] = False,
    pilot: Pilot = None,
    accept: Accept = None,
) -> None:
    """Train every run that is not sealed yet.

    Registers the study first if need be, and says so. Ctrl-C stops cleanly; run again to go on.
    A sequential study is trained up to its next look, and no further before that look is taken.

    Example:  ablate run studies/quickstart.yaml
    """
    done = chain.run(
        study,
        root=root,
        slots=slots,
        watcher=_watcher(as_json),
        next_look=next_look,
        pilot=pilot,
        accept_underpowered=accept,
    )
    summary, name = done.summary, done.registration.study.study
    if as_json:
        print(
            json.dumps(
                {
                    "event": "summary",
                    "study": name,
                    "registration": done.registration.sha256,
                    "registered_now": done.registered_now,
                    "planned": summary.planned,
                    "done": summary.sealed,
                    "failed": list(summary.failed),
                    "interrupted": summary.interrupted,
                    "head": summary.head,
                    **({"look": done.look.model_dump()} if done.look is not None else {}),
                }
            )
        )
    else:
        print(f"{name}: {summary.sealed} of {summary.planned} runs sealed")
        if done.look is not None:
            left = len(done.registration.study.seeds) - done.look.n_seeds
            print(f"these are the runs of {done.look.words}; planned seeds that wait for what it says: {left}")
        for failure in summary.failed:
            print(f"failed  {failure}")
        print(f"ledger head {summary.head}")
        print(f"next:  ablate {'decide' if summary.complete else 'run'} {study}")
    if not summary.complete:
        raise typer.Exit(Exit.INTERRUPTED if summary.interrupted else Exit.INCOMPLETE)


@app.command()
def status(study: StudyFile, root: RootFolder = None, as_json: AsJson = False) -> None:
    """Show how far a study has come.

    Health only, never a contrast between variants.

    Example:  ablate status studies/embnorm.yaml
    """
    from ablate.report import console
    from ablate.status import read_status

    found = read_status(chain.open_case(study, root))
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        console.print_status(_console(), found)


@app.command()
def decide(study: StudyFile, root: RootFolder = None, as_json: AsJson = False) -> None:
    """Judge the evidence by the registered rule.

    Logs the decision and writes verdict.json, report.md and report.html under reports/STUDY/.
    At a look of a sequential study that settles nothing it logs the look, says CONTINUE and ends with 3.

    Example:  ablate decide studies/embnorm.yaml
    """
    from ablate.report import console

    decided = chain.decide(study, root=root)
    if as_json:
        print(decided.decision.model_dump_json(indent=2))
    else:
        console.print_decision(_console(), decided.decision, report_path=decided.html_path, ledger_head=decided.head)
        if decided.decision.status == "continue":
            print(f"next:  ablate run {study} --next-look")
    raise typer.Exit(
        {
            "decided": Exit.OK,
            "inconclusive": Exit.INCONCLUSIVE,
            "inadmissible": Exit.INADMISSIBLE,
            "continue": Exit.INCONCLUSIVE,
        }[decided.decision.status]
    )


@app.command()
def report(study: StudyFile, root: RootFolder = None) -> None:
    """Write the last decision's reports again.

    Decides nothing new.

    Example:  ablate report studies/embnorm.yaml
    """
    told = chain.report(study, root=root)
    print(f"wrote {told.markdown_path}")
    print(f"wrote {told.html_path}")


@app.command()
def verify(
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY]", help="A study file; all studies if left out.")
    ] = None,
    root: RootFolder = None,
    as_json: AsJson = False,
) -> None:
    """Check every frozen byte and name what changed.

    Study, lock, ledger, sealed records, verdict; of one study, or of all.

    Example:  ablate verify studies/embnorm.yaml
    """
    from ablate.report import console
    from ablate.verify import verify_house, verify_study

    found = verify_study(study, root) if study is not None else verify_house(root)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        console.print_verification(_console(), found)
    if not found.stands:
        raise typer.Exit(Exit.INADMISSIBLE)


@corpus_app.command("list")
def corpus_list(root: RootFolder = None) -> None:
    """List every corpus by name.

    Says whether it is here, and where.

    Example:  ablate corpus list
    """
    from ablate.report import console

    library = _library(root)
    rows = []
    for name in library.names():
        manifest = library.manifest(name)
        try:
            found = library.find(name, download=False).found
        except StudyError as error:
            found = "not here" if "is not here" in error.found else error.found
        rows.append((name, manifest.size_bytes, manifest.sha256, found, manifest.licence))
    console.print_corpora(_console(), rows)


@corpus_app.command("add")
def corpus_add(
    name: Annotated[str, typer.Argument(help="Name of the corpus.")],
    file: Annotated[Path, typer.Argument(help="A UTF-8 text file.")],
    licence: Annotated[str, typer.Option(help="Licence or source, kept beside the text.")] = "",
    root: RootFolder = None,
) -> None:
    """Take a local text in under a name.

    A pinned name takes only its own text.

    Example:  ablate corpus add tinyshakespeare input.txt
    """
    library = _library(root)
    manifest = library.add(name, file, licence=licence)
    print(f"added {name}: {manifest.size_bytes:,} bytes, sha256 {manifest.sha256}")


@corpus_app.command("fetch")
def corpus_fetch(name: Annotated[str, typer.Argument(help="Name of the corpus.")], root: RootFolder = None) -> None:
    """Download a corpus and check its sha256.

    From its public address, into data/corpora/.

    Example:  ablate corpus fetch tinyshakespeare
    """
    print(f"wrote {_library(root).fetch(name)}")


def _library(root: Path | None) -> Library:
    from ablate.gpt.corpus import Library
    from prereg.root import Root

    return Library.of(Root.around(Path(), root).corpora)


def _console() -> Console:
    from rich.console import Console

    class Patient(Console):
        """A reader may leave early (`ablate decide STUDY | head`); the exit code still tells the verdict."""

        def on_broken_pipe(self) -> None:
            self.quiet = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    return Patient(highlight=False)


def _watcher(as_json: bool) -> Watcher:
    from ablate.run.watch import JsonWatcher, LiveWatcher, PlainWatcher

    if as_json:
        return JsonWatcher(sys.stdout)
    console = _console()
    if console.is_terminal:
        return LiveWatcher(console)
    return PlainWatcher(sys.stdout)


def main() -> None:
    """The command `ablate`."""
    try:
        app()
    except StudyError as error:
        print(f"error: {error.text()}", file=sys.stderr)
        sys.exit(Exit.MISTAKE)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:
        sys.exit(Exit.OK)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"error: {place}{error.strerror or error}", file=sys.stderr)
        print("  required: files and folders that can be read and written", file=sys.stderr)
        print("  try:      look at what stands at that path, mend it, and repeat the command", file=sys.stderr)
        sys.exit(Exit.MISTAKE)
    except Exception:
        import traceback

        traceback.print_exc()
        print("this is a bug in ablate, not in your study; nothing sealed was lost", file=sys.stderr)
        sys.exit(Exit.BUG)


if __name__ == "__main__":
    main()
