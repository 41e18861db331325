"""How Sphinx builds the site (`make docs`): its source is the repository, so that a link works here and on a code host.

What is a page: the Markdown of docs/, and of the root and the reports what those pages link to. A link to any other
file gives that file to download.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref

ROOT = Path(__file__).resolve().parents[1]

project = html_title = "ablate"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "reports/*.md", "reports/bench/*.md"]
exclude_patterns = ["build", "data", ".*"]
myst_heading_anchors = 4
smartquotes = False
suppress_warnings = ["misc.highlighting_failure"]  # a code host knows more languages of a block, such as csv
html_theme = "furo"
html_use_index = False
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
    app.connect("build-finished", _lead_to_the_first_page)
