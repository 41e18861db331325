"""The command `ablate`: its verbs gathered, and how it ends.

The verbs stand in `ablate.verbs`. Importing this loads neither torch nor pandas nor altair: every verb imports the
rooms it needs when it is called. `main` turns a `StudyError` into one message and exit code 2, and anything else
into a plain admission that the bug is ours (exit code 1, with the traceback).
"""

from __future__ import annotations

import signal
import sys

import typer

from ablate.verbs import again, corpora, documents, evidence, ledgers, promise, proof, scale, seals
from ablate.verbs.options import Exit
from prereg.disk import NO_ROOM
from prereg.errors import StudyError
from prereg.plain import visible

app = typer.Typer(
    name="ablate",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Pre-registered ablation studies for language models.\n\n"
    "\b\nStart with:\n  ablate run studies/quickstart.yaml\n  ablate decide studies/quickstart.yaml\n\n"
    "Exit codes: 0 done or decided, 2 your mistake, 3 inconclusive or to be continued, 4 inadmissible, "
    "5 runs failed or a seal owed, "
    "130 interrupted, 1 our bug (of reproduce: not reproduced).",
)
for verb in (
    promise.check,
    promise.schema,
    promise.design,
    scale.plan,
    promise.register,
    promise.amend,
    documents.export,
    evidence.run,
    evidence.status,
    evidence.peek,
    evidence.decide,
    evidence.report,
    again.reproduce,
    proof.verify,
    proof.bundle,
    seals.seal,
    ledgers.ledger,
):
    app.command()(verb)

app.command("import")(evidence.import_records)

corpus_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What models read: list, show, add, fetch.")
corpus_app.command("list")(corpora.corpus_list)
corpus_app.command("show")(corpora.corpus_show)
corpus_app.command("add")(corpora.corpus_add)
corpus_app.command("fetch")(corpora.corpus_fetch)
app.add_typer(corpus_app, name="corpus")


def _interrupt(_signal: int, _frame: object) -> None:
    """SIGTERM ends a verb as Ctrl-C does; while runs are made, the scheduler counts both instead."""
    raise KeyboardInterrupt


def _first(error: BaseException) -> BaseException:
    """What began a chain of exceptions."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def main() -> None:
    """The command `ablate`."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except StudyError as error:
        print(f"error: {error.text()}", file=sys.stderr)
        sys.exit(Exit.MISTAKE)
    except (KeyboardInterrupt, SystemExit) as ended:
        # typer makes an exit of an interrupt.
        if not isinstance(_first(ended), KeyboardInterrupt):
            raise
        print("interrupted: nothing sealed was lost; repeat the command to go on", file=sys.stderr)
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:
        sys.exit(Exit.OK)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(visible(f"error: {place}{error.strerror or error}"), file=sys.stderr)
        full = error.errno in NO_ROOM
        needed = "a disk with room" if full else "files and folders that can be read and written"
        fix = "make room" if full else "look at what is at that path and fix it"
        print(f"  required: {needed}", file=sys.stderr)
        print(f"  try:      {fix}, and repeat the command", file=sys.stderr)
        sys.exit(Exit.MISTAKE)
    except Exception:
        import traceback

        print(visible(traceback.format_exc(), lines=True), end="", file=sys.stderr)
        print("this is a bug in ablate, not in your study; nothing sealed was lost", file=sys.stderr)
        sys.exit(Exit.BUG)


if __name__ == "__main__":
    main()
