"""LIES about seeds of campaigns: seeds that are known before a proposal, and a nonce that is left out or made up.

`tests/campaign_seed_search.py` measures what the searches win; here they go through the commands.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_propose
import yaml
from campaign_samples import a_campaign
from campaign_seed_search import searched_campaign, searched_confirmation
from test_confirm import confirm
from test_propose import KILLED, Project, document

import ablate.confirming
import ablate.proposing
from ablate.cli.options import Exit
from prereg.campaign.record import (
    CampaignRecord,
    Setup,
    campaign_faults,
    campaign_record,
    campaign_sha256,
    content_of,
    seeds_of_confirmation,
    seeds_of_proposal,
)
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Change, OpenedEntry, ProposedEntry, StagedEntry

reporting, project = test_propose.reporting, test_propose.project  # the fixtures
NONCE = "0123456789abcdef" * 2


def opened(*, has_nonces: bool) -> OpenedEntry:
    """Return the entry that registers a campaign, of today or from before there were nonces."""
    promised = a_campaign().model_dump(mode="json")
    rule = "nonce" if has_nonces else None
    fields: dict[str, Any] = {"seeds_follow_from": rule} if has_nonces else {}
    return OpenedEntry(
        at="2026-11-29T12:00:00+00:00",
        study="night",
        registration=campaign_sha256(promised, "start", None, rule),
        file="campaigns/night.yaml",
        source_sha256="0" * 64,
        campaign=promised,
        start_sha256="start",
        **fields,
    )


def propose_by_hand(ledger: Ledger, registration: str, number: int, *, drawn: str | None, stated: str | None) -> None:
    """Append a proposal whose seeds follow from one nonce, and that states another, or none; then end it."""
    at = "2026-11-29T12:00:00+00:00"
    record = campaign_record(ledger.entries(), "night")
    assert record is not None
    seeds = seeds_of_proposal(
        registration,
        number,
        head=ledger.head(),
        content=f"content {number}",
        nonce=drawn,
        n_seeds=8,
        used=record.used_seeds,
    )
    fields: dict[str, Any] = {} if stated is None else {"nonce": stated}
    ledger.append(
        ProposedEntry(
            at=at,
            study="night",
            registration=registration,
            number=number,
            change=Change(commit=None, settings={"lr": 0.1 + number}),
            why="x",
            seeds=seeds,
            best_sha256=Setup().sha256,
            content_sha256=f"content {number}",
            run_as=f"night-p{number}",
            **fields,
        )
    )
    if not campaign_faults(ledger.entries(), "night"):
        ledger.append(
            StagedEntry(
                at=at,
                study="night",
                registration=registration,
                number=number,
                stage=1,
                seeds=2,
                outcome="drop",
                given_up="x",
            )
        )


# (whether the campaign is one of nonces; of each proposal the nonce of its seeds and the one it states; what is wrong)
BY_HAND = [
    (True, [(NONCE, NONCE)], ""),
    (True, [(None, None)], "proposal 1 of 'night' has no nonce"),
    (True, [(NONCE, None)], "proposal 1 of 'night' has no nonce"),
    (True, [(None, NONCE)], "the seeds of proposal 1 of 'night' do not follow"),
    (True, [("f" * 32, NONCE)], "the seeds of proposal 1 of 'night' do not follow"),
    # A campaign from before there were nonces goes on being what it was; but a nonce once is a nonce from then on.
    (False, [(None, None), (None, None)], ""),
    (False, [(None, None), (NONCE, NONCE)], ""),
    (False, [(NONCE, NONCE), (None, None)], "proposal 2 of 'night' has no nonce"),
]


@pytest.mark.parametrize(("has_nonces", "proposals", "fault"), BY_HAND)
def test_seeds_of_a_proposal_follow_from_a_nonce_that_nobody_can_leave_out(
    tmp_path: Path, has_nonces: bool, proposals: Sequence[tuple[str | None, str | None]], fault: str
) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    entry = opened(has_nonces=has_nonces)
    ledger.append(entry)
    for number, (drawn, stated) in enumerate(proposals, start=1):
        propose_by_hand(ledger, entry.registration, number, drawn=drawn, stated=stated)
    faults = campaign_faults(ledger.entries(), "night")
    assert [found for found in faults if not found.startswith(fault)] == []
    assert bool(faults) == bool(fault)


def test_the_promise_of_nonces_is_a_part_of_the_registration(tmp_path: Path) -> None:
    """Whoever takes it back in the ledger has another campaign than the one that was registered."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    entry = opened(has_nonces=True)
    ledger.append(opened(has_nonces=False).model_copy(update={"registration": entry.registration}))
    assert campaign_faults(ledger.entries(), "night") == [
        "the registration of 'night' is not the hash of what its entry promises"
    ]


def test_a_search_by_what_is_known_before_wins_nothing_where_a_nonce_is_drawn() -> None:
    rng = np.random.default_rng(1)
    assert [searched_campaign(number, rng, has_nonces=False).kept for number in range(3)] == [3, 3, 3]
    assert all(searched_confirmation(number, rng, has_nonces=False)[0] for number in range(5))
    # 1 proposal in 60 and 1 confirmation in 40 by chance: four standard errors above.
    assert sum(searched_campaign(number, rng, has_nonces=True).kept for number in range(20)) <= 5
    assert sum(searched_confirmation(number, rng, has_nonces=True)[0] for number in range(40)) <= 5


# The noise follows from seed and gain, and the gain has no effect: somebody can compute every run beforehand.
DETERMINISTIC = """
import json, os, random, sys
loss = random.Random(os.environ["ABLATE_SEED"] + " " + str(float(sys.argv[1]))).gauss(0.0, 1.0)
with open("metrics.jsonl", "w") as rows:
    rows.write(json.dumps({"step": 1, "metric": "val/loss", "value": loss}) + "\\n")
"""


def searchable(project: Project) -> None:
    (project.path / "train.py").write_text(DETERMINISTIC, encoding="utf-8")
    project.write(smallest=0.0, guardrails=[], stages={"seeds": [3, 5]}, budget={"proposals": 3, "runs": 30})


def record_of(project: Project) -> CampaignRecord:
    record = campaign_record(Ledger(project.path / "studies" / "ledger.jsonl").entries(), "night")
    assert record is not None
    return record


def losses(seeds: Sequence[int], gain: float) -> list[float]:
    # As DETERMINISTIC has them.
    return [random.Random(f"{seed} {gain}").gauss(0.0, 1.0) for seed in seeds]  # noqa: S311


def gain_that_wins(project: Project) -> tuple[float, tuple[int, ...]]:
    """Return the first gain that would be kept by seeds that follow from what is known, and these seeds."""
    from ablate.judge.campaign.procedure import decide_proposal

    record = record_of(project)
    head = Ledger(project.path / "studies" / "ledger.jsonl").head()
    for tries in range(1, 5_000):
        gain = tries / 1_000
        seeds = seeds_of_proposal(
            record.entry.registration,
            1,
            head=head,
            content=content_of(record.entry.start_sha256, {"gain": gain, "speed": 1.0}),
            nonce=None,
            n_seeds=5,
            used=(),
        )
        for n in (3, 5):
            differences = [a - b for a, b in zip(losses(seeds[:n], gain), losses(seeds[:n], 0.0), strict=True)]
            outcome = decide_proposal(record.campaign, [], differences, {}).outcome
            if outcome != "next_stage":
                break
        if outcome == "keep":
            return gain, seeds
    raise AssertionError("no gain wins")


@pytest.mark.slow
def test_a_change_without_effect_whose_seeds_were_searched_for_is_dropped(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    searchable(project)
    test_propose.ablate(project.monkeypatch, "register", project.campaign)
    project.capsys.readouterr()
    gain, seeds = gain_that_wins(project)
    monkeypatch.setattr(ablate.proposing, "draw_nonce", lambda: NONCE)
    code, answer = project.set(f"gain={gain}")
    assert (code, answer["answer"]) == (Exit.WORSE, "drop")
    assert not set(answer["seeds"]) & set(seeds)
    assert project.verify() == Exit.OK


@pytest.mark.slow
def test_the_seeds_of_a_confirmation_are_not_those_that_a_campaign_nobody_needs_would_give(project: Project) -> None:
    project.set("gain=0.3")
    other = project.path / "campaigns" / "dummy.yaml"
    other.write_text(yaml.safe_dump(document(campaign="dummy"), sort_keys=False), encoding="utf-8")
    test_propose.ablate(project.monkeypatch, "register", other)
    project.capsys.readouterr()
    record = record_of(project)
    expected = seeds_of_confirmation(
        record.entry.registration,
        1,
        head=Ledger(project.path / "studies" / "ledger.jsonl").head(),
        best_sha256=record.best.sha256,
        nonce=None,
        n_seeds=3,
        used=record.used_seeds,
    )
    _, answer = confirm(project, "--seeds", "3")
    assert not set(answer["seeds"]) & set(expected)
    (entry,) = (each.entry for each in record_of(project).confirmations)
    assert entry.nonce is not None and entry.seeds == tuple(answer["seeds"])
    assert project.verify() == Exit.OK


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "event"), [("propose", "proposed"), ("confirm", "confirming")])
def test_a_process_that_is_stopped_before_its_entry_has_left_no_seeds_and_one_after_it_keeps_its_nonce(
    project: Project, monkeypatch: pytest.MonkeyPatch, verb: str, event: str
) -> None:
    """Who could read seeds before they are on record would kill the process until he likes them."""
    name = "night-p1" if verb == "propose" else "night-confirm1"
    change = ["--set", "gain=0.3", "--why", "x"] if verb == "propose" else ["--seeds", "3"]
    if verb == "confirm":
        project.set("gain=0.3")

    def killed(when: str) -> None:
        words = [*map(str, (sys.executable, KILLED, event, 1, when)), verb, str(project.campaign), "--jobs", "1"]
        ended = subprocess.run([*words, *change], cwd=project.path, capture_output=True, check=False)
        assert ended.returncode == -signal.SIGKILL, ended.stderr

    killed("before")
    assert not list((project.path / "studies").glob(f"{name}*"))
    killed("after")
    record = record_of(project)
    (begun,) = record.proposals if verb == "propose" else record.confirmations

    def drawn_again() -> str:
        raise AssertionError("a second nonce")

    monkeypatch.setattr(ablate.proposing, "draw_nonce", drawn_again)
    monkeypatch.setattr(ablate.confirming, "draw_nonce", drawn_again)
    code, answer = project.propose() if verb == "propose" else confirm(project)
    assert code == Exit.OK and answer["seeds"] == list(begun.entry.seeds)
    assert project.verify() == Exit.OK
