"""P4: the study on a GPU, its runs one by one, and its seeds trained together with each kind of step.

Whoever has a GPU measures it. Some of these ways have never been run on one, so one that fails is reported as such and
takes no other with it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ablate.training.device import KINDS
from benchmarks.studies import compare_study

APART = "one by one"
WAYS: Mapping[str, tuple[str, str]] = {
    APART: ("off", "auto"),
    **{f"together, steps {name}": ("on", name) for name in KINDS},
}
"""Way -> what `ablate run` is given as --cohort and --step."""


def measure_cohorts(
    study: Path, seeds: int, steps: int | None, *, compare: Callable[..., dict[str, Any]] = compare_study
) -> dict[str, Any]:
    """Every way's wall seconds of the whole study; the peer is measured next to the first."""
    found: dict[str, Any] = {}
    for way, (cohort, step) in WAYS.items():
        try:
            found[way] = compare(
                study, "bfloat16", seeds, steps, device="cuda", cohort=cohort, step=step, with_peer=way == APART
            )
        except subprocess.CalledProcessError as error:
            print(f"P4, {way}: {error}", file=sys.stderr)
            found[way] = {"failed": f"exit {error.returncode}"}
    return found


def as_markdown(found: Mapping[str, Any]) -> str:
    """A row a way, with ratios against our own runs one by one and against the peer, compiled, run after run."""
    apart = found.get(APART, {})
    lines = [
        "P4, the study on a GPU in bfloat16. Wall seconds are of the whole command, compiling included; training "
        "seconds are a run's share, without it. The peer is compiled, and its runs follow one another.",
        "",
        "| way | wall s | training s a run | against one by one | against the peer |",
        "|---|---|---|---|---|",
    ]
    for way, one in found.items():
        if "failed" in one:
            lines.append(f"| {way} | failed, {one['failed']} | | | |")
            continue
        ours = one["ours_wall_s"]
        to_own = f"{apart['ours_wall_s'] / ours:.2f}x" if "ours_wall_s" in apart else "not measured"
        to_peer = f"{apart['peer_wall_s'] / ours:.2f}x" if "peer_wall_s" in apart else "not measured"
        lines.append(f"| {way} | {ours} | {one['ours_train_s_per_run']} | {to_own} | {to_peer} |")
    ran = next((one for one in found.values() if "failed" not in one), None)
    if ran is not None:
        lines += ["", f"n: {ran['runs']} runs of {ran['steps']} steps, each way once."]
    return "\n".join(lines) + "\n"
