"""ablate: pre-registered, paired, honestly judged ablation studies.

The few names a notebook needs: `load`, `design`, `register`, `run`, `peek`, `decide`, `report`. Importing this
package loads none of the heavy libraries; each function imports what it needs when it is called.
"""

from __future__ import annotations

import sys
from types import ModuleType

from ablate.chain import decide, design, load, peek, register, report, run

__all__ = ["decide", "design", "load", "peek", "register", "report", "run"]


class _Face(ModuleType):
    """This package, whose public functions keep their names.

    `ablate.run` and `ablate.report` are rooms too, and importing a room sets it as an attribute of the package:
    without this, the first call of `ablate.run(...)` would replace the function by the module.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
