"""docs/conflicts.md: settings of a study that exclude each other."""

from __future__ import annotations

from docs.generator.markdown import NOTE, code, sentence, table
from prereg.study.conflicts import OF_BLOCKS, OF_CLAIMS, OF_SETTINGS, Conflict

_PAGE = """# Settings that exclude each other

{note}

`ablate check` refuses a study that has both things of a row, at the line of the first. `not` before a value means any
other; of a list an entry, of a mapping a field.

## Blocks and trainers

{blocks}
## Tests and designs

{settings}
## Claims

{claims}"""


def conflicts_page() -> str:
    """The whole page."""
    return _PAGE.format(note=NOTE, blocks=_rows(OF_BLOCKS), settings=_rows(OF_SETTINGS), claims=_rows(OF_CLAIMS))


def _rows(rows: tuple[Conflict, ...]) -> str:
    return table(
        ("this", "not with", "required", "for instance"),
        [(_thing(row.this), _thing(row.other), sentence(row.because), sentence(row.fix)) for row in rows],
    )


def _thing(text: str) -> str:
    """A setting as code, a fact in words."""
    return code(text) if ": " in text else text
