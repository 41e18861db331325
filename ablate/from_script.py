"""`ablate new --script`: a study of a training script, whose options and metrics are read from its text.

The script is read as text (`prereg.study.script`), never imported or run, and never changed. What its text does not
say is a guess, and a comment at that line says so. The study's own lines are in `templates/script.jinja`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path, PurePosixPath

from jinja2 import Environment, StrictUndefined, Template
from pydantic import JsonValue

from prereg.errors import StudyFileError, UnsupportedError, Where, nearest
from prereg.study.command import is_inside, listed_words
from prereg.study.script import SEED_NAMES, Option, Script, read_script
from prereg.text import listed

_STEPS = ("step", "global_step", "iter", "iteration", "epoch")
_KEEPING = re.compile(
    "seed|random_state|epochs?|(max_|num_)?(steps|iters|epochs)|(num_)?(workers|threads|gpus?)|device|port|rank|"
    "local_rank|.*(interval|every|freq)|verbose"
)
"""Options that say how long or where a script runs, and are seldom what is ablated."""
_FOLDERS = re.compile("out|output|(out|output|save|log|results?|work|run|checkpoint|ckpt)_?dir")
_SPLITS = {"val": "val", "valid": "val", "validation": "val", "eval": "val", "dev": "val", "test": "test"}
_LOWER = re.compile("loss|ppl|perplexity|err|error|wer|cer|nll|mse|rmse|mae|bpb|bits")
_HIGHER = re.compile("acc|accuracy|f1|auc|auroc|bleu|rouge|score|reward|precision|recall|map|iou|r2")
_FIRST_BYTES = 1 << 16
_TABLES = (".csv", ".jsonl")


@dataclass(frozen=True)
class _Column:
    name: str
    metric: str
    better: str
    """lower or higher; neither where its name says nothing."""
    held_out: bool

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """What a claim is about first: held-out data, then a metric with a direction, then a loss."""
        return not self.held_out, self.better == "neither", self.better != "lower"


@dataclass(frozen=True)
class _Table:
    """Where a run leaves its metrics, as far as it is known."""

    file: str
    """In the run's folder."""
    columns: tuple[_Column, ...]
    source: str = ""
    """Where the columns were read; empty where they are a guess."""
    word: str = ""
    """Of the command: puts the file there."""
    logged: bool = False
    """Whether the script records its metrics by ablate's `log`, which names file and steps itself."""

    @property
    def claimed(self) -> _Column:
        return min(self.columns, key=lambda column: column.rank)

    @property
    def step(self) -> str:
        """The column that counts steps; empty where none is known."""
        return next((column.name for column in self.columns if column.name.lower() in _STEPS), "")

    @property
    def recorded(self) -> dict[str, str]:
        """Metric -> column."""
        with_direction = [column for column in self.columns if column.better != "neither"]
        return {column.metric: column.name for column in with_direction or [self.claimed]}


def study_of_script(
    name: str,
    script: Path,
    home: Path,
    *,
    metrics: Path | None = None,
    arms: Sequence[str] = (),
    title: str | None = None,
) -> str:
    """The text of a study of a Python script below `home`, with arms from NAME=VALUE or an example.

    Raises `StudyFileError` where the script, or the table of `metrics`, cannot be read, and `UnsupportedError` where
    the script has no option in which arms could differ, or not the one that is named.
    """
    place = script.resolve()
    if not place.is_relative_to(home):
        fault, required = f"{script} is outside {home}", "a script below the folder that holds studies/"
        raise StudyFileError(
            fault, required=required, fix=f"ablate new {name} --script {script} --root {script.parent}"
        )
    # What the text says: options, metrics that it records, and whether it reads its seed or configuration from
    # ablate.
    path, shown = place.relative_to(home).as_posix(), _read(place, home)
    option, values = _arms(name, path, shown, arms)
    table = _table(place, home, shown, metrics)
    # Options that the script requires need a value too; the seed is ablate's to give.
    others = [
        further for further in shown.options if further.required and further.dest not in (option.dest, *SEED_NAMES)
    ]
    base: dict[str, JsonValue] = {option.dest: values[0]}
    base |= {further.dest: further.choices[0] if further.choices else "FILL_IN" for further in others}
    seed = shown.option(*SEED_NAMES)
    words = ["{python}", path]
    words += [_word(option)] if "config" not in shown.reads else []
    words += map(_word, others)
    words += [f"{seed.name}={{seed}}"] if seed is not None and "seed" not in shown.reads else []
    words += [table.word] if table.word else []
    # The template writes a comment at everything that is guessed here.
    return _template().render(
        name=name,
        path=path,
        title=title,
        setting=option.dest,
        words=words,
        has_seed=seed is not None or "seed" in shown.reads,
        kept=_kept(shown, base),
        table=table,
        claimed=table.claimed,
        meaning=f"{table.claimed.name} as the script records it" if table.source or table.logged else "FILL_IN",
        base=base,
        required=others[-1].name if others else "",
        arms={_arm(option.dest, value): value for value in values[1:]},
        arms_given=bool(arms),
        has_curve=any(column.metric == "train/loss" for column in table.columns),
    )


def _template() -> Template:
    environment = Environment(  # noqa: S701 - YAML, whose values its own filters put in quotes
        undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"yaml": _yaml, "json": _json, "words": listed_words, "word": _word, "defaults": _defaults}
    return environment.from_string((files("ablate") / "templates" / "script.jinja").read_text(encoding="utf-8"))


def _read(script: Path, home: Path) -> Script:
    if script.suffix != ".py" or not script.is_file():
        fault = "no such file" if not script.exists() else "no Python script"
        required, fix = "a file that ends in .py", "--template command, for a program in another language"
        raise StudyFileError(fault, required=required, fix=fix, where=Where(file=script))
    try:
        return read_script(script, (script.parent, home, home / "src"))
    except SyntaxError as error:
        fault = f"no Python that can be read: {error.msg}"
        raise StudyFileError(fault, required="a Python script", where=Where(file=script, line=error.lineno)) from None
    except (OSError, ValueError, RecursionError) as error:
        fault = f"cannot be read: {error}"
        raise StudyFileError(fault, required="a Python script", where=Where(file=script)) from None


def _arms(name: str, path: str, shown: Script, settings: Sequence[str]) -> tuple[Option, list[JsonValue]]:
    """The option in which arms differ, and its values, the script's first."""
    options = [option for option in shown.options if option.dest not in SEED_NAMES]
    if settings:
        pairs = [text.partition("=") for text in settings]
        names = {before.lstrip("-").replace("-", "_") for before, *_ in pairs}
        option = shown.option(*names) if len(names) == 1 else None
        if option is None or not all(equals for _, equals, _ in pairs):
            raise UnsupportedError(
                f"--set {' --set '.join(settings)}",
                required=f"NAME=VALUE for each arm, of one option of {path}",
                fix=nearest(sorted(names)[0], [option.dest for option in options]),
            )
        values = [_value(text, option) for _, _, text in pairs]
    else:
        # No arm was named: the likeliest setting to ablate is a number, then a flag or a choice, that does not only
        # say how long or where the script runs.
        likely = [option for option in options if not _KEEPING.fullmatch(option.dest)] or options
        numeric = [option for option in likely if option.kind == "number"]
        named = [option for option in likely if option.kind == "flag" or len(option.choices) > 1]
        option = next(iter(numeric or named), None)
        if option is None:
            raise UnsupportedError(
                f"{path} has no option in which arms could differ, as far as its text shows",
                required='parser.add_argument("--NAME", type=float, default=...), or a flag, or choices',
                fix=f"ablate new {name} --template command, whose example takes its settings from ablate.config",
            )
        values = [_example(option)]
    # The baseline runs the script as it is, so its value is the default.
    first: JsonValue = option.default if option.default is not None else next(iter(option.choices), None)
    if first is None:
        first = 1 if option.kind == "number" else "FILL_IN"
    values = [value for value in dict.fromkeys(values) if value != first]
    if not values:
        fault, required = f"--set {' --set '.join(settings)} is what {path} does by itself", "a value that differs"
        raise UnsupportedError(fault, required=required, fix=f"--set {option.dest}={json.dumps(_example(option))}")
    return option, [first, *values]


def _value(text: str, option: Option) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (int, float, bool)) and option.kind != "text" else text


def _example(option: Option) -> JsonValue:
    """A value to begin with that is not the script's own."""
    default = option.default
    if option.kind == "flag":
        return not default
    if option.choices:
        return next(value for value in option.choices if value != default)
    if isinstance(default, (int, float)) and default:
        return 2 * default  # a change that is likely to show
    return 0.1 if isinstance(default, float) else 2 if default is None else 1


def _arm(setting: str, value: JsonValue) -> str:
    """The name of an arm: dropout_0_1, without_bias for a flag that is off."""
    if isinstance(value, bool):
        return setting if value else f"without_{setting}"
    text = re.sub(r"\W+", "_", f"{value:g}" if isinstance(value, float) else str(value)).strip("_")
    return f"{setting}_{text}"


def _word(option: Option) -> str:
    """What hands the value of an option over: --norm={norm}, {--amp if amp} of a flag."""
    return f"{{{option.name} if {option.dest}}}" if option.kind == "flag" else f"{option.name}={{{option.dest}}}"


def _table(place: Path, home: Path, shown: Script, metrics: Path | None) -> _Table:
    """The metrics of a script: what it logs, or a table that it writes, or the one that is given."""
    if (shown.logged or shown.logs_others) and metrics is None and not shown.headers:
        # `log` takes the study's own names.
        logged = tuple(replace(_column(name, ()), metric=name) for name in shown.logged)
        return _Table("metrics.jsonl", logged or _UNKNOWN, logged=True)
    option = next((each for each in shown.options if PurePosixPath(str(each.default)).suffix in _TABLES), None)
    folder = next((each for each in shown.options if _FOLDERS.fullmatch(each.dest) and each.kind == "text"), None)
    # In this order: the file that was named; a file that is the default of an option; one that the text opens; a
    # guess.
    tables = [str(option.default)] if option is not None else [*shown.tables]
    file = metrics.name if metrics is not None else next(iter(tables), "metrics.csv")
    if option is not None or folder is not None or not is_inside(file):
        file = PurePosixPath(file).name
    word = ""
    if option is not None:
        # Each run writes into a folder of its own: two runs that wrote into one file would mix their rows.
        word = f"{option.name}={{run_dir}}/{file}"
    elif folder is not None:
        word = f"{folder.name}={{run_dir}}"
    # Next to the script, in the root, here.
    there = [metrics] if metrics is not None else [near / file for near in (place.parent, home, Path())]
    path = next((path for path in there if path.is_file()), None)
    if path is None and metrics is not None:
        raise StudyFileError("no such file", required="a table that the script wrote", where=Where(file=metrics))
    names = next(iter(shown.headers), ()) if path is None else _columns_of(path)
    source = path.name if path is not None else "the script's text" if names else ""
    return _Table(file, tuple(_column(name, names) for name in names) or _UNKNOWN, source, word)


def _columns_of(path: Path) -> Sequence[str]:
    """The columns of a CSV file; of JSON lines the keys of the first. Raises `StudyFileError` where there are none."""
    import csv

    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        line = stream.readline(_FIRST_BYTES)  # no more than the header of a table that may be large
    try:
        names = next(csv.reader([line]), []) if path.suffix == ".csv" else list(json.loads(line))
    except (ValueError, TypeError, csv.Error):
        names = []
    if not names or not all(isinstance(name, str) for name in names):
        required = "CSV with a header, or a JSON object in each line"
        raise StudyFileError("no columns in its first line", required=required, where=Where(file=path))
    return names


def _column(name: str, all_names: Sequence[str]) -> _Column:
    """A column as a metric: val_loss is val/loss. `loss` alone is the training loss, where another one is held out."""
    words = re.findall("[a-z0-9]+", name.lower())
    split = next((_SPLITS[word] for word in words if word in _SPLITS), "")
    rest = [word for word in words if word not in _SPLITS and word not in ("train", "training")]
    kinds = ("lower", _LOWER), ("higher", _HIGHER)
    better = next((better for better, kind in kinds if any(kind.fullmatch(word) for word in rest)), "neither")
    what = "_".join(rest).replace("acc", "accuracy") if rest == ["acc"] else "_".join(rest)
    trained = "train" in words or "training" in words or (rest == ["loss"] and len(all_names) > 1 and not split)
    metric = f"{split}/{what}" if split and rest else f"train/{what}" if trained and rest else name
    return _Column(name, metric, better, held_out=bool(split))


_UNKNOWN = (_Column("val/loss", "val/loss", "lower", held_out=True),)
"""What is claimed about where no metric is known."""


def _kept(shown: Script, base: Mapping[str, JsonValue]) -> list[Option]:
    """The options that keep the script's defaults, and that arms could change."""
    return [
        option
        for option in shown.options
        if "config" not in shown.reads
        and option.dest not in (*base, *SEED_NAMES)
        and not _FOLDERS.fullmatch(option.dest)
        and option.default is not None
        and PurePosixPath(str(option.default)).suffix not in _TABLES
    ]


def _defaults(options: Iterable[Option]) -> str:
    return listed(f"{option.name} {json.dumps(option.default)}" for option in options)


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _yaml(value: JsonValue | dict[str, str]) -> str:
    """A value on one line of YAML, in quotes only where it must be."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_yaml(name)}: {_yaml(inner)}' for name, inner in value.items())}}}"
    # YAML 1.1 reads yes, no, on, off and y as booleans: such a value needs quotes.
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w/. -]*\w|[A-Za-z]", value)
    word = plain and str(value).lower() not in ("true", "false", "yes", "no", "on", "off", "null", "n", "y")
    return str(value) if word else _json(value)
