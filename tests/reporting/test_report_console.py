"""What the terminal says: the verdict in five seconds at 80 columns, plain where it is not a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from report_samples import ENDINGS, Ending, told
from rich.console import Console
from snapshot import assert_snapshot

from ablate.judge.design.characteristics import Design
from ablate.judge.design.characteristics import simulate_design as design_study
from ablate.reporting.blocks import Section
from ablate.reporting.document import decision_document
from ablate.reporting.sections.design import text_chart
from ablate.reporting.summaries.run import corpora_section, status_section
from ablate.reporting.summaries.study import design_section, study_section
from ablate.reporting.summaries.verification import next_step, verification_sections
from ablate.reporting.terminal import show, show_document
from ablate.study_status import RunHealth, StudyHealth
from ablate.verification.result import StudySummary, Verification
from prereg.study.spec import Study, study_from_document
from prereg.verification import Item, item, not_checked


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
    show_document(console, decision_document(whole.decision, whole.registration))
    return read(stream)


def test_a_stream_that_is_no_terminal_gets_no_colour_and_no_box() -> None:
    assert "\x1b" not in printed("decided") and "┏" not in printed("decided")
    assert "\x1b" in printed("decided", terminal=True) and "┏" in printed("decided", terminal=True)


def test_a_stream_without_unicode_gets_ascii() -> None:
    assert "-0.0489 [-0.0578, -0.0400]" in printed("decided", encoding="ascii")


def test_square_brackets_of_a_title_are_not_markup() -> None:
    console, stream = written()
    decision = told().decision.model_copy(update={"title": "[bold]x[/bold] [/]"})
    show_document(console, decision_document(decision, told().registration))
    assert "[bold]x[/bold] [/]" in read(stream)


def design() -> Design:
    return design_study(told().study, n_sims=50)


def test_a_design_shows_power_and_the_chance_of_every_verdict() -> None:
    console, stream = written()
    found = design()
    show(console, design_section(found))
    text = read(stream)
    assert "5 seeds, 15 runs" in text and "any outcome" in text
    for scenario in found.scenarios:
        assert scenario.name[:30].rsplit(" ", 1)[0] in " ".join(text.split())  # the rest may be on the next line
    for needed in ("adopt layernorm ", "False-positive rate of the whole rule", "Seeds for power 80% and 90%", "%"):
        assert needed in text
    assert "[5]" in text and "least power of what must be supported" in text
    assert all(len(line) <= 80 for line in text_chart(found))


def test_a_design_without_divergence_says_nothing_of_diverging_runs() -> None:
    study = told().study
    console, stream = written()
    sure = study.model_copy(update={"assume": study.assume.model_copy(update={"divergence": 0.0})})
    show(console, design_section(design_study(sure, n_sims=50)))
    text = " ".join(read(stream).split())
    assert "if differences are skewed" in text and "one run in ten diverges" not in text


def test_a_hopeless_design_names_the_verdict_and_the_remedy() -> None:
    console, stream = written()
    hopeless = design().model_copy(update={"unreachable": ("adopt layernorm",), "remedy": "seven seeds"})
    show(console, design_section(hopeless))
    text = read(stream)
    assert "No data can lead to the verdict 'adopt layernorm'." in text and "Remedy: seven seeds" in text


def own_study() -> Study:
    return study_from_document(
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


def health() -> StudyHealth:
    runs = (
        RunHealth(variant="none", seed=1, state="done", step=300, steps=300, attempts=1),
        RunHealth(variant="none", seed=2, state="running", step=120, steps=300, falling=False, attempts=1),
        RunHealth(variant="layernorm", seed=1, state="failed", step=10, steps=300, attempts=2, error="out of disk"),
    )
    return StudyHealth(
        study="embnorm", title="T", registered="a" * 64, unchanged=False, active=True, decided=None, runs=runs
    )


def verified(*items: Item, details: bool = False) -> list[Section]:
    """What `verify` prints of a decided study, beside one item that is as it was frozen."""
    return verification_sections(verification(*items), details=details)


def verification(*items: Item) -> Verification:
    decided = told()
    summary = StudySummary(
        study="embnorm",
        title=decided.registration.study.title,
        registered="a" * 64,
        registered_at="2026-07-01T09:00:00+00:00",
        first_run_at="2026-07-01T09:05:00+00:00",
        decided_at="2026-07-02T17:30:00+00:00",
        n_runs=10,
        decision=decided.decision,
        registration=decided.registration,
    )
    lock = item("embnorm", "study and lock", note="as registered")
    return Verification(items=(lock, *items), head="f" * 64, studies=(summary,), target="studies/embnorm.yaml")


CORPUS = not_checked("embnorm", "corpus", "'toy' is not here", fix="ablate corpus add toy FILE")
CHANGED = item("embnorm", "sealed records", "layernorm/2: metrics.parquet is not the file that was sealed")
DIFFERS = Item(study="embnorm", what="verdict, judged again", judged_differently=("gain.p: .0312, .0311",))


SECTIONS: dict[str, Callable[[], list[Section]]] = {
    "check": lambda: [study_section(told().study)],
    "check-command": lambda: [study_section(own_study())],
    "status": lambda: [status_section(health())],
    "verify": verified,
    "verify-unchecked": lambda: verified(CORPUS),
    "verify-changed": lambda: verified(CORPUS, CHANGED),
    "verify-differently": lambda: verified(DIFFERS),
    "verify-all": lambda: verified(CORPUS, CHANGED, DIFFERS, details=True),
    "corpus-list": lambda: [corpora_section([("toy", 1_115_394, "b" * 64, "generated", "CC0")])],
}


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_is_printed_as_reviewed_in_80_columns(name: str) -> None:
    console, stream = written()
    for part in SECTIONS[name]():
        show(console, part)
    assert_snapshot(f"{name}.txt", read(stream))
    assert max(len(line.rstrip()) for line in read(stream).splitlines()) <= 80


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_decision_is_printed_as_reviewed_in_80_columns(ending: Ending) -> None:
    text = printed(ending)
    assert_snapshot(f"decide-{ending}.txt", text)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert ("supported" in text) == (ending != "incomplete")  # nothing separates the arms while runs are missing


@pytest.mark.parametrize("state", ["verify", "verify-unchecked", "verify-changed", "verify-differently"])
def test_nothing_is_called_fine_beside_what_was_not_checked(state: str) -> None:
    console, stream = written()
    for part in SECTIONS[state]():
        show(console, part)
    text = " ".join(read(stream).split())
    assert ("all of that is as it was frozen." in text) == (state == "verify")
    assert ("CHANGED" in text) == (state == "verify-changed")
    assert ("1 item not checked" in text) == (state in ("verify-unchecked", "verify-changed"))
    assert ("To check: ablate corpus add toy FILE" in text) == ("1 item not checked" in text)
    assert ("judges the same evidence differently" in text) == (state == "verify-differently")


def test_what_to_type_after_a_check_mends_what_it_found() -> None:
    study = "studies/embnorm.yaml"
    assert next_step(verification()) == f"ablate bundle {study}   (one file for others to check)"
    assert next_step(verification(CORPUS)) == "ablate corpus add toy FILE"
    mended = f"restore it from version control or a backup; then ablate verify {study}"
    assert next_step(verification(CORPUS, CHANGED)) == mended
    assert next_step(verification(DIFFERS)) == f"ablate decide {study}   (judges by this version, and logs it)"
