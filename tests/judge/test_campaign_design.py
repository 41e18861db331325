"""What a campaign can find: by simulation of the procedure, and what the command says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign_samples import a_campaign, campaign_document
from typer.testing import CliRunner

from ablate.cli import app
from ablate.judge.campaign.design import design_campaign
from ablate.judge.campaign.procedure import decide_proposal, open_proposal
from ablate.judge.campaign.simulate import World, simulate_campaigns
from prereg.campaign.history import EndedProposal
from prereg.errors import StudyError
from prereg.yaml_model import yaml_text

BELIEVED: dict[str, Any] = {
    "stages": {"seeds": [3, 6], "futility": [0.3]},
    "budget": {"proposals": 20, "runs": 200},
    "assume": {"metrics": {"val/loss": {"sd": 0.002, "correlation": 0.5}}, "gain": 0.008, "useful": [0.2]},
}


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "night.yaml"
    path.write_text(yaml_text(campaign_document(**(BELIEVED | changes))))
    return path


def test_a_simulated_campaign_is_what_its_proposals_are_one_by_one() -> None:
    # The same draws, decided by the function that decides real proposals, with a budget that runs out.
    campaign = a_campaign(**(BELIEVED | {"budget": {"proposals": 20, "runs": 90}}), error={"false_discovery_rate": 0.2})
    world = World(0.5, 0.008, 0.002)
    simulated = simulate_campaigns(campaign, world, 5, np.random.default_rng(4))
    rng, seeds = np.random.default_rng(4), campaign.stages.seeds
    histories: list[list[EndedProposal]] = [[] for _ in range(5)]
    runs, keeps = [0] * 5, [0] * 5
    for _ in range(campaign.budget.proposals):
        gain = np.where(rng.random(5) < world.useful, world.gain, 0.0)
        x = gain[:, None] + world.sd * rng.standard_normal((5, seeds[-1]))
        for at, history in enumerate(histories):
            if open_proposal(campaign, history).refused is not None:
                continue
            for n in seeds:
                decision = decide_proposal(campaign, history, (-x[at, :n]).tolist(), {})
                if decision.ended is not None:
                    runs[at] += 2 * n
                    keeps[at] += decision.outcome == "keep"
                    history.append(decision.ended)
                    break
    assert simulated.n_runs.tolist() == runs
    assert (simulated.true_keeps + simulated.false_keeps).tolist() == keeps
    assert simulated.n_proposals.tolist() == [len(history) for history in histories]
    assert max(runs) <= 90 and sum(keeps) > 5


def test_useful_changes_are_kept_and_their_estimates_are_too_large() -> None:
    design = design_campaign(a_campaign(**BELIEVED), n_campaigns=400)
    (scenario,) = design.scenarios
    assert design.first_level == 0.05 / 20
    assert scenario.any_false_keep.mean <= 0.05 + 4 * scenario.any_false_keep.se
    assert 0.9 < scenario.true_keeps.mean / scenario.useful_proposals < 1.0
    assert scenario.estimated_gain > scenario.true_gain.mean
    assert scenario.true_gain.mean < scenario.possible_gain


def test_a_guardrail_that_every_change_violates_is_falsely_kept_no_more_often() -> None:
    memory = {"metric": "memory", "margin": 1.0, "better": "lower"}
    campaign = a_campaign(**BELIEVED, guardrails=[memory])
    simulated = simulate_campaigns(
        campaign, World(1.0, 0.02, 0.002, guardrail_sds=(0.5,), worsens=1.0), 2_000, np.random.default_rng(5)
    )
    rate = simulated.any_false_keep.mean()
    assert 0.02 < rate < 0.05 + 4 * (0.05 * 0.95 / 2_000) ** 0.5
    assert not simulated.true_keeps.any()


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"assume": {"gain": 0.01}}, "assume.metrics", "nothing is assumed of val/loss"),
        (
            {"smallest": 0.0, "assume": {"metrics": {"val/loss": {"sd": 0.1}}}},
            "assume.gain",
            "no gain of a useful change",
        ),
        (
            {"guardrails": [{"metric": "memory", "margin": 1.0, "better": "lower"}]},
            "assume.metrics",
            "nothing is assumed of memory",
        ),
    ],
)
def test_what_cannot_be_simulated_is_refused(changes: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(StudyError, match=words) as raised:
        design_campaign(a_campaign(**(BELIEVED | changes)))
    assert str(raised.value.where) == field


@pytest.mark.slow
def test_the_command_prints_a_campaign_in_80_columns_and_as_json(tmp_path: Path) -> None:
    path = written(tmp_path)
    shown = CliRunner().invoke(app, ["design", str(path)], env={"COLUMNS": "80"})
    assert shown.exit_code == 0, shown.output
    assert max(map(len, shown.output.splitlines())) <= 80
    assert "up to 20 proposals, 200 runs, any false keep at most 0.05" in shown.output
    facts = json.loads(CliRunner().invoke(app, ["design", str(path), "--json"]).output)
    assert facts == design_campaign(a_campaign(**BELIEVED)).model_dump(mode="json")
    mistaken = CliRunner().invoke(app, ["design", str(written(tmp_path, error={"any_false_keep": 0.5}))])
    assert isinstance(mistaken.exception, StudyError)
    assert mistaken.exception.where.file == path and "error.any_false_keep" in mistaken.exception.text()
