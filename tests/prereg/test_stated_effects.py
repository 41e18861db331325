"""The smallest difference, the effect where power is stated, and what is detectable: one number each, wherever shown.

For one claim by at least D: `check`, `design`, the page of the registration, the report and its next step.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from functools import cache
from io import StringIO

import pytest
from evidence_factory import make_evidence, one_claim
from export_samples import registered
from rich.console import Console

from ablate.judge.decide import decide
from ablate.judge.design.characteristics import Design, simulate_design
from ablate.judge.design.retrospective import Retrospective, look_back
from ablate.judge.design.warnings import design_warnings
from ablate.judge.stats import t_power
from ablate.reporting import markdown
from ablate.reporting.blocks import Section
from ablate.reporting.context import ReportContext
from ablate.reporting.exports.files import csv_files
from ablate.reporting.headline import later_study
from ablate.reporting.summaries.study import design_section, power_section
from ablate.reporting.terminal import show
from prereg.documents import page
from prereg.documents.facts import StudyFacts, unknown_power
from prereg.text import MINUS, share

D, SD, SEEDS = 0.01, 0.012, 5
CLAIM = f"layernorm lowers val/loss by at least {D}"
STUDY = one_claim(
    CLAIM,
    D,
    seeds=SEEDS,
    assume={"metrics": {"val/loss": {"sd": SD, "correlation": 0.5}}, "metric_correlation": 0.0},
)
"""With a correlation of .5 the SD of the differences is that of a run."""


@cache
def planned() -> Design:
    return simulate_design(STUDY, n_sims=4_000)


@cache
def told() -> ReportContext:
    """The same study, inconclusive: the effect is a little more than D, and five seeds do not show that it is."""
    registration, evidence = make_evidence(STUDY, effects={"val/loss": {"layernorm": -1.2 * D}}, sd=SD, seed=2)
    registration = registration.model_copy(update={"design": planned().model_dump(mode="json")})
    decision = decide(registration, evidence)
    assert decision.status == "inconclusive"
    return ReportContext(
        decision, registration, evidence, ledger_head="0" * 64, generated_at="2026-05-04T14:00:00+00:00"
    )


def looked() -> Retrospective:
    [one] = look_back(told().registration, told().decision.findings)
    return one


def printed(section: Section) -> str:
    """As a terminal shows it, on lines as long as they come."""
    console = Console(file=StringIO(), width=2_000)
    show(console, section)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.slow
def test_the_smallest_difference_is_that_of_the_claim_in_every_word() -> None:
    assert STUDY.hypotheses["h"].smallest == D
    [one] = planned().hypotheses
    assert one.effect == -2 * D == -looked().effect, "where power is stated is another number, and has another name"
    texts = [printed(design_section(planned())), markdown.render_markdown(told()), page.markdown(source()), *checked()]
    for text in texts:
        for said in re.findall(r"smallest difference[^.;\n]* (0?\.\d+)", text):
            assert float(said) == D, text


def test_check_and_design_give_the_power_with_the_effect_where_it_is_stated() -> None:
    [one] = planned().hypotheses
    exact = t_power.t_test_power("margin", D / SD, SEEDS, STUDY.analysis.alpha)
    assert one.power is not None and one.power_error is not None and abs(one.power - exact) < 4 * one.power_error
    [warning] = checked()
    assert f"a chance of {100 * exact:.2g}% at a true effect of {MINUS}{2 * D:g}, n = {SEEDS} seeds" in warning
    assert f"{one.seeds_80} seeds, for power 80%" in warning
    text = printed(design_section(planned()))
    assert f"{share(one.power)} (at 0.02)" in text
    # What would happen at D itself: there the claim is at its border.
    assert t_power.t_test_power("margin", 0.0, SEEDS, 0.05) == pytest.approx(0.05, abs=1e-6)
    assert "at its smallest" not in text and "smallest difference that matters" not in text


def test_the_page_of_the_registration_and_the_report_repeat_the_numbers_of_the_design() -> None:
    [one] = planned().hypotheses
    assert one.power is not None and one.detectable is not None
    written, report = page.markdown(source()), markdown.render_markdown(told())
    least = f"{float(f'{one.detectable:.3g}')}"
    at = "at a true difference of 0.02 nats per token"
    row = f"| h | {least} nats per token | {share(one.power)} {at} | {one.seeds_80} |"
    assert row in written
    frozen = next(line for line in report.splitlines() if line.startswith("| h | ") and "(at 0.02)" in line)
    assert frozen.split(" | ")[1:3] == [least, f"{share(one.power)} (at 0.02)"]


def test_what_is_detectable_counts_from_no_effect_before_and_after_the_data() -> None:
    [one] = planned().hypotheses
    beyond = t_power.detectable("margin", SEEDS, STUDY.analysis.alpha)
    assert one.detectable == pytest.approx(D + beyond * SD, rel=0.03)
    assert looked().detectable_assumed == pytest.approx(D + beyond * SD)
    assert looked().detectable == pytest.approx(D + beyond * looked().sd)
    # Power there is 80%, by the definition of both.
    assert looked().detectable > D
    assert t_power.t_test_power("margin", (looked().detectable - D) / looked().sd, SEEDS, 0.05) == pytest.approx(0.8)


def test_without_a_scale_it_is_that_many_sds_beyond_the_margin() -> None:
    bare = one_claim(CLAIM, D, seeds=SEEDS)
    beyond = t_power.detectable("margin", SEEDS, 0.05)
    assert f"{D} + {beyond:.2f} SD of differences" in printed(design_section(simulate_design(bare, n_sims=20)))


def test_seeds_that_would_do_come_with_the_effect_at_which_they_do() -> None:
    one = looked()
    assert one.more_seeds is not None
    n = t_power.seeds_for("margin", D / one.sd, 0.05, 0.8)
    assert n == SEEDS + one.more_seeds
    said = later_study(told().decision, told().registration)
    assert f"{n} of them have power 80% at a true effect of 0.02 nats/token" in said
    report = markdown.render_markdown(told())
    assert f"({n} in all) for power 80% at a true effect of 0.02 nats/token" in report
    [row] = csv.DictReader(io.StringIO(csv_files(told())["plan.csv"].decode()))
    assert (float(row["power"]), float(row["effect"])) == (one.power, one.effect)
    assert "power 80% at the smallest difference" not in report


def source() -> StudyFacts:
    return replace(registered("plain", design=planned().model_dump(mode="json")), study=STUDY)


def checked() -> list[str]:
    return [f"{one.found}; {one.fix}" for one in design_warnings(STUDY, path="studies/s.yaml") if one.kind == "power"]


def test_that_power_is_unknown_is_said_where_nothing_is_assumed() -> None:
    bare = one_claim(CLAIM, D, seeds=SEEDS)
    registration, _ = make_evidence(bare)
    without = registration.model_copy(update={"design": simulate_design(bare, n_sims=20).model_dump(mode="json")})
    assert unknown_power(without).startswith("the power of h is unknown: nothing is assumed of the noise")
    assert unknown_power(told().registration) == ""
    assert "power of h: unknown, because nothing is assumed" in printed(power_section(simulate_design(bare, n_sims=20)))
