"""Put `ablate gate` to a test that it can fail: compare train.py with each of the forty mutants, and count.

    python examples/gate/demonstrate.py                  # all that reports/gate/results.json has no answer of yet
    python examples/gate/demonstrate.py --minutes 30     # begin no comparison after half an hour
    python examples/gate/demonstrate.py --only warmup    # mutants with this in their name

A repository is made in build/gate, with train.py on `main` and a branch for each mutant. Its commits have fixed dates,
so their hashes are the same wherever this is run. Seeds are drawn when a comparison is registered, and others are drawn
where it is made anew: the ledger of build/gate is the record. What a tolerance on one pair of runs would have said is read off the same runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
from statsmodels.stats.proportion import proportion_confint

HERE = Path(__file__).resolve().parent
SCRATCH = HERE.parents[1] / "build" / "gate"
REPORTS = HERE.parents[1] / "reports" / "gate"
STUDY = Path("studies/harmless.yaml")
HEAD = re.compile(r"(?:harmless|bug, expected (large|small|invisible)): (.+)")
ALARMS = ("worse", "better", "inadmissible", "failed")
"""Answers to a change that was meant to be harmless, after which somebody looks at it."""
INTRODUCTION = """\
# A demonstration that could fail

[examples/gate](../../examples/gate) has a trainer, 20 harmless changes of it and 20 bugs. `ablate gate` was run on each, with
the question whether the validation loss is the same within 0.01 nats, by four pairs of runs or eight. An *alarm* is `better`,
`worse`, no verdict because the runs are no pairs, or a run that fails. The other methods are read off the same runs. Patches
and margin were committed before the first run; the seeds of these runs followed from the commits, as the gate did it then.

Compared: {bugs} bugs, {harmless} harmless changes. {rest}

## In all

Counts with 95% intervals (Wilson) of the rate over changes of this kind. *Mean over seeds*: had the one run been of another
of the seeds.

| method | bugs found | mean over seeds | false alarms | mean over seeds |
|---|---|---|---|---|"""  # noqa: E501
LIMITS = """
**What this can and cannot show.** The harmless changes are equal in exact arithmetic and draw the same random numbers, so runs of
one seed differ in the last digits alone: there a tolerance on one pair of runs has nothing to be alarmed by either, and the rows
*same seed* are its best case. The rows *other seeds* are the same tolerance where the seed is not fixed, or where a change draws
other random numbers: every harmless change is then as far from base as two seeds of base are. An alarm of the tolerance at one
seed is also not a statement about other seeds: the number of seeds that agree is in the table of all mutants. The gate is
*undecided* where its seeds show neither a difference nor its absence within the margin; it does not let such a change pass
(exit code 3). Its answer `better` has exit code 0, which is right for a change that was meant to help, and wrong for one that
was meant to change nothing: there the answer has to be read.
"""  # noqa: E501
EXITS = (0, 3, 4, 5, 7, 9)
"""Exit codes of `ablate gate` that answer; any other is a mistake in how it is called."""


@dataclass(frozen=True)
class Mutant:
    """A patch, and what is known of it beforehand."""

    kind: str
    """`harmless` or `bug`."""
    name: str
    """The file's name without its ending; also the branch, after the kind."""
    expected: str
    """Of a bug how well its loss should show it: `large`, `small`, `invisible`. Empty of a harmless change."""
    what: str
    patch: Path

    @property
    def branch(self) -> str:
        return f"{self.kind}-{self.name}"


@dataclass(frozen=True)
class Answer:
    """What the gate answered about one mutant, and the final losses of its runs."""

    kind: str
    name: str
    expected: str
    what: str
    answer: str
    exit_code: int
    reason: str
    """Why there is no verdict; empty where there is one."""
    base: dict[int, float]
    """Seed -> final validation loss in nats, in the order in which the study lists its seeds."""
    head: dict[int, float]
    wall_s: float
    cpu_s: float
    """Of all processes that the command started."""

    @property
    def differences(self) -> list[float]:
        """Head minus base, of the seeds that both arms ended."""
        return [self.head[seed] - self.base[seed] for seed in self.base if seed in self.head]

    def exceeds(self, tolerance: float) -> list[bool]:
        """For each seed, whether one run of each commit differs by more than a share of the base's loss."""
        return [abs(self.head[seed] / self.base[seed] - 1) > tolerance for seed in self.base if seed in self.head]

    def exceeds_unpaired(self, tolerance: float) -> list[bool]:
        """The same where the run of base is of the seed before: the test of a script that fixes no seed."""
        seeds = [seed for seed in self.base if seed in self.head]
        others = seeds[-1:] + seeds[:-1]
        return [abs(self.head[a] / self.base[b] - 1) > tolerance for a, b in zip(seeds, others, strict=True)]

    def is_higher(self) -> list[bool]:
        """For each seed, whether head's loss is higher than base's at all."""
        return [difference > 0 for difference in self.differences]


def mutants() -> list[Mutant]:
    """All patches, a harmless one and a bug in turn, so that any part of the list has both kinds."""
    read = []
    for patch in (HERE / "mutants").glob("*/*.patch"):
        head = HEAD.match(patch.read_text(encoding="utf-8"))
        if head is None:
            raise ValueError(f"{patch}: its first line must match {HEAD.pattern}")
        kind = {"harmless": "harmless", "bugs": "bug"}[patch.parent.name]
        read.append(Mutant(kind, patch.stem, head[1] or "", head[2], patch))
    return sorted(read, key=lambda mutant: (mutant.name[:2], mutant.kind))


def make_repository(folder: Path) -> None:
    """A repository with train.py on `main` and a branch for each mutant. One that is there is used again."""
    if (folder / ".git").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    at = "2026-01-01T00:00:00+00:00"
    fixed = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at, "GIT_CONFIG_GLOBAL": os.devnull}

    def git(*words: str) -> None:
        identity = ["-c", "user.name=Demonstration", "-c", "user.email=demonstration@example.org"]
        command = ["git", *identity, *words]
        subprocess.run(command, cwd=folder, env={**os.environ, **fixed}, check=True)

    git("init", "--quiet", "--initial-branch=main")
    for file in (Path("train.py"), STUDY):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes((HERE / file).read_bytes())
        git("add", str(file))
    git("commit", "--quiet", "--message", "A trainer")
    for mutant in mutants():
        git("checkout", "--quiet", "-b", mutant.branch, "main")
        git("apply", str(mutant.patch))
        git("commit", "--quiet", "--all", "--message", mutant.what)
    git("checkout", "--quiet", "main")


def compare(folder: Path, mutant: Mutant, jobs: int) -> Answer:
    """Ask the gate about one mutant, by its command. Raises `RuntimeError` where it does not answer."""
    command = [sys.executable, "-m", "ablate", "gate", str(STUDY), "--base", "main", "--head", mutant.branch]
    command += ["--jobs", str(jobs), "--json"]
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in EXITS:
        raise RuntimeError(f"{mutant.branch}: exit code {done.returncode}\n{done.stderr}")
    facts = json.loads(done.stdout)
    decision = facts["decision"] or {}
    losses = final_losses(folder, Path(facts["study"]).stem) if facts["study"] else {}
    failed = [check for check in decision.get("checks", ()) if not check["passed"]]
    return Answer(
        kind=mutant.kind,
        name=mutant.name,
        expected=mutant.expected,
        what=mutant.what,
        answer="failed" if facts["answer"] == "unfinished" else facts["answer"],
        exit_code=done.returncode,
        reason="; ".join(check["name"] for check in failed if check["severity"] == "inadmissible"),
        base=losses.get("base", {}),
        head=losses.get("head", {}),
        wall_s=round(time.monotonic() - began, 1),
        cpu_s=round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
    )


def final_losses(folder: Path, study: str) -> dict[str, dict[int, float]]:
    """Arm -> seed -> final validation loss, from the records of a study's runs, seeds in the study's order."""
    losses: dict[str, dict[int, float]] = {"base": {}, "head": {}}
    lock = json.loads((folder / "studies" / f"{study}.lock.json").read_text(encoding="utf-8"))
    for arm, of_arm in losses.items():
        for seed in lock["study"]["seeds"]:
            for record in (folder / "data" / "runs" / study).glob(f"*/{arm}/{seed}/metrics.parquet"):
                rows = pd.read_parquet(record)
                of_loss = rows[rows["metric"] == "val/loss"].sort_values("step")
                of_arm[seed] = float(of_loss["value"].iloc[-1])
    return losses


def rate(flags: list[bool]) -> str:
    """A count, and Wilson's 95% interval of its rate (Wilson 1927)."""
    if not flags:
        return "none tried"
    low, high = proportion_confint(sum(flags), len(flags), method="wilson")
    return f"{sum(flags)} of {len(flags)} ({low:.0%} to {high:.0%})"


def share(flags_by_mutant: list[list[bool]]) -> str:
    """The mean over mutants of the share of their seeds."""
    shares = [sum(flags) / len(flags) for flags in flags_by_mutant if flags]
    return f"{sum(shares) / len(shares):.0%}" if shares else "none tried"


def first(answers: list[Answer], flags: list[list[bool]]) -> list[bool]:
    """What the first seed of each mutant says; a run that failed is seen by anybody."""
    return [of_one[0] if of_one else answer.answer == "failed" for answer, of_one in zip(answers, flags, strict=True)]


def methods(answers: list[Answer]) -> dict[str, tuple[list[bool], str]]:
    """Method -> whether it raises the alarm over each mutant, and the mean share over seeds where one run decides."""
    single = {
        "1% of the loss, one run each, same seed": [answer.exceeds(0.01) for answer in answers],
        "0.5% of the loss, one run each, same seed": [answer.exceeds(0.005) for answer in answers],
        "1% of the loss, one run each, other seeds": [answer.exceeds_unpaired(0.01) for answer in answers],
        "0.5% of the loss, one run each, other seeds": [answer.exceeds_unpaired(0.005) for answer in answers],
        "higher loss, one run each, same seed": [answer.is_higher() for answer in answers],
    }
    gate = {
        "ablate gate": ([answer.answer in ALARMS for answer in answers], ""),
        "ablate gate, by its exit code alone": ([answer.exit_code in (4, 5, 9) for answer in answers], ""),
    }
    return gate | {name: (first(answers, flags), share(flags)) for name, flags in single.items()}


def page(answers: list[Answer], about: dict[str, str]) -> str:
    """The report in Markdown."""
    by_kind = {kind: [answer for answer in answers if answer.kind == kind] for kind in ("bug", "harmless")}
    n_all = {kind: sum(mutant.kind == kind for mutant in mutants()) for kind in by_kind}
    rest = f"The rest: `{about['command']}`" if len(answers) < sum(n_all.values()) else ""
    n = {kind: f"{len(answers)} of {n_all[kind]}" for kind, answers in by_kind.items()}
    lines = [INTRODUCTION.format(bugs=n["bug"], harmless=n["harmless"], rest=rest)]
    bugs, harmless = methods(by_kind["bug"]), methods(by_kind["harmless"])
    lines += [
        f"| {name} | {rate(bugs[name][0])} | {bugs[name][1]} | {rate(harmless[name][0])} | {harmless[name][1]} |"
        for name in bugs
    ]
    lines += [LIMITS, "Bugs by what their patch expected of the loss, before any run:", ""]
    lines += ["| expected | found by the gate | 0.5%, same seed | 1%, same seed |", "|---|---|---|---|"]
    for expected in ("large", "small", "invisible"):
        some = [answer for answer in by_kind["bug"] if answer.expected == expected]
        flags = [first(some, [answer.exceeds(share_of) for answer in some]) for share_of in (0.005, 0.01)]
        gated = [answer.answer in ALARMS for answer in some]
        lines.append(f"| {expected} | {' | '.join(f'{sum(each)} of {len(each)}' for each in (gated, *flags))} |")
    undecided = [answer.name for answer in answers if answer.answer == "undecided"]
    surprises = [answer.name for answer in answers if "the loss rises" in answer.what and answer.answer == "better"]
    runs = sum(len(answer.base) + len(answer.head) for answer in answers)
    wall, cpu = (sum(getattr(answer, name) for answer in answers) / 60 for name in ("wall_s", "cpu_s"))
    lines += [
        "",
        f"Undecided, so neither passed nor an alarm: {', '.join(undecided) if undecided else 'none'}.",
        f"Cost: {runs} runs, {cpu:.0f} minutes of one core, {wall:.0f} minutes by the clock ({about['machine']}).",
        f"Planned: under 60 minutes on two cores. {'Met' if wall < 60 else 'Missed'}, by the clock.",
        f"Expected to raise the loss by its patch, and found better: {', '.join(surprises) if surprises else 'none'}.",
        f"Made with ablate at {about['ablate']}, torch {about['torch']}, Python {about['python']}.",
        "",
        "## Every mutant",
        "",
        "Difference: head minus base, mean over pairs, in nats; SD: of the differences over pairs. Under *1%*, *0.5%*",
        "(same seed) and *higher* is the number of the pairs that would have raised the alarm by themselves.",
    ]
    for kind, title in (("bug", "Bugs"), ("harmless", "Harmless changes")):
        lines += ["", f"### {title}", "", "| mutant | expected | gate | difference | SD | pairs | 1% | 0.5% | higher |"]
        lines += ["|---|---|---|---|---|---|---|---|---|"] + [row(answer) for answer in by_kind[kind]]
    lines += ["", "## What each of them changes", ""]
    lines += [f"- {answer.kind} {answer.name}: {answer.what}" for kind in by_kind for answer in by_kind[kind]]
    return "\n".join(lines) + "\n"


def row(answer: Answer) -> str:
    """A line of the table of all mutants."""
    differences = pd.Series(answer.differences, dtype=float)
    text = f"**{answer.answer}**" if answer.answer in ALARMS else answer.answer
    text += f" ({answer.reason})" if answer.answer == "inadmissible" else ""
    n = len(differences)
    counts = [sum(answer.exceeds(0.01)), sum(answer.exceeds(0.005)), sum(answer.is_higher())]
    numbers = f"{differences.mean():+.5f} | {differences.std():.5f}" if n > 1 else "|"
    of_n = " | ".join(f"{count} of {n}" for count in counts)
    return f"| {answer.name} | {answer.expected or 'none'} | {text} | {numbers} | {n} | {of_n} |"


def main() -> None:
    """Compare what is left, and write the report after each comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="mutants with this in the name of their branch")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no comparison after so many")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--folder", type=Path, default=SCRATCH, help="where the repository is made")
    parser.add_argument("--reports", type=Path, default=REPORTS, help="where README.md and results.json are written")
    arguments = parser.parse_args()
    began = time.monotonic()
    make_repository(arguments.folder)
    answers = stored_answers(arguments.reports)[0] if (arguments.reports / "results.json").exists() else []
    answered = {(answer.kind, answer.name) for answer in answers}
    for mutant in mutants():
        if (mutant.kind, mutant.name) in answered or arguments.only not in mutant.branch:
            continue
        if time.monotonic() - began > 60 * arguments.minutes:
            break
        answers.append(compare(arguments.folder, mutant, arguments.jobs))
        print(mutant.branch, answers[-1].answer, f"{answers[-1].wall_s} s", flush=True)
        write(arguments.reports, answers)


def stored_answers(folder: Path) -> tuple[list[Answer], dict[str, str]]:
    """The answers in results.json, and what they were made with."""
    stored = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    for fields in stored["answers"]:
        for arm in ("base", "head"):
            fields[arm] = {int(seed): loss for seed, loss in fields[arm].items()}  # JSON has no keys but text
    return [Answer(**fields) for fields in stored["answers"]], stored["about"]


def write(folder: Path, answers: list[Answer]) -> None:
    """results.json and README.md of the answers so far."""
    import torch

    commit = ["git", "log", "-1", "--format=%h", "--", "../../ablate", "../../prereg"]
    about = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "ablate": subprocess.check_output(commit, cwd=HERE, text=True).strip(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "command": "python examples/gate/demonstrate.py",
    }
    folder.mkdir(parents=True, exist_ok=True)
    stored = {"about": about, "answers": [asdict(answer) for answer in answers]}
    (folder / "results.json").write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(page(answers, about), encoding="utf-8")


if __name__ == "__main__":
    main()
