"""How Sphinx builds the site (`make docs`): its source is the repository, so that a link works here and on a code host.

What is a page: the Markdown of docs/, and of the root and the reports what those pages link to. A link to any other
file gives that file to download.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref

ROOT = Path(__file__).resolve().parents[1]

project = html_title = "ablate"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "reports/*.md", "reports/bench/*.md", "reports/campaigns/*.md"]
include_patterns += ["reports/agent-night/*.md", "reports/agent-night-confirm1/report.md"]
include_patterns += ["examples/agent/README.md", "skills/ablate/SKILL.md"]
exclude_patterns = ["build", "data", ".*"]
myst_heading_anchors = 4
smartquotes = False
suppress_warnings = ["misc.highlighting_failure"]  # a code host knows more languages of a block, such as csv
html_theme = "furo"
html_use_index = html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]


def _leave_folders_as_text(app: Any, document: nodes.document) -> None:
    """A code host shows a folder that a link leads to; the site has no page of it."""
    for link in list(document.findall(pending_xref)):
        if link["reftype"] == "myst" and (app.env.doc2path(app.env.docname).parent / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def _mark_tables_of_fields(_app: Any, document: nodes.document) -> None:
    """Tables that end in a meaning get a class: on a phone their rows are stacked (static/site.css)."""
    for table in document.findall(nodes.table):
        for head in table.findall(nodes.thead):
            if head.astext().split()[-1:] == ["meaning"]:
                table["classes"].append("fields")


_EXCERPTS = """if (location.protocol === "file:") {
  window.fetch = async (page) => {
    const main = document.createElement("div");
    main.setAttribute("role", "main");
    main.textContent = PAGES[new URL(page, location).href.slice(new URL("./", location).href.length)] || "";
    return new Response(main.outerHTML);
  };
}
"""


def _search_with_excerpts(app: Any, page: str, *_: Any) -> None:
    if page == "search":
        app.add_js_file("pages.js")


def _write_pages_for_the_search(app: Any, error: Exception | None) -> None:
    """The search shows excerpts from pages that it fetches; opened from disk it may not, and takes them from here."""
    if error is None:
        pages = {f"{name}.html": " ".join(app.env.get_doctree(name).astext().split()) for name in app.env.found_docs}
        script = Path(app.outdir) / "_static" / "pages.js"
        script.write_text(f"const PAGES = {json.dumps(pages)};\n{_EXCERPTS}", encoding="utf-8")


def _lead_to_the_first_page(app: Any, error: Exception | None) -> None:
    """The folder opens at its index, which lies in docs/ as its source does."""
    if error is None:
        target = f"{app.config.root_doc}.html"
        page = f'<!DOCTYPE html><title>ablate</title><meta http-equiv="refresh" content="0; url={target}">'
        (Path(app.outdir) / "index.html").write_text(f'{page}<a href="{target}">ablate</a>\n', encoding="utf-8")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("doctree-read", _leave_folders_as_text)
    app.connect("doctree-read", _mark_tables_of_fields)
    app.connect("html-page-context", _search_with_excerpts)
    app.connect("build-finished", _write_pages_for_the_search)
    app.connect("build-finished", _lead_to_the_first_page)
