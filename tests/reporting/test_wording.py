"""What is printed about a finding agrees with the test that decided it: names, intervals, p values, outcomes."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from evidence_factory import make_registration, one_claim, small_study
from report_samples import told
from rich.console import Console
from test_hypotheses import around, judged, values_of

from ablate.judge.findings import judge_hypotheses
from ablate.judge.stats.null_hypotheses import excludes, nulls_of, rejected_null
from ablate.judge.verdict import Check, Decision, Finding
from ablate.judge.wording import said_p
from ablate.reporting import estimates, markdown
from ablate.reporting.document import decision_document
from ablate.reporting.forest import text_forest
from ablate.reporting.sections.methods import methods_section
from ablate.reporting.summaries.study import study_section
from ablate.reporting.terminal import show, show_document
from ablate.reporting.view import FindingView
from ablate.reporting.wording import phrase
from prereg.registry.registration import Registration
from prereg.study.spec import Study

BY = "layernorm lowers val/loss by at least 0.02"
PAIR = values_of(around(-0.05))["val/loss"] | values_of(around(-0.021), arm="rmsnorm")["val/loss"]


def lines(decision: Decision, registration: Registration | None = None) -> str:
    stream = io.StringIO()
    show_document(Console(file=stream, width=80), decision_document(decision, registration or told().registration))
    return " ".join(stream.getvalue().split())


def sentence_of(study: Study, found: Finding) -> str:
    """The finding alone, in one sentence."""
    return phrase("finding.sentence", FindingView(found, study))


def checked(study: Study) -> str:
    stream = io.StringIO()
    show(Console(file=stream, width=80), study_section(study))
    assert all(len(line.rstrip()) <= 80 for line in stream.getvalue().splitlines())
    return " ".join(stream.getvalue().split())


@pytest.mark.slow
def test_without_a_correction_nothing_is_called_simultaneous_or_corrected() -> None:
    study = small_study(analysis={"correct": "none"})
    found = judge_hypotheses(study, {"val/loss": PAIR})[0]
    assert found.simultaneous is None and not any("simultaneous" in note for note in found.notes)
    assert found.margin is not None and found.margin.interval is not None
    assert found.margin.interval.level == pytest.approx(0.9) and "Bonferroni" not in found.margin.interval.method
    whole = told(analysis={"correct": "none"})
    text = markdown.render_markdown(whole) + lines(whole.decision, whole.registration)
    for word in ("imultaneous", "orrected over", "fter correction", "corrected level", "Bonferroni", "correction and"):
        assert word not in text, word
    assert "95%, two-sided (gain_ln and gain_rms); 90%, with one-sided 95% bounds as ends (harm_ln)" in text
    holm = told()
    assert "corrected over the role" in lines(holm.decision) and "Holm p" in markdown.render_markdown(holm)


def test_a_decision_against_a_margin_shows_the_interval_t_and_p_values_of_its_test() -> None:
    study = one_claim("layernorm does_not_worsen val/loss")
    found = judged(study, around(0.01, 0.0094))
    said = sentence_of(study, found)
    estimate, margin = found.estimate, found.margin
    assert estimate is not None and estimate.interval is not None and estimate.se is not None and margin is not None
    # 95% two-sided reaches the margin of 0.02, and the one-sided test at 5% has decided.
    assert found.outcome == "supported" and estimate.interval.high is not None and estimate.interval.high > 0.02
    assert margin.interval is not None and margin.interval.high is not None and margin.interval.high < 0.02
    t = (0.01 - 0.02) / estimate.se
    for needed in (
        "90% CI +0.0010 to +0.0190 (one-sided 95% bounds)",
        f"t = −{-t:.2f} against 0.02, df 4",
        f"one-sided p {said_p(margin.p_short)}.",
    ):
        assert needed in said, (needed, said)
    assert "95% CI" not in said


@pytest.mark.parametrize(
    ("claim", "difference", "level"),
    [
        (BY, -0.05, "90%"),
        (BY, 0.0, "90%"),
        ("layernorm lowers val/loss", -0.05, "95%"),
        ("layernorm lowers val/loss", 0.0, "95%"),
        ("layernorm changes val/loss", 0.0, "95%"),
        ("layernorm does_not_change val/loss", 0.0, "90%"),
        ("layernorm does_not_worsen val/loss", 0.05, "90%"),
    ],
)
def test_the_level_that_is_shown_follows_the_claim_and_not_the_outcome(
    claim: str, difference: float, level: str
) -> None:
    study = one_claim(claim)
    assert f", {level} CI" in sentence_of(study, judged(study, around(difference)))


def test_where_only_the_test_against_the_margin_shows_a_refutation_its_interval_is_shown() -> None:
    study = one_claim("layernorm lowers val/loss")
    found = judged(study, around(-0.01, 0.0094))
    view = FindingView(found, study)
    assert found.outcome == "refuted" and found.estimate is not None and found.margin is not None
    assert found.estimate.interval is not None and found.estimate.interval.low is not None
    assert found.estimate.interval.low < -0.02  # at 95% two-sided it would contradict the outcome
    assert view.bounds == found.margin.interval
    assert "90% CI −0.0190 to −0.0010 (one-sided 95% bounds)" in view.clause
    assert phrase("finding.kind_of_interval", view) == (
        "90%, with one-sided 95% bounds as ends, of the test against the margin, which decided"
    )


def test_a_finding_of_holms_second_step_shows_the_interval_at_the_level_of_that_step() -> None:
    by = {"claim": BY, "smallest": 0.02}
    study = small_study(
        hypotheses={"first": by, "second": by | {"claim": "rmsnorm lowers val/loss by at least 0.02"}},
        decision=[{"verdict": "yes", "when": "supported(first) and supported(second)"}, {"verdict": "inconclusive"}],
        assume={},
    )
    values = {"val/loss": PAIR | values_of(around(-0.0242, 0.004), arm="rmsnorm")["val/loss"]}
    first, second = judge_hypotheses(study, values)
    assert (first.outcome, second.outcome) == ("supported", "supported")
    assert second.margin is not None and second.margin.interval is not None and second.margin.interval.high is not None
    assert 0.025 < second.margin.p_reached <= 0.05 and second.margin.interval.high > -0.02
    assert second.step is not None and second.step.high is not None and second.step.high < -0.02 and first.step is None
    view = FindingView(second, study)
    assert second.step.level == pytest.approx(0.9) and view.bounds == second.step
    assert phrase("finding.kind_of_interval", view) == (
        "90%, with one-sided 95% bounds as ends, at the level of the Holm step that decided"
    )
    said = sentence_of(study, second)
    assert ", 90% CI" in said and "Holm p = .039 over 2" in said
    assert "decided by" not in sentence_of(study, first) + said


VERBS = ("lowers", "raises", "changes", "does_not_change", "does_not_worsen", "lowers_by", "lowers_below")


def claimed(verb: str, arm: str) -> dict[str, object]:
    said = {
        "lowers_by": f"{arm} lowers val/loss by at least 0.02",
        "lowers_below": f"{arm} lowers val/loss below 2.99",
    }.get(verb, f"{arm} {verb} val/loss")
    return {"claim": said, "smallest": 0.02}


@pytest.mark.parametrize("correct", ["holm", "none"])
@pytest.mark.parametrize("test", ["paired_t", "bootstrap_t", "sign_flip", "wilcoxon"])
def test_no_interval_that_is_shown_contradicts_what_was_found(correct: str, test: str) -> None:
    """Random studies of three claims of every kind: what is found lies beyond its null in the interval that is shown,
    and an inconclusive claim's own null does not."""
    rng = np.random.default_rng(len(correct) * 31 + len(test))
    seen: Counter[tuple[str, str]] = Counter()
    seeds = list(range(1, 9))
    for round_ in range(60 if test == "paired_t" and correct == "holm" else 8):
        hypotheses = {f"h{at}": claimed(str(verb), f"v{at}") for at, verb in enumerate(rng.choice(VERBS, 3))}
        study = small_study(
            variants={"none": {}} | {f"v{at}": {"optim.lr": 1e-4 * (at + 1)} for at in range(3)},
            seeds=seeds,
            analysis={"test": test, "correct": correct},
            hypotheses=hypotheses,
            decision=[{"verdict": "yes", "when": "supported(h0)"}, {"verdict": "inconclusive"}],
            tie_breakers=[],
            assume={},
        )
        base = 3.0 + rng.normal(0.0, 0.02, 8)
        values = {("none", seed): float(base[seed - 1]) for seed in seeds}
        for at in range(3):
            moved = base + rng.choice([-0.045, -0.03, -0.012, 0.0, 0.012, 0.03]) + rng.normal(0.0, 0.018, 8)
            values |= {(f"v{at}", seed): float(moved[seed - 1]) for seed in seeds}
        for found in judge_hypotheses(study, {"val/loss": values}, rng_seed=round_):
            view = FindingView(found, study)
            claim, bounds, said = study.claims[found.hypothesis], view.bounds, view.clause
            kind = (claim.verb, claim.better, found.smallest)
            null = rejected_null(*kind, found.outcome)
            if null is not None and bounds is not None:
                assert excludes(bounds, null), (said, bounds)
            elif bounds is not None and test == "paired_t":
                assert not excludes(bounds, nulls_of(*kind)[0]), said
            assert found.step is None or (found.outcome != "inconclusive" and bounds == found.step)
            shown = "none" if bounds is None else "step" if found.step is not None else "first"
            assert shown != "none" or test != "paired_t", said
            seen[found.outcome, shown] += 1
            numbers = estimates.interval(bounds, view.decimals)
            assert bounds is None or numbers in "\n".join(text_forest([view])), found.hypothesis
    if (test, correct) == ("paired_t", "holm"):
        assert seen["supported", "step"] >= 2 and seen["refuted", "step"] >= 2, seen


@pytest.mark.parametrize(
    ("p", "levels", "said"),
    [
        (0.0497, (), "= .0497"),
        (0.04996, (), "= .04996"),
        (0.0503, (), "= .0503"),
        (0.05, (), "= .050"),
        (0.0499999999999, (), "< .05"),
        (0.0500000000001, (), "> .05"),
        (0.01668, (0.05 / 3,), "= .017"),
        (0.016665, (0.05 / 3,), "= .01666"),
        (0.2003, (0.2,), "= .2003"),
        (0.00008, (), "< .0001"),
        (0.00008, (0.00005,), "= .0001"),
    ],
)
def test_a_p_is_never_rounded_across_a_level_in_use(p: float, levels: tuple[float, ...], said: str) -> None:
    assert said_p(p, levels) == said


@pytest.mark.parametrize(("effect", "test"), [(-0.5, "paired_t"), (-0.5, "sign_flip"), (0.0, "paired_t")])
def test_seeds_that_do_nothing_are_named(effect: float, test: str) -> None:
    study = one_claim(seeds=6, analysis={"test": test})
    values = {("none", seed): 2.0 for seed in study.seeds} | {("layernorm", seed): 2.0 + effect for seed in study.seeds}
    found = judge_hypotheses(study, {"val/loss": values})[0]
    assert "all 6 seeds give the same values: the seed seems to do nothing" in sentence_of(study, found)
    decision = told().decision
    unusable = {"findings": (found,), "status": "inadmissible", "verdict": None, "line": None}
    shown = lines(decision.model_copy(update=unusable), make_registration(study))
    other = judged(study, around(0.1, n=6))
    assert "the seed seems to do nothing" in shown and "cannot be tested" not in sentence_of(study, other)


def test_equal_differences_of_different_seeds_are_named_and_different_ones_are_not() -> None:
    study = one_claim(seeds=6, analysis={"test": "sign_flip"})
    said = {gap: sentence_of(study, judged(study, np.full(6, gap))) for gap in (0.0, -0.5)}
    assert "all 6 differences are zero: the arms seem not to differ" in said[0.0]
    assert "all 6 differences are the same" in said[-0.5]
    assert "Note:" not in sentence_of(study, judged(study, around(-0.5, n=6)))


@pytest.mark.slow
def test_the_methods_state_only_what_was_checked() -> None:
    whole = told()
    compared = Check(
        name="pairs start from the same weights",
        passed=True,
        severity="inadmissible",
        found="230 shared parameters compared, 0 differ",
    )
    own = Check(
        name="pairs are matched",
        passed=False,
        severity="note",
        found="a user's own trainer states no hashes of weights, batches or dropout",
    )

    def methods(*checks: Check, paper: bool = True) -> str:
        decision = whole.decision.model_copy(update={"checks": checks})
        return str(methods_section(replace(whole, decision=decision), paper=paper))

    assert "By hash, runs of one seed share initial weights." in methods(compared)
    text = methods(own)
    assert "The trainer was given the same seed for every arm; whether runs of one seed share" in text
    assert "was not checked" in text and "By hash" not in text and "matched" not in text
    # A report has a section on pairs; what was not checked it says here too.
    assert "By hash" not in methods(compared, paper=False) and "was not checked" in methods(own, paper=False)
    made = Check(name="every run was made here", passed=False, severity="deviation", found="10 of 10 runs")
    for paper in (True, False):
        assert "What imported runs share" in methods(compared, made, paper=paper)
        assert "What imported runs share" not in methods(compared, paper=paper)
