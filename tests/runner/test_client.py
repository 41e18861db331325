"""What a training script imports: with a study and without one."""

from __future__ import annotations

import argparse
import hashlib
import json
from io import StringIO
from pathlib import Path

import pytest
from own_trainer import OwnHouse

import ablate as api
from ablate import config, log, must_match, seed
from ablate.records.outputs import read_hashes
from ablate.records.rows import Row, read_rows
from ablate.runner.progress import PlainWatcher

# Flags, a CSV log, relative data: written as one would without knowing ablate.
PLAIN = """
import argparse, csv
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--fast", action="store_true")
parser.add_argument("--out", default="log.csv")
args = parser.parse_args()
bias = float(open("data/bias.txt").read())
with open(args.out, "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["epoch", "loss", "valid_loss"])
    for epoch in range(1, 5):
        loss = 3.0 - epoch * args.lr * (2 if args.fast else 1) + bias + args.seed / 1000
        table.writerow([epoch, loss, loss + 0.1 if epoch % 2 == 0 else ""])
"""

LOGS = """
import argparse
from ablate import config, log, seed
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=1)
args = config(parser.parse_args())
for step in range(1, args.steps + 1):
    log(step, {"train/loss": 3.0 - args.lr * step + seed() / 1000})
log(args.steps, {"val/loss": 2.0 - args.lr})
"""


def test_a_script_with_flags_and_a_csv_log_runs_as_it_is(own_house: OwnHouse) -> None:
    own_house.script(PLAIN)
    own_house.script("0.5", "data/bias.txt")
    registration = own_house.register(
        command=[
            "{python}",
            "train.py",
            "--lr",
            "{lr}",
            "--seed={seed}",
            "{--fast if fast}",
            "--out={run_dir}/log.csv",
        ],
        working_directory="root",
        data=["data"],
        metrics={"file": "log.csv", "step": "epoch", "columns": {"train/loss": "loss", "val/loss": "valid_loss"}},
        base={"lr": 0.1, "fast": False},
        variants={"slow": {}, "fast": {"fast": True}},
    )
    values = {}
    for arm in ("slow", "fast"):
        record, said = own_house.carry_out(registration, arm, 2)
        assert (record.status, record.steps) == ("done", 4), said
        values[arm] = read_rows(own_house.run_folder(arm, 2) / "work" / "log.csv", registration.study.metrics)[-1]
    assert values["slow"] == Row(4, "val/loss", pytest.approx(3.0 - 0.4 + 0.5 + 0.002 + 0.1))
    assert values["fast"].value == pytest.approx(values["slow"].value - 0.4)


def test_a_script_that_imports_us_has_its_configuration_seed_and_metrics(own_house: OwnHouse) -> None:
    own_house.script(LOGS)
    registration = own_house.register()
    record, said = own_house.carry_out(registration, "fast", 3)
    assert (record.status, record.steps) == ("done", 4), said
    rows = read_rows(own_house.run_folder("fast", 3) / "work" / "metrics.jsonl")
    assert rows[-1] == Row(4, "val/loss", 1.6) and rows[0] == Row(1, "train/loss", pytest.approx(2.603))


def test_without_a_study_the_script_is_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    given = argparse.Namespace(lr=0.3)
    assert seed(7) == 7 and seed() == 0 and config(given) is given and config({"a": 1}) == {"a": 1}
    log(5, {"val/loss": 2.5})
    assert capsys.readouterr().out == "step 5  val/loss 2.5\n"


def test_a_configuration_that_the_arguments_do_not_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.json"
    monkeypatch.setenv("ABLATE_CONFIG", str(path))
    path.write_text(json.dumps({"optim": {"lr": 0.5}, "steps": 3}))
    assert vars(config(argparse.Namespace(lr=0.1, steps=1, seed=2))) == {"lr": 0.5, "steps": 3, "seed": 2}
    assert config({"optim": {"lr": 0.1, "clip": 1.0}}) == {"optim": {"lr": 0.5, "clip": 1.0}, "steps": 3}
    with pytest.raises(KeyError, match=r"optim\.lr, which sets the argument lr, which the script does not have"):
        config(argparse.Namespace(steps=1))
    path.write_text(json.dumps({"optim": {"lr": 0.5}, "head": {"lr": 1.0}}))
    with pytest.raises(KeyError, match=r"head\.lr, which sets the argument lr, as does optim\.lr"):
        config(argparse.Namespace(lr=0.1))


def test_a_resumed_script_drops_what_it_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1.0}\n{"step": 2, "a": 2.0}\n{"step": 3, "a": 3.0}\n{"step": 4, "a"')
    monkeypatch.setenv("ABLATE_METRICS", str(path))
    monkeypatch.setenv("ABLATE_ATTEMPT", "2")
    log(2, {"a": 2.5})
    log(3, {"a": 3.5})
    assert [(row.step, row.value) for row in read_rows(path)] == [(1, 1.0), (2, 2.5), (3, 3.5)]
    monkeypatch.setenv("ABLATE_METRICS", str(tmp_path / "log.csv"))
    with pytest.raises(ValueError, match=r"metrics\.jsonl"):
        log(4, {"a": 1.0})


MATCHES = """
import json, os, sys
from ablate import config, log, must_match, seed
given = config({"lr": 0.1, "steps": 4, "order": "shared"})
shared = f"{seed()} {given['order']}".encode()
must_match("data order", shared)
must_match("data order", shared)
if given["lr"] > 0.1:
    must_match("initial gate", b"of one arm alone")
for step in range(1, given["steps"] + 1):
    log(step, {"train/loss": 3.0 - step / 100, "val/loss": 2.0 - given["lr"] + seed() * given["lr"] / 1000})
"""


@pytest.mark.slow
@pytest.mark.parametrize("order", ["shared", "another"])
def test_runs_of_a_seed_give_a_verdict_only_if_they_match_in_what_they_state(own_house: OwnHouse, order: str) -> None:
    own_house.script(MATCHES)
    study = own_house.write(
        variants={"slow": {}, "fast": {"lr": 0.4, "order": order}}, base={"lr": 0.1, "steps": 4, "order": "shared"}
    )
    assert api.run(study, workspace=api.Workspace(console=PlainWatcher(StringIO()))).summary.complete
    found = api.decide(study)
    check = next(one for one in found.decision.checks if one.name == "pairs match in what their trainer says they must")
    assert check.passed == (order == "shared")
    assert check.found.startswith("3 hashes compared, 0 differ" if order == "shared" else "3 hashes compared, 3 differ")
    assert (found.decision.status == "inadmissible") == (order == "another")
    page = (own_house.path / "reports" / "own" / "report.md").read_text(encoding="utf-8")
    assert ("matched in what its trainer states" in page) == (order == "shared")
    assert "generator=for_data" not in page, "nothing is to be added to what states its hashes"


@pytest.mark.slow
def test_pairs_of_a_script_that_states_nothing_are_matched_by_its_word_alone(own_house: OwnHouse) -> None:
    own_house.script(
        "".join(
            line for line in MATCHES.splitlines(keepends=True) if "must_match(" not in line or "import" in line
        ).replace('if given["lr"] > 0.1:\n', "")
    )
    study = own_house.write(variants={"slow": {}, "fast": {"lr": 0.4}}, base={"lr": 0.1, "steps": 4, "order": "shared"})
    assert api.run(study, workspace=api.Workspace(console=PlainWatcher(StringIO()))).summary.complete
    api.decide(study)
    page = (own_house.path / "reports" / "own" / "report.md").read_text(encoding="utf-8")
    # Nothing was compared, so that nothing has failed.
    assert "Pairs matched by the trainer's word alone" in page and "Not matched" not in page
    assert "generator=for_data" in page


def test_what_is_stated_twice_must_be_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABLATE_RUN_DIR", raising=False)
    must_match("data order", b"without a study nothing is written")
    monkeypatch.setenv("ABLATE_RUN_DIR", str(tmp_path))
    must_match("data order", b"one")
    with pytest.raises(ValueError, match="another 'data order'"):
        must_match("data order", b"two")
    assert read_hashes(tmp_path / "must_match.json") == {"data order": hashlib.sha256(b"one").hexdigest()}


@pytest.mark.parametrize("text", ["[]", '{"a": 1}', '{"a": "short"}', '{"a": "1", "a": "2"}', "{"])
def test_a_run_whose_statement_is_no_object_of_hashes_fails(own_house: OwnHouse, text: str) -> None:
    own_house.script(MATCHES + f"open('must_match.json', 'w').write({text!r})\n")
    record, said = own_house.carry_out(own_house.register(), "slow", 1)
    assert record.status == "failed" and "must_match.json" in said
