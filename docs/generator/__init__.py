"""The pages of the reference that follow from the code: `python -m docs.generator` writes them all.

What a page says is in the code that it is about: descriptions of fields, help of commands, tables. `pages/` holds the
sentences around it, with `$name` for each part that the code gives, and `docs.generator.parts` those parts. A test
compares each page with what the code gives.

To add a page: its template in `pages/`, a function in `parts` that returns what the code says, a row of `PAGES`, and
its entry in a table of contents.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from string import Template

from docs.generator import parts

NOTE = "Generated from the code by `python -m docs.generator`; do not edit."
DOCS = Path(__file__).resolve().parents[1]


def _page(template: str, parts_of_page: Callable[[], parts.Parts]) -> str:
    text = (DOCS / f"generator/pages/{template}.txt").read_text(encoding="utf-8")
    return Template(text).substitute(parts_of_page(), note=NOTE)


PAGES: dict[str, Callable[[], str]] = {
    "checks.md": partial(_page, "checks", parts.checks),
    "conflicts.md": partial(_page, "conflicts", parts.conflicts),
    "modules.md": partial(_page, "modules", parts.modules),
    "metrics.md": partial(_page, "metrics", parts.metrics),
    "reference/study-file.md": partial(_page, "study-file", parts.study_file),
    "reference/campaign-file.md": partial(_page, "campaign-file", parts.campaign_file),
    "reference/rule.md": partial(_page, "rule", parts.rule),
    "reference/options.md": partial(_page, "options", parts.options),
    "reference/exit-codes.md": partial(_page, "exit-codes", parts.exit_codes),
    "reference/files.md": partial(_page, "files", parts.files),
}
"""Path below docs/ -> what makes the page."""


def write() -> None:
    """Write all pages, and say which have changed."""
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote docs/{name}")
