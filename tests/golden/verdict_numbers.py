"""The numbers of a decision as plain data: what tests/golden holds still, and no word that a report may change.

The one place that knows what the judge returns. Whoever renames a field of a finding changes it here, and no
expected.json.
"""

from __future__ import annotations

from typing import Any

from ablate.judge.verdict import Decision, Estimate, Finding, Interval


def numbers_of(decision: Decision) -> dict[str, Any]:
    """Status, verdict, line, failed checks, stability and every finding."""
    return {
        "status": decision.status,
        "verdict": decision.verdict,
        "line": decision.line,
        "failed_checks": {check.name: check.severity for check in decision.checks if not check.passed},
        "stability": {
            one.variant: {
                "stable": one.stable,
                "diverged": list(one.diverged),
                "spikes": {str(seed): list(steps) for seed, steps in one.spikes.items()},
            }
            for one in decision.stability
        },
        "findings": {finding.hypothesis: _finding(finding) for finding in decision.findings},
        **({} if decision.look is None else {"look_at_seeds": decision.look.n_seeds}),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    margin, gate = finding.margin, finding.gate
    return {
        "outcome": finding.outcome,
        "n": finding.n,
        "family": finding.family,
        "smallest": finding.smallest,
        "percent": finding.percent,
        "exploratory": bool(finding.amended) or finding.role == "exploratory",
        "p_support": finding.p_support,
        "p_support_adjusted": finding.p_support_adjusted,
        "p_refute": finding.p_refute,
        "p_refute_adjusted": finding.p_refute_adjusted,
        "test": _estimate(finding.estimate),
        "simultaneous": _interval(finding.simultaneous),
        "step": _interval(finding.step),
        "also": [_estimate(one) for one in finding.also],
        "effects": {one.name: {"value": one.value, "interval": _interval(one.interval)} for one in finding.effects},
        "margin": None
        if margin is None
        else {
            "zone": margin.zone,
            "p_reached": margin.p_reached,
            "p_short": margin.p_short,
            "interval": _interval(margin.interval),
        },
        "gate": None if gate is None else {"weight": gate.weight, "level": gate.level},
        "pairs": {str(pair.seed): pair.difference for pair in finding.pairs},
        "correlation": finding.correlation,
        "arms": {one.arm: {"n": one.n, "mean": one.mean, "sd": one.sd} for one in finding.arms},
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    items = estimate.items
    return {
        "method": estimate.method,
        "difference": estimate.difference,
        "interval": _interval(estimate.interval),
        "p": estimate.p,
        "p_floor": estimate.p_floor,
        "n": estimate.n,
        "ranked": estimate.ranked,
        "se": estimate.se,
        "df": estimate.df,
        **({} if items is None else {"items": items.n_items, "units": items.n_units, "estimand": items.estimand}),
    }


def _interval(interval: Interval | None) -> list[float | None] | None:
    """Its ends and its level."""
    return None if interval is None else [interval.low, interval.high, interval.level]
