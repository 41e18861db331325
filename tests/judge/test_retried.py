"""Claims about runs that were begun again for their values: how often that finds an effect where there is none."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from evidence_factory import chain, make_evidence, one_claim, small_study, with_run

from ablate.judge.audit.retried import worst_cases
from ablate.judge.decide import decide
from ablate.judge.findings import judge_hypotheses
from ablate.judge.readings import final_values
from ablate.judge.stats.null_hypotheses import found_nulls
from ablate.judge.verdict import Decision
from ablate.records.evidence import Evidence
from prereg.registry.ledger_entry import Event
from prereg.registry.plan import Cell
from prereg.registry.registration import Registration
from prereg.study.spec import Study

LOST = "no start of a run was lost before its seal"
SAME = "the verdict is the same with runs begun again at their worst"
ARMS = ("none", "layernorm")
LOOSE = {"budget": {"steps": 60, "batch": 4}, "model": {"layers": 2, "width": 16, "heads": 2, "context": 8}}
LOOSE |= {"numerics": {"deterministic": False}}


def null_study(seeds: int, **changes: Any) -> Study:
    """One claim on two arms, of runs that need not repeat to the bit."""
    arms = {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}}
    # With a smallest difference, an improvement that is real and too small would be refuted.
    return one_claim(smallest=0.0, seeds=seeds, base=LOOSE, variants=arms, **changes)


def begun_again(registration: Registration, evidence: Evidence, times: dict[Cell, int]) -> Evidence:
    """The same evidence, with starts of these runs that had recorded a claimed value before they were interrupted."""
    events: list[tuple[Event, dict[str, Any]]] = []
    for entry in evidence.ledger:
        body = entry.stated
        if entry.event == "sealed":
            cell = str(body["variant"]), int(str(body["seed"]))
            named = {"variant": cell[0], "seed": cell[1], "made_with": "m"}
            events.append(("started", named | {"attempt": 1}))
            for attempt in range(2, 2 + times.get(cell, 0)):
                events.append(("started", named | {"attempt": attempt, "left_values": True}))
            body["attempts"] = 1 + times.get(cell, 0)
        events.append((entry.event, body))
    for cell, n in times.items():
        evidence = with_run(evidence, cell, attempts=1 + n)
    return replace(evidence, ledger=chain(registration, events))


def decided(study: Study, values: dict[Cell, float], times: dict[Cell, int]) -> Decision:
    registration, evidence = make_evidence(study, finals={"val/loss": values})
    return decide(registration, begun_again(registration, evidence, times))


def rates(n_seeds: int, most: int, studies: int) -> dict[str, float]:
    """How often the claim is supported, and how often the verdict says so, of studies without an effect whose candidate
    is begun again while its value lies above the mean: the worst run first, at most so often."""
    study, rng = null_study(n_seeds), np.random.default_rng(5)
    counts = {"supported": 0, "verdict": 0}
    for _ in range(studies):
        values = {(arm, seed): 2.0 + 0.01 * rng.standard_normal() for arm in ARMS for seed in study.seeds}
        times: dict[Cell, int] = {}
        for seed in sorted(study.seeds, key=lambda seed: -values["layernorm", seed]):
            cell = "layernorm", seed
            while values[cell] > 2.0 and sum(times.values()) < most:
                values[cell] = 2.0 + 0.01 * rng.standard_normal()
                times[cell] = times.get(cell, 0) + 1
        decision = decided(study, values, times)
        counts["supported"] += decision.findings[0].outcome == "supported"
        counts["verdict"] += decision.verdict == "yes"
    return {name: count / studies for name, count in counts.items()}


@pytest.mark.simulation
@pytest.mark.parametrize(("most", "supported", "verdict"), [(0, 0.025, 0.025), (1, 0.054, 0.036), (99, 0.209, 0.017)])
def test_retrying_for_values_no_longer_finds_an_effect(most: int, supported: float, verdict: float) -> None:
    # The rates of 200,000 studies by the same rules written out in numpy (standard error .001 at most). Where every bad
    # run is begun again, the verdicts that are left are those of studies that needed one new start at most.
    studies = 600
    found = rates(5, most, studies)
    for name, rate in (("supported", supported), ("verdict", verdict)):
        assert abs(found[name] - rate) < 4 * sqrt(rate * (1 - rate) / studies), (most, found)


VALUES = {("none", seed): 2.0 + 0.00107 * seed for seed in range(1, 7)}
GAINS = dict(zip(range(1, 7), (0.03, 0.031, 0.029, 0.034, 0.028, 0.001), strict=True))
VALUES |= {("layernorm", seed): VALUES["none", seed] - gain for seed, gain in GAINS.items()}


def nulls_of(study: Study, retried: list[Cell]) -> tuple[float, float, float]:
    """p of support as found, and with the retried runs at both ends."""
    _, evidence = make_evidence(study, finals={"val/loss": VALUES})
    values = final_values(study, evidence)
    found = found_nulls(judge_hypotheses(study, values, rng_seed=1))["h"]
    worst = worst_cases(study, values, retried, look=None, items=None)
    assert found is not None
    return found.support, worst["supported"]["h"].support, worst["refuted"]["h"].support


@pytest.mark.parametrize("arm", ARMS)
def test_a_retried_pair_is_judged_as_the_best_and_as_the_worst_of_the_others(arm: str) -> None:
    study = null_study(6)
    found, best, worst = nulls_of(study, [(arm, 1)])
    by_hand = []
    for gain in (min(GAINS.values()), max(GAINS.values())):
        swapped = VALUES | {("layernorm", 1): VALUES["none", 1] - gain}
        _, evidence = make_evidence(study, finals={"val/loss": swapped})
        (same,) = judge_hypotheses(study, final_values(study, evidence), rng_seed=1)
        by_hand.append(same.p_support)
    assert worst > found and [best, worst] == pytest.approx(sorted(by_hand, key=float), rel=1e-9)


def test_without_pairs_a_retried_run_has_the_values_of_its_own_arm() -> None:
    study = null_study(6, analysis={"test": "welch"})
    found, best, worst = nulls_of(study, [("layernorm", 1)])
    assert best < worst and worst > found


def test_where_every_run_was_begun_again_anything_may_be() -> None:
    study = null_study(6)
    _, best, worst = nulls_of(study, [("layernorm", seed) for seed in study.seeds])
    assert best < 1e-100 and worst == 1.0


def test_one_run_begun_again_is_named_and_decides_nothing_by_itself() -> None:
    study = null_study(6)
    clear = VALUES | {("layernorm", 6): VALUES["none", 6] - 0.03}
    kept = decided(study, clear, {("layernorm", 1): 1})
    named = {check.name: check for check in kept.checks}
    assert kept.verdict == "yes" and named[SAME].passed
    assert named[LOST].severity == "deviation" and "layernorm seed 1: 2 starts" in named[LOST].found
    lucky = clear | {("layernorm", 5): VALUES["none", 5] + 0.002, ("layernorm", 4): VALUES["none", 4] - 0.012}
    assert decided(study, lucky, {}).verdict == "yes"
    rests = decided(study, lucky, {("layernorm", 1): 1})
    (same,) = [check for check in rests.checks if check.name == SAME]
    assert rests.status == "inadmissible" and not same.passed
    assert same.found == "'yes' could be 'inconclusive' with layernorm seed 1 as bad, or as good, as any other"
    twice = decided(study, clear, {("layernorm", 1): 1, ("none", 2): 1})
    assert twice.status == "inadmissible"


def test_runs_that_repeat_to_the_bit_may_be_begun_again() -> None:
    study = small_study()
    registration, evidence = make_evidence(study)
    decision = decide(registration, begun_again(registration, evidence, {("layernorm", 1): 5}))
    assert {LOST, SAME}.isdisjoint({check.name for check in decision.checks})
