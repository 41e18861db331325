"""LIES about runs of base that are used again: each is named, and leaves no verdict.

The house has two honest comparisons of one base, of which the second uses the runs of the first. A row of `LIES`
changes what the second one registered, or what the ledger says of the runs, as whoever holds both could; the judge sees
what they left. A row of `FORGERIES` changes files, as in `test_lies`, and is tried on what decides, on what verifies,
and on a bundle.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from committed_trainer import BEFORE, CommitHouse
from forgeries import Holding, entries, without
from own_trainer import own_document
from quiet import QUIET
from test_gate import DECISION, HYPOTHESES
from test_lies import (
    JUDGED,
    LOGGED,
    NOTHING,
    PRESENT,
    PROMISE,
    RECORDS,
    REFUSED,
    SEALS,
    WORDS,
    checked,
    decided,
    verified,
)

import ablate as api
from ablate.judge.decide import decide
from ablate.records.evidence import Evidence
from ablate.records.gather import gather
from ablate.records.store import RunFolder
from ablate.runner.options import RunOptions
from prereg.registry.ledger_entry import Entry, PromiseEntry, ReusedEntry, SealedEntry
from prereg.registry.paths import Root
from prereg.registry.registration import Registration, load_registration

RULE = "runs of base that are used again follow from the ledger"
Case = tuple[Registration, Evidence]
Lie = Callable[[Registration, Evidence], Case]


class Second(Holding):
    """The files of the second comparison in somebody's hands."""

    @property
    def name(self) -> str:
        return str([line for line in self.lines() if line["event"] == "registered"][-1]["study"])

    @property
    def registration(self) -> str:
        return str([line for line in self.lines() if line["event"] == "registered"][-1]["registration"])

    @property
    def study(self) -> Path:
        return self.path / "studies" / f"{self.name}.yaml"

    @property
    def lock(self) -> Path:
        return self.path / "studies" / f"{self.name}.lock.json"

    @property
    def again(self) -> RunFolder:
        """The copy of the first run that is used again."""
        registration = load_registration(Root(self.path), self.name)
        assert registration is not None
        return RunFolder(Root(self.path).run(self.name, registration.runs_sha256, *registration.reused[0].cell))


@pytest.fixture(scope="module")
def honest_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two comparisons of one base, decided, with their reports; next to them a bundle of the second, unpacked."""
    base = tmp_path_factory.mktemp("shared")
    house = CommitHouse(base / "house")
    # Every seed leaves values of its own, whatever seeds follow from the hashes of these commits.
    house.script(BEFORE.replace("(seed * 7919 % 13) / 1000", "seed / 2**31"))
    house.commit("Base")
    house.git("tag", "base")
    house.script(BEFORE.replace("(seed * 7919 % 13) / 1000", "0.9 * seed / 2**31"))
    house.commit("Head")
    variants = {"base": {"commit": "base"}, "head": {"commit": "HEAD"}}
    claims = {"hypotheses": HYPOTHESES, "decision": DECISION, "baseline": "base", "variants": variants}
    study = house.write(own_document() | claims | {"seeds": "fresh 3", "base_runs": "shared"})
    workspace = api.Workspace(console=QUIET)
    gated = [api.gate(study, head="HEAD", options=RunOptions(slots=1), workspace=workspace)]
    house.script("level = 2.5\n", "src/helper.py")
    house.commit("Another level")
    gated.append(api.gate(study, head="HEAD", options=RunOptions(slots=1), workspace=workspace))
    assert gated[1].path is not None
    bundle = api.bundle(gated[1].path, out=base / "second.ablate.zip", whole_ledger=True).path
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(base / "bundle")
    return base


@pytest.fixture(scope="module")
def honest(honest_files: Path) -> Case:
    """The second of two comparisons of one base."""
    root, name = Root(honest_files / "house"), Second(honest_files / "house").name
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


def another_table(of: Second) -> None:
    of.again.sealed_path.write_bytes(of.again.sealed_path.read_bytes() + b"x")


def another_record(of: Second) -> None:
    record = of.again.read_record()
    assert record is not None
    of.again.write_record(record.model_copy(update={"wall_s": 1.0}))


def the_copy_is_gone(of: Second) -> None:
    shutil.rmtree(of.again.path)


def another_seal_in_the_lock(of: Second) -> None:
    text = of.lock.read_text(encoding="utf-8")
    at = text.index('"seal": "') + len('"seal": "')
    of.lock.write_text(f"{text[:at]}{'0' * 64}{text[at + 64 :]}", encoding="utf-8")


def the_first_comparison_is_gone(of: Second) -> None:
    for folder in (of.path / "data" / "runs").iterdir():
        if folder.name != of.name:
            shutil.rmtree(folder)


# fmt: off
FORGERIES = [
    #   what was done, the forgery, what finds it: decide, verify, verify BUNDLE
    ("nothing", lambda _: None, NOTHING, NOTHING, NOTHING),
    ("another table of a run that is used again", another_table, SEALS, RECORDS, RECORDS),
    ("another record of it", another_record, SEALS, RECORDS, RECORDS),
    ("its copy is gone", the_copy_is_gone, PRESENT, RECORDS, RECORDS),
    ("another seal in the lock", another_seal_in_the_lock, REFUSED, PROMISE, PROMISE),
    ("no entry that takes it, chained anew", entries(without("reused")), LOGGED, JUDGED, JUDGED),
    ("no entry that sealed it, chained anew", entries(without("sealed", variant="base")), RULE, WORDS, WORDS),
    ("the runs of the first comparison are gone", the_first_comparison_is_gone, NOTHING, NOTHING, NOTHING),
]
# fmt: on


@pytest.mark.slow
@pytest.mark.parametrize("row", FORGERIES, ids=lambda row: row[0])
def test_a_forgery_of_shared_base_runs_is_found(
    row: tuple[str, Callable[[Second], object], str, str, str],
    request: pytest.FixtureRequest,
    honest_files: Path,
    tmp_path: Path,
) -> None:
    request.getfixturevalue("no_reports")
    house, bundle = (
        Second(Path(shutil.copytree(honest_files / name, tmp_path / name))) for name in ("house", "bundle")
    )
    _, forge, *wanted = row
    forge(house)
    forge(bundle)
    found = (decided(house), verified(house), checked(bundle))
    for items, item in zip(found, wanted, strict=True):
        assert item in items if item else not items, (row[0], found)
