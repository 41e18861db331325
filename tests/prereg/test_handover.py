"""What a command forgets to hand over and a claim that nothing records are found before any run, with what to type."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest
from own_trainer import OwnHouse, own_document
from typer.testing import CliRunner

from ablate.cli import app
from prereg.errors import SpecError, StudyError
from prereg.study.handover import PAIRING_LINES
from prereg.study.script import parse_script
from prereg.study.spec import study_from_document

OPTIONS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", default="log.csv")
args = parser.parse_args()
"""
TABLE = (
    OPTIONS
    + """
import csv
with open(args.out, "w") as file:
    csv.writer(file).writerow(["epoch", "train_loss", "val_loss", "val/acc"])
"""
)
LOGGED = "from ablate import config, log, seed\nlog(1, {'train/loss': 1.0, 'val/acc': 0.5})\n"
COMMAND = ["{python}", "train.py", "--lr={lr}", "--seed={seed}", "--out={run_dir}/log.csv"]
COLUMNS = {"file": "log.csv", "step": "epoch", "columns": {"train/loss": "train_loss", "val/loss": "val_loss"}}
CLAIM = "fast lowers val/loss by at least 0.05"


@pytest.fixture
def house(tmp_path: Path) -> OwnHouse:
    return OwnHouse(tmp_path)


def checked(house: OwnHouse, script: str, claim: str = CLAIM, **changes: Any) -> tuple[int, str]:
    """Exit code and output of `check`, each run of blanks as one, the folder left out."""
    house.script(script)
    hypotheses = {"gain": {"claim": claim, "smallest": 0.05}}
    house.study.write_text(json.dumps(own_document(hypotheses=hypotheses, command=COMMAND, metrics=COLUMNS) | changes))
    done = CliRunner().invoke(app, ["check", str(house.study)])
    refused = isinstance(done.exception, StudyError)
    output = str(done.exception) if refused else done.output
    return 2 if refused else done.exit_code, " ".join(output.replace(str(house.path), "").split())


def without(word: str) -> list[str]:
    return [one for one in COMMAND if one != word]


def test_a_study_that_hands_everything_over_and_claims_what_is_recorded_passes_without_a_word(house: OwnHouse) -> None:
    for script, metrics in ((TABLE, COLUMNS), (OPTIONS, COLUMNS), (LOGGED, {})):
        claim = "fast raises val/acc by at least 0.05" if script == LOGGED else CLAIM
        code, output = checked(house, script, claim, metrics=metrics)
        assert code == 0 and "nothing hands" not in output and "no run records" not in output


@pytest.mark.parametrize(
    ("script", "changes", "found", "fix"),
    [
        (
            TABLE,
            {"command": without("--lr={lr}")},
            "own.yaml:1 command: arms differ in lr, and nothing hands it over: no word has {lr}, and train.py reads no "
            "ABLATE_CONFIG",
            'command: ["{python}", train.py, "--seed={seed}", "--out={run_dir}/log.csv", "--lr={lr}"]',
        ),
        (
            TABLE,
            {"variants": {"slow": {}, "fast": {"amp": True}}, "base": {"lr": 0.1, "amp": False}},
            "arms differ in amp, and nothing hands it over",
            '"--out={run_dir}/log.csv", "{--amp if amp}"]',
        ),
        (
            TABLE,
            {"command": without("--seed={seed}")},
            "nothing hands the seed over: no word has {seed}, and train.py reads no ABLATE_SEED",
            'command: ["{python}", train.py, "--lr={lr}", "--out={run_dir}/log.csv", "--seed={seed}"]',
        ),
        (
            TABLE,
            {"metrics": COLUMNS | {"columns": {"train/loss": "loss", "val/loss": "valid_loss"}}},
            "metrics.columns.val/loss: no column 'valid_loss': train.py writes epoch, train_loss, val_loss and val/acc",
            "try: val/loss: val_loss",
        ),
        (
            TABLE,
            {"metrics": COLUMNS | {"step": "step"}},
            "metrics.step: no column 'step': train.py writes epoch, train_loss, val_loss and val/acc",
            "try: step: epoch",
        ),
        (
            TABLE,
            {"metrics": {"file": "log.csv", "step": "epoch"}, "claim": "fast raises val_acc by at least 0.05"},
            "hypotheses.gain.claim: no run records val_acc: train.py writes epoch, train_loss, val_loss and val/acc",
            "try: claim: fast raises val/acc by at least 0.05",
        ),
        (
            LOGGED,
            {"metrics": {}, "claim": "fast raises val_acc by at least 0.05"},
            "hypotheses.gain.claim: no run records val_acc: train.py records train/loss and val/acc",
            "try: claim: fast raises val/acc by at least 0.05",
        ),
    ],
)
def test_what_the_script_makes_certain_is_refused_with_the_words_to_type(
    house: OwnHouse, script: str, changes: dict[str, Any], found: str, fix: str
) -> None:
    claim = changes.pop("claim", CLAIM)
    code, output = checked(house, script, claim, **changes)
    assert code == 2 and found in output and fix in output, output


def test_a_claim_about_no_named_column_is_refused_where_the_study_alone_shows_it() -> None:
    hypotheses = {"gain": {"claim": "fast raises val_accuracy by at least 0.05"}}
    columns = COLUMNS | {"columns": {"train/loss": "loss", "val/acc": "acc"}}
    with pytest.raises(SpecError, match="no run records val_accuracy") as refused:
        study_from_document(own_document(hypotheses=hypotheses, metrics=columns))
    assert refused.value.fix == "claim: fast raises val/acc by at least 0.05"
    hypotheses = {"gain": {"claim": "fast lowers perplexity by at least 0.05"}}
    with pytest.raises(SpecError) as refused:
        study_from_document(own_document(hypotheses=hypotheses, metrics=columns))
    assert refused.value.fix == "columns: {perplexity: COLUMN}, with the column that holds it"


@pytest.mark.parametrize(
    ("script", "changes", "found", "fix"),
    [
        # The script has no such option: it may take the value in a way that its text does not show.
        ("print('hello')\n", {}, "", ""),
        (
            "print('hello')\n",
            {"command": ["{python}", "train.py"]},
            "line 1: arms differ in lr, and nothing hands it over",
            "args = ablate.config(parser.parse_args()) in train.py",
        ),
        (
            "print('hello')\n",
            {"command": without("--seed={seed}")},
            "line 1: nothing hands the seed over",
            "torch.manual_seed(ablate.seed()) in train.py",
        ),
        (
            OPTIONS.replace("--lr", "--lrate"),
            {"command": without("--lr={lr}"), "variants": {"slow": {}, "fast": {"lr": 0.4}}},
            "arms differ in lr, and nothing hands it over",
            '"--lrate={lr}"]',
        ),
    ],
)
def test_what_is_only_likely_is_a_warning(
    house: OwnHouse, script: str, changes: dict[str, Any], found: str, fix: str
) -> None:
    code, output = checked(house, script, **changes)
    assert code == 0 and found in output and fix in output, output


@pytest.mark.parametrize(
    ("line", "warns"),
    [
        ("DataLoader(data, batch_size=8, shuffle=True)", True),
        ("torch.utils.data.DataLoader(data, shuffle=True)", True),
        ("DataLoader(data, shuffle=True, generator=for_data)", False),
        ("DataLoader(data, shuffle=False)", False),
        ("DataLoader(data, shuffle=True, **options)", False),
        ("DataLoader(data, shuffle=True); must_match('order', data)", False),
    ],
)
def test_batches_that_depend_on_the_arm_are_a_warning_with_the_lines_to_add(
    house: OwnHouse, line: str, warns: bool
) -> None:
    code, output = checked(house, f"{TABLE}{line}\n")
    assert code == 0
    assert ("train.py shuffles by torch's global generator" in output) == warns
    assert all((text in output) == warns for text in PAIRING_LINES), output


def test_the_lines_that_make_pairs_are_in_the_guide_and_in_the_report_of_a_study_that_lacks_them(
    decided_own: OwnHouse,
) -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "own-trainer.md").read_text(encoding="utf-8")
    page = (decided_own.path / "reports" / "own" / "report.html").read_text(encoding="utf-8")
    for line in PAIRING_LINES:
        assert f"\n{line}\n" in guide and html.escape(line, quote=False) in page.replace("&#34;", '"')


def test_the_table_of_an_earlier_run_shows_columns_and_refuses_nothing(house: OwnHouse) -> None:
    (house.path / "log.csv").write_text("epoch,loss,val/loss\n1,2.0,3.0\n")
    code, output = checked(house, OPTIONS)
    assert code == 0 and "no column 'val_loss': log.csv has epoch, loss and val/loss" in output, output


@pytest.mark.parametrize(
    "script",
    [
        "import json, os\njson.load(open(os.environ['ABLATE_CONFIG']))\nos.environ['ABLATE_SEED']\n" + OPTIONS,
        "import ablate\nargs = ablate.config({})\nablate.seed(0)\n" + OPTIONS,
        "from settings import read\n" + OPTIONS,
        "import subprocess, os\nprefix = 'ABLATE_'\n" + OPTIONS,
        "this is no Python",
    ],
)
def test_a_script_that_takes_its_values_another_way_is_left_alone(house: OwnHouse, script: str) -> None:
    house.script("from ablate import config as read, seed\n", "settings.py")
    code, output = checked(house, script, command=["{python}", "train.py"])
    assert code == 0 and "nothing hands" not in output, output


def test_a_command_written_as_one_text_or_one_word_is_taken_apart(house: OwnHouse) -> None:
    fix = 'command: ["{python}", train.py, "--lr={lr}", "--note=two words"]'
    line = "python train.py --lr={lr} '--note=two words'"
    for command, found in ((line, "found"), ([line], "the whole command is one word")):
        code, output = checked(house, TABLE, command=command)
        assert code == 2 and found in output and fix in output, output


def test_what_a_script_shows_is_read_and_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    shown = parse_script(f"open({str(marker)!r}, 'w')\n{TABLE}".encode())
    assert not marker.exists()
    assert [(one.name, one.dest, one.kind, one.default) for one in shown.options] == [
        ("--lr", "lr", "number", 0.1),
        ("--amp", "amp", "flag", False),
        ("--seed", "seed", "number", 0),
        ("--out", "out", "text", "log.csv"),
    ]
    assert shown.headers == (("epoch", "train_loss", "val_loss", "val/acc"),) and shown.tables == ("log.csv",)


@pytest.mark.parametrize(
    ("source", "names", "others"),
    [
        ("log(1, {'a/b': 1})", ("a/b",), False),
        ("log(1, {'a/b': 1, name: 2})", ("a/b",), True),
        ("row = {'a/b': 1}\nrow['c'] = 2\nlog(1, row)", ("a/b", "c"), False),
        ("row = {'a/b': 1}\nrow.update(more)\nlog(1, row)", ("a/b",), True),
        ("row = {'a/b': 1}\nadd(row)\nlog(1, row)", ("a/b",), True),
        ("row = measure()\nlog(1, row)", (), True),
        ("log(1, {**measure()})", (), True),
    ],
)
def test_names_of_logged_metrics_are_known_only_where_all_are_written_out(
    source: str, names: tuple[str, ...], others: bool
) -> None:
    shown = parse_script(f"from ablate import log\n{source}\n".encode())
    assert (shown.logged, shown.logs_others) == (names, others)
