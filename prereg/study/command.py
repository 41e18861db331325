"""Command of a user's own trainer: placeholders filled in, and the files of its code pinned by hash.

    {seed} {variant}     the run's own
    {optim.lr}           a value of the arm's configuration, by its dotted path
    {python}             the Python that ablate runs under
    {root} {run_dir}     the folder that holds studies/, and the run's own directory
    {--amp if amp}       a word by itself: --amp where the value at `amp` is true, no word where it is false
    {{ and }}            a brace

A word is filled and handed over as one word: nothing is split, quoted or expanded, and no shell reads it. Text stands
as it is, any other value as JSON. A word that names a file under the root is a file of the trainer's code: its bytes
are pinned at registration. What such a file imports is pinned only if `code:` names it, and what it reads only if
`data:` does. Nothing here starts anything.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, JsonValue, ValidationInfo, field_validator

from prereg.errors import FieldPath, RegistrationError, Where, field_error, nearest
from prereg.frozen import FrozenModel
from prereg.metrics.catalogue import Better, declaration_of
from prereg.registry.canon import sha256_file, sha256_of

if TYPE_CHECKING:
    from prereg.registry.paths import Root
    from prereg.study.spec import Study

# In this order: `{{` is a brace before it can be the beginning of a placeholder, and what is left alone is a mistake.
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_OWN = ("seed", "variant", "python", "root", "run_dir")
_FLAG = re.compile(r"\{([^{}\s][^{}]*) if ([^{}\s]+)\}")
_MOST_FILES = 2000


class Declared(FrozenModel):
    """What a metric of your own trainer is."""

    unit: Annotated[str, Field(max_length=30)]
    """Its unit, such as percent; empty where it has none."""
    better: Better = "neither"
    """Which way it improves."""
    range: tuple[float, float] | None = None
    """The smallest and largest value that it can have, both included. A run that records another fails."""
    definition: Annotated[str, Field(max_length=500)] = ""
    """What it is, in a sentence for readers of the registration."""

    @field_validator("range")
    @classmethod
    def _ascends(cls, limits: tuple[float, float] | None) -> tuple[float, float] | None:
        if limits is not None and not limits[0] < limits[1]:
            required = "the smallest value that the metric can have, then a larger one"
            raise ValueError(f"from {limits[0]:g} to {limits[1]:g}", required, "range: [0, 100]")
        return limits


def _a_metric(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][^\s()]{0,199}", name):
        required = "the name of a metric: a letter first, no blanks or brackets, at most 200 characters"
        raise ValueError(f"{name!a:.60}", required, "test/accuracy: {unit: percent}")
    return name


class MetricsFile(FrozenModel):
    """Where your own trainer writes its metrics, and what they are."""

    file: str = "metrics.jsonl"
    """A file in the run's own directory. JSON objects, one per line, each a long row
    {"step": 10, "metric": "val/loss", "value": 2.31} or a wide one {"step": 10, "val/loss": 2.31, "train/loss": 2.4};
    or, where the name ends in .csv, a wide table with a header. A blank or null is no value."""
    step: str = "step"
    """Key or column of the step in wide rows."""
    columns: dict[str, str] = {}
    """Metric -> key or column of wide rows that holds it, for instance {val/loss: valid_loss}; other columns are left
    out then. Without it every column but the step is a metric of its own name."""
    step_name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z -]*$", max_length=30)] = "step"
    """What a step is, for axes and sentences: step, epoch, example."""
    declare: dict[Annotated[str, AfterValidator(_a_metric)], Declared] = {}
    """Metric -> what it is, in place of what this tool takes a metric of that name to be."""

    @field_validator("file")
    @classmethod
    def _in_the_directory_of_the_run(cls, file: str) -> str:
        if not is_inside(file):
            required = "a path inside the run's own directory: no leading '/', no '..'"
            raise ValueError(f"'{file}'", required, "file: metrics.jsonl")
        return file

    @field_validator("columns")
    @classmethod
    def _a_column_each(cls, columns: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        step = info.data.get("step", "step")
        # A column that is both a metric and the step would be read as both.
        if step in columns.values() or "" in (step, *columns.values()):
            required = "the name of a column for each metric, and another one for the step"
            raise ValueError(f"columns {columns}, step '{step}'", required, "columns: {val/loss: valid_loss}")
        return columns

    def range_of(self, metric: str) -> tuple[float, float] | None:
        """The smallest and largest value of a metric: as declared, or as the catalogue has it; none where any is."""
        if metric in self.declare:
            return self.declare[metric].range
        metric_of_tool = declaration_of(metric)
        return None if metric_of_tool is None else metric_of_tool.range


class ScriptPin(FrozenModel):
    """One file of a user's own trainer, of its code or its data, as it was at registration."""

    path: str
    """Its path from the root."""
    sha256: str
    """sha256 of its bytes."""


def code_sha256(files: Iterable[ScriptPin]) -> str:
    """One hash over pinned files of a trainer, of its code and its data: what each run says that it was made with.

    >>> first, second = (ScriptPin(path=path, sha256="0" * 64) for path in ("a.py", "b.py"))
    >>> code_sha256([first, second]) == code_sha256([second, first])
    True
    """
    return sha256_of({pin.path: pin.sha256 for pin in files})


def differing_files(root: Path, files: Iterable[ScriptPin]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths of the pinned files whose bytes under the root are other bytes now, and of those that are not there."""
    changed, absent = [], []
    for pin in files:
        place = root / pin.path
        # A lock that came with a bundle is a stranger's: nothing outside is read because it says so.
        if not is_inside(pin.path) or not place.is_file():
            absent.append(pin.path)
        elif sha256_file(place) != pin.sha256:
            changed.append(pin.path)
    return tuple(changed), tuple(absent)


def filled(words: tuple[str, ...], own: Mapping[str, str], config: Mapping[str, JsonValue]) -> tuple[str | None, ...]:
    """The words of one run, from the values of its own placeholders; none in place of a flag that is off.

    >>> words = ("train.py", "--lr={optim.lr}", "{--amp if amp}", "--seed={seed}")
    >>> filled(words, {"seed": "7"}, {"optim": {"lr": 0.1}, "amp": False})
    ('train.py', '--lr=0.1', None, '--seed=7')
    """
    # The run's own come last: `{seed}` is never a field of the base, which `check_command_words` refuses.
    values = {**texts_of(config), **own}

    def put(brace: re.Match[str]) -> str:
        # `{{` and `}}` match without a group, and leave one brace.
        return brace[0][0] if brace[1] is None else values[brace[1]]

    def word_of(word: str) -> str | None:
        flag = _FLAG.fullmatch(word)
        if flag is None:
            return _BRACES.sub(put, word)
        return flag[1] if values[flag[2]] == "true" else None

    return tuple(map(word_of, words))


def words_of(line: str) -> str:
    """The words of a line as `command:` takes them: a list, with quotes where YAML would read another thing.

    >>> print(words_of("python train.py --name 'a b' --flag true"))
    ["{python}", train.py, "--name", "a b", "--flag", "true"]
    """
    try:
        words = shlex.split(line)
    except ValueError:  # a quote that is not closed
        words = line.split()
    # `python` on the path may be another one than that which ablate runs under.
    if words and re.fullmatch(r"python3?", words[0]):
        words[0] = "{python}"
    return listed_words(words)


def listed_words(words: Iterable[str]) -> str:
    """Words as a list of YAML on one line.

    >>> print(listed_words(["{python}", "train.py", "true"]))
    ["{python}", train.py, "true"]
    """
    # Any other word is quoted: to YAML, `{`, `--x`, `1e-3` and `true` are no text, or not this one.
    plain = re.compile(r"(?!(?i:true|false|null)$)[A-Za-z][\w./-]*")
    return f"[{', '.join(word if plain.fullmatch(word) else json.dumps(word, ensure_ascii=False) for word in words)}]"


def placeholders(words: tuple[str, ...]) -> frozenset[str]:
    """What the words' placeholders name, flags included.

    >>> sorted(placeholders(("train.py", "--lr={optim.lr}", "--out={run_dir}/log.csv", "{{literal}}")))
    ['optim.lr', 'run_dir']
    """
    flags = (flag[2] for flag in map(_FLAG.fullmatch, words) if flag is not None)
    return frozenset(name for word in words for name in _BRACES.findall(word) if name).union(flags)


def values_of(study: Study, arm: str) -> dict[str, str]:
    """Dotted path -> text, of every value of an arm's configuration, as a placeholder puts it."""
    config = study.arms[arm].config
    assert isinstance(config, dict), arm
    return texts_of(config)


def texts_of(config: Mapping[str, JsonValue], prefix: str = "") -> dict[str, str]:
    """Dotted path -> text, of every value of a configuration that is not a section.

    >>> texts_of({"optim": {"lr": 0.1}, "amp": True, "tags": ["a"]})
    {'optim.lr': '0.1', 'amp': 'true', 'tags': '["a"]'}
    """
    texts: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            texts |= texts_of(value, f"{prefix}{key}.")
        else:
            texts[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return texts


def command_line(words: tuple[str, ...]) -> str:
    """The words as a person reads them: quoted where they hold blanks or quotes, and where they are empty.

    >>> print(command_line(("python", "train.py", "--name", "a b", "")))
    python train.py --name 'a b' ''
    """
    return " ".join(shlex.quote(word) if not word or re.search(r"[\s'\"\\]", word) else word for word in words)


def check_command_words(study: Study) -> None:
    """Raise `SpecError` for words that no run could be started with."""
    if study.trainer == "gpt":
        return
    if not study.command or not study.command[0].strip():
        raise field_error(
            ("command",),
            "trainer is 'command' and no command is given",
            "the words of the command, without a shell",
            'command: ["{python}", train.py, "--seed={seed}"]',
        )
    # Each arm's values once: a study of many arms has many words to check against them.
    values_by_arm = {arm: values_of(study, arm) for arm in study.arms}
    for at, word in enumerate(study.command):
        _check_word(study, values_by_arm, at, word)


def is_inside(path: str) -> bool:
    """Whether a path stays below the folder it is taken from.

    >>> [is_inside(path) for path in ("data/mine", "../mine", "/mine", "")]
    [True, False, False, False]
    """
    parts = PurePosixPath(path).parts
    return bool(parts) and not PurePosixPath(path).is_absolute() and ".." not in parts and "\0" not in path


def pin_scripts(root: Root, study: Study) -> tuple[ScriptPin, ...]:
    """Every file of the trainer's code that the command and `code:` name, with its hash. Raises `RegistrationError`."""
    # A file under `data:` is pinned there, also where the command names it: a change of it is no change of the code.
    data = _named(root, study.data, "data")
    scripts = _named(root, study.code, "code") - data
    # Of every planned run: the command may name a file by a value of one arm.
    for at, word in dict.fromkeys(every_word(study)):
        path = script_of(root.path, word)
        if path is not None:
            scripts |= {path} - data
        elif not word.startswith("-") and PurePosixPath(word).suffix in (".py", ".sh") and not Path(word).is_absolute():
            raise _missing(root, ("command", at), word)
    return _pinned(root, scripts, "code")


def pin_data(root: Root, study: Study) -> tuple[ScriptPin, ...]:
    """Every file that `data:` names, with its hash; none where it names nothing. Raises `RegistrationError`."""
    return _pinned(root, _named(root, study.data, "data"), "data")


def _named(root: Root, names: tuple[str, ...], field: str) -> set[Path]:
    """The files that a field names, those of folders included. Raises `RegistrationError`, for links too."""
    files: set[Path] = set()
    for at, named in enumerate(names):
        place = root.path / named
        inside = [] if place.is_file() else [path for path in place.rglob("*") if not _is_hidden(path, root.path)]
        for path in inside:
            # Inside a folder too: its target would be hashed here, and be another file on the next machine.
            if path.is_symlink():
                raise RegistrationError(
                    f"'{path.relative_to(root.path).as_posix()}' is a symbolic link",
                    required="files and folders that lie there themselves: nothing pins what a link leads to",
                    fix=f"put what it leads to in its place, or name that under {field}: itself",
                    where=Where(field=(field, at)),
                )
        of_name = {place} if place.is_file() else {path for path in inside if path.is_file()}
        if not of_name:
            raise _missing(root, (field, at), named)
        files |= of_name
    return files


def _pinned(root: Root, files: set[Path], field: str) -> tuple[ScriptPin, ...]:
    # Each of them is hashed before and after every run.
    if len(files) > _MOST_FILES:
        raise RegistrationError(
            f"the trainer's {field} is {len(files):,} files",
            required=f"at most {_MOST_FILES:,}",
            fix=f"{field}: [the folder of the {field} alone]",
            where=Where(field=(field,)),
        )
    pins = {path.relative_to(root.path).as_posix(): sha256_file(path) for path in files}
    return tuple(ScriptPin(path=path, sha256=pins[path]) for path in sorted(pins))


def script_faults(scripts: tuple[ScriptPin, ...], root: Path) -> list[str]:
    """Files of a trainer's code that are not below a root as they were registered, a sentence each."""
    # Changed files before missing ones; a path that leads outside was never read, so it is among the missing.
    changed, absent = differing_files(root, scripts)
    faults = [f"{path}: its bytes differ from those of the registered code" for path in changed]
    for pin in (pin for pin in scripts if pin.path in absent):
        if is_inside(pin.path):
            faults.append(f"{pin.path}: missing; the registered code had sha256 {pin.sha256}")
        else:
            faults.append(f"{pin.path!a}: registered as code, and no path inside the root")
    return faults


def script_of(root: Path, word: str) -> Path | None:
    """The file under the root that a word names, relative to the root or absolute."""
    # What no path can be; the system would refuse it with an error of its own.
    if not word or "\0" in word or len(word) > 4096:
        return None
    path = root / word
    if not path.is_relative_to(root) or ".." in path.parts or not path.is_file():
        return None
    return path


def every_word(study: Study, arm: str = "") -> Iterator[tuple[int, str]]:
    """The words of all planned runs, or of those of one arm, with their places: a file may be named by a value of one
    arm, `{config}.py`."""
    for name, seed in study.cells:
        if arm and name != arm:
            continue
        config = study.trained[name].config
        assert isinstance(config, dict), name
        # The Python is no file of the trainer's, and lies elsewhere on every machine.
        own = dict.fromkeys(_OWN, "") | {"variant": name, "seed": str(seed), "root": "."}
        words = enumerate(filled(study.command, own, config))
        yield from ((at, word) for at, word in words if word is not None)


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith((".", "__pycache__")) for part in path.relative_to(root).parts)


def _check_word(study: Study, values_by_arm: Mapping[str, Mapping[str, str]], at: int, word: str) -> None:
    """Raise `SpecError` for a placeholder that some arm cannot fill, a flag that is not true or false, a lone brace."""
    flag = _FLAG.fullmatch(word)
    if flag is not None:
        for arm, values in values_by_arm.items():
            value = values.get(flag[2])
            if value not in ("true", "false"):
                fault = (
                    f"'{flag[2]}' in word {at + 1}, '{word}', is {value or 'no value'} of the configuration of '{arm}'"
                )
                required = "the dotted path of a value under base that is true or false"
                raise field_error(("command", at), fault, required, f"{flag[2]}: false under base")
        return
    for match in _BRACES.finditer(word):
        place = f"at character {match.start() + 1} of word {at + 1}, '{word}'"
        _check_placeholder(study, values_by_arm, at, match, place)


def _check_placeholder(
    study: Study, values_by_arm: Mapping[str, Mapping[str, str]], at: int, match: re.Match[str], place: str
) -> None:
    name, field = match[1], ("command", at)
    # A brace of its own is most often a placeholder that was not closed.
    if match[0] in ("{", "}"):
        fix = f"{match[0] * 2} is a brace"
        raise field_error(field, f"a lone '{match[0]}' {place}", "a placeholder such as {seed}", fix)
    if name is None:  # {{ or }}
        return
    if name in _OWN:
        if isinstance(study.base, dict) and name in study.base:
            fault = f"{{{name}}} {place} is also a field of base"
            raise field_error(field, fault, "one meaning", "rename the field of base")
        return
    # Of every arm: an override may replace a section by a value, and its fields are then gone in that arm alone.
    for arm, values in values_by_arm.items():
        if name not in values:
            below = [path for path in values if path.startswith(f"{name}.")]
            what = "a section" if below else "no value" if name else "no value, it is empty"
            raise field_error(
                field,
                f"'{{{name}}}' {place} is {what} of the configuration of '{arm}'",
                "{seed}, {variant}, {python}, {root}, {run_dir}, or the dotted path of a value under base",
                f"{{{below[0]}}}" if below else nearest(name, [*_OWN, *values]),
            )


def _missing(root: Root, field: FieldPath, named: str) -> RegistrationError:
    return RegistrationError(
        f"no file '{named}' under {root.path}",
        required="a path from the folder that holds studies/",
        fix=f"studies/{named}, if it lies there" if (root.studies / named).exists() else "",
        where=Where(field=field),
    )
