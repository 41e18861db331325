"""Tuned comparison: pilot, frozen choice, judged runs on other seeds; what is refused, and what no verdict survives."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evidence_factory import chain, make_evidence, one_claim
from own_trainer import OwnHouse
from quiet import QUIET
from scipy import stats
from study_samples import RATES, tuned_document

import ablate as api
from ablate.judge.decide import decide
from ablate.judge.design.choice import GAPS, worst_choice
from ablate.judge.findings import judge_hypotheses
from ablate.records.evidence import Evidence
from ablate.runner.options import RunOptions
from ablate.verification.verify import verify_target
from prereg.errors import EvidenceError, RunError
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.plan import plan
from prereg.registry.registration import Registration, load_registration
from prereg.study.designs.tune import choose
from prereg.study.load import load_study
from prereg.study.spec import Study

TRAINER = """
import json, math, os
config = json.load(open(os.environ["ABLATE_CONFIG"]))
seed, kind = int(os.environ["ABLATE_SEED"]), config["optimizer"]
best, floor = {"sgd": (-0.5, 2.0), "adamw": (-2.0, 1.7)}[kind]
noise = (seed * (7919 + 31 * len(kind)) % 13) / 400
loss = floor + (math.log10(config["lr"]) - best) ** 2 + noise
with open("metrics.jsonl", "w") as out:
    for step in (1, 2):
        diverges = math.inf if step == 2 and config["lr"] in config["fails"] else 1.0
        print(json.dumps({"step": step, "train/loss": loss * diverges, "val/loss": loss}), file=out)
"""


@pytest.fixture
def house(own_house: OwnHouse) -> OwnHouse:
    own_house.script(TRAINER)
    return own_house


def study_path(house: OwnHouse) -> Path:
    return house.path / "studies" / "own.yaml"


@pytest.mark.slow
def test_an_untuned_contrast_has_the_wrong_sign_and_the_tuned_one_the_right_one(house: OwnHouse) -> None:
    house.register(**tuned_document())
    done = api.run(study_path(house), RunOptions(), workspace=api.Workspace(console=QUIET))
    assert done.summary.complete and done.summary.planned == 2 * 2 * len(RATES) + 4 * 4
    decided = api.decide(study_path(house))
    found = {finding.hypothesis: finding for finding in decided.decision.findings}
    assert decided.decision.verdict == "use AdamW"
    assert (found["tuned"].outcome, found["untuned"].outcome) == ("supported", "refuted")
    # By the trainer's own formula: 1.7 against 2.0 + (log10 0.3 + 0.5)^2, and 2.7 against 2.25 at the rate of the base.
    assert found["tuned"].estimate is not None and found["untuned"].estimate is not None
    assert found["tuned"].estimate.difference == pytest.approx(-0.3, abs=0.03)
    assert found["untuned"].estimate.difference == pytest.approx(0.45, abs=0.03)
    page = (house.path / "reports" / "own" / "report.md").read_text()
    assert "How the settings were chosen" in page and "16 runs of the pilot" in page
    methods = page[page.index("## Methods") :].replace("\\", "")
    for arm, rate in (("sgd", 0.3), ("adamw", 0.01)):  # of each arm that which its judged runs were given
        (given,) = {
            json.loads(path.read_text())["config"]["lr"]
            for path in house.path.glob(f"data/runs/own/*/{arm}/*/run.json")
        }
        assert given == rate and f"lr set to {rate} (chosen by the pilot)" in methods
    tuned = [entry for entry in Ledger(Root(house.path).ledger).entries() if entry.event == "tuned"]
    assert [entry.chosen for entry in tuned] == [{"sgd": {"lr": 0.3}, "adamw": {"lr": 0.01}}]
    assert verify_target(study_path(house)).intact


@pytest.mark.slow
def test_the_pilot_is_run_first_and_each_arm_at_its_frozen_setting(house: OwnHouse) -> None:
    registration = house.register(**tuned_document())
    pilot = [(spec.variant, spec.seed) for spec in plan(registration)]
    assert len(pilot) == 16 and {seed for _, seed in pilot} == {101, 102}
    api.run(study_path(house), RunOptions(), workspace=api.Workspace(console=QUIET))
    frozen = load_registration(Root(house.path), "own")
    assert frozen is not None and frozen.sha256 == registration.sha256
    rates = {name: arm.config["lr"] for name, arm in frozen.study.arms.items()}  # type: ignore[index]
    assert rates == {"sgd": 0.3, "adamw": 0.01, "sgd_untuned": 0.1, "adamw_untuned": 0.1}
    order = [(e.event, getattr(e, "variant", None)) for e in Ledger(Root(house.path).ledger).entries()]
    at = order.index(("tuned", None))
    assert all(variant not in frozen.study.arms for _, variant in order[:at])
    assert all(variant not in frozen.study.pilots for event, variant in order[at:] if event != "decided")


@pytest.mark.slow
def test_a_single_run_that_is_judged_waits_for_the_choice(house: OwnHouse) -> None:
    house.register(**tuned_document())
    before = Root(house.path).ledger.read_bytes()
    with pytest.raises(RunError, match="has not chosen its setting yet"):
        api.run(study_path(house), RunOptions(only=("sgd/1",)), workspace=api.Workspace(console=QUIET))
    assert Root(house.path).ledger.read_bytes() == before
    done = api.run(study_path(house), RunOptions(only=("sgd.lr-0.1/101",)), workspace=api.Workspace(console=QUIET))
    assert (done.summary.sealed, done.summary.planned) == (1, 1)
    assert api.run(study_path(house), RunOptions(), workspace=api.Workspace(console=QUIET)).summary.complete


@pytest.mark.slow
def test_runs_of_another_house_are_imported_after_their_pilot(house: OwnHouse, tmp_path: Path) -> None:
    house.register(**tuned_document())
    api.run(study_path(house), RunOptions(), workspace=api.Workspace(console=QUIET))
    other = OwnHouse(tmp_path / "other")
    other.script(TRAINER)
    other.register(**tuned_document())
    path, runs = study_path(other), house.path / "data" / "runs"
    pilot = [f"{arm}.lr-{rate}/{seed}" for arm in ("sgd", "adamw") for rate in RATES for seed in (101, 102)]
    with pytest.raises(EvidenceError, match="no choice of the pilot yet"):
        api.import_runs(path, runs, note="another machine", only=[*pilot, "sgd_untuned/1"])
    assert api.import_runs(path, runs, note="another machine", only=pilot).missing == 16
    assert api.import_runs(path, runs, note="another machine").missing == 0
    assert api.decide(path).decision.verdict == "use AdamW"


@pytest.mark.slow
def test_a_choice_survives_a_crash_right_after_it(house: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    house.register(**tuned_document())
    with monkeypatch.context() as patch:
        patch.setattr("prereg.registry.registration.with_choice", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            api.run(study_path(house), RunOptions(), workspace=api.Workspace(console=QUIET))
    assert api.run(study_path(house), RunOptions(), workspace=api.Workspace(console=QUIET)).summary.complete
    assert api.decide(study_path(house)).decision.verdict == "use AdamW"


@pytest.mark.slow
def test_a_setting_that_fails_is_never_chosen_and_none_left_is_said(house: OwnHouse) -> None:
    house.register(**tuned_document(base=tuned_document()["base"] | {"fails": [0.3, 0.01]}))
    api.run(study_path(house), RunOptions(), workspace=api.Workspace(console=QUIET))
    frozen = load_registration(Root(house.path), "own")
    assert frozen is not None and frozen.study.tune is not None
    assert frozen.study.tune.chosen == {"sgd": {"lr": 0.1}, "adamw": {"lr": 0.003}}


# --- what is refused -------------------------------------------------------------------------------------------------


def test_fresh_seeds_pass_over_the_pilot_seeds_of_other_studies(house: OwnHouse) -> None:
    tune = tuned_document()["tune"] | {"seeds": [5, 6]}
    house.register(**tuned_document(tune=tune))
    other = tuned_document(study="other", seeds="fresh 3")
    assert load_study(house.write(other)).study.seeds == (7, 8, 9)


# --- the rule ---------------------------------------------------------------------------------------------------------


def tuned_study(**changes: Any) -> Study:
    return one_claim(
        variants={"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}},
        tune={"grid": {"optim.lr": [1e-4, 1e-3, 1e-2]}, "seeds": [101, 102], "choose_by": "val/loss"} | changes,
    )


def values_of(study: Study, means: dict[str, list[float]]) -> dict[tuple[str, int], float]:
    assert study.tune is not None
    found = {}
    for arm, each in means.items():
        names = [name for name, pilot in study.pilots.items() if pilot.of == arm]
        for name, mean in zip(names, each, strict=True):
            found |= {(name, 101): mean - 0.25, (name, 102): mean + 0.25}
    return found


def test_the_lowest_mean_is_chosen_the_first_of_equals_and_none_with_a_lost_run() -> None:
    study = tuned_study()
    values = values_of(study, {"none": [3.0, 2.0, 2.0], "layernorm": [1.0, 2.0, 3.0]})
    del values["layernorm.lr-0.0001", 102]
    none, layernorm = choose(study, values)
    assert none.setting == {"optim.lr": 1e-3} and not none.at_edge
    assert layernorm.setting == {"optim.lr": 1e-3} and layernorm.means["layernorm.lr-0.0001"] is None
    higher = tuned_study(choose_by="val/accuracy")
    assert choose(higher, values)[0].setting == {"optim.lr": 1e-4}
    assert choose(higher, values)[0].at_edge == ("optim.lr",)


def test_an_arm_none_of_whose_settings_ended_has_no_choice() -> None:
    study = tuned_study()
    values = values_of(study, {"none": [3.0, 2.0, 2.5]})
    assert [choice.arm for choice in choose(study, values)] == ["none"]


# --- what the judge makes of it ---------------------------------------------------------------------------------------


def tuned_evidence(change: Callable[[list[Any]], list[Any]] = lambda events: events) -> tuple[Registration, Evidence]:
    """Honest evidence of a tuned study, its ledger's events changed."""
    study = tuned_study()
    finals = values_of(study, {"none": [2.3, 2.0, 2.2], "layernorm": [2.3, 2.1, 1.9]})
    assert study.tune is not None
    choices = {choice.arm: choice.setting for choice in choose(study, finals)}
    frozen = study.model_copy(update={"tune": study.tune.frozen(choices)})
    assert frozen.training("none").optim.lr == 1e-3 and frozen.training("layernorm").optim.lr == 1e-2
    registration, evidence = make_evidence(frozen, finals={"val/loss": finals})
    events = [(entry.event, entry.stated) for entry in evidence.ledger]
    last = max(at for at, (_, body) in enumerate(events) if body.get("variant") in frozen.pilots)
    events.insert(last + 1, ("tuned", {"chosen": choices}))
    ledger = chain(registration, change(events))
    return registration, replace(evidence, ledger=ledger, ledger_head=ledger[-1].sha256)


def failed(decision: Any) -> set[str]:
    return {check.name for check in decision.checks if not check.passed and check.severity != "note"}


def test_an_honest_tuned_study_is_judged_without_its_pilot() -> None:
    decision = decide(*tuned_evidence())
    assert decision.status != "inadmissible" and not failed(decision)
    assert decision.findings[0].n == 5 and len(decision.stability) == 2
    edges = [check for check in decision.checks if check.name == "no chosen setting lies at the edge of those tried"]
    assert [check.passed for check in edges] == [False] and "layernorm at optim.lr" in edges[0].found


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda events: [one for one in events if one[0] != "tuned"], "the settings are those that the pilot chose"),
        (
            lambda events: [
                (event, {"chosen": body["chosen"] | {"none": {"optim.lr": 1e-2}}})
                if event == "tuned"
                else (event, body)
                for event, body in events
            ],
            "the settings are those that the pilot chose",
        ),
        (
            lambda events: [*events, ("tuned", {"chosen": {"none": {"optim.lr": 1e-4}}})],
            "the settings are those that the pilot chose",
        ),
        (
            lambda events: sorted(events, key=lambda one: one[0] == "tuned"),
            "the settings were frozen before the runs that are judged",
        ),
        (
            lambda events: [events[0], *(one for one in events if one[0] == "tuned"), *events[1:]],
            "the settings were frozen before the runs that are judged",
        ),
    ],
)
def test_a_choice_that_is_not_the_pilots_gives_no_verdict(change: Callable[[list[Any]], list[Any]], check: str) -> None:
    decision = decide(*tuned_evidence(change))
    assert decision.status == "inadmissible" and check in failed(decision)


def test_a_lost_pilot_run_is_a_missing_run() -> None:
    registration, evidence = tuned_evidence()
    runs = tuple(run for run in evidence.runs if run.variant != "none.lr-0.01")
    decision = decide(registration, replace(evidence, runs=runs))
    assert decision.status == "inadmissible" and not decision.findings


def test_a_lock_does_not_hold_what_the_pilot_chose() -> None:
    assert "chosen" not in tuned_study().model_dump_json()


# --- error rates ------------------------------------------------------------------------------------------------------


def pilots_and_judged(n_sims: int, gap: float, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Studies whose arms are alike at every setting, in SDs of a run: values of the pilot by arm, setting and seed,
    what each setting is worse by, and noise of the judged runs by arm and seed."""
    rng, worse = np.random.default_rng(seed), np.array([gap, 0.0, gap])
    pilot = rng.standard_normal((n_sims, 2, 3, 2)) + worse[:, None]
    return pilot, worse, rng.standard_normal((n_sims, 2, 5))


def false_findings(n_sims: int, gap: float, *, seed: int = 0) -> tuple[float, float, float]:
    """Of such studies the shares of a finding in which the frozen settings are equally good, of a finding in all, and
    of equally good frozen settings: by a mean, an argmin and scipy's t test."""
    pilot, worse, noise = pilots_and_judged(n_sims, gap, seed=seed)
    chosen = worse[pilot.mean(axis=3).argmin(axis=2)]
    judged = noise + chosen[:, :, None]
    hits, alike = stats.ttest_rel(judged[:, 1], judged[:, 0], axis=1).pvalue <= 0.05, chosen[:, 0] == chosen[:, 1]
    return float(hits[alike].mean()), float(hits.mean()), float(alike.mean())


@pytest.mark.slow
def test_what_is_frozen_and_found_is_the_best_mean_of_a_pilot_and_a_paired_t_test() -> None:
    study, rates = tuned_study(), [1e-4, 1e-3, 1e-2]
    arms = list(study.arms)
    assert len(study.seeds) == 5 and arms[0] == study.baseline
    places = {
        name: (arms.index(one.of), rates.index(float(one.setting["optim.lr"])))  # type: ignore[arg-type]
        for name, one in study.pilots.items()
    }
    for pilot, noise in zip(*pilots_and_judged(300, 1.5)[::2], strict=True):
        seeds = {101: 0, 102: 1}
        tried = {
            (name, seed): 2.0 + 0.02 * pilot[*places[name], seeds[seed]] for name, seed in study.cells if name in places
        }
        frozen = {choice.arm: rates.index(float(choice.setting["optim.lr"])) for choice in choose(study, tried)}  # type: ignore[arg-type]
        assert [frozen[arm] for arm in arms] == pilot.mean(axis=2).argmin(axis=1).tolist()
        values = 2.0 + 0.02 * noise
        judged = {(arm, seed): values[i, j] for i, arm in enumerate(arms) for j, seed in enumerate(study.seeds)}
        (finding,) = judge_hypotheses(study, {"val/loss": judged})
        assert finding.estimate is not None
        assert finding.estimate.p == pytest.approx(stats.ttest_rel(values[1], values[0]).pvalue, rel=1e-6)


@pytest.mark.simulation
def test_the_level_holds_at_the_frozen_settings_and_not_at_the_best_ones() -> None:
    # Of 100,000 studies each: nominal .05, standard error .0007 to .001.
    given, overall, alike = false_findings(100_000, 1.5)
    assert given == pytest.approx(0.05, abs=0.004) and 0.5 < alike < 0.9
    # Two pilot seeds miss the best of three settings that often: the statement that the design makes of it.
    assert 0.12 < overall < 0.14
    assert false_findings(100_000, 0.0)[1] == pytest.approx(0.05, abs=0.003)


@pytest.mark.slow
def test_the_design_states_what_the_simulation_finds() -> None:
    study = tuned_study()
    error, gap = worst_choice(study, "h", sd=0.02, correlation=0.0, n_sims=40_000, seed=0)
    # One side of the two-sided .13 that 200,000 studies of another program gave: three settings, two pilot seeds.
    assert 0.055 < error < 0.075 and gap in GAPS
    more = tuned_study(seeds=list(range(101, 109)))
    assert worst_choice(more, "h", sd=0.02, correlation=0.0, n_sims=40_000, seed=0)[0] < error - 0.01


# --- what goes with a run ---------------------------------------------------------------------------------------------


def test_the_plan_names_the_pilot_and_counts_its_runs(house: OwnHouse) -> None:
    planned = api.plan_runs(house.write(tuned_document()))
    assert len(planned.cells) == 16 and "16 runs" in planned.about[0]
    assert sum(arm.runs for arm in planned.arms) == 32


@pytest.mark.slow
def test_a_trial_runs_each_arm_at_the_first_of_its_settings(house: OwnHouse) -> None:
    path = house.write(tuned_document())
    trial = api.try_out(path, seeds=1)
    assert [(run.variant, run.seed) for run in trial.runs[:4]] == [(arm, 103) for arm in tuned_document()["variants"]]
    assert trial.planned == 32 and not Root(house.path).ledger.exists()
