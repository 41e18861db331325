"""Claims about a whole study over tasks: registered with its pack, run, judged over items, reported."""

from __future__ import annotations

from conftest import House
from harness_samples import items_house

from ablate import chain


def test_a_study_over_items_is_run_and_decided(house: House) -> None:
    study = items_house(house)
    ran = chain.run(study, root=house.path, slots=1)
    assert ran.summary.complete
    decision = chain.decide(study, root=house.path)
    print(decision)
