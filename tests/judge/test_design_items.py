"""Claims about planning a test over new seeds and new items, against tables of seeds x items drawn whole."""

from __future__ import annotations

from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import pytest
from evidence_factory import small_study
from paired_tests import judge_families, two_way, weigh

from ablate.judge.design.assumptions import assumed
from ablate.judge.design.characteristics import Design, simulate_design
from ablate.judge.design.scenarios import Drawn, TrueEffects, draw_studies
from ablate.judge.design.simulate import judge_drawn
from ablate.judge.judge import judge_rows
from ablate.judge.stats.crossed_items import Crossed
from ablate.judge.stats.null_hypotheses import Nulls
from ablate.judge.stats.two_way import critical_values, spread_of, tail_of
from prereg.errors import SpecError
from prereg.rule.divergence import least_pairs
from prereg.study.measure import Harness, units_of
from prereg.study.spec import Study

METRICS = ("harness/accuracy_shots_0", "harness/accuracy_shots_1")
SD, R, N = 0.012, 0.5, 40
OVER = {"sd_items": 0.08, "sd_residual": 0.05, "items": N}
"""Items add about as much to the standard error as five seeds do."""
GAIN, MARGIN = 0.05, 0.04


def items_study(over: dict[str, Any] | None = OVER, *, seeds: int = 5, **changes: Any) -> Study:
    """Two gains and two guardrails on two metrics over items, in the usual rule."""
    believed: dict[str, Any] = {"sd": SD, "correlation": R} | ({} if over is None else {"over_items": over})
    gain, harm = METRICS
    claims = {
        "gain_ln": {"claim": f"layernorm raises {gain}", "smallest": GAIN},
        "gain_rms": {"claim": f"rmsnorm raises {gain}", "smallest": GAIN},
        "harm_ln": {"claim": f"layernorm does_not_worsen {harm}", "smallest": MARGIN, "role": "guardrail"},
        "harm_rms": {"claim": f"rmsnorm does_not_worsen {harm}", "smallest": MARGIN, "role": "guardrail"},
    }
    document: dict[str, Any] = {
        "seeds": list(range(1, seeds + 1)),
        "hypotheses": claims,
        "analysis": {"test": "items", "estimand": "new_seeds_and_items"},
        "measure": {"every": 20, "harness": {"tasks": "blimp", "shots": [0, 1]}},
        "tie_breakers": [],
        "assume": {"metrics": dict.fromkeys(METRICS, believed), "metric_correlation": 0.6},
    }
    return small_study(**(document | changes))


def tables(study: Study, n: int, studies: int, effects: dict[str, float], rng: np.random.Generator) -> dict[str, Any]:
    """Hypothesis -> studies x seeds x items: luck of runs, of items and of both, arm by arm, and metrics correlated."""
    by_run = sqrt(SD**2 * (1 - R) - OVER["sd_residual"] ** 2 / 2 / N)
    correlation = study.assume.metric_correlation or 0.0
    found: dict[str, Any] = {}

    def noise() -> Any:
        shapes = ((by_run, (n, 1)), (OVER["sd_items"] / sqrt(2), (1, N)), (OVER["sd_residual"] / sqrt(2), (n, N)))
        return [{arm: sd * rng.standard_normal((studies, *shape)) for arm in study.arms} for sd, shape in shapes]

    common = noise()
    own = {metric: noise() for metric in METRICS}
    for name, claim in study.claims.items():
        found[name] = effects[name]
        for shared, mine in zip(common, own[claim.metric], strict=True):
            for arm, weight in claim.weights.items():
                mixed = sqrt(correlation) * shared[arm] + sqrt(1 - correlation) * mine[arm]
                found[name] = found[name] + weight * mixed
    return found


def judged(study: Study, drawn: dict[str, Any], row: int, kept: Any = None) -> list[str]:
    """Outcomes of one study by the real test over its table."""
    nulls: dict[str, Nulls | None] = {}
    for name, claim in study.claims.items():
        table = drawn[name][row] if kept is None else drawn[name][row][kept[name][row]]
        if len(table) < (2 if kept is None or kept[name][row].all() else least_pairs(study)):
            nulls[name] = None
            continue
        test = two_way(Crossed(table, np.arange(N)))
        nulls[name] = weigh(test, claim.verb, claim.better, study.hypotheses[name].smallest)
    return [one.outcome for one in judge_families(study, nulls).values()]


def agree(one: float, other: float, studies: int, others: int, what: object) -> None:
    middle = (one * studies + other * others + 2) / (studies + others + 4)
    assert abs(one - other) <= 4.5 * sqrt(middle * (1 - middle) * (1 / studies + 1 / others)), (what, one, other)


@cache
def planned() -> Design:
    return simulate_design(items_study())


def test_what_is_drawn_of_items_has_the_law_of_their_mean_squares() -> None:
    study, studies, n = items_study(), 20_000, 4
    effects = dict.fromkeys(study.hypotheses, 0.0)
    truth = TrueEffects("t", effects, correlation=0.6)
    drawn = draw_studies(study, truth, assumed(study), n_sims=studies, n_seeds=n, rng=np.random.default_rng(1))
    assert drawn.items is not None
    few, weights = 2_000, np.full(N, 1 / N)
    real = tables(study, n, few, effects, np.random.default_rng(2))
    ours: dict[str, list[Any]] = {"means": [], "seeds": [], "units": [], "both": []}
    theirs: dict[str, list[Any]] = {key: [] for key in ours}
    for name in study.hypotheses:
        rows, over, spread = drawn.differences[name], drawn.items[name], spread_of(real[name], weights)
        for key, mine in zip(
            ours, (rows.mean(axis=1), rows.var(axis=1, ddof=1) / n, over.units, over.both), strict=True
        ):
            ours[key].append(mine)
        for key, other in zip(
            theirs, (real[name].mean(axis=(1, 2)), spread.seeds, spread.units, spread.both), strict=True
        ):
            theirs[key].append(other)
    for key, values in ours.items():
        mine, other = np.array(values), np.array(theirs[key])
        assert mine.std(axis=1) == pytest.approx(other.std(axis=1), rel=0.12), key
        if key != "means":
            assert mine.mean(axis=1) == pytest.approx(other.mean(axis=1), rel=0.05), key
        # Claims that share an arm, or a metric, share their luck.
        assert np.abs(np.corrcoef(mine) - np.corrcoef(other)).max() < 0.1, (key, np.corrcoef(mine), np.corrcoef(other))
    shared = np.corrcoef(np.array(ours["means"]))
    assert shared[0, 1] > 0.4 and shared[0, 2] > 0.5 and shared[0, 3] > 0.2


def test_pairs_that_are_lost_leave_mean_squares_of_fewer_seeds() -> None:
    study, studies, n = items_study(), 20_000, 5
    truth = TrueEffects("t", dict.fromkeys(study.hypotheses, 0.0), divergence=0.15)
    drawn = draw_studies(study, truth, assumed(study), n_sims=studies, n_seeds=n, rng=np.random.default_rng(3))
    assert drawn.items is not None and drawn.kept is not None
    pairs, over = drawn.kept["gain_ln"].sum(axis=1), drawn.items["gain_ln"]
    for left in (3, 4, 5):
        mine = pairs == left
        units = OVER["sd_items"] ** 2 / N + OVER["sd_residual"] ** 2 / N / left
        assert over.units[mine].mean() == pytest.approx(units, rel=0.02)
        assert over.both[mine].mean() == pytest.approx(OVER["sd_residual"] ** 2 / N / left, rel=0.02)
        # A mean square of df d has a relative variance of 2 / d.
        relative = over.both[mine].var() / over.both[mine].mean() ** 2
        assert relative == pytest.approx(2 / ((left - 1) * (N - 1)), rel=0.15)


def test_a_p_over_items_is_a_statement_about_the_interval_of_its_level() -> None:
    study, n = items_study(), 4
    drawn = draw_studies(
        study,
        TrueEffects("t", {"gain_ln": 0.05, "gain_rms": 0.0, "harm_ln": 0.0, "harm_rms": 0.0}),
        assumed(study),
        n_sims=500,
        n_seeds=n,
        rng=np.random.default_rng(4),
    )
    assert drawn.items is not None
    codes = judge_rows(study, drawn.differences, items=drawn.items).codes
    seconds, units = critical_values(n, tail_of(np.full(N, 1 / N)), 0.05)
    rows, over = drawn.differences["gain_ln"], drawn.items["gain_ln"]
    by_seeds, by_units = rows.var(axis=1, ddof=1) / n * seconds**2, over.units * units**2
    half = np.sqrt(np.maximum(by_seeds + by_units - units**2 * over.both, np.maximum(by_seeds, by_units)))
    # Under Holm over two claims a first step at .025 supports, and one at .05 is the least that any step asks.
    assert not (codes[:, 0] == 0)[rows.mean(axis=1) < half].any()
    assert 0 < (codes[:, 0] == 0).mean() < (rows.mean(axis=1) >= half).mean() < 1


def test_without_the_spread_of_items_it_says_what_to_write_and_gives_no_number() -> None:
    found = simulate_design(items_study(None))
    assert (found.scenarios, found.curve, found.false_adoption, found.seeds_80) == ((), (), None, None)
    assert [one.power for one in found.hypotheses] == [None] * 4
    (note,) = found.notes
    assert note.startswith("not simulated: ") and "needs the spread of items;" in note
    assert "harness/accuracy_shots_0: {sd: SD, correlation: R, over_items: {sd_items: SD, sd_residual: SD}}" in note
    folder = {"every": 20, "harness": {"tasks": "tasks/mine", "shots": [0, 1]}}
    uncounted = {key: value for key, value in OVER.items() if key != "items"}
    (note,) = simulate_design(items_study(uncounted, measure=folder)).notes
    assert "needs the number of items;" in note and "sd_residual: SD, items: N}" in note
    (note,) = simulate_design(items_study(assume={})).notes
    assert "needs the SD of a run's mean over its items and the spread of items;" in note


def test_the_number_of_items_is_that_of_the_pack_unless_it_is_given() -> None:
    harness = Harness(tasks="blimp", shots=(0, 1))
    assert units_of(METRICS[0], harness) == 6_700
    assert units_of("harness/macro_accuracy", harness) == 67 * harness.items_per_task
    assert units_of("harness/accuracy/adjunct_island", harness) == harness.items_per_task
    assert units_of(METRICS[0], harness.model_copy(update={"clusters": "tasks"})) == 67
    assert units_of(METRICS[0], harness.model_copy(update={"items_per_task": 1_001})) is None
    assert units_of(METRICS[0], Harness(tasks="lm_eval:piqa")) is None
    pack = {key: value for key, value in OVER.items() if key != "items"}
    assert {one.n_items for one in assumed(items_study(pack)).metrics} == {6_700}
    assert {one.n_items for one in assumed(items_study()).metrics} == {N}


def test_a_residual_that_contradicts_the_sd_is_refused() -> None:
    with pytest.raises(SpecError, match=r"alone gives the mean over them an SD over seeds of 0\.0316") as raised:
        assumed(items_study(OVER | {"sd_residual": 0.2}))
    assert raised.value.where.field == ("assume", "metrics", METRICS[0], "over_items", "sd_residual")
    assert raised.value.fix == "sd_residual: 0.0759, or a larger sd"
    assert assumed(items_study(OVER | {"sd_residual": 0.0758})).metrics[0].sd_residual == 0.0758


def test_items_are_assumed_of_metrics_that_have_them() -> None:
    with pytest.raises(SpecError, match="val/loss is no mean over items") as raised:
        small_study(assume={"metrics": {"val/loss": {"sd": 0.01, "over_items": OVER}}})
    assert raised.value.where.field == ("assume", "metrics", "val/loss", "over_items")


def test_a_study_need_not_assume_anything_of_items() -> None:
    written = items_study(None).model_dump(mode="json")["assume"]["metrics"][METRICS[0]]
    assert written == {"sd": SD, "correlation": R, "over_items": None}
    again = Study.model_validate_json(items_study().model_dump_json())
    assert again == items_study() and again.assume.metrics[METRICS[0]].over_items is not None
    plain = assumed(small_study()).metrics[0]
    assert (plain.n_items, plain.sd_items, plain.sd_residual) == (None, None, None)


def test_seeds_cannot_make_up_for_few_items() -> None:
    found = simulate_design(items_study(OVER | {"items": 12, "sd_residual": 0.04}), n_sims=300)
    gain = found.hypotheses[0]
    # With twelve items alone the standard error is .023, and .05 is twice that.
    assert gain.power is not None and gain.power < 0.5
    assert gain.seeds_80 is None and gain.detectable is not None and gain.detectable > GAIN


STUDIES = 700


@pytest.mark.simulation
@pytest.mark.parametrize("name", ["no effect anywhere", "every claim true"])
def test_every_chance_is_that_of_whole_tables_and_the_real_test(name: str) -> None:
    study, found = items_study(), next(one for one in planned().scenarios if one.name == name)
    assert found.correlation == 0.6
    drawn = tables(study, 5, STUDIES, found.effects, np.random.default_rng(len(name)))
    outcomes = [judged(study, drawn, row) for row in range(STUDIES)]
    for key, chances in (("supported", found.supported), ("refuted", found.refuted)):
        for place, chance in enumerate(chances):
            share = sum(one[place] == key for one in outcomes) / STUDIES
            agree(share, chance.share, STUDIES, found.n_sims, (name, key, chance.of))
    stable = dict.fromkeys(study.arms, True)
    verdicts = [study.rule.decide(dict(zip(study.hypotheses, one, strict=True)), stable).verdict for one in outcomes]
    for chance in found.verdicts:  # one study in a hundred has a false alarm of stability
        assert abs(verdicts.count(chance.of) / STUDIES - chance.share) < 0.01 + 4.5 * 0.5 / sqrt(STUDIES), chance


@pytest.mark.simulation
def test_power_detectable_effect_and_seeds_are_those_of_whole_tables() -> None:
    study, found = items_study(), planned()
    gain = found.hypotheses[0]
    assert gain.detectable is not None and gain.seeds_80 is not None and gain.power is not None
    true = {"gain_ln": GAIN, "gain_rms": GAIN, "harm_ln": 0.0, "harm_rms": 0.0}

    def power(n: int, effect: float, seed: int) -> float:
        drawn = tables(study, n, STUDIES, true | {"gain_ln": effect}, np.random.default_rng(seed))
        return sum(judged(study, drawn, row)[0] == "supported" for row in range(STUDIES)) / STUDIES

    agree(power(5, GAIN, 1), gain.power, STUDIES, 10_000, "power")
    agree(power(5, gain.detectable, 2), 0.8, STUDIES, 5_000, gain.detectable)
    error = 4.5 * sqrt(0.16 * (1 / STUDIES + 1 / 2_000))
    assert power(gain.seeds_80, GAIN, 3) >= 0.8 - error
    assert power(gain.seeds_80 - 1, GAIN, 4) <= 0.8 + error


@pytest.mark.simulation
def test_false_adoption_and_lost_pairs_are_those_of_whole_tables() -> None:
    study, found = items_study(), planned()
    worst = found.worst[0]
    assert found.false_adoption is not None
    drawn = tables(study, 5, STUDIES, worst.effects, np.random.default_rng(7))
    false = 0
    stable = dict.fromkeys(study.arms, True)
    for row in range(STUDIES):
        outcomes = dict(zip(study.hypotheses, judged(study, drawn, row), strict=True))
        verdict = study.rule.decide(outcomes, stable).verdict
        arm = {"adopt layernorm": "ln", "adopt rmsnorm": "rms"}.get(verdict)
        false += arm is not None and (worst.effects[f"gain_{arm}"] <= 0 or worst.effects[f"harm_{arm}"] <= -MARGIN)
    agree(false / STUDIES, found.false_adoption.share, STUDIES, worst.n_sims, worst.name)
    # Lost pairs: the same studies judged with the pairs that are left.
    truth = TrueEffects("t", {"gain_ln": GAIN, "gain_rms": 0.0, "harm_ln": 0.0, "harm_rms": -MARGIN}, divergence=0.1)
    ours = draw_studies(study, truth, assumed(study), n_sims=10_000, n_seeds=5, rng=np.random.default_rng(8))
    codes = judge_drawn(study, Drawn(ours.differences, ours.kept, ours.stable, ours.lost, ours.items)).codes
    real, rng = tables(study, 5, STUDIES, truth.effects, np.random.default_rng(9)), np.random.default_rng(10)
    whole = {arm: rng.random((STUDIES, 5)) >= 0.1 for arm in study.arms}
    kept = {name: np.all([whole[arm] for arm in claim.named], axis=0) for name, claim in study.claims.items()}
    outcomes_of_all = [judged(study, real, row, kept) for row in range(STUDIES)]
    for place, name in enumerate(study.hypotheses):
        share = sum(one[place] == "supported" for one in outcomes_of_all) / STUDIES
        agree(share, float((codes[:, place] == 0).mean()), STUDIES, 10_000, name)
