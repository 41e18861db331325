"""The report of real decisions: the judge's own words on made evidence, from clean to diverged, plain and factorial."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_factory import make_evidence, small_study

from ablate.judge.decide import decide
from ablate.records.evidence import Evidence
from ablate.reporting import html, markdown
from ablate.reporting.context import ReportContext
from ablate.reporting.headline import clause_of
from prereg.registry.registration import Registration
from prereg.study.spec import Study


def told_of(made: tuple[Registration, Evidence]) -> ReportContext:
    registration, evidence = made
    return ReportContext(
        decision=decide(registration, evidence),
        registration=registration,
        evidence=evidence,
        ledger_head=evidence.ledger_head,
        generated_at="2026-05-04T15:20:11+00:00",
    )


def factorial(**changes: Any) -> Study:
    """Eight cells, an interaction, a logarithmic scale."""
    return small_study(
        **(
            {
                "variants": {},
                "baseline": "post-shallow-cold",
                "factors": {
                    "norm": {"pre": {"model.norm": "pre"}, "post": {"model.norm": "post"}},
                    "depth": {"shallow": {"model.layers": 1}, "deep": {"model.layers": 3}},
                    "warmup": {"cold": {"optim.warmup": 0}, "warm": {"optim.warmup": 20}},
                },
                "hypotheses": {
                    "pre_helps": {"claim": "pre-deep-cold lowers val/loss than post-deep-cold", "smallest": 0.02},
                    "interacts": {
                        "claim": "(post-deep-cold - pre-deep-cold) raises val/perplexity than (post-shallow-cold - "
                        "pre-shallow-cold)",
                        "smallest": 0.02,
                        "scale": "log",
                    },
                },
                "decision": [{"verdict": "use pre", "when": "supported(pre_helps)"}, {"verdict": "inconclusive"}],
                "tie_breakers": [],
                "assume": {},
            }
            | changes
        )
    )


@pytest.mark.slow
def test_a_clean_decision_is_told_finding_by_finding() -> None:
    told = told_of(make_evidence(small_study(), effects={"val/loss": {"layernorm": -0.08}}, sd=0.001))
    assert told.decision.verdict == "adopt layernorm"
    text = markdown.render(told)
    for finding in told.decision.findings:
        assert markdown.escape(clause_of(told.study, finding)).removeprefix("whether ") in text
    assert told.decision.because in text
    for check in told.decision.checks:
        assert markdown.escape(check.name) in text
    page = html.render(told)
    # Of two metrics: forests (wide and narrow), pairs, curves and differences; and the loss over the time of training.
    assert page.count("<svg") == 2 * 2 + 4 + 3 + 2 + 3 + 2 + 1


@pytest.mark.slow
def test_several_adopting_lines_show_the_tie_breakers() -> None:
    shifts = {"val/loss": {"layernorm": -0.08, "rmsnorm": -0.08}}
    told = told_of(make_evidence(small_study(), effects=shifts, sd=0.002))
    assert told.decision.tie_breakers
    assert "Tie-breaking metrics" in markdown.render(told) and "speed/tokens_per_s" in html.render(told)


@pytest.mark.slow
def test_a_diverged_run_is_marked_in_tables_and_curves() -> None:
    told = told_of(make_evidence(small_study(), diverged=(("none", 2),)))
    text, page = markdown.render(told), html.render(told)
    assert "| none | unstable | 5 | seed 2 |" in text.replace("**", "")
    assert "| none | 2 | diverged |" in text
    assert "× diverged" in page
    assert all(f"{finding.hypothesis}: {finding.claim}, n = 4" in page for finding in told.decision.findings)


@pytest.mark.parametrize(
    "left_out",
    [(("rmsnorm", 3),), tuple((arm, seed) for arm in ("none", "layernorm", "rmsnorm") for seed in range(1, 6))],
)
def test_missing_runs_draw_nothing_and_show_no_finding(left_out: tuple[tuple[str, int], ...]) -> None:
    told = told_of(make_evidence(small_study(), left_out=left_out))
    page, text = html.render(told), markdown.render(told)
    assert "<svg" not in page and "Findings by hypothesis" not in text and "Final values" not in text


@pytest.mark.slow
def test_a_factorial_study_with_an_interaction_on_a_log_scale_is_told() -> None:
    told = told_of(make_evidence(factorial()))
    page, text = html.render(told), markdown.render(told)
    assert "log scale" in text and "post-deep-cold" in page
    assert page.count('class="card narrow"') == 2  # two scales, two forests
    assert len(page) < 1_500_000


def test_sign_flip_without_a_finite_interval_says_so() -> None:
    study = small_study(analysis={"test": "sign_flip", "correct": "none"}, seeds=[1, 2, 3, 4, 5, 6])
    told = told_of(make_evidence(study))
    assert "sign-flip" in markdown.render(told)
    five = small_study(analysis={"test": "sign_flip", "correct": "none"})
    assert "no finite interval" in markdown.render(told_of(make_evidence(five)))
