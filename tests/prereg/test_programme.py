"""The count of every test ever registered: how each ended, what cannot be known, and which p values enter."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prereg_samples import EMBNORM, changed
from programme_samples import NAMES, NOW, P, amends, decides, registers

from ablate.judge.programme import ENDINGS, Programme, count_programme
from ablate.judge.stats.multiplicity import benjamini_hochberg
from prereg.registry.paths import Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "studies").mkdir()
    return Root(tmp_path)


def count(root: Root, **given: object) -> Programme:
    settings = {"level": 0.05, "now": NOW, "abandoned_after_days": 90} | given
    return count_programme(root, **settings)  # type: ignore[arg-type]


def endings(found: Programme) -> list[str]:
    return [one.ending for one in found.confirmatory]


def test_an_empty_repository_has_no_tests(root: Root) -> None:
    found = count(root)
    assert (found.confirmatory, found.steps, found.n_registrations, found.head) == ((), (), 0, "0" * 64)


def test_a_decided_study_is_told_from_the_verdict_file_that_the_ledger_hashed(root: Root) -> None:
    registers(root, "a")
    decides(root, "a", P)
    found = count(root)
    assert endings(found) == ["supported", "inconclusive", "supported", "inconclusive"]
    first = found.confirmatory[0]
    assert (first.p, first.p_adjusted, first.n, first.method, first.family) == (0.0001, 0.0002, 5, "paired_t", 2)
    assert [one.role for one in found.confirmatory] == ["primary", "primary", "guardrail", "guardrail"]
    assert sum(found.count(ending) for ending in ENDINGS) == len(found.confirmatory) == 4


def test_the_uncorrected_p_of_support_enters_and_an_unknown_one_takes_its_place_as_one(root: Root) -> None:
    registers(root, "a")
    decides(root, "a", P)
    found = count(root, level=0.1)
    assert [step.p for step in found.steps] == [0.0001, 0.2, 0.004, None]
    p = (0.0001, 0.2, 0.004, 1.0)
    assert [step.bh_adjusted for step in found.steps] == pytest.approx(list(benjamini_hochberg(p)))
    assert [step.bh_found for step in found.steps] == [True, False, True, False]


def test_steps_stand_in_the_order_of_decisions_not_of_registrations(root: Root) -> None:
    registers(root, "a", on=1)
    registers(root, "b", on=2)
    decides(root, "b", P, on=3)
    decides(root, "a", P, on=4)
    found = count(root)
    assert [step.study for step in found.steps] == ["b"] * 4 + ["a"] * 4
    assert [step.hypothesis for step in found.steps] == [*NAMES, *NAMES]
    assert [one.study for one in found.confirmatory] == ["a"] * 4 + ["b"] * 4
    assert (found.n_registrations, found.n_studies) == (2, 2)


def test_a_verdict_file_that_is_gone_or_changed_is_said_and_never_believed(root: Root) -> None:
    registers(root, "a")
    verdict = decides(root, "a", P)
    path = root.report("a") / "verdict.json"
    path.write_bytes(verdict.replace(b"0.0001", b"0.9000"))
    found = count(root)
    assert endings(found) == ["decided, its verdict file has changed"] * 4
    assert [(step.p, step.bh_found) for step in found.steps] == [(None, False)] * 4
    for spoilt in (b"", b"[", b"[1]", b"\xff"):
        path.write_bytes(spoilt)
        assert endings(count(root)) == ["decided, its verdict file has changed"] * 4
    path.unlink()
    assert endings(count(root)) == ["decided, its verdict file is not here"] * 4


def test_an_inadmissible_decision_is_a_test_that_found_nothing(root: Root) -> None:
    registers(root, "a")
    decides(root, "a", P, status="inadmissible")
    found = count(root)
    assert endings(found) == ["inadmissible"] * 4
    assert [step.p for step in found.steps] == [None] * 4
    assert found.confirmatory[0].p is None


def test_what_was_never_decided_is_counted_and_is_no_step(root: Root) -> None:
    registers(root, "a", on=1)
    assert endings(count(root)) == ["never decided"] * 4
    assert endings(count(root, abandoned_after_days=59)) == ["abandoned"] * 4
    assert endings(count(root, abandoned_after_days=60)) == ["never decided"] * 4
    assert count(root).steps == ()


def test_a_replaced_registration_is_counted_beside_the_one_that_replaced_it(root: Root) -> None:
    registers(root, "a")
    amends(root, "a", changed(EMBNORM, "smallest: 0.02", "smallest: 0.03"))
    decides(root, "a", P)
    found = count(root)
    assert endings(found) == ["amended away"] * 4 + ["supported", "inconclusive", "supported", "inconclusive"]
    assert [one.carried_over for one in found.confirmatory[:4]] == [False, True, True, True]
    assert all(one.proven for one in found.confirmatory)
    assert len(found.steps) == 4
    assert (found.n_registrations, found.n_studies) == (2, 1)


def test_a_promise_taken_back_and_made_again_is_one(root: Root) -> None:
    registers(root, "a")
    amends(root, "a", changed(EMBNORM, "smallest: 0.02", "smallest: 0.03"))
    amends(root, "a", EMBNORM, on=3)
    found = count(root)
    assert (found.n_registrations, len(found.confirmatory)) == (2, 8)
    assert endings(found) == ["amended away"] * 4 + ["never decided"] * 4


def test_a_registration_amended_after_its_decision_keeps_its_ending_until_its_file_is_replaced(root: Root) -> None:
    registers(root, "a")
    decides(root, "a", P, on=2)
    amends(root, "a", changed(EMBNORM, "smallest: 0.02", "smallest: 0.03"), on=3)
    assert endings(count(root))[0] == "supported"
    decides(root, "a", P, on=4, evidence="f")
    found = count(root)
    assert endings(found)[:4] == ["decided, a later decision replaced its file"] * 4
    assert [step.p for step in found.steps] == [None] * 4 + list(P.values())


def test_two_decisions_on_different_evidence_are_two_steps_and_on_the_same_evidence_one(root: Root) -> None:
    registers(root, "a")
    decides(root, "a", P, on=3, evidence="e")
    decides(root, "a", P, on=4, evidence="e")
    found = count(root)
    assert [one.times_decided for one in found.confirmatory] == [1] * 4
    assert len(found.steps) == 4
    decides(root, "a", P, on=5, evidence="f")
    found = count(root)
    assert [one.times_decided for one in found.confirmatory] == [2] * 4
    assert endings(found)[0] == "supported"
    assert [step.p for step in found.steps] == [None] * 4 + list(P.values())


def test_exploratory_hypotheses_stand_apart_and_enter_no_rate(root: Root) -> None:
    text = changed(
        EMBNORM,
        "hypotheses:\n",
        "hypotheses:\n  look: {claim: rmsnorm raises val/loss, smallest: 1, role: exploratory}\n",
    )
    registers(root, "a", text)
    decides(root, "a", {"look": 1e-9, **P})
    found = count(root)
    assert [one.hypothesis for one in found.exploratory] == ["look"]
    assert [one.hypothesis for one in found.confirmatory] == list(NAMES)
    assert len(found.steps) == 4


def test_a_registration_whose_lock_is_gone_is_counted_without_its_hypotheses(root: Root) -> None:
    registers(root, "a")
    registers(root, "b")
    decides(root, "b", P)
    root.lock("b").unlink()
    found = count(root)
    assert [one.study for one in found.confirmatory] == ["a"] * 4
    assert [(one.study, one.why) for one in found.untold] == [("b", "b.lock.json is not here; decisions: 1")]
    assert found.n_registrations == 2


def test_a_damaged_ledger_is_counted_as_far_as_it_is_sound(root: Root) -> None:
    registers(root, "a")
    registers(root, "b")
    decides(root, "a", P)
    lines = root.ledger.read_bytes().splitlines(keepends=True)
    root.ledger.write_bytes(lines[0] + lines[1] + lines[2].replace(b'"status":"decided"', b'"status":"d"'))
    found = count(root)
    assert "line 3" in found.faults[0]
    assert endings(found) == ["never decided"] * 8
    root.ledger.write_bytes(lines[0].replace(b"studies", b"studios") + lines[1] + lines[2])
    assert (count(root).confirmatory, count(root).n_registrations) == ((), 0)


def test_benjamini_hochberg_gives_the_example_of_its_paper() -> None:
    # Benjamini and Hochberg 1995, section 3.2: fifteen p values, the first four found at .05.
    p = (0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240)
    p += (0.4262, 0.5719, 0.6528, 0.7590, 1.0000)
    adjusted = benjamini_hochberg(p)
    assert [value <= 0.05 for value in adjusted] == [True] * 4 + [False] * 11
    assert adjusted[3] == pytest.approx(0.0095 * 15 / 4)
    assert benjamini_hochberg(()) == ()


@given(st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=30), st.randoms())
def test_benjamini_hochberg_keeps_the_order_it_was_given(p: list[float], random: object) -> None:
    order = list(range(len(p)))
    random.shuffle(order)  # type: ignore[attr-defined]
    adjusted = benjamini_hochberg(p)
    shuffled = benjamini_hochberg([p[at] for at in order])
    assert shuffled == pytest.approx([adjusted[at] for at in order], rel=1e-12)
    assert all(value >= raw * (1 - 1e-12) for value, raw in zip(adjusted, p, strict=True))
