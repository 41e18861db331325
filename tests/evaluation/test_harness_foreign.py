"""Claims about tasks in the harness' own format: pinned with their code, multiple choice only, no example scored."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from harness_samples import pairs, tiny_model, tokenizer

from ablate.data.tokenizers import CharTokenizer
from ablate.evaluation.harness.evaluate import evaluate_tasks, prepare_questions
from ablate.evaluation.harness.packs import find_pack
from ablate.evaluation.harness.pins import task_pin
from prereg.errors import CorpusError, UnsupportedError
from prereg.registry.paths import Root
from prereg.study.measure import Harness

TASKS = "tasks/native"
HARNESS = Harness(tasks=TASKS, items_per_task=5, shots=(0, 2))
YAML = """\
task: order
dataset_path: json
dataset_kwargs: {{data_files: {{validation: {folder}/scored.jsonl, examples: {folder}/examples.jsonl}}}}
output_type: multiple_choice
validation_split: validation
fewshot_split: examples
doc_to_text: ""
doc_to_choice: !function code.choices
doc_to_target: 0
target_delimiter: ""
fewshot_delimiter: "\\n"
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
CODE = "def choices(doc):\n    return [doc['sentence_good'], doc['sentence_bad']]\n"


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Root:
    folder = tmp_path / TASKS
    folder.mkdir(parents=True)
    found = pairs("order")
    for name, some in (("scored", found[:8]), ("examples", found[20:26])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in some))
    (folder / "code.py").write_text(CODE)
    (folder / "order.yaml").write_text(YAML.format(folder=folder))
    return Root(tmp_path)


def changed(root: Root, old: str, new: str, name: str = "order.yaml") -> None:
    path = root.path / TASKS / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_folder_in_the_harness_own_format_is_asked_like_any_other(root: Root) -> None:
    pin = task_pin(HARNESS, root, tokenizer())
    assert (pin.n_tasks, pin.n_items, pin.n_files, pin.n_unencodable) == (1, 5, 4, 0)
    found = evaluate_tasks(prepare_questions(HARNESS, pin, root, tokenizer()), tiny_model(64), 64, tokenizer())
    assert (found.record.n_items, found.record.n_requests) == (5, 20)
    assert {one.item for one in found.items} == {"0", "1", "2", "3", "4"}
    again = evaluate_tasks(prepare_questions(HARNESS, pin, root, tokenizer()), tiny_model(64), 64, tokenizer())
    assert again.items == found.items and again.metrics == found.metrics


def test_its_code_and_data_are_part_of_the_pin(root: Root) -> None:
    pin = task_pin(HARNESS, root, tokenizer())
    assert set(find_pack(TASKS, root).files) == {"code.py", "examples.jsonl", "order.yaml", "scored.jsonl"}
    changed(root, "return [", "return list((", "code.py")
    changed(root, "bad']]", "bad']))", "code.py")
    assert task_pin(HARNESS, root, tokenizer()).sha256 != pin.sha256
    with pytest.raises(CorpusError, match="not those registered"):
        prepare_questions(HARNESS, pin, root, tokenizer())


def test_an_item_that_cannot_be_written_is_left_out(root: Root) -> None:
    path = root.path / TASKS / "scored.jsonl"
    lines = path.read_text().splitlines()
    lines[3] = lines[3].replace("sat", "xyz")
    path.write_text("\n".join(lines) + "\n")
    pin = task_pin(HARNESS, root, tokenizer())
    assert pin.n_unencodable == 1
    found = evaluate_tasks(prepare_questions(HARNESS, pin, root, tokenizer()), tiny_model(64), 64, tokenizer())
    assert {one.item for one in found.items} == {"0", "1", "2", "4"}
    with pytest.raises(CorpusError, match="can write 0 of the 5 items"):
        task_pin(HARNESS, root, CharTokenizer.of("\n xyz"))


def test_tasks_that_generate_are_refused(root: Root) -> None:
    changed(root, "output_type: multiple_choice", "output_type: generate_until")
    changed(root, "doc_to_choice: !function code.choices\n", "")
    changed(root, "metric: acc,", "metric: exact_match,")
    with pytest.raises(UnsupportedError, match="'order' is 'generate_until'") as caught:
        task_pin(HARNESS, root, tokenizer())
    assert "multiple_choice" in caught.value.required


def test_examples_that_are_scored_are_refused(root: Root) -> None:
    changed(root, "fewshot_split: examples", "fewshot_split: validation")
    with pytest.raises(CorpusError, match="from items that are scored"):
        task_pin(HARNESS, root, tokenizer())
    assert task_pin(HARNESS.model_copy(update={"shots": (0,)}), root, tokenizer()).n_items == 5


def test_too_few_items_and_files_that_cannot_be_loaded_are_refused_plainly(root: Root) -> None:
    with pytest.raises(CorpusError, match="has 8 items, and items_per_task is 9"):
        task_pin(HARNESS.model_copy(update={"items_per_task": 9}), root, tokenizer())
    changed(root, "scored.jsonl", "gone.jsonl")
    with pytest.raises(CorpusError, match="cannot be loaded") as caught:
        task_pin(HARNESS, root, tokenizer())
    assert caught.value.fix


def test_tasks_of_the_harness_itself_without_a_network_are_refused_plainly(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lm_eval.tasks

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    class Manager:
        def load(self, names: list[str]) -> None:
            assert names == ["arc_easy", "blimp"]
            refuse()

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", Manager)
    with pytest.raises(CorpusError, match=r"tasks of the harness cannot be loaded: OSError: no network"):
        task_pin(HARNESS.model_copy(update={"tasks": "lm_eval:arc_easy,blimp"}), root, tokenizer())


def test_tasks_of_the_harness_itself_are_pinned_by_their_documents(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    import lm_eval.tasks

    # The harness' own tasks want a network. Here a folder stands for them: what is loaded is all that differs.
    original = lm_eval.tasks.TaskManager
    monkeypatch.setattr(
        lm_eval.tasks,
        "TaskManager",
        lambda: original(include_path=str(root.path / TASKS), include_defaults=False),
    )
    own = HARNESS.model_copy(update={"tasks": "lm_eval:order"})
    pin = task_pin(own, root, tokenizer())
    assert (pin.name, pin.n_files, pin.n_items) == ("lm_eval:order", 0, 5)
    assert (
        evaluate_tasks(
            prepare_questions(own, pin, root, tokenizer()), tiny_model(64), 64, tokenizer()
        ).record.tasks_sha256
        == pin.sha256
    )
    changed(root, "the cat sat", "the hat sat", "scored.jsonl")
    with pytest.raises(CorpusError, match="not those registered"):
        prepare_questions(own, pin, root, tokenizer())
