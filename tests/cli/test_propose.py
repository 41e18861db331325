"""`ablate propose`: changes proposed in a row by the command, with a trainer that takes a moment."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from killed_at_entry import WHEN
from test_cli import ablate

from ablate.cli.options import Exit
from ablate.records.store import RunFolder
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import StagedEntry

KILLED = Path(__file__).parent.parent / "killed_at_entry.py"
# The noise of a seed is common to both sides, but for a ten-thousandth: what becomes of a change follows from its gain,
# whatever seeds are drawn.
TRAINER = """
import json, os, random, sys
gain, speed = float(sys.argv[1]), float(sys.argv[2])
seed = int(os.environ["ABLATE_SEED"])
if os.path.exists("../stop"):
    sys.exit(3)
diverges = gain >= 9.0
# One run of the gain that this file names, the first that finds it.
if os.path.exists("../stop.nan") and float(open("../stop.nan").read()) == gain:
    os.unlink("../stop.nan")
    diverges = True
noise = random.Random(seed).gauss(0, 0.2) + random.Random(f"{seed} {gain} {speed}").uniform(-1e-4, 1e-4)
loss = float("nan") if diverges else 3.0 - gain + noise
with open("metrics.jsonl", "w") as rows:
    values = {"train/loss": loss} | ({"val/loss": loss, "speed": speed + noise} if not diverges else {})
    for metric, value in values.items():
        rows.write(json.dumps({"step": 1, "metric": metric, "value": value}) + "\\n")
"""


def document(**changes: Any) -> dict[str, Any]:
    return {
        "campaign": "night",
        "title": "Which changes lower the loss?",
        "start": {
            "trainer": "command",
            "command": ["{python}", "train.py", "{gain}", "{speed}"],
            "code": ["train.py"],
            "base": {"gain": 0.0, "speed": 1.0},
        },
        "metric": "val/loss",
        "smallest": 0.05,
        "guardrails": [{"metric": "speed", "margin": 0.1, "better": "higher"}],
        "stages": {"seeds": [3, 5], "spending": "pocock"},
        "budget": {"proposals": 10, "runs": 60},
        "error": {"any_false_keep": 0.05},
    } | changes


@dataclass
class Project:
    """A campaign and a trainer in a folder."""

    path: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    campaign = Path("campaigns/night.yaml")

    def write(self, **changes: Any) -> None:
        (self.path / self.campaign).write_text(yaml.safe_dump(document(**changes), sort_keys=False), encoding="utf-8")

    def propose(self, *words: str) -> tuple[int, dict[str, Any]]:
        """The exit code of the command, and what it answers in JSON."""
        code = ablate(self.monkeypatch, "propose", self.campaign, "--jobs", "1", "--json", *words)
        out = self.capsys.readouterr().out
        return code, json.loads(out) if out else {}

    def set(self, *settings: str, more: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
        words = [word for setting in settings for word in ("--set", setting)]
        return self.propose(*words, "--why", "it may help", *more)

    def refused(self, *words: str) -> str:
        """The message of a call that is refused and changes nothing."""
        before = self.files()
        assert ablate(self.monkeypatch, "propose", self.campaign, *words) == Exit.MISTAKE
        assert self.files() == before
        return " ".join(self.capsys.readouterr().err.split())

    def verify(self) -> int:
        code = ablate(self.monkeypatch, "verify", self.campaign)
        self.capsys.readouterr()
        return code

    def files(self) -> dict[str, bytes]:
        paths = [path for path in self.path.rglob("*") if path.is_file() and ".git" not in path.parts]
        return {path.relative_to(self.path).as_posix(): path.read_bytes() for path in paths if path.name[0] != "."}

    def ledger(self) -> list[dict[str, Any]]:
        lines = (self.path / "studies" / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def git(self, *words: str) -> str:
        names = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *names, *words], cwd=self.path, check=True, capture_output=True, text=True)
        return done.stdout.strip()


@pytest.fixture
def reporting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Project:
    """A campaign without a proposal."""
    made = Project(tmp_path / "project", monkeypatch, capsys)
    (made.path / "studies").mkdir(parents=True)
    (made.path / "campaigns").mkdir()
    (made.path / "train.py").write_text(TRAINER.replace("../stop", str(tmp_path / "stop")), encoding="utf-8")
    made.write()
    monkeypatch.chdir(made.path)
    return made


@pytest.fixture
def project(reporting: Project, no_reports: None) -> Project:
    """The same, and no reports of its studies are drawn."""
    return reporting


def test_a_keep_is_the_next_best_and_every_end_counts_against_the_budget(project: Project) -> None:
    code, kept = project.set("gain=0.3")
    assert (code, kept["answer"], kept["decision"]["stage"]) == (Exit.OK, "keep", 1)
    assert kept["decision"]["level"] == pytest.approx(0.05 / 10)
    assert kept["decision"]["parts"][0]["improvement"] == pytest.approx(0.3, abs=1e-3)
    # Compared with the best, which has the gain of .3, and not with the start.
    code, worse = project.set("gain=0.2")
    assert (code, worse["answer"], worse["decision"]["reason"]) == (Exit.WORSE, "drop", "futile")
    assert worse["decision"]["parts"][0]["improvement"] == pytest.approx(-0.1, abs=1e-3)
    # A gain below the smallest goes on to the last stage, and is dropped there.
    code, small = project.set("gain=0.31")
    assert (code, small["answer"], small["decision"]["reason"]) == (Exit.WORSE, "drop", "below_smallest")
    assert (small["number"], small["runs_left"], small["kept"]) == (3, 60 - 6 - 6 - 10, 1)
    # A guardrail that is broken is no keep, whatever the gain; nor is a run without a value.
    _, slow = project.set("gain=0.6", "speed=0.5")
    assert (slow["answer"], slow["decision"]["limiting"]) == ("drop", "speed")
    _, diverged = project.set("gain=9.0")
    assert (diverged["answer"], diverged["decision"]["reason"]) == ("drop", "no_value")
    assert diverged["best"] == {"commit": None, "settings": {"gain": 0.3}}
    seeds = [seed for each in (kept, worse, small, slow, diverged) for seed in each["seeds"]]
    assert len(set(seeds)) == len(seeds) == 25
    assert project.verify() == Exit.OK
    assert ablate(project.monkeypatch, "status", "studies/night-p1.yaml", "--json") == Exit.OK
    assert json.loads(project.capsys.readouterr().out)["decided"] == "keep"


@pytest.mark.parametrize("gain_that_diverges", [0.3, 0.0])
def test_one_run_that_diverged_drops_the_change_unseen_and_the_campaign_goes_on(
    project: Project, gain_that_diverges: float
) -> None:
    """At the last stage, on either side: the study asks what the lost pair could change, and the campaign does not."""
    project.write(stages={"seeds": [5]}, guardrails=[])
    (project.path.parent / "stop.nan").write_text(str(gain_that_diverges), encoding="utf-8")
    code, answer = project.set("gain=0.3")
    assert (code, answer["answer"], answer["decision"]["reason"]) == (Exit.WORSE, "drop", "no_value")
    assert (answer["faults"], answer["decision"]["parts"]) == ([], [])
    assert ablate(project.monkeypatch, "propose", project.campaign) == Exit.WORSE
    shown = " ".join(project.capsys.readouterr().out.split())
    assert "a run has no value of val/loss" in shown
    assert "could be" not in shown and "'keep'" not in shown and "val/loss gains" not in shown
    assert project.verify() == Exit.OK
    code, after = project.set("gain=0.4")
    assert (code, after["answer"], after["number"]) == (Exit.OK, "keep", 2)
    assert project.verify() == Exit.OK


def test_two_changes_whose_runs_diverge_at_once_are_not_the_same_runs(project: Project) -> None:
    """All that such runs have recorded is that they diverged, which is alike whatever they train."""
    assert project.set("gain=9.0")[:1] == (Exit.WORSE,)
    code, answer = project.set("gain=9.5")
    assert (code, answer["answer"], answer["faults"]) == (Exit.WORSE, "drop", [])
    assert project.set("gain=0.3")[0] == Exit.OK
    assert project.verify() == Exit.OK


def test_a_campaign_out_of_budget_says_so_and_begins_nothing(project: Project) -> None:
    project.write(budget={"proposals": 10, "runs": 18}, guardrails=[])
    assert project.set("gain=0.01")[1]["runs_left"] == 8
    code, answer = project.set("gain=0.02")
    assert (code, answer["answer"], answer["decision"]["reason"]) == (
        Exit.INCONCLUSIVE,
        "out of budget",
        "no_runs_left",
    )
    before = project.files()
    code, answer = project.set("gain=0.03")
    assert (code, answer["answer"], answer["number"]) == (Exit.INCONCLUSIVE, "out of budget", None)
    assert project.files() == before


def test_nothing_of_an_open_proposal_is_shown_and_another_has_to_wait(project: Project) -> None:
    stop = project.path.parent / "stop"
    stop.touch()
    code, answer = project.set("gain=0.3")
    assert (code, answer["answer"], answer["decision"]) == (Exit.INCOMPLETE, "unfinished", None)
    assert "proposal 1 has not ended" in project.refused("--set", "gain=0.4", "--why", "more")
    assert ablate(project.monkeypatch, "decide", "studies/night-p1.yaml") == Exit.MISTAKE
    assert "is proposal 1 of the campaign 'night'" in project.capsys.readouterr().err
    # Given up unseen, it is a drop, has spent its level, and counts as the runs of its stage.
    code, answer = project.propose("--give-up", "it needs more memory than there is")
    assert (code, answer["answer"], answer["decision"], answer["runs_left"]) == (Exit.WORSE, "drop", None, 54)
    stop.unlink()
    # The same again only with a reason, as a proposal of its own on seeds of its own.
    assert "proposal 1 had this code and configuration" in project.refused("--set", "gain=0.3", "--why", "more")
    code, second = project.set("gain=0.3", more=("--again", "there is memory now"))
    assert (code, second["number"], second["same_change_as"]) == (Exit.OK, 2, [1])
    assert "changes nothing" in project.refused("--set", "gain=0.3", "--why", "more")
    assert project.verify() == Exit.OK


def test_sealed_runs_of_an_open_proposal_are_shown_by_no_command(project: Project) -> None:
    stop = project.path.parent / "stop"
    stop.touch()
    project.set("gain=0.3")
    stop.unlink()
    # All runs of the first stage are made, and nobody has asked what became of it.
    study = "studies/night-p1.yaml"
    assert ablate(project.monkeypatch, "run", study, "--jobs", "1") == Exit.OK
    project.capsys.readouterr()
    folders = [RunFolder(table.parent) for table in project.path.rglob("metrics.parquet")]
    losses = [row.value for folder in folders for row in folder.sealed_rows() if row.metric == "val/loss"]
    assert len(losses) == 6
    # Values as somebody would print them, and the difference of the arms, which is .3 but for a ten-thousandth.
    secret = [*(f"{loss:.4g}" for loss in losses), "0.300", "0.299"]
    before = project.files()
    for refused in (("status", study, "--results", "--reason", "x"), ("decide", study)):
        assert ablate(project.monkeypatch, *refused) == Exit.MISTAKE
        assert "is proposal 1 of the campaign 'night'" in project.capsys.readouterr().err
    for shown in (("status", study), ("status",), ("check", study), ("ledger", study), ("ledger",), ("verify",),
                  ("verify", study), ("verify", project.campaign), ("check", project.campaign)):  # fmt: skip
        for form in ((), ("--json",)):
            assert ablate(project.monkeypatch, *shown, *form) == Exit.OK, shown
            output = "".join(project.capsys.readouterr())
            assert not [value for value in secret if value in output], (shown, output)
    assert ablate(project.monkeypatch, "report", study) == Exit.MISTAKE
    assert project.files() == before
    assert project.propose()[1]["answer"] == "keep"
    # Nor is it amended, or looked at, once it has ended.
    (project.path / study).write_text((project.path / study).read_text().replace("0.05", "0.04"), encoding="utf-8")
    assert ablate(project.monkeypatch, "amend", study, "--reason", "x", "--yes") == Exit.MISTAKE


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no change is named"),
        (("--set", "gain=0.3"), "a proposal without a reason"),
        (("--set", "gian=0.3", "--why", "x"), "'gian' is not a field of the base"),
        (("--set", "gain", "--why", "x"), "--set gain"),
        (("--commit", "main", "--why", "x"), "does not start from a commit"),
        (("--give-up", "x"), "no proposal of 'night' is open"),
    ],
)
def test_what_is_no_proposal_is_refused(project: Project, words: tuple[str, ...], message: str) -> None:
    assert ablate(project.monkeypatch, "register", project.campaign) == Exit.OK
    project.capsys.readouterr()
    assert message in project.refused(*words)


def test_a_campaign_is_registered_once_and_stays_what_it_was(project: Project) -> None:
    for _ in range(2):
        assert ablate(project.monkeypatch, "register", project.campaign) == Exit.OK
    assert [entry["event"] for entry in project.ledger()] == ["opened"]
    change = ("--set", "gain=0.3", "--why", "x")
    project.capsys.readouterr()
    project.write(smallest=0.01)
    assert "smallest of 'night' changed since it was registered" in project.refused(*change)
    assert ablate(project.monkeypatch, "check", project.campaign) == Exit.MISTAKE
    project.capsys.readouterr()
    project.write(title="Other words")
    script = project.path / "train.py"
    script.write_text(script.read_text(encoding="utf-8") + "# edited\n", encoding="utf-8")
    assert "code or data of 'night' are not what they were" in project.refused(*change)


def test_commits_are_proposed_and_the_same_code_under_another_name_is_known(project: Project) -> None:
    (project.path / ".gitignore").write_text("data/\nreports/\n", encoding="utf-8")
    start = document()["start"]
    project.write(start=start | {"base": start["base"] | {"commit": "main"}})
    project.git("init", "-q", "-b", "main")
    project.git("add", "-A")
    project.git("commit", "-qm", "start")
    script = project.path / "train.py"
    text = script.read_text(encoding="utf-8")
    # Other noise too: gains that are all equal have nothing to be compared with.
    script.write_text(text.replace("3.0 - gain", "2.7 - gain").replace("-1e-4,", "-2e-4,"), encoding="utf-8")
    project.git("commit", "-qam", "better")
    first = project.git("rev-parse", "HEAD")
    # `main` has moved on before the campaign is registered: it starts from what it names then.
    project.git("branch", "better")
    project.git("reset", "-q", "--hard", "HEAD~1")
    code, kept = project.propose("--commit", "better", "--why", "a lower loss")
    assert (code, kept["answer"], kept["best"]["commit"]) == (Exit.OK, "keep", first)
    project.git("checkout", "-q", "better")
    project.git("commit", "-q", "--allow-empty", "-m", "another name")
    assert "changes nothing" in project.refused("--commit", "better", "--why", "another name")
    assert project.verify() == Exit.OK


# (event, which of them, when): next to every entry of a campaign, and next to those of the runs between them. A call of
# `run` and each of its runs are `started`: 1 is the call, 2 the first run, 8 the call of the second stage.
KILLS = [
    *(("opened", 1, when) for when in ("torn", "unended", "after")),
    *(("proposed", 1, when) for when in WHEN),
    *(("registered", 1, when) for when in ("before", "after")),
    ("started", 1, "before"),
    ("started", 2, "after"),
    ("started", 8, "after"),
    ("sealed", 1, "after"),
    ("sealed", 6, "after"),
    ("sealed", 10, "before"),
    ("finished", 1, "before"),
    *(("staged", number, when) for number in (1, 2) for when in WHEN),
    *(("looked", number, when) for number in (1, 2) for when in ("before", "after")),
]
CHANGE = ("--set", "gain=0.02", "--why", "it may help")


@pytest.mark.slow
@pytest.mark.parametrize(("event", "number", "when"), KILLS)
def test_a_proposal_that_is_killed_ends_as_one_that_is_not(
    reporting: Project, event: str, number: int, when: str
) -> None:
    project = reporting
    words = [*map(str, (sys.executable, KILLED, event, number, when)), "propose", str(project.campaign), "--jobs", "1"]
    ended = subprocess.run([*words, *CHANGE], cwd=project.path, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = Ledger(Path("studies/ledger.jsonl")).entries()
    # The same command again: an open proposal goes on, and one that has ended is not begun once more.
    code, answer = project.propose(*CHANGE)
    if code == Exit.MISTAKE:
        assert [entry.outcome for entry in left if isinstance(entry, StagedEntry)][1:] == ["drop"]
        code, answer = project.propose()
    assert (code, answer["answer"], answer["decision"]["reason"]) == (Exit.WORSE, "drop", "below_smallest")
    assert (answer["number"], answer["decision"]["n_seeds"], answer["runs_left"]) == (1, 5, 50)
    # What was on record before is there, and each thing happened once.
    entries = Ledger(Path("studies/ledger.jsonl")).entries()
    assert entries[: len(left)] == left
    counts = Counter(entry.event for entry in entries)
    assert [counts[event] for event in ("opened", "proposed", "registered")] == [1, 1, 1]
    assert [counts[event] for event in ("staged", "looked", "sealed")] == [2, 2, 10]
    assert project.verify() == Exit.OK


def test_a_proposal_that_is_left_out_of_the_ledger_is_found(project: Project) -> None:
    project.set("gain=0.01")
    project.set("gain=0.2")
    # A ledger written anew without the first one, whose chain holds.
    entries = [entry for entry in Ledger(Path("studies/ledger.jsonl")).entries() if entry.study != "night-p1"]
    Path("studies/ledger.jsonl").unlink()
    fresh = Ledger(Path("studies/ledger.jsonl"))
    for entry in entries:
        if getattr(entry, "number", 0) != 1:
            fresh.append(entry.model_copy(update={"index": -1, "sha256": "", "previous": ""}))
    assert project.verify() == Exit.INADMISSIBLE
    code, _ = project.set("gain=0.4")
    assert code == Exit.MISTAKE
