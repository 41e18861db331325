"""`ablate confirm`: the best of a campaign against its start by the command, with the trainer of `propose`.

Each test starts a dozen processes or more: the fast ones are the whole course, and that nothing is shown too early.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import test_propose
from test_cli import ablate
from test_propose import KILLED, Project

from ablate.cli.options import Exit
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import ConfirmingEntry, Entry

reporting, project = test_propose.reporting, test_propose.project  # the fixtures


def confirm(project: Project, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code of the command, and what it answers in JSON."""
    code = ablate(project.monkeypatch, "confirm", project.campaign, "--jobs", "1", "--json", *words)
    out = project.capsys.readouterr().out
    return code, json.loads(out) if out else {}


def refused(project: Project, *words: str) -> str:
    """The message of a call that is refused and changes nothing."""
    before = project.files()
    assert ablate(project.monkeypatch, "confirm", project.campaign, *words) == Exit.MISTAKE
    assert project.files() == before
    return " ".join(project.capsys.readouterr().err.split())


def entries() -> tuple[Entry, ...]:
    return Ledger(Path("studies/ledger.jsonl")).entries()


def test_the_whole_stack_is_measured_on_new_seeds_next_to_the_sum_that_selection_made(project: Project) -> None:
    assert "has kept no change" in refused(project)
    proposals = [project.set("gain=0.3")[1], project.set("gain=0.2")[1], project.set("gain=0.5")[1]]
    # The two kept changes gained .3 and .2 over the best before each; the stack gains .5 over the start.
    code, answer = confirm(project)
    assert (code, answer["answer"], answer["number"]) == (Exit.OK, "confirmed", 1)
    total = answer["total_gain"]
    assert total["gain"] == pytest.approx(0.5, abs=1e-3)
    assert total["low"] < total["gain"] < total["high"]
    assert (total["level"], total["n_seeds"]) == (0.95, 5)
    kept = [each["decision"]["parts"][0]["improvement"] for each in proposals if each["answer"] == "keep"]
    assert (len(kept), answer["sum_of_kept"]) == (2, pytest.approx(sum(kept)))
    assert [each["end"] for each in answer["proposals"]] == ["keep", "drop", "keep"]
    assert (answer["start"]["settings"], answer["best"]["settings"]) == ({}, {"gain": 0.5})
    seeds = [seed for each in (*proposals, answer) for seed in each["seeds"]]
    assert len(set(seeds)) == len(seeds) == 20
    # On record before its first run, and the budget of the search is what it was.
    events = [(entry.event, entry.study) for entry in entries()]
    assert events.index(("confirming", "night")) < events.index(("started", "night-confirm1"))
    assert project.propose()[1]["runs_left"] == proposals[-1]["runs_left"]
    assert project.verify() == Exit.OK
    # The same command answers again; another number of seeds would be another confirmation.
    before = project.files()
    assert confirm(project)[1] == answer
    assert project.files() == before
    assert "confirmation 1 has 5 seeds" in refused(project, "--seeds", "6")
    study = "studies/night-confirm1.yaml"
    assert ablate(project.monkeypatch, "amend", study, "--reason", "x", "--yes") == Exit.MISTAKE


@pytest.mark.slow
def test_a_second_confirmation_of_a_best_needs_a_reason_and_is_counted(project: Project) -> None:
    project.set("gain=0.3")
    first = confirm(project, "--seeds", "3")[1]
    assert "--again without a reason" in refused(project, "--again", " ")
    code, second = confirm(project, "--seeds", "3", "--again", "another machine")
    assert (code, second["number"], second["same_best"], second["again"]) == (Exit.OK, 2, [1, 2], "another machine")
    assert not set(first["seeds"]) & set(second["seeds"])
    # Another keep makes another best, which nobody has confirmed.
    project.set("gain=0.6")
    assert "was not confirmed before" in refused(project, "--again", "x")
    code, third = confirm(project, "--seeds", "3")
    assert (code, third["same_best"], third["total_gain"]["gain"]) == (Exit.OK, [3], pytest.approx(0.6, abs=1e-3))
    assert project.verify() == Exit.OK


@pytest.mark.slow
def test_a_stack_that_is_worse_together_is_not_confirmed(project: Project) -> None:
    """Two halves of a guardrail's margin: each change passes it, and both together break it."""
    project.set("gain=0.3", "speed=0.94")
    _, kept = project.set("gain=0.6", "speed=0.88")
    assert kept["kept"] == 2
    code, answer = confirm(project)
    assert (code, answer["answer"]) == (Exit.WORSE, "not confirmed")
    assert answer["total_gain"]["gain"] == pytest.approx(0.6, abs=1e-3)


def test_nothing_is_shown_of_a_confirmation_before_all_its_runs_and_a_proposal_ends_first(project: Project) -> None:
    project.set("gain=0.3")
    stop = project.path.parent / "stop"
    stop.touch()
    project.set("gain=0.4")
    assert "proposal 2 of 'night' has not ended" in refused(project)
    project.propose("--give-up", "no memory")
    code, answer = confirm(project, "--seeds", "3")
    assert (code, answer["answer"], answer["total_gain"], answer["decision"]) == (
        Exit.INCOMPLETE,
        "unfinished",
        None,
        None,
    )
    stop.unlink()
    # The same command goes on with it, on the same seeds; that runs had failed and were made again is a deviation.
    code, done = confirm(project)
    assert (code, done["answer"], done["number"]) == (Exit.DEVIATIONS, "confirmed", 1)
    assert done["seeds"] == answer["seeds"]


def test_a_confirmation_that_is_inadmissible_shows_no_total_gain(project: Project) -> None:
    """One of five pairs is lost, and what it would have shown could change the answer."""
    project.set("gain=0.3")
    (project.path.parent / "stop.nan").write_text("0.3", encoding="utf-8")
    code, answer = confirm(project)
    assert (code, answer["answer"]) == (Exit.INADMISSIBLE, "inadmissible")
    assert answer["total_gain"] is None and answer["decision"]["findings"] == []
    assert ablate(project.monkeypatch, "confirm", project.campaign) == Exit.INADMISSIBLE
    shown = " ".join(project.capsys.readouterr().out.split())
    assert "lost pairs" in shown and "Total gain" not in shown and "Sum of kept" not in shown
    assert "0.300" not in shown.partition("Proposals")[0]


@pytest.mark.slow
def test_the_default_number_of_seeds_shows_the_smallest_gain_by_the_assumed_noise(project: Project) -> None:
    # Differences of SD .05, a smallest gain of .05: one SD, which a two-sided t test at .05 shows with power 80% at
    # ten pairs (scipy: power .803 at 10, .747 at 9).
    project.write(assume={"metrics": {"val/loss": {"sd": 0.05, "correlation": 0.5}}})
    project.set("gain=0.3")
    assert len(confirm(project)[1]["seeds"]) == 10


def rewritten(changed: Any) -> None:
    """The ledger written anew with entries that `changed` gives, whose chain holds."""
    before = entries()
    Path("studies/ledger.jsonl").unlink()
    fresh = Ledger(Path("studies/ledger.jsonl"))
    for entry in before:
        if (new := changed(entry)) is not None:
            fresh.append(new.model_copy(update={"index": -1, "sha256": "", "previous": ""}))


@pytest.mark.slow
def test_another_campaign_of_the_trainer_and_how_it_ended_is_named_wherever_results_are(reporting: Project) -> None:
    project = reporting
    project.set("gain=0.3")
    confirm(project, "--seeds", "3")
    project.campaign = Path("campaigns/evening.yaml")
    project.write(campaign="evening", metric="speed", better="higher", guardrails=[], smallest=0.0)
    night = "'night' (1 proposal, 1 kept, confirmation: confirmed; the same start, another metric)"
    said = f"1 of the same trainer, start or metric: {night}"

    def shown(*words: object) -> str:
        ablate(project.monkeypatch, *words)
        return " ".join(project.capsys.readouterr().out.split())

    assert said in shown("register", project.campaign)
    assert said in shown("propose", project.campaign, "--set", "speed=2.0", "--why", "x", "--jobs", "1")
    for verb in ("propose", "check", "confirm"):
        assert said in shown(verb, project.campaign), verb
    assert f"leaves out 1 other campaign of the same trainer, start or metric: {night}" in shown(
        "verify", project.campaign
    )
    shown("report", project.campaign)
    for form in ("md", "html"):
        page = (project.path / "reports" / "evening" / f"campaign.{form}").read_text(encoding="utf-8")
        assert "confirmation: confirmed; the same start, another metric" in " ".join(page.split())


@pytest.mark.slow
def test_a_confirmation_that_is_left_out_is_found(project: Project) -> None:
    """The first of two, whose outcome did not please."""
    project.set("gain=0.3")
    confirm(project, "--seeds", "3")
    confirm(project, "--seeds", "3", "--again", "bad luck")
    rewritten(lambda entry: None if isinstance(entry, ConfirmingEntry) and entry.number == 1 else entry)
    assert project.verify() == Exit.INADMISSIBLE


@pytest.mark.slow
def test_a_study_of_a_confirmation_that_does_not_follow_from_the_campaign_is_found(project: Project) -> None:
    """Registered by hand with a laxer guardrail, before `ablate confirm` could do it."""
    project.set("gain=0.3", "speed=0.95")
    words = [*map(str, (sys.executable, KILLED, "registered", 1, "before")), "confirm", str(project.campaign)]
    assert subprocess.run(words, cwd=project.path, capture_output=True, check=False).returncode == -signal.SIGKILL
    study = project.path / "studies" / "night-confirm1.yaml"
    study.write_text(study.read_text(encoding="utf-8").replace("smallest: 0.1", "smallest: 0.9"), encoding="utf-8")
    assert ablate(project.monkeypatch, "register", study) == Exit.OK
    assert project.verify() == Exit.INADMISSIBLE


# (event, which of them, when). The study of proposal 1 has 6 sealed runs before those of the confirmation.
KILLS = [
    ("confirming", 1, "before"),
    ("confirming", 1, "torn"),
    ("confirming", 1, "after"),
    ("registered", 1, "before"),
    ("registered", 1, "after"),
    ("sealed", 3, "after"),
    ("decided", 1, "before"),
    ("decided", 1, "after"),
    ("reported", 1, "before"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("event", "number", "when"), KILLS)
def test_a_confirmation_that_is_killed_ends_as_one_that_is_not(
    reporting: Project, event: str, number: int, when: str
) -> None:
    project = reporting
    project.set("gain=0.3")
    words = [*map(str, (sys.executable, KILLED, event, number, when)), "confirm", str(project.campaign)]
    ended = subprocess.run([*words, "--jobs", "1"], cwd=project.path, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = entries()
    code, answer = confirm(project)
    assert (code, answer["answer"], answer["number"], answer["total_gain"]["n_seeds"]) == (Exit.OK, "confirmed", 1, 5)
    assert entries()[: len(left)] == left
    counts = Counter(entry.event for entry in entries() if entry.study == "night-confirm1")
    assert [counts[each] for each in ("registered", "sealed", "decided")] == [1, 10, 1]
    assert Counter(entry.event for entry in entries())["confirming"] == 1
    assert project.verify() == Exit.OK


@pytest.mark.slow
def test_a_bundle_of_the_campaign_holds_its_confirmation_and_is_judged_again(reporting: Project) -> None:
    project = reporting
    project.set("gain=0.3")
    confirm(project, "--seeds", "3")
    assert ablate(project.monkeypatch, "bundle", project.campaign, "--out", "night.zip") == Exit.OK
    project.capsys.readouterr()
    assert ablate(project.monkeypatch, "verify", "night.zip") == Exit.OK
    shown = " ".join(project.capsys.readouterr().out.split())
    assert "studies of confirmations" in shown
    assert "verdict judged again" in shown
