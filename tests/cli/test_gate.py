"""`ablate gate`: two commits of a scratch repository with a trainer that takes a moment, compared by the command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from test_automation import environment, start, step
from test_cli import ablate

from ablate.cli.options import Exit
from ablate.judge.design.assumptions import assumed
from ablate.judge.design.scenarios import TrueEffects
from ablate.judge.design.simulate import simulate
from prereg.study.load import load_study
from prereg.study.spec import study_from_document

TRAINER = """
import json, os, random, sys
SHIFT, NOISE, SD = 0.0, "as it was", 0.01
seed = int(os.environ["ABLATE_SEED"])
stop = "{stop}"
if os.path.exists(stop):
    sys.exit(3)
loss = 2.0 + SHIFT + random.Random(seed).gauss(0, 0.2) + random.Random(f"{{seed}} {{NOISE}}").gauss(0, SD)
with open("metrics.jsonl", "w") as rows:
    for metric, value in (("train/loss", 2.0), ("val/loss", loss)):
        rows.write(json.dumps({{"step": 1, "metric": metric, "value": value}}) + "\\n")
"""
HYPOTHESES = {
    "same": {"claim": "head does_not_change val/loss", "smallest": 0.05},
    "better": {"claim": "head lowers val/loss", "smallest": 0.05, "role": "secondary"},
    "worse": {"claim": "base lowers val/loss than head", "smallest": 0.05, "role": "guardrail"},
}
DECISION = [
    {"verdict": "equivalent", "when": "supported(same)"},
    {"verdict": "better", "when": "supported(better)"},
    {"verdict": "worse", "when": "supported(worse)"},
    {"verdict": "inconclusive"},
]


def document(**changes: Any) -> dict[str, Any]:
    return {
        "study": "harmless",
        "title": "Is the change harmless?",
        "trainer": "command",
        "command": ["{python}", "train.py"],
        "code": ["train.py"],
        "base": {"steps": 1},
        "baseline": "base",
        "variants": {"base": {"commit": "main"}, "head": {"commit": "HEAD"}},
        "seeds": "fresh 4",
        "hypotheses": HYPOTHESES,
        "decision": DECISION,
    } | changes


@dataclass
class Repository:
    """A repository with a gate and a trainer, checked out at `main`."""

    path: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    @property
    def study(self) -> Path:
        return Path("studies/harmless.yaml")

    @property
    def stop(self) -> Path:
        """A file whose presence makes every run fail."""
        return self.path.parent / "stop"

    def git(self, *words: str) -> str:
        """What git prints in the repository."""
        return self.git_in(self.path, *words)

    def git_in(self, folder: Path, *words: str) -> str:
        """What git prints in a folder."""
        # Two commits of the same files, message and parent are then one commit.
        at = "2026-01-02T03:04:05+00:00"
        environment = {**os.environ, "GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        names = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True, env=environment
        )
        return done.stdout.strip()

    def write(self, **changes: Any) -> None:
        (self.path / self.study).write_text(yaml.safe_dump(document(**changes), sort_keys=False), encoding="utf-8")

    def commit(self, edits: Mapping[str, str] | None = None, *, branch: str = "") -> str:
        """Commit everything, after edits of the trainer, on a new branch; the hash."""
        if branch:
            self.git("checkout", "-q", "-b", branch)
        script = self.path / "train.py"
        text = script.read_text(encoding="utf-8")
        for old, new in (edits or {}).items():
            assert old in text, old
            text = text.replace(old, new)
        script.write_text(text, encoding="utf-8")
        self.git("add", "train.py", "studies/harmless.yaml", ".gitignore")
        self.git("commit", "-q", "-m", branch or "main")
        return self.git("rev-parse", "HEAD")

    def gate(self, *words: str) -> tuple[int, dict[str, Any]]:
        """The exit code of the command, and what it answers in JSON."""
        code = ablate(self.monkeypatch, "gate", self.study, "--jobs", "1", "--json", *words)
        out = self.capsys.readouterr().out
        return code, json.loads(out) if out else {}

    def refused(self, *words: str) -> str:
        """The message of a call that is refused and changes nothing."""
        before = self.files()
        assert ablate(self.monkeypatch, "gate", self.study, *words) == Exit.MISTAKE
        assert self.files() == before
        return " ".join(self.capsys.readouterr().err.split())

    def files(self) -> dict[str, bytes]:
        paths = [path for path in self.path.rglob("*") if path.is_file() and ".git" not in path.parts]
        return {path.relative_to(self.path).as_posix(): path.read_bytes() for path in paths}

    def ledger(self) -> list[dict[str, Any]]:
        lines = (self.path / "studies" / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Repository:
    made = Repository(tmp_path / "repository", monkeypatch, capsys)
    (made.path / "studies").mkdir(parents=True)
    (made.path / "train.py").write_text(TRAINER.format(stop=made.stop), encoding="utf-8")
    (made.path / ".gitignore").write_text("data/\nreports/\n", encoding="utf-8")
    made.git("init", "-q", "-b", "main")
    made.write()
    made.commit()
    monkeypatch.chdir(made.path)
    # Seeds follow from a nonce: with drawn ones a true answer would fail one time in some.
    nonces = (f"{number:032x}" for number in count(1))
    monkeypatch.setattr("ablate.gating.draw_nonce", lambda: next(nonces))
    return made


OTHER_NOISE = {'"as it was"': '"another order"'}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edits", "answer", "code"),
    [
        (OTHER_NOISE, "equivalent", Exit.OK),
        (OTHER_NOISE | {"SHIFT, NOISE, SD = 0.0": "SHIFT, NOISE, SD = -0.3"}, "better", Exit.OK),
        (OTHER_NOISE | {"SHIFT, NOISE, SD = 0.0": "SHIFT, NOISE, SD = 0.3"}, "worse", Exit.WORSE),
        (OTHER_NOISE | {"0.01": "0.2"}, "undecided", Exit.INCONCLUSIVE),
        ({"seed = int": "number = int", "seed)": "number)", "{seed}": "{number}"}, "identical", Exit.OK),
    ],
)
def test_two_commits_get_the_answer_that_their_runs_give(
    edits: dict[str, str], answer: str, code: int, repository: Repository, tmp_path: Path
) -> None:
    base, head = repository.git("rev-parse", "main"), repository.commit(edits, branch="feature")
    summary = tmp_path / "summary.md"
    ended, facts = repository.gate("--summary", str(summary))
    assert (facts["answer"], ended) == (answer, code)
    assert facts["base"] == {"name": "main", "commit": base} and facts["head"] == {"name": "HEAD", "commit": head}
    # The verdict is the judge's, of a study that was registered before its first run.
    name = Path(facts["study"]).stem
    assert re.fullmatch("harmless-[0-9a-f]{7}-[0-9a-f]{7}", name)
    verdict = json.loads((repository.path / "reports" / name / "verdict.json").read_text(encoding="utf-8"))
    # Equal losses decide: a loss is no count.
    named = {"undecided": "inconclusive", "identical": "equivalent"}
    assert verdict["verdict"] == named.get(answer, answer)
    events = [(entry["event"], entry["study"]) for entry in repository.ledger()]
    assert events[0] == ("registered", name) and events.count(("sealed", name)) == 8
    lines = summary.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 15
    text = "\n".join(lines)
    # Nobody can tell from an empty ledger whether there was another one elsewhere.
    assert base[:7] in text and head[:7] in text and "Earlier comparisons unknown" in text
    assert facts["earlier_comparisons"] is None
    assert {"undecided": "would have power 80%", "identical": "In 4 of 4 seeds"}.get(answer, "n = 4 pairs") in text
    assert ("| head does\\_not\\_change" in text or "| head does_not_change" in text) == (answer != "identical")
    assert "paired_t" not in text.lower()
    # Again: the same answer from what was decided, and no further run.
    assert repository.gate() == (ended, facts)
    assert len(repository.ledger()) == len(events)


@pytest.mark.slow
def test_looks_end_a_comparison_early_and_a_second_one_is_counted(repository: Repository, tmp_path: Path) -> None:
    repository.write(seeds="fresh 6", stopping={"looks": [4, 6], "spending": "pocock"})
    repository.commit(branch="looks")
    repository.commit(OTHER_NOISE, branch="feature")
    words = ("--base", "looks", "--head", "feature")
    code, facts = repository.gate(*words)
    assert (code, facts["answer"], facts["decision"]["look"]["number"]) == (Exit.OK, "equivalent", 1)
    assert "--again without a reason" in repository.refused(*words, "--again", " ")
    code, second = repository.gate(*words, "--again", "the first was run on a broken node")
    assert code == Exit.OK and second["earlier_comparisons"] == [Path(facts["study"]).stem]
    assert Path(second["study"]).stem == f"{Path(facts['study']).stem}-2"
    first_seeds, second_seeds = (set(load_study(Path(one["study"])).study.seeds) for one in (facts, second))
    assert not first_seeds & second_seeds
    assert load_study(Path(second["study"])).study.question == "the first was run on a broken node"
    # From now on the same commits show the last of the two, and say that there was another.
    summary = tmp_path / "summary.md"
    assert repository.gate(*words, "--summary", str(summary)) == (code, second)
    assert "Comparison 2 of these contents, after" in summary.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_comparison_that_failed_goes_on_with_the_same_command(repository: Repository) -> None:
    repository.commit(OTHER_NOISE, branch="feature")
    repository.stop.touch()
    code, facts = repository.gate()
    assert (code, facts["answer"], facts["decision"]) == (Exit.INCOMPLETE, "unfinished", None)
    assert "is not decided" in repository.refused("--again", "it failed")
    repository.stop.unlink()
    again, whole = repository.gate()
    # That runs were started twice is a deviation from what was registered, which the exit code says.
    assert (again, whole["answer"], whole["study"]) == (Exit.DEVIATIONS, "equivalent", facts["study"])


def test_commits_with_the_same_code_are_not_compared(repository: Repository, tmp_path: Path) -> None:
    (repository.path / ".gitignore").write_text("data/\nreports/\nbuild/\n", encoding="utf-8")
    repository.commit(branch="other_files")
    before, summary = repository.files(), tmp_path / "summary.md"
    for words in ((), ("--base", "main", "--head", "main")):
        code, facts = repository.gate(*words, "--summary", str(summary))
        assert (code, facts["answer"], facts["study"]) == (Exit.OK, "same code", None)
        assert "Nothing was run" in summary.read_text(encoding="utf-8")
    assert repository.files() == before


@pytest.mark.slow
def test_head_need_not_follow_base_and_the_answer_says_where_the_gate_itself_changed(
    repository: Repository, tmp_path: Path
) -> None:
    repository.write(title="Another gate")
    repository.commit(OTHER_NOISE, branch="left")
    repository.git("checkout", "-q", "main")
    repository.commit({"SHIFT, NOISE, SD = 0.0": "SHIFT, NOISE, SD = 0.3"}, branch="right")
    summary = tmp_path / "summary.md"
    code, facts = repository.gate("--base", "left", "--head", "right", "--summary", str(summary))
    assert (code, facts["answer"], facts["gate_changed_since_base"]) == (Exit.WORSE, "worse", True)
    assert "NOT the file that base holds" in summary.read_text(encoding="utf-8")


def test_what_is_no_commit_or_lies_here_otherwise_is_refused(repository: Repository) -> None:
    repository.commit(OTHER_NOISE, branch="feature")
    assert "--base v9 is no commit of this repository" in repository.refused("--base", "v9")
    assert "was not compared" in repository.refused("--again", "why not").replace("were not", "was not")
    script = repository.path / "train.py"
    script.write_text(script.read_text(encoding="utf-8") + "# not committed\n", encoding="utf-8")
    # Where the checkout has no branch, too; what is proposed is an option of this command.
    for name in ("HEAD", "feature"):
        refusal = repository.refused("--head", name)
        assert f"--head {name} is the commit that is checked out, and train.py differs from it" in refusal
        assert "or --head WORKTREE; or git stash -u" in refusal
    repository.git("checkout", "-q", "--detach", "feature")
    assert "train.py differs from it" in repository.refused()


def test_a_gate_in_a_shallow_clone_or_outside_a_repository_is_refused(repository: Repository, tmp_path: Path) -> None:
    repository.commit(OTHER_NOISE, branch="feature")
    repository.git("clone", "-q", "--depth", "1", "-b", "feature", f"file://{repository.path}", str(tmp_path / "clone"))
    repository.path = tmp_path / "clone"
    repository.monkeypatch.chdir(repository.path)
    refusal = repository.refused()
    assert "--base main is no commit of this repository, which is a shallow clone" in refusal
    assert "fetch-depth: 0" in refusal
    shutil.rmtree(repository.path / ".git")
    repository.monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert "lies in no git repository" in repository.refused()


@pytest.mark.slow
def test_runs_that_are_no_pairs_end_the_gate_with_the_reason_at_an_early_look(
    repository: Repository, tmp_path: Path
) -> None:
    """The look is not logged, so there is no decision and no report; another comparison is possible, and counted."""
    repository.write(seeds="fresh 6", stopping={"looks": [3, 6], "spending": "pocock"})
    # Each run states another hash: its folder has the arm in its name.
    stated = 'json.dump({"order": __import__("hashlib").sha256(os.getcwd().encode()).hexdigest()}'
    repository.commit({"seed = int": f'{stated}, open("must_match.json", "w"))\nseed = int'}, branch="stated")
    repository.commit(OTHER_NOISE, branch="feature")
    words, summary = ("--base", "stated", "--head", "feature", "--jobs", "1"), tmp_path / "summary.md"
    assert ablate(repository.monkeypatch, "gate", repository.study, *words, "--summary", summary) == Exit.INADMISSIBLE
    printed, text = " ".join(repository.capsys.readouterr().out.split()), summary.read_text(encoding="utf-8")
    for page in (printed, text):
        assert "no verdict" in page and "pairs match in what their trainer says they must" in page
        assert "report.md" not in page and "recomputed" not in page
    code, facts = repository.gate(*words[:4], "--again", "another batch of machines")
    assert (code, facts["answer"], len(facts["earlier_comparisons"])) == (Exit.INADMISSIBLE, "inadmissible", 1)


def test_a_registration_that_is_refused_leaves_nothing(repository: Repository) -> None:
    repository.write(assume={"metrics": {"val/loss": {"sd": 1.0, "correlation": 0.0}}})
    repository.commit(OTHER_NOISE, branch="feature")
    assert "--accept-underpowered" in repository.refused()


@pytest.mark.slow
def test_a_gate_that_changed_after_its_registration_is_another_comparison(repository: Repository) -> None:
    repository.commit(OTHER_NOISE, branch="feature")
    code, facts = repository.gate("--base", "main", "--head", "feature")
    wider = {name: {**each, "smallest": 0.5} for name, each in HYPOTHESES.items()}
    repository.write(hypotheses=wider)
    refusal = repository.refused("--base", "main", "--head", "feature")
    assert (
        f"{Path(facts['study']).name} compares these commits" in refusal and "changed since, in hypotheses" in refusal
    )
    again, second = repository.gate("--base", "main", "--head", "feature", "--again", "a wider margin")
    assert (code, again) == (Exit.OK, Exit.OK) and second["earlier_comparisons"] == [Path(facts["study"]).stem]


def no_worse(rule: str) -> list[dict[str, str]]:
    return [{"verdict": "equivalent", "when": rule}, {"verdict": "inconclusive"}]


THAN_BASE = {"same": {"claim": "head does_not_change val/loss than base", "smallest": 0.05}}
NO_HARM = {"claim": "head does_not_worsen val/loss", "smallest": 0.05}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"decision": [{"verdict": "take it", "when": "supported(same)"}, {"verdict": "inconclusive"}]}, "'take it'"),
        ({"decision": no_worse("not supported(worse)")}, "can say 'equivalent' where no claim shows it"),
        ({"decision": no_worse("supported(same) or supported(better)")}, "can say 'equivalent'"),
        ({"hypotheses": {"same": NO_HARM}, "decision": no_worse("supported(same)")}, "can say 'equivalent'"),
        ({"decision": [{"verdict": "better", "when": "supported(worse)"}, *DECISION[3:]]}, "can say 'better'"),
        ({"decision": [{"verdict": "worse", "when": "refuted(same)"}, *DECISION[3:]]}, "can say 'worse'"),
        ({"decision": [{"verdict": "equivalent", "when": "supported(same)"}, {"verdict": "worse"}]}, "can say 'worse'"),
        ({"baseline": "head", "hypotheses": THAN_BASE, "decision": no_worse("supported(same)")}, "baseline is 'head'"),
        ({"variants": {"base": {"steps": 1}, "head": {"steps": 2}}}, "the arm base is no commit"),
        ({"variants": document()["variants"] | {"head": {"steps": 2}}}, "and 'head' is none"),
        ({"variants": document()["variants"] | {"third": {"commit": "HEAD", "steps": 2}}}, "the arms are"),
    ],
)  # fmt: skip
def test_a_rule_whose_verdict_no_claim_shows_is_refused(
    changes: dict[str, Any], found: str, repository: Repository
) -> None:
    repository.write(**changes)
    message = repository.refused()
    assert found in message and "studies/harmless.yaml:" in message


def test_harm_may_be_a_refuted_claim_of_none(repository: Repository) -> None:
    """Ways to write the same rule: what is refused is a verdict without its claim, not another form of the claim."""
    decision = [
        {"verdict": "better", "when": "supported(gain) and not refuted(no_harm)"},
        {"verdict": "worse", "when": "refuted(no_harm)"},
        {"verdict": "inconclusive"},
    ]
    gain = {"claim": "base does_not_worsen val/loss than head", "smallest": 0.05, "role": "secondary"}
    claims = {"no_harm": NO_HARM, "gain": HYPOTHESES["better"], "other": gain}
    repository.write(hypotheses=claims, decision=decision)
    assert repository.gate("--base", "main", "--head", "main")[0] == Exit.OK


@pytest.mark.simulation
@pytest.mark.parametrize("spending", ["pocock", "obrien_fleming"])
@pytest.mark.parametrize("n_seeds", [4, 8])
def test_false_answers_stay_within_the_registered_rate(spending: str, n_seeds: int) -> None:
    """At a true difference of D "equivalent" is false, at none "worse" and "better": each question has its alpha, over
    all looks together. 20,000 simulated studies a truth: standard error at most .0016."""
    looks = {4: [3, 4], 8: [4, 6, 8]}[n_seeds]
    plain = document(
        seeds=[*range(1, n_seeds + 1)],
        stopping={"looks": looks, "spending": spending},
        variants={"base": {}, "head": {"steps": 2}},
        assume={"metrics": {"val/loss": {"sd": 0.0125, "correlation": 0.0}}},
    )
    plain.pop("code")
    study = study_from_document(plain)

    def chance(effect: float, verdict: str) -> float:
        effects = {"same": effect, "better": effect, "worse": -effect}
        scenario = simulate(study, TrueEffects("truth", effects), assumed(study), n_sims=20_000, seed=[1])
        return next(each.share for each in scenario.verdicts if each.of == verdict)

    most = study.analysis.alpha + 3 * 0.0016
    for effect in (0.05, -0.05):
        assert chance(effect, "equivalent") <= most
    # Two-sided against zero: half of alpha each way.
    assert max(chance(0.0, "worse"), chance(0.0, "better")) <= study.analysis.alpha / 2 + 3 * 0.0012
    # And it can answer: with no difference, mostly `equivalent`.
    assert chance(0.0, "equivalent") > 0.5


@pytest.mark.slow
def test_the_template_is_a_gate_over_its_example(repository: Repository) -> None:
    assert ablate(repository.monkeypatch, "new", "mine", "--template", "commits") == 0
    assert "ablate gate studies/mine.yaml --base main --head HEAD" in repository.capsys.readouterr().out
    repository.git("add", "studies/mine.yaml", "studies/mine/train.py")
    repository.git("commit", "-q", "-m", "the gate")
    script = repository.path / "studies" / "mine" / "train.py"
    repository.git("checkout", "-q", "-b", "feature")
    script.write_text(script.read_text(encoding="utf-8").replace("range(64)", "range(8 * 8)"), encoding="utf-8")
    repository.git("commit", "-q", "-a", "-m", "the same batch")
    assert ablate(repository.monkeypatch, "check", "studies/mine.yaml") == 0
    repository.capsys.readouterr()
    code = ablate(repository.monkeypatch, "gate", "studies/mine.yaml", "--json")
    facts = json.loads(repository.capsys.readouterr().out)
    # The same arithmetic, so that the answer depends on no seed.
    assert (code, facts["answer"]) == (Exit.OK, "identical")


STEPS = ("Compare two commits", "Comment on the pull request", "Result of the comparison")


def runner(repository: Repository, tmp_path: Path, **given: str) -> dict[str, str]:
    """What a runner puts into the environment of a step."""
    files = {name: str(tmp_path / name.lower()) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    of_job = {"ROOT": "repository", "STUDY": "studies/harmless.yaml", "RUNNER_TEMP": str(tmp_path)}
    return environment(tmp_path) | files | of_job | given


@pytest.mark.slow
def test_the_action_compares_a_branch_with_where_it_began(repository: Repository, tmp_path: Path) -> None:
    began, head = repository.git("rev-parse", "main"), repository.commit(OTHER_NOISE, branch="feature")
    repository.git("checkout", "-q", "main")
    repository.commit(
        {"SHIFT, NOISE, SD = 0.0": "SHIFT, NOISE, SD = -5.0"}
    )  # what main gained is no harm of the branch
    env = runner(repository, tmp_path, BASE="main", HEAD=head)
    done = start(step(STEPS[0])["run"], repository.path.parent, env)
    assert done.returncode == 0, done
    outputs = dict(line.split("=") for line in Path(env["GITHUB_OUTPUT"]).read_text(encoding="utf-8").splitlines())
    text = Path(env["GITHUB_STEP_SUMMARY"]).read_text(encoding="utf-8")
    assert outputs["code"] == "0" and Path(outputs["summary"]).read_text(encoding="utf-8") == text
    assert "equivalent within 0.05" in text and began[:7] in text and head[:7] in text
    assert re.search(r"::stop-commands::([0-9a-f]{32})\n(.*\n)*::\1::\n", done.stdout)


def test_the_action_says_why_there_is_no_answer(repository: Repository, tmp_path: Path) -> None:
    folder = repository.path.parent
    env = runner(repository, tmp_path, BASE="", HEAD="main")
    done = start(step(STEPS[0])["run"], folder, env)
    assert done.returncode == 2 and "no commit to compare with" in done.stdout
    repository.git("checkout", "-q", "--orphan", "unrelated")
    repository.commit(OTHER_NOISE)
    done = start(step(STEPS[0])["run"], folder, env | {"BASE": "main", "HEAD": "unrelated"})
    assert done.returncode == 2 and "fetch-depth: 0" in done.stdout
    repository.git("checkout", "-q", "main")
    repository.write(decision=[{"verdict": "merge it"}])
    done = start(step(STEPS[0])["run"], folder, env | {"BASE": "main", "HEAD": "main"})
    assert done.returncode == 0
    assert "no answer" in Path(env["GITHUB_STEP_SUMMARY"]).read_text(encoding="utf-8")
    assert "code=2\n" in Path(env["GITHUB_OUTPUT"]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("code", "undecided", "ended", "level"),
    [
        ("0", "fail", 0, ""),
        ("3", "fail", 3, "error"),
        ("3", "pass", 0, "warning"),
        ("7", "pass", 7, "error"),
        ("9", "pass", 9, "error"),
        ("5", "pass", 5, "error"),
        ("", "pass", 2, "error"),
    ],
)
def test_the_action_ends_as_the_command_did(code: str, undecided: str, ended: int, level: str, tmp_path: Path) -> None:
    done = start(step(STEPS[2])["run"], tmp_path, {"CODE": code, "UNDECIDED": undecided, "PATH": os.environ["PATH"]})
    assert done.returncode == ended
    assert done.stdout.startswith(f"::{level} title=ablate::") if level else done.stdout == ""


class Host(BaseHTTPRequestHandler):
    """The comments of one pull request, as the code host's API has them."""

    comments: ClassVar[list[dict[str, Any]]] = []
    tokens: ClassVar[set[str]] = set()
    status: ClassVar[int] = 200

    def _answer(self, answer: object) -> None:
        self.tokens.add(self.headers["Authorization"])
        data = json.dumps(answer).encode()
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(data)

    def _body(self) -> str:
        return str(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"])

    def do_GET(self) -> None:
        page = int(parse_qs(urlsplit(self.path).query)["page"][0])
        assert urlsplit(self.path).path == "/repos/o/r/issues/7/comments"
        self._answer(self.comments[100 * (page - 1) : 100 * page])

    def do_POST(self) -> None:
        self.comments.append({"id": len(self.comments), "user": {"type": "Bot"}, "body": self._body()})
        self._answer(self.comments[-1])

    def do_PATCH(self) -> None:
        comment = self.comments[int(self.path.rpartition("/")[2])]
        comment["body"] = self._body()
        self._answer(comment)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def host() -> Iterator[str]:
    Host.comments, Host.tokens, Host.status = [], set(), 200
    server = ThreadingHTTPServer(("127.0.0.1", 0), Host)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_action_leaves_one_comment_and_replaces_nobody_elses(host: str, tmp_path: Path) -> None:
    script, summary = step(STEPS[1])["run"], tmp_path / "summary.md"
    env = {"TOKEN": "secret", "API": host, "REPOSITORY": "o/r", "NUMBER": "7", "STUDY": "studies/harmless.yaml"}
    marker = "<!-- ablate gate studies/harmless.yaml -->"
    person = {"user": {"type": "User"}, "body": f"{marker}\nmine"}
    Host.comments += [{"id": at, **person} for at in range(130)]

    def leave(text: str, **changes: str) -> str:
        summary.write_text(text, encoding="utf-8")
        words = [sys.executable, "-c", script]
        given = env | {"SUMMARY": str(summary)} | changes
        return subprocess.run(words, env=given, check=True, capture_output=True, text=True).stdout

    assert leave("first") == leave("second") == ""
    assert [each["body"] for each in Host.comments[130:]] == [f"{marker}\nsecond"]
    leave("third", STUDY="studies/other.yaml")
    assert len(Host.comments) == 132 and all(each["body"].endswith("mine") for each in Host.comments[:130])
    assert Host.tokens == {"Bearer secret"}
    Host.status = 403  # the token of a fork's pull request may only read
    assert leave("fourth").startswith("::warning title=ablate::no comment was left: 403")
