"""Claims about comparing two tellings: what was found must agree, words may differ between versions, and are named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ablate.verification.rejudge import compare_pages, compare_verdicts

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


def test_sentences_and_fields_that_one_side_lacks_are_words_and_are_named() -> None:
    found = compare_verdicts(
        written(because="line one holds", findings=finding(sentence="it does", added=1)), written()
    )
    assert found.matter == ()
    assert found.words == ("because", "findings.gain.sentence", "findings.gain.added is in one of them only")
    more = [*VERDICT["checks"], {"name": "a new question", "passed": True}]
    assert compare_verdicts(written(checks=more), written()).words == ("checks.a new question is in one of them only",)


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


def test_a_hypothesis_that_is_left_out_is_named_too() -> None:
    assert (
        compare_verdicts(written(findings=[]), written()).matter
        or compare_verdicts(written(findings=[]), written()).words
    )


def test_the_same_values_written_down_otherwise_are_seen() -> None:
    assert compare_verdicts(json.dumps(VERDICT).encode(), written()).words == ("the way it is written down",)
    assert compare_verdicts(b"{", written()).matter == ("verdict.json is not JSON",)


def test_pages_may_differ_in_last_digits_and_not_in_text() -> None:
    page = b"<p>p = .0123456, n = 3</p><svg a><path d='1.25,2'/></svg><p>end</p>"
    assert compare_pages("r", page, page).digits is False
    assert compare_pages("r", page.replace(b"1.25", b"1.2500000001"), page).digits
    assert compare_pages("r", page.replace(b"n = 3", b"n = 4"), page).words == ("r has another text",)
    assert compare_pages("r", page.replace(b".0123456", b".0023456"), page).words == ("r has another text",)
    assert compare_pages("r", page.replace(b"1.25", b"9.25"), page).words == ("1 of its figures are drawn otherwise",)
