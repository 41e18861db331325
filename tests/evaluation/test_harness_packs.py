"""Claims about task packs: found by name, known by their hash, examples never among the scored items."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from harness_samples import N_ITEMS, STRANGE, TASKS, pairs, tokenizer, write_pack

from ablate.data.tokenizers import CharTokenizer
from ablate.evaluation.harness.packs import (
    KNOWN,
    Prompt,
    TaskItem,
    filled_prompt,
    find_pack,
    minimal_pair,
    parse_items,
    plain_prompts,
    read_pack,
    read_prompts,
)
from ablate.evaluation.harness.pins import draw_items, pool, task_pin
from prereg.errors import CorpusError
from prereg.registry.canon import sha256_bytes, sha256_of
from prereg.registry.paths import Root
from prereg.study.designs.per_task import pack_folders, task_names
from prereg.study.measure import PACKS, Harness

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def harness(**changes: object) -> Harness:
    return Harness.model_validate({"tasks": TASKS, "items_per_task": 6, "shots": (0, 2)} | changes)


@pytest.fixture(name="root")
def _root(tmp_path: Path, no_own_corpora: None) -> Root:
    write_pack(tmp_path)
    return Root(tmp_path)


def test_a_folder_of_tasks_is_read_whole_and_hashed_by_its_files_and_prompts(root: Root) -> None:
    pack = find_pack(TASKS, root)
    assert {task: len(items) for task, items in pack.items.items()} == {"article": 14, "end": 14, "order": 14}
    files = {name: sha256_bytes((root.path / TASKS / name).read_bytes()) for name in pack.files}
    assert dict(pack.files) == files
    assert pack.sha256 == sha256_of({"files": files, "prompts": {"plain": "{query}"}})


def test_a_changed_letter_or_prompt_is_another_pack(root: Root) -> None:
    before = find_pack(TASKS, root).sha256
    path = root.path / TASKS / "order.jsonl"
    text = path.read_text()
    path.write_text(text.replace("cat", "hat", 1))
    assert find_pack(TASKS, root).sha256 != before
    path.write_text(text)
    assert find_pack(TASKS, root).sha256 == before
    (root.path / TASKS / "prompts.json").write_text('{"told": "he said "}')
    assert find_pack(TASKS, root).sha256 != before


def test_the_order_of_choices_follows_from_the_text_and_favours_neither() -> None:
    items = [minimal_pair(n, f"good {n}", f"bad {n}") for n in range(400)]
    assert all(item.choices[item.gold] == f"good {item.number}" for item in items)
    # Both orders come up: 200 of 400, give or take four standard deviations of a fair coin.
    assert 160 <= sum(item.gold == 0 for item in items) <= 240
    assert [item.gold for item in items] == [minimal_pair(n, f"good {n}", f"bad {n}").gold for n in range(400)]
    swapped = minimal_pair(0, "bad 0", "good 0")
    assert swapped.choices == items[0].choices and swapped.gold != items[0].gold


def test_lines_in_pairs_and_questions_with_choices_are_read_too(tmp_path: Path) -> None:
    (good,) = parse_items(tmp_path / "z.txt", b"look at this things .\nlook at this thing .\n")
    assert good.choices[good.gold] == "look at this thing ."
    line = json.dumps({"query": "a cat is", "choices": [" a", " b", " c"], "gold": 2}).encode()
    assert parse_items(tmp_path / "q.jsonl", line) == (TaskItem(0, "a cat is", (" a", " b", " c"), 2),)


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"query": "a"}',
        '{"choices": ["a"], "gold": 0}',
        '{"choices": ["a", "b"], "gold": 2}',
        '{"choices": ["a", "b"], "gold": -1}',
        '{"choices": ["a", ""], "gold": 0}',
        '{"sentence_good": "a", "sentence_bad": 3}',
    ],
)
def test_a_line_that_is_no_item_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    good = json.dumps({"choices": ["a", "b"], "gold": 1})
    with pytest.raises(CorpusError, match=r"q\.jsonl, line 2 is no item") as caught:
        parse_items(tmp_path / "q.jsonl", f"{good}\n{line}\n".encode())
    assert caught.value.required


def test_a_pair_of_equal_sentences_is_passed_over_and_counted(root: Root) -> None:
    path = root.path / TASKS / "order.jsonl"
    lines = path.read_text().splitlines()
    lines[1] = json.dumps({"sentence_good": "the mat.", "sentence_bad": "the mat."})
    path.write_text("\n".join(lines) + "\n")
    pin = task_pin(harness(), root)
    assert (pin.n_void, pin.n_items) == (1, 18)
    drawn = draw_items(find_pack(TASKS, root), harness(), None)
    assert [item.number for item in drawn.scored["order"]] == [0, 2, 3, 4, 5, 6]


def test_examples_are_none_of_the_scored_items_and_drawn_by_the_study_s_seed(root: Root) -> None:
    pack = find_pack(TASKS, root)
    for task, items in pack.items.items():
        scored = {item.choices for item in items[:6]}
        order = pool(harness(), task, items)
        assert len(order) == N_ITEMS - 6 and not scored & {item.choices for item in order}
        assert order == pool(harness(shots=(1,)), task, items), "one example is the first of three"
        assert order != pool(harness(examples_seed=7), task, items)
    orders = [[item.number for item in pool(harness(), task, items)] for task, items in pack.items.items()]
    assert orders[0] != orders[1], "each task draws by itself"


def test_an_item_that_stands_twice_is_no_example_of_itself(root: Root) -> None:
    path = root.path / TASKS / "order.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:6], *lines[:6], *lines[6:8]]) + "\n")
    assert {item.number for item in pool(harness(), "order", find_pack(TASKS, root).items["order"])} == {12, 13}


def test_too_few_items_or_examples_are_refused_before_anything_is_registered(root: Root) -> None:
    with pytest.raises(CorpusError, match="14 items, and items_per_task is 15"):
        task_pin(harness(items_per_task=15), root)
    with pytest.raises(CorpusError, match="2 items that are not scored, and 3 examples"):
        task_pin(harness(items_per_task=12, shots=(3,)), root)
    assert task_pin(harness(items_per_task=14, shots=(0,)), root).n_items == 42


def test_items_that_the_tokenizer_cannot_write_are_left_out_and_counted(root: Root) -> None:
    write_pack(root.path, strange=True)
    assert not set(STRANGE["sentence_good"]) <= set(tokenizer().characters)
    pin = task_pin(harness(), root, tokenizer())
    assert (pin.n_items, pin.n_unencodable) == (18, 1)
    assert task_pin(harness(), root).n_unencodable == 0, "a tokenizer of bytes writes everything"
    drawn = draw_items(find_pack(TASKS, root), harness(), tokenizer())
    assert [item.number for item in drawn.scored["article"]] == [0, 1, 3, 4, 5], "no other item takes its place"


def test_a_task_that_the_tokenizer_cannot_write_at_all_is_refused(root: Root) -> None:
    with pytest.raises(CorpusError, match=r"can write 0 of the 6 items of task 'article'") as caught:
        task_pin(harness(), root, CharTokenizer.of("xyz\n "))
    assert "bpe" in caught.value.fix and str(caught.value.where) == "measure.harness.tasks"


def test_a_pack_that_is_not_here_says_where_it_was_looked_for(root: Root) -> None:
    with pytest.raises(CorpusError) as caught:
        find_pack("blimp", root)
    for folder in pack_folders(root):
        assert str(folder / "blimp") in caught.value.found
    assert "alexwarstadt/blimp" in caught.value.required
    with pytest.raises(CorpusError) as caught:
        find_pack("blimb", root)
    assert "blimp" in caught.value.fix


def test_a_folder_under_a_known_name_with_other_items_is_refused(root: Root) -> None:
    write_pack(root.corpora, "blimp")
    with pytest.raises(CorpusError, match="is not the pack 'blimp'") as caught:
        find_pack("blimp", root)
    assert KNOWN["blimp"].files_sha256 in caught.value.required


def test_packs_are_found_on_the_search_path_of_corpora(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    write_pack(elsewhere, "mine")
    monkeypatch.setenv("ABLATE_CORPORA", f"{tmp_path / 'nowhere'}{os.pathsep}{elsewhere}")
    assert find_pack("mine", root, os.environ).folder == elsewhere / "mine"
    write_pack(root.path / "data", "mine")
    monkeypatch.delenv("ABLATE_CORPORA")
    assert find_pack("mine", root, os.environ).folder == root.path / "data" / "mine"


def test_a_prompt_has_its_places_and_no_others(tmp_path: Path) -> None:
    item = TaskItem(0, "Is {options} {0}?", ("yes", "no"), 0)
    filled = filled_prompt(Prompt("Q: {query}\n{options}\n{choice_2} or {choice_1} {choice_0}\nA: "), item)
    assert filled == "Q: Is {options} {0}?\nyes\nno\nno or yes {choice_0}\nA: "
    path = tmp_path / "prompts.json"
    assert plain_prompts(read_prompts(path)) == {"plain": "{query}"}
    prompts = {"a": "x {query}", "b": "", "c": {"text": "{choice_1}?", "answers": ["yes", "no"]}}
    path.write_text(json.dumps(prompts))
    assert plain_prompts(read_prompts(path)) == prompts


@pytest.mark.parametrize(
    "bad",
    [
        "[]",
        "{}",
        '{"a/b": "x"}',
        '{"a": 3}',
        "nothing",
        '{"a": {"text": "x"}}',
        '{"a": {"text": 3, "answers": ["yes", "no"]}}',
        '{"a": {"text": "x", "answers": ["yes"]}}',
        '{"a": {"text": "x", "answers": ["yes", "yes"]}}',
        '{"a": {"text": "x", "answers": ["yes", ""]}}',
        '{"a": {"text": "x", "answers": "yn"}}',
    ],
)
def test_what_is_no_prompt_is_refused(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(bad)
    with pytest.raises(CorpusError, match="holds no prompts") as caught:
        read_prompts(path)
    assert "answers" in caught.value.required


@pytest.mark.parametrize(
    ("prompt", "fault"),
    [
        ({"text": "Which? ", "answers": ["A", "B", "C"]}, "has 3 answers, and item 0 of task 'article' has 2 choices"),
        ("Not {choice_3}? ", r"has the place \{choice_3\}, and item 0 of task 'article' has 2 choices"),
    ],
)
def test_a_prompt_that_does_not_fit_the_choices_is_refused(root: Root, prompt: object, fault: str) -> None:
    write_pack(root.path, prompts={"bare": "", "mine": prompt})
    with pytest.raises(CorpusError, match=f"the prompt 'mine' {fault}") as caught:
        task_pin(harness(), root)
    assert "prompts.json" in caught.value.fix


def test_answers_are_part_of_what_a_pack_is_and_of_what_a_tokenizer_must_write(root: Root) -> None:
    write_pack(root.path, prompts={"mine": {"text": "{choice_1}\n", "answers": ["on", "not"]}})
    before = find_pack(TASKS, root).sha256
    assert task_pin(harness(), root, tokenizer()).n_unencodable == 0
    write_pack(root.path, prompts={"mine": {"text": "{choice_1}\n", "answers": ["not", "on"]}})
    assert find_pack(TASKS, root).sha256 != before
    write_pack(root.path, prompts={"mine": {"text": "{choice_1}\n", "answers": ["GOOD", "BAD"]}})
    with pytest.raises(CorpusError, match="can write 0 of the 6 items"):
        task_pin(harness(), root, tokenizer())


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "tasks", "items", "prompts"),
    [("blimp", 67, 1000, 1), ("blimp-prompts", 67, 1000, 3), ("zorro", 23, 2000, 1), ("zorro-prompts", 5, 2000, 7)],
)
def test_the_known_packs_are_what_their_hashes_say(root: Root, name: str, tasks: int, items: int, prompts: int) -> None:
    folder = SHARED / KNOWN[name].folder
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here")
    pack = find_pack(name, root, {"ABLATE_CORPORA": str(SHARED)})
    assert len(pack.items) == KNOWN[name].n_tasks == tasks
    assert {len(found) for found in pack.items.values()} == {items}
    assert len(pack.prompts) == prompts
    assert task_names(name, root, {"ABLATE_CORPORA": str(SHARED)}) == tuple(sorted(pack.items))
    assert PACKS[name][0] == tasks
    assert read_pack(name, folder, KNOWN[name]).sha256 == pack.sha256


def test_the_made_up_pairs_can_be_written() -> None:
    assert len(pairs("order")) == 42
    for task in ("order", "article", "end"):
        for pair in pairs(task):
            tokenizer().encode(pair["sentence_good"] + pair["sentence_bad"])
