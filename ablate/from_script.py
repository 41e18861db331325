"""A study of a training script that is there: its options and metrics are read, the rest is said to be filled in.

The script is read as text (`prereg.study.script`), never imported or run, and never changed. What its text does not
say is a guess, and a comment at that line says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

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
_LOGGED = "log(...)"


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
        found, required = f"{script} is outside {home}", "a script below the folder that holds studies/"
        raise StudyFileError(
            found, required=required, fix=f"ablate new {name} --script {script} --root {script.parent}"
        )
    path, shown = place.relative_to(home).as_posix(), _read(place, home)
    word, setting, values = _arms(name, path, shown, arms)
    words = ["{python}", path]
    base: dict[str, JsonValue] = {setting: values[0]}
    guesses: dict[str, str] = {}
    if "config" not in shown.reads:
        words.append(word)
    for option in shown.options:
        if option.required and option.dest not in (setting, *SEED_NAMES):
            words.append(f"{option.name}={{{option.dest}}}")
            base[option.dest] = option.choices[0] if option.choices else "FILL_IN"
            guesses["base"] = f"   # fill in: {option.name}, which the script requires"
    seed = shown.option(*SEED_NAMES)
    if "seed" not in shown.reads and seed is not None:
        words.append(f"{seed.name}={{seed}}")
    elif "seed" not in shown.reads:
        guesses["command"] = f"   # fill in: how {path} gets its seed; no option of it is named --seed"
    table, out, columns, source = _table(place, home, shown, metrics)
    words += [out] if out else []
    columns = columns or [_Column("val/loss", "val/loss", "lower", held_out=True)]
    claimed = min(columns, key=lambda one: one.rank)
    lines = [
        f"# A study of {path}, made from its text alone. Look at each line that says fill in.",
        f"study: {name}",
        f"title: {json.dumps(title or f'Does {setting} help?', ensure_ascii=False)}"
        + ("" if title else "   # fill in: the question"),
        "",
        "trainer: command",
        f"command: {listed_words(words)}{guesses.get('command', '')}",
        *_others(shown, setting, base),
        *(["working_directory: root       # the script's relative paths lead where they always led"] if out else []),
        *_metrics(table, columns, source, claimed),
        f"base: {_yaml(base)}{guesses.get('base', '')}",
        "",
        "baseline: as_it_is",
        "variants:",
        "  as_it_is: {}",
        *(
            f"  {_arm(setting, value)}: {_yaml({setting: value})}"
            + ("" if arms else "   # fill in: what you want to know; this is an example")
            for value in values[1:]
        ),
        "",
        "seeds: [1, 2, 3, 4, 5]",
        "",
        *_promise(_arm(setting, values[1]), claimed, any(one.metric == "train/loss" for one in columns)),
    ]
    return "\n".join(lines) + "\n"


def _read(script: Path, home: Path) -> Script:
    if script.suffix != ".py" or not script.is_file():
        found = "no such file" if not script.exists() else "no Python script"
        required, fix = "a file that ends in .py", "--template command, for a program in another language"
        raise StudyFileError(found, required=required, fix=fix, where=Where(file=script))
    try:
        return read_script(script, (script.parent, home, home / "src"))
    except SyntaxError as error:
        found = f"no Python that can be read: {error.msg}"
        raise StudyFileError(found, required="a Python script", where=Where(file=script, line=error.lineno)) from None
    except (OSError, ValueError, RecursionError) as error:
        found = f"cannot be read: {error}"
        raise StudyFileError(found, required="a Python script", where=Where(file=script)) from None


def _arms(name: str, path: str, shown: Script, given: Sequence[str]) -> tuple[str, str, list[JsonValue]]:
    """The word that hands an arm's value over, the setting in which arms differ, and its values, the script's first."""
    options = [one for one in shown.options if one.dest not in SEED_NAMES]
    if given:
        pairs = [text.partition("=") for text in given]
        names = {before.lstrip("-").replace("-", "_") for before, *_ in pairs}
        option = shown.option(*names) if len(names) == 1 else None
        if option is None or not all(equals for _, equals, _ in pairs):
            raise UnsupportedError(
                f"--set {' --set '.join(given)}",
                required=f"NAME=VALUE for each arm, of one option of {path}",
                fix=nearest(sorted(names)[0], [one.dest for one in options]),
            )
        values = [_value(text, option) for _, _, text in pairs]
    else:
        likely = [one for one in options if not _KEEPING.fullmatch(one.dest)] or options
        numeric = [one for one in likely if one.kind == "number"]
        other = [one for one in likely if one.kind == "flag" or len(one.choices) > 1]
        option = next(iter(numeric or other), None)
        if option is None:
            raise UnsupportedError(
                f"{path} has no option in which arms could differ, as far as its text shows",
                required='parser.add_argument("--NAME", type=float, default=...), or a flag, or choices',
                fix=f"ablate new {name} --template command, whose example takes its settings from ablate.config",
            )
        values = [_example(option)]
    first: JsonValue = option.default if option.default is not None else next(iter(option.choices), None)
    if first is None:
        first = 1 if option.kind == "number" else "FILL_IN"
    values = [value for value in dict.fromkeys(values) if value != first]
    if not values:
        found, required = f"--set {' --set '.join(given)} is what {path} does by itself", "a value that differs"
        raise UnsupportedError(found, required=required, fix=f"--set {option.dest}={json.dumps(_example(option))}")
    flag = f"{{{option.name} if {option.dest}}}"
    return flag if option.kind == "flag" else f"{option.name}={{{option.dest}}}", option.dest, [first, *values]


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
        return 2 * default
    return 0.1 if isinstance(default, float) else 2 if default is None else 1


def _arm(setting: str, value: JsonValue) -> str:
    """The name of an arm: dropout_0_1, without_bias for a flag that is off."""
    if isinstance(value, bool):
        return setting if value else f"without_{setting}"
    text = re.sub(r"\W+", "_", f"{value:g}" if isinstance(value, float) else str(value)).strip("_")
    return f"{setting}_{text}"


def _table(place: Path, home: Path, shown: Script, given: Path | None) -> tuple[str, str, list[_Column], str]:
    """The metrics file in a run's folder, the word that puts it there, its columns as far as they are known, and where
    they were read."""
    if (shown.logged or shown.logs_others) and given is None and not shown.headers:
        return "metrics.jsonl", "", [replace(_column(name, ()), metric=name) for name in shown.logged], _LOGGED
    tables = [given.name] if given is not None else list(shown.tables)
    option = next((one for one in shown.options if PurePosixPath(str(one.default)).suffix in (".csv", ".jsonl")), None)
    if given is None and option is not None:
        tables = [str(option.default)]
    file = tables[0] if tables and is_inside(tables[0]) else PurePosixPath(tables[0]).name if tables else "metrics.csv"
    folder = next((one for one in shown.options if _FOLDERS.fullmatch(one.dest) and one.kind == "text"), None)
    out = ""
    if option is not None or folder is not None:
        file = PurePosixPath(file).name
        out = f"{option.name}={{run_dir}}/{file}" if option is not None else f"{folder.name}={{run_dir}}"  # type: ignore[union-attr]  # one of the two is there
    names: Sequence[str] = ()
    source = ""
    for path in [given] if given is not None else [folder / file for folder in (place.parent, home, Path())]:
        if path.is_file():
            names, source = _columns_of(path), path.name
            break
    else:
        if given is not None:
            found = "no such file"
            raise StudyFileError(found, required="a table that the script wrote", where=Where(file=given))
        names = next(iter(shown.headers), ())
        source = "the script's text" if names else ""
    return file, out, [_column(name, names) for name in names], source


def _columns_of(path: Path) -> Sequence[str]:
    """The columns of a CSV file; of JSON lines the keys of the first. Raises `StudyFileError` where there are none."""
    import csv

    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        line = stream.readline(_FIRST_BYTES)
    try:
        found = next(csv.reader([line]), []) if path.suffix == ".csv" else list(json.loads(line))
    except (ValueError, TypeError, csv.Error):
        found = []
    if not found or not all(isinstance(name, str) for name in found):
        required = "CSV with a header, or a JSON object in each line"
        raise StudyFileError("no columns in its first line", required=required, where=Where(file=path))
    return found


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


def _others(shown: Script, setting: str, base: dict[str, JsonValue]) -> Iterator[str]:
    """A line of the options that keep the script's defaults, and how to let arms change one."""
    kept = [
        one
        for one in shown.options
        if one.dest not in (*base, *SEED_NAMES)
        and not _FOLDERS.fullmatch(one.dest)
        and one.default is not None
        and PurePosixPath(str(one.default)).suffix not in (".csv", ".jsonl")
    ]
    if kept and "config" not in shown.reads:
        name = kept[0].dest
        word = f"{{{kept[0].name} if {name}}}" if kept[0].kind == "flag" else f"{kept[0].name}={{{name}}}"
        yield f"# As the script has them: {listed(f'{one.name} {json.dumps(one.default)}' for one in kept)}."
        yield f'# For arms that change one: "{word}" in command, and {name}: {json.dumps(kept[0].default)} in base.'


def _metrics(file: str, columns: Sequence[_Column], source: str, claimed: _Column) -> Iterator[str]:
    """Where the metrics are, which columns they are, and what the claimed one is."""
    yield "metrics:"
    what = f"{claimed.name} as the script records it"
    if source != _LOGGED:
        step = next((one.name for one in columns if one.name.lower() in _STEPS), "")
        recorded = [one for one in columns if one.better != "neither"] or [claimed]
        pairs = {one.metric: one.name for one in recorded}
        guess = "" if step else "   # fill in: the column that counts steps or epochs"
        yield f"  file: {_yaml(file)}" + ("" if source else "   # fill in: where the script writes its metrics")
        yield f"  step: {_yaml(step or 'step')}{guess}"
        if re.fullmatch("[A-Za-z]+", step):
            yield f"  step_name: {step.lower()}"
        guess = "fill in: METRIC: COLUMN; no table was found, --metrics FILE names one"
        yield f"  columns: {_yaml(pairs)}   # {f'read from {source}' if source else guess}"
        what = what if source else "FILL_IN"
    direction = claimed.better if claimed.better != "neither" else "lower"
    yield "  declare:"
    declared = f'{{unit: "", better: {direction}, definition: {_yaml(what)}}}'
    yield f"    {_yaml(claimed.metric)}: {declared}   # fill in: unit, meaning"


def _yaml(value: JsonValue | dict[str, str]) -> str:
    """A value on one line of YAML, in quotes only where it must be."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_yaml(name)}: {_yaml(one)}' for name, one in value.items())}}}"
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w/. -]*\w|[A-Za-z]", value)
    word = plain and str(value).lower() not in ("true", "false", "yes", "no", "on", "off", "null", "n", "y")
    return str(value) if word else json.dumps(value, ensure_ascii=False)


def _promise(arm: str, claimed: _Column, has_curve: bool) -> Iterator[str]:
    verb = "raises" if claimed.better == "higher" else "lowers"
    margin = "0.005" if claimed.better == "higher" else "0.01"
    stable = f" and stable({arm})" if has_curve else ""
    guess = "" if claimed.better != "neither" else ", and whether lower is better"
    yield "hypotheses:"
    yield "  better:"
    claim = f"{arm} {verb} {claimed.metric} by at least {margin}"
    yield f"    claim: {claim}   # fill in: the smallest difference that matters{guess}"
    yield ""
    yield "decision:"
    yield f'  - {{verdict: use {arm}, when: "supported(better){stable}"}}'
    yield '  - {verdict: keep it as it is, when: "refuted(better)"}'
    yield "  - {verdict: inconclusive}"
    yield ""
    yield "# assume: how noisy runs are, for design to say whether five seeds do; ablate try --seeds 3 proposes it"
