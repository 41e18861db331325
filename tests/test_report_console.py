"""What the terminal says: the verdict in five seconds at 80 columns, plain where it is not a terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from report_samples import ENDINGS, Ending, told
from rich.console import Console

from ablate.api.status import RunHealth, StudyHealth
from ablate.judge.design.characteristics import Design
from ablate.judge.design.characteristics import design as design_study
from ablate.reporting.decision_summary import decision_document
from ablate.reporting.plan_summary import design_section
from ablate.reporting.proof_summary import verification_section
from ablate.reporting.run_summary import corpora_section, status_section
from ablate.reporting.sections.design import text_chart
from ablate.reporting.study_summary import study_section
from ablate.reporting.terminal import show, show_document
from ablate.reporting.text import shown_truth
from ablate.verification.result import Item, Verification
from prereg.study.spec import study_from_document

PATH = Path("reports/embnorm/report.html")


def written(*, terminal: bool = False, encoding: str = "utf-8") -> tuple[Console, io.TextIOWrapper]:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    return Console(
        file=stream,
        width=80,
        force_terminal=terminal,
        color_system="truecolor" if terminal else None,
        legacy_windows=False,
    ), stream


def read(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def printed(ending: Ending, *, terminal: bool = False, encoding: str = "utf-8") -> str:
    console, stream = written(terminal=terminal, encoding=encoding)
    whole = told(ending, spiky=ending == "inadmissible")
    show_document(console, decision_document(whole.decision, report_path=PATH, ledger_head=whole.ledger_head))
    return read(stream)


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_verdict_comes_first_and_the_head_last(ending: Ending) -> None:
    lines = printed(ending).splitlines()
    assert lines[0].startswith(
        {
            "decided": "DECIDED: adopt layernorm",
            "inconclusive": "NOT DECIDED: inconclusive",
            "inadmissible": "INADMISSIBLE: No verdict",
            "incomplete": "INADMISSIBLE: No verdict",
        }[ending]
    )
    assert lines[-1] == f"Ledger head: {told(ending).ledger_head}"
    assert lines[-2] == f"Report: {PATH}"


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_line_but_a_hash_is_wider_than_80_columns(ending: Ending) -> None:
    for line in printed(ending).splitlines():
        assert len(line.rstrip()) <= 80 or line.startswith("Ledger head"), line


def test_every_hypothesis_has_a_line_with_outcome_difference_interval_p_and_n() -> None:
    text = printed("decided")
    line = next(line for line in text.splitlines() if "layernorm lowers val/loss" in line)
    assert line.split() == [
        "supported",
        "layernorm",
        "lowers",
        "val/loss",
        "−0.0489",
        "[−0.0578,",
        "−0.0400]",
        "<",
        ".0001",
        "5",
    ]
    assert "refuted" in text and ".0003" in text
    assert "Difference [interval]" in text


def test_a_stream_that_is_no_terminal_gets_no_colour_and_no_box() -> None:
    assert "\x1b" not in printed("decided") and "┏" not in printed("decided")
    assert "\x1b" in printed("decided", terminal=True) and "┏" in printed("decided", terminal=True)


def test_a_stream_without_unicode_gets_ascii() -> None:
    assert "-0.0489 [-0.0578, -0.0400]" in printed("decided", encoding="ascii")


def test_inadmissible_findings_are_marked_and_missing_runs_show_none() -> None:
    marked = printed("inadmissible")
    assert "not to be used" in marked and "Unstable by the registered rule: 'none'" in marked
    incomplete = printed("incomplete")
    assert "missing: layernorm seed 5" in " ".join(incomplete.split()) and "No contrast is shown" in incomplete
    assert "supported" not in incomplete and "−0." not in incomplete


def test_no_report_is_said_so() -> None:
    console, stream = written()
    show_document(console, decision_document(told("incomplete").decision, report_path=None, ledger_head="f" * 64))
    assert "No report was written." in read(stream)


def test_square_brackets_of_a_title_are_not_markup() -> None:
    console, stream = written()
    decision = told().decision.model_copy(update={"title": "[bold]x[/bold] [/]"})
    show_document(console, decision_document(decision, report_path=PATH, ledger_head="f" * 64))
    assert "[bold]x[/bold] [/]" in read(stream)


def test_a_check_shows_arms_claims_and_the_rule() -> None:
    console, stream = written()
    show(console, study_section(told().study))
    text = read(stream)
    for needed in (
        "3 arms x 5 seeds (1 to 5) = 15 runs",
        'model.embedding_norm = "layernorm"',
        "0.02 nats/token",
        "guardrail",
        "otherwise",
        "6 of 54",
    ):
        assert needed in text


def test_a_command_is_shown_before_anything_runs() -> None:
    study = study_from_document(
        {
            "study": "own",
            "title": "Own",
            "trainer": "command",
            "command": ["python", "train.py", "--seed={seed}"],
            "base": {"lr": 0.1},
            "baseline": "a",
            "variants": {"a": {}, "b": {"lr": 0.2}},
            "seeds": [1, 2, 3],
            "hypotheses": {"gain": {"claim": "b lowers val/loss", "smallest": 0.1}},
            "decision": [{"verdict": "adopt b", "when": "supported(gain)"}, {"verdict": "keep a"}],
        }
    )
    console, stream = written()
    show(console, study_section(study))
    assert "without a shell: python train.py --seed={seed}" in read(stream)


def design() -> Design:
    return design_study(told().study, n_sims=50)


def test_a_design_shows_power_and_the_chance_of_every_verdict() -> None:
    console, stream = written()
    found = design()
    show(console, design_section(found))
    text = read(stream)
    assert "5 seeds, 15 runs" in text and "any outcome" in text
    for scenario in found.scenarios:
        assert shown_truth(scenario.name)[:30].rsplit(" ", 1)[0] in " ".join(
            text.split()
        )  # the rest may be on the next line
    for needed in ("adopt layernorm ", "False-positive rate of the whole rule", "Seeds for power 80% and 90%", "%"):
        assert needed in text
    assert "[5]" in text and "least power of what must be supported" in text
    assert all(len(line) <= 80 for line in text_chart(found))


def test_a_hopeless_design_names_the_verdict_and_the_remedy() -> None:
    console, stream = written()
    hopeless = design().model_copy(update={"unreachable": ("adopt layernorm",), "remedy": "seven seeds"})
    show(console, design_section(hopeless))
    text = read(stream)
    assert "No data can lead to the verdict 'adopt layernorm'." in text and "Remedy: seven seeds" in text


def test_status_tells_health_and_names_failed_runs() -> None:
    console, stream = written()
    runs = (
        RunHealth(variant="none", seed=1, state="done", step=300, steps=300, attempts=1),
        RunHealth(variant="none", seed=2, state="running", step=120, steps=300, falling=False, attempts=1),
        RunHealth(variant="layernorm", seed=1, state="failed", step=10, steps=300, attempts=2, error="out of disk"),
    )
    health = StudyHealth(
        study="embnorm", title="T", registered="a" * 64, unchanged=False, active=True, decided=None, runs=runs
    )
    show(console, status_section(health))
    text = read(stream)
    for needed in (
        "3 runs: 1 done, 1 running, 1 failed. A process is at work.",
        "has changed since",
        "120 of 300",
        "NOT FALLING",
        "layernorm, seed 1: out of disk",
    ):
        assert needed in text


def test_verification_names_what_has_changed() -> None:
    console, stream = written()
    items = (
        Item(study="a", what="lock", faults=(), note="1 file"),
        Item(study="a", what="records", faults=("seal broken",)),
    )
    show(console, verification_section(Verification(items=items, head="f" * 64)))
    text = read(stream)
    assert "ok       a: lock     1 file" in text and "CHANGED  a: records  1 fault" in text
    assert "- a: records: seal broken" in text
    assert "1 fault found" in text and "f" * 64 in text


def test_verification_of_sound_files_says_so() -> None:
    console, stream = written()
    found = Verification(items=(Item(study="a", what="lock", faults=()),), head="f" * 64)
    show(console, verification_section(found))
    assert "All hashes that could be checked match." in read(stream)


def test_corpora_are_listed_with_size_and_place() -> None:
    console, stream = written()
    show(console, corpora_section([("toy", 1_115_394, "b" * 64, "generated", "CC0")]))
    text = read(stream)
    assert "1,115,394" in text and "b" * 12 in text and "generated" in text
