"""Public records, judged again: published losses in, `README.md` of this folder out.

    python -m examples.records.judge_again            # writes the page; a few seconds
    python -m examples.records.judge_again --keep DIR # leaves the studies, their runs and reports in DIR

Every p value that the authors printed is computed again from the losses that they published, by the judge that decides
registered studies. Some claims also go the whole way of a study, `register`, `import` and `decide`. The runs are older
than these studies, so each import says when they were made, and no study gives a verdict.

This script trains nothing, reads `published/` and `studies/` of this folder only, and needs no network.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Literal, cast

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

import ablate
from ablate.judge.design.retrospective import design_in_lock
from ablate.judge.stats import t_power
from ablate.judge.stats.multiplicity import holm
from ablate.judge.verdict import Decision, Finding
from ablate.workspace import Workspace
from examples.records.contest import Comparison, compared, pooled_sd, printed_numbers, runs_of_contest, seven_seeds
from examples.records.printed import ALPHA, FOLDER, digits, read_rows, rounds_to
from examples.records.runs import Run
from examples.records.steps import SIGMA, first_six, step_records
from examples.records.steps import pooled_sd as sd_of_steps
from prereg.errors import UndecidableDesignError
from prereg.text import compact, listed

PAGE = FOLDER / "README.md"
BUFFER = 0.001
"""nats/token. The speedrun's rules ask a record to keep 0.001 to 0.002 below its target; power is stated there."""
Kind = Literal["record", "before", "variant"]
"""A record; a record before it, run again by the same author; a variant that its author did not submit."""


@dataclass(frozen=True)
class Claim:
    """One published p value of the speedrun, and the losses that it was computed from."""

    arm: str
    date: str
    """Day of the record, ISO 8601."""
    kind: Kind
    target: float
    """nats/token, which the mean loss must lie below."""
    printed_p: str
    """As its author printed it, digit by digit."""
    source: str
    """File of the public repository."""
    losses: tuple[str, ...]
    """nats/token, as printed."""


@dataclass(frozen=True)
class Judged:
    """A claim with what the judge finds."""

    claim: Claim
    p: float
    """One-sided, of the one-sample t."""
    mean: float
    sd: float
    low: float
    high: float
    """One-sided 99% bounds of the mean."""
    seeds_80: int | None
    """Runs with power .80 at a mean `BUFFER` below the target, with this SD; none beyond `t_power.MOST_SEEDS`."""
    p_holm: float | None = None
    """Corrected over the records of one target; none for what is no record."""

    @property
    def n(self) -> int:
        """Runs."""
        return len(self.claim.losses)

    @property
    def matched(self) -> bool:
        """Whether p rounds to the printed digits."""
        return rounds_to(self.p, self.claim.printed_p)

    @property
    def holds(self) -> bool:
        """Whether the claim holds under the contest's own rule."""
        return self.p < ALPHA

    @property
    def holds_after_holm(self) -> bool:
        """Whether it also holds after Holm's correction."""
        return self.p_holm is not None and self.p_holm < ALPHA

    @property
    def more_runs(self) -> int | None:
        """Runs that are missing for power .80."""
        return None if self.seeds_80 is None else max(0, self.seeds_80 - self.n)


@dataclass(frozen=True)
class Decided:
    """What `ablate decide` says of one study of this folder."""

    study: str
    decision: Decision
    power: Mapping[str, float | None]
    """Claim -> the chance of support that `ablate register` computed before the runs were imported."""
    refused: bool
    """Whether `ablate register` refused so few runs until it was given a reason."""

    @property
    def reasons(self) -> str:
        """The checks that forbid a verdict."""
        failed = [check for check in self.decision.checks if not check.passed and check.severity == "inadmissible"]
        # Found is "1: 40 runs were made before the registration: ARM seed 1; ...": a number, what, and which.
        return "; ".join(f"{check.name}: {check.found.split(': ')[1]}" for check in failed)


# --- what was published


def speedrun_claims() -> tuple[Claim, ...]:
    """Every published p of the speedrun whose losses are public, in the order of the records."""
    losses: dict[str, list[str]] = defaultdict(list)
    for row in read_rows("speedrun.csv"):
        losses[row["arm"]].append(row["val_loss"])
    return tuple(
        Claim(
            arm=row["arm"],
            date=row["date"],
            kind=cast("Kind", row["kind"]),
            target=float(row["target"]),
            printed_p=row["printed_p"],
            source=row["source"],
            losses=tuple(losses[row["arm"]]),
        )
        for row in read_rows("speedrun_claims.csv")
    )


# --- judged again


def judge(claims: Iterable[Claim]) -> tuple[Judged, ...]:
    """One-sample t of every claim against its target, as `ablate judge` does it, in the order of the claims."""
    # `judge_frame` leaves out seeds that one of the arms of a table lacks: a table holds arms of one size.
    by_size: dict[int, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_size[len(claim.losses)].append(claim)
    findings: dict[str, Finding] = {}
    for alike in by_size.values():
        rows = [
            {"arm": claim.arm, "seed": seed, "val_loss": float(loss)}
            for claim in alike
            for seed, loss in enumerate(claim.losses, start=1)
        ]
        texts = {
            claim.arm: {"claim": f"{claim.arm} lowers val_loss below {compact(claim.target)}", "smallest": 0}
            for claim in alike
        }
        judged = ablate.judge_frame(pd.DataFrame(rows), texts, alpha=ALPHA, correct="none").judged
        findings |= {finding.hypothesis: finding for finding in judged}
    return tuple(_judged(claim, findings[claim.arm]) for claim in claims)


def _judged(claim: Claim, finding: Finding) -> Judged:
    estimate, arm = finding.estimate, finding.arms[0]
    assert estimate is not None and estimate.interval is not None, finding
    low, high = estimate.interval.low, estimate.interval.high
    assert low is not None and high is not None and finding.p_support is not None and arm.sd is not None, finding
    assert finding.n == len(claim.losses), finding
    return Judged(
        claim=claim,
        p=finding.p_support,
        mean=arm.mean,
        sd=arm.sd,
        low=claim.target + low,
        high=claim.target + high,
        # "margin": one-sided at the level itself, as the rule tests.
        seeds_80=t_power.seeds_for("margin", BUFFER / arm.sd, ALPHA, 0.8),
    )


def with_holm(judged: Sequence[Judged]) -> tuple[Judged, ...]:
    """The same, the records of each target corrected together."""
    corrected: dict[str, float] = {}
    for target in {one.claim.target for one in judged}:
        records = [one for one in judged if one.claim.target == target and one.claim.kind == "record"]
        adjusted = holm([one.p for one in records])
        corrected |= {one.claim.arm: p for one, p in zip(records, adjusted, strict=True)}
    return tuple(Judged(**{**vars(one), "p_holm": corrected.get(one.claim.arm)}) for one in judged)


# --- the whole way of a study


def runs_of(study: str, claims: Sequence[Claim]) -> list[Run]:
    """Every run of a study of this folder about the speedrun."""
    arms = ablate.check(FOLDER / "studies" / f"{study}.yaml").study.arms
    return [
        Run(claim.arm, seed, int(str(dict(arms[claim.arm].config)["steps"])), claim.date, float(loss))
        for claim in claims
        if claim.arm in arms
        for seed, loss in enumerate(claim.losses, start=1)
    ]


def write_source(folder: Path, runs: Sequence[Run], metric: str) -> None:
    """What `ablate import` reads: the rows, and a manifest that says when the runs were made."""
    folder.mkdir(parents=True)
    with (folder / "metrics.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["variant", "seed", "step", "metric", "value"])
        writer.writerows([run.arm, run.seed, run.step, metric, run.value] for run in runs)
    # The times of single runs are not published: the day of the record is given for all of its runs.
    manifest = {
        "registration": "none: these runs were made and published before this registration",
        "runs": [
            {
                "variant": run.arm,
                "seed": run.seed,
                "started_at": f"{run.day}T00:00:00+00:00",
                "ended_at": f"{run.day}T00:00:00+00:00",
            }
            for run in runs
        ],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def decide(study: str, runs: Sequence[Run], root: Path, *, metric: str) -> Decided:
    """Register a study of this folder under `root`, import its runs as older than it, and decide it."""
    source, path = root / "published" / study, root / "studies" / f"{study}.yaml"
    write_source(source, runs, metric)
    path.parent.mkdir(exist_ok=True)
    shutil.copy(FOLDER / "studies" / path.name, path)
    workspace = Workspace(root=root)
    reason: str | None = None
    try:
        registration, _ = ablate.register(path, workspace=workspace)
    except UndecidableDesignError:
        reason = "the runs are published, and there are no more of them"
        registration, _ = ablate.register(path, workspace=workspace, accept_underpowered=reason)
    ablate.import_runs(path, source, note="public repository", exploratory=True, workspace=workspace)
    decision = ablate.decide(path, workspace=workspace).decision
    design = design_in_lock(registration)
    power = {} if design is None else {one.hypothesis: one.power for one in design.hypotheses}
    return Decided(study, decision, power, refused=reason is not None)


# --- the page


def page(judged: Sequence[Judged], decided: Sequence[Decided], comparisons: Sequence[Comparison]) -> str:
    """`README.md` of this folder."""
    records = [one for one in judged if one.claim.target == 3.28 and one.claim.kind == "record"]
    environment = Environment(  # noqa: S701 - Markdown, not HTML
        loader=FileSystemLoader(FOLDER), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"digits": digits, "listed": listed, "compact": compact}
    return environment.get_template("page.md.j2").render(
        judged=judged,
        records=records,
        medium=[one for one in judged if one.claim.target == 2.92 and one.claim.kind == "record"],
        others=[one for one in judged if one.claim.kind != "record"],
        decided=decided,
        alpha=ALPHA,
        buffer=BUFFER,
        pooled_sd=sqrt(sum((one.n - 1) * one.sd**2 for one in records) / sum(one.n - 1 for one in records)),
        comparisons=comparisons,
        printed=printed_numbers(),
        differences=printed_numbers("speedrun", "speedrun_pairs.csv"),
        all_seven=seven_seeds(),
        golf_sd=pooled_sd(),
        steps=step_records(),
        six=first_six(),
        sigma=SIGMA,
        steps_sd=sd_of_steps(),
        short_of_margin=[one for one in comparisons if -one.difference < one.margin],
    )


SPEEDRUN_STUDIES = ("speedrun-value-embed", "speedrun-sparse-bigram", "speedrun-mudd-1415")


def judge_all(root: Path) -> str:
    """The page, with the studies of this folder registered, imported and decided under `root`."""
    claims = speedrun_claims()
    judged = with_holm(judge(claims))
    decided = [decide(study, runs_of(study, claims), root, metric="val/loss") for study in SPEEDRUN_STUDIES]
    decided.append(decide("contest", runs_of_contest("contest"), root, metric="val/bits_per_byte"))
    return page(judged, decided, compared())


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave studies, runs and reports here: a new folder")
    keep: Path | None = parser.parse_args().keep
    if keep is not None:
        keep.mkdir(parents=True)
        text = judge_all(keep)
    else:
        with tempfile.TemporaryDirectory() as folder:
            text = judge_all(Path(folder))
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
