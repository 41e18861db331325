"""Claims about items on disk: sealed with their run, bound by the ledger, gathered, judged, and verified."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import House
from evidence_factory import make_registration
from ledger_samples import entry
from quiet import QUIET
from test_items_verdict import case, drawn, items_study

from ablate.judge.decide import decide
from ablate.records.evidence import Evidence
from ablate.records.gather import gather
from ablate.records.rows import Row
from ablate.records.store import ItemScore, RunFolder
from ablate.runner.logbook import Logbook
from ablate.runner.progress import Tally
from ablate.verification.verify import verify_target
from prereg.registry.canon import sha256_bytes
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.plan import plan
from prereg.registry.register import register_study
from prereg.registry.registration import Pins, Registration
from prereg.study.load import load_study

NOW = "2026-05-04T13:20:00+00:00"


def book_of(root: Root, registration: Registration) -> Logbook:
    """What enters the ends of runs."""
    return Logbook(
        root=root,
        registration=registration,
        ledger=Ledger(root.ledger),
        now=lambda: NOW,
        watcher=QUIET,
        tally=Tally(planned=0, steps_planned=0),
    )


@pytest.fixture
def sealed(house: House, monkeypatch: pytest.MonkeyPatch) -> tuple[Root, Registration, Evidence]:
    """A study over items, registered, its runs sealed and in the ledger; and the evidence they were written from."""
    study = items_study(seeds=3)
    document = study.model_dump(mode="json")
    for hypothesis in document["hypotheses"].values():
        del hypothesis["family"]  # written by the macro of tasks alone, and refused in a file
    path = house.write(document)
    root = Root.find(path, house.path)
    corpus = make_registration(study).corpus
    monkeypatch.setattr(
        "prereg.registry.register.MIRRORED_ROTATION", None
    )  # evidence by hand has the order of the file
    registration, _ = register_study(
        root, load_study(path), pins=Pins(corpus=corpus), design=None, tool={"ablate": "0"}, at=NOW
    )
    made, evidence = case(study, drawn(study, gain=0.2, by_seed=0.05))
    assert made.sha256 == registration.sha256 and evidence.items is not None
    book = book_of(root, registration)
    book.log(entry("started", {"runs": 9}, **book.about()))
    records = {(run.variant, run.seed): run for run in evidence.runs}
    for spec in plan(registration):
        folder = RunFolder(root.run(spec.study, spec.registration, spec.variant, spec.seed))
        folder.path.mkdir(parents=True)
        start = {"variant": spec.variant, "seed": spec.seed, "attempt": 1, "made_with": "code"}
        book.log(entry("started", start, **book.about()))
        rows = evidence.metrics[(evidence.metrics["variant"] == spec.variant) & (evidence.metrics["seed"] == spec.seed)]
        kept = [Row(int(r.step), str(r.metric), float(r.value)) for r in rows.itertuples()]
        items = evidence.items[(evidence.items["variant"] == spec.variant) & (evidence.items["seed"] == spec.seed)]
        scores = [ItemScore(r.task, r.item, r.item_sha256, r.metric, r.value) for r in items.itertuples()]
        folder.seal(records[spec.variant, spec.seed], kept, scores)
        book.seal(spec)
    book.log(entry("finished", {}, **book.about()))
    return root, registration, evidence


def folder_of(root: Root, registration: Registration, variant: str = "none", seed: int = 1) -> RunFolder:
    return RunFolder(root.run(registration.study.study, registration.sha256, variant, seed))


def test_items_go_from_the_runs_folder_into_the_verdict(sealed: tuple[Root, Registration, Evidence]) -> None:
    root, registration, written = sealed
    found = gather(root, registration)
    assert found.items is not None and written.items is not None and not found.broken and not found.missing
    key = ["variant", "seed", "task", "item"]
    theirs = written.items.sort_values(key, ignore_index=True)
    ours = found.items.sort_values(key, ignore_index=True)
    assert ours.to_dict("list") == theirs.to_dict("list")
    decision = decide(registration, found)
    assert (decision.status, decision.verdict) == ("decided", "yes"), decision.because
    assert decision.findings == decide(make_registration(registration.study), written).findings
    entry = next(e for e in Ledger(root.ledger).entries() if e.event == "sealed")
    folder = folder_of(root, registration, str(entry.variant), int(str(entry.seed)))
    assert entry.items_sha256 == sha256_bytes(folder.items_path.read_bytes())
    assert verify_target(root.studies / "small.yaml", root.path).intact


@pytest.mark.parametrize("spoil", ["changed", "gone", "swapped"])
def test_items_that_are_not_the_sealed_ones_are_no_evidence_and_verify_names_them(
    sealed: tuple[Root, Registration, Evidence], spoil: str
) -> None:
    root, registration, _ = sealed
    folder = folder_of(root, registration)
    if spoil == "changed":
        data = bytearray(folder.items_path.read_bytes())
        data[len(data) // 2] ^= 1
        folder.items_path.write_bytes(bytes(data))
    elif spoil == "gone":
        folder.items_path.unlink()
    else:
        folder.items_path.write_bytes(folder_of(root, registration, seed=2).items_path.read_bytes())
    found = gather(root, registration)
    assert found.missing == (("none", 1),) and len(found.broken) == 1 and "items.parquet" in found.broken[0]
    decision = decide(registration, found)
    assert (decision.status, decision.findings) == ("inadmissible", ())
    faults = [fault for item in verify_target(root.studies / "small.yaml", root.path).items for fault in item.faults]
    assert len(faults) == 1 and "items.parquet is not what the ledger sealed" in faults[0]


def test_items_resealed_in_the_record_alone_are_not_what_the_ledger_bound(
    sealed: tuple[Root, Registration, Evidence], tmp_path: Path
) -> None:
    root, registration, _ = sealed
    folder = folder_of(root, registration)
    other = folder_of(root, registration, seed=2).items_path.read_bytes()
    folder.items_path.write_bytes(other)
    record = folder.read_record()
    assert record is not None
    folder.write_record(record.model_copy(update={"items_sha256": sha256_bytes(other)}))
    found = gather(root, registration)
    assert any("run.json is not what the ledger sealed" in text for text in found.broken)
    assert found.missing == (("none", 1),)


def test_items_that_no_seal_names_are_neither_read_nor_passed_over(
    sealed: tuple[Root, Registration, Evidence],
) -> None:
    root, registration, _ = sealed
    # A run sealed without items, beside which a table of items appears.
    folder = folder_of(root, registration)
    record = folder.read_record()
    assert record is not None
    folder.write_record(record.model_copy(update={"items_sha256": None}))
    found = gather(root, registration)
    assert any("seals no items" in text for text in found.broken) and ("none", 1) in found.unsealed
    assert found.withheld and found.items is None and found.metrics.empty


def test_a_sealed_file_that_is_no_table_of_items_is_broken_evidence(
    sealed: tuple[Root, Registration, Evidence],
) -> None:
    root, registration, _ = sealed
    folder = folder_of(root, registration)
    folder.items_path.write_bytes(folder.sealed_path.read_bytes())
    record = folder.read_record()
    assert record is not None
    forged = record.model_copy(update={"items_sha256": sha256_bytes(folder.items_path.read_bytes())})
    folder.write_record(forged)
    # Forged with the ledger: the newest entry binds the new bytes.
    book_of(root, registration).seal(next(s for s in plan(registration) if (s.variant, s.seed) == ("none", 1)))
    found = gather(root, registration)
    assert any("items.parquet has no column task, item, item_sha256" in text for text in found.broken)
