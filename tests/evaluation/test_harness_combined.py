"""Tasks together with other parts: byte pairs, stored ids, a run reproduced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from conftest import House
from harness_samples import N_TASKS, TASKS, items_document, items_house, write_pack
from quiet import QUIET
from safetensors.torch import load_file

import ablate as api
from ablate.evaluation.harness.evaluate import evaluate_tasks
from ablate.gpt.inputs import Inputs
from ablate.gpt.trainer import Trainer
from ablate.records.store import RunFolder
from ablate.runner.options import RunOptions
from ablate.workspace import Workspace, require_registered
from prereg.errors import SpecError
from prereg.registry.history import past_registrations
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.plan import RunSpec, plan
from prereg.registry.registration import load_registration, promise_sha256
from prereg.study.spec import study_from_document
from prereg.verification import verify_registration

torch.set_num_threads(1)
N = N_TASKS * 6


def with_data(**data: Any) -> dict[str, Any]:
    """The base of the study over items, on other data."""
    return items_document()["base"] | {"data": data}


def first_run(house: House, study: Path) -> tuple[RunSpec, Inputs, RunFolder]:
    """The first run of a registered study, as it is recorded."""
    registration = require_registered(Workspace().open(study))
    spec = plan(registration)[0]
    assert isinstance(spec, RunSpec)
    return (
        spec,
        Inputs(house.path / "data" / "corpora", house.path),
        RunFolder(Root(house.path).run("tiny", spec.registration, spec.variant, spec.seed)),
    )


def asked_of_sealed_weights(spec: RunSpec, inputs: Inputs, folder: RunFolder) -> list[float]:
    """What the sealed weights answer, in this process."""
    text = inputs.text(spec)
    questions = inputs.questions(spec, text)
    assert questions is not None
    model = Trainer(spec.config, text.split, text.tokenizer.size).model
    model.load_state_dict(load_file(folder.weights_path), strict=False)
    return [one.value for one in evaluate_tasks(questions, model, spec.config.model.context, text.written_with).items]


@pytest.mark.slow
def test_a_study_of_byte_pairs_pins_data_and_tasks_and_leaves_no_item_out(house: House) -> None:
    study = items_house(house, base=with_data(corpus="tiny", tokenizer={"bpe": 262}))
    write_pack(house.path, strange=True)
    ran = api.run(study, RunOptions(slots=1), workspace=api.Workspace(console=QUIET))
    assert ran.summary.complete
    registration = load_registration(Root(house.path), "tiny")
    assert registration is not None and registration.data is not None and registration.tasks is not None
    assert registration.tasks.n_unencodable == 0
    assert verify_registration(Root(house.path), "tiny") == []
    spec, inputs, folder = first_run(house, study)
    assert spec.tokenizer is not None and spec.tasks == registration.tasks
    record = folder.read_record()
    assert record is not None and record.harness is not None
    assert (record.harness.n_items, record.harness.unencodable) == (N, 0)
    assert pq.read_table(folder.items_path)["value"].to_pylist() == asked_of_sealed_weights(spec, inputs, folder)
    decision = api.decide(study).decision
    assert [check.name for check in decision.checks if not check.passed and check.severity != "note"] == []


def test_tasks_and_data_are_each_a_part_of_the_promise() -> None:
    study = study_from_document(items_document()).model_dump(mode="json")
    part = {"x": 1}
    plain = {"study": study, "corpus": None}
    hashes = [
        promise_sha256(plain | more) for more in ({}, {"data": part}, {"tasks": part}, {"data": part, "tasks": part})
    ]
    assert len(set(hashes)) == 4
    nothing = {"own_checks": {}, "scripts": None, "data_files": [], "data": None, "tasks": None}
    assert promise_sha256(plain | nothing) == hashes[0]


def test_amended_data_and_tasks_are_told_apart_in_the_history(house: House) -> None:
    study = items_house(house, base=with_data(corpus="tiny", tokenizer={"bpe": 262}))
    first, _ = api.register(study)
    items_house(house, base=with_data(corpus="tiny", tokenizer={"bpe": 264}))
    path = house.path / TASKS / "order.jsonl"
    path.write_text(path.read_text().replace("cat", "hat", 1))
    second, entry = api.amend(study, reason="a larger vocabulary, and a misprint")
    fields = {one.field for one in entry.differences}
    assert {"data.tokenizers.none", "tasks.sha256"} <= fields
    assert verify_registration(Root(house.path), "tiny") == []
    made = past_registrations(Root(house.path), "tiny", Ledger(Root(house.path).ledger).entries())
    assert [(one.entry.registration, one.proven) for one in made] == [(one.sha256, True) for one in (first, second)]


def test_stored_token_ids_cannot_be_asked_and_it_is_said_when_the_study_is_read() -> None:
    with pytest.raises(SpecError, match=r"harness is given and 'none' reads token ids[\s\S]*tasks are texts") as caught:
        study_from_document(items_document(base=with_data(corpus="tiny", tokenizer="own")))
    assert str(caught.value.where) == "measure.harness" and caught.value.fix


@pytest.mark.slow
def test_a_run_that_was_asked_is_made_again_with_the_same_answers(house: House) -> None:
    study = items_house(house)
    assert api.run(study, RunOptions(slots=1), workspace=api.Workspace(console=QUIET)).summary.complete
    found = api.reproduce(study, "layernorm/2")
    assert found.exact and found.items == "equal" and found.unpromised == ()
    assert "harness/accuracy" in {metric.metric for metric in found.metrics}
    beginning = api.reproduce(study, "none/1", steps=3)
    assert beginning.exact and beginning.status_again == "beginning" and beginning.items == "not compared"
