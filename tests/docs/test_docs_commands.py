"""The documentation runs: every fenced block runs, is valid, or says why it is not run.

Page by page, in one empty folder: an `sh` block line by line without a shell (`# exit code 3` where it is not 0), a
`python` block as a script, both in the tests' own process; a `text` block is output. Comments before a block:

    <!-- output -->        its numbers are compared with what was printed
    <!-- file: PATH -->    it is written as this file
    <!-- edit: PATH -->    its top-level fields replace those of this file
    <!-- not run: WHY -->  it is not run
"""

from __future__ import annotations

import ast
import json
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from own_trainer import OwnHouse, own_document
from test_cli import ablate

from ablate import cli
from prereg.study.designs.per_task import said_once
from prereg.study.load import load_study

ROOT = Path(__file__).resolve().parents[2]
OTHERS = ("checks.md", "metrics.md", "errors.md", "reference", "index.md")
"""In docs/: pages that are written by a program, and tested where it is; and the contents of the site."""
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not {*path.relative_to(ROOT).parts} & {*OTHERS}
}
MARK = r"<!-- (?P<mark>file|edit|output|not run)(?:: (?P<value>[^\n]+?))? -->"
BLOCK = re.compile(rf"(?:^{MARK}\n+)?^```(?P<language>\S*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT_CODE = re.compile(r"# exit code (\d+)\b")
SHELL = re.compile(r"[|&;<>`]|\$[A-Za-z({]")
PROGRAMS = ("ablate", "python")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block, and the comment before it."""

    language: str
    text: str
    mark: str
    value: str

    @property
    def commands(self) -> list[str]:
        """The lines of a shell block, continued lines as one, without those that are comments alone."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]

    @property
    def is_run(self) -> bool:
        return self.language in ("sh", "python") and self.mark == ""


def blocks(text: str) -> list[Block]:
    return [Block(**{k: v or "" for k, v in one.groupdict().items()}) for one in BLOCK.finditer(text)]


def checked_blocks(text: str) -> list[Block]:
    """The blocks of a page that has no code in another form."""
    found = blocks(text)
    assert len(re.findall(r"^\s*```", text, re.MULTILINE)) == 2 * len(found), "a fence that is indented or not closed"
    assert not re.search(r"\n\n    \S", re.sub(r"(?ms)^```.*?^```$", "", text)), "an indented block"
    comments = re.findall(r"^(<!--[^\n]*)\n+```", text, re.MULTILINE)
    assert all(re.fullmatch(MARK, one) for one in comments), f"a comment that is no mark: {comments}"
    return found


def words(line: str) -> list[str]:
    return shlex.split(line, comments=True)


COMMAND = typer.main.get_command(cli.app)


def check_parses(line: str) -> None:
    """The command line takes these words; nothing is carried out."""
    command, given = COMMAND, words(line)[1:]
    while (below := getattr(command, "commands", None)) is not None:
        assert given and given[0] in below, line
        command, given = below[given[0]], given[1:]
    command.make_context("ablate", list(given))


def check_yaml(given: dict[str, Any], folder: Path) -> None:
    """A study, a file next to one, or a fragment that makes a study of a script another one."""
    house = OwnHouse(folder / "house")
    if "study" in given:
        load_study(house.write(given))
        return
    document = own_document(**given)
    if "factors" in given:
        del document["variants"]
    if "components" in given:
        for written in ("variants", "baseline", "hypotheses", "decision"):
            del document[written]
    if "hypotheses" in given and "decision" not in given:
        first = next(iter(given["hypotheses"]))
        document["decision"] = [{"verdict": "yes", "when": f"supported({first})"}, {"verdict": "inconclusive"}]
    if "harness" in given.get("measure", {}):
        for task in ("first", "second"):
            (house.path / "tasks" / "mine").mkdir(parents=True, exist_ok=True)
            (house.path / "tasks" / "mine" / f"{task}.jsonl").write_text("")
    study = load_study(house.write(document)).study
    stated = tuple(study.components.parts) if study.components else given.get("hypotheses", ["gain"])
    assert set(stated) <= set(said_once(study)), given


def check_commands(block: Block) -> None:
    """Each line can do without a shell, and `ablate` has the command and its options, run or not."""
    for line in block.commands:
        if block.mark == "":
            assert words(line)[0] in PROGRAMS, f"no program of a page: {line}"
            assert not SHELL.search(line.split(" #")[0]), f"only a shell can read this: {line}"
        if words(line)[0] == "ablate":
            check_parses(line)


def check(block: Block, folder: Path) -> None:
    """Everything that can be known of a block without carrying it out."""
    if block.mark in ("file", "edit"):
        assert block.value and not Path(block.value).is_absolute() and ".." not in Path(block.value).parts, block
    if block.mark == "not run":
        assert len(re.findall(r"[A-Za-z]{2,}", block.value)) >= 3, f"why is it not run? {block}"
    if block.mark == "output":
        assert block.language == "text" and NUMBER.search(block.text), block
    match block.language:
        case "sh":
            check_commands(block)
        case "python":
            ast.parse(block.text)
        case "yaml":
            given = yaml.safe_load(block.text)
            if block.mark == "":
                check_yaml(given, folder)
            elif block.mark == "file" and Path(block.value).parts[0] == "studies":
                assert given["study"] == Path(block.value).stem
        case "json":
            json.loads(block.text)
        case "text":
            pass
        case language:
            assert language and block.mark in ("not run", "file"), f"neither run nor marked: {block}"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_is_valid_and_can_be_run_or_says_why_not(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(checked_blocks(PAGES[page])):
        (tmp_path / str(number)).mkdir()
        check(block, tmp_path / str(number))


def edited(text: str, change: str) -> str:
    """A study's text with the top-level fields that `change` names in place of its own."""
    parts = re.split(r"^(?=[a-z_]+:)", change, flags=re.MULTILINE)
    for part in filter(None, parts):
        field = part.split(":")[0]
        own = re.compile(rf"^{field}:.*\n(?:(?:[ #-].*)?\n)*?(?=^[a-z_]+:|\Z)", re.MULTILINE)
        assert len(own.findall(text)) == 1, f"no field '{field}' to replace"
        text = own.sub(lambda _, new=part: new + "\n", text)
    return text


def carry_out(line: str, capfd: pytest.CaptureFixture[str]) -> str:
    """What a command prints, in this folder; its exit code is the one that the page gives it, or 0.

    `ablate` in this process: what a process of its own adds is tested in test_cli.py and test_run.py.
    """
    program, *given = words(line)
    capfd.readouterr()
    if program == "ablate":
        with pytest.MonkeyPatch.context() as patch:
            code = ablate(patch, *given)
    else:
        code = subprocess.run([sys.executable, *given], stdin=subprocess.DEVNULL, check=False).returncode
    said = "".join(capfd.readouterr())
    expected = EXIT_CODE.search(line)
    assert code == (int(expected[1]) if expected else 0), (line, said)
    return said


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in PAGES if any(one.is_run for one in blocks(PAGES[page]))])
def test_the_commands_of_a_page_do_what_it_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "80")
    said = ""
    for number, block in enumerate(blocks(PAGES[page])):
        target = tmp_path / block.value
        if block.mark == "file":
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.mark == "edit":
            target.write_text(edited(target.read_text(encoding="utf-8"), block.text), encoding="utf-8")
        elif block.mark == "output":
            missing = set(NUMBER.findall(block.text)) - set(NUMBER.findall(said))
            assert not missing, (page, missing, said)
        elif block.is_run and block.language == "python":
            (tmp_path / f"block_{number}.py").write_text(block.text, encoding="utf-8")
            capfd.readouterr()
            runpy.run_path(f"block_{number}.py", run_name="__main__")
            said = "".join(capfd.readouterr())
        elif block.is_run:
            for line in block.commands:
                said = carry_out(line, capfd)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("```sh\nablate chekc studies/a.yaml\n```\n", "chekc"),
        ("```sh\nablate run studies/a.yaml --jbos 2\n```\n", "jbos"),
        ("<!-- not run: because -->\n```sh\nablate run studies/a.yaml\n```\n", "why is it not run"),
        ("```sh\ncurl example.org\n```\n", "no program"),
        ("```sh\nablate check a.yaml && ablate run a.yaml\n```\n", "only a shell"),
        ("```latex\n\\input{results}\n```\n", "neither run nor marked"),
        ("```\nablate run a.yaml\n```\n", "neither run nor marked"),
        ("<!-- no run: it takes long -->\n```sh\nablate run a.yaml\n```\n", "no mark"),
        ("Text:\n\n    ablate run a.yaml\n", "an indented block"),
        ("```yaml\nhypotheses: {gain: {claim: fast lowres val/loss, smallest: 0.1}}\n```\n", "lowres"),
    ],
)
def test_a_block_that_cannot_be_relied_on_is_a_fault(text: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=fault):
        for block in checked_blocks(text):
            check(block, tmp_path)


def test_an_edit_replaces_whole_fields_and_nothing_else() -> None:
    text = "study: a\n\nhypotheses:\n  gain:\n    claim: b lowers c\n\n# why\nseeds: [1]\nassume: {}\n"
    change = "hypotheses:\n  gain: {claim: b raises c}\nassume:\n  metrics: {}\n"
    assert yaml.safe_load(edited(text, change)) == {"study": "a", "seeds": [1]} | yaml.safe_load(change)
