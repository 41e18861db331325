"""docs/reference/exit-codes.md: how a command ends."""

from __future__ import annotations

from ablate.cli.options import Exit
from docs.generator.markdown import NOTE, table

_PAGE = """# Exit codes

{note}

{codes}
So a script can tell by the code alone how `ablate decide` ended. Messages about what is wrong are on standard error.
"""


def exit_codes_page() -> str:
    """The whole page."""
    rows = [(f"**{int(one)}**", one.meaning, one.of) for one in sorted(Exit)]
    return _PAGE.format(note=NOTE, codes=table(("code", "meaning", "of"), rows))
