"""ablate: pre-registered, paired, honestly judged ablation studies.

The few names a notebook needs: `load`, `design`, `register`, `run`, `decide`, `report`. Importing this
package loads none of the heavy libraries; each function imports what it needs when it is called.
"""

from __future__ import annotations

from ablate.chain import decide, design, load, register, report, run

__all__ = ["decide", "design", "load", "register", "report", "run"]
