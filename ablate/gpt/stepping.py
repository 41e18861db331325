"""How the steps of a cohort are computed: operator by operator, compiled, replayed from a recording, or both.

All compute the same thing. `compiled` has torch fuse operators, which rounds in another order; a recording (a CUDA
graph) launches a step's kernels in one go instead of one by one. The kind is layout, not promise: it is chosen when a
study is run, and kept in each run's provenance. Loads no torch.

`auto` is eager everywhere. On the CPU that was measured (reports/LOG.md: compiling gains nothing there). On a GPU none
of the others has ever been run, and what has never been run is no default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ablate.gpt.compiler import cannot_compile
from ablate.gpt.device import CPU
from prereg.errors import RunError
from prereg.training import Training

EAGER = "eager"
AUTO = "auto"


@dataclass(frozen=True)
class StepKind:
    """One way to compute a step."""

    name: str
    compiled: bool = False
    recorded: bool = False


KINDS: Mapping[str, StepKind] = {
    kind.name: kind
    for kind in (
        StepKind(EAGER),
        StepKind("compiled", compiled=True),
        StepKind("graph", recorded=True),
        StepKind("compiled-graph", compiled=True, recorded=True),
    )
}


def cannot_take(kind: StepKind, device: str) -> str:
    """Why steps of a kind cannot be taken on a device of this machine; nothing where they can."""
    if kind.recorded and device == CPU:
        return "the CPU has no CUDA graphs"
    return cannot_compile(device) if kind.compiled else ""


def choose_step(wanted: str, device: str, arms: Mapping[str, Training]) -> str:
    """The name of the kind that was asked for, or a refusal; `auto` is left to whoever knows the standing runs."""
    if wanted == AUTO:
        return wanted
    if wanted not in KINDS:
        raise RunError(f"--step {wanted}", required=f"{AUTO}, {', '.join(KINDS)}", fix=f"--step {AUTO}")
    kind = KINDS[wanted]
    if why := cannot_take(kind, device):
        raise RunError(
            f"--step {wanted} on {device}: {why}",
            required="a CUDA device, where steps are recorded" if kind.recorded and device == CPU else "a compiler",
            fix=f"--step {EAGER}" + (", or --device cuda" if kind.recorded and device == CPU else ""),
        )
    muon = [name for name, config in arms.items() if config.optim.name == "muon"]
    if kind.recorded and muon:
        raise RunError(
            f"--step {wanted}, and arm {muon[0]} has optim.name muon",
            required="an optimiser whose learning rate can be a tensor: a number would be recorded for ever",
            fix=f"--step {'compiled' if kind.compiled else EAGER}",
        )
    return wanted
