"""Order of runs in the audit: of a claim on a time, starts out of order and runs side by side are found; of a loss not.

What somebody would write who wants another order: times in run.json, starts in the ledger, a run that was made again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from evidence_factory import Cell, chain, make_evidence, one_claim, sealed_body, small_study, with_run

from ablate.judge.decide import decide
from ablate.judge.design.warnings import design_warnings
from ablate.judge.verdict import Check
from ablate.records.evidence import Evidence
from prereg.registry.ledger_entry import Event
from prereg.registry.registration import Registration
from prereg.study.spec import Study
from prereg.study.timed import is_time, sounds_timed, timed_promises

IN_ORDER = "timed runs were made in the registered order"
ALONE = "timed runs were made one at a time"
FASTER: dict[str, Any] = {"variants": {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}}}
Change = Callable[[Registration, Evidence], Evidence]
Line = tuple[Event, dict[str, Any]]


def speed_study(seeds: int = 4, **changes: Any) -> Study:
    return one_claim("layernorm raises speed/tokens_per_s", 100.0, seeds=seeds, **FASTER | changes)


def checks_of(registration: Registration, evidence: Evidence) -> dict[str, Check]:
    decided = decide(registration, evidence)
    return {check.name: check for check in decided.checks if check.name in (IN_ORDER, ALONE)}


def moved(evidence: Evidence, cell: Cell, minutes: float) -> Evidence:
    """The times of a run in its record, so many minutes later."""
    run = next(run for run in evidence.runs if run.cell == cell)
    times = {name: datetime.fromisoformat(str(getattr(run, name))) for name in ("started_at", "ended_at")}
    later = {name: (at + timedelta(minutes=minutes)).isoformat() for name, at in times.items()}
    return with_run(evidence, cell, **later)


def swapped_in_records(_: Registration, evidence: Evidence) -> Evidence:
    """Two records of one seed that have each other's times: somebody made them in the other order."""
    return moved(moved(evidence, ("none", 1), 2), ("layernorm", 1), -2)


def begun_early(_: Registration, evidence: Evidence) -> Evidence:
    """A run that began a minute before the one before it had ended."""
    run = next(run for run in evidence.runs if run.cell == ("layernorm", 1))
    early = datetime.fromisoformat(run.started_at) - timedelta(minutes=1)
    return with_run(evidence, run.cell, started_at=early.isoformat())


def begun_long_before(_: Registration, evidence: Evidence) -> Evidence:
    run = next(run for run in evidence.runs if run.cell == ("layernorm", 4))
    return with_run(evidence, run.cell, started_at="2026-05-04T13:30:30+00:00")


def in_ledger(order: Callable[[list[Cell]], list[tuple[str, Cell]]]) -> Change:
    """Starts and seals as `order` has them, of the runs in their registered order."""

    def change(registration: Registration, evidence: Evidence) -> Evidence:
        run_by_cell = {run.cell: run for run in evidence.runs}
        events: list[Line] = [
            ("registered", {"lock_sha256": registration.lock_sha256}),
            ("started", {"runs": len(run_by_cell), "code": "c"}),
        ]
        for what, cell in order(list(registration.cells)):
            start = {"variant": cell[0], "seed": cell[1], "attempt": 1, "recipe_sha256": "r", "made_with": "m"}
            events.append(("started", start) if what == "start" else ("sealed", sealed_body(run_by_cell[cell])))
        return replace(evidence, ledger=chain(registration, [*events, ("finished", {})]))

    return change


def one_by_one(cells: list[Cell]) -> list[tuple[str, Cell]]:
    return [(what, cell) for cell in cells for what in ("start", "seal")]


def first_two_swapped(cells: list[Cell]) -> list[tuple[str, Cell]]:
    return one_by_one([cells[1], cells[0], *cells[2:]])


def last_seed_first(cells: list[Cell]) -> list[tuple[str, Cell]]:
    return one_by_one([*cells[-2:], *cells[:-2]])


def two_at_once(cells: list[Cell]) -> list[tuple[str, Cell]]:
    pairs = zip(cells[::2], cells[1::2], strict=True)
    return [step for a, b in pairs for step in (("start", a), ("start", b), ("seal", a), ("seal", b))]


def first_made_again_last(cells: list[Cell]) -> list[tuple[str, Cell]]:
    """A sealed run whose folder was removed: its outcome holds no timing, so the seals agree and its time is new."""
    return [*one_by_one(cells), *one_by_one(cells[:1])]


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        (swapped_in_records, IN_ORDER, "layernorm seed 1 began before none seed 1"),
        (begun_early, ALONE, "none seed 1 and layernorm seed 1"),
        (begun_long_before, IN_ORDER, "layernorm seed 4 began before "),
        (begun_long_before, ALONE, "side by side"),
        (in_ledger(first_two_swapped), IN_ORDER, "layernorm seed 1 began before none seed 1"),
        (in_ledger(last_seed_first), IN_ORDER, "began before"),
        (in_ledger(two_at_once), ALONE, "4 pairs side by side"),
        (in_ledger(first_made_again_last), IN_ORDER, "layernorm seed 1 began before none seed 1"),
    ],
)
def test_another_order_of_a_claim_on_a_time_gives_no_verdict(change: Change, check: str, words: str) -> None:
    registration, evidence = make_evidence(speed_study())
    found = checks_of(registration, change(registration, evidence))[check]
    assert (found.passed, found.severity) == (False, "inadmissible")
    assert words in found.found


@pytest.mark.parametrize("change", [lambda _, evidence: evidence, in_ledger(one_by_one)])
def test_runs_in_their_order_one_at_a_time_pass(change: Change) -> None:
    registration, evidence = make_evidence(speed_study())
    found = checks_of(registration, change(registration, evidence))
    assert {name: check.passed for name, check in found.items()} == {IN_ORDER: True, ALONE: True}


@pytest.mark.parametrize(
    "change", [swapped_in_records, begun_early, in_ledger(last_seed_first), in_ledger(two_at_once)]
)
def test_a_claim_on_a_loss_may_have_any_order(change: Change) -> None:
    registration, evidence = make_evidence(one_claim(seeds=4, **FASTER))
    assert not checks_of(registration, change(registration, evidence))


def test_an_exploratory_claim_on_a_time_asks_for_nothing() -> None:
    hypotheses = {
        "h": {"claim": "layernorm lowers val/loss", "smallest": 0.02},
        "quick": {"claim": "layernorm raises speed/tokens_per_s", "smallest": 1.0, "role": "exploratory"},
    }
    assert not timed_promises(one_claim(hypotheses=hypotheses, **FASTER))


def test_of_a_registration_without_an_order_it_is_a_deviation() -> None:
    registration, evidence = make_evidence(speed_study())
    found = checks_of(registration.model_copy(update={"run_order": None}), begun_early(registration, evidence))
    assert {name: (check.passed, check.severity) for name, check in found.items()} == {
        IN_ORDER: (False, "deviation"),
        ALONE: (False, "deviation"),
    }
    assert "no order was registered" in found[IN_ORDER].found


def test_the_order_of_imported_runs_is_not_known_which_is_a_deviation() -> None:
    registration, evidence = make_evidence(speed_study())
    imported = [
        (entry.event, entry.stated)
        if entry.event != "sealed" or entry.stated["variant"] == "none"
        else ("imported", entry.stated | {"bound": True, "note": "a cluster"})
        for entry in evidence.ledger
    ]
    # Their times are those of one moment: nobody says more of them.
    at_once = evidence
    for seed in (1, 2, 3, 4):
        at_once = with_run(at_once, ("layernorm", seed), started_at="2026-05-04T13:30:00+00:00")
    found = checks_of(registration, replace(at_once, ledger=chain(registration, imported)))  # type: ignore[arg-type]
    assert (found[IN_ORDER].passed, found[IN_ORDER].severity) == (False, "deviation")
    assert "the order of 4 runs that were made elsewhere is not known: layernorm seed 1" in found[IN_ORDER].found
    assert found[ALONE].passed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": 5}, "5 seeds are an odd number"),
        ({"seeds": 6}, ""),
        ({"seeds": 6, "stopping": {"looks": [3, 6]}}, "3 seeds are an odd number"),
        ({"seeds": 6, "stopping": {"looks": [4, 6]}}, ""),
    ],
)
def test_an_odd_number_of_seeds_is_warned_of(changes: dict[str, Any], said: str) -> None:
    found = [warning.found for warning in design_warnings(speed_study(**changes)) if warning.kind == "order"]
    assert [said in text for text in found] == [True] * bool(said)
    loss = one_claim(**{"seeds": 5} | FASTER)
    assert not [warning for warning in design_warnings(loss) if warning.kind == "order"]


def test_what_is_timed() -> None:
    def own(metric: str, *, base: dict[str, Any] | None = None, command: str = "train.py", **unit: str) -> Study:
        declared = {"metrics": {"declare": {metric: unit}}} if unit else {}
        return study_from(
            {
                "hypotheses": {"h": {"claim": f"b lowers {metric}", "smallest": 0.1}},
                "command": ["{python}", *command.split()],
                "base": {"lr": 0.1} | (base or {}),
                **declared,
            }
        )

    timed = {
        metric for metric in ("train_seconds", "wall_time", "tokens_per_s", "latency") if timed_promises(own(metric))
    }
    assert timed == {"train_seconds", "wall_time", "tokens_per_s", "latency"}
    assert not timed_promises(own("dev/loss")) and not timed_promises(own("error"))
    assert timed_promises(own("cost", unit="ms")) and timed_promises(own("cost", unit="tokens/s"))
    # A unit that is declared is believed, but for the metrics that this tool defines.
    assert not timed_promises(own("time_to_level", unit="steps"))
    assert timed_promises(own("speed/tokens_per_s", unit="points"))
    assert timed_promises(own("time", unit=""))
    for setting in ("max_seconds", "time_limit", "budget_s", "train.max_minutes"):
        head, _, rest = setting.partition(".")
        assert timed_promises(own("loss", base={head: {rest: 60} if rest else 60})), setting
    assert timed_promises(own("loss", command="train.py --time-limit 60")) == ("--time-limit is a budget in time",)
    for setting in ("max_steps", "limit", "max_lr", "warmup_time", "timeout_s"):
        assert not timed_promises(own("loss", base={setting: 60})), setting
    budget = small_study(base={"budget": {"steps": 60, "batch": 4, "max_wall_s": 60.0}})
    assert "budget.max_wall_s is a budget in time" in timed_promises(budget)
    assert is_time("GPU-hours") and not is_time("bits/byte") and not sounds_timed("loss_min")


def study_from(changes: dict[str, Any]) -> Study:
    from own_trainer import own_document

    from prereg.study.spec import study_from_document

    document = own_document(variants={"a": {}, "b": {"lr": 0.4}}, baseline="a", decision=DECISION)
    return study_from_document(document | changes)


DECISION = [{"verdict": "yes", "when": "supported(h)"}, {"verdict": "inconclusive"}]
