"""CAMPAIGNS: what is no campaign, and the field and words with which it is refused.

A row is one change of a campaign that is read as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from campaign_samples import campaign_document

from prereg.campaign.load import campaign_from_document, is_campaign, load_campaign
from prereg.errors import StudyError
from prereg.study.load import load_study
from prereg.yaml_model import yaml_text

Change = Callable[[dict[str, Any]], Any]

REFUSED: tuple[tuple[str, Change, str, str], ...] = (
    ("an unknown field", lambda d: d.update(metrik="val/loss"), "metrik", "did you mean 'metric'"),
    ("no error", lambda d: d.pop("error"), "error", "'error' is missing"),
    ("an error of no kind", lambda d: d.update(error={"alpha": 0.05}), "error.alpha", "unknown field 'alpha'"),
    (
        "an error above a tenth",
        lambda d: d.update(error={"any_false_keep": 0.2}),
        "error.any_false_keep",
        "at most 0.1",
    ),
    ("seeds in start", lambda d: d["start"].update(seeds=[1, 2]), "start.seeds", "leave seeds out"),
    ("a misspelt field in start", lambda d: d["start"].update(comand=[]), "start.comand", "did you mean 'command'"),
    (
        "a start whose command names no value",
        lambda d: d["start"].update(command=["{python}", "train.py", "--lr={rate}"]),
        "start.command[2]",
        "rate",
    ),
    ("a metric that nothing defines", lambda d: d.update(metric="score"), "metric", "which way 'score' improves"),
    ("the other way of a metric", lambda d: d.update(better="higher"), "better", "leave better out"),
    ("a log of the gain's scale", lambda d: d.update(scale="ln"), "scale", "'raw', 'log' or 'log10'"),
    (
        "a guardrail on the metric",
        lambda d: d.update(guardrails=[{"metric": "val/loss", "margin": 0.1}]),
        "guardrails[0].metric",
        "a gain above zero is no harm",
    ),
    (
        "a guardrail without a margin",
        lambda d: d.update(guardrails=[{"metric": "speed/tokens_per_s"}]),
        "guardrails[0].margin",
        "'margin' is missing",
    ),
    (
        "a guardrail of no direction",
        lambda d: d.update(guardrails=[{"metric": "memory", "margin": 1.0}]),
        "guardrails[0].metric",
        "better: lower",
    ),
    (
        "a guardrail twice",
        lambda d: d.update(guardrails=[{"metric": "memory", "margin": 1.0, "better": "lower"}] * 2),
        "guardrails",
        "given twice",
    ),
    ("stages that do not ascend", lambda d: d.update(stages={"seeds": [2, 8, 4]}), "stages.seeds", "[2, 4, 8]"),
    ("a stage of one seed", lambda d: d.update(stages={"seeds": [1, 4]}), "stages.seeds[0]", "at least 2"),
    (
        "futility of the last stage",
        lambda d: d.update(stages={"seeds": [2, 4], "futility": [0.5, 0.5]}),
        "stages.futility",
        "one for each stage but the last",
    ),
    (
        "a keep at two seeds",
        lambda d: d.update(stages={"seeds": [2, 4], "spending": "pocock"}),
        "stages.seeds",
        "three seeds or more",
    ),
    (
        "a budget below one stage",
        lambda d: d.update(budget={"proposals": 10, "runs": 4}, stages={"seeds": [4, 8]}),
        "budget.runs",
        "at least 8",
    ),
    ("no number of proposals", lambda d: d.update(budget={"runs": 400}), "budget.proposals", "is missing"),
    (
        "beliefs about another metric",
        lambda d: d.update(assume={"metrics": {"val/los": {"sd": 0.1}}}),
        "assume.metrics.val/los",
        "did you mean 'val/loss'",
    ),
)


@pytest.mark.parametrize(("change", "field", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_no_campaign_is_refused_at_its_field(change: Change, field: str, words: str) -> None:
    document = campaign_document()
    change(document)
    with pytest.raises(StudyError) as raised:
        campaign_from_document(document)
    assert str(raised.value.where).endswith(field)
    assert words in raised.value.text()


def test_a_campaign_of_the_built_in_trainer_reads_its_metrics() -> None:
    document = campaign_document()
    document["start"] = {"base": {"data": {"corpus": "toy"}}}
    document["guardrails"] = [{"metric": "val/accuracy", "margin": 0.01}]
    campaign = campaign_from_document(document)
    assert campaign.lower_is_better("val/loss") and not campaign.lower_is_better("val/accuracy")
    document["metric"] = "val/los"
    with pytest.raises(StudyError, match=r"did you mean 'val/loss'"):
        campaign_from_document(document)


def test_a_stored_campaign_reads_as_itself() -> None:
    campaign = campaign_from_document(campaign_document())
    assert campaign_from_document(campaign.model_dump(mode="json")) == campaign


def test_a_file_is_read_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "night.yaml"
    path.write_text(yaml_text(campaign_document()))
    loaded = load_campaign(path)
    assert is_campaign(path)
    assert loaded.campaign.campaign == "night"
    assert path.read_text().splitlines()[(loaded.line(("smallest",)) or 0) - 1].startswith("smallest:")
    path.write_text(path.read_text().replace("smallest: 0.002", "smallest: two"))
    with pytest.raises(StudyError) as raised:
        load_campaign(path)
    assert raised.value.where.line == loaded.line(("smallest",))
    other = tmp_path / "day.yaml"
    other.write_text(yaml_text(campaign_document()))
    with pytest.raises(StudyError, match="campaign: day"):
        load_campaign(other)


def test_a_campaign_is_no_study(tmp_path: Path) -> None:
    path = tmp_path / "night.yaml"
    path.write_text(yaml_text(campaign_document()))
    with pytest.raises(StudyError, match="a campaign, not a study") as raised:
        load_study(path)
    assert raised.value.where.line == 1


def test_a_study_is_no_campaign(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("study: one\n")
    assert not is_campaign(path)
    with pytest.raises(StudyError, match="a study, not a campaign"):
        load_campaign(path)
