"""docs/checks.md: every check of the evidence, and what an amendment of each field touches."""

from __future__ import annotations

from ablate.judge.audit.audit import rows
from docs.generator.markdown import NOTE, table
from prereg.registry.amendments import AMENDMENT_EFFECTS

_PAGE = """# Checks of the evidence

{note}

Every check of the evidence, and what its failure means; the report takes consequence and reason from here.

{checks}
## Amendments

The ledger keeps the reason, the differences field by field, what was known by then, and the registration that is
replaced. After evidence (runs started, or outcomes read), what the change touched is exploratory in every later
table, and stays so:

{fields}
Any other field touches everything and the verdict. Under Holm, an untouched hypothesis is touched too if its
outcome would differ with the touched p values of its role, or of its gate, at 0 or at 1. The verdict is given if it is
the same for every outcome of what was touched (exactly, by the rule's diagrams). Otherwise there is none, and the
report says on what it would have rested.

An amendment that keeps the runs has those that were made before it: looks, lost starts, failures and seals under the
earlier registration count for the amended one, and nothing is drawn again. Other amendments make all runs anew, in a
folder of their own. A run made again with the same configuration, code, data and seed must then have the outcome that
was sealed before, under any registration of the study; where it differs, there is no verdict.
"""


def checks_page() -> str:
    """The whole page."""
    checks = table(("check", "what it looks at", "when it fails", "why"), rows())
    fields = [
        (", ".join(f"`{field}`" for field in row.fields), row.said, "kept" if row.keeps_runs else "made anew", row.why)
        for row in AMENDMENT_EFFECTS
    ]
    return _PAGE.format(note=NOTE, checks=checks, fields=table(("field", "what is touched", "runs", "why"), fields))
