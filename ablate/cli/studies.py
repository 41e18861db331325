"""Commands for a study that is being written: new, check, design, try, plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ablate.cli.command import Result, Screen, Shown, WholeText, command
from ablate.cli.options import Exit, Pilot, StudyFile
from ablate.workspace import Workspace
from prereg.errors import SpecError, StudyError, UnsupportedError

if TYPE_CHECKING:
    from ablate.judge.design.warnings import DesignWarning
    from ablate.workspace import StudyContext
    from prereg.registry.ledger_entry import EarlierClaims


@command()
def check_command(
    workspace: Workspace,
    studies: Annotated[
        list[Path] | None, typer.Argument(metavar="STUDY", help="Study files; of several, one line for each.")
    ] = None,
    *,
    schema: Annotated[
        Literal["study"] | None,
        typer.Option(help="Instead: print the JSON schema of study files."),
    ] = None,
) -> Result:
    """Validate a study and show its decision table and cost.

    Reads the file, checks every field, claim and rule, and writes nothing. Nothing that a study brings is executed.
    Of several files, all are checked, one line each, and the exit code is 2 if any has a mistake.

    Example:  ablate check studies/embnorm.yaml
    """
    if schema is not None or not studies:
        return _schema(schema, studies or ())
    paths = list(dict.fromkeys(studies))
    if len(paths) == 1:
        return _check_one(paths[0], workspace)
    # All of them, whatever the first one says: a run in CI shows every mistake at once.
    checked: list[tuple[Path, _Checked]] = []
    mistakes: list[StudyError] = []
    for path in paths:
        try:
            checked.append((path, _Checked(path, workspace)))
        except StudyError as error:
            mistakes.append(error)

    def text() -> Iterator[Shown]:
        for path, valid in checked:
            yield from (f"ok  {path}", *(f"    {note}" for note in valid.notes), *warned(valid.warnings))
        if mistakes:
            yield f"{len(mistakes)} of {len(paths)} studies have mistakes"

    return Result([valid.facts for _, valid in checked], text, mistakes=mistakes)


def _schema(schema: str | None, studies: Sequence[Path]) -> Result:
    import json

    from prereg.study.schema import json_schema

    if schema is None or studies:
        raise SpecError(
            "--schema with a study" if studies else "no study to check",
            required="a study, or --schema alone",
            fix="ablate check --schema study" if studies else "ablate check STUDY",
        )
    facts = json_schema()  # printed whole, to be piped into a file
    return Result(facts, lambda: [WholeText(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")])


class _Checked:
    """A valid study, the files it would pin, notes and warnings. Raises `StudyError`."""

    def __init__(self, path: Path, workspace: Workspace) -> None:
        from ablate.checking import check, warnings_of
        from ablate.pinning import pin_code
        from prereg.registry.registration import Pins

        self.context = check(path, workspace)
        # Only to be shown: commits of arms are resolved, and no reference to them is left in the repository.
        self.pins = pin_code(self.context, keeps=False) if self.context.study.trainer == "command" else Pins()
        self.notes = [*repeated_runs(self.context), *order_of_runs(self.context)]
        self.warnings = warnings_of(self.context)

    @property
    def facts(self) -> dict[str, object]:
        from ablate.planning import planned
        from ablate.reporting.summaries.study import study_facts

        return study_facts(self.context.study, planned(self.context), self.notes, self.warnings)


def _check_one(path: Path, workspace: Workspace) -> Result:
    from ablate.cli.campaigns import names_campaign

    if names_campaign(path):
        from ablate.cli.campaigns import check_one_campaign

        return check_one_campaign(path, workspace)
    # All that can raise comes before the first line is printed.
    checked = _Checked(path, workspace)
    context = checked.context

    def text() -> Iterator[Shown]:
        from ablate.checking import unnamed_metrics_file
        from ablate.planning import planned
        from ablate.reporting.summaries import study as summary

        yield summary.study_section(context.study, checked.pins)
        yield summary.arm_costs_section(planned(context))
        yield from noted(checked.notes)
        if note := unnamed_metrics_file(context.study, context.root, checked.pins.scripts or ()):
            yield note
        yield from warned(checked.warnings)

    then = f"ablate try {path}   (short runs; --seeds 3: how noisy)"
    if context.load_registration() is not None:
        then = f"ablate status {path}"
    return Result(lambda: checked.facts, text, next=then)


def noted(notes: Sequence[str]) -> Iterator[Shown]:
    """Notes, broken at the width of the terminal; nothing where there are none."""
    from ablate.reporting.summaries.study import notes_section

    if notes:
        yield notes_section(notes)


def warned(warnings: Sequence[DesignWarning]) -> Iterator[Shown]:
    """What is likely a mistake in a study, after a blank line; nothing where nothing is."""
    from ablate.reporting.summaries.study import warnings_section

    if warnings:
        yield from ("", warnings_section(warnings))


def repeated_runs(context: StudyContext) -> list[str]:
    """Notes on other registered studies whose runs this one would train again."""
    from prereg.registry.history import repeated

    return [f"Note: {repetition.words}." for repetition in repeated(context.root, context.study)]


def order_of_runs(context: StudyContext) -> list[str]:
    """A note on the order of runs, where a claim about a time needs it."""
    from prereg.registry.run_order import order_in_words
    from prereg.study.timed import timed_promises

    registration, timed = context.load_registration(), timed_promises(context.study)
    if not timed:
        return []
    if registration is not None and registration.run_order is None:
        return [f"Note: it was registered without an order of runs, and {timed[0]}: a deviation of any verdict."]
    return [f"Note: {order_in_words(context.study, timed)}."]


def claimed_before(context: StudyContext) -> EarlierClaims:
    """The earlier studies of this ledger that claim the same as a registered one."""
    from prereg.registry.earlier_claims import earlier_claims, promised_claims
    from prereg.registry.ledger import Ledger

    entries = Ledger(context.root.ledger).readable()
    return earlier_claims(promised_claims(context.root, entries), entries, context.study.study)


_PURPOSE_OF_FILE = {
    ".gitignore": "keeps runs and corpora out of git",
    "study.schema.json": "lets an editor complete and check studies",
}


@command()
def new_command(
    workspace: Workspace,
    screen: Screen,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The study's name, and its file's.")],
    *,
    template: Annotated[
        str | None, typer.Option(metavar="KIND", help="What to begin with (asked on a terminal; else gpt).")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The question, as the report's title.")] = None,
    script: Annotated[
        Path | None, typer.Option("--script", metavar="FILE", help="Your own training script, which is read.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option("--metrics", metavar="FILE", help="With --script: a table that it wrote.")
    ] = None,
    arms: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="With --script: an arm (repeatable).")
    ] = None,
) -> Result:
    """Write a new study from a template, or from your script.

    Writes studies/NAME.yaml, which passes check and design and runs as it is, a script or a table where the template
    needs one, and data/.gitignore unless one is there. Replaces nothing. Templates: gpt, campaign (writes
    campaigns/NAME.yaml and AGENTS.md), command, commits, components, factorial, huggingface, import, ordered,
    sequential, target, tuned, unpaired.

    With --script, the options of a Python script and the columns of its metrics are read from its text, without running
    it, and comments in the study say what is to be filled in.

    Example:  ablate new my_study --script train.py --set dropout=0.1
    """
    from ablate import creating

    purposes = creating.templates()
    if template is not None and script is not None:
        fix = f"ablate new {name} --script {script}"
        raise UnsupportedError("--template and --script", required="one of the two", fix=fix)
    if template is None and script is None and screen.asks:
        width = max(map(len, purposes))
        screen.show(*(f"  {kind.ljust(width)}  {what}" for kind, what in purposes.items()))
        template = screen.ask("Template [gpt]: ") or None  # an empty answer takes what is in brackets
        title = title or screen.ask("Title [the template's]: ") or None
    made = creating.new(
        name,
        template or next(iter(purposes)),
        title=title,
        script=script,
        metrics=metrics,
        arms=arms or (),
        workspace=workspace,
    )

    def text() -> Iterator[Shown]:
        for path in made.files:
            purpose = _PURPOSE_OF_FILE.get(path.name, "")
            yield f"wrote {path}" + f"   ({purpose})" * bool(purpose)
        yield from made.notes
        for number, line in enumerate(made.next):
            yield f"{'     ' if number else 'next:'}  {line}"

    return Result(made, text)


@command()
def design_command(workspace: Workspace, study: StudyFile, pilot: Pilot = None) -> Result:
    """Simulate the registered rule before any data.

    Says what can be found with these seeds, how often by chance, and how many seeds it would take. Of a campaign: how
    often a change is kept falsely, the true gain, and the runs it takes, for the assumed shares of useful changes.

    Example:  ablate design studies/embnorm.yaml
    """
    from prereg.campaign.load import is_campaign

    if is_campaign(study):
        return _campaign_design(study, pilot)
    from ablate.checking import warnings_of
    from ablate.judge.design.refusal import obstacle
    from ablate.judge.design.warnings import warnings_as_json
    from ablate.registering import design as simulate

    characteristics = simulate(study, workspace=workspace, pilot=pilot)
    context = workspace.open(study)
    warnings = warnings_of(context, characteristics)

    def text() -> Iterator[Shown]:
        from ablate.reporting.summaries.study import design_section

        yield from (design_section(characteristics), *warned(warnings))

    facts: dict[str, Any] = characteristics.model_dump(mode="json") | {"warnings": warnings_as_json(warnings)}
    registered = context.load_registration() is not None
    then = f"ablate status {study}" if registered else f"ablate register {study}"
    # Without a scale nothing is simulated: registering would be blind where three runs of each arm give the scale.
    if not characteristics.scenarios and not registered:
        then = f"ablate try {study} --seeds 3   (prints the assume: line that gives power)"
    return Result(facts, text, next=then if obstacle(characteristics) is None else "")


def _campaign_design(path: Path, pilot: str | None) -> Result:
    """A campaign, simulated."""
    from ablate.campaigning import simulate_campaign

    if pilot is not None:
        raise UnsupportedError(
            "--pilot with a campaign",
            required="the SD of its metrics in the campaign's own assume",
            fix=f"ablate design {path}",
        )
    design = simulate_campaign(path)

    def text() -> Iterator[Shown]:
        from ablate.reporting.summaries.campaign import campaign_design_section

        yield campaign_design_section(design)

    return Result(design, text)


@command(interrupted="the trial is not part of the study, and nothing of it was kept")
def try_command(
    workspace: Workspace,
    screen: Screen,
    study: StudyFile,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per arm; from 3 on whole runs, and values to assume.")] = 1,
    limit: Annotated[float, typer.Option(min=1.0, metavar="SECONDS", help="Stop each run after so long.")] = 60.0,
    replaced: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Replace a value of the configuration (repeatable)."),
    ] = None,
) -> Result:
    """Make one short run per arm before registering.

    Finds what would fail later: a wrong flag or path, a missing package, a metric under another name, a setting that
    changes nothing. Also says what the plan costs. Seeds are outside the plan, nothing is logged and no value is shown.

    Example:  ablate try studies/own-trainer.yaml
    """
    from ablate import trying

    # Each run is named as it begins: the first may take as long as the limit, and silence would look like a fault.
    trial = trying.try_out(
        study,
        workspace=workspace,
        seeds=seeds,
        limit_s=limit,
        replaced=replaced or (),
        on_run=lambda run: screen.show(f"trying {run}"),
    )

    def text() -> Sequence[Shown]:
        from ablate.reporting.summaries.run import trial_section

        return [trial_section(trial)]

    then = f"ablate design {study}"
    if trial.problems:
        then = f"what each problem says to try, then ablate try {study} again"
    elif trial.assume:  # from three seeds on
        then = f"write that assume: line into {study}, then {then}"
    return Result(trial, text, next=then, exit=Exit.MISTAKE if trial.problems else Exit.OK)


@command()
def plan_command(
    workspace: Workspace,
    screen: Screen,
    study: StudyFile,
    *,
    commands: Annotated[
        bool, typer.Option("--commands", help="Instead: a command for each run that is left; logs their starts.")
    ] = False,
    form: Annotated[
        Literal["osf", "markdown"] | None,
        typer.Option("--as", help="Instead: what is registered, as a form for OSF or a page to read."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --as: a file to write; printed if left out.")
    ] = None,
) -> Result:
    """Show a study's runs and what they cost, or its registration.

    Of each arm its runs, parameters, tokens, FLOPs (6 N D) and device-hours, where they are known. With --as, full
    sentences from the lock: a study that is not registered is marked as a draft, and fields that only you can answer
    stay blank. Nothing is written but the file of --out.
    With --commands it prints a line for each run of a registered study that is left, for a scheduler of your own
    (Kubernetes, SkyPilot, a shell loop) on machines that share the folder; `ablate run STUDY --jobs 0` then collects.

    Example:  ablate plan studies/embnorm.yaml --as osf --out osf.md
    """
    if commands:
        import shlex

        from ablate.running import plan_commands

        # These words are what a scheduler starts, so they are also the JSON: a list of lists on one line.
        lines = plan_commands(study, workspace=workspace)
        return Result(lines, lambda: [shlex.join(words) for words in lines], in_one_line=True)
    if form is not None:
        return _document(workspace, screen, study, form, out)
    if out is not None:
        raise SpecError("--out without --as", required="a document to write", fix=f"ablate plan {study} --as osf")
    from ablate.planning import plan_runs

    # Without options: what is planned, and what it costs as far as that is known.
    runs = plan_runs(study, workspace=workspace)

    def text() -> Sequence[Shown]:
        from ablate.reporting.summaries.study import planned_runs_section

        return [planned_runs_section(runs)]

    return Result(runs, text)


def _document(
    workspace: Workspace, screen: Screen, study: Path, form: Literal["osf", "markdown"], out: Path | None
) -> Result:
    """What is registered, in sentences: printed, or written to a file with the fields that are left blank."""
    import json

    from ablate import registering

    document = registering.export(study, form=form, workspace=workspace, as_json=screen.as_json)
    if out is None:
        # The form is JSON already, in its own order of fields.
        return Result(lambda: json.loads(document.text), lambda: [WholeText(document.text)])
    registering.save(document.text, out)

    def text() -> Iterator[Shown]:
        yield f"wrote {out}" + ", a DRAFT: the study is not registered" * document.draft
        yield from (f"left to you: {title}" for title in document.blanks)

    return Result({"wrote": out, "draft": document.draft, "blanks": document.blanks}, text)
