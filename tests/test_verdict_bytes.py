"""A verdict that was given keeps its bytes: what is new in the judge is written only where it has something to say."""

from __future__ import annotations

from pathlib import Path

from evidence_factory import make_evidence, small_study

from ablate.judge.decide import decide
from ablate.judge.verdict import Decision

COMMITTED = Path(__file__).resolve().parents[1] / "reports" / "embnorm" / "verdict.json"


def test_the_committed_verdict_is_written_again_to_the_last_byte() -> None:
    data = COMMITTED.read_bytes()
    assert Decision.model_validate_json(data).model_dump_json(indent=2).encode() + b"\n" == data


def test_clean_evidence_gets_the_checks_that_it_always_got() -> None:
    # A check more, another name or another weight would change the bytes of every verdict that was given before.
    old = Decision.model_validate_json(COMMITTED.read_bytes()).checks
    registration, evidence = make_evidence(small_study(), effects={"val/loss": {"layernorm": -0.06}}, sd=0.002)
    new = decide(registration, evidence).checks
    assert [(check.name, check.severity, check.passed) for check in new] == [
        (check.name, check.severity, check.passed) for check in old
    ]
    numbered = {"every run was made under this registration", "every run read the registered corpus"}
    assert [check.required for check in new if check.name not in numbered] == [
        check.required for check in old if check.name not in numbered
    ]
