"""`ablate report CAMPAIGN`: a page of every proposal, and the total gain next to the sum of the kept."""

from __future__ import annotations

import re

import pytest
import test_propose
from test_cli import ablate
from test_confirm import confirm
from test_propose import Project

from ablate.cli.options import Exit

reporting, project = test_propose.reporting, test_propose.project  # the fixtures


def report(project: Project) -> tuple[str, str]:
    """The two pages, as the command writes them."""
    assert ablate(project.monkeypatch, "report", project.campaign) == Exit.OK
    project.capsys.readouterr()
    folder = project.path / "reports" / "night"
    return tuple((folder / f"campaign.{form}").read_text(encoding="utf-8") for form in ("md", "html"))  # type: ignore[return-value]


def refused(project: Project, *words: str) -> str:
    assert ablate(project.monkeypatch, "report", project.campaign, *words) == Exit.MISTAKE
    return " ".join(project.capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_campaign_has_a_page_of_all_that_it_tried(project: Project) -> None:
    assert "'night' is not registered" in refused(project)
    for gain in (0.3, 0.6, 0.2):
        project.set(f"gain={gain}")
    assert "required: the two pages of a campaign" in refused(project, "--as", "latex")
    # Nothing is claimed of a best that was not confirmed.
    before, _ = report(project)
    assert "The best was not confirmed" in before and "Total gain" not in before
    _, confirmed = confirm(project, "--seeds", "4")
    stop = project.path.parent / "stop"
    stop.touch()
    project.set("gain=0.9")
    entries = (project.path / "studies" / "ledger.jsonl").read_bytes()
    markdown, html = report(project)
    assert (project.path / "studies" / "ledger.jsonl").read_bytes() == entries
    # Every proposal has its row, the open one without a number.
    rows = [line for line in markdown.splitlines() if line.startswith(tuple(f"| {n} |" for n in (1, 2, 3, 4)))]
    assert [row.split(" | ")[1:3] for row in rows] == [
        ["gain = 0.3", "keep"],
        ["gain = 0.6", "keep"],
        ["gain = 0.2", "drop"],
        ["gain = 0.9", "open"],
    ]
    assert rows[3].split("|")[4:6] == ["  ", "  "]
    # The total gain with its interval, next to the sum of the kept.
    total = re.search(r"Total gain: (\S+) in val/loss, 95% interval (\S+) to ([^;]+); .* at 4 new seeds", markdown)
    assert total is not None, markdown
    assert [float(each) for each in total.groups()] == [
        pytest.approx(confirmed["total_gain"][each], abs=1e-4) for each in ("gain", "low", "high")
    ]
    assert "> Sum of kept" in markdown
    for text in ("gain = 0.6", "gain = 0.9", "Total gain"):
        assert text in html
    # The same files give the same bytes.
    assert report(project) == (markdown, html)


@pytest.mark.slow
def test_a_later_keep_leaves_its_confirmations_to_the_best_that_they_were_about(project: Project) -> None:
    project.set("gain=0.3")
    confirm(project, "--seeds", "3")
    project.set("gain=0.6")
    markdown, _ = report(project)
    assert "The best was not confirmed" in markdown
    assert "## Confirmation 1: confirmed" in markdown and "a later keep has changed the best" in markdown
