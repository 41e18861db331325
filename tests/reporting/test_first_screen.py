"""The first screen: a sentence that says no more than its interval, one interval for each finding, earned trust."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import House
from evidence_factory import make_evidence, one_claim, small_study, with_run
from report_samples import told, told_of
from test_hypotheses import around, judged

from ablate import cli, deciding
from ablate.judge import decide as judge
from ablate.judge.audit.checks import DECLARED
from ablate.judge.decide import decide
from ablate.judge.verdict import Finding
from ablate.reporting import estimates, html, markdown
from ablate.reporting.document import TRUST, banner_of, compose, trust_line
from ablate.reporting.forest import text_forest
from ablate.reporting.headline import headline_of, later_study
from ablate.reporting.view import FindingView, views_of
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.rule.condition import deciding_term, parse_condition
from prereg.study.spec import Study

CLAIMS = ("lowers val/loss", "lowers val/loss by at least 0.02", "does_not_worsen val/loss", "does_not_change val/loss")


@pytest.mark.parametrize(
    ("condition", "term"),
    [
        ("supported(a) and supported(b)", "a b"),
        ("refuted(b) or supported(a)", "a"),
        ("supported(b) or refuted(b) or supported(a)", "b"),
        ("not refuted(a) and (refuted(b) or stable(x))", "a x"),
        ("not (refuted(a) or refuted(b))", "a b"),
        ("not (supported(a) and refuted(b))", "b"),
    ],
)
def test_of_a_condition_that_holds_the_first_true_term_is_what_decided(condition: str, term: str) -> None:
    outcomes, stable = {"a": "supported", "b": "supported"}, {"x": True}
    found = deciding_term(parse_condition(condition), outcomes, stable)  # type: ignore[arg-type]
    assert " ".join(one.name for one in found) == term


def test_the_headline_speaks_of_the_findings_that_made_the_line_hold() -> None:
    study = small_study()
    gain = {"val/loss": {"layernorm": -0.06, "rmsnorm": -0.05}, "val/accuracy": {"layernorm": 0.01, "rmsnorm": 0.01}}
    registration, evidence = make_evidence(study, effects=gain, sd=0.002)
    decision = decide(registration, evidence)
    said = headline_of(decision, registration).sentence
    assert study.decision[(decision.line or 0) - 1].when == "supported(gain_ln) and supported(harm_ln)"
    assert said.startswith("Adopt layernorm: layernorm improves validation loss by 0.06")
    assert said.count("n = 5 pairs") == 2 and "rmsnorm" not in said
    # Of a line that holds in every other case: what is undecided, and kept the other lines from holding.
    registration, evidence = make_evidence(study, effects={"val/loss": {"layernorm": -0.01}}, sd=0.02, seed=3)
    decision = decide(registration, evidence)
    assert decision.status == "inconclusive"
    said = headline_of(decision, registration).sentence
    assert said.startswith("Inconclusive: whether layernorm lowers validation loss is undecided: difference ")


NO_CLAIM = "This verdict rests on no claim: it is what is left when no line above it holds."
ALWAYS = "This verdict rests on no claim: the rule gives it whatever comes out."
NO_FINDING = "This verdict rests on no finding: h is inconclusive."


@pytest.mark.parametrize(
    ("decision", "effect", "reason"),
    [
        ([("faster", None)], 0.06, ALWAYS),
        ([("faster", "supported(h) or not supported(h)")], 0.06, ALWAYS),
        ([("faster", "stable(layernorm)"), ("faster", None)], 0.06, ALWAYS),
        ([("slower", "supported(h)"), ("faster", None)], 0.06, NO_CLAIM),
        ([("unstable", "not stable(layernorm)"), ("faster", None)], 0.06, NO_CLAIM),
        ([("slower", "supported(h)"), ("faster", "refuted(h) or not refuted(h)")], 0.06, NO_CLAIM),
        ([("faster", "not refuted(h)"), ("inconclusive", None)], -0.01, NO_FINDING),
        ([("faster", "supported(h)"), ("slower", "not supported(h)")], -0.01, NO_FINDING),
        ([("faster", "supported(h)"), ("slower", "not supported(h)")], 0.06, None),
        ([("faster", "supported(h)"), ("open", "inconclusive(h)"), ("slower", None)], -0.01, None),
        ([("faster", "refuted(h)"), ("inconclusive", None)], 0.06, None),
        ([("faster", "supported(h)"), ("inconclusive", None)], 0.06, None),
        ([("steady", "stable(layernorm)"), ("inconclusive", None)], 0.06, None),
    ],
)
def test_a_verdict_that_no_claim_carries_says_so_on_every_page(
    decision: list[tuple[str, str | None]], effect: float, reason: str | None
) -> None:
    lines = [{"verdict": verdict} | ({} if when is None else {"when": when}) for verdict, when in decision]
    # Lower is better: at +0.06 the claim that layernorm lowers the loss is refuted, at -0.01 with much noise open.
    sd, seed = (0.002, 0) if effect > 0 else (0.02, 3)
    study = one_claim(decision=lines)
    registration, evidence = make_evidence(study, effects={"val/loss": {"layernorm": effect}}, sd=sd, seed=seed)
    found = decide(registration, evidence)
    [finding] = found.findings
    assert finding.outcome == ("refuted" if effect > 0 else "inconclusive")
    said = [text for text in banner_of(found, registration).reasons if text.startswith("This verdict rests on no")]
    assert said == ([] if reason is None else [reason])
    if reason is not None:
        context = told_of((registration, evidence))
        assert reason[1:].rstrip(".") in headline_of(found, registration).sentence
        assert reason in markdown.render_markdown(context) and reason in html.render_html(context)


def test_findings_that_share_a_clause_are_named_with_their_outcomes() -> None:
    gains = small_study().model_dump(mode="json")["hypotheses"]
    more = {"large_ln": {"claim": "layernorm lowers val/loss by at least 0.03"}}
    more["large_rms"] = {"claim": "rmsnorm lowers val/loss by at least 0.03"}
    terms = "supported(gain_ln) and supported(harm_ln) and supported(harm_rms)"
    for last, outcomes in (
        ("supported(large_ln) and refuted(gain_rms)", "large_ln is supported and gain_rms is refuted"),
        (
            "supported(large_ln) and refuted(gain_rms) and refuted(large_rms)",
            "large_ln is supported and gain_rms and large_rms are refuted",
        ),
        ("refuted(gain_rms)", "gain_rms is refuted"),
    ):
        rule = [{"verdict": "adopt layernorm", "when": f"{terms} and {last}"}, {"verdict": "inconclusive"}]
        study = small_study(hypotheses={**gains, **more}, decision=rule, tie_breakers=[], assume={})
        accuracy = {"layernorm": 0.01, "rmsnorm": 0.01}
        effects = {"val/loss": {"layernorm": -0.06, "rmsnorm": 0.05}, "val/accuracy": accuracy}
        registration, evidence = make_evidence(study, effects=effects, sd=0.002)
        decision = decide(registration, evidence)
        assert decision.verdict == "adopt layernorm"
        assert headline_of(decision, registration).clauses[-1] == outcomes
        assert banner_of(decision, registration).reasons[-1] == f"{outcomes}."


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_sentence_never_says_more_than_its_interval(claim: str) -> None:
    study = one_claim(f"layernorm {claim}")
    seen = set()
    for effect in (-0.06, -0.03, -0.021, -0.012, -0.004, 0.0, 0.006, 0.018, 0.03):
        for spread in (0.002, 0.009, 0.03):
            found = judged(study, around(effect, spread))
            view = FindingView(found, study)
            bounds, said = view.bounds, view.clause
            assert bounds is not None and bounds.low is not None and bounds.high is not None
            near, far = sorted((abs(bounds.low), abs(bounds.high)))
            assert found.estimate is not None and found.estimate.interval is not None
            against_zero = found.estimate.interval
            assert against_zero.low is not None and against_zero.high is not None
            # An interval against a margin, at 1 - 2 alpha, is too short to state a direction by itself.
            excludes = max(bounds.low, against_zero.low) > 0 or min(bounds.high, against_zero.high) < 0
            excludes = excludes and min(bounds.low, against_zero.low) * max(bounds.high, against_zero.high) > 0
            directed = re.match(r"layernorm (improves|worsens) validation loss by", said)
            assert not directed or (excludes and (directed[1] == "improves") == (bounds.high < 0)), said
            assert ("beyond the margin" not in said) or (excludes and near >= found.smallest), said
            assert ("less than the margin" not in said) or far < found.smallest, said
            assert f"{100 * bounds.level:g}% CI" in said and "n = 5 pairs" in said
            if found.outcome == "inconclusive":
                assert said.startswith("whether ") and "undecided" in said
            seen.add((found.outcome, directed[1] if directed else ""))
    assert len(seen) >= 3


def test_a_finding_has_one_interval_in_sentence_and_figure() -> None:
    whole = told()
    page = markdown.render_markdown(whole)
    views = views_of(whole.decision.findings, whole.study)
    for view in views:
        bounds = view.bounds
        assert bounds is not None and view.estimate is not None
        numbers = estimates.interval(bounds, view.decimals)
        drawn = next(line for line in text_forest(views) if line.startswith(f"{view.name} "))
        assert numbers in drawn and drawn.rstrip() in page
        low, high = (number.lstrip("+−") for number in numbers.strip("[]").split(", "))
        assert low in view.clause and high in view.clause and f"{100 * bounds.level:g}% CI" in view.clause
    # The interval of the test alone, uncorrected, is in tests.csv and nowhere on the page.
    gain = views[0]
    assert gain.estimate is not None and gain.estimate.interval is not None
    alone = estimates.interval(gain.estimate.interval, gain.decimals)
    assert alone not in page.replace("\\", "") and "97.5% CI 0.0400 to 0.0578" in gain.clause


def test_claims_about_one_contrast_have_its_numbers_once() -> None:
    claims = {
        "same": {"claim": "layernorm does_not_change val/loss", "smallest": 0.02},
        "gain": {"claim": "layernorm lowers val/loss by at least 0.02"},
        "other": {"claim": "rmsnorm raises val/accuracy", "smallest": 0.002},
    }
    rule = [{"verdict": "adopt", "when": "supported(other)"}, {"verdict": "inconclusive"}]
    study = small_study(hypotheses=claims, decision=rule, tie_breakers=[], assume={})
    effects = {"val/loss": {"layernorm": -0.06}, "val/accuracy": {"rmsnorm": 0.01}}
    whole = told_of(make_evidence(study, effects=effects, sd=0.002))
    page = markdown.render_markdown(whole)
    same, gain, _ = views_of(whole.decision.findings, study)
    assert same.clause == gain.clause and (same.outcome, gain.outcome) == ("refuted", "supported")
    assert (
        page.count(same.clause) == 1
        and "**gain: supported**: Difference and interval are those of same. Paired t," in page
    )


def test_no_end_of_an_interval_is_rounded_onto_or_across_zero_or_the_margin() -> None:
    study = one_claim("layernorm does_not_worsen val/loss")
    found = judged(study, around(0.01, 0.0094))
    assert found.margin is not None and found.margin.interval is not None

    def ending(high: float) -> Finding:
        assert found.margin is not None and found.margin.interval is not None
        interval = found.margin.interval.model_copy(update={"low": 0.001, "high": high})
        outcome = "supported" if high < 0.02 else "inconclusive"
        margin = found.margin.model_copy(update={"interval": interval})
        return found.model_copy(update={"margin": margin, "outcome": outcome})

    for high, shown in ((0.019999, "0.019999"), (0.0200004, "0.0200004"), (0.02, "0.0200"), (0.0123, "0.0123")):
        view = FindingView(ending(high), study)
        assert re.search(rf"to \+?{shown} \(one-sided 95% bounds\),", view.clause), view.clause
        assert f"+{shown}]" in view.interval


def test_an_interval_that_decides_nothing_is_not_rounded_onto_zero_either() -> None:
    found = judged(one_claim("layernorm lowers val/loss"), around(-0.02, 0.02))
    assert found.estimate is not None and found.estimate.interval is not None
    simultaneous = found.estimate.interval.model_copy(update={"low": -0.06, "high": 0.02})
    alone = found.estimate.interval.model_copy(update={"low": -0.041, "high": -0.00021})
    estimate = found.estimate.model_copy(update={"interval": alone})
    changed = found.model_copy(update={"estimate": estimate, "simultaneous": simultaneous})
    assert estimates.interval(alone, FindingView(changed, None).decimals) == "[−0.0410, −0.0002]"


def test_of_a_verdict_without_the_interval_of_its_outcome_the_interval_says_what_it_is() -> None:
    found = judged(one_claim("layernorm lowers val/loss"), around(-0.001, 0.002))
    assert found.outcome == "refuted" and FindingView(found, None).interval.endswith("(95%)")
    older = found.model_copy(update={"margin": None})
    assert FindingView(older, None).interval.endswith("(95%, against zero)")


def test_each_word_of_trust_is_earned_and_what_failed_comes_first() -> None:
    assert {name for names in TRUST.values() for name in names} <= set(DECLARED)
    study = small_study()
    registration, evidence = make_evidence(study, effects={"val/loss": {"layernorm": -0.06}}, sd=0.002)
    whole = "Registered before any run, complete, matched, verified, recomputed."
    assert trust_line(decide(registration, evidence), study) == whole
    for word, faulty in {
        "verified": with_run(evidence, ("none", 1), outcome_sha256="0" * 64),
        "matched": with_run(evidence, ("none", 1), must_match=None),
    }.items():
        said = trust_line(decide(registration, faulty), study)
        assert said.startswith(f"Not {word} (failed: "), said
        assert word not in said.split(").", 1)[1]
    decision = decide(registration, evidence)
    fewer = tuple(check for check in decision.checks if "seal" not in check.name and "ledger" not in check.name)
    bare = decision.model_copy(update={"checks": tuple(one for one in fewer if one.name not in TRUST["verified"])})
    assert trust_line(bare, study).startswith("Not checked: verified. Registered")


def test_after_an_inconclusive_verdict_a_new_study_is_named_and_never_more_seeds_for_this_one() -> None:
    whole = told("inconclusive")
    said = later_study(whole.decision, whole.registration)
    assert said.startswith("A later study needs seeds of its own") and "18 of them have power 80%" in said
    assert "`stopping:`" in said and "seeds added to it would be chosen by its outcome" in said
    assert later_study(told().decision, told().registration) == ""
    assert said in " ".join(getattr(block, "text", "") for block in compose(whole).opening)


def test_a_ratio_is_written_in_percent() -> None:
    study = small_study(
        hypotheses={"h": {"claim": "layernorm lowers val/perplexity by at least 2%"}},
        decision=[{"verdict": "yes", "when": "supported(h)"}, {"verdict": "inconclusive"}],
        assume={},
        tie_breakers=[],
    )
    found = judged_in_logs(study, around(np.log(0.95), 0.004))
    said = FindingView(found, study).clause
    assert "by 5.0" in said and "%, 90% CI" in said and "beyond the margin of 2%" in said, said


def judged_in_logs(study: Study, gaps: np.ndarray) -> Finding:
    from ablate.judge.findings import judge_hypotheses

    values = {("none", seed): 8.0 for seed in study.seeds}
    values |= {("layernorm", seed): float(8.0 * np.exp(gap)) for seed, gap in zip(study.seeds, gaps, strict=True)}
    return judge_hypotheses(study, {"val/perplexity": values})[0]


class Judged:
    """A decided study with its records, in a folder of its own."""

    def __init__(self, house: House, folder: Path) -> None:
        self.path = house.copy(folder / "house").path
        self.study = self.path / "studies" / "tiny.yaml"
        self.reports = self.path / "reports" / "tiny"

    def events(self) -> list[str]:
        return [entry.event for entry in Ledger(Root(self.path).ledger).entries()]

    def ask(self, monkeypatch: pytest.MonkeyPatch, verb: str) -> int:
        monkeypatch.setattr(sys, "argv", ["ablate", verb, str(self.study)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)


@pytest.fixture
def one(decided: House, tmp_path: Path) -> Judged:
    return Judged(decided, tmp_path)


@pytest.mark.parametrize(("error", "code"), [(ValueError("no such mark"), 1), (OSError(28, "No space left"), 2)])
def test_a_report_that_cannot_be_drawn_loses_no_decision(
    error: Exception,
    code: int,
    one: Judged,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    house = one
    for page in ("report.md", "report.html", "verdict.json"):
        (house.reports / page).unlink()
    before = house.events().count("reported")
    drawn = deciding.pages

    def fails(*_: object) -> dict[str, bytes]:
        raise error

    monkeypatch.setattr(deciding, "pages", fails)
    assert house.ask(monkeypatch, "decide") == code
    out, err = capsys.readouterr()
    assert "DECIDED: keep none" in out and "layernorm" in out and "Report:" not in out
    assert (
        f"the decision above is in the ledger; its report was not written. To retry:  ablate report {house.study}"
        in err
    )
    assert json.loads((house.reports / "verdict.json").read_bytes())["verdict"] == "keep none"
    assert house.events().count("decided") == 1 and house.events().count("reported") == before
    monkeypatch.setattr(deciding, "pages", drawn)
    assert house.ask(monkeypatch, "report") == 0
    assert (house.reports / "report.html").stat().st_size > 1000


def test_a_decision_that_the_records_do_not_give_is_not_reported(
    one: Judged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(judge, "decide", lambda *given: decide(*given).model_copy(update={"line": 1}))
    assert one.ask(monkeypatch, "report") == 2
    assert "does not give the decision in the ledger" in capsys.readouterr().err
