"""A verdict with deviations: its status, exit code and colour are its own at every door, and it names what deviated."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from report_samples import told
from test_automation import start, step
from test_cli import ablate as typed
from test_forgeries import AT, Decided, checked, whole  # noqa: F401 (whole is a fixture)

import ablate
import ablate as api
from ablate.judge.overview import studies_of
from ablate.reporting.document import compose
from ablate.reporting.html import first_screen, render_html
from ablate.reporting.latex.paper import results_in_prose
from ablate.reporting.summaries.proof import describe_decision
from prereg.registry.ledger import Ledger

NAME = "the ledger's times run forward"


@pytest.fixture
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Decided:
    """A decided study whose clock was set back before it is decided again."""
    house = Decided(Path(shutil.copytree(request.getfixturevalue("whole"), tmp_path / "house")))
    house.log("finished", {}, AT)
    return house


@pytest.mark.slow
def test_every_door_says_that_a_verdict_has_deviations(
    house: Decided, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(monkeypatch, "decide", house.study) == 7
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first == "DECIDED WITH 1 DEVIATION: take fast"
    assert second.startswith(f"- Deviation from '{NAME}': ") and any(line.startswith("fast improves") for line in rest)
    written = json.loads((house.path / "reports" / "own" / "verdict.json").read_text())
    assert (written["status"], written["verdict"]) == ("decided_with_deviations", "take fast")
    assert typed(monkeypatch, "decide", house.study, "--json") == 7
    assert json.loads(capsys.readouterr().out)["status"] == "decided_with_deviations"
    entry = [one for one in Ledger(house.root.ledger).entries() if one.event == "decided"][-1]
    assert describe_decision(entry) == "take fast, with deviations"

    assert typed(monkeypatch, "status", house.study) == 0
    assert "Decided with deviations from what was registered: take fast" in capsys.readouterr().out
    health = ablate.status(house.study)
    assert health.decided == "take fast" and health.with_deviations
    assert house.verified().intact, house.faults()
    assert "take fast, with deviations; take fast, with 1 deviation; " in house.notes()
    assert checked(house.bundled(tmp_path / "b.zip")).intact
    (one,) = studies_of(house.root)
    assert one.gives_verdict and one.state_in_words == "decided with 1 deviation"
    page = next(
        path for path in api.report_index(workspace=api.Workspace(house.path)) if path.name == "index.md"
    ).read_text()
    assert "| decided with 1 deviation | take fast |" in page and re.search(r"\| own \| gain .* supported \| −", page)

    report = (house.path / "reports" / "own" / "report.md").read_text()
    assert report.index("Decided with 1 deviation: take fast") < report.index(f"Deviation from '{NAME}'")
    program = tmp_path / "bin" / "ablate"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    env = {
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "ROOT": str(house.path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "s"),
    }
    done = start(step("Check and verify all studies")["run"], tmp_path, env)
    assert done.returncode == 0 and "::warning title=ablate::own was decided with deviations" in done.stdout
    assert "reports/own/report.md names them" in (tmp_path / "s").read_text()


def test_the_action_lets_no_name_of_a_folder_speak_to_the_runner(tmp_path: Path) -> None:
    folder = tmp_path / "reports" / "x\n::error::gone"
    folder.mkdir(parents=True)
    (folder / "verdict.json").write_text('{\n  "status": "decided_with_deviations"\n}\n')
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "x.yaml").touch()
    (tmp_path / "ablate").write_text("#!/bin/sh\n")
    (tmp_path / "ablate").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ROOT": ".", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    done = start(step("Check and verify all studies")["run"], tmp_path, env)
    assert "::warning title=ablate::xerrorgone was" in done.stdout and "::error" not in done.stdout


def luminance(colour: str) -> float:
    """By WCAG 2."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    low, high = sorted(map(luminance, (one, two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [0, 1])
def test_the_colour_of_deviations_is_its_own_and_can_be_seen(scheme: int) -> None:
    """Light and dark: text on the tint at least 4.5 to 1, the edge beside tint and ground at least 3 to 1."""
    document = compose(told("deviating"))
    page = render_html(told("deviating"))
    names = ("ink", "ground", "tint-deviations", "edge-deviations")
    colours = {name: re.findall(rf"--{name}: (#[0-9a-f]+);", page)[scheme] for name in names}
    edges = re.findall(r"--edge-\w+: (#[0-9a-f]+);", page)
    assert contrast(colours["ink"], colours["tint-deviations"]) >= 4.5
    for behind in ("ground", "tint-deviations"):
        assert contrast(colours["edge-deviations"], colours[behind]) >= 3.0, behind
    assert len(set(edges)) == len(edges) == 5
    assert 'class="banner decided_with_deviations"' in page
    assert 'class="ablate-screen decided_with_deviations"' in first_screen(document)


def test_a_paper_names_deviations_with_the_verdict() -> None:
    first = next(results_in_prose(told("deviating")))
    assert first.startswith(
        "Decided with 1 deviation by the registered rule: adopt layernorm. Deviation from 'no run was resumed': "
    )
