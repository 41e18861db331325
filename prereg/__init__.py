"""prereg: the study format, its registration in a lock and a ledger, and a check that both are unchanged.

`Study` (`Study.from_yaml`) is a study; `register` and `amend` freeze it in a lock and a hash-chained ledger; `verify`
checks chain, locks, registered files and seals. Any tool can use it alone: it needs neither torch nor numpy nor pandas
(docs/prereg.md). Importing this package loads nothing else; the first use of a name does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prereg.errors import StudyError as StudyError
    from prereg.registering import amend as amend
    from prereg.registering import register as register
    from prereg.study.spec import Study as Study
    from prereg.verification import verify as verify

# No module of this folder may have the name of one of these: importing it would put it in the name's place.
_MODULES = {
    "Study": "prereg.study.spec",
    "StudyError": "prereg.errors",
    "amend": "prereg.registering",
    "register": "prereg.registering",
    "verify": "prereg.verification",
}
__all__ = ["Study", "StudyError", "amend", "register", "verify"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
