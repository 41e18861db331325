"""What a search for seeds wins in a campaign, by the rule without nonces and by the rule with them.

    nice python tests/campaign_seed_search.py                   # writes reports/campaigns/seed-search.md

The trainer is deterministic: its loss is a standard normal number that follows from seed and knob, and the knob has no
effect. So every keep is false, and no confirmation should confirm. Somebody who can compute the seeds of a proposal
tries values of the knob, without a run of the campaign, until one would be kept, and proposes that one. Before a
confirmation he registers campaigns that nobody needs until the seeds confirm.

The searches go through the functions that derive real seeds (`prereg.campaign.record`) and decide real proposals
(`ablate.judge.campaign.procedure`). Where a nonce is drawn, the search is the same one, by the rule without it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from statistics import median_low as median

import numpy as np
from campaign_samples import a_campaign

from ablate.judge.campaign.procedure import decide_proposal, judge_stage, open_proposal
from ablate.judge.stats.significance_tests import PairedT
from prereg.campaign.history import EndedProposal
from prereg.campaign.record import content_of, seeds_of_confirmation, seeds_of_proposal
from prereg.campaign.spec import Campaign
from prereg.registry.canon import sha256_bytes

PAGE = Path(__file__).resolve().parents[1] / "reports" / "campaigns" / "seed-search.md"
BEST = 0
"""The knob of the start; of the best too, because only the knob differs."""
BEFORE, AFTER = 200, 5_000
"""Simulated campaigns, and confirmations, of the rule without nonces and of the rule with them. Fewer of the first:
every one gives the same answer."""
MOST_TRIES = 5_000
AT_ONCE = 20
"""Knobs that are tried in one call, which takes no longer than one."""
STAGES = (2, 4, 8)


def loss(seed: int, knob: int) -> float:
    """Return the loss of a run: noise that follows from seed and knob, and nothing else."""
    uniform = int.from_bytes(sha256(f"{seed} {knob}".encode()).digest()[:8]) / 2.0**64
    return NormalDist().inv_cdf(min(max(uniform, 1e-12), 1.0 - 1e-12))


def campaign_of_three() -> Campaign:
    """Return a campaign of three proposals whose budget pays every stage."""
    return a_campaign(
        smallest=0.0, stages={"seeds": list(STAGES), "futility": [0.5, 0.2]}, budget={"proposals": 3, "runs": 48}
    )


def end_of(campaign: Campaign, history: list[EndedProposal], seeds: tuple[int, ...], knob: int) -> EndedProposal:
    """Return how a proposal of the knob ends on these seeds."""
    for n in campaign.stages.seeds:
        differences = [loss(seed, knob) - loss(seed, BEST) for seed in seeds[:n]]
        ended = decide_proposal(campaign, history, differences, {}).ended
        if ended is not None:
            return ended
    raise AssertionError("the last stage ends every proposal")


def would_be_kept(
    campaign: Campaign, levels: tuple[float, ...], seeds: list[tuple[int, ...]], knobs: list[int]
) -> list[bool]:
    """Return of each knob whether it would be kept on its seeds: `end_of` of many proposals at once."""
    gains = np.array(
        [[loss(seed, BEST) - loss(seed, knob) for seed in of] for of, knob in zip(seeds, knobs, strict=True)]
    )
    is_kept, is_open = np.zeros(len(knobs), dtype=bool), np.ones(len(knobs), dtype=bool)
    for stage, n in enumerate(campaign.stages.seeds):
        rows = judge_stage(campaign, stage, gains[:, :n], [], levels[stage])
        is_kept |= is_open & rows.keeps
        is_open &= ~rows.keeps & ~rows.drops
    return [bool(kept) for kept in is_kept]


@dataclass(frozen=True)
class SeedsOfNext:
    """What is known before a proposal, and the seeds that follow from it."""

    number: int
    head: str
    used: frozenset[int]

    def of(self, knob: int, nonce: str | None) -> tuple[int, ...]:
        """Return the seeds of a proposal of the knob, as `ablate propose` derives them."""
        return seeds_of_proposal(
            "registration",
            self.number,
            head=self.head,
            content=content_of("code", {"knob": knob}),
            nonce=nonce,
            n_seeds=STAGES[-1],
            used=self.used,
        )


def knob_that_wins(campaign: Campaign, history: list[EndedProposal], seeds: SeedsOfNext) -> tuple[int, int]:
    """Return the first knob that would be kept by the rule without a nonce, and how many were tried."""
    levels = open_proposal(campaign, history).stage_levels
    for first in range(1, MOST_TRIES, AT_ONCE):
        tries = range(first, first + AT_ONCE)
        knobs = [1_000 * len(history) + n for n in tries]
        kept = would_be_kept(campaign, levels, [seeds.of(knob, nonce=None) for knob in knobs], knobs)
        if any(kept):
            at = kept.index(True)
            return knobs[at], tries[at]
    raise AssertionError(f"no knob of {MOST_TRIES} wins")


@dataclass(frozen=True)
class Searched:
    """A campaign whose every proposal was searched for."""

    kept: int
    """Kept proposals, of three without any effect."""
    tries: tuple[int, ...]
    """Knobs that were tried for each."""


def searched_campaign(number: int, rng: np.random.Generator, *, has_nonces: bool) -> Searched:
    """Propose three times, each time the first knob that wins by the rule without a nonce."""
    campaign, history, used, tries = campaign_of_three(), list[EndedProposal](), frozenset[int](), list[int]()
    for _ in range(3):
        head = sha256_bytes(f"{number} {len(history)}".encode())
        following = SeedsOfNext(len(history) + 1, head, used)
        knob, n = knob_that_wins(campaign, history, following)
        nonce = rng.bytes(16).hex() if has_nonces else None
        seeds = following.of(knob, nonce)
        history.append(end_of(campaign, history, seeds, knob))
        used |= frozenset(seeds)
        tries.append(n)
    return Searched(sum(each.end == "keep" for each in history), tuple(tries))


def confirms(seeds: tuple[int, ...], knob: int) -> bool:
    """Return True where the gain is above zero by a two-sided paired t at .05, as a confirmation asks."""
    gains = np.array([[loss(seed, BEST) - loss(seed, knob) for seed in seeds]])
    return bool(PairedT(gains).p(0.0, "greater")[0] <= 0.025)


def searched_confirmation(number: int, rng: np.random.Generator, *, has_nonces: bool) -> tuple[bool, int]:
    """Register campaigns that nobody needs until the confirmation would confirm by the rule without a nonce, and then
    confirm; return the answer, and how many campaigns were registered."""

    def seeds_after(dummies: int, nonce: str | None) -> tuple[int, ...]:
        head = sha256_bytes(f"{number} {dummies} dummies".encode())
        return seeds_of_confirmation(
            "registration", 1, head=head, best_sha256="best", nonce=nonce, n_seeds=8, used=frozenset()
        )

    dummies = next(n for n in count() if confirms(seeds_after(n, None), knob=number + 1))
    nonce = rng.bytes(16).hex() if has_nonces else None
    return confirms(seeds_after(dummies, nonce), knob=number + 1), dummies


@dataclass(frozen=True)
class Outcome:
    """What one rule gives to somebody who searches."""

    rule: str
    any_false_keep: tuple[float, int]
    """Share of campaigns with a false keep, and how many campaigns."""
    kept: tuple[float, int]
    """Share of proposals without effect that were kept, and how many."""
    confirmed: tuple[float, int]
    """Share of bests without a gain that were confirmed, and how many."""

    tries: tuple[int, ...]
    """Knobs that were tried for each proposal."""
    dummies: tuple[int, ...]
    """Campaigns that were registered before each confirmation."""


def outcome(rule: str, *, has_nonces: bool, n: int) -> Outcome:
    """Return what `n` campaigns and `n` confirmations give under one rule."""
    rng = np.random.default_rng(20261129)
    ends = [searched_campaign(number, rng, has_nonces=has_nonces) for number in range(n)]
    answers = [searched_confirmation(number, rng, has_nonces=has_nonces) for number in range(n)]
    return Outcome(
        rule,
        (sum(each.kept > 0 for each in ends) / n, n),
        (sum(each.kept for each in ends) / (3 * n), 3 * n),
        (sum(confirmed for confirmed, _ in answers) / n, n),
        tuple(tries for each in ends for tries in each.tries),
        tuple(dummies for _, dummies in answers),
    )


def with_error(share: tuple[float, int]) -> str:
    """Return a share with its binomial standard error and n."""
    p, n = share
    return f"{p:.3f} ± {sqrt(p * (1.0 - p) / n):.3f} (n = {n:,})"


HEAD = """# Seeds that can be searched for, and seeds that cannot

Written by `nice python tests/campaign_seed_search.py`; do not edit. Numbers depend on no machine.

Campaigns of three proposals, any false keep at most .05. The trainer is deterministic, and what is proposed has no
effect, so that every keep is false. Before each proposal knob values are tried without a run of the campaign, until one
would be kept by seeds that follow from what is known; before a confirmation of 8 pairs campaigns that nobody needs are
registered until its seeds would confirm. ± is the standard error.

| seeds follow from | campaigns with a false keep | null proposals kept | nulls confirmed (chance .025) |
|---|---|---|---|"""
TAIL = """
The search took {tries} knob values for a proposal and {dummies} registered campaigns for a confirmation (medians of the
first row). With nonces it is the same search, by the rule without them.

What a nonce does not stop: after a ledger was rolled back (`git reset`, a copy put back) another nonce is drawn, and
where nobody else has the later ledger nothing shows it. Nor does anything show a nonce that somebody chose who writes
the ledger with a program of his own."""


def main() -> None:
    """Measure both rules, and write the page."""
    before = outcome("what is known before", has_nonces=False, n=BEFORE)
    after = outcome("a nonce as well", has_nonces=True, n=AFTER)
    rows = [
        f"| {each.rule} | {with_error(each.any_false_keep)} | {with_error(each.kept)} | {with_error(each.confirmed)} |"
        for each in (before, after)
    ]
    tail = TAIL.format(tries=median(before.tries), dummies=median(before.dummies))
    lines = [*HEAD.split("\n"), *rows, *tail.split("\n"), ""]
    PAGE.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
