"""LIES about runs of base that are used again: each is named by the audit, and leaves no verdict.

The house has two honest comparisons of one base, of which the second uses the runs of the first. A row changes what the
second one registered, or what the ledger says of the runs, as whoever holds both could; the judge sees what they left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from committed_trainer import CommitHouse
from own_trainer import own_document
from quiet import QUIET
from test_gate import DECISION, HYPOTHESES

import ablate as api
from ablate.judge.decide import decide
from ablate.records.evidence import Evidence
from ablate.records.gather import gather
from ablate.runner.options import RunOptions
from prereg.registry.ledger_entry import Entry, PromiseEntry, ReusedEntry, SealedEntry
from prereg.registry.paths import Root
from prereg.registry.registration import Registration, load_registration

RULE = "runs of base that are used again follow from the ledger"
Case = tuple[Registration, Evidence]
Lie = Callable[[Registration, Evidence], Case]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The second of two comparisons of one base."""
    house = CommitHouse(tmp_path_factory.mktemp("shared") / "house")
    variants = {"base": {"commit": "v1"}, "head": {"commit": "HEAD"}}
    claims = {"hypotheses": HYPOTHESES, "decision": DECISION, "baseline": "base", "variants": variants}
    study = house.write(own_document() | claims | {"seeds": "fresh 3", "base_runs": "shared"})
    workspace = api.Workspace(console=QUIET)
    gated = [api.gate(study, head="HEAD", options=RunOptions(slots=1), workspace=workspace)]
    house.script("level = 2.5\n", "src/helper.py")
    house.commit("Another level")
    gated.append(api.gate(study, head="HEAD", options=RunOptions(slots=1), workspace=workspace))
    root, name = Root(house.path), gated[1].path.stem if gated[1].path else ""
    registration = load_registration(root, name)
    assert registration is not None and len(registration.reused) == 3
    return registration, gather(root, registration)


def naming(change: Callable[[Registration, Evidence], tuple[object, ...]]) -> Lie:
    """Another list of runs in the lock."""
    return lambda registration, evidence: (
        registration.model_copy(update={"reused": change(registration, evidence)}), evidence
    )  # fmt: skip


def first_of(registration: Registration, evidence: Evidence) -> SealedEntry:
    """The seal of the first run that is used again."""
    seal = registration.reused[0].seal
    return next(entry for entry in evidence.elsewhere if isinstance(entry, SealedEntry) and entry.sha256 == seal)


def of_the_seal(**fields: object) -> Lie:
    """The seal of the first run says something else."""

    def lie(registration: Registration, evidence: Evidence) -> Case:
        first = first_of(registration, evidence)
        changed = [entry.model_copy(update=fields) if entry == first else entry for entry in evidence.elsewhere]
        return registration, replace(evidence, elsewhere=tuple(changed))

    return lie


def chosen_among_two(registration: Registration, evidence: Evidence) -> Case:
    """Base was trained twice, and the second training is the one that is used."""
    first = first_of(registration, evidence)
    earlier = first.model_copy(update={"sha256": "1" * 64, "outcome_sha256": "2" * 64})
    places = {**evidence.places, earlier.sha256: evidence.places[first.sha256] - 1}
    return registration, replace(evidence, elsewhere=(earlier, *evidence.elsewhere), places=places)


def sealed_afterwards(registration: Registration, evidence: Evidence) -> Case:
    """The first run was sealed when the second comparison was registered already."""
    first = first_of(registration, evidence)
    return registration, replace(evidence, places={**evidence.places, first.sha256: len(evidence.places)})


def of_another_study(registration: Registration, evidence: Evidence) -> Case:
    """The comparison that made the runs had another margin, or rule."""
    changed = [
        entry.model_copy(update={"base_sha256": "0" * 64}) if isinstance(entry, PromiseEntry) else entry
        for entry in evidence.elsewhere
    ]
    return registration, replace(evidence, elsewhere=tuple(changed))


def taken(**fields: object) -> Lie:
    """What the ledger says was taken is not what the lock names."""

    def change(entry: Entry) -> Entry:
        return entry.model_copy(update=fields) if isinstance(entry, ReusedEntry) else entry

    return lambda registration, evidence: (
        registration, replace(evidence, ledger=tuple(map(change, evidence.ledger)))
    )  # fmt: skip


def trained_again(registration: Registration, evidence: Evidence) -> Case:
    """A run of base was made once more here, after its values had been seen."""
    again = next(entry for entry in evidence.ledger if isinstance(entry, ReusedEntry))
    fields = again.model_dump(mode="python")["body"] | {"outcome_sha256": "3" * 64}
    fields = {key: value for key, value in fields.items() if key not in ("of_study", "seal")}
    about = {"study": again.study, "registration": again.registration, "at": again.at, "sha256": "4" * 64}
    seal = SealedEntry(**fields, **about, index=again.index + 1)
    return registration, replace(evidence, ledger=(*evidence.ledger, seal))


def head_made_before(registration: Registration, evidence: Evidence) -> Case:
    """A run of head began before the registration."""
    runs = [
        run.model_copy(update={"started_at": "2001-01-01T00:00:00+00:00"}) if run.variant == "head" else run
        for run in evidence.runs
    ]
    return registration, replace(evidence, runs=tuple(runs))


def other_seeds(registration: Registration, evidence: Evidence) -> Case:
    """Seeds that do not follow from study and base, here in another order."""
    study = registration.study
    return registration.model_copy(update={"study": study.model_copy(update={"seeds": study.seeds[::-1]})}), evidence


def with_hash(**fields: object) -> Lie:
    return naming(lambda registration, _: (
        registration.reused[0].model_copy(update=fields), *registration.reused[1:]
    ))  # fmt: skip


# fmt: off
LIES = [
    #   what was done, the lie, the check that finds it
    ("base runs chosen among several that were sealed", chosen_among_two, RULE),
    ("a base run left out", naming(lambda registration, _: registration.reused[1:]), RULE),
    ("all base runs left out", naming(lambda *_: ()), RULE),
    ("a base run of another commit under the same name", of_the_seal(recipe_sha256="0" * 64), RULE),
    ("a run of head as one of base", of_the_seal(variant="head"), RULE),
    ("a base run of another seed", of_the_seal(seed=7), RULE),
    ("a base run that was sealed after the registration", sealed_afterwards, RULE),
    ("a base run with another record", with_hash(run_sha256="0" * 64), RULE),
    ("a base run with another outcome", with_hash(outcome_sha256="0" * 64), RULE),
    ("a base run that no entry seals", with_hash(seal="0" * 64), RULE),
    ("base runs of a study that was changed since", of_another_study, RULE),
    ("another base run taken than the lock names", taken(seal="0" * 64), RULE),
    ("base trained again after bad luck", trained_again, RULE),
    ("a head that was made before", head_made_before, "no run began before its registration"),
    ("seeds of one's own", other_seeds, RULE),
]
# fmt: on


@pytest.mark.slow
def test_without_a_lie_there_is_a_verdict(honest: Case) -> None:
    decision = decide(*honest)
    assert decision.gives_verdict and decision.reused is not None and decision.reused.runs == 3
    assert next(check for check in decision.checks if check.name == RULE).passed


@pytest.mark.slow
@pytest.mark.parametrize(("lie", "finds"), [pytest.param(lie, finds, id=name) for name, lie, finds in LIES])
def test_a_lie_about_base_runs_is_named_and_leaves_no_verdict(lie: Lie, finds: str, honest: Case) -> None:
    decision = decide(*lie(*honest))
    failed = {check.name for check in decision.checks if not check.passed and check.severity == "inadmissible"}
    assert finds in failed and decision.verdict is None, failed
