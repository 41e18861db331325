"""How the steps of a cohort are computed: operator by operator, or compiled.

Both compute the same thing, but `compiled` has torch fuse operators, which rounds in another order. The kind is layout,
not promise: it is chosen when a study is run, and kept in each run's provenance. Loads no torch.

`auto` is eager everywhere. On the CPU that was measured (reports/LOG.md: compiling gains nothing there). On a GPU the
other has never been run, and what has never been run is no default.
"""

from __future__ import annotations

from ablate.gpt.compiler import cannot_compile
from prereg.errors import RunError

AUTO = "auto"
EAGER = "eager"
COMPILED = "compiled"
KINDS = (EAGER, COMPILED)


def cannot_take(kind: str, device: str) -> str:
    """Why steps of a kind cannot be taken on a device of this machine; nothing where they can."""
    if kind not in KINDS:
        return f"this version knows {', '.join(KINDS)}"
    return cannot_compile(device) if kind == COMPILED else ""


def choose_step(wanted: str, device: str) -> str:
    """The requested kind, or a refusal; `auto` is left to the caller, who knows the earlier runs."""
    if wanted == AUTO:
        return wanted
    if wanted not in KINDS:
        raise RunError(f"--step {wanted}", required=f"{AUTO}, {', '.join(KINDS)}", fix=f"--step {AUTO}")
    if why := cannot_take(wanted, device):
        raise RunError(f"--step {wanted} on {device}: {why}", required="a compiler", fix=f"--step {EAGER}")
    return wanted
