"""LIES: one table of forgeries, each tried on what decides, on what verifies, and on a bundle.

A row names what must find the forgery: a failed check of `decide` that leaves no verdict (or the error that refuses to
judge), an item of `verify`, an item of `verify BUNDLE`, where the bundle is whole but for the forgery and its manifest
is written anew. NOTHING is a limit that the documentation states, or an honest change. No sentence is read.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commit_forgeries import (
    a_collected_commit,
    a_file_of_a_commit_is_gone,
    a_moved_branch,
    a_replaced_commit,
    another_commit_everywhere,
    another_commit_in_the_lock,
    another_file_of_a_commit,
    another_hash_in_the_lock,
    arms_exchanged_of,
    in_git,
    made_with_the_code_of_another_arm,
)
from committed_trainer import CommitHouse
from forgeries import (
    Holding,
    a_better_p,
    a_better_run_twice,
    a_failed_check_left_out,
    a_failed_check_that_passed,
    a_larger_effect,
    a_record_is_gone,
    a_row_left_out,
    a_row_twice,
    a_run_is_gone,
    a_second_decision,
    a_smaller_margin_everywhere,
    a_stable_arm,
    a_table_is_gone,
    a_table_that_is_none,
    an_earlier_step_as_the_last,
    an_early_look,
    an_entry_of_another_place,
    another_end,
    another_seal_of_the_same_values,
    another_verdict_in_the_ledger_alone,
    arms_exchanged,
    bytes_after_the_table,
    column,
    entries,
    first_cell,
    gone,
    of_the_finding,
    one_entry_rewritten,
    record_says,
    registered_last,
    replaced,
    rows,
    saying,
    saying_of_itself,
    seals_replaced,
    table_of,
    text,
    the_same_values_in_another_file,
    twenty_years_earlier,
    values_alone,
    values_and_record,
    values_of_their_own_outcome,
    values_sealed_again,
    verdict,
    where_it_is,
    without,
)
from own_trainer import OwnHouse, own_document
from quiet import QUIET

import ablate as api
from ablate.runner.options import RunOptions
from ablate.verification.manifest import bundle_manifest_bytes
from ablate.verification.result import Verification
from ablate.verification.verify import verify_target
from prereg.errors import StudyError
from prereg.registry.canon import sha256_bytes

NOTHING = ""
SEALS = "every seal matches"
RECORDS = "sealed records"
JUDGED = "verdict judged again"
CHAIN = "chain"
LEDGER = "chain"
PROMISE = "study and lock"
DIFFERENTLY = "judged differently"
"""A decision that names other code than this is no forgery that could be told from a change of the judge."""
REFUSED = "RegistrationError"
VERDICT = "verdict"
REPORTS = "reports"
INTACT = "the ledger and the registration are intact"
AGAIN = "no sealed run was trained again"
UNDER = "every run was made under this registration"
PRESENT = "every planned run is present"
LOGGED = "every sealed run is in the ledger"
WORDS = "registration in words"
AS_REGISTERED = "the registered code and data are as they were registered"
GUIDE = "README and figures"
DATA = "data files"
MANIFEST = "MANIFEST.json"
COMMITS = "honest_commits"
OF_ARMS = "commits of arms"


@dataclass(frozen=True)
class Lie:
    """A forgery, and what finds it."""

    name: str
    forge: Callable[[Holding], object]
    decide: str
    verify: str
    bundle: str
    of: str = "honest"
    """The fixture of the study: one whose arms are configurations, or commits."""


# fmt: off
LIES = [
    #   what was done, the forgery, what finds it: decide, verify, verify BUNDLE
    Lie("nothing", lambda _: None, NOTHING, NOTHING, NOTHING),
    # Values and records of runs.
    Lie("a worse table", values_alone, SEALS, RECORDS, RECORDS),
    Lie("a worse table, and its hash in run.json", values_and_record, SEALS, RECORDS, RECORDS),
    Lie("worse tables sealed again under the first outcome", values_sealed_again, SEALS, RECORDS, RECORDS),
    Lie("worse tables sealed again under their own outcome", values_of_their_own_outcome, AGAIN, JUDGED, JUDGED),
    Lie("worse tables in place of the first seals", seals_replaced, NOTHING, JUDGED, JUDGED),
    Lie("a seal of the same values twice", another_seal_of_the_same_values, NOTHING, NOTHING, GUIDE),
    Lie("a finished run called diverged", another_end, AGAIN, JUDGED, JUDGED),
    Lie("an earlier step as the last", an_earlier_step_as_the_last, SEALS, RECORDS, RECORDS),
    Lie("a table of another arm", table_of(column("variant", "slow")), SEALS, RECORDS, RECORDS),
    Lie("a table of another seed", table_of(column("seed", 3)), SEALS, RECORDS, RECORDS),
    Lie("a table without values", table_of(column("value", None)), SEALS, RECORDS, RECORDS),
    Lie("a table whose steps are words", table_of(column("step", "1")), SEALS, RECORDS, RECORDS),
    Lie("a cell without a value", table_of(first_cell("value", None)), SEALS, RECORDS, RECORDS),
    Lie("a cell without a seed", table_of(first_cell("seed", None)), SEALS, RECORDS, RECORDS),
    Lie("a row twice", table_of(a_row_twice), SEALS, RECORDS, RECORDS),
    Lie("a row left out", table_of(a_row_left_out), SEALS, RECORDS, RECORDS),
    Lie("bytes after a table", bytes_after_the_table, SEALS, RECORDS, RECORDS),
    Lie("the same values in another file", the_same_values_in_another_file, SEALS, RECORDS, RECORDS),
    Lie("a record of another arm",
        record_says(variant="slow"), "every configuration is the registered one", RECORDS, RECORDS),
    Lie("a record of another study", record_says(study="other"), UNDER, JUDGED, JUDGED),
    Lie("a record of another registration", record_says(registration="0" * 64), UNDER, JUDGED, JUDGED),
    Lie("a record with another configuration",
        record_says(config={"lr": 0.5, "steps": 4}), "every configuration is the registered one", JUDGED, JUDGED),
    Lie("a run that began before its registration",
        record_says(started_at="2001-01-01T00:00:00+00:00"), "no run began before its registration", JUDGED, JUDGED),
    Lie("a run that is gone", a_run_is_gone, PRESENT, RECORDS, RECORDS),
    Lie("a table that is gone", a_table_is_gone, SEALS, RECORDS, RECORDS),
    Lie("a table that is no table", a_table_that_is_none, SEALS, RECORDS, RECORDS),
    Lie("a record that is gone", a_record_is_gone, PRESENT, RECORDS, RECORDS),
    Lie("two arms exchanged", arms_exchanged, SEALS, RECORDS, RECORDS),
    Lie("one seed in the place of another", a_better_run_twice, SEALS, RECORDS, RECORDS),
    # The ledger.
    Lie("a byte of an entry", replaced(b'"variant":"fast"', b'"variant":"fasr"'), INTACT, CHAIN, LEDGER),
    Lie("a space in an entry", replaced(b'"event":"started"', b'"event": "started"'), INTACT, CHAIN, LEDGER),
    Lie("an event that is none", replaced(b'"event":"started"', b'"event":"stopped"'), INTACT, CHAIN, LEDGER),
    Lie("a line that is not JSON", replaced(b'{"at"', b'"at"'), REFUSED, CHAIN, LEDGER),
    Lie("an entry with a hash of its own", one_entry_rewritten, INTACT, CHAIN, LEDGER),
    Lie("an entry that claims another place", an_entry_of_another_place, INTACT, CHAIN, LEDGER),
    Lie("a line removed", rows(lambda lines: lines[:2] + lines[3:]), INTACT, CHAIN, LEDGER),
    Lie("the first line removed", rows(lambda lines: lines[1:]), REFUSED, CHAIN, LEDGER),
    Lie("a line twice", rows(lambda lines: lines[:3] + lines[2:]), INTACT, CHAIN, LEDGER),
    Lie("two lines exchanged", rows(lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]]), INTACT, CHAIN, LEDGER),
    Lie("an empty line", rows(lambda lines: [*lines[:2], b"\n", *lines[2:]]), INTACT, CHAIN, LEDGER),
    Lie("the end cut off after the runs", rows(lambda lines: lines[:-2]), NOTHING, VERDICT, VERDICT),
    Lie("a seal removed and the ledger chained anew",
        entries(without("sealed", variant="fast", seed=2)), LOGGED, JUDGED, JUDGED),
    Lie("all seals removed and the ledger chained anew", entries(without("sealed")), LOGGED, JUDGED, JUDGED),
    Lie("a start removed and the ledger chained anew",
        entries(without("started", variant="fast", seed=2)), "every sealed run was started here", JUDGED, JUDGED),
    Lie("the registration removed and the ledger chained anew",
        entries(without("registered")), REFUSED, PROMISE, PROMISE),
    Lie("the registration after the runs, chained anew",
        entries(registered_last), "registered before any run", WORDS, WORDS),
    Lie("another lock in the ledger, chained anew",
        entries(saying("registered", lock_sha256="0" * 64)), REFUSED, PROMISE, PROMISE),
    Lie("other hashes in all seals, chained anew",
        entries(saying("sealed", run_sha256="0" * 64)), SEALS, RECORDS, RECORDS),
    Lie("other outcomes in all seals, chained anew",
        entries(saying("sealed", outcome_sha256="0" * 64)), LOGGED, RECORDS, RECORDS),
    Lie("another verdict in the ledger, chained anew",
        entries(saying("decided", verdict="inconclusive")), NOTHING, VERDICT, VERDICT),
    Lie("other reports in the ledger, chained anew",
        entries(saying("reported", **{"report.md": "0" * 64})), NOTHING, REPORTS, REPORTS),
    Lie("earlier times everywhere, chained anew", entries(twenty_years_earlier), NOTHING, WORDS, WORDS),
    Lie("an early look", an_early_look, "no look before the last run ended", JUDGED, JUDGED),
    # Study, lock, code and data.
    Lie("another margin in the study",
        text("studies/own.yaml", "smallest: 0.05", "smallest: 0.01"), REFUSED, PROMISE, PROMISE),
    Lie("another comment in the study",
        text("studies/own.yaml", "study: own", "study: own  # mine"), NOTHING, PROMISE, PROMISE),
    Lie("another margin in the lock",
        text("studies/own.lock.json", '"smallest": 0.05', '"smallest": 0.01'), REFUSED, PROMISE, PROMISE),
    Lie("another margin in study, lock and ledger", a_smaller_margin_everywhere, REFUSED, PROMISE, PROMISE),
    Lie("no study", gone("studies/own.yaml"), "StudyFileError", PROMISE, PROMISE),
    Lie("no lock", gone("studies/own.lock.json"), REFUSED, PROMISE, PROMISE),
    Lie("another registration in words",
        text("studies/own.registration.md", "A trainer of one", "The trainer of one"), NOTHING, WORDS, WORDS),
    Lie("another trainer", text("train.py", "2.0 - lr", "1.0 - lr"), AS_REGISTERED, PROMISE, PROMISE),
    Lie("other data", where_it_is("words.txt", text("words.txt", "some", "more")), AS_REGISTERED, DATA, NOTHING),
    Lie("data that are elsewhere", where_it_is("words.txt", gone("words.txt")), NOTHING, NOTHING, NOTHING),
    Lie("no trainer", gone("train.py"), AS_REGISTERED, PROMISE, PROMISE),
    # Verdict and reports.
    Lie("another verdict", verdict(saying_of_itself(verdict="inconclusive")), NOTHING, VERDICT, VERDICT),
    Lie("another effect", verdict(a_larger_effect), NOTHING, VERDICT, VERDICT),
    Lie("another verdict, and the ledger to match",
        verdict(saying_of_itself(verdict="inconclusive"), verdict="inconclusive"), NOTHING, JUDGED, JUDGED),
    Lie("another outcome, and the ledger to match",
        verdict(of_the_finding(outcome="refuted"), verdict="take fast"), NOTHING, JUDGED, JUDGED),
    Lie("another effect, and the ledger to match",
        verdict(a_larger_effect, verdict="take fast"), NOTHING, JUDGED, JUDGED),
    Lie("another p, and the ledger to match", verdict(a_better_p, verdict="take fast"), NOTHING, JUDGED, JUDGED),
    Lie("another stability, and the ledger to match",
        verdict(a_stable_arm, verdict="take fast"), NOTHING, JUDGED, JUDGED),
    Lie("a failed check left out, and the ledger to match",
        verdict(a_failed_check_left_out, verdict="take fast"), NOTHING, JUDGED, JUDGED),
    Lie("a failed check that passed, and the ledger to match",
        verdict(a_failed_check_that_passed, verdict="take fast"), NOTHING, JUDGED, JUDGED),
    Lie("more seeds, and the ledger to match",
        verdict(of_the_finding(n=500), verdict="take fast"), NOTHING, JUDGED, JUDGED),
    Lie("words in a finding, and the ledger to match",
        verdict(of_the_finding(notes=["It always helps."]), verdict="take fast"), NOTHING, JUDGED, JUDGED),
    Lie("a finding left out, and the ledger to match",
        verdict(saying_of_itself(findings=[]), verdict="take fast"), NOTHING, JUDGED, JUDGED),
    Lie("another status, and the ledger to match",
        verdict(saying_of_itself(status="inconclusive"), status="inconclusive"), NOTHING, JUDGED, JUDGED),
    Lie("other evidence, and the ledger to match",
        verdict(saying_of_itself(evidence="0" * 64), evidence="0" * 64), NOTHING, JUDGED, JUDGED),
    Lie("another line of the rule, and the ledger to match",
        verdict(saying_of_itself(line=2), verdict="take fast"), NOTHING, JUDGED, JUDGED),
    Lie("another outcome, and a ledger that names other code",
        verdict(of_the_finding(outcome="refuted"), code="0" * 64), NOTHING, DIFFERENTLY, DIFFERENTLY),
    Lie("another verdict in the ledger, and no verdict.json",
        another_verdict_in_the_ledger_alone, NOTHING, JUDGED, JUDGED),
    Lie("the same decision once more, and the reports of the first", a_second_decision, NOTHING, REPORTS, REPORTS),
    Lie("no verdict.json", gone("reports/own/verdict.json"), NOTHING, NOTHING, GUIDE),
    Lie("another report.md", text("reports/own/report.md", "take fast", "take slow"), NOTHING, REPORTS, REPORTS),
    # Arms that are commits: their objects in git, their pins in the lock, what their runs say.
    Lie("commits, and nothing", lambda _: None, NOTHING, NOTHING, NOTHING, COMMITS),
    Lie("a branch that moved", in_git(a_moved_branch), NOTHING, NOTHING, NOTHING, COMMITS),
    Lie("a commit that another replaces", in_git(a_replaced_commit), NOTHING, NOTHING, NOTHING, COMMITS),
    Lie("a commit that was rewritten and collected",
        a_collected_commit, AS_REGISTERED, OF_ARMS, GUIDE, COMMITS),
    Lie("an object of a commit that is gone", a_file_of_a_commit_is_gone, AS_REGISTERED, OF_ARMS, OF_ARMS, COMMITS),
    Lie("an object of a commit with other bytes", another_file_of_a_commit, AS_REGISTERED, OF_ARMS, OF_ARMS, COMMITS),
    Lie("another commit in the lock", another_commit_in_the_lock, REFUSED, PROMISE, PROMISE, COMMITS),
    Lie("another file of a commit in the lock", another_hash_in_the_lock, REFUSED, PROMISE, PROMISE, COMMITS),
    Lie("another commit in lock and ledger", another_commit_everywhere, REFUSED, PROMISE, PROMISE, COMMITS),
    Lie("other changes between commits in the lock",
        text("studies/own.lock.json", '"added": 1', '"added": 9'), REFUSED, PROMISE, PROMISE, COMMITS),
    Lie("a run of the code of another arm",
        made_with_the_code_of_another_arm, "every run used the registered code", JUDGED, JUDGED, COMMITS),
    Lie("two arms of commits exchanged", arms_exchanged_of("before", "after"), SEALS, RECORDS, RECORDS, COMMITS),
    Lie("another report.html", text("reports/own/report.html", "take fast", "take slow"), NOTHING, REPORTS, REPORTS),
]
# fmt: on


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study, registered, run and decided, with its reports; beside it a bundle of it, unpacked."""
    base = tmp_path_factory.mktemp("honest")
    house = OwnHouse(base / "house")
    (house.path / "words.txt").write_text("some words", encoding="utf-8")
    study = house.write(own_document(data=["words.txt"]))
    api.run(study, RunOptions(slots=1), workspace=api.Workspace(console=QUIET))
    assert api.decide(study).decision.verdict == "take fast"
    bundle = api.bundle(study, out=base / "own.ablate.zip").path
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(base / "bundle")
    return base


@pytest.fixture(scope="module")
def honest_commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a study whose arms are commits of the repository that it lies in."""
    base = tmp_path_factory.mktemp("honest-commits")
    study = CommitHouse(base / "house").write()
    api.run(study, RunOptions(slots=1), workspace=api.Workspace(console=QUIET))
    assert api.decide(study).decision.verdict == "take it"
    bundle = api.bundle(study, out=base / "own.ablate.zip").path
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(base / "bundle")
    return base


def decided(house: Holding) -> set[str]:
    """The failed checks that leave no verdict; of a study that is not even judged, the error."""
    try:
        decision = api.decide(house.study).decision
    except StudyError as error:
        return {type(error).__name__}
    failed = {one.name for one in decision.checks if not one.passed and one.severity == "inadmissible"}
    assert bool(failed) == (decision.verdict is None)
    return failed


def verified(house: Holding) -> set[str]:
    """What has changed by `ablate verify`."""
    try:
        found = verify_target(house.study)
    except StudyError as error:
        return {type(error).__name__}
    return changed(found)


def changed(found: Verification) -> set[str]:
    """The items that have changed, or that this version judges differently."""
    items = {one.what for one in found.items if one.faults}
    return items | ({DIFFERENTLY} if found.judged_differently else set())


def checked(bundle: Holding) -> set[str]:
    """What has changed by `ablate verify BUNDLE`, after its forger wrote its manifest anew."""
    place = bundle.path / MANIFEST
    fields = {key: value for key, value in json.loads(place.read_bytes()).items() if key not in ("sha256", "format")}
    files = {path.relative_to(bundle.path).as_posix(): path for path in bundle.path.rglob("*") if path.is_file()}
    members: dict[str, Any] = {}
    for name in sorted(files.keys() - {MANIFEST}):
        data = files[name].read_bytes()
        members[name] = {"sha256": sha256_bytes(data), "size_bytes": len(data)}
    lines = bundle.ledger.read_bytes().splitlines()
    with suppress(ValueError, KeyError):  # of a ledger that no longer says its head, the forger can write none
        fields["ledger"] |= {"head": json.loads(lines[-1])["sha256"], "n_entries": len(lines)}
    place.write_bytes(bundle_manifest_bytes(**fields | {"members": members}))
    # Reports are not drawn again here: that takes seconds, and test_bundle.py does it.
    return changed(verify_target(bundle.path, reports_of=lambda *_: {}))


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
def test_a_forgery_is_found(lie: Lie, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    honest: Path = request.getfixturevalue(lie.of)
    request.getfixturevalue("no_reports")  # once the honest study has its own
    house, bundle = (Holding(Path(shutil.copytree(honest / name, tmp_path / name))) for name in ("house", "bundle"))
    lie.forge(house)
    lie.forge(bundle)
    by = {"verify": verified(house), "bundle": checked(bundle), "decide": decided(house)}
    for command, found in by.items():
        wanted = getattr(lie, command)
        assert wanted in found if wanted else not found, (command, found)
