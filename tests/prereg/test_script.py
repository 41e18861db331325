"""What the text of a script shows, and a claim or a command that names nothing there is refused with what to type."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
from own_trainer import OwnHouse, own_document

from ablate.judge.audit.runs import PAIRING_LINES
from ablate.pinning import pin_code
from ablate.workspace import Workspace
from prereg.errors import SpecError, StudyError
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
COLUMNS = {"file": "log.csv", "step": "epoch", "columns": {"train/loss": "train_loss", "val/loss": "val_loss"}}


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


def test_the_lines_that_make_pairs_are_in_the_guide_and_in_the_report_of_a_study_that_lacks_them(
    decided_own: OwnHouse,
) -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "own-trainer.md").read_text(encoding="utf-8")
    page = (decided_own.path / "reports" / "own" / "report.html").read_text(encoding="utf-8")
    for line in PAIRING_LINES:
        assert f"\n{line}\n" in guide and html.escape(line, quote=False) in page.replace("&#34;", '"')


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py --lr={lr} '--note=two words'", "found"),
        (["python train.py --lr={lr} '--note=two words'"], "the whole command is one word"),
    ],
)
def test_a_command_written_as_one_text_or_one_word_is_taken_apart(
    command: object, found: str, own_house: OwnHouse
) -> None:
    with pytest.raises(StudyError, match=found) as refused:
        pin_code(Workspace().open(own_house.write(command=command)))
    assert refused.value.fix == 'command: ["{python}", train.py, "--lr={lr}", "--note=two words"]'


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
