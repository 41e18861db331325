"""Writes reports/agent-night/README.md from ledger, transcript, confirmation and runs.

    python examples/agent/page.py

Runs are those of data/runs or, in a clone, of the committed evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from proposals import BEST, Proposal, Truth, in_order

from ablate.judge.campaign.confirmation import sum_of_kept, total_gain
from ablate.judge.campaign.procedure import ProposalDecision
from ablate.judge.readings import read_values
from ablate.judge.verdict import Decision
from ablate.records.gather import gather
from ablate.verification.evidence import committed_evidence
from prereg.campaign.history import runs_of
from prereg.campaign.record import BegunProposal, CampaignRecord, campaign_record
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.registration import load_registration
from prereg.text import listed

ROOT = Path(__file__).resolve().parents[2]
NAME = "agent-night"
KINDS: tuple[Truth, ...] = ("useful", "no-op", "rounding", "a little less", "harmful")


PAGE = """\
# An agent that proposed thirty changes, six of them useful

Written by `python examples/agent/page.py` from ledger, transcript, confirmation and runs; do not edit.

A scripted agent ([examples/agent](../../examples/agent/README.md)) proposed thirty changes of a small GPT over the
Model Context Protocol, to `ablate mcp campaigns/agent-night.yaml`. The start is poor on purpose in six settings, so six
proposals are useful by construction; 24 are no-ops, take a little away, or harm. Campaign, truths and order were
committed before the first run. The campaign promises that the chance of any false keep is at most 5%.

## In short

- **Kept: {n_kept} of 6 useful changes, {n_false} of 24 others.**{missed}{false}
- **Total gain: {total.gain:.3f} nats**, {level} interval {total.low:.3f} to {total.high:.3f}, best against start at
  {total.n_seeds} new seeds; the confirmation's verdict: {verdict}. The sum of the kept estimates is {estimates:.3f},
  which selection makes too large in the mean.
- **{n_proposed} runs for thirty proposals, {n_confirming} for the confirmation**, in {time} by the clock
  ({proposing_time} without the confirmation), on two cores shared with other work (load averages {loads}); it took
  {processor} of a processor.
- Keeping what is lower in one run of each side would have kept {other_seeds} of the 24 others in the
  mean where the two have other seeds, and {one_seed} where they share it, read off the same runs.

## By truth

{by_truth}

*One run each*: how many would be kept in the mean if one run of the proposal were compared with one of the best, and
what is lower kept. A no-op has the same bits as the best on the same seed, so nothing is lower there. Three changes of
*rounding* were lower on every seed, by a thousandth of a nat or less, at p below the level of a keep: real and
worthless, which is what `smallest` is for.

## Every proposal

Against the best so far, which after each keep is another. Estimated gain in val/loss, in nats, on the runs that
decided; p: the largest one-sided p of gain and guardrail at the last stage seen; *lower in*: pairs with the lower loss.

{every_proposal}

## What an impatient agent tries

{n_calls} calls in all. While the first proposal was open the agent was answered `running`, with the health of the runs
and nothing of their results. Refused were another proposal meanwhile, a confirmation, a look at the report, and what
had been tried or kept before:

{refusals}

## What is here, and how to check it

| | |
|---|---|
| [transcript.jsonl](transcript.jsonl) | {n_lines} lines: every call and answer, with time, seconds and load |
| [evidence.ablate.zip](evidence.ablate.zip) | the sealed records of all runs, without weights |
| [campaign.md](campaign.md) | the page that `ablate report campaigns/agent-night.yaml` writes |
| [design.txt](design.txt) | what `ablate design` said before the first run |
| [the confirmation](../{study}/report.md) | its report |
| `studies/agent-night-p*.yaml` | the studies of the proposals, with lock and registration |

`ablate verify campaigns/agent-night.yaml` derives every study again and decides every proposal again from the
evidence; `python -m pytest tests/docs/test_agent_example.py` holds this page against ledger and transcript.

## Limits

- **It was easier than meant.** The learning rate came last, by the seed of the order. Until it is repaired, runs of one
  seed differ little: the paired differences of what takes *a little less* had SDs of {largest_sd} at most, against 0.02
  to 0.05 in exploratory runs at the repaired best ([LOG](../LOG.md)). So noise had hardly a chance to be kept, and that
  nothing was kept falsely here estimates no error rate: [reports/campaigns](../campaigns/README.md) simulates those.
- The useful changes repair faults that were made, and gain more than two SDs of their paired differences.
- The agent is a script, which learns nothing from answers but the momentum of the best.
- That what takes *a little less* cannot help is an argument: true effects as small as these no campaign of this size
  can show.
"""


@dataclass(frozen=True)
class Row:
    """A proposal with its truth and its end."""

    planned: Proposal
    begun: BegunProposal
    losses: tuple[tuple[float, float], ...]
    """val/loss of best and proposal, a pair each."""

    @property
    def decision(self) -> ProposalDecision:
        """The decision that ended it."""
        assert self.begun.end is not None and self.begun.end.decision is not None, self.begun.entry
        return ProposalDecision.model_validate(self.begun.end.decision, strict=False)

    @property
    def was_kept(self) -> bool:
        """Whether the change was taken on."""
        return self.decision.outcome == "keep"

    @property
    def gains(self) -> tuple[float, ...]:
        """Best minus proposal, a pair each."""
        return tuple(best - proposal for best, proposal in self.losses)

    @property
    def n_lower(self) -> int:
        """Pairs in which the proposal had the lower loss."""
        return sum(gain > 0 for gain in self.gains)

    def lower(self, *, same_seed: bool) -> float:
        """How often a run of the proposal had a lower loss than one of the best, of the same seed or of another."""
        numbers = range(len(self.losses))
        pairs = [(i, j) for i in numbers for j in numbers if (i == j) is same_seed]
        return mean(self.losses[i][1] < self.losses[j][0] for i, j in pairs)


def transcript_of(root: Path) -> list[dict[str, Any]]:
    """Every call and its answer."""
    lines = (root / "reports" / NAME / "transcript.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def rows_of(root: Root, record: CampaignRecord) -> Iterator[Row]:
    """The proposals of the campaign next to those of the list. Raises `AssertionError` where they differ."""
    for planned, begun in zip(in_order(), record.proposals, strict=True):
        settings = {path: json.loads(json.dumps(value)) for path, value in planned.change.items()}
        proposed = begun.entry.change.settings
        assert settings.keys() == proposed.keys(), (settings, proposed)
        # What the agent reads off the best stays open in the list.
        assert all(BEST in str(value) or value == proposed[path] for path, value in settings.items()), proposed
        registration = load_registration(root, begun.entry.run_as)
        assert registration is not None and begun.end is not None, begun.entry
        values = read_values(registration.study, "gain", gather(root, registration))
        seeds = begun.entry.seeds[: begun.end.seeds]
        yield Row(planned, begun, tuple((values["best", seed], values["proposal", seed]) for seed in seeds))


def duration(seconds: float) -> str:
    """Minutes, rounded."""
    return f"{seconds / 60:.0f} minutes"


def seconds_of(lines: Sequence[dict[str, Any]]) -> float:
    """From the first call to the last answer."""
    first, last = (datetime.fromisoformat(lines[at]["at"]) for at in (0, -1))
    return (last - first + timedelta(seconds=lines[0]["seconds"])).total_seconds()


def by_truth(rows: Sequence[Row]) -> Iterator[str]:
    """The table of what was kept."""
    yield "| truth | proposals | kept | one run each, same seed | one each, other seeds | SD of paired differences |"
    yield "|---|---|---|---|---|---|"
    for kind in KINDS:
        mine = [row for row in rows if row.planned.truth == kind]
        sds = [stdev(row.gains) for row in mine]
        yield (
            f"| {kind} | {len(mine)} | {sum(row.was_kept for row in mine)} | {kept_by_one(mine, same_seed=True)} | "
            f"{kept_by_one(mine, same_seed=False)} | {min(sds):.4f} to {max(sds):.4f} |"
        )


def kept_by_one(rows: Sequence[Row], *, same_seed: bool) -> str:
    """How many proposals would be kept in the mean for being lower in one run each."""
    return f"{sum(row.lower(same_seed=same_seed) for row in rows):.1f}"


def every_proposal(rows: Sequence[Row]) -> Iterator[str]:
    """The table of all proposals."""
    yield "| # | change | truth | answer | pairs | estimated gain | p | lower in | why its truth is known |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        decision = row.decision
        change = ", ".join(f"`{path}: {json.dumps(value)}`" for path, value in row.begun.entry.change.settings.items())
        answer = "**keep**" if row.was_kept else f"{decision.outcome} ({decision.reason.replace('_', ' ')})"
        yield (
            f"| {decision.number} | {change} | {row.planned.truth} | {answer} | {decision.n_seeds} | "
            f"{mean(row.gains):+.4f} | {decision.p:.2g} | {row.n_lower} of {len(row.gains)} | {row.planned.because} |"
        )


def refusals(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The table of what was refused."""
    yield "| call | refused because |"
    yield "|---|---|"
    for line in lines:
        if errors := line["answer"].get("errors"):
            words = ", ".join(f"{name}: {json.dumps(value)}" for name, value in line["arguments"].items())
            yield f"| `{line['tool']}` {words} | {errors[0]['found']} |"


def page(root: Root) -> str:
    """The whole page."""
    entries = Ledger(root.ledger).entries()
    record = campaign_record(entries, NAME)
    assert record is not None
    with committed_evidence(root, NAME, entries) as evidence:
        rows = list(rows_of(evidence.root, record))
    lines = transcript_of(root.path)
    useful = [row for row in rows if row.planned.truth == "useful"]
    others = [row for row in rows if row.planned.truth != "useful"]
    missed = [row for row in useful if not row.was_kept]
    false = [row for row in others if row.was_kept]
    (confirmation,) = record.confirmations
    study = confirmation.entry.run_as
    verdict = Decision.model_validate_json((root.report(study) / "verdict.json").read_bytes())
    total = total_gain(record, verdict)
    assert total is not None and total.low is not None and total.high is not None and total.level is not None
    estimates = sum_of_kept(record, len(rows))
    largest = max(stdev(row.gains) for row in others if row.planned.truth == "a little less")
    calls = [line for line in lines if line["tool"] != "disconnect"]
    # The last call before the confirmation ends the campaign's part.
    ends = max(at for at, line in enumerate(lines) if line["tool"] == "history")
    loads = [line["load"] for line in lines]
    return PAGE.format(
        n_kept=len(useful) - len(missed),
        missed=f" Missed: {listed(row.planned.name for row in missed)}." if missed else "",
        n_false=len(false),
        false=f" Kept falsely: {listed(row.planned.name for row in false)}." if false else "",
        total=total,
        level=f"{total.level:.0%}",
        verdict=verdict.verdict,
        estimates=estimates,
        n_proposed=runs_of(record.history),
        n_confirming=2 * len(confirmation.entry.seeds),
        time=duration(seconds_of(lines)),
        proposing_time=duration(seconds_of(lines[: ends + 1])),
        loads=f"{min(loads)} to {max(loads)}",
        processor=duration(lines[-1]["answer"]["processor_s"]),
        one_seed=kept_by_one(others, same_seed=True),
        other_seeds=kept_by_one(others, same_seed=False),
        largest_sd=f"{largest:.3f}",
        by_truth="\n".join(by_truth(rows)),
        every_proposal="\n".join(every_proposal(rows)),
        n_calls=len(calls),
        refusals="\n".join(refusals(lines)),
        n_lines=len(lines),
        study=study,
    )


def main() -> None:
    """Write the page."""
    (ROOT / "reports" / NAME / "README.md").write_text(page(Root(ROOT)), encoding="utf-8")


if __name__ == "__main__":
    main()
