"""Claims about runs over amendments: what changes nothing that they depend on keeps them; nothing is drawn again."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from histories import AS_ALWAYS, History, in_this_process

import ablate as api
from ablate.notebook.results import Decided
from ablate.records.gather import gather
from ablate.verification.verify import verify_target
from prereg.registry.ledger_entry import SealEntry
from prereg.registry.register import amend_study
from prereg.registry.registration import Pins, Registration
from prereg.study.command import pin_scripts
from prereg.study.load import load_study

__all__ = ["in_this_process"]

pytestmark = pytest.mark.usefixtures("in_this_process")

AGAIN = "no sealed run was trained again"
NULL: dict[str, Any] = {
    "base": {"lr": 0.1, "steps": 4, "tag": 0},
    "variants": {"slow": {}, "fast": {"tag": 1}},
    "seeds": [1, 2, 3, 4, 5],
}
"""Two arms with the same law."""


class Amended(History):
    """A study without a true effect, amended again and again."""

    def amend(self, **changes: Any) -> Registration:
        self.house.write(**NULL | changes)
        loaded = load_study(self.study)
        pins = Pins(scripts=pin_scripts(self.root, loaded.study))
        known: dict[str, Any] = {"pins": pins, "design": None, "tool": {}, "at": self.now()}
        self.registration = amend_study(self.root, loaded, **known, reason="a better idea", evidence="none")[0]
        return self.registration


def seals(history: History) -> int:
    return sum(isinstance(entry, SealEntry) for entry in history.ledger.entries())


@pytest.fixture
def study(tmp_path: Path) -> Amended:
    history = Amended(tmp_path / "house", Random(3))  # noqa: S311
    history.amend()
    return history


def round_of(history: Amended, number: int) -> Decided:
    """Amend beliefs, run with other luck, decide."""
    history.amend(assume={"seconds_per_run": number})
    history.run(noise=number)
    return history.decide()


@pytest.mark.slow
def test_an_amendment_that_touches_nothing_keeps_the_runs_and_the_verdict(study: Amended) -> None:
    study.run(noise=100)
    first = study.decide().decision
    made, base = seals(study), study.registration.sha256
    for number in range(1, 6):
        found = round_of(study, number).decision
        assert (found.status, found.verdict, found.evidence) == (first.status, first.verdict, first.evidence)
        assert [one.p_support for one in found.findings] == [one.p_support for one in first.findings]
        assert study.registration.runs_sha256 == base != study.registration.sha256
    assert seals(study) == made
    assert verify_target(study.root.study("own"), study.root.path).intact


@pytest.mark.slow
def test_a_resampling_test_is_not_drawn_again(tmp_path: Path) -> None:
    history = Amended(tmp_path / "house", Random(4))  # noqa: S311
    boot: dict[str, Any] = {"seeds": list(range(1, 10)), "analysis": {"test": "bootstrap_t"}}
    history.amend(**boot)
    history.run(noise=8)
    found = set()
    for number in range(1, 5):
        history.amend(**boot, assume={"seconds_per_run": number})
        found.add(history.decide().decision.findings[0].p_support)
    assert len(found) == 1, found


@pytest.mark.slow
def test_looks_lost_starts_and_decisions_of_the_earlier_registration_count(study: Amended) -> None:
    study.run(dies_at=4, noise=1)
    api.early_results(study.study, reason="curious", workspace=api.Workspace(clock=study.now))
    study.amend(assume={"seconds_per_run": 2})
    study.run(noise=1)
    decided = study.decide()
    failed = study.failed_checks(decided)
    assert failed["no look before the last run ended"].severity == "inadmissible"
    assert decided.decision.status == "inadmissible"


@pytest.mark.slow
def test_runs_made_again_after_an_amendment_must_come_out_as_before(study: Amended) -> None:
    study.run(noise=1)
    study.decide()
    # A third arm touches no claim of the others, and makes all runs anew.
    study.amend(variants=NULL["variants"] | {"third": {"tag": 2}})
    study.run(noise=2)
    decided = study.decide()
    check = study.failed_checks(decided)[AGAIN]
    assert check.severity == "inadmissible" and check.found.startswith("10 with another outcome"), check
    assert decided.decision.verdict is None


@pytest.mark.slow
def test_a_deterministic_trainer_may_make_them_again(study: Amended) -> None:
    study.run(noise=1)
    study.decide()
    study.amend(variants=NULL["variants"] | {"third": {"tag": 2}})
    study.run(noise=1)
    decided = study.decide()
    failed = study.failed_checks(decided)
    assert failed[AGAIN].severity == "note" and "10 sealed again with the same outcome" in failed[AGAIN].found
    assert decided.decision.verdict is not None
    assert set(failed) <= AS_ALWAYS | {AGAIN, "no amendment after outcomes were read"}


@pytest.mark.slow
def test_back_to_what_it_was_has_the_runs_that_it_had(study: Amended) -> None:
    study.run(noise=1)
    first = study.decide().decision
    study.amend(variants=NULL["variants"] | {"third": {"tag": 2}})
    study.amend()
    study.run(noise=2)
    assert study.decide().decision.evidence == first.evidence
    assert not gather(study.root, study.registration).missing


@pytest.mark.slow
def test_what_a_new_claim_needs_the_kept_runs_may_have(study: Amended) -> None:
    study.run(noise=1)
    study.decide()
    gain = {"claim": "fast lowers val/loss", "smallest": 0.05}
    claims = {"gain": gain, "more": {"claim": "fast lowers train/loss", "smallest": 0.05, "role": "exploratory"}}
    study.amend(hypotheses=claims)
    made = seals(study)
    study.run(noise=2)
    decided = study.decide().decision
    assert seals(study) == made
    assert [one.hypothesis for one in decided.findings if one.amended] == ["more"]
    assert decided.status != "inadmissible"
