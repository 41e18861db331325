"""Every class of the error tree with examples that are carried out: what is typed, and what comes.

`python tests/error_examples.py docs/errors.md` writes the page; tests/cli/test_error_page.py compares it.
An example begins with a study of a template in an empty folder. Times and hashes are written as TIME and HASH.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

import ablate as api
from ablate import cli
from ablate.cli.options import Exit
from ablate.judge.design import characteristics
from ablate.runner.local import study_lock
from prereg import errors
from prereg.errors import StudyError
from prereg.registry.disk import write_whole
from prereg.registry.paths import Root

Change = tuple[str, str] | tuple[str, str, str]
CHECK = "check studies/mine.yaml"


@dataclass(frozen=True)
class Example:
    """One mistake of a user."""

    error: type[StudyError]
    title: str
    changes: tuple[Change, ...] = ()
    """(old, new) in the study, or (pattern of a file, old, new); old is all of the file where it is empty."""
    command: str = CHECK
    before: tuple[str, ...] = ()
    """What was typed before it, without a mistake."""
    after: tuple[Change, ...] = ()
    """What was changed after that."""
    template: str = "gpt"
    held: bool = False
    """Whether another process runs the study."""


def _example(error: type[StudyError], title: str, *changes: Change, **more: object) -> Example:
    return Example(error, title, changes, **more)  # type: ignore[arg-type]


_SEEDS = "seeds: [1, 2, 3, 4, 5]"
_EDITED = "studies/mine.yaml"
registered = partial(_example, template="import", before=("register studies/mine.yaml",))
imported = partial(_example, template="import")
_IMPORT = (
    "import studies/mine.yaml studies/mine/results.csv --exploratory --note sweep --arm-column arm --seed-column seed "
    "--step-column epoch --column val/loss=valid_loss"
)

EXAMPLES: tuple[Example, ...] = (
    _example(errors.StudyFileError, "a tab", ("  slow: {}", "\tslow: {}")),
    _example(errors.StudyFileError, "a colon in a text", ("title: Does", "title: Question: does")),
    _example(errors.StudyFileError, "an open quote", ("title: Does", "title: 'Does")),
    _example(errors.StudyFileError, "a line indented too far", ("  slow: {}", "      slow: {}")),
    _example(errors.StudyFileError, "the same hypothesis twice", ("\n  no_harm: ", "\n  faster_learning: ")),
    _example(errors.StudyFileError, "an empty file", (_EDITED, "", "")),
    _example(
        errors.StudyFileError,
        "a table in place of a study",
        command="check studies/mine/results.csv",
        template="import",
    ),
    _example(errors.StudyFileError, "a folder in place of a study", command="check studies"),
    _example(errors.StudyFileError, "a misspelt file", command="run studies/mien.yaml"),
    _example(errors.SpecError, "an unknown field", ("baseline: slow", "base_line: slow")),
    _example(errors.SpecError, "a word for a number", ("layers: 2", "layers: two")),
    _example(errors.SpecError, "a margin with a unit", ("smallest: 0.01 ", "smallest: 0.01 nats ")),
    _example(errors.SpecError, "seeds as a text", (_SEEDS, 'seeds: "1, 2, 3"')),
    _example(errors.SpecError, "a number of seeds", (_SEEDS, "seeds: 5")),
    _example(errors.SpecError, "a seed twice", (_SEEDS, "seeds: [1, 2, 3, 4, 4]")),
    _example(errors.SpecError, "an override without its path", ("optim.lr: 3.0e-3", "lr: 3.0e-3")),
    _example(errors.SpecError, "variants that are the same", ("optim.lr: 3.0e-3", "optim.lr: 1.0e-3")),
    _example(errors.SpecError, "a commit of the built-in trainer", ("optim.lr: 3.0e-3", "commit: v1.2")),
    _example(errors.SpecError, "a baseline that is no variant", ("baseline: slow", "baseline: slowest")),
    _example(errors.SpecError, "a width that heads do not divide", ("width: 64", "width: 65")),
    _example(
        errors.SpecError,
        "three mistakes at once",
        ("title:", "titel:"),
        ("warmup: 10", "warm_up: 10"),
        ("role: guardrail", "role: guard"),
    ),
    _example(errors.ClaimError, "an arm that is not there", ("claim: fast lowers", "claim: fats lowers")),
    _example(errors.ClaimError, "a metric that is not there", ("lowers val/loss by", "lowers val/los by")),
    _example(errors.ClaimError, "another verb", ("claim: fast lowers", "claim: fast reduces")),
    _example(errors.ClaimError, "a unit after a margin", ("by at least 0.05\n", "by at least 0.05 nats\n")),
    _example(errors.RuleError, "an unknown hypothesis", ("supported(faster_learning) and", "supported(faster) and")),
    _example(errors.RuleError, "an unknown question", ("and stable(fast)", "and better(fast)")),
    _example(errors.RuleError, "a case without a verdict", ("  - {verdict: inconclusive}\n", "")),
    _example(
        errors.RuleError,
        "a line that no case reaches",
        ("  - {verdict: inconclusive}", "  - {verdict: inconclusive}\n  - {verdict: other}"),
    ),
    _example(
        errors.UnsupportedError,
        "a bootstrap of three seeds",
        (_SEEDS, "seeds: [1, 2, 3]"),
        ("analysis: {alpha: 0.033}", "analysis: {test: bootstrap_t}"),
    ),
    _example(
        errors.UnsupportedError,
        "a name that Windows refuses",
        ("  slow: {}", "  aux: {}"),
        ("baseline: slow", "baseline: aux"),
    ),
    _example(errors.RegistrationError, "decide before register", command="decide studies/mine.yaml"),
    registered(
        errors.RegistrationError,
        "a study edited after register",
        after=(("smallest: 0.02", "smallest: 0.03"),),
        command="decide studies/mine.yaml",
    ),
    registered(
        errors.RegistrationError, "an amendment of nothing", command='amend studies/mine.yaml --reason "a typo"'
    ),
    imported(
        errors.RegistrationError,
        "a commit outside a repository",
        ("base: {dropout: 0.0}", "base: {dropout: 0.0, commit: HEAD}"),
        command="register studies/mine.yaml",
    ),
    imported(
        errors.UndecidableDesignError,
        "five seeds for a sign-flip test",
        (_SEEDS, f"analysis: {{test: sign_flip}}\n{_SEEDS}"),
        command="register studies/mine.yaml",
    ),
    imported(
        errors.UndecidableDesignError,
        "too few seeds for the margin",
        ("sd: 0.01", "sd: 0.03"),
        command="register studies/mine.yaml",
    ),
    registered(
        errors.LedgerError,
        "a ledger that was edited",
        after=(("studies/ledger.jsonl", "registered", "registeret"),),
        command="status studies/mine.yaml",
    ),
    _example(errors.CorpusError, "an unknown corpus", ("corpus: toy", "corpus: toys")),
    _example(
        errors.CorpusError,
        "a corpus that was moved away",
        ("corpus: toy", "corpus: poems"),
        ("poems.txt", "", "a line of verse\n" * 200),
        before=("corpus add poems poems.txt",),
        after=(("data/corpora/poems/input.txt", "", "moved"),),
        command="register studies/mine.yaml",
    ),
    _example(
        errors.CorpusError,
        "a corpus shorter than the context",
        ("corpus: toy", "corpus: poems"),
        ("poems.txt", "", "a line of verse\n" * 20),
        before=("corpus add poems poems.txt",),
        command="register studies/mine.yaml",
    ),
    registered(errors.RunError, "a study that another process runs", command="run studies/mine.yaml", held=True),
    registered(errors.RunError, "a run that is not planned", command="run studies/mine.yaml --only dropuot/1"),
    registered(
        errors.EvidenceError,
        "a table without the column of a metric",
        command=_IMPORT.replace("valid_loss", "validation_loss"),
    ),
    registered(
        errors.EvidenceError,
        "an arm of a table that the study does not have",
        ("studies/mine/results.csv", "dropout,1", "drop_out,1"),
        command=_IMPORT,
    ),
    registered(
        errors.EvidenceError,
        "a record that was changed",
        before=("register studies/mine.yaml", _IMPORT),
        after=(("data/runs/mine/*/plain/1/run.json", '"seed"', '"sead"'),),
        command="bundle studies/mine.yaml",
    ),
    registered(errors.SealError, "a key that is not there", command="seal studies/mine.yaml --sign id_ed25519"),
    registered(
        errors.SealError, "a file that is no timestamp", command="seal studies/mine.yaml --timestamp studies/mine.yaml"
    ),
)

_TEXTS: tuple[tuple[str, str], ...] = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\+\d\d:\d\d)?", "TIME"),
    (r"\b[0-9a-f]{64}\b", "HASH"),
    (r"/[0-9a-f]{8}/", "/HASH8/"),
    (r"pid \d+ on [\w.-]+", "pid 4711 on HOST"),
)


def tree() -> list[type[StudyError]]:
    """Every class, a parent before its children, in the order of the module."""
    found = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, StudyError)]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Shown:
    """What came of an example."""

    typed: str
    """Lines of the study, or of a file, as the mistake has them."""
    said: str
    code: int
    raised: frozenset[type[StudyError]]
    """Classes of which an error was made."""


def carried_out(example: Example) -> Shown:
    """The example in an empty folder of its own."""
    made: set[type[StudyError]] = set()
    begin = StudyError.__init__

    def noted(self: StudyError, *words: object, **more: object) -> None:
        made.add(type(self))
        begin(self, *words, **more)  # type: ignore[arg-type]

    with tempfile.TemporaryDirectory() as name, chdir(name), _quiet():
        folder = Path.cwd()
        for path, text in _template(example.template).items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text)
        typed = _change(example.changes)
        for words in example.before:
            code, said = _type(words)
            assert code in (0, 5), (words, said)
        typed += _change(example.after)
        lock = study_lock(Root(folder), "mine") if example.held else nullcontext()
        with lock, patch.object(StudyError, "__init__", noted):
            code, said = _type(example.command)
    for pattern, instead in ((re.escape(f"{folder}/"), ""), *_TEXTS):
        said = re.sub(pattern, instead, said)
    return Shown(typed, said, code, frozenset(made))


@cache
def _template(kind: str) -> dict[str, str]:
    """The files that `ablate new mine` writes, less the schema for editors."""
    with tempfile.TemporaryDirectory() as name:
        made = api.new("mine", kind, workspace=api.Workspace(Path(name)))
        return {str(path.relative_to(name)): path.read_text() for path in made.files if path.suffix != ".json"}


@contextmanager
def _quiet() -> Iterator[None]:
    """A terminal of 80 columns, no corpora of this machine, and designs by few simulated studies."""
    few = partial(characteristics.simulate_design, n_sims=400)
    given = {"COLUMNS": "80", "XDG_CACHE_HOME": str(Path.cwd()), "HOME": str(Path.cwd())}
    with patch.dict(os.environ, given), patch.object(characteristics, "simulate_design", few):
        os.environ.pop("ABLATE_CORPORA", None)
        yield


def _change(changes: tuple[Change, ...]) -> str:
    typed = ""
    for change in changes:
        pattern, old, new = change if len(change) == 3 else (_EDITED, *change)
        [path] = Path().glob(pattern) or [Path(pattern)] if "*" in pattern else [Path(pattern)]
        before = path.read_text() if old else ""
        assert not old or before.count(old) == 1 or pattern != _EDITED, (pattern, old)
        text = before.replace(old, new, 1) if old else new
        if new == "moved":
            shutil.move(path, "elsewhere")
            continue
        path.write_text(text)
        if path.name == "mine.yaml":
            lines = [line for line in text.splitlines() if line not in before.splitlines()]
            gone = [
                f"# gone: {line.strip()}" for line in before.splitlines() if not new and line.strip() and line in old
            ]
            typed += "".join(f"{re.sub(r'  +#.*', '', line)}\n" for line in (lines if new else gone))
    return typed


def _type(words: str) -> tuple[int, str]:
    """The exit code of a command of ours and what it says, in this process."""
    import shlex

    said = io.StringIO()
    with patch.object(sys, "argv", ["ablate", *shlex.split(words)]), redirect_stdout(said), redirect_stderr(said):
        try:
            cli.main()
        except SystemExit as ended:
            return int(ended.code or 0), said.getvalue()
    raise AssertionError(words)


def page() -> str:
    """docs/errors.md."""
    parts = [_HEAD]
    for error in tree():
        mine = [one for one in EXAMPLES if one.error is error]
        inside = "" if error.__base__ is Exception else f" A kind of `{error.__base__.__name__}`."  # type: ignore[union-attr]
        codes = sorted({str(carried(one).code) for one in mine}) or [str(int(Exit.MISTAKE))]
        about = " ".join((error.__doc__ or "").split())
        parts.append(f"\n## {error.__name__}\n\n{about}{inside} Exit code {' or '.join(codes)}.\n")
        parts += [_shown(one) for one in mine]
    return "".join(parts)


def _shown(example: Example) -> str:
    found = carried(example)
    typed = f"```yaml\n{found.typed.replace(chr(9), '<tab>')}```\n\n" if found.typed else ""
    words = "".join(f"$ ablate {one}\n" for one in (*example.before, example.command))
    return f"\n### {example.title[0].upper()}{example.title[1:]}\n\n{typed}```text\n{words}{found.said.rstrip()}\n```\n"


_CARRIED: dict[str, Shown] = {}


def carried(example: Example) -> Shown:
    """The example, carried out once."""
    if example.title not in _CARRIED:
        _CARRIED[example.title] = carried_out(example)
    return _CARRIED[example.title]


_HEAD = """# Errors

Generated by `python tests/error_examples.py docs/errors.md`; do not edit. Every class of `prereg/errors.py`, with
examples that are carried out each time the tests run. A message has three parts: what was found and where, what is
`required`, and what to `try`. Up to ten mistakes of a file are shown at once. After an error nothing has changed on
disk. A study that gives no verdict is no error: see [checks](checks.md).

The studies are those of `ablate new mine` and `ablate new mine --template import`, with the lines shown. TIME and HASH
stand for times and hashes. In Python each class is raised as an exception with `found`, `required`, `fix` and `where`.
"""


if __name__ == "__main__":
    write_whole(Path(sys.argv[1]), page().encode())
