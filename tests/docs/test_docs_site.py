"""The documentation site: it builds without a warning, nothing in it is broken or far away, it fits a phone, and
search works from disk."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from test_report_browser import WIDTHS, run_browser

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_LINKS_TO_THEM = {"search.html", "index.html"}
"""The search form leads to the one; the other leads to the first page."""
PROBE = """<!DOCTYPE html><title>-</title><body><iframe id="f" style="width:{width}px;height:844px;border:0"></iframe>
<script>
const frame = document.getElementById("f"), pages = {pages}, found = {{}};
frame.onload = () => {{
  const page = frame.contentDocument, [name] = pages;
  if (page.URL === "about:blank") {{ frame.src = name; return; }}
  const root = page.documentElement;
  found[name] = [root.scrollWidth - root.clientWidth,
    page.querySelector(".content").scrollWidth - page.querySelector(".content").clientWidth,
    [...page.querySelectorAll(".table-wrapper")].filter(one => one.scrollWidth > one.clientWidth + 1).length];
  pages.shift();
  if (pages.length) frame.src = pages[0]; else document.title = JSON.stringify(found);
}};
frame.src = pages[0];
</script>"""


class Page(HTMLParser):
    """What a page names: its anchors, its links, and what a browser loads with it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon", "shortcut icon"):
            self.loaded.append(given["href"])
        self.loaded += [given["src"]] if "src" in given else []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, where a warning is an error: CI builds it here alone."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    return folder


@cache
def pages(folder: Path) -> dict[str, Page]:
    """Every page by its path."""
    found = (path for path in folder.rglob("*.html") if not {"_static", "_downloads"} & set(path.parts))
    return {path.relative_to(folder).as_posix(): Page(path) for path in found}


def targets(folder: Path, name: str) -> list[tuple[str, str]]:
    """The files of the site, with their anchors, that a page links to."""
    found = []
    for link in pages(folder)[name].links:
        if not re.match(r"[a-z]+:", link):
            path, anchor = urldefrag(link)
            place = (folder / name).parent / unquote(path) if path else folder / name
            found.append((place.resolve().relative_to(folder.resolve()).as_posix(), unquote(anchor)))
    return found


@pytest.mark.slow
def test_every_link_and_every_anchor_of_the_site_is_there(site: Path) -> None:
    assert len(pages(site)) > 20
    n_anchors = 0
    for name in pages(site):
        for target, anchor in targets(site, name):
            assert (site / target).is_file(), (name, target)
            if anchor and target.endswith(".html"):
                n_anchors += 1
                assert anchor in pages(site)[target].anchors, (name, target, anchor)
    assert n_anchors > 300


@pytest.mark.slow
def test_every_page_is_reached_from_the_index(site: Path) -> None:
    reached, waiting = {"docs/index.html"}, ["docs/index.html"]
    while waiting:
        for target, _ in targets(site, waiting.pop()):
            if target in pages(site) and target not in reached:
                reached.add(target)
                waiting.append(target)
    assert pages(site).keys() - reached == WITHOUT_LINKS_TO_THEM


@pytest.mark.slow
def test_reading_it_needs_no_network(site: Path) -> None:
    for name, page in pages(site).items():
        for source in page.loaded:
            assert not re.match(r"[a-z]+:|//", source.removeprefix("data:")), (name, source)
            if not source.startswith("data:"):
                assert ((site / name).parent / urldefrag(source)[0].partition("?")[0]).is_file(), (name, source)
    styles = list(site.rglob("*.css"))
    assert len(styles) > 2
    for style in styles:
        used = re.findall(r"(?:url\(|@import\s)\s*['\"]?([^'\")]+)", style.read_text(encoding="utf-8"))
        assert not [one for one in used if re.match(r"https?:|//", one)], style.name


def measured(files: list[Path], width: int, folder: Path) -> dict[str, list[int]]:
    """Of each page how far it, and its text, is wider than the screen, and how many of its tables scroll."""
    probe = folder / "probe.html"
    listed = json.dumps([file.as_uri() for file in files])
    probe.write_text(PROBE.format(width=width, pages=listed), encoding="utf-8")
    ran = run_browser(folder, "--dump-dom", "--allow-file-access-from-files", probe.as_uri())
    title = re.search(r"<title>(.*?)</title>", ran.stdout)
    assert title is not None and title[1].startswith("{"), ran.stderr[-2000:]
    found: dict[str, list[int]] = json.loads(unescape(title[1]))
    assert len(found) == len(files)
    return found


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_scrolls_sideways_and_wide_tables_do(width: int, site: Path, tmp_path: Path) -> None:
    names = sorted(pages(site).keys() - WITHOUT_LINKS_TO_THEM)
    found = measured([site / name for name in names], width, tmp_path)
    assert {name: over for name, (*over, _) in found.items() if any(over)} == {}
    if width == min(WIDTHS):
        assert sum(tables for _, _, tables in found.values()) > 10, "or a table that scrolls would not be seen here"


@pytest.mark.slow
@pytest.mark.browser
def test_the_browser_sees_a_page_that_scrolls_sideways(site: Path, tmp_path: Path) -> None:
    whole = (site / "docs" / "commands.html").read_text(encoding="utf-8")
    base = f'<head><base href="{(site / "docs").as_uri()}/">'
    bad = whole.replace("<head>", base).replace("</article>", '<div style="width: 2000px">wide</div></article>')
    (tmp_path / "bad.html").write_text(bad, encoding="utf-8")
    ((page, text, _),) = measured([tmp_path / "bad.html"], 390, tmp_path).values()
    assert max(page, text) > 1000


@pytest.mark.slow
@pytest.mark.browser
def test_search_finds_a_page_from_disk(site: Path, tmp_path: Path) -> None:
    ran = run_browser(tmp_path, "--dump-dom", (site / "search.html").as_uri() + "?q=working_directory")
    results = re.search(r'<ul[^>]*class="search">(.*?)</ul>', ran.stdout, re.DOTALL)
    assert results is not None, ran.stderr[-2000:]
    assert 'href="docs/reference/study-file.html' in results[1]
    excerpts = re.findall(r'<p class="context">(.*?)</p>', results[1], re.DOTALL)
    assert any(len(excerpt) > 100 for excerpt in excerpts), "no excerpt could be read from disk"
