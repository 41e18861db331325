"""`ablate confirm --remove`: kept changes tried for removal by the command, with the trainer of `propose`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
import test_propose
from test_cli import ablate
from test_confirm import entries, rewritten
from test_propose import KILLED, TRAINER, Project, document

from ablate.cli.options import Exit
from prereg.registry.ledger_entry import EndedEntry, Entry, RemovingEntry

reporting, project = test_propose.reporting, test_propose.project  # the fixtures

# A third value, `decor`, gains nothing once `gain` is .6: its change was kept when it did.
MORE = (
    TRAINER.replace(
        "gain, speed = float(sys.argv[1]), float(sys.argv[2])",
        "gain, speed, decor = float(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])",
    )
    .replace('{seed} {gain} {speed}"', '{seed} {gain} {speed} {decor}"')
    .replace("3.0 - gain + noise", "3.0 - gain - (0.2 * decor if gain < 0.6 else 0.0) + noise")
)


def decorated(project: Project, text: str = MORE, **changes: Any) -> None:
    """A campaign that keeps `decor`, and then a `gain` that makes it useless; `smallest` is .05."""
    script = project.path / "train.py"
    script.write_text(text.replace("../stop", str(project.path.parent / "stop")), encoding="utf-8")
    start = document()["start"]
    start |= {"command": [*start["command"], "{decor}"], "base": {"gain": 0.0, "speed": 1.0, "decor": 0.0}}
    project.write(start=start, **changes)
    assert project.set("decor=1.0")[1]["answer"] == "keep"
    assert project.set("gain=0.6")[1]["answer"] == "keep"


def remove(project: Project, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code of the command, and what it answers in JSON."""
    code = ablate(project.monkeypatch, "confirm", project.campaign, "--remove", "--jobs", "1", "--json", *words)
    out = project.capsys.readouterr().out
    return code, json.loads(out) if out else {}


def refused(project: Project, *words: str) -> str:
    """The message of a call that is refused and changes nothing."""
    before = project.files()
    assert ablate(project.monkeypatch, "confirm", project.campaign, "--remove", *words) == Exit.MISTAKE
    assert project.files() == before
    return " ".join(project.capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_change_that_gains_nothing_in_the_stack_is_taken_out_and_the_next_is_tried_without_it(
    project: Project,
) -> None:
    decorated(project)
    before = project.files()
    code = ablate(project.monkeypatch, "confirm", project.campaign, "--remove", "--dry-run", "--seeds", "3", "--json")
    plan = json.loads(project.capsys.readouterr().out)
    assert (code, plan["order"], plan["seeds"], plan["most_runs"]) == (Exit.OK, [1, 2], 3, 3 * 2 * 3)
    assert project.files() == before
    code, answer = remove(project, "--seeds", "3")
    assert (code, answer["answer"], answer["removed"], answer["margin"]) == (Exit.OK, "reduced", [1], 0.05)
    first, second = answer["removals"]
    # The smallest estimated gain first, at half of .05; what was taken out passes its level on.
    assert [(each["proposal"], each["outcome"], each["level"]) for each in (first, second)] == [
        (1, "within_margin", pytest.approx(0.025)),
        (2, "not_shown", pytest.approx(0.05)),
    ]
    assert first["gain"]["high"] < 0.05 and first["gain"]["level"] == pytest.approx(0.95)
    assert second["gain"]["gain"] == pytest.approx(0.6, abs=1e-3) and second["gain"]["level"] == pytest.approx(0.9)
    assert second["gain"]["low"] < second["gain"]["gain"] < second["gain"]["high"]
    # Last, the best against what is left.
    together = answer["together"]
    assert (together["proposal"], together["outcome"]) == (None, "within_margin")
    assert abs(together["gain"]["gain"]) < 1e-3 and together["gain"]["level"] == pytest.approx(0.95)
    assert answer["left"]["settings"] == {"gain": 0.6}
    assert answer["diff"] == [{"path": "decor", "best": 1.0, "left": 0.0}]
    seeds = [seed for each in (first, second, together) for seed in each["seeds"]]
    assert len(set(seeds)) == len(seeds) == 9
    # Each on record before its first run; the campaign's best stays what its proposals made it.
    events = [(entry.event, entry.study) for entry in entries()]
    starts = [at for at, (event, _) in enumerate(events) if event == "removing"]
    for at, number in zip(starts, (1, 2, 3), strict=True):
        assert at < events.index(("started", f"night-remove{number}"))
    assert project.propose()[1]["best"] == {"commit": None, "settings": {"decor": 1.0, "gain": 0.6}}
    assert project.verify() == Exit.OK
    # The same command answers again; other numbers of seeds and amendments are refused.
    before = project.files()
    assert remove(project)[1] == answer
    assert ablate(project.monkeypatch, "confirm", project.campaign, "--remove", "--dry-run", "--json") == Exit.OK
    plan = json.loads(project.capsys.readouterr().out)
    assert (plan["order"], plan["most_runs"]) == ([], 0)
    assert project.files() == before
    assert "reduction 1 has 3 seeds" in refused(project, "--seeds", "4")
    assert ablate(project.monkeypatch, "amend", "studies/night-remove1.yaml", "--reason", "x", "--yes") == Exit.MISTAKE
    assert ablate(project.monkeypatch, "bundle", project.campaign, "--out", "night.zip") == Exit.OK
    assert ablate(project.monkeypatch, "verify", "night.zip") == Exit.OK
    assert "studies of removals" in " ".join(project.capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_change_that_a_guardrail_needs_stays_and_one_that_later_changes_replaced_is_not_tried(
    project: Project,
) -> None:
    """Without `decor` the speed falls by .15, with a margin of .1, and the loss stays; `gain` is set twice."""
    decorated(project, MORE.replace('"speed": speed', '"speed": speed - 0.15 * (1.0 - decor)'))
    assert project.set("gain=0.9")[1]["answer"] == "keep"
    code, answer = remove(project, "--seeds", "3")
    assert (code, answer["answer"], answer["removed"], answer["together"], answer["diff"]) == (
        Exit.INCONCLUSIVE,
        "nothing removed",
        [],
        None,
        [],
    )
    by_proposal = {each["proposal"]: each for each in answer["removals"]}
    assert by_proposal[1]["not_shown"] == ["speed"] and by_proposal[1]["gain"]["high"] < 0.05
    # Without the third change the gain is the second's, .6, and both sides differ by .3.
    assert by_proposal[3]["gain"]["gain"] == pytest.approx(0.3, abs=1e-3)
    assert answer["not_tried"] == {"2": "replaced"}
    # A share of the error for each of three kept changes, tried or not.
    assert [each["level"] for each in answer["removals"]] == [pytest.approx(0.05 / 3)] * 2
    # Once more only with a reason, on other seeds, and counted.
    assert "--again without a reason" in refused(project, "--again", " ")
    code, again = remove(project, "--again", "another machine", "--seeds", "4")
    assert (code, again["reductions"], len(again["removals"][0]["seeds"])) == (Exit.INCONCLUSIVE, [1, 2], 4)
    assert not {*again["removals"][0]["seeds"]} & {*by_proposal[1]["seeds"]}
    assert project.verify() == Exit.OK


@pytest.mark.slow
def test_a_removal_whose_runs_fail_is_given_up_unseen_and_its_change_stays(project: Project) -> None:
    assert "has kept no change" in refused(project)
    decorated(project)
    assert "--again, and this best was not reduced before" in refused(project, "--again", "x")
    assert "no removal of 'night' is open" in refused(project, "--give-up", "x")
    stop = project.path.parent / "stop"
    stop.touch()
    code, answer = remove(project, "--seeds", "3")
    assert (code, answer["answer"], answer["open"], answer["removals"]) == (Exit.INCOMPLETE, "unfinished", 1, [])
    assert "a reduction of 'night' has not ended" in refused(project, "--again", "x")
    assert "--give-up without a reason" in refused(project, "--give-up", " ")
    stop.unlink()
    code, answer = remove(project, "--give-up", "no memory without it")
    assert (code, answer["answer"], answer["removed"]) == (Exit.INCONCLUSIVE, "nothing removed", [])
    first, second = answer["removals"]
    assert (first["given_up"], first["gain"], first["outcome"]) == ("no memory without it", None, "not_shown")
    # What was not shown passes no level on.
    assert (second["given_up"], second["level"]) == (None, pytest.approx(0.025))
    assert project.verify() == Exit.OK
    # A keep makes another best, of which nothing was tried.
    assert project.set("gain=0.9")[1]["answer"] == "keep"
    code, answer = remove(project, "--seeds", "3")
    assert (code, answer["reductions"], answer["removed"]) == (Exit.OK, [2], [1])
    assert project.verify() == Exit.OK


@pytest.mark.slow
def test_of_commits_the_last_goes_back_and_an_earlier_one_is_left_to_a_proposal(project: Project) -> None:
    (project.path / ".gitignore").write_text("data/\nreports/\n", encoding="utf-8")
    start = document()["start"]
    project.write(start=start | {"base": start["base"] | {"commit": "main"}})
    project.git("init", "-q", "-b", "main")
    project.git("add", "-A")
    project.git("commit", "-qm", "start")
    script = project.path / "train.py"
    text, commits = script.read_text(encoding="utf-8"), []
    for loss, noise in (("2.7", "-2e-4"), ("2.4", "-3e-4")):
        script.write_text(text.replace("3.0 - gain", f"{loss} - gain").replace("-1e-4", noise), encoding="utf-8")
        project.git("commit", "-qam", loss)
        commits.append(project.git("rev-parse", "HEAD"))
    project.git("branch", "better")
    project.git("reset", "-q", "--hard", "HEAD~2")
    for commit in commits:
        assert project.propose("--commit", commit, "--why", "a lower loss")[1]["answer"] == "keep"
    code, answer = remove(project, "--seeds", "3")
    assert (code, [each["proposal"] for each in answer["removals"]]) == (Exit.INCONCLUSIVE, [2])
    # Against the commit before it.
    assert answer["removals"][0]["gain"]["gain"] == pytest.approx(0.3, abs=1e-3)
    assert answer["not_tried"] == {"1": "in a later commit"}
    assert project.verify() == Exit.OK


def test_a_campaign_whose_smallest_gain_is_zero_has_no_margin(project: Project) -> None:
    project.write(smallest=0.0)
    project.set("gain=0.3")
    assert "smallest is 0" in refused(project)


@pytest.mark.parametrize("words", [("--dry-run",), ("--give-up", "x")])
def test_options_of_removals_need_remove(project: Project, words: tuple[str, ...]) -> None:
    project.set("gain=0.3")
    assert ablate(project.monkeypatch, "confirm", project.campaign, *words) == Exit.MISTAKE
    assert "without --remove" in project.capsys.readouterr().err


def test_who_asks_is_of_a_confirmation_alone(project: Project) -> None:
    project.set("gain=0.3")
    assert ablate(project.monkeypatch, "confirm", project.campaign, "--remove", "--by", "me") == Exit.MISTAKE
    assert "--by with --remove" in project.capsys.readouterr().err


LIES = {
    "the removal that stayed, left out": lambda entry: None if entry.number == 2 else entry,
    "the first removal, left out": lambda entry: None if entry.number == 1 else entry,
    "a change that stayed as one that can go": lambda entry: (
        entry.model_copy(update={"outcome": "within_margin"}) if isinstance(entry, EndedEntry) else entry
    ),
    "a change that can go as one that stays": lambda entry: (
        entry.model_copy(update={"outcome": "not_shown"}) if isinstance(entry, EndedEntry) else entry
    ),
    "another change first": lambda entry: (
        entry.model_copy(update={"change": 2}) if isinstance(entry, RemovingEntry) and entry.number == 1 else entry
    ),
    "other seeds": lambda entry: (
        entry.model_copy(update={"seeds": entry.seeds[::-1]}) if isinstance(entry, RemovingEntry) else entry
    ),
    "a second reduction without its reason": lambda entry: (
        entry.model_copy(update={"again": None}) if isinstance(entry, RemovingEntry) else entry
    ),
    "the first reduction, which was bad luck, left out": lambda entry: None if entry.number <= 3 else entry,
}


@pytest.mark.slow
def test_lies_about_removals_are_found(project: Project) -> None:
    decorated(project)
    remove(project, "--seeds", "3")
    remove(project, "--seeds", "3", "--again", "bad luck")
    assert project.verify() == Exit.OK
    ledger = project.path / "studies" / "ledger.jsonl"
    honest = ledger.read_bytes()
    for lie, change in LIES.items():

        def changed(entry: Entry, change: Any = change) -> Entry | None:
            return change(entry) if isinstance(entry, RemovingEntry | EndedEntry) else entry

        rewritten(changed)
        assert project.verify() == Exit.INADMISSIBLE, lie
        ledger.write_bytes(honest)
    # The study of a removal that has ended, deleted.
    (project.path / "studies" / "night-remove2.lock.json").unlink()
    assert project.verify() == Exit.INADMISSIBLE


@pytest.mark.slow
def test_a_study_of_a_removal_with_a_laxer_margin_is_found(project: Project) -> None:
    decorated(project)
    words = [*map(str, (sys.executable, KILLED, "registered", 1, "before")), "confirm", str(project.campaign)]
    ended = subprocess.run([*words, "--remove"], cwd=project.path, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    study = project.path / "studies" / "night-remove1.yaml"
    study.write_text(study.read_text(encoding="utf-8").replace("smallest: 0.05", "smallest: 0.9"), encoding="utf-8")
    assert ablate(project.monkeypatch, "register", study) == Exit.OK
    assert project.verify() == Exit.INADMISSIBLE


# (event, which of them since the command began, when). Three removals of three pairs each.
KILLS = [
    *(("removing", number, when) for number in (1, 2, 3) for when in ("before", "after")),
    ("removing", 1, "torn"),
    *(("registered", number, when) for number in (1, 3) for when in ("before", "after")),
    ("sealed", 3, "after"),
    ("decided", 1, "before"),
    ("decided", 1, "after"),
    ("reported", 1, "before"),
    ("reported", 1, "after"),
    *(("ended", number, when) for number in (1, 3) for when in ("before", "torn", "after")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("event", "number", "when"), KILLS)
def test_removals_that_are_killed_end_as_those_that_are_not(
    reporting: Project, event: str, number: int, when: str
) -> None:
    # With reports: the process that is killed draws them.
    project = reporting
    decorated(project)
    words = [*map(str, (sys.executable, KILLED, event, number, when)), "confirm", str(project.campaign), "--remove"]
    ended = subprocess.run(
        [*words, "--seeds", "3", "--jobs", "1"], cwd=project.path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = entries()
    code, answer = remove(project, "--seeds", "3")
    assert (code, answer["removed"], answer["reductions"]) == (Exit.OK, [1], [1])
    assert entries()[: len(left)] == left
    counts = Counter(entry.event for entry in entries())
    assert (counts["removing"], counts["ended"]) == (3, 3)
    for study in ("night-remove1", "night-remove2", "night-remove3"):
        of_study = Counter(entry.event for entry in entries() if entry.study == study)
        assert [of_study[each] for each in ("registered", "sealed", "decided")] == [1, 6, 1]
    assert project.verify() == Exit.OK
