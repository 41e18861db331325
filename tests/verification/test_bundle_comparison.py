"""Claims about comparing two verdicts, and two pages: facts must agree, last digits may differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ablate.verification.comparison import compare_pages, compare_verdicts

VERDICT: dict[str, Any] = {
    "verdict": "adopt",
    "findings": [{"hypothesis": "gain", "outcome": "supported", "p": 0.0123456789, "n": 3}],
    "checks": [{"name": "every seal matches", "passed": True}],
}


def written(**changes: Any) -> bytes:
    return json.dumps(VERDICT | changes, indent=2).encode()


def finding(**changes: Any) -> list[dict[str, Any]]:
    return [VERDICT["findings"][0] | changes]


def test_the_same_bytes_need_nothing_said() -> None:
    found = compare_verdicts(written(), written())
    assert (found.facts, found.digits) == ((), False)


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
        ({"findings": finding(more=1)}, "findings.gain.more"),
        ({"findings": [*finding(), *finding(hypothesis="more")]}, "findings.more"),
        ({"findings": []}, "findings.gain"),
        ({"checks": [VERDICT["checks"][0] | {"passed": 1}]}, "checks.every seal matches.passed"),
    ],
)
def test_another_fact_is_named_with_both_values(changes: dict[str, Any], place: str) -> None:
    found = compare_verdicts(written(**changes), written())
    assert len(found.facts) == 1 and found.facts[0].startswith(f"{place} is ")


def test_digits_beyond_the_ninth_are_digits() -> None:
    found = compare_verdicts(written(findings=finding(p=0.0123456789 * (1 + 1e-13))), written())
    assert (found.facts, found.digits) == ((), True)


def test_the_same_facts_written_down_otherwise_are_seen() -> None:
    assert compare_verdicts(json.dumps(VERDICT).encode(), written()).facts == ("the way verdict.json is written down",)
    assert compare_verdicts(b"{", written()).facts == ("verdict.json is not JSON",)


def test_pages_may_differ_in_last_digits_and_not_in_text() -> None:
    page = b"<p>p = .0123456, n = 3</p><svg a><path d='1.25,2'/></svg><p>end</p>"
    assert compare_pages("r", page, page).digits is False
    assert compare_pages("r", page.replace(b"1.25", b"1.2500000001"), page).digits
    assert compare_pages("r", page.replace(b"n = 3", b"n = 4"), page).parts == ("r has another text",)
    for other in (b".0023456", b".123456"):
        assert compare_pages("r", page.replace(b".0123456", other), page).parts == ("r has another text",)
    assert compare_pages("r", page.replace(b"1.25", b"9.25"), page).parts == ("1 of its figures are drawn otherwise",)
