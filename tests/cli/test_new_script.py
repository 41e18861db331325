"""`ablate new --script`: a study of a script that is there, read and never run; and what `new` says in time."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from test_cli import ablate
from typer.testing import CliRunner

from ablate import new
from ablate.cli import app
from ablate.workspace import Workspace
from prereg.errors import StudyError
from prereg.study.load import load_study

OPTIONS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--norm", choices=["layer", "rms"], default="layer")
parser.add_argument("--amp", action="store_true")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="log.csv")
args = parser.parse_args()
"""
TABLE = OPTIONS + 'import csv\ncsv.writer(open(args.out, "w")).writerow(["epoch", "loss", "valid_loss", "valid_acc"])\n'
WORD, ARMS = "--dropout={dropout}", ["as_it_is", "dropout_0_1"]
LOGGED = "from ablate import config, log, seed\nconfig(args), seed(), log(1, {'train/loss': 1.0, 'test/acc': 0.5})\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(here: Path, script: str, *words: str) -> str:
    """The study of a script; it passes check, and the script is what it was."""
    (here / "train.py").write_text(script)
    for command in (["new", "mine", "--script", "train.py", *words], ["check", "studies/mine.yaml"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, f"{done.output}{done.exception}"
    assert "line" not in re.findall(r"^Warning: (\w+)", done.output, re.M), done.output
    assert (here / "train.py").read_text() == script
    return (here / "studies" / "mine.yaml").read_text()


def test_options_and_columns_of_a_script_become_a_study_that_says_what_is_to_be_filled_in(here: Path) -> None:
    text = written(here, f"open('ran', 'w')\n{TABLE}", "--set", "dropout=0.1", "--set", "dropout=0.5")
    assert not (here / "ran").exists()
    study = load_study(here / "studies" / "mine.yaml").study
    assert study.command == ("{python}", "train.py", "--dropout={dropout}", "--seed={seed}", "--out={run_dir}/log.csv")
    assert [arm.config for arm in study.arms.values()] == [{"dropout": 0.0}, {"dropout": 0.1}, {"dropout": 0.5}]
    assert (study.metrics.file, study.metrics.step) == ("log.csv", "epoch")
    columns = {"train/loss": "loss", "val/loss": "valid_loss", "val/accuracy": "valid_acc"}
    assert study.metrics.columns == columns
    assert study.hypotheses["better"].claim == "dropout_0_1 lowers val/loss by at least 0.01"
    assert text.count("# fill in: ") == 3, "the question, the unit, the smallest difference"
    assert '# For arms that change one: "--epochs={epochs}" in command, and epochs: 5 in base.' in text


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        (TABLE, (), (WORD, ARMS, "dropout_0_1 lowers val/loss by at least 0.01")),
        (TABLE, ("--set", "norm=rms"), ("--norm={norm}", ["as_it_is", "norm_rms"], "norm_rms lowers val/loss")),
        (TABLE, ("--set", "amp=true"), ("{--amp if amp}", ["as_it_is", "amp"], "amp lowers val/loss")),
        (OPTIONS, (), (WORD, ARMS, "dropout_0_1 lowers val/loss")),
        (OPTIONS + LOGGED, (), ("train.py", ARMS, "dropout_0_1 raises test/acc by at least 0.005")),
        (TABLE, ("--metrics", "earlier.jsonl"), (WORD, ARMS, "raises test/f1")),
        (TABLE.replace('"--seed"', '"--shuffle"'), (), (WORD, ARMS, "")),
        (TABLE.replace("default=0.0", "required=True"), (), (WORD, ["as_it_is", "dropout_2"], "")),
    ],
)
def test_what_a_script_shows_decides_command_arms_and_claim(
    here: Path, script: str, words: tuple[str, ...], expected: tuple[str, list[str], str]
) -> None:
    command, arms, claim = expected
    (here / "earlier.jsonl").write_text('{"step": 1, "test_f1": 0.2, "lr": 0.1}\n')
    (here / "train.py").write_text(script)
    options = {"metrics": words[1]} if "--metrics" in words else {"arms": words[1:]}
    new("mine", script="train.py", workspace=Workspace(here), **options)  # type: ignore[arg-type]
    study = load_study(here / "studies" / "mine.yaml").study
    assert command in study.command and list(study.arms) == arms
    assert claim in study.hypotheses["better"].claim
    assert CliRunner().invoke(app, ["check", "studies/mine.yaml"]).exit_code == 0


@pytest.mark.parametrize(
    ("script", "options", "message"),
    [
        ("print(1)", {}, "has no option in which arms could differ"),
        ("def broken(:", {}, "train.py:1: no Python that can be read"),
        (TABLE, {"script": "none.py"}, "none.py: no such file"),
        (TABLE, {"script": "/usr/bin/env"}, "outside"),
        (TABLE, {"metrics": "none.csv"}, "none.csv: no such file"),
        (TABLE, {"arms": ["dropuot=0.1"]}, "did you mean 'dropout'?"),
        (TABLE, {"arms": ["dropout"]}, "NAME=VALUE"),
        (TABLE, {"arms": ["dropout=0.1", "norm=rms"]}, "of one option"),
        (TABLE, {"arms": ["dropout=0.0"]}, "a value that differs"),
        (TABLE, {"script": None, "metrics": "log.csv"}, "without --script"),
    ],
)
def test_what_makes_no_study_is_refused_and_nothing_is_written(
    here: Path, script: str, options: dict[str, object], message: str
) -> None:
    (here / "train.py").write_text(script)
    with pytest.raises(StudyError) as refused:
        new("mine", workspace=Workspace(here), **({"script": "train.py"} | options))  # type: ignore[arg-type]
    assert message in str(refused.value)
    assert [path.name for path in here.iterdir()] == ["train.py"]


def test_the_template_of_a_command_leaves_the_users_script_alone_and_says_so(here: Path) -> None:
    (here / "train.py").write_text("mine")
    done = CliRunner().invoke(app, ["new", "mine", "--template", "command"])
    assert "train.py is yours and untouched: studies/mine/train.py is an example next to it" in done.output
    assert "ablate new mine_2 --script train.py" in done.output and (here / "train.py").read_text() == "mine"


@pytest.mark.parametrize("ending", [EOFError, KeyboardInterrupt])
def test_the_end_of_input_says_that_nothing_was_written(
    ending: type[BaseException], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(_: str) -> str:
        raise ending

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", asked)
    assert ablate(monkeypatch, "new", "mine") == 130
    printed = capsys.readouterr()
    assert printed.err == "Template [gpt]: interrupted: nothing was written\n" and "sealed" not in printed.out
    assert not [*here.iterdir()]


def test_a_study_whose_runs_need_torch_says_so_when_it_is_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.creating.find_spec", lambda name: None if name == "torch" else object())
    noted = "ablate run will need torch, which is not installed:  pip install 'ablate-prereg[gpt]'"
    assert noted in new("mine", "gpt").notes
    assert new("own", "command").notes == ()
    monkeypatch.setattr("ablate.creating.find_spec", lambda _: object())
    assert new("with_torch", "gpt").notes == ()
