"""What is legal and likely a mistake: each warning by a study that has it and one just inside that has not."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import House, tiny_document
from test_cli import ablate

import ablate as api
from ablate.checking import validation_tokens
from ablate.judge.design import characteristics
from ablate.judge.design.assumptions import assumed
from ablate.judge.design.characteristics import design
from ablate.judge.design.power import Planning
from ablate.judge.design.warnings import FEW_SEEDS, LOW_POWER, SKEWED, DesignWarning, design_warnings
from ablate.judge.stats import t_power
from prereg.registry.paths import Root
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


def test_a_sound_study_has_no_warning() -> None:
    assert design_warnings(study(**assuming(0.02))) == ()


def test_a_line_that_rests_on_a_metric_getting_worse() -> None:
    [one] = warned("direction", study(**claims(gain={"claim": "layernorm raises val/loss", "smallest": 0.05})))
    assert "lower is better" in one.found and one.fix.startswith("claim: layernorm lowers val/loss,")
    assert warned("direction", study()) == []
    above = claims(gain={"claim": "layernorm raises val/loss above 2 by at least 0.05"})
    [one] = warned("direction", study(**above))
    assert one.fix.startswith("claim: layernorm lowers val/loss below 2 by at least 0.05,")


def test_a_warmup_as_long_as_the_run() -> None:
    def warming(steps: int) -> list[DesignWarning]:
        return warned("schedule", study(variants={"none": {}, "layernorm": {"optim.warmup": steps}}))

    [one] = warming(30)
    assert one.found == "the learning rate of 'layernorm' never reaches its peak: warmup 30 of 30 steps"
    assert one.fix == "optim.warmup: 3, or more steps" and warming(29) == []


def test_power_below_a_half_at_the_margin_is_exact_and_names_the_seeds() -> None:
    # SD of a difference: sd * sqrt(2 (1 - r)) = sd at r = .5. `lowers` at its margin, refuted below it.
    exact = {sd: t_power.power("towards", 0.05 / sd, 5, 0.05, refuted_below=0.05 / sd) for sd in (0.036, 0.044)}
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
    bound = t_power.power("towards", 0.05 / 0.044, 5, 0.05)
    assert one.about == "gain" and f"{100 * bound:.2g}%" in one.found and "before holm over 2" in one.found


def test_an_expected_effect_short_of_the_margin_is_warned_of_and_no_seeds_are_promised() -> None:
    """The chances are those of `design` (60,000 simulated studies): .011, and .39 with 41 seeds of two claims."""
    expected = {"effects": {"gain": 0.03}}
    by = study(**claims(gain={"claim": "layernorm lowers val/loss by at least 0.05"}), **assuming(0.06, **expected))
    [one] = warned("power", by)
    assert (
        "a chance of 1.1% at a true effect of −0.03" in one.found
        and one.fix == "a smallest difference below that effect"
    )
    two = claims(
        gain={"claim": "layernorm lowers val/loss", "smallest": 0.05},
        more={"claim": "layernorm lowers train/loss", "smallest": 0.05},
    )
    [one] = warned("power", study(**two, **assuming(0.06, **expected)))
    assert one.about == "gain" and one.fix == "a smallest difference below that effect"
    far = study(**claims(gain={"claim": "layernorm lowers val/loss", "smallest": 0.02}), **assuming(0.06, **expected))
    assert re.fullmatch(r"\d+ seeds, for power 80%; a less noisy metric", warned("power", far)[0].fix)


def test_behind_a_gate_no_number_of_seeds_is_promised() -> None:
    """12 seeds would do for the second claim alone; its power is .11 with them, since the first has .16 (20,000
    simulated studies)."""
    two = claims(
        gain={"claim": "layernorm lowers val/loss", "smallest": 0.05},
        no_harm={"claim": "layernorm does_not_worsen val/accuracy", "smallest": 0.05, "role": "guardrail"},
    )
    noise = {"val/accuracy": {"sd": 0.06, "correlation": 0.5}}
    found = warned("power", study(**two, assume={"metrics": noise}, analysis={"gate": {"order": ["gain", "no_harm"]}}))
    assert [one.about for one in found] == ["no_harm"] and "seeds" not in found[0].fix


def test_what_registration_refuses_is_not_said_twice() -> None:
    weak = study(**assuming(0.08))
    assert len(warned("power", weak)) == 1
    planned = design(weak, n_sims=200)
    assert warned("power", weak, design=planned) == []
    free = study(**assuming(0.08, power_floor=0.0))
    [one] = warned("power", free, design=design(free, n_sims=400))
    assert "by simulation (± " in one.found


def test_a_margin_below_one_item_and_one_of_just_an_item() -> None:
    def of(smallest: float) -> Study:
        gain = {"claim": "layernorm raises val/accuracy", "smallest": smallest}
        return study(**claims(gain=gain))

    [one] = warned("resolution", of(0.0099), validation_tokens=100)
    assert "a share of 100 tokens" in one.found and "0.01" in one.found and one.fix == "a margin of 0.01 or more"
    assert warned("resolution", of(0.01), validation_tokens=100) == []
    assert warned("resolution", of(0.0001)) == []  # nobody knows how many tokens there are


def test_a_margin_below_one_item_of_the_tasks() -> None:
    def of(smallest: float, metric: str = "harness/accuracy") -> Study:
        gain = {"claim": f"layernorm raises {metric}", "smallest": smallest}
        return study(**claims(gain=gain), measure={"harness": HARNESS})

    assert "6,700 items" in warned("resolution", of(0.00014))[0].found  # 67 tasks of 100
    assert warned("resolution", of(0.00015)) == []


def test_a_margin_below_the_rounding_of_a_loss() -> None:
    def of(smallest: float) -> Study:
        return study(**claims(gain={"claim": "layernorm lowers val/loss", "smallest": smallest}))

    assert "float32" in warned("resolution", of(4e-7))[0].found  # 2^-21 = 4.8e-7
    assert warned("resolution", of(5e-7)) == []


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
    assert [one for one in warned("seeds", few, design=design(few)) if "supported" in one.found] == []  # refused


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


def test_few_runs_without_pairs_and_few_seeds_against_a_constant() -> None:
    def of(n: int) -> Study:
        return study(seeds=list(range(1, n + 1)), analysis={"test": "welch"})

    assert "none has 4 runs" in warned("seeds", of(4))[0].found and warned("seeds", of(5)) == []
    target = claims(gain={"claim": "layernorm lowers val/loss below 3", "smallest": 0.05})
    assert "23%" in warned("seeds", study(**target, seeds=[*FIVE, 6]))[0].found
    assert warned("seeds", study(**target, seeds=[*FIVE, 6, 7])) == []


def test_correlations_that_nobody_gave() -> None:
    silent = study(assume={"metrics": {"val/loss": {"sd": 0.02}}})
    [one] = warned("correlation", silent, path="studies/mine.yaml")
    assert "correlation 0 of two arms" in one.found and "ablate try studies/mine.yaml --seeds 10" in one.fix
    assert warned("correlation", study(**assuming(0.02, 0.0))) == []  # given, and 0
    both = {"val/loss": {"sd": 0.02, "correlation": 0.5}, "val/accuracy": {"sd": 0.02, "correlation": 0.5}}
    two = claims(
        gain={"claim": "layernorm lowers val/loss", "smallest": 0.05},
        harm={"claim": "layernorm does_not_worsen val/accuracy", "smallest": 0.05, "role": "guardrail"},
    )
    [one] = warned("correlation", study(**two, assume={"metrics": both}))
    assert "correlation 0 of the noise of val/loss and val/accuracy" in one.found
    assert warned("correlation", study(**two, assume={"metrics": both, "metric_correlation": 0.3})) == []
    # A pilot measures the correlation of arms, and not that of metrics.
    piloted = study(**two, assume={"metrics": {name: {"sd": 0.02} for name in both}})
    believed = assumed(piloted)
    measured = [one.model_copy(update={"source": "pilot 'p', 3 seeds x 2 arms"}) for one in believed.metrics]
    planned = design(piloted, n_sims=200, beliefs=believed.model_copy(update={"metrics": tuple(measured)}))
    [one] = warned("correlation", piloted, design=planned)
    assert "correlation 0 of the noise of val/loss and val/accuracy" in one.found


def test_check_design_and_register_print_the_same_and_no_lock_holds_it(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(characteristics, "design", partial(design, n_sims=20))
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
