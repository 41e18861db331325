"""Claims about runs that cannot be compared as measured: uneven evaluation steps, and seeds that gave the same run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from evidence_factory import make_evidence, make_ledger, make_registration, one_claim, with_run

from ablate.judge.decide import decide
from ablate.judge.verdict import Check, Decision
from ablate.records.evidence import METRIC_COLUMNS, Evidence
from ablate.records.run_record import RunRecord
from prereg.errors import SpecError
from prereg.registry.registration import Registration
from prereg.study.command import ScriptPin, code_sha256
from prereg.study.spec import Study

SAME_STEPS, DISTINCT = "pairs were measured at the same steps", "seeds gave distinct runs"
COMMAND: dict[str, Any] = {
    "trainer": "command",
    "command": ["{python}", "train.py"],
    "base": {"norm": 0},
    "variants": {"none": {}, "layernorm": {"norm": 1}},
}


def failed(decision: Decision, name: str) -> Check | None:
    return next((check for check in decision.checks if check.name == name and not check.passed), None)


def with_curve(evidence: Evidence, metric: str, curves: dict[tuple[str, int], dict[int, float]]) -> Evidence:
    """The same evidence with other values of one metric: by run, step -> value."""
    kept = evidence.metrics[evidence.metrics["metric"] != metric]
    rows = [
        (arm, seed, step, metric, value) for (arm, seed), line in curves.items() for step, value in sorted(line.items())
    ]
    return replace(evidence, metrics=pd.concat([kept, pd.DataFrame(rows, columns=list(METRIC_COLUMNS))]))


def noisy(study: Study, every: dict[str, int], *, seed: int = 0, last: int = 60) -> tuple[Registration, Evidence]:
    """Evidence of equal laws, each arm evaluated every so many steps: a falling loss with noise at each evaluation."""
    registration, evidence = make_evidence(study)
    rng = np.random.default_rng(seed)
    curves = {
        (arm, one): {
            step: 2.0 + 1.5 * float(np.exp(-step / 20)) + 0.01 * float(rng.standard_normal())
            for step in range(0, last + 1, every[arm])
        }
        for arm, one in study.cells
    }
    return registration, with_curve(evidence, "val/loss", curves)


def two_arms(read: Any, **changes: Any) -> Study:
    variants = {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}}
    return one_claim(hypothesis={"read": read}, **({"variants": variants} | changes))


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (
            "best",
            "seeds 1, 2, 3 and 2 more: layernorm 61 evaluations from step 0 to 60, last step 60 against none 4",
        ),
        (
            {"last": 3},
            "seeds 1, 2, 3 and 2 more: layernorm 3 evaluations from step 58 to 60, last step 60 against none 3",
        ),
        ("area", "layernorm 61 evaluations"),
    ],
)
def test_an_arm_that_is_evaluated_more_often_gives_no_verdict(read: Any, said: str) -> None:
    study = two_arms(read)
    uneven = decide(*noisy(study, {"none": 20, "layernorm": 1}))
    found = failed(uneven, SAME_STEPS)
    assert found is not None and found.severity == "inadmissible" and said in found.found
    assert uneven.status == "inadmissible" and uneven.verdict is None and SAME_STEPS in uneven.because
    even = decide(*noisy(study, {"none": 20, "layernorm": 20}))
    assert even.status == "decided" and failed(even, SAME_STEPS) is None
    assert all(check.name != SAME_STEPS for check in even.checks)


def test_a_value_at_one_step_or_at_a_planned_end_needs_no_equal_steps() -> None:
    for read in ("final", {"step": 40}):
        assert failed(decide(*noisy(two_arms(read), {"none": 20, "layernorm": 1})), SAME_STEPS) is None


def test_an_arm_of_a_trainer_of_ones_own_that_stops_early_gives_no_verdict() -> None:
    study = one_claim(**COMMAND)
    registration, evidence = own_evidence(study, {"none": 60, "layernorm": 60})
    assert decide(registration, evidence).status == "decided"
    registration, evidence = own_evidence(study, {"none": 60, "layernorm": 40})
    found = failed(decide(registration, evidence), SAME_STEPS)
    assert found is not None and found.severity == "inadmissible"
    assert "h (val/loss), seeds 1, 2, 3 and 2 more: layernorm last step 40 against none last step 60" in found.found


def test_without_pairs_all_runs_of_a_claim_must_have_the_same_steps() -> None:
    study = one_claim(**COMMAND, analysis={"test": "welch"})
    registration, evidence = own_evidence(study, {"none": 60, "layernorm": 60})
    assert failed(decide(registration, evidence), SAME_STEPS) is None
    found = failed(decide(*cut(registration, evidence, ("none", 3), 40)), SAME_STEPS)
    assert found is not None and "none seed 3 last step 40" in found.found


def test_a_run_that_diverged_early_is_not_compared() -> None:
    study = one_claim(hypothesis={"read": "best"}, seeds=6)
    registration, evidence = make_evidence(study, diverged=(("layernorm", 2),))
    assert failed(decide(registration, evidence), SAME_STEPS) is None


def test_a_study_whose_arms_train_for_other_steps_is_refused_where_the_reading_depends_on_them() -> None:
    variants = {"none": {}, "layernorm": {"budget.steps": 40}}
    with pytest.raises(SpecError, match="evaluated at other steps") as found:
        two_arms("best", variants=variants)
    assert found.value.where.field == ("hypotheses", "h", "read")
    two_arms("final", variants=variants)


def own_evidence(study: Study, last: dict[str, int], *, seed: int = 0) -> tuple[Registration, Evidence]:
    """Records of a trainer of one's own, from those of the built-in one: each arm ends at its own step."""
    arms = {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}}
    _, made = make_evidence(one_claim(seeds=study.n_seeds, variants=arms), seed=seed)
    registration = make_registration(study).model_copy(
        update={"scripts": (ScriptPin(path="train.py", sha256="0" * 64),)}
    )
    runs = []
    for run in made.runs:
        changed = {
            "registration": registration.sha256,
            "config": study.arms[run.variant].config,
            "steps": last[run.variant],
            "provenance": run.provenance.model_copy(update={"code": code_sha256(registration.files)}),
        }
        runs.append(run.model_copy(update=changed))
    frame = made.metrics
    kept = frame["step"].to_numpy() <= frame["variant"].map(last).to_numpy()
    ledger = make_ledger(registration, runs)
    return registration, replace(
        made, runs=tuple(runs), metrics=frame[kept], ledger=ledger, ledger_head=ledger[-1].sha256
    )


def cut(
    registration: Registration, evidence: Evidence, cell: tuple[str, int], last: int
) -> tuple[Registration, Evidence]:
    frame = evidence.metrics
    beyond = (frame["variant"] == cell[0]) & (frame["seed"] == cell[1]) & (frame["step"] > last)
    return registration, replace(with_run(evidence, cell, steps=last), metrics=frame[~beyond])


def repeated(evidence: Evidence, copies: dict[int, int], *, arms: tuple[str, ...] = ("none", "layernorm")) -> Evidence:
    """The same evidence with all values of some seeds replaced by those of others, as of a trainer that ignores them:
    seed -> the seed whose run it repeats."""
    frame = evidence.metrics
    parts = [frame[~(frame["variant"].isin(arms) & frame["seed"].isin(copies))]]
    parts += [frame[frame["variant"].isin(arms) & (frame["seed"] == of)].assign(seed=to) for to, of in copies.items()]
    outcomes = {run.cell: run.outcome_sha256 for run in evidence.runs}

    def again(run: RunRecord) -> RunRecord:
        of = copies.get(run.seed, run.seed) if run.variant in arms else run.seed
        return run.model_copy(update={"outcome_sha256": outcomes[run.variant, of]})

    return replace(evidence, metrics=pd.concat(parts), runs=tuple(map(again, evidence.runs)))


PAIR = {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}}
THREE_TIMES = {3: 1, 5: 1, 4: 2, 6: 2}


def resealed(registration: Registration, evidence: Evidence) -> tuple[Registration, Evidence]:
    ledger = make_ledger(registration, list(evidence.runs))
    return registration, replace(evidence, ledger=ledger, ledger_head=ledger[-1].sha256)


@pytest.mark.parametrize(
    ("copies", "arms", "said"),
    [
        (THREE_TIMES, ("none", "layernorm"), "layernorm, seeds 1, 3 and 5, of 6 runs"),
        (THREE_TIMES, ("none", "layernorm"), "none, seeds 2, 4 and 6, of 6 runs"),
        ({4: 2}, ("none", "layernorm"), "layernorm, seeds 2 and 4, of 6 runs; none, seeds 2 and 4, of 6 runs"),
        ({4: 2}, ("none",), "1: none, seeds 2 and 4, of 6 runs"),
        (dict.fromkeys(range(2, 7), 1), ("none",), "none, seeds 1, 2, 3, 4, 5 and 6, of 6 runs"),
    ],
)
def test_seeds_that_repeat_a_run_give_no_verdict(copies: dict[int, int], arms: tuple[str, ...], said: str) -> None:
    registration, evidence = make_evidence(one_claim(seeds=6, variants=PAIR))
    assert decide(registration, evidence).status == "decided"
    decision = decide(*resealed(registration, repeated(evidence, copies, arms=arms)))
    found = failed(decision, DISTINCT)
    assert found is not None and found.severity == "inadmissible" and said in found.found
    assert decision.status == "inadmissible" and decision.verdict is None


def test_a_time_that_differs_does_not_hide_a_repeated_run() -> None:
    registration, evidence = make_evidence(one_claim(seeds=6, variants=PAIR))
    copied = repeated(evidence, {4: 2})
    runs = tuple(run.model_copy(update={"outcome_sha256": f"{at:064x}"}) for at, run in enumerate(copied.runs))
    timed = with_curve(
        replace(copied, runs=runs), "my/seconds", {run.cell: {60: 10.0 + at} for at, run in enumerate(runs)}
    )
    assert failed(decide(*resealed(registration, timed)), DISTINCT) is not None


@pytest.mark.slow
@pytest.mark.parametrize("single", [False, True])
def test_equal_values_on_a_coarse_grid_are_no_repeated_runs(single: bool) -> None:
    # One accuracy over 200 items and nothing else: with an SD of 4 items, half of such studies have equal seeds.
    rng, equal = np.random.default_rng(1), 0
    study = one_claim("layernorm raises val/accuracy", 0.01, seeds=6, variants=PAIR)
    for trial in range(20):
        registration, evidence = make_evidence(study, seed=trial)
        scores = {cell: int(rng.normal(140, 4)) / 200 for cell in study.cells}
        scores = {cell: float(np.float32(one)) if single else one for cell, one in scores.items()}
        frame = evidence.metrics
        bare = replace(evidence, metrics=frame[frame["metric"] == "train/loss"].iloc[:0])
        # A curve that no seed changes, such as the learning rate, tells no runs apart.
        rates = {cell: {step: 1e-3 / (step + 3.7) for step in range(60)} for cell in study.cells}
        bare = with_curve(with_curve(bare, "my/rate", rates), "val/accuracy", {c: {60: v} for c, v in scores.items()})
        runs = tuple(run.model_copy(update={"outcome_sha256": f"{scores[run.cell]}"}) for run in bare.runs)
        equal += any(len({scores[arm, seed] for seed in study.seeds}) < 6 for arm in study.arms)
        assert failed(decide(*resealed(registration, replace(bare, runs=runs))), DISTINCT) is None
    assert equal > 10


def test_a_size_that_no_seed_changes_is_no_repeated_run_and_a_copied_curve_is() -> None:
    registration, evidence = make_evidence(
        one_claim("layernorm lowers val/perplexity", 0.01, seeds=6, variants=PAIR, hypothesis={"scale": "log"})
    )
    sizes = {(arm, seed): {60: {"none": 0.123848, "layernorm": 0.123011}[arm]} for arm, seed in evidence.planned}
    assert failed(decide(registration, with_curve(evidence, "val/perplexity", sizes)), DISTINCT) is None
    # A trainer that ignores its seed gives one end value with all its digits.
    ends = {cell: {60: line[60] / 3.0} for cell, line in sizes.items()}
    assert failed(decide(registration, with_curve(evidence, "val/perplexity", ends)), DISTINCT) is not None
    curves = {cell: {step: 1.0 + line[60] / (step + 1) for step in range(61)} for cell, line in sizes.items()}
    assert failed(decide(registration, with_curve(evidence, "val/perplexity", curves)), DISTINCT) is not None
