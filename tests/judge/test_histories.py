"""Random histories of a study: honest ones are judged as they are, and every way of changing or choosing is found."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from histories import (
    AS_ALWAYS,
    FROM_THE_START,
    Attack,
    History,
    add_a_seed,
    alter_script_before_deciding,
    backdate,
    begin_before_the_registration,
    change_script,
    claim_after_looking,
    copy_after_peeking,
    cut_the_end,
    decide_by_hand,
    decide_honestly,
    delete_script,
    drop_entries,
    edit_a_file,
    edit_ledger,
    edit_live_metrics,
    fail_when_bad,
    fail_when_unlucky,
    forge,
    forge_whole,
    honest,
    ignore_the_seed,
    in_this_process,
    interrupt_once,
    interrupt_when_bad,
    lose_a_run,
    never_started,
    peek_early,
    remake_after_amending,
    retrain_sealed,
    roll_back,
    shop,
    shop_a_little,
    shop_after_decision,
    stop_an_arm_early,
    swap_arms,
    word_the_verdict,
    write_into_another,
)

from ablate.verification.verify import verify_target
from prereg.errors import StudyError

__all__ = ["in_this_process"]

pytestmark = pytest.mark.usefixtures("in_this_process")

NO_VERDICT, NAMED, FAULT = "no verdict", "a check that failed", "a fault that verify finds"
LEAST: dict[Attack, str] = {
    forge: NO_VERDICT,
    forge_whole: NO_VERDICT,
    shop: NO_VERDICT,
    shop_a_little: NAMED,
    # Of failures before a claimed value only the message says whether they are honest: their number is named.
    fail_when_unlucky: NAMED,
    fail_when_bad: NO_VERDICT,
    interrupt_when_bad: NO_VERDICT,
    interrupt_once: NAMED,
    write_into_another: NO_VERDICT,
    edit_live_metrics: NAMED,  # the run is not sealed, and the study stays unfinished
    alter_script_before_deciding: NO_VERDICT,
    shop_after_decision: NO_VERDICT,
    retrain_sealed: NO_VERDICT,
    swap_arms: NO_VERDICT,
    add_a_seed: NO_VERDICT,
    peek_early: NO_VERDICT,
    drop_entries: NO_VERDICT,
    edit_ledger: NO_VERDICT,
    backdate: NAMED,
    begin_before_the_registration: NO_VERDICT,
    claim_after_looking: NO_VERDICT,
    copy_after_peeking: NO_VERDICT,
    ignore_the_seed: NO_VERDICT,
    stop_an_arm_early: NO_VERDICT,
    remake_after_amending: NO_VERDICT,
    roll_back: NO_VERDICT,
    word_the_verdict: FAULT,
    never_started: NO_VERDICT,
    change_script: NO_VERDICT,
    delete_script: NO_VERDICT,
    decide_by_hand: FAULT,
    lose_a_run: FAULT,
    cut_the_end: FAULT,
    edit_a_file: FAULT,
}
"""What each attack meets at least."""


def found_in(history: History) -> dict[str, str]:
    """What a reader of the repository learns, first from `ablate verify` and then from `ablate decide`."""
    found = {}
    seen = verify_target(history.root.study(history.registration.study.study), history.root.path)
    if not seen.intact:
        found[FAULT] = "; ".join(fault for item in seen.items for fault in item.faults)
    try:
        decided = history.decide()
    except StudyError as error:
        return found | {NO_VERDICT: error.found}
    failed = history.failed_checks(decided)
    named = {name: check.found for name, check in failed.items() if name not in AS_ALWAYS | history.expected}
    if named:
        found[NAMED] = str(named)
    if decided.decision.status == "inadmissible":
        found[NO_VERDICT] = str({name: one.found for name, one in failed.items() if one.severity == "inadmissible"})
    return found


def require_believed(path: Path, number: int) -> None:
    history = honest(path, Random(number))  # noqa: S311
    decided = decide_honestly(history)
    failed = history.failed_checks(decided)
    assert set(failed) <= AS_ALWAYS | history.expected, (number, failed)
    assert not [name for name, check in failed.items() if check.severity == "inadmissible"], (number, failed)
    deviates = any(check.severity == "deviation" for check in failed.values())
    assert decided.decision.status in (
        "inconclusive",
        "decided_with_deviations" if deviates else "decided",
    ), number
    seen = verify_target(history.root.study("own"), history.root.path)
    assert seen.intact, (number, [item for item in seen.items if item.faults])


def require_found(path: Path, attack: Attack, number: int) -> None:
    rng = Random(f"{attack.__name__} {number}")  # noqa: S311
    history = History(path, rng) if attack in FROM_THE_START else honest(path, rng)
    attack(history)
    found = found_in(history)
    assert LEAST[attack] in found, (attack.__name__, number, found)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_an_honest_history_is_flagged_as_no_more_than_it_is(tmp_path: Path, number: int) -> None:
    require_believed(tmp_path / "house", number)


@pytest.mark.slow
@pytest.mark.parametrize("attack", LEAST, ids=lambda attack: attack.__name__)
def test_an_attack_is_found(tmp_path: Path, attack: Attack) -> None:
    require_found(tmp_path / "house", attack, 0)


@pytest.mark.simulation
@pytest.mark.parametrize("tens", range(20))
def test_two_hundred_honest_histories_are_believed(tmp_path: Path, tens: int) -> None:
    for number in range(10 * tens, 10 * tens + 10):
        require_believed(tmp_path / str(number) / "house", 1_000 + number)


@pytest.mark.simulation
@pytest.mark.parametrize("attack", LEAST, ids=lambda attack: attack.__name__)
def test_two_hundred_dishonest_histories_are_found(tmp_path: Path, attack: Attack) -> None:
    for number in range(1, 11):
        require_found(tmp_path / str(number) / "house", attack, number)
