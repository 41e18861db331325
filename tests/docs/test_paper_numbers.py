"""Numbers that paper and one page state outside registered claims: each follows from the committed evidence."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ROOT / "reports"
PAGE = (REPORTS / "README.md").read_text(encoding="utf-8")


def plain(tex: str) -> str:
    """Return the text of a LaTeX page as it is read, without its breaks and typefaces."""
    text = tex.replace(r"\allowbreak{}", "").replace("$-$", "−").replace("~", " ").replace(r"\%", "%")
    return " ".join(re.sub(r"\\text\w+\{([^{}]*)\}", r"\1", text).split())


PAPER = plain((REPORTS / "paper" / "paper.tex").read_text(encoding="utf-8"))
REQUIREMENTS = (REPORTS / "requirements.md").read_text(encoding="utf-8")

TUNED = ROOT / "archive" / "0.1" / "reports" / "embnorm-tuned" / "evidence.ablate.zip"


@cache
def tables(bundle: Path, name: str) -> dict[tuple[str, int], pd.DataFrame]:
    """Return a table of every run of a bundle, by arm and seed."""
    found = {}
    with zipfile.ZipFile(bundle) as archive:
        for member in archive.namelist():
            if member.endswith(f"/{name}"):
                arm, seed = member.split("/")[-3:-1]
                found[arm, int(seed)] = pd.read_parquet(io.BytesIO(archive.read(member)))
    return found


def last_values(bundle: Path, metric: str) -> dict[str, pd.Series]:
    """Return the last recorded value of a metric, by arm and then by seed."""
    values: dict[str, dict[int, float]] = {}
    for (arm, seed), table in tables(bundle, "metrics.parquet").items():
        recorded = table[table["metric"] == metric].sort_values("step")
        values.setdefault(arm, {})[seed] = recorded["value"].iloc[-1]
    return {arm: pd.Series(by_seed).sort_index() for arm, by_seed in values.items()}


def interval(values: pd.Series, level: float) -> tuple[float, float, float]:
    """Return the mean, and the ends of its t interval."""
    low, high = stats.t.interval(level, len(values) - 1, values.mean(), stats.sem(values))
    return float(values.mean()), float(low), float(high)


def in_words(numbers: tuple[float, float, float], digits: tuple[int, int, int], scale: float = 1.0) -> list[str]:
    """Return numbers with their signs, as prose has them."""
    return [f"{scale * x:+.{n}f}".replace("-", "−") for x, n in zip(numbers, digits, strict=True)]


def evidence(study: str) -> Path:
    return REPORTS / study / "evidence.ablate.zip"


@pytest.mark.parametrize(
    ("arm", "metric", "level", "digits", "words"),
    [
        ("layernorm", "val/accuracy", 0.95, (4, 4, 4), "({}, 95% CI {} to {}, n = 6 pairs)"),
        ("layernorm", "val/loss", 0.975, (4, 4, 4), "({}, 97.5% CI {} to {})"),
        ("rmsnorm", "val/accuracy", 0.95, (4, 4, 4), "accuracy {}, 95% CI {} to {};"),
        ("rmsnorm", "val/loss", 0.975, (3, 3, 3), "loss {}, 97.5% CI {} to {})"),
    ],
)
def test_the_tuned_study_of_version_0_1_found_what_the_paper_says(
    arm: str, metric: str, level: float, digits: tuple[int, int, int], words: str
) -> None:
    values = last_values(TUNED, metric)
    difference = values[arm] - values["none"]
    assert len(difference) == 6
    assert words.format(*in_words(interval(difference, level), digits)) in PAPER


def test_the_archive_holds_all_42_runs_of_the_tuned_study() -> None:
    runs = tables(TUNED, "metrics.parquet")
    pilot = [arm for arm, _ in runs if ".lr-" in arm]
    assert (len(runs), len(pilot)) == (42, 24)
    assert "All its 42 runs, 24 of the pilot and 18 that were compared" in PAPER
    for text in (PAGE, PAPER, REQUIREMENTS):
        assert "ecords are gone" not in text and "records gone" not in text
        assert "0dae066" in text


def test_alone_in_the_verdict_of_the_cure_is_none_of_12_against_one_of_12() -> None:
    verdict = json.loads((REPORTS / "embnorm-cure" / "verdict.json").read_text(encoding="utf-8"))
    assert "LayerNorm alone" in verdict["verdict"]
    unstable = {
        arm["variant"]: len({*arm["diverged"], *arm["spikes"], *arm["not_reached"]}) for arm in verdict["stability"]
    }
    assert {arm["runs"] for arm in verdict["stability"]} == {12}
    assert unstable == {"none": 8, "layernorm": 0, "rmsnorm": 1, "warmup": 1}
    # Of two arms with one common rate: none of 12 here, and one or more of 12 there.
    rates = np.linspace(0.0, 1.0, 100_001)
    chances = (1 - rates) ** 12 * (1 - (1 - rates) ** 12)
    assert chances.max() == pytest.approx(0.25, abs=1e-6)
    assert rates[chances.argmax()] == pytest.approx(0.056, abs=0.0005)
    assert stats.fisher_exact([[0, 12], [1, 11]]).pvalue == 1.0
    assert "a chance of up to .25 (at a rate of 5.6%)" in PAPER
    assert "0 of 12 against 1 of 12, which has a chance of up to .25" in PAGE


def shares_of_the_verdict(study: str) -> list[float]:
    """Return how often each simulated list of true effects gave the verdict that was reached."""
    design: Mapping[str, Any] = json.loads((ROOT / "studies" / f"{study}.lock.json").read_text())["design"]
    verdict = json.loads((REPORTS / study / "verdict.json").read_text(encoding="utf-8"))["verdict"]
    simulated = [*design["scenarios"], *design["worst"]]
    assert {one["n_sims"] for one in simulated} == {10_000}
    return [end["share"] for one in simulated for end in one["verdicts"] if end["of"] == verdict]


def test_designs_gave_the_verdicts_that_came_the_chances_that_the_methods_state() -> None:
    for study, n in {"embnorm-cure": 12, "embnorm-tradeoff": 10, "embnorm-fair": 11}.items():
        assert shares_of_the_verdict(study) == [0.0] * n, study
    assert max(shares_of_the_verdict("embnorm-scale")) == 0.0008
    assert max(shares_of_the_verdict("normplace-narrow")) == 0.0224
    for study in ("embnorm-pilot", "embnorm-tasks", "embnorm-prompts", "embnorm-centring"):
        assert max(shares_of_the_verdict(study)) > 0.7, study
    assert "0 of 10,000 at each of 12, 10 and 11 lists of true effects" in PAPER
    assert "came in 0.08% at most, that of normplace-narrow in 2.2%" in PAPER


@pytest.mark.slow
def test_two_points_are_not_ruled_out_on_the_seven_tasks_with_room_for_a_loss() -> None:
    accuracy: dict[str, dict[int, pd.Series]] = {}
    for (arm, seed), items in tables(evidence("embnorm-tasks"), "items.parquet").items():
        zero_shot = items[items["metric"] == "harness/accuracy_shots_0"]
        accuracy.setdefault(arm, {})[seed] = zero_shot.groupby("task")["value"].mean()
    by_arm = {arm: pd.DataFrame(by_seed).T for arm, by_seed in accuracy.items()}
    baseline = by_arm["none"].mean()
    tasks = baseline[(baseline > 0.55) & (baseline < 0.97)].index
    assert (len(baseline), len(tasks)) == (23, 7)
    layernorm, rmsnorm = (
        in_words(interval((by_arm[arm] - by_arm["none"])[tasks].mean(axis=1), 0.95), (1, 1, 1), scale=100)
        for arm in ("layernorm", "rmsnorm")
    )
    assert "{} points with LayerNorm (95% CI {} to {}, n = 10 pairs) and".format(*layernorm) in PAPER
    assert "and {} with RMSNorm ({} to {})".format(*rmsnorm) in PAPER
    assert "{} with LayerNorm (95% CI {} to {})".format(*layernorm) in PAGE


def test_three_of_seven_prompts_are_at_chance_and_two_points_are_not_ruled_out_on_the_others() -> None:
    values = [
        last_values(evidence("embnorm-prompts"), f"harness/macro_accuracy_prompt_{prompt}") for prompt in range(7)
    ]
    means = [interval(prompt["none"], 0.95) for prompt in values[:5]]
    assert all(low > 0.6 for _, low, _ in means[:4])
    assert "{:.3f} (95% CI {:.3f} to {:.3f}, n = 8 runs)".format(*means[4]) in PAPER
    assert means[4][1] < 0.5 < means[4][2]
    assert [set(prompt["none"].round(3)) for prompt in values[5:]] == [{0.522}, {0.478}]
    followed = sum(prompt["layernorm"] - prompt["none"] for prompt in values[:4]) / 4
    points = in_words(interval(followed, 0.95), (2, 1, 1), scale=100)
    assert "{} points (95% CI {} to {}, n = 8 pairs)".format(*points) in PAPER
    assert "{}, 95% CI {} to {})".format(*points) in PAGE


def test_the_table_of_requirements_is_counted_right() -> None:
    rows = [line.strip("|").split("|") for line in REQUIREMENTS.splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1))
    counted = [f"Of {len(rows)}:"]
    for letter, column in zip("EMUS", range(2, 6), strict=True):
        counts = Counter(row[column].strip() for row in rows)
        words = [f"{counts.pop(word)} {word}" for word in ("yes", "r", "f", "part", "no") if word in counts]
        words += [f"{counts.pop('-')} `-`"] if "-" in counts else []
        assert not counts, counts
        counted.append(f"**{letter}** {', '.join(words)}.")
    assert " ".join(counted) in REQUIREMENTS
