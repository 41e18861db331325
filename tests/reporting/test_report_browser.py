"""The page in a real browser: every drawing has a size, nothing complains, a phone does not scroll sideways, paper is
short and loses nothing, and axe-core finds no serious fault."""

from __future__ import annotations

import html as escaping
import json
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from metric_samples import as_embnorm, full, of_many_runs
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
    "--virtual-time-budget=30000",
]
WIDTHS = [1280, 390]
"""A laptop's and a phone's."""
# The report itself has no script. It is laid out inside a frame of the wanted width, and the frame is measured.
PROBE = """<!DOCTYPE html><title>-</title><body>
<iframe id="f" style="width:{width}px;height:844px;border:0" srcdoc="{page}">
</iframe><script>
document.getElementById("f").onload = async event => {{
  const page = event.target.contentDocument, box = svg => svg.getBoundingClientRect();
  if ({opened}) page.querySelectorAll("details").forEach(one => one.open = true);
  const axe = document.getElementById("axe") && event.target.contentWindow;
  if (axe) axe.eval(document.getElementById("axe").textContent);
  const faults = axe ? (await axe.axe.run({{resultTypes: ["violations"], elementRef: false}})).violations : [];
  document.title = JSON.stringify({{
    width: page.documentElement.scrollWidth, view: page.documentElement.clientWidth,
    tables: [...page.querySelectorAll(".scroll")].map(place => [place.querySelector(".stacked") !== null,
      place.scrollWidth - place.clientWidth, getComputedStyle(place.querySelector("tr:last-child")).display]),
    drawings: [...page.querySelectorAll("svg")].filter(svg => getComputedStyle(svg.parentElement).display !== "none")
      .filter(svg => box(svg).width > 0)
      .map(svg => [box(svg).width, box(svg).height, svg.querySelectorAll("path, circle, text").length]),
    cut: [...page.querySelectorAll("svg text")].filter(one => box(one).width > 0 && (
      box(one).right > box(one.ownerSVGElement).right + 2 || box(one).left < box(one.ownerSVGElement).left - 2))
      .map(one => one.textContent),
    faults: faults.map(one => one.impact + ": " + one.id + ": " + one.nodes[0].html.slice(0, 200))}});
}};
</script>{axe}"""


def opened(
    page: str, width: int, folder: Path, *, unfold: bool = True, axe: bool = False, dark: bool = False
) -> tuple[dict[str, Any], str]:
    """What the browser measured, and what it logged."""
    source = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8") if axe else ""
    script = f'<script id="axe" type="text/plain">{source}</script>' if axe else ""
    file = folder / "probe.html"
    probe = PROBE.format(width=width, page=escaping.escape(page), opened=str(unfold).lower(), axe=script)
    file.write_text(probe, encoding="utf-8")
    ran = run_browser(folder, "--dump-dom", *["--blink-settings=preferredColorScheme=0"] * dark, file.as_uri())
    title = re.search(r"<title>(.*?)</title>", ran.stdout)
    assert title is not None and title[1].startswith("{"), ran.stderr[-2000:]
    return json.loads(escaping.unescape(title[1])), ran.stderr


def run_browser(folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    """One run of the browser with a profile of its own."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *given]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@cache
def page_of(ending: Ending) -> str:
    """The page of a study that ended so, drawn once for all widths."""
    return html.render_html(told(ending))


@cache
def full_page() -> str:
    """The page of a study with everything a page can hold, drawn once for all widths."""
    return html.render_html(full())


def visible_drawings(ending: Ending) -> int:
    """Panels that one width shows: a forest plot is drawn twice, for a broad page and for a phone."""
    document = compose(told(ending))
    blocks = [*document.opening, *(block for section in document.sections for block in section.blocks)]
    figures = [block for block in blocks if isinstance(block, Figure)]
    return sum(panel.shape != "narrow" for figure in figures for panel in figure.panels)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_every_drawing_has_a_size_and_the_page_does_not_scroll_sideways(width: int, tmp_path: Path) -> None:
    measured, log = opened(page_of("decided"), width, tmp_path)
    drawings = measured["drawings"]
    assert isinstance(drawings, list)
    assert len(drawings) == visible_drawings("decided") == 7
    for wide, high, marks in drawings:
        assert 200 < wide <= width and high > 90 and marks > 10
    assert measured["cut"] == []
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
def test_wide_tables_are_stacked_on_a_phone_and_scroll_nowhere(width: int, row: str, tmp_path: Path) -> None:
    measured, _ = opened(full_page(), width, tmp_path)
    tables = measured["tables"]
    assert isinstance(tables, list)
    stacked = [(over, how) for of_ours, over, how in tables if of_ours]
    # The other tests, the arms, the hypotheses and the decision list.
    assert stacked == [(0, row)] * 4
    others = [(over, how) for of_ours, over, how in tables if not of_ours]
    assert {how for _, how in others} == {"table-row"}
    assert any(over > 0 for over, _ in others) == (width < 720), "or a table that scrolls would not be seen here"


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_reliability_curve_fits_a_page_and_a_phone(width: int, tmp_path: Path) -> None:
    account = full()
    asked = account.study.model_copy(
        update={"report": account.study.report.model_copy(update={"show": ("reliability",)})}
    )
    account = replace(account, registration=account.registration.model_copy(update={"study": asked}))
    measured, log = opened(html.render_html(account), width, tmp_path)
    drawings = measured["drawings"]
    assert isinstance(drawings, list) and len(drawings) == visible_drawings("decided") + 1
    for wide, high, marks in drawings:
        assert 200 < wide <= width and high > 90 and marks > 10
    assert measured["cut"] == []
    assert measured["width"] == measured["view"]
    assert "CONSOLE" not in log, [line for line in log.splitlines() if "CONSOLE" in line]


@cache
def embnorm_page() -> str:
    """The page of a study of three arms, five seeds, four hypotheses and every default suite."""
    return html.render_html(as_embnorm())


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)])
def test_axe_finds_no_serious_fault(width: int, dark: bool, tmp_path: Path) -> None:
    measured, log = opened(full_page(), width, tmp_path, axe=True, dark=dark)
    assert [one for one in measured["faults"] if one.startswith(("serious", "critical"))] == []
    assert "CONSOLE" not in log


@pytest.mark.slow
def test_axe_finds_a_drawing_without_a_name(tmp_path: Path) -> None:
    bad = page_of("decided").replace('role="img" aria-label', 'role="img" data-label')
    measured, _ = opened(bad, 390, tmp_path, axe=True)
    assert any("svg-img-alt" in one for one in measured["faults"]), "otherwise axe did not run"


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_every_drawing_of_a_study_like_embnorm_fits_its_frame(width: int, tmp_path: Path) -> None:
    measured, log = opened(embnorm_page(), width, tmp_path)
    assert len(measured["drawings"]) == 8 and measured["cut"] == [] and "CONSOLE" not in log
    assert measured["width"] == measured["view"]


@pytest.mark.slow
def test_a_study_like_embnorm_prints_on_six_pages_with_every_table(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(embnorm_page(), encoding="utf-8")
    run_browser(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'report.pdf'}", file.as_uri())
    printed = (tmp_path / "report.pdf").read_bytes()
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 6
    # On paper every section and folded table has a height: laid out again with the rules for print, none is hidden.
    paper = re.sub(r"@media print \{", "@media all {", embnorm_page())
    probe = tmp_path / "probe.html"
    # No table is wider than its column either.
    script = """<script>document.body.style.width = "194mm"; document.title = JSON.stringify([
      [...document.querySelectorAll("details table, details .chart")].filter(one => one.closest(".narrow") === null)
        .map(one => one.getBoundingClientRect().height),
      [...document.querySelectorAll(".scroll")].filter(one => one.scrollWidth > one.clientWidth + 8)
        .map(one => one.getAttribute("aria-label"))])</script>"""
    probe.write_text(paper.replace("</main>", f"</main>{script}"), encoding="utf-8")
    title = re.search(r"<title>(.*?)</title>", run_browser(tmp_path, "--dump-dom", probe.as_uri()).stdout)
    assert title is not None
    heights, cut = json.loads(escaping.unescape(title[1]))
    assert len(heights) >= 12 and min(heights) > 5
    assert cut == []


@pytest.mark.slow
def test_a_page_of_a_thousand_runs_opens_and_does_not_scroll_sideways(tmp_path: Path) -> None:
    measured, log = opened(html.render_html(of_many_runs()), 1280, tmp_path)
    assert measured["drawings"] and measured["width"] == measured["view"]
    assert "CONSOLE" not in log


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_names_neither_run_nor_break_the_page(width: int, tmp_path: Path) -> None:
    hostile = '"><img src=x onerror=console.error(1)>\u202e\x1b[31m' + "W" * 300
    account = told(question=hostile, title=hostile)
    first, *others = account.decision.findings
    first = first.model_copy(update={"unit": hostile, "label": hostile})
    update = {"findings": (first, *others), "verdict": hostile, "because": hostile}
    decision = account.decision.model_copy(update=update)
    page = html.render_html(replace(account, decision=decision))
    measured, log = opened(page, width, tmp_path)
    assert measured["width"] == measured["view"] and measured["cut"] == []
    assert "CONSOLE" not in log
    assert "\u202e" not in page and "\x1b" not in page and "<img" not in page
