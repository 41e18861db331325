"""CHECKS: what breaks a promise, the check that finds it, and what follows. Evidence is made by hand, without a disk.

A row is one change of evidence that is as promised. What somebody could do to the files of a study is in tests/lies;
what happens to runs while they are made, in tests/runner.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from evidence_factory import (
    Cell,
    chain,
    make_evidence,
    make_registration,
    one_claim,
    sealed_body,
    small_study,
    with_amendments,
    with_entry,
    with_run,
)

from ablate.judge.audit.audit import WITH_BODIES, admissible, audit, rows, why
from ablate.judge.audit.checks import BODIES, DECLARED, AuditContext
from ablate.judge.audit.checks import check_body as body_of
from ablate.judge.audit.history import Starts, starts_of
from ablate.judge.decide import decide
from ablate.judge.verdict import Check
from ablate.records.evidence import Evidence
from ablate.records.imports import CLOCKS_APART
from ablate.records.run_record import RunRecord
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.audit import checks_section
from docs.generator import PAGES
from prereg.registry.amendments import AMENDMENT_EFFECTS
from prereg.registry.ledger_entry import ComparedArm, ComparedContents, Entry, Event
from prereg.registry.registration import Registration

ROOT = Path(__file__).resolve().parents[2]
CELL = ("layernorm", 2)
Line = tuple[Event, dict[str, Any]]
Break = Callable[[Registration, Evidence], Evidence]

INTACT = "the ledger and the registration are intact"
FIRST = "registered before any run"
READ = "no amendment after outcomes were read"
STARTED = "no amendment after runs started"
LOOK = "no look before the last run ended"
LOGGED = "every sealed run is in the ledger"
ONCE = "no sealed run was trained again"
ONE_GO = "every run was made in one go"
LOST = "no start of a run was lost before its seal"
FORWARD = "the ledger's times run forward"
BEGUN = "no run began before its registration"
HERE = "every sealed run was started here"
ANNOUNCED = "a comparison of commits is the one that its entry announced"
STATES = "every run states what its pair shares"


def failed(registration: Registration, evidence: Evidence) -> dict[str, Check]:
    return {check.name: check for check in audit(AuditContext(registration, evidence)) if not check.passed}


def run_of(evidence: Evidence) -> RunRecord:
    return next(run for run in evidence.runs if run.cell == CELL)


def run(**changes: Any) -> Break:
    """The run of CELL with other fields in its record."""
    return lambda _, evidence: with_run(evidence, CELL, **changes)


def part(name: str, **changes: Any) -> Break:
    """The run of CELL with other fields in a part of its record."""
    return lambda _, e: with_run(e, CELL, **{name: getattr(run_of(e), name).model_copy(update=changes)})


def stated(**changes: str | None) -> Break:
    """The run of CELL with other hashes of what its pair shares; none takes one out."""

    def change(_: Registration, e: Evidence) -> Evidence:
        hashes = run_of(e).must_match or {}
        assert changes.keys() <= hashes.keys(), changes
        changed = {name: changes.get(name, sha256) for name, sha256 in hashes.items()}
        return with_run(e, CELL, must_match={name: sha256 for name, sha256 in changed.items() if sha256 is not None})

    return change


def entry(event: Event, at: int | None = None, **body: Any) -> Break:
    """One more entry of the ledger."""
    return lambda r, e: with_entry(r, e, event, body, at=at)


def amended(known: str, *changes: tuple[str, Any, Any]) -> Break:
    return lambda r, e: with_amendments(r, e, (known, list(changes)))[1]


def resealed(same: bool) -> Break:
    """An earlier seal of the run of CELL, of the same outcome or of another."""

    def change(registration: Registration, evidence: Evidence) -> Evidence:
        other = {} if same else {"outcome_sha256": "1" * 64, "metrics_sha256": "2" * 64}
        return with_entry(registration, evidence, "sealed", sealed_body(run_of(evidence)) | other, at=2)

    return change


def rows_of(keep: Callable[[Any], Any]) -> Break:
    """Only some of the recorded values."""
    return lambda _, e: replace(e, metrics=e.metrics[keep(e.metrics)])


def begun(cell: Cell, attempt: int, resumed_from: int | None = None, made_with: str = "m") -> Line:
    body: dict[str, Any] = {"variant": cell[0], "seed": cell[1], "attempt": attempt, "made_with": made_with}
    return "started", body if resumed_from is None else body | {"resumed_from": resumed_from}


def start(attempt: int, resumed_from: int | None = None, made_with: str = "m") -> Line:
    return begun(CELL, attempt, resumed_from, made_with)


FAILED: Line = ("failed", {"variant": CELL[0], "seed": CELL[1], "error": "x"})


def story(attempts: int, *lines: Line, imported: bool = False) -> Break:
    """These lines for the run of CELL before its seal, which counts so many attempts; or before its import."""

    def change(registration: Registration, evidence: Evidence) -> Evidence:
        events: list[Line] = []
        for one in evidence.ledger:
            event, body = one.event, one.stated
            if event == "sealed" and (body["variant"], body["seed"]) == CELL:
                events += lines
                body["attempts"] = attempts
                if imported:
                    event, body = "imported", body | {"bound": True, "note": "x"}
            elif event == "sealed":
                events.append(begun((str(body["variant"]), int(str(body["seed"]))), 1))
            events.append((event, body))
        return replace(with_run(evidence, CELL, attempts=attempts), ledger=chain(registration, events))

    return change


def dated(hours: dict[int, float]) -> Break:
    """Entries of the ledger some hours later or earlier. The chain is not what is looked at here."""

    def moved(one: Entry) -> Entry:
        at = datetime.fromisoformat(one.at) + timedelta(hours=hours.get(one.index, 0))
        return one.model_copy(update={"at": at.isoformat()})

    return lambda _, e: replace(e, ledger=tuple(map(moved, e.ledger)))


def unregistered(_: Registration, e: Evidence) -> Evidence:
    return replace(e, ledger=e.ledger[1:])


def announced_as_comparison(_: Registration, e: Evidence) -> Evidence:
    """The study's first entry says that it compares two commits."""
    arm = ComparedArm(files="1" * 64, config="2" * 64)
    compared = ComparedContents(gate="harmless", attempt=1, base=arm, head=arm, nonce="0" * 32)
    return replace(e, ledger=(e.ledger[0].model_copy(update={"compared": compared}), *e.ledger[1:]))


SMALLEST = ("hypotheses.gain_ln.smallest", 0.01, 0.02)
RULE = ("decision[0].verdict", "a", "b")

# fmt: off
CHECKS: list[tuple[str, str | None, Break, str]] = [
    # the check, what its failure means (None: it does not fail), what was done, words of what it found
    (INTACT, "inadmissible", lambda r, e: replace(e, ledger_faults=("entry 3 does not follow entry 2",)), "entry 3"),
    (INTACT, "inadmissible", entry("amended", 1, previous="9" * 64, evidence="none"), ""),
    ("the registered code and data are as they were registered", "inadmissible",
        lambda r, e: replace(e, altered=("train.py: its bytes differ from those of the registered code",)), "train.py"),
    (FIRST, "inadmissible", unregistered, ""),
    (ANNOUNCED, "inadmissible", announced_as_comparison, "the lock has other arms"),
    (READ, "inadmissible", amended("outcomes read", RULE), ""),
    (READ, "note", amended("outcomes read", ("title", "a", "b")), ""),  # it touches nothing
    (STARTED, "inadmissible", amended("runs started", RULE), ""),
    (STARTED, "deviation", amended("runs started", SMALLEST), ""),
    (LOOK, "inadmissible", entry("peeked", 5), ""),
    (LOOK, "inadmissible", entry("peeked", 16), ""),
    (LOOK, None, entry("peeked", 17), ""),
    ("every run was made at the same commit", "note", part("provenance", commit="another"), ""),
    ("every planned run is present", "inadmissible",
        lambda r, e: replace(e, runs=tuple(one for one in e.runs if one.cell != CELL)), "layernorm seed 2"),
    ("no run failed", "inadmissible", run(status="failed", error="out of memory"), ""),
    ("every seal matches", "inadmissible", lambda r, e: replace(e, broken=("metrics.parquet differs",)), "differs"),
    (LOGGED, "inadmissible", run(metrics_sha256="0" * 64), ""),
    (LOGGED, "inadmissible", run(outcome_sha256="0" * 64), ""),
    (LOGGED, "inadmissible", run(items_sha256="0" * 64), ""),
    (LOGGED, "inadmissible", run(status="diverged"), "layernorm seed 2 is not what the ledger sealed"),
    (LOGGED, "inadmissible",
        lambda r, e: replace(e, ledger=tuple(one for one in e.ledger if getattr(one, "seed", None) != 2)), ""),
    ("no run outside the plan", "inadmissible", lambda r, e: replace(e, extra=("layernorm/99",)), "layernorm/99"),
    ("no run outside the plan", "inadmissible",
        lambda r, e: replace(e, runs=(*e.runs, run_of(e).model_copy(update={"seed": 99}))), "layernorm seed 99"),
    ("every run was made under this registration", "inadmissible", run(registration="f" * 64), ""),
    ("every configuration is the registered one", "inadmissible",
        lambda r, e: with_run(e, CELL, config=r.study.training("none").model_dump(mode="json")), ""),
    ("every run consumed its tokens", "inadmissible", run(tokens=12), ""),
    # As many tokens in other steps: other updates.
    ("every run consumed its tokens", "inadmissible", run(steps=30), "in 30 steps, planned 1920 in 60"),
    (STATES, "inadmissible", run(must_match=None), ""),
    *((STATES, "inadmissible", stated(**{name: None}), "") for name in ("batches", "dropout", "corpus", "tokenizer")),
    ("pairs start from the same weights", "inadmissible", stated(**{"initial/tokens.weight": "0" * 64}), ""),
    ("pairs read the same batches", "inadmissible", stated(batches="0" * 64), ""),
    ("pairs drew the same dropout", "inadmissible", stated(dropout="0" * 64), ""),
    ("pairs used the same tokenizer", "inadmissible", stated(tokenizer="0" * 64), ""),
    ("every run read the registered corpus", "inadmissible", stated(corpus="0" * 64), ""),
    ("every run used the same code", "inadmissible", part("provenance", code="0" * 64), ""),
    ("every run used the same device class", "inadmissible", part("provenance", device="an accelerator"), ""),
    ("every run used the same library versions", "deviation", part("provenance", torch="2.5.0"), ""),
    ("every run used the same processor and platform", "note", part("provenance", processor="another"), ""),
    ("the tool's source tree was clean", "note", part("provenance", dirty=True), ""),
    ("every finished run has every claimed metric", "inadmissible",
        rows_of(lambda m: (m["seed"] != 2) | (m["metric"] != "val/loss")), ""),
    ("every finished run has its train/loss at every step", "inadmissible",
        rows_of(lambda m: m["metric"] != "train/loss"), ""),
    # Attempts and seals of one run.
    (ONE_GO, "note", run(attempts=2, resumed_from=(20,)), ""),
    (ONE_GO, "note", entry("failed", 3, variant=CELL[0], seed=CELL[1], error="killed"), ""),
    (ONCE, "inadmissible", resealed(same=False), "1 with another outcome: layernorm seed 2 (11111111, then "),
    (ONCE, "note", resealed(same=True), "layernorm seed 2 ("),
    (HERE, "inadmissible",
        lambda r, e: replace(e, ledger=tuple(one for one in e.ledger if one.event != "started")), "15: none"),
    (HERE, "inadmissible", entry("sealed", recipe_sha256="0" * 64, variant="none", seed=1), ""),
    # Starts are counted against seals, resumptions and failures.
    (LOST, None, story(1), ""),
    (LOST, None, story(1, start(1)), ""),
    (LOST, None, story(2, start(2)), ""),
    (LOST, None, story(3, start(1), start(2, 30), start(3, 60)), ""),
    (LOST, None, story(2, start(1), start(2)), ""),  # killed before its first checkpoint
    (LOST, None, story(3, start(1), start(3)), ""),  # a kill between record and entry
    (LOST, None, story(1, start(1), FAILED, start(1)), ""),  # a failed run whose folder was removed
    (LOST, None, story(2, start(1), FAILED, start(2)), ""),
    (LOST, "deviation", story(1, start(1), start(1)), "2 starts, 0 resumed, 0 failed on record, 1 removed"),
    # Deterministic, and made with the same: any number of them gives the same bits.
    (LOST, "deviation", story(1, *[start(1)] * 28), "28 starts, 0 resumed, 0 failed on record, 27 removed"),
    (LOST, "deviation", story(1, start(1, made_with="n"), start(1)), "1 counts, and 1 may"),
    (LOST, "inadmissible", story(1, start(1), start(2, 9), start(1, made_with="n"), start(1)),
        "4 starts, 1 resumed, 0 failed on record, 2 removed"),
    (LOST, "deviation", story(1, start(1), start(2), start(3)), "3 starts, 0 resumed, 0 failed on record, 3 removed"),
    (LOST, "deviation", story(1, start(1), start(2, made_with="n"), imported=True),
        "2 starts, 0 resumed, 0 failed on record, 2 replaced by an import"),
    # Times.
    (FORWARD, None, dated({5: -9 / 60}), ""),  # clocks that differ
    (FORWARD, None, dated({0: -30}), ""),
    (FORWARD, "deviation", dated({5: -3}), "1: entry 5 (sealed) at "),
    (BEGUN, None, run(started_at="2026-05-04T13:15:00+00:00"), ""),
    (BEGUN, "inadmissible", run(started_at="2026-05-04T12:00:00+00:00"),
        "layernorm seed 2 started at 2026-05-04T12:00:00+00:00"),
    (BEGUN, None, lambda r, e: entry("imported", **sealed_body(run_of(e)), bound=True, note="x")(
        r, run(started_at="2026-05-04T12:00:00+00:00")(r, e)), ""),
]
# fmt: on


@pytest.fixture(scope="module")
def promised() -> tuple[Registration, Evidence]:
    """Evidence as it should be."""
    return make_evidence(small_study())


def require_declared(check: Check) -> None:
    row = DECLARED[check.name]
    assert check.severity in row.consequence, (check.name, check.severity, row.consequence)


def test_evidence_as_promised_passes_every_check(promised: tuple[Registration, Evidence]) -> None:
    checks = audit(AuditContext(*promised))
    assert all(check.passed for check in checks) and admissible(checks)
    assert len({check.name for check in checks}) == len(checks)
    assert all(check.found for check in checks)
    found = {check.name: check.found for check in checks}
    # Two further variants a seed, six shared names each, and one norm weight that layernorm and rmsnorm share.
    assert found["pairs start from the same weights"] == "65 shared parameters compared, 0 differ"
    assert found["pairs read the same batches"] == "10 pairs of runs compared, 0 differ"


@pytest.mark.parametrize(("name", "severity", "change", "words"), CHECKS)
def test_a_broken_promise_is_found_by_its_check(
    name: str, severity: str | None, change: Break, words: str, promised: tuple[Registration, Evidence]
) -> None:
    registration, evidence = promised
    checks = audit(AuditContext(registration, change(registration, evidence)))
    for check in checks:
        require_declared(check)
    found = {check.name: check for check in checks if not check.passed}
    if severity is None:
        assert name not in found
        return
    assert found[name].severity == severity and words in found[name].found, found[name]
    assert admissible(found.values()) == (severity != "inadmissible")


def test_both_outcomes_of_a_run_sealed_twice_are_named(promised: tuple[Registration, Evidence]) -> None:
    registration, evidence = promised
    outcome = str(run_of(evidence).outcome_sha256)[:8]
    check = failed(registration, resealed(same=True)(registration, evidence))[ONCE]
    assert f"({outcome}, then {outcome})" in check.found and "reproduced" not in check.found
    check = failed(registration, resealed(same=False)(registration, evidence))[ONCE]
    assert check.severity == "inadmissible" and f"(11111111, then {outcome})" in check.found


def test_a_promise_of_the_study_changes_what_a_failed_check_means() -> None:
    loose = small_study(base={"numerics": {"deterministic": False}, "budget": {"steps": 60}})
    registration, evidence = make_evidence(loose)
    assert failed(registration, run(attempts=2, resumed_from=(20,))(registration, evidence))[ONE_GO].severity == (
        "deviation"
    )
    registration, evidence = make_evidence(small_study(analysis={"most_lost_starts": 0}))
    found = failed(registration, story(2, start(1), start(2))(registration, evidence))
    assert found[LOST].severity == "inadmissible"
    sequential, evidence = make_evidence(small_study(stopping={"looks": [3, 5]}))
    assert LOOK in failed(sequential, with_entry(sequential, evidence, "peeked", {}, at=17)), "looks cost alpha"


def test_a_diverged_run_is_present_and_is_not_held_to_the_same_batches() -> None:
    registration, evidence = make_evidence(small_study(), diverged=(("none", 3),))
    assert set(failed(registration, evidence)) == {"no pair was left out for divergence"}


def test_variants_that_legitimately_differ_are_noted_and_a_mismatch_among_equals_is_still_a_fault() -> None:
    study = small_study(variants={"none": {}, "layernorm": {"model.width": 32}, "rmsnorm": {"budget.batch": 8}})
    found = failed(*make_evidence(study))
    assert {check.severity for check in found.values()} == {"note"}
    assert "model.width" in found["pairs start from the same weights, for all variants"].found
    assert "budget.batch" in found["pairs read the same batches, for all variants"].found
    norm = {"model.embedding_norm": "layernorm"}
    registration, evidence = make_evidence(
        small_study(variants={"none": {}, "layernorm": norm, "rmsnorm": {"budget.batch": 8}})
    )
    other = stated(batches="0" * 64)(registration, evidence)
    assert "pairs read the same batches" in failed(registration, other)


def test_entries_of_another_registration_bind_nothing_and_a_look_under_an_earlier_one_counts(
    promised: tuple[Registration, Evidence],
) -> None:
    registration, evidence = promised
    other = make_registration(small_study(title="Another"))
    events = [(one.event, one.stated) for one in evidence.ledger]
    assert {FIRST, LOGGED} <= set(failed(registration, replace(evidence, ledger=chain(other, events))))
    looked = replace(evidence, ledger=(*chain(other, [("peeked", {})]), *evidence.ledger))
    assert LOOK in failed(registration, looked)
    late = [*events[1:4], events[0], *events[4:]]
    assert set(failed(registration, replace(evidence, ledger=chain(registration, late)))) == {FIRST}


def test_the_training_curve_is_asked_for_only_where_the_rule_reads_stability() -> None:
    study = small_study(decision=[{"verdict": "yes", "when": "supported(gain_ln)"}, {"verdict": "inconclusive"}])
    registration, evidence = make_evidence(study)
    assert failed(registration, rows_of(lambda m: m["metric"] != "train/loss")(registration, evidence)) == {}


# --- Starts. ---------------------------------------------------------------------------------------------------------


def test_random_honest_starts_are_never_removed_ones_and_removed_ones_always_are(
    promised: tuple[Registration, Evidence],
) -> None:
    rng = Random(12)  # noqa: S311
    registration, evidence = promised
    seal = sealed_body(run_of(evidence))
    for _ in range(200):
        attempt, lines = 0, []
        for _ in range(rng.randrange(6)):
            happens = rng.choice(["kill", "resume", "fail", "early kill"])
            attempt += 1
            if happens != "early kill":  # one before the ledger took the start
                lines.append(start(attempt, 10 * attempt if happens == "resume" and attempt > 1 else None))
            if happens == "fail":
                lines.append(FAILED)
        lines += [start(attempt + 1), ("sealed", seal | {"attempts": attempt + 1})]
        assert starts_of(registration, chain(registration, lines))[CELL].removed == 0
        removed = rng.randrange(1, 5)
        shopped = [*[start(1)] * (removed + 1), ("sealed", seal)]
        assert starts_of(registration, chain(registration, shopped))[CELL] == Starts(
            made=removed + 1, removed=removed, lost=removed, with_values=removed, made_with={"m"}
        )


def again(attempt: int, left: bool | None = None, resumed_from: int | None = None) -> Line:
    """A start that says whether the attempt before it had left a claimed value."""
    event, body = start(attempt, resumed_from)
    return event, body if left is None else body | {"left_values": left}


QUIET: Line = ("failed", FAILED[1] | {"left_values": False})


@pytest.mark.parametrize(
    ("lines", "attempts", "with_values"),
    [
        ((again(1),), 1, 0),
        ((again(1), again(2, left=True)), 2, 1),
        ((again(1), again(2, left=False)), 2, 0),
        ((again(1), again(2)), 2, 1),  # no word of it says nothing
        ((again(1), again(3, left=False)), 3, 1),  # the second cleared away what the first left
        ((again(1), FAILED, again(2, left=False)), 2, 1),
        ((again(1), QUIET, again(2, left=False)), 2, 0),
        ((again(1), QUIET, again(1)), 1, 0),
        ((again(1), again(1)), 1, 1),
        ((again(1), FAILED, again(2, resumed_from=4)), 2, 0),
    ],
)
def test_lost_starts_count_unless_the_ledger_says_that_they_had_no_claimed_value(
    lines: tuple[Line, ...], attempts: int, with_values: int, promised: tuple[Registration, Evidence]
) -> None:
    registration, evidence = promised
    seal = sealed_body(run_of(evidence)) | {"attempts": attempts}
    assert starts_of(registration, chain(registration, [*lines, ("sealed", seal)]))[CELL].with_values == with_values


def test_earlier_decisions_are_in_the_report_and_the_first_has_none(promised: tuple[Registration, Evidence]) -> None:
    registration, evidence = promised
    decision = decide(registration, evidence)
    first = with_entry(registration, evidence, "decided", {"status": "decided", "verdict": "keep none"})
    second = with_entry(registration, first, "decided", {"status": "decided", "verdict": "adopt rmsnorm"})

    def text(found: Evidence, head: str) -> str:
        return repr(checks_section(ReportContext(decision, registration, found, head, "2026-05-04T14:00:00+00:00")))

    assert "Earlier decisions" not in text(first, first.ledger[-1].sha256)
    for found in (first, second):  # as it is decided, and as it is reported again
        said = text(found, second.ledger[-1].sha256)
        assert f"Earlier decisions of this registration: entry {first.ledger[-1].index} (2026-05-04" in said
        assert "keep none)" in said and "adopt rmsnorm)" not in said


# --- The table of checks in the product. -----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_checks_of_findings_and_looks_are_declared_too() -> None:
    study = one_claim(decision=[{"verdict": "yes", "when": "supported(h)"}, {"verdict": "inconclusive"}])
    variants = {"none": {}, "layernorm": {"model.width": 32}, "rmsnorm": {"optim.lr": 0.1}}
    for made in (
        make_evidence(study, diverged=(("layernorm", 1),)),
        make_evidence(small_study(seeds=[1, 2, 3, 4], stopping={"looks": [2, 4]})),
        make_evidence(small_study(variants=variants)),
        with_amendments(*make_evidence(small_study()), ("runs started", [("seeds", [1], [1, 2, 3, 4, 5])])),
    ):
        found = decide(*made)
        assert found.checks
        for check in found.checks:
            require_declared(check)


def test_every_check_is_a_row_with_a_reason_and_has_a_body() -> None:
    assert {body.__module__ for body in BODIES.values()} == {module.__name__ for module in WITH_BODIES}
    assert list(BODIES) != [] and set(BODIES) == set(DECLARED)
    assert all(one.looks_at and one.why and one.consequence for one in DECLARED.values())
    minutes = f"{CLOCKS_APART.total_seconds() / 60:g} minutes"
    assert sum(minutes in one.required for one in DECLARED.values()) == 2, "the limit that the code has"
    with pytest.raises(KeyError):
        body_of("of no row")
    made = {path.stem for path in (ROOT / "ablate").rglob("*.py") if re.search(r"\bCheck\(", path.read_text("utf-8"))}
    assert made == {"checks", "verdict"}, "a check is made by ablate.judge.audit.checks, from its declaration"
    assert why(Check(name="of another version", passed=False, severity="deviation", found="x")) == ""
    assert PAGES["checks.md"]().count("\n| ") == len(rows()) + len(AMENDMENT_EFFECTS) + 4


@pytest.mark.parametrize(
    ("limit", "measured", "words"),
    [
        ({"max_wall_s": 60.0}, {"wall_s": 61.0}, "layernorm seed 2: "),
        ({"max_wall_s": 60.0}, {"wall_s": 60.0}, ""),
        ({}, {"wall_s": 1e6, "peak_memory_bytes": None}, ""),
    ],
)
def test_a_run_beyond_a_limit_is_a_deviation(
    limit: dict[str, float], measured: dict[str, float | None], words: str
) -> None:
    base = {"budget": {"steps": 60, "batch": 4} | limit, "model": {"layers": 2, "width": 16, "heads": 2, "context": 8}}
    registration, evidence = make_evidence(small_study(base=base))
    for cell in evidence.planned:
        evidence = with_run(evidence, cell, wall_s=1.0, peak_memory_bytes=1)
    found = failed(registration, with_run(evidence, CELL, **measured)).get("every run kept to its promised limits")
    assert (found is None) == (not words)
    if found is not None:
        assert words in found.found and found.severity == "deviation"
