"""The newest seal of every run, of ledgers that may have been made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evidence_factory import make_evidence, one_claim, small_study, with_entry

from ablate.judge.decide import decide
from prereg.registry.paths import Root
from prereg.registry.plan import cell_of, newest_seals, sealed_places

LACKING: tuple[dict[str, Any], ...] = ({}, {"variant": "layernorm"}, {"seed": 1}, {"variant": "layernorm", "seed": "x"})


def test_the_newest_seal_of_each_run_counts_and_one_that_names_no_run_has_no_folder(tmp_path: Path) -> None:
    registration, evidence = make_evidence(small_study())
    root, cells = Root(tmp_path), list(newest_seals(evidence.ledger, registration.sha256))
    assert cells == list(evidence.planned)
    variant, seed = cells[0]
    evidence = with_entry(registration, evidence, "imported", {"variant": variant, "seed": seed, "note": "again"})
    for body in LACKING:
        evidence = with_entry(registration, evidence, "sealed", body)
    newest = newest_seals(evidence.ledger, registration.sha256)
    assert newest[variant, seed].body["note"] == "again" and list(newest)[: len(cells)] == cells
    assert [cell[1] for cell in newest if cell not in cells] == [-1, -1]
    assert not newest_seals(evidence.ledger, "0" * 64)
    places = sealed_places(root, evidence.ledger)
    study = registration.study.study
    assert list(places[registration.sha256]) == [root.run(study, registration.sha256, *cell) for cell in cells]
    assert list(places) == [registration.sha256]
    assert [cell_of(entry)[1] for entry in evidence.ledger[-len(LACKING) :]] == [-1] * len(LACKING)


def test_a_seal_that_names_no_run_stops_no_look_of_a_sequential_study() -> None:
    registration, evidence = make_evidence(one_claim(seeds=8, stopping={"looks": [3, 5, 8]}))
    for body in LACKING:
        evidence = with_entry(registration, evidence, "sealed", body)
    assert decide(registration, evidence).status
