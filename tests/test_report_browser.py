"""The page in a real browser: every drawing has a size, nothing complains, a phone does not scroll sideways."""

from __future__ import annotations

import html as escaping
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from beside_samples import full
from report_samples import Ending, told

from ablate.reporting import html
from ablate.reporting.blocks import Figure
from ablate.reporting.document import compose

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--dump-dom",
]
# The report itself has no script. It is laid out inside a frame of the wanted width, and the frame is measured.
PROBE = """<!DOCTYPE html><title>-</title><body>
<iframe id="f" style="width:{width}px;height:900px;border:0" srcdoc="{page}">
</iframe><script>
document.getElementById("f").onload = event => {{
  const page = event.target.contentDocument, box = svg => svg.getBoundingClientRect();
  document.title = JSON.stringify({{
    width: page.documentElement.scrollWidth, view: page.documentElement.clientWidth,
    tables: [...page.querySelectorAll(".scroll")].map(place => [place.querySelector(".stacked") !== null,
      place.scrollWidth - place.clientWidth, getComputedStyle(place.querySelector("tr:last-child")).display]),
    drawings: [...page.querySelectorAll("svg")].filter(svg => getComputedStyle(svg.parentElement).display !== "none")
      .map(svg => [box(svg).width, box(svg).height, svg.querySelectorAll("path, line, rect").length])}});
}};
</script>"""


def opened(page: str, width: int, folder: Path) -> tuple[dict[str, object], str]:
    """What the browser measured, and what it logged."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    file = folder / "probe.html"
    file.write_text(PROBE.format(width=width, page=escaping.escape(page)), encoding="utf-8")
    ran = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    title = re.search(r"<title>(.*?)</title>", ran.stdout)
    assert title is not None and title[1].startswith("{"), ran.stderr[-2000:]
    return json.loads(escaping.unescape(title[1])), ran.stderr


@cache
def page_of(ending: Ending) -> str:
    """The page of a study that ended so, drawn once for all widths."""
    return html.render(told(ending))


@cache
def full_page() -> str:
    """The page of a study with everything a page can hold, drawn once for all widths."""
    return html.render(full())


def visible_drawings(ending: Ending) -> int:
    """Panels that one width shows: a forest plot is drawn twice, for a broad page and for a phone."""
    document = compose(told(ending))
    blocks = [*document.opening, *(block for section in document.sections for block in section.blocks)]
    figures = [block for block in blocks if isinstance(block, Figure)]
    return sum(panel.shape != "narrow" for figure in figures for panel in figure.panels)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1200, 390])
def test_every_drawing_has_a_size_and_the_page_does_not_scroll_sideways(width: int, tmp_path: Path) -> None:
    measured, log = opened(page_of("decided"), width, tmp_path)
    drawings = measured["drawings"]
    assert isinstance(drawings, list)
    assert len(drawings) == visible_drawings("decided") == 16
    for wide, high, marks in drawings:
        assert 200 < wide <= width and high > 90 and marks > 10
    assert measured["width"] == measured["view"] and width - 20 <= int(str(measured["view"])) <= width
    assert "CONSOLE" not in log, [line for line in log.splitlines() if "CONSOLE" in line]


@pytest.mark.slow
def test_an_incomplete_study_draws_nothing(tmp_path: Path) -> None:
    measured, log = opened(page_of("incomplete"), 390, tmp_path)
    assert measured["drawings"] == [] and measured["width"] == measured["view"]
    assert "CONSOLE" not in log


@pytest.mark.slow
def test_the_browser_itself_sees_no_script_and_reports_a_bad_page(tmp_path: Path) -> None:
    bad = page_of("incomplete").replace("</main>", "<script>console.error('seen')</script></main>")
    _, log = opened(bad, 390, tmp_path)
    assert "CONSOLE" in log and "seen" in log  # otherwise the tests above could not fail


@pytest.mark.slow
@pytest.mark.parametrize(("width", "row"), [(1200, "table-row"), (720, "grid"), (390, "grid")])
def test_published_figures_are_stacked_on_a_phone_and_scroll_nowhere(width: int, row: str, tmp_path: Path) -> None:
    measured, _ = opened(full_page(), width, tmp_path)
    tables = measured["tables"]
    assert isinstance(tables, list)
    stacked = [(over, how) for of_ours, over, how in tables if of_ours]
    assert stacked == [(0, row)] * 2
    others = [(over, how) for of_ours, over, how in tables if not of_ours]
    assert {how for _, how in others} == {"table-row"}
    assert any(over > 0 for over, _ in others) == (width < 1200), "or a table that scrolls would not be seen here"


@pytest.mark.slow
@pytest.mark.parametrize("width", [1200, 390])
def test_published_figures_reliability_and_folded_values_fit_a_page_and_a_phone(width: int, tmp_path: Path) -> None:
    opened_up = full_page().replace("<details>", "<details open>")
    measured, log = opened(opened_up, width, tmp_path)
    drawings = measured["drawings"]
    assert isinstance(drawings, list) and len(drawings) == visible_drawings("decided") + 3  # a reliability curve an arm
    for wide, high, marks in drawings:
        assert 200 < wide <= width and high > 90 and marks > 10
    assert measured["width"] == measured["view"]
    assert "CONSOLE" not in log, [line for line in log.splitlines() if "CONSOLE" in line]
