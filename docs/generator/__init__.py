"""The pages of the reference that follow from the code: `python -m docs.generator` writes them all.

What a page says is in the code that it is about: descriptions of fields, help of commands, tables. Here are only the
headings and the sentences that join them. A test compares each page with what the code gives.
"""

from __future__ import annotations

from collections.abc import Callable

from docs.generator.checks import checks_page
from docs.generator.commands import options_page
from docs.generator.conflicts import conflicts_page
from docs.generator.exit_codes import exit_codes_page
from docs.generator.files import files_page
from docs.generator.metrics import metrics_page
from docs.generator.rule import rule_page
from docs.generator.study_file import study_file_page

PAGES: dict[str, Callable[[], str]] = {
    "checks.md": checks_page,
    "conflicts.md": conflicts_page,
    "metrics.md": metrics_page,
    "reference/study-file.md": study_file_page,
    "reference/rule.md": rule_page,
    "reference/options.md": options_page,
    "reference/exit-codes.md": exit_codes_page,
    "reference/files.md": files_page,
}
"""Path below docs/ -> what writes the page."""
