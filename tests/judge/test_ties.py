"""What decides at a tie: claims about other metrics and lines of the rule, as docs/designs.md writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from evidence_factory import LEVELS, make_evidence, small_study

from ablate.judge.decide import decide
from ablate.judge.design.assumptions import assumed
from ablate.judge.design.scenarios import TrueEffects
from ablate.judge.design.simulate import SimulatedScenario, harmful_verdicts, simulate
from ablate.judge.judge import OUTCOME, judge_rows
from prereg.study.spec import Study

TWO_ARMS = {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}}
GAIN = {"claim": "layernorm lowers val/loss", "smallest": 0.02}
SAME = {"claim": "layernorm does_not_change val/loss", "smallest": 0.02}


def breaking(accuracy: str, speed: str) -> dict[str, Any]:
    """For each metric a claim in favour of either arm, by at least a margin."""
    return {
        f"{arm}_by_{metric.partition('/')[2]}": {
            "claim": f"{arm} raises {metric} by at least {least} than {other}",
            "role": "secondary",
        }
        for metric, least in (("val/accuracy", accuracy), ("speed/tokens_per_s", speed))
        for arm, other in (("layernorm", "none"), ("none", "layernorm"))
    }


def tied(when: str = "supported(same)", accuracy: str = "0.005", speed: str = "2%", **changes: Any) -> Study:
    """Two arms, a primary outcome that can be a tie, and two metrics that break it, the first that is shown first."""
    claims = breaking(accuracy, speed)
    document: dict[str, Any] = {
        "variants": TWO_ARMS,
        "hypotheses": {"gain": GAIN, "same": SAME, **claims},
        "decision": [
            {"verdict": "adopt layernorm", "when": "supported(gain) and not supported(same)"},
            *({"verdict": name.replace("_", " "), "when": f"{when} and supported({name})"} for name in claims),
            {"verdict": "tie", "when": when},
            {"verdict": "inconclusive"},
        ],
        "tie_breakers": [],
        "assume": {},
    }
    return small_study(**(document | changes))


def test_the_rule_is_proved_over_the_claims_that_break_the_tie() -> None:
    rows = tied().rule.table()
    assert sum(row.settles for row in rows) == rows[0].of and all(row.settles for row in rows)


def finals(accuracy: float, speed: float) -> dict[str, dict[tuple[str, int], float]]:
    """Equal losses; layernorm's accuracy higher by so much, its speed by that ratio."""
    noise = {1: 0.2, 2: -0.31, 3: 0.1, 4: 0.3, 5: -0.29}
    cells = [(arm, seed) for arm in TWO_ARMS for seed in noise]
    level = {"layernorm": 1.0, "none": 0.0}
    small = {(arm, seed): 1e-3 * noise[seed] * (1 + level[arm]) for arm, seed in cells}
    tokens = LEVELS["speed/tokens_per_s"]
    return {
        "val/loss": {cell: 2.0 + small[cell] for cell in cells},
        "val/accuracy": {cell: 0.5 + accuracy * level[cell[0]] + small[cell] for cell in cells},
        "speed/tokens_per_s": {cell: tokens * speed ** level[cell[0]] * (1 + small[cell]) for cell in cells},
    }


@pytest.mark.parametrize(
    ("accuracy", "speed", "verdict"),
    [
        (0.01, 1.0, "layernorm by accuracy"),
        (-0.01, 1.1, "none by accuracy"),  # the first that is shown decides
        (0.0, 0.9, "none by tokens per s"),
        (0.004, 1.1, "layernorm by tokens per s"),  # below its margin
        (0.0, 1.01, "tie"),
    ],
)
def test_the_first_metric_that_shows_its_margin_decides_a_tie(accuracy: float, speed: float, verdict: str) -> None:
    found = decide(*make_evidence(tied(), finals=finals(accuracy, speed)))
    assert (found.status, found.verdict) == ("decided", verdict)


def test_the_claims_decide_nothing_where_there_is_no_tie() -> None:
    values = finals(0.05, 1.5)
    # Not shown to be equal: the noise is larger than the margin.
    values["val/loss"] = {cell: 2.0 + 300 * (value - 2.0) for cell, value in values["val/loss"].items()}
    found = decide(*make_evidence(tied(), finals=values))
    assert found.verdict == "inconclusive" and found.findings[2].outcome == "supported"


def test_a_change_for_the_better_breaks_a_claim_of_no_change_and_harms_nobody() -> None:
    study = tied()
    effects = dict.fromkeys(study.hypotheses, 0.0)
    assert harmful_verdicts(study, effects | {"same": -0.5}) == frozenset()
    assert "adopt layernorm" in harmful_verdicts(study, effects | {"same": 0.5})


def simulated(
    when: str, *, n: int, loss: float = 0.0, accuracy: float = 0.0, speed: float = 0.0, margin: float = 2.0
) -> dict[str, tuple[float, float]]:
    """Chance of every verdict, and its error, of 40,000 simulated studies; effects in SDs of a difference, margins of
    the claims that break the tie 1 SD."""
    noise = {m: {"sd": 0.5**0.5, "correlation": 0.0} for m in ("val/loss", "val/accuracy", "speed/tokens_per_s")}
    claims = {"gain": GAIN | {"smallest": margin}, "same": SAME | {"smallest": margin}, **breaking("1", "1")}
    study = tied(when, "1", "1", seeds=list(range(1, n + 1)), hypotheses=claims, assume={"metrics": noise})
    effects = dict(zip(study.hypotheses, (loss, loss, accuracy, -accuracy, speed, -speed), strict=True))
    found: SimulatedScenario = simulate(study, TrueEffects("", effects), assumed(study), n_sims=40_000, seed=[n])
    return {one.of: (one.share, one.error) for one in found.verdicts}


@pytest.mark.simulation
def test_a_wrong_verdict_at_a_tie_has_at_most_alpha() -> None:
    """The numbers of docs/designs.md."""

    def chance(verdicts: dict[str, tuple[float, float]], arm: str = "") -> float:
        return sum(share for verdict, (share, _) in verdicts.items() if f"{arm} by " in verdict)

    for n in (5, 8):
        equal, one, both = (
            simulated("supported(same)", n=n, accuracy=a, speed=s) for a, s in ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0))
        )
        # The tie is none: layernorm is better, or worse, by the margin; none is better by far on the other metric.
        apart = [simulated("supported(same)", n=n, loss=loss, accuracy=-6.0) for loss in (-2.0, 2.0)]
        wrong = [chance(equal), chance(one), chance(both), *map(chance, apart)]
        right = [chance(simulated("supported(same)", n=n, accuracy=a), "layernorm") for a in (2.0, 3.0)]
        print(n, wrong, right, equal["tie"])
        assert all(share < 0.05 + 3 * (0.05 * 0.95 / 40_000) ** 0.5 for share in wrong)
        assert wrong[0] < 0.001 and right[1] > right[0]
        absent = simulated("not supported(gain) and not refuted(gain)", n=n, loss=-1.0, accuracy=-6.0, margin=1.0)
        shown = simulated("supported(same)", n=n, loss=-1.0, accuracy=-6.0, margin=1.0)
        print("absence", chance(absent), "shown", chance(shown))
        assert chance(absent) > 5 * chance(shown)


def best_of_three(correct: str) -> Study:
    """Is layernorm better than each of two other arms?"""
    return small_study(
        hypotheses={
            "than_none": {"claim": "layernorm lowers val/loss", "smallest": 0.02},
            "than_rms": {"claim": "layernorm lowers val/loss than rmsnorm", "smallest": 0.02},
        },
        analysis={"correct": correct},
        decision=[
            {"verdict": "best", "when": "supported(than_none) and supported(than_rms)"},
            {"verdict": "inconclusive"},
        ],
        tie_breakers=[],
        assume={},
    )


def called_best(correct: str, none: float, rms: float, n_sims: int = 40_000) -> float:
    """Share of studies with the verdict, when the two other arms are so many SDs of a run worse."""
    study, rng = best_of_three(correct), np.random.default_rng(0)
    noise = rng.standard_normal((3, n_sims, len(study.seeds)))
    layernorm, others = noise[0], (noise[1] + none, noise[2] + rms)
    codes = judge_rows(study, dict(zip(study.hypotheses, (layernorm - other for other in others), strict=True))).codes
    return float((codes == OUTCOME.index("supported")).all(axis=1).mean())


@pytest.mark.parametrize(("none", "rms"), [(0.0, 0.0), (0.0, 1e3), (1e3, 0.0), (0.0, 1.0)])
def test_an_arm_that_ties_with_another_is_called_best_in_at_most_alpha(none: float, rms: float) -> None:
    share = called_best("none", none, rms)
    # One direction of a two-sided test: nominal .025 where the other comparison is certain.
    assert share <= 0.025 + 4 * (0.025 * 0.975 / 40_000) ** 0.5
    if max(none, rms) == 1e3:
        assert share == pytest.approx(0.025, abs=0.004)


def test_a_correction_between_them_would_only_cost_power() -> None:
    plain, corrected = called_best("none", 2.5, 2.5), called_best("holm", 2.5, 2.5)
    assert 0.6 < corrected < plain < corrected + 0.05
