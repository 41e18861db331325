"""The campaign agent-night: its truths, and the page about it against ledger, transcript and committed evidence."""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ablate.judge.campaign.procedure import ProposalDecision
from prereg.campaign.load import load_campaign
from prereg.campaign.record import CampaignRecord, campaign_faults, campaign_record
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.study.arms import configured
from prereg.study.training import Training

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ROOT / "reports" / "agent-night"


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts of the folder import each other by name."""
    monkeypatch.syspath_prepend(ROOT / "examples" / "agent")


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


def record() -> CampaignRecord:
    entries = Ledger(ROOT / "studies" / "ledger.jsonl").entries()
    assert not campaign_faults(entries, "agent-night")
    made = campaign_record(entries, "agent-night")
    assert made is not None
    return made


def transcript() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (REPORTS / "transcript.jsonl").read_text(encoding="utf-8").splitlines()]


def test_thirty_proposals_fit_the_start_and_one_in_every_five_repairs_it() -> None:
    proposals = script("proposals")
    ordered = proposals.in_order()
    assert Counter(each.truth for each in ordered) == {
        **{"useful": 6, "no-op": 6, "rounding": 4},
        **{"a little less": 6, "harmful": 8},
    }
    assert [sum(each.truth == "useful" for each in ordered[at : at + 5]) for at in range(0, 30, 5)] == [1] * 6
    probe = load_campaign(ROOT / "campaigns" / "agent-night.yaml").campaign.probe
    changed = set()
    for each in ordered:
        values = {
            path: [0.98 if part == proposals.BEST else part for part in value] if isinstance(value, list) else value
            for path, value in each.change.items()
        }
        config, _ = configured(probe.base, values, dict.fromkeys(values, ("base",)))
        assert isinstance(config, Training)
        changed.add(config.model_dump_json())
    assert len(changed) == 30


def test_the_ledger_holds_what_the_agent_proposed_and_was_answered() -> None:
    calls = transcript()
    ends = {
        call["answer"]["number"]: call["answer"]
        for call in calls
        if call["tool"] in ("propose", "decide") and call["answer"].get("answer") in ("keep", "drop")
    }
    proposals = record().proposals
    assert [each.entry.number for each in proposals] == list(range(1, 31)) == sorted(ends)
    for each in proposals:
        assert each.end is not None and each.entry.by == "agent-night 1"
        answer = ends[each.entry.number]
        assert answer["answer"] == each.end.outcome
        assert answer["decision"] == json.loads(json.dumps(each.end.decision)), each.entry.number
        assert tuple(answer["seeds"]) == each.entry.seeds
    # Nothing of a result was shown while a proposal was open.
    for call in calls:
        if call["answer"].get("answer") == "running":
            assert not {"decision", "total_gain", "best", "estimated_gain"} & call["answer"].keys()


def test_the_headline_of_the_page_follows_from_ledger_and_transcript() -> None:
    page = (REPORTS / "README.md").read_text(encoding="utf-8")
    truths = [each.truth for each in script("proposals").in_order()]
    n_kept_by_truth = Counter(truths[each.entry.number - 1] for each in record().kept)
    n_false = sum(n_kept_by_truth.values()) - n_kept_by_truth["useful"]
    assert f"**Kept: {n_kept_by_truth['useful']} of 6 useful changes, {n_false} of 24 others.**" in page
    # The confirmation as it was answered, and the estimates as the ledger has them.
    confirmed = [call["answer"] for call in transcript() if call["tool"] == "confirm"][-1]
    total = confirmed["total_gain"]
    assert f"**Total gain: {total['gain']:.3f} nats**" in page
    assert f"interval {total['low']:.3f} to {total['high']:.3f}" in page
    decisions = [
        ProposalDecision.model_validate(each.end.decision, strict=False)
        for each in record().kept
        if each.end is not None
    ]
    estimates = sum(decision.parts[0].improvement for decision in decisions)
    assert f"The sum of the kept estimates is {estimates:.3f}" in page
    (n_runs,) = re.findall(r"\*\*(\d+) runs for thirty proposals", page)
    assert int(n_runs) == sum(2 * each.end.seeds for each in record().proposals if each.end)


@pytest.mark.slow
def test_the_page_is_the_one_that_ledger_transcript_and_evidence_give() -> None:
    assert script("page").page(Root(ROOT)) == (REPORTS / "README.md").read_text(encoding="utf-8")
