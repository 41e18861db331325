"""`ablate new`: each template is a sound study that runs as it is, and nothing is ever replaced."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from prereg.errors import StudyError
from prereg.study.load import load_study
from prereg.study.schema import json_schema

TEMPLATES = tuple(api.templates())
OF_COMMITS = "commits"
"""The template whose arms are commits, so that it needs a repository with two of them: tests/cli/test_gate.py."""
CAMPAIGN = "campaign"
"""The template of a campaign."""
STUDIES = Path(__file__).resolve().parents[2] / "studies"
VERDICTS = {
    "command": "use momentum",
    "components": "",
    "factorial": "high rate at both lengths",
    "gpt": "adopt the higher rate",
    "huggingface": "use the higher rate",
    "ordered": "adopt the higher rate",
    "sequential": "adopt the higher rate",
    "target": "a record",
    "tuned": "use AdamW",
    "unpaired": "adopt the higher rate",
}


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("template", [name for name in TEMPLATES if name not in (OF_COMMITS, CAMPAIGN)])
def test_a_template_is_a_study_that_passes_check(template: str, empty: Path) -> None:
    made = api.new("mine", template)
    assert made.study == empty / "studies" / "mine.yaml" and all(path.is_file() for path in made.files)
    text = made.study.read_text()
    assert text.startswith("# yaml-language-server: $schema=study.schema.json\n# ") and "NAME" not in text
    assert json.loads((empty / "studies" / "study.schema.json").read_text()) == json_schema()
    checked = CliRunner().invoke(app, ["check", "studies/mine.yaml"])
    assert checked.exit_code == 0, checked.output


def test_every_template_is_trained_by_a_test_and_named_where_a_reader_looks_for_one() -> None:
    assert set(TEMPLATES) == set(VERDICTS) | {"import", OF_COMMITS, CAMPAIGN}, "import has no runs to train"
    shown = CliRunner().invoke(app, ["new", "--help"]).output
    page = (STUDIES.parent / "docs" / "designs.md").read_text(encoding="utf-8")
    for template in TEMPLATES:
        assert re.search(rf"\b{template}\b", shown) and f"`{template}`" in page, template


def test_the_template_of_a_campaign_passes_check_and_keeps_files_that_are_there(empty: Path) -> None:
    made = api.new("night", CAMPAIGN)
    names = {path.relative_to(empty).as_posix() for path in made.files}
    assert names == {
        "campaigns/night.yaml", "campaigns/night/train.py", "AGENTS.md", "data/.gitignore", "studies/study.schema.json"
    }  # fmt: skip
    assert made.study == empty / "campaigns" / "night.yaml"
    assert not [path for path in made.files[:2] if "NAME" in path.read_text(encoding="utf-8")]
    assert "campaigns/night.yaml" in (empty / "AGENTS.md").read_text(encoding="utf-8")
    checked = CliRunner().invoke(app, ["check", "campaigns/night.yaml"])
    assert checked.exit_code == 0, checked.output
    (empty / "AGENTS.md").write_text("mine", encoding="utf-8")
    assert empty / "AGENTS.md" not in api.new("evening", CAMPAIGN).files
    assert (empty / "AGENTS.md").read_text(encoding="utf-8") == "mine"
    with pytest.raises(StudyError, match="exists already"):
        api.new("night", CAMPAIGN)


@pytest.mark.slow
def test_the_first_proposal_of_the_template_of_a_campaign_is_kept(empty: Path) -> None:
    propose = shlex.split(api.new("night", CAMPAIGN).next[-1])
    done = CliRunner().invoke(app, [*propose[1:], "--jobs", "1"])
    assert done.exit_code == 0 and "night, proposal 1: keep" in done.output, done.output


def test_the_default_template_is_the_quickstart(empty: Path) -> None:
    made = load_study(api.new("quickstart").study).study
    given = load_study(STUDIES / "quickstart.yaml").study
    assert made.model_copy(update={"question": given.question}) == given


@pytest.mark.long
@pytest.mark.parametrize("template", sorted(VERDICTS.keys() - {"gpt"}))  # which tests/cli/test_first_day.py trains
def test_a_template_has_power_and_reaches_its_verdict(template: str, empty: Path) -> None:
    study = api.new("mine", template).study
    assert CliRunner().invoke(app, ["design", str(study)]).exit_code == 0
    assert api.run(study).summary.complete
    verdict = api.decide(study).decision.verdict
    assert verdict == VERDICTS[template] if VERDICTS[template] else verdict


@pytest.mark.slow
def test_the_table_of_the_import_template_comes_in_and_gives_no_verdict(empty: Path) -> None:
    made = api.new("sweep", "import")
    for command in made.next[:-1]:
        done = CliRunner().invoke(app, command.split()[1:])
        assert done.exit_code == 0, done.output
    decided = CliRunner().invoke(app, made.next[-1].split()[1:])
    assert decided.exit_code == 4 and "imported" in decided.output


def test_a_study_lands_in_the_repository_around_and_under_its_own_title(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty / "studies").mkdir()
    (empty / "notes").mkdir()
    monkeypatch.chdir(empty / "notes")
    title = "Does \\1 'more' data: \"help\"? # yes"
    assert api.new("data", title=title).study == empty / "studies" / "data.yaml"
    assert load_study(empty / "studies" / "data.yaml").study.title == title


@pytest.mark.parametrize(
    ("name", "template", "message"),
    [
        ("taken", "command", "studies/taken.yaml exists already"),
        ("../out", "gpt", 'found "../out"'),
        ("a b", "gpt", 'found "a b"'),
        ("a #b", "gpt", "'a #b'"),
        ("x\nseeds: [1]", "gpt", ""),
        ("mine.yaml", "gpt", "ablate new mine"),
        ("nul", "gpt", "the name of a device on Windows"),
        ("mine", "hugging", "did you mean 'huggingface'?"),
    ],
)
def test_what_cannot_be_made_is_said_and_nothing_is_written(
    name: str, template: str, message: str, empty: Path
) -> None:
    api.new("taken")
    before = {path: path.read_bytes() for path in empty.rglob("*") if path.is_file()}
    with pytest.raises(StudyError) as refused:
        api.new(name, template)
    assert message in str(refused.value)
    assert {path: path.read_bytes() for path in empty.rglob("*") if path.is_file()} == before


def test_a_script_that_is_there_is_never_replaced(empty: Path) -> None:
    script = empty / "studies" / "mine" / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text("print('mine')\n")
    with pytest.raises(StudyError, match=r"train\.py exists already"):
        api.new("mine", "command")
    assert script.read_text() == "print('mine')\n" and not (empty / "studies" / "mine.yaml").exists()


def test_a_name_that_something_else_has_is_found_before_anything_is_written(empty: Path) -> None:
    studies = empty / "studies"
    studies.mkdir()
    (studies / "blocked").write_text("no folder")
    (studies / "dangling.yaml").symlink_to(empty / "nowhere")
    for name in ("blocked", "dangling"):
        with pytest.raises(StudyError, match="exists already"):
            api.new(name, "command")
    assert {path.name for path in studies.iterdir()} == {"blocked", "dangling.yaml"}


def test_git_shows_what_is_to_be_committed_and_no_run(empty: Path) -> None:
    api.new("mine", "command")
    for made in ("data/runs/mine/run.json", "data/try/mine/run.json", "data/corpora/toy.txt", "data/corpus.txt"):
        (empty / made).parent.mkdir(parents=True, exist_ok=True)
        (empty / made).write_text("x")
    subprocess.run(["git", "init", "--quiet", "."], check=True)
    shown = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    ).stdout.split()
    assert set(shown) == {
        "data/.gitignore",
        "data/corpus.txt",
        "studies/mine.yaml",
        "studies/mine/train.py",
        "studies/study.schema.json",
    }


@pytest.mark.parametrize(("own", "expected"), [("data/.gitignore", "mine\n"), (".gitignore", "*.pt\n/data/\n")])
def test_a_gitignore_of_the_user_is_kept(own: str, expected: str, empty: Path) -> None:
    (empty / "data").mkdir()
    (empty / own).write_text(expected)
    made = api.new("mine")
    assert (empty / own).read_text() == expected and made.files == (made.study, empty / "studies" / "study.schema.json")
    assert [path.name for path in empty.rglob(".gitignore")] == [".gitignore"]


def test_where_there_is_no_study_the_command_that_writes_one_is_named(empty: Path) -> None:
    with pytest.raises(StudyError, match="ablate new first"):
        api.run(Path("studies/first.yaml"))
