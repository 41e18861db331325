"""What is legal and likely a mistake: each warning by a study that has it and one just inside that has not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import House, tiny_document, tiny_text
from evidence_factory import make_evidence, make_registration, small_study
from own_trainer import OwnHouse
from test_cli import ablate
from typer.testing import CliRunner

import ablate as api
from ablate.checking import validation_tokens
from ablate.cli import app
from ablate.judge.decide import decide
from ablate.judge.design import characteristics
from ablate.judge.design.assumptions import assumed
from ablate.judge.design.characteristics import simulate_design
from ablate.judge.design.power import Planning
from ablate.judge.design.warnings import FEW_SEEDS, LOW_POWER, SKEWED, DesignWarning, design_warnings
from ablate.judge.stats import t_power
from ablate.reporting.document import banner_of
from prereg.errors import RegistrationError, UndecidableDesignError
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Override
from prereg.registry.paths import Root
from prereg.registry.registration import load_registration, promises_of
from prereg.study.spec import Study, study_from_document

ROOT = Path(__file__).resolve().parents[2]
FIVE = [1, 2, 3, 4, 5]
HARNESS = {"tasks": "blimp", "items_per_task": 100}


def study(**changes: Any) -> Study:
    return study_from_document(tiny_document(**({"seeds": FIVE} | changes)))


def claims(**by_name: dict[str, Any]) -> dict[str, Any]:
    return {"hypotheses": by_name}


def assuming(sd: float, correlation: float = 0.5, **more: Any) -> dict[str, Any]:
    return {"assume": {"metrics": {"val/loss": {"sd": sd, "correlation": correlation}}, **more}}


def warned(kind: str, found: Study, **given: Any) -> list[DesignWarning]:
    return [one for one in design_warnings(found, **given) if one.kind == kind]


def claim(text: str, smallest: float | None = 0.05, **more: Any) -> dict[str, Any]:
    return {"claim": text} | ({} if smallest is None else {"smallest": smallest}) | more


def warming(steps: int) -> dict[str, Any]:
    return {"variants": {"none": {}, "layernorm": {"optim.warmup": steps}}}


def of(text: str, smallest: float = 0.05, **more: Any) -> dict[str, Any]:
    """A study of one claim."""
    return claims(gain=claim(text, smallest)) | more


def deciding(*conditions: str | None, first: str = "better", last: str = "inconclusive") -> dict[str, Any]:
    """Conditions of the verdict `first`, and of `last`; of one alone there is no last line."""
    lines = [{"verdict": first, "when": conditions[0]}]
    return {"decision": [*lines, {"verdict": last}] if conditions[1:] else lines}


GAIN, HARM = claim("layernorm lowers val/loss"), claim("layernorm does_not_worsen val/accuracy", role="guardrail")
ITEMS = {"measure": {"harness": HARNESS}}
NOISE = {name: {"sd": 0.02, "correlation": 0.5} for name in ("val/loss", "val/accuracy")}
BOTH = claims(gain=GAIN, harm=HARM)
# Twelve seeds would do for the second claim alone; its power is .11 with them, since the first has .16 (20,000
# simulated studies).
GATED = {"assume": {"metrics": {"val/accuracy": {"sd": 0.06, "correlation": 0.5}}},
         "analysis": {"gate": {"order": ["gain", "harm"]}}}  # fmt: skip
# With .03 expected and a margin of .05 the chance is that of `design` (60,000 simulated studies): .011.
SHORT = assuming(0.06, effects={"gain": 0.03})
BELOW = "a smallest difference below that effect"

# fmt: off
WARNINGS: list[tuple[str, dict[str, Any], int | None, list[str] | None]] = [
    # the kind, changes of a sound study, tokens of its validation text, words of the one warning: None without one
    ("direction", {}, None, None),
    ("direction", of("layernorm raises val/loss"), None, ["lower is better", "claim: layernorm lowers val/loss,"]),
    ("direction", claims(gain=claim("layernorm raises val/loss above 2 by at least 0.05", None)), None,
        ["claim: layernorm lowers val/loss below 2 by at least 0.05,"]),
    ("rule", {"decision": [{"verdict": "better"}]}, None,
        ["the verdict is 'better' whatever comes out: no claim and no stability", 'when: "supported(gain)"']),
    ("rule", deciding("supported(gain) or not supported(gain)"), None, ["'better' whatever comes out"]),
    ("rule", deciding("supported(gain)", None, last="better"), None, ["'better' whatever comes out"]),
    ("rule", deciding("supported(gain)", None), None, None),
    ("rule", deciding("supported(gain)", None, last="keep none"), None, None),
    ("rule", deciding("not supported(gain)", None), None,
        ["'better' is the verdict also where every claim is inconclusive", "when: refuted(gain), if gain is to be"]),
    ("rule", deciding("refuted(gain) or inconclusive(gain)", None), None, None),  # inconclusive is asked for
    ("rule", deciding("stable(none)", None), None, ["the primary claim gain cannot change the verdict"]),
    ("rule", deciding("refuted(gain)", None) | claims(gain=GAIN, more=claim("layernorm lowers train/loss")), None,
        ["the primary claim more cannot change the verdict", "that asks about more, or role: exploratory"]),
    ("rule", deciding("refuted(gain) and (supported(more) or not supported(more))", None)
        | claims(gain=GAIN, more=claim("layernorm lowers train/loss")), None, ["the primary claim more cannot"]),
    ("rule", deciding("refuted(gain)", None)
        | claims(gain=GAIN, more=claim("layernorm lowers train/loss", role="secondary")), None, None),
    ("rule", deciding("supported(gain)", None, first="gain (p<.001)"), None,
        ["the verdict 'gain (p<.001)' states a p value", "verdict: gain; the report"]),
    ("rule", deciding("supported(gain)", None, first="no gap < 3, up 5%"), None, None),
    ("schedule", warming(30), None,
        ["the learning rate of 'layernorm' never reaches its peak: warmup 30 of 30 steps", "optim.warmup: 3, or more"]),
    ("schedule", warming(29), None, None),
    ("power", {}, None, None),  # nothing is assumed
    ("power", claims(gain=claim("layernorm lowers val/loss by at least 0.05", None)) | SHORT, None,
        ["a chance of 1.1% at a true effect of −0.03", BELOW]),
    ("power", claims(gain=GAIN, more=claim("layernorm lowers train/loss")) | SHORT, None, [BELOW]),
    ("power", of("layernorm lowers val/loss", 0.02) | SHORT, None, [" seeds, for power 80%; a less noisy metric"]),
    ("resolution", of("layernorm raises val/accuracy", 0.0099), 100,
        ["a share of 100 tokens", "0.01", "a margin of 0.01 or more"]),
    ("resolution", of("layernorm raises val/accuracy", 0.01), 100, None),  # of just an item
    ("resolution", of("layernorm raises val/accuracy", 0.0001), None, None),  # nobody knows how many tokens there are
    ("resolution", of("layernorm raises harness/accuracy", 0.00014) | ITEMS, None, ["6,700 items"]),  # 67 tasks of 100
    ("resolution", of("layernorm raises harness/accuracy", 0.00015) | ITEMS, None, None),
    ("resolution", of("layernorm lowers val/loss", 4e-7), None, ["float32"]),  # 2^-21 = 4.8e-7
    ("resolution", of("layernorm lowers val/loss", 5e-7), None, None),
    ("seeds", {"seeds": [1, 2, 3, 4], "analysis": {"test": "welch"}}, None, ["none has 4 runs"]),
    ("seeds", {"analysis": {"test": "welch"}}, None, None),
    ("seeds", of("layernorm lowers val/loss below 3") | {"seeds": [*FIVE, 6]}, None, ["23%"]),
    ("seeds", of("layernorm lowers val/loss below 3") | {"seeds": [*FIVE, 6, 7]}, None, None),
    ("correlation", {"assume": {"metrics": {"val/loss": {"sd": 0.02}}}}, None,
        ["correlation 0 of two arms", "ablate try studies/mine.yaml --seeds 10"]),
    ("correlation", assuming(0.02, 0.0), None, None),  # given, and 0
    ("correlation", BOTH | {"assume": {"metrics": NOISE}}, None,
        ["correlation 0 of the noise of val/loss and val/accuracy"]),
    ("correlation", BOTH | {"assume": {"metrics": NOISE, "metric_correlation": 0.3}}, None, None),
]
# fmt: on


@pytest.mark.parametrize(("kind", "changes", "tokens", "words"), WARNINGS)
def test_a_likely_mistake_is_named_with_what_to_write_and_one_just_inside_is_not(
    kind: str, changes: dict[str, Any], tokens: int | None, words: list[str] | None
) -> None:
    found = warned(kind, study(**changes), validation_tokens=tokens, path="studies/mine.yaml")
    assert len(found) == (words is not None), found
    text = "".join(f"{one.found}; {one.fix}" for one in found)
    assert not [needed for needed in words or () if needed not in text], text


def test_a_sound_study_has_no_warning_and_behind_a_gate_no_seeds_are_promised() -> None:
    assert design_warnings(study(**assuming(0.02))) == ()
    found = warned("power", study(**BOTH, **GATED))
    assert [one.about for one in found] == ["harm"] and "seeds" not in found[0].fix


def test_power_below_a_half_at_the_margin_is_exact_and_names_the_seeds() -> None:
    # SD of a difference: sd * sqrt(2 (1 - r)) = sd at r = .5. `lowers` at its margin, refuted below it.
    exact = {sd: t_power.t_test_power("towards", 0.05 / sd, 5, 0.05, refuted_below=0.05 / sd) for sd in (0.036, 0.044)}
    low, high = min(exact.values()), max(exact.values())
    assert low < LOW_POWER < high, exact
    [one] = warned("power", study(**assuming(0.044)))
    assert f"{100 * exact[0.044]:.2g}% at a true effect of −0.05, n = 5 seeds" in one.found
    seeds = t_power.seeds_for("towards", 0.05 / 0.044, 0.05, 0.8, refuted_below=0.05 / 0.044)
    assert one.fix.startswith(f"{seeds} seeds, for power 80%")
    assert warned("power", study(**assuming(0.036))) == []
    assert warned("power", study()) == []  # nothing is assumed


def test_the_exact_power_is_the_simulated_one() -> None:
    """Of a claim alone in its family; several together are bounded from above."""
    verbs = {
        "layernorm lowers val/loss": 0.05,
        "layernorm lowers val/loss by at least 0.05": None,
        "layernorm changes val/loss": 0.05,
        "layernorm does_not_worsen val/loss": 0.05,
        "layernorm does_not_change val/loss": 0.06,
        "layernorm lowers val/loss below 2": 0.05,
    }
    for claim, smallest in verbs.items():
        hypothesis = {"claim": claim} | ({} if smallest is None else {"smallest": smallest})
        weak = study(**claims(gain=hypothesis), **assuming(0.06))
        [one] = warned("power", weak)
        found = re.search(r"a chance of ([\d.]+)%", one.found)
        simulated = Planning(weak, assumed(weak), 0.0, 4_000, 0).at(len(FIVE)).power["gain"]  # its error: .008
        assert found is not None and float(found[1]) / 100 == pytest.approx(simulated, abs=0.03), claim


def test_with_others_in_its_family_the_power_is_a_bound() -> None:
    two = claims(
        gain={"claim": "layernorm lowers val/loss", "smallest": 0.05},
        more={"claim": "layernorm lowers train/loss", "smallest": 0.05},
    )
    [one] = warned("power", study(**two, **assuming(0.044)))
    bound = t_power.t_test_power("towards", 0.05 / 0.044, 5, 0.05)
    assert one.about == "gain" and f"{100 * bound:.2g}%" in one.found and "before holm over 2" in one.found


def test_what_registration_refuses_is_not_said_twice() -> None:
    weak = study(**assuming(0.08))
    assert len(warned("power", weak)) == 1
    planned = simulate_design(weak, n_sims=200)
    assert warned("power", weak, design=planned) == []
    free = study(**assuming(0.08, power_floor=0.0))
    [one] = warned("power", free, design=simulate_design(free, n_sims=400))
    assert "by simulation (± " in one.found


def test_the_corpus_at_hand_says_how_many_tokens_are_predicted(house: House) -> None:
    house.write()
    text = (house.path / "data" / "corpora" / "tiny" / "input.txt").read_text()
    found = validation_tokens(study(), Root(house.path))
    share = study().training("none").data.validation
    assert isinstance(share, float) and found == len(text) - int(len(text) * (1 - share)) - 1
    elsewhere = study(base=study().model_dump()["base"] | {"data": {"corpus": "nowhere"}})
    assert validation_tokens(elsewhere, Root(house.path)) is None


@pytest.mark.parametrize("test", ["sign_flip", "wilcoxon"])
def test_seeds_too_few_for_an_exact_test(test: str) -> None:
    few = study(analysis={"test": test})
    [one] = [one for one in warned("seeds", few) if "never be supported" in one.found]
    assert "0.0625" in one.found and one.fix == "6 seeds, or test: paired_t"
    six = study(analysis={"test": test}, seeds=[*FIVE, 6])
    assert [one for one in warned("seeds", six) if "supported" in one.found] == []
    assert [
        one for one in warned("seeds", few, design=simulate_design(few)) if "supported" in one.found
    ] == []  # refused


def test_few_seeds_come_with_the_rate_that_was_measured() -> None:
    for test, fewest in (("paired_t", 2), ("bootstrap_t", 4)):
        [one] = warned("seeds", study(analysis={"test": test}, seeds=FIVE[:fewest]))
        assert f"in {100 * SKEWED[test][1]:.1f} ± " in one.found and "reports/bench/error-rates.md" in one.found
        assert warned("seeds", study(analysis={"test": test}, seeds=FIVE[:FEW_SEEDS])) == []


def test_the_rates_are_those_of_the_bench() -> None:
    measured = json.loads((ROOT / "reports" / "bench" / "error-rates.json").read_text())
    for test, (seeds, share, error) in SKEWED.items():
        rows = [
            row
            for row in measured["cells"]
            if row["law"] == "exponential" and row["test"].startswith(test) and row["design"] in ("fixed", "items")
        ]
        fewest = min(row["n"] for row in rows)
        worst = max((row["support"] for row in rows if row["n"] == fewest), key=lambda one: one["share"])
        assert (seeds, share, error) == (fewest, round(worst["share"], 3), round(worst["error"], 3)), test


def test_a_pilot_measures_the_correlation_of_arms_and_not_that_of_metrics() -> None:
    piloted = study(**BOTH, assume={"metrics": {name: {"sd": 0.02} for name in NOISE}})
    believed = assumed(piloted)
    measured = [one.model_copy(update={"source": "pilot 'p', 3 seeds x 2 arms"}) for one in believed.metrics]
    planned = simulate_design(piloted, n_sims=200, beliefs=believed.model_copy(update={"metrics": tuple(measured)}))
    [one] = warned("correlation", piloted, design=planned)
    assert "correlation 0 of the noise of val/loss and val/accuracy" in one.found


@pytest.mark.slow
def test_check_design_and_register_print_the_same_and_no_lock_holds_it(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(characteristics, "simulate_design", partial(simulate_design, n_sims=20))
    path, said, plain = house.write(assume={"metrics": {"val/loss": {"sd": 0.01}}}), {}, {}
    for verb in ("check", "design", "register"):
        if verb != "register":
            assert ablate(monkeypatch, verb, path, "--json") == 0
            plain[verb] = json.loads(capsys.readouterr().out)["warnings"]
        assert ablate(monkeypatch, verb, path) == 0
        out = capsys.readouterr().out
        lines = out[out.index("Warning: ") :].splitlines()
        others = ("regist", "no git", "ledger", "  git", "  other", "next:")
        said[verb] = [line for line in lines if not line.startswith(others)]
    assert said["check"] == said["design"] == said["register"] and len(said["check"]) > 3
    assert all(len(line) <= 80 or str(path) in line for line in said["check"])
    assert plain["check"] == plain["design"] and {one["kind"] for one in plain["check"]} == {"seeds", "correlation"}
    assert re.search(r"^registration [0-9a-f]{64}$", out, re.MULTILINE)  # whole, as `import` wants it
    assert api.design(api.load(path)).study == "tiny"  # a study in memory as well as a file
    assert "warning" not in (house.path / "studies" / "tiny.lock.json").read_text().lower()


HOPELESS = {"seeds": [1, 2, 3, 4, 5], "analysis": {"test": "sign_flip"}}
REASON = "a demonstration of the refusal"


def hopeless(house: House) -> Path:
    return house.write(**HOPELESS)


def test_a_hopeless_study_is_refused_and_nothing_is_written(house: House) -> None:
    path = hopeless(house)
    before = house.snapshot()
    with pytest.raises(UndecidableDesignError) as raised:
        api.register(path, workspace=api.Workspace(house.path))
    text = raised.value.text()
    assert "the smallest p that sign-flip gives with 5 seeds is 0.0625" in text  # the witness
    assert "'adopt layernorm' can never be the verdict" in text
    assert "give 6 seeds, or test: paired_t" in text and "--accept-underpowered" in text  # the advice
    assert "tiny.yaml" in text
    assert house.snapshot() == before


def test_an_override_stands_in_the_lock_and_in_the_ledger(house: House) -> None:
    path = hopeless(house)
    registration, entry = api.register(path, workspace=api.Workspace(house.path), accept_underpowered=f" {REASON} ")
    assert entry is not None and registration.override is not None
    assert registration.override.reason == REASON and "0.0625" in registration.override.obstacle
    assert entry.override == Override(obstacle=registration.override.obstacle, reason=REASON)
    lock = json.loads((house.path / "studies" / "tiny.lock.json").read_text())
    assert lock["override"]["reason"] == REASON
    found = load_registration(Root.find(path, house.path), "tiny")
    assert found is not None and found.override == registration.override


def test_an_override_without_a_reason_is_none(house: House) -> None:
    with pytest.raises(UndecidableDesignError):
        api.register(hopeless(house), workspace=api.Workspace(house.path), accept_underpowered="  ")


def test_there_must_be_something_to_accept(house: House) -> None:
    with pytest.raises(RegistrationError, match="nothing to accept"):
        api.register(house.write(), workspace=api.Workspace(house.path), accept_underpowered=REASON)


def test_a_study_that_needs_no_override_has_none_in_its_lock(house: House) -> None:
    registration, _ = api.register(house.write(), workspace=api.Workspace(house.path))
    assert registration.override is None
    assert json.loads((house.path / "studies" / "tiny.lock.json").read_text())["override"] is None
    promises = promises_of(Ledger(Root.find(Path(), house.path).ledger).entries(), "tiny")
    assert promises and not any(entry.override for entry in promises)


def test_an_amendment_can_be_accepted_too(house: House) -> None:
    api.register(house.write(), workspace=api.Workspace(house.path))
    with pytest.raises(UndecidableDesignError):
        api.amend(hopeless(house), reason="an exact test", workspace=api.Workspace(house.path))
    _, entry = api.amend(
        hopeless(house), reason="an exact test", workspace=api.Workspace(house.path), accept_underpowered=REASON
    )
    assert entry.override.reason == REASON


def test_the_report_says_it_in_its_first_lines() -> None:
    study = small_study(analysis={"test": "sign_flip"})
    registration, evidence = make_evidence(study)
    assert registration == make_registration(study)
    quiet = decide(registration, evidence)
    overridden = registration.model_copy(
        update={"override": Override(obstacle="'gain_ln' can never be supported", reason=REASON)}
    )
    decision = decide(overridden, evidence)
    first = banner_of(decision, overridden).failed[0]
    assert "'gain_ln' can never be supported" in first and REASON in first
    assert decision.status == quiet.status and not any("reach every" in check.name for check in quiet.checks)


GPT3_XL = {"layers": 24, "width": 2048, "heads": 16, "context": 2048}


def said(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.exception
    return " ".join(done.output.split())


def test_parameters_tokens_and_flops_are_those_of_a_pencil(house: House) -> None:
    budget = {"steps": 1000, "batch": 512}
    study = house.write(base={"model": GPT3_XL, "budget": budget, "data": {"corpus": "tiny"}})
    none, layernorm = api.plan_runs(study).arms
    h, vocabulary = 2048, len(set(tiny_text()))
    # 24 layers of 12 h^2 weights, 9 h biases (4 of attention, 5 of the feed-forward layer) and 2 LayerNorms of 2 h;
    # embeddings of tokens and of 2,048 positions; the final LayerNorm.
    n = 24 * (12 * h * h + 9 * h + 4 * h) + (vocabulary + 2048) * h + 2 * h
    assert (none.parameters, layernorm.parameters) == (n, n + 2 * h)
    assert none.tokens == 1000 * 512 * 2048
    assert none.flops == 6 * n * none.tokens
    assert (none.runs, none.device_hours) == (3, None)


def test_hours_are_those_that_are_assumed_until_runs_are_sealed(house: House, trained: House) -> None:
    unknown = house.write()
    assert "Device-hours: unknown; ablate try measures a run" in said("check", str(unknown))
    assumed = house.write(assume={"seconds_per_run": 1200})
    assert [arm.device_hours for arm in api.plan_runs(assumed).arms] == [1.0, 1.0]
    assert "Device-hours: 2 in all, from assume.seconds_per_run." in said("check", str(assumed))
    records = [json.loads(path.read_text()) for path in trained.path.glob("data/runs/*/*/*/*/run.json")]
    found = api.plan_runs(trained.study)
    for arm in found.arms:
        walls = [record["wall_s"] for record in records if record["variant"] == arm.arm]
        assert len(walls) == 3 and arm.device_hours == pytest.approx(sum(walls) / 3600)
    assert found.timed == "the mean of 6 sealed runs"


def test_of_an_own_trainer_the_hours_alone_can_be_known(tmp_path: Path) -> None:
    study = OwnHouse(tmp_path / "house").write(assume={"seconds_per_run": 60})
    arms: list[dict[str, Any]] = json.loads(said("check", str(study), "--json"))["costs"]["arms"]
    assert [(arm["runs"], arm["parameters"], arm["flops"]) for arm in arms] == [(3, None, None)] * 2
    assert all(arm["device_hours"] == pytest.approx(0.05) for arm in arms)


def test_a_corpus_that_is_not_here_leaves_the_size_open(house: House) -> None:
    base = {
        "model": GPT3_XL,
        "budget": {"steps": 10, "batch": 4},
        "data": {"corpus": "wikitext-2", "validation": "own"},
    }
    arm = api.plan_runs(house.write(base=base)).arms[0]
    assert (arm.parameters, arm.tokens, arm.flops) == (None, 10 * 4 * 2048, None)


@pytest.mark.slow
def test_check_and_plan_write_nothing_and_load_no_torch(house: House) -> None:
    study = house.write()
    before = house.snapshot()
    code = (
        "import sys\nfrom ablate.cli import app\n"
        f"for verb in ('check', 'plan'):\n    app([verb, {str(study)!r}], standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert "6 runs: 2 arms x 3 seeds" in done.stdout and done.stdout.count("FLOPs: 6 N D") == 2
    assert house.snapshot() == before
