"""Shared runs of one base commit (`base_runs: shared`): which later comparisons use again follows from the ledger.

A study that `ablate gate` carries out may say `base_runs: shared`. Then the seeds of a comparison follow from study and
base commit alone, and of each of these seeds the first sealed run of base is the one that counts, for every later
comparison by the same study. Registration names these runs and their hashes in the lock, before a run of head; what is
not sealed by then is made, and is there for the next one. `faults` finds whatever else was done.

Marginally nothing changes for a comparison: its base runs were not chosen by their outcome, and its head's are new. But
the comparisons of one base err together (tests/shared_base_rates.py), which the report says and counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from prereg.commits.gate import BASE, HEAD, attempt_of, seeds_of_base
from prereg.errors import RegistrationError, Where
from prereg.registry.canon import sha256_file, sha256_of
from prereg.registry.ledger_entry import Entry, PromiseEntry, ReusedEntry, SealedEntry, SealEntry
from prereg.registry.paths import Root
from prereg.registry.plan import recipes_of
from prereg.registry.registration import Registration, ReusedRun
from prereg.study.load import Loaded
from prereg.study.spec import Study
from prereg.text import moment

OWN_OF_EACH = ("study", "title", "question")
"""Fields that comparisons by one study differ in, with the commit of head."""


@dataclass(frozen=True)
class ComparedCommits:
    """What the name of a comparison says of it."""

    source: str
    """The study that it was written from."""
    attempt: int
    """Which comparison of its two commits by that study, from 1."""


def comparison_of(study: Study) -> ComparedCommits | None:
    """Of a study that `ablate gate` wrote for two commits; none of any other."""
    base, head = study.commits.get(BASE), study.commits.get(HEAD)
    if base is None or head is None:
        return None
    parts = attempt_of(study.study, base, head)
    return None if parts is None else ComparedCommits(*parts)


def base_sha256(registration: Registration) -> str | None:
    """sha256 of all that a comparison with shared base runs promises but for its head; none of any other study.

    Of comparisons by one study, with one base, they are equal; a claim, margin, rule or number of seeds that was
    changed since makes another one.
    """
    study, base = registration.study, registration.commit_of(BASE)
    if study.base_runs != "shared" or base is None:
        return None
    # Without defaults, so that a field of a later version leaves the hash as it is.
    promise = study.model_dump(mode="json", exclude_defaults=True)
    for field in OWN_OF_EACH:
        promise.pop(field, None)
    promise.get("variants", {}).get(HEAD, {}).pop("commit", None)
    data = {file.path: file.sha256 for file in registration.data_files}
    # `own_checks` is what older versions hashed too, and is empty.
    return sha256_of({"study": promise, "base": [base.commit, base.sha256], "data": data, "own_checks": {}})


def first_seals(seals: Iterable[Entry], registration: Registration) -> dict[int, SealedEntry]:
    """Seed -> the first seal of a run of base that is made of the same as the one planned here.

    `seals` are in the order of the ledger. Imported runs and runs of another arm are not among them.
    """
    seed_by_recipe = {recipe: seed for (arm, seed), recipe in recipes_of(registration).items() if arm == BASE}
    first: dict[int, SealedEntry] = {}
    for entry in seals:
        seed = seed_by_recipe.get(entry.recipe_sha256 or "") if isinstance(entry, SealedEntry) else None
        if isinstance(entry, SealedEntry) and entry.cell == (BASE, seed):
            first.setdefault(entry.seed, entry)
    return first


def runs_to_use_again(root: Root, entries: Sequence[Entry], registration: Registration, loaded: Loaded) -> tuple[
    ReusedRun, ...
]:  # fmt: skip
    """The sealed runs of base that a comparison uses again, by seed; none where base runs are not shared.

    Raises `RegistrationError` where the study shares base runs and is no comparison, has other seeds than follow from
    it, was changed since base was sealed, or where the record of a run is not on this disk as it was sealed.
    """
    study = registration.study
    if study.base_runs == "own":
        return ()
    fault = next(_faults_of_form(study), "")
    if fault:
        raise RegistrationError(
            f"base_runs: shared, and {fault}",
            required="a comparison of two commits, with the seeds that follow from study and base",
            fix=f"ablate gate {loaded.path}, which writes and registers one; or base_runs: own",
            where=Where(file=loaded.path, line=loaded.line(("base_runs",))),
        )
    others = [entry for entry in entries if entry.study != study.study]
    first, promised = first_seals(others, registration), base_sha256(registration)
    reused = []
    for seed in (seed for seed in study.seeds if seed in first):
        entry = first[seed]
        if _promise_of(entry, others) != promised:
            raise RegistrationError(
                f"'{entry.study}' sealed runs of this base on {moment(entry.at)}, and the study has changed since in "
                "more than words",
                required="one study for all comparisons that share base runs: a claim or margin that is chosen after "
                "base was seen promises nothing",
                fix="restore the file of the study; or give it another name, with which base is trained anew",
                where=Where(file=loaded.path),
            )
        folder = root.run(entry.study, entry.registration, *entry.cell)
        # Record and table before anything is registered: a comparison whose base runs are damaged leaves nothing.
        for name, sealed in (("run.json", entry.run_sha256), ("metrics.parquet", entry.metrics_sha256)):
            file = folder / name
            if not file.is_file() or sha256_file(file) != sealed:
                raise RegistrationError(
                    f"base seed {seed}, which '{entry.study}' sealed on {moment(entry.at)}, is not here as it was "
                    f"sealed: {root.relative(file)}",
                    required="every sealed run of base with these seeds: they are used again, all of them",
                    fix=f"restore {root.relative(folder)} from where it was made; or give the study another name, "
                    "with which base is trained anew",
                    where=Where(file=loaded.path),
                )
        reused.append(
            ReusedRun(
                seed=seed,
                study=entry.study,
                registration=entry.registration,
                seal=entry.sha256,
                sealed_at=entry.at,
                run_sha256=entry.run_sha256,
                outcome_sha256=entry.outcome_sha256,
            )
        )
    return tuple(reused)


def _promise_of(seal: SealEntry, entries: Iterable[Entry]) -> str | None:
    """What the comparison that sealed a run promised but for its head, as the ledger has it."""
    promises = (entry for entry in entries if isinstance(entry, PromiseEntry) and entry.study == seal.study)
    return next((entry.base_sha256 for entry in promises if entry.registration == seal.registration), None)


def _faults_of_form(study: Study) -> Iterator[str]:
    """What makes a study none that may share base runs, a clause each."""
    comparison = comparison_of(study)
    if comparison is None:
        yield f"'{study.study}' is not the name of a comparison of its two commits"
        return
    seeds = seeds_of_base(comparison.source, study.commits[BASE], comparison.attempt, study.n_seeds)
    if study.seeds != seeds:
        yield f"its seeds are not those that follow from '{comparison.source}' and its base"


def faults(registration: Registration, entries: Sequence[Entry], before: Sequence[Entry]) -> Iterator[str]:
    """What is wrong with the base runs that a registration uses again, a clause each.

    Parameters
    ----------
    entries : sequence of Entry
        The ledger's entries of this study.
    before : sequence of Entry
        Entries of other studies from before this registration, in the order of the ledger.
    """
    study, reused = registration.study, {run.seed: run for run in registration.reused}
    if study.base_runs == "own":
        yield "the study does not share base runs"
        return
    yield from _faults_of_form(study)
    # Which runs the rule names: of each seed the first, of the same commit, files, configuration and data.
    first, promised = first_seals(before, registration), base_sha256(registration)
    stated = next((entry.base_sha256 for entry in entries if isinstance(entry, PromiseEntry)), None)
    if stated != promised:
        yield "the ledger has another promise of this comparison than its lock"
    for seed, entry in first.items():
        run = reused.pop(seed, None)
        if run is None:
            yield f"base seed {seed}, sealed by '{entry.study}' on {moment(entry.at)}, is left out"
        elif run.seal != entry.sha256:
            yield f"base seed {seed} is not the run that was sealed first, by '{entry.study}' on {moment(entry.at)}"
        elif (run.run_sha256, run.outcome_sha256, run.registration, run.study) != (
            entry.run_sha256,
            entry.outcome_sha256,
            entry.registration,
            entry.study,
        ):
            yield f"base seed {seed} is registered with other hashes than were sealed"
        elif _promise_of(entry, before) != promised:
            yield f"'{entry.study}', which sealed base seed {seed}, was another study"
    for seed, run in reused.items():
        yield f"base seed {seed} of '{run.study}' is no run of this base that was sealed before the registration"
    # And that these are the runs that were taken: no other one, and none made again here.
    seal_by_cell = {run.cell: run.seal for run in registration.reused}
    for seal in (entry for entry in entries if isinstance(entry, SealEntry)):
        if isinstance(seal, ReusedEntry) and seal_by_cell.get(seal.cell) != seal.seal:
            yield f"{seal.variant} seed {seal.seed} was taken from '{seal.of_study}', and is not registered so"
        elif not isinstance(seal, ReusedEntry) and seal.cell in seal_by_cell:
            yield f"{seal.variant} seed {seal.seed} was made again here"


def n_comparisons(registration: Registration, before: Iterable[Entry]) -> int:
    """How many comparisons rest on base runs that this one uses again: those that made or used them before it, and
    itself."""
    seals = {run.seal for run in registration.reused}
    made = {run.study for run in registration.reused}
    used = {entry.study for entry in before if isinstance(entry, ReusedEntry) and entry.seal in seals}
    return len(made | used) + 1
