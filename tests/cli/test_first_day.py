"""The mistakes of a first day: each is found before any training, in a message that says what to type next."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from snapshot import assert_snapshot
from test_cli import ablate
from typer.testing import CliRunner
from wheel_check import build, call, check_installed, linked

import ablate as api
from ablate.cli import app

CURES: dict[str, tuple[tuple[str, str], ...]] = {
    "a tab": (("  slow: {}", "\tslow: {}"),),
    "a colon in a text": (("title: Does", "title: Question: does"),),
    "an open quote": (("title: Does", "title: 'Does"),),
    "an open bracket": (("seeds: [1, 2, 3, 4, 5]", "seeds: [1, 2, 3, 4, 5"),),
    "a line indented too far": (("  slow: {}", "      slow: {}"),),
    "a field below a value": (("baseline: slow", "baseline: slow\n  variants: {}"),),
    "a field twice": (("baseline: slow", "baseline: slow\nbaseline: fast"),),
    "an unknown field": (("baseline: slow", "base_line: slow"),),
    "an unknown setting of an arm": (("optim.lr: 3.0e-3", "optim.lrr: 3.0e-3"),),
    "a word for a number": (("layers: 2", "layers: two"),),
    "an unknown corpus": (("corpus: toy", "corpus: toys"),),
    "one seed": (("seeds: [1, 2, 3, 4, 5]", "seeds: [1]"),),
    "a seed twice": (("seeds: [1, 2, 3, 4, 5]", "seeds: [1, 2, 3, 4, 4]"),),
    "an arm that is not there": (("claim: fast lowers", "claim: fats lowers"),),
    "a metric that is not there": (("lowers val/loss by", "lowers val/los by"),),
    "no smallest difference": (("    smallest: 0.01 ", "    # smallest: 0.01 "),),
    "an unknown hypothesis": (("supported(faster_learning) and", "supported(faster) and"),),
    "no last line": (("  - {verdict: inconclusive}\n", ""),),
    "a line that no case reaches": (
        ("  - {verdict: inconclusive}", "  - {verdict: inconclusive}\n  - {verdict: other}"),
    ),
    "a baseline that is no arm": (("baseline: slow", "baseline: slowest"),),
    "a name that is not the file's": (("study: mine", "study: yours"),),
    "an override without its path": (("optim.lr: 3.0e-3", "lr: 3.0e-3"),),
    "seeds as a text": (("seeds: [1, 2, 3, 4, 5]", 'seeds: "1, 2, 3"'),),
    "a number of seeds": (("seeds: [1, 2, 3, 4, 5]", "seeds: 5"),),
    "a margin with a unit": (("smallest: 0.01 ", "smallest: 0.01 nats "),),
    "a claim with a unit": (("by at least 0.05\n", "by at least 0.05 nats\n"),),
    "a verb that says no direction": (("fast lowers val/loss by at least 0.05", "fast improves val/loss by 0.05"),),
    "a margin without 'at least'": (("fast lowers val/loss by at least 0.05", "fast lowers val/loss by 0.05"),),
    "a margin without 'at'": (("fast lowers val/loss by at least 0.05", "fast lowers val/loss by least 0.05"),),
    "a percentage with a blank": (("by at least 0.05\n", "by at least 5 %\n"),),
    "the other arm before the margin": (
        ("lowers val/loss by at least 0.05", "lowers val/loss than slow by at least 0.05"),
    ),
    "a verb in three words": (("fast does_not_worsen", "fast does not worsen"),),
    "a claim that is a list": (("claim: fast lowers val/loss by at least 0.05", "claim: [fast, lowers, val/loss]"),),
    "a command without its trainer": (
        ("baseline: slow", "command: [train.py]\nmetrics: {step_name: epoch}\nbaseline: slow"),
    ),
    "a field of another block": (("baseline: slow", "baseline: slow\nalpha: 0.01"),),
    "another verb": (("claim: fast lowers", "claim: fast reduces"),),
    "the same hypothesis twice": (("\n  no_harm: ", "\n  faster_learning: "),),
    "an unknown question": (("and stable(fast)", "and better(fast)"),),
    "variants that are the same": (("optim.lr: 3.0e-3", "optim.lr: 1.0e-3"),),
    "a width that heads do not divide": (("width: 64", "width: 65"),),
    "five mistakes": (
        ("title:", "titel:"),
        ("layers: 2", "layers: two"),
        ("warmup: 10", "warm_up: 10"),
        ("role: guardrail", "role: guard"),
        ("    smallest: 0.01 ", "    # smallest: 0.01 "),
    ),
    "a claim turned round": (("fast lowers val/loss", "fast raises val/loss"),),
}


def test_each_mistake_is_found_by_check_and_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    study = api.new("mine").study
    text, said = study.read_text(), []
    for what, changes in CURES.items():
        wrong = text
        for old, new in changes:
            assert wrong.count(old) == 1, (what, old)
            wrong = wrong.replace(old, new)
        study.write_text(wrong)
        code = ablate(monkeypatch, "check", "studies/mine.yaml")
        out, err = capsys.readouterr()
        if what == "a claim turned round":
            out = out[out.index("Warning: 'adopt") :]
        assert (code, bool(err)) == ((0, False) if what == "a claim turned round" else (2, True)), (what, out, err)
        mistakes = {"five mistakes": 5, "a claim turned round": 0}.get(what, 1)
        assert err.count("error:") == mistakes, (what, err)
        said.append(f"# {what}\n{err or out}")
    assert_snapshot("first-day.txt", "\n".join(said))


def test_help_names_no_file_that_an_installation_lacks() -> None:
    first = CliRunner().invoke(app, ["--help"]).output
    named = re.findall(r"[\w./-]+\.(?:yaml|py|csv)", first)
    assert named and {Path(one).stem for one in named} <= set(re.findall(r"ablate new (\w+)", first))


FAILING: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("check", "design", "try", "register", "run", "status", "decide", "report", "bundle"), ()),
    **dict.fromkeys(("plan", "seal"), ()),
    "amend": ("--reason", "x"),
    "reproduce": ("--run", "fast/1"),
    "export-model": ("fast/1", "out"),
    "import": ("table.csv", "--note", "x"),
}


def test_after_a_failure_no_command_says_to_type_itself_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    study = api.new("mine").study
    study.write_text(study.read_text().replace("layers: 2", "layrs: 2"))
    for verb, more in FAILING.items():
        assert ablate(monkeypatch, verb, "studies/mine.yaml", *more) == 2, verb
        out, err = capsys.readouterr()
        assert "did you mean 'layers'?" in err, (verb, err)
        assert not re.search(rf"(next:|try:)\s+ablate {verb}\b", out + err), (verb, out, err)


def test_a_metrics_file_that_nothing_names_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = api.new("mine", "command")
    made.study.write_text(made.study.read_text().replace("\nmetrics:\n", "\nmetrics:\n  file: log.csv\n"))
    for script, noted in (("print('trained')\n", True), ("open('log.csv', 'w')\n", False)):
        made.files[1].write_text(script)
        assert ablate(monkeypatch, "check", "studies/mine.yaml") == 0
        assert ("metrics are read from 'log.csv'" in capsys.readouterr().out) == noted


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `ablate` of an environment with the wheel, what it and the extra `gpt` need, and nothing of this checkout."""
    built = build(tmp_path_factory.mktemp("source"))
    return linked(tmp_path_factory.mktemp("environment"), built, "gpt")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_day_with_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """From an empty folder to a report, with two mistakes on the way; the tool's own time is that of all but `run`."""
    spent: dict[str, float] = {}

    def type_in(*words: str, code: int = 0) -> str:
        start = time.monotonic()
        said = call(wheel, tmp_path, *words, code=code)
        spent[" ".join(words)] = time.monotonic() - start
        return said

    check_installed(wheel)
    assert "ablate new first" in type_in("run", "first", code=2)
    assert "next:  ablate check studies/first.yaml" in type_in("new", "first")
    study = tmp_path / "studies" / "first.yaml"
    text = study.read_text()
    assert "steps: 120" in text
    text = text.replace("steps: 120", "steps: 40")  # the verdict is the same, and training takes a third of the time
    study.write_text(text.replace("optim.lr: 3.0e-3", "optim.rl: 3.0e-3"))
    assert "did you mean 'optim.lr'?" in type_in("check", "studies/first.yaml", code=2)
    study.write_text(text.replace("seeds: [1, 2, 3, 4, 5]", "seeds: [1, 2]"))
    type_in("check", "studies/first.yaml")
    assert "seeds" in type_in("register", "studies/first.yaml", code=2)
    assert not (tmp_path / "studies" / "ledger.jsonl").exists()
    study.write_text(text)
    for words in (("check",), ("design",), ("try",), ("register",), ("run",)):
        type_in(*words, "studies/first.yaml")
    assert "fast improves validation loss by" in type_in("decide", "studies/first.yaml")
    type_in("verify")
    assert "adopt the higher rate" in (tmp_path / "reports" / "first" / "report.html").read_text()
    total = sum(seconds for words, seconds in spent.items() if not words.startswith("run studies"))
    print(f"seconds without training: {total:.1f}", {words: round(s, 1) for words, s in spent.items()})
