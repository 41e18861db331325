"""Claims about comparing two tellings: what was found must agree, words may differ between versions, and are named."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ablate.judge.verdict import Decision, Finding
from ablate.verification.comparison import compare_pages, compare_verdicts

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = sorted(ROOT.glob("archive/0.1/reports/*/verdict.json"))
TUNED = (ROOT / "archive" / "0.1" / "reports" / "tuned-optimizer" / "verdict.json").read_bytes()

VERDICT: dict[str, Any] = {
    "verdict": "adopt",
    "because": "line 1 holds",
    "findings": [{"hypothesis": "gain", "outcome": "supported", "p": 0.0123456789, "sentence": "it helps", "n": 3}],
    "checks": [{"name": "every seal matches", "passed": True, "found": "none against it"}],
}


def written(**changes: Any) -> bytes:
    return json.dumps(VERDICT | changes, indent=2).encode()


def finding(**changes: Any) -> list[dict[str, Any]]:
    return [VERDICT["findings"][0] | changes]


def test_the_same_bytes_need_nothing_said() -> None:
    found = compare_verdicts(written(), written())
    assert (found.matter, found.words, found.digits) == ((), (), False)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"verdict": "reject"}, "verdict"),
        ({"verdict": None}, "verdict"),
        ({"findings": finding(outcome="refuted")}, "findings.gain.outcome"),
        ({"findings": finding(p=0.0123456)}, "findings.gain.p"),
        ({"findings": finding(p=None)}, "findings.gain.p"),
        ({"findings": finding(p=0.0)}, "findings.gain.p"),
        ({"findings": finding(n=4)}, "findings.gain.n"),
        ({"checks": [VERDICT["checks"][0] | {"passed": 1}]}, "checks.every seal matches.passed"),
    ],
)
def test_another_outcome_or_number_is_another_matter(changes: dict[str, Any], place: str) -> None:
    found = compare_verdicts(written(**changes), written())
    assert len(found.matter) == 1 and found.matter[0].startswith(f"{place} is ")


def test_digits_beyond_the_ninth_are_digits() -> None:
    found = compare_verdicts(written(findings=finding(p=0.0123456789 * (1 + 1e-13))), written())
    assert (found.matter, found.words, found.digits) == ((), (), True)


def test_other_sentences_are_words_and_are_named() -> None:
    found = compare_verdicts(written(because="line one holds", findings=finding(sentence="it does")), written())
    assert found.matter == ()
    assert found.words == ("because", "findings.gain.sentence")


def test_a_field_that_one_side_lacks_is_words_only_if_a_later_version_added_it() -> None:
    assert compare_verdicts(written(findings=finding(added=1)), written()).matter
    later = {"margin": {"zone": "undecided"}, "amended": ["its margin"]}
    found = compare_verdicts(written(), written(findings=finding(**later)))
    assert found.matter == () and found.words == (
        "findings.gain.margin is in one of them only",
        "findings.gain.amended is in one of them only",
    )
    assert compare_verdicts(written(findings=finding(amended=[])), written()).matter == ()
    found = compare_verdicts(written(findings=finding(**later)), written())
    assert len(found.matter) == 2, "what the judge here no longer finds"
    # A name that a user chose is no field.
    ties = [
        {"tie_breakers": {"val/loss": {"margin": 0.1, "other": 0.2}}},
        {"tie_breakers": {"val/loss": {"other": 0.2}}},
    ]
    assert compare_verdicts(written(**ties[1]), written(**ties[0])).matter


def test_a_check_that_one_side_lacks_is_words_only_if_it_held_or_a_later_version_added_it_as_a_remark() -> None:
    def checked(name: str, severity: str, *, passed: bool) -> bytes:
        more = {"name": name, "passed": passed, "severity": severity, "found": "2 of 3"}
        return written(checks=[*VERDICT["checks"], more])

    for one in (checked("a new question", "inadmissible", passed=True), checked("a new question", "note", passed=True)):
        for found in (compare_verdicts(one, written()), compare_verdicts(written(), one)):
            assert found.matter == () and found.words == ("checks.a new question is in one of them only",)
    for severity in ("inadmissible", "deviation", "note"):
        one = checked("a new question", severity, passed=False)
        found = compare_verdicts(written(), one, later={"a new question"})
        assert found.matter == ('checks.a new question is missing, and failed when judged here: "2 of 3"',)
        found = compare_verdicts(one, written(), later={"a new question"})
        assert found.matter == ("checks.a new question failed, and did not when judged here",)
    remark = checked("every run was made at the same commit", "note", passed=False)
    found = compare_verdicts(written(), remark)
    assert found.matter == () and "is missing, and failed when judged here" in found.since[0]
    deviation = checked("the ledger's times run forward", "deviation", passed=False)
    assert compare_verdicts(written(), deviation).matter
    found = compare_verdicts(written(), deviation, later={"the ledger's times run forward"})
    assert found.matter == () and "is missing, and failed when judged here" in found.since[0]


def without(*path: str | int) -> Callable[[Any], None]:
    def change(verdict: Any) -> None:
        for key in path[:-1]:
            verdict = verdict[key]
        del verdict[path[-1]]

    return change


def told(text: str, *, of: str = "sentence") -> Callable[[Any], None]:
    return lambda verdict: verdict["findings"][0].update({of: text})


FORGED: dict[str, Callable[[Any], None]] = {
    "a finding dropped": without("findings", 1),
    "a finding added": lambda v: v["findings"].append(v["findings"][0] | {"hypothesis": "more"}),
    "no finding": lambda v: v["findings"].clear(),
    "no checks": without("checks"),
    "an empty audit": lambda v: v["checks"].clear(),
    "no status": without("status"),
    "no verdict": without("verdict"),
    "no p": without("findings", 0, "p_support"),
    "another test": lambda v: v["findings"][0]["estimate"].update(method="wilcoxon"),
    "another effect": told("adamw lowers val/loss by 9.99 nats (n = 5 seeds, p < .0001)."),
    "more seeds": told("adamw lowers val/loss by 0.2423 nats (n = 500 seeds, p < .0001)."),
    "another sign": told("adamw minus sgd is -0.2423 nats/token, smallest that matters -0.5."),
    "a smaller p": told("adamw_untuned raises it (p < .0001).", of="notes"),
    "a bound the other way": told("adamw lowers val/loss by 0.2423 nats (n = 5, p > .9999999)."),
    "another line": lambda v: v.update(because="Line 2 of the decision rule is the first that holds."),
    "another count": lambda v: v["checks"][5].update(found="41 of 41 planned runs ended"),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_verdict_is_another_matter(forgery: str) -> None:
    verdict = json.loads(TUNED)
    FORGED[forgery](verdict)
    assert compare_verdicts(json.dumps(verdict, indent=2).encode(), TUNED).matter


@pytest.mark.parametrize("name", ["unit", "method", "notes", "found", "title", "margin", "part", "effects"])
def test_the_name_of_a_hypothesis_excuses_nothing(name: str) -> None:
    now = json.loads(TUNED)
    now["findings"][0]["hypothesis"] = name
    outcome, gone = copy.deepcopy(now), copy.deepcopy(now)
    outcome["findings"][0]["outcome"] = "refuted"
    del gone["findings"][0]
    for lie in (outcome, gone):
        assert compare_verdicts(json.dumps(lie).encode(), json.dumps(now).encode()).matter


def test_a_number_in_a_sentence_may_be_written_with_other_digits_and_is_no_other_number() -> None:
    now = json.loads(TUNED)
    sentence = now["findings"][0]["sentence"]
    assert "-0.2423" in sentence and "n = 5" in sentence and "90% CI" in sentence

    def kinds(old: str, new: str) -> tuple[bool, bool]:
        verdict = copy.deepcopy(now)
        verdict["findings"][0]["sentence"] = sentence.replace(old, new)
        found = compare_verdicts(json.dumps(verdict).encode(), TUNED)
        return bool(found.matter), bool(found.words)

    for same in ("-0.242", "-0.24230", "−0.2423"):
        assert kinds("-0.2423", same) == (False, True), same
    assert kinds("90% CI", "90.00% CI") == (False, True)
    for other in ("-0.2433", "-0.2", "-0.25", "-2423", "0"):
        assert kinds("-0.2423", other)[0], other
    assert kinds("n = 5", "n = 6")[0] and kinds("p < .0001", "p < .00001")[0]


def test_a_title_is_the_registrations_or_another_matter() -> None:
    now = written(title="Does it help?")
    forged = written(title="Proof that it helps everywhere")
    assert compare_verdicts(forged, now).matter == (
        'title is "Proof that it helps everywhere", and "Does it help?" when judged here',
    )
    earlier = compare_verdicts(written(title="Does it help us?"), now, titles={"Does it help us?"})
    assert (earlier.matter, earlier.words, earlier.retitled) == ((), (), True)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.parent.name)
def test_sentences_state_numbers_of_their_findings_so_that_every_version_can_compare_them(path: Path) -> None:
    """Earlier ones have the interval of one test at 95% where today's have that over the family: a finding has both."""
    old = Decision.model_validate_json(path.read_bytes())

    def reworded_today(finding: Finding) -> Finding:
        return finding.model_copy(update={"sentence": "In the words of today."})

    now = old.model_copy(update={"findings": tuple(map(reworded_today, old.findings))})
    found = compare_verdicts(path.read_bytes(), now.model_dump_json().encode())
    assert found.matter == () and len(found.words) == len(old.findings)
    lie = json.loads(path.read_bytes())
    lie["findings"][0]["sentence"] = re.sub(r"[0-9]+(?=% (repeated )?CI)", "99", lie["findings"][0]["sentence"])
    assert compare_verdicts(json.dumps(lie).encode(), now.model_dump_json().encode()).matter


def test_effect_sizes_of_another_version_are_described_and_a_hypothesis_of_that_name_is_still_judged() -> None:
    g_z = {"name": "g_z", "value": 1.5, "interval": {"low": 0.2, "high": 2.1, "method": "noncentral t"}}
    earlier = g_z | {"interval": {"low": 0.1, "high": 1.9, "method": "noncentral t, times the correction"}}
    found = compare_verdicts(written(findings=finding(effects=[earlier])), written(findings=finding(effects=[g_z])))
    assert found.matter == ()
    assert found.words == (
        "findings.gain.effects.g_z.interval.low (which decides nothing) is 0.1, and 0.2 when judged here",
        "findings.gain.effects.g_z.interval.high (which decides nothing) is 1.9, and 2.1 when judged here",
        "findings.gain.effects.g_z.interval.method",
    )
    none = compare_verdicts(
        written(findings=finding(effects=[g_z | {"interval": None}])), written(findings=finding(effects=[g_z]))
    )
    assert none.matter, "an interval that is lost is no other number"
    named = finding(hypothesis="effects"), finding(hypothesis="effects", p=0.5)
    assert compare_verdicts(written(findings=named[0]), written(findings=named[1])).matter


def test_a_hypothesis_that_is_left_out_is_another_matter() -> None:
    assert compare_verdicts(written(findings=[]), written()).matter
    assert compare_verdicts(written(findings=[*finding(), *finding(hypothesis="more")]), written()).matter


def test_the_same_values_written_down_otherwise_are_seen() -> None:
    assert compare_verdicts(json.dumps(VERDICT).encode(), written()).words == ("the way it is written down",)
    assert compare_verdicts(b"{", written()).matter == ("verdict.json is not JSON",)


def test_pages_may_differ_in_last_digits_and_not_in_text() -> None:
    page = b"<p>p = .0123456, n = 3</p><svg a><path d='1.25,2'/></svg><p>end</p>"
    assert compare_pages("r", page, page).digits is False
    assert compare_pages("r", page.replace(b"1.25", b"1.2500000001"), page).digits
    assert compare_pages("r", page.replace(b"n = 3", b"n = 4"), page).words == ("r has another text",)
    for other in (b".0023456", b".123456"):
        assert compare_pages("r", page.replace(b".0123456", other), page).words == ("r has another text",)
    assert compare_pages("r", page.replace(b"1.25", b"9.25"), page).words == ("1 of its figures are drawn otherwise",)
