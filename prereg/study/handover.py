"""Handover to a script: values and seeds that a command forgets to pass, and metrics that its script does not record.

Only a Python script below the root is read, with the modules next to it that it imports (`prereg.study.script`). What
its text makes certain is a mistake of the study; what it makes likely is a warning, since a script may take values in
ways that no text shows. Nothing is imported or executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from prereg.errors import FieldPath, SpecError, field_error
from prereg.study.command import listed_words, placeholders, values_of
from prereg.study.script import SEED_NAMES, Option, Script, script_in
from prereg.text import listed

if TYPE_CHECKING:
    from prereg.commits.pins import CommitPin
    from prereg.registry.paths import Root
    from prereg.study.spec import Study

PAIRING_LINES = (
    "for_data = torch.Generator().manual_seed(ablate.seed())",
    "DataLoader(..., shuffle=True, generator=for_data)",
    'ablate.must_match(f"last batch of epoch {epoch}", inputs.numpy().tobytes())',
)
"""What a PyTorch script lacks whose pairs are not compared. Dropout moves the random state: with one generator for all,
arms of a seed read other batches from the second epoch on."""
_HEADER_BYTES = 1 << 16


@dataclass(frozen=True)
class Forgotten:
    """One thing that the study and its script do not agree in."""

    field: FieldPath
    found: str
    required: str
    fix: str
    certain: bool
    """Whether no run could do what the study says."""

    @property
    def error(self) -> SpecError:
        return field_error(self.field, self.found, self.required, self.fix)


def check_handover(study: Study, root: Root) -> None:
    """Raise `SpecError` for what the script's text makes certain: the first, with the others after it."""
    errors = [each.error for each in forgotten(study, root) if each.certain]
    if errors:
        raise errors[0].followed_by(errors[1:])


def forgotten(study: Study, root: Root, registered: Mapping[str, CommitPin] | None = None) -> tuple[Forgotten, ...]:
    """Everything that the study and its script do not agree in; nothing where the command starts no readable script.

    Where arms are commits, what holds of the script of each of them, as they are now or were `registered`. Raises
    `RegistrationError` for a commit that cannot be pinned.
    """
    if study.trainer != "command":
        return ()
    if not study.commits:
        return tuple(_forgotten(study, root, root))
    from prereg.commits.scripts import script_roots

    with script_roots(study, root, registered) as places:
        first, *others = ([*_forgotten(study, root, place)] for place in places)
    # Only what is missing in every commit: a gap of one commit may be what the study compares.
    return tuple(gap for gap in first if all(gap in gaps for gaps in others))


def _forgotten(study: Study, root: Root, place: Root) -> Iterator[Forgotten]:
    """The same of the script as it lies in one place: the root, or the files of a commit."""
    shown = script_in(place, study.command)
    if shown is None:
        return
    path, script = shown
    yield from (
        *_values(study, path, script),
        *_seed(study, path, script),
        *_metrics(study, root, path, script),
        *_pairs(study, path, script),
    )


def _values(study: Study, path: str, script: Script) -> Iterator[Forgotten]:
    """Values in which arms differ and that nothing hands over."""
    used = placeholders(study.command)
    # A script that gets the arm's name may look its values up itself.
    if script.reads & {"config", "all"} or "variant" in used:
        return
    by_arm = [values_of(study, arm) for arm in study.arms]
    for name in dict.fromkeys(name for values in by_arm for name in values):
        if len({values.get(name) for values in by_arm}) == 1 or name in used:
            continue
        last = name.rpartition(".")[2]
        # An option of the same name makes it certain: it would stay at its default in every arm.
        option = script.option(last.replace("-", "_"))
        close = get_close_matches(last, [option.dest for option in script.options], n=1, cutoff=0.5)
        meant = option or (script.option(*close) if close else None)
        word = f"--{last}={{{name}}}" if meant is None else _word(meant, name)
        fix = f"command: {listed_words((*study.command, word))}"
        if meant is None:
            fix = f"args = ablate.config(parser.parse_args()) in {path}; or, once it has the option, {fix}"
        yield Forgotten(
            ("command",),
            f"arms differ in {name}, and nothing hands it over: no word has {{{name}}}, and {path} reads no "
            "ABLATE_CONFIG",
            "every value in which arms differ, in the command",
            fix,
            certain=option is not None,
        )


def _seed(study: Study, path: str, script: Script) -> Iterator[Forgotten]:
    if script.reads & {"seed", "all"} or "seed" in placeholders(study.command):
        return
    # With an option of that name the fix is known, and without a word for it every run has its default seed.
    option = script.option(*SEED_NAMES)
    fix = f'torch.manual_seed(ablate.seed()) in {path}, or an option: "--seed={{seed}}" in command'
    if option is not None:
        fix = f"command: {listed_words((*study.command, f'{option.name}={{seed}}'))}"
    yield Forgotten(
        ("command",),
        f"nothing hands the seed over: no word has {{seed}}, and {path} reads no ABLATE_SEED",
        "runs that differ by their seed: two that give the same values give no verdict",
        fix,
        certain=option is not None,
    )


def _pairs(study: Study, path: str, script: Script) -> Iterator[Forgotten]:
    """Batches that depend on the arm, where the runs of a seed are compared as pairs."""
    if study.paired and len(study.arms) > 1 and script.shares_generator and not script.states_matches:
        yield Forgotten(
            ("command",),
            f"{path} shuffles by torch's global generator, from which initial weights and dropout draw too: arms of "
            "a seed may read other batches, and pairs then hold that noise",
            "a generator for the data alone",
            "; ".join(PAIRING_LINES),
            certain=False,
        )


def _word(option: Option, name: str) -> str:
    if option.kind == "flag":
        return f"{{{option.name} if {name}}}"
    return f"{option.name}={{{name}}}"


def _metrics(study: Study, root: Root, path: str, script: Script) -> Iterator[Forgotten]:
    """Metrics that a claim reads and the script does not record, and columns that its table does not have."""
    layout, certain, source = study.metrics, False, ""

    # What the script records: the header of the table that it writes, of one that an earlier run left, or the names
    # that it hands to `log`. Certain only where nothing else can be recorded.
    recorded: tuple[str, ...] = ()
    if PurePosixPath(layout.file).suffix == ".csv":
        recorded = tuple(dict.fromkeys(name for header in script.headers for name in header))
        # One table and one header: that header is the table's.
        names = {PurePosixPath(table).name for table in script.tables}
        certain = len(script.headers) == 1 and names == {PurePosixPath(layout.file).name}
        source = f"{path} writes"
        if not recorded:
            recorded, source = _header_of_file(root, path, layout.file)
    elif not layout.columns and script.logged and not script.logs_others and not script.tables:
        recorded, certain, source = ("step", *script.logged), True, f"{path} records"
    if not recorded:
        return

    # What the study reads: the column of the step, the columns that it lists, or else the metrics of its claims.
    shown = f"{source} {listed([name for name in recorded if name != 'step' or layout.file.endswith('.csv')])}"
    if layout.file.endswith(".csv") and layout.step not in recorded:
        steps = [name for name in recorded if name in ("step", "epoch", "iter", "iteration", "global_step")]
        yield Forgotten(
            ("metrics", "step"),
            f"no column '{layout.step}': {shown}",
            "the column that counts the steps",
            f"step: {(steps or recorded)[0]}",
            certain,
        )
    if layout.columns:
        for metric, column in layout.columns.items():
            if column not in recorded:
                near = nearest_metric(column, recorded)
                yield Forgotten(
                    ("metrics", "columns", metric),
                    f"no column '{column}': {shown}",
                    f"the column that holds {metric}",
                    f"{metric}: {near or 'COLUMN'}",
                    certain,
                )
        return
    for name, claim in study.claims.items():
        if claim.metric in recorded:
            continue
        otherwise = f"a claim about one of these, or record {claim.metric}"
        found, fix = unrecorded(claim.metric, study.hypotheses[name].claim, recorded, shown, otherwise)
        required = "a metric under the name by which it is recorded"
        yield Forgotten(("hypotheses", name, "claim"), found, required, fix, certain)


def unrecorded(metric: str, claim: str, recorded: tuple[str, ...], shown: str, otherwise: str) -> tuple[str, str]:
    """What is found, and what to type, where a claim reads a metric that is not among those recorded: the claim about
    the nearest of them, or, where none is near, what `otherwise` says."""
    near = nearest_metric(metric, recorded)
    return f"no run records {metric}: {shown}", f"claim: {claim.replace(metric, near)}" if near else otherwise


_SAME = (("valid", "val"), ("validation", "val"), ("eval", "val"), ("dev", "val"), ("accuracy", "acc"))


def nearest_metric(name: str, recorded: tuple[str, ...]) -> str:
    """The one of the names that most likely means the same; empty where none does.

    >>> nearest_metric("val/accuracy", ("loss", "valid_acc"))
    'valid_acc'
    """

    def plain(text: str) -> str:
        words = re.findall("[a-z0-9]+", text.lower())
        return " ".join(dict(_SAME).get(word, word) for word in words)

    # Of two names that read alike the first is the one that is suggested.
    name_by_plain = {plain(metric): metric for metric in reversed(recorded)}
    close = get_close_matches(plain(name), name_by_plain, n=1, cutoff=0.8)
    return name_by_plain[close[0]] if close else ""


def _header_of_file(root: Root, script: str, file: str) -> tuple[tuple[str, ...], str]:
    """The columns of a table of that name that an earlier run left next to the script or in the root, and where."""
    import csv

    for place in dict.fromkeys((root.path / PurePosixPath(script).parent / file, root.path / file)):
        if place.is_file():
            # Excel writes a byte-order mark, which would be part of the first column's name.
            with place.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
                line = stream.readline(_HEADER_BYTES)
            columns = next(csv.reader([line]), [])
            return tuple(columns), f"{place.relative_to(root.path).as_posix()} has"
    return (), ""
